/* boot_internal.h - between boot.c, recover.c and checkpoint.c. */
#ifndef CH_BOOT_BOOT_INTERNAL_H
#define CH_BOOT_BOOT_INTERNAL_H

#include "boot/boot.h"

/* recover.c: after the checkpoint was loaded. */
CH_NODISCARD int recover_pass_map(struct db *db, lsn_t *tail);
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
