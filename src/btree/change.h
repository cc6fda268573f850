/* change.h - the mini-transaction: one log record with the operations of one or more pages, and its
 * application to one page, which is the same code at run time and in redo.
 *
 *   record:  u16 groups | group ...
 *   group:   u48 page id | u16 operations | u32 bytes of the operations | operation ...
 *   operation: u8 kind | u8 0 | ...
 *     1 PUT        u16 key bytes | u16 value bytes | key | value   leaf: insert or replace
 *     2 DEL        u16 key bytes | key                             leaf; the key is there
 *     3 ADD_CHILD  u16 key bytes | u48 child | key                 inner; the child to its right
 *     4 DEL_CHILD  u16 index                                       inner; with child index + 1
 *     5 CUT        u16 entries                                     the first ones stay
 *     6 IMAGE      u16 low bytes | u16 high bytes | low | high     both ends, zeroes between
 *     7 FREE                                                       the page leaves the tree
 *
 * Invariants:
 *   C1  IMAGE is the first operation of its group, FREE the only one; a page has one group in a
 *       record.
 *   C2  a page that gets contents of another page has an IMAGE (R14).
 *   C3  a record applied at run time was tried out before it was appended: applying cannot fail
 *       then.
 *
 * Pure; no locks.
 */
#ifndef CH_BTREE_CHANGE_H
#define CH_BTREE_CHANGE_H

#include "btree/btree.h"

enum {
    CHANGE_HEAD = 2,          /* bytes of a record before its groups */
    CHANGE_GROUP = 12,        /* of a group before its operations */
    CHANGE_OP = 12,           /* most of an operation besides keys, values and images */
    CHANGE_BYTES_MAX = 12288, /* of a structure change: two images, a separator */
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
void change_put(struct change *c, struct bt_slice key, struct bt_slice value);
void change_del(struct change *c, struct bt_slice key);
void change_add_child(struct change *c, struct bt_slice key, page_id child);
void change_del_child(struct change *c, unsigned index);
void change_cut(struct change *c, unsigned entries);
void change_image(struct change *c, const uint8_t *page);
void change_free(struct change *c);

/* ---- reading and applying ---- */

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
/* Applies a group to its page and sets the page LSN, and the write LSN where a user's entry
 * changes. EPAGE: the page is not what the record was made for; it is then undefined. */
CH_NODISCARD int change_apply(uint8_t *page, const struct change_group *g, lsn_t lsn);

#endif
