/* tpcc_store.c - the engines by name. */
#include <stdatomic.h>

#include "bench/tpcc_store.h"

int
tpcc_store_find(const char *name, const struct tpcc_store_ops **ops)
{
    const struct {
        const char *name;
        const struct tpcc_store_ops *ops;
    } known[] = {
        {"cohort", &tpcc_cohort_ops},
        {"lmdb", tpcc_lmdb_ops()},
        {"wiredtiger", tpcc_wiredtiger_ops()},
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(known); i++) {
        if (strcmp(known[i].name, name) != 0)
            continue;
        if (known[i].ops == NULL)
            return CH_FAIL(COHORT_EUNSUPPORTED, "not built with %s (meson option bench_%s)", name,
                           name);
        *ops = known[i].ops;
        return 0;
    }
    return CH_FAIL(COHORT_EOPTION, "no engine '%s': cohort, lmdb, wiredtiger", name);
}

void
tpcc_store_loading(struct tpcc_store *s, bool on)
{
    atomic_store_explicit(&s->loading, on, memory_order_relaxed); /* threads start and end later */
    if (s->ops->loading != NULL)
        s->ops->loading(s, on);
}
