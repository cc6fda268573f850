/* api_test_rig.c - see api_test_rig.h. */
#include "api/api_test_rig.h"

void
rig_set(struct zt *t, struct cohort_options *o, const char *name, const char *value)
{
    ZT_OK(t, cohort_options_set(o, name, value));
}

void
rig_options(struct zt *t, struct cohort_options *o, const char *preset)
{
    cohort_options_init(o);
    rig_set(t, o, "preset", preset);
    rig_set(t, o, "cache_bytes", "1M");
    rig_set(t, o, "zone_bytes", "128K");
    rig_set(t, o, "log_bytes", "512K");
    rig_set(t, o, "max_bytes", "64M");
    rig_set(t, o, "create", "yes");
    rig_set(t, o, "durability", "none");
}

cohort_db *
rig_open(struct zt *t, const char *dir)
{
    struct cohort_options o;
    cohort_db *db = NULL;

    rig_options(t, &o, "cohort");
    ZT_OK(t, cohort_open(dir != NULL ? dir : zt_tmpdir(t), &o, &db));
    return db;
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "check: %s\n", line);
}

void
rig_check(struct zt *t, cohort_db *db)
{
    struct cohort_check_result r;

    ZT_OK(t, cohort_check(db, print_finding, NULL, &r));
    ZT_CHECK(t, r.errors == 0);
}

void
rig_close(struct zt *t, cohort_db *db)
{
    rig_check(t, db);
    ZT_OK(t, cohort_close(db));
}

cohort_txn *
rig_begin_as(struct zt *t, cohort_db *db, bool read_only, enum cohort_isolation isolation)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;

    cohort_txn_options_init(&o);
    o.read_only = read_only;
    o.isolation = isolation;
    o.lock_timeout_ms = 0;
    ZT_OK(t, cohort_begin(db, &o, &txn));
    return txn;
}

cohort_txn *
rig_begin(struct zt *t, cohort_db *db)
{
    return rig_begin_as(t, db, false, COHORT_SNAPSHOT);
}

cohort_tree *
rig_tree(struct zt *t, cohort_db *db, const char *name)
{
    cohort_tree *tree = NULL;

    ZT_OK(t, cohort_tree_open(db, NULL, name, COHORT_TREE_CREATE, NULL, &tree));
    return tree;
}

void
rig_is(struct zt *t, cohort_db *db, cohort_txn *txn, cohort_tree *tree, const char *key,
       const char *value)
{
    struct cohort_value v = {0};
    int rc;

    if (txn != NULL)
        rc = cohort_txn_get(txn, tree, K(key), &v);
    else if (tree != NULL)
        rc = cohort_tree_get(tree, K(key), &v);
    else
        rc = cohort_get(db, K(key), &v);
    ZT_STATUS(t, rc, value == NULL ? COHORT_NOTFOUND : 0);
    if (value != NULL)
        ZT_CHECK(t, v.bytes == strlen(value) && memcmp(v.data, value, v.bytes) == 0);
    cohort_value_free(&v);
}

void
rig_at(struct zt *t, cohort_cursor *c, const char *key, const char *value)
{
    struct cohort_slice k, v;

    ZT_OK(t, cohort_cursor_entry(c, &k, &v));
    ZT_CHECK(t, k.bytes == strlen(key) && memcmp(k.data, key, k.bytes) == 0);
    ZT_CHECK(t, v.bytes == strlen(value) && memcmp(v.data, value, v.bytes) == 0);
}

void
rig_fill(uint64_t id, uint64_t offset, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t word = (id * 1000003 + (offset + i) / 8) * UINT64_C(0x9e3779b97f4a7c15);

        out[i] = (uint8_t)(word >> (56 - (offset + i) % 8 * 4));
    }
}
