/* policy_test.c - regression of placement, victims and groups in counts: small grids with fixed seeds, bands that are a
 * few percent wide. docs/PAPER.md has the figures at full size. */
#include <stdio.h>
#include <stdlib.h>

#include "base/bug.h"
#include "bench/policy.h"
#include "zt/zt.h"

static struct policy_config
cell(struct zt *t, const char *work, double fill)
{
    struct policy_config c;

    policy_config_init(&c);
    c.zone_slots = 64;
    c.fill = fill;
    c.seed = t->seed;
    c.capacities = 10;
    ZT_OK(t, policy_work_parse(work, &c.work));
    return c;
}

static double
waf(struct zt *t, const struct policy_config *c)
{
    struct policy_result r;

    ZT_OK(t, policy_run(c, &r));
    ZT_CHECK(t, r.stuck == 0);
    return r.total_waf;
}

/* Class separation with declining-cost victims: the goals for page-level skew, at 1,024 zones. */
static void
test_skew(struct zt *t)
{
    static const struct {
        const char *work;
        double fill, max, rate_part;
    } goals[] = {
        {"zipf:0.8", 0.8, 2.3, 1.05},       {"zipf:0.8", 0.9, 4.3, 1.05},
        {"zipf:0.99", 0.8, 1.8, 1.05},      {"zipf:0.99", 0.9, 3.0, 1.05},
        {"hotcold:90/10", 0.8, 1.65, 1.05}, {"hotcold:90/10", 0.9, 2.8, 1.12},
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(goals); i++) {
        struct policy_config c = cell(t, goals[i].work, goals[i].fill);
        double ours, rate, none;

        c.capacities = 14;
        ours = waf(t, &c);
        ZT_CHECK(t, ours <= goals[i].max);
        c.history = POLICY_RATE;
        rate = waf(t, &c);
        ZT_CHECK(t, ours <= rate * goals[i].rate_part);
        c.place = PLACE_NOSEP;
        c.victim = VICTIM_GREEDY;
        none = waf(t, &c);
        ZT_CHECK(t, ours < none * 0.75);
    }
}

/* Nothing to separate: one class, within 3 % of no separation. */
static void
test_uniform(struct zt *t)
{
    struct policy_config c = cell(t, "uniform", 0.9);
    double ours = waf(t, &c), none;

    c.place = PLACE_NOSEP;
    c.victim = VICTIM_GREEDY;
    none = waf(t, &c);
    ZT_CHECK(t, ours < none * 1.03);
    ZT_CHECK(t, none > 4.6 && none < 5.6); /* 5.18 in theory, large zones */
}

/* Knowing more never costs: future <= rate; the paper's grouping is between them and no separation. */
static void
test_oracles(struct zt *t)
{
    struct policy_config c = cell(t, "zipf:0.8", 0.8);
    double rate, future, gdt;

    c.history = POLICY_RATE;
    rate = waf(t, &c);
    c.history = POLICY_FUTURE;
    future = waf(t, &c);
    c.history = POLICY_HEADER4;
    c.place = PLACE_GDT;
    c.victim = VICTIM_GREEDY;
    gdt = waf(t, &c);
    ZT_CHECK(t, future < rate && rate < gdt);
}

static struct policy_config
drive_cell(struct zt *t, const char *work, double fill, enum group_mode mode)
{
    struct policy_config c = cell(t, work, fill);

    c.drive = true;
    c.nowa = mode;
    c.unit_slots = 512;
    c.capacities = 5;
    return c;
}

/* The drive copies nothing in any mode with groups of whole units, and budget is the cheapest of them. */
static void
test_groups(struct zt *t)
{
    static const char *const work[] = {"uniform", "zipf:0.8", "zipf:0.99"};
    static const double fill[] = {0.45, 0.7, 0.85};

    for (size_t i = 0; i < 9; i++) {
        static const enum group_mode modes[] = {GROUP_ALWAYS, GROUP_SINGLE, GROUP_BUDGET};
        double total[3];

        for (size_t m = 0; m < 3; m++) {
            struct policy_config c = drive_cell(t, work[i / 3], fill[i % 3], modes[m]);
            struct policy_result r;

            c.shared_gc = i % 2 == 0;
            ZT_OK(t, policy_run(&c, &r));
            ZT_CHECK(t, r.ssd_waf <= 1.001 && r.stuck == 0);
            total[m] = r.total_waf;
        }
        ZT_CHECK(t, total[2] <= total[0] * 1.02 && total[2] <= total[1] * 1.02);
    }
}

/* The log in zones of the groups is harmless, at a fixed place it is not. */
static void
test_log(struct zt *t)
{
    static const double share[] = {5, 20, 50};

    for (size_t i = 0; i < CH_ARRAY_LEN(share); i++) {
        struct policy_config c = drive_cell(t, "zipf:0.8", 0.7, GROUP_BUDGET);
        struct policy_result r;

        c.log_percent = share[i];
        c.shared_gc = i % 2 == 0;
        ZT_OK(t, policy_run(&c, &r));
        ZT_CHECK(t, r.ssd_waf <= 1.001);
        c.log_place = POLICY_LOG_FIXED;
        ZT_OK(t, policy_run(&c, &r));
        ZT_CHECK(t, share[i] < 10 || r.ssd_waf > 1.01);
    }
}

/* Without groups, or with groups that are no whole units, the drive copies. */
static void
test_misaligned(struct zt *t)
{
    struct policy_config c = drive_cell(t, "zipf:0.8", 0.7, GROUP_OFF);
    struct policy_result r;

    ZT_OK(t, policy_run(&c, &r));
    ZT_CHECK(t, r.ssd_waf > 3);
    c.nowa = GROUP_BUDGET;
    c.unit_slots = 448;
    ZT_STATUS(t, policy_run(&c, &r), COHORT_EOPTION);
    c.unit_slots = 256; /* two to a group */
    ZT_OK(t, policy_run(&c, &r));
    ZT_CHECK(t, r.ssd_waf <= 1.001);
}

/* The planted bug is seen by the drive. */
static void
test_bug(struct zt *t)
{
    struct policy_config c = drive_cell(t, "zipf:0.8", 0.7, GROUP_BUDGET);
    struct policy_result r;

    if (!ch_bug_select("GROUP_SHORT"))
        return; /* none are built in */
    ZT_OK(t, policy_run(&c, &r));
    (void)ch_bug_select(NULL);
    ZT_CHECK(t, r.ssd_waf > 1.01);
}

static void
test_trace(struct zt *t)
{
    struct policy_config c = cell(t, "zipf:0.8", 0.8), d;
    struct policy_source *s = NULL;
    struct policy_trace trace = {0};
    struct policy_result a, b;
    uint32_t pages = (uint32_t)(c.zones * c.zone_slots * c.fill);
    char path[4200];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/trace", zt_tmpdir(t));
    c.capacities = 4;
    ZT_OK(t, policy_source_create(&c.work, pages, c.seed, &s));
    ZT_OK(t, policy_trace_write(path, s, pages, 600000));
    policy_source_destroy(s);
    d = c;
    d.work = (struct policy_work){.kind = POLICY_TRACE, .path = path};
    ZT_OK(t, policy_run(&c, &a));
    ZT_OK(t, policy_run(&d, &b));
    ZT_CHECK(t, a.host_pages == b.host_pages && a.user_pages == b.user_pages);
    d.zones = 512; /* the trace has more pages than fit */
    ZT_STATUS(t, policy_run(&d, &b), COHORT_EOPTION);
    f = fopen(path, "r+b");
    ZT_CHECK(t, f != NULL && fseek(f, (long)zt_below(t, 32), SEEK_SET) == 0);
    ZT_CHECK(t, fputc(0x5a, f) != EOF && fclose(f) == 0);
    ZT_CHECK(t, policy_trace_read(path, &trace) != 0);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"skew", test_skew, 1},       {"uniform", test_uniform, 1},
        {"oracles", test_oracles, 1}, {"groups", test_groups, 1},
        {"log", test_log, 1},         {"misaligned", test_misaligned, 1},
        {"bug", test_bug, 1},         {"trace", test_trace, 4},
    };

    return zt_main(argc, argv, "bench/policy", cases, CH_ARRAY_LEN(cases));
}
