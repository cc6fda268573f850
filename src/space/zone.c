/* zone.c - the table of zones.
 *
 *              reserve             full, zone_seal            zone_victim
 *     FREE ---------------> OPEN -----------------> SEALED <--------------> COLLECT
 *      ^ |                                             |     victim_release     |
 *      | +--> META  (zone_take_meta)                   | no live byte, nothing  | no live byte
 *      |                                               v in flight              v
 *      +-------------- zone_free ------------------- DEAD <---------------------+
 *                                                      |
 *                                                      v
 *                      RETIRED: zone_retire, or zone_free of a zone marked by zone_abandon
 *                      LOG: zone_take_log() of a FREE zone, and back by zone_free()
 *
 * Every zone is in at most one of these, and struct zone.pos says where it stands there:
 *
 *     victims  a heap over SEALED zones without in-flight spans, fewest live bytes on top (then lowest
 *              id), so greedy costs O(log n) a change and never a scan
 *     dead     one array: [0, waiting) a heap over DEAD zones by empty_lsn, which wait for the log;
 *              its last `ready` entries are DEAD zones that waited long enough, a reader's pin at most
 *              keeps them
 *     free     a bitmap with a summary level, for the lowest id
 *
 * A DEAD zone that zone_next_dead() handed out is in none of them: it is the caller's until zone_free() or
 * zone_retire(), and is never handed out twice.
 *
 * Invariants (beside Z1..Z4 of zone.h; all in zone_check(), zone_sets.c):
 *   Z5  A zone is in `victims` iff it is SEALED with nothing in flight.
 *   Z6  DEAD zones have no live byte and nothing in flight; the waiting ones' empty_lsn was not durable
 *       when zone_next_dead() last looked, the ready ones' was (and durable things stay so).
 *   Z7  A zone is OPEN iff one stream has it open. A stream without one may write into another's of its origin.
 *   Z8  FREE zones have cursor 0; the bitmap holds exactly them.
 *
 * Pins against resets (R17). A reader pins the zone and then reads the map again; the collector takes the
 * last page out of the map and then looks at the pins. Both touch `pins` by a read-modify-write, so one
 * of them comes first in its modification order:
 *   - the pin: then the collector reads a count that includes it and leaves the zone alone (or the
 *     unpin's release came before it, and the reader's reads of the device are over);
 *   - the collector: then the pin reads from its release sequence and so synchronises with it; the map's
 *     change, which the collector's thread has seen through the lock that zone_live_sub() took, happens
 *     before the reader's second look, which sees that the page is gone; it unpins and starts again.
 * No store-load fence is needed, as no side relies on a plain load of `pins`.
 *
 * Locking: t->lock (rank SPACE, order 1) in every function but zone_pin(), zone_unpin(), zone_of_slot(),
 * zone_slot() and zone_count(). Nothing is called under it that locks or waits. Memory: address space for
 * all zones at creation; 72 bytes a zone are used as zones come to exist.
 *
 * Crash: memory only. The checkpoint keeps struct zone_info; recovery recounts the live bytes.
 */
#include "base/bug.h"
#include "space/heat.h"
#include "space/zone_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- create, destroy ----------------------------------------------------------------------- */

int
zone_table_create(const struct zone_config *cfg, struct zone_table **out)
{
    struct zone_table *t;
    size_t words = zone_words(cfg->zones_max);
    int rc;

    CH_ASSERT(cfg->slots > 0 && cfg->zones <= cfg->zones_max && cfg->zones_max < CH_ZONE_NONE);
    t = calloc(1, sizeof(*t));
    if (t == NULL)
        return CH_FAIL(COHORT_ENOMEM, "zone table");
    rt_mutex_init(&t->mutex, RT_RANK_SPACE, 1);
    t->lock = &t->mutex;
    t->cfg = *cfg;
    for (unsigned s = 0; s < ZONE_STREAMS; s++)
        t->open[s] = CH_ZONE_NONE;
    /* One more than needed, so that a table of no zones is no special case. */
    t->zone = ch_alloc_aligned(((size_t)cfg->zones_max + 1) * sizeof(*t->zone));
    t->victims = ch_alloc_aligned(((size_t)cfg->zones_max + 1) * sizeof(*t->victims));
    t->dead = ch_alloc_aligned(((size_t)cfg->zones_max + 1) * sizeof(*t->dead));
    t->free_words = calloc(words + 1, sizeof(*t->free_words));
    t->free_summary = calloc(zone_words(words) + 1, sizeof(*t->free_summary));
    if (t->zone == NULL || t->victims == NULL || t->dead == NULL || t->free_words == NULL ||
        t->free_summary == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "zone table of %" PRIu32 " zones", cfg->zones_max);
        goto out;
    }
    rc = zone_grow(t, cfg->zones);
    if (rc != 0)
        goto out;
    *out = t;
    t = NULL;
out:
    zone_table_destroy(t);
    return rc;
}

void
zone_table_destroy(struct zone_table *t)
{
    if (t == NULL)
        return;
    rt_mutex_fini(&t->mutex);
    ch_free_aligned(t->zone);
    ch_free_aligned(t->victims);
    ch_free_aligned(t->dead);
    free(t->free_words);
    free(t->free_summary);
    free(t);
}

size_t
zone_table_memory(const struct zone_table *t)
{
    /* Zones that do not exist yet have never been touched. */
    size_t n = (size_t)zone_count(t) + 1;
    size_t words = zone_words(t->cfg.zones_max);

    return sizeof(*t) + n * (sizeof(*t->zone) + sizeof(*t->victims) + sizeof(*t->dead)) +
           (words + 1 + zone_words(words) + 1) * sizeof(uint64_t);
}

static struct zone *
zone_at(const struct zone_table *t, zone_id z)
{
    CH_ASSERT(z < atomic_load_explicit(&t->zones, memory_order_relaxed));
    return &t->zone[z];
}

static void
change_state(struct zone_table *t, zone_id z, enum zone_state state)
{
    if (t->zone[z].state == ZONE_OPEN)
        t->zone[z].sealed = t->now;
    zone_leave(t, z);
    zone_enter(t, z, state);
}

/* All SEALED zones that are dead stand on top of the heap. */
static void
bury_victims(struct zone_table *t)
{
    while (t->victim_count > 0 && t->zone[t->victims[0]].live_bytes == 0)
        change_state(t, t->victims[0], ZONE_DEAD);
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* Z4: free zones that the stream leaves to others. */
static uint32_t
zones_kept(const struct zone_table *t, unsigned stream)
{
    return stream < ZONE_STREAM_GC && !CH_BUG(S6_NO_RESERVE) ? t->cfg.reserve : 0;
}

static bool
may_open(const struct zone_table *t, unsigned stream)
{
    uint32_t open = 0;

    if (zone_idle(t) <= zones_kept(t, stream))
        return false;
    if (t->cfg.open_max == 0)
        return true;
    for (unsigned e = zone_pool(t, stream); e < zone_pool_end(t, stream); e++)
        open += t->open[e] != CH_ZONE_NONE;
    return open < t->cfg.open_max;
}

/* The entry of the same pool that has a zone open and is nearest; ZONE_STREAMS = none has. */
static unsigned
nearest_open(const struct zone_table *t, unsigned stream)
{
    unsigned at = zone_entry(t, stream);
    unsigned best = ZONE_STREAMS;

    for (unsigned e = zone_pool(t, stream); e < zone_pool_end(t, stream); e++) {
        unsigned far = e > at ? e - at : at - e;

        if (t->open[e] != CH_ZONE_NONE &&
            (best == ZONE_STREAMS || far < (best > at ? best - at : at - best)))
            best = e;
    }
    return best;
}

/* The zone that the stream's next slots come from; CH_ZONE_NONE. */
static zone_id
stream_zone(struct zone_table *t, unsigned stream)
{
    unsigned e = zone_entry(t, stream);
    zone_id z = t->open[e];

    if (z != CH_ZONE_NONE)
        return z;
    if (may_open(t, stream)) {
        z = zone_free_lowest(t);
        change_state(t, z, ZONE_OPEN);
        t->zone[z].stream = (uint8_t)stream;
        t->zone[z].known = 0;
        t->zone[z].rates = 0;
        t->open[e] = z;
        return z;
    }
    e = nearest_open(t, stream);
    return e < ZONE_STREAMS ? t->open[e] : CH_ZONE_NONE;
}

static uint64_t
room(const struct zone_table *t, unsigned stream)
{
    uint64_t open = 0;
    uint64_t idle = (uint64_t)zone_idle(t) * t->cfg.slots;
    uint64_t keep = (uint64_t)zones_kept(t, stream) * t->cfg.slots;

    for (unsigned e = zone_pool(t, stream); e < zone_pool_end(t, stream); e++) {
        if (t->open[e] != CH_ZONE_NONE)
            open += t->cfg.slots - t->zone[t->open[e]].cursor;
    }
    if (t->cfg.shared && stream < ZONE_STREAM_LOG)
        return open + idle > keep ? open + idle - keep : 0;
    return open + (idle > keep ? idle - keep : 0);
}

int
zone_reserve(struct zone_table *t, enum zone_stream stream, uint32_t slots, struct zone_span *out)
{
    zone_id z;
    struct zone *zn;
    uint32_t count;
    uint64_t most;
    int rc = 0;

    CH_ASSERT(slots > 0);
    rt_lock(t->lock);
    most = room(t, stream);
    z = most > 0 ? stream_zone(t, stream) : CH_ZONE_NONE;
    if (z == CH_ZONE_NONE) {
        rc = CH_FAIL(COHORT_EFULL, "no zone for stream %u: %" PRIu32 " free, %" PRIu32 " kept",
                     (unsigned)stream, zone_idle(t), zones_kept(t, stream));
        goto out;
    }
    zn = &t->zone[z];
    count = slots < t->cfg.slots - zn->cursor ? slots : t->cfg.slots - zn->cursor;
    count = (uint32_t)ch_min_u64(count, most);
    *out = (struct zone_span){.zone = z, .slot_first = zn->cursor, .slot_count = count};
    zn->cursor += count; /* Z3 */
    if (CH_BUG(S4_SLOT_TWICE) && zn->cursor < t->cfg.slots && count > 1)
        zn->cursor--;
    zn->inflight++;
    if (zn->cursor == t->cfg.slots)
        change_state(t, z, ZONE_SEALED);
out:
    rt_unlock(t->lock);
    return rc;
}

uint32_t
zone_contiguous(const struct zone_table *t, enum zone_stream stream)
{
    uint32_t slots = 0;
    unsigned e;

    rt_lock(t->lock);
    e = zone_entry(t, stream);
    if (t->open[e] == CH_ZONE_NONE && !may_open(t, stream))
        e = nearest_open(t, stream);
    if (e < ZONE_STREAMS && t->open[e] != CH_ZONE_NONE)
        slots = t->cfg.slots - t->zone[t->open[e]].cursor;
    rt_unlock(t->lock);
    return slots;
}

uint64_t
zone_room(const struct zone_table *t, enum zone_stream stream)
{
    uint64_t slots;

    rt_lock(t->lock);
    slots = room(t, stream);
    rt_unlock(t->lock);
    return slots;
}

void
zone_set_open_max(struct zone_table *t, uint32_t open_max)
{
    rt_lock(t->lock);
    t->cfg.open_max = open_max;
    rt_unlock(t->lock);
}

void
zone_note(struct zone_table *t, zone_id z, uint32_t now, const struct zone_heat *heat)
{
    struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    zn->rates += heat->rates;
    zn->known += heat->known;
    t->now = now;
    if (zn->state != ZONE_OPEN) /* this write has filled it */
        zn->sealed = now;
    rt_unlock(t->lock);
}

/* One span of the zone is over. */
static void
span_end(struct zone_table *t, const struct zone_span *s)
{
    struct zone *zn = zone_at(t, s->zone);

    CH_ASSERT(zn->inflight > 0 &&
              s->slot_first + s->slot_count <= zn->cursor + CH_BUG(S4_SLOT_TWICE));
    zn->inflight--;
    if (zone_is_victim(zn))
        zone_enter_victims(t, s->zone);
}

void
zone_commit(struct zone_table *t, const struct zone_span *s)
{
    rt_lock(t->lock);
    span_end(t, s);
    rt_unlock(t->lock);
}

void
zone_abandon(struct zone_table *t, const struct zone_span *s, bool retire)
{
    rt_lock(t->lock);
    span_end(t, s);
    if (retire) {
        t->zone[s->zone].retire = true;
        if (t->zone[s->zone].state == ZONE_OPEN)
            change_state(t, s->zone, ZONE_SEALED);
    }
    rt_unlock(t->lock);
}

void
zone_seal(struct zone_table *t, enum zone_stream stream)
{
    rt_lock(t->lock);
    if (t->open[zone_entry(t, stream)] != CH_ZONE_NONE)
        change_state(t, t->open[zone_entry(t, stream)], ZONE_SEALED);
    rt_unlock(t->lock);
}

uint32_t
zone_seal_sparse(struct zone_table *t, uint64_t dead_bytes)
{
    uint32_t sealed = 0;

    rt_lock(t->lock);
    for (unsigned e = 0; e < ZONE_STREAM_LOG; e++) {
        zone_id z = t->open[e];
        uint64_t written;

        if (z == CH_ZONE_NONE || t->zone[z].inflight > 0)
            continue;
        written = (uint64_t)t->zone[z].cursor * CH_SLOT_BYTES;
        if (written < t->zone[z].live_bytes + dead_bytes)
            continue;
        change_state(t, z, ZONE_SEALED);
        sealed++;
    }
    rt_unlock(t->lock);
    return sealed;
}

/* ---- places and live bytes -------------------------------------------------------------------- */

zone_id
zone_of_slot(const struct zone_table *t, uint64_t slot)
{
    uint64_t z;

    if (slot < t->cfg.first_slot)
        return CH_ZONE_NONE;
    z = (slot - t->cfg.first_slot) / t->cfg.slots;
    /* Partner: zone_grow(). */
    return z < atomic_load_explicit(&t->zones, memory_order_acquire) ? (zone_id)z : CH_ZONE_NONE;
}

uint64_t
zone_slot(const struct zone_table *t, zone_id z, uint32_t index)
{
    return t->cfg.first_slot + (uint64_t)z * t->cfg.slots + index;
}

void
zone_live_add(struct zone_table *t, zone_id z, uint64_t bytes)
{
    struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    if (zn->state == ZONE_DEAD) {
        /* Only recovery counts bytes into a zone that a checkpoint called dead. */
        CH_ASSERT(!zn->handed_out);
        change_state(t, z, ZONE_SEALED);
    }
    zn->live_bytes += bytes;
    atomic_fetch_add_explicit(&t->live_total, bytes, memory_order_relaxed);
    if (zone_is_victim(zn))
        zone_victim_moved(t, z);
    rt_unlock(t->lock);
}

void
zone_live_sub(struct zone_table *t, zone_id z, uint64_t bytes, lsn_t lsn)
{
    struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    CH_ASSERT(zn->live_bytes >= bytes && zn->state != ZONE_DEAD); /* Z1 */
    zn->live_bytes -= bytes;
    zn->empty_lsn = ch_max_u64(zn->empty_lsn, lsn);
    atomic_fetch_sub_explicit(&t->live_total, bytes, memory_order_relaxed);
    if (zone_is_victim(zn))
        zone_victim_moved(t, z);
    else if (zn->state == ZONE_COLLECT && zn->live_bytes == 0)
        change_state(t, z, ZONE_DEAD);
    rt_unlock(t->lock);
}

/* ---- pins ------------------------------------------------------------------------------------ */

void
zone_pin(struct zone_table *t, zone_id z)
{
    uint32_t was = atomic_fetch_add_explicit(&zone_at(t, z)->pins, 1, memory_order_seq_cst);

    CH_ASSERT(was < UINT32_MAX);
}

void
zone_unpin(struct zone_table *t, zone_id z)
{
    uint32_t was = atomic_fetch_sub_explicit(&zone_at(t, z)->pins, 1, memory_order_seq_cst);

    CH_ASSERT(was > 0);
}

/* Adds nothing, but writes: the collector must stand in the modification order of `pins` (R17). */
static bool
is_pinned(struct zone *zn)
{
    return atomic_fetch_add_explicit(&zn->pins, 0, memory_order_seq_cst) != 0;
}

/* ---- collection ------------------------------------------------------------------------------- */

int
zone_victim(struct zone_table *t, uint64_t limit_bytes, zone_id *out)
{
    zone_id z;
    int rc = 0;

    rt_lock(t->lock);
    bury_victims(t); /* else a zone with nothing to move could be collected, to no end */
    if (t->victim_count == 0 || t->zone[t->victims[0]].live_bytes >= limit_bytes) {
        rc = CH_FAIL(COHORT_NOTFOUND, "no sealed zone has fewer than %" PRIu64 " live bytes",
                     limit_bytes);
        goto out;
    }
    z = t->victims[0];
    change_state(t, z, ZONE_COLLECT);
    *out = z;
out:
    rt_unlock(t->lock);
    return rc;
}

static double
zone_rate(const struct zone *zn)
{
    return zn->known > 0 ? zn->rates / zn->known : 0;
}

/* Mean life of the zone's pages, for the estimate of when it is dead. */
static uint32_t
zone_death(const struct zone *zn)
{
    double rate = zone_rate(zn);

    if (zn->known == 0)
        return PLACE_UNKNOWN;
    return rate * PLACE_LIFE_MAX > 1 ? (uint32_t)(1 / rate) : PLACE_NEVER;
}

static double
zone_score(const struct zone_table *t, const struct zone *zn, enum victim_policy policy,
           uint32_t now)
{
    struct victim_zone v = {
        .live_bytes = zn->live_bytes,
        .capacity_bytes = (uint64_t)t->cfg.slots * CH_SLOT_BYTES,
        .age = now - zn->sealed,
        .death = zone_death(zn),
        .pages = t->cfg.slots,
        /* No rate: what its pages were predicted says less than how it has declined since (victim.h). */
    };

    return victim_score(policy, &v);
}

int
zone_victim_best(struct zone_table *t, enum victim_policy policy, uint32_t now,
                 uint64_t limit_bytes, zone_id *out)
{
    zone_id best = CH_ZONE_NONE;
    double least = 0;
    uint32_t count;
    int rc = 0;

    rt_lock(t->lock);
    bury_victims(t);
    count = t->victim_count < ZONE_VICTIM_SCAN ? t->victim_count : ZONE_VICTIM_SCAN;
    for (uint32_t i = 0; i < count; i++) {
        zone_id z = t->victims[(t->scan_from + (uint64_t)i) % t->victim_count];
        double score;

        if (t->zone[z].live_bytes >= limit_bytes)
            continue;
        score = zone_score(t, &t->zone[z], policy, now);
        if (best == CH_ZONE_NONE || score < least || (!(score > least) && z < best)) {
            best = z;
            least = score;
        }
    }
    t->scan_from = count < t->victim_count ? (t->scan_from + count) % t->victim_count : 0;
    if (best == CH_ZONE_NONE) {
        rc = CH_FAIL(COHORT_NOTFOUND, "no sealed zone has fewer than %" PRIu64 " live bytes",
                     limit_bytes);
        goto out;
    }
    change_state(t, best, ZONE_COLLECT);
    *out = best;
out:
    rt_unlock(t->lock);
    return rc;
}

void
zone_victim_release(struct zone_table *t, zone_id z)
{
    rt_lock(t->lock);
    /* Meanwhile its last page may have left it on its own. */
    if (zone_at(t, z)->state == ZONE_COLLECT) {
        change_state(t, z, ZONE_SEALED);
    }
    rt_unlock(t->lock);
}

int
zone_next_dead(struct zone_table *t, lsn_t durable, zone_id *out, lsn_t *wait_lsn)
{
    int rc;

    rt_lock(t->lock);
    bury_victims(t);
    zone_wait_over(t, CH_BUG(S1_NO_WAIT) ? CH_LSN_MAX : durable); /* S1 */
    if (wait_lsn != NULL)
        *wait_lsn = t->waiting > 0 ? t->zone[t->dead[0]].empty_lsn : 0;
    for (uint32_t i = t->cfg.zones_max - t->ready; i < t->cfg.zones_max; i++) {
        zone_id z = t->dead[i];

        if (is_pinned(&t->zone[z]) && !CH_BUG(S1_PINNED))
            continue;
        zone_hand_out(t, z);
        *out = z;
        rc = 0;
        goto out;
    }
    rc = CH_FAIL(COHORT_NOTFOUND,
                 "no zone to reset: %" PRIu32 " wait for the log, %" PRIu32 " for readers",
                 t->waiting, t->ready);
out:
    rt_unlock(t->lock);
    return rc;
}

void
zone_settle(struct zone_table *t, lsn_t from, lsn_t to, lsn_t lsn)
{
    rt_lock(t->lock);
    for (zone_id z = 0; z < zone_count(t); z++) {
        struct zone *zn = zone_at(t, z);
        bool waits = zn->state == ZONE_DEAD && !zn->handed_out;

        if (zn->empty_lsn < from || zn->empty_lsn > to)
            continue;
        if (waits)
            zone_leave(t, z);
        zn->empty_lsn = lsn;
        if (waits)
            zone_enter(t, z, ZONE_DEAD);
    }
    rt_unlock(t->lock);
}

void
zone_free(struct zone_table *t, zone_id z)
{
    struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    CH_ASSERT(zn->state == ZONE_DEAD || zn->state == ZONE_SEALED || zn->state == ZONE_META ||
              zn->state == ZONE_LOG);
    CH_ASSERT(zn->live_bytes == 0 && zn->inflight == 0); /* Z1, Z2 */
    zone_leave(t, z);
    zn->cursor = 0;
    zn->empty_lsn = 0;
    zn->generation++;
    zone_enter(t, z, zn->retire ? ZONE_RETIRED : ZONE_FREE);
    rt_unlock(t->lock);
}

void
zone_retire(struct zone_table *t, zone_id z)
{
    rt_lock(t->lock);
    CH_ASSERT(zone_at(t, z)->inflight == 0);
    zone_leave(t, z);
    t->zone[z].retire = true;
    zone_enter(t, z, ZONE_RETIRED);
    rt_unlock(t->lock);
}

int
zone_next_free(const struct zone_table *t, zone_id from, zone_id *out)
{
    zone_id z;

    rt_lock(t->lock);
    z = zone_free_from(t, from);
    rt_unlock(t->lock);
    if (z == CH_ZONE_NONE)
        return CH_FAIL(COHORT_NOTFOUND, "no free zone from %" PRIu32 " on", from);
    *out = z;
    return 0;
}

bool
zone_claim(struct zone_table *t, zone_id z)
{
    bool mine;

    rt_lock(t->lock);
    mine = zone_at(t, z)->state == ZONE_FREE;
    if (mine) {
        t->zone[z].empty_lsn = 0;
        change_state(t, z, ZONE_DEAD);
        zone_wait_over(t, 0);
        zone_hand_out(t, z);
    }
    rt_unlock(t->lock);
    return mine;
}

int
zone_take_log(struct zone_table *t, zone_id *out)
{
    int rc = 0;

    rt_lock(t->lock);
    if (t->free_count == 0) {
        rc = CH_FAIL(COHORT_EFULL, "no free zone for the log, which has %" PRIu32, t->log_count);
        goto out;
    }
    *out = zone_free_lowest(t);
    change_state(t, *out, ZONE_LOG);
    t->zone[*out].stream = ZONE_STREAM_LOG;
out:
    rt_unlock(t->lock);
    return rc;
}

uint32_t
zone_log_count(const struct zone_table *t)
{
    uint32_t n;

    rt_lock(t->lock);
    n = t->log_count;
    rt_unlock(t->lock);
    return n;
}

uint32_t
zone_log_aside(const struct zone_table *t)
{
    uint32_t n = t->cfg.log_zones == 0 ? 0 : zone_log_count(t); /* a ring needs no look */

    return n > t->cfg.log_zones ? n : t->cfg.log_zones;
}

int
zone_take_meta(struct zone_table *t, zone_id *out)
{
    zone_id z;
    int rc = 0;

    rt_lock(t->lock);
    if (zone_idle(t) == 0) {
        rc = CH_FAIL(COHORT_EFULL, "no free zone for a map extent");
        goto out;
    }
    z = zone_free_lowest(t);
    change_state(t, z, ZONE_META);
    *out = z;
out:
    rt_unlock(t->lock);
    return rc;
}

int
zone_grow(struct zone_table *t, uint32_t count)
{
    uint32_t zones;
    int rc = 0;

    rt_lock(t->lock);
    zones = atomic_load_explicit(&t->zones, memory_order_relaxed);
    if (count > t->cfg.zones_max - zones) {
        rc = CH_FAIL(COHORT_EFULL, "%" PRIu32 " zones more than %" PRIu32 " are above %" PRIu32,
                     count, zones, t->cfg.zones_max);
        goto out;
    }
    for (zone_id z = zones; z < zones + count; z++)
        zone_enter(t, z, ZONE_FREE);
    /* Partner: zone_of_slot(), zone_count(). */
    atomic_store_explicit(&t->zones, zones + count, memory_order_release);
out:
    rt_unlock(t->lock);
    return rc;
}

/* ---- views, recovery, check -------------------------------------------------------------------- */

uint32_t
zone_count(const struct zone_table *t)
{
    return atomic_load_explicit(&t->zones, memory_order_acquire); /* partner: zone_grow() */
}

uint32_t
zone_free_count(const struct zone_table *t)
{
    uint32_t n;

    rt_lock(t->lock);
    n = zone_idle(t);
    rt_unlock(t->lock);
    return n;
}

uint32_t
zone_dead_count(const struct zone_table *t)
{
    uint32_t n;

    rt_lock(t->lock);
    n = t->dead_count;
    rt_unlock(t->lock);
    return n;
}

uint32_t
zone_waiting_count(const struct zone_table *t)
{
    uint32_t n;

    rt_lock(t->lock);
    n = t->waiting;
    rt_unlock(t->lock);
    return n;
}

uint64_t
zone_live_total(const struct zone_table *t)
{
    return atomic_load_explicit(&t->live_total, memory_order_relaxed);
}

void
zone_info(const struct zone_table *t, zone_id z, struct zone_info *out)
{
    const struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    *out = (struct zone_info){
        .state = (enum zone_state)zn->state,
        .cursor = zn->cursor,
        .inflight = zn->inflight,
        .pins = atomic_load_explicit(&zn->pins, memory_order_relaxed), /* a view, decides nothing */
        .live_bytes = zn->live_bytes,
        .empty_lsn = zn->empty_lsn,
        .generation = zn->generation,
        .stream = zn->stream,
        .sealed = zn->sealed,
        .rate = zone_rate(zn),
    };
    rt_unlock(t->lock);
}

void
zone_restore(struct zone_table *t, zone_id z, const struct zone_info *in)
{
    struct zone *zn;
    enum zone_state state = in->state;

    /* A stream never continues a zone of before the crash: its cursor may be older than its slots. */
    if (state == ZONE_OPEN || state == ZONE_COLLECT)
        state = ZONE_SEALED;
    rt_lock(t->lock);
    zn = zone_at(t, z);
    CH_ASSERT(zn->inflight == 0);
    zone_leave(t, z);
    atomic_fetch_add_explicit(&t->live_total, in->live_bytes - zn->live_bytes,
                              memory_order_relaxed); /* wraps as it should */
    zn->live_bytes = in->live_bytes;
    zn->cursor = state == ZONE_FREE || state == ZONE_LOG ? 0 : in->cursor;
    zn->empty_lsn = in->empty_lsn;
    zn->generation = in->generation;
    zn->stream = in->stream;
    zn->sealed = in->sealed;
    zn->rates = in->rate;
    zn->known = in->rate > 0;
    zn->retire = state == ZONE_RETIRED;
    if (state == ZONE_DEAD && zn->live_bytes != 0)
        state = ZONE_SEALED;
    zone_enter(t, z, state);
    rt_unlock(t->lock);
}
