/* store_inplace.c - in place: each page id has a home slot; torn writes are repaired from a double-write area.
 *
 *     zones [0, store_inplace_dblwr_zones())        zones [inplace_first_zone, ...)
 *     | batch slot A | batch slot B | unused |      | home of page 0 | home of page 1 | ...
 *
 * Batch slot: a header block and room for CH_BATCH_MAX pages; batch q uses slot q % 2. Header block:
 *     0 8 magic   8 4 version, 1   12 4 CRC-32C of the block with this field 0   16 8 sequence q   24 4 pages n
 *     28 4 zero   32 n x { 6 page id | 2 zero | 4 CRC-32C of the page copy }
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
#include "base/bug.h"
#include "store/store_internal.h"

#include <inttypes.h>

#include "base/log.h"
#include "page/page.h"

#define DBLWR_MAGIC UINT64_C(0x4c42445f54524f43)

enum {
    DBLWR_VERSION = 1,
    DBLWR_HEADER = 32,
    DBLWR_ENTRY = 12,
    DBLWR_BATCH_BYTES = (1 + CH_BATCH_MAX) * CH_PAGE_BYTES,
};

_Static_assert(DBLWR_HEADER + CH_BATCH_MAX * DBLWR_ENTRY <= CH_PAGE_BYTES, "one header block");

uint32_t
store_inplace_dblwr_zones(uint64_t zone_bytes)
{
    return (uint32_t)ch_div_up(2 * (uint64_t)DBLWR_BATCH_BYTES, zone_bytes);
}

static uint64_t
home_slot(const struct store *s, page_id pid)
{
    return s->cfg.zones_base / CH_SLOT_BYTES + (uint64_t)s->cfg.inplace_first_zone * s->zone_slots +
           pid;
}

static uint64_t
homes(const struct store *s)
{
    if (s->zones_cap <= s->cfg.inplace_first_zone)
        return 0;
    return (uint64_t)(s->zones_cap - s->cfg.inplace_first_zone) * s->zone_slots;
}

static uint64_t
batch_off(const struct store *s, uint64_t sequence)
{
    return s->cfg.zones_base + (CH_BUG(R20_RETIRED_EARLY) ? 0 : sequence % 2) * DBLWR_BATCH_BYTES;
}

/* ---- the header block ---- */

static uint32_t
header_crc(const uint8_t *block)
{
    static const uint8_t zero[4];
    uint32_t crc = ch_crc32c(0, block, 12);

    crc = ch_crc32c(crc, zero, sizeof(zero));
    return ch_crc32c(crc, block + 16, CH_PAGE_BYTES - 16);
}

static void
header_encode(uint8_t *block, uint64_t sequence, const struct store_page *pages, unsigned n)
{
    memset(block, 0, CH_PAGE_BYTES);
    ch_put64(block, DBLWR_MAGIC);
    ch_put32(block + 8, DBLWR_VERSION);
    ch_put64(block + 16, sequence);
    ch_put32(block + 24, n);
    for (unsigned i = 0; i < n; i++) {
        uint8_t *e = block + DBLWR_HEADER + i * DBLWR_ENTRY;

        ch_put48(e, pages[i].pid);
        ch_put32(e + 8, ch_crc32c(0, pages[i].page, CH_PAGE_BYTES));
    }
    ch_put32(block + 12, header_crc(block));
}

/* Whether the block heads a batch; a torn or older block just is none. */
static bool
header_valid(const uint8_t *block, unsigned which)
{
    return ch_get64(block) == DBLWR_MAGIC && ch_get32(block + 8) == DBLWR_VERSION &&
           ch_get32(block + 12) == header_crc(block) &&
           (ch_get64(block + 16) % 2 == which || CH_BUG(R20_RETIRED_EARLY)) &&
           ch_get32(block + 24) <= CH_BATCH_MAX;
}

/* ---- writing ---- */

static int
write_copies(struct store *s, const struct store_page *pages, unsigned n)
{
    uint8_t *buf = s->ip.buf;
    int rc;

    header_encode(buf, s->ip.sequence + 1, pages, n);
    for (unsigned i = 0; i < n; i++)
        memcpy(buf + (size_t)(1 + i) * CH_PAGE_BYTES, pages[i].page, CH_PAGE_BYTES);
    rc = dev_write(s->cfg.dev, batch_off(s, s->ip.sequence + 1), buf,
                   (size_t)(1 + n) * CH_PAGE_BYTES, CH_DBLWR);
    if (rc == 0 && !CH_BUG(R20_NO_COPY_FLUSH))
        rc = dev_flush(s->cfg.dev); /* I1 */
    if (rc == 0)
        s->ip.sequence++;
    return rc;
}

/* All home slots at once; what failed is tried once more, then the store takes no more writes (I3). */
static int
write_homes(struct store *s, const struct store_page *pages, unsigned n)
{
    int rc = 0;

    for (int attempt = 0; attempt < 2; attempt++) {
        unsigned k = 0;

        for (unsigned i = 0; i < n; i++) {
            if (attempt > 0 && s->w.used[i] == 0)
                continue;
            s->w.used[i] = 1; /* to be written */
            s->w.slot_no[k] = i;
            s->w.reqs[k++] = (struct dev_req){
                .op = DEV_WRITE,
                .off = store_slot_off(home_slot(s, pages[i].pid)),
                .len = CH_PAGE_BYTES,
                .buf = pages[i].page,
                .split = {[CH_USER] = CH_PAGE_BYTES},
                .rc = COHORT_ERETRY,
            };
        }
        rc = dev_io(s->cfg.dev, s->w.reqs, k);
        if (rc == 0)
            return 0;
        for (unsigned j = 0; j < k; j++)
            s->w.used[s->w.slot_no[j]] = s->w.reqs[j].rc != 0;
    }
    s->ip.failed = true;
    ch_log(COHORT_LOG_ERROR, "a page could not be written in place; no more writes");
    return rc;
}

static int
inplace_write(struct store *s, struct store_page *pages, unsigned n, bool carry,
              struct store_batch *out)
{
    int rc;

    (void)carry;
    if (s->ip.failed)
        return CH_FAIL(COHORT_EFAILED, "an earlier write in place failed");
    if (s->cfg.double_write) {
        rc = write_copies(s, pages, n);
        if (rc != 0)
            return rc;
    }
    rc = write_homes(s, pages, n);
    if (rc != 0)
        return rc;
    out->flush_ticket = dev_flush_ticket(s->cfg.dev);
    if (s->cfg.double_write) {
        rc = CH_BUG(R20_RETIRED_EARLY) ? 0 : dev_flush(s->cfg.dev); /* I1: retires the batch */
        if (rc != 0) {
            s->ip.failed = true;
            return rc;
        }
    }
    out->span_count = 0;
    out->count = n;
    for (unsigned i = 0; i < n; i++) {
        pages[i].carried = false;
        pages[i].place = place_make(home_slot(s, pages[i].pid), 0, CH_PAGE_BYTES);
        out->pids[i] = pages[i].pid;
        out->places[i] = pages[i].place;
    }
    store_count(&s->page_writes, n);
    store_count(&s->page_write_stored, (uint64_t)n * CH_PAGE_BYTES);
    store_count(&s->page_write_squares, (uint64_t)n * CH_PAGE_BYTES * CH_PAGE_BYTES);
    return 0;
}

/* ---- repair ---- */

/* The batch number of the slot's header, 0 when there is none; the header is left in the store's buffer. */
static int
read_header(struct store *s, unsigned which, uint64_t *sequence)
{
    int rc = dev_read(s->cfg.dev, batch_off(s, which), s->ip.buf, CH_PAGE_BYTES);

    if (rc != 0)
        return rc;
    *sequence = header_valid(s->ip.buf, which) ? ch_get64(s->ip.buf + 16) : 0;
    return 0;
}

/* I2. `home` is two pages of scratch memory. A batch may be larger than those of this opening, so its copies are read
 * one by one. */
static int
repair_page(struct store *s, unsigned i, uint8_t *home, unsigned *repaired)
{
    const uint8_t *e = s->ip.buf + DBLWR_HEADER + i * DBLWR_ENTRY;
    uint8_t *copy = home + CH_PAGE_BYTES;
    page_id pid = ch_get48(e);
    uint64_t off = store_slot_off(home_slot(s, pid));
    int rc;

    if (pid >= homes(s))
        return CH_FAIL(COHORT_EPAGE, "double-write batch %" PRIu64 ": page %" PRIu64 " has no home",
                       s->ip.sequence, pid);
    rc = dev_read(s->cfg.dev, batch_off(s, s->ip.sequence) + (uint64_t)(1 + i) * CH_PAGE_BYTES,
                  copy, CH_PAGE_BYTES);
    if (rc != 0)
        return rc;
    rc = dev_read(s->cfg.dev, off, home, CH_PAGE_BYTES);
    if (rc == 0)
        rc = page_check(home, pid);
    if (rc == 0 || ch_crc32c(0, copy, CH_PAGE_BYTES) != ch_get32(e + 8) ||
        page_check(copy, pid) != 0)
        return 0; /* whole; or the copy is torn, and then its home was not touched yet (I1) */
    ch_log(COHORT_LOG_NOTICE,
           "page %" PRIu64 ": torn write repaired from double-write batch %" PRIu64, pid,
           s->ip.sequence);
    rc = dev_write(s->cfg.dev, off, copy, CH_PAGE_BYTES, CH_DBLWR);
    if (rc == 0)
        (*repaired)++;
    return rc;
}

static int
inplace_repair(struct store *s, unsigned *repaired)
{
    uint64_t sequence[2] = {0};
    uint8_t *home = NULL;
    unsigned n;
    int rc = 0;

    if (!s->cfg.double_write || CH_BUG(R20_NO_REPAIR))
        return 0;
    for (unsigned which = 0; rc == 0 && which < 2; which++)
        rc = read_header(s, which, &sequence[which]);
    if (rc != 0)
        goto out;
    s->ip.sequence = ch_max_u64(sequence[0], sequence[1]);
    if (s->ip.sequence == 0)
        goto out;
    rc = dev_read(s->cfg.dev, batch_off(s, s->ip.sequence), s->ip.buf, CH_PAGE_BYTES);
    if (rc != 0)
        goto out;
    home = ch_alloc_aligned((size_t)2 * CH_PAGE_BYTES);
    if (home == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "pages for double-write repair");
        goto out;
    }
    n = ch_get32(s->ip.buf + 24);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = repair_page(s, i, home, repaired);
    if (rc == 0 && *repaired > 0)
        rc = dev_flush(s->cfg.dev);
out:
    ch_free_aligned(home);
    return rc;
}

/* ---- the rest of struct store_ops ---- */

static int
inplace_format(struct store *s)
{
    uint32_t n = store_inplace_dblwr_zones(s->cfg.zone_bytes);
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        zone_id z = CH_ZONE_NONE;

        rc = zone_take_meta(s->zones, &z);
        CH_ASSERT(rc != 0 || z == i); /* the lowest free zone, of a table that has just been made */
    }
    /* No batch of an older database may be mistaken for one of this. */
    memset(s->ip.buf, 0, CH_PAGE_BYTES);
    for (unsigned which = 0; rc == 0 && which < 2; which++)
        rc = dev_write(s->cfg.dev, batch_off(s, which), s->ip.buf, CH_PAGE_BYTES, CH_DBLWR);
    if (rc == 0)
        rc = dev_flush(s->cfg.dev);
    return rc;
}

static int
inplace_pid_check(const struct store *s, page_id pid)
{
    if (pid < homes(s))
        return 0;
    return CH_FAIL(COHORT_EFULL, "page %" PRIu64 ": only %" PRIu64 " pages have a home", pid,
                   homes(s));
}

static bool
inplace_has_room(const struct store *s, uint64_t dirty_new, uint64_t new_pages)
{
    (void)dirty_new; /* they have their ids, hence their homes */
    return map_pid_count(s->map) + new_pages <= ch_min_u64(homes(s), map_pages_max(s->map)) - 1;
}

static bool
inplace_place_ok(const struct store *s, page_id pid, place_t p)
{
    return p == place_make(home_slot(s, pid), 0, CH_PAGE_BYTES); /* I4 */
}

const struct store_ops store_inplace_ops = {
    .write = inplace_write,
    .format = inplace_format,
    .repair = inplace_repair,
    .pid_check = inplace_pid_check,
    .place_ok = inplace_place_ok,
    .has_room = inplace_has_room,
};
