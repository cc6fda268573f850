/* txn_full_test.c - a full device: writers get EFULL, everybody can undo, delete and read, and the space of what is deleted comes
 * back.
 */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX = ISO_VALUE_MAX,
    PER_TXN = 50,
    MANY = 100000, /* more than fit */
    LARGE = 60000,
    GAP = MANY / 4,
};

static const char *const presets[] = {"cohort", "inplace", "oop", "oop+pack"};

static void
full_create(struct zt *t, struct iso *w)
{
    const char *const settings[] = {
        "preset",
        presets[t->seed % CH_ARRAY_LEN(presets)],
        "background",
        zt_below(t, 2) == 0 ? "no" : "yes",
        "durability",
        zt_below(t, 2) == 0 ? "none" : "sync",
        "lock_timeout_ms",
        "0",
        NULL,
    };

    iso_create(t, w, 16, settings);
}

/* Writes numbers from `from` on at `version`, PER_TXN a transaction, until the device is full; the last transaction is aborted.
 * Returns the first number that is not there. */
static uint32_t
fill_up(struct iso *w, cohort_tree *tree, uint32_t from, uint32_t version)
{
    uint32_t n = from;
    int rc = 0;

    while (rc == 0) {
        cohort_txn *a = iso_snapshot(w);
        uint32_t first = n;

        ZT_CHECK(w->t, n < MANY);
        for (; rc == 0 && n < first + PER_TXN; n++)
            rc = iso_put_number(a, tree, n * 7919 % MANY, version, MAX);
        if (rc == 0)
            rc = cohort_commit(a);
        else
            ZT_OK(w->t, cohort_abort(a));
        if (rc != 0)
            n = first;
    }
    ZT_STATUS(w->t, rc, COHORT_EFULL);
    return n;
}

/* Numbers [0, n) are there at `version`, and no others. */
static void
verify(struct iso *w, cohort_txn *txn, cohort_tree *tree, uint32_t n, uint32_t version)
{
    cohort_txn *a = txn != NULL ? txn : iso_snapshot(w);
    struct cohort_value v = {0};
    uint64_t count = 0;
    uint32_t got = 0;

    for (uint32_t i = 0; i < n; i++) {
        ZT_OK(w->t, iso_get_number(a, tree, i * 7919 % MANY, MAX, &v, &got));
        ZT_CHECK(w->t, got == version);
    }
    ZT_OK(w->t, cohort_tree_count(w->db, a, tree, &count));
    ZT_CHECK(w->t, count == n);
    cohort_value_free(&v);
    if (txn == NULL)
        ZT_OK(w->t, cohort_commit(a));
}

static int
del_number(cohort_txn *a, cohort_tree *tree, uint32_t n)
{
    uint32_t k = n * 7919 % MANY;
    const uint8_t key[4] = {(uint8_t)(k >> 24), (uint8_t)(k >> 16), (uint8_t)(k >> 8), (uint8_t)k};

    return cohort_txn_del(a, tree, key, sizeof(key));
}

/* Deletes [from, n), some hundreds a transaction. */
static void
delete_range(struct iso *w, cohort_tree *tree, uint32_t from, uint32_t n)
{
    uint32_t per = 1 + (uint32_t)zt_below(w->t, 400);

    for (uint32_t i = from; i < n;) {
        cohort_txn *a = iso_snapshot(w);

        for (uint32_t end = i + per < n ? i + per : n; i < end; i++)
            ZT_OK(w->t, del_number(a, tree, i));
        ZT_OK(w->t, cohort_commit(a));
    }
}

/* What is not needed is freed, with whoever does it having time. */
static void
settle(struct iso *w)
{
    struct cohort_check_result r;

    iso_check(w);
    ZT_OK(w->t, cohort_checkpoint(w->db));
    ZT_OK(w->t, cohort_check(w->db, NULL, NULL, &r));
    ZT_CHECK(w->t, r.ghosts == 0);
}

/* Goal: the device is filled by transactions, emptied by transactions, and takes as much again, several times. */
static void
test_rounds(struct zt *t)
{
    struct iso w;
    uint32_t first = 0;

    full_create(t, &w);
    for (uint32_t round = 1; round <= 3; round++) {
        uint32_t n = fill_up(&w, NULL, 0, round);

        if (round == 1)
            first = n;
        ZT_CHECK(t, n * 10 >= first * 9);
        verify(&w, NULL, NULL, n, round);
        if (zt_below(t, 2) == 0) {
            if (w.opts.durability != COHORT_DURABILITY_SYNC)
                ZT_OK(t, cohort_sync(w.db));
            iso_crash_and_open(&w);
            verify(&w, NULL, NULL, n, round);
        }
        delete_range(&w, NULL, 0, n);
        settle(&w);
    }
    iso_destroy(&w);
}

/* Goal: large values and whole trees give their space back on a full device. */
static void
test_trees(struct zt *t)
{
    uint8_t *large = malloc(LARGE);
    cohort_tree *tree = NULL;
    struct iso w;
    uint32_t n = 0, m;
    char key[16];
    int rc = 0;

    ZT_CHECK(t, large != NULL);
    ch_prng_fill(&t->rng, large, LARGE);
    full_create(t, &w);
    tree = iso_tree(&w, "a");
    for (; rc == 0 && n < 1000; n++) {
        cohort_txn *a = iso_snapshot(&w);

        (void)snprintf(key, sizeof(key), "l%u", n);
        rc = cohort_txn_put(a, tree, K(key), large, LARGE);
        if (rc == 0)
            rc = cohort_commit(a);
        else
            ZT_OK(t, cohort_abort(a));
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    n--;
    m = fill_up(&w, NULL, 0, 1);
    verify(&w, NULL, NULL, m, 1);
    if (zt_below(t, 2) == 0) {
        cohort_txn *a = iso_snapshot(&w);

        for (uint32_t i = 0; i < n; i++) {
            (void)snprintf(key, sizeof(key), "l%u", i);
            ZT_OK(t, cohort_txn_del(a, tree, K(key)));
        }
        ZT_OK(t, cohort_commit(a));
    } else {
        ZT_OK(t, cohort_tree_drop(w.db, NULL, "a", 0));
    }
    cohort_tree_close(tree);
    settle(&w);
    tree = iso_tree(&w, "b");
    for (uint32_t i = 0; i < n * 3 / 4;
         i++) { /* what the sweeper and GC still hold differs from run to run */
        cohort_txn *a = iso_snapshot(&w);

        (void)snprintf(key, sizeof(key), "l%u", i);
        ZT_OK(t, cohort_txn_put(a, tree, K(key), large, LARGE));
        ZT_OK(t, cohort_commit(a));
        settle(&w);
    }
    cohort_tree_close(tree);
    free(large);
    iso_destroy(&w);
}

/* Goal: what an open transaction has deleted, or made smaller, is not given to others in a way that would leave no room to undo it:
 * it can be aborted however full the device has become meanwhile, by savepoint, abort or recovery. */
static void
test_undo(struct zt *t)
{
    unsigned how = (unsigned)zt_below(t, 4);
    struct iso w;
    cohort_txn *a = NULL;
    uint64_t sp;
    uint32_t n, gone = 0;
    int rc = 0;

    full_create(t, &w);
    n = fill_up(&w, NULL, 0, 1);
    for (uint32_t i = 0; i < n; i++) { /* neighbours, so that leaves go */
        if (i * 7919 % MANY >= GAP)
            continue;
        if (gone++ % 100 == 0)
            a = iso_snapshot(&w);
        ZT_OK(t, del_number(a, NULL, i));
        if (gone % 100 == 0)
            ZT_OK(t, cohort_commit(a));
    }
    if (gone % 100 != 0)
        ZT_OK(t, cohort_commit(a));
    settle(&w);
    a = iso_snapshot(&w);
    ZT_OK(t, cohort_savepoint(a, &sp));
    for (uint32_t i = 0; i < n; i++) {
        if (i * 7919 % MANY < 2 * GAP || i * 7919 % MANY > 2 * GAP + GAP / 3)
            continue;
        if (i % 3 != 0 || iso_put_number(a, NULL, i * 7919 % MANY, 2, 20) == COHORT_EFULL)
            ZT_OK(t, del_number(a, NULL, i)); /* which never needs room of others */
    }
    for (uint32_t i = n; rc == 0 && i < MANY; i += PER_TXN) {
        cohort_txn *b = iso_snapshot(&w);

        for (uint32_t k = i; rc == 0 && k < i + PER_TXN; k++)
            rc = iso_put_number(b, NULL, k * 7919 % MANY, 3, MAX);
        if (rc == 0)
            rc = cohort_commit(b);
        else
            ZT_OK(t, cohort_abort(b));
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    if (how == 0) {
        ZT_OK(t, cohort_rollback_to(a, sp));
        rc = cohort_commit(a); /* its snapshot may have been given up for the sake of others */
        ZT_CHECK(t, rc == 0 || rc == COHORT_SNAPSHOT_TOO_OLD);
    } else if (how == 1) {
        ZT_OK(t, cohort_abort(a));
    } else if (how == 2) {
        rc = cohort_prepare(a, K("gid"));
        ZT_CHECK(t, rc == 0 || rc == COHORT_SNAPSHOT_TOO_OLD);
        iso_crash_and_open(&w);
        ZT_STATUS(t, cohort_abort_prepared(w.db, K("gid")), rc == 0 ? 0 : COHORT_NOTFOUND);
    } else {
        ZT_OK(t, cohort_sync(w.db));
        api_forget(a);
        iso_crash_and_open(&w);
    }
    a = iso_snapshot(&w);
    for (uint32_t i = 0; i < n; i++) {
        struct cohort_value v = {0};
        uint32_t got = 0;

        ZT_OK(t, iso_get_number(a, NULL, i * 7919 % MANY, MAX, &v, &got));
        ZT_CHECK(t, got == (i * 7919 % MANY < GAP ? 0 : 1));
        cohort_value_free(&v);
    }
    ZT_OK(t, cohort_commit(a));
    iso_destroy(&w);
}

/* Goal: a snapshot that stays open while transactions larger than memory commit does not fill the file with their undo for good: when
 * there is no more room it ends with SNAPSHOT_TOO_OLD, what it said until then is right, and writers go on. */
static void
test_reader(struct zt *t)
{
    enum {
        KEYS = 4000
    };
    struct cohort_value v = {0};
    struct cohort_stats s;
    cohort_txn *reader = NULL, *keep[24];
    unsigned kept = 0;
    struct iso w;
    int rc = 0;

    full_create(t, &w);
    for (uint32_t round = 1; round <= 24; round++) {
        cohort_txn *a = iso_snapshot(&w);

        for (uint32_t i = 0; i < KEYS; i++)
            ZT_OK(t, iso_put_number(a, NULL, i, round, MAX));
        ZT_OK(t, cohort_commit(a));
        if (round == 1)
            reader = iso_snapshot(&w);
        for (uint32_t i = 0; rc == 0 && i < KEYS; i += 97) {
            uint32_t got = 0;

            rc = iso_get_number(reader, NULL, i, MAX, &v, &got);
            if (rc == 0)
                ZT_CHECK(t, got == 1);
        }
        ZT_CHECK(t, rc == 0 || rc == COHORT_SNAPSHOT_TOO_OLD);
        if (rc == 0 && round % 2 == 0) { /* another version that is kept */
            cohort_txn *other = iso_snapshot(&w);

            keep[kept++] = other;
        }
    }
    iso_stats(&w, &s);
    ZT_CHECK(t, s.undo_spilled_bytes > 0);
    while (kept > 0)
        ZT_OK(t, cohort_abort(keep[--kept]));
    ZT_OK(t, cohort_abort(reader));
    cohort_value_free(&v);
    iso_destroy(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"rounds", test_rounds, 4},
        {"trees", test_trees, 4},
        {"undo", test_undo, 8},
        {"reader", test_reader, 4},
    };

    return zt_main(argc, argv, "txn_full", cases, CH_ARRAY_LEN(cases));
}
