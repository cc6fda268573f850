/* heat_test.c - the table of write intervals: prediction against known rates, bounds, seeds, priors, memory. */
#include <stdlib.h>

#include "space/heat.h"
#include "zt/zt.h"

static struct heat *
make(struct zt *t, uint64_t pages, bool priors)
{
    const struct heat_config cfg = {.pages_max = pages, .priors = priors};
    struct heat *h = NULL;

    ZT_OK(t, heat_create(&cfg, &h));
    return h;
}

static uint32_t
note(struct heat *h, page_id pid, uint32_t tree, uint32_t now)
{
    struct heat_outcome o;

    heat_note(h, pid, tree, now, &o);
    return o.predicted;
}

static void
test_log_is_monotone(struct zt *t)
{
    uint32_t last = 0;

    for (uint64_t v = 1; v <= UINT32_MAX; v += v / 97 + 1) {
        uint32_t log = heat_log2((uint32_t)v), back = heat_exp2(log);

        ZT_CHECK(t, log >= last);
        ZT_CHECK(t, back <= v && back >= v - v / 200 - 1);
        last = log;
    }
    for (uint32_t e = 0; e < 32; e++)
        ZT_CHECK(t, heat_log2(UINT32_C(1) << e) == e << 8 && heat_exp2(e << 8) == UINT32_C(1) << e);
}

/* Regular and memoryless writes: the mean prediction is the interval, within 5 % and 10 %. */
static void
test_predicts_rates(struct zt *t)
{
    enum {
        PAGES = 2000
    };
    static const uint32_t interval[] = {3, 50, 1000, 70000};
    struct heat *h = make(t, 2 * PAGES, false);

    for (size_t k = 0; k < CH_ARRAY_LEN(interval); k++) {
        double regular = 0, random = 0, want = interval[k];

        for (page_id p = 1; p <= PAGES; p++) {
            uint32_t a = 1000 + (uint32_t)zt_below(t, 1000), b = a;

            heat_forget(h, p);
            heat_forget(h, PAGES + p);
            for (int i = 0; i < 40; i++) {
                note(h, p, 0, a);
                note(h, PAGES + p, 0, b);
                a += interval[k];
                b += 1 + (uint32_t)zt_below(t, 2 * interval[k] - 1);
            }
            regular += heat_predict(h, p, 0, a - interval[k]);
            random += note(h, PAGES + p, 0, b);
        }
        ZT_CHECK(t, regular / PAGES > want * 0.95 && regular / PAGES < want * 1.05);
        ZT_CHECK(t, random / PAGES > want * 0.90 && random / PAGES < want * 1.10);
    }
    heat_destroy(h);
}

static void
test_quiet_pages_slow_down(struct zt *t)
{
    struct heat *h = make(t, 10, false);
    uint32_t life, last = 0;

    for (uint32_t i = 0; i < 20; i++)
        note(h, 7, 0, 100 + i * 10);
    for (uint32_t age = 0; age < 100000; age += 500) {
        life = heat_predict(h, 7, 0, 290 + age);
        ZT_CHECK(t, life >= last && life >= 1 && life <= PLACE_LIFE_MAX);
        last = life;
    }
    ZT_CHECK(t, last > 1000);
    heat_destroy(h);
}

static void
test_clock_wraps(struct zt *t)
{
    struct heat *h = make(t, 10, false);
    uint32_t now = UINT32_MAX - 500;
    uint32_t life;

    for (int i = 0; i < 30; i++)
        note(h, 3, 0, now += 100);
    life = heat_predict(h, 3, 0, now);
    ZT_CHECK(t, life > 90 && life < 110);
    heat_destroy(h);
}

static void
test_bounds(struct zt *t)
{
    struct heat *h = make(t, 5000, false);
    size_t empty = heat_memory(h), used;

    ZT_CHECK(t, heat_predict(h, 1, 0, 5) == PLACE_UNKNOWN);
    ZT_CHECK(t, note(h, 5001, 0, 5) == PLACE_UNKNOWN); /* beyond the bound: ignored */
    ZT_CHECK(t, heat_predict(h, 5001, 0, 50) == PLACE_UNKNOWN && heat_memory(h) == empty);
    for (page_id p = 0; p <= 5000; p++)
        note(h, p, 0, 10);
    used = heat_memory(h);
    ZT_CHECK(t, used - empty <= (size_t)(5000 + 1024) * HEAT_PAGE_BYTES);
    for (page_id p = 0; p <= 5000; p++)
        note(h, p, 0, 20);
    ZT_CHECK(t, heat_memory(h) == used); /* H1 */
    note(h, 9, 0, 20);
    note(h, 9, 0, 20); /* within one unit: once */
    ZT_CHECK(t, heat_predict(h, 9, 0, 20) == 10);
    heat_forget(h, 9);
    ZT_CHECK(t, heat_predict(h, 9, 0, 30) == PLACE_UNKNOWN);
    heat_destroy(h);
    heat_destroy(NULL);
}

static void
test_seeds(struct zt *t)
{
    const uint32_t stamps[4] = {0, 100, 200, 300};
    const uint32_t one[4] = {0, 0, 0, 300};
    const uint32_t none[4] = {0};
    struct heat *h = make(t, 10, false);
    uint32_t life;

    heat_seed(h, 1, stamps, 4);
    life = heat_predict(h, 1, 0, 300);
    ZT_CHECK(t, life >= 94 && life <= 107);
    note(h, 2, 0, 500);
    note(h, 2, 0, 510);
    heat_seed(h, 2, stamps, 4); /* known: stays */
    ZT_CHECK(t, heat_predict(h, 2, 0, 510) == 10);
    heat_seed(h, 3, one, 4);
    heat_seed(h, 4, none, 4);
    ZT_CHECK(t, heat_predict(h, 3, 0, 310) == PLACE_UNKNOWN);
    ZT_CHECK(t, heat_predict(h, 4, 0, 310) == PLACE_UNKNOWN);
    heat_destroy(h);
}

/* Tree 1 rewrites its pages after 1000 units, tree 2 never. */
static void
test_priors(struct zt *t)
{
    struct heat *h = make(t, 4000, true);
    uint32_t life;

    for (page_id p = 1; p <= 1000; p++) {
        note(h, p, 1, (uint32_t)p);
        note(h, 2000 + p, 2, (uint32_t)p);
    }
    for (page_id p = 1; p <= 1000; p++)
        note(h, p, 1, (uint32_t)p + 1000);
    life = heat_predict(h, 3500, 1, 3000);
    ZT_CHECK(t, life > 900 && life < 1100);
    ZT_CHECK(t, heat_predict(h, 3501, 2, 3000) == PLACE_NEVER);
    ZT_CHECK(t, heat_predict(h, 3502, 3, 3000) == PLACE_UNKNOWN);
    heat_destroy(h);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"log is monotone", test_log_is_monotone, 1},
        {"predicts rates", test_predicts_rates, 4},
        {"quiet pages slow down", test_quiet_pages_slow_down, 1},
        {"clock wraps", test_clock_wraps, 1},
        {"bounds", test_bounds, 1},
        {"seeds", test_seeds, 1},
        {"priors", test_priors, 1},
    };

    return zt_main(argc, argv, "space/heat", cases, CH_ARRAY_LEN(cases));
}
