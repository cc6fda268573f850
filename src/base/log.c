/* log.c - the log sink of the process. See log.h.
 *
 * Locking: none. The sink is set before a database is opened and only read afterwards.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    LOG_TEXT_BYTES = 512 /* longer messages are cut */
};

static cohort_log_fn *sink;
static void *sink_arg;

void
ch_log_set(cohort_log_fn *fn, void *arg)
{
    sink = fn;
    sink_arg = arg;
}

void
ch_log(enum cohort_log_level level, const char *fmt, ...)
{
    char text[LOG_TEXT_BYTES];
    int saved = errno;
    va_list ap;

    if (sink == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    sink(sink_arg, level, text);
    errno = saved; /* a sink that writes must not spoil the errno of the error being handled */
}
