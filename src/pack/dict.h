/* dict.h - dictionaries that the pages of a tree are compressed with (zstd).
 *
 * A page of 4 KiB is too short for a compressor to learn from. What the pages of one tree have in common (field names,
 * hosts, padding, the statistics of their bytes) goes into a dictionary of at most PACK_DICT_MAX bytes, trained from samples
 * of them. An image names its dictionary (16-bit id in its header), which must be at hand as long as such an image exists.
 *
 * An id is a slot, 1 .. PACK_DICTS - 1, and a generation: slots are few, so that a place can carry them (space/map.h) and
 * images per dictionary can be counted; the generation tells a dictionary from the one that had its slot before.
 *
 * Pure: no I/O, clock or threads. A struct pack_dict never changes after its creation, so any number of threads may use it.
 */
#ifndef CH_PACK_DICT_H
#define CH_PACK_DICT_H

#include "base/base.h"

enum {
    PACK_DICTS = 64, /* slots; slot 0 = no dictionary */
    PACK_DICT_GENERATIONS = 1024,
    PACK_DICT_MAX = 16 * 1024, /* bytes */
    PACK_DICT_MIN = 256,
    PACK_DICT_SAMPLES = 256,   /* pages that are enough to train from */
    PACK_DICT_SAMPLES_MIN = 32 /* fewer than that are refused */
};

static inline unsigned
pack_dict_slot(uint16_t id)
{
    return id % PACK_DICTS;
}
static inline uint16_t
pack_dict_id(unsigned slot, unsigned generation)
{
    return (uint16_t)(generation % PACK_DICT_GENERATIONS * PACK_DICTS + slot);
}

struct pack_dict;
/* Copies n bytes, PACK_DICT_MIN <= n <= PACK_DICT_MAX, and digests them for both ways; level: of compression, 0 = 1.
 * ENOMEM. */
CH_NODISCARD int pack_dict_create(uint16_t id, const void *bytes, size_t n, int level,
                                  struct pack_dict **out);
void pack_dict_destroy(struct pack_dict *d); /* NULL is legal */
uint16_t pack_dict_id_of(const struct pack_dict *d);
size_t pack_dict_memory(const struct pack_dict *d);

/* Trains from n sample pages of 4096 bytes each, back to back: at most `max` bytes (<= PACK_DICT_MAX) to `out`, *bytes of
 * them. The same samples give the same dictionary. Takes some 10 ms for PACK_DICT_SAMPLES pages, and memory of a few MiB
 * meanwhile. NOTFOUND: the samples have nothing in common, or are too few. ENOMEM. */
CH_NODISCARD int pack_dict_train(const void *pages, unsigned n, size_t max, void *out,
                                 size_t *bytes);

#endif
