/* btree_threads_test.c - many threads on one tree: writers of keys of their own, writers of shared
 * keys, transactions, scans. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "btree/btree_test_rig.h"
#include "btree/undo.h"

enum {
    WRITERS = 3,
    OWN_KEYS = 3000, /* key i belongs to writer i % WRITERS */
    OPS = 6000,
    TRANSFERS = 1500,
    BALANCE = 100, /* of each account in the beginning */
};

struct crew {
    struct rig *rig;
    struct keys *keys;
    _Atomic bool stop;    /* relaxed; partner: main thread */
    _Atomic unsigned up;  /* relaxed: late readers that have begun */
    _Atomic unsigned bad; /* relaxed; read after the join */
};
struct worker {
    struct crew *crew;
    unsigned number;
    const struct ver_view *view; /* of one that has it given */
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

static void
copy_version(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)flags;
    *(uint32_t *)arg = bytes < 4 ? 0 : ch_get32(value);
}

static int
put(struct crew *c, unsigned i, uint32_t version, enum bt_write_kind kind)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_op op = {
        .kind = kind, .key = key_slice(c->keys, i), .value = key_value(c->keys, i, version, buf)};
    struct bt_done done;

    return bt_write(&c->rig->bt, &op, &done);
}

/* Own keys, exactly as a model says; the main thread compares at the end. */
static void
own_keys(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    uint32_t version;
    int rc;

    for (uint32_t step = 1; step <= OPS; step++) {
        unsigned n = c->keys->n / WRITERS;
        unsigned i = (unsigned)ch_prng_below(&w->rng, n) * WRITERS + w->number;
        bool have = c->keys->version[i] != 0;

        if (ch_prng_below(&w->rng, 100) < (step / 1500 % 2 == 0 ? 25U : 60U)) {
            rc = put(c, i, 0, BT_DEL);
            EXPECT(c, rc == (have ? 0 : COHORT_NOTFOUND));
            c->keys->version[i] = 0;
        } else {
            rc = put(c, i, step, BT_PUT);
            EXPECT(c, rc == 0);
            c->keys->version[i] = step;
        }
        version = 0;
        rc = bt_get(&c->rig->bt, NULL, key_slice(c->keys, i), copy_version, &version);
        EXPECT(c, rc == (c->keys->version[i] == 0 ? COHORT_NOTFOUND : 0));
        EXPECT(c, version == c->keys->version[i]);
    }
}

/* Order, and values whole, in both directions, until the writers are done. */
static void
scanner(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct bt_cursor *cursor;
    uint8_t last[COHORT_KEY_MAX];
    int rc = bt_cursor_create(&c->rig->bt, &cursor);

    EXPECT(c, rc == 0);
    for (unsigned round = 0; rc == 0 && !atomic_load_explicit(&c->stop, memory_order_relaxed);
         round++) {
        bool back = round % 2 != 0;
        struct bt_slice key, value, before = {last, SIZE_MAX};
        unsigned flags;

        rc = bt_seek(cursor, back ? BT_LAST : BT_FIRST, (struct bt_slice){NULL, 0});
        while (rc == 0) {
            EXPECT(c, bt_entry(cursor, &key, &value, &flags) && value.bytes >= 4);
            if (before.bytes != SIZE_MAX)
                EXPECT(c, back ? node_compare(key, before) < 0 : node_compare(key, before) > 0);
            memcpy(last, key.data, key.bytes);
            before.bytes = key.bytes;
            rc = back ? bt_prev(cursor) : bt_next(cursor);
        }
        EXPECT(c, rc == COHORT_NOTFOUND);
        rc = 0;
    }
    bt_cursor_destroy(cursor);
}

static void
run(struct zt *t, struct crew *c, struct worker *ws, unsigned n, void (*fn)(void *), unsigned first)
{
    for (unsigned i = 0; i < n; i++) {
        ws[i].crew = c;
        ws[i].number = first + i;
        ch_prng_init(&ws[i].rng, t->seed * 31 + first + i);
        ZT_OK(t, rt_spawn(&ws[i].thread, "worker", fn, &ws[i]));
    }
}

/* Goal: writers on keys of their own never disturb each other, though they share leaves, splits and
 * merges; scans stay in order meanwhile. */
static void
test_own_keys(struct zt *t)
{
    struct rig_options o = {
        .frames = 512, .log_megabytes = 64, .background = true, .versions = t->seed / 2 % 2 == 0};
    struct worker ws[WRITERS], scan[1];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, t->seed % 2 == 0 ? KEYS_DECIMAL : KEYS_MIXED, OWN_KEYS, 200);
    run(t, &c, scan, 1, scanner, WRITERS);
    run(t, &c, ws, WRITERS, own_keys, 0);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    atomic_store_explicit(&c.stop, true, memory_order_relaxed);
    rt_join(&scan[0].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- shared keys: insert is exclusive ---- */

/* INSERT and DEL of a few keys; each success takes or gives a token that one thread holds. */
static void
token_taker(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    for (uint32_t step = 1; step <= OPS; step++) {
        unsigned i = (unsigned)ch_prng_below(&w->rng, 40);
        uint32_t version = 0;
        int rc = put(c, i, w->number + 1, BT_INSERT);

        if (rc == COHORT_EXISTS)
            continue;
        EXPECT(c, rc == 0);
        rc = bt_get(&c->rig->bt, NULL, key_slice(c->keys, i), copy_version, &version);
        EXPECT(c, rc == 0 && version == w->number + 1);
        EXPECT(c, put(c, i, 0, BT_DEL) == 0);
    }
}

static void
test_shared_keys(struct zt *t)
{
    struct rig_options o = {.log_megabytes = 64, .background = true, .versions = t->seed % 2 == 0};
    struct worker ws[WRITERS];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 40, 1500);
    run(t, &c, ws, WRITERS, token_taker, 0);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- transactions: transfers between accounts, which come and go with their balance ---- */

/* Even keys are accounts, odd ones noise. */
struct bank_txn {
    struct ver_view view;
    struct ver_txn *w;
};

static bool
bank_begin(struct crew *c, struct bank_txn *x)
{
    struct rig *r = c->rig;
    int rc = ver_view_open(r->ver, &x->view);

    EXPECT(c, rc == 0);
    if (rc != 0)
        return false;
    rc = ver_txn_create(r->ver, ver_new_id(r->ver), NULL, x->view.slot, wal_end(r->wal), &x->w);
    EXPECT(c, rc == 0);
    if (rc != 0)
        ver_view_close(r->ver, &x->view);
    else
        x->view.self = x->w;
    return rc == 0;
}

static void
undo_key_del(struct crew *c, const uint8_t key[UNDO_KEY_BYTES])
{
    struct bt_op op = {.kind = BT_DEL, .key = {key, UNDO_KEY_BYTES}, .system = true};
    struct bt_done done;

    EXPECT(c, bt_write(&c->rig->undo, &op, &done) == 0);
}

/* All before-images go to the undo tree; `drop`: and leave memory. */
static void
bank_spill(struct crew *c, struct bank_txn *x, bool drop)
{
    uint8_t key[UNDO_KEY_BYTES], value[BT_ENTRY_MAX];
    struct ver_entry *e;
    struct ver_undo u;
    struct bt_done done;

    while ((e = ver_oldest_unspilled(x->w)) != NULL) {
        struct bt_op op = {.kind = BT_PUT, .key = {key, sizeof(key)}, .system = true};
        struct undo_entry ue;

        ver_entry_info(e, &u);
        ue = (struct undo_entry){.kind = u.kind,
                                 .tree = u.tree,
                                 .key = {u.key, u.key_bytes},
                                 .before = {u.before, u.before_bytes}};
        undo_key(ver_txn_id(x->w), u.seq, key);
        op.value = (struct bt_slice){value, undo_encode(&ue, value)};
        EXPECT(c, bt_write(&c->rig->undo, &op, &done) == 0);
        ver_entry_spilled(c->rig->ver, e, drop);
    }
}

struct image {
    uint8_t data[COHORT_ENTRY_MAX];
    size_t bytes;
};

static void
copy_image(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct image *i = arg;
    struct undo_entry e;

    (void)flags;
    i->bytes = 0;
    if (undo_decode(value, bytes, &e) == 0 && e.before.bytes > 0) {
        i->bytes = e.before.bytes;
        memcpy(i->data, e.before.data, e.before.bytes);
    }
}

static void
bank_commit(struct crew *c, struct bank_txn *x, bool durable)
{
    struct rig *r = c->rig;
    struct wal_ticket ticket = {0};
    struct wal_part part = {"commit", 6};
    lsn_t lsn;

    EXPECT(c, wal_reserve(r->wal, WAL_USER, WAL_RECORD_HEADER + part.bytes, &ticket) == 0);
    ver_commit_lock(r->ver);
    lsn = wal_append(r->wal, &ticket, 200, CH_WAL, &part, 1);
    ver_commit_end(r->ver, x->w, lsn, durable);
    wal_release(r->wal, &ticket);
    if (durable)
        EXPECT(c, wal_flush(r->wal, lsn) == 0);
    while (ver_advance(r->ver, wal_durable(r->wal)) < lsn) /* somebody else's flush is awaited */
        EXPECT(c, wal_flush(r->wal, lsn) == 0);
    ver_unregister(r->ver, x->view.slot);
    ver_view_close(r->ver, &x->view);
}

static void
bank_abort(struct crew *c, struct bank_txn *x)
{
    struct rig *r = c->rig;
    struct ver_entry *e;
    struct ver_undo u;
    struct image image;
    uint8_t key[COHORT_KEY_MAX], spilled[UNDO_KEY_BYTES];
    lsn_t lsn;

    while ((e = ver_newest(x->w)) != NULL) {
        ver_entry_info(e, &u);
        undo_key(ver_txn_id(x->w), u.seq, spilled);
        memcpy(key, u.key, u.key_bytes);
        struct bt_undo_op op = {.txn = ver_txn_id(x->w),
                                .undo_next = u.seq - 1,
                                .kind = u.kind,
                                .key = {key, u.key_bytes},
                                .before = {u.before, u.before_bytes},
                                .e = e};
        if (u.before == NULL && u.before_bytes > 0) {
            EXPECT(c, bt_get(&r->undo, NULL, (struct bt_slice){spilled, sizeof(spilled)},
                             copy_image, &image) == 0);
            op.before = (struct bt_slice){image.data, image.bytes};
        }
        EXPECT(c, bt_undo(&r->bt, &op, &lsn) == 0);
        if (u.spilled)
            undo_key_del(c, spilled);
    }
    ver_abort_end(r->ver, x->w);
    ver_unregister(r->ver, x->view.slot);
    ver_view_close(r->ver, &x->view);
}

/* 0: absent. */
static uint32_t
balance_of(struct crew *c, const struct bank_txn *x, unsigned i)
{
    uint32_t balance = 0;
    int rc = bt_get(&c->rig->bt, &x->view, key_slice(c->keys, i), copy_version, &balance);

    EXPECT(c, rc == COHORT_NOTFOUND || (rc == 0 && balance > 0));
    return balance;
}

/* An account without balance is deleted. */
static int
set_balance(struct crew *c, const struct bank_txn *x, unsigned i, uint32_t balance)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_op op = {.kind = balance == 0 ? BT_DEL : BT_PUT,
                       .key = key_slice(c->keys, i),
                       .value = key_value(c->keys, i, balance, buf),
                       .txn = x->w,
                       .view = &x->view};
    struct bt_done done;
    int rc = bt_write(&c->rig->bt, &op, &done);

    EXPECT(c, rc == 0 || rc == COHORT_CONFLICT);
    return rc;
}

static void
teller(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct bank_txn x;

    for (unsigned n = 0; n < TRANSFERS && bank_begin(c, &x); n++) {
        unsigned a = (unsigned)ch_prng_below(&w->rng, c->keys->n) & ~1U;
        unsigned b = (unsigned)ch_prng_below(&w->rng, c->keys->n) & ~1U;
        uint32_t has = balance_of(c, &x, a), amount;
        int rc = 0;

        amount = has == 0 || ch_prng_below(&w->rng, 3) == 0
                     ? has
                     : (uint32_t)ch_prng_below(&w->rng, has) + 1;
        if (a != b && amount > 0) {
            uint32_t other = balance_of(c, &x, b);

            rc = set_balance(c, &x, a, has - amount);
            if (rc == 0)
                rc = set_balance(c, &x, b, other + amount);
            if (rc == 0) /* own writes are seen */
                EXPECT(c, balance_of(c, &x, a) == has - amount &&
                              balance_of(c, &x, b) == other + amount);
        }
        if (ch_prng_below(&w->rng, 4) == 0)
            bank_spill(c, &x, ch_prng_below(&w->rng, 2) == 0);
        if (rc != 0 || ch_prng_below(&w->rng, 3) == 0)
            bank_abort(c, &x);
        else
            bank_commit(c, &x, ch_prng_below(&w->rng, 8) == 0);
    }
}

static bool
is_account(const struct crew *c, struct bt_slice key)
{
    unsigned lo = 0, hi = c->keys->n;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (node_compare(key_slice(c->keys, mid), key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo % 2 == 0;
}

/* Each snapshot holds all the money, in a scan as in single gets. */
static void
auditor(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct ver *ver = c->rig->ver;
    struct bt_cursor *cursor;
    struct bt_slice key, value;
    struct ver_view view;
    unsigned flags;

    EXPECT(c, bt_cursor_create(&c->rig->bt, &cursor) == 0);
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        bool back = ch_prng_below(&w->rng, 2) == 0;
        uint64_t sum = 0;
        uint32_t got;
        int rc = ver_view_open(ver, &view);

        EXPECT(c, rc == 0);
        bt_cursor_view(cursor, &view, NULL);
        rc = bt_seek(cursor, back ? BT_LAST : BT_FIRST, (struct bt_slice){NULL, 0});
        while (rc == 0) {
            EXPECT(c, bt_entry(cursor, &key, &value, &flags) && value.bytes >= 4);
            if (is_account(c, key))
                sum += ch_get32(value.data);
            if (ch_prng_below(&w->rng, 16) == 0) {
                EXPECT(c, bt_get(&c->rig->bt, &view, key, copy_version, &got) == 0);
                EXPECT(c, got == ch_get32(value.data));
            }
            rc = back ? bt_prev(cursor) : bt_next(cursor);
        }
        EXPECT(c, rc == COHORT_NOTFOUND && sum == (uint64_t)(c->keys->n + 1) / 2 * BALANCE);
        ver_view_close(ver, &view);
    }
    bt_cursor_destroy(cursor);
}

/* The undo tree loses what a committed transaction left there. */
static void
bank_clean(struct crew *c, uint64_t id)
{
    uint8_t key[UNDO_KEY_BYTES];
    struct bt_cursor *cursor;
    struct bt_slice at, value;
    unsigned flags;

    undo_key(id, 0, key);
    EXPECT(c, bt_cursor_create(&c->rig->undo, &cursor) == 0);
    while (bt_seek(cursor, BT_GE, (struct bt_slice){key, sizeof(key)}) == 0 &&
           bt_entry(cursor, &at, &value, &flags) && memcmp(at.data, key, 8) == 0) {
        memcpy(key, at.data, sizeof(key));
        undo_key_del(c, key);
    }
    bt_cursor_destroy(cursor);
}

/* Noise keys come and go, so that the leaves split and merge, and ghosts are purged. */
static void
disturber(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes;
    uint32_t tree;
    uint64_t id;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        unsigned i = (unsigned)ch_prng_below(&w->rng, c->keys->n - 1) | 1;
        int rc = put(c, i, 1, ch_prng_below(&w->rng, 2) == 0 ? BT_PUT : BT_DEL);

        EXPECT(c, rc == 0 || rc == COHORT_NOTFOUND);
        (void)ver_trim(c->rig->ver, 4);
        if (ver_take_ghost(c->rig->ver, &tree, key, &bytes))
            bt_purge(&c->rig->bt, (struct bt_slice){key, bytes});
        if (ver_take_cleanup(c->rig->ver, &id))
            bank_clean(c, id);
    }
}

static void
test_transactions(struct zt *t)
{
    struct rig_options o = {.frames = 1024,
                            .log_megabytes = 96,
                            .megabytes = 256,
                            .background = true,
                            .versions = true};
    struct worker ws[WRITERS], audit[1], noise[1];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, t->seed % 2 == 0 ? KEYS_DECIMAL : KEYS_MIXED, OWN_KEYS / 4, 400);
    for (unsigned i = 0; i < k.n; i += 2)
        ZT_OK(t, rig_put(&r, &k, i, BALANCE));
    run(t, &c, noise, 1, disturber, WRITERS);
    run(t, &c, audit, 1, auditor, WRITERS + 1);
    run(t, &c, ws, WRITERS, teller, 0);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    atomic_store_explicit(&c.stop, true, memory_order_relaxed);
    rt_join(&audit[0].thread);
    rt_join(&noise[0].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    rig_settle(&r);
    (void)rig_check(&r);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- a before-image that is gone from the undo tree when a reader comes for it ---- */

static void
late_reader(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct bt_cursor *cursor;
    struct bt_slice key, value;
    uint32_t got = 0;
    unsigned flags;

    atomic_fetch_add_explicit(&c->up, 1, memory_order_relaxed);
    if (w->number == 0) {
        EXPECT(c, bt_get(&c->rig->bt, w->view, key_slice(c->keys, 0), copy_version, &got) == 0);
        EXPECT(c, got >= BALANCE);
        return;
    }
    EXPECT(c, bt_cursor_create(&c->rig->bt, &cursor) == 0);
    bt_cursor_view(cursor, w->view, NULL);
    EXPECT(c, bt_seek(cursor, BT_FIRST, (struct bt_slice){NULL, 0}) == 0);
    EXPECT(c, bt_entry(cursor, &key, &value, &flags) && ch_get32(value.data) >= BALANCE);
    bt_cursor_destroy(cursor);
}

/* Goal: the reader begins anew until the version store says otherwise, and then finds what its view sees. */
static void
test_spilled_gone(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct worker ws[2] = {0};
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};
    struct bank_txn x;
    struct ver_view view;
    uint8_t key[UNDO_KEY_BYTES], before[COHORT_ENTRY_MAX];
    struct bt_undo_op op;
    struct ver_undo u;
    uint32_t money = BALANCE;
    lsn_t lsn;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 2, 1900);
    while (key_value(&k, 0, money, before).bytes < 500) /* a small image does not leave memory */
        money++;
    ZT_OK(t, rig_put(&r, &k, 0, money));
    ZT_CHECK(t, bank_begin(&c, &x) && set_balance(&c, &x, 0, 7) == 0);
    ZT_OK(t, ver_view_open(r.ver, &view));
    bank_spill(&c, &x, true);
    ver_entry_info(ver_newest(x.w), &u);
    ZT_CHECK(t, u.before == NULL && u.before_bytes > 0);
    undo_key(ver_txn_id(x.w), 1, key);
    undo_key_del(&c, key);
    ws[0].view = ws[1].view = &view;
    run(t, &c, ws, 2, late_reader, 0);
    while (atomic_load_explicit(&c.up, memory_order_relaxed) < 2)
        rt_yield();
    rt_sleep_ns(20 * 1000 * 1000); /* they go round by now */
    op = (struct bt_undo_op){.txn = ver_txn_id(x.w),
                             .kind = VER_WAS_VALUE,
                             .key = key_slice(&k, 0),
                             .before = key_value(&k, 0, money, before),
                             .e = ver_newest(x.w)};
    ZT_OK(t, bt_undo(&r.bt, &op, &lsn));
    bank_abort(&c, &x);
    rt_join(&ws[0].thread);
    rt_join(&ws[1].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    ver_view_close(r.ver, &view);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"own_keys", test_own_keys, 4},
        {"shared_keys", test_shared_keys, 3},
        {"transactions", test_transactions, 4},
        {"spilled_gone", test_spilled_gone, 1},
    };

    return zt_main(argc, argv, "btree_threads", cases, CH_ARRAY_LEN(cases));
}
