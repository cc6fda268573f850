/* txn_test_rig.c - see txn_test_rig.h. */
#include "txn/txn_test_rig.h"

#include <stdio.h>

#include "buf/buf.h"
#include "space/map.h"
#include "store/store.h"

enum {
    ZONE_BYTES = 256 << 10,
    LOG_BASE = 64 << 10,
    DRIVE_MEGABYTES = 288,
    PAGES_MAX = 1 << 18,
};

/* ---- opening ---- */

static void
open_device(struct rig *r)
{
    struct dev_fault_plan none = {0};
    struct dev *inner;

    ZT_OK(r->t, dev_sim_open(r->drive, &inner));
    ZT_OK(r->t, dev_fault_open(inner, &none, &r->dev));
}

static void
open_store(struct rig *r)
{
    struct store_config sc = {.kind = STORE_OOP,
                              .placement = PLACE_SEPGC,
                              .codec = PACK_LZ4,
                              .codec_level = 1,
                              .zone_bytes = ZONE_BYTES,
                              .pages_max = PAGES_MAX,
                              .batch_pages = 64,
                              .space_target = 140,
                              .discard = true,
                              .dev = r->dev,
                              .zones_base = (uint64_t)(1 + RIG_LOG_MEGABYTES) << 20};

    sc.zones = sc.zones_max = (uint32_t)((dev_caps(r->dev)->bytes - sc.zones_base) / ZONE_BYTES);
    ZT_OK(r->t, store_create(&sc, &r->store));
}

static void
open_wal(struct rig *r, lsn_t start)
{
    struct wal_config wc = {.dev = r->dev,
                            .base = LOG_BASE,
                            .bytes = (uint64_t)RIG_LOG_MEGABYTES << 20,
                            .buffer_bytes = 1 << 20,
                            .db_id = 1,
                            .epoch = r->epoch,
                            .start = start,
                            .cut = WAL_BLOCK,
                            .user_percent = 75};

    ZT_OK(r->t, wal_create(&wc, &r->wal));
    store_set_wal(r->store, r->wal);
}

static void
log_failed(void *arg, int rc)
{
    struct rig *r = arg;

    CH_ASSERT(rc != 0);
    atomic_fetch_add_explicit(&r->failures, 1, memory_order_relaxed);
}

static int make_room(void *arg);
static int before_write(void *arg);

static void
open_managers(struct rig *r)
{
    struct buf_config bc = {.store = r->store,
                            .wal = r->wal,
                            .cache_bytes = (uint64_t)r->o.frames * CH_PAGE_BYTES,
                            .pages_max = PAGES_MAX,
                            .batch_pages = 64,
                            .background = r->o.background};
    struct ver_config vc = {.bytes_max = r->o.version_bytes,
                            .slots_max = 64,
                            .horizon = wal_end(r->wal),
                            .next_id = r->next_id};
    struct reg_config rc = {.wal = r->wal, .store = r->store};
    struct txns_config tc = {.wal = r->wal,
                             .lock_timeout_ms = r->o.timeout_ms,
                             .durability = r->o.durability,
                             .undo_bytes_max = r->o.undo_bytes,
                             .txns_max = 64,
                             .failed = log_failed,
                             .room = make_room,
                             .before_write = before_write,
                             .arg = r};

    ZT_OK(r->t, buf_create(&bc, &r->buf));
    ZT_OK(r->t, ver_create(&vc, &r->ver));
    rc.buf = r->buf;
    rc.ver = tc.ver = r->ver;
    ZT_OK(r->t, reg_create(&rc, &r->reg));
    tc.reg = r->reg;
    ZT_OK(r->t, txns_create(&tc, &r->ts));
}

void
rig_open(struct rig *r, struct zt *t, const struct rig_options *o)
{
    char cfg[128];
    page_id root;

    memset(r, 0, sizeof(*r));
    r->t = t;
    r->o = *o;
    r->o.frames = o->frames != 0 ? o->frames : 1024;
    r->o.undo_bytes = o->undo_bytes != 0 ? o->undo_bytes : 1 << 20;
    r->o.version_bytes = o->version_bytes != 0 ? o->version_bytes : 16 << 20;
    r->epoch = 1;
    r->next_id = 1;
    r->epoch_start = r->cut = WAL_BLOCK;
    (void)snprintf(cfg, sizeof(cfg), "generic,bytes=%dM,superblock=1M,seed=1", DRIVE_MEGABYTES);
    ZT_OK(t, sim_drive_create(cfg, &r->drive));
    open_device(r);
    open_store(r);
    ZT_OK(t, store_format(r->store));
    open_wal(r, WAL_BLOCK);
    open_managers(r);
    if (o->background)
        ZT_OK(t, buf_start(r->buf));
    ZT_OK(t, reg_format(r->reg, &r->ids_root));
    ZT_OK(t, reg_new_id(r->reg, &r->user_id, &root));
    ZT_OK(t, reg_make(r->reg, r->user_id, root, 0, 0));
    r->trees[0] = reg_main(r->reg);
    ZT_OK(t, reg_get(r->reg, r->user_id, &r->trees[1]));
    ZT_OK(t, wal_flush(r->wal, wal_end(r->wal)));
}

static void
close_managers(struct rig *r)
{
    if (r->trees[1] != NULL)
        reg_put(r->reg, r->trees[1]);
    txns_destroy(r->ts);
    reg_destroy(r->reg);
    ver_destroy(r->ver);
    if (r->o.background)
        buf_stop(r->buf);
    buf_destroy(r->buf);
    wal_destroy(r->wal);
    store_destroy(r->store);
    dev_close(r->dev);
}

void
rig_close(struct rig *r)
{
    close_managers(r);
    sim_drive_destroy(r->drive);
}

void
rig_crash(struct rig *r, uint64_t seed)
{
    sim_drive_crash(r->drive, seed);
    close_managers(r);
    r->trees[0] = r->trees[1] = NULL;
    r->armed = r->dead = false;
}

/* ---- recovery ---- */

static int
pass(struct rig *r, lsn_t from, lsn_t to, int (*visit)(struct rig *r, const struct wal_record *rec),
     lsn_t *tail)
{
    struct wal_scan_config cfg = {.dev = r->dev,
                                  .base = LOG_BASE,
                                  .bytes = (uint64_t)RIG_LOG_MEGABYTES << 20,
                                  .db_id = 1,
                                  .from = WAL_BLOCK,
                                  .epoch_min = 1,
                                  .epoch_start = r->epoch_start,
                                  .epoch = r->epoch};
    struct wal_scan *scan = NULL;
    struct wal_record rec;
    int rc = wal_scan_open(&cfg, &scan);

    while (rc == 0) {
        rc = wal_scan_next(scan, &rec);
        if (rc == 0 && rec.start >= to)
            rc = COHORT_NOTFOUND;
        if (rc == 0 && rec.start >= from)
            rc = visit(r, &rec);
    }
    if (rc == COHORT_NOTFOUND && tail != NULL)
        *tail = wal_scan_tail(scan);
    wal_scan_close(scan);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
visit_map(struct rig *r, const struct wal_record *rec)
{
    return rec->type == STORE_RECORD_MAP ? store_replay(r->store, rec->data, rec->bytes) : 0;
}

static int
visit_redo(struct rig *r, const struct wal_record *rec)
{
    int rc = 0;

    if (rec->type >= BT_RECORD_PAGES && rec->type <= BT_RECORD_UNDO) {
        buf_redo_bound(r->buf, rec->start);
        rc = bt_redo(r->buf, rec->type, rec->end, rec->data, rec->bytes);
    }
    if (rc == 0 && rec->type >= BT_RECORD_WRITE)
        rc = txns_recover_note(r->ts, rec->type, rec->start, rec->data, rec->bytes);
    return rc;
}

static int
visit_collect(struct rig *r, const struct wal_record *rec)
{
    return rec->type == BT_RECORD_WRITE
               ? txns_recover_collect(r->ts, rec->start, rec->data, rec->bytes)
               : 0;
}

static bool
keep_resident(void *arg, page_id pid)
{
    struct rig *r = arg;

    return buf_is_resident(r->buf, pid);
}

static int
recover(struct rig *r, lsn_t tail)
{
    int rc = store_reconcile(r->store);

    if (rc == 0)
        rc = pass(r, r->cut, tail, visit_redo, NULL);
    buf_redo_bound(r->buf, 0);
    if (rc != 0)
        return rc;
    map_pid_rebuild(store_map(r->store), keep_resident, r);
    rc = reg_load(r->reg, &r->ids_root);
    if (rc == 0)
        rc = txns_recover_headers(r->ts);
    if (rc == 0)
        rc = pass(r, r->cut, tail, visit_collect, NULL);
    if (rc == 0)
        rc = txns_recover_finish(r->ts);
    return rc;
}

int
rig_recover(struct rig *r, uint64_t writes)
{
    struct dev_fault_plan plan = {.code = COHORT_EIO, .stop_after_writes = writes};
    lsn_t tail = 0;
    int rc;

    open_device(r);
    open_store(r);
    ZT_OK(r->t, pass(r, WAL_BLOCK, CH_LSN_MAX, visit_map, &tail));
    r->epoch++;
    r->epoch_start = tail;
    open_wal(r, tail);
    open_managers(r);
    dev_fault_set(r->dev, &plan);
    rc = recover(r, tail);
    if (rc == 0) {
        ver_recovered(r->ver, wal_end(r->wal));
        r->next_id = ver_next_id(r->ver);
        r->trees[0] = reg_main(r->reg);
        rc = reg_get(r->reg, r->user_id, &r->trees[1]);
    }
    if (rc == 0)
        rc = wal_flush(r->wal, wal_end(r->wal));
    if (rc == 0 && r->o.background)
        rc = buf_start(r->buf);
    if (writes == 0)
        ZT_OK(r->t, rc);
    return rc;
}

static int
checkpoint(struct rig *r, lsn_t target, lsn_t clean)
{
    lsn_t oldest;
    lsn_t end;
    int rc = txns_spill_below(r->ts, target);

    if (rc == 0)
        rc = buf_clean_until(r->buf, clean);
    if (rc != 0)
        return rc;
    end = wal_end(r->wal);
    oldest = ch_min_u64(buf_oldest_dirty(r->buf), txns_oldest(r->ts));
    rc = wal_flush(r->wal, wal_end(r->wal));
    if (rc != 0)
        return rc;
    r->cut = ch_max_u64(r->cut, ch_min_u64(end, oldest));
    r->next_id = ver_next_id(r->ver);
    return 0;
}

void
rig_checkpoint(struct rig *r, bool all)
{
    lsn_t end = wal_end(r->wal);
    lsn_t target = all ? end : r->cut + zt_below(r->t, end - r->cut + 1);

    ZT_OK(r->t, checkpoint(r, target, all ? CH_LSN_MAX : target));
    ZT_CHECK(r->t, txns_oldest(r->ts) >= target || target < 2 * WAL_BLOCK);
}

/* In recovery, now and then. */
static int
make_room(void *arg)
{
    struct rig *r = arg;

    return zt_below(r->t, 3) == 0 ? checkpoint(r, wal_end(r->wal), CH_LSN_MAX) : 0;
}

static int
before_write(void *arg)
{
    struct rig *r = arg;
    struct dev_fault_plan off = {.code = COHORT_EIO, .stop_after_writes = 1};
    int rc = 0;

    if (!r->armed || zt_below(r->t, 4) != 0)
        return 0;
    rc = zt_below(r->t, 2) == 0 ? checkpoint(r, wal_end(r->wal), CH_LSN_MAX)
                                : wal_flush(r->wal, wal_end(r->wal));
    if (rc == 0 && zt_below(r->t, 4) == 0) {
        r->armed = false;
        r->dead = true;
        dev_fault_set(r->dev, &off);
    }
    return rc;
}

void
rig_sweep(struct rig *r)
{
    bool did = true;

    while (did) {
        did = false;
        ZT_OK(r->t, txns_step(r->ts, &did));
    }
}

/* ---- looking ---- */

static void
print_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

uint64_t
rig_undo_rows(struct rig *r)
{
    struct bt_check_result c = {0};

    ZT_OK(r->t, bt_check(reg_internal(r->reg, REG_UNDO), NULL, print_line, NULL, &c));
    ZT_CHECK(r->t, c.errors == 0);
    return c.entries;
}

void
rig_check_trees(struct rig *r)
{
    (void)rig_undo_rows(r);
    for (unsigned i = 0; i < RIG_TREES; i++) {
        struct bt_check_result c = {0};

        ZT_OK(r->t, bt_check(&r->trees[i]->bt, NULL, print_line, NULL, &c));
        ZT_CHECK(r->t, c.errors == 0);
    }
}

/* ---- short forms ---- */

struct txn *
rig_begin(struct rig *r, bool serializable)
{
    struct txn_options o = {.serializable = serializable,
                            .durability = COHORT_DEFAULT,
                            .lock_timeout_ms = COHORT_DEFAULT};
    struct txn *t;

    ZT_OK(r->t, txn_begin(r->ts, &o, &t));
    return t;
}

size_t
rig_key(unsigned k, uint8_t out[32])
{
    int n = snprintf((char *)out, 32, "key%06u%s", k, k % 3 == 0 ? "-and-a-tail" : "");

    return (size_t)n;
}

size_t
rig_value(unsigned k, uint32_t version, uint8_t out[COHORT_ENTRY_MAX])
{
    static const size_t bytes[] = {8, 40, 200, 700, 1500};
    size_t n = bytes[(k + version) % CH_ARRAY_LEN(bytes)];

    memset(out, (int)(k + version), n);
    ch_put32(out, k);
    ch_put32(out + 4, version);
    return n;
}

int
rig_put(struct rig *r, struct txn *t, unsigned tree, unsigned k, uint32_t version)
{
    uint8_t key[32], value[COHORT_ENTRY_MAX];
    struct bt_op op = {.kind = version == 0 ? BT_DEL : BT_PUT};
    struct bt_done done;

    op.key = (struct bt_slice){key, rig_key(k, key)};
    if (version != 0)
        op.value = (struct bt_slice){value, rig_value(k, version, value)};
    if (t == NULL)
        return txn_write_alone(r->ts, r->trees[tree], &op, COHORT_DEFAULT, &done);
    return txn_write(t, r->trees[tree], &op, &done);
}

int
rig_lock(struct rig *r, struct txn *t, unsigned tree, unsigned k)
{
    uint8_t key[32];
    struct bt_op op = {.kind = BT_LOCK, .key = {key, rig_key(k, key)}};
    struct bt_done done;

    return txn_write(t, r->trees[tree], &op, &done);
}

struct found {
    unsigned k;
    uint32_t version;
    bool bad;
};

static void
copy_found(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct found *f = arg;
    uint8_t want[COHORT_ENTRY_MAX];

    f->version = bytes >= 8 ? ch_get32((const uint8_t *)value + 4) : 0;
    f->bad = flags != 0 || bytes < 8 || bytes != rig_value(f->k, f->version, want) ||
             memcmp(value, want, bytes) != 0;
}

int
rig_get(struct rig *r, struct txn *t, unsigned tree, unsigned k, uint32_t *version)
{
    struct found f = {.k = k};
    uint8_t key[32];
    struct bt_slice s = {key, rig_key(k, key)};
    int rc = t != NULL ? txn_get(t, r->trees[tree], s, copy_found, &f)
                       : txn_get_alone(r->ts, r->trees[tree], s, copy_found, &f);

    *version = 0;
    if (rc == COHORT_NOTFOUND)
        return 0;
    if (rc != 0)
        return rc;
    ZT_CHECK(r->t, !f.bad);
    *version = f.version;
    return 0;
}
