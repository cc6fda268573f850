/* rt_rank.h - which mutexes the calling thread holds, and the order in which it may take more; shared by rt_posix.c and
 * rt_sim.c.
 *
 * Every thread keeps a list of the mutexes it holds, in the order in which it took them:
 *
 *     held[0] .. held[depth - 1] = {mutex, highest key of this entry and all below}
 *
 * where a key is rank << 16 | order. So the check of a lock is one comparison with the last entry;
 * it is always on, and inline, as it goes with every lock.
 *
 * Invariants:
 *   T1  rt_lock(m): key(m) is above every key that the thread holds. Hence no cycle of waits.
 *   T2  only the thread that locked a mutex unlocks it or waits with it.
 *   T3  a thread ends holding nothing.
 *   T4  at most RT_HELD_MAX mutexes are held by a thread (a batch holds each of its map shards).
 *
 * rt_trylock() cannot wait, so it needs no T1; what it took counts for the locks that follow.
 * Waiting on a condition keeps the entry: the thread holds the mutex again when it goes on, and the
 * mutexes it holds besides were ordered against it when it locked it.
 *
 * Nothing here locks anything: the two implementations of rt.h call it around their own locking.
 */
#ifndef CH_RT_RT_RANK_H
#define CH_RT_RT_RANK_H

#include "rt/rt.h"

enum {
    RT_HELD_MAX = CH_BATCH_MAX + 32
};

struct rt_held {
    const struct rt_mutex *mutex;
    uint32_t key_max;
};
struct rt_holder { /* one a thread */
    struct rt_held held[RT_HELD_MAX];
    unsigned depth;
};
extern _Thread_local struct rt_holder rt_holder; /* rt_rank.c */

static inline uint32_t
rt_rank_key(const struct rt_mutex *m)
{
    return (uint32_t)m->rank << 16 | m->order;
}

static inline uint32_t
rt_rank_max(const struct rt_holder *h)
{
    return h->depth == 0 ? 0 : h->held[h->depth - 1].key_max;
}

/* T1: asserts that `m` may be waited for by a thread that holds what this one holds. */
static inline void
rt_rank_check(const struct rt_holder *h, const struct rt_mutex *m)
{
    CH_ASSERT(rt_rank_key(m) > rt_rank_max(h)); /* T1 */
}

/* The thread has got `m`, in any way. */
static inline void
rt_rank_push(struct rt_holder *h, const struct rt_mutex *m)
{
    uint32_t below = rt_rank_max(h);
    uint32_t key = rt_rank_key(m);

    CH_ASSERT(h->depth < RT_HELD_MAX); /* T4 */
    h->held[h->depth].mutex = m;
    h->held[h->depth].key_max = key > below ? key : below;
    h->depth++;
}

/* rt_rank_remove() of one that is not the last. */
void rt_rank_remove_inner(struct rt_holder *h, const struct rt_mutex *m);

/* It gives `m` back; asserts T2. */
static inline void
rt_rank_remove(struct rt_holder *h, const struct rt_mutex *m)
{
    if (CH_LIKELY(h->depth > 0 && h->held[h->depth - 1].mutex == m))
        h->depth--;
    else
        rt_rank_remove_inner(h, m);
}

bool rt_rank_holds(const struct rt_mutex *m);
unsigned rt_rank_depth(void);

#endif
