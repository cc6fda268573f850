/* cat_test_rig.h - catalogue, transactions and registry over the real cache, store and log on a simulated drive, with crash
 * and recovery. The log is never cut, so it is all that recovery needs. */
#ifndef CH_CAT_CAT_TEST_RIG_H
#define CH_CAT_CAT_TEST_RIG_H

#include "buf/buf.h"
#include "cat/cat_internal.h"
#include "dev/dev.h"
#include "space/map.h"
#include "store/store.h"
#include "wal/wal.h"
#include "zt/zt.h"

struct world {
    struct zt *t;
    unsigned frames; /* of the cache */
    unsigned zones;  /* of the drive; 0 = all */
    uint64_t version_bytes;
    struct sim_drive *drive;
    struct dev *dev;
    struct store *store;
    struct wal *wal;
    struct buf *buf;
    struct ver *ver;
    struct reg *reg;
    struct txns *txns;
    struct cat *cat;
    page_id ids_root;
    uint32_t epoch;
    lsn_t epoch_start;
    uint64_t next_id;
    uint64_t stop_at;        /* before_write() fails at this call, counted from 1; 0 = never */
    _Atomic uint64_t writes; /* relaxed */
};
/* A new database. frames 0: 2048. */
void world_open(struct world *w, struct zt *t, unsigned frames);
/* The same on a drive of few zones. */
void world_open_small(struct world *w, struct zt *t, unsigned zones);
void world_close(struct world *w);
/* The process ends, what the log had not written is lost; then recovery. `flush`: the log's tail is written before. */
void world_crash(struct world *w, bool flush);
/* The log ends with the record that ends at `lsn`: all that came after is as if it had not happened. No page may have been
 * written since. Another crash must not follow. */
void world_crash_at(struct world *w, lsn_t lsn);
/* Ends of the records above `from`; returns how many. */
unsigned world_records(struct world *w, lsn_t from, lsn_t *ends, unsigned max);
/* Trims versions and sweeps until nothing is left to do. */
void world_settle(struct world *w);
/* cat_check() without findings; every page id in use is reached from a tree, and every page reached has its id. */
void world_check(struct world *w);
uint64_t world_findings(struct world *w); /* of cat_check() */
uint64_t world_pages(struct world *w);    /* ids in use */
/* Of `blobs`, and of `pending`. */
uint64_t world_pieces(struct world *w);
uint64_t world_pending(struct world *w);

struct txn *world_begin(struct world *w);
void world_commit(struct world *w, struct txn *t);
struct bt_slice str(const char *s);
/* Bytes of a value: a function of seed and position. */
void fill(uint8_t *out, uint64_t seed, uint64_t offset, size_t bytes);

#endif
