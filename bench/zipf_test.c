/* zipf_test.c - the generator against the exact probabilities of the distribution. */
#include <math.h>
#include <stdlib.h>

#include "bench/zipf.h"
#include "zt/zt.h"

enum {
    DRAWS = 200000
};

static const double thetas[] = {0.0, 0.2, 0.5, 0.8, 0.9, 0.99, 0.999, 1.2, 2.0};

/* Goal: the closed form of zeta is the sum. Method: both, below and above the switch at 1000. */
static void
test_zeta_is_the_sum(struct zt *t)
{
    double theta = thetas[1 + zt_below(t, CH_ARRAY_LEN(thetas) - 1)], sum = 0.0;
    uint64_t n = 1 + zt_below(t, 200000);

    for (uint64_t i = n; i >= 1; i--)
        sum += pow((double)i, -theta);
    ZT_CHECK(t, fabs(zipf_zeta(n, theta) - sum) <= 1e-10 * sum);
}

/* Observed less expected count of a part of probability p, in standard deviations. */
static double
deviation(uint64_t seen, double p)
{
    return ((double)seen - DRAWS * p) / sqrt(DRAWS * p * (1.0 - p) + 1e-9);
}

/* Goal: ranks 0 and 1 come as often as they must, every rank is in range, and no head of the
 * distribution is off by more than Gray's approximation allows. Method: draws against the exact
 * probabilities: 5 standard deviations where the generator is exact, 2 % of all draws elsewhere. */
static void
test_zipf_heads(struct zt *t)
{
    double theta = thetas[zt_below(t, CH_ARRAY_LEN(thetas))], head = 0.0, zeta;
    uint64_t n = 1 + zt_below(t, 5000), below = 0;
    uint64_t *seen = calloc(n, sizeof(*seen));
    struct zipf z;

    ZT_CHECK(t, seen != NULL);
    ZT_OK(t, zipf_init(&z, n, theta));
    zeta = zipf_zeta(n, theta);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_draw(&z, &t->rng);

        ZT_CHECK(t, rank < n);
        seen[rank]++;
    }
    for (uint64_t r = 0; r < n; r++) {
        double p = pow((double)(r + 1), -theta) / zeta;

        if (r < 2)
            ZT_CHECK(t, fabs(deviation(seen[r], p)) < 5.0);
        head += p;
        below += seen[r];
        ZT_CHECK(t, fabs((double)below / DRAWS - head) < 0.02 + 5.0 / sqrt(DRAWS));
    }
    free(seen);
}

/* Goal: theta 0 is uniform. Method: chi-square over 100 ranks: mean 99, deviation 14. */
static void
test_uniform(struct zt *t)
{
    enum {
        N = 100
    };
    uint64_t seen[N] = {0};
    double chi = 0.0;
    struct zipf z;

    ZT_OK(t, zipf_init(&z, N, 0.0));
    for (int i = 0; i < DRAWS; i++)
        seen[zipf_draw(&z, &t->rng)]++;
    for (int r = 0; r < N; r++) {
        double d = (double)seen[r] - DRAWS / (double)N;

        chi += d * d / (DRAWS / (double)N);
    }
    ZT_CHECK(t, chi > 99 - 5 * 14 && chi < 99 + 6 * 14);
}

/* Goal: what has no distribution is refused, small n work. */
static void
test_limits(struct zt *t)
{
    struct zipf z;

    ZT_STATUS(t, zipf_init(&z, 10, 5.1), COHORT_EOPTION);
    ZT_STATUS(t, zipf_init(&z, 10, -0.1), COHORT_EOPTION);
    ZT_STATUS(t, zipf_init(&z, 10, (double)NAN), COHORT_EOPTION);
    for (uint64_t n = 1; n <= 3; n++) {
        uint64_t top = 0;

        ZT_OK(t, zipf_init(&z, n, 0.99));
        for (int i = 0; i < 2000; i++)
            top = ch_max_u64(top, zipf_draw(&z, &t->rng));
        ZT_CHECK(t, top == n - 1);
    }
    /* theta 1, where sums have no closed form: rank r comes 1 / (r + 1) as often as rank 0. */
    ZT_OK(t, zipf_init(&z, 1000, 1.0));
    for (uint64_t first = 0, tenth = 0, i = 0;; i++) {
        uint64_t rank = zipf_draw(&z, &t->rng);

        first += rank == 0;
        tenth += rank == 9;
        if (i == DRAWS) {
            ZT_CHECK(t, tenth > first / 10 - first / 50 && tenth < first / 10 + first / 50);
            break;
        }
    }
    /* The last ranks of a large range are reached, and none beyond. */
    ZT_OK(t, zipf_init(&z, UINT64_C(1) << 40, 0.2));
    for (int i = 0; i < 20000; i++)
        ZT_CHECK(t, zipf_draw(&z, &t->rng) < UINT64_C(1) << 40);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"zeta_is_the_sum", test_zeta_is_the_sum, 30},
        {"zipf_heads", test_zipf_heads, 40},
        {"uniform", test_uniform, 20},
        {"limits", test_limits, 1},
    };

    return zt_main(argc, argv, "zipf", cases, CH_ARRAY_LEN(cases));
}
