/* hist.c - log-linear histogram: bucket of a value, and back.
 *
 * Values below 64 have a bucket each. Above, the power of two [2^e, 2^(e+1)) is cut into 64 equal
 * buckets, e = 6 .. 44; larger values (more than nine hours in ns) share the last bucket, and `max`
 * still tells the largest exactly.
 *
 * Invariants:
 *   H1  total is the sum of all count[].
 *   H2  hist_upper(hist_bucket(v)) is in v .. v + v / 64 for every v below 2^45.
 *
 * Pure; not locked: a histogram a thread, merged at the end.
 */
#include "base/hist.h"

enum {
    SUB_BITS = 6,
    SUB = 1 << SUB_BITS
};

static unsigned
hist_bucket(uint64_t value)
{
    unsigned e;
    unsigned bucket;

    if (value < SUB)
        return (unsigned)value;
    e = 63U - (unsigned)__builtin_clzll(value);
    bucket = (e - SUB_BITS + 1) * SUB + (unsigned)((value >> (e - SUB_BITS)) & (SUB - 1));
    return bucket < CH_HIST_BUCKETS ? bucket : CH_HIST_BUCKETS - 1;
}

/* Largest value of a bucket. */
static uint64_t
hist_upper(unsigned bucket)
{
    unsigned shift;

    if (bucket < SUB)
        return bucket;
    shift = bucket / SUB - 1;
    return ((uint64_t)(SUB + bucket % SUB + 1) << shift) - 1;
}

void
ch_hist_add(struct ch_hist *h, uint64_t value)
{
    h->count[hist_bucket(value)]++;
    h->total++;
    h->sum += value;
    h->max = ch_max_u64(h->max, value);
}

void
ch_hist_merge(struct ch_hist *into, const struct ch_hist *from)
{
    for (unsigned i = 0; i < CH_HIST_BUCKETS; i++)
        into->count[i] += from->count[i];
    into->total += from->total;
    into->sum += from->sum;
    into->max = ch_max_u64(into->max, from->max);
}

uint64_t
ch_hist_quantile(const struct ch_hist *h, double q)
{
    uint64_t seen = 0;
    double want = q * (double)h->total;

    if (h->total == 0)
        return 0;
    for (unsigned i = 0; i < CH_HIST_BUCKETS - 1; i++) {
        seen += h->count[i];
        if (seen > 0 && (double)seen >= want)
            return ch_min_u64(hist_upper(i), h->max);
    }
    return h->max;
}
