/* data.c - data sets: the list of records, and the generated ones; see data.h. */
#include "bench/data.h"

#include <stdlib.h>

#include "bench/gen.h"

int
data_add(struct data *d, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    struct data_record r = {.key_bytes = key_bytes, .value_bytes = value_bytes};
    int rc;

    if (d->count == d->capacity) {
        size_t capacity = d->capacity == 0 ? 1024 : 2 * d->capacity;
        struct data_record *records = realloc(d->records, capacity * sizeof(*records));

        if (records == NULL)
            return CH_FAIL(COHORT_ENOMEM, "%zu records", capacity);
        d->records = records;
        d->capacity = capacity;
    }
    r.value = d->bytes.bytes;
    rc = tool_bytes_add(&d->bytes, value, value_bytes);
    r.key = d->bytes.bytes;
    if (rc == 0)
        rc = tool_bytes_add(&d->bytes, key, key_bytes);
    if (rc == 0)
        d->records[d->count++] = r;
    return rc;
}

int
data_add_numbered(struct data *d, const void *value, size_t value_bytes)
{
    uint8_t key[GEN_KEY_BYTES];

    gen_key(d->count, false, key);
    return data_add(d, key, sizeof(key), value, value_bytes);
}

void
data_fini(struct data *d)
{
    free(d->bytes.data);
    free(d->records);
    *d = (struct data){0};
}

static int
compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Scrambled keys, in their order, as the loader of the benches. */
static int
make_ycsb(const struct data_config *c, struct data *d)
{
    uint64_t n = c->bytes / (c->value_bytes + GEN_KEY_BYTES) + 1;
    uint64_t *keys = calloc(n, sizeof(*keys));
    uint8_t value[COHORT_ENTRY_MAX];
    struct ch_prng rng;
    int rc = keys != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "%llu keys", (unsigned long long)n);

    CH_ASSERT(c->value_bytes <= COHORT_ENTRY_MAX - GEN_KEY_BYTES);
    ch_prng_init(&rng, c->seed);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        keys[i] = gen_key_number(i, true);
    if (rc == 0)
        qsort(keys, n, sizeof(*keys), compare_u64);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        uint8_t key[GEN_KEY_BYTES];

        gen_key_bytes(keys[i], key);
        gen_value(&rng, value, c->value_bytes, c->compressibility);
        rc = data_add(d, key, sizeof(key), value, c->value_bytes);
    }
    free(keys);
    d->generated = true;
    (void)snprintf(d->what, sizeof(d->what),
                   "generated: %llu-byte values, %.0f %% of each random, the rest one text",
                   (unsigned long long)c->value_bytes, 100 * c->compressibility);
    return rc;
}

int
data_init(const struct data_config *c, struct data *d)
{
    static const struct {
        const char *name;
        int (*make)(const struct data_config *c, struct data *d);
    } sets[] = {
        {"ycsb", make_ycsb},
        {"email", data_make_email},
        {"url", data_make_url},
        {"wiki", data_make_wiki},
    };
    int (*make)(const struct data_config *c, struct data *d) = data_load_file;
    int rc;

    *d = (struct data){0};
    for (size_t i = 0; i < CH_ARRAY_LEN(sets); i++)
        if (strcmp(sets[i].name, c->name) == 0)
            make = sets[i].make;
    rc = make(c, d);
    if (rc == 0 && d->count == 0)
        rc = CH_FAIL(COHORT_ENODB, "data set %s: no records", c->name);
    if (rc != 0)
        data_fini(d);
    return rc;
}
