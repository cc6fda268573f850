/* sim_txn.c - workers of transactions; what a transaction reads, writes and may not see.
 *
 * The order of commits is that of their records in the log, and the log's end before and after a commit
 * bounds where its record lies. So every write has an interval of positions, and a snapshot is a
 * position. A transaction is judged with what is certain:
 *
 *   X1  it reads its own writes, as savepoints left them.
 *   X2  one position explains all its reads: with `low` = the highest of the positions that its reads,
 *       and the commits acknowledged before it began, prove, no read was overtaken at `low`.
 *   X3  it reads nothing whose commit began after its snapshot was taken, nothing uncommitted, and the
 *       same twice.
 *   X4  of two committed transactions that wrote a key, or locked it, one took its snapshot after the
 *       other's commit: nothing lies between the snapshot of a write and its commit.
 *   X5  serializable: at the commit of one that wrote nothing that it read, keys that were absent
 *       included, has changed. One that only read has its place at its snapshot.
 *
 * Single operations among them are judged one by one (sim_model.c), as are the commits, key by key.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sim_txn.h"

uint64_t
sim_txn_position(struct sim_world *w)
{
    return w->plan->transactions ? cohort_log_position(w->db) : 0;
}

cohort_tree *
sim_txn_tree(const struct sim_world *w, unsigned slot)
{
    return w->trees[slot / w->plan->keys];
}

/* ---- results ---- */

bool
sim_txn_worked(struct strx *x, const char *what, int rc)
{
    enum cohort_class class = cohort_class_of(rc);

    if (rc != 0)
        sim_trace("%u: %s: %s", x->worker, what, cohort_strerror(rc));
    if (rc == 0)
        return true;
    if (rc == COHORT_DEADLOCK || rc == COHORT_SNAPSHOT_TOO_OLD)
        x->doomed = true;
    if (rc == COHORT_CANCELED)
        sim_cover->canceled++;
    if (class == COHORT_CLASS_CONFLICT && rc != COHORT_EXISTS)
        return false;
    if (rc == COHORT_EFULL || rc == COHORT_ENOMEM) {
        sim_cover->full++;
        x->doomed = true;
        return false;
    }
    if (!sim_errors_allowed(x->w))
        sim_fail("%s: %s: %s", what, cohort_strerror(rc), cohort_last_error()->text);
    sim_cover->errors++;
    if (rc == COHORT_EFAILED)
        x->w->failed = true;
    x->doomed = true;
    return false;
}

/* ---- what it sees ---- */

/* Its own change of the key, NULL without one. */
static const struct change *
own_change(const struct strx *x, unsigned slot)
{
    for (unsigned i = x->change_count; i > 0; i--)
        if (x->changes[i - 1].slot == slot && !x->changes[i - 1].lock)
            return &x->changes[i - 1];
    return NULL;
}

static bool
find_read(const struct strx *x, unsigned slot, write_id *w)
{
    for (unsigned i = 0; i < x->read_count; i++) {
        if (x->reads[i].slot == slot) {
            *w = x->reads[i].w;
            return true;
        }
    }
    return false;
}

void
sim_txn_saw(struct strx *x, unsigned slot, write_id w)
{
    const struct change *own = own_change(x, slot);
    write_id before;

    if (own != NULL) {
        if (w != (own->clear ? 0 : own->w))
            sim_fail("key %u: a transaction reads write %u, its own was %u%s", slot, w, own->w,
                     own->clear ? ", a deletion" : ""); /* X1 */
        return;
    }
    if (!sim_write_is_visible(w, x->begun))
        sim_fail("key %u: a transaction reads write %u, which was not committed when it began",
                 slot, w); /* X3 */
    if (find_read(x, slot, &before)) {
        if (before != w)
            sim_fail("key %u: a transaction reads write %u after write %u", slot, w,
                     before); /* X3 */
        return;
    }
    sim_write_seen(w);
    if (x->read_count < READS_MAX)
        x->reads[x->read_count++] = (struct seen){slot, w};
}

void
sim_txn_judge_reads(struct strx *x)
{
    uint64_t low = x->low;
    write_id by = 0;

    for (unsigned i = 0; i < x->read_count; i++)
        if (x->reads[i].w != 0)
            low = ch_max_u64(low, sim_write_low(x->reads[i].w));
    for (unsigned i = 0; i < x->read_count; i++)
        if (!sim_seen_at(x->reads[i].slot, x->reads[i].w, low, &by))
            sim_fail("key %u: a snapshot of at least position %" PRIu64
                     " reads write %u, which write %u had replaced",
                     x->reads[i].slot, low, x->reads[i].w, by);
    sim_cover->snapshots_checked++;
}

/* ---- begin, end ---- */

static bool
begin(struct strx *x)
{
    static const int DURABILITIES[] = {COHORT_DEFAULT, COHORT_DEFAULT, COHORT_DURABILITY_SYNC,
                                       COHORT_DURABILITY_ASYNC, COHORT_DURABILITY_NONE};
    struct cohort_txn_options o;
    int durability = DURABILITIES[ch_prng_below(x->rng, CH_ARRAY_LEN(DURABILITIES))];
    uint64_t low = x->w->visible;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = x->read_only = ch_prng_below(x->rng, 6) == 0;
    x->serializable = ch_prng_below(x->rng, 100) < x->w->plan->serializable;
    o.isolation = x->serializable ? COHORT_SERIALIZABLE : COHORT_SNAPSHOT;
    o.durability = durability;
    if (ch_prng_below(x->rng, 4) == 0)
        o.lock_timeout_ms = (int64_t)ch_prng_below(x->rng, 3) * 10;
    o.tag = x;
    x->sync = (durability == COHORT_DEFAULT ? (int)x->w->plan->opts.durability : durability) ==
              COHORT_DURABILITY_SYNC;
    x->doomed = false;
    x->change_count = x->read_count = x->savepoint_count = 0;
    x->group = sim_group_new();
    x->t = NULL;
    rc = cohort_begin(x->w->db, &o, &x->t);
    if (rc == COHORT_EBUSY) /* transactions_max, by other workers or cursors */
        return false;
    if (!sim_txn_worked(x, "begin", rc))
        return false;
    x->begun = sim_event();
    x->low = low;
    x->snapshot_high = cohort_log_position(x->w->db);
    sim_cover->transactions++;
    sim_trace("%u: begin%s%s: low %" PRIu64 " high %" PRIu64, x->worker,
              x->serializable ? " serializable" : "", x->sync ? " sync" : "", x->low,
              x->snapshot_high);
    return true;
}

unsigned
sim_txn_final_writes(const struct strx *x, write_id *out)
{
    unsigned n = 0;

    for (unsigned i = 0; i < x->change_count; i++)
        if (own_change(x, x->changes[i].slot) == &x->changes[i])
            out[n++] = x->changes[i].w;
    return n;
}

enum sim_outcome
sim_txn_end_outcome(struct strx *x, int rc)
{
    if (rc == 0)
        return SIM_DONE;
    if (cohort_class_of(rc) == COHORT_CLASS_CONFLICT)
        return SIM_NOTHING;
    return sim_errors_allowed(x->w) ? SIM_UNKNOWN : SIM_NOTHING;
}

/* X4, X5: a commit between the positions low and high worked. */
static void
judge_commit(struct strx *x, uint64_t low, bool wrote)
{
    write_id by = 0;

    for (unsigned i = 0; i < x->change_count; i++) {
        const struct change *c = &x->changes[i];
        const struct change *final = own_change(x, c->slot);

        if (sim_written_between(c->slot, final != NULL ? final->w : 0, c->snapshot_high + 1, low,
                                &by))
            sim_fail("key %u: write %u was committed between the snapshot (%" PRIu64
                     " at most) and the commit (%" PRIu64 " at least) of a transaction that %s it",
                     c->slot, by, c->snapshot_high, low, c->lock ? "locked" : "wrote");
    }
    for (unsigned i = 0; i < x->read_count && x->serializable && wrote; i++)
        if (!sim_seen_at(x->reads[i].slot, x->reads[i].w, low - 1, &by))
            sim_fail("key %u: read as write %u by a serializable transaction, which committed "
                     "although write %u had replaced it",
                     x->reads[i].slot, x->reads[i].w, by);
}

void
sim_txn_note_visible(struct sim_world *w, uint64_t low)
{
    w->visible = ch_max_u64(w->visible, low);
}

void
sim_txn_finish_ops(struct sim_op **ops, unsigned n, enum sim_outcome o)
{
    for (unsigned i = 0; i < n; i++)
        sim_op_end(ops[i], o, 0);
}

static void
commit(struct strx *x)
{
    struct sim_op *ops[SIM_TXN_WRITES] = {NULL};
    write_id writes[SIM_TXN_WRITES];
    unsigned n = sim_txn_final_writes(x, writes);
    uint64_t low = cohort_log_position(x->w->db) + 1, high = 0;
    bool visible = ch_prng_below(x->rng, 4) == 0;
    enum sim_outcome o;
    int rc;

    sim_txn_judge_reads(x);
    for (unsigned i = 0; i < n; i++) {
        sim_write_sync(writes[i], x->sync && !visible);
        sim_write_position(writes[i], low, UINT64_MAX);
        ops[i] = sim_write_begin(writes[i]);
    }
    sim_trace("%u: commit%s of %u writes, group %u", x->worker, visible ? " (visible)" : "", n,
              x->group);
    rc = visible ? cohort_commit_visible(x->t, &high) : cohort_commit(x->t);
    x->t = NULL;
    (void)sim_txn_worked(x, "commit", rc);
    o = sim_txn_end_outcome(x, rc);
    if (rc == 0) {
        uint64_t end = cohort_log_position(x->w->db);

        for (unsigned i = 0; i < n; i++)
            sim_write_position(writes[i], low, visible ? ch_min_u64(high, end) : end);
        if (n > 0)
            sim_txn_note_visible(x->w, low);
        judge_commit(x, low, n > 0);
    }
    sim_trace("%u: commit of group %u ends: %s", x->worker, x->group, cohort_strerror(rc));
    sim_txn_finish_ops(ops, n, o);
    if (rc == 0 && visible && ch_prng_below(x->rng, 2) == 0 &&
        sim_txn_worked(x, "durable", cohort_durable(x->w->db, high)))
        sim_model_durable_position(high);
}

void
sim_txn_give_up(struct strx *x)
{
    int rc;

    sim_txn_judge_reads(x);
    rc = cohort_abort(x->t);
    x->t = NULL;
    if (rc != 0 && !sim_errors_allowed(x->w))
        sim_fail("abort: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    sim_trace("%u: abort: %s", x->worker, cohort_strerror(rc));
}

static void
run_transaction(struct strx *x)
{
    unsigned steps = 1 + (unsigned)ch_prng_below(x->rng, x->w->plan->txn_steps);

    if (!begin(x))
        return;
    for (unsigned i = 0; i < steps && !x->doomed && !x->w->stop; i++) {
        sim_txn_step(x);
        rt_sim_progress();
    }
    if (x->doomed || x->w->stop || ch_prng_below(x->rng, 8) == 0)
        sim_txn_give_up(x);
    else if (!x->read_only && x->change_count > 0 &&
             ch_prng_below(x->rng, 100) < x->w->plan->prepare)
        sim_txn_prepare(x);
    else
        commit(x);
}

/* ---- waits ---- */

/* Now and then a wait is cancelled, by the waiter itself: its handle is certainly alive. */
static void
wait_hook(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder, void *holder_tag)
{
    struct sim_world *w = arg;
    struct strx *x = waiter_tag;

    (void)holder_tag;
    sim_trace("transaction %" PRIu64 " waits for %" PRIu64, waiter, holder);
    if (waiter != 0 && waiter == holder)
        sim_fail("transaction %" PRIu64 " waits for itself", waiter);
    if (x != NULL && !w->fair && rt_random() % 32 == 0)
        cohort_txn_cancel(x->t);
}

/* ---- the world ---- */

int
sim_txn_open(struct sim_world *w)
{
    char name[16];
    int rc = 0;

    w->visible = 0;
    cohort_set_wait_hook(w->db, wait_hook, w);
    for (unsigned t = 1; t < w->plan->trees && rc == 0; t++) {
        (void)snprintf(name, sizeof(name), "tree-%u", t);
        rc = cohort_tree_open(w->db, NULL, name, COHORT_TREE_CREATE, NULL, &w->trees[t]);
    }
    return rc;
}

void
sim_txn_close(struct sim_world *w)
{
    for (unsigned t = 1; t < w->plan->trees; t++) {
        cohort_tree_close(w->trees[t]);
        w->trees[t] = NULL;
    }
}

/* False: the snapshot was given up, which the sweeper's own writes may lead to when version_bytes is small. */
static bool
read_tree(struct sim_world *w, cohort_txn *t, unsigned tree, write_id *found, unsigned *n)
{
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    int rc = cohort_txn_cursor(t, w->trees[tree], &c), last = -1;

    for (rc = rc == 0 ? cohort_cursor_first(c) : rc; rc == 0; rc = cohort_cursor_next(c)) {
        unsigned number;

        rc = cohort_cursor_entry(c, &key, &value);
        if (rc != 0)
            break;
        number = sim_key_number(key.data, key.bytes);
        if (sim_key_position(number) <= last)
            sim_fail("key %u of tree %u: out of order, or twice", number, tree);
        last = sim_key_position(number);
        number += tree * w->plan->keys;
        found[number] = sim_value_parse(number, value.data, value.bytes);
        ++*n;
    }
    if (rc != COHORT_NOTFOUND && rc != COHORT_SNAPSHOT_TOO_OLD)
        sim_fail("scan of tree %u: %s: %s", tree, cohort_strerror(rc), cohort_last_error()->text);
    cohort_cursor_close(c);
    return rc == COHORT_NOTFOUND;
}

unsigned
sim_txn_read_all(struct sim_world *w, write_id *found)
{
    cohort_txn *t = NULL;
    unsigned n;
    bool whole;
    int rc;

    do {
        memset(found, 0, (size_t)w->plan->keys * w->plan->trees * sizeof(*found));
        n = 0;
        whole = true;
        rc = cohort_begin(w->db, NULL, &t);
        if (rc != 0)
            sim_fail("begin: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
        for (unsigned i = 0; whole && i < w->plan->trees; i++)
            whole = read_tree(w, t, i, found, &n);
        rc = whole ? cohort_commit(t) : cohort_abort(t);
        if (rc != 0)
            sim_fail("end of a scan: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    } while (!whole);
    return n;
}

void
sim_txn_worker(struct sim_world *w, unsigned worker, struct ch_prng *rng, unsigned ops)
{
    struct strx *x = calloc(1, sizeof(*x));

    SIM_CHECK(x != NULL);
    x->w = w;
    x->rng = rng;
    x->worker = worker;
    for (unsigned done = 0; done < ops && !w->stop && !w->failed;) {
        unsigned d = (unsigned)ch_prng_below(rng, 100);
        unsigned before = done;

        if (d < 15) {
            done += 3;
            sim_load_worker(w, worker, rng, 3);
        } else if (d < 25) {
            done++;
            sim_txn_decide_any(x);
        } else if (d < 30 && worker == 0) {
            done++;
            sim_ddl_step(w, rng);
        } else {
            done += 4;
            run_transaction(x);
        }
        w->ended += done - before;
        sim_cover->operations += done - before;
        rt_sim_progress();
        sim_watch(w);
    }
    free(x);
}
