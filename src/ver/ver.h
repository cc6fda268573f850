/* ver.h - the version store: older versions of records in memory, record locks, snapshots, the order of commits.
 *
 * The leaf always holds the newest version of a record. What it replaced, and who replaced it, is an entry here:
 *
 *     (tree, key) -> chain, newest first, of entries {writer, before-image or "absent"}
 *
 * A writer makes its entry first (that can fail), then appends the log record, changes the leaf and pushes the entry (that
 * cannot), all under the leaf's exclusive latch: whoever latches the leaf finds the change and its entry, or neither. An
 * entry of a live transaction on top of a chain is the record's write lock. Visibility comes from one atomic
 * word of the writer's descriptor, its commit LSN (R15): a version is visible to a view iff its writer's commit LSN is set
 * and at most the view's horizon, or the writer is the view's own transaction.
 *
 * The horizon is the highest commit LSN such that it and all commits below it are done: durable where that was asked for.
 * It never goes back. A view is a horizon, and `fast`: a leaf whose newest user write (page write LSN) is at most that
 * holds nothing that the view may not see (R1):
 *     view open: h0 = horizon; fast = min(h0, first LSN of every writer registered); then horizon is read again = H.
 *     A writer's first LSN is registered (a lower bound: the log's end) before its first append, and cleared only after
 *     the horizon has passed its commit LSN, or its undo is complete.
 * view.c says why that is right. An operation that is its own transaction registers nothing: its one log record is its
 * commit, appended and queued between ver_commit_lock() and ver_own_end(). It makes an entry only if a view can need it.
 *
 * Trimming: an entry whose writer every view and the horizon see is not needed, nor what is older in its chain; nor is an
 * entry such that no view lies between its writer's commit and the commit of the next older one. When memory is short the oldest view is killed first and trimmed behind it then (R15): a dead view gets TOO_OLD from ver_read()
 * and must not write or commit.
 *
 * Locks: RT_RANK_VER_* , all of which may be taken under page latches; ver_wait() alone waits and is called without any.
 */
#ifndef CH_VER_VER_H
#define CH_VER_VER_H

#include "base/base.h"

struct ver;
struct ver_txn;   /* a writer's descriptor */
struct ver_entry; /* one version */

struct ver_config {
    uint64_t bytes_max; /* of entries; see ver_relieve() */
    unsigned slots_max; /* most views and writers at once */
    lsn_t horizon;      /* everything up to here is committed and visible: log end at open */
    uint64_t next_id;   /* of transactions; not 0 */
};
CH_NODISCARD int ver_create(const struct ver_config *cfg, struct ver **out);
void ver_destroy(struct ver *v);    /* whatever is left in it is freed */
uint64_t ver_new_id(struct ver *v); /* transaction ids: ascending, from next_id on */
uint64_t ver_next_id(const struct ver *v);
/* Recovery: ids up to `id` are taken. */
void ver_raise_id(struct ver *v, uint64_t id);
/* Recovery is over, the log ends at `horizon`: everything below is committed and visible. */
void ver_recovered(struct ver *v, lsn_t horizon);

/* ---- views ---- */

struct ver_view {
    lsn_t horizon;
    lsn_t fast;
    struct ver_txn *self; /* whose own writes it sees; NULL = none */
    uint32_t slot;
};
/* `n` slots instead of fewer, before the first view is opened (recovery). ENOMEM. */
CH_NODISCARD int ver_slots_raise(struct ver *v, unsigned n);
/* EBUSY when all slots are taken. No allocation: cheap. `self` is set to NULL. */
CH_NODISCARD int ver_view_open(struct ver *v, struct ver_view *view);
/* Sees what is committed now; keeps self and slot. A dead view lives again. */
void ver_view_refresh(struct ver *v, struct ver_view *view);
void ver_view_close(struct ver *v, struct ver_view *view); /* gives the slot back */
/* The snapshot is given up, the slot (and a writer's registration) kept: a prepared transaction.
 * Nothing may be read by it any more. */
void ver_view_release(struct ver *v, struct ver_view *view);
bool ver_view_dead(struct ver *v, const struct ver_view *view);
lsn_t ver_horizon(const struct ver *v);

/* ---- reading; a latch of the leaf is held ---- */

/* The leaf with this page write LSN can be read as it stands. view NULL: the newest visible versions, as of now. */
bool ver_fast(struct ver *v, const struct ver_view *view, lsn_t write_lsn);
enum ver_how {
    VER_CURRENT, /* what the leaf says now: a ghost is absent */
    VER_VALUE,   /* data, bytes, flags */
    VER_ABSENT,
    VER_SPILLED, /* in the undo tree at (txn, seq): read it without the latch; gone there: begin anew */
    VER_TOO_OLD, /* the view was killed */
};
enum {
    VER_VALUE_MAX = COHORT_ENTRY_MAX
};
struct ver_found {
    enum ver_how how;
    uint8_t flags;
    size_t bytes;
    uint64_t txn, seq;
    uint8_t data[VER_VALUE_MAX];
};
struct ver_key {
    uint32_t tree;
    size_t bytes;
    const void *data;
};
/* May also be asked later without the latch for a key of a leaf that was copied under it. VER_CURRENT then means the copy,
 * but only if ver_pops() still is what it was before the leaf was unlatched. Otherwise something may have been undone
 * since: the copy may hold what never was, and the leaf has to be copied anew. */
void ver_read(struct ver *v, const struct ver_view *view, struct ver_key key,
              struct ver_found *out);
/* How many entries have been undone since creation. */
uint64_t ver_pops(const struct ver *v);
/* Any chain for this key: a ghost without one is garbage. */
bool ver_has(struct ver *v, struct ver_key key);
/* The LSN of the newest commit that changed the key, while the horizon is below it; else 0. */
lsn_t ver_invisible(struct ver *v, struct ver_key key);

/* ---- writing; the exclusive latch of the leaf is held ---- */

enum ver_kind { /* what an entry restores */
    VER_WAS_VALUE = 1,
    VER_WAS_ABSENT = 2,
    VER_WAS_LOCK = 3, /* nothing was changed: a lock only */
};
/* A writer's descriptor, made at its first write. `slot`: of its view, which is registered as writing from `first` on
 * (a lower bound of the LSN of its first record, R3); for an operation that is its own transaction slot NONE.
 * ENOMEM. Ends with ver_commit_end() or ver_abort_end(); then it belongs to the store. */
#define VER_NO_SLOT UINT32_MAX
CH_NODISCARD int ver_txn_create(struct ver *v, uint64_t id, void *tag, uint32_t slot, lsn_t first,
                                struct ver_txn **out);
void ver_txn_discard(struct ver *v, struct ver_txn *w); /* one without entries, or all popped */
/* The writer replaces or takes away a tree as a whole, without versions of its records: who has read in that tree has read what it
 * writes. Stays so when what it did is rolled back. Its own thread. ENOMEM. */
CH_NODISCARD int ver_txn_whole(struct ver *v, struct ver_txn *w, uint32_t tree);
uint64_t ver_txn_id(const struct ver_txn *w);
lsn_t ver_txn_first(const struct ver_txn *w);

struct ver_owner {
    uint64_t id; /* 0 = none */
    void *tag;
    uint64_t wakes; /* internal; 0 in one that ver_may_write() has not filled */
};
/* May `w` (NULL: an operation of its own) write the key? 0: yes; *again: its newest entry there is younger than its
 * newest savepoint, so that another one would restore nothing (one that is only a lock does not count). CONFLICT: changed
 * by a commit after the view (`view` NULL: any commit is fine). SNAPSHOT_TOO_OLD: the view is dead. ERETRY, without an
 * error record: *owner, another live transaction, holds it. */
CH_NODISCARD int ver_may_write(struct ver *v, struct ver_txn *w, const struct ver_view *view,
                               struct ver_key key, struct ver_owner *owner, bool *again);
/* The writer has an entry for the key, be it a lock: another lock would add nothing. */
bool ver_holds(struct ver *v, const struct ver_txn *w, struct ver_key key);
/* An entry with copies of key and before-image, not yet visible to anybody; its seq is the writer's next. NULL: no memory. */
struct ver_entry *ver_entry_create(struct ver *v, struct ver_txn *w, struct ver_key key,
                                   enum ver_kind kind, uint8_t flags, const void *before,
                                   size_t before_bytes);
void ver_entry_discard(struct ver *v, struct ver_entry *e); /* never pushed */
uint64_t ver_entry_seq(const struct ver_entry *e);
/* Links it: on top of its chain and at the end of its writer's list. `lsn`: of the record; `deletes`: the leaf holds a
 * ghost now. Cannot fail. */
void ver_entry_push(struct ver *v, struct ver_entry *e, lsn_t lsn, bool deletes);
/* A record of `before` bytes has become one of `after` by `w` (NULL: an operation of its own). The leaf's latch is held. */
void ver_note_sizes(struct ver *v, struct ver_txn *w, size_t before, size_t after);
/* What undo of all live writers may have to find room for: bytes that they took out of leaves, as far as others have put bytes
 * into leaves since. */
uint64_t ver_undo_bytes(const struct ver *v);
/* Undone: unlinks the writer's newest entry, which is on top of its chain, and frees it. After its undo record was
 * appended, under the leaf's latch (R4). Waits for nothing. */
void ver_entry_pop(struct ver *v, struct ver_entry *e);
/* Recovery: a prepared transaction's lock, its before-image in the undo tree at (w, seq). Entries in ascending seq. ENOMEM. */
CH_NODISCARD int ver_entry_restore(struct ver *v, struct ver_txn *w, struct ver_key key,
                                   enum ver_kind kind, uint64_t seq);

/* ---- a writer's entries, for undo and spilling: the owner's thread; beside it, as it pushes, one spiller by
 * ver_oldest_unspilled(), ver_entry_info() and ver_entry_spilled(), while neither pops nor commits ---- */

struct ver_undo {
    uint64_t seq;
    lsn_t lsn;
    uint32_t tree;
    enum ver_kind kind;
    uint8_t flags;
    bool spilled; /* it is in the undo tree; before may be NULL then */
    size_t key_bytes, before_bytes;
    const void *key, *before;
};
struct ver_entry *ver_newest(struct ver_txn *w); /* NULL = none */
struct ver_entry *ver_oldest_unspilled(struct ver_txn *w);
struct ver_entry *ver_newer(struct ver_entry *e);
/* Pointers are good while the entry is. */
void ver_entry_info(const struct ver_entry *e, struct ver_undo *out);
/* The entry is in the undo tree from now on; `drop`: the image's memory is given back (small ones stay). May be called
 * again, to drop. */
void ver_entry_spilled(struct ver *v, struct ver_entry *e, bool drop);
/* Entries from now on are kept apart from those before (see *again). */
void ver_savepoint(struct ver_txn *w);
uint64_t ver_txn_seq(const struct ver_txn *w); /* of the newest entry ever made; 0 = none */
/* Of all live writers: keys and before-images; of each up to VER_LAG_MAX bytes may be missing. */
enum {
    VER_LAG_MAX = 2048 /* short transactions come and go without a write to the store's counts */
};
uint64_t ver_unspilled_bytes(const struct ver *v);
uint64_t ver_txn_unspilled_bytes(const struct ver_txn *w);

/* ---- commit and abort ---- */

/* A commit's record is appended between lock and end, so commit LSNs ascend in the order of the queue. `durable`: it becomes
 * visible only once the log is durable up to it. The descriptor then belongs to the store. No call blocks for long. Only a
 * writer without a slot may end under page latches. The own view, if there is one, is released before the end, so that it does
 * not keep what its writer replaced. */
void ver_commit_lock(struct ver *v);
void ver_commit_end(struct ver *v, struct ver_txn *w, lsn_t lsn, bool durable); /* unlocks */
void ver_commit_unlock(struct ver *v); /* without a commit */
/* An operation that is its own transaction and changes one record: the exclusive latch of the leaf is held from
 * ver_may_write() until the leaf is changed, which comes last. Commit lock held: ver_own_begin(), which alone can fail (ENOMEM), then
 * the record is appended, then ver_own_end(), which unlocks. */
struct ver_own {
    struct ver_key key;
    enum ver_kind kind; /* not LOCK */
    uint8_t flags;
    const void *before;
    size_t before_bytes;
    bool deletes; /* the leaf will hold a ghost */
};
CH_NODISCARD int ver_own_begin(struct ver *v, const struct ver_own *own);
void ver_own_end(struct ver *v, const struct ver_own *own, lsn_t lsn, bool durable);
/* The log is durable up to `durable`: moves the horizon over the commits that are done; returns it. */
lsn_t ver_advance(struct ver *v, lsn_t durable);
/* The writer's registration (first LSN) ends: after its commit is visible, or after its abort. Before
 * ver_view_close(). Nothing when there is none. */
void ver_unregister(struct ver *v, uint32_t slot);
/* All entries popped: wakes who waits for it, frees it. */
void ver_abort_end(struct ver *v, struct ver_txn *w);

/* Bounded: removes up to `max` entries that nobody needs any more. True: there may be more. */
bool ver_trim(struct ver *v, unsigned max);
/* Over the bound: trims; kills the oldest views while committed versions that they hold take more than half of it. Called
 * without latches before writes; cheap when not over. True: still over, because of live transactions' images, which then
 * should be spilled and dropped. */
bool ver_relieve(struct ver *v);
/* Room in the file is short: kills the oldest view but `own` (NULL: any), if committed versions are kept for it, and trims. False:
 * there is none. No latch held. */
bool ver_give_up(struct ver *v, const struct ver_view *own);
/* Keys that may have become garbage ghosts: of trimmed deletes and undone inserts; bounded memory, so some may be
 * forgotten. `key` of COHORT_KEY_MAX bytes. False: none. */
bool ver_take_ghost(struct ver *v, uint32_t *tree, uint8_t *key, size_t *key_bytes);
/* A tree whose ghosts the memory had no room for: all of it should be walked through. False: none. */
bool ver_take_lost(struct ver *v, uint32_t *tree);
/* The transaction, spilled in part, is committed, and no view needs its before-images any more: its part of the undo tree
 * may be deleted. False: none. */
bool ver_take_cleanup(struct ver *v, uint64_t *txn);

/* ---- waiting for a record ---- */

struct ver_waiter { /* the caller's memory, zeroed, filled in */
    uint64_t id;    /* 0: an operation of its own, which others never wait for */
    void *tag;
    _Atomic bool canceled; /* by ver_cancel(); cleared when the wait reports it */
    uint64_t waits_for;    /* internal, as what follows */
    struct ver_waiter *next;
};
typedef void ver_wait_fn(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder,
                         void *holder_tag);
void ver_set_wait_hook(struct ver *v, ver_wait_fn *fn, void *arg);
/* Until `owner` has ended, or `ns` passed: 0 (try again), TIMEOUT, DEADLOCK (with the ring of ids in the error's text),
 * CANCELED. The hook is called first, without locks. No latch held. */
CH_NODISCARD int ver_wait(struct ver *v, struct ver_waiter *me, const struct ver_owner *owner,
                          uint64_t ns);
void ver_cancel(struct ver *v, struct ver_waiter *w);
/* The writer has given records up without ending (rollback to a savepoint): who waits for it tries again. No latch held. */
void ver_wake(struct ver *v, const struct ver_txn *w);

/* ---- serializable ---- */

/* What a transaction has read: ranges of keys by tree. Bounded: beyond it ranges of a tree are joined, so more conflicts
 * are seen, never fewer. */
struct ver_reads;
CH_NODISCARD int ver_reads_create(struct ver_reads **out);
void ver_reads_destroy(struct ver_reads *r);
/* Keys from..to, both included; to NULL: no end; from NULL: no begin. ENOMEM. */
CH_NODISCARD int ver_reads_add(struct ver_reads *r, uint32_t tree, const struct ver_key *from,
                               const struct ver_key *to);
/* CONFLICT when a transaction other than `self` that committed after `view` (visible or not) wrote into what was read.
 * *upto (0 at first): commits that are checked already; call it without the commit lock, then again under it (`locked`).
 * SNAPSHOT_TOO_OLD: the view is dead. */
CH_NODISCARD int ver_validate(struct ver *v, const struct ver_view *view, const struct ver_reads *r,
                              bool locked, lsn_t *upto);
/* A prepared transaction's reads (taken, but not on error): commits that write into them are refused until ver_unguard().
 * Called under the commit lock, after ver_validate(). ENOMEM. */
CH_NODISCARD int ver_guard(struct ver *v, uint64_t id, struct ver_reads *r);
void ver_unguard(struct ver *v, uint64_t id);
/* Commit lock held (recovery: nobody else is there). The writer gets prepared: nothing can refuse its commit from now on.
 * CONFLICT: another prepared one has written what this one has read (`r` NULL: nothing), and may commit before it. */
CH_NODISCARD int ver_prepare(struct ver *v, struct ver_txn *w, const struct ver_reads *r);
/* It is going to be undone. ver_commit_end() needs no call of this. */
void ver_unprepare(struct ver *v, struct ver_txn *w);
/* Commit lock held: CONFLICT when the writer's entries touch what another, prepared transaction has read. An operation of its
 * own: `key` instead (`w` NULL). */
CH_NODISCARD int ver_guarded(struct ver *v, const struct ver_txn *w, const struct ver_key *key);

struct ver_counts {
    uint64_t bytes, entries, views, writers, conflicts, deadlocks, waits, timeouts, killed;
};
void ver_counts(struct ver *v, struct ver_counts *out);
size_t ver_memory(const struct ver *v); /* fixed tables; entries excluded */

#endif
