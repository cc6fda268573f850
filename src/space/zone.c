/* zone.c - the table of zones.
 *
 *              reserve             full, zone_seal            zone_victim
 *     FREE ---------------> OPEN -----------------> SEALED <--------------> COLLECT
 *      ^ |                                             |     victim_release     |
 *      | +--> META  (zone_take_meta)                   | no live byte, nothing  | no live byte
 *      |                                               v in flight              v
 *      +-------------- zone_free ------------------- DEAD <---------------------+
 *                                                      |
 *                             zone_retire, or marked: RETIRED
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
 * Invariants (beside Z1..Z4 of zone.h; all in zone_check()):
 *   Z5  A zone is in `victims` iff it is SEALED with nothing in flight.
 *   Z6  DEAD zones have no live byte and nothing in flight; the waiting ones' empty_lsn was not durable
 *       when zone_next_dead() last looked, the ready ones' was (and durable things stay so).
 *   Z7  A zone is OPEN iff one stream has it open.
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
 * zone_slot() and zone_count(). Nothing is called under it that locks or waits. Memory: all at creation,
 * 48 bytes a zone.
 *
 * Crash: memory only. The checkpoint keeps struct zone_info; recovery recounts the live bytes.
 */
#include "space/zone.h"

#include <inttypes.h>
#include <stdlib.h>

#include "rt/rt.h"

#define POS_NONE UINT32_MAX

struct zone {
    uint64_t live_bytes;
    lsn_t empty_lsn;
    _Atomic uint32_t pins; /* zone_pin/zone_unpin <-> zone_next_dead, see the file head */
    uint32_t cursor;
    uint32_t inflight;
    uint32_t generation;
    uint32_t pos;    /* in `victims` or `dead`, POS_NONE = in neither */
    uint8_t state;   /* enum zone_state */
    bool retire;     /* no more writes: RETIRED once it is empty */
    bool handed_out; /* DEAD and with the caller of zone_next_dead() */
};

struct zone_table {
    struct rt_mutex mutex;
    struct rt_mutex *lock; /* = &mutex, for functions that take a const table */
    struct zone_config cfg;
    _Atomic uint32_t zones; /* grows: zone_grow (release) <-> zone_of_slot, zone_count (acquire) */
    struct zone *zone;
    uint32_t *victims, victim_count;
    uint32_t *dead, waiting, ready;
    uint64_t *free_words, *free_summary; /* summary bit: the word is not zero */
    uint32_t free_count, dead_count;     /* dead: handed-out ones included */
    zone_id open[ZONE_STREAMS];
    uint64_t live_total;
};

/* ---- create, destroy ----------------------------------------------------------------------- */

static size_t
words_for(size_t bits)
{
    return (bits + 63) / 64;
}

int
zone_table_create(const struct zone_config *cfg, struct zone_table **out)
{
    struct zone_table *t;
    size_t words = words_for(cfg->zones_max);
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
    t->zone = calloc((size_t)cfg->zones_max + 1, sizeof(*t->zone));
    t->victims = calloc((size_t)cfg->zones_max + 1, sizeof(*t->victims));
    t->dead = calloc((size_t)cfg->zones_max + 1, sizeof(*t->dead));
    t->free_words = calloc(words + 1, sizeof(*t->free_words));
    t->free_summary = calloc(words_for(words) + 1, sizeof(*t->free_summary));
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
    free(t->zone);
    free(t->victims);
    free(t->dead);
    free(t->free_words);
    free(t->free_summary);
    free(t);
}

size_t
zone_table_memory(const struct zone_table *t)
{
    size_t n = (size_t)t->cfg.zones_max + 1;
    size_t words = words_for(t->cfg.zones_max);

    return sizeof(*t) + n * (sizeof(*t->zone) + sizeof(*t->victims) + sizeof(*t->dead)) +
           (words + 1 + words_for(words) + 1) * sizeof(uint64_t);
}

/* ---- the set of free zones ------------------------------------------------------------------ */

static void
free_insert(struct zone_table *t, zone_id z)
{
    uint32_t w = z / 64;

    t->free_words[w] |= UINT64_C(1) << (z % 64);
    t->free_summary[w / 64] |= UINT64_C(1) << (w % 64);
    t->free_count++;
}

static void
free_remove(struct zone_table *t, zone_id z)
{
    uint32_t w = z / 64;

    t->free_words[w] &= ~(UINT64_C(1) << (z % 64));
    if (t->free_words[w] == 0)
        t->free_summary[w / 64] &= ~(UINT64_C(1) << (w % 64));
    t->free_count--;
}

/* The lowest free zone; there is one. */
static zone_id
free_lowest(const struct zone_table *t)
{
    uint32_t s = 0;
    uint32_t w;

    CH_ASSERT(t->free_count > 0);
    while (t->free_summary[s] == 0)
        s++;
    w = s * 64 + (uint32_t)__builtin_ctzll(t->free_summary[s]);
    return w * 64 + (uint32_t)__builtin_ctzll(t->free_words[w]);
}

/* ---- the heaps ------------------------------------------------------------------------------- */

/* Both heaps hold zone ids, smallest on top, and differ in the key only. */
struct heap {
    struct zone *zone;
    uint32_t *id;
    uint32_t n;
    bool by_lsn; /* empty_lsn; else live_bytes */
};

static struct heap
heap_victims(const struct zone_table *t)
{
    return (struct heap){t->zone, t->victims, t->victim_count, false};
}

static struct heap
heap_waiting(const struct zone_table *t)
{
    return (struct heap){t->zone, t->dead, t->waiting, true};
}

static bool
heap_less(const struct heap *h, zone_id a, zone_id b)
{
    uint64_t ka = h->by_lsn ? h->zone[a].empty_lsn : h->zone[a].live_bytes;
    uint64_t kb = h->by_lsn ? h->zone[b].empty_lsn : h->zone[b].live_bytes;

    return ka != kb ? ka < kb : a < b;
}

static void
heap_put(const struct heap *h, uint32_t pos, zone_id z)
{
    h->id[pos] = z;
    h->zone[z].pos = pos;
}

/* Moves the zone at `pos` to where its key belongs. */
static void
heap_fix(const struct heap *h, uint32_t pos)
{
    zone_id z = h->id[pos];

    while (pos > 0 && heap_less(h, z, h->id[(pos - 1) / 2])) {
        heap_put(h, pos, h->id[(pos - 1) / 2]);
        pos = (pos - 1) / 2;
    }
    for (;;) {
        uint64_t child = 2 * (uint64_t)pos + 1;

        if (child >= h->n)
            break;
        if (child + 1 < h->n && heap_less(h, h->id[child + 1], h->id[child]))
            child++;
        if (!heap_less(h, h->id[child], z))
            break;
        heap_put(h, pos, h->id[child]);
        pos = (uint32_t)child;
    }
    heap_put(h, pos, z);
}

static void
heap_insert(struct heap *h, zone_id z)
{
    heap_put(h, h->n, z);
    h->n++;
    heap_fix(h, h->n - 1);
}

static void
heap_remove(struct heap *h, uint32_t pos)
{
    zone_id z = h->id[pos];

    h->n--;
    if (pos != h->n) {
        heap_put(h, pos, h->id[h->n]);
        heap_fix(h, pos);
    }
    h->zone[z].pos = POS_NONE;
}

/* ---- which structure a zone is in ------------------------------------------------------------ */

static bool
is_victim(const struct zone *zn) /* Z5 */
{
    return zn->state == ZONE_SEALED && zn->inflight == 0;
}

static void
victims_insert(struct zone_table *t, zone_id z)
{
    struct heap h = heap_victims(t);

    heap_insert(&h, z);
    t->victim_count = h.n;
}

static void
victims_remove(struct zone_table *t, zone_id z)
{
    struct heap h = heap_victims(t);

    heap_remove(&h, t->zone[z].pos);
    t->victim_count = h.n;
}

static void
waiting_insert(struct zone_table *t, zone_id z)
{
    struct heap h = heap_waiting(t);

    heap_insert(&h, z);
    t->waiting = h.n;
}

static void
waiting_remove(struct zone_table *t, zone_id z)
{
    struct heap h = heap_waiting(t);

    heap_remove(&h, t->zone[z].pos);
    t->waiting = h.n;
}

/* The ready zones fill `dead` from its end downwards. */
static void
ready_insert(struct zone_table *t, zone_id z)
{
    uint32_t pos = t->cfg.zones_max - ++t->ready;

    t->dead[pos] = z;
    t->zone[z].pos = pos;
}

static void
ready_remove(struct zone_table *t, zone_id z)
{
    uint32_t first = t->cfg.zones_max - t->ready--;
    uint32_t pos = t->zone[z].pos;

    t->dead[pos] = t->dead[first];
    t->zone[t->dead[pos]].pos = pos;
    t->zone[z].pos = POS_NONE;
}

/* Enters the zone's state into the structures and counters; leave() is its inverse. */
static void
enter(struct zone_table *t, zone_id z, enum zone_state state)
{
    struct zone *zn = &t->zone[z];

    zn->state = (uint8_t)state;
    zn->pos = POS_NONE;
    if (state == ZONE_FREE) {
        free_insert(t, z);
    } else if (state == ZONE_DEAD) {
        CH_ASSERT(zn->live_bytes == 0 && zn->inflight == 0); /* Z6 */
        t->dead_count++;
        waiting_insert(t, z);
    } else if (is_victim(zn)) {
        victims_insert(t, z);
    }
}

static void
leave(struct zone_table *t, zone_id z)
{
    struct zone *zn = &t->zone[z];

    if (zn->state == ZONE_FREE) {
        free_remove(t, z);
    } else if (zn->state == ZONE_OPEN) {
        for (unsigned s = 0; s < ZONE_STREAMS; s++) {
            if (t->open[s] == z)
                t->open[s] = CH_ZONE_NONE;
        }
    } else if (zn->state == ZONE_DEAD) {
        t->dead_count--;
        if (zn->handed_out)
            zn->handed_out = false;
        else if (zn->pos < t->waiting)
            waiting_remove(t, z);
        else
            ready_remove(t, z);
    } else if (is_victim(zn)) {
        victims_remove(t, z);
    }
}

static struct zone *
zone_at(const struct zone_table *t, zone_id z)
{
    CH_ASSERT(z < atomic_load_explicit(&t->zones, memory_order_relaxed));
    return &t->zone[z];
}

/* A zone without live bytes and in-flight spans leaves for DEAD, or for good if it went bad: as it is
 * never written again, that needs to wait for nobody. */
static void
bury(struct zone_table *t, zone_id z)
{
    bool bad = t->zone[z].retire;

    leave(t, z);
    enter(t, z, bad ? ZONE_RETIRED : ZONE_DEAD);
}

/* All SEALED zones that are dead stand on top of the heap. */
static void
bury_victims(struct zone_table *t)
{
    while (t->victim_count > 0 && t->zone[t->victims[0]].live_bytes == 0)
        bury(t, t->victims[0]);
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void
seal(struct zone_table *t, zone_id z)
{
    leave(t, z);
    enter(t, z, ZONE_SEALED);
}

int
zone_reserve(struct zone_table *t, enum zone_stream stream, uint32_t slots, struct zone_span *out)
{
    zone_id z;
    struct zone *zn;
    uint32_t keep = stream == ZONE_STREAM_USER ? t->cfg.reserve : 0; /* Z4 */
    uint32_t count;
    int rc = 0;

    CH_ASSERT(slots > 0);
    rt_lock(t->lock);
    z = t->open[stream];
    if (z == CH_ZONE_NONE) {
        if (t->free_count <= keep) {
            rc = CH_FAIL(COHORT_EFULL, "no zone for stream %u: %" PRIu32 " free, %" PRIu32 " kept",
                         (unsigned)stream, t->free_count, keep);
            goto out;
        }
        z = free_lowest(t);
        leave(t, z);
        enter(t, z, ZONE_OPEN);
        t->open[stream] = z;
    }
    zn = &t->zone[z];
    count = slots < t->cfg.slots - zn->cursor ? slots : t->cfg.slots - zn->cursor;
    *out = (struct zone_span){.zone = z, .slot_first = zn->cursor, .slot_count = count};
    zn->cursor += count; /* Z3 */
    zn->inflight++;
    if (zn->cursor == t->cfg.slots)
        seal(t, z);
out:
    rt_unlock(t->lock);
    return rc;
}

/* One span of the zone is over. */
static void
span_end(struct zone_table *t, const struct zone_span *s)
{
    struct zone *zn = zone_at(t, s->zone);

    CH_ASSERT(zn->inflight > 0 && s->slot_first + s->slot_count <= zn->cursor);
    zn->inflight--;
    if (is_victim(zn))
        victims_insert(t, s->zone);
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
            seal(t, s->zone);
    }
    rt_unlock(t->lock);
}

void
zone_seal(struct zone_table *t, enum zone_stream stream)
{
    rt_lock(t->lock);
    if (t->open[stream] != CH_ZONE_NONE)
        seal(t, t->open[stream]);
    rt_unlock(t->lock);
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
        leave(t, z);
        enter(t, z, ZONE_SEALED);
    }
    zn->live_bytes += bytes;
    t->live_total += bytes;
    if (is_victim(zn)) {
        struct heap h = heap_victims(t);

        heap_fix(&h, zn->pos);
    }
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
    t->live_total -= bytes;
    if (is_victim(zn)) {
        struct heap h = heap_victims(t);

        heap_fix(&h, zn->pos);
    } else if (zn->state == ZONE_COLLECT && zn->live_bytes == 0) {
        bury(t, z);
    }
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
    leave(t, z);
    enter(t, z, ZONE_COLLECT);
    *out = z;
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
        leave(t, z);
        enter(t, z, ZONE_SEALED);
    }
    rt_unlock(t->lock);
}

int
zone_next_dead(struct zone_table *t, lsn_t durable, zone_id *out, lsn_t *wait_lsn)
{
    int rc;

    rt_lock(t->lock);
    bury_victims(t);
    while (t->waiting > 0 && t->zone[t->dead[0]].empty_lsn <= durable) { /* S1 */
        zone_id z = t->dead[0];

        waiting_remove(t, z);
        ready_insert(t, z);
    }
    if (wait_lsn != NULL)
        *wait_lsn = t->waiting > 0 ? t->zone[t->dead[0]].empty_lsn : 0;
    for (uint32_t i = t->cfg.zones_max - t->ready; i < t->cfg.zones_max; i++) {
        zone_id z = t->dead[i];

        if (is_pinned(&t->zone[z]))
            continue;
        ready_remove(t, z);
        t->zone[z].handed_out = true;
        *out = z;
        rc = 0;
        goto out;
    }
    rc = CH_FAIL(COHORT_NOTFOUND, "no zone to reset: %" PRIu32 " wait for the log, %" PRIu32
                 " for readers",
                 t->waiting, t->ready);
out:
    rt_unlock(t->lock);
    return rc;
}

void
zone_free(struct zone_table *t, zone_id z)
{
    struct zone *zn;

    rt_lock(t->lock);
    zn = zone_at(t, z);
    CH_ASSERT(zn->state == ZONE_DEAD || zn->state == ZONE_SEALED || zn->state == ZONE_META);
    CH_ASSERT(zn->live_bytes == 0 && zn->inflight == 0); /* Z1, Z2 */
    leave(t, z);
    zn->cursor = 0;
    zn->empty_lsn = 0;
    zn->generation++;
    enter(t, z, zn->retire ? ZONE_RETIRED : ZONE_FREE);
    rt_unlock(t->lock);
}

void
zone_retire(struct zone_table *t, zone_id z)
{
    rt_lock(t->lock);
    CH_ASSERT(zone_at(t, z)->inflight == 0);
    leave(t, z);
    t->zone[z].retire = true;
    enter(t, z, ZONE_RETIRED);
    rt_unlock(t->lock);
}

int
zone_take_meta(struct zone_table *t, zone_id *out)
{
    zone_id z;
    int rc = 0;

    rt_lock(t->lock);
    if (t->free_count == 0) {
        rc = CH_FAIL(COHORT_EFULL, "no free zone for a map extent");
        goto out;
    }
    z = free_lowest(t);
    leave(t, z);
    enter(t, z, ZONE_META);
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
        enter(t, z, ZONE_FREE);
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
    n = t->free_count;
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

uint64_t
zone_live_total(const struct zone_table *t)
{
    uint64_t n;

    rt_lock(t->lock);
    n = t->live_total;
    rt_unlock(t->lock);
    return n;
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
    /* In flight here means that a span outlived the crash that recovery is for. */
    rt_lock(t->lock);
    zn = zone_at(t, z);
    CH_ASSERT(zn->inflight == 0);
    leave(t, z);
    t->live_total = t->live_total - zn->live_bytes + in->live_bytes;
    zn->live_bytes = in->live_bytes;
    zn->cursor = state == ZONE_FREE ? 0 : in->cursor;
    zn->empty_lsn = in->empty_lsn;
    zn->generation = in->generation;
    zn->retire = state == ZONE_RETIRED;
    if (state == ZONE_DEAD && zn->live_bytes != 0)
        state = ZONE_SEALED;
    enter(t, z, state);
    rt_unlock(t->lock);
}

/* Z2, Z6..Z8 and the position of one zone. */
static bool
check_zone(const struct zone_table *t, zone_id z)
{
    const struct zone *zn = &t->zone[z];
    bool in_free = t->free_words[z / 64] >> (z % 64) & 1;
    bool open = false;
    uint32_t ready_first = t->cfg.zones_max - t->ready;

    for (unsigned s = 0; s < ZONE_STREAMS; s++)
        open |= t->open[s] == z;
    if (open != (zn->state == ZONE_OPEN) || in_free != (zn->state == ZONE_FREE) ||
        zn->cursor > t->cfg.slots || zn->live_bytes > (uint64_t)t->cfg.slots * CH_SLOT_BYTES)
        return false;
    if (zn->state == ZONE_FREE && (zn->cursor != 0 || zn->live_bytes != 0 || zn->inflight != 0))
        return false;
    if (is_victim(zn))
        return zn->pos < t->victim_count && t->victims[zn->pos] == z;
    if (zn->state != ZONE_DEAD)
        return zn->pos == POS_NONE && !zn->handed_out;
    if (zn->live_bytes != 0 || zn->inflight != 0)
        return false;
    if (zn->handed_out)
        return zn->pos == POS_NONE;
    return (zn->pos < t->waiting || (zn->pos >= ready_first && zn->pos < t->cfg.zones_max)) &&
           t->dead[zn->pos] == z;
}

static bool
check_heap(const struct heap *h)
{
    for (uint32_t i = 1; i < h->n; i++) {
        if (heap_less(h, h->id[i], h->id[(i - 1) / 2]))
            return false;
    }
    return true;
}

static bool
check_free_summary(const struct zone_table *t)
{
    for (size_t w = 0; w < words_for(t->cfg.zones_max); w++) {
        if ((t->free_summary[w / 64] >> (w % 64) & 1) != (t->free_words[w] != 0))
            return false;
    }
    return true;
}

bool
zone_check(const struct zone_table *t)
{
    struct heap victims, waiting;
    uint64_t live = 0;
    uint32_t counts[ZONE_RETIRED + 1] = {0};
    uint32_t is_victims = 0, handed_out = 0;
    bool ok;

    rt_lock(t->lock);
    victims = heap_victims(t);
    waiting = heap_waiting(t);
    ok = check_heap(&victims) && check_heap(&waiting) && check_free_summary(t);
    for (zone_id z = 0; z < atomic_load_explicit(&t->zones, memory_order_relaxed); z++) {
        ok = ok && check_zone(t, z);
        counts[t->zone[z].state]++;
        is_victims += is_victim(&t->zone[z]);
        handed_out += t->zone[z].handed_out;
        live += t->zone[z].live_bytes;
    }
    ok = ok && live == t->live_total && counts[ZONE_FREE] == t->free_count &&
         counts[ZONE_DEAD] == t->dead_count && is_victims == t->victim_count &&
         t->waiting + t->ready + handed_out == t->dead_count;
    rt_unlock(t->lock);
    return ok;
}
