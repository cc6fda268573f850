/* wal_flush.c - group commit: one leader at a time writes all that has gathered, then flushes.
 *
 *   leader:    seal [durable, pos) -> unlock -> checksums -> writes -> device flush -> lock -> publish
 *   others:    append above the seal meanwhile; whoever needs more than the leader's part waits, and
 *              the first of them to wake up leads the next group
 *
 * A group goes out as one vector of writes: one, plus one where it wraps around the end of the ring or enters another
 * segment, and one where it wraps around the end of the buffer; of more than WRITES_MAX segments, as several. The device
 * flush is submitted when they are done.
 *
 * The first failure ends the log (W6): what the device holds of the group is unknown, and a flush that
 * failed once proves nothing when it succeeds later. So all who wait, and all who come, get EFAILED
 * with the text of that failure.
 */
#include "base/bug.h"
#include "base/log.h"
#include "base/status.h"
#include "wal/wal_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    WRITES_MAX = 8
};

/* The zone that blocks of the segment with `lsn` name as the next one's. */
static zone_id
next_zone(struct wal *w, lsn_t lsn)
{
    return CH_BUG(LOG_NO_NEXT) ? CH_ZONE_NONE : wal_segment_at(w, lsn / w->segment_bytes + 1);
}

/* Blocks [from, to) are the leader's; no lock. */
static void
group_seal(struct wal *w, lsn_t from, lsn_t to, lsn_t end)
{
    zone_id next = CH_ZONE_NONE;

    for (lsn_t lsn = from; lsn < to; lsn += WAL_BLOCK) {
        size_t index = lsn / WAL_BLOCK % w->buf_blocks;
        struct wal_block b = {
            .lsn = lsn,
            .durable = from, /* R10: all below this group is durable */
            .epoch = w->epoch,
            .used = (uint16_t)ch_min_u64(WAL_BLOCK, end - lsn),
            .first = w->firsts[index],
            .db_id = w->db_id,
            .segment = w->segment_bytes != 0,
        };

        if (b.segment && (lsn == from || lsn % w->segment_bytes == 0))
            next = next_zone(w, lsn);
        b.next = next;
        wal_block_seal(w->buf + index * WAL_BLOCK, &b);
    }
}

/* Where the block at `lsn` goes, and how many of those behind it follow it there. */
static uint64_t
block_place(struct wal *w, lsn_t lsn, uint64_t *blocks)
{
    uint64_t index = lsn / WAL_BLOCK % w->ring_blocks;
    zone_id z;

    if (w->segment_bytes == 0) {
        *blocks = w->ring_blocks - index + CH_BUG(WAL_WRAP);
        return w->base + index * WAL_BLOCK;
    }
    z = wal_segment_at(w, lsn / w->segment_bytes);
    CH_ASSERT(z != CH_ZONE_NONE); /* wal_segments_extend() */
    *blocks = (w->segment_bytes - lsn % w->segment_bytes) / WAL_BLOCK;
    return w->base + z * w->segment_bytes + lsn % w->segment_bytes;
}

/* Requests for the blocks from *from on, which moves; as many as WRITES_MAX reach. */
static unsigned
group_requests(struct wal *w, lsn_t *from, lsn_t to, uint64_t *meta, struct dev_req *reqs)
{
    unsigned n = 0;

    while (*from < to && n < WRITES_MAX) {
        uint64_t buf_index = *from / WAL_BLOCK % w->buf_blocks;
        struct dev_req *r = &reqs[n];
        uint64_t blocks;
        uint64_t part;

        memset(r, 0, sizeof(*r));
        r->op = DEV_WRITE;
        r->off = block_place(w, *from, &blocks);
        blocks = ch_min_u64(blocks, w->buf_blocks - buf_index);
        r->len = ch_min_u64(blocks, (to - *from) / WAL_BLOCK) * WAL_BLOCK;
        r->buf = w->buf + buf_index * WAL_BLOCK;
        part = ch_min_u64(*meta, r->len);
        *meta -= part;
        r->split[CH_META] = (uint32_t)part;
        r->split[CH_WAL] = (uint32_t)(r->len - part);
        *from += r->len;
        n++;
    }
    return n;
}

static int
group_write(struct wal *w, lsn_t from, lsn_t to, uint64_t meta)
{
    struct dev_req reqs[WRITES_MAX];
    struct dev_req flush = {.op = DEV_FLUSH};
    bool flushed = CH_BUG(WAL_NO_FLUSH);
    int rc = 0;

    if (CH_BUG(WAL_FLUSH_FIRST)) {
        flushed = true;
        dev_submit(w->queue, &flush, 1);
        rc = dev_wait(w->queue);
    }
    while (rc == 0 && from < to) {
        unsigned n = group_requests(w, &from, to, &meta, reqs);

        dev_submit(w->queue, reqs, n);
        rc = dev_wait(w->queue);
    }
    if (rc == 0 && !flushed) {
        dev_submit(w->queue, &flush, 1);
        rc = dev_wait(w->queue);
    }
    return rc;
}

static void
fail(struct wal *w, lsn_t from)
{
    const struct cohort_error *e = ch_last_error();

    (void)snprintf(w->fail_text, sizeof(w->fail_text), "log write at LSN %" PRIu64 ": %s", from,
                   e->text);
    w->failed = true;
    wal_pool_drain(w); /* W7 */
    ch_log(COHORT_LOG_ERROR, "%s; the database is read-only from now on", w->fail_text);
}

int
wal_fail_again(const struct wal *w)
{
    return CH_FAIL(COHORT_EFAILED, "%s", w->fail_text);
}

void
wal_lead(struct wal *w)
{
    lsn_t from = w->durable;
    lsn_t end = w->pos;
    lsn_t to = ch_round_up(end, WAL_BLOCK);
    uint64_t meta = w->meta_bytes;
    uint64_t number = ++w->flush_started;
    int rc;

    CH_ASSERT(!w->busy && !w->failed && w->sealed == w->durable);
    w->busy = true;
    w->pos = w->sealed = to; /* W2 */
    w->meta_bytes = 0;
    w->counts.flushes++;
    w->counts.padding_bytes += to - end;
    wal_publish(w);
    rt_unlock(&w->lock);

    rc = w->segment_bytes != 0 && to > from ? wal_segments_extend(w, to) : 0;
    if (rc == 0) {
        group_seal(w, from, to, end);
        rc = group_write(w, from, to, meta);
    }

    rt_lock(&w->lock);
    w->busy = false;
    if (rc != 0 && !CH_BUG(WAL_ERROR_IGNORED)) {
        fail(w, from);
    } else {
        w->durable = to;
        w->flush_finished = number;
        wal_publish(w);
    }
    if (!CH_BUG(WAL_LOST_WAKEUP))
        rt_broadcast(&w->done);
    wal_room_changed(w);
}

int
wal_flush(struct wal *w, lsn_t lsn)
{
    int rc = 0;

    rt_lock(&w->lock);
    CH_ASSERT(lsn <= w->pos);
    if (w->failed)
        rc = wal_fail_again(w);
    while (rc == 0 && w->durable < lsn) {
        if (w->failed)
            rc = wal_fail_again(w);
        else if (!w->busy)
            wal_lead(w);
        else if (CH_BUG(WAL_ACK_EARLY) && lsn <= w->sealed)
            break;
        else
            rt_wait(&w->done, &w->lock);
    }
    rt_unlock(&w->lock);
    return rc;
}

int
wal_flush_force(struct wal *w)
{
    uint64_t number;
    int rc = 0;

    rt_lock(&w->lock);
    number = w->flush_started + 1; /* the one under way began before this call */
    if (w->failed)
        rc = wal_fail_again(w);
    while (rc == 0 && w->flush_finished < number) {
        if (w->failed)
            rc = wal_fail_again(w);
        else if (!w->busy)
            wal_lead(w);
        else
            rt_wait(&w->done, &w->lock);
    }
    rt_unlock(&w->lock);
    return rc;
}
