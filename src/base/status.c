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

struct status {
    int code;
    enum cohort_class class;
    const char *text;
};

static const struct status statuses[] = {
#define COHORT_STATUS(name, value, class, text) {value, class, text},
#include "base/status.def"
#undef COHORT_STATUS
};

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

static const struct status *
status_find(int code)
{
    /* What nobody knows is not retried and not ignored. */
    static const struct status unknown = {0, COHORT_CLASS_FAILED, "unknown error code"};

    for (size_t i = 0; i < CH_ARRAY_LEN(statuses); i++) {
        if (statuses[i].code == code)
            return &statuses[i];
    }
    return &unknown;
}

const char *
ch_strerror(int code)
{
    return status_find(code)->text;
}

enum cohort_class
ch_class_of(int code)
{
    return status_find(code)->class;
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

/* ---- the public names; here so that every layer may use them ---- */

COHORT_API const char *
cohort_strerror(int code)
{
    return ch_strerror(code);
}

COHORT_API enum cohort_class
cohort_class_of(int code)
{
    return ch_class_of(code);
}

COHORT_API const struct cohort_error *
cohort_last_error(void)
{
    return ch_last_error();
}
