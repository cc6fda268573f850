/* tree.h - what the files of the tree share: descent, logging of a change, structure changes. Not
 * for other layers. */
#ifndef CH_BTREE_TREE_H
#define CH_BTREE_TREE_H

#include "btree/btree.h"
#include "btree/change.h"
#include "btree/node.h"
#include "buf/buf.h"
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
/* The leaf of `key`, exclusively and without waiting for a latch, other leaves to the left of it
 * being held: ERETRY. */
CH_NODISCARD int bt_leaf_try(struct bt *t, struct bt_slice key, struct bt_bounds *b,
                             struct buf_ref *leaf);
/* The page is a node of this tree at this level; EPAGE. */
CH_NODISCARD int bt_node_verify(const struct bt *t, const struct buf_ref *ref, unsigned level);
/* Narrows the bounds by the separators on both sides of child i. */
void bt_bounds_narrow(struct bt_bounds *b, const uint8_t *inner, unsigned i);

/* Logs a change and applies it: refs[i], exclusively latched, is the page of group i. Cannot fail
 * (C3); unlatches nothing. */
lsn_t bt_commit(struct bt *t, struct wal_ticket *ticket, const struct change *c,
                struct buf_ref *refs, unsigned n);

/* Makes room for an entry, one structure change at a time: the caller tries again afterwards.
 * `after` not NULL: separates the keys up to `after` from those from `key` on, whether there is
 * room or not. No latch held. EFULL: nothing changed. */
CH_NODISCARD int bt_split(struct bt *t, struct bt_slice key, size_t value_bytes,
                          const struct bt_slice *after);
/* The leaf of `key` became small: merges it and what is small above it where neighbours have room.
 * Best effort. */
void bt_merge(struct bt *t, struct bt_slice key);
/* Less than a quarter of the page is used. */
bool bt_underfull(const uint8_t *page);

#endif
