/* pack.h - compresses pages one by one and best-fits them into 4 KiB slots, none across a boundary.
 *
 * Pure: no I/O, clock or threads. One struct packer per thread at a time (it owns codec contexts). Each page may
 * choose its codec; images say theirs, so reading needs nothing.
 *
 * Slot: images at 16-byte steps from offset 0; at its end the directory (the reverse map):
 *     ... { offset/16 (8 bit) | length/16 (8 bit) } x count | count (8) | version (8) | magic 0xC05D (16)
 *     | CRC-32C (32) over the directory bytes before it (entries, count, version, magic)
 * entry 0 is the farthest from the end. An image = 24-byte header + 2-byte length + codec output + zero padding to 16:
 *     0  6  page id     6  8  LSN of the page      14  4  CRC-32C of all other bytes, padding included
 *    18  2  death time (page_death_pack)           20  2  kind (4) | codec (4) | version (8)
 *    22  2  dictionary id, 0 = none           24  2  exact bytes n of the codec's output    26  n  output
 * A page that does not compress to at most PACK_IMAGE_MAX is stored raw and is the whole slot (its own page
 * header names and protects it).
 */
#ifndef CH_PACK_PACK_H
#define CH_PACK_PACK_H

#include "base/base.h"
#include "pack/dict.h"

enum {
    PACK_IMAGE_HEADER = 24,
    PACK_STEP = 16,
    PACK_IMAGE_MAX = 4096 - 16, /* largest image with its directory: one 16-byte step */
    PACK_SLOT_IMAGES_MAX = 128,
    PACK_RUN_SLOTS_MAX = 32,
    PACK_RUN_IMAGES_MAX = 240,
    PACK_BLOCK = 64, /* bytes of a page that one bit of a delta's mask stands for */
};
enum pack_codec {
    PACK_NONE = 0,
    PACK_LZ4 = 1,
    PACK_ZSTD = 2
};
enum pack_kind {
    PACK_FULL = 0,
    PACK_DELTA = 1,   /* blocks that differ from the page's full image (delta.c) */
    PACK_OVERFLOW = 2 /* reserved */
};

/* One page to be stored. Either `page` (4096 raw bytes, sealed) to be encoded, or `image` +
 * `image_bytes` as stored on the device before (GC moves images as they are; image_bytes 4096 =
 * raw page). */
struct pack_item {
    page_id pid;
    lsn_t lsn;
    uint16_t death;
    const void *page;
    const void *image;
    uint32_t image_bytes; /* multiple of 16, or 4096 */
    /* Of `page`: 1 + enum pack_codec, which packer_enable() was told of; 0 = the packer's own. */
    uint8_t choice;
    int8_t level; /* with a choice; zstd only */
    /* Of `page`, with zstd: compressed with it, at its level. Borrowed until pack_build() returns; NULL = none. */
    const struct pack_dict *dict;
    /* Of `page`: the blocks in which it may differ from its full image on the device, bit 0 included; 0 = to be stored in
     * full. Then that image's LSN, and the most bytes that a delta may take; a page whose delta takes more is stored in full. */
    uint64_t delta_mask;
    lsn_t delta_base;
    uint32_t delta_max;
    /* out: */
    bool carried;      /* left out of this plan: its slot would have been too empty */
    bool delta;        /* of `page`: stored as a delta */
    uint32_t slot;     /* index in the plan's slots */
    uint32_t offset;   /* in the slot, bytes */
    uint32_t bytes;    /* stored bytes, multiple of 16; 4096 = raw */
    uint8_t dict_slot; /* of its dictionary, 0 = none; of an image: the caller's to fill in */
};

struct pack_plan {
    /* slot_count x 4096, aligned; owned by the packer, valid until its next build; NULL: too many */
    uint8_t *slots;
    uint32_t slot_count;
    uint64_t image_total; /* sum of item.bytes over stored items */
    uint32_t stored;      /* items not carried */
    /* Slots of the run that begins at each slot, 0 = within one; they must stay next to each other. NULL = each slot for
     * itself. As long as `slots`. */
    const uint8_t *run_slots;
};

struct packer;
/* level: zstd only. max_items <= CH_BATCH_MAX: most pages to encode, and most slots, of one plan. ENOMEM. */
CH_NODISCARD int packer_create(enum pack_codec codec, int level, unsigned max_items,
                               struct packer **out);
/* Makes another codec available to items that choose it. ENOMEM; nothing changed then. */
CH_NODISCARD int packer_enable(struct packer *p, enum pack_codec codec, int level);
void packer_destroy(struct packer *p);
size_t packer_memory(const struct packer *p);
/* From now on images are packed into runs of at most `max` slots, 2 .. PACK_RUN_SLOTS_MAX, in which an image may lie across a slot's
 * end (run.h), instead of slots of their own; 0 = slots again, as at first. A plan's first `first` slots follow one another on the
 * device, then each `each` (>= 1) of them: no run is longer. */
void packer_runs(struct packer *p, unsigned max, unsigned first, unsigned each);
/* Encodes and packs n items, best fit decreasing. With `carry`, items of slots filled less than
 * 3/4 are left out (carried), but never all of them: at least half of the items are stored, so that
 * batches make progress. Can't fail: a page that a codec refuses is stored raw. n <= CH_BATCH_MAX, of which at most
 * max_items have `page`; where more than max_items slots come out, nothing is built: slots NULL, slot_count as needed. */
void pack_build(struct packer *p, struct pack_item *items, unsigned n, bool carry,
                struct pack_plan *plan);
/* An image that lies in two slots is handed over as if a slot began with it: `slot` points to it, offset 0.
 * Decodes the image at offset/bytes of `slot` into page[4096] and checks everything: header, id, CRC, length,
 * page header. EIMAGE or EPAGE with what was wrong; EVERSION for a newer image version.
 * `p` may be any packer (contexts are reused) or NULL (slower). */
CH_NODISCARD int pack_unpack(struct packer *p, const void *slot, uint32_t offset, uint32_t bytes,
                             page_id pid, void *page);
/* The same for an image that may need a dictionary: `dict`, NULL = there is none. EIMAGE too when the image names another
 * one. */
CH_NODISCARD int pack_unpack_dict(struct packer *p, const struct pack_dict *dict, const void *slot,
                                  uint32_t offset, uint32_t bytes, page_id pid, void *page);
/* Applies the delta at offset/bytes of `slot` to page[4096], which holds the page's base, and checks everything, the merged
 * page included; *mask: its blocks. EIMAGE, EPAGE, EVERSION; `page` is undefined then. */
CH_NODISCARD int pack_delta_apply(const void *slot, uint32_t offset, uint32_t bytes, page_id pid,
                                  void *page, uint64_t *mask);
/* The images of a packed slot, as its directory says, unverified but within bounds: fills offs/lens (bytes), up to
 * PACK_SLOT_IMAGES_MAX; 0 when the slot has no valid directory (raw page, empty, garbage). */
unsigned pack_slot_images(const void *slot, uint32_t *offs, uint32_t *lens);
/* Slots of the run that `slot` looks to be the first of; 0 = none. */
unsigned pack_run_slots(const void *slot);
/* The images of a run of that many slots, as pack_slot_images() says those of a slot: up to PACK_RUN_IMAGES_MAX; 0 when it is
 * none. Offsets count from the run's start: the image's place is in slot offset / 4096. */
unsigned pack_run_images(const void *run, unsigned slots, uint32_t *offs, uint32_t *lens);
struct pack_image_info {
    page_id pid;
    lsn_t lsn;
    uint16_t death;
    uint8_t kind, codec, version;
    uint16_t dict; /* id, 0 = none */
    uint32_t stored;
};
/* Header of an image inside a slot; EIMAGE when out of bounds or damaged (CRC is verified). */
CH_NODISCARD int pack_image_info(const void *slot, uint32_t offset, uint32_t bytes,
                                 struct pack_image_info *out);

#endif
