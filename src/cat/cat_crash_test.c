/* cat_crash_test.c - the process ends after each single log record of what the catalogue does: what is found afterwards is the
 * state before or after, and once everything pending is swept no page and no piece is lost. And a random model over crashes. */
#include <stdio.h>
#include <stdlib.h>

#include "cat/cat_test_rig.h"

/* ---- what is there ---- */

enum {
    SIGNATURE_MAX = 8192,
    RECORDS_MAX = 4000
};

struct signature {
    char text[SIGNATURE_MAX];
    size_t bytes;
    struct world *w;
    struct txn *x;
};

static void
sign(struct signature *s, const char *text, uint64_t number)
{
    int n = snprintf(s->text + s->bytes, sizeof(s->text) - s->bytes, "%s %llu\n", text,
                     (unsigned long long)number);

    ZT_CHECK(s->w->t, n > 0 && (size_t)n < sizeof(s->text) - s->bytes);
    s->bytes += (size_t)n;
}

static void
sign_tree(struct signature *s, struct reg_tree *tree)
{
    struct world *w = s->w;
    struct txn_cursor *c = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct cohort_value v = {0};
    char name[64];
    unsigned flags;
    int rc;

    ZT_OK(w->t, txn_cursor_create(s->x, tree, &c));
    for (rc = txn_cursor_seek(c, BT_FIRST, key); rc == 0; rc = txn_cursor_next(c)) {
        ZT_CHECK(w->t, txn_cursor_entry(c, &key, &value, &flags) && key.bytes < sizeof(name));
        memcpy(name, key.data, key.bytes);
        name[key.bytes] = '\0';
        ZT_OK(w->t, cat_get(w->cat, s->x, tree, str(name), &v));
        sign(s, name, v.bytes);
        sign(s, "crc", ch_crc32c(0, v.data, v.bytes));
    }
    ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    txn_cursor_destroy(c);
    free(v.data);
}

static int
sign_name(void *arg, const char *name)
{
    struct signature *s = arg;
    struct reg_tree *tree = NULL;

    sign(s, name, 0);
    ZT_OK(s->w->t, cat_open(s->w->cat, s->x, str(name), 0, 0, 0, &tree));
    sign_tree(s, tree);
    reg_put(s->w->reg, tree);
    return 0;
}

static void
take_signature(struct world *w, struct signature *s)
{
    memset(s, 0, sizeof(*s));
    s->w = w;
    s->x = world_begin(w);
    sign_tree(s, reg_main(w->reg));
    ZT_OK(w->t, cat_list(w->cat, s->x, sign_name, s));
    world_commit(w, s->x);
}

/* ---- scenarios ---- */

static void
put_value(struct world *w, struct txn *x, struct reg_tree *tree, const char *key, uint64_t seed,
          size_t bytes)
{
    uint8_t *v = malloc(bytes + 1);

    ZT_CHECK(w->t, v != NULL);
    fill(v, seed, 0, bytes);
    ZT_OK(w->t, cat_write(w->cat, x, tree, BT_PUT, str(key), (struct bt_slice){v, bytes}));
    free(v);
}

static void
del_value(struct world *w, struct txn *x, struct reg_tree *tree, const char *key)
{
    ZT_OK(w->t, cat_write(w->cat, x, tree, BT_DEL, str(key), (struct bt_slice){NULL, 0}));
}

static struct reg_tree *
open_tree(struct world *w, struct txn *x, const char *name)
{
    struct reg_tree *tree = NULL;

    ZT_OK(w->t, cat_open(w->cat, x, str(name), COHORT_TREE_CREATE, 0, 0, &tree));
    return tree;
}

static void
setup(struct world *w)
{
    struct txn *x = world_begin(w);
    struct reg_tree *a = open_tree(w, x, "a");
    char key[16];

    put_value(w, x, a, "k1", 1, 9000);
    put_value(w, x, a, "k2", 2, 20);
    for (unsigned i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "x%02u", i);
        put_value(w, x, a, key, i, 300);
    }
    put_value(w, x, reg_main(w->reg), "m", 3, 7000);
    world_commit(w, x);
    reg_put(w->reg, a);
    world_settle(w);
    ZT_OK(w->t, buf_clean_until(w->buf, CH_LSN_MAX));
}

static void
create_and_fill(struct world *w, struct txn *x)
{
    struct reg_tree *b = open_tree(w, x, "b");

    put_value(w, x, b, "b1", 4, 6000);
    put_value(w, x, b, "b2", 5, 60);
    reg_put(w->reg, b);
}

static void
do_create(struct world *w)
{
    struct txn *x = world_begin(w);

    create_and_fill(w, x);
    world_commit(w, x);
}

static void
do_create_abort(struct world *w)
{
    struct txn *x = world_begin(w);

    create_and_fill(w, x);
    ZT_OK(w->t, txn_abort(x));
    world_settle(w);
}

static void
do_large_put(struct world *w)
{
    put_value(w, NULL, reg_main(w->reg), "m", 6, 8000);
    world_settle(w);
}

static void
do_large_insert(struct world *w)
{
    put_value(w, NULL, reg_main(w->reg), "n", 6, 8000);
}

static void
do_large_del(struct world *w)
{
    del_value(w, NULL, reg_main(w->reg), "m");
    world_settle(w);
}

static void
do_savepoints(struct world *w)
{
    struct txn *x = world_begin(w);
    struct reg_tree *a = open_tree(w, x, "a");
    uint64_t sp;

    put_value(w, x, a, "k1", 7, 5000);
    ZT_OK(w->t, txn_savepoint(x, &sp));
    create_and_fill(w, x);
    put_value(w, x, a, "k1", 8, 6000);
    del_value(w, x, reg_main(w->reg), "m");
    ZT_OK(w->t, txn_rollback_to(x, sp));
    put_value(w, x, a, "k2", 8, 5000);
    world_commit(w, x);
    reg_put(w->reg, a);
    world_settle(w);
}

static void
do_drop(struct world *w)
{
    struct txn *x = world_begin(w);

    ZT_OK(w->t, cat_drop(w->cat, x, str("a")));
    world_commit(w, x);
    world_settle(w);
}

static void
do_drop_abort(struct world *w)
{
    struct txn *x = world_begin(w);

    ZT_OK(w->t, cat_drop(w->cat, x, str("a")));
    ZT_OK(w->t, txn_abort(x));
    world_settle(w);
}

static void
do_truncate(struct world *w)
{
    struct txn *x = world_begin(w);

    ZT_OK(w->t, cat_truncate(w->cat, x, str("a")));
    world_commit(w, x);
    world_settle(w);
}

static void
do_rename(struct world *w)
{
    struct txn *x = world_begin(w);

    ZT_OK(w->t, cat_rename(w->cat, x, str("a"), str("z")));
    world_commit(w, x);
}

static void
bulk_fill(struct world *w, struct cat_bulk *b)
{
    uint8_t v[5000];
    char key[16];

    for (unsigned i = 0; i < 120; i++) {
        size_t bytes = i % 40 == 1 ? 5000 : 200;

        (void)snprintf(key, sizeof(key), "%04u", i);
        fill(v, i, 0, bytes);
        ZT_OK(w->t, cat_bulk_put(b, str(key), (struct bt_slice){v, bytes}));
    }
}

static void
do_bulk(struct world *w)
{
    struct txn *x = world_begin(w);
    struct cat_bulk *b = NULL;
    struct reg_tree *e = NULL;

    ZT_OK(w->t, cat_open(w->cat, x, str("empty"), 0, 0, 0, &e));
    world_commit(w, x);
    ZT_OK(w->t, cat_bulk_create(w->cat, e, &b));
    bulk_fill(w, b);
    ZT_OK(w->t, cat_bulk_finish(b, COHORT_DEFAULT));
    reg_put(w->reg, e);
    world_settle(w);
}

static void
do_bulk_abort(struct world *w)
{
    struct txn *x = world_begin(w);
    struct cat_bulk *b = NULL;
    struct reg_tree *e = NULL;

    ZT_OK(w->t, cat_open(w->cat, x, str("empty"), 0, 0, 0, &e));
    world_commit(w, x);
    ZT_OK(w->t, cat_bulk_create(w->cat, e, &b));
    bulk_fill(w, b);
    cat_bulk_abort(b);
    reg_put(w->reg, e);
    world_settle(w);
}

struct scenario {
    const char *name;
    void (*run)(struct world *w);
    bool empty; /* there is a tree of that name */
};

static void
begin(struct world *w, struct zt *t, const struct scenario *s)
{
    struct txn *x;

    world_open(w, t, 0);
    setup(w);
    if (s->empty) {
        x = world_begin(w);
        reg_put(w->reg, open_tree(w, x, "empty"));
        world_commit(w, x);
    }
    ZT_OK(t, wal_flush(w->wal, wal_end(w->wal)));
}

static void
run_all_points(struct zt *t, const struct scenario *s)
{
    lsn_t *ends = calloc(RECORDS_MAX, sizeof(*ends));
    struct signature *sig = calloc(3, sizeof(*sig)); /* before, after, found */
    struct world w;
    lsn_t base;
    unsigned n;
    bool after = false;

    ZT_CHECK(t, ends != NULL && sig != NULL);
    begin(&w, t, s);
    base = wal_end(w.wal);
    take_signature(&w, &sig[0]);
    s->run(&w);
    take_signature(&w, &sig[1]);
    n = world_records(&w, base, ends, RECORDS_MAX);
    ZT_CHECK(t, n > 0);
    world_close(&w);
    for (unsigned i = 0; i < n; i++) {
        begin(&w, t, s);
        ZT_CHECK(t, wal_end(w.wal) == base);
        s->run(&w);
        world_crash_at(&w, ends[i]);
        world_settle(&w);
        ZT_CHECK(t, world_pending(&w) == 0);
        world_check(&w);
        take_signature(&w, &sig[2]);
        if (strcmp(sig[2].text, sig[1].text) == 0)
            after = true;
        else if (after || strcmp(sig[2].text, sig[0].text) != 0)
            fprintf(stderr, "%s: cut %u of %u: neither before nor after:\n%s", s->name, i, n,
                    sig[2].text);
        ZT_CHECK(t, strcmp(sig[2].text, sig[after ? 1 : 0].text) == 0);
        world_close(&w);
    }
    ZT_CHECK(t, after);
    free(ends);
    free(sig);
}

static void
test_all_points(struct zt *t)
{
    static const struct scenario scenarios[] = {
        {"create", do_create, false},
        {"create and abort", do_create_abort, false},
        {"large put", do_large_put, false},
        {"large insert", do_large_insert, false},
        {"large delete", do_large_del, false},
        {"savepoints", do_savepoints, false},
        {"drop", do_drop, false},
        {"drop and abort", do_drop_abort, false},
        {"truncate", do_truncate, false},
        {"rename", do_rename, false},
        {"bulk load", do_bulk, true},
        {"bulk load and abort", do_bulk_abort, true},
    };

    for (unsigned i = 0; i < CH_ARRAY_LEN(scenarios); i++)
        run_all_points(t, &scenarios[i]);
}

/* Goal: what a prepared transaction made or took away stays over crashes until it is decided, and goes the right way then. */
static void
test_prepared(struct zt *t)
{
    struct signature *sig = calloc(3, sizeof(*sig));
    struct world w;
    struct txn *x;

    ZT_CHECK(t, sig != NULL);
    for (unsigned commit = 0; commit < 2; commit++) {
        world_open(&w, t, 0);
        setup(&w);
        take_signature(&w, &sig[0]);
        x = world_begin(&w);
        create_and_fill(&w, x);
        put_value(&w, x, reg_main(w.reg), "m", 9, 9000);
        ZT_OK(t, cat_drop(w.cat, x, str("a")));
        ZT_OK(t, txn_prepare(x, "gid", 3));
        for (unsigned i = 0; i < 2; i++) {
            world_settle(&w);
            world_check(&w);
            take_signature(&w, &sig[1]);
            ZT_CHECK(t, strcmp(sig[0].text, sig[1].text) == 0);
            world_crash(&w, true);
        }
        world_settle(&w);
        if (commit != 0)
            ZT_OK(t, txns_commit_prepared(w.txns, "gid", 3));
        else
            ZT_OK(t, txns_abort_prepared(w.txns, "gid", 3));
        for (unsigned i = 0; i < 2; i++) {
            world_settle(&w);
            ZT_CHECK(t, world_pending(&w) == 0);
            world_check(&w);
            take_signature(&w, &sig[2]);
            ZT_CHECK(t, (strcmp(sig[0].text, sig[2].text) == 0) == (commit == 0));
            ZT_CHECK(t, world_pieces(&w) == 9);
            world_crash(&w, true);
        }
        world_close(&w);
    }
    free(sig);
}

/* ---- model ---- */

enum {
    NAMES = 5,
    KEYS = 6,
    VALUE_MAX = 30000,
    READERS = 3
};

struct model_value {
    uint64_t seed;
    size_t bytes;
    bool there;
};
struct model_tree {
    bool there;
    struct model_value v[KEYS];
};
struct model {
    struct model_tree trees[NAMES + 1]; /* the last one is the main tree */
};
struct reader {
    struct txn *x;
    struct model m;
};
struct play {
    struct world w;
    struct model committed, now, saved;
    struct txn *x; /* NULL: none is open */
    uint64_t sp;   /* 0: none */
    struct reader readers[READERS];
};

static const char *const names[NAMES] = {"a", "b", "c", "d", "e"};
static const char *const keys[KEYS] = {"1", "2", "3", "4", "5", "6"};

static struct reg_tree *
model_open(struct play *p, struct txn *x, unsigned i, int want)
{
    struct reg_tree *tree = NULL;
    struct txn *own = x != NULL ? x : world_begin(&p->w);

    if (i < NAMES)
        ZT_STATUS(p->w.t, cat_open(p->w.cat, own, str(names[i]), 0, 0, 0, &tree), want);
    if (x == NULL)
        world_commit(&p->w, own);
    return i < NAMES ? tree : reg_main(p->w.reg);
}

static void
model_close(struct play *p, unsigned i, struct reg_tree *tree)
{
    if (i != NAMES && tree != NULL)
        reg_put(p->w.reg, tree);
}

static void
compare_value(struct play *p, struct txn *x, struct reg_tree *tree, unsigned k,
              const struct model_value *want)
{
    struct cohort_value v = {0};
    uint8_t expect[VALUE_MAX];

    if (!want->there) {
        ZT_STATUS(p->w.t, cat_get(p->w.cat, x, tree, str(keys[k]), &v), COHORT_NOTFOUND);
        return;
    }
    ZT_OK(p->w.t, cat_get(p->w.cat, x, tree, str(keys[k]), &v));
    fill(expect, want->seed, 0, want->bytes);
    ZT_CHECK(p->w.t, v.bytes == want->bytes && memcmp(v.data, expect, v.bytes) == 0);
    free(v.data);
}

/* `strict` false: of trees that were dropped since, nothing is known. */
static void
compare(struct play *p, struct txn *x, const struct model *m, bool strict)
{
    struct reg_tree *tree;

    for (unsigned i = 0; i <= NAMES; i++) {
        const struct model_tree *mt = &m->trees[i];

        tree = model_open(p, x, i, i == NAMES || mt->there ? 0 : COHORT_NOTFOUND);
        if (tree == NULL)
            continue;
        if (strict || !atomic_load(&tree->dropped))
            for (unsigned k = 0; k < KEYS; k++)
                compare_value(p, x, tree, k, &mt->v[k]);
        model_close(p, i, tree);
    }
}

static void
play_write(struct play *p, struct txn *x, struct model *m)
{
    struct zt *t = p->w.t;
    unsigned i = (unsigned)zt_below(t, NAMES + 1), k = (unsigned)zt_below(t, KEYS);
    struct model_value *mv = &m->trees[i].v[k];
    struct reg_tree *tree;
    uint8_t v[VALUE_MAX];
    size_t bytes = zt_below(t, zt_below(t, 2) == 0 ? 300 : VALUE_MAX);
    enum bt_write_kind kind = (enum bt_write_kind)zt_below(t, 4);
    uint64_t seed = zt_below(t, 1 << 20);
    int want = 0;

    if (i < NAMES && !m->trees[i].there)
        return;
    tree = model_open(p, x, i, 0);
    fill(v, seed, 0, bytes);
    if (kind == BT_INSERT && mv->there)
        want = COHORT_EXISTS;
    else if ((kind == BT_UPDATE || kind == BT_DEL) && !mv->there)
        want = COHORT_NOTFOUND;
    ZT_STATUS(t, cat_write(p->w.cat, x, tree, kind, str(keys[k]), (struct bt_slice){v, bytes}),
              want);
    if (want == 0)
        *mv = (struct model_value){.seed = seed, .bytes = bytes, .there = kind != BT_DEL};
    model_close(p, i, tree);
}

static void
play_names(struct play *p)
{
    struct zt *t = p->w.t;
    unsigned i = (unsigned)zt_below(t, NAMES), j = (unsigned)zt_below(t, NAMES);
    struct model_tree *a = &p->now.trees[i], *b = &p->now.trees[j];
    struct reg_tree *tree = NULL;
    int none = a->there ? 0 : COHORT_NOTFOUND;

    switch (zt_below(t, 5)) {
    case 0:
        ZT_STATUS(t, cat_drop(p->w.cat, p->x, str(names[i])), none);
        memset(a, 0, sizeof(*a));
        break;
    case 1:
        ZT_STATUS(t, cat_truncate(p->w.cat, p->x, str(names[i])), none);
        memset(a->v, 0, sizeof(a->v));
        break;
    case 2:
        ZT_STATUS(t, cat_rename(p->w.cat, p->x, str(names[i]), str(names[j])),
                  none != 0  ? none
                  : b->there ? COHORT_EXISTS
                             : 0);
        if (a->there && !b->there) {
            *b = *a;
            memset(a, 0, sizeof(*a));
        }
        break;
    default:
        ZT_OK(t, cat_open(p->w.cat, p->x, str(names[i]), COHORT_TREE_CREATE, 0, 0, &tree));
        reg_put(p->w.reg, tree);
        a->there = true;
        break;
    }
}

static void
play_txn(struct play *p)
{
    struct zt *t = p->w.t;

    if (p->x == NULL) {
        p->x = world_begin(&p->w);
        p->now = p->committed;
        p->sp = 0;
        return;
    }
    switch (zt_below(t, 6)) {
    case 0:
        ZT_OK(t, txn_abort(p->x));
        p->x = NULL;
        break;
    case 1:
    case 2:
        world_commit(&p->w, p->x);
        p->committed = p->now;
        p->x = NULL;
        break;
    case 3:
        if (p->sp != 0) {
            ZT_OK(t, txn_rollback_to(p->x, p->sp));
            p->now = p->saved;
        }
        break;
    default:
        ZT_OK(t, txn_savepoint(p->x, &p->sp));
        p->saved = p->now;
        break;
    }
}

static void
play_readers(struct play *p)
{
    struct reader *r = &p->readers[zt_below(p->w.t, READERS)];

    if (r->x == NULL) {
        r->x = world_begin(&p->w);
        r->m = p->committed;
    } else {
        compare(p, r->x, &r->m, false);
        if (zt_below(p->w.t, 3) == 0) {
            world_commit(&p->w, r->x);
            r->x = NULL;
        }
    }
}

static void
play_end(struct play *p, bool crash)
{
    for (unsigned i = 0; i < READERS; i++) {
        if (p->readers[i].x != NULL && !crash)
            world_commit(&p->w, p->readers[i].x);
        p->readers[i].x = NULL;
    }
    if (p->x != NULL && !crash)
        ZT_OK(p->w.t, txn_abort(p->x));
    p->x = NULL;
    if (crash)
        world_crash(&p->w, true);
    world_settle(&p->w);
    ZT_CHECK(p->w.t, world_pending(&p->w) == 0);
    world_check(&p->w);
    p->x = world_begin(&p->w);
    compare(p, p->x, &p->committed, true);
    world_commit(&p->w, p->x);
    p->x = NULL;
}

/* Goal: transactions that create, drop, rename, truncate and write values of all sizes, with savepoints and aborts, do what a
 * model says, for snapshots too; crashes undo what is open; nothing leaks. */
static void
test_model(struct zt *t)
{
    struct play *p = calloc(1, sizeof(*p));
    bool did;

    ZT_CHECK(t, p != NULL);
    world_open(&p->w, t, 0);
    for (unsigned step = 0; step < 1500; step++) {
        unsigned what = (unsigned)zt_below(t, 100);

        if (what < 20)
            play_txn(p);
        else if (what < 60 && p->x != NULL)
            play_write(p, p->x, &p->now);
        else if (what < 75 && p->x != NULL)
            play_names(p);
        else if (what < 75 && p->x == NULL)
            play_write(p, NULL, &p->committed);
        else if (what < 85)
            play_readers(p);
        else if (what < 98)
            ZT_OK(t, what < 90 ? txns_step(p->w.txns, &did) : cat_sweep_step(p->w.cat, &did));
        else if (zt_below(t, 4) == 0)
            play_end(p, zt_below(t, 2) == 0);
        else if (p->x != NULL)
            compare(p, p->x, &p->now, true);
    }
    play_end(p, false);
    world_close(&p->w);
    free(p);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"all_points", test_all_points, 1},
        {"prepared", test_prepared, 1},
        {"model", test_model, 20},
    };

    return zt_main(argc, argv, "cat crashes", cases, CH_ARRAY_LEN(cases));
}
