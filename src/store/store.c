/* store.c - what both ways to write share: reading, publication, page ids, MAP records.
 *
 *      map  (page id -> place, memory)           zone table (live bytes, states, pins; memory)
 *        \        MAP records in the log        /
 *         `------ change together, under the pages' shard locks ------'
 *
 * MAP record, log type STORE_RECORD_MAP:
 *     0 1 version    1 1 flags, 0    2 2 count n    then n x { 6 page id | 8 place, 0 = none }
 * version 1 has places without flags: the page's full image, and no delta. Version 2, written where there are some: PLACE_DELTA
 * = the page's delta, its base stays; PLACE_KEEP = its base has moved, its delta stays.
 * Entries are absolute, so that replay needs no order against the checkpoint's map pages (R7).
 *
 * Invariants (DESIGN 3):
 *   S1  live bytes leave a zone with the LSN of the record that took them out; zone_next_dead() hands the
 *       zone out only when that LSN is durable and no reader pins it (store_move_live(), gc.c).
 *   S2  store_write() asserts that the log is durable up to each page's LSN.
 *   S3  a zone's live bytes = sum over the places mapped into it; store_verify() recounts.
 *   S8  a MAP record is appended and the map changed under the same hold of the shard locks.
 *   R6  a batch is published only after a device flush that began after its write; asserted.
 *   R8  log room is reserved before the shard locks; under them only wal_append(), which never waits.
 *   R17 a reader pins the zone and reads the map again: unchanged means the slot can't be reset.
 *
 * Locks: s->lock (rank GC) makes store_write() and gc steps one at a time, because they share buffers and zone
 * reservations. store_publish() and store_pid_free() need only shard locks: GC filters its moves under the same
 * locks, and spans in flight keep a zone from GC (Z2). s->lock is never held while waiting for log
 * room: the checkpoint that makes room must be able to write pages.
 *
 * Crash: everything here is memory. What recovery sees is the checkpoint's map plus the MAP records after it.
 */
#include "base/bug.h"
#include "store/store_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "page/page.h"

/* ---- places ---- */

zone_id
store_zone_of(const struct store *s, place_t p)
{
    uint64_t first = s->cfg.zones_base / CH_SLOT_BYTES;
    uint64_t slot = place_slot(p);

    if (slot < first || (slot - first) / s->zone_slots >= s->cfg.zones_max)
        return CH_ZONE_NONE;
    return (zone_id)((slot - first) / s->zone_slots);
}

/* An image that goes on in the next slot is no raw page, and stays within its zone (S4). */
static bool
crosses_well(const struct store *s, place_t p)
{
    uint64_t slot = place_slot(p) - s->cfg.zones_base / CH_SLOT_BYTES;

    return place_bytes(p) <= PACK_IMAGE_MAX && slot % s->zone_slots + 1 < s->zone_slots;
}

int
store_place_check(const struct store *s, page_id pid, place_t p)
{
    if (store_zone_of(s, p) == CH_ZONE_NONE || place_bytes(p) == 0 || (p & 0x7f) != 0 ||
        (place_crosses(p) && !crosses_well(s, p)))
        return CH_FAIL(COHORT_EMAP, "page %" PRIu64 ": place %#" PRIx64 " lies in no data zone",
                       pid, p);
    return 0;
}

/* ---- MAP records and publication ---- */

uint64_t
store_map_bytes(unsigned n)
{
    return WAL_RECORD_HEADER + STORE_RECORD_HEADER + (uint64_t)n * STORE_RECORD_ENTRY;
}

int
store_map_room(struct store *s, unsigned n, struct wal_ticket *t)
{
    int rc = wal_reserve(s->wal, WAL_MAP, store_map_bytes(CH_BUG(R8_NO_ROOM) ? 1 : n), t); /* R8 */

    return rc == COHORT_EFULL ? 0 : rc; /* R11: without a record then */
}

/* A shard lock is held, so the round cannot end before the change is in the map. */
static lsn_t
unlogged(struct store *s)
{
    uint64_t round = atomic_load_explicit(&s->round_now, memory_order_relaxed);

    atomic_store_explicit(&s->unlogged_round, round, memory_order_release);
    return STORE_UNLOGGED + round;
}

lsn_t
store_map_append(struct store *s, struct wal_ticket *t, const page_id *pids, const place_t *places,
                 unsigned n)
{
    uint8_t record[STORE_RECORD_BYTES];
    struct wal_part part = {.data = record};

    CH_ASSERT(n > 0 && n <= CH_BATCH_MAX);
    if (t->bytes == 0)
        return unlogged(s);
    record[0] = 1;
    record[1] = 0;
    ch_put16(record + 2, (uint16_t)n);
    for (unsigned i = 0; i < n; i++) {
        uint8_t *e = record + STORE_RECORD_HEADER + i * STORE_RECORD_ENTRY;

        ch_put48(e, pids[i]);
        ch_put64(e + 6, places == NULL ? PLACE_NONE : places[i]);
        if (places != NULL && (places[i] & PLACE_FLAGS) != 0)
            record[0] = STORE_RECORD_VERSION;
    }
    part.bytes = STORE_RECORD_HEADER + n * STORE_RECORD_ENTRY;
    return wal_append(s->wal, t, STORE_RECORD_MAP, CH_META, &part, 1);
}

uint64_t
store_checkpoint_begin(struct store *s)
{
    uint64_t round;

    map_lock(s->map, UINT64_MAX);
    round = atomic_fetch_add_explicit(&s->round_now, 1, memory_order_relaxed);
    map_unlock(s->map, UINT64_MAX);
    return round;
}

void
store_checkpoint_covers(struct store *s, uint64_t round)
{
    atomic_store_explicit(&s->covered_round, round, memory_order_release);
}

void
store_checkpoint_done(struct store *s, uint64_t round)
{
    if (atomic_load_explicit(&s->unlogged_round, memory_order_acquire) == 0)
        return;
    zone_settle(s->zones, STORE_UNLOGGED, STORE_UNLOGGED + round, wal_end(s->wal));
    /* Nothing later was published without a record: no more to look for. */
    (void)atomic_compare_exchange_strong_explicit(&s->unlogged_round, &round, 0,
                                                  memory_order_acq_rel, memory_order_relaxed);
}

lsn_t
store_mark(struct store *s)
{
    uint64_t round = atomic_load_explicit(&s->unlogged_round, memory_order_acquire);

    if (round > atomic_load_explicit(&s->covered_round, memory_order_acquire))
        return STORE_UNLOGGED + round;
    return wal_end(s->wal);
}

bool
store_mark_durable(struct store *s, lsn_t mark, lsn_t log_durable)
{
    if (mark < STORE_UNLOGGED)
        return mark <= log_durable;
    return mark - STORE_UNLOGGED <= atomic_load_explicit(&s->covered_round, memory_order_acquire);
}

uint64_t
store_shards(const page_id *pids, unsigned n)
{
    uint64_t mask = 0;

    for (unsigned i = 0; i < n; i++)
        mask |= UINT64_C(1) << map_shard(pids[i]);
    return mask;
}

/* S1, S3: the live bytes follow the map, with the LSN of the record that says so. In place nothing is counted. */
static void
move_live(struct store *s, place_t from, place_t to, lsn_t lsn)
{
    if (s->cfg.kind == STORE_INPLACE)
        return;
    if (to != PLACE_NONE)
        zone_live_add(s->zones, store_zone_of(s, to), place_bytes(to));
    if (from != PLACE_NONE && !(CH_BUG(S3_FREED_BYTES) && to == PLACE_NONE))
        zone_live_sub(s->zones, store_zone_of(s, from), place_bytes(from), lsn);
}

void
store_map_apply(struct store *s, page_id pid, place_t to, lsn_t lsn)
{
    place_t p = to & ~PLACE_FLAGS;
    place_t delta;

    if ((to & PLACE_DELTA) != 0) {
        move_live(s, map_set_delta(s->map, pid, p), p, lsn);
        if (CH_BUG(DELTA_BASE_FREED))
            move_live(s, map_get(s->map, pid), PLACE_NONE, lsn);
        return;
    }
    if ((to & PLACE_KEEP) != 0 || CH_BUG(DELTA_KEPT)) {
        move_live(s, map_set_base(s->map, pid, p), p, lsn);
        return;
    }
    delta = map_delta(s->map, pid);
    move_live(s, map_set(s->map, pid, p), p, lsn);
    move_live(s, delta, PLACE_NONE, lsn);
}

/* Under the shard locks of all n pages: the record, then the map (S8). */
static void
publish_locked(struct store *s, struct wal_ticket *t, const page_id *pids, const place_t *places,
               unsigned n)
{
    lsn_t lsn = store_map_append(s, t, pids, places, n);

    for (unsigned i = 0; i < n; i++)
        store_map_apply(s, pids[i], places == NULL ? PLACE_NONE : places[i], lsn);
    store_count(&s->changes, n);
}

/* In place an entry changes only when a page gets its first image; returns how many are left. */
static unsigned
publish_filter(struct store *s, const struct store_batch *b, page_id *pids, place_t *places)
{
    unsigned n = 0;

    for (unsigned i = 0; i < b->count; i++) {
        if (s->cfg.kind == STORE_INPLACE && map_get(s->map, b->pids[i]) == b->places[i])
            continue;
        pids[n] = b->pids[i];
        places[n++] = b->places[i];
    }
    return n;
}

int
store_publish(struct store *s, const struct store_batch *b)
{
    struct wal_ticket t = {0};
    page_id pids[CH_BATCH_MAX];
    place_t places[CH_BATCH_MAX];
    unsigned n;
    uint64_t shards;
    int rc;

    CH_ASSERT(store_ready(s, b)); /* R6 */
    CH_ASSERT(b->count <= CH_BATCH_MAX);
    /* One write in flight per page id (S9): nobody else publishes these pages between filter and lock. */
    n = publish_filter(s, b, pids, places);
    if (n > 0) {
        rc = store_map_room(s, n, &t);
        if (rc != 0)
            return rc;
        shards = store_shards(pids, n);
        shards = CH_BUG(S8_NO_SHARD_LOCK) ? 0 : shards;
        map_lock(s->map, shards);
        publish_locked(s, &t, pids, places, n);
        map_unlock(s->map, shards);
        wal_release(s->wal, &t);
    }
    /* After the live bytes were added: a zone never looks empty and idle in between (Z2). */
    for (unsigned i = 0; i < b->span_count; i++)
        zone_commit(s->zones, &b->spans[i]);
    return 0;
}

void
store_drop(struct store *s, const struct store_batch *b)
{
    for (unsigned i = 0; i < b->span_count; i++)
        zone_abandon(s->zones, &b->spans[i], false);
}

bool
store_ready(struct store *s, const struct store_batch *b)
{
    return dev_flush_done(s->cfg.dev) >= b->flush_ticket || CH_BUG(R6_NO_WAIT);
}

int
store_write(struct store *s, struct store_page *pages, unsigned n, bool carry,
            struct store_batch *out)
{
    int rc;

    CH_ASSERT(n > 0 && n <= s->cfg.batch_pages);
    for (unsigned i = 0; i < n; i++) {
        CH_ASSERT(page_pid(pages[i].page) == pages[i].pid);
        CH_ASSERT(pages[i].lsn <= wal_durable(s->wal) || CH_BUG(S2_NO_LOG_FLUSH)); /* S2 */
        page_seal(pages[i].page);
    }
    rt_lock(&s->lock);
    rc = s->ops->write(s, pages, n, carry, out);
    rt_unlock(&s->lock);
    return rc;
}

/* ---- page ids ---- */

int
store_pid_alloc(struct store *s, page_id *out)
{
    page_id pid = 0;
    int rc = map_pid_alloc(s->map, &pid);

    if (rc != 0)
        return rc;
    rc = s->ops->pid_check(s, pid);
    if (rc == 0)
        rc = map_ensure(s->map, pid); /* so that publication can't fail */
    if (rc != 0)
        map_pid_free(s->map, pid);
    else
        *out = pid;
    return rc;
}

int
store_pid_note(struct store *s, page_id pid)
{
    int rc = s->ops->pid_check(s, pid);

    if (rc == 0)
        rc = map_ensure(s->map, pid);
    if (rc == 0)
        rc = map_pid_mark_used(s->map, pid);
    return rc;
}

int
store_pid_free(struct store *s, const page_id *pids, unsigned n)
{
    for (unsigned done = 0; done < n;) {
        unsigned k = n - done < CH_BATCH_MAX ? n - done : CH_BATCH_MAX;
        struct wal_ticket t = {0};
        uint64_t shards = store_shards(pids + done, k);
        int rc = store_map_room(s, k, &t);

        if (rc != 0)
            return rc;
        /* Logged even for pages without a place: replay learns from it that older records are void (R9). */
        map_lock(s->map, shards);
        if (!CH_BUG(R9_NO_VOID))
            publish_locked(s, &t, pids + done, NULL, k);
        map_unlock(s->map, shards);
        wal_release(s->wal, &t);
        for (unsigned i = 0; i < k; i++)
            map_pid_free(s->map, pids[done + i]);
        done += k;
    }
    return 0;
}

/* ---- garbage collection, admission ---- */

void
store_census(struct store *s)
{
    uint32_t out = 0;
    struct zone_info info;

    for (zone_id z = 0; z < zone_count(s->zones); z++) {
        zone_info(s->zones, z, &info);
        out += info.state == ZONE_META || info.state == ZONE_RETIRED ||
               (s->flags[z] & STORE_ZONE_BAD) != 0;
    }
    out += zone_log_aside(s->zones);
    atomic_store_explicit(&s->zones_out, out, memory_order_relaxed);
    placing_census(s);
    gc_census_trim(s);
}

int
store_gc_step(struct store *s, bool urgent, bool *did)
{
    struct wal_ticket t = {0};
    bool more;
    int rc;

    *did = false;
    if (s->cfg.kind == STORE_INPLACE)
        return 0;
    rt_lock(&s->lock);
    rc = gc_reset_dead(s, urgent, did);
    more = rc == 0 && (gc_wants_victim(s) || (urgent && !*did));
    rt_unlock(&s->lock);
    if (!more)
        return rc;
    rc = store_map_room(s, CH_BATCH_MAX, &t);
    /* Without records GC gives nothing back before the next checkpoint: only what must be is moved then. */
    if (rc != 0 || (t.bytes == 0 && !urgent))
        return rc;
    rt_lock(&s->lock);
    rc = gc_move_step(s, urgent, &t, did);
    rt_unlock(&s->lock);
    wal_release(s->wal, &t);
    return rc;
}

bool
store_gc_wanted(const struct store *s)
{
    return s->cfg.kind == STORE_OOP && gc_wants_victim(s);
}

bool
store_has_room(const struct store *s, uint64_t dirty_new, uint64_t new_pages)
{
    return s->ops->has_room(s, dirty_new, new_pages);
}

bool
store_deltas(const struct store *s)
{
    return s->cfg.deltas && s->cfg.kind == STORE_OOP;
}

bool
store_packs(const struct store *s)
{
    return atomic_load_explicit(&s->packs, memory_order_relaxed);
}

void
store_set_meta_bytes(struct store *s, uint64_t bytes)
{
    atomic_store_explicit(&s->meta_bytes, bytes, memory_order_relaxed);
}

int
store_repair(struct store *s, unsigned *repaired)
{
    *repaired = 0;
    return s->ops->repair(s, repaired);
}

int
store_format(struct store *s)
{
    int rc = s->ops->format(s);

    if (rc == 0)
        store_census(s);
    return rc;
}

/* ---- create, destroy, counters ---- */

static int
create_buffers(struct store *s)
{
    int rc;

    s->flags = ch_alloc_aligned(s->cfg.zones_max * sizeof(*s->flags));
    if (s->flags == NULL)
        return CH_FAIL(COHORT_ENOMEM, "flags of %u zones", s->cfg.zones_max);
    if (s->cfg.kind == STORE_INPLACE) {
        s->ip.buf = ch_alloc_aligned((size_t)(1 + s->cfg.batch_pages) * CH_PAGE_BYTES);
        return s->ip.buf != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "double-write buffer");
    }
    s->gc.buf = ch_alloc_aligned((size_t)s->chunk_slots * CH_SLOT_BYTES);
    if (s->gc.buf == NULL)
        return CH_FAIL(COHORT_ENOMEM, "buffers of garbage collection");
    rc = gc_fold_create(s);
    if (rc == 0)
        rc = delta_cache_create(s);
    if (rc == 0)
        rc = placing_create(s);
    return rc == 0 ? store_codecs_create(s) : rc;
}

/* Two runs fit into a zone, or there are none. */
static uint32_t
choose_run_max(const struct store *s)
{
    uint32_t max = (uint32_t)ch_min_u64(PACK_RUN_SLOTS_MAX, s->zone_slots / 2);

    return s->cfg.slots == STORE_SLOTS_4K || max < 2 ? 0 : max;
}

static uint32_t
choose_reserve(const struct store_config *cfg)
{
    if (cfg->kind == STORE_INPLACE)
        return 0;
    return cfg->zones_max >= 8 ? 2 : 1; /* why: gc.c, S6 */
}

static int
create_tables(struct store *s)
{
    const struct store_config *cfg = &s->cfg;
    struct zone_config zc = {
        .first_slot = cfg->zones_base / CH_SLOT_BYTES,
        .slots = s->zone_slots,
        .zones_max = cfg->zones_max,
        .zones = cfg->zones,
        .reserve = s->reserve,
        .shared = cfg->placement == PLACE_NOSEP || cfg->placement == PLACE_LOG,
        .open_max = 1,
        .log_zones = cfg->log_zones,
    };
    int rc = map_create(cfg->pages_max, &s->map);

    if (rc == 0)
        rc = zone_table_create(&zc, &s->zones);
    return rc;
}

int
store_create(const struct store_config *cfg, struct store **out)
{
    struct store *s;
    uint64_t bytes = dev_caps(cfg->dev)->bytes;
    int rc;

    CH_ASSERT(cfg->batch_pages > 0 && cfg->batch_pages <= CH_BATCH_MAX);
    CH_ASSERT(cfg->zones_base > 0 && cfg->zones_base % CH_SLOT_BYTES == 0);
    CH_ASSERT(cfg->zone_bytes > 0 && cfg->zone_bytes % CH_SLOT_BYTES == 0);
    CH_ASSERT(cfg->zones <= cfg->zones_max);
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "store");
    s->cfg = *cfg;
    s->ops = cfg->kind == STORE_INPLACE ? &store_inplace_ops : &store_oop_ops;
    s->zone_slots = (uint32_t)(cfg->zone_bytes / CH_SLOT_BYTES);
    s->chunk_slots = (uint32_t)ch_clamp_u64(cfg->batch_pages, STORE_GC_SLOTS_MIN, CH_BATCH_MAX);
    s->run_max = choose_run_max(s);
    s->reserve = choose_reserve(cfg);
    /* So much that one batch finds its zones without waiting, however small they are. */
    s->gc_low = s->reserve + 1 + (uint32_t)ch_div_up(cfg->batch_pages, s->zone_slots);
    s->zones_cap = cfg->zones_max;
    if (bytes > cfg->zones_base)
        s->zones_cap =
            (uint32_t)ch_min_u64(s->zones_cap, (bytes - cfg->zones_base) / cfg->zone_bytes);
    s->gc.victim = CH_ZONE_NONE;
    atomic_init(&s->round_now, 1); /* 0 = none */
    /* A guess until batches are written. */
    atomic_init(&s->slot_permille, cfg->codec == PACK_NONE ? 1000 : 1150);
    delta_cache_init(s);
    rt_mutex_init(&s->lock, RT_RANK_GC, 0);
    rt_mutex_init(&s->codecs.lock, RT_RANK_GC, 1);
    rc = create_tables(s);
    if (rc == 0)
        rc = create_buffers(s);
    if (rc == 0)
        placing_census(s);
    if (rc != 0) {
        store_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void
store_destroy(struct store *s)
{
    if (s == NULL)
        return;
    store_codecs_destroy(s);
    gc_fold_destroy(s);
    delta_cache_destroy(s);
    placing_destroy(s);
    ch_free_aligned(s->gc.buf);
    ch_free_aligned(s->ip.buf);
    ch_free_aligned(s->flags);
    zone_table_destroy(s->zones);
    map_destroy(s->map);
    rt_mutex_fini(&s->codecs.lock);
    rt_mutex_fini(&s->lock);
    free(s);
}

void
store_set_wal(struct store *s, struct wal *w)
{
    s->wal = w;
}

size_t
store_memory(const struct store *s)
{
    size_t n = sizeof(*s) + map_memory(s->map) + zone_table_memory(s->zones) + zone_count(s->zones);

    if (s->cfg.kind == STORE_INPLACE)
        return n + (size_t)(1 + s->cfg.batch_pages) * CH_PAGE_BYTES;
    return n + placing_memory(s) + atomic_load_explicit(&s->packers_memory, memory_order_relaxed) +
           ((size_t)s->chunk_slots + 2 * s->fold.most) * CH_SLOT_BYTES + delta_cache_memory(s);
}

struct map *
store_map(struct store *s)
{
    return s->map;
}

struct zone_table *
store_zones(struct store *s)
{
    return s->zones;
}

void
store_counts(struct store *s, struct store_counts *out)
{
    struct zone_info info;

    memset(out, 0, sizeof(*out));
    out->page_writes = atomic_load_explicit(&s->page_writes, memory_order_relaxed);
    out->page_write_stored = atomic_load_explicit(&s->page_write_stored, memory_order_relaxed);
    out->page_write_squares = atomic_load_explicit(&s->page_write_squares, memory_order_relaxed);
    out->carried = atomic_load_explicit(&s->carried, memory_order_relaxed);
    out->gc_zones = atomic_load_explicit(&s->gc_zones, memory_order_relaxed);
    out->gc_live_bytes = atomic_load_explicit(&s->gc_live_bytes, memory_order_relaxed);
    out->gc_moved = atomic_load_explicit(&s->gc_moved, memory_order_relaxed);
    out->gc_lost = atomic_load_explicit(&s->gc_lost, memory_order_relaxed);
    out->delta_writes = atomic_load_explicit(&s->delta_writes, memory_order_relaxed);
    out->delta_bytes = atomic_load_explicit(&s->delta_bytes, memory_order_relaxed);
    out->delta_memory_hits = atomic_load_explicit(&s->delta_memory_hits, memory_order_relaxed);
    out->delta_folds = atomic_load_explicit(&s->delta_folds, memory_order_relaxed);
    out->delta_reads = atomic_load_explicit(&s->delta_reads, memory_order_relaxed);
    out->classes = s->pl.place != NULL ? place_classes(s->pl.place) : 1;
    out->open_zones = s->open_zones;
    out->zones_reset = atomic_load_explicit(&s->zones_reset, memory_order_relaxed);
    for (zone_id z = 0; z < zone_count(s->zones); z++) {
        zone_info(s->zones, z, &info);
        out->retired += info.state == ZONE_RETIRED;
    }
}
