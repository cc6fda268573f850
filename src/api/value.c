/* value.c - values in pieces, and bulk loads: arguments and lifetimes; the work is src/cat's. */
#include "api/api_internal.h"

#include <inttypes.h>
#include <stdlib.h>

COHORT_API int /* NOLINTNEXTLINE(readability-function-size): nine parameters, as in cohort.h */
cohort_txn_read(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                uint64_t offset, void *buf, size_t bytes, size_t *got, uint64_t *total)
{
    struct cat_part part = {.offset = offset, .buf = buf, .bytes = bytes};
    struct reg_tree *rt;
    int rc = api_check_txn("cohort_txn_read", t, tree, &rt);

    if (rc == 0)
        rc = api_check_key("cohort_txn_read", key, key_bytes);
    if (rc == 0 && ((buf == NULL && bytes > 0) || got == NULL))
        rc = CH_FAIL(COHORT_EINVAL, "cohort_txn_read: null argument: buffer or got");
    if (rc == 0)
        rc = cat_read(t->db->db->cat, t->t, rt, (struct bt_slice){key, key_bytes}, &part);
    if (rc != 0)
        return rc;
    *got = part.got;
    if (total != NULL)
        *total = part.total;
    return 0;
}

/* ---- writers ---- */

static void
unlink_writer(cohort_writer *w)
{
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        w->t->writers = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
}

void
api_end_writers(cohort_txn *t)
{
    for (cohort_writer *w = t->writers; w != NULL; w = w->next) {
        cat_writer_cancel(w->w);
        w->w = NULL;
        w->t = NULL;
    }
    t->writers = NULL;
}

COHORT_API int
cohort_writer_open(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                   cohort_writer **out)
{
    struct reg_tree *rt;
    cohort_writer *w;
    int rc = api_check_txn("cohort_writer_open", t, tree, &rt);

    if (rc == 0)
        rc = api_check_key("cohort_writer_open", key, key_bytes);
    if (rc == 0 && out == NULL)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_writer_open: null argument: writer");
    if (rc != 0)
        return rc;
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return CH_FAIL(COHORT_ENOMEM, "writer");
    rc = cat_writer_create(t->db->db->cat, t->t, rt, (struct bt_slice){key, key_bytes}, &w->w);
    if (rc != 0) {
        free(w);
        return rc;
    }
    w->t = t;
    w->bytes = key_bytes;
    w->next = t->writers;
    if (w->next != NULL)
        w->next->prev = w;
    t->writers = w;
    *out = w;
    return 0;
}

static int
check_writer(const char *what, const cohort_writer *w)
{
    if (w == NULL)
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no writer", what);
    return w->t != NULL ? 0 : CH_FAIL(COHORT_ETXN, "%s: the writer's transaction has ended", what);
}

COHORT_API int
cohort_writer_append(cohort_writer *w, const void *data, size_t bytes)
{
    int rc = check_writer("cohort_writer_append", w);

    if (rc == 0 && data == NULL && bytes > 0)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_writer_append: null argument: data");
    if (rc == 0)
        rc = cat_writer_append(w->w, data, bytes);
    if (rc == 0)
        w->bytes += bytes;
    return rc;
}

COHORT_API int
cohort_writer_finish(cohort_writer *w)
{
    int rc = check_writer("cohort_writer_finish", w);

    if (w == NULL)
        return rc;
    if (rc == 0) {
        unlink_writer(w);
        rc = cat_writer_finish(w->w);
        w->t->wrote = w->t->wrote || rc == 0;
        w->t->payload += rc == 0 ? w->bytes : 0;
    }
    free(w);
    return rc;
}

COHORT_API void
cohort_writer_cancel(cohort_writer *w)
{
    if (w == NULL)
        return;
    if (w->t != NULL) {
        unlink_writer(w);
        cat_writer_cancel(w->w);
    }
    free(w);
}

/* ---- bulk load ---- */

struct cohort_bulk {
    cohort_db *db;
    struct reg_tree *tree; /* a reference of our own */
    struct cat_bulk *b;
    uint64_t payload;
};

COHORT_API int
cohort_bulk_open(cohort_db *db, cohort_tree *tree, cohort_bulk **out)
{
    struct reg_tree *rt;
    cohort_bulk *b;
    int rc = api_check_tree("cohort_bulk_open", db, tree, &rt);

    if (rc == 0 && out == NULL)
        rc = CH_FAIL(COHORT_EINVAL, "cohort_bulk_open: null argument: bulk");
    if (rc != 0)
        return rc;
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "bulk load");
    rc = cat_bulk_create(db->db->cat, rt, &b->b);
    if (rc != 0) {
        free(b);
        return rc;
    }
    b->db = db;
    b->tree = rt;
    reg_ref(db->db->reg, rt);
    atomic_fetch_add_explicit(&db->handles, 1, memory_order_relaxed);
    *out = b;
    return 0;
}

COHORT_API int
cohort_bulk_put(cohort_bulk *b, const void *key, size_t key_bytes, const void *value,
                size_t value_bytes)
{
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_bulk_put: null argument: no bulk load");
    rc = api_check_entry("cohort_bulk_put", key, key_bytes, value, value_bytes);
    if (rc == 0)
        rc = cat_bulk_put(b->b, (struct bt_slice){key, key_bytes},
                          (struct bt_slice){value, value_bytes});
    if (rc == 0)
        b->payload += key_bytes + value_bytes;
    return rc;
}

static void
free_bulk(cohort_bulk *b)
{
    reg_put(b->db->db->reg, b->tree);
    atomic_fetch_sub_explicit(&b->db->handles, 1, memory_order_relaxed);
    free(b);
}

COHORT_API int
cohort_bulk_finish(cohort_bulk *b)
{
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_bulk_finish: null argument: no bulk load");
    rc = cat_bulk_finish(b->b, COHORT_DEFAULT);
    if (rc == 0) {
        api_count(b->db, 1, b->payload);
    }
    free_bulk(b);
    return rc;
}

COHORT_API void
cohort_bulk_abort(cohort_bulk *b)
{
    if (b == NULL)
        return;
    cat_bulk_abort(b->b);
    free_bulk(b);
}
