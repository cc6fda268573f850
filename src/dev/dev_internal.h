/* dev_internal.h - what the files of this layer share and no other layer sees. */
#ifndef CH_DEV_DEV_INTERNAL_H
#define CH_DEV_DEV_INTERNAL_H

#include "dev/dev.h"
#include "ssd/ssd.h"
#include "ssd/ssd_timing.h"
#include "ssd/ssd_zns.h"

enum {
    DEV_BLOCK_BYTES = 4096,
    DEV_BATCHES_MAX = 16, /* dev_submit() calls that a queue keeps before it waits by itself */
};

/* req.rc of a request that failed with errno `e`: what a backend stores; dev_wait() turns it into
 * COHORT_EFULL or COHORT_EIO and throws the first of its requests, by index. */
#define DEV_ERRNO(e) (-1000 - (e))

/* Requests that dev_submit() handed over and dev_wait() has not settled. */
struct dev_batch {
    struct dev_req *reqs;
    unsigned n;
};

/* The calling thread's virtual clock (dev.h). */
struct dev_clock {
    uint64_t ns;
    uint64_t background; /* what dev_virtual_background() says */
    bool client;         /* it has called dev_virtual_begin() */
};
struct dev_clock *dev_clock(void);

/* COHORT_EFULL or COHORT_EIO. */
int dev_code_of_errno(int e);
const struct dev_ops *dev_ops(const struct dev *d);
/* From now on writes and resets fail with EROFS. */
void dev_set_readonly(struct dev *d);

/* Backends behind dev_open(). */
CH_NODISCARD int dev_file_open(const char *path, unsigned flags, uint64_t max_bytes,
                               struct dev **out);
CH_NODISCARD int dev_sim_open_uri(const char *cfg, unsigned flags, struct dev **out);

/* What a "sim:" URI says, without the "sim:". */
enum sim_timing_kind {
    SIM_TIMING_OFF,
    SIM_TIMING_VIRTUAL,
    SIM_TIMING_REAL
};
struct sim_uri {
    char *file; /* owned; NULL = memory */
    bool volatile_cache;
    bool unit_hidden; /* dev_caps().unit_bytes = 0 */
    bool untorn;      /* a power cut leaves each 4 KiB block whole, old or new */
    uint64_t seed;
    struct ssd_zns_config zns;   /* zone_pages 0: no zones; `zones` is left to the drive */
    uint64_t conventional_pages; /* of a zoned drive; 0 = a sixteenth */
    enum sim_timing_kind timing;
    struct ssd_timing_config clock;
};
/* Fills *cfg, logical_pages included, and *uri; EOPTION names the bad key. On error nothing is
 * owned. */
CH_NODISCARD int sim_uri_parse(const char *text, struct ssd_config *cfg, struct sim_uri *uri);

#endif
