/* zipf.c - see zipf.h. */
#include "bench/zipf.h"

#include <math.h>

/* The first terms are added one by one and the rest by Euler and Maclaurin's formula, whose first
 * left-out term is below 1e-12 there: counting to a billion takes no time. */
double
zipf_zeta(uint64_t n, double theta)
{
    enum {
        EXACT = 1000
    };
    double sum = 0.0, a = EXACT, b = (double)n;

    for (uint64_t i = 1; i <= n && i <= EXACT; i++)
        sum += pow((double)i, -theta);
    if (n <= EXACT)
        return sum;
    sum += (pow(b, 1.0 - theta) - pow(a, 1.0 - theta)) / (1.0 - theta);
    sum += (pow(b, -theta) - pow(a, -theta)) / 2.0;
    sum += theta * (pow(a, -theta - 1.0) - pow(b, -theta - 1.0)) / 12.0;
    return sum;
}

int
zipf_init(struct zipf *z, uint64_t n, double theta)
{
    CH_ASSERT(n > 0);
    if (!(theta >= 0.0 && theta <= ZIPF_THETA_MAX))
        return CH_FAIL(COHORT_EOPTION, "theta %g: 0 to %g", theta, ZIPF_THETA_MAX);
    z->n = n;
    z->theta = theta;
    z->alpha = 1.0 / (1.0 - theta);
    z->zetan = zipf_zeta(n, theta);
    z->second = 1.0 + pow(0.5, theta);
    /* With n <= 2 the first two cases of zipf_draw() cover everything. */
    z->eta =
        n <= 2 ? 0.0 : (1.0 - pow(2.0 / (double)n, 1.0 - theta)) / (1.0 - z->second / z->zetan);
    return 0;
}

uint64_t
zipf_draw(const struct zipf *z, struct ch_prng *rng)
{
    double u, uz;
    uint64_t rank;

    if (z->theta <= 0.0)
        return ch_prng_below(rng, z->n);
    u = ch_prng_unit(rng);
    uz = u * z->zetan;
    if (uz < 1.0 || z->n == 1)
        return 0;
    if (uz < z->second || z->n == 2)
        return 1;
    rank = (uint64_t)((double)z->n * pow(z->eta * u - z->eta + 1.0, z->alpha));
    return ch_min_u64(rank, z->n - 1); /* u just below 1 may round up to n */
}
