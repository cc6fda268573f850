/* rt_sim_test.c - the simulated rt: equal runs for equal seeds, exclusion, virtual time, hangs found. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/rt_sim.h"
#include "zt/zt.h"

#define MS UINT64_C(1000000)

enum {
    THREADS = 4,
    ROUNDS = 50
};

struct world {
    struct rt_mutex lock;
    struct rt_cond cond;
    unsigned turn, inside, count;
    uint64_t order; /* hash of who came when */
    unsigned lost;  /* updates lost for want of the lock */
};

static const struct rt_sim_config CONFIG = {.stall_ns = 10000 * MS, .stall_points = 1000000};

static void
world_start(struct world *w, uint64_t seed)
{
    struct rt_sim_config cfg = CONFIG;

    cfg.seed = seed;
    rt_sim_start(&cfg);
    *w = (struct world){0};
    rt_mutex_init(&w->lock, RT_RANK_TREE, 0);
    rt_cond_init(&w->cond);
}

static void
world_stop(struct world *w, struct rt_sim_stats *stats)
{
    rt_cond_fini(&w->cond);
    rt_mutex_fini(&w->lock);
    rt_sim_stop(stats);
}

static void
run_threads(struct world *w, void (*fn)(void *))
{
    struct rt_thread threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        int rc = rt_spawn(&threads[i], "worker", fn, w);

        CH_ASSERT(rc == 0);
    }
    for (int i = 0; i < THREADS; i++)
        rt_join(&threads[i]);
}

static void
work_locked(void *arg)
{
    struct world *w = arg;
    int here; /* an address of the thread: must not matter */

    for (int i = 0; i < ROUNDS; i++) {
        rt_lock(&w->lock);
        CH_ASSERT(w->inside == 0);
        w->inside++;
        rt_point();
        w->inside--;
        w->count++;
        w->order = w->order * 31 + (uint64_t)i;
        rt_unlock(&w->lock);
    }
    (void)here;
}

/* Goal: a mutex excludes; the same seed gives the same schedule, another one another. */
static void
test_exclusion(struct zt *t)
{
    struct rt_sim_stats a, b, c;
    struct world w;
    uint64_t order;

    world_start(&w, t->seed);
    run_threads(&w, work_locked);
    ZT_CHECK(t, w.count == THREADS * ROUNDS);
    order = w.order;
    world_stop(&w, &a);
    world_start(&w, t->seed);
    run_threads(&w, work_locked);
    ZT_CHECK(t, w.order == order);
    world_stop(&w, &b);
    ZT_CHECK(t, a.trace == b.trace && a.points == b.points && a.now_ns == b.now_ns);
    world_start(&w, t->seed + 1);
    run_threads(&w, work_locked);
    world_stop(&w, &c);
    ZT_CHECK(t, a.trace != c.trace);
}

static void
work_racing(void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < ROUNDS; i++) {
        unsigned seen = w->count;

        rt_point();
        w->count = seen + 1;
    }
}

/* Goal: a race that needs a switch at one point is met within few seeds. */
static void
test_race_is_met(struct zt *t)
{
    unsigned met = 0;

    for (uint64_t i = 0; i < 40; i++) {
        struct rt_sim_stats stats;
        struct world w;

        world_start(&w, t->seed * 40 + i);
        run_threads(&w, work_racing);
        met += w.count < THREADS * ROUNDS;
        world_stop(&w, &stats);
    }
    ZT_CHECK(t, met >= 10);
}

static void
work_in_turns(void *arg)
{
    struct world *w = arg;

    rt_lock(&w->lock);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned mine = w->count++;

        while (w->turn != mine)
            rt_wait(&w->cond, &w->lock);
        w->turn++;
        rt_broadcast(&w->cond);
        rt_sim_progress();
    }
    rt_unlock(&w->lock);
}

/* Goal: waits end when they are woken, and no wake-up is lost. */
static void
test_conditions(struct zt *t)
{
    struct rt_sim_stats stats;
    struct world w;

    world_start(&w, t->seed);
    run_threads(&w, work_in_turns);
    ZT_CHECK(t, w.turn == THREADS * ROUNDS);
    world_stop(&w, &stats);
}

static void
work_asleep(void *arg)
{
    struct world *w = arg;

    rt_sleep_ns(50 * MS);
    rt_lock(&w->lock);
    w->turn++;
    rt_signal(&w->cond);
    rt_unlock(&w->lock);
}

/* Goal: sleeps and timeouts end when the virtual clock says so, neither before nor much after; a
 * signal ends a wait before its timeout. */
static void
test_time(struct zt *t)
{
    struct rt_thread thread;
    struct rt_sim_stats stats;
    struct world w;
    uint64_t start, took;

    world_start(&w, t->seed);
    rt_sim_be_fair(); /* no spurious ends */
    start = rt_now_ns();
    rt_sleep_ns(3600 * 1000 * MS);
    took = rt_now_ns() - start;
    ZT_CHECK(t, took >= 3600 * 1000 * MS && took < 3601 * 1000 * MS);
    rt_sim_progress();
    rt_lock(&w.lock);
    start = rt_now_ns();
    ZT_CHECK(t, !rt_wait_for(&w.cond, &w.lock, 20 * MS));
    took = rt_now_ns() - start;
    ZT_CHECK(t, took >= 20 * MS && took < 21 * MS);
    ZT_OK(t, rt_spawn(&thread, "sleeper", work_asleep, &w));
    start = rt_now_ns();
    ZT_CHECK(t, rt_wait_for(&w.cond, &w.lock, 5000 * MS) && w.turn == 1);
    took = rt_now_ns() - start;
    ZT_CHECK(t, took >= 49 * MS && took < 51 * MS);
    rt_unlock(&w.lock);
    rt_join(&thread);
    world_stop(&w, &stats);
}

static void
hang_deadlock(struct world *w)
{
    rt_lock(&w->lock);
    rt_wait(&w->cond, &w->lock);
    rt_wait(&w->cond, &w->lock); /* one may end spuriously */
    rt_wait(&w->cond, &w->lock);
    for (;;)
        rt_wait(&w->cond, &w->lock);
}

static void
hang_timers(struct world *w)
{
    rt_lock(&w->lock);
    for (;;)
        (void)rt_wait_for(&w->cond, &w->lock, 100 * MS);
}

static void
hang_spinning(struct world *w)
{
    while (w->turn == 0)
        rt_yield();
}

static void
hang_none(struct world *w)
{
    rt_lock(&w->lock);
    rt_unlock(&w->lock);
}

static void
hang_ranks(struct world *w)
{
    struct rt_mutex below;

    rt_mutex_init(&below, RT_RANK_DB, 0);
    rt_lock(&w->lock);
    rt_lock(&below);
}

static void
hang_leaving_locked(struct world *w)
{
    struct rt_sim_stats stats;

    rt_lock(&w->lock);
    rt_sim_stop(&stats);
}

/* Goal: runs that cannot go on, and broken rules, end in abort(); a good one does not. */
static void
test_hangs_are_found(struct zt *t)
{
    static const struct {
        void (*fn)(struct world *w);
        bool dies;
    } CASES[] = {
        {hang_deadlock, true}, {hang_timers, true}, {hang_spinning, true},
        {hang_ranks, true},    {hang_none, false},  {hang_leaving_locked, true},
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(CASES); i++) {
        pid_t child = fork();
        struct world w;
        int status = 0;

        ZT_CHECK(t, child >= 0);
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL)
                _exit(2);
            world_start(&w, t->seed);
            CASES[i].fn(&w);
            _exit(0);
        }
        ZT_CHECK(t, waitpid(child, &status, 0) == child);
        ZT_CHECK(t, (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) == CASES[i].dies);
        ZT_CHECK(t, CASES[i].dies || WEXITSTATUS(status) == 0);
    }
}

static const struct zt_case cases[] = {
    {"exclusion", test_exclusion, 50},
    {"race_is_met", test_race_is_met, 3},
    {"conditions", test_conditions, 50},
    {"time", test_time, 20},
    {"hangs_are_found", test_hangs_are_found, 5},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "rt_sim", cases, CH_ARRAY_LEN(cases));
}
