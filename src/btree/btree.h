/* btree.h - a B+-tree of variable-length keys and values on cached pages.
 *
 * Leaves are found through the parent only: no sibling links, no stored fence keys. Every change of
 * one or more pages is one log record (a mini-transaction: struct of per-page operations), which
 * redo applies page by page, the page LSN deciding; a record that fills a page from another holds
 * its full contents (R14). Inner nodes are read optimistically; leaves under latches. A structure
 * change holds the tree's mutex, latches parent then children. The root page id of a tree never
 * changes.
 */
#ifndef CH_BTREE_BTREE_H
#define CH_BTREE_BTREE_H

#include "base/base.h"
#include "rt/rt.h"

struct buf;
struct buf_ref;
struct wal;
struct bt { /* one tree; the caller's memory */
    struct buf *buf;
    struct wal *wal;
    uint32_t tree;
    page_id root;
    struct rt_mutex smo;   /* rank TREE */
    struct rt_mutex batch; /* rank BATCH */
    /* Limits of a batch, set by bt_init(); the owner may change them before the first one. */
    size_t batch_leaves_max;
    size_t batch_bytes_max;
    /* Work space of bt_write_batch(), under `batch`; as large as any batch so far wanted. */
    void *batch_mem;
    size_t batch_mem_bytes;
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
/* Calls `copy` with the value under the leaf latch (must not block or fail); NOTFOUND. */
CH_NODISCARD int bt_get(struct bt *t, struct bt_slice key,
                        void (*copy)(void *arg, const void *value, size_t bytes), void *arg);

enum bt_write_kind {
    BT_PUT,
    BT_INSERT,
    BT_UPDATE,
    BT_DEL
};
struct bt_op {
    enum bt_write_kind kind;
    struct bt_slice key, value;
};
/* One operation. *lsn: what must be durable for it. NOTFOUND / EXISTS by kind; EFULL, EFAILED. */
CH_NODISCARD int bt_write(struct bt *t, const struct bt_op *op, lsn_t *lsn);
/* Many, atomically: one log record. Ops sorted by key, keys distinct, kinds PUT or DEL (a DEL of a
 * missing key does nothing; *lsn is 0 when none did anything). EBATCHSIZE beyond batch_leaves_max
 * leaves or batch_bytes_max bytes, nothing changed. */
CH_NODISCARD int bt_write_batch(struct bt *t, const struct bt_op *ops, size_t n, lsn_t *lsn);

/* Scan position: owns copies of key and value and of the leaf it stands in. */
struct bt_cursor;
CH_NODISCARD int bt_cursor_create(struct bt *t, struct bt_cursor **out);
void bt_cursor_destroy(struct bt_cursor *c);
enum bt_seek {
    BT_GE,
    BT_LE,
    BT_FIRST,
    BT_LAST
};
CH_NODISCARD int bt_seek(struct bt_cursor *c, enum bt_seek how, struct bt_slice key); /* NOTFOUND */
CH_NODISCARD int bt_next(struct bt_cursor *c); /* NOTFOUND at the end, sticky */
CH_NODISCARD int bt_prev(struct bt_cursor *c);
bool bt_entry(struct bt_cursor *c, struct bt_slice *key, struct bt_slice *value);

/* Redo of one record (boot hands it over). Idempotent by page LSN. ELOG when malformed, EPAGE when
 * it can't be applied. */
enum {
    BT_RECORD_PAGES = 2
}; /* log record type owned by btree */
CH_NODISCARD int bt_redo(struct buf *b, lsn_t lsn, const uint8_t *data, uint32_t bytes);

struct bt_check_result {
    uint64_t entries, leaf_pages, inner_pages, leaf_used_bytes, errors;
};
/* Walks the tree: order, bounds, levels, heap accounting. visit(pid) for each page, for
 * reachability. Idle tree. */
CH_NODISCARD int bt_check(struct bt *t, void (*visit)(void *arg, page_id pid),
                          void (*report)(void *arg, const char *line), void *arg,
                          struct bt_check_result *out);

#endif
