/* cmd_device.c - cohort probe and cohort device: what a drive is like, found out by using it. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "bench/probe.h"
#include "bench/readtest.h"
#include "dev/dev.h"
#include "meta/meta.h"
#include "tools/tool.h"

/* ---- probe ---- */

struct probe_command {
    struct tool *t;
    struct probe_config c;
    struct probe_result r;
    bool yes, force, sizes_only;
    double last; /* progress told, percent */
};

static void
probe_progress(void *arg, const char *what, uint64_t written, uint64_t of)
{
    const struct probe_command *p = arg;

    if (!p->t->quiet)
        fprintf(stderr, "probe: %3.0f %% (%" PRIu64 " MiB of at most %" PRIu64 "): %s\n",
                100.0 * (double)written / (double)of, written >> 20, of >> 20, what);
}

/* A block device or simulated drive: on a file the file system says where bytes go. */
static int
probe_check_target(const char *where)
{
    struct stat st;

    if (strncmp(where, "sim:", 4) == 0)
        return 0;
    if (stat(where, &st) != 0)
        return CH_FAIL(COHORT_EIO, "cannot look at it");
    if (!S_ISBLK(st.st_mode))
        return CH_FAIL(COHORT_EINVAL, "neither a block device nor a sim: drive; a file takes the "
                                      "default of option unit_bytes");
    return 0;
}

static int
probe_check_contents(const struct probe_command *p)
{
    bool root = false, blank = true;
    int rc;

    if (tool_is_volatile(p->t->where))
        return 0;
    rc = meta_probe(p->c.dev, &root, &blank);
    if (rc != 0)
        return rc;
    if ((root || !blank) && !p->force)
        return CH_FAIL(COHORT_EXISTS, "%s, which a probe overwrites; --force does so",
                       root ? "holds a database" : "holds data");
    if (!p->yes)
        return CH_FAIL(COHORT_EOPTION,
                       "a probe overwrites the whole device with about %" PRIu64
                       " MiB; --yes does so",
                       probe_estimate(&p->c) >> 20);
    return 0;
}

static int
probe_json(const struct probe_command *p)
{
    const struct probe_result *r = &p->r;
    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"floor", r->floor},
        {"waf_random_full", r->waf_full > 0 ? r->waf_full : FIGURE_ABSENT},
        {"waf_random_part", r->waf_part > 0 ? r->waf_part : FIGURE_ABSENT},
        {"fit_floor", r->fit_bytes > 0 ? r->fit_floor : FIGURE_ABSENT},
        {"fit_physical_bytes", r->fit_bytes > 0 ? (double)r->fit_bytes : FIGURE_ABSENT},
    };
    struct json_object *o = json_object_new_object(), *sizes = json_object_new_array();
    int rc;

    if (o == NULL || sizes == NULL || json_object_object_add(o, "sizes", sizes) != 0) {
        json_object_put(sizes);
        json_object_put(o);
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    }
    rc = report_text(o, "device", p->t->where);
    if (rc == 0)
        rc = report_u64(o, "unit_bytes", r->unit_bytes);
    if (rc == 0)
        rc = report_u64(o, "group_bytes", r->group_bytes);
    if (rc == 0)
        rc = report_bool(o, "exact", r->exact);
    if (rc == 0)
        rc = report_bool(o, "measured", r->found);
    if (rc == 0)
        rc = report_bool(o, "group_measured", r->group_measured);
    if (rc == 0)
        rc = report_u64(o, "capacity_bytes", r->capacity_bytes);
    if (rc == 0)
        rc = report_u64(o, "written_bytes", r->written_bytes);
    for (size_t i = 0; i < CH_ARRAY_LEN(reals) && rc == 0; i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    for (unsigned i = 0; i < r->size_count && rc == 0; i++) {
        struct json_object *one = json_object_new_object();

        if (one == NULL || json_object_array_add(sizes, one) != 0)
            rc = CH_FAIL(COHORT_ENOMEM, "JSON");
        if (rc == 0)
            rc = report_u64(one, "zone_bytes", r->sizes[i].zone_bytes);
        if (rc == 0)
            rc = report_real(one, "waf", r->sizes[i].waf);
    }
    if (rc == 0)
        return tool_json_print(o, stdout);
    json_object_put(o);
    return rc;
}

static void
probe_text(const struct probe_result *r)
{
    printf("sequential writes: %.4f media bytes a host byte\n", r->floor);
    if (r->fit_bytes > 0)
        printf("random writes: %.3f over the whole drive, %.3f over 3/5 of it: as of %.1f MiB of "
               "flash "
               "behind %.1f, floor %.3f\n",
               r->waf_full, r->waf_part, (double)r->fit_bytes / 1048576.0,
               (double)r->capacity_bytes / 1048576.0, r->fit_floor);
    for (unsigned i = 0; i < r->size_count; i++)
        printf("zones of %10" PRIu64 " KiB: %.3f\n", r->sizes[i].zone_bytes / 1024,
               r->sizes[i].waf);
    if (!r->found)
        printf("no size was found; taken instead: %" PRIu64 " bytes\n", r->unit_bytes);
    else
        printf("unit: %" PRIu64 " bytes, %s\n", r->unit_bytes,
               r->exact ? "exact" : "or less (an upper bound)");
    if (r->group_measured)
        printf("written and overwritten together, %" PRIu64 " bytes lose at most 2 %%\n",
               r->group_bytes);
    else
        printf("no size up to an eighth of the drive was seen to lose at most 2 %%\n");
    if (r->shared_gc)
        printf("the drive's GC writes among the host's data\n");
    printf("create the database with -o unit_bytes=%" PRIu64 "\n", r->group_bytes);
}

int
cmd_probe(struct tool *t, int argc, char **argv)
{
    struct probe_command p = {.t = t, .c = {.seed = 1}};
    const struct arg own[] = {
        {"yes", 'y', ARG_FLAG, &p.yes, NULL, "Overwrite the device."},
        {"force", 0, ARG_FLAG, &p.force, NULL, "... even if it holds data."},
        {"sizes-only", 0, ARG_FLAG, &p.sizes_only, NULL,
         "Only growing zones: fewer writes, an upper bound."},
        {"first", 0, ARG_BYTES, &p.c.first_bytes, NULL,
         "Smallest zone (512M, on small devices a 2048th)."},
        {"drive-writes", 0, ARG_REAL, &p.c.drive_writes, NULL,
         "Measured for each size, in capacities (1)."},
        {"seed", 0, ARG_U64, &p.c.seed, NULL, "Seed of all choices (1)."},
    };
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (p.c.first_bytes % CH_PAGE_BYTES != 0)
        return CH_FAIL(COHORT_EOPTION, "--first: a multiple of 4 KiB");
    p.c.fit = !p.sizes_only;
    p.c.progress = probe_progress;
    p.c.arg = &p;
    rc = probe_check_target(t->where);
    if (rc == 0)
        rc = dev_open(t->where, strncmp(t->where, "sim:", 4) == 0 ? DEV_CREATE : 0, 0, &p.c.dev);
    if (rc == 0 && dev_caps(p.c.dev)->sequential_only)
        rc = CH_FAIL(COHORT_EUNSUPPORTED, "a zoned drive tells its unit: nothing to probe");
    if (rc == 0)
        rc = probe_check_contents(&p);
    if (rc == 0)
        rc = probe_run(&p.c, &p.r);
    if (rc == 0 && t->json)
        rc = probe_json(&p);
    else if (rc == 0)
        probe_text(&p.r);
    dev_close(p.c.dev);
    return rc != 0 ? rc : tool_flush();
}

/* ---- device readtest ---- */

static void
readtest_text(const struct readtest_cell *cells, size_t n)
{
    printf("%7s %-9s %6s %12s %10s %10s %10s\n", "bytes", "", "depth", "reads/s", "MB/s", "p50 us",
           "p99 us");
    for (size_t i = 0; i < n; i++) {
        const struct readtest_cell *c = &cells[i];
        double rate = c->seconds > 0 ? (double)c->reads / c->seconds : 0.0;

        printf("%7u %-9s %6u ", c->bytes, c->crossing ? "crossing" : "aligned", c->depth);
        if (c->refused)
            printf("%12s\n", "refused");
        else
            printf("%12.0f %10.1f %10.1f %10.1f\n", rate, rate * c->bytes / 1e6,
                   (double)ch_hist_quantile(&c->latency, 0.5) / 1e3,
                   (double)ch_hist_quantile(&c->latency, 0.99) / 1e3);
    }
}

static int
readtest_json(const char *device, const struct readtest_cell *c)
{
    struct json_object *o = json_object_new_object();
    double rate = c->seconds > 0 ? (double)c->reads / c->seconds : 0.0;
    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"reads_per_s", c->refused ? FIGURE_UNKNOWN : rate},
        {"p50_us", c->refused ? FIGURE_UNKNOWN : (double)ch_hist_quantile(&c->latency, 0.5) / 1e3},
        {"p99_us", c->refused ? FIGURE_UNKNOWN : (double)ch_hist_quantile(&c->latency, 0.99) / 1e3},
    };
    int rc;

    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "device", device);
    if (rc == 0)
        rc = report_u64(o, "bytes", c->bytes);
    if (rc == 0)
        rc = report_u64(o, "depth", c->depth);
    if (rc == 0)
        rc = report_bool(o, "crossing", c->crossing);
    for (size_t i = 0; i < CH_ARRAY_LEN(reals) && rc == 0; i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    if (rc == 0)
        return tool_json_print(o, stdout);
    json_object_put(o);
    return rc;
}

int
cmd_device(struct tool *t, int argc, char **argv)
{
    struct readtest_config c = {.seconds = 0.25, .seed = 1};
    const struct arg own[] = {
        {"seconds", 0, ARG_REAL, &c.seconds, NULL, "Length of each of 75 cells (0.25)."},
        {"seed", 0, ARG_U64, &c.seed, NULL, "Seed of the offsets (1)."},
    };
    struct readtest_cell *cells = calloc(READTEST_CELLS, sizeof(*cells));
    char **pos = NULL;
    size_t count = 0;
    int n = 0, rc;

    rc = cells == NULL ? CH_FAIL(COHORT_ENOMEM, "cells")
                       : tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        goto out;
    t->where = pos[1];
    if (strcmp(pos[0], "readtest") != 0)
        rc = CH_FAIL(COHORT_EINVAL, "device %s: readtest is all there is", pos[0]);
    else if (strncmp(t->where, "sim:", 4) == 0)
        rc = CH_FAIL(COHORT_EINVAL, "a simulated drive has no speed of its own");
    if (rc == 0)
        rc = readtest_run(t->where, &c, cells, &count);
    for (size_t i = 0; i < count && rc == 0 && t->json; i++)
        rc = readtest_json(t->where, &cells[i]);
    if (rc == 0 && !t->json)
        readtest_text(cells, count);
    if (rc == 0)
        rc = tool_flush();
out:
    free(cells);
    return rc;
}
