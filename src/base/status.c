/* status.c - error codes and the record of the last error.
 *
 * Invariants:
 *   E1  status.def and enum cohort_status agree (checked when this file is compiled).
 *   E2  a code is recorded where it is thrown, once; whoever passes it on leaves the record alone.
 *
 * Locking: none. The record is thread-local, so a thread sees its own last error only.
 * Crash: nothing here survives the process.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define COHORT_STATUS(name, value, class, text) \
    _Static_assert((int)(name) == (value), #name ": status.def and cohort.h disagree");
#include "base/status.def"
#undef COHORT_STATUS

static _Thread_local struct cohort_error last_error = {.file = ""};

const struct cohort_error *
ch_last_error(void)
{
    return &last_error;
}

const char *
ch_strerror(int code)
{
    switch (code) {
#define COHORT_STATUS(name, value, class, text) \
    case value:                                 \
        return text;
#include "base/status.def"
#undef COHORT_STATUS
    default:
        return "unknown error code";
    }
}

enum cohort_class
ch_class_of(int code)
{
    switch (code) {
#define COHORT_STATUS(name, value, class, text) \
    case value:                                 \
        return class;
#include "base/status.def"
#undef COHORT_STATUS
    default:
        return COHORT_CLASS_FAILED; /* what nobody knows is not retried and not ignored */
    }
}

int
ch_fail(int code, const char *file, int line, const char *fmt, ...)
{
    struct cohort_error *e = &last_error;
    int saved = errno;
    va_list ap;

    e->code = code;
    e->sys_errno = saved;
    e->file = file;
    e->line = line;
    va_start(ap, fmt);
    (void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    errno = saved;
    return code;
}

void
ch_assert_fail(const char *file, int line, const char *expr)
{
    (void)fprintf(stderr, "cohort: %s:%d: assertion failed: %s\n", file, line, expr);
    abort();
}
