/* golden.h - the world in which the examples of docs/FORMAT.md are written, and examples of golden_txn.c. */
#ifndef CH_TESTS_GOLDEN_H
#define CH_TESTS_GOLDEN_H

#include "btree/btree.h"
#include "store/store.h"
#include "zt/zt.h"

struct rig {
    struct zt *t;
    struct sim_drive *drive;
    struct dev *dev;
    struct wal *wal;
    struct store *store;
    uint8_t *block; /* 4096 bytes */
};
void rig_open(struct rig *r, struct zt *t, enum store_kind kind);
void rig_close(struct rig *r);
/* Copies the first block of the log to `out`. */
void rig_read_log(struct rig *r, uint8_t *out);

static inline struct bt_slice
text(const char *s)
{
    return (struct bt_slice){(const uint8_t *)s, strlen(s)};
}

/* Each fills 4096 zeroed bytes and returns how many. */
size_t example_log_ends(struct zt *t, uint8_t *out);
size_t example_tree_ids(struct zt *t, uint8_t *out);
size_t example_tree_names(struct zt *t, uint8_t *out);
size_t example_tree_pending(struct zt *t, uint8_t *out);
size_t example_tree_blobs(struct zt *t, uint8_t *out);
size_t example_tree_undo(struct zt *t, uint8_t *out);

#endif
