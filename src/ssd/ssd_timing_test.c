/* ssd_timing_test.c - the drive's time: single requests, limits of throughput, and that write
 * amplification costs what it should. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ssd/ssd_timing.h"
#include "zt.h"

#define US UINT64_C(1000)

enum {
    STRIPE = 32,
    UNIT = 2048, /* 8 stripes on each of 8 dies */
    UNITS = 128
};

struct rig {
    struct ssd *s;
    struct ssd_timing *t;
    uint64_t logical;
};

static const struct ssd_timing_config PLAIN = {.dies = 8,
                                               .planes = 4,
                                               .program_pages = STRIPE,
                                               .block_pages = 16384,
                                               .channels = 8,
                                               .channel_mbs = 1200,
                                               .link_mbs = 6500,
                                               .buffer_pages = 1024,
                                               .read_ns = 50 * US,
                                               .program_ns = 700 * US,
                                               .erase_ns = 5000 * US,
                                               .command_ns = 8 * US};

static void
rig_open(struct zt *t, struct rig *r, const struct ssd_timing_config *timing, uint32_t spare)
{
    struct ssd_config cfg = {.logical_pages = UNITS * UNIT,
                             .superblock_pages = UNIT,
                             .spare_permille = spare,
                             .open_superblocks = 1,
                             .stripe_pages = STRIPE};

    ZT_OK(t, ssd_create(&cfg, &r->s));
    ZT_OK(t, ssd_timing_create(timing, UNIT, &r->t));
    ssd_observe(r->s, ssd_timing_observe, r->t);
    r->logical = cfg.logical_pages;
}

static void
rig_close(struct rig *r)
{
    ssd_timing_destroy(r->t);
    ssd_destroy(r->s);
}

static uint64_t
rig_write(struct rig *r, uint64_t now, uint64_t page, uint32_t n)
{
    uint64_t end = ssd_timing_write(r->t, now, n);

    ssd_write(r->s, page, n);
    return end;
}

static uint64_t
rig_read(struct rig *r, uint64_t now, uint64_t page)
{
    return ssd_timing_read(r->t, now, ssd_place(r->s, page), UINT32_MAX);
}

/* A write is as fast as link and firmware; a read takes its flash, and what its die is doing; four
 * neighbours cost one read; pages that are nowhere cost no flash. */
static void
test_single_requests(struct zt *t)
{
    struct rig r;
    uint64_t end, first;

    rig_open(t, &r, &PLAIN, 70);
    end = rig_write(&r, 0, 0, 1);
    ZT_CHECK(t, end > 8 * US && end < 10 * US);
    end = rig_read(&r, 1000 * US, 999); /* unwritten */
    ZT_CHECK(t, end - 1000 * US > 8 * US && end - 1000 * US < 10 * US);
    for (uint32_t i = 1; i < STRIPE; i++) /* the last one fills the stripe */
        (void)rig_write(&r, 2000 * US, i, 1);
    end = rig_read(&r, 2150 * US, 5) - 2150 * US; /* its die programs since 2110 us */
    ZT_CHECK(t, end > 700 * US && end < 730 * US);
    end = rig_read(&r, 4000 * US, 5) - 4000 * US; /* its die is idle */
    ZT_CHECK(t, end > 58 * US && end < 65 * US);
    first = ssd_timing_read(r.t, 5000 * US, ssd_place(r.s, 0), UINT32_MAX);
    end = ssd_timing_read(r.t, 5000 * US, ssd_place(r.s, 1), ssd_place(r.s, 0));
    ZT_CHECK(t,
             end < first); /* it comes with its neighbour; who asks for both waits for the first */
    rig_close(&r);
}

/* Goal: sequential writes run at what all dies program together. */
static void
test_sequential_bandwidth(struct zt *t)
{
    struct rig r;
    uint64_t now = 0, pages = 4 * UNITS * UNIT;
    double mbs, want = 8.0 * STRIPE * CH_PAGE_BYTES / 0.0007 / 1e6;

    rig_open(t, &r, &PLAIN, 70);
    for (uint64_t i = 0; i < pages; i += STRIPE)
        now = rig_write(&r, now, i % r.logical, STRIPE);
    mbs = (double)pages * CH_PAGE_BYTES / ((double)now / 1e9) / 1e6;
    printf("  sequential %.0f MB/s of %.0f\n", mbs, want);
    ZT_CHECK(t, mbs < 1.01 * want && mbs > 0.93 * want); /* erases take some */
    rig_close(&r);
}

/* Goal: random writes run at that divided by the write amplification. */
static void
test_bandwidth_follows_waf(struct zt *t)
{
    for (uint32_t spare = 70; spare <= 500; spare += 200) {
        struct rig r;
        struct ssd_counts a, b;
        struct ssd_timing_stats st;
        uint64_t now = 0, from = 0, n = 3ULL * UNITS * UNIT;
        double mbs, waf, want;

        rig_open(t, &r, &PLAIN, spare);
        ssd_write(r.s, 0, r.logical);
        for (uint64_t i = 0; i < 2 * n; i++) {
            if (i == n) {
                from = now;
                ssd_counts(r.s, &a);
            }
            now = rig_write(&r, now > 20 * US ? now - 20 * US : 0, zt_below(t, r.logical), 1);
        }
        ssd_counts(r.s, &b);
        waf = (double)(b.media_bytes - a.media_bytes) / (double)(b.host_bytes - a.host_bytes);
        mbs = (double)n * CH_PAGE_BYTES / ((double)(now - from) / 1e9) / 1e6;
        want = 8.0 * STRIPE * CH_PAGE_BYTES / 0.0007 / 1e6 / waf;
        printf("  spare %u: waf %.2f, %.0f MB/s of %.0f\n", spare, waf, mbs, want);
        ZT_CHECK(t, mbs < 1.02 * want && mbs > 0.85 * want);
        ssd_timing_stats(r.t, &st); /* GC is paid off while its superblock lasts, not in one go */
        ZT_CHECK(t, spare < 400 || st.backlog_ns < 2 * UNIT / STRIPE * PLAIN.program_ns);
        rig_close(&r);
    }
}

static int
by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Reads at random times beside writes of `write_every` ns: their median and 99th percentile in us. */
static void
mixed_load(struct zt *t, struct rig *r, uint64_t write_every, double *p50, double *p99)
{
    enum {
        READS = 20000
    };
    uint64_t *took = calloc(READS, sizeof(*took)), now = 0, next_read = 0;
    unsigned n = 0;

    ZT_CHECK(t, took != NULL);
    ssd_observe(r->s, NULL, NULL); /* mix it before the clock counts */
    ssd_write(r->s, 0, r->logical);
    for (uint64_t i = 0; i < r->logical; i++)
        ssd_write(r->s, zt_below(t, r->logical), 1);
    ssd_observe(r->s, ssd_timing_observe, r->t);
    while (n < READS) {
        now += write_every;
        (void)rig_write(r, now, zt_below(t, r->logical), 1);
        for (; next_read < now && n < READS; next_read += 20 * US + zt_below(t, 40 * US))
            took[n++] = rig_read(r, next_read, zt_below(t, r->logical)) - next_read;
    }
    qsort(took, READS, sizeof(*took), by_value);
    *p50 = (double)took[READS / 2] / 1000;
    *p99 = (double)took[READS / 100 * 99] / 1000;
    free(took);
}

/* Goal: at the same rate of host writes reads are slower where the drive moves more. */
static void
test_latency_follows_waf(struct zt *t)
{
    double p50[3], p99[3];

    for (int i = 0; i < 3; i++) { /* next to no writes; few moved; many moved */
        struct rig r;

        rig_open(t, &r, &PLAIN, i == 2 ? 70 : 900);
        mixed_load(t, &r, i == 0 ? 1000 * US : 16 * US, &p50[i], &p99[i]);
        printf("  reads: p50 %.0f us, p99 %.0f us\n", p50[i], p99[i]);
        rig_close(&r);
    }
    ZT_CHECK(t, p50[0] < 70 && p99[0] < 900);
    ZT_CHECK(t, p50[1] < p50[2]);
    ZT_CHECK(t, p99[0] <= p99[1] && p99[1] <= p99[2]);
}

/* No request completes before it can, whatever the order of the times; counters add up. */
static void
test_random_requests(struct zt *t)
{
    struct ssd_timing_config cfg = PLAIN;
    struct ssd_timing_stats st;
    struct rig r;

    cfg.dies = (uint32_t)(1 + zt_below(t, 20));
    cfg.planes = (uint32_t)(1 + zt_below(t, 4));
    cfg.program_pages = (uint32_t)(1 + zt_below(t, 64));
    cfg.buffer_pages = cfg.program_pages + (uint32_t)zt_below(t, 500);
    cfg.fifo = zt_below(t, 2) == 0;
    cfg.no_plp = zt_below(t, 2) == 0;
    rig_open(t, &r, &cfg, 100);
    for (int i = 0; i < 50000; i++) {
        uint64_t now = 1000000 + (uint64_t)i * 20 * US - zt_below(t, 900) * US;
        uint64_t page = zt_below(t, r.logical - 64), end;

        switch (zt_below(t, 10)) {
        case 0:
            end = ssd_timing_flush(r.t, now);
            break;
        case 1:
            end = ssd_timing_discard(r.t, now);
            ssd_discard(r.s, page, 32);
            break;
        case 2:
        case 3:
        case 4:
            end = rig_read(&r, now, page);
            break;
        default:
            end = rig_write(&r, now, page, 1 + (uint32_t)zt_below(t, cfg.program_pages));
            break;
        }
        ZT_CHECK(t, end >= now + cfg.command_ns);
    }
    ssd_timing_stats(r.t, &st);
    ZT_CHECK(t, st.reads > 0 && st.writes > 0 && st.gc_ns <= st.die_busy_ns);
    ZT_CHECK(t, st.backlog_ns <= st.gc_ns);
    rig_close(&r);
}

static void
test_configs(struct zt *t)
{
    struct ssd_timing_config bad[4] = {PLAIN, PLAIN, PLAIN, PLAIN}, cfg;
    struct ssd_timing *timing = NULL;

    bad[0].dies = 0;
    bad[1].program_ns = 0;
    bad[2].buffer_pages = STRIPE - 1;
    bad[3].link_mbs = 0;
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        ZT_STATUS(t, ssd_timing_create(&bad[i], UNIT, &timing), COHORT_EOPTION);
    for (unsigned i = 0; ssd_model_name(i) != NULL; i++) {
        ZT_OK(t, ssd_timing_model(ssd_model_name(i), &cfg));
        ZT_OK(t, ssd_timing_create(&cfg, UNIT, &timing));
        ssd_timing_destroy(timing);
    }
    ZT_STATUS(t, ssd_timing_model("floppy", &cfg), COHORT_EOPTION);
    ssd_timing_destroy(NULL);
}

static const struct zt_case CASES[] = {
    {"single_requests", test_single_requests, 1},
    {"sequential_bandwidth", test_sequential_bandwidth, 1},
    {"bandwidth_follows_waf", test_bandwidth_follows_waf, 1},
    {"latency_follows_waf", test_latency_follows_waf, 1},
    {"random_requests", test_random_requests, 20},
    {"configs", test_configs, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "ssd_timing", CASES, CH_ARRAY_LEN(CASES));
}
