/* txn_edge_test.c - where transactions meet what is not a record: trees dropped and created by prepared ones, bulk loads beside
 * serializable ones, more prepared ones than there is room for, a log that fails.
 */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LARGE = 20000, /* a large value */
};

static const char *const small_settings[] = {"lock_timeout_ms", "0", NULL};
/* Everything in the caller's thread: what is freed, and when, is known. */
static const char *const alone_settings[] = {"lock_timeout_ms", "0", "background", "no", NULL};

/* ---- helpers ---- */

static void
put_large(struct iso *w, cohort_txn *a, cohort_tree *tree, const char *key, uint32_t seed)
{
    uint8_t *v = malloc(LARGE);

    ZT_CHECK(w->t, v != NULL);
    for (size_t i = 0; i < LARGE; i++)
        v[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
    ZT_OK(w->t, cohort_txn_put(a, tree, K(key), v, LARGE));
    free(v);
}

/* A tree with 200 records and two large values, committed. */
static cohort_tree *
make_tree(struct iso *w, const char *name)
{
    cohort_tree *tree = iso_tree(w, name);
    cohort_txn *a = iso_snapshot(w);

    for (uint32_t n = 0; n < 200; n++)
        ZT_OK(w->t, iso_put_number(a, tree, n, 1, ISO_VALUE_MAX));
    put_large(w, a, tree, "large 1", 1);
    put_large(w, a, tree, "large 2", 2);
    ZT_OK(w->t, cohort_commit(a));
    return tree;
}

static int
tree_rc(struct iso *w, const char *name)
{
    cohort_tree *tree = NULL;
    int rc = cohort_tree_open(w->db, NULL, name, 0, NULL, &tree);

    if (rc == 0)
        cohort_tree_close(tree);
    return rc;
}

static void
count_is(struct iso *w, const char *name, uint64_t want)
{
    cohort_tree *tree = NULL;
    uint64_t count = 0;

    ZT_OK(w->t, cohort_tree_open(w->db, NULL, name, 0, NULL, &tree));
    ZT_OK(w->t, cohort_tree_count(w->db, NULL, tree, &count));
    ZT_CHECK(w->t, count == want);
    cohort_tree_close(tree);
}

static uint64_t
pages(struct iso *w)
{
    struct cohort_stats s;

    iso_check(w); /* sweeps */
    ZT_OK(w->t, cohort_checkpoint(w->db));
    iso_stats(w, &s);
    return s.pages;
}

/* A crash, or an orderly end. */
static void
again(struct iso *w)
{
    if (zt_below(w->t, 3) == 0)
        iso_close_and_open(w);
    else
        iso_crash_and_open(w);
}

static void
decide(struct iso *w, const char *gid, bool commit)
{
    ZT_OK(w->t,
          commit ? cohort_commit_prepared(w->db, K(gid)) : cohort_abort_prepared(w->db, K(gid)));
}

/* Nobody may write into the tree, drop or rename it, whether by a transaction or not. */
static void
is_taken(struct iso *w, const char *name)
{
    cohort_tree *tree = NULL;
    cohort_txn *a = iso_snapshot(w);

    ZT_OK(w->t, cohort_tree_open(w->db, a, name, 0, NULL, &tree));
    ZT_STATUS(w->t, cohort_txn_put(a, tree, K("x"), K("y")), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_tree_drop(w->db, a, name, 0), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_tree_rename(w->db, a, name, "other"), COHORT_CONFLICT);
    ZT_STATUS(w->t, cohort_tree_truncate(w->db, a, name), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_abort(a));
    ZT_STATUS(w->t, cohort_tree_put(tree, K("x"), K("y")), COHORT_CONFLICT);
    cohort_tree_close(tree);
    count_is(w, name, 202); /* reading it is no harm */
}

/* ---- prepared transactions and trees ---- */

enum what {
    DROP,
    TRUNCATE,
    WRITE_AND_DROP,
    WHATS
};

/* Goal: a tree that a prepared transaction drops or empties is nobody else's until the decision, also after crashes; then it is
 * gone with all its space, or there as before. */
static void
test_prepared_drop(struct zt *t)
{
    enum what what = (enum what)(t->seed % WHATS);
    bool commit = zt_below(t, 2) == 0;
    cohort_tree *tree;
    uint64_t before, with;
    struct iso w;
    cohort_txn *a;

    iso_create(t, &w, 32, zt_below(t, 2) == 0 ? small_settings : alone_settings);
    cohort_tree_close(iso_tree(&w, "other tree"));
    before = pages(&w);
    tree = make_tree(&w, "a");
    with = pages(&w);
    a = iso_snapshot(&w);
    if (what == WRITE_AND_DROP) {
        ZT_OK(t, iso_put_number(a, tree, 3, 2, ISO_VALUE_MAX));
        put_large(&w, a, tree, "large 1", 3);
        put_large(&w, a, tree, "large 3", 3);
    }
    if (what == TRUNCATE)
        ZT_OK(t, cohort_tree_truncate(w.db, a, "a"));
    else
        ZT_OK(t, cohort_tree_drop(w.db, a, "a", 0));
    ZT_OK(t, cohort_prepare(a, K("gid")));
    cohort_tree_close(tree);
    for (uint64_t n = zt_below(t, 3); n > 0; n--) {
        is_taken(&w, "a");
        again(&w);
    }
    is_taken(&w, "a");
    decide(&w, "gid", commit);
    if (zt_below(t, 2) == 0)
        again(&w);
    if (commit && what == TRUNCATE)
        count_is(&w, "a", 0);
    else if (commit)
        ZT_STATUS(t, tree_rc(&w, "a"), COHORT_NOTFOUND);
    else
        count_is(&w, "a", 202);
    if (commit && what != TRUNCATE)
        ZT_CHECK(t, pages(&w) == before);
    else if (!commit && what != WRITE_AND_DROP)
        ZT_CHECK(t, pages(&w) == with);
    tree = iso_tree(&w, "a"); /* free to be written again */
    ZT_OK(t, cohort_tree_put(tree, K("x"), K("y")));
    cohort_tree_close(tree);
    ZT_OK(t, cohort_tree_drop(w.db, NULL, "a", 0));
    ZT_CHECK(t, pages(&w) == before);
    iso_destroy(&w);
}

/* Goal: a tree that a prepared transaction has created and filled is there after its commit, and gone with all its space after its
 * abort, also after crashes; nobody sees it before, and its name is taken. */
static void
test_prepared_create(struct zt *t)
{
    bool commit = zt_below(t, 2) == 0;
    cohort_tree *tree = NULL;
    uint64_t before;
    struct iso w;
    cohort_txn *a;

    iso_create(t, &w, 32, zt_below(t, 2) == 0 ? small_settings : alone_settings);
    cohort_tree_close(iso_tree(&w, "other tree"));
    before = pages(&w);
    a = iso_snapshot(&w);
    ZT_OK(t, cohort_tree_open(w.db, a, "b", COHORT_TREE_CREATE, NULL, &tree));
    for (uint32_t n = 0; n < 100; n++)
        ZT_OK(t, iso_put_number(a, tree, n, 1, ISO_VALUE_MAX));
    put_large(&w, a, tree, "large", 1);
    ZT_OK(t, cohort_prepare(a, K("gid")));
    cohort_tree_close(tree);
    for (uint64_t n = zt_below(t, 3); n > 0; n--) {
        iso_check(&w);
        again(&w);
    }
    ZT_STATUS(t, tree_rc(&w, "b"), COHORT_NOTFOUND);
    a = iso_snapshot(&w);
    ZT_STATUS(t, cohort_tree_open(w.db, a, "b", COHORT_TREE_CREATE, NULL, &tree), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(a));
    decide(&w, "gid", commit);
    if (zt_below(t, 2) == 0)
        again(&w);
    if (commit) {
        count_is(&w, "b", 101);
        ZT_OK(t, cohort_tree_drop(w.db, NULL, "b", 0));
    } else {
        ZT_STATUS(t, tree_rc(&w, "b"), COHORT_NOTFOUND);
    }
    ZT_CHECK(t, pages(&w) == before);
    iso_destroy(&w);
}

static int
count_gid(void *arg, const void *gid, size_t bytes)
{
    (void)gid;
    (void)bytes;
    ++*(unsigned *)arg;
    return 0;
}

/* Goal: a database with more prepared transactions than transactions_max opens, and can decide on them. */
static void
test_many_prepared(struct zt *t)
{
    enum {
        MANY = 40
    };
    struct iso w;
    cohort_txn *a;
    char key[16];
    unsigned n = 0;

    iso_create(t, &w, 32, small_settings);
    ZT_OK(t, cohort_options_set(&w.opts, "transactions_max", "64"));
    iso_close_and_open(&w);
    for (unsigned i = 0; i < MANY; i++) {
        a = iso_snapshot(&w);
        (void)snprintf(key, sizeof(key), "k%u", i);
        ZT_OK(t, cohort_txn_put(a, NULL, K(key), K("v")));
        ZT_OK(t, cohort_prepare(a, K(key)));
    }
    ZT_OK(t, cohort_options_set(&w.opts, "transactions_max", "16"));
    again(&w);
    ZT_OK(t, cohort_list_prepared(w.db, count_gid, &n));
    ZT_CHECK(t, n == MANY);
    a = iso_snapshot(&w);
    ZT_STATUS(t, cohort_txn_put(a, NULL, K("k7"), K("w")), COHORT_CONFLICT);
    ZT_OK(t, cohort_abort(a));
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        decide(&w, key, i % 2 == 0);
    }
    again(&w);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        iso_is(&w, NULL, NULL, key, i % 2 == 0 ? "v" : NULL);
    }
    iso_destroy(&w);
}

/* ---- serializable ones beside changes of whole trees ---- */

static void
bulk_load(struct iso *w, cohort_tree *tree, int want)
{
    cohort_bulk *b = NULL;

    ZT_OK(w->t, cohort_bulk_open(w->db, tree, &b));
    ZT_OK(w->t, cohort_bulk_put(b, K("k1"), K("v1")));
    ZT_OK(w->t, cohort_bulk_put(b, K("k2"), K("v2")));
    ZT_STATUS(w->t, cohort_bulk_finish(b), want);
}

/* Goal: who has read an empty tree, and writes elsewhere, does not commit once it has been bulk loaded; a prepared one's reads keep
 * it from being loaded; who has read another tree is not concerned. Old snapshots see it empty, whoever has it open. */
static void
test_bulk_and_reads(struct zt *t)
{
    struct cohort_value v = {0};
    cohort_txn *reader, *other, *old;
    cohort_tree *tree, *second;
    uint64_t count = 0;
    struct iso w;

    iso_create(t, &w, 32, zt_below(t, 2) == 0 ? small_settings : alone_settings);
    tree = iso_tree(&w, "a");
    second = iso_tree(&w, "b");
    old = iso_snapshot(&w);
    reader = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    other = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_STATUS(t, cohort_txn_get(reader, tree, K("k1"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_get(other, second, K("k1"), &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_txn_put(reader, NULL, K("x"), K("reader")));
    ZT_OK(t, cohort_txn_put(other, NULL, K("y"), K("other")));
    bulk_load(&w, tree, 0);
    iso_is(&w, NULL, tree, "k1", "v1");
    cohort_tree_close(tree);
    /* Versions of the load's own records do not keep it in mind: there are none. */
    for (unsigned i = 0; i < 50; i++)
        ZT_OK(t, cohort_put(w.db, K("z"), K("z")));
    iso_check(&w);
    ZT_OK(t, cohort_tree_open(w.db, old, "a", 0, NULL, &tree));
    ZT_OK(t, cohort_tree_count(w.db, old, tree, &count));
    ZT_CHECK(t, count == 0);
    ZT_STATUS(t, cohort_commit(reader), COHORT_CONFLICT);
    ZT_OK(t, cohort_commit(other));
    ZT_OK(t, cohort_commit(old));

    reader = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_STATUS(t, cohort_txn_get(reader, second, K("q"), &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_txn_put(reader, NULL, K("x"), K("prepared")));
    ZT_OK(t, cohort_prepare(reader, K("gid")));
    bulk_load(&w, second, COHORT_CONFLICT);
    iso_is(&w, NULL, second, "k1", NULL);
    decide(&w, "gid", zt_below(t, 2) == 0);
    bulk_load(&w, second, 0);
    iso_is(&w, NULL, second, "k1", "v1");
    cohort_tree_close(tree);
    cohort_tree_close(second);
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* Goal: to drop or empty a tree is to write all of it: write skew with it is refused, on either side; and a prepared reader keeps
 * the tree. */
static void
test_drop_and_reads(struct zt *t)
{
    bool truncate = zt_below(t, 2) == 0;
    struct cohort_value v = {0};
    cohort_txn *reader, *dropper;
    cohort_tree *tree;
    struct iso w;

    iso_create(t, &w, 32, zt_below(t, 2) == 0 ? small_settings : alone_settings);
    tree = make_tree(&w, "a");
    reader = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    dropper = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_STATUS(t, cohort_txn_get(reader, tree, K("nothing"), &v), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_txn_get(dropper, NULL, K("x"), &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_txn_put(reader, NULL, K("x"), K("reader")));
    if (truncate)
        ZT_OK(t, cohort_tree_truncate(w.db, dropper, "a"));
    else
        ZT_OK(t, cohort_tree_drop(w.db, dropper, "a", 0));
    ZT_OK(t, cohort_commit(dropper));
    ZT_STATUS(t, cohort_commit(reader), COHORT_CONFLICT);
    cohort_tree_close(tree);
    iso_check(&w);

    tree = make_tree(&w, "c");
    reader = iso_begin(&w, COHORT_SERIALIZABLE, 0);
    ZT_STATUS(t, cohort_txn_get(reader, tree, K("nothing"), &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_txn_put(reader, NULL, K("x"), K("reader")));
    ZT_OK(t, cohort_prepare(reader, K("gid")));
    dropper = iso_begin(&w, COHORT_SNAPSHOT, 0);
    ZT_OK(t, cohort_tree_drop(w.db, dropper, "c", 0));
    ZT_STATUS(t, cohort_commit(dropper), COHORT_CONFLICT);
    count_is(&w, "c", 202);
    decide(&w, "gid", true);
    ZT_OK(t, cohort_tree_drop(w.db, NULL, "c", 0));
    cohort_tree_close(tree);
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* ---- a log that fails ---- */

static bool
is_failure(int rc)
{
    return cohort_class_of(rc) == COHORT_CLASS_FAILED || cohort_class_of(rc) == COHORT_CLASS_IO;
}

/* Commits numbers until that fails; returns how many were acknowledged. */
static uint32_t
commit_until_failure(struct iso *w)
{
    cohort_txn *a;
    uint32_t n = 0;
    int rc = 0;

    for (; rc == 0 && n < 2000; n++) {
        if (n == 1000) /* the write was one of pages, which go elsewhere then */
            dev_fault_set(w->fault,
                          &(struct dev_fault_plan){.code = COHORT_EIO, .fail_nth[DEV_FLUSH] = 1});
        a = iso_snapshot(w);
        rc = iso_put_number(a, NULL, n, 1, ISO_VALUE_MAX);
        if (rc == 0)
            rc = cohort_commit(a);
        else
            ZT_CHECK(w->t,
                     is_failure(cohort_abort(a)) || cohort_class_of(rc) == COHORT_CLASS_FAILED);
    }
    ZT_CHECK(w->t, is_failure(rc));
    return n - 1;
}

/* Whatever is open can be read and ended, and nothing can be written. */
static void
use_failed(struct iso *w, cohort_txn *writer, cohort_cursor *c, cohort_tree *tree, uint32_t n)
{
    struct cohort_value v = {0};
    struct cohort_txn_options o;
    cohort_txn *a = NULL;
    uint64_t sp, position;
    uint32_t version;

    iso_is(w, writer, NULL, "own", "write");
    ZT_OK(w->t, cohort_cursor_first(c));
    ZT_CHECK(w->t, is_failure(cohort_txn_put(writer, NULL, K("own"), K("w2"))));
    ZT_CHECK(w->t, is_failure(cohort_put(w->db, K("x"), K("y"))));
    ZT_CHECK(w->t, is_failure(cohort_tree_drop(w->db, NULL, "a", 0)));
    ZT_CHECK(w->t, is_failure(cohort_commit_prepared(w->db, K("gid"))));
    ZT_CHECK(w->t, is_failure(cohort_abort_prepared(w->db, K("gid"))));
    ZT_CHECK(w->t, is_failure(cohort_checkpoint(w->db)));
    cohort_txn_options_init(&o);
    o.read_only = true;
    ZT_OK(w->t, cohort_begin(w->db, &o, &a));
    for (uint32_t i = 0; i < n; i++) {
        ZT_OK(w->t, iso_get_number(a, NULL, i, ISO_VALUE_MAX, &v, &version));
        ZT_CHECK(w->t, version == 1);
    }
    iso_is(w, a, tree, "large 9", NULL);
    ZT_OK(w->t, cohort_commit(a));
    a = iso_snapshot(w);
    ZT_OK(w->t, cohort_savepoint(a, &sp));
    ZT_CHECK(w->t, is_failure(cohort_txn_del(a, tree, K("large 1"))));
    (void)cohort_rollback_to(a, sp);
    if (zt_below(w->t, 2) == 0)
        (void)cohort_commit(a);
    else
        (void)cohort_abort(a);
    cohort_cursor_close(c);
    if (zt_below(w->t, 3) == 0)
        ZT_CHECK(w->t, is_failure(cohort_commit_visible(writer, &position)));
    else if (zt_below(w->t, 2) == 0)
        ZT_CHECK(w->t, is_failure(cohort_prepare(writer, K("gid 2"))));
    else
        ZT_CHECK(w->t, is_failure(cohort_abort(writer)));
    cohort_value_free(&v);
}

/* Goal: when the n-th write or flush fails, for every n, with a writer, a cursor, a tree and a prepared transaction open: reads go
 * on, writes and ends that must be logged say so, everything can be ended and closed, and the next opening finds what was
 * acknowledged, nothing of the writer, and the prepared transaction. */
static void
test_log_fails(struct zt *t)
{
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    struct cohort_value v = {0};
    cohort_txn *writer, *a;
    cohort_tree *tree;
    cohort_cursor *c = NULL;
    struct iso w;
    uint32_t n, version;

    iso_create(t, &w, 16, zt_below(t, 2) == 0 ? small_settings : alone_settings);
    tree = make_tree(&w, "a");
    a = iso_snapshot(&w);
    ZT_OK(t, cohort_txn_put(a, tree, K("prepared"), K("yes")));
    ZT_OK(t, cohort_prepare(a, K("gid")));
    writer = iso_snapshot(&w);
    ZT_OK(t, cohort_txn_put(writer, NULL, K("own"), K("write")));
    put_large(&w, writer, tree, "large 9", 9);
    ZT_OK(t, cohort_txn_cursor(writer, tree, &c));
    plan.fail_nth[t->seed % 2 ? DEV_FLUSH : DEV_WRITE] = 1 + t->seed / 2 % 24;
    dev_fault_set(w.fault, &plan);
    n = commit_until_failure(&w);
    use_failed(&w, writer, c, tree, n);
    cohort_tree_close(tree);
    ZT_CHECK(t, is_failure(cohort_close(w.db)));
    iso_open(&w);
    a = iso_snapshot(&w);
    for (uint32_t i = 0; i < n; i++) {
        ZT_OK(t, iso_get_number(a, NULL, i, ISO_VALUE_MAX, &v, &version));
        ZT_CHECK(t, version == 1);
    }
    iso_is(&w, a, NULL, "own", NULL);
    ZT_OK(t, cohort_abort(a));
    count_is(&w, "a", 202);
    decide(&w, "gid", true);
    count_is(&w, "a", 203);
    cohort_value_free(&v);
    iso_destroy(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"prepared_drop", test_prepared_drop, 24},  {"prepared_create", test_prepared_create, 12},
        {"many_prepared", test_many_prepared, 3},   {"bulk_and_reads", test_bulk_and_reads, 4},
        {"drop_and_reads", test_drop_and_reads, 4}, {"log_fails", test_log_fails, 48},
    };

    return zt_main(argc, argv, "txn_edge", cases, CH_ARRAY_LEN(cases));
}
