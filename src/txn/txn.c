/* txn.c - the manager; begin, commit, abort, savepoints.
 *
 * Invariants:
 *   T1  a commit's record is appended between ver_commit_lock() and ver_commit_end(): commit LSNs ascend in the order in
 *       which commits become visible.
 *   T2  log room for it is reserved before any lock is taken and before the transaction is closed to spillers, from the share
 *       that users' writes cannot take: a commit waits for a checkpoint at most, never behind writers.
 *   T3  whoever spilled has `left` since its first spill, so that nothing can fail between COMMIT and the note of what is left
 *       to do; its COMMIT record is pinned before it is appended (R3).
 *   T4  the writer's registration ends after its commit is visible or its undo complete (R1), then the slot; when the log
 *       failed in between, never.
 *   T5  an aborted one's rows of the undo tree are gone, its header last, before ABORT is appended: a header in state ACTIVE without
 *       ABORT or COMMIT in the log is an unfinished transaction.
 *   T6  a transaction that only locked has nothing in the log; its end gives the locks up and logs nothing.
 */
#include "txn/txn_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"

enum {
    COMMIT_BYTES = 12,
    ABORT_BYTES = 8,
    COMMIT_SPILLED = 1, /* flag of the record */
};

/* ---- manager ---- */

static void
slot_init(struct txns *ts, struct txn *t)
{
    t->ts = ts;
    atomic_init(&t->pin, CH_LSN_MAX);
    t->closed = true;
    t->busy_floor = CH_LSN_MAX;
    rt_mutex_init(&t->mx, RT_RANK_TXN, TXN_ORDER_SLOT);
    rt_cond_init(&t->cond);
}

static struct txn *
slots_create(struct txns *ts, unsigned n)
{
    struct txn *slots = calloc(n, sizeof(*slots));

    for (unsigned i = 0; slots != NULL && i < n; i++)
        slot_init(ts, &slots[i]);
    return slots;
}

int
txns_create(const struct txns_config *cfg, struct txns **out)
{
    struct txns *ts = calloc(1, sizeof(*ts));

    CH_ASSERT(cfg->txns_max > 0 && cfg->wal != NULL);
    if (ts == NULL)
        return CH_FAIL(COHORT_ENOMEM, "transactions");
    ts->slots = slots_create(ts, cfg->txns_max);
    if (ts->slots == NULL) {
        free(ts);
        return CH_FAIL(COHORT_ENOMEM, "%u transactions", cfg->txns_max);
    }
    ts->cfg = *cfg;
    ts->prepared_end = &ts->prepared;
    atomic_init(&ts->recover_pin, CH_LSN_MAX);
    rt_mutex_init(&ts->spill_lock, RT_RANK_TXN, TXN_ORDER_SPILL);
    rt_mutex_init(&ts->lock, RT_RANK_TXN, TXN_ORDER_LOCK);
    *out = ts;
    return 0;
}

/* References that a transaction has; those of prepared and failed ones are still there when the manager goes. */
static void
references_drop(struct txn *t)
{
    for (unsigned i = 0; i < t->tree_count; i++) {
        reg_writer_end(t->ts->cfg.reg, t->trees[i]);
        reg_put(t->ts->cfg.reg, t->trees[i]);
    }
    t->tree_count = 0;
    t->last_tree = NULL;
}

static void
slot_fini(struct txn *t)
{
    references_drop(t);
    for (unsigned i = 0; i < t->note_count; i++)
        reg_put(t->ts->cfg.reg, t->notes[i].tree);
    ver_reads_destroy(t->reads);
    free(t->trees);
    free(t->savepoints);
    free(t->notes);
    free(t->left);
    rt_cond_fini(&t->cond);
    rt_mutex_fini(&t->mx);
}

int
txns_slots_raise(struct txns *ts, unsigned n)
{
    struct txn *slots = slots_create(ts, n);

    CH_ASSERT(n >= ts->cfg.txns_max);
    CH_ASSERT(atomic_load_explicit(&ts->slots_used, memory_order_relaxed) == 0);
    if (slots == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%u transactions", n);
    for (unsigned i = 0; i < ts->cfg.txns_max; i++)
        slot_fini(&ts->slots[i]);
    free(ts->slots);
    ts->slots = slots;
    ts->cfg.txns_max = n;
    return 0;
}

void
txns_destroy(struct txns *ts)
{
    struct txn_left *next;

    if (ts == NULL)
        return;
    for (unsigned i = 0; i < ts->cfg.txns_max; i++)
        slot_fini(&ts->slots[i]);
    for (struct txn_left *l = ts->lefts; l != NULL; l = next) {
        next = l->next;
        free(l);
    }
    txns_recovery_free(ts);
    rt_mutex_fini(&ts->lock);
    rt_mutex_fini(&ts->spill_lock);
    free(ts->slots);
    free(ts);
}

size_t
txns_memory(const struct txns *ts)
{
    return sizeof(*ts) + ts->cfg.txns_max * sizeof(*ts->slots);
}

struct txns *
txn_manager(const struct txn *t)
{
    return t->ts;
}

uint64_t
txn_id(const struct txn *t)
{
    return txn_id_of(t);
}

bool
txns_is_open(struct txns *ts, uint64_t id)
{
    uint32_t n = atomic_load_explicit(&ts->slots_used, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++) {
        if (atomic_load_explicit(&ts->slots[i].id, memory_order_acquire) == id)
            return true;
    }
    return false;
}

void
txns_counts(struct txns *ts, struct txns_counts *out)
{
    uint32_t n = atomic_load_explicit(&ts->slots_used, memory_order_acquire);

    *out = (struct txns_counts){
        .commits = atomic_load_explicit(&ts->alone, memory_order_relaxed),
        .spilled_bytes = atomic_load_explicit(&ts->spilled_bytes, memory_order_relaxed),
    };
    for (uint32_t i = 0; i < n; i++) {
        struct txn *t = &ts->slots[i];
        int state = atomic_load_explicit(&t->state, memory_order_relaxed);

        out->open += state == TXN_OPEN || state == TXN_PREPARING ? 1 : 0;
        out->prepared += state == TXN_PREPARED || state == TXN_DECIDING ? 1 : 0;
        out->commits += atomic_load_explicit(&t->commits, memory_order_relaxed);
        out->aborts += atomic_load_explicit(&t->aborts, memory_order_relaxed);
    }
}

void
txns_set_wait_hook(struct txns *ts,
                   void (*fn)(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder,
                              void *holder_tag),
                   void *arg)
{
    ver_set_wait_hook(ts->cfg.ver, fn, arg);
}

lsn_t
txns_async_lsn(struct txns *ts)
{
    return atomic_load_explicit(&ts->async_lsn, memory_order_relaxed);
}

int
txn_grow(void **mem, unsigned *room, unsigned count, size_t bytes)
{
    unsigned want = *room != 0 ? *room * 2 : 8;
    void *p;

    if (count < *room)
        return 0;
    p = realloc(*mem, want * bytes);
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "a transaction's list of %u", want);
    *mem = p;
    *room = want;
    return 0;
}

/* ---- slots ---- */

struct txn *
txn_slot_begin(struct txns *ts, const struct ver_view *view, uint64_t id)
{
    struct txn *t = &ts->slots[view->slot];
    uint32_t used = atomic_load_explicit(&ts->slots_used, memory_order_relaxed);

    CH_ASSERT(view->slot < ts->cfg.txns_max);
    /* Release: who sees the number sees slots that were made before. */
    while (used <= view->slot &&
           !atomic_compare_exchange_weak_explicit(&ts->slots_used, &used, view->slot + 1,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    t->view = *view;
    t->read_only = t->serializable = t->logged = t->locked = t->aborting = false;
    t->doomed = 0;
    t->tag = NULL;
    t->writes = 0;
    t->durability = ts->cfg.durability;
    t->timeout_ns = ts->cfg.lock_timeout_ms * 1000000;
    t->header = TXN_HEADER_NONE;
    t->rows = 0;
    t->gid_bytes = 0;
    t->waiter.id = id;
    t->waiter.tag = NULL;
    atomic_store_explicit(&t->waiter.canceled, false, memory_order_relaxed);
    atomic_store_explicit(&t->id, id, memory_order_release);
    atomic_store_explicit(&t->state, TXN_OPEN, memory_order_release);
    return t;
}

/* Deferred actions of src/cat, newest first: a tree that was created and dropped here is undone in that order. */
static void
notes_end(struct txn *t, unsigned keep, bool committed)
{
    struct reg *reg = t->ts->cfg.reg;

    while (t->note_count > keep) {
        struct txn_note *n = &t->notes[--t->note_count];

        if (!n->created) {
            reg_drop_end(reg, n->tree, committed);
            t->drops--;
        } else if (!committed) {
            reg_drop_end(reg, n->tree, true);
        }
        reg_put(reg, n->tree);
    }
}

/* Arrays of an unusual transaction are not kept for the next one. */
static void
memory_shrink(struct txn *t)
{
    enum {
        KEEP = 64
    };

    if (t->tree_room > KEEP) {
        free(t->trees);
        t->trees = NULL;
        t->tree_room = 0;
    }
    if (t->savepoint_room > KEEP) {
        free(t->savepoints);
        t->savepoints = NULL;
        t->savepoint_room = 0;
    }
    if (t->note_room > KEEP) {
        free(t->notes);
        t->notes = NULL;
        t->note_room = 0;
    }
}

void
txn_slot_end(struct txn *t, bool committed)
{
    struct ver *v = t->ts->cfg.ver;
    struct ver_view view = t->view;

    CH_ASSERT(t->w == NULL);
    if (CH_UNLIKELY(t->tree_count > 0 || t->note_count > 0 || t->savepoint_count > 0)) {
        references_drop(t);
        notes_end(t, 0, committed);
        t->savepoint_count = 0;
        memory_shrink(t);
    }
    if (CH_UNLIKELY(t->reads != NULL)) {
        ver_reads_destroy(t->reads);
        t->reads = NULL;
    }
    if (CH_UNLIKELY(t->gid_bytes > 0))
        txns_prepared_remove(t->ts, t);
    atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
    atomic_store_explicit(&t->state, TXN_FREE, memory_order_release);
    atomic_store_explicit(&t->id, 0, memory_order_release);
    ver_unregister(v, view.slot); /* T4 */
    ver_view_close(v, &view);     /* from here on the slot may be another's */
}

void
txn_slot_fail(struct txn *t, int rc)
{
    atomic_store_explicit(&t->state, TXN_FAILED, memory_order_release);
    ver_view_release(t->ts->cfg.ver, &t->view);
    if (t->ts->cfg.failed != NULL)
        t->ts->cfg.failed(t->ts->cfg.arg, rc);
}

int
txn_writer_begin(struct txn *t)
{
    struct ver_txn *w;
    int rc;

    if (CH_LIKELY(t->w != NULL))
        return 0;
    rc = ver_txn_create(t->ts->cfg.ver, txn_id_of(t), t->tag, t->view.slot, wal_end(t->ts->cfg.wal),
                        &w);
    if (rc != 0)
        return rc;
    if (t->savepoint_count > 0)
        ver_savepoint(w);
    rt_lock(&t->mx);
    t->w = w;
    t->closed = false;
    rt_unlock(&t->mx);
    t->view.self = w;
    return 0;
}

void
txn_writer_gone(struct txn *t)
{
    rt_lock(&t->mx);
    t->w = NULL;
    rt_unlock(&t->mx);
    t->view.self = NULL;
}

/* ---- begin ---- */

int
txn_begin(struct txns *ts, const struct txn_options *o, struct txn **out)
{
    struct ver_view view;
    struct txn *t;
    int rc = ver_view_open(ts->cfg.ver, &view);

    if (rc != 0)
        return rc;
    t = txn_slot_begin(ts, &view, ver_new_id(ts->cfg.ver));
    t->read_only = o->read_only;
    t->serializable = o->serializable;
    t->tag = t->waiter.tag = o->tag;
    if (o->durability != COHORT_DEFAULT)
        t->durability = o->durability;
    if (o->lock_timeout_ms != COHORT_DEFAULT)
        t->timeout_ns = (uint64_t)o->lock_timeout_ms * 1000000;
    *out = t;
    return 0;
}

void
txn_cancel(struct txn *t)
{
    ver_cancel(t->ts->cfg.ver, &t->waiter);
}

int
txn_refresh(struct txn *t)
{
    if (t->serializable)
        return CH_FAIL(COHORT_ETXN, "transaction %" PRIu64 ": a serializable one has one snapshot",
                       txn_id_of(t));
    ver_view_refresh(t->ts->cfg.ver, &t->view);
    t->writes++; /* cursors read anew */
    return 0;
}

/* ---- commit ---- */

int
txns_wait_visible(struct txns *ts, lsn_t lsn, int durability, bool durable)
{
    struct ver *v = ts->cfg.ver;
    lsn_t seen = atomic_load_explicit(&ts->async_lsn, memory_order_relaxed);
    int rc = 0;

    if (durability == COHORT_DURABILITY_ASYNC) {
        while (seen < lsn &&
               !atomic_compare_exchange_weak_explicit(&ts->async_lsn, &seen, lsn,
                                                      memory_order_relaxed, memory_order_relaxed))
            continue;
    }
    if (durable)
        rc = wal_flush(ts->cfg.wal, lsn);
    if (rc != 0 || ver_horizon(v) >= lsn)
        return rc;
    rt_point();
    /* One that asked for less waits for durable ones before it. */
    if (ver_advance(v, wal_durable(ts->cfg.wal)) >= lsn)
        return 0;
    rc = wal_flush(ts->cfg.wal, lsn);
    if (rc == 0) {
        lsn_t horizon = ver_advance(v, wal_durable(ts->cfg.wal));

        CH_ASSERT(horizon >= lsn);
    }
    return rc;
}

static int
fail_too_old(const struct txn *t)
{
    return CH_FAIL(COHORT_SNAPSHOT_TOO_OLD, "transaction %" PRIu64 ": its snapshot was given up",
                   txn_id_of(t));
}

/* The dead must not commit (R15). */
int
txn_may_commit(struct txn *t, lsn_t *upto)
{
    struct ver *v = t->ts->cfg.ver;

    if (ver_view_dead(v, &t->view))
        return fail_too_old(t);
    if (t->serializable && t->reads != NULL) {
        int rc = ver_validate(v, &t->view, t->reads, true, upto);

        if (rc != 0)
            return rc;
    }
    return ver_guarded(v, t->w, NULL);
}

/* T1. The descriptor is the store's afterwards. */
static int
commit_record(struct txn *t, bool validate, bool durable, struct wal_ticket *ticket, lsn_t *lsn)
{
    struct txns *ts = t->ts;
    uint8_t payload[COMMIT_BYTES];
    struct wal_part part = {payload, sizeof(payload)};
    lsn_t upto = 0;
    int rc = 0;

    if (validate && t->serializable && t->reads != NULL)
        rc = ver_validate(ts->cfg.ver, &t->view, t->reads, false, &upto);
    if (rc != 0)
        return rc;
    ch_put64(payload, txn_id_of(t));
    ch_put32(payload + 8, t->header != TXN_HEADER_NONE ? COMMIT_SPILLED : 0);
    rt_point();
    ver_commit_lock(ts->cfg.ver);
    if (validate)
        rc = txn_may_commit(t, &upto);
    if (rc != 0) {
        ver_commit_unlock(ts->cfg.ver);
        return rc;
    }
    *lsn = wal_append(ts->cfg.wal, ticket, TXN_RECORD_COMMIT, CH_WAL, &part, 1);
    ver_view_release(ts->cfg.ver,
                     &t->view); /* it reads no more: its entries need not stay for it */
    ver_commit_end(ts->cfg.ver, t->w, *lsn, durable);
    return 0;
}

int
txn_commit_writer(struct txn *t, bool validate, bool durable, lsn_t *lsn, bool *committed)
{
    struct txns *ts = t->ts;
    struct wal_ticket ticket = {.once = true};
    lsn_t pin = CH_LSN_MAX;
    lsn_t held;                     /* of a prepared one: its record's */
    int rc = txns_before_write(ts); /* the handle may have failed since its last write */

    *committed = false;
    if (rc == 0) /* T2 */
        rc = wal_reserve(ts->cfg.wal, WAL_SHRINK, WAL_RECORD_HEADER + COMMIT_BYTES, &ticket);
    if (rc != 0)
        return rc;
    txn_close(t);
    held = atomic_load_explicit(&t->pin, memory_order_relaxed);
    if (t->header != TXN_HEADER_NONE) { /* T3 */
        pin = wal_end(ts->cfg.wal);
        atomic_store_explicit(&t->pin, ch_min_u64(held, pin), memory_order_seq_cst);
    }
    if (t->left != NULL)
        txns_left_add(ts, t->left, pin);
    rc = commit_record(t, validate, durable, &ticket, lsn);
    wal_release(ts->cfg.wal, &ticket);
    if (rc != 0) {
        if (t->left != NULL)
            txns_left_remove(ts, t->left);
        atomic_store_explicit(&t->pin, held, memory_order_release);
        txn_reopen(t);
        return rc;
    }
    *committed = true;
    txn_writer_gone(t);
    if (t->left != NULL)
        txns_left_ready(ts, t->left, t->rows == 0);
    t->left = NULL;
    atomic_fetch_add_explicit(&t->commits, 1, memory_order_relaxed);
    rc = txns_wait_visible(ts, *lsn, t->durability, durable);
    if (rc != 0)
        txn_slot_fail(t, rc);
    else
        txn_slot_end(t, true);
    return rc;
}

static int
fail_doomed(const struct txn *t)
{
    return CH_FAIL(t->doomed, "transaction %" PRIu64 ": a write of it has failed, it is undone",
                   txn_id_of(t));
}

int
txn_commit(struct txn *t, bool visible_only, lsn_t *lsn)
{
    bool durable = t->durability == COHORT_DURABILITY_SYNC && !visible_only;
    bool committed = false;
    lsn_t at = t->view.horizon; /* durable when what it has seen is */
    int rc = t->doomed;
    int undo;

    if (CH_LIKELY(t->w == NULL && rc == 0)) {
        txn_slot_end(t, true);
    } else if (rc == 0 && !t->logged) {
        rc = txn_abort_writer(t); /* T6 */
    } else {
        rc = rc != 0 ? fail_doomed(t) : txn_commit_writer(t, true, durable, &at, &committed);
        if (!committed) {
            CH_ASSERT(rc != 0);
            undo = txn_abort(t);
            if (undo != 0)
                ch_log(COHORT_LOG_ERROR, "undo after a failed commit: %s", cohort_strerror(undo));
        }
    }
    if (lsn != NULL && rc == 0)
        *lsn = at;
    return rc;
}

/* ---- abort ---- */

/* T5. Its absence costs the next recovery a look, nothing else: no room is no error. */
static int
abort_record(struct txn *t)
{
    struct txns *ts = t->ts;
    uint8_t payload[ABORT_BYTES];
    struct wal_part part = {payload, sizeof(payload)};
    struct wal_ticket ticket = {.once = true};
    int rc = wal_reserve(ts->cfg.wal, WAL_SHRINK, WAL_RECORD_HEADER + ABORT_BYTES, &ticket);

    if (rc != 0)
        return txn_no_room(rc) ? 0 : rc;
    ch_put64(payload, txn_id_of(t));
    (void)wal_append(ts->cfg.wal, &ticket, TXN_RECORD_ABORT, CH_WAL, &part, 1);
    wal_release(ts->cfg.wal, &ticket);
    return 0;
}

int
txn_abort_writer(struct txn *t)
{
    struct txns *ts = t->ts;
    bool logged = t->logged;
    int rc = txn_undo(t, 0);

    if (rc == 0) {
        txn_close(t);
        if (t->header != TXN_HEADER_NONE)
            rc = txns_rows_remove(ts, txn_id_of(t), 0, UINT64_MAX, false); /* T5 */
    }
    if (rc == 0 && logged)
        rc = abort_record(t);
    if (rc != 0) {
        txn_slot_fail(t, rc);
        return rc;
    }
    free(t->left);
    t->left = NULL;
    ver_abort_end(ts->cfg.ver, t->w);
    txn_writer_gone(t);
    if (logged)
        atomic_fetch_add_explicit(&t->aborts, 1, memory_order_relaxed);
    txn_slot_end(t, false);
    return 0;
}

int
txn_abort(struct txn *t)
{
    if (t->w != NULL)
        return txn_abort_writer(t);
    txn_slot_end(t, false);
    return 0;
}

/* ---- savepoints ---- */

/* Its index; savepoint_count when it is gone. */
static unsigned
savepoint_find(const struct txn *t, uint64_t id)
{
    unsigned lo = 0, hi = t->savepoint_count;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (t->savepoints[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->savepoint_count && t->savepoints[lo].id == id ? lo : t->savepoint_count;
}

static int
fail_savepoint(const struct txn *t, uint64_t sp)
{
    return CH_FAIL(COHORT_ETXN, "transaction %" PRIu64 ": savepoint %" PRIu64 " is gone",
                   txn_id_of(t), sp);
}

int
txn_savepoint(struct txn *t, uint64_t *sp)
{
    void *mem = t->savepoints;
    int rc = txn_grow(&mem, &t->savepoint_room, t->savepoint_count, sizeof(*t->savepoints));

    t->savepoints = mem;
    if (rc != 0)
        return rc;
    *sp = ++t->savepoint_next;
    t->savepoints[t->savepoint_count++] = (struct txn_savepoint){
        .id = *sp,
        .seq = t->w != NULL ? ver_txn_seq(t->w) : 0,
        .notes = t->note_count,
    };
    if (t->w != NULL)
        ver_savepoint(t->w);
    return 0;
}

int
txn_rollback_to(struct txn *t, uint64_t sp)
{
    unsigned i = savepoint_find(t, sp);
    int rc = 0;

    if (i == t->savepoint_count)
        return fail_savepoint(t, sp);
    if (t->w != NULL) {
        rc = txn_undo(t, t->savepoints[i].seq);
        t->writes++;
        ver_wake(t->ts->cfg.ver, t->w);
    }
    if (rc != 0) {
        /* Part of it is undone; an abort, or the next opening, undoes the rest. */
        t->doomed = COHORT_ETXN;
        if (t->ts->cfg.failed != NULL)
            t->ts->cfg.failed(t->ts->cfg.arg, rc);
        return rc;
    }
    notes_end(t, t->savepoints[i].notes, false);
    t->savepoint_count = i + 1;
    t->doomed = 0;
    return 0;
}

int
txn_release(struct txn *t, uint64_t sp)
{
    unsigned i = savepoint_find(t, sp);

    if (i == t->savepoint_count)
        return fail_savepoint(t, sp);
    t->savepoint_count = i;
    return 0;
}

/* ---- what src/cat does to trees ---- */

void
txn_doom(struct txn *t)
{
    if (t->doomed == 0)
        t->doomed = COHORT_ETXN;
}

static int
note_add(struct txn *t, struct reg_tree *tree, bool created)
{
    void *mem = t->notes;
    int rc = txn_grow(&mem, &t->note_room, t->note_count, sizeof(*t->notes));

    t->notes = mem;
    if (rc != 0)
        return rc;
    reg_ref(t->ts->cfg.reg, tree);
    t->notes[t->note_count++] = (struct txn_note){.tree = tree, .created = created};
    return 0;
}

int
txn_note_created(struct txn *t, struct reg_tree *tree)
{
    return note_add(t, tree, true);
}

int
txn_note_dropped(struct txn *t, struct reg_tree *tree)
{
    int rc;

    CH_ASSERT(t->w != NULL);                            /* its name is gone already */
    rc = ver_txn_whole(t->ts->cfg.ver, t->w, tree->id); /* who has read in it conflicts */
    if (rc == 0)
        rc = note_add(t, tree, false);
    if (rc == 0)
        t->drops++;
    return rc;
}
