/* ver_rules_test.c - the version store rule by rule: what the model of ver_test.c does not reach. */
#include <stdlib.h>

#include "rt/rt.h"
#include "ver/ver_test_rig.h"

static enum ver_how
how(struct ver *v, const struct ver_view *view, struct ver_key key)
{
    struct ver_found f;

    ver_read(v, view, key, &f);
    return f.how;
}

static uint64_t
entries(struct ver *v)
{
    struct ver_counts c;

    ver_counts(v, &c);
    return c.entries;
}

/* Goal (Q2): the horizon moves over commits in their order, over a durable one when the log is. */
static void
test_queue_order(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct rig_txn x[5];
    static const bool durable[] = {false, true, false, true, false};
    char k[RIG_KEY];

    for (unsigned i = 0; i < 5; i++) {
        rig_begin(t, v, &x[i], 1000);
        (void)rig_push(t, v, x[i].w, rig_key(1, i, k), 7, 1100 + i);
    }
    for (unsigned i = 0; i < 5; i++)
        rig_commit(v, x[i].w, 1200 + 10 * i, durable[i]);
    ZT_CHECK(t, ver_horizon(v) == 1200);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 0, k)) == VER_CURRENT);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 1, k)) == VER_VALUE);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 2, k)) == VER_VALUE); /* waits behind it */
    ZT_CHECK(t, ver_advance(v, 1209) == 1200);
    ZT_CHECK(t, ver_advance(v, 1210) == 1220);
    ZT_CHECK(t, ver_advance(v, 1150) == 1220);
    ZT_CHECK(t, ver_advance(v, 1300) == 1240);
    for (unsigned i = 0; i < 5; i++)
        rig_close(v, &x[i]);
    rig_begin(t, v, &x[0], 1300);
    rig_commit(v, x[0].w, 1300, true); /* durable already, and it wrote nothing */
    ZT_CHECK(t, ver_horizon(v) == 1300);
    rig_close(v, &x[0]);
    ver_recovered(v, 5000);
    ver_raise_id(v, 90);
    ver_raise_id(v, 30);
    ZT_CHECK(t, ver_horizon(v) == 5000 && ver_next_id(v) == 91 && ver_new_id(v) == 91);
    ver_destroy(v);
}

/* Goal (R1): a view's fast bound lies below every registered writer, and rises once they are gone. */
static void
test_fast(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct rig_txn x;
    struct ver_view a, b;
    char k[RIG_KEY];

    rig_begin(t, v, &x, 1050);
    (void)rig_push(t, v, x.w, rig_key(1, 1, k), 7, 1060);
    rig_single(t, v, rig_key(1, 2, k), 7, 1100);
    ZT_OK(t, ver_view_open(v, &a));
    ZT_CHECK(t, a.horizon == 1100 && a.fast == 1050);
    ZT_CHECK(t, ver_fast(v, &a, 1050) && !ver_fast(v, &a, 1060));
    ZT_CHECK(t, ver_fast(v, NULL, 1050) && !ver_fast(v, NULL, 1060));
    rig_commit(v, x.w, 1110, false);
    ZT_CHECK(t, !ver_fast(v, NULL, 1060)); /* until it is unregistered */
    ver_unregister(v, x.view.slot);
    ver_unregister(v, x.view.slot);
    ZT_CHECK(t, ver_fast(v, NULL, 1110) && !ver_fast(v, NULL, 1111));
    ZT_OK(t, ver_view_open(v, &b));
    ZT_CHECK(t, b.horizon == 1110 && b.fast == 1110 && a.fast == 1050);
    ver_view_refresh(v, &a);
    ZT_CHECK(t, a.fast == 1110);
    ver_view_close(v, &a);
    ver_view_close(v, &b);
    ver_view_close(v, &x.view);
    /* A writer's own refreshed view passes over itself, not over others (W3). */
    rig_begin(t, v, &x, 1110);
    rig_single(t, v, rig_key(1, 2, k), 7, 1200);
    ver_view_refresh(v, &x.view);
    ZT_CHECK(t, x.view.horizon == 1200 && x.view.fast == 1200);
    rig_abort(v, &x);
    ver_destroy(v);
}

/* Goal: as many views as there are slots, then EBUSY; the lowest free slot is used again. */
static void
test_slots(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_view views[70], more;

    for (unsigned i = 0; i < 70; i++) {
        ZT_OK(t, ver_view_open(v, &views[i]));
        ZT_CHECK(t, views[i].slot == i);
    }
    ZT_STATUS(t, ver_view_open(v, &more), COHORT_EBUSY);
    ver_view_close(v, &views[66]);
    ver_view_close(v, &views[3]);
    ZT_OK(t, ver_view_open(v, &more));
    ZT_CHECK(t, more.slot == 3);
    ZT_OK(t, ver_view_open(v, &views[3]));
    ZT_CHECK(t, views[3].slot == 66);
    ZT_STATUS(t, ver_view_open(v, &views[66]), COHORT_EBUSY);
    ver_destroy(v);
}

/* Goal: a writer whom nobody reads leaves nothing behind, and his memory stays small as he goes; a reader that stays
 * keeps one version of each record and no more. */
static void
test_trims_as_it_goes(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 30);
    struct ver_counts c;
    struct ver_view old, newer;
    uint64_t max = 0;
    lsn_t lsn = 1000;
    char k[RIG_KEY];

    for (unsigned i = 0; i < 5000; i++) {
        rig_single(t, v, rig_key(1, i % 10, k), i, lsn += 10);
        max = ch_max_u64(max, entries(v));
    }
    ZT_CHECK(t, max <= 2);
    ZT_OK(t, ver_view_open(v, &old));
    for (unsigned i = 0; i < 5000; i++) {
        struct ver_txn *w;

        ZT_OK(t, ver_txn_create(v, 0, NULL, VER_NO_SLOT, 0, &w));
        ver_commit_lock(v);
        for (unsigned n = 0; n < 3; n++)
            (void)rig_push(t, v, w, rig_key(1, (i + n) % 10, k), 1 + i + n, lsn += 10);
        rig_lock(t, v, w, rig_key(1, 5000, k));
        ver_commit_end(v, w, lsn, false);
        max = ch_max_u64(max, entries(v));
        if (i == 2500)
            ZT_OK(t, ver_view_open(v, &newer));
    }
    ZT_CHECK(t, max <= 2 * 10 + 8);
    for (unsigned i = 0; i < 10; i++)
        ZT_CHECK(t, how(v, &old, rig_key(1, i, k)) == VER_VALUE &&
                        how(v, &newer, rig_key(1, i, k)) == VER_VALUE);
    ver_counts(v, &c);
    ZT_CHECK(t, c.bytes < 64 << 10 && c.views == 2);
    ver_view_close(v, &old);
    ver_view_close(v, &newer);
    ZT_CHECK(t, !ver_trim(v, 1000) && entries(v) == 0);
    ver_destroy(v);
}

/* Goal: a writer with more entries than a step takes is pruned in part, then trimmed from the head, in any mix. */
static void
test_trims_huge(struct zt *t)
{
    enum {
        HUGE = 40000
    };
    struct ver *v = rig_ver(t, 1 << 30);
    size_t memory = ver_memory(v);
    struct ver_view old, mid;
    struct ver_txn *w;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &old));
    ZT_OK(t, ver_txn_create(v, 1, NULL, VER_NO_SLOT, 0, &w));
    for (unsigned i = 0; i < HUGE; i++) {
        if (i % 2 == 0)
            rig_lock(t, v, w, rig_key(1, i, k));
        else
            (void)rig_push(t, v, w, rig_key(1, i, k), 9, 1100);
    }
    ZT_CHECK(t, ver_memory(v) > memory); /* tables grow .. */
    rig_commit(v, w, 2000000, false);
    for (unsigned i = 0; i < zt_below(t, 12); i++)
        ZT_CHECK(t, ver_trim(v, 100));
    ZT_CHECK(t, entries(v) < HUGE && how(v, &old, rig_key(1, HUGE - 1, k)) == VER_VALUE);
    ZT_OK(t, ver_view_open(v, &mid));
    ver_view_close(v, &old);
    ZT_CHECK(t, ver_trim(v, 1));
    rig_single(t, v, rig_key(1, 1, k), 4, 2000010);
    rig_single(t, v, rig_key(1, 1, k), 4, 2000020);
    while (ver_trim(v, 1 + (unsigned)zt_below(t, 300)))
        ;
    ZT_CHECK(t, entries(v) == 1 && ver_memory(v) < 2 * memory); /* .. and shrink */
    ver_view_close(v, &mid);
    ZT_CHECK(t, !ver_trim(v, 9) && entries(v) == 0);
    ver_destroy(v);
}

/* Goal (R15): over the bound the oldest views are killed, no more than needed; images of live writers are not
 * what they are killed for. */
static void
test_relief(struct zt *t)
{
    struct ver *v = rig_ver(t, 64 << 10);
    struct ver_view views[3];
    struct ver_counts c;
    struct rig_txn x;
    lsn_t lsn = 1000;
    unsigned i;
    char k[RIG_KEY];

    for (unsigned n = 0; n < 3; n++) {
        ZT_OK(t, ver_view_open(v, &views[n]));
        for (i = 0; i < 40; i++)
            rig_single(t, v, rig_key(1, 1000 * n + i, k), 9, lsn += 10);
    }
    ZT_CHECK(t, !ver_relieve(v));
    for (i = 0; !ver_view_dead(v, &views[0]); i++) {
        ZT_CHECK(t, i < 1000);
        rig_single(t, v, rig_key(1, 10000 + i, k), 9, lsn += 10);
        ZT_CHECK(t, !ver_relieve(v));
        ver_counts(v, &c);
        ZT_CHECK(t, c.bytes <= 64 << 10);
    }
    ver_counts(v, &c);
    ZT_CHECK(t, c.killed >= 1 && how(v, &views[0], rig_key(1, 1, k)) == VER_TOO_OLD);
    ver_view_refresh(v, &views[0]);
    ZT_CHECK(t, !ver_view_dead(v, &views[0]) && how(v, &views[0], rig_key(1, 1, k)) == VER_CURRENT);
    for (unsigned n = 0; n < 3; n++)
        ver_view_close(v, &views[n]);
    rig_begin(t, v, &x, lsn);
    ZT_OK(t, ver_view_open(v, &views[0]));
    rig_single(t, v, rig_key(2, 1, k), 9, lsn += 10); /* held by both views */
    for (i = 0; !ver_relieve(v); i++)
        (void)rig_push(t, v, x.w, rig_key(1, i, k), 3 * i + 3, lsn += 10);
    ZT_CHECK(t, i < 300 && !ver_view_dead(v, &views[0]));
    for (struct ver_entry *e; (e = ver_oldest_unspilled(x.w)) != NULL;)
        ver_entry_spilled(v, e, true);
    ZT_CHECK(t, !ver_relieve(v));
    ver_view_close(v, &views[0]);
    rig_abort(v, &x);
    ver_destroy(v);
}

/* Goal: spilled images are read from the undo tree, and only those that were given back; counts; the part of a committed
 * transaction is reported when no view needs it. */
static void
test_spill(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_entry *e[6];
    struct ver_found f;
    struct ver_view old;
    struct ver_undo u;
    struct rig_txn x;
    uint64_t id;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &old));
    rig_begin(t, v, &x, 1000);
    for (unsigned i = 0; i < 6; i++)
        e[i] = rig_push(t, v, x.w, rig_key(1, i, k), 3 + i % 2, 1100 + i); /* even ones are long */
    id = ver_txn_id(x.w);
    ZT_CHECK(t, ver_unspilled_bytes(v) <= ver_txn_unspilled_bytes(x.w) &&
                    ver_txn_unspilled_bytes(x.w) <= ver_unspilled_bytes(v) + VER_LAG_MAX);
    for (unsigned i = 0; i < 4; i++) {
        ZT_CHECK(t, ver_oldest_unspilled(x.w) == e[i]);
        ver_entry_spilled(v, e[i], i != 2);
    }
    ver_entry_info(e[0], &u);
    ZT_CHECK(t, u.spilled && u.before == NULL && u.before_bytes > 0 && u.seq == 1);
    ver_entry_pop(v, e[5]);
    ver_entry_pop(v, e[4]);
    ZT_CHECK(t, ver_oldest_unspilled(x.w) == NULL && ver_unspilled_bytes(v) == 0);
    ver_entry_pop(v, e[3]);
    e[3] = rig_push(t, v, x.w, rig_key(1, 3, k), 4, 1110);
    ZT_CHECK(t, ver_oldest_unspilled(x.w) == e[3] && ver_newer(e[2]) == e[3]);
    ZT_CHECK(t, ver_txn_seq(x.w) == 7 && ver_entry_seq(e[3]) == 7);
    ver_read(v, &old, rig_key(1, 0, k), &f);
    ZT_CHECK(t, f.how == VER_SPILLED && f.txn == id && f.seq == 1);
    ver_read(v, &old, rig_key(1, 2, k), &f);
    ZT_CHECK(t, f.how == VER_VALUE && rig_value_is(3, f.data, f.bytes));
    ver_entry_spilled(v, e[2], true); /* later */
    ver_read(v, &old, rig_key(1, 2, k), &f);
    ZT_CHECK(t, f.how == VER_SPILLED && f.seq == 3);
    ver_read(v, &old, rig_key(1, 1, k), &f); /* too small to be given back */
    ZT_CHECK(t, f.how == VER_VALUE && rig_value_is(4, f.data, f.bytes));
    rig_commit(v, x.w, 1200, false);
    rig_close(v, &x);
    ZT_CHECK(t, ver_unspilled_bytes(v) == 0);
    (void)ver_trim(v, 100);
    ZT_CHECK(t, !ver_take_cleanup(v, &id) && how(v, &old, rig_key(1, 0, k)) == VER_SPILLED);
    ver_view_close(v, &old);
    (void)ver_trim(v, 100);
    ZT_CHECK(t, ver_take_cleanup(v, &id) && id == 1 && !ver_take_cleanup(v, &id));
    ver_destroy(v);
}

/* Goal: a prepared transaction that recovery restores holds its records, hides its writes, and ends either way. */
static void
test_restore(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_owner owner;
    struct ver_found f;
    struct rig_txn x;
    uint64_t id;
    bool again;
    char k[RIG_KEY];

    rig_begin(t, v, &x, 900);
    ver_view_release(v, &x.view);
    ZT_OK(t, ver_entry_restore(v, x.w, rig_key(1, 1, k), VER_WAS_VALUE, 4));
    ZT_OK(t, ver_entry_restore(v, x.w, rig_key(1, 2, k), VER_WAS_ABSENT, 6));
    ZT_OK(t, ver_entry_restore(v, x.w, rig_key(1, 3, k), VER_WAS_LOCK, 9));
    ver_recovered(v, 2000);
    ZT_CHECK(t, ver_oldest_unspilled(x.w) == NULL && ver_txn_seq(x.w) == 9);
    for (unsigned i = 1; i <= 3; i++) {
        ZT_CHECK(t,
                 ver_may_write(v, NULL, NULL, rig_key(1, i, k), &owner, &again) == COHORT_ERETRY);
        ZT_CHECK(t, owner.id == ver_txn_id(x.w) && owner.tag == &x);
    }
    ver_read(v, NULL, rig_key(1, 1, k), &f);
    ZT_CHECK(t, f.how == VER_SPILLED && f.txn == ver_txn_id(x.w) && f.seq == 4);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 2, k)) == VER_ABSENT);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 3, k)) == VER_CURRENT);
    ZT_CHECK(t, !ver_fast(v, NULL, 950) && ver_fast(v, NULL, 900));
    rig_commit(v, x.w, 2100, false);
    ZT_CHECK(t, how(v, NULL, rig_key(1, 1, k)) == VER_CURRENT);
    rig_close(v, &x);
    (void)ver_trim(v, 100);
    ZT_CHECK(t, ver_take_cleanup(v, &id) && entries(v) == 0);
    ver_destroy(v);
}

static void
expect_ghost(struct zt *t, struct ver *v, unsigned i)
{
    uint8_t key[COHORT_KEY_MAX];
    struct ver_key want;
    uint32_t tree = 0;
    size_t bytes = 0;
    char k[RIG_KEY];

    want = rig_key(1, i, k);
    if (i == 0) {
        ZT_CHECK(t, !ver_take_ghost(v, &tree, key, &bytes));
        return;
    }
    ZT_CHECK(t, ver_take_ghost(v, &tree, key, &bytes));
    ZT_CHECK(t, tree == 1 && bytes == want.bytes && memcmp(key, want.data, bytes) == 0);
}

static void
push_delete(struct zt *t, struct ver *v, struct ver_txn *w, unsigned i)
{
    struct ver_entry *e;
    char k[RIG_KEY];

    e = ver_entry_create(v, w, rig_key(1, i, k), VER_WAS_VALUE, 0, "x", 1);
    ZT_CHECK(t, e != NULL);
    ver_entry_push(v, e, 1100, true);
}

/* Goal (C5): whatever leaves a ghost behind is reported when its chain is gone, not before, and whoever goes last. */
static void
test_ghosts(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_view old;
    struct rig_txn x, y;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &old));
    rig_begin(t, v, &x, 1000);
    push_delete(t, v, x.w, 1);                            /* reported after `old` */
    (void)rig_push(t, v, x.w, rig_key(1, 2, k), 0, 1100); /* insert: none */
    push_delete(t, v, x.w, 3);                            /* a lock on top goes last */
    (void)rig_push(t, v, x.w, rig_key(1, 4, k), 0, 1100); /* undone by y: see below */
    push_delete(t, v, x.w, 4);
    rig_commit(v, x.w, 1200, false);
    rig_close(v, &x);
    rig_begin(t, v, &y, 1200);
    rig_lock(t, v, y.w, rig_key(1, 3, k));
    (void)rig_push(t, v, y.w, rig_key(1, 4, k), 0, 1300);
    rig_lock(t, v, y.w, rig_key(1, 5, k));
    (void)rig_push(t, v, y.w, rig_key(1, 5, k), 0, 1300);
    expect_ghost(t, v, 0);
    ZT_CHECK(t, ver_has(v, rig_key(1, 1, k)));
    ver_view_close(v, &old);
    ver_view_refresh(v, &y.view);
    while (ver_trim(v, 2))
        ;
    expect_ghost(t, v, 1);
    expect_ghost(t, v, 0);
    ZT_CHECK(t, !ver_has(v, rig_key(1, 1, k)) && ver_has(v, rig_key(1, 3, k)));
    rig_abort(v, &y); /* pops 5, its lock, 4, and the lock on 3 */
    expect_ghost(t, v, 5);
    expect_ghost(t, v, 4);
    expect_ghost(t, v, 3);
    expect_ghost(t, v, 0);
    for (unsigned i = 1; i < 9000; i++) { /* more than fit: the first ones stay, in order */
        struct ver_txn *w;

        ZT_OK(t, ver_txn_create(v, 0, NULL, VER_NO_SLOT, 0, &w));
        ver_commit_lock(v);
        push_delete(t, v, w, i);
        ver_commit_end(v, w, 2000 + i, false);
    }
    for (unsigned i = 1; i < 3000; i++)
        expect_ghost(t, v, i);
    ver_destroy(v);
}

/* Goal (P): pruning a delete that is a chain's newest entry hands its ghost to what stays. */
static void
test_ghost_of_pruned(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_view old;
    struct ver_txn *w;
    char k[RIG_KEY];

    ZT_OK(t, ver_view_open(v, &old));
    rig_single(t, v, rig_key(1, 1, k), 5, 1100);
    ZT_OK(t, ver_txn_create(v, 0, NULL, VER_NO_SLOT, 0, &w));
    push_delete(t, v, w, 1);
    rig_commit(v, w, 1200, false);
    while (ver_trim(v, 5))
        ;
    ZT_CHECK(t, entries(v) == 1);
    expect_ghost(t, v, 0);
    ver_view_close(v, &old);
    while (ver_trim(v, 5))
        ;
    expect_ghost(t, v, 1);
    ver_destroy(v);
}

/* Goal (C5): a ghost that was announced, and locked before it could be purged, is announced again when the lock goes. */
static void
test_ghost_locked(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct rig_txn x;
    struct ver_entry *e;
    char k[RIG_KEY];

    for (unsigned round = 0; round < 2; round++) {
        rig_begin(t, v, &x, 1000);
        e = ver_entry_create(v, x.w, rig_key(1, 1, k), VER_WAS_LOCK, 0, NULL, 0);
        ZT_CHECK(t, e != NULL);
        ver_entry_push(v, e, 0, true);
        expect_ghost(t, v, 0);
        if (round == 0) {
            rig_abort(v, &x);
        } else {
            rig_commit(v, x.w, 1100, false);
            rig_close(v, &x);
            while (ver_trim(v, 5))
                ;
        }
        expect_ghost(t, v, 1);
        expect_ghost(t, v, 0);
    }
    ver_destroy(v);
}

/* An operation of its own on key 1: `before` 0 = it was absent. */
static void
own(struct zt *t, struct ver *v, uint32_t before, bool deletes, lsn_t lsn)
{
    uint8_t image[VER_VALUE_MAX];
    char k[RIG_KEY];
    const struct ver_own o = {
        .key = rig_key(1, 1, k),
        .kind = before != 0 ? VER_WAS_VALUE : VER_WAS_ABSENT,
        .before = image,
        .before_bytes = before != 0 ? rig_value(before, image) : 0,
        .deletes = deletes,
    };

    ver_commit_lock(v);
    ZT_OK(t, ver_own_begin(v, &o));
    ver_own_end(v, &o, lsn, false);
}

static unsigned
ghosts(struct ver *v)
{
    uint8_t key[COHORT_KEY_MAX];
    uint32_t tree;
    size_t bytes;
    unsigned n = 0;

    while (ver_take_ghost(v, &tree, key, &bytes))
        n++;
    return n;
}

/* Goal (Q6, C5): an operation of its own, and a commit, keep what some view reads and nothing else; a ghost is reported once
 * nothing is kept of its record, and only if the leaf still holds one. */
static void
test_own(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_found f;
    struct ver_view a;
    struct rig_txn x;
    char k[RIG_KEY];

    own(t, v, 0, false, 1100);
    ZT_CHECK(t, entries(v) == 0 && ver_horizon(v) == 1100 && ghosts(v) == 0);
    own(t, v, 1, true, 1110);
    ZT_CHECK(t, entries(v) == 0 && ghosts(v) == 1);
    for (unsigned again = 0; again < 2; again++) {
        lsn_t lsn = 1200 + 100 * again;

        ZT_OK(t, ver_view_open(v, &a));
        own(t, v, 0, false, lsn);
        own(t, v, 1, false, lsn + 10);
        own(t, v, 2, true, lsn + 20);
        if (again == 1)
            own(t, v, 0, false, lsn + 30);
        ver_read(v, &a, rig_key(1, 1, k), &f);
        ZT_CHECK(t, entries(v) == 1 && f.how == VER_ABSENT && ghosts(v) == 0);
        ver_view_close(v, &a);
        while (ver_trim(v, 10))
            ;
        ZT_CHECK(t, entries(v) == 0 && ghosts(v) == (again == 0 ? 1 : 0));
    }
    rig_begin(t, v, &x, 1400);
    (void)rig_push(t, v, x.w, rig_key(1, 1, k), 3, 1410);
    (void)rig_push(t, v, x.w, rig_key(1, 2, k), 3, 1420);
    ver_commit_lock(v);
    ver_view_release(v, &x.view);
    ver_commit_end(v, x.w, 1430, false);
    ZT_CHECK(t, entries(v) == 0 && ver_horizon(v) == 1430);
    rig_close(v, &x);
    ver_destroy(v);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"queue_order", test_queue_order, 1},
        {"fast", test_fast, 1},
        {"slots", test_slots, 1},
        {"trims_as_it_goes", test_trims_as_it_goes, 1},
        {"trims_huge", test_trims_huge, 10},
        {"relief", test_relief, 1},
        {"spill", test_spill, 1},
        {"restore", test_restore, 1},
        {"ghosts", test_ghosts, 1},
        {"ghost_of_pruned", test_ghost_of_pruned, 1},
        {"ghost_locked", test_ghost_locked, 1},
        {"own", test_own, 1},
    };

    return zt_main(argc, argv, "ver_rules", cases, CH_ARRAY_LEN(cases));
}
