/* tpcc_store_cohort.c - TPC-C on Cohort, by its public API only. */
#include <stdatomic.h>
#include <stdlib.h>

#include "bench/tpcc_store.h"

struct store {
    struct tpcc_store base;
    cohort_db *db;
    cohort_tree *trees[TPCC_TABLES];
    enum cohort_isolation isolation;
};

struct session {
    struct tpcc_session base;
    cohort_txn *txn;
    struct cohort_value value;
    struct cohort_value many[TPCC_MANY_MAX];
};

struct cursor {
    struct tpcc_cursor base;
    cohort_cursor *c;
};

static struct store *
store_of(struct tpcc_store *s)
{
    return ch_container_of(s, struct store, base);
}

static struct session *
session_of(struct tpcc_session *s)
{
    return ch_container_of(s, struct session, base);
}

static cohort_cursor *
cursor_of(struct tpcc_cursor *c)
{
    return ch_container_of(c, struct cursor, base)->c;
}

static cohort_tree *
tree_of(struct tpcc_session *s, enum tpcc_table t)
{
    return store_of(s->store)->trees[t];
}

cohort_db *
tpcc_cohort_db(struct tpcc_store *s)
{
    CH_ASSERT(s->ops == &tpcc_cohort_ops);
    return store_of(s)->db;
}

static int
store_close(struct tpcc_store *base)
{
    struct store *s = store_of(base);
    int rc;

    for (int i = 0; i < TPCC_TABLES; i++)
        if (s->trees[i] != NULL)
            cohort_tree_close(s->trees[i]);
    rc = cohort_close(s->db);
    free(s);
    return rc;
}

static int
store_open(const struct tpcc_store_config *c, struct tpcc_store **out)
{
    struct cohort_options o = *c->options;
    struct store *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "tables");
    s->base.ops = &tpcc_cohort_ops;
    s->isolation = c->isolation;
    atomic_init(&s->base.loading, false);
    o.cache_bytes = c->cache_bytes;
    o.durability = c->durability;
    rc = cohort_open(c->where, &o, &s->db);
    for (int i = 0; i < TPCC_TABLES && rc == 0; i++)
        rc = cohort_tree_open(s->db, NULL, tpcc_table_names[i], c->create ? COHORT_TREE_CREATE : 0,
                              NULL, &s->trees[i]);
    if (rc != 0) {
        struct cohort_error e = *cohort_last_error();

        if (store_close(&s->base) != 0 || cohort_last_error()->code != e.code)
            (void)ch_fail(e.code, e.file != NULL ? e.file : __FILE__, e.line, "%s", e.text);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static int
store_checkpoint(struct tpcc_store *base)
{
    return cohort_checkpoint(store_of(base)->db);
}

static int
session_open(struct tpcc_store *base, struct tpcc_session **out)
{
    struct session *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "session");
    s->base.store = base;
    *out = &s->base;
    return 0;
}

static void
session_close(struct tpcc_session *base)
{
    struct session *s;

    if (base == NULL)
        return;
    s = session_of(base);
    cohort_value_free(&s->value);
    for (int i = 0; i < TPCC_MANY_MAX; i++)
        cohort_value_free(&s->many[i]);
    free(s);
}

static int
session_begin(struct tpcc_session *base, bool read_only)
{
    struct session *s = session_of(base);
    struct cohort_txn_options o;

    CH_ASSERT(s->txn == NULL);
    cohort_txn_options_init(&o);
    o.read_only = read_only;
    o.isolation = store_of(base->store)->isolation;
    if (atomic_load_explicit(&base->store->loading, memory_order_relaxed))
        o.durability = COHORT_DURABILITY_NONE;
    return cohort_begin(store_of(base->store)->db, &o, &s->txn);
}

static int
session_commit(struct tpcc_session *base)
{
    struct session *s = session_of(base);
    cohort_txn *t = s->txn;

    s->txn = NULL;
    return cohort_commit(t);
}

static int
session_abort(struct tpcc_session *base)
{
    struct session *s = session_of(base);
    cohort_txn *t = s->txn;

    s->txn = NULL;
    return cohort_abort(t);
}

static int
row_get(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key, bool lock,
        struct cohort_slice *value)
{
    struct session *s = session_of(base);
    int rc;

    rc = lock
             ? cohort_txn_get_for_update(s->txn, tree_of(base, t), key->data, key->bytes, &s->value)
             : cohort_txn_get(s->txn, tree_of(base, t), key->data, key->bytes, &s->value);
    if (rc == 0)
        *value = (struct cohort_slice){s->value.data, s->value.bytes};
    return rc;
}

static int
row_get_many(struct tpcc_session *base, enum tpcc_table t, size_t n, const struct tpcc_key *keys,
             tpcc_row_fn *row, void *arg)
{
    struct session *s = session_of(base);
    struct cohort_slice k[TPCC_MANY_MAX] = {0};
    int rcs[TPCC_MANY_MAX] = {0};
    int rc;

    for (size_t i = 0; i < n; i++)
        k[i] = (struct cohort_slice){keys[i].data, keys[i].bytes};
    rc = cohort_get_many(store_of(base->store)->db, s->txn, tree_of(base, t), n, k, s->many, rcs);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct cohort_slice v = {s->many[i].data, s->many[i].bytes};

        rc = row(arg, i, rcs[i] == 0 ? &v : NULL);
    }
    return rc;
}

static int
row_put(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
        const struct tpcc_row *row)
{
    return cohort_txn_put(session_of(base)->txn, tree_of(base, t), key->data, key->bytes, row->data,
                          row->bytes);
}

static int
row_insert(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
           const struct tpcc_row *row)
{
    return cohort_txn_insert(session_of(base)->txn, tree_of(base, t), key->data, key->bytes,
                             row->data, row->bytes);
}

static int
row_del(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key)
{
    return cohort_txn_del(session_of(base)->txn, tree_of(base, t), key->data, key->bytes);
}

static int
cursor_open(struct tpcc_session *base, enum tpcc_table t, struct tpcc_cursor **out)
{
    struct cursor *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cursor");
    c->base.ops = &tpcc_cohort_ops;
    rc = cohort_txn_cursor(session_of(base)->txn, tree_of(base, t), &c->c);
    if (rc != 0) {
        free(c);
        return rc;
    }
    *out = &c->base;
    return 0;
}

static void
cursor_close(struct tpcc_cursor *base)
{
    if (base == NULL)
        return;
    cohort_cursor_close(cursor_of(base));
    free(ch_container_of(base, struct cursor, base));
}

static int
cursor_seek(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    return cohort_cursor_seek(cursor_of(base), key->data, key->bytes);
}

static int
cursor_seek_before(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    return cohort_cursor_seek_before(cursor_of(base), key->data, key->bytes);
}

static int
cursor_next(struct tpcc_cursor *base)
{
    return cohort_cursor_next(cursor_of(base));
}

static int
cursor_entry(struct tpcc_cursor *base, struct cohort_slice *key, struct cohort_slice *value)
{
    return cohort_cursor_entry(cursor_of(base), key, value);
}

const struct tpcc_store_ops tpcc_cohort_ops = {
    .name = "cohort",
    .note = "its own cache, direct I/O where the file system takes it",
    .open = store_open,
    .close = store_close,
    .checkpoint = store_checkpoint,
    .session_open = session_open,
    .session_close = session_close,
    .begin = session_begin,
    .commit = session_commit,
    .abort = session_abort,
    .get = row_get,
    .get_many = row_get_many,
    .put = row_put,
    .insert = row_insert,
    .del = row_del,
    .cursor_open = cursor_open,
    .cursor_close = cursor_close,
    .seek = cursor_seek,
    .seek_before = cursor_seek_before,
    .next = cursor_next,
    .entry = cursor_entry,
};
