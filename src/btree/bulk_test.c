/* bulk_test.c - bulk loads: contents, fill, crashes at any record, what is left after an error. */
#include <stdlib.h>

#include "btree/btree_test_rig.h"
#include "btree/tree.h"

/* ---- what a tree looks like ---- */

struct shape {
    struct rig *r;
    page_id root;
    bool long_keys;        /* inner pages of two children may be full then, and cannot share */
    unsigned pages, small; /* small: less than a quarter used, the root aside */
};

static void
shape_visit(void *arg, page_id pid)
{
    struct shape *s = arg;
    struct buf_ref ref;

    s->pages++;
    if (pid == s->root)
        return;
    ZT_OK(s->r->t, buf_fix(s->r->buf, pid, BUF_SHARED, &ref));
    if (page_level(ref.page) == 0 || !s->long_keys)
        s->small += bt_underfull(ref.page);
    buf_unfix(s->r->buf, &ref);
}

static struct shape
shape_of(struct rig *r, struct bt *t, bool long_keys, struct bt_check_result *c)
{
    struct shape s = {.r = r, .root = t->root, .long_keys = long_keys};

    ZT_OK(r->t, bt_check(t, shape_visit, NULL, &s, c));
    ZT_CHECK(r->t, c->errors == 0);
    return s;
}

/* Loads keys with a version; not finished. */
static void
load(struct rig *r, struct keys *k, unsigned n, struct bt_bulk **b, page_id *root)
{
    uint8_t buf[COHORT_ENTRY_MAX];

    ZT_OK(r->t, bt_bulk_create(&r->bt, b, root));
    for (unsigned i = 0; i < n; i++) {
        if (k->version[i] != 0)
            ZT_OK(r->t, bt_bulk_put(*b, key_slice(k, i), key_value(k, i, k->version[i], buf), 0));
        if (i % 2000 == 1999)
            rig_trim(r);
    }
}

static void
private_tree(struct rig *r, page_id root, struct bt *t)
{
    bt_init(t, r->buf, r->wal, RIG_TREE, root);
}

/* ---- tests ---- */

/* Goal: a loaded tree holds what was put, no page of it but the root is nearly empty, nothing else has an image, and it
 * can be written to. Method: all shapes of keys, from one entry to several levels, large caches and the smallest. */
static void
test_contents(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 64 : 2048,
                            .versions = zt_below(t, 2) == 0};
    struct bt_check_result c;
    struct bt_bulk *b;
    struct shape s;
    struct rig r;
    struct keys k;
    page_id root;
    lsn_t lsn = 0;
    enum key_shape shape = (enum key_shape)(t->seed % KEY_SHAPES);
    unsigned n = shape == KEYS_LONG ? 2000 : 8000;

    rig_open(&r, t, &o);
    keys_create(&k, t, shape, 1 + (unsigned)zt_below(t, zt_below(t, 3) == 0 ? 60 : n),
                zt_below(t, 2) == 0 ? 40 : 700);
    for (unsigned i = 0; i < k.n; i++)
        k.version[i] = zt_below(t, 4) == 0 ? 0 : 1;
    load(&r, &k, k.n, &b, &root);
    ZT_CHECK(t, rig_check(&r).entries == 0);
    ZT_OK(t, bt_bulk_finish(b, false, &lsn));
    ZT_CHECK(t, lsn != 0 && lsn <= wal_end(r.wal));
    ZT_CHECK(t, atomic_load_explicit(&r.bt.born, memory_order_relaxed) == (o.versions ? lsn : 0));
    bt_bulk_destroy(b);
    rig_compare(&r, &k);
    s = shape_of(&r, &r.bt, shape == KEYS_LONG || shape == KEYS_MIXED, &c);
    ZT_CHECK(t, s.small == 0);
    rig_check_reachable(&r);
    for (unsigned i = 0; i < 500; i++) {
        unsigned at = (unsigned)zt_below(t, k.n);

        if (zt_below(t, 2) == 0)
            ZT_OK(t, rig_put(&r, &k, at, i + 2));
        else
            ZT_STATUS(t, rig_del(&r, &k, at), k.version[at] != 0 ? 0 : COHORT_NOTFOUND);
    }
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

static void
copy_nothing(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)arg;
    (void)value;
    (void)bytes;
    (void)flags;
}

/* Goal (U3): a view from before the load never sees an entry; one from after the finish does, once the commit is visible,
 * which a durable one is when the log is; ghosts that nobody needs are no entries, those that a view needs are. */
static void
test_visibility(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct ver_view before, after;
    struct bt_bulk *b;
    struct rig r;
    struct keys k;
    page_id root;
    lsn_t lsn;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 2, 40);
    ZT_OK(t, rig_put(&r, &k, 0, 1));
    ZT_OK(t, ver_view_open(r.ver, &before));
    ZT_OK(t, rig_del(&r, &k, 0)); /* a ghost that `before` needs */
    ZT_OK(t, bt_bulk_create(&r.bt, &b, &root));
    ZT_STATUS(t, bt_bulk_finish(b, false, &lsn), COHORT_CONFLICT);
    bt_bulk_destroy(b);
    ver_view_close(r.ver, &before);
    while (ver_trim(r.ver, 1000))
        continue;
    keys_destroy(&k);
    ZT_OK(t, ver_view_open(r.ver, &before));
    keys_create(&k, t, KEYS_DECIMAL, 1 + (unsigned)zt_below(t, 3000), 40);
    for (unsigned i = 0; i < k.n; i++)
        k.version[i] = 1;
    load(&r, &k, k.n, &b, &root);
    ZT_OK(t, bt_bulk_finish(b, true, &lsn));
    bt_bulk_destroy(b);
    ZT_STATUS(t, bt_get(&r.bt, &before, key_slice(&k, 0), copy_nothing, NULL), COHORT_NOTFOUND);
    ZT_STATUS(t, bt_get(&r.bt, NULL, key_slice(&k, 0), copy_nothing, NULL), COHORT_NOTFOUND);
    ZT_OK(t, wal_flush(r.wal, lsn));
    ZT_CHECK(t, ver_advance(r.ver, wal_durable(r.wal)) >= lsn);
    ZT_OK(t, ver_view_open(r.ver, &after));
    for (unsigned i = 0; i < k.n; i += 1 + k.n / 50) {
        ZT_STATUS(t, bt_get(&r.bt, &before, key_slice(&k, i), copy_nothing, NULL), COHORT_NOTFOUND);
        ZT_OK(t, bt_get(&r.bt, &after, key_slice(&k, i), copy_nothing, NULL));
        ZT_OK(t, bt_get(&r.bt, NULL, key_slice(&k, i), copy_nothing, NULL));
    }
    ver_view_close(r.ver, &before);
    ver_view_close(r.ver, &after);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: leaves are at least 97 % full on the average, inner pages too. */
static void
test_fill(struct zt *t)
{
    struct rig_options o = {.frames = 1024};
    struct bt_check_result c;
    struct bt_bulk *b;
    struct rig r;
    struct keys k;
    page_id root;
    lsn_t lsn;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, RIG_KEYS_MAX, 120);
    for (unsigned i = 0; i < k.n; i++)
        k.version[i] = 1;
    load(&r, &k, k.n, &b, &root);
    ZT_OK(t, bt_bulk_finish(b, true, &lsn));
    bt_bulk_destroy(b);
    (void)shape_of(&r, &r.bt, false, &c);
    ZT_CHECK(t, c.leaf_used_bytes * 100 >= (uint64_t)c.leaf_pages * NODE_CAPACITY * 97);
    ZT_CHECK(t, c.leaf_pages >= 300 && c.inner_pages * 100 <= c.leaf_pages);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: keys out of order, equal ones, and trees that are not empty are refused, and what was built can be dropped: no page
 * stays. */
static void
test_refusals(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_bulk *b;
    struct bt own;
    struct rig r;
    struct keys k;
    page_id root;
    lsn_t lsn;
    bool done = false;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 3000, 60);
    for (unsigned i = 1; i < k.n; i++)
        k.version[i] = 1;
    load(&r, &k, k.n, &b, &root);
    ZT_STATUS(
        t, bt_bulk_put(b, key_slice(&k, k.n - 1 - (unsigned)zt_below(t, k.n)), key_slice(&k, 0), 0),
        COHORT_EINVAL);
    bt_bulk_destroy(b);
    private_tree(&r, root, &own);
    while (!done)
        ZT_OK(t, bt_bulk_drop_step(&own, 1 + (unsigned)zt_below(t, 100), &done));
    rig_check_reachable(&r);
    bt_fini(&own);

    load(&r, &k, k.n, &b, &root);
    for (unsigned i = 1; i < k.n; i++)
        k.version[i] = 0;
    ZT_OK(t, rig_put(&r, &k, 0, 1));
    ZT_STATUS(t, bt_bulk_finish(b, false, &lsn), COHORT_CONFLICT);
    bt_bulk_destroy(b);
    rig_compare(&r, &k);
    private_tree(&r, root, &own);
    done = false;
    while (!done)
        ZT_OK(t, bt_bulk_drop_step(&own, 1000, &done));
    rig_check_reachable(&r);
    ZT_OK(t, bt_bulk_drop_step(&own, 1000, &done));
    ZT_CHECK(t, done);
    bt_fini(&own);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal (U2): after a finish, dropping the private root does nothing, not even when its page has become one of the tree. */
static void
test_drop_after_finish(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_check_result c;
    struct bt_bulk *b;
    struct bt own;
    struct rig r;
    struct keys k;
    page_id root;
    lsn_t lsn;
    bool done;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 4000, 60);
    for (unsigned i = 0; i < k.n; i++)
        k.version[i] = i % 2 == 0 ? 1 : 0;
    load(&r, &k, k.n, &b, &root);
    ZT_OK(t, bt_bulk_finish(b, false, &lsn));
    bt_bulk_destroy(b);
    private_tree(&r, root, &own);
    for (unsigned i = 0; i < k.n; i++) {
        if (i % 100 == 0) {
            rig_trim(&r); /* frees the id */
            done = false;
            ZT_OK(t, bt_bulk_drop_step(&own, 10, &done));
            ZT_CHECK(t, done);
        }
        ZT_OK(t, rig_put(&r, &k, i, 2));
    }
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, map_get(store_map(r.store), root) != PLACE_NONE); /* it is in use again */
    rig_compare(&r, &k);
    (void)shape_of(&r, &r.bt, false, &c);
    bt_fini(&own);
    keys_destroy(&k);
    rig_close(&r);
}

/* Replays the first `limit` records of the log of `from` into `to`; returns how many there are. */
static unsigned
replay(struct rig *from, struct rig *to, unsigned limit)
{
    struct wal_scan_config cfg = {.dev = from->dev,
                                  .base = RIG_LOG_BASE,
                                  .bytes = (uint64_t)from->o.log_megabytes << 20,
                                  .db_id = 1,
                                  .from = WAL_BLOCK,
                                  .epoch_min = 1,
                                  .epoch_start = WAL_BLOCK,
                                  .epoch = 1};
    struct wal_scan *s;
    struct wal_record rec;
    unsigned n = 0;
    int rc = 0;

    ZT_OK(from->t, wal_scan_open(&cfg, &s));
    while (n < limit && (rc = wal_scan_next(s, &rec)) == 0)
        if (rec.type == BT_RECORD_PAGES) {
            ZT_OK(from->t, bt_redo(to->buf, rec.type, rec.end, rec.data, rec.bytes));
            n++;
        }
    ZT_CHECK(from->t, n == limit || rc == COHORT_NOTFOUND);
    wal_scan_close(s);
    return n;
}

/* Goal (U1): a crash after any record leaves an empty tree and a private one that is valid and can be dropped, or the
 * loaded tree. Method: the log of a load, cut off at random, replayed into an empty store. */
static void
test_crash(struct zt *t)
{
    struct rig_options o = {.frames = 200000, .log_megabytes = 64};
    struct rig_options empty = {.no_tree = true, .frames = 4096};
    struct bt_bulk *b;
    struct bt own;
    struct rig r, into;
    struct keys k;
    page_id root;
    lsn_t lsn;
    bool done;
    unsigned records = 0;
    uint8_t buf[COHORT_ENTRY_MAX];

    rig_open(&r, t, &o);
    keys_create(&k, t, (enum key_shape)(t->seed % KEY_SHAPES),
                t->seed % KEY_SHAPES == KEYS_LONG ? 700 : 4000, 200);
    ZT_OK(t, bt_bulk_create(&r.bt, &b, &root));
    for (unsigned i = 0; i < k.n; i++) {
        k.version[i] = 1;
        ZT_OK(t, bt_bulk_put(b, key_slice(&k, i), key_value(&k, i, 1, buf), 0));
    }
    ZT_OK(t, bt_bulk_finish(b, false, &lsn));
    bt_bulk_destroy(b);
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    empty.log_start = ch_round_up(wal_end(r.wal), WAL_BLOCK);
    for (unsigned round = 0; round < 8; round++) {
        rig_open(&into, t, &empty);
        bt_init(&into.bt, into.buf, into.wal, RIG_TREE, r.bt.root);
        if (round == 0)
            records = replay(&r, &into, UINT32_MAX);
        else
            ZT_CHECK(t,
                     replay(&r, &into,
                            round == 1 ? records - 1 : 1 + (unsigned)zt_below(t, records - 1)) > 0);
        private_tree(&into, root, &own);
        done = false;
        while (!done)
            ZT_OK(t, bt_bulk_drop_step(&own, 1 + (unsigned)zt_below(t, 30), &done));
        if (round == 0)
            rig_compare(&into, &k);
        else
            ZT_CHECK(t, rig_check(&into).entries == 0);
        rig_check_reachable(&into);
        bt_fini(&own);
        rig_close(&into);
    }
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: a full drive ends a load with EFULL, and dropping it gives the room back. */
static void
test_full_drive(struct zt *t)
{
    struct rig_options o = {.megabytes = 8, .log_megabytes = 2, .frames = 256};
    struct bt_bulk *b;
    struct bt own;
    struct rig r;
    struct keys k;
    page_id root;
    bool done = false;
    uint8_t buf[COHORT_ENTRY_MAX];
    int rc = 0;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 20000, 900);
    k.noise = true;
    ZT_OK(t, bt_bulk_create(&r.bt, &b, &root));
    for (unsigned i = 0; i < k.n && rc == 0; i++) {
        if (i % 200 == 199)
            rig_trim(&r);
        rc = bt_bulk_put(b, key_slice(&k, i), key_value(&k, i, 1, buf), 0);
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    bt_bulk_destroy(b);
    private_tree(&r, root, &own);
    while (!done) {
        ZT_OK(t, bt_bulk_drop_step(&own, 100, &done));
        rig_trim(&r);
    }
    bt_fini(&own);
    rig_check_reachable(&r);
    ZT_OK(t, rig_put(&r, &k, 1, 1));
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"contents", test_contents, 24},
        {"visibility", test_visibility, 4},
        {"fill", test_fill, 1},
        {"refusals", test_refusals, 2},
        {"drop_after_finish", test_drop_after_finish, 1},
        {"crash", test_crash, 8},
        {"full_drive", test_full_drive, 1},
    };

    return zt_main(argc, argv, "bulk", cases, CH_ARRAY_LEN(cases));
}
