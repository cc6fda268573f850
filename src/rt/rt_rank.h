/* rt_rank.h - which mutexes the calling thread holds; shared by rt_posix.c and rt_sim.c.
 *
 * Nothing here locks anything: the two implementations of rt.h call it around their own locking.
 */
#ifndef CH_RT_RT_RANK_H
#define CH_RT_RT_RANK_H

#include "rt/rt.h"

/* T1: asserts that `m` may be waited for by a thread that holds what this one holds. */
void rt_rank_check(const struct rt_mutex *m);
/* The thread has got `m`, in any way. */
void rt_rank_push(const struct rt_mutex *m);
/* It gives `m` back; asserts T2. */
void rt_rank_remove(const struct rt_mutex *m);
bool rt_rank_holds(const struct rt_mutex *m);
unsigned rt_rank_depth(void);

#endif
