/* cat.c - create, load, destroy. See cat.h. */
#include "cat/cat_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"

int
cat_create(struct reg *reg, struct txns *txns, struct ver *ver, struct cat **out)
{
    struct cat *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "catalogue");
    c->reg = reg;
    c->txns = txns;
    c->ver = ver;
    atomic_init(&c->next_number, 1);
    rt_mutex_init(&c->sweep_lock, RT_RANK_SWEEP, 0);
    rt_mutex_init(&c->bulk_lock, RT_RANK_SWEEP, 1);
    *out = c;
    return 0;
}

void
cat_destroy(struct cat *c)
{
    struct bulk_note *n;

    if (c == NULL)
        return;
    while ((n = c->bulks) != NULL) {
        c->bulks = n->next;
        free(n);
    }
    rt_mutex_fini(&c->bulk_lock);
    rt_mutex_fini(&c->sweep_lock);
    free(c);
}

struct highest {
    uint64_t number;
};

static int
note_number(void *arg, const struct pending *p)
{
    struct highest *h = arg;

    if (p->kind == PENDING_VALUE)
        h->number = ch_max_u64(h->number, p->number);
    else if (p->kind == PENDING_BULK)
        h->number = ch_max_u64(h->number, p->number + CAT_BULK_NUMBERS - 1);
    return 0;
}

/* ---- prepared transactions that dropped trees ---- */

struct prepared {
    struct cat *c;
    struct txn *t;
};

/* A record that t sees and nobody else: it takes the tree away. What it has created nobody can have open. */
static int
drop_again(struct prepared *r, const struct pending *p)
{
    struct reg *reg = r->c->reg;
    struct reg_tree *tree = NULL;
    struct pending newest;
    int rc;

    if (p->kind != PENDING_TREE || p->txn != txn_id(r->t))
        return 0;
    rc = pending_get(r->c, PENDING_TREE, p->number, &newest);
    if (rc != COHORT_NOTFOUND)
        return rc; /* of its creation: the tree goes in any case, by nobody's decision */
    rc = reg_get(reg, (uint32_t)p->number, &tree);
    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_ECORRUPT, "pending: tree %" PRIu64 " does not exist", p->number);
    if (rc != 0)
        return rc;
    rc = reg_drop_begin(reg, tree, p->txn, txn_writes_into(r->t, tree));
    if (rc == 0) {
        rc = txn_note_dropped(r->t, tree);
        if (rc != 0)
            reg_drop_end(reg, tree, false);
    }
    reg_put(reg, tree);
    return rc;
}

static int
load_prepared(void *arg, struct txn *t)
{
    struct prepared r = {.c = arg, .t = t};
    struct txn_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct pending p;
    unsigned flags;
    int rc = txn_cursor_create(t, r.c->pending, &cur);

    if (rc == 0)
        rc = txn_cursor_seek(cur, BT_FIRST, key);
    while (rc == 0 && txn_cursor_entry(cur, &key, &value, &flags)) {
        rc = pending_unpack(key, value, &p);
        if (rc == 0)
            rc = drop_again(&r, &p);
        if (rc == 0)
            rc = txn_cursor_next(cur);
    }
    txn_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

int
cat_load(struct cat *c)
{
    struct highest h = {0};
    int rc;

    c->names = reg_internal_tree(c->reg, REG_NAMES);
    c->pending = reg_internal_tree(c->reg, REG_PENDING);
    c->blobs = reg_internal(c->reg, REG_BLOBS);
    rc = blob_last(c, &h.number);
    if (rc == 0)
        rc = pending_each(c, note_number, &h);
    if (rc == 0)
        atomic_store_explicit(&c->next_number, h.number + 1, memory_order_relaxed);
    return rc == 0 ? txns_recover_prepared(c->txns, load_prepared, c) : rc;
}

int
cat_group_end(struct txn *t, uint64_t sp, int rc)
{
    int rc2 = 0;

    if (rc != 0)
        rc2 = txn_rollback_to(t, sp);
    if (rc2 == 0)
        rc2 = txn_release(t, sp);
    if (rc2 == 0)
        return rc;
    txn_doom(t);
    return rc != 0 ? rc : rc2;
}
