/* ssd_test.c - the drive model against a naive model, and at its limits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ssd/ssd.h"
#include "zt.h"

enum {
    UNIT = 128
};

static struct ssd *
make(struct zt *t, const struct ssd_config *cfg)
{
    struct ssd *s = NULL;

    ZT_OK(t, ssd_create(cfg, &s));
    return s;
}

/* Programs per host page since `before`. */
static double
waf_since(const struct ssd *s, const struct ssd_counts *before)
{
    struct ssd_counts now;
    uint64_t host;

    ssd_counts(s, &now);
    host = now.host_pages - before->host_pages;
    return (double)(host + now.gc_pages - before->gc_pages) / (double)host;
}

static void
write_uniform(struct zt *t, struct ssd *s, uint64_t logical, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        ssd_write(s, zt_below(t, logical), 1);
}

/* Sequential overwrites kill whole superblocks: not one page may be moved, at any spare space. */
static void
test_sequential_is_free(struct zt *t)
{
    for (uint32_t spare = 0; spare <= 280; spare += 70) {
        struct ssd_config cfg = {
            .logical_pages = 100 * UNIT,
            .superblock_pages = UNIT,
            .spare_permille = spare,
            .open_superblocks = 1 + spare / 140,
            .stripe_pages = 8,
            .shared_gc = spare == 70,
        };
        struct ssd *s = make(t, &cfg);
        struct ssd_counts c;

        for (int round = 0; round < 5; round++) {
            for (uint64_t l = 0; l < cfg.logical_pages; l += 32)
                ssd_write(s, l, 32);
        }
        ssd_counts(s, &c);
        ZT_CHECK(t, c.gc_pages == 0);
        ZT_CHECK(t, c.media_bytes == 5 * cfg.logical_pages * CH_PAGE_BYTES);
        ZT_CHECK(t, ssd_check(s));
        ssd_destroy(s);
    }
}

/* After TRIM of everything no page is ever moved for a sequential fill, and no superblock but the
 * open ones is held. */
static void
test_trim_everything(struct zt *t)
{
    struct ssd_config cfg = {.logical_pages = 300 * UNIT,
                             .superblock_pages = UNIT,
                             .spare_permille = 70,
                             .open_superblocks = 2,
                             .stripe_pages = 4};
    struct ssd *s = make(t, &cfg);
    struct ssd_counts c, after;

    ssd_write(s, 0, cfg.logical_pages);
    write_uniform(t, s, cfg.logical_pages, cfg.logical_pages);
    ssd_discard(s, 0, cfg.logical_pages);
    ssd_discard(s, 0, cfg.logical_pages); /* the second one finds nothing */
    ssd_counts(s, &c);
    ZT_CHECK(t, c.trimmed_pages == cfg.logical_pages && c.mapped_pages == 0);
    ZT_CHECK(t, c.free_superblocks >= c.superblocks - 3);
    ZT_CHECK(t, ssd_check(s));
    ssd_write(s, 0, cfg.logical_pages);
    ssd_counts(s, &after);
    ZT_CHECK(t, after.gc_pages == c.gc_pages && after.mapped_pages == cfg.logical_pages);
    ZT_CHECK(t, ssd_check(s));
    ssd_destroy(s);
}

/* Writes `rounds` x zones: picks `open` random zones, resets each, then fills them in turn, a chunk
 * each, as a host with several open zones does. Returns the WAF of the second half. */
static double
write_zones(struct zt *t, struct ssd *s, uint64_t zones, uint64_t zone, uint64_t chunk, int open,
            uint64_t rounds)
{
    struct ssd_counts half = {0};
    uint64_t z[16];

    for (uint64_t r = 0; r < rounds * zones / (uint64_t)open; r++) {
        if (r == rounds * zones / (uint64_t)open / 2)
            ssd_counts(s, &half);
        for (int i = 0; i < open; i++) {
            z[i] = zt_below(t, zones / (uint64_t)open) * (uint64_t)open + (uint64_t)i;
            ssd_discard(s, z[i] * zone, zone);
        }
        for (uint64_t at = 0; at < zone; at += chunk) {
            for (int i = 0; i < open; i++)
                ssd_write(s, z[i] * zone + at, chunk);
        }
    }
    return waf_since(s, &half);
}

/* Goal: what the paper calls multiplexing: zones as large as the superblock, reset whole, cost
 * nothing when each one fills a superblock of its own; they do cost when the drive stripes over
 * several superblocks or the host interleaves several zones, since then every superblock holds
 * parts of zones that die apart. */
static void
test_multiplexing_costs(struct zt *t)
{
    struct ssd_config cfg = {.logical_pages = 256 * UNIT,
                             .superblock_pages = UNIT,
                             .spare_permille = 100,
                             .open_superblocks = 1,
                             .stripe_pages = 8};
    struct ssd *s = make(t, &cfg);
    double aligned, interleaved, striped;

    aligned = write_zones(t, s, 256, UNIT, 8, 1, 20);
    ssd_destroy(s);
    s = make(t, &cfg);
    interleaved = write_zones(t, s, 256, UNIT, 8, 8, 20);
    ssd_destroy(s);
    cfg.open_superblocks = 8;
    s = make(t, &cfg);
    striped = write_zones(t, s, 256, UNIT, 8, 1, 20);
    printf("  zones: aligned %.3f, 8 interleaved %.3f, striped over 8 %.3f\n", aligned, interleaved,
           striped);
    ZT_CHECK(t, aligned < 1.0001);
    ZT_CHECK(t, interleaved > 1.2);
    ZT_CHECK(t, striped > 1.2);
    ZT_CHECK(t, ssd_check(s));
    ssd_destroy(s);
}

/* Shared GC mixes moved pages into the host's superblocks. For uniform traffic no page is colder
 * than another, so it must cost the same; for skewed traffic it must cost more. */
static void
test_shared_gc(struct zt *t)
{
    double waf[2][2];

    for (int skewed = 0; skewed < 2; skewed++) {
        for (int shared = 0; shared < 2; shared++) {
            struct ssd_config cfg = {.logical_pages = 1024 * UNIT,
                                     .superblock_pages = UNIT,
                                     .spare_permille = 250,
                                     .open_superblocks = 1,
                                     .stripe_pages = 8,
                                     .shared_gc = shared};
            struct ssd *s = make(t, &cfg);
            uint64_t hot = cfg.logical_pages / 10;
            struct ssd_counts c = {0};

            ssd_write(s, 0, cfg.logical_pages);
            for (uint64_t i = 0; i < 8 * cfg.logical_pages; i++) {
                if (i == 5 * cfg.logical_pages)
                    ssd_counts(s, &c);
                if (skewed && zt_below(t, 10) != 0)
                    ssd_write(s, zt_below(t, hot), 1);
                else
                    ssd_write(s, zt_below(t, cfg.logical_pages), 1);
            }
            waf[skewed][shared] = waf_since(s, &c);
            ZT_CHECK(t, ssd_check(s));
            ssd_destroy(s);
        }
    }
    printf("  uniform: separate %.3f shared %.3f; 90/10: separate %.3f shared %.3f\n", waf[0][0],
           waf[0][1], waf[1][0], waf[1][1]);
    ZT_CHECK(t, fabs(waf[0][1] / waf[0][0] - 1) < 0.02);
    ZT_CHECK(t, waf[1][1] > 1.01 * waf[1][0]);
}

static struct ssd_config
random_config(struct zt *t)
{
    struct ssd_config cfg = {
        .logical_pages = 1 + zt_below(t, 2000),
        .superblock_pages = (uint32_t)(2 + zt_below(t, 60)),
        .spare_permille = (uint32_t)(zt_below(t, 3) == 0 ? 0 : zt_below(t, 500)),
        .open_superblocks = (uint32_t)(1 + zt_below(t, 9)),
        .stripe_pages = (uint32_t)(1 + zt_below(t, 70)),
        .gc_low = (uint32_t)zt_below(t, 5),
        .shared_gc = zt_below(t, 2) == 0,
        .floor_permille = (uint32_t)zt_below(t, 50),
        .buffer_pages = (uint32_t)(zt_below(t, 2) == 0 ? 0 : 1 + zt_below(t, 30)),
        .wear_spread = (uint32_t)(zt_below(t, 2) == 0 ? 0 : 1 + zt_below(t, 20)),
        .gc_choices = (uint32_t)(zt_below(t, 2) == 0 ? 0 : zt_below(t, 10)),
        .gc_burst = (uint32_t)(zt_below(t, 2) == 0 ? 0 : zt_below(t, 5)),
    };

    if (zt_below(t, 3) == 0) {
        cfg.slc_permille = (uint32_t)zt_below(t, 200);
        cfg.shared_gc = false;
    } else if (zt_below(t, 2) == 0) {
        cfg.handles = (uint32_t)(1 + zt_below(t, 9));
        cfg.open_superblocks = 1;
        cfg.shared_gc = false;
        cfg.persistent = zt_below(t, 2) == 0;
        cfg.wear_spread = cfg.persistent ? 0 : cfg.wear_spread;
    }
    return cfg;
}

/* Goal: the mapped set is what the host says, whatever the geometry, down to no spare space at all;
 * counters add up; the drive never runs out. Method: random writes and discards against a
 * bitmap. */
static void
test_random_against_model(struct zt *t)
{
    struct ssd_config cfg = random_config(t);
    struct ssd *s = make(t, &cfg);
    bool *mapped = calloc(cfg.logical_pages, 1);
    uint64_t written = 0, trimmed = 0, live = 0, programs;
    struct ssd_counts c, last = {0};

    ZT_CHECK(t, mapped != NULL);
    for (int step = 0; step < 3000; step++) {
        uint64_t at = zt_below(t, cfg.logical_pages);
        uint64_t n = zt_below(t, ch_min_u64(cfg.logical_pages - at, 40) + 1);
        bool discard = zt_below(t, 8) == 0;

        for (uint64_t l = at; l < at + n; l++) {
            if (mapped[l] && discard)
                trimmed++;
            live += discard ? -(uint64_t)mapped[l] : !mapped[l];
            mapped[l] = !discard;
        }
        if (discard) {
            ssd_discard(s, at, n);
        } else {
            ssd_write_to(s, (uint32_t)zt_below(t, 10), at, n);
            written += n;
        }
        if (cfg.handles > 0 && zt_below(t, 50) == 0)
            ssd_handle_update(s, (uint32_t)zt_below(t, cfg.handles));
        ssd_counts(s, &c);
        ZT_CHECK(t, c.host_pages == written && c.trimmed_pages == trimmed);
        ZT_CHECK(t, c.mapped_pages == live && c.host_bytes == written * CH_PAGE_BYTES);
        ZT_CHECK(t, c.media_bytes >= last.media_bytes && c.gc_pages >= last.gc_pages);
        programs = c.media_bytes * 1000 / (1000 + cfg.floor_permille) / CH_PAGE_BYTES;
        ZT_CHECK(t, programs <= c.host_pages - c.absorbed_pages + c.gc_pages);
        ZT_CHECK(t,
                 programs + 1 + cfg.buffer_pages >= c.host_pages - c.absorbed_pages + c.gc_pages);
        last = c;
        if (step % 16 == 0)
            ZT_CHECK(t, ssd_check(s));
    }
    ZT_CHECK(t, ssd_check(s));
    for (uint64_t l = 0; l < cfg.logical_pages; l++) { /* mapped page by page, not only in number */
        ssd_discard(s, l, 1);
        ssd_counts(s, &c);
        live -= mapped[l];
        ZT_CHECK(t, c.mapped_pages == live);
    }
    ZT_CHECK(t, live == 0 && ssd_check(s));
    free(mapped);
    ssd_destroy(s);
}

/* GC must leave closed superblocks alone until few are free: the first write of each page, and as
 * many overwrites as there is spare space, cost nothing. */
static void
test_gc_is_lazy(struct zt *t)
{
    struct ssd_config cfg = {.logical_pages = 64 * UNIT,
                             .superblock_pages = UNIT,
                             .spare_permille = 500,
                             .open_superblocks = 1,
                             .stripe_pages = 1,
                             .gc_low = 5};
    struct ssd *s = make(t, &cfg);
    struct ssd_counts c;

    ssd_counts(s, &c);
    ZT_CHECK(t, c.superblocks == 96 + 5 + 2 && c.physical_pages == c.superblocks * UNIT);
    ssd_write(s, 0, cfg.logical_pages);
    write_uniform(t, s, cfg.logical_pages, cfg.logical_pages / 2 + UNIT);
    ssd_counts(s, &c);
    ZT_CHECK(t, c.gc_pages == 0 && c.erases == 0);
    write_uniform(t, s, cfg.logical_pages, 2 * UNIT);
    ssd_counts(s, &c);
    ZT_CHECK(t, c.gc_pages > 0 && c.free_superblocks >= 5);
    ssd_destroy(s);
}

static void
test_config_limits(struct zt *t)
{
    const struct ssd_config good = {
        .logical_pages = 1, .superblock_pages = 2, .open_superblocks = 1, .stripe_pages = 1};
    struct ssd_config bad[6];
    struct ssd *s = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].logical_pages = 0;
    bad[1].superblock_pages = 1;
    bad[2].open_superblocks = 0;
    bad[3].stripe_pages = 0;
    bad[4].logical_pages = UINT64_C(1) << 40;
    bad[5].open_superblocks = UINT32_MAX;
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        ZT_STATUS(t, ssd_create(&bad[i], &s), COHORT_EOPTION);
    ZT_CHECK(t, s == NULL);
    s = make(t, &good);
    for (int i = 0; i < 1000; i++)
        ssd_write(s, 0, 1);
    ZT_CHECK(t, ssd_check(s));
    ssd_destroy(s);
    ssd_destroy(NULL);
}

/* Every named model makes a drive that works, and takes about 8 bytes a physical page. */
static void
test_models(struct zt *t)
{
    struct ssd_config cfg;
    unsigned n = 0;

    for (; ssd_model_name(n) != NULL; n++) {
        struct ssd_counts c;
        struct ssd *s;

        ZT_OK(t, ssd_model(ssd_model_name(n), &cfg));
        cfg.logical_pages = 512 * 1024;
        s = make(t, &cfg);
        ssd_write(s, 0, cfg.logical_pages);
        ssd_counts(s, &c);
        ZT_CHECK(t, c.mapped_pages == cfg.logical_pages);
        ZT_CHECK(t, c.gc_pages == 0 || cfg.slc_permille > 0); /* a cache is folded */
        ZT_CHECK(t, ssd_memory_bytes(s) < 9 * c.physical_pages);
        ZT_CHECK(t, ssd_check(s));
        ssd_destroy(s);
    }
    ZT_CHECK(t, n >= 5 && strcmp(ssd_model_name(0), "generic") == 0);
    ZT_STATUS(t, ssd_model("floppy", &cfg), COHORT_EOPTION);
}

static const struct zt_case CASES[] = {
    {"sequential_is_free", test_sequential_is_free, 1},
    {"trim_everything", test_trim_everything, 5},
    {"gc_is_lazy", test_gc_is_lazy, 5},
    {"multiplexing_costs", test_multiplexing_costs, 1},
    {"shared_gc", test_shared_gc, 1},
    {"random_against_model", test_random_against_model, 200},
    {"config_limits", test_config_limits, 1},
    {"models", test_models, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "ssd", CASES, CH_ARRAY_LEN(CASES));
}
