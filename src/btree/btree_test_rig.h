/* btree_test_rig.h - a tree over the real cache, store and log on a simulated drive, and a model of
 * what it should hold. */
#ifndef CH_BTREE_BTREE_TEST_RIG_H
#define CH_BTREE_BTREE_TEST_RIG_H

#include "btree/btree.h"
#include "btree/node.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "page/page.h"
#include "space/map.h"
#include "store/store.h"
#include "ver/ver.h"
#include "wal/wal.h"
#include "zt/zt.h"

enum {
    RIG_KEYS_MAX = 20000,
    RIG_TREE = 7,
    RIG_UNDO_TREE = 2,
    RIG_LOG_BASE = 64 << 10,
    RIG_ZONE = 256 << 10,
};

struct rig_options {
    unsigned frames;        /* of the cache; 0 = 2048 */
    unsigned megabytes;     /* of the drive; 0 = 128 */
    unsigned log_megabytes; /* 0 = 16 */
    bool background;
    bool versions;          /* the tree has a version store and an undo tree */
    uint64_t version_bytes; /* of the store; 0 = 16 MiB */
    bool no_tree;           /* for redo */
    lsn_t log_start;        /* for redo: behind the LSNs of the log that is replayed; 0 = 4096 */
};

struct rig {
    struct zt *t;
    struct rig_options o;
    struct sim_drive *drive;
    struct dev *dev;
    struct store *store;
    struct wal *wal;
    struct buf *buf;
    struct ver *ver;
    struct bt bt, undo;
    unsigned ops; /* since the log was cut */
};

void rig_open(struct rig *r, struct zt *t, const struct rig_options *o);
void rig_close(struct rig *r);
/* Cleans, flushes and cuts the log, as a checkpoint would. */
void rig_trim(struct rig *r);
/* Drops the clean cache: what follows is read from the drive. */
void rig_reopen_buf(struct rig *r);
/* Trims what no view needs and purges the ghosts that this leaves behind. */
void rig_settle(struct rig *r);
/* bt_check() without findings. */
struct bt_check_result rig_check(struct rig *r);
/* After cleaning, pages have images if and only if the tree reaches them. */
void rig_check_reachable(struct rig *r);
/* The newest write LSN of the tree's leaves. */
lsn_t rig_write_lsn(struct rig *r);

/* ---- keys and model: key i of `keys` in order; version 0 = absent ---- */

enum key_shape {
    KEYS_DECIMAL,
    KEYS_BINARY,
    KEYS_LONG,
    KEYS_MIXED,
    KEY_SHAPES
};
struct keys {
    unsigned n;
    uint16_t *bytes;
    uint8_t **data;
    size_t value_max;
    bool noise; /* values don't compress */
    uint32_t *version;
};
void keys_create(struct keys *k, struct zt *t, enum key_shape shape, unsigned n, size_t value_max);
void keys_destroy(struct keys *k);
struct bt_slice key_slice(const struct keys *k, unsigned i);
/* The value of key i at that version, in `buf` of COHORT_ENTRY_MAX bytes. */
struct bt_slice key_value(const struct keys *k, unsigned i, uint32_t version, uint8_t *buf);

/* Operations of their own. */
int rig_put(struct rig *r, struct keys *k, unsigned i, uint32_t version);
int rig_del(struct rig *r, struct keys *k, unsigned i);
/* The version of the value found, 0 = absent; fails when the value is not one that was ever
 * written. */
uint32_t rig_get(struct rig *r, const struct keys *k, unsigned i);
/* Gets and both scans against the model. */
void rig_compare(struct rig *r, const struct keys *k);

#endif
