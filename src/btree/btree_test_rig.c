/* btree_test_rig.c - see btree_test_rig.h. */
#include "btree/btree_test_rig.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- engine ---- */

static void
open_buf(struct rig *r)
{
    struct buf_config bc = {.store = r->store,
                            .wal = r->wal,
                            .cache_bytes = (uint64_t)r->o.frames * CH_PAGE_BYTES,
                            .pages_max = 1 << 18,
                            .batch_pages = 64,
                            .background = r->o.background};

    ZT_OK(r->t, buf_create(&bc, &r->buf));
    ZT_OK(r->t, buf_start(r->buf));
}

void
rig_open(struct rig *r, struct zt *t, const struct rig_options *o)
{
    struct store_config sc = {.kind = STORE_OOP,
                              .placement = PLACE_SEPGC,
                              .codec = PACK_LZ4,
                              .codec_level = 1,
                              .zone_bytes = RIG_ZONE,
                              .pages_max = 1 << 18,
                              .batch_pages = 64,
                              .space_target = 140,
                              .discard = true};
    struct wal_config wc = {.base = RIG_LOG_BASE,
                            .buffer_bytes = 4 << 20,
                            .db_id = 1,
                            .epoch = 1,
                            .start = WAL_BLOCK,
                            .cut = WAL_BLOCK,
                            .user_percent = 75};
    struct buf_ref root;
    char cfg[128];

    memset(r, 0, sizeof(*r));
    r->t = t;
    r->o = *o;
    if (o->log_start != 0)
        wc.start = wc.cut = o->log_start;
    r->o.frames = o->frames != 0 ? o->frames : 2048;
    r->o.megabytes = o->megabytes != 0 ? o->megabytes : 128;
    r->o.log_megabytes = o->log_megabytes != 0 ? o->log_megabytes : 16;
    (void)snprintf(cfg, sizeof(cfg), "generic,bytes=%uM,superblock=1M,cache=none,seed=1",
                   r->o.megabytes);
    ZT_OK(t, sim_drive_create(cfg, &r->drive));
    ZT_OK(t, dev_sim_open(r->drive, &r->dev));
    sc.dev = wc.dev = r->dev;
    wc.bytes = (uint64_t)r->o.log_megabytes << 20;
    sc.zones_base = (uint64_t)(1 + r->o.log_megabytes) << 20;
    sc.zones = sc.zones_max = (uint32_t)((dev_caps(r->dev)->bytes - sc.zones_base) / RIG_ZONE);
    ZT_OK(t, store_create(&sc, &r->store));
    ZT_OK(t, wal_create(&wc, &r->wal));
    store_set_wal(r->store, r->wal);
    ZT_OK(t, store_format(r->store));
    open_buf(r);
    if (o->versions) {
        struct ver_config vc = {.bytes_max = o->version_bytes != 0 ? o->version_bytes : 16 << 20,
                                .slots_max = 64,
                                .horizon = wc.start,
                                .next_id = 1};

        ZT_OK(t, ver_create(&vc, &r->ver));
    }
    if (o->no_tree)
        return;
    ZT_OK(t, buf_new(r->buf, &root));
    bt_init(&r->bt, r->buf, r->wal, RIG_TREE, root.pid);
    ZT_OK(t, bt_format(&r->bt, &root));
    if (!o->versions)
        return;
    ZT_OK(t, buf_new(r->buf, &root));
    bt_init(&r->undo, r->buf, r->wal, RIG_UNDO_TREE, root.pid);
    ZT_OK(t, bt_format(&r->undo, &root));
    r->bt.ver = r->ver;
    r->bt.undo = &r->undo;
}

void
rig_close(struct rig *r)
{
    if (r->bt.buf != NULL)
        bt_fini(&r->bt);
    if (r->undo.buf != NULL)
        bt_fini(&r->undo);
    ver_destroy(r->ver);
    buf_stop(r->buf);
    buf_destroy(r->buf);
    wal_destroy(r->wal);
    store_destroy(r->store);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
}

void
rig_trim(struct rig *r)
{
    ZT_OK(r->t, buf_clean_until(r->buf, CH_LSN_MAX));
    ZT_OK(r->t, wal_flush(r->wal, wal_end(r->wal)));
    wal_truncate(r->wal, ch_min_u64(buf_oldest_dirty(r->buf), wal_durable(r->wal)));
    r->ops = 0;
}

void
rig_reopen_buf(struct rig *r)
{
    rig_trim(r);
    buf_stop(r->buf);
    buf_destroy(r->buf);
    open_buf(r);
    r->bt.buf = r->buf;
    if (r->undo.buf != NULL)
        r->undo.buf = r->buf;
}

void
rig_settle(struct rig *r)
{
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes;
    uint32_t tree;

    while (ver_trim(r->ver, 1000))
        ;
    while (ver_take_ghost(r->ver, &tree, key, &bytes)) {
        ZT_CHECK(r->t, tree == RIG_TREE);
        bt_purge(&r->bt, (struct bt_slice){key, bytes});
    }
}

static void
print_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

struct bt_check_result
rig_check(struct rig *r)
{
    struct bt_check_result c = {0};

    ZT_OK(r->t, bt_check(&r->bt, NULL, print_line, NULL, &c));
    ZT_CHECK(r->t, c.errors == 0 && c.leaf_pages > 0);
    return c;
}

enum {
    REACH_MAX = 1 << 16
};

struct reach {
    struct rig *r;
    bool *seen;
    lsn_t write_lsn;
};

static void
reach_visit(void *arg, page_id pid)
{
    struct reach *reach = arg;
    struct buf_ref ref;

    ZT_OK(reach->r->t, buf_fix(reach->r->buf, pid, BUF_SHARED, &ref));
    if (page_level(ref.page) == 0)
        reach->write_lsn = ch_max_u64(reach->write_lsn, page_write_lsn(ref.page));
    buf_unfix(reach->r->buf, &ref);
    ZT_CHECK(reach->r->t, pid < REACH_MAX && !reach->seen[pid]);
    reach->seen[pid] = true;
}

static lsn_t
reach(struct rig *r, bool *seen)
{
    struct reach a = {r, seen, 0};
    struct bt_check_result c;

    lsn_t lsn;

    ZT_OK(r->t, bt_check(&r->bt, reach_visit, NULL, &a, &c));
    ZT_CHECK(r->t, c.errors == 0);
    lsn = a.write_lsn;
    if (r->undo.buf != NULL) {
        ZT_OK(r->t, bt_check(&r->undo, reach_visit, NULL, &a, &c));
        ZT_CHECK(r->t, c.errors == 0);
    }
    return lsn;
}

void
rig_check_reachable(struct rig *r)
{
    bool *seen = calloc(REACH_MAX, sizeof(*seen));

    ZT_CHECK(r->t, seen != NULL);
    rig_trim(r);
    (void)reach(r, seen);
    for (page_id pid = 1; pid < REACH_MAX; pid++)
        ZT_CHECK(r->t, (map_get(store_map(r->store), pid) != PLACE_NONE) == seen[pid]);
    free(seen);
}

lsn_t
rig_write_lsn(struct rig *r)
{
    bool *seen = calloc(REACH_MAX, sizeof(*seen));
    lsn_t lsn;

    ZT_CHECK(r->t, seen != NULL);
    lsn = reach(r, seen);
    free(seen);
    return lsn;
}

/* ---- keys ---- */

static size_t
key_make(struct zt *t, enum key_shape shape, unsigned i, uint8_t *out)
{
    size_t n;

    switch (shape) {
    case KEYS_DECIMAL:
        return (size_t)snprintf((char *)out, 64, "user%010u", i * 3);
    case KEYS_BINARY:
        ch_prng_fill(&t->rng, out, 8);
        return zt_below(t, 9);
    case KEYS_LONG:
        n = COHORT_KEY_MAX - zt_below(t, 40);
        memset(out, 'x', n);
        out[zt_below(t, 20)] = (uint8_t)zt_below(t, 256);
        ch_put32(out + n - 4, (uint32_t)ch_prng_next(&t->rng));
        return n;
    case KEYS_MIXED:
    case KEY_SHAPES:
        break;
    }
    n = zt_below(t, zt_below(t, 10) == 0 ? 1500 : 30);
    for (size_t k = 0; k < n; k++)
        out[k] = (uint8_t)(zt_below(t, 4) == 0 ? zt_below(t, 256) : 'a' + zt_below(t, 2));
    return n;
}

struct made {
    uint8_t *data;
    size_t bytes;
};

static int
made_compare(const void *a, const void *b)
{
    const struct made *x = a, *y = b;

    return node_compare((struct bt_slice){x->data, x->bytes}, (struct bt_slice){y->data, y->bytes});
}

void
keys_create(struct keys *k, struct zt *t, enum key_shape shape, unsigned n, size_t value_max)
{
    struct made *made = calloc(n, sizeof(*made));
    uint8_t buf[COHORT_KEY_MAX];

    k->n = 0;
    k->noise = false;
    k->value_max = value_max;
    k->bytes = calloc(n, sizeof(*k->bytes));
    k->data = calloc(n, sizeof(*k->data));
    k->version = calloc(n, sizeof(*k->version));
    ZT_CHECK(t, made != NULL && k->bytes != NULL && k->data != NULL && k->version != NULL);
    for (unsigned i = 0; i < n; i++) {
        made[i].bytes = key_make(t, shape, i, buf);
        made[i].data = malloc(made[i].bytes + 1);
        ZT_CHECK(t, made[i].data != NULL);
        memcpy(made[i].data, buf, made[i].bytes);
    }
    qsort(made, n, sizeof(*made), made_compare);
    for (unsigned i = 0; i < n; i++) {
        if (i > 0 && made_compare(&made[i - 1], &made[i]) == 0) {
            free(made[i - 1].data);
            k->n--;
        }
        k->data[k->n] = made[i].data;
        k->bytes[k->n++] = (uint16_t)made[i].bytes;
    }
    free(made);
}

void
keys_destroy(struct keys *k)
{
    for (unsigned i = 0; i < k->n; i++)
        free(k->data[i]);
    free(k->data);
    free(k->bytes);
    free(k->version);
}

struct bt_slice
key_slice(const struct keys *k, unsigned i)
{
    return (struct bt_slice){k->data[i], k->bytes[i]};
}

struct bt_slice
key_value(const struct keys *k, unsigned i, uint32_t version, uint8_t *buf)
{
    struct ch_prng rng;
    size_t max = COHORT_ENTRY_MAX - k->bytes[i];
    size_t n;

    ch_prng_init(&rng, (uint64_t)i << 32 | version);
    n = 4 + ch_prng_below(&rng, (max < k->value_max ? max : k->value_max) - 3);
    ch_put32(buf, version);
    if (k->noise)
        ch_prng_fill(&rng, buf + 4, n - 4);
    else
        memset(buf + 4, (int)ch_prng_below(&rng, 256), n - 4);
    return (struct bt_slice){buf, n};
}

/* ---- operations ---- */

static void
rig_tick(struct rig *r)
{
    if (++r->ops >= 4000 && r->o.frames < 100000)
        rig_trim(r);
}

int
rig_put(struct rig *r, struct keys *k, unsigned i, uint32_t version)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_op op = {
        .kind = BT_PUT, .key = key_slice(k, i), .value = key_value(k, i, version, buf)};
    struct bt_done done;
    int rc = bt_write(&r->bt, &op, &done);

    if (rc == 0) {
        ZT_CHECK(r->t, done.had_value == (k->version[i] != 0) && !done.had_ref);
        k->version[i] = version;
        ZT_CHECK(r->t, done.lsn > 0 && done.lsn <= wal_end(r->wal));
    }
    rig_tick(r);
    return rc;
}

int
rig_del(struct rig *r, struct keys *k, unsigned i)
{
    struct bt_op op = {.kind = BT_DEL, .key = key_slice(k, i)};
    struct bt_done done;
    int rc = bt_write(&r->bt, &op, &done);

    if (rc == 0)
        k->version[i] = 0;
    rig_tick(r);
    return rc;
}

struct got {
    uint8_t data[COHORT_ENTRY_MAX];
    size_t bytes;
};

static void
copy_got(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct got *g = arg;

    (void)flags;
    memcpy(g->data, value, bytes);
    g->bytes = bytes;
}

static uint32_t
value_version(struct zt *t, const struct keys *k, unsigned i, struct bt_slice v)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    uint32_t version;

    ZT_CHECK(t, v.bytes >= 4);
    version = ch_get32(v.data);
    ZT_CHECK(t, node_compare(v, key_value(k, i, version, buf)) == 0);
    return version;
}

uint32_t
rig_get(struct rig *r, const struct keys *k, unsigned i)
{
    struct got g;
    int rc = bt_get(&r->bt, NULL, key_slice(k, i), copy_got, &g);

    if (rc == COHORT_NOTFOUND)
        return 0;
    ZT_OK(r->t, rc);
    return value_version(r->t, k, i, (struct bt_slice){g.data, g.bytes});
}

static void
compare_entry(struct rig *r, const struct keys *k, unsigned i, struct bt_cursor *c)
{
    struct bt_slice key, value;
    unsigned flags;

    ZT_CHECK(r->t, bt_entry(c, &key, &value, &flags) && flags == 0);
    ZT_CHECK(r->t, node_compare(key, key_slice(k, i)) == 0);
    ZT_CHECK(r->t, value_version(r->t, k, i, value) == k->version[i]);
}

void
rig_compare(struct rig *r, const struct keys *k)
{
    struct bt_cursor *c;
    struct bt_slice none = {NULL, 0};
    struct bt_check_result checked = rig_check(r);
    uint64_t n = 0;
    int rc;

    ZT_OK(r->t, bt_cursor_create(&r->bt, &c));
    rc = bt_seek(c, BT_FIRST, none);
    for (unsigned i = 0; i < k->n; i++) {
        ZT_CHECK(r->t, rig_get(r, k, i) == k->version[i]);
        if (k->version[i] == 0)
            continue;
        ZT_OK(r->t, rc);
        compare_entry(r, k, i, c);
        rc = bt_next(c);
        n++;
    }
    ZT_STATUS(r->t, rc, COHORT_NOTFOUND);
    ZT_STATUS(r->t, bt_next(c), COHORT_NOTFOUND);
    rc = bt_seek(c, BT_LAST, none);
    for (unsigned i = k->n; i-- > 0;) {
        if (k->version[i] == 0)
            continue;
        ZT_OK(r->t, rc);
        compare_entry(r, k, i, c);
        rc = bt_prev(c);
    }
    ZT_STATUS(r->t, rc, COHORT_NOTFOUND);
    ZT_STATUS(r->t, bt_prev(c), COHORT_NOTFOUND);
    ZT_CHECK(r->t, checked.entries == n);
    bt_cursor_destroy(c);
}
