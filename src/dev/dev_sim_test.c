/* dev_sim_test.c - the simulated drive: URIs, contents, counters, and what a power cut may
 * leave. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "dev/dev.h"
#include "ssd/ssd.h"
#include "zt.h"

enum {
    B = 4096,
    SECTOR = 512,
    BLOCKS = 64,
    HISTORY = 8, /* versions of a block that the model remembers */
    PATH_BYTES = 512
};

static void *
blocks(struct zt *t, size_t n)
{
    void *p = ch_alloc_aligned(n * B);

    ZT_CHECK(t, p != NULL);
    return p;
}

static struct sim_drive *
drive(struct zt *t, const char *cfg)
{
    struct sim_drive *s = NULL;

    ZT_OK(t, sim_drive_create(cfg, &s));
    return s;
}

static struct dev *
handle(struct zt *t, struct sim_drive *s)
{
    struct dev *d = NULL;

    ZT_OK(t, dev_sim_open(s, &d));
    return d;
}

/* ---- URIs ---- */

static void
test_uri_errors_name_the_key(struct zt *t)
{
    static const char *const BAD[][2] = {
        {"sim:generic,bytes=12", "bytes"},
        {"sim:bytes=1X", "bytes"},
        {"sim:bytes=0", "bytes"},
        {"sim:bytes=99999999999999999999", "bytes"},
        {"sim:bytes=-4K", "bytes"},
        {"sim:bytes=99999999T", "bytes"},
        {"sim:spare=7", "spare"},
        {"sim:spare=%", "spare"},
        {"sim:superblock=5000", "superblock"},
        {"sim:open=x", "open"},
        {"sim:open=99999999999", "open"},
        {"sim:stripe=", "stripe"},
        {"sim:gc=lazy", "gc"},
        {"sim:cache=maybe", "cache"},
        {"sim:seed=", "seed"},
        {"sim:floor=4.55%", "floor"},
        {"sim:file=", "file"},
        {"sim:colour=red", "colour"},
        {"sim:generic,pm9a3", "pm9a3"},
        {"sim:zip100", "zip100"},
        {"sim:open=0", "open"},
        {"sim:fdp=maybe", "fdp"},
        {"sim:isolation=none", "isolation"},
        {"sim:isolation=persistent", "isolation"},
        {"sim:unit=secret", "unit"},
        {"sim:buffer=1000", "buffer"},
        {"sim:slc=2", "slc"},
        {"sim:model=floppy", "floppy"},
        {"sim:timing=warp", "timing"},
        {"sim:zone=5000", "zone"},
        {"sim:bytes=64M,model=generic", "model"},
    };
    struct dev *d = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(BAD); i++) {
        ZT_STATUS(t, dev_open(BAD[i][0], DEV_CREATE, 0, &d), COHORT_EOPTION);
        ZT_CHECK(t, strstr(ch_last_error()->text, BAD[i][1]) != NULL);
    }
    ZT_CHECK(t, d == NULL);
}

static void
test_uri_sets_the_drive(struct zt *t)
{
    struct ssd_counts c;
    struct sim_drive *s;
    struct dev *d = NULL;

    ZT_OK(t, dev_open("sim:", 0, 0, &d));
    ZT_CHECK(t, dev_caps(d)->bytes == UINT64_C(1) << 30 && dev_caps(d)->unit_bytes == 8 << 20);
    ZT_CHECK(t, dev_caps(d)->volatile_cache && !dev_caps(d)->growable);
    ZT_CHECK(t, dev_size(d) == UINT64_C(1) << 30 && strcmp(dev_name(d), "sim:") == 0);
    dev_close(d);
    s = drive(t, "p5520,bytes=64M,spare=12.5%,superblock=1M,open=3,stripe=64K,gc=shared,gc_low=4,"
                 "floor=4.5%,cache=none,seed=7");
    sim_drive_counts(s, &c);
    ZT_CHECK(t, c.superblocks == 72 + 4 + 3 && c.physical_pages == c.superblocks * 256);
    d = handle(t, s);
    ZT_CHECK(t, dev_caps(d)->unit_bytes == 1 << 20 && !dev_caps(d)->volatile_cache);
    dev_close(d);
    sim_drive_destroy(s);
}

/* ---- placement handles ---- */

/* Streams reach the drive's handles, through wrappers, too; events and statistics come back. */
static void
test_streams(struct zt *t)
{
    struct sim_drive *s = drive(t, "model=fdp,bytes=16M,superblock=256K,handles=3");
    struct dev_fault_plan none = {0};
    struct dev *d = handle(t, s), *f = NULL;
    struct dev_stream_stats stats;
    struct dev_event e[4];
    uint8_t *buf = blocks(t, 64);
    uint64_t room;
    unsigned n;

    ZT_OK(t, dev_fault_open(d, &none, &f));
    ZT_CHECK(t, dev_streams(f) == 3 && dev_caps(f)->unit_bytes == 256 << 10);
    for (uint32_t stream = 0; stream <= 4; stream++) {
        struct dev_req r = {.op = DEV_WRITE, .off = stream << 20, .len = 4 * B, .buf = buf};

        r.stream = stream;
        r.split[0] = 4 * B;
        ZT_OK(t, dev_io(f, &r, 1));
    }
    ZT_OK(t, dev_stream_room(f, 0, &room)); /* 0 and 1 are handle 0, and 4, which there is not */
    ZT_CHECK(t, room == (256 << 10) - 12 * B);
    ZT_OK(t, dev_stream_room(f, 3, &room));
    ZT_CHECK(t, room == (256 << 10) - 4 * B);
    ZT_OK(t, dev_stream_update(f, 3));
    ZT_OK(t, dev_events(f, e, 4, &n));
    ZT_CHECK(t, n == 2 && e[0].kind == DEV_EVENT_BAD_STREAM && e[0].stream == 4);
    ZT_CHECK(t, e[1].kind == DEV_EVENT_NOT_FULL && e[1].stream == 3 && e[1].bytes == room);
    ZT_OK(t, dev_stream_room(f, 3, &room));
    ZT_CHECK(t, room == 256 << 10);
    ZT_STATUS(t, dev_stream_room(f, 4, &room), COHORT_EINVAL);
    ZT_STATUS(t, dev_stream_update(f, 4), COHORT_EINVAL);
    ZT_OK(t, dev_stream_stats(f, &stats));
    ZT_CHECK(t, stats.host_bytes == 20 * B && stats.media_bytes == 20 * B);
    sim_drive_crash(s, 1);
    ZT_STATUS(t, dev_stream_update(f, 1), COHORT_EIO);
    dev_close(f);
    sim_drive_destroy(s);
    ch_free_aligned(buf);
}

static void
test_no_streams(struct zt *t)
{
    struct dev_event e;
    struct dev_zone z;
    struct dev *d = NULL;
    uint64_t room;
    unsigned n;

    ZT_OK(t, dev_open("sim:fdp,fdp=no,bytes=1M,superblock=64K,unit=hidden", 0, 0, &d));
    ZT_CHECK(t, dev_streams(d) == 0 && dev_caps(d)->unit_bytes == 0);
    ZT_STATUS(t, dev_stream_room(d, 0, &room), COHORT_EUNSUPPORTED);
    ZT_STATUS(t, dev_stream_update(d, 0), COHORT_EUNSUPPORTED);
    ZT_STATUS(t, dev_events(d, &e, 1, &n), COHORT_EUNSUPPORTED);
    ZT_STATUS(t, dev_zone_report(d, 0, &z, 1, &n), COHORT_EUNSUPPORTED);
    ZT_STATUS(t, dev_zone_do(d, 0, DEV_ZONE_DO_FINISH), COHORT_EUNSUPPORTED);
    ZT_CHECK(t, dev_virtual_background() == 0);
    dev_close(d);
}

/* ---- contents and counters ---- */

/* Contents follow writes and resets; the drive's counters agree with ours; discarded space is
 * mapped no more; one handle at a time. */
static void
test_contents_and_counts(struct zt *t)
{
    struct sim_drive *s = drive(t, "bytes=1M,superblock=64K,floor=10%");
    struct dev *d = handle(t, s), *second = NULL;
    uint8_t *buf = blocks(t, 256), *model = blocks(t, 256);
    struct dev_counts counts;
    struct ssd_counts c;
    uint64_t host, media;

    ZT_STATUS(t, dev_sim_open(s, &second), COHORT_EBUSY);
    for (int i = 0; i < 500; i++) {
        uint64_t at = zt_below(t, 256), n = 1 + zt_below(t, ch_min_u64(8, 256 - at));

        if (zt_below(t, 5) == 0) {
            ZT_OK(t, dev_reset(d, at * B, n * B));
            memset(model + at * B, 0, n * B);
        } else {
            ch_prng_fill(&t->rng, model + at * B, n * B);
            ZT_OK(t, dev_write(d, at * B, model + at * B, n * B, CH_USER));
        }
        ZT_OK(t, dev_read(d, 0, buf, (size_t)256 * B));
        ZT_CHECK(t, memcmp(buf, model, (size_t)256 * B) == 0);
    }
    ZT_OK(t, dev_flush(d));
    dev_counts(d, &counts);
    dev_physical(d, &host, &media);
    sim_drive_counts(s, &c);
    ZT_CHECK(t, host == counts.host_bytes && host == c.host_bytes && media == c.media_bytes);
    ZT_CHECK(t, media >= host + host / 11);
    ZT_OK(t, dev_reset(d, 0, (size_t)256 * B));
    sim_drive_counts(s, &c);
    ZT_CHECK(t, c.mapped_pages == 0);
    ZT_STATUS(t, dev_write(d, (uint64_t)256 * B, buf, B, CH_USER), COHORT_EIO);
    dev_close(d);
    d = handle(t, s);
    dev_close(d);
    sim_drive_destroy(s);
    sim_drive_destroy(NULL);
    ch_free_aligned(buf);
    ch_free_aligned(model);
}

/* With file= contents outlive the drive, what they map counts as there from the start and not as
 * written, and the file is locked. */
static void
test_file_backed(struct zt *t)
{
    struct sim_drive *s;
    struct dev *d = NULL, *second = NULL;
    uint8_t *buf = blocks(t, 16), *back = blocks(t, 16);
    struct ssd_counts c;
    char path[PATH_BYTES], uri[PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/drive", zt_tmpdir(t));
    (void)snprintf(uri, sizeof(uri), "sim:bytes=4M,superblock=256K,file=%s", path);
    ch_prng_fill(&t->rng, buf, (size_t)16 * B);
    ZT_STATUS(t, dev_open(uri, 0, 0, &d), COHORT_ENODB);
    ZT_OK(t, dev_open(uri, DEV_CREATE | DEV_EXCL, 0, &d));
    ZT_STATUS(t, dev_open(uri, 0, 0, &second), COHORT_EBUSY);
    ZT_OK(t, dev_write(d, 10 * B, buf, (size_t)16 * B, CH_USER));
    ZT_OK(t, dev_write(d, 100 * B, buf, (size_t)16 * B, CH_USER));
    ZT_OK(t, dev_reset(d, 100 * B, (size_t)8 * B));
    dev_close(d);
    ZT_STATUS(t, dev_open(uri, DEV_CREATE | DEV_EXCL, 0, &d), COHORT_EXISTS);
    s = drive(t, uri + 4);
    sim_drive_counts(s, &c);
    ZT_CHECK(t, c.mapped_pages == 16 + 8 && c.host_bytes == 0 && c.media_bytes == 0);
    d = handle(t, s);
    ZT_OK(t, dev_read(d, 10 * B, back, (size_t)16 * B));
    ZT_CHECK(t, memcmp(buf, back, (size_t)16 * B) == 0);
    ZT_OK(t, dev_read(d, 100 * B, back, (size_t)16 * B));
    ZT_CHECK(t, back[0] == 0 && back[8 * B - 1] == 0);
    ZT_CHECK(t, memcmp(buf + 8 * B, back + 8 * B, (size_t)8 * B) == 0);
    dev_close(d);
    sim_drive_destroy(s);
    (void)snprintf(uri, sizeof(uri), "sim:bytes=2M,superblock=256K,file=%s", path);
    ZT_STATUS(t, dev_open(uri, 0, 0, &d), COHORT_EMISMATCH);
    ch_free_aligned(buf);
    ch_free_aligned(back);
}

static void
test_peek_and_poke(struct zt *t)
{
    struct sim_drive *s = drive(t, "bytes=1M,superblock=64K");
    struct dev *d = handle(t, s);
    uint8_t *buf = blocks(t, 2);
    char text[8];

    sim_drive_poke(s, B - 3, "damaged", 8); /* across a block's end */
    ZT_OK(t, dev_read(d, 0, buf, (size_t)2 * B));
    ZT_CHECK(t, memcmp(buf + B - 3, "damaged", 8) == 0);
    ZT_OK(t, dev_reset(d, B, B)); /* poked blocks are reset like others */
    ZT_OK(t, dev_flush(d));
    sim_drive_peek(s, B - 3, text, 8);
    ZT_CHECK(t, memcmp(text, "dam\0\0\0\0\0", 8) == 0);
    dev_close(d);
    sim_drive_destroy(s);
    ch_free_aligned(buf);
}

/* ---- power cut ---- */

struct block_model { /* versions[0] is durable, versions[count - 1] the newest */
    unsigned count;
    uint8_t *versions[HISTORY];
};

struct model {
    struct block_model b[BLOCKS];
    uint64_t kept, rolled_back, torn, garbled; /* blocks, over all cuts */
};

static void
model_init(struct zt *t, struct model *m)
{
    memset(m, 0, sizeof(*m));
    for (int b = 0; b < BLOCKS; b++) {
        m->b[b].count = 1;
        for (int v = 0; v < HISTORY; v++)
            m->b[b].versions[v] = blocks(t, 1);
    }
}

static void
model_fini(struct model *m)
{
    for (int b = 0; b < BLOCKS; b++) {
        for (int v = 0; v < HISTORY; v++)
            ch_free_aligned(m->b[b].versions[v]);
    }
}

/* The newest version is durable, or `now` is. */
static void
model_settle(struct block_model *b, const uint8_t *now)
{
    memcpy(b->versions[0], now != NULL ? now : b->versions[b->count - 1], B);
    b->count = 1;
}

/* A random write or reset of one block, unless the model's memory of it is full. */
static void
change_block(struct zt *t, struct dev *d, struct model *m)
{
    uint64_t at = zt_below(t, BLOCKS);
    struct block_model *b = &m->b[at];

    if (b->count == HISTORY)
        return;
    if (zt_below(t, 6) == 0) {
        memset(b->versions[b->count], 0, B);
        ZT_OK(t, dev_reset(d, at * B, B));
    } else {
        ch_prng_fill(&t->rng, b->versions[b->count], B);
        ZT_OK(t, dev_write(d, at * B, b->versions[b->count], B, CH_USER));
    }
    b->count++;
}

static bool
same(const uint8_t *a, const uint8_t *b, unsigned sector)
{
    return memcmp(a + sector * SECTOR, b + sector * SECTOR, SECTOR) == 0;
}

/* Sectors are all of the newest version or of one older one. */
static bool
is_torn(const struct block_model *b, const uint8_t *got)
{
    const uint8_t *newest = b->versions[b->count - 1];

    for (unsigned v = 0; v + 1 < b->count; v++) {
        unsigned fits = 0;

        for (unsigned s = 0; s < B / SECTOR; s++)
            fits += same(got, newest, s) || same(got, b->versions[v], s);
        if (fits == B / SECTOR)
            return true;
    }
    return false;
}

/* Looks at one block after the cut: it must be one of the allowed outcomes. */
static void
check_block(struct zt *t, struct model *m, struct block_model *b, const uint8_t *got)
{
    const uint8_t *newest = b->versions[b->count - 1];
    bool wild = true; /* every sector that is not the newest is unlike all versions */

    if (memcmp(got, newest, B) == 0) {
        m->kept += b->count > 1;
        return;
    }
    ZT_CHECK(t, b->count > 1); /* flushed data always survives */
    for (unsigned v = 0; v + 1 < b->count; v++) {
        if (memcmp(got, b->versions[v], B) == 0) {
            m->rolled_back++;
            return;
        }
    }
    if (is_torn(b, got)) {
        m->torn++;
        return;
    }
    for (unsigned v = 0; v + 1 < b->count; v++) {
        for (unsigned s = 0; s < B / SECTOR; s++)
            wild &= same(got, newest, s) || !same(got, b->versions[v], s);
    }
    ZT_CHECK(t, wild);
    m->garbled++;
}

/* Goal: flushed data always survives a cut; a block written since is new, old, torn or garbled, and
 * each of these does happen. Method: random writes, resets and flushes against all versions a block
 * had since the last flush, cut 60 times. */
static void
test_crash_outcomes(struct zt *t)
{
    struct sim_drive *s = drive(t, "bytes=1M,superblock=64K,seed=3");
    struct model m;
    uint8_t *got = blocks(t, 1);

    model_init(t, &m);
    for (int cut = 0; cut < 60; cut++) {
        struct dev *d = handle(t, s);

        for (uint64_t n = zt_below(t, 200); n > 0; n--)
            change_block(t, d, &m);
        ZT_OK(t, dev_flush(d));
        for (int b = 0; b < BLOCKS; b++)
            model_settle(&m.b[b], NULL);
        for (uint64_t n = zt_below(t, 100); n > 0; n--)
            change_block(t, d, &m);
        sim_drive_crash(s, zt_below(t, UINT64_MAX));
        for (int b = 0; b < BLOCKS; b++) {
            sim_drive_peek(s, (uint64_t)b * B, got, B);
            check_block(t, &m, &m.b[b], got);
            model_settle(&m.b[b], got);
        }
        dev_close(d);
    }
    ZT_CHECK(t, m.kept > 20 && m.rolled_back > 20 && m.torn > 20 && m.garbled > 20);
    model_fini(&m);
    sim_drive_destroy(s);
    ch_free_aligned(got);
}

/* The same history and seed leave the same bytes; another seed does not. */
static void
test_crash_is_replayable(struct zt *t)
{
    uint8_t *buf = blocks(t, BLOCKS), *left[3];

    ch_prng_fill(&t->rng, buf, (size_t)BLOCKS * B);
    for (int i = 0; i < 3; i++) {
        struct sim_drive *s = drive(t, "bytes=1M,superblock=64K");
        struct dev *d = handle(t, s);

        left[i] = blocks(t, BLOCKS);
        ZT_OK(t, dev_write(d, 0, buf, (size_t)BLOCKS * B, CH_USER));
        sim_drive_crash(s, i < 2 ? t->seed : t->seed + 1);
        sim_drive_peek(s, 0, left[i], (size_t)BLOCKS * B);
        dev_close(d);
        sim_drive_destroy(s);
    }
    ZT_CHECK(t, memcmp(left[0], left[1], (size_t)BLOCKS * B) == 0);
    ZT_CHECK(t, memcmp(left[0], left[2], (size_t)BLOCKS * B) != 0);
    for (int i = 0; i < 3; i++)
        ch_free_aligned(left[i]);
    ch_free_aligned(buf);
}

/* Without a volatile cache nothing is lost; either way the old handle is dead and harmless while a
 * new one works beside it. */
static void
test_crash_kills_the_handle(struct zt *t)
{
    static const char *const CFG[] = {"bytes=1M,superblock=64K,cache=none",
                                      "bytes=1M,superblock=64K,cache=volatile"};
    uint8_t *buf = blocks(t, 1), *got = blocks(t, 1);

    for (int i = 0; i < 2; i++) {
        struct sim_drive *s = drive(t, CFG[i]);
        struct dev *old = handle(t, s), *d;

        memset(buf, 1, B);
        ZT_OK(t, dev_write(old, 0, buf, B, CH_USER));
        if (i == 1)
            ZT_OK(t, dev_flush(old));
        sim_drive_crash(s, t->seed);
        d = handle(t, s);
        memset(buf, 2, B);
        ZT_STATUS(t, dev_write(old, 0, buf, B, CH_USER), COHORT_EIO);
        ZT_STATUS(t, dev_reset(old, 0, B), COHORT_EIO);
        ZT_STATUS(t, dev_read(old, 0, got, B), COHORT_EIO);
        ZT_STATUS(t, dev_flush(old), COHORT_EIO);
        ZT_OK(t, dev_read(d, 0, got, B));
        ZT_CHECK(t, got[0] == 1 && got[B - 1] == 1);
        dev_close(old);
        ZT_OK(t, dev_write(d, 0, buf, B, CH_USER));
        ZT_OK(t, dev_flush(d));
        sim_drive_crash(s, t->seed);
        sim_drive_peek(s, 0, got, B);
        ZT_CHECK(t, memcmp(got, buf, B) == 0);
        dev_close(d);
        sim_drive_destroy(s);
    }
    ch_free_aligned(buf);
    ch_free_aligned(got);
}

/* Whether `waits` decides that a write survives: a flush covers what completed before it was
 * submitted, and a write not waited for has not completed. */
static bool
survives(struct zt *t, bool waits, uint64_t seed)
{
    struct sim_drive *s = drive(t, "bytes=1M,superblock=64K");
    struct dev *d = handle(t, s);
    struct dev_queue *q = NULL;
    uint8_t *buf = blocks(t, 1);
    struct dev_req w = {.op = DEV_WRITE, .len = B, .buf = buf}, f = {.op = DEV_FLUSH};
    uint8_t got[B];

    memset(buf, 9, B);
    w.split[CH_WAL] = B;
    ZT_OK(t, dev_queue_get(d, &q));
    dev_submit(q, &w, 1);
    if (waits)
        ZT_OK(t, dev_wait(q));
    dev_submit(q, &f, 1);
    ZT_OK(t, dev_wait(q));
    dev_queue_put(q);
    sim_drive_crash(s, seed);
    sim_drive_peek(s, 0, got, B);
    dev_close(d);
    sim_drive_destroy(s);
    waits = memcmp(got, buf, B) == 0;
    ch_free_aligned(buf);
    return waits;
}

static void
test_flush_covers_completed_writes_only(struct zt *t)
{
    unsigned lost = 0;

    for (uint64_t i = 0; i < 20; i++) {
        ZT_CHECK(t, survives(t, true, t->seed + i));
        lost += !survives(t, false, t->seed + i);
    }
    ZT_CHECK(t, lost > 0);
}

/* The cache is finite: blocks written long ago are on the flash without a flush, newer ones are
 * not. */
static void
test_cache_writes_back_in_order(struct zt *t)
{
    enum {
        CACHE = 16384,
        N = CACHE + 1000
    };
    struct sim_drive *s = drive(t, "bytes=128M,superblock=1M");
    struct dev *d = handle(t, s);
    uint8_t *buf = blocks(t, 1), *got = blocks(t, 1);
    unsigned lost = 0;

    memset(buf, 1, B);
    ZT_OK(t, dev_write(d, 0, buf, B, CH_USER)); /* leaves the cache first ... */
    memset(buf, 2, B);
    for (uint64_t i = 1; i < N; i++)
        ZT_OK(t, dev_write(d, i * B, buf, B, CH_USER));
    memset(buf, 3, B);
    ZT_OK(t, dev_write(d, 0, buf, B, CH_USER)); /* ... so this one may fall back to 1, not to 0 */
    sim_drive_crash(s, t->seed);
    for (uint64_t i = 1; i < N; i++) {
        sim_drive_peek(s, i * B, got, B);
        if (got[0] != 2 || memcmp(got, got + 1, B - 1) != 0)
            lost++;
        ZT_CHECK(t, lost == 0 || i > N - CACHE);
    }
    ZT_CHECK(t, lost > 100);
    dev_close(d);
    sim_drive_destroy(s);
    ch_free_aligned(buf);
    ch_free_aligned(got);
}

/* When the cache drops one of several versions of a block, a cut can go back to the others only. */
static void
test_cache_drops_single_versions(struct zt *t)
{
    enum {
        CACHE = 16384
    };
    uint8_t *buf = blocks(t, 1), got[B], lost[2][SECTOR];
    unsigned old = 0;

    memset(lost[0], 0, SECTOR);
    memset(lost[1], 1, SECTOR);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim_drive *s = drive(t, "bytes=128M,superblock=1M");
        struct dev *d = handle(t, s);

        for (int v = 1; v <= 3; v++) { /* replaces, hence saves, 0, 1 and 2 */
            memset(buf, v, B);
            ZT_OK(t, dev_write(d, 0, buf, B, CH_USER));
        }
        for (uint64_t i = 1; i < CACHE; i++) /* pushes 0 and 1 out */
            ZT_OK(t, dev_write(d, i * B, buf, B, CH_USER));
        sim_drive_crash(s, t->seed + seed);
        sim_drive_peek(s, 0, got, B);
        for (unsigned i = 0; i < B / SECTOR; i++)
            ZT_CHECK(t, memcmp(got + i * SECTOR, lost[0], SECTOR) != 0 &&
                            memcmp(got + i * SECTOR, lost[1], SECTOR) != 0);
        old += got[0] == 2;
        dev_close(d);
        sim_drive_destroy(s);
    }
    ZT_CHECK(t, old > 0);
    ch_free_aligned(buf);
}

/* A reset is as volatile as a write: unflushed, what it discarded may come back. */
static void
test_reset_is_volatile(struct zt *t)
{
    uint8_t *buf = blocks(t, 1), got[B];
    unsigned back = 0, gone = 0;

    memset(buf, 5, B);
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct sim_drive *s = drive(t, "bytes=1M,superblock=64K");
        struct dev *d = handle(t, s);

        ZT_OK(t, dev_write(d, B, buf, B, CH_USER));
        ZT_OK(t, dev_flush(d));
        ZT_OK(t, dev_reset(d, 0, (size_t)4 * B));
        sim_drive_crash(s, t->seed + seed);
        sim_drive_peek(s, B, got, B);
        back += memcmp(got, buf, B) == 0;
        gone += got[0] == 0 && memcmp(got, got + 1, B - 1) == 0;
        dev_close(d);
        sim_drive_destroy(s);
    }
    ZT_CHECK(t, back > 2 && gone > 2);
    ch_free_aligned(buf);
}

static const struct zt_case CASES[] = {
    {"uri_errors_name_the_key", test_uri_errors_name_the_key, 1},
    {"uri_sets_the_drive", test_uri_sets_the_drive, 1},
    {"streams", test_streams, 1},
    {"no_streams", test_no_streams, 1},
    {"contents_and_counts", test_contents_and_counts, 5},
    {"file_backed", test_file_backed, 1},
    {"peek_and_poke", test_peek_and_poke, 1},
    {"crash_outcomes", test_crash_outcomes, 20},
    {"crash_is_replayable", test_crash_is_replayable, 5},
    {"crash_kills_the_handle", test_crash_kills_the_handle, 5},
    {"flush_covers_completed_writes_only", test_flush_covers_completed_writes_only, 3},
    {"cache_writes_back_in_order", test_cache_writes_back_in_order, 2},
    {"cache_drops_single_versions", test_cache_drops_single_versions, 1},
    {"reset_is_volatile", test_reset_is_volatile, 3},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "dev-sim", CASES, CH_ARRAY_LEN(CASES));
}
