/* smo.c - structure changes: split, merge, and the root growing and shrinking.
 *
 * Each is one log record under the tree's mutex, and leaves a valid tree; what needs several (a
 * split whose parent is full) is done from above, one record at a time. Under the mutex inner nodes
 * stand still: only structure changes touch them. Leaves may change until they are latched, so
 * whether they still are full or small is asked again then.
 *
 *   split        right half -> new page (image), the page keeps the left half, parent gets a
 *                separator
 *   push down    the root's contents -> new page (image), the root becomes its parent, one level
 *                higher: then that is split
 *   merge        right neighbour -> page (image), parent loses the separator, right page is freed
 *   collapse     the contents of a root's only child -> root (image), the child is freed
 *
 * Invariants:
 *   O1  latches: parent, then children left to right, each waited for; so nobody may wait for an
 *       inner page while holding a leaf.
 *   O2  everything that can fail comes before the first page changes; a page that is logged was
 *       checked before.
 *   O3  a page that takes entries over also takes over write history and write LSN, as maximum
 *       (R1).
 *   O4  ghosts and uncommitted entries are entries: they move, and count, like others (R5).
 *   O5  merging stops at 85 % (unless a side is empty), so that the next few inserts do not split
 *       again.
 *
 * Crash: see tree.c. An unused new page of a change that was not logged has no image and no record:
 * its id is free again.
 */
#include <inttypes.h>

#include "base/bug.h"
#include "btree/tree.h"

enum {
    MERGE_FULL_PERCENT = 85,
    MERGES_MAX = 64, /* in one call */
};

struct path {
    unsigned depth;   /* index of the leaf */
    bool root_single; /* the root is an inner node with a single child */
    page_id pid[BT_DEPTH_MAX];
};

struct want { /* what a split is to make room for */
    struct bt_slice key;
    size_t value_bytes;
};

static void
unfix_all(struct bt *t, struct buf_ref *refs, unsigned n)
{
    while (n > 0)
        buf_unfix(t->buf, &refs[--n]);
}

/* A node that is about to be logged as a whole. */
static int
node_verify_whole(const struct buf_ref *ref)
{
    const char *wrong = node_check(ref->page);

    return wrong == NULL ? 0 : CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": %s", ref->pid, wrong);
}

static int
fix_node(struct bt *t, page_id pid, enum buf_mode mode, unsigned level, struct buf_ref *ref)
{
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_fix(t->buf, pid, mode, ref);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 " of tree %" PRIu32 ", level %u: no image",
                       pid, t->tree, level);
    if (rc != 0)
        return rc;
    rc = bt_node_verify(t, ref, level);
    if (rc == 0 && mode == BUF_EXCLUSIVE)
        rc = node_verify_whole(ref);
    if (rc != 0)
        buf_unfix(t->buf, ref);
    return rc;
}

/* The pages from the root to the leaf of `key`; smo held. */
static int
path_find(struct bt *t, struct bt_slice key, struct path *path)
{
    struct buf_ref ref, child;
    page_id pid;
    unsigned level;
    int rc = buf_fix(t->buf, t->root, BUF_SHARED, &ref);

    if (rc != 0)
        return rc;
    level = page_level(ref.page);
    if (level >= BT_DEPTH_MAX)
        rc = CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": level %u", t->root, level);
    else
        rc = bt_node_verify(t, &ref, level);
    path->depth = level;
    path->root_single = level > 0 && node_count(ref.page) == 0;
    path->pid[0] = t->root;
    for (unsigned d = 1; rc == 0 && d <= path->depth; d++) {
        pid = node_child(ref.page, node_child_index(ref.page, key, false));
        rc = fix_node(t, pid, BUF_SHARED, path->depth - d, &child);
        if (rc != 0)
            break;
        buf_unfix(t->buf, &ref);
        ref = child;
        path->pid[d] = pid;
    }
    buf_unfix(t->buf, &ref);
    return rc;
}

/* ---- split ---- */

static bool
still_full(const uint8_t *leaf, const struct want *w)
{
    return node_fit(leaf, w->key, w->value_bytes).how == NODE_FULL;
}

/* The root's contents go to a new page; the root becomes its only parent. */
static int
push_down(struct bt *t, unsigned level, const struct want *w, struct wal_ticket *ticket)
{
    _Alignas(8) uint8_t top[CH_PAGE_BYTES];
    uint8_t buf[CHANGE_BYTES_MAX];
    struct buf_ref refs[2]; /* root, child */
    struct change c;
    bool ok;
    int rc;

    if (level + 1 >= BT_DEPTH_MAX)
        return CH_FAIL(COHORT_EFULL, "tree %" PRIu32 ": %u levels", t->tree, level);
    rc = fix_node(t, t->root, BUF_EXCLUSIVE, level, &refs[0]);
    if (rc != 0)
        return rc;
    if (level == 0 && !still_full(refs[0].page, w)) {
        unfix_all(t, refs, 1);
        return 0;
    }
    rc = buf_new(t->buf, &refs[1]);
    if (rc != 0) {
        unfix_all(t, refs, 1);
        return rc;
    }
    node_init(refs[1].page, refs[1].pid, (uint8_t)level, t->tree);
    ok = node_adopt(refs[1].page, refs[0].page);
    CH_ASSERT(ok); /* O2: checked by fix_node() */
    node_init(top, t->root, (uint8_t)(level + 1), t->tree);
    page_inherit(top, refs[0].page);
    page_set_write_lsn(top, page_write_lsn(refs[0].page));
    node_set_leftmost(top, refs[1].pid);
    change_begin(&c, buf, sizeof(buf));
    change_page(&c, refs[0].pid);
    change_image(&c, top);
    change_page(&c, refs[1].pid);
    change_image(&c, refs[1].page);
    (void)bt_commit(t, ticket, &c, refs, 2);
    unfix_all(t, refs, 2);
    return 0;
}

/* Parent and node are latched, the split is planned and the parent has room. */
static int
split_commit(struct bt *t, struct buf_ref *refs, const struct node_split *s,
             struct wal_ticket *ticket)
{
    uint8_t buf[CHANGE_BYTES_MAX];
    struct buf_ref *node = &refs[1], *right = &refs[2];
    struct change c;
    bool ok;
    int rc = buf_new(t->buf, right);

    if (rc != 0)
        return rc;
    node_init(right->page, right->pid, page_level(node->page), t->tree);
    page_inherit(right->page, node->page); /* O3 */
    page_set_write_lsn(right->page, page_write_lsn(node->page));
    ok = node_split_right(right->page, node->page, s);
    CH_ASSERT(ok);
    change_begin(&c, buf, sizeof(buf));
    change_page(&c, refs[0].pid);
    change_add_child(&c, (struct bt_slice){s->sep, s->sep_bytes}, right->pid);
    change_page(&c, node->pid);
    change_cut(&c, s->at + CH_BUG(SPLIT_OFF_BY_ONE));
    change_page(&c, right->pid);
    change_image(&c, right->page);
    (void)bt_commit(t, ticket, &c, refs, 3);
    buf_unfix(t->buf, right);
    return 0;
}

/* Splits the page at `depth` of the path so that `w` finds room. ERETRY: the parent has no room for
 * the separator, which is then in *s. */
static int
split_at(struct bt *t, const struct path *path, unsigned depth, const struct want *w,
         struct wal_ticket *ticket, struct node_split *s)
{
    struct buf_ref refs[3]; /* parent, node, right */
    struct node_fit f;
    unsigned level = path->depth - depth;
    int rc = fix_node(t, path->pid[depth - 1], BUF_EXCLUSIVE, level + 1, &refs[0]);

    if (rc != 0)
        return rc;
    rc = fix_node(t, path->pid[depth], BUF_EXCLUSIVE, level, &refs[1]);
    if (rc != 0) {
        unfix_all(t, refs, 1);
        return rc;
    }
    if (level == 0 && !still_full(refs[1].page, w))
        goto out;
    node_split_plan(refs[1].page, w->key, w->value_bytes, s);
    f = node_fit(refs[0].page, (struct bt_slice){s->sep, s->sep_bytes}, 0);
    if (f.found)
        rc =
            CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": has the separator of page %" PRIu64 " already",
                    refs[0].pid, refs[1].pid);
    else if (f.how == NODE_FULL)
        rc = COHORT_ERETRY;
    else
        rc = split_commit(t, refs, s, ticket);
out:
    unfix_all(t, refs, 2);
    return rc;
}

/* One record: the highest page on the path that has to make room. */
static int
split_step(struct bt *t, const struct want *want, struct wal_ticket *ticket)
{
    struct path path;
    struct want w = *want;
    struct node_split s[2]; /* by turns: the want of a level is the separator of the one below */
    unsigned turn = 0;
    int rc = path_find(t, w.key, &path);

    s[0].sep_bytes = s[1].sep_bytes = 0;
    if (rc != 0)
        return rc;
    for (unsigned d = path.depth; d > 0; d--) {
        rc = split_at(t, &path, d, &w, ticket, &s[turn]);
        if (rc != COHORT_ERETRY)
            return rc;
        CH_ASSERT(s[turn].sep_bytes > 0);
        w.key = (struct bt_slice){s[turn].sep, s[turn].sep_bytes};
        w.value_bytes = 0;
        turn = 1 - turn;
    }
    return push_down(t, path.depth, want, ticket);
}

int
bt_split(struct bt *t, struct bt_slice key, size_t value_bytes, enum wal_class c)
{
    struct want w = {key, value_bytes};
    struct wal_ticket ticket = {0};
    int rc = buf_admit(t->buf, c == WAL_USER);

    if (rc == 0)
        rc = wal_reserve(t->wal, c, WAL_RECORD_HEADER + CHANGE_BYTES_MAX, &ticket);
    if (rc != 0)
        return rc;
    rt_lock(&t->smo);
    rc = split_step(t, &w, &ticket);
    rt_unlock(&t->smo);
    wal_release(t->wal, &ticket);
    return rc;
}

/* ---- merge ---- */

/* Whether two latched neighbours may become one page. */
static bool
may_merge(const uint8_t *left, struct bt_slice sep, const uint8_t *right)
{
    size_t room = CH_PAGE_BYTES - (page_level(left) == 0 ? NODE_LEAF_BODY : NODE_INNER_BODY);
    size_t limit = node_count(left) == 0 || node_count(right) == 0
                       ? room
                       : room * MERGE_FULL_PERCENT / 100; /* O5 */

    if (!bt_underfull(left) && !bt_underfull(right))
        return false;
    return node_merged_used(left, sep, right) <= limit;
}

static void
merge_commit(struct bt *t, struct buf_ref *refs, unsigned i, struct bt_slice sep,
             struct wal_ticket *ticket)
{
    _Alignas(8) uint8_t both[CH_PAGE_BYTES];
    uint8_t buf[CHANGE_BYTES_MAX];
    const uint8_t *left = refs[1].page, *right = refs[2].page;
    struct change c;
    bool ok;

    node_init(both, refs[1].pid, page_level(left), t->tree);
    page_inherit(both, left);
    page_set_write_lsn(both, ch_max_u64(page_write_lsn(left),
                                        CH_BUG(R1_MERGE_LSN) ? 0 : page_write_lsn(right))); /* O3 */
    ok = node_merge(both, left, sep, right);
    CH_ASSERT(ok);
    change_begin(&c, buf, sizeof(buf));
    change_page(&c, refs[0].pid);
    change_del_child(&c, i);
    change_page(&c, refs[1].pid);
    change_image(&c, both);
    change_page(&c, refs[2].pid);
    change_free(&c);
    (void)bt_commit(t, ticket, &c, refs, 3);
}

/* Merges children i and i + 1 of the latched parent refs[0] if they are small enough. */
static int
merge_pair(struct bt *t, struct buf_ref *refs, unsigned i, struct wal_ticket *ticket, bool *did)
{
    uint8_t sep_buf[COHORT_KEY_MAX];
    unsigned level = page_level(refs[0].page) - 1u;
    struct bt_slice sep = {sep_buf, node_key(refs[0].page, i, sep_buf)};
    int rc = fix_node(t, node_child(refs[0].page, i), BUF_EXCLUSIVE, level, &refs[1]);

    if (rc != 0)
        return rc;
    rc = fix_node(t, node_child(refs[0].page, i + 1), BUF_EXCLUSIVE, level, &refs[2]);
    if (rc != 0) {
        buf_unfix(t->buf, &refs[1]);
        return rc;
    }
    *did = may_merge(refs[1].page, sep, refs[2].page);
    if (*did)
        merge_commit(t, refs, i, sep, ticket);
    unfix_all(t, &refs[1], 2);
    return 0;
}

/* Tries both neighbours of the page at `depth`. */
static int
merge_at(struct bt *t, const struct path *path, unsigned depth, struct bt_slice key,
         struct wal_ticket *ticket, bool *did)
{
    struct buf_ref refs[3]; /* parent, left, right */
    unsigned i;
    int rc = fix_node(t, path->pid[depth - 1], BUF_EXCLUSIVE, path->depth - depth + 1, &refs[0]);

    if (rc != 0)
        return rc;
    i = node_child_index(refs[0].page, key, false);
    if (i < node_count(refs[0].page))
        rc = merge_pair(t, refs, i, ticket, did);
    if (rc == 0 && !*did && i > 0)
        rc = merge_pair(t, refs, i - 1, ticket, did);
    buf_unfix(t->buf, &refs[0]);
    return rc;
}

/* A root with a single child takes over its contents. */
static int
collapse(struct bt *t, unsigned level, struct wal_ticket *ticket, bool *did)
{
    _Alignas(8) uint8_t top[CH_PAGE_BYTES];
    uint8_t buf[CHANGE_BYTES_MAX];
    struct buf_ref refs[2]; /* root, child */
    struct change c;
    bool ok;
    int rc = fix_node(t, t->root, BUF_EXCLUSIVE, level, &refs[0]);

    if (rc != 0)
        return rc;
    if (node_count(refs[0].page) > 0)
        goto out;
    rc = fix_node(t, node_child(refs[0].page, 0), BUF_EXCLUSIVE, level - 1, &refs[1]);
    if (rc != 0)
        goto out;
    node_init(top, t->root, (uint8_t)(level - 1), t->tree);
    ok = node_adopt(top, refs[1].page);
    CH_ASSERT(ok);
    page_set_write_lsn(top, ch_max_u64(page_write_lsn(refs[0].page), page_write_lsn(top)));
    change_begin(&c, buf, sizeof(buf));
    change_page(&c, refs[0].pid);
    change_image(&c, top);
    change_page(&c, refs[1].pid);
    change_free(&c);
    (void)bt_commit(t, ticket, &c, refs, 2);
    buf_unfix(t->buf, &refs[1]);
    *did = true;
out:
    buf_unfix(t->buf, &refs[0]);
    return rc;
}

/* One record, or *did stays false: nothing on the path is small or no neighbour has room. */
static int
merge_step(struct bt *t, struct bt_slice key, struct wal_ticket *ticket, bool *did)
{
    struct path path;
    struct buf_ref ref;
    bool small = true;
    int rc = path_find(t, key, &path);

    if (rc != 0)
        return rc;
    for (unsigned d = path.depth; rc == 0 && !*did && d > 0; d--) {
        rc = fix_node(t, path.pid[d], BUF_SHARED, path.depth - d, &ref);
        if (rc != 0)
            break;
        small = bt_underfull(ref.page);
        buf_unfix(t->buf, &ref);
        if (!small)
            continue; /* what is above it may be small all the same (drop.c) */
        rc = merge_at(t, &path, d, key, ticket, did);
    }
    if (rc == 0 && !*did && path.root_single)
        rc = collapse(t, path.depth, ticket, did);
    return rc;
}

void
bt_merge(struct bt *t, struct bt_slice key, enum wal_class c)
{
    struct wal_ticket ticket = {0};
    bool did = true;
    int rc = 0;

    /* The delete that led here is done and logged: whatever fails leaves a valid tree with a small
     * page in it. */
    for (unsigned i = 0; rc == 0 && did && i < MERGES_MAX; i++) {
        did = false;
        rc = wal_reserve(t->wal, c, WAL_RECORD_HEADER + CHANGE_BYTES_MAX, &ticket);
        if (rc != 0)
            break;
        rt_lock(&t->smo);
        rc = merge_step(t, key, &ticket, &did);
        rt_unlock(&t->smo);
        wal_release(t->wal, &ticket);
    }
}
