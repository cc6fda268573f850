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

#define WAL_MAGIC         UINT32_C(0xC0106001)
#define WAL_MAGIC_SEGMENT UINT32_C(0xC0106007)

enum {
    WAL_PAYLOAD = WAL_BLOCK - WAL_BLOCK_HEADER,
    WAL_RING_BLOCKS_MIN = 16,
    WAL_BUFFER_BYTES_MIN = 64 << 10,
    WAL_BUFFER_BYTES_MAX = 1 << 30,
    WAL_KEEP_RINGS = 64, /* blocks of a ring from which on some are kept for recovery: */
    WAL_KEEP_SHARE = 16, /* one of so many, at least four */
    WAL_TICKET_PADS = 2, /* splits by flushes that one ticket pays for */
    WAL_POOL_BYTES =
        2560, /* of a ticket of the pool (W7): what a put asks for, and more than a commit */
    WAL_POOL_STRIPES = 8, /* one a thread, more or less */
    WAL_POOL_EACH = 4,    /* tickets in a stripe, at most */
    WAL_POOL_SHARE =
        16, /* one of so many blocks that users may fill, and of the buffer, are for the pool */
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
    bool segment; /* in the layout of segments; `next` is in no other */
    zone_id next; /* of the next segment, CH_ZONE_NONE = not known yet */
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

/* ---- tables of segments, wal_segment.c ---- */

/* Room for `max` zones; ENOMEM. */
CH_NODISCARD int wal_segments_create(struct wal_segments *s, uint64_t first, uint64_t max);
void wal_segments_destroy(struct wal_segments *s);
/* EFULL at max. */
CH_NODISCARD int wal_segments_add(struct wal_segments *s, zone_id z);

static inline bool
wal_segments_has(const struct wal_segments *s, uint64_t number)
{
    return number >= s->first && number - s->first < s->count;
}

/* ---- the writer ---- */

struct wal_waiter { /* a waiting reservation, on its thread's stack */
    struct wal_waiter *next;
};

/* Tickets that are granted already, for threads of one stripe to take without the lock (W7). */
struct wal_stripe {
    /* Taken by compare-and-swap (acquire), put in (release) and taken back under the lock. */
    _Alignas(64) _Atomic uint32_t tickets;
};

struct wal {
    struct dev *dev;
    struct dev_queue *queue; /* the leader's */
    uint64_t base;
    uint64_t segment_bytes; /* 0 = a ring */
    int (*take)(void *arg, zone_id *out);
    void *take_arg;
    uint64_t ring_blocks, user_blocks, system_blocks; /* size, and what each class may fill */
    uint64_t recovery_blocks;                         /* kept for recovery, beyond system_blocks */
    uint64_t db_id;
    uint32_t epoch;
    uint32_t pool_max; /* tickets of the pool, in stripes and in use; 0 = there is none */
    uint8_t *buf;      /* block of an LSN stands at LSN / 4096 % buf_blocks */
    uint16_t *firsts;  /* of each block in `buf`: offset of its first record, 0 = none */
    uint64_t buf_blocks;

    /* By cache lines: what each append changes, what it may find changed, the rest. */
    _Alignas(64) struct rt_mutex lock; /* rank WAL; guards everything below */
    lsn_t pos;                         /* of the next append */
    lsn_t sealed; /* blocks below belong to the leader or are durable; multiple of 4096 */
    uint64_t
        granted; /* bytes that outstanding tickets may still append, those of the pool among them */
    uint64_t pads;       /* blocks that they hold against padding */
    uint64_t meta_bytes; /* of META records above `sealed` */
    uint32_t pooled;     /* tickets of the pool, in stripes and in use */
    struct wal_counts counts;

    /* What pos and durable were when the lock was last given back; release, with acquire of wal_end() and wal_durable(). */
    _Alignas(64) _Atomic lsn_t seen_pos;
    _Atomic lsn_t seen_durable;

    _Alignas(64) lsn_t durable; /* multiple of 4096 */
    lsn_t cut;
    uint64_t waiters;         /* reservations that wait */
    uint64_t pressure_blocks; /* pressure waiters want to know when use exceeds this */
    unsigned pressure_waiters;
    unsigned half_waiters;
    uint64_t ring_waiters; /* reservations that wait for ring room now */
    bool busy;             /* a leader works */
    bool failed;           /* sticky */
    bool full;
    bool uncut;      /* wal_set_uncut() */
    bool recovering; /* wal_set_recovering() */
    bool woken;
    void (*cutter)(void *arg);

    _Alignas(64) struct wal_stripe stripes[WAL_POOL_STRIPES];

    struct rt_cond done;          /* a flush ended */
    struct rt_cond room;          /* reservations wait */
    struct rt_cond press;         /* wal_pressure() waits */
    struct rt_cond half;          /* wal_half_full() waits */
    struct wal_segments segments; /* the leader adds, wal_segment_pop() removes */
    struct wal_waiter *waiting[WAL_CLASSES],
        **waiting_end[WAL_CLASSES];      /* by enum wal_class, first come first served */
    uint64_t waiting_bytes[WAL_CLASSES]; /* what they ask for in all, */
    uint64_t waiting_pads[WAL_CLASSES];  /* and their padding */
    uint64_t flush_started;              /* numbers of device flushes, for wal_flush_force() */
    uint64_t flush_finished;
    void *cutter_arg;
    uint64_t wakes;                /* calls of wal_wake() */
    char fail_text[WAL_FAIL_TEXT]; /* of the first failure */
};

/* All with w->lock held. */
void wal_publish(struct wal *w);                /* seen_pos and seen_durable */
uint64_t wal_active_bytes(const struct wal *w); /* payload bytes in [sealed, pos) */
uint64_t wal_ring_blocks_used(const struct wal *w, uint64_t more_bytes, uint64_t more_pads);
uint64_t wal_buf_blocks_used(const struct wal *w, uint64_t more_bytes);
bool wal_is_half_full(const struct wal *w);
void wal_room_changed(struct wal *w); /* wakes reservations and pressure waiters as needed */
void wal_pool_limit(struct wal *w);   /* at creation: how many tickets the pool may have */
void wal_pool_refill(struct wal *w); /* the calling thread's stripe, where there is room to spare */
void wal_pool_drain(struct wal *w);  /* takes all back that nobody uses */
void wal_ticket_end(struct wal *w, struct wal_ticket *t); /* gives back what it still has */
/* The zone of a segment that exists, and CH_ZONE_NONE for others; takes the lock. */
zone_id wal_segment_at(struct wal *w, uint64_t number);
/* The leader, without the lock: takes zones until all blocks below `to` have one, and the one behind where a block is to name it:
 * from half of a segment on. Errors of take(), when it cannot do without. */
CH_NODISCARD int wal_segments_extend(struct wal *w, lsn_t to);
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
