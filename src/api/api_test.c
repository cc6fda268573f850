/* api_test.c - the public API against an ordered model, and what users do wrong. */
#include "api/api_test_rig.h"
#include "dev/dev.h"
#include "meta/meta.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const presets[] = {"cohort",   "inplace", "inplace-atomic", "oop",
                                      "oop+pack", "oop+gdt", "oop+mdc",        "single"};

static cohort_db *
open_at(struct zt *t, const char *dir, const char *preset)
{
    struct cohort_options o;
    cohort_db *db = NULL;

    rig_options(t, &o, preset);
    ZT_OK(t, cohort_open(dir, &o, &db));
    return db;
}

static void
test_basics(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = open_at(t, dir, "cohort");
    struct cohort_value v = {0};

    ZT_STATUS(t, cohort_get(db, "a", 1, &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_put(db, "a", 1, "one", 3));
    ZT_OK(t, cohort_get(db, "a", 1, &v));
    ZT_CHECK(t, v.bytes == 3 && memcmp(v.data, "one", 3) == 0);
    ZT_STATUS(t, cohort_insert(db, "a", 1, "two", 3), COHORT_EXISTS);
    ZT_STATUS(t, cohort_update(db, "b", 1, "two", 3), COHORT_NOTFOUND);
    ZT_OK(t, cohort_update(db, "a", 1, "", 0));
    ZT_OK(t, cohort_get(db, "a", 1, &v));
    ZT_CHECK(t, v.bytes == 0);
    ZT_OK(t, cohort_put(db, "", 0, "empty key", 9));
    ZT_OK(t, cohort_get(db, "", 0, &v));
    ZT_CHECK(t, v.bytes == 9);
    ZT_OK(t, cohort_del(db, "a", 1));
    ZT_STATUS(t, cohort_del(db, "a", 1), COHORT_NOTFOUND);
    ZT_OK(t, cohort_sync(db));
    ZT_OK(t, cohort_close(db));
    db = open_at(t, dir, "cohort");
    ZT_STATUS(t, cohort_get(db, "a", 1, &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_get(db, "", 0, &v));
    rig_check(t, db);
    ZT_OK(t, cohort_close(db));
    cohort_value_free(&v);
}

static void
test_limits(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = open_at(t, dir, "cohort");
    struct cohort_value v = {0};
    char big[4096];

    memset(big, 'x', sizeof(big));
    ZT_STATUS(t, cohort_put(db, big, COHORT_KEY_MAX + 1, "", 0), COHORT_EKEYSIZE);
    ZT_STATUS(t, cohort_put(db, "k", 1, big, (size_t)COHORT_VALUE_MAX + 1), COHORT_EVALSIZE);
    ZT_STATUS(t, cohort_get(db, big, COHORT_KEY_MAX + 1, &v), COHORT_EKEYSIZE);
    ZT_STATUS(t, cohort_put(db, NULL, 1, "", 0), COHORT_EINVAL);
    ZT_STATUS(t, cohort_put(NULL, "k", 1, "", 0), COHORT_EINVAL);
    ZT_STATUS(t, cohort_get(db, "k", 1, NULL), COHORT_EINVAL);
    /* Two longest keys that differ in the last byte, with the longest values. */
    for (int i = 0; i < 40; i++) {
        big[COHORT_KEY_MAX - 1] = (char)('A' + i);
        ZT_OK(t, cohort_put(db, big, COHORT_KEY_MAX, big, COHORT_ENTRY_MAX - COHORT_KEY_MAX));
    }
    ZT_OK(t, cohort_put(db, "k", 1, big, COHORT_ENTRY_MAX - 1));
    ZT_OK(t, cohort_get(db, "k", 1, &v));
    ZT_CHECK(t, v.bytes == COHORT_ENTRY_MAX - 1);
    for (int i = 0; i < 40; i++) {
        big[COHORT_KEY_MAX - 1] = (char)('A' + i);
        ZT_OK(t, cohort_get(db, big, COHORT_KEY_MAX, &v));
        ZT_CHECK(t, v.bytes == COHORT_ENTRY_MAX - COHORT_KEY_MAX);
    }
    rig_check(t, db);
    ZT_OK(t, cohort_close(db));
    cohort_value_free(&v);
}

static void
test_batch(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = open_at(t, dir, "oop+pack");
    struct cohort_value v = {0};
    cohort_batch *b = NULL;
    char key[16];
    char value[512] = {0};
    char *large;

    ZT_OK(t, cohort_batch_create(&b));
    ZT_OK(t, cohort_write(db, b));
    ZT_OK(t, cohort_batch_put(b, "k", 1, "1", 1));
    ZT_OK(t, cohort_batch_del(b, "k", 1));
    ZT_OK(t, cohort_batch_put(b, "k", 1, "22", 2));
    ZT_OK(t, cohort_batch_put(b, "gone", 4, "x", 1));
    ZT_OK(t, cohort_batch_del(b, "gone", 4));
    ZT_OK(t, cohort_batch_del(b, "never", 5));
    ZT_OK(t, cohort_batch_put(b, "", 0, "", 0));
    ZT_OK(t, cohort_write(db, b));
    ZT_OK(t, cohort_get(db, "k", 1, &v));
    ZT_CHECK(t, v.bytes == 2);
    ZT_STATUS(t, cohort_get(db, "gone", 4, &v), COHORT_NOTFOUND);
    ZT_OK(t, cohort_get(db, "", 0, &v));
    cohort_batch_clear(b);
    ZT_OK(t, cohort_batch_put(b, "", 0, "", 0));
    ZT_OK(t, cohort_batch_del(b, "", 0));
    ZT_OK(t, cohort_write(db, b));
    ZT_STATUS(t, cohort_get(db, "", 0, &v), COHORT_NOTFOUND);
    /* More than the cache and the log hold. */
    cohort_batch_clear(b);
    for (int i = 0; i < 4000; i++) {
        (void)snprintf(key, sizeof(key), "big%08d", i);
        ZT_OK(t, cohort_batch_put(b, key, 11, value, sizeof(value)));
    }
    ZT_OK(t, cohort_write(db, b));
    for (int i = 0; i < 4000; i++) {
        (void)snprintf(key, sizeof(key), "big%08d", i);
        ZT_OK(t, cohort_get(db, key, 11, &v));
        ZT_CHECK(t, v.bytes == sizeof(value));
    }
    large = calloc(1, 1 << 20);
    ZT_CHECK(t, large != NULL);
    cohort_batch_clear(b);
    for (int i = 0; i < 63; i++)
        ZT_OK(t, cohort_batch_put(b, &i, sizeof(i), large, 1 << 20));
    ZT_STATUS(t, cohort_batch_put(b, "k", 1, large, 1 << 20), COHORT_EBATCHSIZE);
    free(large);
    cohort_batch_destroy(b);
    rig_check(t, db);
    ZT_OK(t, cohort_close(db));
    cohort_value_free(&v);
}

/* ---- random operations against a model ---- */

enum {
    MODEL_KEYS = 1200,
    MODEL_VALUE_MAX = 600
};
struct model {
    uint32_t version[MODEL_KEYS]; /* 0 = absent */
};

static size_t
model_key(unsigned i, char *out)
{
    return (size_t)snprintf(out, 32, "%s%05u", i % 3 == 0 ? "a/common/prefix/" : "b", i);
}

static size_t
model_value(unsigned i, uint32_t version, char *out)
{
    size_t n = (i * 31 + version * 17) % MODEL_VALUE_MAX;

    memset(out, (int)('a' + (i + version) % 26), n);
    for (size_t k = 0; k + 8 < n; k += 16)
        ch_put64(out + k, (uint64_t)i << 32 | version);
    return n;
}

static void
model_step(struct zt *t, cohort_db *db, struct model *m)
{
    unsigned i = (unsigned)zt_below(t, MODEL_KEYS);
    char key[32];
    char value[MODEL_VALUE_MAX];
    size_t kn = model_key(i, key);
    uint32_t next = (uint32_t)zt_below(t, 1000000) + 1;
    size_t vn = model_value(i, next, value);

    switch (zt_below(t, 5)) {
    case 0:
        ZT_STATUS(t, cohort_del(db, key, kn), m->version[i] != 0 ? 0 : COHORT_NOTFOUND);
        m->version[i] = 0;
        break;
    case 1:
        ZT_STATUS(t, cohort_insert(db, key, kn, value, vn), m->version[i] == 0 ? 0 : COHORT_EXISTS);
        m->version[i] = m->version[i] == 0 ? next : m->version[i];
        break;
    case 2:
        ZT_STATUS(t, cohort_update(db, key, kn, value, vn),
                  m->version[i] != 0 ? 0 : COHORT_NOTFOUND);
        m->version[i] = m->version[i] != 0 ? next : 0;
        break;
    default:
        ZT_OK(t, cohort_put(db, key, kn, value, vn));
        m->version[i] = next;
        break;
    }
}

static void
model_compare(struct zt *t, cohort_db *db, const struct model *m)
{
    struct cohort_value v = {0};
    char key[32];
    char value[MODEL_VALUE_MAX];
    cohort_cursor *c = NULL;
    struct cohort_slice k;
    unsigned present = 0;
    unsigned seen = 0;
    int rc;

    for (unsigned i = 0; i < MODEL_KEYS; i++) {
        rc = cohort_get(db, key, model_key(i, key), &v);
        ZT_STATUS(t, rc, m->version[i] != 0 ? 0 : COHORT_NOTFOUND);
        if (rc != 0)
            continue;
        present++;
        ZT_CHECK(t, v.bytes == model_value(i, m->version[i], value));
        ZT_CHECK(t, memcmp(v.data, value, v.bytes) == 0);
    }
    ZT_OK(t, cohort_cursor_open(db, &c));
    for (rc = cohort_cursor_first(c); rc == 0; rc = cohort_cursor_next(c))
        seen++;
    ZT_STATUS(t, rc, COHORT_NOTFOUND);
    ZT_CHECK(t, seen == present);
    ZT_STATUS(t, cohort_cursor_next(c), COHORT_NOTFOUND);
    for (seen = 0, rc = cohort_cursor_last(c); rc == 0; rc = cohort_cursor_prev(c)) {
        ZT_OK(t, cohort_cursor_entry(c, &k, NULL));
        seen++;
    }
    ZT_CHECK(t, seen == present);
    cohort_cursor_close(c);
    cohort_value_free(&v);
}

static void
test_model_reopen(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    const char *preset = presets[t->seed % CH_ARRAY_LEN(presets)];
    struct model *m = calloc(1, sizeof(*m));

    ZT_CHECK(t, m != NULL);
    for (int round = 0; round < 4; round++) {
        cohort_db *db = open_at(t, dir, preset);

        for (int i = 0; i < 4000; i++)
            model_step(t, db, m);
        model_compare(t, db, m);
        if (round == 1)
            ZT_OK(t, cohort_checkpoint(db));
        rig_check(t, db);
        ZT_OK(t, cohort_close(db));
    }
    free(m);
}

static void
test_cursor_seek(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    cohort_db *db = open_at(t, dir, "oop");
    cohort_cursor *c = NULL;
    struct cohort_slice k;
    struct cohort_slice v;
    char key[16], want[16];

    for (int i = 0; i < 2000; i++) {
        (void)snprintf(key, sizeof(key), "%06d", i * 10);
        ZT_OK(t, cohort_put(db, key, 6, key, 6));
    }
    ZT_OK(t, cohort_cursor_open(db, &c));
    ZT_STATUS(t, cohort_cursor_entry(c, &k, &v), COHORT_EINVAL);
    for (int i = 0; i < 300; i++) {
        int x = (int)zt_below(t, 19990);

        (void)snprintf(key, sizeof(key), "%06d", x);
        ZT_OK(t, cohort_cursor_seek(c, key, 6));
        ZT_OK(t, cohort_cursor_entry(c, &k, &v));
        (void)snprintf(want, sizeof(want), "%06d", (x + 9) / 10 * 10);
        ZT_CHECK(t, k.bytes == 6 && memcmp(k.data, want, 6) == 0);
        ZT_OK(t, cohort_cursor_seek_before(c, key, 6));
        ZT_OK(t, cohort_cursor_entry(c, &k, &v));
        (void)snprintf(key, sizeof(key), "%06d", x / 10 * 10);
        ZT_CHECK(t, k.bytes == 6 && memcmp(k.data, key, 6) == 0);
    }
    ZT_STATUS(t, cohort_cursor_seek(c, "999999", 6), COHORT_NOTFOUND);
    ZT_STATUS(t, cohort_cursor_seek_before(c, "", 0), COHORT_NOTFOUND);
    cohort_cursor_close(c);
    ZT_OK(t, cohort_close(db));
}

/* ---- what users do wrong ---- */

static void
write_file(struct zt *t, const char *path, uint64_t off, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);

    ZT_CHECK(t, fd >= 0 && pwrite(fd, data, n, (off_t)off) == (ssize_t)n);
    ZT_CHECK(t, close(fd) == 0);
}

static void
test_open_errors(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    char path[512];
    char file[600];
    struct cohort_options o;
    cohort_db *db = NULL;
    cohort_db *second = NULL;

    rig_options(t, &o, "cohort");
    o.create = COHORT_CREATE_NO;
    (void)snprintf(path, sizeof(path), "%s/missing", dir);
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_ENODB);
    ZT_CHECK(t, strstr(cohort_last_error()->text, "missing") != NULL);
    ZT_STATUS(t, cohort_open(dir, &o, &db), COHORT_ENODB);
    ZT_STATUS(t, cohort_open("", &o, &db), COHORT_EINVAL);
    ZT_STATUS(t, cohort_open(NULL, &o, &db), COHORT_EINVAL);
    (void)snprintf(path, sizeof(path), "%s/db", dir);
    o.create = COHORT_CREATE_MUST;
    o.preset = COHORT_PRESET_OOP_NOWA; /* refused, and nothing is left behind */
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EUNSUPPORTED);
    rig_options(t, &o, "cohort");
    o.create = COHORT_CREATE_MUST;
    ZT_OK(t, cohort_open(path, &o, &db));
    ZT_STATUS(t, cohort_open(path, &o, &second), COHORT_EBUSY);
    ZT_OK(t, cohort_close(db));
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EXISTS);
    o.create = COHORT_CREATE_NO;
    o.preset = COHORT_PRESET_INPLACE;
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EMISMATCH);
    o.preset = COHORT_PRESET_COHORT;
    o.cache_bytes = 17;
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EOPTION);
    ZT_STATUS(t, cohort_options_set(&o, "cache_bytes", "lots"), COHORT_EOPTION);
    ZT_STATUS(t, cohort_options_set(&o, "nonsense", "1"), COHORT_EOPTION);
    rig_options(t, &o, "cohort");
    o.create = COHORT_CREATE_NO;
    ZT_OK(t, cohort_open(path, &o, &db));
    ZT_OK(t, cohort_close(db));
    (void)snprintf(file, sizeof(file), "%s/cohort.db", path);
    ZT_CHECK(t, truncate(file, 300000) == 0);
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EMISMATCH);
    ZT_CHECK(t, truncate(file, 0) == 0);
    write_file(t, file, 0, "this is not a database at all", 29);
    ZT_CHECK(t, truncate(file, 1 << 20) == 0);
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EMAGIC);
    o.create = COHORT_CREATE_YES; /* even then: it is not ours to overwrite */
    ZT_STATUS(t, cohort_open(path, &o, &db), COHORT_EMAGIC);
}

/* Changes both root records of a closed database, checksums right again. */
static void
edit_roots(struct zt *t, const char *dir, void (*edit)(struct meta_root *r))
{
    char file[600];
    uint8_t block[4096] = {0};
    struct meta_root r;

    (void)snprintf(file, sizeof(file), "%s/cohort.db", dir);
    for (int slot = 0; slot < 2; slot++) {
        int fd = open(file, O_RDONLY);

        ZT_CHECK(t, fd >= 0 && pread(fd, block, sizeof(block), slot * META_ROOT_BYTES / 2) ==
                                   sizeof(block));
        ZT_CHECK(t, close(fd) == 0);
        if (meta_root_decode(block, &r) != 0)
            continue;
        edit(&r);
        meta_root_encode(&r, block);
        write_file(t, file, (uint64_t)slot * META_ROOT_BYTES / 2, block, sizeof(block));
    }
}

static void
edit_version(struct meta_root *r)
{
    r->format_version = META_VERSION + 1;
}

static void
edit_codec(struct meta_root *r)
{
    r->codec = 9;
}

static void
edit_preset(struct meta_root *r)
{
    r->preset = 77;
}

static void
edit_map_start(struct meta_root *r)
{
    r->map_start = UINT64_C(1) << 62;
}

static void
test_newer_format(struct zt *t)
{
    static const struct {
        void (*edit)(struct meta_root *r);
        int want;
    } edits[] = {{edit_version, COHORT_EVERSION},
                 {edit_codec, COHORT_EVERSION},
                 {edit_preset, COHORT_EVERSION},
                 {edit_map_start, COHORT_ELOG}};

    for (size_t k = 0; k < CH_ARRAY_LEN(edits); k++) {
        char dir[512];
        struct cohort_options o;
        cohort_db *db;

        (void)snprintf(dir, sizeof(dir), "%s/%zu", zt_tmpdir(t), k);
        db = open_at(t, dir, "cohort");
        ZT_OK(t, cohort_close(db));
        edit_roots(t, dir, edits[k].edit);
        rig_options(t, &o, "cohort");
        ZT_STATUS(t, cohort_open(dir, &o, &db), edits[k].want);
    }
}

/* Goal: flipped bytes anywhere give a named error or the right data, never wrong data or a crash.
 * Method: a closed database on a simulated drive; damage one random block that is not zero; open, read all, check. */
static void
test_flips(struct zt *t)
{
    struct cohort_options o;
    struct sim_drive *drive = NULL;
    struct dev *dev = NULL;
    cohort_db *db = NULL;
    struct model *m = calloc(1, sizeof(*m));
    uint8_t block[4096];
    bool zero = true;
    uint64_t off = 0;
    struct cohort_value v = {0};
    int rc;

    rig_options(t, &o, presets[t->seed % CH_ARRAY_LEN(presets)]);
    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K", &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, api_open_dev(dev, &o, true, &db));
    for (int i = 0; i < 3000; i++)
        model_step(t, db, m);
    ZT_OK(t, cohort_sync(db));
    /* Damage of the log's last block cannot be told from a write that the crash tore, so nothing that is compared stands
     * there: each of these is a block of its own, and vouches for those before it (R10). */
    for (int i = 0; i < 3; i++) {
        ZT_OK(t, cohort_put(db, "zz", 2, "last", 4));
        ZT_OK(t, cohort_sync(db));
    }
    if (t->seed % 2 == 0)
        ZT_OK(t, cohort_close(db));
    else
        api_kill(db); /* the log matters */
    while (zero) {
        off = zt_below(t, (16 << 20) / 4096) * 4096;
        sim_drive_peek(drive, off, block, sizeof(block));
        for (size_t i = 0; zero && i < sizeof(block); i++)
            zero = block[i] == 0;
    }
    block[zt_below(t, sizeof(block))] ^= (uint8_t)(1 + zt_below(t, 255));
    sim_drive_poke(drive, off, block, sizeof(block));
    ZT_OK(t, dev_sim_open(drive, &dev));
    rc = api_open_dev(dev, &o, false, &db);
    if (rc != 0) {
        ZT_CHECK(t, cohort_class_of(rc) == COHORT_CLASS_CORRUPT ||
                        cohort_class_of(rc) == COHORT_CLASS_MISMATCH);
    } else {
        for (unsigned i = 0; i < MODEL_KEYS; i++) {
            char key[32];
            char value[MODEL_VALUE_MAX];

            rc = cohort_get(db, key, model_key(i, key), &v);
            if (cohort_class_of(rc) == COHORT_CLASS_CORRUPT)
                continue;
            ZT_STATUS(t, rc, m->version[i] != 0 ? 0 : COHORT_NOTFOUND);
            if (rc == 0)
                ZT_CHECK(t, v.bytes == model_value(i, m->version[i], value) &&
                                memcmp(v.data, value, v.bytes) == 0);
        }
        api_kill(db);
    }
    cohort_value_free(&v);
    sim_drive_destroy(drive);
    free(m);
}

/* Goal: a full database refuses writes by name, reads everything, takes deletes, and then takes writes again. */
static void
test_full(struct zt *t)
{
    const char *dir = zt_tmpdir(t);
    const char *preset = presets[t->seed % CH_ARRAY_LEN(presets)];
    struct cohort_options o;
    struct cohort_value v = {0};
    cohort_db *db = NULL;
    char key[32];
    uint8_t value[1000];
    unsigned n = 0;
    int rc = 0;

    rig_options(t, &o, preset);
    rig_set(t, &o, "max_bytes", "8M");
    ZT_OK(t, cohort_open(dir, &o, &db));
    for (; rc == 0 && n < 100000; n++) {
        (void)snprintf(key, sizeof(key), "%08u", n * 7919U % 100000007U);
        ch_prng_fill(&t->rng, value, sizeof(value));
        rc = cohort_put(db, key, 8, value, sizeof(value));
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    n--;
    ZT_CHECK(t, n > 2000);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "%08u", i * 7919U % 100000007U);
        ZT_OK(t, cohort_get(db, key, 8, &v));
        ZT_CHECK(t, v.bytes == sizeof(value));
    }
    for (unsigned i = 0; i < n; i += 2) {
        (void)snprintf(key, sizeof(key), "%08u", i * 7919U % 100000007U);
        ZT_OK(t, cohort_del(db, key, 8));
    }
    for (unsigned i = 1; i < n; i += 2) {
        (void)snprintf(key, sizeof(key), "%08u", i * 7919U % 100000007U);
        ZT_OK(t, cohort_del(db, key, 8));
    }
    ZT_OK(t, cohort_checkpoint(db));
    for (unsigned i = 0; i < 500; i++) {
        (void)snprintf(key, sizeof(key), "%08u", i);
        ZT_OK(t, cohort_put(db, key, 8, value, sizeof(value)));
    }
    rig_check(t, db);
    ZT_OK(t, cohort_close(db));
    cohort_value_free(&v);
}

/* Goal: after a failed log write or flush, writes say EFAILED for good, reads go on, and reopening finds what was
 * acknowledged. */
static void
test_failed_log(struct zt *t)
{
    struct dev_fault_plan plan = {0};
    struct cohort_options o;
    struct sim_drive *drive = NULL;
    struct dev *dev = NULL;
    struct dev *fault = NULL;
    struct cohort_value v = {0};
    cohort_db *db = NULL;
    char key[32];
    unsigned n = 0;
    int rc = 0;

    rig_options(t, &o, presets[t->seed % CH_ARRAY_LEN(presets)]);
    o.durability = COHORT_DURABILITY_SYNC;
    ZT_OK(t, sim_drive_create("generic,bytes=16M,superblock=256K", &drive));
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, dev_fault_open(dev, &plan, &fault));
    ZT_OK(t, api_open_dev(fault, &o, true, &db));
    plan.code = COHORT_EIO;
    plan.fail_nth[t->seed % 2 ? DEV_FLUSH : DEV_WRITE] = 20 + zt_below(t, 50);
    dev_fault_set(fault, &plan);
    for (; rc == 0 && n < 1000; n++) {
        (void)snprintf(key, sizeof(key), "%08u", n);
        rc = cohort_put(db, key, 8, key, 8);
    }
    ZT_STATUS(t, rc, COHORT_EFAILED);
    n--;
    ZT_STATUS(t, cohort_put(db, "x", 1, "y", 1), COHORT_EFAILED);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "%08u", i);
        ZT_OK(t, cohort_get(db, key, 8, &v));
    }
    ZT_STATUS(t, cohort_close(db), COHORT_EFAILED);
    ZT_OK(t, dev_sim_open(drive, &dev));
    ZT_OK(t, api_open_dev(dev, &o, false, &db));
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "%08u", i);
        ZT_OK(t, cohort_get(db, key, 8, &v));
    }
    ZT_OK(t, cohort_close(db));
    sim_drive_destroy(drive);
    cohort_value_free(&v);
}

/* Goal: a traced database works as any other, and its trace has as many write bytes as were counted. */
static void
test_trace(struct zt *t)
{
    struct cohort_options o;
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    cohort_db *db = NULL;
    char name[700];
    char file[600];
    uint8_t rec[32];
    uint64_t bytes = 0;
    FILE *f;

    rig_options(t, &o, "oop+pack");
    ZT_STATUS(t, cohort_open("trace:", &o, &db), COHORT_EINVAL);
    ZT_STATUS(t, cohort_open("trace:x,", &o, &db), COHORT_EINVAL);
    (void)snprintf(file, sizeof(file), "%s/trace", zt_tmpdir(t));
    (void)snprintf(name, sizeof(name), "trace:%s,sim:generic,bytes=16M,superblock=256K", file);
    ZT_OK(t, cohort_open(name, &o, &db));
    for (unsigned i = 0; i < 500; i++)
        ZT_OK(t, cohort_put(db, &i, sizeof(i), file, 100));
    ZT_OK(t, cohort_checkpoint(db));
    ZT_OK(t, cohort_stats(db, &s));
    ZT_OK(t, cohort_close(db));
    f = fopen(file, "rb");
    ZT_CHECK(t, f != NULL && fread(rec, sizeof(rec), 1, f) == 1 && memcmp(rec, "COHTRACE", 8) == 0);
    while (fread(rec, sizeof(rec), 1, f) == 1)
        if (rec[20] == DEV_WRITE)
            bytes += ch_get32(rec + 16);
    ZT_CHECK(t, fclose(f) == 0);
    ZT_CHECK(t, bytes >= s.host_bytes &&
                    bytes < s.host_bytes + (1 << 20)); /* closing writes some more */
}

static void
test_stats_add_up(struct zt *t)
{
    struct cohort_options o;
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    struct model *m = calloc(1, sizeof(*m));
    uint64_t sum = 0;
    cohort_db *db = NULL;
    char *text = NULL;

    rig_options(t, &o, presets[t->seed % CH_ARRAY_LEN(presets)]);
    ZT_OK(t, cohort_open("sim:generic,bytes=16M,superblock=256K", &o, &db));
    for (int i = 0; i < 5000; i++)
        model_step(t, db, m);
    ZT_OK(t, cohort_checkpoint(db));
    ZT_OK(t, cohort_stats(db, &s));
    for (int i = 0; i < COHORT_CAUSES; i++)
        sum += s.bytes[i];
    ZT_CHECK(t, sum == s.host_bytes && s.media_bytes >= s.device_host_bytes);
    ZT_CHECK(t, s.page_writes > 0 && s.commits > 0 && s.metadata_bytes > 0);
    ZT_OK(t, cohort_stats_json(db, &text));
    ZT_CHECK(t, strstr(text, "\"media_bytes\":") != NULL);
    cohort_free(text);
    ZT_OK(t, cohort_close(db));
    free(m);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"basics", test_basics, 1},
        {"limits", test_limits, 1},
        {"batch", test_batch, 1},
        {"model_reopen", test_model_reopen, 15},
        {"cursor_seek", test_cursor_seek, 2},
        {"open_errors", test_open_errors, 1},
        {"newer_format", test_newer_format, 1},
        {"flips", test_flips, 100},
        {"full", test_full, 5},
        {"failed_log", test_failed_log, 20},
        {"trace", test_trace, 1},
        {"stats_add_up", test_stats_add_up, 5},
    };

    return zt_main(argc, argv, "api", cases, CH_ARRAY_LEN(cases));
}
