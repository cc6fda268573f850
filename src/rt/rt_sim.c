/* rt_sim.c - rt with one thread running at a time, drawn from a seed, and a clock that is counted.
 *
 * Threads are real, so that thread-local data, stacks and sanitizers work as ever, but a thread runs
 * only while it holds the baton: it waits on its own semaphore and is posted by whoever hands over.
 *
 *     point(): spend one point of the budget; when it is used up, schedule()
 *     schedule(): who is runnable? -> the policy draws one (rt_sim_policy.c) -> hand the baton over
 *
 * A thread that waits says for what, and is runnable once that holds: a mutex without owner, a
 * deadline behind the clock, a joined thread that has ended. So nothing needs wait queues, and a report
 * of a deadlock can say what each thread waits for.
 *
 * The clock advances by step_ns a point and, when nobody is runnable, to the earliest deadline.
 *
 * Invariants:
 *   B1  only the thread that holds the baton touches `sim`; the semaphores order its accesses.
 *   B2  everything that is drawn comes from sim.rng, in an order that depends on the seed only. No
 *       address is compared except for equality.
 *   B3  a mutex is taken only by a thread that runs: owner set without a point since it was seen free.
 *
 * The rules of ranks, T1 .. T4, are kept by rt_rank.h. A thread may see a wait end without a signal, as
 * POSIX allows. Crash: nothing here survives the process.
 */
#include "rt/rt_sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rt/rt_rank.h"
#include "rt/rt_sim_internal.h"

#define WHERE __builtin_return_address(0)

bool rt_points = true;

static struct sim sim;
static _Thread_local struct sim_thread *self;

/* ---- reports ---- */

static void
report_thread(const struct sim_thread *t)
{
    static const char *const STATES[] = {"free",   "ready", "wants a mutex", "waits on a condition",
                                         "sleeps", "joins", "ended"};
    Dl_info info = {0};
    uintptr_t at = (uintptr_t)t->where;

    if (t->where != NULL && dladdr(t->where, &info) != 0)
        at -= (uintptr_t)info.dli_fbase;
    (void)fprintf(stderr, "  %-15s %s", t->name, STATES[t->state]);
    if (t->state == SIM_LOCK && t->mutex->owner != NULL)
        (void)fprintf(stderr, " of rank %u.%u held by %s", t->mutex->rank, t->mutex->order,
                      ((const struct sim_thread *)t->mutex->owner)->name);
    if (t->state == SIM_COND)
        (void)fprintf(stderr, " with a mutex of rank %u.%u", t->mutex->rank, t->mutex->order);
    if (t->state == SIM_JOIN)
        (void)fprintf(stderr, " %s", t->joined->name);
    if (t->deadline != UINT64_MAX && (t->state == SIM_COND || t->state == SIM_SLEEP))
        (void)fprintf(stderr, " until %" PRIu64 " us", t->deadline / 1000);
    (void)fprintf(stderr, ", called from %#" PRIxPTR " (%s)\n", at,
                  info.dli_sname != NULL ? info.dli_sname : "?");
}

static void __attribute__((noreturn, cold)) hang(const char *what)
{
    (void)fprintf(stderr, "rt_sim: %s at %" PRIu64 " us, point %" PRIu64 "\n", what, sim.now / 1000,
                  sim.stats.points);
    for (unsigned i = 0; i < sim.thread_count; i++)
        if (sim.threads[i].state != SIM_FREE)
            report_thread(&sim.threads[i]);
    abort();
}

/* ---- the scheduler ---- */

static bool
is_runnable(const struct sim_thread *t)
{
    switch (t->state) {
    case SIM_READY:
        return true;
    case SIM_LOCK:
        return t->mutex->owner == NULL;
    case SIM_COND:
    case SIM_SLEEP:
        return t->deadline <= sim.now;
    case SIM_JOIN:
        return t->joined->state == SIM_ENDED;
    case SIM_FREE:
    case SIM_ENDED:
        break;
    }
    return false;
}

static void
next_deadline(void)
{
    uint64_t earliest = UINT64_MAX;

    for (unsigned i = 0; i < sim.thread_count; i++) {
        const struct sim_thread *t = &sim.threads[i];

        if (t->state == SIM_COND || t->state == SIM_SLEEP)
            earliest = ch_min_u64(earliest, t->deadline);
    }
    if (earliest == UINT64_MAX)
        hang("deadlock");
    sim.now = earliest;
}

/* A wait on a condition that ends: the thread then wants its mutex back. */
static void
end_wait(struct sim_thread *t, bool timed_out)
{
    t->timed_out = timed_out;
    t->state = SIM_LOCK;
    t->deadline = UINT64_MAX;
}

static void
wake_spuriously(void)
{
    struct sim_thread *t = &sim.threads[ch_prng_below(&sim.rng, sim.thread_count)];

    if (t->state != SIM_COND)
        return;
    end_wait(t, false);
    sim.stats.spurious++;
}

/* Who could go on; who yields only counts when it is the only one. */
static unsigned
collect(struct sim_thread **runnable)
{
    unsigned n = 0;
    bool giving_way = false;

    for (unsigned i = 0; i < sim.thread_count; i++) {
        struct sim_thread *t = &sim.threads[i];

        if (!is_runnable(t))
            continue;
        if (t->state == SIM_COND) {
            end_wait(t, true);
            if (!is_runnable(t))
                continue;
        }
        if (t == sim.yielding)
            giving_way = true;
        else
            runnable[n++] = t;
    }
    if (n == 0 && giving_way)
        runnable[n++] = sim.yielding;
    return n;
}

static void
check_progress(void)
{
    if (sim.now - sim.progress_ns > sim.cfg.stall_ns)
        hang("no progress in virtual time");
    if (sim.stats.points - sim.progress_points > sim.cfg.stall_points)
        hang("no progress in scheduling points");
}

static void
wait_for_baton(struct sim_thread *t)
{
    while (sem_wait(&t->go) != 0)
        CH_ASSERT(errno == EINTR);
    t->ran = sim.stats.points;
}

/* Chooses who goes on; returns when it is the caller's turn again. `stay` false: the caller has ended,
 * and returns at once. */
static void
schedule(bool stay)
{
    struct sim_thread *runnable[SIM_THREADS_MAX];
    struct sim_thread *me = self, *next;
    unsigned n;

    check_progress();
    if (sim.spurious && ch_prng_below(&sim.rng, 64) == 0)
        wake_spuriously();
    while ((n = collect(runnable)) == 0)
        next_deadline();
    sim.yielding = NULL;
    next = sim_policy_choose(&sim, runnable, n, me);
    next->state = SIM_READY;
    sim.stats.trace =
        (sim.stats.trace ^ (uint64_t)(next - sim.threads) ^ sim.now) * UINT64_C(0x100000001b3);
    if (next == me)
        return;
    sim.stats.switches++;
    if (sem_post(&next->go) != 0)
        hang("sem_post failed");
    if (stay)
        wait_for_baton(me);
}

/* `weight`: how much likelier than elsewhere a thread stalls here. */
static void
point(const void *where, uint64_t weight)
{
    if (!sim.on)
        return;
    sim.now += sim.step_ns;
    sim.stats.points++;
    self->where = where;
    if (sim.budget > 0) {
        sim.budget--;
        return;
    }
    if (sim.stall_every > 0 && ch_prng_below(&sim.rng, sim.stall_every / weight + 1) == 0) {
        self->state = SIM_SLEEP;
        self->deadline =
            sim.now + ch_prng_below(&sim.rng, UINT64_C(1024) << ch_prng_below(&sim.rng, 16));
    }
    schedule(true);
    self->deadline = UINT64_MAX;
}

/* The thread has put itself into a state that waits. */
static void
block(const void *where)
{
    CH_ASSERT(sim.on); /* nothing else runs that could end the wait */
    sim.now += sim.step_ns;
    sim.stats.points++;
    self->where = where;
    schedule(true);
}

/* ---- controls ---- */

static struct sim_thread *
thread_admit(struct rt_thread *t, const char *name)
{
    struct sim_thread *s = NULL;
    int rc;

    for (unsigned i = 0; i < SIM_THREADS_MAX && s == NULL; i++)
        if (sim.threads[i].state == SIM_FREE)
            s = &sim.threads[i];
    CH_ASSERT(s != NULL);
    *s = (struct sim_thread){.state = SIM_READY, .t = t, .deadline = UINT64_MAX};
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    rc = sem_init(&s->go, 0, 0);
    CH_ASSERT(rc == 0);
    sim.thread_count = (unsigned)ch_max_u64(sim.thread_count, (uint64_t)(s - sim.threads) + 1);
    sim_policy_admit(&sim, s);
    return s;
}

static void
thread_forget(struct sim_thread *s)
{
    int rc = sem_destroy(&s->go);

    CH_ASSERT(rc == 0);
    s->state = SIM_FREE;
}

void
rt_sim_start(const struct rt_sim_config *cfg)
{
    CH_ASSERT(!sim.on);
    memset(&sim, 0, sizeof(sim));
    sim.cfg = *cfg;
    ch_prng_init(&sim.rng, cfg->seed);
    sim.now = UINT64_C(1000000000);
    sim.progress_ns = sim.now;
    sim_policy_init(&sim);
    self = thread_admit(NULL, "main");
    sim.on = true;
}

void
rt_sim_stats(struct rt_sim_stats *out)
{
    *out = sim.stats;
    out->now_ns = sim.now;
}

void
rt_sim_stop(struct rt_sim_stats *out)
{
    CH_ASSERT(sim.on && self == &sim.threads[0]);
    for (unsigned i = 1; i < sim.thread_count; i++)
        CH_ASSERT(sim.threads[i].state == SIM_FREE);
    CH_ASSERT(rt_rank_depth() == 0);
    rt_sim_stats(out);
    thread_forget(self);
    self = NULL;
    sim.on = false;
}

void
rt_sim_progress(void)
{
    sim.progress_ns = sim.now;
    sim.progress_points = sim.stats.points;
}

void
rt_sim_be_fair(void)
{
    sim_policy_be_fair(&sim);
}

const char *
rt_sim_self(void)
{
    return self == NULL ? "outside" : self->name;
}

/* Not in the order of asking, but of their places: as good, and the same in each run of a seed. */
unsigned
rt_thread_number(void)
{
    return self == NULL ? 0 : (unsigned)(self - sim.threads);
}

/* ---- mutexes ---- */

void
rt_mutex_init(struct rt_mutex *m, enum rt_rank rank, unsigned order)
{
    CH_ASSERT(rank > 0 && order <= UINT16_MAX);
    m->owner = NULL;
    m->rank = (uint16_t)rank;
    m->order = (uint16_t)order;
}

void
rt_mutex_fini(struct rt_mutex *m)
{
    CH_ASSERT(m->owner == NULL);
    for (unsigned i = 0; i < sim.thread_count; i++)
        CH_ASSERT(sim.threads[i].mutex != m || sim.threads[i].state < SIM_LOCK ||
                  sim.threads[i].state > SIM_COND);
}

/* Waits until the mutex is free and takes it. */
static void
acquire(struct rt_mutex *m, const void *where)
{
    static const char outside;

    while (m->owner != NULL) {
        CH_ASSERT(sim.on);
        self->state = SIM_LOCK;
        self->mutex = m;
        block(where);
    }
    m->owner = sim.on ? (const void *)self : &outside; /* B3 */
}

void
rt_lock(struct rt_mutex *m)
{
    rt_rank_check(&rt_holder, m); /* T1 */
    point(WHERE, 1);
    acquire(m, WHERE);
    rt_rank_push(&rt_holder, m);
}

bool
rt_trylock(struct rt_mutex *m)
{
    point(WHERE, 1);
    if (m->owner != NULL)
        return false;
    acquire(m, WHERE);
    rt_rank_push(&rt_holder, m);
    return true;
}

void
rt_unlock(struct rt_mutex *m)
{
    rt_rank_remove(&rt_holder, m); /* T2 */
    m->owner = NULL;
    point(WHERE, 1);
}

/* ---- conditions ---- */

void
rt_cond_init(struct rt_cond *c)
{
    memset(c, 0, sizeof(*c));
}

void
rt_cond_fini(struct rt_cond *c)
{
    for (unsigned i = 0; i < sim.thread_count; i++)
        CH_ASSERT(sim.threads[i].state != SIM_COND || sim.threads[i].cond != c);
}

static bool
wait_until(struct rt_cond *c, struct rt_mutex *m, uint64_t deadline, const void *where)
{
    CH_ASSERT(rt_rank_holds(m)); /* T2 */
    CH_ASSERT(sim.on);
    m->owner = NULL;
    self->state = SIM_COND;
    self->cond = c;
    self->mutex = m;
    self->deadline = deadline;
    self->timed_out = false;
    block(where);
    self->deadline = UINT64_MAX;
    acquire(m, where);
    return !self->timed_out;
}

void
rt_wait(struct rt_cond *c, struct rt_mutex *m)
{
    (void)wait_until(c, m, UINT64_MAX, WHERE);
}

bool
rt_wait_for(struct rt_cond *c, struct rt_mutex *m, uint64_t ns)
{
    return wait_until(c, m, ns < INT64_MAX - sim.now ? sim.now + ns : UINT64_MAX, WHERE);
}

static void
wake(const struct rt_cond *c, bool all)
{
    struct sim_thread *waiting[SIM_THREADS_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < sim.thread_count; i++)
        if (sim.threads[i].state == SIM_COND && sim.threads[i].cond == c)
            waiting[n++] = &sim.threads[i];
    if (n > 0 && !all)
        end_wait(waiting[ch_prng_below(&sim.rng, n)], false);
    for (unsigned i = 0; all && i < n; i++)
        end_wait(waiting[i], false);
}

void
rt_signal(struct rt_cond *c)
{
    wake(c, false);
    point(WHERE, 1);
}

void
rt_broadcast(struct rt_cond *c)
{
    wake(c, true);
    point(WHERE, 1);
}

/* ---- threads ---- */

static void *
thread_main(void *arg)
{
    struct sim_thread *s = arg;

    self = s;
    wait_for_baton(s);
    s->t->fn(s->t->arg);
    CH_ASSERT(rt_rank_depth() == 0); /* T3 */
    s->state = SIM_ENDED;
    schedule(false);
    return NULL;
}

int
rt_spawn(struct rt_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    struct sim_thread *s;

    CH_ASSERT(sim.on);
    t->fn = fn;
    t->arg = arg;
    t->name = name;
    s = thread_admit(t, name);
    errno = pthread_create(&t->t, NULL, thread_main, s);
    if (errno != 0) {
        thread_forget(s);
        return CH_FAIL(COHORT_ENOMEM, "thread %s: cannot be created", name);
    }
    point(WHERE, 1);
    return 0;
}

void
rt_join(struct rt_thread *t)
{
    struct sim_thread *s = NULL;
    int rc;

    for (unsigned i = 0; i < sim.thread_count; i++)
        if (sim.threads[i].state != SIM_FREE && sim.threads[i].t == t)
            s = &sim.threads[i];
    CH_ASSERT(s != NULL);
    self->joined = s;
    if (s->state != SIM_ENDED) {
        self->state = SIM_JOIN;
        block(WHERE);
    }
    rc = pthread_join(t->t, NULL);
    CH_ASSERT(rc == 0);
    thread_forget(s);
}

/* ---- time and chance ---- */

uint64_t
rt_now_ns(void)
{
    sim.now += 10; /* who polls the clock sees it move */
    return sim.now;
}

uint64_t
rt_cpu_ns(void)
{
    return sim.now;
}

void
rt_sleep_ns(uint64_t ns)
{
    if (!sim.on)
        return;
    self->state = SIM_SLEEP;
    self->deadline = sim.now + ns;
    block(WHERE);
    self->deadline = UINT64_MAX;
}

void
rt_yield(void)
{
    if (!sim.on)
        return;
    sim_policy_demote(&sim, self);
    sim.yielding = self;
    sim.budget = 0;
    point(WHERE, 1);
}

uint64_t
rt_random(void)
{
    return ch_prng_next(&sim.rng);
}

void
rt_point_taken(void)
{
    point(WHERE, 8); /* somebody thought that it matters */
}
