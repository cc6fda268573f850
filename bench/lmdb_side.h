/* lmdb_side.h - LMDB with the same entries as a bench's database, in a directory below it. */
#ifndef CH_BENCH_LMDB_SIDE_H
#define CH_BENCH_LMDB_SIDE_H

#ifdef COHORT_BENCH_LMDB

#include <lmdb.h>

#include "bench/bench.h"

struct lmdb_side {
    MDB_env *env; /* NULL: not open */
    MDB_dbi dbi;
    char dir[4096 + 16];
    bool made;
};

/* The error of LMDB call `what`, as one of ours. */
CH_NODISCARD int lmdb_side_fail(const struct lmdb_side *m, const char *what, int rc);
CH_NODISCARD int lmdb_side_open(struct lmdb_side *m, const struct bench *b);
/* Copies every entry, in key order. */
CH_NODISCARD int lmdb_side_fill(struct lmdb_side *m, cohort_db *db);
/* Closes and removes it; one that was never opened is fine. */
void lmdb_side_close(struct lmdb_side *m);

#endif
#endif
