/* figures.h - what a run or a database is reported as: the formulas of docs/PAPER.md. Pure.
 *
 * Counters are differences of two cohort_stats(). A figure whose counters the device does not tell
 * is FIGURE_UNKNOWN (JSON null), one that makes no sense for the run, such as a write amplification
 * without page writes, is FIGURE_ABSENT (no field).
 *
 *     db_waf              (host - wal) / (page writes x 4096)
 *     ssd_waf             media / host
 *     total_waf           db_waf x ssd_waf
 *     total_waf_with_log  media / (page writes x 4096)
 *     compress_ratio      stored bytes of the pages written / (page writes x 4096)
 *     compress_ratio_sd   standard deviation of a page's stored bytes / 4096
 *     packed_ratio        the same with their share of the slot space lost to packing
 *     fill                live stored bytes / bytes of all data zones
 *     gc_valid_ratio      live bytes found in collected zones / bytes of those zones
 */
#ifndef CH_BENCH_FIGURES_H
#define CH_BENCH_FIGURES_H

#include <math.h>

#include "base/base.h"

#define FIGURE_UNKNOWN ((double)NAN)
#define FIGURE_ABSENT  (-1.0)

static inline bool
figure_is_known(double v)
{
    return v >= 0.0;
}

struct figures {
    double db_waf, ssd_waf, total_waf, total_waf_with_log;
    double flash_bytes_per_op, flash_bytes_per_payload_byte, host_bytes_per_op;
    double reads_per_op, hit_rate, cpu_us_per_op, cpu_percent, ops_per_s;
    double compress_ratio, compress_ratio_sd, packed_ratio, fill, gc_valid_ratio;
};

/* What is measured beside cohort_stats(). */
struct figures_run {
    uint64_t ops;
    double seconds, cpu_seconds;
};

/* *out = to - from for the counters; sizes and settings are those of `to`. */
void figures_difference(const struct cohort_stats *from, const struct cohort_stats *to,
                        struct cohort_stats *out);

void figures_compute(const struct cohort_stats *d, const struct figures_run *run,
                     struct figures *out);

/* Bytes by cause less what the drive itself counted: 0 = they add up. False when the drive does not
 * tell. */
bool figures_account(const struct cohort_stats *s, int64_t *difference);

/* Whether the total write amplification of two windows differs by at most 2 % of the larger one;
 * false when it is unknown in one of them, unless both have a known database part. */
bool figures_steady(const struct cohort_stats *first, const struct cohort_stats *second);

#endif
