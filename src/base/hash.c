/* hash.c - CRC-32C by isa-l (hardware where there is any), and memory aligned for direct I/O.
 *
 * isa-l's crc32_iscsi() takes and returns the raw register, without the inversions of the standard;
 * ch_crc32c() adds them, which also makes results chain: crc(ab) = crc(crc(a), b), from 0.
 */
#include "base/base.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CH_HAS_ASAN 1
#endif
#endif
#ifndef CH_HAS_ASAN
#define CH_HAS_ASAN 0
#endif

enum {
    CRC_CHUNK = 1 << 30 /* isa-l's length is an int */
};

uint32_t
ch_crc32c(uint32_t seed, const void *data, size_t n)
{
    /* The function only reads; its prototype forgot the const. */
    unsigned char *p = (unsigned char *)(uintptr_t)data;
    uint32_t crc = ~seed;

    while (n > 0) {
        size_t part = n < CRC_CHUNK ? n : CRC_CHUNK;

        crc = crc32_iscsi(p, (int)part, crc);
        p += part;
        n -= part;
    }
    return ~crc;
}

/* A mapping of its own with its length in a page before it, not malloc(): what is never used never takes memory, however
 * often the heap was used before, and what is freed goes back at once. AddressSanitizer sees into malloc() only. */
#if !defined(__SANITIZE_ADDRESS__) && !CH_HAS_ASAN
void *
ch_alloc_aligned(size_t bytes)
{
    uint8_t *p;

    if (bytes > SIZE_MAX - 2 * CH_PAGE_BYTES)
        return NULL;
    bytes = (size_t)ch_round_up(bytes, CH_PAGE_BYTES) + CH_PAGE_BYTES;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    memcpy(p, &bytes, sizeof(bytes));
    return p + CH_PAGE_BYTES;
}

void
ch_free_aligned(void *p)
{
    uint8_t *head;
    size_t bytes;

    if (p == NULL)
        return;
    head = (uint8_t *)p - CH_PAGE_BYTES;
    memcpy(&bytes, head, sizeof(bytes));
    (void)munmap(head, bytes);
}
#else
void *
ch_alloc_aligned(size_t bytes)
{
    void *p;

    if (bytes > SIZE_MAX - CH_PAGE_BYTES)
        return NULL;
    /* aligned_alloc() wants a multiple of the alignment; a request of 0 still gets a page. */
    bytes = bytes == 0 ? CH_PAGE_BYTES : (size_t)ch_round_up(bytes, CH_PAGE_BYTES);
    p = aligned_alloc(CH_PAGE_BYTES, bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

void
ch_free_aligned(void *p)
{
    free(p);
}
#endif
