/* tpcc_run.c - the threads of a run, and the thread that watches them.
 *
 * A worker draws a transaction, runs it until it commits, counts it and times it, attempts included.
 *
 * Invariant: a worker writes only its own struct; the watcher reads `done` and `new_orders` of it
 * meanwhile, and the rest after join. Locks: none.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/tpcc.h"
#include "rt/rt.h"

enum {
    RUN_POLL_NS = 20000000,
    RUN_STALL_S = 60 /* no transaction for so long: the run is given up */
};

struct run {
    const struct tpcc_run *r;
    struct tpcc_constants constants;
    _Atomic bool stop;        /* watcher -> workers */
    _Atomic bool measuring;   /* watcher -> workers: latencies count */
    _Atomic unsigned working; /* workers -> watcher: threads not done */
};

struct worker {
    struct run *run;
    struct rt_thread thread;
    struct tpcc_terminal terminal;
    struct ch_hist latency[TPCC_KINDS];
    uint64_t quota;
    _Atomic uint64_t done, new_orders; /* worker -> watcher */
    int rc;
    struct cohort_error error;
    char apart[64]; /* the next worker's counters are on another cache line */
};

static void
worker_main(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    struct tpcc_terminal *t = &w->terminal;
    struct tpcc_input in;
    uint64_t n = 0;
    int rc = 0;

    while (rc == 0 && n < w->quota && !atomic_load_explicit(&run->stop, memory_order_relaxed)) {
        uint64_t start = rt_now_ns();

        tpcc_draw(t, &in);
        rc = tpcc_execute(t, &in, &run->stop);
        if (rc != 0)
            break;
        if (atomic_load_explicit(&run->measuring, memory_order_relaxed))
            ch_hist_add(&w->latency[in.kind], rt_now_ns() - start);
        atomic_store_explicit(&w->done, ++n, memory_order_relaxed);
        atomic_store_explicit(&w->new_orders, t->counts[TPCC_NEW_ORDER_TXN].committed,
                              memory_order_relaxed);
    }
    if (tpcc_is_retry(rc) && atomic_load_explicit(&run->stop, memory_order_relaxed))
        rc = 0; /* the run ended between two attempts */
    if (rc != 0) {
        w->rc = rc;
        w->error = *cohort_last_error();
        atomic_store_explicit(&run->stop, true, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&run->working, 1, memory_order_release);
}

static void
run_done(const struct run *run, const struct worker *w, uint64_t *done, uint64_t *new_orders)
{
    *done = *new_orders = 0;
    for (uint64_t i = 0; i < run->r->threads; i++) {
        *done += atomic_load_explicit(&w[i].done, memory_order_relaxed);
        *new_orders += atomic_load_explicit(&w[i].new_orders, memory_order_relaxed);
    }
}

static void
run_progress(const struct run *run, const struct worker *w, uint64_t start, uint64_t now)
{
    uint64_t done, new_orders;

    run_done(run, w, &done, &new_orders);
    fprintf(stderr, "tpcc %s: %4.0f s %10llu transactions, %.0f new orders a minute\n",
            run->r->store->ops->name, (double)(now - start) / 1e9, (unsigned long long)done,
            (double)new_orders * 60e9 / (double)(now - start));
}

/* Threads that never return cannot be joined: the process is given up, and the database recovers as
 * after a crash. */
static void
check_stall(uint64_t done, uint64_t *last, uint64_t *moved)
{
    uint64_t now = rt_now_ns();

    if (done != *last) {
        *last = done;
        *moved = now;
    } else if (now - *moved > RUN_STALL_S * UINT64_C(1000000000)) {
        fprintf(stderr, "cohort bench: tpcc: stuck: no transaction finished for %d s after %llu\n",
                RUN_STALL_S, (unsigned long long)done);
        _exit(1);
    }
}

static int
run_watch(struct run *run, struct worker *w)
{
    const struct tpcc_run *r = run->r;
    uint64_t start = rt_now_ns(), shown = start, last = 0, moved = start, done, new_orders;
    bool stop = false, measure = true;
    int rc = 0;

    while (rc == 0 && !stop) {
        uint64_t now;

        rt_sleep_ns(RUN_POLL_NS);
        now = rt_now_ns();
        stop = (r->seconds > 0 && (double)(now - start) >= r->seconds * 1e9) ||
               atomic_load_explicit(&run->working, memory_order_acquire) == 0 ||
               atomic_load_explicit(&run->stop, memory_order_relaxed);
        run_done(run, w, &done, &new_orders);
        if (r->watch != NULL)
            rc = r->watch(r->arg, done, new_orders, &measure, &stop);
        atomic_store_explicit(&run->measuring, measure, memory_order_relaxed);
        check_stall(done, &last, &moved);
        if (r->progress && now - shown >= UINT64_C(1000000000)) {
            shown = now;
            run_progress(run, w, start, now);
        }
    }
    return rc;
}

static int
worker_init(struct worker *w, struct run *run, uint64_t index)
{
    const struct tpcc_run *r = run->r;

    w->run = run;
    w->quota = r->ops > 0 ? r->ops / r->threads + (index < r->ops % r->threads) : UINT64_MAX;
    w->terminal.scale = r->scale;
    w->terminal.steady = r->steady;
    w->terminal.random.constants = run->constants;
    ch_prng_init(&w->terminal.random.prng, r->seed * UINT64_C(1000003) + index + 1);
    return r->store->ops->session_open(r->store, &w->terminal.session);
}

static int
run_threads(struct run *run, struct worker *w)
{
    uint64_t threads = run->r->threads, started = 0;
    int rc = 0;

    for (uint64_t i = 0; i < threads && rc == 0; i++)
        rc = worker_init(&w[i], run, i);
    atomic_init(&run->working, (unsigned)threads);
    while (rc == 0 && started < threads) {
        rc = rt_spawn(&w[started].thread, "tpcc", worker_main, &w[started]);
        started += rc == 0;
    }
    if (rc == 0)
        rc = run_watch(run, w);
    atomic_store_explicit(&run->stop, true, memory_order_relaxed);
    for (uint64_t i = 0; i < started; i++)
        rt_join(&w[i].thread);
    for (uint64_t i = 0; i < started && rc == 0; i++)
        if (w[i].rc != 0)
            rc = CH_FAIL(w[i].rc, "%s", w[i].error.code == w[i].rc ? w[i].error.text : "");
    return rc;
}

static void
run_sum(const struct worker *w, uint64_t threads, struct tpcc_result *out)
{
    for (uint64_t i = 0; i < threads; i++) {
        const struct tpcc_terminal *t = &w[i].terminal;

        for (int k = 0; k < TPCC_KINDS; k++) {
            out->counts[k].committed += t->counts[k].committed;
            out->counts[k].rolled_back += t->counts[k].rolled_back;
            out->counts[k].retries += t->counts[k].retries;
            ch_hist_merge(&out->latency[k], &w[i].latency[k]);
        }
        out->skipped += t->skipped;
        out->delivered += t->delivered;
        out->purged += t->purged;
    }
}

int
tpcc_run(const struct tpcc_run *r, struct tpcc_result *out)
{
    struct run run = {.r = r};
    struct worker *w = calloc(r->threads, sizeof(*w));
    struct ch_prng p;
    uint64_t start = rt_now_ns();
    int rc;

    memset(out, 0, sizeof(*out));
    if (w == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%llu threads", (unsigned long long)r->threads);
    ch_prng_init(&p, r->seed);
    tpcc_constants_draw(&run.constants, &p, r->scale->c_load);
    atomic_init(&run.stop, false);
    atomic_init(&run.measuring, true);
    rc = run_threads(&run, w);
    out->seconds = (double)(rt_now_ns() - start) / 1e9;
    run_sum(w, r->threads, out);
    for (uint64_t i = 0; i < r->threads; i++)
        r->store->ops->session_close(w[i].terminal.session);
    free(w);
    return rc;
}

uint64_t
tpcc_result_done(const struct tpcc_result *r)
{
    uint64_t n = 0;

    for (int k = 0; k < TPCC_KINDS; k++)
        n += r->counts[k].committed + r->counts[k].rolled_back;
    return n;
}
