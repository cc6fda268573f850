/* rt_sim_policy.c - which runnable thread goes on.
 *
 *   RANDOM      any, for a number of points around run_mean
 *   PRIORITIES  the one with the highest of random priorities; at a few points the runner becomes the
 *               lowest (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of
 *               finding bugs")
 *   STARVE      as RANDOM, but one thread, drawn anew now and then, hardly ever runs
 *   ROTATE      who has waited longest
 *
 * Besides, threads stall in some runs: one is taken off for some time, wherever it is, as a page fault or
 * a busy processor would.
 *
 * Real locks are not fair, but no thread waits for ever: who was runnable for PATIENCE points runs.
 */
#include "rt/rt_sim_internal.h"

enum policy {
    RANDOM,
    PRIORITIES,
    STARVE,
    ROTATE,
    POLICIES
};

enum {
    PATIENCE = 20000
};

void
sim_policy_init(struct sim *s)
{
    static const uint64_t MEANS[] = {1, 3, 10, 10, 30, 30, 100, 300};

    s->policy = (int)ch_prng_below(&s->rng, POLICIES);
    s->run_mean = MEANS[ch_prng_below(&s->rng, CH_ARRAY_LEN(MEANS))];
    s->change_every = UINT64_C(100) << ch_prng_below(&s->rng, 8);
    s->change_at = 1 + ch_prng_below(&s->rng, s->change_every);
    s->lowest = UINT64_C(1) << 62;
    s->step_ns = UINT64_C(20) << ch_prng_below(&s->rng, 6);
    s->spurious = ch_prng_below(&s->rng, 3) == 0;
    if (ch_prng_below(&s->rng, 3) == 0)
        s->stall_every = UINT64_C(50) << ch_prng_below(&s->rng, 7);
}

void
sim_policy_admit(struct sim *s, struct sim_thread *t)
{
    t->priority = (UINT64_C(1) << 62) + ch_prng_below(&s->rng, UINT64_C(1) << 62);
    t->ran = s->stats.points;
}

void
sim_policy_demote(struct sim *s, struct sim_thread *t)
{
    t->priority = --s->lowest;
}

void
sim_policy_be_fair(struct sim *s)
{
    s->policy = RANDOM;
    s->run_mean = 20;
    s->spurious = false;
    s->stall_every = 0;
    s->budget = 0;
}

static struct sim_thread *
longest_waiting(struct sim_thread *const *runnable, unsigned n)
{
    struct sim_thread *best = runnable[0];

    for (unsigned i = 1; i < n; i++)
        if (runnable[i]->ran < best->ran)
            best = runnable[i];
    return best;
}

static struct sim_thread *
highest(struct sim *s, struct sim_thread *const *runnable, unsigned n, struct sim_thread *self)
{
    struct sim_thread *best = runnable[0];

    if (s->stats.points >= s->change_at) {
        s->change_at = s->stats.points + 1 + ch_prng_below(&s->rng, 2 * s->change_every);
        sim_policy_demote(s, self);
    }
    for (unsigned i = 1; i < n; i++)
        if (runnable[i]->priority > best->priority)
            best = runnable[i];
    return best;
}

static struct sim_thread *
any_but_victim(struct sim *s, struct sim_thread *const *runnable, unsigned n)
{
    struct sim_thread *t = runnable[ch_prng_below(&s->rng, n)];

    if (ch_prng_below(&s->rng, 1000) == 0)
        s->victim = t;
    for (unsigned tries = 0; t == s->victim && tries < 8; tries++)
        t = runnable[ch_prng_below(&s->rng, n)];
    return t;
}

struct sim_thread *
sim_policy_choose(struct sim *s, struct sim_thread *const *runnable, unsigned n,
                  struct sim_thread *self)
{
    struct sim_thread *t = longest_waiting(runnable, n);

    s->budget = s->run_mean == 1 ? 0 : ch_prng_below(&s->rng, 2 * s->run_mean);
    if (n == 1 || s->stats.points - t->ran > PATIENCE)
        return t;
    switch ((enum policy)s->policy) {
    case PRIORITIES:
        return highest(s, runnable, n, self);
    case STARVE:
        return any_but_victim(s, runnable, n);
    case ROTATE:
        return t;
    case RANDOM:
    case POLICIES:
        break;
    }
    return runnable[ch_prng_below(&s->rng, n)];
}
