/* skew.c - see skew.h. */
#include "bench/skew.h"

#include <math.h>

#include "bench/gen.h"

static const char *const skew_names[SKEW_KINDS] = {"zipf", "hotcold", "rangehot", "shift"};

const char *
skew_name(enum skew_kind kind)
{
    return skew_names[kind];
}

int
skew_parse(const char *name, enum skew_kind *out)
{
    for (int k = 0; k < SKEW_KINDS; k++) {
        if (strcmp(skew_names[k], name) == 0) {
            *out = (enum skew_kind)k;
            return 0;
        }
    }
    return CH_FAIL(COHORT_EOPTION, "skew '%s': zipf, hotcold, rangehot or shift", name);
}

/* Ranges of equal size; the i-th hottest has a e^(b i) + c e^(d i) of the accesses, scaled to a sum of
 * 1, with the constants of the paper. */
static void
init_ranges(struct skew *s)
{
    const double a = 14.18, b = -2.917, c = 0.0164, d = -0.08082;
    double weight[SKEW_RANGES], sum = 0.0, below = 0.0;
    struct ch_prng rng;

    for (int i = 0; i < SKEW_RANGES; i++) {
        weight[i] = a * exp(b * (i + 1)) + c * exp(d * (i + 1));
        sum += weight[i];
    }
    ch_prng_init(&rng, s->c.seed);
    for (uint64_t i = SKEW_RANGES - 1; i > 0; i--) {
        uint64_t j = ch_prng_below(&rng, i + 1);
        double w = weight[i];

        weight[i] = weight[j];
        weight[j] = w;
    }
    for (uint64_t i = 0; i < SKEW_RANGES; i++) {
        below += weight[i] / sum;
        s->range_below[i] = below;
        s->range_first[i + 1] = s->units * (i + 1) / SKEW_RANGES;
    }
    s->range_below[SKEW_RANGES - 1] = 1.0;
}

int
skew_init(struct skew *s, const struct skew_config *c)
{
    int rc;

    CH_ASSERT(c->records > 0 && c->group >= 1);
    *s = (struct skew){.c = *c, .units = ch_max_u64(c->records / c->group, 1)};
    if (c->kind == SKEW_HOTCOLD && (c->hot_part <= 0 || c->hot_part >= 100 || c->hot_ops > 100))
        return CH_FAIL(COHORT_EOPTION, "hot records %g %% and operations %g %%: 0 to 100",
                       c->hot_part, c->hot_ops);
    if (c->turn == 0)
        s->c.turn = 20 * c->records;
    s->hot_units = ch_max_u64((uint64_t)((double)s->units * c->hot_part / 100.0), 1);
    init_ranges(s);
    rc = zipf_init(&s->zipf, s->units, c->theta);
    return rc;
}

static uint64_t
draw_hotcold(const struct skew *s, struct ch_prng *rng)
{
    uint64_t cold = s->units - s->hot_units;

    if (cold == 0 || ch_prng_unit(rng) * 100.0 < s->c.hot_ops)
        return ch_prng_below(rng, s->hot_units);
    return s->hot_units + ch_prng_below(rng, cold);
}

/* mixgraph: the rank within a range comes from inverting the fitted power law's distribution function, and
 * says by hashing which record of the range it is. */
static uint64_t
draw_rangehot(const struct skew *s, struct ch_prng *rng)
{
    const double a = 0.002312, b = 0.3467;
    double u = ch_prng_unit(rng);
    unsigned range = 0;
    uint64_t first, count, rank;

    while (u >= s->range_below[range] && range + 1 < SKEW_RANGES)
        range++;
    first = s->range_first[range];
    count = s->range_first[range + 1] - first;
    if (count == 0)
        return ch_prng_below(rng, s->units);
    rank = (uint64_t)ceil(pow(ch_prng_unit(rng) / a, 1.0 / b));
    return first + gen_key_number(rank, true) % count;
}

static uint64_t
draw_shift(const struct skew *s, struct ch_prng *rng, uint64_t clock)
{
    double turned = (double)(clock % s->c.turn) / (double)s->c.turn;

    return (zipf_draw(&s->zipf, rng) + (uint64_t)(turned * (double)s->units)) % s->units;
}

uint64_t
skew_draw(const struct skew *s, struct ch_prng *rng, uint64_t clock)
{
    uint64_t unit = 0;

    switch (s->c.kind) {
    case SKEW_ZIPF:
    case SKEW_KINDS:
        unit = zipf_draw(&s->zipf, rng);
        break;
    case SKEW_HOTCOLD:
        unit = draw_hotcold(s, rng);
        break;
    case SKEW_RANGEHOT:
        unit = draw_rangehot(s, rng);
        break;
    case SKEW_SHIFT:
        unit = draw_shift(s, rng, clock);
        break;
    }
    if (s->c.group == 1)
        return unit;
    return ch_min_u64(unit * s->c.group + ch_prng_below(rng, s->c.group), s->c.records - 1);
}
