/* wal_scan.c - reads the log back, and tells a torn tail from damage.
 *
 * Blocks are read in chunks from `from` on; each must be whole and carry the LSN that its place in the
 * ring and the lap, or in its segment, demands. Records are put together from the payloads.
 *
 *   from                        epoch_start                      tail
 *    | epoch_min .. (rising)        | exactly `epoch`              | bad: torn, stale or blank
 *    +-----+-----+-----+-----+------+-----+-----+-----+-----+-----+-----+--
 *
 * Invariants:
 *   C1  the tail is the first bad block. All acknowledged blocks are below it, as a flush is
 *       acknowledged when all blocks up to its end are durable; so none of them is rewritten.
 *   C2  a bad block at p is damage, not a tail, if p < epoch_start (the recovery that chose it read all
 *       blocks below), if `from` lies inside of p, or if any block on the ring, of this database and
 *       above p, says that the log was durable beyond p (R10). The search covers the whole ring and any
 *       lap, so that an old root over a newer log is found as well (R16). In segments the search goes on as far as
 *       good blocks name the next one; an old root is found by C6.
 *   C3  a record cut off by the tail is not returned. Its blocks stay; the next writer starts at the
 *       tail with a new epoch, and a scan that meets a newer epoch drops what it has of a record, since
 *       no record crosses epochs (W5). What old flushes left beyond the tail has an old epoch.
 *   C4  the header's `first` must agree with where the records, one after the other, really start.
 *   C5  new blocks may be written at and behind the tail while a scan reads what is below (recovery's second
 *       pass): what was below stays readable, and a chunk that was read too early is not taken for damage.
 *   C6  (R16) in segments, which are written over by anything once they are freed, the last block below the cut must be
 *       good: it is kept (wal_kept()) as long as a root names the cut.
 *
 * Memory: one chunk and one record, allocated at open. No threads.
 */
#include "wal/wal_internal.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    CHUNK_BYTES = 256 << 10
};

struct wal_scan {
    struct wal_scan_config cfg;
    wal_read_fn *read;
    void *read_arg;
    uint64_t ring_blocks;
    uint8_t *chunk; /* blocks from chunk_lsn on */
    lsn_t chunk_lsn;
    uint64_t chunk_bytes; /* 0 = none read */

    struct wal_segments segments; /* known so far; none in a ring */

    struct wal_block block; /* the current one; meaningless unless `have_block` */
    const uint8_t *bytes;   /* its bytes in the chunk */
    bool have_block;
    bool synced;     /* a record boundary has been seen */
    bool first_seen; /* the first record that starts in this block has been reached (C4) */
    unsigned off;    /* of the next byte to take */
    lsn_t next;      /* LSN of the block after it */
    uint32_t epoch;  /* of the last good block; at first the lowest that is legal */

    uint8_t *record; /* header and payload put together so far */
    uint32_t got, need;
    lsn_t start;
    int rc; /* sticky: NOTFOUND at the tail, or an error */
};

static int
read_dev(void *arg, uint64_t off, void *buf, size_t len)
{
    return dev_read(arg, off, buf, len);
}

static bool
in_segments(const struct wal_scan *s)
{
    return s->cfg.segment_bytes != 0;
}

/* Where the block at `lsn` stands; *bytes: how much of the log follows there, itself included. Its segment is known. */
static uint64_t
place_of(const struct wal_scan *s, lsn_t lsn, uint64_t *bytes)
{
    const struct wal_segments *g = &s->segments;
    uint64_t inside;

    if (!in_segments(s)) {
        inside = lsn / WAL_BLOCK % s->ring_blocks * WAL_BLOCK;
        *bytes = s->ring_blocks * WAL_BLOCK - inside;
        return s->cfg.base + inside;
    }
    inside = lsn % s->cfg.segment_bytes;
    CH_ASSERT(wal_segments_has(g, lsn / s->cfg.segment_bytes));
    *bytes = s->cfg.segment_bytes - inside;
    return s->cfg.base + g->zones[lsn / s->cfg.segment_bytes - g->first] * s->cfg.segment_bytes +
           inside;
}

/* Makes the block at `lsn` part of the chunk. */
static int
chunk_load(struct wal_scan *s, lsn_t lsn)
{
    uint64_t bytes;
    uint64_t off;
    int rc;

    if (s->chunk_bytes > 0 && lsn >= s->chunk_lsn && lsn - s->chunk_lsn < s->chunk_bytes)
        return 0;
    s->chunk_bytes = 0;
    off = place_of(s, lsn, &bytes);
    bytes = ch_min_u64(CHUNK_BYTES, bytes);
    rc = s->read(s->read_arg, off, s->chunk, bytes);
    if (rc != 0)
        return rc;
    s->chunk_lsn = lsn;
    s->chunk_bytes = bytes;
    return 0;
}

static bool
block_parse(const struct wal_scan *s, lsn_t lsn, struct wal_block *b)
{
    return wal_block_parse(s->chunk + (lsn - s->chunk_lsn), s->cfg.db_id, b) &&
           b->segment == in_segments(s);
}

/* Whether the block says that the log was durable beyond `lsn`. */
static bool
tells_beyond(const struct wal_scan *s, const struct wal_block *b, lsn_t lsn)
{
    return b->lsn > lsn && b->durable > lsn && b->epoch >= s->epoch;
}

/* The same search over segments: what is known of them, and what good blocks beyond `lsn` name. A block of a later lap, in
 * a zone that is the log's again, tells as well. */
static int
find_in_segments(struct wal_scan *s, lsn_t lsn, lsn_t *found)
{
    uint32_t known = s->segments.count;
    int rc = 0;

    for (lsn_t at = lsn; rc == 0 && *found == 0; at += WAL_BLOCK) {
        struct wal_block b;

        if (!wal_segments_has(&s->segments, at / s->cfg.segment_bytes))
            break;
        rc = chunk_load(s, at);
        if (rc != 0 || !block_parse(s, at, &b) || !(b.lsn == at || tells_beyond(s, &b, at)))
            continue;
        if (tells_beyond(s, &b, lsn))
            *found = b.lsn;
        if (b.lsn == at && b.next < s->cfg.zones && b.epoch >= s->epoch &&
            s->segments.count < s->segments.max &&
            !wal_segments_has(&s->segments, at / s->cfg.segment_bytes + 1))
            s->segments.zones[s->segments.count++] = b.next;
    }
    s->segments.count = known; /* they may be those of a tail that is lost */
    return rc;
}

/* Does a block anywhere on the ring say that the log was durable beyond `lsn`? (C2) */
static int
find_durable_beyond(struct wal_scan *s, lsn_t lsn, lsn_t *found)
{
    *found = 0;
    if (in_segments(s))
        return find_in_segments(s, lsn, found);
    for (uint64_t i = 0; i < s->ring_blocks; i++) {
        struct wal_block b;
        int rc = chunk_load(s, i * WAL_BLOCK);

        if (rc != 0)
            return rc;
        if (block_parse(s, i * WAL_BLOCK, &b) && b.lsn / WAL_BLOCK % s->ring_blocks == i &&
            tells_beyond(s, &b, lsn)) {
            *found = b.lsn;
            break;
        }
    }
    return 0;
}

static bool
epoch_ok(const struct wal_scan *s, const struct wal_block *b)
{
    if (b->lsn >= s->cfg.epoch_start)
        return b->epoch == s->cfg.epoch;
    return b->epoch >= s->epoch && b->epoch <= s->cfg.epoch;
}

/* Reads the block at s->next; *good tells whether it is one. */
static int
block_read(struct wal_scan *s, struct wal_block *b, bool *good)
{
    int rc = chunk_load(s, s->next);

    if (rc == 0)
        *good = block_parse(s, s->next, b) && b->lsn == s->next && epoch_ok(s, b);
    return rc;
}

/* The block at s->next is bad: NOTFOUND if that is the tail, ELOG if it is damage. Recovery may read while
 * the log is written again behind its old tail (C5): then a block that was not there yet when its chunk
 * was read is there by now, which gives 0 and *b. */
static int
bad_block(struct wal_scan *s, struct wal_block *b)
{
    lsn_t lsn = s->next;
    lsn_t found = 0;
    bool good = false;
    int rc;

    if (lsn < s->cfg.epoch_start)
        return CH_FAIL(COHORT_ELOG, "log: bad block at LSN %" PRIu64 ", below %" PRIu64, lsn,
                       s->cfg.epoch_start);
    if (lsn < s->cfg.from)
        return CH_FAIL(COHORT_ELOG, "log: bad block at LSN %" PRIu64 ", where the log is cut", lsn);
    s->chunk_bytes = 0; /* the search keys chunks by place */
    rc = find_durable_beyond(s, lsn, &found);
    s->chunk_bytes = 0;
    if (rc == 0 && found != 0)
        rc = block_read(s, b, &good);
    if (rc != 0)
        return rc;
    if (found != 0 && !good)
        return CH_FAIL(COHORT_ELOG,
                       "log: bad block at LSN %" PRIu64 ", acknowledged by LSN %" PRIu64, lsn,
                       found);
    return good ? 0 : COHORT_NOTFOUND;
}

static int
malformed(const struct wal_scan *s, const char *what)
{
    return CH_FAIL(COHORT_ELOG, "log: block at LSN %" PRIu64 ": %s", s->block.lsn, what);
}

/* Learns from block b which zone comes next (G2, wal_segment.c). */
static int
learn_next(struct wal_scan *s, const struct wal_block *b)
{
    struct wal_segments *g = &s->segments;
    uint64_t number = b->lsn / s->cfg.segment_bytes;
    bool last = (b->lsn + WAL_BLOCK) % s->cfg.segment_bytes == 0;

    if (b->next == CH_ZONE_NONE && last)
        return CH_FAIL(COHORT_ELOG, "log: block at LSN %" PRIu64 " names no next zone", b->lsn);
    if (b->next == CH_ZONE_NONE)
        return 0;
    if (b->next >= s->cfg.zones)
        return CH_FAIL(COHORT_ELOG,
                       "log: block at LSN %" PRIu64 " names zone %" PRIu32 " of %" PRIu32, b->lsn,
                       b->next, s->cfg.zones);
    if (!wal_segments_has(g, number + 1))
        return g->count < g->max
                   ? wal_segments_add(g, b->next)
                   : CH_FAIL(COHORT_ELOG, "log: more than %" PRIu32 " segments", g->max);
    if (g->zones[number + 1 - g->first] != b->next)
        return CH_FAIL(COHORT_ELOG, "log: blocks up to LSN %" PRIu64 " name different next zones",
                       b->lsn);
    return 0;
}

/* Steps to the block at s->next; NOTFOUND when that is the tail. */
static int
next_block(struct wal_scan *s)
{
    struct wal_block b = {0};
    bool good = false;
    int rc;

    if (s->have_block && s->got > 0 && s->block.used < WAL_BLOCK)
        return malformed(s, "record runs into the padding"); /* W5 */
    if (s->have_block && s->synced && !s->first_seen && s->block.first != 0)
        return malformed(s, "a record should start there"); /* C4 */
    rc = block_read(s, &b, &good);
    if (rc == 0 && !good) {
        s->have_block = false;
        rc = bad_block(s, &b);
    }
    if (rc == 0 && in_segments(s))
        rc = learn_next(s, &b);
    if (rc != 0)
        return rc;
    if (b.epoch > s->epoch)
        s->got = 0; /* C3 */
    s->epoch = b.epoch;
    s->block = b;
    s->bytes = s->chunk + (s->next - s->chunk_lsn);
    s->have_block = true;
    s->first_seen = false;
    s->off = WAL_BLOCK_HEADER;
    s->next += WAL_BLOCK;
    if (!s->synced) {
        s->off = b.first != 0 ? b.first : b.used;
        s->synced = b.first != 0 || b.used < WAL_BLOCK;
        s->first_seen = b.first == 0; /* nothing to compare with */
    }
    return 0;
}

/* Takes up to `want` record bytes from the current block. */
static void
take(struct wal_scan *s, uint32_t want)
{
    uint32_t n = (uint32_t)ch_min_u64(want, s->block.used - s->off);

    memcpy(s->record + s->got, s->bytes + s->off, n);
    s->got += n;
    s->off += n;
}

static int
record_begin(struct wal_scan *s)
{
    if (!s->first_seen && s->block.first != s->off)
        return malformed(s, "first record is not where the header says"); /* C4 */
    s->first_seen = true;
    s->start = s->block.lsn + s->off;
    s->need = WAL_RECORD_HEADER;
    return 0;
}

static int
record_header(struct wal_scan *s)
{
    uint32_t bytes = ch_get32(s->record);

    if (bytes > WAL_RECORD_MAX || s->record[5] != 0 || ch_get16(s->record + 6) != 0)
        return malformed(s, "record header");
    s->need = WAL_RECORD_HEADER + bytes;
    return 0;
}

/* One step: a block, or as much of a record as the block has. */
static int
scan_step(struct wal_scan *s, bool *whole)
{
    int rc = 0;

    *whole = false;
    if (!s->have_block || s->off == s->block.used)
        return next_block(s);
    if (s->got == 0) {
        rc = record_begin(s);
        if (rc != 0)
            return rc;
    }
    take(s, s->need - s->got);
    if (s->got == WAL_RECORD_HEADER && s->need == WAL_RECORD_HEADER)
        rc = record_header(s);
    *whole = rc == 0 && s->got >= WAL_RECORD_HEADER && s->got == s->need;
    return rc;
}

int
wal_scan_next(struct wal_scan *s, struct wal_record *out)
{
    bool whole = false;

    while (s->rc == 0 && !whole)
        s->rc = scan_step(s, &whole);
    if (s->rc != 0)
        return s->rc;
    out->start = s->start;
    out->end = s->block.lsn + s->off;
    out->type = s->record[4];
    out->data = s->record + WAL_RECORD_HEADER;
    out->bytes = s->need - WAL_RECORD_HEADER;
    s->got = 0;
    return 0;
}

/* `from` lies inside of the first block: it must be where a record ends or starts. */
static int
seek_inside(struct wal_scan *s, unsigned target)
{
    unsigned off = s->block.first;

    if (target > s->block.used || (target < s->block.used && (off == 0 || off > target)))
        return malformed(s, "the log is cut where no record starts");
    while (target < s->block.used && off < target) {
        uint32_t bytes;

        if (off + WAL_RECORD_HEADER > s->block.used)
            return malformed(s, "the log is cut inside of a record");
        bytes = ch_get32(s->bytes + off);
        if (bytes > WAL_BLOCK)
            return malformed(s, "the log is cut inside of a record");
        off += WAL_RECORD_HEADER + bytes;
    }
    if (target < s->block.used && off != target)
        return malformed(s, "the log is cut inside of a record");
    s->off = target;
    s->synced = true;
    s->first_seen = true;
    return 0;
}

/* C6: looks at the last block below the one that the scan begins with, and learns from it. */
static int
look_at_kept(struct wal_scan *s)
{
    lsn_t kept = wal_kept(s->cfg.segment_bytes, s->cfg.from);
    struct wal_block b = {0};
    int rc;

    if (kept >=
        wal_block_of(s->cfg.from)) /* the scan's own first block, or none was ever written */
        return 0;
    rc = chunk_load(s, kept);
    if (rc != 0)
        return rc;
    if (!block_parse(s, kept, &b) || b.lsn != kept || b.epoch > s->cfg.epoch)
        return CH_FAIL(COHORT_ELOG, "log: no block at LSN %" PRIu64 ", right below the cut", kept);
    return learn_next(s, &b);
}

static int
seek(struct wal_scan *s)
{
    unsigned inside = s->cfg.from % WAL_BLOCK;

    if (in_segments(s))
        s->rc = look_at_kept(s);
    if (s->rc != 0)
        return s->rc;
    if (inside == 0)
        return 0;
    s->rc = next_block(s);
    if (s->rc != 0)
        return s->rc;
    if (inside < WAL_BLOCK_HEADER)
        return malformed(s, "the log is cut inside of a block header");
    return seek_inside(s, inside);
}

static int
segments_begin(struct wal_scan *s)
{
    uint64_t first;
    int rc;

    if (!in_segments(s))
        return 0;
    first = wal_kept(s->cfg.segment_bytes, s->cfg.from) / s->cfg.segment_bytes;
    if (s->cfg.first_zone >= s->cfg.zones || s->cfg.from < s->cfg.segment_bytes)
        return CH_FAIL(COHORT_ELOG,
                       "log: begins at LSN %" PRIu64 " in zone %" PRIu32 " of %" PRIu32,
                       s->cfg.from, s->cfg.first_zone, s->cfg.zones);
    rc = wal_segments_create(&s->segments, first,
                             wal_segments_max(s->cfg.bytes, s->cfg.segment_bytes));
    return rc != 0 ? rc : wal_segments_add(&s->segments, s->cfg.first_zone);
}

int
wal_scan_open_reader(const struct wal_scan_config *cfg, wal_read_fn *read, void *arg,
                     struct wal_scan **out)
{
    struct wal_scan *s = NULL;
    int rc = 0;

    CH_ASSERT(cfg->bytes % WAL_BLOCK == 0 && cfg->bytes / WAL_BLOCK >= WAL_RING_BLOCKS_MIN);
    CH_ASSERT(cfg->segment_bytes % WAL_BLOCK == 0);
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "log: scan");
    s->cfg = *cfg;
    s->read = read;
    s->read_arg = arg;
    s->ring_blocks = cfg->bytes / WAL_BLOCK;
    s->epoch = cfg->epoch_min;
    s->next = wal_block_of(cfg->from);
    s->chunk = ch_alloc_aligned(CHUNK_BYTES);
    s->record = malloc(WAL_RECORD_HEADER + WAL_RECORD_MAX);
    if (s->chunk == NULL || s->record == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "log: scan buffers");
        goto out;
    }
    rc = segments_begin(s);
    if (rc != 0)
        goto out;
    rc = seek(s);
    if (rc != 0)
        goto out;
    *out = s;
    s = NULL;
out:
    wal_scan_close(s);
    return rc;
}

int
wal_scan_open(const struct wal_scan_config *cfg, struct wal_scan **out)
{
    return wal_scan_open_reader(cfg, read_dev, cfg->dev, out);
}

lsn_t
wal_scan_tail(const struct wal_scan *s)
{
    CH_ASSERT(s->rc == COHORT_NOTFOUND);
    return s->next;
}

uint64_t
wal_scan_offset(const struct wal_scan *s, lsn_t lsn)
{
    uint64_t bytes;

    return place_of(s, lsn, &bytes);
}

const struct wal_segments *
wal_scan_segments(const struct wal_scan *s)
{
    return &s->segments;
}

void
wal_scan_close(struct wal_scan *s)
{
    if (s == NULL)
        return;
    ch_free_aligned(s->chunk);
    free(s->record);
    wal_segments_destroy(&s->segments);
    free(s);
}
