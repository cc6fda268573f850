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

/* Integral of x^-theta up to x, and its inverse; both steady at theta = 1. */
static double
area_to(double x, double theta)
{
    double l = log(x), t = (1.0 - theta) * l;

    return fabs(t) > 1e-8 ? expm1(t) / t * l : l * (1.0 + t / 2.0);
}

static double
area_inverse(double area, double theta)
{
    double t = fmax(area * (1.0 - theta), -1.0);

    return fabs(t) > 1e-8 ? exp(log1p(t) / t * area) : exp(area * (1.0 - t / 2.0));
}

static uint64_t
draw_exact(const struct zipf *z, struct ch_prng *rng)
{
    for (;;) {
        double u = z->area_last + ch_prng_unit(rng) * (z->area_first - z->area_last);
        double x = area_inverse(u, z->theta);
        double k = fmin(fmax(floor(x + 0.5), 1.0), (double)z->n);

        if (k - x <= z->squeeze || u >= area_to(k + 0.5, z->theta) - pow(k, -z->theta))
            return (uint64_t)k - 1;
    }
}

int
zipf_init(struct zipf *z, uint64_t n, double theta)
{
    CH_ASSERT(n > 0);
    if (!(theta >= 0.0 && theta <= ZIPF_THETA_MAX))
        return CH_FAIL(COHORT_EOPTION, "theta %g: 0 to %g", theta, ZIPF_THETA_MAX);
    z->n = n;
    z->theta = theta;
    if (theta > ZIPF_THETA_GRAY) {
        z->area_first = area_to(1.5, theta) - 1.0;
        z->area_last = area_to((double)n + 0.5, theta);
        z->squeeze = 2.0 - area_inverse(area_to(2.5, theta) - pow(2.0, -theta), theta);
        return 0;
    }
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
    if (z->theta > ZIPF_THETA_GRAY)
        return draw_exact(z, rng);
    u = ch_prng_unit(rng);
    uz = u * z->zetan;
    if (uz < 1.0 || z->n == 1)
        return 0;
    if (uz < z->second || z->n == 2)
        return 1;
    rank = (uint64_t)((double)z->n * pow(z->eta * u - z->eta + 1.0, z->alpha));
    return ch_min_u64(rank, z->n - 1); /* u just below 1 may round up to n */
}
