/* ver_internal.h - what the files of ver share: descriptors, entries, slots, shards.
 *
 *     slots[]   {snap, first, writer}           one a view; occupied ones are set bits of slot_bits
 *     shards[]  hash tables of chains           top -> below -> below ..., newest first
 *     ver_txn   oldest <-> ... <-> newest       a writer's entries
 *     queue     head <-> ... <-> tail           committed writers by commit LSN:
 *                 head .. | prune | .. | pending ..
 *
 * Locks, in their order (rank and order of rt.h):
 *     wait_lock    WAIT            waiters
 *     commit_lock  VER_COMMIT, 0   the order of commits
 *     trim_lock    VER_COMMIT, 1   who unlinks entries of committed writers; trim state; validation
 *     shard.lock   VER_SHARD, i    chains and what hangs in them
 *     queue_lock   VER_TXN, 0      links of the queue, `pending`, the list for cleanup
 *     guard_lock   VER_TXN, 1      guards of prepared transactions
 *     ghost_lock   VER_TXN, 2      the ring of ghosts
 *
 * A writer's list of entries is its owner's while it is live, and trim_lock's once it is committed. One
 * spiller may walk it upwards while the owner appends: `oldest` and `newer` publish (release) complete entries, and the
 * spiller alone moves last_spilled.
 */
#ifndef CH_VER_VER_INTERNAL_H
#define CH_VER_VER_INTERNAL_H

#include "rt/rt.h"
#include "ver/ver.h"

enum {
    VER_SHARDS = 256,
    VER_BUCKETS_MIN = 16, /* of a shard; a power of two */
    VER_INLINE_MAX = 128, /* larger images are allocated apart, to be given back when spilled */
    VER_GHOST_BYTES = 1 << 16, /* ring of keys */
    VER_LOST_TREES = 64,       /* trees whose ghosts the ring had no room for */
    VER_WAIT_CONDS = 16,       /* by owner */
    VER_TRIM_MIN = 16,         /* entries and writers that a commit trims at least, at most */
    VER_TRIM_MAX = 4096,
    VER_DEPOTS = 8,      /* see memory.c */
    VER_DEPOT_EACH = 64, /* pieces of a class */
    VER_DEPOT_BYTES = 384,
    VER_DEPOT_CLASSES = 6,
    VER_SETTLE_MAX = 32, /* entries that a commit takes out itself, see Q6 of commit.c */
};

/* snap of a slot without a view, and of one whose view was killed; above every horizon. */
#define VER_SNAP_NONE  UINT64_MAX
#define VER_SNAP_DEAD  (UINT64_MAX - 1)
#define VER_FIRST_NONE UINT64_MAX

struct ver_slot {
    _Alignas(64) _Atomic lsn_t snap; /* partner: bound, see view.c */
    _Atomic lsn_t first;             /* of the registered writer; partner: scans of view.c */
    _Atomic uint64_t writer;         /* id while it is live, else 0; partner: waiting, see wait.c */
    struct ver_txn *live;            /* the owner's; for ver_destroy() */
};

struct ver_txn {
    uint64_t id;
    void *tag;
    lsn_t first;
    _Atomic lsn_t commit;       /* 0 while live; partner: ver_committed() */
    _Atomic uint64_t unspilled; /* bytes; relaxed count */
    _Atomic uint64_t bytes;     /* memory of its entries; relaxed count */
    /* What the store's counts have of these two: VER_LAG_MAX less at most while it is live, never more. Relaxed. */
    _Atomic uint64_t told_unspilled, told_bytes;
    uint64_t freed;     /* bytes that it took out of leaves; the owner's */
    uint64_t seq;       /* of the newest entry made */
    uint64_t savepoint; /* entries up to this seq are older than the newest savepoint */
    _Atomic(struct ver_entry *) oldest; /* partner: ver_oldest() */
    struct ver_entry *newest;
    struct ver_entry *last_spilled; /* it and all older ones are in the undo tree; the spiller's */
    struct ver_txn *prev, *next;    /* queue; next also in the cleanup list */
    struct ver_txn *next_prepared;  /* of v->prepared; guard_lock */
    uint64_t count;                 /* entries in the list */
    uint32_t *wholes; /* trees that it writes as a whole; kept until all views see it */
    unsigned whole_count;
    uint32_t slot;
    unsigned pins; /* by validation; trim_lock */
    uint8_t class; /* of its memory */
    bool durable;
    bool spilled; /* in part: ends in the cleanup list */
    bool visible; /* since its commit: it was never pending */
};

struct ver_entry {
    struct ver_entry *above, *below;   /* chain */
    struct ver_entry *chain_next;      /* of the top of a chain: the next chain of its bucket */
    struct ver_entry *older;           /* its writer's list */
    _Atomic(struct ver_entry *) newer; /* partner: ver_newer() */
    struct ver_txn *writer;
    uint64_t hash;
    uint64_t seq;
    lsn_t lsn;
    uint8_t *before; /* into key[], or allocated, or NULL: nothing or given back */
    uint32_t tree;
    uint16_t key_bytes, before_bytes;
    uint8_t kind, flags;
    uint8_t class; /* of its memory */
    bool apart;    /* `before` is an allocation of its own */
    bool within;   /* its writer's allocation: freed with it */
    bool
        lowest; /* there was nothing below when it was linked, nor will there be; its writer's to read */
    bool spilled; /* in the undo tree */
    bool dropped; /* and only there */
    bool deletes; /* see C5 of chain.c: the leaf holds a ghost */
    uint8_t key[];
};

struct ver_shard {
    _Alignas(64) struct rt_mutex lock;
    struct ver_entry **buckets;
    _Atomic size_t mask;    /* buckets - 1; written under lock, read relaxed as a hint */
    _Atomic size_t entries; /* in all its chains; written under lock, relaxed */
    _Atomic size_t
        chains; /* the same, but C7 of chain.c: acquire, with the release of who took one out */
};

struct piece;
struct ver_depot {
    _Alignas(64) _Atomic bool busy; /* M1 of memory.c */
    struct piece *lists[VER_DEPOT_CLASSES];
    _Atomic unsigned counts[VER_DEPOT_CLASSES]; /* of the lists; relaxed */
};

struct ver_guard_node {
    struct ver_guard_node *next;
    uint64_t id;
    struct ver_reads *reads;
};

struct ver {
    struct ver_config cfg;
    uint64_t hash_seed;
    struct ver_slot *slots;
    _Atomic uint64_t *slot_bits; /* slots in use: set before, cleared after any use of the slot */
    unsigned slot_words;
    _Atomic unsigned
        slot_words_used; /* words behind have never had a bit set for a view; grows only; seq_cst */
    struct ver_shard *shards;
    struct ver_depot depots[VER_DEPOTS];

    _Alignas(64) _Atomic lsn_t horizon; /* stored (release) as Q2 and Q5 of commit.c say */
    _Atomic lsn_t bound;         /* announced to views: partner snap, see view.c; grows only */
    _Atomic uint64_t registered; /* writers; partner: scans of view.c */
    _Alignas(64) _Atomic uint64_t next_id;
    _Alignas(64) _Atomic uint64_t pops; /* partner: ver_pops() */
    /* Of ver_undo_bytes(): `freed` of all live writers, and what was put into leaves while there were any. Relaxed. */
    _Atomic uint64_t freed, grown;
    /* relaxed counts */
    _Atomic uint64_t bytes, live_bytes, unspilled, table_bytes;
    _Atomic uint64_t conflicts, deadlocks, waits, timeouts, killed;

    _Alignas(64) struct rt_mutex commit_lock;
    struct rt_mutex queue_lock;
    struct ver_txn *head, *tail;
    _Atomic(struct ver_txn *) pending; /* first that is not visible; Q5 */
    _Atomic uint64_t queued;           /* writers in the queue; relaxed count */
    void *spare;             /* commit_lock: memory for the next operation of its own ... */
    size_t spare_bytes;      /* ... so much */
    struct ver_txn *cleanup; /* trimmed, to be taken by ver_take_cleanup() */
    _Atomic uint64_t cleanups;
    lsn_t durable; /* highest reported */

    _Alignas(64) struct rt_mutex trim_lock;
    struct ver_txn *pruned; /* the last writer looked at by prune; NULL = none */
    struct ver_entry
        *prune_at; /* where prune goes on in the writer after `pruned`; NULL = its oldest */
    lsn_t *snaps;  /* published snapshots older than the horizon, as of the last look */
    unsigned snap_count;
    lsn_t limit;      /* commits up to here are seen by all views */
    lsn_t snap_bound; /* the bound that was announced for `snaps` */
    _Atomic uint64_t
        owed; /* entries and writers that became visible since the last look; relaxed */
    _Atomic uint64_t look_after; /* as many owed before ver_trim_some() looks again; relaxed */

    struct rt_mutex ghost_lock;
    uint8_t *ghosts; /* ring of {tree u32, bytes u16, key} */
    size_t ghost_at, ghost_used;
    _Atomic uint64_t ghost_count; /* keys and lost trees */
    uint32_t lost[VER_LOST_TREES];
    unsigned lost_count;

    struct rt_mutex guard_lock;
    struct ver_guard_node *guards;
    _Atomic uint64_t guard_count;
    struct ver_txn *prepared; /* live writers that are; added and committed under the commit lock */
    _Atomic uint64_t prepared_count; /* relaxed: read under that lock, or by the writer's owner */

    struct rt_mutex wait_lock;
    struct rt_cond wait_conds[VER_WAIT_CONDS];
    _Atomic uint64_t waiting[VER_WAIT_CONDS]; /* partner: ver_slot.writer, see wait.c */
    _Atomic uint64_t wakes[VER_WAIT_CONDS];   /* by ver_wake(); partner: ver_wait(), see wait.c */
    struct ver_waiter *waiters;
    ver_wait_fn *hook;
    void *hook_arg;
};

/* ---- ver.c ---- */

/* The writer has ended: there is nothing left to undo. */
void ver_freed_end(struct ver *v, struct ver_txn *w);

/* ---- view.c ---- */

/* trim_lock held. Announces the horizon as the bound, then collects the published snapshots: sets
 * snaps, limit, snap_bound. */
void ver_views_look(struct ver *v);
/* After the horizon has reached `lsn`: announces it, then looks for views below. *snap: the youngest of them; false: there is none
 * and will be none. */
bool ver_views_below(struct ver *v, lsn_t lsn, lsn_t *snap);
/* trim_lock held. Kills the oldest view but the one in slot `except`; false: none is older than the bound. */
bool ver_views_kill(struct ver *v, uint32_t except);
/* The next occupied slot from `from` on; false: none. */
bool ver_slot_next(struct ver *v, uint32_t from, uint32_t *slot);

/* ---- memory.c ---- */

/* Not zeroed; *class goes with it until it is given back. NULL: no memory. */
void *ver_memory_get(struct ver *v, size_t bytes, uint8_t *class);
void ver_memory_put(struct ver *v, void *memory, uint8_t class);
size_t ver_memory_kept(const struct ver *v); /* bytes that nobody uses */
void ver_memory_free(struct ver *v);

/* ---- chain.c ---- */

uint64_t ver_hash(const struct ver *v, struct ver_key key);
void ver_entry_free(struct ver *v, struct ver_entry *e);
/* The writer's bytes reach the store's counts, those of a live one but for `lag` of them. */
void ver_tell_bytes(struct ver *v, struct ver_txn *w, uint64_t lag);
/* A descriptor without entries. */
void ver_txn_free(struct ver *v, struct ver_txn *w);
/* trim_lock held; the entry's writer is committed and the entry not needed: takes it out of its chain
 * and frees it. A key that has no chain now and may be a ghost goes to the ring. */
void ver_entry_remove(struct ver *v, struct ver_entry *e);
void ver_list_unlink(struct ver_txn *w, struct ver_entry *e);
/* Commit lock held, the writer is visible and not queued. Takes the entries out that no view reads; `below`, `snap`: as
 * ver_views_below() found. */
void ver_settle(struct ver *v, struct ver_txn *w, bool below, lsn_t snap);
/* Bytes of a writer with one entry in one piece, and the writer made of so much memory: committed at `lsn`, not linked. */
size_t ver_own_bytes(const struct ver_own *own);
struct ver_txn *ver_own_make(struct ver *v, void *memory, const struct ver_own *own, uint64_t hash,
                             lsn_t lsn);
/* Links that entry. */
void ver_own_push(struct ver *v, struct ver_txn *w);
/* Commit lock held, the operation is visible: whether a view reads what it replaced. If not, notes the ghost. */
bool ver_own_needed(struct ver *v, const struct ver_own *own, uint64_t hash, bool below,
                    lsn_t snap);

/* ---- trim.c ---- */

/* trim_lock held. One bounded step; true: there may be more. */
bool ver_trim_step(struct ver *v, unsigned max);
/* After `work` entries and writers became visible: trims so many and some more, if nobody else is at it. */
void ver_trim_some(struct ver *v, uint64_t work);
void ver_ghost_add(struct ver *v, uint32_t tree, const uint8_t *key, size_t bytes);

/* ---- wait.c ---- */

/* The writer, of that slot or of none, has ended: wakes who waits for it. */
void ver_ended(struct ver *v, uint32_t slot, uint64_t id);
/* The chain's lock held, under which the owner has been met. */
void ver_owner_set(struct ver *v, const struct ver_txn *w, struct ver_owner *owner);

/* ---- reads.c ---- */

bool ver_reads_hit(const struct ver_reads *r, struct ver_key key);

static inline struct ver_key
ver_entry_key(const struct ver_entry *e)
{
    return (struct ver_key){.tree = e->tree, .bytes = e->key_bytes, .data = e->key};
}

static inline struct ver_entry *
ver_oldest(const struct ver_txn *w)
{
    return atomic_load_explicit(&w->oldest, memory_order_acquire);
}

static inline lsn_t
ver_committed(const struct ver_txn *w)
{
    return atomic_load_explicit(&w->commit, memory_order_acquire);
}

#endif
