/* spill.c - the undo tree at run time: moving before-images there, what is left of them after commits, the checkpoint's side.
 *
 * Invariants:
 *   P1  a header stands in the undo tree before the first row of its transaction, and goes with or before the last one: rows
 *       without header are garbage.
 *   P2  an entry counts as spilled once the row's record is appended: what follows in the log is not older than what it replaces
 *       (the row's page is dirty from before that record on, so the log that has it is not cut).
 *   P3  bound of what an open transaction needs of the log: pin, read first; then its oldest unspilled entry. A writer sets
 *       pin before it appends and clears it after the entry is pushed, so that one of both shows it (R3).
 *   P4  a claim's holder never waits for the log's ring (txn_internal.h), so checkpoints may wait for claims.
 *   P5  the COMMIT record of a transaction with rows is kept in the log until its header says COMMITTED or is gone.
 *   P6  a transaction that is about to commit or to end keeps what it needed of the log until it has: its commit may be refused, and
 *       the store may have its entries already.
 */
#include "txn/txn_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "btree/undo.h"
#include "buf/buf.h"

enum {
    CLAIM_WAIT_NS = 50 * 1000 * 1000, /* of a checkpoint; then it goes on without */
    REMOVE_ROWS = 256,                /* in one call */
    STEP_TRIM = 256,
    STEP_GHOSTS = 16,
    STEP_LEAVES = 16,
    MAKE_ROOM_MIN = 4096, /* unspilled bytes that are worth a spill because memory is short */
    MAKE_ROOM_MAX = 65536,
};

struct bt *
txns_undo(struct txns *ts)
{
    return reg_internal(ts->cfg.reg, REG_UNDO);
}

/* ---- waiting ---- */

/* Enough more of the log might be cut than last time for `room` to be worth a look. A checkpoint that cuts nothing writes to the log
 * itself. */
static bool
wants_room(struct txns *ts)
{
    lsn_t pin = atomic_load_explicit(&ts->recover_pin, memory_order_relaxed);
    lsn_t upto = ch_min_u64(pin, wal_end(ts->cfg.wal));

    if (ts->cfg.room == NULL || upto < ts->room_at + TXN_CREDIT_BYTES)
        return false;
    ts->room_at = upto;
    return true;
}

int
txns_poll(struct txns *ts)
{
    int rc = 0;

    if (ts->recovery != NULL && wants_room(ts))
        rc = ts->cfg.room(ts->cfg.arg);
    else if (ts->recovery == NULL && ts->cfg.before_write != NULL)
        rc = ts->cfg.before_write(ts->cfg.arg);
    return txn_no_room(rc) ? 0 : rc;
}

bool
txn_retry(struct txns *ts, unsigned *tries)
{
    if (++*tries > TXN_RETRIES)
        return false;
    if (ts->recovery != NULL)
        ts->room_at = 0; /* a look at least, if anything might be cut */
    if (txns_poll(ts) != 0)
        return false;
    rt_sleep_ns(TXN_RETRY_NS);
    return true;
}

bool
txn_retry_pinned(struct txns *ts, unsigned *tries)
{
    if (ts->recovery != NULL) /* its polls make checkpoints, nothing else */
        return txn_retry(ts, tries);
    if (++*tries > TXN_RETRIES)
        return false;
    rt_sleep_ns(TXN_RETRY_NS);
    return true;
}

int
txns_credit(struct txns *ts, enum wal_class c, struct wal_ticket *ticket)
{
    int rc = txns_poll(ts);

    return rc != 0 ? rc : wal_reserve(ts->cfg.wal, c, TXN_CREDIT_BYTES, ticket);
}

/* ---- claims ---- */

/* The start of a block: the log can be cut there wherever its records start, but not inside of one. */
static lsn_t
record_floor(lsn_t lsn)
{
    return lsn > TXN_RECORD_REACH ? (lsn - TXN_RECORD_REACH) / WAL_BLOCK * WAL_BLOCK : 0;
}

/* mx held, not busy. */
static lsn_t
entries_floor(const struct txn *t)
{
    struct ver_entry *e;
    struct ver_undo u;

    if (t->w == NULL)
        return CH_LSN_MAX;
    if (t->closed)
        return t->closed_floor; /* P6 */
    e = ver_oldest_unspilled(t->w);
    if (e == NULL)
        return CH_LSN_MAX;
    ver_entry_info(e, &u);
    return record_floor(u.lsn);
}

/* mx held, not busy. */
static void
claim_locked(struct txn *t)
{
    t->busy_floor = entries_floor(t);
    t->busy = true;
}

void
txn_claim(struct txn *t)
{
    rt_lock(&t->mx);
    while (t->busy)
        rt_wait(&t->cond, &t->mx);
    claim_locked(t);
    rt_unlock(&t->mx);
}

void
txn_unclaim(struct txn *t)
{
    rt_lock(&t->mx);
    t->busy = false;
    rt_broadcast(&t->cond);
    rt_unlock(&t->mx);
}

void
txn_close(struct txn *t)
{
    rt_lock(&t->mx);
    while (t->busy)
        rt_wait(&t->cond, &t->mx);
    t->closed_floor = entries_floor(t); /* P6 */
    t->closed = true;
    rt_unlock(&t->mx);
}

void
txn_reopen(struct txn *t)
{
    rt_lock(&t->mx);
    t->closed = false;
    rt_unlock(&t->mx);
}

/* Claims it for spilling; false: it has nothing to spill, or does not become free in time. */
static bool
claim_open(struct txn *t, uint64_t ns)
{
    uint64_t deadline = rt_now_ns() + ns;
    bool claimed = false;

    rt_lock(&t->mx);
    for (;;) {
        uint64_t now;

        if (t->w == NULL || t->closed)
            break;
        if (!t->busy) {
            claim_locked(t);
            claimed = true;
            break;
        }
        now = rt_now_ns();
        if (now >= deadline)
            break;
        (void)rt_wait_for(&t->cond, &t->mx, deadline - now);
    }
    rt_unlock(&t->mx);
    return claimed;
}

/* ---- rows ---- */

int
txn_header_write(struct txns *ts, uint64_t id, enum txn_header state, const uint8_t *gid,
                 size_t gid_bytes)
{
    uint8_t key[UNDO_KEY_BYTES], value[TXN_HEADER_BYTES + COHORT_GID_MAX] = {0};
    struct bt_op op = {
        .kind = state == TXN_HEADER_COMMITTED ? BT_UPDATE : BT_PUT,
        .key = {key, sizeof(key)},
        .value = {value, TXN_HEADER_BYTES + gid_bytes},
        .system = true,
    };
    struct bt_done done;

    CH_ASSERT(gid_bytes <= COHORT_GID_MAX);
    undo_key(id, 0, key);
    value[0] = 1;
    value[1] = (uint8_t)state;
    ch_put16(value + 2, (uint16_t)gid_bytes);
    if (gid_bytes > 0)
        memcpy(value + TXN_HEADER_BYTES, gid, gid_bytes);
    return bt_write(txns_undo(ts), &op, &done);
}

int
txns_rows_remove(struct txns *ts, uint64_t id, uint64_t first, uint64_t last, bool pinned)
{
    uint8_t from[UNDO_KEY_BYTES], to[UNDO_KEY_BYTES];
    bool more = true;
    unsigned tries = 0;
    int rc = 0;

    undo_key(id, first, from);
    undo_key(last == UINT64_MAX ? id + 1 : id, last == UINT64_MAX ? 0 : last + 1, to);
    while (rc == 0 && more) {
        if (!pinned || ts->recovery != NULL)
            rc = txns_poll(ts);
        if (rc == 0)
            rc = bt_remove_range(txns_undo(ts), (struct bt_slice){from, sizeof(from)},
                                 (struct bt_slice){to, sizeof(to)}, REMOVE_ROWS, pinned, &more);
        if (txn_no_room(rc) && (pinned ? txn_retry_pinned(ts, &tries) : txn_retry(ts, &tries)))
            rc = 0;
    }
    return rc;
}

static int
row_write(struct txn *t, const struct ver_undo *u)
{
    uint8_t key[UNDO_KEY_BYTES], value[BT_ENTRY_MAX];
    struct undo_entry e = {
        .kind = u->kind,
        .flags = u->flags,
        .tree = u->tree,
        .key = {u->key, u->key_bytes},
        .before = {u->before, u->before_bytes},
    };
    struct bt_op op = {.kind = BT_PUT, .key = {key, sizeof(key)}, .system = true};
    struct bt_done done;

    undo_key(txn_id_of(t), u->seq, key);
    op.value = (struct bt_slice){value, undo_encode(&e, value)};
    return bt_write(txns_undo(t->ts), &op, &done);
}

/* P1. A prepared one's header carries its gid. */
static int
header_ensure(struct txn *t)
{
    int state = atomic_load_explicit(&t->state, memory_order_acquire);
    bool prepared = (state == TXN_PREPARED || state == TXN_DECIDING) && !t->aborting;
    enum txn_header want = prepared ? TXN_HEADER_PREPARED : TXN_HEADER_ACTIVE;
    int rc;

    if (t->header == want)
        return 0;
    if (t->left == NULL) {
        t->left = calloc(1, sizeof(*t->left));
        if (t->left == NULL)
            return CH_FAIL(COHORT_ENOMEM, "note of spilled undo");
    }
    t->left->id = txn_id_of(t);
    rc = txn_header_write(t->ts, txn_id_of(t), want, t->gid, prepared ? t->gid_bytes : 0);
    if (rc == 0)
        t->header = want;
    return rc;
}

int
txn_spill(struct txn *t, lsn_t below, uint64_t bytes)
{
    struct ver_entry *e;
    struct ver_undo u;
    uint64_t done = 0;
    int rc = 0;

    while (rc == 0 && (e = ver_oldest_unspilled(t->w)) != NULL) {
        ver_entry_info(e, &u);
        if (record_floor(u.lsn) >= below && done >= bytes)
            break;
        rc = header_ensure(t);
        if (rc == 0)
            rc = row_write(t, &u);
        if (rc != 0)
            break;
        ver_entry_spilled(t->ts->cfg.ver, e, true); /* P2 */
        t->rows++;
        done += u.key_bytes + u.before_bytes + 1;
    }
    atomic_fetch_add_explicit(&t->ts->spilled_bytes, done, memory_order_relaxed);
    return rc;
}

int
txn_spill_all(struct txn *t)
{
    struct txns *ts = t->ts;
    unsigned tries = 0;
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        struct wal_ticket credit = {0};

        rc = txns_credit(ts, WAL_SHRINK, &credit);
        if (rc == 0) {
            txn_claim(t);
            rc = txn_spill(t, 0, TXN_SPILL_BYTES);
            more = ver_oldest_unspilled(t->w) != NULL;
            txn_unclaim(t);
        }
        wal_release(ts->cfg.wal, &credit);
        if (txn_no_room(rc) && txn_retry(ts, &tries))
            rc = 0;
    }
    return rc;
}

/* ---- what committed transactions leave ---- */

void
txns_left_add(struct txns *ts, struct txn_left *left, lsn_t pin)
{
    left->pin = pin;
    left->unread = false;
    left->busy = true;
    rt_lock(&ts->lock);
    left->next = ts->lefts;
    ts->lefts = left;
    rt_unlock(&ts->lock);
}

void
txns_left_ready(struct txns *ts, struct txn_left *left, bool unread)
{
    rt_lock(&ts->lock);
    left->busy = false;
    left->unread = left->unread || unread;
    rt_unlock(&ts->lock);
}

void
txns_left_remove(struct txns *ts, struct txn_left *left)
{
    struct txn_left **at = &ts->lefts;

    rt_lock(&ts->lock);
    while (*at != left)
        at = &(*at)->next;
    *at = left->next;
    rt_unlock(&ts->lock);
}

/* One that can be worked on: rows to be deleted, or (`pins`) a header to be written because its record starts below `below`. */
static struct txn_left *
left_take(struct txns *ts, bool pins, lsn_t below)
{
    struct txn_left *l;

    rt_lock(&ts->lock);
    for (l = ts->lefts; l != NULL; l = l->next) {
        if (!l->busy && (pins ? l->pin < below : l->unread || l->pin != CH_LSN_MAX))
            break;
    }
    if (l != NULL)
        l->busy = true;
    rt_unlock(&ts->lock);
    return l;
}

static void
left_put(struct txns *ts, struct txn_left *left, bool marked)
{
    rt_lock(&ts->lock);
    left->busy = false;
    if (marked)
        left->pin = CH_LSN_MAX;
    rt_unlock(&ts->lock);
}

/* P5 */
static int
left_mark(struct txns *ts, const struct txn_left *left)
{
    int rc = txn_header_write(ts, left->id, TXN_HEADER_COMMITTED, NULL, 0);

    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
lefts_mark_below(struct txns *ts, lsn_t below)
{
    struct txn_left *left;
    int rc = 0;

    while (rc == 0 && (left = left_take(ts, true, below)) != NULL) {
        rc = left_mark(ts, left);
        left_put(ts, left, rc == 0);
    }
    return rc;
}

/* The store says that nobody reads that transaction's rows any more. */
static void
lefts_unread(struct txns *ts)
{
    uint64_t id;

    while (ver_take_cleanup(ts->cfg.ver, &id)) {
        rt_lock(&ts->lock);
        for (struct txn_left *l = ts->lefts; l != NULL; l = l->next) {
            if (l->id == id)
                l->unread = true;
        }
        rt_unlock(&ts->lock);
    }
}

/* A bounded part of one. `unread` and `pin` are read while nobody else has it. Rows are removed only once the log does not wait for
 * that: who removes waits for the log's room (P4). */
static int
left_step(struct txns *ts, bool *did)
{
    uint8_t from[UNDO_KEY_BYTES], to[UNDO_KEY_BYTES];
    struct txn_left *left;
    bool more = true, unread;
    int rc;

    lefts_unread(ts);
    left = left_take(ts, false, 0);
    if (left == NULL)
        return 0;
    rt_lock(&ts->lock);
    unread = left->unread && left->pin == CH_LSN_MAX;
    rt_unlock(&ts->lock);
    *did = true;
    if (!unread) {
        rc = left_mark(ts, left);
        left_put(ts, left, rc == 0);
        return rc;
    }
    undo_key(left->id, 0, from);
    undo_key(left->id + 1, 0, to);
    rc = bt_remove_range(txns_undo(ts), (struct bt_slice){from, sizeof(from)},
                         (struct bt_slice){to, sizeof(to)}, REMOVE_ROWS, false, &more);
    if (rc == 0 && !more) {
        txns_left_remove(ts, left);
        free(left);
    } else {
        left_put(ts, left, false);
    }
    return rc;
}

/* ---- writers make room ---- */

/* The transaction with the most bytes to spill; NULL: nobody has any. It may end meanwhile. */
static struct txn *
largest(struct txns *ts)
{
    uint32_t n = atomic_load_explicit(&ts->slots_used, memory_order_acquire);
    struct txn *best = NULL;
    uint64_t most = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct txn *t = &ts->slots[i];
        uint64_t bytes = 0;

        if (atomic_load_explicit(&t->state, memory_order_acquire) == TXN_FREE)
            continue;
        rt_lock(&t->mx);
        if (t->w != NULL && !t->closed)
            bytes = ver_txn_unspilled_bytes(t->w);
        rt_unlock(&t->mx);
        if (bytes > most) {
            most = bytes;
            best = t;
        }
    }
    return best;
}

/* Spills about `bytes` of the transaction, a little at a time. */
static int
spill_some(struct txns *ts, struct txn *t, uint64_t bytes, bool frees)
{
    struct buf *buf = txns_undo(ts)->buf;
    unsigned tries = 0;
    uint64_t done = 0;
    int rc = frees ? buf_admit_kept(buf) : buf_admit(buf, true);

    while (rc == 0 && done < bytes) {
        struct wal_ticket credit = {0};

        rc = wal_reserve(ts->cfg.wal, frees ? WAL_SHRINK : WAL_USER, TXN_CREDIT_BYTES,
                         &credit); /* P4 */
        if (rc != 0)
            break;
        if (claim_open(t, UINT64_MAX / 4)) {
            rc = txn_spill(t, 0, TXN_SPILL_BYTES);
            txn_unclaim(t);
        } else {
            done = bytes;
        }
        wal_release(ts->cfg.wal, &credit);
        if (txn_no_room(rc) && ++tries < TXN_RETRIES) {
            rt_sleep_ns(TXN_RETRY_NS);
            rc = 0;
        } else {
            done += TXN_SPILL_BYTES;
        }
    }
    return rc;
}

/* What committed transactions have left is in the way on a full device; the sweeper may be behind. True: something went. */
static bool
lefts_clear(struct txns *ts)
{
    bool any = false, did = true;

    while (ver_trim(ts->cfg.ver, STEP_TRIM))
        rt_point();
    while (did && txns_poll(ts) == 0) { /* what is removed is logged: somebody must cut the log */
        did = false;
        if (left_step(ts, &did) != 0)
            break;
        any = any || did;
    }
    return any;
}

/* Rows are kept because somebody may read them. */
static bool
lefts_kept(struct txns *ts)
{
    bool kept = false;

    lefts_unread(ts);
    rt_lock(&ts->lock);
    for (const struct txn_left *l = ts->lefts; l != NULL && !kept; l = l->next)
        kept = !l->unread;
    rt_unlock(&ts->lock);
    return kept;
}

bool
txns_find_room(struct txns *ts, const struct ver_view *own)
{
    if (lefts_clear(ts))
        return true;
    return lefts_kept(ts) && ver_give_up(ts->cfg.ver, own) && lefts_clear(ts);
}

/* More than its bound is unspilled, or memory is short and there is something to gain. */
static bool
wants_spilling(struct txns *ts, bool memory_short)
{
    uint64_t unspilled = ver_unspilled_bytes(ts->cfg.ver);

    return unspilled > ts->cfg.undo_bytes_max || (memory_short && unspilled > MAKE_ROOM_MIN);
}

/* What memory and log hold too much of goes to the undo tree. */
static int
spill_round(struct txns *ts, struct txn *own, bool frees)
{
    bool memory_short = ver_relieve(ts->cfg.ver);
    uint64_t chunk = ch_clamp_u64(ts->cfg.undo_bytes_max / 8, MAKE_ROOM_MIN, MAKE_ROOM_MAX);
    int rc = 0;

    if (CH_LIKELY(!wants_spilling(ts, memory_short)))
        return 0;
    rt_lock(&ts->spill_lock);
    for (unsigned i = 0; rc == 0 && i < 8 && wants_spilling(ts, memory_short); i++) {
        struct txn *t = own;

        if (t == NULL || t->w == NULL || ver_txn_unspilled_bytes(t->w) < chunk)
            t = largest(ts);
        if (t == NULL)
            break;
        rc = spill_some(ts, t, chunk, frees);
        memory_short = memory_short && ver_relieve(ts->cfg.ver);
    }
    rt_unlock(&ts->spill_lock);
    return rc;
}

int
txns_make_room(struct txns *ts, struct txn *own, bool frees)
{
    int rc = spill_round(ts, own, frees);

    while (CH_UNLIKELY(rc == COHORT_EFULL) && txns_find_room(ts, own != NULL ? &own->view : NULL))
        rc = spill_round(ts, own, frees);
    if (frees && txn_no_room(rc) && ver_unspilled_bytes(ts->cfg.ver) <= ts->cfg.undo_bytes_max)
        return 0; /* memory was short; a checkpoint finds log room for so much */
    return rc;
}

/* ---- the sweeper's step ---- */

/* Purges the leaf of `key`; `key` NULL: goes on with the walk. */
static int
purge_in(struct txns *ts, struct bt *t, const struct bt_slice *key, bool *done)
{
    if (key == NULL)
        return bt_purge_walk(t, STEP_LEAVES, ts->walk_key, &ts->walk_bytes, done);
    bt_purge(t, *key);
    return 0;
}

static int
purge(struct txns *ts, uint32_t id, const struct bt_slice *key, bool *done)
{
    struct reg_tree *tree;
    struct ver_view view;
    int rc;

    if (id < REG_USER)
        return purge_in(ts, reg_internal(ts->cfg.reg, id), key, done);
    rc = ver_view_open(ts->cfg.ver, &view); /* keeps a drop from freeing pages (read.c) */
    if (rc != 0)
        return rc;
    rc = reg_get(ts->cfg.reg, id, &tree);
    if (rc == 0) {
        if (atomic_load_explicit(&tree->dropped, memory_order_acquire))
            rc = COHORT_NOTFOUND;
        else
            rc = purge_in(ts, &tree->bt, key, done);
        reg_put(ts->cfg.reg, tree);
    }
    if (ver_view_dead(ts->cfg.ver, &view))
        rc = rc != 0 ? COHORT_NOTFOUND : 0; /* whatever it met: the tree may be gone */
    ver_view_close(ts->cfg.ver, &view);
    if (rc == COHORT_NOTFOUND) {
        *done = true;
        rc = 0;
    }
    return rc;
}

/* Some leaves of a tree whose ghosts were too many to remember one by one. */
static int
walk_step(struct txns *ts, bool *did)
{
    bool done = false;
    int rc;

    if (ts->walk == 0) {
        if (!ver_take_lost(ts->cfg.ver, &ts->walk))
            return 0;
        ts->walk_bytes = 0;
    }
    rc = purge(ts, ts->walk, NULL, &done);
    if (rc == 0)
        *did = true;
    if (rc == 0 && done)
        ts->walk = 0;
    return rc;
}

int
txns_step(struct txns *ts, bool *did)
{
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes;
    uint32_t tree;
    bool done;
    int rc = 0;

    if (ver_trim(ts->cfg.ver, STEP_TRIM))
        *did = true;
    for (unsigned i = 0; rc == 0 && i < STEP_GHOSTS; i++) {
        if (!ver_take_ghost(ts->cfg.ver, &tree, key, &bytes))
            break;
        *did = true;
        rc = purge(ts, tree, &(struct bt_slice){key, bytes}, &done);
    }
    if (rc == 0)
        rc = walk_step(ts, did);
    if (rc ==
        COHORT_EBUSY) /* no slot for a view: the walk goes on next time, a ghost waits for who needs its room */
        rc = 0;
    return rc != 0 ? rc : left_step(ts, did);
}

/* ---- the checkpoint's side ---- */

/* Claimed. A prepared one's record is needed until the header says what it says. */
static int
spill_slot(struct txn *t, lsn_t below)
{
    lsn_t pin = atomic_load_explicit(&t->pin, memory_order_acquire);
    int rc = txn_spill(t, below, 0);

    if (rc == 0 && pin < below &&
        atomic_load_explicit(&t->state, memory_order_acquire) == TXN_PREPARED) {
        rc = header_ensure(t);
        if (rc == 0)
            atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
    }
    return rc;
}

int
txns_spill_below(struct txns *ts, lsn_t lsn)
{
    uint32_t n = atomic_load_explicit(&ts->slots_used, memory_order_acquire);
    int rc = lefts_mark_below(ts, lsn);

    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct txn *t = &ts->slots[i];

        if (atomic_load_explicit(&t->state, memory_order_acquire) == TXN_FREE)
            continue;
        rt_point();
        if (!claim_open(t, CLAIM_WAIT_NS))
            continue;
        rc = spill_slot(t, lsn);
        txn_unclaim(t);
    }
    return rc;
}

/* P3 */
static lsn_t
oldest_of(struct txn *t)
{
    lsn_t pin = atomic_load_explicit(&t->pin, memory_order_acquire);
    lsn_t floor;

    rt_lock(&t->mx);
    floor = t->busy ? t->busy_floor : entries_floor(t);
    rt_unlock(&t->mx);
    return ch_min_u64(pin, floor);
}

lsn_t
txns_oldest(struct txns *ts)
{
    uint32_t n = atomic_load_explicit(&ts->slots_used, memory_order_acquire);
    lsn_t oldest = atomic_load_explicit(&ts->recover_pin, memory_order_seq_cst);

    for (uint32_t i = 0; i < n; i++)
        oldest = ch_min_u64(oldest, oldest_of(&ts->slots[i]));
    rt_lock(&ts->lock);
    for (const struct txn_left *l = ts->lefts; l != NULL; l = l->next)
        oldest = ch_min_u64(oldest, l->pin);
    rt_unlock(&ts->lock);
    return oldest;
}
