/* write.c - writing, undoing and purging one entry.
 *
 * A write takes these steps; the latch of the leaf is held from the third on:
 *
 *   admission    buf_admit(), log room: whatever may wait (T3)
 *   descent      the leaf, exclusively
 *   conflict     ver_may_write()
 *   judgement    what the leaf holds against what was asked for; a ghost is absent
 *   fit          does the entry not fit, the latch is given up; ghosts that nobody needs are dropped, else the leaf is split, and
 *                it all begins anew
 *   version      ver_entry_create(): the last step that can fail
 *   record       announced (T4), appended, the version pushed, the leaf changed
 *
 * An operation of its own is a transaction that begins and ends between append and change: its commit LSN is that of its
 * one record.
 *
 * Invariants:
 *   W1  until the record is appended nothing has changed, in the leaf or in the version store.
 *   W2  the version is pushed under the latch under which its record was appended, so what a reader finds on the leaf and in the
 *       chain belongs together; an undone one is popped likewise, after its record was appended (R4).
 *   W3  a ghost is dropped only under the exclusive latch and when no version of its key is left (R5): then every view
 *       and every writer finds it absent, and nobody will undo anything to it.
 *   W4  between ver_commit_lock() and ver_own_end() nothing can fail but ver_guarded() and ver_own_begin(), and nothing waits.
 *   W5  a delete pushes a version even where ver_may_write() says that an older one would do: the version store must hear of
 *       each ghost, to hand it out for purging.
 *   W6  in recovery (no entry to pop) nothing is purged: what looks like garbage may be of a transaction that is
 *       still to be undone.
 *
 * Crash: one record is one change. A transaction's record says how it is undone (change.h); undo records say what is left to
 * undo. A split or purge without the write it was made for leaves a valid tree.
 */
#include <inttypes.h>

#include "base/bug.h"
#include "btree/tree.h"

enum {
    RECORD_MAX = CHANGE_HEAD + CHANGE_GROUP + CHANGE_OP + BT_ENTRY_MAX,
    MERGE_STEP = 256, /* a small leaf is looked at again each time it lost so many bytes */
};

struct write { /* one bt_write() or bt_undo() */
    struct bt *t;
    const struct bt_op *op;
    struct bt_done *done;
    enum wal_class class;
    struct wal_ticket ticket;
    struct change change;
    struct buf_ref leaf;
    struct node_fit fit;    /* of a PUT, see judge_leaf() */
    struct bt_slice before; /* the value that was there; points into the leaf */
    unsigned before_flags;
    bool ghost;  /* the leaf holds one of the key */
    bool again;  /* no version needed (ver_may_write) */
    bool full;   /* ERETRY: the leaf must get room first ... */
    bool ghosts; /* ... and has ghosts */
    bool small;  /* the leaf lost enough to look for a neighbour to merge with */
};

/* ---- ghosts ---- */

/* Drops the ghosts of the latched leaf that no version is left of, as many as go into a record of `room` bytes (W3). */
static unsigned
purge_latched(struct bt *t, struct buf_ref *leaf, struct wal_ticket *ticket)
{
    uint8_t buf[CHANGE_BYTES_MAX], key_buf[COHORT_KEY_MAX];
    struct bt_slice key = {key_buf, 0};
    struct change c;
    unsigned n = 0, left = node_ghosts(leaf->page);

    change_begin(&c, buf, sizeof(buf));
    change_page(&c, leaf->pid);
    for (unsigned i = 0; left > 0 && i < node_count(leaf->page); i++) {
        if (!node_is_ghost(leaf->page, i))
            continue;
        left--;
        key.bytes = node_key(leaf->page, i, key_buf);
        if (key.bytes + CHANGE_OP > sizeof(buf) - c.bytes)
            break;
        if (ver_has(t->ver, bt_ver_key(t, key)) && !CH_BUG(R5_GHOST_PURGED))
            continue;
        change_del(&c, key);
        n++;
    }
    if (n > 0)
        (void)bt_commit(t, ticket, &c, leaf, 1);
    return n;
}

/* The same for the leaf of `key`. *small: it should be merged. */
static int
purge_leaf(struct bt *t, struct bt_slice key, enum wal_class class, unsigned *purged, bool *small)
{
    struct wal_ticket ticket = {0};
    struct buf_ref leaf;
    int rc = buf_admit(t->buf, false);

    if (rc == 0)
        rc = wal_reserve(t->wal, class, WAL_RECORD_HEADER + CHANGE_BYTES_MAX, &ticket);
    if (rc == 0)
        rc = bt_leaf_fix(t, BT_AT, key, BUF_EXCLUSIVE, NULL, &leaf);
    if (rc == 0) {
        *purged = purge_latched(t, &leaf, &ticket);
        *small = *purged > 0 && bt_underfull(leaf.page);
        buf_unfix(t->buf, &leaf);
    }
    wal_release(t->wal, &ticket);
    return rc;
}

void
bt_purge(struct bt *t, struct bt_slice key)
{
    unsigned purged = 0;
    bool small = false;
    int rc;

    if (t->ver == NULL)
        return;
    rc = purge_leaf(t, key, WAL_SHRINK, &purged, &small);
    /* A ghost that stays costs space, nothing else; the next write that lacks room tries again. */
    if (rc == 0 && small)
        bt_merge(t, key, WAL_SHRINK);
}

int
bt_purge_walk(struct bt *t, unsigned leaves, uint8_t *key, size_t *key_bytes, bool *done)
{
    struct bt_bounds bounds = {0};
    struct buf_ref leaf;
    unsigned ghosts;
    int rc;

    for (unsigned i = 0; i < leaves && !*done; i++) {
        rc = bt_leaf_fix(t, BT_AT, (struct bt_slice){key, *key_bytes}, BUF_SHARED, &bounds, &leaf);
        if (rc != 0)
            return rc;
        ghosts = node_ghosts(leaf.page);
        buf_unfix(t->buf, &leaf);
        if (ghosts > 0)
            bt_purge(t, (struct bt_slice){key, *key_bytes});
        *done = !bounds.has_upper;
        if (bounds.has_upper)
            memcpy(key, bounds.upper, bounds.upper_bytes);
        *key_bytes = bounds.has_upper ? bounds.upper_bytes : 0;
    }
    return 0;
}

/* The leaf of `key` had no room for its entry. No latch held; the caller tries again after 0. */
static int
make_room(const struct write *w, struct bt_slice key, size_t value_bytes)
{
    unsigned purged = 0;
    bool small;
    int rc;

    if (w->ghosts) {
        rc = purge_leaf(w->t, key, w->class == WAL_USER ? WAL_SHRINK : w->class, &purged, &small);
        if (rc != 0 || purged > 0)
            return rc;
    }
    return bt_split(w->t, key, value_bytes, w->class);
}

/* ---- judgement ---- */

static int
full(struct write *w)
{
    w->full = true;
    w->ghosts = w->t->ver != NULL && node_ghosts(w->leaf.page) > 0;
    return COHORT_ERETRY;
}

/* Notes what entry `i` of the leaf holds. */
static int
note_before(struct write *w, unsigned i)
{
    struct bt_done *done = w->done;

    w->before = node_get(w->leaf.page, i, &w->before_flags);
    done->had_value = true;
    done->had_ref = (w->before_flags & BT_REF) != 0;
    if (!done->had_ref)
        return 0;
    if (w->before.bytes > BT_REF_MAX)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": entry %u, a reference of %zu bytes",
                       w->leaf.pid, i, w->before.bytes);
    done->old_ref_bytes = w->before.bytes;
    memcpy(done->old_ref, w->before.data, w->before.bytes);
    return 0;
}

/* Whether the operation goes ahead, by what the leaf holds. ERETRY with `full`: there is no room. */
static int
judge_leaf(struct write *w)
{
    const struct bt_op *op = w->op;
    const uint8_t *page = w->leaf.page;
    struct node_fit f = {.how = NODE_FITS};
    int rc = 0;

    if (op->kind == BT_DEL || op->kind == BT_LOCK)
        f.index = node_search(page, op->key, &f.found);
    else
        f = node_fit(page, op->key, op->value.bytes);
    w->fit = f;
    w->ghost = f.found && node_ghosts(page) > 0 && node_is_ghost(page, f.index);
    if (f.found && !w->ghost)
        rc = note_before(w, f.index);
    if (rc != 0)
        return rc;
    if (op->kind == BT_INSERT && w->done->had_value)
        return COHORT_EXISTS;
    if ((op->kind == BT_UPDATE || op->kind == BT_DEL) && !w->done->had_value)
        return COHORT_NOTFOUND;
    if (w->done->had_ref && w->t->ver != NULL && op->txn == NULL)
        return COHORT_ERETRY; /* the reference's owner needs a transaction to give it back */
    return f.how == NODE_FULL ? full(w) : 0;
}

static int
judge_conflict(struct write *w)
{
    struct bt *t = w->t;
    const struct bt_op *op = w->op;
    struct ver_owner owner = {0};
    int rc;

    if (op->view != NULL && bt_unborn(t, op->view))
        return CH_FAIL(COHORT_CONFLICT, "tree %" PRIu32 ": loaded after the snapshot", t->tree);
    rc = ver_may_write(t->ver, op->txn, op->view, bt_ver_key(t, op->key), &owner, &w->again);
    if (rc == COHORT_ERETRY) {
        w->done->owner.id = owner.id;
        w->done->owner.tag = owner.tag;
        w->done->owner.wakes = owner.wakes;
        rc =
            CH_FAIL(COHORT_CONFLICT, "tree %" PRIu32 ": the record is held by transaction %" PRIu64,
                    t->tree, owner.id);
    }
    w->again = w->again && op->kind != BT_DEL; /* W5 */
    return rc;
}

/* ---- the change itself ---- */

static void
build(struct write *w, uint8_t *buf, size_t room)
{
    const struct bt_op *op = w->op;
    struct change *c = &w->change;

    change_begin(c, buf, room);
    change_page(c, w->leaf.pid);
    if (op->kind != BT_DEL)
        change_put(c, op->key, op->value, op->flags);
    else if (w->t->ver != NULL)
        change_ghost(c, op->key);
    else
        change_del(c, op->key);
}

static void
apply(struct write *w)
{
    const struct bt_op *op = w->op;

    if (op->kind == BT_DEL)
        bt_apply(w->t, &w->change, &w->leaf, 1, w->done->lsn);
    else
        change_apply_put(w->leaf.page, &w->fit, op->key, op->value, op->flags, w->done->lsn);
}

/* Appends the announced change as a record with a head (C4). */
static lsn_t
append_with_head(struct write *w, uint8_t type, const struct bt_logged *l)
{
    uint8_t head[CHANGE_WRITE_HEAD];
    struct wal_part parts[3];
    unsigned n = 1;

    CH_ASSERT(ch_get16(w->change.buf) == 1 && ch_get16(w->change.buf + CHANGE_HEAD + 6) == 1);
    parts[0] = (struct wal_part){head, (uint32_t)change_head(type, l, head)};
    if (l->before.bytes > 0)
        parts[n++] = (struct wal_part){l->before.data, (uint32_t)l->before.bytes};
    parts[n++] = (struct wal_part){w->change.buf, (uint32_t)w->change.bytes};
    return wal_append(w->t->wal, &w->ticket, type, CH_WAL, parts, n);
}

/* In a tree without versions: the leaf alone. */
static int
write_plain(struct write *w)
{
    const uint8_t *page = w->leaf.page;
    struct wal_part part = {w->change.buf, (uint32_t)w->change.bytes};
    size_t before = w->op->kind == BT_DEL ? node_used(page) : 0;

    buf_will_change(w->t->buf, &w->leaf); /* T4 */
    w->done->lsn = wal_append(w->t->wal, &w->ticket, BT_RECORD_PAGES, CH_WAL, &part, 1);
    apply(w);
    w->small = w->op->kind == BT_DEL && bt_underfull(page) &&
               (node_count(page) == 0 || node_used(page) / MERGE_STEP != before / MERGE_STEP);
    return 0;
}

static struct ver_entry *
entry_create(const struct write *w, struct ver_txn *txn)
{
    enum ver_kind kind = w->op->kind == BT_LOCK ? VER_WAS_LOCK
                         : w->done->had_value   ? VER_WAS_VALUE
                                                : VER_WAS_ABSENT;
    bool image = kind == VER_WAS_VALUE;

    return ver_entry_create(w->t->ver, txn, bt_ver_key(w->t, w->op->key), kind,
                            image ? (uint8_t)w->before_flags : 0, image ? w->before.data : NULL,
                            image ? w->before.bytes : 0);
}

static int
no_memory(const struct write *w)
{
    return CH_FAIL(COHORT_ENOMEM, "a version of %zu bytes", w->op->key.bytes + w->before.bytes);
}

/* The version that locks the key and restores nothing. */
static int
lock_txn(struct write *w)
{
    struct ver *ver = w->t->ver;
    struct ver_entry *e;

    if (ver_holds(ver, w->op->txn, bt_ver_key(w->t, w->op->key)))
        return 0;
    e = entry_create(w, w->op->txn);
    if (e == NULL)
        return no_memory(w);
    ver_entry_push(ver, e, wal_end(w->t->wal), w->ghost);
    return 0;
}

/* Of a transaction that goes on. */
static int
write_txn(struct write *w)
{
    struct bt *t = w->t;
    const struct bt_op *op = w->op;
    struct bt_logged l = {.txn = ver_txn_id(op->txn), .tree = t->tree};
    struct ver_entry *e = NULL;

    if (op->kind == BT_LOCK)
        return lock_txn(w);
    if (!w->again) {
        e = entry_create(w, op->txn);
        if (e == NULL)
            return no_memory(w);
    }
    if (e != NULL) {
        l.seq = ver_entry_seq(e);
        l.kind = w->done->had_value ? VER_WAS_VALUE : VER_WAS_ABSENT;
        l.flags = w->before_flags;
        l.before = w->before;
    }
    buf_will_change(t->buf, &w->leaf); /* T4 */
    w->done->lsn = append_with_head(w, BT_RECORD_WRITE, &l);
    if (e != NULL)
        ver_entry_push(t->ver, e, w->done->lsn, op->kind == BT_DEL); /* W2 */
    ver_note_sizes(t->ver, op->txn, w->before.bytes, op->kind == BT_DEL ? 0 : op->value.bytes);
    apply(w);
    return 0;
}

/* Of its own: begins and commits here (W4). */
static int
write_own(struct write *w)
{
    struct bt *t = w->t;
    struct ver_key key = bt_ver_key(t, w->op->key);
    struct wal_part part = {w->change.buf, (uint32_t)w->change.bytes};
    const struct ver_own own = {
        .key = key,
        .kind = w->done->had_value ? VER_WAS_VALUE : VER_WAS_ABSENT,
        .flags = (uint8_t)w->before_flags,
        .before = w->before.data,
        .before_bytes = w->before.bytes,
        .deletes = w->op->kind == BT_DEL,
    };
    int rc;

    buf_will_change(t->buf, &w->leaf); /* T4 */
    ver_commit_lock(t->ver);
    rc = ver_guarded(t->ver, NULL, &key);
    if (rc == 0)
        rc = ver_own_begin(t->ver, &own);
    if (rc != 0) {
        ver_commit_unlock(t->ver);
        return rc;
    }
    w->done->lsn = wal_append(t->wal, &w->ticket, BT_RECORD_PAGES, CH_WAL, &part, 1);
    ver_own_end(t->ver, &own, w->done->lsn, w->op->durable); /* W2 */
    ver_note_sizes(t->ver, NULL, w->before.bytes, w->op->kind == BT_DEL ? 0 : w->op->value.bytes);
    apply(w);
    return 0;
}

/* One try. ERETRY with `full`: make room and try again. */
static int
write_once(struct write *w)
{
    uint8_t buf[RECORD_MAX];
    struct bt *t = w->t;
    int rc = bt_leaf_fix(t, BT_AT, w->op->key, BUF_EXCLUSIVE, NULL, &w->leaf);

    if (rc != 0)
        return rc;
    *w->done = (struct bt_done){0};
    w->full = w->small = w->again = w->ghost = false;
    w->before = (struct bt_slice){NULL, 0};
    w->before_flags = 0;
    if (t->ver != NULL)
        rc = judge_conflict(w);
    if (rc == 0)
        rc = judge_leaf(w);
    if (rc != 0 && t->ver != NULL && w->op->txn == NULL) /* what it answers from */
        w->done->lsn = ver_invisible(t->ver, bt_ver_key(t, w->op->key));
    if (rc == 0 && w->op->kind != BT_LOCK)
        build(w, buf, sizeof(buf));
    if (rc == 0 && t->ver == NULL)
        rc = w->op->kind == BT_LOCK ? 0 : write_plain(w);
    else if (rc == 0)
        rc = w->op->txn != NULL ? write_txn(w) : write_own(w);
    buf_unfix(t->buf, &w->leaf);
    return rc;
}

/* What the record may take in the log; of the before-image only its largest size is known yet. */
static size_t
log_bytes(const struct bt *t, const struct bt_op *op)
{
    size_t bytes = WAL_RECORD_HEADER + CHANGE_HEAD + CHANGE_GROUP + CHANGE_OP + op->key.bytes +
                   (op->kind == BT_DEL ? 0 : op->value.bytes);

    if (t->ver != NULL && op->txn != NULL)
        bytes += CHANGE_WRITE_HEAD + COHORT_ENTRY_MAX - op->key.bytes;
    return bytes;
}

static void
check_op(const struct bt *t, const struct bt_op *op)
{
    size_t value_bytes = op->kind == BT_DEL || op->kind == BT_LOCK ? 0 : op->value.bytes;

    CH_ASSERT(op->key.bytes <= COHORT_KEY_MAX);
    CH_ASSERT(op->key.bytes + value_bytes <=
              (t->ver != NULL ? (size_t)COHORT_ENTRY_MAX : (size_t)BT_ENTRY_MAX));
    CH_ASSERT((op->flags & BT_REF) == 0 || value_bytes <= BT_REF_MAX);
    CH_ASSERT(op->kind != BT_LOCK || t->ver == NULL || op->txn != NULL);
}

static void
set_pin(const struct bt_op *op, lsn_t lsn)
{
    if (op->pin != NULL)
        atomic_store_explicit(op->pin, lsn, memory_order_seq_cst);
}

int
bt_write(struct bt *t, const struct bt_op *op, struct bt_done *done)
{
    struct write w = {.t = t, .op = op, .done = done, .ticket.once = true};
    bool lock = op->kind == BT_LOCK;
    int rc;

    check_op(t, op);
    *done = (struct bt_done){0};
    w.class = op->system ? WAL_SYSTEM : op->kind == BT_DEL ? WAL_SHRINK : WAL_USER;
    if (t->ver != NULL && w.class == WAL_USER && !lock) /* R11; half full pages at worst */
        buf_keep(t->buf, ch_div_up(2 * ver_undo_bytes(t->ver), CH_PAGE_BYTES));
    do {
        rc = lock ? 0 : buf_admit(t->buf, w.class == WAL_USER);
        if (rc == 0 && !lock)
            rc = wal_reserve(t->wal, w.class, log_bytes(t, op), &w.ticket);
        if (rc != 0)
            return rc;
        set_pin(op, wal_end(t->wal));
        rc = write_once(&w);
        wal_release(t->wal, &w.ticket);
        if (rc != COHORT_ERETRY || !w.full)
            break;
        set_pin(op, CH_LSN_MAX);
        rc = make_room(&w, op->key, op->value.bytes);
    } while (rc == 0);
    if (rc == 0 && w.small)
        bt_merge(t, op->key, w.class);
    return rc;
}

/* ---- undo ---- */

/* One try, as write_once(). */
static int
undo_once(struct write *w, const struct bt_undo_op *op, lsn_t *lsn)
{
    uint8_t buf[RECORD_MAX];
    struct bt_logged l = {.txn = op->txn, .seq = op->undo_next};
    struct bt *t = w->t;
    bool found;
    int rc = bt_leaf_fix(t, BT_AT, op->key, BUF_EXCLUSIVE, NULL, &w->leaf);

    if (rc != 0)
        return rc;
    w->full = false;
    change_begin(&w->change, buf, sizeof(buf));
    change_page(&w->change, w->leaf.pid);
    if (op->kind == VER_WAS_VALUE) {
        if (node_fit(w->leaf.page, op->key, op->before.bytes).how == NODE_FULL)
            rc = full(w);
        else
            change_put(&w->change, op->key, op->before, op->flags);
    } else {
        (void)node_search(w->leaf.page, op->key, &found);
        if (found)
            change_ghost(&w->change, op->key);
        else
            rc = CH_FAIL(COHORT_EPAGE,
                         "page %" PRIu64 ": the record that transaction %" PRIu64
                         " inserted is not there to be undone",
                         w->leaf.pid, op->txn);
    }
    if (rc == 0) {
        buf_will_change(t->buf, &w->leaf); /* T4 */
        *lsn = append_with_head(w, BT_RECORD_UNDO, &l);
        bt_apply(t, &w->change, &w->leaf, 1, *lsn);
        if (op->e != NULL)
            ver_entry_pop(t->ver, op->e); /* W2 */
    }
    w->ghosts = w->ghosts && op->e != NULL; /* W6 */
    buf_unfix(t->buf, &w->leaf);
    return rc;
}

int
bt_undo(struct bt *t, const struct bt_undo_op *op, lsn_t *lsn)
{
    struct write w = {.t = t, .class = op->system ? WAL_SYSTEM : WAL_SHRINK, .ticket.once = true};
    int rc;

    CH_ASSERT(op->kind >= VER_WAS_VALUE && op->kind <= VER_WAS_LOCK);
    CH_ASSERT(op->key.bytes + op->before.bytes <= BT_ENTRY_MAX);
    if (op->kind == VER_WAS_LOCK) {
        if (op->e != NULL)
            ver_entry_pop(t->ver, op->e);
        *lsn = 0;
        return 0;
    }
    do {
        rc = buf_admit(t->buf, false);
        if (rc == 0)
            rc = wal_reserve(t->wal, w.class, WAL_RECORD_HEADER + CHANGE_UNDO_HEAD + RECORD_MAX,
                             &w.ticket);
        if (rc != 0)
            return rc;
        rc = undo_once(&w, op, lsn);
        wal_release(t->wal, &w.ticket);
        if (rc != COHORT_ERETRY || !w.full)
            break;
        rc = make_room(&w, op->key, op->before.bytes);
    } while (rc == 0);
    return rc;
}
