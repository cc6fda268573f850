/* btree_test.c - the tree against a model, over the real layers below it on a simulated drive. One
 * thread; threads: btree_threads_test.c. */
#include <stdio.h>
#include <stdlib.h>

#include "btree/btree_test_rig.h"

static const struct bt_slice NO_KEY = {NULL, 0};

/* Goal: the tree is an ordered map, whatever the keys look like and however small the cache is.
 * Method: random operations of all kinds, in phases that grow and shrink; full comparison now and
 * then. */
static void
test_random_ops(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 64 : 2048,
                            .versions = t->seed / 4 % 2 == 0};
    struct rig r;
    struct keys k;
    enum key_shape shape = (enum key_shape)(t->seed % KEY_SHAPES);
    unsigned grow = 60;
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_done done;

    rig_open(&r, t, &o);
    keys_create(&k, t, shape, shape == KEYS_LONG ? 600 : 3000, zt_below(t, 2) == 0 ? 40 : 1000);
    for (unsigned step = 1; step <= 9000; step++) {
        unsigned i = (unsigned)zt_below(t, k.n);
        struct bt_op op = {.key = key_slice(&k, i), .value = key_value(&k, i, step, buf)};
        bool have = k.version[i] != 0;

        if (step % 1500 == 0)
            grow = grow == 60 ? 25 : 60;
        if (zt_below(t, 100) >= grow) {
            ZT_STATUS(t, rig_del(&r, &k, i), have ? 0 : COHORT_NOTFOUND);
        } else if (zt_below(t, 4) == 0) {
            op.kind = zt_below(t, 2) == 0 ? BT_INSERT : BT_UPDATE;
            if (op.kind == BT_INSERT)
                ZT_STATUS(t, bt_write(&r.bt, &op, &done), have ? COHORT_EXISTS : 0);
            else
                ZT_STATUS(t, bt_write(&r.bt, &op, &done), have ? 0 : COHORT_NOTFOUND);
            if (have == (op.kind == BT_UPDATE))
                k.version[i] = step;
        } else {
            ZT_OK(t, rig_put(&r, &k, i, step));
        }
        if (o.versions && step % 700 == 0)
            rig_settle(&r);
        if (step % 3000 == 0)
            rig_compare(&r, &k);
    }
    rig_check_reachable(&r);
    rig_reopen_buf(&r);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: loads in order fill leaves to 90 % and more, random ones to 60 %; deleting all leaves an
 * empty root leaf. */
static void
test_loads(struct zt *t)
{
    struct rig_options o = {.versions = t->seed / 3 % 2 == 0};
    struct bt_check_result c;
    struct rig r;
    struct keys k;
    unsigned mode = (unsigned)(t->seed % 3), *order;
    double fill;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 12000, 60);
    order = calloc(k.n, sizeof(*order));
    ZT_CHECK(t, order != NULL);
    for (unsigned i = 0; i < k.n; i++) {
        unsigned j = (unsigned)zt_below(t, i + 1);

        order[i] = mode == 0 ? i : mode == 1 ? k.n - 1 - i : order[j];
        if (mode == 2)
            order[j] = i;
    }
    for (unsigned i = 0; i < k.n; i++)
        ZT_OK(t, rig_put(&r, &k, order[i], 1 + i));
    rig_compare(&r, &k);
    c = rig_check(&r);
    fill = (double)c.leaf_used_bytes / ((double)c.leaf_pages * NODE_CAPACITY);
    ZT_CHECK(t, c.entries == k.n && c.inner_pages > 0 && fill > (mode == 2 ? 0.6 : 0.9));
    for (unsigned i = 0; i < k.n; i++)
        ZT_OK(t, rig_del(&r, &k, order[k.n - 1 - i]));
    rig_compare(&r, &k);
    if (o.versions)
        rig_settle(&r);
    c = rig_check(&r);
    ZT_CHECK(t, c.entries == 0 && c.ghosts == 0 && c.leaf_pages == 1 && c.inner_pages == 0);
    free(order);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: keys of the largest size make a deep tree that still works and shrinks back. */
static void
test_deep_tree(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_check_result c;
    struct rig r;
    struct keys k;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_LONG, 1500, 60);
    for (unsigned i = 0; i < k.n; i++)
        ZT_OK(t, rig_put(&r, &k, (unsigned)(i * UINT64_C(7919) % k.n), 1));
    for (unsigned i = 0; i < k.n; i++)
        if (k.version[i] == 0)
            ZT_OK(t, rig_put(&r, &k, i, 1));
    rig_compare(&r, &k);
    c = rig_check(&r);
    ZT_CHECK(t, c.inner_pages > 3);
    for (unsigned i = 0; i < k.n; i++)
        ZT_OK(t, rig_del(&r, &k, i));
    c = rig_check(&r);
    ZT_CHECK(t, c.entries == 0 && c.leaf_pages == 1);
    keys_destroy(&k);
    rig_close(&r);
}

static unsigned
first_at_or_after(const struct keys *k, unsigned i)
{
    while (i < k->n && k->version[i] == 0)
        i++;
    return i;
}

/* Goal: seeks from any key land right in both directions, and stepping from there too. */
static void
test_seeks(struct zt *t)
{
    struct rig_options o = {.frames = 128};
    struct bt_slice key, value;
    unsigned flags;
    struct bt_cursor *c;
    struct rig r;
    struct keys k;

    rig_open(&r, t, &o);
    keys_create(&k, t, (enum key_shape)(t->seed % KEY_SHAPES), 1500, 200);
    ZT_OK(t, bt_cursor_create(&r.bt, &c));
    ZT_STATUS(t, bt_seek(c, BT_FIRST, NO_KEY), COHORT_NOTFOUND);
    ZT_STATUS(t, bt_seek(c, BT_LAST, NO_KEY), COHORT_NOTFOUND);
    ZT_CHECK(t, !bt_entry(c, &key, &value, &flags));
    for (unsigned i = 0; i < k.n; i++)
        if (zt_below(t, 3) != 0)
            ZT_OK(t, rig_put(&r, &k, i, 1));
    for (unsigned step = 0; step < 4000; step++) {
        unsigned i = (unsigned)zt_below(t, k.n), up = first_at_or_after(&k, i), down = i + 1;
        bool back = zt_below(t, 2) == 0;
        int rc;

        while (down > 0 && k.version[down - 1] == 0)
            down--;
        rc = bt_seek(c, back ? BT_LE : BT_GE, key_slice(&k, i));
        if (back ? down == 0 : up == k.n) {
            ZT_STATUS(t, rc, COHORT_NOTFOUND);
            ZT_STATUS(t, back ? bt_next(c) : bt_prev(c), COHORT_NOTFOUND); /* sticky */
            continue;
        }
        ZT_OK(t, rc);
        ZT_CHECK(t, bt_entry(c, &key, &value, &flags));
        ZT_CHECK(t, node_compare(key, key_slice(&k, back ? down - 1 : up)) == 0);
        if (back ? bt_prev(c) == 0 : bt_next(c) == 0) {
            ZT_CHECK(t, bt_entry(c, &key, &value, &flags));
            up = back ? 0 : first_at_or_after(&k, up + 1);
            while (back && k.version[--down - 1] == 0)
                ;
            ZT_CHECK(t, node_compare(key, key_slice(&k, back ? down - 1 : up)) == 0);
        }
    }
    bt_cursor_destroy(c);
    keys_destroy(&k);
    rig_close(&r);
}

/* Adds or removes an odd key in the neighbourhood. */
static void
change_near(struct rig *r, struct keys *k, unsigned at, bool del)
{
    unsigned low = at > 100 ? at - 100 : 0;
    unsigned i = (low + (unsigned)zt_below(r->t, 200)) | 1;

    if (i >= k->n)
        return;
    if (k->version[i] == 0)
        ZT_OK(r->t, rig_put(r, k, i, 2));
    else if (del)
        ZT_OK(r->t, rig_del(r, k, i));
}

/* Goal: a scan meets each key that stays exactly once and in order, while others come and go and
 * pages split and merge around it. Method: even keys stay, odd ones change in bursts between the
 * steps. */
static void
test_scan_under_changes(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_slice key, value;
    unsigned flags;
    struct bt_cursor *c;
    struct rig r;
    struct keys k;
    char digits[11] = {0};

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 3000, 300);
    ZT_OK(t, bt_cursor_create(&r.bt, &c));
    for (unsigned i = 0; i < k.n; i += 2)
        ZT_OK(t, rig_put(&r, &k, i, 1));
    for (unsigned round = 0; round < 6; round++) {
        bool back = round % 2 != 0;
        unsigned i = back ? k.n : 0, seen = 0, at;
        int rc = bt_seek(c, back ? BT_LAST : BT_FIRST, NO_KEY);

        while (rc == 0) {
            ZT_CHECK(t, bt_entry(c, &key, &value, &flags));
            ZT_CHECK(t, key.bytes == 14);
            memcpy(digits, (const char *)key.data + 4, 10);
            at = (unsigned)(strtoul(digits, NULL, 10) / 3);
            ZT_CHECK(t, back ? at < i : seen == 0 || at > i);
            i = at;
            seen += at % 2 == 0;
            for (unsigned n = zt_below(t, 4) == 0 ? 40 : 0; n > 0; n--)
                change_near(&r, &k, at, round % 3 != 0);
            rc = back ? bt_prev(c) : bt_next(c);
        }
        ZT_STATUS(t, rc, COHORT_NOTFOUND);
        ZT_CHECK(t, seen == k.n / 2);
    }
    rig_compare(&r, &k);
    bt_cursor_destroy(c);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- redo ---- */

/* Replays the log of `from` into `to`, up to `limit` records of the tree without the first `skip`;
 * counts them. */
static unsigned
replay(struct rig *from, struct rig *to, unsigned skip, unsigned limit)
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
    while (n < limit && (rc = wal_scan_next(s, &rec)) == 0) {
        if (rec.type < BT_RECORD_PAGES || rec.type > BT_RECORD_UNDO)
            continue;
        if (n++ >= skip)
            ZT_OK(from->t, bt_redo(to->buf, rec.type, rec.end, rec.data, rec.bytes));
    }
    ZT_CHECK(from->t, n == limit || rc == COHORT_NOTFOUND);
    wal_scan_close(s);
    return n;
}

/* Random operations, none of which leaves the log. */
static void
fill_log(struct rig *r, struct keys *k)
{
    struct zt *t = r->t;

    for (uint32_t step = 1; step <= 6000; step++) {
        unsigned i = (unsigned)zt_below(t, k->n);

        if (k->version[i] != 0 && zt_below(t, 100) < (step / 1000 % 2 == 0 ? 40 : 70))
            ZT_OK(t, rig_del(r, k, i));
        else
            ZT_OK(t, rig_put(r, k, i, step));
        if (step % 500 == 0 && r->ver != NULL)
            rig_settle(r);
    }
    ZT_OK(t, wal_flush(r->wal, wal_end(r->wal)));
}

/* Goal: the log alone rebuilds the tree; any prefix of it is a valid tree; replaying any part of it
 * again changes nothing; a part without its beginning skips the pages it does not know; pages that
 * were freed stay free. Method: replay into an empty store, whole, twice, and up to or from random
 * records. */
static void
test_redo(struct zt *t)
{
    struct rig_options o = {
        .frames = 200000, .log_megabytes = 64, .versions = t->seed / 4 % 2 == 0};
    struct rig_options empty = {.no_tree = true, .frames = 4096};
    struct rig r, into;
    struct keys k;
    unsigned records = UINT32_MAX;

    rig_open(&r, t, &o);
    keys_create(&k, t, (enum key_shape)(t->seed % KEY_SHAPES), 800, 120);
    fill_log(&r, &k);
    empty.log_start = ch_round_up(wal_end(r.wal), WAL_BLOCK);
    for (unsigned round = 0; round < 5; round++) {
        rig_open(&into, t, &empty);
        bt_init(&into.bt, into.buf, into.wal, RIG_TREE, r.bt.root);
        if (o.versions)
            bt_init(&into.undo, into.buf, into.wal, RIG_UNDO_TREE, r.undo.root);
        if (round == 0) {
            records = replay(&r, &into, 0, UINT32_MAX);
            rig_compare(&into, &k);
            (void)replay(&r, &into, (unsigned)zt_below(t, records), UINT32_MAX);
            rig_compare(&into, &k);
            rig_check_reachable(&into);
        } else if (round == 1) {
            (void)replay(&r, &into, 1 + (unsigned)zt_below(t, records), UINT32_MAX);
        } else {
            (void)replay(&r, &into, 0, 1 + (unsigned)zt_below(t, records));
            (void)rig_check(&into);
        }
        rig_close(&into);
    }
    ZT_CHECK(t, records > 3000);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal (R1): the newest write LSN on any leaf is that of the last operation, whatever splits and
 * merges came with it. */
static void
test_write_lsn(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct rig r;
    struct keys k;
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_done done;
    lsn_t lsn = 0;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 200, 600);
    for (uint32_t step = 1; step <= 2000; step++) {
        unsigned i = (unsigned)zt_below(t, k.n);
        struct bt_op op = {.key = key_slice(&k, i), .value = key_value(&k, i, step, buf)};
        int rc;

        op.kind = zt_below(t, 100) < (step / 250 % 2 == 0 ? 20 : 80) ? BT_DEL : BT_PUT;
        rc = bt_write(&r.bt, &op, &done);
        ZT_CHECK(t, rc == 0 || rc == COHORT_NOTFOUND);
        if (rc == 0)
            lsn = done.lsn;
        if (step % 100 == 0)
            rig_settle(&r); /* purges and merges keep it */
        ZT_CHECK(t, rig_write_lsn(&r) == lsn);
    }
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: redo refuses garbage and says so; nothing is touched. */
static void
test_redo_malformed(struct zt *t)
{
    struct rig_options o = {0};
    struct rig r;
    uint8_t junk[64];

    rig_open(&r, t, &o);
    for (unsigned i = 0; i < 500; i++) {
        ch_prng_fill(&t->rng, junk, sizeof(junk));
        if (zt_below(t, 2) == 0)
            ch_put16(junk, 1);
        ZT_STATUS(t,
                  bt_redo(r.buf, (uint8_t)zt_below(t, 6), 1 << 20, junk,
                          (uint32_t)zt_below(t, sizeof(junk))),
                  COHORT_ELOG);
    }
    ZT_CHECK(t, rig_check(&r).entries == 0);
    rig_close(&r);
}

/* ---- limits ---- */

/* Goal: a full drive refuses puts with EFULL and stays readable and deletable. Values are noise, so
 * that they fill it. */
static void
test_full_drive(struct zt *t)
{
    struct rig_options o = {
        .megabytes = 8, .log_megabytes = 2, .frames = 256, .versions = t->seed % 2 == 0};
    struct rig r;
    struct keys k;
    int rc = 0;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_BINARY, 20000, 900);
    k.noise = true;
    for (unsigned i = 0; i < k.n && rc == 0; i++) {
        if (i % 200 == 199)
            rig_trim(&r);
        rc = rig_put(&r, &k, (unsigned)(i * UINT64_C(7919) % k.n), i + 1);
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    rig_compare(&r, &k);
    for (unsigned i = 0; i < k.n; i++) {
        if (k.version[i] != 0)
            ZT_OK(t, rig_del(&r, &k, i));
        if (i % 200 == 199) {
            if (o.versions)
                rig_settle(&r);
            rig_trim(&r);
        }
    }
    rig_compare(&r, &k);
    ZT_OK(t, rig_put(&r, &k, 1, 1)); /* there is room again */
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"random_ops", test_random_ops, 16},
        {"loads", test_loads, 6},
        {"deep_tree", test_deep_tree, 1},
        {"seeks", test_seeks, 8},
        {"scan_under_changes", test_scan_under_changes, 4},
        {"redo", test_redo, 8},
        {"write_lsn", test_write_lsn, 2},
        {"redo_malformed", test_redo_malformed, 2},
        {"full_drive", test_full_drive, 2},
    };

    return zt_main(argc, argv, "btree", cases, CH_ARRAY_LEN(cases));
}
