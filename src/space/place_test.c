/* place_test.c - placement: streams in range, classes by life, how many of them, the paper's grouping, save and load. */
#include <stdlib.h>

#include "space/place.h"
#include "zt/zt.h"

enum {
    BATCH = 128
};

static struct place *
make(struct zt *t, enum place_policy policy, uint32_t classes)
{
    const struct place_config cfg = {.policy = policy, .classes_max = classes, .by_tree = true};
    struct place *p = NULL;

    ZT_OK(t, place_create(&cfg, &p));
    return p;
}

static uint32_t
random_life(struct zt *t)
{
    uint64_t kind = zt_below(t, 20);

    if (kind == 0)
        return PLACE_NEVER;
    return kind == 1 ? PLACE_UNKNOWN : (uint32_t)(1 + zt_below(t, UINT64_C(1) << zt_below(t, 32)));
}

static void
random_batch(struct zt *t, struct place_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        items[i] = (struct place_item){.life = random_life(t),
                                       .bytes = (uint32_t)zt_below(t, 4097),
                                       .tree = (uint32_t)zt_below(t, 5),
                                       .first = zt_below(t, 4) == 0};
}

/* Batches of pages of two kinds, whose predictions are right or mean nothing. */
static void
train(struct zt *t, struct place *p, bool right, uint32_t low, uint32_t high)
{
    struct place_item items[BATCH];

    for (uint32_t i = 0; i < 200; i++) {
        for (uint32_t k = 0; k < BATCH; k++) {
            uint32_t predicted = zt_below(t, 2) == 0 ? low : high;
            uint32_t actual = right ? predicted : zt_below(t, 2) == 0 ? low : high;
            struct heat_outcome o = {predicted, actual};

            place_note_outcome(p, &o);
            items[k] = (struct place_item){.life = predicted, .bytes = 4096};
        }
        place_batch(p, PLACE_USER, i * BATCH, items, BATCH);
    }
}

/* P1 */
static void
test_streams_in_range(struct zt *t)
{
    struct place_item items[BATCH], again[BATCH];

    for (int policy = PLACE_NOSEP; policy <= PLACE_LOG; policy++) {
        uint32_t classes = 1 + (uint32_t)zt_below(t, PLACE_CLASSES_MAX);
        struct place *p = make(t, (enum place_policy)policy, classes);
        struct place *q = make(t, (enum place_policy)policy, classes);

        for (uint32_t now = 0; now < 100; now++) {
            enum place_origin origin = zt_below(t, 2) == 0 ? PLACE_USER : PLACE_GC;
            size_t n = zt_below(t, BATCH + 1);

            random_batch(t, items, n);
            memcpy(again, items, n * sizeof(items[0]));
            place_batch(p, origin, now * 7, items, n);
            place_batch(q, origin, now * 7, again, n);
            ZT_CHECK(t, n == 0 || memcmp(items, again, n * sizeof(items[0])) == 0);
            for (size_t i = 0; i < n; i++) {
                uint32_t in_class = items[i].stream % PLACE_GC_STREAM;

                ZT_CHECK(t, items[i].stream < PLACE_STREAMS && in_class < classes);
                ZT_CHECK(t, items[i].stream < PLACE_GC_STREAM || origin == PLACE_GC);
            }
            if (n > 0 && zt_below(t, 4) == 0) {
                place_note_open(p, items[0].stream);
                place_note_open(q, items[0].stream);
            }
        }
        place_destroy(p);
        place_destroy(q);
    }
}

static void
test_order(struct zt *t)
{
    struct place_item items[BATCH];
    uint32_t order[BATCH];
    bool seen[BATCH] = {0};
    struct place *p = make(t, PLACE_GDT, 8);
    size_t n = zt_below(t, BATCH + 1);

    random_batch(t, items, n);
    place_batch(p, PLACE_USER, 1, items, n);
    place_order(items, order, n);
    for (size_t i = 0; i < n; i++) {
        const struct place_item *a = &items[order[i]], *b = i > 0 ? &items[order[i - 1]] : a;

        ZT_CHECK(t, order[i] < n && !seen[order[i]]);
        seen[order[i]] = true;
        ZT_CHECK(t, b->stream < a->stream || (b->stream == a->stream && b->life <= a->life));
    }
    place_destroy(p);
}

/* Predictions that hold make classes, those that do not collapse to one; longer life is never in a lower class. */
static void
test_adaptive(struct zt *t)
{
    struct place *p = make(t, PLACE_LOG, 8);
    struct place_item items[32];

    ZT_CHECK(t, place_classes(p) == 1);
    train(t, p, true, 1000, 100000);
    ZT_CHECK(t, place_classes(p) >= 6 && place_spread(p) > 2);
    for (uint32_t i = 0; i < CH_ARRAY_LEN(items); i++)
        items[i] = (struct place_item){.life = UINT32_C(1) << i, .bytes = 4096};
    items[31].life = PLACE_NEVER;
    place_batch(p, PLACE_GC, 30000, items, CH_ARRAY_LEN(items));
    for (uint32_t i = 1; i < CH_ARRAY_LEN(items); i++)
        ZT_CHECK(t, items[i].stream >= items[i - 1].stream);
    ZT_CHECK(t, items[0].stream == 0 && items[31].stream == place_classes(p) - 1);
    for (int i = 0; i < 12; i++) /* what was learned is forgotten by halves */
        train(t, p, false, 1000, 100000);
    ZT_CHECK(t, place_classes(p) == 1);
    for (int i = 0; i < 12; i++) /* nothing to separate */
        train(t, p, true, 1000, 1050);
    ZT_CHECK(t, place_classes(p) == 1);
    place_destroy(p);
}

/* Two kinds of pages end up in different streams, each kind in few. */
static void
test_gdt_separates(struct zt *t)
{
    struct place *p = make(t, PLACE_GDT, 4);
    struct place_item items[BATCH];
    uint32_t both = 0, total = 0;
    uint8_t cold, hot_stream = 0;

    for (uint32_t now = 0; now < 200; now++) {
        bool used[2][PLACE_STREAMS] = {{0}};

        for (uint32_t i = 0; i < BATCH; i++)
            items[i] = (struct place_item){
                .life = i % 2 == 0 ? 100 + (uint32_t)zt_below(t, 20) : 90000, .bytes = 4096};
        place_batch(p, PLACE_USER, now * BATCH, items, BATCH);
        hot_stream = items[0].stream;
        for (uint32_t i = 0; i < BATCH; i++)
            used[i % 2][items[i].stream] = true;
        for (unsigned s = 0; s < PLACE_STREAMS; s++) {
            both += used[0][s] && used[1][s] ? 1 : 0;
            total++;
        }
    }
    ZT_CHECK(t, both == 0 && total > 0);
    for (uint32_t i = 0; i < BATCH;
         i++) /* cold pages alone, and hot ones alone, go where such pages are */
        items[i] = (struct place_item){.life = 90000 + i, .bytes = 4096};
    place_batch(p, PLACE_USER, 200 * BATCH, items, BATCH);
    cold = items[0].stream;
    for (uint32_t i = 0; i < BATCH; i++)
        items[i] = (struct place_item){.life = 110, .bytes = 4096};
    place_batch(p, PLACE_USER, 200 * BATCH + 1, items, BATCH);
    ZT_CHECK(t, items[0].stream != cold && hot_stream == items[0].stream);
    place_destroy(p);
}

/* P2; and what is no state is refused, byte by byte. */
static void
test_save_load(struct zt *t)
{
    uint8_t state[PLACE_SAVE_BYTES], copy[PLACE_SAVE_BYTES];
    struct place *p = make(t, PLACE_LOG, 8), *q = make(t, PLACE_LOG, 8);
    struct place_item items[BATCH], again[BATCH];
    size_t n, at;

    train(t, p, true, 1000, 100000);
    n = place_save(p, state);
    ZT_CHECK(t, n <= PLACE_SAVE_BYTES);
    ZT_OK(t, place_load(q, state, n));
    ZT_CHECK(t, place_classes(q) == place_classes(p));
    ZT_CHECK(t, place_save(q, copy) == n && memcmp(state, copy, n) == 0);
    random_batch(t, items, BATCH);
    memcpy(again, items, sizeof(items));
    place_batch(p, PLACE_USER, 200 * BATCH, items, BATCH);
    place_batch(q, PLACE_USER, 200 * BATCH, again, BATCH);
    ZT_CHECK(t, memcmp(items, again, sizeof(items)) == 0);
    at = zt_below(t, n);
    state[at] ^= (uint8_t)(1 + zt_below(t, 255));
    ZT_STATUS(t, place_load(q, state, n), COHORT_EMAP);
    ZT_STATUS(t, place_load(q, copy, n - 1), COHORT_EMAP);
    ZT_CHECK(t, place_classes(q) == place_classes(p));
    place_destroy(p);
    place_destroy(q);
    place_destroy(NULL);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"streams in range", test_streams_in_range, 20},
        {"order", test_order, 20},
        {"adaptive", test_adaptive, 3},
        {"gdt separates", test_gdt_separates, 2},
        {"save and load", test_save_load, 20},
    };

    return zt_main(argc, argv, "space/place", cases, CH_ARRAY_LEN(cases));
}
