/* txn_threads_test.c - many threads: transfers between accounts beside snapshots, checkpoints, spills, two-phase commits; lock waits. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "buf/buf.h"
#include "txn/txn_test_rig.h"

enum {
    WRITERS = 3,
    ACCOUNTS = 40, /* half of them in each tree */
    START = 1000,  /* of each */
    TRANSFERS = 400,
};

struct crew {
    struct rig *r;
    _Atomic bool stop;     /* relaxed; partner: main thread */
    _Atomic unsigned bad;  /* relaxed; read after the join */
    _Atomic unsigned done; /* transfers that committed; relaxed */
};
struct worker {
    struct crew *crew;
    unsigned number;
    struct ch_prng rng;
    struct rt_thread thread;
};

/* A check on a thread: counted, reported after the join. */
static void
expect(struct crew *c, bool ok, int line)
{
    if (ok)
        return;
    fprintf(stderr, "%s:%d failed on a thread; last error: %s\n", __FILE__, line,
            ch_last_error()->text);
    atomic_fetch_add_explicit(&c->bad, 1, memory_order_relaxed);
}
#define EXPECT(c, e) expect((c), (e), __LINE__)

/* ---- accounts ---- */

static struct reg_tree *
tree_of(struct crew *c, unsigned account)
{
    return c->r->trees[account % RIG_TREES];
}

static void
copy_balance(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)flags;
    *(uint32_t *)arg = bytes < 4 ? 0 : ch_get32(value);
}

static int
balance_get(struct crew *c, struct txn *t, unsigned account, uint32_t *balance)
{
    uint8_t key[32];
    struct bt_slice s = {key, rig_key(account, key)};

    return txn_get(t, tree_of(c, account), s, copy_balance, balance);
}

static int
balance_put(struct crew *c, struct txn *t, unsigned account, uint32_t balance)
{
    uint8_t key[32], value[300] = {0};
    struct bt_op op = {.kind = BT_PUT};
    struct bt_done done;

    op.key = (struct bt_slice){key, rig_key(account, key)};
    ch_put32(value, balance);
    op.value = (struct bt_slice){value, 4 + (balance + account) % 290};
    return t != NULL ? txn_write(t, tree_of(c, account), &op, &done)
                     : txn_write_alone(c->r->ts, tree_of(c, account), &op, COHORT_DEFAULT, &done);
}

static bool
is_expected(int rc)
{
    return rc == COHORT_CONFLICT || rc == COHORT_DEADLOCK || rc == COHORT_TIMEOUT;
}

/* Moves an amount between two accounts, with a detour that is rolled back. */
static int
transfer(struct worker *w, struct txn *t)
{
    struct crew *c = w->crew;
    unsigned from = (unsigned)ch_prng_below(&w->rng, ACCOUNTS);
    unsigned to = (unsigned)ch_prng_below(&w->rng, ACCOUNTS - 1);
    uint32_t a = 0, b = 0, amount = (uint32_t)ch_prng_below(&w->rng, 5);
    uint64_t sp;
    int rc;

    to += to >= from ? 1 : 0;
    rc = balance_get(c, t, from, &a);
    if (rc == 0)
        rc = balance_put(c, t, from, a - amount);
    if (rc == 0)
        rc = txn_savepoint(t, &sp);
    if (rc == 0)
        rc = balance_put(c, t, (from + 1) % ACCOUNTS, 77);
    if (rc == 0)
        rc = txn_rollback_to(t, sp);
    if (rc == 0)
        rc = balance_get(c, t, to, &b);
    if (rc == 0)
        rc = balance_put(c, t, to, b + amount);
    return rc;
}

static int
finish(struct worker *w, struct txn *t, uint32_t step)
{
    struct txns *ts = w->crew->r->ts;
    char gid[32];
    int n, rc;

    switch (ch_prng_below(&w->rng, 8)) {
    case 0:
        n = snprintf(gid, sizeof(gid), "%u-%u", w->number, step);
        rc = txn_prepare(t, gid, (size_t)n);
        if (rc != 0)
            return rc;
        rc = ch_prng_below(&w->rng, 2) == 0 ? txns_abort_prepared(ts, gid, (size_t)n)
                                            : txns_commit_prepared(ts, gid, (size_t)n);
        EXPECT(w->crew, rc == 0);
        return rc;
    case 1:
        rc = txn_abort(t);
        EXPECT(w->crew, rc == 0);
        return rc;
    default:
        return txn_commit(t, ch_prng_below(&w->rng, 2) == 0, NULL);
    }
}

static void
mover(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    for (uint32_t step = 0; step < TRANSFERS; step++) {
        struct txn_options o = {.serializable = step % 5 == 0,
                                .durability =
                                    step % 3 == 0 ? COHORT_DURABILITY_NONE : COHORT_DEFAULT,
                                .lock_timeout_ms = step % 7 == 0 ? 0 : COHORT_DEFAULT};
        struct txn *t;
        int rc = txn_begin(c->r->ts, &o, &t);

        EXPECT(c, rc == 0);
        if (rc != 0)
            return;
        rc = transfer(w, t);
        if (rc != 0) {
            EXPECT(c, is_expected(rc));
            EXPECT(c, txn_abort(t) == 0);
            continue;
        }
        rc = finish(w, t, step);
        EXPECT(c, rc == 0 || is_expected(rc));
        if (rc == 0)
            atomic_fetch_add_explicit(&c->done, 1, memory_order_relaxed);
    }
}

/* Each snapshot shows all of the money, by gets or by scans. */
static void
auditor(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        struct txn *t = rig_begin(c->r, ch_prng_below(&w->rng, 3) == 0);
        uint64_t sum = 0;
        uint32_t balance;

        for (unsigned tree = 0; tree < RIG_TREES; tree++) {
            struct txn_cursor *cur;
            int rc = txn_cursor_create(t, c->r->trees[tree], &cur);

            EXPECT(c, rc == 0);
            rc = txn_cursor_seek(cur, BT_FIRST, (struct bt_slice){NULL, 0});
            while (rc == 0) {
                struct bt_slice k, v;
                unsigned flags;

                EXPECT(c, txn_cursor_entry(cur, &k, &v, &flags));
                sum += ch_get32(v.data);
                rc = txn_cursor_next(cur);
            }
            EXPECT(c, rc == COHORT_NOTFOUND);
            txn_cursor_destroy(cur);
        }
        EXPECT(c, sum == (uint64_t)ACCOUNTS * START);
        sum = 0;
        for (unsigned i = 0; i < ACCOUNTS; i++) {
            EXPECT(c, balance_get(c, t, i, &balance) == 0);
            sum += balance;
        }
        EXPECT(c, sum == (uint64_t)ACCOUNTS * START);
        EXPECT(c, txn_commit(t, false, NULL) == 0);
    }
}

/* What boot's threads do. */
static void
keeper(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct rig *r = c->r;

    for (unsigned i = 0; !atomic_load_explicit(&c->stop, memory_order_relaxed); i++) {
        bool did = false;

        EXPECT(c, txns_step(r->ts, &did) == 0);
        if (i % 8 == 0) {
            lsn_t end = wal_end(r->wal);

            EXPECT(c, txns_spill_below(r->ts, end) == 0);
            EXPECT(c, buf_clean_until(r->buf, end / 2) == 0);
            EXPECT(c, txns_oldest(r->ts) > 0);
        }
        if (!did)
            rt_sleep_ns(200 * 1000);
    }
}

static void
spawn(struct zt *t, struct crew *c, struct worker *w, unsigned number, void (*fn)(void *))
{
    w->crew = c;
    w->number = number;
    ch_prng_init(&w->rng, t->seed * 31 + number);
    ZT_OK(t, rt_spawn(&w->thread, "worker", fn, w));
}

/* Goal: money is neither made nor lost, in no snapshot, and not in a crash; whatever spills, waits, deadlocks or is prepared meanwhile. */
static void
test_bank(struct zt *t)
{
    struct rig_options o = {.background = true,
                            .undo_bytes = t->seed % 2 == 0 ? 0 : 3000,
                            .timeout_ms = 20,
                            .durability = (int)(t->seed % 3)};
    struct worker ws[WRITERS + 2];
    struct rig r;
    struct crew c = {.r = &r};
    uint64_t sum = 0;
    uint32_t balance;
    struct txn *last;

    rig_open(&r, t, &o);
    for (unsigned i = 0; i < ACCOUNTS; i++)
        ZT_OK(t, balance_put(&c, NULL, i, START));
    spawn(t, &c, &ws[WRITERS], WRITERS, auditor);
    spawn(t, &c, &ws[WRITERS + 1], WRITERS + 1, keeper);
    for (unsigned i = 0; i < WRITERS; i++)
        spawn(t, &c, &ws[i], i, mover);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    atomic_store_explicit(&c.stop, true, memory_order_relaxed);
    rt_join(&ws[WRITERS].thread);
    rt_join(&ws[WRITERS + 1].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    ZT_CHECK(t, atomic_load_explicit(&c.done, memory_order_relaxed) > TRANSFERS / 4);
    rig_sweep(&r);
    ZT_CHECK(t, rig_undo_rows(&r) == 0);
    rig_crash(&r, t->seed);
    ZT_OK(t, rig_recover(&r, 0));
    last = rig_begin(&r, false);
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        ZT_OK(t, balance_get(&c, last, i, &balance));
        sum += balance;
    }
    ZT_CHECK(t, sum == (uint64_t)ACCOUNTS * START);
    ZT_OK(t, txn_commit(last, false, NULL));
    rig_close(&r);
}

/* ---- waits ---- */

struct waiting {
    struct rig *r;
    struct txn *t; /* NULL: alone */
    unsigned key;
    int rc;
    struct rt_thread thread;
};

static void
wait_and_put(void *arg)
{
    struct waiting *w = arg;

    w->rc = rig_put(w->r, w->t, 0, w->key, 100);
}

static void
waits_of(struct rig *r, uint64_t n)
{
    struct ver_counts v;

    do {
        rt_sleep_ns(1000 * 1000);
        ver_counts(r->ver, &v);
    } while (v.waits < n);
}

/* Goal: a wait ends with the holder's end, by time, by cancelling, by a rollback of the holder, or as a deadlock. */
static void
test_waits(struct zt *t)
{
    struct rig_options o = {.timeout_ms = 60000, .durability = COHORT_DURABILITY_NONE};
    struct txn_options brief = {.durability = COHORT_DEFAULT, .lock_timeout_ms = 30};
    struct waiting w = {.key = 1};
    struct rig r;
    struct txn *a, *b;
    uint64_t sp;

    rig_open(&r, t, &o);
    w.r = &r;
    a = rig_begin(&r, false);
    ZT_OK(t, txn_savepoint(a, &sp));
    ZT_OK(t, rig_put(&r, a, 0, 1, 1));
    ZT_OK(t, txn_begin(r.ts, &brief, &b));
    ZT_STATUS(t, rig_put(&r, b, 0, 1, 2), COHORT_TIMEOUT);
    ZT_OK(t, rig_put(&r, b, 0, 2, 2)); /* still usable */
    ZT_OK(t, txn_abort(b));

    b = w.t = rig_begin(&r, false);
    ZT_OK(t, rt_spawn(&w.thread, "waiter", wait_and_put, &w));
    waits_of(&r, 2);
    txn_cancel(b);
    rt_join(&w.thread);
    ZT_STATUS(t, w.rc, COHORT_CANCELED);

    ZT_OK(t, rt_spawn(&w.thread, "waiter", wait_and_put, &w));
    waits_of(&r, 3);
    ZT_OK(t, txn_rollback_to(a, sp));
    rt_join(&w.thread);
    ZT_OK(t, w.rc);

    /* b has key 1, a gets key 3, b waits for it, a would wait for b. */
    ZT_OK(t, rig_put(&r, a, 0, 3, 1));
    w.key = 3;
    ZT_OK(t, rt_spawn(&w.thread, "waiter", wait_and_put, &w));
    waits_of(&r, 4);
    ZT_STATUS(t, rig_put(&r, a, 0, 1, 5), COHORT_DEADLOCK);
    ZT_STATUS(t, rig_put(&r, a, 0, 8, 5), COHORT_ETXN);
    ZT_STATUS(t, txn_commit(a, false, NULL), COHORT_DEADLOCK);
    rt_join(&w.thread);
    ZT_OK(t, w.rc);

    w.t = NULL;
    ZT_OK(t, rt_spawn(&w.thread, "waiter", wait_and_put, &w));
    waits_of(&r, 5);
    ZT_OK(t, txn_commit(b, false, NULL));
    rt_join(&w.thread);
    ZT_OK(t, w.rc);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"bank", test_bank, 6},
        {"waits", test_waits, 1},
    };

    return zt_main(argc, argv, "txn_threads", cases, CH_ARRAY_LEN(cases));
}
