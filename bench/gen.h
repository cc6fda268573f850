/* gen.h - keys and values of the benches. Pure.
 *
 * Record i has an 8-byte key: i in big-endian, or, scrambled, a bijective hash of i, so that no two
 * records share a key and popular records lie scattered over the key space.
 */
#ifndef CH_BENCH_GEN_H
#define CH_BENCH_GEN_H

#include "base/base.h"
#include "base/prng.h"

enum {
    GEN_KEY_BYTES = 8
};

uint64_t gen_key_number(uint64_t i, bool scrambled);
void gen_key_bytes(uint64_t number, uint8_t key[GEN_KEY_BYTES]);

static inline void
gen_key(uint64_t i, bool scrambled, uint8_t key[GEN_KEY_BYTES])
{
    gen_key_bytes(gen_key_number(i, scrambled), key);
}

/* Fills `n` bytes: the first `random` part of them random, the rest the same text over and over. */
void gen_value(struct ch_prng *rng, uint8_t *value, size_t n, double random);

#endif
