/* rt_rank.c - the mutexes that a thread holds: what goes not with every lock. See rt_rank.h. */
#include "rt/rt_rank.h"

_Thread_local struct rt_holder rt_holder;

static bool
held_find(const struct rt_holder *h, const struct rt_mutex *m, unsigned *index)
{
    for (unsigned i = h->depth; i > 0; i--) {
        if (h->held[i - 1].mutex == m) {
            *index = i - 1;
            return true;
        }
    }
    return false;
}

void
rt_rank_remove_inner(struct rt_holder *h, const struct rt_mutex *m)
{
    unsigned depth = h->depth;
    unsigned i = 0;

    CH_ASSERT(held_find(h, m, &i)); /* T2 */
    h->depth = i;
    for (i++; i < depth; i++)
        rt_rank_push(h, h->held[i].mutex);
}

bool
rt_rank_holds(const struct rt_mutex *m)
{
    unsigned index;

    return held_find(&rt_holder, m, &index);
}

bool
rt_may_lock(enum rt_rank rank, unsigned order)
{
    return ((uint32_t)rank << 16 | order) > rt_rank_max(&rt_holder);
}

unsigned
rt_rank_depth(void)
{
    return rt_holder.depth;
}
