/* wal_room.c - log room: reservations, and the checkpoint thread's wait for pressure (R8, R11).
 *
 * A reservation is granted when W3 and W4 (wal.c) hold with it: then nothing that the holder does
 * later can wait or overwrite. Reservations of a class that must wait are served in the order they came, so that
 * a large one is not starved; those of one class do not queue behind another's, and who fits beside all that
 * wait does not queue at all. Deletes and merges have a share that
 * other users' writes cannot take (R11): a full database can be emptied.
 *
 * What a waiter needs and who provides it:
 *   buffer, with appended bytes   a flush, which the waiter leads itself
 *   buffer, all of it granted     appends or releases of the holders, who never wait for room again
 *   ring                          wal_truncate() by whoever wal_pressure() wakes, or by the waiter's own call of the cutter
 *
 * WAL_MAP and WAL_SYSTEM never wait for the ring. The cleaner and GC, who ask for the first, are what a checkpoint waits
 * for before it can cut the log: they get EFULL and publish without a record (store.h, R11). Since they can do without,
 * they leave some to undo, which cannot, and nobody but recovery takes what it may need before it can cut.
 */
#include "base/bug.h"
#include "wal/wal_internal.h"

#include <inttypes.h>

enum {
    RING_VAIN_MAX = 500,
    RING_VAIN_NS = 1000 * 1000,
};

uint64_t
wal_active_bytes(const struct wal *w)
{
    uint64_t bytes = w->pos - w->sealed;
    uint64_t partial = bytes % WAL_BLOCK;

    return bytes / WAL_BLOCK * WAL_PAYLOAD + (partial > 0 ? partial - WAL_BLOCK_HEADER : 0);
}

uint64_t
wal_ring_blocks_used(const struct wal *w, uint64_t more_bytes, uint64_t more_pads)
{
    uint64_t active = wal_active_bytes(w);

    return (w->sealed - wal_block_of(w->cut)) / WAL_BLOCK +
           ch_div_up(active + w->granted + more_bytes, WAL_PAYLOAD) + w->pads + more_pads +
           (active > 0 ? 1 : 0);
}

uint64_t
wal_buf_blocks_used(const struct wal *w, uint64_t more_bytes)
{
    uint64_t in_flight = (w->sealed - w->durable) / WAL_BLOCK;

    return in_flight + (in_flight == 0 ? 1 : 0) +
           ch_div_up(wal_active_bytes(w) + w->granted + more_bytes, WAL_PAYLOAD);
}

void
wal_room_changed(struct wal *w)
{
    if (w->waiters > 0)
        rt_broadcast(&w->room);
    if (w->pressure_waiters > 0 &&
        (w->ring_waiters > 0 || wal_ring_blocks_used(w, 0, 0) > w->pressure_blocks))
        rt_broadcast(&w->press);
}

static uint64_t
class_blocks(const struct wal *w, enum wal_class c)
{
    uint64_t shrink = (w->user_blocks + w->system_blocks) / 2;

    switch (c) {
    case WAL_USER:
        return w->user_blocks;
    case WAL_SHRINK:
        return CH_BUG(R11_NO_DELETE_SHARE) ? w->user_blocks : shrink;
    case WAL_MAP:
        return (shrink + w->system_blocks) / 2;
    case WAL_SYSTEM:
    case WAL_CLASSES:
        break;
    }
    return w->system_blocks + (w->recovering ? w->recovery_blocks : 0);
}

static bool
never_waits(enum wal_class c)
{
    return c == WAL_SYSTEM || (c == WAL_MAP && !CH_BUG(R11_SYSTEM_WAITS));
}

static bool
ring_fits(const struct wal *w, enum wal_class c, uint64_t bytes)
{
    return wal_ring_blocks_used(w, bytes, WAL_TICKET_PADS) <= class_blocks(w, c);
}

/* Whether it fits beside all that waits already. Who finds it so need not queue: those in the queue lose nothing by it,
 * and a queue that nobody may pass never gets empty again, each thread waiting for the next to be scheduled. */
static bool
fits_beside(const struct wal *w, enum wal_class c, uint64_t bytes)
{
    uint64_t all = bytes;

    for (int i = 0; i < WAL_CLASSES; i++)
        all += w->waiting_bytes[i];
    return wal_ring_blocks_used(w, bytes + w->waiting_bytes[c],
                                WAL_TICKET_PADS + w->waiting_pads[c]) <= class_blocks(w, c) &&
           wal_buf_blocks_used(w, all) <= w->buf_blocks;
}

static bool
buf_fits(const struct wal *w, uint64_t bytes)
{
    return wal_buf_blocks_used(w, bytes) <= w->buf_blocks;
}

/* Whether an empty log would take it. The cut's own block stays even then. */
static bool
ever_fits(const struct wal *w, enum wal_class c, uint64_t bytes)
{
    uint64_t blocks = ch_div_up(bytes, WAL_PAYLOAD);

    return blocks + WAL_TICKET_PADS + 1 <= class_blocks(w, c) && blocks + 1 <= w->buf_blocks;
}

static void
waiter_enter(struct wal *w, enum wal_class c, uint64_t bytes, struct wal_waiter *me)
{
    w->waiters++;
    *w->waiting_end[c] = me;
    w->waiting_end[c] = &me->next;
    w->waiting_bytes[c] += bytes;
    w->waiting_pads[c] += WAL_TICKET_PADS;
}

static void
waiter_leave(struct wal *w, enum wal_class c, uint64_t bytes, struct wal_waiter *me)
{
    struct wal_waiter **p = &w->waiting[c];

    w->waiters--;
    w->waiting_bytes[c] -= bytes;
    w->waiting_pads[c] -= WAL_TICKET_PADS;

    while (*p != me) {
        CH_ASSERT(*p != NULL);
        p = &(*p)->next;
    }
    *p = me->next;
    if (me->next == NULL)
        w->waiting_end[c] = p;
    wal_room_changed(w); /* the next one may fit, too */
}

static void
ring_wait(struct wal *w)
{
    w->ring_waiters++;
    if (w->pressure_waiters > 0)
        rt_broadcast(&w->press);
    rt_wait(&w->room, &w->lock);
    w->ring_waiters--;
}

/* Cuts the log oneself; waits a little where that gave nothing, for others who hold it back. */
static int
ring_cut(struct wal *w, uint64_t bytes, unsigned *vain)
{
    void (*cut)(void *arg) = w->cutter;
    void *arg = w->cutter_arg;
    lsn_t before = w->cut;

    rt_unlock(&w->lock);
    cut(arg);
    rt_lock(&w->lock);
    if (w->cut != before) {
        *vain = 0;
        return 0;
    }
    if (++*vain > RING_VAIN_MAX)
        return CH_FAIL(COHORT_EFULL, "log: %" PRIu64 " bytes wait, and it cannot be cut", bytes);
    (void)rt_wait_for(&w->room, &w->lock, RING_VAIN_NS);
    return 0;
}

/* Waits, in the queue, until the reservation fits. */
static int
room_wait(struct wal *w, enum wal_class c, uint64_t bytes)
{
    struct wal_waiter me = {0};
    unsigned vain = 0;
    int rc = 0;

    waiter_enter(w, c, bytes, &me);
    while (rc == 0) {
        bool ring = ring_fits(w, c, bytes);

        if (w->failed)
            rc = wal_fail_again(w);
        else if (!ring && !never_waits(c) && w->uncut)
            rc = CH_FAIL(COHORT_EFAILED, "log: full, and nobody cuts it any more");
        else if (!ring && !never_waits(c) && w->full)
            rc = CH_FAIL(COHORT_EFULL, "log: %" PRIu64 " bytes wait, nothing to cut", bytes);
        else if (!ring && never_waits(c))
            rc = CH_FAIL(COHORT_EFULL, "log: no room for %" PRIu64 " bytes of the system", bytes);
        else if (w->waiting[c] != &me)
            rt_wait(&w->room, &w->lock);
        else if (!ring && w->cutter != NULL)
            rc = ring_cut(w, bytes, &vain);
        else if (!ring)
            ring_wait(w);
        else if (buf_fits(w, bytes))
            break;
        else if (w->pos > w->durable && !w->busy)
            wal_lead(w);
        else
            rt_wait(&w->room, &w->lock);
    }
    waiter_leave(w, c, bytes, &me);
    return rc;
}

/* ---- the pool (W7) ---- */

void
wal_pool_limit(struct wal *w)
{
    uint64_t ring = w->user_blocks / WAL_POOL_SHARE / (1 + WAL_TICKET_PADS);
    uint64_t buf = w->buf_blocks / WAL_POOL_SHARE * WAL_PAYLOAD / WAL_POOL_BYTES;

    w->pool_max = (uint32_t)ch_min_u64(ch_min_u64(ring, buf), WAL_POOL_STRIPES * WAL_POOL_EACH);
}

static _Atomic uint32_t *
stripe_of(struct wal *w)
{
    return &w->stripes[rt_thread_number() % WAL_POOL_STRIPES].tickets;
}

/* Where use is so low that nobody else will be short of it soon. */
static bool
pool_has_room(const struct wal *w, uint32_t more)
{
    return wal_ring_blocks_used(w, (uint64_t)more * WAL_POOL_BYTES,
                                (uint64_t)more * WAL_TICKET_PADS) <= w->user_blocks / 4 * 3 &&
           wal_buf_blocks_used(w, (uint64_t)more * WAL_POOL_BYTES) <= w->buf_blocks / 4 * 3;
}

void
wal_pool_refill(struct wal *w)
{
    _Atomic uint32_t *stripe = stripe_of(w);
    uint32_t have = atomic_load_explicit(stripe, memory_order_relaxed);
    uint32_t more;

    if (CH_LIKELY(have > WAL_POOL_EACH / 2) || w->pooled >= w->pool_max)
        return;
    more = (uint32_t)ch_min_u64(WAL_POOL_EACH - have, w->pool_max - w->pooled);
    if (w->waiters > 0 || w->failed || w->full || w->uncut || w->recovering || w->cutter != NULL ||
        !pool_has_room(w, more))
        return;
    w->pooled += more;
    w->granted += (uint64_t)more * WAL_POOL_BYTES;
    w->pads += (uint64_t)more * WAL_TICKET_PADS;
    atomic_fetch_add_explicit(stripe, more, memory_order_release);
}

void
wal_pool_drain(struct wal *w)
{
    if (w->pooled == 0)
        return;
    for (unsigned i = 0; i < WAL_POOL_STRIPES; i++) {
        uint32_t n = atomic_exchange_explicit(&w->stripes[i].tickets, 0, memory_order_acquire);

        w->pooled -= n;
        w->granted -= (uint64_t)n * WAL_POOL_BYTES;
        w->pads -= (uint64_t)n * WAL_TICKET_PADS;
    }
}

static bool
pool_take(struct wal *w)
{
    _Atomic uint32_t *stripe = stripe_of(w);
    uint32_t have = atomic_load_explicit(stripe, memory_order_relaxed);

    while (have > 0) {
        if (atomic_compare_exchange_weak_explicit(stripe, &have, have - 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

void
wal_ticket_end(struct wal *w, struct wal_ticket *t)
{
    CH_ASSERT(w->granted >= t->bytes + t->spare && w->pads >= t->pads);
    w->granted -= t->bytes + t->spare;
    w->pads -= t->pads;
    w->pooled -= t->pooled ? 1 : 0;
    t->bytes = t->pads = t->spare = 0;
    t->pooled = false;
}

/* ---- reservations ---- */

static int
reserve(struct wal *w, enum wal_class c, uint64_t bytes)
{
    if (w->failed)
        return wal_fail_again(w);
    if (!ever_fits(w, c, bytes))
        return CH_FAIL(COHORT_EBATCHSIZE, "log: reservation of %" PRIu64 " bytes", bytes);
    if (fits_beside(w, c, bytes))
        return 0;
    wal_pool_drain(w); /* W7 */
    return fits_beside(w, c, bytes) ? 0 : room_wait(w, c, bytes);
}

int
wal_reserve(struct wal *w, enum wal_class c, uint64_t bytes, struct wal_ticket *t)
{
    int rc;

    rt_point();
    if ((c == WAL_USER || c == WAL_SHRINK) && bytes <= WAL_POOL_BYTES && pool_take(w)) {
        t->bytes = bytes;
        t->spare = WAL_POOL_BYTES - bytes;
        t->pads = WAL_TICKET_PADS;
        t->pooled = true;
        return 0;
    }
    rt_lock(&w->lock);
    rc = reserve(w, c, bytes);
    if (rc == 0) {
        w->granted += bytes;
        w->pads += WAL_TICKET_PADS;
        t->bytes = bytes;
        t->spare = 0;
        t->pads = WAL_TICKET_PADS;
        t->pooled = false;
        wal_room_changed(w);
    }
    rt_unlock(&w->lock);
    return rc;
}

void
wal_release(struct wal *w, struct wal_ticket *t)
{
    if (t->bytes == 0 && t->pads == 0)
        return;
    rt_lock(&w->lock);
    wal_ticket_end(w, t);
    wal_room_changed(w);
    rt_unlock(&w->lock);
}

void
wal_usage(struct wal *w, uint64_t *used, uint64_t *size)
{
    rt_lock(&w->lock);
    wal_pool_drain(w); /* what nobody uses */
    *used = wal_ring_blocks_used(w, 0, 0) * WAL_BLOCK;
    *size = w->ring_blocks * WAL_BLOCK;
    rt_unlock(&w->lock);
}

bool
wal_pressure(struct wal *w, unsigned percent, uint64_t ns)
{
    uint64_t deadline = rt_now_ns() + ns;
    uint64_t now;
    bool wanted;

    rt_lock(&w->lock);
    w->pressure_waiters++;
    for (;;) {
        w->pressure_blocks = w->ring_blocks * percent / 100;
        wanted = w->ring_waiters > 0 || wal_ring_blocks_used(w, 0, 0) > w->pressure_blocks;
        now = rt_now_ns();
        if (wanted || w->woken || now >= deadline)
            break;
        (void)rt_wait_for(&w->press, &w->lock, deadline - now);
    }
    w->woken = false;
    w->pressure_waiters--;
    rt_unlock(&w->lock);
    return wanted;
}

bool
wal_is_half_full(const struct wal *w)
{
    return !w->busy && !w->failed && wal_active_bytes(w) >= w->buf_blocks * WAL_PAYLOAD / 2;
}

bool
wal_half_full(struct wal *w, uint64_t ns, uint64_t *wakes)
{
    uint64_t deadline = rt_now_ns() + ns;
    bool half;

    rt_lock(&w->lock);
    w->half_waiters++;
    for (;;) {
        uint64_t now = rt_now_ns();

        half = wal_is_half_full(w);
        if (half || w->wakes != *wakes || now >= deadline)
            break;
        (void)rt_wait_for(&w->half, &w->lock, deadline - now);
    }
    *wakes = w->wakes;
    w->half_waiters--;
    rt_unlock(&w->lock);
    return half;
}

void
wal_wake(struct wal *w)
{
    rt_lock(&w->lock);
    w->woken = true;
    w->wakes++;
    rt_broadcast(&w->press);
    rt_broadcast(&w->half);
    rt_unlock(&w->lock);
}

void
wal_set_full(struct wal *w, bool full)
{
    rt_lock(&w->lock);
    w->full = full;
    wal_pool_drain(w); /* W7 */
    wal_room_changed(w);
    rt_unlock(&w->lock);
}

void
wal_set_cutter(struct wal *w, void (*cut)(void *arg), void *arg)
{
    rt_lock(&w->lock);
    w->cutter = cut;
    w->cutter_arg = arg;
    wal_pool_drain(w); /* W7 */
    wal_room_changed(w);
    rt_unlock(&w->lock);
}

void
wal_set_recovering(struct wal *w, bool recovering)
{
    rt_lock(&w->lock);
    w->recovering = recovering;
    wal_pool_drain(w); /* W7 */
    wal_room_changed(w);
    rt_unlock(&w->lock);
}

void
wal_set_uncut(struct wal *w)
{
    rt_lock(&w->lock);
    w->uncut = true;
    wal_pool_drain(w); /* W7 */
    wal_room_changed(w);
    rt_unlock(&w->lock);
}
