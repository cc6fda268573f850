/* node_split.c - where to split a page, and filling pages from others; rest of node.c.
 *
 * A split never places the new key: it only makes room where the key will go, which a second try
 * then finds. Runs: keys that come in ascending (descending) order split the page where the new key
 * would go, so that what lies behind the run is full and what lies before it is as empty as
 * possible.
 */
#include "base/bug.h"
#include "btree/node_internal.h"

size_t
node_separator(struct bt_slice a, struct bt_slice b, uint8_t *out)
{
    size_t n = node_common(a.data, a.bytes, b.data, b.bytes) + 1;

    CH_ASSERT(n <= b.bytes);
    memcpy(out, b.data, n);
    return n;
}

static struct bt_slice
key_at(const struct node_view *v, unsigned i, uint8_t *buf)
{
    return (struct bt_slice){buf, node_key(v->p, i, buf)};
}

/* Bytes of entry i with its slot. */
static size_t
entry_cost(const struct node_view *v, unsigned i)
{
    return NODE_SLOT_BYTES + node_entry_at(v, i).bytes;
}

/* Bytes of a page that holds entries [a, b) and the new one. */
static size_t
range_cost(const struct node_view *v, unsigned a, unsigned b, struct bt_slice key,
           size_t value_bytes)
{
    size_t prefix = node_common_range(v, a, b, &key);
    size_t cost = v->body + node_pad((unsigned)prefix) + NODE_SLOT_BYTES + v->head +
                  (key.bytes - prefix) + value_bytes;

    for (unsigned i = a; i < b; i++)
        cost += entry_cost(v, i) + v->prefix - prefix;
    return cost;
}

/* The k that halves the bytes of the entries, the new one counted where it goes. Leaf: 1 <= k < n.
 * Inner: entry k moves up. */
static unsigned
middle(const struct node_view *v, unsigned pos, size_t new_cost)
{
    unsigned n = v->count, best = v->leaf ? 1 : 0;
    size_t total = new_cost, left = 0, least = SIZE_MAX;

    for (unsigned i = 0; i < n; i++)
        total += entry_cost(v, i);
    for (unsigned k = 0; k < n; k++) {
        size_t l = left + (pos < k ? new_cost : 0);
        size_t r = total - l;
        size_t differ = l > r ? l - r : r - l;

        if (differ < least && (!v->leaf || k > 0)) {
            least = differ;
            best = k;
        }
        left += entry_cost(v, k);
    }
    return best;
}

static void
plan_inner(const struct node_view *v, unsigned pos, struct bt_slice key, struct node_split *out)
{
    int run = node_hint(v->p, pos);
    unsigned n = v->count, k;

    if (run > 0 && pos == n) {
        k = n - 1;
    } else if (run < 0 && pos == 0) {
        k = 0;
    } else {
        k = middle(v, pos, NODE_SLOT_BYTES + v->head + key.bytes);
        /* A key that would cost a half its long prefix goes to a page of its own. */
        if ((pos <= k ? range_cost(v, 0, k, key, 0) : range_cost(v, k + 1, n, key, 0)) >
            CH_PAGE_BYTES)
            k = pos < n ? pos : n - 1;
    }
    out->at = k;
    out->sep_bytes = node_key(v->p, k, out->sep);
}

static void
plan_leaf(const struct node_view *v, unsigned pos, bool found, struct bt_slice key,
          size_t value_bytes, struct node_split *out)
{
    uint8_t a[COHORT_KEY_MAX], b[COHORT_KEY_MAX];
    int run = found ? 0 : node_hint(v->p, pos);
    unsigned n = v->count, k;
    bool left = true; /* the new key goes there */

    if (run != 0) {
        k = pos;
        left = run > 0 ? pos < n : pos == 0;
    } else {
        k = middle(v, pos, NODE_SLOT_BYTES + v->head + key.bytes + value_bytes);
        left = pos < k;
        if (!found && (left ? range_cost(v, 0, k, key, value_bytes)
                            : range_cost(v, k, n, key, value_bytes)) > CH_PAGE_BYTES) {
            k = pos;
            left = pos < n;
        }
    }
    out->at = k;
    if (k != pos || found)
        out->sep_bytes = node_separator(key_at(v, k - 1, a), key_at(v, k, b), out->sep);
    else if (left && k < n)
        out->sep_bytes = node_separator(key, key_at(v, k, b), out->sep);
    else if (k > 0)
        out->sep_bytes = node_separator(key_at(v, k - 1, a), key, out->sep);
    else
        out->sep_bytes = node_separator(key, key_at(v, 0, b), out->sep);
}

void
node_split_plan(const uint8_t *p, struct bt_slice key, size_t value_bytes, struct node_split *out)
{
    struct node_view v = node_look(p);
    bool found;
    unsigned pos = node_search(p, key, &found);

    CH_ASSERT(v.count >= 2); /* N5 */
    if (v.leaf)
        plan_leaf(&v, pos, found, key, value_bytes, out);
    else
        plan_inner(&v, pos, key, out);
}

bool
node_split_right(uint8_t *right, const uint8_t *p, const struct node_split *s)
{
    struct node_view v = node_look(p);

    if (v.leaf)
        return node_copy(right, p, s->at, v.count);
    node_set_leftmost(right, node_child(p, s->at + 1));
    return node_copy(right, p, s->at + 1, v.count);
}

bool
node_adopt(uint8_t *dst, const uint8_t *src)
{
    struct node_view v = node_look(src);

    page_inherit(dst, src);
    page_set_write_lsn(dst, page_write_lsn(src));
    if (!v.leaf)
        node_set_leftmost(dst, node_child(src, 0));
    ch_put16(dst + NODE_OFF_HINT, ch_get16(src + NODE_OFF_HINT));
    return node_copy(dst, src, 0, v.count);
}

/* ---- merge ---- */

/* Longest prefix of all keys of both; the outermost two decide. */
static size_t
merged_prefix(const struct node_view *l, struct bt_slice sep, const struct node_view *r,
              uint8_t *first_buf)
{
    uint8_t last_buf[COHORT_KEY_MAX];
    struct bt_slice first = sep, last = sep;
    unsigned n = l->count + r->count + (l->leaf ? 0 : 1);

    if (n < 2)
        return 0;
    if (l->count > 0)
        first = key_at(l, 0, first_buf);
    else if (l->leaf)
        first = key_at(r, 0, first_buf);
    else
        memcpy(first_buf, sep.data, sep.bytes);
    if (r->count > 0)
        last = key_at(r, r->count - 1, last_buf);
    else if (l->leaf)
        last = key_at(l, l->count - 1, last_buf);
    return node_common(first.data, first.bytes, last.data, last.bytes);
}

static size_t
raw_cost(const struct node_view *v)
{
    size_t sum = 0;

    for (unsigned i = 0; i < v->count; i++)
        sum += entry_cost(v, i) + v->prefix;
    return sum;
}

size_t
node_merged_used(const uint8_t *left, struct bt_slice sep, const uint8_t *right)
{
    uint8_t first[COHORT_KEY_MAX];
    struct node_view l = node_look(left), r = node_look(right);
    size_t prefix = merged_prefix(&l, sep, &r, first);
    size_t n = l.count + r.count, sum = raw_cost(&l) + raw_cost(&r);

    if (!l.leaf) {
        n++;
        sum += NODE_SLOT_BYTES + l.head + sep.bytes;
    }
    return sum + node_pad((unsigned)prefix) - n * prefix;
}

bool
node_merge(uint8_t *dst, const uint8_t *left, struct bt_slice sep, const uint8_t *right)
{
    uint8_t first[COHORT_KEY_MAX];
    struct node_view l = node_look(left), r = node_look(right);
    size_t prefix;
    bool ok;

    if (!node_sane(left) || !node_sane(right) || l.leaf != r.leaf)
        return false;
    prefix = merged_prefix(&l, sep, &r, first);
    ok = node_start(dst, first, prefix);
    if (!l.leaf)
        node_set_leftmost(dst, node_child(left, 0));
    for (unsigned i = 0; ok && i < l.count; i++)
        ok = node_append_from(dst, &l, i);
    if (!l.leaf)
        ok = ok && node_add_child(dst, sep, node_child(right, 0));
    for (unsigned i = 0; ok && i + CH_BUG(MERGE_LOSES_LAST) < r.count; i++)
        ok = node_append_from(dst, &r, i);
    return ok;
}

/* ---- check ---- */

static const char *
check_entry(const struct node_view *v, const struct node_entry *e, unsigned heap, uint64_t *taken)
{
    size_t from, to;

    if (e->head == NULL || e->head < v->p + heap)
        return "an entry lies outside of the heap";
    if (v->prefix + e->suffix_bytes > COHORT_KEY_MAX ||
        v->prefix + e->suffix_bytes + e->value_bytes > BT_ENTRY_MAX)
        return "an entry is too large";
    if (e->ghost && (!v->leaf || e->ref || e->value_bytes != 0))
        return "a ghost has a value or a child"; /* N6 */
    from = (size_t)(e->head - v->p);
    to = from + e->bytes;
    while (from < to) {
        size_t bit = from % 64, n = 64 - bit < to - from ? 64 - bit : to - from;
        uint64_t mask = (n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX) << bit;

        if ((taken[from / 64] & mask) != 0)
            return "entries overlap";
        taken[from / 64] |= mask;
        from += n;
    }
    return NULL;
}

static const char *
check_order(const struct node_view *v, unsigned i, const struct node_entry *e,
            const struct node_entry *before)
{
    const uint8_t *slot = v->p + v->slots + i * NODE_SLOT_BYTES;
    struct bt_slice a = {before->suffix, before->suffix_bytes};
    struct bt_slice b = {e->suffix, e->suffix_bytes};

    for (unsigned k = 0; k < 4; k++)
        if ((ch_get32(slot + 4) >> (24 - 8 * k) & 255) != (k < e->suffix_bytes ? e->suffix[k] : 0))
            return "the head of a slot is not that of its key";
    if (i > 0 && node_compare(a, b) >= 0)
        return "keys are out of order";
    return NULL;
}

const char *
node_check(const uint8_t *p)
{
    uint64_t taken[CH_PAGE_BYTES / 64] = {0};
    struct node_view v = node_look(p);
    struct node_entry before = {0}, e;
    unsigned heap = ch_get16(p + NODE_OFF_HEAP);
    size_t sum = 0;
    unsigned ghosts = 0;
    const char *wrong;

    if (!node_sane(p))
        return "the header is damaged";
    if (!v.leaf && node_child(p, 0) == 0)
        return "the leftmost child is missing";
    for (unsigned i = 0; i < v.count; i++) {
        e = node_entry_at(&v, i);
        wrong = check_entry(&v, &e, heap, taken);
        if (wrong == NULL)
            wrong = check_order(&v, i, &e, &before);
        if (wrong == NULL && !v.leaf && node_child(p, i + 1) == 0)
            wrong = "a child is missing";
        if (wrong != NULL)
            return wrong;
        sum += e.bytes;
        ghosts += e.ghost;
        before = e;
    }
    if (ghosts != node_ghosts(p))
        return "the count of ghosts is wrong"; /* N6 */
    if (sum + ch_get16(p + NODE_OFF_DEAD) != CH_PAGE_BYTES - heap)
        return "the bytes of the heap don't add up";
    return NULL;
}
