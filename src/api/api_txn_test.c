/* api_txn_test.c - transactions through the public API: what each call does, and every refusal that a caller can provoke. */
#include "api/api_test_rig.h"
#include "dev/dev.h"
#include "rt/rt.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- begin, end, views ---- */

static void
test_commit_and_abort(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = rig_open(t, dir);
    cohort_txn *a = rig_begin(t, db);

    ZT_OK(t, cohort_txn_put(a, NULL, K("x"), K("1")));
    ZT_OK(t, cohort_txn_insert(a, NULL, K("y"), K("2")));
    ZT_STATUS(t, cohort_txn_insert(a, NULL, K("y"), K("3")), COHORT_EXISTS);
    ZT_STATUS(t, cohort_txn_update(a, NULL, K("z"), K("3")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_del(a, NULL, K("z")), COHORT_NOTFOUND);
    rig_is(t, db, a, NULL, "x", "1");
    rig_is(t, db, NULL, NULL, "x", NULL); /* nobody else sees it */
    ZT_OK(t, cohort_commit(a));
    rig_is(t, db, NULL, NULL, "x", "1");
    a = rig_begin(t, db);
    ZT_OK(t, cohort_txn_update(a, NULL, K("x"), K("9")));
    ZT_OK(t, cohort_txn_del(a, NULL, K("y")));
    ZT_OK(t, cohort_txn_put(a, NULL, K("new"), K("n")));
    rig_is(t, db, a, NULL, "y", NULL);
    ZT_OK(t, cohort_abort(a));
    rig_is(t, db, NULL, NULL, "x", "1");
    rig_is(t, db, NULL, NULL, "y", "2");
    rig_is(t, db, NULL, NULL, "new", NULL);
    ZT_OK(t, cohort_abort(NULL));
    rig_close(t, db);
    db = rig_open(t, dir);
    rig_is(t, db, NULL, NULL, "x", "1");
    rig_is(t, db, NULL, NULL, "new", NULL);
    rig_close(t, db);
}

static void
test_views(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *r, *w, *s;

    ZT_OK(t, cohort_put(db, K("k"), K("old")));
    r = rig_begin_as(t, db, true, COHORT_SNAPSHOT);
    s = rig_begin_as(t, db, true, COHORT_SERIALIZABLE);
    w = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(w, NULL, K("k"), K("new")));
    rig_is(t, db, r, NULL, "k", "old");
    ZT_OK(t, cohort_txn_refresh(r)); /* still not committed */
    rig_is(t, db, r, NULL, "k", "old");
    ZT_OK(t, cohort_commit(w));
    rig_is(t, db, r, NULL, "k", "old");
    rig_is(t, db, NULL, NULL, "k", "new");
    ZT_OK(t, cohort_txn_refresh(r));
    rig_is(t, db, r, NULL, "k", "new");
    ZT_STATUS(t, cohort_txn_refresh(s), COHORT_ETXN);
    rig_is(t, db, s, NULL, "k", "old");
    ZT_OK(t, cohort_commit(r));
    ZT_OK(t, cohort_commit(s));
    rig_close(t, db);
}

static void
test_read_only(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *r = rig_begin_as(t, db, true, COHORT_SNAPSHOT);
    cohort_cursor *c = NULL;
    cohort_writer *w = NULL;
    struct cohort_value v = {0};

    ZT_OK(t, cohort_put(db, K("k"), K("v")));
    ZT_OK(t, cohort_txn_refresh(r));
    ZT_STATUS(t, cohort_txn_put(r, NULL, K("k"), K("w")), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_insert(r, NULL, K("l"), K("w")), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_update(r, NULL, K("k"), K("w")), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_del(r, NULL, K("k")), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_del_range(r, NULL, NULL, NULL, NULL), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_get_for_update(r, NULL, K("k"), &v), COHORT_ETXN);
    if (cohort_writer_open(r, NULL, K("k"), &w) == 0)
        ZT_STATUS(t, cohort_writer_finish(w), COHORT_ETXN);
    ZT_OK(t, cohort_txn_cursor(r, NULL, &c));
    ZT_OK(t, cohort_cursor_first(c));
    ZT_STATUS(t, cohort_cursor_put(c, K("w")), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_del(c), COHORT_ETXN);
    cohort_cursor_close(c);
    rig_is(t, db, r, NULL, "k", "v");
    ZT_OK(t, cohort_commit(r));
    cohort_value_free(&v);
    rig_close(t, db);
}

/* A handle that has ended is mostly told: nothing else has begun since. */
static void
test_ended(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    struct cohort_value v = {0};
    cohort_cursor *c = NULL, *kept = NULL;
    cohort_writer *w = NULL;
    uint64_t n;

    ZT_OK(t, cohort_put(db, K("k"), K("v")));
    ZT_OK(t, cohort_txn_cursor(a, NULL, &kept));
    ZT_STATUS(t, cohort_cursor_first(kept), COHORT_NOTFOUND);
    ZT_OK(t, cohort_writer_open(a, NULL, K("w"), &w));
    ZT_OK(t, cohort_commit(a));
    ZT_STATUS(t, cohort_cursor_first(kept), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_next(kept), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_entry(kept, NULL, NULL), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_del(kept), COHORT_ETXN);
    cohort_cursor_close(kept);
    ZT_STATUS(t, cohort_writer_append(w, "x", 1), COHORT_ETXN);
    ZT_STATUS(t, cohort_writer_finish(w), COHORT_ETXN);
    ZT_STATUS(t, cohort_commit(a), COHORT_ETXN);
    ZT_STATUS(t, cohort_commit_visible(a, &n), COHORT_ETXN);
    ZT_STATUS(t, cohort_abort(a), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_refresh(a), COHORT_ETXN);
    ZT_STATUS(t, cohort_savepoint(a, &n), COHORT_ETXN);
    ZT_STATUS(t, cohort_rollback_to(a, 1), COHORT_ETXN);
    ZT_STATUS(t, cohort_release(a, 1), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_get(a, NULL, K("k"), &v), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_put(a, NULL, K("k"), K("v")), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_del_range(a, NULL, NULL, NULL, NULL), COHORT_ETXN);
    ZT_STATUS(t, cohort_txn_cursor(a, NULL, &c), COHORT_ETXN);
    ZT_STATUS(t, cohort_writer_open(a, NULL, K("w"), &w), COHORT_ETXN);
    ZT_STATUS(t, cohort_prepare(a, K("gid")), COHORT_ETXN);
    ZT_STATUS(t, cohort_tree_drop(db, a, "x", 0), COHORT_ETXN);
    ZT_STATUS(t, cohort_get_many(NULL, a, NULL, 0, NULL, NULL, NULL), COHORT_ETXN);
    ZT_CHECK(t, cohort_txn_id(a) == 0);
    cohort_txn_cancel(a);
    rig_is(t, db, NULL, NULL, "w", NULL);
    rig_close(t, db);
}

static void
test_options(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_txn_options o = {0};
    cohort_txn *a = NULL, *b = NULL;
    uint64_t first;

    ZT_STATUS(t, cohort_begin(db, &o, &a), COHORT_EINVAL);
    cohort_txn_options_init(&o);
    o.isolation = (enum cohort_isolation)7;
    ZT_STATUS(t, cohort_begin(db, &o, &a), COHORT_EOPTION);
    cohort_txn_options_init(&o);
    o.durability = 7;
    ZT_STATUS(t, cohort_begin(db, &o, &a), COHORT_EOPTION);
    cohort_txn_options_init(&o);
    o.lock_timeout_ms = -2;
    ZT_STATUS(t, cohort_begin(db, &o, &a), COHORT_EOPTION);
    cohort_txn_options_init(NULL);
    ZT_OK(t, cohort_begin(db, NULL, &a));
    ZT_OK(t, cohort_begin(db, NULL, &b));
    first = cohort_txn_id(a);
    ZT_CHECK(t, first != 0 && cohort_txn_id(b) != 0 && cohort_txn_id(b) != first);
    ZT_OK(t, cohort_abort(a));
    ZT_OK(t, cohort_abort(b));
    rig_close(t, db);
}

static void
test_too_many(struct zt *t)
{
    struct cohort_options o;
    cohort_txn *txns[64];
    cohort_db *db = NULL;
    int n = 0, rc = 0;

    rig_options(t, &o, "cohort");
    rig_set(t, &o, "transactions_max", "16");
    ZT_OK(t, cohort_open(zt_tmpdir(t), &o, &db));
    while (n < 64 && (rc = cohort_begin(db, NULL, &txns[n])) == 0)
        n++;
    ZT_STATUS(t, rc, COHORT_EBUSY);
    ZT_CHECK(t, n >= 16 - 2 && n <= 16);
    ZT_OK(t, cohort_abort(txns[--n]));
    ZT_OK(t, cohort_begin(db, NULL, &txns[n]));
    for (int i = 0; i <= n; i++)
        ZT_OK(t, cohort_abort(txns[i]));
    rig_close(t, db);
}

static void
test_busy_close(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    cohort_tree *tree;
    cohort_bulk *bulk = NULL;
    cohort_cursor *c = NULL;

    ZT_STATUS(t, cohort_close(db), COHORT_EBUSY);
    ZT_OK(t, cohort_txn_put(a, NULL, K("p"), K("v")));
    ZT_OK(t, cohort_prepare(a, K("prepared ones do not count")));
    a = rig_begin(t, db);
    ZT_STATUS(t, cohort_close(db), COHORT_EBUSY); /* nor do they make up for one that is open */
    ZT_OK(t, cohort_abort(a));
    tree = rig_tree(t, db, "tree");
    ZT_STATUS(t, cohort_close(db), COHORT_EBUSY);
    ZT_OK(t, cohort_bulk_open(db, tree, &bulk));
    cohort_tree_close(tree);
    ZT_STATUS(t, cohort_close(db), COHORT_EBUSY);
    cohort_bulk_abort(bulk);
    ZT_OK(t, cohort_cursor_open(db, &c));
    ZT_OK(t, cohort_put(db, K("k"), K("v")));
    ZT_OK(t, cohort_cursor_first(c));
    ZT_STATUS(t, cohort_close(db), COHORT_EBUSY);
    cohort_cursor_close(c);
    rig_close(t, db);
}

/* ---- conflicts ---- */

static void
test_conflicts(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_value v = {0};
    cohort_txn *a, *b;

    ZT_OK(t, cohort_put(db, K("k"), K("0")));
    a = rig_begin(t, db);
    b = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("a")));
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("k"), K("b")), COHORT_CONFLICT); /* a holds it */
    ZT_OK(t, cohort_txn_put(b, NULL, K("other"), K("b")));                  /* b goes on */
    ZT_OK(t, cohort_commit(a));
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("k"), K("b")),
              COHORT_CONFLICT); /* newer than b's view */
    rig_is(t, db, b, NULL, "k", "0");
    ZT_OK(t, cohort_txn_refresh(b));
    ZT_OK(t, cohort_txn_put(b, NULL, K("k"), K("b")));
    ZT_OK(t, cohort_commit(b));
    rig_is(t, db, NULL, NULL, "k", "b");
    rig_is(t, db, NULL, NULL, "other", "b");
    /* FOR UPDATE holds what is there and what is not. */
    a = rig_begin(t, db);
    b = rig_begin(t, db);
    ZT_OK(t, cohort_txn_get_for_update(a, NULL, K("k"), &v));
    ZT_CHECK(t, v.bytes == 1);
    ZT_STATUS(t, cohort_txn_get_for_update(a, NULL, K("none"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("k"), K("x")), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_txn_insert(b, NULL, K("none"), K("x")), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(a));
    ZT_OK(t, cohort_txn_insert(b, NULL, K("none"), K("x")));
    ZT_OK(t, cohort_commit(b));
    cohort_value_free(&v);
    rig_close(t, db);
}

/* Operations of their own wait for the holder, and then give up by name. */
static void
test_timeouts(struct zt *t)
{
    struct cohort_options o;
    struct cohort_txn_options to;
    cohort_db *db = NULL;
    cohort_txn *a, *b = NULL;
    cohort_batch *batch = NULL;

    rig_options(t, &o, "cohort");
    rig_set(t, &o, "lock_timeout_ms", "20");
    ZT_OK(t, cohort_open(zt_tmpdir(t), &o, &db));
    a = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("a")));
    ZT_STATUS(t, cohort_put(db, K("k"), K("b")), COHORT_TIMEOUT);
    ZT_STATUS(t, cohort_del(db, K("k")), COHORT_TIMEOUT);
    ZT_OK(t, cohort_batch_create(&batch));
    ZT_OK(t, cohort_batch_put(batch, K("j"), K("b")));
    ZT_OK(t, cohort_batch_put(batch, K("k"), K("b")));
    ZT_STATUS(t, cohort_write(db, batch), COHORT_TIMEOUT);
    rig_is(t, db, NULL, NULL, "j", NULL);
    cohort_txn_options_init(&to);
    to.lock_timeout_ms = 5;
    ZT_OK(t, cohort_begin(db, &to, &b));
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("k"), K("b")), COHORT_TIMEOUT);
    ZT_OK(t, cohort_abort(b));
    ZT_OK(t, cohort_commit(a));
    ZT_OK(t, cohort_write(db, batch));
    rig_is(t, db, NULL, NULL, "k", "b");
    cohort_batch_destroy(batch);
    rig_close(t, db);
}

static void
test_serializable(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    enum cohort_isolation both[] = {COHORT_SNAPSHOT, COHORT_SERIALIZABLE};

    for (int i = 0; i < 2; i++) { /* write skew: allowed, refused */
        cohort_txn *a, *b;

        ZT_OK(t, cohort_put(db, K("x"), K("1")));
        ZT_OK(t, cohort_put(db, K("y"), K("1")));
        a = rig_begin_as(t, db, false, both[i]);
        b = rig_begin_as(t, db, false, both[i]);
        rig_is(t, db, a, NULL, "x", "1");
        rig_is(t, db, b, NULL, "y", "1");
        ZT_OK(t, cohort_txn_put(a, NULL, K("y"), K("0")));
        ZT_OK(t, cohort_txn_put(b, NULL, K("x"), K("0")));
        ZT_OK(t, cohort_commit(a));
        ZT_STATUS(t, cohort_commit(b), i == 0 ? 0 : COHORT_CONFLICT);
        rig_is(t, db, NULL, NULL, "x", i == 0 ? "0" : "1");
    }
    rig_close(t, db);
}

struct waiter {
    cohort_txn *txn;
    int rc;
    _Atomic int hooked; /* by the hook, pairs with the main thread's wait */
    uint64_t waiter, holder;
    void *waiter_tag, *holder_tag;
};

static void
hook(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder, void *holder_tag)
{
    struct waiter *w = arg;

    w->waiter = waiter;
    w->holder = holder;
    w->waiter_tag = waiter_tag;
    w->holder_tag = holder_tag;
    atomic_store_explicit(&w->hooked, 1, memory_order_release);
}

static void
wait_main(void *arg)
{
    struct waiter *w = arg;

    w->rc = cohort_txn_put(w->txn, NULL, K("k"), K("w"));
}

static void
test_cancel(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_txn_options o;
    struct rt_thread thread;
    struct waiter w = {0};
    cohort_txn *a = NULL;
    int tag = 0;

    cohort_txn_options_init(&o);
    o.lock_timeout_ms = 60000;
    o.tag = &tag;
    cohort_set_wait_hook(db, hook, &w);
    ZT_OK(t, cohort_begin(db, &o, &a));
    o.tag = &w;
    ZT_OK(t, cohort_begin(db, &o, &w.txn));
    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("a")));
    ZT_OK(t, rt_spawn(&thread, "waiter", wait_main, &w));
    while (atomic_load_explicit(&w.hooked, memory_order_acquire) == 0)
        rt_sleep_ns(100000);
    ZT_CHECK(t, w.waiter == cohort_txn_id(w.txn) && w.waiter_tag == &w);
    ZT_CHECK(t, w.holder == cohort_txn_id(a) && w.holder_tag == &tag);
    cohort_txn_cancel(w.txn);
    rt_join(&thread);
    ZT_STATUS(t, w.rc, COHORT_CANCELED);
    cohort_set_wait_hook(db, NULL, NULL);
    ZT_OK(t, cohort_commit(a));
    ZT_OK(t, cohort_abort(w.txn));
    rig_is(t, db, NULL, NULL, "k", "a");
    rig_close(t, db);
}

/* ---- savepoints: nested, against copies of a model ---- */

enum {
    SP_KEYS = 40,
    SP_DEPTH = 8
};

struct sp {
    uint32_t state[SP_DEPTH + 1][SP_KEYS]; /* 0 = absent; [depth] is the present */
    uint64_t ids[SP_DEPTH];
    unsigned depth;
};

static void
sp_write(struct zt *t, cohort_txn *a, struct sp *s)
{
    uint32_t *now = s->state[s->depth];
    uint32_t key = (uint32_t)zt_below(t, SP_KEYS), version = 1 + (uint32_t)zt_below(t, 1000);

    if (zt_below(t, 3) == 0) {
        ZT_STATUS(t, cohort_txn_del(a, NULL, &key, sizeof(key)),
                  now[key] != 0 ? 0 : COHORT_NOTFOUND);
        now[key] = 0;
        return;
    }
    ZT_OK(t, cohort_txn_put(a, NULL, &key, sizeof(key), &version, sizeof(version)));
    now[key] = version;
}

static void
sp_compare(struct zt *t, cohort_db *db, cohort_txn *a, const uint32_t *want)
{
    struct cohort_value v = {0};

    for (uint32_t key = 0; key < SP_KEYS; key++) {
        int rc = a != NULL ? cohort_txn_get(a, NULL, &key, sizeof(key), &v)
                           : cohort_get(db, &key, sizeof(key), &v);

        ZT_STATUS(t, rc, want[key] == 0 ? COHORT_NOTFOUND : 0);
        if (rc == 0)
            ZT_CHECK(t, v.bytes == 4 && ch_get32(v.data) == want[key]);
    }
    cohort_value_free(&v);
}

static void
sp_step(struct zt *t, cohort_txn *a, struct sp *s)
{
    unsigned at;

    switch (zt_below(t, 10)) {
    case 0:
        if (s->depth == SP_DEPTH)
            return;
        ZT_OK(t, cohort_savepoint(a, &s->ids[s->depth]));
        memcpy(s->state[s->depth + 1], s->state[s->depth], sizeof(s->state[0]));
        s->depth++;
        return;
    case 1:
        if (s->depth == 0)
            return;
        at = (unsigned)zt_below(t, s->depth);
        ZT_OK(t, cohort_rollback_to(a, s->ids[at]));
        memcpy(s->state[at + 1], s->state[at], sizeof(s->state[0])); /* it stays */
        if (at + 1 < s->depth)
            ZT_STATUS(t, cohort_release(a, s->ids[at + 1]), COHORT_ETXN);
        s->depth = at + 1;
        return;
    case 2:
        if (s->depth == 0)
            return;
        at = (unsigned)zt_below(t, s->depth);
        ZT_OK(t, cohort_release(a, s->ids[at]));
        ZT_STATUS(t, cohort_rollback_to(a, s->ids[at]), COHORT_ETXN);
        memcpy(s->state[at], s->state[s->depth], sizeof(s->state[0]));
        s->depth = at;
        return;
    default:
        sp_write(t, a, s);
    }
}

static void
test_savepoints(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct sp *s = calloc(1, sizeof(*s));
    uint32_t committed[SP_KEYS] = {0};

    CH_ASSERT(s != NULL);
    for (int round = 0; round < 20; round++) {
        cohort_txn *a = rig_begin(t, db);

        s->depth = 0;
        memcpy(s->state[0], committed, sizeof(committed));
        for (int i = 0; i < 100; i++)
            sp_step(t, a, s);
        sp_compare(t, db, a, s->state[s->depth]);
        sp_compare(t, db, NULL, committed);
        if (zt_below(t, 3) == 0) {
            ZT_OK(t, cohort_abort(a));
        } else {
            ZT_OK(t, cohort_commit(a));
            memcpy(committed, s->state[s->depth], sizeof(committed));
        }
        sp_compare(t, db, NULL, committed);
    }
    free(s);
    rig_close(t, db);
}

/* ---- durability ---- */

static void
test_positions(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_txn_options o;
    uint64_t at = 0, end;
    cohort_txn *a = rig_begin(t, db);

    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("v")));
    ZT_STATUS(t, cohort_commit_visible(a, NULL), COHORT_EINVAL);
    ZT_OK(t, cohort_commit_visible(a, &at));
    rig_is(t, db, NULL, NULL, "k", "v");
    end = cohort_log_position(db);
    ZT_CHECK(t, at > 0 && at <= end);
    ZT_OK(t, cohort_durable(db, at));
    ZT_OK(t, cohort_durable(db, end));
    ZT_STATUS(t, cohort_durable(db, end + (1 << 30)), COHORT_EINVAL);
    ZT_CHECK(t, cohort_log_position(NULL) == 0);
    for (int d = COHORT_DURABILITY_SYNC; d <= COHORT_DURABILITY_NONE; d++) {
        char key[8];

        cohort_txn_options_init(&o);
        o.durability = d;
        ZT_OK(t, cohort_begin(db, &o, &a));
        (void)snprintf(key, sizeof(key), "d%d", d);
        ZT_OK(t, cohort_txn_put(a, NULL, K(key), K("v")));
        ZT_OK(t, cohort_commit(a));
        rig_is(t, db, NULL, NULL, key, "v");
    }
    ZT_OK(t, cohort_sync(db));
    rig_close(t, db);
}

/* Goal: durability is each transaction's: what a sync one has committed outlives a crash in a database whose default is none. */
static void
test_durability(struct zt *t)
{
    struct cohort_options o;
    struct cohort_txn_options to;
    struct sim_drive *drive = NULL;
    struct dev *dev = NULL;
    cohort_db *db = NULL;
    cohort_txn *a = NULL;

    rig_options(t, &o, "cohort");
    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K,cache=volatile", &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, api_open_dev(dev, &o, true, &db));
    cohort_txn_options_init(&to);
    to.durability = COHORT_DURABILITY_SYNC;
    ZT_OK(t, cohort_put(db, K("before"), K("none"))); /* in the log before it */
    ZT_OK(t, cohort_begin(db, &to, &a));
    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("v")));
    ZT_OK(t, cohort_commit(a));
    api_kill(db);
    sim_drive_crash(drive, t->seed);
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, api_open_dev(dev, &o, false, &db));
    rig_is(t, db, NULL, NULL, "k", "v");
    rig_is(t, db, NULL, NULL, "before", "none");
    rig_close(t, db);
    sim_drive_destroy(drive);
}

/* ---- two-phase commit ---- */

struct gids {
    char text[8][COHORT_GID_MAX + 1];
    int count, stop_at;
};

static int
visit_gid(void *arg, const void *gid, size_t gid_bytes)
{
    struct gids *g = arg;

    memcpy(g->text[g->count], gid, gid_bytes);
    g->text[g->count][gid_bytes] = '\0';
    g->count++;
    return g->count == g->stop_at ? 77 : 0;
}

static void
test_prepared(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = rig_open(t, dir);
    char gid[COHORT_GID_MAX + 1];
    struct gids g = {0};
    cohort_txn *a, *b;

    memset(gid, 'g', sizeof(gid));
    a = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(a, NULL, K("a"), K("1")));
    ZT_STATUS(t, cohort_prepare(a, gid, 0), COHORT_EINVAL);
    ZT_STATUS(t, cohort_prepare(a, NULL, 3), COHORT_EINVAL);
    ZT_STATUS(t, cohort_prepare(a, gid, COHORT_GID_MAX + 1), COHORT_EINVAL);
    ZT_OK(t, cohort_prepare(a, K("one")));
    b = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(b, NULL, K("b"), K("2")));
    ZT_STATUS(t, cohort_prepare(b, K("one")), COHORT_EXISTS);
    rig_is(t, db, b, NULL, "b", "2"); /* still open */
    ZT_OK(t, cohort_prepare(b, gid, COHORT_GID_MAX));
    rig_is(t, db, NULL, NULL, "a", NULL);
    ZT_OK(t, cohort_list_prepared(db, visit_gid, &g));
    ZT_CHECK(t, g.count == 2);
    rig_close(t, db); /* they outlive it */
    db = rig_open(t, dir);
    g = (struct gids){.stop_at = 1};
    ZT_STATUS(t, cohort_list_prepared(db, visit_gid, &g), 77);
    a = rig_begin(t, db);
    ZT_STATUS(t, cohort_txn_put(a, NULL, K("a"), K("x")), COHORT_CONFLICT); /* so do their locks */
    ZT_OK(t, cohort_abort(a));
    ZT_STATUS(t, cohort_commit_prepared(db, K("none")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_abort_prepared(db, K("none")), COHORT_NOTFOUND);
    ZT_OK(t, cohort_commit_prepared(db, K("one")));
    ZT_OK(t, cohort_abort_prepared(db, gid, COHORT_GID_MAX));
    ZT_STATUS(t, cohort_commit_prepared(db, K("one")), COHORT_NOTFOUND);
    rig_is(t, db, NULL, NULL, "a", "1");
    rig_is(t, db, NULL, NULL, "b", NULL);
    rig_close(t, db);
}

static void
test_statistics(struct zt *t)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)}, e;
    struct cohort_options o;
    cohort_db *db = NULL;
    cohort_tree *tree;
    cohort_txn *a, *b;
    char *text = NULL;

    rig_options(t, &o, "cohort");
    rig_set(t, &o, "background", "no"); /* the sweeper's transactions would count, too */
    ZT_OK(t, cohort_open(zt_tmpdir(t), &o, &db));
    tree = rig_tree(t, db, "tree");
    ZT_OK(t, cohort_stats(db, &s));
    a = rig_begin(t, db);
    b = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(a, NULL, K("key"), K("value")));
    ZT_OK(t, cohort_txn_put(a, tree, K("key"), K("value")));
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("key"), K("value")), COHORT_CONFLICT);
    ZT_OK(t, cohort_txn_put(b, NULL, K("other"), K("value")));
    e.struct_bytes = sizeof(e);
    ZT_OK(t, cohort_stats(db, &e));
    ZT_CHECK(t, e.transactions == 2 && e.version_entries >= 3); /* bytes are counted in lots */
    ZT_CHECK(t, e.trees == 1 && e.commits == s.commits);
    ZT_OK(t, cohort_commit(a));
    ZT_STATUS(t, cohort_txn_put(b, NULL, K("key"), K("value")), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(b));
    e.struct_bytes = sizeof(e);
    ZT_OK(t, cohort_stats(db, &e));
    ZT_CHECK(t, e.transactions == 0 && e.transactions_prepared == 0);
    ZT_CHECK(t, e.commits == s.commits + 1 && e.payload_bytes == s.payload_bytes + 16);
    ZT_CHECK(t, e.aborts == s.aborts + 1 && e.conflicts > s.conflicts);
    a = rig_begin(t, db);
    rig_is(t, db, a, NULL, "key", "value");
    ZT_OK(t, cohort_commit(a)); /* what has only read is not counted */
    ZT_OK(t, cohort_stats(db, &e));
    ZT_CHECK(t, e.commits == s.commits + 1);
    ZT_OK(t, cohort_stats_json(db, &text));
    ZT_CHECK(t, strstr(text, "\"trees\":1") != NULL);
    cohort_free(text);
    cohort_tree_close(tree);
    rig_close(t, db);
}

/* Goal: two threads that take and give back transactions all the time share no handle. */
struct churn {
    struct rt_thread thread;
    cohort_db *db;
    uint32_t index;
    int rc;
};

static void
churn_main(void *arg)
{
    struct churn *c = arg;
    struct cohort_value v = {0};

    for (uint32_t i = 0; i < 3000 && c->rc == 0; i++) {
        cohort_txn *a = NULL;

        c->rc = cohort_begin(c->db, NULL, &a);
        if (c->rc == 0)
            c->rc = cohort_txn_put(a, NULL, &c->index, 4, &i, 4);
        if (c->rc == 0)
            c->rc = cohort_txn_get(a, NULL, &c->index, 4, &v);
        if (c->rc == 0 && ch_get32(v.data) != i)
            c->rc = COHORT_ECORRUPT;
        if (c->rc == 0)
            c->rc = i % 3 == 0 ? cohort_abort(a) : cohort_commit(a);
    }
    cohort_value_free(&v);
}

static void
test_churn(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct churn c[4];

    for (uint32_t i = 0; i < 4; i++) {
        c[i] = (struct churn){.db = db, .index = i};
        ZT_OK(t, rt_spawn(&c[i].thread, "churn", churn_main, &c[i]));
    }
    for (int i = 0; i < 4; i++) {
        rt_join(&c[i].thread);
        ZT_OK(t, c[i].rc);
    }
    rig_close(t, db);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"commit_and_abort", test_commit_and_abort, 1},
        {"views", test_views, 1},
        {"read_only", test_read_only, 1},
        {"ended", test_ended, 1},
        {"options", test_options, 1},
        {"too_many", test_too_many, 1},
        {"busy_close", test_busy_close, 1},
        {"conflicts", test_conflicts, 1},
        {"timeouts", test_timeouts, 1},
        {"serializable", test_serializable, 1},
        {"cancel", test_cancel, 1},
        {"savepoints", test_savepoints, 10},
        {"positions", test_positions, 1},
        {"durability", test_durability, 5},
        {"prepared", test_prepared, 1},
        {"statistics", test_statistics, 1},
        {"churn", test_churn, 2},
    };

    return zt_main(argc, argv, "api_txn", cases, CH_ARRAY_LEN(cases));
}
