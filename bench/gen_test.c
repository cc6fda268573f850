/* gen_test.c - keys and values of the benches. */
#include <stdlib.h>

#include "bench/gen.h"
#include "zt/zt.h"

enum {
    KEYS = 100000
};

static int
compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Goal: no two records share a key, and scrambled keys spread evenly. Method: sort and look. */
static void
test_keys_differ_and_spread(struct zt *t)
{
    uint64_t *keys = malloc(KEYS * sizeof(*keys)), first = zt_below(t, UINT64_C(1) << 40);
    unsigned part[16] = {0};

    ZT_CHECK(t, keys != NULL);
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = gen_key_number(first + i, true);
        part[keys[i] >> 60]++;
        ZT_CHECK(t, gen_key_number(first + i, false) == first + i);
    }
    qsort(keys, KEYS, sizeof(*keys), compare_u64);
    for (uint64_t i = 1; i < KEYS; i++)
        ZT_CHECK(t, keys[i - 1] < keys[i]);
    for (int i = 0; i < 16; i++)
        ZT_CHECK(t, part[i] > KEYS / 16 * 95 / 100 && part[i] < KEYS / 16 * 105 / 100);
    free(keys);
}

static uint64_t
unshift(uint64_t v, int bits)
{
    uint64_t x = v;

    for (int i = bits; i < 64; i += bits)
        x = v ^ x >> bits;
    return x;
}

static uint64_t
inverse(uint64_t odd) /* modulo 2^64, by Newton's iteration */
{
    uint64_t x = odd;

    for (int i = 0; i < 6; i++)
        x *= 2 - odd * x;
    return x;
}

/* Goal: scrambling loses nothing: no two of 2^64 numbers share a key. Method: undo it. */
static void
test_scrambling_is_undone(struct zt *t)
{
    uint64_t i = ch_prng_next(&t->rng), v = gen_key_number(i, true);

    v = unshift(v, 31) * inverse(UINT64_C(0x94d049bb133111eb));
    v = unshift(v, 27) * inverse(UINT64_C(0xbf58476d1ce4e5b9));
    v = unshift(v, 30) - UINT64_C(0x9e3779b97f4a7c15);
    ZT_CHECK(t, v == i);
}

/* Goal: keys compare as bytes in the order of their numbers. */
static void
test_key_order(struct zt *t)
{
    uint8_t a[GEN_KEY_BYTES], b[GEN_KEY_BYTES];

    for (int i = 0; i < 1000; i++) {
        uint64_t x = ch_prng_next(&t->rng), y = x + zt_below(t, 1000) - 500;

        gen_key_bytes(x, a);
        gen_key_bytes(y, b);
        ZT_CHECK(t, (memcmp(a, b, sizeof(a)) < 0) == (x < y));
        ZT_CHECK(t, (memcmp(a, b, sizeof(a)) == 0) == (x == y));
    }
}

/* Goal: the random part is as long as asked for, the rest the same in every value. */
static void
test_value_parts(struct zt *t)
{
    uint8_t a[1000], b[1000];
    size_t n = 200 + zt_below(t, 800), same = 0;
    double part = ch_prng_unit(&t->rng);

    gen_value(&t->rng, a, n, part);
    gen_value(&t->rng, b, n, part);
    for (size_t i = 0; i < n; i++)
        same += a[i] == b[i];
    /* Random bytes agree by chance once in 256. */
    ZT_CHECK(t, (double)same >= (double)n * (1.0 - part) - 1.0);
    ZT_CHECK(t, (double)same <= (double)n * (1.0 - part) + 2.0 + (double)n * 0.05);
    gen_value(&t->rng, a, 0, 1.0);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"keys_differ_and_spread", test_keys_differ_and_spread, 5},
        {"scrambling_is_undone", test_scrambling_is_undone, 1000},
        {"key_order", test_key_order, 10},
        {"value_parts", test_value_parts, 100},
    };

    return zt_main(argc, argv, "gen", cases, CH_ARRAY_LEN(cases));
}
