/* tree.c - descent and get; single writes: write.c.
 *
 * Inner nodes are read optimistically: a child's number counts only if the parent is still valid
 * afterwards, and a latched leaf only if its parent is still valid once the latch is held. So
 * nobody waits while holding a latch here.
 *
 * Invariants:
 *   T1  the leaf of a key is reached through valid parents only: a split, merge or free in between
 *       restarts the descent (R9).
 *   T2  level of a child = level of its parent - 1; the root's id never changes.
 *   T3  log room is reserved before any latch is taken and given back after the last one is gone
 *       (R8, R11).
 *   T4  a page is announced (buf_will_change) before its record is appended (R3), and changed by
 *       change_apply() or its twin for a PUT only.
 *   T5  the write LSN of a leaf is at least the LSN of the newest record that put a user's entry on it or made one a ghost,
 *       also of pages merged into it (R1). So a leaf whose write LSN a view covers is read as it stands.
 *   T6  a leaf that is not is asked entry by entry, in the version store; an answer that a before-image lies in the undo
 *       tree is followed without latches, and is out of date when it is not there any more: the read begins anew.
 *
 * Crash: one record is one change of the tree; recovery sees it or does not. A split without the
 * insert it was made for is a valid tree, and so is an empty leaf.
 */
#include "btree/tree.h"
#include "base/bug.h"

#include <inttypes.h>

#include "base/status.h"
#include "btree/undo.h"

void
bt_init(struct bt *t, struct buf *b, struct wal *w, uint32_t tree, page_id root)
{
    memset(t, 0, sizeof(*t));
    t->buf = b;
    t->wal = w;
    t->tree = tree;
    t->root = root;
    rt_mutex_init(&t->smo, RT_RANK_TREE, tree);
}

void
bt_fini(struct bt *t)
{
    rt_mutex_fini(&t->smo);
    memset(t, 0, sizeof(*t));
}

int
bt_node_verify(const struct bt *t, const struct buf_ref *ref, unsigned level)
{
    const uint8_t *p = ref->page;

    if (CH_LIKELY(page_level(p) == level && page_tree(p) == t->tree && node_sane(p)))
        return 0;
    return CH_FAIL(COHORT_EPAGE,
                   "page %" PRIu64 ": not a node of tree %" PRIu32 " at level %u (type %u, tree "
                   "%" PRIu32 ", level %u)",
                   ref->pid, t->tree, level, (unsigned)page_type(p), page_tree(p),
                   (unsigned)page_level(p));
}

void
bt_apply(struct bt *t, const struct change *c, struct buf_ref *refs, unsigned n, lsn_t lsn)
{
    struct change_reader r = {c->buf, c->bytes, CHANGE_HEAD};
    struct change_group g;
    int rc;

    for (unsigned i = 0; i < n; i++) {
        rc = change_next(&r, &g);
        CH_ASSERT(rc == 0 && g.pid == refs[i].pid);
        rc = change_apply(refs[i].page, &g, lsn);
        CH_ASSERT(rc == 0); /* C3 */
        if (g.frees)
            buf_mark_free(t->buf, &refs[i]);
    }
}

lsn_t
bt_commit(struct bt *t, struct wal_ticket *ticket, const struct change *c, struct buf_ref *refs,
          unsigned n)
{
    struct wal_part part = {c->buf, (uint32_t)c->bytes};
    lsn_t lsn;

    for (unsigned i = 0; i < n; i++)
        buf_will_change(t->buf, &refs[i]); /* T4 */
    lsn = wal_append(t->wal, ticket, BT_RECORD_PAGES, CH_WAL, &part, 1);
    bt_apply(t, c, refs, n, lsn);
    return lsn;
}

/* ---- descent ---- */

void
bt_bounds_narrow(struct bt_bounds *b, const uint8_t *inner, unsigned i)
{
    if (i > 0) {
        b->has_lower = true;
        b->lower_bytes = node_key(inner, i - 1, b->lower);
    }
    if (i < node_count(inner)) {
        b->has_upper = true;
        b->upper_bytes = node_key(inner, i, b->upper);
    }
}

static unsigned
child_towards(const uint8_t *inner, enum bt_side side, struct bt_slice key)
{
    return side == BT_END ? node_count(inner) : node_child_index(inner, key, side == BT_BELOW);
}

/* A hint only: the numbers may be garbage, in which case the descent restarts. */
static unsigned
collect_ahead(const uint8_t *inner, unsigned i, int direction, page_id *pids)
{
    unsigned n = 0, count = node_count(inner);

    while (n < BT_AHEAD && (direction > 0 ? i <= count : i + 1 > 0 && i <= count)) {
        pids[n] = node_child(inner, i);
        if (pids[n] != 0)
            n++;
        i = direction > 0 ? i + 1 : i - 1;
    }
    return n;
}

/* Errors of a page that was reached through a parent which has changed meanwhile mean nothing. */
static bool
is_stale_error(int rc)
{
    return rc == COHORT_NOTFOUND || ch_class_of(rc) == COHORT_CLASS_CORRUPT;
}

static int
child_error(const struct bt *t, page_id pid, page_id parent, int rc)
{
    if (rc != COHORT_NOTFOUND)
        return rc;
    return CH_FAIL(COHORT_EPAGE,
                   "page %" PRIu64 " of tree %" PRIu32 ", child of page %" PRIu64 ": no image", pid,
                   t->tree, parent);
}

/* The root is the leaf. ERETRY when it is not any more. */
static int
root_leaf_fix(struct bt *t, enum buf_mode mode, struct buf_ref *leaf)
{
    int rc = buf_fix(t->buf, t->root, mode, leaf);

    if (rc != 0)
        return child_error(t, t->root, t->root, rc);
    if (page_level(leaf->page) != 0)
        rc = COHORT_ERETRY;
    else
        rc = bt_node_verify(t, leaf, 0);
    if (rc != 0)
        buf_unfix(t->buf, leaf);
    return rc;
}

/* T1 */
int
bt_child_fix(struct bt *t, page_id pid, const struct buf_peek *parent, enum buf_mode mode,
             struct buf_ref *leaf)
{
    bool valid;
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_fix(t->buf, pid, mode, leaf);

    valid = buf_peek_valid(t->buf, parent);
    if (rc != 0)
        return !valid && is_stale_error(rc) ? COHORT_ERETRY : child_error(t, pid, parent->pid, rc);
    rc = valid || CH_BUG(NO_PARENT_CHECK) ? bt_node_verify(t, leaf, 0) : COHORT_ERETRY;
    if (rc != 0)
        buf_unfix(t->buf, leaf);
    return rc;
}

/* One step down an inner level: *up becomes the child. */
static int
step_down(struct bt *t, page_id pid, struct buf_peek *up, unsigned *level)
{
    struct buf_peek down;
    unsigned l;
    bool valid;
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_peek(t->buf, pid, &down);

    valid = buf_peek_valid(t->buf, up);
    if (rc != 0)
        return !valid && is_stale_error(rc) ? COHORT_ERETRY : child_error(t, pid, up->pid, rc);
    l = page_level(down.page);
    if (!valid || (l != *level - 1 && !buf_peek_valid(t->buf, &down)))
        return COHORT_ERETRY;
    if (l != *level - 1)
        return CH_FAIL(COHORT_EPAGE,
                       "page %" PRIu64 ", child of page %" PRIu64 ": level %u below %u", pid,
                       up->pid, l, *level); /* T2 */
    *up = down;
    *level = l;
    return 0;
}

/* One try; ERETRY when a change came in between. */
static int
descend(struct bt *t, enum bt_side side, struct bt_slice key, enum buf_mode mode,
        struct bt_bounds *b, struct buf_ref *leaf)
{
    page_id ahead[BT_AHEAD], pid;
    struct buf_peek up;
    unsigned level, i, n = 0;
    int rc = buf_peek(t->buf, t->root, &up);

    if (rc != 0)
        return child_error(t, t->root, t->root, rc);
    if (b != NULL)
        b->has_lower = b->has_upper = false;
    level = page_level(up.page);
    if (level == 0)
        return root_leaf_fix(t, mode, leaf);
    for (;;) {
        i = child_towards(up.page, side, key);
        pid = node_child(up.page, i);
        if (CH_UNLIKELY(b != NULL)) {
            bt_bounds_narrow(b, up.page, i);
            if (b->ahead != 0 && level == 1)
                n = collect_ahead(up.page, i, b->ahead, ahead);
        }
        if (!buf_peek_valid(t->buf, &up))
            return COHORT_ERETRY;
        if (level == 1)
            break;
        rc = step_down(t, pid, &up, &level);
        if (rc != 0)
            return rc;
    }
    if (n > 1)
        buf_prefetch(t->buf, ahead, n);
    return bt_child_fix(t, pid, &up, mode, leaf);
}

int
bt_leaf_fix(struct bt *t, enum bt_side side, struct bt_slice key, enum buf_mode mode,
            struct bt_bounds *b, struct buf_ref *leaf)
{
    unsigned tries = 0;
    int rc;

    for (;;) {
        rc = descend(t, side, key, mode, b, leaf);
        if (CH_LIKELY(rc != COHORT_ERETRY))
            return rc;
        if (++tries > 4)
            rt_yield();
    }
}

/* ---- operations ---- */

int
bt_format(struct bt *t, struct buf_ref *root)
{
    uint8_t buf[CHANGE_HEAD + CHANGE_GROUP + CHANGE_OP + PAGE_HEADER_BYTES];
    struct wal_ticket ticket = {0};
    struct change c;
    page_id pid = root->pid;
    int rc;

    CH_ASSERT(pid == t->root);
    /* No waiting for log room under a latch (T3); nobody else knows the page yet, and as it stands
     * it is a valid leaf. */
    node_init(root->page, pid, 0, t->tree);
    buf_unfix(t->buf, root);
    rc = wal_reserve(t->wal, WAL_USER, WAL_RECORD_HEADER + sizeof(buf), &ticket);
    if (rc != 0)
        goto out;
    rc = buf_fix(t->buf, pid, BUF_EXCLUSIVE, root);
    if (rc != 0)
        goto out;
    change_begin(&c, buf, sizeof(buf));
    change_page(&c, pid);
    change_image(&c, root->page);
    (void)bt_commit(t, &ticket, &c, root, 1);
    buf_unfix(t->buf, root);
out:
    wal_release(t->wal, &ticket);
    return rc;
}

bool
bt_underfull(const uint8_t *page)
{
    return node_count(page) == 0 || node_used(page) < NODE_CAPACITY / 4;
}

/* ---- get ---- */

int
bt_too_old(const struct bt *t)
{
    return CH_FAIL(COHORT_SNAPSHOT_TOO_OLD,
                   "tree %" PRIu32 ": the snapshot was ended to bound the memory of old versions",
                   t->tree);
}

struct spilled {
    struct ver_found *f;
    int rc;
};

static void
copy_spilled(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct spilled *s = arg;
    struct undo_entry e;

    (void)flags;
    s->rc = undo_decode(value, bytes, &e);
    if (s->rc != 0)
        return;
    s->f->how = e.kind == VER_WAS_VALUE ? VER_VALUE : VER_ABSENT;
    s->f->flags = (uint8_t)e.flags;
    s->f->bytes = e.before.bytes;
    if (e.before.bytes > 0)
        memcpy(s->f->data, e.before.data, e.before.bytes);
}

int
bt_read_spilled(struct bt *t, struct ver_found *f)
{
    uint8_t key[UNDO_KEY_BYTES];
    struct spilled s = {f, 0};
    int rc;

    undo_key(f->txn, f->seq, key);
    /* The undo tree has no versions: this is no recursion. */
    rc = bt_get(t->undo, NULL, (struct bt_slice){key, sizeof(key)}, copy_spilled, &s);
    return rc != 0 ? rc : s.rc;
}

/* The leaf is latched and entry i has the key if `found`; what the view sees comes from the version store. Unlatches. ERETRY:
 * begin anew. */
static int
get_version(struct bt *t, const struct ver_view *view, struct bt_slice key, struct buf_ref *leaf,
            bt_copy_fn *copy, void *arg)
{
    struct ver_found f;
    struct bt_slice value;
    bool found;
    unsigned i, flags;
    int rc = COHORT_NOTFOUND;

    ver_read(t->ver, view, bt_ver_key(t, key), &f);
    if (f.how == VER_CURRENT) {
        i = node_search(leaf->page, key, &found);
        if (found && !node_is_ghost(leaf->page, i)) {
            value = node_get(leaf->page, i, &flags);
            copy(arg, value.data, value.bytes, flags);
            rc = 0;
        }
    }
    buf_unfix(t->buf, leaf);
    if (f.how == VER_CURRENT)
        return rc;
    if (f.how == VER_SPILLED) {
        rc = bt_read_spilled(t, &f); /* T6 */
        if (rc != 0)
            return rc == COHORT_NOTFOUND ? COHORT_ERETRY : rc;
    }
    if (f.how == VER_TOO_OLD)
        return bt_too_old(t);
    if (f.how != VER_VALUE)
        return COHORT_NOTFOUND;
    copy(arg, f.data, f.bytes, f.flags);
    return 0;
}

int
bt_get_at(struct bt *t, const struct ver_view *view, struct bt_slice key, struct buf_ref *leaf,
          bt_copy_fn *copy, void *arg)
{
    struct bt_slice value;
    bool found;
    unsigned i, flags;

    CH_ASSERT(leaf->page != NULL);
    if (CH_UNLIKELY(bt_unborn(t, view))) {
        buf_unfix(t->buf, leaf);
        return COHORT_NOTFOUND;
    }
    if (CH_UNLIKELY(!bt_as_is(t, view, leaf->page)))
        return get_version(t, view, key, leaf, copy, arg);
    i = node_search(leaf->page, key, &found);
    found = found && (node_ghosts(leaf->page) == 0 || !node_is_ghost(leaf->page, i));
    if (found) {
        value = node_get(leaf->page, i, &flags);
        copy(arg, value.data, value.bytes, flags);
    }
    buf_unfix(t->buf, leaf);
    return found ? 0 : COHORT_NOTFOUND;
}

int
bt_get(struct bt *t, const struct ver_view *view, struct bt_slice key, bt_copy_fn *copy, void *arg)
{
    struct buf_ref leaf = {0};
    int rc;

    do {
        rc = bt_leaf_fix(t, BT_AT, key, BUF_SHARED, NULL, &leaf);
        if (rc == 0)
            rc = bt_get_at(t, view, key, &leaf, copy, arg);
    } while (rc == COHORT_ERETRY);
    return rc;
}
