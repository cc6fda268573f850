/* boot_test.c - opening and closing when requests fail, and recovery that is itself interrupted. */
#include "boot/boot.h"
#include "dev/dev.h"
#include "wal/wal.h"
#include "zt.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t presets[] = {COHORT_PRESET_COHORT, COHORT_PRESET_INPLACE,
                                   COHORT_PRESET_INPLACE_ATOMIC, COHORT_PRESET_OOP,
                                   COHORT_PRESET_OOP_PACK};

static void
small_options(struct zt *t, struct cohort_options *o)
{
    cohort_options_init(o);
    o->preset = presets[t->seed % CH_ARRAY_LEN(presets)];
    o->background = COHORT_BACKGROUND_NO;
    o->cache_bytes = 1 << 20;
    o->zone_bytes = 64 << 10;
    o->log_bytes = 256 << 10;
}

/* Without a double write, in place is for drives that keep 4 KiB blocks whole. */
static const char *
drive_text(const struct zt *t)
{
    return presets[t->seed % CH_ARRAY_LEN(presets)] == COHORT_PRESET_INPLACE_ATOMIC
               ? "generic,bytes=16M,superblock=256K,cache=volatile,tear=no"
               : "generic,bytes=16M,superblock=256K,cache=volatile";
}

static struct db *
open_drive(struct zt *t, struct sim_drive *drive, bool create)
{
    struct cohort_options o;
    struct dev *dev = NULL;
    struct db *db = NULL;

    small_options(t, &o);
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, boot_open(dev, &o, create, &db));
    return db;
}

static int
try_put(struct db *db, unsigned i, unsigned version)
{
    uint32_t value[40];
    char key[16];
    lsn_t lsn = 0;
    struct bt_op op = {.kind = BT_PUT, .value = {value, sizeof(value)}};
    int rc = boot_poll(db);

    for (size_t k = 0; k < CH_ARRAY_LEN(value); k++)
        value[k] = i * 2654435761U + version;
    op.key = (struct bt_slice){key, (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U)};
    if (rc == 0)
        rc = bt_write(&db->main, &op, &lsn);
    return rc == 0 ? wal_flush(db->wal, lsn) : rc;
}

static void
put(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    ZT_OK(t, try_put(db, i, version));
}

static void
copy32(void *arg, const void *value, size_t bytes)
{
    if (bytes >= 4)
        memcpy(arg, value, 4);
}

static unsigned
found_version(struct zt *t, struct db *db, unsigned i)
{
    char key[16];
    uint32_t got = 0;
    size_t n = (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U);

    ZT_OK(t, bt_get(&db->main, (struct bt_slice){key, n}, copy32, &got));
    return got - i * 2654435761U;
}

static void
expect(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    ZT_CHECK(t, found_version(t, db, i) == version);
}

static struct sim_drive *
make_crashed(struct zt *t, unsigned keys)
{
    struct sim_drive *drive = NULL;
    struct db *db;

    ZT_OK(t, sim_drive_create(drive_text(t), &drive));
    db = open_drive(t, drive, true);
    for (unsigned version = 1; version <= 3; version++)
        for (unsigned i = 0; i < keys; i++)
            put(t, db, i, version);
    boot_kill(db);
    sim_drive_crash(drive, t->seed);
    return drive;
}

/* Goal: when the n-th request of an opening fails, for every n, the opening fails by name and leaks nothing, and the
 * next one finds everything. Method: fault wrapper on a crashed drive, n counting up per kind of request until a whole
 * opening passes. */
static void
test_open_fails_at_every_request(struct zt *t)
{
    enum {
        KEYS = 400
    };
    static const enum dev_op ops[] = {DEV_READ, DEV_WRITE, DEV_FLUSH};
    struct sim_drive *drive = make_crashed(t, KEYS);
    struct cohort_options o;
    struct db *db = NULL;

    small_options(t, &o);
    for (size_t k = 0; k < CH_ARRAY_LEN(ops); k++) {
        int rc = -1;

        for (uint64_t n = 1; rc != 0; n++) {
            struct dev_fault_plan plan = {.code = COHORT_EIO};
            struct dev *dev = NULL;
            struct dev *fault = NULL;

            ZT_CHECK(t, n < 5000);
            plan.fail_nth[ops[k]] = n;
            ZT_OK(t, dev_sim_open(drive, &dev));
            ZT_OK(t, dev_fault_open(dev, &plan, &fault));
            rc = boot_open(fault, &o, false, &db);
            if (rc != 0) {
                ZT_CHECK(t, cohort_class_of(rc) == COHORT_CLASS_IO ||
                                cohort_class_of(rc) == COHORT_CLASS_FAILED ||
                                cohort_class_of(rc) == COHORT_CLASS_CORRUPT);
                continue;
            }
            plan = (struct dev_fault_plan){0};
            dev_fault_set(fault, &plan);
            for (unsigned i = 0; i < KEYS; i++)
                expect(t, db, i, 3);
            boot_kill(db);
        }
    }
    db = open_drive(t, drive, false);
    for (unsigned i = 0; i < KEYS; i++)
        expect(t, db, i, 3);
    ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
}

/* Goal: recovery interrupted at every write, again and again, still ends with everything. */
static void
test_recovery_is_interrupted(struct zt *t)
{
    enum {
        KEYS = 400
    };
    struct sim_drive *drive = make_crashed(t, KEYS);
    struct cohort_options o;
    struct db *db = NULL;
    int rc = -1;

    small_options(t, &o);
    for (uint64_t n = 1; rc != 0; n++) {
        struct dev_fault_plan plan = {.stop_after_writes = n};
        struct dev *dev = NULL;
        struct dev *fault = NULL;

        ZT_CHECK(t, n < 5000);
        ZT_OK(t, dev_sim_open(drive, &dev));
        ZT_OK(t, dev_fault_open(dev, &plan, &fault));
        rc = boot_open(fault, &o, false, &db);
        if (rc == 0)
            boot_kill(db);
        sim_drive_crash(drive, t->seed * 1000 + n);
    }
    db = open_drive(t, drive, false);
    for (unsigned i = 0; i < KEYS; i++)
        expect(t, db, i, 3);
    ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
}

/* Goal: when cleaning needs more log than there is, it goes on without records, the log is cut, nothing is lost (R11).
 * Method: a cache that holds all pages and a log of 256 KiB; small updates all over fill the users' share of the log
 * with dirty pages that all hold it back. Then a checkpoint, more of the same, a crash at a random write. */
static void
test_log_too_small_for_cleaning(struct zt *t)
{
    enum { KEYS = 6000 };
    struct sim_drive *drive = NULL;
    struct dev_fault_plan plan = {0};
    struct cohort_options o;
    struct dev *dev = NULL;
    struct dev *fault = NULL;
    struct db *db = NULL;
    unsigned *version = calloc(KEYS, sizeof(*version));
    unsigned last = 0;
    int rc = 0;

    small_options(t, &o);
    o.cache_bytes = 8 << 20;
    ZT_CHECK(t, version != NULL);
    ZT_OK(t, sim_drive_create(drive_text(t), &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, dev_fault_open(dev, &plan, &fault));
    ZT_OK(t, boot_open(fault, &o, true, &db));
    for (unsigned i = 0; i < KEYS; i++)
        put(t, db, i, version[i] = 1);
    ZT_OK(t, boot_checkpoint(db, true));
    plan.stop_after_writes = 100 + zt_below(t, 2500);
    dev_fault_set(fault, &plan);
    for (unsigned n = 0; rc == 0 && n < 4000; n++) {
        last = (unsigned)zt_below(t, KEYS);
        rc = try_put(db, last, version[last] + 1);
        if (rc == 0)
            version[last]++;
    }
    boot_kill(db);
    sim_drive_crash(drive, t->seed);
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, boot_open(dev, &o, false, &db));
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned got = found_version(t, db, i);

        ZT_CHECK(t, got == version[i] || (rc != 0 && i == last && got == version[i] + 1));
    }
    ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
    free(version);
}

/* Goal: a clean close leaves nothing to redo. */
static void
test_clean_close(struct zt *t)
{
    struct sim_drive *drive = NULL;
    struct db *db;

    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K,cache=volatile", &drive));
    db = open_drive(t, drive, true);
    for (unsigned i = 0; i < 500; i++)
        put(t, db, i, 1);
    ZT_OK(t, boot_close(db));
    db = open_drive(t, drive, false);
    ZT_CHECK(t, db->recovered_records == 0);
    for (unsigned i = 0; i < 500; i++)
        expect(t, db, i, 1);
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"open_fails_at_every_request", test_open_fails_at_every_request, 5},
        {"recovery_is_interrupted", test_recovery_is_interrupted, 10},
        {"log_too_small_for_cleaning", test_log_too_small_for_cleaning, 20},
        {"clean_close", test_clean_close, 5},
    };

    return zt_main(argc, argv, "boot", cases, CH_ARRAY_LEN(cases));
}
