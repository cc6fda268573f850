/* tpcc_store.h - what TPC-C needs of a storage engine, so that the same transactions run on several.
 *
 * A store is opened once; each thread has a session of its own with at most one transaction at a time
 * and any number of cursors in it. Results are 0 or COHORT_E*; an engine's own errors become
 * COHORT_CONFLICT where the transaction must be run again, else COHORT_EIO or COHORT_EFULL with its
 * text. Slices handed out hold until the next call on the session.
 */
#ifndef CH_BENCH_TPCC_STORE_H
#define CH_BENCH_TPCC_STORE_H

#include "bench/tpcc_schema.h"

struct tpcc_store_config {
    const char *where;                    /* a directory; cohort: any device */
    const struct cohort_options *options; /* cohort's own; `create` among them */
    uint64_t cache_bytes;
    uint64_t bytes_max;  /* about the most that the data will take (LMDB's map) */
    uint64_t threads;    /* most sessions */
    uint64_t durability; /* COHORT_DURABILITY_*, of commits after the load */
    enum cohort_isolation isolation;
    bool create;
};

struct tpcc_store { /* first member of an engine's own */
    const struct tpcc_store_ops *ops;
    _Atomic bool loading; /* whoever loads -> sessions: commits need not be durable */
};
struct tpcc_session { /* first member of an engine's own */
    struct tpcc_store *store;
};
struct tpcc_cursor { /* first member of an engine's own */
    const struct tpcc_store_ops *ops;
};

/* For each key of a tpcc_get_many() in order; `value` NULL = not found. Nonzero ends it. */
typedef int tpcc_row_fn(void *arg, size_t i, const struct cohort_slice *value);

struct tpcc_store_ops {
    const char *name;
    const char *note; /* what a comparison must say about its cache and durability */
    int (*open)(const struct tpcc_store_config *c, struct tpcc_store **out);
    int (*close)(struct tpcc_store *s);
    int (*checkpoint)(struct tpcc_store *s); /* all committed data durable in its final place */
    void (*loading)(struct tpcc_store *s, bool on); /* told of a change of s->loading; or NULL */
    int (*session_open)(struct tpcc_store *s, struct tpcc_session **out);
    void (*session_close)(struct tpcc_session *s); /* NULL is legal */

    int (*begin)(struct tpcc_session *s, bool read_only);
    int (*commit)(struct tpcc_session *s); /* ends the transaction whatever the result */
    int (*abort)(struct tpcc_session *s);

    /* Within a transaction. NOTFOUND, EXISTS (insert). */
    int (*get)(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key, bool lock,
               struct cohort_slice *value);
    int (*get_many)(struct tpcc_session *s, enum tpcc_table t, size_t n,
                    const struct tpcc_key *keys, tpcc_row_fn *row, void *arg);
    int (*put)(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
               const struct tpcc_row *row);
    int (*insert)(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
                  const struct tpcc_row *row);
    int (*del)(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key);

    /* Cursors are closed before their transaction ends. seek: first key >= key; seek_before: last
     * key <= key; NOTFOUND when there is none. */
    int (*cursor_open)(struct tpcc_session *s, enum tpcc_table t, struct tpcc_cursor **c);
    void (*cursor_close)(struct tpcc_cursor *c); /* NULL is legal */
    int (*seek)(struct tpcc_cursor *c, const struct tpcc_key *key);
    int (*seek_before)(struct tpcc_cursor *c, const struct tpcc_key *key);
    int (*next)(struct tpcc_cursor *c);
    int (*entry)(struct tpcc_cursor *c, struct cohort_slice *key, struct cohort_slice *value);
};

enum {
    TPCC_MANY_MAX = 64 /* most keys of one get_many() */
};

extern const struct tpcc_store_ops tpcc_cohort_ops;
/* The handle behind a store of tpcc_cohort_ops. */
cohort_db *tpcc_cohort_db(struct tpcc_store *s);
/* NULL in a build without the library. */
const struct tpcc_store_ops *tpcc_lmdb_ops(void);
const struct tpcc_store_ops *tpcc_wiredtiger_ops(void);
/* By name; EUNSUPPORTED for what is not built in, EOPTION for what does not exist. */
CH_NODISCARD int tpcc_store_find(const char *name, const struct tpcc_store_ops **ops);

/* Begins or ends a load: commits in between need not be durable. No transaction is open. */
void tpcc_store_loading(struct tpcc_store *s, bool on);

/* Whether a transaction that got `rc` is to be aborted and run again. */
static inline bool
tpcc_is_retry(int rc)
{
    return rc != COHORT_EXISTS && cohort_class_of(rc) == COHORT_CLASS_CONFLICT;
}

CH_NODISCARD static inline int
tpcc_get(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
         struct cohort_slice *value)
{
    return s->store->ops->get(s, t, key, false, value);
}

/* Locks the record against other writers until the end. */
CH_NODISCARD static inline int
tpcc_get_lock(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
              struct cohort_slice *value)
{
    return s->store->ops->get(s, t, key, true, value);
}

CH_NODISCARD static inline int
tpcc_get_many(struct tpcc_session *s, enum tpcc_table t, size_t n, const struct tpcc_key *keys,
              tpcc_row_fn *row, void *arg)
{
    CH_ASSERT(n <= TPCC_MANY_MAX);
    return s->store->ops->get_many(s, t, n, keys, row, arg);
}

CH_NODISCARD static inline int
tpcc_put(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
         const struct tpcc_row *row)
{
    return s->store->ops->put(s, t, key, row);
}

CH_NODISCARD static inline int
tpcc_insert(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key,
            const struct tpcc_row *row)
{
    return s->store->ops->insert(s, t, key, row);
}

CH_NODISCARD static inline int
tpcc_del(struct tpcc_session *s, enum tpcc_table t, const struct tpcc_key *key)
{
    return s->store->ops->del(s, t, key);
}

#endif
