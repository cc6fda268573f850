/* tpcc_store_wiredtiger.c - TPC-C on WiredTiger.
 *
 * A table (B-tree, raw keys and values, leaves of 4 KiB, which beyond the cache writes and reads a fifth of
 * what its default of 32 KiB does) a table, snapshot isolation, a log. Its files are opened with
 * direct I/O so that its cache is all the cache it has, as Cohort's is. Durability sync is an
 * fsync() of the log at commit (groups of commits share it); async and none write the log without.
 * A checkpoint each 60 s or 256 MiB of log bounds log and recovery.
 */
#include "bench/tpcc_store.h"

#ifdef COHORT_BENCH_WIREDTIGER

#include <stdatomic.h>
#include <stdlib.h>
#include <wiredtiger.h>

struct wt_store {
    struct tpcc_store base;
    WT_CONNECTION *conn;
    bool durable;
};

struct wt_session {
    struct tpcc_session base;
    WT_SESSION *session;
    WT_CURSOR *points[TPCC_TABLES]; /* opened when first used */
    WT_CURSOR *inserts[TPCC_TABLES];
};

struct wt_cursor {
    struct tpcc_cursor base;
    WT_CURSOR *c;
};

static struct wt_session *
session_of(struct tpcc_session *s)
{
    return ch_container_of(s, struct wt_session, base);
}

static WT_CURSOR *
cursor_of(struct tpcc_cursor *c)
{
    return ch_container_of(c, struct wt_cursor, base)->c;
}

static int
wt_status(const char *what, int rc)
{
    switch (rc) {
    case 0:
        return 0;
    case WT_NOTFOUND:
        return COHORT_NOTFOUND; /* ordinary: no record of it */
    case WT_ROLLBACK:
        return CH_FAIL(COHORT_CONFLICT, "WiredTiger %s: %s", what, wiredtiger_strerror(rc));
    case WT_DUPLICATE_KEY:
        return CH_FAIL(COHORT_EXISTS, "WiredTiger %s: %s", what, wiredtiger_strerror(rc));
    default:
        return CH_FAIL(COHORT_EIO, "WiredTiger %s: %s", what, wiredtiger_strerror(rc));
    }
}

static int
wt_tables(struct wt_store *s)
{
    WT_SESSION *session = NULL;
    char name[64];
    int rc = s->conn->open_session(s->conn, NULL, NULL, &session);

    for (int i = 0; i < TPCC_TABLES && rc == 0; i++) {
        snprintf(name, sizeof(name), "table:%s", tpcc_table_names[i]);
        rc = session->create(session, name, "key_format=u,value_format=u,leaf_page_max=4KB");
    }
    if (session != NULL && rc == 0)
        rc = session->close(session, NULL);
    return rc;
}

static int
wt_close(struct tpcc_store *base)
{
    struct wt_store *s = ch_container_of(base, struct wt_store, base);
    int rc = s->conn != NULL ? s->conn->close(s->conn, NULL) : 0;

    free(s);
    return wt_status("close", rc);
}

static int
wt_open(const struct tpcc_store_config *c, struct tpcc_store **out)
{
    struct wt_store *s = calloc(1, sizeof(*s));
    char config[512];
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "WiredTiger");
    s->base.ops = tpcc_wiredtiger_ops();
    atomic_init(&s->base.loading, false);
    s->durable = c->durability == COHORT_DURABILITY_SYNC;
    snprintf(config, sizeof(config),
             "%scache_size=%llu,session_max=%llu,direct_io=[data],log=(enabled,file_max=64MB),"
             "transaction_sync=(enabled=false,method=fsync),checkpoint=(wait=60,log_size=256MB)",
             c->create ? "create," : "", (unsigned long long)c->cache_bytes,
             (unsigned long long)c->threads + 16);
    rc = wiredtiger_open(c->where, NULL, config, &s->conn);
    if (rc == 0 && c->create)
        rc = wt_tables(s);
    if (rc != 0) {
        rc = wt_status("open", rc);
        if (s->conn != NULL)
            (void)s->conn->close(s->conn, NULL);
        free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static int
wt_checkpoint(struct tpcc_store *base)
{
    struct wt_store *s = ch_container_of(base, struct wt_store, base);
    WT_SESSION *session = NULL;
    int rc = s->conn->open_session(s->conn, NULL, NULL, &session), closed = 0;

    if (rc == 0) {
        rc = session->checkpoint(session, NULL);
        closed = session->close(session, NULL);
    }
    return wt_status("checkpoint", rc != 0 ? rc : closed);
}

static int
wt_session_open(struct tpcc_store *base, struct tpcc_session **out)
{
    struct wt_store *store = ch_container_of(base, struct wt_store, base);
    struct wt_session *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "WiredTiger session");
    s->base.store = base;
    rc = store->conn->open_session(store->conn, NULL, "isolation=snapshot", &s->session);
    if (rc != 0) {
        free(s);
        return wt_status("session", rc);
    }
    *out = &s->base;
    return 0;
}

static void
wt_session_close(struct tpcc_session *base)
{
    struct wt_session *s;

    if (base == NULL)
        return;
    s = session_of(base);
    (void)s->session->close(s->session, NULL); /* its cursors with it; nothing is uncommitted */
    free(s);
}

static int
wt_begin(struct tpcc_session *base, bool read_only)
{
    struct wt_session *s = session_of(base);
    struct wt_store *store = ch_container_of(base->store, struct wt_store, base);
    bool lazy =
        !store->durable || atomic_load_explicit(&base->store->loading, memory_order_relaxed);

    (void)read_only; /* nothing is written, then */
    return wt_status("begin",
                     s->session->begin_transaction(s->session, lazy ? "sync=false" : "sync=true"));
}

static int
wt_commit(struct tpcc_session *base)
{
    struct wt_session *s = session_of(base);

    return wt_status("commit", s->session->commit_transaction(s->session, NULL));
}

static int
wt_abort(struct tpcc_session *base)
{
    struct wt_session *s = session_of(base);

    return wt_status("abort", s->session->rollback_transaction(s->session, NULL));
}

static int
open_table(struct wt_session *s, enum tpcc_table t, const char *config, WT_CURSOR **c)
{
    char name[64];

    if (*c != NULL)
        return 0;
    snprintf(name, sizeof(name), "table:%s", tpcc_table_names[t]);
    return s->session->open_cursor(s->session, name, NULL, config, c);
}

static void
set_key(WT_CURSOR *c, const struct tpcc_key *key)
{
    WT_ITEM k = {.data = key->data, .size = key->bytes};

    c->set_key(c, &k);
}

static void
set_row(WT_CURSOR *c, const struct tpcc_row *row)
{
    WT_ITEM v = {.data = row->data, .size = row->bytes};

    c->set_value(c, &v);
}

static int
wt_get(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key, bool lock,
       struct cohort_slice *value)
{
    struct wt_session *s = session_of(base);
    WT_ITEM v = {0};
    int rc = open_table(s, t, NULL, &s->points[t]);

    if (rc == 0) {
        set_key(s->points[t], key);
        if (lock)
            rc = s->points[t]->reserve(s->points[t]);
    }
    if (rc == 0 && lock)
        set_key(s->points[t], key);
    if (rc == 0)
        rc = s->points[t]->search(s->points[t]);
    if (rc == 0)
        rc = s->points[t]->get_value(s->points[t], &v);
    if (rc == 0)
        *value = (struct cohort_slice){v.data, v.size};
    return wt_status("get", rc);
}

static int
wt_get_many(struct tpcc_session *base, enum tpcc_table t, size_t n, const struct tpcc_key *keys,
            tpcc_row_fn *row, void *arg)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct cohort_slice v;

        rc = wt_get(base, t, &keys[i], false, &v);
        if (rc == 0 || rc == COHORT_NOTFOUND)
            rc = row(arg, i, rc == 0 ? &v : NULL);
    }
    return rc;
}

static int
wt_put(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
       const struct tpcc_row *row)
{
    struct wt_session *s = session_of(base);
    int rc = open_table(s, t, NULL, &s->points[t]);

    if (rc == 0) {
        set_key(s->points[t], key);
        set_row(s->points[t], row);
        rc = s->points[t]->insert(s->points[t]); /* overwrites */
    }
    return wt_status("put", rc);
}

static int
wt_insert(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key,
          const struct tpcc_row *row)
{
    struct wt_session *s = session_of(base);
    int rc = open_table(s, t, "overwrite=false", &s->inserts[t]);

    if (rc == 0) {
        set_key(s->inserts[t], key);
        set_row(s->inserts[t], row);
        rc = s->inserts[t]->insert(s->inserts[t]);
    }
    return wt_status("insert", rc);
}

static int
wt_del(struct tpcc_session *base, enum tpcc_table t, const struct tpcc_key *key)
{
    struct wt_session *s = session_of(base);
    int rc = open_table(s, t, "overwrite=false", &s->inserts[t]);

    if (rc == 0) {
        set_key(s->inserts[t], key);
        rc = s->inserts[t]->remove(s->inserts[t]);
    }
    return wt_status("del", rc);
}

static int
wt_cursor_open(struct tpcc_session *base, enum tpcc_table t, struct tpcc_cursor **out)
{
    struct wt_cursor *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "WiredTiger cursor");
    c->base.ops = base->store->ops;
    rc = open_table(session_of(base), t, NULL, &c->c);
    if (rc != 0) {
        free(c);
        return wt_status("cursor", rc);
    }
    *out = &c->base;
    return 0;
}

static void
wt_cursor_close(struct tpcc_cursor *base)
{
    if (base == NULL)
        return;
    (void)cursor_of(base)->close(cursor_of(base));
    free(ch_container_of(base, struct wt_cursor, base));
}

static int
seek(struct tpcc_cursor *base, const struct tpcc_key *key, int side)
{
    WT_CURSOR *c = cursor_of(base);
    int at = 0, rc;

    set_key(c, key);
    rc = c->search_near(c, &at);
    if (rc == 0 && side > 0 && at < 0)
        rc = c->next(c);
    if (rc == 0 && side < 0 && at > 0)
        rc = c->prev(c);
    return wt_status("seek", rc);
}

static int
wt_seek(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    return seek(base, key, 1);
}

static int
wt_seek_before(struct tpcc_cursor *base, const struct tpcc_key *key)
{
    return seek(base, key, -1);
}

static int
wt_next(struct tpcc_cursor *base)
{
    return wt_status("next", cursor_of(base)->next(cursor_of(base)));
}

static int
wt_entry(struct tpcc_cursor *base, struct cohort_slice *key, struct cohort_slice *value)
{
    WT_CURSOR *c = cursor_of(base);
    WT_ITEM k = {0}, v = {0};
    int rc = c->get_key(c, &k);

    if (rc == 0 && value != NULL)
        rc = c->get_value(c, &v);
    if (rc != 0)
        return wt_status("entry", rc);
    *key = (struct cohort_slice){k.data, k.size};
    if (value != NULL)
        *value = (struct cohort_slice){v.data, v.size};
    return 0;
}

const struct tpcc_store_ops *
tpcc_wiredtiger_ops(void)
{
    static const struct tpcc_store_ops ops = {
        .name = "wiredtiger",
        .note = "its own cache, direct I/O on its tables; its log is buffered",
        .open = wt_open,
        .close = wt_close,
        .checkpoint = wt_checkpoint,
        .session_open = wt_session_open,
        .session_close = wt_session_close,
        .begin = wt_begin,
        .commit = wt_commit,
        .abort = wt_abort,
        .get = wt_get,
        .get_many = wt_get_many,
        .put = wt_put,
        .insert = wt_insert,
        .del = wt_del,
        .cursor_open = wt_cursor_open,
        .cursor_close = wt_cursor_close,
        .seek = wt_seek,
        .seek_before = wt_seek_before,
        .next = wt_next,
        .entry = wt_entry,
    };

    return &ops;
}

#else

const struct tpcc_store_ops *
tpcc_wiredtiger_ops(void)
{
    return NULL;
}

#endif
