/* group_test.c - groups against a plain model; boundaries, choice of victims, auto, save and load. */
#include <stdlib.h>

#include "space/group.h"
#include "zt/zt.h"

enum {
    ZONES = 64,
    SLOTS = 16,
    K = 4,
    UNIT = 32, /* two to a group */
};

struct model {
    struct group *g;
    uint32_t serial[ZONES]; /* of the group that each zone lies in; 0 = none */
    uint32_t groups;
    uint64_t host, end;
    struct group_zone zone[ZONES];
};

static struct group_config
config(enum group_mode mode)
{
    return (struct group_config){
        .mode = mode,
        .zones = ZONES,
        .zone_slots = SLOTS,
        .group_zones = K,
        .unit_slots = UNIT,
        .flash_slots = ZONES * SLOTS + 6 * K * SLOTS,
        .logical_slots = ZONES * SLOTS,
        .spare_percent = 100,
    };
}

static struct group *
make(struct zt *t, enum group_mode mode)
{
    const struct group_config cfg = config(mode);
    struct group *g = NULL;

    ZT_OK(t, group_create(&cfg, &g));
    return g;
}

static void
look(const void *ctx, zone_id z, struct group_zone *out)
{
    const struct model *m = ctx;

    *out = m->zone[z];
}

static uint32_t
model_occupied(const struct model *m)
{
    bool seen[100000 / 16] = {0};
    uint32_t n = 0;

    for (uint32_t z = 0; z < ZONES; z++) {
        if (m->serial[z] != 0 && !seen[m->serial[z]]) {
            seen[m->serial[z]] = true;
            n++;
        }
    }
    return n + (m->groups > 0 && !seen[m->groups]
                    ? 1
                    : 0); /* the open one counts without a zone, too */
}

static void
step(struct zt *t, struct model *m)
{
    zone_id z = (zone_id)zt_below(t, ZONES);
    struct group_stats s;

    if (zt_below(t, 3) == 0) {
        group_note_discarded(m->g, z);
        m->serial[z] = 0;
    } else if (group_left(m->g, m->host) > 0) {
        uint64_t n = 1 + zt_below(t, SLOTS);

        group_join(m->g, z);
        m->serial[z] = m->groups;
        m->host += n;
        group_note_written(m->g, n);
    } else {
        group_open(m->g, m->host);
        m->groups++;
        m->end += K * SLOTS;
    }
    group_stats(m->g, &s);
    ZT_CHECK(t, group_check(m->g));
    ZT_CHECK(t, s.groups == m->groups && s.occupied == model_occupied(m));
    ZT_CHECK(t, group_left(m->g, m->host) == (m->host < m->end ? m->end - m->host : 0)); /* N1 */
    for (uint32_t i = 0; i < ZONES; i++)
        ZT_CHECK(t, (m->serial[i] == 0) == (group_of_zone(m->g, i) == GROUP_NONE));
}

/* Each boundary is a multiple of the group's size after the first, though groups are opened late. */
static void
test_model(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_PLAIN)};

    m.host = m.end = zt_below(t, 1000);
    for (int i = 0; i < 2000; i++)
        step(t, &m);
    group_destroy(m.g);
    group_destroy(NULL);
}

/* Zones of two groups are of one group exactly when the model says so; a saved state says the same. */
static void
test_save_load(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_BUDGET)};
    struct group *h = make(t, GROUP_BUDGET);
    size_t n = group_save_bytes(m.g);
    uint8_t *state = calloc(1, n), *again = calloc(1, n);
    struct group_stats a, b;
    size_t at;

    ZT_CHECK(t, state != NULL && again != NULL);
    for (uint64_t i = zt_below(t, 300); i > 0; i--)
        step(t, &m);
    group_save(m.g, m.host, state);
    ZT_OK(t, group_load(h, 5000, state, n)); /* the drive counts from another number */
    ZT_CHECK(t, group_check(h) && group_left(h, 5000) == group_left(m.g, m.host));
    for (uint32_t x = 0; x < ZONES; x++) {
        uint32_t y = (uint32_t)zt_below(t, ZONES);
        bool same = m.serial[x] != 0 && m.serial[x] == m.serial[y];

        ZT_CHECK(t, same == (group_of_zone(h, x) != GROUP_NONE &&
                             group_of_zone(h, x) == group_of_zone(h, y)));
    }
    group_stats(m.g, &a);
    group_stats(h, &b);
    ZT_CHECK(t, a.occupied == b.occupied && a.groups == b.groups);
    group_save(h, 5000, again);
    ZT_CHECK(t, memcmp(state, again, n) == 0);
    at = zt_below(t, n);
    state[at] ^= (uint8_t)(1 + zt_below(t, 255));
    ZT_STATUS(t, group_load(h, 0, state, n), COHORT_EMAP);
    ZT_CHECK(t, group_left(h, 5000) == group_left(m.g, m.host));
    free(state);
    free(again);
    group_destroy(h);
    group_destroy(m.g);
}

/* Fills group after group with the zones first, first + 1 ... */
static void
fill_groups(struct model *m, uint32_t groups)
{
    for (uint32_t i = 0; i < groups; i++) {
        group_open(m->g, m->host);
        m->groups++;
        for (uint32_t k = 0; k < K; k++) {
            zone_id z = (m->groups - 1) * K + k;

            group_join(m->g, z);
            m->zone[z] = (struct group_zone){.live_slots = SLOTS - 1, .rate = 1e-6 * (1 + z % 5)};
        }
        m->host += K * SLOTS;
        group_note_written(m->g, K * SLOTS);
    }
}

static void
test_victims(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_BUDGET)};
    zone_id out[ZONES];
    uint32_t n;

    fill_groups(&m, 10);
    for (uint32_t k = 0; k < K; k++)
        m.zone[5 * K + k].live_slots = 2; /* group 5 is the cheapest, 6 the next */
    for (uint32_t k = 0; k < K; k++)
        m.zone[6 * K + k].live_slots = 3;
    m.zone[7 * K].live_slots = 0; /* 7 has a zone that may not be touched */
    m.zone[7 * K].busy = true;
    m.zone[9 * K].live_slots = 0; /* 9 is open still */
    n = group_victim(m.g, look, &m, out, ZONES);
    ZT_CHECK(t, n >= 2 * K);
    for (uint32_t i = 0; i < n; i++) {
        ZT_CHECK(t, out[i] / K != 9 && out[i] / K != 7);
        ZT_CHECK(t, i == 0 || m.zone[out[i - 1]].rate <= m.zone[out[i]].rate);
        for (uint32_t j = 0; j < i; j++)
            ZT_CHECK(t, out[j] != out[i]);
    }
    ZT_CHECK(t, group_victim(m.g, look, &m, out, K - 1) == 0); /* never a part of a group */
    group_destroy(m.g);
}

static void
test_single_takes_one(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_SINGLE)};
    zone_id out[ZONES];

    fill_groups(&m, 5);
    for (uint32_t k = 0; k < K; k++)
        m.zone[2 * K + k].live_slots = 1;
    ZT_CHECK(t, group_victim(m.g, look, &m, out, ZONES) == K && out[0] / K == 2);
    ZT_CHECK(t, group_streams(m.g, 8) == 1);
    for (uint32_t z = 0; z < ZONES; z++)
        m.zone[z].live_slots = SLOTS;
    ZT_CHECK(t, group_victim(m.g, look, &m, out, ZONES) == 0); /* all of it lives: nothing gained */
    group_destroy(m.g);
}

/* The drive's flash bounds the groups that are partly dead; discarding their last zones makes room. */
static void
test_budget(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_BUDGET)};
    struct group_stats s;
    uint32_t groups = 0;

    group_stats(m.g, &s);
    ZT_CHECK(t, s.occupied_max == ZONES / K + 6);
    while (group_may_open(m.g, m.host, K)) {
        group_open(m.g, m.host);
        for (uint32_t k = 0; k < K; k++) /* all but one of its zones die */
            group_join(m.g, groups % ZONES);
        groups++;
        m.host += K * SLOTS;
        ZT_CHECK(t, groups <= ZONES);
    }
    ZT_CHECK(t, groups == s.occupied_max);
    ZT_CHECK(t, group_need(m.g, m.host, ZONES, 0, false) == GROUP_NEED_GROUP);
    for (zone_id z = 0; z < 4; z++)
        group_note_discarded(m.g, z);
    ZT_CHECK(t, group_may_open(m.g, m.host, K) && !group_may_open(m.g, m.host, K - 1));
    ZT_CHECK(t, group_need(m.g, m.host, ZONES, 0, false) == GROUP_NEED_NOTHING);
    ZT_CHECK(t, group_need(m.g, m.host, K, 0, false) == GROUP_NEED_ZONE);
    group_destroy(m.g);
}

/* Others' writes move the boundary; a zone that would stay half empty is not opened. */
static void
test_others_write(struct zt *t)
{
    struct group *g = make(t, GROUP_PLAIN);
    uint64_t host = 100, room = 0;
    uint32_t joined = 0;

    group_open(g, host);
    while (group_may_join(g, host, room) && room < group_left(g, host)) {
        group_join(g, joined++);
        room += SLOTS;
    }
    ZT_CHECK(t, joined == K);
    host += K * SLOTS + 3 * K * SLOTS + 5; /* three whole groups of somebody else's */
    ZT_CHECK(t, group_left(g, host) == 0);
    group_open(g, host);
    ZT_CHECK(t, group_left(g, host) == K * SLOTS - 5); /* N1: the phase is kept */
    ZT_CHECK(t, group_may_join(g, host + K * SLOTS - 10, 0));
    ZT_CHECK(t, !group_may_join(g, host + K * SLOTS - 10, 3));
    group_destroy(g);
}

static void
auto_groups(struct model *m, uint32_t groups, uint64_t own)
{
    for (uint32_t i = 0; i < groups; i++) {
        group_open(m->g, m->host);
        group_join(m->g, i % ZONES);
        group_note_written(m->g, own);
        m->host += K * SLOTS;
    }
}

static void
test_auto(struct zt *t)
{
    struct model m = {.g = make(t, GROUP_AUTO)};
    struct group_config small = config(GROUP_AUTO);
    struct group_stats s;
    struct group *g = NULL;

    auto_groups(&m, 100, K * SLOTS);
    group_stats(m.g, &s);
    ZT_CHECK(t, s.mode == GROUP_BUDGET && s.switches == 0 && s.foreign_permille == 0);
    auto_groups(&m, 100, K * SLOTS * 9 / 10); /* a tenth is noticed, and bearable */
    group_stats(m.g, &s);
    ZT_CHECK(t, s.mode == GROUP_BUDGET && s.foreign_permille > 80);
    auto_groups(&m, 100, K * SLOTS / 3);
    group_stats(m.g, &s);
    ZT_CHECK(t, s.mode == GROUP_SINGLE && s.switches == 1);
    auto_groups(&m, 100, K * SLOTS);
    group_stats(m.g, &s);
    ZT_CHECK(t, s.mode == GROUP_BUDGET && s.switches == 2);
    small.flash_slots = small.logical_slots; /* no spare: nothing to budget */
    ZT_OK(t, group_create(&small, &g));
    group_stats(g, &s);
    ZT_CHECK(t, s.mode == GROUP_SINGLE);
    group_destroy(g);
    group_destroy(m.g);
}

static void
test_geometry(struct zt *t)
{
    struct group_config cfg = config(GROUP_BUDGET);
    struct group *g = NULL;

    cfg.unit_slots = K * SLOTS - 1; /* groups must be whole erase units */
    ZT_STATUS(t, group_create(&cfg, &g), COHORT_EOPTION);
    cfg = config(GROUP_BUDGET);
    cfg.flash_slots = cfg.logical_slots = 2 * K * SLOTS;
    ZT_STATUS(t, group_create(&cfg, &g), COHORT_EOPTION);
    ZT_CHECK(t, g == NULL);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 5},     {"save and load", test_save_load, 20},
        {"victims", test_victims, 1}, {"single takes one", test_single_takes_one, 1},
        {"budget", test_budget, 1},   {"others write", test_others_write, 1},
        {"auto", test_auto, 1},       {"geometry", test_geometry, 1},
    };

    return zt_main(argc, argv, "space/group", cases, CH_ARRAY_LEN(cases));
}
