/* buf_test.c - the page cache over a real store and log on a simulated drive.
 *
 * Every page holds a counter, filler derived from (page, counter) and a checksum; the model knows each page's
 * counter. A change is logged as {page, counter}, as the layers above would.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "buf/buf_internal.h"
#include "dev/dev.h"
#include "page/page.h"
#include "wal/wal.h"
#include "zt/zt.h"

enum {
    PAGES_MAX = 4096,
    SLOTS_MAX = 1024,
    RECORD = 9, /* type; the log does not care */
    RECORD_BYTES = 16,
    TREE = 7,
    THREADS = 3,
};

struct slot {            /* a page of the model; changes under the page's X latch */
    _Atomic page_id pid; /* 0 = none; relaxed: checked again under the latch */
    uint64_t counter;
};

struct rig {
    struct zt *t;
    struct sim_drive *drive;
    struct dev *dev;
    struct store *store;
    struct wal *wal;
    struct buf *buf;
    struct buf_config cfg;
    struct slot slots[SLOTS_MAX];
    unsigned slot_count;
    _Atomic unsigned bad; /* findings of threads; relaxed, read after the join */
    _Atomic bool stop;    /* relaxed */
};

struct rig_options {
    const char *drive;
    unsigned frames;
    unsigned batch;
    unsigned zones;
    bool background;
    bool fault;
};

static void
rig_open_buf(struct rig *r)
{
    ZT_OK(r->t, buf_create(&r->cfg, &r->buf));
    ZT_OK(r->t, buf_start(r->buf));
}

static void
rig_open(struct rig *r, struct zt *t, const struct rig_options *o)
{
    struct wal_config wc = {.base = 64 << 10,
                            .bytes = 28 * (64 << 10),
                            .buffer_bytes = 256 << 10,
                            .db_id = 1,
                            .epoch = 1,
                            .start = 4096,
                            .cut = 4096,
                            .user_percent = 70};
    struct store_config sc = {.kind = STORE_OOP,
                              .codec = PACK_LZ4,
                              .codec_level = 1,
                              .zones_base = 2 << 20,
                              .zone_bytes = 256 << 10,
                              .zones = o->zones,
                              .zones_max = o->zones,
                              .pages_max = PAGES_MAX,
                              .batch_pages = o->batch,
                              .space_target = 140,
                              .discard = true};
    struct dev_fault_plan none = {0};

    memset(r, 0, sizeof(*r));
    r->t = t;
    ZT_OK(t, sim_drive_create(o->drive, &r->drive));
    ZT_OK(t, dev_sim_open(r->drive, &r->dev));
    if (o->fault)
        ZT_OK(t, dev_fault_open(r->dev, &none, &r->dev));
    wc.dev = r->dev;
    sc.dev = r->dev;
    ZT_OK(t, store_create(&sc, &r->store));
    ZT_OK(t, wal_create(&wc, &r->wal));
    store_set_wal(r->store, r->wal);
    ZT_OK(t, store_format(r->store));
    r->cfg = (struct buf_config){.store = r->store,
                                 .wal = r->wal,
                                 .cache_bytes = (uint64_t)o->frames * CH_PAGE_BYTES,
                                 .pages_max = PAGES_MAX,
                                 .batch_pages = o->batch,
                                 .background = o->background};
    rig_open_buf(r);
}

static void
rig_close(struct rig *r)
{
    buf_destroy(r->buf);
    wal_destroy(r->wal);
    store_destroy(r->store);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
}

/* Forgets the cache; what was not clean is gone. */
static void
rig_reopen_buf(struct rig *r)
{
    buf_stop(r->buf);
    buf_destroy(r->buf);
    rig_open_buf(r);
}

/* ---- pages ---- */

static void
body_fill(uint8_t *page, uint64_t counter)
{
    page_id pid = page_pid(page);
    uint64_t word = (pid << 32 | counter) * UINT64_C(0x9E3779B97F4A7C15);

    ch_put64(page + PAGE_HEADER_BYTES, counter);
    for (unsigned at = PAGE_HEADER_BYTES + 8; at < CH_PAGE_BYTES - 8; at += 8)
        ch_put64(page + at, at % 24 == 0 ? word * at : word);
    ch_put64(page + CH_PAGE_BYTES - 8,
             ch_crc32c(0, page + PAGE_HEADER_BYTES, CH_PAGE_BYTES - 8 - PAGE_HEADER_BYTES));
}

static bool
body_good(const uint8_t *page, page_id pid)
{
    return page_pid(page) == pid && page_type(page) == PAGE_LEAF &&
           ch_get64(page + CH_PAGE_BYTES - 8) ==
               ch_crc32c(0, page + PAGE_HEADER_BYTES, CH_PAGE_BYTES - 8 - PAGE_HEADER_BYTES);
}

static uint64_t
body_counter(const uint8_t *page)
{
    return ch_get64(page + PAGE_HEADER_BYTES);
}

static page_id
slot_pid(const struct slot *s)
{
    return atomic_load_explicit(&s->pid, memory_order_relaxed);
}

static lsn_t
log_change(struct rig *r, struct wal_ticket *ticket, page_id pid, uint64_t counter)
{
    uint64_t data[2] = {pid, counter};
    struct wal_part part = {data, sizeof(data)};

    return wal_append(r->wal, ticket, RECORD, CH_WAL, &part, 1);
}

/* The X-latched page of the slot gets its next counter; type 0 = stay a leaf, else start as a new one. */
static void
change_latched(struct rig *r, struct buf_ref *ref, struct slot *s, bool fresh,
               struct wal_ticket *ticket)
{
    lsn_t lsn;

    buf_will_change(r->buf, ref);
    s->counter++;
    lsn = log_change(r, ticket, ref->pid, s->counter);
    if (fresh)
        page_init(ref->page, ref->pid, PAGE_LEAF, 0, TREE);
    page_set_lsn(ref->page, lsn);
    body_fill(ref->page, s->counter);
}

static int
page_reserve(struct rig *r, struct wal_ticket *ticket)
{
    return wal_reserve(r->wal, WAL_USER, RECORD_BYTES + WAL_RECORD_HEADER, ticket);
}

static int
page_change(struct rig *r, struct slot *s)
{
    struct wal_ticket ticket = {0};
    struct buf_ref ref = {0};
    page_id pid = slot_pid(s);
    int rc = buf_admit(r->buf, false);

    if (rc == 0)
        rc = page_reserve(r, &ticket);
    if (rc != 0)
        return rc;
    rc = buf_fix(r->buf, pid, BUF_EXCLUSIVE, &ref);
    if (rc == 0) {
        if (slot_pid(s) == pid) {
            if (!body_good(ref.page, pid) || body_counter(ref.page) != s->counter)
                (void)atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
            change_latched(r, &ref, s, false, &ticket);
        }
        buf_unfix(r->buf, &ref);
    }
    wal_release(r->wal, &ticket);
    return rc;
}

static int
page_create(struct rig *r, struct slot *s)
{
    struct wal_ticket ticket = {0};
    struct buf_ref ref = {0};
    int rc = buf_admit(r->buf, true);

    if (rc == 0)
        rc = page_reserve(r, &ticket);
    if (rc != 0)
        return rc;
    rc = buf_new(r->buf, &ref);
    if (rc == 0) {
        change_latched(r, &ref, s, true, &ticket);
        atomic_store_explicit(&s->pid, ref.pid, memory_order_relaxed);
        buf_unfix(r->buf, &ref);
    }
    wal_release(r->wal, &ticket);
    return rc;
}

static int
page_end(struct rig *r, struct slot *s)
{
    struct wal_ticket ticket = {0};
    struct buf_ref ref = {0};
    page_id pid = slot_pid(s);
    lsn_t lsn;
    int rc = buf_admit(r->buf, false);

    if (rc == 0)
        rc = page_reserve(r, &ticket);
    if (rc != 0)
        return rc;
    rc = buf_fix(r->buf, pid, BUF_EXCLUSIVE, &ref);
    if (rc == 0) {
        buf_will_change(r->buf, &ref);
        lsn = log_change(r, &ticket, pid, 0);
        page_init(ref.page, pid, PAGE_FREE, 0, 0);
        page_set_lsn(ref.page, lsn);
        buf_mark_free(r->buf, &ref);
        atomic_store_explicit(&s->pid, 0, memory_order_relaxed);
        buf_unfix(r->buf, &ref);
    }
    wal_release(r->wal, &ticket);
    return rc;
}

/* Any thread, any time: what a latched page shows is what the model says. */
static int
page_verify(struct rig *r, struct slot *s)
{
    struct buf_ref ref = {0};
    page_id pid = slot_pid(s);
    int rc;

    if (pid == 0)
        return 0;
    rc = buf_fix(r->buf, pid, BUF_SHARED, &ref);
    if (rc != 0)
        return rc == COHORT_NOTFOUND && slot_pid(s) != pid ? 0 : rc;
    if (slot_pid(s) == pid && (!body_good(ref.page, pid) || body_counter(ref.page) != s->counter))
        (void)atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
    buf_unfix(r->buf, &ref);
    return 0;
}

static void
fill_slots(struct rig *r, unsigned n)
{
    r->slot_count = n;
    for (unsigned i = 0; i < n; i++)
        ZT_OK(r->t, page_create(r, &r->slots[i]));
}

static void
verify_all(struct rig *r)
{
    for (unsigned i = 0; i < r->slot_count; i++)
        ZT_OK(r->t, page_verify(r, &r->slots[i]));
    ZT_CHECK(r->t, atomic_load_explicit(&r->bad, memory_order_relaxed) == 0);
}

static int
checkpoint(struct rig *r)
{
    lsn_t before = wal_end(r->wal);
    int rc = buf_clean_until(r->buf, before);
    lsn_t oldest = buf_oldest_dirty(r->buf);

    if (rc == 0)
        rc = wal_flush(r->wal, before);
    if (rc != 0)
        return rc;
    if (oldest < before)
        (void)atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
    wal_truncate(r->wal, ch_min_u64(before, oldest));
    return 0;
}

/* The invariants that must hold when nothing runs: F4, and with everything clean, nothing in flight. */
static void
check_frames(struct rig *r)
{
    struct buf *b = r->buf;
    uint32_t dirty = 0;
    uint32_t fresh = 0;
    uint32_t writing = 0;
    uint32_t empty = 0;

    for (uint32_t f = 0; f < b->frame_count; f++) {
        uint32_t fl = frame_flags(&b->frames[f]);
        page_id pid = b->frames[f].pid;

        dirty += (fl & FRAME_DIRTY) != 0;
        fresh += (fl & (FRAME_DIRTY | FRAME_NEW)) == (FRAME_DIRTY | FRAME_NEW);
        writing += (fl & FRAME_WRITING) != 0;
        empty += pid == 0;
        ZT_CHECK(r->t, pid == 0 || table_find(b, pid)->frame1 == f + 1); /* B1 */
        ZT_CHECK(r->t,
                 pid == 0 || (table_find(b, pid)->latch.word & (LATCH_X | LATCH_SHARED)) == 0);
        ZT_CHECK(r->t, ((fl & FRAME_DIRTY) != 0) == (b->frames[f].rec_lsn != CH_LSN_MAX));
    }
    ZT_CHECK(r->t, dirty == b->dirty && fresh == b->dirty_new && writing == b->writing);
    ZT_CHECK(r->t, empty == b->free_count);
}

/* ---- one thread ---- */

/* Goal: pages come back from the store as they were; the checkpoint leaves nothing dirty.
 * Method: ten times more pages than frames, random changes, ends and births, reopen, compare. */
static void
test_model(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 48, 16, 100, false, false};
    struct buf_counts c;

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
    rig_reopen_buf(&r);
    verify_all(&r);
    rig_close(&r);
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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

/* Goal: an id that is given out again before the cleaner is done with the end of its former page.
 * Method: the cleaner's calls by hand, with buf_new()'s in between. */
static void
test_id_reused_at_once(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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
    frame_write_done(r.buf, ref.frame, true);
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, true, false};
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
    rig_reopen_buf(&r);
    ZT_OK(t, buf_fix_any(r.buf, 77, &ref, &found));
    ZT_CHECK(t, found);
    buf_unfix(r.buf, &ref);
    verify_all(&r);
    buf_stop(r.buf);
    check_frames(&r);
    rig_close(&r);
}

/* Goal: try_fix never waits, and reads the page in. prefetch brings pages in, once, and tolerates nonsense. */
static void
test_try_and_prefetch(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 128, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 16, 8, 100, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 512, 16, 100, false, false};
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
    struct rig_options o = {"generic,bytes=8M,superblock=256K", 64, 8, 12, false, false};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 40, 8, 100, false, true};
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
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 64, 8, 100, false, true};
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

/* ---- threads ---- */

struct worker {
    struct rig *r;
    struct ch_prng rng;
    struct rt_thread thread;
    unsigned number;
    int rc;
    uint64_t valid;
};

/* Goal of peeks: a copy that is valid is whole. */
static int
page_peek(struct worker *k, struct slot *s)
{
    static _Thread_local uint8_t copy[CH_PAGE_BYTES];
    struct rig *r = k->r;
    struct buf_peek p;
    page_id pid = slot_pid(s);
    int rc;

    if (pid == 0)
        return 0;
    rc = buf_peek(r->buf, pid, &p);
    if (rc != 0)
        return rc == COHORT_NOTFOUND && slot_pid(s) != pid ? 0 : rc;
    memcpy(copy, p.page, CH_PAGE_BYTES);
    if (!buf_peek_valid(r->buf, &p))
        return 0;
    k->valid++;
    if (page_pid(copy) != pid || (page_type(copy) == PAGE_LEAF && !body_good(copy, pid)))
        (void)atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
    return 0;
}

static int
worker_step(struct worker *k)
{
    struct rig *r = k->r;
    unsigned i = (unsigned)ch_prng_below(&k->rng, r->slot_count);
    struct slot *s = &r->slots[i];
    bool owner = i % THREADS == k->number; /* of births and ends */
    unsigned what = (unsigned)ch_prng_below(&k->rng, 16);
    page_id pids[4];

    if (slot_pid(s) == 0)
        return owner ? page_create(r, s) : 0;
    if (what == 0)
        return owner ? page_end(r, s) : 0;
    if (what == 1) {
        for (unsigned j = 0; j < 4; j++)
            pids[j] = slot_pid(&r->slots[(i + j) % r->slot_count]);
        buf_prefetch(r->buf, pids, 4);
        return 0;
    }
    if (what < 6)
        return page_peek(k, s);
    if (what < 10)
        return page_verify(r, s);
    return owner || what < 13 ? page_change(r, s) : 0;
}

static void
worker_main(void *arg)
{
    struct worker *k = arg;

    for (unsigned i = 0; i < (k->number == THREADS ? 400 : 1500) && k->rc == 0; i++) {
        k->rc = worker_step(k);
        /* Another thread's end of the page came between: fine. */
        if (k->rc == COHORT_NOTFOUND)
            k->rc = 0;
    }
}

static void
checkpoint_main(void *arg)
{
    struct worker *k = arg;
    struct rig *r = k->r;

    while (!atomic_load_explicit(&r->stop, memory_order_relaxed) && k->rc == 0)
        if (wal_pressure(r->wal, 40, 2000000) || ch_prng_below(&k->rng, 8) == 0)
            k->rc = checkpoint(r);
}

static void
run_threads(struct rig *r, struct zt *t)
{
    static struct worker workers[THREADS + 1];

    for (unsigned i = 0; i <= THREADS; i++) {
        workers[i] = (struct worker){.r = r, .number = i};
        ch_prng_init(&workers[i].rng, t->seed * 17 + i);
        ZT_OK(t, rt_spawn(&workers[i].thread, "worker", i < THREADS ? worker_main : checkpoint_main,
                          &workers[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&workers[i].thread);
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    rt_join(&workers[THREADS].thread);
    for (unsigned i = 0; i <= THREADS; i++)
        ZT_STATUS(t, workers[i].rc, 0);
    ZT_CHECK(t, atomic_load_explicit(&r->bad, memory_order_relaxed) == 0);
}

/* Goal: no lost update, no torn read that counts, ids reused safely, with all of it at once: a cache much smaller
 * than the data, a cleaner (thread or callers), checkpoints. */
static void
test_threads(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 0, 8, 100, true, false};

    o.background = zt_below(t, 3) != 0;
    o.frames = 24 + (unsigned)zt_below(t, 100);
    rig_open(&r, t, &o);
    fill_slots(&r, 100 + (unsigned)zt_below(t, 200));
    run_threads(&r, t);
    buf_stop(r.buf);
    verify_all(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, r.buf->dirty == 0 && r.buf->dirty_new == 0);
    check_frames(&r);
    rig_reopen_buf(&r);
    verify_all(&r);
    ZT_CHECK(t, store_verify(r.store, NULL, NULL) == 0);
    rig_close(&r);
}

/* Goal: threads that ask for the same missing page at once get one frame of it between them.
 * Method: a slow device, a few pages more than frames. */
static void
test_load_races(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 16, 8, 100, false, true};
    struct dev_fault_plan slow = {.slow_ns = 20000};
    static struct worker workers[THREADS];

    rig_open(&r, t, &o);
    fill_slots(&r, 20);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    dev_fault_set(r.dev, &slow);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.r = &r, .number = THREADS}; /* no births, no ends */
        ch_prng_init(&workers[i].rng, t->seed * 13 + i);
        ZT_OK(t, rt_spawn(&workers[i].thread, "worker", worker_main, &workers[i]));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        rt_join(&workers[i].thread);
        ZT_STATUS(t, workers[i].rc, 0);
    }
    verify_all(&r);
    buf_stop(r.buf);
    check_frames(&r);
    rig_close(&r);
}

static const struct zt_case CASES[] = {
    {"model", test_model, 12},
    {"oldest_dirty", test_oldest_dirty, 20},
    {"settling", test_settling, 1},
    {"page_ends", test_page_ends, 1},
    {"id_reused_at_once", test_id_reused_at_once, 1},
    {"peek_versions", test_peek_versions, 1},
    {"drop", test_drop, 1},
    {"fix_any", test_fix_any, 1},
    {"try_and_prefetch", test_try_and_prefetch, 1},
    {"all_frames_latched", test_all_frames_latched, 4},
    {"no_needless_writes", test_no_needless_writes, 2},
    {"full", test_full, 6},
    {"device_errors", test_device_errors, 16},
    {"read_error", test_read_error, 1},
    {"threads", test_threads, 12},
    {"load_races", test_load_races, 6},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "buf", CASES, CH_ARRAY_LEN(CASES));
}
