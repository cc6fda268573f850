/* ssd_timing.h - how long a drive takes: dies, queues, a write buffer, in virtual time.
 *
 * Pure: it is told when requests are submitted and says when they complete; it knows no clock and
 * sleeps nowhere. What the flash has to do comes from the drive model (ssd_observer), so that write
 * amplification takes its share of the dies:
 *
 *     host page -> write buffer -> (a stripe is full) -> program on its die -> leaves the buffer
 *     GC page   -> the die's backlog: read, program, erase; paid off between host programs and when idle
 *
 * A write completes when the buffer has taken it (the buffer survives a power cut: `plp`), so it waits
 * only when the buffer is full, that is when the dies can't keep up. A read waits for what its die is
 * doing, then takes read_ns; it overtakes what is queued there, unless `fifo`. Backlog is spread over
 * the host stripes that are left until the superblock that GC made room for is full, as drives do that
 * pace their GC; so GC delays requests by shares and not by whole superblocks.
 *
 * Times are in ns. Requests may be submitted in any order of time; results are exact when they come in
 * ascending order, and what a request waits is that of the latest time seen otherwise. Callers
 * serialise.
 */
#ifndef CH_SSD_SSD_TIMING_H
#define CH_SSD_SSD_TIMING_H

#include "ssd/ssd.h"

struct ssd_timing_config {
    uint32_t dies;          /* that work at the same time; stripes go round them; >= 1 */
    uint32_t planes;        /* reads that a die can do at the same time; >= 1 */
    uint32_t program_pages; /* one-shot stripe: pages a die programs at once; >= 1 */
    uint32_t block_pages;   /* pages of a die that one erase clears (all planes); >= 1 */
    uint32_t channels;      /* dies share them evenly; >= 1 */
    uint32_t channel_mbs;   /* MB/s of each; >= 1 */
    uint32_t link_mbs;      /* MB/s to the host; >= 1 */
    uint32_t buffer_pages;  /* write buffer; at least a stripe for each write point */
    uint64_t read_ns, program_ns, erase_ns;
    uint64_t command_ns; /* of each request: firmware, interrupt */
    bool fifo;           /* reads wait for all that is queued on their die */
    bool no_plp;         /* a flush waits for the buffer to drain */
};

struct ssd_timing_stats {
    uint64_t reads, writes; /* pages */
    uint64_t die_busy_ns;   /* summed over dies */
    uint64_t gc_ns;         /* of that: for GC, erases included */
    uint64_t stalled_ns;    /* writes waited for the buffer */
    uint64_t read_wait_ns;  /* reads waited for their die */
    uint64_t backlog_ns;    /* GC work not done yet, now */
    uint64_t last_ns;       /* latest completion */
};

struct ssd_timing;
/* `unit_pages`: the superblock, or zone, of the drive. EOPTION, ENOMEM. */
CH_NODISCARD int ssd_timing_create(const struct ssd_timing_config *cfg, uint32_t unit_pages,
                                   struct ssd_timing **out);
void ssd_timing_destroy(struct ssd_timing *t);

/* For ssd_observe() or ssd_zns_observe(); `arg` is the struct ssd_timing. */
ssd_observer ssd_timing_observe;

/* A write of `pages` submitted at `now`: when it completes. To be called before the drive model is told
 * of the same pages (ssd_write_to(), ssd_zns_write()), with at most program_pages at a time: their programs
 * then start no earlier than the buffer took them. */
uint64_t ssd_timing_write(struct ssd_timing *t, uint64_t now, uint32_t pages);
/* A read of one page at a physical place (ssd_place()); UINT32_MAX = no flash is touched. `after` = the
 * place of the page before it in the same request, else UINT32_MAX: neighbours on the flash are read at
 * once. */
uint64_t ssd_timing_read(struct ssd_timing *t, uint64_t now, uint32_t place, uint32_t after);
uint64_t ssd_timing_flush(struct ssd_timing *t, uint64_t now);
uint64_t ssd_timing_discard(struct ssd_timing *t, uint64_t now);

void ssd_timing_stats(const struct ssd_timing *t, struct ssd_timing_stats *out);

/* The timing of the model of that name (ssd_models.c says where its figures are from). EOPTION. */
CH_NODISCARD int ssd_timing_model(const char *name, struct ssd_timing_config *cfg);

#endif
