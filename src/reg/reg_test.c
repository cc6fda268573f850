/* reg_test.c - the registry over real trees: format and load, ids, references, writers and drops, 10,000 open trees. */
#include <stdlib.h>

#include "btree/btree_test_rig.h"
#include "reg/reg.h"

struct world {
    struct rig r;
    struct reg *reg;
    page_id ids_root;
};

static void
open_registry(struct world *w)
{
    struct reg_config cfg = {
        .buf = w->r.buf, .wal = w->r.wal, .store = w->r.store, .ver = w->r.ver};

    ZT_OK(w->r.t, reg_create(&cfg, &w->reg));
}

static void
world_open(struct world *w, struct zt *t, unsigned frames)
{
    struct rig_options o = {.frames = frames, .versions = true, .no_tree = true};

    rig_open(&w->r, t, &o);
    open_registry(w);
    ZT_OK(t, reg_format(w->reg, &w->ids_root));
}

static void
world_close(struct world *w)
{
    reg_destroy(w->reg);
    rig_close(&w->r);
}

static void
world_reload(struct world *w)
{
    reg_destroy(w->reg);
    open_registry(w);
    ZT_OK(w->r.t, reg_load(w->reg, &w->ids_root));
}

static uint32_t
make(struct world *w, int codec, int level)
{
    page_id root = 0;
    uint32_t id = 0;

    ZT_OK(w->r.t, reg_new_id(w->reg, &id, &root));
    ZT_CHECK(w->r.t, id >= REG_USER && root != 0);
    ZT_OK(w->r.t, reg_make(w->reg, id, root, codec, level));
    return id;
}

static void
put(struct world *w, struct reg_tree *t, uint32_t k, uint32_t v)
{
    struct bt_op op = {.kind = BT_PUT, .key = {&k, sizeof(k)}, .value = {&v, sizeof(v)}};
    struct bt_done done;

    ZT_OK(w->r.t, bt_write(&t->bt, &op, &done));
}

static void
copy32(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)flags;
    if (bytes == 4)
        memcpy(arg, value, 4);
}

static int
get(struct reg_tree *t, uint32_t k, uint32_t *v)
{
    *v = 0;
    return bt_get(&t->bt, NULL, (struct bt_slice){&k, sizeof(k)}, copy32, v);
}

/* Goal: internal trees are there after format and after load, with and without versions as reg.h says. */
static void
test_internal_trees(struct zt *t)
{
    struct world w;

    world_open(&w, t, 0);
    for (int round = 0; round < 2; round++) {
        for (uint32_t id = REG_MAIN; id <= REG_UNDO; id++) {
            struct bt *bt = reg_internal(w.reg, id);
            bool versions = id == REG_MAIN || id == REG_NAMES || id == REG_PENDING;

            ZT_CHECK(t, bt->tree == id && (bt->ver != NULL) == versions);
            ZT_CHECK(t, bt->undo == (versions ? reg_internal(w.reg, REG_UNDO) : NULL));
            ZT_CHECK(t, &reg_internal_tree(w.reg, id)->bt == bt);
        }
        ZT_CHECK(t, reg_internal(w.reg, REG_MAIN)->root == REG_MAIN_ROOT);
        ZT_CHECK(t, reg_internal(w.reg, REG_IDS)->root == w.ids_root);
        world_reload(&w);
    }
    world_close(&w);
}

/* Goal: a database that has only a main tree gets the others, and keeps what it has. */
static void
test_old_format(struct zt *t)
{
    struct world w;
    uint32_t v;

    world_open(&w, t, 0);
    put(&w, reg_main(w.reg), 1, 7);
    w.ids_root = 0;
    world_reload(&w);
    ZT_CHECK(t, w.ids_root != 0);
    ZT_OK(t, get(reg_main(w.reg), 1, &v));
    ZT_CHECK(t, v == 7);
    world_reload(&w);
    ZT_OK(t, get(reg_main(w.reg), 1, &v));
    world_close(&w);
}

/* Goal: what is missing or damaged in `ids` is named. */
static void
test_damaged_ids(struct zt *t)
{
    static const uint8_t keys[2][4] = {{0, 0, 0, REG_NAMES}, {0, 0, 0, 0}};
    struct bt_op op = {.kind = BT_DEL};
    struct bt_done done;
    struct world w;

    for (unsigned i = 0; i < 3; i++) {
        world_open(&w, t, 0);
        op.kind = i < 2 ? BT_DEL : BT_PUT;
        op.key = (struct bt_slice){keys[i % 2], 4};
        op.value = (struct bt_slice){"short", i < 2 ? 0 : 5};
        ZT_OK(t, bt_write(reg_internal(w.reg, REG_IDS), &op, &done));
        reg_destroy(w.reg);
        open_registry(&w);
        ZT_STATUS(t, reg_load(w.reg, &w.ids_root), COHORT_ECORRUPT);
        world_close(&w);
    }
}

/* Goal: ids are never given out twice, over reloads too, whether or not a tree was made of them. */
static void
test_ids_are_new(struct zt *t)
{
    struct world w;
    uint32_t id, last = 0;
    page_id root;

    world_open(&w, t, 0);
    for (unsigned i = 0; i < 300; i++) {
        ZT_OK(t, reg_new_id(w.reg, &id, &root));
        ZT_CHECK(t, id > last);
        last = id;
        if (zt_below(t, 2) == 0)
            ZT_OK(t, reg_make(w.reg, id, root, COHORT_CODEC_DEFAULT, 0));
        if (zt_below(t, 10) == 0)
            world_reload(&w);
        if (zt_below(t, 5) == 0)
            ZT_OK(t, reg_forget(w.reg, id));
    }
    world_close(&w);
}

static int
count_visit(void *arg, uint32_t id, page_id root)
{
    unsigned *n = arg;

    n[0]++;
    n[1] += id >= REG_USER;
    return root == 0 ? COHORT_ECORRUPT : n[0] == n[2] ? COHORT_EBUSY : 0;
}

/* Goal: a tree keeps entries and options over a reload, is one object while it is open, and is listed. */
static void
test_trees(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b;
    unsigned n[3] = {0, 0, 0};
    uint32_t one, two, v;

    world_open(&w, t, 0);
    one = make(&w, COHORT_CODEC_ZSTD, 7);
    two = make(&w, COHORT_CODEC_DEFAULT, 0);
    ZT_OK(t, reg_get(w.reg, one, &a));
    ZT_OK(t, reg_get(w.reg, one, &b));
    ZT_CHECK(t, a == b && a->refs == 2 && a->codec == COHORT_CODEC_ZSTD && a->codec_level == 7);
    ZT_CHECK(t, !atomic_load(&a->large));
    put(&w, a, 5, 50);
    ZT_OK(t, reg_note_large(w.reg, a));
    ZT_OK(t, reg_note_large(w.reg, a));
    reg_put(w.reg, a);
    reg_put(w.reg, b);
    world_reload(&w);
    ZT_OK(t, reg_get(w.reg, one, &a));
    ZT_OK(t, reg_get(w.reg, two, &b));
    ZT_CHECK(t, a->codec == COHORT_CODEC_ZSTD && a->codec_level == 7 && b->codec == 0);
    ZT_CHECK(t, atomic_load(&a->large) && !atomic_load(&b->large));
    ZT_OK(t, get(a, 5, &v));
    ZT_CHECK(t, v == 50);
    ZT_STATUS(t, get(b, 5, &v), COHORT_NOTFOUND);
    ZT_STATUS(t, reg_get(w.reg, two + 1, &b), COHORT_NOTFOUND);
    ZT_OK(t, reg_each(w.reg, count_visit, n));
    ZT_CHECK(t, n[0] == 8 && n[1] == 2);
    n[0] = 0;
    n[2] = 3;
    ZT_STATUS(t, reg_each(w.reg, count_visit, n), COHORT_EBUSY);
    reg_put(w.reg, a);
    ZT_OK(t, reg_get(w.reg, two, &b));
    reg_put(w.reg, b);
    reg_put(w.reg, b);
    world_close(&w);
}

/* Stored bytes of the one page that is dirty. */
static uint32_t
stored_bytes(struct world *w)
{
    struct store_counts before, after;

    store_counts(w->r.store, &before);
    ZT_OK(w->r.t, buf_clean_until(w->r.buf, CH_LSN_MAX));
    store_counts(w->r.store, &after);
    return (uint32_t)(after.page_write_stored - before.page_write_stored);
}

/* Goal: a tree's codec decides how its pages are stored, from its first page on and after a reload. */
static void
test_codecs(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    uint32_t none, zstd;

    world_open(&w, t, 0);
    none = make(&w, COHORT_CODEC_NONE, 0);
    zstd = make(&w, COHORT_CODEC_ZSTD, 1);
    (void)stored_bytes(&w);
    for (uint32_t round = 0; round < 2; round++) {
        ZT_OK(t, reg_get(w.reg, none, &a));
        put(&w, a, round, 1);
        ZT_CHECK(t, stored_bytes(&w) == CH_PAGE_BYTES);
        reg_put(w.reg, a);
        ZT_OK(t, reg_get(w.reg, zstd, &a));
        put(&w, a, round, 1);
        ZT_CHECK(t, stored_bytes(&w) < CH_PAGE_BYTES / 4);
        reg_put(w.reg, a);
        world_reload(&w);
    }
    world_close(&w);
}

/* Goal: writers and drops exclude each other as reg.h says. */
static void
test_writers_and_drops(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    uint32_t id;

    world_open(&w, t, 0);
    id = make(&w, COHORT_CODEC_DEFAULT, 0);
    ZT_OK(t, reg_get(w.reg, id, &a));
    ZT_OK(t, reg_writer_begin(w.reg, a, 1));
    ZT_OK(t, reg_writer_begin(w.reg, a, 2));
    ZT_STATUS(t, reg_drop_begin(w.reg, a, 1, true), COHORT_CONFLICT);
    ZT_STATUS(t, reg_drop_begin(w.reg, a, 3, false), COHORT_CONFLICT);
    reg_writer_end(w.reg, a);
    ZT_STATUS(t, reg_drop_begin(w.reg, a, 3, false), COHORT_CONFLICT);
    ZT_OK(t, reg_drop_begin(w.reg, a, 1, true));
    ZT_STATUS(t, reg_drop_begin(w.reg, a, 3, false), COHORT_CONFLICT);
    ZT_STATUS(t, reg_writer_begin(w.reg, a, 3), COHORT_CONFLICT);
    ZT_STATUS(t, reg_writer_begin(w.reg, a, 0), COHORT_CONFLICT);
    ZT_STATUS(t, reg_writer_begin(w.reg, a, 1), COHORT_NOTFOUND);
    reg_drop_end(w.reg, a, false);
    reg_writer_end(w.reg, a);
    ZT_OK(t, reg_writer_begin(w.reg, a, 3));
    reg_writer_end(w.reg, a);
    ZT_OK(t, reg_drop_begin(w.reg, a, 4, false));
    reg_drop_end(w.reg, a, true);
    ZT_STATUS(t, reg_writer_begin(w.reg, a, 5), COHORT_NOTFOUND);
    ZT_STATUS(t, reg_drop_begin(w.reg, a, 5, false), COHORT_NOTFOUND);
    reg_put(w.reg, a);
    world_close(&w);
}

/* Goal: a dropped tree is the same object, and dropped, for everybody who still finds it; a handle outlives it. */
static void
test_dropped_until_forgotten(struct zt *t)
{
    struct world w;
    struct reg_tree *a, *b;
    page_id root;
    uint32_t id;
    bool done = false, yes;

    world_open(&w, t, 0);
    id = make(&w, COHORT_CODEC_DEFAULT, 0);
    ZT_OK(t, reg_get(w.reg, id, &a));
    root = a->bt.root;
    for (uint32_t k = 0; k < 3000; k++)
        put(&w, a, k, k);
    ZT_OK(t, reg_drop_begin(w.reg, a, 1, false));
    reg_put(w.reg, a); /* the drop itself keeps it */
    ZT_OK(t, reg_get(w.reg, id, &a));
    ZT_CHECK(t, a->dropping == 1);
    reg_drop_end(w.reg, a, true);
    reg_put(w.reg, a);
    ZT_OK(t, reg_get(w.reg, id, &a));
    ZT_OK(t, reg_get(w.reg, id, &b));
    ZT_CHECK(t, a == b && atomic_load(&a->dropped));
    reg_put(w.reg, b);
    ZT_OK(t, reg_is_root(w.reg, id, root, false, &yes));
    ZT_CHECK(t, yes);
    ZT_OK(t, reg_forget(w.reg, id));
    ZT_OK(t, reg_forget(w.reg, id));
    ZT_STATUS(t, reg_get(w.reg, id, &b), COHORT_NOTFOUND);
    ZT_CHECK(t, atomic_load(&a->dropped) && a->refs == 1);
    while (!done)
        ZT_OK(t, reg_free_step(w.reg, id, root, false, 64, &done));
    ZT_OK(t, reg_is_root(w.reg, id, root, false, &yes));
    ZT_CHECK(t, !yes);
    ZT_OK(t, reg_free_step(w.reg, id, root, false, 64, &done));
    reg_put(w.reg, a);
    ZT_CHECK(t, reg_memory(w.reg) > 0);
    world_close(&w);
}

/* Goal: a page id that was meant for a tree and went to another one is left alone. */
static void
test_root_of_another(struct zt *t)
{
    struct world w;
    struct reg_tree *a;
    uint32_t id, v;
    bool done = false;

    world_open(&w, t, 0);
    id = make(&w, COHORT_CODEC_DEFAULT, 0);
    ZT_OK(t, reg_get(w.reg, id, &a));
    put(&w, a, 1, 2);
    ZT_OK(t, reg_free_step(w.reg, id + 1, a->bt.root, false, 64, &done));
    ZT_CHECK(t, done);
    done = false;
    ZT_OK(t, reg_free_step(w.reg, id, a->bt.root, true, 64, &done)); /* nor a private root */
    ZT_CHECK(t, done);
    ZT_OK(t, reg_free_step(w.reg, id, 5000, false, 64, &done)); /* no such page */
    ZT_CHECK(t, done);
    ZT_OK(t, get(a, 1, &v));
    reg_put(w.reg, a);
    world_close(&w);
}

/* Goal: 10,000 trees are open at once: memory per tree is bounded, and opening is by hash. */
static void
test_many_trees(struct zt *t)
{
    enum {
        TREES = 10000
    };
    struct reg_tree **trees = calloc(TREES, sizeof(*trees));
    struct world w;
    uint64_t begin, ns;
    size_t before;
    uint32_t v;

    ZT_CHECK(t, trees != NULL);
    world_open(&w, t, 16384);
    before = reg_memory(w.reg);
    for (unsigned i = 0; i < TREES; i++)
        ZT_OK(t, reg_get(w.reg, make(&w, COHORT_CODEC_DEFAULT, 0), &trees[i]));
    for (unsigned i = 0; i < TREES; i++)
        put(&w, trees[i], i, i + 1);
    ZT_CHECK(t, (reg_memory(w.reg) - before) / TREES < 400);
    begin = rt_now_ns();
    for (unsigned i = 0; i < 1000000; i++) {
        struct reg_tree *a = trees[zt_below(t, TREES)], *b;

        ZT_OK(t, reg_get(w.reg, a->id, &b));
        ZT_CHECK(t, a == b);
        reg_put(w.reg, b);
    }
    ns = (rt_now_ns() - begin) / 1000000;
    ZT_CHECK(t, ns < 20000); /* far from a list of them all, also under a sanitizer */
    for (unsigned i = 0; i < TREES; i++) {
        ZT_OK(t, get(trees[i], i, &v));
        ZT_CHECK(t, v == i + 1);
        reg_put(w.reg, trees[i]);
    }
    ZT_CHECK(t, reg_memory(w.reg) < before + TREES * 32);
    free(trees);
    world_close(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"internal_trees", test_internal_trees, 1},
        {"old_format", test_old_format, 1},
        {"damaged_ids", test_damaged_ids, 1},
        {"ids_are_new", test_ids_are_new, 5},
        {"trees", test_trees, 1},
        {"codecs", test_codecs, 1},
        {"writers_and_drops", test_writers_and_drops, 1},
        {"dropped_until_forgotten", test_dropped_until_forgotten, 1},
        {"root_of_another", test_root_of_another, 1},
        {"many_trees", test_many_trees, 1},
    };

    return zt_main(argc, argv, "reg", cases, CH_ARRAY_LEN(cases));
}
