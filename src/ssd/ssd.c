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
 * empty, so finding the greedy victim is a short upward scan that overwrites pay for. ssd_gc.c has
 * all that concerns whole superblocks.
 *
 * Write buffer: a ring in order of arrival. A page in it has no place on the flash: its l2p entry
 * names its slot, in the numbers just below NONE, which no physical page has. Writing it again is
 * absorbed and leaves it where it stands; the oldest is programmed when a new page needs its slot.
 *
 * Placement handles: write point h is handle h's reclaim unit. It closes when full, or part-filled
 * by an update; what it did not take is dead until it is erased.
 *
 * Device GC is lazy. It runs only when a write point needs a fresh superblock and no more than
 * gc_low are free, and collects until there is one more. A closed superblock whose last valid page
 * dies is free at once: what a drive would erase first and for nothing.
 *
 * Why it can't run out: ssd_create() adds to the spare space gc_low superblocks (and gc_burst, and
 * the SLC cache's) and one for each write point. Then, whenever GC runs, the closed superblocks alone
 * have more room than the drive has logical pages, so one of them has room without a valid page (F5),
 * each collection gains at least that, and it needs at most one fresh superblock for the one that it
 * returns. gc_low >= 1 is that one. What is folded or levelled likewise takes one and returns one.
 *
 * Invariants (ssd_check() verifies all of them):
 *   F1  l2p[l] = p  =>  p2l[p] = l, and p lies in the programmed part of a superblock not free; or p
 *       names a slot of the buffer that holds l.
 *   F2  valid[b] = number of l with l2p[l] in b; their sum + pages in the buffer = mapped_pages.
 *   F3  every superblock is either in the list that its state and valid count name, or open.
 *   F4  no closed superblock has valid = 0; no list below `lowest` has a member.
 *   F5  closed superblocks x unit > logical pages whenever free <= gc_low + gc_burst.
 *   F6  programs since the start = host_programs + gc_pages = pages on flash + erased_pages;
 *       host_pages = host_programs + absorbed_pages + pages in the buffer.
 *
 * Locking: none, callers serialise. Crash: memory only; a drive keeps its FTL and its buffer through
 * a power cut.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "ssd/ssd_internal.h"

/* ---- events ---- */

void
event_push(struct ssd *s, const struct ssd_event *e)
{
    if (s->events == NULL)
        return;
    if (s->event_count == SSD_EVENTS_MAX) {
        s->event_first = (s->event_first + 1) % SSD_EVENTS_MAX;
        s->event_count--;
    }
    s->events[(s->event_first + s->event_count++) % SSD_EVENTS_MAX] = *e;
}

unsigned
ssd_events(struct ssd *s, struct ssd_event *out, unsigned max)
{
    unsigned n = 0;

    for (; n < max && s->event_count > 0; n++) {
        out[n] = s->events[s->event_first];
        s->event_first = (s->event_first + 1) % SSD_EVENTS_MAX;
        s->event_count--;
    }
    return n;
}

/* ---- host writes ---- */

/* The host write point in turn; the point of `handle` on a drive with handles. */
static uint32_t
host_point(struct ssd *s, uint32_t handle)
{
    uint32_t point = s->cfg.handles > 0 ? handle : s->stream;

    if (s->point[point] == SSD_NONE)
        host_point_open(s, point);
    return point;
}

/* Page l's place, if it has one on the flash, is valid no more. */
static void
place_died(struct ssd *s, uint32_t l)
{
    uint32_t old = s->l2p[l];

    if (old == SSD_NONE)
        s->mapped_pages++;
    else
        sb_page_died(s, old / s->cfg.superblock_pages);
}

static void
host_programmed(struct ssd *s)
{
    s->host_programs++;
    if (--s->stripe_left == 0) {
        s->stripe_left = s->cfg.stripe_pages;
        s->stream = s->stream + 1 < s->cfg.open_superblocks ? s->stream + 1 : 0;
    }
}

static void
host_write_page(struct ssd *s, uint32_t handle, uint32_t l)
{
    uint32_t point = host_point(s, handle); /* before the old place is looked up: GC may move it */

    place_died(s, l);
    point_program(s, point, l);
    s->host_pages++;
    host_programmed(s);
}

static void
buffer_program_oldest(struct ssd *s)
{
    struct buffered e = s->buffer[s->buffer_first];

    s->buffer_first = (s->buffer_first + 1) % s->cfg.buffer_pages;
    s->buffer_count--;
    if (e.lpage == SSD_NONE)
        return;
    point_program(s, host_point(s, e.handle), e.lpage);
    host_programmed(s);
}

static void
buffer_write_page(struct ssd *s, uint32_t handle, uint32_t l)
{
    uint32_t slot;

    s->host_pages++;
    if (place_is_buffered(s, s->l2p[l])) {
        s->buffer[SSD_NONE - 1 - s->l2p[l]].handle = handle;
        s->absorbed_pages++;
        return;
    }
    if (s->buffer_count == s->cfg.buffer_pages)
        buffer_program_oldest(s);
    place_died(s, l);
    slot = (s->buffer_first + s->buffer_count++) % s->cfg.buffer_pages;
    s->buffer[slot] = (struct buffered){.lpage = l, .handle = handle};
    s->l2p[l] = buffered_place(slot);
}

void
ssd_write_to(struct ssd *s, uint32_t handle, uint64_t lpage, uint64_t count)
{
    CH_ASSERT(lpage <= s->cfg.logical_pages && count <= s->cfg.logical_pages - lpage);
    if (s->cfg.handles > 0 && handle >= s->cfg.handles) {
        event_push(s, &(struct ssd_event){.kind = SSD_EVENT_BAD_HANDLE, .handle = handle});
        handle = 0;
    }
    if (s->cfg.buffer_pages > 0) {
        for (uint64_t i = 0; i < count; i++)
            buffer_write_page(s, handle, (uint32_t)(lpage + i));
    } else {
        for (uint64_t i = 0; i < count; i++)
            host_write_page(s, handle, (uint32_t)(lpage + i));
    }
}

void
ssd_write(struct ssd *s, uint64_t lpage, uint64_t count)
{
    ssd_write_to(s, 0, lpage, count);
}

void
ssd_discard(struct ssd *s, uint64_t lpage, uint64_t count)
{
    CH_ASSERT(lpage <= s->cfg.logical_pages && count <= s->cfg.logical_pages - lpage);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t p = s->l2p[lpage + i];

        if (p == SSD_NONE)
            continue;
        s->l2p[lpage + i] = SSD_NONE;
        s->mapped_pages--;
        s->trimmed_pages++;
        if (place_is_buffered(s, p)) {
            s->buffer[SSD_NONE - 1 - p].lpage = SSD_NONE;
            s->absorbed_pages++;
        } else {
            sb_page_died(s, p / s->cfg.superblock_pages);
        }
    }
}

/* ---- placement handles ---- */

uint32_t
ssd_handle_room(const struct ssd *s, uint32_t handle)
{
    uint32_t b, room = s->cfg.superblock_pages;

    CH_ASSERT(handle < s->cfg.handles);
    b = s->point[handle];
    return b == SSD_NONE ? room : room - s->sb[b].programmed;
}

void
ssd_handle_update(struct ssd *s, uint32_t handle)
{
    uint32_t b;

    CH_ASSERT(handle < s->cfg.handles);
    while (s->buffer_count > 0) /* what the host wrote before belongs to the old unit */
        buffer_program_oldest(s);
    b = s->point[handle];
    if (b == SSD_NONE || s->sb[b].programmed == 0)
        return;
    event_push(s, &(struct ssd_event){.kind = SSD_EVENT_NOT_FULL,
                                      .handle = handle,
                                      .pages = ssd_handle_room(s, handle)});
    s->point[handle] = SSD_NONE;
    sb_close(s, b);
}

/* ---- reading out ---- */

void
ssd_observe(struct ssd *s, ssd_observer *fn, void *arg)
{
    s->observer = fn;
    s->observer_arg = arg;
}

uint32_t
ssd_place(const struct ssd *s, uint64_t lpage)
{
    CH_ASSERT(lpage < s->cfg.logical_pages);
    return place_is_buffered(s, s->l2p[lpage]) ? SSD_NONE : s->l2p[lpage];
}

void
ssd_counts(const struct ssd *s, struct ssd_counts *out)
{
    memset(out, 0, sizeof(*out));
    out->host_pages = s->host_pages;
    out->gc_pages = s->gc_pages;
    out->host_bytes = s->host_pages * CH_PAGE_BYTES;
    out->media_bytes = s->host_programs + s->gc_pages;
    out->media_bytes = out->media_bytes * CH_PAGE_BYTES +
                       out->media_bytes * CH_PAGE_BYTES / 1000 * s->cfg.floor_permille;
    out->trimmed_pages = s->trimmed_pages;
    out->erases = s->erases;
    out->absorbed_pages = s->absorbed_pages;
    out->wear_pages = s->wear_pages;
    out->erased_pages = s->erased_pages;
    out->erases_max = s->erases_max;
    out->erases_min = UINT32_MAX;
    for (uint32_t b = 0; b < s->superblocks; b++)
        out->erases_min = ch_min_u64(out->erases_min, s->sb[b].erases);
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

static int
config_check(const struct ssd_config *cfg)
{
    if (cfg->logical_pages == 0 || cfg->logical_pages >= SSD_NONE)
        return CH_FAIL(COHORT_EOPTION, "ssd: %" PRIu64 " logical pages; 1 to 2^32 - 2",
                       cfg->logical_pages);
    if (cfg->superblock_pages < 2 || cfg->superblock_pages > (UINT32_C(1) << 30))
        return CH_FAIL(COHORT_EOPTION, "ssd: superblock of %u pages; 2 to 2^30",
                       cfg->superblock_pages);
    if (cfg->open_superblocks == 0 || cfg->stripe_pages == 0)
        return CH_FAIL(COHORT_EOPTION, "ssd: %u open superblocks, stripe of %u pages; at least 1",
                       cfg->open_superblocks, cfg->stripe_pages);
    if (cfg->spare_permille > 100000 || cfg->slc_permille > 100000)
        return CH_FAIL(COHORT_EOPTION, "ssd: spare of %u, cache of %u permille; at most 100000",
                       cfg->spare_permille, cfg->slc_permille);
    if (cfg->handles > SSD_HANDLES_MAX)
        return CH_FAIL(COHORT_EOPTION, "ssd: %u handles; at most %d", cfg->handles,
                       SSD_HANDLES_MAX);
    if (cfg->handles > 0 && (cfg->open_superblocks != 1 || cfg->shared_gc))
        return CH_FAIL(COHORT_EOPTION,
                       "ssd: handles exclude open superblocks beside theirs and a shared GC");
    if (cfg->persistent && (cfg->handles == 0 || cfg->wear_spread > 0))
        return CH_FAIL(COHORT_EOPTION,
                       "ssd: persistent isolation needs handles and excludes wear levelling");
    if (cfg->slc_permille > 0 && (cfg->handles > 0 || cfg->shared_gc))
        return CH_FAIL(COHORT_EOPTION, "ssd: an SLC cache excludes handles and a shared GC");
    return 0;
}

/* Superblocks of the SLC cache; each write point may close one more before one is folded. */
static uint64_t
config_slc(const struct ssd_config *cfg)
{
    uint64_t pages = ch_div_up(cfg->logical_pages * cfg->slc_permille, 1000);

    return ch_div_up(pages, slc_room(cfg));
}

static uint32_t
config_host_points(const struct ssd_config *cfg)
{
    return cfg->handles > 0 ? cfg->handles : cfg->open_superblocks;
}

static uint32_t
config_gc_points(const struct ssd_config *cfg)
{
    return cfg->shared_gc ? 0 : cfg->persistent ? cfg->handles : 1;
}

/* Fills in the defaults and computes the number of superblocks, reserve included. */
static int
config_resolve(struct ssd_config *cfg, uint32_t *superblocks)
{
    uint64_t unit = cfg->superblock_pages;
    uint64_t data, total;
    int rc;

    if (cfg->gc_low == 0)
        cfg->gc_low = 2;
    rc = config_check(cfg);
    if (rc != 0)
        return rc;
    data = ch_div_up(cfg->logical_pages + ch_div_up(cfg->logical_pages * cfg->spare_permille, 1000),
                     unit);
    if (data * unit == cfg->logical_pages) /* F5 needs one page more than the host can map */
        data++;
    total = data + cfg->gc_low + cfg->gc_burst + config_host_points(cfg) + config_gc_points(cfg) +
            (cfg->wear_spread > 0 ? 1 : 0) +
            (cfg->slc_permille > 0 ? config_slc(cfg) + config_host_points(cfg) : 0);
    if (total * unit >= (uint64_t)SSD_NONE - cfg->buffer_pages)
        return CH_FAIL(COHORT_EOPTION,
                       "ssd: %" PRIu64 " physical pages; with the buffer's at most 2^32 - 2",
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
    uint64_t points = (uint64_t)s->host_points + s->gc_points + 1;
    bool ok;

    s->l2p = counted_alloc(s, s->cfg.logical_pages, sizeof(*s->l2p));
    s->p2l = counted_alloc(s, physical, sizeof(*s->p2l));
    s->sb = counted_alloc(s, s->superblocks, sizeof(*s->sb));
    s->list = counted_alloc(s, (uint64_t)s->cfg.superblock_pages + 2, sizeof(*s->list));
    s->point = counted_alloc(s, points, sizeof(*s->point));
    ok = s->l2p != NULL && s->p2l != NULL && s->sb != NULL && s->list != NULL && s->point != NULL;
    if (s->cfg.buffer_pages > 0) {
        s->buffer = counted_alloc(s, s->cfg.buffer_pages, sizeof(*s->buffer));
        ok = ok && s->buffer != NULL;
    }
    if (s->cfg.slc_permille > 0) {
        s->slc_superblocks = (uint32_t)config_slc(&s->cfg); /* fewer than all: config_resolve() */
        s->slc = counted_alloc(s, (uint64_t)s->slc_superblocks + s->host_points, sizeof(*s->slc));
        ok = ok && s->slc != NULL;
    }
    if (s->cfg.handles > 0) {
        s->events = counted_alloc(s, SSD_EVENTS_MAX, sizeof(*s->events));
        ok = ok && s->events != NULL;
    }
    if (!ok)
        return CH_FAIL(COHORT_ENOMEM, "ssd: tables of %" PRIu64 " pages", physical);
    return 0;
}

static void
ssd_begin_empty(struct ssd *s)
{
    memset(s->l2p, 0xff, s->cfg.logical_pages * sizeof(*s->l2p));
    for (uint32_t v = 0; v <= list_free(s); v++)
        s->list[v] = SSD_NONE;
    for (uint32_t i = 0; i <= s->host_points + s->gc_points; i++)
        s->point[i] = SSD_NONE;
    for (uint32_t b = 0; b < s->superblocks; b++)
        list_push(s, list_free(s), b);
    s->free_count = s->superblocks;
    s->lowest = s->cfg.superblock_pages;
    s->stripe_left = s->cfg.stripe_pages;
    ch_prng_init(&s->rng, s->superblocks); /* what it draws is part of the model, not of a run */
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
    s->host_points = config_host_points(&s->cfg);
    s->gc_points = config_gc_points(&s->cfg);
    rc = ssd_alloc(s);
    if (rc != 0)
        goto out;
    ssd_begin_empty(s);
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
    free(s->buffer);
    free(s->slc);
    free(s->events);
    free(s);
}
