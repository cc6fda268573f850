/* fail_alloc.c - see fail_alloc.h. Counters are relaxed: the tests that need exact ones have one thread. */
#include "faults/fail_alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void __real_free(void *p);
int __real_vasprintf(char **out, const char *format, va_list args);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_vasprintf(char **out, const char *format, va_list args) CH_PRINTF(2, 0);
int __wrap_asprintf(char **out, const char *format, ...) CH_PRINTF(2, 3);

static _Atomic uint64_t seen, fail_at;
static _Atomic bool fail_forever;
static _Atomic int64_t live;

void
fail_alloc_arm(uint64_t n, bool forever)
{
    atomic_store_explicit(&seen, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_forever, forever, memory_order_relaxed);
    atomic_store_explicit(&fail_at, n, memory_order_relaxed);
}

uint64_t
fail_alloc_disarm(void)
{
    atomic_store_explicit(&fail_at, 0, memory_order_relaxed);
    return atomic_load_explicit(&seen, memory_order_relaxed);
}

int64_t
fail_alloc_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

static bool
fails(void)
{
    uint64_t n = atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed) + 1;
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);

    return at != 0 &&
           (n == at || (n > at && atomic_load_explicit(&fail_forever, memory_order_relaxed)));
}

static void *
counted(void *p)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

void *
__wrap_malloc(size_t n)
{
    return fails() ? NULL : counted(__real_malloc(n));
}

void *
__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(n, size));
}

void *
__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    return p == NULL ? counted(__real_malloc(n)) : __real_realloc(p, n);
}

void *
__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : counted(__real_aligned_alloc(align, n));
}

int
__wrap_posix_memalign(void **p, size_t align, size_t n)
{
    int rc = fails() ? ENOMEM : __real_posix_memalign(p, align, n);

    if (rc == 0)
        (void)counted(*p);
    return rc;
}

void
__wrap_free(void *p)
{
    if (p != NULL)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    __real_free(p);
}

char *
__wrap_strndup(const char *s, size_t n)
{
    size_t bytes = strnlen(s, n);
    char *copy = __wrap_malloc(bytes + 1);

    if (copy != NULL) {
        memcpy(copy, s, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

char *
__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, SIZE_MAX);
}

int
__wrap_vasprintf(char **out, const char *format, va_list args)
{
    int n = fails() ? -1 : __real_vasprintf(out, format, args);

    if (n >= 0)
        (void)counted(*out);
    return n;
}

int
__wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = __wrap_vasprintf(out, format, args);
    va_end(args);
    return n;
}
