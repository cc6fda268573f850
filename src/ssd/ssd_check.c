/* ssd_check.c - the invariants of ssd.c, verified from scratch. */
#include <stdlib.h>

#include "ssd/ssd_internal.h"

/* F1 and F2; counts[b] is zeroed memory for the valid pages of b. */
static bool
check_mapping(const struct ssd *s, uint32_t *counts)
{
    uint64_t mapped = 0;

    for (uint64_t l = 0; l < s->cfg.logical_pages; l++) {
        uint32_t p = s->l2p[l], b;

        if (p == SSD_NONE)
            continue;
        mapped++;
        if (place_is_buffered(s, p)) {
            if (s->buffer[SSD_NONE - 1 - p].lpage != l)
                return false;
            continue;
        }
        b = p / s->cfg.superblock_pages;
        if (b >= s->superblocks || s->p2l[p] != l || s->sb[b].state == SB_FREE ||
            p % s->cfg.superblock_pages >= s->sb[b].programmed)
            return false;
        counts[b]++;
    }
    for (uint32_t b = 0; b < s->superblocks; b++) {
        if (counts[b] != s->sb[b].valid || s->sb[b].valid > s->sb[b].programmed)
            return false;
    }
    return mapped == s->mapped_pages;
}

static bool
check_member(const struct ssd *s, uint32_t which, const struct superblock *sb)
{
    if (which == list_free(s))
        return sb->state == SB_FREE && sb->programmed == 0 && sb->valid == 0;
    /* without handles nothing but room ends the filling */
    return sb->state == SB_CLOSED && sb->valid == which && sb->programmed <= sb->room &&
           (s->cfg.handles > 0 || sb->programmed == sb->room);
}

/* Members of a list, or SSD_NONE if one of them does not belong there. */
static uint32_t
check_list(const struct ssd *s, uint32_t which)
{
    uint32_t first = s->list[which], b = first, n = 0;

    if (first == SSD_NONE)
        return 0;
    do {
        const struct superblock *sb = &s->sb[b];

        if (!check_member(s, which, sb) || s->sb[sb->next].prev != b || ++n > s->superblocks)
            return SSD_NONE;
        b = sb->next;
    } while (b != first);
    return n;
}

/* F3 to F5: lists and write points together hold each superblock once. */
static bool
check_lists(const struct ssd *s)
{
    uint64_t closed = 0, open = 0;
    uint32_t n = 0;

    for (uint32_t v = 0; v <= s->cfg.superblock_pages; v++) {
        n = check_list(s, v);
        if (n == SSD_NONE || (n > 0 && (v == 0 || v < s->lowest)))
            return false;
        closed += n;
    }
    for (uint32_t i = 0; i <= s->host_points + s->gc_points; i++) {
        uint32_t b = s->point[i];

        if (b == SSD_NONE)
            continue;
        if (b >= s->superblocks || s->sb[b].state != SB_OPEN ||
            s->sb[b].programmed >= s->sb[b].room)
            return false;
        open++;
    }
    n = check_list(s, list_free(s));
    if (n != s->free_count || n < s->cfg.gc_low || n + closed + open != s->superblocks)
        return false;
    return n > s->cfg.gc_low + s->cfg.gc_burst ||
           closed * s->cfg.superblock_pages > s->cfg.logical_pages;
}

/* F6: what was programmed and erased again plus what is programmed now. */
static bool
check_programs(const struct ssd *s)
{
    uint64_t programmed = s->erased_pages, buffered = 0;

    for (uint32_t b = 0; b < s->superblocks; b++)
        programmed += s->sb[b].programmed;
    for (uint32_t i = 0; i < s->buffer_count; i++)
        buffered += s->buffer[(s->buffer_first + i) % s->cfg.buffer_pages].lpage != SSD_NONE;
    return programmed == s->host_programs + s->gc_pages &&
           s->host_pages == s->host_programs + s->absorbed_pages + buffered;
}

bool
ssd_check(const struct ssd *s)
{
    uint32_t *counts = calloc(s->superblocks, sizeof(*counts));
    bool ok = counts != NULL && check_mapping(s, counts) && check_lists(s) && check_programs(s);

    free(counts);
    return ok;
}
