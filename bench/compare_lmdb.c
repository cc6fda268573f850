/* compare_lmdb.c - cohort bench compare-lmdb: point reads from cache, LMDB against Cohort.
 *
 * Both hold the same entries: LMDB's are copied from Cohort's by a scan. Both caches hold all of it.
 * Rounds alternate in one process, so that what disturbs the machine disturbs both; medians of the
 * rounds and their ratio are reported. LMDB reads in one read transaction a thread, reset and renewed
 * for each read, as it must be to see new commits; Cohort's reads see them always.
 */
#include "bench/bench.h"

#ifdef COHORT_BENCH_LMDB

#include <stdlib.h>

#include "bench/gen.h"
#include "bench/lmdb_side.h"
#include "bench/zipf.h"
#include "rt/rt.h"

enum {
    ROUNDS_MAX = 101
};

struct reader {
    struct rt_thread thread;
    struct lmdb_side *m;
    const struct bench *b;
    const struct zipf *zipf;
    struct ch_prng rng;
    _Atomic bool *stop; /* main -> readers */
    uint64_t ops, sink; /* sink keeps the reads from being optimised away */
    int rc;
};

/* One engine in one round. CPU time tells them apart where other processes take the processors. */
struct side {
    double ops_per_s, cpu_us;
};

struct compare {
    uint64_t rounds;
    struct side ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
};

static void
reader_main(void *arg)
{
    struct reader *r = arg;
    MDB_txn *txn = NULL;
    uint8_t key[GEN_KEY_BYTES];
    char copy[COHORT_ENTRY_MAX];
    int rc;

    rc = mdb_txn_begin(r->m->env, NULL, MDB_RDONLY, &txn);
    while (rc == 0 && !atomic_load_explicit(r->stop, memory_order_relaxed)) {
        uint64_t started = rt_now_ns();
        MDB_val k = {.mv_size = sizeof(key), .mv_data = key}, v;

        gen_key(zipf_draw(r->zipf, &r->rng), !r->b->c.unscrambled, key);
        mdb_txn_reset(txn);
        rc = mdb_txn_renew(txn);
        if (rc == 0)
            rc = mdb_get(txn, r->m->dbi, &k, &v);
        if (rc != 0)
            break;
        memcpy(copy, v.mv_data, ch_min_u64(v.mv_size, sizeof(copy))); /* as cohort_get() copies */
        r->sink += (uint8_t)copy[0] + rt_now_ns() - started;          /* timed as Cohort's are */
        r->ops++;
    }
    if (txn != NULL)
        mdb_txn_abort(txn);
    r->rc = rc;
}

static int
lmdb_round(struct lmdb_side *m, const struct bench *b, const struct zipf *z, struct reader *readers,
           struct side *out)
{
    _Atomic bool stop;
    uint64_t started = 0, ops = 0, from, cpu = rt_cpu_ns();
    int rc = 0, merr = 0;

    atomic_init(&stop, false);
    from = rt_now_ns();
    while (started < b->c.threads && rc == 0) {
        struct reader *r = &readers[started];

        *r = (struct reader){.m = m, .b = b, .zipf = z, .stop = &stop};
        ch_prng_init(&r->rng, b->c.seed * UINT64_C(1000003) + started + 1);
        rc = rt_spawn(&r->thread, "lmdb", reader_main, r);
        started += rc == 0;
    }
    if (rc == 0)
        rt_sleep_ns((uint64_t)(b->c.seconds * 1e9));
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (uint64_t i = 0; i < started; i++) {
        rt_join(&readers[i].thread);
        ops += readers[i].ops;
        if (readers[i].rc != 0)
            merr = readers[i].rc;
    }
    out->ops_per_s = (double)ops * 1e9 / (double)(rt_now_ns() - from);
    out->cpu_us = (double)(rt_cpu_ns() - cpu) / 1e3 / (double)ch_max_u64(ops, 1);
    return rc != 0 ? rc : merr != 0 ? lmdb_side_fail(m, "read", merr) : 0;
}

static int
compare_rounds(struct bench *b, struct lmdb_side *m, struct compare *c)
{
    struct reader *readers = calloc(b->c.threads, sizeof(*readers));
    struct zipf z;
    int rc;

    rc =
        readers == NULL ? CH_FAIL(COHORT_ENOMEM, "threads") : zipf_init(&z, b->records, b->c.theta);
    for (uint64_t i = 0; i < c->rounds + 1 && rc == 0; i++) {
        uint64_t at = i == 0 ? 0 : i - 1; /* round 0 warms up and is overwritten */
        struct side *ours = &c->ours[at], *theirs = &c->theirs[at];
        struct bench_result r = {0};

        rc = bench_run_reads(b, b->c.seconds, &r);
        *ours = (struct side){r.figures.ops_per_s, r.figures.cpu_us_per_op};
        bench_result_fini(&r);
        if (rc == 0)
            rc = lmdb_round(m, b, &z, readers, theirs);
        if (rc == 0 && !b->c.t->quiet)
            fprintf(stderr, "round %llu: cohort %.0f/s, lmdb %.0f/s\n", (unsigned long long)i,
                    ours->ops_per_s, theirs->ops_per_s);
    }
    free(readers);
    return rc;
}

/* Median of the rounds, of each figure by itself. */
static struct side
side_median(const struct side *s, uint64_t rounds)
{
    double ops[ROUNDS_MAX], cpu[ROUNDS_MAX];

    for (uint64_t i = 0; i < rounds; i++) {
        ops[i] = s[i].ops_per_s;
        cpu[i] = s[i].cpu_us;
    }
    return (struct side){bench_median(ops, rounds), bench_median(cpu, rounds)};
}

static int
report_compare(const struct bench *b, const struct compare *c)
{
    struct side ours = side_median(c->ours, c->rounds), theirs = side_median(c->theirs, c->rounds);
    struct json_object *o;
    int rc;

    if (!b->c.t->json) {
        printf("point reads from cache, %llu records, %llu threads, medians of %llu rounds:\n"
               "  cohort %.0f/s, lmdb %.0f/s, ratio %.3f\n"
               "  CPU time a read: cohort %.2f us, lmdb %.2f us\n",
               (unsigned long long)b->records, (unsigned long long)b->c.threads,
               (unsigned long long)c->rounds, ours.ops_per_s, theirs.ops_per_s,
               ours.ops_per_s / theirs.ops_per_s, ours.cpu_us, theirs.cpu_us);
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "workload", "compare-lmdb");
    if (rc == 0)
        rc = report_u64(o, "records", b->records);
    if (rc == 0)
        rc = report_u64(o, "threads", b->c.threads);
    if (rc == 0)
        rc = report_u64(o, "rounds", c->rounds);
    if (rc == 0)
        rc = report_real(o, "zipf_theta", b->c.theta);
    if (rc == 0)
        rc = report_real(o, "cohort_ops_per_s", ours.ops_per_s);
    if (rc == 0)
        rc = report_real(o, "lmdb_ops_per_s", theirs.ops_per_s);
    if (rc == 0)
        rc = report_real(o, "ratio", ours.ops_per_s / theirs.ops_per_s);
    if (rc == 0)
        rc = report_real(o, "cohort_cpu_us_per_op", ours.cpu_us);
    if (rc == 0)
        rc = report_real(o, "lmdb_cpu_us_per_op", theirs.cpu_us);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

int
bench_compare_lmdb(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench b = {0};
    struct lmdb_side m = {0};
    struct compare r = {.rounds = 5};
    const struct arg extra[] = {
        {"rounds", 0, ARG_U64, &r.rounds, NULL, "Rounds of --seconds each (5)."},
    };
    int rc;

    bench_config_init(&c, t);
    c.cache_part = 200; /* everything, and room */
    c.theta = 0.0;
    rc = bench_args(&c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    if (r.rounds < 1 || r.rounds > ROUNDS_MAX)
        return CH_FAIL(COHORT_EOPTION, "--rounds: 1 to %d", ROUNDS_MAX);
    if (c.seconds <= 0 || (c.device != NULL && strncmp(c.device, "sim:", 4) == 0))
        return CH_FAIL(COHORT_EOPTION, "compare-lmdb: --device DIRECTORY and --seconds");
    rc = bench_init(&b, &c);
    if (rc == 0)
        rc = bench_plan(&b);
    if (rc == 0)
        rc = bench_prepare(&b);
    if (rc == 0)
        rc = lmdb_side_open(&m, &b);
    if (rc == 0)
        rc = lmdb_side_fill(&m, b.db);
    if (rc == 0)
        rc = compare_rounds(&b, &m, &r);
    if (rc == 0)
        rc = report_compare(&b, &r);
    lmdb_side_close(&m);
    return bench_fini(&b, rc);
}

#else

int
bench_compare_lmdb(struct tool *t, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)t;
    return CH_FAIL(COHORT_EUNSUPPORTED, "built without LMDB (meson option bench_lmdb)");
}

#endif
