/* boot.c - opening and closing as one table of steps.
 *
 *   step        new database                           existing one
 *   root        choose the layout                      read the root record
 *   memory      checkpoint buffer                      same
 *   store       empty store                            same; double-write repair (R20) before the map is used
 *   arrays      extents of map and zone table          from the root; checkpoint loaded
 *   log         first epoch                            pass 1, then a new epoch behind the tail (R10)
 *   cache       page cache
 *   trees       format the internal trees              zones reconciled, pass 2, page ids rebuilt, pass 3, undo
 *   checkpoint  first root record                      cuts the log that was replayed
 *   threads     cleaner, checkpoints, delayed flushes, sweeper
 *
 * Each step that fails is undone together with those before it, in reverse order. A crash while a database is created
 * leaves no valid root record: the next opener sees a blank device and, if asked to, creates it again; or, when the
 * power went while the first root record was written, a device that is not blank, which takes `force`.
 */
#include "base/bug.h"
#include "base/log.h"
#include "base/options.h"
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "store/store.h"
#include "txn/txn.h"
#include "wal/wal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum {
    BOOT_ZONES_MIN = 16,
    BOOT_HOMES_MIN =
        96, /* in place: pages of an empty database, those kept for undo, and as many to work with */
    BOOT_ZONES_FIRST = 8, /* of a growing file */
    BOOT_FRAMES_PER_BATCH = 64,
    BOOT_PAGES_PER_SLOT = 8, /* page ids per slot of capacity: compression beyond 8 is not used */
    BOOT_POLL_PERCENT_MAX = 40,
    BOOT_POLL_SWEEPS = 2,
    BOOT_KEEP_SHARE = 64, /* of the device's pages are kept for undo and deletes */
    BOOT_KEEP_MIN = 16,
    BOOT_KEEP_MAX = 4096,
};

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
/* What an unbounded file is laid out for; it may still grow to what the file system holds. */
#define BOOT_FILE_BYTES (2 * KIB * MIB)

/* ---- layout ---- */

bool
boot_is_inplace(const struct db *db)
{
    return db->root.preset == COHORT_PRESET_INPLACE ||
           db->root.preset == COHORT_PRESET_INPLACE_ATOMIC;
}

/* Of options that were resolved. */
static enum pack_codec
choose_codec(uint64_t codec)
{
    switch (codec) {
    case COHORT_CODEC_LZ4:
        return PACK_LZ4;
    case COHORT_CODEC_ZSTD:
        return PACK_ZSTD;
    default:
        return PACK_NONE;
    }
}

static uint64_t
layout_bytes(const struct db *db)
{
    const struct dev_caps *caps = dev_caps(db->dev);

    return caps->growable && db->opts.max_bytes == 0 ? ch_min_u64(caps->bytes, BOOT_FILE_BYTES)
                                                     : caps->bytes;
}

static int
layout_new(struct db *db)
{
    const struct dev_caps *caps = dev_caps(db->dev);
    struct meta_root *r = &db->root;
    uint64_t bytes = layout_bytes(db);
    uint64_t zones_min;
    int rc;

    if (caps->sequential_only) {
        errno = 0;
        return CH_FAIL(COHORT_EUNSUPPORTED, "%s: a database on a zoned device", dev_name(db->dev));
    }
    if (!ch_preset_is_whole(db->opts.preset)) {
        errno = 0;
        return CH_FAIL(COHORT_EUNSUPPORTED,
                       "%s: the way of writing of this preset is not built yet", dev_name(db->dev));
    }
    r->db_id = rt_random() | 1;
    r->format_version = META_VERSION;
    r->preset = (uint32_t)db->opts.preset;
    r->codec = (uint32_t)choose_codec(db->opts.codec);
    r->device_bytes = caps->growable ? 0 : caps->bytes;
    r->unit_bytes = caps->unit_bytes;
    r->zone_bytes = db->opts.zone_bytes;
    if (r->zone_bytes == 0)
        r->zone_bytes = ch_clamp_u64(bytes / 1024, 256 * KIB, 64 * MIB) / (64 * KIB) * (64 * KIB);
    if (r->zone_bytes % CH_PAGE_BYTES != 0 || r->zone_bytes < 64 * KIB)
        return CH_FAIL(COHORT_EOPTION,
                       "zone_bytes %" PRIu64 ": not a multiple of 4096 of at least 64K",
                       r->zone_bytes);
    r->log_bytes = db->opts.log_bytes;
    if (r->log_bytes == 0)
        r->log_bytes = ch_clamp_u64(bytes / (caps->growable && db->opts.max_bytes == 0 ? 64 : 32),
                                    MIB, 256 * MIB);
    rc = log_layout(db, r->log_bytes);
    if (rc != 0)
        return rc;
    zones_min = BOOT_ZONES_MIN + log_zones_max(db);
    if (caps->bytes < r->zones_base || (caps->bytes - r->zones_base) / r->zone_bytes < zones_min)
        return CH_FAIL(COHORT_EMISMATCH,
                       "%s: %" PRIu64 " bytes are too few for a log of %" PRIu64 " and %" PRIu64
                       " zones of %" PRIu64,
                       dev_name(db->dev), caps->bytes, r->log_bytes, zones_min, r->zone_bytes);
    r->zones = caps->growable ? BOOT_ZONES_FIRST
                              : (uint32_t)((caps->bytes - r->zones_base) / r->zone_bytes);
    /* Home slots lie behind arrays that are sized once, so what a file may hold is fixed here. */
    if (boot_is_inplace(db))
        r->inplace_zones = (uint32_t)((bytes - r->zones_base) / r->zone_bytes);
    return 0;
}

static uint32_t
zones_max(const struct db *db)
{
    uint64_t n = (dev_caps(db->dev)->bytes - db->root.zones_base) / db->root.zone_bytes;

    if (db->root.inplace_zones != 0)
        return db->root.inplace_zones;
    return (uint32_t)ch_clamp_u64(n, db->root.zones, UINT32_MAX / 2);
}

/* Options that were fixed at creation must agree or be left open. */
static int
match_options(const struct db *db)
{
    const struct meta_root *r = &db->root;

    if (r->preset > COHORT_PRESET_SINGLE || r->codec > PACK_ZSTD)
        return CH_FAIL(COHORT_EVERSION,
                       "%s: preset %" PRIu32 " or codec %" PRIu32 " is of a newer version",
                       dev_name(db->dev), r->preset, r->codec);
    if (db->opts.preset != COHORT_PRESET_COHORT && db->opts.preset != r->preset)
        return CH_FAIL(COHORT_EMISMATCH,
                       "%s: created with another preset (%" PRIu32 ", not %" PRIu64 ")",
                       dev_name(db->dev), r->preset, db->opts.preset);
    if (db->opts.zone_bytes != 0 && db->opts.zone_bytes != r->zone_bytes)
        return CH_FAIL(COHORT_EMISMATCH, "%s: zone_bytes is %" PRIu64 " since creation",
                       dev_name(db->dev), r->zone_bytes);
    return log_match_options(db);
}

/* The options of this opening, by the preset and the codec of creation where they leave it open. */
static void
resolve_options(struct db *db)
{
    if (db->opts.codec == COHORT_CODEC_DEFAULT)
        db->opts.codec = COHORT_CODEC_NONE + db->root.codec; /* both count none, lz4, zstd */
    ch_options_resolve(&db->opts, db->root.preset);
}

static int
load_root(struct db *db)
{
    int rc = meta_load(db->dev, &db->root);

    if (rc != 0)
        return rc;
    db->half_made = db->root.format_version > 1 && db->root.ids_root == 0;
    rc = match_options(db);
    if (rc == 0)
        resolve_options(db);
    return rc;
}

static int
step_root(struct db *db)
{
    static const uint8_t zeroes[CH_PAGE_BYTES] __attribute__((aligned(4096)));
    int rc;

    if (!db->fresh)
        return load_root(db);
    ch_options_resolve(&db->opts, db->opts.preset);
    rc = layout_new(db);
    if (rc != 0)
        return rc;
    /* The log has its blocks from the start; the zones get theirs as they are opened (R11). */
    rc = dev_allocate(db->dev, 0, db->root.zones_base);
    if (rc == 0)
        rc = dev_allocate(db->dev,
                          db->root.zones_base + (uint64_t)db->root.zones * db->root.zone_bytes -
                              CH_PAGE_BYTES,
                          CH_PAGE_BYTES);
    /* Roots of an earlier database must not win over ours. */
    if (rc == 0)
        rc = dev_write(db->dev, 0, zeroes, sizeof(zeroes), CH_META);
    if (rc == 0)
        rc = dev_write(db->dev, META_ROOT_BYTES / 2, zeroes, sizeof(zeroes), CH_META);
    return rc != 0 ? rc : dev_flush(db->dev);
}

/* ---- memory, store, arrays ---- */

static int
step_memory(struct db *db)
{
    db->ckpt_buf = ch_alloc_aligned((size_t)2 * META_WRITE_MAX * META_PAGE_PAYLOAD);
    if (db->ckpt_buf == NULL)
        return CH_FAIL(COHORT_ENOMEM, "checkpoint buffer");
    return 0;
}

size_t
boot_memory(const struct db *db)
{
    return sizeof(*db) + (size_t)2 * META_WRITE_MAX * META_PAGE_PAYLOAD +
           store_zone_pages(db->store) * sizeof(*db->zone_page_crc);
}

static void
undo_memory(struct db *db)
{
    ch_free_aligned(db->ckpt_buf);
    free(db->zone_page_crc);
}

static uint64_t
array_zones(const struct db *db, uint64_t pages)
{
    return ch_div_up(pages * 2 * CH_PAGE_BYTES, db->root.zone_bytes);
}

/* In place: zones that each array takes, sized at creation for all that the device may hold. */
static void
inplace_array_zones(const struct db *db, uint64_t *map_zones, uint64_t *table_zones)
{
    uint64_t slots = db->root.zone_bytes / CH_PAGE_BYTES;
    uint32_t zmax = zones_max(db);

    *map_zones = array_zones(db, ch_div_up(zmax * slots, MAP_PAGE_ENTRIES) + 1);
    *table_zones = array_zones(db, zmax / 64 + 1);
}

/* In place, everything is laid out at creation: double-write area, extents, home slots. */
static void
inplace_layout(const struct db *db, uint32_t *first_zone, uint64_t *pages_max)
{
    uint64_t slots = db->root.zone_bytes / CH_PAGE_BYTES;
    uint32_t zmax = zones_max(db);
    uint64_t dbl = store_inplace_dblwr_zones(db->root.zone_bytes);
    uint64_t map_zones = db->root.extent_count; /* of both, once it exists */
    uint64_t table_zones = 0;

    if (db->fresh)
        inplace_array_zones(db, &map_zones, &table_zones);
    *first_zone = (uint32_t)(dbl + map_zones + table_zones);
    *pages_max = zmax > *first_zone ? (zmax - *first_zone) * slots : 1;
}

static unsigned
batch_pages(const struct db *db)
{
    return (unsigned)ch_clamp_u64(db->opts.cache_bytes / CH_PAGE_BYTES / BOOT_FRAMES_PER_BATCH, 16,
                                  128);
}

_Static_assert((int)COHORT_PLACEMENT_LOG - 1 == (int)PLACE_LOG &&
                   (int)COHORT_PLACEMENT_NONE - 1 == (int)PLACE_NOSEP &&
                   (int)COHORT_VICTIM_GREEDY - 1 == (int)VICTIM_GREEDY &&
                   (int)COHORT_VICTIM_MDC - 1 == (int)VICTIM_MDC,
               "options and policies are listed in the same order");

static void
placement_options(const struct db *db, struct store_config *cfg)
{
    const struct cohort_options *o = &db->opts;

    cfg->slots = (enum store_slots)o->slots;
    cfg->placement = (enum place_policy)(o->placement - COHORT_PLACEMENT_NONE);
    cfg->victim = (enum victim_policy)(o->victim - COHORT_VICTIM_GREEDY);
    cfg->header_history = o->history == COHORT_HISTORY_HEADER;
    cfg->no_priors = o->prior == COHORT_PRIOR_NO;
    cfg->gc_unsorted = o->gc_sort == COHORT_GC_SORT_NO;
    cfg->classes = (unsigned)o->classes;
    cfg->open_zones = (unsigned)o->open_zones;
}

static int
step_store(struct db *db)
{
    const struct dev_caps *caps = dev_caps(db->dev);
    struct store_config cfg = {
        .kind = boot_is_inplace(db) ? STORE_INPLACE : STORE_OOP,
        .double_write = db->root.preset == COHORT_PRESET_INPLACE,
        .dev = db->dev,
        .codec = choose_codec(db->opts.codec),
        .codec_level = (int)db->opts.codec_level,
        .zones_base = db->root.zones_base,
        .zone_bytes = db->root.zone_bytes,
        .zones_max = zones_max(db),
        .log_zones = log_zones_max(db),
        .batch_pages = batch_pages(db),
        .space_target = (unsigned)db->opts.space_target,
        .growable = caps->growable,
        .discard = db->opts.discard != 0,
        .deltas = db->opts.delta == COHORT_DELTA_ON && !boot_is_inplace(db),
        .delta_memory = db->opts.delta_memory_bytes,
        .delta_percent = (unsigned)db->opts.delta_percent,
        .device_spare = (unsigned)db->opts.device_spare,
    };
    int rc;

    placement_options(db, &cfg);
    if (cfg.kind == STORE_INPLACE) {
        inplace_layout(db, &cfg.inplace_first_zone, &cfg.pages_max);
        if (db->fresh && cfg.pages_max < BOOT_HOMES_MIN)
            return CH_FAIL(COHORT_EMISMATCH,
                           "%s: %" PRIu64 " bytes leave room for %" PRIu64
                           " pages in place, fewer than %d",
                           dev_name(db->dev), caps->bytes, cfg.pages_max, BOOT_HOMES_MIN);
        cfg.zones = cfg.zones_max;
        /* Home slots of a file come to exist when they are written. */
        db->root.zones = caps->growable ? cfg.inplace_first_zone : cfg.zones;
    } else {
        uint64_t slots = (uint64_t)cfg.zones_max * (cfg.zone_bytes / CH_PAGE_BYTES);
        uint64_t size = dev_size(db->dev);

        /* A file may have grown since the last checkpoint. */
        if (caps->growable && size > cfg.zones_base)
            db->root.zones = (uint32_t)ch_clamp_u64((size - cfg.zones_base) / cfg.zone_bytes,
                                                    db->root.zones, cfg.zones_max);
        cfg.zones = db->root.zones;
        cfg.pages_max = slots * BOOT_PAGES_PER_SLOT;
    }
    rc = store_create(&cfg, &db->store);
    if (rc != 0)
        return rc;
    if (db->fresh)
        rc = store_format(db->store);
    else
        rc = store_repair(db->store, &db->repaired_pages); /* R20: before pass 1 */
    if (rc != 0) {
        store_destroy(db->store);
        db->store = NULL;
    }
    return rc;
}

static void
undo_store(struct db *db)
{
    store_destroy(db->store);
}

static void
undo_arrays(struct db *db)
{
    for (int i = 0; i < META_ARRAYS; i++)
        meta_array_destroy(db->arrays[i]);
}

static int
step_arrays(struct db *db)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < META_ARRAYS; i++)
        rc = meta_array_create(db->dev, (enum meta_array_id)i, &db->root, &db->arrays[i]);
    if (rc == 0 && db->fresh && boot_is_inplace(db)) {
        uint64_t map_zones;
        uint64_t table_zones;

        inplace_array_zones(db, &map_zones, &table_zones);
        for (uint64_t i = 0; rc == 0 && i < map_zones + table_zones; i++) {
            zone_id z;

            rc = zone_take_meta(store_zones(db->store), &z);
            if (rc == 0)
                rc = meta_array_extend(db->arrays[i < map_zones ? META_MAP : META_ZONES], z,
                                       &db->root);
        }
    }
    if (rc == 0 && !db->fresh)
        rc = checkpoint_load(db);
    if (rc != 0)
        undo_arrays(db);
    return rc;
}

/* ---- cache ---- */

/* Undo of the log's share, and rows of the undo tree for deletes in transactions of a fair size. */
static uint64_t
keep_pages(const struct db *db)
{
    uint64_t pages = layout_bytes(db) / CH_PAGE_BYTES / BOOT_KEEP_SHARE;

    return ch_clamp_u64(pages, BOOT_KEEP_MIN, BOOT_KEEP_MAX);
}

static int
step_cache(struct db *db)
{
    struct buf_config cfg = {
        .store = db->store,
        .wal = db->wal,
        .cache_bytes = db->opts.cache_bytes,
        .pages_max = map_pages_max(store_map(db->store)),
        .batch_pages = batch_pages(db),
        .keep_pages = keep_pages(db),
        .background = db->opts.background != 0,
    };

    return buf_create(&cfg, &db->buf);
}

static void
undo_cache(struct db *db)
{
    buf_destroy(db->buf);
}

/* ---- threads ---- */

/* Keeps async's bound, and flushes ahead of writers who need no flush of their own. */
static void
flush_thread(void *arg)
{
    struct db *db = arg;
    uint64_t wakes = 0;

    while (!atomic_load_explicit(&db->stop, memory_order_acquire)) {
        bool half = wal_half_full(db->wal, db->opts.async_ms * 1000000 / 2 + 1, &wakes);
        lsn_t upto = half ? wal_end(db->wal) : txns_async_lsn(db->txns);

        if (wal_durable(db->wal) < upto) {
            int rc = wal_flush(db->wal, upto);

            if (rc != 0)
                boot_set_error(db, rc);
        }
    }
}

static void
undo_threads(struct db *db)
{
    atomic_store_explicit(&db->stop, true, memory_order_release);
    rt_lock(&db->stop_lock);
    rt_broadcast(&db->stop_cond);
    rt_unlock(&db->stop_lock);
    wal_wake(db->wal);
    if (db->flush_running)
        rt_join(&db->flush_thread);
    if (db->sweep_running)
        rt_join(&db->sweep_thread);
    /* Last: the others may be waiting for room in the log, which only checkpoints make. */
    atomic_store_explicit(&db->ckpt_stop, true, memory_order_release);
    wal_wake(db->wal);
    if (db->ckpt_running)
        rt_join(&db->ckpt_thread);
    db->ckpt_running = db->flush_running = db->sweep_running = false;
    buf_stop(db->buf);
}

static int
step_threads(struct db *db)
{
    int rc;

    if (db->opts.background == 0)
        return 0;
    rc = buf_start(db->buf);
    if (rc == 0) {
        rc = rt_spawn(&db->ckpt_thread, "ch-checkpoint", checkpoint_thread, db);
        db->ckpt_running = rc == 0;
        if (rc == 0)
            wal_set_cutter(db->wal, NULL, NULL);
    }
    if (rc == 0) {
        rc = rt_spawn(&db->sweep_thread, "ch-sweep", sweep_thread, db);
        db->sweep_running = rc == 0;
    }
    if (rc == 0) { /* transactions may ask for durability=async one by one */
        rc = rt_spawn(&db->flush_thread, "ch-flush", flush_thread, db);
        db->flush_running = rc == 0;
    }
    if (rc != 0)
        undo_threads(db);
    return rc;
}

static int
step_checkpoint(struct db *db)
{
    int rc = boot_checkpoint(db, db->fresh);

    if (rc == 0)
        wal_set_recovering(db->wal, false);
    return rc;
}

/* ---- the table ---- */

static const struct step {
    const char *name;
    int (*run)(struct db *db);
    void (*undo)(struct db *db);
} steps[] = {
    {"root", step_root, NULL},
    {"memory", step_memory, undo_memory},
    {"store", step_store, undo_store},
    {"arrays", step_arrays, undo_arrays},
    {"log", log_open, log_close},
    {"cache", step_cache, undo_cache},
    {"trees", trees_open, trees_close},
    {"checkpoint", step_checkpoint, NULL},
    {"threads", step_threads, undo_threads},
};

static void
undo_steps(struct db *db, size_t done)
{
    while (done-- > 0)
        if (steps[done].undo != NULL)
            steps[done].undo(db);
    rt_cond_fini(&db->stop_cond);
    rt_mutex_fini(&db->stop_lock);
    rt_mutex_fini(&db->ckpt);
    rt_mutex_fini(&db->sweep);
    dev_close(db->dev);
    free(db);
}

int
boot_open(struct dev *dev, const struct cohort_options *o, bool create, struct db **out)
{
    struct db *db = calloc(1, sizeof(*db));
    int rc = 0;
    size_t i;

    if (db == NULL) {
        dev_close(dev);
        return CH_FAIL(COHORT_ENOMEM, "database handle");
    }
    db->dev = dev;
    db->opts = *o;
    db->fresh = create;
    rt_mutex_init(&db->ckpt, RT_RANK_CHECKPOINT, 0);
    rt_mutex_init(&db->sweep, RT_RANK_DB, 0);
    rt_mutex_init(&db->stop_lock, RT_RANK_STATS, 0);
    rt_cond_init(&db->stop_cond);
    dev_physical(dev, &db->base_host, &db->base_media);
    for (i = 0; i < CH_ARRAY_LEN(steps); i++) {
        rc = steps[i].run(db);
        if (rc != 0) {
            ch_log(COHORT_LOG_WARNING, "open: step %s failed: %s", steps[i].name,
                   cohort_strerror(rc));
            undo_steps(db, i);
            return rc;
        }
    }
    *out = db;
    return 0;
}

int
boot_close(struct db *db)
{
    int rc;

    undo_threads(db);
    rc = boot_writable(db);
    if (rc == 0) {
        db->root.clean = true;
        rc = boot_checkpoint(db, true);
    }
    undo_steps(db, CH_ARRAY_LEN(steps) - 1);
    return rc;
}

void
boot_kill(struct db *db)
{
    undo_steps(db, CH_ARRAY_LEN(steps));
}

/* ---- state ---- */

void
boot_set_error(struct db *db, int rc)
{
    int none = 0;

    if (atomic_compare_exchange_strong_explicit(&db->error, &none, rc, memory_order_acq_rel,
                                                memory_order_relaxed))
        ch_log(COHORT_LOG_ERROR, "%s: read-only from now on: %s: %s", dev_name(db->dev),
               cohort_strerror(rc), cohort_last_error()->text);
    /* No checkpoint will pass any more: whoever waits for room in the log must not wait for ever. */
    wal_set_uncut(db->wal);
}

int
boot_writable(struct db *db)
{
    int rc = atomic_load_explicit(&db->error, memory_order_acquire);
    int cleaner = buf_error(db->buf);

    if (cohort_class_of(cleaner) == COHORT_CLASS_NO_SPACE)
        cleaner = 0; /* passes */
    if (rc == 0 && !wal_failed(db->wal) && cleaner == 0)
        return 0;
    if (rc == 0)
        boot_set_error(db, cleaner != 0 ? cleaner : COHORT_EFAILED);
    return CH_FAIL(COHORT_EFAILED, "%s: read-only after an earlier failure", dev_name(db->dev));
}

/* background=no: what the flush thread does, for commits with durability=async, as far as somebody calls. */
static int
poll_async(struct db *db)
{
    lsn_t lsn = txns_async_lsn(db->txns);
    uint64_t due, now;

    if (lsn == 0 || wal_durable(db->wal) >= lsn) {
        atomic_store_explicit(&db->async_due, 0, memory_order_relaxed);
        return 0;
    }
    due = atomic_load_explicit(&db->async_due, memory_order_relaxed);
    now = rt_now_ns();
    if (due == 0)
        atomic_store_explicit(&db->async_due, now + db->opts.async_ms * 1000000,
                              memory_order_relaxed);
    if (due == 0 || now < due)
        return 0;
    atomic_store_explicit(&db->async_due, 0, memory_order_relaxed);
    return wal_flush(db->wal, lsn);
}

int
boot_poll(struct db *db)
{
    uint64_t used;
    uint64_t size;
    bool idle = false;
    int rc = 0;

    if (db->opts.background != 0)
        return 0;
    /* The sweeper's own writes come here too. */
    if (atomic_compare_exchange_strong_explicit(&db->polling, &idle, true, memory_order_relaxed,
                                                memory_order_relaxed)) {
        rc = trees_sweep(db, BOOT_POLL_SWEEPS);
        atomic_store_explicit(&db->polling, false, memory_order_relaxed);
        if (rc != 0)
            return rc;
    }
    rc = poll_async(db);
    if (rc != 0) {
        boot_set_error(db, rc);
        return rc;
    }
    wal_usage(db->wal, &used, &size);
    /* Nobody can wait for room here, so the largest record, a quarter of the log, must always fit the users' share. */
    if (used * 100 < size * ch_min_u64(db->opts.checkpoint_percent, BOOT_POLL_PERCENT_MAX))
        return 0;
    rc = boot_checkpoint(db, false);
    return cohort_class_of(rc) == COHORT_CLASS_NO_SPACE ? 0 : rc;
}
