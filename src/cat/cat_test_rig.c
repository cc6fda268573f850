/* cat_test_rig.c - see cat_test_rig.h. */
#include "cat/cat_test_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

enum {
    LOG_BASE = 64 << 10,
    LOG_BYTES = 96 << 20,
    ZONE_BYTES = 256 << 10,
    DRIVE_MEGABYTES = 320,
    PAGES_MAX = 1 << 16,
};

static int
before_write(void *arg)
{
    struct world *w = arg;

    return 1 + atomic_fetch_add_explicit(&w->writes, 1, memory_order_relaxed) == w->stop_at
               ? COHORT_EIO
               : 0;
}

static void
open_store(struct world *w)
{
    struct store_config sc = {.kind = STORE_OOP,
                              .placement = PLACE_SEPGC,
                              .codec = PACK_LZ4,
                              .codec_level = 1,
                              .dev = w->dev,
                              .zones_base = LOG_BASE + LOG_BYTES,
                              .zone_bytes = ZONE_BYTES,
                              .pages_max = PAGES_MAX,
                              .batch_pages = 64,
                              .space_target = 140,
                              .discard = true};

    sc.zones = sc.zones_max = (uint32_t)((dev_caps(w->dev)->bytes - sc.zones_base) / ZONE_BYTES);
    if (w->zones != 0)
        sc.zones = sc.zones_max = w->zones;
    ZT_OK(w->t, store_create(&sc, &w->store));
}

static void
open_wal(struct world *w, lsn_t start)
{
    struct wal_config wc = {.dev = w->dev,
                            .base = LOG_BASE,
                            .bytes = LOG_BYTES,
                            .buffer_bytes = 4 << 20,
                            .db_id = 1,
                            .epoch = w->epoch,
                            .start = start,
                            .cut = WAL_BLOCK,
                            .user_percent = 75};

    ZT_OK(w->t, wal_create(&wc, &w->wal));
    store_set_wal(w->store, w->wal);
}

static void
open_buf(struct world *w)
{
    struct buf_config bc = {.store = w->store,
                            .wal = w->wal,
                            .cache_bytes = (uint64_t)w->frames * CH_PAGE_BYTES,
                            .pages_max = PAGES_MAX,
                            .batch_pages = 64};

    ZT_OK(w->t, buf_create(&bc, &w->buf));
}

static void
open_managers(struct world *w)
{
    struct ver_config vc = {.bytes_max = w->version_bytes,
                            .slots_max = 64,
                            .horizon = wal_end(w->wal),
                            .next_id = w->next_id};
    struct reg_config rc = {.buf = w->buf, .wal = w->wal, .store = w->store};
    struct txns_config tc = {.wal = w->wal,
                             .lock_timeout_ms = 0,
                             .durability = COHORT_DURABILITY_NONE,
                             .undo_bytes_max = 8 << 20,
                             .txns_max = 64,
                             .before_write = before_write,
                             .arg = w};

    ZT_OK(w->t, ver_create(&vc, &w->ver));
    rc.ver = w->ver;
    ZT_OK(w->t, reg_create(&rc, &w->reg));
    tc.ver = w->ver;
    tc.reg = w->reg;
    ZT_OK(w->t, txns_create(&tc, &w->txns));
    ZT_OK(w->t, cat_create(w->reg, w->txns, w->ver, &w->cat));
}

static void
open_world(struct world *w, struct zt *t, unsigned frames, unsigned zones)
{
    char cfg[128];

    memset(w, 0, sizeof(*w));
    w->t = t;
    w->frames = frames;
    w->zones = zones;
    w->version_bytes = 16 << 20;
    w->epoch = 1;
    w->epoch_start = WAL_BLOCK;
    w->next_id = 1;
    (void)snprintf(cfg, sizeof(cfg), "generic,bytes=%uM,superblock=1M,cache=none,seed=1",
                   (unsigned)DRIVE_MEGABYTES);
    ZT_OK(t, sim_drive_create(cfg, &w->drive));
    ZT_OK(t, dev_sim_open(w->drive, &w->dev));
    open_store(w);
    open_wal(w, WAL_BLOCK);
    ZT_OK(t, store_format(w->store));
    open_buf(w);
    open_managers(w);
    ZT_OK(t, reg_format(w->reg, &w->ids_root));
    ver_recovered(w->ver, wal_end(w->wal));
    ZT_OK(t, cat_load(w->cat));
}

void
world_open(struct world *w, struct zt *t, unsigned frames)
{
    open_world(w, t, frames != 0 ? frames : 2048, 0);
}

void
world_open_small(struct world *w, struct zt *t, unsigned zones)
{
    open_world(w, t, 512, zones);
}

static void
close_all(struct world *w)
{
    cat_destroy(w->cat);
    txns_destroy(w->txns);
    reg_destroy(w->reg);
    ver_destroy(w->ver);
    buf_destroy(w->buf);
    wal_destroy(w->wal);
    store_destroy(w->store);
    dev_close(w->dev);
}

void
world_close(struct world *w)
{
    close_all(w);
    sim_drive_destroy(w->drive);
}

/* ---- recovery ---- */

enum pass {
    PASS_MAP,
    PASS_REDO,
    PASS_UNDO
};

static void
visit(struct world *w, enum pass pass, const struct wal_record *r)
{
    bool tree = r->type >= BT_RECORD_PAGES && r->type <= BT_RECORD_UNDO;

    if (pass == PASS_MAP && r->type == STORE_RECORD_MAP)
        ZT_OK(w->t, store_replay(w->store, r->data, r->bytes));
    if (pass == PASS_REDO && tree) {
        buf_redo_bound(w->buf, r->start);
        ZT_OK(w->t, bt_redo(w->buf, r->type, r->end, r->data, r->bytes));
    }
    if (pass == PASS_REDO && r->type > BT_RECORD_PAGES)
        ZT_OK(w->t, txns_recover_note(w->txns, r->type, r->start, r->data, r->bytes));
    if (pass == PASS_UNDO && r->type == BT_RECORD_WRITE)
        ZT_OK(w->t, txns_recover_collect(w->txns, r->start, r->data, r->bytes));
}

static struct wal_scan_config
scan_config(const struct world *w)
{
    return (struct wal_scan_config){.dev = w->dev,
                                    .base = LOG_BASE,
                                    .bytes = LOG_BYTES,
                                    .db_id = 1,
                                    .from = WAL_BLOCK,
                                    .epoch_min = 1,
                                    .epoch_start = w->epoch_start,
                                    .epoch = w->epoch};
}

/* Up to `until`; returns the tail. */
static lsn_t
scan(struct world *w, enum pass pass, lsn_t until)
{
    struct wal_scan_config cfg = scan_config(w);
    struct wal_scan *s = NULL;
    struct wal_record r;
    lsn_t tail;
    int rc;

    ZT_OK(w->t, wal_scan_open(&cfg, &s));
    while ((rc = wal_scan_next(s, &r)) == 0 && r.start < until)
        visit(w, pass, &r);
    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    tail = rc == 0 ? until : wal_scan_tail(s);
    wal_scan_close(s);
    return tail;
}

static bool
keep_resident(void *arg, page_id pid)
{
    return buf_is_resident(arg, pid);
}

static void
crash(struct world *w, lsn_t until)
{
    lsn_t tail;

    w->next_id = ver_next_id(w->ver);
    w->stop_at = 0;
    close_all(w);
    ZT_OK(w->t, dev_sim_open(w->drive, &w->dev));
    open_store(w);
    tail = scan(w, PASS_MAP, CH_LSN_MAX);
    w->epoch++;
    w->epoch_start = tail;
    open_wal(w, tail);
    open_buf(w);
    open_managers(w);
    ZT_OK(w->t, store_reconcile(w->store));
    until = ch_min_u64(until, tail);
    (void)scan(w, PASS_REDO, until);
    buf_redo_bound(w->buf, 0);
    map_pid_rebuild(store_map(w->store), keep_resident, w->buf);
    ZT_OK(w->t, reg_load(w->reg, &w->ids_root));
    ZT_OK(w->t, txns_recover_headers(w->txns));
    (void)scan(w, PASS_UNDO, until);
    ZT_OK(w->t, txns_recover_finish(w->txns));
    ver_recovered(w->ver, wal_end(w->wal));
    ZT_OK(w->t, cat_load(w->cat));
}

void
world_crash(struct world *w, bool flush)
{
    if (flush)
        ZT_OK(w->t, wal_flush(w->wal, wal_end(w->wal)));
    crash(w, CH_LSN_MAX);
}

void
world_crash_at(struct world *w, lsn_t lsn)
{
    ZT_OK(w->t, wal_flush(w->wal, wal_end(w->wal)));
    crash(w, lsn);
}

unsigned
world_records(struct world *w, lsn_t from, lsn_t *ends, unsigned max)
{
    struct wal_scan_config cfg = scan_config(w);
    struct wal_scan *s = NULL;
    struct wal_record r;
    unsigned n = 0;
    int rc;

    ZT_OK(w->t, wal_flush(w->wal, wal_end(w->wal)));
    ZT_OK(w->t, wal_scan_open(&cfg, &s));
    while ((rc = wal_scan_next(s, &r)) == 0) {
        ZT_CHECK(w->t, n < max);
        if (r.end > from)
            ends[n++] = r.end;
    }
    ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    wal_scan_close(s);
    return n;
}

/* ---- checks ---- */

void
world_settle(struct world *w)
{
    bool a = true, b = true;

    while (a || b) {
        a = false;
        ZT_OK(w->t, txns_step(w->txns, &a));
        ZT_OK(w->t, cat_sweep_step(w->cat, &b));
    }
}

static void
print_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

uint64_t
world_findings(struct world *w)
{
    uint64_t findings = 0, values;

    ZT_OK(w->t, cat_check(w->cat, NULL, NULL, &values, &findings));
    return findings;
}

struct reach {
    struct world *w;
    bool seen[PAGES_MAX];
};

static void
visit_page(void *arg, page_id pid)
{
    struct reach *r = arg;

    ZT_CHECK(r->w->t, pid < PAGES_MAX && !r->seen[pid]);
    r->seen[pid] = true;
}

static int
check_tree(void *arg, uint32_t id, page_id root)
{
    struct reach *r = arg;
    struct bt_check_result c;
    struct bt bt;

    bt_init(&bt, r->w->buf, r->w->wal, id, root);
    ZT_OK(r->w->t, bt_check(&bt, visit_page, print_line, r, &c));
    bt_fini(&bt);
    ZT_CHECK(r->w->t, c.errors == 0);
    return 0;
}

void
world_check(struct world *w)
{
    struct reach *r = calloc(1, sizeof(*r));
    uint64_t findings = 0, values;

    ZT_CHECK(w->t, r != NULL);
    r->w = w;
    ZT_OK(w->t, cat_check(w->cat, print_line, NULL, &values, &findings));
    ZT_CHECK(w->t, findings == 0);
    ZT_OK(w->t, buf_clean_until(w->buf, CH_LSN_MAX));
    ZT_OK(w->t, reg_each(w->reg, check_tree, r));
    ZT_OK(w->t, cat_each_root(w->cat, check_tree, r));
    for (page_id pid = 1; pid < map_pid_high(store_map(w->store)); pid++) {
        if (r->seen[pid] != map_pid_is_used(store_map(w->store), pid))
            fprintf(stderr, "page %u: reached %d\n", (unsigned)pid, r->seen[pid]);
        ZT_CHECK(w->t, r->seen[pid] == map_pid_is_used(store_map(w->store), pid));
    }
    free(r);
}

uint64_t
world_pages(struct world *w)
{
    ZT_OK(w->t, buf_clean_until(w->buf, CH_LSN_MAX));
    return map_pid_count(store_map(w->store));
}

static int
count_piece(void *arg, uint64_t number, uint32_t piece, size_t bytes)
{
    uint64_t *n = arg;

    (void)number;
    (void)piece;
    (void)bytes;
    ++*n;
    return 0;
}

uint64_t
world_pieces(struct world *w)
{
    uint64_t n = 0;

    ZT_OK(w->t, blob_each(w->cat, count_piece, &n));
    return n;
}

static int
count_pending(void *arg, const struct pending *p)
{
    uint64_t *n = arg;

    (void)p;
    ++*n;
    return 0;
}

uint64_t
world_pending(struct world *w)
{
    uint64_t n = 0;

    ZT_OK(w->t, pending_each(w->cat, count_pending, &n));
    return n;
}

/* ---- transactions ---- */

struct txn *
world_begin(struct world *w)
{
    struct txn_options o = {.durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};
    struct txn *t = NULL;

    ZT_OK(w->t, txn_begin(w->txns, &o, &t));
    return t;
}

void
world_commit(struct world *w, struct txn *t)
{
    ZT_OK(w->t, txn_commit(t, false, NULL));
}

struct bt_slice
str(const char *s)
{
    return (struct bt_slice){s, strlen(s)};
}

void
fill(uint8_t *out, uint64_t seed, uint64_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint64_t x = (seed * UINT64_C(0x9e3779b97f4a7c15)) ^
                     ((offset + i) / 8 * UINT64_C(0xbf58476d1ce4e5b9));

        out[i] = (uint8_t)((x ^ x >> 29) >> ((offset + i) % 8 * 8));
    }
}
