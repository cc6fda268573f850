/* ssd.c - a page-mapped flash translation layer that counts and stores nothing.
 *
 * The drive's flash is `superblocks` erase units of `unit` pages. A superblock is
 *
 *     free -> open (a write point fills it front to back) -> closed -> [victim ->] free
 *
 * Two arrays hold the mapping, 4 bytes a page each: l2p[logical] = physical page, or NONE, and
 * p2l[physical] = the logical page last programmed there. A physical page p is valid exactly when
 * l2p[p2l[p]] == p, so that overwriting needs no second write to the old place's entry: stale p2l
 * entries are told by disagreeing. Closed superblocks hang in circular lists by their valid count
 * (`list[v]`), free ones in `list[unit + 1]`; `lowest` bounds from below the first list that is not
 * empty, so finding the greedy victim is a short upward scan that overwrites pay for.
 *
 * Device GC is lazy. It runs only when a write point needs a fresh superblock and no more than
 * gc_low are free, and collects until there is one more. A closed superblock whose last valid page
 * dies is free at once: what a drive would erase first and for nothing.
 *
 * Why it can't run out: ssd_create() adds to the spare space gc_low superblocks and one for each
 * write point. Then, whenever GC runs, the closed superblocks alone hold more pages than the drive
 * has logical ones, so one of them has a dead page (F5), each collection gains at least that page,
 * and it needs at most one fresh superblock for the one that it returns. gc_low >= 1 is that one.
 *
 * Invariants (ssd_check() verifies all of them):
 *   F1  l2p[l] = p  =>  p2l[p] = l, and p lies in the programmed part of a superblock not free.
 *   F2  valid[b] = number of l with l2p[l] in b; their sum = mapped_pages.
 *   F3  every superblock is either in the list that its state and valid count name, or open.
 *   F4  no closed superblock has valid = 0; no list below `lowest` has a member.
 *   F5  closed superblocks x unit > logical pages whenever free <= gc_low.
 *   F6  programs since the start = host_pages + gc_pages.
 *
 * Locking: none, callers serialise. Crash: memory only; a drive keeps its FTL through a power cut.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "ssd/ssd.h"

#define NONE UINT32_MAX

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
};

struct ssd {
    struct ssd_config cfg; /* gc_low resolved */
    uint32_t superblocks;
    uint32_t free_count;
    uint32_t *l2p;
    uint32_t *p2l;
    struct superblock *sb;
    uint32_t *list;  /* [unit + 2] any member of each ring, its oldest; NONE = empty */
    uint32_t lowest; /* F4 */
    uint32_t *point; /* [open_superblocks] host write points, then the GC's; NONE = none open */
    uint32_t stream; /* host write point in turn */
    uint32_t stripe_left;
    size_t memory_bytes;
    uint64_t host_pages, gc_pages, trimmed_pages, mapped_pages, erases;
};

static uint32_t
list_free(const struct ssd *s)
{
    return s->cfg.superblock_pages + 1;
}

static void
list_push(struct ssd *s, uint32_t which, uint32_t b)
{
    uint32_t first = s->list[which];

    if (first == NONE) {
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

static void
list_remove(struct ssd *s, uint32_t which, uint32_t b)
{
    if (s->sb[b].next == b) {
        s->list[which] = NONE;
        return;
    }
    if (s->list[which] == b)
        s->list[which] = s->sb[b].next;
    s->sb[s->sb[b].next].prev = s->sb[b].prev;
    s->sb[s->sb[b].prev].next = s->sb[b].next;
}

static void
sb_file_closed(struct ssd *s, uint32_t b)
{
    list_push(s, s->sb[b].valid, b);
    if (s->sb[b].valid < s->lowest)
        s->lowest = s->sb[b].valid;
}

/* The superblock is in no list. */
static void
sb_erase(struct ssd *s, uint32_t b)
{
    CH_ASSERT(s->sb[b].valid == 0);
    s->sb[b].state = SB_FREE;
    s->sb[b].programmed = 0;
    list_push(s, list_free(s), b);
    s->free_count++;
    s->erases++;
}

static void
sb_close(struct ssd *s, uint32_t b)
{
    s->sb[b].state = SB_CLOSED;
    if (s->sb[b].valid == 0)
        sb_erase(s, b);
    else
        sb_file_closed(s, b);
}

/* One valid page of superblock b is valid no more. */
static void
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

/* Programs the next page of the write point with logical page l. The point is open. */
static void
point_program(struct ssd *s, uint32_t point, uint32_t l)
{
    uint32_t b = s->point[point];
    struct superblock *sb = &s->sb[b];
    uint32_t p = b * s->cfg.superblock_pages + sb->programmed;

    s->l2p[l] = p;
    s->p2l[p] = l;
    sb->programmed++;
    sb->valid++;
    if (sb->programmed == s->cfg.superblock_pages) {
        s->point[point] = NONE;
        sb_close(s, b);
    }
}

static void
point_open(struct ssd *s, uint32_t point)
{
    uint32_t b = s->list[list_free(s)];

    CH_ASSERT(b != NONE); /* F5: see the head comment */
    list_remove(s, list_free(s), b);
    s->free_count--;
    s->sb[b].state = SB_OPEN;
    s->point[point] = b;
}

static uint32_t
gc_victim(struct ssd *s)
{
    while (s->list[s->lowest] == NONE) {
        s->lowest++;
        CH_ASSERT(s->lowest < s->cfg.superblock_pages); /* F5: not all are fully valid */
    }
    return s->list[s->lowest];
}

static void
gc_collect(struct ssd *s, uint32_t point)
{
    uint32_t unit = s->cfg.superblock_pages;
    uint32_t victim = gc_victim(s);
    struct superblock *sb = &s->sb[victim];

    list_remove(s, sb->valid, victim);
    sb->state = SB_VICTIM;
    for (uint32_t i = 0; sb->valid > 0; i++) {
        uint32_t p = victim * unit + i;
        uint32_t l = s->p2l[p];

        if (s->l2p[l] != p)
            continue;
        if (s->point[point] == NONE)
            point_open(s, point);
        sb->valid--;
        point_program(s, point, l);
        s->gc_pages++;
    }
    sb_erase(s, victim);
}

/* Opens the host write point, after making room if the drive is low on free superblocks. */
static void
host_point_open(struct ssd *s, uint32_t point)
{
    uint32_t gc_point = s->cfg.shared_gc ? point : s->cfg.open_superblocks;

    while (s->free_count <= s->cfg.gc_low)
        gc_collect(s, gc_point);
    if (s->point[point] == NONE) /* shared GC may have opened it */
        point_open(s, point);
}

static void
host_write_page(struct ssd *s, uint32_t l)
{
    uint32_t old;

    if (s->point[s->stream] == NONE)
        host_point_open(s, s->stream);
    old = s->l2p[l]; /* only now: GC may just have moved it */
    if (old == NONE)
        s->mapped_pages++;
    else
        sb_page_died(s, old / s->cfg.superblock_pages);
    point_program(s, s->stream, l);
    s->host_pages++;
    if (--s->stripe_left == 0) {
        s->stripe_left = s->cfg.stripe_pages;
        s->stream = s->stream + 1 < s->cfg.open_superblocks ? s->stream + 1 : 0;
    }
}

void
ssd_write(struct ssd *s, uint64_t lpage, uint64_t count)
{
    CH_ASSERT(lpage <= s->cfg.logical_pages && count <= s->cfg.logical_pages - lpage);
    for (uint64_t i = 0; i < count; i++)
        host_write_page(s, (uint32_t)(lpage + i));
}

void
ssd_discard(struct ssd *s, uint64_t lpage, uint64_t count)
{
    CH_ASSERT(lpage <= s->cfg.logical_pages && count <= s->cfg.logical_pages - lpage);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t p = s->l2p[lpage + i];

        if (p == NONE)
            continue;
        s->l2p[lpage + i] = NONE;
        s->mapped_pages--;
        s->trimmed_pages++;
        sb_page_died(s, p / s->cfg.superblock_pages);
    }
}

void
ssd_counts(const struct ssd *s, struct ssd_counts *out)
{
    memset(out, 0, sizeof(*out));
    out->host_pages = s->host_pages;
    out->gc_pages = s->gc_pages;
    out->host_bytes = s->host_pages * CH_PAGE_BYTES;
    out->media_bytes = (s->host_pages + s->gc_pages) * CH_PAGE_BYTES +
                       out->host_bytes / 1000 * s->cfg.floor_permille;
    out->trimmed_pages = s->trimmed_pages;
    out->erases = s->erases;
    out->mapped_pages = s->mapped_pages;
    out->physical_pages = (uint64_t)s->superblocks * s->cfg.superblock_pages;
    out->free_superblocks = s->free_count;
    out->superblocks = s->superblocks;
}

size_t
ssd_memory_bytes(const struct ssd *s)
{
    return s->memory_bytes;
}

/* ---- create, destroy ---- */

/* Fills in the defaults and computes the number of superblocks, reserve included. */
static int
config_resolve(struct ssd_config *cfg, uint32_t *superblocks)
{
    uint64_t unit = cfg->superblock_pages;
    uint64_t data, total;

    if (cfg->gc_low == 0)
        cfg->gc_low = 2;
    if (cfg->logical_pages == 0 || cfg->logical_pages >= NONE)
        return CH_FAIL(COHORT_EOPTION, "ssd: %" PRIu64 " logical pages; 1 to 2^32 - 2",
                       cfg->logical_pages);
    if (unit < 2 || unit > (UINT32_C(1) << 30))
        return CH_FAIL(COHORT_EOPTION, "ssd: superblock of %" PRIu64 " pages; 2 to 2^30", unit);
    if (cfg->open_superblocks == 0 || cfg->stripe_pages == 0)
        return CH_FAIL(COHORT_EOPTION, "ssd: %u open superblocks, stripe of %u pages; at least 1",
                       cfg->open_superblocks, cfg->stripe_pages);
    if (cfg->spare_permille > 100000)
        return CH_FAIL(COHORT_EOPTION, "ssd: spare of %u permille; at most 100000",
                       cfg->spare_permille);
    data = ch_div_up(cfg->logical_pages + ch_div_up(cfg->logical_pages * cfg->spare_permille, 1000),
                     unit);
    if (data * unit == cfg->logical_pages) /* F5 needs one page more than the host can map */
        data++;
    total = data + cfg->gc_low + cfg->open_superblocks + (cfg->shared_gc ? 0 : 1);
    if (total * unit >= NONE)
        return CH_FAIL(COHORT_EOPTION, "ssd: %" PRIu64 " physical pages; at most 2^32 - 2",
                       total * unit);
    *superblocks = (uint32_t)total;
    return 0;
}

static void *
counted_alloc(struct ssd *s, uint64_t count, size_t bytes)
{
    void *p = calloc(count, bytes);

    if (p != NULL)
        s->memory_bytes += count * bytes;
    return p;
}

static int
ssd_alloc(struct ssd *s)
{
    uint64_t physical = (uint64_t)s->superblocks * s->cfg.superblock_pages;
    uint64_t points = (uint64_t)s->cfg.open_superblocks + 1;

    s->l2p = counted_alloc(s, s->cfg.logical_pages, sizeof(*s->l2p));
    s->p2l = counted_alloc(s, physical, sizeof(*s->p2l));
    s->sb = counted_alloc(s, s->superblocks, sizeof(*s->sb));
    s->list = counted_alloc(s, (uint64_t)s->cfg.superblock_pages + 2, sizeof(*s->list));
    s->point = counted_alloc(s, points, sizeof(*s->point));
    if (s->l2p == NULL || s->p2l == NULL || s->sb == NULL || s->list == NULL || s->point == NULL)
        return CH_FAIL(COHORT_ENOMEM, "ssd: tables of %" PRIu64 " pages", physical);
    return 0;
}

int
ssd_create(const struct ssd_config *cfg, struct ssd **out)
{
    struct ssd *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "ssd: handle");
    s->memory_bytes = sizeof(*s);
    s->cfg = *cfg;
    rc = config_resolve(&s->cfg, &s->superblocks);
    if (rc != 0)
        goto out;
    rc = ssd_alloc(s);
    if (rc != 0)
        goto out;
    memset(s->l2p, 0xff, s->cfg.logical_pages * sizeof(*s->l2p));
    for (uint32_t v = 0; v <= list_free(s); v++)
        s->list[v] = NONE;
    for (uint32_t i = 0; i <= s->cfg.open_superblocks; i++)
        s->point[i] = NONE;
    for (uint32_t b = 0; b < s->superblocks; b++)
        list_push(s, list_free(s), b);
    s->free_count = s->superblocks;
    s->lowest = s->cfg.superblock_pages;
    s->stripe_left = s->cfg.stripe_pages;
    *out = s;
    s = NULL;
out:
    ssd_destroy(s);
    return rc;
}

void
ssd_destroy(struct ssd *s)
{
    if (s == NULL)
        return;
    free(s->l2p);
    free(s->p2l);
    free(s->sb);
    free(s->list);
    free(s->point);
    free(s);
}

/* ---- check ---- */

/* F1 and F2; counts[b] is zeroed memory for the valid pages of b. */
static bool
check_mapping(const struct ssd *s, uint32_t *counts)
{
    uint64_t mapped = 0;

    for (uint64_t l = 0; l < s->cfg.logical_pages; l++) {
        uint32_t p = s->l2p[l], b;

        if (p == NONE)
            continue;
        b = p / s->cfg.superblock_pages;
        if (b >= s->superblocks || s->p2l[p] != l || s->sb[b].state == SB_FREE ||
            p % s->cfg.superblock_pages >= s->sb[b].programmed)
            return false;
        counts[b]++;
        mapped++;
    }
    for (uint32_t b = 0; b < s->superblocks; b++) {
        if (counts[b] != s->sb[b].valid || s->sb[b].valid > s->sb[b].programmed)
            return false;
    }
    return mapped == s->mapped_pages;
}

/* Members of a list, or NONE if one of them does not belong there. */
static uint32_t
check_list(const struct ssd *s, uint32_t which)
{
    uint32_t first = s->list[which], b = first, n = 0;

    if (first == NONE)
        return 0;
    do {
        const struct superblock *sb = &s->sb[b];
        bool fits = which == list_free(s)
                        ? sb->state == SB_FREE && sb->programmed == 0 && sb->valid == 0
                        : sb->state == SB_CLOSED && sb->valid == which &&
                              sb->programmed == s->cfg.superblock_pages;

        if (!fits || s->sb[sb->next].prev != b || ++n > s->superblocks)
            return NONE;
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
        if (n == NONE || (n > 0 && (v == 0 || v < s->lowest)))
            return false;
        closed += n;
    }
    for (uint32_t i = 0; i <= s->cfg.open_superblocks; i++) {
        uint32_t b = s->point[i];

        if (b == NONE)
            continue;
        if (b >= s->superblocks || s->sb[b].state != SB_OPEN ||
            s->sb[b].programmed >= s->cfg.superblock_pages)
            return false;
        open++;
    }
    n = check_list(s, list_free(s));
    if (n != s->free_count || n < s->cfg.gc_low || n + closed + open != s->superblocks)
        return false;
    return n > s->cfg.gc_low || closed * s->cfg.superblock_pages > s->cfg.logical_pages;
}

/* F6: what was programmed and erased again plus what is programmed now. */
static bool
check_programs(const struct ssd *s)
{
    uint64_t programmed = s->erases * s->cfg.superblock_pages;

    for (uint32_t b = 0; b < s->superblocks; b++)
        programmed += s->sb[b].programmed;
    return programmed == s->host_pages + s->gc_pages;
}

bool
ssd_check(const struct ssd *s)
{
    uint32_t *counts = calloc(s->superblocks, sizeof(*counts));
    bool ok = counts != NULL && check_mapping(s, counts) && check_lists(s) && check_programs(s);

    free(counts);
    return ok;
}
