/* txn.c - transactions: begin, end, reads and writes.
 *
 * Memory. A struct cohort_txn is taken from, and given back to, one of API_POOL places of the database by one atomic
 * exchange, so that beginning one allocates nothing in the steady state. A place holds one or none; a thread begins looking at
 * a place that its stack's address picks, which keeps threads apart. What finds no free place is freed.
 *
 *   P1  who exchanges a transaction out of a place owns it: acquire, with the release of who put it there.
 */
#include "api/api_internal.h"

#include <errno.h>
#include <stdlib.h>

enum {
    POOL_LOOKS = 4
};

/* ---- memory ---- */

static unsigned
pool_place(void)
{
    int here;
    uint64_t stack = (uint64_t)(uintptr_t)&here >> 16;

    return (unsigned)(stack * UINT64_C(0x9e3779b97f4a7c15) >> 58) & (API_POOL - 1);
}

static cohort_txn *
pool_take(cohort_db *db)
{
    unsigned at = pool_place();
    cohort_txn *t = NULL;

    for (unsigned i = 0; i < POOL_LOOKS && t == NULL; i++) {
        _Atomic(struct cohort_txn *) *place = &db->pool[(at + i) & (API_POOL - 1)].t;

        if (atomic_load_explicit(place, memory_order_relaxed) != NULL)
            t = atomic_exchange_explicit(place, NULL, memory_order_acquire);
    }
    return t != NULL ? t : malloc(sizeof(*t));
}

static void
pool_give(cohort_db *db, cohort_txn *t)
{
    unsigned at = pool_place();

    t->t = NULL;
    for (unsigned i = 0; i < POOL_LOOKS; i++) {
        _Atomic(struct cohort_txn *) *place = &db->pool[(at + i) & (API_POOL - 1)].t;
        struct cohort_txn *none = NULL;

        if (atomic_load_explicit(place, memory_order_relaxed) == NULL &&
            atomic_compare_exchange_strong_explicit(place, &none, t, memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    free(t);
}

void
api_pool_free(cohort_db *db)
{
    for (unsigned i = 0; i < API_POOL; i++)
        free(atomic_load_explicit(&db->pool[i].t, memory_order_acquire));
}

void
api_count(cohort_db *db, uint64_t commits, uint64_t payload)
{
    struct api_place *place = &db->pool[pool_place()];

    atomic_fetch_add_explicit(&place->commits, commits, memory_order_relaxed);
    atomic_fetch_add_explicit(&place->payload, payload, memory_order_relaxed);
}

/* ---- begin and end ---- */

COHORT_API void
cohort_txn_options_init(struct cohort_txn_options *o)
{
    if (o == NULL)
        return;
    *o = (struct cohort_txn_options){
        .struct_bytes = sizeof(*o),
        .isolation = COHORT_SNAPSHOT,
        .durability = COHORT_DEFAULT,
        .lock_timeout_ms = COHORT_DEFAULT,
    };
}

static int
check_options(const struct cohort_txn_options *o)
{
    if (o->struct_bytes != sizeof(*o))
        return CH_FAIL(COHORT_EINVAL,
                       "cohort_begin: options not set up by cohort_txn_options_init()");
    if (o->isolation != COHORT_SNAPSHOT && o->isolation != COHORT_SERIALIZABLE)
        return CH_FAIL(COHORT_EOPTION, "cohort_begin: isolation %d", (int)o->isolation);
    if (o->durability != COHORT_DEFAULT && o->durability != COHORT_DURABILITY_SYNC &&
        o->durability != COHORT_DURABILITY_ASYNC && o->durability != COHORT_DURABILITY_NONE)
        return CH_FAIL(COHORT_EOPTION, "cohort_begin: durability %d", o->durability);
    if (o->lock_timeout_ms != COHORT_DEFAULT &&
        (o->lock_timeout_ms < 0 || o->lock_timeout_ms > API_LOCK_TIMEOUT_MAX_MS))
        return CH_FAIL(COHORT_EOPTION, "cohort_begin: lock_timeout_ms %lld",
                       (long long)o->lock_timeout_ms);
    return 0;
}

static int
begin(cohort_db *db, const struct txn_options *o, cohort_txn **out)
{
    cohort_txn *t = pool_take(db);
    int rc;

    if (CH_UNLIKELY(t == NULL))
        return CH_FAIL(COHORT_ENOMEM, "transaction handle");
    *t = (struct cohort_txn){.db = db};
    rc = txn_begin(db->db->txns, o, &t->t);
    if (CH_UNLIKELY(rc != 0)) {
        pool_give(db, t);
        return rc;
    }
    *out = t;
    return 0;
}

COHORT_API int
cohort_begin(cohort_db *db, const struct cohort_txn_options *o, cohort_txn **out)
{
    struct txn_options to = {.durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};

    if (CH_UNLIKELY(db == NULL || out == NULL))
        return CH_FAIL(COHORT_EINVAL, "cohort_begin: null argument");
    if (o != NULL) {
        int rc = check_options(o);

        if (CH_UNLIKELY(rc != 0))
            return rc;
        to = (struct txn_options){.read_only = o->read_only,
                                  .serializable = o->isolation == COHORT_SERIALIZABLE,
                                  .durability = o->durability,
                                  .lock_timeout_ms = o->lock_timeout_ms,
                                  .tag = o->tag};
    }
    return begin(db, &to, out);
}

int
api_begin(cohort_db *db, bool read_only, cohort_txn **t)
{
    const struct txn_options to = {
        .read_only = read_only, .durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};

    return begin(db, &to, t);
}

static int
check_open(const char *what, const cohort_txn *t)
{
    if (CH_UNLIKELY(t == NULL))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no transaction", what);
    return CH_LIKELY(t->t != NULL) ? 0
                                   : CH_FAIL(COHORT_ETXN, "%s: the transaction has ended", what);
}

/* Its cursors and writers have ended; what they had is still good, for the transaction is. */
static void
end_parts(cohort_txn *t)
{
    if (CH_UNLIKELY(t->cursors != NULL))
        api_end_cursors(t);
    if (CH_UNLIKELY(t->writers != NULL))
        api_end_writers(t);
}

static void
count_commit(cohort_txn *t)
{
    if (!t->wrote)
        return;
    api_count(t->db, 1, t->payload);
}

static int
commit(cohort_txn *t, bool visible_only, lsn_t *lsn)
{
    int rc;

    end_parts(t);
    rc = txn_commit(t->t, visible_only, lsn);
    if (rc == 0)
        count_commit(t);
    pool_give(t->db, t);
    return rc;
}

COHORT_API int
cohort_commit(cohort_txn *t)
{
    int rc = check_open("cohort_commit", t);

    return CH_UNLIKELY(rc != 0) ? rc : commit(t, false, NULL);
}

COHORT_API int
cohort_commit_visible(cohort_txn *t, uint64_t *position)
{
    lsn_t lsn = 0;
    int rc = check_open("cohort_commit_visible", t);

    if (rc != 0)
        return rc;
    if (position == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_commit_visible: null argument: position");
    rc = commit(t, true, &lsn);
    if (rc == 0)
        *position = lsn;
    return rc;
}

COHORT_API int
cohort_abort(cohort_txn *t)
{
    int rc;

    if (t == NULL)
        return 0;
    rc = check_open("cohort_abort", t);
    if (rc != 0)
        return rc;
    end_parts(t);
    rc = txn_abort(t->t);
    pool_give(t->db, t);
    return rc;
}

int
api_end(cohort_txn *t, int rc)
{
    struct cohort_error e;

    if (rc == 0)
        return commit(t, false, NULL);
    e = *cohort_last_error(); /* of rc; undoing must not replace it */
    (void)cohort_abort(t);
    errno = e.sys_errno;
    (void)ch_fail(e.code, e.file != NULL ? e.file : __FILE__, e.line, "%s", e.text);
    return rc;
}

void
api_forget(cohort_txn *t)
{
    end_parts(t);
    pool_give(t->db, t);
}

bool
api_again(struct api_retry *r, cohort_db *db, int rc)
{
    const uint64_t ms = UINT64_C(1000000);
    uint64_t now;

    if (CH_LIKELY(rc != COHORT_CONFLICT && rc != COHORT_SNAPSHOT_TOO_OLD))
        return false;
    now = rt_now_ns();
    if (r->until == 0)
        r->until = now + db->db->opts.lock_timeout_ms * ms;
    r->times++;
    if (r->times > API_RETRIES_MIN && now >= r->until)
        return false;
    if (r->times > API_RETRIES_MIN)
        rt_sleep_ns(ms); /* a tree that is being dropped, or a crowd */
    return true;
}

/* ---- views and savepoints ---- */

COHORT_API int
cohort_txn_refresh(cohort_txn *t)
{
    int rc = check_open("cohort_txn_refresh", t);

    return rc != 0 ? rc : txn_refresh(t->t);
}

COHORT_API int
cohort_savepoint(cohort_txn *t, uint64_t *savepoint)
{
    int rc = check_open("cohort_savepoint", t);

    if (rc == 0 && savepoint == NULL)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_savepoint: null argument: savepoint");
    return rc != 0 ? rc : txn_savepoint(t->t, savepoint);
}

COHORT_API int
cohort_rollback_to(cohort_txn *t, uint64_t savepoint)
{
    int rc = check_open("cohort_rollback_to", t);

    return rc != 0 ? rc : txn_rollback_to(t->t, savepoint);
}

COHORT_API int
cohort_release(cohort_txn *t, uint64_t savepoint)
{
    int rc = check_open("cohort_release", t);

    return rc != 0 ? rc : txn_release(t->t, savepoint);
}

/* ---- waits ---- */

COHORT_API void
cohort_txn_cancel(cohort_txn *t)
{
    if (t != NULL && t->t != NULL)
        txn_cancel(t->t);
}

COHORT_API uint64_t
cohort_txn_id(const cohort_txn *t)
{
    return t != NULL && t->t != NULL ? txn_id(t->t) : 0;
}

COHORT_API void
cohort_set_wait_hook(cohort_db *db, cohort_wait_fn *fn, void *arg)
{
    if (db != NULL)
        txns_set_wait_hook(db->db->txns, fn, arg);
}

/* ---- two-phase commit ---- */

static int
check_gid(const char *what, const void *gid, size_t gid_bytes)
{
    if (gid == NULL || gid_bytes == 0 || gid_bytes > COHORT_GID_MAX)
        return CH_FAIL(COHORT_EINVAL, "%s: id of %zu bytes, 1 to %d are possible", what,
                       gid == NULL ? 0 : gid_bytes, COHORT_GID_MAX);
    return 0;
}

COHORT_API int
cohort_prepare(cohort_txn *t, const void *gid, size_t gid_bytes)
{
    int rc = check_open("cohort_prepare", t);

    if (rc == 0)
        rc = check_gid("cohort_prepare", gid, gid_bytes);
    if (rc != 0)
        return rc;
    end_parts(t);
    rc = txn_prepare(t->t, gid, gid_bytes);
    if (rc == COHORT_EXISTS || rc == COHORT_EINVAL)
        return rc; /* it goes on */
    if (rc == 0)
        count_commit(t); /* what is prepared can only be given up by somebody's decision */
    pool_give(t->db, t);
    return rc;
}

COHORT_API int
cohort_commit_prepared(cohort_db *db, const void *gid, size_t gid_bytes)
{
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_commit_prepared: no database");
    int rc = check_gid("cohort_commit_prepared", gid, gid_bytes);

    return rc != 0 ? rc : txns_commit_prepared(db->db->txns, gid, gid_bytes);
}

COHORT_API int
cohort_abort_prepared(cohort_db *db, const void *gid, size_t gid_bytes)
{
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_abort_prepared: no database");
    int rc = check_gid("cohort_abort_prepared", gid, gid_bytes);

    return rc != 0 ? rc : txns_abort_prepared(db->db->txns, gid, gid_bytes);
}

COHORT_API int
cohort_list_prepared(cohort_db *db, int (*visit)(void *arg, const void *gid, size_t gid_bytes),
                     void *arg)
{
    if (db == NULL || visit == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_list_prepared: null argument");
    return txns_list_prepared(db->db->txns, visit, arg);
}
