/* readtest.h - random reads by size, alignment and queue depth. */
#ifndef CH_BENCH_READTEST_H
#define CH_BENCH_READTEST_H

#include "base/base.h"
#include "base/hist.h"

enum {
    READTEST_DEPTH_MAX = 256,
    READTEST_CELLS = 80
};

struct readtest_config {
    double seconds; /* of each cell */
    uint64_t seed;
};
struct readtest_cell {
    uint32_t bytes, depth;
    bool crossing, refused; /* refused: the device takes no reads of this size or alignment */
    uint64_t reads;
    double seconds;
    struct ch_hist latency; /* ns */
};

/* Fills up to READTEST_CELLS cells of an ordinary file or block device, which is only read. EIO, ENOMEM, EINVAL. */
CH_NODISCARD int readtest_run(const char *path, const struct readtest_config *c,
                              struct readtest_cell *cells, size_t *count);

#endif
