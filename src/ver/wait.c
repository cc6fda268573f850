/* wait.c - waiting for a record that another transaction has written.
 *
 * Waiters stand in one list under wait_lock, each with the id that it waits for, and sleep on the condition
 * of that id modulo VER_WAIT_CONDS.
 *
 * Invariants:
 *   L1  no wakeup is lost. A waiter counts itself in waiting[] and then, wait_lock held, looks for the
 *       owner in the slots' `writer`; who ends clears `writer` and then looks at waiting[]. All four are
 *       seq_cst: either the waiter sees that the owner is gone, or the other sees the waiter, takes
 *       wait_lock (so it comes when the waiter sleeps) and wakes it.
 *   L2  a ring is closed by the last of its waits, which follows waits_for from its owner under
 *       wait_lock and gets DEADLOCK. An edge counts only while its owner is live and its waiter is not
 *       canceled: others wake by themselves.
 *   L3  one that ends holding page latches is an operation of its own, without a slot: nobody has ever
 *       met it as an owner, and wait_lock is not taken.
 *   L4  nor is a release lost that is not an end (ver_wake(), after a rollback to a savepoint): ver_owner
 *       carries the count of wakes from when the lock was met, under the chain's lock, where it is given up.
 */
#include "ver/ver_internal.h"

#include <inttypes.h>
#include <stdio.h>

static unsigned
cond_of(uint64_t id)
{
    return (unsigned)(id % VER_WAIT_CONDS);
}

static bool
is_live(struct ver *v, uint64_t id)
{
    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1) {
        if (atomic_load_explicit(&v->slots[slot].writer, memory_order_seq_cst) == id)
            return true; /* L1 */
    }
    return false;
}

static void
wake(struct ver *v, uint64_t id)
{
    if (atomic_load_explicit(&v->waiting[cond_of(id)], memory_order_seq_cst) == 0)
        return; /* L1 */
    rt_lock(&v->wait_lock);
    rt_broadcast(&v->wait_conds[cond_of(id)]);
    rt_unlock(&v->wait_lock);
}

void
ver_ended(struct ver *v, uint32_t slot, uint64_t id)
{
    if (slot == VER_NO_SLOT)
        return; /* L3 */
    atomic_store_explicit(&v->slots[slot].writer, 0, memory_order_seq_cst);
    wake(v, id);
}

static uint64_t
wakes_of(struct ver *v, uint64_t id)
{
    return atomic_load_explicit(&v->wakes[cond_of(id)], memory_order_seq_cst);
}

void
ver_owner_set(struct ver *v, const struct ver_txn *w, struct ver_owner *owner)
{
    *owner = (struct ver_owner){.id = w->id, .tag = w->tag, .wakes = wakes_of(v, w->id) + 1};
}

void
ver_wake(struct ver *v, const struct ver_txn *w)
{
    atomic_fetch_add_explicit(&v->wakes[cond_of(w->id)], 1, memory_order_seq_cst); /* L4 */
    wake(v, w->id);
}

void
ver_set_wait_hook(struct ver *v, ver_wait_fn *fn, void *arg)
{
    rt_lock(&v->wait_lock);
    v->hook = fn;
    v->hook_arg = arg;
    rt_unlock(&v->wait_lock);
}

static void
call_hook(struct ver *v, const struct ver_waiter *me, const struct ver_owner *owner)
{
    ver_wait_fn *fn;
    void *arg;

    rt_lock(&v->wait_lock);
    fn = v->hook;
    arg = v->hook_arg;
    rt_unlock(&v->wait_lock);
    if (fn != NULL)
        fn(arg, me->id, me->tag, owner->id, owner->tag);
}

/* Whom `id` waits for; 0 = nobody. wait_lock held. */
static uint64_t
edge_of(struct ver *v, uint64_t id)
{
    for (const struct ver_waiter *w = v->waiters; w != NULL; w = w->next) {
        if (w->id == id)
            return atomic_load_explicit(&w->canceled, memory_order_relaxed) ||
                           !is_live(v, w->waits_for)
                       ? 0
                       : w->waits_for; /* L2 */
    }
    return 0;
}

/* wait_lock held, `me` in the list. */
static int
look_for_ring(struct ver *v, const struct ver_waiter *me, uint64_t owner)
{
    char ring[192];
    size_t used;
    uint64_t at = owner;
    int n;

    if (me->id == 0)
        return 0; /* nobody waits for it */
    for (unsigned steps = 0; at != me->id; steps++) {
        at = edge_of(v, at);
        if (at == 0 || steps > v->cfg.slots_max)
            return 0;
    }
    n = snprintf(ring, sizeof(ring), "%" PRIu64, me->id);
    used = n > 0 ? (size_t)n : 0;
    for (at = owner; used < sizeof(ring); at = edge_of(v, at)) {
        n = snprintf(ring + used, sizeof(ring) - used, " -> %" PRIu64, at);
        used += n > 0 ? (size_t)n : 0;
        if (at == me->id)
            break;
    }
    atomic_fetch_add_explicit(&v->deadlocks, 1, memory_order_relaxed);
    return CH_FAIL(COHORT_DEADLOCK, "transactions wait in a ring: %s", ring);
}

static void
waiter_link(struct ver *v, struct ver_waiter *me, uint64_t owner)
{
    me->waits_for = owner;
    me->next = v->waiters;
    v->waiters = me;
    atomic_fetch_add_explicit(&v->waiting[cond_of(owner)], 1, memory_order_seq_cst); /* L1 */
}

static void
waiter_unlink(struct ver *v, struct ver_waiter *me)
{
    struct ver_waiter **at = &v->waiters;

    while (*at != me)
        at = &(*at)->next;
    *at = me->next;
    atomic_fetch_sub_explicit(&v->waiting[cond_of(me->waits_for)], 1, memory_order_seq_cst);
    me->waits_for = 0;
    me->next = NULL;
}

/* wait_lock held. `deadline` UINT64_MAX: none. */
static int
sleep_until_ended(struct ver *v, struct ver_waiter *me, uint64_t wakes, uint64_t deadline)
{
    uint64_t owner = me->waits_for;

    while (is_live(v, owner) && wakes_of(v, owner) == wakes) {
        uint64_t now = rt_now_ns();

        if (atomic_exchange_explicit(&me->canceled, false, memory_order_relaxed))
            return CH_FAIL(COHORT_CANCELED, "the wait for transaction %" PRIu64, owner);
        if (now >= deadline) {
            atomic_fetch_add_explicit(&v->timeouts, 1, memory_order_relaxed);
            return CH_FAIL(COHORT_TIMEOUT, "waiting for transaction %" PRIu64, owner);
        }
        (void)rt_wait_for(&v->wait_conds[cond_of(owner)], &v->wait_lock, deadline - now);
    }
    return 0;
}

int
ver_wait(struct ver *v, struct ver_waiter *me, const struct ver_owner *owner, uint64_t ns)
{
    uint64_t now = rt_now_ns();
    uint64_t deadline = ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
    uint64_t wakes = owner->wakes != 0 ? owner->wakes - 1 : wakes_of(v, owner->id);
    int rc;

    CH_ASSERT(owner->id != 0 && owner->id != me->id);
    call_hook(v, me, owner);
    rt_lock(&v->wait_lock);
    waiter_link(v, me, owner->id);
    rc = is_live(v, owner->id) ? look_for_ring(v, me, owner->id) : 0;
    if (rc == 0 && is_live(v, owner->id)) {
        atomic_fetch_add_explicit(&v->waits, 1, memory_order_relaxed);
        rc = sleep_until_ended(v, me, wakes, deadline);
    }
    waiter_unlink(v, me);
    rt_unlock(&v->wait_lock);
    return rc;
}

void
ver_cancel(struct ver *v, struct ver_waiter *w)
{
    rt_lock(&v->wait_lock);
    atomic_store_explicit(&w->canceled, true, memory_order_relaxed);
    if (w->waits_for != 0)
        rt_broadcast(&v->wait_conds[cond_of(w->waits_for)]);
    rt_unlock(&v->wait_lock);
}
