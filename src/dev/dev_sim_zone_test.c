/* dev_sim_zone_test.c - the simulated drive's zones, and its own time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "base/status.h"
#include "dev/dev.h"
#include "rt/rt.h"
#include "ssd/ssd.h"
#include "zt.h"

enum {
    B = 4096,
    ZONE = 32, /* blocks */
    CAP = 20,
    CONVENTIONAL = 64,
    ZONES = 14,
    ALL = CONVENTIONAL + ZONES * ZONE
};

#define ZNS "zns,bytes=2M,superblock=64K,zone=128K,cap=80K,conventional=256K,maxopen=3,maxactive=4"

struct rig {
    struct sim_drive *s;
    struct dev *d;
    uint8_t *buf; /* ALL blocks */
};

static void
rig_open(struct zt *t, struct rig *r, const char *uri)
{
    r->d = NULL;
    ZT_OK(t, sim_drive_create(uri, &r->s));
    ZT_OK(t, dev_sim_open(r->s, &r->d));
    r->buf = ch_alloc_aligned((size_t)ALL * B);
    ZT_CHECK(t, r->buf != NULL);
}

static void
rig_close(struct rig *r)
{
    dev_close(r->d);
    sim_drive_destroy(r->s);
    ch_free_aligned(r->buf);
}

static int
put(struct rig *r, uint64_t block, unsigned n)
{
    return dev_write(r->d, block * B, r->buf, (size_t)n * B, 0);
}

static uint64_t
zone_at(unsigned zone)
{
    return CONVENTIONAL + (uint64_t)zone * ZONE;
}

/* ---- zones ---- */

static void
test_caps_and_report(struct zt *t)
{
    struct dev_zone z[20];
    const struct dev_caps *caps;
    struct rig r;
    unsigned n;

    rig_open(t, &r, ZNS);
    caps = dev_caps(r.d);
    ZT_CHECK(t, caps->sequential_only && caps->zone_bytes == ZONE * B && caps->zone_cap == CAP * B);
    ZT_CHECK(t, caps->conventional_bytes == CONVENTIONAL * B && caps->bytes == ALL * B);
    ZT_CHECK(t, caps->open_zones_max == 3 && caps->active_zones_max == 4);
    ZT_CHECK(t, caps->unit_bytes == ZONE * B);
    ZT_OK(t, put(&r, zone_at(1), 5));
    ZT_OK(t, put(&r, zone_at(2), CAP));
    ZT_OK(t, dev_zone_report(r.d, 0, z, 20, &n));
    ZT_CHECK(t, n == 16 && z[0].state == DEV_ZONE_CONVENTIONAL && z[2].state == DEV_ZONE_EMPTY);
    ZT_CHECK(t, z[3].off == zone_at(1) * B && z[3].written_bytes == 5 * B &&
                    z[3].state == DEV_ZONE_OPEN && z[3].cap_bytes == CAP * B);
    ZT_CHECK(t, z[4].state == DEV_ZONE_FULL);
    ZT_OK(t, dev_zone_do(r.d, zone_at(1) * B, DEV_ZONE_DO_CLOSE));
    ZT_OK(t, dev_zone_do(r.d, zone_at(3) * B, DEV_ZONE_DO_OPEN));
    ZT_OK(t, dev_zone_report(r.d, zone_at(1) * B, z, 1, &n));
    ZT_CHECK(t, n == 1 && z[0].state == DEV_ZONE_CLOSED);
    ZT_OK(t, dev_zone_do(r.d, zone_at(1) * B, DEV_ZONE_DO_FINISH));
    ZT_STATUS(t, put(&r, zone_at(1) + 5, 1), COHORT_EIO);
    ZT_STATUS(t, dev_zone_do(r.d, 0, DEV_ZONE_DO_FINISH), COHORT_EIO);
    ZT_STATUS(t, dev_zone_do(r.d, B, DEV_ZONE_DO_FINISH), COHORT_EINVAL);
    ZT_STATUS(t, dev_zone_report(r.d, ALL * B, z, 1, &n), COHORT_EINVAL);
    rig_close(&r);
}

/* Writes that are not at the pointer fail and leave everything as it was; the conventional part takes
 * them anywhere. */
static void
test_writes(struct zt *t)
{
    struct ssd_counts c;
    struct rig r;
    uint8_t got[B];

    rig_open(t, &r, ZNS);
    ch_prng_fill(&t->rng, r.buf, (size_t)ALL * B);
    ZT_OK(t, put(&r, 30, 7));
    ZT_OK(t, put(&r, 10, 7));
    ZT_STATUS(t, put(&r, CONVENTIONAL - 1, 2), COHORT_EIO); /* into the first zone */
    ZT_STATUS(t, put(&r, zone_at(0) + 1, 1), COHORT_EIO);
    ZT_OK(t, put(&r, zone_at(0), 3));
    ZT_STATUS(t, put(&r, zone_at(0), 3), COHORT_EIO);
    ZT_STATUS(t, put(&r, zone_at(0) + 3, CAP - 2), COHORT_EIO);
    ZT_OK(t, put(&r, zone_at(0) + 3, CAP - 3));
    sim_drive_peek(r.s, (zone_at(0) + 3) * B, got, B);
    ZT_CHECK(t, memcmp(got, r.buf, B) == 0);
    sim_drive_peek(r.s, (zone_at(0) + CAP) * B, got, B);
    ZT_CHECK(t, got[0] == 0 && memcmp(got, got + 1, B - 1) == 0);
    sim_drive_counts(r.s, &c);
    ZT_CHECK(t, c.host_pages == 14 + CAP && c.media_bytes == (14 + CAP) * B && c.gc_pages == 0);
    ZT_STATUS(t, dev_reset(r.d, (zone_at(0) + 1) * B, ZONE * B), COHORT_EIO);
    ZT_STATUS(t, dev_reset(r.d, (CONVENTIONAL - ZONE) * B, 2 * ZONE * B), COHORT_EIO);
    ZT_OK(t, dev_reset(r.d, zone_at(0) * B, 2 * ZONE * B));
    sim_drive_peek(r.s, zone_at(0) * B, got, B);
    ZT_CHECK(t, got[0] == 0 && memcmp(got, got + 1, B - 1) == 0);
    ZT_OK(t, put(&r, zone_at(0), 1));
    rig_close(&r);
}

/* Appends learn their place, several in one vector, and do not fail for the order of things. */
static void
test_append(struct zt *t)
{
    struct dev_req q[4];
    struct rig r;
    uint8_t got[B];

    rig_open(t, &r, ZNS);
    ch_prng_fill(&t->rng, r.buf, (size_t)ALL * B);
    for (unsigned i = 0; i < 4; i++) {
        q[i] = (struct dev_req){.op = DEV_APPEND, .off = zone_at(5) * B, .len = (i + 1) * B};
        q[i].buf = r.buf + i * 8 * B;
        q[i].split[0] = (uint32_t)q[i].len;
    }
    ZT_OK(t, dev_io(r.d, q, 4));
    for (unsigned i = 0; i < 4; i++) {
        sim_drive_peek(r.s, q[i].off, got, B);
        ZT_CHECK(t, q[i].off >= zone_at(5) * B && q[i].off < (zone_at(5) + 10) * B);
        ZT_CHECK(t, memcmp(got, q[i].buf, B) == 0);
    }
    q[0].off = zone_at(5) * B;
    q[0].len = q[0].split[0] = (CAP - 9) * B;
    ZT_STATUS(t, dev_io(r.d, q, 1), COHORT_EIO); /* one more than there is room for */
    q[0].off = (zone_at(5) + 1) * B;
    q[0].len = q[0].split[0] = B;
    ZT_STATUS(t, dev_io(r.d, q, 1), COHORT_EIO); /* not a zone's begin */
    rig_close(&r);
}

/* Random writes to random zones, resets and flushes; what the zones have, and what of it is flushed. */
static void
write_zones(struct zt *t, struct rig *r, uint64_t *written, uint64_t *flushed)
{
    for (int i = 0; i < 300; i++) {
        unsigned zone = (unsigned)zt_below(t, ZONES);

        if (written[zone] == CAP || zt_below(t, 20) == 0) {
            ZT_OK(t, dev_reset(r->d, zone_at(zone) * B, ZONE * B));
            written[zone] = flushed[zone] = 0;
        }
        memset(r->buf, (int)(1 + written[zone]), B);
        ZT_OK(t, put(r, zone_at(zone) + written[zone], 1));
        written[zone]++;
        if (zt_below(t, 100) == 0) {
            ZT_OK(t, dev_flush(r->d));
            memcpy(flushed, written, ZONES * sizeof(*flushed));
        }
    }
}

/* Goal: after a cut each zone holds a prefix of what was written, no shorter than what was flushed, the
 * pointer behind it, zeroes beyond; a reset stays; and things do get lost. */
static void
test_crash(struct zt *t)
{
    uint64_t flushed[ZONES] = {0}, written[ZONES] = {0}, unflushed = 0, lost = 0;
    struct dev_zone z[ZONES];
    struct rig r;
    uint8_t got[B];
    unsigned n;

    rig_open(t, &r,
             "zns,bytes=2M,superblock=64K,zone=128K,cap=80K,conventional=256K,maxopen=0,"
             "maxactive=0");
    for (int round = 0; round < 4; round++) {
        write_zones(t, &r, written, flushed);
        sim_drive_crash(r.s, zt_below(t, 1000));
        dev_close(r.d);
        ZT_OK(t, dev_sim_open(r.s, &r.d));
        ZT_OK(t, dev_zone_report(r.d, CONVENTIONAL * B, z, ZONES, &n));
        for (unsigned i = 0; i < ZONES; i++) {
            uint64_t left = z[i].written_bytes / B;

            ZT_CHECK(t, left >= flushed[i] && left <= written[i] && z[i].state != DEV_ZONE_OPEN);
            unflushed += written[i] - flushed[i];
            lost += written[i] - left;
            written[i] = flushed[i] = left;
            for (uint64_t b = 0; b < ZONE; b++) {
                sim_drive_peek(r.s, (zone_at(i) + b) * B, got, B);
                ZT_CHECK(t, got[0] == (b < left ? 1 + b : 0) && memcmp(got, got + 1, B - 1) == 0);
            }
        }
    }
    ZT_CHECK(t, lost > 0 || unflushed < 60);
    rig_close(&r);
}

static void
test_bad_zones(struct zt *t)
{
    static const char *const BAD[] = {
        "sim:zns,bytes=8M",                    /* no zone beside the conventional part */
        "sim:zns,conventional=12K",            /* not whole zones */
        "sim:zns,cap=16M",                     /* more than a zone */
        "sim:zns,maxopen=20",                  /* more open than active */
        "sim:zns,file=/nonexistent/zoned.sim", /* pointers are not kept */
    };
    struct dev *d = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(BAD); i++)
        ZT_STATUS(t, dev_open(BAD[i], DEV_CREATE, 0, &d), COHORT_EOPTION);
    ZT_OK(t, dev_open("sim:H,bytes=256M", 0, 0, &d));
    ZT_CHECK(t, dev_caps(d)->conventional_bytes == 16 << 20);
    dev_close(d);
}

/* ---- virtual time ---- */

/* A client's clock moves on by what its requests take; a write costs no program, a read of it does; what
 * is submitted together overlaps. */
static void
test_virtual_client(struct zt *t)
{
    struct dev_req q[8];
    struct rig r;
    uint64_t one;

    rig_open(t, &r, "pm9a3,bytes=64M,superblock=1M,timing=virtual");
    dev_virtual_begin(1000000);
    ZT_OK(t, put(&r, 0, 256));
    ZT_CHECK(t, dev_virtual_ns() > 1000000 && dev_virtual_ns() < 1400000);
    dev_virtual_begin(50000000);
    ZT_OK(t, dev_read(r.d, 0, r.buf, B));
    one = dev_virtual_ns() - 50000000;
    ZT_CHECK(t, one > 50000 && one < 75000);
    for (unsigned i = 0; i < 8; i++)
        q[i] = (struct dev_req){
            .op = DEV_READ, .off = i * 32 * B, .len = B, .buf = r.buf + (size_t)i * B};
    dev_virtual_begin(60000000);
    ZT_OK(t, dev_io(r.d, q, 8)); /* a stripe each: eight dies at once */
    ZT_CHECK(t, dev_virtual_ns() - 60000000 < 2 * one);
    ZT_CHECK(t, dev_virtual_background() == 0);
    rig_close(&r);
}

static void
background_writes(void *arg)
{
    struct rig *r = arg;

    for (int i = 0; i < 16 && r->d != NULL; i++) {
        if (put(r, 0, 256) != 0)
            r->d = NULL; /* the test sees it */
    }
}

/* Goal: what another thread writes in the background starts at the clients' time, is reported, and holds
 * up a client's read. */
static void
test_virtual_background(struct zt *t)
{
    struct rt_thread thread;
    uint64_t total = 0;
    struct rig r;

    rig_open(t, &r, "pm9a3,bytes=64M,superblock=1M,timing=virtual");
    dev_virtual_begin(0);
    ZT_OK(t, put(&r, 4096, 256));
    dev_virtual_begin(5000000000);
    ZT_OK(t, dev_read(r.d, 4096 * B, r.buf, B));
    ZT_OK(t, rt_spawn(&thread, "background", background_writes, &r));
    rt_join(&thread);
    ZT_CHECK(t, r.d != NULL);
    for (int i = 0; i < 8; i++) { /* one of each die, while it programs */
        dev_virtual_begin(5000000000);
        ZT_OK(t, dev_read(r.d, (4096 + 32 * i) * B, r.buf, B));
        total += dev_virtual_ns() - 5000000000;
    }
    ZT_CHECK(t, total / 8 > 150000);
    ZT_CHECK(t, dev_virtual_background() > 5000000000);
    rig_close(&r);
}

/* Goal: real time: requests take the time that the model says. */
static void
test_real_time(struct zt *t)
{
    uint64_t from;
    struct rig r;

    rig_open(t, &r, "pm9a3,bytes=16M,superblock=1M,timing=real");
    ZT_OK(t, put(&r, 0, 64));
    from = rt_now_ns();
    for (int i = 0; i < 20; i++)
        ZT_OK(t, dev_read(r.d, 0, r.buf, B));
    ZT_CHECK(t, rt_now_ns() - from >= 20 * 58000);
    ZT_CHECK(t, dev_virtual_background() == 0);
    rig_close(&r);
}

/* Without timing the clock stands still. */
static void
test_no_time(struct zt *t)
{
    struct rig r;

    rig_open(t, &r, "pm9a3,bytes=16M,superblock=1M");
    dev_virtual_begin(7);
    ZT_OK(t, put(&r, 0, 64));
    ZT_CHECK(t, dev_virtual_ns() == 7 && dev_virtual_background() == 0);
    rig_close(&r);
}

static const struct zt_case CASES[] = {
    {"caps_and_report", test_caps_and_report, 1},
    {"writes", test_writes, 1},
    {"append", test_append, 2},
    {"crash", test_crash, 40},
    {"bad_zones", test_bad_zones, 1},
    {"virtual_client", test_virtual_client, 1},
    {"virtual_background", test_virtual_background, 1},
    {"real_time", test_real_time, 1},
    {"no_time", test_no_time, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "dev_sim_zone", CASES, CH_ARRAY_LEN(CASES));
}
