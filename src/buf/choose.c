/* choose.c - which dirty frames the cleaner writes next, and their copies. The rules C1..C6 stand in cleaner.c.
 *
 * The clock's hand is a position that only grows; frame = position % frames. The window is what the hand comes to next:
 *
 *     ----- passed ----| hand |--- ahead[]: cold and dirty ---| ahead_pos |------ not looked at ------
 *
 * Candidates gather in ahead[] until they fill a batch, or until the hand has come half a window near.
 *
 * Locks: cleaner.lock held throughout.
 */
#include "buf/buf_internal.h"
#include "page/page.h"
#include "wal/wal.h"

enum {
    SWEEP_BATCHES = 16 /* frames looked at for cold ones, in batches, before warm ones do */
};

static bool
frame_wants_write(const struct frame *fr)
{
    return (frame_flags(fr) & (FRAME_DIRTY | FRAME_WRITING)) == FRAME_DIRTY;
}

static bool
choose_full(const struct buf *b)
{
    return b->cleaner.page_count == b->batch_pages || b->cleaner.free_count == b->batch_pages;
}

/* X latch held, frame WRITING: takes the copy, or notes the page's end. */
static void
choose_take(struct buf *b, page_id pid, uint32_t f)
{
    struct cleaner *c = &b->cleaner;
    uint8_t *page = buf_page(b, f);
    int type = (int)page_type(page);

    c->lsn_max = ch_max_u64(c->lsn_max, page_lsn(page));
    if (type == 0 || type == (int)PAGE_FREE) {
        frame_freeing(b, f);
        c->free_pids[c->free_count] = pid;
        c->free_frames[c->free_count++] = f;
        return;
    }
    CH_ASSERT(page_pid(page) == pid);
    page_note_write(page, c->now);
    memcpy(c->pages[c->page_count].page, page, CH_PAGE_BYTES);
    c->pages[c->page_count].pid = pid;
    c->pages[c->page_count].lsn = page_lsn(page);
    c->pages[c->page_count].carried = false;
    changes_take(b, f, &c->pages[c->page_count]);
    c->frames[c->page_count++] = f;
}

static void
choose_frame(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    page_id pid = atomic_load_explicit(&fr->pid, memory_order_relaxed);
    struct page_entry *e = table_find(b, pid);

    if (pid == 0 || e == NULL || !latch_try_excl(&e->latch)) /* C2 */
        return;
    if (atomic_load_explicit(&e->frame1, memory_order_relaxed) == f + 1 && frame_write_begin(b, f))
        choose_take(b, pid, f);
    latch_unlock_excl(&b->lot, &e->latch, false); /* C6 */
}

/* Every frame once at most, going on where the last sweep stopped. */
static void
choose_before(struct buf *b, lsn_t before)
{
    struct cleaner *c = &b->cleaner;

    for (uint32_t i = 0; i < b->frame_count && !choose_full(b); i++, c->sweep_pos++) {
        uint32_t f = (uint32_t)(c->sweep_pos % b->frame_count);
        struct frame *fr = &b->frames[f];

        if (frame_wants_write(fr) &&
            atomic_load_explicit(&fr->rec_lsn, memory_order_relaxed) < before)
            choose_frame(b, f);
    }
}

/* Ends of pages need no room, and make some. */
static void
choose_ends(struct buf *b)
{
    for (uint32_t f = 0; f < b->frame_count && !choose_full(b); f++)
        if (frame_wants_write(&b->frames[f]) && (frame_flags(&b->frames[f]) & FRAME_FREEING) != 0)
            choose_frame(b, f);
}

static void
choose_sweep(struct buf *b)
{
    struct cleaner *c = &b->cleaner;
    uint32_t warm[CH_BATCH_MAX];
    unsigned warm_count = 0;
    uint32_t enough = SWEEP_BATCHES * b->batch_pages;

    for (uint32_t i = 0; i < b->frame_count && !choose_full(b); i++, c->sweep_pos++) {
        uint32_t f = (uint32_t)(c->sweep_pos % b->frame_count);
        struct frame *fr = &b->frames[f];

        if (i >= enough && c->page_count + c->free_count + warm_count > 0)
            break;
        if (!frame_wants_write(fr))
            continue;
        if (atomic_load_explicit(&fr->ref, memory_order_relaxed) == REF_COLD)
            choose_frame(b, f);
        else if (warm_count < b->batch_pages)
            warm[warm_count++] = f;
    }
    for (unsigned i = 0; i < warm_count && !choose_full(b); i++)
        choose_frame(b, warm[i]);
}

static void
choose_ahead(struct buf *b)
{
    struct cleaner *c = &b->cleaner;
    uint64_t n = b->frame_count;
    uint64_t hand = atomic_load_explicit(&b->hand, memory_order_relaxed);
    uint64_t window = ch_min_u64(ch_max_u64(n / 8, 4 * (uint64_t)b->batch_pages), n / 2);

    c->ahead_pos = ch_max_u64(c->ahead_pos, hand);
    for (; c->ahead_pos < hand + window && c->ahead_count < b->batch_pages; c->ahead_pos++) {
        uint32_t f = (uint32_t)(c->ahead_pos % n);
        struct frame *fr = &b->frames[f];

        if (!frame_wants_write(fr) ||
            atomic_load_explicit(&fr->ref, memory_order_relaxed) != REF_COLD)
            continue;
        if (c->ahead_count == 0)
            c->ahead_first = c->ahead_pos;
        c->ahead[c->ahead_count++] = f;
    }
    /* Part of a batch is written only when the hand comes near. */
    if (c->ahead_count < b->batch_pages && hand + window / 2 < c->ahead_first)
        return;
    for (unsigned i = 0; i < c->ahead_count; i++)
        if (atomic_load_explicit(&b->frames[c->ahead[i]].ref, memory_order_relaxed) == REF_COLD)
            choose_frame(b, c->ahead[i]);
    c->ahead_count = 0;
}

void
cleaner_choose(struct buf *b, lsn_t before)
{
    struct cleaner *c = &b->cleaner;
    uint64_t empty = atomic_load_explicit(&b->free_count, memory_order_relaxed);

    c->page_count = 0;
    c->free_count = 0;
    c->lsn_max = 0;
    c->now = wal_end(b->wal);
    if (buf_error(b) == COHORT_EFULL)
        choose_ends(b);
    if (before != 0)
        choose_before(b, before);
    else if (cleaner_urgent(b) || buf_wants_cleaning(b))
        choose_sweep(b);
    else if (empty < b->frame_count / 16)
        choose_ahead(b);
    c->chosen = c->page_count + c->free_count;
}
