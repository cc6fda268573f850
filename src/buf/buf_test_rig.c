/* buf_test_rig.c - see buf_test_rig.h. */
#include "buf/buf_test_rig.h"

void
rig_open_buf(struct rig *r)
{
    ZT_OK(r->t, buf_create(&r->cfg, &r->buf));
    ZT_OK(r->t, buf_start(r->buf));
}

void
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
                              .placement = PLACE_SEPGC,
                              .codec = PACK_LZ4,
                              .codec_level = 1,
                              .zones_base = 2 << 20,
                              .zone_bytes = 256 << 10,
                              .zones = o->zones,
                              .zones_max = o->zones,
                              .pages_max = PAGES_MAX,
                              .batch_pages = o->batch,
                              .space_target = 140,
                              .deltas = o->deltas,
                              .delta_percent = 90,
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

void
rig_close(struct rig *r)
{
    buf_destroy(r->buf);
    wal_destroy(r->wal);
    store_destroy(r->store);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
}

void
rig_reopen_buf(struct rig *r)
{
    buf_stop(r->buf);
    buf_destroy(r->buf);
    rig_open_buf(r);
}

/* ---- pages ---- */

void
body_fill(uint8_t *page, uint64_t counter)
{
    page_id pid = page_pid(page);
    uint64_t word = (pid << 32 | counter / 8) * UINT64_C(0x9E3779B97F4A7C15);

    /* Seven of eight changes are small: the counter, one word somewhere and the checksum. */
    ch_put64(page + PAGE_HEADER_BYTES, counter);
    for (unsigned at = PAGE_HEADER_BYTES + 8; at < CH_PAGE_BYTES - 8; at += 8)
        ch_put64(page + at, at % 24 == 0 ? word * at : word);
    ch_put64(page + PAGE_HEADER_BYTES + 8 + counter % 400 * 8, counter);
    ch_put64(page + CH_PAGE_BYTES - 8,
             ch_crc32c(0, page + PAGE_HEADER_BYTES, CH_PAGE_BYTES - 8 - PAGE_HEADER_BYTES));
}

bool
body_good(const uint8_t *page, page_id pid)
{
    return page_pid(page) == pid && page_type(page) == PAGE_LEAF &&
           ch_get64(page + CH_PAGE_BYTES - 8) ==
               ch_crc32c(0, page + PAGE_HEADER_BYTES, CH_PAGE_BYTES - 8 - PAGE_HEADER_BYTES);
}

uint64_t
body_counter(const uint8_t *page)
{
    return ch_get64(page + PAGE_HEADER_BYTES);
}

page_id
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

void
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

int
page_reserve(struct rig *r, struct wal_ticket *ticket)
{
    return wal_reserve(r->wal, WAL_USER, RECORD_BYTES + WAL_RECORD_HEADER, ticket);
}

int
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

int
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

int
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

int
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

void
fill_slots(struct rig *r, unsigned n)
{
    r->slot_count = n;
    for (unsigned i = 0; i < n; i++)
        ZT_OK(r->t, page_create(r, &r->slots[i]));
}

void
verify_all(struct rig *r)
{
    for (unsigned i = 0; i < r->slot_count; i++)
        ZT_OK(r->t, page_verify(r, &r->slots[i]));
    ZT_CHECK(r->t, atomic_load_explicit(&r->bad, memory_order_relaxed) == 0);
}

int
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

void
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
