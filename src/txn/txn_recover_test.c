/* txn_recover_test.c - random transactions, several open at once, against a model; crashes, crashes in recovery.
 *
 * The model: the committed state after every commit since the last one known to be durable; what each open transaction sees; who
 * holds which record. After a crash the trees must show one of these states, no older than the last durable one, and everything that
 * was prepared then must still be, with its locks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "txn/txn_test_rig.h"

enum {
    KEYS = 48, /* of each tree */
    SLOTS = KEYS * RIG_TREES,
    OPEN_MAX = 5,
    PREPARED_MAX = 3,
    SAVEPOINTS = 4,
    STATES = 400, /* then the log is flushed */
};

struct cells { /* by tree * KEYS + key */
    uint32_t version[SLOTS];
};
struct marks {
    bool held[SLOTS];
};
struct saved {
    uint64_t id;
    struct cells sees;
    struct marks marks, wrote;
};
struct open {
    struct txn *t;
    bool serializable, tainted;
    uint64_t snapshot; /* commits that it sees */
    struct cells sees;
    struct marks marks; /* locks */
    struct marks wrote;
    unsigned saved_count;
    struct saved saved[SAVEPOINTS];
};
struct ready {    /* prepared */
    unsigned gid; /* 0 = none */
    struct cells after;
    struct marks marks, wrote;
};
struct state {
    lsn_t lsn; /* of the record that led here */
    struct cells cells;
    struct ready ready[PREPARED_MAX];
};
struct model {
    struct rig r;
    struct zt *t;
    struct state *states;
    unsigned count;
    uint64_t commits;        /* ever */
    uint64_t changed[SLOTS]; /* number of the commit that changed it last */
    struct open open[OPEN_MAX];
    bool crashes; /* the power may go while something is undone */
    uint32_t next_version;
    unsigned next_gid;
};

static struct state *
now(struct model *m)
{
    return &m->states[m->count - 1];
}

/* Who holds the record: an open transaction other than `self`, or a prepared one. */
static bool
held(struct model *m, unsigned slot, const struct open *self)
{
    for (unsigned i = 0; i < OPEN_MAX; i++) {
        if (m->open[i].t != NULL && &m->open[i] != self && m->open[i].marks.held[slot])
            return true;
    }
    for (unsigned i = 0; i < PREPARED_MAX; i++) {
        if (now(m)->ready[i].gid != 0 && now(m)->ready[i].marks.held[slot])
            return true;
    }
    return false;
}

/* A new state after the record at `lsn`, a copy of the last; those before the last durable one are forgotten. */
static struct state *
state_push(struct model *m, lsn_t lsn)
{
    lsn_t durable;
    unsigned first = 0;

    if (m->count == STATES && !m->r.dead)
        ZT_OK(m->t, wal_flush(m->r.wal, wal_end(m->r.wal)));
    durable = wal_durable(m->r.wal);
    while (first + 1 < m->count && m->states[first + 1].lsn <= durable)
        first++;
    memmove(m->states, m->states + first, (m->count - first) * sizeof(*m->states));
    m->count -= first;
    m->states[m->count] = m->states[m->count - 1];
    m->states[m->count].lsn = lsn;
    m->count++;
    return now(m);
}

static void
apply(struct model *m, struct cells *to, const struct cells *from, const struct marks *wrote)
{
    m->commits++;
    for (unsigned i = 0; i < SLOTS; i++) {
        if (wrote->held[i]) {
            to->version[i] = from->version[i];
            m->changed[i] = m->commits;
        }
    }
}

/* ---- steps ---- */

static struct open *
pick(struct model *m)
{
    unsigned first = (unsigned)zt_below(m->t, OPEN_MAX);

    for (unsigned i = 0; i < OPEN_MAX; i++) {
        struct open *o = &m->open[(first + i) % OPEN_MAX];

        if (o->t != NULL)
            return o;
    }
    return NULL;
}

static void
step_begin(struct model *m)
{
    for (unsigned i = 0; i < OPEN_MAX; i++) {
        struct open *o = &m->open[i];

        if (o->t != NULL)
            continue;
        memset(o, 0, sizeof(*o));
        o->serializable = zt_below(m->t, 4) == 0;
        o->t = rig_begin(&m->r, o->serializable);
        o->snapshot = m->commits;
        o->sees = now(m)->cells;
        return;
    }
}

static void
abort_open(struct model *m, struct open *o)
{
    int rc;

    if (o == NULL)
        return;
    m->r.armed = m->crashes;
    rc = txn_abort(o->t);
    m->r.armed = false;
    o->t = NULL;
    if (!m->r.dead)
        ZT_OK(m->t, rc);
}

static int
expected_write(struct model *m, struct open *o, unsigned slot)
{
    if (held(m, slot, o))
        return COHORT_CONFLICT;
    if (!o->marks.held[slot] && m->changed[slot] > o->snapshot)
        return COHORT_CONFLICT;
    return 0;
}

static void
write_one(struct model *m, struct open *o)
{
    unsigned slot = (unsigned)zt_below(m->t, SLOTS);
    uint32_t version = zt_below(m->t, 4) == 0 ? 0 : ++m->next_version;
    bool lock = zt_below(m->t, 8) == 0;
    int want = expected_write(m, o, slot);
    int rc;

    if (want == 0 && !lock && version == 0 && o->sees.version[slot] == 0)
        want = COHORT_NOTFOUND;
    rc = lock ? rig_lock(&m->r, o->t, slot / KEYS, slot % KEYS)
              : rig_put(&m->r, o->t, slot / KEYS, slot % KEYS, version);
    ZT_STATUS(m->t, rc, want);
    if (rc != 0)
        return;
    o->marks.held[slot] = true;
    if (!lock) {
        o->sees.version[slot] = version;
        o->wrote.held[slot] = true;
    }
}

static void
step_write(struct model *m)
{
    struct open *o = pick(m);
    unsigned n = zt_below(m->t, 10) == 0 ? 40 : 1;

    while (o != NULL && n-- > 0)
        write_one(m, o);
}

static void
step_alone(struct model *m)
{
    unsigned slot = (unsigned)zt_below(m->t, SLOTS);
    uint32_t version = zt_below(m->t, 4) == 0 ? 0 : ++m->next_version;
    int want = held(m, slot, NULL)                                ? COHORT_CONFLICT
               : version == 0 && now(m)->cells.version[slot] == 0 ? COHORT_NOTFOUND
                                                                  : 0;
    struct state *s;
    int rc = rig_put(&m->r, NULL, slot / KEYS, slot % KEYS, version);

    ZT_STATUS(m->t, rc, want);
    if (rc != 0)
        return;
    s = state_push(m, wal_end(m->r.wal)); /* its record is the newest; a bound from above will do */
    s->cells.version[slot] = version;
    m->commits++;
    m->changed[slot] = m->commits;
}

static void
step_read(struct model *m)
{
    struct open *o = pick(m);

    for (unsigned i = 0; i < 8; i++) {
        unsigned slot = (unsigned)zt_below(m->t, SLOTS);
        uint32_t version;

        ZT_OK(m->t, rig_get(&m->r, o != NULL ? o->t : NULL, slot / KEYS, slot % KEYS, &version));
        ZT_CHECK(m->t,
                 version == (o != NULL ? o->sees.version[slot] : now(m)->cells.version[slot]));
    }
    if (o != NULL)
        o->tainted = o->serializable;
}

static void
step_savepoint(struct model *m)
{
    struct open *o = pick(m);
    struct saved *s;
    int rc;

    if (o == NULL)
        return;
    if (o->saved_count < SAVEPOINTS && zt_below(m->t, 2) == 0) {
        s = &o->saved[o->saved_count++];
        ZT_OK(m->t, txn_savepoint(o->t, &s->id));
        s->sees = o->sees;
        s->marks = o->marks;
        s->wrote = o->wrote;
    } else if (o->saved_count > 0) {
        unsigned i = (unsigned)zt_below(m->t, o->saved_count);

        s = &o->saved[i];
        if (zt_below(m->t, 3) == 0) {
            ZT_OK(m->t, txn_release(o->t, s->id));
            o->saved_count = i;
            return;
        }
        m->r.armed = m->crashes;
        rc = txn_rollback_to(o->t, s->id);
        m->r.armed = false;
        if (m->r.dead)
            return;
        ZT_OK(m->t, rc);
        o->saved_count = i + 1;
        o->sees = s->sees;
        o->marks = s->marks;
        o->wrote = s->wrote;
    }
}

static void
step_commit(struct model *m)
{
    struct open *o = pick(m);
    bool visible = zt_below(m->t, 3) == 0;
    lsn_t lsn = 0;
    int rc;

    if (o == NULL)
        return;
    rc = txn_commit(o->t, visible, &lsn);
    o->t = NULL;
    if (o->tainted && rc == COHORT_CONFLICT)
        return; /* the model does not know what it has read */
    ZT_OK(m->t, rc);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (o->wrote.held[i]) {
            struct state *s = state_push(m, lsn);

            apply(m, &s->cells, &o->sees, &o->wrote);
            return;
        }
    }
}

static void
step_prepare(struct model *m)
{
    struct open *o = pick(m);
    struct state *s;
    char gid[16];
    int rc;

    for (unsigned i = 0; o != NULL && i < PREPARED_MAX; i++) {
        if (now(m)->ready[i].gid != 0)
            continue;
        (void)snprintf(gid, sizeof(gid), "gid%u", ++m->next_gid);
        /* Serializable ones would guard what they read, which the model does not know. */
        if (o->serializable)
            return;
        rc = txn_prepare(o->t, gid, strlen(gid));
        ZT_OK(m->t, rc);
        s = state_push(m, wal_durable(m->r.wal));
        s->ready[i].gid = m->next_gid;
        s->ready[i].after = o->sees;
        s->ready[i].marks = o->marks;
        s->ready[i].wrote = o->wrote;
        o->t = NULL;
        return;
    }
}

static void
step_decide(struct model *m)
{
    unsigned i = (unsigned)zt_below(m->t, PREPARED_MAX);
    struct state *s;
    char gid[16];
    int rc;

    if (now(m)->ready[i].gid == 0)
        return;
    (void)snprintf(gid, sizeof(gid), "gid%u", now(m)->ready[i].gid);
    if (zt_below(m->t, 2) == 0) {
        ZT_OK(m->t, txns_commit_prepared(m->r.ts, gid, strlen(gid)));
        s = state_push(m, wal_end(m->r.wal));
        apply(m, &s->cells, &s->ready[i].after, &s->ready[i].wrote);
    } else {
        m->r.armed = m->crashes;
        rc = txns_abort_prepared(m->r.ts, gid, strlen(gid));
        m->r.armed = false;
        if (!m->r.dead)
            ZT_OK(m->t, rc);
        s = state_push(m, m->r.dead ? CH_LSN_MAX : wal_end(m->r.wal));
    }
    s->ready[i].gid = 0;
}

static void
step_upkeep(struct model *m)
{
    bool did = false;

    switch (zt_below(m->t, 4)) {
    case 0:
        rig_checkpoint(&m->r, zt_below(m->t, 2) == 0);
        break;
    case 1:
        ZT_OK(m->t, wal_flush(m->r.wal, wal_end(m->r.wal)));
        break;
    default:
        ZT_OK(m->t, txns_step(m->r.ts, &did));
        break;
    }
}

static void
step(struct model *m)
{
    uint64_t what = zt_below(m->t, 100);

    if (what < 10)
        step_begin(m);
    else if (what < 50)
        step_write(m);
    else if (what < 60)
        step_alone(m);
    else if (what < 70)
        step_read(m);
    else if (what < 80)
        step_savepoint(m);
    else if (what < 86)
        step_commit(m);
    else if (what < 89)
        step_prepare(m);
    else if (what < 92)
        step_decide(m);
    else if (what < 94)
        abort_open(m, pick(m));
    else
        step_upkeep(m);
}

/* ---- after a crash ---- */

struct gids {
    unsigned gid[PREPARED_MAX + 1], count;
};

static int
note_gid(void *arg, const void *gid, size_t gid_bytes)
{
    struct gids *g = arg;
    char text[16] = {0};

    if (gid_bytes < 4 || gid_bytes >= sizeof(text) || g->count > PREPARED_MAX)
        return -1;
    memcpy(text, gid, gid_bytes);
    g->gid[g->count++] = (unsigned)strtoul(text + 3, NULL, 10);
    return 0;
}

static bool
same_ready(const struct state *s, const struct gids *g)
{
    unsigned n = 0;

    for (unsigned i = 0; i < PREPARED_MAX; i++) {
        if (s->ready[i].gid == 0)
            continue;
        n++;
        for (unsigned k = 0; k <= g->count; k++) {
            if (k == g->count)
                return false;
            if (g->gid[k] == s->ready[i].gid)
                break;
        }
    }
    return n == g->count;
}

/* Finds the state that the trees show; it becomes the only one. */
static void
adopt(struct model *m, lsn_t durable)
{
    struct gids gids = {.count = 0};
    struct cells seen;
    unsigned i = m->count;

    for (unsigned slot = 0; slot < SLOTS; slot++)
        ZT_OK(m->t, rig_get(&m->r, NULL, slot / KEYS, slot % KEYS, &seen.version[slot]));
    ZT_OK(m->t, txns_list_prepared(m->r.ts, note_gid, &gids));
    do {
        ZT_CHECK(m->t, i-- > 0);
        /* No older than the last durable one. */
        ZT_CHECK(m->t, i + 1 == m->count || m->states[i + 1].lsn > durable);
    } while (memcmp(&m->states[i].cells, &seen, sizeof(seen)) != 0 ||
             !same_ready(&m->states[i], &gids));
    m->states[0] = m->states[i];
    m->count = 1;
    m->states[0].lsn = 0;
    m->commits++; /* who begins now sees all of it */
    for (i = 0; i < OPEN_MAX; i++)
        m->open[i].t = NULL;
}

static void
crash(struct model *m, bool again)
{
    lsn_t durable = wal_durable(m->r.wal);

    rig_crash(&m->r, m->t->seed + m->commits);
    while (again && rig_recover(&m->r, 1 + zt_below(m->t, 12)) != 0) {
        rig_crash(&m->r, m->t->seed + m->commits + 1);
        again = zt_below(m->t, 3) != 0;
        if (!again)
            break;
    }
    if (m->r.trees[0] == NULL)
        ZT_OK(m->t, rig_recover(&m->r, 0));
    else
        dev_fault_set(m->r.dev, &(struct dev_fault_plan){0});
    adopt(m, durable);
    rig_check_trees(&m->r);
    if (zt_below(m->t, 3) == 0) { /* what recovery did is durable */
        rig_checkpoint(&m->r, true);
    }
}

static void
run(struct zt *t, const struct rig_options *o, unsigned rounds, bool crashes)
{
    struct model *m = calloc(1, sizeof(*m));

    ZT_CHECK(t, m != NULL);
    CH_ASSERT(m != NULL);
    m->t = t;
    m->crashes = crashes;
    m->states = calloc(STATES + 1, sizeof(*m->states));
    ZT_CHECK(t, m->states != NULL);
    m->count = 1;
    rig_open(&m->r, t, o);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned steps = 20 + (unsigned)zt_below(t, 250);

        for (unsigned i = 0; i < steps && !m->r.dead; i++)
            step(m);
        if (crashes)
            crash(m, zt_below(t, 2) == 0);
    }
    m->crashes = false;
    for (unsigned i = 0; i < OPEN_MAX; i++) {
        if (m->open[i].t != NULL)
            abort_open(m, &m->open[i]);
    }
    while (now(m)->ready[0].gid + now(m)->ready[1].gid + now(m)->ready[2].gid != 0)
        step_decide(m);
    rig_sweep(&m->r);
    ZT_CHECK(t, rig_undo_rows(&m->r) == 0);
    rig_check_trees(&m->r);
    rig_close(&m->r);
    free(m->states);
    free(m);
}

static struct rig_options
draw_options(struct zt *t)
{
    return (struct rig_options){
        .undo_bytes = zt_below(t, 3) == 0 ? 0 : 500 + zt_below(t, 30000),
        .frames = zt_below(t, 2) == 0 ? 128 : 1024,
        .durability = (int)zt_below(t, 3),
    };
}

/* Goal: no crash; every call does what the model says, and everything is given back at the end. */
static void
test_model(struct zt *t)
{
    struct rig_options o = draw_options(t);

    run(t, &o, 6, false);
}

/* Goal: the same with crashes at any time, also in recovery, several times over. */
static void
test_crashes(struct zt *t)
{
    struct rig_options o = draw_options(t);

    run(t, &o, 5, true);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 20},
        {"crashes", test_crashes, 60},
    };

    return zt_main(argc, argv, "txn_recover", cases, CH_ARRAY_LEN(cases));
}
