/* cat_test.c - names, large values, sweeping, bulk loads. Damage: cat_check_test.c; crashes: cat_crash_test.c. */
#include <stdio.h>
#include <stdlib.h>

#include "cat/cat_test_rig.h"

enum {
    CREATE = COHORT_TREE_CREATE,
    EXCLUSIVE = COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE,
};

static struct reg_tree *
open_tree(struct world *w, const char *name, unsigned flags)
{
    struct txn *t = world_begin(w);
    struct reg_tree *tree = NULL;

    ZT_OK(w->t, cat_open(w->cat, t, str(name), flags, 0, 0, &tree));
    world_commit(w, t);
    return tree;
}

static int
find_tree(struct world *w, const char *name)
{
    struct txn *t = world_begin(w);
    struct reg_tree *tree = NULL;
    int rc = cat_open(w->cat, t, str(name), 0, 0, 0, &tree);

    if (rc == 0)
        reg_put(w->reg, tree);
    world_commit(w, t);
    return rc;
}

static int
drop(struct world *w, const char *name)
{
    struct txn *t = world_begin(w);
    int rc = cat_drop(w->cat, t, str(name));

    world_commit(w, t);
    return rc;
}

static int
put_value(struct world *w, struct txn *t, struct reg_tree *tree, const char *key, uint64_t seed,
          size_t bytes)
{
    uint8_t *v = malloc(bytes + 1);
    int rc;

    ZT_CHECK(w->t, v != NULL);
    fill(v, seed, 0, bytes);
    rc = cat_write(w->cat, t, tree, BT_PUT, str(key), (struct bt_slice){v, bytes});
    free(v);
    return rc;
}

static int
del_value(struct world *w, struct txn *t, struct reg_tree *tree, const char *key)
{
    return cat_write(w->cat, t, tree, BT_DEL, str(key), (struct bt_slice){NULL, 0});
}

static void
check_bytes(struct world *w, const struct cohort_value *v, uint64_t seed, size_t bytes)
{
    uint8_t *want = malloc(bytes + 1);

    ZT_CHECK(w->t, want != NULL);
    fill(want, seed, 0, bytes);
    ZT_CHECK(w->t, v->bytes == bytes && v->data != NULL);
    ZT_CHECK(w->t, memcmp(v->data, want, bytes) == 0);
    free(want);
}

static void
check_value(struct world *w, struct txn *t, struct reg_tree *tree, const char *key, uint64_t seed,
            size_t bytes)
{
    struct cohort_value v = {0};

    ZT_OK(w->t, cat_get(w->cat, t, tree, str(key), &v));
    check_bytes(w, &v, seed, bytes);
    free(v.data);
}

static int
get_rc(struct world *w, struct txn *t, struct reg_tree *tree, const char *key)
{
    struct cohort_value v = {0};
    int rc = cat_get(w->cat, t, tree, str(key), &v);

    free(v.data);
    return rc;
}

/* ---- names ---- */

enum {
    LIST_MAX = 256
};

static int
list_visit(void *arg, const char *name)
{
    char *out = arg;
    size_t n = strlen(out);

    (void)snprintf(out + n, LIST_MAX - n, "%s ", name);
    return strcmp(name, "stop") == 0 ? COHORT_NOTFOUND : 0;
}

static void
check_list(struct world *w, struct txn *t, const char *want)
{
    char got[LIST_MAX] = "";
    struct txn *own = t == NULL ? world_begin(w) : t;

    ZT_OK(w->t, cat_list(w->cat, own, list_visit, got));
    if (t == NULL)
        world_commit(w, own);
    ZT_CHECK(w->t, strcmp(got, want) == 0);
}

static void
test_names(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b;
    struct txn *x;
    char got[LIST_MAX] = "";

    world_open(&w, t, 0);
    check_list(&w, NULL, "");
    ZT_STATUS(t, find_tree(&w, "a"), COHORT_NOTFOUND);
    a = open_tree(&w, "a", CREATE);
    b = open_tree(&w, "a", CREATE);
    ZT_CHECK(t, a == b && a->id >= REG_USER);
    reg_put(w.reg, b);
    x = world_begin(&w);
    ZT_STATUS(t, cat_open(w.cat, x, str("a"), EXCLUSIVE, 0, 0, &b), COHORT_EXISTS);
    ZT_OK(t, cat_open(w.cat, x, str("b"), EXCLUSIVE, COHORT_CODEC_ZSTD, 3, &b));
    ZT_CHECK(t, b->codec == COHORT_CODEC_ZSTD && b->codec_level == 3);
    ZT_OK(t, put_value(&w, x, b, "k", 1, 100));
    check_list(&w, x, "a b ");
    check_list(&w, NULL, "a ");
    ZT_CHECK(t, cat_tree_count(w.cat) == 1);
    world_commit(&w, x);
    ZT_CHECK(t, cat_tree_count(w.cat) == 2);
    check_value(&w, NULL, b, "k", 1, 100);

    x = world_begin(&w);
    ZT_OK(t, cat_rename(w.cat, x, str("b"), str("0")));
    ZT_STATUS(t, cat_rename(w.cat, x, str("b"), str("1")), COHORT_NOTFOUND);
    ZT_STATUS(t, cat_rename(w.cat, x, str("0"), str("a")), COHORT_EXISTS);
    ZT_STATUS(t, cat_rename(w.cat, x, str("0"), str("0")), COHORT_EXISTS);
    check_list(&w, x, "0 a ");
    world_commit(&w, x);
    check_list(&w, NULL, "0 a ");
    check_value(&w, NULL, b, "k", 1, 100); /* handles stay good */

    x = world_begin(&w);
    ZT_OK(t, cat_truncate(w.cat, x, str("0")));
    ZT_STATUS(t, cat_truncate(w.cat, x, str("1")), COHORT_NOTFOUND);
    world_commit(&w, x);
    ZT_STATUS(t, get_rc(&w, NULL, b, "k"), COHORT_NOTFOUND);
    ZT_STATUS(t, put_value(&w, NULL, b, "k", 1, 10), COHORT_NOTFOUND);
    reg_put(w.reg, b);
    b = open_tree(&w, "0", 0);
    ZT_CHECK(t, b->codec == COHORT_CODEC_ZSTD && b->codec_level == 3);
    ZT_STATUS(t, get_rc(&w, NULL, b, "k"), COHORT_NOTFOUND);
    ZT_OK(t, put_value(&w, NULL, b, "k", 2, 10));
    check_value(&w, NULL, b, "k", 2, 10);
    reg_put(w.reg, b);

    ZT_OK(t, drop(&w, "0"));
    ZT_STATUS(t, drop(&w, "0"), COHORT_NOTFOUND);
    check_list(&w, NULL, "a ");
    reg_put(w.reg, a);
    a = open_tree(&w, "stop", CREATE);
    reg_put(w.reg, a);
    x = world_begin(&w);
    ZT_STATUS(t, cat_list(w.cat, x, list_visit, got), COHORT_NOTFOUND); /* the visitor's */
    world_commit(&w, x);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0);
    world_check(&w);
    world_close(&w);
}

/* Goal: names are transactional: nobody else sees them early, an abort and a rollback take them back, and space with them. */
static void
test_names_undone(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b, *c;
    struct txn *x;
    uint64_t sp, pages;

    world_open(&w, t, 0);
    a = open_tree(&w, "a", CREATE);
    ZT_OK(t, put_value(&w, NULL, a, "k", 1, 5000));
    world_settle(&w);
    pages = world_pages(&w);

    x = world_begin(&w);
    ZT_OK(t, cat_open(w.cat, x, str("b"), CREATE, 0, 0, &b));
    ZT_OK(t, put_value(&w, x, b, "k", 1, 10000));
    ZT_OK(t, txn_savepoint(x, &sp));
    ZT_OK(t, cat_drop(w.cat, x, str("a")));
    ZT_STATUS(t, get_rc(&w, x, a, "k"), COHORT_NOTFOUND);
    ZT_OK(t, cat_drop(w.cat, x, str("b")));
    ZT_OK(t, cat_open(w.cat, x, str("c"), CREATE, 0, 0, &c));
    check_list(&w, x, "c ");
    ZT_STATUS(t, put_value(&w, NULL, a, "k", 2, 10), COHORT_CONFLICT);
    ZT_OK(t, txn_rollback_to(x, sp));
    check_list(&w, x, "a b ");
    check_value(&w, x, b, "k", 1, 10000);
    check_value(&w, x, a, "k", 1, 5000);
    ZT_STATUS(t, put_value(&w, x, c, "k", 2, 10), COHORT_NOTFOUND);
    world_settle(&w); /* must not touch what is not committed */
    check_value(&w, x, b, "k", 1, 10000);
    ZT_OK(t, txn_abort(x));
    ZT_STATUS(t, get_rc(&w, NULL, b, "k"), COHORT_NOTFOUND);
    ZT_STATUS(t, put_value(&w, NULL, b, "k", 2, 10), COHORT_NOTFOUND);
    reg_put(w.reg, b);
    reg_put(w.reg, c);
    check_list(&w, NULL, "a ");
    check_value(&w, NULL, a, "k", 1, 5000);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0);
    ZT_CHECK(t, world_pages(&w) == pages);
    world_check(&w);
    reg_put(w.reg, a);
    world_close(&w);
}

/* Goal: two who create, drop or rename the same name: one of them, and never half of one. */
static void
test_name_conflicts(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b = NULL;
    struct txn *x, *y;
    bool there;

    world_open(&w, t, 0);
    x = world_begin(&w);
    y = world_begin(&w);
    ZT_OK(t, cat_open(w.cat, x, str("a"), CREATE, 0, 0, &a));
    ZT_STATUS(t, cat_open(w.cat, y, str("a"), CREATE, 0, 0, &b), COHORT_CONFLICT);
    world_commit(&w, x);
    ZT_STATUS(t, cat_open(w.cat, y, str("a"), CREATE, 0, 0, &b), COHORT_CONFLICT);
    ZT_STATUS(t, cat_open(w.cat, y, str("a"), 0, 0, 0, &b), COHORT_NOTFOUND);
    ZT_OK(t, txn_abort(y));

    x = world_begin(&w);
    y = world_begin(&w);
    ZT_OK(t, put_value(&w, x, a, "k", 1, 10));
    ZT_STATUS(t, cat_drop(w.cat, y, str("a")), COHORT_CONFLICT);
    ZT_STATUS(t, cat_rename(w.cat, y, str("a"), str("z")), COHORT_CONFLICT);
    ZT_STATUS(t, cat_truncate(w.cat, y, str("a")), COHORT_CONFLICT);
    check_list(&w, y, "a ");
    world_commit(&w, y);
    ZT_OK(t, cat_drop(w.cat, x, str("a"))); /* a writer itself */
    y = world_begin(&w);
    ZT_STATUS(t, put_value(&w, y, a, "k", 1, 10), COHORT_CONFLICT);
    ZT_STATUS(t, cat_drop(w.cat, y, str("a")), COHORT_CONFLICT);
    world_commit(&w, y);
    ZT_OK(t, txn_abort(x));
    ZT_OK(t, put_value(&w, NULL, a, "k", 1, 10));

    /* Who began before the drop was marked for everybody may be in the tree with a snapshot that sees the drop. */
    b = open_tree(&w, "b", CREATE);
    ZT_OK(t, put_value(&w, NULL, b, "k", 1, 5000));
    ZT_OK(t, drop(&w, "b"));
    x = world_begin(&w);
    world_settle(&w);
    ZT_OK(t, reg_is_root(w.reg, b->id, b->bt.root, false, &there));
    ZT_CHECK(t, there && world_pieces(&w) == 3);
    world_commit(&w, x);
    world_settle(&w);
    ZT_OK(t, reg_is_root(w.reg, b->id, b->bt.root, false, &there));
    ZT_CHECK(t, !there && world_pieces(&w) == 0);
    reg_put(w.reg, b);

    /* A reader whose snapshot is older than the drop keeps the pages, whatever is swept. */
    x = world_begin(&w);
    check_value(&w, x, a, "k", 1, 10);
    ZT_OK(t, drop(&w, "a"));
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 1);
    ZT_STATUS(t, get_rc(&w, x, a, "k"), COHORT_NOTFOUND);
    ZT_OK(t, cat_open(w.cat, x, str("a"), 0, 0, 0, &b));
    ZT_CHECK(t, a == b);
    ZT_STATUS(t, put_value(&w, x, b, "k", 1, 10), COHORT_NOTFOUND);
    reg_put(w.reg, b);
    world_commit(&w, x);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0);
    ZT_STATUS(t, get_rc(&w, NULL, a, "k"), COHORT_NOTFOUND);
    reg_put(w.reg, a);
    world_check(&w);
    world_close(&w);
}

/* ---- values ---- */

/* Goal: values of all sizes around the limits come back, whole, in part and many at once, and space comes back when they go. */
static void
test_value_sizes(struct zt *t)
{
    static const size_t sizes[] = {0,
                                   1,
                                   1000,
                                   COHORT_ENTRY_MAX - 3,
                                   COHORT_ENTRY_MAX - 2,
                                   COHORT_ENTRY_MAX - 1,
                                   CAT_PIECE,
                                   CAT_PIECE + 1,
                                   2 * CAT_PIECE - 1,
                                   2 * CAT_PIECE,
                                   2 * CAT_PIECE + 1,
                                   100000,
                                   3000000};
    struct world w;
    struct reg_tree *a;
    struct cohort_value values[CH_ARRAY_LEN(sizes) + 1] = {0};
    struct bt_slice keys[CH_ARRAY_LEN(sizes) + 1];
    int rcs[CH_ARRAY_LEN(sizes) + 1];
    char names[CH_ARRAY_LEN(sizes) + 1][8];
    uint64_t pages;

    world_open(&w, t, 0);
    a = zt_below(t, 2) == 0 ? reg_main(w.reg) : open_tree(&w, "a", CREATE);
    world_settle(&w);
    pages = world_pages(&w);
    for (unsigned i = 0; i <= CH_ARRAY_LEN(sizes); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%02u", i);
        keys[i] = str(names[i]);
    }
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            unsigned k = round == 0 ? i : CH_ARRAY_LEN(sizes) - 1 - i;
            struct txn *x = zt_below(t, 2) == 0 ? NULL : world_begin(&w);

            ZT_OK(t, put_value(&w, x, a, names[i], k, sizes[k]));
            check_value(&w, x, a, names[i], k, sizes[k]);
            if (x != NULL)
                world_commit(&w, x);
        }
        world_settle(&w);
        world_check(&w);
        ZT_OK(t, cat_get_many(w.cat, NULL, a, CH_ARRAY_LEN(keys), keys, values, rcs));
        for (unsigned i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            unsigned k = round == 0 ? i : CH_ARRAY_LEN(sizes) - 1 - i;

            ZT_OK(t, rcs[i]);
            check_bytes(&w, &values[i], k, sizes[k]);
        }
        ZT_STATUS(t, rcs[CH_ARRAY_LEN(sizes)], COHORT_NOTFOUND);
    }
    for (unsigned i = 0; i < CH_ARRAY_LEN(sizes); i++)
        ZT_OK(t, del_value(&w, NULL, a, names[i]));
    world_settle(&w);
    ZT_CHECK(t, world_pieces(&w) == 0 && world_pending(&w) == 0);
    ZT_CHECK(t, world_pages(&w) == pages);
    world_check(&w);
    for (unsigned i = 0; i < CH_ARRAY_LEN(values); i++)
        free(values[i].data);
    if (a != reg_main(w.reg))
        reg_put(w.reg, a);
    world_close(&w);
}

static void
check_part(struct world *w, struct txn *x, size_t size, uint64_t offset, size_t bytes)
{
    uint8_t *got = malloc(bytes + 1), *want = malloc(bytes + 1);
    struct cat_part p = {.offset = offset, .buf = got, .bytes = bytes, .got = 99};

    ZT_CHECK(w->t, got != NULL && want != NULL);
    ZT_OK(w->t, cat_read(w->cat, x, reg_main(w->reg), str("k"), &p));
    ZT_CHECK(w->t, p.total == size);
    ZT_CHECK(w->t, p.got == (offset < size ? ch_min_u64(bytes, size - offset) : 0));
    fill(want, 5, offset, p.got);
    ZT_CHECK(w->t, memcmp(got, want, p.got) == 0);
    free(got);
    free(want);
}

static void
test_parts(struct zt *t)
{
    struct world w;
    struct txn *x;
    size_t size = zt_below(t, 3) == 0 ? zt_below(t, 1900) : zt_below(t, 60000);
    struct cat_part none = {0};

    world_open(&w, t, 0);
    ZT_OK(t, put_value(&w, NULL, reg_main(w.reg), "k", 5, size));
    x = world_begin(&w);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t offset = zt_below(t, size + 5000);

        check_part(&w, zt_below(t, 2) == 0 ? x : NULL, size, offset, zt_below(t, 10000));
    }
    check_part(&w, x, size, UINT64_MAX, 10);
    ZT_STATUS(t, cat_read(w.cat, x, reg_main(w.reg), str("none"), &none), COHORT_NOTFOUND);
    world_commit(&w, x);
    world_close(&w);
}

/* Goal: a snapshot keeps the large values it sees, whatever replaces them; afterwards they go. */
static void
test_large_snapshots(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct txn *x[5];

    world_open(&w, t, 0);
    a = reg_main(w.reg);
    for (unsigned i = 0; i < 5; i++) {
        ZT_OK(t, put_value(&w, NULL, a, "k", i, 20000 + i));
        x[i] = world_begin(&w);
    }
    ZT_OK(t, del_value(&w, NULL, a, "k"));
    for (unsigned i = 0; i < 5; i++) {
        world_settle(&w);
        for (unsigned k = i; k < 5; k++)
            check_value(&w, x[k], a, "k", k, 20000 + k);
        ZT_CHECK(t, world_pieces(&w) == (5 - i) * 11);
        world_commit(&w, x[i]);
    }
    world_settle(&w);
    ZT_CHECK(t, world_pieces(&w) == 0);
    ZT_STATUS(t, get_rc(&w, NULL, a, "k"), COHORT_NOTFOUND);
    world_close(&w);
}

/* Goal: within a transaction large values are replaced, deleted, taken back by savepoints and by the end, as small ones are. */
static void
test_large_in_transactions(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct txn *x;
    uint64_t sp, sp2;
    uint8_t v[5000];

    world_open(&w, t, 0);
    a = reg_main(w.reg);
    ZT_OK(t, put_value(&w, NULL, a, "k", 1, 9000));
    for (int round = 0; round < 2; round++) {
        x = world_begin(&w);
        ZT_OK(t, put_value(&w, x, a, "k", 2, 8000));
        ZT_OK(t, put_value(&w, x, a, "k", 3, 7000));
        ZT_OK(t, txn_savepoint(x, &sp));
        ZT_OK(t, del_value(&w, x, a, "k"));
        ZT_STATUS(t, get_rc(&w, x, a, "k"), COHORT_NOTFOUND);
        ZT_OK(t, put_value(&w, x, a, "k", 4, 10));
        ZT_OK(t, txn_savepoint(x, &sp2));
        ZT_OK(t, put_value(&w, x, a, "k", 5, 6000));
        world_settle(&w);
        check_value(&w, x, a, "k", 5, 6000);
        check_value(&w, NULL, a, "k", 1, 9000);
        ZT_OK(t, txn_rollback_to(x, sp2));
        check_value(&w, x, a, "k", 4, 10);
        ZT_OK(t, txn_rollback_to(x, sp));
        check_value(&w, x, a, "k", 3, 7000);
        world_settle(&w);
        check_value(&w, x, a, "k", 3, 7000);
        if (round == 0) {
            ZT_OK(t, txn_abort(x));
            check_value(&w, NULL, a, "k", 1, 9000);
        } else {
            world_commit(&w, x);
            check_value(&w, NULL, a, "k", 3, 7000);
        }
        world_settle(&w);
        ZT_CHECK(t, world_pending(&w) == 0);
        ZT_CHECK(t, world_pieces(&w) == (round == 0 ? 5 : 4));
        world_check(&w);
    }
    /* What is refused leaves nothing behind. */
    fill(v, 1, 0, sizeof(v));
    ZT_STATUS(t, cat_write(w.cat, NULL, a, BT_INSERT, str("k"), (struct bt_slice){v, sizeof(v)}),
              COHORT_EXISTS);
    ZT_STATUS(t, cat_write(w.cat, NULL, a, BT_UPDATE, str("n"), (struct bt_slice){v, sizeof(v)}),
              COHORT_NOTFOUND);
    ZT_STATUS(t, cat_write(w.cat, NULL, a, BT_INSERT, str("k"), (struct bt_slice){v, 5}),
              COHORT_EXISTS);
    x = world_begin(&w);
    ZT_OK(t, cat_write(w.cat, x, a, BT_UPDATE, str("k"), (struct bt_slice){v, sizeof(v)}));
    ZT_STATUS(t, put_value(&w, NULL, a, "k", 1, 5), COHORT_CONFLICT);
    ZT_STATUS(t, put_value(&w, NULL, a, "k", 1, 5000), COHORT_CONFLICT);
    ZT_STATUS(t, del_value(&w, NULL, a, "k"), COHORT_CONFLICT);
    ZT_OK(t, txn_abort(x));
    check_value(&w, NULL, a, "k", 3, 7000);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0 && world_pieces(&w) == 4);
    world_check(&w);
    world_close(&w);
}

/* Goal: a value written piece by piece is what was appended, however it was cut; canceled and failed writers leave nothing. */
static void
test_writer(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct cat_writer *wr = NULL;
    struct txn *x;
    size_t size = zt_below(t, 2) == 0 ? zt_below(t, 3000) : zt_below(t, 300000);
    uint8_t *v = malloc(size + 1);
    size_t done = 0, n;
    char key[COHORT_KEY_MAX + 1];

    ZT_CHECK(t, v != NULL);
    memset(key, 'k', sizeof(key));
    key[zt_below(t, 3) == 0 ? COHORT_KEY_MAX : 1 + zt_below(t, 20)] = '\0';
    fill(v, 3, 0, size);
    world_open(&w, t, 0);
    a = open_tree(&w, "a", CREATE);
    x = world_begin(&w);
    ZT_OK(t, cat_writer_create(w.cat, x, a, str(key), &wr));
    while (done < size) {
        n = ch_min_u64(size - done, zt_below(t, zt_below(t, 2) == 0 ? 10000 : 100));
        ZT_OK(t, cat_writer_append(wr, v + done, n));
        done += n;
        if (zt_below(t, 20) == 0) {
            ZT_OK(t, txn_refresh(x)); /* its snapshot sees the record in `pending` now */
            world_settle(&w);         /* but it is open */
        }
    }
    ZT_STATUS(t, get_rc(&w, x, a, key), COHORT_NOTFOUND);
    ZT_OK(t, cat_writer_finish(wr));
    check_value(&w, x, a, key, 3, size);
    ZT_OK(t, cat_writer_create(w.cat, x, a, str("c"), &wr));
    ZT_OK(t, cat_writer_append(wr, v, size));
    cat_writer_cancel(wr);
    world_commit(&w, x);
    check_value(&w, NULL, a, key, 3, size);
    world_settle(&w);
    ZT_CHECK(t,
             world_pieces(&w) == (strlen(key) + size > COHORT_ENTRY_MAX ? blob_pieces(size) : 0));
    ZT_CHECK(t, world_pending(&w) == 0);
    world_check(&w);
    reg_put(w.reg, a);
    free(v);
    world_close(&w);
}

/* Goal: a write that fails at any of its calls leaves the record as it was, and no space taken once its transaction ended. */
static void
test_failures(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct txn *x;
    uint64_t pages;
    int rc = COHORT_EIO;

    world_open(&w, t, 0);
    a = reg_main(w.reg);
    ZT_OK(t, put_value(&w, NULL, a, "k", 1, 9000));
    world_settle(&w);
    pages = world_pages(&w);
    for (unsigned n = 1; rc != 0; n++) {
        x = world_begin(&w);
        ZT_OK(t, put_value(&w, x, a, "other", 7, 10));
        w.stop_at = w.writes + n;
        rc = put_value(&w, x, a, "k", 2, 8000);
        ZT_CHECK(t, rc == 0 || rc == COHORT_EIO);
        w.stop_at = 0;
        check_value(&w, x, a, "k", rc == 0 ? 2 : 1, rc == 0 ? 8000 : 9000);
        if (rc == 0)
            ZT_OK(t, txn_abort(x));
        else
            world_commit(&w, x); /* the rest of it counts */
        check_value(&w, NULL, a, "k", 1, 9000);
        if (rc != 0)
            check_value(&w, NULL, a, "other", 7, 10);
        world_settle(&w);
        ZT_CHECK(t, world_pages(&w) == pages && world_pending(&w) == 0);
        world_check(&w);
    }
    /* A small value over a large one has no savepoint: the transaction can only go back. */
    x = world_begin(&w);
    w.stop_at = w.writes + 2;
    ZT_STATUS(t, put_value(&w, x, a, "k", 2, 10), COHORT_EIO);
    w.stop_at = 0;
    ZT_STATUS(t, put_value(&w, x, a, "l", 2, 10), COHORT_ETXN);
    ZT_STATUS(t, txn_commit(x, false, NULL), COHORT_ETXN);
    check_value(&w, NULL, a, "k", 1, 9000);
    world_check(&w);
    world_close(&w);
}

/* Goal: dropping a tree frees its large values, in bounded steps, and nobody else's. */
static void
test_drop_large(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b;
    char key[16];
    uint64_t pages, steps = 0;
    bool did = true, more = true;

    world_open(&w, t, 0);
    b = open_tree(&w, "b", CREATE);
    for (unsigned i = 0; i < 10; i++) {
        (void)snprintf(key, sizeof(key), "%u", i);
        ZT_OK(t, put_value(&w, NULL, b, key, i, 5000));
    }
    world_settle(&w);
    pages = world_pages(&w);
    a = open_tree(&w, "a", CREATE);
    for (unsigned i = 0; i < 3000; i++) {
        (void)snprintf(key, sizeof(key), "%u", i);
        ZT_OK(t, put_value(&w, NULL, a, key, i, i % 50 == 0 ? 5000 + i * 300 : 100));
    }
    reg_put(w.reg, a);
    ZT_OK(t, drop(&w, "a"));
    while (did || more) {
        more = false;
        ZT_OK(t, txns_step(w.txns, &more));
        ZT_OK(t, cat_sweep_step(w.cat, &did));
        steps += did;
        if (steps % 20 == 0)
            world_check(&w);
    }
    ZT_CHECK(t, steps > 20);
    ZT_CHECK(t, world_pending(&w) == 0 && world_pieces(&w) == 30);
    ZT_CHECK(t, world_pages(&w) == pages);
    world_check(&w);
    reg_put(w.reg, b);
    world_close(&w);
}

/* ---- bulk ---- */

static int
bulk_load(struct world *w, struct cat_bulk *b, unsigned n)
{
    uint8_t v[6000];
    char key[16];
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        size_t bytes = i % 10 == 3 ? 5000 : 50;

        (void)snprintf(key, sizeof(key), "%06u", i);
        fill(v, i, 0, bytes);
        rc = cat_bulk_put(b, str(key), (struct bt_slice){v, bytes});
    }
    (void)w;
    return rc;
}

static void
test_bulk(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct cat_bulk *b, *b2;
    struct txn *x;
    uint64_t pages;
    char key[16];

    world_open(&w, t, 0);
    a = open_tree(&w, "a", CREATE);
    world_settle(&w);
    pages = world_pages(&w);
    /* Given up. */
    ZT_OK(t, cat_bulk_create(w.cat, a, &b));
    ZT_OK(t, bulk_load(&w, b, 500));
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 1 && world_pieces(&w) == 150);
    x = world_begin(&w);
    ZT_STATUS(t, cat_drop(w.cat, x, str("a")), COHORT_CONFLICT);
    world_commit(&w, x);
    world_check(&w);
    cat_bulk_abort(b);
    world_settle(&w);
    ZT_CHECK(t, world_pages(&w) == pages && world_pieces(&w) == 0 && world_pending(&w) == 0);
    /* Not empty at the end; not in order. */
    ZT_OK(t, cat_bulk_create(w.cat, a, &b));
    ZT_OK(t, bulk_load(&w, b, 50));
    ZT_STATUS(t, cat_bulk_put(b, str("000001"), str("x")), COHORT_EINVAL);
    cat_bulk_abort(b);
    ZT_OK(t, cat_bulk_create(w.cat, a, &b));
    ZT_OK(t, bulk_load(&w, b, 500));
    ZT_OK(t, put_value(&w, NULL, a, "zz", 1, 5000));
    ZT_STATUS(t, cat_bulk_finish(b, COHORT_DEFAULT), COHORT_CONFLICT);
    ZT_OK(t, del_value(&w, NULL, a, "zz"));
    world_settle(&w);
    ZT_CHECK(t, world_pages(&w) == pages && world_pieces(&w) == 0 && world_pending(&w) == 0);
    /* Two at once: the first wins. */
    x = world_begin(&w);
    ZT_OK(t, cat_bulk_create(w.cat, a, &b));
    ZT_OK(t, cat_bulk_create(w.cat, a, &b2));
    ZT_OK(t, bulk_load(&w, b, 500));
    ZT_OK(t, bulk_load(&w, b2, 300));
    ZT_OK(t, cat_bulk_finish(b, COHORT_DURABILITY_SYNC));
    ZT_STATUS(t, cat_bulk_finish(b2, COHORT_DEFAULT), COHORT_CONFLICT);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0 && world_pieces(&w) == 150);
    ZT_STATUS(t, get_rc(&w, x, a, "000003"), COHORT_NOTFOUND); /* an older snapshot */
    world_commit(&w, x);
    for (unsigned i = 0; i < 500; i++) {
        (void)snprintf(key, sizeof(key), "%06u", i);
        check_value(&w, NULL, a, key, i, i % 10 == 3 ? 5000 : 50);
    }
    world_check(&w);
    reg_put(w.reg, a);
    world_crash(&w, true);
    world_settle(&w);
    world_check(&w);
    ZT_CHECK(t, world_pieces(&w) == 150);
    world_close(&w);
}

/* Goal: the record of a finished load that could not be deleted does no harm, and goes before the next load of the tree. */
static void
test_bulk_leftover(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct cat_bulk *b;
    bool did;

    for (unsigned round = 0; round < 2; round++) {
        world_open(&w, t, 0);
        a = open_tree(&w, "a", CREATE);
        ZT_OK(t, cat_bulk_create(w.cat, a, &b));
        ZT_OK(t, bulk_load(&w, b, 100));
        w.stop_at = w.writes + 2; /* the first one is before the load ends */
        ZT_OK(t, cat_bulk_finish(b, COHORT_DEFAULT));
        ZT_CHECK(t, world_pending(&w) == 1 && world_pieces(&w) == 30);
        if (round == 0) {
            for (unsigned i = 0; i < 3; i++)
                ZT_OK(t, cat_sweep_step(w.cat, &did));
        } else {
            ZT_OK(t, cat_bulk_create(w.cat, a, &b));
            ZT_CHECK(t, world_pending(&w) == 1);
            ZT_STATUS(t, cat_bulk_finish(b, COHORT_DEFAULT), COHORT_CONFLICT);
        }
        world_settle(&w);
        ZT_CHECK(t, world_pending(&w) == 0 && world_pieces(&w) == 30);
        check_value(&w, NULL, a, "000003", 3, 5000);
        world_check(&w);
        reg_put(w.reg, a);
        world_close(&w);
    }
}

/* Goal: a full drive refuses writes and nothing else: large values and trees can be deleted, and their space comes back. */
static void
test_full(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    struct txn *x;
    uint8_t *v = malloc(100000);
    char key[16];
    unsigned n = 0, small = 0;
    int rc = 0;

    ZT_CHECK(t, v != NULL);
    world_open_small(&w, t, 48);
    a = open_tree(&w, "a", CREATE);
    ZT_OK(t, put_value(&w, NULL, a, "large", 1, 50000));
    ch_prng_fill(&t->rng, v, 100000);
    for (; rc == 0 && n < 1000; n++) {
        (void)snprintf(key, sizeof(key), "%04u", n);
        rc =
            cat_write(w.cat, NULL, reg_main(w.reg), BT_PUT, str(key), (struct bt_slice){v, 100000});
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    ZT_STATUS(t, get_rc(&w, NULL, reg_main(w.reg), key), COHORT_NOTFOUND);
    do { /* what the refused value gave back */
        (void)snprintf(key, sizeof(key), "s%u", small++);
        rc = cat_write(w.cat, NULL, reg_main(w.reg), BT_PUT, str(key), (struct bt_slice){v, 1900});
    } while (rc == 0);
    ZT_STATUS(t, rc, COHORT_EFULL);
    x = world_begin(&w);
    ZT_OK(t, cat_drop(w.cat, x, str("a")));
    for (unsigned i = 0; i + 1 < n; i++) {
        (void)snprintf(key, sizeof(key), "%04u", i);
        ZT_OK(t, del_value(&w, x, reg_main(w.reg), key));
    }
    world_commit(&w, x);
    reg_put(w.reg, a);
    world_settle(&w);
    ZT_CHECK(t, world_pending(&w) == 0 && world_pieces(&w) == 0);
    world_check(&w);
    ZT_OK(t, put_value(&w, NULL, reg_main(w.reg), "large", 1, 50000));
    free(v);
    world_close(&w);
}

/* ---- many ---- */

static int
count_name(void *arg, const char *name)
{
    unsigned *n = arg;

    (void)name;
    ++*n;
    return 0;
}

/* Goal: 10,000 trees: created in transactions, all open, listed, dropped; space comes back. */
static void
test_many_trees(struct zt *t)
{
    enum {
        TREES = 10000,
        EACH = 100
    };
    struct reg_tree **trees = calloc(TREES, sizeof(*trees));
    struct world w;
    struct txn *x = NULL;
    char name[16];
    uint64_t pages;
    unsigned n = 0;

    ZT_CHECK(t, trees != NULL);
    world_open(&w, t, 16384);
    pages = world_pages(&w);
    for (unsigned i = 0; i < TREES; i++) {
        if (i % EACH == 0)
            x = world_begin(&w);
        (void)snprintf(name, sizeof(name), "tree%05u", i);
        ZT_OK(t, cat_open(w.cat, x, str(name), EXCLUSIVE, 0, 0, &trees[i]));
        if (i % EACH == EACH - 1)
            world_commit(&w, x);
    }
    for (unsigned i = 0; i < TREES; i++)
        ZT_OK(t, put_value(&w, NULL, trees[i], "k", i, 30));
    x = world_begin(&w);
    ZT_OK(t, cat_list(w.cat, x, count_name, &n));
    world_commit(&w, x);
    ZT_CHECK(t, n == TREES && cat_tree_count(w.cat) == TREES);
    for (unsigned i = 0; i < TREES; i++) {
        check_value(&w, NULL, trees[i], "k", i, 30);
        reg_put(w.reg, trees[i]);
    }
    world_check(&w);
    for (unsigned i = 0; i < TREES; i++) {
        if (i % EACH == 0)
            x = world_begin(&w);
        (void)snprintf(name, sizeof(name), "tree%05u", i);
        ZT_OK(t, cat_drop(w.cat, x, str(name)));
        if (i % EACH == EACH - 1) {
            world_commit(&w, x);
            world_settle(&w); /* before more ghosts are there than are remembered */
        }
    }
    ZT_CHECK(t, world_pending(&w) == 0);
    world_check(&w);
    ZT_CHECK(t, world_pages(&w) < pages + 20);
    free(trees);
    world_close(&w);
}

/* Goal: a value much larger than the cache needs no more memory than one piece to write, and comes back part by part. */
static void
test_larger_than_cache(struct zt *t)
{
    enum {
        CHUNK = 1 << 20,
        CHUNKS = 24
    };
    struct world w;
    struct cat_writer *wr = NULL;
    struct txn *x;
    uint8_t *v = malloc(CHUNK), *got = malloc(CHUNK);
    struct cat_part part;
    uint64_t pages;

    ZT_CHECK(t, v != NULL && got != NULL);
    world_open(&w, t, 256);
    pages = world_pages(&w);
    x = world_begin(&w);
    ZT_OK(t, cat_writer_create(w.cat, x, reg_main(w.reg), str("k"), &wr));
    for (unsigned i = 0; i < CHUNKS; i++) {
        fill(v, 1, (uint64_t)i * CHUNK, CHUNK);
        ZT_OK(t, cat_writer_append(wr, v, CHUNK));
    }
    ZT_OK(t, cat_writer_finish(wr));
    world_commit(&w, x);
    x = world_begin(&w);
    for (unsigned i = 0; i < CHUNKS; i++) {
        fill(v, 1, (uint64_t)i * CHUNK, CHUNK);
        part = (struct cat_part){.offset = (uint64_t)i * CHUNK, .buf = got, .bytes = CHUNK};
        ZT_OK(t, cat_read(w.cat, x, reg_main(w.reg), str("k"), &part));
        ZT_CHECK(t, part.got == CHUNK && part.total == (uint64_t)CHUNK * CHUNKS);
        ZT_CHECK(t, memcmp(got, v, CHUNK) == 0);
    }
    world_commit(&w, x);
    /* Two pieces to a leaf. */
    ZT_CHECK(t, world_pages(&w) - pages < (uint64_t)CHUNK * CHUNKS / CAT_PIECE * 53 / 100);
    ZT_OK(t, del_value(&w, NULL, reg_main(w.reg), "k"));
    world_settle(&w);
    ZT_CHECK(t, world_pieces(&w) == 0 && world_pages(&w) == pages);
    free(v);
    free(got);
    world_close(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"names", test_names, 1},
        {"names_undone", test_names_undone, 1},
        {"name_conflicts", test_name_conflicts, 1},
        {"value_sizes", test_value_sizes, 4},
        {"parts", test_parts, 10},
        {"large_snapshots", test_large_snapshots, 1},
        {"large_in_transactions", test_large_in_transactions, 1},
        {"writer", test_writer, 20},
        {"failures", test_failures, 1},
        {"drop_large", test_drop_large, 1},
        {"bulk", test_bulk, 1},
        {"bulk_leftover", test_bulk_leftover, 1},
        {"full", test_full, 1},
        {"many_trees", test_many_trees, 1},
        {"larger_than_cache", test_larger_than_cache, 1},
    };

    return zt_main(argc, argv, "cat", cases, CH_ARRAY_LEN(cases));
}
