/* change.h - the mini-transaction: one log record with the operations of one or more pages, and its
 * application to one page, which is the same code at run time and in redo.
 *
 *   PAGES(2):  groups
 *   WRITE(3):  u64 transaction | u64 seq | u32 tree | u8 kind | u8 flags | u16 before bytes | before | groups
 *   UNDO(4):   u64 transaction | u64 undo-next | groups
 *
 *   groups:  u16 groups | group ...
 *   group:   u48 page id | u16 operations | u32 bytes of the operations | operation ...
 *   operation: u8 kind | u8 0 | ...
 *     1 PUT        u16 key bytes | u16 value bytes | key | value   leaf: insert, replace or revive;
 *                                                                  bit 15 of value bytes: REF
 *     2 DEL        u16 key bytes | key                             leaf; the key is there
 *     3 ADD_CHILD  u16 key bytes | u48 child | key                 inner; the child to its right
 *     4 DEL_CHILD  u16 index                                       inner; with child index + 1
 *     5 CUT        u16 entries                                     the first ones stay
 *     6 IMAGE      u16 low bytes | u16 high bytes | low | high     both ends, zeroes between
 *     7 FREE                                                       the page leaves the tree
 *     8 GHOST      u16 key bytes | key                             leaf; the key is there and becomes a ghost
 *
 * seq, kind (enum ver_kind) and before-image of a WRITE say how it is undone; seq 0, kind 0: not at all, an older entry of
 * the transaction restores the key.
 *
 * Invariants:
 *   C1  IMAGE is the first operation of its group, FREE the only one; a page has one group in a
 *       record.
 *   C2  a page that gets contents of another page has an IMAGE (R14).
 *   C3  a record applied at run time was tried out before it was appended: applying cannot fail
 *       then.
 *   C4  WRITE and UNDO have one group with one operation, PUT or GHOST.
 *   C5  PUT and GHOST set the page's write LSN. DEL does not: what it removes nobody reads any more, or the tree has no
 *       versions.
 *
 * Pure; no locks.
 */
#ifndef CH_BTREE_CHANGE_H
#define CH_BTREE_CHANGE_H

#include "btree/btree.h"

struct node_fit;

enum {
    CHANGE_HEAD = 2,          /* bytes of a record before its groups */
    CHANGE_GROUP = 12,        /* of a group before its operations */
    CHANGE_OP = 12,           /* most of an operation besides keys, values and images */
    CHANGE_BYTES_MAX = 12288, /* of a structure change: two images, a separator */
    CHANGE_WRITE_HEAD = 24,   /* of a WRITE before the before-image */
    CHANGE_UNDO_HEAD = 16,    /* of an UNDO before its groups */
};

/* ---- building; the buffer is large enough (asserted) ---- */

struct change {
    uint8_t *buf;
    size_t room, bytes;
    size_t group; /* offset of the open group; 0 = none */
};
void change_begin(struct change *c, uint8_t *buf, size_t room);
/* The operations that follow are this page's. */
void change_page(struct change *c, page_id pid);
void change_put(struct change *c, struct bt_slice key, struct bt_slice value, unsigned flags);
void change_del(struct change *c, struct bt_slice key);
void change_ghost(struct change *c, struct bt_slice key);
void change_add_child(struct change *c, struct bt_slice key, page_id child);
void change_del_child(struct change *c, unsigned index);
void change_cut(struct change *c, unsigned entries);
void change_image(struct change *c, const uint8_t *page);
void change_free(struct change *c);
/* The head of a WRITE, `l->before` not included, or of an UNDO (then only txn and seq count); returns its bytes. */
size_t change_head(uint8_t type, const struct bt_logged *l, uint8_t out[CHANGE_WRITE_HEAD]);

/* ---- reading and applying ---- */

/* The groups of a record of this type, unchecked; the head goes to *l unless NULL (key excluded). ELOG. */
CH_NODISCARD int change_groups(uint8_t type, const uint8_t *data, size_t bytes,
                               struct bt_slice *groups, struct bt_logged *l);

struct change_reader {
    const uint8_t *data;
    size_t bytes, pos;
};
struct change_group {
    page_id pid;
    unsigned ops;
    const uint8_t *data;
    size_t bytes;
    bool formats; /* starts with an image: the page's old contents don't matter */
    bool frees;
};
/* Checks the whole record. ELOG says what is malformed. */
CH_NODISCARD int change_open(struct change_reader *r, const uint8_t *data, size_t bytes);
/* The next group of an opened record; NOTFOUND at its end. */
CH_NODISCARD int change_next(struct change_reader *r, struct change_group *g);
/* The key of the first operation, which is PUT or GHOST and the only one of an opened record (C4). ELOG otherwise. */
CH_NODISCARD int change_single(struct change_reader r, struct bt_slice *key);
/* Applies a group to its page and sets the page LSN, and the write LSN (C5). EPAGE: the page is not what the record was made for; it is then undefined. */
CH_NODISCARD int change_apply(uint8_t *page, const struct change_group *g, lsn_t lsn);
/* What change_apply() does for a group of one PUT, where node_fit() has just said how it fits. */
void change_apply_put(uint8_t *page, const struct node_fit *f, struct bt_slice key,
                      struct bt_slice value, unsigned flags, lsn_t lsn);

#endif
