/* bank_test.c - money is neither made nor lost.
 *
 * Goal: threads transfer between accounts that lie in the main tree and in named trees; whoever reads, at either level, at any
 * time, sees the same total; so after aborts, rollbacks to savepoints, prepared transfers that wait for their decision, drops of trees
 * under readers and writers, crashes and reopenings. And nobody hangs.
 *
 * Method: rounds. In each, threads work for a number of transfers; then the database is closed or killed with transfers open, opened
 * again, prepared transfers are decided at random, and the total is taken. A transfer moves money between up to four accounts.
 * Few accounts, so that waits, deadlocks and conflicts are the rule: the hot case has four, and long timeouts.
 */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    TREES = 3, /* named ones; account n lies in tree n % (TREES + 1), 0 = main */
    ACCOUNTS_MAX = 48,
    START = 1000,
    THREADS = 5,
    ROUNDS = 3,
    HANG_SECONDS = 100,
    LONG_MS = 60000, /* a wait that only an event ends */
};

struct bank {
    struct iso w;
    unsigned accounts;
    int64_t timeout_ms;
    unsigned transfers;        /* of a thread in a round */
    _Atomic uint32_t next_gid; /* relaxed: only unique */
    _Atomic bool stop;         /* relaxed: when is of no concern */
    cohort_tree *trees[TREES + 1];
};

struct teller {
    struct bank *b;
    struct rt_thread thread;
    struct ch_prng rng;
    cohort_txn *open; /* left open at the end of the round */
    struct cohort_value value;
    uint64_t done, conflicts, prepared;
    int rc;
    const char *what;
};

static uint64_t
below(struct teller *t, uint64_t n)
{
    return ch_prng_below(&t->rng, n);
}

static void
wrong(struct teller *t, const char *what, int rc)
{
    if (t->what != NULL)
        return;
    t->what = what;
    t->rc = rc;
    (void)fprintf(stderr, "%s: %d (%s: %s)\n", what, rc, cohort_strerror(rc),
                  cohort_last_error()->text);
}

/* ---- accounts ---- */

static size_t
account_key(unsigned n, char *out)
{
    return (size_t)snprintf(out, 16, "account-%03u", n);
}

static int
balance(struct teller *t, cohort_txn *txn, unsigned n, bool lock, int64_t *out)
{
    cohort_tree *tree = t->b->trees[n % (TREES + 1)];
    char key[16];
    size_t bytes = account_key(n, key);
    int rc = lock ? cohort_txn_get_for_update(txn, tree, key, bytes, &t->value)
                  : cohort_txn_get(txn, tree, key, bytes, &t->value);

    if (rc == 0 && t->value.bytes != sizeof(*out))
        wrong(t, "an account is damaged", 0);
    else if (rc == 0)
        memcpy(out, t->value.data, sizeof(*out));
    else if (rc == COHORT_NOTFOUND)
        wrong(t, "an account is missing", rc);
    return rc;
}

static int
set_balance(struct bank *b, cohort_txn *txn, unsigned n, int64_t amount)
{
    char key[16];

    return cohort_txn_put(txn, b->trees[n % (TREES + 1)], key, account_key(n, key), &amount,
                          sizeof(amount));
}

static cohort_txn *
begin(struct teller *t, bool read_only)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = read_only;
    o.isolation = below(t, 3) == 0 ? COHORT_SERIALIZABLE : COHORT_SNAPSHOT;
    o.lock_timeout_ms = t->b->timeout_ms;
    rc = cohort_begin(t->b->w.db, &o, &txn);
    if (rc != 0)
        wrong(t, "begin", rc);
    return txn;
}

/* Takes from one account and gives to another: two writes that belong together. */
static int
move(struct teller *t, cohort_txn *txn)
{
    unsigned from = (unsigned)below(t, t->b->accounts), to = (unsigned)below(t, t->b->accounts);
    int64_t amount = (int64_t)below(t, 20), a = 0, b = 0;
    bool lock = below(t, 2) == 0;
    int rc;

    if (from == to)
        return 0;
    rc = balance(t, txn, from, lock, &a);
    if (rc == 0)
        rc = set_balance(t->b, txn, from, a - amount);
    if (rc == 0)
        rc = balance(t, txn, to, lock, &b);
    return rc == 0 ? set_balance(t->b, txn, to, b + amount) : rc;
}

/* One that may be rolled back, failed or not, without the rest. */
static int
nested_move(struct teller *t, cohort_txn *txn)
{
    uint64_t savepoint;
    int rc = cohort_savepoint(txn, &savepoint), moved;

    if (rc != 0)
        return rc;
    moved = move(t, txn);
    if (moved == 0 && below(t, 2) == 0)
        return cohort_release(txn, savepoint);
    if (moved != 0 && cohort_class_of(moved) != COHORT_CLASS_CONFLICT)
        return moved;
    if (moved == COHORT_SNAPSHOT_TOO_OLD)
        return moved;
    return cohort_rollback_to(txn, savepoint);
}

static void
finish(struct teller *t, cohort_txn *txn, int rc)
{
    char gid[24];
    uint64_t draw = below(t, 20), position;

    if (rc != 0 || draw < 3) {
        int undo = cohort_abort(txn);

        if (undo != 0)
            wrong(t, "abort", undo);
    } else if (draw < 5) {
        (void)snprintf(gid, sizeof(gid), "%u",
                       atomic_fetch_add_explicit(&t->b->next_gid, 1, memory_order_relaxed));
        rc = cohort_prepare(txn, K(gid));
        if (rc == 0 && draw < 4) /* else somebody decides in a later round, if it is left */
            rc = below(t, 2) == 0 ? cohort_commit_prepared(t->b->w.db, K(gid))
                                  : cohort_abort_prepared(t->b->w.db, K(gid));
        if (rc == COHORT_NOTFOUND) /* decide_one() of another was faster */
            rc = 0;
        t->prepared += rc == 0;
    } else if (draw < 7) {
        rc = cohort_commit_visible(txn, &position);
    } else {
        rc = cohort_commit(txn);
    }
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_CONFLICT)
        wrong(t, "transfer", rc);
    t->conflicts += rc != 0;
    t->done += rc == 0;
}

/* Decides one that is prepared, whoever prepared it; so nobody waits for one for ever. */
struct first_gid {
    char text[24];
};

static int
visit_first(void *arg, const void *gid, size_t bytes)
{
    struct first_gid *f = arg;

    if (bytes >= sizeof(f->text))
        return COHORT_EINVAL;
    memcpy(f->text, gid, bytes);
    f->text[bytes] = '\0';
    return 1;
}

static void
decide_one(struct teller *t)
{
    struct first_gid f;
    int rc = cohort_list_prepared(t->b->w.db, visit_first, &f);

    if (rc != 1)
        return;
    rc = below(t, 2) == 0 ? cohort_commit_prepared(t->b->w.db, K(f.text))
                          : cohort_abort_prepared(t->b->w.db, K(f.text));
    if (rc != 0 && rc != COHORT_NOTFOUND) /* another one was faster */
        wrong(t, "decision", rc);
}

static void
teller_main(void *arg)
{
    struct teller *t = arg;

    for (unsigned i = 0; i < t->b->transfers && t->what == NULL; i++) {
        cohort_txn *txn = begin(t, false);
        int rc = 0;

        for (uint64_t moves = 1 + below(t, 2); moves > 0 && rc == 0 && txn != NULL; moves--)
            rc = below(t, 3) == 0 ? nested_move(t, txn) : move(t, txn);
        /* Others would wait for it until they time out. */
        if (txn != NULL && i + 1 == t->b->transfers && rc == 0 && t->b->timeout_ms < LONG_MS)
            t->open = txn;
        else if (txn != NULL)
            finish(t, txn, rc);
        decide_one(t);
    }
}

/* ---- auditors ---- */

static int
total_by_gets(struct teller *t, cohort_txn *txn, int64_t *total)
{
    int64_t amount = 0;
    int rc = 0;

    *total = 0;
    for (unsigned n = 0; n < t->b->accounts && rc == 0; n++) {
        rc = balance(t, txn, n, false, &amount);
        *total += amount;
    }
    return rc;
}

static int
total_by_scans(struct teller *t, cohort_txn *txn, int64_t *total)
{
    bool back = below(t, 2) == 0;
    struct cohort_slice value;
    int64_t amount;
    int rc = 0;

    *total = 0;
    for (int i = 0; i <= TREES && rc == 0; i++) {
        cohort_cursor *c = NULL;

        rc = cohort_txn_cursor(txn, t->b->trees[i], &c);
        if (rc != 0)
            return rc;
        rc = back ? cohort_cursor_last(c) : cohort_cursor_first(c);
        while (rc == 0) {
            rc = cohort_cursor_entry(c, NULL, &value);
            if (rc == 0)
                memcpy(&amount, value.data, sizeof(amount));
            if (rc == 0)
                *total += amount;
            if (rc == 0)
                rc = back ? cohort_cursor_prev(c) : cohort_cursor_next(c);
        }
        cohort_cursor_close(c);
        rc = rc == COHORT_NOTFOUND ? 0 : rc;
    }
    return rc;
}

static void
audit(struct teller *t)
{
    cohort_txn *txn = begin(t, below(t, 2) == 0);
    int64_t total = 0;
    int rc = 0;

    for (uint64_t times = 1 + below(t, 3); times > 0 && rc == 0 && txn != NULL; times--) {
        rc = below(t, 2) == 0 ? total_by_gets(t, txn, &total) : total_by_scans(t, txn, &total);
        if (rc == 0 && total != (int64_t)t->b->accounts * START)
            wrong(t, "the total is not what it was", (int)total);
    }
    if (rc != 0 && rc != COHORT_SNAPSHOT_TOO_OLD)
        wrong(t, "audit", rc);
    rc = txn != NULL ? cohort_abort(txn) : 0;
    if (rc != 0)
        wrong(t, "end of an audit", rc);
    t->done++;
}

static void
auditor_main(void *arg)
{
    struct teller *t = arg;

    while (t->what == NULL && !atomic_load_explicit(&t->b->stop, memory_order_relaxed)) {
        audit(t);
        decide_one(t); /* all tellers may wait for it */
    }
}

/* Makes, fills, empties and drops a tree all the time, while a handle of it is read and written: nobody is hurt. */
static void
dropper_main(void *arg)
{
    struct teller *t = arg;
    cohort_db *db = t->b->w.db;

    while (t->what == NULL && !atomic_load_explicit(&t->b->stop, memory_order_relaxed)) {
        cohort_tree *tree = NULL;
        int rc = cohort_tree_open(db, NULL, "drop me", COHORT_TREE_CREATE, NULL, &tree);

        for (int i = 0; i < 20 && rc == 0; i++) {
            uint64_t key = below(t, 100);

            rc = cohort_tree_put(tree, &key, sizeof(key), "some value", 10);
        }
        if (rc == 0 && below(t, 2) == 0)
            rc = cohort_tree_truncate(db, NULL, "drop me");
        else if (rc == 0)
            rc = cohort_tree_drop(db, NULL, "drop me", COHORT_TREE_IF_EXISTS);
        if (rc != 0 && rc != COHORT_NOTFOUND && cohort_class_of(rc) != COHORT_CLASS_CONFLICT)
            wrong(t, "drops", rc);
        cohort_tree_close(tree);
        t->done++;
        rt_sleep_ns(1000000); /* the log is not its own */
    }
}

/* ---- rounds ---- */

static void
trees_open(struct bank *b)
{
    static const char *const names[TREES + 1] = {NULL, "branch 1", "branch 2", "branch 3"};

    for (int i = 1; i <= TREES; i++)
        b->trees[i] = iso_tree(&b->w, names[i]);
}

static void
trees_close(struct bank *b)
{
    for (int i = 1; i <= TREES; i++)
        cohort_tree_close(b->trees[i]);
}

static void
bank_create(struct zt *t, struct bank *b, unsigned accounts, int64_t timeout_ms, unsigned transfers)
{
    static const char *const durability[] = {"sync", "async", "none"};
    const char *settings[] = {"durability",
                              durability[zt_below(t, 3)],
                              "version_bytes",
                              zt_below(t, 2) == 0 ? "32K" : "1M",
                              "log_bytes",
                              "1M",
                              NULL};
    cohort_txn *txn;

    memset(b, 0, sizeof(*b));
    iso_create(t, &b->w, 24, settings);
    b->accounts = accounts;
    b->timeout_ms = timeout_ms;
    b->transfers = transfers;
    trees_open(b);
    txn = iso_snapshot(&b->w);
    for (unsigned n = 0; n < accounts; n++)
        ZT_OK(t, set_balance(b, txn, n, START));
    ZT_OK(t, cohort_commit(txn));
    ZT_OK(t, cohort_sync(b->w.db));
}

static void
check_tellers(struct zt *t, struct teller *tellers, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (tellers[i].what != NULL)
            (void)fprintf(stderr, "thread %u: %s (%d)\n", i, tellers[i].what, tellers[i].rc);
        ZT_CHECK(t, tellers[i].what == NULL);
        cohort_value_free(&tellers[i].value);
    }
}

/* Tellers work until they are done; two auditors and the dropper until the tellers are. */
static void
work(struct zt *t, struct bank *b, struct teller *tellers)
{
    atomic_store_explicit(&b->stop, false, memory_order_relaxed);
    for (unsigned i = 0; i < THREADS + 3; i++) {
        tellers[i] = (struct teller){.b = b};
        ch_prng_init(&tellers[i].rng, zt_below(t, UINT32_MAX));
        ZT_OK(t, rt_spawn(&tellers[i].thread, "teller",
                          i < THREADS       ? teller_main
                          : i < THREADS + 2 ? auditor_main
                                            : dropper_main,
                          &tellers[i]));
    }
    for (unsigned i = 0; i < THREADS + 3; i++) {
        if (i == THREADS)
            atomic_store_explicit(&b->stop, true, memory_order_relaxed);
        rt_join(&tellers[i].thread);
    }
}

static void
audit_once(struct zt *t, struct bank *b)
{
    struct teller auditor = {.b = b};

    ch_prng_init(&auditor.rng, t->seed);
    for (int i = 0; i < 4; i++)
        audit(&auditor);
    check_tellers(t, &auditor, 1);
}

/* What waits for a decision gets one; how many there were. */
static unsigned
decide_all(struct zt *t, struct bank *b)
{
    struct teller decider = {.b = b};
    struct cohort_stats s;
    unsigned n = 0;

    ch_prng_init(&decider.rng, t->seed);
    for (iso_stats(&b->w, &s); s.transactions_prepared > 0; iso_stats(&b->w, &s), n++) {
        decide_one(&decider);
        audit_once(t, b);
    }
    check_tellers(t, &decider, 1);
    return n;
}

static void
run_bank(struct zt *t, unsigned accounts, int64_t timeout_ms, unsigned transfers)
{
    struct bank *b = calloc(1, sizeof(*b));
    struct teller tellers[THREADS + 3];
    uint64_t done = 0;

    ZT_CHECK(t, b != NULL);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(HANG_SECONDS); /* who hangs is ended */
    bank_create(t, b, accounts, timeout_ms, transfers);
    for (int round = 0; round < ROUNDS; round++) {
        bool kill = zt_below(t, 3) > 0;

        work(t, b, tellers);
        check_tellers(t, tellers, THREADS + 3);
        audit_once(t, b);
        for (unsigned i = 0; i < THREADS; i++) {
            done += tellers[i].done;
            if (tellers[i].open != NULL && kill)
                api_forget(tellers[i].open);
            else if (tellers[i].open != NULL)
                ZT_OK(t, cohort_abort(tellers[i].open));
        }
        trees_close(b);
        if (kill)
            iso_crash_and_open(&b->w);
        else
            iso_close_and_open(&b->w);
        trees_open(b);
        audit_once(t, b);
        (void)decide_all(t, b);
        audit_once(t, b);
    }
    ZT_CHECK(t, done > 0);
    trees_close(b);
    iso_destroy(&b->w);
    (void)alarm(0);
    free(b);
}

static void
test_bank(struct zt *t)
{
    run_bank(t, ACCOUNTS_MAX, 20, 100);
}

/* Goal: with hardly any records and waits that only an event ends no wakeup is lost: every wait ends by a commit, an abort or
 * DEADLOCK. */
static void
test_hot(struct zt *t)
{
    run_bank(t, 4, LONG_MS, 100);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"bank", test_bank, 5},
        {"hot", test_hot, 5},
    };

    return zt_main(argc, argv, "bank", cases, CH_ARRAY_LEN(cases));
}
