/* ssd.h - a model of a conventional flash drive: which pages it programs for what the host writes.
 *
 * Pure: no data, no I/O, no clock, no threads; callers serialise. Page-mapped FTL over superblocks:
 * host writes are appended in arrival order to the open host superblock (with several open ones:
 * round robin in stripes of `stripe_pages`), device GC is greedy (fewest valid pages; fully invalid
 * first), lazy (starts when free superblocks fall to gc_low), and writes to its own open superblock
 * or, if `shared_gc`, to the host's. TRIM unmaps at once. docs/ARCHITECTURE.md says what is not
 * modelled. Memory: about 8 bytes a physical page.
 */
#ifndef CH_SSD_SSD_H
#define CH_SSD_SSD_H

#include "base/base.h"

struct ssd_config {
    uint64_t logical_pages;    /* capacity in 4 KiB pages; > 0 */
    uint32_t superblock_pages; /* pages per superblock (erase unit); >= 2 */
    uint32_t spare_permille;   /* over-provisioning: physical = logical * (1 + spare/1000), rounded
                                  up to superblocks, plus the reserve that ssd_create() adds */
    uint32_t open_superblocks; /* host streams multiplexed by stripes; >= 1 */
    uint32_t stripe_pages;     /* pages to one open superblock before the next; >= 1 */
    uint32_t gc_low;           /* free superblocks at which GC starts; 0 = 2 */
    bool shared_gc;            /* GC shares the host's write point */
    uint32_t floor_permille;   /* media bytes beyond programs, per host byte (parity, metadata) */
};

struct ssd_counts {       /* in pages of 4 KiB, since creation; monotone */
    uint64_t host_pages;  /* written by the host */
    uint64_t gc_pages;    /* moved by device GC */
    uint64_t media_bytes; /* programmed, floor included */
    uint64_t host_bytes;
    uint64_t trimmed_pages;
    uint64_t erases;
    uint64_t mapped_pages;                                  /* valid now */
    uint64_t physical_pages, free_superblocks, superblocks; /* geometry now */
};

struct ssd;
/* EOPTION for a config that can't work (e.g. spare too small for the open superblocks). */
CH_NODISCARD int ssd_create(const struct ssd_config *cfg, struct ssd **out);
void ssd_destroy(struct ssd *s);
/* lpage + count must lie within the capacity (asserted). */
void ssd_write(struct ssd *s, uint64_t lpage, uint64_t count);
void ssd_discard(struct ssd *s, uint64_t lpage, uint64_t count);
void ssd_counts(const struct ssd *s, struct ssd_counts *out);
size_t ssd_memory_bytes(const struct ssd *s);
bool ssd_check(const struct ssd *s); /* every invariant; for tests */

/* Named models, for sim: URIs ("generic" first; see ssd_models.c), also by letter: A = pm9a3,
 * B = p5520, C = cm7, D = 7450pro, E = 7450max, F = pe8110. EOPTION when
 * unknown; fills all but logical_pages. ssd_model_name(i) lists them, NULL at the end. */
CH_NODISCARD int ssd_model(const char *name, struct ssd_config *cfg);
const char *ssd_model_name(unsigned i);

#endif
