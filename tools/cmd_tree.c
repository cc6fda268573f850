/* cmd_tree.c - cohort trees, tree-create, tree-drop, tree-rename, tree-truncate; and prepared. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "tools/tool.h"

/* ---- trees ---- */

/* Names gathered one after the other, each with its NUL. */
static int
gather_name(void *arg, const char *name)
{
    struct tool_bytes *names = arg;

    return tool_bytes_add(names, name, strlen(name) + 1);
}

static int
print_tree(const struct tool *t, const char *name, const uint64_t *entries)
{
    struct json_object *o;
    int rc;

    if (!t->json) {
        tool_print_bytes(stdout, name, strlen(name), false);
        if (entries != NULL)
            printf("\t%" PRIu64, *entries);
        putchar('\n');
        return 0;
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tool_json_bytes(o, "tree", name, strlen(name), false);
    if (rc == 0 && entries != NULL)
        rc = report_u64(o, "entries", *entries);
    if (rc == 0)
        rc = tool_json_print(json_object_get(o), stdout);
    json_object_put(o);
    return rc;
}

static int
count_and_print(const struct tool *t, cohort_db *db, cohort_txn *txn, const char *name)
{
    cohort_tree *tree = NULL;
    uint64_t entries = 0;
    int rc = tool_tree(db, txn, name, 0, &tree);

    if (rc == 0)
        rc = cohort_tree_count(db, txn, tree, &entries);
    if (rc == 0)
        rc = print_tree(t, name, &entries);
    cohort_tree_close(tree);
    return rc;
}

static int
list_trees(const struct tool *t, cohort_db *db, bool names_only)
{
    struct tool_bytes names = {0};
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;
    size_t at = 0;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = true;
    rc = cohort_begin(db, &o, &txn);
    if (rc == 0)
        rc = cohort_tree_list(db, txn, gather_name, &names);
    while (rc == 0 && at < names.bytes) {
        const char *name = (const char *)names.data + at;

        rc = names_only ? print_tree(t, name, NULL) : count_and_print(t, db, txn, name);
        at += strlen(name) + 1;
    }
    rc = tool_end(txn, rc);
    free(names.data);
    return rc != 0 ? rc : tool_flush();
}

int
cmd_trees(struct tool *t, int argc, char **argv)
{
    bool names_only = false;
    const struct arg own[] = {
        {"names", 0, ARG_FLAG, &names_only, NULL, "Names only: nothing is counted."},
    };
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = list_trees(t, db, names_only);
    return tool_close(db, rc);
}

/* ---- create, drop, rename, truncate ---- */

static int
name_tree(int rc, const char *name)
{
    return rc == COHORT_NOTFOUND || rc == COHORT_EXISTS ? CH_FAIL(rc, "tree '%.100s'", name) : rc;
}

/* The codec by its name, as the database's option takes it. */
static int
tree_options(const char *codec, uint64_t level, struct cohort_tree_options *o)
{
    struct cohort_options all;
    int rc = 0;

    cohort_options_init(&all);
    cohort_tree_options_init(o);
    if (codec != NULL)
        rc = cohort_options_set(&all, "codec", codec);
    if (level > INT32_MAX)
        return CH_FAIL(COHORT_EOPTION, "--tree-codec-level %" PRIu64, level);
    o->codec = (int)all.codec;
    o->codec_level = (int)level;
    return rc;
}

int
cmd_tree_create(struct tool *t, int argc, char **argv)
{
    const char *codec = NULL;
    uint64_t level = 0;
    bool create = false;
    const struct arg own[] = {
        {"tree-codec", 0, ARG_TEXT, &codec, NULL, "default, none, lz4 or zstd, of this tree."},
        {"tree-codec-level", 0, ARG_U64, &level, NULL, "zstd level; 0 = 1."},
        {"create", 0, ARG_FLAG, &create, NULL, "Creates the database when it is missing."},
    };
    struct cohort_tree_options o;
    cohort_tree *tree = NULL;
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tree_options(codec, level, &o);
    if (rc == 0 && create)
        rc = cohort_options_set(&t->options, "create", "yes");
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc == 0)
        rc = name_tree(cohort_tree_open(db, NULL, pos[1],
                                        COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE, &o, &tree),
                       pos[1]);
    cohort_tree_close(tree);
    return tool_close(db, rc);
}

int
cmd_tree_drop(struct tool *t, int argc, char **argv)
{
    bool if_exists = false;
    const struct arg own[] = {
        {"if-exists", 0, ARG_FLAG, &if_exists, NULL, "A missing tree is no error."},
    };
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = name_tree(cohort_tree_drop(db, NULL, pos[1], if_exists ? COHORT_TREE_IF_EXISTS : 0),
                       pos[1]);
    return tool_close(db, rc);
}

int
cmd_tree_rename(struct tool *t, int argc, char **argv)
{
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 3, 3, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = cohort_tree_rename(db, NULL, pos[1], pos[2]);
    return tool_close(db, name_tree(rc, rc == COHORT_EXISTS ? pos[2] : pos[1]));
}

int
cmd_tree_truncate(struct tool *t, int argc, char **argv)
{
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = name_tree(cohort_tree_truncate(db, NULL, pos[1]), pos[1]);
    return tool_close(db, rc);
}

/* ---- prepared ---- */

static int
print_gid(void *arg, const void *gid, size_t gid_bytes)
{
    const struct tool *t = arg;
    struct json_object *o;
    int rc;

    if (!t->json) {
        tool_print_bytes(stdout, gid, gid_bytes, t->hex);
        putchar('\n');
        return 0;
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tool_json_bytes(o, "gid", gid, gid_bytes, t->hex);
    if (rc == 0)
        rc = tool_json_print(json_object_get(o), stdout);
    json_object_put(o);
    return rc;
}

static int
decide(struct tool *t, cohort_db *db, const char *text, bool commit)
{
    struct tool_bytes gid = {0};
    int rc = tool_bytes_arg(t, &gid, text);

    if (rc == 0)
        rc = commit ? cohort_commit_prepared(db, gid.data, gid.bytes)
                    : cohort_abort_prepared(db, gid.data, gid.bytes);
    free(gid.data);
    return rc == COHORT_NOTFOUND ? CH_FAIL(rc, "prepared transaction '%.100s'", text) : rc;
}

int
cmd_prepared(struct tool *t, int argc, char **argv)
{
    const char *commit = NULL, *abort_gid = NULL;
    const struct arg own[] = {
        {"commit", 0, ARG_TEXT, &commit, NULL, "Commits the one with this id."},
        {"abort", 0, ARG_TEXT, &abort_gid, NULL, "Aborts the one with this id."},
    };
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (commit != NULL && abort_gid != NULL)
        return CH_FAIL(COHORT_EINVAL, "--commit and --abort exclude each other");
    rc = tool_open(t, &db);
    if (rc == 0 && commit != NULL)
        rc = decide(t, db, commit, true);
    else if (rc == 0 && abort_gid != NULL)
        rc = decide(t, db, abort_gid, false);
    else if (rc == 0)
        rc = cohort_list_prepared(db, print_gid, t);
    if (rc == 0)
        rc = tool_flush();
    return tool_close(db, rc);
}
