/* boot_internal.h - between boot.c, recover.c and checkpoint.c. */
#ifndef CH_BOOT_BOOT_INTERNAL_H
#define CH_BOOT_BOOT_INTERNAL_H

#include "boot/boot.h"

/* recover.c: after the checkpoint was loaded. */
CH_NODISCARD int recover_pass_map(struct db *db, lsn_t *tail);
CH_NODISCARD int recover_pass_redo(struct db *db, lsn_t tail);
/* checkpoint.c: loads both arrays into store. */
CH_NODISCARD int checkpoint_load(struct db *db);
/* Takes META zones until both arrays hold what exists and some way ahead; sets the page-id limit. */
CH_NODISCARD int checkpoint_extend(struct db *db);
void checkpoint_thread(void *arg);
bool boot_is_inplace(const struct db *db);

#endif
