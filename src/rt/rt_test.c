/* rt_test.c - locks, their order, conditions, threads, clocks. Under TSan in CI. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/rt.h"
#include "zt/zt.h"

#define MS UINT64_C(1000000)

/* ---- lock order ------------------------------------------------------------------------------ */

enum {
    LOW,
    SHARD3,
    SHARD4,
    HIGH,
    LOCKS
};

static void
locks_init(struct rt_mutex m[LOCKS])
{
    rt_mutex_init(&m[LOW], RT_RANK_TREE, 0);
    rt_mutex_init(&m[SHARD3], RT_RANK_MAP_SHARD, 3);
    rt_mutex_init(&m[SHARD4], RT_RANK_MAP_SHARD, 4);
    rt_mutex_init(&m[HIGH], RT_RANK_STATS, 0);
}

static void
locks_fini(struct rt_mutex m[LOCKS])
{
    for (int i = 0; i < LOCKS; i++)
        rt_mutex_fini(&m[i]);
}

/* Runs `script` on four locks: "l2" locks number 2, "t2" tries, "u2" unlocks, "w2" waits 1 ns. */
static void
locks_play(struct rt_mutex m[LOCKS], const char *script)
{
    struct rt_cond c;

    rt_cond_init(&c);
    for (; script[0] != '\0'; script += 2) {
        struct rt_mutex *lock = &m[script[1] - '0'];

        if (script[0] == 'l')
            rt_lock(lock);
        else if (script[0] == 't')
            CH_ASSERT(rt_trylock(lock));
        else if (script[0] == 'u')
            rt_unlock(lock);
        else
            CH_ASSERT(!rt_wait_for(&c, lock, 1));
    }
    rt_cond_fini(&c);
}

/* True if the script asserts. In a child, whose stderr is silent. */
static bool
locks_script_dies(struct zt *t, const char *script)
{
    struct rt_mutex m[LOCKS];
    pid_t child = fork();
    int status = 0;

    ZT_CHECK(t, child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        locks_init(m);
        locks_play(m, script);
        _exit(0);
    }
    ZT_CHECK(t, waitpid(child, &status, 0) == child);
    ZT_CHECK(t, WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* Goal: every wrong order dies and every right one does not (T1, T2). */
static void
test_lock_order(struct zt *t)
{
    static const char *const right[] = {
        "l0l1l2l3u3u2u1u0", "l0l1l2l3u0u1u2u3", "l0l3u0u3l0u0",     "l1l2u1u2l1u1",
        "l3t0u0u3",         "l3t0u3l1u1u0",     "l1l3u1u3l1l2u2u1", "l0l1w1l2u2u1w0u0",
    };
    static const char *const wrong[] = {
        "l3l0",       /* descending rank */
        "l2l1",       /* equal rank, descending order */
        "l1l1",       /* the same again */
        "l0l3l1",     /* below the last, above the first */
        "l3t0l1",     /* a tried lock counts, and does not hide the one before */
        "l3t0u3l0",   /* the tried lock itself is held */
        "l0l2u0l1",   /* still holds 2 after an unlock out of order */
        "l1l3u3l3l2", /* what was given back and taken again */
        "u0",         /* not held */
        "l0l1u0u0",   /* unlocked twice */
        "w0",         /* waits with a mutex that it does not hold */
        "l0w1",       /* or with another than the one it holds */
    };
    struct rt_mutex m[LOCKS];

    locks_init(m);
    for (size_t i = 0; i < CH_ARRAY_LEN(right); i++)
        locks_play(m, right[i]);
    locks_fini(m);
    for (size_t i = 0; i < CH_ARRAY_LEN(wrong); i++)
        ZT_CHECK(t, locks_script_dies(t, wrong[i]));
    ZT_CHECK(t, !locks_script_dies(t, "l0u0"));
}

/* Goal: random scripts against a model: dies if and only if the model says so. Method: the model
 * keeps the set of held locks and looks at all of it; order of taking plays no role. */
static void
test_lock_order_random(struct zt *t)
{
    char script[41] = "";
    bool held[LOCKS] = {false};
    bool dies = false;

    for (size_t at = 0; at < sizeof(script) - 1 && !dies; at += 2) {
        unsigned lock = (unsigned)zt_below(t, LOCKS);
        char op = held[lock] ? 'u' : zt_below(t, 4) == 0 ? 't' : 'l';

        for (unsigned i = lock; i < LOCKS; i++)
            dies |= op == 'l' && held[i];
        held[lock] = op != 'u';
        script[at] = op;
        script[at + 1] = (char)('0' + lock);
    }
    ZT_CHECK(t, locks_script_dies(t, script) == dies);
}

/* Goal: a thread can hold a lock of each of a full batch's map shards, freed in either order (T4). */
static void
test_lock_many(struct zt *t)
{
    static struct rt_mutex m[CH_BATCH_MAX];

    for (unsigned i = 0; i < CH_BATCH_MAX; i++)
        rt_mutex_init(&m[i], RT_RANK_MAP_SHARD, i);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < CH_BATCH_MAX; i++)
            rt_lock(&m[i]);
        for (unsigned i = 0; i < CH_BATCH_MAX; i++)
            rt_unlock(&m[round == 0 ? i : CH_BATCH_MAX - 1 - i]);
    }
    rt_lock(&m[0]); /* nothing is left over */
    rt_unlock(&m[0]);
    for (unsigned i = 0; i < CH_BATCH_MAX; i++)
        rt_mutex_fini(&m[i]);
    ZT_CHECK(t, true);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct counter {
    struct rt_mutex lock;
    struct rt_cond turn;
    uint64_t value;
    unsigned next; /* whose turn it is */
    unsigned threads;
};

struct worker {
    struct rt_thread thread;
    struct counter *counter;
    unsigned index;
    unsigned rounds;
    unsigned busy; /* failed rt_trylock()s */
};

static void
count_up(void *arg)
{
    struct worker *w = arg;

    for (unsigned i = 0; i < w->rounds; i++) {
        if (i % 2 == 0) {
            rt_lock(&w->counter->lock);
        } else {
            while (!rt_trylock(&w->counter->lock)) {
                w->busy++;
                rt_yield();
            }
        }
        w->counter->value++;
        rt_unlock(&w->counter->lock);
    }
}

static void
take_turns(void *arg)
{
    struct worker *w = arg;
    struct counter *c = w->counter;

    for (unsigned i = 0; i < w->rounds; i++) {
        rt_lock(&c->lock);
        while (c->next != w->index)
            rt_wait(&c->turn, &c->lock);
        CH_ASSERT(c->value++ % c->threads == w->index);
        c->next = (c->next + 1) % c->threads;
        rt_broadcast(&c->turn);
        rt_unlock(&c->lock);
    }
}

static void
run_workers(struct zt *t, struct counter *c, void (*fn)(void *), unsigned rounds)
{
    enum {
        WORKERS = 4
    };
    struct worker w[WORKERS];

    c->threads = WORKERS;
    for (unsigned i = 0; i < WORKERS; i++) {
        w[i] = (struct worker){.counter = c, .index = i, .rounds = rounds};
        ZT_OK(t, rt_spawn(&w[i].thread, "worker", fn, &w[i]));
    }
    for (unsigned i = 0; i < WORKERS; i++)
        rt_join(&w[i].thread);
    ZT_CHECK(t, c->value == (uint64_t)WORKERS * rounds);
}

/* Goal: a mutex excludes, taken either way; a condition wakes whoever waits. */
static void
test_threads(struct zt *t)
{
    struct counter c = {0};

    rt_mutex_init(&c.lock, RT_RANK_DB, 0);
    rt_cond_init(&c.turn);
    run_workers(t, &c, count_up, 5000);
    c.value = 0;
    run_workers(t, &c, take_turns, 500);
    rt_cond_fini(&c.turn);
    rt_mutex_fini(&c.lock);
}

static void
look_at_self(void *arg)
{
    char *name = arg;
    sigset_t mask;

    CH_ASSERT(pthread_getname_np(pthread_self(), name, 16) == 0);
    CH_ASSERT(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    CH_ASSERT(sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1);
}

/* Goal: threads have their names and take no signals; the spawning thread's mask is as before. */
static void
test_spawn(struct zt *t)
{
    struct rt_thread thread;
    char name[16] = "";
    sigset_t mask;

    ZT_OK(t, rt_spawn(&thread, "cohort-gc", look_at_self, name));
    rt_join(&thread);
    ZT_CHECK(t, strcmp(name, "cohort-gc") == 0);
    ZT_CHECK(t, pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    ZT_CHECK(t, sigismember(&mask, SIGINT) == 0);
}

static void
end_with_lock(void *arg)
{
    rt_lock(arg);
}

/* Goal: a thread that ends with a mutex held is caught (T3). */
static void
test_end_with_lock(struct zt *t)
{
    pid_t child = fork();
    int status = 0;

    ZT_CHECK(t, child >= 0);
    if (child == 0) {
        struct rt_mutex m;
        struct rt_thread thread;

        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        rt_mutex_init(&m, RT_RANK_DB, 0);
        if (rt_spawn(&thread, "ends", end_with_lock, &m) == 0)
            rt_join(&thread);
        _exit(0);
    }
    ZT_CHECK(t, waitpid(child, &status, 0) == child);
    ZT_CHECK(t, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- time and chance ------------------------------------------------------------------------- */

struct waker {
    struct rt_mutex lock;
    struct rt_cond cond;
    bool woken;
};

static void
wake_later(void *arg)
{
    struct waker *w = arg;

    rt_sleep_ns(5 * MS);
    rt_lock(&w->lock);
    w->woken = true;
    rt_signal(&w->cond);
    rt_unlock(&w->lock);
}

/* Goal: a timeout comes, neither early nor hours late; a signal beats it; "for ever" does not wrap. */
static void
test_wait_for(struct zt *t)
{
    struct waker w = {.woken = false};
    struct rt_thread thread;
    uint64_t start = rt_now_ns();

    rt_mutex_init(&w.lock, RT_RANK_DB, 0);
    rt_cond_init(&w.cond);
    rt_lock(&w.lock);
    while (rt_wait_for(&w.cond, &w.lock, 20 * MS)) /* spurious wake-ups are allowed */
        continue;
    ZT_CHECK(t, rt_now_ns() - start >= 20 * MS);
    ZT_CHECK(t, rt_now_ns() - start < 10000 * MS);
    ZT_CHECK(t, !rt_wait_for(&w.cond, &w.lock, 0));

    ZT_OK(t, rt_spawn(&thread, "waker", wake_later, &w));
    while (!w.woken)
        ZT_CHECK(t, rt_wait_for(&w.cond, &w.lock, UINT64_MAX));
    rt_unlock(&w.lock);
    rt_join(&thread);
    rt_cond_fini(&w.cond);
    rt_mutex_fini(&w.lock);
}

/* Goal: the clock moves forward by at least what was slept; CPU time does not count sleep, and
 * counts work; random numbers differ. */
static void
test_clocks(struct zt *t)
{
    uint64_t wall = rt_now_ns();
    uint64_t cpu = rt_cpu_ns();
    uint64_t first = rt_random();

    rt_sleep_ns(50 * MS);
    ZT_CHECK(t, rt_now_ns() - wall >= 50 * MS);
    ZT_CHECK(t, rt_cpu_ns() - cpu < 40 * MS);
    cpu = rt_cpu_ns();
    while (rt_cpu_ns() - cpu < 2 * MS)
        rt_point();
    ZT_CHECK(t, rt_random() != first || rt_random() != first);
}

static const struct zt_case cases[] = {
    {"lock_order", test_lock_order, 1}, {"lock_order_random", test_lock_order_random, 200},
    {"lock_many", test_lock_many, 1},   {"threads", test_threads, 3},
    {"spawn", test_spawn, 1},           {"end_with_lock", test_end_with_lock, 1},
    {"wait_for", test_wait_for, 1},     {"clocks", test_clocks, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "rt", cases, CH_ARRAY_LEN(cases));
}
