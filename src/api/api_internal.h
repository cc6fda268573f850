/* api_internal.h - the handles, and what the files of api/ share. Tests and tools that bring their own device use
 * api_open_dev() and api_kill().
 *
 * Invariants:
 *   H1  a struct cohort_txn with `t` NULL has ended: it lies in the pool of its database or is about to. So a call on a handle
 *       that has ended is mostly told (ETXN) although it need not be.
 *   H2  cursors and writers of a transaction are in its lists until they are closed or it ends, whichever is first; then their
 *       `t` is NULL, and what they had below is gone.
 *   H3  whatever keeps something of the database in use is counted: transactions by src/txn, cursors without one by the
 *       transaction that they own, trees and bulk loads in `handles`. cohort_close() refuses while there are any.
 */
#ifndef CH_API_API_INTERNAL_H
#define CH_API_API_INTERNAL_H

#include "boot/boot.h"
#include "cat/cat.h"
#include "reg/reg.h"
#include "txn/txn.h"

enum {
    API_POOL = 64, /* power of two */
    API_RETRIES_MIN = 8,
    API_LOCK_TIMEOUT_MAX_MS = 86400000,
    API_CODEC_LEVEL_MAX = 19,
};

/* A thread's own, mostly, and so on a cache line of its own. */
struct api_place {
    /* Transactions' memory for the next begin; exchanged in release/acquire pairs (txn.c). */
    _Alignas(64) _Atomic(struct cohort_txn *) t;
    _Atomic uint64_t commits, payload; /* statistics of those who count here; relaxed */
};

struct cohort_db {
    struct db *db;
    struct reg_tree *main;
    _Atomic uint32_t handles; /* trees and bulk loads open; relaxed, close() is alone */
    struct api_place pool[API_POOL];
};

struct cohort_txn {
    struct txn *t; /* NULL: ended (H1) */
    cohort_db *db;
    cohort_cursor *cursors;
    cohort_writer *writers;
    uint64_t payload; /* keys and values put */
    bool wrote;
};

struct cohort_tree {
    cohort_db *db;
    struct reg_tree *tree;
};

/* A large value being written; value.c. */
struct cohort_writer {
    cohort_txn *t;
    struct cat_writer *w;
    uint64_t bytes;
    struct cohort_writer *next, *prev;
};

/* As cohort_open() on a device of the caller's, which is taken. */
CH_NODISCARD int api_open_dev(struct dev *dev, const struct cohort_options *o, bool create,
                              cohort_db **out);
/* Drops everything without a byte written: a crash, for tests. Transactions, cursors and so on that are open are left where
 * they are: what they stand on is gone, so api_forget() each before, which frees their memory and does nothing else. */
void api_kill(cohort_db *db);
/* A transaction with its cursors and writers goes as in a crash: nothing is undone on the device, for api_kill() follows. */
void api_forget(cohort_txn *t);

/* ---- arguments; `what` is the function's name ---- */

CH_NODISCARD int api_check_key(const char *what, const void *key, size_t key_bytes);
CH_NODISCARD int api_check_entry(const char *what, const void *key, size_t key_bytes,
                                 const void *value, size_t value_bytes);
/* The transaction is open and the tree (NULL: the main tree) is of its database and not dropped: *out. */
CH_NODISCARD int api_check_txn(const char *what, const cohort_txn *t, const cohort_tree *tree,
                               struct reg_tree **out);
/* The same without a transaction. */
CH_NODISCARD int api_check_tree(const char *what, const cohort_db *db, const cohort_tree *tree,
                                struct reg_tree **out);
/* Some of one range: its ends' slices are sane. */
CH_NODISCARD int api_check_range(const char *what, const struct cohort_slice *from,
                                 const struct cohort_slice *to);

/* ---- transactions (txn.c) ---- */

void api_pool_free(cohort_db *db);
/* Statistics. */
void api_count(cohort_db *db, uint64_t commits, uint64_t payload);
/* A read-only one, or one for an operation of its own. */
CH_NODISCARD int api_begin(cohort_db *db, bool read_only, cohort_txn **t);
/* Ends it, the earlier error `rc` being what counts. */
CH_NODISCARD int api_end(cohort_txn *t, int rc);
/* One write of a transaction, and its share of the statistics. */
CH_NODISCARD int api_write(cohort_txn *t, struct reg_tree *tree, enum bt_write_kind kind,
                           struct bt_slice key, struct bt_slice value);
/* Of an own operation that consists of several writes: after `rc`, should it begin anew? Yes, for a CONFLICT with somebody
 * who has committed: an operation of its own has no snapshot to keep. Waits a moment when it was not the first. */
struct api_retry {
    uint64_t until; /* 0: not known yet */
    unsigned times;
};
bool api_again(struct api_retry *r, cohort_db *db, int rc);

/* ---- cursors and writers that end with their transaction ---- */

void api_end_cursors(cohort_txn *t);
void api_end_writers(cohort_txn *t);

static inline struct bt_slice
api_slice(const struct cohort_slice *s)
{
    return (struct bt_slice){s->data, s->bytes};
}

#endif
