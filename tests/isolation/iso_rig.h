/* iso_rig.h - a database on a simulated drive that can be closed, crashed and opened again, for the tests of this folder.
 *
 * Keys are C strings or numbers (big-endian, so that they sort); values are what the caller says, or a function of a number and a
 * version (zt_value()).
 */
#ifndef CH_TESTS_ISOLATION_ISO_RIG_H
#define CH_TESTS_ISOLATION_ISO_RIG_H

#include "api/api_internal.h"
#include "dev/dev.h"
#include "rt/rt.h"
#include "zt.h"

#define K(text) (text), strlen(text)

struct iso {
    struct zt *t;
    struct cohort_options opts;
    struct sim_drive *drive;
    struct dev *fault; /* the wrapper that the database stands on; NULL while it is closed */
    cohort_db *db;
};

/* 1 MiB of cache, durability sync, small log and zones. `settings`: name, value, name, value ... NULL. */
void iso_options(struct iso *w, const char *const *settings);
/* A fresh drive of `megabytes` with a fresh database on it. */
void iso_create(struct zt *t, struct iso *w, unsigned megabytes, const char *const *settings);
/* Opens what is on the drive; the device follows `plan` (NULL: no faults). */
CH_NODISCARD int iso_try_open(struct iso *w, const struct dev_fault_plan *plan);
void iso_open(struct iso *w);
/* The power goes; nothing of the database may be open but what api_forget() has ended. */
void iso_crash(struct iso *w);
/* iso_crash(), iso_open(). */
void iso_crash_and_open(struct iso *w);
void iso_close_and_open(struct iso *w);
/* cohort_check() finds nothing. */
void iso_check(struct iso *w);
/* Checks, closes, and gives the drive back. */
void iso_destroy(struct iso *w);

/* Begins with the level and the timeout; what else is the default. */
cohort_txn *iso_begin(struct iso *w, enum cohort_isolation level, int64_t lock_timeout_ms);
/* A snapshot that conflicts at once. */
cohort_txn *iso_snapshot(struct iso *w);
/* Of the transaction, or the newest (NULL): the key has this value; NULL: is absent. */
void iso_is(struct iso *w, cohort_txn *txn, cohort_tree *tree, const char *key, const char *value);
cohort_tree *iso_tree(struct iso *w, const char *name); /* made when missing */
void iso_stats(struct iso *w, struct cohort_stats *s);

enum {
    ISO_VALUE_MAX = 1000
};
/* Puts zt_value(n, version) at the number n. */
CH_NODISCARD int iso_put_number(cohort_txn *txn, cohort_tree *tree, uint32_t n, uint32_t version,
                                size_t max);
/* The version at n as the transaction sees it: 0 = absent. A damaged value: ECORRUPT. */
CH_NODISCARD int iso_get_number(cohort_txn *txn, cohort_tree *tree, uint32_t n, size_t max,
                                struct cohort_value *v, uint32_t *version);
/* What iso_put_number() wrote, read back by other means. */
CH_NODISCARD int iso_version_of(uint32_t n, size_t max, const void *data, size_t bytes,
                                uint32_t *version);

/* Calls of another thread: spawned, run, and joined by iso_join(). */
struct iso_call {
    struct rt_thread thread;
    void (*fn)(struct iso_call *c);
    struct iso *w;
    cohort_txn *txn;
    const char *key;
    uint64_t number;
    int rc;
    _Atomic bool done; /* release; pairs with iso_done() */
};
void iso_spawn(struct iso_call *c);
bool iso_done(struct iso_call *c);
void iso_join(struct iso_call *c);
/* Puts the value "w" at c->key; c->rc. */
void iso_put_call(struct iso_call *c);
/* Until `lock_waits` has reached n: somebody waits. Fails after ten seconds. */
void iso_await_waits(struct iso *w, uint64_t n);

#endif
