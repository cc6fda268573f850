/* rt_sim_internal.h - the threads of the simulated rt, as the scheduler and its policies see them. */
#ifndef CH_RT_RT_SIM_INTERNAL_H
#define CH_RT_RT_SIM_INTERNAL_H

#include <semaphore.h>

#include "base/prng.h"
#include "rt/rt_sim.h"

enum {
    SIM_THREADS_MAX = 64
};

enum sim_state {
    SIM_FREE,  /* the slot is unused */
    SIM_READY, /* may run, or does */
    SIM_LOCK,  /* wants `mutex` */
    SIM_COND,  /* waits on `cond`, until `deadline`; then wants `mutex` */
    SIM_SLEEP, /* until `deadline` */
    SIM_JOIN,  /* for `joined` to end */
    SIM_ENDED  /* not joined yet */
};

struct sim_thread {
    enum sim_state state;
    struct rt_thread *t; /* NULL: the thread that started the simulation */
    char name[16];
    sem_t go; /* the baton */
    const struct rt_mutex *mutex;
    const struct rt_cond *cond;
    const struct sim_thread *joined;
    uint64_t deadline; /* UINT64_MAX = none */
    bool timed_out;
    const void *where; /* return address of the rt call it is in */
    uint64_t priority; /* policy PRIORITIES: the highest runs */
    uint64_t ran;      /* number of the point at which it last got the baton */
};

struct sim {
    bool on;
    struct rt_sim_config cfg;
    struct ch_prng rng;
    struct sim_thread threads[SIM_THREADS_MAX];
    unsigned thread_count; /* slots ever used */
    struct rt_sim_stats stats;
    uint64_t now;
    uint64_t step_ns; /* virtual time of a point */
    uint64_t progress_ns, progress_points;
    uint64_t budget;             /* points until the next draw */
    bool spurious;               /* waits may end by themselves */
    uint64_t stall_every;        /* draws between two stalls of a thread, on average; 0 = never */
    struct sim_thread *yielding; /* gives way in the schedule() to come */
    /* policy */
    int policy;
    uint64_t run_mean;  /* points between two draws, on average */
    uint64_t change_at; /* PRIORITIES: the point at which the runner becomes the last */
    uint64_t change_every;
    uint64_t lowest;                 /* priority handed out to who is demoted; falls */
    const struct sim_thread *victim; /* STARVE: hardly ever runs */
};

/* Draws the policy and its numbers. */
void sim_policy_init(struct sim *s);
/* A thread came: its priority. */
void sim_policy_admit(struct sim *s, struct sim_thread *t);
/* `t` gives way: it has nothing to do until another thread has run. */
void sim_policy_demote(struct sim *s, struct sim_thread *t);
/* One of the n > 0 runnable threads; `self` may be among them. Sets the budget. */
struct sim_thread *sim_policy_choose(struct sim *s, struct sim_thread *const *runnable, unsigned n,
                                     struct sim_thread *self);
void sim_policy_be_fair(struct sim *s);

#endif
