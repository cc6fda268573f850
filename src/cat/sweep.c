/* sweep.c - frees what is pending, one bounded step at a time (R13).
 *
 * A record may be acted upon when (ready()):
 *   W1  its transaction is not open. So nobody will write the record any more (P1), and what is read of it afterwards stays.
 *   W2  no version of it is left: every snapshot sees it, and the log has its commit.
 *   W3  it is there, read after W1 and W2 were found true.
 *
 * A tree takes one more turn. Between a drop's becoming visible and its handle's being marked somebody may begin to use the
 * handle with a snapshot that sees the drop. So the record is written anew (PENDING_QUIET) after W1, when the mark is set:
 * once no version of *that* is left, all snapshots that could be in the tree are gone. Then, in this order:
 *   values   the references in its leaves are followed, if it may have any
 *   ids      its record goes; so what `ids` names is whole always
 *   pages    from the root that the pending record names
 *
 * Every step may be repeated after a crash. The place of a tree's values is kept in memory only: then the walk begins anew.
 *
 * A bulk load's values go before its pages: as long as the private root stands the load was not finished (bulk.c).
 */
#include <inttypes.h>

#include "base/bug.h"
#include "base/status.h"
#include "cat/cat_internal.h"

enum {
    LOOK_MAX = 256, /* records of `pending` looked at in a step */
};

static int
ready(struct cat *c, struct pending *p, bool *yes)
{
    uint8_t key[PENDING_KEY_BYTES];
    struct bt_slice k = pending_key(p->kind, p->number, key);
    struct ver_key vk = {REG_PENDING, k.bytes, k.data};
    bool open = p->txn != 0 && txns_is_open(c->txns, p->txn);
    bool held;
    int rc;

    *yes = false;
    if (open && !CH_BUG(R13_SWEEP_OPEN)) /* W1 */
        return 0;
    if (p->kind == PENDING_BULK && bulk_state(c, p->number) == BULK_ACTIVE)
        return 0;
    rt_point();
    held = p->kind != PENDING_BULK && ver_has(c->ver, vk); /* a private root is in no snapshot */
    if (CH_BUG(R13_SWEEP_OPEN))
        held = false;
    if (held && !CH_BUG(R13_SWEEP_EARLY)) /* W2 */
        return 0;
    rc = pending_get(c, p->kind, p->number, p); /* W3 */
    *yes = rc == 0;
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

/* ---- the next record ---- */

/* *end: none behind it. */
static int
pick(struct cat *c, bool *end)
{
    struct sweep *s = &c->sweep;
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {s->at, s->any ? sizeof(s->at) : 0}, value;
    unsigned flags, n = 0;
    int rc = bt_cursor_create(&c->pending->bt, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_GE, key);
    for (; rc == 0 && !s->busy && n < LOOK_MAX; n++) {
        if (!bt_entry(cur, &key, &value, &flags)) {
            rc = CH_FAIL(COHORT_ECORRUPT, "pending: no entry where there was one");
            break;
        }
        if (!s->any || key.bytes != sizeof(s->at) || memcmp(key.data, s->at, sizeof(s->at)) != 0) {
            rc = pending_unpack(key, value, &s->now);
            if (rc != 0)
                break;
            memcpy(s->at, key.data, sizeof(s->at));
            s->any = true;
            rc = ready(c, &s->now, &s->busy);
        }
        if (rc == 0 && !s->busy)
            rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    *end = rc == COHORT_NOTFOUND;
    s->walked = s->walk_any = false;
    return *end ? 0 : rc;
}

/* ---- work ---- */

/* The record has served. */
static int
finished(struct cat *c)
{
    struct sweep *s = &c->sweep;
    int rc = pending_del_alone(c, s->now.kind, s->now.number);

    if (rc != 0)
        return rc;
    if (s->now.kind == PENDING_BULK)
        bulk_forget(c, s->now.number);
    s->busy = false;
    return 0;
}

/* Removes what the entry under the cursor refers to; *more: not yet all. */
static int
free_referenced(struct cat *c, struct bt_slice value, unsigned flags, uint64_t *pieces, bool *more)
{
    struct blob_ref ref;
    int rc;

    if ((flags & BT_REF) == 0)
        return 0;
    rc = blob_ref_unpack(value, &ref);
    if (rc == 0)
        rc = blob_remove(c, ref.number, ref.number + 1, CAT_SWEEP_PIECES, more);
    if (rc == 0)
        *pieces += blob_pieces(ref.bytes);
    return rc;
}

/* Some entries of the tree, whose newest versions are those that everybody saw last. */
static int
walk_some(struct cat *c, struct bt *bt)
{
    struct sweep *s = &c->sweep;
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {s->walk, s->walk_any ? s->walk_bytes : 0}, value;
    unsigned flags = 0, n = 0;
    uint64_t pieces = 0;
    bool more = false;
    int rc = bt_cursor_create(bt, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_GE, key);
    for (; rc == 0 && !more && bt_entry(cur, &key, &value, &flags); n++) {
        if (n == CAT_SWEEP_ENTRIES || pieces >= CAT_SWEEP_PIECES)
            break;
        rc = free_referenced(c, value, flags, &pieces, &more);
        if (rc == 0 && !more)
            rc = bt_next(cur);
    }
    if (rc == 0 && bt_entry(cur, &key, &value, &flags)) { /* here it goes on */
        memcpy(s->walk, key.data, key.bytes);
        s->walk_bytes = key.bytes;
        s->walk_any = true;
    }
    bt_cursor_destroy(cur);
    if (rc != COHORT_NOTFOUND)
        return rc;
    s->walked = true;
    return 0;
}

/* The large values of the tree; walked at last. */
static int
free_values(struct cat *c)
{
    struct sweep *s = &c->sweep;
    struct reg_tree *tree = NULL;
    int rc = reg_get(c->reg, (uint32_t)s->now.number, &tree);

    if (rc == COHORT_NOTFOUND) { /* it is past that, or never came to that */
        s->walked = true;
        return 0;
    }
    if (rc != 0)
        return rc;
    if (atomic_load_explicit(&tree->large, memory_order_acquire))
        rc = walk_some(c, &tree->bt);
    else
        s->walked = true;
    reg_put(c->reg, tree);
    return rc;
}

static int
free_tree(struct cat *c)
{
    struct sweep *s = &c->sweep;
    uint32_t id = (uint32_t)s->now.number;
    bool done = false;
    int rc;

    if (s->now.state != PENDING_QUIET) {
        s->now.state = PENDING_QUIET;
        s->busy = false;
        return pending_put_alone(c, &s->now);
    }
    if (!s->walked) {
        rc = free_values(c);
        if (rc == 0 && s->walked)
            rc = reg_forget(c->reg, id);
        return rc;
    }
    rc = reg_free_step(c->reg, id, s->now.root, false, CAT_SWEEP_PAGES, &done);
    return rc == 0 && done ? finished(c) : rc;
}

static int
free_bulk(struct cat *c)
{
    const struct pending *p = &c->sweep.now;
    bool more = false, done = true, there = false;
    int rc = 0;

    if (bulk_state(c, p->number) != BULK_FINISHED)
        rc = reg_is_root(c->reg, p->tree, p->root, true, &there);
    if (rc == 0 && there)
        rc = blob_remove(c, p->number, p->number + CAT_BULK_NUMBERS, CAT_SWEEP_PIECES, &more);
    if (rc == 0 && there && !more)
        rc = reg_free_step(c->reg, p->tree, p->root, true, CAT_SWEEP_PAGES, &done);
    return rc == 0 && !more && done ? finished(c) : rc;
}

static int
work(struct cat *c)
{
    const struct pending *p = &c->sweep.now;
    bool more = false;
    int rc = txns_before_write(c->txns);

    if (rc != 0)
        return rc;
    switch (p->kind) {
    case PENDING_TREE:
        return free_tree(c);
    case PENDING_BULK:
        return free_bulk(c);
    case PENDING_VALUE:
        break;
    }
    rc = blob_remove(c, p->number, p->number + 1, CAT_SWEEP_PIECES, &more);
    return rc == 0 && !more ? finished(c) : rc;
}

int
cat_sweep_step(struct cat *c, bool *did)
{
    struct sweep *s = &c->sweep;
    bool end = false;
    int rc = 0;

    *did = false;
    /* Somebody else is at it; or this thread, from a write of the step that it is in. */
    if (!rt_trylock(&c->sweep_lock))
        return 0;
    if (!s->busy)
        rc = pick(c, &end);
    if (rc == 0 && s->busy) {
        rc = work(c);
        s->changed = true;
    }
    *did = rc == 0 && (!end || s->changed);
    if (end)
        s->any = s->changed = false;
    if (rc != 0)
        s->busy = false; /* it comes up again in the next pass */
    rt_unlock(&c->sweep_lock);
    return rc;
}
