/* latch.h - the latch word of a page: version, exclusive bit, waiters bit, shared count.
 *
 *     63                    26  25   24  23               0
 *    +------------------------+----+----+------------------+
 *    | version                | X  | W  | shared count     |
 *    +------------------------+----+----+------------------+
 *
 * Eight bytes a page are affordable for every page of a device, a mutex is not; so who must wait parks
 * in one of a few buckets, chosen by the word's address.
 *
 *   L1  X and a shared count > 0 never stand together.
 *   L2  W is set only under the bucket's lock and only while the word blocks the waiter; whoever unblocks the
 *       word sees W in the value that its release returned, and then takes the bucket's lock. So no
 *       wake-up is lost.
 *   L3  a reader that comes while W stands queues as well, so that readers cannot starve a writer.
 *   L4  the version changes only with the release of X. Setting X is followed by a release fence: a reader
 *       that saw a byte written under X also sees X, or a later version (the writer's half of a seqlock).
 *
 * Locks: bucket mutexes, rank PARK, held for moments. A latch is not a mutex: rt's rank check does not see it.
 */
#ifndef CH_BUF_LATCH_H
#define CH_BUF_LATCH_H

#include <stdatomic.h>

#include "base/bug.h"
#include "rt/rt.h"

#if defined(__SANITIZE_THREAD__)
#define LATCH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LATCH_TSAN 1
#endif
#endif
#ifndef LATCH_TSAN
#define LATCH_TSAN 0
#endif

#define LATCH_WAITERS (UINT64_C(1) << 24)
#define LATCH_SHARED  (LATCH_WAITERS - 1)
#define LATCH_X       (UINT64_C(1) << 25)
#define LATCH_VERSION (~((LATCH_X << 1) - 1))

struct latch {
    _Atomic uint64_t word; /* acquire on latching pairs with release on unlatching */
};

enum {
    LATCH_BUCKETS = 128
};
struct latch_bucket {
    struct rt_mutex lock;
    struct rt_cond cond;
};
struct latch_lot {
    struct latch_bucket buckets[LATCH_BUCKETS];
};
void latch_lot_init(struct latch_lot *lot);
void latch_lot_fini(struct latch_lot *lot);

/* The slow halves: spin, then park until latched. */
void latch_wait_shared(struct latch_lot *lot, struct latch *l);
void latch_wait_excl(struct latch_lot *lot, struct latch *l);
/* Wakes who waits for the word. */
void latch_wake(struct latch_lot *lot, struct latch *l);

/* Never waits, and ignores L3: who tries backs off otherwise, so it cannot starve anyone for long. */
static inline bool
latch_try_shared(struct latch *l)
{
    uint64_t w = atomic_load_explicit(&l->word, memory_order_relaxed);

    while ((w & LATCH_X) == 0)
        if (atomic_compare_exchange_weak_explicit(&l->word, &w, w + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static inline bool
latch_try_excl(struct latch *l)
{
    uint64_t w = atomic_load_explicit(&l->word, memory_order_relaxed);

    while ((w & (LATCH_X | LATCH_SHARED)) == 0)
        if (atomic_compare_exchange_weak_explicit(&l->word, &w, w | LATCH_X, memory_order_acquire,
                                                  memory_order_relaxed)) {
#if !LATCH_TSAN
            atomic_thread_fence(memory_order_release); /* L4; partner: latch_valid() */
#endif
            return true;
        }
    return false;
}

static inline void
latch_shared(struct latch_lot *lot, struct latch *l)
{
    uint64_t w = atomic_load_explicit(&l->word, memory_order_relaxed);

    if ((w & (LATCH_X | LATCH_WAITERS)) != 0 ||
        !atomic_compare_exchange_strong_explicit(&l->word, &w, w + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        latch_wait_shared(lot, l);
}

static inline void
latch_excl(struct latch_lot *lot, struct latch *l)
{
    if (!latch_try_excl(l))
        latch_wait_excl(lot, l);
}

static inline void
latch_unlock_shared(struct latch_lot *lot, struct latch *l)
{
    uint64_t w = atomic_fetch_sub_explicit(&l->word, 1, memory_order_release);

    if (CH_UNLIKELY((w & LATCH_WAITERS) != 0) && (w & LATCH_SHARED) == 1)
        latch_wake(lot, l);
}

/* `bump`: the contents or the frame of the page changed; optimistic readers must not count. */
static inline void
latch_unlock_excl(struct latch_lot *lot, struct latch *l, bool bump)
{
    uint64_t w;

    /* X is the bit below the version: adding it once more clears it and carries into the version. */
    if (bump && !CH_BUG(LATCH_NO_VERSION))
        w = atomic_fetch_add_explicit(&l->word, LATCH_X, memory_order_release);
    else
        w = atomic_fetch_sub_explicit(&l->word, LATCH_X, memory_order_release);
    if (CH_UNLIKELY((w & LATCH_WAITERS) != 0))
        latch_wake(lot, l);
}

/* From exclusive to shared, nothing between; the version stays. */
static inline void
latch_downgrade(struct latch_lot *lot, struct latch *l)
{
    uint64_t w = atomic_fetch_sub_explicit(&l->word, LATCH_X - 1, memory_order_release);

    if (CH_UNLIKELY((w & LATCH_WAITERS) != 0))
        latch_wake(lot, l);
}

/* Start of an optimistic read: the version, having waited while X stood. */
static inline uint64_t
latch_version(struct latch_lot *lot, struct latch *l)
{
    uint64_t w = atomic_load_explicit(&l->word, memory_order_acquire);

    while (CH_UNLIKELY((w & LATCH_X) != 0)) {
        latch_wait_shared(lot, l);
        latch_unlock_shared(lot, l);
        w = atomic_load_explicit(&l->word, memory_order_acquire);
    }
    return w & LATCH_VERSION;
}

/* End of an optimistic read: whether nothing was written since latch_version(). */
static inline bool
latch_valid(const struct latch *l, uint64_t version)
{
    uint64_t w;

#if LATCH_TSAN
    w = atomic_load_explicit(&l->word, memory_order_acquire);
#else
    atomic_thread_fence(memory_order_acquire); /* partner: the release fence of L4 */
    w = atomic_load_explicit(&l->word, memory_order_relaxed);
#endif
    return (w & (LATCH_VERSION | LATCH_X)) == version;
}

#endif
