/* zone_sets.c - which set each zone stands in: free zones, victims, dead ones. See the head of zone.c.
 *
 * Locking: all with the table's lock held, but zone_check(), which takes it.
 */
#include "space/zone_internal.h"

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

zone_id
zone_free_lowest(const struct zone_table *t)
{
    uint32_t s = 0;
    uint32_t w;

    CH_ASSERT(t->free_count > 0);
    while (t->free_summary[s] == 0)
        s++;
    w = s * 64 + (uint32_t)__builtin_ctzll(t->free_summary[s]);
    return w * 64 + (uint32_t)__builtin_ctzll(t->free_words[w]);
}

zone_id
zone_free_from(const struct zone_table *t, zone_id from)
{
    size_t words = zone_words(t->cfg.zones_max);
    size_t w = from / 64;
    uint64_t bits;

    if (w >= words)
        return CH_ZONE_NONE;
    bits = t->free_words[w] & UINT64_MAX << from % 64;
    for (; bits == 0; bits = t->free_words[w]) {
        w++;
        while (w < words && t->free_summary[w / 64] >> w % 64 == 0)
            w = (w / 64 + 1) * 64; /* no free zone in the rest of the summary word */
        if (w >= words)
            return CH_ZONE_NONE;
        w += (unsigned)__builtin_ctzll(t->free_summary[w / 64] >> w % 64);
    }
    return (zone_id)w * 64 + (uint32_t)__builtin_ctzll(bits);
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
    h->zone[z].pos = ZONE_POS_NONE;
}

/* ---- which structure a zone is in ------------------------------------------------------------ */

void
zone_enter_victims(struct zone_table *t, zone_id z)
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

void
zone_victim_moved(struct zone_table *t, zone_id z)
{
    struct heap h = heap_victims(t);

    heap_fix(&h, t->zone[z].pos);
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
    t->zone[z].pos = ZONE_POS_NONE;
}

void
zone_enter(struct zone_table *t, zone_id z, enum zone_state state)
{
    struct zone *zn = &t->zone[z];

    zn->state = (uint8_t)state;
    zn->pos = ZONE_POS_NONE;
    if (state == ZONE_FREE) {
        free_insert(t, z);
    } else if (state == ZONE_DEAD) {
        CH_ASSERT(zn->live_bytes == 0 && zn->inflight == 0); /* Z6 */
        t->dead_count++;
        waiting_insert(t, z);
    } else if (state == ZONE_LOG) {
        t->log_count++;
    } else if (zone_is_victim(zn)) {
        zone_enter_victims(t, z);
    }
}

void
zone_leave(struct zone_table *t, zone_id z)
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
    } else if (zn->state == ZONE_LOG) {
        t->log_count--;
    } else if (zone_is_victim(zn)) {
        victims_remove(t, z);
    }
}

void
zone_wait_over(struct zone_table *t, lsn_t durable)
{
    while (t->waiting > 0 && t->zone[t->dead[0]].empty_lsn <= durable) {
        zone_id z = t->dead[0];

        waiting_remove(t, z);
        ready_insert(t, z);
    }
}

void
zone_hand_out(struct zone_table *t, zone_id z)
{
    ready_remove(t, z);
    t->zone[z].handed_out = true;
}

/* ---- check ----------------------------------------------------------------------------------- */

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
    if ((zn->state == ZONE_FREE || zn->state == ZONE_LOG) &&
        (zn->cursor != 0 || zn->live_bytes != 0 || zn->inflight != 0))
        return false;
    if (zone_is_victim(zn))
        return zn->pos < t->victim_count && t->victims[zn->pos] == z;
    if (zn->state != ZONE_DEAD)
        return zn->pos == ZONE_POS_NONE && !zn->handed_out;
    if (zn->live_bytes != 0 || zn->inflight != 0)
        return false;
    if (zn->handed_out)
        return zn->pos == ZONE_POS_NONE;
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
    for (size_t w = 0; w < zone_words(t->cfg.zones_max); w++) {
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
    uint32_t counts[ZONE_STATES] = {0};
    uint32_t is_victims = 0, handed_out = 0;
    bool ok;

    rt_lock(t->lock);
    victims = heap_victims(t);
    waiting = heap_waiting(t);
    ok = check_heap(&victims) && check_heap(&waiting) && check_free_summary(t);
    for (zone_id z = 0; z < atomic_load_explicit(&t->zones, memory_order_relaxed); z++) {
        ok = ok && check_zone(t, z);
        counts[t->zone[z].state]++;
        is_victims += zone_is_victim(&t->zone[z]);
        handed_out += t->zone[z].handed_out;
        live += t->zone[z].live_bytes;
    }
    ok = ok && live == atomic_load_explicit(&t->live_total, memory_order_relaxed) &&
         counts[ZONE_FREE] == t->free_count && counts[ZONE_DEAD] == t->dead_count &&
         counts[ZONE_LOG] == t->log_count && is_victims == t->victim_count &&
         t->waiting + t->ready + handed_out == t->dead_count;
    rt_unlock(t->lock);
    return ok;
}
