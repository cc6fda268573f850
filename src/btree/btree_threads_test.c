/* btree_threads_test.c - many threads on one tree: writers of keys of their own, writers of shared
 * keys, batches, scans. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "btree/btree_test_rig.h"

enum {
    WRITERS = 3,
    OWN_KEYS = 3000, /* key i belongs to writer i % WRITERS */
    OPS = 6000,
    GROUP = 12, /* keys that batches write together, at distances */
    ROUNDS = 300,
};

struct crew {
    struct rig *rig;
    struct keys *keys;
    _Atomic bool stop;    /* relaxed; partner: main thread */
    _Atomic unsigned bad; /* relaxed; read after the join */
};
struct worker {
    struct crew *crew;
    unsigned number;
    struct ch_prng rng;
    struct rt_thread thread;
};

/* A check on a thread: counted, reported after the join. */
static void
expect(struct crew *c, bool ok, int line)
{
    if (ok)
        return;
    fprintf(stderr, "%s:%d failed on a thread; last error: %s\n", __FILE__, line,
            ch_last_error()->text);
    atomic_fetch_add_explicit(&c->bad, 1, memory_order_relaxed);
}
#define EXPECT(c, e) expect((c), (e), __LINE__)

static void
copy_version(void *arg, const void *value, size_t bytes)
{
    *(uint32_t *)arg = bytes < 4 ? 0 : ch_get32(value);
}

static int
put(struct crew *c, unsigned i, uint32_t version, enum bt_write_kind kind)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_op op = {kind, key_slice(c->keys, i), key_value(c->keys, i, version, buf)};
    lsn_t lsn;

    return bt_write(&c->rig->bt, &op, &lsn);
}

/* Own keys, exactly as a model says; the main thread compares at the end. */
static void
own_keys(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    uint32_t version;
    int rc;

    for (uint32_t step = 1; step <= OPS; step++) {
        unsigned n = c->keys->n / WRITERS;
        unsigned i = (unsigned)ch_prng_below(&w->rng, n) * WRITERS + w->number;
        bool have = c->keys->version[i] != 0;

        if (ch_prng_below(&w->rng, 100) < (step / 1500 % 2 == 0 ? 25U : 60U)) {
            rc = put(c, i, 0, BT_DEL);
            EXPECT(c, rc == (have ? 0 : COHORT_NOTFOUND));
            c->keys->version[i] = 0;
        } else {
            rc = put(c, i, step, BT_PUT);
            EXPECT(c, rc == 0);
            c->keys->version[i] = step;
        }
        version = 0;
        rc = bt_get(&c->rig->bt, key_slice(c->keys, i), copy_version, &version);
        EXPECT(c, rc == (c->keys->version[i] == 0 ? COHORT_NOTFOUND : 0));
        EXPECT(c, version == c->keys->version[i]);
    }
}

/* Order, and values whole, in both directions, until the writers are done. */
static void
scanner(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    struct bt_cursor *cursor;
    uint8_t last[COHORT_KEY_MAX];
    int rc = bt_cursor_create(&c->rig->bt, &cursor);

    EXPECT(c, rc == 0);
    for (unsigned round = 0; rc == 0 && !atomic_load_explicit(&c->stop, memory_order_relaxed);
         round++) {
        bool back = round % 2 != 0;
        struct bt_slice key, value, before = {last, SIZE_MAX};

        rc = bt_seek(cursor, back ? BT_LAST : BT_FIRST, (struct bt_slice){NULL, 0});
        while (rc == 0) {
            EXPECT(c, bt_entry(cursor, &key, &value) && value.bytes >= 4);
            if (before.bytes != SIZE_MAX)
                EXPECT(c, back ? node_compare(key, before) < 0 : node_compare(key, before) > 0);
            memcpy(last, key.data, key.bytes);
            before.bytes = key.bytes;
            rc = back ? bt_prev(cursor) : bt_next(cursor);
        }
        EXPECT(c, rc == COHORT_NOTFOUND);
        rc = 0;
    }
    bt_cursor_destroy(cursor);
}

static void
run(struct zt *t, struct crew *c, struct worker *ws, unsigned n, void (*fn)(void *), unsigned first)
{
    for (unsigned i = 0; i < n; i++) {
        ws[i].crew = c;
        ws[i].number = first + i;
        ch_prng_init(&ws[i].rng, t->seed * 31 + first + i);
        ZT_OK(t, rt_spawn(&ws[i].thread, "worker", fn, &ws[i]));
    }
}

/* Goal: writers on keys of their own never disturb each other, though they share leaves, splits and
 * merges; scans stay in order meanwhile. */
static void
test_own_keys(struct zt *t)
{
    struct rig_options o = {.frames = 512, .log_megabytes = 64, .background = true};
    struct worker ws[WRITERS], scan[1];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, t->seed % 2 == 0 ? KEYS_DECIMAL : KEYS_MIXED, OWN_KEYS, 200);
    run(t, &c, scan, 1, scanner, WRITERS);
    run(t, &c, ws, WRITERS, own_keys, 0);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    atomic_store_explicit(&c.stop, true, memory_order_relaxed);
    rt_join(&scan[0].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- shared keys: insert is exclusive ---- */

/* INSERT and DEL of a few keys; each success takes or gives a token that one thread holds. */
static void
token_taker(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    for (uint32_t step = 1; step <= OPS; step++) {
        unsigned i = (unsigned)ch_prng_below(&w->rng, 40);
        uint32_t version = 0;
        int rc = put(c, i, w->number + 1, BT_INSERT);

        if (rc == COHORT_EXISTS)
            continue;
        EXPECT(c, rc == 0);
        rc = bt_get(&c->rig->bt, key_slice(c->keys, i), copy_version, &version);
        EXPECT(c, rc == 0 && version == w->number + 1);
        EXPECT(c, put(c, i, 0, BT_DEL) == 0);
    }
}

static void
test_shared_keys(struct zt *t)
{
    struct rig_options o = {.log_megabytes = 64, .background = true};
    struct worker ws[WRITERS];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 40, 1500);
    run(t, &c, ws, WRITERS, token_taker, 0);
    for (unsigned i = 0; i < WRITERS; i++)
        rt_join(&ws[i].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    rig_compare(&r, &k);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- batches are atomic ---- */

/* Each round one batch puts the round's number under all keys of the group. */
static void
group_writer(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;
    uint8_t values[GROUP][COHORT_ENTRY_MAX];
    struct bt_op ops[GROUP];
    lsn_t lsn;

    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (unsigned i = 0; i < GROUP; i++) {
            unsigned key = (i * (c->keys->n / GROUP)) | 1;

            ops[i] = (struct bt_op){BT_PUT, key_slice(c->keys, key),
                                    key_value(c->keys, key, round, values[i])};
        }
        EXPECT(c, bt_write_batch(&c->rig->bt, ops, GROUP, &lsn) == 0);
    }
    atomic_store_explicit(&c->stop, true, memory_order_relaxed);
}

/* Reads the group in ascending or descending order: what is read later is never older. */
static void
group_reader(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        bool back = ch_prng_below(&w->rng, 2) == 0;
        uint32_t before = 0;

        for (unsigned i = 0; i < GROUP; i++) {
            unsigned key = ((back ? GROUP - 1 - i : i) * (c->keys->n / GROUP)) | 1;
            uint32_t version = 0;
            int rc = bt_get(&c->rig->bt, key_slice(c->keys, key), copy_version, &version);

            EXPECT(c, rc == 0 || (rc == COHORT_NOTFOUND && before == 0));
            EXPECT(c, version >= before);
            before = version;
        }
    }
}

/* Even keys come and go, so that the group's leaves split and merge. */
static void
disturber(void *arg)
{
    struct worker *w = arg;
    struct crew *c = w->crew;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        unsigned i = (unsigned)ch_prng_below(&w->rng, c->keys->n) & ~1U;
        int rc = put(c, i, 1, ch_prng_below(&w->rng, 2) == 0 ? BT_PUT : BT_DEL);

        EXPECT(c, rc == 0 || rc == COHORT_NOTFOUND);
    }
}

/* Goal: a batch over many leaves is seen whole, and gets through beside structure changes without a
 * deadlock. */
static void
test_batch_atomic(struct zt *t)
{
    struct rig_options o = {
        .frames = 1024, .log_megabytes = 96, .megabytes = 256, .background = true};
    struct worker writer[1], reader[1], noise[1];
    struct rig r;
    struct keys k;
    struct crew c = {.rig = &r, .keys = &k};

    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 1200, 800);
    run(t, &c, noise, 1, disturber, 0);
    run(t, &c, reader, 1, group_reader, 1);
    run(t, &c, writer, 1, group_writer, 2);
    rt_join(&writer[0].thread);
    rt_join(&reader[0].thread);
    rt_join(&noise[0].thread);
    ZT_CHECK(t, atomic_load_explicit(&c.bad, memory_order_relaxed) == 0);
    (void)rig_check(&r);
    for (unsigned i = 0; i < GROUP; i++)
        ZT_CHECK(t, rig_get(&r, &k, (i * (k.n / GROUP)) | 1) == ROUNDS);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"own_keys", test_own_keys, 4},
        {"shared_keys", test_shared_keys, 3},
        {"batch_atomic", test_batch_atomic, 3},
    };

    return zt_main(argc, argv, "btree_threads", cases, CH_ARRAY_LEN(cases));
}
