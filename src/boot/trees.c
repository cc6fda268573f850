/* trees.c - version store, registry of trees, transactions and names: brought up together, since recovery needs all of them.
 *
 * Order of recovery, once the map is right and the log can be appended to:
 *   zones reconciled | redo, noting transactions | page ids rebuilt from the map and what is in memory | trees opened |
 *   headers of the undo tree | undo that only the log has | losers undone, prepared ones restored | names loaded
 * Only the end of it may be a new page, so page ids come before.
 */
#include "base/log.h"
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "cat/cat.h"
#include "dev/dev.h"
#include "page/page.h"
#include "reg/reg.h"
#include "space/map.h"
#include "store/store.h"
#include "txn/txn.h"
#include "ver/ver.h"
#include "wal/wal.h"

enum {
    SWEEP_WAIT_NS = 20 * 1000 * 1000,
    UNDO_LOG_SHARE = 16, /* undo of all open transactions that only the log has, as a part of it */
    RECOVERY_LOG_PERCENT = 40,
    VERSION_CACHE_SHARE = 4,
    VERSION_BYTES_MIN = 4 << 20,
};

static uint64_t
version_bytes(const struct db *db)
{
    if (db->opts.version_bytes != 0)
        return db->opts.version_bytes;
    return ch_max_u64(db->opts.cache_bytes / VERSION_CACHE_SHARE, VERSION_BYTES_MIN);
}

static int
before_write(void *arg)
{
    struct db *db = arg;

    if (CH_UNLIKELY(atomic_load_explicit(&db->error, memory_order_acquire) != 0))
        return boot_writable(db);
    return boot_poll(db);
}

/* In recovery: undo of a transaction may be longer than the log, which nobody else cuts yet. */
static int
recovery_room(void *arg)
{
    struct db *db = arg;
    uint64_t used, size;

    wal_usage(db->wal, &used, &size);
    return used * 100 < size * RECOVERY_LOG_PERCENT ? 0 : boot_checkpoint(db, false);
}

static void
log_failed(void *arg, int rc)
{
    boot_set_error(arg, rc);
}

static int
make_managers(struct db *db)
{
    struct ver_config vc = {
        .bytes_max = version_bytes(db),
        .slots_max = (unsigned)db->opts.transactions_max,
        .horizon = wal_end(db->wal),
        .next_id = ch_max_u64(db->root.next_txn, 1),
    };
    struct reg_config rc_cfg = {.buf = db->buf, .wal = db->wal, .store = db->store};
    struct txns_config tc = {
        .wal = db->wal,
        .lock_timeout_ms = db->opts.lock_timeout_ms,
        .durability = (int)db->opts.durability,
        .undo_bytes_max = db->root.log_bytes / UNDO_LOG_SHARE,
        .txns_max = (unsigned)db->opts.transactions_max,
        .before_write = before_write,
        .room = recovery_room,
        .failed = log_failed,
        .arg = db,
    };
    int rc = ver_create(&vc, &db->ver);

    if (rc == 0) {
        rc_cfg.ver = db->ver;
        rc = reg_create(&rc_cfg, &db->reg);
    }
    if (rc == 0) {
        tc.ver = db->ver;
        tc.reg = db->reg;
        rc = txns_create(&tc, &db->txns);
    }
    if (rc == 0)
        rc = cat_create(db->reg, db->txns, db->ver, &db->cat);
    return rc;
}

static bool
keep_resident(void *arg, page_id pid)
{
    struct db *db = arg;

    return buf_is_resident(db->buf, pid);
}

/* An opening that was to make the internal trees of a database of format version 1 has not come to its end, so no root names
 * what it made: single pages, which nobody else can have. All pages are read. */
static int
free_half_made(struct db *db)
{
    struct map *map = store_map(db->store);
    page_id high = map_pid_high(map);
    int rc = 0;

    for (page_id pid = 1; rc == 0 && pid < high; pid++) {
        struct buf_ref ref;
        uint32_t tree;
        bool done;

        if (!map_pid_is_used(map, pid))
            continue;
        rc = buf_fix(db->buf, pid, BUF_SHARED, &ref);
        if (rc != 0)
            break;
        tree = page_tree(ref.page);
        buf_unfix(db->buf, &ref);
        if (tree >= REG_IDS && tree <= REG_UNDO)
            rc = reg_free_step(db->reg, tree, pid, false, 1, &done);
    }
    return rc;
}

static int
recover(struct db *db)
{
    lsn_t tail = db->root.epoch_start;
    int rc = store_reconcile(db->store);

    if (rc == 0)
        rc = recover_pass_redo(db, tail);
    if (rc != 0)
        return rc;
    map_pid_rebuild(store_map(db->store), keep_resident, db);
    rc = checkpoint_extend(db);
    if (cohort_class_of(rc) == COHORT_CLASS_NO_SPACE)
        rc = 0; /* no new pages, then */
    if (rc == 0 && db->half_made)
        rc = free_half_made(db);
    if (rc == 0)
        rc = reg_load(db->reg, &db->root.ids_root);
    if (rc == 0)
        rc = txns_recover_headers(db->txns);
    if (rc == 0)
        rc = recover_pass_undo(db, tail);
    if (rc == 0)
        rc = txns_recover_finish(db->txns);
    return rc;
}

static int
format(struct db *db)
{
    int rc = checkpoint_extend(db);

    return rc != 0 ? rc : reg_format(db->reg, &db->root.ids_root);
}

int
trees_open(struct db *db)
{
    int rc = make_managers(db);

    map_set_delta_limit(store_map(db->store), 0); /* until a checkpoint has told (allow_deltas()) */
    if (rc == 0)
        rc = db->fresh ? format(db) : recover(db);
    if (rc == 0) {
        ver_recovered(db->ver, wal_end(db->wal));
        rc = cat_load(db->cat);
    }
    if (rc != 0)
        trees_close(db);
    return rc;
}

void
trees_close(struct db *db)
{
    cat_destroy(db->cat);
    txns_destroy(db->txns);
    reg_destroy(db->reg);
    ver_destroy(db->ver);
    db->cat = NULL;
    db->txns = NULL;
    db->reg = NULL;
    db->ver = NULL;
}

/* ---- sweeping ---- */

/* One step of each kind. A full device, or a record that is locked, is no failure: another time. */
static int
sweep_step(struct db *db, bool *did)
{
    bool more = false;
    int rc = txns_step(db->txns, did);

    if (rc == 0)
        rc = cat_sweep_step(db->cat, &more);
    *did = *did || more;
    if (cohort_class_of(rc) == COHORT_CLASS_NO_SPACE ||
        cohort_class_of(rc) == COHORT_CLASS_CONFLICT) {
        *did = false;
        rc = 0;
    }
    return rc;
}

int
trees_sweep(struct db *db, unsigned steps)
{
    bool did = true;
    int rc = 0;

    for (unsigned i = 0; rc == 0 && did && i < steps; i++) {
        did = false;
        rc = sweep_step(db, &did);
    }
    return rc;
}

void
sweep_thread(void *arg)
{
    struct db *db = arg;
    bool did;
    int rc;

    while (!atomic_load_explicit(&db->stop, memory_order_acquire)) {
        did = false;
        rc = boot_writable(db);
        rt_lock(&db->sweep);
        if (rc == 0)
            rc = sweep_step(db, &did);
        rt_unlock(&db->sweep);
        if (rc != 0) {
            if (cohort_class_of(rc) != COHORT_CLASS_FAILED)
                boot_set_error(db, rc);
            return;
        }
        if (did)
            continue;
        rt_lock(&db->stop_lock);
        if (!atomic_load_explicit(&db->stop, memory_order_acquire))
            (void)rt_wait_for(&db->stop_cond, &db->stop_lock, SWEEP_WAIT_NS);
        rt_unlock(&db->stop_lock);
    }
}
