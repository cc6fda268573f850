/* writer.c - writes a value piece by piece.
 *
 *   lock the key -> a number -> record in `pending`, an operation of its own -> pieces, as they come    (once it is large)
 *   record with the reference, deletion of that record in `pending`, one for the value replaced          (at the end)
 *
 * Invariants:
 *   V1  the pieces are in the log before the reference, and the record in `pending` before the pieces: so a commit that is
 *       durable has them, and without a commit they are freed (P2).
 *   V2  the three writes at the end count together or not at all (a savepoint).
 *
 * Memory: one piece.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "cat/cat_internal.h"

struct cat_writer {
    struct cat *c;
    struct txn *t;
    struct reg_tree *tree;
    enum bt_write_kind kind;
    int error;  /* of an append: what is there is not the value */
    bool again; /* value_write_inline() */
    bool large; /* it has a number, and perhaps pieces */
    uint64_t number;
    uint32_t pieces; /* written */
    uint64_t bytes;  /* appended */
    size_t have;     /* of them in `piece` */
    size_t key_bytes;
    uint8_t key[COHORT_KEY_MAX];
    uint8_t piece[CAT_PIECE];
};

static struct bt_slice
writer_key(const struct cat_writer *w)
{
    return (struct bt_slice){w->key, w->key_bytes};
}

int
cat_writer_create(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key,
                  struct cat_writer **out)
{
    struct cat_writer *w = calloc(1, sizeof(*w));

    CH_ASSERT(key.bytes <= COHORT_KEY_MAX);
    if (w == NULL)
        return CH_FAIL(COHORT_ENOMEM, "writer of a value");
    w->c = c;
    w->t = t;
    w->tree = tree;
    w->kind = BT_PUT;
    w->key_bytes = key.bytes;
    if (key.bytes > 0)
        memcpy(w->key, key.data, key.bytes);
    *out = w;
    return 0;
}

static void
copy_nothing(void *arg, const void *value, size_t bytes, unsigned flags)
{
    (void)arg;
    (void)value;
    (void)bytes;
    (void)flags;
}

/* What would be refused at the end is refused before a long value is written. */
static int
refuse_early(struct cat_writer *w)
{
    struct bt_op op = {.kind = BT_LOCK, .key = writer_key(w)};
    struct bt_done done;
    int rc = txn_write(w->t, w->tree, &op, &done);

    if (rc == COHORT_CONFLICT && done.owner.id == 0)
        w->again = true;
    if (rc != 0 || w->kind == BT_PUT)
        return rc;
    rc = txn_get(w->t, w->tree, op.key, copy_nothing, NULL);
    if (w->kind == BT_INSERT)
        return rc == 0 ? COHORT_EXISTS : rc == COHORT_NOTFOUND ? 0 : rc;
    return rc;
}

static int
become_large(struct cat_writer *w)
{
    struct pending p = {.kind = PENDING_VALUE, .txn = txn_id(w->t)};
    int rc = refuse_early(w);

    if (rc == 0)
        rc = reg_note_large(w->c->reg, w->tree);
    if (rc != 0)
        return rc;
    p.number = atomic_fetch_add_explicit(&w->c->next_number, 1, memory_order_relaxed);
    rc = pending_put_alone(w->c, &p);
    if (rc != 0)
        return rc;
    w->number = p.number;
    w->large = true;
    return 0;
}

static int
write_piece(struct cat_writer *w, const void *data, size_t bytes)
{
    int rc = w->large ? 0 : become_large(w);

    rt_point();
    if (rc == 0)
        rc = blob_write(w->c, w->number, w->pieces, data, bytes);
    if (rc == 0)
        w->pieces++;
    return rc;
}

int
cat_writer_append(struct cat_writer *w, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t n;

    if (w->error != 0)
        return w->error;
    if (bytes > COHORT_VALUE_MAX - w->bytes)
        return CH_FAIL(COHORT_EVALSIZE, "value of %" PRIu64 " bytes", w->bytes + bytes);
    w->bytes += bytes;
    while (bytes > 0 && w->error == 0) {
        if (w->have == CAT_PIECE) {
            w->error = write_piece(w, w->piece, CAT_PIECE);
            w->have = 0;
        } else if (w->have == 0 && bytes > CAT_PIECE) {
            w->error = write_piece(w, p, CAT_PIECE);
            p += CAT_PIECE;
            bytes -= CAT_PIECE;
        } else {
            n = ch_min_u64(bytes, CAT_PIECE - w->have);
            memcpy(w->piece + w->have, p, n);
            w->have += n;
            p += n;
            bytes -= n;
        }
    }
    return w->error;
}

/* V2 */
static int
write_reference(struct cat_writer *w)
{
    struct blob_ref ref = {w->number, w->bytes};
    uint8_t value[CAT_REF_BYTES];
    struct bt_op op = {
        .kind = w->kind, .flags = BT_REF, .key = writer_key(w), .value = {value, sizeof(value)}};
    struct bt_done done;
    uint64_t sp;
    int rc = txn_savepoint(w->t, &sp);

    if (rc != 0)
        return rc;
    blob_ref_pack(&ref, value);
    rc = txn_write(w->t, w->tree, &op, &done);
    if (rc == 0)
        rc = value_replaced(w->c, w->t, &done);
    if (rc == 0)
        rc = pending_del(w->c, w->t, PENDING_VALUE, w->number);
    return cat_group_end(w->t, sp, rc);
}

static int
finish(struct cat_writer *w)
{
    struct bt_op op = {.kind = w->kind, .key = writer_key(w), .value = {w->piece, w->have}};
    int rc = w->error;

    if (rc != 0)
        return rc;
    if (!w->large && w->have <= COHORT_ENTRY_MAX - w->key_bytes)
        return value_write_inline(w->c, w->t, w->tree, &op, &w->again);
    if (w->have > 0)
        rc = write_piece(w, w->piece, w->have);
    return rc == 0 ? write_reference(w) : rc;
}

int
cat_writer_finish(struct cat_writer *w)
{
    int rc = finish(w);

    if (rc != 0)
        cat_writer_cancel(w);
    else
        free(w);
    return rc;
}

void
cat_writer_cancel(struct cat_writer *w)
{
    if (w == NULL)
        return;
    if (w->large)
        blob_discard(w->c, w->number);
    free(w);
}

int
value_write_large(struct cat *c, struct txn *t, struct reg_tree *tree, const struct bt_op *op,
                  bool *again)
{
    struct cat_writer *w = NULL;
    int rc = cat_writer_create(c, t, tree, op->key, &w);

    if (rc != 0)
        return rc;
    w->kind = op->kind;
    rc = cat_writer_append(w, op->value.data, op->value.bytes);
    if (rc == 0)
        rc = finish(w);
    *again |= (rc == COHORT_CONFLICT && w->again) || rc == COHORT_SNAPSHOT_TOO_OLD;
    if (rc != 0)
        cat_writer_cancel(w);
    else
        free(w);
    return rc;
}
