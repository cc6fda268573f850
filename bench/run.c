/* run.c - the threads of a run, and the thread that watches them.
 *
 *   worker      draws an operation by the workload's mix, does it, counts it, times it
 *   watcher     samples all counters at the ends of the reported window, prints progress, stops
 *
 * Window: with --drive-writes X the last quarter of X device capacities of host bytes, in two halves
 * that are compared; else the whole run. Latencies are those of the window.
 *
 * Invariants:
 *   W1  a record number below `visible` was inserted: reads by "latest" never miss. Inserts finish
 *       in any order; `done` holds those that finished ahead of a slower one.
 *   W2  a worker writes only its own struct; the watcher reads `ops` of it, and the rest after join.
 *
 * Locks: none; all shared fields are atomic, partners named below.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/prng.h"
#include "bench/bench.h"
#include "bench/gen.h"
#include "bench/skew.h"
#include "dev/dev.h"
#include "rt/rt.h"

enum {
    RUN_DONE = 1 << 16, /* inserts that may be ahead of the slowest one */
    RUN_POLL_NS = 5000000,
    RUN_STALL_S = 60 /* no operation for so long: the run is given up */
};

enum run_op {
    OP_READ,
    OP_UPDATE,
    OP_INSERT,
    OP_SCAN,
    OP_MODIFY,
    OP_KINDS
};

struct run_mix {
    const char *workload;
    unsigned percent[OP_KINDS];
    bool latest;
};

struct run {
    struct bench *b;
    struct run_mix mix;
    struct skew skew;
    struct bench_points *points;
    _Atomic bool stop;        /* watcher -> workers */
    _Atomic bool measuring;   /* watcher -> workers: latencies count */
    _Atomic unsigned working; /* workers -> watcher: threads not done */
    _Atomic uint64_t next;    /* inserters among each other: number of the next new record */
    _Atomic uint64_t visible; /* inserters -> readers: W1 */
    _Atomic uint64_t *done;   /* inserter -> whoever advances `visible`: number + 1, 0 = none */
};

struct worker {
    struct run *run;
    struct rt_thread thread;
    struct ch_prng rng;
    _Atomic uint64_t ops;        /* worker -> watcher */
    _Atomic uint64_t virtual_ns; /* worker -> watcher: how far its clients are */
    uint64_t quota;
    struct ch_hist *latency;
    struct cohort_value got;
    cohort_cursor *cursor;
    uint8_t *value;
    int rc;
    struct cohort_error error;
    char apart[64]; /* the next worker's counter is on another cache line */
};

static const struct run_mix run_mixes[] = {
    {"a", {50, 50, 0, 0, 0}, false},        {"b", {95, 5, 0, 0, 0}, false},
    {"c", {100, 0, 0, 0, 0}, false},        {"d", {95, 0, 5, 0, 0}, true},
    {"e", {0, 0, 5, 95, 0}, false},         {"f", {50, 0, 0, 0, 50}, false},
    {"update", {0, 100, 0, 0, 0}, false},   {"pages", {0, 100, 0, 0, 0}, false},
    {"shift", {50, 50, 0, 0, 0}, false},    {"hotcold", {50, 50, 0, 0, 0}, false},
    {"rangehot", {83, 14, 0, 3, 0}, false}, /* mixgraph's gets, puts, seeks */
};

static int
find_mix(const struct bench_config *c, struct run_mix *out)
{
    unsigned updates = (unsigned)(c->updates + 0.5);

    for (size_t i = 0; i < CH_ARRAY_LEN(run_mixes); i++) {
        if (strcmp(run_mixes[i].workload, c->workload) != 0)
            continue;
        *out = run_mixes[i];
        if (updates > 0)
            *out = (struct run_mix){c->workload, {100 - updates, updates, 0, 0, 0}, false};
        return 0;
    }
    return CH_FAIL(COHORT_EOPTION, "--workload '%s': a to f, pages, rangehot, shift or hotcold",
                   c->workload);
}

/* ---- operations ---- */

static uint64_t
pick(struct worker *w)
{
    struct run *r = w->run;
    uint64_t clock = atomic_load_explicit(&w->ops, memory_order_relaxed) * r->b->c.threads;
    uint64_t rank = skew_draw(&r->skew, &w->rng, clock);

    if (!r->mix.latest)
        return rank;
    return atomic_load_explicit(&r->visible, memory_order_acquire) - 1 - rank;
}

static int
op_read(struct worker *w)
{
    const struct bench_config *c = &w->run->b->c;
    uint8_t key[GEN_KEY_BYTES];
    uint64_t i = pick(w);
    int rc;

    gen_key(i, !c->unscrambled, key);
    rc = cohort_get(w->run->b->db, key, sizeof(key), &w->got);
    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(rc, "record %llu was loaded and is gone", (unsigned long long)i);
    if (rc == 0 && w->got.bytes != c->value_bytes)
        return CH_FAIL(COHORT_ECORRUPT, "record %llu: %zu bytes, not %llu", (unsigned long long)i,
                       w->got.bytes, (unsigned long long)c->value_bytes);
    return rc;
}

static int
put_record(struct worker *w, uint64_t i)
{
    const struct bench_config *c = &w->run->b->c;
    uint64_t number = gen_key_number(i, !c->unscrambled);
    uint8_t key[GEN_KEY_BYTES];

    gen_key_bytes(number, key);
    gen_value(&w->rng, w->value, c->value_bytes, bench_random_part(c, w->run->b->records, number));
    return cohort_put(w->run->b->db, key, sizeof(key), w->value, c->value_bytes);
}

/* W1: marks record i, then moves `visible` over all that are marked. The mark is the record's number,
 * so that a thread that slept for a whole turn of the ring does not take a later record's mark. */
static void
insert_done(struct run *r, uint64_t i)
{
    uint64_t v;

    atomic_store_explicit(&r->done[i % RUN_DONE], i + 1, memory_order_release);
    v = atomic_load_explicit(&r->visible, memory_order_acquire);
    for (;;) {
        uint64_t mark = v + 1;

        if (!atomic_compare_exchange_strong_explicit(&r->done[v % RUN_DONE], &mark, 0,
                                                     memory_order_acq_rel, memory_order_acquire))
            return;
        v = atomic_fetch_add_explicit(&r->visible, 1, memory_order_acq_rel) + 1;
    }
}

static int
op_insert(struct worker *w)
{
    struct run *r = w->run;
    uint64_t i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
    int rc;

    while (i - atomic_load_explicit(&r->visible, memory_order_acquire) >= RUN_DONE &&
           !atomic_load_explicit(&r->stop, memory_order_relaxed))
        rt_yield(); /* a slower insert holds the ring */
    rc = put_record(w, i);
    if (rc == 0)
        insert_done(r, i);
    return rc;
}

static int
op_scan(struct worker *w)
{
    const struct bench_config *c = &w->run->b->c;
    uint64_t n = 1 + ch_prng_below(&w->rng, c->scan_max);
    uint8_t key[GEN_KEY_BYTES];
    struct cohort_slice k, v;
    int rc;

    gen_key(pick(w), !c->unscrambled, key);
    rc = cohort_cursor_seek(w->cursor, key, sizeof(key));
    for (uint64_t i = 1; rc == 0; i++) {
        rc = cohort_cursor_entry(w->cursor, &k, &v);
        if (rc != 0 || i == n)
            break;
        rc = cohort_cursor_next(w->cursor);
    }
    return rc == COHORT_NOTFOUND ? 0 : rc; /* the end of the key space */
}

static int
op_modify(struct worker *w)
{
    const struct bench_config *c = &w->run->b->c;
    uint8_t key[GEN_KEY_BYTES];
    uint64_t i = pick(w);
    int rc;

    gen_key(i, !c->unscrambled, key);
    rc = cohort_get(w->run->b->db, key, sizeof(key), &w->got);
    return rc != 0 ? rc : put_record(w, i);
}

static int
do_op(struct worker *w)
{
    uint64_t at = ch_prng_below(&w->rng, 100);
    unsigned kind = 0;

    while (at >= w->run->mix.percent[kind]) {
        at -= w->run->mix.percent[kind];
        kind++;
    }
    switch ((enum run_op)kind) {
    case OP_READ:
        return op_read(w);
    case OP_UPDATE:
        return put_record(w, pick(w));
    case OP_INSERT:
        return op_insert(w);
    case OP_SCAN:
        return op_scan(w);
    case OP_MODIFY:
        return op_modify(w);
    case OP_KINDS:
        break;
    }
    return CH_FAIL(COHORT_EINVAL, "workload %s: its mix is not 100 percent", w->run->mix.workload);
}

static void
worker_end(struct worker *w, int rc)
{
    if (rc != 0) {
        w->rc = rc;
        w->error = *cohort_last_error();
        atomic_store_explicit(&w->run->stop, true, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&w->run->working, 1, memory_order_release);
}

/* One thread stands for many clients on a drive that counts time instead of taking it (dev.h): whose clock is
 * the least does the next operation. An operation takes what the drive says and a stated CPU time; clients have
 * as many processors as they need. */
static void
virtual_main(void *arg)
{
    static const uint64_t slack = 10000000;
    struct worker *w = arg;
    const struct bench_config *c = &w->run->b->c;
    uint64_t clock[BENCH_CLIENTS_MAX] = {0}, cpu = (uint64_t)(c->cpu_us * 1e3), n = 0, end = 0;
    int rc = 0;

    while (rc == 0 && n < w->quota && !atomic_load_explicit(&w->run->stop, memory_order_relaxed)) {
        uint64_t late = dev_virtual_background(), took;
        unsigned i = 0;

        for (unsigned k = 1; k < c->clients; k++)
            i = clock[k] < clock[i] ? k : i;
        dev_virtual_begin(ch_max_u64(clock[i], late > slack ? late - slack : 0));
        rc = do_op(w);
        took = dev_virtual_ns() - clock[i] + cpu;
        clock[i] += took;
        end = ch_max_u64(end, clock[i]);
        if (atomic_load_explicit(&w->run->measuring, memory_order_relaxed))
            ch_hist_add(w->latency, took);
        atomic_store_explicit(&w->virtual_ns, end, memory_order_relaxed);
        if (rc == 0)
            atomic_store_explicit(&w->ops, ++n, memory_order_relaxed);
    }
    worker_end(w, rc);
}

static void
worker_main(void *arg)
{
    struct worker *w = arg;
    struct run *r = w->run;
    uint64_t n = 0;
    int rc = 0;

    while (rc == 0 && n < w->quota && !atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        uint64_t start = rt_now_ns();

        rc = do_op(w);
        if (atomic_load_explicit(&r->measuring, memory_order_relaxed))
            ch_hist_add(w->latency, rt_now_ns() - start);
        if (rc == 0)
            atomic_store_explicit(&w->ops, ++n, memory_order_relaxed);
    }
    worker_end(w, rc);
}

/* ---- samples ---- */

uint64_t
bench_rss_bytes(void)
{
    unsigned long long resident = 0;
    char text[128], *end; /* size and resident set, in pages, then more */
    FILE *f = fopen("/proc/self/statm", "r");

    if (f == NULL)
        return COHORT_UNKNOWN;
    if (fgets(text, sizeof(text), f) != NULL) {
        (void)strtoull(text, &end, 10);
        resident = strtoull(end, NULL, 10);
    }
    fclose(f);
    return resident > 0 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : COHORT_UNKNOWN;
}

int
bench_sample(cohort_db *db, uint64_t ops, struct bench_sample *out)
{
    out->stats = (struct cohort_stats){.struct_bytes = sizeof(out->stats)};
    out->ops = ops;
    out->ns = rt_now_ns();
    out->cpu_ns = rt_cpu_ns();
    return cohort_stats(db, &out->stats);
}

int
bench_account(cohort_db *db, bool *known, int64_t *difference)
{
    struct bench_sample s;
    int rc;

    rc = cohort_checkpoint(db);
    for (int i = 0; i < 200 && rc == 0; i++) { /* background writes are between the two counters */
        rc = bench_sample(db, 0, &s);
        if (rc != 0)
            break;
        *known = figures_account(&s.stats, difference);
        if (!*known || *difference == 0)
            break;
        rt_sleep_ns(10000000);
    }
    return rc;
}

static uint64_t
run_ops(const struct worker *w, uint64_t threads)
{
    uint64_t ops = 0;

    for (uint64_t i = 0; i < threads; i++)
        ops += atomic_load_explicit(&w[i].ops, memory_order_relaxed);
    return ops;
}

/* All counters; of virtual clients, their time. */
static int
run_sample(const struct bench *b, const struct worker *w, struct bench_sample *out)
{
    int rc = bench_sample(b->db, run_ops(w, b->c.threads), out);

    if (b->c.clients > 0)
        out->ns = atomic_load_explicit(&w[0].virtual_ns, memory_order_relaxed);
    return rc;
}

static void
run_progress(const struct bench *b, const struct bench_sample *start,
             const struct bench_sample *last, const struct bench_sample *now)
{
    double capacity = (double)now->stats.capacity_bytes;

    if (b->c.t->quiet)
        return;
    fprintf(stderr, "%s: %4.0f s %10.0f ops/s, written %.1f MiB", b->c.workload,
            (double)(now->ns - start->ns) / 1e9,
            (double)(now->ops - last->ops) * 1e9 / (double)(now->ns - last->ns),
            (double)(now->stats.host_bytes - start->stats.host_bytes) / 1048576.0);
    if (b->c.drive_writes > 0 && capacity > 0)
        fprintf(stderr, ", %.2f of %.2f drives",
                (double)(now->stats.host_bytes - start->stats.host_bytes) / capacity,
                b->c.drive_writes);
    fputc('\n', stderr);
}

/* How much of the run is done, 0 to 1, by what ends it. */
static double
run_part(const struct bench *b, const struct bench_sample *start, const struct bench_sample *now)
{
    if (b->c.drive_writes > 0)
        return (double)(now->stats.host_bytes - start->stats.host_bytes) /
               (b->c.drive_writes * (double)now->stats.capacity_bytes);
    if (b->c.seconds > 0)
        return (double)(now->ns - start->ns) / (b->c.seconds * 1e9);
    return b->c.ops > 0 ? (double)(now->ops - start->ops) / (double)b->c.ops : 0.0;
}

/* Where the run is: 0 before the window, 1 in its first half, 2 in its second, 3 at the end. */
static unsigned
run_phase(const struct bench *b, const struct bench_sample *start, const struct bench_sample *now)
{
    double part = run_part(b, start, now);

    if (b->c.drive_writes > 0)
        return part >= 1.0 ? 3 : part >= 0.875 ? 2 : part >= 0.75 ? 1 : 0;
    return b->c.seconds > 0 && part >= 1.0 ? 3 : 1;
}

/* Gives the process up when nothing has happened for RUN_STALL_S: threads that never return cannot be
 * joined, and the database recovers as after a crash. `moved` is the last sample with progress. */
static void
run_check_stall(const struct bench *b, struct bench_sample *moved, const struct bench_sample *now)
{
    if (now->ops != moved->ops) {
        *moved = *now;
    } else if (b->c.clients == 0 && now->ns - moved->ns > RUN_STALL_S * UINT64_C(1000000000)) {
        fprintf(stderr, "cohort bench: %s: stuck: no operation finished for %d s after %llu\n",
                b->c.device, RUN_STALL_S, (unsigned long long)now->ops);
        _exit(1);
    }
}

/* Samples the window: at[0] start, at[1] middle (drive writes only), at[2] end. `start` is from
 * before the threads started. */
static int
run_watch(struct run *r, struct worker *w, struct bench_sample start, struct bench_sample at[3])
{
    struct bench *b = r->b;
    struct bench_sample now = start, shown = start, moved = start;
    unsigned phase = run_phase(b, &start, &start);
    int rc = 0;

    at[0] = start; /* replaced when the window starts later */
    while (rc == 0 && phase < 3) {
        unsigned next = run_phase(b, &start, &now);

        if (atomic_load_explicit(&r->working, memory_order_acquire) == 0 ||
            atomic_load_explicit(&r->stop, memory_order_relaxed)) {
            next = 3; /* all operations done, or an error */
            rc = run_sample(b, w, &now);
        }
        for (; phase < next; phase++)
            at[phase] = now;
        atomic_store_explicit(&r->measuring, phase > 0, memory_order_relaxed);
        if (phase == 3)
            break;
        if (now.ns - shown.ns >= UINT64_C(1000000000)) {
            run_progress(b, &start, &shown, &now);
            shown = now;
        }
        run_check_stall(b, &moved, &now);
        rc = points_take(r->points, b->db, run_part(b, &start, &now), &now);
        rt_sleep_ns(RUN_POLL_NS);
        if (rc == 0)
            rc = run_sample(b, w, &now);
    }
    return rc == 0 ? points_take(r->points, b->db, 1.0, &now) : rc;
}

/* ---- one run ---- */

static int
worker_init(struct worker *w, struct run *r, uint64_t index)
{
    const struct bench_config *c = &r->b->c;

    w->run = r;
    w->quota = UINT64_MAX;
    if (c->ops > 0)
        w->quota = c->ops / c->threads + (index < c->ops % c->threads);
    ch_prng_init(&w->rng, c->seed * UINT64_C(1000003) + index + 1);
    w->value = calloc(1, c->value_bytes + 1);
    w->latency = calloc(1, sizeof(*w->latency));
    if (w->value == NULL || w->latency == NULL)
        return CH_FAIL(COHORT_ENOMEM, "thread %llu", (unsigned long long)index);
    return cohort_cursor_open(r->b->db, &w->cursor);
}

static void
worker_fini(struct worker *w)
{
    cohort_cursor_close(w->cursor);
    cohort_value_free(&w->got);
    free(w->latency);
    free(w->value);
}

static int
run_threads(struct run *r, struct worker *w, struct bench_sample at[3])
{
    uint64_t threads = r->b->c.threads, started = 0;
    struct bench_sample start = {0};
    int rc = 0;

    for (uint64_t i = 0; i < threads && rc == 0; i++)
        rc = worker_init(&w[i], r, i);
    /* Whole runs measure from the first operation on; the watcher decides otherwise later. */
    atomic_init(&r->measuring, r->b->c.drive_writes <= 0);
    atomic_init(&r->working, (unsigned)threads);
    if (rc == 0)
        rc = run_sample(r->b, w, &start);
    while (rc == 0 && started < threads) {
        rc = rt_spawn(&w[started].thread, "bench", r->b->c.clients > 0 ? virtual_main : worker_main,
                      &w[started]);
        if (rc == 0)
            started++;
    }
    if (rc == 0)
        rc = run_watch(r, w, start, at);
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    for (uint64_t i = 0; i < started; i++)
        rt_join(&w[i].thread);
    for (uint64_t i = 0; i < started && rc == 0; i++)
        if (w[i].rc != 0)
            rc = CH_FAIL(w[i].rc, "%s", w[i].error.code == w[i].rc ? w[i].error.text : "");
    return rc;
}

static int
fill_result(struct run *r, struct worker *w, const struct bench_sample at[3],
            struct bench_result *out)
{
    struct cohort_stats half[2];

    out->from = at[0];
    out->to = at[2];
    out->rss_bytes = bench_rss_bytes();
    figures_difference(&at[0].stats, &at[2].stats, &out->window);
    out->run.ops = at[2].ops - at[0].ops;
    out->run.seconds = (double)(at[2].ns - at[0].ns) / 1e9;
    out->run.cpu_seconds = (double)(at[2].cpu_ns - at[0].cpu_ns) / 1e9;
    figures_compute(&out->window, &out->run, &out->figures);
    if (r->b->c.drive_writes > 0) {
        figures_difference(&at[0].stats, &at[1].stats, &half[0]);
        figures_difference(&at[1].stats, &at[2].stats, &half[1]);
        out->steady = figures_steady(&half[0], &half[1]) ? BENCH_STEADY_YES : BENCH_STEADY_NO;
    }
    out->latency = calloc(1, sizeof(*out->latency));
    if (out->latency == NULL)
        return CH_FAIL(COHORT_ENOMEM, "histogram");
    for (uint64_t i = 0; i < r->b->c.threads; i++)
        ch_hist_merge(out->latency, w[i].latency);
    return bench_account(r->b->db, &out->accounted, &out->account_difference);
}

void
bench_result_fini(struct bench_result *r)
{
    free(r->latency);
    points_fini(&r->points);
    *r = (struct bench_result){0};
}

int
bench_run(struct bench *b, struct bench_result *out)
{
    struct run r = {.b = b, .points = &out->points};
    const struct skew_config skew = {
        .kind = b->c.skew,
        .records = b->records,
        .group = b->group,
        .theta = b->c.theta,
        .hot_part = b->c.hot_part,
        .hot_ops = b->c.hot_ops,
        .turn = b->c.shift_turn,
        .seed = b->c.seed,
    };
    struct bench_sample at[3] = {0};
    struct worker *w = NULL;
    int rc;

    *out = (struct bench_result){0};
    rc = find_mix(&b->c, &r.mix);
    if (rc == 0)
        rc = skew_init(&r.skew, &skew);
    if (rc == 0)
        rc = points_init(&out->points, b->c.samples);
    if (rc != 0)
        return rc;
    atomic_init(&r.next, b->records);
    atomic_init(&r.visible, b->records);
    r.done = calloc(RUN_DONE, sizeof(*r.done));
    w = calloc(b->c.threads, sizeof(*w));
    if (r.done == NULL || w == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "%llu threads", (unsigned long long)b->c.threads);
    if (rc == 0)
        rc = run_threads(&r, w, at);
    for (uint64_t i = 0; i < b->c.threads && w != NULL && rc == 0; i++) {
        cohort_cursor_close(w[i].cursor); /* before anything that waits for an idle database */
        w[i].cursor = NULL;
    }
    if (rc == 0)
        rc = fill_result(&r, w, at, out);
    for (uint64_t i = 0; i < b->c.threads && w != NULL; i++)
        worker_fini(&w[i]);
    free(w);
    free(r.done);
    if (rc != 0)
        bench_result_fini(out);
    return rc;
}

int
bench_run_reads(struct bench *b, double seconds, struct bench_result *r)
{
    struct bench_config saved = b->c;
    int rc;

    b->c.workload = "c";
    b->c.seconds = seconds;
    b->c.ops = 0;
    b->c.drive_writes = 0;
    rc = bench_run(b, r);
    b->c = saved;
    return rc;
}
