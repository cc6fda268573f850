/* placing.c - which pages are written together: death times, classes, and the parts of a batch.
 *
 *     pages or images -> life of each (heat, or the page header) -> place_batch(): class -> sorted by class
 *         -> parts, one a class -> each packed by itself -> one vector of writes, a zone for each class
 *
 * The clock is the log's position in units of 4 KiB, as in the page header's history. User writes are noted in the heat
 * table; copies made by GC are no writes. After a reopen the table is empty and is filled from the headers of the pages that
 * are written; an image that GC moves meanwhile goes by the death time in its own header.
 *
 *   L1  a part never mixes classes but where a class has fewer than PART_MIN items of a packed batch, which then join
 *       the class before it: a slot for one or two images would cost more than the separation gains.
 *   L2  as many zones are open at once as OPEN_SHARE of all allow; classes beyond that share the nearest one's (zone.h).
 *
 * Locks: s->lock. Crash: all of it is memory. The checkpoint keeps what the zones hold (store_recover.c).
 */
#include "store/store_internal.h"

#include "base/log.h"
#include "page/page.h"
#include "space/heat.h"

enum {
    UNIT_SHIFT = 12, /* of the clock, as page_note_write() */
    PART_MIN = 6,
    OPEN_SHARE = 32,     /* of the zones, one may be open */
    OPEN_SHARE_MOST = 6, /* where the number is given */
    CLASSES_DEFAULT = 8,
};

static bool
is_shared(const struct store *s)
{
    return s->cfg.placement == PLACE_NOSEP || s->cfg.placement == PLACE_LOG;
}

/* ---- create, destroy, census ---- */

static int
create_heat(struct store *s)
{
    struct heat_config cfg = {.pages_max = s->cfg.pages_max, .priors = !s->cfg.no_priors};

    return s->cfg.header_history ? 0 : heat_create(&cfg, &s->pl.heat);
}

int
placing_create(struct store *s)
{
    unsigned classes = s->cfg.classes != 0 ? s->cfg.classes : CLASSES_DEFAULT;
    struct place_config cfg = {
        .policy = s->cfg.placement,
        .classes_max = classes,
        .fixed = s->cfg.classes != 0,
        .gc_unsorted = s->cfg.gc_unsorted,
        .by_tree = !s->cfg.no_priors,
    };
    int rc = 0;

    CH_ASSERT(classes <= ZONE_CLASSES);
    s->pl.classes = 1;
    if (s->cfg.placement != PLACE_GDT && s->cfg.placement != PLACE_LOG)
        return 0;
    s->pl.classes = classes;
    s->w.slots = ch_alloc_aligned((size_t)s->chunk_slots * CH_SLOT_BYTES);
    if (s->w.slots == NULL)
        return CH_FAIL(COHORT_ENOMEM, "buffer of %u slots", s->chunk_slots);
    rc = create_heat(s);
    if (rc == 0)
        rc = place_create(&cfg, &s->pl.place);
    return rc;
}

void
placing_destroy(struct store *s)
{
    heat_destroy(s->pl.heat);
    place_destroy(s->pl.place);
    ch_free_aligned(s->w.slots);
}

size_t
placing_memory(const struct store *s)
{
    size_t n = s->pl.heat != NULL ? heat_memory(s->pl.heat) : 0;

    return n + (s->w.slots != NULL ? (size_t)s->chunk_slots * CH_SLOT_BYTES : 0);
}

uint32_t
placing_open_zones(const struct store *s, uint64_t zones)
{
    uint32_t least = s->cfg.placement == PLACE_NOSEP ? 1 : 2;
    uint32_t most = is_shared(s) ? s->pl.classes : 2 * s->pl.classes;

    if (s->cfg.open_zones != 0)
        return (uint32_t)ch_clamp_u64(ch_min_u64(zones / OPEN_SHARE_MOST, s->cfg.open_zones), least,
                                      2 * ZONE_CLASSES);
    return (uint32_t)ch_max_u64(ch_min_u64(zones / OPEN_SHARE, most), least);
}

void
placing_census(struct store *s)
{
    uint64_t zones = s->cfg.growable ? oop_zones_used(s) : zone_count(s->zones);
    uint32_t open = placing_open_zones(s, zones);

    s->open_zones = open;
    zone_set_open_max(s->zones, is_shared(s) ? open : open / 2);
}

/* ---- lives ---- */

/* From a death time in bytes of log: what is left of it, or, when it is overdue, as long again as the page has lived. */
static uint32_t
life_of_death(const struct store *s, lsn_t death, lsn_t lsn)
{
    lsn_t now = (lsn_t)s->pl.now << UNIT_SHIFT;
    lsn_t left;

    if (death == CH_LSN_MAX)
        return PLACE_NEVER;
    left = death > now ? death - now : now - ch_min_u64(lsn, now);
    return (uint32_t)ch_clamp_u64(left >> UNIT_SHIFT, 1, PLACE_LIFE_MAX);
}

/* The user has written the page: noted, and its life from now on. */
static uint32_t
life_of_page(struct store *s, const struct store_page *p, struct place_item *it)
{
    uint32_t stamps[PAGE_HISTORY];
    unsigned n = page_history(p->page, stamps);
    struct heat_outcome outcome;
    lsn_t now = (lsn_t)s->pl.now << UNIT_SHIFT;

    it->tree = page_tree(p->page);
    it->first = n < 2;
    if (s->pl.heat == NULL)
        return life_of_death(s, page_death_time(p->page, now), p->lsn);
    if (n < 2)
        heat_forget(s->pl.heat, p->pid); /* a page that is new; the id may have been another's */
    else
        heat_seed(s->pl.heat, p->pid, stamps, n);
    heat_note(s->pl.heat, p->pid, it->tree, n > 0 ? stamps[n - 1] : s->pl.now, &outcome);
    place_note_outcome(s->pl.place, &outcome);
    return heat_predict(s->pl.heat, p->pid, it->tree, s->pl.now);
}

static uint16_t
death_of_life(const struct store *s, uint32_t life)
{
    if (life >= PLACE_UNKNOWN)
        return page_death_pack(CH_LSN_MAX);
    return page_death_pack(((lsn_t)s->pl.now + life) << UNIT_SHIFT);
}

static uint32_t
life_of_image(const struct store *s, const struct pack_item *it)
{
    /* The image does not say its tree: of no use but for priors. */
    uint32_t life = s->pl.heat != NULL ? heat_predict(s->pl.heat, it->pid, 0, s->pl.now) : 0;

    if (s->pl.heat == NULL || life == PLACE_UNKNOWN)
        life = life_of_death(s, page_death_unpack(it->death), it->lsn);
    return life;
}

/* ---- parts ---- */

static void
one_part(struct store *s, enum zone_stream stream, unsigned n)
{
    s->w.parts[0] = (struct store_part){.stream = stream, .count = n};
    s->w.part_count = 1;
}

/* Item k of the order of writing. */
static const struct place_item *
in_order(const struct store *s, unsigned k)
{
    return &s->pl.items[s->pl.order[k]];
}

/* L1 */
static void
make_parts(struct store *s, enum zone_stream origin, unsigned n)
{
    unsigned least = atomic_load_explicit(&s->packs, memory_order_relaxed) ? PART_MIN : 1;
    unsigned k = 0;

    for (unsigned i = 0; i < n;) {
        struct store_part part = {.first = i};
        unsigned class = in_order(s, i)->stream % ZONE_CLASSES;

        while (i < n && in_order(s, i)->stream % ZONE_CLASSES == class)
            i++;
        part.count = i - part.first;
        part.stream = (enum zone_stream)(origin + class);
        if (k > 0 && (part.count < least || s->w.parts[k - 1].count < least)) {
            if (part.count > s->w.parts[k - 1].count)
                s->w.parts[k - 1].stream = part.stream;
            s->w.parts[k - 1].count += part.count;
        } else {
            s->w.parts[k++] = part;
        }
    }
    s->w.part_count = k;
}

/* s->w.items into the order of writing. */
static void
sort_items(struct store *s, unsigned n)
{
    place_order(s->pl.items, s->pl.order, n);
    for (unsigned k = 0; k < n; k++)
        s->pl.sorted[k] = s->w.items[s->pl.order[k]];
    memcpy(s->w.items, s->pl.sorted, n * sizeof(s->w.items[0]));
}

static void
start_batch(struct store *s)
{
    s->pl.now = (uint32_t)(wal_end(s->wal) >> UNIT_SHIFT);
}

void
placing_users(struct store *s, const struct store_page *pages, unsigned n)
{
    start_batch(s);
    for (unsigned i = 0; i < n && s->pl.place == NULL; i++)
        s->pl.order[i] = i;
    if (s->pl.place == NULL) {
        one_part(s, ZONE_STREAM_USER, n);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        struct place_item *it = &s->pl.items[i];

        *it = (struct place_item){.bytes = CH_PAGE_BYTES};
        it->life = life_of_page(s, &pages[i], it);
        s->w.items[i].death = death_of_life(s, it->life);
    }
    place_batch(s->pl.place, PLACE_USER, s->pl.now, s->pl.items, n);
    sort_items(s, n);
    make_parts(s, ZONE_STREAM_USER, n);
}

void
placing_moved(struct store *s, unsigned n)
{
    struct store_gc *g = &s->gc;
    bool delta[CH_BATCH_MAX];
    place_t folded[CH_BATCH_MAX];

    start_batch(s);
    if (s->pl.place == NULL) {
        one_part(s, ZONE_STREAM_GC, n);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        s->pl.items[i] =
            (struct place_item){.bytes = CH_PAGE_BYTES, .life = life_of_image(s, &s->w.items[i])};
    place_batch(s->pl.place, PLACE_GC, s->pl.now, s->pl.items, n);
    sort_items(s, n);
    for (unsigned k = 0; k < n; k++) {
        g->to[k] = g->old[s->pl.order[k]]; /* `to` is free until the images are written */
        delta[k] = g->delta[s->pl.order[k]];
        folded[k] = g->folded[s->pl.order[k]];
        g->pids[k] = s->w.items[k].pid;
    }
    memcpy(g->old, g->to, n * sizeof(g->old[0]));
    memcpy(g->delta, delta, n * sizeof(delta[0]));
    memcpy(g->folded, folded, n * sizeof(folded[0]));
    make_parts(s, ZONE_STREAM_GC, n);
}

void
placing_restore(struct store *s, unsigned n)
{
    struct store_gc *g = &s->gc;
    enum zone_stream stream = s->w.parts[s->w.part_count / 2].stream;
    bool delta[CH_BATCH_MAX];
    place_t folded[CH_BATCH_MAX];

    one_part(s, stream, n);
    if (s->pl.place == NULL)
        return;
    for (unsigned k = 0; k < n; k++) {
        s->pl.sorted[s->pl.order[k]] = s->w.items[k];
        g->to[s->pl.order[k]] = g->old[k];
        delta[s->pl.order[k]] = g->delta[k];
        folded[s->pl.order[k]] = g->folded[k];
    }
    memcpy(g->delta, delta, n * sizeof(delta[0]));
    memcpy(g->folded, folded, n * sizeof(folded[0]));
    memcpy(s->w.items, s->pl.sorted, n * sizeof(s->w.items[0]));
    memcpy(g->old, g->to, n * sizeof(g->old[0]));
    for (unsigned i = 0; i < n; i++) {
        g->pids[i] = s->w.items[i].pid;
        s->pl.order[i] = i;
    }
}

/* ---- packing ---- */

/* Whether images may lie across slots, and where the zones end for which they are packed. GC keeps to it when room is tight:
 * what lay in runs takes more as slots. */
static void
choose_runs(struct store *s, enum zone_stream stream)
{
    bool cold = stream >= ZONE_STREAM_GC;

    if (s->run_max == 0 || (!cold && (s->w.tight || s->cfg.slots == STORE_SLOTS_COLD)))
        packer_runs(s->packer, 0, 0, 0);
    else
        packer_runs(s->packer, s->run_max, zone_contiguous(s->zones, stream), s->zone_slots);
}

static bool
pack_part(struct store *s, struct store_part *part, bool carry, uint32_t most,
          struct pack_plan *plan)
{
    struct pack_item *items = s->w.items + part->first;
    struct pack_plan one = {0};

    choose_runs(s, part->stream);
    pack_build(s->packer, items, part->count, carry, &one);
    part->slot = plan->slot_count;
    part->slots = one.slot_count;
    plan->slot_count += one.slot_count;
    plan->image_total += one.image_total;
    plan->stored += one.stored;
    if (one.slots == NULL || plan->slot_count > most)
        return false;
    if (one.run_slots != NULL)
        memcpy(s->w.run_slots + part->slot, one.run_slots, one.slot_count);
    else
        memset(s->w.run_slots + part->slot, 1, one.slot_count);
    if (s->w.part_count == 1) {
        plan->slots = one.slots;
        return true;
    }
    plan->slots = s->w.slots;
    memcpy(s->w.slots + (size_t)part->slot * CH_SLOT_BYTES, one.slots,
           (size_t)one.slot_count * CH_SLOT_BYTES);
    for (unsigned i = 0; i < part->count; i++)
        items[i].slot += part->slot;
    return true;
}

void
placing_pack(struct store *s, bool carry, uint32_t most, struct pack_plan *plan)
{
    *plan = (struct pack_plan){0};
    for (unsigned k = 0; k < s->w.part_count; k++) {
        if (!pack_part(s, &s->w.parts[k], carry, most, plan)) {
            plan->slots = NULL;
            return;
        }
    }
}

/* ---- what the zones hold ---- */

void
placing_note(struct store *s, unsigned n)
{
    struct zone_heat heat = {0};
    zone_id zone = CH_ZONE_NONE;

    for (unsigned k = 0; k < n; k++) {
        const struct pack_item *it = &s->w.items[k];
        uint32_t life = s->pl.place != NULL ? in_order(s, k)->life : PLACE_UNKNOWN;
        zone_id z;

        if (it->carried)
            continue;
        z = zone_of_slot(s->zones, s->w.slot_no[it->slot]);
        if (zone != CH_ZONE_NONE && z != zone) {
            zone_note(s->zones, zone, s->pl.now, &heat);
            heat = (struct zone_heat){0};
        }
        zone = z;
        if (life == PLACE_UNKNOWN)
            continue;
        heat.known++;
        heat.rates += life == PLACE_NEVER ? 0 : 1.0 / life;
    }
    if (zone != CH_ZONE_NONE)
        zone_note(s->zones, zone, s->pl.now, &heat);
}

/* ---- checkpoint: 0 1 PLACING_PAGE | 1 1 zero | 2 2 bytes | 4 .. what place_save() wrote ---- */

uint64_t
placing_pages(const struct store *s)
{
    return s->pl.place != NULL;
}

void
placing_page_copy(struct store *s, uint8_t *payload)
{
    size_t n;

    rt_lock(&s->lock);
    n = place_save(s->pl.place, payload + 4);
    rt_unlock(&s->lock);
    payload[0] = PLACING_PAGE;
    ch_put16(payload + 2, (uint16_t)n);
}

void
placing_page_load(struct store *s, const uint8_t *payload)
{
    unsigned n = ch_get16(payload + 2);

    if (s->pl.place == NULL)
        return;
    if (n > META_PAGE_PAYLOAD - 4 || place_load(s->pl.place, payload + 4, n) != 0)
        ch_log(COHORT_LOG_INFO, "placement: the checkpoint's state is another's; it learns anew");
}
