/* history.h - histories of transactions, and a checker of isolation in the style of Elle (Kingsbury, Alvaro, VLDB 2020).
 *
 * A history is what clients saw, nothing of the engine's inside. Its objects are
 *
 *     lists      values are the ids that were appended, in order; an append reads, adds, writes. The longest list read is the order
 *                of the versions, so dependencies between transactions are known, not guessed.
 *     registers  written blindly; versions are in order where a transaction read one before it wrote the next, or where one was
 *                complete before the other began.
 *
 * Ids are unique over the history, 1 .. HIST_IDS_MAX. A range scan is recorded as a read of every object of the range, absent ones
 * as empty: so phantoms are dependencies like others.
 *
 * Transactions are nodes; edges are ww (overwrote), wr (read what was written), rw (read what was overwritten), rt (complete before
 * the other began). What is looked for, worst first:
 *
 *     internal   own writes or an earlier read of the same transaction not seen
 *     garbage    what nobody wrote, or lists that are no prefixes of each other
 *     G1a, G1b   reads of what was aborted; of what was overwritten by its own writer
 *     lost       an append that was committed is in no list of the last read; two that read the same version and both replaced it
 *     G0, G1c    cycles of ww; of ww and wr; with rt: a commit not visible to who began later
 *     G-single   cycles with one rw; or with several, no two of them adjacent: what snapshot isolation rules out
 *     G2         cycles with rw next to rw (write skew): what a serializable history does not have
 *
 * Reads of aborted transactions are held to the same rules but the last.
 */
#ifndef CH_TESTS_ISOLATION_HISTORY_H
#define CH_TESTS_ISOLATION_HISTORY_H

#include "base/base.h"

enum hist_kind {
    HIST_APPEND, /* id to the list */
    HIST_LIST,   /* the list was read: ids */
    HIST_WRITE,  /* id into the register */
    HIST_READ    /* the register was read: id, 0 = never written */
};
enum {
    HIST_OPS_MAX = 128, /* of a transaction */
    HIST_IDS_MAX = 1 << 20,
    HIST_KEYS_MAX = 64, /* lists, and as many registers */
    HIST_TEXT = 2048,
};
struct hist_op {
    enum hist_kind kind;
    uint32_t key;
    uint32_t id;
    uint32_t first, count; /* of ids */
};

/* A transaction that is still open. */
struct hist_draft {
    uint64_t begin;
    struct hist_op ops[HIST_OPS_MAX];
    unsigned count;
    uint32_t *ids;
    size_t id_count, id_room;
};
struct hist_txn {
    uint64_t begin, end; /* on one clock: begin before the begin call, end after the end call */
    uint32_t first, count;
    bool committed;
};
struct hist {
    struct hist_txn *txns;
    size_t txn_count, txn_room;
    struct hist_op *ops;
    size_t op_count, op_room;
    uint32_t *ids;
    size_t id_count, id_room;
};

/* Zeroed structs are empty ones. */
void hist_free(struct hist *h);
void hist_draft_begin(struct hist_draft *d, uint64_t begin); /* keeps its memory */
void hist_draft_free(struct hist_draft *d);
void hist_append(struct hist_draft *d, uint32_t key, uint32_t id);
void hist_list(struct hist_draft *d, uint32_t key, const uint32_t *ids, size_t count);
void hist_write(struct hist_draft *d, uint32_t key, uint32_t id);
void hist_read(struct hist_draft *d, uint32_t key, uint32_t id);
/* What came after the first `keep` operations was rolled back; the writes among it count as those of an aborted transaction. */
void hist_rollback(struct hist *h, struct hist_draft *d, unsigned keep);
void hist_end(struct hist *h, struct hist_draft *d, uint64_t end, bool committed);
/* Adds what `from` has, which is emptied. */
void hist_merge(struct hist *h, struct hist *from);

enum hist_anomaly {
    HIST_FINE,
    HIST_INTERNAL,
    HIST_GARBAGE,
    HIST_G1A,
    HIST_G1B,
    HIST_LOST,
    HIST_G0,
    HIST_G1C,
    HIST_STALE, /* G0 or G1c with rt */
    HIST_G_SINGLE,
    HIST_G_APART, /* several rw, none next to another */
    HIST_G2,
    HIST_ANOMALIES
};
const char *hist_name(enum hist_anomaly a);
struct hist_result {
    enum hist_anomaly worst;
    size_t edges;
    char text[HIST_TEXT]; /* what: the cycle with its transactions */
};
void hist_check(const struct hist *h, struct hist_result *r);

/* ---- history_graph.c ---- */

enum hist_edge_kind {
    HIST_WW = 1,
    HIST_WR = 2,
    HIST_RW = 4,
    HIST_RT = 8
};
struct hist_edge {
    uint32_t from, to;
    enum hist_edge_kind kind;
    uint32_t key;
};
struct hist_graph {
    uint32_t nodes;
    struct hist_edge *edges;
    size_t count, room;
};
void hist_graph_add(struct hist_graph *g, uint32_t from, uint32_t to, enum hist_edge_kind kind,
                    uint32_t key);
/* A short cycle of edges of these kinds: its edges in order, at most `max`; returns how many, 0 = none. `apart`: without two rw
 * edges in a row. `skip` (may be NULL): nodes left out. */
unsigned hist_graph_cycle(const struct hist_graph *g, unsigned kinds, bool apart, const bool *skip,
                          struct hist_edge *cycle, unsigned max);

#endif
