/* ssd_zns_test.c - zones of a zoned drive against a naive model; limits; what a cut leaves. */
#include <stdlib.h>

#include "ssd/ssd_zns.h"
#include "zt.h"

enum {
    ZONES = 12,
    SIZE = 32,
    CAP = 20
};

static struct ssd_zns *
make(struct zt *t, uint32_t open_max, uint32_t active_max)
{
    struct ssd_zns_config cfg = {.zones = ZONES,
                                 .zone_pages = SIZE,
                                 .cap_pages = CAP,
                                 .open_max = open_max,
                                 .active_max = active_max,
                                 .floor_permille = 10};
    struct ssd_zns *z = NULL;

    ZT_OK(t, ssd_zns_create(&cfg, &z));
    return z;
}

static struct ssd_zone
report(const struct ssd_zns *z, uint32_t zone)
{
    struct ssd_zone r;

    ssd_zns_report(z, zone, &r);
    return r;
}

static void
test_write_pointer(struct zt *t)
{
    struct ssd_zns *z = make(t, 0, 0);
    struct ssd_zns_counts c;

    ZT_STATUS(t, ssd_zns_write(z, 1, 1), COHORT_EIO);
    ZT_OK(t, ssd_zns_write(z, 0, 5));
    ZT_STATUS(t, ssd_zns_write(z, 0, 5), COHORT_EIO);
    ZT_STATUS(t, ssd_zns_write(z, 6, 1), COHORT_EIO);
    ZT_STATUS(t, ssd_zns_write(z, 5, CAP - 4), COHORT_EIO); /* one page more than it takes */
    ZT_CHECK(t, report(z, 0).written == 5 && report(z, 0).state == SSD_ZONE_OPEN);
    ZT_OK(t, ssd_zns_write(z, 5, CAP - 5));
    ZT_CHECK(t, report(z, 0).state == SSD_ZONE_FULL);
    ZT_STATUS(t, ssd_zns_write(z, CAP, 1), COHORT_EIO); /* between capacity and size */
    ZT_STATUS(t, ssd_zns_write(z, (uint64_t)ZONES * SIZE, 1), COHORT_EIO);
    ZT_OK(t, ssd_zns_write(z, SIZE, 3));
    ZT_OK(t, ssd_zns_finish(z, 1));
    ZT_CHECK(t, report(z, 1).state == SSD_ZONE_FULL && report(z, 1).written == CAP);
    ZT_STATUS(t, ssd_zns_write(z, SIZE + 3, 1), COHORT_EIO);
    ZT_OK(t, ssd_zns_reset(z, 1));
    ZT_CHECK(t, report(z, 1).state == SSD_ZONE_EMPTY && report(z, 1).written == 0);
    ZT_STATUS(t, ssd_zns_reset(z, ZONES), COHORT_EIO);
    ssd_zns_counts(z, &c);
    ZT_CHECK(t, c.host_pages == CAP + 3 && c.resets == 1 && c.finished_pages == CAP - 3);
    ZT_CHECK(t, c.open == 0 && c.active == 0 && ssd_zns_check(z));
    ssd_zns_destroy(z);
}

static void
test_limits(struct zt *t)
{
    struct ssd_zns *z = make(t, 2, 3);
    struct ssd_zns_counts c;

    ZT_OK(t, ssd_zns_write(z, 0 * SIZE, 1));
    ZT_OK(t, ssd_zns_write(z, 1 * SIZE, 1));
    ZT_OK(t, ssd_zns_write(z, 2 * SIZE, 1)); /* closes zone 0, the oldest */
    ZT_CHECK(t, report(z, 0).state == SSD_ZONE_CLOSED && report(z, 1).state == SSD_ZONE_OPEN);
    ZT_STATUS(t, ssd_zns_write(z, 3 * SIZE, 1), COHORT_EIO); /* a fourth active one */
    ZT_OK(t, ssd_zns_open(z, 0));                            /* closes zone 1 */
    ZT_CHECK(t, report(z, 0).explicitly && report(z, 1).state == SSD_ZONE_CLOSED);
    ZT_OK(t, ssd_zns_open(z, 2));
    ZT_STATUS(t, ssd_zns_write(z, SIZE + 1, 1), COHORT_EIO); /* both open ones are explicitly so */
    ZT_STATUS(t, ssd_zns_open(z, 1), COHORT_EIO);
    ZT_OK(t, ssd_zns_close(z, 0));
    ZT_OK(t, ssd_zns_write(z, SIZE + 1, 1));
    ZT_STATUS(t, ssd_zns_close(z, 5), COHORT_EIO);
    ZT_OK(t, ssd_zns_finish(z, 0));
    ZT_OK(t, ssd_zns_open(z, 3));
    ZT_OK(t, ssd_zns_close(z, 3)); /* nothing in it: empty again, and not active */
    ssd_zns_counts(z, &c);
    ZT_CHECK(t, report(z, 3).state == SSD_ZONE_EMPTY && c.active == 2 && c.open == 1);
    ZT_CHECK(t, ssd_zns_check(z));
    ssd_zns_destroy(z);
}

/* Goal: pointers are what the commands that succeeded say; a refused one changes nothing. */
static void
test_random_against_model(struct zt *t)
{
    uint32_t open_max = (uint32_t)zt_below(t, 5);
    struct ssd_zns *z = make(t, open_max, open_max == 0 ? 0 : open_max + (uint32_t)zt_below(t, 4));
    uint32_t written[ZONES] = {0};

    for (int i = 0; i < 4000; i++) {
        uint32_t zone = (uint32_t)zt_below(t, ZONES), n = (uint32_t)(1 + zt_below(t, 6));
        uint32_t at = written[zone] + (zt_below(t, 10) == 0);

        switch (zt_below(t, 12)) {
        case 0:
            ZT_OK(t, ssd_zns_reset(z, zone));
            written[zone] = 0;
            break;
        case 1:
            ZT_OK(t, ssd_zns_finish(z, zone));
            written[zone] = CAP;
            break;
        case 2:
            if (ssd_zns_open(z, zone) == 0)
                ZT_CHECK(t, report(z, zone).state == SSD_ZONE_OPEN);
            break;
        case 3:
            if (ssd_zns_close(z, zone) == 0)
                ZT_CHECK(t, report(z, zone).state != SSD_ZONE_OPEN);
            break;
        default:
            if (ssd_zns_write(z, (uint64_t)zone * SIZE + at, n) == 0) {
                ZT_CHECK(t, at == written[zone] && at + n <= CAP);
                written[zone] += n;
            } else {
                ZT_CHECK(t, at != written[zone] || at + n > CAP || open_max > 0);
            }
            break;
        }
        ZT_CHECK(t, ssd_zns_check(z));
        for (uint32_t j = 0; j < ZONES; j++)
            ZT_CHECK(t, report(z, j).written == written[j]);
    }
    ssd_zns_destroy(z);
}

static void
test_cut(struct zt *t)
{
    struct ssd_zns *z = make(t, 4, 4);

    ZT_OK(t, ssd_zns_write(z, 0, 10));
    ZT_OK(t, ssd_zns_write(z, SIZE, CAP));
    ZT_OK(t, ssd_zns_write(z, 2 * SIZE, 4));
    ZT_OK(t, ssd_zns_finish(z, 2));
    ssd_zns_cut(z, 0, 0);
    ssd_zns_cut(z, 1, 7);
    ssd_zns_cut(z, 2, 2); /* it was finished: that stays */
    ZT_CHECK(t, report(z, 0).state == SSD_ZONE_EMPTY);
    ZT_CHECK(t, report(z, 1).state == SSD_ZONE_CLOSED && report(z, 1).written == 7);
    ZT_CHECK(t, report(z, 2).state == SSD_ZONE_FULL && ssd_zns_check(z));
    ZT_OK(t, ssd_zns_write(z, SIZE + 7, 1));
    ssd_zns_destroy(z);
}

static void
test_configs(struct zt *t)
{
    const struct ssd_zns_config bad[] = {
        {.zones = 0, .zone_pages = 8, .cap_pages = 8},
        {.zones = 1, .zone_pages = 8, .cap_pages = 9},
        {.zones = 1, .zone_pages = 8, .cap_pages = 0},
        {.zones = 1U << 20, .zone_pages = 1U << 20, .cap_pages = 1},
        {.zones = 1, .zone_pages = 8, .cap_pages = 8, .open_max = 3, .active_max = 2},
        {.zones = 1, .zone_pages = 8, .cap_pages = 8, .active_max = 2},
    };
    struct ssd_zns_config cfg;
    struct ssd_zns *z = NULL;

    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++)
        ZT_STATUS(t, ssd_zns_create(&bad[i], &z), COHORT_EOPTION);
    ZT_CHECK(t, !ssd_zns_model("pm9a3", &cfg) && !ssd_zns_model("floppy", &cfg));
    ZT_CHECK(t, ssd_zns_model("zns", &cfg) && ssd_zns_model("H", &cfg));
    ZT_CHECK(t, cfg.open_max == 14 && cfg.cap_pages < cfg.zone_pages);
    ssd_zns_destroy(NULL);
}

static const struct zt_case CASES[] = {
    {"write_pointer", test_write_pointer, 1},
    {"limits", test_limits, 1},
    {"random_against_model", test_random_against_model, 50},
    {"cut", test_cut, 1},
    {"configs", test_configs, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "ssd_zns", CASES, CH_ARRAY_LEN(CASES));
}
