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
 *   Q5  `pending` leaves NULL under commit_lock only. So whoever finds it NULL (acquire; release of who moved the
 *       horizon over the last one) under commit_lock finds the horizon at rest, all commits before his own being visible;
 *       and one that need not be durable is visible at once: he moves the horizon himself.
 *   Q6  such a commit knows, before it gives commit_lock back, which views are older (view.c): it takes the entries out that
 *       none of them reads, or makes none, and is queued only if any is left. Meanwhile no entry of a committed
 *       writer lies above its own, for that one's commit would come later: so it needs no trim_lock for that.
 */
#include "base/bug.h"
#include "ver/ver_internal.h"

#include <stdlib.h>

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
    struct ver_txn *w = atomic_load_explicit(&v->pending, memory_order_relaxed);
    lsn_t horizon = 0;
    uint64_t work = 0;

    for (; w != NULL; w = w->next) {
        lsn_t commit = atomic_load_explicit(&w->commit, memory_order_relaxed);

        if (w->durable && commit > v->durable && !CH_BUG(R15_VISIBLE_EARLY))
            break;
        horizon = commit;
        work += 1 + w->count;
    }
    if (work == 0)
        return 0;
    atomic_store_explicit(&v->horizon, horizon, memory_order_release); /* Q3; partner: view.c */
    atomic_store_explicit(&v->pending, w, memory_order_release);       /* Q5 */
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
    atomic_fetch_add_explicit(&v->queued, 1, memory_order_relaxed);
    if (!w->visible && atomic_load_explicit(&v->pending, memory_order_relaxed) == NULL)
        atomic_store_explicit(&v->pending, w, memory_order_relaxed);
}

/* Commit lock held, the commit LSN is set. Returns what is visible now, as horizon_move(). */
static uint64_t
enqueue(struct ver *v, struct ver_txn *w)
{
    uint64_t work;

    rt_lock(&v->queue_lock);
    CH_ASSERT(v->tail == NULL || ver_committed(v->tail) < ver_committed(w)); /* Q1 */
    queue_append(v, w);
    work = w->visible ? 1 + w->count : horizon_move(v);
    rt_unlock(&v->queue_lock);
    return work;
}

/* Q5. Commit lock held; the commit LSN of the writer, if there is one, is set. */
static bool
visible_at_once(struct ver *v, lsn_t lsn, bool durable)
{
    CH_ASSERT(lsn > atomic_load_explicit(&v->horizon, memory_order_relaxed));
    if (durable || atomic_load_explicit(&v->pending, memory_order_acquire) != NULL)
        return false;
    atomic_store_explicit(&v->horizon, lsn, memory_order_release); /* Q3; partner: view.c */
    return true;
}

/* Work for ver_trim_some() where the commit itself left none: what is queued from before is looked at by and by. */
static uint64_t
leftover(const struct ver *v)
{
    return atomic_load_explicit(&v->queued, memory_order_relaxed) > 0 ? 1 : 0;
}

/* Q4 */
static void
live_end(struct ver *v, struct ver_txn *w)
{
    uint64_t bytes = atomic_load_explicit(&w->told_bytes, memory_order_relaxed);
    uint64_t unspilled = atomic_load_explicit(&w->told_unspilled, memory_order_relaxed);

    if (bytes > 0)
        atomic_fetch_sub_explicit(&v->live_bytes, bytes, memory_order_relaxed);
    if (unspilled > 0)
        atomic_fetch_sub_explicit(&v->unspilled, unspilled, memory_order_relaxed);
}

/* Q6. True: nothing is left of it. */
static bool
settle(struct ver *v, struct ver_txn *w, lsn_t lsn)
{
    lsn_t snap;
    bool below;

    if (w->spilled || w->whole_count > 0 || w->count > VER_SETTLE_MAX)
        return false;
    below = ver_views_below(v, lsn, &snap);
    ver_settle(v, w, below, snap);
    return w->count == 0;
}

void
ver_commit_end(struct ver *v, struct ver_txn *w, lsn_t lsn, bool durable)
{
    uint64_t id = w->id; /* once queued it may be freed at any time */
    uint32_t slot = w->slot;
    uint64_t work;
    bool done;

    CH_ASSERT(ver_committed(w) == 0 && lsn > 0);
    live_end(v, w);
    ver_freed_end(v, w);
    if (slot != VER_NO_SLOT)
        v->slots[slot].live = NULL;
    ver_unprepare(v, w);
    w->durable = durable;
    atomic_store_explicit(&w->commit, lsn, memory_order_release); /* partner: ver_committed() */
    w->visible = visible_at_once(v, lsn, durable);
    done = w->visible && settle(v, w, lsn);
    if (!done)
        ver_tell_bytes(v, w, 0);
    work = done ? leftover(v) : enqueue(v, w);
    rt_unlock(&v->commit_lock);
    if (done)
        ver_txn_free(v, w);
    ver_ended(v, slot, id);
    if (work > 0)
        ver_trim_some(v, work);
}

/* ---- operations of their own ---- */

int
ver_own_begin(struct ver *v, const struct ver_own *own)
{
    size_t bytes = ver_own_bytes(own);
    void *p;

    if (CH_LIKELY(v->spare_bytes >= bytes))
        return 0;
    p = malloc(bytes);
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "a version of %zu bytes", own->key.bytes + own->before_bytes);
    free(v->spare);
    v->spare = p;
    v->spare_bytes = bytes;
    return 0;
}

/* The memory that ver_own_begin() has left, little more than is needed. */
static void *
spare_take(struct ver *v, size_t bytes)
{
    enum {
        SLACK = 64
    };
    void *p = v->spare, *less = NULL;

    CH_ASSERT(p != NULL && v->spare_bytes >= bytes);
    if (v->spare_bytes > bytes + SLACK)
        less = realloc(p, bytes);
    v->spare = NULL;
    v->spare_bytes = 0;
    return less != NULL ? less : p;
}

void
ver_own_end(struct ver *v, const struct ver_own *own, lsn_t lsn, bool durable)
{
    uint64_t hash = ver_hash(v, own->key);
    bool visible = visible_at_once(v, lsn, durable), needed = true;
    struct ver_txn *w;
    uint64_t work;
    lsn_t snap;

    if (visible) { /* Q6 */
        bool below = ver_views_below(v, lsn, &snap);

        needed = ver_own_needed(v, own, hash, below, snap);
    }
    if (needed) {
        w = ver_own_make(v, spare_take(v, ver_own_bytes(own)), own, hash, lsn);
        w->durable = durable;
        w->visible = visible;
        ver_own_push(v, w);
        work = enqueue(v, w);
    } else {
        work = leftover(v);
    }
    rt_unlock(&v->commit_lock);
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
