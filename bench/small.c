/* small.c - cohort bench commit, memory and space: one property each. */
#include <errno.h>
#include <malloc.h>
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

/* Resident memory that no file is behind: what was allocated, stacks, rings of io_uring; not the
 * program and its libraries. */
static int
anonymous_bytes(uint64_t *bytes)
{
    char line[256];
    unsigned long long kib = 0;
    unsigned found = 0;
    FILE *f = fopen("/proc/self/status", "r");

    if (f == NULL)
        return CH_FAIL(COHORT_EIO, "/proc/self/status: %s", strerror(errno));
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "RssAnon:", 8) != 0 && strncmp(line, "RssShmem:", 9) != 0)
            continue;
        kib += strtoull(strchr(line, ':') + 1, NULL, 10);
        found++;
    }
    fclose(f);
    if (found != 2)
        return CH_FAIL(COHORT_EUNSUPPORTED, "/proc/self/status: no RssAnon and RssShmem");
    *bytes = kib * 1024;
    return 0;
}

struct memory_use {
    uint64_t before, after;
    double bound;
};

static uint64_t
memory_grown(const struct memory_use *m)
{
    return m->after > m->before ? m->after - m->before : 0;
}

static int
report_memory(const struct bench *b, const struct bench_result *r, const struct memory_use *m)
{
    bool within = (double)memory_grown(m) <= m->bound;
    struct json_object *o = NULL;
    int rc;

    if (!b->c.t->json) {
        printf("anonymous memory grew by %.1f MiB (from %.1f); cache %.1f, metadata %.1f MiB, %llu "
               "pages\nbound cache + 10 %% + 24 bytes a page = %.1f MiB: %s\n",
               (double)memory_grown(m) / 1048576.0, (double)m->before / 1048576.0,
               (double)r->to.stats.cache_bytes / 1048576.0,
               (double)r->to.stats.metadata_bytes / 1048576.0,
               (unsigned long long)r->to.stats.pages, m->bound / 1048576.0,
               within ? "within" : "EXCEEDED");
        return tool_flush();
    }
    rc = bench_report_json(b, r, &o);
    if (rc == 0)
        rc = report_u64(o, "anonymous_before_bytes", m->before);
    if (rc == 0)
        rc = report_u64(o, "anonymous_grown_bytes", memory_grown(m));
    if (rc == 0)
        rc = report_real(o, "memory_bound_bytes", m->bound);
    if (rc == 0)
        rc = report_bool(o, "within_bound", within);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

/* Opens the database again, with the loader's memory given back, and reads until the cache is full. */
static int
memory_run(struct bench *b, struct bench_result *r, struct memory_use *m)
{
    int rc;

    rc = bench_close(b);
    (void)malloc_trim(0);
    if (rc == 0)
        rc = anonymous_bytes(&m->before);
    if (rc == 0)
        rc = bench_open(b, b->options.durability);
    if (rc == 0)
        rc = bench_run(b, r);
    if (rc == 0) /* now, that the threads' own memory is gone */
        rc = anonymous_bytes(&m->after);
    if (rc != 0)
        return rc;
    if (r->to.stats.cache_misses * CH_PAGE_BYTES < r->to.stats.cache_bytes)
        return CH_FAIL(COHORT_EOPTION, "bench memory: the cache did not fill: more --records or "
                                       "--seconds, or a smaller --cache");
    m->bound = 1.1 * (double)b->options.cache_bytes + 24.0 * (double)r->to.stats.pages;
    return 0;
}

int
bench_memory(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench_result r = {0};
    struct bench b = {0};
    struct memory_use m = {0};
    int rc;

    bench_config_init(&c, t);
    c.theta = 0.0;
    /* So that waiting for the device does not keep the cache from filling; -o sets it otherwise. */
    rc = cohort_options_set(&t->options, "durability", "async");
    if (rc == 0)
        rc = bench_args(&c, argc, argv, NULL, 0);
    if (rc != 0 || t->help)
        return rc;
    rc = needs_file(&c, "memory");
    if (rc == 0)
        rc = small_start(&b, &c);
    if (rc == 0)
        rc = memory_run(&b, &r, &m);
    if (rc == 0)
        rc = report_memory(&b, &r, &m);
    bench_result_fini(&r);
    return bench_fini(&b, rc);
}

/* ---- space ---- */

enum {
    SPACE_ROOT_BYTES = 64 * 1024 /* FORMAT.md: the root area */
};

/* `data` is the file without root area and log; `zones` is how many zones it has beyond space_target
 * times the live bytes: the open ones, those kept in reserve, map and zone table. */
struct space_peak {
    uint64_t file_bytes, live_bytes, log_bytes, data_bytes;
    double worst, last, zones, zones_worst;
    double gc; /* bytes that GC moved for each byte of user images, over all overwrites */
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
    peak->data_bytes =
        peak->file_bytes - ch_min_u64(peak->file_bytes, peak->log_bytes + SPACE_ROOT_BYTES);
    peak->last = (double)peak->data_bytes / (double)ch_max_u64(peak->live_bytes, 1);
    peak->worst = fmax(peak->worst, peak->last);
    peak->zones = fmax(0.0, (double)peak->data_bytes - (double)b->options.space_target / 100.0 *
                                                           (double)peak->live_bytes) /
                  (double)s.stats.zone_bytes;
    peak->zones_worst = fmax(peak->zones_worst, peak->zones);
    return 0;
}

static int
report_space(const struct bench *b, const struct space_peak *p, uint64_t rounds)
{
    struct json_object *o;
    int rc;

    if (!b->c.t->json) {
        printf(
            "after %llu overwrites: file %.1f MiB on disk, log %.1f, data %.1f, live %.1f MiB\n"
            "data / live %.3f, worst %.3f; zones beyond %.2f x live %.1f, worst %.1f; GC bytes a "
            "user byte %.2f\n",
            (unsigned long long)rounds, (double)p->file_bytes / 1048576.0,
            (double)p->log_bytes / 1048576.0, (double)p->data_bytes / 1048576.0,
            (double)p->live_bytes / 1048576.0, p->last, p->worst,
            (double)b->options.space_target / 100.0, p->zones, p->zones_worst, p->gc);
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
    if (rc == 0)
        rc = report_u64(o, "data_bytes", p->data_bytes);
    if (rc == 0)
        rc = report_real(o, "zones_beyond_target", p->zones);
    if (rc == 0)
        rc = report_real(o, "zones_beyond_target_max", p->zones_worst);
    if (rc == 0)
        rc = report_real(o, "gc_bytes_per_user_byte", p->gc);
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
    uint64_t user = 0, gc = 0;
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
        user += r.window.bytes[CH_USER];
        gc += r.window.bytes[CH_GC];
        bench_result_fini(&r);
    }
    peak.gc = (double)gc / (double)ch_max_u64(user, 1);
    if (rc == 0)
        rc = report_space(&b, &peak, rounds);
    return bench_fini(&b, rc);
}
