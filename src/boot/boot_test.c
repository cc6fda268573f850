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

static void
put(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    uint32_t value[40];
    char key[16];
    lsn_t lsn;
    struct bt_op op = {.kind = BT_PUT, .value = {value, sizeof(value)}};

    for (size_t k = 0; k < CH_ARRAY_LEN(value); k++)
        value[k] = i * 2654435761U + version;
    op.key = (struct bt_slice){key, (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U)};
    ZT_OK(t, boot_poll(db));
    ZT_OK(t, bt_write(&db->main, &op, &lsn));
    ZT_OK(t, wal_flush(db->wal, lsn));
}

static void
copy32(void *arg, const void *value, size_t bytes)
{
    if (bytes >= 4)
        memcpy(arg, value, 4);
}

static void
expect(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    char key[16];
    uint32_t got = 0;
    size_t n = (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U);

    ZT_OK(t, bt_get(&db->main, (struct bt_slice){key, n}, copy32, &got));
    ZT_CHECK(t, got == i * 2654435761U + version);
}

static struct sim_drive *
make_crashed(struct zt *t, unsigned keys)
{
    struct sim_drive *drive = NULL;
    struct db *db;

    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K,cache=volatile", &drive));
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
        {"clean_close", test_clean_close, 5},
    };

    return zt_main(argc, argv, "boot", cases, CH_ARRAY_LEN(cases));
}
