/* dict_test.c - dictionaries: training, round trips, and images whose dictionary is missing, another one or damaged. */
#include <stdio.h>
#include <stdlib.h>

#include "pack/pack.h"
#include "page/page.h"
#include "zt/zt.h"

enum {
    PAGES = 200, /* a dictionary is trained on */
    LATER = 10,  /* more of them, for another dictionary */
};

/* Rows of a made-up table: names in common, numbers that differ. */
static void
make_page(struct zt *t, uint8_t *page, page_id pid)
{
    static const char *const words[] = {"customer", "delivered", "warehouse", "district",
                                        "pending",  "invoice",   "returned",  "priority",
                                        "regular",  "express"};
    size_t at = PAGE_HEADER_BYTES;

    page_init(page, pid, PAGE_LEAF, 0, 7);
    while (at + 80 < CH_PAGE_BYTES)
        at += (size_t)snprintf((char *)page + at, CH_PAGE_BYTES - at, "%s-%u/%s:%08x;",
                               words[zt_below(t, 10)], (unsigned)zt_below(t, 1000),
                               words[zt_below(t, 10)], (unsigned)ch_prng_next(&t->rng));
    page_seal(page);
}

static uint8_t *
make_pages(struct zt *t)
{
    uint8_t *pages = calloc(PAGES + LATER, CH_PAGE_BYTES);

    ZT_CHECK(t, pages != NULL);
    for (unsigned i = 0; i < PAGES + LATER; i++)
        make_page(t, pages + (size_t)i * CH_PAGE_BYTES, i + 1);
    return pages;
}

static struct pack_dict *
make_dict(struct zt *t, const uint8_t *pages, uint16_t id)
{
    struct pack_dict *d = NULL;
    uint8_t bytes[PACK_DICT_MAX];
    size_t n = 0;

    ZT_OK(t, pack_dict_train(pages, PAGES, sizeof(bytes), bytes, &n));
    ZT_CHECK(t, n >= PACK_DICT_MIN && n <= sizeof(bytes));
    ZT_OK(t, pack_dict_create(id, bytes, n, 3, &d));
    ZT_CHECK(t, pack_dict_id_of(d) == id && pack_dict_memory(d) > n);
    return d;
}

/* Goal: pages come back; with a dictionary they are smaller; other items of the batch are not touched by it. */
static void
test_round_trip(struct zt *t)
{
    uint8_t *pages = make_pages(t), page[CH_PAGE_BYTES];
    struct pack_dict *d = make_dict(t, pages, pack_dict_id(5, 77));
    struct pack_item items[2] = {0};
    struct pack_image_info info;
    struct pack_plan plan;
    struct packer *p;
    uint64_t with = 0, without = 0;

    ZT_OK(t, packer_create(PACK_ZSTD, 3, 16, &p));
    for (unsigned i = 0; i < PAGES; i++) {
        const uint8_t *src = pages + (size_t)i * CH_PAGE_BYTES;

        items[0] = (struct pack_item){.pid = i + 1, .page = src, .dict = d};
        items[1] = (struct pack_item){.pid = i + 1, .page = src};
        pack_build(p, items, 2, false, &plan);
        with += items[0].bytes;
        without += items[1].bytes;
        ZT_CHECK(t, items[0].dict_slot == 5 && items[1].dict_slot == 0);
        for (unsigned k = 0; k < 2; k++) {
            const uint8_t *slot = plan.slots + (size_t)items[k].slot * CH_SLOT_BYTES;

            ZT_OK(t, pack_image_info(slot, items[k].offset, items[k].bytes, &info));
            ZT_CHECK(t, info.dict == (k == 0 ? pack_dict_id(5, 77) : 0));
            ZT_OK(t, pack_unpack_dict(zt_below(t, 2) == 0 ? p : NULL, d, slot, items[k].offset,
                                      items[k].bytes, i + 1, page));
            ZT_CHECK(t, memcmp(page, src, CH_PAGE_BYTES) == 0);
        }
    }
    ZT_CHECK(t, with * 10 < without * 9);
    packer_destroy(p);
    pack_dict_destroy(d);
    pack_dict_destroy(NULL);
    free(pages);
}

/* Goal: an image whose dictionary is not at hand, or that has been forged to name another one, is refused by name. */
static void
test_wrong_dictionary(struct zt *t)
{
    uint8_t *pages = make_pages(t), page[CH_PAGE_BYTES];
    struct pack_dict *d = make_dict(t, pages, pack_dict_id(5, 1));
    struct pack_dict *newer = make_dict(t, pages + CH_PAGE_BYTES * LATER, pack_dict_id(5, 2));
    struct pack_item it = {.pid = 1, .page = pages, .dict = d};
    struct pack_plan plan;
    struct packer *p;

    ZT_OK(t, packer_create(PACK_ZSTD, 3, 16, &p));
    pack_build(p, &it, 1, false, &plan);
    ZT_STATUS(t, pack_unpack(p, plan.slots, it.offset, it.bytes, 1, page), COHORT_EIMAGE);
    ZT_STATUS(t, pack_unpack_dict(p, NULL, plan.slots, it.offset, it.bytes, 1, page),
              COHORT_EIMAGE);
    ZT_STATUS(t, pack_unpack_dict(p, newer, plan.slots, it.offset, it.bytes, 1, page),
              COHORT_EIMAGE);
    ZT_OK(t, pack_unpack_dict(p, d, plan.slots, it.offset, it.bytes, 1, page));
    packer_destroy(p);
    pack_dict_destroy(d);
    pack_dict_destroy(newer);
    free(pages);
}

/* Goal: the wrong bytes under the right id never yield a page: its checksum sees that. */
static void
test_damaged_dictionary(struct zt *t)
{
    uint8_t *pages = make_pages(t), page[CH_PAGE_BYTES], bytes[PACK_DICT_MAX];
    struct pack_dict *d = NULL, *damaged = NULL;
    struct pack_item it = {.pid = 1, .page = pages};
    struct pack_plan plan;
    struct packer *p;
    size_t n = 0;

    ZT_OK(t, pack_dict_train(pages, PAGES, sizeof(bytes), bytes, &n));
    ZT_OK(t, pack_dict_create(pack_dict_id(1, 1), bytes, n, 1, &d));
    for (int i = 0; i < 200; i++)
        bytes[n / 2 + zt_below(t, n / 2)] ^= (uint8_t)(1U << zt_below(t, 8));
    ZT_OK(t, pack_dict_create(pack_dict_id(1, 1), bytes, n, 1, &damaged));
    ZT_OK(t, packer_create(PACK_ZSTD, 1, 256, &p));
    for (unsigned i = 0; i < PAGES; i++) {
        it = (struct pack_item){.pid = i + 1, .page = pages + (size_t)i * CH_PAGE_BYTES, .dict = d};
        pack_build(p, &it, 1, false, &plan);
        int rc = pack_unpack_dict(p, damaged, plan.slots, it.offset, it.bytes, i + 1, page);

        ZT_CHECK(t, rc == 0 ? memcmp(page, it.page, CH_PAGE_BYTES) == 0
                            : rc == COHORT_EIMAGE || rc == COHORT_EPAGE);
    }
    packer_destroy(p);
    pack_dict_destroy(d);
    pack_dict_destroy(damaged);
    free(pages);
}

/* Goal: too few samples, and samples of noise, are refused and nothing is made of them; same samples, same dictionary. */
static void
test_train(struct zt *t)
{
    uint8_t *pages = make_pages(t), a[PACK_DICT_MAX], b[PACK_DICT_MAX];
    size_t na = 0, nb = 0;

    ZT_STATUS(t, pack_dict_train(pages, PACK_DICT_SAMPLES_MIN - 1, sizeof(a), a, &na),
              COHORT_NOTFOUND);
    ZT_OK(t, pack_dict_train(pages, PAGES, sizeof(a), a, &na));
    ZT_OK(t, pack_dict_train(pages, PAGES, sizeof(b), b, &nb));
    ZT_CHECK(t, na == nb && memcmp(a, b, na) == 0);
    free(pages);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"round_trip", test_round_trip, 3},
        {"wrong_dictionary", test_wrong_dictionary, 3},
        {"damaged_dictionary", test_damaged_dictionary, 3},
        {"train", test_train, 1},
    };

    return zt_main(argc, argv, "dict", cases, CH_ARRAY_LEN(cases));
}
