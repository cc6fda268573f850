/* node_test.c - one page against a sorted array: all shapes of keys, splits, merges, hostile bytes;
 * and log records. */
#include <stdio.h>
#include <stdlib.h>

#include "btree/change.h"
#include "btree/node.h"
#include "btree/undo.h"
#include "ver/ver.h"
#include "zt/zt.h"

enum {
    MODEL_MAX = 600,
    STEPS = 1500,
    TREE = 7,
    GUARD = 64
};

struct entry {
    uint8_t data[COHORT_ENTRY_MAX]; /* key, value */
    size_t key_bytes, value_bytes;
    page_id child;
    unsigned flags;
    bool ghost;
};
struct model {
    struct entry *e; /* sorted */
    unsigned n;
};

static struct entry pool[3][MODEL_MAX];

static struct bt_slice
key_of(const struct entry *e)
{
    return (struct bt_slice){e->data, e->key_bytes};
}

static struct bt_slice
value_of(const struct entry *e)
{
    return (struct bt_slice){e->data + e->key_bytes, e->value_bytes};
}

static unsigned
model_find(const struct model *m, struct bt_slice key, bool *found)
{
    unsigned i = 0;

    while (i < m->n && node_compare(key_of(&m->e[i]), key) < 0)
        i++;
    *found = i < m->n && node_compare(key_of(&m->e[i]), key) == 0;
    return i;
}

static void
model_put(struct model *m, const struct entry *e)
{
    bool found;
    unsigned i = model_find(m, key_of(e), &found);

    if (!found) {
        memmove(&m->e[i + 1], &m->e[i], (m->n - i) * sizeof(*e));
        m->n++;
    }
    m->e[i] = *e;
}

static void
model_del(struct model *m, unsigned i)
{
    memmove(&m->e[i], &m->e[i + 1], (m->n - i - 1) * sizeof(m->e[0]));
    m->n--;
}

/* Shapes: 0 short binary, 1 decimal with a shared prefix, 2 long ones that differ at the very end,
 * 3 few letters, 4 any length, 5 zeroes of different lengths (the empty key among them). */
static void
random_entry(struct zt *t, unsigned shape, struct entry *e)
{
    size_t n = 0;

    memset(e->data, 0, 16);
    switch (shape) {
    case 0:
        n = zt_below(t, 6);
        ch_prng_fill(&t->rng, e->data, n);
        break;
    case 1:
        n = (size_t)snprintf((char *)e->data, 64, "tenant/0042/user/%08u",
                             (unsigned)zt_below(t, 100000));
        break;
    case 2:
        n = COHORT_KEY_MAX - zt_below(t, 2);
        memset(e->data, 'k', n);
        e->data[n - 1] = (uint8_t)zt_below(t, 256);
        break;
    case 3:
        n = zt_below(t, 9);
        for (size_t i = 0; i < n; i++)
            e->data[i] = (uint8_t)("ab\0\xff"[zt_below(t, 4)]);
        break;
    case 4:
        n = zt_below(t, zt_below(t, 4) == 0 ? COHORT_KEY_MAX + 1 : 40);
        ch_prng_fill(&t->rng, e->data, n);
        break;
    default:
        n = zt_below(t, 12);
        memset(e->data, 0, n);
        break;
    }
    e->key_bytes = n;
    e->value_bytes = zt_below(t, zt_below(t, 8) == 0 ? COHORT_ENTRY_MAX - n + 1
                                                     : 1 + (COHORT_ENTRY_MAX - n) / 16);
    memset(e->data + n, (int)zt_below(t, 256), e->value_bytes);
    e->child = 1 + zt_below(t, CH_PAGE_ID_MAX);
    e->flags = zt_below(t, 4) == 0 ? BT_REF : 0;
    e->ghost = false;
}

/* Entry i becomes a ghost on the page and in the model. */
static void
make_ghost(struct zt *t, uint8_t *p, struct model *m, unsigned i)
{
    ZT_CHECK(t, node_ghost(p, i));
    m->e[i].ghost = true;
    m->e[i].value_bytes = 0;
    m->e[i].flags = 0;
}

static void
compare_all(struct zt *t, const uint8_t *p, const struct model *m, bool leaf)
{
    uint8_t key[COHORT_KEY_MAX];
    const char *wrong = node_check(p);
    unsigned ghosts = 0;
    bool found;

    if (wrong != NULL)
        fprintf(stderr, "%s\n", wrong);
    ZT_CHECK(t, wrong == NULL && node_count(p) == m->n);
    for (unsigned i = 0; i < m->n; i++) {
        const struct entry *e = &m->e[i];
        size_t n = node_key(p, i, key);

        ZT_CHECK(t, node_compare(key_of(e), (struct bt_slice){key, n}) == 0);
        ZT_CHECK(t, node_search(p, key_of(e), &found) == i && found);
        ghosts += e->ghost;
        ZT_CHECK(t, node_is_ghost(p, i) == e->ghost);
        if (leaf)
            ZT_CHECK(t, node_compare(value_of(e), node_value(p, i)) == 0 &&
                            node_flags(p, i) == e->flags);
        else
            ZT_CHECK(t, node_child(p, i + 1) == e->child);
    }
    ZT_CHECK(t, node_ghosts(p) == ghosts);
}

static void
compare_search(struct zt *t, const uint8_t *p, const struct model *m, struct bt_slice key)
{
    bool found, want;
    unsigned i = model_find(m, key, &want);

    ZT_CHECK(t, node_search(p, key, &found) == i && found == want);
    ZT_CHECK(t, node_child_index(p, key, false) == i + (want ? 1 : 0));
    ZT_CHECK(t, node_child_index(p, key, true) == i);
}

/* Bytes of the model's entries and `add` on one page without any prefix: a page that refuses holds
 * more. */
static size_t
model_bytes(const struct model *m, unsigned head)
{
    size_t sum = 0;

    for (unsigned i = 0; i < m->n; i++)
        sum += NODE_SLOT_BYTES + head + m->e[i].key_bytes + m->e[i].value_bytes;
    return sum;
}

/* Goal: a leaf is a sorted map that refuses only what does not fit, and its layout is always whole.
 * Method: random puts and deletes of one shape or a mix of them against the model. */
static void
test_leaf_is_a_map(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES + GUARD];
    struct model m = {pool[0], 0};
    struct entry e;
    unsigned shape = (unsigned)zt_below(t, 7);
    bool found;

    memset(p + CH_PAGE_BYTES, 0xa5, GUARD);
    node_init(p, 9, 0, TREE);
    for (unsigned step = 0; step < STEPS; step++) {
        random_entry(t, shape == 6 ? (unsigned)zt_below(t, 6) : shape, &e);
        compare_search(t, p, &m, key_of(&e));
        if (zt_below(t, 3) == 0 && m.n > 0) {
            unsigned i = (unsigned)zt_below(t, m.n);

            ZT_CHECK(t, node_del(p, i));
            model_del(&m, i);
        } else if (zt_below(t, 4) == 0 && m.n > 0) {
            make_ghost(t, p, &m, (unsigned)zt_below(t, m.n));
        } else if (node_put(p, key_of(&e), value_of(&e), e.flags)) {
            model_put(&m, &e);
        } else {
            unsigned i = model_find(&m, key_of(&e), &found);
            if (found)
                model_del(&m, i);
            model_put(&m, &e);
            ZT_CHECK(t, model_bytes(&m, NODE_LEAF_ENTRY) > NODE_CAPACITY - 4);
            ZT_CHECK(t, m.n > 2); /* N5 */
            /* The replaced entry is still there: begin anew from what the page holds. */
            node_init(p, 9, 0, TREE);
            m.n = 0;
        }
        if (step % 8 == 0)
            compare_all(t, p, &m, true);
    }
    compare_all(t, p, &m, true);
    for (unsigned i = 0; i < GUARD; i++)
        ZT_CHECK(t, p[CH_PAGE_BYTES + i] == 0xa5);
}

/* Goal: the same for inner nodes, children included. */
static void
test_inner_is_a_map(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES];
    struct model m = {pool[0], 0};
    struct entry e;
    unsigned shape = (unsigned)zt_below(t, 6);
    bool found;

    node_init(p, 9, 1, TREE);
    node_set_leftmost(p, 77);
    for (unsigned step = 0; step < STEPS; step++) {
        random_entry(t, shape, &e);
        e.value_bytes = 0;
        (void)model_find(&m, key_of(&e), &found);
        if (zt_below(t, 3) == 0 && m.n > 0) {
            unsigned i = (unsigned)zt_below(t, m.n);

            ZT_CHECK(t, node_del(p, i));
            model_del(&m, i);
        } else if (found) {
            ZT_CHECK(t, !node_add_child(p, key_of(&e), e.child));
        } else if (node_add_child(p, key_of(&e), e.child)) {
            model_put(&m, &e);
        } else {
            model_put(&m, &e);
            ZT_CHECK(t, model_bytes(&m, NODE_INNER_ENTRY) > NODE_CAPACITY - 12 && m.n > 2);
            model_del(&m, model_find(&m, key_of(&e), &found));
            ZT_CHECK(t, node_cut(p, 1));
            m.n = 1;
        }
        ZT_CHECK(t, node_child(p, 0) == 77);
        if (step % 8 == 0)
            compare_all(t, p, &m, false);
    }
}

/* Goal: many keys with a long common prefix fit where they could not without truncation. */
static void
test_prefix_truncation(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES];
    struct model m = {pool[0], 0};
    struct entry e;
    struct bt_slice other = {"z", 1};
    struct node_split s;

    node_init(p, 9, 0, TREE);
    for (unsigned i = 0; i < 64; i++) {
        memset(e.data, 'k', COHORT_KEY_MAX);
        e.data[COHORT_KEY_MAX - 1] = (uint8_t)(i * 37 % 64);
        e.key_bytes = COHORT_KEY_MAX;
        e.value_bytes = 8;
        e.flags = 0;
        e.ghost = false;
        memset(e.data + e.key_bytes, (int)i, 8);
        ZT_CHECK(t, node_put(p, key_of(&e), value_of(&e), e.flags));
        model_put(&m, &e);
    }
    compare_all(t, p, &m, true);
    ZT_CHECK(t, node_fit(p, other, 0).how == NODE_FULL);
    node_split_plan(p, other, 0, &s); /* a page of its own, else every half would refuse it again */
    ZT_CHECK(t, s.at == m.n && node_compare((struct bt_slice){s.sep, s.sep_bytes}, other) <= 0);
    while (m.n > 1) {
        ZT_CHECK(t, node_del(p, 0));
        model_del(&m, 0);
    }
    ZT_CHECK(t, node_fit(p, other, 0).how == NODE_FITS_REBUILT);
    ZT_CHECK(t, node_put(p, other, (struct bt_slice){NULL, 0}, 0));
    e = (struct entry){.key_bytes = 1, .data = "z"};
    model_put(&m, &e);
    compare_all(t, p, &m, true);
}

/* Goal: a split puts each entry on the side its separator says, makes progress, and both halves are
 * whole; merging them restores the page's contents. Method: fill a page with one shape, split it
 * for the key that did not fit. */
static void
test_split_and_merge(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES], q[CH_PAGE_BYTES], both[CH_PAGE_BYTES];
    struct model all = {pool[0], 0}, l = {pool[1], 0}, r = {pool[2], 0};
    struct node_split s;
    struct entry e;
    bool leaf = zt_below(t, 2) == 0, found, ok = true;
    unsigned shape = (unsigned)zt_below(t, 5);

    node_init(p, 9, leaf ? 0 : 3, TREE);
    if (!leaf)
        node_set_leftmost(p, 77);
    for (;;) {
        random_entry(t, shape, &e);
        if (!leaf)
            e.value_bytes = 0;
        (void)model_find(&all, key_of(&e), &found);
        if (found && !leaf)
            continue;
        ok = leaf ? node_put(p, key_of(&e), value_of(&e), e.flags)
                  : node_add_child(p, key_of(&e), e.child);
        if (!ok)
            break;
        model_put(&all, &e);
        if (leaf && zt_below(t, 4) == 0)
            make_ghost(t, p, &all, (unsigned)zt_below(t, all.n));
        if (all.n == MODEL_MAX - 1 || (shape == 2 && all.n > 200))
            return; /* tiny keys that never fill a page */
    }
    node_split_plan(p, key_of(&e), e.value_bytes, &s);
    memcpy(both, p, sizeof(both));
    node_init(q, 10, page_level(p), TREE);
    ZT_CHECK(t, node_split_right(q, p, &s) && node_cut(p, s.at));
    for (unsigned i = 0; i < all.n; i++) {
        if (i < s.at)
            model_put(&l, &all.e[i]);
        else if (leaf || i > s.at)
            model_put(&r, &all.e[i]);
    }
    compare_all(t, p, &l, leaf);
    compare_all(t, q, &r, leaf);
    ZT_CHECK(t, leaf || (node_child(q, 0) == all.e[s.at].child && node_child(p, 0) == 77));
    struct bt_slice sep = {s.sep, s.sep_bytes};
    ZT_CHECK(t, l.n == 0 || node_compare(key_of(&l.e[l.n - 1]), sep) < 0);
    ZT_CHECK(t, r.n == 0 || node_compare(sep, key_of(&r.e[0])) <= 0);
    ZT_CHECK(t, leaf || node_compare(sep, key_of(&all.e[s.at])) == 0);
    /* One side is smaller; an empty one is where the key goes. */
    ZT_CHECK(t, (l.n > 0 && r.n > 0) || !leaf || (node_compare(key_of(&e), sep) < 0) == (l.n == 0));

    node_init(both, 9, page_level(p), TREE);
    ZT_CHECK(t, node_merged_used(p, sep, q) <= NODE_CAPACITY - (leaf ? 0 : 8) || !leaf);
    if (node_merged_used(p, sep, q) <= NODE_CAPACITY - (leaf ? 0 : 8)) {
        ZT_CHECK(t, node_merge(both, p, sep, q));
        ZT_CHECK(t, node_used(both) == node_merged_used(p, sep, q));
        compare_all(t, both, &all, leaf);
    }
}

/* Goal: after enough splits any key fits: no endless loop for keys that share nothing with a page
 * of long prefixes. */
static void
test_splits_end(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES], q[CH_PAGE_BYTES];
    struct node_split s;
    struct entry e;
    unsigned splits = 0;

    for (unsigned round = 0; round < 20; round++) {
        node_init(p, 9, 0, TREE);
        for (unsigned i = 0; i < 300; i++) {
            random_entry(t, (unsigned)zt_below(t, 6), &e);
            for (splits = 0; !node_put(p, key_of(&e), value_of(&e), e.flags); splits++) {
                ZT_CHECK(t, splits < 16);
                node_split_plan(p, key_of(&e), e.value_bytes, &s);
                node_init(q, 10, 0, TREE);
                ZT_CHECK(t, node_split_right(q, p, &s) && node_cut(p, s.at));
                if (node_compare((struct bt_slice){s.sep, s.sep_bytes}, key_of(&e)) <= 0)
                    memcpy(p, q, sizeof(p));
            }
        }
    }
}

/* Goal: runs leave full pages behind. Method: ascending and descending keys; fill of what is left
 * behind at each split. */
static void
test_runs_fill_pages(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES], q[CH_PAGE_BYTES];
    bool up = zt_below(t, 2) == 0, left;
    size_t value = zt_below(t, 300), used = 0;
    unsigned pages = 0, at = 500000;
    struct node_split s;
    struct entry e;

    node_init(p, 9, 0, TREE);
    for (unsigned i = 0; i < 3000; i++) {
        at += up ? 1 + (unsigned)zt_below(t, 9) : -1 - (unsigned)zt_below(t, 9);
        e.key_bytes = (size_t)snprintf((char *)e.data, 64, "row%012u", at);
        e.value_bytes = value;
        memset(e.data + e.key_bytes, 1, value);
        while (!node_put(p, key_of(&e), value_of(&e), 0)) {
            node_split_plan(p, key_of(&e), e.value_bytes, &s);
            node_init(q, 10, 0, TREE);
            if (zt_below(t, 2) == 0) { /* a root that was pushed down remembers the run */
                node_init(q, 10, 0, TREE);
                ZT_CHECK(t, node_adopt(q, p));
                node_split_plan(q, key_of(&e), e.value_bytes, &s);
                node_init(q, 10, 0, TREE);
            }
            ZT_CHECK(t, node_split_right(q, p, &s) && node_cut(p, s.at));
            left = node_compare(key_of(&e), (struct bt_slice){s.sep, s.sep_bytes}) < 0;
            used += node_used(left ? q : p);
            pages++;
            if (!left)
                memcpy(p, q, sizeof(p));
        }
    }
    ZT_CHECK(t, pages > 2 && used * 10 > (size_t)pages * NODE_CAPACITY * 9);
}

static void
poke(struct zt *t, uint8_t *p)
{
    unsigned n = 1 + (unsigned)zt_below(t, 12);

    for (unsigned i = 0; i < n; i++) {
        unsigned at = zt_below(t, 2) == 0 ? 48 + (unsigned)zt_below(t, 64)
                                          : (unsigned)zt_below(t, CH_PAGE_BYTES);

        p[at] = (uint8_t)ch_prng_next(&t->rng);
    }
    if (zt_below(t, 4) == 0)
        ch_prng_fill(&t->rng, p + 48, CH_PAGE_BYTES - 48);
    p[7] = zt_below(t, 8) == 0 ? p[7] : (uint8_t)(zt_below(t, 2) == 0 ? PAGE_LEAF : PAGE_INNER);
    p[14] = p[7] == PAGE_LEAF ? 0 : 1;
}

/* Goal: no bytes make a reader or a changer leave the page or hang. Method: damage, then every
 * function; the guard behind the page and the sanitizers watch. */
static void
test_hostile_pages(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES + GUARD];
    _Alignas(8) uint8_t q[CH_PAGE_BYTES], copy[CH_PAGE_BYTES];
    uint8_t key[COHORT_KEY_MAX];
    struct entry e;
    bool found;

    memset(p + CH_PAGE_BYTES, 0xa5, GUARD);
    node_init(p, 9, 0, TREE);
    for (unsigned step = 0; step < 3000; step++) {
        random_entry(t, (unsigned)zt_below(t, 6), &e);
        if (step % 20 == 0) {
            node_init(p, 9, (uint8_t)zt_below(t, 2), TREE);
        } else if (step % 20 == 12 || zt_below(t, 4) == 0) {
            poke(t, p);
        }
        (void)node_search(p, key_of(&e), &found);
        (void)node_child(p, node_child_index(p, key_of(&e), false));
        ZT_CHECK(t, node_key(p, (unsigned)zt_below(t, 600), key) <= COHORT_KEY_MAX);
        struct bt_slice v = node_value(p, (unsigned)zt_below(t, 600));
        ZT_CHECK(t, (const uint8_t *)v.data >= p &&
                        (const uint8_t *)v.data + v.bytes <= p + CH_PAGE_BYTES);
        (void)node_check(p);
        memcpy(copy, p, sizeof(copy));
        (void)node_put(p, key_of(&e), value_of(&e), e.flags);
        (void)node_ghost(p, (unsigned)zt_below(t, 20));
        (void)node_is_ghost(p, (unsigned)zt_below(t, 600));
        (void)node_flags(p, (unsigned)zt_below(t, 600));
        (void)node_add_child(p, key_of(&e), 5);
        (void)node_del(p, (unsigned)zt_below(t, 8));
        if (zt_below(t, 16) == 0) {
            node_init(q, 4, page_level(copy), TREE);
            (void)node_copy(q, copy, 0, node_count(copy) / 2);
            (void)node_cut(p, (unsigned)zt_below(t, 20));
            node_init(q, 4, page_level(copy), TREE);
            (void)node_merge(q, copy, key_of(&e), copy);
        }
        for (unsigned i = 0; i < GUARD; i++)
            ZT_CHECK(t, p[CH_PAGE_BYTES + i] == 0xa5);
    }
}

/* ---- records ---- */

/* A record with every kind of operation for pages 1 (leaf), 2 (inner), 3 (image), 4 (freed). */
static size_t
sample_record(struct zt *t, uint8_t *buf, size_t room)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES];
    struct change c;
    struct entry e;

    change_begin(&c, buf, room);
    change_page(&c, 1);
    random_entry(t, 1, &e);
    change_put(&c, key_of(&e), value_of(&e), e.flags);
    change_del(&c, key_of(&e));
    change_put(&c, (struct bt_slice){"gone", 4}, value_of(&e), e.flags);
    change_ghost(&c, (struct bt_slice){"gone", 4});
    change_page(&c, 2);
    random_entry(t, 4, &e);
    change_add_child(&c, key_of(&e), 99);
    change_del_child(&c, 0);
    change_cut(&c, 0);
    change_page(&c, 3);
    node_init(p, 3, 0, TREE);
    for (unsigned i = 0; i < 20; i++) {
        random_entry(t, 0, &e);
        (void)node_put(p, key_of(&e), value_of(&e), e.flags);
    }
    (void)node_ghost(p, 0);
    change_image(&c, p);
    change_page(&c, 4);
    change_free(&c);
    return c.bytes;
}

/* Applies all groups to pages 1..4; the first error. */
static int
apply_all(const uint8_t *rec, size_t n, uint8_t pages[5][CH_PAGE_BYTES], lsn_t lsn)
{
    struct change_reader r;
    struct change_group g;
    int rc = change_open(&r, rec, n);

    while (rc == 0) {
        rc = change_next(&r, &g);
        if (rc == COHORT_NOTFOUND)
            return 0;
        if (rc == 0)
            rc = change_apply(pages[g.pid > 4 ? 0 : g.pid], &g, lsn);
    }
    return rc;
}

static void
fresh_pages(uint8_t pages[5][CH_PAGE_BYTES])
{
    for (unsigned i = 0; i < 5; i++)
        node_init(pages[i], i, i == 2 ? 1 : 0, TREE);
    node_set_leftmost(pages[2], 50);
}

/* Goal: what is built is what is applied: LSNs, contents, image bytes; and the same twice gives the
 * same bytes (N4). */
static void
test_record_round_trip(struct zt *t)
{
    static _Alignas(8) uint8_t a[5][CH_PAGE_BYTES], b[5][CH_PAGE_BYTES];
    uint8_t rec[CHANGE_BYTES_MAX];
    size_t n = sample_record(t, rec, sizeof(rec));

    fresh_pages(a);
    fresh_pages(b);
    memset(b[3] + 64, 0xee, CH_PAGE_BYTES - 64); /* an image does not care what was there */
    ZT_OK(t, apply_all(rec, n, a, 1234));
    ZT_OK(t, apply_all(rec, n, b, 1234));
    for (unsigned i = 1; i < 5; i++) {
        ZT_CHECK(t, memcmp(a[i], b[i], CH_PAGE_BYTES) == 0);
        ZT_CHECK(t, page_lsn(a[i]) == 1234 && page_pid(a[i]) == i);
    }
    /* Inner pages have no user entries. */
    ZT_CHECK(t, page_write_lsn(a[1]) == 1234 && page_write_lsn(a[2]) == 0);
    ZT_CHECK(t, node_count(a[1]) == 1 && node_ghosts(a[1]) == 1 && node_is_ghost(a[1], 0));
    ZT_CHECK(t, node_count(a[2]) == 0 && node_count(a[3]) > 0 && node_ghosts(a[3]) > 0);
    ZT_CHECK(t, page_type(a[4]) == PAGE_FREE && node_child(a[2], 0) == 50);
}

/* C1: an image behind other operations, a free beside them. */
static void
refuse_order(struct zt *t)
{
    _Alignas(8) uint8_t p[CH_PAGE_BYTES];
    uint8_t rec[CHANGE_BYTES_MAX];
    struct bt_slice key = {"key", 3};
    struct change_reader r;
    struct change c;

    node_init(p, 3, 0, TREE);
    for (unsigned i = 0; i < 2; i++) {
        change_begin(&c, rec, sizeof(rec));
        change_page(&c, 3);
        change_put(&c, key, key, 0);
        if (i == 0)
            change_image(&c, p);
        else
            change_free(&c);
        ZT_STATUS(t, change_open(&r, rec, c.bytes), COHORT_ELOG);
    }
}

/* A WRITE or UNDO record around one PUT or GHOST; `l` says what is in its head. */
static size_t
headed_record(uint8_t type, const struct bt_logged *l, bool ghost, uint8_t *rec, size_t room)
{
    size_t n = change_head(type, l, rec);
    struct change c;

    if (l->before.bytes > 0)
        memcpy(rec + n, l->before.data, l->before.bytes);
    n += l->before.bytes;
    change_begin(&c, rec + n, room - n);
    change_page(&c, 5);
    if (ghost)
        change_ghost(&c, l->key);
    else
        change_put(&c, l->key, (struct bt_slice){"v", 1}, BT_REF);
    return n + c.bytes;
}

/* Goal: what a transaction's records say about it comes back; heads that no writer makes, and records of more than one
 * write, are refused (C4). */
static void
test_record_heads(struct zt *t)
{
    uint8_t rec[CHANGE_BYTES_MAX];
    struct entry key, old;
    struct bt_logged l = {0}, got;
    bool undo = zt_below(t, 2) == 0, ghost = zt_below(t, 2) == 0;
    uint8_t type = undo ? BT_RECORD_UNDO : BT_RECORD_WRITE;
    size_t n;

    random_entry(t, 4, &key);
    random_entry(t, 4, &old);
    l.txn = ch_prng_next(&t->rng);
    l.seq = 1 + zt_below(t, 1000);
    l.key = key_of(&key);
    if (!undo) {
        l.tree = (uint32_t)ch_prng_next(&t->rng);
        l.kind = (unsigned)zt_below(t, 3);
        l.seq = l.kind == 0 ? 0 : l.seq;
        if (l.kind == VER_WAS_VALUE) {
            l.before = value_of(&old);
            l.flags = old.flags;
        }
    }
    n = headed_record(type, &l, ghost, rec, sizeof(rec));
    ZT_OK(t, bt_record_read(type, rec, (uint32_t)n, &got));
    ZT_CHECK(t, got.txn == l.txn && got.seq == l.seq && got.tree == l.tree && got.kind == l.kind &&
                    got.flags == l.flags);
    ZT_CHECK(t, node_compare(got.key, l.key) == 0 && node_compare(got.before, l.before) == 0);
    for (size_t k = 0; k < n; k++)
        ZT_STATUS(t, bt_record_read(type, rec, (uint32_t)k, &got), COHORT_ELOG);
    ZT_STATUS(t, bt_record_read(BT_RECORD_PAGES, rec, (uint32_t)n, &got), COHORT_ELOG);
    if (!undo) {
        rec[20] = (uint8_t)(l.kind == 0 ? VER_WAS_ABSENT : 0);
        ZT_STATUS(t, bt_record_read(type, rec, (uint32_t)n, &got), COHORT_ELOG);
        rec[20] = VER_WAS_LOCK;
        ZT_STATUS(t, bt_record_read(type, rec, (uint32_t)n, &got), COHORT_ELOG);
    } else {
        n = CHANGE_UNDO_HEAD + sample_record(t, rec + CHANGE_UNDO_HEAD, sizeof(rec) - 64);
        ZT_STATUS(t, bt_record_read(type, rec, (uint32_t)n, &got), COHORT_ELOG);
        ZT_STATUS(t, bt_redo(NULL, type, 1000, rec, (uint32_t)n),
                  COHORT_ELOG); /* before any page */
    }
}

/* Goal: entries of the undo tree come back whole, in the order of their keys; malformed ones are refused. */
static void
test_undo_entries(struct zt *t)
{
    uint8_t value[BT_ENTRY_MAX], a[UNDO_KEY_BYTES], b[UNDO_KEY_BYTES];
    struct undo_entry e = {.kind = VER_WAS_VALUE, .tree = 9}, got;
    uint64_t txn = ch_prng_next(&t->rng), seq = zt_below(t, 1000);
    struct entry x;
    size_t n;

    random_entry(t, 4, &x);
    e.key = key_of(&x);
    e.before = value_of(&x);
    e.flags = x.flags;
    n = undo_encode(&e, value);
    ZT_CHECK(t, n == UNDO_HEAD_BYTES + x.key_bytes + x.value_bytes);
    ZT_OK(t, undo_decode(value, n, &got));
    ZT_CHECK(t, got.kind == e.kind && got.flags == e.flags && got.tree == 9 &&
                    node_compare(got.key, e.key) == 0 && node_compare(got.before, e.before) == 0);
    for (size_t k = 0; k < UNDO_HEAD_BYTES + x.key_bytes; k++)
        ZT_STATUS(t, undo_decode(value, k, &got), COHORT_EPAGE);
    value[0] = (uint8_t)(zt_below(t, 2) == 0 ? 0 : VER_WAS_LOCK + 1);
    ZT_STATUS(t, undo_decode(value, n, &got), COHORT_EPAGE);
    value[0] = VER_WAS_ABSENT; /* has no before-image */
    ZT_STATUS(t, undo_decode(value, n, &got), x.value_bytes + x.flags == 0 ? 0 : COHORT_EPAGE);
    undo_key(txn, seq, a);
    undo_key(txn, seq + 1, b);
    ZT_CHECK(t, memcmp(a, b, sizeof(a)) < 0);
    undo_key(txn + 1, 0, b);
    ZT_CHECK(t, txn == UINT64_MAX || memcmp(a, b, sizeof(a)) < 0);
}

/* Goal: each truncation of a record is refused, damage never reads outside of it. */
static void
test_hostile_records(struct zt *t)
{
    static _Alignas(8) uint8_t pages[5][CH_PAGE_BYTES];
    uint8_t rec[CHANGE_BYTES_MAX];
    size_t n = sample_record(t, rec, sizeof(rec));
    struct change_reader r;

    for (size_t k = 0; k < n; k++) {
        uint8_t *exact = malloc(k + 1); /* sanitizers see the end */

        ZT_CHECK(t, exact != NULL);
        memcpy(exact, rec, k);
        ZT_STATUS(t, change_open(&r, exact, k), COHORT_ELOG);
        free(exact);
    }
    refuse_order(t);
    for (unsigned i = 0; i < 400; i++) {
        uint8_t *bad = malloc(n);
        unsigned pokes = 1 + (unsigned)zt_below(t, 3);
        int rc;

        ZT_CHECK(t, bad != NULL);
        memcpy(bad, rec, n);
        for (unsigned k = 0; k < pokes; k++)
            bad[zt_below(t, zt_below(t, 2) == 0 ? 60 : n)] = (uint8_t)ch_prng_next(&t->rng);
        fresh_pages(pages);
        rc = apply_all(bad, n, pages, 99);
        ZT_CHECK(t, rc == 0 || rc == COHORT_ELOG || rc == COHORT_EPAGE);
        free(bad);
    }
}

/* The largest value, if any, with which `key` fits without the page being rebuilt. */
static void
put_largest(struct zt *t, uint8_t *page, struct bt_slice key)
{
    static const uint8_t value[COHORT_ENTRY_MAX];

    for (size_t n = COHORT_ENTRY_MAX - key.bytes; n > 0; n--) {
        if (node_fit(page, key, n).how != NODE_FITS)
            continue;
        ZT_CHECK(t, node_put(page, key, (struct bt_slice){value, n}, 0));
        return;
    }
}

/* Goal: entries can always be copied to an empty page: a split, a cut and a new root can't fail for want of room.
 * Method: few large entries that fill the page to the byte, their common prefix longer than the page's. */
static void
test_copies_fit(struct zt *t)
{
    static const char tails[] = "abcd";
    _Alignas(8) uint8_t page[CH_PAGE_BYTES], copy[CH_PAGE_BYTES];
    size_t same = 1 + zt_below(t, 3); /* bytes that all keys begin with */

    node_init(page, 7, 0, 1);
    for (unsigned step = 0; step < 3000; step++) {
        char text[8];
        size_t n = same + 1 + zt_below(t, sizeof(text) - same);
        bool found;
        unsigned at;

        for (size_t i = 0; i < n; i++)
            text[i] = i < same ? 'p' : tails[zt_below(t, 4)];
        if (node_count(page) > 2 && zt_below(t, 2) == 0)
            ZT_CHECK(t, node_del(page, (unsigned)zt_below(t, node_count(page))));
        put_largest(t, page, (struct bt_slice){text, n});
        node_init(copy, 8, 0, 1);
        ZT_CHECK(t, node_copy(copy, page, 0, node_count(page)));
        ZT_CHECK(t, node_check(copy) == NULL && node_count(copy) == node_count(page));
        at = node_search(page, (struct bt_slice){text, n}, &found);
        ZT_CHECK(t, !found || node_value(copy, at).bytes == node_value(page, at).bytes);
        memcpy(copy, page, sizeof(copy));
        ZT_CHECK(t, node_cut(copy, (unsigned)zt_below(t, node_count(page) + 1u)));
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"leaf_is_a_map", test_leaf_is_a_map, 40},
        {"inner_is_a_map", test_inner_is_a_map, 20},
        {"prefix_truncation", test_prefix_truncation, 1},
        {"split_and_merge", test_split_and_merge, 200},
        {"splits_end", test_splits_end, 10},
        {"runs_fill_pages", test_runs_fill_pages, 20},
        {"copies_fit", test_copies_fit, 10},
        {"hostile_pages", test_hostile_pages, 30},
        {"record_round_trip", test_record_round_trip, 10},
        {"record_heads", test_record_heads, 30},
        {"undo_entries", test_undo_entries, 20},
        {"hostile_records", test_hostile_records, 5},
    };

    return zt_main(argc, argv, "node", cases, CH_ARRAY_LEN(cases));
}
