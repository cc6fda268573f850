/* frame.c - frames: who is empty, who is dirty since when, who is evicted next.
 *
 *            install                 dirty                   write_begin
 *    EMPTY ----------> CLEAN ----------------> DIRTY -----------------------> DIRTY|WRITING
 *      ^                 |  ^                   ^  ^                            |  |  |
 *      +-----------------+  +-------------------|--|---- done, unchanged since -+  |  |
 *        evict, detach                          |  +--- done, changed since: S9 ---+  |
 *                                               +------ cancel: rec_lsn stays --------+
 *
 *   F1  WRITING implies DIRTY; redirty_lsn is set only while WRITING; at most one write in flight (S9).
 *   F2  rec_lsn is set, from the log's end, before the record of the change is appended (R3), and stays until
 *       the image that contains the change is published (R2 holds it further: settle list, cleaner.c).
 *   F3  EMPTY <-> CLEAN and CLEAN -> DIRTY, and the start of WRITING, only under the page's X latch. So who
 *       holds it sees a stable "DIRTY and not WRITING", which is the case that frame_dirty() skips fast.
 *   F4  b->dirty counts DIRTY frames, b->dirty_new those of them that are NEW.
 *
 * Eviction is a clock: one hand, a second chance for frames hit since it last passed. Dirty frames are passed
 * over; the cleaner works ahead of the hand. A page's first use after it was read does not make it hot, so that
 * a scan does not wash the cache out.
 *
 * Locks: a stripe (rank FRAME) for each group of 64 frames; free_lock (rank FREE) for the stack.
 */
#include <inttypes.h>

#include "base/bug.h"
#include "buf/buf_internal.h"
#include "wal/wal.h"

enum {
    FRAME_WAKE_EVERY = 16 /* evictions between two calls for the cleaner */
};

void
frame_put(struct buf *b, uint32_t f)
{
    uint32_t n;

    rt_lock(&b->free_lock);
    n = atomic_load_explicit(&b->free_count, memory_order_relaxed);
    CH_ASSERT(n < b->frame_count);
    b->free_stack[n] = f;
    atomic_store_explicit(&b->free_count, n + 1, memory_order_relaxed);
    if (atomic_load_explicit(&b->waiters, memory_order_relaxed) != 0)
        rt_broadcast(&b->frames_freed);
    rt_unlock(&b->free_lock);
}

static bool
frame_pop(struct buf *b, uint32_t *out)
{
    uint32_t n;

    if (atomic_load_explicit(&b->free_count, memory_order_relaxed) == 0)
        return false;
    rt_lock(&b->free_lock);
    n = atomic_load_explicit(&b->free_count, memory_order_relaxed);
    if (n != 0) {
        *out = b->free_stack[n - 1];
        atomic_store_explicit(&b->free_count, n - 1, memory_order_relaxed);
    }
    rt_unlock(&b->free_lock);
    return n != 0;
}

void
frame_announce(struct buf *b)
{
    if (atomic_load_explicit(&b->waiters, memory_order_relaxed) == 0)
        return;
    rt_lock(&b->free_lock);
    rt_broadcast(&b->frames_freed);
    rt_unlock(&b->free_lock);
}

void
frame_install(struct buf *b, struct page_entry *e, page_id pid, uint32_t f, uint32_t flags,
              enum frame_ref ref)
{
    struct frame *fr = &b->frames[f];

    CH_ASSERT(atomic_load_explicit(&fr->pid, memory_order_relaxed) == 0);
    atomic_store_explicit(&fr->rec_lsn, CH_LSN_MAX, memory_order_relaxed);
    atomic_store_explicit(&fr->redirty_lsn, CH_LSN_MAX, memory_order_relaxed);
    atomic_store_explicit(&fr->flags, flags, memory_order_relaxed);
    atomic_store_explicit(&fr->ref, (uint8_t)ref, memory_order_relaxed);
    atomic_store_explicit(&fr->pid, pid, memory_order_relaxed);
    atomic_store_explicit(&e->frame1, f + 1, memory_order_release);
}

void
frame_detach(struct buf *b, struct page_entry *e, uint32_t f)
{
    struct frame *fr = &b->frames[f];

    CH_ASSERT((frame_flags(fr) & (FRAME_DIRTY | FRAME_WRITING)) == 0);
    /* Under the lock: the cleaner's last words on the frame came under it, before the flags that were read without. */
    if (b->changes.frames != NULL) {
        rt_lock(buf_stripe(b, f));
        changes_forget(b, f);
        rt_unlock(buf_stripe(b, f));
    }
    atomic_store_explicit(&e->frame1, 0, memory_order_relaxed);
    atomic_store_explicit(&fr->flags, 0, memory_order_relaxed);
    atomic_store_explicit(&fr->pid, 0, memory_order_relaxed);
}

bool
frame_try_evict(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    page_id pid = atomic_load_explicit(&fr->pid, memory_order_relaxed);
    struct page_entry *e;
    bool ok;

    if (pid == 0 || (frame_flags(fr) & (FRAME_DIRTY | FRAME_WRITING)) != 0)
        return false;
    e = table_find(b, pid);
    if (e == NULL || !latch_try_excl(&e->latch))
        return false;
    /* The frame may have changed hands before the latch was ours. */
    ok = atomic_load_explicit(&e->frame1, memory_order_relaxed) == f + 1 &&
         (frame_flags(fr) & (FRAME_DIRTY | FRAME_WRITING)) == 0;
    if (ok)
        frame_detach(b, e, f);
    latch_unlock_excl(&b->lot, &e->latch, ok);
    return ok;
}

/* The clock: at most two rounds, the second after all second chances are spent. */
static bool
frame_evict(struct buf *b, uint32_t *out)
{
    uint64_t n = 2 * (uint64_t)b->frame_count;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t pos = atomic_fetch_add_explicit(&b->hand, 1, memory_order_relaxed);
        uint32_t f = (uint32_t)(pos % b->frame_count);
        struct frame *fr = &b->frames[f];

        if (atomic_load_explicit(&fr->ref, memory_order_relaxed) != REF_COLD) {
            atomic_store_explicit(&fr->ref, REF_COLD, memory_order_relaxed);
            continue;
        }
        if (!frame_try_evict(b, f))
            continue;
        if (atomic_fetch_add_explicit(&b->evictions, 1, memory_order_relaxed) % FRAME_WAKE_EVERY ==
            0)
            cleaner_wake(b);
        *out = f;
        return true;
    }
    return false;
}

bool
frame_take(struct buf *b, uint32_t *out)
{
    return frame_pop(b, out) || frame_evict(b, out);
}

int
frame_get(struct buf *b, uint32_t *out)
{
    uint64_t since = 0;
    uint64_t seen = 0;
    int rc = 0;

    while (!frame_take(b, out)) {
        uint64_t progress = atomic_load_explicit(&b->evictions, memory_order_relaxed) +
                            atomic_load_explicit(&b->cleaned, memory_order_relaxed);

        if (since == 0 || progress != seen) {
            since = rt_now_ns();
            seen = progress;
        } else if (rt_now_ns() - since > b->patience_ns) {
            rc = cleaner_error(b);
            if (rc == 0)
                rc = CH_FAIL(COHORT_ENOMEM, "page cache: all %" PRIu32 " frames are in use",
                             b->frame_count);
            break;
        }
        rc = cleaner_help(b);
        if (rc != 0)
            break;
    }
    return rc;
}

static void
frame_count_new(struct buf *b, int by)
{
    if (by > 0)
        (void)atomic_fetch_add_explicit(&b->dirty_new, 1, memory_order_relaxed);
    else
        (void)atomic_fetch_sub_explicit(&b->dirty_new, 1, memory_order_relaxed);
}

/* Lower bound of the LSN of what is about to change a page (R3). */
static lsn_t
dirty_bound(struct buf *b)
{
    return b->redo_bound != 0 ? b->redo_bound : wal_end(b->wal);
}

/* Stripe lock held. */
static void
frame_dirty_locked(struct buf *b, struct frame *fr, uint32_t fl)
{
    if ((fl & FRAME_WRITING) != 0) {
        if (atomic_load_explicit(&fr->redirty_lsn, memory_order_relaxed) == CH_LSN_MAX)
            atomic_store_explicit(&fr->redirty_lsn, dirty_bound(b), memory_order_relaxed);
    } else if ((fl & FRAME_DIRTY) == 0) {
        atomic_store_explicit(&fr->rec_lsn, dirty_bound(b), memory_order_relaxed); /* F2 */
        fl |= FRAME_DIRTY;
        (void)atomic_fetch_add_explicit(&b->dirty, 1, memory_order_relaxed);
        if ((fl & FRAME_NEW) != 0)
            frame_count_new(b, 1);
    }
    atomic_store_explicit(&fr->flags, fl, memory_order_relaxed);
}

void
frame_dirty(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl = frame_flags(fr);

    if ((fl & (FRAME_DIRTY | FRAME_WRITING | FRAME_FREEING | FRAME_UNTRACKED)) == FRAME_DIRTY)
        return; /* F3 */
    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    changes_before(b, f, fl);
    fl &= ~(uint32_t)FRAME_UNTRACKED;
    if ((fl & FRAME_FREEING) != 0) { /* recovery formats a page again that an older record freed */
        page_id pid = atomic_load_explicit(&fr->pid, memory_order_relaxed);

        fl &= ~(uint32_t)FRAME_FREEING;
        if (map_get(store_map(b->store), pid) == PLACE_NONE) {
            fl |= FRAME_NEW;
            frame_count_new(b, 1);
        }
    }
    frame_dirty_locked(b, fr, fl);
    rt_unlock(buf_stripe(b, f));
}

void
frame_renew(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl;

    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    if ((fl & FRAME_NEW) == 0 && (fl & FRAME_DIRTY) != 0)
        frame_count_new(b, 1);
    fl = (fl | FRAME_NEW) & ~(uint32_t)FRAME_FREEING;
    changes_forget(b, f);
    frame_dirty_locked(b, fr, fl);
    rt_unlock(buf_stripe(b, f));
}

void
frame_freeing(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl;

    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    CH_ASSERT((fl & FRAME_DIRTY) != 0); /* buf_will_change() came first */
    if ((fl & FRAME_NEW) != 0)
        frame_count_new(b, -1);
    fl = (fl | FRAME_FREEING) & ~(uint32_t)FRAME_NEW;
    atomic_store_explicit(&fr->flags, fl, memory_order_relaxed);
    rt_unlock(buf_stripe(b, f));
}

bool
frame_write_begin(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl;
    bool ok;

    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    ok = (fl & (FRAME_DIRTY | FRAME_WRITING)) == FRAME_DIRTY;
    if (ok) {
        CH_ASSERT(atomic_load_explicit(&fr->redirty_lsn, memory_order_relaxed) ==
                  CH_LSN_MAX); /* F1 */
        atomic_store_explicit(&fr->flags, fl | FRAME_WRITING, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&b->writing, 1, memory_order_relaxed);
    }
    rt_unlock(buf_stripe(b, f));
    return ok;
}

void
frame_write_done(struct buf *b, uint32_t f, bool freed, bool delta)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl;
    lsn_t redirty;

    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    CH_ASSERT((fl & (FRAME_DIRTY | FRAME_WRITING)) == (FRAME_DIRTY | FRAME_WRITING)); /* F1 */
    fl &= ~(uint32_t)FRAME_WRITING;
    redirty = atomic_load_explicit(&fr->redirty_lsn, memory_order_relaxed);
    if ((fl & FRAME_NEW) != 0 && !freed) { /* NEW after the end of a page is the next page's */
        fl &= ~(uint32_t)FRAME_NEW;
        frame_count_new(b, -1);
    }
    changes_done(b, f, freed, delta);
    if (CH_BUG(S9_CLEAN_ANYWAY) && (fl & FRAME_FREEING) == 0)
        redirty = CH_LSN_MAX;
    if (redirty == CH_LSN_MAX) {
        CH_ASSERT(freed || (fl & FRAME_FREEING) == 0);
        fl &= ~(uint32_t)(FRAME_DIRTY | FRAME_FREEING | FRAME_UNTRACKED);
        (void)atomic_fetch_sub_explicit(&b->dirty, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&fr->rec_lsn, redirty, memory_order_relaxed); /* S9 */
    atomic_store_explicit(&fr->redirty_lsn, CH_LSN_MAX, memory_order_relaxed);
    atomic_store_explicit(&fr->flags, fl, memory_order_relaxed);
    rt_unlock(buf_stripe(b, f));
    (void)atomic_fetch_sub_explicit(&b->writing, 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&b->cleaned, 1, memory_order_relaxed);
}

void
frame_write_cancel(struct buf *b, uint32_t f)
{
    struct frame *fr = &b->frames[f];
    uint32_t fl;

    rt_lock(buf_stripe(b, f));
    fl = frame_flags(fr);
    CH_ASSERT((fl & FRAME_WRITING) != 0);
    atomic_store_explicit(&fr->redirty_lsn, CH_LSN_MAX, memory_order_relaxed);
    fl &= ~(uint32_t)FRAME_WRITING;
    if (changes_untracked(b, f))
        fl |= FRAME_UNTRACKED; /* H4 */
    atomic_store_explicit(&fr->flags, fl, memory_order_relaxed);
    rt_unlock(buf_stripe(b, f));
    (void)atomic_fetch_sub_explicit(&b->writing, 1, memory_order_relaxed);
}
