/* txn_io.c - parts of cohort bench txn about the device: many, durable, bulk. */
#include "bench/txn.h"

#include <stdlib.h>

#include "base/prng.h"
#include "bench/gen.h"
#include "rt/rt.h"

enum {
    MANY = 32,
    MANY_CACHE = 5,     /* percent of the data */
    WITHIN_CACHE = 300, /* of `durable` */
    BEYOND_CACHE = 15,
    WITHIN_RECORDS = 50000, /* most; what a checkpoint writes is shared by the updates since */
    CLIENTS = 16,
    DURABLE_LOG = 256 << 20,
    BULK_ROUNDS_MAX = 3, /* each loads everything twice */
};

/* ---- many ---- */

struct many {
    struct bench *b;
    struct ch_prng rng;
    uint8_t keys[MANY][GEN_KEY_BYTES];
    struct cohort_slice slices[MANY];
    struct cohort_value values[MANY];
    int rcs[MANY];
};

static void
draw_keys(struct many *m)
{
    for (int i = 0; i < MANY; i++) {
        gen_key(ch_prng_below(&m->rng, m->b->records), !m->b->c.unscrambled, m->keys[i]);
        m->slices[i] = (struct cohort_slice){m->keys[i], GEN_KEY_BYTES};
    }
}

static int
step_single(void *arg, uint64_t *ops)
{
    struct many *m = arg;
    int rc = 0;

    draw_keys(m);
    for (int i = 0; i < MANY && rc == 0; i++)
        rc = cohort_get(m->b->db, m->keys[i], GEN_KEY_BYTES, &m->values[i]);
    *ops += MANY;
    return rc;
}

static int
step_many(void *arg, uint64_t *ops)
{
    struct many *m = arg;

    draw_keys(m);
    *ops += MANY;
    return cohort_get_many(m->b->db, NULL, NULL, MANY, m->slices, m->values, m->rcs);
}

int
txn_part_many(struct txn_bench *x)
{
    double single[TXN_ROUNDS_MAX], many[TXN_ROUNDS_MAX];
    struct bench b;
    struct many *m = calloc(1, sizeof(*m));
    int rc;

    if (m == NULL)
        return CH_FAIL(COHORT_ENOMEM, "values");
    m->b = &b;
    ch_prng_init(&m->rng, x->c.seed);
    rc = txn_start(x, &x->c, "many", "none", MANY_CACHE, true, &b);
    for (uint64_t i = 0; i < x->rounds + 1 && rc == 0; i++) {
        uint64_t at = i == 0 ? 0 : i - 1;

        rc = txn_time(x, step_single, m, &single[at]);
        if (rc == 0)
            rc = txn_time(x, step_many, m, &many[at]);
    }
    if (rc == 0) {
        double a = bench_median(single, x->rounds), w = bench_median(many, x->rounds);

        txn_figure(x, "single_get_per_s", "keys/s", a);
        txn_figure(x, "get_many_per_s", "keys/s", w);
        txn_goal(x, "get_many_speedup", "x", w / a, TXN_AT_LEAST, 8.0);
    }
    for (int i = 0; i < MANY; i++)
        cohort_value_free(&m->values[i]);
    free(m);
    return txn_finish(x, &b, rc);
}

/* ---- durable ---- */

struct durable {
    double cache_part;
    uint64_t clients;
    double goal; /* 0 = a figure only */
    const char *bytes, *log, *pages, *per_s;
};

/* Updates with everything durable, the checkpoint at the end included. The log has its largest default size, that of a device of
 * 8 GiB: checkpoints are as rare as there. */
static int
durable_run(struct txn_bench *x, const struct durable *d)
{
    struct cohort_stats from = {.struct_bytes = sizeof(from)}, to = from, w;
    struct bench_config c = x->c;
    struct bench_result r = {0};
    struct bench b;
    double ops, log;
    uint64_t set;
    int rc;

    c.threads = d->clients;
    c.workload = "update";
    c.seconds = 0;
    c.ops = x->durable_ops * (d->clients > 1 ? 4 : 1);
    if (d->cache_part > 100)
        c.records = ch_min_u64(c.records, WITHIN_RECORDS);
    set = c.t->options.log_bytes;
    c.t->options.log_bytes = set != 0 ? set : DURABLE_LOG;
    rc = txn_start(x, &c, "durable", "sync", d->cache_part, true, &b);
    c.t->options.log_bytes = set;
    if (rc == 0)
        rc = cohort_checkpoint(b.db);
    if (rc == 0)
        rc = cohort_stats(b.db, &from);
    if (rc == 0)
        rc = bench_run(&b, &r); /* ends with a checkpoint */
    if (rc == 0)
        rc = cohort_stats(b.db, &to);
    if (rc == 0) {
        figures_difference(&from, &to, &w);
        ops = (double)ch_max_u64(w.commits, 1);
        log = (double)w.bytes[COHORT_CAUSE_WAL] / ops;
        txn_figure(x, d->per_s, "1/s", (double)r.run.ops / r.run.seconds);
        txn_figure(x, d->log, "bytes", log);
        txn_figure(x, d->pages, "bytes", (double)w.host_bytes / ops - log);
        txn_goal(x, d->bytes, "bytes", (double)w.host_bytes / ops,
                 d->goal > 0 ? TXN_AT_MOST : TXN_NO_GOAL, d->goal);
    }
    bench_result_fini(&r);
    return txn_finish(x, &b, rc);
}

int
txn_part_durable(struct txn_bench *x)
{
    static const struct durable all[] = {
        {WITHIN_CACHE, 1, 4300, "durable_1_bytes", "durable_1_log_bytes", "durable_1_page_bytes",
         "durable_1_per_s"},
        {WITHIN_CACHE, CLIENTS, 1000, "durable_16_bytes", "durable_16_log_bytes",
         "durable_16_page_bytes", "durable_16_per_s"},
        {BEYOND_CACHE, 1, 0, "durable_1_beyond_bytes", "durable_1_beyond_log_bytes",
         "durable_1_beyond_page_bytes", "durable_1_beyond_per_s"},
        {BEYOND_CACHE, CLIENTS, 0, "durable_16_beyond_bytes", "durable_16_beyond_log_bytes",
         "durable_16_beyond_page_bytes", "durable_16_beyond_per_s"},
    };
    int rc = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(all) && rc == 0; i++)
        rc = durable_run(x, &all[i]);
    return rc;
}

/* ---- bulk ---- */

struct bulk {
    uint64_t *order; /* record numbers' keys, sorted; and the same shuffled */
    uint64_t *shuffled;
    uint8_t *value;
    uint64_t n;
    struct ch_prng rng;
    double fill; /* of the leaves that a bulk load left */
};

static int
compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int
bulk_init(struct txn_bench *x, struct bulk *k)
{
    k->n = x->c.records;
    k->order = malloc(k->n * sizeof(*k->order));
    k->shuffled = malloc(k->n * sizeof(*k->shuffled));
    k->value = calloc(1, x->c.value_bytes + 1);
    ch_prng_init(&k->rng, x->c.seed);
    if (k->order == NULL || k->shuffled == NULL || k->value == NULL)
        return CH_FAIL(COHORT_ENOMEM, "keys of %llu records", (unsigned long long)k->n);
    for (uint64_t i = 0; i < k->n; i++)
        k->order[i] = gen_key_number(i, !x->c.unscrambled);
    qsort(k->order, k->n, sizeof(*k->order), compare_u64);
    memcpy(k->shuffled, k->order, k->n * sizeof(*k->order));
    for (uint64_t i = k->n - 1; i > 0; i--) {
        uint64_t j = ch_prng_below(&k->rng, i + 1), swap = k->shuffled[i];

        k->shuffled[i] = k->shuffled[j];
        k->shuffled[j] = swap;
    }
    return 0;
}

static int
load_bulk(const struct bench *b, struct bulk *k)
{
    cohort_bulk *bulk = NULL;
    uint8_t key[GEN_KEY_BYTES];
    int rc = cohort_bulk_open(b->db, NULL, &bulk);

    for (uint64_t i = 0; i < k->n && rc == 0; i++) {
        gen_key_bytes(k->order[i], key);
        gen_value(&k->rng, k->value, b->c.value_bytes, b->c.compressibility);
        rc = cohort_bulk_put(bulk, key, sizeof(key), k->value, b->c.value_bytes);
    }
    if (rc == 0)
        return cohort_bulk_finish(bulk);
    cohort_bulk_abort(bulk);
    return rc;
}

static int
load_puts(const struct bench *b, struct bulk *k)
{
    uint8_t key[GEN_KEY_BYTES];
    int rc = 0;

    for (uint64_t i = 0; i < k->n && rc == 0; i++) {
        gen_key_bytes(k->shuffled[i], key);
        gen_value(&k->rng, k->value, b->c.value_bytes, b->c.compressibility);
        rc = cohort_put(b->db, key, sizeof(key), k->value, b->c.value_bytes);
    }
    return rc;
}

/* All records into a database of their own, up to the end of a checkpoint. */
static int
bulk_round(struct txn_bench *x, struct bulk *k, bool bulk, double *per_s)
{
    struct cohort_check_result check = {0};
    struct bench b;
    uint64_t from;
    int rc = txn_start(x, &x->c, "bulk", "none", 0, false, &b);

    from = rt_now_ns();
    if (rc == 0)
        rc = bulk ? load_bulk(&b, k) : load_puts(&b, k);
    if (rc == 0)
        rc = cohort_checkpoint(b.db);
    *per_s = (double)k->n * 1e9 / (double)ch_max_u64(rt_now_ns() - from, 1);
    if (rc == 0 && bulk)
        rc = cohort_check(b.db, NULL, NULL, &check);
    if (rc == 0 && check.leaf_pages > 0)
        k->fill = (double)check.leaf_used_bytes / ((double)check.leaf_pages * CH_PAGE_BYTES);
    return txn_finish(x, &b, rc);
}

int
txn_part_bulk(struct txn_bench *x)
{
    double bulk[BULK_ROUNDS_MAX], puts[BULK_ROUNDS_MAX];
    uint64_t rounds = ch_min_u64(x->rounds, BULK_ROUNDS_MAX);
    struct bulk k = {0};
    int rc = bulk_init(x, &k);

    for (uint64_t i = 0; i < rounds && rc == 0; i++) {
        rc = bulk_round(x, &k, true, &bulk[i]);
        if (rc == 0)
            rc = bulk_round(x, &k, false, &puts[i]);
    }
    if (rc == 0) {
        double a = bench_median(bulk, rounds), w = bench_median(puts, rounds);

        txn_figure(x, "bulk_load_per_s", "records/s", a);
        txn_figure(x, "random_put_per_s", "records/s", w);
        txn_goal(x, "bulk_load_speedup", "x", a / w, TXN_AT_LEAST, 5.0);
        txn_goal(x, "bulk_load_leaf_fill", "part", k.fill, TXN_AT_LEAST, 0.95);
    }
    free(k.order);
    free(k.shuffled);
    free(k.value);
    return rc;
}
