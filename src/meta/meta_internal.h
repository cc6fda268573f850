/* meta_internal.h - what root.c and array.c share. */
#ifndef CH_META_META_INTERNAL_H
#define CH_META_META_INTERNAL_H

#include "meta/meta.h"

/* Pages of an array that an extent (a zone) holds: two slots of 4 KiB each. */
static inline uint64_t
meta_extent_pages(uint64_t zone_bytes)
{
    return zone_bytes / (2 * CH_PAGE_BYTES);
}

#endif
