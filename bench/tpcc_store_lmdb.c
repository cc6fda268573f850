/* tpcc_store_lmdb.c - TPC-C on LMDB.
 *
 * A named database a table. LMDB has one writer at a time, so its transactions never conflict; readers
 * do not wait. Its cache is the page cache of the operating system: `cache_bytes` does not bound it.
 * Durability sync is an fdatasync() at each commit (LMDB's default); async and none are MDB_NOSYNC.
 */
#include "bench/tpcc_store.h"

#ifdef COHORT_BENCH_LMDB

#include <lmdb.h>
#include <stdatomic.h>
#include <stdlib.h>

struct lmdb_store {
    struct tpcc_store base;
    MDB_env *env;
    MDB_dbi dbi[TPCC_TABLES];
    bool durable;
    char where[256]; /* for messages */
};

struct lmdb_session {
    struct tpcc_session base;
    MDB_txn *txn;
};

struct lmdb_cursor {
    struct tpcc_cursor base;
    MDB_cursor *c;
    MDB_val key, value;
};

static struct lmdb_store *
store_of(struct tpcc_session *s)
{
    return ch_container_of(s->store, struct lmdb_store, base);
}

static struct lmdb_session *
session_of(struct tpcc_session *s)
{
    return ch_container_of(s, struct lmdb_session, base);
}

static struct lmdb_cursor *
cursor_of(struct tpcc_cursor *c)
{
    return ch_container_of(c, struct lmdb_cursor, base);
}

static int
lmdb_status(const char *what, int rc)
{
    switch (rc) {
    case 0:
        return 0;
    case MDB_NOTFOUND:
        return COHORT_NOTFOUND; /* ordinary: no record of it */
    case MDB_KEYEXIST:
        return CH_FAIL(COHORT_EXISTS, "LMDB %s: %s", what, mdb_strerror(rc));
    case MDB_MAP_FULL:
        return CH_FAIL(COHORT_EFULL, "LMDB %s: %s", what, mdb_strerror(rc));
    default:
        return CH_FAIL(COHORT_EIO, "LMDB %s: %s", what, mdb_strerror(rc));
    }
}

static MDB_val
val_of(const void *data, size_t bytes)
{
    MDB_val v = {.mv_size = bytes};

    memcpy(&v.mv_data, &data, sizeof(data)); /* LMDB takes no pointers to const */
    return v;
}

static int
lmdb_tables(struct lmdb_store *s, bool create)
{
    MDB_txn *txn = NULL;
    int rc;

    rc = mdb_txn_begin(s->env, NULL, 0, &txn);
    for (int i = 0; i < TPCC_TABLES && rc == 0; i++)
        rc = mdb_dbi_open(txn, tpcc_table_names[i], create ? MDB_CREATE : 0, &s->dbi[i]);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static int
lmdb_close(struct tpcc_store *base)
{
    struct lmdb_store *s = ch_container_of(base, struct lmdb_store, base);
    int rc = s->durable ? 0 : mdb_env_sync(s->env, 1);

    mdb_env_close(s->env);
    free(s);
    return lmdb_status("close", rc);
}

static int
lmdb_open(const struct tpcc_store_config *c, struct tpcc_store **out)
{
    struct lmdb_store *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "LMDB");
    s->base.ops = tpcc_lmdb_ops();
    atomic_init(&s->base.loading, false);
    s->durable = c->durability == COHORT_DURABILITY_SYNC;
    snprintf(s->where, sizeof(s->where), "%s", c->where);
    rc = mdb_env_create(&s->env);
    if (rc == 0)
        rc = mdb_env_set_mapsize(s->env, ch_round_up(c->bytes_max, UINT64_C(1) << 20));
    if (rc == 0)
        rc = mdb_env_set_maxdbs(s->env, TPCC_TABLES);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(s->env, (unsigned)c->threads + 8);
    if (rc == 0)
        rc = mdb_env_open(s->env, c->where,
                          MDB_NOTLS | MDB_NORDAHEAD | (s->durable ? 0 : MDB_NOSYNC), 0666);
    if (rc == 0)
        rc = lmdb_tables(s, c->create);
    if (rc != 0) {
        rc = lmdb_status(s->where, rc);
        mdb_env_close(s->env);
        free(s);
        return rc == COHORT_NOTFOUND ? CH_FAIL(COHORT_ENODB, "LMDB: no tables of TPC-C") : rc;
    }
    *out = &s->base;
    return 0;
}

static int
lmdb_checkpoint(struct tpcc_store *base)
{
    struct lmdb_store *s = ch_container_of(base, struct lmdb_store, base);

    return lmdb_status("sync", mdb_env_sync(s->env, 1));
}

static void
lmdb_loading(struct tpcc_store *base, bool on)
{
    struct lmdb_store *s = ch_container_of(base, struct lmdb_store, base);
    int rc = s->durable ? mdb_env_set_flags(s->env, MDB_NOSYNC, on) : 0;

    CH_ASSERT(rc == 0); /* it refuses wrong flags only */
}

static int
lmdb_session_open(struct tpcc_store *base, struct tpcc_session **out)
{
    struct lmdb_session *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "LMDB session");
    s->base.store = base;
    *out = &s->base;
    return 0;
}

static void
lmdb_session_close(struct tpcc_session *base)
{
    if (base != NULL)
        free(session_of(base));
}

static int
lmdb_begin(struct tpcc_session *base, bool read_only)
{
    struct lmdb_session *s = session_of(base);

    CH_ASSERT(s->txn == NULL);
    return lmdb_status(
        "begin", mdb_txn_begin(store_of(base)->env, NULL, read_only ? MDB_RDONLY : 0, &s->txn));
}

static int
lmdb_commit(struct tpcc_session *base)
{
    struct lmdb_session *s = session_of(base);
    MDB_txn *txn = s->txn;

    s->txn = NULL;
    return lmdb_status("commit", mdb_txn_commit(txn));
}

static int
lmdb_abort(struct tpcc_session *base)
{
    struct lmdb_session *s = session_of(base);

    mdb_txn_abort(s->txn);
    s->txn = NULL;
    return 0;
}

static int
lmdb_get(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key, bool lock,
         struct cohort_slice *value)
{
    MDB_val k = val_of(key->data, key->bytes), v;
    int rc = mdb_get(session_of(base)->txn, store_of(base)->dbi[t], &k, &v);

    (void)lock; /* the only writer */
    if (rc == 0)
        *value = (struct cohort_slice){v.mv_data, v.mv_size};
    return lmdb_status("get", rc);
}

static int
lmdb_get_many(struct tpcc_session *base, enum tpcc_table t, size_t n, const struct tpcc_key *keys,
              tpcc_row_fn *row, void *arg)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct cohort_slice v;

        rc = lmdb_get(base, t, &keys[i], false, &v);
        if (rc == 0 || rc == COHORT_NOTFOUND)
            rc = row(arg, i, rc == 0 ? &v : NULL);
    }
    return rc;
}

static int
lmdb_write(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
           const struct tpcc_row *row, unsigned flags)
{
    MDB_val k = val_of(key->data, key->bytes), v = val_of(row->data, row->bytes);

    return lmdb_status("put",
                       mdb_put(session_of(base)->txn, store_of(base)->dbi[t], &k, &v, flags));
}

static int
lmdb_put(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
         const struct tpcc_row *row)
{
    return lmdb_write(base, t, key, row, 0);
}

static int
lmdb_insert(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
            const struct tpcc_row *row)
{
    return lmdb_write(base, t, key, row, MDB_NOOVERWRITE);
}

static int
lmdb_del(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key)
{
    MDB_val k = val_of(key->data, key->bytes);

    return lmdb_status("del", mdb_del(session_of(base)->txn, store_of(base)->dbi[t], &k, NULL));
}

static int
lmdb_cursor_open(struct tpcc_session *base, enum tpcc_table t, struct tpcc_cursor **out)
{
    struct lmdb_cursor *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "LMDB cursor");
    c->base.ops = base->store->ops;
    rc = mdb_cursor_open(session_of(base)->txn, store_of(base)->dbi[t], &c->c);
    if (rc != 0) {
        free(c);
        return lmdb_status("cursor", rc);
    }
    *out = &c->base;
    return 0;
}

static void
lmdb_cursor_close(struct tpcc_cursor *base)
{
    if (base == NULL)
        return;
    mdb_cursor_close(cursor_of(base)->c);
    free(cursor_of(base));
}

static int
cursor_get(struct lmdb_cursor *c, MDB_cursor_op op)
{
    return mdb_cursor_get(c->c, &c->key, &c->value, op);
}

static int
lmdb_seek(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    struct lmdb_cursor *c = cursor_of(base);

    c->key = val_of(key->data, key->bytes);
    return lmdb_status("seek", cursor_get(c, MDB_SET_RANGE));
}

static int
lmdb_seek_before(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    struct lmdb_cursor *c = cursor_of(base);
    int rc;

    c->key = val_of(key->data, key->bytes);
    rc = cursor_get(c, MDB_SET_RANGE);
    if (rc == MDB_NOTFOUND)
        return lmdb_status("seek", cursor_get(c, MDB_LAST));
    if (rc == 0 &&
        (c->key.mv_size != key->bytes || memcmp(c->key.mv_data, key->data, key->bytes) != 0))
        rc = cursor_get(c, MDB_PREV);
    return lmdb_status("seek", rc);
}

static int
lmdb_next(struct tpcc_cursor *base)
{
    return lmdb_status("next", cursor_get(cursor_of(base), MDB_NEXT));
}

static int
lmdb_entry(struct tpcc_cursor *base, struct cohort_slice *key, struct cohort_slice *value)
{
    struct lmdb_cursor *c = cursor_of(base);

    *key = (struct cohort_slice){c->key.mv_data, c->key.mv_size};
    if (value != NULL)
        *value = (struct cohort_slice){c->value.mv_data, c->value.mv_size};
    return 0;
}

const struct tpcc_store_ops *
tpcc_lmdb_ops(void)
{
    static const struct tpcc_store_ops ops = {
        .name = "lmdb",
        .note = "its cache is the page cache, which no setting bounds",
        .open = lmdb_open,
        .close = lmdb_close,
        .checkpoint = lmdb_checkpoint,
        .loading = lmdb_loading,
        .session_open = lmdb_session_open,
        .session_close = lmdb_session_close,
        .begin = lmdb_begin,
        .commit = lmdb_commit,
        .abort = lmdb_abort,
        .get = lmdb_get,
        .get_many = lmdb_get_many,
        .put = lmdb_put,
        .insert = lmdb_insert,
        .del = lmdb_del,
        .cursor_open = lmdb_cursor_open,
        .cursor_close = lmdb_cursor_close,
        .seek = lmdb_seek,
        .seek_before = lmdb_seek_before,
        .next = lmdb_next,
        .entry = lmdb_entry,
    };

    return &ops;
}

#else

const struct tpcc_store_ops *
tpcc_lmdb_ops(void)
{
    return NULL;
}

#endif
