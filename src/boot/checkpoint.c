/* checkpoint.c - writes map and zone table, stores the root, cuts the log.
 *
 * The order is what crash safety hangs on:
 *   1  undo of old transactions is moved to pages, dirty pages that hold the log back are cleaned (they would pin the cut)
 *   2  map_start = end of the log, before the first map page is copied (R7)
 *   3  dirty map pages and changed zone-table pages are copied, each under its lock; the log is made durable up to
 *      what the copies contain (R7: S2 covers them), then they are written to their non-current slots
 *   4  the oldest unsaved LSN over all frames and transactions is read after map_start was taken (R3)
 *   5  the log is flushed to its end: every MAP record that made a frame clean before step 4 is durable (R2)
 *   6  the device is flushed: the array pages are durable before the root names them (R16)
 *   7  root record, flushed; arrays switch slots; the log is cut below min(map_start, oldest)
 * A crash before 7 leaves the previous checkpoint whole, since step 3 wrote only slots that are not current.
 *
 * Lock: db.ckpt (rank CHECKPOINT) for the whole of it; writers go on meanwhile.
 */
#include "base/bug.h"
#include "base/log.h"
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "store/store.h"
#include "txn/txn.h"
#include "ver/ver.h"
#include "wal/wal.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    CKPT_CHUNK = META_WRITE_MAX,
    CKPT_BACK_PAGES = 8, /* blocks of the arrays are allocated for so many pages at a time */
    CKPT_WAIT_NS = 50 * 1000 * 1000
};

/* ---- extents ---- */

static int
extend_array(struct db *db, enum meta_array_id id, uint64_t need)
{
    struct meta_array *a = db->arrays[id];

    while (meta_array_capacity(a) < need) {
        zone_id z;
        int rc = zone_take_meta(store_zones(db->store), &z);

        if (rc != 0)
            return rc;
        uint64_t off = db->root.zones_base + (uint64_t)z * db->root.zone_bytes;

        rc = meta_array_extend(a, z, &db->root);
        if (rc != 0) {
            zone_free(store_zones(db->store), z);
            return rc;
        }
        /* Of a file it keeps the blocks that it needs only (below). */
        if (dev_caps(db->dev)->growable && db->opts.discard != 0)
            rc = dev_reset(db->dev, off, db->root.zone_bytes);
        if (rc != 0)
            return rc;
    }
    return meta_array_back(a,
                           ch_min_u64(ch_round_up(need, CKPT_BACK_PAGES), meta_array_capacity(a)));
}

int
checkpoint_extend(struct db *db)
{
    struct map *map = store_map(db->store);
    uint64_t have = map_page_count(map);
    /* A split logs about half a page at least, so this many ids at most come up within one log length. */
    uint64_t ahead = ch_div_up(db->root.log_bytes / 2048, MAP_PAGE_ENTRIES) + 2;
    uint64_t most = ch_div_up(map_pages_max(map), MAP_PAGE_ENTRIES);
    uint64_t zone_pages = store_zone_pages(db->store);
    int rc = extend_array(db, META_ZONES, zone_pages);

    if (rc != 0)
        return rc;
    rc = extend_array(db, META_MAP, have);
    if (rc != 0)
        return rc;
    rc = extend_array(db, META_MAP, ch_min_u64(have + ahead, most));
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE)
        return rc;
    /* Ids beyond what a checkpoint can hold are refused at allocation (R11), not found out here. */
    map_set_limit(map, ch_min_u64(meta_array_backed(db->arrays[META_MAP]) * MAP_PAGE_ENTRIES,
                                  map_pages_max(map)));
    /* Deltas need as many; where they find no room for them, pages are written in full. */
    if (store_deltas(db->store)) {
        rc = extend_array(db, META_DELTAS, meta_array_backed(db->arrays[META_MAP]));
        if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE)
            return rc;
    } else {
        rc = extend_array(db, META_DELTAS, map_delta_page_count(map));
        if (rc != 0)
            return rc;
    }
    store_set_meta_bytes(db->store, 2 * CH_PAGE_BYTES *
                                        (meta_array_backed(db->arrays[META_MAP]) +
                                         meta_array_backed(db->arrays[META_ZONES]) +
                                         meta_array_backed(db->arrays[META_DELTAS])));
    return 0;
}

/* A page may have a delta when the extents that hold its entry are in the root that is in force: so recovery, which may
 * find no zone for more of them, can always write what it has replayed. */
static void
allow_deltas(struct db *db)
{
    uint64_t pages = ch_min_u64(meta_array_backed(db->arrays[META_DELTAS]),
                                meta_array_capacity(db->arrays[META_DELTAS]));

    map_set_delta_limit(store_map(db->store), pages * MAP_PAGE_ENTRIES);
}

/* ---- writing ---- */

static int
write_chunk(struct db *db, enum meta_array_id id, uint64_t number, const uint64_t *ks, unsigned n)
{
    int rc;

    if (n == 0)
        return 0;
    rc = wal_flush(db->wal, wal_end(db->wal)); /* R7 */
    if (rc != 0)
        return rc;
    return meta_array_write(db->arrays[id], number, ks, n, db->ckpt_buf);
}

/* Pages of one array that are gathered for a write. */
struct gather {
    enum meta_array_id id;
    uint8_t *payloads;
    uint64_t ks[CKPT_CHUNK];
    unsigned n;
};

static int
gather_write(struct db *db, struct gather *g, uint64_t number)
{
    int rc;

    if (g->n == 0)
        return 0;
    rc = wal_flush(db->wal, wal_end(db->wal)); /* R7 */
    if (rc == 0)
        rc = meta_array_write(db->arrays[g->id], number, g->ks, g->n, g->payloads);
    g->n = 0;
    return rc;
}

static uint64_t *
gather_next(const struct gather *g)
{
    uint8_t *payload = g->payloads + (size_t)g->n * META_PAGE_PAYLOAD;

    memset(payload, 0, META_PAGE_PAYLOAD);
    return (uint64_t *)(void *)payload;
}

static int
gather_add(struct db *db, struct gather *g, uint64_t number, uint64_t k)
{
    g->ks[g->n++] = k;
    return g->n == CKPT_CHUNK ? gather_write(db, g, number) : 0;
}

/* Both planes of the map, page by page as they belong together. */
static int
write_map_pages(struct db *db, uint64_t number)
{
    struct map *map = store_map(db->store);
    struct gather base = {.id = META_MAP, .payloads = db->ckpt_buf};
    struct gather delta = {.id = META_DELTAS,
                           .payloads = db->ckpt_buf + (size_t)CKPT_CHUNK * META_PAGE_PAYLOAD};
    uint64_t count = map_page_count(map);
    /* Never fewer than before: the array's digest is over all pages that were ever current. */
    uint64_t deltas = ch_max_u64(map_delta_page_count(map), db->root.delta_pages);
    int rc = 0;

    for (uint64_t k = 0; rc == 0 && k < count; k++) {
        unsigned dirty;

        if (!map_page_dirty(map, k) && !map_delta_page_dirty(map, k))
            continue;
        /* What begins to have deltas meanwhile is the next checkpoint's. */
        dirty = map_pages_copy(map, k, gather_next(&base), k < deltas ? gather_next(&delta) : NULL);
        if ((dirty & MAP_DIRTY_BASE) != 0)
            rc = gather_add(db, &base, number, k);
        if (rc == 0 && (dirty & MAP_DIRTY_DELTA) != 0)
            rc = gather_add(db, &delta, number, k);
    }
    if (rc == 0)
        rc = gather_write(db, &base, number);
    if (rc == 0)
        rc = gather_write(db, &delta, number);
    db->root.map_pages = count;
    db->root.delta_pages = deltas;
    return rc;
}

static int
zone_crcs_resize(struct db *db, uint64_t pages)
{
    uint32_t *p;

    if (pages <= db->zone_page_crcs)
        return 0;
    p = realloc(db->zone_page_crc, pages * sizeof(*p));
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "checkpoint: %" PRIu64 " zone-table pages", pages);
    memset(p + db->zone_page_crcs, 0, (pages - db->zone_page_crcs) * sizeof(*p));
    db->zone_page_crc = p;
    db->zone_page_crcs = pages;
    return 0;
}

static int
write_zone_pages(struct db *db, uint64_t number)
{
    uint64_t ks[CKPT_CHUNK];
    unsigned n = 0;
    uint64_t count = store_zone_pages(db->store);
    int rc = zone_crcs_resize(db, count);

    for (uint64_t k = 0; rc == 0 && k < count; k++) {
        uint8_t *payload = db->ckpt_buf + (size_t)n * META_PAGE_PAYLOAD;
        uint32_t crc;

        memset(payload, 0, META_PAGE_PAYLOAD);
        store_zone_page_copy(db->store, k, payload);
        crc = ch_crc32c(1, payload, META_PAGE_PAYLOAD) | 1; /* 0 = never written */
        if (k < db->root.zone_pages && crc == db->zone_page_crc[k])
            continue;
        db->zone_page_crc[k] = crc;
        ks[n++] = k;
        if (n == CKPT_CHUNK) {
            rc = write_chunk(db, META_ZONES, number, ks, n);
            n = 0;
        }
    }
    if (rc == 0)
        rc = write_chunk(db, META_ZONES, number, ks, n);
    if (rc == 0)
        db->root.zone_pages = count;
    return rc;
}

/* The LSN below which dirty pages are to be cleaned, so that the cut gives back most of the log. */
static lsn_t
clean_target(struct db *db, bool all)
{
    lsn_t end = wal_end(db->wal);
    uint64_t keep = db->root.log_bytes * db->opts.checkpoint_percent / 400;

    if (all)
        return CH_LSN_MAX;
    return end > keep ? end - keep : 0;
}

static uint64_t
next_number(const struct db *db)
{
    uint64_t highest = db->root.checkpoint;

    for (int i = 0; i < META_ARRAYS; i++)
        highest = ch_max_u64(highest, meta_array_highest(db->arrays[i]));
    return highest + 1;
}

static int
write_checkpoint(struct db *db)
{
    uint64_t round = store_checkpoint_begin(db->store);
    lsn_t early = CH_BUG(R3_SCAN_FIRST) ? buf_oldest_dirty(db->buf) : 0;
    lsn_t map_start = wal_end(db->wal); /* R7: position first */
    uint64_t number = next_number(db);
    lsn_t oldest = 0;
    lsn_t cut;
    int rc = write_map_pages(db, number);

    if (rc == 0)
        rc = write_zone_pages(db, number);
    if (rc != 0)
        return rc;
    if (CH_BUG(R7_LATE_POSITION))
        map_start = wal_end(db->wal);
    store_checkpoint_covers(db->store, round);
    oldest = CH_BUG(R3_SCAN_FIRST) ? early : buf_oldest_dirty(db->buf); /* R3: after map_start */
    if (!CH_BUG(R12_CUT_UNDO))
        oldest = ch_min_u64(oldest, txns_oldest(db->txns));
    /* A bound read before an earlier checkpoint may be registered after it; its record is then above that cut. */
    cut = ch_max_u64(db->root.cut, ch_min_u64(map_start, oldest));
    if (!CH_BUG(R2_CUT_EARLY))
        rc = wal_flush(db->wal, wal_end(db->wal)); /* R2 */
    if (rc == 0)
        rc = CH_BUG(R16_NO_FLUSH) ? 0 : dev_flush(db->dev); /* R16 */
    if (rc != 0)
        return rc;
    db->root.cut = cut;
    db->root.map_start = map_start;
    db->root.checkpoint = number;
    if (!boot_is_inplace(db))
        db->root.zones = zone_count(store_zones(db->store));
    db->root.next_txn = ver_next_id(db->ver);
    db->root.page_high = map_pid_high(store_map(db->store));
    if (cut >= db->root.epoch_start)
        db->root.epoch_min = db->root.epoch;
    for (int i = 0; i < META_ARRAYS; i++)
        db->root.digest[i] = meta_array_digest(db->arrays[i], number);
    log_root(db, cut);
    if (CH_BUG(LOG_FREED_EARLY))
        log_give_back(db, cut);
    if (CH_BUG(R16_ROOT_LATE))
        wal_truncate(db->wal, cut);
    rc = meta_store(db->dev, &db->root);
    if (rc != 0)
        return rc;
    for (int i = 0; i < META_ARRAYS; i++)
        meta_array_commit(db->arrays[i], number);
    store_checkpoint_done(db->store, round);
    log_give_back(db, cut);
    wal_truncate(db->wal, cut);
    atomic_fetch_add_explicit(&db->checkpoints, 1, memory_order_relaxed);
    return 0;
}

/* CHECKPOINT lock held. */
static int
checkpoint_locked(struct db *db, bool all)
{
    int rc = boot_writable(db);

    if (rc != 0)
        goto out;
    /* Undo of open transactions leaves the part of the log that is to be cut (R12); without room it stays, and the cut
     * stays behind it. */
    rc = txns_spill_below(db->txns, all ? wal_end(db->wal) : clean_target(db, false));
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE)
        goto out;
    rc = buf_clean_until(db->buf, clean_target(db, all));
    /* A full store keeps its dirty pages; the map part of the checkpoint still frees log. */
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE)
        goto out;
    rc = checkpoint_extend(db);
    if (rc != 0)
        goto out;
    rc = write_checkpoint(db);
    if (rc != 0) {
        boot_set_error(db, rc);
    } else {
        allow_deltas(db);
        rc = checkpoint_extend(db);
    }
out:
    return rc;
}

int
boot_checkpoint(struct db *db, bool all)
{
    int rc;

    rt_lock(&db->ckpt);
    rc = checkpoint_locked(db, all);
    rt_unlock(&db->ckpt);
    return rc;
}

/* While no thread does so: whoever lacks log room makes a checkpoint, unless he holds a lock that it needs, or another is at it. */
void
checkpoint_cutter(void *arg)
{
    struct db *db = arg;
    int rc;

    if (db->txns == NULL || !rt_may_lock(RT_RANK_TXN, 1) || !rt_trylock(&db->ckpt))
        return;
    rc = checkpoint_locked(db, false);
    rt_unlock(&db->ckpt);
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE)
        boot_set_error(db, rc);
}

/* ---- loading ---- */

static int
visit_map(void *arg, uint64_t k, const uint8_t *payload)
{
    struct db *db = arg;

    return map_page_load(store_map(db->store), k, (const uint64_t *)(const void *)payload);
}

static int
visit_zones(void *arg, uint64_t k, const uint8_t *payload)
{
    struct db *db = arg;

    return store_zone_page_load(db->store, k, payload);
}

static int
visit_deltas(void *arg, uint64_t k, const uint8_t *payload)
{
    struct db *db = arg;

    return map_delta_page_load(store_map(db->store), k, (const uint64_t *)(const void *)payload);
}

int
checkpoint_load(struct db *db)
{
    int rc = meta_array_load(db->arrays[META_ZONES], db->root.zone_pages, db->root.checkpoint,
                             visit_zones, db);

    if (rc == 0)
        rc = meta_array_load(db->arrays[META_MAP], db->root.map_pages, db->root.checkpoint,
                             visit_map, db);
    if (rc == 0)
        rc = meta_array_load(db->arrays[META_DELTAS], db->root.delta_pages, db->root.checkpoint,
                             visit_deltas, db);
    if (rc == 0 && db->root.page_high > 1)
        rc = map_pid_mark_used(store_map(db->store), db->root.page_high - 1);
    return rc;
}

/* ---- thread ---- */

void
checkpoint_thread(void *arg)
{
    struct db *db = arg;

    while (!atomic_load_explicit(&db->ckpt_stop, memory_order_acquire)) {
        lsn_t cut = wal_cut(db->wal);
        int rc;

        if (!wal_pressure(db->wal, (unsigned)db->opts.checkpoint_percent, CKPT_WAIT_NS))
            continue;
        if (atomic_load_explicit(&db->ckpt_stop, memory_order_acquire))
            break;
        rc = boot_checkpoint(db, false);
        if (rc == 0 && wal_cut(db->wal) > cut)
            continue;
        if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_NO_SPACE) {
            boot_set_error(db, rc);
            return;
        }
        rt_sleep_ns(CKPT_WAIT_NS); /* full: deletes or a larger device will help, not haste */
    }
}
