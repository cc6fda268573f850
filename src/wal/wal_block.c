/* wal_block.c - one block of the log as bytes. Pure.
 *
 *    0 4 CRC-32C of bytes 4..4095        4 4 magic          8 8 LSN of the block's start
 *   16 8 durable LSN when written       24 4 epoch         28 2 used bytes, header included
 *   30 2 first record's offset, 0 = none                   32 8 database id
 *
 * In segments: another magic, and
 *   32 4 lower half of the database id  36 4 1 + zone of the next segment, 0 = not known
 *
 * A block that parses holds at least one payload byte, its first record starts inside of what is used,
 * and it was written when the log was durable at most up to its own start.
 */
#include "base/bug.h"
#include "wal/wal_internal.h"

_Static_assert(CH_ZONE_NONE == UINT32_MAX, "no zone is number 0 in a block");

void
wal_block_seal(uint8_t *block, const struct wal_block *b)
{
    memset(block + b->used, 0, (size_t)(WAL_BLOCK - b->used));
    ch_put32(block + 4, b->segment ? WAL_MAGIC_SEGMENT : WAL_MAGIC);
    ch_put64(block + 8, b->lsn);
    ch_put64(block + 16, b->durable);
    ch_put32(block + 24, b->epoch);
    ch_put16(block + 28, b->used);
    ch_put16(block + 30, b->first);
    ch_put64(block + 32, b->db_id);
    if (b->segment)
        ch_put32(block + 36, b->next + 1); /* CH_ZONE_NONE + 1 = 0 */
    ch_put32(block, ch_crc32c(0, block + 4, WAL_BLOCK - 4));
}

bool
wal_block_parse(const uint8_t *block, uint64_t db_id, struct wal_block *out)
{
    struct wal_block b = {
        .lsn = ch_get64(block + 8),
        .durable = ch_get64(block + 16),
        .epoch = ch_get32(block + 24),
        .used = ch_get16(block + 28),
        .first = ch_get16(block + 30),
        .db_id = db_id,
        .segment = ch_get32(block + 4) == WAL_MAGIC_SEGMENT,
        .next = CH_ZONE_NONE,
    };

    if (b.segment) {
        if (ch_get32(block + 32) != (uint32_t)db_id)
            return false;
        b.next = ch_get32(block + 36) - 1;
    } else if (ch_get32(block + 4) != WAL_MAGIC || ch_get64(block + 32) != db_id) {
        return false;
    }
    if (b.lsn % WAL_BLOCK != 0 || b.durable > b.lsn || b.lsn > CH_LSN_MAX - WAL_BLOCK)
        return false;
    if (b.used <= WAL_BLOCK_HEADER || b.used > WAL_BLOCK)
        return false;
    if (b.first != 0 && (b.first < WAL_BLOCK_HEADER || b.first >= b.used))
        return false;
    if (ch_get32(block) != ch_crc32c(0, block + 4, WAL_BLOCK - 4) && !CH_BUG(R10_NO_CHECKSUM))
        return false;
    *out = b;
    return true;
}
