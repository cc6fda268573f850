/* tree.h - what the files of the tree share: descent, logging of a change, structure changes. Not
 * for other layers. */
#ifndef CH_BTREE_TREE_H
#define CH_BTREE_TREE_H

#include <stdatomic.h>

#include "btree/btree.h"
#include "btree/change.h"
#include "btree/node.h"
#include "buf/buf.h"
#include "ver/ver.h"
#include "wal/wal.h"

enum {
    BT_DEPTH_MAX = 48, /* levels; a tree of 2^48 pages with two children each */
    BT_AHEAD = 8,      /* leaves read ahead by a scan */
};

/* Which leaf of a key is wanted. */
enum bt_side {
    BT_AT,    /* where the key is or would be */
    BT_BELOW, /* where the greatest key strictly below it is or would be */
    BT_END,   /* the last leaf; the key counts for nothing */
};

/* The separators around a leaf, the tightest on the way to it. */
struct bt_bounds {
    bool has_lower, has_upper;
    size_t lower_bytes, upper_bytes;
    uint8_t lower[COHORT_KEY_MAX]; /* keys of the leaf are >= */
    uint8_t upper[COHORT_KEY_MAX]; /* and < */
    int ahead; /* in: read leaves of higher (1) or lower (-1) keys ahead; 0 = none */
};

/* Latches the leaf; no other latch is held before or afterwards. `b` may be NULL. EPAGE when the
 * tree is damaged; errors of buf_fix(). Waits. */
CH_NODISCARD int bt_leaf_fix(struct bt *t, enum bt_side side, struct bt_slice key,
                             enum buf_mode mode, struct bt_bounds *b, struct buf_ref *leaf);
/* Latches leaf `pid`, then makes sure that `parent` still leads to it: ERETRY if not, nothing is latched then. */
CH_NODISCARD int bt_child_fix(struct bt *t, page_id pid, const struct buf_peek *parent,
                              enum buf_mode mode, struct buf_ref *leaf);
/* bt_get() in the leaf of the key, latched; unlatches it. ERETRY: begin anew. */
CH_NODISCARD int bt_get_at(struct bt *t, const struct ver_view *view, struct bt_slice key,
                           struct buf_ref *leaf, bt_copy_fn *copy, void *arg);
/* The page is a node of this tree at this level; EPAGE. */
CH_NODISCARD int bt_node_verify(const struct bt *t, const struct buf_ref *ref, unsigned level);
/* Narrows the bounds by the separators on both sides of child i. */
void bt_bounds_narrow(struct bt_bounds *b, const uint8_t *inner, unsigned i);

/* Logs a change and applies it: refs[i], exclusively latched, is the page of group i. Cannot fail
 * (C3); unlatches nothing. A record of type PAGES. */
lsn_t bt_commit(struct bt *t, struct wal_ticket *ticket, const struct change *c,
                struct buf_ref *refs, unsigned n);
/* Its last step alone: the pages were announced (buf_will_change), the record that ends at `lsn` was appended. */
void bt_apply(struct bt *t, const struct change *c, struct buf_ref *refs, unsigned n, lsn_t lsn);

/* Makes room for an entry, one structure change at a time: the caller tries again afterwards.
 * `c` says whose log room and pages it may use (R11): USER waits for admission as a write that grows,
 * the others do not, and SYSTEM waits for nobody. No latch held. EFULL: nothing changed. */
CH_NODISCARD int bt_split(struct bt *t, struct bt_slice key, size_t value_bytes, enum wal_class c);
/* The leaf of `key` became small: merges it and what is small above it where neighbours have room.
 * Best effort; SHRINK or SYSTEM. */
void bt_merge(struct bt *t, struct bt_slice key, enum wal_class c);
/* The tree was bulk loaded by a commit that the view (NULL: nobody yet) does not see: it finds the tree empty. A
 * latch of the leaf that was found is held, so that the loaded pages are not taken for older ones. */
static inline bool
bt_unborn(const struct bt *t, const struct ver_view *view)
{
    /* acquire: pairs with the release of the load, which comes before its pages can be reached */
    lsn_t born = atomic_load_explicit(&t->born, memory_order_acquire);

    return CH_UNLIKELY(born != 0) && born > (view != NULL ? view->horizon : ver_horizon(t->ver));
}
/* The entries of this leaf can be taken as they stand. */
static inline bool
bt_as_is(const struct bt *t, const struct ver_view *view, const uint8_t *leaf)
{
    return t->ver == NULL || ver_fast(t->ver, view, page_write_lsn(leaf));
}
static inline struct ver_key
bt_ver_key(const struct bt *t, struct bt_slice key)
{
    return (struct ver_key){t->tree, key.bytes, key.data};
}
/* The before-image that ver_read() found to be in the undo tree: *f becomes VALUE or ABSENT. No latch held. NOTFOUND: it is
 * gone, read anew. */
CH_NODISCARD int bt_read_spilled(struct bt *t, struct ver_found *f);
/* SNAPSHOT_TOO_OLD, with its text. */
int bt_too_old(const struct bt *t);
/* Less than a quarter of the page is used. */
bool bt_underfull(const uint8_t *page);

#endif
