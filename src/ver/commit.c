/* commit.c - writers' ends: the queue of commits and the horizon.
 *
 * Invariants:
 *   Q1  the queue holds committed writers in the order of their commit LSNs: the record is appended and the
 *       writer queued within one hold of commit_lock.
 *   Q2  horizon = commit LSN of the writer before `pending` (or what it was, when that is gone already): it moves
 *       over a writer once that is done, which a durable one is when the log is durable up to it. So it never
 *       goes back, and nobody becomes visible before those that are ahead of him.
 *   Q3  a descriptor's commit LSN is set before the horizon can reach it; readers compare the two.
 *   Q4  the counts of live writers' bytes leave with the commit, so `bytes - live_bytes` is what committed
 *       versions take.
 */
#include "base/bug.h"
#include "ver/ver_internal.h"

void
ver_commit_lock(struct ver *v)
{
    rt_lock(&v->commit_lock);
}

void
ver_commit_unlock(struct ver *v)
{
    rt_unlock(&v->commit_lock);
}

/* Q2; queue_lock held. Returns how many writers became visible, and entries of them. */
static uint64_t
horizon_move(struct ver *v)
{
    struct ver_txn *w = v->pending;
    lsn_t horizon = 0;
    uint64_t work = 0;

    for (; w != NULL; w = w->next) {
        lsn_t commit = atomic_load_explicit(&w->commit, memory_order_relaxed);

        if (w->durable && commit > v->durable && !CH_BUG(R15_VISIBLE_EARLY))
            break;
        horizon = commit;
        work += 1 + w->count;
    }
    v->pending = w;
    if (work == 0)
        return 0;
    atomic_store_explicit(&v->horizon, horizon, memory_order_release); /* Q3; partner: view.c */
    return work;
}

static void
queue_append(struct ver *v, struct ver_txn *w)
{
    w->prev = v->tail;
    w->next = NULL;
    if (v->tail != NULL)
        v->tail->next = w;
    else
        v->head = w;
    v->tail = w;
    if (v->pending == NULL)
        v->pending = w;
}

void
ver_commit_end(struct ver *v, struct ver_txn *w, lsn_t lsn, bool durable)
{
    uint64_t id = w->id; /* once queued it may be freed at any time */
    uint32_t slot = w->slot;
    uint64_t work;

    CH_ASSERT(ver_committed(w) == 0 && lsn > 0);
    atomic_fetch_sub_explicit(&v->live_bytes, atomic_load_explicit(&w->bytes, memory_order_relaxed),
                              memory_order_relaxed); /* Q4 */
    atomic_fetch_sub_explicit(&v->unspilled,
                              atomic_load_explicit(&w->unspilled, memory_order_relaxed),
                              memory_order_relaxed);
    ver_freed_end(v, w);
    if (slot != VER_NO_SLOT)
        v->slots[slot].live = NULL;
    ver_unprepare(v, w);
    w->durable = durable;
    rt_lock(&v->queue_lock);
    CH_ASSERT(v->tail == NULL || ver_committed(v->tail) < lsn); /* Q1 */
    CH_ASSERT(lsn > atomic_load_explicit(&v->horizon, memory_order_relaxed));
    atomic_store_explicit(&w->commit, lsn, memory_order_release); /* partner: ver_committed() */
    queue_append(v, w);
    work = horizon_move(v);
    rt_unlock(&v->queue_lock);
    rt_unlock(&v->commit_lock);
    ver_ended(v, slot, id);
    if (work > 0)
        ver_trim_some(v, work);
}

lsn_t
ver_advance(struct ver *v, lsn_t durable)
{
    uint64_t work = 0;

    rt_lock(&v->queue_lock);
    if (durable > v->durable) {
        v->durable = durable;
        work = horizon_move(v);
    }
    rt_unlock(&v->queue_lock);
    if (work > 0)
        ver_trim_some(v, work);
    return ver_horizon(v);
}

void
ver_abort_end(struct ver *v, struct ver_txn *w)
{
    uint32_t slot = w->slot;
    uint64_t id = w->id;

    ver_txn_discard(v, w);
    ver_ended(v, slot, id);
}
