/* status.h - the error record behind CH_FAIL() and cohort_last_error(). Thread-local. */
#ifndef CH_BASE_STATUS_H
#define CH_BASE_STATUS_H

#include "base/base.h"

/* The record of the last CH_FAIL() of this thread; valid until the next one. Never NULL. */
const struct cohort_error *ch_last_error(void);

/* Text and class of a code; a fixed string for unknown ones. */
const char *ch_strerror(int code);
enum cohort_class ch_class_of(int code);

#endif
