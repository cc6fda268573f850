/* node.h - one page of the tree: sorted variable-length entries on 4 KiB. Pure: no I/O, threads or
 * log.
 *
 *   off 64       72 (inner)                               heap start                   4096
 *    | leftmost   | prefix   | slot 0 | slot 1 | ..  -> free <- | entry | entry | dead | entry |
 *    | child      | pad to 4 |
 *    | (inner only)
 *
 *   slot (8 bytes):  u16 offset of the entry | u16 suffix bytes (bit 15: a ghost) |
 *                    u32 first four suffix bytes as a big-endian number, short ones padded with
 *                    zeroes
 *   entry, leaf:     u16 value bytes (bit 15: REF) | suffix | value
 *   entry, inner:    6-byte child    | suffix             keys >= it, below the next, are there
 *
 * The prefix is common to all keys on the page and stored once. Header fields: page.h, offsets 52
 * .. 63. A ghost is a deleted entry that keeps its key: it takes part in everything that entries take part in, and
 * has no value. REF marks the value as a reference (BT_REF).
 *
 * Invariants (N1 .. N3 in node_check(), N5 asserted at compile time below):
 *   N1  keys are strictly ascending; key = prefix + suffix, at most COHORT_KEY_MAX bytes.
 *   N2  entries lie between heap start and the page's end and don't overlap; their bytes + dead =
 *       heap bytes.
 *   N3  a slot's head is the first four bytes of its suffix.
 *   N4  the layout after an operation depends on the page before and the operation only: redo
 *       yields the same bytes.
 *   N5  two entries of the largest size always fit, so a page that is full holds two or more.
 *   N6  the header's count of ghosts is that of the slots with bit 15; a ghost has no value bytes and no REF. Inner
 *       nodes have none.
 *
 * Readers (node_search() .. node_value()) never read outside of the 4096 bytes and always end,
 * whatever the bytes are and even while another thread changes them: optimistic readers of inner
 * nodes count on it. Changers return false on a page that breaks the layout (it is then garbage),
 * again without touching anything outside of it. Pages must be aligned to 8 bytes.
 */
#ifndef CH_BTREE_NODE_H
#define CH_BTREE_NODE_H

#include "btree/btree.h"
#include "page/page.h"

enum {
    NODE_SLOT_BYTES = 8,
    NODE_LEAF_BODY = PAGE_HEADER_BYTES,
    NODE_INNER_BODY = PAGE_HEADER_BYTES + 8,
    NODE_LEAF_ENTRY = 2,  /* bytes of a leaf entry before the suffix */
    NODE_INNER_ENTRY = 6, /* the same of an inner one */
    NODE_CAPACITY = CH_PAGE_BYTES - NODE_LEAF_BODY,
    NODE_COUNT_MAX = NODE_CAPACITY / NODE_SLOT_BYTES,
};

_Static_assert(2 * (NODE_SLOT_BYTES + NODE_LEAF_ENTRY + BT_ENTRY_MAX) + 3 <= NODE_CAPACITY,
               "two largest entries fit into a leaf (N5)");
_Static_assert(NODE_INNER_BODY + 2 * (NODE_SLOT_BYTES + NODE_INNER_ENTRY + COHORT_KEY_MAX) + 3 <=
                   CH_PAGE_BYTES,
               "two largest separators fit into an inner node (N5)");

/* A fresh, empty node; level 0 = leaf. */
void node_init(uint8_t *p, page_id pid, uint8_t level, uint32_t tree);

/* Cheap look at the header: type and level agree, areas don't overlap. */
bool node_sane(const uint8_t *p);
/* All invariants; NULL, or what is wrong. */
const char *node_check(const uint8_t *p);

/* ---- readers ---- */

unsigned node_count(const uint8_t *p);
/* Bytes taken by slots, prefix and live entries. */
size_t node_used(const uint8_t *p);
/* The two ends of the page that hold something: header to slots, and the heap. */
size_t node_low_bytes(const uint8_t *p);
size_t node_high_bytes(const uint8_t *p);
/* Index of the first entry with a key >= `key`, node_count() if none; *found: it is equal. */
unsigned node_search(const uint8_t *p, struct bt_slice key, bool *found);
/* Copies the whole key of entry i (< count) to `out` of COHORT_KEY_MAX bytes; returns its size. */
size_t node_key(const uint8_t *p, unsigned i, uint8_t *out);
/* Value of entry i of a leaf; points into the page. Of a ghost: no bytes. */
struct bt_slice node_value(const uint8_t *p, unsigned i);
/* The same, and BT_REF or 0. */
struct bt_slice node_get(const uint8_t *p, unsigned i, unsigned *flags);
unsigned node_flags(const uint8_t *p, unsigned i);
bool node_is_ghost(const uint8_t *p, unsigned i);
unsigned node_ghosts(const uint8_t *p);
/* Child i, 0 .. count: child 0 is the leftmost; 0 when the page is garbage. */
page_id node_child(const uint8_t *p, unsigned i);
/* Which child leads to `key`; `below`: to the keys strictly below it. */
unsigned node_child_index(const uint8_t *p, struct bt_slice key, bool below);

/* ---- changers ---- */

enum node_how {
    NODE_FITS,
    NODE_FITS_REBUILT,
    NODE_FULL
};
struct node_fit {
    enum node_how how;
    unsigned prefix; /* bytes of the prefix afterwards */
    unsigned index;  /* where the key is or would be */
    bool found;
};
/* How an entry would fit in (an equal key is replaced). Inner nodes: value_bytes 0. */
struct node_fit node_fit(const uint8_t *p, struct bt_slice key, size_t value_bytes);
/* Leaf: inserts, replaces, or revives a ghost. False: does not fit, nothing changed (or garbage). */
bool node_put(uint8_t *p, struct bt_slice key, struct bt_slice value, unsigned flags);
/* The same where node_fit() has just said how the entry fits. */
bool node_put_fit(uint8_t *p, const struct node_fit *f, struct bt_slice key, struct bt_slice value,
                  unsigned flags);
/* Leaf: entry i becomes a ghost, if it is none. */
bool node_ghost(uint8_t *p, unsigned i);
/* Inner: adds separator and the child to its right; false too when the separator exists. */
bool node_add_child(uint8_t *p, struct bt_slice key, page_id child);
void node_set_leftmost(uint8_t *p, page_id child);
/* Removes entry i; of an inner node separator i with child i + 1. */
bool node_del(uint8_t *p, unsigned i);
/* Keeps the first k entries. */
bool node_cut(uint8_t *p, unsigned k);
/* Fills `dst`, a fresh node of the level of `src`, with entries [a, b) of `src`. */
bool node_copy(uint8_t *dst, const uint8_t *src, unsigned a, unsigned b);
/* Fills `dst`, a fresh node of another id, with all of `src`: children, history and write LSN. */
bool node_adopt(uint8_t *dst, const uint8_t *src);

/* ---- split and merge ---- */

struct node_split {
    unsigned at; /* leaf: [at, n) go right; inner: `at` goes up, (at, n) go right */
    size_t sep_bytes;
    uint8_t sep[COHORT_KEY_MAX];
};
/* Where to split a page into which `key` does not fit. Ascending and descending runs leave full
 * pages behind, others halves. A leaf half may be empty: the one that `key` then goes to. */
void node_split_plan(const uint8_t *p, struct bt_slice key, size_t value_bytes,
                     struct node_split *out);
/* Fills `right`, a fresh node, with what goes there; the left one is node_cut(at) afterwards. */
bool node_split_right(uint8_t *right, const uint8_t *p, const struct node_split *s);
/* Shortest s with a < s <= b (a < b); written to `out`, returns its size. */
size_t node_separator(struct bt_slice a, struct bt_slice b, uint8_t *out);

/* node_used() of both in one node, the separator between them (inner) included. */
size_t node_merged_used(const uint8_t *left, struct bt_slice sep, const uint8_t *right);
/* Fills `dst`, a fresh node, with both. False: does not fit. */
bool node_merge(uint8_t *dst, const uint8_t *left, struct bt_slice sep, const uint8_t *right);

int node_compare(struct bt_slice a, struct bt_slice b);

#endif
