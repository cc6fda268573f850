/* undo.h - how the undo tree spells an entry: before-images of open transactions that left memory or whose log is cut.
 *
 *   key:    u64 transaction | u64 seq              both big-endian; seq 0 is the transaction's header
 *   value:  u8 kind (enum ver_kind) | u8 flags | u16 key bytes | u32 tree | key | before-image
 *   header: see txn/txn.h
 *
 * The undo tree has no versions. Pure.
 */
#ifndef CH_BTREE_UNDO_H
#define CH_BTREE_UNDO_H

#include "btree/btree.h"

enum {
    UNDO_KEY_BYTES = 16,
    UNDO_HEAD_BYTES = 8,
};
struct undo_entry {
    unsigned kind, flags;
    uint32_t tree;
    struct bt_slice key, before;
};
void undo_key(uint64_t txn, uint64_t seq, uint8_t out[UNDO_KEY_BYTES]);
/* Returns the bytes written to `out`, of BT_ENTRY_MAX bytes. */
size_t undo_encode(const struct undo_entry *e, uint8_t *out);
/* Pointers into `value`. EPAGE when it is malformed. */
CH_NODISCARD int undo_decode(const void *value, size_t bytes, struct undo_entry *out);

#endif
