/* log.h - the log sink: notices, warnings and progress go to a caller's function (upward call 3).
 *
 * One sink per process is enough for an embedded library; default: nothing is printed.
 */
#ifndef CH_BASE_LOG_H
#define CH_BASE_LOG_H

#include "base/base.h"

/* Sets the sink; NULL silences. Not thread-safe against running databases. */
void ch_log_set(cohort_log_fn *fn, void *arg);
void ch_log(enum cohort_log_level level, const char *fmt, ...) CH_PRINTF(2, 3);

#endif
