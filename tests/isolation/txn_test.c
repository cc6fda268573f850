/* txn_test.c - what transactions owe to each other: waits, deadlocks, locks, views, savepoints, two-phase commit.
 *
 * Through the public API, on a simulated drive whose power can go. Who waits for whom is arranged, not hoped for: a thread is
 * known to wait once the database has counted its wait.
 */
#include "isolation/iso_rig.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LONG_MS = 60000, /* a wait that only an event ends */
};

static int
put(cohort_txn *txn, const char *key, const char *value)
{
    return cohort_txn_put(txn, NULL, K(key), K(value));
}

/* ---- waits ---- */

/* Goal: a wait ends with TIMEOUT not before its time, and the transaction is as usable as before. */
static void
test_timeout(struct zt *t)
{
    struct iso w;
    struct cohort_stats s;
    cohort_txn *a, *b;
    uint64_t before;

    iso_create(t, &w, 16, NULL);
    ZT_OK(t, cohort_put(w.db, K("k"), K("0")));
    a = iso_snapshot(&w);
    b = iso_begin(&w, COHORT_SNAPSHOT, 30);
    ZT_OK(t, put(b, "own", "b"));
    ZT_OK(t, put(a, "k", "a"));
    before = rt_now_ns();
    ZT_STATUS(t, put(b, "k", "b"), COHORT_TIMEOUT);
    ZT_CHECK(t, rt_now_ns() - before >= UINT64_C(30000000));
    iso_is(&w, b, NULL, "k", "0");
    ZT_OK(t, put(b, "more", "b"));
    iso_stats(&w, &s);
    ZT_CHECK(t, s.lock_timeouts == 1 && s.lock_waits == 1);
    ZT_OK(t, cohort_abort(a));
    ZT_OK(t, put(b, "k", "b")); /* nobody has changed it in the end */
    ZT_OK(t, cohort_commit(b));
    iso_is(&w, NULL, NULL, "k", "b");
    iso_is(&w, NULL, NULL, "own", "b");
    iso_destroy(&w);
}

/* Goal: a waiter gets the record when the holder gives it up by abort or by rollback to a savepoint, and CONFLICT when the
 * holder commits; one that is an operation of its own gets it either way. */
static void
wait_for_end(struct zt *t, int ending, int want)
{
    struct iso w;
    struct iso_call c = {.w = &w, .key = "k", .fn = iso_put_call};
    uint64_t sp;
    cohort_txn *a;

    iso_create(t, &w, 16, NULL);
    a = iso_snapshot(&w);
    c.txn = iso_begin(&w, COHORT_SNAPSHOT, LONG_MS);
    iso_is(&w, c.txn, NULL, "k", NULL);
    ZT_OK(t, cohort_savepoint(a, &sp));
    ZT_OK(t, put(a, "k", "a"));
    iso_spawn(&c);
    iso_await_waits(&w, 1);
    ZT_CHECK(t, !iso_done(&c));
    if (ending == 0)
        ZT_OK(t, cohort_commit(a));
    else if (ending == 1)
        ZT_OK(t, cohort_abort(a));
    else
        ZT_OK(t, cohort_rollback_to(a, sp));
    iso_join(&c);
    ZT_STATUS(t, c.rc, want);
    ZT_OK(t, cohort_commit(c.txn));
    if (ending == 2)
        ZT_OK(t, cohort_commit(a));
    iso_is(&w, NULL, NULL, "k", ending == 0 ? "a" : "w");
    iso_destroy(&w);
}

static void
test_wait_ends(struct zt *t)
{
    wait_for_end(t, 0, COHORT_CONFLICT);
    wait_for_end(t, 1, 0);
    wait_for_end(t, 2, 0);
}

static void
put_alone_call(struct iso_call *c)
{
    c->rc = cohort_put(c->w->db, K(c->key), K("alone"));
}

/* ---- deadlocks ---- */

enum {
    RING_MAX = 3
};
static const char *const ring_keys[RING_MAX] = {"r0", "r1", "r2"};

struct ring {
    struct iso w;
    unsigned n;
    cohort_txn *last;   /* that closes the ring */
    uint64_t savepoint; /* of it, before it wrote */
    struct iso_call calls[RING_MAX];
};

/* Transaction i holds key i; all but the last wait, in threads, for the key of the next one. */
static void
ring_create(struct zt *t, struct ring *r, unsigned n)
{
    memset(r, 0, sizeof(*r));
    r->n = n;
    iso_create(t, &r->w, 16, NULL);
    for (unsigned i = 0; i < n; i++) {
        cohort_txn *txn = iso_begin(&r->w, COHORT_SNAPSHOT, LONG_MS);

        if (i == n - 1)
            ZT_OK(t, cohort_savepoint(txn, &r->savepoint));
        ZT_OK(t, put(txn, ring_keys[i], "x"));
        r->calls[i] = (struct iso_call){
            .w = &r->w, .txn = txn, .key = ring_keys[(i + 1) % n], .fn = iso_put_call};
        r->last = txn;
    }
    for (unsigned i = 0; i + 1 < n; i++) {
        iso_spawn(&r->calls[i]);
        iso_await_waits(&r->w, i + 1);
    }
}

/* After the last has let go: the others end one by one, each committed, so each waiter meets a commit. */
static void
ring_destroy(struct zt *t, struct ring *r)
{
    for (unsigned i = r->n - 1; i-- > 0;) {
        iso_join(&r->calls[i]);
        ZT_STATUS(t, r->calls[i].rc, i == r->n - 2 ? 0 : COHORT_CONFLICT);
        ZT_OK(t, cohort_commit(r->calls[i].txn));
    }
    iso_is(&r->w, NULL, NULL, ring_keys[r->n - 1], "w");
    iso_is(&r->w, NULL, NULL, ring_keys[0], "x");
    iso_destroy(&r->w);
}

/* Goal: whoever closes a ring of n gets DEADLOCK at once and by name; the others go on once it has let go, which an abort does
 * and a rollback to a savepoint too. What it can still do in between: read, roll back, nothing else. */
static void
deadlock(struct zt *t, unsigned n, bool rollback)
{
    struct ring r;
    struct cohort_stats s;

    ring_create(t, &r, n);
    ZT_STATUS(t, put(r.last, ring_keys[0], "y"), COHORT_DEADLOCK);
    ZT_CHECK(t, strstr(cohort_last_error()->text, "->") != NULL);
    iso_stats(&r.w, &s);
    ZT_CHECK(t, s.deadlocks == 1);
    for (unsigned i = 0; i + 1 < n; i++)
        ZT_CHECK(t, !iso_done(&r.calls[i]));
    iso_is(&r.w, r.last, NULL, ring_keys[n - 1], "x");
    ZT_CHECK(t, put(r.last, "other", "y") != 0);
    if (rollback) {
        ZT_OK(t, cohort_rollback_to(r.last, r.savepoint));
        iso_is(&r.w, r.last, NULL, ring_keys[n - 1], NULL);
        ZT_OK(t, put(r.last, "other", "y"));
        ZT_OK(t, cohort_commit(r.last));
        iso_is(&r.w, NULL, NULL, "other", "y");
    } else {
        ZT_OK(t, cohort_abort(r.last));
    }
    ring_destroy(t, &r);
}

static void
test_deadlock_two(struct zt *t)
{
    deadlock(t, 2, false);
    deadlock(t, 2, true);
}

static void
test_deadlock_three(struct zt *t)
{
    deadlock(t, 3, false);
    deadlock(t, 3, true);
}

/* Goal: after DEADLOCK a commit does not let half of a transaction through. */
static void
test_deadlock_then_commit(struct zt *t)
{
    struct ring r;

    ring_create(t, &r, 2);
    ZT_OK(t, put(r.last, "half", "y"));
    ZT_STATUS(t, put(r.last, ring_keys[0], "y"), COHORT_DEADLOCK);
    ZT_CHECK(t, cohort_commit(r.last) != 0); /* ends it all the same */
    iso_is(&r.w, NULL, NULL, "half", NULL);
    ring_destroy(t, &r);
}

/* ---- cancelling and the hook ---- */

/* Goal: a wait can be cancelled from another thread; without one the next wait is; and only that. */
static void
test_cancel(struct zt *t)
{
    struct iso w;
    struct iso_call c = {.w = &w, .key = "k", .fn = iso_put_call};
    cohort_txn *a;

    iso_create(t, &w, 16, NULL);
    a = iso_snapshot(&w);
    c.txn = iso_begin(&w, COHORT_SNAPSHOT, LONG_MS);
    ZT_OK(t, put(a, "k", "a"));
    iso_spawn(&c);
    iso_await_waits(&w, 1);
    cohort_txn_cancel(c.txn);
    iso_join(&c);
    ZT_STATUS(t, c.rc, COHORT_CANCELED);
    ZT_OK(t, put(c.txn, "free", "b")); /* no wait, nothing to cancel, the transaction goes on */
    cohort_txn_cancel(c.txn);
    ZT_OK(t, put(c.txn, "free2", "b"));
    ZT_STATUS(t, put(c.txn, "k", "b"), COHORT_CANCELED);
    iso_spawn(&c); /* it was one cancellation for one wait */
    iso_await_waits(&w, 2);
    ZT_OK(t, cohort_abort(a));
    iso_join(&c);
    ZT_OK(t, c.rc);
    ZT_OK(t, cohort_commit(c.txn));
    iso_is(&w, NULL, NULL, "k", "w");
    iso_is(&w, NULL, NULL, "free2", "b");
    iso_destroy(&w);
}

enum {
    HOOKS_MAX = 64
};
struct hooked {
    struct rt_mutex lock;
    unsigned n;
    struct {
        uint64_t waiter, holder;
        void *waiter_tag, *holder_tag;
    } calls[HOOKS_MAX];
};

static void
hook(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder, void *holder_tag)
{
    struct hooked *h = arg;

    rt_lock(&h->lock);
    if (h->n < HOOKS_MAX) {
        h->calls[h->n].waiter = waiter;
        h->calls[h->n].waiter_tag = waiter_tag;
        h->calls[h->n].holder = holder;
        h->calls[h->n++].holder_tag = holder_tag;
    }
    rt_unlock(&h->lock);
}

/* Has the hook said that this waiter waits for that holder? */
static bool
hook_said(struct hooked *h, uint64_t waiter, const void *waiter_tag, uint64_t holder,
          const void *holder_tag)
{
    bool said = false;

    rt_lock(&h->lock);
    for (unsigned i = 0; i < h->n; i++)
        said = said || (h->calls[i].waiter == waiter && h->calls[i].waiter_tag == waiter_tag &&
                        h->calls[i].holder == holder && h->calls[i].holder_tag == holder_tag);
    rt_unlock(&h->lock);
    return said;
}

static cohort_txn *
begin_tagged(struct iso *w, void *tag)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;

    cohort_txn_options_init(&o);
    o.lock_timeout_ms = LONG_MS;
    o.tag = tag;
    ZT_OK(w->t, cohort_begin(w->db, &o, &txn));
    return txn;
}

/* Goal: the hook names waiter and holder; when the holder lets go and another one gets the record, who still waits names
 * that one. */
static void
test_hook(struct zt *t)
{
    struct hooked h = {.n = 0};
    struct iso w;
    int tags[2] = {0};
    struct iso_call c[2];
    uint64_t ids[2];
    cohort_txn *a;
    unsigned got, other;

    rt_mutex_init(&h.lock, RT_RANK_STATS, 1);
    iso_create(t, &w, 16, NULL);
    cohort_set_wait_hook(w.db, hook, &h);
    a = begin_tagged(&w, &h);
    ZT_OK(t, put(a, "k", "a"));
    for (unsigned i = 0; i < 2; i++) {
        c[i] = (struct iso_call){
            .w = &w, .txn = begin_tagged(&w, &tags[i]), .key = "k", .fn = iso_put_call};
        iso_spawn(&c[i]);
        iso_await_waits(&w, i + 1);
        ids[i] = cohort_txn_id(c[i].txn);
        ZT_CHECK(t, hook_said(&h, ids[i], &tags[i], cohort_txn_id(a), &h));
    }
    ZT_OK(t, cohort_abort(a));
    iso_await_waits(&w, 3); /* one of them has it, the other waits for that one */
    while (!iso_done(&c[0]) && !iso_done(&c[1]))
        rt_sleep_ns(100000);
    got = iso_done(&c[0]) ? 0 : 1;
    other = 1 - got;
    iso_join(&c[got]);
    ZT_OK(t, c[got].rc);
    ZT_CHECK(t, !iso_done(&c[other]));
    ZT_CHECK(t, hook_said(&h, ids[other], &tags[other], ids[got], &tags[got]));
    ZT_OK(t, cohort_abort(c[got].txn));
    iso_join(&c[other]);
    ZT_OK(t, c[other].rc);
    ZT_OK(t, cohort_commit(c[other].txn));
    ZT_CHECK(t, h.n == 3);
    cohort_set_wait_hook(w.db, NULL, NULL);
    iso_is(&w, NULL, NULL, "k", "w");
    iso_destroy(&w);
    rt_mutex_fini(&h.lock);
}

/* Goal: an operation of its own waits as number 0, without a tag; and it gets the record. */
static void
test_hook_alone(struct zt *t)
{
    static const char *const settings[] = {"lock_timeout_ms", "60000", NULL};
    struct hooked h = {.n = 0};
    struct iso w;
    struct iso_call c = {.w = &w, .key = "k", .fn = put_alone_call};
    cohort_txn *a;

    rt_mutex_init(&h.lock, RT_RANK_STATS, 1);
    iso_create(t, &w, 16, settings);
    cohort_set_wait_hook(w.db, hook, &h);
    a = begin_tagged(&w, &h);
    ZT_OK(t, put(a, "k", "a"));
    iso_spawn(&c);
    iso_await_waits(&w, 1);
    ZT_CHECK(t, hook_said(&h, 0, NULL, cohort_txn_id(a), &h));
    ZT_OK(t, cohort_commit(a));
    iso_join(&c);
    ZT_OK(t, c.rc);
    iso_is(&w, NULL, NULL, "k", "alone");
    cohort_set_wait_hook(w.db, NULL, NULL);
    iso_destroy(&w);
    rt_mutex_fini(&h.lock);
}

/* ---- FOR UPDATE ---- */

/* Goal: get_for_update() turns write skew into a conflict under snapshot isolation, for what is absent too; a later snapshot's
 * lock of something newer is refused; a lock alone is no write for others' snapshots. */
static void
test_for_update(struct zt *t)
{
    struct iso w;
    struct cohort_value v = {0};
    cohort_txn *a, *b;

    iso_create(t, &w, 16, NULL);
    ZT_OK(t, cohort_put(w.db, K("x"), K("1")));
    a = iso_snapshot(&w);
    b = iso_snapshot(&w);
    ZT_OK(t, cohort_txn_get_for_update(a, NULL, K("x"), &v));
    ZT_CHECK(t, v.bytes == 1 && memcmp(v.data, "1", 1) == 0);
    ZT_STATUS(t, cohort_txn_get_for_update(a, NULL, K("y"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_get_for_update(b, NULL, K("x"), &v), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_txn_insert(b, NULL, K("y"), K("b")), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_txn_del(b, NULL, K("x")), COHORT_CONFLICT);
    iso_is(&w, b, NULL, "x", "1"); /* reads go on */
    ZT_OK(t, cohort_commit(a));
    ZT_OK(t, cohort_txn_get_for_update(b, NULL, K("x"), &v)); /* it changed nothing */
    ZT_OK(t, cohort_txn_insert(b, NULL, K("y"), K("b")));
    ZT_OK(t, cohort_commit(b));
    a = iso_snapshot(&w);
    ZT_OK(t, cohort_put(w.db, K("x"), K("2")));
    ZT_STATUS(t, cohort_txn_get_for_update(a, NULL, K("x"), &v), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(a));
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* ---- visible, durable, views ---- */

/* Goal: cohort_commit_visible() returns without a flush and the commit is seen by everybody; cohort_durable() of its position
 * makes it outlive a crash. */
static void
test_visible_and_durable(struct zt *t)
{
    static const char *const settings[] = {"background", "no", NULL};
    struct iso w;
    uint64_t at = 0, flushes, later = 0;
    cohort_txn *a, *reader;

    iso_create(t, &w, 16, settings);
    a = iso_snapshot(&w);
    ZT_OK(t, put(a, "k", "visible"));
    flushes = dev_fault_seen(w.fault, DEV_FLUSH);
    ZT_OK(t, cohort_commit_visible(a, &at));
    reader = iso_snapshot(&w);
    iso_is(&w, reader, NULL, "k", "visible");
    ZT_CHECK(t, dev_fault_seen(w.fault, DEV_FLUSH) == flushes);
    ZT_OK(t, cohort_abort(reader));
    ZT_OK(t, cohort_durable(w.db, at));
    ZT_CHECK(t, dev_fault_seen(w.fault, DEV_FLUSH) > flushes);
    a = iso_snapshot(&w);
    ZT_OK(t, put(a, "later", "lost or not"));
    ZT_OK(t, cohort_commit_visible(a, &later));
    ZT_CHECK(t, later > at);
    iso_crash_and_open(&w);
    iso_is(&w, NULL, NULL, "k", "visible");
    iso_destroy(&w);
}

/* Goal: refresh is a statement's read view: committed writes appear, own writes stay, the first writer still wins. */
static void
test_refresh(struct zt *t)
{
    struct iso w;
    cohort_txn *a, *b;

    iso_create(t, &w, 16, NULL);
    ZT_OK(t, cohort_put(w.db, K("x"), K("0")));
    a = iso_snapshot(&w);
    ZT_OK(t, put(a, "own", "a"));
    b = iso_snapshot(&w);
    ZT_OK(t, put(b, "x", "b"));
    ZT_OK(t, cohort_txn_refresh(a));
    iso_is(&w, a, NULL, "x", "0"); /* not committed yet */
    ZT_OK(t, cohort_commit(b));
    iso_is(&w, a, NULL, "x", "0");
    ZT_STATUS(t, put(a, "x", "a"), COHORT_CONFLICT);
    ZT_OK(t, cohort_txn_refresh(a));
    iso_is(&w, a, NULL, "x", "b");
    iso_is(&w, a, NULL, "own", "a");
    ZT_OK(t, cohort_put(w.db, K("x"), K("c"))); /* after the new view */
    ZT_STATUS(t, put(a, "x", "a"), COHORT_CONFLICT);
    ZT_OK(t, cohort_txn_refresh(a));
    ZT_OK(t, put(a, "x", "a"));
    ZT_OK(t, cohort_commit(a));
    iso_is(&w, NULL, NULL, "x", "a");
    iso_is(&w, NULL, NULL, "own", "a");
    iso_destroy(&w);
}

static void
step_call(struct iso_call *c)
{
    c->rc = c->number == 2 ? cohort_commit(c->txn)
                           : iso_put_number(c->txn, NULL, (uint32_t)c->number, 1, 100);
}

/* Goal: a transaction may be begun, written twice and committed in four threads. */
static void
test_moved(struct zt *t)
{
    struct iso w;
    struct iso_call c = {.w = &w, .fn = step_call};
    struct cohort_value v = {0};
    cohort_txn *reader;
    uint32_t version;

    iso_create(t, &w, 16, NULL);
    c.txn = iso_snapshot(&w);
    for (c.number = 0; c.number < 3; c.number++) {
        iso_spawn(&c);
        iso_join(&c);
        ZT_OK(t, c.rc);
    }
    reader = iso_snapshot(&w);
    for (uint32_t i = 0; i < 2; i++) {
        ZT_OK(t, iso_get_number(reader, NULL, i, 100, &v, &version));
        ZT_CHECK(t, version == 1);
    }
    ZT_OK(t, cohort_commit(reader));
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* ---- savepoints and two-phase commit through crashes ---- */

/* Goal: what was rolled back to a savepoint does not come back, by whichever way the transaction ends. */
static void
test_savepoints_and_crash(struct zt *t)
{
    struct iso w;
    uint64_t outer, inner;
    cohort_txn *a;

    for (int ending = 0; ending < 3; ending++) {
        iso_create(t, &w, 16, NULL);
        ZT_OK(t, cohort_put(w.db, K("x"), K("0")));
        a = iso_snapshot(&w);
        ZT_OK(t, put(a, "x", "1"));
        ZT_OK(t, cohort_savepoint(a, &outer));
        ZT_OK(t, put(a, "x", "2"));
        ZT_OK(t, put(a, "y", "2"));
        ZT_OK(t, cohort_savepoint(a, &inner));
        ZT_OK(t, cohort_txn_del(a, NULL, K("x")));
        ZT_OK(t, cohort_rollback_to(a, inner));
        iso_is(&w, a, NULL, "x", "2");
        ZT_OK(t, put(a, "z", "3"));
        ZT_OK(t, cohort_rollback_to(a, outer));
        ZT_STATUS(t, cohort_rollback_to(a, inner), COHORT_ETXN);
        iso_is(&w, a, NULL, "x", "1");
        ZT_OK(t, put(a, "end", "e"));
        ZT_OK(t, cohort_sync(w.db)); /* all of that is in the log */
        if (ending == 0)
            ZT_OK(t, cohort_commit(a));
        else if (ending == 1)
            ZT_OK(t, cohort_abort(a));
        else
            api_forget(a);
        iso_crash_and_open(&w);
        iso_is(&w, NULL, NULL, "x", ending == 0 ? "1" : "0");
        iso_is(&w, NULL, NULL, "y", NULL);
        iso_is(&w, NULL, NULL, "z", NULL);
        iso_is(&w, NULL, NULL, "end", ending == 0 ? "e" : NULL);
        iso_destroy(&w);
    }
}

struct gids {
    unsigned n;
    char text[4][32];
};

static int
visit_gid(void *arg, const void *gid, size_t bytes)
{
    struct gids *g = arg;

    if (g->n == CH_ARRAY_LEN(g->text) || bytes >= sizeof(g->text[0]))
        return COHORT_EINVAL;
    memcpy(g->text[g->n], gid, bytes);
    g->text[g->n++][bytes] = '\0';
    return 0;
}

static unsigned
count_prepared(struct iso *w)
{
    struct gids g = {0};

    ZT_OK(w->t, cohort_list_prepared(w->db, visit_gid, &g));
    return g.n;
}

/* The locks of the prepared transactions hold: written, deleted, inserted, only locked. */
static void
prepared_locks_hold(struct iso *w, cohort_tree *tree)
{
    struct cohort_value v = {0};
    cohort_txn *a = iso_snapshot(w);

    ZT_STATUS(w->t, put(a, "written", "x"), COHORT_CONFLICT);
    ZT_STATUS(w->t, put(a, "deleted", "x"), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_txn_insert(a, NULL, K("inserted"), K("x")), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_txn_get_for_update(a, NULL, K("locked"), &v), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_txn_put(a, tree, K("in tree"), K("x")), COHORT_CONFLICT);
    iso_is(w, a, NULL, "written", "0");
    iso_is(w, a, NULL, "deleted", "0");
    iso_is(w, a, NULL, "inserted", NULL);
    iso_is(w, a, tree, "in tree", NULL);
    ZT_OK(w->t, put(a, "free", "x"));
    ZT_OK(w->t, cohort_commit(a));
    cohort_value_free(&v);
}

static void
prepare_one(struct iso *w)
{
    struct cohort_value v = {0};
    cohort_tree *tree = iso_tree(w, "tree");
    cohort_txn *a;
    uint64_t sp;

    ZT_OK(w->t, cohort_put(w->db, K("written"), K("0")));
    ZT_OK(w->t, cohort_put(w->db, K("deleted"), K("0")));
    ZT_OK(w->t, cohort_put(w->db, K("locked"), K("0")));
    a = iso_snapshot(w);
    ZT_OK(w->t, cohort_txn_get_for_update(a, NULL, K("locked"), &v));
    ZT_OK(w->t, put(a, "written", "1"));
    ZT_OK(w->t, cohort_savepoint(a, &sp));
    ZT_OK(w->t, put(a, "rolled back", "1"));
    ZT_OK(w->t, cohort_rollback_to(a, sp));
    ZT_OK(w->t, cohort_txn_del(a, NULL, K("deleted")));
    ZT_OK(w->t, cohort_txn_insert(a, NULL, K("inserted"), K("1")));
    ZT_OK(w->t, cohort_txn_put(a, tree, K("in tree"), K("1")));
    ZT_OK(w->t, cohort_prepare(a, K("gid 1")));
    a = iso_snapshot(w);
    ZT_STATUS(w->t, cohort_prepare(a, K("gid 1")), COHORT_EXISTS);
    ZT_OK(w->t, put(a, "still", "open")); /* EXISTS leaves it open */
    ZT_OK(w->t, cohort_commit(a));
    prepared_locks_hold(w, tree);
    cohort_tree_close(tree);
    cohort_value_free(&v);
}

/* Goal: a prepared transaction outlives closing and crashes, several in a row and with checkpoints between, with
 * all its locks; then either decision is carried out in full and is itself durable. */
static void
test_prepared(struct zt *t)
{
    bool commit = zt_below(t, 2) == 0;
    cohort_tree *tree;
    struct iso w;

    iso_create(t, &w, 16, NULL);
    prepare_one(&w);
    for (int i = 0; i < 5; i++) {
        switch (zt_below(t, 3)) {
        case 0:
            iso_close_and_open(&w);
            break;
        case 1:
            ZT_OK(t, cohort_checkpoint(w.db));
            iso_crash_and_open(&w);
            break;
        default:
            iso_crash_and_open(&w);
        }
        ZT_CHECK(t, count_prepared(&w) == 1);
        tree = iso_tree(&w, "tree");
        prepared_locks_hold(&w, tree);
        cohort_tree_close(tree);
    }
    ZT_STATUS(t, cohort_commit_prepared(w.db, K("gid 2")), COHORT_NOTFOUND);
    ZT_OK(t, commit ? cohort_commit_prepared(w.db, K("gid 1"))
                    : cohort_abort_prepared(w.db, K("gid 1")));
    for (int i = 0; i < 2; i++) {
        ZT_CHECK(t, count_prepared(&w) == 0);
        tree = iso_tree(&w, "tree");
        iso_is(&w, NULL, NULL, "written", commit ? "1" : "0");
        iso_is(&w, NULL, NULL, "deleted", commit ? NULL : "0");
        iso_is(&w, NULL, NULL, "inserted", commit ? "1" : NULL);
        iso_is(&w, NULL, NULL, "rolled back", NULL);
        iso_is(&w, NULL, NULL, "still", "open");
        iso_is(&w, NULL, tree, "in tree", commit ? "1" : NULL);
        cohort_tree_close(tree);
        iso_crash_and_open(&w);
    }
    ZT_OK(t, cohort_put(w.db, K("written"), K("free again")));
    iso_destroy(&w);
}

/* Goal: what a serializable transaction has read stays protected from its prepare to its end: by commits of
 * transactions, and of operations of their own, phantoms included. */
static void
test_prepared_guards(struct zt *t)
{
    bool commit = zt_below(t, 2) == 0;
    struct iso w;
    cohort_cursor *c = NULL;
    cohort_txn *a, *b, *sees;

    iso_create(t, &w, 16, NULL);
    ZT_OK(t, cohort_put(w.db, K("m1"), K("0")));
    ZT_OK(t, cohort_put(w.db, K("z"), K("0")));
    b = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_OK(t, put(b, "m2", "phantom"));
    a = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_OK(t, cohort_txn_cursor(a, NULL, &c));
    ZT_OK(t, cohort_cursor_seek(c, K("m"))); /* m1; then z: nothing between */
    ZT_OK(t, cohort_cursor_next(c));
    cohort_cursor_close(c);
    ZT_OK(t, put(a, "a", "1"));
    ZT_OK(t, cohort_prepare(a, K("gid")));
    ZT_STATUS(t, cohort_commit(b), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_put(w.db, K("m1"), K("x")), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_insert(w.db, K("m5"), K("x")), COHORT_CONFLICT);
    ZT_OK(t, cohort_put(w.db, K("zz"), K("x"))); /* behind what it read */
    sees = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    iso_is(&w, sees, NULL, "a", NULL);
    iso_is(&w, sees, NULL, "m5", NULL);
    ZT_OK(t, put(sees, "b", "1"));
    ZT_OK(t,
          commit ? cohort_commit_prepared(w.db, K("gid")) : cohort_abort_prepared(w.db, K("gid")));
    /* It read "a", which the prepared one has written: only before it in order, and it wrote nothing that that one read. */
    ZT_STATUS(t, cohort_commit(sees), commit ? COHORT_CONFLICT : 0);
    ZT_OK(t, cohort_put(w.db, K("m1"), K("x")));
    iso_is(&w, NULL, NULL, "a", commit ? "1" : NULL);
    iso_destroy(&w);
}

/* Goal: of two prepared transactions neither has read what the other has written: both may still commit, in any order, so the
 * second is refused at its prepare; also when the first is one that a crash has left, and is no longer once it is undone. */
static void
test_prepared_order(struct zt *t)
{
    bool crash = zt_below(t, 2) == 0, undone = zt_below(t, 2) == 0;
    struct iso w;
    cohort_txn *a, *b;

    iso_create(t, &w, 16, NULL);
    ZT_OK(t, cohort_put(w.db, K("x"), K("0")));
    a = iso_snapshot(&w);
    ZT_OK(t, put(a, "x", "1"));
    ZT_OK(t, put(a, "new", "1"));
    ZT_OK(t, cohort_prepare(a, K("a")));
    if (crash)
        iso_crash_and_open(&w);
    if (undone)
        ZT_OK(t, cohort_abort_prepared(w.db, K("a")));
    b = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    if (zt_below(t, 2) == 0)
        iso_is(&w, b, NULL, "x", "0");
    else
        iso_is(&w, b, NULL, "new", NULL);
    ZT_OK(t, put(b, "b", "1"));
    ZT_STATUS(t, cohort_prepare(b, K("b")), undone ? 0 : COHORT_CONFLICT);
    if (undone)
        ZT_OK(t, cohort_commit_prepared(w.db, K("b")));
    iso_is(&w, NULL, NULL, "b", undone ? "1" : NULL);
    b = iso_begin(&w, COHORT_SERIALIZABLE, 0); /* one that does not prepare comes before */
    iso_is(&w, b, NULL, "x", "0");
    ZT_OK(t, put(b, "c", "1"));
    ZT_OK(t, cohort_commit(b));
    if (!undone)
        ZT_OK(t, cohort_commit_prepared(w.db, K("a")));
    iso_is(&w, NULL, NULL, "x", undone ? "0" : "1");
    iso_destroy(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"timeout", test_timeout, 1},
        {"wait_ends", test_wait_ends, 1},
        {"deadlock_two", test_deadlock_two, 1},
        {"deadlock_three", test_deadlock_three, 1},
        {"deadlock_then_commit", test_deadlock_then_commit, 1},
        {"cancel", test_cancel, 1},
        {"hook", test_hook, 3},
        {"hook_alone", test_hook_alone, 1},
        {"for_update", test_for_update, 1},
        {"visible_and_durable", test_visible_and_durable, 3},
        {"refresh", test_refresh, 1},
        {"moved", test_moved, 1},
        {"savepoints_and_crash", test_savepoints_and_crash, 3},
        {"prepared", test_prepared, 12},
        {"prepared_guards", test_prepared_guards, 4},
        {"prepared_order", test_prepared_order, 12},
    };

    return zt_main(argc, argv, "txn", cases, CH_ARRAY_LEN(cases));
}
