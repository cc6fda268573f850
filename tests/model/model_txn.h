/* model_txn.h - the whole engine against a model, this time transactions: several open at once in each thread, savepoints, named
 * trees, large values, prepared ones, bulk loads; through power cuts and failed requests.
 *
 * Keys are dealt out to the threads, so each knows the state of its own, what each of its open transactions must see of them, and
 * which write must be refused: lock_timeout_ms is 0, so a key that another of its transactions holds, or that was committed after the
 * snapshot, is a CONFLICT at once and nothing else is.
 *
 * A key's state is a version, 0 = absent. Keys below KEYS are records, in the main tree or in a named one by their number. Keys from
 * KEYS on are whole trees: version v > 0 is a tree that holds v % 5 entries, which are functions of v. So a change of one is the
 * creation, filling, truncation or drop of a tree.
 *
 * History: each commit of a thread is a write of some changes. After a crash the thread's keys must be in the state after some prefix
 * of its history that has everything promised. Keys of prepared transactions are apart from that: they are in the state of the
 * decision that is made after recovery.
 */
#ifndef CH_TESTS_MODEL_TXN_H
#define CH_TESTS_MODEL_TXN_H

#include "api/api_internal.h"
#include "base/base.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "rt/rt.h"
#include "zt/zt.h"

enum {
    THREADS_MAX = 3,
    TREES = 3, /* named ones; tree 0 is the main one */
    KEYS = 900,
    SPECIALS = 12, /* keys that are trees */
    KEYS_ALL = KEYS + SPECIALS,
    SLOTS = 3, /* transactions open at once in a thread */
    SLOT_CHANGES = 48,
    SAVEPOINTS = 4,
    PREPARED = 6,
    HISTORY_MAX = 4000,
    CHANGES_MAX = 30000,
    SMALL_MAX = 500,
    LARGE_MAX = 30000,
};

struct change {
    uint32_t key, version;
    bool lock; /* by FOR UPDATE: nothing changed */
};

struct mark { /* a savepoint */
    uint64_t id;
    unsigned changes;
    uint32_t view[KEYS_ALL];
};

struct slot {
    cohort_txn *txn; /* NULL: free */
    uint32_t view[KEYS_ALL];
    uint64_t since; /* commits of the thread when its snapshot was taken */
    unsigned count;
    struct change changes[SLOT_CHANGES];
    unsigned marks;
    struct mark mark[SAVEPOINTS];
    bool special;
    bool dead; /* its snapshot is gone: it can only be aborted */
};

enum prepared_state {
    P_FREE,
    P_MAYBE,     /* prepare failed */
    P_SURE,      /* waits for a decision */
    P_COMMITTING /* the decision is the last write of the history, in flight */
};

struct prepared {
    enum prepared_state state;
    char gid[24];
    unsigned count, locks;
    struct change changes[SLOT_CHANGES]; /* without locks */
    struct change held[SLOT_CHANGES];    /* with them */
};

struct world;
struct worker {
    struct world *w;
    unsigned index;
    struct rt_thread thread;
    struct ch_prng rng;
    cohort_tree *trees[TREES + 1]; /* [0] NULL */
    uint32_t state[KEYS_ALL], base[KEYS_ALL];
    uint64_t committed_at[KEYS_ALL]; /* in commits; 0 = before the round */
    uint8_t owner[KEYS_ALL];         /* slot + 1, or OWNER_PREPARED; 0 = nobody */
    uint64_t commits;
    struct slot slots[SLOTS];
    struct prepared prepared[PREPARED];
    uint32_t next_version, next_gid;
    struct change changes[CHANGES_MAX];
    unsigned change_count, writes, acked, synced;
    unsigned ends[HISTORY_MAX];
    unsigned ops;
    bool stopped; /* an error of a fault: what is open is left as it is */
    bool failed;
    char why[512];
    struct cohort_value value;
    uint8_t *buf, *want; /* LARGE_MAX bytes */
};
enum {
    OWNER_PREPARED = 200
};

struct world {
    struct zt *t;
    struct cohort_options opts;
    struct sim_drive *drive;
    struct dev *fault;
    cohort_db *db;
    unsigned threads;
    bool faults;
    struct worker *workers[THREADS_MAX];
};

/* ---- model_txn_work.c ---- */
void model_work(void *worker); /* one thread's round */
void model_end_slots(struct worker *k);
bool model_open_trees(struct worker *k); /* false: an error is noted */
void model_close_trees(struct worker *k);
/* What the database shows of a key, as a version; `txn` NULL: the newest. An error is noted. */
uint32_t model_read(struct worker *k, cohort_txn *txn, uint32_t key);
size_t model_name(uint32_t key, char *out); /* the record's key */
static inline unsigned
model_tree_of(uint32_t key)
{
    return key % (TREES + 1);
}
void model_fail(struct worker *k, const char *what, uint32_t key, int rc);

#endif
