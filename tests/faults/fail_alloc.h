/* fail_alloc.h - malloc and its kin, counted, and failing on request: linked by --wrap, so that they stand between the
 * library's objects and libc. What libc and other shared libraries allocate for themselves is not seen. */
#ifndef CH_TESTS_FAULTS_FAIL_ALLOC_H
#define CH_TESTS_FAULTS_FAIL_ALLOC_H

#include "base/base.h"

/* The n-th allocation from now on fails (1-based; 0 = none), with `forever` all later ones too. The count restarts. */
void fail_alloc_arm(uint64_t n, bool forever);
/* None fails from now on. Returns how many there were since the last arm. */
uint64_t fail_alloc_disarm(void);
/* Allocated and not freed, now. */
int64_t fail_alloc_live(void);

#endif
