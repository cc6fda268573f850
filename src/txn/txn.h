/* txn.h - transactions over trees: begin, reads, writes, savepoints, commit, abort, two-phase commit; undo, spilling and
 * recovery.
 *
 * Log records of this layer (payloads, little-endian; FORMAT.md):
 *   5 COMMIT   u64 txn | u32 flags (1: part of its undo is in the undo tree)
 *   6 ABORT    u64 txn                   rolled back completely
 *   7 PREPARE  u64 txn | u8 gid bytes | gid
 * and btree's WRITE and UNDO.
 *
 * Where undo is. Each write's record carries redo and undo (seq, before-image). While a transaction is open its entries are in
 * the version store. Entries move ("spill") to the undo tree, a tree without versions in the same file, keyed (txn, seq), when
 *   - memory is short (their images are then dropped; readers find them there), or
 *   - a checkpoint wants to cut the log below them (R12), or the sum of unspilled undo exceeds undo_bytes_max.
 * With it goes a header (txn, 0): {u8 version 1, u8 state (1 active, 2 prepared, 3 committed), u16 gid bytes, u32 0, u64 0,
 * gid}; rows without header are garbage, and rows of undone entries are deleted before their undo records are cut from the log. So an open transaction never pins the log, whatever its size. Undo tree entries of a committed
 * transaction are deleted once no view needs them; until its header says "committed" its COMMIT record is kept in the log.
 *
 * Recovery. Pass 1 notes for each transaction in the log: open, prepared (gid), ended, which entries are undone. After redo, undo
 * entries of open and prepared transactions that only the log has go to the undo tree; losers are undone from there, newest first, each step logged (R4);
 * prepared ones get their locks back in the version store. A crash in recovery recovers again.
 *
 * Threads: a transaction: one call at a time, any thread. The manager: all.
 */
#ifndef CH_TXN_TXN_H
#define CH_TXN_TXN_H

#include "base/base.h"
#include "btree/btree.h"
#include "reg/reg.h"

struct ver;
struct wal;
struct txns; /* the manager of one database */
struct txn;

enum {
    TXN_RECORD_COMMIT = 5,
    TXN_RECORD_ABORT = 6,
    TXN_RECORD_PREPARE = 7,
};
struct txns_config {
    struct ver *ver;
    struct wal *wal;
    struct reg *reg;
    uint64_t lock_timeout_ms;
    int durability; /* COHORT_DURABILITY_* */
    uint64_t undo_bytes_max;
    unsigned txns_max; /* the slots of `ver` */
    /* Called before a write, without latches (boot: is the handle writable; background=no: does what threads would). */
    int (*before_write)(void *arg);
    /* The same in recovery, between steps, while nobody else cuts the log: a checkpoint when it fills. May be NULL. */
    int (*room)(void *arg);
    /* The log failed: the handle is read-only from now on. */
    void (*failed)(void *arg, int rc);
    void *arg;
};
CH_NODISCARD int txns_create(const struct txns_config *cfg, struct txns **out);
void txns_destroy(struct txns *ts); /* prepared ones are forgotten, no other is open */
size_t txns_memory(const struct txns *ts);

struct txn_options {
    bool read_only, serializable;
    int durability;          /* or COHORT_DEFAULT */
    int64_t lock_timeout_ms; /* or COHORT_DEFAULT */
    void *tag;
};
/* Cheap: no allocation in the steady state. EBUSY, ENOMEM. */
CH_NODISCARD int txn_begin(struct txns *ts, const struct txn_options *o, struct txn **out);
/* Both end it whatever the result; as cohort_commit(), cohort_commit_visible(). *lsn may be NULL. */
CH_NODISCARD int txn_commit(struct txn *t, bool visible_only, lsn_t *lsn);
CH_NODISCARD int txn_abort(struct txn *t);
CH_NODISCARD int txn_refresh(struct txn *t);
CH_NODISCARD int txn_savepoint(struct txn *t, uint64_t *sp);
CH_NODISCARD int txn_rollback_to(struct txn *t, uint64_t sp);
CH_NODISCARD int txn_release(struct txn *t, uint64_t sp);
void txn_cancel(struct txn *t); /* any thread */
uint64_t txn_id(const struct txn *t);
struct txns *txn_manager(const struct txn *t);

/* ---- reads; t NULL is not allowed ---- */
CH_NODISCARD int txn_get(struct txn *t, struct reg_tree *tree, struct bt_slice key,
                         bt_copy_fn *copy, void *arg);
CH_NODISCARD int txn_get_many(struct txn *t, struct reg_tree *tree, size_t n,
                              const struct bt_slice *keys, bt_copy_many_fn *copy, void *arg,
                              int *rcs);
/* A cursor that follows the transaction's writes, and (serializable) notes what it has seen. */
struct txn_cursor;
CH_NODISCARD int txn_cursor_create(struct txn *t, struct reg_tree *tree, struct txn_cursor **out);
void txn_cursor_destroy(struct txn_cursor *c);
CH_NODISCARD int txn_cursor_seek(struct txn_cursor *c, enum bt_seek how, struct bt_slice key);
CH_NODISCARD int txn_cursor_exact(struct txn_cursor *c,
                                  struct bt_slice key); /* NOTFOUND: stands nowhere */
CH_NODISCARD int txn_cursor_next(struct txn_cursor *c);
CH_NODISCARD int txn_cursor_prev(struct txn_cursor *c);
bool txn_cursor_entry(struct txn_cursor *c, struct bt_slice *key, struct bt_slice *value,
                      unsigned *flags);
struct txn *txn_cursor_txn(struct txn_cursor *c);
struct reg_tree *txn_cursor_tree(struct txn_cursor *c);

/* ---- writes ---- */
/* op: kind, flags, key, value, system; the rest is filled in here. Waits for locks as the options say. Errors of bt_write(), TIMEOUT,
 * DEADLOCK, CANCELED, ETXN (read-only, or only abort is possible). *done as bt_write(), on every error too (owner.id 0: none).
 * In tree REG_PENDING the view is not looked at (bt_op.view NULL): the record of what a transaction creates is written after
 * its snapshot, by an operation of its own. */
CH_NODISCARD int txn_write(struct txn *t, struct reg_tree *tree, const struct bt_op *op,
                           struct bt_done *done);
/* A transaction of its own (op: as above): `durability` or COHORT_DEFAULT; returns once it is visible. ERETRY with done->had_ref: see bt_write(). */
CH_NODISCARD int txn_write_alone(struct txns *ts, struct reg_tree *tree, const struct bt_op *op,
                                 int durability, struct bt_done *done);
/* Newest visible state, without a transaction. */
CH_NODISCARD int txn_get_alone(struct txns *ts, struct reg_tree *tree, struct bt_slice key,
                               bt_copy_fn *copy, void *arg);
CH_NODISCARD int txn_get_many_alone(struct txns *ts, struct reg_tree *tree, size_t n,
                                    const struct bt_slice *keys, bt_copy_many_fn *copy, void *arg,
                                    int *rcs);
/* Of several writes that belong together some could not be done: from now on only a rollback to a savepoint that exists, or
 * the end without a commit, is possible. */
void txn_doom(struct txn *t);
/* Calls cfg.before_write: for who writes into a tree without versions by bt_write(). No latch held. */
CH_NODISCARD int txns_before_write(struct txns *ts);
/* An operation of its own that others logged (a bulk load): is it to be `durable` by this durability (or COHORT_DEFAULT)? Once
 * its record is appended, which ends at `lsn`: returns when it is visible. Errors as txn_write_alone(). */
bool txns_is_durable(const struct txns *ts, int durability);
CH_NODISCARD int txns_settle(struct txns *ts, lsn_t lsn, int durability);
/* What src/cat does to trees within the transaction; ended together with it, or by a rollback to a savepoint before. `created`: its handle ends
 * with an abort. `dropped`: reg_drop_begin() was called: ends with the commit.
 * Adds a reference of its own. */
CH_NODISCARD int txn_note_created(struct txn *t, struct reg_tree *tree);
CH_NODISCARD int txn_note_dropped(struct txn *t, struct reg_tree *tree);
bool txn_writes_into(const struct txn *t, const struct reg_tree *tree);
/* Is a transaction with this id open (prepared ones included)? */
bool txns_is_open(struct txns *ts, uint64_t id);

/* ---- two-phase commit ---- */
CH_NODISCARD int txn_prepare(struct txn *t, const void *gid,
                             size_t gid_bytes); /* ends the handle, except on EXISTS, EINVAL */
CH_NODISCARD int txns_commit_prepared(struct txns *ts, const void *gid, size_t gid_bytes);
CH_NODISCARD int txns_abort_prepared(struct txns *ts, const void *gid, size_t gid_bytes);
CH_NODISCARD int txns_list_prepared(struct txns *ts,
                                    int (*visit)(void *arg, const void *gid, size_t gid_bytes),
                                    void *arg);

/* ---- checkpoint ---- */
/* Spills undo of open transactions whose records lie below `lsn`. Never waits for log room: EFULL when there is none, the rest then
 * stays. CHECKPOINT lock held. */
CH_NODISCARD int txns_spill_below(struct txns *ts, lsn_t lsn);
/* LSN of the newest commit with durability async, 0 = none: boot's flush thread bounds its delay. */
lsn_t txns_async_lsn(struct txns *ts);
/* The cut must not pass this (R12; R3: registered before the first append). CH_LSN_MAX: none. */
lsn_t txns_oldest(struct txns *ts);
/* One bounded step of what is left over by committed transactions: trims versions, purges ghosts, deletes undo entries. */
/* One thread at a time. *did is set, never cleared. */
CH_NODISCARD int txns_step(struct txns *ts, bool *did);

/* ---- recovery ---- */
/* Pass 1: every record of types 3 .. 7 in order. ELOG, ENOMEM. */
CH_NODISCARD int txns_recover_note(struct txns *ts, uint8_t type, lsn_t start, const uint8_t *data,
                                   uint32_t bytes);
/* Highest id seen in pass 1, 0 = none. */
uint64_t txns_recover_max_id(const struct txns *ts);
/* After redo and reg_load(): reads headers of the undo tree. Then, again every record of type WRITE in order. */
CH_NODISCARD int txns_recover_headers(struct txns *ts);
CH_NODISCARD int txns_recover_collect(struct txns *ts, lsn_t start, const uint8_t *data,
                                      uint32_t bytes);
/* Undoes losers, restores prepared ones. More of them than txns_max: there are more slots from now on. */
CH_NODISCARD int txns_recover_finish(struct txns *ts);
/* Then: calls visit with each prepared one, which may be read by txn_cursor_*() and told of trees that it created or dropped.
 * Nobody else uses the manager. visit's error ends it. */
CH_NODISCARD int txns_recover_prepared(struct txns *ts, int (*visit)(void *arg, struct txn *t),
                                       void *arg);

struct txns_counts {
    uint64_t open, prepared, commits, aborts, spilled_bytes;
};
void txns_counts(struct txns *ts, struct txns_counts *out);
void txns_set_wait_hook(struct txns *ts,
                        void (*fn)(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder,
                                   void *holder_tag),
                        void *arg);

#endif
