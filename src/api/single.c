/* single.c - operations that are transactions of their own, in the main tree and in named ones.
 *
 * cohort_get() is the path that is to be fast: the main tree, no view, the value copied once, from the leaf into the caller's
 * memory. Anything larger than a leaf takes the long way through src/cat.
 */
#include "api/api_internal.h"

#include <stdlib.h>

struct get_ctx {
    struct cohort_value *out;
    bool grow; /* out is too small: bytes tells */
    bool ref;  /* the value is kept elsewhere */
    size_t bytes;
};

static void
copy_value(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct get_ctx *g = arg;

    g->bytes = bytes;
    g->ref = (flags & BT_REF) != 0;
    g->grow = !g->ref && (bytes > g->out->capacity || g->out->data == NULL);
    if (g->grow || g->ref)
        return;
    if (bytes > 0)
        memcpy(g->out->data, value, bytes);
    g->out->bytes = bytes;
}

static int
grow_value(struct cohort_value *out, size_t bytes)
{
    size_t cap = bytes < 64 ? 64 : bytes;
    void *p = realloc(out->data, cap);

    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "value of %zu bytes", cap);
    out->data = p;
    out->capacity = cap;
    return 0;
}

/* The newest visible value. */
static int
get_alone(cohort_db *db, struct reg_tree *tree, struct bt_slice key, struct cohort_value *out)
{
    struct get_ctx g = {.out = out};
    int rc;

    /* Another writer may make it longer still: hence the loop. It ends at the largest entry. */
    do {
        g.grow = g.ref = false;
        if (tree == db->main)
            rc = bt_get(&tree->bt, NULL, key, copy_value, &g);
        else
            rc = txn_get_alone(db->db->txns, tree, key, copy_value, &g);
        if (rc != 0)
            return rc;
        if (CH_UNLIKELY(g.ref))
            return cat_get(db->db->cat, NULL, tree, key, out);
        if (CH_UNLIKELY(g.grow))
            rc = grow_value(out, g.bytes);
    } while (rc == 0 && g.grow);
    return rc;
}

COHORT_API int
cohort_get(cohort_db *db, const void *key, size_t key_bytes, struct cohort_value *out)
{
    int rc = api_check_key("cohort_get", key, key_bytes);

    if (CH_UNLIKELY(rc != 0))
        return rc;
    if (CH_UNLIKELY(db == NULL || out == NULL))
        return CH_FAIL(COHORT_EINVAL, "cohort_get: null argument");
    return get_alone(db, db->main, (struct bt_slice){key, key_bytes}, out);
}

static int
write_alone(const char *what, cohort_db *db, const cohort_tree *tree, enum bt_write_kind kind,
            struct bt_slice key, struct bt_slice value)
{
    struct reg_tree *rt;
    int rc = api_check_tree(what, db, tree, &rt);

    if (rc == 0)
        rc = api_check_entry(what, key.data, key.bytes, value.data, value.bytes);
    if (rc == 0)
        rc = cat_write(db->db->cat, NULL, rt, kind, key, value);
    if (rc != 0)
        return rc;
    api_count(db, 1, key.bytes + value.bytes);
    return 0;
}

COHORT_API int
cohort_put(cohort_db *db, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    return write_alone("cohort_put", db, NULL, BT_PUT, (struct bt_slice){key, key_bytes},
                       (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_insert(cohort_db *db, const void *key, size_t key_bytes, const void *value,
              size_t value_bytes)
{
    return write_alone("cohort_insert", db, NULL, BT_INSERT, (struct bt_slice){key, key_bytes},
                       (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_update(cohort_db *db, const void *key, size_t key_bytes, const void *value,
              size_t value_bytes)
{
    return write_alone("cohort_update", db, NULL, BT_UPDATE, (struct bt_slice){key, key_bytes},
                       (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_del(cohort_db *db, const void *key, size_t key_bytes)
{
    return write_alone("cohort_del", db, NULL, BT_DEL, (struct bt_slice){key, key_bytes},
                       (struct bt_slice){0});
}

/* ---- in a named tree ---- */

COHORT_API int
cohort_tree_get(cohort_tree *tree, const void *key, size_t key_bytes, struct cohort_value *out)
{
    struct reg_tree *rt;
    int rc = api_check_key("cohort_tree_get", key, key_bytes);

    if (rc != 0)
        return rc;
    if (tree == NULL || out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_tree_get: null argument");
    rc = api_check_tree("cohort_tree_get", tree->db, tree, &rt);
    return rc != 0 ? rc : get_alone(tree->db, rt, (struct bt_slice){key, key_bytes}, out);
}

/* Unlike elsewhere NULL is not the main tree: there would be no database. */
static int
tree_write(const char *what, const cohort_tree *tree, enum bt_write_kind kind, struct bt_slice key,
           struct bt_slice value)
{
    if (tree == NULL)
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no tree", what);
    return write_alone(what, tree->db, tree, kind, key, value);
}

COHORT_API int
cohort_tree_put(cohort_tree *tree, const void *key, size_t key_bytes, const void *value,
                size_t value_bytes)
{
    return tree_write("cohort_tree_put", tree, BT_PUT, (struct bt_slice){key, key_bytes},
                      (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_tree_insert(cohort_tree *tree, const void *key, size_t key_bytes, const void *value,
                   size_t value_bytes)
{
    return tree_write("cohort_tree_insert", tree, BT_INSERT, (struct bt_slice){key, key_bytes},
                      (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_tree_update(cohort_tree *tree, const void *key, size_t key_bytes, const void *value,
                   size_t value_bytes)
{
    return tree_write("cohort_tree_update", tree, BT_UPDATE, (struct bt_slice){key, key_bytes},
                      (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_tree_del(cohort_tree *tree, const void *key, size_t key_bytes)
{
    return tree_write("cohort_tree_del", tree, BT_DEL, (struct bt_slice){key, key_bytes},
                      (struct bt_slice){0});
}
