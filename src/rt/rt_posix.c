/* rt_posix.c - threads, locks, time and chance from Linux. The rules of ranks, T1 .. T4, are kept by
 * rt_rank.h.
 *
 * Condition variables run on CLOCK_MONOTONIC. Failing pthread calls are programmer errors, except
 * for pthread_create(). Crash: nothing here survives the process.
 */
#include "rt/rt.h"
#include "rt/rt_rank.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

bool rt_points = false;

void
rt_mutex_init(struct rt_mutex *m, enum rt_rank rank, unsigned order)
{
    pthread_mutexattr_t attr;
    int rc;

    /* Adaptive: a thread that finds it taken spins a little first. Most critical sections are far shorter than
     * going to sleep and being woken. */
    rc = pthread_mutexattr_init(&attr);
    CH_ASSERT(rc == 0);
    rc = pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    CH_ASSERT(rc == 0);
    rc = pthread_mutex_init(&m->m, &attr);
    CH_ASSERT(rc == 0);
    rc = pthread_mutexattr_destroy(&attr);
    CH_ASSERT(rc == 0);
    CH_ASSERT(rank > 0 && order <= UINT16_MAX);
    m->rank = (uint16_t)rank;
    m->order = (uint16_t)order;
}

void
rt_mutex_fini(struct rt_mutex *m)
{
    int rc = pthread_mutex_destroy(&m->m);

    CH_ASSERT(rc == 0);
}

void
rt_lock(struct rt_mutex *m)
{
    struct rt_holder *me = &rt_holder;
    int rc;

    rt_rank_check(me, m); /* T1 */
    rc = pthread_mutex_lock(&m->m);
    CH_ASSERT(rc == 0);
    rt_rank_push(me, m);
}

bool
rt_trylock(struct rt_mutex *m)
{
    int rc = pthread_mutex_trylock(&m->m);

    CH_ASSERT(rc == 0 || rc == EBUSY);
    if (rc == 0)
        rt_rank_push(&rt_holder, m);
    return rc == 0;
}

void
rt_unlock(struct rt_mutex *m)
{
    int rc;

    rt_rank_remove(&rt_holder, m);
    rc = pthread_mutex_unlock(&m->m);
    CH_ASSERT(rc == 0);
}

void
rt_cond_init(struct rt_cond *c)
{
    pthread_condattr_t attr;
    int rc;

    rc = pthread_condattr_init(&attr);
    CH_ASSERT(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    CH_ASSERT(rc == 0);
    rc = pthread_cond_init(&c->c, &attr);
    CH_ASSERT(rc == 0);
    rc = pthread_condattr_destroy(&attr);
    CH_ASSERT(rc == 0);
}

void
rt_cond_fini(struct rt_cond *c)
{
    int rc = pthread_cond_destroy(&c->c);

    CH_ASSERT(rc == 0);
}

void
rt_wait(struct rt_cond *c, struct rt_mutex *m)
{
    int rc;

    CH_ASSERT(rt_rank_holds(m)); /* T2 */
    rc = pthread_cond_wait(&c->c, &m->m);
    CH_ASSERT(rc == 0);
}

static struct timespec
timespec_of(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    return ts;
}

bool
rt_wait_for(struct rt_cond *c, struct rt_mutex *m, uint64_t ns)
{
    uint64_t now = rt_now_ns();
    /* INT64_MAX ns is 292 years: "for ever" must not wrap to a deadline in the past. */
    uint64_t deadline = ns < (uint64_t)INT64_MAX - now ? now + ns : (uint64_t)INT64_MAX;
    struct timespec ts = timespec_of(deadline);
    int rc;

    CH_ASSERT(rt_rank_holds(m)); /* T2 */
    rc = pthread_cond_timedwait(&c->c, &m->m, &ts);
    CH_ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void
rt_signal(struct rt_cond *c)
{
    int rc = pthread_cond_signal(&c->c);

    CH_ASSERT(rc == 0);
}

void
rt_broadcast(struct rt_cond *c)
{
    int rc = pthread_cond_broadcast(&c->c);

    CH_ASSERT(rc == 0);
}

static void *
thread_main(void *arg)
{
    struct rt_thread *t = arg;

    (void)pthread_setname_np(pthread_self(), t->name); /* for debuggers only */
    t->fn(t->arg);
    CH_ASSERT(rt_rank_depth() == 0); /* T3 */
    return NULL;
}

int
rt_spawn(struct rt_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    sigset_t all, before;
    int rc;

    t->fn = fn;
    t->arg = arg;
    t->name = name;
    /* The host's signals are for the host's threads; ours inherit a mask that blocks all. */
    (void)sigfillset(&all);
    rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    CH_ASSERT(rc == 0);
    errno = pthread_create(&t->t, NULL, thread_main, t);
    rc = errno == 0 ? 0 : CH_FAIL(COHORT_ENOMEM, "thread %s: cannot be created", name);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void
rt_join(struct rt_thread *t)
{
    int rc = pthread_join(t->t, NULL);

    CH_ASSERT(rc == 0);
}

static _Atomic unsigned thread_numbers; /* relaxed: only distinct */

unsigned
rt_thread_number(void)
{
    static _Thread_local unsigned number; /* + 1 */

    if (CH_UNLIKELY(number == 0))
        number = 1 + atomic_fetch_add_explicit(&thread_numbers, 1, memory_order_relaxed);
    return number - 1;
}

static uint64_t
clock_ns(clockid_t clock)
{
    struct timespec ts;
    int rc = clock_gettime(clock, &ts);

    CH_ASSERT(rc == 0);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t
rt_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t
rt_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void
rt_sleep_ns(uint64_t ns)
{
    struct timespec left = timespec_of(ns);

    while (nanosleep(&left, &left) != 0)
        CH_ASSERT(errno == EINTR);
}

void
rt_yield(void)
{
    (void)sched_yield();
}

uint64_t
rt_random(void)
{
    uint64_t v = 0;
    ssize_t n;

    do /* 8 bytes come whole or not at all */
        n = getrandom(&v, sizeof(v), 0);
    while (n < 0 && errno == EINTR);
    CH_ASSERT(n == (ssize_t)sizeof(v));
    return v;
}

void
rt_point_taken(void)
{
}
