/* wal.c - the log's buffer: create, append, cut, usage. Room is in wal_room.c, flushing in wal_flush.c.
 *
 *        cut                 durable            sealed           pos
 *         |  kept on the ring   |  the leader's   |  active        |
 *   ------+---------------------+-----------------+--------########+......granted......
 *                               |<------- buffer: buf_blocks ------------------------>|
 *         |<--------- ring, or what segments may keep: ring_blocks ------------------>|
 *
 * Invariants (with the lock held):
 *   W1  cut <= durable <= sealed <= pos; durable and sealed are multiples of 4096.
 *   W2  a block below `sealed` never changes again: a flush pads its last block (R10).
 *   W3  an append under a ticket finds room in the buffer: in-flight blocks + blocks of (active bytes +
 *       granted bytes), + 1 while nothing is in flight, <= buf_blocks. A seal may lose one block to
 *       rounding, which is that 1; the next seal comes only after the flush has freed a block at least.
 *   W4  ... and on the ring: blocks since the cut + blocks of (active + granted) + pads <= ring_blocks.
 *       Padding stays until the cut, so every ticket holds blocks for the seals that may split it, and
 *       the active part holds one; `pads` is what the tickets hold.
 *   W5  every record is whole inside one seal: appends are made in one critical section. So only the
 *       last block of a flush has room left, and no record crosses from one epoch to the next.
 *   W6  after a failure nothing is written, durable stands still, and what tickets hold still fits.
 *   W7  tickets of the pool count as granted, with their pads, from when they are put into a stripe: so whoever takes one has what
 *       wal_reserve() would have granted, and W3 and W4 know of it. They are put in only where there is room to spare and nobody waits,
 *       and taken back before anybody waits, is refused, or learns that the log has failed. So nobody waits for room that
 *       nobody uses, and none is in a stripe while somebody waits, or once the log has failed.
 *
 * Locking: one mutex, rank WAL. The leader works outside of it on blocks in [durable, sealed), which
 * nobody else touches; appends go above `sealed`.
 *
 * Crash: any subset of the blocks of flushes that did not end may be on the device, torn or not;
 * wal_scan.c says how that is told from damage.
 */
#include "wal/wal_internal.h"

#include <inttypes.h>
#include <stdlib.h>

static void
config_check(const struct wal_config *c)
{
    CH_ASSERT(c->bytes % WAL_BLOCK == 0 && c->bytes / WAL_BLOCK >= WAL_RING_BLOCKS_MIN);
    CH_ASSERT(c->base % WAL_BLOCK == 0 && c->start % WAL_BLOCK == 0);
    CH_ASSERT(c->buffer_bytes >= WAL_BUFFER_BYTES_MIN && c->buffer_bytes <= WAL_BUFFER_BYTES_MAX);
    CH_ASSERT(c->cut <= c->start && c->start - wal_block_of(c->cut) <= c->bytes);
    CH_ASSERT(c->user_percent >= 1 && c->user_percent <= 100);
    CH_ASSERT(c->segment_bytes % WAL_BLOCK == 0);
}

/* The table, with room for all that may ever be in use, and what is there already. */
static int
segments_init(struct wal *w, const struct wal_config *c)
{
    const struct wal_segments *from = c->segments;
    int rc;

    w->segment_bytes = c->segment_bytes;
    w->take = c->take;
    w->take_arg = c->take_arg;
    if (c->segment_bytes == 0)
        return 0;
    CH_ASSERT(wal_segments_has(from, wal_kept(c->segment_bytes, c->cut) / c->segment_bytes));
    rc = wal_segments_create(&w->segments, from->first,
                             ch_max_u64(wal_segments_max(c->bytes, c->segment_bytes), from->count));
    for (uint32_t i = 0; rc == 0 && i < from->count; i++)
        rc = wal_segments_add(&w->segments, from->zones[i]);
    return rc;
}

static void
limits_init(struct wal *w, const struct wal_config *c)
{
    w->ring_blocks = c->bytes / WAL_BLOCK;
    /* A little is granted to nobody: it bears tickets that flushes split more often than they pay
     * for (W4). */
    w->system_blocks = w->ring_blocks - ch_max_u64(w->ring_blocks / 64, 1);
    if (w->ring_blocks >= WAL_KEEP_RINGS)
        w->recovery_blocks = ch_max_u64(w->ring_blocks / WAL_KEEP_SHARE, 4);
    w->system_blocks -= w->recovery_blocks;
    w->user_blocks = ch_min_u64(w->ring_blocks * c->user_percent / 100, w->system_blocks);
}

static void
sync_init(struct wal *w)
{
    rt_mutex_init(&w->lock, RT_RANK_WAL, 0);
    rt_cond_init(&w->done);
    rt_cond_init(&w->room);
    rt_cond_init(&w->press);
    rt_cond_init(&w->half);
    for (int c = 0; c < WAL_CLASSES; c++)
        w->waiting_end[c] = &w->waiting[c];
}

int
wal_create(const struct wal_config *cfg, struct wal **out)
{
    struct wal *w = NULL;
    int rc = 0;

    config_check(cfg);
    w = ch_alloc_aligned(sizeof(*w)); /* zeroed; its parts want their cache lines */
    if (w == NULL)
        return CH_FAIL(COHORT_ENOMEM, "log: handle");
    sync_init(w);
    w->dev = cfg->dev;
    w->base = cfg->base;
    w->db_id = cfg->db_id;
    w->epoch = cfg->epoch;
    limits_init(w, cfg);
    w->buf_blocks = cfg->buffer_bytes / WAL_BLOCK;
    wal_pool_limit(w);
    w->pos = w->sealed = w->durable = cfg->start;
    wal_publish(w);
    w->cut = cfg->cut;
    rc = segments_init(w, cfg);
    if (rc != 0)
        goto out;
    w->buf = ch_alloc_aligned(w->buf_blocks * WAL_BLOCK);
    w->firsts = calloc(w->buf_blocks, sizeof(*w->firsts));
    if (w->buf == NULL || w->firsts == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "log: buffer of %" PRIu64 " bytes", cfg->buffer_bytes);
        goto out;
    }
    rc = dev_queue_get(w->dev, &w->queue);
    if (rc != 0)
        goto out;
    *out = w;
    w = NULL;
out:
    wal_destroy(w);
    return rc;
}

void
wal_destroy(struct wal *w)
{
    if (w == NULL)
        return;
    CH_ASSERT(!w->busy && w->waiters == 0);
    if (w->queue != NULL)
        dev_queue_put(w->queue);
    ch_free_aligned(w->buf);
    free(w->firsts);
    wal_segments_destroy(&w->segments);
    rt_cond_fini(&w->half);
    rt_cond_fini(&w->press);
    rt_cond_fini(&w->room);
    rt_cond_fini(&w->done);
    rt_mutex_fini(&w->lock);
    ch_free_aligned(w);
}

size_t
wal_memory(const struct wal *w)
{
    return sizeof(*w) + w->buf_blocks * (WAL_BLOCK + sizeof(*w->firsts)) +
           w->segments.max * sizeof(*w->segments.zones);
}

/* Copies bytes to the append position, stepping over block headers. */
static void
append_bytes(struct wal *w, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    while (bytes > 0) {
        size_t index = w->pos / WAL_BLOCK % w->buf_blocks;
        size_t off = w->pos % WAL_BLOCK;
        size_t n;

        if (off == 0) { /* a fresh block; where its first record starts is not known yet */
            w->firsts[index] = 0;
            off = WAL_BLOCK_HEADER;
            w->pos += WAL_BLOCK_HEADER;
        }
        n = ch_min_u64(bytes, WAL_BLOCK - off);
        memcpy(w->buf + index * WAL_BLOCK + off, p, n);
        w->pos += n;
        p += n;
        bytes -= n;
    }
}

/* Notes that a record starts at the append position, in the block that it is in. */
static void
note_start(struct wal *w)
{
    size_t index = w->pos / WAL_BLOCK % w->buf_blocks;
    size_t off = w->pos % WAL_BLOCK;

    if (off == 0) {
        w->pos += WAL_BLOCK_HEADER;
        w->firsts[index] = WAL_BLOCK_HEADER;
    } else if (w->firsts[index] == 0) {
        w->firsts[index] = (uint16_t)off;
    }
}

/* Moves the room of a record from the ticket to the active part (W3, W4). */
static void
charge(struct wal *w, struct wal_ticket *t, uint64_t bytes)
{
    CH_ASSERT(t->bytes >= bytes && w->granted >= bytes);
    t->bytes -= bytes;
    w->granted -= bytes;
    if (w->pos == w->sealed && t->pads > 0) {
        t->pads--;
        w->pads--;
    }
    /* Used up: nothing can split it any more, and some never release it. */
    if (t->once || t->bytes == 0)
        wal_ticket_end(w, t);
}

lsn_t
wal_append(struct wal *w, struct wal_ticket *t, uint8_t type, enum ch_cause cause,
           const struct wal_part *parts, unsigned n)
{
    uint8_t header[WAL_RECORD_HEADER] = {0};
    uint64_t bytes = 0;
    lsn_t end;
    bool half;

    for (unsigned i = 0; i < n; i++)
        bytes += parts[i].bytes;
    CH_ASSERT(bytes <= WAL_RECORD_MAX && (cause == CH_WAL || cause == CH_META));
    ch_put32(header, (uint32_t)bytes);
    header[4] = type;
    bytes += WAL_RECORD_HEADER;

    rt_lock(&w->lock);
    charge(w, t, bytes);
    note_start(w);
    append_bytes(w, header, sizeof(header));
    for (unsigned i = 0; i < n; i++)
        append_bytes(w, parts[i].data, parts[i].bytes);
    end = w->pos;
    CH_ASSERT(ch_round_up(end, WAL_BLOCK) - w->durable <= w->buf_blocks * WAL_BLOCK); /* W3 */
    CH_ASSERT(ch_round_up(end, WAL_BLOCK) - wal_block_of(w->cut) <=
              w->ring_blocks * WAL_BLOCK); /* W4 */
    if (cause == CH_META)
        w->meta_bytes += bytes;
    w->counts.records++;
    w->counts.record_bytes[cause] += bytes;
    atomic_store_explicit(&w->seen_pos, w->pos, memory_order_release);
    wal_pool_refill(w);
    wal_room_changed(w); /* what was only granted can be flushed now */
    half = w->half_waiters > 0 && wal_is_half_full(w);
    rt_unlock(&w->lock);
    if (CH_UNLIKELY(half)) /* without the lock: who is woken may take this very processor from us */
        rt_signal(&w->half);
    return end;
}

void
wal_publish(struct wal *w)
{
    atomic_store_explicit(&w->seen_pos, w->pos, memory_order_release);
    atomic_store_explicit(&w->seen_durable, w->durable, memory_order_release);
}

lsn_t
wal_end(const struct wal *w)
{
    rt_point();
    return atomic_load_explicit(&w->seen_pos, memory_order_acquire);
}

lsn_t
wal_durable(const struct wal *w)
{
    rt_point();
    return atomic_load_explicit(&w->seen_durable, memory_order_acquire);
}

lsn_t
wal_cut(struct wal *w)
{
    lsn_t v;

    rt_lock(&w->lock);
    v = w->cut;
    rt_unlock(&w->lock);
    return v;
}

bool
wal_failed(struct wal *w)
{
    bool v;

    rt_lock(&w->lock);
    v = w->failed;
    rt_unlock(&w->lock);
    return v;
}

void
wal_truncate(struct wal *w, lsn_t cut)
{
    rt_lock(&w->lock);
    CH_ASSERT(cut <= w->durable); /* W1 */
    if (cut > w->cut) {
        w->cut = cut;
        wal_room_changed(w);
    }
    rt_unlock(&w->lock);
}

void
wal_counts(struct wal *w, struct wal_counts *out)
{
    rt_lock(&w->lock);
    *out = w->counts;
    rt_unlock(&w->lock);
}
