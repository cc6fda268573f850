/* wal_fuzz.c - libFuzzer: a scan over bytes from anywhere never reads outside, never loops, and what it returns
 * lies in the log.
 *
 * Input: 16 bytes of parameters, then blocks of 256 input bytes each, of which the header comes first. Flags per block
 * let the harness complete magic, database, LSN and checksum, as no fuzzer finds those by itself. A parameter turns the ring
 * into zones of SEGMENT blocks, which the blocks name as they like.
 */
#include "wal/wal_internal.h"

#include <stdlib.h>

enum {
    BLOCKS = 16,
    RING = BLOCKS * WAL_BLOCK,
    PARAMETERS = 16,
    BLOCK_INPUT = 256,
    DB_ID = 5,
    SEGMENT = 4 * WAL_BLOCK,
    ZONES = RING / SEGMENT,
};

struct source {
    uint8_t ring[RING];
};

static int
read_ring(void *arg, uint64_t off, void *buf, size_t len)
{
    const struct source *s = arg;

    CH_ASSERT(off <= RING && len <= RING - off);
    memcpy(buf, s->ring + off, len);
    return 0;
}

static void
block_build(uint8_t *block, lsn_t lsn, bool segments, const uint8_t *in, size_t n)
{
    struct wal_block b = {.lsn = lsn, .db_id = DB_ID, .segment = segments, .next = CH_ZONE_NONE};

    memcpy(block, in, n);
    if ((in[0] & 1) == 0)
        return; /* as it is */
    b.used = (uint16_t)(WAL_BLOCK_HEADER + 1 + ch_get16(block + 28) % WAL_PAYLOAD);
    b.first = ch_get16(block + 30) % WAL_BLOCK;
    b.epoch = block[24] & 3;
    if ((in[0] & 4) != 0)
        b.next = block[36] % (ZONES + 1); /* sometimes one too many */
    b.durable = (in[0] & 2) != 0 ? lsn : lsn / 2 / WAL_BLOCK * WAL_BLOCK;
    wal_block_seal(block, &b);
}

static void
scan(struct source *s, bool segments, const uint8_t *in)
{
    struct wal_scan_config cfg = {
        .bytes = RING,
        .db_id = DB_ID,
        .from = ch_get32(in) % (3 * RING),
        .epoch_min = in[4] & 3,
        .epoch_start = (lsn_t)in[5] % (3 * BLOCKS) * WAL_BLOCK,
        .epoch = in[6] & 3,
        .segment_bytes = segments ? SEGMENT : 0,
        .zones = ZONES,
        .first_zone = in[7] % (ZONES + 1),
    };
    struct wal_scan *scan = NULL;
    struct wal_record rec;
    lsn_t end = cfg.from;
    uint32_t sum = 0;
    int rc = wal_scan_open_reader(&cfg, read_ring, s, &scan);

    while (rc == 0) {
        rc = wal_scan_next(scan, &rec);
        if (rc != 0)
            break;
        CH_ASSERT(rec.start >= end && rec.end > rec.start && rec.bytes <= WAL_RECORD_MAX);
        CH_ASSERT(rec.end <= wal_block_of(cfg.from) + RING + SEGMENT);
        end = rec.end;
        sum = ch_crc32c(sum, rec.data, rec.bytes); /* touches every byte */
    }
    CH_ASSERT(rc == COHORT_NOTFOUND || rc == COHORT_ELOG);
    if (rc == COHORT_NOTFOUND)
        CH_ASSERT(wal_scan_tail(scan) >= end && wal_scan_tail(scan) % WAL_BLOCK == 0);
    wal_scan_close(scan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct source s;
    bool segments;
    lsn_t from;

    if (size < PARAMETERS)
        return 0;
    memset(&s, 0, sizeof(s));
    segments = (data[8] & 1) != 0;
    from = wal_block_of(ch_get32(data) % (3 * RING));
    for (size_t i = 0; i < BLOCKS && PARAMETERS + i * BLOCK_INPUT < size; i++) {
        const uint8_t *in = data + PARAMETERS + i * BLOCK_INPUT;
        lsn_t lsn = from + i * WAL_BLOCK;

        block_build(s.ring + lsn % RING, lsn, segments, in,
                    ch_min_u64(BLOCK_INPUT, size - PARAMETERS - i * BLOCK_INPUT));
    }
    scan(&s, segments, data);
    return 0;
}
