/* nth.h - the steps that nth_test.c runs under faults.
 *
 * Each step uses a part of the API on keys and trees of its own, and is one unit: what it leaves is its state before, or all of
 * what it does. It may be called once in a database, and releases what it has opened whatever happens.
 */
#ifndef CH_TESTS_FAULTS_NTH_H
#define CH_TESTS_FAULTS_NTH_H

#include "isolation/iso_rig.h"

enum nth_state {
    NTH_OLD,
    NTH_NEW,
    NTH_MIXED /* neither: a defect */
};
struct nth_step {
    const char *name;
    int (*run)(cohort_db *db);
    /* What is there; no faults. NULL: the step changes nothing. */
    enum nth_state (*look)(struct iso *w);
};
extern const struct nth_step nth_steps[];
extern const unsigned nth_step_count;
/* Findings of the step "check": ids of pages that nobody uses, and all others. */
extern unsigned nth_check_lost, nth_check_other;
/* What the steps need to be there before, without faults. */
void nth_prepare_world(struct iso *w);

#endif
