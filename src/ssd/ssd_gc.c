/* ssd_gc.c - superblocks and what moves pages between them: device GC, folding of the SLC cache,
 * static wear levelling. The life of a superblock and the invariants are in ssd.c.
 *
 * GC is lazy: host_point_open() collects only when no more than gc_low superblocks are free, until
 * there is one more (up to gc_burst more). Where survivors go:
 *
 *     shared_gc          the host's write point that is to be opened
 *     persistent (FDP)   the GC unit of the handle that owns the victim
 *     else               the one GC superblock
 *
 * SLC cache: a host write point takes a third of its superblock's pages. Closed ones stand in a ring
 * in order of age; when it is full the oldest is folded: what is valid moves as GC moves it. Greedy GC
 * may be faster and take them first: they hold fewest.
 */
#include <stdlib.h>

#include "ssd/ssd_internal.h"

/* ---- superblocks ---- */

void
sb_erase(struct ssd *s, uint32_t b)
{
    struct superblock *sb = &s->sb[b];

    CH_ASSERT(sb->valid == 0);
    s->erased_pages += sb->programmed;
    sb->state = SB_FREE;
    sb->programmed = 0;
    sb->erases++;
    s->erases_max = sb->erases > s->erases_max ? sb->erases : s->erases_max;
    list_push(s, list_free(s), b);
    s->free_count++;
    s->erases++;
    ssd_observed(s, SSD_ERASE, b * s->cfg.superblock_pages);
}

void
sb_close(struct ssd *s, uint32_t b)
{
    s->sb[b].state = SB_CLOSED;
    if (s->sb[b].valid == 0)
        sb_erase(s, b);
    else
        sb_file_closed(s, b);
}

/* ---- write points ---- */

static void
slc_push(struct ssd *s, uint32_t b)
{
    uint32_t slots = s->slc_superblocks + s->host_points;

    CH_ASSERT(s->slc_count < slots); /* host_point_open() made room */
    s->slc[(s->slc_first + s->slc_count++) % slots] =
        (struct slc_entry){.b = b, .erases = s->sb[b].erases};
}

void
point_filled(struct ssd *s, uint32_t point)
{
    uint32_t b = s->point[point];

    s->point[point] = SSD_NONE;
    if (s->events != NULL && point < s->host_points)
        event_push(s, &(struct ssd_event){.kind = SSD_EVENT_CHANGED, .handle = point});
    if (s->slc != NULL && point < s->host_points)
        slc_push(s, b);
    sb_close(s, b);
}

/* Whose data the superblock of a write point will hold. */
static uint32_t
point_owner(const struct ssd *s, uint32_t point)
{
    if (s->cfg.handles == 0)
        return SSD_MIXED;
    if (point < s->host_points)
        return point;
    return s->cfg.persistent && point < s->host_points + s->gc_points ? point - s->host_points
                                                                      : SSD_MIXED;
}

static uint32_t
most_worn_free(const struct ssd *s)
{
    uint32_t first = s->list[list_free(s)], most = first;

    for (uint32_t b = s->sb[first].next; b != first; b = s->sb[b].next) {
        if (s->sb[b].erases > s->sb[most].erases)
            most = b;
    }
    return most;
}

static void
point_open(struct ssd *s, uint32_t point)
{
    uint32_t b = s->list[list_free(s)];

    CH_ASSERT(b != SSD_NONE); /* F5: see ssd.c */
    if (point == s->host_points + s->gc_points)
        b = most_worn_free(s);
    list_remove(s, list_free(s), b);
    s->free_count--;
    s->sb[b].state = SB_OPEN;
    s->sb[b].opened_at = s->erases;
    s->sb[b].room =
        s->slc != NULL && point < s->host_points ? slc_room(&s->cfg) : s->cfg.superblock_pages;
    s->sb[b].owner = point_owner(s, point);
    s->point[point] = b;
}

/* ---- moving pages ---- */

static uint32_t
victim_greedy(struct ssd *s)
{
    while (s->list[s->lowest] == SSD_NONE) {
        s->lowest++;
        CH_ASSERT(s->lowest < s->cfg.superblock_pages); /* F5: not all are fully valid */
    }
    return s->list[s->lowest];
}

/* The best of gc_choices closed ones; the greedy one when chance finds none with a dead page. */
static uint32_t
victim_sampled(struct ssd *s)
{
    uint32_t best = victim_greedy(s), fewest = s->cfg.superblock_pages, found = 0;

    for (uint32_t i = 0; i < 8 * s->cfg.gc_choices && found < s->cfg.gc_choices; i++) {
        uint32_t b = (uint32_t)ch_prng_below(&s->rng, s->superblocks);

        if (s->sb[b].state != SB_CLOSED)
            continue;
        found++;
        if (s->sb[b].valid < fewest) {
            fewest = s->sb[b].valid;
            best = b;
        }
    }
    return best;
}

/* Moves what is valid in a closed superblock to a write point and erases it. Returns the pages. */
static uint32_t
collect(struct ssd *s, uint32_t victim, uint32_t point)
{
    uint32_t unit = s->cfg.superblock_pages, moved = 0;
    struct superblock *sb = &s->sb[victim];
    struct ssd_event e = {.kind = SSD_EVENT_REALLOCATED, .handle = sb->owner};

    list_remove(s, sb->valid, victim);
    sb->state = SB_VICTIM;
    for (uint32_t i = 0; sb->valid > 0; i++) {
        uint32_t p = victim * unit + i;
        uint32_t l = s->p2l[p];

        if (s->l2p[l] != p)
            continue;
        if (s->point[point] == SSD_NONE)
            point_open(s, point);
        if (moved++ == 0)
            e.lpage = l;
        ssd_observed(s, SSD_GC_READ, p);
        sb->valid--;
        point_program(s, point, l);
    }
    s->gc_pages += moved;
    e.pages = moved;
    if (moved > 0)
        event_push(s, &e);
    sb_erase(s, victim);
    return moved;
}

static uint32_t
gc_point(const struct ssd *s, uint32_t victim, uint32_t host_point)
{
    if (s->cfg.shared_gc)
        return host_point;
    if (s->cfg.persistent && s->sb[victim].owner != SSD_MIXED)
        return s->host_points + s->sb[victim].owner;
    return s->host_points;
}

static void
gc_run(struct ssd *s, uint32_t host_point)
{
    uint32_t goal = s->cfg.gc_low;

    if (s->free_count > goal)
        return;
    if (s->cfg.gc_burst > 0)
        goal += (uint32_t)ch_prng_below(&s->rng, s->cfg.gc_burst + 1);
    while (s->free_count <= goal) {
        uint32_t victim = s->cfg.gc_choices > 0 ? victim_sampled(s) : victim_greedy(s);

        collect(s, victim, gc_point(s, victim, host_point));
    }
}

/* Keeps places free in the ring of the SLC cache: one for each write point. */
static void
slc_fold(struct ssd *s)
{
    while (s->slc_count > s->slc_superblocks) {
        struct slc_entry e = s->slc[s->slc_first];

        s->slc_first = (s->slc_first + 1) % (s->slc_superblocks + s->host_points);
        s->slc_count--;
        if (s->sb[e.b].state == SB_CLOSED && s->sb[e.b].erases == e.erases)
            collect(s, e.b, s->host_points);
    }
}

/* Moves the data of the least worn closed superblock to the most worn free one. One that was filled
 * while the drive erased its superblocks about once is left alone: it is catching up by itself. */
static void
wear_level(struct ssd *s)
{
    uint32_t least = SSD_NONE;

    for (uint32_t b = 0; b < s->superblocks; b++) {
        const struct superblock *sb = &s->sb[b];

        if (sb->state == SB_CLOSED && s->erases - sb->opened_at > s->superblocks &&
            (least == SSD_NONE || sb->erases < s->sb[least].erases))
            least = b;
    }
    if (least != SSD_NONE && s->erases_max - s->sb[least].erases > s->cfg.wear_spread)
        s->wear_pages += collect(s, least, s->host_points + s->gc_points);
}

void
host_point_open(struct ssd *s, uint32_t point)
{
    if (s->slc != NULL)
        slc_fold(s);
    gc_run(s, point);
    if (s->cfg.wear_spread > 0)
        wear_level(s);
    if (s->point[point] == SSD_NONE) /* shared GC may have opened it */
        point_open(s, point);
}
