/* zipf.h - ranks drawn with the probability of rank r proportional to 1 / (r + 1)^theta.
 *
 * The generator of YCSB: J. Gray et al., "Quickly generating billion-record synthetic databases",
 * SIGMOD 1994. Ranks 0 and 1 have their exact probability, the others that of a continuous
 * approximation; so results compare with published ones. Above ZIPF_THETA_GRAY, where that generator has
 * no answer, ranks are drawn exactly by rejection-inversion (W. Hoermann, G. Derflinger, "Rejection-inversion to
 * generate variates from monotone discrete distributions", TOMACS 1996). theta = 0 is uniform. Pure.
 */
#ifndef CH_BENCH_ZIPF_H
#define CH_BENCH_ZIPF_H

#include "base/base.h"
#include "base/prng.h"

#define ZIPF_THETA_GRAY 0.999
#define ZIPF_THETA_MAX  5.0

struct zipf { /* read-only after zipf_init(): threads share it */
    uint64_t n;
    double theta, alpha, zetan, eta, second;
    double area_first, area_last, squeeze; /* rejection-inversion */
};

/* n > 0. EOPTION when theta is negative or above ZIPF_THETA_MAX. */
CH_NODISCARD int zipf_init(struct zipf *z, uint64_t n, double theta);
uint64_t zipf_draw(const struct zipf *z, struct ch_prng *rng); /* 0 .. n-1, 0 the most frequent */

/* Sum of 1 / i^theta for i = 1 .. n; theta != 1. */
double zipf_zeta(uint64_t n, double theta);

#endif
