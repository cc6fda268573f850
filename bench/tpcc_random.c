/* tpcc_random.c - see tpcc_random.h. */
#include "bench/tpcc_random.h"

#include <stdio.h>

uint32_t
tpcc_between(struct tpcc_random *r, uint32_t min, uint32_t max)
{
    CH_ASSERT(min <= max);
    return min + (uint32_t)ch_prng_below(&r->prng, (uint64_t)(max - min) + 1);
}

bool
tpcc_percent(struct tpcc_random *r, uint32_t percent)
{
    return ch_prng_below(&r->prng, 100) < percent;
}

/* NURand(A, x, y) of clause 2.1.6. */
static uint32_t
nurand(struct tpcc_random *r, uint32_t a, uint32_t constant, uint32_t x, uint32_t y)
{
    uint32_t v = tpcc_between(r, 0, a) | tpcc_between(r, x, y);

    return (v + constant) % (y - x + 1) + x;
}

void
tpcc_constants_draw(struct tpcc_constants *c, struct ch_prng *p, uint32_t c_load)
{
    uint32_t delta = 96;

    while (delta == 96 || delta == 112) /* 2.1.6.1: 65 to 119 without these two */
        delta = 65 + (uint32_t)ch_prng_below(p, 55);
    c->c_last = c_load >= delta ? c_load - delta : c_load + delta;
    c->c_id = (uint32_t)ch_prng_below(p, 1024);
    c->i_id = (uint32_t)ch_prng_below(p, 8192);
}

uint32_t
tpcc_customer_id(struct tpcc_random *r, const struct tpcc_scale *s)
{
    return nurand(r, 1023, r->constants.c_id, 1, s->customers);
}

uint32_t
tpcc_item_id(struct tpcc_random *r, const struct tpcc_scale *s)
{
    return nurand(r, 8191, r->constants.i_id, 1, s->items);
}

uint32_t
tpcc_name_number(struct tpcc_random *r, const struct tpcc_scale *s, uint32_t constant)
{
    return nurand(r, 255, constant, 0, (uint32_t)ch_min_u64(s->customers, 1000) - 1);
}

void
tpcc_last_name(uint32_t number, char out[TPCC_NAME_MAX + 1])
{
    static const char *const parts[10] = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
                                          "ESE", "ANTI",  "CALLY", "ATION", "EING"};

    snprintf(out, TPCC_NAME_MAX + 1, "%s%s%s", parts[number / 100 % 10], parts[number / 10 % 10],
             parts[number % 10]);
}

void
tpcc_text(struct tpcc_random *r, uint32_t min, uint32_t max, char *out)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint32_t n = tpcc_between(r, min, max), i = 0;

    while (i < n) { /* ten characters of each number drawn: 6 bits each, taken to 0 .. 61 */
        uint64_t bits = ch_prng_next(&r->prng);

        for (uint32_t k = 0; k < 10 && i < n; k++, bits >>= 6)
            out[i++] = letters[(bits & 63) * 62 / 64];
    }
    out[n] = '\0';
}

void
tpcc_digits(struct tpcc_random *r, uint32_t n, char *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (char)('0' + tpcc_between(r, 0, 9));
    out[n] = '\0';
}

void
tpcc_original(struct tpcc_random *r, char out[51])
{
    static const char word[] = "ORIGINAL";

    tpcc_text(r, 26, 50, out);
    if (tpcc_percent(r, 10))
        memcpy(out + tpcc_between(r, 0, (uint32_t)(strlen(out) - sizeof(word) + 1)), word,
               sizeof(word) - 1);
}

void
tpcc_address_draw(struct tpcc_random *r, struct tpcc_address *a)
{
    tpcc_text(r, 10, 20, a->street_1);
    tpcc_text(r, 10, 20, a->street_2);
    tpcc_text(r, 10, 20, a->city);
    tpcc_text(r, 2, 2, a->state);
    tpcc_digits(r, 4, a->zip);
    memcpy(a->zip + 4, "11111", 6);
}

void
tpcc_permute(struct tpcc_random *r, uint32_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        v[i] = i + 1;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = tpcc_between(r, 0, i - 1), x = v[k];

        v[k] = v[i - 1];
        v[i - 1] = x;
    }
}
