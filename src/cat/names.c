/* names.c - trees by name: open, create, drop, rename, truncate, list.
 *
 * Each call takes effect within its transaction as a whole or not at all: it sets a savepoint before its first write, and an
 * error takes the transaction back there. What was made by then stays in `pending` and is freed after the transaction.
 *
 * Creation (P2):  name locked -> id and a page's id -> record in `pending`, an operation of its own -> root page, record in
 * `ids` -> name written, record in `pending` deleted.
 */
#include "cat/cat_internal.h"

#include <inttypes.h>

#include "base/status.h"

enum {
    NAME_VALUE_BYTES = 4
};

struct tree_codec {
    int codec, level;
};
struct found {
    uint8_t data[NAME_VALUE_BYTES];
    size_t bytes;
};

static void
copy_id(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct found *f = arg;

    (void)flags;
    f->bytes = bytes;
    if (bytes == NAME_VALUE_BYTES)
        memcpy(f->data, value, bytes);
}

static int
lookup(struct cat *c, struct txn *t, struct bt_slice name, uint32_t *id)
{
    struct found f = {.bytes = 0};
    int rc = txn_get(t, c->names, name, copy_id, &f);

    if (rc != 0)
        return rc;
    if (f.bytes != NAME_VALUE_BYTES)
        return CH_FAIL(COHORT_ECORRUPT, "name of a tree: value of %zu bytes", f.bytes);
    *id = ch_get32(f.data);
    return 0;
}

static int
fail_missing(struct bt_slice name)
{
    return CH_FAIL(COHORT_NOTFOUND, "there is no tree %.*s", (int)name.bytes,
                   (const char *)name.data);
}

/* The tree that the name stands for: one more reference. */
static int
open_named(struct cat *c, struct txn *t, struct bt_slice name, struct reg_tree **out)
{
    uint32_t id = 0;
    int rc = lookup(c, t, name, &id);

    if (rc != 0)
        return rc;
    rc = reg_get(c->reg, id, out);
    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_ECORRUPT, "tree %.*s: id %" PRIu32 " does not exist", (int)name.bytes,
                       (const char *)name.data, id);
    return rc;
}

static int
name_write(struct cat *c, struct txn *t, enum bt_write_kind kind, struct bt_slice name, uint32_t id)
{
    uint8_t value[NAME_VALUE_BYTES];
    struct bt_op op = {.kind = kind, .key = name};
    struct bt_done done;

    ch_put32(value, id);
    if (kind != BT_DEL && kind != BT_LOCK)
        op.value = (struct bt_slice){value, sizeof(value)};
    return txn_write(t, c->names, &op, &done);
}

/* ---- open ---- */

/* A new tree, which `name`, locked, will stand for: kind INSERT, or UPDATE. */
static int
make_tree(struct cat *c, struct txn *t, enum bt_write_kind kind, struct bt_slice name,
          struct tree_codec codec, struct reg_tree **out)
{
    struct pending p = {.kind = PENDING_TREE, .txn = txn_id(t)};
    struct reg_tree *tree = NULL;
    uint32_t id;
    int rc = reg_new_id(c->reg, &id, &p.root);

    if (rc != 0)
        return rc;
    p.number = id;
    rc = pending_put_alone(c, &p);
    rt_point();
    if (rc == 0)
        rc = reg_make(c->reg, id, p.root, codec.codec, codec.level);
    rt_point();
    if (rc == 0)
        rc = name_write(c, t, kind, name, id);
    if (rc == 0)
        rc = pending_del(c, t, PENDING_TREE, id);
    if (rc == 0)
        rc = reg_get(c->reg, id, &tree);
    if (rc == 0)
        rc = txn_note_created(t, tree);
    if (rc == 0)
        *out = tree;
    else if (tree != NULL)
        reg_put(c->reg, tree);
    return rc;
}

int
cat_open(struct cat *c, struct txn *t, struct bt_slice name, unsigned flags, int codec,
         int codec_level, struct reg_tree **out)
{
    struct reg_tree *tree = NULL;
    uint64_t sp;
    int rc;

    CH_ASSERT(name.bytes > 0 && name.bytes <= COHORT_NAME_MAX);
    rc = open_named(c, t, name, &tree);
    if (rc == 0) {
        if ((flags & COHORT_TREE_CREATE) != 0 && (flags & COHORT_TREE_EXCLUSIVE) != 0) {
            reg_put(c->reg, tree);
            return CH_FAIL(COHORT_EXISTS, "there is a tree %.*s", (int)name.bytes,
                           (const char *)name.data);
        }
        *out = tree;
        return 0;
    }
    if (rc != COHORT_NOTFOUND)
        return rc;
    if ((flags & COHORT_TREE_CREATE) == 0)
        return fail_missing(name);
    rc = txn_savepoint(t, &sp);
    if (rc != 0)
        return rc;
    /* Whoever creates it at the same time is met here, before anything is made. */
    rc = name_write(c, t, BT_LOCK, name, 0);
    if (rc == 0)
        rc = make_tree(c, t, BT_INSERT, name, (struct tree_codec){codec, codec_level}, &tree);
    rc = cat_group_end(t, sp, rc);
    if (rc == 0)
        *out = tree;
    else if (tree != NULL)
        reg_put(c->reg, tree);
    return rc;
}

/* ---- drop, truncate, rename ---- */

/* The tree, whose name is or will be gone, goes with the commit of t. */
static int
drop_tree(struct cat *c, struct txn *t, struct reg_tree *tree)
{
    struct pending p = {
        .kind = PENDING_TREE, .number = tree->id, .txn = txn_id(t), .root = tree->bt.root};
    int rc = reg_drop_begin(c->reg, tree, p.txn, txn_writes_into(t, tree));

    if (rc != 0)
        return rc;
    rc = txn_note_dropped(t, tree);
    if (rc != 0) {
        reg_drop_end(c->reg, tree, false);
        return rc;
    }
    return pending_put(c, t, &p);
}

int
cat_drop(struct cat *c, struct txn *t, struct bt_slice name)
{
    struct reg_tree *tree = NULL;
    uint64_t sp;
    int rc = open_named(c, t, name, &tree);

    if (rc == COHORT_NOTFOUND)
        return fail_missing(name);
    if (rc != 0)
        return rc;
    rc = txn_savepoint(t, &sp);
    if (rc == 0) {
        rc = name_write(c, t, BT_DEL, name, 0);
        if (rc == 0)
            rc = drop_tree(c, t, tree);
        rc = cat_group_end(t, sp, rc);
    }
    reg_put(c->reg, tree);
    return rc;
}

int
cat_truncate(struct cat *c, struct txn *t, struct bt_slice name)
{
    struct reg_tree *tree = NULL, *fresh = NULL;
    uint64_t sp;
    int rc = open_named(c, t, name, &tree);

    if (rc == COHORT_NOTFOUND)
        return fail_missing(name);
    if (rc != 0)
        return rc;
    rc = txn_savepoint(t, &sp);
    if (rc == 0) {
        rc = name_write(c, t, BT_LOCK, name, 0);
        if (rc == 0)
            rc = drop_tree(c, t, tree);
        if (rc == 0)
            rc = make_tree(c, t, BT_UPDATE, name,
                           (struct tree_codec){tree->codec, tree->codec_level}, &fresh);
        rc = cat_group_end(t, sp, rc);
    }
    if (fresh != NULL)
        reg_put(c->reg, fresh);
    reg_put(c->reg, tree);
    return rc;
}

int
cat_rename(struct cat *c, struct txn *t, struct bt_slice from, struct bt_slice to)
{
    struct reg_tree *tree = NULL;
    uint64_t sp;
    int rc = open_named(c, t, from, &tree);

    CH_ASSERT(to.bytes > 0 && to.bytes <= COHORT_NAME_MAX);
    if (rc == COHORT_NOTFOUND)
        return fail_missing(from);
    if (rc != 0)
        return rc;
    rc = txn_savepoint(t, &sp);
    if (rc != 0)
        goto out;
    rc = name_write(c, t, BT_INSERT, to, tree->id);
    if (rc == COHORT_EXISTS)
        rc = CH_FAIL(COHORT_EXISTS, "there is a tree %.*s", (int)to.bytes, (const char *)to.data);
    if (rc == 0)
        rc = name_write(c, t, BT_DEL, from, 0);
    if (rc == 0) { /* the id stays, so only those that are writing or dropping now count */
        rc = reg_drop_begin(c->reg, tree, txn_id(t), txn_writes_into(t, tree));
        if (rc == 0)
            reg_drop_end(c->reg, tree, false);
    }
    rc = cat_group_end(t, sp, rc);
out:
    reg_put(c->reg, tree);
    return rc;
}

/* ---- list ---- */

int
cat_list(struct cat *c, struct txn *t, int (*visit)(void *arg, const char *name), void *arg)
{
    struct txn_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    char name[COHORT_NAME_MAX + 1];
    unsigned flags;
    bool end = false;
    int rc = txn_cursor_create(t, c->names, &cur);

    if (rc == 0)
        rc = txn_cursor_seek(cur, BT_FIRST, key);
    end = rc == COHORT_NOTFOUND;
    while (rc == 0 && !end) {
        if (!txn_cursor_entry(cur, &key, &value, &flags) || key.bytes > COHORT_NAME_MAX) {
            rc = CH_FAIL(COHORT_ECORRUPT, "name of a tree: %zu bytes", key.bytes);
            break;
        }
        memcpy(name, key.data, key.bytes);
        name[key.bytes] = '\0';
        rc = visit(arg, name);
        if (rc != 0)
            break;
        rc = txn_cursor_next(cur);
        end = rc == COHORT_NOTFOUND;
    }
    txn_cursor_destroy(cur);
    return end ? 0 : rc;
}

uint64_t
cat_tree_count(struct cat *c)
{
    struct bt_cursor *cur = NULL;
    struct bt_slice none = {NULL, 0};
    uint64_t n = 0;
    int rc = bt_cursor_create(&c->names->bt, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_FIRST, none);
    for (; rc == 0; n++)
        rc = bt_next(cur);
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? n : COHORT_UNKNOWN;
}
