/* batch.c - many operations as one atomic change: one log record over several leaves.
 *
 *   prepare   leaf by leaf, holding one latch at a time: tries the operations out on a copy and
 *             splits where they don't fit; also reads the leaves in
 *   latch     all leaves left to right, exclusively; tries out again and builds the record.
 *             Something changed meanwhile: all latches are given back and it begins anew
 *   commit    one record, applied to all leaves, then all latches are given back
 *
 * Invariants:
 *   A1  the first leaf may be waited for; with a leaf held, leaves and inner pages are only tried:
 *       a structure change waits for leaves while it holds their parent (O1).
 *   A2  all leaves stay latched from before the record is appended until the last one is changed:
 *       no reader sees a part.
 *   A3  a split that a batch needs separates its own operations, so every split leaves less to do.
 *
 * Locks: `batch` (rank BATCH) over all of it; it guards batch_mem. Log room is reserved between
 * prepare and latch (T3).
 *
 * Crash: the record is in the log or it is not. Splits made for a batch that did not come leave
 * valid, maybe empty, leaves.
 */
#include <stdlib.h>

#include "btree/tree.h"

enum {
    TRIES = 32,        /* for one latch */
    BACKOFF_AFTER = 8, /* attempts */
    BACKOFF_NS = 20000,
    BACKOFF_MAX = 50, /* times BACKOFF_NS */
};

struct batch {
    struct bt *t;
    const struct bt_op *ops;
    size_t n;
    struct buf_ref *refs; /* the leaves; those that change come first */
    size_t *shrunk;       /* for each an operation on it if it lost bytes, else SIZE_MAX */
    size_t leaves, changed, leaves_max;
    uint8_t *record;
    size_t record_bytes;
    bool grows; /* has a PUT */
};

/* ---- non-waiting descent ---- */

static int
try_fix(struct bt *t, page_id pid, enum buf_mode mode, unsigned level, struct buf_ref *ref)
{
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_try_fix(t->buf, pid, mode, ref);

    for (unsigned i = 1; rc == COHORT_ERETRY && i < TRIES; i++) {
        rt_yield();
        rc = buf_try_fix(t->buf, pid, mode, ref);
    }
    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %llu of tree %u: no image", (unsigned long long)pid,
                       (unsigned)t->tree);
    if (rc != 0)
        return rc;
    rc = bt_node_verify(t, ref, level);
    if (rc != 0)
        buf_unfix(t->buf, ref);
    return rc;
}

/* The root: *level is what it was found at. A leaf is latched exclusively. */
static int
try_root(struct bt *t, struct buf_ref *ref, unsigned *level)
{
    int rc = buf_try_fix(t->buf, t->root, BUF_SHARED, ref);

    if (rc != 0)
        return rc;
    *level = page_level(ref->page);
    if (*level > 0)
        return 0;
    buf_unfix(t->buf, ref);
    rc = buf_try_fix(t->buf, t->root, BUF_EXCLUSIVE, ref);
    if (rc == 0 && page_level(ref->page) != 0) {
        buf_unfix(t->buf, ref);
        rc = COHORT_ERETRY;
    }
    return rc;
}

int
bt_leaf_try(struct bt *t, struct bt_slice key, struct bt_bounds *b, struct buf_ref *leaf)
{
    struct buf_ref up, down;
    unsigned level, i;
    int rc = try_root(t, &up, &level);

    if (rc != 0)
        return rc;
    b->has_lower = b->has_upper = false;
    rc = bt_node_verify(t, &up, level);
    while (rc == 0 && level > 0) {
        i = node_child_index(up.page, key, false);
        bt_bounds_narrow(b, up.page, i);
        level--;
        rc = try_fix(t, node_child(up.page, i), level == 0 ? BUF_EXCLUSIVE : BUF_SHARED, level,
                     &down);
        if (rc == 0) {
            buf_unfix(t->buf, &up);
            up = down;
        }
    }
    if (rc != 0)
        buf_unfix(t->buf, &up);
    else
        *leaf = up;
    return rc;
}

/* ---- trying out ---- */

/* Does the operations from *i on that belong to the leaf on its copy `page`, and adds them to the
 * record unless it is NULL. On return *i is the first operation that does not belong to it. ERETRY:
 * the one that does not fit. */
static int
leaf_ops(const struct batch *b, uint8_t *page, const struct bt_bounds *bounds, size_t *i,
         struct change *c, page_id pid)
{
    struct bt_slice upper = {bounds->upper, bounds->upper_bytes};
    bool opened = false, found, ok;

    for (; *i < b->n; (*i)++) {
        const struct bt_op *op = &b->ops[*i];
        unsigned at;

        if (bounds->has_upper && node_compare(op->key, upper) >= 0)
            break;
        at = node_search(page, op->key, &found);
        if (op->kind == BT_DEL && !found)
            continue;
        ok = op->kind == BT_DEL ? node_del(page, at) : node_put(page, op->key, op->value);
        if (!ok)
            return COHORT_ERETRY;
        if (c == NULL)
            continue;
        if (!opened)
            change_page(c, pid);
        opened = true;
        if (op->kind == BT_DEL)
            change_del(c, op->key);
        else
            change_put(c, op->key, op->value);
    }
    return 0;
}

static int
too_many_leaves(const struct batch *b)
{
    return CH_FAIL(COHORT_EBATCHSIZE, "batch of %zu operations: more than %zu leaves", b->n,
                   b->leaves_max);
}

static int
prepare(struct batch *b)
{
    _Alignas(8) uint8_t copy[CH_PAGE_BYTES];
    struct bt_bounds bounds = {0};
    struct buf_ref leaf;
    size_t i = 0, end, leaves = 0, value_bytes;
    int rc = 0;

    while (rc == 0 && i < b->n) {
        if (leaves == b->leaves_max)
            return too_many_leaves(b);
        rc = bt_leaf_fix(b->t, BT_AT, b->ops[i].key, BUF_SHARED, &bounds, &leaf);
        if (rc != 0)
            break;
        memcpy(copy, leaf.page, sizeof(copy));
        buf_unfix(b->t->buf, &leaf);
        end = i;
        rc = leaf_ops(b, copy, &bounds, &end, NULL, 0);
        if (rc == 0) {
            i = end;
            leaves++;
        } else if (rc == COHORT_ERETRY) {
            value_bytes = b->ops[end].kind == BT_DEL ? 0 : b->ops[end].value.bytes;
            rc = bt_split(b->t, b->ops[end].key, value_bytes,
                          end > i ? &b->ops[end - 1].key : NULL); /* A3 */
        }
    }
    return rc;
}

/* ---- latching ---- */

static void
unlatch(struct batch *b)
{
    while (b->leaves > 0)
        buf_unfix(b->t->buf, &b->refs[--b->leaves]);
    b->changed = 0;
}

/* Keeps the leaf that was latched last; leaves that change stand before the others, in order. */
static void
keep_leaf(struct batch *b, const struct buf_ref *leaf, size_t shrunk, bool changed)
{
    size_t at = b->leaves++;

    if (changed) {
        b->refs[at] = b->refs[b->changed];
        b->shrunk[at] = b->shrunk[b->changed];
        at = b->changed++;
    }
    b->refs[at] = *leaf;
    b->shrunk[at] = shrunk;
}

static int
latch_all(struct batch *b, struct change *c)
{
    _Alignas(8) uint8_t copy[CH_PAGE_BYTES];
    struct bt_bounds bounds = {0};
    struct buf_ref leaf;
    size_t i = 0, first, before;
    int rc = 0;

    b->leaves = b->changed = 0;
    change_begin(c, b->record, b->record_bytes);
    while (rc == 0 && i < b->n) {
        if (b->leaves == b->leaves_max) {
            rc = too_many_leaves(b);
            break;
        }
        if (i == 0)
            rc = bt_leaf_fix(b->t, BT_AT, b->ops[i].key, BUF_EXCLUSIVE, &bounds, &leaf); /* A1 */
        else
            rc = bt_leaf_try(b->t, b->ops[i].key, &bounds, &leaf);
        if (rc != 0)
            break;
        memcpy(copy, leaf.page, sizeof(copy));
        first = i;
        before = c->bytes;
        rc = leaf_ops(b, copy, &bounds, &i, c, leaf.pid);
        keep_leaf(b, &leaf, node_used(copy) < node_used(leaf.page) ? first : SIZE_MAX,
                  c->bytes > before);
    }
    if (rc != 0)
        unlatch(b);
    return rc;
}

static void
merge_small(struct batch *b, size_t leaves)
{
    for (size_t k = 0; k < leaves; k++)
        if (b->shrunk[k] != SIZE_MAX)
            bt_merge(b->t, b->ops[b->shrunk[k]].key);
}

/* One attempt; ERETRY: begin anew. */
static int
attempt(struct batch *b, lsn_t *lsn)
{
    struct wal_ticket ticket = {0};
    struct change c;
    size_t changed = 0;
    int rc = buf_admit(b->t->buf, b->grows);

    if (rc == 0)
        rc = prepare(b);
    if (rc == 0)
        rc = wal_reserve(b->t->wal, WAL_USER, WAL_RECORD_HEADER + b->record_bytes, &ticket);
    if (rc == 0)
        rc = latch_all(b, &c);
    if (rc != 0)
        goto out;
    changed = b->changed;
    if (changed > 0)
        *lsn = bt_commit(b->t, &ticket, &c, b->refs, (unsigned)changed); /* A2 */
    for (size_t k = 0; k < changed; k++)
        if (!bt_underfull(b->refs[k].page))
            b->shrunk[k] = SIZE_MAX;
    unlatch(b);
out:
    wal_release(b->t->wal, &ticket);
    if (rc == 0)
        merge_small(b, changed);
    return rc;
}

/* Work space; grows, and stays for the next batch. */
static int
make_room(struct batch *b)
{
    struct bt *t = b->t;
    size_t per_leaf = sizeof(struct buf_ref) + sizeof(size_t);
    size_t bytes = b->leaves_max * per_leaf + b->record_bytes;
    uint8_t *p;

    if (t->batch_mem_bytes < bytes) {
        p = malloc(bytes);
        if (p == NULL)
            return CH_FAIL(COHORT_ENOMEM, "batch of %zu operations: %zu bytes", b->n, bytes);
        free(t->batch_mem);
        t->batch_mem = p;
        t->batch_mem_bytes = bytes;
    }
    p = t->batch_mem;
    b->refs = (struct buf_ref *)(void *)p;
    b->shrunk = (size_t *)(void *)(p + b->leaves_max * sizeof(struct buf_ref));
    b->record = p + b->leaves_max * per_leaf;
    return 0;
}

/* Most bytes that the record may take; SIZE_MAX beyond the limits. */
static size_t
record_bound(struct batch *b)
{
    size_t limit = b->t->batch_bytes_max < WAL_RECORD_MAX ? b->t->batch_bytes_max : WAL_RECORD_MAX;
    size_t sum = CHANGE_HEAD + b->leaves_max * CHANGE_GROUP;

    for (size_t i = 0; i < b->n && sum <= limit; i++) {
        const struct bt_op *op = &b->ops[i];
        size_t value_bytes = op->kind == BT_DEL ? 0 : op->value.bytes;

        CH_ASSERT(op->kind == BT_PUT || op->kind == BT_DEL);
        CH_ASSERT(op->key.bytes <= COHORT_KEY_MAX &&
                  op->key.bytes + value_bytes <= COHORT_ENTRY_MAX);
        CH_ASSERT(i == 0 || node_compare(b->ops[i - 1].key, op->key) < 0);
        b->grows = b->grows || op->kind == BT_PUT;
        sum += CHANGE_OP + op->key.bytes + value_bytes;
    }
    return sum <= limit ? sum : SIZE_MAX;
}

int
bt_write_batch(struct bt *t, const struct bt_op *ops, size_t n, lsn_t *lsn)
{
    struct batch b = {.t = t, .ops = ops, .n = n};
    unsigned attempts = 0;
    lsn_t done = 0;
    int rc;

    if (n == 0) {
        *lsn = 0;
        return 0;
    }
    b.leaves_max = ch_min_u64(ch_min_u64(t->batch_leaves_max, n), UINT16_MAX);
    b.record_bytes = record_bound(&b);
    if (b.record_bytes == SIZE_MAX)
        return CH_FAIL(COHORT_EBATCHSIZE, "batch of %zu operations: more than %zu bytes of log", n,
                       t->batch_bytes_max);
    rt_lock(&t->batch);
    rc = make_room(&b);
    while (rc == 0) {
        rc = attempt(&b, &done);
        if (rc != COHORT_ERETRY)
            break;
        rc = 0;
        if (++attempts > BACKOFF_AFTER)
            rt_sleep_ns(BACKOFF_NS *
                        ch_min_u64(1 + ch_min_u64(attempts, 100) - BACKOFF_AFTER, BACKOFF_MAX));
        else
            rt_yield();
    }
    rt_unlock(&t->batch);
    if (rc == 0)
        *lsn = done;
    return rc;
}
