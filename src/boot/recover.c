/* recover.c - the passes over the log.
 *
 * Pass 1 replays MAP records from map_start on, unconditionally (R7), so that the map says where each page's newest
 * durable image is. Pass 2 replays page changes from the cut on; the page LSN decides (bt_redo). Records that recovery
 * itself appends (MAP records of pages it cleans, undo) stand behind `tail` in a new epoch and are not read by pass 2 and
 * pass 3, which hands the before-images of unfinished transactions to their manager. A crash
 * inside recovery just recovers again: nothing below is cut before the checkpoint that ends it.
 */
#include "base/log.h"
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "store/store.h"
#include "txn/txn.h"
#include "wal/wal.h"

#include <inttypes.h>
#include <stdlib.h>

static int
scan_open(const struct db *db, struct wal_scan **scan)
{
    struct wal_scan_config cfg = {
        .dev = db->dev,
        .base = db->root.log_base,
        .bytes = db->root.log_bytes,
        .db_id = db->root.db_id,
        .from = db->root.cut,
        .epoch_min = db->root.epoch_min,
        .epoch_start = db->root.epoch_start,
        .epoch = db->root.epoch,
        .segment_bytes = db->root.log_zones ? db->root.zone_bytes : 0,
        .zones = db->root.zones,
        .first_zone = db->root.log_zone,
    };

    return wal_scan_open(&cfg, scan);
}

static bool
is_tree_record(const struct wal_record *r)
{
    return r->type >= BT_RECORD_PAGES && r->type <= BT_RECORD_UNDO;
}

static bool
is_txn_record(const struct wal_record *r)
{
    return r->type >= BT_RECORD_WRITE && r->type <= TXN_RECORD_PREPARE;
}

static int
known_type(const struct wal_record *r)
{
    if (r->type == STORE_RECORD_MAP || is_tree_record(r) || is_txn_record(r))
        return 0;
    return CH_FAIL(COHORT_EVERSION, "log: record type %u at LSN %" PRIu64 " is of a newer format",
                   r->type, r->start);
}

static int
segments_copy(const struct wal_segments *from, struct wal_segments *to)
{
    if (from->count == 0)
        return 0;
    to->zones = malloc(from->count * sizeof(*to->zones));
    if (to->zones == NULL)
        return CH_FAIL(COHORT_ENOMEM, "log: segments");
    memcpy(to->zones, from->zones, from->count * sizeof(*to->zones));
    to->first = from->first;
    to->count = to->max = from->count;
    return 0;
}

int
recover_pass_map(struct db *db, lsn_t *tail, struct wal_segments *segments)
{
    struct wal_scan *scan = NULL;
    struct wal_record r;
    uint64_t maps = 0;
    int rc = scan_open(db, &scan);

    while (rc == 0) {
        rc = wal_scan_next(scan, &r);
        if (rc == 0)
            rc = known_type(&r);
        if (rc == 0 && r.type == STORE_RECORD_MAP && r.start >= db->root.map_start) {
            rc = store_replay(db->store, r.data, r.bytes);
            maps++;
        }
    }
    if (rc == COHORT_NOTFOUND) {
        *tail = wal_scan_tail(scan);
        rc = segments_copy(wal_scan_segments(scan), segments);
        ch_log(COHORT_LOG_INFO,
               "recovery: log read from LSN %" PRIu64 " to %" PRIu64 ", %" PRIu64 " map records",
               db->root.cut, *tail, maps);
    }
    wal_scan_close(scan);
    return rc;
}

/* Hands each record from the cut to `tail`, which is where recovery's own records begin, to `visit`. */
static int
pass(struct db *db, lsn_t tail, int (*visit)(struct db *db, const struct wal_record *r))
{
    struct wal_scan *scan = NULL;
    struct wal_record r;
    int rc = scan_open(db, &scan);

    while (rc == 0) {
        rc = wal_scan_next(scan, &r);
        if (rc == 0 && r.start >= tail)
            rc = COHORT_NOTFOUND;
        if (rc == 0)
            rc = visit(db, &r);
    }
    wal_scan_close(scan);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
redo(struct db *db, const struct wal_record *r)
{
    int rc = 0;

    if (is_tree_record(r)) {
        buf_redo_bound(db->buf, r->start);
        rc = bt_redo(db->buf, r->type, r->end, r->data, r->bytes);
        db->recovered_records++;
    }
    if (rc == 0 && is_txn_record(r))
        rc = txns_recover_note(db->txns, r->type, r->start, r->data, r->bytes);
    return rc;
}

static int
collect(struct db *db, const struct wal_record *r)
{
    return r->type == BT_RECORD_WRITE ? txns_recover_collect(db->txns, r->start, r->data, r->bytes)
                                      : 0;
}

int
recover_pass_undo(struct db *db, lsn_t tail)
{
    return pass(db, tail, collect);
}

int
recover_pass_redo(struct db *db, lsn_t tail)
{
    int rc = pass(db, tail, redo);

    buf_redo_bound(db->buf, 0);
    if (rc == 0 && db->recovered_records > 0)
        ch_log(COHORT_LOG_INFO, "recovery: %u change records redone", db->recovered_records);
    return rc;
}
