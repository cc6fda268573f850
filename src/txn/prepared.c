/* prepared.c - two-phase commit.
 *
 * A prepared transaction stays in its slot, without a snapshot, and in the manager's list. Its locks are its entries in the version
 * store; what it read is guarded there, if it is serializable.
 *
 * Invariants:
 *   D1  a gid is in the list once, from before PREPARE is appended until the transaction's end.
 *   D2  from PREPARE on nothing can refuse its commit: it was validated under the commit lock, and others' commits are
 *       checked against its reads from that moment on. It has read nothing that another prepared one has written.
 *   D3  its records are kept in the log from PREPARE on until the undo tree's header has state and gid (pin; a checkpoint sees to it).
 *   D4  its locks survive crashes: entries that only lock are written to the undo tree before PREPARE, since the log does
 *       not know them.
 *   D5  a prepared transaction with an undo record is one that is being aborted: before the first one the header, if there is any, no
 *       longer says PREPARED.
 */
#include "txn/txn_internal.h"

#include <inttypes.h>

enum {
    PREPARE_HEAD = 9,
};

/* ---- the list; lock held ---- */

void
txns_prepared_add(struct txns *ts, struct txn *t)
{
    t->next_prepared = NULL;
    *ts->prepared_end = t;
    ts->prepared_end = &t->next_prepared;
}

static struct txn *
prepared_find(const struct txns *ts, const void *gid, size_t gid_bytes)
{
    struct txn *t = ts->prepared;

    while (t != NULL && (t->gid_bytes != gid_bytes || memcmp(t->gid, gid, gid_bytes) != 0))
        t = t->next_prepared;
    return t;
}

void
txns_prepared_remove(struct txns *ts, struct txn *t)
{
    struct txn **at = &ts->prepared;

    rt_lock(&ts->lock);
    while (*at != NULL && *at != t)
        at = &(*at)->next_prepared;
    if (*at != NULL) {
        *at = (*at)->next_prepared;
        if (*at == NULL)
            ts->prepared_end = at;
    }
    rt_unlock(&ts->lock);
}

/* ---- prepare ---- */

/* What spillers look at changes under a claim. */
static void
state_set(struct txn *t, enum txn_state state)
{
    txn_claim(t);
    atomic_store_explicit(&t->state, state, memory_order_release);
    txn_unclaim(t);
}

/* D1 */
static int
gid_take(struct txn *t, const void *gid, size_t gid_bytes)
{
    struct txns *ts = t->ts;
    bool taken;

    if (gid_bytes == 0 || gid_bytes > COHORT_GID_MAX)
        return CH_FAIL(COHORT_EINVAL, "gid of %zu bytes", gid_bytes);
    rt_lock(&ts->lock);
    taken = prepared_find(ts, gid, gid_bytes) != NULL;
    if (!taken) {
        memcpy(t->gid, gid, gid_bytes);
        t->gid_bytes = (uint8_t)gid_bytes;
        txns_prepared_add(ts, t);
    }
    rt_unlock(&ts->lock);
    return taken ? CH_FAIL(COHORT_EXISTS, "a prepared transaction has that gid") : 0;
}

/* D2. The reads belong to the store afterwards. */
static int
prepare_record(struct txn *t, struct wal_ticket *ticket, lsn_t *lsn)
{
    struct txns *ts = t->ts;
    uint8_t payload[PREPARE_HEAD + COHORT_GID_MAX];
    struct wal_part part = {payload, PREPARE_HEAD + t->gid_bytes};
    lsn_t upto = 0;
    int rc = 0;

    ch_put64(payload, txn_id_of(t));
    payload[8] = t->gid_bytes;
    memcpy(payload + PREPARE_HEAD, t->gid, t->gid_bytes);
    if (t->serializable && t->reads != NULL)
        rc = ver_validate(ts->cfg.ver, &t->view, t->reads, false, &upto);
    if (rc != 0)
        return rc;
    atomic_store_explicit(&t->pin, wal_end(ts->cfg.wal), memory_order_seq_cst); /* D3 */
    rt_point();
    ver_commit_lock(ts->cfg.ver);
    rc = txn_may_commit(t, &upto);
    if (rc == 0)
        rc = ver_prepare(ts->cfg.ver, t->w, t->serializable ? t->reads : NULL);
    if (rc == 0 && t->reads != NULL) {
        rc = ver_guard(ts->cfg.ver, txn_id_of(t), t->reads);
        if (rc == 0)
            t->reads = NULL;
        else
            ver_unprepare(ts->cfg.ver, t->w);
    }
    if (rc == 0)
        *lsn = wal_append(ts->cfg.wal, ticket, TXN_RECORD_PREPARE, CH_WAL, &part, 1);
    ver_commit_unlock(ts->cfg.ver);
    if (rc != 0)
        atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
    return rc;
}

static int
prepare(struct txn *t, lsn_t *lsn)
{
    struct txns *ts = t->ts;
    struct wal_ticket ticket = {0};
    int rc = 0;

    if (t->read_only)
        return CH_FAIL(COHORT_ETXN, "transaction %" PRIu64 " is read-only", txn_id_of(t));
    if (t->doomed != 0)
        return CH_FAIL(t->doomed, "transaction %" PRIu64 ": a write of it has failed",
                       txn_id_of(t));
    rc = txns_before_write(ts);
    if (rc == 0)
        rc = txn_writer_begin(t);
    if (rc == 0 && t->locked)
        rc = txn_spill_all(t); /* D4 */
    if (rc == 0)
        rc = wal_reserve(ts->cfg.wal, WAL_SHRINK, WAL_RECORD_HEADER + PREPARE_HEAD + t->gid_bytes,
                         &ticket);
    if (rc == 0)
        rc = prepare_record(t, &ticket, lsn);
    wal_release(ts->cfg.wal, &ticket);
    return rc;
}

int
txn_prepare(struct txn *t, const void *gid, size_t gid_bytes)
{
    struct txns *ts = t->ts;
    lsn_t lsn = 0;
    int rc;
    int undo;

    state_set(t, TXN_PREPARING);
    rc = gid_take(t, gid, gid_bytes);
    if (rc != 0) {
        state_set(t, TXN_OPEN);
        return rc;
    }
    rc = prepare(t, &lsn);
    if (rc != 0) {
        undo = txn_abort(t);
        return undo != 0 ? undo : rc;
    }
    t->logged = true;
    rc = wal_flush(ts->cfg.wal, lsn);
    if (rc != 0) {
        txn_slot_fail(t, rc);
        return rc;
    }
    ver_view_release(ts->cfg.ver, &t->view);
    state_set(t, TXN_PREPARED);
    return 0;
}

/* ---- the decision ---- */

/* Nobody else decides from here on. */
static int
prepared_take(struct txns *ts, const void *gid, size_t gid_bytes, struct txn **out)
{
    struct txn *t = NULL;

    rt_lock(&ts->lock);
    if (gid_bytes > 0 && gid_bytes <= COHORT_GID_MAX)
        t = prepared_find(ts, gid, gid_bytes);
    if (t != NULL && atomic_load_explicit(&t->state, memory_order_acquire) != TXN_PREPARED)
        t = NULL;
    if (t != NULL)
        atomic_store_explicit(&t->state, TXN_DECIDING, memory_order_release);
    rt_unlock(&ts->lock);
    if (t == NULL)
        return CH_FAIL(COHORT_NOTFOUND, "no prepared transaction has that gid");
    *out = t;
    return 0;
}

int
txns_commit_prepared(struct txns *ts, const void *gid, size_t gid_bytes)
{
    struct txn *t;
    bool committed = false;
    uint64_t id;
    lsn_t lsn;
    int rc = prepared_take(ts, gid, gid_bytes, &t);

    if (rc != 0)
        return rc;
    id = txn_id_of(t);
    rc = txn_commit_writer(t, false, t->durability == COHORT_DURABILITY_SYNC, &lsn, &committed);
    if (committed)
        ver_unguard(ts->cfg.ver, id);
    else
        state_set(t, TXN_PREPARED);
    return rc;
}

/* D5 */
static int
abort_begin(struct txn *t)
{
    struct txns *ts = t->ts;
    unsigned tries = 0;
    int rc;

    do {
        struct wal_ticket credit = {0};

        rc = txns_credit(ts, WAL_SHRINK, &credit);
        if (rc == 0) {
            txn_claim(t);
            if (t->header == TXN_HEADER_PREPARED)
                rc = txn_header_write(ts, txn_id_of(t), TXN_HEADER_ACTIVE, NULL, 0);
            if (rc == 0) {
                t->header = t->header != TXN_HEADER_NONE ? TXN_HEADER_ACTIVE : TXN_HEADER_NONE;
                t->aborting = true;
                atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
            }
            txn_unclaim(t);
        }
        wal_release(ts->cfg.wal, &credit);
    } while (txn_no_room(rc) && txn_retry(ts, &tries));
    return rc;
}

int
txns_abort_prepared(struct txns *ts, const void *gid, size_t gid_bytes)
{
    struct txn *t;
    bool durable;
    uint64_t id;
    int rc = prepared_take(ts, gid, gid_bytes, &t);

    if (rc != 0)
        return rc;
    id = txn_id_of(t);
    durable = t->durability == COHORT_DURABILITY_SYNC;
    rc = abort_begin(t);
    if (rc != 0) {
        state_set(t, TXN_PREPARED);
        return rc;
    }
    ver_unprepare(ts->cfg.ver, t->w);
    rc = txn_abort_writer(t);
    if (rc != 0)
        return rc;
    ver_unguard(ts->cfg.ver, id);
    /* Who has decided forgets the gid: it must not come back. */
    return durable ? wal_flush(ts->cfg.wal, wal_end(ts->cfg.wal)) : 0;
}

int
txns_list_prepared(struct txns *ts, int (*visit)(void *arg, const void *gid, size_t gid_bytes),
                   void *arg)
{
    int rc = 0;

    rt_lock(&ts->lock);
    for (struct txn *t = ts->prepared; rc == 0 && t != NULL; t = t->next_prepared) {
        int state = atomic_load_explicit(&t->state, memory_order_acquire);

        if (state == TXN_PREPARED || state == TXN_DECIDING)
            rc = visit(arg, t->gid, t->gid_bytes);
    }
    rt_unlock(&ts->lock);
    return rc;
}
