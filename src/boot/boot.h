/* boot.h - create, open, recover, checkpoint, close: the order in which everything comes to life.
 *
 * Opening is a table of steps {name, action, undo} (boot.c): a failing step undoes those before it in
 * reverse. Recovery (recover.c) is part of that table: root record, checkpoint, pass 1 over the log (MAP records),
 * reconcile, pass 2 (redo, and what became of transactions), pass 3 (undo that only the log has), undo of losers, checkpoint. It does not call up: it iterates the log and hands each record to its owner.
 */
#ifndef CH_BOOT_BOOT_H
#define CH_BOOT_BOOT_H

#include "base/base.h"
#include "btree/btree.h"
#include "meta/meta.h"
#include "rt/rt.h"

struct dev;
struct store;
struct wal;
struct buf;
struct ver;
struct reg;
struct txns;
struct cat;

struct db {
    struct cohort_options opts;
    struct dev *dev;
    struct meta_root root; /* CHECKPOINT lock */
    struct store *store;
    struct meta_array *arrays[META_ARRAYS];
    struct wal *wal;
    struct buf *buf;
    struct ver *ver;
    struct reg *reg;
    struct txns *txns;
    struct cat *cat;
    bool fresh; /* being created */
    /* The root has no internal trees, and may be that of an opening that was making them (format version 1). */
    bool half_made;
    struct rt_mutex ckpt;    /* rank CHECKPOINT */
    uint32_t *zone_page_crc; /* of the zone-table pages as last written */
    uint64_t zone_page_crcs;
    uint8_t *ckpt_buf; /* META_WRITE_MAX payloads */
    struct rt_thread ckpt_thread, flush_thread, sweep_thread;
    bool ckpt_running, flush_running, sweep_running;
    struct rt_mutex sweep; /* rank DB: held for each step of the sweep thread, and by a check */
    _Atomic bool polling;  /* background=no: somebody runs the sweeper's steps; relaxed */
    _Atomic uint64_t async_due; /* background=no: when to flush; 0 = not known yet; relaxed */
    _Atomic bool stop,
        ckpt_stop; /* pair with the threads' loops; the checkpoint thread stops last */
    _Atomic int
        error; /* first fatal error of a background step; sticky. Pairs with db_writable() */
    struct rt_mutex stop_lock; /* rank STATS; with stop_cond for the sweep thread's sleep */
    struct rt_cond stop_cond;
    _Atomic uint64_t checkpoints;
    uint64_t base_host, base_media; /* the device's counters at open */
    unsigned recovered_records, repaired_pages;
};

/* Opens the database on `dev`, which is taken also on error; formats it first when `create`. Progress and notices go to
 * the log. Errors as cohort_open(). */
CH_NODISCARD int boot_open(struct dev *dev, const struct cohort_options *o, bool create,
                           struct db **out);
/* Stops threads, checkpoints unless the log has failed, frees everything. Returns the first error. */
CH_NODISCARD int boot_close(struct db *db);
/* Frees everything without writing a byte: what a crash leaves, for tests. */
void boot_kill(struct db *db);

/* One checkpoint. `all`: every dirty page is written first, else only those that hold the log back. */
CH_NODISCARD int boot_checkpoint(struct db *db, bool all);
/* background=no: does now what threads would do; call it without latches before a write. */
CH_NODISCARD int boot_poll(struct db *db);
/* EFAILED once a fatal error happened. */
CH_NODISCARD int boot_writable(struct db *db);
/* Bytes of the checkpoint's buffers. */
size_t boot_memory(const struct db *db);
/* Records the first fatal error; the handle is read-only from then on. */
void boot_set_error(struct db *db, int rc);

/* Everything cohort_check() does, for an otherwise idle database. */
CH_NODISCARD int boot_check(struct db *db, void (*report)(void *arg, const char *line), void *arg,
                            struct cohort_check_result *out);
#endif
