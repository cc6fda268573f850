/* pending.c - the list of what is to be freed: its records, and writing them.
 *
 * Invariants:
 *   P1  a record has one writer at a time: what it names belongs to the transaction that makes it or takes it away. So none
 *       of its writes can conflict, and none looks at the writer's snapshot (txn.h).
 *   P2  the record of something new is in the log before the first thing that it names.
 */
#include "cat/cat_internal.h"

#include <inttypes.h>

#include "base/status.h"

static void
put_be64(uint8_t *out, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> (56 - 8 * i));
}

static uint64_t
get_be64(const uint8_t *p)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

struct bt_slice
pending_key(enum pending_kind kind, uint64_t number, uint8_t out[PENDING_KEY_BYTES])
{
    out[0] = (uint8_t)kind;
    put_be64(out + 1, number);
    return (struct bt_slice){out, PENDING_KEY_BYTES};
}

static struct bt_slice
pending_value(const struct pending *p, uint8_t out[PENDING_VALUE_BYTES])
{
    ch_put64(out, p->txn);
    ch_put48(out + 8, p->root);
    out[14] = (uint8_t)p->state;
    out[15] = 0;
    ch_put32(out + 16, p->tree);
    return (struct bt_slice){out, PENDING_VALUE_BYTES};
}

int
pending_unpack(struct bt_slice key, struct bt_slice value, struct pending *out)
{
    const uint8_t *k = key.data, *v = value.data;

    if (key.bytes != PENDING_KEY_BYTES || value.bytes < PENDING_VALUE_BYTES ||
        k[0] < PENDING_TREE || k[0] > PENDING_BULK)
        return CH_FAIL(COHORT_ECORRUPT, "pending: a record of %zu and %zu bytes makes no sense",
                       key.bytes, value.bytes);
    *out = (struct pending){.kind = (enum pending_kind)k[0],
                            .number = get_be64(k + 1),
                            .txn = ch_get64(v),
                            .root = ch_get48(v + 8),
                            .state = v[14],
                            .tree = ch_get32(v + 16)};
    return 0;
}

/* ---- writes ---- */

int
pending_put(struct cat *c, struct txn *t, const struct pending *p)
{
    uint8_t key[PENDING_KEY_BYTES], value[PENDING_VALUE_BYTES];
    struct bt_op op = {.kind = BT_PUT,
                       .key = pending_key(p->kind, p->number, key),
                       .value = pending_value(p, value)};
    struct bt_done done;
    int rc = txn_write(t, c->pending, &op, &done);

    if (rc == COHORT_EFULL) {
        op.system = true;
        rc = txn_write(t, c->pending, &op, &done);
    }
    return rc;
}

int
pending_del(struct cat *c, struct txn *t, enum pending_kind kind, uint64_t number)
{
    uint8_t key[PENDING_KEY_BYTES];
    struct bt_op op = {.kind = BT_DEL, .key = pending_key(kind, number, key)};
    struct bt_done done;
    int rc = txn_write(t, c->pending, &op, &done);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_ECORRUPT, "pending: record %d %" PRIu64 " is missing", (int)kind,
                       number);
    return rc;
}

int
pending_put_alone(struct cat *c, const struct pending *p)
{
    uint8_t key[PENDING_KEY_BYTES], value[PENDING_VALUE_BYTES];
    struct bt_op op = {.kind = BT_PUT,
                       .key = pending_key(p->kind, p->number, key),
                       .value = pending_value(p, value)};
    struct bt_done done;
    int rc = txn_write_alone(c->txns, c->pending, &op, COHORT_DURABILITY_NONE, &done);

    if (rc == COHORT_EFULL && p->state == PENDING_QUIET) {
        op.system = true;
        rc = txn_write_alone(c->txns, c->pending, &op, COHORT_DURABILITY_NONE, &done);
    }
    return rc;
}

int
pending_del_alone(struct cat *c, enum pending_kind kind, uint64_t number)
{
    uint8_t key[PENDING_KEY_BYTES];
    struct bt_op op = {.kind = BT_DEL, .key = pending_key(kind, number, key)};
    struct bt_done done;
    int rc = txn_write_alone(c->txns, c->pending, &op, COHORT_DURABILITY_NONE, &done);

    return rc == COHORT_NOTFOUND ? 0 : rc;
}

/* ---- reads ---- */

struct copied {
    uint8_t data[PENDING_VALUE_BYTES];
    size_t bytes;
};

static void
copy_value(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct copied *v = arg;

    (void)flags;
    v->bytes = ch_min_u64(bytes, sizeof(v->data));
    if (v->bytes > 0)
        memcpy(v->data, value, v->bytes);
}

int
pending_get(struct cat *c, enum pending_kind kind, uint64_t number, struct pending *out)
{
    uint8_t key[PENDING_KEY_BYTES];
    struct bt_slice k = pending_key(kind, number, key);
    struct copied v = {.bytes = 0};
    int rc = bt_get(&c->pending->bt, NULL, k, copy_value, &v);

    return rc != 0 ? rc : pending_unpack(k, (struct bt_slice){v.data, v.bytes}, out);
}

int
pending_each(struct cat *c, int (*visit)(void *arg, const struct pending *p), void *arg)
{
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct pending p;
    unsigned flags;
    int rc = bt_cursor_create(&c->pending->bt, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_FIRST, key);
    while (rc == 0 && bt_entry(cur, &key, &value, &flags)) {
        rc = pending_unpack(key, value, &p);
        if (rc == 0)
            rc = visit(arg, &p);
        if (rc == 0)
            rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}
