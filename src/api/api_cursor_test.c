/* api_cursor_test.c - cursors, ranges and many keys within transactions, against an ordered model. */
#include "api/api_test_rig.h"

#include <stdio.h>
#include <stdlib.h>

static void
test_steps(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    cohort_cursor *c = NULL;
    struct cohort_slice k;

    for (const char *x = "abcde"; *x != '\0'; x++)
        ZT_OK(t, cohort_txn_put(a, NULL, x, 1, x, 1));
    ZT_OK(t, cohort_txn_cursor(a, NULL, &c));
    ZT_STATUS(t, cohort_cursor_entry(c, &k, NULL), COHORT_EINVAL);
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    ZT_OK(t, cohort_cursor_first(c));
    rig_at(t, c, "a", "a");
    ZT_STATUS(t, cohort_cursor_prev(c), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_prev(c), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_entry(c, &k, NULL), COHORT_EINVAL);
    ZT_OK(t, cohort_cursor_last(c));
    rig_at(t, c, "e", "e");
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND); /* sticky */
    ZT_OK(t, cohort_cursor_seek_exact(c, K("c")));
    rig_at(t, c, "c", "c");
    ZT_STATUS(t, cohort_cursor_seek_exact(c, K("cc")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_entry(c, &k, NULL), COHORT_EINVAL);
    ZT_OK(t, cohort_cursor_seek(c, K("cc")));
    rig_at(t, c, "d", "d");
    ZT_OK(t, cohort_cursor_seek_before(c, K("cc")));
    rig_at(t, c, "c", "c");
    cohort_cursor_close(c);
    cohort_cursor_close(NULL);
    ZT_OK(t, cohort_commit(a));
    rig_close(t, db);
}

/* Writes at the cursor and around it. */
static void
test_writes(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    cohort_cursor *c = NULL;

    for (const char *x = "abcde"; *x != '\0'; x++)
        ZT_OK(t, cohort_txn_put(a, NULL, x, 1, x, 1));
    ZT_OK(t, cohort_txn_cursor(a, NULL, &c));
    ZT_STATUS(t, cohort_cursor_put(c, K("x")), COHORT_EINVAL);
    ZT_STATUS(t, cohort_cursor_del(c), COHORT_EINVAL);
    ZT_OK(t, cohort_cursor_seek(c, K("b")));
    ZT_OK(t, cohort_cursor_put(c, K("new b")));
    rig_is(t, db, a, NULL, "b", "new b");
    ZT_OK(t, cohort_cursor_seek(c, K("b")));
    rig_at(t, c, "b", "new b");
    ZT_OK(t, cohort_txn_put(a, NULL, K("bb"), K("between"))); /* before the next step: it is seen */
    ZT_OK(t, cohort_cursor_next(c));
    rig_at(t, c, "bb", "between");
    ZT_OK(t, cohort_txn_del(a, NULL, K("c")));
    ZT_OK(t, cohort_cursor_next(c));
    rig_at(t, c, "d", "d");
    ZT_OK(t, cohort_cursor_del(c));
    ZT_STATUS(t, cohort_cursor_entry(c, NULL, NULL), COHORT_EINVAL);
    ZT_STATUS(t, cohort_cursor_put(c, K("x")), COHORT_EINVAL);
    ZT_STATUS(t, cohort_cursor_del(c), COHORT_EINVAL);
    ZT_OK(t, cohort_cursor_next(c));
    rig_at(t, c, "e", "e");
    ZT_OK(t, cohort_cursor_del(c));
    ZT_OK(t, cohort_cursor_prev(c));
    rig_at(t, c, "bb", "between");
    /* Gone under the cursor by another hand. */
    ZT_OK(t, cohort_txn_del(a, NULL, K("bb")));
    ZT_STATUS(t, cohort_cursor_put(c, K("x")), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    ZT_OK(t, cohort_commit(a)); /* the cursor ends with it */
    ZT_STATUS(t, cohort_cursor_prev(c), COHORT_ETXN);
    cohort_cursor_close(c);
    rig_is(t, db, NULL, NULL, "bb", NULL);
    rig_is(t, db, NULL, NULL, "b", "new b");
    rig_close(t, db);
}

/* A cursor without a transaction: one snapshot from each positioning on. */
static void
test_without_transaction(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_cursor *c = NULL;

    ZT_OK(t, cohort_put(db, K("a"), K("1")));
    ZT_OK(t, cohort_put(db, K("b"), K("1")));
    ZT_OK(t, cohort_cursor_open(db, &c));
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    ZT_OK(t, cohort_cursor_first(c));
    ZT_OK(t, cohort_put(db, K("b"), K("2")));
    ZT_OK(t, cohort_put(db, K("c"), K("2")));
    ZT_OK(t, cohort_cursor_next(c));
    rig_at(t, c, "b", "1");
    ZT_STATUS(t, cohort_cursor_put(c, K("x")), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_del(c), COHORT_ETXN);
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    ZT_OK(t, cohort_cursor_seek(c, K("b")));
    rig_at(t, c, "b", "2");
    ZT_OK(t, cohort_cursor_next(c));
    rig_at(t, c, "c", "2");
    cohort_cursor_close(c);
    rig_close(t, db);
}

/* ---- random steps and writes against a model ---- */

enum {
    KEYS = 800,
    VALUE_MAX = 200
};

struct model {
    uint32_t version[KEYS]; /* 0 = absent */
};

static struct model *
new_model(void)
{
    struct model *m = calloc(1, sizeof(*m));

    CH_ASSERT(m != NULL);
    return m;
}

static size_t
make_key(unsigned i, char *out)
{
    return (size_t)snprintf(out, 16, "key%05u", i);
}

static void
put_key(struct zt *t, cohort_txn *a, struct model *m, unsigned i)
{
    uint8_t value[VALUE_MAX];
    char key[16];
    size_t kn = make_key(i, key);

    m->version[i] = 1 + (uint32_t)zt_below(t, 100000);
    ZT_OK(t, cohort_txn_put(a, NULL, key, kn, value, zt_value(i, m->version[i], VALUE_MAX, value)));
}

static void
del_key(struct zt *t, cohort_txn *a, struct model *m, unsigned i)
{
    char key[16];
    size_t kn = make_key(i, key);

    ZT_STATUS(t, cohort_txn_del(a, NULL, key, kn), m->version[i] != 0 ? 0 : COHORT_NOTFOUND);
    m->version[i] = 0;
}

static void
fill_model(struct zt *t, cohort_txn *a, struct model *m)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (zt_below(t, 3) != 0)
            put_key(t, a, m, i);
}

/* The cursor stands on key i of the model. */
static void
expect_at(struct zt *t, cohort_cursor *c, const struct model *m, int i)
{
    uint8_t value[VALUE_MAX];
    struct cohort_slice k, v;
    char key[16];
    size_t n;

    ZT_OK(t, cohort_cursor_entry(c, &k, &v));
    ZT_CHECK(t, k.bytes == make_key((unsigned)i, key) && memcmp(k.data, key, k.bytes) == 0);
    n = zt_value((unsigned)i, m->version[i], VALUE_MAX, value);
    ZT_CHECK(t, v.bytes == n && memcmp(v.data, value, n) == 0);
}

static int
neighbour(const struct model *m, int i, int step)
{
    for (i += step; i >= 0 && i < KEYS; i += step)
        if (m->version[i] != 0)
            return i;
    return -1;
}

/* One step; returns where the cursor stands now, -1: nowhere. */
static int
move(struct zt *t, cohort_cursor *c, const struct model *m, int at)
{
    int next, target = (int)zt_below(t, KEYS), rc;
    char key[16];

    switch (zt_below(t, at < 0 ? 3 : 12)) {
    case 0:
        rc = cohort_cursor_seek(c, key, make_key((unsigned)target, key));
        next = m->version[target] != 0 ? target : neighbour(m, target, 1);
        break;
    case 1:
        rc = cohort_cursor_seek_before(c, key, make_key((unsigned)target, key));
        next = m->version[target] != 0 ? target : neighbour(m, target, -1);
        break;
    case 2:
        rc = cohort_cursor_seek_exact(c, key, make_key((unsigned)target, key));
        next = m->version[target] != 0 ? target : -1;
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        rc = cohort_cursor_prev(c);
        next = neighbour(m, at, -1);
        break;
    default:
        rc = cohort_cursor_next(c);
        next = neighbour(m, at, 1);
    }
    ZT_STATUS(t, rc, next < 0 ? COHORT_NOTFOUND : 0);
    if (next >= 0)
        expect_at(t, c, m, next);
    return next;
}

/* Goal: wherever the cursor stands, it goes on as if it read the transaction's state of that moment, whatever the transaction
 * has written since, also to the very entry; others' commits do not show. */
static void
test_random(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct model *m = new_model();
    cohort_txn *a = rig_begin(t, db);
    cohort_cursor *c = NULL;
    int at = -1;

    fill_model(t, a, m);
    ZT_OK(t, cohort_commit(a));
    a = rig_begin(t, db);
    ZT_OK(t, cohort_txn_cursor(a, NULL, &c));
    for (int i = 0; i < 3000; i++) {
        unsigned near = (unsigned)zt_below(t, KEYS);
        char key[16];

        if (at >= 0 && zt_below(t, 2) == 0)
            near = (unsigned)ch_clamp_u64((uint64_t)at + zt_below(t, 5), 2, KEYS + 1) - 2;
        if (near % 5 == 4) { /* nobody else's; a version since a's snapshot would be a conflict */
            if (zt_below(t, 8) == 0)
                ZT_OK(t, cohort_put(db, key, (size_t)snprintf(key, sizeof(key), "key%05u+", near),
                                    "other", 5));
        } else if (zt_below(t, 4) == 0) {
            del_key(t, a, m, near);
        } else if (zt_below(t, 4) == 0) {
            put_key(t, a, m, near);
        }
        if (at >= 0 && m->version[at] != 0 && at % 5 != 4 && zt_below(t, 20) == 0) {
            ZT_OK(t, cohort_cursor_seek_exact(c, key, make_key((unsigned)at, key)));
            ZT_OK(t, cohort_cursor_del(c));
            m->version[at] = 0;
        }
        at = move(t, c, m, at);
    }
    ZT_OK(t, cohort_commit(a));
    cohort_cursor_close(c);
    free(m);
    rig_close(t, db);
}

/* ---- ranges ---- */

static void
test_del_range(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct model *m = new_model();
    cohort_txn *a = rig_begin(t, db);
    uint64_t deleted, count;

    fill_model(t, a, m);
    for (int round = 0; round < 30; round++) {
        unsigned low = (unsigned)zt_below(t, KEYS), high = low + (unsigned)zt_below(t, 100);
        char from[16], to[16];
        struct cohort_slice f = {from, make_key(low, from)}, e = {to, make_key(high, to)};
        uint64_t want = 0;

        for (unsigned i = low; i < high && i < KEYS; i++) {
            want += m->version[i] != 0;
            m->version[i] = 0;
        }
        ZT_OK(t, cohort_txn_del_range(a, NULL, &f, &e, &deleted));
        ZT_CHECK(t, deleted == want);
        for (int i = 0; i < 10; i++)
            put_key(t, a, m, (unsigned)zt_below(t, KEYS));
    }
    deleted = 0;
    for (unsigned i = 0; i < KEYS; i++)
        deleted += m->version[i] != 0;
    ZT_OK(t, cohort_tree_count(NULL, a, NULL, &count));
    ZT_CHECK(t, count == deleted);
    ZT_OK(t, cohort_tree_count(db, NULL, NULL, &count));
    ZT_CHECK(t, count == 0);
    ZT_OK(t, cohort_txn_del_range(a, NULL, NULL, NULL, NULL));
    ZT_OK(t, cohort_tree_count(db, a, NULL, &count));
    ZT_CHECK(t, count == 0);
    ZT_OK(t, cohort_txn_del_range(a, NULL, NULL, NULL, &deleted));
    ZT_CHECK(t, deleted == 0);
    ZT_OK(t, cohort_abort(a));
    free(m);
    rig_close(t, db);
}

/* Longest keys: what is gathered at a time fills several times over. */
static void
test_del_range_long(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_txn *a = rig_begin(t, db);
    char key[COHORT_KEY_MAX];
    uint64_t deleted;

    memset(key, 'k', sizeof(key));
    for (unsigned i = 0; i < 150; i++) {
        (void)snprintf(key, 8, "%06u", i);
        ZT_OK(t, cohort_txn_put(a, NULL, key, sizeof(key), "", 0));
    }
    ZT_OK(t, cohort_txn_put(a, NULL, K("1"), K("stays")));
    struct cohort_slice to = {"000140", 6};

    ZT_OK(t, cohort_txn_del_range(a, NULL, NULL, &to, &deleted));
    ZT_CHECK(t, deleted == 140);
    ZT_OK(t, cohort_commit(a));
    ZT_OK(t, cohort_tree_count(db, NULL, NULL, &deleted));
    ZT_CHECK(t, deleted == 11);
    rig_is(t, db, NULL, NULL, "1", "stays");
    rig_close(t, db);
}

/* ---- many keys ---- */

enum {
    MANY = 600
};

struct many {
    char keys[MANY][16];
    struct cohort_slice slices[MANY];
    struct cohort_value values[MANY];
    int rcs[MANY];
};

static void
many_compare(struct zt *t, struct many *q, const unsigned *numbers, const struct model *m)
{
    uint8_t value[VALUE_MAX];

    for (int i = 0; i < MANY; i++) {
        uint32_t version = m->version[numbers[i]];
        size_t n = zt_value(numbers[i], version, VALUE_MAX, value);

        ZT_STATUS(t, q->rcs[i], version != 0 ? 0 : COHORT_NOTFOUND);
        if (version != 0)
            ZT_CHECK(t, q->values[i].bytes == n && memcmp(q->values[i].data, value, n) == 0);
    }
}

static void
test_get_many(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    struct model *m = new_model(), *before = new_model();
    struct many *q = calloc(1, sizeof(*q));
    cohort_txn *a = rig_begin(t, db);
    unsigned numbers[MANY];

    CH_ASSERT(q != NULL);

    fill_model(t, a, before);
    ZT_OK(t, cohort_commit(a));
    *m = *before;
    a = rig_begin(t, db);
    for (int i = 0; i < 100; i++)
        put_key(t, a, m, (unsigned)zt_below(t, KEYS));
    for (int i = 0; i < 100; i++)
        del_key(t, a, m, (unsigned)zt_below(t, KEYS));
    for (int i = 0; i < MANY; i++) {
        numbers[i] = (unsigned)zt_below(t, KEYS);
        q->slices[i] = (struct cohort_slice){q->keys[i], make_key(numbers[i], q->keys[i])};
    }
    ZT_OK(t, cohort_get_many(NULL, a, NULL, MANY, q->slices, q->values, q->rcs));
    many_compare(t, q, numbers, m);
    ZT_OK(t, cohort_get_many(db, NULL, NULL, MANY, q->slices, q->values, q->rcs));
    many_compare(t, q, numbers, before);
    ZT_OK(t, cohort_get_many(db, NULL, NULL, 0, NULL, NULL, NULL));
    q->slices[5].bytes = COHORT_KEY_MAX + 1;
    ZT_STATUS(t, cohort_get_many(db, NULL, NULL, MANY, q->slices, q->values, q->rcs),
              COHORT_EKEYSIZE);
    ZT_CHECK(t, q->rcs[0] == COHORT_EKEYSIZE && q->rcs[MANY - 1] == COHORT_EKEYSIZE);
    for (int i = 0; i < MANY; i++)
        cohort_value_free(&q->values[i]);
    ZT_OK(t, cohort_commit(a));
    free(q);
    free(m);
    free(before);
    rig_close(t, db);
}

static void
test_estimate(struct zt *t)
{
    cohort_db *db = rig_open(t, NULL);
    cohort_tree *tree = rig_tree(t, db, "estimated");
    struct cohort_slice from = {"key02500", 8}, to = {"key07500", 8};
    uint64_t all, half, none;

    for (cohort_tree *at = NULL;; at = tree) { /* the main tree, then the named one */
        cohort_txn *a = rig_begin(t, db);
        char key[16];

        for (unsigned i = 0; i < 10000; i++)
            ZT_OK(t, cohort_txn_put(a, at, key, make_key(i, key), "some value", 10));
        ZT_OK(t, cohort_commit(a));
        ZT_OK(t, cohort_estimate(db, at, NULL, NULL, &all));
        ZT_OK(t, cohort_estimate(db, at, &from, &to, &half));
        ZT_OK(t, cohort_estimate(db, at, &to, &from, &none));
        ZT_CHECK(t, all > 5000 && all < 20000 && half > all / 4 && half < all * 3 / 4);
        ZT_CHECK(t, none < 500);
        if (at == tree)
            break;
    }
    cohort_tree_close(tree);
    rig_close(t, db);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"steps", test_steps, 1},
        {"writes", test_writes, 1},
        {"without_transaction", test_without_transaction, 1},
        {"random", test_random, 20},
        {"del_range", test_del_range, 5},
        {"del_range_long", test_del_range_long, 1},
        {"get_many", test_get_many, 3},
        {"estimate", test_estimate, 1},
    };

    return zt_main(argc, argv, "api_cursor", cases, CH_ARRAY_LEN(cases));
}
