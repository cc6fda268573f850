/* api_test_rig.h - small databases for the tests of this layer, and short names for what they do all the time.
 *
 * Keys and values are C strings where a test does not need more: K("a") is "a", 1.
 */
#ifndef CH_API_API_TEST_RIG_H
#define CH_API_API_TEST_RIG_H

#include "api/api_internal.h"
#include "zt.h"

#define K(text) (text), strlen(text)

void rig_set(struct zt *t, struct cohort_options *o, const char *name, const char *value);
/* Small everything, so that eviction, checkpoints and GC take part. */
void rig_options(struct zt *t, struct cohort_options *o, const char *preset);
/* In a fresh directory; or `dir`, again. */
cohort_db *rig_open(struct zt *t, const char *dir);
/* cohort_check() finds nothing. */
void rig_check(struct zt *t, cohort_db *db);
void rig_close(struct zt *t, cohort_db *db); /* checks, closes */

/* lock_timeout_ms 0: conflicts at once. */
cohort_txn *rig_begin(struct zt *t, cohort_db *db);
cohort_txn *rig_begin_as(struct zt *t, cohort_db *db, bool read_only,
                         enum cohort_isolation isolation);
cohort_tree *rig_tree(struct zt *t, cohort_db *db, const char *name); /* created when missing */

/* The key has this value, NULL: is absent, for the transaction, or for nobody (NULL) as the newest. */
void rig_is(struct zt *t, cohort_db *db, cohort_txn *txn, cohort_tree *tree, const char *key,
            const char *value);
/* The cursor stands at this key with this value. */
void rig_at(struct zt *t, cohort_cursor *c, const char *key, const char *value);

/* Bytes that are a function of `id` and their place. */
void rig_fill(uint64_t id, uint64_t offset, uint8_t *out, size_t n);

#endif
