/* api_internal.h - the handle, and what the files of api/ share. Tests and tools that bring their own device use
 * api_open_dev() and api_kill(). */
#ifndef CH_API_API_INTERNAL_H
#define CH_API_API_INTERNAL_H

#include "boot/boot.h"

struct cohort_db {
    struct db *db;
    _Atomic uint64_t commits, payload; /* statistics, relaxed */
};

/* As cohort_open() on a device of the caller's, which is taken. */
CH_NODISCARD int api_open_dev(struct dev *dev, const struct cohort_options *o, bool create,
                              cohort_db **out);
/* Drops everything without a byte written: a crash, for tests. */
void api_kill(cohort_db *db);

CH_NODISCARD int api_check_entry(const char *what, const void *key, size_t key_bytes,
                                 const void *value, size_t value_bytes);
CH_NODISCARD int api_before_write(cohort_db *db);
CH_NODISCARD int api_after_write(cohort_db *db, lsn_t lsn, uint64_t ops, uint64_t payload);

#endif
