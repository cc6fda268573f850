/* ssd.h - a model of a flash drive: which pages it programs for what the host writes.
 *
 * Pure: no data, no I/O, no clock, no threads; callers serialise. Page-mapped FTL over superblocks:
 * host writes are appended in arrival order to the open host superblock (with several open ones:
 * round robin in stripes of `stripe_pages`), device GC is greedy (fewest valid pages; fully invalid
 * first), lazy (starts when free superblocks fall to gc_low), and writes to its own open superblock
 * or, if `shared_gc`, to the host's. TRIM unmaps at once. Each of these, and a write buffer, static
 * wear levelling, an SLC cache and placement handles (FDP), is a switch of struct ssd_config; all
 * zero is the plain drive. Memory: about 8 bytes a physical page.
 *
 * Zoned drives are in ssd_zns.h; what the work takes in time is in ssd_timing.h.
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
    uint32_t floor_permille;   /* media bytes beyond page programs, per programmed byte (parity,
                                  metadata, wear levelling where that is not modelled) */
    uint32_t buffer_pages;     /* newest writes held in the drive's memory, where a rewrite replaces
                                  its page unprogrammed; they survive a power cut; 0 = none */
    uint32_t wear_spread;  /* static wear levelling: erases by which superblocks may differ before
                                  the data of the least worn one is moved; 0 = never */
    uint32_t gc_choices;   /* the victim is the best of so many drawn at random; 0 = of all */
    uint32_t gc_burst;     /* GC frees up to so many superblocks more, drawn each time */
    uint32_t slc_permille; /* SLC cache: host writes go to superblocks used at a third of their
                                  pages, kept until they hold this share of the capacity, then folded
                                  into full ones; 0 = none */
    uint32_t handles;      /* FDP: placement handles, each with a reclaim unit (superblock) of its
                                  own; one reclaim group; 0 = no FDP; at most SSD_HANDLES_MAX */
    bool persistent;       /* FDP: handles persistently isolated: GC, too, keeps their data apart;
                                  else initially: GC puts what it moves into one common unit */
};

enum {
    SSD_HANDLES_MAX = 128,
    SSD_EVENTS_MAX = 256, /* events kept; older ones are dropped */
};

struct ssd_counts {       /* in pages of 4 KiB, since creation; monotone */
    uint64_t host_pages;  /* written by the host */
    uint64_t gc_pages;    /* moved by device GC, wear levelling and folding included */
    uint64_t media_bytes; /* programmed, floor included */
    uint64_t host_bytes;
    uint64_t trimmed_pages;
    uint64_t erases;
    uint64_t absorbed_pages;         /* host pages that died in the buffer */
    uint64_t wear_pages;             /* of gc_pages: by wear levelling */
    uint64_t erased_pages;           /* programmed ones that were erased */
    uint64_t erases_min, erases_max; /* of a superblock, now */
    uint64_t mapped_pages;           /* valid now, in the buffer or on flash */
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

/* ---- placement handles; on a drive without them ssd_write_to() is ssd_write() ---- */

/* `handle` beyond the drive's: an event, and it is handle 0. */
void ssd_write_to(struct ssd *s, uint32_t handle, uint64_t lpage, uint64_t count);
/* Pages left in the handle's current reclaim unit (RUAMW); > 0. handle < cfg.handles (asserted). */
uint32_t ssd_handle_room(const struct ssd *s, uint32_t handle);
/* The handle moves to a fresh unit, unless its unit has nothing in it. */
void ssd_handle_update(struct ssd *s, uint32_t handle);

enum ssd_event_kind {
    SSD_EVENT_NOT_FULL,    /* a handle left its unit with `pages` unwritten */
    SSD_EVENT_BAD_HANDLE,  /* a write named no handle */
    SSD_EVENT_REALLOCATED, /* GC moved `pages`, `lpage` the first, of handle (or SSD_MIXED) */
    SSD_EVENT_CHANGED      /* the handle's unit was full: it has a fresh one */
};
struct ssd_event {
    enum ssd_event_kind kind;
    uint32_t handle, pages;
    uint64_t lpage;
};
#define SSD_MIXED UINT32_MAX
/* Takes up to `max` events, oldest first; returns how many. */
unsigned ssd_events(struct ssd *s, struct ssd_event *out, unsigned max);

/* ---- what the flash does, for models of time ---- */

enum ssd_work {
    SSD_HOST_PROGRAM, /* one page */
    SSD_GC_READ,      /* one page */
    SSD_GC_PROGRAM,   /* one page */
    SSD_ERASE         /* the superblock that begins at `page` */
};
/* Called for each step with the physical page, in order, before the call that caused it returns. */
typedef void ssd_observer(void *arg, enum ssd_work work, uint32_t page);
void ssd_observe(struct ssd *s, ssd_observer *fn, void *arg); /* NULL = no more */
/* Physical page of a logical one; UINT32_MAX when it is in the buffer or nowhere. */
uint32_t ssd_place(const struct ssd *s, uint64_t lpage);

/* ---- models ---- */

/* Named models, for sim: URIs ("generic" first; see ssd_models.c), also by letter: A = pm9a3,
 * B = p5520, C = cm7, D = 7450pro, E = 7450max, F = pe8110, G = fdp, H = zns (which as a config is
 * the drive behind its conventional zones; ssd_zns_model() has the rest). EOPTION when unknown;
 * fills all but logical_pages. ssd_model_name(i) lists them, NULL at the end. */
CH_NODISCARD int ssd_model(const char *name, struct ssd_config *cfg);
const char *ssd_model_name(unsigned i);

#endif
