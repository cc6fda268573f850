/* probe_test.c - the probe on simulated drives whose erase unit is known. */
#include <math.h>

#include "bench/probe.h"
#include "zt/zt.h"

static void
probe_uri(struct zt *t, const char *uri, bool fit, struct probe_result *out)
{
    struct probe_config c = {.fit = fit, .seed = t->seed};
    struct sim_drive *drive = NULL;

    ZT_OK(t, sim_drive_create(uri, &drive));
    ZT_OK(t, dev_sim_open(drive, &c.dev));
    ZT_OK(t, probe_run(&c, out));
    ZT_CHECK(t, out->written_bytes <= probe_estimate(&c));
    dev_close(c.dev);
    sim_drive_destroy(drive);
}

/* Goal: on the models A to F the unit comes out exactly, whatever its size, and its zones write at the floor. */
static void
test_models(struct zt *t)
{
    static const char *const models[] = {"pm9a3", "p5520", "cm7", "7450pro", "7450max", "pe8110"};
    static const uint64_t units[] = {256, 320, 352, 512, 768, 1024, 1056};
    const char *model = models[t->seed % CH_ARRAY_LEN(models)];
    uint64_t unit = units[zt_below(t, CH_ARRAY_LEN(units))] * 1024;
    struct probe_result r;
    char uri[128];

    snprintf(uri, sizeof(uri), "%s,bytes=64M,superblock=%lluK,stripe=32K", model,
             (unsigned long long)(unit / 1024));
    probe_uri(t, uri, true, &r);
    ZT_CHECK(t, r.found && r.exact);
    ZT_CHECK(t, r.unit_bytes == unit);
    ZT_CHECK(t, r.sizes[r.size_count - 1].waf <= 1.01 * r.floor);
    ZT_CHECK(t, r.shared_gc == (strcmp(model, "pe8110") == 0));
}

/* Goal: without the steps growing zones find a bound that is at least the unit, and zones of group_bytes lose at
 * most 2 %. */
static void
test_sizes_only(struct zt *t)
{
    struct probe_result r;

    probe_uri(t, "generic,bytes=64M,superblock=512K", false, &r);
    ZT_CHECK(t, r.found && !r.exact && r.unit_bytes == 512 * 1024);
    ZT_CHECK(t, r.group_bytes == r.unit_bytes);
    ZT_CHECK(t, r.sizes[0].waf > 1.1);
    probe_uri(t, "generic,bytes=64M,superblock=320K", false, &r);
    ZT_CHECK(t, r.found && r.unit_bytes >= 320 * 1024 && r.group_bytes >= r.unit_bytes);
}

/* Goal: the fit finds the spare space and the floor of the drive. */
static void
test_fit(struct zt *t)
{
    struct probe_result r;
    double physical;

    probe_uri(t, "generic,bytes=128M,superblock=512K,spare=20%,floor=4.5%", true, &r);
    physical = (double)r.fit_bytes / (double)r.capacity_bytes;
    ZT_CHECK(t, fabs(r.floor - 1.045) < 0.001);
    ZT_CHECK(t, fabs(physical - 1.2) < 0.05);
    ZT_CHECK(t, fabs(r.fit_floor - 1.045) < 0.06);
}

/* Goal: the closed form has the values that are known, and the fit undoes it. */
static void
test_closed_form(struct zt *t)
{
    double p = 1.05 + (double)zt_below(t, 100) / 100.0,
           floor = 1.0 + (double)zt_below(t, 10) / 100.0;
    double seen = 0.0, found;

    ZT_CHECK(t, fabs(probe_amplification(0.5) - 1.2552) < 0.001);
    ZT_CHECK(t, fabs(probe_amplification(0.9) - 5.1789) < 0.005);
    found = probe_fit(1.0, floor * probe_amplification(1.0 / p), 0.6,
                      floor * probe_amplification(0.6 / p), &seen);
    ZT_CHECK(t, fabs(found - p) < 1e-3 && fabs(seen - floor) < 1e-3);
    ZT_CHECK(t, probe_fit(1.0, 1.0, 0.6, 1.0, &seen) <= 0.0);
    ZT_CHECK(t, probe_fallback(UINT64_C(1) << 40) == UINT64_C(32) << 30);
    ZT_CHECK(t, probe_fallback(UINT64_C(1) << 30) == UINT64_C(64) << 20);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"models", test_models, 12},
        {"sizes_only", test_sizes_only, 1},
        {"fit", test_fit, 1},
        {"closed_form", test_closed_form, 20},
    };

    return zt_main(argc, argv, "probe", cases, CH_ARRAY_LEN(cases));
}
