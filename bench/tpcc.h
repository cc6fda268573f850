/* tpcc.h - TPC-C: load, run and check, over any store (tpcc_store.h); and what the benches share. */
#ifndef CH_BENCH_TPCC_H
#define CH_BENCH_TPCC_H

#include "base/hist.h"
#include "bench/tpcc_txn.h"

/* ---- tpcc_load.c ---- */

struct tpcc_load {
    struct tpcc_store *store;
    const struct tpcc_scale *scale; /* c_load included */
    uint64_t threads, seed;
    bool progress; /* a line a second on stderr */
};
/* Fills an empty store as clause 4.3.3 says, by parts of warehouses in parallel, and ends with a
 * checkpoint. The same seed gives the same rows, whatever the threads. */
CH_NODISCARD int tpcc_load(const struct tpcc_load *l);
/* The scale of a finished load. ENODB when there is none. */
CH_NODISCARD int tpcc_load_scale(struct tpcc_store *store, struct tpcc_scale *scale);

/* ---- tpcc_run.c ---- */

struct tpcc_run {
    struct tpcc_store *store;
    const struct tpcc_scale *scale;
    uint64_t threads, seed;
    uint64_t ops;   /* end after so many transactions, or 0 */
    double seconds; /* ... so many seconds, or 0 */
    bool steady, progress;
    /* Called about every 50 ms and at the end with what is done so far, or NULL. Says whether
     * latencies count from now on, and whether to stop. */
    int (*watch)(void *arg, uint64_t done, uint64_t new_orders, bool *measure, bool *stop);
    void *arg;
};
struct tpcc_result {
    struct tpcc_count counts[TPCC_KINDS]; /* of the whole run */
    struct ch_hist latency[TPCC_KINDS];   /* ns, attempts included, of what was measured */
    uint64_t skipped, delivered, purged;
    double seconds; /* of the whole run */
};
CH_NODISCARD int tpcc_run(const struct tpcc_run *r, struct tpcc_result *out);
uint64_t tpcc_result_done(const struct tpcc_result *r); /* transactions, rollbacks included */

/* ---- tpcc_check.c ---- */

enum {
    TPCC_CONDITIONS = 12, /* clause 3.3.2; numbered from 1 */
    TPCC_CHECK_INDEX = 0, /* index entries = rows: a condition of our own */
    TPCC_CHECK_TEXT = 160
};
struct tpcc_check {
    uint64_t violations[TPCC_CONDITIONS + 1];
    char first[TPCC_CONDITIONS + 1][TPCC_CHECK_TEXT]; /* the first violation in words */
    uint64_t orders, order_lines, new_orders, history, customers;
};
/* Checks all conditions in one snapshot, which takes 8 bytes of memory for each customer. 0 also when
 * there are violations: see tpcc_check_ok(). */
CH_NODISCARD int tpcc_check(struct tpcc_store *store, const struct tpcc_scale *scale,
                            struct tpcc_check *out);
bool tpcc_check_ok(const struct tpcc_check *c);
/* ECORRUPT with the first violation's text, or 0. */
CH_NODISCARD int tpcc_check_status(const struct tpcc_check *c);

#endif
