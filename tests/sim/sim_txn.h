/* sim_txn.h - a transaction under way, for the files of the simulator that deal with them: sim_txn.c,
 * sim_txn_ops.c and sim_prepared.c. What is judged stands at the head of sim_txn.c.
 */
#ifndef CH_TESTS_SIM_TXN_H
#define CH_TESTS_SIM_TXN_H

#include "sim.h"

enum {
    READS_MAX = 1024,
    SAVEPOINTS_MAX = 4
};

struct change {
    unsigned slot;
    write_id w;
    bool clear;
    bool lock;              /* get_for_update: nothing is written */
    uint64_t snapshot_high; /* the end of the log just after the snapshot was taken */
};

struct seen {
    unsigned slot;
    write_id w;
};

struct strx { /* a transaction under way */
    struct sim_world *w;
    struct ch_prng *rng;
    unsigned worker;
    cohort_txn *t;
    bool serializable, read_only, sync;
    bool doomed;            /* can only be aborted */
    uint64_t begun;         /* event: when its snapshot was taken */
    uint64_t low;           /* its snapshot sees at least all below */
    uint64_t snapshot_high; /* and nothing above */
    uint32_t group;
    struct change changes[SIM_TXN_WRITES];
    unsigned change_count;
    struct seen reads[READS_MAX];
    unsigned read_count;
    struct {
        uint64_t id;
        unsigned changes;
    } savepoints[SAVEPOINTS_MAX];
    unsigned savepoint_count;
};

cohort_tree *sim_txn_tree(const struct sim_world *w, unsigned slot);
/* True: the call worked. Errors that may be are noted; others fail the seed. */
bool sim_txn_worked(struct strx *x, const char *what, int rc);
/* What the result of a call that ends a transaction says of its writes. */
enum sim_outcome sim_txn_end_outcome(struct strx *x, int rc);
/* The key was read: `w`, 0 = absent. */
void sim_txn_saw(struct strx *x, unsigned slot, write_id w);
/* X2 for what has been read since the snapshot was taken. */
void sim_txn_judge_reads(struct strx *x);
/* The newest write of each key, in the order of writing; returns how many. */
unsigned sim_txn_final_writes(const struct strx *x, write_id *out);
void sim_txn_finish_ops(struct sim_op **ops, unsigned n, enum sim_outcome o);
/* Acknowledged: a commit whose record ends at `low` or behind it. */
void sim_txn_note_visible(struct sim_world *w, uint64_t low);
void sim_txn_give_up(struct strx *x);
/* One call within it, drawn. */
void sim_txn_step(struct strx *x);
/* Two-phase commit: ends it as prepared; commits or aborts one that is. */
void sim_txn_prepare(struct strx *x);
void sim_txn_decide_any(struct strx *x);

#endif
