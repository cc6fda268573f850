/* page.h - the header that every logical 4 KiB page starts with. Pure.
 *
 *   off size
 *     0    4  CRC-32C of bytes 4 .. 4095, set when the page is written, 0 in memory
 *     4    2  magic 0xC047
 *     6    1  format version, 1
 *     7    1  type (enum page_type)
 *     8    6  page id
 *    14    1  level (0 = leaf)
 *    15    1  flags (enum page_flag)
 *    16    8  page LSN: end of the last log record that changed the page
 *    24    8  newest user write LSN (R1; kept as maximum over merged pages)
 *    32    4  tree id
 *    36   16  write history: 4 x 32 bit, oldest first, in units of 4 KiB of log (page_note_write)
 *    52    2  entry count         (btree)
 *    54    2  heap start          (btree)
 *    56    2  dead heap bytes     (btree)
 *    58    2  prefix bytes        (btree)
 *    60    2  insert hint         (btree)
 *    62    2  count of ghosts     (btree)
 *    64       body
 */
#ifndef CH_PAGE_PAGE_H
#define CH_PAGE_PAGE_H

#include "base/base.h"

enum {
    PAGE_MAGIC = 0xC047,
    PAGE_VERSION = 1,
    PAGE_HEADER_BYTES = 64,
    PAGE_HISTORY = 4
};
enum page_type {
    PAGE_FREE = 1,
    PAGE_LEAF = 2,
    PAGE_INNER = 3,
    PAGE_OVERFLOW = 4 /* reserved */
};

enum page_flag {
    PAGE_PRIVATE = 1 /* the root of a bulk load that is not finished */
};

/* Zeroes all 4096 bytes and writes a fresh header. */
void page_init(void *page, page_id pid, enum page_type type, uint8_t level, uint32_t tree);

static inline page_id
page_pid(const void *p)
{
    return ch_get48((const uint8_t *)p + 8);
}
static inline lsn_t
page_lsn(const void *p)
{
    return ch_get64((const uint8_t *)p + 16);
}
static inline void
page_set_lsn(void *p, lsn_t l)
{
    ch_put64((uint8_t *)p + 16, l);
}
static inline lsn_t
page_write_lsn(const void *p)
{
    return ch_get64((const uint8_t *)p + 24);
}
static inline void
page_set_write_lsn(void *p, lsn_t l)
{
    ch_put64((uint8_t *)p + 24, l);
}
static inline enum page_type
page_type(const void *p)
{
    return (enum page_type)((const uint8_t *)p)[7];
}
static inline uint8_t
page_level(const void *p)
{
    return ((const uint8_t *)p)[14];
}
static inline unsigned
page_flags(const void *p)
{
    return ((const uint8_t *)p)[15];
}
static inline void
page_set_flags(void *p, unsigned flags)
{
    ((uint8_t *)p)[15] = (uint8_t)flags;
}
static inline uint32_t
page_tree(const void *p)
{
    return ch_get32((const uint8_t *)p + 32);
}

/* Sets the checksum; the page must not change afterwards. Used on the copy that is written. */
void page_seal(void *page);
/* Magic, version, type, id and checksum of a page read from a device. EPAGE, or EVERSION for a newer
 * format; says which. pid 0 = any. */
CH_NODISCARD int page_check(const void *page, page_id pid);

/* Appends `now` to the write history (paper section 4.2: WH_1 .. WH_n); called when the page is
 * written for the user, never for GC copies. Two writes within one unit count once. */
void page_note_write(void *page, lsn_t now);
/* New pages of a split inherit their parent's history. */
void page_inherit(void *page, const void *from);
/* The write history, oldest first, in units of 4 KiB of log (32 bit, wrapping); returns how many. */
unsigned page_history(const void *page, uint32_t stamps[PAGE_HISTORY]);
/* Estimated death time EDT = now + (WHn - WH1)/(n - 1) in LSN; CH_LSN_MAX with fewer than two writes. */
lsn_t page_death_time(const void *page, lsn_t now);
/* The 16-bit log-scale form kept in image headers, and back (lower bound of its bucket). Monotone. */
uint16_t page_death_pack(lsn_t edt);
lsn_t page_death_unpack(uint16_t packed);

#endif
