/* store_oop.c - out of place: batches of pages go, packed, wherever the zone table has room.
 *
 *     pages -> pack_build() -> plan of slots -> zone_reserve() spans -> one vector of writes -> ticket
 *
 * GC writes through oop_store() too, so there is one way only in which an image reaches a zone.
 *
 * Invariants:
 *   W1  on success the spans stay in flight until store_publish() or store_drop() (Z2); on error none is left.
 *   W2  the bytes of a span are split exactly: images under the caller's cause, new deltas under CH_DELTA, the rest
 *       under CH_PAD.
 *   W3  the plan's runs lie within one span each; where a zone ends within a run, its last slots are padding.
 *   R6  the flush ticket is taken after all writes of the batch completed.
 *   R11 growable devices: the `reserve` lowest free zones, the next ones that GC opens, have blocks before a user
 *       write may open another zone. A freed zone that belongs to them is not punched; the one that it displaces is,
 *       claimed meanwhile (zone_claim()).
 *
 * Growing: a file gets a zone when the space target grants it, or when GC has nothing to gain (gc.c), up to
 * zones_cap. Never because it is convenient: a write that finds no zone returns EFULL and its caller runs GC.
 *
 * Locks: s->lock for everything here. Crash: spans that nobody published are garbage that recovery overwrites:
 * reconcile frees or seals their zone.
 */
#include "base/bug.h"
#include "store/store_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "page/page.h"

enum {
    GRANT_LEAST_PERCENT = 115, /* of the slots that the live images take: less room makes GC dear */
    ROOM_PERCENT = 97,         /* of the zones that data may have, at most filled */
    ROOM_PERCENT_PACKED =
        92, /* with packing: what it loses is a running mean, and GC need not find the same again */
};

/* ---- growing and backing ---- */

uint64_t
oop_zones_used(const struct store *s)
{
    uint64_t count = zone_count(s->zones);
    uint64_t idle =
        zone_free_count(s->zones) + atomic_load_explicit(&s->zones_out, memory_order_relaxed);

    return count > idle ? count - idle : 0;
}

uint64_t
oop_zones_granted(const struct store *s)
{
    uint64_t live = zone_live_total(s->zones);

    uint64_t permille = atomic_load_explicit(&s->slot_permille, memory_order_relaxed);
    uint64_t aside =
        atomic_load_explicit(&s->meta_bytes, memory_order_relaxed) + s->reserve * s->cfg.zone_bytes;
    uint64_t target = live / 100 * s->cfg.space_target;
    uint64_t least = live / 1000 * ch_max_u64(permille, 1000) / 100 * GRANT_LEAST_PERCENT;

    target = (target - ch_min_u64(target, aside)) / s->cfg.zone_bytes;
    return ch_max_u64(target, ch_div_up(least, s->cfg.zone_bytes)) + s->open_zones;
}

int
oop_grow(struct store *s, bool force)
{
    uint32_t count = zone_count(s->zones);
    int rc;

    if (!s->cfg.growable || count >= s->zones_cap)
        return CH_FAIL(COHORT_EFULL, "%u of %u zones exist, none is free", count, s->zones_cap);
    if (!force && oop_zones_used(s) >= oop_zones_granted(s))
        return CH_FAIL(COHORT_EFULL, "%u zones: the space target grants no more", count);
    rc = dev_allocate(s->cfg.dev, s->cfg.zones_base + count * s->cfg.zone_bytes, s->cfg.zone_bytes);
    if (rc != 0)
        return rc;
    rc = zone_grow(s->zones, 1);
    if (rc == 0)
        s->flags[count] |= STORE_ZONE_BACKED;
    return rc;
}

int
oop_back_reserve(struct store *s)
{
    uint32_t found = 0;
    zone_id z = 0;

    if (!s->cfg.growable)
        return 0;
    for (; found < s->reserve && zone_next_free(s->zones, z, &z) == 0; z++) {
        int rc;

        found++;
        if ((s->flags[z] & STORE_ZONE_BACKED) != 0)
            continue;
        rc = dev_allocate(s->cfg.dev, s->cfg.zones_base + z * s->cfg.zone_bytes, s->cfg.zone_bytes);
        if (rc != 0)
            return rc;
        s->flags[z] |= STORE_ZONE_BACKED;
    }
    return 0;
}

/* ---- placing ---- */

static bool
is_user(enum zone_stream stream)
{
    return stream < ZONE_STREAM_GC;
}

static void
undo_spans(struct store *s, const struct zone_span *spans, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        zone_abandon(s->zones, &spans[i], false);
}

/* Room for the whole plan or EFULL, before anything is taken: spans given up again would be dead space, and a batch
 * that is larger than the zones GC frees at a time would never get in. */
static int
ensure_room(struct store *s, enum zone_stream stream, uint32_t slots)
{
    int rc = 0;

    /* GC may always grow: it gives more back than it takes. */
    while (rc == 0 && zone_room(s->zones, stream) < slots)
        rc = oop_grow(s, !is_user(stream));
    if (is_user(stream))
        s->refused = rc == 0 ? 0 : slots;
    return rc;
}

/* One span of at most `slots` slots. */
static int
reserve_span(struct store *s, enum zone_stream stream, uint32_t slots, struct zone_span *span)
{
    int rc = zone_reserve(s->zones, stream, slots, span);

    if (rc != 0)
        return rc;
    if (span->slot_first != 0)
        return 0;
    /* A zone was opened. */
    s->flags[span->zone] |= STORE_ZONE_BACKED;
    if (s->pl.place != NULL)
        place_note_open(s->pl.place, stream);
    if (!is_user(stream))
        return 0;
    rc = oop_back_reserve(s);
    if (rc != 0)
        zone_abandon(s->zones, span, false);
    return rc;
}

/* Of the plan's slots from `slot` on, at most `room`, those that end no run in its midst. */
static uint32_t
whole_runs(const struct store *s, uint32_t slot, uint32_t room)
{
    uint32_t n = 0;

    while (n < room && n + s->w.run_slots[slot + n] <= room) {
        CH_ASSERT(s->w.run_slots[slot + n] > 0);
        n += s->w.run_slots[slot + n];
    }
    return n;
}

/* The spans of one part, appended to the *n that there are. */
static int
reserve_part(struct store *s, const struct store_part *part, struct zone_span *spans, unsigned *n)
{
    for (uint32_t done = 0; done < part->slots;) {
        struct zone_span *span = &spans[*n];
        uint32_t used;
        int rc = reserve_span(s, part->stream, part->slots - done, span);

        if (rc != 0)
            return rc;
        /* A zone that ends within a run ends with padding (W3). */
        used = whole_runs(s, part->slot + done, span->slot_count);
        s->w.span_used[(*n)++] = used;
        CH_ASSERT(*n < CH_BATCH_MAX);
        for (uint32_t i = 0; i < used; i++)
            s->w.slot_no[part->slot + done + i] =
                zone_slot(s->zones, span->zone, span->slot_first + i);
        done += used;
    }
    return 0;
}

static int
reserve_spans(struct store *s, uint32_t slots, struct zone_span *spans, unsigned *span_count)
{
    unsigned n = 0;
    int rc = ensure_room(s, s->w.parts[0].stream, slots);

    for (unsigned k = 0; rc == 0 && k < s->w.part_count; k++)
        rc = reserve_part(s, &s->w.parts[k], spans, &n);
    if (rc != 0) {
        s->w.tight = true;
        if (is_user(s->w.parts[0].stream))
            s->refused = slots;
        undo_spans(s, spans, n);
        return rc;
    }
    s->w.tight = s->w.tight && !is_user(s->w.parts[0].stream);
    *span_count = n;
    return 0;
}

/* ---- writing ---- */

static void
count_used(struct store *s, const struct pack_plan *plan, unsigned n)
{
    memset(s->w.used, 0, plan->slot_count * sizeof(s->w.used[0]));
    memset(s->w.deltas, 0, plan->slot_count * sizeof(s->w.deltas[0]));
    for (unsigned i = 0; i < n; i++) {
        const struct pack_item *it = &s->w.items[i];

        if (it->carried)
            continue;
        s->w.used[it->slot] += it->bytes;
        s->w.deltas[it->slot] += it->delta ? it->bytes : 0;
    }
}

/* Zeroes for the slots of a span behind the first `used`; into the span's own request when none is used. */
static void
fill_end(struct store *s, const struct zone_span *span, uint32_t used, struct dev_req *r)
{
    static uint8_t zeroes[PACK_RUN_SLOTS_MAX * CH_SLOT_BYTES]
        __attribute__((aligned(CH_SLOT_BYTES)));

    CH_ASSERT(span->slot_count - used < PACK_RUN_SLOTS_MAX);
    *r = (struct dev_req){
        .op = DEV_WRITE,
        .off = store_slot_off(zone_slot(s->zones, span->zone, span->slot_first + used)),
        .len = (size_t)(span->slot_count - used) * CH_SLOT_BYTES,
        .buf = zeroes,
        .rc = COHORT_ERETRY,
    };
    r->split[CH_PAD] = (uint32_t)r->len;
}

/* Returns the number of requests: the first span_count are the spans' own. */
static unsigned
fill_requests(struct store *s, enum ch_cause cause, const struct pack_plan *plan,
              const struct zone_span *spans, unsigned span_count)
{
    unsigned n = span_count;
    uint32_t slot = 0;

    for (unsigned i = 0; i < span_count; i++) {
        struct dev_req *r = &s->w.reqs[i];
        uint32_t used = s->w.span_used[i];
        uint32_t images = 0, deltas = 0;

        if (used < spans[i].slot_count)
            fill_end(s, &spans[i], used, used == 0 ? r : &s->w.reqs[n++]);
        if (used == 0)
            continue;

        *r = (struct dev_req){
            .op = DEV_WRITE,
            .off = store_slot_off(zone_slot(s->zones, spans[i].zone, spans[i].slot_first)),
            .len = (size_t)used * CH_SLOT_BYTES,
            .buf = plan->slots + (size_t)slot * CH_SLOT_BYTES,
            .rc = COHORT_ERETRY, /* stays when the vector never started */
        };
        for (uint32_t j = 0; j < used; j++) {
            images += s->w.used[slot + j];
            deltas += s->w.deltas[slot + j];
        }
        r->split[cause] = images - deltas;
        r->split[CH_DELTA] = deltas;
        r->split[CH_PAD] = (uint32_t)r->len - images; /* W2 */
        slot += used;
    }
    return n;
}

/* A zone that failed a write takes no more; one that the file system had no block for is fine. */
static void
abandon_failed(struct store *s, const struct zone_span *spans, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        bool bad = s->w.reqs[i].rc == COHORT_EIO;

        if (bad) {
            s->flags[spans[i].zone] |= STORE_ZONE_BAD;
            ch_log(COHORT_LOG_ERROR, "zone %u: write of %u slots at slot %u failed; retired",
                   spans[i].zone, spans[i].slot_count, spans[i].slot_first);
        }
        zone_abandon(s->zones, &spans[i], bad);
    }
    store_census(s);
}

/* A running mean of what packing loses, over some 32 writes. */
static void
note_packing(struct store *s, const struct pack_plan *plan)
{
    uint64_t now = (uint64_t)plan->slot_count * CH_SLOT_BYTES * 1000 / plan->image_total;
    uint32_t old = atomic_load_explicit(&s->slot_permille, memory_order_relaxed);

    atomic_store_explicit(&s->slot_permille,
                          (uint32_t)((31 * (uint64_t)old + ch_min_u64(now, 4000)) / 32),
                          memory_order_relaxed);
}

int
oop_store(struct store *s, enum ch_cause cause, const struct pack_plan *plan, unsigned n,
          struct zone_span *spans, unsigned *span_count)
{
    int rc = 0;

    CH_ASSERT(plan->slot_count > 0 && plan->slot_count <= CH_BATCH_MAX);
    count_used(s, plan, n);
    for (int attempt = 0; attempt < 2; attempt++) {
        unsigned k = 0;

        rc = reserve_spans(s, plan->slot_count, spans, &k);
        if (rc != 0)
            return rc;
        rc = dev_io(s->cfg.dev, s->w.reqs, fill_requests(s, cause, plan, spans, k));
        if (rc == 0) {
            *span_count = k;
            note_packing(s, plan);
            placing_note(s, n);
            return 0;
        }
        abandon_failed(s, spans, k);
        if (rc != COHORT_EIO)
            return rc;
    }
    return rc;
}

/* Whether the page may be written as a delta: what it differs in from its full image is known, and there is room for both. A
 * store that is nearly full takes full images, which replace what they take the place of. */
static void
offer_delta(struct store *s, const struct store_page *p, struct pack_item *it)
{
    place_t base = map_get(s->map, p->pid);

    if (p->base_lsn == 0 || p->base_lsn > p->lsn || base == PLACE_NONE ||
        map_ensure_delta(s->map, p->pid) != 0)
        return;
    it->delta_mask = p->delta_mask | 1; /* the header changes with every write */
    it->delta_base = p->base_lsn;
    it->delta_max = place_bytes(base) * s->cfg.delta_percent / 100;
}

static void
fill_items(struct store *s, const struct store_page *pages, unsigned n)
{
    lsn_t now = wal_end(s->wal);
    bool deltas = store_deltas(s) && s->ops->has_room(s, 0, 0);

    for (unsigned i = 0; i < n; i++) {
        s->w.items[i] = (struct pack_item){
            .pid = pages[i].pid,
            .lsn = pages[i].lsn,
            .death = page_death_pack(page_death_time(pages[i].page, now)),
            .page = pages[i].page,
        };
        if (deltas)
            offer_delta(s, &pages[i], &s->w.items[i]);
    }
    store_codecs_choose(s, s->w.items, n);
}

/* In the order of the pages. */
static void
fill_batch(const struct store_page *pages, unsigned n, struct store_batch *out)
{
    out->count = 0;
    for (unsigned i = 0; i < n; i++) {
        if (pages[i].carried)
            continue;
        out->pids[out->count] = pages[i].pid;
        out->places[out->count++] = pages[i].place;
    }
}

static int
oop_write(struct store *s, struct store_page *pages, unsigned n, bool carry,
          struct store_batch *out)
{
    struct pack_plan plan = {0};
    uint64_t early = CH_BUG(R6_EARLY_TICKET) ? dev_flush_ticket(s->cfg.dev) : 0;
    unsigned spans = 0;
    uint64_t squares = 0;
    int rc;

    if (s->w.writes++ % STORE_CENSUS_WRITES == 0)
        store_census(s);
    fill_items(s, pages, n);
    placing_users(s, pages, n);
    placing_pack(s, carry, s->chunk_slots, &plan);
    CH_ASSERT(plan.slots != NULL); /* a page takes a slot at most */
    rc = oop_store(s, CH_USER, &plan, n, out->spans, &spans);
    if (rc != 0)
        return rc;
    out->flush_ticket = CH_BUG(R6_EARLY_TICKET) ? early : dev_flush_ticket(s->cfg.dev); /* R6 */
    out->span_count = spans;
    for (unsigned i = 0; i < n; i++) {
        const struct pack_item *it = &s->w.items[i];
        struct store_page *p = &pages[s->pl.order[i]];

        p->carried = it->carried;
        if (it->carried)
            continue;
        squares += (uint64_t)it->bytes * it->bytes;
        p->place = place_make(s->w.slot_no[it->slot], it->offset, it->bytes) |
                   (it->delta ? PLACE_DELTA : 0);
        if (it->delta) {
            store_count(&s->delta_writes, 1);
            store_count(&s->delta_bytes, it->bytes);
            delta_cache_put(s, it->pid, pages[i].place & ~PLACE_FLAGS,
                            plan.slots + (size_t)it->slot * CH_SLOT_BYTES + it->offset);
        }
    }
    fill_batch(pages, n, out);
    store_count(&s->page_writes, out->count);
    store_count(&s->page_write_stored, plan.image_total);
    store_count(&s->page_write_squares, squares);
    store_count(&s->carried, n - out->count);
    return 0;
}

/* ---- the rest of struct store_ops ---- */

static bool
oop_has_room(const struct store *s, uint64_t dirty_new, uint64_t new_pages)
{
    uint64_t zones = s->cfg.growable ? s->zones_cap : zone_count(s->zones);
    uint64_t out = s->reserve + placing_open_zones(s, zones) +
                   atomic_load_explicit(&s->zones_out, memory_order_relaxed);
    uint64_t usable = zones > out ? (zones - out) * s->cfg.zone_bytes : 0;
    uint64_t batch =
        (uint64_t)s->cfg.batch_pages * CH_SLOT_BYTES; /* new images beside the old ones */
    uint64_t permille = atomic_load_explicit(&s->slot_permille, memory_order_relaxed);
    /* As many slots as the live images would take; and the fullest zones must be worth collecting. */
    uint64_t live = zone_live_total(s->zones) / 1000 * ch_max_u64(permille, 1000);

    return live + (dirty_new + new_pages) * CH_SLOT_BYTES + batch <=
           usable / 100 *
               (atomic_load_explicit(&s->packs, memory_order_relaxed) ? ROOM_PERCENT_PACKED
                                                                      : ROOM_PERCENT);
}

static int
oop_format(struct store *s)
{
    (void)s; /* zones are born free; a file gets its blocks as it goes (R11: oop_back_reserve()) */
    return 0;
}

static int
oop_repair(struct store *s, unsigned *repaired)
{
    (void)s;
    *repaired = 0; /* nothing is overwritten where it stands, so nothing can be torn there */
    return 0;
}

static int
oop_pid_check(const struct store *s, page_id pid)
{
    (void)s;
    (void)pid;
    return 0;
}

static bool
oop_place_ok(const struct store *s, page_id pid, place_t p)
{
    (void)s;
    (void)pid;
    return p != PLACE_NONE; /* anywhere */
}

const struct store_ops store_oop_ops = {
    .write = oop_write,
    .format = oop_format,
    .repair = oop_repair,
    .pid_check = oop_pid_check,
    .place_ok = oop_place_ok,
    .has_room = oop_has_room,
};
