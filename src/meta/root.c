/* root.c - root records: where everything starts from.
 *
 *     0        4 KiB          32 KiB      36 KiB           64 KiB
 *     | slot A |  zeroes ...  | slot B    |  zeroes ...    | log, zones ...
 *
 * A slot, 4096 bytes, little-endian:
 *     0  4 CRC-32C of bytes 4..4095        4  4 format version        8  8 magic "COHORTDB"
 *    16  8 sequence       24  8 database id        32  4 preset       36  4 codec
 *    40  8 device bytes, 0 = it grows      48  8 log base             56  8 log bytes
 *    64  8 zones base     72  8 zone bytes         80  4 zones        84  4 epoch
 *    88  4 lowest epoch at the cut         92  4 flags: 1 = closed cleanly
 *    96  8 epoch start   104  8 cut       112  8 map start           120  8 checkpoint
 *   128  8 map pages     136  8 zone-table pages  144  8 page-id high-water mark
 *   152  8 erase unit, 0 = unknown        160  4 extents             164  4 in-place zones
 *   168  8 digest of the map array        176  8 digest of the zone-table array
 *   184  8 root page of the tree of trees (version 2)  192  8 next transaction id (version 2)
 *   200  8 pages of the array of deltas (version 3)        208  8 its digest (version 3)
 *   216 32 zeroes        248  4 1 = the log lies in zones       252  4 its first zone (version 3)
 *   256  8 each extent: 4 zone, 1 array, 3 zeroes           rest zeroes
 * Version, magic and CRC stand where they stand in every version to come.
 *
 * Invariants:
 *   T1  the root of sequence n stands in slot n % 2; so storing n + 1 never touches the root in force.
 *   T2  what was written before a store is durable before the root is written, and the root is durable
 *       when the store returns (R16): a crash leaves the old root whole, or the new one and all that it
 *       names.
 *   T3  the first store of a database wipes both slots, durably, before it writes: a crash then leaves
 *       no database rather than the root of an older one.
 *   T4  a root of a newer format in either slot refuses the database; so does a slot that cannot be
 *       read. Else an older root could come back, whose log is gone.
 *
 * Locking: none; the caller has one checkpoint at a time. Crash: T2.
 */
#include "base/bug.h"
#include "dev/dev.h"
#include "meta/meta_internal.h"

#include <inttypes.h>

enum {
    SLOT_BYTES = 4096,
    EXTENTS_OFFSET = 256,
    EXTENT_BYTES = 8,
    FLAG_CLEAN = 1,
    LOG_PLACE_OFFSET = 248,
    LOG_ZONE_OFFSET = 252,
};
_Static_assert(EXTENTS_OFFSET + META_EXTENTS_MAX * EXTENT_BYTES <= SLOT_BYTES,
               "a root fits its slot");

static const uint8_t root_magic[8] = {'C', 'O', 'H', 'O', 'R', 'T', 'D', 'B'};

/* One 64-bit field of struct meta_root and its place in the slot; the 32-bit ones likewise. */
struct field {
    uint16_t off, member;
};
#define FIELD(off, member)                      \
    {                                           \
        off, offsetof(struct meta_root, member) \
    }
static const struct field fields64[] = {
    FIELD(16, sequence),    FIELD(24, db_id),      FIELD(40, device_bytes), FIELD(48, log_base),
    FIELD(56, log_bytes),   FIELD(64, zones_base), FIELD(72, zone_bytes),   FIELD(96, epoch_start),
    FIELD(104, cut),        FIELD(112, map_start), FIELD(120, checkpoint),  FIELD(128, map_pages),
    FIELD(136, zone_pages), FIELD(144, page_high), FIELD(152, unit_bytes),  FIELD(168, digest[0]),
    FIELD(176, digest[1]),  FIELD(184, ids_root),  FIELD(192, next_txn),    FIELD(200, delta_pages),
    FIELD(208, digest[2]),
};
static const struct field fields32[] = {
    FIELD(4, format_version), FIELD(32, preset),         FIELD(36, codec),
    FIELD(80, zones),         FIELD(84, epoch),          FIELD(88, epoch_min),
    FIELD(160, extent_count), FIELD(164, inplace_zones),
};

void
meta_root_encode(const struct meta_root *r, uint8_t *block)
{
    const uint8_t *members = (const uint8_t *)r;

    CH_ASSERT(r->extent_count <= META_EXTENTS_MAX);
    memset(block, 0, SLOT_BYTES);
    memcpy(block + 8, root_magic, sizeof(root_magic));
    for (size_t i = 0; i < CH_ARRAY_LEN(fields64); i++)
        memcpy(block + fields64[i].off, members + fields64[i].member, 8);
    for (size_t i = 0; i < CH_ARRAY_LEN(fields32); i++)
        memcpy(block + fields32[i].off, members + fields32[i].member, 4);
    ch_put32(block + 92, r->clean ? FLAG_CLEAN : 0);
    ch_put32(block + LOG_PLACE_OFFSET, r->log_zones);
    ch_put32(block + LOG_ZONE_OFFSET, r->log_zones ? r->log_zone : 0);
    for (uint32_t i = 0; i < r->extent_count; i++) {
        uint8_t *p = block + EXTENTS_OFFSET + i * EXTENT_BYTES;

        ch_put32(p, r->extents[i].zone);
        p[4] = r->extents[i].array;
    }
    ch_put32(block, ch_crc32c(0, block + 4, SLOT_BYTES - 4));
}

static bool
region_ok(uint64_t base, uint64_t bytes)
{
    return base % CH_PAGE_BYTES == 0 && bytes % CH_PAGE_BYTES == 0 && base >= META_ROOT_BYTES &&
           base <= UINT64_MAX - bytes;
}

/* Sums that do not wrap, regions that do not touch the root, whole blocks. */
static bool
geometry_ok(const struct meta_root *r)
{
    if (r->zone_bytes == 0 || r->zone_bytes % CH_PAGE_BYTES != 0 || r->log_bytes == 0)
        return false;
    if (r->zones > 0 && r->zone_bytes > (UINT64_MAX - r->zones_base) / r->zones)
        return false;
    return region_ok(r->zones_base, r->zones * r->zone_bytes) &&
           region_ok(r->log_base, r->log_bytes);
}

static bool
log_ok(const struct meta_root *r)
{
    if (r->log_zones && (r->log_zone >= r->zones || r->log_base != r->zones_base ||
                         r->log_bytes % r->zone_bytes != 0 || r->cut < r->zone_bytes))
        return false;
    return r->epoch_start % CH_PAGE_BYTES == 0 && r->epoch_min <= r->epoch &&
           r->cut <= r->map_start;
}

static bool
extents_ok(const struct meta_root *r)
{
    uint64_t pages[META_ARRAYS] = {0};

    for (uint32_t i = 0; i < r->extent_count; i++) {
        if (r->extents[i].zone >= r->zones || r->extents[i].array >= META_ARRAYS)
            return false;
        for (uint32_t j = 0; j < i; j++) {
            if (r->extents[j].zone == r->extents[i].zone)
                return false;
        }
        pages[r->extents[i].array] += meta_extent_pages(r->zone_bytes);
    }
    return r->map_pages <= pages[META_MAP] && r->zone_pages <= pages[META_ZONES] &&
           r->delta_pages <= pages[META_DELTAS];
}

static void
fields_decode(const uint8_t *block, struct meta_root *r)
{
    uint8_t *members = (uint8_t *)r;

    for (size_t i = 0; i < CH_ARRAY_LEN(fields64); i++)
        memcpy(members + fields64[i].member, block + fields64[i].off, 8);
    for (size_t i = 0; i < CH_ARRAY_LEN(fields32); i++)
        memcpy(members + fields32[i].member, block + fields32[i].off, 4);
    r->clean = (ch_get32(block + 92) & FLAG_CLEAN) != 0;
    if (r->format_version < 3)
        return;
    r->log_zones = ch_get32(block + LOG_PLACE_OFFSET) == 1;
    r->log_zone = ch_get32(block + LOG_ZONE_OFFSET);
}

int
meta_root_decode(const uint8_t *block, struct meta_root *out)
{
    struct meta_root r = {0};

    if (memcmp(block + 8, root_magic, sizeof(root_magic)) != 0)
        return CH_FAIL(COHORT_EMAGIC, "root record: magic");
    if (ch_get32(block) != ch_crc32c(0, block + 4, SLOT_BYTES - 4))
        return CH_FAIL(COHORT_EROOT, "root record: checksum");
    if (ch_get32(block + 4) > META_VERSION)
        return CH_FAIL(COHORT_EVERSION, "root record: format %u, this is %d", ch_get32(block + 4),
                       META_VERSION);
    fields_decode(block, &r);
    if (r.format_version == 0 || r.sequence == 0 || ch_get32(block + 92) > FLAG_CLEAN)
        return CH_FAIL(COHORT_EROOT, "root record %" PRIu64 ": version, sequence or flags",
                       r.sequence);
    if (r.format_version >= 3 && (ch_get32(block + LOG_PLACE_OFFSET) > 1 ||
                                  (!r.log_zones && ch_get32(block + LOG_ZONE_OFFSET) != 0)))
        return CH_FAIL(COHORT_EROOT, "root record %" PRIu64 ": place of the log", r.sequence);
    if (r.format_version == 1)
        r.ids_root = r.next_txn = 0;
    if (r.format_version < 3)
        r.delta_pages = r.digest[META_DELTAS] = 0;
    if (r.extent_count > META_EXTENTS_MAX || !geometry_ok(&r) || !log_ok(&r))
        return CH_FAIL(COHORT_EROOT, "root record %" PRIu64 ": fields contradict", r.sequence);
    for (uint32_t i = 0; i < r.extent_count; i++) {
        r.extents[i].zone = ch_get32(block + EXTENTS_OFFSET + i * EXTENT_BYTES);
        r.extents[i].array = block[EXTENTS_OFFSET + i * EXTENT_BYTES + 4];
    }
    if (!extents_ok(&r))
        return CH_FAIL(COHORT_EROOT, "root record %" PRIu64 ": extents", r.sequence);
    *out = r;
    return 0;
}

static uint64_t
slot_offset(unsigned slot)
{
    return slot == 0 ? 0 : META_ROOT_BYTES / 2;
}

/* Reads a slot; one beyond the end of the device reads as zeroes. */
static int
slot_read(struct dev *d, unsigned slot, uint8_t *block)
{
    if (dev_size(d) < slot_offset(slot) + SLOT_BYTES) {
        memset(block, 0, SLOT_BYTES);
        return 0;
    }
    return dev_read(d, slot_offset(slot), block, SLOT_BYTES);
}

static int
fits_device(struct dev *d, const struct meta_root *r)
{
    uint64_t end = ch_max_u64(r->log_base + r->log_bytes, r->zones_base + r->zones * r->zone_bytes);
    uint64_t size = dev_size(d);

    if (size < end || (r->device_bytes != 0 && size < r->device_bytes))
        return CH_FAIL(COHORT_EMISMATCH, "%s: %" PRIu64 " bytes, the database needs %" PRIu64,
                       dev_name(d), size, ch_max_u64(end, r->device_bytes));
    return 0;
}

/* What both slots say together: 0 with *best filled, or the error to report. */
static int
slots_judge(struct dev *d, uint8_t *block, struct meta_root *best)
{
    struct meta_root r;
    bool found = false, damaged = false;

    for (unsigned slot = 0; slot < 2; slot++) {
        int rc = slot_read(d, slot, block);

        if (rc != 0)
            return rc; /* T4 */
        rc = meta_root_decode(block, &r);
        if (rc == COHORT_EVERSION)
            return rc; /* T4 */
        if (rc == COHORT_EROOT || (rc == 0 && r.sequence % 2 != slot)) {
            damaged =
                true; /* in the wrong slot, the next store could overwrite the root in force (T1) */
        } else if (rc == 0 && (!found || r.sequence > best->sequence)) {
            *best = r;
            found = true;
        }
    }
    if (found)
        return 0;
    if (damaged)
        return CH_FAIL(COHORT_EROOT, "%s: no root record is whole", dev_name(d));
    return CH_FAIL(COHORT_EMAGIC, "%s: no root record", dev_name(d));
}

int
meta_load(struct dev *d, struct meta_root *out)
{
    _Alignas(CH_PAGE_BYTES) uint8_t block[SLOT_BYTES];
    struct meta_root best;
    int rc = slots_judge(d, block, &best);

    if (rc == 0)
        rc = fits_device(d, &best);
    if (rc == 0)
        *out = best;
    return rc;
}

static int
wipe(struct dev *d, uint8_t *block)
{
    int rc = 0;

    memset(block, 0, SLOT_BYTES);
    for (unsigned slot = 0; slot < 2 && rc == 0; slot++)
        rc = dev_write(d, slot_offset(slot), block, SLOT_BYTES, CH_META);
    return rc;
}

int
meta_store(struct dev *d, struct meta_root *root)
{
    _Alignas(CH_PAGE_BYTES) uint8_t block[SLOT_BYTES];
    uint64_t sequence = root->sequence;
    int rc = 0;

    if (sequence == 0)
        rc = wipe(d, block); /* T3 */
    if (rc == 0 && !CH_BUG(R16_NO_FLUSH))
        rc = dev_flush(d); /* T2 */
    if (rc != 0)
        return rc;
    root->sequence = sequence + 1;
    root->format_version = META_VERSION;
    meta_root_encode(root, block);
    rc = dev_write(d, slot_offset(root->sequence % 2), block, SLOT_BYTES, CH_META); /* T1 */
    if (rc == 0)
        rc = dev_flush(d);
    if (rc != 0)
        root->sequence = sequence;
    return rc;
}

int
meta_probe(struct dev *d, bool *is_root, bool *is_blank)
{
    uint64_t size = ch_min_u64(dev_size(d), META_ROOT_BYTES);
    uint64_t whole = size / CH_PAGE_BYTES * CH_PAGE_BYTES;
    uint8_t *area = ch_alloc_aligned(META_ROOT_BYTES);
    bool root = false;
    bool blank = whole == size; /* bytes that cannot be read as a block are somebody's */
    int rc = 0;

    if (area == NULL)
        return CH_FAIL(COHORT_ENOMEM, "root area: buffer");
    if (whole > 0)
        rc = dev_read(d, 0, area, whole);
    if (rc != 0)
        goto out;
    for (unsigned slot = 0; slot < 2; slot++)
        root |= memcmp(area + slot_offset(slot) + 8, root_magic, sizeof(root_magic)) == 0;
    for (uint64_t i = 0; i < whole && blank; i++)
        blank = area[i] == 0;
    *is_root = root;
    *is_blank = blank;
out:
    ch_free_aligned(area);
    return rc;
}
