/* points.c - counters over the time of a run, for plots. */
#include <stdlib.h>

#include "bench/bench.h"

int
points_init(struct bench_points *p, uint64_t samples)
{
    *p = (struct bench_points){0};
    if (samples == 0)
        return 0;
    p->list = calloc(samples + 1, sizeof(*p->list));
    if (p->list == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%llu samples", (unsigned long long)samples);
    p->most = samples + 1;
    return 0;
}

void
points_fini(struct bench_points *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->list[i].zones);
    free(p->list);
    *p = (struct bench_points){0};
}

static int
take_zones(struct bench_point *p, cohort_db *db)
{
    size_t n = 0, now = 0;
    int rc = cohort_zone_map(db, NULL, 0, &n);

    if (rc != 0 || n == 0)
        return rc;
    p->zones = calloc(1, n + 1);
    if (p->zones == NULL)
        return CH_FAIL(COHORT_ENOMEM, "map of %zu zones", n);
    rc = cohort_zone_map(db, p->zones, n, &now);
    p->zone_count = n; /* a file may have grown meanwhile */
    return rc;
}

int
points_take(struct bench_points *p, cohort_db *db, double part, const struct bench_sample *now)
{
    struct bench_point *next;

    if (p->count >= p->most || part * (double)(p->most - 1) < (double)p->count)
        return 0;
    next = &p->list[p->count++];
    next->at = *now;
    return take_zones(next, db);
}

/* One interval: what happened from a to b. */
static int
point_json(const struct bench_point *first, const struct bench_point *a,
           const struct bench_point *b, uint64_t threads, struct json_object *o)
{
    struct cohort_stats d;
    struct figures_run run = {.ops = b->at.ops - a->at.ops};
    struct figures f = {0};
    double capacity = (double)b->at.stats.capacity_bytes;
    double host = (double)(b->at.stats.host_bytes - first->at.stats.host_bytes);
    int rc;

    run.seconds = (double)(b->at.ns - a->at.ns) / 1e9;
    run.cpu_seconds = (double)(b->at.cpu_ns - a->at.cpu_ns) / 1e9;
    figures_difference(&a->at.stats, &b->at.stats, &d);
    figures_compute(&d, &run, &f);

    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"seconds", (double)(b->at.ns - first->at.ns) / 1e9},
        {"drive_writes", capacity > 0 ? host / capacity : FIGURE_ABSENT},
        {"ops_per_s", f.ops_per_s},
        /* each thread has one operation at a time */
        {"latency_mean_us", f.ops_per_s > 0 ? (double)threads * 1e6 / f.ops_per_s : FIGURE_ABSENT},
        {"db_waf", f.db_waf},
        {"ssd_waf", f.ssd_waf},
        {"total_waf", f.total_waf},
        {"flash_bytes_per_op", f.flash_bytes_per_op},
        {"fill", f.fill},
    };
    rc = report_u64(o, "ops", run.ops);
    for (size_t i = 0; i < CH_ARRAY_LEN(reals) && rc == 0; i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    if (rc == 0 && b->zones != NULL)
        rc = report_text(o, "zone_map", b->zones);
    return rc;
}

int
points_json(const struct bench_points *p, uint64_t threads, struct json_object *o)
{
    struct json_object *all = json_object_new_array();
    int rc = 0;

    if (all == NULL || json_object_object_add(o, "samples", all) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field samples");
    for (size_t i = 1; i < p->count && rc == 0; i++) {
        struct json_object *one = json_object_new_object();

        if (one == NULL || json_object_array_add(all, one) != 0)
            return CH_FAIL(COHORT_ENOMEM, "JSON field samples");
        rc = point_json(&p->list[0], &p->list[i - 1], &p->list[i], threads, one);
    }
    return rc;
}
