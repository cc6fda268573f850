/* api_tree_test.c - named trees, large values and bulk loads through the public API. */
#include "api/api_test_rig.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- trees ---- */

struct names {
    char text[512];
    int count, stop_at;
};

static int
visit_name(void *arg, const char *name)
{
    struct names *n = arg;

    (void)snprintf(n->text + strlen(n->text), sizeof(n->text) - strlen(n->text), "%s ", name);
    return ++n->count == n->stop_at ? 33 : 0;
}

static void
list_is(struct zt *t, cohort_db *db, cohort_txn *txn, const char *want)
{
    struct names n = {0};

    ZT_OK(t, cohort_tree_list(db, txn, visit_name, &n));
    ZT_CHECK(t, strcmp(n.text, want) == 0);
}

static void
test_names(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = rig_open(t, dir);
    cohort_tree *tree = NULL, *again = NULL;
    struct names n = {.stop_at = 2};
    char name[COHORT_NAME_MAX + 2];

    memset(name, 'n', sizeof(name));
    name[COHORT_NAME_MAX + 1] = '\0';
    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", 0, NULL, &tree), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_tree_open(db, NULL, "", COHORT_TREE_CREATE, NULL, &tree), COHORT_EINVAL);
    ZT_STATUS(t, cohort_tree_open(db, NULL, NULL, COHORT_TREE_CREATE, NULL, &tree), COHORT_EINVAL);
    ZT_STATUS(t, cohort_tree_open(db, NULL, name, COHORT_TREE_CREATE, NULL, &tree), COHORT_EINVAL);
    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", COHORT_TREE_EXCLUSIVE, NULL, &tree),
              COHORT_EINVAL);
    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", 64, NULL, &tree), COHORT_EINVAL);
    name[COHORT_NAME_MAX] = '\0';
    cohort_tree_close(rig_tree(t, db, name));
    ZT_OK(t, cohort_tree_drop(db, NULL, name, 0));
    tree = rig_tree(t, db, "b");
    again = rig_tree(t, db, "b"); /* idempotent */
    ZT_OK(t, cohort_tree_put(tree, K("k"), K("v")));
    rig_is(t, db, NULL, again, "k", "v");
    cohort_tree_close(again);
    ZT_STATUS(
        t,
        cohort_tree_open(db, NULL, "b", COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE, NULL, &again),
        COHORT_EXISTS);
    cohort_tree_close(rig_tree(t, db, "a"));
    cohort_tree_close(rig_tree(t, db, "c"));
    list_is(t, db, NULL, "a b c ");
    ZT_STATUS(t, cohort_tree_list(db, NULL, visit_name, &n), 33);
    ZT_CHECK(t, n.count == 2);
    ZT_STATUS(t, cohort_tree_rename(db, NULL, "none", "d"), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_tree_rename(db, NULL, "b", "c"), COHORT_EXISTS);
    ZT_OK(t, cohort_tree_rename(db, NULL, "b", "z"));
    rig_is(t, db, NULL, tree, "k", "v"); /* the handle stays good */
    ZT_STATUS(t, cohort_tree_drop(db, NULL, "b", 0), COHORT_NOTFOUND);
    ZT_OK(t, cohort_tree_drop(db, NULL, "b", COHORT_TREE_IF_EXISTS));
    ZT_STATUS(t, cohort_tree_drop(db, NULL, "a", COHORT_TREE_CREATE), COHORT_EINVAL);
    ZT_OK(t, cohort_tree_drop(db, NULL, "a", 0));
    list_is(t, db, NULL, "c z ");
    cohort_tree_close(tree);
    cohort_tree_close(NULL);
    rig_close(t, db);
    db = rig_open(t, dir);
    list_is(t, db, NULL, "c z ");
    ZT_OK(t, cohort_tree_open(db, NULL, "z", 0, NULL, &tree));
    rig_is(t, db, NULL, tree, "k", "v");
    cohort_tree_close(tree);
    rig_close(t, db);
}

static void
test_tree_options(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_tree_options o = {0};
    cohort_tree *tree = NULL;

    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", COHORT_TREE_CREATE, &o, &tree), COHORT_EINVAL);
    cohort_tree_options_init(NULL);
    cohort_tree_options_init(&o);
    o.codec = 99;
    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", COHORT_TREE_CREATE, &o, &tree), COHORT_EOPTION);
    cohort_tree_options_init(&o);
    o.codec_level = 99;
    ZT_STATUS(t, cohort_tree_open(db, NULL, "x", COHORT_TREE_CREATE, &o, &tree), COHORT_EOPTION);
    o.codec = COHORT_CODEC_ZSTD;
    o.codec_level = 3;
    ZT_OK(t, cohort_tree_open(db, NULL, "x", COHORT_TREE_CREATE, &o, &tree));
    for (uint32_t i = 0; i < 2000; i++)
        ZT_OK(t, cohort_tree_put(tree, &i, 4, "the same text over and over again", 33));
    ZT_OK(t, cohort_checkpoint(db));
    cohort_tree_close(tree);
    rig_close(t, db);
}

static void
test_single_operations(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_tree *a = rig_tree(t, db, "a"), *b = rig_tree(t, db, "b");
    struct cohort_value v = {0};

    ZT_STATUS(t, cohort_tree_get(a, K("k"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_tree_update(a, K("k"), K("1")), COHORT_NOTFOUND);
    ZT_OK(t, cohort_tree_insert(a, K("k"), K("1")));
    ZT_STATUS(t, cohort_tree_insert(a, K("k"), K("1")), COHORT_EXISTS);
    ZT_OK(t, cohort_tree_update(a, K("k"), K("2")));
    ZT_OK(t, cohort_tree_put(b, K("k"), K("b")));
    ZT_OK(t, cohort_put(db, K("k"), K("main")));
    rig_is(t, db, NULL, a, "k", "2");
    rig_is(t, db, NULL, b, "k", "b");
    rig_is(t, db, NULL, NULL, "k", "main");
    ZT_OK(t, cohort_tree_del(a, K("k")));
    ZT_STATUS(t, cohort_tree_del(a, K("k")), COHORT_NOTFOUND);
    rig_is(t, db, NULL, b, "k", "b");
    cohort_value_free(&v);
    cohort_tree_close(a);
    cohort_tree_close(b);
    rig_close(t, db);
}

/* Every use of the handle says that its tree is gone. */
static void
expect_gone(struct zt *t, cohort_db *db, cohort_tree *tree)
{
    struct cohort_value v = {0};
    cohort_txn *a = rig_begin(t, db);
    cohort_cursor *c = NULL;
    cohort_bulk *bulk = NULL;
    uint64_t n;

    ZT_STATUS(t, cohort_tree_get(tree, K("k"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_tree_put(tree, K("k"), K("v")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_get(a, tree, K("k"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_put(a, tree, K("k"), K("v")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_cursor(a, tree, &c), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_tree_count(db, a, tree, &n), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_estimate(db, tree, NULL, NULL, &n), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_bulk_open(db, tree, &bulk), COHORT_NOTFOUND);
    ZT_OK(t, cohort_commit(a));
}

static void
test_transactional(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_tree *tree = NULL, *kept = rig_tree(t, db, "kept");
    cohort_txn *a = rig_begin(t, db), *b;

    ZT_OK(t, cohort_tree_put(kept, K("k"), K("v")));
    ZT_OK(t, cohort_tree_open(db, a, "made", COHORT_TREE_CREATE, NULL, &tree));
    ZT_OK(t, cohort_txn_put(a, tree, K("k"), K("v")));
    list_is(t, db, a, "kept made ");
    list_is(t, db, NULL, "kept ");
    ZT_OK(t, cohort_abort(a));
    list_is(t, db, NULL, "kept ");
    expect_gone(t, db, tree);
    cohort_tree_close(tree);
    a = rig_begin(t, db);
    ZT_OK(t, cohort_tree_open(db, a, "made", COHORT_TREE_CREATE, NULL, &tree));
    ZT_OK(t, cohort_txn_put(a, tree, K("k"), K("v")));
    ZT_OK(t, cohort_tree_rename(db, a, "kept", "renamed"));
    ZT_OK(t, cohort_commit(a));
    list_is(t, db, NULL, "made renamed ");
    rig_is(t, db, NULL, tree, "k", "v");
    /* A drop undone, by itself and to a savepoint. */
    a = rig_begin(t, db);
    ZT_OK(t, cohort_tree_drop(db, a, "renamed", 0));
    list_is(t, db, a, "made ");
    ZT_OK(t, cohort_abort(a));
    rig_is(t, db, NULL, kept, "k", "v");
    /* Others in the way. */
    a = rig_begin(t, db);
    b = rig_begin(t, db);
    ZT_OK(t, cohort_txn_put(a, tree, K("x"), K("v")));
    ZT_STATUS(t, cohort_tree_drop(db, b, "made", 0), COHORT_CONFLICT);
    ZT_STATUS(t, cohort_tree_truncate(db, b, "made"), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(b));
    ZT_OK(t, cohort_commit(a));
    /* For good; a snapshot from before still reads it by a handle that was opened before. */
    ZT_OK(t, cohort_tree_truncate(db, NULL, "made"));
    expect_gone(t, db, tree);
    cohort_tree_close(tree);
    ZT_OK(t, cohort_tree_open(db, NULL, "made", 0, NULL, &tree));
    rig_is(t, db, NULL, tree, "k", NULL);
    ZT_OK(t, cohort_tree_drop(db, NULL, "made", 0));
    expect_gone(t, db, tree);
    cohort_tree_close(tree);
    cohort_tree_close(kept);
    list_is(t, db, NULL, "renamed ");
    rig_close(t, db);
}

/* Of another database, or with a handle that outlives its transaction. */
static void
test_strangers(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL), *other = rig_open(t, NULL);
    cohort_tree *tree = rig_tree(t, other, "tree");
    cohort_txn *a = rig_begin(t, db);
    struct cohort_value v = {0};
    uint64_t n;

    ZT_STATUS(t, cohort_txn_get(a, tree, K("k"), &v), COHORT_EINVAL);
    ZT_STATUS(t, cohort_txn_put(a, tree, K("k"), K("v")), COHORT_EINVAL);
    ZT_STATUS(t, cohort_estimate(db, tree, NULL, NULL, &n), COHORT_EINVAL);
    ZT_STATUS(t, cohort_tree_drop(other, a, "tree", 0), COHORT_EINVAL);
    ZT_OK(t, cohort_abort(a));
    cohort_tree_close(tree);
    rig_close(t, db);
    rig_close(t, other);
}

/* ---- large values ---- */

static void
put_large(struct zt *t, cohort_db *db, uint32_t id, size_t n)
{
    uint8_t *data = malloc(n + 1);

    CH_ASSERT(data != NULL);
    rig_fill(id, 0, data, n);
    ZT_OK(t, cohort_put(db, &id, sizeof(id), data, n));
    free(data);
}

static void
is_slice(struct zt *t, const struct cohort_slice *s, uint32_t id, size_t n)
{
    uint8_t *want = malloc(n + 1);

    CH_ASSERT(want != NULL);
    rig_fill(id, 0, want, n);
    ZT_CHECK(t, s->bytes == n && memcmp(s->data, want, n) == 0);
    free(want);
}

static void
is_large(struct zt *t, const struct cohort_value *v, uint32_t id, size_t n)
{
    is_slice(t, &(struct cohort_slice){v->data, v->bytes}, id, n);
}

static void
test_large_values(struct zt *t)
{
    static const size_t sizes[] = {0,    1,    1955,  1956,   1957,   1960,   1961,
                                   4096, 9999, 40000, 300000, 300001, 3000000};
    const char *dir = zt_tmpdir(t);
    cohort_db *db = rig_open(t, dir);
    struct cohort_value v = {0};
    cohort_cursor *c = NULL;
    struct cohort_slice k, s;
    uint32_t i = 0;

    for (i = 0; i < CH_ARRAY_LEN(sizes); i++)
        put_large(t, db, i, sizes[i]);
    for (int round = 0; round < 2; round++) {
        for (i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            ZT_OK(t, cohort_get(db, &i, sizeof(i), &v));
            is_large(t, &v, i, sizes[i]);
        }
        rig_close(t, db);
        db = rig_open(t, dir);
    }
    ZT_OK(t, cohort_cursor_open(db, &c));
    ZT_OK(t, cohort_cursor_first(c));
    for (i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        ZT_OK(t, cohort_cursor_entry(c, &k, NULL)); /* without the value */
        ZT_OK(t, cohort_cursor_entry(c, &k, &s));
        ZT_OK(t, cohort_cursor_entry(c, NULL, &s));
        ZT_CHECK(t, k.bytes == 4 && ch_get32(k.data) == i);
        is_slice(t, &s, i, sizes[i]);
        (void)cohort_cursor_next(c);
    }
    for (i = 7; i > 4; i--) { /* seeks, too, leave the value before behind */
        ZT_OK(t, cohort_cursor_seek_exact(c, &i, sizeof(i)));
        ZT_OK(t, cohort_cursor_entry(c, &k, &s));
        is_slice(t, &s, i, sizes[i]);
    }
    cohort_cursor_close(c);
    /* Larger to smaller, smaller to larger, and none. */
    for (i = 0; i < CH_ARRAY_LEN(sizes); i++)
        put_large(t, db, i, sizes[CH_ARRAY_LEN(sizes) - 1 - i]);
    for (i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        ZT_OK(t, cohort_get(db, &i, sizeof(i), &v));
        is_large(t, &v, i, sizes[CH_ARRAY_LEN(sizes) - 1 - i]);
        ZT_OK(t, cohort_del(db, &i, sizeof(i)));
        ZT_STATUS(t, cohort_get(db, &i, sizeof(i), &v), COHORT_NOTFOUND);
    }
    cohort_value_free(&v);
    rig_close(t, db);
}

static void
test_read_pieces(struct zt *t)
{
    enum {
        BYTES = 500000
    };
    cohort_db *db = rig_open(t, NULL);
    uint8_t *got = malloc(BYTES), *want = malloc(BYTES);
    uint32_t id = 7;
    cohort_txn *a;
    uint64_t total;
    size_t n;

    CH_ASSERT(got != NULL && want != NULL);
    put_large(t, db, id, BYTES);
    ZT_OK(t, cohort_put(db, K("small"), K("0123456789")));
    a = rig_begin_as(t, db, true, COHORT_SNAPSHOT);
    ZT_OK(t, cohort_put(db, &id, sizeof(id), "now short", 9)); /* not for a */
    for (int i = 0; i < 200; i++) {
        uint64_t off = zt_below(t, BYTES + 5000);
        size_t bytes = (size_t)zt_below(t, 20000);
        size_t exist = off >= BYTES ? 0 : (size_t)ch_min_u64(bytes, BYTES - off);

        ZT_OK(t, cohort_txn_read(a, NULL, &id, sizeof(id), off, got, bytes, &n, &total));
        rig_fill(id, off, want, exist);
        ZT_CHECK(t, n == exist && total == BYTES && memcmp(got, want, n) == 0);
    }
    ZT_OK(t, cohort_txn_read(a, NULL, K("small"), 8, got, 100, &n, NULL));
    ZT_CHECK(t, n == 2 && memcmp(got, "89", 2) == 0);
    ZT_OK(t, cohort_txn_read(a, NULL, K("small"), UINT64_MAX, got, 100, &n, NULL));
    ZT_CHECK(t, n == 0);
    ZT_STATUS(t, cohort_txn_read(a, NULL, K("none"), 0, got, 1, &n, NULL), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_read(a, NULL, K("small"), 0, NULL, 1, &n, NULL), COHORT_EINVAL);
    ZT_STATUS(t, cohort_txn_read(a, NULL, K("small"), 0, got, 1, NULL, NULL), COHORT_EINVAL);
    ZT_OK(t, cohort_commit(a));
    free(got);
    free(want);
    rig_close(t, db);
}

static void
write_pieces(struct zt *t, cohort_txn *a, cohort_writer *w, uint32_t id, size_t bytes)
{
    uint8_t buf[7000];
    size_t at = 0;

    while (at < bytes) {
        size_t n = (size_t)ch_min_u64(bytes - at, zt_below(t, sizeof(buf)));

        rig_fill(id, at, buf, n);
        ZT_OK(t, cohort_writer_append(w, buf, n));
        at += n;
        if (zt_below(t, 10) == 0) /* other calls may come in between */
            ZT_OK(t, cohort_txn_put(a, NULL, &at, sizeof(at), "x", 1));
    }
}

static void
test_writer(struct zt *t)
{
    static const size_t sizes[] = {0, 5, 1956, 1957, 100000, 1500000};
    cohort_db *db = rig_open(t, NULL);
    struct cohort_value v = {0};

    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        uint32_t id = 50 + (uint32_t)i;
        cohort_txn *a = rig_begin(t, db);
        cohort_writer *w = NULL, *never = NULL;

        ZT_OK(t, cohort_writer_open(a, NULL, &id, sizeof(id), &w));
        ZT_OK(t, cohort_writer_open(a, NULL, K("never"), &never));
        ZT_OK(t, cohort_writer_append(never, "x", 1));
        write_pieces(t, a, w, id, sizes[i]);
        ZT_STATUS(t, cohort_txn_get(a, NULL, &id, sizeof(id), &v), COHORT_NOTFOUND);
        ZT_OK(t, cohort_writer_finish(w));
        ZT_OK(t, cohort_txn_get(a, NULL, &id, sizeof(id), &v));
        is_large(t, &v, id, sizes[i]);
        cohort_writer_cancel(never);
        cohort_writer_cancel(NULL);
        ZT_STATUS(t, cohort_get(db, &id, sizeof(id), &v), COHORT_NOTFOUND);
        ZT_OK(t, cohort_commit(a));
        ZT_OK(t, cohort_get(db, &id, sizeof(id), &v));
        is_large(t, &v, id, sizes[i]);
        rig_is(t, db, NULL, NULL, "never", NULL);
    }
    cohort_value_free(&v);
    rig_close(t, db);
}

/* Overwritten, deleted, aborted and canceled values give their space back. */
static void
test_space(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    uint64_t pages = 0;

    for (int round = 0; round < 12; round++) {
        cohort_txn *a;
        cohort_writer *w = NULL;
        uint32_t id = 1;

        put_large(t, db, id, 2000000);
        a = rig_begin(t, db);
        ZT_OK(t, cohort_writer_open(a, NULL, &id, sizeof(id), &w));
        write_pieces(t, a, w, 2, 1000000);
        if (round % 2 == 0)
            ZT_OK(t, cohort_writer_finish(w));
        else
            cohort_writer_cancel(w);
        ZT_OK(t, cohort_abort(a));
        ZT_OK(t, cohort_del(db, &id, sizeof(id)));
        ZT_OK(t, cohort_checkpoint(db));
        ZT_OK(t, cohort_stats(db, &s));
        pages = ch_max_u64(pages, s.pages);
    }
    /* 12 rounds of 3 MB would be some 9,000 pages. */
    ZT_CHECK(t, pages < 4500);
    rig_close(t, db);
}

/* ---- bulk ---- */

static void
test_bulk(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_tree *tree = rig_tree(t, db, "bulk");
    struct cohort_check_result r;
    struct cohort_value v = {0};
    cohort_bulk *b = NULL;
    char key[16];
    uint64_t n;

    ZT_OK(t, cohort_bulk_open(db, tree, &b));
    for (unsigned i = 0; i < 30000; i++) {
        (void)snprintf(key, sizeof(key), "%08u", i);
        ZT_OK(t, cohort_bulk_put(b, key, 8, key, 8));
    }
    rig_is(t, db, NULL, tree, "00000007", NULL);
    ZT_OK(t, cohort_bulk_finish(b));
    ZT_OK(t, cohort_tree_count(db, NULL, tree, &n));
    ZT_CHECK(t, n == 30000);
    rig_is(t, db, NULL, tree, "00000007", "00000007");
    ZT_OK(t, cohort_check(db, NULL, NULL, &r));
    ZT_CHECK(t, (double)r.leaf_used_bytes >= 0.9 * (double)r.leaf_pages * CH_PAGE_BYTES);
    /* Not empty, or not ascending. */
    ZT_OK(t, cohort_bulk_open(db, tree, &b));
    ZT_OK(t, cohort_bulk_put(b, K("a"), K("b")));
    ZT_STATUS(t, cohort_bulk_finish(b), COHORT_CONFLICT);
    ZT_OK(t, cohort_bulk_open(db, NULL, &b));
    ZT_OK(t, cohort_bulk_put(b, K("b"), K("b")));
    ZT_STATUS(t, cohort_bulk_put(b, K("b"), K("b")), COHORT_EINVAL);
    cohort_bulk_abort(b);
    cohort_bulk_abort(NULL);
    rig_is(t, db, NULL, NULL, "b", NULL);
    /* Somebody writes meanwhile. */
    ZT_OK(t, cohort_bulk_open(db, NULL, &b));
    ZT_OK(t, cohort_bulk_put(b, K("b"), K("b")));
    ZT_OK(t, cohort_put(db, K("x"), K("y")));
    ZT_STATUS(t, cohort_bulk_finish(b), COHORT_CONFLICT);
    rig_is(t, db, NULL, NULL, "b", NULL);
    rig_is(t, db, NULL, NULL, "x", "y");
    cohort_value_free(&v);
    cohort_tree_close(tree);
    rig_close(t, db);
}

/* A snapshot from before sees the tree empty; none, large and empty values. */
static void
test_bulk_views(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = rig_open(t, dir);
    cohort_txn *before;
    struct cohort_value v = {0};
    uint8_t *large = malloc(100000);
    cohort_bulk *b = NULL;
    uint64_t n;

    CH_ASSERT(large != NULL);
    rig_fill(9, 0, large, 100000);
    before = rig_begin_as(t, db, true, COHORT_SNAPSHOT);
    ZT_OK(t, cohort_bulk_open(db, NULL, &b));
    ZT_OK(t, cohort_bulk_finish(b)); /* of nothing */
    ZT_OK(t, cohort_bulk_open(db, NULL, &b));
    ZT_OK(t, cohort_bulk_put(b, K("a"), "", 0));
    ZT_OK(t, cohort_bulk_put(b, K("b"), large, 100000));
    ZT_OK(t, cohort_bulk_put(b, K("c"), K("c")));
    ZT_OK(t, cohort_bulk_finish(b));
    rig_is(t, db, before, NULL, "a", NULL);
    rig_is(t, db, before, NULL, "c", NULL);
    ZT_OK(t, cohort_tree_count(db, before, NULL, &n));
    ZT_CHECK(t, n == 0);
    ZT_OK(t, cohort_commit(before));
    rig_is(t, db, NULL, NULL, "a", "");
    ZT_OK(t, cohort_get(db, K("b"), &v));
    is_large(t, &v, 9, 100000);
    rig_close(t, db);
    db = rig_open(t, dir);
    ZT_OK(t, cohort_get(db, K("b"), &v));
    is_large(t, &v, 9, 100000);
    ZT_OK(t, cohort_put(db, K("bb"), K("after")));
    ZT_OK(t, cohort_tree_count(db, NULL, NULL, &n));
    ZT_CHECK(t, n == 4);
    free(large);
    cohort_value_free(&v);
    rig_close(t, db);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"names", test_names, 1},
        {"tree_options", test_tree_options, 1},
        {"single_operations", test_single_operations, 1},
        {"transactional", test_transactional, 1},
        {"strangers", test_strangers, 1},
        {"large_values", test_large_values, 1},
        {"read_pieces", test_read_pieces, 3},
        {"writer", test_writer, 3},
        {"space", test_space, 1},
        {"bulk", test_bulk, 1},
        {"bulk_views", test_bulk_views, 1},
    };

    return zt_main(argc, argv, "api_tree", cases, CH_ARRAY_LEN(cases));
}
