/* cursor.c - cursors over src/txn's: lifetimes, large values, and the transaction that a cursor without one owns.
 *
 *   C1  `c` is there iff `t` is: a cursor whose transaction has ended has neither, one of its own has neither before it is
 *       first positioned.
 *   C2  `big_loaded`: `big` holds the large value of the entry under the cursor. Any positioning ends that.
 *   C3  the reference to the tree is the cursor's own: closing the tree's handle first is fine.
 */
#include "api/api_internal.h"

#include <stdlib.h>

struct cohort_cursor {
    cohort_db *db;
    cohort_txn *t;
    struct txn_cursor *c;
    struct reg_tree *tree;
    bool own;     /* the transaction is */
    bool deleted; /* the entry under it, by cohort_cursor_del() */
    bool big_loaded;
    struct cohort_value big;
    struct cohort_cursor *next, *prev; /* in the transaction's list */
};

/* ---- open and close ---- */

/* NULL: no memory. */
static cohort_cursor *
create(cohort_db *db, struct reg_tree *tree)
{
    cohort_cursor *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->db = db;
    c->tree = tree;
    reg_ref(db->db->reg, tree);
    return c;
}

static void
destroy(cohort_cursor *c)
{
    reg_put(c->db->db->reg, c->tree);
    cohort_value_free(&c->big);
    free(c);
}

/* The transaction's cursor `c` below; linked into its list. */
static int
attach(cohort_cursor *c, cohort_txn *t)
{
    int rc = txn_cursor_create(t->t, c->tree, &c->c);

    if (rc != 0)
        return rc;
    c->t = t;
    c->prev = NULL;
    c->next = t->cursors;
    if (c->next != NULL)
        c->next->prev = c;
    t->cursors = c;
    return 0;
}

static void
detach(cohort_cursor *c)
{
    if (c->t == NULL)
        return;
    txn_cursor_destroy(c->c);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->t->cursors = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    c->c = NULL;
    c->t = NULL;
}

void
api_end_cursors(cohort_txn *t)
{
    while (t->cursors != NULL)
        detach(t->cursors);
}

COHORT_API int
cohort_cursor_open(cohort_db *db, cohort_cursor **out)
{
    cohort_cursor *c;

    if (db == NULL || out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_cursor_open: null argument");
    c = create(db, db->main);
    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cohort_cursor_open: cursor");
    c->own = true;
    *out = c;
    return 0;
}

COHORT_API int
cohort_txn_cursor(cohort_txn *t, cohort_tree *tree, cohort_cursor **out)
{
    struct reg_tree *rt;
    cohort_cursor *c;
    int rc = api_check_txn("cohort_txn_cursor", t, tree, &rt);

    if (rc == 0 && out == NULL)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_txn_cursor: null argument: cursor");
    if (rc != 0)
        return rc;
    c = create(t->db, rt);
    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cohort_txn_cursor: cursor");
    rc = attach(c, t);
    if (rc == 0)
        *out = c;
    else
        destroy(c);
    return rc;
}

/* Ends the transaction of a cursor that owns it; it has only read. */
static int
end_own(cohort_cursor *c)
{
    cohort_txn *t = c->t;

    detach(c);
    return t != NULL ? cohort_abort(t) : 0;
}

COHORT_API void
cohort_cursor_close(cohort_cursor *c)
{
    if (c == NULL)
        return;
    if (c->own)
        (void)end_own(c); /* nothing was written, so nothing can fail that anybody could mend */
    else
        detach(c);
    destroy(c);
}

/* ---- positioning ---- */

/* A new snapshot for a cursor that owns its transaction. */
static int
renew(cohort_cursor *c)
{
    cohort_txn *t = NULL;
    int rc;

    if (c->t != NULL) {
        if (txn_refresh(c->t->t) == 0)
            return 0;
        rc = end_own(c); /* it was too old */
        if (rc != 0)
            return rc;
    }
    rc = api_begin(c->db, true, &t);
    if (rc != 0)
        return rc;
    rc = attach(c, t);
    return rc == 0 ? 0 : api_end(t, rc);
}

static int
check_cursor(const char *what, const cohort_cursor *c)
{
    if (CH_UNLIKELY(c == NULL))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no cursor", what);
    if (CH_UNLIKELY(c->t == NULL && !c->own))
        return CH_FAIL(COHORT_ETXN, "%s: the cursor's transaction has ended", what);
    if (CH_UNLIKELY(atomic_load_explicit(&c->tree->dropped, memory_order_acquire)))
        return CH_FAIL(COHORT_NOTFOUND, "%s: the tree has been dropped", what);
    return 0;
}

/* Ready to be positioned anew. */
static int
prepare(const char *what, cohort_cursor *c, const void *key, size_t key_bytes)
{
    int rc = check_cursor(what, c);

    if (CH_LIKELY(rc == 0))
        rc = api_check_key(what, key, key_bytes);
    if (CH_UNLIKELY(rc != 0))
        return rc;
    c->deleted = c->big_loaded = false;
    return c->own ? renew(c) : 0;
}

static int
seek(const char *what, cohort_cursor *c, enum bt_seek how, struct bt_slice key)
{
    int rc = prepare(what, c, key.data, key.bytes);

    return rc != 0 ? rc : txn_cursor_seek(c->c, how, key);
}

COHORT_API int
cohort_cursor_seek(cohort_cursor *c, const void *key, size_t key_bytes)
{
    return seek("cohort_cursor_seek", c, BT_GE, (struct bt_slice){key, key_bytes});
}

COHORT_API int
cohort_cursor_seek_before(cohort_cursor *c, const void *key, size_t key_bytes)
{
    return seek("cohort_cursor_seek_before", c, BT_LE, (struct bt_slice){key, key_bytes});
}

COHORT_API int
cohort_cursor_seek_exact(cohort_cursor *c, const void *key, size_t key_bytes)
{
    int rc = prepare("cohort_cursor_seek_exact", c, key, key_bytes);

    return rc != 0 ? rc : txn_cursor_exact(c->c, (struct bt_slice){key, key_bytes});
}

COHORT_API int
cohort_cursor_first(cohort_cursor *c)
{
    return seek("cohort_cursor_first", c, BT_FIRST, (struct bt_slice){0});
}

COHORT_API int
cohort_cursor_last(cohort_cursor *c)
{
    return seek("cohort_cursor_last", c, BT_LAST, (struct bt_slice){0});
}

/* Ready for a step. One of its own that was never positioned stands nowhere. */
static int
prepare_step(const char *what, cohort_cursor *c)
{
    int rc = check_cursor(what, c);

    if (CH_UNLIKELY(rc != 0))
        return rc;
    if (CH_UNLIKELY(c->c == NULL))
        return CH_FAIL(COHORT_NOTFOUND, "%s: the cursor was never positioned", what);
    c->deleted = c->big_loaded = false;
    return 0;
}

COHORT_API int
cohort_cursor_next(cohort_cursor *c)
{
    int rc = prepare_step("cohort_cursor_next", c);

    return CH_UNLIKELY(rc != 0) ? rc : txn_cursor_next(c->c);
}

COHORT_API int
cohort_cursor_prev(cohort_cursor *c)
{
    int rc = prepare_step("cohort_cursor_prev", c);

    return CH_UNLIKELY(rc != 0) ? rc : txn_cursor_prev(c->c);
}

/* ---- the entry ---- */

static int
current(const char *what, const cohort_cursor *c, struct bt_slice *key, struct bt_slice *value,
        unsigned *flags)
{
    int rc = check_cursor(what, c);

    if (CH_UNLIKELY(rc != 0))
        return rc;
    if (CH_UNLIKELY(c->c == NULL || c->deleted || !txn_cursor_entry(c->c, key, value, flags)))
        return CH_FAIL(COHORT_EINVAL, "%s: the cursor stands on no entry", what);
    return 0;
}

COHORT_API int
cohort_cursor_entry(cohort_cursor *c, struct cohort_slice *key, struct cohort_slice *value)
{
    struct bt_slice k, v;
    unsigned flags;
    int rc = current("cohort_cursor_entry", c, &k, &v, &flags);

    if (CH_UNLIKELY(rc != 0))
        return rc;
    if (value != NULL && (flags & BT_REF) != 0) {
        if (!c->big_loaded)
            rc = cat_load_ref(c->db->db->cat, v, &c->big);
        if (rc != 0)
            return rc;
        c->big_loaded = true;
        v = (struct bt_slice){c->big.data, c->big.bytes};
    }
    if (key != NULL)
        *key = (struct cohort_slice){k.data, k.bytes};
    if (value != NULL)
        *value = (struct cohort_slice){v.data, v.bytes};
    return 0;
}

/* A write at the cursor. */
static int
write_at(const char *what, cohort_cursor *c, enum bt_write_kind kind, struct bt_slice value)
{
    struct bt_slice k, v;
    unsigned flags;
    int rc = current(what, c, &k, &v, &flags);

    if (rc == 0)
        rc = api_check_entry(what, k.data, k.bytes, value.data, value.bytes);
    if (rc == 0 && c->own)
        rc = CH_FAIL(COHORT_ETXN, "%s: the cursor was opened without a transaction", what);
    return rc != 0 ? rc : api_write(c->t, c->tree, kind, k, value);
}

COHORT_API int
cohort_cursor_put(cohort_cursor *c, const void *value, size_t value_bytes)
{
    return write_at("cohort_cursor_put", c, BT_UPDATE, (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_cursor_del(cohort_cursor *c)
{
    int rc = write_at("cohort_cursor_del", c, BT_DEL, (struct bt_slice){0});

    if (rc == 0)
        c->deleted = true;
    return rc;
}
