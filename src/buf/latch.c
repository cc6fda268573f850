/* latch.c - waiting for latch words: spin briefly, then park. The rules L1..L4 stand in latch.h. */
#include "buf/latch.h"
#include "base/bug.h"

enum {
    LATCH_SPINS = 128 /* about the time for which a page is latched by a hit */
};

void
latch_lot_init(struct latch_lot *lot)
{
    for (unsigned i = 0; i < LATCH_BUCKETS; i++) {
        rt_mutex_init(&lot->buckets[i].lock, RT_RANK_PARK, i);
        rt_cond_init(&lot->buckets[i].cond);
    }
}

void
latch_lot_fini(struct latch_lot *lot)
{
    for (unsigned i = 0; i < LATCH_BUCKETS; i++) {
        rt_cond_fini(&lot->buckets[i].cond);
        rt_mutex_fini(&lot->buckets[i].lock);
    }
}

static struct latch_bucket *
latch_bucket(struct latch_lot *lot, const struct latch *l)
{
    uint64_t h = (uint64_t)(uintptr_t)l * UINT64_C(0x9E3779B97F4A7C15);

    return &lot->buckets[h >> 57]; /* 128 buckets */
}

static bool
latch_blocks(uint64_t w, bool excl)
{
    if (excl)
        return (w & (LATCH_X | LATCH_SHARED)) != 0;
    return (w & LATCH_X) != 0 || ((w & LATCH_WAITERS) != 0 && (w & LATCH_SHARED) != 0); /* L3 */
}

/* One attempt; false when the word blocks. */
static bool
latch_take(struct latch *l, bool excl, uint64_t *seen)
{
    uint64_t w = atomic_load_explicit(&l->word, memory_order_relaxed);

    while (!latch_blocks(w, excl)) {
        uint64_t to = excl ? w | LATCH_X : w + 1;

        if (atomic_compare_exchange_weak_explicit(&l->word, &w, to, memory_order_acquire,
                                                  memory_order_relaxed)) {
#if !LATCH_TSAN
            atomic_thread_fence(memory_order_release); /* L4 */
#endif
            return true;
        }
    }
    *seen = w;
    return false;
}

static void
latch_wait(struct latch_lot *lot, struct latch *l, bool excl)
{
    struct latch_bucket *b = latch_bucket(lot, l);
    uint64_t w;

    for (unsigned i = 0; i < LATCH_SPINS; i++)
        if (latch_take(l, excl, &w))
            return;
    rt_lock(&b->lock);
    while (!latch_take(l, excl, &w)) {
        /* L2: the bit goes in only while the word still blocks; else look again. */
        if ((w & LATCH_WAITERS) == 0 &&
            !atomic_compare_exchange_strong_explicit(&l->word, &w, w | LATCH_WAITERS,
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        rt_wait(&b->cond, &b->lock);
    }
    rt_unlock(&b->lock);
}

void
latch_wait_shared(struct latch_lot *lot, struct latch *l)
{
    latch_wait(lot, l, false);
}

void
latch_wait_excl(struct latch_lot *lot, struct latch *l)
{
    latch_wait(lot, l, true);
}

void
latch_wake(struct latch_lot *lot, struct latch *l)
{
    struct latch_bucket *b = latch_bucket(lot, l);

    rt_lock(&b->lock);
    /* Who still cannot go on sets the bit again before it waits. */
    atomic_fetch_and_explicit(&l->word, ~LATCH_WAITERS, memory_order_relaxed);
    if (CH_BUG(LATCH_WAKES_ONE))
        rt_signal(&b->cond);
    else
        rt_broadcast(&b->cond);
    rt_unlock(&b->lock);
}
