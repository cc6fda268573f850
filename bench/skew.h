/* skew.h - which record an operation is about: the distributions of the benches. Pure.
 *
 *     zipf       rank r of n with probability proportional to 1 / (r + 1)^theta; 0 = uniform
 *     hotcold    `hot_ops` percent of the operations go to the first `hot_part` percent of the records
 *     rangehot   30 ranges of keys whose heat follows a two-term exponential, in a random order over
 *                the key space, and within a range a power law over scattered records: the key
 *                distribution of RocksDB's mixgraph, fitted to a production cluster (Cao et al.,
 *                "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads", FAST 2020)
 *     shift      zipf whose ranks wander: after every `turn` operations a record has had each rank once
 *
 * With `group` > 1 the distribution is over groups of so many neighbouring records, and the record is
 * drawn evenly from the group: skew of pages rather than of records.
 */
#ifndef CH_BENCH_SKEW_H
#define CH_BENCH_SKEW_H

#include "bench/zipf.h"

enum skew_kind {
    SKEW_ZIPF,
    SKEW_HOTCOLD,
    SKEW_RANGEHOT,
    SKEW_SHIFT,
    SKEW_KINDS
};

enum {
    SKEW_RANGES = 30
};

struct skew_config {
    enum skew_kind kind;
    uint64_t records; /* > 0 */
    uint64_t group;   /* >= 1 */
    double theta;
    double hot_part, hot_ops; /* percent; hotcold */
    uint64_t turn;            /* operations; shift: 0 = 20 for each record */
    uint64_t seed;            /* order of the ranges */
};

struct skew { /* read-only after skew_init(): threads share it */
    struct skew_config c;
    uint64_t units; /* groups */
    struct zipf zipf;
    uint64_t hot_units;
    double range_below[SKEW_RANGES]; /* cumulative probability */
    uint64_t range_first[SKEW_RANGES + 1];
};

/* EOPTION for a theta or percentage out of range. */
CH_NODISCARD int skew_init(struct skew *s, const struct skew_config *c);
/* `clock`: operations done so far, for `shift`. 0 .. records-1. */
uint64_t skew_draw(const struct skew *s, struct ch_prng *rng, uint64_t clock);
const char *skew_name(enum skew_kind kind);
/* EOPTION when there is none of that name. */
CH_NODISCARD int skew_parse(const char *name, enum skew_kind *out);

#endif
