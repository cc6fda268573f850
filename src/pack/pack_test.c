/* pack_test.c - packing: round trips, layout of slots, best fit, carry, damage of every kind. */
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "pack/pack.h"
#include "page/page.h"
#include "zt/zt.h"

enum {
    CRC_AT = 14,
    VERSION_AT = 20,
    KIND_CODEC_AT = 21,
    DICT_AT = 22,
    LENGTH_AT = 24,
    OUTPUT_AT = 26,
    FOOT = CH_SLOT_BYTES - 8
};

/* The pages of a batch and what was asked for them. */
struct batch {
    uint8_t (*page)[CH_PAGE_BYTES];
    struct pack_item items[CH_BATCH_MAX];
    unsigned n;
};

/* A page of which `noise` body bytes are random and the others follow a short pattern. */
static void
make_page(struct zt *t, uint8_t *page, page_id pid, size_t noise)
{
    size_t body = CH_PAGE_BYTES - PAGE_HEADER_BYTES;
    uint8_t pattern = (uint8_t)zt_below(t, 256);

    page_init(page, pid, PAGE_LEAF, 0, 1);
    page_set_lsn(page, ch_prng_next(&t->rng));
    memset(page + PAGE_HEADER_BYTES, pattern, body);
    ch_prng_fill(&t->rng, page + PAGE_HEADER_BYTES, ch_min_u64(noise, body));
    page_seal(page);
}

static void
batch_init(struct zt *t, struct batch *b, unsigned n, size_t noise_min, size_t noise_max)
{
    b->n = n;
    b->page = calloc(CH_BATCH_MAX, CH_PAGE_BYTES);
    ZT_CHECK(t, b->page != NULL);
    memset(b->items, 0xa5, sizeof(b->items)); /* outputs must not need to be cleared */
    for (unsigned i = 0; i < n; i++) {
        page_id pid = 1 + zt_below(t, CH_PAGE_ID_MAX);

        make_page(t, b->page[i], pid, noise_min + zt_below(t, noise_max - noise_min + 1));
        b->items[i] = (struct pack_item){.pid = pid,
                                         .lsn = page_lsn(b->page[i]),
                                         .death = (uint16_t)zt_below(t, 65536),
                                         .page = b->page[i],
                                         .carried = true,
                                         .slot = 99999,
                                         .offset = 7};
    }
}

static const uint8_t *
slot_of(const struct pack_plan *plan, const struct pack_item *it)
{
    return plan->slots + (size_t)it->slot * CH_SLOT_BYTES;
}

/* K1, K2: the directory lists exactly the items of the slot in order, they do not overlap, and all other
 * bytes are zero. */
static void
check_slot(struct zt *t, const struct batch *b, const struct pack_plan *plan, uint32_t slot)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    const uint8_t *s = plan->slots + (size_t)slot * CH_SLOT_BYTES;
    bool used[CH_SLOT_BYTES] = {0};
    unsigned count = pack_slot_images(s, offs, lens);
    unsigned found = 0;
    uint32_t dir = FOOT - 2 * count;

    for (unsigned i = 0; i < b->n; i++) {
        const struct pack_item *it = &b->items[i];
        bool listed = false;

        if (it->carried || it->slot != slot)
            continue;
        found++;
        for (unsigned k = 0; k < count; k++)
            listed |= offs[k] == it->offset && lens[k] == it->bytes;
        ZT_CHECK(t, listed == (it->bytes != CH_SLOT_BYTES));
        ZT_CHECK(t, it->offset % PACK_STEP == 0 && it->bytes % PACK_STEP == 0);
        ZT_CHECK(t, it->offset + it->bytes <= (it->bytes == CH_SLOT_BYTES ? CH_SLOT_BYTES : dir));
        for (uint32_t k = 0; k < it->bytes; k++) {
            ZT_CHECK(t, !used[it->offset + k]);
            used[it->offset + k] = true;
        }
    }
    ZT_CHECK(t, count == found || (count == 0 && found == 1));
    for (uint32_t k = 0; count != 0 && k < dir; k++)
        ZT_CHECK(t, used[k] || s[k] == 0);
}

static void
check_padding(struct zt *t, const uint8_t *image, uint32_t bytes)
{
    if (bytes == CH_SLOT_BYTES)
        return;
    for (uint32_t k = OUTPUT_AT + (uint32_t)ch_get16(image + LENGTH_AT); k < bytes; k++)
        ZT_CHECK(t, image[k] == 0);
}

static void
check_plan(struct zt *t, struct packer *p, const struct batch *b, const struct pack_plan *plan)
{
    uint8_t page[CH_PAGE_BYTES];
    struct pack_image_info info;
    uint64_t total = 0;
    unsigned stored = 0;

    for (unsigned i = 0; i < b->n; i++) {
        const struct pack_item *it = &b->items[i];

        if (it->carried)
            continue;
        stored++;
        total += it->bytes;
        ZT_CHECK(t, it->slot < plan->slot_count);
        ZT_OK(t, pack_unpack(p, slot_of(plan, it), it->offset, it->bytes, it->pid, page));
        ZT_CHECK(t, memcmp(page, b->page[i], CH_PAGE_BYTES) == 0);
        ZT_OK(t, pack_image_info(slot_of(plan, it), it->offset, it->bytes, &info));
        ZT_CHECK(t, info.pid == it->pid && info.lsn == it->lsn && info.stored == it->bytes);
        ZT_CHECK(t, it->bytes == CH_SLOT_BYTES || info.death == it->death);
        check_padding(t, slot_of(plan, it) + it->offset, it->bytes);
    }
    ZT_CHECK(t, stored == plan->stored && total == plan->image_total);
    for (uint32_t s = 0; s < plan->slot_count; s++)
        check_slot(t, b, plan, s);
}

/* Goal: whatever the codec and the pages, every page comes back, by any packer or none, and slots are as
 * the format says. */
static void
test_round_trip(struct zt *t)
{
    static const size_t noise[][2] = {{0, 0}, {0, 4032}, {1000, 2000}, {3800, 4032}, {4032, 4032}};
    enum pack_codec codec = (enum pack_codec)zt_below(t, 3);
    const size_t *range = noise[zt_below(t, CH_ARRAY_LEN(noise))];
    struct batch b;
    struct packer *p, *other;
    struct pack_plan plan;

    batch_init(t, &b, (unsigned)zt_below(t, CH_BATCH_MAX + 1), range[0], range[1]);
    ZT_OK(t, packer_create(codec, (int)zt_below(t, 4), CH_BATCH_MAX, &p));
    ZT_OK(t, packer_create(PACK_NONE, 0, 0, &other));
    for (int round = 0; round < 2; round++) {
        pack_build(p, b.items, b.n, false, &plan);
        ZT_CHECK(t, plan.stored == b.n && plan.slot_count <= b.n);
        ZT_CHECK(t, codec != PACK_NONE || plan.slot_count == b.n);
        check_plan(t, p, &b, &plan);
        check_plan(t, other, &b, &plan);
        check_plan(t, NULL, &b, &plan);
    }
    ZT_CHECK(t, range[1] != 0 || b.n == 0 || codec == PACK_NONE || plan.slot_count < b.n / 20 + 2);
    packer_destroy(p);
    packer_destroy(other);
    free(b.page);
}

/* Goal: an image is, byte for byte, what pack.h says. */
static void
test_image_layout(struct zt *t)
{
    struct batch b;
    struct packer *p;
    struct pack_plan plan;
    const uint8_t *s;
    uint32_t n, crc;

    batch_init(t, &b, 1, 500, 500);
    ZT_OK(t, packer_create(PACK_LZ4, 0, 1, &p));
    pack_build(p, b.items, 1, false, &plan);
    s = plan.slots;
    n = ch_get16(s + LENGTH_AT);
    ZT_CHECK(t, b.items[0].offset == 0 && b.items[0].bytes == (OUTPUT_AT + n + 15) / 16 * 16);
    ZT_CHECK(t, ch_get48(s) == b.items[0].pid && ch_get64(s + 6) == b.items[0].lsn);
    ZT_CHECK(t, ch_get16(s + 18) == b.items[0].death && ch_get16(s + DICT_AT) == 0);
    ZT_CHECK(t, s[VERSION_AT] == 1 && s[KIND_CODEC_AT] == PACK_LZ4);
    crc = ch_crc32c(ch_crc32c(0, s, CRC_AT), s + CRC_AT + 4, b.items[0].bytes - CRC_AT - 4);
    ZT_CHECK(t, ch_get32(s + CRC_AT) == crc);
    ZT_CHECK(t, s[FOOT - 2] == 0 && s[FOOT - 1] == b.items[0].bytes / 16);
    ZT_CHECK(t, s[FOOT] == 1 && s[FOOT + 1] == 1 && ch_get16(s + FOOT + 2) == 0xc05d);
    ZT_CHECK(t, ch_get32(s + FOOT + 4) == ch_crc32c(0, s + FOOT - 2, 6));
    packer_destroy(p);
    free(b.page);
}

/* Bytes that pass for an image to pack_build(), which copies GC's images unread. */
static void
fake_images(struct zt *t, struct batch *b, unsigned n, uint32_t steps_min, uint32_t steps_max)
{
    batch_init(t, b, 0, 0, 0);
    b->n = n;
    for (unsigned i = 0; i < n; i++) {
        ch_prng_fill(&t->rng, b->page[i], CH_PAGE_BYTES);
        b->items[i] = (struct pack_item){
            .pid = i + 1,
            .image = b->page[i],
            .image_bytes = 16 * (steps_min + (uint32_t)zt_below(t, steps_max - steps_min + 1)),
        };
    }
}

/* Best fit decreasing, done the slow way: the number of slots it needs. */
static unsigned
model_slots(const struct batch *b)
{
    bool done[CH_BATCH_MAX] = {0};
    uint32_t used[CH_BATCH_MAX] = {0}, count[CH_BATCH_MAX] = {0};
    unsigned slots = 0;

    for (unsigned k = 0; k < b->n; k++) {
        unsigned big = CH_BATCH_MAX, best = CH_BATCH_MAX;

        for (unsigned i = 0; i < b->n; i++) {
            if (!done[i] &&
                (big == CH_BATCH_MAX || b->items[i].image_bytes > b->items[big].image_bytes))
                big = i;
        }
        done[big] = true;
        for (unsigned s = 0; s < slots; s++) {
            uint32_t need = b->items[big].image_bytes;

            if (used[s] + need + 2 * (count[s] + 1) + 8 <= CH_SLOT_BYTES &&
                (best == CH_BATCH_MAX ||
                 (used[s] + 2 * count[s] + 15) / 16 > (used[best] + 2 * count[best] + 15) / 16))
                best = s;
        }
        if (best == CH_BATCH_MAX)
            best = slots++;
        used[best] += b->items[big].image_bytes;
        count[best]++;
    }
    return slots;
}

/* Goal: GC's images are copied as they are, to slots as few as best fit decreasing needs; the extremes of
 * 120 smallest images in a slot and of one largest included. */
static void
test_images_best_fit(struct zt *t)
{
    static const uint32_t steps[][2] = {{2, 2}, {2, 255}, {20, 140}, {80, 90}, {255, 255}, {1, 16}};
    const uint32_t *range = steps[zt_below(t, 5)];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;
    unsigned want;

    fake_images(t, &b, 1 + (unsigned)zt_below(t, CH_BATCH_MAX), range[0], range[1]);
    if (zt_below(t, 4) == 0)
        b.items[0].image_bytes = CH_SLOT_BYTES;
    ZT_OK(t, packer_create(PACK_ZSTD, 1, CH_BATCH_MAX, &p));
    want = model_slots(&b);
    pack_build(p, b.items, b.n, false, &plan);
    ZT_CHECK(t, plan.stored == b.n);
    ZT_CHECK(t, plan.slot_count <= want + want / 32 + 1 && want <= plan.slot_count + want / 32 + 1);
    for (unsigned i = 0; i < b.n; i++) {
        ZT_CHECK(t, b.items[i].bytes == b.items[i].image_bytes && !b.items[i].carried);
        ZT_CHECK(t, memcmp(slot_of(&plan, &b.items[i]) + b.items[i].offset, b.page[i],
                           b.items[i].bytes) == 0);
    }
    for (uint32_t s = 0; s < plan.slot_count; s++)
        check_slot(t, &b, &plan, s);
    packer_destroy(p);
    free(b.page);
}

/* Goal: an image built once stays readable when GC moves it together with fresh pages. */
static void
test_gc_moves_images(struct zt *t)
{
    static uint8_t old[CH_BATCH_MAX * CH_SLOT_BYTES];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;

    batch_init(t, &b, 60, 0, 4032);
    ZT_OK(t, packer_create(zt_below(t, 2) ? PACK_LZ4 : PACK_ZSTD, 0, CH_BATCH_MAX, &p));
    pack_build(p, b.items, b.n, false, &plan);
    memcpy(old, plan.slots, (size_t)plan.slot_count * CH_SLOT_BYTES);
    for (unsigned i = 0; i < b.n; i += 2) {
        struct pack_item *it = &b.items[i];

        it->image = old + (size_t)it->slot * CH_SLOT_BYTES + it->offset;
        it->image_bytes = it->bytes;
        it->page = NULL;
    }
    pack_build(p, b.items, b.n, false, &plan);
    check_plan(t, p, &b, &plan);
    packer_destroy(p);
    free(b.page);
}

/* Goal: with carry, what is left out would have stood in slots below 3/4, half of the items are stored,
 * and no slot below 3/4 is written while it could have been carried. */
static void
test_carry(struct zt *t)
{
    static const uint32_t steps[][2] = {{129, 180}, {2, 255}, {100, 127}, {2, 10}};
    const uint32_t *range = steps[zt_below(t, CH_ARRAY_LEN(steps))];
    uint32_t fill[CH_BATCH_MAX] = {0}, count[CH_BATCH_MAX] = {0};
    struct batch b;
    struct packer *p;
    struct pack_plan all, plan;
    struct pack_item was[CH_BATCH_MAX];

    fake_images(t, &b, 1 + (unsigned)zt_below(t, CH_BATCH_MAX), range[0], range[1]);
    ZT_OK(t, packer_create(PACK_LZ4, 0, CH_BATCH_MAX, &p));
    pack_build(p, b.items, b.n, false, &all);
    memcpy(was, b.items, sizeof(was));
    for (unsigned i = 0; i < b.n; i++) {
        fill[was[i].slot] += was[i].bytes;
        count[was[i].slot]++;
    }
    pack_build(p, b.items, b.n, true, &plan);
    ZT_CHECK(t, plan.stored > 0 && plan.stored * 2 >= b.n && plan.slot_count <= all.slot_count);
    for (unsigned i = 0; i < b.n; i++) {
        uint32_t s = was[i].slot;

        ZT_CHECK(t, !b.items[i].carried || fill[s] * 4 < CH_SLOT_BYTES * 3);
        if (!b.items[i].carried && fill[s] * 4 < CH_SLOT_BYTES * 3)
            ZT_CHECK(t, (plan.stored - count[s]) * 2 < b.n);
        if (!b.items[i].carried)
            ZT_CHECK(t, memcmp(slot_of(&plan, &b.items[i]) + b.items[i].offset, b.page[i],
                               b.items[i].bytes) == 0);
    }
    for (uint32_t s = 0; s < plan.slot_count; s++)
        check_slot(t, &b, &plan, s);
    packer_destroy(p);
    free(b.page);
}

/* Goal: a flip of any bit of an image, its padding included, is found; so is one in a raw page, in the
 * directory, and so are a wrong id and a wrong place. */
static void
test_flips_are_found(struct zt *t)
{
    uint8_t page[CH_PAGE_BYTES];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;

    batch_init(t, &b, 8, 0, 4032);
    ZT_OK(t, packer_create((enum pack_codec)zt_below(t, 3), 0, 8, &p));
    pack_build(p, b.items, b.n, false, &plan);
    for (unsigned i = 0; i < b.n; i++) {
        const struct pack_item *it = &b.items[i];
        uint8_t *s = plan.slots + (size_t)it->slot * CH_SLOT_BYTES;
        int want = it->bytes == CH_SLOT_BYTES ? COHORT_EPAGE : COHORT_EIMAGE;

        for (unsigned k = 0; k < 8 * OUTPUT_AT + 200; k++) {
            uint64_t bit = k < 8 * OUTPUT_AT ? k : zt_below(t, 8 * (uint64_t)it->bytes);
            uint8_t *byte = s + it->offset + bit / 8;

            *byte ^= (uint8_t)(1u << bit % 8);
            ZT_STATUS(t, pack_unpack(p, s, it->offset, it->bytes, it->pid, page), want);
            *byte ^= (uint8_t)(1u << bit % 8);
        }
        ZT_STATUS(t, pack_unpack(p, s, it->offset, it->bytes, it->pid ^ 1, page), want);
        ZT_CHECK(t, pack_unpack(p, s, it->offset, it->bytes - 16, it->pid, page) != 0);
        ZT_CHECK(t, pack_unpack(p, s, it->offset + 16, it->bytes, it->pid, page) != 0);
        ZT_OK(t, pack_unpack(p, s, it->offset, it->bytes, it->pid, page));
    }
    packer_destroy(p);
    free(b.page);
}

static void
fix_image(uint8_t *image, uint32_t bytes)
{
    uint32_t crc = ch_crc32c(0, image, CRC_AT);

    ch_put32(image + CRC_AT, ch_crc32c(crc, image + CRC_AT + 4, bytes - CRC_AT - 4));
}

/* Goal: header fields are judged behind a right checksum. */
static void
test_fields_are_judged(struct zt *t)
{
    static const struct {
        unsigned at;
        uint8_t value;
        int want;
    } edits[] = {
        {VERSION_AT, 2, COHORT_EVERSION},   {VERSION_AT, 0, COHORT_EIMAGE},
        {KIND_CODEC_AT, 0, COHORT_EIMAGE},  {KIND_CODEC_AT, 3, COHORT_EIMAGE},
        {KIND_CODEC_AT, 15, COHORT_EIMAGE}, {KIND_CODEC_AT, 0x11, COHORT_EIMAGE},
        {KIND_CODEC_AT, 2, COHORT_EIMAGE},  {DICT_AT, 1, COHORT_EIMAGE},
        {LENGTH_AT + 1, 99, COHORT_EIMAGE}, {0, 0xee, COHORT_EIMAGE},
    };
    uint8_t page[CH_PAGE_BYTES];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;

    batch_init(t, &b, 1, 300, 300);
    b.items[0].pid = 7;
    page_init(b.page[0], 7, PAGE_LEAF, 0, 1);
    page_seal(b.page[0]);
    ZT_OK(t, packer_create(PACK_LZ4, 0, 1, &p));
    for (unsigned i = 0; i < CH_ARRAY_LEN(edits); i++) {
        pack_build(p, b.items, 1, false, &plan);
        plan.slots[edits[i].at] = edits[i].value;
        fix_image(plan.slots, b.items[0].bytes);
        ZT_STATUS(t, pack_unpack(p, plan.slots, 0, b.items[0].bytes, 7, page), edits[i].want);
    }
    /* The page inside is judged as well. */
    page_init(b.page[0], 8, PAGE_LEAF, 0, 1);
    page_seal(b.page[0]);
    pack_build(p, b.items, 1, false, &plan);
    ZT_STATUS(t, pack_unpack(p, plan.slots, 0, b.items[0].bytes, 7, page), COHORT_EPAGE);
    packer_destroy(p);
    free(b.page);
}

/* An image of page 7 around `n` bytes of output, as any program could write it. */
static uint32_t
forge_image(uint8_t *image, enum pack_codec codec, const uint8_t *output, uint32_t n,
            uint32_t claim)
{
    uint32_t bytes = (uint32_t)ch_round_up(OUTPUT_AT + n, PACK_STEP);

    memset(image, 0, bytes);
    ch_put48(image, 7);
    image[VERSION_AT] = 1;
    image[KIND_CODEC_AT] = (uint8_t)codec;
    ch_put16(image + LENGTH_AT, (uint16_t)claim);
    memcpy(image + OUTPUT_AT, output, n);
    fix_image(image, bytes);
    return bytes;
}

/* Goal: output must be of exactly one page. With what the buffer held before, less would pass for one. */
static void
test_short_and_long_output(struct zt *t)
{
    static const int lengths[] = {0, 1, 2000, 4095, 4096, 4097, 8000};
    uint8_t page[CH_PAGE_BYTES], data[8192] = {0}, out[4096], slot[CH_SLOT_BYTES];
    uint32_t bytes;

    page_init(data, 7, PAGE_LEAF, 0, 1);
    page_seal(data);
    for (unsigned i = 0; i < CH_ARRAY_LEN(lengths); i++) {
        int want = lengths[i] == CH_PAGE_BYTES ? 0 : COHORT_EIMAGE;
        uint32_t n = (uint32_t)LZ4_compress_default((const char *)data, (char *)out, lengths[i],
                                                    sizeof(out));

        memcpy(page, data, sizeof(page));
        bytes = forge_image(slot, PACK_LZ4, out, n, n);
        ZT_STATUS(t, pack_unpack(NULL, slot, 0, bytes, 7, page), want);
        n = (uint32_t)ZSTD_compress(out, sizeof(out), data, (size_t)lengths[i], 1);
        memcpy(page, data, sizeof(page));
        bytes = forge_image(slot, PACK_ZSTD, out, n, n);
        ZT_STATUS(t, pack_unpack(NULL, slot, 0, bytes, 7, page), want);
        /* A frame behind the frame. */
        memcpy(out + n, out, n);
        bytes = forge_image(slot, PACK_ZSTD, out, 2 * n, 2 * n);
        ZT_STATUS(t, pack_unpack(NULL, slot, 0, bytes, 7, page), COHORT_EIMAGE);
    }
}

/* Goal (K3): output that claims to go on behind its image, even behind the slot, is not read. */
static void
test_claims_beyond_slot(struct zt *t)
{
    enum {
        RUN = 18, /* bytes of an LZ4 token for 4096 literals */
        BYTES = 48
    };
    uint8_t *slot = calloc(1, CH_SLOT_BYTES); /* of its exact size, for ASan */
    uint8_t page[CH_PAGE_BYTES], out[RUN];
    uint32_t bytes;

    ZT_CHECK(t, slot != NULL);
    memset(out, 255, sizeof(out));
    out[0] = 0xf0;
    out[RUN - 1] = CH_PAGE_BYTES - 15 - 255 * (RUN - 2);
    bytes = forge_image(slot + CH_SLOT_BYTES - 16 - BYTES, PACK_LZ4, out, RUN, RUN + CH_PAGE_BYTES);
    ZT_CHECK(t, bytes == BYTES);
    ZT_STATUS(t, pack_unpack(NULL, slot, CH_SLOT_BYTES - 16 - BYTES, BYTES, 7, page),
              COHORT_EIMAGE);
    free(slot);
}

/* Goal: no place outside the slot is ever read, whatever a damaged map says. */
static void
test_hostile_places(struct zt *t)
{
    /* Of its exact size on the heap, so that ASan sees a byte too many. */
    uint8_t *slot = malloc(CH_SLOT_BYTES);
    uint8_t *page = malloc(CH_PAGE_BYTES);
    struct pack_image_info info;

    ZT_CHECK(t, slot != NULL && page != NULL);
    ch_prng_fill(&t->rng, slot, CH_SLOT_BYTES);
    for (uint32_t off = 0; off <= 4096; off += 8) {
        for (uint32_t len = 0; len <= 4096 + 16; len += 8) {
            ZT_CHECK(t, pack_image_info(slot, off, len, &info) != 0);
            if (zt_below(t, 16) == 0)
                ZT_CHECK(t, pack_unpack(NULL, slot, off, len, 1, page) != 0);
        }
    }
    ZT_STATUS(t, pack_unpack(NULL, slot, UINT32_MAX - 15, 32, 1, page), COHORT_EIMAGE);
    ZT_STATUS(t, pack_unpack(NULL, slot, 16, UINT32_MAX - 15, 1, page), COHORT_EIMAGE);
    free(slot);
    free(page);
}

static void
mutate(struct zt *t, uint8_t *bytes, uint32_t n)
{
    for (unsigned k = 1 + (unsigned)zt_below(t, 4); k > 0; k--) {
        uint32_t at = (uint32_t)zt_below(t, n);

        switch (zt_below(t, 3)) {
        case 0:
            bytes[at] = (uint8_t)zt_below(t, 256);
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << zt_below(t, 8));
            break;
        default:
            memset(bytes + at, zt_below(t, 2) ? 0xff : 0, ch_min_u64(zt_below(t, 32), n - at));
            break;
        }
    }
}

/* Goal: 1e5 mutated images whose checksum is right again: the codecs meet them, and either refuse or yield a page
 * whose own checksum holds; never a byte out of bounds (under ASan). */
static void
test_hostile_images(struct zt *t)
{
    uint8_t *slot = malloc(CH_SLOT_BYTES);
    uint8_t *page = malloc(CH_PAGE_BYTES);
    struct batch b;
    struct packer *p;
    struct pack_plan plan;
    int rc;

    ZT_CHECK(t, slot != NULL && page != NULL);
    batch_init(t, &b, 4, 0, 3000);
    ZT_OK(t, packer_create(zt_below(t, 2) ? PACK_LZ4 : PACK_ZSTD, 0, 4, &p));
    pack_build(p, b.items, b.n, false, &plan);
    for (int i = 0; i < 1000; i++) {
        const struct pack_item *it = &b.items[zt_below(t, b.n)];

        memcpy(slot, slot_of(&plan, it), CH_SLOT_BYTES);
        mutate(t, slot + it->offset + (zt_below(t, 2) ? 18 : 24), it->bytes - 24);
        if (it->bytes != CH_SLOT_BYTES)
            fix_image(slot + it->offset, it->bytes);
        rc = pack_unpack(zt_below(t, 2) ? p : NULL, slot, it->offset, it->bytes, it->pid, page);
        ZT_CHECK(t, rc == 0 || rc == COHORT_EIMAGE || rc == COHORT_EPAGE || rc == COHORT_EVERSION);
        ZT_CHECK(t, rc != 0 || page_check(page, it->pid) == 0);
    }
    packer_destroy(p);
    free(b.page);
    free(slot);
    free(page);
}

static void
fix_directory(uint8_t *slot)
{
    uint32_t start = FOOT - 2 * (uint32_t)slot[FOOT];

    ch_put32(slot + FOOT + 4, ch_crc32c(0, slot + start, CH_SLOT_BYTES - 4 - start));
}

/* Goal: a directory counts only if its checksum holds and its entries are possible. */
static void
test_directory(struct zt *t)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    uint8_t slot[CH_SLOT_BYTES];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;
    unsigned count;

    batch_init(t, &b, 8, 0, 400);
    ZT_OK(t, packer_create(PACK_LZ4, 0, 8, &p));
    pack_build(p, b.items, b.n, false, &plan);
    count = pack_slot_images(plan.slots, offs, lens);
    ZT_CHECK(t, count > 1);
    for (uint32_t bit = 8 * (FOOT - 2 * count); bit < 8 * CH_SLOT_BYTES; bit++) {
        plan.slots[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ZT_CHECK(t, pack_slot_images(plan.slots, offs, lens) == 0);
        plan.slots[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (int i = 0; i < 1000; i++) {
        unsigned n;

        memcpy(slot, plan.slots, sizeof(slot));
        mutate(t, slot + FOOT - 2 * count, 2 * count + 1);
        fix_directory(slot);
        n = pack_slot_images(slot, offs, lens);
        for (unsigned k = 0; k < n; k++) {
            ZT_CHECK(t, offs[k] + lens[k] <= FOOT - 2 * n && lens[k] >= 32);
            ZT_CHECK(t, k == 0 || offs[k] >= offs[k - 1] + lens[k - 1]);
        }
    }
    memset(slot, 0, sizeof(slot));
    ZT_CHECK(t, pack_slot_images(slot, offs, lens) == 0);
    packer_destroy(p);
    free(b.page);
}

/* Goal (K4): a user who writes a directory, even whole images, into a page does not make GC see images. */
static void
test_forged_directory(struct zt *t)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    uint8_t page[CH_PAGE_BYTES];

    make_page(t, page, 9, 4032);
    page[FOOT - 2] = 64 / 16;
    page[FOOT - 1] = 32 / 16;
    page[FOOT] = 1;
    page[FOOT + 1] = 1;
    ch_put16(page + FOOT + 2, 0xc05d);
    fix_directory(page);
    page_seal(page);
    ZT_CHECK(t, pack_slot_images(page, offs, lens) == 0);
    page[100] ^= 1; /* no page any more: what is left is a directory */
    ZT_CHECK(t, pack_slot_images(page, offs, lens) == 1 && offs[0] == 64 && lens[0] == 32);
}

/* Goal: the packer tells its memory, and building needs no more of it, with zstd's contexts in use too. */
static void
test_memory(struct zt *t)
{
    for (unsigned c = 0; c < 3; c++) {
        struct batch b;
        struct packer *p;
        struct pack_plan plan;
        size_t before;

        batch_init(t, &b, CH_BATCH_MAX, 0, 4032);
        ZT_OK(t, packer_create((enum pack_codec)c, 0, CH_BATCH_MAX, &p));
        before = packer_memory(p);
        pack_build(p, b.items, b.n, false, &plan);
        check_plan(t, p, &b, &plan);
        ZT_CHECK(t, packer_memory(p) == before && before < 3 << 20);
        packer_destroy(p);
        free(b.page);
    }
    packer_destroy(NULL);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"round_trip", test_round_trip, 100},
        {"image_layout", test_image_layout, 10},
        {"images_best_fit", test_images_best_fit, 100},
        {"gc_moves_images", test_gc_moves_images, 50},
        {"carry", test_carry, 100},
        {"flips_are_found", test_flips_are_found, 100},
        {"fields_are_judged", test_fields_are_judged, 1},
        {"short_and_long_output", test_short_and_long_output, 1},
        {"claims_beyond_slot", test_claims_beyond_slot, 1},
        {"hostile_places", test_hostile_places, 1},
        {"hostile_images", test_hostile_images, 100},
        {"directory", test_directory, 20},
        {"forged_directory", test_forged_directory, 10},
        {"memory", test_memory, 1},
    };

    return zt_main(argc, argv, "pack", cases, CH_ARRAY_LEN(cases));
}
