/* bug.h - bugs planted on purpose, to see that the simulator finds them.
 *
 *     if (!CH_BUG(WAL_NO_FLUSH))
 *         rc = dev_flush(dev);
 *
 * CH_BUG(NAME) is false unless the library is built with -Dbugs=true (-DCOHORT_BUGS), and then true for
 * the one bug that ch_bug_select() chose. bug.def lists them. One bug a process, chosen before threads
 * start.
 */
#ifndef CH_BASE_BUG_H
#define CH_BASE_BUG_H

#include <stdio.h>

#include "base/base.h"

enum ch_bug {
    CH_BUG_NONE,
#define COHORT_BUG(name, rule, text) CH_BUG_##name,
#include "base/bug.def"
#undef COHORT_BUG
};

#ifdef COHORT_BUGS
extern enum ch_bug ch_bug_selected;
#define CH_BUG(name) ((bool)CH_UNLIKELY(ch_bug_selected == CH_BUG_##name))
#else
#define CH_BUG(name) false
#endif

/* False: no such bug, or none is built in. NULL: none from now on. */
bool ch_bug_select(const char *name);
/* A line for each: name, rule, text, separated by tabs. */
void ch_bug_list(FILE *out);

#endif
