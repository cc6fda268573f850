/* gen.c - see gen.h. */
#include "bench/gen.h"

/* The finalizer of splitmix64: xor-shifts and odd multiplications, so every step can be undone. */
uint64_t
gen_key_number(uint64_t i, bool scrambled)
{
    if (!scrambled)
        return i;
    i += UINT64_C(0x9e3779b97f4a7c15);
    i = (i ^ i >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    i = (i ^ i >> 27) * UINT64_C(0x94d049bb133111eb);
    return i ^ i >> 31;
}

void
gen_key_bytes(uint64_t number, uint8_t key[GEN_KEY_BYTES])
{
    for (int b = 0; b < GEN_KEY_BYTES; b++)
        key[b] = (uint8_t)(number >> (56 - 8 * b));
}

void
gen_value(struct ch_prng *rng, uint8_t *value, size_t n, double random)
{
    static const char text[] = "pages that die together lie together. ";
    size_t head = (size_t)((double)n * random + 0.5);

    if (head > n)
        head = n;
    ch_prng_fill(rng, value, head);
    for (size_t i = head; i < n; i++)
        value[i] = (uint8_t)text[(i - head) % (sizeof(text) - 1)];
}
