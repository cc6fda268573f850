/* small.c - cohort bench commit, memory and space: one property each. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "rt/rt.h"

static int
compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double
bench_median(double *v, size_t n)
{
    CH_ASSERT(n > 0);
    qsort(v, n, sizeof(*v), compare_double);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2.0;
}

/* Plan, load, and leave the database open. */
static int
small_start(struct bench *b, const struct bench_config *c)
{
    int rc;

    rc = bench_init(b, c);
    if (rc == 0)
        rc = bench_plan(b);
    if (rc == 0)
        rc = bench_prepare(b);
    return rc;
}

static int
needs_file(const struct bench_config *c, const char *bench)
{
    if (c->device != NULL && strncmp(c->device, "sim:", 4) == 0)
        return CH_FAIL(COHORT_EOPTION, "bench %s: --device must be a directory, not %s", bench,
                       c->device);
    return 0;
}

/* ---- commit ---- */

int
bench_commit(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench_result r = {0};
    struct bench b = {0};
    struct json_object *o = NULL;
    double per_flush = FIGURE_ABSENT;
    int rc;

    bench_config_init(&c, t);
    c.threads = 16;
    rc = bench_args(&c, argc, argv, NULL, 0);
    if (rc != 0 || t->help)
        return rc;
    c.workload = "update";
    rc = small_start(&b, &c);
    if (rc == 0)
        rc = bench_run(&b, &r);
    if (rc != 0)
        goto out;
    if (r.window.log_flushes > 0)
        per_flush = (double)r.window.commits / (double)r.window.log_flushes;
    if (t->json) {
        rc = bench_report_json(&b, &r, &o);
        if (rc == 0)
            rc = report_real(o, "commits_per_flush", per_flush);
        if (rc == 0)
            rc = report_real(o, "commits_per_s", (double)r.window.commits / r.run.seconds);
        if (rc == 0) {
            rc = tool_json_print(o, stdout);
            o = NULL;
        }
    } else {
        printf("%llu threads: %.0f commits/s, %.1f commits a log flush, p50 %.1f us, p99 %.1f us\n",
               (unsigned long long)c.threads, (double)r.window.commits / r.run.seconds,
               per_flush < 0 ? 0.0 : per_flush, (double)ch_hist_quantile(r.latency, 0.5) / 1e3,
               (double)ch_hist_quantile(r.latency, 0.99) / 1e3);
    }
    if (rc == 0)
        rc = tool_flush();
out:
    json_object_put(o);
    bench_result_fini(&r);
    return bench_fini(&b, rc);
}

/* ---- memory ---- */

static int
report_memory(const struct bench *b, const struct bench_result *r, uint64_t before)
{
    uint64_t used = r->rss_bytes > before ? r->rss_bytes - before : 0;
    double bound = 1.1 * (double)b->options.cache_bytes + 24.0 * (double)r->to.stats.pages;
    struct json_object *o = NULL;
    int rc;

    if (!b->c.t->json) {
        printf("resident %.1f MiB (%.1f before opening); cache %.1f, metadata %.1f MiB, %llu "
               "pages\nbound cache + 10 %% + 24 bytes a page = %.1f MiB: %s\n",
               (double)r->rss_bytes / 1048576.0, (double)before / 1048576.0,
               (double)r->to.stats.cache_bytes / 1048576.0,
               (double)r->to.stats.metadata_bytes / 1048576.0,
               (unsigned long long)r->to.stats.pages, bound / 1048576.0,
               (double)used <= bound ? "within" : "EXCEEDED");
        return tool_flush();
    }
    rc = bench_report_json(b, r, &o);
    if (rc == 0)
        rc = report_u64(o, "rss_before_bytes", before);
    if (rc == 0)
        rc = report_u64(o, "rss_grown_bytes", used);
    if (rc == 0)
        rc = report_real(o, "rss_bound_bytes", bound);
    if (rc == 0)
        rc = report_bool(o, "within_bound", (double)used <= bound);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

int
bench_memory(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench_result r = {0};
    struct bench b = {0};
    uint64_t before = bench_rss_bytes();
    int rc;

    bench_config_init(&c, t);
    c.theta = 0.0;
    rc = bench_args(&c, argc, argv, NULL, 0);
    if (rc != 0 || t->help)
        return rc;
    rc = needs_file(&c, "memory");
    if (rc == 0)
        rc = small_start(&b, &c);
    /* The loader's buffers are gone from what we count when the database is opened again. */
    if (rc == 0 && !c.no_load)
        rc = bench_close(&b);
    if (rc == 0 && !c.no_load)
        rc = bench_open(&b, b.options.durability);
    if (rc == 0)
        rc = bench_run(&b, &r);
    if (rc == 0)
        rc = report_memory(&b, &r, before);
    bench_result_fini(&r);
    return bench_fini(&b, rc);
}

/* ---- space ---- */

struct space_peak {
    uint64_t file_bytes, live_bytes, log_bytes;
    double worst, last;
};

static int
space_look(const struct bench *b, struct space_peak *peak)
{
    struct bench_sample s;
    struct stat st;
    char path[4096];
    int rc;

    snprintf(path, sizeof(path), "%s/cohort.db", b->c.device);
    if (stat(path, &st) != 0)
        return CH_FAIL(COHORT_EIO, "%s: %s", path, strerror(errno));
    rc = bench_sample(b->db, 0, &s);
    if (rc != 0)
        return rc;
    peak->file_bytes = (uint64_t)st.st_blocks * 512;
    peak->live_bytes = s.stats.live_bytes;
    peak->log_bytes = s.stats.log_bytes;
    peak->last = (double)peak->file_bytes / (double)ch_max_u64(peak->live_bytes, 1);
    peak->worst = fmax(peak->worst, peak->last);
    return 0;
}

static int
report_space(const struct bench *b, const struct space_peak *p, uint64_t rounds)
{
    struct json_object *o;
    int rc;

    if (!b->c.t->json) {
        printf("after %llu overwrites: file %.1f MiB on disk, live %.1f MiB, ratio %.3f, worst "
               "%.3f (log of %.1f MiB and open zones included)\n",
               (unsigned long long)rounds, (double)p->file_bytes / 1048576.0,
               (double)p->live_bytes / 1048576.0, p->last, p->worst,
               (double)p->log_bytes / 1048576.0);
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "workload", "space");
    if (rc == 0)
        rc = report_text(o, "device", b->c.device);
    if (rc == 0)
        rc = report_u64(o, "records", b->records);
    if (rc == 0)
        rc = report_u64(o, "overwrites", rounds);
    if (rc == 0)
        rc = report_u64(o, "file_bytes", p->file_bytes);
    if (rc == 0)
        rc = report_u64(o, "live_bytes", p->live_bytes);
    if (rc == 0)
        rc = report_u64(o, "log_bytes", p->log_bytes);
    if (rc == 0)
        rc = report_real(o, "space_ratio", p->last);
    if (rc == 0)
        rc = report_real(o, "space_ratio_max", p->worst);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

int
bench_space(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench b = {0};
    struct space_peak peak = {0};
    uint64_t rounds = 20;
    const struct arg extra[] = {
        {"overwrites", 0, ARG_U64, &rounds, NULL, "How often the data is overwritten (20)."},
    };
    int rc;

    bench_config_init(&c, t);
    c.theta = 0.0;
    rc = bench_args(&c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    rc = needs_file(&c, "space");
    if (rc == 0)
        rc = cohort_options_set(&t->options, "durability", "none");
    if (rc == 0)
        rc = small_start(&b, &c);
    b.c.workload = "update";
    b.c.ops = b.records;
    b.c.seconds = 0;
    for (uint64_t i = 0; i < rounds && rc == 0; i++) {
        struct bench_result r = {0};

        b.c.seed = c.seed + i;
        rc = bench_run(&b, &r); /* ends with a checkpoint */
        if (rc == 0)
            rc = space_look(&b, &peak);
        bench_result_fini(&r);
    }
    if (rc == 0)
        rc = report_space(&b, &peak, rounds);
    return bench_fini(&b, rc);
}
