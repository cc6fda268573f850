/* tpcc_random.h - random numbers and texts as TPC-C wants them (clauses 2.1.6, 4.3.2, 4.3.3). Pure. */
#ifndef CH_BENCH_TPCC_RANDOM_H
#define CH_BENCH_TPCC_RANDOM_H

#include "base/prng.h"
#include "bench/tpcc_schema.h"

/* The constants of NURand are drawn once a run and are the same for all threads of it. */
struct tpcc_constants {
    uint32_t c_last, c_id, i_id;
};
struct tpcc_random {
    struct ch_prng prng;
    struct tpcc_constants constants;
};

/* Constants of a run on data loaded with `c_load`: c_last keeps the distance that 2.1.6.1 demands. */
void tpcc_constants_draw(struct tpcc_constants *c, struct ch_prng *p, uint32_t c_load);

uint32_t tpcc_between(struct tpcc_random *r, uint32_t min, uint32_t max); /* both included */
bool tpcc_percent(struct tpcc_random *r, uint32_t percent);
uint32_t tpcc_customer_id(struct tpcc_random *r, const struct tpcc_scale *s);
uint32_t tpcc_item_id(struct tpcc_random *r, const struct tpcc_scale *s);
/* Number of a last name, for a run or, with `constant` = c_load, for the load. */
uint32_t tpcc_name_number(struct tpcc_random *r, const struct tpcc_scale *s, uint32_t constant);
void tpcc_last_name(uint32_t number, char out[TPCC_NAME_MAX + 1]);

/* Texts of min to max characters and a terminator: letters and digits; digits. */
void tpcc_text(struct tpcc_random *r, uint32_t min, uint32_t max, char *out);
void tpcc_digits(struct tpcc_random *r, uint32_t n, char *out);
/* 26 to 50 characters, with "ORIGINAL" in one of ten. */
void tpcc_original(struct tpcc_random *r, char out[51]);
void tpcc_address_draw(struct tpcc_random *r, struct tpcc_address *a);
/* A permutation of 1 .. n. */
void tpcc_permute(struct tpcc_random *r, uint32_t *v, uint32_t n);

#endif
