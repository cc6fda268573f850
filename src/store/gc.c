/* gc.c - garbage collection: one bounded step at a time, through the same write path as user data.
 *
 *     victim (COLLECT) -> a batch of its slots -> images that the map still points to -> packed, at most
 *     CH_BATCH_MAX of them -> GC stream -> device flush (R6) -> MAP record + map_move_if() -> ... -> DEAD -> reset
 *
 * A step moves one chunk; the progress stands in struct store_gc, and the victim stays COLLECT until its
 * last slot was looked at. What readers and writers do meanwhile is never waited for: a page that was
 * rewritten or freed since its image was read just stays where it now is (S7), and the copy is dead space.
 *
 * Invariants:
 *   G1 (S1) a zone is reset only by way of zone_next_dead(): no live byte, nothing in flight, its last MAP record
 *       durable, no reader. So an image that GC could not find or read keeps its zone alive by itself.
 *   G2 (S6) moving a victim never takes more slots than it had: if packing anew takes more slots than the images came
 *       from, the slots are copied as they stand. Hence at any time the open GC zone and one free zone are enough
 *       to finish the victim, which then gives a zone back. The reserve is one more than that, for a
 *       failed write to be repeated elsewhere: 2 zones (1 in stores of less than 8).
 *   G3 (S7, S8) the moves of a chunk are filtered, logged and applied under one hold of the shard locks.
 *   G4 a zone with damaged live images stays COLLECT: never reset, never chosen again, reported once;
 *       when its pages are rewritten it empties like any other.
 *
 *   G5  a device whose zones are discarded when free gains spare space from them. As many are kept free as make the
 *       product of two closed forms smallest: our own write amplification with the live data in fewer zones, and the
 *       drive's with fewer of its pages mapped. Full devices keep none: then both forms say so.
 *
 * Nothing to gain: greedy takes the emptiest zone, but images of more than half a slot do not pack better the
 * second time. After GC_BARREN_MAX victims in a row that gave back next to nothing, GC stops until pages were
 * published or freed; an urgent caller gets EFULL, and a file grows instead.
 *
 * Locks: s->lock throughout; shard locks for publication, held across no I/O.
 */
#include "base/bug.h"
#include "store/store_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/log.h"
#include "page/page.h"

enum {
    GC_RESETS_MAX = 8, /* zones reset by one step */
    GC_BARREN_MAX = 4, /* fruitless victims before giving up */
    GC_GAIN_DIV = 64,  /* a victim must promise, and give, this part of its slots */
    GC_CENSUS_STEPS = 64,
    GC_SPARSE_DIV =
        4, /* an open zone is sealed early when this part of it is dead and space is short */
    TRIM_STEPS = 64, /* shares of the zones that G5 weighs against each other */
};

/* Our writes reach the drive in zones that die whole, which spares it part of what the form for uniform traffic says: on
 * simulated drives of 7 % spare with all of their pages mapped 3.7 instead of 7.9, and 7.9^0.6 = 3.5. */
#define ZONED_EXPONENT 0.6

/* ---- when ---- */

static uint64_t
changes(const struct store *s)
{
    return atomic_load_explicit(&s->changes, memory_order_relaxed);
}

/* Write amplification of a log-structured store whose live data fill u of it, uniform traffic, least-recently-written
 * first (Desnoyers 2012): the victim's live share v solves v = exp(-(1 - v) / u); A = 1 / (1 - v). */
static double
closed_form(double u)
{
    double v = 0;

    if (u >= 0.995)
        return 100;
    for (int i = 0; i < 200; i++)
        v = exp(-(1 - v) / u);
    return 1 / (1 - v);
}

/* G5: how many zones to keep discarded. */
static uint32_t
choose_trim(const struct store *s, uint32_t zones)
{
    double device = (double)dev_caps(s->cfg.dev)->bytes / (double)s->cfg.zone_bytes;
    double flash = device * (1 + s->cfg.device_spare / 100.0);
    double other = device - zones; /* log, root, arrays */
    double live = (double)zone_live_total(s->zones) / (double)s->cfg.zone_bytes *
                  (double)atomic_load_explicit(&s->slot_permille, memory_order_relaxed) / 1000;
    double best = 0;
    uint32_t trim = 0;

    for (uint32_t step = 0; step < TRIM_STEPS; step++) {
        uint32_t t = (uint32_t)((uint64_t)zones * step / TRIM_STEPS);
        double held = zones - t;
        double total;

        if (live > 0.95 * held)
            break;
        total = closed_form(live / held) * pow(closed_form((held + other) / flash), ZONED_EXPONENT);
        if (step > 0 && total >= best)
            continue;
        best = total;
        trim = t;
    }
    return trim;
}

void
gc_census_trim(struct store *s)
{
    uint32_t zones = zone_count(s->zones);
    uint32_t out = atomic_load_explicit(&s->zones_out, memory_order_relaxed) + s->gc_low;
    uint32_t trim = 0;

    if (!s->cfg.growable && s->cfg.discard && s->cfg.device_spare > 0 && zones > out)
        trim = choose_trim(s, zones - out);
    atomic_store_explicit(&s->trim_zones, trim, memory_order_relaxed);
}

static bool
free_low(const struct store *s)
{
    if (zone_free_count(s->zones) > s->gc_low)
        return false;
    /* A file that may still grow has no free zones by nature. */
    return !s->cfg.growable || zone_count(s->zones) >= s->zones_cap;
}

static bool
trim_low(const struct store *s)
{
    uint32_t trim = atomic_load_explicit(&s->trim_zones, memory_order_relaxed);

    return trim > 0 && zone_free_count(s->zones) <= s->gc_low + trim;
}

static bool
over_target(const struct store *s)
{
    return s->cfg.growable && oop_zones_used(s) > oop_zones_granted(s);
}

bool
gc_wants_victim(const struct store *s)
{
    if (atomic_load_explicit(&s->gc_active, memory_order_relaxed) != 0)
        return true;
    if (changes(s) < atomic_load_explicit(&s->gc_idle_until, memory_order_relaxed))
        return false;
    return free_low(s) || trim_low(s) || over_target(s);
}

/* ---- resetting dead zones ---- */

/* R11: whether the zone, once free, is among those that GC opens next and must keep its blocks. */
static bool
keeps_blocks(const struct store *s, zone_id z)
{
    uint32_t below = 0;
    zone_id i = 0;

    if (!s->cfg.growable)
        return false;
    for (; below < s->reserve && zone_next_free(s->zones, i, &i) == 0 && i < z; i++)
        below += (s->flags[i] & STORE_ZONE_BACKED) != 0;
    return below < s->reserve;
}

/* The free zones that a lower one has displaced from the reserve give their blocks back. Claimed meanwhile: the checkpoint
 * takes zones for the arrays without s->lock. */
static void
punch_displaced(struct store *s)
{
    uint32_t kept = 0;

    for (zone_id z = 0; zone_next_free(s->zones, z, &z) == 0; z++) {
        if ((s->flags[z] & STORE_ZONE_BACKED) == 0 || kept++ < s->reserve)
            continue;
        if (!zone_claim(s->zones, z))
            continue;
        if (dev_reset(s->cfg.dev, s->cfg.zones_base + z * s->cfg.zone_bytes, s->cfg.zone_bytes) ==
            0)
            s->flags[z] &= (uint8_t)~STORE_ZONE_BACKED;
        zone_free(s->zones, z); /* it is as good with its blocks */
    }
}

static void
reset_zone(struct store *s, zone_id z)
{
    int rc = 0;

    if (s->cfg.discard && !keeps_blocks(s, z)) {
        rc = dev_reset(s->cfg.dev, s->cfg.zones_base + z * s->cfg.zone_bytes, s->cfg.zone_bytes);
        s->flags[z] &= (uint8_t)~STORE_ZONE_BACKED;
    }
    if (rc != 0 && !dev_caps(s->cfg.dev)->sequential_only) {
        /* A discard is advice; zones retired for it would in time be all of them. */
        ch_log(COHORT_LOG_WARNING, "zone %u: discard failed", z);
        rc = 0;
    }
    if (rc != 0) {
        ch_log(COHORT_LOG_ERROR, "zone %u: reset failed; retired", z);
        zone_retire(s->zones, z);
        store_census(s);
        return;
    }
    zone_free(s->zones, z);
    store_count(&s->zones_reset, 1);
    if (s->cfg.discard && (s->flags[z] & STORE_ZONE_BACKED) != 0 && s->cfg.growable)
        punch_displaced(s);
}

void
store_log_free(struct store *s, zone_id z)
{
    uint64_t off = s->cfg.zones_base + z * s->cfg.zone_bytes;

    if (s->cfg.discard && dev_reset(s->cfg.dev, off, s->cfg.zone_bytes) != 0)
        ch_log(COHORT_LOG_WARNING, "zone %u of the log: discard failed", z); /* advice only */
    zone_free(s->zones, z);
    store_count(&s->zones_reset, 1);
}

int
gc_reset_dead(struct store *s, bool urgent, bool *did)
{
    bool flushed = false;

    for (int i = 0; i < GC_RESETS_MAX; i++) {
        zone_id z = CH_ZONE_NONE;
        lsn_t wait = 0;
        int rc = zone_next_dead(s->zones, wal_durable(s->wal), &z, &wait);

        if (rc == 0) {
            reset_zone(s, z);
            *did = true;
            continue;
        }
        if (rc != COHORT_NOTFOUND)
            return rc;
        /* Dead zones wait for their records (S1). The next commit brings that about, unless it is needed now. */
        if (wait == 0 || flushed || !(urgent || free_low(s)))
            return 0;
        if (wait >= STORE_UNLOGGED) /* for the next checkpoint, not for the log */
            return 0;
        rc = wal_flush(s->wal, wait);
        if (rc != 0)
            return rc;
        flushed = true;
    }
    return 0;
}

/* ---- victims ---- */

static bool
is_barren(const struct store *s)
{
    return s->gc.barren >= GC_BARREN_MAX && s->gc.barren_changes == changes(s);
}

/* Nothing is worth moving until a zone's worth of pages has changed. */
static void
go_idle(struct store *s)
{
    atomic_store_explicit(&s->gc_idle_until, changes(s) + s->zone_slots, memory_order_relaxed);
}

static int
nothing_to_gain(struct store *s, bool urgent, bool *did)
{
    uint32_t waiting;
    int rc;

    go_idle(s);
    if (!urgent || *did)
        return 0;
    waiting = zone_waiting_count(s->zones);
    if (zone_dead_count(s->zones) > waiting) {
        rt_yield(); /* only a reader's pin keeps it: to wait a moment is to do something */
        *did = true;
        return 0;
    }
    if (s->refused > 0 && zone_room(s->zones, ZONE_STREAM_USER) >= s->refused) {
        *did = true; /* another thread's step has made the room */
        return 0;
    }
    /* What died in zones that are still open cannot be collected before they are sealed. */
    if (zone_seal_sparse(s->zones, s->cfg.zone_bytes / GC_SPARSE_DIV) > 0) {
        atomic_store_explicit(&s->gc_idle_until, 0, memory_order_relaxed);
        *did = true;
        return 0;
    }
    /* The log's records were flushed (gc_reset_dead()). Zones that still wait do so for a checkpoint (R11), which may take long. */
    rc = oop_grow(s, true); /* EFULL where the device cannot */
    if (rc == COHORT_EFULL && waiting > 0)
        return CH_FAIL(rc, "%u zones wait for the next checkpoint, none is free", waiting);
    if (rc == 0)
        *did = true;
    return rc;
}

/* By the policy; after a victim that gained next to nothing, the one that must gain the most. */
static int
find_victim(struct store *s, uint64_t limit, zone_id *z)
{
    uint32_t now = (uint32_t)(wal_end(s->wal) / CH_PAGE_BYTES);

    if (s->cfg.victim == VICTIM_GREEDY || s->gc.barren > 0)
        return zone_victim(s->zones, limit, z);
    return zone_victim_best(s->zones, s->cfg.victim, now, limit, z);
}

/* Takes a victim unless there is one already; its absence after that means there is nothing to gain. */
static int
choose_victim(struct store *s)
{
    struct zone_info info;
    uint64_t gain = ch_max_u64(s->zone_slots / GC_GAIN_DIV, 1) * CH_SLOT_BYTES;
    zone_id z;
    int rc;

    if (s->gc.victim != CH_ZONE_NONE || is_barren(s))
        return 0;
    if (s->gc.barren >= GC_BARREN_MAX)
        s->gc.barren = 0;
    rc = find_victim(s, s->cfg.zone_bytes - gain + 1, &z);
    if (rc != 0)
        return rc == COHORT_NOTFOUND ? 0 : rc;
    zone_info(s->zones, z, &info);
    s->gc.victim = z;
    s->gc.next = 0;
    s->gc.end = info.cursor;
    s->gc.buf_first = s->gc.buf_count = 0;
    s->gc.written = s->gc.damaged = 0;
    atomic_store_explicit(&s->gc_active, 1, memory_order_relaxed);
    store_count(&s->gc_zones, 1);
    store_count(&s->gc_live_bytes, info.live_bytes);
    return 0;
}

static void
give_up_victim(struct store *s)
{
    s->gc.victim = CH_ZONE_NONE;
    atomic_store_explicit(&s->gc_active, 0, memory_order_relaxed);
}

/* All slots were looked at, or nothing was live any more. What still is could not be moved (G4). */
static int
finish_victim(struct store *s)
{
    zone_id z = s->gc.victim;
    struct zone_info info;

    zone_info(s->zones, z, &info);
    give_up_victim(s);
    if (s->gc.written + ch_max_u64(s->zone_slots / GC_GAIN_DIV, 1) > s->zone_slots) {
        s->gc.barren++;
        s->gc.barren_changes = changes(s);
    } else {
        s->gc.barren = 0;
    }
    if (info.state != ZONE_COLLECT || info.live_bytes == 0)
        return 0;
    ch_log(COHORT_LOG_ERROR,
           "zone %u: %" PRIu64
           " live bytes could not be moved, %u images are damaged; left in place",
           z, info.live_bytes, s->gc.damaged);
    return CH_FAIL(COHORT_EIMAGE, "zone %u: %" PRIu64 " live bytes are damaged", z,
                   info.live_bytes);
}

/* ---- collecting a chunk ---- */

static int
fill_buffer(struct store *s)
{
    struct store_gc *g = &s->gc;
    struct dev_req reqs[CH_BATCH_MAX / STORE_GC_READ_SLOTS];
    unsigned n = 0;
    uint32_t count = g->end - g->next;
    int rc;

    if (g->next >= g->buf_first && g->next < g->buf_first + g->buf_count)
        return 0;
    if (count > s->chunk_slots)
        count = s->chunk_slots;
    for (uint32_t at = 0; at < count; at += STORE_GC_READ_SLOTS) {
        uint32_t k = count - at < STORE_GC_READ_SLOTS ? count - at : STORE_GC_READ_SLOTS;

        reqs[n++] = (struct dev_req){
            .op = DEV_READ,
            .off = store_slot_off(zone_slot(s->zones, g->victim, g->next + at)),
            .len = (size_t)k * CH_SLOT_BYTES,
            .buf = g->buf + (size_t)at * CH_SLOT_BYTES,
        };
    }
    g->buf_count = 0;
    rc = dev_io(s->cfg.dev, reqs, n);
    if (rc != 0)
        return rc;
    g->buf_first = g->next;
    g->buf_count = count;
    return 0;
}

static void
damaged_image(struct store *s, uint32_t slot, page_id pid)
{
    s->gc.damaged++;
    ch_log(COHORT_LOG_ERROR, "zone %u slot %u: the image of page %" PRIu64 " is damaged",
           s->gc.victim, slot, pid);
}

/* Adds the image at `off` of the unit of the victim, a slot or run that begins in slot `index`, to the chunk if it is live
 * and whole. */
static void
take_image(struct store *s, const uint8_t *slot, uint32_t index, uint32_t off, uint32_t bytes,
           unsigned *n)
{
    place_t place = place_make(zone_slot(s->zones, s->gc.victim, index) + off / CH_SLOT_BYTES,
                               off % CH_SLOT_BYTES, bytes);
    bool raw = bytes == CH_SLOT_BYTES;
    page_id pid = raw ? page_pid(slot) : ch_get48(slot + off);
    struct pack_item *it = &s->w.items[*n];
    struct pack_image_info info = {0};
    bool delta;

    if (pid == 0 || pid >= map_pages_max(s->map))
        return;
    delta = !raw && map_delta(s->map, pid) == place;
    if (!delta && map_get(s->map, pid) != place && !CH_BUG(S7_MOVE_ANYWAY))
        return; /* dead, or no image at all: only the map says what is one */
    if (raw ? page_check(slot, pid) != 0 : pack_image_info(slot + off, 0, bytes, &info) != 0) {
        damaged_image(s, index, pid);
        return;
    }
    *it = (struct pack_item){
        .pid = pid,
        .lsn = raw ? page_lsn(slot) : info.lsn,
        .death = raw ? page_death_pack(page_death_time(slot, wal_end(s->wal))) : info.death,
        .image = slot + off,
        .image_bytes = bytes,
    };
    s->gc.delta[*n] = delta;
    s->gc.folded[*n] = PLACE_NONE;
    s->gc.pids[*n] = pid;
    s->gc.old[*n] = place;
    (*n)++;
}

/* Slots of the unit that begins at `slot`, of which `left` slots are in the buffer; *images: it is a run of so many. 0: it goes
 * on behind the buffer. */
static unsigned
unit_at(const struct store *s, const uint8_t *slot, uint32_t index, uint32_t *offs, uint32_t *lens,
        unsigned *images)
{
    uint32_t left = s->gc.buf_first + s->gc.buf_count - index;
    unsigned slots = pack_run_slots(slot);

    *images = 0;
    if (slots > left && slots <= s->gc.end - index && slots <= s->chunk_slots)
        return 0;
    if (slots > 0 && slots <= left)
        *images = pack_run_images(slot, slots, offs, lens);
    return *images > 0 ? slots : 1;
}

/* Collects live images from slots [next, *stop); *sources: slots that hold some. Stops before a slot whose images may not
 * fit, at the end of the buffer or of the victim. */
static unsigned
collect_chunk(struct store *s, uint32_t *stop, uint32_t *sources)
{
    uint32_t offs[PACK_RUN_IMAGES_MAX];
    uint32_t lens[PACK_RUN_IMAGES_MAX];
    uint32_t index = s->gc.next;
    unsigned n = 0;

    *sources = 0;
    while (index < s->gc.buf_first + s->gc.buf_count) {
        const uint8_t *slot = s->gc.buf + (size_t)(index - s->gc.buf_first) * CH_SLOT_BYTES;
        unsigned before = n, images;
        unsigned slots = unit_at(s, slot, index, offs, lens, &images);

        if (slots == 0) { /* read again from here on */
            s->gc.buf_count = index - s->gc.buf_first;
            break;
        }
        if (slots == 1 && images == 0)
            images = pack_slot_images(slot, offs, lens);
        if (n + images + 1 > CH_BATCH_MAX)
            break;
        take_image(s, slot, index, 0, CH_SLOT_BYTES, &n);
        for (unsigned i = 0; i < images; i++)
            take_image(s, slot, index, offs[i], lens[i], &n);
        for (unsigned i = before; i < n; i++) {
            s->gc.unit_first[i] = index;
            s->gc.unit_slots[i] = (uint8_t)slots;
        }
        *sources += n > before ? slots : 0;
        index += slots;
    }
    *stop = index;
    return n;
}

/* G2: the slots and runs with live images as they stand, dead images and all; the map tells them apart. The slots are moved
 * together in the read buffer, which is then used up as far as `stop`. */
static void
plan_verbatim(struct store *s, unsigned n, struct pack_plan *plan)
{
    struct store_gc *g = &s->gc;
    uint8_t *base = g->buf + (size_t)(g->next - g->buf_first) * CH_SLOT_BYTES;
    uint32_t last = UINT32_MAX, k = 0, at = 0;

    *plan = (struct pack_plan){.slots = base, .stored = n};
    memset(s->w.run_slots, 0, sizeof(s->w.run_slots));
    for (unsigned i = 0; i < n; i++) {
        struct pack_item *it = &s->w.items[i];
        uint32_t first = g->unit_first[i];

        if (first != last) {
            memmove(base + (size_t)k * CH_SLOT_BYTES,
                    g->buf + (size_t)(first - g->buf_first) * CH_SLOT_BYTES,
                    (size_t)g->unit_slots[i] * CH_SLOT_BYTES);
            s->w.run_slots[k] = g->unit_slots[i];
            last = first;
            at = k;
            k += g->unit_slots[i];
        }
        it->carried = false;
        it->slot = at + (uint32_t)(place_slot(g->old[i]) - zone_slot(s->zones, g->victim, first));
        it->offset = place_offset(g->old[i]);
        it->bytes = place_bytes(g->old[i]);
        plan->image_total += it->bytes;
    }
    plan->slot_count = k;
    g->buf_count = 0; /* read again if this chunk fails */
}

/* ---- publishing ---- */

/* R6: the images durable, by a flush that began after they were written. */
static int
flush_images(struct store *s)
{
    uint64_t ticket = CH_BUG(R6_GC_NO_FLUSH) ? 0 : dev_flush_ticket(s->cfg.dev);

    if (dev_flush_done(s->cfg.dev) < ticket) {
        int rc = wal_flush_force(s->wal);

        if (rc != 0)
            return rc;
    }
    if (dev_flush_done(s->cfg.dev) >= ticket)
        return 0;
    return dev_flush(s->cfg.dev); /* the log is on another device */
}

/* Shard lock held (S7, G3). False: the image is not its page's any more. Else the new place says which of the page's images
 * it is. */
static bool
move_to(struct store *s, unsigned i)
{
    struct store_gc *g = &s->gc;
    place_t delta = map_delta(s->map, g->pids[i]);

    if (g->delta[i]) {
        g->to[i] |= PLACE_DELTA;
        return delta == g->old[i];
    }
    if (delta != PLACE_NONE && delta != g->folded[i]) /* gc_fold.c, F2 */
        g->to[i] |= PLACE_KEEP;
    return map_get(s->map, g->pids[i]) == g->old[i] || CH_BUG(S7_MOVE_ANYWAY);
}

static void
publish_moves(struct store *s, unsigned n, const struct pack_plan *plan, struct wal_ticket *t)
{
    struct store_gc *g = &s->gc;
    uint64_t shards = store_shards(g->pids, n);
    unsigned k = 0;
    lsn_t lsn;

    for (unsigned i = 0; i < n; i++) {
        const struct pack_item *it = &s->w.items[i];

        g->to[i] = place_make(s->w.slot_no[it->slot], it->offset, it->bytes);
        if (g->delta[i])
            delta_cache_put(s, g->pids[i], g->to[i],
                            plan->slots + (size_t)it->slot * CH_SLOT_BYTES + it->offset);
    }
    map_lock(s->map, shards);
    for (unsigned i = 0; i < n; i++) {
        if (!move_to(s, i))
            continue; /* race lost */
        g->pids[k] = g->pids[i];
        g->to[k++] = g->to[i];
    }
    if (k > 0) {
        lsn = store_map_append(s, t, g->pids, g->to, k);
        for (unsigned i = 0; i < k; i++)
            store_map_apply(s, g->pids[i], g->to[i], lsn);
    }
    map_unlock(s->map, shards);
    store_count(&s->gc_moved, k);
    store_count(&s->gc_lost, n - k);
}

/* ---- the step ---- */

/* By class; where that takes too many slots, all together. */
static void
plan_classes(struct store *s, unsigned n, uint32_t sources, struct pack_plan *plan)
{
    placing_moved(s, n);
    placing_pack(s, false, sources, plan);
    if (plan->slots == NULL && s->w.part_count > 1) {
        placing_restore(s, n);
        placing_pack(s, false, sources, plan);
    }
}

/* Returns how many images are moved: fewer than n where deltas were folded into their bases. Where all of that takes too
 * many slots, the images go as they stand (G2). */
static unsigned
plan_moves(struct store *s, unsigned n, uint32_t *sources, struct pack_plan *plan)
{
    uint32_t stop;

    CH_ASSERT(*sources <= s->chunk_slots);
    n = gc_fold(s, n);
    plan_classes(s, n, *sources, plan);
    if (plan->slots == NULL && s->fold.most > 0) {
        n = collect_chunk(s, &stop, sources); /* as it was, and nothing folded */
        plan_classes(s, n, *sources, plan);
    }
    if (plan->slots == NULL) {
        placing_restore(s, n);
        plan_verbatim(s, n, plan);
        s->w.parts[0].slots = plan->slot_count;
        s->w.parts[0].slot = 0;
    }
    return n;
}

static int
move_chunk(struct store *s, unsigned n, uint32_t sources, struct wal_ticket *t)
{
    struct store_gc *g = &s->gc;
    struct pack_plan plan = {0};
    unsigned spans = 0;
    int rc;

    n = plan_moves(s, n, &sources, &plan);
    rc = oop_store(s, CH_GC, &plan, n, g->spans, &spans);
    if (rc != 0)
        return rc;
    g->written += plan.slot_count;
    rc = flush_images(s);
    if (rc == 0)
        publish_moves(s, n, &plan, t);
    for (unsigned i = 0; i < spans; i++) {
        if (rc == 0)
            zone_commit(s->zones, &g->spans[i]);
        else
            zone_abandon(s->zones, &g->spans[i], false);
    }
    return rc;
}

int
gc_move_step(struct store *s, bool urgent, struct wal_ticket *t, bool *did)
{
    struct store_gc *g = &s->gc;
    struct zone_info info;
    uint32_t stop;
    uint32_t sources;
    unsigned n;
    int rc;

    if (g->steps++ % GC_CENSUS_STEPS == 0)
        store_census(s);
    rc = choose_victim(s);
    if (rc != 0)
        return rc;
    if (g->victim == CH_ZONE_NONE)
        return nothing_to_gain(s, urgent, did);
    /* Once its last page has left, the zone is dead, or reset and written anew already: not ours any more. */
    zone_info(s->zones, g->victim, &info);
    if (info.state != ZONE_COLLECT)
        g->next = g->end;
    if (g->next < g->end) {
        rc = fill_buffer(s);
        if (rc != 0) {
            give_up_victim(s); /* G4: nothing of it is lost, nothing of it is moved */
            return rc;
        }
        n = collect_chunk(s, &stop, &sources);
        if (n > 0)
            rc = move_chunk(s, n, sources, t);
        if (rc != 0)
            return rc;
        g->next = stop;
    }
    *did = true;
    return g->next >= g->end ? finish_victim(s) : 0;
}
