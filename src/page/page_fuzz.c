/* page_fuzz.c - libFuzzer: any 4 KiB as a page. The first byte of the input says whether the checksum
 * is made right, so that the fuzzer gets behind it; the rest is the page, zero-filled.
 */
#include "page/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t page[CH_PAGE_BYTES] = {0};
    uint8_t child[CH_PAGE_BYTES];
    lsn_t now;

    if (n < 1)
        return 0;
    memcpy(page, data + 1, ch_min_u64(n - 1, sizeof(page)));
    if (data[0] & 1)
        ch_put16(page + 4, PAGE_MAGIC);
    if (data[0] & 2)
        page_seal(page);
    if (page_check(page, page_pid(page)) == 0) {
        CH_ASSERT(page_check(page, 0) == 0);
        CH_ASSERT(page_type(page) >= PAGE_FREE && page_type(page) <= PAGE_OVERFLOW);
    }
    now = page_lsn(page);
    CH_ASSERT(page_death_time(page, now) >= now);
    CH_ASSERT(page_death_unpack(page_death_pack(page_death_time(page, now))) <=
              page_death_time(page, now));
    page_note_write(page, now);
    page_init(child, 1, PAGE_LEAF, 0, 0);
    page_inherit(child, page);
    CH_ASSERT(page_death_time(child, now) == page_death_time(page, now));
    page_seal(child);
    CH_ASSERT(page_check(child, 1) == 0);
    return 0;
}
