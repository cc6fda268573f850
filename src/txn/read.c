/* read.c - reads within transactions and alone, cursors; what serializable ones have seen.
 *
 * Invariants:
 *   R1  a page of a user's tree is freed only when no view is older than the drop (src/cat): so every read in such a tree has a view,
 *       opened before it looks whether the tree was dropped.
 *   R2  what a serializable transaction was told is noted before it is told: keys of gets, found or not, and of cursors the ranges between
 *       where they stood and where they stand, the ends of the tree being infinite.
 *   R3  an error met by a view that was killed is SNAPSHOT_TOO_OLD: what it needed may be gone in any way.
 */
#include "txn/txn_internal.h"

#include <inttypes.h>
#include <stdlib.h>

int
txn_tree_usable(const struct txn *t, struct reg_tree *tree)
{
    if (tree->id < REG_USER)
        return 0;
    if (atomic_load_explicit(&tree->dropped, memory_order_acquire))
        return CH_FAIL(COHORT_NOTFOUND, "tree %" PRIu32 " was dropped", tree->id);
    for (unsigned i = 0; t != NULL && t->drops > 0 && i < t->note_count; i++) {
        if (!t->notes[i].created && t->notes[i].tree == tree)
            return CH_FAIL(COHORT_NOTFOUND, "tree %" PRIu32 " was dropped by this transaction",
                           tree->id);
    }
    return 0;
}

/* R3 */
static int
read_result(const struct txn *t, int rc)
{
    if (CH_LIKELY(rc == 0) || rc == COHORT_SNAPSHOT_TOO_OLD ||
        !ver_view_dead(t->ts->cfg.ver, &t->view))
        return rc;
    return CH_FAIL(COHORT_SNAPSHOT_TOO_OLD, "transaction %" PRIu64 ": its snapshot was given up",
                   txn_id_of(t));
}

static bool
notes_reads(const struct txn *t)
{
    return t->serializable && !t->read_only;
}

/* R2. NULL: that end is open. */
static int
note_range(struct txn *t, uint32_t tree, const struct bt_slice *from, const struct bt_slice *to)
{
    struct ver_key low = {.tree = tree}, high = {.tree = tree};
    int rc = t->reads == NULL ? ver_reads_create(&t->reads) : 0;

    if (rc != 0)
        return rc;
    if (from != NULL)
        low = (struct ver_key){.tree = tree, .bytes = from->bytes, .data = from->data};
    if (to != NULL)
        high = (struct ver_key){.tree = tree, .bytes = to->bytes, .data = to->data};
    return ver_reads_add(t->reads, tree, from != NULL ? &low : NULL, to != NULL ? &high : NULL);
}

int
txn_get(struct txn *t, struct reg_tree *tree, struct bt_slice key, bt_copy_fn *copy, void *arg)
{
    int rc = txn_tree_usable(t, tree);

    if (rc == 0 && CH_UNLIKELY(notes_reads(t)))
        rc = note_range(t, tree->id, &key, &key);
    if (rc != 0)
        return rc;
    return read_result(t, bt_get(&tree->bt, &t->view, key, copy, arg));
}

int
txn_get_many(struct txn *t, struct reg_tree *tree, size_t n, const struct bt_slice *keys,
             bt_copy_many_fn *copy, void *arg, int *rcs)
{
    int rc = txn_tree_usable(t, tree);

    for (size_t i = 0; rc == 0 && notes_reads(t) && i < n; i++)
        rc = note_range(t, tree->id, &keys[i], &keys[i]);
    if (rc == 0)
        rc = bt_get_many(&tree->bt, &t->view, n, keys, copy, arg, rcs);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rcs[i] = read_result(t, rcs[i]);
    return rc;
}

/* ---- alone ---- */

/* In the main tree and internal ones, which are never freed, the newest visible state is read without a view. */
static int
alone_begin(struct txns *ts, struct reg_tree *tree, struct ver_view *view)
{
    int rc = ver_view_open(ts->cfg.ver, view); /* R1: first */

    if (rc != 0)
        return rc;
    rc = txn_tree_usable(NULL, tree);
    if (rc != 0)
        ver_view_close(ts->cfg.ver, view);
    return rc;
}

/* R3. True: the view was killed meanwhile, which nobody is told: the read begins anew. */
static bool
alone_end(struct txns *ts, struct ver_view *view)
{
    bool dead = ver_view_dead(ts->cfg.ver, view);

    ver_view_close(ts->cfg.ver, view);
    return dead;
}

int
txn_get_alone(struct txns *ts, struct reg_tree *tree, struct bt_slice key, bt_copy_fn *copy,
              void *arg)
{
    struct ver_view view;
    bool again = true;
    int rc = 0;

    if (tree->id < REG_USER)
        return bt_get(&tree->bt, NULL, key, copy, arg);
    while (again) {
        rc = alone_begin(ts, tree, &view);
        if (rc != 0)
            return rc;
        rc = bt_get(&tree->bt, &view, key, copy, arg);
        again = alone_end(ts, &view) && rc != 0;
    }
    return rc;
}

int
txn_get_many_alone(struct txns *ts, struct reg_tree *tree, size_t n, const struct bt_slice *keys,
                   bt_copy_many_fn *copy, void *arg, int *rcs)
{
    struct ver_view view;
    bool again = true;
    int rc = 0;

    if (tree->id < REG_USER)
        return bt_get_many(&tree->bt, NULL, n, keys, copy, arg, rcs);
    while (again) {
        rc = alone_begin(ts, tree, &view);
        if (rc != 0)
            return rc;
        rc = bt_get_many(&tree->bt, &view, n, keys, copy, arg, rcs);
        again = alone_end(ts, &view);
    }
    return rc;
}

/* ---- cursors ---- */

enum place {
    NOWHERE, /* not positioned, or exact found nothing */
    AT_ENTRY,
    AT_END, /* sticky */
};
struct txn_cursor {
    struct txn *t;
    struct reg_tree *tree;
    struct bt_cursor *bt;
    enum place place;
    size_t last_bytes; /* serializable: the key that the cursor stands at */
    uint8_t last[COHORT_KEY_MAX];
};

int
txn_cursor_create(struct txn *t, struct reg_tree *tree, struct txn_cursor **out)
{
    struct txn_cursor *c;
    int rc = txn_tree_usable(t, tree);

    if (rc != 0)
        return rc;
    c = malloc(sizeof(*c));
    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cursor");
    c->t = t;
    c->tree = tree;
    c->place = NOWHERE;
    c->last_bytes = 0;
    rc = bt_cursor_create(&tree->bt, &c->bt);
    if (rc != 0) {
        free(c);
        return rc;
    }
    bt_cursor_view(c->bt, &t->view, &t->writes);
    if (tree->id >= REG_USER)
        reg_ref(t->ts->cfg.reg, tree);
    *out = c;
    return 0;
}

void
txn_cursor_destroy(struct txn_cursor *c)
{
    if (c == NULL)
        return;
    bt_cursor_destroy(c->bt);
    if (c->tree->id >= REG_USER)
        reg_put(c->t->ts->cfg.reg, c->tree);
    free(c);
}

struct txn *
txn_cursor_txn(struct txn_cursor *c)
{
    return c->t;
}

struct reg_tree *
txn_cursor_tree(struct txn_cursor *c)
{
    return c->tree;
}

/* The key that the cursor stands at now; false: none. */
static bool
key_now(struct txn_cursor *c, struct bt_slice *key)
{
    struct bt_slice value;
    unsigned flags;

    return bt_entry(c->bt, key, &value, &flags);
}

/* What a move to `rc` means for the cursor: notes [from, key it stands at], or to the end; downwards the reverse. `from` NULL: that
 * end of the tree. Points into the cursor's own memory or the caller's. */
static int
moved(struct txn_cursor *c, int rc, const struct bt_slice *from, bool down)
{
    struct bt_slice key = {NULL, 0};
    const struct bt_slice *to = NULL;
    int noted;

    c->place = rc == 0 ? AT_ENTRY : rc == COHORT_NOTFOUND ? AT_END : NOWHERE;
    rc = read_result(c->t, rc);
    if (!notes_reads(c->t) || (rc != 0 && rc != COHORT_NOTFOUND))
        return rc;
    if (rc == 0 && key_now(c, &key))
        to = &key;
    noted = note_range(c->t, c->tree->id, down ? to : from, down ? from : to);
    if (to != NULL) {
        c->last_bytes = key.bytes;
        if (key.bytes > 0)
            memcpy(c->last, key.data, key.bytes);
    }
    if (noted != 0)
        c->place = NOWHERE;
    return noted != 0 ? noted : rc;
}

int
txn_cursor_seek(struct txn_cursor *c, enum bt_seek how, struct bt_slice key)
{
    bool down = how == BT_LE || how == BT_LAST;
    bool bounded = how == BT_GE || how == BT_LE;
    int rc = txn_tree_usable(c->t, c->tree);

    c->place = NOWHERE;
    if (rc != 0)
        return rc;
    return moved(c, bt_seek(c->bt, how, key), bounded ? &key : NULL, down);
}

int
txn_cursor_exact(struct txn_cursor *c, struct bt_slice key)
{
    struct bt_slice found;
    int rc = txn_tree_usable(c->t, c->tree);

    c->place = NOWHERE;
    if (rc == 0 && notes_reads(c->t))
        rc = note_range(c->t, c->tree->id, &key, &key);
    if (rc == 0)
        rc = read_result(c->t, bt_seek(c->bt, BT_GE, key));
    if (rc != 0)
        return rc;
    if (!key_now(c, &found) || found.bytes != key.bytes ||
        (key.bytes > 0 && memcmp(found.data, key.data, key.bytes) != 0))
        return COHORT_NOTFOUND;
    c->place = AT_ENTRY;
    c->last_bytes = key.bytes;
    if (key.bytes > 0)
        memcpy(c->last, key.data, key.bytes);
    return 0;
}

static int
step(struct txn_cursor *c, bool down)
{
    struct bt_slice from = {c->last, c->last_bytes};
    int rc;

    if (c->place != AT_ENTRY)
        return COHORT_NOTFOUND;
    if (CH_UNLIKELY(c->tree->id >= REG_USER)) {
        rc = txn_tree_usable(c->t, c->tree);
        if (rc != 0)
            return rc;
    }
    rc = down ? bt_prev(c->bt) : bt_next(c->bt);
    if (CH_LIKELY(rc == 0 && !c->t->serializable))
        return 0;
    return moved(c, rc, &from, down);
}

int
txn_cursor_next(struct txn_cursor *c)
{
    return step(c, false);
}

int
txn_cursor_prev(struct txn_cursor *c)
{
    return step(c, true);
}

bool
txn_cursor_entry(struct txn_cursor *c, struct bt_slice *key, struct bt_slice *value,
                 unsigned *flags)
{
    return c->place == AT_ENTRY && bt_entry(c->bt, key, value, flags);
}
