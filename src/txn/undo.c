/* undo.c - undoing a transaction's entries: rollback to a savepoint, abort.
 *
 * Newest to oldest, each under a claim of its own. Before-images come from memory or, where they were given back, from
 * the undo tree.
 *
 * Invariants:
 *   U1  undo-next of each step is the seq below: recovery goes on from there (R4).
 *   U2  a row of the undo tree whose entry is undone is deleted soon after; until then the log is kept from where its undo record
 *       starts (pin). So recovery finds that record, or no row. The bound is taken for a chunk, not for the whole: however
 *       much is undone, the log can be cut.
 *   U3  log room is waited for before the claim, and never while the pin is set; under them class SYSTEM is used, which never waits
 *       for the ring. Room for deleting a chunk's rows is held from its start.
 */
#include "base/bug.h"
#include "txn/txn_internal.h"

#include <inttypes.h>

#include "btree/undo.h"
#include "buf/buf.h"

struct undo_step { /* one entry, copied: it is freed when it is undone */
    struct ver_undo u;
    struct ver_entry *e;
    bool missing;
    unsigned flags;
    size_t key_bytes, before_bytes;
    uint8_t key[COHORT_KEY_MAX];
    uint8_t before[COHORT_ENTRY_MAX];
};
struct undo_chunk {
    uint64_t lowest, highest; /* seqs of rows whose entries are undone */
    unsigned rows;
    bool pinned;
    struct wal_ticket room; /* for deleting the rows */
};

static void
copy_before(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct undo_step *s = arg;
    struct undo_entry e;

    (void)flags;
    if (undo_decode(value, bytes, &e) != 0 || e.kind != s->u.kind || e.tree != s->u.tree ||
        e.key.bytes != s->key_bytes || memcmp(e.key.data, s->key, s->key_bytes) != 0) {
        s->missing = true;
        return;
    }
    if (e.before.bytes > 0)
        memcpy(s->before, e.before.data, e.before.bytes);
    s->before_bytes = e.before.bytes;
    s->flags = e.flags;
}

/* Claimed. NOTFOUND: nothing above `seq` is left. */
static int
step_load(struct txn *t, uint64_t seq, struct undo_step *s)
{
    uint8_t key[UNDO_KEY_BYTES];
    int rc;

    s->e = ver_newest(t->w);
    if (s->e == NULL)
        return COHORT_NOTFOUND;
    ver_entry_info(s->e, &s->u);
    if (s->u.seq <= seq)
        return COHORT_NOTFOUND;
    s->missing = false;
    s->flags = s->u.flags;
    s->key_bytes = s->u.key_bytes;
    s->before_bytes = 0;
    if (s->u.key_bytes > 0)
        memcpy(s->key, s->u.key, s->u.key_bytes);
    if (s->u.kind != VER_WAS_VALUE)
        return 0;
    if (s->u.before != NULL) {
        if (s->u.before_bytes > 0)
            memcpy(s->before, s->u.before, s->u.before_bytes);
        s->before_bytes = s->u.before_bytes;
        return 0;
    }
    undo_key(txn_id_of(t), s->u.seq, key);
    rc = bt_get(txns_undo(t->ts), NULL, (struct bt_slice){key, sizeof(key)}, copy_before, s);
    if (rc == COHORT_NOTFOUND || (rc == 0 && s->missing))
        rc =
            CH_FAIL(COHORT_ECORRUPT,
                    "undo tree: entry %" PRIu64 " of transaction %" PRIu64 " is missing or damaged",
                    s->u.seq, txn_id_of(t));
    return rc;
}

/* U2: before the record is appended. */
static void
chunk_pin(struct txn *t, struct undo_chunk *c)
{
    if (c->pinned)
        return;
    c->pinned = true;
    atomic_store_explicit(&t->pin, wal_end(t->ts->cfg.wal), memory_order_seq_cst);
}

/* Claimed. */
static int
step_undo(struct txn *t, uint64_t seq, struct undo_step *s, struct undo_chunk *c)
{
    struct bt_undo_op op;
    lsn_t lsn;
    int rc = step_load(t, seq, s);

    if (rc != 0)
        return rc;
    if (s->u.spilled)
        chunk_pin(t, c);
    op = (struct bt_undo_op){
        .txn = txn_id_of(t),
        .undo_next = CH_BUG(R4_UNDO_TWICE) ? s->u.seq : s->u.seq - 1, /* U1 */
        .kind = s->u.kind,
        .flags = s->flags,
        .key = {s->key, s->key_bytes},
        .before = {s->before, s->before_bytes},
        .e = s->e,
        .system = true,
    };
    rc = bt_undo(txn_tree_of(t, s->u.tree), &op, &lsn);
    if (rc != 0 || !s->u.spilled)
        return rc;
    c->highest = c->rows == 0 ? s->u.seq : c->highest;
    c->lowest = s->u.seq;
    c->rows++;
    CH_ASSERT(t->rows > 0);
    t->rows--;
    return 0;
}

static int
chunk_end(struct txn *t, struct undo_chunk *c)
{
    int rc = 0;

    wal_release(t->ts->cfg.wal, &c->room); /* for what follows */
    if (c->rows > 0)
        rc = txns_rows_remove(t->ts, txn_id_of(t), c->lowest, c->highest, true);
    if (rc == 0 && c->pinned)
        atomic_store_explicit(&t->pin, CH_LSN_MAX, memory_order_release);
    *c = (struct undo_chunk){0};
    return rc;
}

/* Room for a step, waited for only while nothing is pinned and no other room is held: what the pin holds back is what
 * is waited for (U3), and a checkpoint may need what is held to spill this very transaction. */
static int
chunk_room(struct txn *t, struct undo_chunk *c, struct wal_ticket *credit)
{
    struct txns *ts = t->ts;
    int rc;

    if (c->pinned) {
        rc = wal_reserve(ts->cfg.wal, WAL_SYSTEM, TXN_CREDIT_BYTES, credit);
        if (!txn_no_room(rc))
            return rc;
        rc = chunk_end(t, c);
        if (rc != 0)
            return rc;
    }
    rc = c->room.bytes > 0 ? 0 : txns_credit(ts, WAL_SHRINK, &c->room);
    if (rc != 0)
        return rc;
    rc = wal_reserve(ts->cfg.wal, WAL_SYSTEM, TXN_CREDIT_BYTES, credit); /* does not wait */
    if (rc != 0)
        wal_release(ts->cfg.wal, &c->room);
    return rc;
}

/* One entry, with the waiting that it takes. */
static int
undo_one(struct txn *t, uint64_t seq, struct undo_step *s, struct undo_chunk *c)
{
    struct txns *ts = t->ts;
    unsigned tries = 0;
    bool again;
    int rc;

    do {
        struct wal_ticket credit = {0};

        rc = chunk_room(t, c, &credit); /* U3 */
        if (rc == 0) {
            txn_claim(t);
            rc = step_undo(t, seq, s, c);
            txn_unclaim(t);
        }
        wal_release(ts->cfg.wal, &credit);
        again = txn_no_room(rc);
        if (again && c->pinned) {
            int end = chunk_end(t, c);

            again = end == 0;
            rc = end != 0 ? end : rc;
        }
    } while (again && txn_retry(ts, &tries));
    return rc;
}

int
txn_undo(struct txn *t, uint64_t seq)
{
    struct undo_chunk c = {0};
    struct undo_step s;
    int rc = 0;
    int end;

    while (rc == 0) {
        rc = undo_one(t, seq, &s, &c);
        rt_point();
        if (rc == 0 && c.rows >= TXN_UNDO_CHUNK)
            rc = chunk_end(t, &c);
    }
    if (rc != COHORT_NOTFOUND) {
        wal_release(t->ts->cfg.wal, &c.room);
        return rc; /* the pin stays: rows are left */
    }
    end = chunk_end(t, &c);
    return end;
}
