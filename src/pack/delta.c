/* delta.c - delta images: what a page has other than its base, its last full image.
 *
 * A page is 64 blocks of 64 bytes; bit b of the mask says that block b stands in the delta. After the header of every
 * image (pack.h), kind PACK_DELTA, version 2:
 *     24 2 exact bytes n of the output   26 8 LSN of the base   34 8 mask   42 n output, zeroes to a multiple of 16
 * The output is the blocks of the mask in ascending order, as they are (codec none) or compressed by LZ4 with a dictionary:
 * the page with the blocks of the mask zeroed. That is what the base looks like with those blocks zeroed, so the reader,
 * who has the base, has the dictionary; a few hundred bytes compress with it as well as they would within their page.
 *
 * Invariants:
 *   D1  the mask is a superset of the blocks in which the page differs from its base. So a delta may be applied to its
 *       base, and as well to the base with an earlier delta of it folded in: both are the same outside of the mask.
 *   D2  block 0, the page's header, is in every delta: the merged page has the newest LSN and checksum, and page_check()
 *       of it tells a delta of another base.
 *   D3  LSN of the delta's base <= LSN of the image it is applied to <= LSN of the delta.
 *   D4  (K3) applying reads nothing outside of the image and writes exactly one page.
 *
 * Pure. Locking: none.
 */
#include "pack/pack_internal.h"

#include <inttypes.h>
#include <lz4.h>

#include "page/page.h"

enum {
    DELTA_VERSION = 2,
    OFF_BASE = 26,
    OFF_MASK = 34,
    OFF_OUTPUT = 42,
    DELTA_MIN = OFF_OUTPUT + 1,
};

/* Splits `page` into the mask's blocks, back to back, and the page with those blocks zeroed. Returns the blocks' bytes. */
static uint32_t
split(const uint8_t *page, uint64_t mask, uint8_t *blocks, uint8_t *rest)
{
    uint32_t n = 0;

    memcpy(rest, page, CH_PAGE_BYTES);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t off = (uint32_t)__builtin_ctzll(mask) * PACK_BLOCK;

        memcpy(blocks + n, page + off, PACK_BLOCK);
        memset(rest + off, 0, PACK_BLOCK);
        n += PACK_BLOCK;
    }
    return n;
}

/* LZ4 with `rest` as the dictionary; 0 when it does not get below `cap`. */
static uint32_t
compress(void *lz4, const uint8_t *rest, const uint8_t *blocks, uint32_t n, uint8_t *dst,
         uint32_t cap)
{
    LZ4_stream_t *stream = LZ4_initStream(lz4, (size_t)LZ4_sizeofState());

    CH_ASSERT(stream != NULL);
    (void)LZ4_loadDict(stream, (const char *)rest, CH_PAGE_BYTES);
    return (uint32_t)LZ4_compress_fast_continue(stream, (const char *)blocks, (char *)dst, (int)n,
                                                (int)cap, 1);
}

uint32_t
pack_delta_encode(const struct pack_item *it, void *lz4, uint8_t *image)
{
    uint8_t blocks[CH_PAGE_BYTES];
    uint8_t rest[CH_PAGE_BYTES];
    uint32_t most = it->delta_max < PACK_IMAGE_MAX ? it->delta_max : PACK_IMAGE_MAX;
    uint32_t all = split(it->page, it->delta_mask, blocks, rest);
    enum pack_codec codec = PACK_NONE;
    uint32_t n = 0;
    uint32_t bytes;

    CH_ASSERT((it->delta_mask & 1) != 0); /* D2 */
    most = most / PACK_STEP * PACK_STEP;
    if (most < DELTA_MIN)
        return 0;
    if (lz4 != NULL)
        n = compress(lz4, rest, blocks, all, image + OFF_OUTPUT,
                     (most - OFF_OUTPUT < all ? most - OFF_OUTPUT : all));
    if (n > 0 && n < all) {
        codec = PACK_LZ4;
    } else if (all <= most - OFF_OUTPUT) {
        n = all;
        memcpy(image + OFF_OUTPUT, blocks, all);
    } else {
        return 0;
    }
    bytes = (uint32_t)ch_round_up(OFF_OUTPUT + n, PACK_STEP);
    ch_put48(image + IMAGE_OFF_PID, it->pid);
    ch_put64(image + IMAGE_OFF_LSN, it->lsn);
    ch_put16(image + IMAGE_OFF_DEATH, it->death);
    image[IMAGE_OFF_VERSION] = DELTA_VERSION;
    image[IMAGE_OFF_KIND_CODEC] = (uint8_t)(PACK_DELTA << 4 | codec);
    ch_put16(image + IMAGE_OFF_DICT, 0);
    ch_put16(image + IMAGE_OFF_OUTPUT_BYTES, (uint16_t)n);
    ch_put64(image + OFF_BASE, it->delta_base);
    ch_put64(image + OFF_MASK, it->delta_mask);
    memset(image + OFF_OUTPUT + n, 0, bytes - OFF_OUTPUT - n);
    ch_put32(image + IMAGE_OFF_CRC, pack_image_crc(image, bytes));
    return bytes;
}

/* Everything that the header of a checked image says. */
static int
check_header(const uint8_t *image, uint32_t bytes, page_id pid)
{
    uint32_t n = ch_get16(image + IMAGE_OFF_OUTPUT_BYTES);

    if (image[IMAGE_OFF_VERSION] > DELTA_VERSION)
        return CH_FAIL(COHORT_EVERSION, "page %" PRIu64 ": delta version %u, newer than %u", pid,
                       image[IMAGE_OFF_VERSION], (unsigned)DELTA_VERSION);
    if (image[IMAGE_OFF_VERSION] != DELTA_VERSION ||
        image[IMAGE_OFF_KIND_CODEC] >> 4 != PACK_DELTA || ch_get16(image + IMAGE_OFF_DICT) != 0)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": image of kind %u, version %u, for a delta",
                       pid, image[IMAGE_OFF_KIND_CODEC] >> 4, image[IMAGE_OFF_VERSION]);
    if (ch_get48(image + IMAGE_OFF_PID) != pid)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": delta of page %" PRIu64 " stands there",
                       pid, ch_get48(image + IMAGE_OFF_PID));
    if (n == 0 || ch_round_up(OFF_OUTPUT + n, PACK_STEP) != bytes)
        return CH_FAIL(COHORT_EIMAGE,
                       "page %" PRIu64 ": %" PRIu32 " bytes of output in a delta of %" PRIu32, pid,
                       n, bytes);
    if ((ch_get64(image + OFF_MASK) & 1) == 0)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": delta without the page's header", pid);
    return 0;
}

/* The blocks of the mask into `blocks`; false when the output does not yield them. `base` is the page's base. */
static bool
decode(const uint8_t *image, const uint8_t *base, uint64_t mask, uint8_t *blocks)
{
    uint8_t rest[CH_PAGE_BYTES];
    uint32_t n = ch_get16(image + IMAGE_OFF_OUTPUT_BYTES);
    uint32_t all = split(base, mask, blocks, rest);
    unsigned codec = image[IMAGE_OFF_KIND_CODEC] & 0xf;

    if (codec == PACK_NONE) {
        if (n != all)
            return false;
        memcpy(blocks, image + OFF_OUTPUT, n);
        return true;
    }
    return codec == PACK_LZ4 &&
           LZ4_decompress_safe_usingDict((const char *)image + OFF_OUTPUT, (char *)blocks, (int)n,
                                         (int)all, (const char *)rest, CH_PAGE_BYTES) == (int)all;
}

int
pack_delta_apply(const void *slot, uint32_t offset, uint32_t bytes, page_id pid, void *page,
                 uint64_t *mask)
{
    uint8_t blocks[CH_PAGE_BYTES];
    const uint8_t *image;
    const uint8_t *from = blocks;
    lsn_t base = page_lsn(page);
    int rc = pack_image_open(slot, offset, bytes, pid, &image);

    if (rc == 0)
        rc = check_header(image, bytes, pid);
    if (rc != 0)
        return rc;
    if (ch_get64(image + OFF_BASE) > base || base > ch_get64(image + IMAGE_OFF_LSN)) /* D3 */
        return CH_FAIL(COHORT_EIMAGE,
                       "page %" PRIu64 ": delta of LSN %" PRIu64 " against %" PRIu64
                       ", the base is of %" PRIu64,
                       pid, ch_get64(image + IMAGE_OFF_LSN), ch_get64(image + OFF_BASE), base);
    *mask = ch_get64(image + OFF_MASK);
    if (!decode(image, page, *mask, blocks))
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": the delta does not yield its blocks", pid);
    for (uint64_t m = *mask; m != 0; m &= m - 1, from += PACK_BLOCK)
        memcpy((uint8_t *)page + (size_t)__builtin_ctzll(m) * PACK_BLOCK, from, PACK_BLOCK);
    return page_check(page, pid);
}
