/* txn_test_rig.h - transactions over everything below them on a simulated drive, with crashes and recovery by hand, and a model of
 * what transactions should see.
 *
 * The log is never cut on the device; a checkpoint here notes where it could be cut, and the passes over trees and
 * transactions begin there, as boot's would. The map comes from all of the log.
 */
#ifndef CH_TXN_TXN_TEST_RIG_H
#define CH_TXN_TXN_TEST_RIG_H

#include "dev/dev.h"
#include "reg/reg.h"
#include "txn/txn.h"
#include "ver/ver.h"
#include "wal/wal.h"
#include "zt/zt.h"

struct store;
struct buf;

enum {
    RIG_TREES = 2, /* main, and one of a user */
    RIG_LOG_MEGABYTES = 96,
};
struct rig_options {
    unsigned frames;        /* 0 = 1024 */
    uint64_t undo_bytes;    /* 0 = 1 MiB */
    uint64_t version_bytes; /* 0 = 16 MiB */
    uint64_t timeout_ms;
    int durability;
    bool background;
};
struct rig {
    struct zt *t;
    struct rig_options o;
    struct sim_drive *drive;
    struct dev *dev; /* faults around the drive */
    struct store *store;
    struct wal *wal;
    struct buf *buf;
    struct ver *ver;
    struct reg *reg;
    struct txns *ts;
    struct reg_tree *trees[RIG_TREES];
    uint32_t user_id;
    /* what the root record would say */
    uint32_t epoch;
    lsn_t epoch_start, cut;
    page_id ids_root;
    uint64_t next_id;
    _Atomic unsigned failures; /* of the `failed` callback; relaxed */
    /* Between the steps of an undo: checkpoints, flushes, and sometimes the power goes then. */
    bool armed, dead;
};

void rig_open(struct rig *r, struct zt *t, const struct rig_options *o);
void rig_close(struct rig *r);
/* Everything in memory is gone, unflushed writes as `seed` says. */
void rig_crash(struct rig *r, uint64_t seed);
/* Opens again: redo, then what the contract of txn.h says. `writes`: the power goes at that write (0: it does not), which gives an error; the
 * rig must be crashed then. */
int rig_recover(struct rig *r, uint64_t writes);
/* Spills below, cleans, and moves the cut. `all`: up to the log's end. */
void rig_checkpoint(struct rig *r, bool all);
/* txns_step() until there is nothing to do. */
void rig_sweep(struct rig *r);
/* The undo tree's entries. */
uint64_t rig_undo_rows(struct rig *r);
void rig_check_trees(struct rig *r);

/* ---- short forms ---- */

struct txn *rig_begin(struct rig *r, bool serializable);
/* Key and value of number k: the value tells k and version. */
size_t rig_key(unsigned k, uint8_t out[32]);
size_t rig_value(unsigned k, uint32_t version, uint8_t out[COHORT_ENTRY_MAX]);
/* t NULL: alone. version 0: delete. */
int rig_put(struct rig *r, struct txn *t, unsigned tree, unsigned k, uint32_t version);
int rig_lock(struct rig *r, struct txn *t, unsigned tree, unsigned k);
/* Version found, 0 = absent. */
int rig_get(struct rig *r, struct txn *t, unsigned tree, unsigned k, uint32_t *version);

#endif
