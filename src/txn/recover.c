/* recover.c - what became of the transactions in the log: losers are undone, prepared ones restored.
 *
 *   note      each record of pass 1: a table of transactions by id; ended ones leave it
 *   headers   of the undo tree, after redo: transactions that the log does not mention any more, and garbage; then headers and rows
 *             are made to say what the log says
 *   collect   each WRITE record again: what is to be undone, or still may be, goes to the undo tree unless it is there
 *   finish    everything from the undo tree: prepared ones restored, losers undone
 *
 * Which entries of a transaction are alive? Seqs ascend in the log; UNDO(n) kills those above n that were there. So the living ones
 * are intervals: a WRITE extends the last one, or begins another after an UNDO. The log begins somewhere: of what
 * is below its first record of a transaction all rows are alive, since rows go before their undo records are cut (undo.c U2).
 * All rows of a prepared one are alive, entries that only lock among them; those of a loser need no undo.
 *
 * Invariants:
 *   V1  everything here may happen again from the start: rows are inserted if missing, undo steps are logged with undo-next, and
 *       nothing of the log that is read here is cut before it is in the undo tree (recover_pin).
 *   V2  before recover_pin moves, each unfinished transaction with rows has its header, and each prepared one, state and gid included;
 *       rows are those of living entries; what ended has no rows. So nothing but WRITE records that are not collected
 *       yet depends on the old log.
 *   V3  losers are undone newest first, a chunk at a time: undo records, then deletion of the rows, the log being kept from the first of
 *       them on meanwhile. The header goes last, then ABORT is logged (txn.c T5).
 *   V4  prepared ones are restored before losers are undone.
 *   V5  there is no other user, so nothing here waits for locks; log room is of class SYSTEM, and cfg.room makes more. What is needed
 *       before recover_pin first moves is little, and kept for recovery (wal.h). A loser's chunk ends when there is
 *       no room for its next row; room for deleting its rows is held from its start.
 *
 * Memory: one table entry for each transaction that is unfinished at some moment of pass 1.
 */
#include "base/bug.h"
#include "txn/txn_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "btree/undo.h"

enum {
    BUCKETS = 1024,
    LOSER_CHUNK = 16,
    SPARE_SLOTS = 16, /* besides those of prepared ones */
    ABORT_BYTES = 8,
    COMMIT_BYTES = 12,
    PREPARE_HEAD = 9,
    COMMIT_SPILLED = 1,
};
enum rec_state {
    REC_OPEN,
    REC_PREPARED,
    REC_ENDED, /* its rows are garbage */
};
struct interval {
    uint64_t low, high;
};
struct rec {
    struct rec *next; /* bucket */
    uint64_t id;
    enum rec_state state;
    enum txn_header header; /* in the undo tree now */
    bool in_log;            /* living ones are known: below; else all rows are */
    bool after_undo;        /* the next WRITE begins an interval */
    uint8_t gid_bytes;
    unsigned count, room;
    struct interval *alive; /* ascending */
    uint8_t gid[];          /* COHORT_GID_MAX bytes */
};
struct txn_recovery {
    struct rec *buckets[BUCKETS];
    uint64_t max_id, losers, prepared;
};

/* ---- table ---- */

static struct rec **
rec_at(struct txn_recovery *r, uint64_t id)
{
    struct rec **at = &r->buckets[id % BUCKETS];

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void
rec_free(struct rec *rec)
{
    free(rec->alive);
    free(rec);
}

static void
rec_remove(struct txn_recovery *r, uint64_t id)
{
    struct rec **at = rec_at(r, id);
    struct rec *rec = *at;

    if (rec != NULL) {
        *at = rec->next;
        rec_free(rec);
    }
}

/* The one there is, or a new one. NULL: no memory. */
static struct rec *
rec_get(struct txn_recovery *r, uint64_t id, bool *fresh)
{
    struct rec **at = rec_at(r, id);

    *fresh = *at == NULL;
    if (*at == NULL) {
        *at = calloc(1, sizeof(**at) + COHORT_GID_MAX);
        if (*at != NULL)
            (*at)->id = id;
    }
    r->max_id = ch_max_u64(r->max_id, id);
    return *at;
}

void
txns_recovery_free(struct txns *ts)
{
    struct rec *next;

    if (ts->recovery == NULL)
        return;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct rec *rec = ts->recovery->buckets[i]; rec != NULL; rec = next) {
            next = rec->next;
            rec_free(rec);
        }
    }
    free(ts->recovery);
    ts->recovery = NULL;
}

static int
recovery_ensure(struct txns *ts)
{
    if (ts->recovery != NULL)
        return 0;
    ts->recovery = calloc(1, sizeof(*ts->recovery));
    if (ts->recovery == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    atomic_store_explicit(&ts->recover_pin, 0, memory_order_seq_cst); /* V1 */
    return 0;
}

/* Calls visit for every entry, in order of ids modulo BUCKETS: a function of the log. */
static int
each(struct txns *ts, int (*visit)(struct txns *ts, struct rec *rec))
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < BUCKETS; i++) {
        for (struct rec *rec = ts->recovery->buckets[i]; rc == 0 && rec != NULL; rec = rec->next)
            rc = visit(ts, rec);
    }
    return rc;
}

/* ---- who is alive ---- */

static int
alive_push(struct rec *rec, uint64_t low, uint64_t high)
{
    void *mem = rec->alive;
    int rc = txn_grow(&mem, &rec->room, rec->count, sizeof(*rec->alive));

    rec->alive = mem;
    if (rc == 0)
        rec->alive[rec->count++] = (struct interval){low, high};
    return rc;
}

static int
alive_write(struct rec *rec, uint64_t seq)
{
    int rc = 0;

    if (!rec->in_log)
        rc = alive_push(rec, 0, seq);
    else if (rec->after_undo || rec->count == 0)
        rc = alive_push(rec, seq, seq);
    else
        rec->alive[rec->count - 1].high = seq;
    rec->in_log = true;
    rec->after_undo = false;
    return rc;
}

static int
alive_undo(struct rec *rec, uint64_t next)
{
    int rc = 0;

    if (!rec->in_log)
        rc = alive_push(rec, 0, next);
    while (rec->count > 0 && rec->alive[rec->count - 1].low > next)
        rec->count--;
    if (rec->count > 0)
        rec->alive[rec->count - 1].high = ch_min_u64(rec->alive[rec->count - 1].high, next);
    rec->in_log = true;
    rec->after_undo = true;
    return rc;
}

static bool
is_alive(const struct rec *rec, uint64_t seq)
{
    unsigned lo = 0, hi = rec->count;

    if (!rec->in_log)
        return true;
    while (lo < hi) { /* the first interval that ends at or above seq */
        unsigned mid = (lo + hi) / 2;

        if (rec->alive[mid].high < seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < rec->count && rec->alive[lo].low <= seq;
}

/* ---- pass 1 ---- */

static int
note_change(struct txn_recovery *r, uint8_t type, const uint8_t *data, uint32_t bytes)
{
    struct bt_logged l;
    struct rec *rec;
    bool fresh;
    int rc = bt_record_read(type, data, bytes, &l);

    if (rc != 0)
        return rc;
    rec = rec_get(r, l.txn, &fresh);
    if (rec == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    if (type == BT_RECORD_UNDO) {
        rec->state = REC_OPEN; /* prepared.c D5 */
        return alive_undo(rec, l.seq);
    }
    return l.seq != 0 && l.kind != 0 ? alive_write(rec, l.seq) : 0;
}

static int
fail_record(uint8_t type, lsn_t start, uint32_t bytes)
{
    return CH_FAIL(COHORT_ELOG, "log: record of type %u at LSN %" PRIu64 ": %" PRIu32 " bytes",
                   type, start, bytes);
}

static int
note_commit(struct txn_recovery *r, uint64_t id, uint32_t flags)
{
    struct rec *rec;
    bool fresh;

    r->max_id = ch_max_u64(r->max_id, id);
    if ((flags & COMMIT_SPILLED) == 0) {
        rec_remove(r, id);
        return 0;
    }
    rec = rec_get(r, id, &fresh);
    if (rec == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    rec->state = REC_ENDED;
    free(rec->alive);
    rec->alive = NULL;
    rec->count = rec->room = 0;
    return 0;
}

static int
note_prepare(struct txn_recovery *r, uint64_t id, const uint8_t *gid, uint8_t gid_bytes)
{
    bool fresh;
    struct rec *rec = rec_get(r, id, &fresh);

    if (rec == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    rec->state = REC_PREPARED;
    rec->gid_bytes = gid_bytes;
    memcpy(rec->gid, gid, gid_bytes);
    return 0;
}

int
txns_recover_note(struct txns *ts, uint8_t type, lsn_t start, const uint8_t *data, uint32_t bytes)
{
    struct txn_recovery *r;
    int rc = recovery_ensure(ts);

    if (rc != 0)
        return rc;
    r = ts->recovery;
    if (type == BT_RECORD_WRITE || type == BT_RECORD_UNDO)
        return note_change(r, type, data, bytes);
    if (type == TXN_RECORD_COMMIT && bytes == COMMIT_BYTES && ch_get32(data + 8) <= COMMIT_SPILLED)
        return note_commit(r, ch_get64(data), ch_get32(data + 8));
    if (type == TXN_RECORD_ABORT && bytes == ABORT_BYTES) {
        r->max_id = ch_max_u64(r->max_id, ch_get64(data));
        rec_remove(r, ch_get64(data));
        return 0;
    }
    if (type == TXN_RECORD_PREPARE && bytes > PREPARE_HEAD && data[8] <= COHORT_GID_MAX &&
        bytes == PREPARE_HEAD + (uint32_t)data[8])
        return note_prepare(r, ch_get64(data), data + PREPARE_HEAD, data[8]);
    return fail_record(type, start, bytes);
}

uint64_t
txns_recover_max_id(const struct txns *ts)
{
    return ts->recovery != NULL ? ts->recovery->max_id : 0;
}

/* ---- headers ---- */

static uint64_t
get64_big(const uint8_t *p)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

/* The entry that the cursor stands at. */
static int
row_at(struct bt_cursor *c, uint64_t *id, uint64_t *seq, struct bt_slice *value)
{
    struct bt_slice key;
    unsigned flags;

    if (!bt_entry(c, &key, value, &flags) || key.bytes != UNDO_KEY_BYTES)
        return CH_FAIL(COHORT_ECORRUPT, "undo tree: malformed key");
    *id = get64_big(key.data);
    *seq = get64_big((const uint8_t *)key.data + 8);
    return 0;
}

static int
header_read(struct txn_recovery *r, uint64_t id, struct bt_slice value)
{
    const uint8_t *p = value.data;
    bool fresh;
    struct rec *rec;

    if (value.bytes < TXN_HEADER_BYTES || p[0] != 1 || p[1] < TXN_HEADER_ACTIVE ||
        p[1] > TXN_HEADER_COMMITTED || ch_get16(p + 2) > COHORT_GID_MAX ||
        value.bytes != TXN_HEADER_BYTES + (size_t)ch_get16(p + 2) ||
        (p[1] == TXN_HEADER_PREPARED) != (ch_get16(p + 2) > 0))
        return CH_FAIL(COHORT_ECORRUPT, "undo tree: malformed header of transaction %" PRIu64, id);
    rec = rec_get(r, id, &fresh);
    if (rec == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    rec->header = (enum txn_header)p[1];
    if (p[1] == TXN_HEADER_COMMITTED) {
        rec->state = REC_ENDED;
    } else if (fresh && p[1] == TXN_HEADER_PREPARED) {
        rec->state = REC_PREPARED;
        rec->gid_bytes = (uint8_t)ch_get16(p + 2);
        memcpy(rec->gid, p + TXN_HEADER_BYTES, rec->gid_bytes);
    }
    return 0;
}

/* Rows without a header are what a deletion left (spill.c P1). */
static int
garbage_note(struct txn_recovery *r, uint64_t id)
{
    bool fresh;
    struct rec *rec = rec_get(r, id, &fresh);

    if (rec == NULL)
        return CH_FAIL(COHORT_ENOMEM, "table of transactions");
    if (fresh)
        rec->state = REC_ENDED;
    /* One that is in the log, too, will get a header; rows that are there already are its own. */
    rec->header = rec->state == REC_ENDED ? TXN_HEADER_COMMITTED : rec->header;
    return 0;
}

/* ---- writing to the undo tree (V5) ---- */

static int
undo_tree_write(struct txns *ts, const struct bt_op *op)
{
    struct bt_done done;
    unsigned tries = 0;
    int rc;

    do {
        rc = bt_write(txns_undo(ts), op, &done);
    } while (txn_no_room(rc) && txn_retry(ts, &tries));
    return rc;
}

static int
rec_header(struct txns *ts, struct rec *rec, enum txn_header state)
{
    bool prepared = state == TXN_HEADER_PREPARED;
    unsigned tries = 0;
    int rc;

    do {
        rc = txn_header_write(ts, rec->id, state, rec->gid, prepared ? rec->gid_bytes : 0);
    } while (txn_no_room(rc) && txn_retry(ts, &tries));
    if (rc == 0)
        rec->header = state;
    return rc;
}

/* ---- after the headers ---- */

/* V2 */
static int
settle(struct txns *ts, struct rec *rec)
{
    uint64_t after = 0; /* all rows up to here are settled; the header is row 0 */
    int rc = 0;

    if (rec->state == REC_ENDED) {
        /* Its rows go once the log may be cut, which then must not make it look unfinished. */
        if (rec->header != TXN_HEADER_NONE && rec->header != TXN_HEADER_COMMITTED)
            rc = rec_header(ts, rec, TXN_HEADER_COMMITTED);
        return rc;
    }
    if (rec->state == REC_PREPARED && rec->header != TXN_HEADER_PREPARED)
        rc = rec_header(ts, rec, TXN_HEADER_PREPARED);
    else if (rec->state == REC_OPEN && rec->header == TXN_HEADER_PREPARED)
        rc = rec_header(ts, rec, TXN_HEADER_ACTIVE);
    /* Before PREPARE all that was rolled back had lost its rows; and locks, which the log does not know, are rows of it. */
    if (rc != 0 || rec->state == REC_PREPARED || rec->header == TXN_HEADER_NONE || !rec->in_log)
        return rc;
    for (unsigned i = 0; rc == 0 && i < rec->count; i++) {
        if (rec->alive[i].low > after + 1)
            rc = txns_rows_remove(ts, rec->id, after + 1, rec->alive[i].low - 1, true);
        after = ch_max_u64(after, rec->alive[i].high);
    }
    return rc != 0 ? rc : txns_rows_remove(ts, rec->id, after + 1, UINT64_MAX - 1, true);
}

int
txns_recover_headers(struct txns *ts)
{
    uint8_t key[UNDO_KEY_BYTES];
    struct bt_slice value;
    struct bt_cursor *c = NULL;
    uint64_t id, seq;
    int rc = recovery_ensure(ts);

    if (rc == 0)
        rc = bt_cursor_create(txns_undo(ts), &c);
    if (rc != 0)
        return rc;
    bt_cursor_view(c, NULL, NULL);
    rc = bt_seek(c, BT_FIRST, (struct bt_slice){NULL, 0});
    while (rc == 0) {
        rc = row_at(c, &id, &seq, &value);
        if (rc == 0)
            rc = seq == 0 ? header_read(ts->recovery, id, value) : garbage_note(ts->recovery, id);
        if (rc == 0) { /* one look a transaction */
            undo_key(id + 1, 0, key);
            rc = bt_seek(c, BT_GE, (struct bt_slice){key, sizeof(key)});
        }
    }
    bt_cursor_destroy(c);
    if (rc == COHORT_NOTFOUND)
        rc = 0;
    ver_raise_id(ts->cfg.ver, ts->recovery->max_id);
    return rc == 0 ? each(ts, settle) : rc;
}

/* ---- collect ---- */

static int
collect_row(struct txns *ts, struct rec *rec, const struct bt_logged *l)
{
    uint8_t key[UNDO_KEY_BYTES], value[BT_ENTRY_MAX];
    struct undo_entry e = {
        .kind = l->kind, .flags = l->flags, .tree = l->tree, .key = l->key, .before = l->before};
    struct bt_op op = {.kind = BT_INSERT, .key = {key, sizeof(key)}, .system = true};
    int rc = 0;

    if (rec->header == TXN_HEADER_NONE) /* spill.c P1 */
        rc = rec_header(ts, rec,
                        rec->state == REC_PREPARED ? TXN_HEADER_PREPARED : TXN_HEADER_ACTIVE);
    if (rc != 0)
        return rc;
    undo_key(rec->id, l->seq, key);
    op.value = (struct bt_slice){value, undo_encode(&e, value)};
    rc = undo_tree_write(ts, &op);
    return rc == COHORT_EXISTS ? 0 : rc;
}

int
txns_recover_collect(struct txns *ts, lsn_t start, const uint8_t *data, uint32_t bytes)
{
    struct bt_logged l;
    struct rec *rec;
    int rc = bt_record_read(BT_RECORD_WRITE, data, bytes, &l);

    if (rc != 0)
        return rc;
    rec = *rec_at(ts->recovery, l.txn);
    if (rec != NULL && rec->state != REC_ENDED && l.seq != 0 && l.kind != 0 &&
        is_alive(rec, l.seq)) {
        rc = txns_poll(ts);
        if (rc == 0)
            rc = collect_row(ts, rec, &l);
    }
    if (rc == 0) /* V1: what is needed of what stands before is in the undo tree */
        atomic_store_explicit(&ts->recover_pin, start, memory_order_seq_cst);
    return rc;
}

/* ---- finish ---- */

/* The bt of a tree that recovery undoes in, kept from row to row. */
struct tree_ref {
    struct reg_tree *tree;
};

static void
tree_put(struct txns *ts, struct tree_ref *ref)
{
    if (ref->tree != NULL)
        reg_put(ts->cfg.reg, ref->tree);
    ref->tree = NULL;
}

static int
tree_get(struct txns *ts, struct tree_ref *ref, uint32_t id)
{
    int rc;

    if (ref->tree != NULL && ref->tree->id == id)
        return 0;
    tree_put(ts, ref);
    rc = reg_get(ts->cfg.reg, id, &ref->tree);
    if (rc == COHORT_NOTFOUND)
        rc = CH_FAIL(COHORT_ECORRUPT,
                     "undo tree: an entry of tree %" PRIu32 ", which does not exist", id);
    return rc;
}

/* ---- prepared ones ---- */

static int
restore_row(struct txns *ts, struct txn *t, uint64_t seq, struct bt_slice value)
{
    struct tree_ref ref = {NULL};
    struct undo_entry e;
    struct ver_key key;
    int rc = undo_decode(value.data, value.bytes, &e);

    if (rc == 0 && e.tree >= REG_USER) {
        rc = tree_get(ts, &ref, e.tree);
        if (rc == 0)
            rc = txn_tree_note(t, ref.tree);
        tree_put(ts, &ref);
    }
    if (rc != 0)
        return rc;
    key = (struct ver_key){.tree = e.tree, .bytes = e.key.bytes, .data = e.key.data};
    rc = ver_entry_restore(ts->cfg.ver, t->w, key, (enum ver_kind)e.kind, seq);
    if (rc != 0)
        return rc;
    ver_note_sizes(ts->cfg.ver, t->w, e.before.bytes, 0); /* what is there now is not known */
    t->rows++;
    return 0;
}

static int
restore_rows(struct txns *ts, struct txn *t)
{
    uint8_t probe[UNDO_KEY_BYTES];
    struct bt_slice value;
    struct bt_cursor *c;
    uint64_t id, seq;
    int rc = bt_cursor_create(txns_undo(ts), &c);

    if (rc != 0)
        return rc;
    bt_cursor_view(c, NULL, NULL);
    undo_key(txn_id_of(t), 1, probe);
    rc = bt_seek(c, BT_GE, (struct bt_slice){probe, sizeof(probe)});
    while (rc == 0) {
        rc = row_at(c, &id, &seq, &value);
        if (rc != 0 || id != txn_id_of(t))
            break;
        rc = restore_row(ts, t, seq, value);
        if (rc == 0)
            rc = bt_next(c);
    }
    bt_cursor_destroy(c);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
restore(struct txns *ts, struct rec *rec)
{
    struct ver_view view;
    struct txn *t;
    int rc;

    if (rec->state != REC_PREPARED)
        return 0;
    rc = ver_view_open(ts->cfg.ver, &view);
    if (rc != 0)
        return rc;
    t = txn_slot_begin(ts, &view, rec->id);
    ver_view_release(ts->cfg.ver, &t->view);
    t->left = calloc(1, sizeof(*t->left));
    if (t->left == NULL)
        return CH_FAIL(COHORT_ENOMEM, "note of spilled undo");
    t->left->id = rec->id;
    rc = ver_txn_create(ts->cfg.ver, rec->id, NULL, view.slot, 0, &t->w);
    if (rc == 0)
        rc = ver_prepare(ts->cfg.ver, t->w, NULL);
    if (rc != 0)
        return rc;
    t->closed = false;
    t->view.self = t->w;
    t->logged = true;
    t->header = TXN_HEADER_PREPARED;
    t->gid_bytes = rec->gid_bytes;
    memcpy(t->gid, rec->gid, rec->gid_bytes);
    atomic_store_explicit(&t->state, TXN_PREPARED, memory_order_release);
    rt_lock(&ts->lock);
    txns_prepared_add(ts, t);
    rt_unlock(&ts->lock);
    return CH_BUG(R12_NO_LOCKS) ? 0 : restore_rows(ts, t);
}

/* ---- losers ---- */

struct loser { /* one, while it is undone */
    struct txns *ts;
    struct bt_cursor *c;
    struct tree_ref ref;
    uint64_t id;
    uint64_t lowest, highest; /* rows undone in this chunk */
    unsigned rows;
    struct wal_ticket room; /* for deleting them */
    uint8_t value[BT_ENTRY_MAX];
};

static int
loser_row(struct loser *l, uint64_t seq, struct bt_slice value)
{
    struct bt_undo_op op = {.txn = l->id, .undo_next = seq - 1, .system = true};
    struct undo_entry e;
    lsn_t lsn;
    int rc;

    memcpy(l->value, value.data, value.bytes); /* the cursor moves on */
    rc = undo_decode(l->value, value.bytes, &e);
    if (rc == 0 && e.kind != VER_WAS_LOCK)
        rc = tree_get(l->ts, &l->ref, e.tree);
    if (rc != 0)
        return rc;
    op.kind = e.kind;
    op.flags = e.flags;
    op.key = e.key;
    op.before = e.before;
    if (e.kind != VER_WAS_LOCK)
        rc = bt_undo(&l->ref.tree->bt, &op, &lsn);
    if (rc != 0)
        return rc;
    l->highest = l->rows == 0 ? seq : l->highest;
    l->lowest = seq;
    l->rows++;
    return 0;
}

/* Some rows, newest first. *more: others may be left. NO_SPACE: the next one finds no room. */
static int
loser_rows(struct loser *l, bool *more)
{
    uint8_t probe[UNDO_KEY_BYTES];
    struct bt_slice value;
    uint64_t id, seq = 0;
    int rc;

    undo_key(l->id, UINT64_MAX, probe);
    rc = bt_seek(l->c, BT_LE, (struct bt_slice){probe, sizeof(probe)});
    while (rc == 0 && l->rows < LOSER_CHUNK) {
        rc = row_at(l->c, &id, &seq, &value);
        if (rc != 0 || id != l->id || seq == 0)
            break;
        *more = true;
        rc = loser_row(l, seq, value);
        if (rc == 0)
            rc = bt_prev(l->c);
    }
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

/* V3, V5. *more: rows are left. NO_SPACE: nothing is done, and the log is not kept. */
static int
loser_chunk(struct loser *l, bool *more)
{
    struct txns *ts = l->ts;
    int rc = txns_poll(ts);

    l->rows = 0;
    *more = false;
    if (rc == 0)
        rc = wal_reserve(ts->cfg.wal, WAL_SYSTEM, TXN_CREDIT_BYTES, &l->room);
    if (rc != 0)
        return rc;
    atomic_store_explicit(&ts->recover_pin, wal_end(ts->cfg.wal), memory_order_seq_cst);
    rc = loser_rows(l, more);
    wal_release(ts->cfg.wal, &l->room);
    if (l->rows > 0 && (rc == 0 || txn_no_room(rc)))
        rc = txns_rows_remove(ts, l->id, l->lowest, l->highest, true);
    if (rc == 0 || (txn_no_room(rc) && l->rows == 0))
        atomic_store_explicit(&ts->recover_pin, CH_LSN_MAX, memory_order_seq_cst);
    return rc;
}

static int
loser_end(struct txns *ts, uint64_t id)
{
    uint8_t payload[ABORT_BYTES];
    struct wal_part part = {payload, sizeof(payload)};
    struct wal_ticket ticket = {0};
    int rc = wal_reserve(ts->cfg.wal, WAL_SYSTEM, WAL_RECORD_HEADER + ABORT_BYTES, &ticket);

    if (rc != 0)
        return txn_no_room(rc) ? 0 : rc; /* the next recovery has one more look to take */
    ch_put64(payload, id);
    (void)wal_append(ts->cfg.wal, &ticket, TXN_RECORD_ABORT, CH_WAL, &part, 1);
    wal_release(ts->cfg.wal, &ticket);
    return 0;
}

static int
undo_loser(struct txns *ts, struct rec *rec)
{
    struct loser *l;
    bool more = true;
    unsigned tries = 0;
    int rc;

    if (rec->state != REC_OPEN)
        return 0;
    ts->recovery->losers++;
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return CH_FAIL(COHORT_ENOMEM, "undo of transaction %" PRIu64, rec->id);
    l->ts = ts;
    l->id = rec->id;
    rc = bt_cursor_create(txns_undo(ts), &l->c);
    if (rc == 0)
        bt_cursor_view(l->c, NULL, NULL);
    while (rc == 0 && rec->header != TXN_HEADER_NONE && more) {
        rc = loser_chunk(l, &more);
        tries = rc == 0 ? 0 : tries;
        if (txn_no_room(rc) && l->rows == 0 && txn_retry(ts, &tries)) {
            more = true;
            rc = 0;
        }
        rt_point();
    }
    tree_put(ts, &l->ref);
    bt_cursor_destroy(l->c);
    free(l);
    if (rc == 0 && rec->header != TXN_HEADER_NONE)
        rc = txns_rows_remove(ts, rec->id, 0, UINT64_MAX, false);
    return rc == 0 ? loser_end(ts, rec->id) : rc;
}

static int
clear_ended(struct txns *ts, struct rec *rec)
{
    return rec->state == REC_ENDED && rec->header != TXN_HEADER_NONE
               ? txns_rows_remove(ts, rec->id, 0, UINT64_MAX, false)
               : 0;
}

int
txns_recover_prepared(struct txns *ts, int (*visit)(void *arg, struct txn *t), void *arg)
{
    int rc = 0;

    for (struct txn *t = ts->prepared; rc == 0 && t != NULL; t = t->next_prepared)
        rc = visit(arg, t);
    return rc;
}

static int
count_prepared(struct txns *ts, struct rec *rec)
{
    ts->recovery->prepared += rec->state == REC_PREPARED ? 1 : 0;
    return 0;
}

/* There may be more prepared ones than this opening was to have transactions, and who decides on them needs some himself. */
static int
slots_suffice(struct txns *ts)
{
    int rc = each(ts, count_prepared);
    uint64_t need = ts->recovery->prepared + SPARE_SLOTS;

    if (rc != 0 || need <= ts->cfg.txns_max || ts->recovery->prepared == 0)
        return rc;
    ch_log(COHORT_LOG_NOTICE,
           "recovery: %" PRIu64 " prepared transactions: room for %" PRIu64 " instead of %u",
           ts->recovery->prepared, need, ts->cfg.txns_max);
    rc = ver_slots_raise(ts->cfg.ver, (unsigned)need);
    return rc != 0 ? rc : txns_slots_raise(ts, (unsigned)need);
}

int
txns_recover_finish(struct txns *ts)
{
    int rc = recovery_ensure(ts);

    if (rc == 0)
        rc = slots_suffice(ts);
    if (rc == 0)
        rc = each(ts, restore); /* V4 */
    if (rc != 0)
        return rc;
    atomic_store_explicit(&ts->recover_pin, CH_LSN_MAX, memory_order_seq_cst); /* V2 */
    rc = each(ts, clear_ended);
    if (rc == 0)
        rc = each(ts, undo_loser);
    if (rc == 0 && ts->recovery->losers + ts->recovery->prepared > 0)
        ch_log(COHORT_LOG_INFO,
               "recovery: %" PRIu64 " transactions undone, %" PRIu64 " prepared ones restored",
               ts->recovery->losers, ts->recovery->prepared);
    if (rc == 0)
        txns_recovery_free(ts);
    return rc;
}
