/* cursor.c - ordered scans.
 *
 * A cursor copies the leaf it stands in under a shared latch, together with the separators around
 * it, and walks through the copy. At an end of the copy it descends anew: forward to the leaf of
 * the upper separator, backward to the leaf of the keys strictly below the lower one. So it holds
 * no latch between calls, and no structure change can make it miss or repeat a key that was there
 * all the time:
 *
 *   K1  all keys in [lower, upper) that the tree held when the leaf was copied are in the copy.
 *   K2  forward, the next copy counts from the upper separator on; backward, below the lower one
 *       only.
 *
 * What the view sees of the copy. Either the whole leaf could be read as it stands when it was copied, and that
 * stays so (ver_fast()). Or each entry that the cursor comes to is asked for in the version store, without a latch:
 *
 *   K3  the store answers with a before-image: that is what the view sees, whatever the copy holds.
 *   K4  it answers "what the leaf holds". Then every writer whose version the copy may hold is visible to the view, or was
 *       undone since. The count of undone entries, taken under the latch of the copy, tells whether one may have been:
 *       then the key is read anew, and the leaf before the next step.
 *   K5  a key that the view sees is in the copy, as a ghost at least (W3 of write.c).
 *
 * Writes of the view's own transaction are counted by their owner: when the count has changed, the leaf is read again
 * before the next step, around the key the cursor stands at, which may be gone.
 *
 * The key is kept whole; a step within a leaf replaces what follows the prefix only. Locking: a cursor belongs to one
 * thread at a time.
 */
#include <stdlib.h>

#include "btree/node_internal.h"
#include "btree/tree.h"

enum {
    AHEAD_EVERY = BT_AHEAD / 2
}; /* leaves between two rounds of reading ahead */

struct bt_cursor {
    _Alignas(64) uint8_t page[CH_PAGE_BYTES];
    struct node_view node; /* of page */
    struct bt *t;
    const struct ver_view *view;
    const uint64_t *writes; /* NULL: nobody counts */
    uint64_t writes_seen;   /* when the leaf was copied ... */
    uint64_t pops;          /* ... and the store's count of undone entries then (K4) */
    bool as_is;             /* entries count as they are in the copy */
    bool stale;             /* the copy is to be made anew before the next step */
    bool positioned;
    int direction;   /* of the leaves visited last, and ... */
    unsigned leaves; /* ... how many */
    unsigned index;
    unsigned flags;
    struct bt_slice value; /* into page or found */
    size_t key_bytes, probe_bytes;
    struct bt_bounds bounds;
    struct ver_found found;
    uint8_t key[COHORT_KEY_MAX];
    uint8_t probe[COHORT_KEY_MAX]; /* what a descent looks for: it overwrites the bounds */
};

int
bt_cursor_create(struct bt *t, struct bt_cursor **out)
{
    struct bt_cursor *c = aligned_alloc(64, ch_round_up(sizeof(*c), 64));

    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cursor: %zu bytes", sizeof(*c));
    memset(c, 0, sizeof(*c));
    c->t = t;
    *out = c;
    return 0;
}

void
bt_cursor_view(struct bt_cursor *c, const struct ver_view *view, const uint64_t *writes)
{
    c->view = view;
    c->writes = writes;
    c->stale = true;
}

void
bt_cursor_destroy(struct bt_cursor *c)
{
    free(c);
}

static struct bt_slice
probe_set(struct bt_cursor *c, const void *key, size_t bytes)
{
    CH_ASSERT(bytes <= sizeof(c->probe));
    if (bytes > 0)
        memmove(c->probe, key, bytes);
    c->probe_bytes = bytes;
    return (struct bt_slice){c->probe, bytes};
}

/* The view sees an empty tree: a leaf without entries or neighbours. */
static void
load_nothing(struct bt_cursor *c)
{
    node_init(c->page, 0, 0, c->t->tree);
    c->bounds.has_lower = c->bounds.has_upper = false;
    c->as_is = true;
}

/* Copies the leaf at that side of the probe. */
static int
load(struct bt_cursor *c, enum bt_side side, int direction)
{
    struct bt_slice probe = {c->probe, c->probe_bytes};
    struct buf_ref leaf;
    size_t low, high;
    int rc;

    c->leaves = direction != 0 && direction == c->direction ? c->leaves + 1 : 0;
    c->direction = direction;
    c->bounds.ahead = c->leaves % AHEAD_EVERY == 1 ? direction : 0;
    if (c->writes != NULL)
        c->writes_seen = *c->writes;
    rc = bt_leaf_fix(c->t, side, probe, BUF_SHARED, &c->bounds, &leaf);
    if (rc != 0)
        return rc;
    c->stale = false;
    if (bt_unborn(c->t, c->view)) {
        load_nothing(c);
    } else {
        low = node_low_bytes(leaf.page);
        high = node_high_bytes(leaf.page);
        memcpy(c->page, leaf.page, low);
        memcpy(c->page + CH_PAGE_BYTES - high, leaf.page + CH_PAGE_BYTES - high, high);
        c->as_is = bt_as_is(c->t, c->view, leaf.page);
        c->pops = c->as_is ? 0 : ver_pops(c->t->ver);
    }
    buf_unfix(c->t->buf, &leaf);
    c->node = node_look(c->page);
    memcpy(c->key, c->page + c->node.body, c->node.prefix);
    return 0;
}

/* ---- one entry ---- */

static void
copy_found(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct ver_found *f = arg;

    f->bytes = bytes;
    f->flags = (uint8_t)flags;
    if (bytes > 0)
        memcpy(f->data, value, bytes);
}

/* The copy cannot tell: what the view sees of the current key, under the latch of its leaf. */
static int
read_anew(struct bt_cursor *c)
{
    struct bt_slice key = {c->key, c->key_bytes};

    c->stale = true;
    return bt_get(c->t, c->view, key, copy_found, &c->found);
}

/* What the view sees of the entry at hand, whose key is set; NOTFOUND: nothing. Leaf not as is. */
static int
see_version(struct bt_cursor *c, const struct node_entry *e)
{
    struct ver_found *f = &c->found;
    int rc = 0;

    ver_read(c->t->ver, c->view, bt_ver_key(c->t, (struct bt_slice){c->key, c->key_bytes}), f);
    if (f->how == VER_CURRENT && ver_pops(c->t->ver) == c->pops)
        return e->ghost ? COHORT_NOTFOUND : 0;
    if (f->how == VER_TOO_OLD)
        return bt_too_old(c->t);
    if (f->how == VER_SPILLED) {
        rc = bt_read_spilled(c->t, f);
        if (rc == COHORT_NOTFOUND)
            f->how = VER_CURRENT; /* visible by now, or undone */
    }
    if (f->how == VER_CURRENT)
        rc = read_anew(c);
    else if (rc == 0 && f->how == VER_ABSENT)
        rc = COHORT_NOTFOUND;
    if (rc == 0) {
        c->value = (struct bt_slice){f->data, f->bytes};
        c->flags = f->flags;
    }
    return rc;
}

/* Stands at entry i of the copy; NOTFOUND: the view does not see it. */
static int
stand_at(struct bt_cursor *c, unsigned i)
{
    struct node_entry e = node_entry_at(&c->node, i);
    int rc;

    if (CH_UNLIKELY(e.head == NULL || c->node.prefix + e.suffix_bytes > COHORT_KEY_MAX))
        return CH_FAIL(COHORT_EPAGE, "page %llu: entry %u is damaged",
                       (unsigned long long)page_pid(c->page), i);
    if (c->as_is && e.ghost)
        return COHORT_NOTFOUND;
    c->index = i;
    c->key_bytes = c->node.prefix + e.suffix_bytes;
    memcpy(c->key + c->node.prefix, e.suffix, e.suffix_bytes);
    c->value = (struct bt_slice){e.suffix + e.suffix_bytes, e.value_bytes};
    c->flags = e.ref ? BT_REF : 0;
    if (CH_UNLIKELY(!c->as_is)) {
        rc = see_version(c, &e);
        if (rc != 0)
            return rc;
    }
    c->positioned = true;
    return 0;
}

/* ---- steps ---- */

/* Stands at entry i of the copy, or at the first one behind it. */
static int
forward(struct bt_cursor *c, unsigned i)
{
    struct bt_slice from;
    bool found;
    int rc;

    for (;;) {
        while (CH_UNLIKELY(i >= c->node.count)) {
            if (!c->bounds.has_upper)
                return COHORT_NOTFOUND;
            from = probe_set(c, c->bounds.upper, c->bounds.upper_bytes);
            rc = load(c, BT_AT, 1);
            if (rc != 0)
                return rc;
            i = node_search(c->page, from, &found); /* K2 */
        }
        rc = stand_at(c, i);
        if (CH_LIKELY(rc != COHORT_NOTFOUND))
            return rc;
        i++;
    }
}

/* Stands at the last entry before entry i of the copy. */
static int
backward(struct bt_cursor *c, unsigned i)
{
    struct bt_slice from;
    bool found;
    int rc;

    for (;;) {
        while (CH_UNLIKELY(i == 0)) {
            if (!c->bounds.has_lower)
                return COHORT_NOTFOUND;
            from = probe_set(c, c->bounds.lower, c->bounds.lower_bytes);
            rc = load(c, BT_BELOW, -1);
            if (rc != 0)
                return rc;
            i = node_search(c->page, from, &found); /* K2 */
        }
        rc = stand_at(c, --i);
        if (CH_LIKELY(rc != COHORT_NOTFOUND))
            return rc;
    }
}

int
bt_seek(struct bt_cursor *c, enum bt_seek how, struct bt_slice key)
{
    struct bt_slice at;
    bool found = false;
    unsigned i;
    int rc;

    if (how == BT_FIRST || how == BT_LAST)
        key.bytes = 0;
    at = probe_set(c, key.data, key.bytes);
    c->positioned = false;
    rc = load(c, how == BT_LAST ? BT_END : BT_AT, 0);
    if (rc != 0)
        return rc;
    if (how == BT_LAST)
        return backward(c, c->node.count);
    i = node_search(c->page, at, &found);
    if (how == BT_LE)
        return backward(c, found ? i + 1 : i);
    return forward(c, i);
}

/* Whether the copy still says what the view sees, as far as the cursor can know. */
static bool
is_fresh(const struct bt_cursor *c)
{
    return CH_LIKELY(!c->stale) && (c->writes == NULL || *c->writes == c->writes_seen);
}

/* Copies the leaf around the current key again: *i is where it is, or would be. */
static int
reload(struct bt_cursor *c, unsigned *i, bool *found)
{
    struct bt_slice at = probe_set(c, c->key, c->key_bytes);
    int rc = load(c, BT_AT, 0);

    if (rc == 0)
        *i = node_search(c->page, at, found);
    return rc;
}

int
bt_next(struct bt_cursor *c)
{
    unsigned i = c->index;
    bool found = true;
    int rc;

    if (!c->positioned)
        return COHORT_NOTFOUND;
    c->positioned = false;
    if (CH_UNLIKELY(!is_fresh(c))) {
        rc = reload(c, &i, &found);
        if (rc != 0)
            return rc;
    }
    return forward(c, found ? i + 1 : i);
}

int
bt_prev(struct bt_cursor *c)
{
    unsigned i = c->index;
    bool found;
    int rc;

    if (!c->positioned)
        return COHORT_NOTFOUND;
    c->positioned = false;
    if (CH_UNLIKELY(!is_fresh(c))) {
        rc = reload(c, &i, &found);
        if (rc != 0)
            return rc;
    }
    return backward(c, i);
}

bool
bt_entry(struct bt_cursor *c, struct bt_slice *key, struct bt_slice *value, unsigned *flags)
{
    if (!c->positioned)
        return false;
    *key = (struct bt_slice){c->key, c->key_bytes};
    *value = c->value;
    *flags = c->flags;
    return true;
}
