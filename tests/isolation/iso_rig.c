/* iso_rig.c - see iso_rig.h. */
#include "isolation/iso_rig.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- the database ---- */

void
iso_options(struct iso *w, const char *const *settings)
{
    static const char *const base[] = {
        "cache_bytes", "1M", "zone_bytes", "64K", "log_bytes", "512K", NULL,
    };

    cohort_options_init(&w->opts);
    for (const char *const *s = base; *s != NULL; s += 2)
        ZT_OK(w->t, cohort_options_set(&w->opts, s[0], s[1]));
    for (const char *const *s = settings; s != NULL && *s != NULL; s += 2)
        ZT_OK(w->t, cohort_options_set(&w->opts, s[0], s[1]));
}

static int
open_device(struct iso *w, const struct dev_fault_plan *plan, bool create)
{
    static const struct dev_fault_plan none = {0};
    struct dev *dev = NULL;
    int rc = dev_sim_open(w->drive, &dev);

    w->fault = NULL;
    if (rc != 0)
        return rc;
    rc = dev_fault_open(dev, plan != NULL ? plan : &none, &w->fault);
    if (rc != 0) {
        dev_close(dev);
        return rc;
    }
    rc = api_open_dev(w->fault, &w->opts, create, &w->db);
    if (rc != 0)
        w->fault = NULL; /* closed by the call */
    return rc;
}

void
iso_create(struct zt *t, struct iso *w, unsigned megabytes, const char *const *settings)
{
    char text[96];

    *w = (struct iso){.t = t};
    iso_options(w, settings);
    (void)snprintf(text, sizeof(text), "generic,bytes=%uM,superblock=256K,cache=volatile",
                   megabytes);
    ZT_OK(t, sim_drive_create(text, &w->drive));
    ZT_OK(t, open_device(w, NULL, true));
}

int
iso_try_open(struct iso *w, const struct dev_fault_plan *plan)
{
    return open_device(w, plan, false);
}

void
iso_open(struct iso *w)
{
    ZT_OK(w->t, open_device(w, NULL, false));
}

void
iso_crash(struct iso *w)
{
    api_kill(w->db);
    w->db = NULL;
    w->fault = NULL;
    sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
}

void
iso_crash_and_open(struct iso *w)
{
    iso_crash(w);
    iso_open(w);
}

void
iso_close_and_open(struct iso *w)
{
    ZT_OK(w->t, cohort_close(w->db));
    iso_open(w);
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "check: %s\n", line);
}

void
iso_check(struct iso *w)
{
    struct cohort_check_result r;

    ZT_OK(w->t, cohort_check(w->db, print_finding, NULL, &r));
    ZT_CHECK(w->t, r.errors == 0);
}

void
iso_destroy(struct iso *w)
{
    iso_check(w);
    ZT_OK(w->t, cohort_close(w->db));
    sim_drive_destroy(w->drive);
}

/* ---- transactions ---- */

cohort_txn *
iso_begin(struct iso *w, enum cohort_isolation level, int64_t lock_timeout_ms)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;

    cohort_txn_options_init(&o);
    o.isolation = level;
    o.lock_timeout_ms = lock_timeout_ms;
    ZT_OK(w->t, cohort_begin(w->db, &o, &txn));
    return txn;
}

cohort_txn *
iso_snapshot(struct iso *w)
{
    return iso_begin(w, COHORT_SNAPSHOT, 0);
}

void
iso_is(struct iso *w, cohort_txn *txn, cohort_tree *tree, const char *key, const char *value)
{
    struct cohort_value v = {0};
    int rc;

    if (txn != NULL)
        rc = cohort_txn_get(txn, tree, K(key), &v);
    else if (tree != NULL)
        rc = cohort_tree_get(tree, K(key), &v);
    else
        rc = cohort_get(w->db, K(key), &v);
    ZT_STATUS(w->t, rc, value == NULL ? COHORT_NOTFOUND : 0);
    if (value != NULL)
        ZT_CHECK(w->t, v.bytes == strlen(value) && memcmp(v.data, value, v.bytes) == 0);
    cohort_value_free(&v);
}

cohort_tree *
iso_tree(struct iso *w, const char *name)
{
    cohort_tree *tree = NULL;

    ZT_OK(w->t, cohort_tree_open(w->db, NULL, name, COHORT_TREE_CREATE, NULL, &tree));
    return tree;
}

void
iso_stats(struct iso *w, struct cohort_stats *s)
{
    *s = (struct cohort_stats){.struct_bytes = sizeof(*s)};
    ZT_OK(w->t, cohort_stats(w->db, s));
}

/* ---- numbers ---- */

static void
number_key(uint32_t n, uint8_t *key)
{
    for (int i = 0; i < 4; i++)
        key[i] = (uint8_t)(n >> (24 - 8 * i));
}

int
iso_put_number(cohort_txn *txn, cohort_tree *tree, uint32_t n, uint32_t version, size_t max)
{
    uint8_t key[4], value[ISO_VALUE_MAX];

    CH_ASSERT(max <= sizeof(value));
    number_key(n, key);
    return cohort_txn_put(txn, tree, key, sizeof(key), value, zt_value(n, version, max, value));
}

int
iso_version_of(uint32_t n, size_t max, const void *data, size_t bytes, uint32_t *version)
{
    uint8_t want[ISO_VALUE_MAX];
    uint32_t found;

    if (bytes < 8)
        return COHORT_ECORRUPT;
    found = ch_get32((const uint8_t *)data + 4);
    if (zt_value(n, found, max, want) != bytes || memcmp(want, data, bytes) != 0)
        return COHORT_ECORRUPT;
    *version = found;
    return 0;
}

int
iso_get_number(cohort_txn *txn, cohort_tree *tree, uint32_t n, size_t max, struct cohort_value *v,
               uint32_t *version)
{
    uint8_t key[4];
    int rc;

    number_key(n, key);
    rc = cohort_txn_get(txn, tree, key, sizeof(key), v);
    if (rc == COHORT_NOTFOUND) {
        *version = 0;
        return 0;
    }
    return rc != 0 ? rc : iso_version_of(n, max, v->data, v->bytes, version);
}

/* ---- other threads ---- */

static void
call_main(void *arg)
{
    struct iso_call *c = arg;

    c->fn(c);
    atomic_store_explicit(&c->done, true, memory_order_release);
}

void
iso_spawn(struct iso_call *c)
{
    atomic_store_explicit(&c->done, false, memory_order_relaxed);
    ZT_OK(c->w->t, rt_spawn(&c->thread, "call", call_main, c));
}

bool
iso_done(struct iso_call *c)
{
    return atomic_load_explicit(&c->done, memory_order_acquire);
}

void
iso_join(struct iso_call *c)
{
    rt_join(&c->thread);
}

void
iso_put_call(struct iso_call *c)
{
    c->rc = cohort_txn_put(c->txn, NULL, K(c->key), K("w"));
}

void
iso_await_waits(struct iso *w, uint64_t n)
{
    const uint64_t deadline = rt_now_ns() + UINT64_C(10000000000);
    struct cohort_stats s;

    for (;;) {
        iso_stats(w, &s);
        if (s.lock_waits >= n)
            return;
        ZT_CHECK(w->t, rt_now_ns() < deadline);
        rt_sleep_ns(200000);
    }
}
