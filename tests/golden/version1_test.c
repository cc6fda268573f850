/* version1_test.c - databases of format version 1, written by the engine that had no other, are opened and go on.
 *
 *     version1_test IMAGE...      images: text files beside this one, their heads tell what is in them
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "api/api_internal.h"
#include "dev/dev.h"
#include "zt/zt.h"

enum {
    RECORDS = 260,
    VALUE_MAX = 80,
    BLOCK = 4096,
    BLOCKS_MAX = 1024, /* of the drive */
    ENTRY = 8 + BLOCK,
    IMAGE_TEXT_MAX = 64 << 10,
};

static char *const *image_paths;
static unsigned image_count;

/* ---- images ---- */

static size_t
image_frame(struct zt *t, const char *path, uint8_t *out)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0, n = 0;

    ZT_CHECK(t, file != NULL);
    while (getline(&line, &room, file) > 0) {
        for (const char *p = line; line[0] != '#' && isxdigit((unsigned char)p[0]); p += 2) {
            char digits[3] = {p[0], p[1], '\0'};

            ZT_CHECK(t, isxdigit((unsigned char)p[1]) && n < IMAGE_TEXT_MAX);
            out[n++] = (uint8_t)strtoul(digits, NULL, 16);
        }
    }
    free(line);
    ZT_CHECK(t, fclose(file) == 0);
    return n;
}

/* A drive that holds the image. */
static struct sim_drive *
image_load(struct zt *t, const char *path)
{
    static uint8_t frame[IMAGE_TEXT_MAX], blocks[BLOCKS_MAX * ENTRY];
    size_t n = image_frame(t, path, frame);
    struct sim_drive *drive;

    n = ZSTD_decompress(blocks, sizeof(blocks), frame, n);
    ZT_CHECK(t, !ZSTD_isError(n) && n > 0 && n % ENTRY == 0);
    ZT_OK(t, sim_drive_create("generic,bytes=4M,superblock=256K", &drive));
    for (size_t i = 0; i < n; i += ENTRY)
        sim_drive_poke(drive, ch_get64(blocks + i), blocks + i + 8, BLOCK);
    return drive;
}

/* ---- contents ---- */

static size_t
make_key(unsigned i, char out[32])
{
    return (size_t)snprintf(out, 32, "key-%04u", i * 37 % 1000);
}

static size_t
make_value(unsigned i, unsigned version, uint8_t out[VALUE_MAX])
{
    size_t n = 10 + (i * 7 + version * 13) % 60;

    memset(out, (int)('a' + (i + version) % 26), n);
    out[0] = 'v';
    return n;
}

static void
check_contents(struct zt *t, cohort_db *db)
{
    struct cohort_value v = {0};
    uint8_t want[VALUE_MAX];
    char key[32];

    for (unsigned i = 0; i < RECORDS; i++) {
        int rc = cohort_get(db, key, make_key(i, key), &v);

        if (i % 10 == 0) {
            ZT_STATUS(t, rc, COHORT_NOTFOUND);
            continue;
        }
        ZT_OK(t, rc);
        ZT_CHECK(t, v.bytes == make_value(i, i % 20 == 1 ? 2 : 1, want));
        ZT_CHECK(t, memcmp(v.data, want, v.bytes) == 0);
    }
    cohort_value_free(&v);
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "check: %s\n", line);
}

static void
check_db(struct zt *t, cohort_db *db)
{
    struct cohort_check_result result;

    ZT_OK(t, cohort_check(db, print_finding, NULL, &result));
    ZT_CHECK(t, result.entries == RECORDS - RECORDS / 10);
    check_contents(t, db);
}

/* ---- opening ---- */

/* `plan` NULL: nothing fails. *fault may be NULL. */
static int
db_open(struct zt *t, struct sim_drive *drive, const struct dev_fault_plan *plan,
        struct dev **fault, cohort_db **out)
{
    static const struct dev_fault_plan none;
    struct cohort_options o;
    struct dev *inner = NULL, *dev = NULL;

    cohort_options_init(&o);
    ZT_OK(t, cohort_options_set(&o, "background", "no"));
    ZT_OK(t, cohort_options_set(&o, "cache_bytes", "1M"));
    ZT_OK(t, dev_sim_open(drive, &inner));
    ZT_OK(t, dev_fault_open(inner, plan != NULL ? plan : &none, &dev));
    if (fault != NULL)
        *fault = dev;
    return api_open_dev(dev, &o, false, out);
}

static uint32_t
version_on_drive(struct sim_drive *drive)
{
    uint8_t a[BLOCK], b[BLOCK];

    sim_drive_peek(drive, 0, a, sizeof(a));
    sim_drive_peek(drive, META_ROOT_BYTES / 2, b, sizeof(b));
    return ch_get32((ch_get64(a + 16) > ch_get64(b + 16) ? a : b) + 4);
}

/* What version 1 did not have. */
static void
use_new_things(struct zt *t, cohort_db *db)
{
    uint8_t large[5000] = {0};
    struct cohort_value v = {0};
    cohort_tree *tree;
    cohort_txn *x;

    ZT_OK(t, cohort_begin(db, NULL, &x));
    ZT_OK(t, cohort_tree_open(db, x, "new", COHORT_TREE_CREATE, NULL, &tree));
    ZT_OK(t, cohort_txn_put(x, tree, "k", 1, large, sizeof(large)));
    ZT_OK(t, cohort_txn_put(x, NULL, "key-0037", 8, large, sizeof(large)));
    ZT_OK(t, cohort_commit(x));
    ZT_OK(t, cohort_begin(db, NULL, &x));
    ZT_OK(t, cohort_txn_del_range(x, NULL, NULL, NULL, NULL));
    ZT_OK(t, cohort_abort(x));
    ZT_OK(t, cohort_tree_get(tree, "k", 1, &v));
    ZT_CHECK(t, v.bytes == sizeof(large));
    cohort_value_free(&v);
    cohort_tree_close(tree);
}

/* ---- the tests ---- */

/* Goal: each image opens, holds what was written, passes the check, is of this version afterwards and can do what is new. */
static void
test_opens(struct zt *t)
{
    struct cohort_check_result result;

    for (unsigned i = 0; i < image_count; i++) {
        struct sim_drive *drive = image_load(t, image_paths[i]);
        cohort_db *db = NULL;

        ZT_CHECK(t, version_on_drive(drive) == 1);
        ZT_OK(t, db_open(t, drive, NULL, NULL, &db));
        ZT_CHECK(t, version_on_drive(drive) == META_VERSION);
        check_db(t, db);
        ZT_OK(t, cohort_close(db));
        ZT_OK(t, db_open(t, drive, NULL, NULL, &db));
        check_db(t, db);
        use_new_things(t, db);
        ZT_OK(t, cohort_close(db));
        ZT_OK(t, db_open(t, drive, NULL, NULL, &db));
        ZT_OK(t, cohort_check(db, print_finding, NULL, &result));
        ZT_CHECK(t, result.trees == 1);
        ZT_OK(t, cohort_close(db));
        sim_drive_destroy(drive);
    }
}

/* How many writes an opening takes. */
static uint64_t
writes_of_opening(struct zt *t, const char *path)
{
    struct sim_drive *drive = image_load(t, path);
    struct dev *fault;
    cohort_db *db = NULL;
    uint64_t n;

    ZT_OK(t, db_open(t, drive, NULL, &fault, &db));
    n = dev_fault_seen(fault, DEV_WRITE);
    api_kill(db);
    sim_drive_destroy(drive);
    return n;
}

/* Goal: a power cut at any write of the opening that migrates leaves a database that opens, with everything in it and no
 * page lost. Method: each write of it in turn; then once more while that is recovered. */
static void
test_cuts(struct zt *t)
{
    for (unsigned i = 0; i < image_count; i++) {
        uint64_t writes = writes_of_opening(t, image_paths[i]);

        ZT_CHECK(t, writes >= 4);
        for (uint64_t k = 1; k <= writes; k++) {
            struct dev_fault_plan plan = {.stop_after_writes = k};
            struct sim_drive *drive = image_load(t, image_paths[i]);
            cohort_db *db = NULL;

            ZT_CHECK(t, db_open(t, drive, &plan, NULL, &db) != 0);
            sim_drive_crash(drive, zt_below(t, 1 << 30));
            plan.stop_after_writes = 1 + zt_below(t, writes);
            if (db_open(t, drive, &plan, NULL, &db) == 0)
                api_kill(db);
            sim_drive_crash(drive, zt_below(t, 1 << 30));
            ZT_OK(t, db_open(t, drive, NULL, NULL, &db));
            check_db(t, db);
            ZT_OK(t, cohort_close(db));
            sim_drive_destroy(drive);
        }
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case tests[] = {
        {"opens", test_opens, 1},
        {"cuts", test_cuts, 3},
    };

    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s IMAGE...\n", argv[0]);
        return 2;
    }
    image_paths = argv + 1;
    image_count = (unsigned)argc - 1;
    return zt_main(1, argv, "version 1", tests, CH_ARRAY_LEN(tests));
}
