/* drop.c - many pages leave a tree at once: dropped trees, removed ranges.
 *
 *      inner node on the lowest level
 *     +----+----+----+----+----+----+
 *     | c0 | c1 | c2 | c3 | c4 | c5 |    one record: the node loses a run of children, each of which is freed;
 *     +----+----+----+----+----+----+    the freed leaves are not read
 *
 * A subtree goes from its right end. When a node has its leftmost child left only, it goes together with that child and
 * with what is above it and has a single child too ("chain"); so no empty inner node stays behind.
 *
 * Invariants:
 *   D1  a record leaves a valid tree, smaller than before, so any step may be repeated, by the same call or after a
 *       crash, and ends (R13).
 *   D2  a leaf is freed unread only if the separators around it, or the end of the tree's life, say that all its
 *       entries go.
 *   D3  a record frees at most DROP_PAGES leaves and one path, and an eighth of the cache: it is bounded, and so are the
 *       latches held.
 *   D4  removing never takes a node's last child unless the node goes too, and never the root, unless the tree is
 *       dropped.
 *   D5  a range is empty when one walk over its keys, leaf by leaf and each under its latch, has left nothing behind: others merge and
 *       split leaves at both ends of it meanwhile, so that what was not in the left leaf may be there now. Nobody else
 *       writes keys of the range.
 *
 * Locks: the tree's mutex, under which inner nodes stand still; then latches, parent before child, left before right.
 * Log room of class SHRINK is reserved before. Leaves that stay lose entries without the mutex, under their own latch.
 *
 * Crash: D1. A tree whose root is gone, or has become a page of another tree, is dropped already.
 */
#include <inttypes.h>
#include <limits.h>

#include "btree/tree.h"

enum {
    DROP_PAGES = 64,
};

/* The way from the root down; `index` is the child that it takes. */
struct drop_node {
    page_id pid;
    unsigned index, count; /* count: separators */
};

struct drop {
    struct bt *t;
    unsigned depth; /* of the lowest inner node on the path */
    unsigned pages; /* most leaves of a record */
    unsigned freed; /* leaves freed so far */
    struct drop_node path[BT_DEPTH_MAX];
    struct wal_ticket ticket;
    enum wal_class class; /* of the log room */
    struct change c;
    uint8_t record[CHANGE_BYTES_MAX];
    struct buf_ref refs[BT_DEPTH_MAX + DROP_PAGES + 1]; /* those of the record: parent first */
    unsigned n;
};

static void
drop_begin(struct drop *d, struct bt *t)
{
    d->t = t;
    d->pages = (unsigned)ch_clamp_u64(buf_frame_bytes(t->buf) / CH_PAGE_BYTES / 8, 1, DROP_PAGES);
    d->freed = 0;
    d->depth = 0;
    d->n = 0;
    d->ticket = (struct wal_ticket){0};
    d->class = WAL_SHRINK;
}

/* Log room for one record; no latch held. */
static int
drop_reserve(struct drop *d)
{
    int rc = buf_admit(d->t->buf, false);

    if (rc == 0)
        rc = wal_reserve(d->t->wal, d->class, WAL_RECORD_HEADER + CHANGE_BYTES_MAX, &d->ticket);
    return rc;
}

static void
unfix_all(struct drop *d)
{
    while (d->n > 0)
        buf_unfix(d->t->buf, &d->refs[--d->n]);
}

/* An inner node of the tree, latched; it is not in refs. */
static int
fix_inner(struct bt *t, page_id pid, enum buf_mode mode, unsigned level, struct buf_ref *ref)
{
    const char *wrong;
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_fix(t->buf, pid, mode, ref);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 " of tree %" PRIu32 ", level %u: no image",
                       pid, t->tree, level);
    if (rc != 0)
        return rc;
    rc = bt_node_verify(t, ref, level);
    wrong = rc == 0 && mode == BUF_EXCLUSIVE ? node_check(ref->page) : NULL;
    if (wrong != NULL)
        rc = CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": %s", pid, wrong);
    if (rc != 0)
        buf_unfix(t->buf, ref);
    return rc;
}

/* The node at that depth of the path becomes part of the record. */
static int
take_node(struct drop *d, unsigned depth)
{
    int rc =
        fix_inner(d->t, d->path[depth].pid, BUF_EXCLUSIVE, d->depth - depth + 1, &d->refs[d->n]);

    if (rc == 0)
        d->n++;
    return rc;
}

/* A leaf that is to be freed, unread (D2). */
static int
take_leaf(struct drop *d, page_id pid)
{
    int rc = pid == 0 ? CH_FAIL(COHORT_EPAGE, "tree %" PRIu32 ": a child is missing", d->t->tree)
                      : buf_fix_unread(d->t->buf, pid, &d->refs[d->n]);

    if (rc == 0)
        d->n++;
    return rc;
}

/* The children of the first page of the record, up to the last one that it may lose. */
static int
take_leaves(struct drop *d, unsigned a, unsigned b)
{
    const uint8_t *page = d->refs[0].page;
    int rc = 0;

    for (unsigned i = a; rc == 0 && i < b; i++)
        rc = take_leaf(d, node_child(page, i));
    return rc;
}

/* The first page of the record loses children [a, b), one stays (D4). */
static void
lose_children(struct drop *d, unsigned a, unsigned b)
{
    _Alignas(8) uint8_t rest[CH_PAGE_BYTES];
    const uint8_t *page = d->refs[0].page;
    unsigned n = node_count(page);
    bool ok;

    CH_ASSERT(a < b && b <= n + 1 && b - a <= n);
    change_page(&d->c, d->refs[0].pid);
    if (a > 0 && b == n + 1) {
        change_cut(&d->c, a - 1);
    } else if (a > 0) {
        for (unsigned i = a; i < b; i++)
            change_del_child(&d->c, a - 1);
    } else { /* another child becomes the leftmost one */
        node_init(rest, d->refs[0].pid, page_level(page), d->t->tree);
        page_inherit(rest, page);
        page_set_write_lsn(rest, page_write_lsn(page));
        node_set_leftmost(rest, node_child(page, b));
        ok = node_copy(rest, page, b, n);
        CH_ASSERT(ok); /* fix_inner() checked it */
        change_image(&d->c, rest);
    }
}

/* Logs the record: pages from `first` on are freed. */
static void
commit(struct drop *d, unsigned first)
{
    for (unsigned i = first; i < d->n; i++) {
        change_page(&d->c, d->refs[i].pid);
        change_free(&d->c);
    }
    (void)bt_commit(d->t, &d->ticket, &d->c, d->refs, d->n);
}

/* Frees the leaves [a, b) of the node at `depth`, which is on the lowest inner level: as many of the last of them as a
 * record may. */
static int
free_leaves(struct drop *d, unsigned depth, unsigned a, unsigned b)
{
    int rc = take_node(d, depth);

    if (b - a > d->pages)
        a = b - d->pages;
    if (rc == 0)
        rc = take_leaves(d, a, b);
    if (rc == 0) {
        change_begin(&d->c, d->record, sizeof(d->record));
        lose_children(d, a, b);
        commit(d, 1);
        d->freed += b - a;
    }
    unfix_all(d);
    return rc;
}

/* Frees the nodes of the path from `depth` on, which have one child each, and the leaf at its end. `parent`: the node above
 * them loses the child that the path takes, else there is none and the tree ends. */
static int
free_chain(struct drop *d, unsigned depth, bool parent)
{
    int rc = 0;

    if (parent)
        rc = take_node(d, depth - 1);
    for (unsigned i = depth; rc == 0 && i <= d->depth; i++)
        rc = take_node(d, i);
    if (rc == 0)
        rc = take_leaf(d, node_child(d->refs[d->n - 1].page, 0));
    if (rc == 0) {
        change_begin(&d->c, d->record, sizeof(d->record));
        if (parent)
            lose_children(d, d->path[depth - 1].index, d->path[depth - 1].index + 1);
        commit(d, parent ? 1 : 0);
        d->freed++;
    }
    unfix_all(d);
    return rc;
}

/* Walks from the child that the path takes at `depth` - 1, or from the root, down the last children. */
static int
walk_right(struct drop *d, unsigned depth, page_id pid, unsigned level)
{
    struct buf_ref ref;
    page_id ahead[BT_AHEAD];
    unsigned n, first;
    int rc;

    for (; level > 0; level--, depth++) {
        rc = fix_inner(d->t, pid, BUF_SHARED, level, &ref);
        if (rc != 0)
            return rc;
        n = node_count(ref.page);
        d->path[depth] = (struct drop_node){pid, n, n};
        d->depth = depth;
        first = n >= BT_AHEAD ? n - BT_AHEAD + 1 : 0;
        for (unsigned i = first; i <= n; i++)
            ahead[i - first] = node_child(ref.page, i);
        pid = node_child(ref.page, n);
        buf_unfix(d->t->buf, &ref);
        /* The next steps come here again and go left from there. */
        if (level > 1 && n > 0 && pid != 0 && !buf_is_cached(d->t->buf, pid))
            buf_prefetch(d->t->buf, ahead, n + 1 - first);
    }
    return 0;
}

/* One record: the right end of what hangs below path[above]; `above` UINT_MAX: of the whole tree, *root_gone then tells
 * that nothing is left. */
static int
prune(struct drop *d, unsigned above, bool *root_gone)
{
    unsigned first = above + 1, at = d->depth;

    if (d->path[at].count > 0)
        return free_leaves(d, at, 1, d->path[at].count + 1);
    while (at > first && d->path[at - 1].count == 0)
        at--;
    if (at > first || above != UINT_MAX)
        return free_chain(d, at, true);
    *root_gone = true;
    return free_chain(d, at, false);
}

/* ---- whole trees ---- */

/* The tree is its root. */
static int
drop_root_leaf(struct drop *d)
{
    int rc = take_leaf(d, d->t->root);

    if (rc == 0) {
        change_begin(&d->c, d->record, sizeof(d->record));
        commit(d, 0);
        d->freed++;
    }
    unfix_all(d);
    return rc;
}

/* *level of the root; *gone: there is no such tree any more. `flags`: of the root that is meant. */
static int
look_at_root(struct drop *d, unsigned flags, unsigned *level, bool *gone)
{
    struct buf_ref ref;
    int rc = buf_fix(d->t->buf, d->t->root, BUF_SHARED, &ref);

    *gone = rc == COHORT_NOTFOUND;
    if (rc != 0)
        return *gone ? 0 : rc;
    *gone = (page_type(ref.page) != PAGE_LEAF && page_type(ref.page) != PAGE_INNER) ||
            page_tree(ref.page) != d->t->tree || (page_flags(ref.page) & flags) != flags;
    *level = page_level(ref.page);
    if (!*gone && *level >= BT_DEPTH_MAX)
        rc = CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": level %u", d->t->root, *level);
    buf_unfix(d->t->buf, &ref);
    return rc;
}

static int
drop_one(struct drop *d, unsigned flags, bool *gone)
{
    unsigned level;
    int rc = look_at_root(d, flags, &level, gone);

    if (rc != 0 || *gone)
        return rc;
    if (level == 0) {
        *gone = true;
        return drop_root_leaf(d);
    }
    rc = walk_right(d, 0, d->t->root, level);
    return rc == 0 ? prune(d, UINT_MAX, gone) : rc;
}

static int
drop_some(struct bt *t, unsigned flags, unsigned max, bool *done)
{
    struct drop d;
    bool gone = false;
    int rc = 0;

    drop_begin(&d, t);
    d.pages = (unsigned)ch_clamp_u64(d.pages, 1, max == 0 ? 1 : max);
    do {
        rc = drop_reserve(&d);
        if (rc != 0)
            break;
        rt_lock(&t->smo);
        rc = drop_one(&d, flags, &gone);
        rt_unlock(&t->smo);
        wal_release(t->wal, &d.ticket);
    } while (rc == 0 && !gone && d.freed < max);
    if (rc == 0)
        *done = gone;
    return rc;
}

int
bt_drop_step(struct bt *t, unsigned max, bool *done)
{
    return drop_some(t, 0, max, done);
}

int
bt_bulk_drop_step(struct bt *t, unsigned max, bool *done)
{
    return drop_some(t, PAGE_PRIVATE, max, done);
}

/* ---- ranges ---- */

struct drop_range {
    struct bt_slice from, to;
};

/* Children [*a, *b) of the node lie wholly in the range; `low`, `high`: the node's own bounds do. */
static void
covered(const uint8_t *inner, const struct drop_range *r, bool low, bool high, unsigned *a,
        unsigned *b)
{
    unsigned n = node_count(inner);
    bool found;

    *a = low ? 0 : node_search(inner, r->from, &found) + 1;
    *b = node_search(inner, r->to, &found);
    if (found)
        ++*b;
    if (*b == n && high)
        *b = n + 1;
    if (*a == 0 && *b == n + 1)
        --*b; /* D4 */
}

/* Walks down to one end of the range until a node has children that lie wholly in it: path[d->depth]; [*a, *b) are those
 * children, *level its level. *a >= *b: there are none. */
static int
find_covered(struct drop *d, const struct drop_range *r, bool right, unsigned *level, unsigned *a,
             unsigned *b)
{
    struct buf_ref ref;
    page_id pid = d->t->root;
    bool low = r->from.bytes == 0, high = false; /* the empty key is the smallest */
    unsigned i;
    int rc;

    *a = *b = 0;
    for (d->depth = 0; *level > 0; d->depth++, --*level) {
        rc = fix_inner(d->t, pid, BUF_SHARED, *level, &ref);
        if (rc != 0)
            return rc;
        covered(ref.page, r, low, high, a, b);
        i = node_child_index(ref.page, right ? r->to : r->from, right);
        d->path[d->depth] = (struct drop_node){pid, i, node_count(ref.page)};
        if (*a < *b) {
            d->path[d->depth].index = *b - 1;
            pid = node_child(ref.page, *b - 1);
            buf_unfix(d->t->buf, &ref);
            return *level == 1 ? 0 : walk_right(d, d->depth + 1, pid, *level - 1);
        }
        low = i > 0 ? i >= *a : low;
        high = i < node_count(ref.page) ? i < *b : high;
        pid = node_child(ref.page, i);
        buf_unfix(d->t->buf, &ref);
    }
    return 0;
}

/* One record of whole leaves, if there are any: *did. */
static int
remove_leaves(struct drop *d, const struct drop_range *r, bool right, bool *did)
{
    unsigned level = 0, above, a, b;
    bool gone = false;
    int rc = look_at_root(d, 0, &level, &gone);

    if (rc == 0 && gone)
        rc = CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": not the root of tree %" PRIu32, d->t->root,
                     d->t->tree);
    if (rc != 0 || level == 0)
        return rc;
    above = level;
    rc = find_covered(d, r, right, &level, &a, &b);
    if (rc != 0 || a >= b)
        return rc;
    *did = true;
    if (level == 1)
        return free_leaves(d, d->depth, a, b);
    above -= level; /* depth of the node whose child is pruned */
    return prune(d, above, &gone);
}

/* Logs that entries [a, b) of the leaf go, in the shortest way. */
static void
lose_entries(struct drop *d, const struct buf_ref *leaf, unsigned a, unsigned b)
{
    _Alignas(8) uint8_t copy[CH_PAGE_BYTES], rest[CH_PAGE_BYTES];
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes = 0;
    bool ok = true;

    change_begin(&d->c, d->record, sizeof(d->record));
    change_page(&d->c, leaf->pid);
    if (b == node_count(leaf->page)) {
        change_cut(&d->c, a);
        return;
    }
    for (unsigned i = a; i < b; i++)
        bytes += 4 + node_key(leaf->page, i, key);
    if (bytes <= node_used(leaf->page)) {
        for (unsigned i = a; i < b; i++) {
            bytes = node_key(leaf->page, i, key);
            change_del(&d->c, (struct bt_slice){key, bytes});
        }
        return;
    }
    memcpy(copy, leaf->page, sizeof(copy));
    for (unsigned i = a; ok && i < b; i++)
        ok = node_del(copy, a);
    node_init(rest, leaf->pid, 0, d->t->tree);
    ok = ok && node_adopt(rest, copy);
    CH_ASSERT(ok); /* the leaf was checked */
    change_image(&d->c, rest);
}

/* A removal of a range. */
struct removal {
    struct drop_range range;
    unsigned max, removed; /* entries, or whole leaves */
    size_t at_bytes;
    uint8_t at[COHORT_KEY_MAX]; /* no entry of the range is below it; stages LEFT_LEAF, REST */
};

/* Entries of the leaf of m->at go, as many as may. *whole: none of the range is left in it; m->at is its upper bound then. *last: that
 * reaches up to the range's end. */
static int
remove_entries(struct drop *d, struct removal *m, bool *whole, bool *last)
{
    struct bt_slice at = {m->at, m->at_bytes};
    struct bt_bounds bounds = {0};
    struct buf_ref leaf;
    const char *wrong;
    unsigned a, b, end;
    bool found;
    int rc = bt_leaf_fix(d->t, BT_AT, at, BUF_EXCLUSIVE, &bounds, &leaf);

    if (rc != 0)
        return rc;
    wrong = node_check(leaf.page);
    if (wrong != NULL) {
        rc = CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": %s", leaf.pid, wrong);
        goto out;
    }
    a = node_search(leaf.page, at, &found);
    end = node_search(leaf.page, m->range.to, &found);
    b = (unsigned)ch_min_u64(end, (uint64_t)a + (m->max - m->removed));
    if (a < b) {
        lose_entries(d, &leaf, a, b);
        (void)bt_commit(d->t, &d->ticket, &d->c, &leaf, 1);
        m->removed += b - a;
    }
    *whole = b >= end;
    *last = !bounds.has_upper ||
            node_compare((struct bt_slice){bounds.upper, bounds.upper_bytes}, m->range.to) >= 0;
    if (*whole && !*last) {
        memcpy(m->at, bounds.upper, bounds.upper_bytes);
        m->at_bytes = bounds.upper_bytes;
    }
out:
    buf_unfix(d->t->buf, &leaf);
    return rc;
}

static void
removal_rewind(struct removal *m)
{
    m->at_bytes = m->range.from.bytes;
    if (m->at_bytes > 0)
        memcpy(m->at, m->range.from.data, m->at_bytes);
}

/* Stages of a removal. A record of stage MIDDLE_x may have to be repeated before there is nothing left for it. REST walks from
 * leaf to leaf: that is the right end, and whatever others' splits and merges have moved meanwhile (D5). */
enum stage {
    LEFT_LEAF,
    MIDDLE_LEFT,
    MIDDLE_RIGHT,
    REST,
    REMOVED
};

static int
remove_stage(struct drop *d, struct removal *m, enum stage *stage)
{
    bool did = false, whole = false, last = false;
    unsigned before = d->freed;
    int rc;

    if (*stage == LEFT_LEAF || *stage == REST) {
        rc = remove_entries(d, m, &whole, &last);
        if (rc == 0 && whole && last)
            *stage = REMOVED;
        else if (rc == 0 && whole && *stage == LEFT_LEAF)
            *stage = MIDDLE_LEFT;
        return rc;
    }
    rt_lock(&d->t->smo);
    rc = remove_leaves(d, &m->range, *stage == MIDDLE_RIGHT, &did);
    rt_unlock(&d->t->smo);
    m->removed += d->freed - before;
    if (rc == 0 && !did)
        *stage = *stage == MIDDLE_LEFT ? MIDDLE_RIGHT : REST;
    if (*stage == REST)
        removal_rewind(m);
    return rc;
}

int
bt_remove_range(struct bt *t, struct bt_slice from, struct bt_slice to, unsigned max, bool system,
                bool *more)
{
    struct removal m = {.range = {from, to}, .max = max};
    enum stage stage = LEFT_LEAF;
    struct drop d;
    int rc = 0;

    CH_ASSERT(t->ver == NULL && max > 0);
    CH_ASSERT(from.bytes <= sizeof(m.at));
    if (node_compare(from, to) >= 0) {
        *more = false;
        return 0;
    }
    drop_begin(&d, t);
    d.class = system ? WAL_SYSTEM : WAL_SHRINK;
    d.pages = (unsigned)ch_min_u64(d.pages, max);
    removal_rewind(&m);
    while (rc == 0 && stage != REMOVED && m.removed < max) {
        rc = drop_reserve(&d);
        if (rc != 0)
            break;
        rc = remove_stage(&d, &m, &stage);
        wal_release(t->wal, &d.ticket);
    }
    if (rc != 0)
        return rc;
    *more = stage != REMOVED;
    if (m.removed > 0) {
        bt_merge(t, from, d.class);
        bt_merge(t, to, d.class);
    }
    return 0;
}
