/* many.c - many keys in one call. The keys go down in groups of at most MANY_MAX: more reads at once than a device's queue
 * takes gain nothing, and so nothing is allocated here. */
#include "api/api_internal.h"

enum {
    MANY_MAX = 256
};

static int
check_keys(size_t n, const struct cohort_slice *keys, const struct cohort_value *values,
           const int *rcs)
{
    if (n > 0 && (keys == NULL || values == NULL || rcs == NULL))
        return CH_FAIL(COHORT_EINVAL, "cohort_get_many: null argument");
    for (size_t i = 0; i < n; i++) {
        int rc = api_check_key("cohort_get_many", keys[i].data, keys[i].bytes);

        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
get_group(cohort_db *db, cohort_txn *t, struct reg_tree *tree, size_t n,
          const struct cohort_slice *keys, struct cohort_value *values, int *rcs)
{
    struct bt_slice k[MANY_MAX];
    int rc;

    for (size_t i = 0; i < n; i++)
        k[i] = api_slice(&keys[i]);
    rc = cat_get_many(db->db->cat, t != NULL ? t->t : NULL, tree, n, k, values, rcs);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (rcs[i] != 0 && rcs[i] != COHORT_NOTFOUND)
            rc = rcs[i];
    return rc;
}

COHORT_API int
cohort_get_many(cohort_db *db, cohort_txn *t, cohort_tree *tree, size_t n,
                const struct cohort_slice *keys, struct cohort_value *values, int *rcs)
{
    struct reg_tree *rt;
    size_t done = 0;
    int first = 0;
    int rc = t != NULL ? api_check_txn("cohort_get_many", t, tree, &rt)
                       : api_check_tree("cohort_get_many", db, tree, &rt);

    if (rc == 0)
        rc = check_keys(n, keys, values, rcs);
    if (rc != 0) {
        for (size_t i = 0; rcs != NULL && i < n; i++)
            rcs[i] = rc;
        return rc;
    }
    while (done < n) {
        size_t some = ch_min_u64(n - done, MANY_MAX);

        rc = get_group(t != NULL ? t->db : db, t, rt, some, keys + done, values + done, rcs + done);
        if (first == 0)
            first = rc;
        done += some;
    }
    return first;
}
