/* churn_test.c - trees that come and go: nothing of them stays, however many there were and whatever else goes on.
 */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TREES = 10000,
    LOOK = 2000,
    BIG = 8000, /* records of about 500 bytes */
    HOT = 200,
    WAIT_MS = 60000,
};

static void
settled(struct iso *w, struct cohort_stats *s)
{
    iso_check(w); /* sweeps */
    ZT_OK(w->t, cohort_checkpoint(w->db));
    iso_stats(w, s);
}

/* Creates, writes, drops; in one transaction, in several, or in one that is aborted. */
static void
come_and_go(struct iso *w, uint32_t i)
{
    static uint8_t large[5000];
    char name[32];
    cohort_tree *tree = NULL;
    cohort_txn *a = NULL;

    (void)snprintf(name, sizeof(name), "tree %u", i % 7);
    if (i % 3 != 0)
        a = iso_snapshot(w);
    ZT_OK(w->t, cohort_tree_open(w->db, a, name, COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE, NULL,
                                 &tree));
    if (a == NULL) {
        ZT_OK(w->t, cohort_tree_put(tree, K("k"), large, i % 9 == 0 ? sizeof(large) : 20));
        ZT_OK(w->t, cohort_tree_drop(w->db, NULL, name, 0));
    } else {
        ZT_OK(w->t, cohort_txn_put(a, tree, K("k"), large, i % 9 == 1 ? sizeof(large) : 20));
        if (i % 3 == 1)
            ZT_OK(w->t, cohort_tree_drop(w->db, a, name, 0));
        ZT_OK(w->t, i % 3 == 1 ? cohort_commit(a) : cohort_abort(a));
    }
    cohort_tree_close(tree);
}

/* Goal: 10,000 trees, one after the other: no page, no memory, no version, no note of them is left. */
static void
test_trees(struct zt *t)
{
    const char *const settings[] = {
        "background", t->seed % 2 == 0 ? "no" : "yes", "durability", "none", "lock_timeout_ms", "0",
        NULL,
    };
    struct cohort_stats first = {0}, s;
    struct iso w;

    iso_create(t, &w, 32, settings);
    for (uint32_t i = 0; i < TREES; i++) {
        come_and_go(&w, i);
        if (i % LOOK != LOOK - 1)
            continue;
        settled(&w, &s);
        if (i < LOOK)
            first = s;
        ZT_CHECK(t, s.trees == 0 && s.version_entries == 0 && s.version_bytes == 0);
        ZT_CHECK(t, s.pages <= first.pages + 2); /* the list of ids has a key that grows */
        ZT_CHECK(t, s.metadata_bytes <= first.metadata_bytes + (64 << 10));
    }
    iso_crash_and_open(&w);
    settled(&w, &s);
    ZT_CHECK(t, s.trees == 0 && s.pages <= first.pages + 2);
    iso_destroy(&w);
}

/* Puts hot records of the main tree until it is told to stop, by c->number. */
static _Atomic bool stop_writing; /* relaxed: a flag, nothing else */
static void
write_on(struct iso_call *c)
{
    uint8_t value[100] = {0};
    char key[16];

    for (uint32_t i = 0; !atomic_load_explicit(&stop_writing, memory_order_relaxed); i++) {
        (void)snprintf(key, sizeof(key), "hot %u", i % HOT);
        ch_put32(value, i);
        c->rc = cohort_put(c->w->db, K(key), value, sizeof(value));
        if (c->rc != 0)
            return;
        c->number++;
    }
}

/* Goal: the space of a large tree comes back while others write without pause, and what they leave stays bounded. */
static void
test_under_load(struct zt *t)
{
    static const char *const settings[] = {"durability", "none", "lock_timeout_ms", "1000", NULL};
    struct cohort_stats before, with, s;
    struct iso_call calls[2];
    cohort_tree *tree;
    cohort_txn *a = NULL;
    struct iso w;
    uint64_t deadline;

    iso_create(t, &w, 64, settings);
    settled(&w, &before);
    tree = iso_tree(&w, "big");
    for (uint32_t i = 0; i < BIG; i++) {
        if (i % 500 == 0)
            a = iso_snapshot(&w);
        ZT_OK(t, iso_put_number(a, tree, i, 1, ISO_VALUE_MAX));
        if (i % 500 == 499)
            ZT_OK(t, cohort_commit(a));
    }
    cohort_tree_close(tree);
    settled(&w, &with);
    ZT_CHECK(t, with.pages > before.pages + 500);
    atomic_store_explicit(&stop_writing, false, memory_order_relaxed);
    for (unsigned i = 0; i < CH_ARRAY_LEN(calls); i++) {
        calls[i] = (struct iso_call){.w = &w, .fn = write_on};
        iso_spawn(&calls[i]);
    }
    ZT_OK(t, cohort_tree_drop(w.db, NULL, "big", 0));
    deadline = rt_now_ns() + WAIT_MS * UINT64_C(1000000);
    do {
        rt_sleep_ns(20 * 1000 * 1000);
        iso_stats(&w, &s);
        ZT_CHECK(t, s.version_entries < 20000);
    } while (s.pages > before.pages + 200 && rt_now_ns() < deadline);
    ZT_CHECK(t, s.pages <= before.pages + 200);
    atomic_store_explicit(&stop_writing, true, memory_order_relaxed);
    for (unsigned i = 0; i < CH_ARRAY_LEN(calls); i++) {
        iso_join(&calls[i]);
        ZT_OK(t, calls[i].rc);
        ZT_CHECK(t, calls[i].number > 0);
    }
    iso_destroy(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"trees", test_trees, 2},
        {"under_load", test_under_load, 1},
    };

    return zt_main(argc, argv, "churn", cases, CH_ARRAY_LEN(cases));
}
