/* btree.h - a B+-tree of variable-length keys and values on cached pages.
 *
 * Leaves are found through the parent only: no sibling links, no stored fence keys. Every change of
 * one or more pages is one log record (a mini-transaction: struct of per-page operations), which
 * redo applies page by page, the page LSN deciding; a record that fills a page from another holds
 * its full contents (R14). Inner nodes are read optimistically; leaves under latches. A structure
 * change holds the tree's mutex, latches parent then children. The root page id of a tree never
 * changes.
 *
 * Versions. A tree with `ver` set keeps older versions of its records there. Its leaves hold the newest
 * version, committed or not; a deleted record stays as a ghost until no view can see it (bt_purge()).
 * Reads take a view; NULL is the newest visible state. Writes belong to a transaction, or are one of
 * their own. A tree without `ver` (undo tree, large values) is read and written as it stands; deletes
 * remove at once.
 */
#ifndef CH_BTREE_BTREE_H
#define CH_BTREE_BTREE_H

#include "base/base.h"
#include "rt/rt.h"

struct buf;
struct buf_ref;
struct wal;
struct ver;
struct ver_txn;
struct ver_view;
struct ver_entry;
struct bt { /* one tree; the caller's memory */
    struct buf *buf;
    struct wal *wal;
    struct ver *ver; /* NULL: without versions; set after bt_init() */
    struct bt *undo; /* where spilled before-images are (undo.h); with `ver` only */
    uint32_t tree;
    page_id root;
    _Atomic lsn_t
        born; /* bulk loaded at that LSN: views below see an empty tree; 0 = always there */
    struct rt_mutex smo; /* rank TREE */
};
void bt_init(struct bt *t, struct buf *b, struct wal *w, uint32_t tree, page_id root);
void bt_fini(struct bt *t);
/* Creates an empty tree: formats page `root`, which buf_new() just handed out (still latched;
 * unlatched on return). */
CH_NODISCARD int bt_format(struct bt *t, struct buf_ref *root);

struct bt_slice {
    const void *data;
    size_t bytes;
};
enum {          /* flags of a value */
    BT_REF = 1, /* it names a large value that is kept elsewhere; the tree does not look into it */
    BT_REF_MAX = 32,
    /* Key and value bytes: of users COHORT_ENTRY_MAX; internal trees wrap users' entries. */
    BT_ENTRY_MAX = COHORT_ENTRY_MAX + 24,
};
/* Calls `copy` with the value as the view sees it, under the leaf latch or not (must not block or
 * fail). NOTFOUND; SNAPSHOT_TOO_OLD. */
typedef void bt_copy_fn(void *arg, const void *value, size_t bytes, unsigned flags);
CH_NODISCARD int bt_get(struct bt *t, const struct ver_view *view, struct bt_slice key,
                        bt_copy_fn *copy, void *arg);
/* Many keys: the leaves that are missing are read in parallel, in rounds. copy(arg, i, ...) as above; rcs[i]
 * as bt_get() returns; returns 0 or ENOMEM. */
typedef void bt_copy_many_fn(void *arg, size_t i, const void *value, size_t bytes, unsigned flags);
CH_NODISCARD int bt_get_many(struct bt *t, const struct ver_view *view, size_t n,
                             const struct bt_slice *keys, bt_copy_many_fn *copy, void *arg,
                             int *rcs);
/* About how many entries are >= from and < to (NULL: open), from inner pages; ghosts count. */
CH_NODISCARD int bt_estimate(struct bt *t, const struct bt_slice *from, const struct bt_slice *to,
                             uint64_t *count);

enum bt_write_kind {
    BT_PUT,
    BT_INSERT,
    BT_UPDATE,
    BT_DEL,
    BT_LOCK, /* changes nothing, and locks the key; it need not exist */
};
struct bt_op {
    enum bt_write_kind kind;
    unsigned flags; /* of the value */
    struct bt_slice key, value;
    /* In a tree with versions: the writer, and the view against which conflicts are found. txn NULL: an operation
     * that is a transaction of its own, visible once durable if `durable`. */
    struct ver_txn *txn;
    const struct ver_view *view;
    bool durable;
    /* NULL, or: set to the log's end once log room is granted, before the record is appended (R3), and to CH_LSN_MAX
     * again before it waits for room once more. The caller clears it afterwards. */
    _Atomic lsn_t *pin;
    bool
        system; /* for undo and spilling: log room of class SYSTEM, reserved pages; may return EFULL at once */
};
struct bt_done {
    /* What must be durable for it; 0: nothing was logged (lock). With NOTFOUND or EXISTS of an operation of its own: the
     * commit that it is true of, while that is not visible yet; else 0. */
    lsn_t lsn;
    struct {
        uint64_t id;
        void *tag;
        uint64_t wakes; /* as struct ver_owner */
    } owner;            /* of COHORT_CONFLICT: another live transaction holds the record, wait for
                                                 it and try again; id 0: no use waiting */
    bool had_value;     /* the key existed before */
    bool had_ref;       /* ... with a reference, which is in old_ref */
    size_t old_ref_bytes;
    uint8_t old_ref[BT_REF_MAX];
};
/* One operation. NOTFOUND / EXISTS by kind; CONFLICT (see owner), SNAPSHOT_TOO_OLD; EFULL, ENOMEM, EFAILED. An
 * operation of its own that would replace a reference changes nothing and returns ERETRY with had_ref: it
 * must be done within a transaction. *done is always filled in. */
CH_NODISCARD int bt_write(struct bt *t, const struct bt_op *op, struct bt_done *done);

/* Undoes one entry of a transaction's undo list: a redo-only record with undo-next (R4). `e` (may be NULL in recovery) is
 * popped from the version store under the latch, after the record was appended. Splits if it must (R5).
 * kind WAS_LOCK: nothing is logged. */
struct bt_undo_op {
    uint64_t txn;
    uint64_t
        undo_next; /* entries of the transaction from this seq down are still to be undone; 0 = none */
    unsigned kind; /* enum ver_kind */
    unsigned flags;
    struct bt_slice key, before;
    struct ver_entry *e;
    bool system; /* log room of class SYSTEM: never waits for the ring, EFULL instead */
};
CH_NODISCARD int bt_undo(struct bt *t, const struct bt_undo_op *op, lsn_t *lsn);

/* Removes the ghosts without versions from the leaf of `key` and merges it if it became small. Best effort. */
void bt_purge(struct bt *t, struct bt_slice key);
/* The same for up to `leaves` leaves from that of the key in `key` (COHORT_KEY_MAX bytes) on, which becomes where to go on;
 * *done: that was the last. */
CH_NODISCARD int bt_purge_walk(struct bt *t, unsigned leaves, uint8_t *key, size_t *key_bytes,
                               bool *done);

/* Removes the entries >= from and < to (both needed) of a tree without versions, some leaves a record; leaves that lie wholly in
 * the range are freed unread. Returns after about `max` > 0 entries or whole leaves; *more: there may be others. `system`: never waits
 * for log room, EFULL instead. */
CH_NODISCARD int bt_remove_range(struct bt *t, struct bt_slice from, struct bt_slice to,
                                 unsigned max, bool system, bool *more);
/* Frees pages of a tree that nobody uses any more, about `max` in one call; each step is logged, leaves a smaller valid
 * tree, and may be repeated after a crash. *done: all are freed, the root too, now or before. Leaves are not read. */
CH_NODISCARD int bt_drop_step(struct bt *t, unsigned max, bool *done);

/* ---- bulk load of an empty tree, keys strictly ascending ---- */

/* Pages are built below a root of their own; bt_bulk_finish() makes it the tree's contents in one record, which is a
 * transaction of its own. Until then nothing is reachable: the owner remembers `*root` durably, to drop it after a crash
 * (bt_drop_step() with the same tree id). Nothing is logged before the first bt_bulk_put(). */
struct bt_bulk;
CH_NODISCARD int bt_bulk_create(struct bt *t, struct bt_bulk **out, page_id *root);
/* The same with a root whose id the owner has from store_pid_alloc(): so it can be remembered before the page is logged, and
 * a crash in between leaves nothing behind. */
CH_NODISCARD int bt_bulk_create_at(struct bt *t, page_id root, struct bt_bulk **out);
/* EINVAL: not ascending. After an error only destroy is legal. */
CH_NODISCARD int bt_bulk_put(struct bt_bulk *b, struct bt_slice key, struct bt_slice value,
                             unsigned flags);
/* CONFLICT: the tree is not empty (ghosts without versions do not count). *lsn as bt_done. The private root is then free. */
CH_NODISCARD int bt_bulk_finish(struct bt_bulk *b, bool durable, lsn_t *lsn);
void bt_bulk_destroy(struct bt_bulk *b); /* memory only */
/* As bt_drop_step(), for a private root only: does nothing, *done, when the page has become another one, be it of the same
 * tree: so it may follow a finish that the owner does not know of. */
CH_NODISCARD int bt_bulk_drop_step(struct bt *t, unsigned max, bool *done);

/* Scan position: owns copies of key and value and of the leaf it stands in. The view (NULL: newest visible when a leaf is
 * read) must outlive it or be replaced; set it again after it was refreshed. `writes`, may be NULL: a count of the view's own transaction's writes; when it has changed, the leaf is
 * read again, so that a scan sees them. */
struct bt_cursor;
CH_NODISCARD int bt_cursor_create(struct bt *t, struct bt_cursor **out);
void bt_cursor_view(struct bt_cursor *c, const struct ver_view *view, const uint64_t *writes);
void bt_cursor_destroy(struct bt_cursor *c);
enum bt_seek {
    BT_GE,
    BT_LE,
    BT_FIRST,
    BT_LAST
};
/* NOTFOUND; SNAPSHOT_TOO_OLD */
CH_NODISCARD int bt_seek(struct bt_cursor *c, enum bt_seek how, struct bt_slice key);
/* NOTFOUND at the end, sticky. After the entry was deleted by the view's own transaction they go to its neighbours. */
CH_NODISCARD int bt_next(struct bt_cursor *c);
CH_NODISCARD int bt_prev(struct bt_cursor *c);
bool bt_entry(struct bt_cursor *c, struct bt_slice *key, struct bt_slice *value, unsigned *flags);

/* ---- log records ---- */

enum {                   /* log record types owned by btree; formats in change.h */
    BT_RECORD_PAGES = 2, /* structure changes, purges, operations of their own, internal trees */
    BT_RECORD_WRITE = 3, /* of a transaction: redo and undo */
    BT_RECORD_UNDO = 4,  /* redo-only, with undo-next */
};
/* Redo of one record (boot hands it over). Idempotent by page LSN. ELOG when malformed, EPAGE when
 * it can't be applied. */
CH_NODISCARD int bt_redo(struct buf *b, uint8_t type, lsn_t lsn, const uint8_t *data,
                         uint32_t bytes);
/* What a WRITE or UNDO record says about its transaction; pointers into the record. ELOG. */
struct bt_logged {
    uint64_t txn;
    uint64_t seq;  /* WRITE: of its undo entry, 0 = none; UNDO: undo-next */
    uint32_t tree; /* WRITE */
    unsigned kind; /* WRITE: enum ver_kind, 0 = none */
    unsigned flags;
    struct bt_slice key, before;
};
CH_NODISCARD int bt_record_read(uint8_t type, const uint8_t *data, uint32_t bytes,
                                struct bt_logged *out);

struct bt_check_result {
    uint64_t entries, ghosts, leaf_pages, inner_pages, leaf_used_bytes,
        errors; /* entries: without ghosts */
};
/* Walks the tree: order, bounds, levels, heap accounting. visit(pid) for each page, for
 * reachability. Idle tree. */
CH_NODISCARD int bt_check(struct bt *t, void (*visit)(void *arg, page_id pid),
                          void (*report)(void *arg, const char *line), void *arg,
                          struct bt_check_result *out);
#endif
