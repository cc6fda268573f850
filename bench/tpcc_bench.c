/* tpcc_bench.c - cohort bench tpcc: load, run, check, on Cohort. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/tpcc_bench.h"
#include "rt/rt.h"

static bool
is_cohort(const struct tpcc_bench *b)
{
    return b->ops == &tpcc_cohort_ops;
}

static int
open_store(struct tpcc_bench *b, bool create)
{
    int rc;

    rc = cohort_options_set(&b->options, "create",
                            !create                         ? "no"
                            : tool_is_volatile(b->c.device) ? "yes"
                                                            : "must");
    b->config.create = create;
    return rc == 0 ? b->ops->open(&b->config, &b->store) : rc;
}

static uint64_t
cache_of(double data_bytes, double percent)
{
    return (uint64_t)fmax(data_bytes * percent / 100.0, 1 << 20);
}

/* `which` of checked[]: 0 after load, 1 after the run. Violations: see tpcc_verdict(). */
static int
check_now(struct tpcc_bench *b, int which)
{
    uint64_t start = rt_now_ns();
    int rc;

    rc = tpcc_check(b->store, &b->scale, &b->checked[which]);
    b->has_check[which] = rc == 0;
    if (rc == 0 && !b->c.t->quiet)
        fprintf(stderr, "conditions after %s: %s, in %.1f s\n", which == 0 ? "load" : "run",
                tpcc_check_ok(&b->checked[which]) ? "all hold" : "VIOLATED",
                (double)(rt_now_ns() - start) / 1e9);
    return rc;
}

int
tpcc_verdict(const struct tpcc_bench *b)
{
    int rc = b->has_check[0] ? tpcc_check_status(&b->checked[0]) : 0;

    return rc == 0 && b->has_check[1] ? tpcc_check_status(&b->checked[1]) : rc;
}

static int
load_now(struct tpcc_bench *b)
{
    const struct tpcc_load load = {
        .store = b->store,
        .scale = &b->scale,
        .threads = b->c.threads,
        .seed = b->c.seed,
        .progress = !b->c.t->quiet,
    };
    uint64_t start = rt_now_ns();
    int rc = tpcc_load(&load);

    b->load_seconds = (double)(rt_now_ns() - start) / 1e9;
    return rc;
}

/* The cache as a part of what has been loaded is known only now. */
static int
open_again(struct tpcc_bench *b)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    int rc;

    if (!is_cohort(b))
        return 0;
    rc = cohort_stats(tpcc_cohort_db(b->store), &s);
    b->pages_loaded = s.pages;
    if (rc != 0 || b->c.cache_part <= 0 || tool_is_volatile(b->c.device))
        return rc;
    rc = b->ops->close(b->store);
    b->store = NULL;
    b->config.cache_bytes = cache_of((double)s.pages * CH_PAGE_BYTES, b->c.cache_part);
    return rc == 0 ? open_store(b, false) : rc;
}

int
tpcc_prepare(struct tpcc_bench *b)
{
    struct tpcc_scale planned;
    struct ch_prng p;
    int rc;

    ch_prng_init(&p, b->c.seed);
    tpcc_scale_init(&planned, (uint32_t)b->c.warehouses, (uint32_t)b->c.divisor);
    planned.c_load = (uint32_t)ch_prng_below(&p, 256);
    b->scale = planned;
    b->config.where = b->c.device;
    b->config.options = &b->options;
    b->config.threads = ch_max_u64(b->c.threads, 1) + 4;
    b->config.isolation = b->c.isolation;
    b->config.durability = b->options.durability;
    b->config.cache_bytes = b->options.cache_bytes;
    b->config.bytes_max = 4 * tpcc_scale_bytes(&planned) + (UINT64_C(8) << 30);
    if (b->c.cache_part > 0)
        b->config.cache_bytes = cache_of((double)tpcc_scale_bytes(&planned), b->c.cache_part);
    rc = open_store(b, !b->c.no_load);
    if (rc == 0)
        rc = b->c.no_load ? tpcc_load_scale(b->store, &b->scale) : load_now(b);
    if (rc == 0 && b->c.check)
        rc = check_now(b, 0);
    return rc == 0 ? open_again(b) : rc;
}

/* ---- the run ---- */

static int
take_sample(struct tpcc_bench *b, uint64_t done, struct bench_sample *s)
{
    if (is_cohort(b))
        return bench_sample(tpcc_cohort_db(b->store), done, s);
    *s = (struct bench_sample){.ops = done, .ns = rt_now_ns(), .cpu_ns = rt_cpu_ns()};
    return 0;
}

/* As of run.c: with --drive-writes the last quarter is the window, else the whole run. */
static int
on_watch(void *arg, uint64_t done, uint64_t new_orders, bool *measure, bool *stop)
{
    struct tpcc_bench *b = arg;
    struct bench_sample now;
    int rc = take_sample(b, done, &now);

    if (rc == 0 && b->c.drive_writes > 0) {
        double part = (double)(now.stats.host_bytes - b->r.from.stats.host_bytes) /
                      (b->c.drive_writes * (double)now.stats.capacity_bytes);
        unsigned phase = part >= 0.875 ? 2 : part >= 0.75 ? 1 : 0;

        *stop = *stop || part >= 1.0;
        for (; b->phase < phase; b->phase++) {
            b->at[b->phase] = now;
            b->new_orders[b->phase] = new_orders;
        }
        *measure = b->phase > 0;
    }
    b->at[2] = now;
    b->new_orders[2] = new_orders;
    return rc;
}

static int
fill_window(struct tpcc_bench *b)
{
    struct bench_result *r = &b->r;
    struct cohort_stats half[2];

    r->from = b->at[0];
    r->to = b->at[2];
    r->rss_bytes = bench_rss_bytes();
    r->run.ops = r->to.ops - r->from.ops;
    r->run.seconds = (double)(r->to.ns - r->from.ns) / 1e9;
    r->run.cpu_seconds = (double)(r->to.cpu_ns - r->from.cpu_ns) / 1e9;
    if (!is_cohort(b))
        return 0;
    figures_difference(&r->from.stats, &r->to.stats, &r->window);
    figures_compute(&r->window, &r->run, &r->figures);
    if (b->c.drive_writes > 0) {
        figures_difference(&b->at[0].stats, &b->at[1].stats, &half[0]);
        figures_difference(&b->at[1].stats, &b->at[2].stats, &half[1]);
        r->steady = b->phase == 2 && figures_steady(&half[0], &half[1]) ? BENCH_STEADY_YES
                                                                        : BENCH_STEADY_NO;
    }
    return bench_account(tpcc_cohort_db(b->store), &r->accounted, &r->account_difference);
}

int
tpcc_measure(struct tpcc_bench *b)
{
    const struct tpcc_run run = {
        .store = b->store,
        .scale = &b->scale,
        .threads = b->c.threads,
        .seed = b->c.seed,
        .ops = b->c.ops,
        .seconds = b->c.seconds,
        .steady = b->c.steady,
        .progress = !b->c.t->quiet,
        .watch = on_watch,
        .arg = b,
    };
    int rc;

    rc = take_sample(b, 0, &b->r.from);
    b->at[0] = b->r.from; /* replaced when the window starts later */
    b->phase = 0;
    if (rc == 0)
        rc = tpcc_run(&run, &b->result);
    if (rc == 0)
        rc = fill_window(b);
    if (rc == 0 && b->c.check)
        rc = check_now(b, 1);
    return rc;
}

int
tpcc_finish(struct tpcc_bench *b, int rc)
{
    struct cohort_error e = *cohort_last_error();
    struct tpcc_store *store = b->store;
    int closed = 0;

    b->store = NULL;
    if (store != NULL)
        closed = b->ops->close(store);
    if (rc == 0)
        return closed;
    if (e.code == rc && e.file != NULL)
        (void)ch_fail(rc, e.file, e.line, "%s", e.text);
    return rc;
}

double
tpcc_tpmc(const struct tpcc_bench *b)
{
    double minutes = b->r.run.seconds / 60.0;

    return minutes > 0 ? (double)(b->new_orders[2] - b->new_orders[0]) / minutes : 0.0;
}

int
bench_tpcc(struct tool *t, int argc, char **argv)
{
    struct tpcc_bench *b = calloc(1, sizeof(*b));
    struct tpcc_config c;
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "TPC-C");
    tpcc_config_init(&c, t);
    rc = tpcc_args(&c, argc, argv, NULL, 0);
    if (rc != 0 || t->help)
        goto out;
    b->c = c;
    b->ops = &tpcc_cohort_ops;
    b->options = t->options;
    rc = tpcc_prepare(b);
    if (rc == 0 && !c.load_only && !c.check_only && tpcc_verdict(b) == 0)
        rc = tpcc_measure(b);
    if (rc == 0)
        rc = tpcc_report(b);
    if (rc == 0)
        rc = tpcc_verdict(b);
    rc = tpcc_finish(b, rc);
out:
    free(b);
    return rc;
}
