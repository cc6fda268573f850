/* sim.h - what the files of the simulator share.
 *
 *     sim_main.c    arguments, a process a seed, totals
 *     sim_plan.c    everything that a seed draws before it starts
 *     sim_run.c     one seed: boots of the database, crashes between them, what must hold after each
 *     sim_load.c    threads that use single operations, batches and cursors
 *     sim_txn.c     threads that use transactions (sim_txn_ops.c, sim_prepared.c)
 *     sim_ddl.c     trees that are created, filled, renamed, emptied, dropped
 *     sim_model.c   what each key may hold: a map with the history of its writes
 *     sim_check.c   the database against the model
 *
 * A seed runs in a process of its own, so its memory, and with it its run, does not depend on the seeds
 * before it; a failed assertion ends that seed only. Exactly one thread of it runs at a time (rt_sim.h),
 * so that the model needs no locks: nothing in it calls rt.
 */
#ifndef CH_TESTS_SIM_H
#define CH_TESTS_SIM_H

#include <stdio.h>

#include "base/base.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "rt/rt_sim.h"

enum {
    SIM_KEYS_MAX = 1500,
    SIM_WORKERS_MAX = 6,
    SIM_BOOTS_MAX = 6,
    SIM_VALUE_MIN = 12, /* key number and write number */
    SIM_VALUE_MAX = 1 << 16,
    SIM_TREES_MAX = 4, /* the main one included */
};

/* ---- the plan ---- */

enum sim_end { /* of a boot */
    SIM_END_CLOSE,
    SIM_END_KILL,    /* the process dies, the drive lives on */
    SIM_END_WRITES,  /* power cut at the n-th write */
    SIM_END_FLUSHES, /* ... at the n-th flush */
    SIM_END_TIME,    /* power cut a moment after the n-th operation */
    SIM_ENDS
};

enum sim_key_style {
    SIM_KEYS_SHORT,
    SIM_KEYS_PREFIX, /* long common prefixes */
    SIM_KEYS_LONG,   /* up to COHORT_KEY_MAX */
    SIM_KEY_STYLES
};

struct sim_boot {
    enum sim_end end;
    uint64_t at; /* which write, flush or operation */
    uint64_t after_ns;
    uint64_t crash_seed;
    unsigned ops; /* a worker */
    bool faults;
    struct dev_fault_plan fault;
    unsigned recovery_cuts;  /* power cuts while the next boot opens */
    uint64_t recovery_at[3]; /* at this write of it, or flush */
    bool recovery_flush[3];
    uint64_t recovery_seed[3];
};

struct sim_plan {
    uint64_t seed;
    char drive[200];    /* what follows "sim:", but for the size */
    uint64_t drive_kib; /* at least; more until a database fits */
    struct cohort_options opts;
    struct sim_timing timing;
    unsigned trees; /* the main one and named ones; key k of tree t has the number t * keys + k */
    unsigned workers, keys, key_spread; /* a worker's keys are drawn from a window of this size */
    enum sim_key_style key_style;
    unsigned value_max; /* bytes */
    bool transactions, preload, drain;
    unsigned serializable, prepare; /* percent of the transactions */
    unsigned txn_steps;             /* at most */
    unsigned boots;
    struct sim_boot boot[SIM_BOOTS_MAX];
    /* percent of the operations; what is left are puts */
    unsigned get, del, insert, update, batch, scan, sync, checkpoint, stats;
};

void sim_plan_draw(struct sim_plan *p, uint64_t seed);
void sim_plan_print(const struct sim_plan *p);

/* ---- coverage: added up over seeds, in memory shared with the parent ---- */

#define SIM_COVERAGE(X)  \
    X(boots)             \
    X(crashes)           \
    X(kills)             \
    X(closes)            \
    X(recoveries)        \
    X(recovery_cuts)     \
    X(recovery_failures) \
    X(faults_fired)      \
    X(boots_failed)      \
    X(operations)        \
    X(reads_checked)     \
    X(batches)           \
    X(scans)             \
    X(full)              \
    X(errors)            \
    X(unknown)           \
    X(checkpoints)       \
    X(gc_zones)          \
    X(delta_writes)      \
    X(delta_reads)       \
    X(evictions)         \
    X(transactions)      \
    X(commits)           \
    X(aborts)            \
    X(conflicts)         \
    X(deadlocks)         \
    X(lock_timeouts)     \
    X(snapshots_killed)  \
    X(prepared)          \
    X(prepared_ended)    \
    X(snapshots_checked) \
    X(ddl)               \
    X(savepoints)        \
    X(large_values)      \
    X(lock_waits)        \
    X(canceled)          \
    X(spilled_bytes)     \
    X(loose_keys)        \
    X(points)            \
    X(switches)          \
    X(virtual_ms)        \
    X(schedules)

struct sim_coverage {
#define X(name) uint64_t name;
    SIM_COVERAGE(X)
#undef X
};
extern struct sim_coverage *sim_cover;

/* ---- failing and telling ---- */

extern bool sim_verbose;
/* Ends the process: the seed has found something. */
void sim_fail(const char *fmt, ...) CH_PRINTF(1, 2) __attribute__((noreturn, cold));
/* A line of the trace, with --verbose. */
void sim_trace(const char *fmt, ...) CH_PRINTF(1, 2);
#define SIM_CHECK(e) ((e) ? (void)0 : sim_fail("%s:%d: %s", __FILE__, __LINE__, #e))

/* ---- the model ---- */

struct sim_model;
/* A write's number: 1 .. ; 0 stands for "absent". */
typedef uint32_t write_id;

enum sim_kind {
    SIM_GET,
    SIM_PUT,
    SIM_INSERT,
    SIM_UPDATE,
    SIM_DEL,    /* NOTFOUND when it is absent */
    SIM_CLEAR,  /* absent afterwards, whatever it was: a deletion in a batch */
    SIM_REMOVE, /* a deletion, by a transaction, of what it saw */
};
enum sim_outcome {
    SIM_DONE,
    SIM_REFUSED, /* NOTFOUND or EXISTS, as kind says */
    SIM_NOTHING, /* an error that promises that nothing has changed */
    SIM_UNKNOWN  /* an error after which either may be */
};

void sim_model_init(const struct sim_plan *p);
void sim_model_fini(void);
size_t sim_key(unsigned key, uint8_t *out); /* COHORT_KEY_MAX bytes */
/* The number of the key, or sim_fail(). */
unsigned sim_key_number(const void *key, size_t bytes);
/* Bytes of write `w`; out may be NULL. */
size_t sim_value(write_id w, uint8_t *out);
/* The write whose value this is: sim_fail() when a byte is wrong or the key is another. */
write_id sim_value_parse(unsigned key, const void *value, size_t bytes);
/* Events are numbered: an operation that ends before another begins has the lower number. */
uint64_t sim_event(void);

/* An operation on one key begins. For those that write: *w is its number, in group `group` (0 = none;
 * groups are all or nothing). Returns its handle. */
struct sim_op *sim_op_begin(unsigned key, enum sim_kind kind, uint32_t group, bool sync);
write_id sim_op_write(const struct sim_op *op);
/* It ends. GET: `value` is what was read, 0 = NOTFOUND, and outcome DONE or UNKNOWN. Fails the seed when
 * no order of the operations so far explains it. */
void sim_op_end(struct sim_op *op, enum sim_outcome outcome, write_id value);
/* The same in two steps, for writes that take effect at a commit: a write that has its number and its
 * value; its beginning. */
write_id sim_write_new(unsigned key, enum sim_kind kind, uint32_t group, bool sync);
struct sim_op *sim_write_begin(write_id w);
unsigned sim_write_key(write_id w);
/* Somebody who sees committed writes only has read it; 0 is ignored. */
void sim_write_seen(write_id w);
/* Whether its acknowledgement says that it is durable. */
void sim_write_sync(write_id w, bool sync);
/* The end of its commit record lies between two positions of the log. */
void sim_write_position(write_id w, uint64_t low, uint64_t high);
uint32_t sim_group_new(void);

/* Whether the key may have held `value` at some moment between two events. */
bool sim_may_hold(unsigned key, write_id value, uint64_t from, uint64_t to);
/* Everything that ended before `event` is durable. */
void sim_model_durable(uint64_t event);
void sim_model_durable_position(uint64_t position);

/* Whether a snapshot that sees at least everything up to `position` may see `value`; else *by: the write
 * that it should see instead, or that came after it. */
bool sim_seen_at(unsigned key, write_id value, uint64_t position, write_id *by);
/* Whether another write than `own` certainly has its place in the log from `after` on and before
 * `before`. */
bool sim_written_between(unsigned key, write_id own, uint64_t after, uint64_t before, write_id *by);
/* The position that it has at least; 0 for one of an earlier boot. */
uint64_t sim_write_low(write_id w);
/* Whether its commit began before the event, and may have worked. */
bool sim_write_is_visible(write_id w, uint64_t event);
/* The boot is over, whatever runs has an unknown outcome. What each key holds now: found[key]. Fails the
 * seed unless that may be after a crash, or, `crash` false, in a database that lost nothing. */
void sim_model_restart(const write_id *found, bool crash);
bool sim_model_is_loose(unsigned key);

/* ---- the world of a seed ---- */

enum {
    SIM_PREPARED_MAX = 64,
    SIM_TXN_WRITES = 64 /* keys that a transaction writes at most */
};
enum sim_prepared_state {
    SIM_PREPARED_NONE, /* the slot is free */
    SIM_PREPARING,     /* prepare has not returned, or with an unknown outcome */
    SIM_PREPARED,
    SIM_COMMITTING, /* the same for commit_prepared */
    SIM_ABORTING,
    SIM_COMMITTED, /* acknowledged; as durable as the database's commits are */
    SIM_ABORTED    /* acknowledged; a crash may bring it back */
};
struct sim_prepared {
    enum sim_prepared_state state;
    bool busy; /* a worker is at it */
    bool sync; /* its end is durable when it is acknowledged */
    uint32_t number;
    write_id writes[SIM_TXN_WRITES];
    unsigned count;
};

struct cohort_db;
struct sim_world {
    const struct sim_plan *plan;
    struct sim_drive *drive;
    struct dev *fault; /* the wrapper below the open database */
    struct cohort_db *db;
    bool stop;     /* workers: end */
    bool fair;     /* the last phase: no faults, every operation in bounded time */
    bool held_all; /* all keys were there at once */
    bool failed;   /* an operation said that the handle has */
    unsigned running;
    uint64_t ended; /* operations of this boot */
    unsigned boot;
    /* transactions */
    struct cohort_tree *trees[SIM_TREES_MAX]; /* [0] is NULL, the main tree */
    uint64_t
        visible; /* what has been acknowledged lies in the log below this position, or beyond */
    struct sim_prepared prepared[SIM_PREPARED_MAX];
    uint32_t prepared_count; /* ever */
};

void sim_run(const struct sim_plan *p);
/* Ends the workload when the power is gone. */
void sim_watch(struct sim_world *w);
/* True when an error may be: faults are planned or the power is gone. */
bool sim_errors_allowed(struct sim_world *w);
/* Runs the workload of one boot, until all is done or `w->stop`. */
/* Writes every key once. */
void sim_load_all(struct sim_world *w);
/* Deletes every key, then writes some: nothing of it may fail. */
void sim_load_drain(struct sim_world *w);
void sim_load_worker(struct sim_world *w, unsigned worker, struct ch_prng *rng, unsigned ops);
void sim_txn_worker(struct sim_world *w, unsigned worker, struct ch_prng *rng, unsigned ops);
/* After an open and before its end: handles of the trees. */
int sim_txn_open(struct sim_world *w);
void sim_txn_close(struct sim_world *w);
/* After a restart, before the model starts anew: prepared transactions that must be there, and may be. */
void sim_txn_check_prepared(struct sim_world *w, const write_id *found, bool crash);
/* What every key of every tree holds, in one snapshot; returns how many. */
unsigned sim_txn_read_all(struct sim_world *w, write_id *found);
/* Ends all that is prepared: nothing may be in the way. */
void sim_txn_settle(struct sim_world *w);
/* Trees that come and go (sim_ddl.c). */
void sim_ddl_init(void);
void sim_ddl_step(struct sim_world *w, struct ch_prng *rng);
void sim_ddl_check(struct sim_world *w, bool crash);
/* Log positions around an operation, with transactions; else 0. */
uint64_t sim_txn_position(struct sim_world *w);
/* Reads all, compares, runs cohort_check(); the model starts anew from what is there. `crash`: the boot
 * before did not end with a close that worked. */
void sim_check_all(struct sim_world *w, bool crash);
/* Bytes by cause against what the device counted. */
void sim_check_bytes(struct sim_world *w);
/* A scan: the keys between `after` and `at` in key order (-1, and the number of keys: the ends) were
 * passed over, from event `from` to now. `at` is a position, too. */
void sim_check_passed(int after, int at, uint64_t from);
/* The number of the key at a position of the key order. */
unsigned sim_key_at(int position);
int sim_key_position(unsigned key);
void sim_check_init(const struct sim_plan *p);
void sim_check_fini(void);

#endif
