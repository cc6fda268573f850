/* write.c - writes within transactions and alone: trees' writer counts, room, lock waits.
 *
 * Invariants:
 *   W1  `pin` is the log's end before the record is appended, and stays until the entry is pushed (R3; spill.c P3). It is not set while
 *       the writer waits for log room (bt_write() sets it): it would hold back the cut that makes the room.
 *   W2  no latch, claim or lock is held while a record is waited for (R11).
 *   W4  NOTFOUND and EXISTS of a write of its own are true of a state that readers see: the commit that they are read from is
 *       made visible first.
 *   W3  a wait that ends without the record being free goes on with the time that is left, whoever holds it now.
 */
#include "txn/txn_internal.h"

#include <inttypes.h>

/* ---- trees ---- */

/* Index of the tree, or of where it belongs. */
static unsigned
tree_find(const struct txn *t, uint32_t id)
{
    unsigned lo = 0, hi = t->tree_count;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (t->trees[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool
tree_noted(const struct txn *t, unsigned i, uint32_t id)
{
    return i < t->tree_count && t->trees[i]->id == id;
}

bool
txn_writes_into(const struct txn *t, const struct reg_tree *tree)
{
    return tree_noted(t, tree_find(t, tree->id), tree->id);
}

int
txn_tree_note(struct txn *t, struct reg_tree *tree)
{
    struct reg *reg = t->ts->cfg.reg;
    unsigned i;
    void *mem;
    int rc;

    if (tree->id < REG_USER || CH_LIKELY(tree == t->last_tree))
        return 0;
    i = tree_find(t, tree->id);
    if (!tree_noted(t, i, tree->id)) {
        mem = t->trees;
        rc = txn_grow(&mem, &t->tree_room, t->tree_count, sizeof(struct reg_tree *));
        t->trees = mem;
        if (rc == 0)
            rc = reg_writer_begin(reg, tree, txn_id_of(t));
        if (rc != 0)
            return rc;
        reg_ref(reg, tree);
        memmove(&t->trees[i + 1], &t->trees[i], (t->tree_count - i) * sizeof(struct reg_tree *));
        t->trees[i] = tree;
        t->tree_count++;
    }
    t->last_tree = tree;
    return 0;
}

struct bt *
txn_tree_of(struct txn *t, uint32_t id)
{
    unsigned i;

    if (id < REG_USER)
        return reg_internal(t->ts->cfg.reg, id);
    i = tree_find(t, id);
    CH_ASSERT(tree_noted(t, i, id));
    return &t->trees[i]->bt;
}

/* ---- waiting ---- */

struct lock_wait {
    struct ver_waiter *waiter;
    uint64_t timeout_ns, deadline; /* 0 = no wait yet */
};

/* The record is held: waits for its owner. 0: try again. */
static int
wait_for_record(struct txns *ts, struct lock_wait *lw, const struct bt_done *done)
{
    struct ver_owner owner = {
        .id = done->owner.id, .tag = done->owner.tag, .wakes = done->owner.wakes};
    uint64_t now = rt_now_ns();

    if (lw->timeout_ns == 0)
        return CH_FAIL(COHORT_CONFLICT, "the record is held by transaction %" PRIu64, owner.id);
    if (lw->deadline == 0)
        lw->deadline = lw->timeout_ns < UINT64_MAX - now ? now + lw->timeout_ns : UINT64_MAX;
    return ver_wait(ts->cfg.ver, lw->waiter, &owner, now < lw->deadline ? lw->deadline - now : 0);
}

static bool
is_held(int rc, const struct bt_done *done)
{
    return rc == COHORT_CONFLICT && done->owner.id != 0;
}

static int
before_write(struct txns *ts)
{
    return ts->cfg.before_write != NULL ? ts->cfg.before_write(ts->cfg.arg) : 0;
}

/* Goes ahead on a full device. */
static bool
gives_room(const struct bt_op *op)
{
    return op->kind == BT_DEL || op->kind == BT_LOCK || op->system;
}

/* ---- within a transaction ---- */

static int
fail_state(const struct txn *t)
{
    if (t->read_only)
        return CH_FAIL(COHORT_ETXN, "transaction %" PRIu64 " is read-only", txn_id_of(t));
    return CH_FAIL(COHORT_ETXN,
                   "transaction %" PRIu64 ": a write has failed; only a rollback is possible",
                   txn_id_of(t));
}

/* All that may fail or wait before the record is written. */
static int
write_prepare(struct txn *t, struct reg_tree *tree, const struct bt_op *op)
{
    int rc;

    if (t->read_only || t->doomed != 0)
        return fail_state(t);
    rc = txn_tree_usable(t, tree);
    if (rc == 0)
        rc = before_write(t->ts);
    if (rc == 0)
        rc = txn_writer_begin(t);
    if (rc == 0)
        rc = txn_tree_note(t, tree);
    return rc != 0 ? rc : txns_make_room(t->ts, t, gives_room(op));
}

int
txn_write(struct txn *t, struct reg_tree *tree, const struct bt_op *op, struct bt_done *done)
{
    struct txns *ts = t->ts;
    struct bt_op o = *op;
    struct lock_wait lw = {.waiter = &t->waiter, .timeout_ns = t->timeout_ns};
    int rc;

    *done = (struct bt_done){0};
    rc = write_prepare(t, tree, op);
    if (rc != 0)
        return rc;
    o.txn = t->w;
    o.view = tree->id == REG_PENDING ? NULL : &t->view;
    o.durable = false;
    o.pin = &t->pin; /* W1 */
    for (;;) {
        rc = bt_write(&tree->bt, &o, done);
        rt_point();
        atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
        if (rc == COHORT_EFULL && txns_find_room(ts, &t->view))
            continue;
        if (!is_held(rc, done))
            break;
        rc = wait_for_record(ts, &lw, done); /* W2, W3 */
        if (rc != 0)
            break;
    }
    if (rc == COHORT_DEADLOCK || rc == COHORT_SNAPSHOT_TOO_OLD)
        t->doomed = rc;
    if (done->lsn != 0)
        t->logged = true;
    if (rc == 0 && op->kind == BT_LOCK)
        t->locked = true;
    t->writes++;
    return rc;
}

/* ---- alone ---- */

/* One try; the tree cannot be dropped meanwhile. */
static int
write_alone_once(struct txns *ts, struct reg_tree *tree, const struct bt_op *op,
                 struct bt_done *done)
{
    bool counted = tree->id >= REG_USER;
    int rc = before_write(ts);

    if (rc == 0)
        rc = txns_make_room(ts, NULL, gives_room(op));
    if (rc == 0 && counted)
        rc = reg_writer_begin(ts->cfg.reg, tree, 0);
    if (rc != 0)
        return rc;
    rc = bt_write(&tree->bt, op, done);
    if (counted)
        reg_writer_end(ts->cfg.reg, tree);
    return rc;
}

/* W4. The commit that the answer is about becomes visible, as it would have without us. */
static int
answer_settle(struct txns *ts, lsn_t lsn, int answer)
{
    struct ver *v = ts->cfg.ver;
    int rc = ver_horizon(v) >= lsn ? 0 : wal_flush(ts->cfg.wal, lsn);

    /* Its committer may not have queued it yet, which is the next that he does. */
    while (rc == 0 && ver_advance(v, wal_durable(ts->cfg.wal)) < lsn)
        rt_yield();
    if (rc != 0)
        ts->cfg.failed(ts->cfg.arg, rc);
    return rc != 0 ? rc : answer;
}

int
txn_write_alone(struct txns *ts, struct reg_tree *tree, const struct bt_op *op, int durability,
                struct bt_done *done)
{
    struct ver_waiter me = {0};
    struct lock_wait lw = {.waiter = &me, .timeout_ns = ts->cfg.lock_timeout_ms * 1000000};
    struct bt_op o = *op;
    int rc;

    if (durability == COHORT_DEFAULT)
        durability = ts->cfg.durability;
    o.txn = NULL;
    o.view = NULL;
    o.durable = durability == COHORT_DURABILITY_SYNC;
    *done = (struct bt_done){0};
    for (;;) {
        rc = write_alone_once(ts, tree, &o, done);
        if (rc == COHORT_EFULL && txns_find_room(ts, NULL))
            continue;
        if (!is_held(rc, done))
            break;
        rc = wait_for_record(ts, &lw, done);
        if (rc != 0)
            return rc;
    }
    if (rc == 0)
        return done->lsn != 0 ? txns_settle(ts, done->lsn, durability) : 0;
    if ((rc == COHORT_NOTFOUND || rc == COHORT_EXISTS) && done->lsn != 0)
        return answer_settle(ts, done->lsn, rc); /* W4 */
    return rc;
}

int
txns_before_write(struct txns *ts)
{
    return before_write(ts);
}

bool
txns_is_durable(const struct txns *ts, int durability)
{
    if (durability == COHORT_DEFAULT)
        durability = ts->cfg.durability;
    return durability == COHORT_DURABILITY_SYNC;
}

int
txns_settle(struct txns *ts, lsn_t lsn, int durability)
{
    int rc;

    if (durability == COHORT_DEFAULT)
        durability = ts->cfg.durability;
    atomic_fetch_add_explicit(&ts->alone, 1, memory_order_relaxed);
    rc = txns_wait_visible(ts, lsn, durability, durability == COHORT_DURABILITY_SYNC);
    if (rc != 0 && ts->cfg.failed != NULL)
        ts->cfg.failed(ts->cfg.arg, rc);
    return rc;
}
