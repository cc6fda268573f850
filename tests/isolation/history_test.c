/* history_test.c - random histories of the engine, judged by the checker of history.h.
 *
 * Goal: at the level snapshot no anomaly but G2 ever happens (and G2 does, so the histories are of use); at the level serializable none;
 * and what was committed is seen by whoever begins later.
 *
 * Method: transactions append to lists and write registers, read them one by one, many at once and by range scans in both
 * directions, lock, roll back to savepoints, prepare, abort. In one thread several are open at once and take turns at random; or
 * two to six threads run one each. The lists are records of the main tree, the registers of a named tree. A third of the
 * lists move: each append deletes the record and inserts it under its other name, so ghosts, phantoms and structure
 * changes take part; a reader must find it under one of the two.
 *
 * A history is replayed by the line that a failure prints; with threads only what each thread does is the same.
 */
#include "isolation/history.h"
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LISTS = 9, /* every third moves */
    REGISTERS = 4,
    SLOTS = 6,
    THREADS_MAX = 6,
    LIST_MAX = 4000, /* ids */
    NAME_MAX_BYTES = 40,
    HISTORIES = 100, /* in one database, in one thread */
    STEPS = 260,
    STRIDE = 1 << 16, /* ids of one thread */
};

struct run { /* one history */
    struct iso *w;
    cohort_tree *registers;
    enum cohort_isolation level;
    unsigned number;        /* names its records */
    _Atomic uint64_t clock; /* seq_cst: stamps of all threads are one order */
};

struct client {
    struct run *run;
    struct rt_thread thread;
    struct ch_prng rng;
    struct hist h;
    uint32_t next_id;
    unsigned txns;
    struct cohort_value value;
    uint32_t ids[LIST_MAX + 1];
    int rc; /* an error that there should not be */
    const char *what;
};

struct slot {
    cohort_txn *txn;
    struct hist_draft draft;
    uint64_t savepoint;
    unsigned keep; /* operations at the savepoint */
    bool saved, prepared;
    char gid[24];
};

static uint64_t
below(struct client *c, uint64_t n)
{
    return ch_prng_below(&c->rng, n);
}

static uint64_t
stamp(struct run *r)
{
    return atomic_fetch_add_explicit(&r->clock, 1, memory_order_seq_cst) + 1;
}

static void
wrong(struct client *c, const char *what, int rc)
{
    if (c->what != NULL)
        return;
    c->what = what;
    c->rc = rc;
    (void)fprintf(stderr, "history %u: %s: %d (%s: %s)\n", c->run->number, what, rc,
                  cohort_strerror(rc), cohort_last_error()->text);
}

/* ---- records ---- */

static bool
moves(uint32_t key)
{
    return key % 3 == 0;
}

static size_t
list_name(const struct run *r, uint32_t key, unsigned side, char *out)
{
    return (size_t)snprintf(out, NAME_MAX_BYTES, "%08u/%02u/%c", r->number, key,
                            side == 0 ? 'a' : 'b');
}

static size_t
register_name(const struct run *r, uint32_t key, char *out)
{
    return (size_t)snprintf(out, NAME_MAX_BYTES, "%08u/%02u", r->number, key);
}

/* The key of a record of this history; false: it belongs to none of its lists. */
static bool
list_of(const struct run *r, const struct cohort_slice *name, uint32_t *key)
{
    char want[NAME_MAX_BYTES];

    for (*key = 0; *key < LISTS; (*key)++)
        for (unsigned side = 0; side < 2; side++)
            if (list_name(r, *key, side, want) == name->bytes &&
                memcmp(want, name->data, name->bytes) == 0)
                return true;
    return false;
}

/* ---- reads ---- */

/* The list as the transaction sees it into c->ids: its length, or -1 and *rc. *side: where it is; 2: nowhere. */
static int
load_list(struct client *c, cohort_txn *txn, uint32_t key, bool lock, unsigned *side, int *rc)
{
    char name[NAME_MAX_BYTES];
    int count = 0;

    *side = 2;
    for (unsigned s = 0; s < (moves(key) ? 2U : 1U); s++) {
        size_t n = list_name(c->run, key, s, name);

        *rc = lock ? cohort_txn_get_for_update(txn, NULL, name, n, &c->value)
                   : cohort_txn_get(txn, NULL, name, n, &c->value);
        if (*rc == COHORT_NOTFOUND)
            continue;
        if (*rc != 0)
            return -1;
        if (*side != 2 || c->value.bytes % 4 != 0 || c->value.bytes > LIST_MAX * 4)
            wrong(c, "a list is there twice, or damaged", 0);
        *side = s;
        count = (int)(c->value.bytes / 4);
        memcpy(c->ids, c->value.data, c->value.bytes);
    }
    *rc = 0;
    return count;
}

static int
read_list(struct client *c, struct slot *s, uint32_t key, bool lock, unsigned *side)
{
    unsigned where;
    int rc, count = load_list(c, s->txn, key, lock, &where, &rc);

    if (count < 0)
        return rc;
    hist_list(&s->draft, key, c->ids, (size_t)count);
    if (side != NULL)
        *side = where;
    return 0;
}

static int
append(struct client *c, struct slot *s, uint32_t key)
{
    struct hist_op *read = &s->draft.ops[s->draft.count];
    char from[NAME_MAX_BYTES], to[NAME_MAX_BYTES];
    unsigned side = 2;
    uint32_t id = c->next_id++;
    size_t bytes;
    int rc = read_list(c, s, key, below(c, 2) == 0, &side);

    if (rc != 0)
        return rc;
    bytes = (size_t)(read->count + 1) * 4;
    c->ids[read->count] = id;
    if (!moves(key) || side == 2) {
        /* The first place is always the same one: else two snapshots could both begin the list. */
        rc = cohort_txn_put(s->txn, NULL, to, list_name(c->run, key, 0, to), c->ids, bytes);
    } else {
        rc = cohort_txn_del(s->txn, NULL, from, list_name(c->run, key, side, from));
        if (rc == 0) {
            rc = cohort_txn_insert(s->txn, NULL, to, list_name(c->run, key, 1 - side, to), c->ids,
                                   bytes);
            if (rc != 0)
                return rc == COHORT_EXISTS ? rc
                                           : COHORT_DEADLOCK; /* half done: only an abort helps */
        }
    }
    if (rc == 0)
        hist_append(&s->draft, key, id);
    return rc;
}

/* Lists [from, to) by a cursor, forward or backward. */
static int
scan(struct client *c, struct slot *s)
{
    uint32_t from = (uint32_t)below(c, LISTS), to = from + 1 + (uint32_t)below(c, LISTS - from);
    bool back = below(c, 2) == 0, seen[LISTS] = {false};
    char name[NAME_MAX_BYTES];
    struct cohort_slice k, v;
    cohort_cursor *cursor = NULL;
    uint32_t key;
    int rc = cohort_txn_cursor(s->txn, NULL, &cursor);

    if (rc != 0)
        return rc;
    rc = back ? cohort_cursor_seek_before(cursor, name, list_name(c->run, to - 1, 1, name))
              : cohort_cursor_seek(cursor, name, list_name(c->run, from, 0, name));
    while (rc == 0) {
        rc = cohort_cursor_entry(cursor, &k, &v);
        if (rc != 0 || !list_of(c->run, &k, &key) || key < from || key >= to)
            break;
        if (seen[key] || v.bytes % 4 != 0 || v.bytes > LIST_MAX * 4) {
            wrong(c, "a scan finds a list twice, or damaged", 0);
            break;
        }
        seen[key] = true;
        memcpy(c->ids, v.data, v.bytes);
        hist_list(&s->draft, key, c->ids, v.bytes / 4);
        rc = back ? cohort_cursor_prev(cursor) : cohort_cursor_next(cursor);
    }
    cohort_cursor_close(cursor);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        return rc;
    for (key = from; key < to; key++)
        if (!seen[key])
            hist_list(&s->draft, key, NULL, 0);
    return 0;
}

/* All lists and registers in two calls of get_many. */
static int
read_many(struct client *c, struct slot *s)
{
    char names[LISTS * 2][NAME_MAX_BYTES];
    struct cohort_slice keys[LISTS * 2];
    struct cohort_value values[LISTS * 2] = {{0}};
    int rcs[LISTS * 2], rc;

    for (uint32_t i = 0; i < LISTS * 2; i++)
        keys[i] = (struct cohort_slice){names[i], list_name(c->run, i / 2, i % 2, names[i])};
    rc = cohort_get_many(NULL, s->txn, NULL, LISTS * 2, keys, values, rcs);
    for (uint32_t i = 0; i < LISTS && rc == 0; i++) {
        bool a = rcs[i * 2] == 0, b = rcs[i * 2 + 1] == 0;
        const struct cohort_value *v = &values[i * 2 + (b ? 1 : 0)];

        if ((a && b) || (b && !moves(i)))
            wrong(c, "get_many finds a list twice", 0);
        if (a || b)
            memcpy(c->ids, v->data, ch_min_u64(v->bytes, sizeof(c->ids)));
        hist_list(&s->draft, i, c->ids, a || b ? v->bytes / 4 : 0);
    }
    for (uint32_t i = 0; i < LISTS * 2; i++)
        cohort_value_free(&values[i]);
    return rc;
}

static int
read_register(struct client *c, struct slot *s)
{
    uint32_t key = (uint32_t)below(c, REGISTERS);
    char name[NAME_MAX_BYTES];
    int rc = cohort_txn_get(s->txn, c->run->registers, name, register_name(c->run, key, name),
                            &c->value);

    if (rc == 0 && c->value.bytes != 4)
        wrong(c, "a register is damaged", 0);
    if (rc == 0)
        hist_read(&s->draft, key, ch_get32(c->value.data));
    if (rc == COHORT_NOTFOUND)
        hist_read(&s->draft, key, 0);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
write_register(struct client *c, struct slot *s)
{
    uint32_t key = (uint32_t)below(c, REGISTERS), id = c->next_id++;
    char name[NAME_MAX_BYTES];
    uint8_t value[4];
    int rc;

    ch_put32(value, id);
    rc = cohort_txn_put(s->txn, c->run->registers, name, register_name(c->run, key, name), value,
                        sizeof(value));
    if (rc == 0)
        hist_write(&s->draft, key, id);
    return rc;
}

/* ---- transactions ---- */

static void
slot_begin(struct client *c, struct slot *s, int64_t lock_timeout_ms)
{
    struct cohort_txn_options o;
    int rc;

    cohort_txn_options_init(&o);
    o.isolation = c->run->level;
    o.lock_timeout_ms = lock_timeout_ms;
    o.durability = (int)below(c, 2) == 0 ? COHORT_DURABILITY_NONE : COHORT_DEFAULT;
    s->saved = s->prepared = false;
    hist_draft_begin(&s->draft, stamp(c->run));
    rc = cohort_begin(c->run->w->db, &o, &s->txn);
    if (rc != 0) {
        s->txn = NULL;
        wrong(c, "begin", rc);
    }
}

static void
slot_ended(struct client *c, struct slot *s, bool committed)
{
    hist_end(&c->h, &s->draft, stamp(c->run), committed);
    s->txn = NULL;
    s->prepared = false;
    c->txns++;
}

static void
slot_abort(struct client *c, struct slot *s)
{
    int rc = s->prepared ? cohort_abort_prepared(c->run->w->db, K(s->gid)) : cohort_abort(s->txn);

    if (rc != 0)
        wrong(c, "abort", rc);
    slot_ended(c, s, false);
}

static void
slot_commit(struct client *c, struct slot *s)
{
    uint64_t position;
    int rc;

    if (s->prepared) {
        rc = cohort_commit_prepared(c->run->w->db, K(s->gid));
        if (rc != 0) /* nothing can refuse it */
            wrong(c, "commit of a prepared transaction", rc);
    } else if (below(c, 8) == 0) {
        rc = cohort_commit_visible(s->txn, &position);
    } else {
        rc = cohort_commit(s->txn);
    }
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_CONFLICT)
        wrong(c, "commit", rc);
    slot_ended(c, s, rc == 0);
}

static void
slot_prepare(struct client *c, struct slot *s)
{
    int rc;

    (void)snprintf(s->gid, sizeof(s->gid), "%u", c->next_id++);
    rc = cohort_prepare(s->txn, K(s->gid));
    if (rc == 0) {
        s->prepared = true;
        return;
    }
    if (cohort_class_of(rc) != COHORT_CLASS_CONFLICT)
        wrong(c, "prepare", rc);
    slot_ended(c, s, false);
}

static void
slot_savepoint(struct client *c, struct slot *s)
{
    int rc;

    if (!s->saved) {
        rc = cohort_savepoint(s->txn, &s->savepoint);
        s->keep = s->draft.count;
    } else {
        rc = cohort_rollback_to(s->txn, s->savepoint);
        hist_rollback(&c->h, &s->draft, s->keep);
    }
    s->saved = !s->saved;
    if (rc != 0)
        wrong(c, "savepoint", rc);
}

static void
slot_operation(struct client *c, struct slot *s)
{
    int rc;

    switch (below(c, 12)) {
    case 0:
        slot_savepoint(c, s);
        return;
    case 1:
        rc = read_many(c, s);
        break;
    case 2:
    case 3:
        rc = scan(c, s);
        break;
    case 4:
        rc = read_register(c, s);
        break;
    case 5:
        rc = write_register(c, s);
        break;
    case 6:
    case 7:
        rc = read_list(c, s, (uint32_t)below(c, LISTS), below(c, 8) == 0, NULL);
        break;
    default:
        rc = append(c, s, (uint32_t)below(c, LISTS));
    }
    if (rc == 0)
        return;
    if (cohort_class_of(rc) != COHORT_CLASS_CONFLICT)
        wrong(c, "operation", rc);
    if (rc == COHORT_DEADLOCK || rc == COHORT_SNAPSHOT_TOO_OLD || below(c, 2) == 0)
        slot_abort(c, s); /* else it goes on without */
}

/* One step of what is open in the slot, or a new one. */
static void
slot_step(struct client *c, struct slot *s, int64_t lock_timeout_ms)
{
    bool full = s->draft.count + 2 * LISTS + 2 > HIST_OPS_MAX;
    uint64_t draw = below(c, 40);

    if (s->txn == NULL) {
        slot_begin(c, s, lock_timeout_ms);
        return;
    }
    if (draw < 1)
        slot_abort(c, s);
    else if (draw < 6 || full)
        slot_commit(c, s);
    else if (s->prepared)
        return;
    else if (draw < 7)
        slot_prepare(c, s);
    else
        slot_operation(c, s);
}

/* ---- histories ---- */

static void
client_init(struct client *c, struct run *r, uint64_t seed, unsigned index)
{
    c->run = r;
    c->next_id = 1 + index * STRIDE;
    c->rc = 0;
    c->what = NULL;
    c->txns = 0;
    ch_prng_init(&c->rng, seed);
}

/* A last transaction reads everything. */
static void
read_all(struct client *c)
{
    struct slot *s = calloc(1, sizeof(*s));
    unsigned side;

    CH_ASSERT(s != NULL);
    slot_begin(c, s, 0);
    for (uint32_t key = 0; key < LISTS && c->what == NULL; key++) {
        int rc = read_list(c, s, key, false, &side);

        if (rc != 0)
            wrong(c, "last read", rc);
    }
    if (c->what == NULL)
        slot_commit(c, s);
    hist_draft_free(&s->draft);
    free(s);
}

/* Judges; true when there was a G2. */
static bool
judge(struct iso *w, const struct run *r, const struct hist *h)
{
    struct hist_result *result = calloc(1, sizeof(*result));
    enum hist_anomaly worst;

    CH_ASSERT(result != NULL);
    hist_check(h, result);
    worst = result->worst;
    if (worst != HIST_FINE && (worst != HIST_G2 || r->level == COHORT_SERIALIZABLE))
        (void)fprintf(stderr, "history %u, %s, %zu transactions: %s: %s\n", r->number,
                      r->level == COHORT_SNAPSHOT ? "snapshot" : "serializable", h->txn_count,
                      hist_name(worst), result->text);
    ZT_CHECK(w->t, worst == HIST_FINE || (worst == HIST_G2 && r->level == COHORT_SNAPSHOT));
    ZT_CHECK(w->t, result->edges > 0);
    free(result);
    return worst == HIST_G2;
}

static bool
one_interleaved(struct zt *t, struct run *r, struct client *c, struct slot *slots)
{
    unsigned open = 2 + (unsigned)zt_below(t, SLOTS - 1);
    bool g2;

    client_init(c, r, t->seed * 10007 + r->number, 0);
    atomic_store_explicit(&r->clock, 0, memory_order_seq_cst);
    for (int i = 0; i < STEPS && c->what == NULL; i++)
        slot_step(c, &slots[below(c, open)], 0);
    for (unsigned i = 0; i < SLOTS && c->what == NULL; i++)
        if (slots[i].txn != NULL)
            slot_commit(c, &slots[i]);
    if (c->what == NULL)
        read_all(c);
    ZT_CHECK(t, c->what == NULL);
    g2 = judge(r->w, r, &c->h);
    hist_free(&c->h);
    return g2;
}

static void
interleaved(struct zt *t, enum cohort_isolation level)
{
    static const char *const settings[] = {"background",    "no",   "durability", "none",
                                           "version_bytes", "256K", NULL};
    struct client *c = calloc(1, sizeof(*c));
    struct slot *slots = calloc(SLOTS, sizeof(*slots));
    unsigned g2 = 0;
    struct iso w;
    struct run r = {.w = &w, .level = level};

    ZT_CHECK(t, c != NULL && slots != NULL);
    iso_create(t, &w, 32, settings);
    r.registers = iso_tree(&w, "registers");
    for (r.number = 1; r.number <= HISTORIES; r.number++)
        g2 += one_interleaved(t, &r, c, slots);
    ZT_CHECK(t, level == COHORT_SERIALIZABLE || g2 > 0); /* the histories are of use */
    for (unsigned i = 0; i < SLOTS; i++)
        hist_draft_free(&slots[i].draft);
    cohort_value_free(&c->value);
    free(slots);
    free(c);
    cohort_tree_close(r.registers);
    iso_destroy(&w);
}

static void
test_interleaved_snapshot(struct zt *t)
{
    interleaved(t, COHORT_SNAPSHOT);
}

static void
test_interleaved_serializable(struct zt *t)
{
    interleaved(t, COHORT_SERIALIZABLE);
}

/* ---- threads ---- */

static void
client_main(void *arg)
{
    struct client *c = arg;
    struct slot *s = calloc(1, sizeof(*s));

    CH_ASSERT(s != NULL);
    for (int i = 0; i < 2500 && c->what == NULL && c->txns < 150; i++)
        slot_step(c, s, 20);
    if (s->txn != NULL)
        slot_commit(c, s);
    hist_draft_free(&s->draft);
    free(s);
}

static void
threaded(struct zt *t, enum cohort_isolation level)
{
    static const char *const durability[] = {"sync", "async", "none"};
    const char *settings[] = {"durability",
                              durability[zt_below(t, 3)],
                              "version_bytes",
                              zt_below(t, 3) == 0 ? "64K" : "4M",
                              "log_bytes",
                              "2M",
                              NULL};
    unsigned threads = 2 + (unsigned)zt_below(t, THREADS_MAX - 1);
    struct client *clients[THREADS_MAX] = {NULL};
    struct hist all = {0};
    struct iso w;
    struct run r = {.w = &w, .level = level, .number = 1};

    iso_create(t, &w, 32, settings);
    r.registers = iso_tree(&w, "registers");
    for (unsigned i = 0; i < threads; i++) {
        clients[i] = calloc(1, sizeof(*clients[i]));
        ZT_CHECK(t, clients[i] != NULL);
        client_init(clients[i], &r, t->seed * 100 + i, i);
        ZT_OK(t, rt_spawn(&clients[i]->thread, "client", client_main, clients[i]));
    }
    for (unsigned i = 0; i < threads; i++)
        rt_join(&clients[i]->thread);
    for (unsigned i = 0; i < threads; i++)
        ZT_CHECK(t, clients[i]->what == NULL);
    read_all(clients[0]);
    ZT_CHECK(t, clients[0]->what == NULL);
    for (unsigned i = 0; i < threads; i++) {
        hist_merge(&all, &clients[i]->h);
        cohort_value_free(&clients[i]->value);
        free(clients[i]);
    }
    (void)judge(&w, &r, &all);
    hist_free(&all);
    cohort_tree_close(r.registers);
    iso_destroy(&w);
}

static void
test_threads_snapshot(struct zt *t)
{
    threaded(t, COHORT_SNAPSHOT);
}

static void
test_threads_serializable(struct zt *t)
{
    threaded(t, COHORT_SERIALIZABLE);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"interleaved_snapshot", test_interleaved_snapshot, 40},
        {"interleaved_serializable", test_interleaved_serializable, 40},
        {"threads_snapshot", test_threads_snapshot, 40},
        {"threads_serializable", test_threads_serializable, 40},
    };

    return zt_main(argc, argv, "history", cases, CH_ARRAY_LEN(cases));
}
