/* txn.h - cohort bench txn: what transactions, scans, many-key reads, durable commits and bulk loads cost, as ratios measured in one
 * process.
 *
 * Each part has a database of its own, made and removed by it. A ratio's two sides alternate in rounds, so that what disturbs the
 * machine disturbs both; medians of the rounds are reported, and the ratio is that of the medians.
 */
#ifndef CH_BENCH_TXN_H
#define CH_BENCH_TXN_H

#include "bench/bench.h"

enum {
    TXN_FIGURES_MAX = 48,
    TXN_ROUNDS_MAX = 101
};

enum txn_goal {
    TXN_NO_GOAL,
    TXN_AT_LEAST,
    TXN_AT_MOST
};

struct txn_figure {
    const char *name, *unit;
    double value, goal;
    enum txn_goal kind;
};

struct txn_bench {
    struct bench_config c;
    uint64_t rounds, durable_ops;
    const char *only; /* one part's name; NULL: all */
    char device[4096];
    struct txn_figure figures[TXN_FIGURES_MAX];
    unsigned count;
};

struct txn_part {
    const char *name;
    int (*run)(struct txn_bench *x);
    const char *brief;
};

void txn_figure(struct txn_bench *x, const char *name, const char *unit, double value);
void txn_goal(struct txn_bench *x, const char *name, const char *unit, double value,
              enum txn_goal kind, double goal);

/* A database of part `name` with c.records records in *b, open with `durability`; `cache_part` percent of the data is the cache.
 * `c` is x->c or a changed copy of it. txn_finish() closes and removes it, the earlier error winning. */
CH_NODISCARD int txn_start(struct txn_bench *x, const struct bench_config *c, const char *name,
                           const char *durability, double cache_part, bool load, struct bench *b);
CH_NODISCARD int txn_finish(struct txn_bench *x, struct bench *b, int rc);

/* One side of a ratio: for x->c.seconds of one thread it repeats `step`, a block of operations; *per_s operations a second. */
CH_NODISCARD int txn_time(const struct txn_bench *x, int (*step)(void *arg, uint64_t *ops),
                          void *arg, double *per_s);

int txn_part_read(struct txn_bench *x);
int txn_part_write(struct txn_bench *x);
int txn_part_reader(struct txn_bench *x);
int txn_part_scan(struct txn_bench *x);
int txn_part_many(struct txn_bench *x);
int txn_part_durable(struct txn_bench *x);
int txn_part_bulk(struct txn_bench *x);

#endif
