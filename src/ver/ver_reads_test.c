/* ver_reads_test.c - serializable: sets of ranges, validation, guards. */
#include <stdlib.h>

#include "rt/rt.h"
#include "ver/ver_internal.h"
#include "ver/ver_test_rig.h"

enum {
    TREES = 3,
    POINTS = 400, /* keys of a tree in the model */
};

static void
add(struct zt *t, struct ver_reads *r, uint32_t tree, int from, int to)
{
    char a[RIG_KEY], b[RIG_KEY];
    struct ver_key x = rig_key(tree, from < 0 ? 0 : (unsigned)from, a);
    struct ver_key y = rig_key(tree, to < 0 ? 0 : (unsigned)to, b);

    ZT_OK(t, ver_reads_add(r, tree, from < 0 ? NULL : &x, to < 0 ? NULL : &y));
}

static bool
hit(const struct ver_reads *r, uint32_t tree, unsigned i)
{
    char k[RIG_KEY];

    return ver_reads_hit(r, rig_key(tree, i, k));
}

/* Goal (D1): a set of few ranges holds exactly what was added, in whatever order. */
static void
test_ranges_exact(struct zt *t)
{
    bool want[TREES][POINTS] = {{false}};
    struct ver_reads *r;

    ZT_OK(t, ver_reads_create(&r));
    for (unsigned n = 0; n < 300; n++) {
        unsigned tree = (unsigned)zt_below(t, TREES);
        int from = (int)zt_below(t, POINTS);
        int to = zt_below(t, 2) == 0 ? from : from + (int)zt_below(t, 6);

        if (to >= POINTS)
            to = POINTS - 1;
        add(t, r, tree, from, to);
        for (int i = from; i <= to; i++)
            want[tree][i] = true;
        if (n % 50 == 0 && n > 200) {
            add(t, r, 2, -1, from);
            for (int i = 0; i <= from; i++)
                want[2][i] = true;
        }
        if (n % 10 == 0) {
            for (unsigned x = 0; x < TREES * POINTS; x++)
                ZT_CHECK(t, hit(r, x / POINTS, x % POINTS) == want[x / POINTS][x % POINTS]);
        }
    }
    add(t, r, 1, 390, -1);
    ZT_CHECK(t, hit(r, 1, 390) && hit(r, 1, 999999) && !hit(r, 7, 391));
    add(t, r, 7, -1, -1);
    ZT_CHECK(t, hit(r, 7, 391) && hit(r, 7, 0) && !hit(r, 8, 0));
    ver_reads_destroy(r);
}

/* Goal (D2): however much is read, nothing is forgotten, and other trees are not dragged in; with too many trees
 * everything is. */
static void
test_ranges_bounded(struct zt *t)
{
    enum {
        MANY = 40000
    };
    struct ver_reads *r;

    ZT_OK(t, ver_reads_create(&r));
    add(t, r, 9, 5, 5);
    for (unsigned i = 0; i < MANY; i++)
        add(t, r, 1 + i % 2, (int)(i * 7919 % MANY), (int)(i * 7919 % MANY));
    for (unsigned i = 0; i < MANY; i++)
        ZT_CHECK(t, hit(r, 1 + i % 2, i * 7919 % MANY));
    ZT_CHECK(t, hit(r, 9, 5) && !hit(r, 9, 4) && !hit(r, 9, 6) && !hit(r, 3, 5));
    ZT_CHECK(t, !hit(r, 1, MANY + 5));
    for (unsigned i = 0; i < 10000; i++)
        add(t, r, 100 + i, 5, 5);
    ZT_CHECK(t, hit(r, 100, 5) && hit(r, 10099, 5) && hit(r, 50, 0));
    add(t, r, 9, 5, 5);
    ver_reads_destroy(r);
}

/* Goal: a write, an insert into a range read (phantom), or a delete after the view is a conflict, visible or
 * not; earlier ones, locks, other keys and undone writes are not. */
static void
test_validate(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_reads *r;
    struct rig_txn x, me;
    lsn_t upto = 0;
    char k[RIG_KEY];

    rig_single(t, v, rig_key(1, 10, k), 5, 1100);
    rig_begin(t, v, &me, 1100);
    ZT_OK(t, ver_reads_create(&r));
    add(t, r, 1, 10, 20);
    ZT_OK(t, ver_validate(v, &me.view, r, false, &upto));
    rig_begin(t, v, &x, 1100);
    rig_lock(t, v, x.w, rig_key(1, 11, k));
    (void)rig_push(t, v, x.w, rig_key(1, 21, k), 5, 1110);
    (void)rig_push(t, v, x.w, rig_key(2, 12, k), 5, 1110);
    (void)rig_push(t, v, x.w, rig_key(1, 12, k), 5, 1110);
    ver_entry_pop(v, ver_newest(x.w));
    ZT_OK(t, ver_validate(v, &me.view, r, false, &upto));
    rig_commit(v, x.w, 1200, true);
    ZT_OK(t, ver_validate(v, &me.view, r, false, &upto)); /* with the lock in its list */
    ZT_CHECK(t, upto == 1200 && ver_advance(v, 1200) == 1200);
    rig_close(v, &x);
    rig_begin(t, v, &x, 1200);
    (void)rig_push(t, v, x.w, rig_key(1, 15, k), 0, 1210); /* a phantom, not visible */
    rig_commit(v, x.w, 1300, true);
    ver_commit_lock(v);
    ZT_STATUS(t, ver_validate(v, &me.view, r, true, &upto), COHORT_CONFLICT);
    ver_commit_unlock(v);
    upto = 0;
    ZT_STATUS(t, ver_validate(v, &me.view, r, false, &upto), COHORT_CONFLICT);
    ZT_CHECK(t, ver_advance(v, 2000) == 1300);
    rig_close(v, &x);
    ver_view_refresh(v, &me.view);
    upto = 0;
    ZT_OK(t, ver_validate(v, &me.view, r, false, &upto));
    ver_reads_destroy(r);
    rig_abort(v, &me);
    ver_destroy(v);
}

/* Goal (P3): pruning between the commits never hides a conflict: a record that was written n times after a view, with
 * all but one version gone, still conflicts. */
static void
test_validate_pruned(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_view view, old;
    struct ver_reads *r, *other;
    struct ver_counts c;
    lsn_t upto = 0;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &old));
    rig_single(t, v, rig_key(1, 1, k), 5, 1100);
    ZT_OK(t, ver_view_open(v, &view));
    for (unsigned i = 0; i < 3000; i++) {
        rig_single(t, v, rig_key(1, 1, k), 5, 1200 + 20 * i);
        rig_single(t, v, rig_key(1, 2, k), 5, 1210 + 20 * i);
        rig_single(t, v, rig_key(1, 100 + i, k), 5, 1215 + 20 * i);
    }
    while (ver_trim(v, 100))
        ;
    ver_counts(v, &c);
    ZT_CHECK(t, c.entries == 3000 + 2 + 1);
    ZT_OK(t, ver_reads_create(&r));
    ZT_OK(t, ver_reads_create(&other));
    add(t, r, 1, 1, 1);
    add(t, other, 1, 3, 4);
    ZT_STATUS(t, ver_validate(v, &view, r, false, &upto), COHORT_CONFLICT);
    upto = 0;
    ZT_OK(t, ver_validate(v, &view, other, false, &upto));
    add(t, other, 1, 2000, 2000);
    ZT_OK(t, ver_validate(v, &view, other, false, &upto)); /* up to there it was checked */
    upto = 0;
    ZT_STATUS(t, ver_validate(v, &view, other, false, &upto), COHORT_CONFLICT);
    ver_reads_destroy(r);
    ver_reads_destroy(other);
    ver_view_close(v, &view);
    ver_view_close(v, &old);
    ver_destroy(v);
}

/* Goal: nobody but its owner commits into what a prepared transaction has read. */
static void
test_guards(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_reads *r, *r2;
    struct rig_txn a, b;
    struct ver_key key;
    char k[RIG_KEY];

    rig_begin(t, v, &a, 1000);
    rig_begin(t, v, &b, 1000);
    ver_commit_lock(v);
    ZT_OK(t, ver_guarded(v, b.w, NULL));
    ZT_OK(t, ver_reads_create(&r));
    ZT_OK(t, ver_reads_create(&r2));
    add(t, r, 1, 10, 20);
    ZT_OK(t, ver_guard(v, ver_txn_id(a.w), r));
    ZT_OK(t, ver_guard(v, 99, r2));
    (void)rig_push(t, v, a.w, rig_key(1, 15, k), 5, 1010);
    ZT_OK(t, ver_guarded(v, a.w, NULL));
    rig_lock(t, v, b.w, rig_key(1, 16, k));
    (void)rig_push(t, v, b.w, rig_key(1, 21, k), 5, 1020);
    ZT_OK(t, ver_guarded(v, b.w, NULL));
    (void)rig_push(t, v, b.w, rig_key(1, 20, k), 5, 1020);
    ZT_STATUS(t, ver_guarded(v, b.w, NULL), COHORT_CONFLICT);
    key = rig_key(1, 10, k);
    ZT_STATUS(t, ver_guarded(v, NULL, &key), COHORT_CONFLICT);
    key = rig_key(1, 9, k);
    ZT_OK(t, ver_guarded(v, NULL, &key));
    ver_unguard(v, ver_txn_id(a.w));
    ver_unguard(v, ver_txn_id(a.w));
    ZT_OK(t, ver_guarded(v, b.w, NULL));
    ver_commit_unlock(v);
    rig_abort(v, &a);
    rig_abort(v, &b);
    ver_destroy(v); /* with a guard left */
}

/* Goal: a killed view is told so, whatever it has read. */
static void
test_validate_dead(struct zt *t)
{
    struct ver *v = rig_ver(t, 4000);
    struct ver_reads *r;
    struct ver_view view;
    lsn_t upto = 0;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &view));
    ZT_OK(t, ver_reads_create(&r));
    add(t, r, 1, 1000, 1000);
    for (unsigned i = 0; i < 100; i++) {
        rig_single(t, v, rig_key(1, i, k), 5, 1100 + 10 * i);
        (void)ver_relieve(v);
    }
    ZT_CHECK(t, ver_view_dead(v, &view));
    ZT_STATUS(t, ver_validate(v, &view, r, false, &upto), COHORT_SNAPSHOT_TOO_OLD);
    ver_reads_destroy(r);
    ver_view_close(v, &view);
    ver_destroy(v);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"ranges_exact", test_ranges_exact, 40},  {"ranges_bounded", test_ranges_bounded, 1},
        {"validate", test_validate, 1},           {"validate_pruned", test_validate_pruned, 1},
        {"validate_dead", test_validate_dead, 1}, {"guards", test_guards, 1},
    };

    return zt_main(argc, argv, "ver_reads", cases, CH_ARRAY_LEN(cases));
}
