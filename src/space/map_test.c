/* map_test.c - the map and the page ids against a plain model; checkpoint pages; bounds; memory. */
#include <stdio.h>
#include <stdlib.h>

#include "space/map.h"
#include "zt/zt.h"

enum {
    SEG_ENTRIES = MAP_SHARDS * MAP_PAGE_ENTRIES,
    MODEL_IDS = 2 * SEG_ENTRIES + 1000
};

static void
set_locked(struct map *m, page_id pid, place_t to)
{
    uint64_t shard = UINT64_C(1) << map_shard(pid);

    map_lock(m, shard);
    (void)map_set(m, pid, to);
    map_unlock(m, shard);
}

static place_t
random_place(struct zt *t)
{
    uint32_t steps = 2 + (uint32_t)zt_below(t, 254);

    return place_make(1 + zt_below(t, (UINT64_C(1) << 38) - 1),
                      16 * (uint32_t)zt_below(t, 256 - steps), 16 * steps);
}

/* Goal: a place keeps slot, offset and length apart, at their extremes too. */
static void
test_place(struct zt *t)
{
    for (int i = 0; i < 10000; i++) {
        uint64_t slot = zt_below(t, 2) ? (UINT64_C(1) << 40) - 1 : zt_below(t, UINT64_C(1) << 40);
        uint32_t off = 16 * (uint32_t)zt_below(t, 256);
        uint32_t len = 16 * (uint32_t)zt_below(t, 257);
        place_t p = place_make(slot, off, len);

        ZT_CHECK(t, place_slot(p) == slot && place_offset(p) == off && place_bytes(p) == len);
        ZT_CHECK(t, (p & 0x7f) == 0);
    }
}

/* Goal: get, set and move_if do what an array does; dirty marks are those of the pages changed since they
 * were copied; what was copied is what stood there. */
static void
test_places_model(struct zt *t)
{
    enum {
        PAGES = 70
    };
    static place_t model[PAGES * MAP_PAGE_ENTRIES];
    bool dirty[PAGES];
    uint64_t entries[MAP_PAGE_ENTRIES];
    struct map *m;

    memset(model, 0, sizeof(model));
    ZT_OK(t, map_create(PAGES * MAP_PAGE_ENTRIES, &m));
    ZT_OK(t, map_ensure(m, PAGES * MAP_PAGE_ENTRIES - 1));
    ZT_CHECK(t, map_page_count(m) == PAGES);
    for (unsigned k = 0; k < PAGES; k++) {
        ZT_CHECK(t, map_page_dirty(m, k)); /* never written yet */
        dirty[k] = true;
    }
    for (int step = 0; step < 3000; step++) {
        page_id pid = 1 + zt_below(t, CH_ARRAY_LEN(model) - 1);
        uint64_t k = pid / MAP_PAGE_ENTRIES;
        place_t to = zt_below(t, 4) == 0 ? PLACE_NONE : random_place(t);
        uint64_t shards = UINT64_C(1) << map_shard(pid) | ch_prng_next(&t->rng);
        bool moved;

        ZT_OK(t, map_ensure(m, pid));
        ZT_CHECK(t, map_get(m, pid) == model[pid]);
        map_lock(m, shards);
        switch (zt_below(t, 3)) {
        case 0:
            ZT_CHECK(t, map_set(m, pid, to) == model[pid]);
            model[pid] = to;
            dirty[k] = true;
            break;
        case 1:
            ZT_CHECK(t, map_move_if(m, pid, model[pid], to));
            model[pid] = to;
            dirty[k] = true;
            break;
        default:
            moved = map_move_if(m, pid, model[pid] ^ 128, to);
            ZT_CHECK(t, !moved);
            break;
        }
        map_unlock(m, shards);
        ZT_CHECK(t, map_get(m, pid) == model[pid] && map_page_dirty(m, k) == dirty[k]);
        k = zt_below(t, PAGES);
        if (zt_below(t, 3) == 0) {
            map_page_copy(m, k, entries);
            ZT_CHECK(t, memcmp(entries, model + k * MAP_PAGE_ENTRIES, sizeof(entries)) == 0);
            ZT_CHECK(t, !map_page_dirty(m, k));
            dirty[k] = zt_below(t, 4) == 0;
            if (dirty[k])
                map_page_redirty(m, k);
        }
    }
    for (unsigned k = 0; k < PAGES; k++)
        ZT_CHECK(t, map_page_dirty(m, k) == dirty[k]);
    ZT_CHECK(t, !map_page_dirty(m, PAGES) && map_check(m));
    map_destroy(m);
}

/* The ids in use, as a plain array. */
struct ids {
    bool used[MODEL_IDS];
    uint64_t high, count;
};

static page_id
model_lowest(const struct ids *ids)
{
    page_id p = 1;

    while (p < MODEL_IDS && ids->used[p])
        p++;
    return p;
}

static void
model_use(struct ids *ids, page_id pid, bool used)
{
    ids->count += (uint64_t)used - (uint64_t)ids->used[pid];
    ids->used[pid] = used;
    if (used)
        ids->high = ch_max_u64(ids->high, pid + 1);
}

static void
check_ids(struct zt *t, const struct map *m, const struct ids *ids)
{
    ZT_CHECK(t, map_check(m));
    ZT_CHECK(t, map_pid_high(m) == ids->high && map_pid_count(m) == ids->count);
    for (page_id p = 1; p < MODEL_IDS; p++)
        ZT_CHECK(t, map_pid_is_used(m, p) == ids->used[p]);
    ZT_CHECK(t, map_pid_is_used(m, 0));
    ZT_CHECK(t, map_page_count(m) >= ch_div_up(ids->high, MAP_PAGE_ENTRIES));
}

/* Goal: the lowest free id is handed out, EFULL comes exactly at the limit, nothing is lost over segments.
 * Method: runs of allocations and frees, and marks as recovery makes them, against an array of bools. */
static void
test_ids_model(struct zt *t)
{
    struct ids *ids = calloc(1, sizeof(*ids));
    struct map *m;
    uint64_t limit = MODEL_IDS;

    ZT_CHECK(t, ids != NULL);
    ids->high = 1;
    ZT_OK(t, map_create(MODEL_IDS, &m));
    for (int step = 0; step < 60; step++) {
        uint64_t run = 1 + zt_below(t, zt_below(t, 8) == 0 ? 20000 : 200);
        uint64_t kind = zt_below(t, 6);
        page_id lowest = model_lowest(ids);

        for (uint64_t i = 0; i < run; i++) {
            page_id pid = 1 + zt_below(t, MODEL_IDS - 1);

            if (kind < 3) {
                lowest = lowest < MODEL_IDS && ids->used[lowest] ? model_lowest(ids) : lowest;
                ZT_STATUS(t, map_pid_alloc(m, &pid), lowest < limit ? 0 : COHORT_EFULL);
                if (lowest >= limit)
                    break;
                ZT_CHECK(t, pid == lowest);
                model_use(ids, pid, true);
                while (lowest < MODEL_IDS && ids->used[lowest])
                    lowest++;
            } else if (kind < 5) {
                if (!ids->used[pid])
                    continue;
                map_pid_free(m, pid);
                model_use(ids, pid, false);
            } else if (i < 20) {
                ZT_OK(t, map_pid_mark_used(m, pid));
                model_use(ids, pid, true);
            }
        }
        if (zt_below(t, 8) == 0) {
            limit = zt_below(t, 2) ? MODEL_IDS : 1 + zt_below(t, MODEL_IDS);
            map_set_limit(m, limit == MODEL_IDS ? UINT64_MAX : limit);
        }
    }
    check_ids(t, m, ids);
    map_destroy(m);
    free(ids);
}

/* Goal: all ids of a full map are handed out in order, each once, and then EFULL; the last one freed is
 * the next one given. */
static void
test_ids_exhausted(struct zt *t)
{
    uint64_t max = SEG_ENTRIES * zt_below(t, 3) + 1 + zt_below(t, 130);
    struct map *m;
    page_id pid, one;

    ZT_OK(t, map_create(max, &m));
    for (page_id want = 1; want < max; want++) {
        ZT_OK(t, map_pid_alloc(m, &pid));
        ZT_CHECK(t, pid == want);
    }
    for (int i = 0; i < 20; i++) {
        ZT_STATUS(t, map_pid_alloc(m, &pid), COHORT_EFULL);
        if (max == 1)
            break;
        one = 1 + zt_below(t, max - 1);
        map_pid_free(m, one);
        ZT_CHECK(t, map_check(m) && !map_pid_is_used(m, one));
        ZT_OK(t, map_pid_alloc(m, &pid));
        ZT_CHECK(t, pid == one);
    }
    ZT_STATUS(t, map_pid_mark_used(m, max), COHORT_EFULL);
    ZT_STATUS(t, map_ensure(m, max), COHORT_EFULL);
    ZT_CHECK(t, map_get(m, max) == PLACE_NONE && map_get(m, UINT64_MAX) == PLACE_NONE);
    ZT_CHECK(t, map_pid_count(m) == max - 1 && map_check(m));
    map_destroy(m);
}

/* Goal: an id freed far below is found again: the search looks behind full segments and full leaves too. */
static void
test_ids_over_leaves(struct zt *t)
{
    enum {
        LEAF = 64 * SEG_ENTRIES,
        MAX = LEAF + 2 * SEG_ENTRIES
    };
    struct map *m;
    page_id pid, one;

    ZT_OK(t, map_create(MAX, &m));
    for (page_id want = 1; want < MAX - 100; want++) {
        ZT_OK(t, map_pid_alloc(m, &pid));
        if (pid != want)
            ZT_CHECK(t, pid == want);
    }
    for (page_id next = MAX - 100; next < MAX; next++) {
        one = 1 + zt_below(t, LEAF);
        map_pid_free(m, one);
        ZT_OK(t, map_pid_alloc(m, &pid));
        ZT_CHECK(t, pid == one);
        ZT_OK(t, map_pid_alloc(m, &pid));
        ZT_CHECK(t, pid == next);
    }
    ZT_STATUS(t, map_pid_alloc(m, &pid), COHORT_EFULL);
    ZT_CHECK(t, map_check(m) && map_pid_count(m) == MAX - 1);
    map_destroy(m);
}

static bool
keep_thirds(void *arg, page_id pid)
{
    (*(unsigned *)arg)++;
    return pid % 3 == 0;
}

/* Goal: a map written page by page and loaded again is the same map, clean; then an id is in use iff it has
 * a place or is kept. */
static void
test_reload_and_rebuild(struct zt *t)
{
    uint64_t n = 1 + zt_below(t, 60000);
    uint64_t entries[MAP_PAGE_ENTRIES];
    struct map *a, *b;
    unsigned asked = 0, without = 0;
    page_id pid;

    ZT_OK(t, map_create(100000, &a));
    ZT_OK(t, map_create(100000, &b));
    for (uint64_t i = 0; i < n; i++) {
        ZT_OK(t, map_pid_alloc(a, &pid));
        if (zt_below(t, 2) == 0)
            set_locked(a, pid, random_place(t));
        without += map_get(a, pid) == PLACE_NONE;
    }
    ZT_CHECK(t, map_page_count(a) == (n + 1 + MAP_PAGE_ENTRIES - 1) / MAP_PAGE_ENTRIES);
    for (uint64_t k = 0; k < map_page_count(a); k++) {
        ZT_CHECK(t, map_page_dirty(a, k));
        map_page_copy(a, k, entries);
        ZT_OK(t, map_page_load(b, k, entries));
        ZT_CHECK(t, !map_page_dirty(b, k));
    }
    ZT_CHECK(t, map_page_count(b) == map_page_count(a) && map_check(b));
    ZT_OK(t, map_pid_mark_used(b, map_pid_high(a) - 1));
    ZT_CHECK(t, map_pid_high(b) == map_pid_high(a));
    map_pid_rebuild(b, keep_thirds, &asked);
    ZT_CHECK(t, map_check(b) && asked == without);
    for (pid = 1; pid <= n; pid++) {
        bool want = map_get(a, pid) != PLACE_NONE || pid % 3 == 0;

        ZT_CHECK(t, map_get(b, pid) == map_get(a, pid) && map_pid_is_used(b, pid) == want);
    }
    ZT_CHECK(t, !map_pid_is_used(b, n + 1));
    map_pid_rebuild(b, NULL, NULL);
    for (pid = 1; pid <= n; pid++)
        ZT_CHECK(t, map_pid_is_used(b, pid) == (map_get(a, pid) != PLACE_NONE));
    ZT_CHECK(t, map_check(b));
    map_destroy(a);
    map_destroy(b);
}

/* Goal: a damaged map page that got through its checksum is refused, and changes nothing. */
static void
test_load_refuses(struct zt *t)
{
    uint64_t entries[MAP_PAGE_ENTRIES] = {0};
    struct map *m;

    ZT_OK(t, map_create(1000, &m));
    entries[0] = place_make(5, 0, 64);
    ZT_STATUS(t, map_page_load(m, 0, entries), COHORT_EMAP); /* page 0 */
    ZT_OK(t, map_page_load(m, 1, entries));
    entries[1] = 0x1000; /* a place in slot 0 */
    ZT_STATUS(t, map_page_load(m, 1, entries), COHORT_EMAP);
    entries[1] = 0;
    entries[500] = place_make(5, 0, 64); /* page 1004 */
    ZT_STATUS(t, map_page_load(m, 1, entries), COHORT_EMAP);
    ZT_STATUS(t, map_page_load(m, 2, entries), COHORT_EMAP);
    ZT_CHECK(t, map_get(m, 504) == place_make(5, 0, 64) && map_pid_is_used(m, 504));
    ZT_CHECK(t, map_pid_count(m) == 1 && map_pid_high(m) == 505 && map_page_count(m) == 2);
    ZT_CHECK(t, map_check(m));
    map_destroy(m);
}

/* Goal: memory is that of the ids in use: 8.5 bytes a page when full, little for the largest map, and an id far
 * away costs a segment. */
static void
test_memory(struct zt *t)
{
    uint64_t n = 10 * SEG_ENTRIES;
    size_t before;
    struct map *m;
    page_id pid;

    ZT_OK(t, map_create(n, &m));
    for (page_id p = 1; p < n; p++)
        ZT_OK(t, map_pid_alloc(m, &pid));
    ZT_CHECK(t, map_memory(m) * 10 <= n * 85);
    map_destroy(m);

    ZT_OK(t, map_create(UINT64_C(1) << 40, &m));
    before = map_memory(m);
    ZT_CHECK(t, before < 5 << 20);
    pid = (UINT64_C(1) << 40) - 1 - zt_below(t, 1000);
    ZT_CHECK(t, map_get(m, pid) == PLACE_NONE && !map_pid_is_used(m, pid));
    ZT_OK(t, map_ensure(m, pid));
    set_locked(m, pid, 1 << 24 | 1 << 9);
    ZT_CHECK(t, map_get(m, pid) == (1 << 24 | 1 << 9));
    ZT_CHECK(t, map_memory(m) - before < 400000);
    ZT_CHECK(t, map_page_dirty(m, map_page_count(m) - 1) && map_page_dirty(m, 1 << 30));
    ZT_OK(t, map_pid_alloc(m, &pid));
    ZT_CHECK(t, pid == 1);
    map_destroy(m);
    map_destroy(NULL);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"place", test_place, 1},
        {"places_model", test_places_model, 100},
        {"ids_model", test_ids_model, 100},
        {"ids_exhausted", test_ids_exhausted, 30},
        {"ids_over_leaves", test_ids_over_leaves, 1},
        {"reload_and_rebuild", test_reload_and_rebuild, 30},
        {"load_refuses", test_load_refuses, 1},
        {"memory", test_memory, 1},
    };

    return zt_main(argc, argv, "map", cases, CH_ARRAY_LEN(cases));
}
