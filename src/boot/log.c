/* log.c - where the log lies, and its life from opening to closing.
 *
 * A ring stands between the root records and zone 0. A log in zones stands among the data: its segments are zones of the same
 * table, taken ahead of need by whoever flushes the log (log_take(), an upward call of wal) and given back by the checkpoint
 * that cuts it. So on a drive all that is written is written into zones, and what a cut leaves behind is a zone that is free,
 * not a piece of a ring that will be written over early or late.
 *
 * Invariants:
 *   L1 (R11) wal_segments_max() zones are set aside: there is a free one whenever the log needs it, however full the data is.
 *   L2 (R16) a zone is given back after the root whose log begins behind it is durable, and before that cut counts as room
 *      in the log.
 *   L3 what the zone table of the checkpoint says of the log's zones is older than the log: after pass 1 the zones that its
 *      blocks name, from the root's on, are the log's, and no others (store_log_zones()). Only then zones are handed out.
 *
 * Crash: a zone that was taken and that no durable block names has nothing live: reconcile frees it.
 */
#include "base/bug.h"
#include "boot/boot_internal.h"
#include "dev/dev.h"
#include "store/store.h"
#include "wal/wal.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    LOG_USER_PERCENT = 75,
};

#define KIB           UINT64_C(1024)
#define LOG_BYTES_MIN (256 * KIB)

/* ---- layout ---- */

int
log_layout(struct db *db, uint64_t log_bytes)
{
    struct meta_root *r = &db->root;

    log_bytes = ch_max_u64(log_bytes, LOG_BYTES_MIN);
    r->log_zones = db->opts.log_place == COHORT_LOG_PLACE_ZONES;
    if (r->log_zones && (dev_caps(db->dev)->growable || boot_is_inplace(db)))
        return CH_FAIL(COHORT_EOPTION, "%s: log_place=zones is for devices, out of place",
                       dev_name(db->dev));
    if (r->log_zones) {
        r->zones_base = ch_round_up(META_ROOT_BYTES, r->zone_bytes);
        r->log_base = r->zones_base;
        r->log_bytes = ch_round_up(log_bytes, r->zone_bytes);
        r->epoch_start = r->cut = r->map_start = r->zone_bytes; /* segment 1 */
    } else {
        r->log_base = META_ROOT_BYTES;
        r->zones_base = ch_round_up(r->log_base + log_bytes, r->zone_bytes);
        r->log_bytes = r->zones_base - r->log_base;
        r->epoch_start = r->cut = r->map_start = WAL_BLOCK;
    }
    r->epoch = 1;
    r->epoch_min = 1;
    return 0;
}

uint32_t
log_zones_max(const struct db *db)
{
    const struct meta_root *r = &db->root;

    return r->log_zones ? (uint32_t)wal_segments_max(r->log_bytes, r->zone_bytes) : 0;
}

int
log_match_options(const struct db *db)
{
    const struct meta_root *r = &db->root;

    if (db->opts.log_bytes != 0 && db->opts.log_bytes > r->log_bytes)
        return CH_FAIL(COHORT_EMISMATCH, "%s: log_bytes is %" PRIu64 " since creation",
                       dev_name(db->dev), r->log_bytes);
    if (db->opts.log_place != COHORT_LOG_PLACE_DEFAULT &&
        r->log_zones != (db->opts.log_place == COHORT_LOG_PLACE_ZONES))
        return CH_FAIL(COHORT_EMISMATCH, "%s: log_place is %s since creation", dev_name(db->dev),
                       r->log_zones ? "zones" : "ring");
    return 0;
}

/* ---- opening ---- */

/* L1 */
static int
log_take(void *arg, zone_id *out)
{
    struct db *db = arg;

    return zone_take_log(store_zones(db->store), out);
}

/* The first segment of a new database. */
static int
first_segment(struct db *db, struct wal_segments *s)
{
    s->zones = malloc(sizeof(*s->zones));
    if (s->zones == NULL)
        return CH_FAIL(COHORT_ENOMEM, "log: segments");
    s->first = 1;
    s->count = s->max = 1;
    return log_take(db, &s->zones[0]);
}

/* Pass 1, and a new epoch behind the tail that it finds. */
static int
log_recover(struct db *db, lsn_t *start, struct wal_segments *segments)
{
    int rc = recover_pass_map(db, start, segments);

    if (rc == 0 && db->root.map_start > *start)
        rc =
            CH_FAIL(COHORT_ELOG, "log: ends at LSN %" PRIu64 ", the root says %" PRIu64 " at least",
                    *start, db->root.map_start);
    if (rc == 0 && db->root.log_zones)
        rc = store_log_zones(db->store, segments->zones, segments->count); /* L3 */
    if (rc != 0)
        return rc;
    /* R10: what stands behind the tail must never be read again. The flush inside also makes durable what pass 1
     * read from a cache, before any zone that it emptied is written again (S1). */
    db->root.epoch += !CH_BUG(R10_NO_EPOCH);
    db->root.epoch_start = CH_BUG(R10_NO_EPOCH) ? db->root.epoch_start : *start;
    db->root.clean = false;
    return meta_store(db->dev, &db->root);
}

/* Writers fill half of it while the other half is written. With less than some milliseconds' worth they wait for the flush thread to
 * be given a processor, where they keep all of them busy. */
static uint64_t
buffer_bytes(const struct db *db)
{
    return ch_clamp_u64(db->opts.cache_bytes / 32, 256 * KIB, 4096 * KIB);
}

int
log_open(struct db *db)
{
    struct wal_segments segments = {0};
    struct wal_config cfg = {
        .dev = db->dev,
        .base = db->root.log_base,
        .bytes = db->root.log_bytes,
        .buffer_bytes = buffer_bytes(db),
        .db_id = db->root.db_id,
        .user_percent = LOG_USER_PERCENT,
        .cut = db->root.cut,
        .start = db->root.cut,
        .segments = &segments,
        .take = log_take,
        .take_arg = db,
    };
    int rc = 0;

    if (!db->fresh)
        rc = log_recover(db, &cfg.start, &segments);
    else if (db->root.log_zones)
        rc = first_segment(db, &segments);
    if (rc != 0)
        goto out;
    cfg.epoch = db->root.epoch;
    cfg.segment_bytes = db->root.log_zones ? db->root.zone_bytes : 0;
    rc = wal_create(&cfg, &db->wal);
    if (rc != 0)
        goto out;
    store_set_wal(db->store, db->wal);
    wal_set_cutter(db->wal, checkpoint_cutter, db);
    wal_set_recovering(db->wal, true);
out:
    free(segments.zones);
    return rc;
}

void
log_close(struct db *db)
{
    wal_destroy(db->wal);
}

/* ---- cutting ---- */

void
log_root(struct db *db, lsn_t cut)
{
    if (db->root.log_zones)
        db->root.log_zone = wal_segment_zone(db->wal, cut);
}

void
log_give_back(struct db *db, lsn_t cut)
{
    zone_id z;

    while (wal_segment_pop(db->wal, cut, &z))
        store_log_free(db->store, z);
}
