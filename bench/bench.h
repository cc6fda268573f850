/* bench.h - what the benches share: one configuration, one way to plan, load, run and report.
 *
 *     plan    records from --records or --fill, cache from --cache; both may need to know how many
 *             records a page holds, which is measured on a small throw-away database
 *     load    records in key order, durability none where the database can be opened again
 *     run     threads, until operations, seconds or drive writes are reached
 *     report  a table for people, or one JSON object (DESIGN section 8)
 */
#ifndef CH_BENCH_BENCH_H
#define CH_BENCH_BENCH_H

#include "base/base.h"
#include "base/hist.h"
#include "bench/figures.h"
#include "bench/skew.h"
#include "tools/tool.h"

enum {
    BENCH_THREADS_MAX = 256,
    BENCH_CLIENTS_MAX = 1024,
    BENCH_LEAF_FILL_MIN = 50
};

struct bench_config {
    struct tool *t;
    const char *device;
    const char
        *workload; /* "a" .. "f", "pages", "rangehot", "shift", "hotcold"; also "load", "update" */
    uint64_t records;
    double fill;       /* percent of the device, before compression; 0 = records counts */
    double cache_part; /* percent of the data pages; 0 = options.cache_bytes counts */
    uint64_t value_bytes, threads, ops, seed, scan_max;
    double seconds, drive_writes, theta, leaf_fill;
    double compressibility,
        compressibility_sd; /* random part of a value: mean, deviation by page */
    enum skew_kind skew;
    double hot_part, hot_ops, updates; /* percent; updates: 0 = as the workload has them */
    uint64_t shift_turn, samples;
    uint64_t clients; /* virtual ones on a drive with virtual time; 0 = threads in real time */
    double cpu_us;    /* ... and what an operation of theirs takes besides the drive */
    uint64_t records_default;
    double fill_default, drive_writes_default; /* where the command line names no other */
    bool unscrambled, load_only, no_load;
};

/* A benchmark's database and what was learned about it. */
struct bench {
    struct bench_config c;
    struct cohort_options options; /* what it is opened with, planned cache included */
    cohort_db *db;
    bool made; /* the database exists by our hand: later opens do not create it */
    uint64_t records;
    double records_per_page; /* 0 = not measured */
    uint64_t pages_planned;  /* 0 = not estimated */
    uint64_t pages_loaded;   /* 4 KiB pages of the data before compression */
    double leaf_fill;        /* measured; 0 = not */
    uint64_t leaf_pages;     /* after the load */
    uint64_t group;          /* workload pages: records of a leaf; else 1 */
    double load_seconds;
};

struct bench_sample { /* all counters at one moment */
    struct cohort_stats stats;
    uint64_t ops, ns, cpu_ns;
};

/* --samples N: counters at N + 1 moments of the run, evenly spread over what ends it. */
struct bench_point {
    struct bench_sample at;
    char *zones; /* cohort_zone_map(), owned; NULL: none */
    size_t zone_count;
};
struct bench_points {
    struct bench_point *list; /* owned */
    size_t count, most;
};

enum bench_steady {
    BENCH_STEADY_ABSENT,
    BENCH_STEADY_NO,
    BENCH_STEADY_YES
};

struct bench_result {
    struct bench_sample from, to; /* of the reported window */
    struct cohort_stats window;   /* to - from */
    struct figures_run run;
    struct figures figures;
    struct ch_hist *latency;    /* owned; bench_result_fini() */
    struct bench_points points; /* owned */
    enum bench_steady steady;
    uint64_t rss_bytes;
    bool accounted; /* the drive has a counter of its own */
    int64_t account_difference;
};

/* ---- config.c ---- */
void bench_config_init(struct bench_config *c, struct tool *t);
/* Parses the options of a bench, `extra` among them; as tool_args(), but there is no positional
 * argument. Checks ranges: EOPTION. */
CH_NODISCARD int bench_args(struct bench_config *c, int argc, char **argv, const struct arg *extra,
                            size_t n);

/* ---- plan.c ---- */
CH_NODISCARD int bench_init(struct bench *b, const struct bench_config *c);
/* Closes the database; `rc` is the earlier error, which wins. */
CH_NODISCARD int bench_fini(struct bench *b, int rc);
/* Opens with the given durability (an option value). */
CH_NODISCARD int bench_open(struct bench *b, uint64_t durability);
CH_NODISCARD int bench_close(struct bench *b);
/* Fills records, cache and pages_planned. The database is not open. */
CH_NODISCARD int bench_plan(struct bench *b);

/* Random part of the value of a record whose key is `number`, of n records: records that are neighbours by key
 * share it, so that pages differ in how well they compress. */
double bench_random_part(const struct bench_config *c, uint64_t n, uint64_t number);
/* What an option of the same name was not given. */
#define BENCH_UNSET      UINT64_MAX
#define BENCH_UNSET_REAL (-1.0)

/* ---- load.c ---- */
/* Puts records 0 .. n-1 in key order so that leaves end up about `leaf_fill` percent full. */
CH_NODISCARD int bench_load_records(const struct bench_config *c, cohort_db *db, uint64_t n);
/* Opens, loads if asked to, checkpoints, measures the leaf fill, opens again for the run. */
CH_NODISCARD int bench_prepare(struct bench *b);

/* ---- run.c ---- */
CH_NODISCARD int bench_run(struct bench *b, struct bench_result *r);
void bench_result_fini(struct bench_result *r);
CH_NODISCARD int bench_sample(cohort_db *db, uint64_t ops, struct bench_sample *out);
uint64_t bench_rss_bytes(void);
/* Waits until the database is idle, then compares bytes by cause with the drive's own counter. */
CH_NODISCARD int bench_account(cohort_db *db, bool *known, int64_t *difference);

/* ---- points.c ---- */
CH_NODISCARD int points_init(struct bench_points *p, uint64_t samples);
void points_fini(struct bench_points *p);
/* Takes `now` as the next point when `part` (0 .. 1) of the run has come that far. */
CH_NODISCARD int points_take(struct bench_points *p, cohort_db *db, double part,
                             const struct bench_sample *now);
/* Adds "samples": each interval's figures, and the zones at its end. */
CH_NODISCARD int points_json(const struct bench_points *p, uint64_t threads, struct json_object *o);

/* ---- report.c ---- */
CH_NODISCARD int bench_report_json(const struct bench *b, const struct bench_result *r,
                                   struct json_object **out);
CH_NODISCARD int bench_report(const struct bench *b, const struct bench_result *r);
/* Fields of a database alone, for `cohort stat` too. */
CH_NODISCARD int report_stats_json(const struct cohort_stats *s, const struct figures *f,
                                   struct json_object *o);
void report_stats_text(const struct cohort_stats *s, const struct figures *f, FILE *out);
const char *const *report_cause_names(void); /* COHORT_CAUSES of them */
CH_NODISCARD int report_u64(struct json_object *o, const char *name, uint64_t v);
CH_NODISCARD int report_real(struct json_object *o, const char *name, double v);
CH_NODISCARD int report_text(struct json_object *o, const char *name, const char *v);
CH_NODISCARD int report_bool(struct json_object *o, const char *name, bool v);

/* ---- the benches ---- */
int cmd_bench(struct tool *t, int argc, char **argv);
int bench_ycsb(struct tool *t, int argc, char **argv);
int bench_commit(struct tool *t, int argc, char **argv);
int bench_memory(struct tool *t, int argc, char **argv);
int bench_space(struct tool *t, int argc, char **argv);
int bench_table1(struct tool *t, int argc, char **argv);
int bench_ablation(struct tool *t, int argc, char **argv);
int bench_sweep(struct tool *t, int argc, char **argv);
int bench_peers(struct tool *t, int argc, char **argv);
int bench_txn(struct tool *t, int argc, char **argv);
int bench_ratios(struct tool *t, int argc, char **argv);
int bench_demo(struct tool *t, int argc, char **argv);
int bench_compare_lmdb(struct tool *t, int argc, char **argv);
int bench_compare_fio(struct tool *t, int argc, char **argv);
int bench_tpcc(struct tool *t, int argc, char **argv);
int bench_compare_tpcc(struct tool *t, int argc, char **argv);

/* Point reads at `theta` from all threads for `seconds`; r as in bench_run(). */
CH_NODISCARD int bench_run_reads(struct bench *b, double seconds, struct bench_result *r);
/* Median of v[0 .. n-1], which is sorted by it. */
double bench_median(double *v, size_t n);

#endif
