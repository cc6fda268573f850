/* zt.h - a thin layer over cmocka that carries a seed: tests as tables, each run for several seeds.
 *
 * Base seed: environment COHORT_SEED (decimal), else 1; run r of a case has seed base * 1000003 + r.
 * With COHORT_RUNS=N also set, every case has N runs with the seeds COHORT_SEED, COHORT_SEED + 1 ...
 * A failure prints file, line, expression and seed; COHORT_SEED=S COHORT_RUNS=1 replays it.
 * COHORT_RUNS_PERCENT=P (1 .. 100) cuts the runs of every case down to P percent, at least one; it is
 * for builds that are slow (sanitizers). COHORT_RUNS beats it.
 * COHORT_KEEP=1 keeps the directories of zt_tmpdir().
 */
#ifndef CH_TESTS_ZT_H
#define CH_TESTS_ZT_H

#include "base/base.h"
#include "base/prng.h"

struct zt {
    uint64_t seed;
    struct ch_prng rng;
};
struct zt_case {
    const char *name;
    void (*fn)(struct zt *t);
    unsigned runs; /* seeds; 0 = 1 */
};

/* Fails the test (does not return) when `e` is false. */
#define ZT_CHECK(t, e) zt_check((t), (e), __FILE__, __LINE__, #e)
/* Status must be `want`; prints the error record otherwise. */
#define ZT_STATUS(t, e, want) zt_status((t), (e), (want), __FILE__, __LINE__, #e)
#define ZT_OK(t, e)           ZT_STATUS(t, e, 0)

void zt_check(struct zt *t, bool ok, const char *file, int line, const char *expr);
void zt_status(struct zt *t, int got, int want, const char *file, int line, const char *expr);
static inline uint64_t
zt_below(struct zt *t, uint64_t n)
{
    return ch_prng_below(&t->rng, n);
}
/* A fresh directory below $TMPDIR or /var/tmp, removed at the end of the run; never
 * NULL. At most 64 a run. */
const char *zt_tmpdir(struct zt *t);
/* COHORT_RUNS_PERCENT, 100 when it is not set; for programs with a main of their own. */
unsigned zt_runs_percent(void);
/* A value that is a function of (id, version): 8 to max - 1 bytes, both numbers in front, half of the rest incompressible.
 * Returns its length. */
size_t zt_value(uint32_t id, uint32_t version, size_t max, uint8_t *out);
/* argv[1..] = names of cases to run, all by default. Ends with "N passed, N failed"; returns main's
 * exit code. */
int zt_main(int argc, char **argv, const char *suite, const struct zt_case *cases, size_t n);

#endif
