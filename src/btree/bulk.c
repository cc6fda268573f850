/* bulk.c - loads an empty tree with entries in order of keys.
 *
 *        private root                   a put goes to `now`; a full one becomes `last`, and the `last` before it gets its
 *       /     |      \                  page: one record {parent: new child, leaf: image}. So the last two leaves can
 *    leaf   leaf ..  leaf |last| |now|  share when the end comes, and none stays nearly empty.
 *
 * Only the right edge of the private tree grows. A full inner page stays as it is; the new leaf then begins a new page on
 * that level, in the same record. A full root is pushed down, as in smo.c. The end is one record: the tree's root page
 * gets the contents of the private root, which is freed.
 *
 * Invariants:
 *   U1  after every record the private root is the root of a valid tree that holds all pages logged so far: so a crash or
 *       an error leaves something that bt_bulk_drop_step() can free, and nothing else.
 *   U2  the private root carries the flag PAGE_PRIVATE until it is freed: a page that got its id later is not mistaken
 *       for it, even if it belongs to the same tree.
 *   U3  `born` is set before the tree's root is unlatched and before the commit ends: no view below it sees an entry.
 *   U4  a page is changed after everything that can fail (O2); log room is reserved before any latch (R8).
 *
 * Leaves have write LSN 0: that a view is too old for all of them is said by `born`, once and not page by page.
 *
 * Locks: the private pages are nobody else's. Finish: the tree's mutex, its root, the private root, the commit lock.
 * Memory: two leaves, and page ids of the right edge.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "btree/tree.h"
#include "ver/ver.h"

struct bt_bulk {
    _Alignas(64) uint8_t pages[2][CH_PAGE_BYTES];
    struct bt *t;
    uint8_t *last, *now; /* `last` is empty as long as there is one leaf */
    page_id edge
        [BT_DEPTH_MAX]; /* the rightmost page of each inner level; [level] is the private root */
    unsigned level;     /* of the private root */
    bool any;           /* there is an entry; its key is in `key` */
    size_t prefix;      /* bytes, of `now` when it is not empty */
    size_t key_bytes;
    uint8_t key[COHORT_KEY_MAX];
    /* Separators to the left of `last` and of `now`; the first leaf has none. */
    size_t last_sep_bytes, now_sep_bytes;
    uint8_t last_sep[COHORT_KEY_MAX], now_sep[COHORT_KEY_MAX];
    uint8_t record[CHANGE_BYTES_MAX];
    struct buf_ref refs[BT_DEPTH_MAX + 2]; /* pages of the record */
    unsigned n;
    struct change c;
    struct wal_ticket ticket;
};

static void
unfix_all(struct bt_bulk *b)
{
    while (b->n > 0)
        buf_unfix(b->t->buf, &b->refs[--b->n]);
}

static int
reserve(struct bt_bulk *b)
{
    int rc = buf_admit(b->t->buf, true);

    if (rc == 0)
        rc = wal_reserve(b->t->wal, WAL_USER, WAL_RECORD_HEADER + CHANGE_BYTES_MAX, &b->ticket);
    change_begin(&b->c, b->record, sizeof(b->record));
    return rc;
}

/* Latches a page of the private tree for the record. */
static int
take(struct bt_bulk *b, page_id pid, unsigned level)
{
    struct buf_ref *ref = &b->refs[b->n];
    int rc = buf_fix(b->t->buf, pid, BUF_EXCLUSIVE, ref);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 " of tree %" PRIu32 ": no image", pid,
                       b->t->tree);
    if (rc != 0)
        return rc;
    rc = bt_node_verify(b->t, ref, level);
    if (rc == 0)
        b->n++;
    else
        buf_unfix(b->t->buf, ref);
    return rc;
}

/* The same, of a page whose contents go elsewhere: they are checked first (O2). */
static int
take_whole(struct bt_bulk *b, page_id pid, unsigned level)
{
    const char *wrong;
    int rc = take(b, pid, level);

    if (rc != 0)
        return rc;
    wrong = node_check(b->refs[b->n - 1].page);
    return wrong == NULL ? 0 : CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": %s", pid, wrong);
}

/* A new page for the record. One that is not used after all has no image and no record: the cleaner frees its id. */
static int
take_new(struct bt_bulk *b)
{
    int rc = buf_new(b->t->buf, &b->refs[b->n]);

    if (rc == 0)
        b->n++;
    return rc;
}

/* ---- begin ---- */

/* `at` 0: a page that is allocated here. */
static int
create(struct bt *t, page_id at, struct bt_bulk **out, page_id *root)
{
    struct bt_bulk *b = ch_alloc_aligned(sizeof(*b));
    page_id pid = 0;
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "bulk load: %zu bytes", sizeof(*b));
    b->t = t;
    b->last = b->pages[0];
    b->now = b->pages[1];
    node_init(b->last, 0, 0, t->tree);
    node_init(b->now, 0, 0, t->tree);
    rc = reserve(b);
    if (rc == 0)
        rc = at == 0 ? buf_new(t->buf, &b->refs[0]) : buf_new_at(t->buf, at, &b->refs[0]);
    if (rc == 0) {
        b->n = 1;
        pid = b->refs[0].pid;
        node_init(b->refs[0].page, pid, 0, t->tree);
        page_set_flags(b->refs[0].page, PAGE_PRIVATE); /* U2 */
        change_page(&b->c, pid);
        change_image(&b->c, b->refs[0].page);
        (void)bt_commit(t, &b->ticket, &b->c, b->refs, 1);
    }
    unfix_all(b);
    wal_release(t->wal, &b->ticket);
    if (rc != 0) {
        bt_bulk_destroy(b);
        return rc;
    }
    b->edge[0] = pid;
    *root = pid;
    *out = b;
    return 0;
}

int
bt_bulk_create(struct bt *t, struct bt_bulk **out, page_id *root)
{
    return create(t, 0, out, root);
}

int
bt_bulk_create_at(struct bt *t, page_id root, struct bt_bulk **out)
{
    page_id same;

    CH_ASSERT(root != 0);
    return create(t, root, out, &same);
}

void
bt_bulk_destroy(struct bt_bulk *b)
{
    if (b != NULL)
        ch_free_aligned(b);
}

/* ---- pages ---- */

/* The private root becomes the parent of a page with its contents. Log room is reserved; the record is written. */
static int
push_down(struct bt_bulk *b)
{
    _Alignas(8) uint8_t top[CH_PAGE_BYTES];
    struct bt *t = b->t;
    bool ok;
    int rc;

    if (b->level + 1 >= BT_DEPTH_MAX)
        return CH_FAIL(COHORT_EFULL, "tree %" PRIu32 ": %u levels", t->tree, b->level);
    rc = take_whole(b, b->edge[b->level], b->level);
    if (rc == 0)
        rc = take_new(b);
    if (rc == 0) {
        node_init(b->refs[1].page, b->refs[1].pid, (uint8_t)b->level, t->tree);
        ok = node_adopt(b->refs[1].page, b->refs[0].page);
        CH_ASSERT(ok); /* take_whole() checked it */
        node_init(top, b->refs[0].pid, (uint8_t)(b->level + 1), t->tree);
        page_set_flags(top, PAGE_PRIVATE); /* U2 */
        node_set_leftmost(top, b->refs[1].pid);
        change_page(&b->c, b->refs[0].pid);
        change_image(&b->c, top);
        change_page(&b->c, b->refs[1].pid);
        change_image(&b->c, b->refs[1].page);
        (void)bt_commit(t, &b->ticket, &b->c, b->refs, 2);
        b->edge[b->level] = b->refs[1].pid;
        b->edge[++b->level] = b->refs[0].pid;
    }
    unfix_all(b);
    return rc;
}

/* The new page refs[i], the leaf if it is the last one, goes into the record. */
static void
log_new(struct bt_bulk *b, unsigned i, unsigned level, const uint8_t *leaf)
{
    uint8_t *page = b->refs[i].page;
    bool ok;

    node_init(page, b->refs[i].pid, (uint8_t)level, b->t->tree);
    if (level > 0) {
        node_set_leftmost(page, b->refs[i + 1].pid);
        /* cppcheck-suppress arrayIndexOutOfBoundsCond ; level <= b->level < BT_DEPTH_MAX */
        b->edge[level] = b->refs[i].pid;
    } else {
        ok = node_adopt(page, leaf);
        CH_ASSERT(ok); /* this file made it */
    }
    change_page(&b->c, b->refs[i].pid);
    change_image(&b->c, page);
}

/* The first leaf: the private root, an empty leaf until now, becomes its parent. */
static int
add_first(struct bt_bulk *b, const uint8_t *leaf)
{
    _Alignas(8) uint8_t top[CH_PAGE_BYTES];
    int rc = take(b, b->edge[0], 0);

    if (rc == 0)
        rc = take_new(b);
    if (rc == 0) {
        node_init(top, b->refs[0].pid, 1, b->t->tree);
        page_set_flags(top, PAGE_PRIVATE); /* U2 */
        node_set_leftmost(top, b->refs[1].pid);
        change_page(&b->c, b->refs[0].pid);
        change_image(&b->c, top);
        log_new(b, 1, 0, leaf);
        (void)bt_commit(b->t, &b->ticket, &b->c, b->refs, 2);
        b->edge[1] = b->refs[0].pid;
        b->level = 1;
    }
    unfix_all(b);
    return rc;
}

/* Another leaf, below the lowest page of the right edge that has room for its separator. ERETRY: not even the root has. */
static int
add_next(struct bt_bulk *b, const uint8_t *leaf, struct bt_slice sep)
{
    unsigned level, l;
    int rc = 0;

    for (level = 1; rc == 0 && level <= b->level; level++) {
        rc = take(b, b->edge[level], level);
        if (rc != 0 || node_fit(b->refs[0].page, sep, 0).how != NODE_FULL)
            break;
        unfix_all(b);
    }
    if (rc == 0 && level > b->level)
        return COHORT_ERETRY;
    for (l = level; rc == 0 && l > 0; l--)
        rc = take_new(b);
    if (rc == 0) {
        change_page(&b->c, b->refs[0].pid);
        change_add_child(&b->c, sep, b->refs[1].pid);
        for (l = 1; l < b->n; l++)
            log_new(b, l, level - l, leaf);
        (void)bt_commit(b->t, &b->ticket, &b->c, b->refs, b->n);
    }
    unfix_all(b);
    return rc;
}

/* Gives a finished leaf its page. */
static int
add_leaf(struct bt_bulk *b, const uint8_t *leaf, struct bt_slice sep)
{
    int rc;

    do {
        rc = reserve(b);
        if (rc == 0)
            rc = b->level == 0 ? add_first(b, leaf) : add_next(b, leaf, sep);
        if (rc == COHORT_ERETRY) {
            rc = push_down(b);
            if (rc == 0)
                rc = COHORT_ERETRY;
        }
        wal_release(b->t->wal, &b->ticket);
    } while (rc == COHORT_ERETRY);
    return rc;
}

/* ---- entries ---- */

/* `now` is full: it becomes `last`, and `key` begins a new leaf. */
static int
turn(struct bt_bulk *b, struct bt_slice key)
{
    uint8_t *full = b->now;
    int rc = 0;

    if (node_count(b->last) > 0)
        rc = add_leaf(b, b->last, (struct bt_slice){b->last_sep, b->last_sep_bytes});
    if (rc != 0)
        return rc;
    b->now = b->last;
    b->last = full;
    node_init(b->now, 0, 0, b->t->tree);
    memcpy(b->last_sep, b->now_sep, b->now_sep_bytes);
    b->last_sep_bytes = b->now_sep_bytes;
    b->now_sep_bytes = node_separator((struct bt_slice){b->key, b->key_bytes}, key, b->now_sep);
    return 0;
}

/* Puts the greatest key of all into `now`; false: it is full. What node_put() would do, without its search where nothing has
 * to be rebuilt. */
static bool
append(struct bt_bulk *b, struct bt_slice key, struct bt_slice value, unsigned flags)
{
    unsigned count = node_count(b->now);
    size_t used = node_low_bytes(b->now) + node_high_bytes(b->now);
    struct node_fit f = {.how = NODE_FITS, .prefix = (unsigned)b->prefix, .index = count};

    if (count == 0 || key.bytes < b->prefix ||
        (b->prefix > 0 && memcmp(key.data, b->key, b->prefix) != 0) ||
        used + NODE_SLOT_BYTES + NODE_LEAF_ENTRY + key.bytes - b->prefix + value.bytes >
            CH_PAGE_BYTES)
        f = node_fit(b->now, key, value.bytes);
    if (f.how == NODE_FULL)
        return false;
    b->prefix = f.prefix;
    return node_put_fit(b->now, &f, key, value, flags);
}

int
bt_bulk_put(struct bt_bulk *b, struct bt_slice key, struct bt_slice value, unsigned flags)
{
    bool ok;
    int rc;

    CH_ASSERT(key.bytes <= COHORT_KEY_MAX && key.bytes + value.bytes <= BT_ENTRY_MAX);
    if (b->any && node_compare((struct bt_slice){b->key, b->key_bytes}, key) >= 0)
        return CH_FAIL(COHORT_EINVAL, "bulk load: keys do not ascend");
    ok = append(b, key, value, flags);
    if (!ok) {
        rc = turn(b, key);
        if (rc != 0)
            return rc;
        ok = append(b, key, value, flags);
    }
    CH_ASSERT(ok); /* an empty leaf takes any entry (N5) */
    if (key.bytes > 0)
        memcpy(b->key, key.data, key.bytes);
    b->key_bytes = key.bytes;
    b->any = true;
    return 0;
}

/* ---- the end ---- */

/* The entries of `left` that move to its neighbour when the first k stay; of an inner node entry k goes up. */
static void
share_part(const uint8_t *left, unsigned k, uint8_t *part)
{
    unsigned up = page_level(left) > 0;
    bool ok;

    node_init(part, page_pid(left), page_level(left), page_tree(left));
    if (up)
        node_set_leftmost(part, node_child(left, k + 1));
    ok = node_copy(part, left, k + up, node_count(left));
    CH_ASSERT(ok); /* a part of a node that was checked */
}

/* How many of the first entries stay when two neighbours share their entries as evenly as can be, the right one being small;
 * all, when they cannot. `part` gets what moves. */
static unsigned
share_point(const uint8_t *left, struct bt_slice sep, const uint8_t *right, uint8_t *part)
{
    unsigned n = node_count(left), best = n;
    size_t both = node_used(left) + node_used(right), most = node_used(right), moved, least;

    for (unsigned k = n - 1; k > 0; k--) {
        share_part(left, k, part);
        moved = node_merged_used(part, sep, right);
        least = moved * 2 < both ? moved : moved < both ? both - moved : 0;
        if (least > most) {
            most = least;
            best = k;
        }
        if (moved * 2 >= both)
            break;
    }
    if (best < n)
        share_part(left, best, part);
    return best;
}

/* The last two leaves; `last` is not empty. */
static void
share_leaves(struct bt_bulk *b)
{
    _Alignas(8) uint8_t part[CH_PAGE_BYTES], right[CH_PAGE_BYTES], left[CH_PAGE_BYTES];
    uint8_t lower[COHORT_KEY_MAX], upper[COHORT_KEY_MAX];
    struct bt_slice sep = {b->now_sep, b->now_sep_bytes};
    unsigned k;
    bool ok;

    if (!bt_underfull(b->now))
        return;
    k = share_point(b->last, sep, b->now, part);
    if (k == node_count(b->last))
        return;
    node_init(right, 0, 0, b->t->tree);
    node_init(left, 0, 0, b->t->tree);
    if (!node_merge(right, part, sep, b->now))
        return; /* one large entry more than fits */
    ok = node_copy(left, b->last, 0, k);
    CH_ASSERT(ok);
    b->now_sep_bytes =
        node_separator((struct bt_slice){lower, node_key(b->last, k - 1, lower)},
                       (struct bt_slice){upper, node_key(b->last, k, upper)}, b->now_sep);
    memcpy(b->last, left, CH_PAGE_BYTES);
    memcpy(b->now, right, CH_PAGE_BYTES);
}

/* refs: parent, its last two children. The right one is small: they share, if the parent has room for the new separator. */
static void
share_inner_commit(struct bt_bulk *b)
{
    _Alignas(8) uint8_t part[CH_PAGE_BYTES], right[CH_PAGE_BYTES], parent[CH_PAGE_BYTES];
    uint8_t old_sep[COHORT_KEY_MAX], new_sep[COHORT_KEY_MAX];
    const uint8_t *left = b->refs[1].page;
    unsigned last = node_count(b->refs[0].page) - 1, k;
    struct bt_slice sep = {old_sep, node_key(b->refs[0].page, last, old_sep)};
    struct bt_slice up = {new_sep, 0};

    k = share_point(left, sep, b->refs[2].page, part);
    if (k == node_count(left))
        return;
    up.bytes = node_key(left, k, new_sep);
    node_init(right, b->refs[2].pid, page_level(left), b->t->tree);
    memcpy(parent, b->refs[0].page, sizeof(parent));
    if (!node_merge(right, part, sep, b->refs[2].page) || !node_del(parent, last) ||
        !node_add_child(parent, up, b->refs[2].pid))
        return;
    change_page(&b->c, b->refs[0].pid);
    change_del_child(&b->c, last);
    change_add_child(&b->c, up, b->refs[2].pid);
    change_page(&b->c, b->refs[1].pid);
    change_cut(&b->c, k);
    change_page(&b->c, b->refs[2].pid);
    change_image(&b->c, right);
    (void)bt_commit(b->t, &b->ticket, &b->c, b->refs, 3);
}

/* The rightmost page of an inner level shares with its neighbour, which is full, when it is small. Levels from above: its
 * parent then has two children. */
static int
share_inner(struct bt_bulk *b, unsigned level)
{
    unsigned n;
    int rc = reserve(b);

    if (rc == 0)
        rc = take(b, b->edge[level + 1], level + 1);
    if (rc == 0) {
        n = node_count(b->refs[0].page);
        if (n > 0)
            rc = take_whole(b, node_child(b->refs[0].page, n - 1), level);
        if (rc == 0 && n > 0)
            rc = take_whole(b, b->edge[level], level);
        if (rc == 0 && n > 0 && bt_underfull(b->refs[2].page))
            share_inner_commit(b);
    }
    unfix_all(b);
    wal_release(b->t->wal, &b->ticket);
    return rc;
}

/* All entries get their pages, but for those of a tree that is one leaf. */
static int
flush(struct bt_bulk *b)
{
    int rc;

    if (node_count(b->last) == 0)
        return 0;
    share_leaves(b);
    rc = add_leaf(b, b->last, (struct bt_slice){b->last_sep, b->last_sep_bytes});
    if (rc == 0)
        rc = add_leaf(b, b->now, (struct bt_slice){b->now_sep, b->now_sep_bytes});
    for (unsigned level = b->level; rc == 0 && level > 1; level--)
        rc = share_inner(b, level - 1);
    return rc;
}

/* The tree's root is latched: does it hold anything that anybody sees or may see again? */
static bool
is_empty(struct bt *t, const uint8_t *root)
{
    uint8_t key[COHORT_KEY_MAX];

    for (unsigned i = 0; i < node_count(root); i++) {
        struct ver_key k = {t->tree, node_key(root, i, key), key};

        if (!node_is_ghost(root, i) || (t->ver != NULL && ver_has(t->ver, k)))
            return false;
    }
    return true;
}

/* refs: the tree's root, the private root. The record, as a transaction of its own. CONFLICT: a prepared transaction has read in
 * the tree. */
static int
finish_commit(struct bt_bulk *b, struct ver_txn *w, bool durable, lsn_t *out)
{
    _Alignas(8) uint8_t top[CH_PAGE_BYTES];
    struct bt *t = b->t;
    const uint8_t *from = b->level > 0 ? b->refs[1].page : b->now;
    lsn_t lsn;
    bool ok;
    int rc = 0;

    node_init(top, t->root, (uint8_t)b->level, t->tree);
    ok = node_adopt(top, from);
    CH_ASSERT(ok); /* take_whole() checked it */
    page_inherit(top, b->refs[0].page);
    page_set_write_lsn(top, page_write_lsn(b->refs[0].page));
    change_page(&b->c, t->root);
    change_image(&b->c, top);
    change_page(&b->c, b->refs[1].pid);
    change_free(&b->c);
    if (t->ver != NULL) {
        ver_commit_lock(t->ver);
        rc = ver_guarded(t->ver, w, NULL);
        if (rc != 0) {
            ver_commit_unlock(t->ver);
            return rc;
        }
    }
    lsn = bt_commit(t, &b->ticket, &b->c, b->refs, 2);
    if (t->ver != NULL) {
        atomic_store_explicit(&t->born, lsn, memory_order_release); /* U3; bt_unborn() acquires */
        ver_commit_end(t->ver, w, lsn, durable);
    }
    *out = lsn;
    return 0;
}

static int
finish_latched(struct bt_bulk *b, struct ver_txn **w, bool durable, lsn_t *lsn)
{
    struct bt *t = b->t;
    int rc = buf_fix(t->buf, t->root, BUF_EXCLUSIVE, &b->refs[0]);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 " of tree %" PRIu32 ": no image", t->root,
                       t->tree);
    if (rc != 0)
        return rc;
    b->n = 1;
    if (page_level(b->refs[0].page) > 0 || !is_empty(t, b->refs[0].page))
        return CH_FAIL(COHORT_CONFLICT, "bulk load: tree %" PRIu32 " is not empty", t->tree);
    rc = bt_node_verify(t, &b->refs[0], 0);
    if (rc == 0)
        rc = take_whole(b, b->edge[b->level], b->level);
    if (rc == 0)
        rc = finish_commit(b, *w, durable, lsn);
    if (rc == 0)
        *w = NULL; /* the store's now */
    return rc;
}

int
bt_bulk_finish(struct bt_bulk *b, bool durable, lsn_t *lsn)
{
    struct bt *t = b->t;
    struct ver_txn *w = NULL;
    int rc = flush(b);

    if (rc == 0)
        rc = reserve(b);
    if (rc == 0 && t->ver != NULL)
        rc = ver_txn_create(t->ver, ver_new_id(t->ver), NULL, VER_NO_SLOT, wal_end(t->wal), &w);
    if (rc == 0 && w != NULL)
        rc = ver_txn_whole(t->ver, w, t->tree); /* it writes what no version tells of */
    if (rc == 0) {
        rt_lock(&t->smo);
        rc = finish_latched(b, &w, durable, lsn);
        unfix_all(b);
        rt_unlock(&t->smo);
    }
    if (w != NULL)
        ver_txn_discard(t->ver, w);
    wal_release(t->wal, &b->ticket);
    return rc;
}
