/* model_txn_test.c - rounds, crashes and comparison of the transaction model (model_txn.h).
 *
 * Goal: what was acknowledged is there, an unfinished transaction has left nothing, prepared ones wait for their decision with their
 * locks, commits are whole, cohort_check() finds nothing.
 *
 * Method: ROUNDS rounds: open, threads work, then one of: everything ended and closed; everything left open and the power
 * gone; the power gone at a drawn write; a request fails, then the power goes. Recovery is cut short now and then. Then prepared
 * transactions are decided, and the keys of each thread must be in the state after a prefix of its history.
 */
#include "model/model_txn.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ROUNDS = 4,
    OPEN_CUTS_MAX = 2,
    HANG_SECONDS = 240,
};

enum ending {
    END_CLOSE,
    END_KILL,
    END_CUT,
    END_EIO,
    ENDINGS
};

static void
world_check(struct world *w)
{
    for (unsigned i = 0; i < w->threads; i++) {
        if (w->workers[i]->failed)
            (void)fprintf(stderr, "%s\n", w->workers[i]->why);
        ZT_CHECK(w->t, !w->workers[i]->failed);
    }
}

/* ---- prepared transactions after recovery ---- */

struct listed {
    struct world *w;
    char gids[THREADS_MAX * PREPARED][24];
    unsigned count;
};

static int
visit_gid(void *arg, const void *gid, size_t bytes)
{
    struct listed *l = arg;

    if (l->count == CH_ARRAY_LEN(l->gids) || bytes >= sizeof(l->gids[0]))
        return COHORT_EINVAL;
    memcpy(l->gids[l->count], gid, bytes);
    l->gids[l->count++][bytes] = '\0';
    return 0;
}

static struct prepared *
find_gid(struct world *w, const char *gid, struct worker **k)
{
    for (unsigned i = 0; i < w->threads * PREPARED; i++) {
        struct prepared *p = &w->workers[i / PREPARED]->prepared[i % PREPARED];

        *k = w->workers[i / PREPARED];
        if (p->state != P_FREE && strcmp(p->gid, gid) == 0)
            return p;
    }
    return NULL;
}

/* The keys of a decided transaction: what they must be, apart from the history. */
struct pinned {
    bool is[KEYS_ALL];
    uint32_t version[KEYS_ALL];
};

static void
decide_one(struct world *w, const char *gid, struct pinned *pin)
{
    struct worker *k = NULL;
    struct prepared *p = find_gid(w, gid, &k);
    bool commit = zt_below(w->t, 2) == 0;
    char name[300];
    uint32_t key;

    ZT_CHECK(w->t, p != NULL); /* else nobody prepared it, or it was decided durably */
    if (p == NULL)
        return;
    key = p->changes[0].key;
    if (p->state == P_COMMITTING)
        k->writes--; /* the decision was lost */
    /* Its locks hold. */
    ZT_STATUS(w->t,
              model_tree_of(key) == 0 ? cohort_put(w->db, name, model_name(key, name), "x", 1)
                                      : cohort_tree_put(k->trees[model_tree_of(key)], name,
                                                        model_name(key, name), "x", 1),
              COHORT_CONFLICT);
    for (unsigned i = 0; i < p->count; i++) {
        pin->is[p->changes[i].key] = true;
        pin->version[p->changes[i].key] = k->state[p->changes[i].key];
    }
    for (unsigned i = 0; i < p->count && commit; i++)
        pin->version[p->changes[i].key] = p->changes[i].version;
    ZT_OK(w->t, commit ? cohort_commit_prepared(w->db, gid, strlen(gid))
                       : cohort_abort_prepared(w->db, gid, strlen(gid)));
    p->state = P_FREE;
}

static void
decide_all(struct world *w, struct pinned *pin)
{
    struct listed *l = calloc(1, sizeof(*l));

    CH_ASSERT(l != NULL);
    l->w = w;
    ZT_OK(w->t, cohort_list_prepared(w->db, visit_gid, l));
    for (unsigned i = 0; i < l->count; i++)
        decide_one(w, l->gids[i], pin);
    for (unsigned i = 0; i < w->threads * PREPARED; i++) {
        struct prepared *p = &w->workers[i / PREPARED]->prepared[i % PREPARED];

        ZT_CHECK(w->t, p->state != P_SURE); /* one that was acknowledged is lost */
        p->state = P_FREE;
    }
    ZT_OK(w->t, cohort_sync(w->db));
    free(l);
}

/* ---- comparison ---- */

static bool
differs(uint32_t key, uint32_t model, uint32_t got)
{
    if (key >= KEYS && model != 0 && got != 0 && model % 5 == 0 && got % 5 == 0)
        return false; /* empty trees look the same */
    return model != got;
}

static void
explain(const struct worker *k, const uint32_t *got, const struct pinned *pin)
{
    unsigned shown = 0;

    (void)fprintf(stderr, "thread %u: %u writes, %u acknowledged, %u to survive\n", k->index,
                  k->writes, k->acked, k->synced);
    for (uint32_t key = 0; key < KEYS_ALL && shown < 20; key++) {
        if (key % k->w->threads != k->index || !differs(key, k->state[key], got[key]))
            continue;
        (void)fprintf(stderr, "  key %u: version %u found, %u at the end of the history%s\n", key,
                      got[key], k->state[key], pin->is[key] ? ", prepared" : "");
        shown++;
    }
}

/* A prefix of the history, not shorter than what must survive, is what is there. Leaves it in k->state. */
static void
match_history(struct world *w, struct worker *k, const uint32_t *got, const struct pinned *pin)
{
    unsigned differ = 0, at = 0;
    bool found = false;

    memcpy(k->state, k->base, sizeof(k->state));
    for (uint32_t key = 0; key < KEYS_ALL; key++)
        if (key % w->threads == k->index && !pin->is[key])
            differ += differs(key, k->state[key], got[key]);
    for (unsigned n = 0;; n++) {
        found = found || (n >= k->synced && differ == 0);
        if (n == k->writes || found)
            break;
        for (; at < k->ends[n]; at++) {
            const struct change *c = &k->changes[at];

            if (!pin->is[c->key]) {
                differ -= differs(c->key, k->state[c->key], got[c->key]);
                differ += differs(c->key, c->version, got[c->key]);
            }
            k->state[c->key] = c->version;
        }
    }
    if (!found)
        explain(k, got, pin);
    ZT_CHECK(w->t, found);
    for (uint32_t key = 0; key < KEYS_ALL; key++) {
        if (key % w->threads != k->index || !pin->is[key])
            continue;
        if (got[key] != pin->version[key])
            explain(k, got, pin);
        ZT_CHECK(w->t, got[key] == pin->version[key]);
        k->state[key] = got[key];
    }
}

static void
forget_history(struct worker *k)
{
    memcpy(k->base, k->state, sizeof(k->base));
    memset(k->committed_at, 0, sizeof(k->committed_at));
    memset(k->owner, 0, sizeof(k->owner));
    k->change_count = k->writes = k->acked = k->synced = 0;
    k->commits = 0;
    k->stopped = false;
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "check: %s\n", line);
}

static void
check_counts(struct world *w)
{
    uint64_t want[TREES + 1] = {0}, count;

    for (uint32_t key = 0; key < KEYS; key++)
        want[model_tree_of(key)] += w->workers[key % w->threads]->state[key] != 0;
    for (unsigned i = 0; i <= TREES; i++) {
        ZT_OK(w->t, cohort_tree_count(w->db, NULL, w->workers[0]->trees[i], &count));
        ZT_CHECK(w->t, count == want[i]);
    }
}

static void
verify(struct world *w)
{
    uint32_t *got = calloc(KEYS_ALL, sizeof(*got));
    struct pinned *pin = calloc(1, sizeof(*pin));

    CH_ASSERT(got != NULL && pin != NULL);
    for (unsigned i = 0; i < w->threads; i++)
        (void)model_open_trees(w->workers[i]);
    world_check(w);
    decide_all(w, pin);
    for (uint32_t key = 0; key < KEYS_ALL; key++)
        got[key] = model_read(w->workers[key % w->threads], NULL, key);
    world_check(w);
    for (unsigned i = 0; i < w->threads; i++) {
        match_history(w, w->workers[i], got, pin);
        forget_history(w->workers[i]);
    }
    check_counts(w);
    ZT_OK(w->t, cohort_check(w->db, print_finding, NULL, NULL));
    free(got);
    free(pin);
}

/* ---- opening and rounds ---- */

static int
open_with(struct world *w, const struct dev_fault_plan *plan, bool create)
{
    struct dev *dev = NULL;
    int rc;

    ZT_OK(w->t, dev_sim_open(w->drive, &dev));
    ZT_OK(w->t, dev_fault_open(dev, plan, &w->fault));
    rc = api_open_dev(w->fault, &w->opts, create, &w->db);
    if (rc != 0)
        w->fault = NULL;
    return rc;
}

static void
reopen(struct world *w, bool crashed)
{
    static const struct dev_fault_plan none = {0};
    uint64_t cuts = crashed ? zt_below(w->t, OPEN_CUTS_MAX + 1) : 0;

    for (uint64_t i = 0; i < cuts; i++) {
        struct dev_fault_plan plan = {.stop_after_writes = 1 + zt_below(w->t, 60)};

        if (open_with(w, &plan, false) == 0)
            api_kill(w->db);
        sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
    }
    ZT_OK(w->t, open_with(w, &none, false));
}

static void
run_threads(struct world *w)
{
    for (unsigned i = 0; i < w->threads; i++) {
        struct worker *k = w->workers[i];

        ch_prng_init(&k->rng, w->t->seed + zt_below(w->t, UINT32_MAX));
        k->ops = 100 + (unsigned)zt_below(w->t, 4000 / w->threads);
        if (w->threads == 1)
            model_work(k);
        else
            ZT_OK(w->t, rt_spawn(&k->thread, "worker", model_work, k));
    }
    for (unsigned i = 0; w->threads > 1 && i < w->threads; i++)
        rt_join(&w->workers[i]->thread);
    world_check(w);
}

/* What is open goes with the power. */
static void
leave_open(struct world *w)
{
    for (unsigned i = 0; i < w->threads; i++) {
        struct worker *k = w->workers[i];

        for (unsigned s = 0; s < SLOTS; s++) {
            if (k->slots[s].txn != NULL)
                api_forget(k->slots[s].txn);
            k->slots[s].txn = NULL;
        }
        model_close_trees(k);
    }
    api_kill(w->db);
}

static void
end_all(struct world *w)
{
    for (unsigned i = 0; i < w->threads; i++) {
        struct worker *k = w->workers[i];

        model_end_slots(k);
        model_close_trees(k);
    }
    world_check(w);
    ZT_OK(w->t, cohort_close(w->db));
    for (unsigned i = 0; i < w->threads; i++)
        w->workers[i]->synced = w->workers[i]->acked;
}

static void
one_round(struct world *w)
{
    enum ending end = (enum ending)zt_below(w->t, ENDINGS);
    struct dev_fault_plan plan = {.code = COHORT_EIO};

    w->faults = end == END_CUT || end == END_EIO;
    if (end == END_CUT)
        plan.stop_after_writes = 1 + zt_below(w->t, 2000);
    if (end == END_EIO)
        plan.fail_nth[zt_below(w->t, 3) == 0 ? DEV_FLUSH : DEV_WRITE] = 1 + zt_below(w->t, 1000);
    dev_fault_set(w->fault, &plan);
    run_threads(w);
    if (end == END_CLOSE)
        end_all(w);
    else
        leave_open(w);
    w->db = NULL;
    if (end != END_CLOSE)
        sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
    w->faults = false;
    reopen(w, end != END_CLOSE);
    verify(w);
}

/* ---- drawing a world ---- */

static void
set(struct world *w, const char *name, const char *value)
{
    ZT_OK(w->t, cohort_options_set(&w->opts, name, value));
}

static void
draw_world(struct world *w)
{
    static const char *const presets[] = {"cohort", "inplace", "inplace-atomic", "oop", "oop+pack"};
    static const char *const modes[] = {"sync", "sync", "async", "none"};
    static const char *const logs[] = {"512K", "1M"};
    static const char *const versions[] = {"0", "0", "256K", "64K"};
    char text[128];

    cohort_options_init(&w->opts);
    set(w, "preset", presets[zt_below(w->t, 5)]);
    set(w, "durability", modes[zt_below(w->t, 4)]);
    set(w, "async_ms", "3");
    set(w, "zone_bytes", "128K");
    set(w, "log_bytes", logs[zt_below(w->t, 2)]);
    set(w, "cache_bytes", zt_below(w->t, 2) == 0 ? "1M" : "2M");
    set(w, "version_bytes", versions[zt_below(w->t, 4)]);
    set(w, "lock_timeout_ms", "0");
    w->threads = 1 + (unsigned)zt_below(w->t, THREADS_MAX);
    set(w, "background", w->threads > 1 || zt_below(w->t, 2) == 0 ? "yes" : "no");
    (void)snprintf(text, sizeof(text), "generic,bytes=32M,superblock=256K,cache=volatile%s",
                   w->opts.preset == COHORT_PRESET_INPLACE_ATOMIC ? ",tear=no" : "");
    ZT_OK(w->t, sim_drive_create(text, &w->drive));
    for (unsigned i = 0; i < w->threads; i++) {
        struct worker *k = calloc(1, sizeof(*k));

        CH_ASSERT(k != NULL);
        w->workers[i] = k;
        k->w = w;
        k->index = i;
        k->buf = malloc(LARGE_MAX);
        k->want = malloc(LARGE_MAX);
        CH_ASSERT(k->buf != NULL && k->want != NULL);
    }
}

static struct world *current; /* for the watchdog */

static void
hangs(int sig)
{
    static const char text[] = "model_txn_test: a run hangs\n";

    (void)sig;
    (void)!write(2, text, sizeof(text) - 1);
    if (current != NULL)
        (void)fprintf(stderr, "seed %" PRIu64 "\n", current->t->seed);
    abort();
}

static void
test_model(struct zt *t)
{
    static const struct dev_fault_plan none = {0};
    struct world *w = calloc(1, sizeof(*w));

    CH_ASSERT(w != NULL);
    w->t = t;
    current = w;
    (void)signal(SIGALRM, hangs);
    (void)alarm(HANG_SECONDS);
    draw_world(w);
    if (getenv("COHORT_MODEL_VERBOSE") != NULL)
        (void)fprintf(stderr,
                      "seed %" PRIu64 ": preset %" PRIu64 " durability %" PRIu64
                      " threads %u background %" PRIu64 " versions %" PRIu64 "\n",
                      t->seed, w->opts.preset, w->opts.durability, w->threads, w->opts.background,
                      w->opts.version_bytes);
    ZT_OK(t, open_with(w, &none, true));
    for (unsigned i = 0; i < w->threads; i++)
        (void)model_open_trees(w->workers[i]);
    ZT_OK(t, cohort_sync(w->db)); /* the trees are there in every round */
    for (int i = 0; i < ROUNDS; i++)
        one_round(w);
    for (unsigned i = 0; i < w->threads; i++)
        model_close_trees(w->workers[i]);
    ZT_OK(t, cohort_close(w->db));
    (void)alarm(0);
    current = NULL;
    sim_drive_destroy(w->drive);
    for (unsigned i = 0; i < w->threads; i++) {
        cohort_value_free(&w->workers[i]->value);
        free(w->workers[i]->buf);
        free(w->workers[i]->want);
        free(w->workers[i]);
    }
    free(w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 60},
    };

    return zt_main(argc, argv, "model_txn", cases, CH_ARRAY_LEN(cases));
}
