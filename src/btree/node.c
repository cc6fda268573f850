/* node.c - entries of one page: search, insert, remove. Layout and invariants: node.h.
 *
 * Locking: none; callers hold the page's latch, or validate the version after an optimistic read.
 * Each field that bounds an access is therefore loaded exactly once (volatile) and limited before
 * use.
 *
 * A page is rebuilt (compacted, with the longest prefix its keys allow) when an entry does not fit
 * otherwise, or when a key does not share its prefix. A lone key keeps no prefix: the next one
 * would have to undo it.
 */
#include "btree/node_internal.h"

static unsigned
load16(const uint8_t *p, unsigned off)
{
    return *(const volatile uint16_t *)(const void *)(p + off);
}

static uint32_t
load32(const uint8_t *p, unsigned off)
{
    return *(const volatile uint32_t *)(const void *)(p + off);
}

static void
store16(uint8_t *p, unsigned off, unsigned v)
{
    CH_ASSERT(v <= UINT16_MAX);
    ch_put16(p + off, (uint16_t)v);
}

static bool
is_leaf(const uint8_t *p)
{
    return page_type(p) == PAGE_LEAF;
}

static unsigned
body_start(const uint8_t *p)
{
    return is_leaf(p) ? NODE_LEAF_BODY : NODE_INNER_BODY;
}

struct node_view
node_look(const uint8_t *p)
{
    struct node_view v;
    unsigned max;

    v.p = p;
    v.leaf = is_leaf(p);
    v.body = v.leaf ? NODE_LEAF_BODY : NODE_INNER_BODY;
    v.head = v.leaf ? NODE_LEAF_ENTRY : NODE_INNER_ENTRY;
    v.prefix = load16(p, NODE_OFF_PREFIX);
    if (v.prefix > COHORT_KEY_MAX)
        v.prefix = COHORT_KEY_MAX;
    v.slots = v.body + node_pad(v.prefix);
    v.count = load16(p, NODE_OFF_COUNT);
    max = (CH_PAGE_BYTES - v.slots) / NODE_SLOT_BYTES;
    if (v.count > max)
        v.count = max;
    return v;
}

struct node_entry
node_entry_at(const struct node_view *v, unsigned i)
{
    struct node_entry e = {0};
    unsigned at = v->slots + i * NODE_SLOT_BYTES;
    unsigned off = load16(v->p, at);
    unsigned length = load16(v->p, at + 2), suffix = length & ~(unsigned)NODE_GHOST;
    unsigned value = 0;

    if (off + v->head > CH_PAGE_BYTES)
        return e;
    if (v->leaf)
        value = ch_get16(v->p + off);
    e.ghost = (length & NODE_GHOST) != 0;
    e.ref = (value & NODE_REF) != 0;
    value &= ~(unsigned)NODE_REF;
    /* One load of `value` decides: the sum is limited before any of its bytes is read. */
    if (off < PAGE_HEADER_BYTES || off + v->head + suffix + value > CH_PAGE_BYTES)
        return e;
    e.head = v->p + off;
    e.suffix = e.head + v->head;
    e.suffix_bytes = suffix;
    e.value_bytes = value;
    e.bytes = v->head + suffix + value;
    return e;
}

static uint32_t
head_of(const uint8_t *s, size_t n)
{
    uint32_t v = 0;

    if (CH_LIKELY(n >= 4)) {
        memcpy(&v, s, 4);
        return __builtin_bswap32(v);
    }
    for (size_t i = 0; i < n; i++)
        v |= (uint32_t)s[i] << (24 - 8 * i);
    return v;
}

size_t
node_common(const uint8_t *a, size_t an, const uint8_t *b, size_t bn)
{
    size_t n = an < bn ? an : bn;
    size_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

int
node_compare(struct bt_slice a, struct bt_slice b)
{
    size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
    int c = n == 0 ? 0 : memcmp(a.data, b.data, n);

    if (c != 0)
        return c;
    return a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

void
node_init(uint8_t *p, page_id pid, uint8_t level, uint32_t tree)
{
    page_init(p, pid, level == 0 ? PAGE_LEAF : PAGE_INNER, level, tree);
    store16(p, NODE_OFF_HEAP, CH_PAGE_BYTES);
}

bool
node_sane(const uint8_t *p)
{
    bool leaf = page_type(p) == PAGE_LEAF;
    unsigned heap = load16(p, NODE_OFF_HEAP), prefix = load16(p, NODE_OFF_PREFIX);
    unsigned count = load16(p, NODE_OFF_COUNT);

    if (!leaf && page_type(p) != PAGE_INNER)
        return false;
    if (leaf != (page_level(p) == 0) || prefix > COHORT_KEY_MAX || count > NODE_COUNT_MAX)
        return false;
    if (heap > CH_PAGE_BYTES || load16(p, NODE_OFF_DEAD) > CH_PAGE_BYTES - heap)
        return false;
    if (load16(p, NODE_OFF_GHOSTS) > count)
        return false;
    return body_start(p) + node_pad(prefix) + count * NODE_SLOT_BYTES <= heap;
}

unsigned
node_count(const uint8_t *p)
{
    return node_look(p).count;
}

/* Heap bytes of live entries; the page is sane. */
static size_t
live_bytes(const uint8_t *p)
{
    return CH_PAGE_BYTES - load16(p, NODE_OFF_HEAP) - load16(p, NODE_OFF_DEAD);
}

size_t
node_used(const uint8_t *p)
{
    struct node_view v = node_look(p);

    return node_pad(v.prefix) + v.count * NODE_SLOT_BYTES + live_bytes(p);
}

size_t
node_low_bytes(const uint8_t *p)
{
    struct node_view v = node_look(p);

    return v.slots + v.count * NODE_SLOT_BYTES;
}

size_t
node_high_bytes(const uint8_t *p)
{
    return CH_PAGE_BYTES - load16(p, NODE_OFF_HEAP);
}

/* ---- search ---- */

/* Equal heads: the rest decides. Where one suffix has at most four bytes, it is the beginning of
 * the other one: equal heads mean that the other continues it, at first with the zeroes that pad
 * the head. */
static int
compare_tail(const struct node_view *v, unsigned at, const uint8_t *s, size_t n)
{
    unsigned off = load16(v->p, at), suffix = load16(v->p, at + 2) & ~(unsigned)NODE_GHOST;
    size_t min = suffix < n ? suffix : n;
    int c;

    if (off + v->head + suffix > CH_PAGE_BYTES)
        return 0; /* garbage; the version won't hold */
    if (min > 4) {
        c = memcmp(v->p + off + v->head + 4, s + 4, min - 4);
        if (c != 0)
            return c;
    }
    return suffix < n ? -1 : suffix > n;
}

unsigned
node_search(const uint8_t *p, struct bt_slice key, bool *found)
{
    struct node_view v = node_look(p);
    size_t n = key.bytes < v.prefix ? key.bytes : v.prefix;
    int c = n == 0 ? 0 : memcmp(key.data, p + v.body, n);
    unsigned lo = 0, hi = v.count;
    const uint8_t *s;
    uint32_t head;

    *found = false;
    if (c == 0 && key.bytes < v.prefix)
        c = -1;
    if (c != 0)
        return c < 0 ? 0 : v.count;
    n = key.bytes - v.prefix;
    s = n == 0 ? p : (const uint8_t *)key.data + v.prefix;
    head = head_of(s, n);
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2, at = v.slots + mid * NODE_SLOT_BYTES;
        uint32_t h = load32(p, at + 4);

        c = h < head ? -1 : h > head;
        if (c == 0)
            c = compare_tail(&v, at, s, n);
        if (c == 0) {
            *found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t
node_key(const uint8_t *p, unsigned i, uint8_t *out)
{
    struct node_view v = node_look(p);
    struct node_entry e;
    size_t n;

    if (i >= v.count)
        return 0;
    e = node_entry_at(&v, i);
    n = e.suffix_bytes;
    if (e.head == NULL || v.prefix + n > COHORT_KEY_MAX)
        n = 0;
    memcpy(out, p + v.body, v.prefix);
    if (n > 0)
        memcpy(out + v.prefix, e.suffix, n);
    return v.prefix + n;
}

struct bt_slice
node_get(const uint8_t *p, unsigned i, unsigned *flags)
{
    struct node_view v = node_look(p);
    struct node_entry e = {0};
    struct bt_slice value = {p, 0};

    if (i < v.count && v.leaf)
        e = node_entry_at(&v, i);
    if (e.head != NULL) {
        value.data = e.suffix + e.suffix_bytes;
        value.bytes = e.value_bytes;
    }
    *flags = e.ref ? BT_REF : 0;
    return value;
}

struct bt_slice
node_value(const uint8_t *p, unsigned i)
{
    unsigned flags;

    return node_get(p, i, &flags);
}

unsigned
node_flags(const uint8_t *p, unsigned i)
{
    unsigned flags;

    (void)node_get(p, i, &flags);
    return flags;
}

bool
node_is_ghost(const uint8_t *p, unsigned i)
{
    struct node_view v = node_look(p);

    return i < v.count && (load16(p, v.slots + i * NODE_SLOT_BYTES + 2) & NODE_GHOST) != 0;
}

unsigned
node_ghosts(const uint8_t *p)
{
    return load16(p, NODE_OFF_GHOSTS);
}

page_id
node_child(const uint8_t *p, unsigned i)
{
    struct node_view v = node_look(p);
    unsigned off = NODE_LEAF_BODY;

    if (i > v.count)
        return 0;
    if (i > 0)
        off = load16(p, v.slots + (i - 1) * NODE_SLOT_BYTES);
    return off + NODE_INNER_ENTRY > CH_PAGE_BYTES ? 0 : ch_get48(p + off);
}

unsigned
node_child_index(const uint8_t *p, struct bt_slice key, bool below)
{
    bool found;
    unsigned i = node_search(p, key, &found);

    return found && !below ? i + 1 : i;
}

/* ---- fit ---- */

size_t
node_common_range(const struct node_view *v, unsigned a, unsigned b, const struct bt_slice *key)
{
    struct node_entry first, last;
    size_t n, m;

    if ((b - a) + (key != NULL) < 2)
        return 0; /* see the head of this file */
    first = node_entry_at(v, a);
    last = node_entry_at(v, b - 1);
    n = node_common(first.suffix, first.suffix_bytes, last.suffix, last.suffix_bytes);
    if (key == NULL)
        return v->prefix + n;
    m = node_common(key->data, key->bytes, v->p + v->body, v->prefix);
    if (m < v->prefix)
        return m;
    m = node_common((const uint8_t *)key->data + v->prefix, key->bytes - v->prefix, first.suffix,
                    first.suffix_bytes);
    return v->prefix + (m < n ? m : n);
}

struct node_fit
node_fit(const uint8_t *p, struct bt_slice key, size_t value_bytes)
{
    struct node_view v = node_look(p);
    struct node_fit f = {.how = NODE_FULL};
    size_t gap, need, kept = live_bytes(p), total;
    unsigned olds = v.count;
    struct node_entry old = {0};
    bool shares =
        key.bytes >= v.prefix && (v.prefix == 0 || memcmp(key.data, p + v.body, v.prefix) == 0);

    f.index = node_search(p, key, &f.found);
    f.prefix = v.prefix;
    gap = load16(p, NODE_OFF_HEAP) - (v.slots + v.count * NODE_SLOT_BYTES);
    if (f.found) {
        old = node_entry_at(&v, f.index);
        olds--;
        kept = kept > old.bytes ? kept - old.bytes : 0;
    }
    if (shares) {
        need = v.head + (key.bytes - v.prefix) + value_bytes;
        if ((f.found && need <= old.bytes) || need + (f.found ? 0 : NODE_SLOT_BYTES) <= gap) {
            f.how = NODE_FITS;
            return f;
        }
    }
    /* The replaced key is among the page's keys: it limits the prefix as the new one does. */
    f.prefix = (unsigned)node_common_range(&v, 0, v.count, f.found ? NULL : &key);
    total = v.body + node_pad(f.prefix) + (olds + 1) * NODE_SLOT_BYTES + kept + v.head +
            (key.bytes - f.prefix) + value_bytes;
    total += (size_t)olds * v.prefix;
    if (total <= CH_PAGE_BYTES + (size_t)olds * f.prefix)
        f.how = NODE_FITS_REBUILT;
    return f;
}

/* ---- building ---- */

/* Places an entry of `bytes` in the heap and its slot at index i (others move up); NULL: full. */
static uint8_t *
entry_make(uint8_t *p, unsigned i, size_t suffix_bytes, size_t bytes)
{
    struct node_view v = node_look(p);
    unsigned heap = load16(p, NODE_OFF_HEAP), end = v.slots + v.count * NODE_SLOT_BYTES;
    uint8_t *slot = p + v.slots + i * NODE_SLOT_BYTES;

    if (heap > CH_PAGE_BYTES || end + NODE_SLOT_BYTES + bytes > heap || i > v.count)
        return NULL;
    memmove(slot + NODE_SLOT_BYTES, slot, (v.count - i) * NODE_SLOT_BYTES);
    heap -= (unsigned)bytes;
    store16(p, NODE_OFF_HEAP, heap);
    store16(p, NODE_OFF_COUNT, v.count + 1);
    ch_put16(slot, (uint16_t)heap);
    ch_put16(slot + 2, (uint16_t)suffix_bytes);
    return p + heap;
}

/* Writes the slot's head once the suffix stands in the heap. */
static void
head_set(uint8_t *p, unsigned i)
{
    struct node_view v = node_look(p);
    uint8_t *slot = p + v.slots + i * NODE_SLOT_BYTES;
    unsigned off = ch_get16(slot), n = ch_get16(slot + 2) & ~(unsigned)NODE_GHOST;

    ch_put32(slot + 4, head_of(p + off + v.head, n));
}

/* `head`: the value size of a leaf entry, the child of an inner one. */
static bool
entry_insert(uint8_t *p, unsigned i, struct bt_slice key, const uint8_t *head,
             struct bt_slice value)
{
    struct node_view v = node_look(p);
    size_t n = key.bytes - v.prefix;
    uint8_t *e = entry_make(p, i, n, v.head + n + value.bytes);

    if (e == NULL)
        return false;
    memcpy(e, head, v.head);
    if (n > 0)
        memcpy(e + v.head, (const uint8_t *)key.data + v.prefix, n);
    if (value.bytes > 0)
        memcpy(e + v.head + n, value.data, value.bytes);
    head_set(p, i);
    return true;
}

/* Sets or clears the ghost bit of entry i, which has the other one. */
static void
ghost_mark(uint8_t *p, unsigned i, bool ghost)
{
    struct node_view v = node_look(p);
    uint8_t *length = p + v.slots + i * NODE_SLOT_BYTES + 2;
    unsigned ghosts = load16(p, NODE_OFF_GHOSTS);

    ch_put16(length, (uint16_t)(ch_get16(length) ^ NODE_GHOST));
    if (ghost)
        ghosts++;
    else if (ghosts > 0) /* else it is garbage */
        ghosts--;
    store16(p, NODE_OFF_GHOSTS, ghosts);
}

bool
node_append_from(uint8_t *dst, const struct node_view *src, unsigned i)
{
    struct node_entry e = node_entry_at(src, i);
    struct node_view v = node_look(dst);
    size_t shared = 0, skip = 0, n;
    uint8_t *out;

    if (e.head == NULL || v.head != src->head)
        return false;
    if (v.prefix <= src->prefix)
        shared = src->prefix - v.prefix; /* comes back from the old prefix */
    else
        skip = v.prefix - src->prefix;
    if (skip > e.suffix_bytes)
        return false;
    n = shared + e.suffix_bytes - skip;
    out = entry_make(dst, v.count, n, v.head + n + e.value_bytes);
    if (out == NULL)
        return false;
    memcpy(out, e.head, v.head);
    memcpy(out + v.head, src->p + src->body + v.prefix, shared);
    memcpy(out + v.head + shared, e.suffix + skip, e.suffix_bytes - skip + e.value_bytes);
    head_set(dst, v.count);
    if (e.ghost)
        ghost_mark(dst, v.count, true);
    return true;
}

bool
node_start(uint8_t *p, const uint8_t *prefix, size_t prefix_bytes)
{
    unsigned body = body_start(p);

    if (body + node_pad((unsigned)prefix_bytes) > CH_PAGE_BYTES)
        return false;
    memset(p + body, 0, CH_PAGE_BYTES - body);
    if (prefix_bytes > 0)
        memcpy(p + body, prefix, prefix_bytes);
    store16(p, NODE_OFF_PREFIX, (unsigned)prefix_bytes);
    store16(p, NODE_OFF_COUNT, 0);
    store16(p, NODE_OFF_HEAP, CH_PAGE_BYTES);
    store16(p, NODE_OFF_DEAD, 0);
    store16(p, NODE_OFF_GHOSTS, 0);
    return true;
}

/* Compacts `p` with the prefix of `f` and the new entry in its place. */
static bool
rebuild_with(uint8_t *p, const struct node_fit *f, struct bt_slice key, const uint8_t *head,
             struct bt_slice value)
{
    _Alignas(8) uint8_t old[CH_PAGE_BYTES];
    struct node_view v;
    bool ok;

    memcpy(old, p, sizeof(old));
    v = node_look(old);
    ok = node_start(p, key.data, f->prefix);
    for (unsigned i = 0; ok && i < f->index; i++)
        ok = node_append_from(p, &v, i);
    ok = ok && entry_insert(p, f->index, key, head, value);
    for (unsigned i = f->index + (f->found ? 1 : 0); ok && i < v.count; i++)
        ok = node_append_from(p, &v, i);
    return ok;
}

/* ---- insert hint ----
 *
 * bits 0..9 where the last entry went in, 10..12 length of an ascending run, 13..15 of a descending
 * one. */

static void
hint_inserted(uint8_t *p, unsigned i)
{
    unsigned h = load16(p, NODE_OFF_HINT);
    unsigned last = h & 1023, up = h >> 10 & 7, down = h >> 13;
    bool first = load16(p, NODE_OFF_COUNT) == 1;

    up = !first && i == last + 1 ? up + (up < 7) : 0;
    down = !first && i == last ? down + (down < 7) : 0;
    store16(p, NODE_OFF_HINT, i | up << 10 | down << 13);
}

static void
hint_removed(uint8_t *p, unsigned i)
{
    unsigned h = load16(p, NODE_OFF_HINT);

    if (i <= (h & 1023) && (h & 1023) > 0)
        store16(p, NODE_OFF_HINT, h - 1);
}

/* A run is long enough when it covers the page, or four entries of it; it counts only for a key that goes on with it. */
int
node_hint(const uint8_t *p, unsigned pos)
{
    unsigned h = load16(p, NODE_OFF_HINT), n = node_count(p);
    unsigned want = n > 4 ? 3 : n > 1 ? n - 1 : 1;

    if ((h >> 10 & 7) >= want && pos == (h & 1023) + 1)
        return 1;
    return h >> 13 >= want && pos == (h & 1023) ? -1 : 0;
}

/* ---- changes ---- */

static bool
entry_replace(uint8_t *p, unsigned i, struct bt_slice key, const uint8_t *head,
              struct bt_slice value)
{
    struct node_view v = node_look(p);
    struct node_entry old = node_entry_at(&v, i);
    size_t n = key.bytes - v.prefix, bytes = v.head + n + value.bytes;
    unsigned dead = load16(p, NODE_OFF_DEAD), heap = load16(p, NODE_OFF_HEAP);
    uint8_t *slot = p + v.slots + i * NODE_SLOT_BYTES;
    uint8_t *e = p + ch_get16(slot);

    if (old.head == NULL || old.suffix_bytes != n || dead + old.bytes > CH_PAGE_BYTES)
        return false;
    if (bytes <= old.bytes) {
        dead += (unsigned)(old.bytes - bytes);
    } else {
        if (heap < v.slots + v.count * NODE_SLOT_BYTES + bytes)
            return false;
        dead += (unsigned)old.bytes;
        heap -= (unsigned)bytes;
        e = p + heap;
        memcpy(e + v.head, old.suffix, n);
        store16(p, NODE_OFF_HEAP, heap);
        ch_put16(slot, (uint16_t)heap);
    }
    if (old.ghost)
        ghost_mark(p, i, false);
    memcpy(e, head, v.head);
    if (value.bytes > 0)
        memcpy(e + v.head + n, value.data, value.bytes);
    store16(p, NODE_OFF_DEAD, dead);
    return true;
}

static bool
put(uint8_t *p, const struct node_fit *f, struct bt_slice key, const uint8_t *head,
    struct bt_slice value)
{
    bool ok = false;

    if (f->how == NODE_FITS_REBUILT)
        ok = rebuild_with(p, f, key, head, value);
    else if (f->how == NODE_FITS && f->found)
        ok = entry_replace(p, f->index, key, head, value);
    else if (f->how == NODE_FITS)
        ok = entry_insert(p, f->index, key, head, value);
    if (ok && !f->found)
        hint_inserted(p, f->index);
    return ok;
}

bool
node_put_fit(uint8_t *p, const struct node_fit *f, struct bt_slice key, struct bt_slice value,
             unsigned flags)
{
    uint8_t head[NODE_LEAF_ENTRY];

    ch_put16(head, (uint16_t)(value.bytes | ((flags & BT_REF) != 0 ? NODE_REF : 0)));
    return put(p, f, key, head, value);
}

bool
node_put(uint8_t *p, struct bt_slice key, struct bt_slice value, unsigned flags)
{
    struct node_fit f;

    if (!node_sane(p) || !is_leaf(p) || key.bytes > COHORT_KEY_MAX ||
        key.bytes + value.bytes > BT_ENTRY_MAX)
        return false;
    f = node_fit(p, key, value.bytes);
    return node_put_fit(p, &f, key, value, flags);
}

bool
node_ghost(uint8_t *p, unsigned i)
{
    struct node_view v = node_look(p);
    struct node_entry e;
    unsigned dead = load16(p, NODE_OFF_DEAD);

    if (!node_sane(p) || !v.leaf || i >= v.count)
        return false;
    e = node_entry_at(&v, i);
    if (e.head == NULL || dead + e.value_bytes > CH_PAGE_BYTES - load16(p, NODE_OFF_HEAP))
        return false;
    if (e.ghost)
        return true;
    ch_put16(p + (e.head - p), 0);
    store16(p, NODE_OFF_DEAD, dead + (unsigned)e.value_bytes);
    ghost_mark(p, i, true);
    return true;
}

bool
node_add_child(uint8_t *p, struct bt_slice key, page_id child)
{
    struct node_fit f;
    uint8_t head[NODE_INNER_ENTRY];

    if (!node_sane(p) || is_leaf(p) || key.bytes > COHORT_KEY_MAX)
        return false;
    f = node_fit(p, key, 0);
    ch_put48(head, child);
    return !f.found && put(p, &f, key, head, (struct bt_slice){NULL, 0});
}

void
node_set_leftmost(uint8_t *p, page_id child)
{
    CH_ASSERT(!is_leaf(p));
    ch_put48(p + NODE_LEAF_BODY, child);
}

bool
node_del(uint8_t *p, unsigned i)
{
    struct node_view v = node_look(p);
    struct node_entry e;
    uint8_t *slot = p + v.slots + i * NODE_SLOT_BYTES;
    unsigned dead = load16(p, NODE_OFF_DEAD);

    if (!node_sane(p) || i >= v.count)
        return false;
    e = node_entry_at(&v, i);
    if (e.head == NULL || dead + e.bytes > CH_PAGE_BYTES - load16(p, NODE_OFF_HEAP))
        return false;
    if (e.ghost)
        ghost_mark(p, i, false);
    memmove(slot, slot + NODE_SLOT_BYTES, (v.count - i - 1) * NODE_SLOT_BYTES);
    store16(p, NODE_OFF_COUNT, v.count - 1);
    store16(p, NODE_OFF_DEAD, dead + (unsigned)e.bytes);
    hint_removed(p, i);
    if (v.count == 1)
        return node_start(p, NULL, 0);
    return true;
}

/* The prefix for a copy of entries [a, b): the longest, unless its padding costs few entries more than it saves them.
 * So a copy never takes more than the entries took where they are. */
static size_t
copy_prefix(const struct node_view *v, unsigned a, unsigned b)
{
    size_t n = node_common_range(v, a, b, NULL);

    if (n > v->prefix &&
        node_pad((unsigned)n) - node_pad(v->prefix) > (size_t)(b - a) * (n - v->prefix))
        n = ch_max_u64(v->prefix, n & ~(size_t)3);
    return n;
}

bool
node_copy(uint8_t *dst, const uint8_t *src, unsigned a, unsigned b)
{
    uint8_t key[COHORT_KEY_MAX];
    struct node_view v = node_look(src);
    size_t n;
    bool ok;

    if (a > b || b > v.count || !node_sane(src))
        return false;
    n = copy_prefix(&v, a, b);
    if (n > 0 && node_key(src, a, key) < n)
        return false;
    ok = node_start(dst, key, n);
    for (unsigned i = a; ok && i < b; i++)
        ok = node_append_from(dst, &v, i);
    return ok;
}

bool
node_cut(uint8_t *p, unsigned k)
{
    _Alignas(8) uint8_t old[CH_PAGE_BYTES];

    if (!node_sane(p))
        return false;
    memcpy(old, p, sizeof(old));
    /* A run that is cut off from what lay behind it goes on. */
    if (k == node_count(p) || (load16(p, NODE_OFF_HINT) & 1023) >= k)
        store16(p, NODE_OFF_HINT, 0);
    return node_copy(p, old, 0, k);
}
