/* boot_internal.h - between boot.c, recover.c and checkpoint.c. */
#ifndef CH_BOOT_BOOT_INTERNAL_H
#define CH_BOOT_BOOT_INTERNAL_H

#include "boot/boot.h"

struct wal_segments;

/* log.c. Layout of a new database: zone_bytes is chosen; sets log and zones_base in the root. EOPTION. */
CH_NODISCARD int log_layout(struct db *db, uint64_t log_bytes);
/* Zones that are set aside for the log; 0 = it is a ring. */
uint32_t log_zones_max(const struct db *db);
CH_NODISCARD int log_match_options(const struct db *db);
CH_NODISCARD int log_open(struct db *db);
void log_close(struct db *db);
/* Notes in the root where a log that is cut at `cut` begins. */
void log_root(struct db *db, lsn_t cut);
/* The root with that cut is durable: the zones below are free. */
void log_give_back(struct db *db, lsn_t cut);

/* recover.c: after the checkpoint was loaded. Log in zones: *segments gets a copy of what the scan found; its zones are freed by
 * the caller, after an error, too. */
CH_NODISCARD int recover_pass_map(struct db *db, lsn_t *tail, struct wal_segments *segments);
/* Redo; notes transactions. Then: hands undo entries of unfinished transactions over. */
CH_NODISCARD int recover_pass_redo(struct db *db, lsn_t tail);
CH_NODISCARD int recover_pass_undo(struct db *db, lsn_t tail);
/* trees.c: version store, trees, transactions, names; recovery of all of them. */
CH_NODISCARD int trees_open(struct db *db);
void trees_close(struct db *db);
void sweep_thread(void *arg);
/* A few steps of the sweeper, for background=no. */
CH_NODISCARD int trees_sweep(struct db *db, unsigned steps);
/* checkpoint.c: loads both arrays into store. */
CH_NODISCARD int checkpoint_load(struct db *db);
/* Takes META zones until both arrays hold what exists and some way ahead; sets the page-id limit. */
CH_NODISCARD int checkpoint_extend(struct db *db);
void checkpoint_thread(void *arg);
void checkpoint_cutter(void *arg);
bool boot_is_inplace(const struct db *db);

#endif
