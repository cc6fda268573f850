/* hist.h - histogram of latencies in ns: log-linear buckets, 64 per power of two (1.6 % error). */
#ifndef CH_BASE_HIST_H
#define CH_BASE_HIST_H

#include "base/base.h"

enum {
    CH_HIST_BUCKETS = 64 * 40
};

struct ch_hist {
    uint64_t count[CH_HIST_BUCKETS];
    uint64_t total, sum, max;
};

void ch_hist_add(struct ch_hist *h, uint64_t value);
void ch_hist_merge(struct ch_hist *into, const struct ch_hist *from);
uint64_t ch_hist_quantile(const struct ch_hist *h, double q); /* 0 when empty */

#endif
