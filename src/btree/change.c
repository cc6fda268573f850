/* change.c - builds, parses and applies log records of the tree. Format and invariants: change.h.
 *
 * A record from the log is hostile until change_open() has walked through all of it: sizes, kinds
 * and C1. Whether an operation suits its page shows only when it is applied; node.c refuses what
 * does not.
 */
#include "btree/change.h"

#include <inttypes.h>

#include "btree/node.h"
#include "ver/ver.h"

enum change_kind {
    CHANGE_PUT = 1,
    CHANGE_DEL,
    CHANGE_ADD_CHILD,
    CHANGE_DEL_CHILD,
    CHANGE_CUT,
    CHANGE_IMAGE,
    CHANGE_FREE,
    CHANGE_GHOST,
};

enum {
    OP_REF = 0x8000 /* in the value bytes of a PUT */
};

static uint8_t *
take(struct change *c, size_t n)
{
    uint8_t *p = c->buf + c->bytes;

    CH_ASSERT(n <= c->room - c->bytes);
    c->bytes += n;
    return p;
}

static void
add_bytes(struct change *c, const void *data, size_t n)
{
    uint8_t *p = take(c, n);

    if (n > 0)
        memcpy(p, data, n);
}

/* Opens an operation with `fixed` bytes, the first two written; the caller fills in the rest. */
static uint8_t *
add_op(struct change *c, enum change_kind kind, size_t fixed, size_t rest)
{
    uint8_t *g = c->buf + c->group;
    uint8_t *p = take(c, fixed);

    CH_ASSERT(c->group != 0 && ch_get16(g + 6) < UINT16_MAX);
    ch_put16(g + 6, (uint16_t)(ch_get16(g + 6) + 1));
    ch_put32(g + 8, (uint32_t)(ch_get32(g + 8) + fixed + rest));
    p[0] = (uint8_t)kind;
    p[1] = 0;
    return p;
}

void
change_begin(struct change *c, uint8_t *buf, size_t room)
{
    c->buf = buf;
    c->room = room;
    c->bytes = 0;
    c->group = 0;
    ch_put16(take(c, CHANGE_HEAD), 0);
}

void
change_page(struct change *c, page_id pid)
{
    uint8_t *p;

    CH_ASSERT(ch_get16(c->buf) < UINT16_MAX);
    ch_put16(c->buf, (uint16_t)(ch_get16(c->buf) + 1));
    c->group = c->bytes;
    p = take(c, CHANGE_GROUP);
    memset(p, 0, CHANGE_GROUP);
    ch_put48(p, pid);
}

void
change_put(struct change *c, struct bt_slice key, struct bt_slice value, unsigned flags)
{
    uint8_t *p = add_op(c, CHANGE_PUT, 6, key.bytes + value.bytes);

    ch_put16(p + 2, (uint16_t)key.bytes);
    ch_put16(p + 4, (uint16_t)(value.bytes | ((flags & BT_REF) != 0 ? OP_REF : 0)));
    add_bytes(c, key.data, key.bytes);
    add_bytes(c, value.data, value.bytes);
}

static void
add_key_op(struct change *c, enum change_kind kind, struct bt_slice key)
{
    uint8_t *p = add_op(c, kind, 4, key.bytes);

    ch_put16(p + 2, (uint16_t)key.bytes);
    add_bytes(c, key.data, key.bytes);
}

void
change_del(struct change *c, struct bt_slice key)
{
    add_key_op(c, CHANGE_DEL, key);
}

void
change_ghost(struct change *c, struct bt_slice key)
{
    add_key_op(c, CHANGE_GHOST, key);
}

void
change_add_child(struct change *c, struct bt_slice key, page_id child)
{
    uint8_t *p = add_op(c, CHANGE_ADD_CHILD, 10, key.bytes);

    ch_put16(p + 2, (uint16_t)key.bytes);
    ch_put48(p + 4, child);
    add_bytes(c, key.data, key.bytes);
}

void
change_del_child(struct change *c, unsigned index)
{
    ch_put16(add_op(c, CHANGE_DEL_CHILD, 4, 0) + 2, (uint16_t)index);
}

void
change_cut(struct change *c, unsigned entries)
{
    ch_put16(add_op(c, CHANGE_CUT, 4, 0) + 2, (uint16_t)entries);
}

void
change_image(struct change *c, const uint8_t *page)
{
    size_t low = node_low_bytes(page), high = node_high_bytes(page);
    uint8_t *p = add_op(c, CHANGE_IMAGE, 6, low + high);

    ch_put16(p + 2, (uint16_t)low);
    ch_put16(p + 4, (uint16_t)high);
    add_bytes(c, page, low);
    add_bytes(c, page + CH_PAGE_BYTES - high, high);
}

void
change_free(struct change *c)
{
    ch_put16(add_op(c, CHANGE_FREE, 2, 0), CHANGE_FREE);
}

size_t
change_head(uint8_t type, const struct bt_logged *l, uint8_t out[CHANGE_WRITE_HEAD])
{
    ch_put64(out, l->txn);
    ch_put64(out + 8, l->seq);
    if (type != BT_RECORD_WRITE)
        return CHANGE_UNDO_HEAD;
    ch_put32(out + 16, l->tree);
    out[20] = (uint8_t)l->kind;
    out[21] = (uint8_t)l->flags;
    ch_put16(out + 22, (uint16_t)l->before.bytes);
    return CHANGE_WRITE_HEAD;
}

/* ---- parsing ---- */

/* One operation, its parts pointing into the record. */
struct op {
    enum change_kind kind;
    unsigned number; /* index, entries, flags of a value */
    page_id child;
    struct bt_slice key, value; /* IMAGE: low and high end */
};

/* Parses the operation at the front of `p`; returns its bytes, 0 when it is malformed. */
static size_t
op_parse(const uint8_t *p, size_t n, struct op *op)
{
    static const uint8_t fixed[] = {0, 6, 4, 10, 4, 4, 6, 2, 4}; /* by kind */
    size_t used;

    if (n < 2 || p[0] < CHANGE_PUT || p[0] > CHANGE_GHOST || p[1] != 0 || n < fixed[p[0]])
        return 0;
    memset(op, 0, sizeof(*op));
    op->kind = (enum change_kind)p[0];
    used = fixed[p[0]];
    if (op->kind == CHANGE_DEL_CHILD || op->kind == CHANGE_CUT)
        op->number = ch_get16(p + 2);
    else if (op->kind != CHANGE_FREE)
        op->key.bytes = ch_get16(p + 2);
    if (op->kind == CHANGE_PUT || op->kind == CHANGE_IMAGE)
        op->value.bytes = ch_get16(p + 4);
    if (op->kind == CHANGE_PUT && (op->value.bytes & OP_REF) != 0) {
        op->value.bytes &= ~(size_t)OP_REF;
        op->number = BT_REF;
    }
    if (op->kind == CHANGE_ADD_CHILD)
        op->child = ch_get48(p + 4);
    if (op->key.bytes + op->value.bytes > n - used)
        return 0;
    op->key.data = p + used;
    op->value.data = p + used + op->key.bytes;
    return used + op->key.bytes + op->value.bytes;
}

static bool
op_valid(const struct op *op)
{
    size_t both = op->key.bytes + op->value.bytes;

    if (op->kind == CHANGE_IMAGE)
        return op->key.bytes >= PAGE_HEADER_BYTES && both <= CH_PAGE_BYTES;
    if (op->kind == CHANGE_ADD_CHILD && op->child == 0)
        return false;
    return op->key.bytes <= COHORT_KEY_MAX && both <= BT_ENTRY_MAX;
}

static int
group_check(const struct change_group *g)
{
    struct op op;
    size_t pos = 0, n;

    for (unsigned i = 0; i < g->ops; i++) {
        n = op_parse(g->data + pos, g->bytes - pos, &op);
        if (n == 0 || !op_valid(&op))
            return CH_FAIL(COHORT_ELOG, "tree record, page %" PRIu64 ": operation %u is malformed",
                           g->pid, i);
        if ((op.kind == CHANGE_IMAGE && i > 0) || (op.kind == CHANGE_FREE && g->ops > 1))
            return CH_FAIL(COHORT_ELOG, "tree record, page %" PRIu64 ": operation %u out of order",
                           g->pid, i); /* C1 */
        pos += n;
    }
    if (pos != g->bytes || g->ops == 0)
        return CH_FAIL(COHORT_ELOG, "tree record, page %" PRIu64 ": %zu bytes left over", g->pid,
                       g->bytes - pos);
    return 0;
}

/* The next group, bounds checked; its operations are not. */
static int
group_read(struct change_reader *r, struct change_group *g)
{
    const uint8_t *p = r->data + r->pos;
    size_t left = r->bytes - r->pos;

    if (left == 0)
        return COHORT_NOTFOUND;
    if (left < CHANGE_GROUP || ch_get32(p + 8) > left - CHANGE_GROUP)
        return CH_FAIL(COHORT_ELOG, "tree record: cut off in a page's operations");
    g->pid = ch_get48(p);
    g->ops = ch_get16(p + 6);
    g->bytes = ch_get32(p + 8);
    g->data = p + CHANGE_GROUP;
    g->formats = g->bytes > 0 && g->data[0] == CHANGE_IMAGE;
    g->frees = g->bytes > 0 && g->data[0] == CHANGE_FREE;
    r->pos += CHANGE_GROUP + g->bytes;
    return 0;
}

int
change_open(struct change_reader *r, const uint8_t *data, size_t bytes)
{
    struct change_reader walk = {data, bytes, CHANGE_HEAD};
    struct change_group g;
    unsigned groups = 0;
    int rc;

    if (bytes < CHANGE_HEAD)
        return CH_FAIL(COHORT_ELOG, "tree record: %zu bytes", bytes);
    for (;;) {
        rc = group_read(&walk, &g);
        if (rc == COHORT_NOTFOUND)
            break;
        if (rc == 0 && g.pid == 0)
            rc = CH_FAIL(COHORT_ELOG, "tree record: page id 0");
        if (rc == 0)
            rc = group_check(&g);
        if (rc != 0)
            return rc;
        groups++;
    }
    if (groups == 0 || groups != ch_get16(data))
        return CH_FAIL(COHORT_ELOG, "tree record: %u pages instead of %u", groups,
                       (unsigned)ch_get16(data));
    *r = (struct change_reader){data, bytes, CHANGE_HEAD};
    return 0;
}

int
change_next(struct change_reader *r, struct change_group *g)
{
    return group_read(r, g);
}

static int
write_head_read(const uint8_t *data, size_t bytes, struct bt_logged *l)
{
    l->tree = ch_get32(data + 16);
    l->kind = data[20];
    l->flags = data[21];
    l->before = (struct bt_slice){data + CHANGE_WRITE_HEAD, ch_get16(data + 22)};
    if (l->before.bytes > bytes - CHANGE_WRITE_HEAD || l->before.bytes > BT_ENTRY_MAX ||
        (l->flags & ~(unsigned)BT_REF) != 0)
        return CH_FAIL(COHORT_ELOG, "write record: before-image of %zu bytes, flags %u",
                       l->before.bytes, l->flags);
    if (l->kind == VER_WAS_VALUE ? l->seq == 0
                                 : l->before.bytes != 0 || l->flags != 0 ||
                                       l->kind != (l->seq == 0 ? 0 : VER_WAS_ABSENT))
        return CH_FAIL(COHORT_ELOG, "write record: kind %u, entry %" PRIu64, l->kind, l->seq);
    return 0;
}

int
change_groups(uint8_t type, const uint8_t *data, size_t bytes, struct bt_slice *groups,
              struct bt_logged *l)
{
    struct bt_logged head_of = {0};
    size_t head = 0;
    int rc = 0;

    if (type == BT_RECORD_WRITE)
        head = CHANGE_WRITE_HEAD;
    else if (type == BT_RECORD_UNDO)
        head = CHANGE_UNDO_HEAD;
    if (type < BT_RECORD_PAGES || type > BT_RECORD_UNDO || bytes < head)
        return CH_FAIL(COHORT_ELOG, "tree record of type %u: %zu bytes", (unsigned)type, bytes);
    if (head > 0) {
        head_of.txn = ch_get64(data);
        head_of.seq = ch_get64(data + 8);
    }
    if (type == BT_RECORD_WRITE) {
        rc = write_head_read(data, bytes, &head_of);
        head += head_of.before.bytes;
    }
    if (rc != 0)
        return rc;
    *groups = (struct bt_slice){data + head, bytes - head};
    if (l != NULL)
        *l = head_of;
    return 0;
}

int
change_single(struct change_reader r, struct bt_slice *key)
{
    struct change_group g = {0}, more;
    struct op op;
    int rc = change_next(&r, &g);

    if (rc == 0 && (g.ops != 1 || op_parse(g.data, g.bytes, &op) == 0 ||
                    (op.kind != CHANGE_PUT && op.kind != CHANGE_GHOST) ||
                    change_next(&r, &more) != COHORT_NOTFOUND))
        rc = CH_FAIL(COHORT_ELOG, "tree record, page %" PRIu64 ": not a single write", g.pid);
    if (rc == 0)
        *key = op.key;
    return rc;
}

/* ---- applying ---- */

static bool
apply_image(uint8_t *page, const struct op *op, page_id pid)
{
    memcpy(page, op->key.data, op->key.bytes);
    memset(page + op->key.bytes, 0, CH_PAGE_BYTES - op->key.bytes - op->value.bytes);
    memcpy(page + CH_PAGE_BYTES - op->value.bytes, op->value.data, op->value.bytes);
    ch_put32(page, 0);
    return page_pid(page) == pid && node_check(page) == NULL;
}

static bool
apply_op(uint8_t *page, const struct op *op, page_id pid, lsn_t lsn)
{
    bool ok = false, found;
    unsigned i;

    switch (op->kind) {
    case CHANGE_PUT:
        ok = node_put(page, op->key, op->value, op->number);
        page_set_write_lsn(page, lsn); /* C5 */
        break;
    case CHANGE_GHOST:
        i = node_search(page, op->key, &found);
        ok = found && node_ghost(page, i);
        page_set_write_lsn(page, lsn); /* C5 */
        break;
    case CHANGE_DEL:
        i = node_search(page, op->key, &found);
        ok = found && page_type(page) == PAGE_LEAF && node_del(page, i);
        break;
    case CHANGE_ADD_CHILD:
        ok = node_add_child(page, op->key, op->child);
        break;
    case CHANGE_DEL_CHILD:
        ok = page_type(page) == PAGE_INNER && node_del(page, op->number);
        break;
    case CHANGE_CUT:
        ok = node_cut(page, op->number);
        break;
    case CHANGE_IMAGE:
        ok = apply_image(page, op, pid);
        break;
    case CHANGE_FREE:
        page_init(page, pid, PAGE_FREE, 0, page_tree(page));
        ok = true;
        break;
    }
    return ok;
}

int
change_apply(uint8_t *page, const struct change_group *g, lsn_t lsn)
{
    struct op op;
    size_t pos = 0, n;

    for (unsigned i = 0; i < g->ops; i++) {
        n = op_parse(g->data + pos, g->bytes - pos, &op);
        if (n == 0 || !apply_op(page, &op, g->pid, lsn))
            return CH_FAIL(COHORT_EPAGE,
                           "page %" PRIu64 ": operation %u (kind %u) of the tree record that ends "
                           "at %" PRIu64 " does not apply",
                           g->pid, i, (unsigned)g->data[pos], lsn);
        pos += n;
    }
    page_set_lsn(page, lsn);
    return 0;
}

void
change_apply_put(uint8_t *page, const struct node_fit *f, struct bt_slice key,
                 struct bt_slice value, unsigned flags, lsn_t lsn)
{
    bool ok = node_put_fit(page, f, key, value, flags);

    CH_ASSERT(ok);                 /* C3 */
    page_set_write_lsn(page, lsn); /* C5 */
    page_set_lsn(page, lsn);
}
