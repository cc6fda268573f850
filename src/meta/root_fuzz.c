/* root_fuzz.c - libFuzzer: root records from anywhere are refused or decode to what encodes back to the same record.
 *
 * Input: the start of a slot; the harness completes magic, version and checksum when the last byte is odd.
 */
#include "meta/meta_internal.h"

#include <stdlib.h>

enum {
    SLOT_BYTES = 4096
};

static void
complete(uint8_t *block)
{
    memcpy(block + 8, "COHORTDB", 8);
    ch_put32(block + 4, META_VERSION);
    ch_put32(block + 160, ch_get32(block + 160) % (META_EXTENTS_MAX + 2));
    ch_put32(block, ch_crc32c(0, block + 4, SLOT_BYTES - 4));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct meta_root root, again;
    static uint8_t block[SLOT_BYTES];

    memset(block, 0, sizeof(block));
    memcpy(block, data, ch_min_u64(size, sizeof(block)));
    if (size > 0 && data[size - 1] % 2 == 1)
        complete(block);
    if (meta_root_decode(block, &root) != 0)
        return 0;
    CH_ASSERT(root.extent_count <= META_EXTENTS_MAX);
    meta_root_encode(&root, block);
    CH_ASSERT(meta_root_decode(block, &again) == 0);
    CH_ASSERT(memcmp(&root, &again, sizeof(root)) == 0);
    return 0;
}
