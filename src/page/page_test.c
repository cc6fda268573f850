/* page_test.c - page header: checks, write history against a model, death times. */
#include <stdio.h>

#include "page/page.h"
#include "zt/zt.h"

enum {
    TYPE_AT = 7,
    VERSION_AT = 6
};

static void
random_page(struct zt *t, uint8_t *page, page_id pid)
{
    page_init(page, pid, PAGE_LEAF, 0, (uint32_t)zt_below(t, 1000));
    ch_prng_fill(&t->rng, page + PAGE_HEADER_BYTES, CH_PAGE_BYTES - PAGE_HEADER_BYTES);
    page_set_lsn(page, ch_prng_next(&t->rng));
    page_seal(page);
}

/* Goal: what is put into a header comes out of it, at the bytes that page.h names. */
static void
test_header_fields(struct zt *t)
{
    uint8_t page[CH_PAGE_BYTES];

    memset(page, 0xff, sizeof(page));
    page_init(page, 0x123456789abc, PAGE_INNER, 3, 77);
    page_set_lsn(page, 0x1122334455667788);
    page_set_write_lsn(page, 42);
    ZT_CHECK(t, page_pid(page) == 0x123456789abc && page_type(page) == PAGE_INNER);
    ZT_CHECK(t, page_level(page) == 3 && page_tree(page) == 77);
    ZT_CHECK(t, page_lsn(page) == 0x1122334455667788 && page_write_lsn(page) == 42);
    ZT_CHECK(t, page[4] == 0x47 && page[5] == 0xc0 && page[6] == 1 && page[7] == PAGE_INNER);
    ZT_CHECK(t, page[8] == 0xbc && page[13] == 0x12 && page[14] == 3 && page[15] == 0);
    ZT_CHECK(t, page[16] == 0x88 && page[24] == 42 && page[32] == 77);
    for (int i = 36; i < CH_PAGE_BYTES; i++)
        ZT_CHECK(t, page[i] == 0);
    page_seal(page);
    ZT_CHECK(t, ch_get32(page) == ch_crc32c(0, page + 4, CH_PAGE_BYTES - 4));
    ZT_OK(t, page_check(page, 0x123456789abc));
    ZT_OK(t, page_check(page, 0));
}

/* Goal: a flip of any bit is found, and is never taken for a newer version. */
static void
test_check_finds_every_flip(struct zt *t)
{
    uint8_t page[CH_PAGE_BYTES];

    random_page(t, page, 1 + zt_below(t, 1000));
    ZT_OK(t, page_check(page, page_pid(page)));
    for (unsigned i = 0; i < 400; i++) {
        unsigned bit = i < 8 * 24 ? i : (unsigned)zt_below(t, 8 * CH_PAGE_BYTES);

        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ZT_STATUS(t, page_check(page, 0), COHORT_EPAGE);
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ZT_OK(t, page_check(page, 0));
}

/* Goal: what a right checksum covers is judged too, and a newer format is told apart. */
static void
test_check_judges_fields(struct zt *t)
{
    uint8_t page[CH_PAGE_BYTES];
    uint8_t zeroes[CH_PAGE_BYTES] = {0};

    random_page(t, page, 5);
    ZT_STATUS(t, page_check(page, 6), COHORT_EPAGE);
    ZT_STATUS(t, page_check(zeroes, 0), COHORT_EPAGE);
    page_seal(zeroes);
    ZT_STATUS(t, page_check(zeroes, 0), COHORT_EPAGE);
    for (unsigned type = 0; type < 256; type++) {
        page[TYPE_AT] = (uint8_t)type;
        page_seal(page);
        ZT_STATUS(t, page_check(page, 5), type >= 1 && type <= 4 ? 0 : COHORT_EPAGE);
    }
    page[TYPE_AT] = PAGE_LEAF;
    page[VERSION_AT] = PAGE_VERSION + 1;
    page_seal(page);
    ZT_STATUS(t, page_check(page, 5), COHORT_EVERSION);
    page[VERSION_AT] = 0;
    page_seal(page);
    ZT_STATUS(t, page_check(page, 5), COHORT_EPAGE);
}

/* The last four writes in different units, as a plain list. */
struct history {
    uint64_t unit[PAGE_HISTORY];
    unsigned n;
};

static void
model_note(struct history *h, lsn_t now)
{
    if (h->n > 0 && h->unit[h->n - 1] == now / 4096)
        return;
    if (h->n == PAGE_HISTORY) {
        for (unsigned i = 1; i < PAGE_HISTORY; i++)
            h->unit[i - 1] = h->unit[i];
        h->n--;
    }
    h->unit[h->n++] = now / 4096;
}

static lsn_t
model_death(const struct history *h, lsn_t now)
{
    if (h->n < 2)
        return CH_LSN_MAX;
    return now + (h->unit[h->n - 1] - h->unit[0]) * 4096 / (h->n - 1);
}

/* Goal: history and EDT are the paper's, at any place of the log, the wraps of the 32 bits included. */
static void
test_history_model(struct zt *t)
{
    static const uint64_t starts[] = {4096, UINT64_C(1) << 30, (UINT64_C(1) << 44) - 100000,
                                      (UINT64_C(7) << 44) - 40960, UINT64_C(1) << 62};
    uint8_t page[CH_PAGE_BYTES], child[CH_PAGE_BYTES];
    struct history h = {0};
    lsn_t now = starts[zt_below(t, CH_ARRAY_LEN(starts))] + zt_below(t, 4096);
    uint64_t stride = zt_below(t, 2) == 0 ? 3000 : UINT64_C(1) << 40;

    page_init(page, 1, PAGE_LEAF, 0, 1);
    for (int step = 0; step < 60; step++) {
        now += zt_below(t, stride);
        if ((uint32_t)(now / 4096) == 0)
            now += 4096; /* the one unit that is written as its neighbour */
        page_note_write(page, now);
        model_note(&h, now);
        ZT_CHECK(t, page_death_time(page, now) == model_death(&h, now));
        for (unsigned i = 0; i < PAGE_HISTORY; i++)
            ZT_CHECK(t, ch_get32(page + 36 + 4 * i) == (i < h.n ? (uint32_t)h.unit[i] : 0));
        ZT_CHECK(t, ch_get32(page + 52) == 0 && page_tree(page) == 1);
    }
    page_init(child, 2, PAGE_LEAF, 0, 1);
    memset(page + 52, 0xee, 12); /* what stands behind the history is not inherited */
    ZT_CHECK(t, page_death_time(child, now) == CH_LSN_MAX);
    page_inherit(child, page);
    ZT_CHECK(t, page_death_time(child, now) == model_death(&h, now) && page_pid(child) == 2);
    ZT_CHECK(t, ch_get32(child + 52) == 0);
}

/* Goal: unit 0 counts as a write, any bytes give some answer, and an estimate beyond the log is "never". */
static void
test_history_corners(struct zt *t)
{
    uint8_t page[CH_PAGE_BYTES];

    page_init(page, 1, PAGE_LEAF, 0, 1);
    page_note_write(page, 0);
    page_note_write(page, 100);
    ZT_CHECK(t, page_death_time(page, 100) == CH_LSN_MAX);
    page_note_write(page, 3 * 4096);
    ZT_CHECK(t, page_death_time(page, 3 * 4096) == 3 * 4096 + 2 * 4096);
    ZT_CHECK(t, page_death_time(page, CH_LSN_MAX - 5) == CH_LSN_MAX);
    for (int i = 0; i < 1000; i++) {
        ch_prng_fill(&t->rng, page + 36, 16);
        for (unsigned k = 0; k < 4; k++) {
            if (zt_below(t, 3) == 0)
                ch_put32(page + 36 + 4 * k, 0);
        }
        ZT_CHECK(t, page_death_time(page, 1000) >= 1000);
        page_note_write(page, ch_prng_next(&t->rng));
        ZT_CHECK(t, ch_get32(page + 36) != 0);
    }
}

/* Goal: all codes: decoding is strictly monotone up to "never", encoding its left inverse. */
static void
test_death_codes_exhaustive(struct zt *t)
{
    lsn_t last = 0;

    ZT_CHECK(t, page_death_unpack(0) == 0 && page_death_unpack(0xffff) == CH_LSN_MAX);
    for (unsigned c = 1; c <= 0xffff; c++) {
        lsn_t v = page_death_unpack((uint16_t)c);

        ZT_CHECK(t, v > last || v == CH_LSN_MAX);
        ZT_CHECK(t, page_death_pack(v) == (v == CH_LSN_MAX ? 0xffff : c));
        if (v != CH_LSN_MAX)
            ZT_CHECK(t, page_death_pack(v - 1) == c - 1);
        last = v;
    }
}

/* Goal: encoding is monotone and loses less than 1/1024; only "never" is never. */
static void
test_death_random(struct zt *t)
{
    ZT_CHECK(t, page_death_pack(CH_LSN_MAX) == 0xffff);
    ZT_CHECK(t, page_death_pack(CH_LSN_MAX - 1) != 0xffff);
    for (int i = 0; i < 2000; i++) {
        lsn_t a = ch_prng_next(&t->rng) >> zt_below(t, 64);
        lsn_t b = ch_prng_next(&t->rng) >> zt_below(t, 64);
        lsn_t back = page_death_unpack(page_death_pack(a));

        ZT_CHECK(t, (a <= b) == (page_death_pack(a) <= page_death_pack(b)) ||
                        page_death_pack(a) == page_death_pack(b));
        ZT_CHECK(t, back <= a && a - back <= a / 1024);
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"header_fields", test_header_fields, 1},
        {"check_finds_every_flip", test_check_finds_every_flip, 100},
        {"check_judges_fields", test_check_judges_fields, 1},
        {"history_model", test_history_model, 100},
        {"history_corners", test_history_corners, 100},
        {"death_codes_exhaustive", test_death_codes_exhaustive, 1},
        {"death_random", test_death_random, 100},
    };

    return zt_main(argc, argv, "page", cases, CH_ARRAY_LEN(cases));
}
