/* api_misuse_test.c - wrong arguments to every function: a code of the USAGE class and a text that names the function, nothing
 * done. */
#include "api/api_test_rig.h"

#include <stdio.h>

static char long_key[COHORT_KEY_MAX + 1];

/* The code, and a text that begins with the function's name. */
static void
refused(struct zt *t, const char *what, int rc, int want)
{
    const struct cohort_error *e = cohort_last_error();

    if (rc != want || e->code != want || strncmp(e->text, what, strlen(what)) != 0)
        (void)fprintf(stderr, "%s: rc %d, not %d; text: %s\n", what, rc, want, e->text);
    ZT_STATUS(t, rc, want);
    ZT_CHECK(t, e->code == want && strncmp(e->text, what, strlen(what)) == 0);
}

#define REFUSED(t, want, function, ...) refused((t), #function, function(__VA_ARGS__), (want))

static int
visit_gid(void *arg, const void *gid, size_t gid_bytes)
{
    (void)arg;
    (void)gid;
    return (int)gid_bytes;
}

static void
test_database(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL), *none = NULL;
    cohort_txn *txn = NULL;
    char *text = NULL;
    struct cohort_stats s = {0};
    cohort_batch *b = NULL;

    REFUSED(t, COHORT_EINVAL, cohort_open, NULL, NULL, &none);
    REFUSED(t, COHORT_EINVAL, cohort_open, "", NULL, &none);
    REFUSED(t, COHORT_EINVAL, cohort_open, "/x", NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_sync, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_checkpoint, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_durable, NULL, 1);
    REFUSED(t, COHORT_EINVAL, cohort_stats, NULL, &s);
    REFUSED(t, COHORT_EINVAL, cohort_stats, db, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_stats, db, &s); /* struct_bytes */
    REFUSED(t, COHORT_EINVAL, cohort_stats_json, db, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_stats_json, NULL, &text);
    REFUSED(t, COHORT_EINVAL, cohort_check, NULL, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_begin, NULL, NULL, &txn);
    REFUSED(t, COHORT_EINVAL, cohort_begin, db, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_commit_prepared, NULL, K("g"));
    REFUSED(t, COHORT_EINVAL, cohort_commit_prepared, db, NULL, 3);
    REFUSED(t, COHORT_EINVAL, cohort_abort_prepared, NULL, K("g"));
    REFUSED(t, COHORT_EINVAL, cohort_abort_prepared, db, K(""));
    REFUSED(t, COHORT_EINVAL, cohort_list_prepared, db, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_list_prepared, NULL, visit_gid, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_batch_create, NULL);
    ZT_OK(t, cohort_batch_create(&b));
    REFUSED(t, COHORT_EINVAL, cohort_batch_put, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_batch_put, b, NULL, 1, K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_batch_put, b, K("k"), NULL, 1);
    REFUSED(t, COHORT_EKEYSIZE, cohort_batch_del, b, long_key, sizeof(long_key));
    REFUSED(t, COHORT_EINVAL, cohort_write, NULL, b);
    REFUSED(t, COHORT_EINVAL, cohort_write, db, NULL);
    cohort_batch_destroy(b);
    cohort_batch_destroy(NULL);
    cohort_batch_clear(NULL);
    cohort_value_free(NULL);
    cohort_txn_cancel(NULL);
    cohort_set_wait_hook(NULL, NULL, NULL);
    ZT_CHECK(t, cohort_txn_id(NULL) == 0);
    ZT_OK(t, cohort_close(NULL));
    rig_close(t, db);
}

static void
test_single(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_tree *tree = rig_tree(t, db, "tree");
    struct cohort_value v = {0};

    REFUSED(t, COHORT_EINVAL, cohort_get, NULL, K("k"), &v);
    REFUSED(t, COHORT_EINVAL, cohort_get, db, NULL, 1, &v);
    REFUSED(t, COHORT_EINVAL, cohort_get, db, K("k"), NULL);
    REFUSED(t, COHORT_EKEYSIZE, cohort_get, db, long_key, sizeof(long_key), &v);
    REFUSED(t, COHORT_EINVAL, cohort_put, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_put, db, NULL, 1, K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_put, db, K("k"), NULL, 1);
    REFUSED(t, COHORT_EVALSIZE, cohort_put, db, K("k"), "v", (size_t)COHORT_VALUE_MAX + 1);
    REFUSED(t, COHORT_EKEYSIZE, cohort_insert, db, long_key, sizeof(long_key), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_update, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_del, NULL, K("k"));
    REFUSED(t, COHORT_EKEYSIZE, cohort_del, db, long_key, sizeof(long_key));
    REFUSED(t, COHORT_EINVAL, cohort_tree_get, NULL, K("k"), &v);
    REFUSED(t, COHORT_EINVAL, cohort_tree_get, tree, K("k"), NULL);
    REFUSED(t, COHORT_EINVAL, cohort_tree_put, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EKEYSIZE, cohort_tree_put, tree, long_key, sizeof(long_key), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_tree_insert, tree, NULL, 4, K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_tree_update, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_tree_del, NULL, K("k"));
    cohort_tree_close(tree);
    rig_close(t, db);
}

static void
test_transaction(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    struct cohort_value v = {0};
    struct cohort_slice bad = {NULL, 3}, key = {"k", 1};
    cohort_writer *w = NULL;
    uint64_t n;
    size_t got;
    int rcs;

    REFUSED(t, COHORT_EINVAL, cohort_commit, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_commit_visible, NULL, &n);
    REFUSED(t, COHORT_EINVAL, cohort_txn_refresh, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_savepoint, NULL, &n);
    REFUSED(t, COHORT_EINVAL, cohort_savepoint, a, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_rollback_to, NULL, 1);
    REFUSED(t, COHORT_EINVAL, cohort_release, NULL, 1);
    ZT_STATUS(t, cohort_rollback_to(a, 12345), COHORT_ETXN);
    ZT_STATUS(t, cohort_release(a, 12345), COHORT_ETXN);
    REFUSED(t, COHORT_EINVAL, cohort_txn_get, NULL, NULL, K("k"), &v);
    REFUSED(t, COHORT_EINVAL, cohort_txn_get, a, NULL, NULL, 1, &v);
    REFUSED(t, COHORT_EINVAL, cohort_txn_get, a, NULL, K("k"), NULL);
    REFUSED(t, COHORT_EKEYSIZE, cohort_txn_get, a, NULL, long_key, sizeof(long_key), &v);
    REFUSED(t, COHORT_EINVAL, cohort_txn_get_for_update, a, NULL, K("k"), NULL);
    REFUSED(t, COHORT_EINVAL, cohort_txn_put, NULL, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_txn_put, a, NULL, K("k"), NULL, 1);
    REFUSED(t, COHORT_EVALSIZE, cohort_txn_insert, a, NULL, K("k"), "", COHORT_VALUE_MAX + 1);
    REFUSED(t, COHORT_EINVAL, cohort_txn_update, a, NULL, NULL, 1, K("v"));
    REFUSED(t, COHORT_EKEYSIZE, cohort_txn_del, a, NULL, long_key, sizeof(long_key));
    REFUSED(t, COHORT_EINVAL, cohort_txn_del_range, NULL, NULL, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_txn_del_range, a, NULL, &bad, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_get_many, NULL, NULL, NULL, 1, &key, &v, &rcs);
    REFUSED(t, COHORT_EINVAL, cohort_get_many, db, NULL, NULL, 1, NULL, &v, &rcs);
    REFUSED(t, COHORT_EINVAL, cohort_get_many, db, NULL, NULL, 1, &bad, &v, &rcs);
    REFUSED(t, COHORT_EINVAL, cohort_get_many, db, NULL, NULL, 1, &key, NULL, &rcs);
    REFUSED(t, COHORT_EINVAL, cohort_get_many, db, NULL, NULL, 1, &key, &v, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_estimate, NULL, NULL, NULL, NULL, &n);
    REFUSED(t, COHORT_EINVAL, cohort_estimate, db, NULL, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_estimate, db, NULL, &bad, NULL, &n);
    REFUSED(t, COHORT_EINVAL, cohort_prepare, NULL, K("g"));
    REFUSED(t, COHORT_EINVAL, cohort_txn_read, NULL, NULL, K("k"), 0, &n, 1, &got, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_writer_open, NULL, NULL, K("k"), &w);
    REFUSED(t, COHORT_EINVAL, cohort_writer_open, a, NULL, K("k"), NULL);
    REFUSED(t, COHORT_EKEYSIZE, cohort_writer_open, a, NULL, long_key, sizeof(long_key), &w);
    REFUSED(t, COHORT_EINVAL, cohort_writer_append, NULL, "x", 1);
    REFUSED(t, COHORT_EINVAL, cohort_writer_finish, NULL);
    ZT_OK(t, cohort_writer_open(a, NULL, K("k"), &w));
    REFUSED(t, COHORT_EINVAL, cohort_writer_append, w, NULL, 1);
    cohort_writer_cancel(w);
    ZT_OK(t, cohort_commit(a));
    rig_is(t, db, NULL, NULL, "k", NULL);
    rig_close(t, db);
}

static void
test_trees_and_cursors(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    cohort_tree *tree = NULL;
    cohort_cursor *c = NULL;
    cohort_bulk *b = NULL;
    uint64_t n;

    REFUSED(t, COHORT_EINVAL, cohort_tree_open, NULL, NULL, "x", COHORT_TREE_CREATE, NULL, &tree);
    REFUSED(t, COHORT_EINVAL, cohort_tree_open, db, NULL, "x", COHORT_TREE_CREATE, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_tree_drop, NULL, NULL, "x", 0);
    REFUSED(t, COHORT_EINVAL, cohort_tree_drop, db, NULL, "", 0);
    REFUSED(t, COHORT_EINVAL, cohort_tree_rename, db, NULL, "x", NULL);
    REFUSED(t, COHORT_EINVAL, cohort_tree_rename, db, NULL, NULL, "x");
    REFUSED(t, COHORT_EINVAL, cohort_tree_truncate, NULL, NULL, "x");
    REFUSED(t, COHORT_EINVAL, cohort_tree_list, db, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_tree_count, NULL, NULL, NULL, &n);
    REFUSED(t, COHORT_EINVAL, cohort_tree_count, db, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_bulk_open, NULL, NULL, &b);
    REFUSED(t, COHORT_EINVAL, cohort_bulk_open, db, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_bulk_put, NULL, K("k"), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_bulk_finish, NULL);
    ZT_OK(t, cohort_bulk_open(db, NULL, &b));
    REFUSED(t, COHORT_EKEYSIZE, cohort_bulk_put, b, long_key, sizeof(long_key), K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_bulk_put, b, NULL, 1, K("v"));
    cohort_bulk_abort(b);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_open, NULL, &c);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_open, db, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_txn_cursor, NULL, NULL, &c);
    REFUSED(t, COHORT_EINVAL, cohort_txn_cursor, a, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_first, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_last, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_next, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_prev, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_seek, NULL, K("k"));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_seek_exact, NULL, K("k"));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_seek_before, NULL, K("k"));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_entry, NULL, NULL, NULL);
    REFUSED(t, COHORT_EINVAL, cohort_cursor_put, NULL, K("v"));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_del, NULL);
    ZT_OK(t, cohort_txn_put(a, NULL, K("k"), K("v")));
    ZT_OK(t, cohort_txn_cursor(a, NULL, &c));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_seek, c, NULL, 1);
    REFUSED(t, COHORT_EKEYSIZE, cohort_cursor_seek_exact, c, long_key, sizeof(long_key));
    ZT_OK(t, cohort_cursor_first(c));
    REFUSED(t, COHORT_EINVAL, cohort_cursor_put, c, NULL, 1);
    cohort_cursor_close(c);
    ZT_OK(t, cohort_commit(a));
    rig_close(t, db);
}

/* Every code has a text and a class; what is none has both, too. */
static void
test_codes(struct zt *t)
{
    for (int code = -100; code <= 5; code++)
        ZT_CHECK(t, cohort_strerror(code) != NULL && cohort_strerror(code)[0] != '\0');
    ZT_CHECK(t, cohort_class_of(COHORT_ETXN) == COHORT_CLASS_USAGE);
    ZT_CHECK(t, cohort_class_of(COHORT_CONFLICT) == COHORT_CLASS_CONFLICT);
    ZT_CHECK(t, cohort_class_of(COHORT_SNAPSHOT_TOO_OLD) == COHORT_CLASS_CONFLICT);
    ZT_CHECK(t, cohort_class_of(COHORT_CANCELED) == COHORT_CLASS_CONFLICT);
    ZT_CHECK(t, cohort_version()[0] != '\0');
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"database", test_database, 1},
        {"single", test_single, 1},
        {"transaction", test_transaction, 1},
        {"trees_and_cursors", test_trees_and_cursors, 1},
        {"codes", test_codes, 1},
    };

    return zt_main(argc, argv, "api_misuse", cases, CH_ARRAY_LEN(cases));
}
