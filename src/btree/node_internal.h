/* node_internal.h - what node.c and node_split.c share. Reads are bounded as node.h says. */
#ifndef CH_BTREE_NODE_INTERNAL_H
#define CH_BTREE_NODE_INTERNAL_H

#include "btree/node.h"

enum { /* header fields, page.h */
    NODE_OFF_COUNT = 52,
    NODE_OFF_HEAP = 54,
    NODE_OFF_DEAD = 56,
    NODE_OFF_PREFIX = 58,
    NODE_OFF_HINT = 60,
    NODE_OFF_GHOSTS = 62,
};
enum {
    NODE_GHOST = 0x8000, /* in a slot's suffix bytes */
    NODE_REF = 0x8000,   /* in a leaf entry's value bytes */
};

/* The header of a page, loaded once and limited. */
struct node_view {
    const uint8_t *p;
    bool leaf;
    unsigned body, head; /* start of the body; bytes of an entry before its suffix */
    unsigned prefix, slots, count;
};
struct node_view node_look(const uint8_t *p);

struct node_entry {
    const uint8_t *head; /* NULL: outside of the page */
    const uint8_t *suffix;
    size_t suffix_bytes, value_bytes, bytes;
    bool ghost, ref;
};
struct node_entry node_entry_at(const struct node_view *v, unsigned i);

/* The slot array stands at a multiple of four. */
static inline unsigned
node_pad(unsigned prefix)
{
    return (prefix + 3) & ~3u;
}

/* Bytes that a and b have in common from their beginning. */
size_t node_common(const uint8_t *a, size_t an, const uint8_t *b, size_t bn);
/* Longest prefix that entries [a, b) and, unless NULL, `key` allow; 0 for a lone one. */
size_t node_common_range(const struct node_view *v, unsigned a, unsigned b,
                         const struct bt_slice *key);
/* Empties a node and gives it a prefix. */
bool node_start(uint8_t *p, const uint8_t *prefix, size_t prefix_bytes);
/* Appends entry i of another node; it must have the prefix of `dst`. False: no room, or garbage. */
bool node_append_from(uint8_t *dst, const struct node_view *src, unsigned i);
/* 1: entries come in ascending order, -1: in descending order, 0: neither. */
int node_hint(const uint8_t *p, unsigned pos);

#endif
