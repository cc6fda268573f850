/* ssd_timing.c - dies, channels, the host link and the write buffer as servers with a clock.
 *
 * A die is two numbers: `busy`, when all programs queued on it are done, and `backlog`, ns of GC work
 * that is not queued yet. Three things turn backlog into queued work:
 *
 *     pay     a host stripe for this die brings its share: backlog / host stripes that the superblock
 *             still has for this die
 *     idle    between `busy` and the time of the next request, in whole operations
 *     limit   backlog beyond what BACKLOG_SUPERBLOCKS superblocks take to program is queued at once
 *
 * Reads: what runs on a die at `now` is an operation of program_ns, of which (busy - now) modulo
 * program_ns is left; a read waits for that and for the reads before it, and pushes what is queued back
 * by read_ns / planes. With `fifo` it waits for all of it.
 *
 * Channels and the link are servers that work off what they are given from the time of submission on:
 * a request is done no earlier than its own transfer after the die, and no earlier than what was waiting
 * there when it came.
 *
 * A client that does several requests one after the other submits the later ones before others' earlier
 * ones are heard of. Who comes with a time before that of the latest request a server has seen is served
 * as if it came at that time, and its waiting is counted from its own: it waits for the queue, and not
 * for the difference of clocks.
 *
 * The buffer is a count of pages. It falls when a stripe has been programmed: a heap of (time, pages).
 * Pages of stripes that are not full yet hold their room without an end; when there is nothing else to
 * wait for, a write is taken regardless.
 *
 * Invariants (ssd_timing_write() asserts T1):
 *   T1  held = pages in stripes not full + pages in the heap.
 *   T2  completion >= submission + command_ns.
 *   T3  sum of what dies were busy = programs x program_ns + reads x read_ns / planes + erases x
 *       erase_ns, all but the backlog.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "ssd/ssd_timing.h"

enum {
    FLASH_PAGES = 4,         /* 16 KiB: what one read of a die brings */
    BACKLOG_SUPERBLOCKS = 4, /* GC work that may be put off, in superblocks' time */
};

struct server {    /* a channel, the link */
    uint64_t seen; /* latest time of submission */
    uint64_t work; /* ns of it left at that time */
};

struct die {
    uint64_t seen;      /* latest time of submission of a read */
    uint64_t busy;      /* queued programs are done */
    uint64_t read_busy; /* the reads are */
    uint64_t backlog;   /* ns */
    uint64_t erase;     /* pages erased that make no whole block yet */
};

struct drain { /* a stripe leaves the buffer */
    uint64_t at;
    uint32_t pages;
};

struct ssd_timing {
    struct ssd_timing_config cfg;
    uint32_t unit_pages;
    struct die *dies;
    struct server *channel; /* [channels] */
    struct server link;
    uint64_t now; /* of the write whose pages the observer hears of */
    uint64_t backlog_max;
    uint32_t held;                 /* T1 */
    uint32_t filling, filling_max; /* in stripes not full */
    struct drain *heap;
    uint32_t heap_count, heap_max;
    uint32_t gc_read_last; /* place of the last page that GC read */
    struct ssd_timing_stats stats;
};

/* ---- the buffer's heap ---- */

static struct drain
heap_pop(struct ssd_timing *t)
{
    struct drain top = t->heap[0], last = t->heap[--t->heap_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= t->heap_count)
            break;
        if (child + 1 < t->heap_count && t->heap[child + 1].at < t->heap[child].at)
            child++;
        if (t->heap[child].at >= last.at)
            break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

/* A full heap is settled early: the drain counts as done, which only shortens waits, and happens
 * only when more stripes are queued than the buffer has pages. */
static void
heap_push(struct ssd_timing *t, uint64_t at, uint32_t pages)
{
    uint32_t i;

    if (pages == 0)
        return;
    if (t->heap_count == t->heap_max)
        t->held -= heap_pop(t).pages;
    i = t->heap_count++;
    while (i > 0 && t->heap[(i - 1) / 2].at > at) {
        t->heap[i] = t->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    t->heap[i] = (struct drain){.at = at, .pages = pages};
}

/* ---- dies ---- */

static struct die *
die_of(const struct ssd_timing *t, uint32_t page)
{
    return &t->dies[page / t->cfg.program_pages % t->cfg.dies];
}

static uint64_t
transfer_ns(uint64_t pages, uint32_t mbs)
{
    return pages * CH_PAGE_BYTES * 1000 / mbs;
}

/* Gives a server `ns` of work at `now`: when it has done all that it was given. */
static uint64_t
serve(struct server *s, uint64_t now, uint64_t ns)
{
    if (now > s->seen) {
        s->work -= ch_min_u64(s->work, now - s->seen);
        s->seen = now;
    }
    s->work += ns;
    return now + s->work;
}

static struct server *
channel_of(struct ssd_timing *t, uint32_t page)
{
    return &t->channel[page / t->cfg.program_pages % t->cfg.dies % t->cfg.channels];
}

/* Queues `ns` of the die's backlog behind what is queued. */
static void
die_pay(struct die *d, uint64_t ns)
{
    ns = ch_min_u64(ns, d->backlog);
    d->backlog -= ns;
    d->busy += ns;
}

/* What the die did of its backlog between the end of its queue and `now`. */
static void
die_idle_until(const struct ssd_timing *t, struct die *d, uint64_t now)
{
    uint64_t gap;

    if (d->busy >= now)
        return;
    gap = now - d->busy;
    if (d->backlog > gap) { /* it began an operation that `now` finds running */
        die_pay(d, ch_div_up(gap, t->cfg.program_ns) * t->cfg.program_ns);
        return;
    }
    die_pay(d, d->backlog);
    d->busy = ch_max_u64(d->busy, now);
}

static void
backlog_add(struct ssd_timing *t, struct die *d, uint64_t ns)
{
    d->backlog += ns;
    t->stats.die_busy_ns += ns;
    t->stats.gc_ns += ns;
    if (d->backlog > t->backlog_max) {
        d->busy = ch_max_u64(d->busy, t->now);
        die_pay(d, d->backlog - t->backlog_max);
    }
}

/* The last page of a stripe, or of the superblock, was written by the host. */
static void
host_stripe(struct ssd_timing *t, uint32_t page, uint32_t pages)
{
    struct die *d = die_of(t, page);
    uint32_t left = (t->unit_pages - page % t->unit_pages - 1) / t->cfg.program_pages;
    uint64_t through = serve(channel_of(t, page), t->now, transfer_ns(pages, t->cfg.channel_mbs));

    die_idle_until(t, d, t->now);
    d->busy = ch_max_u64(d->busy, through) + t->cfg.program_ns;
    t->stats.die_busy_ns += t->cfg.program_ns;
    heap_push(t, d->busy, pages);
    die_pay(d, d->backlog / (left / t->cfg.dies + 1));
}

static bool
stripe_ends(const struct ssd_timing *t, uint32_t page)
{
    return (page + 1) % t->cfg.program_pages == 0 || (page + 1) % t->unit_pages == 0;
}

static void
gc_read(struct ssd_timing *t, uint32_t page)
{
    if (t->gc_read_last == UINT32_MAX || t->gc_read_last / FLASH_PAGES != page / FLASH_PAGES)
        backlog_add(t, die_of(t, page), t->cfg.read_ns / t->cfg.planes);
    t->gc_read_last = page;
}

/* A superblock has blocks on all dies; a scaled-down one less than a whole block on each, of which the
 * time is charged once enough of them have come together. */
static void
erase(struct ssd_timing *t)
{
    for (uint32_t i = 0; i < t->cfg.dies; i++) {
        struct die *d = &t->dies[i];

        d->erase += t->unit_pages;
        while (d->erase >= (uint64_t)t->cfg.block_pages * t->cfg.dies) {
            d->erase -= (uint64_t)t->cfg.block_pages * t->cfg.dies;
            backlog_add(t, d, t->cfg.erase_ns);
        }
    }
}

void
ssd_timing_observe(void *arg, enum ssd_work work, uint32_t page)
{
    struct ssd_timing *t = arg;

    switch (work) {
    case SSD_HOST_PROGRAM:
        if (stripe_ends(t, page)) {
            uint32_t in_stripe = page % t->unit_pages % t->cfg.program_pages + 1;
            uint32_t pages = in_stripe < t->filling ? in_stripe : t->filling;

            t->filling -= pages;
            host_stripe(t, page, pages);
        }
        break;
    case SSD_GC_READ:
        gc_read(t, page);
        break;
    case SSD_GC_PROGRAM:
        if (stripe_ends(t, page))
            backlog_add(t, die_of(t, page), t->cfg.program_ns);
        break;
    case SSD_ERASE:
        erase(t);
        break;
    }
}

/* ---- requests ---- */

static uint64_t
completed(struct ssd_timing *t, uint64_t at)
{
    t->stats.last_ns = ch_max_u64(t->stats.last_ns, at);
    return at;
}

uint64_t
ssd_timing_write(struct ssd_timing *t, uint64_t now, uint32_t pages)
{
    uint64_t at = now, link;

    CH_ASSERT(pages > 0 && pages <= t->cfg.program_pages);
    while (t->heap_count > 0 && (t->heap[0].at <= now || t->held + pages > t->cfg.buffer_pages)) {
        struct drain d = heap_pop(t);

        CH_ASSERT(d.pages <= t->held); /* T1 */
        t->held -= d.pages;
        at = ch_max_u64(at, d.at);
    }
    t->held += pages;
    t->filling += pages;
    if (t->filling > t->filling_max) { /* stripes that an update or a finish left unfinished */
        t->held -= t->filling - t->filling_max;
        t->filling = t->filling_max;
    }
    t->now = at;
    t->stats.writes += pages;
    t->stats.stalled_ns += at - now;
    link = serve(&t->link, now, transfer_ns(pages, t->cfg.link_mbs));
    at += transfer_ns(pages, t->cfg.link_mbs);
    return completed(t, ch_max_u64(link, at) + t->cfg.command_ns);
}

/* A read of the flash: when the die has it, submitted at `now`. */
static uint64_t
die_read(struct ssd_timing *t, struct die *d, uint64_t now)
{
    uint64_t own = t->cfg.read_ns / t->cfg.planes;
    uint64_t from = ch_max_u64(now, d->seen), at = from; /* see the head comment */

    d->seen = from;
    die_idle_until(t, d, from);
    if (d->busy > from)
        at = t->cfg.fifo ? d->busy : from + (d->busy - from - 1) % t->cfg.program_ns + 1;
    at = ch_max_u64(at, d->read_busy);
    d->read_busy = at + own;
    d->busy = ch_max_u64(d->busy, at) + own;
    t->stats.die_busy_ns += own;
    t->stats.read_wait_ns += at - from;
    return now + (at - from) + t->cfg.read_ns;
}

uint64_t
ssd_timing_read(struct ssd_timing *t, uint64_t now, uint32_t place, uint32_t after)
{
    uint64_t at = now, link, through;

    t->stats.reads++;
    if (place != UINT32_MAX) {
        uint64_t ns = transfer_ns(1, t->cfg.channel_mbs);

        if (after == UINT32_MAX || after / FLASH_PAGES != place / FLASH_PAGES)
            at = die_read(t, die_of(t, place), now);
        through = serve(channel_of(t, place), now, ns);
        at = ch_max_u64(at + ns, through);
    }
    link = serve(&t->link, now, transfer_ns(1, t->cfg.link_mbs));
    at += transfer_ns(1, t->cfg.link_mbs);
    return completed(t, ch_max_u64(link, at) + t->cfg.command_ns);
}

uint64_t
ssd_timing_flush(struct ssd_timing *t, uint64_t now)
{
    uint64_t at = now;

    if (t->cfg.no_plp) {
        for (uint32_t i = 0; i < t->heap_count; i++)
            at = ch_max_u64(at, t->heap[i].at);
        if (t->filling > 0) /* a stripe that is not full has to be programmed all the same */
            at += t->cfg.program_ns;
    }
    return completed(t, at + t->cfg.command_ns);
}

uint64_t
ssd_timing_discard(struct ssd_timing *t, uint64_t now)
{
    t->now = now;
    return completed(t, now + t->cfg.command_ns);
}

void
ssd_timing_stats(const struct ssd_timing *t, struct ssd_timing_stats *out)
{
    *out = t->stats;
    for (uint32_t i = 0; i < t->cfg.dies; i++)
        out->backlog_ns += t->dies[i].backlog;
}

/* ---- create, destroy ---- */

int
ssd_timing_create(const struct ssd_timing_config *cfg, uint32_t unit_pages, struct ssd_timing **out)
{
    struct ssd_timing *t;

    if (cfg->dies == 0 || cfg->planes == 0 || cfg->program_pages == 0 || cfg->block_pages == 0 ||
        cfg->channels == 0 || cfg->channel_mbs == 0 || cfg->link_mbs == 0 || cfg->program_ns == 0 ||
        cfg->buffer_pages < cfg->program_pages || unit_pages == 0)
        return CH_FAIL(COHORT_EOPTION, "ssd: timing without dies, channels, speed or buffer");
    t = calloc(1, sizeof(*t));
    if (t == NULL)
        return CH_FAIL(COHORT_ENOMEM, "ssd: timing");
    t->cfg = *cfg;
    t->unit_pages = unit_pages;
    t->gc_read_last = UINT32_MAX;
    t->backlog_max = BACKLOG_SUPERBLOCKS * cfg->program_ns *
                     (ch_div_up(unit_pages, cfg->program_pages) / cfg->dies + 1);
    t->dies = calloc(cfg->dies, sizeof(*t->dies));
    t->channel = calloc(cfg->channels, sizeof(*t->channel));
    t->filling_max = (uint32_t)ch_max_u64(cfg->buffer_pages / 2, cfg->program_pages);
    t->heap_max = cfg->buffer_pages + cfg->program_pages;
    t->heap = calloc(t->heap_max, sizeof(*t->heap));
    if (t->dies == NULL || t->channel == NULL || t->heap == NULL) {
        ssd_timing_destroy(t);
        return CH_FAIL(COHORT_ENOMEM, "ssd: timing of %u dies", cfg->dies);
    }
    *out = t;
    return 0;
}

void
ssd_timing_destroy(struct ssd_timing *t)
{
    if (t == NULL)
        return;
    free(t->dies);
    free(t->channel);
    free(t->heap);
    free(t);
}
