/* dev_sim_internal.h - the simulated drive's state, shared by dev_sim.c (requests, handles),
 * dev_sim_drive.c (the drive's making), dev_sim_cut.c (contents, volatile cache, power cuts) and
 * dev_sim_ctl.c (placement handles, zones). The invariants V1.. are in dev_sim.c. */
#ifndef CH_DEV_DEV_SIM_INTERNAL_H
#define CH_DEV_DEV_SIM_INTERNAL_H

#include "base/prng.h"
#include "dev/dev_internal.h"
#include "rt/rt.h"
#include "ssd/ssd.h"
#include "ssd/ssd_timing.h"
#include "ssd/ssd_zns.h"

struct version { /* of one block; links are slot + 1, 0 = none */
    uint32_t block;
    uint32_t older, newer;
};

struct sim_handle {
    struct sim_drive *drive;
    uint64_t generation; /* V4 */
    bool owns;           /* opened by URI: the drive goes with the handle */
};

struct sim_drive {
    struct rt_mutex lock; /* all below */
    char *name;
    uint64_t bytes;
    uint64_t seed;
    uint64_t unit_bytes; /* as told; 0 = hidden */
    uint32_t streams;
    uint64_t generation;
    bool untorn;             /* blocks survive a cut whole */
    struct sim_handle *open; /* the one that is alive */
    uint8_t *mem;            /* contents, or ... */
    int fd;                  /* ... the file of them, -1 */
    uint8_t *filled;         /* [blocks] V3 */
    struct ssd *ssd;         /* of a zoned drive: behind its conventional part */
    struct ssd_counts base;  /* what opening an old file counted */
    /* zones; zns NULL = none */
    struct ssd_zns *zns;
    struct ssd_zns_config zones;
    uint64_t conventional_bytes;
    /* volatile cache; versions NULL = none */
    uint32_t *head; /* [blocks] V2 */
    struct version *versions;
    uint8_t *saved; /* [version_slots] blocks */
    uint32_t version_slots, version_first, version_count;
    uint64_t versions_made; /* ever */
    struct sim_timing timing;
    struct ch_prng timing_rng;
    /* the model's own time; clock NULL = none */
    struct ssd_timing *clock;
    uint32_t clock_chunk;   /* pages that it is told of at a time */
    bool clock_real;        /* requests take real time, else virtual */
    uint64_t client_ns;     /* latest submission of a client, 0 = none yet */
    uint64_t background_ns; /* latest completion of a background thread */
};

/* Contents. These return an errno. */
int sim_contents_read(const struct sim_drive *s, uint64_t off, void *buf, size_t len);
int sim_contents_write(struct sim_drive *s, uint64_t off, const void *buf, size_t len);
int sim_contents_zero(struct sim_drive *s, uint64_t off, uint64_t len);

/* Saves what is to be written over (`reset`: or zeroed); an errno. */
int sim_versions_save(struct sim_drive *s, uint64_t off, uint64_t len, bool reset);
/* A flush: forgets the versions among the first `mark` ever made. */
void sim_versions_forget(struct sim_drive *s, uint64_t mark);

/* Number of the zone at a byte, which lies beyond the conventional part. */
static inline uint32_t
sim_zone_of(const struct sim_drive *s, uint64_t off)
{
    return (uint32_t)((off - s->conventional_bytes) / DEV_BLOCK_BYTES / s->zones.zone_pages);
}

static inline bool
sim_is_zoned(const struct sim_drive *s, uint64_t off)
{
    return s->zns != NULL && off >= s->conventional_bytes;
}

static inline uint64_t
sim_zone_off(const struct sim_drive *s, uint32_t zone)
{
    return s->conventional_bytes + (uint64_t)zone * s->zones.zone_pages * DEV_BLOCK_BYTES;
}

/* The drive of a URI, without "sim:"; `flags` as dev_open()'s. */
CH_NODISCARD int sim_drive_make(const char *text, unsigned flags, struct sim_drive **out);

int sim_stream_room(struct dev *d, uint32_t stream, uint64_t *bytes);
int sim_stream_update(struct dev *d, uint32_t stream);
int sim_stream_stats(struct dev *d, struct dev_stream_stats *out);
int sim_events(struct dev *d, struct dev_event *out, unsigned max, unsigned *n);
int sim_zone_report(struct dev *d, uint64_t off, struct dev_zone *out, unsigned max, unsigned *n);
int sim_zone_do(struct dev *d, uint64_t off, enum dev_zone_act act);

#endif
