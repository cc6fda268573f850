/* ops.c - reads and writes within a transaction. */
#include "api/api_internal.h"

#include <stdlib.h>

/* ---- reads ---- */

struct get_ctx {
    struct cohort_value *out;
    bool again; /* not copied: too small, or kept elsewhere */
};

static void
copy_value(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct get_ctx *g = arg;

    g->again = (flags & BT_REF) != 0 || bytes > g->out->capacity || g->out->data == NULL;
    if (g->again)
        return;
    if (bytes > 0)
        memcpy(g->out->data, value, bytes);
    g->out->bytes = bytes;
}

/* One copy, from the leaf into the caller's memory, when it fits; else the long way. */
static int
get(cohort_txn *t, struct reg_tree *tree, struct bt_slice key, struct cohort_value *out)
{
    struct get_ctx g = {.out = out};
    int rc = txn_get(t->t, tree, key, copy_value, &g);

    return CH_LIKELY(rc != 0 || !g.again) ? rc : cat_get(t->db->db->cat, t->t, tree, key, out);
}

static int
check_get(const char *what, const cohort_txn *t, const cohort_tree *tree, struct bt_slice key,
          const struct cohort_value *out, struct reg_tree **rt)
{
    int rc = api_check_txn(what, t, tree, rt);

    if (CH_LIKELY(rc == 0))
        rc = api_check_key(what, key.data, key.bytes);
    if (CH_UNLIKELY(rc == 0 && out == NULL))
        rc = CH_FAIL(COHORT_EINVAL, "%s: null argument: value", what);
    return rc;
}

COHORT_API int
cohort_txn_get(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
               struct cohort_value *out)
{
    struct bt_slice k = {key, key_bytes};
    struct reg_tree *rt;
    int rc = check_get("cohort_txn_get", t, tree, k, out, &rt);

    return CH_UNLIKELY(rc != 0) ? rc : get(t, rt, k, out);
}

COHORT_API int
cohort_txn_get_for_update(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                          struct cohort_value *out)
{
    struct bt_slice k = {key, key_bytes};
    const struct bt_op lock = {.kind = BT_LOCK, .key = k};
    struct bt_done done;
    struct reg_tree *rt;
    int rc = check_get("cohort_txn_get_for_update", t, tree, k, out, &rt);

    if (rc == 0)
        rc = txn_write(t->t, rt, &lock, &done);
    return rc != 0 ? rc : get(t, rt, k, out);
}

/* ---- writes ---- */

int
api_write(cohort_txn *t, struct reg_tree *tree, enum bt_write_kind kind, struct bt_slice key,
          struct bt_slice value)
{
    int rc = cat_write(t->db->db->cat, t->t, tree, kind, key, value);

    if (rc != 0)
        return rc;
    t->wrote = true;
    t->payload += key.bytes + value.bytes;
    return 0;
}

static int
write_in(const char *what, cohort_txn *t, const cohort_tree *tree, enum bt_write_kind kind,
         struct bt_slice key, struct bt_slice value)
{
    struct reg_tree *rt;
    int rc = api_check_txn(what, t, tree, &rt);

    if (rc == 0)
        rc = api_check_entry(what, key.data, key.bytes, value.data, value.bytes);
    return rc != 0 ? rc : api_write(t, rt, kind, key, value);
}

COHORT_API int
cohort_txn_put(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
               const void *value, size_t value_bytes)
{
    return write_in("cohort_txn_put", t, tree, BT_PUT, (struct bt_slice){key, key_bytes},
                    (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_txn_insert(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                  const void *value, size_t value_bytes)
{
    return write_in("cohort_txn_insert", t, tree, BT_INSERT, (struct bt_slice){key, key_bytes},
                    (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_txn_update(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                  const void *value, size_t value_bytes)
{
    return write_in("cohort_txn_update", t, tree, BT_UPDATE, (struct bt_slice){key, key_bytes},
                    (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_txn_del(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes)
{
    return write_in("cohort_txn_del", t, tree, BT_DEL, (struct bt_slice){key, key_bytes},
                    (struct bt_slice){0});
}

/* ---- ranges ---- */

enum {
    RANGE_BYTES = 64 * 1024 /* of keys gathered before they are deleted; more than one key has */
};

/* Is a < b? */
static bool
below(struct bt_slice a, struct bt_slice b)
{
    int c = memcmp(a.data != NULL ? a.data : "", b.data != NULL ? b.data : "",
                   ch_min_u64(a.bytes, b.bytes));

    return c != 0 ? c < 0 : a.bytes < b.bytes;
}

/* Gathers keys from the cursor's place on, each as {u16 bytes, key}, so that deleting them does not make the cursor read
 * its leaf again for each. The cursor ends behind what was gathered: *more, or not. */
static int
gather(struct txn_cursor *c, const struct cohort_slice *to, uint8_t *buf, size_t *used, bool *more)
{
    struct bt_slice key, value;
    unsigned flags;
    int rc = 0;

    *used = 0;
    *more = false;
    while (rc == 0) {
        if (!txn_cursor_entry(c, &key, &value, &flags) ||
            (to != NULL && !below(key, api_slice(to))))
            return 0;
        if (*used + 2 + key.bytes > RANGE_BYTES) {
            *more = true;
            return 0;
        }
        ch_put16(buf + *used, (uint16_t)key.bytes);
        memcpy(buf + *used + 2, key.data, key.bytes);
        *used += 2 + key.bytes;
        rc = txn_cursor_next(c);
    }
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
delete_gathered(cohort_txn *t, struct reg_tree *tree, const uint8_t *buf, size_t used, uint64_t *n)
{
    int rc = 0;

    for (size_t at = 0; at < used && rc == 0; at += 2 + ch_get16(buf + at)) {
        rc = api_write(t, tree, BT_DEL, (struct bt_slice){buf + at + 2, ch_get16(buf + at)},
                       (struct bt_slice){0});
        *n += rc == 0;
    }
    return rc;
}

static int
del_range(cohort_txn *t, struct reg_tree *tree, const struct cohort_slice *from,
          const struct cohort_slice *to, uint64_t *n)
{
    struct txn_cursor *c = NULL;
    uint8_t *buf = malloc(RANGE_BYTES);
    size_t used;
    bool more = true;
    int rc;

    if (buf == NULL)
        return CH_FAIL(COHORT_ENOMEM, "keys of a range");
    rc = txn_cursor_create(t->t, tree, &c);
    if (rc == 0)
        rc = txn_cursor_seek(c, from != NULL ? BT_GE : BT_FIRST,
                             from != NULL ? api_slice(from) : (struct bt_slice){0});
    if (rc == COHORT_NOTFOUND) { /* nothing is there */
        rc = 0;
        more = false;
    }
    while (rc == 0 && more) {
        rc = gather(c, to, buf, &used, &more);
        if (rc == 0)
            rc = delete_gathered(t, tree, buf, used, n);
    }
    txn_cursor_destroy(c);
    free(buf);
    return rc;
}

COHORT_API int
cohort_txn_del_range(cohort_txn *t, cohort_tree *tree, const struct cohort_slice *from,
                     const struct cohort_slice *to, uint64_t *deleted)
{
    struct reg_tree *rt;
    uint64_t n = 0;
    int rc = api_check_txn("cohort_txn_del_range", t, tree, &rt);

    if (rc == 0)
        rc = api_check_range("cohort_txn_del_range", from, to);
    if (rc == 0)
        rc = del_range(t, rt, from, to, &n);
    if (deleted != NULL)
        *deleted = n;
    return rc;
}

/* ---- estimates ---- */

COHORT_API int
cohort_estimate(cohort_db *db, cohort_tree *tree, const struct cohort_slice *from,
                const struct cohort_slice *to, uint64_t *count)
{
    struct bt_slice low, high;
    struct reg_tree *rt;
    cohort_txn *t = NULL;
    int rc = api_check_tree("cohort_estimate", db, tree, &rt);

    if (rc == 0)
        rc = api_check_range("cohort_estimate", from, to);
    if (rc == 0 && count == NULL)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_estimate: null argument: count");
    if (rc == 0)
        rc = api_begin(db, true, &t); /* as long as there is a view, no tree's pages go */
    if (rc != 0)
        return rc;
    if (from != NULL)
        low = api_slice(from);
    if (to != NULL)
        high = api_slice(to);
    rc = api_check_tree("cohort_estimate", db, tree, &rt);
    if (rc == 0)
        rc = bt_estimate(&rt->bt, from != NULL ? &low : NULL, to != NULL ? &high : NULL, count);
    return api_end(t, rc);
}
