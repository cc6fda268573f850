/* prng.h - seeded pseudo-random numbers (splitmix64 seeding, xoshiro256**; Blackman and Vigna). */
#ifndef CH_BASE_PRNG_H
#define CH_BASE_PRNG_H

#include "base/base.h"

struct ch_prng {
    uint64_t s[4];
};

void ch_prng_init(struct ch_prng *p, uint64_t seed);
uint64_t ch_prng_next(struct ch_prng *p);
uint64_t ch_prng_below(struct ch_prng *p,
                       uint64_t n);     /* 0 .. n-1, n > 0, unbiased enough: 128-bit multiply */
double ch_prng_unit(struct ch_prng *p); /* [0, 1) */
void ch_prng_fill(struct ch_prng *p, void *buf, size_t n);

#endif
