/* ver_test.c - the version store against a model, one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "rt/rt.h"
#include "ver/ver_test_rig.h"

/* ---- the model ---------------------------------------------------------------------------------
 *
 * For each key: what the leaf holds, with its page write LSN, and all values it ever had with the commit LSN
 * that made them, 0 while their writer is live. */

enum {
    KEYS = 24,
    VERSIONS = 4000,
    VIEWS = 6,
    WRITERS = 4,
    STEPS = 3000,
};

struct version {
    uint32_t value;  /* 0 = absent */
    unsigned writer; /* 1 .. WRITERS while live */
    lsn_t commit;
};
struct record {
    struct version versions[VERSIONS];
    unsigned count;
    uint32_t leaf; /* the newest value */
    lsn_t write_lsn;
};
struct writer {
    struct ver_view view;
    struct ver_txn *w;
    lsn_t commit; /* decided, not visible yet; else 0 */
    unsigned keys[STEPS];
    unsigned writes;
    unsigned savepoint_writes; /* entries made before the newest savepoint */
    bool open;
};
struct model {
    struct zt *t;
    struct ver *v;
    struct record keys[KEYS];
    struct writer writers[WRITERS];
    struct ver_view views[VIEWS];
    bool view_open[VIEWS];
    lsn_t log;
    lsn_t durable;
    uint32_t next_value;
    unsigned reads_before, dead;
};

static struct ver_key
key_of(unsigned i, char *text)
{
    return rig_key(1 + i % 3, i, text);
}

static uint32_t
expected(const struct record *r, lsn_t horizon, unsigned self)
{
    uint32_t value = 0;

    for (unsigned i = 0; i < r->count; i++) {
        const struct version *x = &r->versions[i];

        if ((x->commit != 0 && x->commit <= horizon) || (self != 0 && x->writer == self))
            value = x->value;
    }
    return value;
}

/* What the store says, by the leaf where it says so. */
static void
check_read(struct model *m, const struct ver_view *view, unsigned self, unsigned i)
{
    const struct record *r = &m->keys[i];
    struct ver_found f;
    char text[RIG_KEY];
    lsn_t horizon = view != NULL ? view->horizon : ver_horizon(m->v);
    uint32_t want = expected(r, horizon, self);

    if (ver_fast(m->v, view, r->write_lsn))
        ZT_CHECK(m->t, r->leaf == want);
    if (view != NULL && ver_view_dead(m->v, view)) {
        ver_read(m->v, view, key_of(i, text), &f);
        ZT_CHECK(m->t, f.how == VER_TOO_OLD);
        m->dead++;
        return;
    }
    ver_read(m->v, view, key_of(i, text), &f);
    ZT_CHECK(m->t, f.how != VER_TOO_OLD && f.how != VER_SPILLED);
    if (f.how == VER_CURRENT) {
        ZT_CHECK(m->t, r->leaf == want);
        return;
    }
    m->reads_before++;
    ZT_CHECK(m->t, (f.how == VER_ABSENT) == (want == 0));
    if (want != 0)
        ZT_CHECK(m->t, rig_value_is(want, f.data, f.bytes) && f.flags == want % 5);
}

static void
check_all(struct model *m)
{
    for (unsigned i = 0; i < KEYS; i++) {
        check_read(m, NULL, 0, i);
        for (unsigned k = 0; k < VIEWS; k++) {
            if (m->view_open[k])
                check_read(m, &m->views[k], 0, i);
        }
        for (unsigned k = 0; k < WRITERS; k++) {
            if (m->writers[k].open && m->writers[k].w != NULL)
                check_read(m, &m->writers[k].view, k + 1, i);
        }
    }
}

static struct record *
push_value(struct model *m, struct ver_txn *w, unsigned i, uint32_t value, struct ver_entry **out,
           bool lock)
{
    struct record *r = &m->keys[i];
    uint8_t before[VER_VALUE_MAX];
    size_t bytes = r->leaf != 0 && !lock ? rig_value(r->leaf, before) : 0;
    char text[RIG_KEY];
    enum ver_kind kind = lock ? VER_WAS_LOCK : r->leaf != 0 ? VER_WAS_VALUE : VER_WAS_ABSENT;

    *out = ver_entry_create(m->v, w, key_of(i, text), kind, (uint8_t)(r->leaf % 5), before, bytes);
    ZT_CHECK(m->t, *out != NULL && r->count < VERSIONS);
    m->log += 10;
    if (!lock) {
        r->leaf = value;
        r->write_lsn = m->log;
    }
    return r;
}

static bool
held_by_other(const struct model *m, unsigned i, unsigned self)
{
    for (unsigned k = 0; k < WRITERS; k++) {
        const struct writer *w = &m->writers[k];

        if (!w->open || w->commit != 0 || k + 1 == self)
            continue;
        for (unsigned n = 0; n < w->writes; n++) {
            if (w->keys[n] % KEYS == i)
                return true;
        }
    }
    return false;
}

static lsn_t
newest_commit(const struct record *r)
{
    lsn_t max = 0;

    for (unsigned i = 0; i < r->count; i++)
        max = ch_max_u64(max, r->versions[i].commit);
    return max;
}

/* An operation of its own: push and commit under the latch. */
static void
step_single(struct model *m)
{
    unsigned i = (unsigned)zt_below(m->t, KEYS);
    uint32_t value = zt_below(m->t, 4) == 0 ? 0 : ++m->next_value;
    struct record *r = &m->keys[i];
    uint8_t before[VER_VALUE_MAX];
    struct ver_own own = {.deletes = value == 0, .before = before};
    struct ver_owner owner;
    char text[RIG_KEY];
    bool again;
    int rc = ver_may_write(m->v, NULL, NULL, key_of(i, text), &owner, &again);

    ZT_CHECK(m->t, rc == (held_by_other(m, i, 0) ? COHORT_ERETRY : 0));
    if (rc != 0)
        return;
    own.key = key_of(i, text);
    own.kind = r->leaf != 0 ? VER_WAS_VALUE : VER_WAS_ABSENT;
    own.flags = (uint8_t)(r->leaf % 5);
    own.before_bytes = r->leaf != 0 ? rig_value(r->leaf, before) : 0;
    ver_commit_lock(m->v);
    ZT_OK(m->t, ver_own_begin(m->v, &own));
    m->log += 10;
    ZT_CHECK(m->t, r->count < VERSIONS);
    r->leaf = value;
    r->write_lsn = m->log;
    r->versions[r->count++] = (struct version){.value = value, .commit = m->log};
    ver_own_end(m->v, &own, m->log, zt_below(m->t, 2) == 0);
}

static void
writer_open(struct model *m, struct writer *w)
{
    memset(w, 0, sizeof(*w));
    w->open = true;
    ZT_OK(m->t, ver_view_open(m->v, &w->view));
}

static void
writer_close(struct model *m, struct writer *w)
{
    ver_unregister(m->v, w->view.slot);
    ver_view_close(m->v, &w->view);
    w->open = false;
}

static bool
changed_since_savepoint(const struct writer *w, unsigned i)
{
    for (unsigned n = w->savepoint_writes; n < w->writes; n++) {
        if (w->keys[n] == i)
            return true;
    }
    return false;
}

static void
step_write(struct model *m, unsigned k)
{
    struct writer *w = &m->writers[k];
    unsigned i = (unsigned)zt_below(m->t, KEYS);
    struct record *r = &m->keys[i];
    uint32_t value = zt_below(m->t, 4) == 0 ? 0 : ++m->next_value;
    bool lock = zt_below(m->t, 6) == 0;
    struct ver_owner owner;
    struct ver_entry *e;
    char text[RIG_KEY];
    bool again = false;
    int rc = ver_may_write(m->v, w->w, &w->view, key_of(i, text), &owner, &again);
    bool mine = false;

    for (unsigned n = 0; n < w->writes; n++)
        mine = mine || w->keys[n] % KEYS == i;
    if (ver_view_dead(m->v, &w->view)) {
        ZT_CHECK(m->t, rc == COHORT_SNAPSHOT_TOO_OLD);
        return;
    }
    if (held_by_other(m, i, k + 1))
        ZT_CHECK(m->t, rc == COHORT_ERETRY && owner.tag == &m->writers[owner.id % WRITERS]);
    else
        ZT_CHECK(m->t, rc == (newest_commit(r) > w->view.horizon ? COHORT_CONFLICT : 0));
    if (rc != 0)
        return;
    ZT_CHECK(m->t, again == changed_since_savepoint(w, i));
    if (w->w == NULL) {
        ZT_OK(m->t, ver_txn_create(m->v, (ver_new_id(m->v) + 1) * WRITERS + k, w, w->view.slot,
                                   m->log, &w->w));
        w->view.self = w->w;
    }
    ZT_CHECK(m->t, mine == ver_holds(m->v, w->w, key_of(i, text)));
    if (again && !lock) { /* the leaf alone changes */
        m->log += 10;
        r->leaf = value;
        r->write_lsn = m->log;
        r->versions[r->count - 1].value = value;
        return;
    }
    (void)push_value(m, w->w, i, value, &e, lock);
    ver_entry_push(m->v, e, m->log, value == 0);
    w->keys[w->writes++] = lock ? i + KEYS : i;
    if (!lock)
        r->versions[r->count++] = (struct version){.value = value, .writer = k + 1};
}

/* Undoes down to `writes`. */
static void
undo(struct model *m, struct writer *w, unsigned writes)
{
    while (w->writes > writes) {
        unsigned key = w->keys[--w->writes];
        struct record *r = &m->keys[key % KEYS];
        struct ver_entry *e = ver_newest(w->w);
        struct ver_undo u;

        ver_entry_info(e, &u);
        m->log += 10;
        if (key < KEYS) {
            struct version was = r->versions[--r->count];
            uint32_t back = r->count == 0 ? 0 : r->versions[r->count - 1].value;

            ZT_CHECK(m->t,
                     was.writer != 0 && u.kind == (back == 0 ? VER_WAS_ABSENT : VER_WAS_VALUE));
            ZT_CHECK(m->t, back == 0 || rig_value_is(back, u.before, u.before_bytes));
            r->leaf = back;
            r->write_lsn = m->log;
        }
        ver_entry_pop(m->v, e);
    }
}

static void
step_end(struct model *m, unsigned k)
{
    struct writer *w = &m->writers[k];
    bool commits = zt_below(m->t, 3) != 0;
    bool durable = zt_below(m->t, 2) == 0;

    if (w->w == NULL) {
        writer_close(m, w);
    } else if (!commits || ver_view_dead(m->v, &w->view)) {
        undo(m, w, 0);
        ver_abort_end(m->v, w->w);
        writer_close(m, w);
    } else {
        ver_commit_lock(m->v);
        m->log += 10;
        w->commit = m->log;
        for (unsigned n = 0; n < KEYS; n++) {
            for (unsigned x = 0; x < m->keys[n].count; x++) {
                struct version *y = &m->keys[n].versions[x];

                if (y->writer == k + 1)
                    *y = (struct version){.value = y->value, .commit = m->log};
            }
        }
        ver_commit_end(m->v, w->w, m->log, durable);
        w->w = NULL;
        w->view.self = NULL;
        ZT_CHECK(m->t, durable || ver_horizon(m->v) <= m->log);
        if (ver_horizon(m->v) >= w->commit)
            writer_close(m, w);
    }
}

static void
step_flush(struct model *m)
{
    lsn_t before = ver_horizon(m->v), after;

    m->durable = m->durable + zt_below(m->t, m->log - m->durable + 1);
    after = ver_advance(m->v, m->durable);
    ZT_CHECK(m->t, after >= before);
    for (unsigned k = 0; k < WRITERS; k++) {
        struct writer *w = &m->writers[k];

        if (w->open && w->commit != 0 && w->commit <= m->durable)
            ZT_CHECK(m->t, after >= w->commit);
        if (w->open && w->commit != 0 && after >= w->commit)
            writer_close(m, w);
    }
}

static void
step_view(struct model *m)
{
    unsigned k = (unsigned)zt_below(m->t, VIEWS);

    if (!m->view_open[k])
        ZT_OK(m->t, ver_view_open(m->v, &m->views[k]));
    else if (zt_below(m->t, 2) == 0)
        ver_view_refresh(m->v, &m->views[k]);
    else
        ver_view_close(m->v, &m->views[k]);
    m->view_open[k] = m->views[k].slot != VER_NO_SLOT;
}

static void
step_writer(struct model *m)
{
    unsigned k = (unsigned)zt_below(m->t, WRITERS);
    struct writer *w = &m->writers[k];
    unsigned what = (unsigned)zt_below(m->t, 12);

    if (w->open && w->commit != 0)
        return; /* waits for its durability */
    if (!w->open) {
        writer_open(m, w);
    } else if (what == 0) {
        step_end(m, k);
    } else if (what == 1 && w->w != NULL) {
        ver_savepoint(w->w);
        w->savepoint_writes = w->writes;
    } else if (what == 2 && w->w != NULL && w->savepoint_writes <= w->writes) {
        undo(m, w, w->savepoint_writes);
    } else if (what == 3 && w->w == NULL) {
        ver_view_refresh(m->v, &w->view);
    } else {
        step_write(m, k);
    }
}

static void
model_end(struct model *m)
{
    struct ver_counts c;
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes;
    uint32_t tree;

    for (unsigned k = 0; k < WRITERS; k++) {
        struct writer *w = &m->writers[k];

        if (!w->open)
            continue;
        if (w->w != NULL) {
            undo(m, w, 0);
            ver_abort_end(m->v, w->w);
        }
        (void)ver_advance(m->v, m->log);
        writer_close(m, w);
    }
    for (unsigned k = 0; k < VIEWS; k++) {
        if (m->view_open[k])
            ver_view_close(m->v, &m->views[k]);
        m->view_open[k] = false;
    }
    (void)ver_advance(m->v, m->log);
    while (ver_trim(m->v, 7))
        ;
    check_all(m);
    ver_counts(m->v, &c);
    ZT_CHECK(m->t, c.bytes == 0 && c.entries == 0 && c.views == 0 && c.writers == 0);
    ZT_CHECK(m->t, ver_unspilled_bytes(m->v) == 0);
    while (ver_take_ghost(m->v, &tree, key, &bytes))
        ZT_CHECK(m->t, tree >= 1 && tree <= 3 && bytes > 0);
    ver_destroy(m->v);
}

/* Goal: every view, at every moment, is told what a list of all versions says; fast reads never lie; the locks
 * and conflicts are those of the rules; nothing is left at the end.
 * Method: random views, writers, savepoints, aborts, commits of all kinds, trims and, with the small
 * bound, kills. */
static void
run_model(struct zt *t, uint64_t bytes_max)
{
    struct ver_config cfg = {
        .bytes_max = bytes_max, .slots_max = 70, .horizon = 1000, .next_id = 1};
    struct model *m = calloc(1, sizeof(*m));

    ZT_CHECK(t, m != NULL);
    m->t = t;
    m->log = 1000;
    m->durable = 1000;
    ZT_OK(t, ver_create(&cfg, &m->v));
    for (unsigned step = 0; step < STEPS; step++) {
        switch (zt_below(t, 16)) {
        case 0:
            step_view(m);
            break;
        case 1:
        case 2:
            step_flush(m);
            break;
        case 3:
            (void)ver_trim(m->v, 1 + (unsigned)zt_below(t, 9));
            break;
        case 4:
            (void)ver_relieve(m->v);
            break;
        case 5:
        case 6:
        case 7:
            step_single(m);
            break;
        default:
            step_writer(m);
        }
        if (step % 8 == 0)
            check_all(m);
    }
    ZT_CHECK(t, m->reads_before > 1000);
    ZT_CHECK(t, bytes_max > 100000 || m->dead > 0);
    model_end(m);
    free(m);
}

static void
test_model(struct zt *t)
{
    run_model(t, 1 << 24);
}

static void
test_model_kills(struct zt *t)
{
    run_model(t, 6000);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 40},
        {"model_kills", test_model_kills, 40},
    };

    return zt_main(argc, argv, "ver", cases, CH_ARRAY_LEN(cases));
}
