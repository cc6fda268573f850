/* tree.c - named trees: handles, and what src/cat does to them within a transaction or one of its own. */
#include "api/api_internal.h"

#include <stdlib.h>

COHORT_API void
cohort_tree_options_init(struct cohort_tree_options *o)
{
    if (o == NULL)
        return;
    *o = (struct cohort_tree_options){.struct_bytes = sizeof(*o), .codec = COHORT_CODEC_DEFAULT};
}

/* What is to be done to trees; `run` is called with the transaction, whoever has begun it. */
struct tree_call {
    int (*run)(struct tree_call *c, struct cat *cat, struct txn *t);
    struct bt_slice name, to;
    unsigned flags;
    struct cohort_tree_options options;
    struct reg_tree *tree; /* of open */
    struct reg *reg;
    int (*visit)(void *arg, const char *name);
    void *arg;
    bool read_only;
};

/* In `t`, or, NULL, in a transaction of its own, which begins anew as long as others are in its way. */
static int
call(const char *what, cohort_db *db, cohort_txn *t, struct tree_call *c)
{
    struct api_retry retry = {0};
    int rc;

    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "%s: no database", what);
    c->reg = db->db->reg;
    if (t != NULL) {
        if (t->t == NULL)
            return CH_FAIL(COHORT_ETXN, "%s: the transaction has ended", what);
        if (t->db != db)
            return CH_FAIL(COHORT_EINVAL, "%s: the transaction is of another database", what);
        rc = c->run(c, db->db->cat, t->t);
        t->wrote = t->wrote || (rc == 0 && !c->read_only);
        return rc;
    }
    do {
        rc = api_begin(db, c->read_only, &t);
        if (rc != 0)
            return rc;
        rc = c->run(c, db->db->cat, t->t);
        rc = api_end(t, rc);
        if (rc != 0 && c->tree != NULL) {
            reg_put(c->reg, c->tree);
            c->tree = NULL;
        }
    } while (api_again(&retry, db, rc));
    return rc;
}

static int
check_name(const char *what, const char *name, struct bt_slice *out)
{
    size_t n = name == NULL ? 0 : strlen(name);

    if (n == 0 || n > COHORT_NAME_MAX)
        return CH_FAIL(COHORT_EINVAL, "%s: name of %zu bytes, 1 to %d are possible", what, n,
                       COHORT_NAME_MAX);
    *out = (struct bt_slice){name, n};
    return 0;
}

static int
check_flags(const char *what, unsigned flags, unsigned possible)
{
    if ((flags & ~possible) != 0)
        return CH_FAIL(COHORT_EINVAL, "%s: flags 0x%x, 0x%x are possible", what, flags, possible);
    return 0;
}

/* ---- open and close ---- */

static int
run_open(struct tree_call *c, struct cat *cat, struct txn *t)
{
    return cat_open(cat, t, c->name, c->flags, c->options.codec, c->options.codec_level, &c->tree);
}

static int
check_tree_options(const struct cohort_tree_options *o)
{
    if (o->struct_bytes != sizeof(*o))
        return CH_FAIL(COHORT_EINVAL,
                       "cohort_tree_open: options not set up by cohort_tree_options_init()");
    if (o->codec < COHORT_CODEC_DEFAULT || o->codec > COHORT_CODEC_ZSTD)
        return CH_FAIL(COHORT_EOPTION, "cohort_tree_open: codec %d", o->codec);
    if (o->codec_level < 0 || o->codec_level > API_CODEC_LEVEL_MAX)
        return CH_FAIL(COHORT_EOPTION, "cohort_tree_open: codec_level %d, 0 to %d are possible",
                       o->codec_level, API_CODEC_LEVEL_MAX);
    return 0;
}

static int
check_open_call(const char *name, unsigned flags, const struct cohort_tree_options *o,
                struct tree_call *c)
{
    int rc = check_name("cohort_tree_open", name, &c->name);

    if (rc == 0)
        rc = check_flags("cohort_tree_open", flags, COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE);
    if (rc == 0 && flags == COHORT_TREE_EXCLUSIVE)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_tree_open: EXCLUSIVE goes with CREATE");
    if (rc == 0 && o != NULL)
        rc = check_tree_options(o);
    cohort_tree_options_init(&c->options);
    if (o != NULL)
        c->options = *o;
    c->flags = flags;
    c->read_only = (flags & COHORT_TREE_CREATE) == 0;
    return rc;
}

COHORT_API int
cohort_tree_open(cohort_db *db, cohort_txn *t, const char *name, unsigned flags,
                 const struct cohort_tree_options *o, cohort_tree **out)
{
    struct tree_call c = {.run = run_open};
    cohort_tree *tree;
    int rc = check_open_call(name, flags, o, &c);

    if (rc != 0)
        return rc;
    if (out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_tree_open: null argument: tree");
    tree = calloc(1, sizeof(*tree));
    if (tree == NULL)
        return CH_FAIL(COHORT_ENOMEM, "tree handle");
    rc = call("cohort_tree_open", db, t, &c);
    if (rc != 0) {
        free(tree);
        return rc;
    }
    *tree = (struct cohort_tree){.db = db, .tree = c.tree};
    atomic_fetch_add_explicit(&db->handles, 1, memory_order_relaxed);
    *out = tree;
    return 0;
}

COHORT_API void
cohort_tree_close(cohort_tree *tree)
{
    if (tree == NULL)
        return;
    reg_put(tree->db->db->reg, tree->tree);
    atomic_fetch_sub_explicit(&tree->db->handles, 1, memory_order_relaxed);
    free(tree);
}

/* ---- drop, rename, truncate, list ---- */

static int
run_drop(struct tree_call *c, struct cat *cat, struct txn *t)
{
    int rc = cat_drop(cat, t, c->name);

    return rc == COHORT_NOTFOUND && (c->flags & COHORT_TREE_IF_EXISTS) != 0 ? 0 : rc;
}

COHORT_API int
cohort_tree_drop(cohort_db *db, cohort_txn *t, const char *name, unsigned flags)
{
    struct tree_call c = {.run = run_drop, .flags = flags};
    int rc = check_name("cohort_tree_drop", name, &c.name);

    if (rc == 0)
        rc = check_flags("cohort_tree_drop", flags, COHORT_TREE_IF_EXISTS);
    return rc != 0 ? rc : call("cohort_tree_drop", db, t, &c);
}

static int
run_rename(struct tree_call *c, struct cat *cat, struct txn *t)
{
    return cat_rename(cat, t, c->name, c->to);
}

COHORT_API int
cohort_tree_rename(cohort_db *db, cohort_txn *t, const char *from, const char *to)
{
    struct tree_call c = {.run = run_rename};
    int rc = check_name("cohort_tree_rename", from, &c.name);

    if (rc == 0)
        rc = check_name("cohort_tree_rename", to, &c.to);
    return rc != 0 ? rc : call("cohort_tree_rename", db, t, &c);
}

static int
run_truncate(struct tree_call *c, struct cat *cat, struct txn *t)
{
    return cat_truncate(cat, t, c->name);
}

COHORT_API int
cohort_tree_truncate(cohort_db *db, cohort_txn *t, const char *name)
{
    struct tree_call c = {.run = run_truncate};
    int rc = check_name("cohort_tree_truncate", name, &c.name);

    return rc != 0 ? rc : call("cohort_tree_truncate", db, t, &c);
}

static int
run_list(struct tree_call *c, struct cat *cat, struct txn *t)
{
    return cat_list(cat, t, c->visit, c->arg);
}

COHORT_API int
cohort_tree_list(cohort_db *db, cohort_txn *t, int (*visit)(void *arg, const char *name), void *arg)
{
    struct tree_call c = {.run = run_list, .visit = visit, .arg = arg, .read_only = true};

    if (visit == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_tree_list: null argument: visit");
    return call("cohort_tree_list", db, t, &c);
}

/* ---- count ---- */

static int
count_entries(cohort_txn *t, struct reg_tree *tree, uint64_t *count)
{
    struct txn_cursor *c = NULL;
    uint64_t n = 0;
    int rc = txn_cursor_create(t->t, tree, &c);

    if (rc == 0)
        rc = txn_cursor_seek(c, BT_FIRST, (struct bt_slice){0});
    while (rc == 0) {
        n++;
        rc = txn_cursor_next(c);
    }
    txn_cursor_destroy(c);
    if (rc != COHORT_NOTFOUND)
        return rc;
    *count = n;
    return 0;
}

COHORT_API int
cohort_tree_count(cohort_db *db, cohort_txn *t, cohort_tree *tree, uint64_t *count)
{
    struct reg_tree *rt;
    cohort_txn *own = NULL;
    int rc;

    if (count == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_tree_count: null argument: count");
    if (t != NULL) {
        rc = api_check_txn("cohort_tree_count", t, tree, &rt);
        return rc != 0 ? rc : count_entries(t, rt, count);
    }
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_tree_count: no database");
    rc = api_begin(db, true, &own);
    if (rc != 0)
        return rc;
    rc = api_check_tree("cohort_tree_count", db, tree, &rt);
    if (rc == 0)
        rc = count_entries(own, rt, count);
    return api_end(own, rc);
}
