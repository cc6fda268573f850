/* crash_test.c - the power goes at every single device write of a fixed script.
 *
 * Goal: on a drive with a volatile cache, whatever it kept, dropped, tore or garbled of the unflushed writes, recovery
 * brings back every acknowledged write, each batch and each transaction whole or not at all, nothing of one that was aborted or
 * never committed, and a database that passes cohort_check().
 * Method: run the script once to count its device writes W. For k = 1 .. W: a fresh drive, the same script, power off
 * at write k, crash by seed k, open, compare with what was acknowledged, check, write on, close, open again.
 *
 *   crash_test PRESET [STEP [FIRST]]     STEP > 1 samples every STEP-th k
 *
 * COHORT_RUNS_PERCENT=P (zt.h) makes STEP 100 / P times as large.
 */
#include "api/api_internal.h"
#include "base/base.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "zt/zt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEYS = 300,
    OPS = 2000,
    VALUE_MAX = 900,
    GROUP = 4,       /* keys per batch */
    LOSER_KEYS = 60, /* of a transaction that is open all the time */
    LOSER_EVERY = 15,
};

/* Version 0 = never written. The value of (key, version) is a function, so 4 bytes tell a state. */
struct model {
    uint32_t acked[KEYS];
    uint32_t tried[KEYS];
};

static bool
is_deleted(unsigned key, uint32_t version)
{
    return version == 0 || (key + version) % 7 == 0;
}

static size_t
make_value(unsigned id, uint32_t version, uint8_t *out)
{
    return zt_value(id, version, VALUE_MAX, out);
}

static size_t
make_key(unsigned key, char *out)
{
    return (size_t)snprintf(out, 32, "key-%05u", key * 7919 % 100003);
}

static int
write_group(cohort_db *db, cohort_batch *b, unsigned first, struct model *m)
{
    uint8_t value[VALUE_MAX];
    char key[32];
    int rc = 0;

    cohort_batch_clear(b);
    for (unsigned i = first; rc == 0 && i < first + GROUP; i++) {
        uint32_t v = ++m->tried[i];
        size_t kn = make_key(i, key);

        rc = is_deleted(i, v) ? cohort_batch_del(b, key, kn)
                              : cohort_batch_put(b, key, kn, value, make_value(i, v, value));
    }
    if (rc == 0)
        rc = cohort_write(db, b);
    for (unsigned i = first; rc == 0 && i < first + GROUP; i++)
        m->acked[i] = m->tried[i];
    return rc;
}

/* The same as a transaction, with a detour that is rolled back. */
static int
write_transaction(cohort_db *db, unsigned first, struct model *m)
{
    uint8_t value[VALUE_MAX];
    cohort_txn *t = NULL;
    uint64_t sp;
    char key[32];
    int rc = cohort_begin(db, NULL, &t);

    for (unsigned i = first; rc == 0 && i < first + GROUP; i++) {
        uint32_t v = ++m->tried[i];
        size_t kn = make_key(i, key);

        rc = cohort_savepoint(t, &sp);
        if (rc == 0)
            rc = cohort_txn_put(t, NULL, key, kn, "to be rolled back", 17);
        if (rc == 0)
            rc = cohort_rollback_to(t, sp);
        if (rc != 0)
            break;
        rc = is_deleted(i, v) ? cohort_txn_del(t, NULL, key, kn)
                              : cohort_txn_put(t, NULL, key, kn, value, make_value(i, v, value));
        rc = rc == COHORT_NOTFOUND ? 0 : rc;
    }
    if (rc == 0) {
        rc = cohort_commit(t);
    } else if (t != NULL && cohort_abort(t) != 0) {
        return rc; /* the handle has failed, as rc says */
    }
    for (unsigned i = first; rc == 0 && i < first + GROUP; i++)
        m->acked[i] = m->tried[i];
    return rc;
}

/* Writes over everything of a stretch of keys, and aborts. */
static int
write_aborted(cohort_db *db, unsigned first)
{
    cohort_txn *t = NULL;
    char key[32];
    int rc = cohort_begin(db, NULL, &t), aborted;

    for (unsigned i = first; rc == 0 && i < first + 20 && i < KEYS; i++) {
        size_t kn = make_key(i, key);

        rc = i % 3 == 0 ? cohort_txn_del(t, NULL, key, kn)
                        : cohort_txn_put(t, NULL, key, kn, "aborted", 7);
        rc = rc == COHORT_NOTFOUND ? 0 : rc;
    }
    aborted = cohort_abort(t);
    return rc != 0 ? rc : aborted;
}

static size_t
loser_key(unsigned i, char *out)
{
    return (size_t)snprintf(out, 32, "loser-%03u", i);
}

static int
write_loser(cohort_txn *loser, unsigned i)
{
    uint8_t value[VALUE_MAX];
    char key[32];

    return cohort_txn_put(loser, NULL, key, loser_key(i % LOSER_KEYS, key), value,
                          make_value(i, i, value));
}

static int
write_single(cohort_db *db, unsigned i, struct model *m)
{
    uint8_t value[VALUE_MAX];
    char key[32];
    size_t kn = make_key(i, key);
    uint32_t v = ++m->tried[i];
    int rc;

    if (is_deleted(i, v)) {
        rc = cohort_del(db, key, kn);
        if (rc == COHORT_NOTFOUND && is_deleted(i, m->acked[i]))
            rc = 0;
    } else {
        rc = cohort_put(db, key, kn, value, make_value(i, v, value));
    }
    if (rc == 0)
        m->acked[i] = v;
    return rc;
}

/* Keys below KEYS / 2 are written in groups, the others singly. Stops at the first error. */
static int
run_script(cohort_db *db, uint64_t seed, unsigned ops, struct model *m)
{
    cohort_batch *b = NULL;
    cohort_txn *loser = NULL;
    struct ch_prng p;
    int rc = cohort_batch_create(&b), aborted;

    if (rc == 0)
        rc = cohort_begin(db, NULL, &loser);
    ch_prng_init(&p, seed);
    for (unsigned n = 0; rc == 0 && n < ops; n++) {
        unsigned group = (unsigned)ch_prng_below(&p, KEYS / 2 / GROUP) * GROUP;

        if (n % LOSER_EVERY == 0 && (rc = write_loser(loser, n / LOSER_EVERY)) != 0)
            break;
        switch (ch_prng_below(&p, 12)) {
        case 0:
            rc = write_group(db, b, group, m);
            break;
        case 1:
            rc = write_transaction(db, group, m);
            break;
        case 2:
            rc = write_aborted(db, (unsigned)ch_prng_below(&p, KEYS));
            break;
        default:
            rc = write_single(db, KEYS / 2 + (unsigned)ch_prng_below(&p, KEYS / 2), m);
        }
    }
    cohort_batch_destroy(b);
    if (rc != 0 && loser != NULL)
        api_forget(loser); /* the power is off */
    aborted = rc == 0 ? cohort_abort(loser) : 0;
    return rc != 0 ? rc : aborted;
}

/* "oop/zones" is preset oop with the log in zones. */
static void
options(struct cohort_options *o, const char *preset)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(preset, "/"), preset);
    cohort_options_init(o);
    if (strstr(preset, "/zones") != NULL && cohort_options_set(o, "log_place", "zones") != 0)
        abort();
    if (cohort_options_set(o, "preset", name) != 0 ||
        cohort_options_set(o, "background", "no") != 0 ||
        cohort_options_set(o, "cache_bytes", "1M") != 0 ||
        cohort_options_set(o, "zone_bytes", "64K") != 0 ||
        cohort_options_set(o, "log_bytes", "256K") != 0)
        abort();
}

static bool
fail(const char *preset, uint64_t k, const char *what, unsigned key)
{
    printf("FAILED %s: power off at write %" PRIu64 ", key %u: %s (last error: %s %s)\n"
           "  replay: crash_test %s 1000000 %" PRIu64 "\n",
           preset, k, key, what, cohort_strerror(cohort_last_error()->code),
           cohort_last_error()->text, preset, k);
    return false;
}

static bool
state_is(const struct cohort_value *v, int rc, unsigned key, uint32_t version)
{
    uint8_t want[VALUE_MAX];
    size_t n;

    if (is_deleted(key, version))
        return rc == COHORT_NOTFOUND;
    if (rc != 0)
        return false;
    n = make_value(key, version, want);
    return v->bytes == n && memcmp(v->data, want, n) == 0;
}

/* The keys [first, first + n) were written together: all in the acknowledged state or all in the tried one. */
static bool
verify_unit(cohort_db *db, struct cohort_value *v, unsigned first, unsigned n, struct model *m)
{
    bool acked = true;
    bool tried = true;

    for (unsigned i = first; i < first + n; i++) {
        char key[32];
        int rc = cohort_get(db, key, make_key(i, key), v);

        acked = acked && state_is(v, rc, i, m->acked[i]);
        tried = tried && state_is(v, rc, i, m->tried[i]);
    }
    for (unsigned i = first; i < first + n; i++)
        m->acked[i] = m->tried[i] = tried ? m->tried[i] : m->acked[i];
    return acked || tried;
}

static bool
verify(cohort_db *db, const char *preset, uint64_t k, struct model *m)
{
    struct cohort_value v = {0};
    bool ok = true;

    for (unsigned i = 0; ok && i < KEYS / 2 / GROUP * GROUP; i += GROUP)
        if (!verify_unit(db, &v, i, GROUP, m))
            ok = fail(preset, k, "a batch is neither whole nor absent", i);
    for (unsigned i = KEYS / 2; ok && i < KEYS; i++)
        if (!verify_unit(db, &v, i, 1, m))
            ok = fail(preset, k, "neither the acknowledged nor the tried state", i);
    for (unsigned i = 0; ok && i < LOSER_KEYS; i++) {
        char key[32];

        if (cohort_get(db, key, loser_key(i, key), &v) != COHORT_NOTFOUND)
            ok = fail(preset, k, "something of a transaction that never was committed", i);
    }
    cohort_value_free(&v);
    return ok;
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    printf("  check: %s\n", line);
}

/* `created`: creation had returned, so there must be a root. Else the power may have garbled the very
 * first root record; what is there then is neither a database nor blank, and is created by force. */
static bool
after_crash(struct sim_drive *drive, const char *preset, uint64_t k, bool created, struct model *m)
{
    struct cohort_options o;
    struct dev *dev = NULL;
    cohort_db *db = NULL;
    bool ok;
    int rc;

    options(&o, preset);
    for (int round = 0; round < 2; round++) {
        bool root = false;
        bool blank = false;

        rc = dev_sim_open(drive, &dev);
        if (rc == 0)
            rc = meta_probe(dev, &root, &blank);
        if (rc == 0)
            rc = api_open_dev(dev, &o, !created && !root, &db);
        if (rc != 0)
            return fail(preset, k, "can't be opened", 0);
        created = true;
        ok = verify(db, preset, k, m);
        if (ok && cohort_check(db, print_finding, NULL, NULL) != 0)
            ok = fail(preset, k, "check", 0);
        if (ok && round == 0 && run_script(db, k + 1, 40, m) != 0)
            ok = fail(preset, k, "can't be written after recovery", 0);
        rc = cohort_close(db);
        if (ok && rc != 0)
            ok = fail(preset, k, "close", 0);
        if (!ok)
            return false;
    }
    return true;
}

/* Without a double write, in place is for drives that keep 4 KiB blocks whole. */
static const char *
drive_text(const char *preset)
{
    return strcmp(preset, "inplace-atomic") == 0
               ? "generic,bytes=16M,superblock=256K,cache=volatile,tear=no"
               : "generic,bytes=16M,superblock=256K,cache=volatile";
}

/* One run with the power off at write k (0 = never); *writes = device writes seen. */
static bool
run_one(const char *preset, uint64_t k, uint64_t *writes)
{
    struct model *m = calloc(1, sizeof(*m));
    struct dev_fault_plan plan = {.stop_after_writes = k};
    struct cohort_options o;
    struct sim_drive *drive = NULL;
    struct dev *dev = NULL;
    struct dev *fault = NULL;
    cohort_db *db = NULL;
    bool created, ok = true;
    int rc;

    options(&o, preset);
    if (m == NULL || sim_drive_create(drive_text(preset), &drive) != 0 ||
        dev_sim_open(drive, &dev) != 0 || dev_fault_open(dev, &plan, &fault) != 0) {
        free(m);
        sim_drive_destroy(drive);
        return fail(preset, k, "set-up", 0);
    }
    rc = api_open_dev(fault, &o, true, &db);
    created = rc == 0;
    if (created) {
        rc = run_script(db, 1, OPS, m);
        *writes = dev_fault_seen(fault, DEV_WRITE) + dev_fault_seen(fault, DEV_APPEND);
        if (k == 0 && rc != 0)
            ok = fail(preset, k, "the script itself", 0);
        api_kill(db);
    }
    if (k != 0 && ok) {
        sim_drive_crash(drive, k);
        ok = after_crash(drive, preset, k, created, m);
    }
    sim_drive_destroy(drive);
    free(m);
    return ok;
}

int
main(int argc, char **argv)
{
    const char *preset = argc > 1 ? argv[1] : "oop+pack";
    uint64_t step = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    uint64_t writes = 0;
    uint64_t passed = 0;
    uint64_t failed = 0;

    step = ch_max_u64(1, step * 100 / zt_runs_percent());
    if (!run_one(preset, 0, &writes)) {
        printf("0 passed, 1 failed\n");
        return 1;
    }
    printf("%s: %d operations, %" PRIu64 " device writes; power off at every %" PRIu64
           ". from %" PRIu64 "\n",
           preset, OPS, writes, step, first);
    for (uint64_t k = first; k <= writes && failed < 5; k += step) {
        uint64_t ignored;

        if (run_one(preset, k, &ignored))
            passed++;
        else
            failed++;
    }
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
