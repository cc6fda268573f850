/* ssd_zns.h - a model of the zones of a zoned drive (ZNS): write pointers, limits, states.
 *
 * Pure: no data, no I/O, no clock, no threads; callers serialise. There is no mapping and no GC: zone i
 * is an erase unit of its own, so what the host writes is what the flash programs.
 *
 *     EMPTY -> OPEN (explicitly, or implicitly by a write) <-> CLOSED -> FULL -> (reset) EMPTY
 *
 * Of a zone of zone_pages addresses cap_pages can be written; in order only. Open zones are limited
 * (open_max), and so are active ones, open or closed (active_max). A write to a zone that is not open
 * while open_max are implicitly closes the one that was opened implicitly longest ago; when all are open
 * explicitly, or active_max are active, it fails. What goes against the rules fails with EIO and changes
 * nothing.
 */
#ifndef CH_SSD_SSD_ZNS_H
#define CH_SSD_SSD_ZNS_H

#include "ssd/ssd.h"

struct ssd_zns_config {
    uint32_t zones;
    uint32_t zone_pages; /* addresses, <= 2^32 in all */
    uint32_t cap_pages;  /* that can be written; <= zone_pages */
    uint32_t open_max;   /* 0 = no limit */
    uint32_t active_max; /* 0 = no limit; >= open_max */
    uint32_t floor_permille;
};

enum ssd_zone_state {
    SSD_ZONE_EMPTY,
    SSD_ZONE_OPEN,
    SSD_ZONE_CLOSED,
    SSD_ZONE_FULL
};

struct ssd_zone {
    uint32_t written; /* write pointer; a zone that was finished: cap_pages */
    enum ssd_zone_state state;
    bool explicitly; /* opened by ssd_zns_open() */
};

struct ssd_zns_counts {
    uint64_t host_pages, media_bytes, resets;
    uint64_t finished_pages; /* left unwritten by finishing */
    uint32_t open, active;   /* now */
};

struct ssd_zns;
CH_NODISCARD int ssd_zns_create(const struct ssd_zns_config *cfg, struct ssd_zns **out);
void ssd_zns_destroy(struct ssd_zns *z);

/* An append is a write at ssd_zns_report()'s pointer. Pages are counted from the first zone's begin. A write beyond the drive is refused like any other. */
CH_NODISCARD int ssd_zns_write(struct ssd_zns *z, uint64_t page, uint32_t count);
CH_NODISCARD int ssd_zns_reset(struct ssd_zns *z, uint32_t zone);
CH_NODISCARD int ssd_zns_open(struct ssd_zns *z, uint32_t zone);
CH_NODISCARD int ssd_zns_close(struct ssd_zns *z,
                               uint32_t zone); /* an open zone; empty if unwritten */
CH_NODISCARD int ssd_zns_finish(struct ssd_zns *z, uint32_t zone);
void ssd_zns_report(const struct ssd_zns *z, uint32_t zone, struct ssd_zone *out);
void ssd_zns_counts(const struct ssd_zns *z, struct ssd_zns_counts *out);

/* A power cut: open zones are closed, and of a zone that is not full the pages from `written` on are
 * lost. Of a zone that is full, too, unless it was finished. `written` <= its write pointer. */
void ssd_zns_cut(struct ssd_zns *z, uint32_t zone, uint32_t written);

/* Programs and erases, the place counted as pages are above. */
void ssd_zns_observe(struct ssd_zns *z, ssd_observer *fn, void *arg);
bool ssd_zns_check(const struct ssd_zns *z);

/* The zones of a model: everything but `zones`; false, and nothing is set, when the model has none. */
bool ssd_zns_model(const char *name, struct ssd_zns_config *cfg);

#endif
