/* txn_test.c - transactions one thread at a time: states, savepoints, conflicts, serializable ones, cursors, spilling, two-phase commit. */
#include <stdlib.h>

#include "btree/undo.h"
#include "txn/txn_internal.h"
#include "txn/txn_test_rig.h"

static uint32_t
get(struct rig *r, struct txn *t, unsigned tree, unsigned k)
{
    uint32_t version;

    ZT_OK(r->t, rig_get(r, t, tree, k, &version));
    return version;
}

/* ---- states ---- */

/* Goal: own writes are seen, others' are not before their commit, and not by older snapshots after it; an abort leaves nothing. */
static void
test_visibility(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct rig r;
    struct txn *a, *b, *old;

    rig_open(&r, t, &o);
    for (unsigned tree = 0; tree < RIG_TREES; tree++) {
        ZT_OK(t, rig_put(&r, NULL, tree, 1, 1));
        old = rig_begin(&r, false);
        a = rig_begin(&r, false);
        b = rig_begin(&r, false);
        ZT_OK(t, rig_put(&r, a, tree, 1, 2));
        ZT_OK(t, rig_put(&r, a, tree, 2, 5));
        ZT_CHECK(t, get(&r, a, tree, 1) == 2 && get(&r, a, tree, 2) == 5);
        ZT_CHECK(t, get(&r, b, tree, 1) == 1 && get(&r, b, tree, 2) == 0);
        ZT_CHECK(t, get(&r, NULL, tree, 1) == 1 && get(&r, NULL, tree, 2) == 0);
        ZT_OK(t, txn_commit(a, false, NULL));
        ZT_CHECK(t, get(&r, b, tree, 1) == 1 && get(&r, NULL, tree, 1) == 2);
        ZT_OK(t, txn_refresh(b));
        ZT_CHECK(t, get(&r, b, tree, 1) == 2 && get(&r, b, tree, 2) == 5);
        ZT_OK(t, rig_put(&r, b, tree, 1, 0));
        ZT_OK(t, rig_put(&r, b, tree, 3, 9));
        ZT_CHECK(t, get(&r, b, tree, 1) == 0);
        ZT_OK(t, txn_abort(b));
        ZT_CHECK(t, get(&r, NULL, tree, 1) == 2 && get(&r, NULL, tree, 3) == 0);
        ZT_CHECK(t, get(&r, old, tree, 1) == 1 && get(&r, old, tree, 2) == 0);
        ZT_OK(t, txn_commit(old, false, NULL));
    }
    rig_sweep(&r);
    rig_check_trees(&r);
    rig_close(&r);
}

/* Goal: what a state does not allow is refused as the contract says. */
static void
test_states(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct txn_options ro = {
        .read_only = true, .durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};
    struct rig r;
    struct txn *a, *many[64];
    struct txns_counts c;
    uint64_t sp, id;
    lsn_t lsn = 0;

    rig_open(&r, t, &o);
    ZT_OK(t, txn_begin(r.ts, &ro, &a));
    ZT_STATUS(t, rig_put(&r, a, 0, 1, 1), COHORT_ETXN);
    ZT_STATUS(t, txn_prepare(a, "g", 1), COHORT_ETXN);
    a = rig_begin(&r, true);
    ZT_STATUS(t, txn_refresh(a), COHORT_ETXN);
    ZT_STATUS(t, txn_prepare(a, "", 0), COHORT_EINVAL);
    ZT_STATUS(t, txn_rollback_to(a, 77), COHORT_ETXN);
    ZT_OK(t, txn_savepoint(a, &sp));
    ZT_OK(t, txn_release(a, sp));
    ZT_STATUS(t, txn_release(a, sp), COHORT_ETXN);
    id = txn_id(a);
    ZT_CHECK(t, txns_is_open(r.ts, id) && txn_manager(a) == r.ts);
    ZT_OK(t, txn_commit(a, true, &lsn));
    ZT_CHECK(t, !txns_is_open(r.ts, id));
    for (unsigned i = 0; i < 64; i++)
        many[i] = rig_begin(&r, false);
    ZT_STATUS(t, txn_begin(r.ts, &ro, &a), COHORT_EBUSY);
    txns_counts(r.ts, &c);
    ZT_CHECK(t, c.open == 64 && c.prepared == 0);
    for (unsigned i = 0; i < 64; i++)
        ZT_OK(t, txn_abort(many[i]));
    rig_close(&r);
}

/* Goal: the first writer wins, by lock or by commit; the loser goes on, and locks end with savepoints. */
static void
test_conflicts(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct rig r;
    struct txn *a, *b;
    uint64_t sp;

    rig_open(&r, t, &o);
    ZT_OK(t, rig_put(&r, NULL, 0, 1, 1));
    a = rig_begin(&r, false);
    b = rig_begin(&r, false);
    ZT_OK(t, txn_savepoint(a, &sp));
    ZT_OK(t, rig_put(&r, a, 0, 1, 2));
    ZT_OK(t, rig_lock(&r, a, 0, 50));
    ZT_STATUS(t, rig_put(&r, b, 0, 1, 3), COHORT_CONFLICT);
    ZT_STATUS(t, rig_put(&r, b, 0, 50, 3), COHORT_CONFLICT);
    ZT_STATUS(t, rig_put(&r, NULL, 0, 1, 3), COHORT_CONFLICT);
    ZT_OK(t, rig_put(&r, b, 0, 2, 3));
    ZT_OK(t, txn_rollback_to(a, sp));
    ZT_CHECK(t, get(&r, a, 0, 1) == 1);
    ZT_OK(t, rig_put(&r, b, 0, 1, 3));
    ZT_OK(t, rig_put(&r, b, 0, 50, 3));
    ZT_OK(t, txn_commit(b, false, NULL));
    ZT_STATUS(t, rig_put(&r, a, 0, 1, 4), COHORT_CONFLICT); /* committed after a's snapshot */
    ZT_OK(t, txn_commit(a, false, NULL));
    ZT_CHECK(t, get(&r, NULL, 0, 1) == 3);
    a = rig_begin(&r, false);
    ZT_OK(t, rig_lock(&r, a, 1, 9));
    ZT_OK(t, txn_commit(a, false, NULL)); /* locks only: nothing is logged */
    ZT_OK(t, rig_put(&r, NULL, 1, 9, 1));
    rig_close(&r);
}

/* Goal: write skew and phantoms are refused to serializable transactions, and only to them. */
static void
test_serializable(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct txn_cursor *c;
    struct rig r;
    struct txn *a, *b;

    rig_open(&r, t, &o);
    for (unsigned round = 0; round < 4; round++) {
        bool serializable = round % 2 == 1;
        unsigned tree = round / 2;

        ZT_OK(t, rig_put(&r, NULL, tree, 1, 1));
        ZT_OK(t, rig_put(&r, NULL, tree, 5, 1));
        a = rig_begin(&r, serializable);
        b = rig_begin(&r, serializable);
        ZT_CHECK(t, get(&r, a, tree, 1) == 1 && get(&r, b, tree, 5) == 1);
        ZT_OK(t, rig_put(&r, a, tree, 5, 2));
        ZT_OK(t, rig_put(&r, b, tree, 1, 2));
        ZT_OK(t, txn_commit(a, false, NULL));
        ZT_STATUS(t, txn_commit(b, false, NULL), serializable ? COHORT_CONFLICT : 0);
        ZT_CHECK(t, get(&r, NULL, tree, 1) == (serializable ? 1 : 2));

        a = rig_begin(&r, serializable);
        ZT_OK(t, txn_cursor_create(a, r.trees[tree], &c));
        ZT_OK(t, txn_cursor_seek(c, BT_FIRST, (struct bt_slice){NULL, 0}));
        ZT_OK(t, txn_cursor_next(c)); /* seen: up to key 5 */
        txn_cursor_destroy(c);
        ZT_OK(t, rig_put(&r, a, tree, 90, 1));
        ZT_OK(t, rig_put(&r, NULL, tree, 7, 1)); /* behind what was seen */
        ZT_OK(t, txn_commit(a, false, NULL));
        a = rig_begin(&r, serializable);
        ZT_OK(t, txn_cursor_create(a, r.trees[tree], &c));
        ZT_OK(t, txn_cursor_seek(c, BT_LAST, (struct bt_slice){NULL, 0}));
        while (txn_cursor_prev(c) == 0)
            continue;
        txn_cursor_destroy(c);
        ZT_OK(t, rig_put(&r, a, tree, 91, 1));
        ZT_OK(t, rig_put(&r, NULL, tree, 3, 1));
        ZT_STATUS(t, txn_commit(a, false, NULL), serializable ? COHORT_CONFLICT : 0);
        for (unsigned k = 0; k < 100; k++)
            (void)rig_put(&r, NULL, tree, k, 0);
        rig_sweep(&r);
    }
    rig_close(&r);
}

/* ---- spilling ---- */

/* Goal: a transaction far larger than its bounds goes on in the undo tree, others read before it, and both ends leave the tree
 * empty. */
static void
test_spill(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE,
                            .undo_bytes = 20000,
                            .version_bytes = 1 << 20,
                            .frames = 256};
    enum {
        KEYS = 1500
    };
    struct rig r;
    struct txn *a, *b;
    uint64_t sp;

    rig_open(&r, t, &o);
    for (unsigned round = 0; round < 3; round++) {
        unsigned tree = round % RIG_TREES;

        for (unsigned k = 0; k < KEYS; k++)
            ZT_OK(t, rig_put(&r, NULL, tree, k, 1));
        b = rig_begin(&r, false);
        a = rig_begin(&r, false);
        for (unsigned k = 0; k < KEYS; k++) {
            if (k == KEYS / 2)
                ZT_OK(t, txn_savepoint(a, &sp));
            ZT_OK(t, rig_put(&r, a, tree, k, k % 7 == 0 ? 0 : 2));
            ZT_CHECK(t, ver_unspilled_bytes(r.ver) <= o.undo_bytes + COHORT_ENTRY_MAX);
        }
        ZT_CHECK(t, rig_undo_rows(&r) > KEYS / 2);
        rig_checkpoint(&r, true);
        ZT_CHECK(t, txns_oldest(r.ts) == CH_LSN_MAX);
        if (round == 1)
            ZT_OK(t, txn_rollback_to(a, sp));
        for (unsigned k = 0; k < KEYS; k += 11) {
            bool mine = round != 1 || k < KEYS / 2;

            ZT_CHECK(t, get(&r, b, tree, k) == 1 && get(&r, NULL, tree, k) == 1);
            ZT_CHECK(t, get(&r, a, tree, k) == (!mine ? 1 : k % 7 == 0 ? 0 : 2));
        }
        if (round == 2) {
            ZT_OK(t, txn_abort(a));
            ZT_CHECK(t, rig_undo_rows(&r) == 0);
        } else {
            ZT_OK(t, txn_commit(a, false, NULL));
            rig_sweep(&r);
            ZT_CHECK(t, rig_undo_rows(&r) > 0); /* b needs them */
        }
        for (unsigned k = 0; k < KEYS; k += 13)
            ZT_CHECK(t, get(&r, b, tree, k) == 1);
        ZT_OK(t, txn_commit(b, false, NULL));
        rig_sweep(&r);
        ZT_CHECK(t, rig_undo_rows(&r) == 0);
        ZT_CHECK(t, get(&r, NULL, tree, 1) == (round == 2 ? 1 : 2));
        ZT_CHECK(t, get(&r, NULL, tree, KEYS - 1) == (round == 0 ? 2 : 1));
        rig_check_trees(&r);
    }
    rig_close(&r);
}

/* ---- two-phase commit ---- */

static int
count_gids(void *arg, const void *gid, size_t gid_bytes)
{
    unsigned *n = arg;

    (void)gid;
    (void)gid_bytes;
    ++*n;
    return 0;
}

/* Goal: prepared transactions keep their locks and what they read until they are decided, once. */
static void
test_prepared(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct rig r;
    struct txn *a, *b;
    unsigned n = 0;

    rig_open(&r, t, &o);
    ZT_OK(t, rig_put(&r, NULL, 1, 1, 1));
    ZT_OK(t, rig_put(&r, NULL, 1, 2, 1));
    a = rig_begin(&r, true);
    ZT_CHECK(t, get(&r, a, 1, 2) == 1);
    ZT_OK(t, rig_put(&r, a, 1, 1, 2));
    ZT_OK(t, rig_lock(&r, a, 1, 3));
    ZT_OK(t, txn_prepare(a, "one", 3));
    b = rig_begin(&r, false);
    ZT_STATUS(t, txn_prepare(b, "one", 3), COHORT_EXISTS);
    ZT_STATUS(t, rig_put(&r, b, 1, 1, 9), COHORT_CONFLICT);
    ZT_STATUS(t, rig_put(&r, b, 1, 3, 9), COHORT_CONFLICT);
    ZT_OK(t, rig_put(&r, b, 1, 2, 9));
    ZT_STATUS(t, txn_commit(b, false, NULL), COHORT_CONFLICT); /* into what "one" has read */
    ZT_STATUS(t, rig_put(&r, NULL, 1, 2, 9), COHORT_CONFLICT);
    b = rig_begin(&r, false);
    ZT_OK(t, rig_put(&r, b, 1, 7, 7));
    ZT_OK(t, txn_prepare(b, "two", 3));
    ZT_OK(t, txns_list_prepared(r.ts, count_gids, &n));
    ZT_CHECK(t, n == 2);
    rig_checkpoint(&r, true);
    ZT_CHECK(t, txns_oldest(r.ts) == CH_LSN_MAX);
    ZT_CHECK(t, get(&r, NULL, 1, 1) == 1);
    ZT_OK(t, txns_commit_prepared(r.ts, "one", 3));
    ZT_STATUS(t, txns_commit_prepared(r.ts, "one", 3), COHORT_NOTFOUND);
    ZT_STATUS(t, txns_abort_prepared(r.ts, "none", 4), COHORT_NOTFOUND);
    ZT_OK(t, txns_abort_prepared(r.ts, "two", 3));
    ZT_CHECK(t, get(&r, NULL, 1, 1) == 2 && get(&r, NULL, 1, 7) == 0);
    ZT_OK(t, rig_put(&r, NULL, 1, 2, 9));
    rig_sweep(&r);
    ZT_CHECK(t, rig_undo_rows(&r) == 0);
    rig_close(&r);
}

/* ---- cursors ---- */

/* Goal: a cursor sees the transaction's writes of before and after it was placed, deletes under it included. */
static void
test_cursor(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    uint8_t key[32];
    struct bt_slice k, v;
    struct txn_cursor *c;
    struct rig r;
    struct txn *a;
    unsigned flags;

    rig_open(&r, t, &o);
    for (unsigned i = 0; i < 50; i += 2)
        ZT_OK(t, rig_put(&r, NULL, 1, i, 1));
    a = rig_begin(&r, zt_below(t, 2) == 0);
    ZT_OK(t, txn_cursor_create(a, r.trees[1], &c));
    ZT_CHECK(t, txn_cursor_txn(c) == a && txn_cursor_tree(c) == r.trees[1]);
    ZT_CHECK(t, !txn_cursor_entry(c, &k, &v, &flags));
    ZT_STATUS(t, txn_cursor_exact(c, (struct bt_slice){key, rig_key(11, key)}), COHORT_NOTFOUND);
    ZT_CHECK(t, !txn_cursor_entry(c, &k, &v, &flags));
    ZT_STATUS(t, txn_cursor_next(c), COHORT_NOTFOUND);
    ZT_OK(t, txn_cursor_exact(c, (struct bt_slice){key, rig_key(10, key)}));
    ZT_OK(t, rig_put(&r, a, 1, 11, 3));
    ZT_OK(t, rig_put(&r, NULL, 1, 13, 3)); /* not seen */
    ZT_OK(t, txn_cursor_next(c));
    ZT_CHECK(t, txn_cursor_entry(c, &k, &v, &flags) && ch_get32(v.data) == 11);
    ZT_OK(t, rig_put(&r, a, 1, 11, 0));
    ZT_OK(t, rig_put(&r, a, 1, 12, 0));
    ZT_OK(t, txn_cursor_next(c));
    ZT_CHECK(t, txn_cursor_entry(c, &k, &v, &flags) && ch_get32(v.data) == 14);
    ZT_OK(t, txn_cursor_prev(c));
    ZT_CHECK(t, txn_cursor_entry(c, &k, &v, &flags) && ch_get32(v.data) == 10);
    ZT_OK(t, txn_cursor_seek(c, BT_LAST, (struct bt_slice){NULL, 0}));
    ZT_STATUS(t, txn_cursor_next(c), COHORT_NOTFOUND);
    ZT_STATUS(t, txn_cursor_next(c), COHORT_NOTFOUND);
    txn_cursor_destroy(c);
    ZT_OK(t, txn_abort(a));
    rig_close(&r);
}

/* ---- trees ---- */

/* Goal: deferred actions end with the transaction, or with a rollback before them; a dropped tree is no more. */
static void
test_notes(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_NONE};
    struct rig r;
    struct txn *a, *b;
    uint64_t sp;
    uint32_t version;

    rig_open(&r, t, &o);
    ZT_OK(t, rig_put(&r, NULL, 1, 1, 1));
    a = rig_begin(&r, false);
    b = rig_begin(&r, false);
    ZT_OK(t, txn_savepoint(a, &sp));
    ZT_OK(t, rig_put(&r, a, 1, 2, 1));
    ZT_CHECK(t, txn_writes_into(a, r.trees[1]) && !txn_writes_into(b, r.trees[1]));
    ZT_STATUS(t, reg_drop_begin(r.reg, r.trees[1], txn_id(b), false), COHORT_CONFLICT);
    ZT_OK(t, reg_drop_begin(r.reg, r.trees[1], txn_id(a), true));
    ZT_OK(t, txn_note_dropped(a, r.trees[1]));
    ZT_STATUS(t, rig_put(&r, a, 1, 3, 1), COHORT_NOTFOUND);
    ZT_STATUS(t, rig_put(&r, NULL, 1, 3, 1), COHORT_CONFLICT);
    ZT_OK(t, txn_rollback_to(a, sp));
    ZT_OK(t, rig_put(&r, a, 1, 3, 1));
    ZT_OK(t, reg_drop_begin(r.reg, r.trees[1], txn_id(a), true));
    ZT_OK(t, txn_note_dropped(a, r.trees[1]));
    ZT_OK(t, txn_commit(a, false, NULL));
    ZT_STATUS(t, rig_put(&r, b, 1, 3, 1), COHORT_NOTFOUND);
    ZT_OK(t, rig_get(&r, b, 1, 1, &version)); /* NOTFOUND */
    ZT_CHECK(t, version == 0);
    ZT_OK(t, txn_abort(b));
    rig_close(&r);
}

/* ---- a failing log ---- */

/* Goal: when the log fails under a commit, the caller and the handle's owner are told, the transaction keeps its locks, and
 * nobody sees it. */
static void
test_log_fails(struct zt *t)
{
    struct rig_options o = {.durability = COHORT_DURABILITY_SYNC};
    struct dev_fault_plan plan = {.code = COHORT_EIO, .stop_after_writes = 1};
    struct rig r;
    struct txn *a, *b;

    rig_open(&r, t, &o);
    ZT_OK(t, rig_put(&r, NULL, 0, 1, 1));
    a = rig_begin(&r, false);
    b = rig_begin(&r, false);
    ZT_OK(t, rig_put(&r, a, 0, 1, 2));
    ZT_OK(t, rig_put(&r, b, 1, 1, 2));
    dev_fault_set(r.dev, &plan);
    ZT_STATUS(t, txn_commit(a, false, NULL), COHORT_EFAILED);
    ZT_CHECK(t, atomic_load_explicit(&r.failures, memory_order_relaxed) > 0);
    ZT_CHECK(t, get(&r, NULL, 0, 1) == 1);
    ZT_CHECK(t, txn_abort(b) != 0);
    ZT_CHECK(t, get(&r, NULL, 1, 1) == 0);
    rig_close(&r);
}

/* Goal: ghosts that are too many to be remembered one by one go too. Method: delete thousands of records in one transaction, in both trees,
 * in an order that leaves no neighbour behind; sweep; no ghost is left. */
static void
test_many_ghosts(struct zt *t)
{
    enum {
        KEYS = 20000
    };
    struct bt_check_result c;
    struct txn *txn;
    struct rig r;

    rig_open(&r, t, &(struct rig_options){.durability = COHORT_DURABILITY_NONE});
    txn = rig_begin(&r, false);
    for (unsigned k = 0; k < KEYS; k++)
        ZT_OK(t, rig_put(&r, txn, k % 2, k, 1));
    ZT_OK(t, txn_commit(txn, false, NULL));
    txn = rig_begin(&r, false);
    for (unsigned k = 0; k < KEYS; k++)
        ZT_OK(t, rig_put(&r, txn, k * 7919 % KEYS % 2, k * 7919 % KEYS, 0));
    ZT_OK(t, txn_commit(txn, false, NULL));
    rig_sweep(&r);
    for (unsigned i = 0; i < RIG_TREES; i++) {
        c = (struct bt_check_result){0};
        ZT_OK(t, bt_check(&r.trees[i]->bt, NULL, NULL, NULL, &c));
        ZT_CHECK(t, c.ghosts == 0 && c.entries == 0 && c.leaf_pages == 1);
    }
    rig_close(&r);
}

/* Goal (spill.c P6): while it is open whether a commit comes about, the log is kept for the undo that its refusal takes. */
static void
test_closed_keeps_log(struct zt *t)
{
    struct rig_options o = {0};
    struct txn *txn;
    struct rig r;
    lsn_t oldest;

    rig_open(&r, t, &o);
    for (unsigned spilled = 0; spilled < 2; spilled++) {
        txn = rig_begin(&r, true);
        ZT_OK(t, rig_put(&r, txn, 0, 1, 1 + spilled));
        if (spilled != 0)
            rig_checkpoint(&r, true);
        oldest = txns_oldest(r.ts);
        ZT_CHECK(t, (oldest == CH_LSN_MAX) == (spilled != 0));
        txn_close(txn);
        ZT_CHECK(t, txns_oldest(r.ts) == oldest);
        txn_reopen(txn);
        ZT_CHECK(t, txns_oldest(r.ts) == oldest);
        ZT_OK(t, txn_commit(txn, false, NULL));
        rig_sweep(&r);
        ZT_CHECK(t, txns_oldest(r.ts) == CH_LSN_MAX);
    }
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"visibility", test_visibility, 2},
        {"states", test_states, 1},
        {"conflicts", test_conflicts, 1},
        {"serializable", test_serializable, 1},
        {"spill", test_spill, 1},
        {"prepared", test_prepared, 1},
        {"cursor", test_cursor, 4},
        {"notes", test_notes, 1},
        {"log_fails", test_log_fails, 1},
        {"many_ghosts", test_many_ghosts, 1},
        {"closed_keeps_log", test_closed_keeps_log, 1},
    };

    return zt_main(argc, argv, "txn", cases, CH_ARRAY_LEN(cases));
}
