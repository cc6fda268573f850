/* skew_test.c - the distributions against what they promise. */
#include <math.h>
#include <stdlib.h>

#include "bench/skew.h"
#include "zt/zt.h"

enum {
    DRAWS = 200000
};

/* Goal: no draw leaves the records, whatever the kind, the group and the clock. */
static void
test_in_range(struct zt *t)
{
    struct skew_config c = {
        .kind = (enum skew_kind)zt_below(t, SKEW_KINDS),
        .records = 1 + zt_below(t, 5000),
        .group = 1 + zt_below(t, 20),
        .theta = (double)zt_below(t, 13) / 10.0,
        .hot_part = 1.0 + (double)zt_below(t, 98),
        .hot_ops = (double)zt_below(t, 101),
        .seed = zt_below(t, 1000),
    };
    struct skew s;

    ZT_OK(t, skew_init(&s, &c));
    for (int i = 0; i < 20000; i++)
        ZT_CHECK(t, skew_draw(&s, &t->rng, zt_below(t, 1u << 30)) < c.records);
}

/* Goal: 90 % of the operations go to the first 10 % of the records, evenly in both parts. */
static void
test_hotcold(struct zt *t)
{
    struct skew_config c = {
        .kind = SKEW_HOTCOLD, .records = 1000, .group = 1, .hot_part = 10, .hot_ops = 90};
    uint64_t hot = 0, hottest = 0, coldest = 0;
    struct skew s;

    ZT_OK(t, skew_init(&s, &c));
    for (int i = 0; i < DRAWS; i++) {
        uint64_t r = skew_draw(&s, &t->rng, 0);

        hot += r < 100;
        hottest += r < 50;
        coldest += r >= 550;
    }
    ZT_CHECK(t, fabs((double)hot / DRAWS - 0.9) < 0.005);
    ZT_CHECK(t, fabs((double)hottest / DRAWS - 0.45) < 0.008);
    ZT_CHECK(t, fabs((double)coldest / DRAWS - 0.05) < 0.005);
}

/* Goal: groups are drawn by the distribution, records of a group evenly. */
static void
test_groups(struct zt *t)
{
    struct skew_config c = {.kind = SKEW_ZIPF, .records = 1500, .group = 15, .theta = 0.8};
    uint64_t seen[1500] = {0}, first = 0;
    double zeta = zipf_zeta(100, 0.8), want;
    struct skew s;

    ZT_OK(t, skew_init(&s, &c));
    for (int i = 0; i < DRAWS; i++)
        seen[skew_draw(&s, &t->rng, 0)]++;
    for (int i = 0; i < 15; i++)
        first += seen[i];
    want = DRAWS / zeta;
    ZT_CHECK(t, fabs((double)first - want) < 5 * sqrt(want));
    for (int i = 0; i < 15; i++)
        ZT_CHECK(t, fabs((double)seen[i] - want / 15) < 6 * sqrt(want / 15));
}

/* Goal: of 30 ranges the hottest has the share that the exponential gives its first term, and the order depends
 * on the seed only. */
static void
test_rangehot(struct zt *t)
{
    struct skew_config c = {
        .kind = SKEW_RANGEHOT, .records = 30000, .group = 1, .seed = zt_below(t, 100)};
    uint64_t seen[SKEW_RANGES] = {0}, most = 0;
    double sum = 0.0, first = 14.18 * exp(-2.917) + 0.0164 * exp(-0.08082);
    struct skew s;

    for (int i = 1; i <= SKEW_RANGES; i++)
        sum += 14.18 * exp(-2.917 * i) + 0.0164 * exp(-0.08082 * i);
    ZT_OK(t, skew_init(&s, &c));
    for (int i = 0; i < DRAWS; i++)
        seen[skew_draw(&s, &t->rng, 0) / 1000]++;
    for (int i = 0; i < SKEW_RANGES; i++)
        most = ch_max_u64(most, seen[i]);
    ZT_CHECK(t, fabs((double)most / DRAWS - first / sum) < 0.01);
}

/* Goal: half a turn later the hottest record is the one half way on. */
static void
test_shift(struct zt *t)
{
    struct skew_config c = {
        .kind = SKEW_SHIFT, .records = 100, .group = 1, .theta = 1.2, .turn = 1000};
    uint64_t seen[100] = {0}, best = 0;
    struct skew s;

    ZT_OK(t, skew_init(&s, &c));
    for (int i = 0; i < 5000; i++)
        seen[skew_draw(&s, &t->rng, 500)]++;
    for (uint64_t i = 1; i < 100; i++)
        best = seen[i] > seen[best] ? i : best;
    ZT_CHECK(t, best == 50);
}

static void
test_names(struct zt *t)
{
    enum skew_kind k;

    for (int i = 0; i < SKEW_KINDS; i++) {
        ZT_OK(t, skew_parse(skew_name((enum skew_kind)i), &k));
        ZT_CHECK(t, (int)k == i);
    }
    ZT_STATUS(t, skew_parse("x", &k), COHORT_EOPTION);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"in_range", test_in_range, 60}, {"hotcold", test_hotcold, 3}, {"groups", test_groups, 5},
        {"rangehot", test_rangehot, 3},  {"shift", test_shift, 3},     {"names", test_names, 1},
    };

    return zt_main(argc, argv, "skew", cases, CH_ARRAY_LEN(cases));
}
