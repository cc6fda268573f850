/* store_inplace.c - in place: each page id has a home slot; torn writes are repaired from a double-write area.
 *
 *     zones [0, store_inplace_dblwr_zones())        zones [inplace_first_zone, ...)
 *     | batch slot A | batch slot B | unused |      | home of page 0 | home of page 1 | ...
 *
 * Batch slot: a header block and room for CH_BATCH_MAX pages; batch q uses slot q % 2. Header block:
 *     0 8 magic   8 4 version, 1   12 4 CRC-32C of the block with this field 0   16 8 sequence q   24 4 pages n
 *     28 4 zero   32 n x { 8 page id | 4 CRC-32C of the page copy | 4 zero }
 *
 * One store_write(), under s->lock from start to end:
 *     copies to the batch slot -> device flush -> home slots, all at once -> device flush -> done
 * Without double write (inplace-atomic, for drives that never tear 4 KiB): home slots -> ticket; ready by anybody's flush.
 *
 * Invariants:
 *   I1 (R20) a home slot is overwritten only when the batch that holds the same bytes is durable, and that batch is
 *      overwritten (two batches later) only when the home slots are durable. So at most the newest batch is
 *      not retired, and it is the only one that repair looks at.
 *   I2 (R20) repair writes a home slot only if its page fails its check and the batch's copy passes.
 *   I3 after a failed home write nothing is written any more: the batch that can repair it must stay the newest.
 *   I4 map[p] is the home slot of p or none; so MAP records are written for first images and frees only.
 *
 * Crash: torn double-write copies (homes untouched yet), or torn home slots (copies whole): never both.
 * Zones: the table knows the areas as META or FREE and counts no live bytes; GC has nothing to do here.
 */
#include "store/store_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "page/page.h"

#define DBLWR_MAGIC UINT64_C(0x4c42445f54524f43)

enum {
    DBLWR_VERSION = 1,
    DBLWR_HEADER = 32,
    DBLWR_ENTRY = 16,
    DBLWR_BATCH_BYTES = (1 + CH_BATCH_MAX) * CH_PAGE_BYTES,
};

_Static_assert(DBLWR_HEADER + CH_BATCH_MAX * DBLWR_ENTRY <= 2 * CH_PAGE_BYTES, "see header_bytes()");

uint32_t
store_inplace_dblwr_zones(uint64_t zone_bytes)
{
    return (uint32_t)ch_div_up(2 * (uint64_t)DBLWR_BATCH_BYTES, zone_bytes);
}
