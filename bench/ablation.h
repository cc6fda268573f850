/* ablation.h - what `cohort bench ablation` and `cohort bench sweep` share. */
#ifndef CH_BENCH_ABLATION_H
#define CH_BENCH_ABLATION_H

#include "bench/bench.h"

struct ablation_point { /* of a sweep */
    char names[128], values[128];
    bool first; /* prints the heading */
};

/* Parses the words, runs all rows on all drives, prints: whole tables, or with `point` (NULL: none) a line a run. */
CH_NODISCARD int ablation_run(struct tool *t, int argc, char **argv,
                              const struct ablation_point *point);

#endif
