/* prng.c - xoshiro256** (Blackman and Vigna), seeded by splitmix64. Pure; each user owns its state.
 *
 * The sequence of a seed never changes: seeds printed by failing tests must replay in later versions.
 */
#include "base/prng.h"

static uint64_t
splitmix64(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t
rotl(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

void
ch_prng_init(struct ch_prng *p, uint64_t seed)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(p->s); i++)
        p->s[i] = splitmix64(&seed);
}

uint64_t
ch_prng_next(struct ch_prng *p)
{
    uint64_t *s = p->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t
ch_prng_below(struct ch_prng *p, uint64_t n)
{
    __extension__ typedef unsigned __int128 u128;

    CH_ASSERT(n > 0);
    return (uint64_t)((u128)ch_prng_next(p) * n >> 64);
}

double
ch_prng_unit(struct ch_prng *p)
{
    return (double)(ch_prng_next(p) >> 11) * 0x1.0p-53;
}

void
ch_prng_fill(struct ch_prng *p, void *buf, size_t n)
{
    uint8_t *out = buf;

    while (n > 0) {
        uint64_t v = ch_prng_next(p);
        size_t part = n < sizeof(v) ? n : sizeof(v);

        memcpy(out, &v, part);
        out += part;
        n -= part;
    }
}
