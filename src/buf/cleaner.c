/* cleaner.c - writes dirty frames back, in batches, one step at a time.
 *
 *     dirty frames --choose--> copies --wal_flush (S2)--> store_write --+
 *                                                                       | fifo, at most 4 batches
 *     clean <-- settle list <-- store_publish <-- device flush (R6) <---+
 *
 * A step publishes what is ready, lets the store collect garbage, and writes one batch. Which frames it writes:
 *   - for a checkpoint, those with rec_lsn < `before`, swept in order of frames;
 *   - when many frames are dirty, or somebody waits for frames: cold ones first, then any, in the same sweep;
 *   - else cold ones in a window ahead of the clock's hand, once a batch of them has gathered. Pages that are
 *     hot or far from eviction stay: each write saved here is wear saved. (choose.c)
 *
 * Invariants:
 *   C1  at most one write in flight a frame, and with that a page id (S9, R9): a frame is chosen only through
 *       frame_write_begin(), and a page whose frame is WRITING cannot leave it.
 *   C2  only try-latches here, and no latch is held across a wait: so a thread that holds latches may wait for
 *       the cleaner, or run a step itself.
 *   C3  the log is durable up to every copied page's LSN before its image or its end reaches the store (S2).
 *   C4  what a batch or a free published counts as dirty from its rec_min until the record that published it is
 *       durable (R2): the settle list, filled before the frames turn clean.
 *   C5  a failed or dropped batch leaves its frames dirty since the same LSN: nothing is lost but room.
 *   C6  the version is not bumped: only the write history of the frame's page changes, which no optimistic
 *       reader looks at.
 *
 * A page that ends (its type is PAGE_FREE; or it was allocated and never formatted, so the log knows nothing of it)
 * is not written: its MAP record "none" is appended, its id is free, and its frame, clean by then, goes.
 *
 * Errors: EFULL is retried after GC and remembered until a write succeeds again; any other error stays, and
 * every later step returns it: frames remain as they are, readers go on.
 *
 * Locks: cleaner.lock (rank CLEANER) around a step; settle_lock and free_lock for moments (rank FREE).
 * Crash: batches in the fifo were never published; their slots are dead space for recovery to find.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/status.h"
#include "buf/buf_internal.h"
#include "wal/wal.h"

enum {
    GC_STEPS = 4,          /* of one cleaner step */
    GC_STEPS_URGENT = 512, /* to find room for one batch */
};
#define CLEANER_IDLE_NS    UINT64_C(50000000)
#define CLEANER_RETRY_NS   UINT64_C(20000000)
#define CLEANER_HELP_NS    UINT64_C(2000000)
#define CLEANER_FULL_NS    UINT64_C(2000000000)
#define CLEANER_LATCHED_NS UINT64_C(20000)

int
cleaner_create(struct buf *b)
{
    struct cleaner *c = &b->cleaner;

    c->staging = ch_alloc_aligned((size_t)b->batch_pages * CH_PAGE_BYTES);
    if (c->staging == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cleaner: staging of %u pages", b->batch_pages);
    for (unsigned i = 0; i < b->batch_pages; i++)
        c->pages[i].page = c->staging + (size_t)i * CH_PAGE_BYTES;
    return 0;
}

/* ---- errors ---- */

int
buf_error(struct buf *b)
{
    return atomic_load_explicit(&b->error, memory_order_acquire);
}

int
cleaner_error(struct buf *b)
{
    char text[sizeof(b->error_text)];
    int rc = buf_error(b);

    if (rc == 0)
        return 0;
    rt_lock(&b->settle_lock);
    memcpy(text, b->error_text, sizeof(text));
    rt_unlock(&b->settle_lock);
    return CH_FAIL(rc, "cleaner: %s", text);
}

/* settle_lock held; EFULL stands. */
static bool
full_lasts(const struct buf *b)
{
    return rt_now_ns() - b->full_since_ns > CLEANER_FULL_NS;
}

bool
cleaner_full_lasts(struct buf *b)
{
    bool lasts;

    rt_lock(&b->settle_lock);
    lasts = buf_error(b) == COHORT_EFULL && full_lasts(b);
    rt_unlock(&b->settle_lock);
    return lasts;
}

static void
cleaner_failed(struct buf *b, int rc)
{
    bool lasting;
    int old;

    rt_lock(&b->settle_lock);
    old = buf_error(b);
    if (old == 0 || old == COHORT_EFULL) {
        (void)snprintf(b->error_text, sizeof(b->error_text), "%s", ch_last_error()->text);
        atomic_store_explicit(&b->error, rc, memory_order_release);
    }
    if (old == 0)
        b->full_since_ns = rt_now_ns();
    lasting = full_lasts(b);
    rt_unlock(&b->settle_lock);
    /* Zones may only be waiting for a flush, a reader or a checkpoint: whoever waits for log room is turned away not
     * before that has had its time. */
    if (rc == COHORT_EFULL && lasting)
        wal_set_full(b->wal, true);
    frame_announce(b);
}

static void
cleaner_has_room(struct buf *b)
{
    if (buf_error(b) != COHORT_EFULL)
        return;
    rt_lock(&b->settle_lock);
    atomic_store_explicit(&b->error, 0, memory_order_release);
    rt_unlock(&b->settle_lock);
    wal_set_full(b->wal, false);
}

/* ---- the settle list (R2) ---- */

static void
settle_prune(struct buf *b)
{
    lsn_t durable = wal_durable(b->wal);
    unsigned n = 0;

    for (unsigned i = 0; i < b->settle_count; i++)
        if (!store_mark_durable(b->store, b->settle[i].lsn, durable))
            b->settle[n++] = b->settle[i];
    b->settle_count = n;
}

/* C4: after the record was appended, before the frames turn clean. */
static void
settle_push(struct buf *b, lsn_t rec_min)
{
    struct buf_settle *last;

    rt_lock(&b->settle_lock);
    settle_prune(b);
    if (b->settle_count == BUF_SETTLE) { /* one entry for two: both bounds err on the safe side */
        last = &b->settle[BUF_SETTLE - 1];
        last->rec_min = ch_min_u64(last->rec_min, rec_min);
        last->lsn = ch_max_u64(last->lsn, store_mark(b->store));
    } else {
        last = &b->settle[b->settle_count++];
        last->rec_min = rec_min;
        last->lsn = store_mark(b->store);
    }
    rt_unlock(&b->settle_lock);
}

static lsn_t
settle_oldest(struct buf *b)
{
    lsn_t oldest = CH_LSN_MAX;

    rt_lock(&b->settle_lock);
    settle_prune(b);
    for (unsigned i = 0; i < b->settle_count; i++)
        oldest = ch_min_u64(oldest, b->settle[i].rec_min);
    rt_unlock(&b->settle_lock);
    return oldest;
}

/* Makes durable what was published. */
static int
settle_flush(struct buf *b)
{
    lsn_t lsn = 0;

    rt_lock(&b->settle_lock);
    settle_prune(b);
    for (unsigned i = 0; i < b->settle_count; i++)
        if (b->settle[i].lsn < STORE_UNLOGGED) /* the others wait for a checkpoint */
            lsn = ch_max_u64(lsn, b->settle[i].lsn);
    rt_unlock(&b->settle_lock);
    return lsn != 0 ? wal_flush(b->wal, lsn) : 0;
}

static lsn_t
frames_oldest(struct buf *b)
{
    lsn_t oldest = CH_LSN_MAX;

    for (uint32_t f = 0; f < b->frame_count; f += BUF_STRIPE_FRAMES) {
        uint32_t end = (uint32_t)ch_min_u64((uint64_t)f + BUF_STRIPE_FRAMES, b->frame_count);

        rt_lock(buf_stripe(b, f));
        for (uint32_t i = f; i < end; i++)
            oldest = ch_min_u64(oldest,
                                atomic_load_explicit(&b->frames[i].rec_lsn, memory_order_relaxed));
        rt_unlock(buf_stripe(b, f));
    }
    return oldest;
}

lsn_t
buf_oldest_dirty(struct buf *b)
{
    lsn_t frames = frames_oldest(b); /* first: a frame is clean only after its entry stands (C4) */

    return CH_BUG(R2_CUT_EARLY) ? frames : ch_min_u64(frames, settle_oldest(b));
}

/* ---- publishing ---- */

static void
fifo_pop(struct cleaner *c)
{
    c->fifo_head = (c->fifo_head + 1) % BUF_INFLIGHT;
    c->fifo_count--;
}

/* C5: gives all batches up. */
static void
fifo_drop(struct buf *b)
{
    struct cleaner *c = &b->cleaner;

    for (; c->fifo_count > 0; fifo_pop(c)) {
        struct buf_inflight *in = &c->fifo[c->fifo_head];

        store_drop(b->store, &in->batch);
        for (unsigned i = 0; i < in->count; i++)
            frame_write_cancel(b, in->frames[i]);
    }
}

static int
fifo_publish(struct buf *b, bool *did)
{
    struct cleaner *c = &b->cleaner;

    while (c->fifo_count > 0 && store_ready(b->store, &c->fifo[c->fifo_head].batch)) {
        struct buf_inflight *in = &c->fifo[c->fifo_head];
        int rc = store_publish(b->store, &in->batch);

        if (rc != 0) {
            fifo_drop(b);
            return rc;
        }
        settle_push(b, in->rec_min);
        for (unsigned i = 0; i < in->count; i++)
            frame_write_done(b, in->frames[i], false, (in->batch.places[i] & PLACE_DELTA) != 0);
        fifo_pop(c);
        frame_announce(b);
        *did = true;
    }
    return 0;
}

/* Nobody's flush came: our own, then everything is ready (R6). */
static int
fifo_force(struct buf *b, bool *did)
{
    int rc;

    if (b->cleaner.fifo_count == 0)
        return 0;
    rc = wal_flush_force(b->wal);
    if (rc != 0) {
        fifo_drop(b);
        return rc;
    }
    return fifo_publish(b, did);
}

bool
cleaner_urgent(struct buf *b)
{
    return atomic_load_explicit(&b->waiters, memory_order_relaxed) != 0 ||
           buf_error(b) == COHORT_EFULL;
}

static int
fifo_step(struct buf *b, bool *did)
{
    struct cleaner *c = &b->cleaner;
    int rc = fifo_publish(b, did);

    if (rc != 0 || c->fifo_count == 0)
        return rc;
    if (c->fifo_count == BUF_INFLIGHT || cleaner_urgent(b) ||
        rt_now_ns() - c->fifo[c->fifo_head].born_ns > BUF_FLUSH_NS)
        rc = fifo_force(b, did);
    return rc;
}

/* ---- writing ---- */

/* C5: everything chosen goes back. */
static void
choose_cancel(struct buf *b)
{
    struct cleaner *c = &b->cleaner;

    while (c->page_count > 0)
        frame_write_cancel(b, c->frames[--c->page_count]);
    while (c->free_count > 0)
        frame_write_cancel(b, c->free_frames[--c->free_count]);
}

static lsn_t
frames_rec_min(struct buf *b, const uint32_t *frames, unsigned n)
{
    lsn_t min = CH_LSN_MAX;

    for (unsigned i = 0; i < n; i++) /* stable while WRITING */
        min = ch_min_u64(min,
                         atomic_load_explicit(&b->frames[frames[i]].rec_lsn, memory_order_relaxed));
    return min;
}

static int
end_pages(struct buf *b, bool *did)
{
    struct cleaner *c = &b->cleaner;
    int rc;

    if (c->free_count == 0)
        return 0;
    rc = store_pid_free(b->store, c->free_pids, c->free_count);
    if (rc != 0)
        return rc;
    settle_push(b, frames_rec_min(b, c->free_frames, c->free_count));
    while (c->free_count > 0) {
        uint32_t f = c->free_frames[--c->free_count];

        /* The id may have been given out again already; buf_new() then took this frame over. */
        frame_write_done(b, f, true, false);
        if (frame_try_evict(b, f))
            frame_put(b, f);
    }
    frame_announce(b);
    *did = true;
    return 0;
}

/* store_write(); while it is full, what is in flight is published and garbage collected. */
static int
write_store(struct buf *b, bool carry, struct store_batch *out)
{
    struct cleaner *c = &b->cleaner;
    int rc = 0;

    for (unsigned i = 0; i <= GC_STEPS_URGENT; i++) {
        bool did = false;

        memset(out, 0, sizeof(*out));
        rc = store_write(b->store, c->pages, c->page_count, carry, out);
        if (rc != COHORT_EFULL)
            break;
        rc = fifo_force(b, &did);
        if (rc != 0)
            break;
        if (did)
            continue;
        rc = store_gc_step(b->store, true, &did);
        if (rc == 0 && !did)
            rc = CH_FAIL(COHORT_EFULL, "no room for %u pages, nothing to collect", c->page_count);
        /* A damaged image is the store's to report; another victim may give room. */
        if (rc != 0 && ch_class_of(rc) != COHORT_CLASS_CORRUPT)
            break;
        rc = COHORT_EFULL;
    }
    return rc;
}

static int
write_pages(struct buf *b, bool carry, bool *did)
{
    struct cleaner *c = &b->cleaner;
    struct buf_inflight *in = &c->fifo[(c->fifo_head + c->fifo_count) % BUF_INFLIGHT];
    int rc;

    if (c->page_count == 0)
        return 0;
    rc = write_store(b, carry,
                     &in->batch); /* may empty the fifo; the slot's number stays the same */
    if (rc != 0)
        return rc;
    in->count = 0;
    for (unsigned i = 0; i < c->page_count; i++) {
        if (c->pages[i].carried)
            frame_write_cancel(b, c->frames[i]);
        else
            in->frames[in->count++] = c->frames[i];
    }
    c->page_count = 0;
    CH_ASSERT(in->count == in->batch.count);
    if (in->count == 0)
        return 0;
    in->rec_min = frames_rec_min(b, in->frames, in->count);
    in->born_ns = rt_now_ns();
    c->fifo_count++;
    cleaner_has_room(b);
    *did = true;
    return 0;
}

static int
write_chosen(struct buf *b, lsn_t before, bool *did)
{
    struct cleaner *c = &b->cleaner;
    bool carry = before == 0 && !cleaner_urgent(b);
    int rc = 0;

    if (c->page_count + c->free_count > 0 && !CH_BUG(S2_NO_LOG_FLUSH))
        rc = wal_flush(b->wal, c->lsn_max); /* C3, S2 */
    if (rc == 0)
        rc = end_pages(b, did);
    if (rc == 0)
        rc = write_pages(b, carry, did);
    if (rc != 0)
        choose_cancel(b);
    return rc;
}

static int
collect(struct buf *b, bool *did)
{
    for (unsigned i = 0; i < GC_STEPS && store_gc_wanted(b->store); i++) {
        bool one = false;
        int rc = store_gc_step(b->store, false, &one);

        if (rc == COHORT_EFULL || ch_class_of(rc) == COHORT_CLASS_CORRUPT)
            return 0; /* nothing to gain now; or reported by the store, which goes on without that zone */
        if (rc != 0)
            return rc;
        if (!one)
            break;
        *did = true;
    }
    return 0;
}

/* ---- the step ---- */

static int
step_locked(struct buf *b, lsn_t before, bool *did)
{
    struct cleaner *c = &b->cleaner;
    int rc = buf_error(b);

    if (rc != 0 && rc != COHORT_EFULL)
        return cleaner_error(b);
    rc = fifo_step(b, did);
    if (rc == 0)
        rc = collect(b, did);
    c->chosen = 0;
    if (rc == 0 && c->fifo_count < BUF_INFLIGHT) {
        cleaner_choose(b, before);
        rc = write_chosen(b, before, did);
    }
    /* Nothing is left to write, so nothing will come to share its flush. */
    if (rc == 0 && c->chosen == 0 && before != 0)
        rc = fifo_force(b, did);
    if (rc == 0 && atomic_load_explicit(&b->dirty, memory_order_relaxed) == 0)
        cleaner_has_room(b);
    if (rc != 0) {
        if (rc != COHORT_EFULL)
            fifo_drop(b); /* no step will publish it; C5 */
        cleaner_failed(b, rc);
    }
    return rc;
}

int
buf_clean_step(struct buf *b, lsn_t before, bool *did)
{
    int rc;

    *did = false;
    rt_lock(&b->cleaner.lock);
    rc = step_locked(b, before, did);
    rt_unlock(&b->cleaner.lock);
    return rc;
}

static int
cleaner_drain(struct buf *b)
{
    bool did = false;
    int rc;

    rt_lock(&b->cleaner.lock);
    rc = fifo_force(b, &did);
    if (rc != 0)
        cleaner_failed(b, rc);
    rt_unlock(&b->cleaner.lock);
    return rc;
}

int
buf_clean_until(struct buf *b, lsn_t before)
{
    bool did;
    bool more;
    int rc;

    for (;;) {
        rt_lock(&b->cleaner.lock);
        did = false;
        rc = step_locked(b, before, &did);
        more = b->cleaner.chosen != 0;
        rt_unlock(&b->cleaner.lock);
        if (rc == 0 && !more)
            rc = cleaner_drain(b);
        if (rc != 0)
            return rc;
        if (more)
            continue;
        if (frames_oldest(b) >=
            before) /* a scan of all frames: only after a sweep that found none */
            break;
        rt_sleep_ns(CLEANER_LATCHED_NS);
    }
    rc = settle_flush(b);
    if (rc != 0)
        cleaner_failed(b, rc);
    return rc;
}

/* ---- the thread, and waiting for it ---- */

void
cleaner_wake(struct buf *b)
{
    if (!atomic_load_explicit(&b->running, memory_order_relaxed) ||
        atomic_load_explicit(&b->wake, memory_order_relaxed) ||
        atomic_exchange_explicit(&b->wake, true, memory_order_relaxed))
        return;
    rt_lock(&b->free_lock);
    rt_signal(&b->cleaner_wake);
    rt_unlock(&b->free_lock);
}

int
cleaner_help(struct buf *b)
{
    bool did = false;
    int rc = buf_error(b);

    if (rc != 0 && rc != COHORT_EFULL) {
        rt_sleep_ns(CLEANER_HELP_NS); /* it will not help any more; unlatching may */
        return 0;
    }
    rc = 0;
    (void)atomic_fetch_add_explicit(&b->waiters, 1, memory_order_relaxed);
    if (atomic_load_explicit(&b->running, memory_order_relaxed)) {
        cleaner_wake(b);
        rt_lock(&b->free_lock);
        (void)rt_wait_for(&b->frames_freed, &b->free_lock, CLEANER_HELP_NS);
        rt_unlock(&b->free_lock);
    } else {
        rc = buf_clean_step(b, 0, &did);
        if (rc == 0 && !did)
            rt_sleep_ns(CLEANER_HELP_NS / 20);
    }
    (void)atomic_fetch_sub_explicit(&b->waiters, 1, memory_order_relaxed);
    return rc;
}

/* Sleeps until there may be work; false: stop. */
static bool
cleaner_pause(struct buf *b, int rc, bool did)
{
    bool go;

    rt_lock(&b->free_lock);
    if (!b->stop && rc != 0)
        (void)rt_wait_for(&b->cleaner_wake, &b->free_lock, CLEANER_RETRY_NS);
    else if (!b->stop && !did && !atomic_load_explicit(&b->wake, memory_order_relaxed))
        (void)rt_wait_for(&b->cleaner_wake, &b->free_lock, CLEANER_IDLE_NS);
    atomic_store_explicit(&b->wake, false, memory_order_relaxed);
    go = !b->stop;
    rt_unlock(&b->free_lock);
    return go;
}

static void
cleaner_main(void *arg)
{
    struct buf *b = arg;
    bool did;
    int rc;

    do {
        rc = buf_clean_step(b, 0, &did); /* remembered by the step */
    } while (cleaner_pause(b, rc, did));
}

int
buf_start(struct buf *b)
{
    int rc;

    if (!b->background)
        return 0;
    CH_ASSERT(!atomic_load_explicit(&b->running, memory_order_relaxed));
    b->stop = false;
    rc = rt_spawn(&b->thread, "cohort-cleaner", cleaner_main, b);
    if (rc == 0)
        atomic_store_explicit(&b->running, true, memory_order_relaxed);
    return rc;
}

static void
cleaner_join(struct buf *b)
{
    if (!atomic_load_explicit(&b->running, memory_order_relaxed))
        return;
    rt_lock(&b->free_lock);
    b->stop = true;
    rt_signal(&b->cleaner_wake);
    rt_unlock(&b->free_lock);
    rt_join(&b->thread);
    atomic_store_explicit(&b->running, false, memory_order_relaxed);
}

void
buf_stop(struct buf *b)
{
    cleaner_join(b);
    if (buf_error(b) == 0 || buf_error(b) == COHORT_EFULL)
        (void)!cleaner_drain(b); /* a failure is remembered, and has emptied the fifo as well */
    rt_lock(&b->cleaner.lock);
    fifo_drop(b);
    rt_unlock(&b->cleaner.lock);
}

void
cleaner_destroy(struct buf *b)
{
    cleaner_join(b);
    fifo_drop(b);
    ch_free_aligned(b->cleaner.staging);
}
