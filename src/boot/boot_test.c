/* boot_test.c - opening and closing when requests fail, and recovery that is itself interrupted. */
#include "boot/boot.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "reg/reg.h"
#include "store/store.h"
#include "wal/wal.h"
#include "zt.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    uint64_t preset, log_place;
} layouts[] = {
    {COHORT_PRESET_COHORT, COHORT_LOG_PLACE_DEFAULT},
    {COHORT_PRESET_INPLACE, COHORT_LOG_PLACE_DEFAULT},
    {COHORT_PRESET_INPLACE_ATOMIC, COHORT_LOG_PLACE_RING},
    {COHORT_PRESET_OOP, COHORT_LOG_PLACE_RING},
    {COHORT_PRESET_OOP_PACK, COHORT_LOG_PLACE_RING},
    {COHORT_PRESET_OOP, COHORT_LOG_PLACE_ZONES},
    {COHORT_PRESET_OOP_PACK, COHORT_LOG_PLACE_ZONES},
};

static void
small_options(struct zt *t, struct cohort_options *o)
{
    cohort_options_init(o);
    o->preset = layouts[t->seed % CH_ARRAY_LEN(layouts)].preset;
    o->log_place = layouts[t->seed % CH_ARRAY_LEN(layouts)].log_place;
    o->background = COHORT_BACKGROUND_NO;
    o->cache_bytes = 1 << 20;
    o->zone_bytes = 64 << 10;
    o->log_bytes = 256 << 10;
}

/* Without a double write, in place is for drives that keep 4 KiB blocks whole. */
static const char *
drive_text(const struct zt *t)
{
    return layouts[t->seed % CH_ARRAY_LEN(layouts)].preset == COHORT_PRESET_INPLACE_ATOMIC
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

static void
put(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    uint32_t value[40];
    char key[16];
    struct bt_done done;
    struct bt_op op = {.kind = BT_PUT, .value = {value, sizeof(value)}};

    for (size_t k = 0; k < CH_ARRAY_LEN(value); k++)
        value[k] = i * 2654435761U + version;
    op.key = (struct bt_slice){key, (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U)};
    ZT_OK(t, boot_poll(db));
    ZT_OK(t, bt_write(&reg_main(db->reg)->bt, &op, &done));
    ZT_OK(t, wal_flush(db->wal, done.lsn));
}

static void
copy32(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)flags;
    if (bytes >= 4)
        memcpy(arg, value, 4);
}

static void
expect(struct zt *t, struct db *db, unsigned i, unsigned version)
{
    char key[16];
    uint32_t got = 0;
    size_t n = (size_t)snprintf(key, sizeof(key), "%08u", i * 7919U % 10007U);

    ZT_OK(t, bt_get(&reg_main(db->reg)->bt, NULL, (struct bt_slice){key, n}, copy32, &got));
    ZT_CHECK(t, got == i * 2654435761U + version);
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

/* ---- a log too small for what cleaning has to say ---- */

enum {
    WIDE_PAIRS = 2400, /* a filler of nearly half a page, and a small key beside it */
    WIDE_FLUSH = 64,   /* updates a log flush */
};

/* A checkpoint while every block that the system may take is held by somebody: each ticket keeps two against padding. */
static int
starved_checkpoint(struct db *db)
{
    struct wal_ticket hog[64] = {{0}};
    unsigned n = 0;
    int rc;

    while (n < CH_ARRAY_LEN(hog) && wal_reserve(db->wal, WAL_SYSTEM, 16, &hog[n]) == 0)
        n++;
    rc = boot_checkpoint(db, false);
    while (n > 0)
        wal_release(db->wal, &hog[--n]);
    return rc;
}

static int
wide_put(struct db *db, unsigned i, bool filler, const void *value, size_t bytes)
{
    char key[16];
    struct bt_done done;
    struct bt_op op = {.kind = BT_PUT, .value = {value, bytes}};
    uint64_t used;
    uint64_t size;
    int rc = 0;

    wal_usage(db->wal, &used, &size);
    if (used * 100 > size * 40)
        rc = filler ? boot_checkpoint(db, false) : starved_checkpoint(db);
    op.key =
        (struct bt_slice){key, (size_t)snprintf(key, sizeof(key), "%06u%s", i, filler ? "" : "+")};
    return rc != 0 ? rc : bt_write(&reg_main(db->reg)->bt, &op, &done);
}

static void
wide_load(struct zt *t, struct db *db)
{
    uint8_t filler[1900];
    uint32_t zero = 0;

    for (unsigned i = 0; i < WIDE_PAIRS; i++) {
        ch_prng_fill(&t->rng, filler, sizeof(filler));
        ZT_OK(t, wide_put(db, i, true, filler, sizeof(filler)));
        ZT_OK(t, wide_put(db, i, false, &zero, sizeof(zero)));
    }
    ZT_OK(t, boot_checkpoint(db, true));
}

/* Small updates all over until an error; acked = what a flush covered. */
static void
wide_update(struct zt *t, struct db *db, uint32_t *acked, uint32_t *tried)
{
    int rc = 0;

    for (unsigned n = 1; rc == 0 && n < 30000; n++) {
        unsigned i = (unsigned)zt_below(t, WIDE_PAIRS);
        uint32_t next = tried[i] + 1;

        tried[i] = next;
        rc = wide_put(db, i, false, &next, sizeof(next));
        if (rc == 0 && n % WIDE_FLUSH == 0)
            rc = wal_flush(db->wal, wal_end(db->wal));
        if (rc == 0 && n % WIDE_FLUSH == 0)
            memcpy(acked, tried, WIDE_PAIRS * sizeof(*acked));
    }
}

static void
wide_compare(struct zt *t, struct db *db, const uint32_t *acked, const uint32_t *tried)
{
    for (unsigned i = 0; i < WIDE_PAIRS; i++) {
        char key[16];
        uint32_t got = 0;
        size_t n = (size_t)snprintf(key, sizeof(key), "%06u+", i);

        ZT_OK(t, bt_get(&reg_main(db->reg)->bt, NULL, (struct bt_slice){key, n}, copy32, &got));
        ZT_CHECK(t, got >= acked[i] && got <= tried[i]);
    }
}

/* Goal: when cleaning needs more log than there is, it goes on without records, the log is cut, nothing is lost (R11).
 * Method: a cache that holds all pages and a log of 256 KiB; small updates all over make dirty pages that hold it back;
 * the room that checkpoints could use is held by tickets. The power goes at a random write. */
static void
test_log_too_small_for_cleaning(struct zt *t)
{
    struct sim_drive *drive = NULL;
    struct dev_fault_plan plan = {0};
    struct cohort_options o;
    struct dev *dev = NULL;
    struct dev *fault = NULL;
    struct db *db = NULL;
    uint32_t *acked = calloc(WIDE_PAIRS, sizeof(*acked));
    uint32_t *tried = calloc(WIDE_PAIRS, sizeof(*tried));

    small_options(t, &o);
    o.cache_bytes = 8 << 20;
    ZT_CHECK(t, acked != NULL && tried != NULL);
    ZT_OK(t, sim_drive_create(drive_text(t), &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, dev_fault_open(dev, &plan, &fault));
    ZT_OK(t, boot_open(fault, &o, true, &db));
    wide_load(t, db);
    plan.stop_after_writes = 20 + zt_below(t, 1500);
    dev_fault_set(fault, &plan);
    wide_update(t, db, acked, tried);
    boot_kill(db);
    sim_drive_crash(drive, t->seed);
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, boot_open(dev, &o, false, &db));
    wide_compare(t, db, acked, tried);
    ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
    free(acked);
    free(tried);
}

/* Goal: what was published without a record after a checkpoint began holds the log back beyond that checkpoint (R2). */
static void
test_unlogged_after_begin_holds_the_log(struct zt *t)
{
    struct wal_ticket hog[64] = {{0}};
    struct sim_drive *drive = NULL;
    struct db *db;
    uint8_t filler[1900];
    uint64_t round;
    unsigned n = 0;

    ZT_OK(t, sim_drive_create(drive_text(t), &drive));
    db = open_drive(t, drive, true);
    for (unsigned i = 0; i < 500; i++)
        put(t, db, i, 1);
    ZT_OK(t, boot_checkpoint(db, true));
    ZT_CHECK(t, buf_oldest_dirty(db->buf) == CH_LSN_MAX);
    round = store_checkpoint_begin(db->store);
    for (unsigned i = 0; i < 12; i++) { /* new pages, or in place nothing would be published */
        ch_prng_fill(&t->rng, filler, sizeof(filler));
        ZT_OK(t, wide_put(db, i, true, filler, sizeof(filler)));
    }
    while (n < CH_ARRAY_LEN(hog) && wal_reserve(db->wal, WAL_SYSTEM, 16, &hog[n]) == 0)
        n++;
    ZT_OK(t, buf_clean_until(db->buf, CH_LSN_MAX));
    while (n > 0)
        wal_release(db->wal, &hog[--n]);
    store_checkpoint_covers(db->store, round);
    store_checkpoint_done(db->store, round);
    ZT_OK(t, wal_flush_force(db->wal));
    ZT_CHECK(t, buf_oldest_dirty(db->buf) != CH_LSN_MAX);
    ZT_OK(t, boot_checkpoint(db, true));
    ZT_CHECK(t, buf_oldest_dirty(db->buf) == CH_LSN_MAX);
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
}

/* Goal: a file made for one capacity opens with another: what was fixed at creation stays. */
static void
test_other_capacity(struct zt *t)
{
    static const uint64_t sizes[] = {64 << 20, 0, 32 << 20, UINT64_C(1) << 30};
    const char *dir = zt_tmpdir(t);
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/db", dir);
    for (size_t k = 0; k < CH_ARRAY_LEN(sizes); k++) {
        struct cohort_options o;
        struct dev *dev = NULL;
        struct db *db = NULL;

        small_options(t, &o);
        o.zone_bytes = k == 0 ? 256 << 10 : 0;
        o.log_place = COHORT_LOG_PLACE_DEFAULT; /* a file's log is a ring */
        o.max_bytes = sizes[k];
        ZT_OK(t, dev_open(path, k == 0 ? DEV_CREATE : 0, sizes[k], &dev));
        ZT_OK(t, boot_open(dev, &o, k == 0, &db));
        for (unsigned i = 0; i < 300; i++) {
            if (k > 0)
                expect(t, db, i, (unsigned)k);
            put(t, db, i, (unsigned)k + 1);
        }
        ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
        ZT_OK(t, boot_close(db));
    }
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

/* Goal: a drive on which an empty database could take no record is refused at creation, a larger one takes some. */
static void
test_small_in_place(struct zt *t)
{
    unsigned refused = 0, taken = 0;

    for (unsigned kib = 2048; kib <= 4096; kib += 64) {
        char text[80];
        struct sim_drive *drive = NULL;
        struct cohort_options o;
        struct dev *dev = NULL;
        struct db *db = NULL;
        int rc;

        small_options(t, &o);
        o.log_place = COHORT_LOG_PLACE_DEFAULT;
        o.preset = COHORT_PRESET_INPLACE;
        (void)snprintf(text, sizeof(text), "generic,bytes=%uK,superblock=64K,cache=volatile", kib);
        ZT_OK(t, sim_drive_create(text, &drive));
        ZT_OK(t, dev_sim_open(drive, &dev));
        rc = boot_open(dev, &o, true, &db);
        if (rc == 0) {
            put(t, db, 1, 1);
            ZT_OK(t, boot_close(db));
            taken++;
        } else {
            ZT_STATUS(t, rc, COHORT_EMISMATCH);
            ZT_CHECK(t, taken == 0);
            refused++;
        }
        sim_drive_destroy(drive);
    }
    ZT_CHECK(t, refused > 0 && taken > 0);
}

/* Opens (and closes) with these options; returns what the opening said. */
static int
try_open(struct zt *t, struct dev *dev, const struct cohort_options *o, bool create)
{
    struct db *db = NULL;
    int rc = boot_open(dev, o, create, &db);

    if (rc == 0)
        ZT_OK(t, boot_close(db));
    return rc;
}

/* Goal: where the log lies is chosen at creation, and only where it can be. */
static void
test_log_place_is_checked(struct zt *t)
{
    struct sim_drive *drive = NULL;
    struct cohort_options o;
    struct dev *dev = NULL;
    char path[512];

    small_options(t, &o);
    o.preset = COHORT_PRESET_OOP;
    o.log_place = COHORT_LOG_PLACE_ZONES;
    (void)snprintf(path, sizeof(path), "%s/db", zt_tmpdir(t));
    ZT_OK(t, dev_open(path, DEV_CREATE, 64 << 20, &dev));
    ZT_STATUS(t, try_open(t, dev, &o, true), COHORT_EOPTION);
    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K", &drive));
    o.preset = COHORT_PRESET_INPLACE;
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_STATUS(t, try_open(t, dev, &o, true), COHORT_EOPTION);
    o.preset = COHORT_PRESET_OOP;
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, try_open(t, dev, &o, true));
    o.log_place = COHORT_LOG_PLACE_RING;
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_STATUS(t, try_open(t, dev, &o, false), COHORT_EMISMATCH);
    o.log_place = COHORT_LOG_PLACE_DEFAULT;
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, try_open(t, dev, &o, false));
    sim_drive_destroy(drive);
}

/* The log has the zones that the table says, no more than are set aside, and those that are not taken are there. */
static void
check_log_zones(struct zt *t, struct db *db)
{
    const struct zone_table *z = store_zones(db->store);
    uint64_t most = wal_segments_max(db->root.log_bytes, db->root.zone_bytes);
    uint32_t n = wal_segment_count(db->wal);
    uint32_t free = 0;

    ZT_CHECK(t, zone_log_count(z) == n && n >= 1 && n <= most && zone_log_aside(z) == most);
    for (zone_id i = 0; i < zone_count(z); i++) {
        struct zone_info info;

        zone_info(z, i, &info);
        free += info.state == ZONE_FREE;
    }
    ZT_CHECK(t, free + n >= most && zone_check(z)); /* L1 */
}

/* Goal: L1, L3: the log's zones come and go, are never more than were set aside and never fewer than it may need, through crashes.
 * Method: many logs' worth of writes on a small drive; a power cut and an opening now and then. */
static void
test_log_zones_come_and_go(struct zt *t)
{
    struct sim_drive *drive = NULL;
    struct cohort_options o;
    struct dev *dev = NULL;
    struct db *db = NULL;
    lsn_t logged;
    unsigned i = 0;

    small_options(t, &o);
    o.preset = COHORT_PRESET_OOP;
    o.log_place = COHORT_LOG_PLACE_ZONES;
    ZT_OK(t, sim_drive_create("generic,bytes=4M,superblock=256K,cache=volatile", &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, boot_open(dev, &o, true, &db));
    for (unsigned life = 0; life < 3; life++) {
        logged = wal_end(db->wal);
        for (; wal_end(db->wal) < logged + 3 * db->root.log_bytes; i++) {
            put(t, db, i % 2000, i);
            if (i % 50 == 0)
                check_log_zones(t, db);
        }
        boot_kill(db);
        sim_drive_crash(drive, t->seed + life);
        ZT_OK(t, dev_sim_open(drive, &dev));
        ZT_OK(t, boot_open(dev, &o, false, &db));
        check_log_zones(t, db);
        expect(t, db, (i - 1) % 2000, i - 1);
    }
    ZT_OK(t, boot_check(db, NULL, NULL, &(struct cohort_check_result){0}));
    ZT_OK(t, boot_close(db));
    sim_drive_destroy(drive);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"open_fails_at_every_request", test_open_fails_at_every_request, 7},
        {"recovery_is_interrupted", test_recovery_is_interrupted, 14},
        {"log_too_small_for_cleaning", test_log_too_small_for_cleaning, 20},
        {"unlogged_after_begin_holds_the_log", test_unlogged_after_begin_holds_the_log, 5},
        {"other_capacity", test_other_capacity, 5},
        {"small_in_place", test_small_in_place, 1},
        {"clean_close", test_clean_close, 7},
        {"log_place_is_checked", test_log_place_is_checked, 1},
        {"log_zones_come_and_go", test_log_zones_come_and_go, 5},
    };

    return zt_main(argc, argv, "boot", cases, CH_ARRAY_LEN(cases));
}
