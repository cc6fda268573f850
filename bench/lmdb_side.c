/* lmdb_side.c - see lmdb_side.h. Built with LMDB only. */
#include "bench/lmdb_side.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

int
lmdb_side_fail(const struct lmdb_side *m, const char *what, int rc)
{
    return CH_FAIL(COHORT_EIO, "LMDB %s: %s: %s", m->dir, what, mdb_strerror(rc));
}

int
lmdb_side_open(struct lmdb_side *m, const struct bench *b)
{
    uint64_t bytes = ch_max_u64(b->pages_loaded * CH_PAGE_BYTES * 4, UINT64_C(64) << 20);
    int rc;

    snprintf(m->dir, sizeof(m->dir), "%s/lmdb-compare", b->c.device);
    if (mkdir(m->dir, 0777) != 0)
        return CH_FAIL(COHORT_EIO, "mkdir %s: %s", m->dir, strerror(errno));
    m->made = true;
    rc = mdb_env_create(&m->env);
    if (rc == 0)
        rc = mdb_env_set_mapsize(m->env, bytes);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(m->env, BENCH_THREADS_MAX + 8);
    if (rc == 0)
        rc = mdb_env_open(m->env, m->dir, MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD, 0666);
    return rc == 0 ? 0 : lmdb_side_fail(m, "open", rc);
}

void
lmdb_side_close(struct lmdb_side *m)
{
    char path[sizeof(m->dir) + 16];

    mdb_env_close(m->env);
    if (!m->made)
        return;
    snprintf(path, sizeof(path), "%s/data.mdb", m->dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/lock.mdb", m->dir);
    unlink(path);
    rmdir(m->dir);
}

int
lmdb_side_fill(struct lmdb_side *m, cohort_db *db)
{
    cohort_cursor *c = NULL;
    struct cohort_slice k, v;
    MDB_txn *txn = NULL;
    int rc, merr;

    rc = cohort_cursor_open(db, &c);
    if (rc != 0)
        return rc;
    merr = mdb_txn_begin(m->env, NULL, 0, &txn);
    if (merr == 0)
        merr = mdb_dbi_open(txn, NULL, 0, &m->dbi);
    for (rc = cohort_cursor_first(c); rc == 0 && merr == 0; rc = cohort_cursor_next(c)) {
        MDB_val mk, mv;

        rc = cohort_cursor_entry(c, &k, &v);
        if (rc != 0)
            break;
        mk = (MDB_val){.mv_size = k.bytes};
        mv = (MDB_val){.mv_size = v.bytes};
        memcpy(&mk.mv_data, &k.data, sizeof(k.data)); /* LMDB does not take pointers to const */
        memcpy(&mv.mv_data, &v.data, sizeof(v.data));
        merr = mdb_put(txn, m->dbi, &mk, &mv, MDB_APPEND);
    }
    if (merr == 0 && rc == COHORT_NOTFOUND) {
        merr = mdb_txn_commit(txn);
        txn = NULL;
        rc = 0;
    }
    if (txn != NULL)
        mdb_txn_abort(txn);
    cohort_cursor_close(c);
    return merr != 0 ? lmdb_side_fail(m, "load", merr) : rc;
}
