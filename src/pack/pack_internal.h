/* pack_internal.h - where things stand in an image; for the files of pack only. */
#ifndef CH_PACK_PACK_INTERNAL_H
#define CH_PACK_PACK_INTERNAL_H

#include "pack/pack.h"

enum {
    IMAGE_OFF_PID = 0,
    IMAGE_OFF_LSN = 6,
    IMAGE_OFF_CRC = 14,
    IMAGE_OFF_DEATH = 18,
    IMAGE_OFF_VERSION = 20,
    IMAGE_OFF_KIND_CODEC = 21,
    IMAGE_OFF_DICT = 22,
    IMAGE_OFF_OUTPUT_BYTES = PACK_IMAGE_HEADER,
};

/* Of all bytes but the checksum itself. */
uint32_t pack_image_crc(const uint8_t *image, uint32_t bytes);
/* The image at offset/bytes if that can be one and its checksum holds. `pid` is for the message. EIMAGE. */
CH_NODISCARD int pack_image_open(const void *slot, uint32_t offset, uint32_t bytes, page_id pid,
                                 const uint8_t **out);

/* ---- delta.c ---- */

/* Encodes it->page as a delta at `image`: header, checksum and padding included. `lz4` (LZ4_sizeofState() bytes, or NULL) is
 * used when that is smaller. Returns its stored bytes, a multiple of PACK_STEP; 0: it would take more than it->delta_max. */
uint32_t pack_delta_encode(const struct pack_item *it, void *lz4, uint8_t *image);

#endif
