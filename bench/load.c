/* load.c - the loader: records in key order, in batches.
 *
 * Key order needs the hashed keys sorted. They are cut into parts of the key space small enough for
 * memory; for each part all record numbers are hashed and those that fall into it are sorted.
 *
 * Leaf fill: keys that arrive in order leave full leaves. For an aim of P percent a share f of the
 * keys goes first and fills leaves, then the rest is spread over them and splits each in two, which
 * ends at 1 / (2 f) of full pages; so f = 1 / (2 P). The rest comes in several passes, so that a leaf
 * gets about one key a pass and its splits do not look like those of a sequence. What came out is
 * measured and reported.
 */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/gen.h"
#include "rt/rt.h"

enum {
    LOAD_BATCH = 128,
    LOAD_BATCH_BYTES = 64 * 1024,
    LOAD_SPARSE_BATCH = 16, /* each key touches another leaf: stay below the limit of a batch */
    LOAD_SPARSE_PASSES = 16,
    LOAD_PART = 4 << 20 /* keys sorted at a time: 32 MiB */
};

struct loader {
    const struct bench_config *c;
    cohort_db *db;
    cohort_batch *batch;
    uint8_t *value;
    uint64_t *keys; /* NULL: unscrambled */
    struct ch_prng rng;
    unsigned pending, batch_max;
    size_t pending_bytes;
    uint64_t loaded, total, started, reported;
};

static int
compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int
loader_flush(struct loader *l)
{
    uint64_t now;
    int rc;

    if (l->pending == 0)
        return 0;
    rc = cohort_write(l->db, l->batch);
    if (rc != 0)
        return rc;
    cohort_batch_clear(l->batch);
    l->loaded += l->pending;
    l->pending = 0;
    l->pending_bytes = 0;
    now = rt_now_ns();
    if (!l->c->t->quiet && now - l->reported >= UINT64_C(1000000000)) {
        l->reported = now;
        fprintf(stderr, "load: %llu of %llu records, %.0f/s\n", (unsigned long long)l->loaded,
                (unsigned long long)l->total, (double)l->loaded * 1e9 / (double)(now - l->started));
    }
    return 0;
}

static int
loader_put(struct loader *l, uint64_t number)
{
    uint8_t key[GEN_KEY_BYTES];
    int rc;

    gen_key_bytes(number, key);
    gen_value(&l->rng, l->value, l->c->value_bytes, bench_random_part(l->c, l->total, number));
    rc = cohort_batch_put(l->batch, key, sizeof(key), l->value, l->c->value_bytes);
    if (rc != 0)
        return rc;
    l->pending++;
    l->pending_bytes += sizeof(key) + l->c->value_bytes;
    if (l->pending == l->batch_max || l->pending_bytes >= LOAD_BATCH_BYTES)
        return loader_flush(l);
    return 0;
}

/* Which pass a key belongs to: drawn from the key itself, evenly over the key space. */
static bool
in_pass(uint64_t number, int pass, double first_share)
{
    uint64_t hash = gen_key_number(number ^ UINT64_C(0x5eed), true);
    double u = (double)(hash >> 11) * 0x1p-53;

    if (u < first_share)
        return pass == 0;
    return pass == 1 + (int)(hash % LOAD_SPARSE_PASSES); /* low bits: not those of u */
}

static int
load_part(struct loader *l, uint64_t n, uint64_t low, uint64_t high, int pass, double share)
{
    size_t count = 0;
    int rc = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t number = gen_key_number(i, true);

        if (number < low || number > high || !in_pass(number, pass, share))
            continue;
        CH_ASSERT(count < 2 * (size_t)LOAD_PART); /* a hash spreads: twice the mean never comes */
        l->keys[count++] = number;
    }
    qsort(l->keys, count, sizeof(*l->keys), compare_u64);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = loader_put(l, l->keys[i]);
    return rc;
}

static int
load_pass(struct loader *l, uint64_t n, int pass, double share)
{
    uint64_t parts = ch_div_up(n, LOAD_PART);
    uint64_t width = parts > 1 ? UINT64_MAX / parts : UINT64_MAX;
    int rc = 0;

    if (l->c->unscrambled) {
        for (uint64_t i = 0; i < n && rc == 0; i++)
            if (in_pass(i, pass, share))
                rc = loader_put(l, i);
    } else {
        for (uint64_t p = 0; p < parts && rc == 0; p++)
            rc = load_part(l, n, p * width, p + 1 == parts ? UINT64_MAX : (p + 1) * width - 1, pass,
                           share);
    }
    return rc != 0 ? rc : loader_flush(l);
}

int
bench_load_records(const struct bench_config *c, cohort_db *db, uint64_t n)
{
    double share = c->leaf_fill >= 100.0 ? 1.0 : 1.0 / (2.0 * c->leaf_fill / 100.0);
    struct loader l = {.c = c, .db = db, .total = n};
    int rc;

    l.started = l.reported = rt_now_ns();
    ch_prng_init(&l.rng, c->seed);
    l.value = calloc(1, c->value_bytes + 1);
    if (!c->unscrambled)
        l.keys = malloc(ch_min_u64(n, 2 * (uint64_t)LOAD_PART) * sizeof(*l.keys));
    rc = l.value == NULL || (!c->unscrambled && l.keys == NULL)
             ? CH_FAIL(COHORT_ENOMEM, "keys of %llu records", (unsigned long long)n)
             : cohort_batch_create(&l.batch);
    for (int pass = 0; pass <= (share < 1.0 ? LOAD_SPARSE_PASSES : 0) && rc == 0; pass++) {
        l.batch_max = pass == 0 ? LOAD_BATCH : LOAD_SPARSE_BATCH;
        rc = load_pass(&l, n, pass, share);
    }
    cohort_batch_destroy(l.batch);
    free(l.keys);
    free(l.value);
    return rc;
}

/* Workload pages draws leaves, so each must hold the same records: the load in key order made them so. */
static int
find_group(struct bench *b)
{
    double each = b->leaf_pages > 0 ? (double)b->records / (double)b->leaf_pages : 0.0;

    if (strcmp(b->c.workload, "pages") != 0)
        return 0;
    b->group = (uint64_t)(each + 0.5);
    if (b->group == 0 || fabs(each - (double)b->group) > 0.01 * (double)b->group)
        return CH_FAIL(COHORT_EINVAL,
                       "pages: %.2f records a leaf with --value-bytes %llu: take another", each,
                       (unsigned long long)b->c.value_bytes);
    return 0;
}

static int
load_and_measure(struct bench *b)
{
    struct cohort_check_result check = {0};
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    uint64_t start = rt_now_ns();
    int rc = 0;

    if (!b->c.no_load)
        rc = bench_load_records(&b->c, b->db, b->records);
    if (rc == 0 && !b->c.no_load)
        rc = cohort_checkpoint(b->db);
    b->load_seconds = b->c.no_load ? 0.0 : (double)(rt_now_ns() - start) / 1e9;
    if (rc == 0)
        rc = cohort_stats(b->db, &s);
    if (rc == 0)
        rc = cohort_check(b->db, NULL, NULL, &check);
    if (rc != 0)
        return rc;
    b->pages_loaded = s.pages;
    b->leaf_pages = check.leaf_pages;
    if (check.leaf_pages > 0)
        b->leaf_fill = (double)check.leaf_used_bytes / ((double)check.leaf_pages * CH_PAGE_BYTES);
    if (!b->c.t->quiet)
        fprintf(stderr, "database: %llu records in %llu pages (planned %llu), leaf fill %.3f\n",
                (unsigned long long)check.entries, (unsigned long long)s.pages,
                (unsigned long long)b->pages_planned, b->leaf_fill);
    return find_group(b);
}

int
bench_prepare(struct bench *b)
{
    uint64_t durability = b->options.durability;
    struct cohort_options none;
    bool again;
    int rc;

    cohort_options_init(&none);
    rc = cohort_options_set(&none, "durability", "none");
    /* What lives in memory cannot be opened twice: it is loaded with the durability of the run. */
    again = !b->c.no_load && !tool_is_volatile(b->c.device) && durability != none.durability;
    if (rc == 0)
        rc = bench_open(b, again ? none.durability : durability);
    if (rc == 0)
        rc = load_and_measure(b);
    if (rc == 0 && again)
        rc = bench_close(b);
    if (rc == 0 && again)
        rc = bench_open(b, durability);
    return rc;
}
