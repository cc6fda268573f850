/* base.h - what every file of Cohort may use: types, asserts, errors, small helpers.
 *
 * No I/O, no threads except the thread-local error record of status.c.
 */
#ifndef CH_BASE_BASE_H
#define CH_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cohort.h"

#define CH_NODISCARD    __attribute__((warn_unused_result))
#define CH_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Scalars with meaning. */
typedef uint64_t page_id; /* 48 bits; 0 = none */
typedef uint64_t lsn_t; /* byte position in the log; a record's LSN is the position just after it */
typedef uint32_t zone_id;

enum {
    CH_PAGE_BYTES = 4096, /* logical page, slot and device block */
    CH_SLOT_BYTES = 4096,
    CH_BATCH_MAX = 256, /* most pages in one store batch */
};

#define CH_PAGE_ID_MAX ((UINT64_C(1) << 48) - 1)
#define CH_LSN_MAX     UINT64_MAX
#define CH_ZONE_NONE   UINT32_MAX

/* Why a byte was written (DESIGN 1). Order is ABI of struct cohort_stats. */
enum ch_cause {
    CH_USER,  /* stored images of dirty pages */
    CH_DELTA, /* page deltas (reserved) */
    CH_PAD,   /* slot space lost to packing */
    CH_GC,    /* live images moved by garbage collection */
    CH_COMP,  /* NoWA compensation (reserved) */
    CH_DBLWR, /* double-write copies */
    CH_WAL,   /* the log, padding included */
    CH_META,  /* MAP records, checkpoints, root records */
    CH_CAUSES
};

/* Asserts stay on in release builds: for programmer errors and broken memory state only. */
void ch_assert_fail(const char *file, int line, const char *expr) __attribute__((noreturn, cold));
#define CH_ASSERT(e) ((e) ? (void)0 : ch_assert_fail(__FILE__, __LINE__, #e))

#define CH_LIKELY(e)   __builtin_expect(!!(e), 1)
#define CH_UNLIKELY(e) __builtin_expect(!!(e), 0)

#define ch_container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))
#define CH_ARRAY_LEN(a)                  (sizeof(a) / sizeof((a)[0]))

/* Records where and why an error was thrown (thread-local, see status.h) and yields the code:
 *     return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": checksum", pid);
 * errno is captured. A code is thrown at one place; callers just pass it on. */
#define CH_FAIL(code, ...)                                       \
    ({ /* the compiler sees which code it is: not 0, that is */  \
       const int ch_code_ = (code);                              \
       (void)ch_fail(ch_code_, __FILE__, __LINE__, __VA_ARGS__); \
       ch_code_;                                                 \
    })
int ch_fail(int code, const char *file, int line, const char *fmt, ...) CH_PRINTF(4, 5)
    __attribute__((cold));

static inline uint64_t
ch_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t
ch_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t
ch_clamp_u64(uint64_t v, uint64_t lo, uint64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static inline uint64_t
ch_div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static inline uint64_t
ch_round_up(uint64_t a, uint64_t b)
{
    return ch_div_up(a, b) * b;
}

/* Little-endian accessors; any alignment. */
static inline uint16_t
ch_get16(const void *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t
ch_get32(const void *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t
ch_get64(const void *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t
ch_get48(const void *p)
{
    return (uint64_t)ch_get32(p) | (uint64_t)ch_get16((const uint8_t *)p + 4) << 32;
}

static inline void
ch_put16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void
ch_put32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void
ch_put64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void
ch_put48(void *p, uint64_t v)
{
    ch_put32(p, (uint32_t)v);
    ch_put16((uint8_t *)p + 4, (uint16_t)(v >> 32));
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "on-disk accessors assume little-endian");

/* CRC-32C (Castagnoli) of `n` bytes; chains by passing the previous result as `seed`, 0 first. */
uint32_t ch_crc32c(uint32_t seed, const void *data, size_t n);

/* Aligned memory for I/O: CH_PAGE_BYTES alignment, zeroed; NULL when out of memory. Freed by
 * ch_free_aligned(). Pages take memory as they are first written, so that large tables may be allocated for their bound. */
void *ch_alloc_aligned(size_t bytes);
void ch_free_aligned(void *p);

#endif
