/* buf_test.c - the page cache, one caller's thread: model, log rules, ends of pages, errors. */
#include "buf/buf_test_rig.h"

/* Goal: pages come back from the store as they were; the checkpoint leaves nothing dirty.
 * Method: ten times more pages than frames, random changes, ends and births, reopen, compare. */
static void
run_model(struct zt *t, bool deltas)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 48, 16, 100, false, false, deltas};
    struct buf_counts c;
    struct store_counts sc;

    o.background = zt_below(t, 2) == 0;
    o.frames = 16 + (unsigned)zt_below(t, 100);
    rig_open(&r, t, &o);
    fill_slots(&r, 500);
    for (unsigned i = 0; i < 3000; i++) {
        struct slot *s = &r.slots[zt_below(t, r.slot_count)];

        if (slot_pid(s) == 0)
            ZT_OK(t, page_create(&r, s));
        else if (zt_below(t, 10) == 0)
            ZT_OK(t, page_end(&r, s));
        else if (zt_below(t, 2) == 0)
            ZT_OK(t, page_change(&r, s));
        else
            ZT_OK(t, page_verify(&r, s));
        if (i % 256 == 0)
            ZT_OK(t, checkpoint(&r));
    }
    verify_all(&r);
    buf_stop(r.buf);
    check_frames(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    buf_counts(r.buf, &c);
    ZT_CHECK(t, c.dirty == 0 && c.dirty_new == 0 && c.evictions > 0 && c.cleaned > 0);
    ZT_CHECK(t, c.hits > 0 && c.misses > 0);
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == CH_LSN_MAX);
    check_frames(&r);
    store_counts(r.store, &sc);
    ZT_CHECK(t, deltas == (sc.delta_writes > 0) && deltas == (sc.delta_reads > 0));
    rig_reopen_buf(&r);
    verify_all(&r);
    rig_close(&r);
}

static void
test_model(struct zt *t)
{
    run_model(t, false);
}

/* Goal: what is read back from base and delta is the page, whatever changed when, beside the cleaner's copies and after
 * writes that were given up (H1). */
static void
test_model_delta(struct zt *t)
{
    run_model(t, true);
}

/* What a crash would find, seen from outside: the published images, and a log from some LSN. */
struct snapshot {
    lsn_t end; /* of the log when it was taken */
    lsn_t page_lsn[32];
};

static void
snapshot_take(struct rig *r, struct snapshot *s)
{
    static _Alignas(4096) uint8_t page[CH_PAGE_BYTES];

    s->end = wal_end(r->wal);
    for (unsigned i = 0; i < r->slot_count; i++) {
        int rc = store_read(r->store, slot_pid(&r->slots[i]), page);

        ZT_CHECK(r->t, rc == 0 || rc == COHORT_NOTFOUND);
        s->page_lsn[i] = rc == 0 ? page_lsn(page) : 0;
        /* S2: nothing reaches the device before its log. */
        ZT_CHECK(r->t, s->page_lsn[i] <= wal_durable(r->wal));
    }
}

enum {
    OLD_PAGES = 24,
    OLD_STEPS = 400
};
struct change {
    unsigned slot;
    lsn_t start;
    lsn_t end;
};

/* Goal: R2 and R3. Every change that a durably published image lacks lies at or above buf_oldest_dirty().
 * Method: images as published after each random step; the newest of these that the log was made durable behind is what
 * a crash would find. Every change since is compared with it. A step that both publishes and flushes may have done it in
 * this order, so what it published passes as durable. */
static void
test_oldest_dirty(struct zt *t)
{
    static struct rig r;
    static struct snapshot snaps[OLD_STEPS + 1];
    static struct change changes[OLD_STEPS];
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    unsigned count = 0;
    unsigned durable = 0;
    unsigned useful = 0;
    lsn_t saved[OLD_PAGES] = {0};

    rig_open(&r, t, &o);
    fill_slots(&r, OLD_PAGES);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    snapshot_take(&r, &snaps[0]);
    for (unsigned i = 1; i <= OLD_STEPS; i++) {
        struct change c = {(unsigned)zt_below(t, OLD_PAGES), wal_end(r.wal), 0};
        bool did = false;
        lsn_t oldest;
        lsn_t was_durable = wal_durable(r.wal);

        switch (zt_below(t, 8)) {
        case 0:
            ZT_OK(t, buf_clean_step(r.buf, zt_below(t, 2) == 0 ? c.start : CH_LSN_MAX, &did));
            break;
        case 1:
            ZT_OK(t, zt_below(t, 2) == 0 ? wal_flush(r.wal, c.start) : wal_flush_force(r.wal));
            break;
        default:
            ZT_OK(t, page_change(&r, &r.slots[c.slot]));
            c.end = wal_end(r.wal);
            changes[count++] = c;
        }
        oldest = buf_oldest_dirty(r.buf);
        useful += oldest != CH_LSN_MAX && count > 0 && oldest > changes[0].start;
        snapshot_take(&r, &snaps[i]);
        while (durable < i && snaps[durable + 1].end <= wal_durable(r.wal))
            durable++;
        for (unsigned p = 0; p < OLD_PAGES; p++)
            saved[p] = ch_max_u64(saved[p], did && wal_durable(r.wal) > was_durable
                                                ? snaps[i].page_lsn[p]
                                                : snaps[durable].page_lsn[p]);
        for (unsigned k = 0; k < count; k++)
            ZT_CHECK(t, changes[k].end <= saved[changes[k].slot] || oldest <= changes[k].start);
    }
    ZT_CHECK(t, useful > 0); /* it does move on */
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == CH_LSN_MAX);
    rig_close(&r);
}

/* Goal: published and not durable still counts (C4); then it does not.
 * Method: write a batch by hand, flush it, publish it, look; flush the log, look. */
static void
test_settling(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    bool did = false;
    lsn_t first;

    rig_open(&r, t, &o);
    first = wal_end(r.wal);
    fill_slots(&r, 4);
    ZT_OK(t, buf_clean_step(r.buf, CH_LSN_MAX, &did)); /* written */
    ZT_CHECK(t, did && r.buf->writing == 4);
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == first);
    ZT_OK(t, buf_clean_step(r.buf, CH_LSN_MAX, &did)); /* flushed, published */
    ZT_CHECK(t, did && r.buf->dirty == 0);
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == first);
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == CH_LSN_MAX);
    /* S9: a change while the write is in flight keeps the page dirty, from there on. */
    ZT_OK(t, page_change(&r, &r.slots[0]));
    first = wal_end(r.wal);
    ZT_OK(t, buf_clean_step(r.buf, CH_LSN_MAX, &did));
    ZT_CHECK(t, r.buf->writing == 1);
    first = wal_end(r.wal);
    ZT_OK(t, page_change(&r, &r.slots[0]));
    ZT_CHECK(t, buf_oldest_dirty(r.buf) < first);
    ZT_OK(t, wal_flush_force(r.wal));
    ZT_OK(t, buf_clean_step(r.buf, 1, &did)); /* publishes, writes nothing */
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_CHECK(t, did && r.buf->writing == 0 && r.buf->dirty == 1);
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == first);
    rig_close(&r);
}

/* Goal: ends of pages: a page that ends while a write of it is in flight, and one that never was formatted; ids
 * come back and hold a new page, whatever a stale reader did. */
static void
test_page_ends(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    struct buf_ref ref = {0};
    bool did = false;
    page_id pid;

    rig_open(&r, t, &o);
    fill_slots(&r, 4);
    pid = slot_pid(&r.slots[0]);
    ZT_OK(t, buf_clean_step(r.buf, CH_LSN_MAX, &did));
    ZT_CHECK(t, r.buf->writing == 4);
    ZT_OK(t, page_end(&r, &r.slots[0]));
    ZT_CHECK(t, map_pid_is_used(store_map(r.store), pid)); /* R9: the write comes first */
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, !map_pid_is_used(store_map(r.store), pid));
    ZT_STATUS(t, buf_fix(r.buf, pid, BUF_SHARED, &ref), COHORT_NOTFOUND);
    ZT_STATUS(t, buf_fix(r.buf, PAGES_MAX, BUF_SHARED, &ref), COHORT_NOTFOUND);
    ZT_STATUS(t, buf_fix(r.buf, 0, BUF_SHARED, &ref), COHORT_NOTFOUND);
    ZT_OK(t, page_create(&r, &r.slots[0]));
    ZT_CHECK(t, slot_pid(&r.slots[0]) == pid);

    ZT_OK(t, buf_new(r.buf, &ref)); /* and nothing comes of it */
    pid = ref.pid;
    buf_unfix(r.buf, &ref);
    ZT_CHECK(t, r.buf->dirty_new == 2 && buf_is_resident(r.buf, pid));
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, r.buf->dirty_new == 0 && !buf_is_resident(r.buf, pid));
    ZT_CHECK(t, !map_pid_is_used(store_map(r.store), pid));
    check_frames(&r);
    verify_all(&r);
    rig_close(&r);
}

/* Goal: a page that is latched unread comes to its end without being read; unlatched unchanged, it is as before, whether it was
 * in memory or not; what is cached can be peeked at, and nothing else. */
static void
test_unread(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    struct wal_ticket ticket = {0};
    struct buf_counts before, after;
    struct buf_peek peek;
    struct buf_ref ref = {0};
    page_id pid;

    rig_open(&r, t, &o);
    fill_slots(&r, 4);
    pid = slot_pid(&r.slots[1]);
    ZT_CHECK(t, buf_peek_cached(r.buf, pid, &peek) && body_good(peek.page, pid));
    ZT_OK(t, buf_fix_unread(r.buf, pid, &ref)); /* in memory, and dirty */
    ZT_CHECK(t, body_good(ref.page, pid) && !buf_peek_cached(r.buf, pid, &peek));
    buf_unfix(r.buf, &ref);
    verify_all(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    rig_reopen_buf(&r);

    ZT_CHECK(t, !buf_is_cached(r.buf, pid) && !buf_peek_cached(r.buf, pid, &peek));
    buf_counts(r.buf, &before);
    ZT_OK(t, buf_fix_unread(r.buf, pid, &ref));
    buf_counts(r.buf, &after);
    ZT_CHECK(t, after.misses == before.misses && page_pid(ref.page) == 0);
    buf_unfix(r.buf, &ref);
    ZT_CHECK(t, !buf_is_cached(r.buf, pid));
    verify_all(&r);
    rig_reopen_buf(&r);

    ZT_OK(t, page_reserve(&r, &ticket));
    ZT_OK(t, buf_fix_unread(r.buf, pid, &ref));
    buf_will_change(r.buf, &ref);
    page_init(ref.page, pid, PAGE_FREE, 0, 0);
    page_set_lsn(ref.page, wal_end(r.wal));
    buf_mark_free(r.buf, &ref);
    buf_unfix(r.buf, &ref);
    wal_release(r.wal, &ticket);
    ZT_CHECK(t, r.buf->dirty_new == 0 && map_pid_is_used(store_map(r.store), pid));
    atomic_store_explicit(&r.slots[1].pid, 0, memory_order_relaxed);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, !map_pid_is_used(store_map(r.store), pid));
    ZT_CHECK(t, map_get(store_map(r.store), pid) == PLACE_NONE);
    check_frames(&r);
    verify_all(&r);
    rig_close(&r);
}

/* Goal: an id that is given out again before the cleaner is done with the end of its former page.
 * Method: the cleaner's calls by hand, with buf_new()'s in between. */
static void
test_id_reused_at_once(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    struct frame *fr;
    struct buf_ref ref = {0};

    rig_open(&r, t, &o);
    fill_slots(&r, 1);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_OK(t, buf_fix(r.buf, slot_pid(&r.slots[0]), BUF_EXCLUSIVE, &ref));
    fr = &r.buf->frames[ref.frame];
    buf_will_change(r.buf, &ref);
    page_init(ref.page, ref.pid, PAGE_FREE, 0, 0);
    buf_mark_free(r.buf, &ref);
    ZT_CHECK(t, frame_write_begin(r.buf, ref.frame) && !frame_write_begin(r.buf, ref.frame));
    frame_renew(r.buf, ref.frame);
    frame_write_done(r.buf, ref.frame, true, false);
    ZT_CHECK(t, frame_flags(fr) == (FRAME_DIRTY | FRAME_NEW) && r.buf->dirty_new == 1);
    page_init(ref.page, ref.pid, PAGE_LEAF, 0, TREE);
    body_fill(ref.page, r.slots[0].counter);
    buf_unfix(r.buf, &ref);
    check_frames(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    check_frames(&r);
    verify_all(&r);
    rig_close(&r);
}

/* Goal: a version stands over reads and the cleaner's copy, and falls with a change, an end, an eviction. */
static void
test_peek_versions(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    struct buf_peek p;
    page_id pid;
    uint32_t f;

    rig_open(&r, t, &o);
    fill_slots(&r, 3);
    pid = slot_pid(&r.slots[0]);
    ZT_OK(t, buf_peek(r.buf, pid, &p));
    ZT_CHECK(t, body_good(p.page, pid) && buf_peek_valid(r.buf, &p));
    ZT_OK(t, page_verify(&r, &r.slots[0]));
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, buf_peek_valid(r.buf, &p)); /* C6 */
    ZT_OK(t, page_change(&r, &r.slots[0]));
    ZT_CHECK(t, !buf_peek_valid(r.buf, &p));

    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_OK(t, buf_peek(r.buf, pid, &p));
    f = table_find(r.buf, pid)->frame1 - 1;
    r.buf->frames[f].pid =
        slot_pid(&r.slots[1]); /* as if it had changed hands since it was looked at */
    ZT_CHECK(t, !frame_try_evict(r.buf, f));
    r.buf->frames[f].pid = pid;
    ZT_CHECK(t, frame_try_evict(r.buf, f));
    frame_put(r.buf, f);
    ZT_CHECK(t, !buf_peek_valid(r.buf, &p));
    ZT_OK(t, buf_peek(r.buf, pid, &p)); /* reads it in again */
    ZT_CHECK(t, body_good(p.page, pid) && buf_peek_valid(r.buf, &p));

    ZT_OK(t, page_end(&r, &r.slots[0]));
    ZT_CHECK(t, !buf_peek_valid(r.buf, &p));
    rig_close(&r);
}

/* Goal: destroying the cache drops what was written and not published: slots are nobody's, pages as before.
 * And a page that is written twice has a history. */
static void
test_drop(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    struct zone_info info;
    struct buf_ref ref = {0};
    bool did = false;

    rig_open(&r, t, &o);
    fill_slots(&r, 4);
    for (unsigned i = 0; i < 2; i++) {
        ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
        ZT_OK(t, page_change(&r, &r.slots[1]));
    }
    ZT_OK(t, buf_fix(r.buf, slot_pid(&r.slots[1]), BUF_SHARED, &ref));
    ZT_CHECK(t, page_death_time(ref.page, wal_end(r.wal)) != CH_LSN_MAX);
    buf_unfix(r.buf, &ref);
    ZT_OK(t, buf_clean_step(r.buf, CH_LSN_MAX, &did));
    ZT_CHECK(t, did && r.buf->writing == 1);
    buf_destroy(r.buf);
    for (zone_id z = 0; z < zone_count(store_zones(r.store)); z++) {
        zone_info(store_zones(r.store), z, &info);
        ZT_CHECK(t, info.inflight == 0);
    }
    rig_open_buf(&r);
    r.slots[1].counter--;
    verify_all(&r);
    rig_close(&r);
}

/* Goal: recovery's fix: an absent page is zeroes and leaves no trace unless it is changed. */
static void
test_fix_any(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, true, false, false};
    struct wal_ticket ticket = {0};
    struct buf_ref ref = {0};
    bool found = true;

    rig_open(&r, t, &o);
    ZT_OK(t, buf_fix_any(r.buf, 77, &ref, &found));
    ZT_CHECK(t, !found && page_pid(ref.page) == 0 && page_lsn(ref.page) == 0);
    buf_unfix(r.buf, &ref);
    ZT_STATUS(t, buf_fix(r.buf, 77, BUF_SHARED, &ref), COHORT_NOTFOUND);
    ZT_OK(t, buf_fix_any(r.buf, 77, &ref, &found));
    ZT_OK(t, page_reserve(&r, &ticket));
    change_latched(&r, &ref, &r.slots[0], true, &ticket);
    wal_release(r.wal, &ticket);
    atomic_store_explicit(&r.slots[0].pid, 77, memory_order_relaxed);
    buf_unfix(r.buf, &ref);
    ZT_CHECK(t, buf_is_resident(r.buf, 77));
    r.slot_count = 1;
    verify_all(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, !buf_is_resident(r.buf, 77));
    buf_stop(r.buf);
    check_frames(&r);
    rig_reopen_buf(&r);
    ZT_OK(t, buf_fix_any(r.buf, 77, &ref, &found));
    ZT_CHECK(t, found);
    buf_unfix(r.buf, &ref);
    verify_all(&r);
    buf_stop(r.buf);
    check_frames(&r);
    rig_close(&r);
}

/* Goal: while records are redone, pages are dirty since their record, not since the log's end. */
static void
test_redo_bound(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false, false};
    lsn_t end;

    rig_open(&r, t, &o);
    fill_slots(&r, 2);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    end = wal_end(r.wal);
    buf_redo_bound(r.buf, 4096);
    ZT_OK(t, page_change(&r, &r.slots[0]));
    ZT_CHECK(t, buf_oldest_dirty(r.buf) == 4096);
    buf_redo_bound(r.buf, 0);
    ZT_OK(t, page_change(&r, &r.slots[1]));
    ZT_OK(t, buf_clean_until(r.buf, 4097));
    ZT_CHECK(t, buf_oldest_dirty(r.buf) > end);
    rig_close(&r);
}

/* Goal: try_fix never waits, and reads the page in. prefetch brings pages in, once, and tolerates nonsense. */
static void
test_try_and_prefetch(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 128, 8, 100, false, false, false};
    struct buf_ref ref = {0};
    struct buf_ref second = {0};
    struct buf_counts before;
    struct buf_counts after;
    page_id pids[20];

    rig_open(&r, t, &o);
    fill_slots(&r, 16);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    rig_reopen_buf(&r);
    pids[0] = slot_pid(&r.slots[15]);
    ZT_STATUS(t, buf_try_fix(r.buf, pids[0], BUF_EXCLUSIVE, &ref), COHORT_ERETRY);
    ZT_OK(t, buf_try_fix(r.buf, pids[0], BUF_EXCLUSIVE, &ref));
    ZT_STATUS(t, buf_try_fix(r.buf, pids[0], BUF_SHARED, &second), COHORT_ERETRY);
    for (unsigned i = 0; i < 16; i++) /* [15] is latched, the last four are doubles and nonsense */
        pids[i] = slot_pid(&r.slots[i]);
    pids[16] = pids[0];
    pids[17] = 0;
    pids[18] = PAGES_MAX + 5;
    pids[19] = PAGES_MAX - 1;
    buf_counts(r.buf, &before);
    buf_prefetch(r.buf, pids + 4, 16); /* an eighth of the frames */
    buf_prefetch(r.buf, pids, 4);
    buf_counts(r.buf, &after);
    ZT_CHECK(t, after.misses - before.misses == 15);
    buf_unfix(r.buf, &ref);
    for (unsigned i = 0; i < 2;
         i++) { /* the first use is what it was read for, the second makes it hot */
        struct frame *fr = &r.buf->frames[table_find(r.buf, pids[1])->frame1 - 1];

        ZT_CHECK(t, fr->ref == (i == 0 ? REF_PREFETCHED : REF_COLD));
        verify_all(&r);
        ZT_CHECK(t, fr->ref == (i == 0 ? REF_COLD : REF_HOT));
    }
    buf_counts(r.buf, &before);
    ZT_CHECK(t, before.misses == after.misses);
    check_frames(&r);
    rig_close(&r);
}

/* Goal: a fix fails when the caller holds every frame, and works again after. */
static void
test_all_frames_latched(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 16, 8, 100, false, false, false};
    struct buf_ref refs[BUF_FRAMES_MIN];
    struct buf_ref ref = {0};

    o.background = zt_below(t, 2) == 0;
    rig_open(&r, t, &o);
    fill_slots(&r, 40);
    r.buf->patience_ns = UINT64_C(50000000);
    for (unsigned i = 0; i < BUF_FRAMES_MIN; i++)
        ZT_OK(t, buf_fix(r.buf, slot_pid(&r.slots[i]), BUF_SHARED, &refs[i]));
    ZT_STATUS(t, buf_fix(r.buf, slot_pid(&r.slots[20]), BUF_SHARED, &ref), COHORT_ENOMEM);
    ZT_STATUS(t, buf_new(r.buf, &ref), COHORT_ENOMEM);
    for (unsigned i = 0; i < BUF_FRAMES_MIN; i++)
        buf_unfix(r.buf, &refs[i]);
    r.buf->patience_ns = BUF_PATIENCE_NS;
    verify_all(&r);
    rig_close(&r);
}

/* Goal: pages that no one touches are not written while there are clean frames to evict.
 * Method: few dirty pages among many that are only read: steps must not write. */
static void
test_no_needless_writes(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 512, 16, 100, false, false, false};
    struct store_counts before;
    struct store_counts after;
    bool did;

    rig_open(&r, t, &o);
    fill_slots(&r, 300);
    for (unsigned i = 0; i < 10; i++)
        ZT_OK(t, buf_clean_step(r.buf, 0, &did));
    store_counts(r.store, &before);
    ZT_CHECK(t, before.page_writes == 0);
    for (unsigned i = 0; i < 2000; i++) { /* everything fits: no page need ever be written */
        ZT_OK(t, page_change(&r, &r.slots[zt_below(t, 300)]));
        if (i % 64 == 0)
            ZT_OK(t, buf_clean_step(r.buf, 0, &did));
    }
    store_counts(r.store, &after);
    ZT_CHECK(t, after.page_writes == before.page_writes);
    verify_all(&r);
    rig_close(&r);
}

/* ---- a full store, a failing device ---- */

/* Goal: a full store is an error, not a hang; reads go on; deletes make room again. */
static void
test_full(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=8M,superblock=256K", 64, 8, 12, false, false, false};
    int rc = 0;

    o.background = zt_below(t, 2) == 0;
    rig_open(&r, t, &o);
    while (r.slot_count < SLOTS_MAX && rc == 0) {
        rc = page_create(&r, &r.slots[r.slot_count]);
        r.slot_count += rc == 0;
        if (rc == 0 && r.slot_count % 64 == 0)
            rc = checkpoint(&r); /* may find that the pages pack badly */
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    verify_all(&r);
    for (unsigned i = 0; i < r.slot_count; i += 2)
        ZT_OK(t, page_end(&r, &r.slots[i]));
    ZT_OK(t, checkpoint(&r));
    ZT_CHECK(t, buf_error(r.buf) == 0);
    ZT_OK(t, page_create(&r, &r.slots[0]));
    verify_all(&r);
    ZT_OK(t, checkpoint(&r));
    check_frames(&r);
    rig_close(&r);
}

/* Goal: after the device failed, the error is reported and stays, nothing hangs, nothing leaks; what was
 * published before can still be read once the device reads again. */
static void
test_device_errors(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 40, 8, 100, false, true, false};
    struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_forever = true};
    struct dev_fault_plan none = {0};
    enum dev_op op = zt_below(t, 2) == 0 ? DEV_WRITE : DEV_FLUSH;
    int rc = 0;

    o.background = zt_below(t, 2) == 0;
    rig_open(&r, t, &o);
    fill_slots(&r, 200);
    plan.fail_nth[op] = 1 + zt_below(t, 20);
    dev_fault_set(r.dev, &plan);
    r.buf->patience_ns = UINT64_C(100000000);
    for (unsigned i = 0; i < 2000 && rc == 0; i++) {
        rc = page_change(&r, &r.slots[zt_below(t, r.slot_count)]);
        if (rc == 0 && i % 200 == 0)
            rc = checkpoint(&r);
    }
    ZT_CHECK(t, rc == COHORT_EFAILED || rc == COHORT_EIO);
    if (!wal_failed(r.wal)) { /* the cleaner's own */
        ZT_CHECK(t, buf_error(r.buf) != 0);
        ZT_STATUS(t, buf_admit(r.buf, false), buf_error(r.buf));
    }
    ZT_CHECK(t, buf_clean_until(r.buf, CH_LSN_MAX) != 0);
    ZT_CHECK(t, atomic_load_explicit(&r.buf->writing, memory_order_relaxed) == 0); /* C5 */
    ZT_CHECK(t, buf_error(r.buf) != 0 && r.buf->error_text[0] != '\0');
    dev_fault_set(r.dev, &none);
    ZT_CHECK(t, buf_clean_until(r.buf, CH_LSN_MAX) != 0); /* sticky */
    buf_stop(r.buf);
    check_frames(&r);
    ZT_CHECK(t, r.buf->writing == 0);
    ZT_CHECK(t, atomic_load_explicit(&r.bad, memory_order_relaxed) == 0);
    rig_close(&r);
}

/* Goal: a page that cannot be read is that fix's error only. */
static void
test_read_error(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, true, false};
    struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_nth = {[DEV_READ] = 1}};
    struct buf_ref ref = {0};

    rig_open(&r, t, &o);
    fill_slots(&r, 10);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    rig_reopen_buf(&r);
    dev_fault_set(r.dev, &plan);
    ZT_STATUS(t, buf_fix(r.buf, slot_pid(&r.slots[3]), BUF_EXCLUSIVE, &ref), COHORT_EIO);
    check_frames(&r);
    verify_all(&r);
    rig_close(&r);
}

static const struct zt_case CASES[] = {
    {"model", test_model, 12},
    {"model_delta", test_model_delta, 12},
    {"oldest_dirty", test_oldest_dirty, 20},
    {"settling", test_settling, 1},
    {"page_ends", test_page_ends, 1},
    {"unread", test_unread, 1},
    {"id_reused_at_once", test_id_reused_at_once, 1},
    {"peek_versions", test_peek_versions, 1},
    {"drop", test_drop, 1},
    {"fix_any", test_fix_any, 1},
    {"redo_bound", test_redo_bound, 1},
    {"try_and_prefetch", test_try_and_prefetch, 1},
    {"all_frames_latched", test_all_frames_latched, 4},
    {"no_needless_writes", test_no_needless_writes, 2},
    {"full", test_full, 6},
    {"device_errors", test_device_errors, 16},
    {"read_error", test_read_error, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "buf", CASES, CH_ARRAY_LEN(CASES));
}
