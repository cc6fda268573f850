/* run.h - runs of slots: images back to back, so that one may lie on both sides of a slot's end; for src/pack only.
 *
 * A slot of 4 KiB wastes what no whole image fits into: pages that compress to 0.41 fill 0.82 of it. In a run
 * only its end is wasted; in exchange some images are read as two blocks, which lie side by side. The caller says where runs
 * may be: they lie within one zone.
 *
 *     | head | image 0 | image 1 | ..                    | image n | zeroes |      1 .. PACK_RUN_SLOTS_MAX slots
 *     0  4  CRC-32C of the rest of the head, then of bytes 14 .. 17 (the CRC) of each image
 *     4  2  magic 0xC05E       6  1  version 1       7  1  slots
 *     8  2  count of images   10  2  zero
 *    12  4 x count: { offset in the run / 16 (16 bit) | length / 16 (16 bit) }, ascending; zero padding to 16
 *
 * A head can't be taken for a raw page or for an image: byte 5 is 0xC0 in it and in a raw page, byte 4 is not the same, and page
 * ids stay below 2^40. That the CRC covers those of the images tells a head from one that an earlier writer of the zone left
 * there, whose images have been overwritten.
 */
#ifndef CH_PACK_RUN_H
#define CH_PACK_RUN_H

#include "pack/pack.h"

struct run {
    uint16_t first, count; /* of `sequence` */
    uint16_t slot;         /* in the plan */
    uint8_t slots;
    bool raw; /* one raw page, no head */
};
struct run_plan {
    unsigned max, first, each; /* packer_runs() */
    struct run runs[CH_BATCH_MAX];
    unsigned count;
    uint16_t sequence[CH_BATCH_MAX]; /* items by place */
    uint8_t run_slots[CH_BATCH_MAX]; /* pack_plan.run_slots */
};

/* Places items, whose `bytes` are known, in `order`, largest first; marks those left out. Returns slots. */
unsigned run_fit(struct run_plan *p, struct pack_item *items, const uint16_t *order, unsigned n,
                 bool carry);
/* Writes the slots; src: the items' stored bytes. */
void run_emit(const struct run_plan *p, const struct pack_item *items, const uint8_t *const *src,
              uint8_t *slots);

#endif
