/* delta_test.c - delta images: what was merged is the page; damage, other bases and other pages are told. */
#include <stdlib.h>

#include "pack/pack.h"
#include "page/page.h"
#include "zt/zt.h"

enum {
    PAGES = 24,
    CODECS = 3
};

/* A page half of whose bytes compress. */
static void
make_page(struct zt *t, uint8_t *page, page_id pid)
{
    page_init(page, pid, PAGE_LEAF, 0, 1);
    page_set_lsn(page, 4096 + zt_below(t, 1000000));
    for (size_t i = PAGE_HEADER_BYTES; i < CH_PAGE_BYTES; i++)
        page[i] = i / 32 % 2 == 0 ? (uint8_t)zt_below(t, 256) : (uint8_t)('a' + i % 7);
    page_seal(page);
}

/* Changes some bytes of `page`; returns the blocks in which it differs from `base`, and maybe some more (D1). */
static uint64_t
change_page(struct zt *t, uint8_t *page, const uint8_t *base)
{
    unsigned n = 1 + (unsigned)zt_below(t, 4);
    uint64_t mask = 1;

    for (unsigned i = 0; i < n; i++) {
        size_t at = PAGE_HEADER_BYTES + zt_below(t, CH_PAGE_BYTES - PAGE_HEADER_BYTES - 130);
        size_t len = 1 + zt_below(t, 130);

        for (size_t k = at; k < at + len; k++)
            page[k] = (uint8_t)zt_below(t, zt_below(t, 2) ? 256 : 2);
    }
    page_set_lsn(page, page_lsn(page) + 1 + zt_below(t, 5000));
    page_seal(page);
    for (unsigned b = 0; b < CH_PAGE_BYTES / PACK_BLOCK; b++)
        if (memcmp(page + (size_t)b * PACK_BLOCK, base + (size_t)b * PACK_BLOCK, PACK_BLOCK) != 0 ||
            zt_below(t, 40) == 0)
            mask |= UINT64_C(1) << b;
    return mask;
}

struct world {
    uint8_t base[PAGES][CH_PAGE_BYTES];
    uint8_t page[PAGES][CH_PAGE_BYTES];
    struct pack_item items[PAGES];
    struct packer *packer;
    struct pack_plan plan;
    unsigned deltas;
};

static struct world *
world_open(struct zt *t, enum pack_codec codec)
{
    struct world *w = calloc(1, sizeof(*w));

    ZT_CHECK(t, w != NULL);
    ZT_OK(t, packer_create(codec, 0, PAGES, &w->packer));
    for (unsigned i = 0; i < PAGES; i++) {
        make_page(t, w->base[i], i + 1);
        memcpy(w->page[i], w->base[i], CH_PAGE_BYTES);
        w->items[i] = (struct pack_item){
            .pid = i + 1,
            .page = w->page[i],
            .delta_mask = change_page(t, w->page[i], w->base[i]),
            .delta_base = page_lsn(w->base[i]),
            .delta_max = (uint32_t)zt_below(t, 3000),
        };
        w->items[i].lsn = page_lsn(w->page[i]);
        if (zt_below(t, 8) == 0)
            w->items[i].delta_mask = 0;
    }
    pack_build(w->packer, w->items, PAGES, false, &w->plan);
    return w;
}

static void
world_close(struct world *w)
{
    packer_destroy(w->packer);
    free(w);
}

static uint8_t *
slot_of(struct world *w, unsigned i)
{
    return w->plan.slots + (size_t)w->items[i].slot * CH_SLOT_BYTES;
}

static int
apply(struct world *w, unsigned i, const uint8_t *base, uint8_t *page, uint64_t *mask)
{
    memcpy(page, base, CH_PAGE_BYTES);
    return pack_delta_apply(slot_of(w, i), w->items[i].offset, w->items[i].bytes, i + 1, page,
                            mask);
}

/* Goal: base and delta make the page, whatever the codec; so does an earlier delta folded into the base (D1); a delta takes
 * no more than it may; it is a delta in its header, and no full image. */
static void
test_delta_round_trip(struct zt *t)
{
    struct world *w = world_open(t, (enum pack_codec)zt_below(t, CODECS));
    struct pack_image_info info;
    uint8_t page[CH_PAGE_BYTES];
    uint64_t mask = 0;

    for (unsigned i = 0; i < PAGES; i++) {
        const struct pack_item *it = &w->items[i];

        if (!it->delta) {
            ZT_OK(t, pack_unpack(w->packer, slot_of(w, i), it->offset, it->bytes, i + 1, page));
            ZT_CHECK(t, memcmp(page, w->page[i], CH_PAGE_BYTES) == 0);
            continue;
        }
        w->deltas++;
        ZT_CHECK(t, it->delta_mask != 0 && it->bytes <= it->delta_max);
        ZT_OK(t, apply(w, i, w->base[i], page, &mask));
        ZT_CHECK(t, mask == it->delta_mask && memcmp(page, w->page[i], CH_PAGE_BYTES) == 0);
        ZT_OK(t, apply(w, i, w->page[i], page, &mask)); /* folded in already */
        ZT_CHECK(t, memcmp(page, w->page[i], CH_PAGE_BYTES) == 0);
        ZT_OK(t, pack_image_info(slot_of(w, i), it->offset, it->bytes, &info));
        ZT_CHECK(t, info.kind == PACK_DELTA && info.pid == i + 1 && info.lsn == it->lsn);
        ZT_CHECK(t, pack_unpack(w->packer, slot_of(w, i), it->offset, it->bytes, i + 1, page) != 0);
    }
    ZT_CHECK(t, w->deltas > 0);
    world_close(w);
}

/* Goal: no damage of a delta, no other base and no other page goes unnoticed. */
static void
test_delta_damage(struct zt *t)
{
    struct world *w = world_open(t, (enum pack_codec)zt_below(t, CODECS));
    uint8_t page[CH_PAGE_BYTES];
    uint64_t mask = 0;

    for (unsigned i = 0; i < PAGES; i++) {
        const struct pack_item *it = &w->items[i];
        uint8_t *slot = slot_of(w, i);
        size_t at = it->offset + zt_below(t, it->bytes);
        uint8_t flip = (uint8_t)(1U << zt_below(t, 8));
        uint8_t other[CH_PAGE_BYTES];

        if (!it->delta)
            continue;
        slot[at] ^= flip;
        ZT_CHECK(t, apply(w, i, w->base[i], page, &mask) != 0);
        slot[at] ^= flip;
        memcpy(other, w->base[i], CH_PAGE_BYTES); /* of another content beside the mask */
        for (unsigned b = 1; b < CH_PAGE_BYTES / PACK_BLOCK; b++)
            if ((it->delta_mask >> b & 1) == 0)
                other[b * PACK_BLOCK + 5] ^= 1;
        ZT_CHECK(t, apply(w, i, other, page, &mask) != 0);
        memcpy(other, w->base[i], CH_PAGE_BYTES); /* older than its base */
        page_set_lsn(other, it->delta_base - 1);
        ZT_STATUS(t, apply(w, i, other, page, &mask), COHORT_EIMAGE);
        page_set_lsn(other, it->lsn + 1); /* newer than the delta */
        ZT_STATUS(t, apply(w, i, other, page, &mask), COHORT_EIMAGE);
        ZT_STATUS(t, pack_delta_apply(slot, it->offset, it->bytes, i + 2, page, &mask),
                  COHORT_EIMAGE);
        ZT_OK(t, apply(w, i, w->base[i], page, &mask));
    }
    world_close(w);
}

/* Goal: a delta is much smaller than its page: one record of 120 bytes, half of them random, takes at most 256. */
static void
test_delta_is_small(struct zt *t)
{
    struct world *w = world_open(t, PACK_LZ4);
    uint32_t full;

    memcpy(w->page[0], w->base[0], CH_PAGE_BYTES);
    for (size_t k = 1024; k < 1024 + 120; k++)
        w->page[0][k] = k / 32 % 2 == 0 ? (uint8_t)zt_below(t, 256) : w->base[0][k];
    page_set_lsn(w->page[0], page_lsn(w->base[0]) + 200);
    page_seal(w->page[0]);
    w->items[0] = (struct pack_item){.pid = 1, .page = w->page[0], .lsn = page_lsn(w->page[0])};
    pack_build(w->packer, w->items, 1, false, &w->plan);
    full = w->items[0].bytes;
    w->items[0].delta_mask = 1 | UINT64_C(3) << 16;
    w->items[0].delta_base = page_lsn(w->base[0]);
    w->items[0].delta_max = full;
    pack_build(w->packer, w->items, 1, false, &w->plan);
    ZT_CHECK(t, w->items[0].delta && w->items[0].bytes <= 256);
    world_close(w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"round_trip", test_delta_round_trip, 100},
        {"damage", test_delta_damage, 100},
        {"small", test_delta_is_small, 20},
    };

    return zt_main(argc, argv, "delta", cases, CH_ARRAY_LEN(cases));
}
