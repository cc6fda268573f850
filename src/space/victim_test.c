/* victim_test.c - scores: what every policy promises, and which of two zones each prefers. */
#include "space/heat.h"
#include "space/victim.h"
#include "zt/zt.h"

static const enum victim_policy all[] = {VICTIM_GREEDY, VICTIM_COST_BENEFIT, VICTIM_GDT,
                                         VICTIM_MDC,    VICTIM_GROUP,        VICTIM_OLDEST};

static struct victim_zone
zone(uint64_t live, uint32_t age)
{
    return (struct victim_zone){
        .live_bytes = live, .capacity_bytes = 1000, .age = age, .death = 500, .pages = 100};
}

static void
test_dead_zones_first(struct zt *t)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(all); i++) {
        struct victim_zone dead = zone(0, 0);
        struct victim_zone other = zone(1 + zt_below(t, 1000), (uint32_t)zt_below(t, 1000000));

        ZT_CHECK(t, victim_score(all[i], &dead) < victim_score(all[i], &other));
    }
}

/* More live bytes never make a zone of the same age the better victim, but for those that look at age alone. */
static void
test_live_bytes(struct zt *t)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(all); i++) {
        uint64_t a = 1 + zt_below(t, 999), b = a + zt_below(t, 1000 - a);
        uint32_t age = (uint32_t)zt_below(t, 100000);
        struct victim_zone x = zone(a, age), y = zone(b, age);

        x.rate = y.rate = all[i] == VICTIM_MDC ? 0.001 : 0;
        ZT_CHECK(t, victim_score(all[i], &x) <= victim_score(all[i], &y) ||
                        (all[i] == VICTIM_GROUP && b - a < 2));
    }
}

/* Greedy takes the emptier one; declining cost leaves it alone while it falls fast. */
static void
test_declining_cost(struct zt *t)
{
    struct victim_zone hot = zone(500, 10), cold = zone(550, 100000);

    ZT_CHECK(t, victim_score(VICTIM_GREEDY, &hot) < victim_score(VICTIM_GREEDY, &cold));
    ZT_CHECK(t, victim_score(VICTIM_MDC, &cold) < victim_score(VICTIM_MDC, &hot));
    ZT_CHECK(t, victim_score(VICTIM_COST_BENEFIT, &cold) < victim_score(VICTIM_COST_BENEFIT, &hot));
    ZT_CHECK(t, victim_score(VICTIM_OLDEST, &cold) < victim_score(VICTIM_OLDEST, &hot));
}

static void
test_groups_and_death(struct zt *t)
{
    struct victim_zone a = zone(500, 1000), b = a;

    b.group_dead = 0.9;
    ZT_CHECK(t, victim_score(VICTIM_GROUP, &b) < victim_score(VICTIM_GROUP, &a));
    ZT_CHECK(t, victim_score(VICTIM_MDC, &b) <= victim_score(VICTIM_MDC, &a));
    b.death = PLACE_NEVER;
    ZT_CHECK(t, victim_score(VICTIM_GDT, &a) < victim_score(VICTIM_GDT, &b));
    b.death = 100;
    ZT_CHECK(t, victim_score(VICTIM_GDT, &b) < victim_score(VICTIM_GDT, &a));
}

/* exp(-rate x age) = live, within 15 % from 30 to 95 % live. */
static void
test_rate(struct zt *t)
{
    static const double log_live[][2] = {{950, 0.0513}, {700, 0.3567}, {500, 0.6931}, {300, 1.204}};

    for (size_t i = 0; i < CH_ARRAY_LEN(log_live); i++) {
        struct victim_zone z = zone((uint64_t)log_live[i][0], 9999);
        double rate;

        z.pages = 100000;
        rate = victim_rate(&z) * 10000;
        ZT_CHECK(t, rate > log_live[i][1] * 0.85 && rate < log_live[i][1] * 1.15);
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"dead zones first", test_dead_zones_first, 50},
        {"live bytes", test_live_bytes, 200},
        {"declining cost", test_declining_cost, 1},
        {"groups and death", test_groups_and_death, 1},
        {"rate", test_rate, 1},
    };

    return zt_main(argc, argv, "space/victim", cases, CH_ARRAY_LEN(cases));
}
