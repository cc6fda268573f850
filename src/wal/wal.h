/* wal.h - the log: append bytes, make them durable in groups, read them back. Knows no record's meaning.
 *
 * The log is a sequence of 4 KiB blocks; LSN = byte position since creation, block headers included. A record's LSN
 * is its end. Blocks, once a flush wrote them, are never rewritten (R10): a flush pads its last block. Where a block
 * stands is one of two layouts, chosen when a database is created:
 *   ring      [base, base + bytes) of the device; block of an LSN = LSN / 4096 % blocks.
 *   segments  zones of the device, taken as the log grows and given back as it is cut; segment of an LSN = LSN /
 *             segment_bytes, its zone is whatever take() gave. `bytes` bounds what is kept, as in a ring. The blocks of
 *             a segment name the zone of the next one, its last block always does: so the zone in which the log begins
 *             is all that has to be known to read it. The first segment is number 1: the log begins at LSN segment_bytes.
 * Block header, 40 bytes (in segments other magic, and see wal_block.c for the last field):
 *    0 4 CRC-32C of bytes 4..4095   4 4 magic 0xC0106001   8 8 LSN of the block's start
 *   16 8 durable LSN when written (R10)   24 4 epoch   28 2 used bytes, header included
 *   30 2 offset of the first record that starts here, 0 = none   32 8 database id
 * Record: 4 length of payload | 1 type | 3 reserved 0 | payload; may span blocks; starts at any byte.
 *
 * Threads: all functions, any thread. Lock rank WAL. wal_append() never waits; wal_reserve() and
 * wal_flush() may, and must be called without page latches or shard locks.
 */
#ifndef CH_WAL_WAL_H
#define CH_WAL_WAL_H

#include "base/base.h"

struct dev;
/* Zones of consecutive segments. */
struct wal_segments {
    uint64_t first; /* number of the segment in zones[0] */
    uint32_t count, max;
    zone_id *zones;
};
enum {
    WAL_BLOCK = 4096,
    WAL_BLOCK_HEADER = 40,
    WAL_RECORD_HEADER = 8,
    WAL_RECORD_MAX = 1 << 20
};

struct wal_config {
    struct dev *dev;
    uint64_t base,
        bytes; /* the ring on the device; bytes >= 16 blocks. Segments: where zone 0 lies; how much is kept */
    uint64_t buffer_bytes; /* memory for blocks not yet written; >= 64 KiB */
    uint64_t db_id;
    uint32_t epoch;        /* of new blocks */
    lsn_t start;           /* first LSN to append at, multiple of 4096 */
    lsn_t cut;             /* oldest LSN kept */
    unsigned user_percent; /* share of the ring that WAL_USER reservations may fill, e.g. 75 */
    uint64_t
        segment_bytes; /* 0 = a ring; else zones of that many bytes, a multiple of 4096, and: */
    uint32_t zones;    /* zones below this number exist */
    /* Copied: from that of wal_kept(cut) to that of `start` - 1 at least (of `start`, when nothing is logged yet). */
    const struct wal_segments *segments;
    /* A zone for the next segment, empty, for good: called by whoever flushes, ahead of need, with no lock of the log held; it
     * may not wait for the log, nor lock below rank SPACE. There must always be one as long as no more than
     * wal_segments_max() are in use: a failure at the last moment ends the log. */
    int (*take)(void *arg, zone_id *out);
    void *take_arg;
};
struct wal;
CH_NODISCARD int wal_create(const struct wal_config *cfg, struct wal **out);
void wal_destroy(struct wal *w); /* appended but unflushed bytes are lost */
size_t wal_memory(const struct wal *w);

/* Who asks for room (R11). Each may use what those before it may, and more. */
enum wal_class {
    WAL_USER,
    WAL_SHRINK, /* deletes and merges: half of what lies between the users' share and the system's */
    WAL_MAP, /* MAP records, which may be left out when the log is full: half of what is left then */
    WAL_SYSTEM, /* undo: all of the ring but what is kept for recovery (wal_set_recovering()) */
    WAL_CLASSES
};
struct wal_ticket {
    uint64_t bytes, pads; /* pads, and what follows: the log's own */
    uint64_t spare;       /* what it holds beyond what was asked for */
    bool pooled;
    bool once; /* for one record: its append gives the rest back. May be set at any time */
};
/* Grants room, not position (R8), for one or a few records of `bytes` payload and header bytes in all (as much as may
 * be appended under this ticket). Waits while the buffer or the ring is too full: it then flushes itself
 * where that helps, and calls nothing upward: who must make room is woken through wal_pressure().
 * MAP and SYSTEM never wait for the ring: EFULL, since what they hold up is what a checkpoint needs to cut the log.
 * EFAILED after a failed write, or when room is short after wal_set_uncut(); EFULL when wal_set_full() says waiting is
 * pointless; EBATCHSIZE when even an empty log or buffer would be too small. */
CH_NODISCARD int wal_reserve(struct wal *w, enum wal_class c, uint64_t bytes, struct wal_ticket *t);
/* Gives the rest of the ticket back. A zeroed ticket is fine, and so is one that is used up. */
void wal_release(struct wal *w, struct wal_ticket *t);

struct wal_part {
    const void *data;
    uint32_t bytes;
};
/* Appends one record from parts (payload <= WAL_RECORD_MAX), charged to the ticket (too small = assert);
 * returns its LSN (end). Never waits, never fails. `cause`: CH_WAL or CH_META, for the accounting. */
lsn_t wal_append(struct wal *w, struct wal_ticket *t, uint8_t type, enum ch_cause cause,
                 const struct wal_part *parts, unsigned n);

/* Everything up to `lsn` durable: in a group with whoever else waits; one leader writes and flushes.
 * EFAILED (sticky) after the first failed write or flush. */
CH_NODISCARD int wal_flush(struct wal *w, lsn_t lsn);
/* Starts (or joins) a device flush that begins after this call, even when nothing is left to write. */
CH_NODISCARD int wal_flush_force(struct wal *w);
/* These two take no lock: at least what every append and flush that happened before the call has made of them. */
lsn_t wal_end(const struct wal *w); /* where the next record may start: lower bound for R3 */
lsn_t wal_durable(const struct wal *w);
lsn_t wal_cut(struct wal *w);
bool wal_failed(struct wal *w);
/* Bytes of the ring in use, reservations included, and its size. */
void wal_usage(struct wal *w, uint64_t *used, uint64_t *size);
/* Forgets everything below `cut` <= wal_durable() (asserted); the root that says so must be durable (R16). */
void wal_truncate(struct wal *w, lsn_t cut);

/* ---- segments ---- */

/* The block that is kept for a log that is cut at `cut`: the last one below it, so that a log of which nothing is left is told
 * from one that is gone (R16). */
static inline lsn_t
wal_kept(uint64_t segment_bytes, lsn_t cut)
{
    return cut <= segment_bytes ? segment_bytes : (cut - 1) / WAL_BLOCK * WAL_BLOCK;
}
/* Most segments that are in use at once: those that `bytes` of log may touch, and one ahead. */
static inline uint64_t
wal_segments_max(uint64_t bytes, uint64_t segment_bytes)
{
    return ch_div_up(bytes, segment_bytes) + 2;
}
/* The zone in which wal_kept(cut) lies, for the root; cut <= durable. */
zone_id wal_segment_zone(struct wal *w, lsn_t cut);
/* Takes the oldest segment out of the log when a log cut at `cut` does not need it; false when there is none such. The root
 * with that cut must be durable (R16), and wal_truncate() comes after the zones have been given back. */
bool wal_segment_pop(struct wal *w, lsn_t cut, zone_id *out);
/* Zones that the log has now. */
uint32_t wal_segment_count(struct wal *w);
/* Blocks until ring use is above `percent`, somebody waits for room, wal_wake(), or `ns` passed; true when
 * room is wanted. For the checkpoint thread. */
bool wal_pressure(struct wal *w, unsigned percent, uint64_t ns);
/* Waits up to `ns` for half of the buffer to be filled with bytes that no flush has taken yet; true when it is. For a
 * thread that flushes ahead of writers who would have to lead a flush when the buffer is full. Ends when
 * wal_wake() was called since the last call with this *wakes (0 at first), too. */
bool wal_half_full(struct wal *w, uint64_t ns, uint64_t *wakes);
void wal_wake(struct wal *w);
/* Waiting user reservations return EFULL while set. */
void wal_set_full(struct wal *w, bool full);
/* Nobody runs checkpoints by himself (recovery; background=no): a reservation that would wait for the ring calls cut(arg), which
 * is to cut the log if it can; EFULL after many calls in vain. NULL: somebody does. No lock is held in the call but those of the
 * reservation's caller. */
void wal_set_cutter(struct wal *w, void (*cut)(void *arg), void *arg);
/* While set SYSTEM may use all of the ring. However full the log was at a crash, recovery finds room for what has to be in the undo
 * tree before the log can be cut. */
void wal_set_recovering(struct wal *w, bool recovering);
/* Nobody will cut the log any more (the checkpoints have failed): from now on reservations that would wait for it return
 * EFAILED. */
void wal_set_uncut(struct wal *w);
struct wal_counts {
    uint64_t flushes, records, record_bytes[CH_CAUSES], padding_bytes;
};
void wal_counts(struct wal *w, struct wal_counts *out);

/* ---- reading back ----
 * A scan may run while new blocks are written behind the tail that an earlier scan found (and its root is durable). */
struct wal_scan_config {
    struct dev *dev;
    uint64_t base, bytes;
    uint64_t db_id;
    lsn_t from; /* the root's cut: any wal_end(), a record's start or end, or a block's start */
    uint32_t epoch_min;     /* epoch of the block at `from` is at least this */
    lsn_t epoch_start;      /* blocks at or after this LSN have ... */
    uint32_t epoch;         /* ... exactly this epoch (the newest) */
    uint64_t segment_bytes; /* 0 = a ring; else, as in struct wal_config, and: */
    uint32_t zones;
    zone_id first_zone; /* in which wal_kept(from) lies */
};
struct wal_record {
    lsn_t start, end;
    uint8_t type;
    const uint8_t *data;
    uint32_t bytes;
};
struct wal_scan;
CH_NODISCARD int wal_scan_open(const struct wal_scan_config *cfg, struct wal_scan **out);
/* Next record, valid until the next call. NOTFOUND at the tail. ELOG when a bad block lies below the durable
 * LSN that a later valid block carries (R10), when a record is malformed, or when `from` itself is unreadable. EIO. */
CH_NODISCARD int wal_scan_next(struct wal_scan *s, struct wal_record *out);
/* After NOTFOUND: the LSN, multiple of 4096, where new blocks may start, in a new epoch: that of the first bad block.
 * It lies behind every acknowledged block; a record it cuts off is never returned, now or later. */
lsn_t wal_scan_tail(const struct wal_scan *s);
/* Where the block at `lsn` stands on the device, if the scan has come that far. */
uint64_t wal_scan_offset(const struct wal_scan *s, lsn_t lsn);
/* After NOTFOUND: the segments from first_zone to the tail's, and the next one if its zone is known. Borrowed until the close. */
const struct wal_segments *wal_scan_segments(const struct wal_scan *s);
void wal_scan_close(struct wal_scan *s);

#endif
