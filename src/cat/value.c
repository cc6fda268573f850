/* value.c - values of any size: reading them, and writes of one call.
 *
 *   inline   key and value have COHORT_ENTRY_MAX bytes at most: the value is in the leaf
 *   large    the leaf has a reference (flag BT_REF), the value is in `blobs`
 *
 * Reading a large value needs a snapshot, which keeps its pieces: a call without a transaction begins one when it meets a
 * reference. A snapshot that was given up (SNAPSHOT_TOO_OLD) shows when pieces are missing, and nowhere else before.
 *
 * Writing one needs a transaction likewise: the record and the records in `pending` change together.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "cat/cat_internal.h"

enum {
    MANY_MAX = 256, /* keys of one round of cat_get_many() */
    RETRIES = 200,  /* of an operation of its own, when others commit first */
    RETRY_NS_MAX = 1000000,
    VALUE_MIN = 64, /* smallest allocation */
};

int
value_reserve(struct cohort_value *v, size_t bytes)
{
    size_t n = bytes < VALUE_MIN ? VALUE_MIN : bytes;
    void *p;

    if (v->data != NULL && v->capacity >= bytes)
        return 0;
    p = realloc(v->data, n);
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "value of %zu bytes", n);
    v->data = p;
    v->capacity = n;
    return 0;
}

/* ---- own transactions ---- */

static int
begin(struct cat *c, bool read_only, struct txn **t)
{
    struct txn_options o = {
        .read_only = read_only, .durability = COHORT_DEFAULT, .lock_timeout_ms = COHORT_DEFAULT};

    return txn_begin(c->txns, &o, t);
}

/* `rc` is what counts, if it is an error. */
static int
end(struct txn *t, int rc)
{
    int rc2 = rc == 0 ? txn_commit(t, false, NULL) : txn_abort(t);

    return rc != 0 ? rc : rc2;
}

/* ---- get ---- */

struct got {
    struct cohort_value *out;
    bool grow; /* out has no room for `bytes` */
    bool ref;
    size_t bytes;
    uint8_t ref_data[BT_REF_MAX];
};

static void
copy_value(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct got *g = arg;

    g->bytes = bytes;
    g->ref = (flags & BT_REF) != 0;
    g->grow = !g->ref && (g->out->data == NULL || bytes > g->out->capacity);
    if (g->ref && bytes > sizeof(g->ref_data)) {
        g->bytes = 0; /* malformed */
    } else if (g->ref) {
        memcpy(g->ref_data, value, bytes);
    } else if (!g->grow) {
        if (bytes > 0)
            memcpy(g->out->data, value, bytes);
        g->out->bytes = bytes;
    }
}

/* The inline value is in g->out afterwards, a reference in g. */
static int
get_record(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key, struct got *g)
{
    int rc;

    do { /* another writer may make it longer meanwhile: ends at the largest entry */
        g->grow = false;
        if (t != NULL)
            rc = txn_get(t, tree, key, copy_value, g);
        else
            rc = txn_get_alone(c->txns, tree, key, copy_value, g);
        if (rc == 0 && g->grow)
            rc = value_reserve(g->out, g->bytes);
    } while (rc == 0 && g->grow);
    return rc;
}

static int
load(struct cat *c, struct bt_slice v, struct cohort_value *out)
{
    struct blob_ref ref;
    int rc = blob_ref_unpack(v, &ref);

    if (rc == 0)
        rc = value_reserve(out, ref.bytes);
    if (rc == 0)
        rc = blob_read(c, &ref, 0, out->data, ref.bytes);
    if (rc == 0)
        out->bytes = ref.bytes;
    return rc;
}

/* Pieces are missing for a transaction that saw the reference: its snapshot is dead, which the next read tells, or they are lost. */
static int
explain_missing(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key)
{
    struct cohort_value none = {0};
    struct got g = {.out = &none};
    int rc = get_record(c, t, tree, key, &g);

    free(none.data);
    return rc != 0 ? rc : CH_FAIL(COHORT_ECORRUPT, "large value: pieces are missing");
}

int
cat_get(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key,
        struct cohort_value *out)
{
    struct got g = {.out = out};
    struct txn *own = NULL;
    int rc = get_record(c, t, tree, key, &g);

    if (rc != 0 || !g.ref)
        return rc;
    if (t == NULL) {
        do {
            rc = begin(c, true, &own);
            if (rc == 0)
                rc = end(own, cat_get(c, own, tree, key, out));
        } while (rc == COHORT_SNAPSHOT_TOO_OLD);
        return rc;
    }
    rc = load(c, (struct bt_slice){g.ref_data, g.bytes}, out);
    return rc == COHORT_ERETRY ? explain_missing(c, t, tree, key) : rc;
}

int
cat_load_ref(struct cat *c, struct bt_slice ref, struct cohort_value *out)
{
    int rc = load(c, ref, out);

    if (rc == COHORT_ERETRY)
        return CH_FAIL(COHORT_SNAPSHOT_TOO_OLD, "large value: the snapshot it was seen in is gone");
    return rc;
}

uint64_t
cat_ref_bytes(struct bt_slice ref)
{
    return ref.bytes == CAT_REF_BYTES ? ch_get64((const uint8_t *)ref.data + 8) : 0;
}

/* ---- many ---- */

struct many {
    struct cohort_value *values;
    bool again[MANY_MAX]; /* too long for its memory, or a reference */
};

static void
copy_many(void *arg, size_t i, const void *value, size_t bytes, unsigned flags)
{
    struct many *m = arg;
    struct cohort_value *v = &m->values[i];

    m->again[i] = (flags & BT_REF) != 0 || v->data == NULL || bytes > v->capacity;
    if (m->again[i])
        return;
    if (bytes > 0)
        memcpy(v->data, value, bytes);
    v->bytes = bytes;
}

static int
get_round(struct cat *c, struct txn *t, struct reg_tree *tree, size_t n,
          const struct bt_slice *keys, struct many *m, int *rcs)
{
    int rc;

    memset(m->again, 0, sizeof(m->again));
    if (t != NULL)
        rc = txn_get_many(t, tree, n, keys, copy_many, m, rcs);
    else
        rc = txn_get_many_alone(c->txns, tree, n, keys, copy_many, m, rcs);
    if (rc != 0)
        return rc;
    /* Their leaves are in memory now. */
    for (size_t i = 0; i < n; i++)
        if (rcs[i] == 0 && m->again[i])
            rcs[i] = cat_get(c, t, tree, keys[i], &m->values[i]);
    return 0;
}

int
cat_get_many(struct cat *c, struct txn *t, struct reg_tree *tree, size_t n,
             const struct bt_slice *keys, struct cohort_value *values, int *rcs)
{
    struct many m;
    int rc = 0;

    for (size_t done = 0; rc == 0 && done < n; done += MANY_MAX) {
        m.values = values + done;
        rc = get_round(c, t, tree, ch_min_u64(n - done, MANY_MAX), keys + done, &m, rcs + done);
    }
    return rc;
}

/* ---- a part ---- */

struct read {
    struct cat_part *part;
    bool ref;
    size_t ref_bytes;
    uint8_t ref_data[BT_REF_MAX];
};

static void
copy_part(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct read *r = arg;
    struct cat_part *p = r->part;

    r->ref = (flags & BT_REF) != 0;
    p->got = 0;
    p->total = bytes;
    if (r->ref) {
        r->ref_bytes = bytes <= sizeof(r->ref_data) ? bytes : 0;
        memcpy(r->ref_data, value, r->ref_bytes);
    } else if (p->offset < bytes) {
        p->got = ch_min_u64(p->bytes, bytes - p->offset);
        if (p->got > 0)
            memcpy(p->buf, (const uint8_t *)value + p->offset, p->got);
    }
}

int
cat_read(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key,
         struct cat_part *part)
{
    struct read r = {.part = part};
    struct txn *own = NULL;
    struct blob_ref ref;
    int rc;

    if (t == NULL) {
        do {
            rc = begin(c, true, &own);
            if (rc == 0)
                rc = end(own, cat_read(c, own, tree, key, part));
        } while (rc == COHORT_SNAPSHOT_TOO_OLD);
        return rc;
    }
    rc = txn_get(t, tree, key, copy_part, &r);
    if (rc == 0 && r.ref)
        rc = blob_ref_unpack((struct bt_slice){r.ref_data, r.ref_bytes}, &ref);
    if (rc != 0 || !r.ref)
        return rc;
    part->total = ref.bytes;
    part->got = part->offset < ref.bytes ? ch_min_u64(part->bytes, ref.bytes - part->offset) : 0;
    if (part->got > 0)
        rc = blob_read(c, &ref, part->offset, part->buf, part->got);
    return rc == COHORT_ERETRY ? explain_missing(c, t, tree, key) : rc;
}

/* ---- write ---- */

int
value_replaced(struct cat *c, struct txn *t, const struct bt_done *done)
{
    struct pending p = {.kind = PENDING_VALUE, .txn = txn_id(t)};
    struct blob_ref ref;
    int rc;

    if (!done->had_ref)
        return 0;
    rc = blob_ref_unpack((struct bt_slice){done->old_ref, done->old_ref_bytes}, &ref);
    if (rc != 0)
        return rc;
    p.number = ref.number;
    return pending_put(c, t, &p);
}

int
value_write_inline(struct cat *c, struct txn *t, struct reg_tree *tree, const struct bt_op *op,
                   bool *again)
{
    struct bt_done done;
    int rc = txn_write(t, tree, op, &done);

    if (rc != 0) {
        *again |= (rc == COHORT_CONFLICT && done.owner.id == 0) || rc == COHORT_SNAPSHOT_TOO_OLD;
        return rc;
    }
    rc = value_replaced(c, t, &done);
    if (rc != 0)
        txn_doom(t); /* else its commit would lose the old value's space */
    return rc;
}

static bool
is_inline(const struct bt_op *op)
{
    return op->kind == BT_DEL || op->key.bytes + op->value.bytes <= COHORT_ENTRY_MAX;
}

static int
write_in(struct cat *c, struct txn *t, struct reg_tree *tree, const struct bt_op *op, bool *again)
{
    return is_inline(op) ? value_write_inline(c, t, tree, op, again)
                         : value_write_large(c, t, tree, op, again);
}

/* As a transaction of its own. It has no snapshot to keep: when somebody else commits first, or memory was short, it begins anew. */
static int
write_own(struct cat *c, struct reg_tree *tree, const struct bt_op *op)
{
    struct txn *t = NULL;
    uint64_t pause = 1000;
    bool again;
    int rc;

    for (unsigned i = 0;; i++) {
        again = false;
        rc = begin(c, false, &t);
        if (rc == 0)
            rc = end(t, write_in(c, t, tree, op, &again));
        again = again || rc == COHORT_SNAPSHOT_TOO_OLD;
        if (!again || i == RETRIES)
            return rc;
        rt_sleep_ns(pause);
        pause = ch_min_u64(pause * 2, RETRY_NS_MAX);
    }
}

int
cat_write(struct cat *c, struct txn *t, struct reg_tree *tree, enum bt_write_kind kind,
          struct bt_slice key, struct bt_slice value)
{
    struct bt_op op = {.kind = kind, .key = key, .value = value};
    struct bt_done done;
    bool again = false;
    int rc;

    CH_ASSERT(key.bytes <= COHORT_KEY_MAX);
    if (kind == BT_DEL)
        op.value = (struct bt_slice){NULL, 0};
    if (op.value.bytes > COHORT_VALUE_MAX)
        return CH_FAIL(COHORT_EVALSIZE, "value of %zu bytes", op.value.bytes);
    if (t != NULL)
        return write_in(c, t, tree, &op, &again);
    if (!is_inline(&op))
        return write_own(c, tree, &op);
    rc = txn_write_alone(c->txns, tree, &op, COHORT_DEFAULT, &done);
    return rc == COHORT_ERETRY ? write_own(c, tree, &op) : rc;
}
