/* trim.c - what nobody needs any more: trimming, relief when memory is short, ghosts, cleanup.
 *
 * Two ways out for an entry, both under trim_lock, which makes lists of committed writers the trimmer's:
 *
 *   trim   from the head of the queue: writers whose commit all views see (limit, W5).
 *   prune  from the middle: each writer is looked at once when it is visible. An entry of commit c whose
 *          next older change in the chain has commit c' is read by views with c' <= H < c only:
 *          those that see the older change and not this one. Without such a view it goes. So a reader that
 *          stays open for long holds one version of each record, not all of them.
 *
 * Invariants:
 *   P1  trim takes entries in commit order and each writer's oldest first, so a trimmed entry is the
 *       lowest of its chain (C2), but for committed LOCKs.
 *   P2  prune only takes commits <= snap_bound: views that are not in snaps[] see them (W5).
 *   P3  of the entries of a record that were committed after a published snapshot, the oldest is never
 *       pruned: the snapshot lies between it and the one before. So ver_validate(), whose view is published,
 *       still finds every record that was written after it. A writer of whole trees stays until trim takes it.
 *   P4  a descriptor is freed when its list is empty, unless validation has pinned it; one that was
 *       spilled waits in the list for ver_take_cleanup(): no view reads its part of the undo tree.
 *   P5  `pruned` is NULL or in the queue; what is before it was looked at.
 *   P6  the pending writers are left alone: the limit and snap_bound are at most the horizon.
 *
 * Relief: kill before trim (R15, W7). Snapshots are killed only while committed versions take more than
 * half of the bound; otherwise live writers' images are what fills it, and those can be spilled.
 */
#include "base/bug.h"
#include "ver/ver_internal.h"

#include <stdlib.h>

/* ---- the queue's links; trim_lock held ------------------------------------------------------------ */

static struct ver_txn *
queue_head(struct ver *v)
{
    struct ver_txn *w;

    rt_lock(&v->queue_lock);
    w = v->head;
    rt_unlock(&v->queue_lock);
    return w;
}

static struct ver_txn *
queue_next(struct ver *v, const struct ver_txn *w)
{
    struct ver_txn *next;

    rt_lock(&v->queue_lock);
    next = w != NULL ? w->next : v->head;
    rt_unlock(&v->queue_lock);
    return next;
}

/* P4 */
static void
queue_remove(struct ver *v, struct ver_txn *w)
{
    bool spilled = w->spilled; /* then ver_take_cleanup() frees it, at any time after the unlock */

    if (v->pruned == w)
        v->pruned = w->prev; /* P5 */
    rt_lock(&v->queue_lock);
    CH_ASSERT(w != atomic_load_explicit(&v->pending, memory_order_relaxed)); /* P6 */
    atomic_fetch_sub_explicit(&v->queued, 1, memory_order_relaxed);
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        v->head = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        v->tail = w->prev;
    if (spilled) {
        w->next = v->cleanup;
        v->cleanup = w;
        atomic_fetch_add_explicit(&v->cleanups, 1, memory_order_relaxed);
    }
    rt_unlock(&v->queue_lock);
    if (!spilled)
        ver_txn_free(v, w);
}

/* ---- trim and prune ---------------------------------------------------------------------------------- */

/* True: budget is left, the head is out of reach. */
static bool
trim_head(struct ver *v, unsigned *budget)
{
    struct ver_txn *w;

    while ((w = queue_head(v)) != NULL && ver_committed(w) <= v->limit && w->pins == 0) {
        if (v->prune_at != NULL && v->prune_at->writer == w)
            v->prune_at = NULL;
        while (ver_oldest(w) != NULL && *budget > 0) {
            ver_entry_remove(v, ver_oldest(w)); /* P1 */
            --*budget;
        }
        if (*budget == 0)
            return false;
        --*budget;
        queue_remove(v, w);
    }
    return true;
}

static int
snap_compare(const void *a, const void *b)
{
    const lsn_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Whether a published view has from <= snap < to. snaps[] is sorted. */
static bool
snap_between(const struct ver *v, lsn_t from, lsn_t to)
{
    unsigned lo = 0, hi = v->snap_count;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (v->snaps[mid] < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < v->snap_count && v->snaps[lo] < to && !CH_BUG(R15_PRUNES_NEEDED);
}

/* The entry's writer is at most snap_bound. `below` may not change: only trim_lock's holder takes
 * committed entries out, and pushes go on top. */
static bool
prunable(const struct ver *v, const struct ver_entry *e)
{
    const struct ver_entry *below = e->below;

    if (e->kind == VER_WAS_LOCK)
        return true;
    while (below != NULL && below->kind == VER_WAS_LOCK)
        below = below->below;
    return !snap_between(v, below != NULL ? ver_committed(below->writer) : 0,
                         ver_committed(e->writer));
}

static bool
prune_writer(struct ver *v, struct ver_txn *w, unsigned *budget)
{
    struct ver_entry *next;

    for (struct ver_entry *e = v->prune_at != NULL ? v->prune_at : ver_oldest(w); e != NULL;
         e = next) {
        next = ver_newer(e);
        if (*budget == 0) {
            v->prune_at = e;
            return false;
        }
        --*budget;
        if (prunable(v, e))
            ver_entry_remove(v, e);
    }
    v->prune_at = NULL;
    return true;
}

static bool
prune(struct ver *v, unsigned *budget)
{
    struct ver_txn *w;

    while ((w = queue_next(v, v->pruned)) != NULL && ver_committed(w) <= v->snap_bound) { /* P2 */
        if (*budget == 0 || !prune_writer(v, w, budget))
            return false;
        v->pruned = w;
        --*budget;
        if (ver_oldest(w) == NULL && w->pins == 0 && w->whole_count == 0) /* P3 */
            queue_remove(v, w);
        if (*budget == 0)
            return false;
    }
    return true;
}

bool
ver_trim_step(struct ver *v, unsigned max)
{
    unsigned budget = max > 0 ? max : 1;

    ver_views_look(v);
    if (!trim_head(v, &budget))
        return true;
    if (queue_head(v) == NULL)
        return false;
    qsort(v->snaps, v->snap_count, sizeof(v->snaps[0]), snap_compare);
    return !prune(v, &budget);
}

bool
ver_trim(struct ver *v, unsigned max)
{
    bool more;

    rt_lock(&v->trim_lock);
    more = ver_trim_step(v, max);
    rt_unlock(&v->trim_lock);
    return more;
}

void
ver_trim_some(struct ver *v, uint64_t work)
{
    uint64_t owed = work + atomic_fetch_add_explicit(&v->owed, work, memory_order_relaxed);
    uint64_t look_after = atomic_load_explicit(&v->look_after, memory_order_relaxed);
    uint64_t max = VER_TRIM_MAX + 4 * look_after;

    /* A look costs as much as there are views; with many of them it is taken less often. */
    if (owed < look_after || !rt_trylock(&v->trim_lock))
        return;
    owed = atomic_exchange_explicit(&v->owed, 0, memory_order_relaxed);
    (void)ver_trim_step(v, (unsigned)ch_clamp_u64(2 * owed, VER_TRIM_MIN, max));
    atomic_store_explicit(&v->look_after, v->snap_count / 8, memory_order_relaxed);
    rt_unlock(&v->trim_lock);
}

/* ---- relief --------------------------------------------------------------------------------------- */

static bool
over(const struct ver *v)
{
    return atomic_load_explicit(&v->bytes, memory_order_relaxed) > v->cfg.bytes_max;
}

/* Committed versions take more than half of the bound. */
static bool
committed_over(const struct ver *v)
{
    uint64_t bytes = atomic_load_explicit(&v->bytes, memory_order_relaxed);
    uint64_t live = atomic_load_explicit(&v->live_bytes, memory_order_relaxed);

    return bytes > live && bytes - live > v->cfg.bytes_max / 2;
}

/* Everything that can go without killing anybody; lets others in between the steps. */
static void
trim_all(struct ver *v)
{
    while (over(v) && ver_trim(v, VER_TRIM_MAX))
        rt_point();
}

/* Once more for writers that were looked at when there were more views. */
static void
trim_restart(struct ver *v)
{
    rt_lock(&v->trim_lock);
    v->pruned = NULL;
    v->prune_at = NULL;
    rt_unlock(&v->trim_lock);
}

static void
trim_anew(struct ver *v)
{
    trim_restart(v);
    trim_all(v);
}

/* Kills the oldest view, unless what is left is not visible to anybody yet. */
static bool
kill_one(struct ver *v, uint32_t except)
{
    const struct ver_txn *head;
    bool killed;

    rt_lock(&v->trim_lock);
    head = queue_head(v);
    killed = head != NULL && ver_committed(head) <= ver_horizon(v) && ver_views_kill(v, except);
    rt_unlock(&v->trim_lock);
    return killed;
}

bool
ver_relieve(struct ver *v)
{
    if (CH_LIKELY(!over(v)))
        return false;
    trim_all(v);
    if (over(v) && committed_over(v))
        trim_anew(v);
    while (over(v) && committed_over(v) && kill_one(v, VER_NO_SLOT))
        trim_anew(v);
    return over(v);
}

bool
ver_give_up(struct ver *v, const struct ver_view *own)
{
    while (ver_trim(v, VER_TRIM_MAX)) /* announces the bound, too */
        rt_point();
    if (!kill_one(v, own != NULL ? own->slot : VER_NO_SLOT))
        return false;
    trim_restart(v);
    while (ver_trim(v, VER_TRIM_MAX))
        rt_point();
    return true;
}

/* ---- ghosts ------------------------------------------------------------------------------------------ */

enum {
    GHOST_HEAD = 6 /* tree, bytes of the key */
};

static void
ring_put(struct ver *v, size_t at, const void *data, size_t bytes)
{
    size_t first = ch_min_u64(bytes, VER_GHOST_BYTES - at % VER_GHOST_BYTES);

    memcpy(v->ghosts + at % VER_GHOST_BYTES, data, first);
    memcpy(v->ghosts, (const uint8_t *)data + first, bytes - first);
}

static void
ring_get(const struct ver *v, size_t at, void *data, size_t bytes)
{
    size_t first = ch_min_u64(bytes, VER_GHOST_BYTES - at % VER_GHOST_BYTES);

    memcpy(data, v->ghosts + at % VER_GHOST_BYTES, first);
    memcpy((uint8_t *)data + first, v->ghosts, bytes - first);
}

/* ghost_lock held. More trees than are remembered: their ghosts wait for writes that need the room. */
static void
ghost_lost(struct ver *v, uint32_t tree)
{
    for (unsigned i = 0; i < v->lost_count; i++) {
        if (v->lost[i] == tree)
            return;
    }
    if (v->lost_count == VER_LOST_TREES)
        return;
    v->lost[v->lost_count++] = tree;
    atomic_fetch_add_explicit(&v->ghost_count, 1, memory_order_relaxed);
}

bool
ver_take_lost(struct ver *v, uint32_t *tree)
{
    bool taken = false;

    if (atomic_load_explicit(&v->ghost_count, memory_order_relaxed) == 0)
        return false;
    rt_lock(&v->ghost_lock);
    if (v->lost_count > 0) {
        *tree = v->lost[--v->lost_count];
        atomic_fetch_sub_explicit(&v->ghost_count, 1, memory_order_relaxed);
        taken = true;
    }
    rt_unlock(&v->ghost_lock);
    return taken;
}

void
ver_ghost_add(struct ver *v, uint32_t tree, const uint8_t *key, size_t bytes)
{
    uint8_t head[GHOST_HEAD];

    ch_put32(head, tree);
    ch_put16(head + 4, (uint16_t)bytes);
    rt_lock(&v->ghost_lock);
    if (v->ghost_used + GHOST_HEAD + bytes > VER_GHOST_BYTES) {
        ghost_lost(v, tree);
    } else {
        ring_put(v, v->ghost_at + v->ghost_used, head, GHOST_HEAD);
        if (bytes > 0)
            ring_put(v, v->ghost_at + v->ghost_used + GHOST_HEAD, key, bytes);
        v->ghost_used += GHOST_HEAD + bytes;
        atomic_fetch_add_explicit(&v->ghost_count, 1, memory_order_relaxed);
    }
    rt_unlock(&v->ghost_lock);
}

bool
ver_take_ghost(struct ver *v, uint32_t *tree, uint8_t *key, size_t *key_bytes)
{
    uint8_t head[GHOST_HEAD];
    bool taken = false;

    if (atomic_load_explicit(&v->ghost_count, memory_order_relaxed) == 0)
        return false;
    rt_lock(&v->ghost_lock);
    if (v->ghost_used > 0) {
        ring_get(v, v->ghost_at, head, GHOST_HEAD);
        *tree = ch_get32(head);
        *key_bytes = ch_get16(head + 4);
        ring_get(v, v->ghost_at + GHOST_HEAD, key, *key_bytes);
        v->ghost_at = (v->ghost_at + GHOST_HEAD + *key_bytes) % VER_GHOST_BYTES;
        v->ghost_used -= GHOST_HEAD + *key_bytes;
        atomic_fetch_sub_explicit(&v->ghost_count, 1, memory_order_relaxed);
        taken = true;
    }
    rt_unlock(&v->ghost_lock);
    return taken;
}

bool
ver_take_cleanup(struct ver *v, uint64_t *txn)
{
    struct ver_txn *w = NULL;

    if (atomic_load_explicit(&v->cleanups, memory_order_relaxed) == 0)
        return false;
    rt_lock(&v->queue_lock);
    w = v->cleanup;
    if (w != NULL) {
        v->cleanup = w->next;
        *txn = w->id;
        atomic_fetch_sub_explicit(&v->cleanups, 1, memory_order_relaxed);
    }
    rt_unlock(&v->queue_lock);
    if (w == NULL)
        return false;
    ver_txn_free(v, w);
    return true;
}
