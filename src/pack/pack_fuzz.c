/* pack_fuzz.c - libFuzzer: any bytes as a slot, as an image with a right checksum, as a directory with a
 * right checksum, and as the contents of pages to be packed and unpacked.
 *
 * Input: mode, offset / 16, length / 16, then the bytes that the mode is about.
 */
#include <stdlib.h>

#include "pack/pack.h"
#include "page/page.h"

enum {
    IMAGE_CRC_AT = 14,
    ITEMS_MAX = 16
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
fix_image(uint8_t *image, uint32_t bytes)
{
    uint32_t crc = ch_crc32c(0, image, IMAGE_CRC_AT);

    ch_put32(image + IMAGE_CRC_AT,
             ch_crc32c(crc, image + IMAGE_CRC_AT + 4, bytes - IMAGE_CRC_AT - 4));
}

static void
fix_directory(uint8_t *slot)
{
    uint32_t start = CH_SLOT_BYTES - 8 - 2 * (uint32_t)slot[CH_SLOT_BYTES - 8];

    slot[CH_SLOT_BYTES - 7] = 1;
    ch_put16(slot + CH_SLOT_BYTES - 6, 0xc05d);
    ch_put32(slot + CH_SLOT_BYTES - 4, ch_crc32c(0, slot + start, CH_SLOT_BYTES - 4 - start));
}

static void
look_at_slot(struct packer *p, const uint8_t *slot, uint32_t off, uint32_t len)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    uint8_t page[CH_PAGE_BYTES];
    struct pack_image_info info;
    unsigned count = pack_slot_images(slot, offs, lens);

    for (unsigned i = 0; i < count; i++) {
        CH_ASSERT(offs[i] + lens[i] <= CH_SLOT_BYTES - 8 - 2 * count);
        if (pack_unpack(p, slot, offs[i], lens[i], 0, page) == 0)
            CH_ASSERT(pack_image_info(slot, offs[i], lens[i], &info) == 0);
    }
    if (pack_image_info(slot, off, len, &info) == 0)
        (void)!pack_unpack(p, slot, off, len, info.pid, page);
    (void)!pack_unpack(NULL, slot, off, len, 0, page);
}

/* Pages whose bodies repeat pieces of the input, so that they compress differently well. */
static void
round_trip(struct packer *p, const uint8_t *data, size_t n)
{
    static uint8_t pages[ITEMS_MAX][CH_PAGE_BYTES];
    uint8_t page[CH_PAGE_BYTES];
    struct pack_item items[ITEMS_MAX] = {0};
    struct pack_plan plan;
    unsigned count = 1 + data[0] % ITEMS_MAX;

    for (unsigned i = 0; i < count; i++) {
        page_init(pages[i], i + 1, PAGE_LEAF, 0, 1);
        for (size_t k = PAGE_HEADER_BYTES; k < CH_PAGE_BYTES; k++)
            pages[i][k] = (uint8_t)(data[(k * (i + 1) + k / 64) % n] + (k / 512) * i);
        page_seal(pages[i]);
        items[i] = (struct pack_item){.pid = i + 1, .page = pages[i]};
    }
    pack_build(p, items, count, data[0] & 0x80, &plan);
    CH_ASSERT(plan.stored * 2 >= count);
    for (unsigned i = 0; i < count; i++) {
        if (items[i].carried)
            continue;
        CH_ASSERT(pack_unpack(p, plan.slots + (size_t)items[i].slot * CH_SLOT_BYTES,
                              items[i].offset, items[i].bytes, i + 1, page) == 0);
        CH_ASSERT(memcmp(page, pages[i], CH_PAGE_BYTES) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct packer *packers[3];
    uint8_t slot[CH_SLOT_BYTES] = {0};
    uint32_t off, len;

    if (packers[0] == NULL) {
        for (unsigned c = 0; c < 3; c++) {
            if (packer_create((enum pack_codec)c, 0, ITEMS_MAX, &packers[c]) != 0)
                abort();
        }
    }
    if (n < 4)
        return 0;
    off = data[1] * (uint32_t)PACK_STEP;
    len = data[2] * (uint32_t)PACK_STEP;
    memcpy(slot, data + 3, ch_min_u64(n - 3, sizeof(slot)));
    if (data[0] % 4 == 3) {
        round_trip(packers[data[1] % 3], data + 3, n - 3);
        return 0;
    }
    if (data[0] % 4 == 1 && len >= 32 && off + len <= CH_SLOT_BYTES) {
        memmove(slot + off, slot, len);
        fix_image(slot + off, len);
    }
    if (data[0] % 4 == 2)
        fix_directory(slot);
    look_at_slot(packers[data[0] / 4 % 3], slot, off, len);
    return 0;
}
