/* ssd_internal.h - the drive model's state, shared by ssd.c (host side), ssd_gc.c (superblocks and
 * what moves pages) and ssd_check.c. The invariants are in ssd.c. */
#ifndef CH_SSD_SSD_INTERNAL_H
#define CH_SSD_SSD_INTERNAL_H

#include "base/prng.h"
#include "ssd/ssd.h"

#define SSD_NONE UINT32_MAX

enum sb_state {
    SB_FREE,
    SB_OPEN,
    SB_CLOSED,
    SB_VICTIM
};

struct superblock {
    uint32_t valid;      /* pages that are mapped */
    uint32_t programmed; /* pages written since the erase; the next one to program */
    uint32_t next, prev; /* ring of its list */
    uint32_t state;      /* enum sb_state */
    uint32_t room;       /* pages that it takes, once open */
    uint32_t owner;      /* placement handle whose data it holds, SSD_MIXED */
    uint32_t erases;
    uint64_t opened_at; /* erases of the drive at the time */
};

struct buffered {    /* a page in the write buffer */
    uint32_t lpage;  /* SSD_NONE: discarded meanwhile */
    uint32_t handle; /* write point it goes to with placement handles */
};

enum {
    SLC_SHARE = 3, /* bits a cell: a superblock in SLC mode holds a third */
};

struct slc_entry { /* a closed superblock of the SLC cache, while its erase count is the same */
    uint32_t b, erases;
};

struct ssd {
    struct ssd_config cfg; /* gc_low resolved */
    uint32_t superblocks;
    uint32_t free_count;
    uint32_t *l2p;
    uint32_t *p2l;
    struct superblock *sb;
    uint32_t *list;  /* [unit + 2] any member of each ring, its oldest; SSD_NONE = empty */
    uint32_t lowest; /* F4 */
    /* write points: host's [host_points], GC's [gc_points], wear levelling's; SSD_NONE = none open */
    uint32_t *point;
    uint32_t host_points, gc_points;
    uint32_t stream; /* host write point in turn */
    uint32_t stripe_left;
    struct buffered *buffer; /* ring of cfg.buffer_pages */
    uint32_t buffer_first, buffer_count;
    struct slc_entry *slc; /* ring of slc_superblocks + host_points */
    uint32_t slc_superblocks, slc_first, slc_count;
    struct ssd_event *events; /* ring of SSD_EVENTS_MAX; NULL without handles */
    uint32_t event_first, event_count;
    ssd_observer *observer;
    void *observer_arg;
    struct ch_prng rng;
    uint32_t erases_max;
    size_t memory_bytes;
    uint64_t host_pages, host_programs, gc_pages, trimmed_pages, mapped_pages, erases;
    uint64_t absorbed_pages, wear_pages, erased_pages;
};

/* l2p of a page in slot i of the buffer; below all of them are physical pages. */
static inline uint32_t
buffered_place(uint32_t slot)
{
    return SSD_NONE - 1 - slot;
}

/* Pages that a superblock takes from the host in SLC mode. */
static inline uint32_t
slc_room(const struct ssd_config *cfg)
{
    return cfg->superblock_pages < SLC_SHARE ? 1 : cfg->superblock_pages / SLC_SHARE;
}

static inline bool
place_is_buffered(const struct ssd *s, uint32_t place)
{
    return place != SSD_NONE && place >= SSD_NONE - s->cfg.buffer_pages;
}

static inline uint32_t
list_free(const struct ssd *s)
{
    return s->cfg.superblock_pages + 1;
}

static inline void
ssd_observed(const struct ssd *s, enum ssd_work work, uint32_t page)
{
    if (CH_UNLIKELY(s->observer != NULL))
        s->observer(s->observer_arg, work, page);
}

/* ---- superblocks (ssd_gc.c); what each page written runs through is inline ---- */

/* The superblock is in no list and has no valid page. */
void sb_erase(struct ssd *s, uint32_t b);
/* Ends the filling of an open superblock. */
void sb_close(struct ssd *s, uint32_t b);
/* The write point's superblock has taken what it takes. */
void point_filled(struct ssd *s, uint32_t point);
/* Opens a host write point, after making room if the drive is low on free superblocks. */
void host_point_open(struct ssd *s, uint32_t point);
void event_push(struct ssd *s, const struct ssd_event *e);

static inline void
list_push(struct ssd *s, uint32_t which, uint32_t b)
{
    uint32_t first = s->list[which];

    if (first == SSD_NONE) {
        s->list[which] = b;
        s->sb[b].next = b;
        s->sb[b].prev = b;
        return;
    }
    s->sb[b].next = first;
    s->sb[b].prev = s->sb[first].prev;
    s->sb[s->sb[first].prev].next = b;
    s->sb[first].prev = b;
}

static inline void
list_remove(struct ssd *s, uint32_t which, uint32_t b)
{
    if (s->sb[b].next == b) {
        s->list[which] = SSD_NONE;
        return;
    }
    if (s->list[which] == b)
        s->list[which] = s->sb[b].next;
    s->sb[s->sb[b].next].prev = s->sb[b].prev;
    s->sb[s->sb[b].prev].next = s->sb[b].next;
}

static inline void
sb_file_closed(struct ssd *s, uint32_t b)
{
    list_push(s, s->sb[b].valid, b);
    if (s->sb[b].valid < s->lowest)
        s->lowest = s->sb[b].valid;
}

/* One valid page of superblock b is valid no more. */
static inline void
sb_page_died(struct ssd *s, uint32_t b)
{
    struct superblock *sb = &s->sb[b];

    if (sb->state != SB_CLOSED) {
        sb->valid--;
        return;
    }
    list_remove(s, sb->valid, b);
    sb->valid--;
    if (sb->valid == 0)
        sb_erase(s, b);
    else
        sb_file_closed(s, b);
}

/* Programs the next page of an open write point with logical page l. */
static inline void
point_program(struct ssd *s, uint32_t point, uint32_t l)
{
    uint32_t b = s->point[point];
    struct superblock *sb = &s->sb[b];
    uint32_t p = b * s->cfg.superblock_pages + sb->programmed;

    s->l2p[l] = p;
    s->p2l[p] = l;
    sb->programmed++;
    sb->valid++;
    ssd_observed(s, point < s->host_points ? SSD_HOST_PROGRAM : SSD_GC_PROGRAM, p);
    if (sb->programmed == sb->room)
        point_filled(s, point);
}

#endif
