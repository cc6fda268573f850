/* ssd_fdp_test.c - placement handles: isolation, room, update, events, statistics. */
#include <stdio.h>
#include <stdlib.h>

#include "ssd/ssd.h"
#include "zt.h"

enum {
    UNIT = 128,
    UNITS = 512,
    HANDLES = 4
};

static struct ssd *
make(struct zt *t, bool persistent, uint32_t spare_permille)
{
    struct ssd_config cfg = {.logical_pages = UNITS * UNIT,
                             .superblock_pages = UNIT,
                             .spare_permille = spare_permille,
                             .open_superblocks = 1,
                             .stripe_pages = 8,
                             .handles = HANDLES,
                             .persistent = persistent};
    struct ssd *s = NULL;

    ZT_OK(t, ssd_create(&cfg, &s));
    return s;
}

/* Hot pages by handle `hot`, cold ones by `cold`: a tenth of the pages gets nine tenths of the writes,
 * and each kind is uniform within. WAF of the second half. */
static double
hot_cold(struct zt *t, struct ssd *s, uint32_t hot, uint32_t cold)
{
    const uint64_t pages = UNITS * UNIT, share = pages / 10;
    struct ssd_counts c = {0}, end;

    ssd_write_to(s, hot, 0, share);
    ssd_write_to(s, cold, share, pages - share);
    for (uint64_t i = 0; i < 16 * pages; i++) {
        if (i == 8 * pages)
            ssd_counts(s, &c);
        if (zt_below(t, 10) != 0)
            ssd_write_to(s, hot, zt_below(t, share), 1);
        else
            ssd_write_to(s, cold, share + zt_below(t, pages - share), 1);
    }
    ssd_counts(s, &end);
    ZT_CHECK(t, ssd_check(s));
    return (double)(end.media_bytes - c.media_bytes) / (double)(end.host_bytes - c.host_bytes);
}

/* Goal: handles separate what has different life: less is moved than with one handle; most of the gain is
 * lost again when GC mixes what it moves, and kept when GC keeps it apart, too. */
static void
test_isolation(struct zt *t)
{
    double one, initially, persistently;
    struct ssd *s = make(t, false, 150);

    one = hot_cold(t, s, 0, 0);
    ssd_destroy(s);
    s = make(t, false, 150);
    initially = hot_cold(t, s, 0, 1);
    ssd_destroy(s);
    s = make(t, true, 150);
    persistently = hot_cold(t, s, 0, 1);
    ssd_destroy(s);
    printf("  90/10: one handle %.3f, initially isolated %.3f, persistently %.3f\n", one, initially,
           persistently);
    ZT_CHECK(t, initially < 0.97 * one);
    ZT_CHECK(t, persistently < 0.9 * initially);
}

/* Goal: units written whole, each by one handle, and discarded whole are never moved, however the
 * handles are interleaved. */
static void
test_whole_units_are_free(struct zt *t)
{
    struct ssd *s = make(t, false, 30);
    struct ssd_counts c;

    for (int round = 0; round < 3000; round++) {
        uint64_t z[HANDLES];

        for (uint32_t h = 0; h < HANDLES; h++) {
            z[h] = zt_below(t, UNITS / HANDLES) * HANDLES + h;
            ssd_discard(s, z[h] * UNIT, UNIT);
        }
        for (uint64_t at = 0; at < UNIT; at += 8) {
            for (uint32_t h = 0; h < HANDLES; h++)
                ssd_write_to(s, h, z[h] * UNIT + at, 8);
        }
    }
    ssd_counts(s, &c);
    ZT_CHECK(t, c.gc_pages == 0 && ssd_check(s));
    ssd_destroy(s);
}

/* The room of a unit falls as it is written, is a whole unit's again when it is full or updated, and
 * other handles do not touch it. */
static void
test_room_and_update(struct zt *t)
{
    struct ssd *s = make(t, zt_below(t, 2) == 0, 70);
    struct ssd_event e[8];
    uint64_t at = 0;

    for (uint32_t h = 0; h < HANDLES; h++)
        ZT_CHECK(t, ssd_handle_room(s, h) == UNIT);
    ssd_write_to(s, 2, at, 5);
    ZT_CHECK(t, ssd_handle_room(s, 2) == UNIT - 5 && ssd_handle_room(s, 1) == UNIT);
    ssd_write_to(s, 2, at + 5, UNIT - 6);
    ZT_CHECK(t, ssd_handle_room(s, 2) == 1 && ssd_events(s, e, 8) == 0);
    ssd_write_to(s, 2, at + UNIT - 1, 1);
    ZT_CHECK(t, ssd_handle_room(s, 2) == UNIT);
    ZT_CHECK(t, ssd_events(s, e, 8) == 1 && e[0].kind == SSD_EVENT_CHANGED && e[0].handle == 2);
    ssd_handle_update(s, 2); /* nothing in it: nothing happens */
    ZT_CHECK(t, ssd_events(s, e, 8) == 0);
    ssd_write_to(s, 2, 1000, 28);
    ssd_handle_update(s, 2);
    ZT_CHECK(t, ssd_handle_room(s, 2) == UNIT);
    ZT_CHECK(t, ssd_events(s, e, 8) == 1 && e[0].kind == SSD_EVENT_NOT_FULL && e[0].handle == 2 &&
                    e[0].pages == UNIT - 28);
    ssd_write_to(s, HANDLES, 2000, 2);
    ssd_write_to(s, 0, 2000, 1); /* again: the first one is dead, but takes its room */
    ZT_CHECK(t, ssd_handle_room(s, 0) == UNIT - 3);
    ZT_CHECK(t, ssd_events(s, e, 8) == 1 && e[0].kind == SSD_EVENT_BAD_HANDLE &&
                    e[0].handle == HANDLES);
    ZT_CHECK(t, ssd_check(s));
    ssd_destroy(s);
}

/* A unit that was updated half-full and whose pages died is free; one whose pages live is collected
 * like any other, and the log says whose pages moved. The log keeps the latest events. */
static void
test_events_of_moves(struct zt *t)
{
    struct ssd *s = make(t, true, 70);
    struct ssd_event e[SSD_EVENTS_MAX + 1];
    struct ssd_counts c;
    bool moved = false;
    unsigned n;

    ssd_write_to(s, 1, 0, 10);
    ssd_handle_update(s, 1);
    ssd_discard(s, 0, 10);
    ssd_counts(s, &c);
    ZT_CHECK(t, c.free_superblocks == c.superblocks && c.erased_pages == 10);
    for (uint64_t l = 0; l < UNITS * UNIT; l++) /* every second page of a handle's units lives */
        ssd_write_to(s, (uint32_t)(l % 2), l, 1);
    for (uint64_t i = 0; i < 4ULL * UNITS * UNIT; i++)
        ssd_write_to(s, 3, zt_below(t, UNITS * UNIT / 4), 1);
    n = ssd_events(s, e, SSD_EVENTS_MAX + 1);
    ZT_CHECK(t, n == SSD_EVENTS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (e[i].kind != SSD_EVENT_REALLOCATED)
            continue;
        moved = true;
        ZT_CHECK(t, e[i].handle < HANDLES && e[i].pages > 0 && e[i].pages < UNIT);
    }
    ssd_counts(s, &c);
    ZT_CHECK(t, moved && c.gc_pages > 0 && ssd_check(s));
    ssd_destroy(s);
}

static void
test_limits(struct zt *t)
{
    const struct ssd_config good = {.logical_pages = 1000,
                                    .superblock_pages = 10,
                                    .open_superblocks = 1,
                                    .stripe_pages = 1,
                                    .handles = SSD_HANDLES_MAX};
    struct ssd_config bad[6];
    struct ssd *s = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].handles++;
    bad[1].open_superblocks = 2;
    bad[2].shared_gc = true;
    bad[3].slc_permille = 10;
    bad[4].persistent = true;
    bad[4].wear_spread = 4;
    bad[5].persistent = true;
    bad[5].handles = 0;
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        ZT_STATUS(t, ssd_create(&bad[i], &s), COHORT_EOPTION);
    ZT_OK(t, ssd_create(&good, &s));
    for (int i = 0; i < 20000; i++)
        ssd_write_to(s, (uint32_t)zt_below(t, SSD_HANDLES_MAX), zt_below(t, 1000), 1);
    ZT_CHECK(t, ssd_check(s));
    ssd_destroy(s);
}

static const struct zt_case CASES[] = {
    {"isolation", test_isolation, 1},
    {"whole_units_are_free", test_whole_units_are_free, 2},
    {"room_and_update", test_room_and_update, 10},
    {"events_of_moves", test_events_of_moves, 2},
    {"limits", test_limits, 2},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "ssd_fdp", CASES, CH_ARRAY_LEN(CASES));
}
