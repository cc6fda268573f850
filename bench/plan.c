/* plan.c - opening and closing the database of a bench, and how much to load into it. */
#include "bench/bench.h"
#include "bench/gen.h"

int
bench_init(struct bench *b, const struct bench_config *c)
{
    *b = (struct bench){.c = *c, .options = c->t->options, .records = c->records, .group = 1};
    if (c->device == NULL)
        return CH_FAIL(COHORT_EOPTION, "--device: which directory, block device or sim: drive?");
    return 0;
}

double
bench_random_part(const struct bench_config *c, uint64_t n, uint64_t number)
{
    enum {
        NEIGHBOURS = 64 /* two pages or so: most pages lie within one such block */
    };
    uint64_t blocks = n / NEIGHBOURS + 1, block;
    struct ch_prng rng;
    double v = 0.0;

    if (c->compressibility_sd <= 0)
        return c->compressibility;
    block = c->unscrambled ? number / NEIGHBOURS : number / (UINT64_MAX / blocks + 1);
    ch_prng_init(&rng, c->seed ^ gen_key_number(block, true));
    for (int i = 0; i < 4; i++) /* nearly normal, of deviation 1 */
        v += ch_prng_unit(&rng) - 0.5;
    v = c->compressibility + c->compressibility_sd * v * 1.7320508;
    return fmin(fmax(v, 0.0), 1.0);
}

int
bench_open(struct bench *b, uint64_t durability)
{
    struct cohort_options o = b->options;
    const char *create = b->c.no_load || b->made ? "no" : "must";
    int rc;

    CH_ASSERT(b->db == NULL);
    if (tool_is_volatile(b->c.device))
        create = "yes";
    rc = cohort_options_set(&o, "create", create);
    o.durability = durability;
    if (rc == 0)
        rc = cohort_open(b->c.device, &o, &b->db);
    if (rc == 0)
        b->made = true;
    return rc;
}

int
bench_close(struct bench *b)
{
    cohort_db *db = b->db;

    b->db = NULL;
    return cohort_close(db);
}

int
bench_fini(struct bench *b, int rc)
{
    cohort_db *db = b->db;

    b->db = NULL;
    return tool_close(db, rc);
}

/* Records a page holds, inner pages included: from loading a few MiB into a small drive in memory,
 * in the way in which all of them will be loaded. */
static int
measure_density(struct bench *b)
{
    struct cohort_check_result check = {0};
    struct cohort_options o;
    cohort_db *db = NULL;
    uint64_t n = ch_clamp_u64((UINT64_C(4) << 20) / (b->c.value_bytes + GEN_KEY_BYTES), 1, 50000);
    int rc;

    cohort_options_init(&o);
    rc = cohort_options_set(&o, "create", "yes");
    if (rc == 0)
        rc = cohort_options_set(&o, "durability", "none");
    if (rc == 0)
        rc = cohort_options_set(&o, "cache_bytes", "16M");
    if (rc == 0)
        rc = cohort_open("sim:generic,bytes=128M", &o, &db);
    if (rc == 0)
        rc = bench_load_records(&b->c, db, n);
    if (rc == 0)
        rc = cohort_checkpoint(db);
    if (rc == 0)
        rc = cohort_check(db, NULL, NULL, &check);
    rc = tool_close(db, rc);
    if (rc != 0)
        return rc;
    if (check.leaf_pages + check.inner_pages == 0)
        return CH_FAIL(COHORT_EINVAL, "sample of %llu records: no pages", (unsigned long long)n);
    b->records_per_page = (double)n / (double)(check.leaf_pages + check.inner_pages);
    return 0;
}

static int
read_sizes(struct bench *b, uint64_t *capacity, uint64_t *pages)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    int rc;

    rc = bench_open(b, b->options.durability);
    if (rc != 0)
        return rc;
    rc = cohort_stats(b->db, &s);
    if (rc == 0)
        rc = bench_close(b);
    *capacity = s.capacity_bytes;
    *pages = s.pages;
    return rc;
}

/* How many pages there will be, and how many records make them. */
static int
plan_records(struct bench *b)
{
    uint64_t capacity = 0, pages = 0;
    bool percent = b->c.fill > 0 || b->c.cache_part > 0;
    int rc = 0;

    if (percent && !b->c.no_load)
        rc = measure_density(b);
    if (rc == 0 && ((b->c.fill > 0 && !b->c.no_load) || (b->c.no_load && percent)))
        rc = read_sizes(b, &capacity, &pages);
    if (rc != 0)
        return rc;
    if (b->c.no_load) {
        if (b->records == 0)
            return CH_FAIL(COHORT_EOPTION, "--no-load: --records must say how many were loaded");
        b->pages_planned = pages;
        return 0;
    }
    if (b->c.fill > 0) {
        double bytes = (double)capacity * b->c.fill / 100.0;

        b->records = (uint64_t)(bytes / CH_PAGE_BYTES * b->records_per_page);
    }
    if (b->records == 0)
        return CH_FAIL(COHORT_EOPTION, "no records to load");
    if (b->records_per_page > 0)
        b->pages_planned = (uint64_t)((double)b->records / b->records_per_page) + 1;
    return 0;
}

int
bench_plan(struct bench *b)
{
    char text[32];
    int rc = plan_records(b);

    if (rc != 0 || b->c.cache_part <= 0)
        return rc;
    snprintf(text, sizeof(text), "%.0f",
             fmax((double)b->pages_planned * CH_PAGE_BYTES * b->c.cache_part / 100.0, 1 << 20));
    rc = cohort_options_set(&b->options, "cache_bytes", text);
    if (rc == 0 && !b->c.t->quiet && b->c.fill > 0)
        fprintf(stderr, "planned %llu records in %llu pages, cache %s bytes\n",
                (unsigned long long)b->records, (unsigned long long)b->pages_planned, text);
    return rc;
}
