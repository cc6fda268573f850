/* ycsb.c - cohort bench ycsb, and the list of benches. */
#include <stdlib.h>

#include "bench/bench.h"
#include "rt/rt.h"

static const struct tool_command benches[] = {
    {"ycsb", bench_ycsb, "", "Workloads a to f of YCSB; load, run and report."},
    {"table1", bench_table1, "", "In place, out of place, and packed, on simulated drives."},
    {"ablation", bench_ablation, "",
     "The paper's Table 1 with our rows, on one simulated drive or all."},
    {"sweep", bench_sweep, "", "The same along axes: fill, theta, cache, spare, zone size ..."},
    {"demo", bench_demo, "", "A directory, then table1: what ./demo runs."},
    {"peers", bench_peers, "", "Device bytes an operation in a file, beside other engines' work."},
    {"commit", bench_commit, "", "Durable puts: commits a second and per log flush."},
    {"memory", bench_memory, "", "Resident memory against its bound."},
    {"space", bench_space, "", "Size of the file against live bytes under overwrites."},
    {"txn", bench_txn, "", "Transactions, scans, many-key reads, durable commits, bulk load."},
    {"compare-lmdb", bench_compare_lmdb, "", "Point reads from cache against LMDB."},
    {"ratios", bench_ratios, "", "Compression and packing of pages of five kinds of data."},
    {"tpcc", bench_tpcc, "", "TPC-C: five transactions on nine tables; load, run, check, report."},
    {"compare-tpcc", bench_compare_tpcc, "", "TPC-C on Cohort, LMDB and WiredTiger."},
    {"compare-fio", bench_compare_fio, "", "Point reads beyond the cache against fio."},
};

static void
list_benches(FILE *out)
{
    fprintf(out, "usage: cohort bench NAME --device D ...; --help behind NAME tells its options\n");
    for (size_t i = 0; i < CH_ARRAY_LEN(benches); i++)
        fprintf(out, "  %-13s %s\n", benches[i].name, benches[i].brief);
}

int
cmd_bench(struct tool *t, int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        list_benches(stdout);
        return tool_flush();
    }
    if (argc < 2)
        return CH_FAIL(COHORT_EINVAL, "which one? see `cohort bench --help`");
    for (size_t i = 0; i < CH_ARRAY_LEN(benches); i++) {
        if (strcmp(benches[i].name, argv[1]) != 0)
            continue;
        t->bench = &benches[i];
        return benches[i].run(t, argc - 1, argv + 1);
    }
    return CH_FAIL(COHORT_EINVAL, "no bench '%s'; see `cohort bench --help`", argv[1]);
}

/* The load as a run of its own: everything since the database was opened. */
static int
report_load(struct bench *b)
{
    struct bench_result r = {0};
    int rc;

    b->c.workload = "load";
    rc = bench_sample(b->db, b->records, &r.to);
    if (rc != 0)
        return rc;
    r.window = r.to.stats;
    r.run = (struct figures_run){b->records, b->load_seconds, 0};
    r.rss_bytes = bench_rss_bytes();
    figures_compute(&r.window, &r.run, &r.figures);
    r.figures.cpu_us_per_op = r.figures.cpu_percent = FIGURE_ABSENT;
    r.latency = calloc(1, sizeof(*r.latency));
    rc = r.latency == NULL ? CH_FAIL(COHORT_ENOMEM, "histogram") : bench_report(b, &r);
    bench_result_fini(&r);
    return rc;
}

int
bench_ycsb(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench_result r = {0};
    struct bench b = {0};
    int rc;

    bench_config_init(&c, t);
    rc = bench_args(&c, argc, argv, NULL, 0);
    if (rc != 0 || t->help)
        return rc;
    rc = bench_init(&b, &c);
    if (rc == 0)
        rc = bench_plan(&b);
    if (rc == 0)
        rc = bench_prepare(&b);
    if (rc == 0 && c.load_only)
        rc = report_load(&b);
    if (rc == 0 && !c.load_only) {
        rc = bench_run(&b, &r);
        if (rc == 0)
            rc = bench_report(&b, &r);
        bench_result_fini(&r);
    }
    return bench_fini(&b, rc);
}
