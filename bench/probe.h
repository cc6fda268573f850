/* probe.h - the unit in which a drive erases, found out by writing and reading the drive's own counters.
 *
 * Works on any device that tells how many bytes its flash has programmed (dev_physical()). Everything on it is
 * overwritten. What is measured, in this order:
 *
 *     floor       media / host of rewriting the whole drive in order: parity, metadata, wear levelling
 *     fit         with even random writes over all of the drive, then over 3/5 of it, the write amplification gives the
 *                 effective physical capacity P and the floor once more: W = floor x A(range / P), where
 *                 A(u) = 1 / (1 - x) and u = (x - 1) / ln x
 *     steps       meanwhile: a drive makes room when the host fills an erase unit, so the copies that it
 *                 makes come at host positions (GC apart) or program positions (GC among the host's data) that are
 *                 a whole number of units from each other. Their greatest common divisor is the unit, to the
 *                 block, where counters are exact enough
 *     sizes       zones of growing size are rewritten in random order, one after the other, as a zoned drive is, until
 *                 the write amplification falls below 1.1 x floor (Lee, Ziegler, Leis, "How to Write to SSDs"):
 *                 an upper bound of the unit; and below 1.02 x floor: so many bytes written and overwritten
 *                 together lose at most 2 %. With a unit from the steps, that size is tried first; only when it
 *                 writes at the floor is the unit called exact
 */
#ifndef CH_BENCH_PROBE_H
#define CH_BENCH_PROBE_H

#include "dev/dev.h"

enum {
    PROBE_SIZES_MAX = 40
};
#define PROBE_FALLBACK_BYTES (UINT64_C(32) << 30)

struct probe_config {
    struct dev *dev;      /* borrowed */
    uint64_t first_bytes; /* smallest zone tried; 0 = 512 MiB, on small devices 1/2048 */
    double drive_writes;  /* measured for each size, after as many unmeasured; 0 = 1 */
    bool fit;             /* steps and fit; else sizes only */
    uint64_t seed;
    void (*progress)(void *arg, const char *what, uint64_t written, uint64_t of); /* or NULL */
    void *arg;
};

struct probe_size {
    uint64_t zone_bytes;
    double waf;
};
struct probe_result {
    uint64_t capacity_bytes, written_bytes;
    double floor;                         /* sequential */
    double waf_full, waf_part, fit_floor; /* random; 0 = not measured */
    uint64_t fit_bytes;                   /* effective physical capacity; 0 = no fit */
    struct probe_size sizes[PROBE_SIZES_MAX];
    unsigned size_count;
    uint64_t unit_bytes;  /* the unit, or an upper bound of it */
    uint64_t group_bytes; /* loses at most 2 % when group_measured, else a guess */
    bool group_measured;
    bool exact, found; /* found: measured, not the fallback */
    bool shared_gc;    /* steps: the drive's GC writes among the host's data */
};

/* Bytes that a probe of this device will write at most. */
uint64_t probe_estimate(const struct probe_config *c);
/* EUNSUPPORTED when the device does not tell its media bytes; EIO. */
CH_NODISCARD int probe_run(const struct probe_config *c, struct probe_result *out);
/* What to take where nothing can be measured: 32 GiB, on a smaller device a sixteenth of it. */
uint64_t probe_fallback(uint64_t capacity_bytes);

/* Pure parts. A(u) for 0 < u < 1, and the capacity that explains two measurements (0: none does). */
double probe_amplification(double u);
double probe_fit(double range1, double waf1, double range2, double waf2, double *floor);

#endif
