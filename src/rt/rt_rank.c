/* rt_rank.c - the mutexes that a thread holds, and the order in which it may take more.
 *
 * Every thread keeps a list of the mutexes it holds, in the order in which it took them:
 *
 *     held[0] .. held[depth - 1] = {mutex, highest key of this entry and all below}
 *
 * where a key is rank << 16 | order. So the check of a lock is one comparison with the last entry;
 * it is always on.
 *
 * Invariants:
 *   T1  rt_lock(m): key(m) is above every key that the thread holds. Hence no cycle of waits.
 *   T2  only the thread that locked a mutex unlocks it or waits with it.
 *   T3  a thread ends holding nothing.
 *   T4  at most HELD_MAX mutexes are held by a thread (a batch holds each of its map shards).
 *
 * rt_trylock() cannot wait, so it needs no T1; what it took counts for the locks that follow.
 * Waiting on a condition keeps the entry: the thread holds the mutex again when it goes on, and the
 * mutexes it holds besides were ordered against it when it locked it.
 */
#include "rt/rt_rank.h"

enum {
    HELD_MAX = CH_BATCH_MAX + 32
};

struct held {
    const struct rt_mutex *mutex;
    uint32_t key_max;
};

static _Thread_local struct {
    struct held held[HELD_MAX];
    unsigned depth;
} self;

static uint32_t
mutex_key(const struct rt_mutex *m)
{
    return (uint32_t)m->rank << 16 | m->order;
}

static uint32_t
held_key_max(unsigned depth)
{
    return depth == 0 ? 0 : self.held[depth - 1].key_max;
}

static bool
held_find(const struct rt_mutex *m, unsigned *index)
{
    for (unsigned i = self.depth; i > 0; i--) {
        if (self.held[i - 1].mutex == m) {
            *index = i - 1;
            return true;
        }
    }
    return false;
}

void
rt_rank_check(const struct rt_mutex *m)
{
    CH_ASSERT(mutex_key(m) > held_key_max(self.depth)); /* T1 */
}

void
rt_rank_push(const struct rt_mutex *m)
{
    uint32_t below = held_key_max(self.depth);
    uint32_t key = mutex_key(m);

    CH_ASSERT(self.depth < HELD_MAX); /* T4 */
    self.held[self.depth].mutex = m;
    self.held[self.depth].key_max = key > below ? key : below;
    self.depth++;
}

void
rt_rank_remove(const struct rt_mutex *m)
{
    unsigned depth = self.depth;
    unsigned i = 0;

    CH_ASSERT(held_find(m, &i)); /* T2 */
    self.depth = i;
    for (i++; i < depth; i++) /* nearly always empty: locks are given back last first */
        rt_rank_push(self.held[i].mutex);
}

bool
rt_rank_holds(const struct rt_mutex *m)
{
    unsigned index;

    return held_find(m, &index);
}

unsigned
rt_rank_depth(void)
{
    return self.depth;
}
