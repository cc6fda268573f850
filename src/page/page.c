/* page.c - the header that every logical page starts with: checks, write history, death time.
 *
 * Invariants:
 *   P1  Checksum, magic and version stand at the same place in every version of the format, so that
 *       a newer page is told apart from a damaged one: EVERSION is only said of a page whose checksum
 *       holds.
 *   P2  The history is a prefix of non-zero entries followed by zeroes. Unit 0 would read as "empty",
 *       so it is written as 1; neighbours differ, as writes in one unit count once.
 *   P3  page_death_pack() is monotone, and page_death_unpack() is its lower bound: an image never
 *       moves to another cohort because it was packed and unpacked again.
 *
 * Arithmetic: an entry is the low 32 bits of LSN / 4096, so distances are right up to 16 TiB of log
 * between the oldest and the newest entry. A page rewritten less often than that gets too short an
 * estimate, which costs one badly placed write and nothing else.
 *
 * Locking: none; callers own the page. Crash: nothing here survives but in the page itself.
 */
#include "page/page.h"

#include <inttypes.h>

enum {
    OFF_CRC = 0,
    OFF_MAGIC = 4,
    OFF_VERSION = 6,
    OFF_TYPE = 7,
    OFF_ID = 8,
    OFF_LEVEL = 14,
    OFF_TREE = 32,
    OFF_HISTORY = 36,
    UNIT_SHIFT = 12,
    DEATH_MANTISSA = 10, /* bits */
    DEATH_NEVER = 0xffff,
};

void
page_init(void *page, page_id pid, enum page_type type, uint8_t level, uint32_t tree)
{
    uint8_t *p = page;

    CH_ASSERT(pid <= CH_PAGE_ID_MAX);
    memset(p, 0, CH_PAGE_BYTES);
    ch_put16(p + OFF_MAGIC, PAGE_MAGIC);
    p[OFF_VERSION] = PAGE_VERSION;
    p[OFF_TYPE] = (uint8_t)type;
    ch_put48(p + OFF_ID, pid);
    p[OFF_LEVEL] = level;
    ch_put32(p + OFF_TREE, tree);
}

static uint32_t
page_crc(const uint8_t *p)
{
    return ch_crc32c(0, p + OFF_MAGIC, CH_PAGE_BYTES - OFF_MAGIC);
}

void
page_seal(void *page)
{
    ch_put32((uint8_t *)page + OFF_CRC, page_crc(page));
}

int
page_check(const void *page, page_id pid)
{
    const uint8_t *p = page;
    uint32_t crc;

    if (ch_get16(p + OFF_MAGIC) != PAGE_MAGIC)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": no page there (magic 0x%04x)", pid,
                       ch_get16(p + OFF_MAGIC));
    crc = page_crc(p);
    if (ch_get32(p + OFF_CRC) != crc)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": checksum 0x%08" PRIx32 ", not 0x%08" PRIx32,
                       pid, crc, ch_get32(p + OFF_CRC));
    if (p[OFF_VERSION] > PAGE_VERSION)
        return CH_FAIL(COHORT_EVERSION, "page %" PRIu64 ": format version %u, newer than %u", pid,
                       p[OFF_VERSION], (unsigned)PAGE_VERSION);
    if (p[OFF_VERSION] == 0)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": format version 0", pid);
    if (pid != 0 && page_pid(p) != pid)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": page %" PRIu64 " stands there", pid,
                       page_pid(p));
    if (p[OFF_TYPE] < PAGE_FREE || p[OFF_TYPE] > PAGE_OVERFLOW)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": unknown type %u", page_pid(p), p[OFF_TYPE]);
    return 0;
}

/* How many entries the history has. */
static unsigned
history_count(const uint8_t *h)
{
    unsigned n = 0;

    while (n < PAGE_HISTORY && ch_get32(h + 4 * n) != 0)
        n++;
    return n;
}

void
page_note_write(void *page, lsn_t now)
{
    uint8_t *h = (uint8_t *)page + OFF_HISTORY;
    uint32_t unit = (uint32_t)(now >> UNIT_SHIFT);
    unsigned n = history_count(h);

    if (unit == 0)
        unit = 1; /* P2 */
    if (n > 0 && ch_get32(h + 4 * (n - 1)) == unit)
        return;
    if (n == PAGE_HISTORY) {
        memmove(h, h + 4, 4 * (PAGE_HISTORY - 1));
        n--;
    }
    ch_put32(h + 4 * n, unit);
}

void
page_inherit(void *page, const void *from)
{
    memcpy((uint8_t *)page + OFF_HISTORY, (const uint8_t *)from + OFF_HISTORY, 4 * PAGE_HISTORY);
}

unsigned
page_history(const void *page, uint32_t stamps[PAGE_HISTORY])
{
    const uint8_t *h = (const uint8_t *)page + OFF_HISTORY;
    unsigned n = history_count(h);

    for (unsigned i = 0; i < n; i++)
        stamps[i] = ch_get32(h + 4 * i);
    return n;
}

lsn_t
page_death_time(const void *page, lsn_t now)
{
    const uint8_t *h = (const uint8_t *)page + OFF_HISTORY;
    unsigned n = history_count(h);
    uint32_t span;
    lsn_t interval;

    if (n < 2)
        return CH_LSN_MAX;
    span = ch_get32(h + 4 * (n - 1)) - ch_get32(h); /* modulo 2^32, see the file head */
    interval = ((lsn_t)span << UNIT_SHIFT) / (n - 1);
    return now > CH_LSN_MAX - interval ? CH_LSN_MAX : now + interval;
}

/* A small float: values below 2^10 as they are; above, e = position of the top bit - 9 and the ten bits
 * below the top bit. The largest code is 54 << 10 | 1023, so 0xffff is free to mean "never". */
uint16_t
page_death_pack(lsn_t edt)
{
    unsigned e;

    if (edt == CH_LSN_MAX)
        return DEATH_NEVER;
    if (edt >> DEATH_MANTISSA == 0)
        return (uint16_t)edt;
    e = (unsigned)(63 - __builtin_clzll(edt)) - (DEATH_MANTISSA - 1);
    return (uint16_t)(e << DEATH_MANTISSA | (edt >> (e - 1) & ((1u << DEATH_MANTISSA) - 1)));
}

lsn_t
page_death_unpack(uint16_t packed)
{
    unsigned e = (unsigned)packed >> DEATH_MANTISSA;
    lsn_t mantissa = packed & ((1u << DEATH_MANTISSA) - 1);

    if (e == 0)
        return mantissa;
    if (e > 64 - DEATH_MANTISSA)
        return CH_LSN_MAX; /* never, or a code that no page_death_pack() makes */
    return (mantissa | UINT64_C(1) << DEATH_MANTISSA) << (e - 1);
}
