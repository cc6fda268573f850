/* buf_internal.h - what the files of buf share: the page table, frames, the cleaner's state. */
#ifndef CH_BUF_BUF_INTERNAL_H
#define CH_BUF_BUF_INTERNAL_H

#include "buf/buf.h"
#include "buf/latch.h"
#include "rt/rt.h"
#include "store/store.h"

enum {
    BUF_SEGMENT_PAGES = 1 << 12, /* page-table entries per segment: 64 KiB */
    BUF_STRIPES = 64,
    BUF_STRIPE_FRAMES = 64, /* consecutive frames under one lock */
    BUF_FRAMES_MIN = 16,
    BUF_SHARDS = 64, /* of the hit counters; the last is shared by late threads */
    BUF_INFLIGHT = 4,
    BUF_SETTLE = 64,
    BUF_DIRTY_MAX_PERCENT = 80, /* writers wait above */
    BUF_DIRTY_FULL_PERCENT =
        95,                  /* ... and here when the store is full: deletes are what it needs */
    BUF_HASHES_PERCENT = 75, /* of the frames can be dirty and be written as deltas (changes.c) */
    BUF_BLOCKS = 64,         /* of a page, hashed for themselves: those of a delta (pack.h) */
    BUF_BLOCK_BYTES = PACK_BLOCK,
    BUF_DIRTY_WORK_PERCENT = 70, /* the cleaner works above, whatever eviction needs */
};
#define BUF_PATIENCE_NS UINT64_C(5000000000) /* without any progress, before a wait gives up */
#define BUF_FLUSH_NS \
    UINT64_C(50000000) /* R6: a written batch waits no longer for others' flushes */

/* Two-level table by page id; segments come on demand and stay. */
struct page_entry {
    struct latch latch;
    _Atomic uint32_t
        frame1; /* frame + 1, 0 = not in memory; changes under X only; release, peek acquires */
    uint32_t spare;
};
_Static_assert(sizeof(struct page_entry) == 16, "16 bytes a page");

enum frame_flags {
    FRAME_DIRTY = 1,      /* differs from the published image, or has none */
    FRAME_WRITING = 2,    /* its copy, or its end, is on the way to the store; implies DIRTY */
    FRAME_NEW = 4,        /* the page has no place yet */
    FRAME_FREEING = 8,    /* the page's end is to be published, not its bytes */
    FRAME_UNTRACKED = 16, /* dirty, and the next change has to be announced to changes.c */
};
enum frame_ref {
    REF_COLD,
    REF_HOT,
    REF_PREFETCHED
};

/* Fields change under the frame's stripe lock, except pid and the empty state (X latch of the page)
 * and ref (anyone). Reads without the lock are hints, or stable by B3. */
struct frame {
    _Atomic page_id pid;       /* 0 = empty */
    _Atomic lsn_t rec_lsn;     /* no unsaved change is older; CH_LSN_MAX when clean */
    _Atomic lsn_t redirty_lsn; /* first change since WRITING; CH_LSN_MAX = none */
    _Atomic uint32_t flags;
    _Atomic uint8_t ref; /* second chance; enum frame_ref */
};
_Static_assert(sizeof(struct frame) <= 64, "metadata per frame");

/* What of the frame's page differs from its full image (changes.c); under the frame's stripe lock. */
struct frame_changes {
    lsn_t base_lsn;  /* of the full image on the device; 0 = unknown, or none */
    uint64_t mask;   /* blocks in which the page, when hashed, may differ from it */
    lsn_t copy_lsn;  /* of the copy that is being written */
    uint32_t hashes; /* number + 1 in the pool; 0 = none */
    bool lost;
};
struct buf_changes {
    struct frame_changes *frames; /* NULL: no deltas are written */
    uint64_t (*pool)[BUF_BLOCKS];
    uint32_t *free; /* unused hashes; under pool_lock */
    uint32_t free_count, pool_count;
    uint64_t seed;
    struct rt_mutex pool_lock; /* rank FREE, order 2 */
};

struct buf_stripe {
    struct rt_mutex lock; /* rank FRAME */
} __attribute__((aligned(64)));

struct buf_shard { /* written by one thread, except the last: relaxed, no partner */
    _Atomic uint64_t hits;
    _Atomic uint64_t misses;
} __attribute__((aligned(64)));

struct buf_inflight { /* written, not yet published */
    struct store_batch batch;
    uint32_t frames[CH_BATCH_MAX];
    unsigned count;
    lsn_t rec_min;
    uint64_t born_ns;
};

struct buf_settle { /* published by a record that may not be durable yet (R2) */
    lsn_t rec_min;
    lsn_t lsn; /* store_mark(): an LSN, or a checkpoint's round */
};

/* State of the cleaner, under its lock. */
struct cleaner {
    struct rt_mutex lock; /* rank CLEANER */
    struct buf_inflight fifo[BUF_INFLIGHT];
    unsigned fifo_head;
    unsigned fifo_count;
    uint8_t *staging; /* batch x 4096 */
    struct store_page pages[CH_BATCH_MAX];
    uint32_t frames[CH_BATCH_MAX]; /* of pages[] */
    unsigned page_count;
    uint32_t free_frames[CH_BATCH_MAX]; /* pages that end */
    page_id free_pids[CH_BATCH_MAX];
    unsigned free_count;
    lsn_t lsn_max;                /* over both lists */
    lsn_t now;                    /* log end when choosing began */
    uint64_t ahead_pos;           /* virtual clock position up to which the window was looked at */
    uint32_t ahead[CH_BATCH_MAX]; /* cold dirty frames found there, not yet written */
    unsigned ahead_count;
    uint64_t ahead_first; /* position of ahead[0] */
    uint64_t sweep_pos;
    unsigned chosen; /* frames that the last step began to write */
};

struct buf {
    struct store *store;
    struct wal *wal;
    uint64_t pages_max, keep_pages;
    _Atomic uint64_t kept; /* buf_keep(); relaxed: a hint that is renewed before each write */
    unsigned batch_pages;
    bool background;
    lsn_t redo_bound;     /* recovery only, single-threaded; 0 = none */
    uint64_t patience_ns; /* BUF_PATIENCE_NS; tests shorten it */

    uint8_t *mem; /* frames' pages; never unmapped while open */
    void *mapping;
    size_t mapping_bytes;
    uint32_t frame_count;
    struct frame *frames;

    _Atomic(struct page_entry *) *segments; /* release on install, acquire on use */
    uint64_t segment_count;
    _Atomic uint64_t segments_used; /* relaxed statistics */

    struct latch_lot lot;
    struct buf_stripe stripes[BUF_STRIPES];
    struct buf_changes changes;

    /* Free frames and everyone who sleeps in buf. */
    struct rt_mutex free_lock; /* rank FREE, order 0 */
    struct rt_cond frames_freed;
    struct rt_cond cleaner_wake;
    uint32_t *free_stack;
    _Atomic uint32_t free_count; /* changes under free_lock; read relaxed as a hint */
    _Atomic bool wake; /* the cleaner has been asked to run; relaxed, re-read under free_lock */
    bool stop;

    /* Relaxed hints and statistics; the frames themselves decide. */
    _Atomic uint64_t hand; /* of the clock, never wraps; frame = hand % frame_count */
    _Atomic uint32_t dirty;
    _Atomic uint32_t dirty_new;
    _Atomic uint32_t writing;
    _Atomic uint32_t waiters; /* threads that cannot go on until frames are cleaned */
    _Atomic uint64_t evictions;
    _Atomic uint64_t cleaned;
    struct buf_shard shards[BUF_SHARDS];

    struct rt_mutex settle_lock; /* rank FREE, order 1; also the error's text */
    struct buf_settle settle[BUF_SETTLE];
    unsigned settle_count;
    uint64_t full_since_ns; /* of the EFULL that stands; under settle_lock */
    _Atomic int error;      /* release after the text, acquire by buf_error() */
    char error_text[256];   /* as long as a cohort_error's */

    struct cleaner cleaner;
    struct rt_thread thread;
    _Atomic bool running; /* the thread; written by start/stop, relaxed */
};

static inline uint8_t *
buf_page(const struct buf *b, uint32_t f)
{
    return b->mem + (size_t)f * CH_PAGE_BYTES;
}

static inline struct rt_mutex *
buf_stripe(struct buf *b, uint32_t f)
{
    return &b->stripes[f / BUF_STRIPE_FRAMES % BUF_STRIPES].lock;
}

static inline uint32_t
frame_flags(const struct frame *fr)
{
    return atomic_load_explicit(&fr->flags, memory_order_relaxed);
}

/* The entry of a page that may be in memory; NULL when its segment was never needed. */
static inline struct page_entry *
table_find(struct buf *b, page_id pid)
{
    struct page_entry *seg;

    if (CH_UNLIKELY(pid >= b->pages_max))
        return NULL;
    seg = atomic_load_explicit(&b->segments[pid / BUF_SEGMENT_PAGES], memory_order_acquire);
    return CH_LIKELY(seg != NULL) ? &seg[pid % BUF_SEGMENT_PAGES] : NULL;
}

/* So many frames are dirty that writers must wait, or readers would find no clean ones. */
static inline bool
buf_too_dirty(struct buf *b, unsigned percent)
{
    uint64_t dirty = atomic_load_explicit(&b->dirty, memory_order_relaxed);

    return dirty * 100 > (uint64_t)b->frame_count * percent;
}

/* Enough is dirty, apart from what is being written, that the cleaner should work whatever eviction needs. */
static inline bool
buf_wants_cleaning(struct buf *b)
{
    uint64_t dirty = atomic_load_explicit(&b->dirty, memory_order_relaxed);
    uint64_t writing = atomic_load_explicit(&b->writing, memory_order_relaxed);

    return dirty * 100 > (uint64_t)b->frame_count * BUF_DIRTY_WORK_PERCENT + writing * 100;
}

/* ---- table.c: the page table, memory of frames ---- */
CH_NODISCARD int table_create(struct buf *b, uint64_t cache_bytes);
void table_destroy(struct buf *b);
/* As table_find(), making the segment. NOTFOUND for ids that no page can have, ENOMEM. */
CH_NODISCARD int table_entry(struct buf *b, page_id pid, struct page_entry **out);

/* ---- frame.c: free frames, eviction, dirty states ---- */
/* An empty frame, the caller's until frame_install() or frame_put(). take: false when there is none now.
 * get: waits for the cleaner, or is it; ENOMEM after patience_ns without progress, or the cleaner's error. */
bool frame_take(struct buf *b, uint32_t *out);
CH_NODISCARD int frame_get(struct buf *b, uint32_t *out);
void frame_put(struct buf *b, uint32_t f);
/* X latch of `pid` held: the frame shows the page from now on; clean, `flags` 0 or FRAME_NEW. */
void frame_install(struct buf *b, struct page_entry *e, page_id pid, uint32_t f, uint32_t flags,
                   enum frame_ref ref);
/* X latch of its page held: empties the frame, which is the caller's again; the caller bumps the version. */
void frame_detach(struct buf *b, struct page_entry *e, uint32_t f);
/* Empties a clean frame if nobody has its page latched; true: it is the caller's. */
bool frame_try_evict(struct buf *b, uint32_t f);

/* X latch held. dirty: registers a change to come (R3). renew: the same of a page that starts anew: no place yet. */
void frame_dirty(struct buf *b, uint32_t f);
void frame_renew(struct buf *b, uint32_t f);
void frame_freeing(struct buf *b, uint32_t f);
/* DIRTY and not WRITING -> WRITING; X latch held. False: not in that state. */
bool frame_write_begin(struct buf *b, uint32_t f);
/* The write is published (`freed`: the page's end is; `delta`: as a delta): clean, or dirty from redirty_lsn (S9). */
void frame_write_done(struct buf *b, uint32_t f, bool freed, bool delta);
/* Nothing was published: dirty as before. */
void frame_write_cancel(struct buf *b, uint32_t f);
/* Wakes whoever waits for frames. */
void frame_announce(struct buf *b);

/* ---- changes.c ---- */
CH_NODISCARD int changes_create(struct buf *b);
void changes_destroy(struct buf *b);
size_t changes_memory(const struct buf *b);
/* X latch held: the frame's page was read, and made of this. */
void changes_origin(struct buf *b, uint32_t f, const struct store_origin *origin);
/* Stripe lock or X latch held, nothing being written: the page begins anew, or leaves. */
void changes_forget(struct buf *b, uint32_t f);
/* X latch and stripe lock held: the page is about to change. */
void changes_before(struct buf *b, uint32_t f, uint32_t flags);
/* X latch held, frame WRITING, out->lsn set: what a delta of the page would be made of. */
void changes_take(struct buf *b, uint32_t f, struct store_page *out);
/* Stripe lock held: what was taken is published. */
void changes_done(struct buf *b, uint32_t f, bool freed, bool delta);
/* Stripe lock held: the next change must be announced although the frame is dirty. */
bool changes_untracked(const struct buf *b, uint32_t f);

/* ---- choose.c ---- */
/* Fills the cleaner's lists with frames that are WRITING from now on, and copies of their pages. */
void cleaner_choose(struct buf *b, lsn_t before);

/* ---- cleaner.c ---- */
/* Somebody waits for frames, or the store was full when it was last asked. */
bool cleaner_urgent(struct buf *b);
CH_NODISCARD int cleaner_create(struct buf *b);
void cleaner_destroy(struct buf *b); /* drops what is in flight */
/* Cheap when it is already asked. */
void cleaner_wake(struct buf *b);
/* The store has been full for so long that what frees zones by itself has had its time. */
bool cleaner_full_lasts(struct buf *b);
/* Throws the cleaner's error again in this thread; 0 if none. */
CH_NODISCARD int cleaner_error(struct buf *b);
/* Waits, or works, until cleaning may have helped; the error of a step. Latches allowed (C2). */
CH_NODISCARD int cleaner_help(struct buf *b);

#endif
