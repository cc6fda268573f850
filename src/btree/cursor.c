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
 * Entries come from the copy: as of when its leaf was read. Locking: a cursor belongs to one thread
 * at a time.
 */
#include <stdlib.h>

#include "btree/tree.h"

enum {
    AHEAD_EVERY = BT_AHEAD / 2
}; /* leaves between two rounds of reading ahead */

struct bt_cursor {
    _Alignas(64) uint8_t page[CH_PAGE_BYTES];
    struct bt *t;
    struct bt_bounds bounds;
    bool positioned;
    int direction;   /* of the leaves visited last, and ... */
    unsigned leaves; /* ... how many */
    unsigned index;
    size_t key_bytes, probe_bytes;
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
    rc = bt_leaf_fix(c->t, side, probe, BUF_SHARED, &c->bounds, &leaf);
    if (rc != 0)
        return rc;
    low = node_low_bytes(leaf.page);
    high = node_high_bytes(leaf.page);
    memcpy(c->page, leaf.page, low);
    memcpy(c->page + CH_PAGE_BYTES - high, leaf.page + CH_PAGE_BYTES - high, high);
    buf_unfix(c->t->buf, &leaf);
    return 0;
}

static void
stand_at(struct bt_cursor *c, unsigned i)
{
    c->index = i;
    c->key_bytes = node_key(c->page, i, c->key);
    c->positioned = true;
}

/* Stands at entry i of the copy, or at the first one behind it. */
static int
forward(struct bt_cursor *c, unsigned i)
{
    struct bt_slice from;
    bool found;
    int rc;

    while (i >= node_count(c->page)) {
        if (!c->bounds.has_upper)
            return COHORT_NOTFOUND;
        from = probe_set(c, c->bounds.upper, c->bounds.upper_bytes);
        rc = load(c, BT_AT, 1);
        if (rc != 0)
            return rc;
        i = node_search(c->page, from, &found); /* K2 */
    }
    stand_at(c, i);
    return 0;
}

/* Stands at the last entry before entry i of the copy. */
static int
backward(struct bt_cursor *c, unsigned i)
{
    struct bt_slice from;
    bool found;
    int rc;

    while (i == 0) {
        if (!c->bounds.has_lower)
            return COHORT_NOTFOUND;
        from = probe_set(c, c->bounds.lower, c->bounds.lower_bytes);
        rc = load(c, BT_BELOW, -1);
        if (rc != 0)
            return rc;
        i = node_search(c->page, from, &found); /* K2 */
    }
    stand_at(c, i - 1);
    return 0;
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
        return backward(c, node_count(c->page));
    i = node_search(c->page, at, &found);
    if (how == BT_LE)
        return backward(c, found ? i + 1 : i);
    return forward(c, i);
}

int
bt_next(struct bt_cursor *c)
{
    if (!c->positioned)
        return COHORT_NOTFOUND;
    c->positioned = false;
    return forward(c, c->index + 1);
}

int
bt_prev(struct bt_cursor *c)
{
    if (!c->positioned)
        return COHORT_NOTFOUND;
    c->positioned = false;
    return backward(c, c->index);
}

bool
bt_entry(struct bt_cursor *c, struct bt_slice *key, struct bt_slice *value)
{
    if (!c->positioned)
        return false;
    *key = (struct bt_slice){c->key, c->key_bytes};
    *value = node_value(c->page, c->index);
    return true;
}
