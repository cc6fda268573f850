/* tpcc_bench.h - what `cohort bench tpcc` and `cohort bench compare-tpcc` share. */
#ifndef CH_BENCH_TPCC_BENCH_H
#define CH_BENCH_TPCC_BENCH_H

#include "bench/bench.h"
#include "bench/tpcc.h"

struct tpcc_config {
    struct tool *t;
    const char *device;
    uint64_t warehouses, divisor, threads, ops, seed;
    double seconds, drive_writes;
    double cache_part; /* percent of the data; 0 = options.cache_bytes counts */
    enum cohort_isolation isolation;
    bool steady, check, load_only, no_load, check_only;
};
void tpcc_config_init(struct tpcc_config *c, struct tool *t);
/* Parses options, `extra` among them; there is no positional argument. EOPTION. */
CH_NODISCARD int tpcc_args(struct tpcc_config *c, int argc, char **argv, const struct arg *extra,
                           size_t n);

/* One engine's load and run, as both benches report it. Large: allocate it. */
struct tpcc_bench {
    struct tpcc_config c;
    struct tpcc_scale scale;
    struct tpcc_store_config config;
    struct cohort_options options;
    const struct tpcc_store_ops *ops;
    struct tpcc_store *store;
    double load_seconds;
    uint64_t pages_loaded; /* cohort: 4 KiB pages before compression */
    struct tpcc_result result;
    struct tpcc_check checked[2]; /* after load, after the run */
    bool has_check[2];

    struct bench_sample at[3]; /* cohort: ends and middle of the window; others: ns only */
    uint64_t new_orders[3];
    unsigned phase; /* 0 before the window, 1 in its first half, 2 in its second */
    struct bench_result r;
};
/* Opens, loads when asked to, checks when asked to, and opens again with the cache that a percentage asks for. */
CH_NODISCARD int tpcc_prepare(struct tpcc_bench *b);
CH_NODISCARD int tpcc_measure(struct tpcc_bench *b); /* runs, then checks when asked to */
/* ECORRUPT when a check has found a condition violated. */
CH_NODISCARD int tpcc_verdict(const struct tpcc_bench *b);
/* Closes; `rc` is the earlier error, which wins. */
CH_NODISCARD int tpcc_finish(struct tpcc_bench *b, int rc);
double tpcc_tpmc(const struct tpcc_bench *b);
CH_NODISCARD int tpcc_report(const struct tpcc_bench *b);
CH_NODISCARD int tpcc_report_json(const struct tpcc_bench *b, struct json_object *o);
/* Media bytes a new order of the window; FIGURE_UNKNOWN where the drive does not tell. */
double tpcc_flash_per_new_order(const struct tpcc_bench *b);
/* Latencies of one kind as field `name` of `o`. */
CH_NODISCARD int tpcc_report_latency(struct json_object *o, const char *name,
                                     const struct ch_hist *h);

#endif
