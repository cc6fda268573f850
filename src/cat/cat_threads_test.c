/* cat_threads_test.c - large values and trees under real threads: readers never see half of a value, nothing is freed under
 * anybody, and nothing is left over. */
#include <stdio.h>
#include <stdlib.h>

#include "cat/cat_test_rig.h"

enum {
    KEYS = 4,
    TREES = 3,
    READERS = 2,
    WRITERS = 2,
    WRITES = 400,
    VALUE_MAX = 20000
};

struct play {
    struct world w;
    _Atomic bool stop; /* relaxed: soon is enough */
    _Atomic unsigned reads, swept;
    _Atomic uint64_t seeds;
};
struct actor {
    struct play *p;
    struct zt zt;
    struct rt_thread thread;
};

static const char *const keys[KEYS] = {"a", "b", "c", "d"};
static const char *const names[TREES] = {"one", "two", "three"};

static bool
allowed(int rc)
{
    return rc == 0 || rc == COHORT_CONFLICT || rc == COHORT_NOTFOUND || rc == COHORT_EXISTS;
}

/* A value tells its seed and is a function of it, so that any mixture shows. */
static void
make_value(uint8_t *v, uint64_t seed, size_t bytes)
{
    fill(v, seed, 0, bytes);
    ch_put64(v, seed);
    ch_put64(v + 8, bytes);
}

static void
check_value(struct actor *a, const struct cohort_value *v)
{
    uint8_t want[VALUE_MAX];
    uint64_t bytes;

    ZT_CHECK(&a->zt, v->bytes >= 16 && v->bytes <= VALUE_MAX);
    bytes = ch_get64((const uint8_t *)v->data + 8);
    ZT_CHECK(&a->zt, bytes == v->bytes);
    make_value(want, ch_get64(v->data), bytes);
    ZT_CHECK(&a->zt, memcmp(want, v->data, bytes) == 0);
}

static struct txn *
begin(struct actor *a)
{
    struct txn_options o = {.durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};
    struct txn *x = NULL;

    ZT_OK(&a->zt, txn_begin(a->p->w.txns, &o, &x));
    return x;
}

static void
finish(struct actor *a, struct txn *x, int rc)
{
    ZT_CHECK(&a->zt, allowed(rc));
    if (rc != 0)
        ZT_OK(&a->zt, txn_abort(x));
    else
        ZT_OK(&a->zt, txn_commit(x, false, NULL));
}

static int
open_some(struct actor *a, struct txn *x, unsigned flags, struct reg_tree **tree)
{
    return cat_open(a->p->w.cat, x, str(names[zt_below(&a->zt, TREES)]), flags, 0, 0, tree);
}

static void
read_some(struct actor *a, struct txn *x, struct reg_tree *tree, struct cohort_value *v)
{
    int rc = cat_get(a->p->w.cat, x, tree, str(keys[zt_below(&a->zt, KEYS)]), v);

    ZT_CHECK(&a->zt, rc == 0 || rc == COHORT_NOTFOUND);
    if (rc == 0)
        check_value(a, v);
    atomic_fetch_add_explicit(&a->p->reads, rc == 0, memory_order_relaxed);
}

static void
reader(void *arg)
{
    struct actor *a = arg;
    struct play *p = a->p;
    struct cohort_value v = {0};
    struct reg_tree *tree;
    struct txn *x;

    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        read_some(a, NULL, reg_main(p->w.reg), &v);
        x = begin(a);
        tree = NULL;
        if (open_some(a, x, 0, &tree) == 0) {
            for (unsigned i = 0; i < 5; i++)
                read_some(a, x, tree, &v);
        }
        read_some(a, x, reg_main(p->w.reg), &v);
        ZT_OK(&a->zt, txn_commit(x, false, NULL));
        if (tree != NULL) {
            read_some(a, NULL, tree, &v); /* dropped perhaps */
            reg_put(p->w.reg, tree);
        }
    }
    free(v.data);
}

static int
write_some(struct actor *a, struct txn *x, struct reg_tree *tree)
{
    uint8_t v[VALUE_MAX];
    size_t bytes = 16 + zt_below(&a->zt, zt_below(&a->zt, 3) == 0 ? 500 : VALUE_MAX - 16);
    enum bt_write_kind kind = (enum bt_write_kind)zt_below(&a->zt, 4);

    make_value(v, atomic_fetch_add_explicit(&a->p->seeds, 1, memory_order_relaxed), bytes);
    return cat_write(a->p->w.cat, x, tree, kind, str(keys[zt_below(&a->zt, KEYS)]),
                     (struct bt_slice){v, bytes});
}

static void
writer(void *arg)
{
    struct actor *a = arg;
    struct world *w = &a->p->w;

    for (unsigned i = 0; i < WRITES; i++) {
        struct reg_tree *tree = NULL;
        struct txn *x;
        int rc = write_some(a, NULL, reg_main(w->reg));

        ZT_CHECK(&a->zt, allowed(rc));
        x = begin(a);
        rc = zt_below(&a->zt, 5) == 0 ? cat_drop(w->cat, x, str(names[zt_below(&a->zt, TREES)]))
                                      : open_some(a, x, COHORT_TREE_CREATE, &tree);
        for (unsigned k = 0; rc == 0 && tree != NULL && k < 3; k++) {
            rc = write_some(a, x, tree);
            if (rc == COHORT_NOTFOUND || rc == COHORT_EXISTS)
                rc = 0;
        }
        if (zt_below(&a->zt, 4) == 0)
            rc = COHORT_CONFLICT;
        finish(a, x, rc);
        if (tree != NULL) {
            rc = write_some(a, NULL, tree); /* dropped by somebody perhaps */
            ZT_CHECK(&a->zt, allowed(rc));
            reg_put(w->reg, tree);
        }
    }
}

static void
sweeper(void *arg)
{
    struct actor *a = arg;
    bool did;

    while (!atomic_load_explicit(&a->p->stop, memory_order_relaxed)) {
        did = false;
        ZT_OK(&a->zt, txns_step(a->p->w.txns, &did));
        ZT_OK(&a->zt, cat_sweep_step(a->p->w.cat, &did));
        atomic_fetch_add_explicit(&a->p->swept, did, memory_order_relaxed);
        if (!did)
            rt_sleep_ns(100000);
    }
}

static void
test_threads(struct zt *t)
{
    struct play *p = calloc(1, sizeof(*p));
    struct actor actors[READERS + WRITERS + 2];
    unsigned n = 0;

    ZT_CHECK(t, p != NULL);
    world_open(&p->w, t, 4096);
    for (unsigned i = 0; i < CH_ARRAY_LEN(actors); i++) {
        void (*fn)(void *) = i < WRITERS ? writer : i < WRITERS + READERS ? reader : sweeper;

        actors[i].p = p;
        actors[i].zt = *t;
        ch_prng_init(&actors[i].zt.rng, t->seed * 100 + i);
        ZT_OK(t, rt_spawn(&actors[i].thread, "actor", fn, &actors[i]));
    }
    for (; n < WRITERS; n++)
        rt_join(&actors[n].thread);
    atomic_store_explicit(&p->stop, true, memory_order_relaxed);
    for (; n < CH_ARRAY_LEN(actors); n++)
        rt_join(&actors[n].thread);
    ZT_CHECK(t, atomic_load(&p->reads) > 0 && atomic_load(&p->swept) > 0);
    world_settle(&p->w);
    ZT_CHECK(t, world_pending(&p->w) == 0);
    world_check(&p->w);
    world_crash(&p->w, true);
    world_settle(&p->w);
    world_check(&p->w);
    world_close(&p->w);
    free(p);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"threads", test_threads, 5},
    };

    return zt_main(argc, argv, "cat threads", cases, CH_ARRAY_LEN(cases));
}
