/* peers.c - cohort bench peers: what a database in a file writes for an operation, under the work that other engines
 * were measured with.
 *
 * 10 M records of 8+120 bytes whose pages LZ4 makes 0.41 of, YCSB-A, zipf 0.8 scrambled, cache of 128 MiB, 2
 * threads, the log synced every 20 ms, a directory. Each row loads a database of its own, runs three quarters of the
 * operations unmeasured, then the last quarter in two halves; "steady" when their device bytes for an operation
 * differ by at most 2 %. Device bytes are those that the database submits, log included: what the kernel counts for
 * the file system's own blocks comes on top, and what a drive programs for them it would have to tell.
 *
 * The rows are a table of trade-offs: fewer bytes written against reads, CPU and space.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/rows.h"

enum {
    PEERS_QUARTERS = 4
};

struct peer {
    const struct row_spec *spec;
    struct bench bench;
    struct bench_result result; /* of the last quarter */
    double half[2];             /* device bytes an operation */
};

/* Both halves as one result. */
static void
join_halves(struct peer *p, const struct bench_result *first)
{
    struct bench_result *r = &p->result;

    p->half[0] = first->figures.host_bytes_per_op;
    p->half[1] = r->figures.host_bytes_per_op;
    r->from = first->from;
    figures_difference(&first->from.stats, &r->to.stats, &r->window);
    r->run.ops += first->run.ops;
    r->run.seconds += first->run.seconds;
    r->run.cpu_seconds += first->run.cpu_seconds;
    ch_hist_merge(r->latency, first->latency);
    figures_compute(&r->window, &r->run, &r->figures);
    r->steady = fabs(p->half[0] - p->half[1]) <= 0.02 * fmax(p->half[0], p->half[1])
                    ? BENCH_STEADY_YES
                    : BENCH_STEADY_NO;
}

static int
run_part(struct peer *p, uint64_t ops, uint64_t seed, struct bench_result *r)
{
    p->bench.c.ops = ch_max_u64(ops, 1);
    p->bench.c.seed = seed;
    return bench_run(&p->bench, r);
}

static int
measure(struct peer *p, uint64_t ops)
{
    struct bench_result warm = {0}, first = {0};
    uint64_t quarter = ops / PEERS_QUARTERS, seed = p->bench.c.seed;
    int rc;

    rc = run_part(p, ops - quarter, seed, &warm);
    bench_result_fini(&warm);
    if (rc == 0)
        rc = run_part(p, quarter / 2, seed + 1, &first);
    if (rc == 0)
        rc = run_part(p, quarter / 2, seed + 2, &p->result);
    if (rc == 0)
        join_halves(p, &first);
    bench_result_fini(&first);
    p->bench.c.seed = seed;
    p->bench.c.ops = ops;
    return rc;
}

/* The database of one row is removed when it has been measured. */
static int
remove_database(const char *directory)
{
    char file[4096];

    snprintf(file, sizeof(file), "%s/cohort.db", directory);
    if (unlink(file) != 0 && errno != ENOENT)
        return CH_FAIL(COHORT_EIO, "%s", file);
    if (rmdir(directory) != 0 && errno != ENOENT)
        return CH_FAIL(COHORT_EIO, "%s", directory);
    return 0;
}

static int
run_peer(const struct bench_config *config, const struct row_spec *spec, size_t index,
         struct peer *p)
{
    struct bench_config c = *config;
    char directory[4000];
    uint64_t ops = c.ops;
    int rc;

    snprintf(directory, sizeof(directory), "%s/peers-%zu", config->device, index);
    c.device = directory;
    p->spec = spec;
    if (!c.t->quiet)
        fprintf(stderr, "--- %s in %s\n", spec->name, directory);
    rc = bench_init(&p->bench, &c);
    if (rc == 0)
        rc = row_apply(spec, &p->bench.options);
    if (rc == 0)
        rc = bench_plan(&p->bench);
    if (rc == 0)
        rc = bench_prepare(&p->bench);
    if (rc == 0)
        rc = measure(p, ops);
    rc = bench_fini(&p->bench, rc);
    p->bench.c.device = config->device;
    return rc == 0 ? remove_database(directory) : rc;
}

static double
user_bytes(const struct peer *p)
{
    return (double)p->bench.records * (double)(8 + p->bench.c.value_bytes);
}

static void
print_peers(const struct peer *p, size_t n)
{
    printf("%" PRIu64 " records of 8+%" PRIu64 " bytes, workload %s, zipf %g %s, %" PRIu64
           " threads, %" PRIu64 " operations measured\n",
           p->bench.records, p->bench.c.value_bytes, p->bench.c.workload, p->bench.c.theta,
           p->bench.c.unscrambled ? "unscrambled" : "scrambled", p->bench.c.threads,
           p->result.run.ops);
    printf("%-20s %8s", "device bytes/op", "all");
    for (int k = 0; k < COHORT_CAUSES; k++)
        printf(" %7s", report_cause_names()[k]);
    printf(" %8s %9s %7s %7s %7s %s\n", "reads/op", "CPU us/op", "ratio", "live", "file", "steady");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &p[i].result;
        double ops = (double)ch_max_u64(r->run.ops, 1);

        printf("%-20s %8.1f", p[i].spec->name, r->figures.host_bytes_per_op);
        for (int k = 0; k < COHORT_CAUSES; k++)
            printf(" %7.1f", (double)r->window.bytes[k] / ops);
        printf(" %8.3f %9.2f %7.3f %7.3f %7.3f %s\n", r->figures.reads_per_op,
               r->figures.cpu_us_per_op, r->figures.compress_ratio,
               (double)r->window.live_bytes / user_bytes(&p[i]),
               (double)r->window.space_bytes / user_bytes(&p[i]),
               r->steady == BENCH_STEADY_YES ? "yes" : "no");
    }
    printf(
        "ratio: stored bytes of a page / 4096; live, file: bytes of the images and of the file / "
        "bytes of keys and values\n");
}

static int
peer_json(const struct peer *p)
{
    struct json_object *o = NULL;
    int rc = bench_report_json(&p->bench, &p->result, &o);

    if (rc == 0)
        rc = report_text(o, "bench", "peers");
    if (rc == 0)
        rc = report_text(o, "row", p->spec->name);
    if (rc == 0)
        rc = report_real(o, "live_per_user_byte",
                         (double)p->result.window.live_bytes / user_bytes(p));
    if (rc == 0)
        rc = report_real(o, "file_per_user_byte",
                         (double)p->result.window.space_bytes / user_bytes(p));
    if (rc == 0)
        return tool_json_print(o, stdout);
    json_object_put(o);
    return rc;
}

static int
peers_args(struct bench_config *c, struct tool *t, int argc, char **argv, const char **rows)
{
    const struct arg extra[] = {
        {"rows", 0, ARG_TEXT, rows, NULL,
         "As of ablation (oop+pack,cohort,cohort:codec=zstd,oop+delta)."},
    };
    int rc;

    bench_config_init(c, t);
    c->records_default = 10000000;
    c->theta = 0.8;
    c->threads = 2;
    rc = cohort_options_set(&t->options, "durability", "async");
    if (rc == 0)
        rc = cohort_options_set(&t->options, "async_ms", "20");
    if (rc == 0)
        rc = cohort_options_set(&t->options, "cache_bytes", "128M");
    if (rc == 0)
        rc = bench_args(c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    if (c->ops == 0)
        c->ops = 3 * c->records;
    c->seconds = c->drive_writes = 0;
    if (c->device == NULL || strncmp(c->device, "sim:", 4) == 0)
        return CH_FAIL(COHORT_EOPTION, "--device: a directory is needed");
    if (mkdir(c->device, 0777) != 0 && errno != EEXIST)
        return CH_FAIL(COHORT_EIO, "%s", c->device);
    return 0;
}

int
bench_peers(struct tool *t, int argc, char **argv)
{
    const char *text = "oop+pack,cohort,cohort:codec=zstd,oop+delta";
    struct bench_config c;
    struct rows rows = {0};
    struct peer *peers = NULL;
    size_t done = 0;
    int rc = peers_args(&c, t, argc, argv, &text);

    if (rc != 0 || t->help)
        return rc;
    rc = rows_parse(text, &rows);
    if (rc == 0) {
        peers = calloc(rows.count, sizeof(*peers));
        rc = peers == NULL ? CH_FAIL(COHORT_ENOMEM, "rows") : 0;
    }
    for (size_t i = 0; i < rows.count && rc == 0; i++) {
        done++;
        rc = run_peer(&c, &rows.list[i], i, &peers[i]);
    }
    for (size_t i = 0; i < done && rc == 0 && t->json; i++)
        rc = peer_json(&peers[i]);
    if (rc == 0 && !t->json)
        print_peers(peers, done);
    if (rc == 0)
        rc = tool_flush();
    for (size_t i = 0; i < done; i++)
        bench_result_fini(&peers[i].result);
    free(peers);
    rows_fini(&rows);
    return rc;
}
