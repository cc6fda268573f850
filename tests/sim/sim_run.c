/* sim_run.c - one seed: boots of one database, each with a workload, ended by a close, a dying process
 * or a power cut; after each, all that is there is compared with what may be.
 *
 *     open (cut while it recovers, again and again) -> check -> workload -> end -> ... -> the last boot:
 *     no faults, fair scheduling, every operation in bounded time -> close -> open -> check -> close
 *
 * At a power cut the device fails every request from then on. So the threads of the database, and the
 * workers in it, come back with errors, and api_kill() joins and frees all: nothing is left behind.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "api/api_internal.h"
#include "sim.h"

enum {
    DRIVE_KIB_MAX = 128 * 1024
};

#define POLL_NS      UINT64_C(20000)
#define STALL_NS     UINT64_C(600000000000)
#define STALL_POINTS UINT64_C(3000000)

struct worker {
    struct rt_thread thread;
    struct sim_world *w;
    struct ch_prng rng;
    unsigned number, ops;
};

/* ---- open ---- */

static int
open_once(struct sim_world *w, const struct dev_fault_plan *fault, bool create)
{
    struct dev *inner = NULL;
    int rc = dev_sim_open(w->drive, &inner);

    SIM_CHECK(rc == 0);
    rc = dev_fault_open(inner, fault, &w->fault);
    SIM_CHECK(rc == 0);
    rt_sim_progress();
    rc = api_open_dev(w->fault, &w->plan->opts, create, &w->db);
    if (rc != 0) {
        w->fault = NULL;
        w->db = NULL;
    }
    sim_trace("open: %s", rc == 0 ? "ok" : cohort_last_error()->text);
    return rc;
}

/* A crash while it opens, `b->recovery_cuts` times. */
static void
cut_recoveries(struct sim_world *w, const struct sim_boot *b)
{
    for (unsigned i = 0; i < b->recovery_cuts; i++) {
        struct dev_fault_plan fault = {.code = COHORT_EIO};
        enum cohort_class class;
        int rc;

        if (b->recovery_flush[i])
            fault.stop_after_flushes = b->recovery_at[i];
        else
            fault.stop_after_writes = b->recovery_at[i];
        rc = open_once(w, &fault, false);
        class = cohort_class_of(rc);
        if (rc == 0)
            api_kill(w->db);
        else if (class != COHORT_CLASS_IO && class != COHORT_CLASS_FAILED)
            sim_fail("open, cut at %s %" PRIu64 ": %s: %s",
                     b->recovery_flush[i] ? "flush" : "write", b->recovery_at[i],
                     cohort_strerror(rc), cohort_last_error()->text);
        sim_drive_crash(w->drive, b->recovery_seed[i]);
        sim_cover->recovery_cuts++;
        sim_cover->recovery_failures += rc != 0;
    }
}

/* Opening without faults must work. */
static void
open_well(struct sim_world *w)
{
    static const struct dev_fault_plan NONE;
    int rc = open_once(w, &NONE, false);

    if (rc != 0)
        sim_fail("open: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    sim_cover->boots++;
    if (w->plan->transactions && sim_txn_open(w) != 0)
        sim_fail("open of a tree: %s", cohort_last_error()->text);
}

/* ---- workload ---- */

static void
work(void *arg)
{
    struct worker *k = arg;

    if (k->w->plan->transactions)
        sim_txn_worker(k->w, k->number, &k->rng, k->ops);
    else
        sim_load_worker(k->w, k->number, &k->rng, k->ops);
    k->w->running--;
}

static void
run_workers(struct sim_world *w, const struct sim_boot *b)
{
    static const char *const NAMES[] = {"worker-0", "worker-1", "worker-2",
                                        "worker-3", "worker-4", "worker-5"};
    struct worker workers[SIM_WORKERS_MAX];
    unsigned n = w->plan->workers;

    w->running = n;
    for (unsigned i = 0; i < n; i++) {
        workers[i] = (struct worker){.w = w, .number = i, .ops = b->ops};
        ch_prng_init(&workers[i].rng, w->plan->seed * 64 + w->boot * 8 + i);
        if (rt_spawn(&workers[i].thread, NAMES[i], work, &workers[i]) != 0)
            sim_fail("no thread");
    }
    if (b->end == SIM_END_TIME) {
        while (w->running > 0 && w->ended < b->at)
            rt_sleep_ns(POLL_NS);
        rt_sleep_ns(b->after_ns);
        w->stop = true;
        sim_trace("power cut");
        sim_drive_crash(w->drive, b->crash_seed);
    }
    for (unsigned i = 0; i < n; i++)
        rt_join(&workers[i].thread);
}

/* ---- end of a boot ---- */

static void
cover_boot(struct sim_world *w)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    bool dead;

    sim_cover->faults_fired += dev_fault_failed(w->fault, &dead) > 0 && !dead;
    sim_cover->boots_failed += w->failed;
    if (cohort_stats(w->db, &s) != 0)
        return;
    sim_cover->checkpoints += s.checkpoints;
    sim_cover->gc_zones += s.gc_zones;
    sim_cover->delta_writes += s.delta_writes;
    sim_cover->delta_reads += s.delta_reads;
    sim_cover->evictions += s.cache_misses;
    sim_cover->commits += s.commits;
    sim_cover->aborts += s.aborts;
    sim_cover->conflicts += s.conflicts;
    sim_cover->deadlocks += s.deadlocks;
    sim_cover->lock_timeouts += s.lock_timeouts;
    sim_cover->snapshots_killed += s.snapshots_killed;
    sim_cover->lock_waits += s.lock_waits;
    sim_cover->spilled_bytes += s.undo_spilled_bytes;
}

/* Whether nothing may have been lost. */
static bool
end_boot(struct sim_world *w, const struct sim_boot *b)
{
    static const struct dev_fault_plan NONE;
    bool lossless = false;
    bool dead = false;

    cover_boot(w);
    if (w->plan->transactions)
        sim_txn_close(w);
    if (dev_fault_failed(w->fault, &dead) == 0 && b->end != SIM_END_TIME)
        sim_check_bytes(w);
    if (b->end == SIM_END_CLOSE && !dead) {
        int rc;

        if (!w->failed && b->faults)
            dev_fault_set(w->fault, &NONE); /* else closing may fail, and often does */
        rc = cohort_close(w->db);
        sim_trace("close: %s", cohort_strerror(rc));
        if (rc != 0 && !b->faults && rc != COHORT_EFULL)
            sim_fail("close: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
        lossless = rc == 0 && !w->failed;
        sim_cover->closes++;
    } else {
        api_kill(w->db);
        sim_cover->kills++;
    }
    if (b->end >= SIM_END_WRITES) {
        sim_drive_crash(w->drive, b->crash_seed);
        sim_cover->crashes++;
    }
    w->db = NULL;
    w->fault = NULL;
    rt_sim_progress();
    return lossless;
}

/* Returns whether the database lost nothing. *created: it exists for good. */
static bool
run_boot(struct sim_world *w, const struct sim_boot *b)
{
    dev_fault_set(w->fault, &b->fault);
    w->stop = w->failed = false;
    w->ended = 0;
    run_workers(w, b);
    return end_boot(w, b);
}

/* All is well now, so everything must work, and soon. */
static void
run_last(struct sim_world *w)
{
    struct sim_boot calm = {.end = SIM_END_CLOSE, .ops = 10};
    bool lossless;

    rt_sim_be_fair();
    w->fair = true;
    w->boot = w->plan->boots;
    dev_fault_set(w->fault, &calm.fault);
    w->stop = w->failed = false;
    if (w->plan->transactions)
        sim_txn_settle(w);
    if (w->plan->drain)
        sim_load_drain(w);
    lossless = run_boot(w, &calm);
    open_well(w);
    sim_check_all(w, !lossless);
    sim_check_bytes(w);
    if (w->plan->transactions)
        sim_txn_close(w);
    if (cohort_close(w->db) != 0 && cohort_last_error()->code != COHORT_EFULL)
        sim_fail("the last close: %s", cohort_last_error()->text);
}

/* A drive, and a database on it. */
static void
create(struct sim_world *w)
{
    static const struct dev_fault_plan NONE;
    uint64_t kib = w->plan->drive_kib;
    int rc = COHORT_EFULL;

    for (; (rc == COHORT_EFULL || rc == COHORT_EMISMATCH) && kib <= DRIVE_KIB_MAX;
         kib = ch_round_up(kib * 5 / 4, 128)) {
        char text[256];

        (void)snprintf(text, sizeof(text), "%s,bytes=%" PRIu64 "K", w->plan->drive, kib);
        if (sim_drive_create(text, &w->drive) != 0)
            sim_fail("drive: %s", cohort_last_error()->text);
        sim_drive_set_timing(w->drive, &w->plan->timing);
        rc = open_once(w, &NONE, true);
        if (rc == 0 && w->plan->transactions) {
            rc = sim_txn_open(w);
            if (rc != 0) {
                sim_txn_close(w);
                api_kill(w->db);
            }
        }
        if (rc != 0)
            sim_drive_destroy(w->drive);
    }
    if (rc != 0)
        sim_fail("create: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    sim_cover->boots++;
}

void
sim_run(const struct sim_plan *p)
{
    struct rt_sim_config cfg = {
        .seed = p->seed, .stall_ns = STALL_NS, .stall_points = STALL_POINTS};
    struct sim_world w = {.plan = p};
    struct rt_sim_stats stats;
    bool lossless = true;

    rt_sim_start(&cfg);
    sim_model_init(p);
    sim_check_init(p);
    sim_ddl_init();
    create(&w);
    if (p->preload)
        sim_load_all(&w);
    for (w.boot = 0; w.boot < p->boots; w.boot++) {
        sim_trace("boot %u", w.boot);
        lossless = run_boot(&w, &p->boot[w.boot]);
        cut_recoveries(&w, &p->boot[w.boot]);
        open_well(&w);
        sim_cover->recoveries += !lossless;
        sim_check_all(&w, !lossless);
        sim_check_bytes(&w);
    }
    run_last(&w);
    sim_drive_destroy(w.drive);
    sim_check_fini();
    sim_model_fini();
    rt_sim_stop(&stats);
    sim_cover->points += stats.points;
    sim_cover->switches += stats.switches;
    sim_cover->schedules += stats.trace; /* equal for equal runs */
    sim_cover->virtual_ms += stats.now_ns / 1000000;
    sim_trace("schedule %016" PRIx64 ", %" PRIu64 " points, %" PRIu64 " ns", stats.trace,
              stats.points, stats.now_ns);
}
