/* figures_test.c - the formulas, on counters whose figures are known by hand. */
#include "bench/figures.h"
#include "zt/zt.h"

/* 100 pages written: 300,000 bytes stored, 10,000 lost to packing, 100,000 moved by GC, and so on. */
static struct cohort_stats
example(void)
{
    struct cohort_stats s = {
        .struct_bytes = sizeof(s),
        .bytes = {[COHORT_CAUSE_USER] = 300000,
                  [COHORT_CAUSE_PAD] = 8000,
                  [COHORT_CAUSE_GC] = 100000,
                  [COHORT_CAUSE_WAL] = 50000,
                  [COHORT_CAUSE_META] = 1600},
        .host_bytes = 459600,
        .device_host_bytes = 459600,
        .media_bytes = 919200,
        .payload_bytes = 128000,
        .page_writes = 100,
        .page_write_stored = 204800, /* half of the pages 1,024 bytes, half 3,072 */
        .page_write_squares = UINT64_C(50) * (1024 * 1024 + 3072 * 3072),
        .cache_hits = 900,
        .cache_misses = 100,
        .reads = 150,
        .live_bytes = 750,
        .zones = 10,
        .zone_bytes = 100,
        .gc_zones = 4,
        .gc_live_bytes = 100,
    };

    return s;
}

static bool
near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1.0, fabs(b));
}

static void
test_formulas(struct zt *t)
{
    struct cohort_stats s = example();
    struct figures_run run = {.ops = 1000, .seconds = 2.0, .cpu_seconds = 1.0};
    struct figures f;

    figures_compute(&s, &run, &f);
    ZT_CHECK(t, near(f.db_waf, 1.0)); /* (459600 - 50000) / 409600 */
    ZT_CHECK(t, near(f.ssd_waf, 2.0));
    ZT_CHECK(t, near(f.total_waf, 2.0));
    ZT_CHECK(t, near(f.total_waf_with_log, 919200.0 / 409600.0));
    ZT_CHECK(t, near(f.flash_bytes_per_op, 919.2));
    ZT_CHECK(t, near(f.flash_bytes_per_payload_byte, 919200.0 / 128000.0));
    ZT_CHECK(t, near(f.host_bytes_per_op, 459.6));
    ZT_CHECK(t, near(f.reads_per_op, 0.15));
    ZT_CHECK(t, near(f.hit_rate, 0.9));
    ZT_CHECK(t, near(f.cpu_us_per_op, 1000.0));
    ZT_CHECK(t, near(f.cpu_percent, 50.0));
    ZT_CHECK(t, near(f.ops_per_s, 500.0));
    ZT_CHECK(t, near(f.compress_ratio, 0.5));
    ZT_CHECK(t, near(f.compress_ratio_sd, 0.25));
    ZT_CHECK(t, near(f.packed_ratio, 0.5 * 1.02));
    ZT_CHECK(t, near(f.fill, 0.75));
    ZT_CHECK(t, near(f.gc_valid_ratio, 0.25));
}

/* Goal: what a drive does not tell is unknown, not zero; what makes no sense is absent. */
static void
test_unknown_and_absent(struct zt *t)
{
    struct cohort_stats s = example(), none = {.struct_bytes = sizeof(none)}, d;
    struct figures_run run = {.ops = 1000}, no_run = {0};
    int64_t difference = 7;
    struct figures f;

    s.media_bytes = s.device_host_bytes = COHORT_UNKNOWN;
    none.media_bytes = COHORT_UNKNOWN;
    none.device_host_bytes = 5;
    figures_difference(&none, &s, &d);
    ZT_CHECK(t, d.media_bytes == COHORT_UNKNOWN && d.device_host_bytes == COHORT_UNKNOWN);
    figures_compute(&d, &run, &f);
    ZT_CHECK(t, near(f.db_waf, 1.0));
    ZT_CHECK(t, isnan(f.ssd_waf) && isnan(f.total_waf) && isnan(f.total_waf_with_log));
    ZT_CHECK(t, isnan(f.flash_bytes_per_op) && isnan(f.flash_bytes_per_payload_byte));
    ZT_CHECK(t, !figures_account(&d, &difference) && difference == 7);

    none.media_bytes = 0;
    figures_compute(&none, &no_run, &f);
    ZT_CHECK(t, !figure_is_known(f.db_waf) && !isnan(f.db_waf));
    ZT_CHECK(t, !figure_is_known(f.ssd_waf) && !isnan(f.ssd_waf));
    ZT_CHECK(t, !figure_is_known(f.total_waf) && !isnan(f.total_waf));
    ZT_CHECK(t, !figure_is_known(f.hit_rate) && !figure_is_known(f.ops_per_s));
    ZT_CHECK(t, !figure_is_known(f.gc_valid_ratio) && !figure_is_known(f.packed_ratio));
}

/* Goal: counters are subtracted, sizes are those of the end. Method: random counters added up. */
static void
test_difference(struct zt *t)
{
    struct cohort_stats a = example(), b = example(), d;
    uint64_t add = 1 + zt_below(t, 1000);

    for (int i = 0; i < COHORT_CAUSES; i++)
        b.bytes[i] += add + (uint64_t)i;
    b.host_bytes += 2 * add;
    b.media_bytes += 3 * add;
    b.device_host_bytes += 4 * add;
    b.page_writes += 5 * add;
    b.page_write_stored += 6 * add;
    b.commits += 7 * add;
    b.log_flushes += 8 * add;
    b.reads += 9 * add;
    b.payload_bytes += 10 * add;
    b.live_bytes = add;
    b.zones = 3;
    figures_difference(&a, &b, &d);
    for (int i = 0; i < COHORT_CAUSES; i++)
        ZT_CHECK(t, d.bytes[i] == add + (uint64_t)i);
    ZT_CHECK(t, d.host_bytes == 2 * add && d.media_bytes == 3 * add);
    ZT_CHECK(t, d.device_host_bytes == 4 * add && d.page_writes == 5 * add);
    ZT_CHECK(t, d.page_write_stored == 6 * add && d.commits == 7 * add);
    ZT_CHECK(t, d.log_flushes == 8 * add && d.reads == 9 * add && d.payload_bytes == 10 * add);
    ZT_CHECK(t, d.live_bytes == add && d.zones == 3);
}

static void
test_account(struct zt *t)
{
    struct cohort_stats s = example();
    int64_t difference = 7;

    ZT_CHECK(t, figures_account(&s, &difference) && difference == 0);
    s.device_host_bytes += 4096;
    ZT_CHECK(t, figures_account(&s, &difference) && difference == -4096);
}

/* Goal: steady means that total WAFs differ by no more than 2 %, or DB WAFs where media bytes are
 * unknown. */
static void
test_steady(struct zt *t)
{
    struct cohort_stats a = example(), b = example();

    ZT_CHECK(t, figures_steady(&a, &b));
    b.media_bytes = 919200 * 1019 / 1000;
    ZT_CHECK(t, figures_steady(&a, &b) && figures_steady(&b, &a));
    b.media_bytes = 919200 * 1021 / 1000;
    ZT_CHECK(t, !figures_steady(&a, &b) && !figures_steady(&b, &a));
    b.media_bytes = 919200 * 1030 / 1000;
    ZT_CHECK(t, !figures_steady(&a, &b) && !figures_steady(&b, &a));
    b.media_bytes = COHORT_UNKNOWN;
    a.media_bytes = a.host_bytes; /* its total is the same number as b's database part */
    ZT_CHECK(t, !figures_steady(&a, &b) && !figures_steady(&b, &a));
    a.media_bytes = COHORT_UNKNOWN;
    ZT_CHECK(t, figures_steady(&a, &b));
    b.host_bytes += 409600 / 25;
    ZT_CHECK(t, !figures_steady(&a, &b));
    b.page_writes = 0;
    ZT_CHECK(t, !figures_steady(&a, &b));
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"formulas", test_formulas, 1},      {"unknown_and_absent", test_unknown_and_absent, 1},
        {"difference", test_difference, 20}, {"account", test_account, 1},
        {"steady", test_steady, 1},
    };

    return zt_main(argc, argv, "figures", cases, CH_ARRAY_LEN(cases));
}
