/* rt.h - the only place that knows whether threads, time and chance are real.
 *
 * Link-time seam: rt_posix.c, or a simulator's rt_sim.c (seeded baton scheduler, virtual time), which
 * implements the same functions. Nothing outside rt/ calls pthread_*, clock_gettime or getrandom.
 *
 * Lock order is checked, not only described: each mutex has a rank; a thread may lock a mutex only
 * if its rank is above every rank it holds (equal ranks: only with ascending `order`). Violations
 * assert. Page latches (buf) are not mutexes; no mutex of rank < RT_RANK_LATCHED may be locked while
 * a page latch is held, except where buf.h says so.
 */
#ifndef CH_RT_RT_H
#define CH_RT_RT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

enum rt_rank {
    RT_RANK_DB = 5,          /* api: open/close, batches of calls */
    RT_RANK_SWEEP = 8,       /* cat: one sweeping step at a time */
    RT_RANK_CHECKPOINT = 10, /* one checkpoint at a time */
    RT_RANK_TXN = 15,        /* txn: who is open, prepared, being spilled */
    RT_RANK_REG = 16,        /* reg: open trees; held while a tree's record is read */
    RT_RANK_WAIT = 17,       /* ver: who waits for whom */
    RT_RANK_TREE = 30,       /* btree: one structure change at a time in a tree */
    RT_RANK_CLEANER = 40,    /* buf: one cleaner step at a time */
    RT_RANK_GC = 45,         /* store: one gc step, one store_write at a time */
    RT_RANK_LATCHED = 50,    /* from here on: may be taken under page latches */
    RT_RANK_VER_COMMIT = 51, /* ver: the order of commits; log records are appended under it */
    RT_RANK_VER_SHARD = 52,  /* ver: chains; order = shard */
    RT_RANK_VER_TXN = 53,    /* ver: descriptors, lists of entries, ghosts, guards */
    RT_RANK_MAP_SHARD = 55,  /* map: order = shard number */
    RT_RANK_SPACE = 60,      /* zone table, page-id allocation */
    RT_RANK_FRAME = 70,      /* buf: frame states */
    RT_RANK_FREE = 75,       /* buf: free frames */
    RT_RANK_WAL = 80,        /* wal: buffer and positions */
    RT_RANK_PARK = 85,       /* buf: latch waiters */
    RT_RANK_DEV = 90,        /* dev: queues; sim state */
    RT_RANK_STATS = 95,
};

struct rt_mutex {
    union {
        pthread_mutex_t m;
        const void *owner; /* rt_sim: the thread that holds it, NULL = free */
    };
    uint16_t rank;
    uint16_t order;
};
struct rt_cond {
    pthread_cond_t c;
};
struct rt_thread {
    pthread_t t;
    void (*fn)(void *);
    void *arg;
    const char *name;
};

void rt_mutex_init(struct rt_mutex *m, enum rt_rank rank, unsigned order);
void rt_mutex_fini(struct rt_mutex *m);
void rt_lock(struct rt_mutex *m);
bool rt_trylock(struct rt_mutex *m); /* no rank check */
void rt_unlock(struct rt_mutex *m);
/* Whether the calling thread may wait for a mutex of this rank and order: it holds none that stands at it or above. */
bool rt_may_lock(enum rt_rank rank, unsigned order);

void rt_cond_init(struct rt_cond *c);
void rt_cond_fini(struct rt_cond *c);
void rt_wait(struct rt_cond *c, struct rt_mutex *m);
/* False on timeout. */
bool rt_wait_for(struct rt_cond *c, struct rt_mutex *m, uint64_t ns);
void rt_signal(struct rt_cond *c);
void rt_broadcast(struct rt_cond *c);

/* `t` is the caller's memory until rt_join() returned. `name` <= 15 characters. ENOMEM. */
CH_NODISCARD int rt_spawn(struct rt_thread *t, const char *name, void (*fn)(void *), void *arg);
void rt_join(struct rt_thread *t);

/* A small number of the calling thread, the same as long as it lives: numbers are given in the order in which threads ask. To keep
 * threads apart, not to tell them: others may have the same. */
unsigned rt_thread_number(void);
uint64_t rt_now_ns(void); /* monotonic */
uint64_t rt_cpu_ns(void); /* CPU time of the process */
void rt_sleep_ns(uint64_t ns);
void rt_yield(void);
uint64_t rt_random(void); /* from the kernel: seeds, epochs */
/* A place where the simulator may switch threads; one load and an untaken branch in rt_posix. Never
 * between two steps that a lock or a latch does not keep together. */
extern bool rt_points; /* constant while threads run */
void rt_point_taken(void);
static inline void
rt_point(void)
{
    if (CH_UNLIKELY(rt_points))
        rt_point_taken();
}

#endif
