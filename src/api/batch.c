/* batch.c - cohort_batch: operations gathered in memory, written as one transaction.
 *
 * Operations lie in one arena, addressed by offset since it moves when it grows. Writing sorts an index by key, the later
 * operation on a key winning, and leaves the batch as it was. Locks are so taken in the order of keys: batches wait for each
 * other, and never in a ring.
 */
#include "api/api_internal.h"

#include <stdlib.h>

struct item {
    size_t off; /* of the key in the arena; the value follows */
    uint32_t key_bytes;
    uint32_t value_bytes;
    bool del;
};

struct cohort_batch {
    uint8_t *arena;
    size_t used, capacity;
    struct item *items;
    size_t count, items_capacity;
};

enum {
    BATCH_ARENA_MAX = 64 << 20
};

COHORT_API int
cohort_batch_create(cohort_batch **out)
{
    if (out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_batch_create: null argument");
    struct cohort_batch *b = calloc(1, sizeof(*b));

    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "batch");
    *out = b;
    return 0;
}

COHORT_API void
cohort_batch_destroy(cohort_batch *b)
{
    if (b == NULL)
        return;
    free(b->arena);
    free(b->items);
    free(b);
}

COHORT_API void
cohort_batch_clear(cohort_batch *b)
{
    if (b == NULL)
        return;
    b->used = 0;
    b->count = 0;
}

static int
grow(struct cohort_batch *b, size_t bytes)
{
    if (b->used + bytes > BATCH_ARENA_MAX)
        return CH_FAIL(COHORT_EBATCHSIZE, "batch beyond %d bytes", BATCH_ARENA_MAX);
    if (b->used + bytes > b->capacity || b->arena == NULL) {
        size_t cap = ch_max_u64(ch_max_u64(b->capacity * 2, b->used + bytes), 4096);
        uint8_t *p = realloc(b->arena, cap);

        if (p == NULL)
            return CH_FAIL(COHORT_ENOMEM, "batch of %zu bytes", cap);
        b->arena = p;
        b->capacity = cap;
    }
    if (b->count == b->items_capacity) {
        size_t cap = b->items_capacity == 0 ? 64 : b->items_capacity * 2;
        struct item *p = realloc(b->items, cap * sizeof(*p));

        if (p == NULL)
            return CH_FAIL(COHORT_ENOMEM, "batch of %zu operations", cap);
        b->items = p;
        b->items_capacity = cap;
    }
    return 0;
}

static int
add(cohort_batch *b, const char *what, bool del, struct bt_slice key, struct bt_slice value)
{
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_EINVAL, "%s: no batch", what);
    rc = api_check_entry(what, key.data, key.bytes, value.data, value.bytes);
    if (rc == 0)
        rc = grow(b, key.bytes + value.bytes + 1);
    if (rc != 0)
        return rc;
    if (key.bytes > 0)
        memcpy(b->arena + b->used, key.data, key.bytes);
    if (value.bytes > 0)
        memcpy(b->arena + b->used + key.bytes, value.data, value.bytes);
    b->items[b->count++] = (struct item){b->used, (uint32_t)key.bytes, (uint32_t)value.bytes, del};
    b->used +=
        key.bytes + value.bytes + 1; /* +1: every operation has an address of its own (compare) */
    return 0;
}

COHORT_API int
cohort_batch_put(cohort_batch *b, const void *key, size_t key_bytes, const void *value,
                 size_t value_bytes)
{
    return add(b, "cohort_batch_put", false, (struct bt_slice){key, key_bytes},
               (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_batch_del(cohort_batch *b, const void *key, size_t key_bytes)
{
    return add(b, "cohort_batch_del", true, (struct bt_slice){key, key_bytes},
               (struct bt_slice){0});
}

static int
compare(const void *x, const void *y)
{
    const struct bt_op *a = x;
    const struct bt_op *b = y;
    size_t n = a->key.bytes < b->key.bytes ? a->key.bytes : b->key.bytes;
    int c = n > 0 ? memcmp(a->key.data, b->key.data, n) : 0;

    if (c != 0)
        return c;
    if (a->key.bytes != b->key.bytes)
        return a->key.bytes < b->key.bytes ? -1 : 1;
    /* Same key: in order of arrival, which is the order in the arena. */
    return (const uint8_t *)a->value.data < (const uint8_t *)b->value.data   ? -1
           : (const uint8_t *)a->value.data > (const uint8_t *)b->value.data ? 1
                                                                             : 0;
}

/* Sorted and without overruled operations; returns how many. */
static size_t
sort_ops(struct bt_op *ops, size_t n)
{
    size_t kept = 0;

    qsort(ops, n, sizeof(*ops), compare);
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n || ops[i].key.bytes != ops[i + 1].key.bytes ||
                    (ops[i].key.bytes > 0 &&
                     memcmp(ops[i].key.data, ops[i + 1].key.data, ops[i].key.bytes) != 0);

        if (last)
            ops[kept++] = ops[i];
    }
    return kept;
}

static int
write_ops(cohort_db *db, const struct bt_op *ops, size_t n)
{
    cohort_txn *t = NULL;
    int rc = api_begin(db, false, &t);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = api_write(t, db->main, ops[i].kind, ops[i].key, ops[i].value);
        if (rc == COHORT_NOTFOUND && ops[i].kind == BT_DEL)
            rc = 0;
    }
    return api_end(t, rc);
}

COHORT_API int
cohort_write(cohort_db *db, cohort_batch *b)
{
    struct api_retry retry = {0};
    struct bt_op *ops = NULL;
    size_t n;
    int rc;

    if (db == NULL || b == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_write: null argument");
    if (b->count == 0)
        return 0;
    ops = malloc(b->count * sizeof(*ops));
    if (ops == NULL)
        return CH_FAIL(COHORT_ENOMEM, "batch of %zu operations", b->count);
    for (size_t i = 0; i < b->count; i++) {
        const struct item *it = &b->items[i];
        const uint8_t *key = b->arena + it->off;

        ops[i] = (struct bt_op){.kind = it->del ? BT_DEL : BT_PUT,
                                .key = {key, it->key_bytes},
                                .value = {key + it->key_bytes, it->value_bytes}};
    }
    n = sort_ops(ops, b->count);
    do
        rc = write_ops(db, ops, n);
    while (api_again(&retry, db, rc));
    free(ops);
    return rc;
}
