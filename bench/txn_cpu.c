/* txn_cpu.c - parts of cohort bench txn whose data is cached: read, write, reader, scan. */
#include "bench/txn.h"

#include <stdlib.h>

#include "base/prng.h"
#include "bench/gen.h"
#ifdef COHORT_BENCH_LMDB
#include "bench/lmdb_side.h"
#endif
#include "rt/rt.h"

enum {
    CACHED = 300, /* percent of the data: everything, and room */
    BLOCK = 256,  /* operations between two looks at the clock */
    PUTS = 4,
    WRITERS = 2
};

struct reads {
    struct bench *b;
    struct ch_prng rng;
    struct cohort_txn_options o;
    struct cohort_value v;
};

static void
draw_key(struct reads *r, uint8_t key[GEN_KEY_BYTES])
{
    gen_key(ch_prng_below(&r->rng, r->b->records), !r->b->c.unscrambled, key);
}

/* ---- read ---- */

static int
step_get(void *arg, uint64_t *ops)
{
    struct reads *r = arg;
    uint8_t key[GEN_KEY_BYTES];
    int rc = 0;

    for (int i = 0; i < BLOCK && rc == 0; i++) {
        draw_key(r, key);
        rc = cohort_get(r->b->db, key, sizeof(key), &r->v);
    }
    *ops += BLOCK;
    return rc;
}

static int
step_txn_get(void *arg, uint64_t *ops)
{
    struct reads *r = arg;
    uint8_t key[GEN_KEY_BYTES];
    int rc = 0;

    for (int i = 0; i < BLOCK && rc == 0; i++) {
        cohort_txn *t = NULL;

        draw_key(r, key);
        rc = cohort_begin(r->b->db, &r->o, &t);
        if (rc == 0)
            rc = cohort_txn_get(t, NULL, key, sizeof(key), &r->v);
        rc = tool_end(t, rc);
    }
    *ops += BLOCK;
    return rc;
}

int
txn_part_read(struct txn_bench *x)
{
    double alone[TXN_ROUNDS_MAX], within[TXN_ROUNDS_MAX];
    struct bench b;
    struct reads r = {.b = &b};
    int rc = txn_start(x, &x->c, "read", "none", CACHED, true, &b);

    ch_prng_init(&r.rng, x->c.seed);
    cohort_txn_options_init(&r.o);
    r.o.read_only = true;
    for (uint64_t i = 0; i < x->rounds + 1 && rc == 0; i++) { /* the first warms up */
        uint64_t at = i == 0 ? 0 : i - 1;

        rc = txn_time(x, step_get, &r, &alone[at]);
        if (rc == 0)
            rc = txn_time(x, step_txn_get, &r, &within[at]);
    }
    if (rc == 0) {
        double a = bench_median(alone, x->rounds), w = bench_median(within, x->rounds);

        txn_figure(x, "get_per_s", "1/s", a);
        txn_figure(x, "read_txn_per_s", "1/s", w);
        txn_goal(x, "read_txn_cost", "x a get", a / w, TXN_AT_MOST, 1.25);
    }
    cohort_value_free(&r.v);
    return txn_finish(x, &b, rc);
}

/* ---- write: threads over keys of their own that lie on everybody's leaves ---- */

struct writer {
    struct rt_thread thread;
    struct bench *b;
    struct ch_prng rng;
    uint64_t index, threads, puts, commits;
    _Atomic bool *stop; /* main -> writers */
    uint8_t *value;
    int rc;
    struct cohort_error error;
    char apart[64]; /* the next writer's counters are on another cache line */
};

static int
write_txn(struct writer *w)
{
    const struct bench_config *c = &w->b->c;
    uint8_t key[GEN_KEY_BYTES];
    cohort_txn *t = NULL;
    int rc = cohort_begin(w->b->db, NULL, &t);

    for (uint64_t i = 0; i < w->puts && rc == 0; i++) {
        uint64_t n = ch_prng_below(&w->rng, w->b->records / w->threads) * w->threads + w->index;

        gen_key(n, !c->unscrambled, key);
        gen_value(&w->rng, w->value, c->value_bytes, c->compressibility);
        rc = cohort_txn_put(t, NULL, key, sizeof(key), w->value, c->value_bytes);
    }
    return tool_end(t, rc);
}

static void
writer_main(void *arg)
{
    struct writer *w = arg;

    while (w->rc == 0 && !atomic_load_explicit(w->stop, memory_order_relaxed)) {
        w->rc = write_txn(w);
        w->commits += w->rc == 0;
    }
    if (w->rc != 0)
        w->error = *cohort_last_error();
}

/* `threads` writers for the configured time; *per_s commits a second. `meanwhile` (may be NULL) is called
 * every few milliseconds. */
static int
write_round(struct txn_bench *x, struct bench *b, uint64_t threads, uint64_t puts, uint64_t seed,
            double *per_s)
{
    struct writer w[WRITERS] = {0};
    uint64_t started = 0, commits = 0, from = rt_now_ns();
    _Atomic bool stop;
    int rc = 0;

    CH_ASSERT(threads <= WRITERS);
    atomic_init(&stop, false);
    while (started < threads && rc == 0) {
        struct writer *me = &w[started];

        *me = (struct writer){.b = b, .index = started, .threads = threads, .puts = puts};
        me->stop = &stop;
        ch_prng_init(&me->rng, seed * UINT64_C(1000003) + started);
        me->value = calloc(1, b->c.value_bytes + 1);
        rc = me->value == NULL ? CH_FAIL(COHORT_ENOMEM, "value")
                               : rt_spawn(&me->thread, "writer", writer_main, me);
        if (rc == 0)
            started++;
        else
            free(me->value);
    }
    if (rc == 0)
        rt_sleep_ns((uint64_t)(x->c.seconds * 1e9));
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (uint64_t i = 0; i < started; i++) {
        rt_join(&w[i].thread);
        commits += w[i].commits;
        free(w[i].value);
        if (w[i].rc != 0 && rc == 0)
            rc = CH_FAIL(w[i].rc, "%s", w[i].error.code == w[i].rc ? w[i].error.text : "");
    }
    *per_s = (double)commits * 1e9 / (double)(rt_now_ns() - from);
    return rc;
}

int
txn_part_write(struct txn_bench *x)
{
    double one[TXN_ROUNDS_MAX], two[TXN_ROUNDS_MAX];
    struct bench b;
    int rc = txn_start(x, &x->c, "write", "none", CACHED, true, &b);

    for (uint64_t i = 0; i < x->rounds + 1 && rc == 0; i++) {
        uint64_t at = i == 0 ? 0 : i - 1;

        rc = write_round(x, &b, 1, PUTS, x->c.seed + i, &one[at]);
        if (rc == 0)
            rc = write_round(x, &b, 2, PUTS, x->c.seed + i, &two[at]);
    }
    if (rc == 0) {
        double a = bench_median(one, x->rounds), w = bench_median(two, x->rounds);

        /* So large that no checkpoint of a full log is measured. */
        txn_figure(x, "write_txn_log", "MiB", (double)b.options.log_bytes / (1 << 20));
        txn_figure(x, "write_txn_1_per_s", "1/s", a);
        txn_figure(x, "write_txn_2_per_s", "1/s", w);
        txn_goal(x, "write_txn_scaling", "x", w / a, TXN_AT_LEAST, 1.6);
    }
    return txn_finish(x, &b, rc);
}

/* ---- reader: one writer, with and without a snapshot open ---- */

static int
reader_rounds(struct txn_bench *x, struct bench *b, double *without, double *with)
{
    struct cohort_txn_options o;
    int rc = 0;

    cohort_txn_options_init(&o);
    o.read_only = true;
    for (uint64_t i = 0; i < x->rounds + 1 && rc == 0; i++) {
        uint64_t at = i == 0 ? 0 : i - 1;
        cohort_txn *t = NULL;

        rc = write_round(x, b, 1, 1, x->c.seed + i, &without[at]);
        if (rc == 0)
            rc = cohort_begin(b->db, &o, &t);
        if (rc == 0)
            rc = write_round(x, b, 1, 1, x->c.seed + i, &with[at]);
        if (t != NULL && cohort_abort(t) != 0 && rc == 0)
            rc = cohort_last_error()->code;
    }
    return rc;
}

static int
reader_with(struct txn_bench *x, const char *durability, const char *const names[3])
{
    double without[TXN_ROUNDS_MAX], with[TXN_ROUNDS_MAX];
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    struct bench b;
    int rc = txn_start(x, &x->c, "reader", durability, CACHED, true, &b);

    if (rc == 0)
        rc = reader_rounds(x, &b, without, with);
    if (rc == 0)
        rc = cohort_stats(b.db, &s);
    if (rc == 0) {
        double a = bench_median(without, x->rounds), w = bench_median(with, x->rounds);

        txn_figure(x, names[0], "1/s", a);
        txn_figure(x, names[1], "snapshots", (double)s.snapshots_killed);
        txn_goal(x, names[2], "x", w / a, TXN_AT_LEAST, 0.9);
    }
    return txn_finish(x, &b, rc);
}

int
txn_part_reader(struct txn_bench *x)
{
    static const char *const none[] = {"commit_none_per_s", "commit_none_snapshots_killed",
                                       "commit_none_with_reader"};
    static const char *const sync[] = {"commit_sync_per_s", "commit_sync_snapshots_killed",
                                       "commit_sync_with_reader"};
    int rc = reader_with(x, "none", none);

    return rc != 0 ? rc : reader_with(x, "sync", sync);
}

/* ---- scan ---- */

struct scans {
    struct bench *b;
    cohort_cursor *c;
    uint64_t sink; /* keeps reads from being optimised away */
#ifdef COHORT_BENCH_LMDB
    struct lmdb_side lmdb;
#endif
};

/* The whole tree once. */
static int
step_scan(void *arg, uint64_t *ops)
{
    struct scans *s = arg;
    struct cohort_slice k, v;
    uint64_t n = 0;
    int rc = cohort_cursor_first(s->c);

    while (rc == 0) {
        rc = cohort_cursor_entry(s->c, &k, &v);
        if (rc != 0)
            break;
        s->sink += *(const uint8_t *)k.data + (v.bytes > 0 ? *(const uint8_t *)v.data : 0);
        n++;
        rc = cohort_cursor_next(s->c);
    }
    *ops += n;
    if (rc != COHORT_NOTFOUND)
        return rc;
    return n == s->b->records ? 0
                              : CH_FAIL(COHORT_ECORRUPT, "%llu entries of %llu in a scan",
                                        (unsigned long long)n, (unsigned long long)s->b->records);
}

#ifdef COHORT_BENCH_LMDB
static int
step_lmdb(void *arg, uint64_t *ops)
{
    struct scans *s = arg;
    MDB_txn *txn = NULL;
    MDB_cursor *c = NULL;
    MDB_val k, v;
    int rc = mdb_txn_begin(s->lmdb.env, NULL, MDB_RDONLY, &txn);

    if (rc == 0)
        rc = mdb_cursor_open(txn, s->lmdb.dbi, &c);
    while (rc == 0 && (rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) {
        s->sink += *(const uint8_t *)k.mv_data + (v.mv_size > 0 ? *(const uint8_t *)v.mv_data : 0);
        ++*ops;
    }
    if (c != NULL)
        mdb_cursor_close(c);
    if (txn != NULL)
        mdb_txn_abort(txn);
    return rc == MDB_NOTFOUND ? 0 : lmdb_side_fail(&s->lmdb, "scan", rc);
}

static int
scan_start_lmdb(struct scans *s)
{
    int rc;

    if (strncmp(s->b->c.device, "sim:", 4) == 0)
        return 0;
    rc = lmdb_side_open(&s->lmdb, s->b);
    return rc != 0 ? rc : lmdb_side_fill(&s->lmdb, s->b->db);
}
#endif

static void
scan_figures(struct txn_bench *x, double ours, double theirs)
{
    double goal = 5e6;

    if (theirs > 0) {
        txn_figure(x, "lmdb_scan_per_s", "entries/s", theirs);
        txn_figure(x, "scan_beside_lmdb", "x", ours / theirs);
        goal = fmin(goal, theirs / 2);
    }
    txn_goal(x, "scan_per_s", "entries/s", ours, TXN_AT_LEAST, goal);
}

int
txn_part_scan(struct txn_bench *x)
{
    double ours[TXN_ROUNDS_MAX] = {0}, theirs[TXN_ROUNDS_MAX] = {0};
    struct bench b;
    struct scans s = {.b = &b};
    int rc = txn_start(x, &x->c, "scan", "none", CACHED, true, &b);

    if (rc == 0)
        rc = cohort_cursor_open(b.db, &s.c);
#ifdef COHORT_BENCH_LMDB
    if (rc == 0)
        rc = scan_start_lmdb(&s);
#endif
    for (uint64_t i = 0; i < x->rounds + 1 && rc == 0; i++) {
        uint64_t at = i == 0 ? 0 : i - 1;

        rc = txn_time(x, step_scan, &s, &ours[at]);
#ifdef COHORT_BENCH_LMDB
        if (rc == 0 && s.lmdb.env != NULL)
            rc = txn_time(x, step_lmdb, &s, &theirs[at]);
#endif
    }
    if (rc == 0)
        scan_figures(x, bench_median(ours, x->rounds), bench_median(theirs, x->rounds));
    cohort_cursor_close(s.c);
#ifdef COHORT_BENCH_LMDB
    lmdb_side_close(&s.lmdb);
#endif
    return txn_finish(x, &b, rc);
}
