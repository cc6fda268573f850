/* wal_internal.h - the log's blocks and struct wal, for the files of this module only.
 *
 * Positions. An LSN is a physical byte position, headers included. The position that is a block's start
 * means "the first payload byte of that block": a record appended there starts 40 bytes later. So the
 * end of a record that fills its block equals the start of the next block, and every value that
 * wal_end() or a record's end ever had lies at or below the start of each later record.
 */
#ifndef CH_WAL_WAL_INTERNAL_H
#define CH_WAL_WAL_INTERNAL_H

#include "dev/dev.h"
#include "rt/rt.h"
#include "wal/wal.h"

#define WAL_MAGIC UINT32_C(0xC0106001)

enum {
    WAL_PAYLOAD = WAL_BLOCK - WAL_BLOCK_HEADER,
    WAL_RING_BLOCKS_MIN = 16,
    WAL_BUFFER_BYTES_MIN = 64 << 10,
    WAL_BUFFER_BYTES_MAX = 1 << 30,
    WAL_KEEP_RINGS = 64, /* blocks of a ring from which on some are kept for recovery: */
    WAL_KEEP_SHARE = 16, /* one of so many, at least four */
    WAL_TICKET_PADS = 2, /* splits by flushes that one ticket pays for */
    WAL_FAIL_TEXT = 320,
};

/* ---- one block; pure, wal_block.c ---- */

struct wal_block {
    lsn_t lsn;     /* of the block's start */
    lsn_t durable; /* R10: the log was durable up to here when the block was written */
    uint32_t epoch;
    uint16_t used;  /* bytes, header included */
    uint16_t first; /* offset of the first record that starts here, 0 = none */
    uint64_t db_id;
};
/* Fills the header of the 4096 bytes at `block` and its checksum; zeroes what lies behind b->used. */
void wal_block_seal(uint8_t *block, const struct wal_block *b);
/* True when magic, database and fields are right; checksum last, as it costs most. */
bool wal_block_parse(const uint8_t *block, uint64_t db_id, struct wal_block *out);

static inline lsn_t
wal_block_of(lsn_t lsn)
{
    return lsn / WAL_BLOCK * WAL_BLOCK;
}

/* ---- the writer ---- */

struct wal_waiter { /* a waiting reservation, on its thread's stack */
    struct wal_waiter *next;
};

struct wal {
    struct dev *dev;
    struct dev_queue *queue; /* the leader's */
    uint64_t base;
    uint64_t ring_blocks, user_blocks, system_blocks; /* size, and what each class may fill */
    uint64_t recovery_blocks;                         /* kept for recovery, beyond system_blocks */
    uint64_t db_id;
    uint32_t epoch;
    uint8_t *buf;     /* block of an LSN stands at LSN / 4096 % buf_blocks */
    uint16_t *firsts; /* of each block in `buf`: offset of its first record, 0 = none */
    uint64_t buf_blocks;

    struct rt_mutex lock; /* rank WAL; guards everything below */
    struct rt_cond done;  /* a flush ended */
    struct rt_cond room;  /* reservations wait */
    struct rt_cond press; /* wal_pressure() waits */
    struct rt_cond half;  /* wal_half_full() waits */
    lsn_t pos;            /* of the next append */
    /* What pos and durable were when the lock was last given back; release, with acquire of wal_end() and wal_durable(). */
    _Atomic lsn_t seen_pos, seen_durable;
    lsn_t sealed;  /* blocks below belong to the leader or are durable; multiple of 4096 */
    lsn_t durable; /* multiple of 4096 */
    lsn_t cut;
    uint64_t granted;    /* bytes that outstanding tickets may still append */
    uint64_t pads;       /* blocks that they hold against padding */
    uint64_t meta_bytes; /* of META records above `sealed` */
    struct wal_waiter *waiting[WAL_CLASSES],
        **waiting_end[WAL_CLASSES];      /* by enum wal_class, first come first served */
    uint64_t waiting_bytes[WAL_CLASSES]; /* what they ask for in all, */
    uint64_t waiting_pads[WAL_CLASSES];  /* and their padding */

    bool busy;              /* a leader works */
    uint64_t flush_started; /* numbers of device flushes, for wal_flush_force() */
    uint64_t flush_finished;
    bool failed; /* sticky */
    bool full;
    bool uncut;      /* wal_set_uncut() */
    bool recovering; /* wal_set_recovering() */
    void (*cutter)(void *arg);
    void *cutter_arg;
    bool woken;
    uint64_t wakes; /* calls of wal_wake() */
    unsigned half_waiters;
    unsigned pressure_waiters;
    uint64_t pressure_blocks; /* they want to know when use exceeds this */
    uint64_t ring_waiters;    /* reservations that wait for ring room now */
    struct wal_counts counts;
    char fail_text[WAL_FAIL_TEXT]; /* of the first failure */
};

static inline bool
wal_anyone_waits(const struct wal *w)
{
    for (int c = 0; c < WAL_CLASSES; c++)
        if (w->waiting[c] != NULL)
            return true;
    return false;
}

/* All with w->lock held. */
void wal_publish(struct wal *w);                /* seen_pos and seen_durable */
uint64_t wal_active_bytes(const struct wal *w); /* payload bytes in [sealed, pos) */
uint64_t wal_ring_blocks_used(const struct wal *w, uint64_t more_bytes, uint64_t more_pads);
uint64_t wal_buf_blocks_used(const struct wal *w, uint64_t more_bytes);
bool wal_is_half_full(const struct wal *w);
void wal_room_changed(struct wal *w); /* wakes reservations and pressure waiters as needed */
/* Seals, writes and flushes what has gathered; releases the lock meanwhile. Caller saw !busy and !failed.
 * On failure the log is failed when it returns. */
void wal_lead(struct wal *w);
CH_NODISCARD int
wal_fail_again(const struct wal *w); /* throws EFAILED with the first failure's text */

/* ---- the reader ---- */

typedef int wal_read_fn(void *arg, uint64_t off, void *buf, size_t len);
/* wal_scan_open() over any source of bytes; cfg->dev is not used. */
CH_NODISCARD int wal_scan_open_reader(const struct wal_scan_config *cfg, wal_read_fn *read,
                                      void *arg, struct wal_scan **out);

#endif
