/* txn_internal.h - what the files of txn share: the manager, its slots, claims.
 *
 * A transaction lives in the slot of its view, so that beginning one is a view and some stores. What others may look at
 * (checkpoint, writers that make room, sweeper) is atomic or under `mx`:
 *
 *   claim   who spills or undoes entries of a transaction has claimed it: `busy`. A claim is kept for a few entries, and
 *           whoever has one never waits for room in the log's ring: it takes class SYSTEM (EFULL: it gives up the claim first,
 *           then waits). So a checkpoint, which spills what holds the log back, can wait for a claim.
 *   closed  the owner is about to give the descriptor to the version store: nobody claims it any more.
 *
 * Locks, all of rank TXN, in this order: spill_lock (0), lock (1), a slot's mx (2; one at a time).
 */
#ifndef CH_TXN_TXN_INTERNAL_H
#define CH_TXN_TXN_INTERNAL_H

#include "rt/rt.h"
#include "txn/txn.h"
#include "ver/ver.h"
#include "wal/wal.h"

enum {
    TXN_RECORD_REACH =
        8192, /* a record's start is at most so far below its LSN, which is its end */
    TXN_CREDIT_BYTES = 16384, /* log room waited for before a step that takes class SYSTEM */
    TXN_SPILL_BYTES = 8192,   /* before-images that one claim spills */
    TXN_UNDO_CHUNK = 16,      /* spilled entries undone before their rows are deleted */
    TXN_RETRIES = 2000,       /* of a step for which there is no room right now ... */
    TXN_RETRY_NS = 1000000,   /* ... so far apart */
    TXN_HEADER_BYTES = 16,    /* of the undo tree's header, without gid */
    TXN_ORDER_SPILL = 0,
    TXN_ORDER_LOCK = 1,
    TXN_ORDER_SLOT = 2,
};
enum txn_state {
    TXN_FREE,
    TXN_OPEN,
    TXN_PREPARING, /* its gid is taken, the record not yet durable */
    TXN_PREPARED,
    TXN_DECIDING, /* prepared, and somebody commits or aborts it */
    TXN_FAILED,   /* the log failed under its commit or undo: locks and slot stay */
};
enum txn_header { /* state byte of the undo tree's header */
    TXN_HEADER_NONE = 0,
    TXN_HEADER_ACTIVE = 1,
    TXN_HEADER_PREPARED = 2,
    TXN_HEADER_COMMITTED = 3,
};

/* What a transaction that spilled leaves behind: its part of the undo tree. Made at its first spill. */
struct txn_left {
    struct txn_left *next;
    uint64_t id;
    lsn_t
        pin; /* its COMMIT record starts here or above; CH_LSN_MAX: not needed, the header says it */
    bool unread; /* no view needs its before-images */
    bool busy;   /* somebody works on it */
};
struct txn_savepoint {
    uint64_t id, seq;
    unsigned notes;
};
struct txn_note {
    struct reg_tree *tree;
    bool created; /* else dropped */
};
struct txn {
    struct txns *ts;
    _Atomic uint64_t id; /* 0: free; release, with acquire of txns_is_open() */
    _Atomic int state;   /* enum txn_state; the same */
    /* The log is needed from here on, whatever entries say; CH_LSN_MAX: not. Set (seq_cst) before an append, cleared
     * (release) once the entry is pushed; acquire in oldest_of(). */
    _Atomic lsn_t pin;
    struct ver_view view;
    struct ver_txn *w; /* NULL before the first write; changes under mx */
    bool read_only, serializable;
    bool logged; /* it has records in the log */
    bool locked; /* it has entries that only lock, of which the log knows nothing */
    int durability;
    int doomed; /* DEADLOCK or SNAPSHOT_TOO_OLD of a write; 0 = none */
    uint64_t timeout_ns;
    void *tag;
    uint64_t writes; /* for cursors */
    struct ver_reads *reads;
    struct ver_waiter waiter;
    struct reg_tree *last_tree; /* written into before */
    struct reg_tree **trees; /* users' trees written into, by id; a reference and a writer each */
    unsigned tree_count, tree_room;
    struct txn_savepoint *savepoints;
    unsigned savepoint_count, savepoint_room;
    uint64_t savepoint_next;
    struct txn_note *notes;
    unsigned note_count, note_room, drops;
    struct txn *next_prepared; /* ts->lock */
    bool aborting;             /* prepared, and its undo has begun */
    uint8_t gid_bytes;
    uint8_t gid[COHORT_GID_MAX];
    _Atomic uint64_t commits, aborts; /* of this slot so far; relaxed */

    struct rt_mutex mx;
    struct rt_cond cond;
    bool busy, closed;      /* mx */
    lsn_t busy_floor;       /* mx: while busy, what oldest_of() answers for the entries */
    lsn_t closed_floor;     /* mx: the same while closed, until the descriptor is given away */
    enum txn_header header; /* what follows: the claim's */
    uint64_t rows;          /* of it in the undo tree */
    struct txn_left *left;
};

struct txn_recovery;
struct txns {
    struct txns_config cfg;
    struct txn *slots;
    _Atomic uint32_t slots_used; /* highest slot ever used + 1; relaxed, grows only */
    _Atomic lsn_t async_lsn;
    _Atomic uint64_t spilled_bytes, alone; /* relaxed counts */
    _Atomic lsn_t recover_pin;  /* recovery needs the log from here on; CH_LSN_MAX: not. seq_cst */
    struct rt_mutex spill_lock; /* one writer at a time makes room */
    struct rt_mutex lock;
    struct txn *prepared; /* lock, in order of preparation */
    struct txn **prepared_end;
    struct txn_left *lefts;        /* lock */
    struct txn_recovery *recovery; /* NULL: it is over */
    lsn_t room_at; /* recovery: up to where the log might be cut when cfg.room was called last */
    /* A walk through a tree for ghosts; the sweeper's (txns_step()). */
    uint32_t walk; /* tree, 0 = none */
    size_t walk_bytes;
    uint8_t walk_key[COHORT_KEY_MAX]; /* where to go on */
};

/* ---- txn.c ---- */

/* Before any transaction was begun: `n` slots instead of fewer. ENOMEM. */
CH_NODISCARD int txns_slots_raise(struct txns *ts, unsigned n);

/* A slot is taken for a view; resets it. */
struct txn *txn_slot_begin(struct txns *ts, const struct ver_view *view, uint64_t id);
/* Ends it for others: references, notes, registration, view, slot. The descriptor is gone. */
void txn_slot_end(struct txn *t, bool committed);
/* Gives up on it: locks and slot stay until the handle is closed. */
void txn_slot_fail(struct txn *t, int rc);
/* Makes the descriptor if there is none. ENOMEM. */
CH_NODISCARD int txn_writer_begin(struct txn *t);
/* The descriptor has been given away. */
void txn_writer_gone(struct txn *t);
/* COMMIT record and what follows; the transaction was validated by `check` under the commit lock. Both end it or leave it as it was
 * (*committed false). */
CH_NODISCARD int txn_commit_writer(struct txn *t, bool validate, bool durable, lsn_t *lsn,
                                   bool *committed);
/* Commit lock held: CONFLICT, SNAPSHOT_TOO_OLD. *upto as ver_validate(). */
CH_NODISCARD int txn_may_commit(struct txn *t, lsn_t *upto);
/* Undoes everything, logs ABORT, ends it. */
CH_NODISCARD int txn_abort_writer(struct txn *t);
/* Waits until a commit is visible. */
CH_NODISCARD int txns_wait_visible(struct txns *ts, lsn_t lsn, int durability, bool durable);
CH_NODISCARD int txn_grow(void **mem, unsigned *room, unsigned count, size_t bytes);

/* ---- undo.c ---- */

/* Undoes the entries with seq above `seq`, newest first, and deletes their rows of the undo tree. */
CH_NODISCARD int txn_undo(struct txn *t, uint64_t seq);

/* ---- spill.c ---- */

/* Lets the owner of the handle do what its threads would, or in recovery make room in the log. No room is no error. */
CH_NODISCARD int txns_poll(struct txns *ts);
/* For a step that found no room: waits a little; false: for long enough. */
bool txn_retry(struct txns *ts, unsigned *tries);
/* The same while something is pinned: polling may wait for what the pin holds back. */
bool txn_retry_pinned(struct txns *ts, unsigned *tries);
struct bt *txns_undo(struct txns *ts);
/* Claims it for undo. */
void txn_claim(struct txn *t);
void txn_unclaim(struct txn *t);
/* Nobody claims it from now on; waits for who has. / It goes on after all. */
void txn_close(struct txn *t);
void txn_reopen(struct txn *t);
/* Log room of that class is waited for here, so that a step of class SYSTEM finds its own. */
CH_NODISCARD int txns_credit(struct txns *ts, enum wal_class c, struct wal_ticket *ticket);
/* Claimed. Entries whose records may lie below `below`, or as many as have `bytes`; EFULL, ENOMEM. */
CH_NODISCARD int txn_spill(struct txn *t, lsn_t below, uint64_t bytes);
/* The owner, not claimed: all entries, waiting for room. */
CH_NODISCARD int txn_spill_all(struct txn *t);
CH_NODISCARD int txn_header_write(struct txns *ts, uint64_t id, enum txn_header state,
                                  const uint8_t *gid, size_t gid_bytes);
/* Called before a write: version memory and unspilled undo within their bounds. `own` NULL: an operation of its own. `frees`: the
 * write gives room back, so undo may take pages that are kept for that. */
CH_NODISCARD int txns_make_room(struct txns *ts, struct txn *own, bool frees);
/* There is no room in the file: removes what committed transactions have left, and gives up the oldest snapshot but `own` (NULL:
 * any) that undo is kept for. True: it may be worth another try. */
bool txns_find_room(struct txns *ts, const struct ver_view *own);
/* Deletes rows [first, last] of a transaction, the header being seq 0. `pinned`: something holds the log back until they are
 * gone, so that room is not waited for. */
CH_NODISCARD int txns_rows_remove(struct txns *ts, uint64_t id, uint64_t first, uint64_t last,
                                  bool pinned);
/* Before a commit's record is appended (the store may hand out its cleanup at once): takes it over, nobody works on it until it
 * is ready (`unread`: it has no rows). / The commit did not come about: given back. */
void txns_left_add(struct txns *ts, struct txn_left *left, lsn_t pin);
void txns_left_ready(struct txns *ts, struct txn_left *left, bool unread);
void txns_left_remove(struct txns *ts, struct txn_left *left);

/* ---- write.c ---- */

/* The tree's writer count is raised with the first write into it. */
CH_NODISCARD int txn_tree_note(struct txn *t, struct reg_tree *tree);
/* Where entries of that tree are undone. */
struct bt *txn_tree_of(struct txn *t, uint32_t id);

/* ---- read.c ---- */

/* NOTFOUND when the tree was dropped; t may be NULL. */
CH_NODISCARD int txn_tree_usable(const struct txn *t, struct reg_tree *tree);

/* ---- prepared.c ---- */

void txns_prepared_add(struct txns *ts, struct txn *t);    /* lock held */
void txns_prepared_remove(struct txns *ts, struct txn *t); /* missing: fine */

/* ---- recover.c ---- */

void txns_recovery_free(struct txns *ts);

static inline uint64_t
txn_id_of(const struct txn *t)
{
    return atomic_load_explicit(&t->id, memory_order_relaxed);
}

static inline bool
txn_no_room(int rc)
{
    return cohort_class_of(rc) == COHORT_CLASS_NO_SPACE;
}

#endif
