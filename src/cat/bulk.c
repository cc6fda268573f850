/* bulk.c - bulk load of an empty tree, large values included.
 *
 *   record in `pending` {tree, private root, first number}, an operation of its own -> private root formatted and logged ->
 *   pieces of large values, pages -> bt_bulk_finish(): one record makes them the tree's and frees the private root ->
 *   record in `pending` deleted
 *
 * Invariants:
 *   K1  the record comes first, in log order (P2).
 *   K2  the private root stands (flag in its header) from before the first piece until the record of the finish. So after a
 *       crash it tells whether pieces and pages are the tree's: what is left is freed if and only if it stands.
 *   K3  a record that could not be deleted after a finish is known to be `finished` for the rest of the run; no other load of
 *       that tree begins before it is gone, which could give its page's id to another private root.
 *   K4  its large values have numbers of their own, CAT_BULK_NUMBERS from the record's: they can be freed unseen.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "cat/cat_internal.h"

enum {
    WRITABLE_EVERY = 64 /* entries between two calls of txns_before_write() */
};

struct cat_bulk {
    struct cat *c;
    struct reg_tree *tree;
    struct bt_bulk *b;
    uint64_t number, next; /* first number, next one for a large value */
    unsigned puts;
};

/* ---- notes ---- */

enum bulk_state
bulk_state(struct cat *c, uint64_t number)
{
    enum bulk_state state = BULK_UNKNOWN;

    rt_lock(&c->bulk_lock);
    for (const struct bulk_note *n = c->bulks; n != NULL; n = n->next)
        if (n->number == number)
            state = n->finished ? BULK_FINISHED : BULK_ACTIVE;
    rt_unlock(&c->bulk_lock);
    return state;
}

void
bulk_forget(struct cat *c, uint64_t number)
{
    struct bulk_note **p = &c->bulks, *gone = NULL;

    rt_lock(&c->bulk_lock);
    while (*p != NULL && (*p)->number != number)
        p = &(*p)->next;
    if (*p != NULL) {
        gone = *p;
        *p = gone->next;
    }
    rt_unlock(&c->bulk_lock);
    free(gone);
}

static int
note_add(struct cat *c, uint64_t number, uint32_t tree)
{
    struct bulk_note *n = calloc(1, sizeof(*n));

    if (n == NULL)
        return CH_FAIL(COHORT_ENOMEM, "bulk load");
    n->number = number;
    n->tree = tree;
    rt_lock(&c->bulk_lock);
    n->next = c->bulks;
    c->bulks = n;
    rt_unlock(&c->bulk_lock);
    return 0;
}

static void
note_finished(struct cat *c, uint64_t number)
{
    rt_lock(&c->bulk_lock);
    for (struct bulk_note *n = c->bulks; n != NULL; n = n->next)
        if (n->number == number)
            n->finished = true;
    rt_unlock(&c->bulk_lock);
}

/* Records of loads of this tree that are finished go first (K3). */
static int
forget_finished(struct cat *c, uint32_t tree)
{
    uint64_t number;
    int rc = 0;

    do {
        number = 0;
        rt_lock(&c->bulk_lock);
        for (const struct bulk_note *n = c->bulks; n != NULL; n = n->next)
            if (n->tree == tree && n->finished)
                number = n->number;
        rt_unlock(&c->bulk_lock);
        if (number != 0)
            rc = pending_del_alone(c, PENDING_BULK, number);
        if (rc == 0 && number != 0)
            bulk_forget(c, number);
    } while (rc == 0 && number != 0);
    return rc;
}

/* ---- the load ---- */

static void
bulk_free(struct cat_bulk *b)
{
    bt_bulk_destroy(b->b);
    reg_writer_end(b->c->reg, b->tree);
    reg_put(b->c->reg, b->tree);
    free(b);
}

static int
start(struct cat_bulk *b)
{
    struct cat *c = b->c;
    struct pending p = {.kind = PENDING_BULK, .number = b->number, .tree = b->tree->id};
    int rc = txns_before_write(c->txns);

    if (rc == 0)
        rc = forget_finished(c, p.tree);
    if (rc == 0)
        rc = reg_new_page(c->reg, &p.root);
    if (rc == 0)
        rc = note_add(c, p.number, p.tree);
    if (rc != 0)
        return rc;
    rc = pending_put_alone(c, &p); /* K1 */
    rt_point();
    if (rc == 0)
        rc = bt_bulk_create_at(&b->tree->bt, p.root, &b->b); /* K2 */
    if (rc != 0)
        bulk_forget(c, p.number); /* the sweeper finds the record, if there is one, and no root */
    return rc;
}

int
cat_bulk_create(struct cat *c, struct reg_tree *tree, struct cat_bulk **out)
{
    struct cat_bulk *b = calloc(1, sizeof(*b));
    int rc;

    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "bulk load");
    rc = reg_writer_begin(c->reg, tree, 0);
    if (rc != 0) {
        free(b);
        return rc;
    }
    reg_ref(c->reg, tree);
    b->c = c;
    b->tree = tree;
    b->number = atomic_fetch_add_explicit(&c->next_number, CAT_BULK_NUMBERS, memory_order_relaxed);
    b->next = b->number;
    rc = start(b);
    if (rc != 0)
        bulk_free(b);
    else
        *out = b;
    return rc;
}

static int
put_large(struct cat_bulk *b, struct bt_slice key, struct bt_slice value)
{
    struct blob_ref ref = {b->next, value.bytes};
    uint8_t packed[CAT_REF_BYTES];
    uint64_t pieces = blob_pieces(value.bytes);
    int rc = reg_note_large(b->c->reg, b->tree);

    if (rc == 0 && b->next - b->number == CAT_BULK_NUMBERS)
        rc = CH_FAIL(COHORT_EFULL, "bulk load: too many large values");
    if (rc != 0)
        return rc;
    b->next++;
    for (uint64_t i = 0; rc == 0 && i < pieces; i++)
        rc = blob_write(b->c, ref.number, (uint32_t)i, (const uint8_t *)value.data + i * CAT_PIECE,
                        blob_piece_bytes(value.bytes, i));
    if (rc != 0)
        return rc;
    blob_ref_pack(&ref, packed);
    return bt_bulk_put(b->b, key, (struct bt_slice){packed, sizeof(packed)}, BT_REF);
}

int
cat_bulk_put(struct cat_bulk *b, struct bt_slice key, struct bt_slice value)
{
    int rc = 0;

    if (value.bytes > COHORT_VALUE_MAX)
        return CH_FAIL(COHORT_EVALSIZE, "value of %zu bytes", value.bytes);
    if (b->puts++ % WRITABLE_EVERY == 0)
        rc = txns_before_write(b->c->txns);
    if (rc != 0)
        return rc;
    if (key.bytes + value.bytes <= COHORT_ENTRY_MAX)
        return bt_bulk_put(b->b, key, value, 0);
    return put_large(b, key, value);
}

int
cat_bulk_finish(struct cat_bulk *b, int durability)
{
    struct cat *c = b->c;
    lsn_t lsn = 0;
    int rc = txns_before_write(c->txns);

    if (rc == 0)
        rc = bt_bulk_finish(b->b, txns_is_durable(c->txns, durability), &lsn);
    if (rc != 0) {
        cat_bulk_abort(b);
        return rc;
    }
    note_finished(c, b->number);
    rt_point();
    rc = txns_settle(c->txns, lsn, durability);
    /* If it can't be deleted now, the sweeper or the next load will try (K3). */
    if (pending_del_alone(c, PENDING_BULK, b->number) == 0)
        bulk_forget(c, b->number);
    bulk_free(b);
    return rc;
}

void
cat_bulk_abort(struct cat_bulk *b)
{
    if (b == NULL)
        return;
    bulk_forget(b->c, b->number);
    bulk_free(b);
}
