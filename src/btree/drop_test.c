/* drop_test.c - whole trees and ranges of keys leave: what stays, what is freed, steps interrupted and repeated. */
#include <stdlib.h>

#include "btree/btree_test_rig.h"
#include "btree/tree.h"

/* Fills the tree in random order, so that pages are as splits leave them. */
static void
fill(struct rig *r, struct keys *k)
{
    for (unsigned i = 0; i < k->n; i++)
        ZT_OK(r->t, rig_put(r, k, (unsigned)((uint64_t)i * 7919 % k->n), i + 1));
    for (unsigned i = 0; i < k->n; i++)
        if (k->version[i] == 0)
            ZT_OK(r->t, rig_put(r, k, i, 1));
}

/* Goal: dropping ends with no page left, each step leaves a valid tree, leaves are not read, and a crash after any of
 * them changes nothing. Method: random step sizes, the cache dropped in between. */
static void
test_drop(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 32 : 2048};
    enum key_shape shape = (enum key_shape)(t->seed % KEY_SHAPES);
    unsigned max = 1 + (unsigned)zt_below(t, zt_below(t, 2) == 0 ? 4 : 100);
    struct rig r;
    struct keys k;
    bool done = false;
    uint64_t before, after, pages = 0;

    rig_open(&r, t, &o);
    keys_create(&k, t, shape, shape == KEYS_LONG ? 400 : 2500, 300);
    if (zt_below(t, 8) != 0)
        fill(&r, &k);
    pages = rig_check(&r).leaf_pages;
    for (unsigned step = 0; !done; step++) {
        ZT_CHECK(t, step <= pages);
        ZT_OK(t, bt_drop_step(&r.bt, max, &done));
        if (done)
            break;
        if (step % 16 == 0)
            ZT_CHECK(t, rig_check(&r).errors == 0);
        if (step % 8 == 0) {
            before = rig_check(&r).leaf_pages;
            rig_reopen_buf(&r);
            after = rig_check(&r).leaf_pages;
            ZT_CHECK(t, before == after);
        }
    }
    rig_trim(&r);
    for (page_id pid = 1; pid < 1 << 16; pid++)
        ZT_CHECK(t, map_get(store_map(r.store), pid) == PLACE_NONE);
    done = false;
    ZT_OK(t, bt_drop_step(&r.bt, max, &done));
    ZT_CHECK(t, done);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: leaves of a dropped tree are not read. */
static void
test_drop_reads_little(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_check_result c;
    struct buf_counts before, after;
    struct rig r;
    struct keys k;
    bool done = false;

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 5000, 300);
    fill(&r, &k);
    c = rig_check(&r);
    rig_reopen_buf(&r);
    buf_counts(r.buf, &before);
    while (!done)
        ZT_OK(t, bt_drop_step(&r.bt, 64, &done));
    buf_counts(r.buf, &after);
    ZT_CHECK(t, after.misses - before.misses <= c.inner_pages && c.leaf_pages > 20 * c.inner_pages);
    keys_destroy(&k);
    rig_close(&r);
}

static unsigned
model_remove(struct keys *k, unsigned a, unsigned b)
{
    unsigned n = 0;

    for (unsigned i = a; i < b; i++) {
        n += k->version[i] != 0;
        k->version[i] = 0;
    }
    return n;
}

static void
remove_all(struct rig *r, struct bt_slice from, struct bt_slice to, unsigned max)
{
    bool more = true;

    for (unsigned i = 0; more; i++) {
        ZT_CHECK(r->t, i <= 100000);
        ZT_OK(r->t, bt_remove_range(&r->bt, from, to, max, false, &more));
        if (i % 64 == 63)
            rig_trim(r);
    }
}

struct small {
    struct rig *r;
    unsigned leaves, inner;
};

static void
small_visit(void *arg, page_id pid)
{
    struct small *s = arg;
    struct buf_ref ref;

    ZT_OK(s->r->t, buf_fix(s->r->buf, pid, BUF_SHARED, &ref));
    if (page_level(ref.page) > 0)
        s->inner += node_count(ref.page) == 0;
    else
        s->leaves += node_count(ref.page) == 0;
    buf_unfix(s->r->buf, &ref);
}

/* Goal: a range goes and nothing else; no empty pages stay, whatever the range; pages that are gone have no images. Method: random
 * ranges, from nothing to everything, with ends on keys and between them, in steps of random size; the tree is filled
 * up again in between. */
static void
test_ranges(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 48 : 2048};
    enum key_shape shape = (enum key_shape)(t->seed % KEY_SHAPES);
    struct bt_check_result c;
    struct small s;
    struct rig r;
    struct keys k;
    uint8_t end[COHORT_KEY_MAX + 1];
    struct bt_slice from, to;

    rig_open(&r, t, &o);
    r.bt.ver = NULL;
    keys_create(&k, t, shape, shape == KEYS_LONG ? 300 : 2000, zt_below(t, 2) == 0 ? 40 : 600);
    for (unsigned round = 0; round < 12; round++) {
        unsigned a = (unsigned)zt_below(t, k.n), b = (unsigned)zt_below(t, k.n + 1),
                 x = a < b ? a : b;
        unsigned y = a < b ? b : a,
                 max = 1 + (unsigned)zt_below(t, zt_below(t, 2) == 0 ? 20 : 10000);

        for (unsigned i = 0; i < k.n; i++)
            if (k.version[i] == 0 && zt_below(t, 3) > 0)
                ZT_OK(t, rig_put(&r, &k, i, round + 1));
        if (round == 3) {
            x = 0;
            y = k.n;
        }
        from = x == 0 && zt_below(t, 2) == 0 ? (struct bt_slice){"", 0} : key_slice(&k, x);
        to = y < k.n ? key_slice(&k, y) : (struct bt_slice){end, 0};
        if (y == k.n) { /* just behind the last key */
            memset(end, 0xff, 16);
            to.bytes = 16;
            if (node_compare(key_slice(&k, k.n - 1), to) >= 0)
                continue;
        }
        remove_all(&r, from, to, max);
        (void)model_remove(&k, x, y);
        rig_compare(&r, &k);
        s = (struct small){.r = &r};
        ZT_OK(t, bt_check(&r.bt, small_visit, NULL, &s, &c));
        /* A long separator may not fit into a neighbour that is full. */
        ZT_CHECK(t, (s.inner == 0 || shape >= KEYS_LONG) && (s.leaves == 0 || c.leaf_pages == 1));
        if (round % 4 == 0)
            rig_check_reachable(&r);
    }
    remove_all(&r, key_slice(&k, 1), key_slice(&k, 1), 1); /* empty, and upside down */
    remove_all(&r, key_slice(&k, 2), key_slice(&k, 1), 1);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: a large range costs about a record per DROP_PAGES leaves and reads few of them. */
static void
test_range_cost(struct zt *t)
{
    struct rig_options o = {0};
    struct bt_check_result c;
    struct buf_counts before, after;
    struct wal_counts w0, w1;
    struct rig r;
    struct keys k;
    bool more = true;

    rig_open(&r, t, &o);
    r.bt.ver = NULL;
    keys_create(&k, t, KEYS_DECIMAL, 6000, 400);
    fill(&r, &k);
    c = rig_check(&r);
    rig_reopen_buf(&r);
    buf_counts(r.buf, &before);
    wal_counts(r.wal, &w0);
    while (more)
        ZT_OK(t, bt_remove_range(&r.bt, key_slice(&k, 100), key_slice(&k, k.n - 100), 100000, false,
                                 &more));
    buf_counts(r.buf, &after);
    wal_counts(r.wal, &w1);
    (void)model_remove(&k, 100, k.n - 100);
    ZT_CHECK(t, c.leaf_pages > 200);
    ZT_CHECK(t, after.misses - before.misses <= c.inner_pages + 20);
    ZT_CHECK(t, w1.records - w0.records <= c.leaf_pages / 32 + 20);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- threads ---- */

enum {
    GROUPS = 4,
    GROUP_KEYS = 400,
    ROUNDS = 12,
};

struct worker {
    struct rig *r;
    struct keys *k;
    unsigned group;
    uint64_t seed;
};

/* Fills its part of the keys and removes it again, then fills it for good. */
static void
work(void *arg)
{
    struct worker *w = arg;
    unsigned a = w->group * GROUP_KEYS, b = a + GROUP_KEYS;
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_done done;
    bool more;

    for (unsigned round = 0; round <= ROUNDS; round++) {
        for (unsigned i = a; i < b; i++) {
            struct bt_op op = {.kind = BT_PUT,
                               .key = key_slice(w->k, i),
                               .value = key_value(w->k, i, round + 1, buf)};

            ZT_OK(w->r->t, bt_write(&w->r->bt, &op, &done));
        }
        if (round == ROUNDS)
            break;
        more = true;
        while (more)
            ZT_OK(w->r->t, bt_remove_range(&w->r->bt, key_slice(w->k, a), key_slice(w->k, b),
                                           1 + round * 10, false, &more));
    }
}

/* Goal: removals of neighbouring ranges and writes next to them do not harm one another. */
static void
test_threads(struct zt *t)
{
    struct rig_options o = {.frames = 100000, .log_megabytes = 64, .background = true};
    struct rt_thread threads[GROUPS];
    struct worker w[GROUPS];
    struct rig r;
    struct keys k;

    rig_open(&r, t, &o);
    r.bt.ver = NULL;
    keys_create(&k, t, KEYS_DECIMAL, GROUPS * GROUP_KEYS + 1, 300);
    for (unsigned i = 0; i < GROUPS; i++) {
        w[i] = (struct worker){&r, &k, i, t->seed};
        ZT_OK(t, rt_spawn(&threads[i], "remover", work, &w[i]));
    }
    for (unsigned i = 0; i < GROUPS; i++)
        rt_join(&threads[i]);
    for (unsigned i = 0; i < GROUPS * GROUP_KEYS; i++)
        k.version[i] = ROUNDS + 1;
    rig_compare(&r, &k);
    rig_check_reachable(&r);
    keys_destroy(&k);
    rig_close(&r);
}

enum {
    BLOCK_KEYS = 8, /* of one range: some leaves */
    BLOCKS = 48,    /* they belong to the threads in turn */
    TURNS = 3000,
};

static void
copy_nothing(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)arg;
    (void)value;
    (void)bytes;
    (void)flags;
}

/* Fills and removes ranges of its own, whose neighbours are others'. */
static void
work_blocks(void *arg)
{
    struct worker *w = arg;
    struct zt *t = w->r->t;
    bool full[BLOCKS] = {false};
    uint8_t buf[COHORT_ENTRY_MAX];
    struct ch_prng rng;
    struct bt_done done;

    ch_prng_init(&rng, w->seed * GROUPS + w->group);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned block = (unsigned)ch_prng_below(&rng, BLOCKS / GROUPS) * GROUPS + w->group;
        unsigned a = block * BLOCK_KEYS, b = a + BLOCK_KEYS;
        bool more = full[block];

        for (unsigned i = a; i < b && !full[block]; i++) {
            struct bt_op op = {.kind = BT_INSERT,
                               .key = key_slice(w->k, i),
                               .value = key_value(w->k, i, turn + 1, buf)};

            ZT_OK(t, bt_write(&w->r->bt, &op, &done));
        }
        while (more)
            ZT_OK(t, bt_remove_range(&w->r->bt, key_slice(w->k, a), key_slice(w->k, b), 256, false,
                                     &more));
        for (unsigned i = a; i < b && full[block]; i++)
            ZT_STATUS(t, bt_get(&w->r->bt, NULL, key_slice(w->k, i), copy_nothing, NULL),
                      COHORT_NOTFOUND);
        full[block] = !full[block];
    }
}

/* Goal (D5): nothing of a range is left behind, though others split and merge the leaves at its ends meanwhile. */
static void
test_neighbours(struct zt *t)
{
    struct rig_options o = {.frames = 10000, .log_megabytes = 512, .megabytes = 2048};
    struct rt_thread threads[GROUPS];
    struct worker w[GROUPS];
    struct rig r;
    struct keys k;

    rig_open(&r, t, &o);
    r.bt.ver = NULL;
    keys_create(&k, t, KEYS_DECIMAL, BLOCKS * BLOCK_KEYS + 1, 1900);
    for (unsigned i = 0; i < GROUPS; i++) {
        w[i] = (struct worker){&r, &k, i, t->seed};
        ZT_OK(t, rt_spawn(&threads[i], "remover", work_blocks, &w[i]));
    }
    for (unsigned i = 0; i < GROUPS; i++)
        rt_join(&threads[i]);
    (void)rig_check(&r);
    rig_check_reachable(&r);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"drop", test_drop, 16},      {"drop_reads_little", test_drop_reads_little, 1},
        {"ranges", test_ranges, 16},  {"range_cost", test_range_cost, 1},
        {"threads", test_threads, 2}, {"neighbours", test_neighbours, 1},
    };

    return zt_main(argc, argv, "drop", cases, CH_ARRAY_LEN(cases));
}
