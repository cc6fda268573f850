/* hermitage_test.c - the Hermitage list of isolation anomalies, at both levels.
 *
 * Each case interleaves two or three transactions in one thread as the list prescribes (github.com/ept/hermitage: the test
 * table holds 1 => 10, 2 => 20), with lock_timeout_ms 0, so that a writer who would have to wait is refused at once. What is
 * asserted is the outcome of each level: which operation is refused with which code, or that the anomaly happens where a level
 * allows it (G2-item and G2 under snapshot isolation). The outcomes are printed as a table, which docs/TESTING.md shows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cohort.h"
#include "zt.h"

struct world {
    struct zt *t;
    cohort_db *db;
    enum cohort_isolation level;
};

static const char *
level_name(enum cohort_isolation level)
{
    return level == COHORT_SNAPSHOT ? "snapshot" : "serializable";
}

static void
outcome(const struct world *w, const char *name, const char *text)
{
    printf("| %s | %s | %s |\n", name, level_name(w->level), text);
}

static void
put_now(struct world *w, char key, int value)
{
    ZT_OK(w->t, cohort_put(w->db, &key, 1, &value, sizeof(value)));
}

/* A fresh database with 1 => 10, 2 => 20. */
static void
world_open(struct zt *t, struct world *w, enum cohort_isolation level)
{
    struct cohort_options o;

    cohort_options_init(&o);
    ZT_OK(t, cohort_options_set(&o, "create", "yes"));
    ZT_OK(t, cohort_options_set(&o, "durability", "none"));
    ZT_OK(t, cohort_options_set(&o, "cache_bytes", "1M"));
    *w = (struct world){.t = t, .level = level};
    ZT_OK(t, cohort_open("sim:generic,bytes=32M,superblock=1M", &o, &w->db));
    put_now(w, '1', 10);
    put_now(w, '2', 20);
}

static void
world_close(struct world *w)
{
    struct cohort_check_result r;

    ZT_OK(w->t, cohort_check(w->db, NULL, NULL, &r));
    ZT_OK(w->t, cohort_close(w->db));
}

static cohort_txn *
begin(struct world *w)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;

    cohort_txn_options_init(&o);
    o.isolation = w->level;
    o.lock_timeout_ms = 0;
    ZT_OK(w->t, cohort_begin(w->db, &o, &txn));
    return txn;
}

/* -1 = absent. */
static int
get(struct world *w, cohort_txn *txn, char key)
{
    struct cohort_value v = {0};
    int value = -1;
    int rc = cohort_txn_get(txn, NULL, &key, 1, &v);

    if (rc == 0) {
        ZT_CHECK(w->t, v.bytes == sizeof(value));
        memcpy(&value, v.data, sizeof(value));
    } else {
        ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    }
    cohort_value_free(&v);
    return value;
}

static int
put(cohort_txn *txn, char key, int value)
{
    return cohort_txn_put(txn, NULL, &key, 1, &value, sizeof(value));
}

/* SELECT .. WHERE value % divisor = 0: how many. */
static int
count_where(struct world *w, cohort_txn *txn, int divisor)
{
    cohort_cursor *c = NULL;
    struct cohort_slice key, value;
    int n = 0, number, rc;

    ZT_OK(w->t, cohort_txn_cursor(txn, NULL, &c));
    for (rc = cohort_cursor_first(c); rc == 0; rc = cohort_cursor_next(c)) {
        ZT_OK(w->t, cohort_cursor_entry(c, &key, &value));
        memcpy(&number, value.data, sizeof(number));
        n += number % divisor == 0;
    }
    ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    cohort_cursor_close(c);
    return n;
}

static int
committed(struct world *w, char key)
{
    cohort_txn *txn = begin(w);
    int value = get(w, txn, key);

    ZT_OK(w->t, cohort_commit(txn));
    return value;
}

/* G0: write cycles. T1 and T2 write 1 and 2 in turn. */
static void
g0(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_OK(w->t, put(t1, '1', 11));
    ZT_STATUS(w->t, put(t2, '1', 12), COHORT_CONFLICT); /* T1 holds it */
    ZT_OK(w->t, put(t1, '2', 21));
    ZT_OK(w->t, cohort_commit(t1));
    ZT_STATUS(w->t, put(t2, '1', 12), COHORT_CONFLICT); /* written after T2's snapshot */
    ZT_OK(w->t, cohort_abort(t2));
    ZT_CHECK(w->t, committed(w, '1') == 11 && committed(w, '2') == 21);
    outcome(w, "G0", "prevented: T2's write of 1 is refused (CONFLICT)");
}

/* G1a: aborted reads. */
static void
g1a(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_OK(w->t, put(t1, '1', 101));
    ZT_CHECK(w->t, get(w, t2, '1') == 10);
    ZT_OK(w->t, cohort_abort(t1));
    ZT_CHECK(w->t, get(w, t2, '1') == 10);
    ZT_OK(w->t, cohort_commit(t2));
    outcome(w, "G1a", "prevented: T2 reads 10 before and after T1's abort");
}

/* G1b: intermediate reads. */
static void
g1b(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_OK(w->t, put(t1, '1', 101));
    ZT_CHECK(w->t, get(w, t2, '1') == 10);
    ZT_OK(w->t, put(t1, '1', 11));
    ZT_OK(w->t, cohort_commit(t1));
    ZT_CHECK(w->t, get(w, t2, '1') == 10);
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, committed(w, '1') == 11);
    outcome(w, "G1b", "prevented: T2 reads 10 throughout");
}

/* G1c: circular information flow. */
static void
g1c(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_OK(w->t, put(t1, '1', 11));
    ZT_OK(w->t, put(t2, '2', 22));
    ZT_CHECK(w->t, get(w, t1, '2') == 20);
    ZT_CHECK(w->t, get(w, t2, '1') == 10);
    ZT_OK(w->t, cohort_commit(t1));
    if (w->level == COHORT_SERIALIZABLE) {
        ZT_STATUS(w->t, cohort_commit(t2), COHORT_CONFLICT);
        outcome(w, "G1c",
                "prevented: neither sees the other; T2's commit is refused too (it read 1)");
    } else {
        ZT_OK(w->t, cohort_commit(t2));
        outcome(w, "G1c", "prevented: neither sees the other's write");
    }
}

/* OTV: observed transaction vanishes. T3 must see all of T1 and T2 or nothing, in one order. */
static void
otv(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w), *t3;

    ZT_OK(w->t, put(t1, '1', 11));
    ZT_OK(w->t, put(t1, '2', 19));
    ZT_STATUS(w->t, put(t2, '1', 12), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_commit(t1));
    ZT_OK(w->t, cohort_abort(t2));
    t2 = begin(w);
    t3 = begin(w);
    ZT_OK(w->t, put(t2, '1', 12));
    ZT_CHECK(w->t, get(w, t3, '1') == 11);
    ZT_OK(w->t, put(t2, '2', 18));
    ZT_CHECK(w->t, get(w, t3, '2') == 19);
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, get(w, t3, '2') == 19 && get(w, t3, '1') == 11);
    ZT_OK(w->t, cohort_commit(t3));
    outcome(w, "OTV", "prevented: T3 sees T1's writes only, before and after T2's commit");
}

/* PMP: predicate-many-preceders, of reads. */
static void
pmp(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, count_where(w, t1, 30) == 0);
    ZT_OK(w->t, put(t2, '3', 30));
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, count_where(w, t1, 3) == 0);
    ZT_OK(w->t, cohort_commit(t1));
    outcome(w, "PMP", "prevented: the second predicate read still finds nothing");
}

/* PMP for write predicates: UPDATE value + 10; DELETE WHERE value = 20. */
static void
pmp_write(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_OK(w->t, put(t1, '1', get(w, t1, '1') + 10));
    ZT_OK(w->t, put(t1, '2', get(w, t1, '2') + 10));
    ZT_CHECK(w->t, count_where(w, t2, 20) == 1);
    ZT_OK(w->t, cohort_commit(t1));
    ZT_STATUS(w->t, cohort_txn_del(t2, NULL, "2", 1), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_abort(t2));
    ZT_CHECK(w->t, committed(w, '1') == 20 && committed(w, '2') == 30);
    outcome(w, "PMP, write predicate", "prevented: T2's delete is refused (CONFLICT)");
}

/* P4: lost update. */
static void
p4(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, get(w, t1, '1') == 10 && get(w, t2, '1') == 10);
    ZT_OK(w->t, put(t1, '1', 11));
    ZT_STATUS(w->t, put(t2, '1', 11), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_commit(t1));
    ZT_STATUS(w->t, put(t2, '1', 11), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_abort(t2));
    outcome(w, "P4", "prevented: the second update is refused (CONFLICT)");
}

/* G-single: read skew. */
static void
g_single(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, get(w, t1, '1') == 10);
    ZT_CHECK(w->t, get(w, t2, '1') == 10 && get(w, t2, '2') == 20);
    ZT_OK(w->t, put(t2, '1', 12));
    ZT_OK(w->t, put(t2, '2', 18));
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, get(w, t1, '2') == 20);
    ZT_OK(w->t, cohort_commit(t1));
    outcome(w, "G-single", "prevented: T1 reads 10 and 20");
}

/* G-single with predicate dependencies. */
static void
g_single_predicate(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, count_where(w, t1, 5) == 2);
    ZT_OK(w->t, put(t2, '1', 12));
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, count_where(w, t1, 3) == 0);
    ZT_OK(w->t, cohort_commit(t1));
    outcome(w, "G-single, predicate", "prevented: T1's predicates read one state");
}

/* G-single with a write: T1 reads 1, T2 changes both, T1 deletes WHERE value = 20. */
static void
g_single_write(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, get(w, t1, '1') == 10);
    ZT_OK(w->t, put(t2, '1', 12));
    ZT_OK(w->t, put(t2, '2', 18));
    ZT_OK(w->t, cohort_commit(t2));
    ZT_CHECK(w->t, count_where(w, t1, 20) == 1);
    ZT_STATUS(w->t, cohort_txn_del(t1, NULL, "2", 1), COHORT_CONFLICT);
    ZT_OK(w->t, cohort_abort(t1));
    ZT_CHECK(w->t, committed(w, '1') == 12 && committed(w, '2') == 18);
    outcome(w, "G-single, write", "prevented: T1's delete is refused (CONFLICT)");
}

/* G2-item: write skew. */
static void
g2_item(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, get(w, t1, '1') == 10 && get(w, t1, '2') == 20);
    ZT_CHECK(w->t, get(w, t2, '1') == 10 && get(w, t2, '2') == 20);
    ZT_OK(w->t, put(t1, '1', 11));
    ZT_OK(w->t, put(t2, '2', 21));
    ZT_OK(w->t, cohort_commit(t1));
    if (w->level == COHORT_SERIALIZABLE) {
        ZT_STATUS(w->t, cohort_commit(t2), COHORT_CONFLICT);
        ZT_CHECK(w->t, committed(w, '1') == 11 && committed(w, '2') == 20);
        outcome(w, "G2-item", "prevented: T2's commit is refused (CONFLICT)");
    } else {
        ZT_OK(w->t, cohort_commit(t2));
        ZT_CHECK(w->t, committed(w, '1') == 11 && committed(w, '2') == 21);
        outcome(w, "G2-item", "allowed: both commit (write skew)");
    }
}

/* G2: anti-dependency cycles over predicates: each inserts what the other's predicate would have found. */
static void
g2(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2 = begin(w);

    ZT_CHECK(w->t, count_where(w, t1, 3) == 0 && count_where(w, t2, 3) == 0);
    ZT_OK(w->t, put(t1, '3', 30));
    ZT_OK(w->t, put(t2, '4', 42));
    ZT_OK(w->t, cohort_commit(t1));
    if (w->level == COHORT_SERIALIZABLE) {
        ZT_STATUS(w->t, cohort_commit(t2), COHORT_CONFLICT);
        ZT_CHECK(w->t, committed(w, '4') == -1);
        outcome(w, "G2", "prevented: T2's commit is refused (CONFLICT): a phantom");
    } else {
        ZT_OK(w->t, cohort_commit(t2));
        ZT_CHECK(w->t, committed(w, '3') == 30 && committed(w, '4') == 42);
        outcome(w, "G2", "allowed: both commit");
    }
}

/* G2 of three: a read-only transaction sees what no serial order gives (Fekete, O'Neil, O'Neil 2004). */
static void
g2_read_only(struct world *w)
{
    cohort_txn *t1 = begin(w), *t2, *t3;
    int rc;

    ZT_CHECK(w->t, get(w, t1, '1') == 10 && get(w, t1, '2') == 20);
    t2 = begin(w);
    ZT_OK(w->t, put(t2, '2', get(w, t2, '2') + 5));
    ZT_OK(w->t, cohort_commit(t2));
    t3 = begin(w);
    ZT_CHECK(w->t, get(w, t3, '1') == 10 && get(w, t3, '2') == 25);
    ZT_OK(w->t, cohort_commit(t3));
    ZT_OK(w->t, put(t1, '1', 0));
    rc = cohort_commit(t1);
    if (w->level == COHORT_SERIALIZABLE) {
        ZT_STATUS(w->t, rc, COHORT_CONFLICT);
        outcome(w, "G2, two edges", "prevented: T1's commit is refused (CONFLICT)");
    } else {
        ZT_OK(w->t, rc);
        outcome(w, "G2, two edges", "allowed: T3 saw T2 and not T1, which read before T2");
    }
}

static void (*const anomalies[])(struct world *w) = {
    g0,
    g1a,
    g1b,
    g1c,
    otv,
    pmp,
    pmp_write,
    p4,
    g_single,
    g_single_predicate,
    g_single_write,
    g2_item,
    g2,
    g2_read_only,
};

static void
run_all(struct zt *t, enum cohort_isolation level)
{
    struct world w;

    for (size_t i = 0; i < CH_ARRAY_LEN(anomalies); i++) {
        world_open(t, &w, level);
        anomalies[i](&w);
        world_close(&w);
    }
}

static void
test_snapshot(struct zt *t)
{
    run_all(t, COHORT_SNAPSHOT);
}

static void
test_serializable(struct zt *t)
{
    run_all(t, COHORT_SERIALIZABLE);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"snapshot", test_snapshot, 1},
        {"serializable", test_serializable, 1},
    };

    return zt_main(argc, argv, "hermitage", cases, CH_ARRAY_LEN(cases));
}
