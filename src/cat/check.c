/* check.c - do names, `ids`, `pending` and `blobs` fit together? For cohort_check(), on an idle database.
 *
 *   a name            its tree is in `ids`; no other name has it
 *   a tree in `ids`   has a name or is pending
 *   a reference       to a value whose pieces are all there, and nobody else's; in a tree that is pending they may be gone
 *   a piece           belongs to a value that is referred to, or pending
 *
 * Memory: 24 bytes a large value, some a tree.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "cat/cat_internal.h"

struct item {
    uint64_t number; /* sorted by it */
    uint64_t extra;  /* a reference: bytes; a range: its end */
    bool pending;    /* in a tree that is pending */
    bool seen;
};
struct items {
    struct item *v;
    size_t count, room;
};

struct check {
    struct cat *c;
    void (*report)(void *arg, const char *line);
    void *arg;
    uint64_t findings;
    struct items names;  /* ids that have one */
    struct items trees;  /* pending ones */
    struct items values; /* pending ones, [number, extra) */
    struct items ids;    /* of `ids`, users' */
    struct items refs;
    bool tree_pending; /* that of the walk */
    /* The value whose pieces are being passed: */
    uint64_t number, bytes;
    uint32_t pieces;
    bool last_full; /* its pieces so far are full */
};

static void
finding(struct check *k, const char *what, uint64_t number)
{
    char line[128];

    k->findings++;
    if (k->report == NULL)
        return;
    (void)snprintf(line, sizeof(line), "%s %" PRIu64, what, number);
    k->report(k->arg, line);
}

static int
items_add(struct items *a, struct item item)
{
    size_t room = a->room == 0 ? 64 : a->room * 2;
    struct item *v;

    if (a->count == a->room) {
        v = realloc(a->v, room * sizeof(*v));
        if (v == NULL)
            return CH_FAIL(COHORT_ENOMEM, "check: %zu items", room);
        a->v = v;
        a->room = room;
    }
    a->v[a->count++] = item;
    return 0;
}

static int
item_compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static void
items_sort(struct items *a)
{
    if (a->count > 1)
        qsort(a->v, a->count, sizeof(*a->v), item_compare);
}

/* The last item whose number is at most that; NULL: none. */
static struct item *
items_below(const struct items *a, uint64_t number)
{
    size_t lo = 0, hi = a->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (a->v[mid].number <= number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo == 0 ? NULL : &a->v[lo - 1];
}

static struct item *
items_find(const struct items *a, uint64_t number)
{
    struct item *i = items_below(a, number);

    return i != NULL && i->number == number ? i : NULL;
}

/* ---- gathering ---- */

static int
gather_pending(void *arg, const struct pending *p)
{
    struct check *k = arg;

    if (p->kind == PENDING_TREE)
        return items_add(&k->trees, (struct item){.number = p->number});
    return items_add(
        &k->values,
        (struct item){.number = p->number,
                      .extra = p->number + (p->kind == PENDING_BULK ? CAT_BULK_NUMBERS : 1)});
}

static int
gather_names(struct check *k)
{
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    unsigned flags;
    int rc = bt_cursor_create(&k->c->names->bt, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_FIRST, key);
    while (rc == 0 && bt_entry(cur, &key, &value, &flags)) {
        if (value.bytes != 4)
            finding(k, "name of a tree: its value has bytes:", value.bytes);
        else
            rc = items_add(&k->names, (struct item){.number = ch_get32(value.data)});
        if (rc == 0)
            rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
gather_id(void *arg, uint32_t id, page_id root)
{
    struct check *k = arg;

    (void)root;
    return id < REG_USER ? 0 : items_add(&k->ids, (struct item){.number = id});
}

static int
gather_refs(struct check *k, uint32_t id)
{
    struct reg_tree *tree = NULL;
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct blob_ref ref;
    unsigned flags = 0;
    int rc = reg_get(k->c->reg, id, &tree);

    if (rc != 0)
        return rc;
    if (!atomic_load_explicit(&tree->large, memory_order_acquire))
        goto out;
    rc = bt_cursor_create(&tree->bt, &cur);
    if (rc == 0)
        rc = bt_seek(cur, BT_FIRST, key);
    while (rc == 0 && bt_entry(cur, &key, &value, &flags)) {
        if ((flags & BT_REF) != 0 && blob_ref_unpack(value, &ref) != 0)
            finding(k, "a malformed reference in tree", id);
        else if ((flags & BT_REF) != 0)
            rc = items_add(&k->refs, (struct item){.number = ref.number,
                                                   .extra = ref.bytes,
                                                   .pending = k->tree_pending});
        if (rc == 0)
            rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    rc = rc == COHORT_NOTFOUND ? 0 : rc;
out:
    reg_put(k->c->reg, tree);
    return rc;
}

static int
gather(struct check *k)
{
    int rc = pending_each(k->c, gather_pending, k);

    if (rc == 0)
        rc = gather_names(k);
    if (rc == 0)
        rc = reg_each(k->c->reg, gather_id, k);
    items_sort(&k->trees);
    items_sort(&k->values);
    items_sort(&k->names);
    items_sort(&k->ids);
    if (rc == 0)
        rc = gather_refs(k, REG_MAIN);
    for (size_t i = 0; rc == 0 && i < k->ids.count; i++) {
        k->tree_pending = items_find(&k->trees, k->ids.v[i].number) != NULL;
        rc = gather_refs(k, (uint32_t)k->ids.v[i].number);
    }
    items_sort(&k->refs);
    return rc;
}

/* ---- comparing ---- */

static void
compare_trees(struct check *k)
{
    const struct items *names = &k->names;

    for (size_t i = 0; i < names->count; i++) {
        if (i > 0 && names->v[i - 1].number == names->v[i].number)
            finding(k, "two names stand for tree", names->v[i].number);
        if (items_find(&k->ids, names->v[i].number) == NULL)
            finding(k, "a name stands for a tree that does not exist:", names->v[i].number);
        if (items_find(&k->trees, names->v[i].number) != NULL)
            finding(k, "a tree with a name is to be freed:", names->v[i].number);
    }
    for (size_t i = 0; i < k->ids.count; i++)
        if (items_find(names, k->ids.v[i].number) == NULL &&
            items_find(&k->trees, k->ids.v[i].number) == NULL)
            finding(k, "no name stands for tree", k->ids.v[i].number);
}

/* All pieces of one value have been passed. */
static void
value_end(struct check *k)
{
    struct item *ref, *range;

    if (k->pieces == 0)
        return;
    ref = items_find(&k->refs, k->number);
    range = items_below(&k->values, k->number);
    if (range != NULL && k->number >= range->extra)
        range = NULL;
    if (ref != NULL && !ref->pending && range != NULL && range->extra == range->number + 1)
        finding(k, "a large value in use is to be freed:", k->number);
    if (ref != NULL) {
        ref->seen = true;
        if (!ref->pending && ref->extra != k->bytes)
            finding(k, "pieces are missing, or too many, of large value", k->number);
    } else if (range == NULL) {
        finding(k, "nothing refers to large value", k->number);
    }
}

static int
pass_piece(void *arg, uint64_t number, uint32_t piece, size_t bytes)
{
    struct check *k = arg;
    struct item *ref = items_find(&k->refs, number);
    bool matters = ref != NULL && !ref->pending;

    if (number != k->number) {
        value_end(k);
        k->number = number;
        k->bytes = k->pieces = 0;
        k->last_full = true;
    }
    if (matters && (piece != k->pieces || !k->last_full))
        finding(k, "pieces are out of order in large value", number);
    k->last_full = bytes == CAT_PIECE;
    k->pieces++;
    k->bytes += bytes;
    return 0;
}

static int
compare_values(struct check *k)
{
    int rc = blob_each(k->c, pass_piece, k);

    value_end(k);
    for (size_t i = 0; rc == 0 && i < k->refs.count; i++) {
        const struct item *r = &k->refs.v[i];

        if (i > 0 && r[-1].number == r->number)
            finding(k, "two references to large value", r->number);
        else if (!r->seen && !r->pending)
            finding(k, "no pieces of large value", r->number);
    }
    return rc;
}

int
cat_check(struct cat *c, void (*report)(void *arg, const char *line), void *arg,
          uint64_t *large_values, uint64_t *findings)
{
    struct check k = {.c = c, .report = report, .arg = arg};
    int rc = gather(&k);

    if (rc == 0) {
        compare_trees(&k);
        rc = compare_values(&k);
    }
    free(k.names.v);
    free(k.trees.v);
    free(k.values.v);
    free(k.ids.v);
    free(k.refs.v);
    *large_values = k.refs.count;
    *findings = k.findings;
    return rc;
}

/* ---- roots that `ids` does not know ---- */

struct roots {
    struct cat *c;
    int (*visit)(void *arg, uint32_t tree, page_id root);
    void *arg;
};

static int
visit_root(void *arg, const struct pending *p)
{
    struct roots *r = arg;
    struct reg_tree *tree;
    uint32_t id = p->kind == PENDING_BULK ? p->tree : (uint32_t)p->number;
    bool there = false;
    int rc;

    if (p->kind == PENDING_VALUE)
        return 0;
    if (p->kind == PENDING_TREE) {
        rc = reg_get(r->c->reg, id, &tree);
        if (rc == 0)
            reg_put(r->c->reg, tree);
        if (rc != COHORT_NOTFOUND)
            return rc;
    }
    rc = reg_is_root(r->c->reg, id, p->root, p->kind == PENDING_BULK, &there);
    return rc == 0 && there ? r->visit(r->arg, id, p->root) : rc;
}

int
cat_each_root(struct cat *c, int (*visit)(void *arg, uint32_t tree, page_id root), void *arg)
{
    struct roots r = {c, visit, arg};

    return pending_each(c, visit_root, &r);
}
