/* txn_big_test.c - transactions and snapshots against bounded memory: far larger than the cache, far longer than the log.
 *
 * Values are a function of number and version, so what a snapshot sees can be wrong in no way that goes unnoticed.
 */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX = ISO_VALUE_MAX,
    BIG_KEYS = 20000, /* about 500 bytes each: ten times the cache of 1 MiB */
    BASE = 2000,      /* of them exist before, at version 1 */
    HOT = 200,
};

/* ---- helpers ---- */

/* Numbers [0, n) at `version` in transactions of 500. */
static void
load(struct iso *w, uint32_t n, uint32_t version)
{
    cohort_txn *a = NULL;

    for (uint32_t i = 0; i < n; i++) {
        if (i % 500 == 0)
            a = iso_snapshot(w);
        ZT_OK(w->t, iso_put_number(a, NULL, i, version, MAX));
        if (i % 500 == 499 || i == n - 1)
            ZT_OK(w->t, cohort_commit(a));
    }
}

/* The transaction (NULL: one begun now) sees exactly the numbers [0, n), all at `version`. */
static void
verify_all(struct iso *w, cohort_txn *txn, uint32_t n, uint32_t version)
{
    cohort_txn *a = txn != NULL ? txn : iso_snapshot(w);
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    uint32_t at = 0, got;
    int rc;

    ZT_OK(w->t, cohort_txn_cursor(a, NULL, &c));
    for (rc = cohort_cursor_first(c); rc == 0; rc = cohort_cursor_next(c), at++) {
        const uint8_t *k;

        ZT_OK(w->t, cohort_cursor_entry(c, &key, &value));
        k = key.data;
        ZT_CHECK(w->t, key.bytes == 4 && at == ((uint32_t)k[0] << 24 | (uint32_t)k[1] << 16 |
                                                (uint32_t)k[2] << 8 | k[3]));
        ZT_OK(w->t, iso_version_of(at, MAX, value.data, value.bytes, &got));
        ZT_CHECK(w->t, got == version);
    }
    ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    ZT_CHECK(w->t, at == n);
    cohort_cursor_close(c);
    if (txn == NULL)
        ZT_OK(w->t, cohort_commit(a));
}

/* Puts all BIG_KEYS at version 2, in an order that jumps about, `from` and `to` in it. */
static int
big_writes(cohort_txn *a, uint32_t from, uint32_t to)
{
    int rc = 0;

    for (uint32_t i = from; i < to && rc == 0; i++)
        rc = iso_put_number(a, NULL, (uint32_t)((uint64_t)i * 7919 % BIG_KEYS), 2, MAX);
    return rc;
}

static const char *const big_settings[] = {
    "version_bytes", "256K", "durability", "none", "log_bytes", "1M", "lock_timeout_ms", "0", NULL,
};

static void
big_create(struct zt *t, struct iso *w)
{
    iso_create(t, w, 96, big_settings);
    load(w, BASE, 1);
}

/* ---- ten times the cache ---- */

/* Goal: one transaction writes ten times the cache and forty times the memory for versions, under log that holds a tenth of it;
 * others' snapshots do not see it before its commit, and all of it after that; also after a crash. */
static void
test_big_commit(struct zt *t)
{
    struct iso w;
    struct cohort_stats s;
    cohort_txn *a;

    big_create(t, &w);
    a = iso_snapshot(&w);
    ZT_OK(t, big_writes(a, 0, BIG_KEYS));
    iso_stats(&w, &s);
    ZT_CHECK(t, s.undo_spilled_bytes > 0);
    verify_all(&w, NULL, BASE, 1);
    verify_all(&w, a, BIG_KEYS, 2);
    ZT_OK(t, cohort_commit(a));
    verify_all(&w, NULL, BIG_KEYS, 2);
    ZT_OK(t, cohort_sync(w.db));
    iso_crash_and_open(&w);
    verify_all(&w, NULL, BIG_KEYS, 2);
    iso_destroy(&w);
}

/* Goal: the same, aborted; the last third by a savepoint first. */
static void
test_big_abort(struct zt *t)
{
    struct iso w;
    cohort_txn *a;
    uint64_t sp;

    big_create(t, &w);
    a = iso_snapshot(&w);
    ZT_OK(t, big_writes(a, 0, BIG_KEYS * 2 / 3));
    ZT_OK(t, cohort_savepoint(a, &sp));
    ZT_OK(t, big_writes(a, BIG_KEYS * 2 / 3, BIG_KEYS));
    ZT_OK(t, cohort_rollback_to(a, sp));
    verify_all(&w, NULL, BASE, 1);
    ZT_OK(t, cohort_abort(a));
    verify_all(&w, NULL, BASE, 1);
    load(&w, BASE, 3); /* no lock has stayed */
    ZT_OK(t, cohort_sync(w.db));
    iso_crash_and_open(&w);
    verify_all(&w, NULL, BASE, 3);
    iso_destroy(&w);
}

/* The power goes at write `n` of what follows; then recoveries, some of them cut short as well, until one succeeds. */
static void
recover_with_cuts(struct iso *w)
{
    for (uint64_t cuts = zt_below(w->t, 4); cuts > 0; cuts--) {
        struct dev_fault_plan plan = {.stop_after_writes = 1 + zt_below(w->t, 300)};

        if (iso_try_open(w, &plan) == 0)
            iso_crash(w);
        else
            sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
    }
    iso_open(w);
}

/* Goal: the power goes in the middle of a huge transaction, and in the middle of the recoveries that undo it. */
static void
test_big_crash(struct zt *t)
{
    struct iso w;
    cohort_txn *a;

    big_create(t, &w);
    ZT_OK(t, cohort_sync(w.db));
    a = iso_snapshot(&w);
    ZT_OK(t, big_writes(a, 0, 500 + (uint32_t)zt_below(t, BIG_KEYS - 500)));
    if (zt_below(t, 2) == 0)
        ZT_OK(t, cohort_sync(w.db));
    api_forget(a);
    iso_crash(&w);
    recover_with_cuts(&w);
    verify_all(&w, NULL, BASE, 1);
    load(&w, BASE, 4);
    verify_all(&w, NULL, BASE, 4);
    iso_destroy(&w);
}

/* Goal: the power goes while a huge transaction is being rolled back. */
static void
test_big_crash_in_rollback(struct zt *t)
{
    struct iso w;
    cohort_txn *a;
    int rc;

    big_create(t, &w);
    ZT_OK(t, cohort_sync(w.db));
    a = iso_snapshot(&w);
    ZT_OK(t, big_writes(a, 0, BIG_KEYS / 2));
    dev_fault_set(w.fault, &(struct dev_fault_plan){.stop_after_writes = 1 + zt_below(t, 600)});
    rc = cohort_abort(a); /* ends it, whether the power lasted or not */
    ZT_CHECK(t, rc == 0 || cohort_class_of(rc) == COHORT_CLASS_FAILED ||
                    cohort_class_of(rc) == COHORT_CLASS_IO);
    iso_crash(&w);
    recover_with_cuts(&w);
    verify_all(&w, NULL, BASE, 1);
    iso_destroy(&w);
}

/* Goal: a huge prepared transaction: its locks and its undo outlive crashes; then it is undone or becomes visible in one piece. */
static void
test_big_prepared(struct zt *t)
{
    bool commit = zt_below(t, 2) == 0;
    struct iso w;
    cohort_txn *a;

    big_create(t, &w);
    a = iso_snapshot(&w);
    ZT_OK(t, big_writes(a, 0, BIG_KEYS));
    ZT_OK(t, cohort_prepare(a, K("big")));
    for (int i = 0; i < 2; i++) {
        iso_crash(&w);
        recover_with_cuts(&w);
        verify_all(&w, NULL, BASE, 1);
        a = iso_snapshot(&w);
        for (uint32_t n = (uint32_t)zt_below(t, 50); n < BIG_KEYS; n += 97)
            ZT_STATUS(t, iso_put_number(a, NULL, n, 3, MAX), COHORT_CONFLICT);
        ZT_OK(t, cohort_abort(a));
    }
    ZT_OK(t,
          commit ? cohort_commit_prepared(w.db, K("big")) : cohort_abort_prepared(w.db, K("big")));
    verify_all(&w, NULL, commit ? BIG_KEYS : BASE, commit ? 2 : 1);
    ZT_OK(t, cohort_sync(w.db));
    iso_crash_and_open(&w);
    verify_all(&w, NULL, commit ? BIG_KEYS : BASE, commit ? 2 : 1);
    iso_destroy(&w);
}

/* ---- long readers ---- */

/* Goal: a snapshot that is open while the log goes round many times stops neither the log nor the writers, nor does it lose
 * anything: versions between it and now are not kept, so it needs no more memory than one version of each record. */
static void
test_long_reader(struct zt *t)
{
    static const char *const settings[] = {"version_bytes", "1M", "durability", "none", NULL};
    struct iso w;
    struct cohort_stats before, after;
    cohort_txn *reader;
    uint64_t start;

    iso_create(t, &w, 32, settings);
    load(&w, HOT, 1);
    iso_stats(&w, &before);
    start = cohort_log_position(w.db);
    reader = iso_snapshot(&w);
    for (uint32_t round = 2; cohort_log_position(w.db) - start < 12 * before.log_bytes; round++) {
        load(&w, HOT, round);
        if (round % 32 == 0)
            verify_all(&w, reader, HOT, 1);
    }
    iso_stats(&w, &after);
    ZT_CHECK(t, after.checkpoints > before.checkpoints + 5);
    ZT_CHECK(t, after.snapshots_killed == before.snapshots_killed);
    ZT_CHECK(t, after.version_bytes <= w.opts.version_bytes);
    verify_all(&w, reader, HOT, 1);
    ZT_OK(t, cohort_commit(reader));
    iso_destroy(&w);
}

/* One random read of a snapshot of version `want`: right, or TOO_OLD. */
static bool
read_or_killed(struct iso *w, cohort_txn *reader, uint32_t want, struct cohort_value *v)
{
    uint32_t version = 0;
    int rc = iso_get_number(reader, NULL, (uint32_t)zt_below(w->t, BASE), MAX, v, &version);

    if (rc == COHORT_SNAPSHOT_TOO_OLD)
        return true;
    ZT_OK(w->t, rc);
    ZT_CHECK(w->t, version == want);
    return false;
}

/* Goal: with hardly any memory for versions the oldest snapshot is ended, others live as long as they can, and what one says
 * before its end is right. */
static void
test_too_old(struct zt *t)
{
    static const char *const settings[] = {"version_bytes", "32K", "durability", "none", NULL};
    enum {
        READERS = 4
    };
    struct iso w;
    struct cohort_stats s;
    struct cohort_value v = {0};
    cohort_txn *readers[READERS];
    uint32_t versions[READERS];
    bool dead[READERS] = {false};
    unsigned killed = 0;

    iso_create(t, &w, 32, settings);
    load(&w, BASE, 1);
    for (uint32_t r = 0; r < READERS; r++) {
        readers[r] = iso_begin(&w, r % 2 == 0 ? COHORT_SNAPSHOT : COHORT_SERIALIZABLE, 0);
        versions[r] = r + 1;
        load(&w, BASE, r + 2);
        for (int i = 0; i < 40; i++)
            for (uint32_t k = 0; k <= r; k++)
                if (!dead[k])
                    dead[k] = read_or_killed(&w, readers[k], versions[k], &v);
    }
    for (uint32_t r = 0; r < READERS; r++)
        killed += dead[r];
    iso_stats(&w, &s);
    ZT_CHECK(t, killed > 0 && s.snapshots_killed >= killed);
    for (uint32_t r = 0; r < READERS; r++) {
        if (!dead[r]) {
            ZT_OK(t, cohort_abort(readers[r]));
            continue;
        }
        ZT_CHECK(t, read_or_killed(&w, readers[r], 0, &v)); /* once dead, dead */
        ZT_STATUS(t, iso_put_number(readers[r], NULL, 1, 99, MAX), COHORT_SNAPSHOT_TOO_OLD);
        if (r % 2 == 0) {
            ZT_OK(t, cohort_txn_refresh(readers[r])); /* a new view lives */
            ZT_CHECK(t, !read_or_killed(&w, readers[r], READERS + 1, &v));
        }
        ZT_OK(t, cohort_abort(readers[r]));
    }
    verify_all(&w, NULL, BASE, READERS + 1);
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* Goal: a writer whose snapshot was ended can not commit what it wrote from it, and takes nothing of it along. */
static void
test_too_old_writer(struct zt *t)
{
    static const char *const settings[] = {"version_bytes", "32K", "durability", "none", NULL};
    struct cohort_value v = {0};
    struct iso w;
    cohort_txn *a;
    int rc;

    iso_create(t, &w, 32, settings);
    load(&w, BASE, 1);
    a = iso_snapshot(&w);
    ZT_OK(t, iso_put_number(a, NULL, BASE + 1, 7, MAX));
    for (uint32_t i = 2; i < 20 && !read_or_killed(&w, a, 1, &v); i++)
        load(&w, BASE, i);
    ZT_CHECK(t, read_or_killed(&w, a, 1, &v));
    rc = cohort_commit(a);
    ZT_STATUS(t, rc, COHORT_SNAPSHOT_TOO_OLD);
    a = iso_snapshot(&w);
    ZT_OK(t, iso_put_number(a, NULL, BASE + 1, 8, MAX)); /* its lock is gone */
    ZT_OK(t, cohort_abort(a));
    ZT_STATUS(t, cohort_get(w.db, "\0\0\x07\xd1", 4, &v), COHORT_NOTFOUND);
    cohort_value_free(&v);
    iso_destroy(&w);
}

/* ---- killing snapshots under load ---- */

enum {
    WRITERS = 2,
    CHURN_READERS = 3,
    SUM_KEYS = 400,
};

struct churn {
    struct rt_thread thread;
    struct iso *w;
    struct ch_prng rng;
    _Atomic bool *stop; /* relaxed: when is of no concern */
    uint64_t done, killed;
    int rc;
    const char *what;
};

static bool
churn_on(struct churn *c)
{
    return c->rc == 0 && c->what == NULL && !atomic_load_explicit(c->stop, memory_order_relaxed);
}

static cohort_txn *
churn_begin(struct churn *c)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;

    cohort_txn_options_init(&o);
    o.isolation = ch_prng_below(&c->rng, 2) == 0 ? COHORT_SNAPSHOT : COHORT_SERIALIZABLE;
    o.lock_timeout_ms = 1;
    c->rc = cohort_begin(c->w->db, &o, &txn);
    return txn;
}

/* Both numbers of a pair get the same new version: pairs are equal in every snapshot. */
static void
churn_writer(void *arg)
{
    struct churn *c = arg;
    uint32_t version = 1;

    while (churn_on(c)) {
        cohort_txn *a = churn_begin(c);
        int rc = c->rc;

        for (int i = 0; i < 4 && rc == 0; i++) {
            uint32_t n = (uint32_t)ch_prng_below(&c->rng, SUM_KEYS / 2);

            rc = iso_put_number(a, NULL, n, ++version, MAX);
            if (rc == 0)
                rc = iso_put_number(a, NULL, n + SUM_KEYS / 2, version, MAX);
        }
        if (rc == 0)
            rc = cohort_commit(a);
        else
            c->rc = cohort_abort(a);
        if (cohort_class_of(rc) != COHORT_CLASS_CONFLICT && rc != 0)
            c->rc = rc;
        c->done += rc == 0;
    }
}

static int
pair_read(struct churn *c, cohort_txn *a, struct cohort_value *v)
{
    uint32_t n = (uint32_t)ch_prng_below(&c->rng, SUM_KEYS / 2), first = 0, second = 0;
    int rc = iso_get_number(a, NULL, n, MAX, v, &first);

    if (rc == 0)
        rc = iso_get_number(a, NULL, n + SUM_KEYS / 2, MAX, v, &second);
    if (rc == 0 && first != second)
        c->what = "a snapshot holds half of a transaction";
    return rc;
}

static void
churn_reader(void *arg)
{
    struct churn *c = arg;
    struct cohort_value v = {0};

    while (churn_on(c)) {
        cohort_txn *a = churn_begin(c);
        int rc = c->rc;

        for (uint64_t i = ch_prng_below(&c->rng, 200); i > 0 && rc == 0 && c->what == NULL; i--)
            rc = pair_read(c, a, &v);
        if (rc != 0 && rc != COHORT_SNAPSHOT_TOO_OLD)
            c->rc = rc;
        c->killed += rc == COHORT_SNAPSHOT_TOO_OLD;
        if (a != NULL) {
            rc = cohort_abort(a);
            c->rc = c->rc != 0 ? c->rc : rc;
        }
        c->done++;
    }
    cohort_value_free(&v);
}

/* Goal: snapshots are ended under load while readers stand on them: no reader ever sees half of a transaction. */
static void
test_killed_under_load(struct zt *t)
{
    static const char *const settings[] = {"version_bytes", "64K", "durability", "none",
                                           "log_bytes",     "2M",  NULL};
    struct churn c[WRITERS + CHURN_READERS];
    _Atomic bool stop = false;
    uint64_t killed = 0;
    struct iso w;

    iso_create(t, &w, 32, settings);
    load(&w, SUM_KEYS, 1);
    for (unsigned i = 0; i < CH_ARRAY_LEN(c); i++) {
        c[i] = (struct churn){.w = &w, .stop = &stop};
        ch_prng_init(&c[i].rng, t->seed * 100 + i);
        ZT_OK(t, rt_spawn(&c[i].thread, "churn", i < WRITERS ? churn_writer : churn_reader, &c[i]));
    }
    rt_sleep_ns(UINT64_C(1500000000));
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (unsigned i = 0; i < CH_ARRAY_LEN(c); i++) {
        rt_join(&c[i].thread);
        ZT_OK(t, c[i].rc);
        if (c[i].what != NULL)
            (void)fprintf(stderr, "thread %u: %s\n", i, c[i].what);
        ZT_CHECK(t, c[i].what == NULL && c[i].done > 0);
        killed += c[i].killed;
    }
    ZT_CHECK(t, killed > 0);
    iso_destroy(&w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"big_commit", test_big_commit, 1},
        {"big_abort", test_big_abort, 1},
        {"big_crash", test_big_crash, 4},
        {"big_crash_in_rollback", test_big_crash_in_rollback, 6},
        {"big_prepared", test_big_prepared, 2},
        {"long_reader", test_long_reader, 1},
        {"too_old", test_too_old, 2},
        {"too_old_writer", test_too_old_writer, 1},
        {"killed_under_load", test_killed_under_load, 1},
    };

    return zt_main(argc, argv, "txn_big", cases, CH_ARRAY_LEN(cases));
}
