/* space_threads_test.c - map and zones under real threads; worth most under TSan.
 *
 * The device of the second test is plain memory: a zone that is reset while a reader is in it is a data race
 * for TSan, and a wrong page id for everybody else.
 */
#include <stdio.h>
#include <stdlib.h>

#include "rt/rt.h"
#include "space/map.h"
#include "space/zone.h"
#include "zt/zt.h"

enum {
    PAGES = 1500,
    ZONES = 24,
    ZONE_SLOTS = 100,
    WRITES = 20000
};

struct shared {
    struct zt *t;
    struct map *map;
    struct zone_table *zones;
    uint64_t device[ZONES * ZONE_SLOTS]; /* the page id that stands in the slot, ~0 = reset */
    _Atomic uint64_t lsn;                /* a clock; drawn under a shard lock */
    _Atomic bool stop;                   /* main (release) -> readers (acquire) */
    _Atomic uint32_t owner[2 * PAGES];   /* test 1: who holds the id, 0 = nobody; relaxed counts */
    _Atomic uint64_t reads, retries, resets; /* statistics */
};

struct worker {
    struct shared *s;
    struct rt_thread thread;
    struct ch_prng rng;
    unsigned index;
};

static void
spawn(struct shared *s, struct worker *w, unsigned index, void (*fn)(void *))
{
    w->s = s;
    w->index = index;
    ch_prng_init(&w->rng, s->t->seed * 100 + index);
    ZT_OK(s->t, rt_spawn(&w->thread, "space-test", fn, w));
}

/* Place number `version` of a page: tells the page, and which of two places of one page is newer. */
static place_t
versioned(page_id pid, uint64_t version)
{
    return place_make(pid << 20 | version, 0, CH_SLOT_BYTES);
}

static void
map_writer(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;

    for (unsigned i = 0; i < WRITES; i++) {
        page_id pid = 1 + ch_prng_below(&w->rng, PAGES - 1);
        uint64_t shards = UINT64_C(1) << map_shard(pid) | UINT64_C(1) << (i % 64);
        place_t p;

        ZT_OK(s->t, map_ensure(s->map, pid * 50));
        ZT_OK(s->t, map_ensure(s->map, pid));
        map_lock(s->map, shards);
        p = map_get(s->map, pid);
        p = versioned(pid, p == PLACE_NONE ? 1 : (place_slot(p) & 0xfffff) + 1);
        (void)map_set(s->map, pid, p);
        map_unlock(s->map, shards);
    }
}

static void
map_reader(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;
    uint64_t *seen = calloc(PAGES, sizeof(*seen));
    uint64_t entries[MAP_PAGE_ENTRIES];

    ZT_CHECK(s->t, seen != NULL);
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        page_id pid = 1 + ch_prng_below(&w->rng, PAGES - 1);
        place_t p = map_get(s->map, pid);

        ZT_CHECK(s->t, p == PLACE_NONE || (place_slot(p) >> 20 == pid && p >= seen[pid]));
        seen[pid] = p;
        if (ch_prng_below(&w->rng, 64) == 0) {
            uint64_t k = ch_prng_below(&w->rng, map_page_count(s->map));

            map_page_copy(s->map, k, entries);
            pid = k * MAP_PAGE_ENTRIES + ch_prng_below(&w->rng, MAP_PAGE_ENTRIES);
            p = entries[pid % MAP_PAGE_ENTRIES];
            ZT_CHECK(s->t, p == PLACE_NONE || place_slot(p) >> 20 == pid);
        }
    }
    free(seen);
}

static void
id_give_back(struct worker *w, page_id pid)
{
    ZT_CHECK(w->s->t,
             atomic_exchange_explicit(&w->s->owner[pid], 0, memory_order_relaxed) == w->index + 1);
    map_pid_free(w->s->map, pid);
}

static void
id_taker(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;
    page_id mine[200];
    unsigned n = 0;

    for (unsigned i = 0; i < WRITES; i++) {
        unsigned k = (unsigned)ch_prng_below(&w->rng, CH_ARRAY_LEN(mine));

        if (k < n) {
            id_give_back(w, mine[k]);
            mine[k] = mine[n - 1];
            n--;
        } else {
            ZT_OK(s->t, map_pid_alloc(s->map, &mine[n]));
            ZT_CHECK(s->t, mine[n] < CH_ARRAY_LEN(s->owner));
            ZT_CHECK(s->t, atomic_exchange_explicit(&s->owner[mine[n]], w->index + 1,
                                                    memory_order_relaxed) == 0);
            n++;
        }
    }
    while (n > 0)
        id_give_back(w, mine[--n]);
}

/* Goal: map_get() beside map_set() sees whole places, never an older one after a newer; ids are handed out
 * to one thread at a time; checkpoint marks are not lost: in the end every changed page is dirty or copied. */
static void
test_map_threads(struct zt *t)
{
    static void (*const roles[])(void *) = {map_writer, map_writer, id_taker,
                                            id_taker,   map_reader, map_reader};
    struct shared *s = calloc(1, sizeof(*s));
    struct worker w[CH_ARRAY_LEN(roles)];

    ZT_CHECK(t, s != NULL);
    s->t = t;
    ZT_OK(t, map_create(UINT64_C(1) << 30, &s->map));
    for (unsigned i = 0; i < CH_ARRAY_LEN(roles); i++)
        spawn(s, &w[i], i, roles[i]);
    for (unsigned i = 0; i < 4; i++)
        rt_join(&w[i].thread);
    atomic_store_explicit(&s->stop, true, memory_order_release); /* partner: map_reader() */
    for (unsigned i = 4; i < CH_ARRAY_LEN(roles); i++)
        rt_join(&w[i].thread);
    ZT_CHECK(t, map_check(s->map) && map_pid_count(s->map) == 0);
    map_destroy(s->map);
    free(s);
}

/* ---- pins against resets ---------------------------------------------------------------------- */

/* Writes the page to a fresh slot and publishes it there, if it still stands at `from` (any place when that
 * is PLACE_NONE). False when there is no zone. */
static bool
write_page(struct shared *s, enum zone_stream stream, page_id pid, place_t from)
{
    uint64_t shard = UINT64_C(1) << map_shard(pid);
    struct zone_span span;
    place_t old, to;
    lsn_t lsn;

    if (zone_reserve(s->zones, stream, 1, &span) != 0)
        return false;
    to = place_make(zone_slot(s->zones, span.zone, span.slot_first), 0, CH_SLOT_BYTES);
    s->device[place_slot(to) - 1] = pid;
    map_lock(s->map, shard);
    old = map_get(s->map, pid);
    if (from == PLACE_NONE || map_move_if(s->map, pid, from, to)) {
        lsn = 1 + atomic_fetch_add_explicit(&s->lsn, 1, memory_order_relaxed);
        if (from == PLACE_NONE)
            (void)map_set(s->map, pid, to);
        zone_live_add(s->zones, span.zone, CH_SLOT_BYTES);
        if (old != PLACE_NONE)
            zone_live_sub(s->zones, zone_of_slot(s->zones, place_slot(old)), CH_SLOT_BYTES, lsn);
    }
    map_unlock(s->map, shard);
    zone_commit(s->zones, &span);
    return true;
}

static void
reset_dead(struct shared *s)
{
    zone_id z;

    while (zone_next_dead(s->zones, atomic_load_explicit(&s->lsn, memory_order_relaxed), &z,
                          NULL) == 0) {
        for (uint32_t i = 0; i < ZONE_SLOTS; i++)
            s->device[zone_slot(s->zones, z, i) - 1] = UINT64_MAX;
        zone_free(s->zones, z);
        atomic_fetch_add_explicit(&s->resets, 1, memory_order_relaxed);
    }
}

static void
collector(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;

    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        zone_id z;

        reset_dead(s);
        if (zone_free_count(s->zones) > 6 ||
            zone_victim(s->zones, (ZONE_SLOTS - 5) * CH_SLOT_BYTES, &z) != 0) {
            rt_yield();
            continue;
        }
        for (uint32_t i = 0; i < ZONE_SLOTS; i++) {
            uint64_t slot = zone_slot(s->zones, z, i);
            page_id pid = s->device[slot - 1];
            place_t here = place_make(slot, 0, CH_SLOT_BYTES);

            while (map_get(s->map, pid) == here && !write_page(s, ZONE_STREAM_GC, pid, here))
                reset_dead(s);
        }
    }
}

static void
page_writer(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;

    for (unsigned i = 0; i < WRITES; i++) {
        page_id pid = 1 + ch_prng_below(&w->rng, PAGES - 1);

        while (!write_page(s, ZONE_STREAM_USER, pid, PLACE_NONE))
            rt_yield();
    }
}

static void
pinning_reader(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;

    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        page_id pid = 1 + ch_prng_below(&w->rng, PAGES - 1);
        place_t p = map_get(s->map, pid);
        zone_id z;

        if (p == PLACE_NONE)
            continue;
        z = zone_of_slot(s->zones, place_slot(p));
        zone_pin(s->zones, z);
        if (map_get(s->map, pid) == p) {
            ZT_CHECK(s->t, s->device[place_slot(p) - 1] == pid);
            atomic_fetch_add_explicit(&s->reads, 1, memory_order_relaxed);
        } else {
            atomic_fetch_add_explicit(&s->retries, 1, memory_order_relaxed);
        }
        zone_unpin(s->zones, z);
    }
}

/* Goal (R17, S1): a page read between pin and unpin, after the second look at the map, is the page, however
 * fast the zones turn over below it. */
static void
test_pin_and_reset(struct zt *t)
{
    static void (*const roles[])(void *) = {page_writer, collector, pinning_reader, pinning_reader};
    struct zone_config cfg = {
        .first_slot = 1, .slots = ZONE_SLOTS, .zones_max = ZONES, .zones = ZONES, .reserve = 4};
    struct shared *s = calloc(1, sizeof(*s));
    struct worker w[CH_ARRAY_LEN(roles)];

    ZT_CHECK(t, s != NULL);
    s->t = t;
    ZT_OK(t, map_create(PAGES, &s->map));
    ZT_OK(t, map_ensure(s->map, PAGES - 1));
    ZT_OK(t, zone_table_create(&cfg, &s->zones));
    for (unsigned i = 0; i < CH_ARRAY_LEN(roles); i++)
        spawn(s, &w[i], i, roles[i]);
    rt_join(&w[0].thread);
    atomic_store_explicit(&s->stop, true, memory_order_release); /* partner: collector, readers */
    for (unsigned i = 1; i < CH_ARRAY_LEN(roles); i++)
        rt_join(&w[i].thread);
    ZT_CHECK(t, zone_check(s->zones) && map_check(s->map));
    ZT_CHECK(t, s->resets > 50 && s->reads > 0);
    zone_table_destroy(s->zones);
    map_destroy(s->map);
    free(s);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"map_threads", test_map_threads, 3},
        {"pin_and_reset", test_pin_and_reset, 5},
    };

    return zt_main(argc, argv, "space_threads", cases, CH_ARRAY_LEN(cases));
}
