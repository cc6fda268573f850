/* many.c - many keys in one call: what is missing in memory is read together.
 *
 * Keys of which nothing is missing are got first, as they come, in one descent each. The others are taken in groups, in
 * ascending order. A round walks towards each key of the group as far as pages are in memory
 * and notes the first one that is not; then these are read in parallel. A key of which nothing is missing, or no more than
 * the leaf that was just read, is got as by bt_get(), which is right whatever has changed or been evicted meanwhile: the
 * rounds are hints only.
 *
 *   Q1  a group is small enough that what it reads in is not pushed out by itself.
 *   Q2  no latch is held between two keys; a key is as of when it is got.
 */
#include <stdlib.h>

#include "base/status.h"
#include "btree/tree.h"

enum {
    MANY_GROUP = 64, /* keys, and pages read at once: what buf_prefetch() does in one go */
    MANY_ROUNDS = BT_DEPTH_MAX, /* each reads a level; more only where the tree changes */
    MANY_CACHE_SHARE = 16,      /* a group takes no more of the frames than one in so many */
};

struct many_key {
    const struct bt_slice *key;
    size_t index;
};

struct many {
    struct bt *t;
    bool near; /* `parent` is the lowest inner node on the way to the key before */
    struct buf_peek parent;
    page_id
        cached; /* after missing_page() found nothing missing: the leaf, a child of `parent`; 0: not known */
};

struct many_copy {
    bt_copy_many_fn *copy;
    void *arg;
    size_t index;
};

/* Of bt_get_many(). */
struct many_call {
    const struct ver_view *view;
    const struct bt_slice *keys;
    struct many_copy c;
    int *rcs;
};

static int
compare_keys(const void *a, const void *b)
{
    const struct many_key *x = a, *y = b;

    return node_compare(*x->key, *y->key);
}

/* The leaf of the key where its neighbour's parent has it between two separators; 0: that is not known. */
static page_id
near_leaf(struct many *m, struct bt_slice key)
{
    unsigned i;
    page_id pid;

    if (!m->near)
        return 0;
    i = node_child_index(m->parent.page, key, false);
    if (i == 0 || i >= node_count(m->parent.page))
        return 0;
    pid = node_child(m->parent.page, i);
    m->near = buf_peek_valid(m->t->buf, &m->parent);
    return m->near ? pid : 0;
}

/* The leaf, a child of `parent`, unless it is in memory. */
static page_id
missing_leaf(struct many *m, page_id pid)
{
    bool cached = buf_is_cached(m->t->buf, pid);

    m->cached = cached ? pid : 0;
    return cached ? 0 : pid;
}

/* The first page on the way to the key that is not in memory, 0 if none, or if something changes there just now. *leaf: it is
 * a leaf. */
static page_id
missing_page(struct many *m, struct bt_slice key, bool *leaf)
{
    struct buf *b = m->t->buf;
    struct buf_peek up, down;
    page_id pid = near_leaf(m, key);
    unsigned level;

    *leaf = true;
    if (pid != 0)
        return missing_leaf(m, pid);
    m->near = false;
    m->cached = 0;
    *leaf = false;
    if (!buf_peek_cached(b, m->t->root, &up))
        return m->t->root;
    for (level = page_level(up.page); level > 0 && level < BT_DEPTH_MAX; level--) {
        pid = node_child(up.page, node_child_index(up.page, key, false));
        if (!buf_peek_valid(b, &up) || pid == 0)
            return 0;
        if (level == 1) {
            m->near = *leaf = true;
            m->parent = up;
            return missing_leaf(m, pid);
        }
        if (!buf_peek_cached(b, pid, &down))
            return pid;
        if (!buf_peek_valid(b, &up) || page_level(down.page) != level - 1)
            return 0;
        up = down;
    }
    return 0;
}

static void
copy_one(void *arg, const void *value, size_t bytes, unsigned flags)
{
    const struct many_copy *c = arg;

    c->copy(c->arg, c->index, value, bytes, flags);
}

struct many_group {
    struct many_call *call;
    const struct many_key *keys;
    unsigned left; /* keys not got yet; their places in `keys` follow */
    uint8_t at[MANY_GROUP];
    bool leaf[MANY_GROUP]; /* only its leaf is missing */
};

static void
get_one(struct bt *t, struct many_call *call, size_t i)
{
    call->c.index = i;
    call->rcs[i] = bt_get(t, call->view, call->keys[i], copy_one, &call->c);
}

/* Of the key nothing is missing: from the leaf that missing_page() has found, or as any other. */
static void
get_cached(struct many *m, struct many_call *call, size_t i)
{
    struct buf_ref leaf;
    int rc = COHORT_ERETRY;

    if (m->cached != 0)
        rc = bt_child_fix(m->t, m->cached, &m->parent, BUF_SHARED, &leaf);
    if (rc == 0) {
        call->c.index = i;
        rc = bt_get_at(m->t, call->view, call->keys[i], &leaf, copy_one, &call->c);
    }
    if (CH_LIKELY(rc != COHORT_ERETRY))
        call->rcs[i] = rc;
    else
        get_one(m->t, call, i);
}

/* Gets the keys of which nothing is missing, reads a level for the others, and gets those that wanted no more than it. */
static void
get_round(struct bt *t, struct many_group *g)
{
    struct many m = {.t = t};
    page_id pids[MANY_GROUP], pid;
    unsigned pages = 0, left = 0, keep = 0;

    for (unsigned i = 0; i < g->left; i++) {
        pid = missing_page(&m, *g->keys[g->at[i]].key, &g->leaf[left]);
        if (pid == 0) {
            get_cached(&m, g->call, g->keys[g->at[i]].index);
            continue;
        }
        if (pages == 0 || pids[pages - 1] != pid) /* neighbours want the same page */
            pids[pages++] = pid;
        g->at[left++] = g->at[i];
    }
    if (pages > 0)
        buf_prefetch(t->buf, pids, pages);
    for (unsigned i = 0; i < left; i++) {
        if (g->leaf[i])
            get_one(t, g->call, g->keys[g->at[i]].index);
        else
            g->at[keep++] = g->at[i];
    }
    g->left = keep;
}

static void
get_group(struct bt *t, struct many_group *g, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        g->at[i] = (uint8_t)i;
    g->left = n;
    for (unsigned round = 0; n > 1 && g->left > 0 && round < MANY_ROUNDS; round++)
        get_round(t, g);
    for (unsigned i = 0; i < g->left; i++)
        get_one(t, g->call, g->keys[g->at[i]].index);
}

/* Gets the keys of which nothing is missing; returns how many others there are, in left[]. */
static size_t
get_present(struct bt *t, struct many_call *call, size_t n, struct many_key *left)
{
    struct many m = {.t = t};
    size_t count = 0;
    bool leaf;

    for (size_t i = 0; i < n; i++) {
        if (missing_page(&m, call->keys[i], &leaf) == 0)
            get_cached(&m, call, i);
        else
            left[count++] = (struct many_key){&call->keys[i], i};
    }
    return count;
}

int
bt_get_many(struct bt *t, const struct ver_view *view, size_t n, const struct bt_slice *keys,
            bt_copy_many_fn *copy, void *arg, int *rcs)
{
    struct many_key few[MANY_GROUP], *sorted = few;
    struct many_call call = {view, keys, {copy, arg, 0}, rcs};
    struct many_group g = {.call = &call};
    size_t group = ch_clamp_u64(buf_frame_bytes(t->buf) / CH_PAGE_BYTES / MANY_CACHE_SHARE, 1,
                                MANY_GROUP); /* Q1 */
    size_t left;

    if (n > MANY_GROUP) {
        sorted = malloc(n * sizeof(*sorted));
        if (sorted == NULL)
            return CH_FAIL(COHORT_ENOMEM, "%zu keys", n);
    }
    left = get_present(t, &call, n, sorted);
    if (left > 0)
        qsort(sorted, left, sizeof(*sorted), compare_keys);
    for (size_t i = 0; i < left; i += group) {
        g.keys = sorted + i;
        get_group(t, &g, (unsigned)ch_min_u64(group, left - i));
    }
    if (sorted != few)
        free(sorted);
    return 0;
}
