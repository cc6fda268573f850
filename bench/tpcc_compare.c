/* tpcc_compare.c - cohort bench compare-tpcc: the same transactions on Cohort, LMDB and WiredTiger.
 *
 * All in one process, each in a directory of its own that goes at the end. Each is loaded, then rounds
 * alternate: open, run, checkpoint, close; so that what disturbs the machine disturbs all. tpmC is the median
 * of the rounds, bytes and latencies are those of all of them. An engine's own cache is empty when a round
 * begins; LMDB's, the page cache, is not.
 *
 * All get the same cache in bytes, a part of the estimated data; what that means for an engine is printed
 * with it (tpcc_store_ops.note). Bytes are the kernel's count of what the process wrote and read
 * (/proc/self/io), the checkpoint after the run included, so that what an engine still owes is counted;
 * LMDB's reads come from the page cache and need not appear.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "bench/tpcc_bench.h"
#include "rt/rt.h"

enum {
    SIDES_MAX = 3,
    ROUNDS_MAX = 101
};

struct side { /* one engine */
    const struct tpcc_store_ops *ops;
    char dir[4096];
    bool made;
    double tpmc[ROUNDS_MAX], load_seconds, checkpoint_seconds, cpu_seconds;
    uint64_t written, read, done, new_orders, retries, space_bytes;
    struct ch_hist latency[TPCC_KINDS];
    bool checked;
};

struct compare {
    struct tpcc_config c;
    const char *engines;
    uint64_t cache_bytes, rounds;
    struct side sides[SIDES_MAX];
    size_t count;
};

struct process_io {
    uint64_t written, read;
};

/* Unknown values stay COHORT_UNKNOWN: not every kernel counts. */
static void
process_io(struct process_io *io)
{
    char line[128];
    FILE *f = fopen("/proc/self/io", "r");

    *io = (struct process_io){COHORT_UNKNOWN, COHORT_UNKNOWN};
    if (f == NULL)
        return;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "write_bytes:", 12) == 0)
            io->written = strtoull(line + 12, NULL, 10);
        else if (strncmp(line, "read_bytes:", 11) == 0)
            io->read = strtoull(line + 11, NULL, 10);
    }
    fclose(f);
}

/* *sum += to - from; unknown once one of them is. */
static void
add_grown(uint64_t *sum, uint64_t from, uint64_t to)
{
    if (from == COHORT_UNKNOWN || to == COHORT_UNKNOWN)
        *sum = COHORT_UNKNOWN;
    else if (*sum != COHORT_UNKNOWN)
        *sum += to - from;
}

static _Thread_local uint64_t tree_bytes;

static int
on_size(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F)
        tree_bytes += (uint64_t)st->st_blocks * 512;
    return 0;
}

static int
on_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int
remove_tree(const char *dir)
{
    if (nftw(dir, on_remove, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return CH_FAIL(COHORT_EIO, "remove %s: %s", dir, strerror(errno));
    return 0;
}

static void
side_init(const struct compare *p, const struct side *s, struct tpcc_bench *b)
{
    memset(b, 0, sizeof(*b));
    b->c = p->c;
    b->c.device = s->dir;
    b->c.cache_part = 0;
    b->ops = s->ops;
    b->options = p->c.t->options;
    b->options.cache_bytes = p->cache_bytes;
}

static int
load_side(const struct compare *p, struct side *s, struct tpcc_bench *b)
{
    int rc;

    snprintf(s->dir, sizeof(s->dir), "%s/tpcc-%s", p->c.device, s->ops->name);
    if (mkdir(s->dir, 0777) != 0)
        return CH_FAIL(COHORT_EIO, "mkdir %s: %s", s->dir, strerror(errno));
    s->made = true;
    side_init(p, s, b);
    rc = tpcc_prepare(b);
    if (rc == 0)
        rc = tpcc_verdict(b);
    s->load_seconds = b->load_seconds;
    return tpcc_finish(b, rc);
}

static int
measure_side(struct tpcc_bench *b, struct side *s, uint64_t round)
{
    struct process_io from, to;
    uint64_t start;
    int rc;

    process_io(&from);
    rc = tpcc_measure(b);
    if (rc != 0)
        return rc;
    start = rt_now_ns();
    rc = b->ops->checkpoint(b->store);
    process_io(&to);
    s->checkpoint_seconds += (double)(rt_now_ns() - start) / 1e9;
    add_grown(&s->written, from.written, to.written);
    add_grown(&s->read, from.read, to.read);
    s->tpmc[round] = tpcc_tpmc(b);
    s->cpu_seconds += b->r.run.cpu_seconds;
    s->done += b->r.run.ops;
    s->new_orders += b->new_orders[2] - b->new_orders[0];
    for (int k = 0; k < TPCC_KINDS; k++) {
        s->retries += b->result.counts[k].retries;
        ch_hist_merge(&s->latency[k], &b->result.latency[k]);
    }
    s->checked = b->has_check[1];
    tree_bytes = 0;
    if (nftw(s->dir, on_size, 16, FTW_PHYS) == 0)
        s->space_bytes = tree_bytes;
    return rc;
}

static int
round_side(const struct compare *p, struct side *s, struct tpcc_bench *b, uint64_t round)
{
    int rc;

    side_init(p, s, b);
    b->c.no_load = true;
    b->c.check = false;
    b->c.seed = p->c.seed + round;
    rc = tpcc_prepare(b);
    b->c.check = p->c.check && round + 1 == p->rounds;
    if (rc == 0)
        rc = measure_side(b, s, round);
    if (rc == 0)
        rc = tpcc_verdict(b);
    rc = tpcc_finish(b, rc);
    if (rc == 0 && !p->c.t->quiet)
        fprintf(stderr, "round %" PRIu64 ": %s %.0f new orders a minute\n", round + 1, s->ops->name,
                s->tpmc[round]);
    return rc;
}

static int
run_sides(struct compare *p)
{
    struct tpcc_bench *b = calloc(1, sizeof(*b));
    int rc = b == NULL ? CH_FAIL(COHORT_ENOMEM, "TPC-C") : 0;

    for (size_t i = 0; i < p->count && rc == 0; i++)
        rc = load_side(p, &p->sides[i], b);
    for (uint64_t round = 0; round < p->rounds && rc == 0; round++)
        for (size_t i = 0; i < p->count && rc == 0; i++)
            rc = round_side(p, &p->sides[i], b, round);
    for (size_t i = 0; i < p->count; i++) {
        int removed = p->sides[i].made ? remove_tree(p->sides[i].dir) : 0;

        rc = rc != 0 ? rc : removed;
        (void)bench_median(p->sides[i].tpmc, p->rounds); /* sorts */
    }
    free(b);
    return rc;
}

/* ---- report ---- */

/* The rounds are sorted (run_sides). */
static double
side_tpmc(const struct compare *p, const struct side *s)
{
    return (s->tpmc[(p->rounds - 1) / 2] + s->tpmc[p->rounds / 2]) / 2.0;
}

static double
per_new_order(uint64_t bytes, const struct side *s)
{
    if (bytes == COHORT_UNKNOWN)
        return FIGURE_UNKNOWN;
    return (double)bytes / (double)ch_max_u64(s->new_orders, 1);
}

static int
side_json(const struct compare *p, const struct side *s, struct json_object *o)
{
    double tpmc = side_tpmc(p, s);
    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"tpmc", tpmc},
        {"tpmc_min", s->tpmc[0]},
        {"tpmc_max", s->tpmc[p->rounds - 1]},
        {"ratio", tpmc > 0 ? side_tpmc(p, &p->sides[0]) / tpmc : FIGURE_ABSENT},
        {"written_bytes_per_new_order", per_new_order(s->written, s)},
        {"read_bytes_per_new_order", per_new_order(s->read, s)},
        {"cpu_us_per_op", s->cpu_seconds * 1e6 / (double)ch_max_u64(s->done, 1)},
        {"load_seconds", s->load_seconds},
        {"checkpoint_seconds", s->checkpoint_seconds / (double)p->rounds},
    };
    struct json_object *latency = NULL;
    int rc;

    rc = report_text(o, "engine", s->ops->name);
    if (rc == 0)
        rc = report_text(o, "note", s->ops->note);
    for (size_t i = 0; i < CH_ARRAY_LEN(reals) && rc == 0; i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    if (rc == 0)
        rc = report_u64(o, "new_orders", s->new_orders);
    if (rc == 0)
        rc = report_u64(o, "retries", s->retries);
    if (rc == 0)
        rc = report_u64(o, "space_bytes", s->space_bytes);
    if (rc == 0)
        rc = report_bool(o, "conditions_checked", s->checked);
    latency = json_object_new_object();
    if (rc == 0 && (latency == NULL || json_object_object_add(o, "latency_us", latency) != 0))
        rc = CH_FAIL(COHORT_ENOMEM, "JSON field latency_us");
    for (int k = 0; k < TPCC_KINDS && rc == 0; k++)
        rc = tpcc_report_latency(latency, tpcc_kind_names[k], &s->latency[k]);
    return rc;
}

static int
report_json(const struct compare *p)
{
    char durability[CH_OPTION_TEXT_BYTES];
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    int rc = 0;

    if (o == NULL || list == NULL || json_object_object_add(o, "engines", list) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    ch_option_format("durability", p->c.t->options.durability, durability);
    rc = report_text(o, "workload", p->c.steady ? "compare-tpcc-steady" : "compare-tpcc");
    if (rc == 0)
        rc = report_u64(o, "warehouses", p->c.warehouses);
    if (rc == 0)
        rc = report_u64(o, "scale_divisor", p->c.divisor);
    if (rc == 0)
        rc = report_u64(o, "threads", p->c.threads);
    if (rc == 0)
        rc = report_u64(o, "cache_bytes", p->cache_bytes);
    if (rc == 0)
        rc = report_u64(o, "rounds", p->rounds);
    if (rc == 0)
        rc = report_text(o, "durability", durability);
    for (size_t i = 0; i < p->count && rc == 0; i++) {
        struct json_object *one = json_object_new_object();

        if (one == NULL || json_object_array_add(list, one) != 0)
            rc = CH_FAIL(COHORT_ENOMEM, "JSON");
        else
            rc = side_json(p, &p->sides[i], one);
    }
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    return tool_json_print(o, stdout);
}

static void
print_side(const struct compare *p, const struct side *s)
{
    double tpmc = side_tpmc(p, s);
    double written = per_new_order(s->written, s), read = per_new_order(s->read, s);
    const struct ch_hist *h = &s->latency[TPCC_NEW_ORDER_TXN];

    printf("  %-11s %10.0f %8.2f %9.1f %9.1f %9" PRIu64 " %12.0f %12.0f %9.1f %8.1f %8.1f\n",
           s->ops->name, tpmc, tpmc > 0 ? side_tpmc(p, &p->sides[0]) / tpmc : 0.0,
           (double)ch_hist_quantile(h, 0.5) / 1e3, (double)ch_hist_quantile(h, 0.99) / 1e3,
           s->retries, isnan(written) ? -1.0 : written, isnan(read) ? -1.0 : read,
           (double)s->space_bytes / 1048576.0,
           s->cpu_seconds * 1e6 / (double)ch_max_u64(s->done, 1), s->load_seconds);
}

static int
report(const struct compare *p)
{
    char durability[CH_OPTION_TEXT_BYTES];
    int rc;

    if (p->c.t->json) {
        rc = report_json(p);
        return rc != 0 ? rc : tool_flush();
    }
    ch_option_format("durability", p->c.t->options.durability, durability);
    printf("TPC-C%s, %" PRIu64 " warehouses at scale 1/%" PRIu64 ", %" PRIu64
           " threads, durability %s, cache %.1f MiB each, medians of %" PRIu64 " rounds\n",
           p->c.steady ? " (steady)" : "", p->c.warehouses, p->c.divisor, p->c.threads, durability,
           (double)p->cache_bytes / 1048576.0, p->rounds);
    printf("  %-11s %10s %8s %9s %9s %9s %12s %12s %9s %8s %8s\n", "", "tpmC", "ratio", "p50 us",
           "p99 us", "retries", "written/NO", "read/NO", "MiB", "CPU us", "load s");
    for (size_t i = 0; i < p->count; i++)
        print_side(p, &p->sides[i]);
    printf(
        "  ratio: tpmC of %s to the line's; p50, p99: New-Order; bytes: the kernel's count a new "
        "order, -1 = unknown;\n  CPU: a transaction of any kind\n",
        p->sides[0].ops->name);
    for (size_t i = 0; i < p->count; i++)
        printf("  %s: %s\n", p->sides[i].ops->name, p->sides[i].ops->note);
    return tool_flush();
}

/* A list of names; by default every engine of this build. */
static int
parse_engines(struct compare *p)
{
    static const char *const all[SIDES_MAX] = {"cohort", "lmdb", "wiredtiger"};
    const char *at = p->engines;

    for (size_t i = 0; at == NULL && i < SIDES_MAX; i++) {
        if (tpcc_store_find(all[i], &p->sides[p->count].ops) == 0)
            p->count++;
        else
            fprintf(stderr, "cohort bench: %s\n", cohort_last_error()->text);
    }
    while (at != NULL && *at != '\0') {
        char name[32];
        size_t n = strcspn(at, ",");
        int rc;

        snprintf(name, sizeof(name), "%.*s", (int)ch_min_u64(n, sizeof(name) - 1), at);
        if (p->count == SIDES_MAX)
            return CH_FAIL(COHORT_EOPTION, "--engines: at most %d", SIDES_MAX);
        rc = tpcc_store_find(name, &p->sides[p->count].ops);
        if (rc != 0)
            return rc;
        p->count++;
        at += n + (at[n] == ',');
    }
    return p->count > 0 ? 0 : CH_FAIL(COHORT_EOPTION, "--engines: none");
}

int
bench_compare_tpcc(struct tool *t, int argc, char **argv)
{
    struct compare *p = calloc(1, sizeof(*p));
    struct tpcc_scale scale;
    int rc;

    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "TPC-C");
    {
        const struct arg extra[] = {
            {"rounds", 0, ARG_U64, &p->rounds, NULL, "Rounds of --seconds or --ops each (3)."},
            {"engines", 0, ARG_TEXT, &p->engines, NULL, "cohort,lmdb,wiredtiger (all built in)."},
        };

        tpcc_config_init(&p->c, t);
        p->c.cache_part = 15;
        p->rounds = 3;
        rc = tpcc_args(&p->c, argc, argv, extra, CH_ARRAY_LEN(extra));
    }
    if (rc != 0 || t->help)
        goto out;
    if (strncmp(p->c.device, "sim:", 4) == 0 || p->c.no_load || p->c.load_only ||
        p->c.drive_writes > 0)
        rc = CH_FAIL(COHORT_EOPTION, "compare-tpcc: --device DIRECTORY, and --seconds or --ops");
    if (rc == 0 && (p->rounds < 1 || p->rounds > ROUNDS_MAX))
        rc = CH_FAIL(COHORT_EOPTION, "--rounds: 1 to %d", ROUNDS_MAX);
    if (rc == 0)
        rc = parse_engines(p);
    tpcc_scale_init(&scale, (uint32_t)p->c.warehouses, (uint32_t)p->c.divisor);
    p->cache_bytes = t->options.cache_bytes;
    if (p->c.cache_part > 0)
        p->cache_bytes = ch_max_u64(
            (uint64_t)((double)tpcc_scale_bytes(&scale) * p->c.cache_part / 100.0), 4 << 20);
    if (rc == 0)
        rc = run_sides(p);
    if (rc == 0)
        rc = report(p);
out:
    free(p);
    return rc;
}
