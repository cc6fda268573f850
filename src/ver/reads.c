/* reads.c - serializable transactions: what they have read, and whether somebody has written into it.
 *
 * A set of ranges {tree, from, to}, in two parts: `sorted`, disjoint and in order of (tree, from), and a short
 * unsorted `tail` behind it that is merged in when it is full.
 *
 * Invariants:
 *   D1  every key that was added lies in a range: joining only makes ranges larger.
 *   D2  at most RANGES_MAX ranges with KEYS_MAX bytes of keys. Beyond that neighbours of a tree are
 *       joined, two by two, until half is left; where that does not help (too many trees) the set becomes `all`.
 *   D3  validation holds trim_lock while it looks at a writer's list, and pins the writer that it stands
 *       at while it lets go. Its view is published, so the queue keeps what it must find (P3); a
 *       view that was killed is told so before anything is concluded.
 *   D4  prepared transactions have an order too: that of their commits, which nothing can refuse. So one that has
 *       read what another prepared one has written is refused itself, at its prepare. `prepared` changes under
 *       guard_lock; a writer leaves it before its commit ends or its undo begins, so its list stands still.
 */
#include "ver/ver_internal.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    TAIL_MAX = 32,
    RANGES_MAX = 8192,
    KEYS_MAX = 1 << 20,
    CHUNK = 1024, /* entries that validation looks at in one hold of trim_lock */
};

struct bound { /* NULL data: open, no begin or no end */
    uint8_t *data;
    size_t bytes;
};
struct range {
    uint32_t tree;
    struct bound from, to; /* of one key: the same memory */
};
struct ver_reads {
    struct range *ranges; /* sorted[0 .. sorted), tail[sorted .. count) */
    size_t sorted, count, capacity;
    size_t key_bytes;
    bool all;
};

/* ---- ranges ---------------------------------------------------------------------------------------- */

static int
key_compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    size_t n = a_bytes < b_bytes ? a_bytes : b_bytes;
    int c = n > 0 ? memcmp(a, b, n) : 0;

    return c != 0 ? c : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* Of the begins of two ranges of one tree. */
static int
from_compare(const struct range *a, const struct range *b)
{
    if (a->from.data == NULL || b->from.data == NULL)
        return (a->from.data != NULL) - (b->from.data != NULL);
    return key_compare(a->from.data, a->from.bytes, b->from.data, b->from.bytes);
}

static int
range_compare(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return from_compare(x, y);
}

static bool
range_has(const struct range *r, struct ver_key key)
{
    return r->tree == key.tree &&
           (r->from.data == NULL ||
            key_compare(r->from.data, r->from.bytes, key.data, key.bytes) <= 0) &&
           (r->to.data == NULL || key_compare(key.data, key.bytes, r->to.data, r->to.bytes) <= 0);
}

/* b begins within a, or at its end. Of one tree, a not behind b. */
static bool
touches(const struct range *a, const struct range *b)
{
    return a->to.data == NULL || b->from.data == NULL ||
           key_compare(b->from.data, b->from.bytes, a->to.data, a->to.bytes) <= 0;
}

static size_t
range_bytes(const struct range *r)
{
    return r->from.bytes + (r->to.data != r->from.data ? r->to.bytes : 0);
}

static void
range_free(struct range *r)
{
    if (r->to.data != r->from.data)
        free(r->to.data);
    free(r->from.data);
}

/* Makes `a` reach to the end of `b`, whose memory is taken. `a` is not behind `b`. */
static void
range_join(struct ver_reads *r, struct range *a, struct range *b)
{
    bool longer =
        a->to.data != NULL &&
        (b->to.data == NULL || key_compare(a->to.data, a->to.bytes, b->to.data, b->to.bytes) < 0);

    r->key_bytes -= range_bytes(a) + range_bytes(b);
    if (longer) {
        if (a->to.data != a->from.data)
            free(a->to.data);
        a->to = b->to;
        if (b->from.data == b->to.data)
            b->from.data = NULL;
        b->to.data = NULL;
    }
    range_free(b);
    r->key_bytes += range_bytes(a);
}

static void
ranges_clear(struct ver_reads *r)
{
    for (size_t i = 0; i < r->count; i++)
        range_free(&r->ranges[i]);
    r->sorted = 0;
    r->count = 0;
    r->key_bytes = 0;
}

/* Merges the sorted tail into the rest, from the end on. */
static void
tail_merge(struct ver_reads *r)
{
    struct range tail[TAIL_MAX + 1];
    size_t left = r->count - r->sorted, at = r->count, sorted = r->sorted;

    memcpy(tail, &r->ranges[sorted], left * sizeof(tail[0]));
    while (left > 0) {
        if (sorted > 0 && range_compare(&r->ranges[sorted - 1], &tail[left - 1]) > 0)
            r->ranges[--at] = r->ranges[--sorted];
        else
            r->ranges[--at] = tail[--left];
    }
}

/* Sorts the tail in and joins what overlaps. */
static void
ranges_sort(struct ver_reads *r)
{
    size_t n = 0;

    if (r->sorted == r->count)
        return;
    CH_ASSERT(r->count - r->sorted <= TAIL_MAX + 1);
    qsort(&r->ranges[r->sorted], r->count - r->sorted, sizeof(r->ranges[0]), range_compare);
    tail_merge(r);
    for (size_t i = 1; i < r->count; i++) {
        struct range *last = &r->ranges[n], *next = &r->ranges[i];

        if (last->tree == next->tree && touches(last, next))
            range_join(r, last, next);
        else
            r->ranges[++n] = *next;
    }
    r->count = n + 1;
    r->sorted = r->count;
}

/* D2: one pass joins each second range with its neighbour of the same tree. */
static void
ranges_halve(struct ver_reads *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->count; n++) {
        struct range *a = &r->ranges[i];

        r->ranges[n] = *a;
        i++;
        if (i < r->count && r->ranges[i].tree == r->ranges[n].tree) {
            range_join(r, &r->ranges[n], &r->ranges[i]);
            i++;
        }
    }
    r->count = n;
    r->sorted = n;
}

static void
ranges_bound(struct ver_reads *r)
{
    size_t before = SIZE_MAX;

    if (r->count <= RANGES_MAX && r->key_bytes <= KEYS_MAX)
        return;
    while ((r->count > RANGES_MAX / 2 || r->key_bytes > KEYS_MAX / 2) && r->count < before) {
        before = r->count;
        ranges_halve(r);
    }
    if (r->count > RANGES_MAX / 2 || r->key_bytes > KEYS_MAX / 2) {
        ranges_clear(r);
        r->all = true;
    }
}

/* ---- the set ----------------------------------------------------------------------------------------- */

int
ver_reads_create(struct ver_reads **out)
{
    struct ver_reads *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return CH_FAIL(COHORT_ENOMEM, "a serializable transaction's reads");
    *out = r;
    return 0;
}

void
ver_reads_destroy(struct ver_reads *r)
{
    if (r == NULL)
        return;
    ranges_clear(r);
    free(r->ranges);
    free(r);
}

static bool
bound_copy(struct bound *b, const struct ver_key *key)
{
    *b = (struct bound){0};
    if (key == NULL)
        return true;
    b->data = malloc(key->bytes > 0 ? key->bytes : 1);
    if (b->data == NULL)
        return false;
    if (key->bytes > 0)
        memcpy(b->data, key->data, key->bytes);
    b->bytes = key->bytes;
    return true;
}

static bool
same_key(const struct ver_key *a, const struct ver_key *b)
{
    return a != NULL && b != NULL && key_compare(a->data, a->bytes, b->data, b->bytes) == 0;
}

static bool
range_make(struct range *x, uint32_t tree, const struct ver_key *from, const struct ver_key *to)
{
    bool point = same_key(from, to);

    x->tree = tree;
    x->to = (struct bound){0};
    if (!bound_copy(&x->from, from) || (!point && !bound_copy(&x->to, to))) {
        free(x->from.data);
        return false;
    }
    if (point)
        x->to = x->from;
    return true;
}

static bool
room_for_one(struct ver_reads *r)
{
    size_t capacity = r->capacity > 0 ? r->capacity * 2 : 8;
    struct range *grown;

    if (r->ranges != NULL && r->count < r->capacity)
        return true;
    grown = realloc(r->ranges, capacity * sizeof(*grown));
    if (grown == NULL)
        return false;
    r->ranges = grown;
    r->capacity = capacity;
    return true;
}

int
ver_reads_add(struct ver_reads *r, uint32_t tree, const struct ver_key *from,
              const struct ver_key *to)
{
    struct range *last, x;

    CH_ASSERT(from == NULL || to == NULL ||
              key_compare(from->data, from->bytes, to->data, to->bytes) <= 0);
    if (r->all)
        return 0;
    if (!range_make(&x, tree, from, to))
        return CH_FAIL(COHORT_ENOMEM, "a serializable transaction's reads");
    last = r->count > r->sorted ? &r->ranges[r->count - 1] : NULL;
    /* A scan adds range by range, each beginning where the last one ended. */
    if (last != NULL && last->tree == tree && from_compare(last, &x) <= 0 && touches(last, &x)) {
        r->key_bytes += range_bytes(&x);
        range_join(r, last, &x);
    } else if (room_for_one(r)) {
        r->key_bytes += range_bytes(&x);
        r->ranges[r->count++] = x;
    } else {
        range_free(&x);
        return CH_FAIL(COHORT_ENOMEM, "a serializable transaction's reads");
    }
    if (r->count - r->sorted > TAIL_MAX || r->key_bytes > KEYS_MAX) {
        ranges_sort(r);
        ranges_bound(r);
    }
    return 0;
}

bool
ver_reads_hit(const struct ver_reads *r, struct ver_key key)
{
    size_t lo = 0, hi = r->sorted;

    if (r->all)
        return true;
    while (lo < hi) { /* the last sorted range that begins at or before the key */
        size_t mid = (lo + hi) / 2;
        const struct range *m = &r->ranges[mid];

        if (m->tree < key.tree || (m->tree == key.tree &&
                                   (m->from.data == NULL || key_compare(m->from.data, m->from.bytes,
                                                                        key.data, key.bytes) <= 0)))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo > 0 && range_has(&r->ranges[lo - 1], key))
        return true;
    for (size_t i = r->sorted; i < r->count; i++) {
        if (range_has(&r->ranges[i], key))
            return true;
    }
    return false;
}

static bool
tree_hit(const struct ver_reads *r, uint32_t tree)
{
    for (size_t i = 0; !r->all && i < r->count; i++) {
        if (r->ranges[i].tree == tree)
            return true;
    }
    return r->all;
}

/* Of what the writer did to trees as wholes. */
static bool
wholes_hit(const struct ver_reads *r, const struct ver_txn *w)
{
    for (unsigned i = 0; i < w->whole_count; i++) {
        if (tree_hit(r, w->wholes[i]))
            return true;
    }
    return false;
}

/* ---- validation --------------------------------------------------------------------------------------- */

/* The first writer that committed after `after`. */
static struct ver_txn *
first_after(struct ver *v, lsn_t after)
{
    struct ver_txn *w = NULL;

    rt_lock(&v->queue_lock);
    for (struct ver_txn *at = v->tail; at != NULL && ver_committed(at) > after; at = at->prev)
        w = at;
    rt_unlock(&v->queue_lock);
    return w;
}

/* trim_lock held, `w` NULL or in the queue. Looks at whole writers until CHUNK entries are done; *next: where to go on. */
static bool
chunk_hit(struct ver *v, const struct ver_reads *r, struct ver_txn *w, struct ver_txn **next,
          lsn_t *upto)
{
    unsigned budget = CHUNK;

    for (; w != NULL && budget > 0; w = *next) {
        if (wholes_hit(r, w))
            return true;
        for (struct ver_entry *e = ver_oldest(w); e != NULL; e = ver_newer(e)) {
            if (e->kind != VER_WAS_LOCK && ver_reads_hit(r, ver_entry_key(e)))
                return true;
            budget -= budget > 0;
        }
        *upto = ver_committed(w);
        budget -= budget > 0;
        rt_lock(&v->queue_lock);
        *next = w->next;
        rt_unlock(&v->queue_lock);
    }
    return false;
}

int
ver_validate(struct ver *v, const struct ver_view *view, const struct ver_reads *r, bool locked,
             lsn_t *upto)
{
    struct ver_txn *w = NULL;
    bool hit = false, dead;

    rt_lock(&v->trim_lock);
    dead = ver_view_dead(v, view);
    if (!dead)
        w = first_after(v, ch_max_u64(view->horizon, *upto));
    while (w != NULL && !dead && !hit) {
        struct ver_txn *next = NULL;

        hit = chunk_hit(v, r, w, &next, upto);
        w = next;
        if (w == NULL || hit || locked)
            continue;
        w->pins++; /* D3 */
        rt_unlock(&v->trim_lock);
        rt_point();
        rt_lock(&v->trim_lock);
        w->pins--;
        dead = ver_view_dead(v, view);
    }
    rt_unlock(&v->trim_lock);
    if (dead)
        return CH_FAIL(COHORT_SNAPSHOT_TOO_OLD, "the snapshot at %" PRIu64 " was given up",
                       view->horizon);
    if (!hit)
        return 0;
    atomic_fetch_add_explicit(&v->conflicts, 1, memory_order_relaxed);
    return CH_FAIL(COHORT_CONFLICT, "what was read was written after the snapshot at %" PRIu64,
                   view->horizon);
}

/* ---- guards --------------------------------------------------------------------------------------------- */

int
ver_guard(struct ver *v, uint64_t id, struct ver_reads *r)
{
    struct ver_guard_node *g = malloc(sizeof(*g));

    if (g == NULL)
        return CH_FAIL(COHORT_ENOMEM, "transaction %" PRIu64 ": guard of its reads", id);
    ranges_sort(r);
    g->id = id;
    g->reads = r;
    rt_lock(&v->guard_lock);
    g->next = v->guards;
    v->guards = g;
    atomic_fetch_add_explicit(&v->guard_count, 1, memory_order_relaxed);
    rt_unlock(&v->guard_lock);
    return 0;
}

void
ver_unguard(struct ver *v, uint64_t id)
{
    struct ver_guard_node *g = NULL, **at;

    rt_lock(&v->guard_lock);
    for (at = &v->guards; *at != NULL && (*at)->id != id; at = &(*at)->next)
        ;
    g = *at;
    if (g != NULL) {
        *at = g->next;
        atomic_fetch_sub_explicit(&v->guard_count, 1, memory_order_relaxed);
    }
    rt_unlock(&v->guard_lock);
    if (g == NULL)
        return;
    ver_reads_destroy(g->reads);
    free(g);
}

static bool
writer_hit(const struct ver_reads *r, const struct ver_txn *w)
{
    if (wholes_hit(r, w))
        return true;
    for (struct ver_entry *e = ver_oldest(w); e != NULL; e = ver_newer(e)) {
        if (e->kind != VER_WAS_LOCK && ver_reads_hit(r, ver_entry_key(e)))
            return true;
    }
    return false;
}

/* guard_lock held. */
static bool
guard_hit(const struct ver_guard_node *g, const struct ver_txn *w, const struct ver_key *key)
{
    if (key != NULL && ver_reads_hit(g->reads, *key))
        return true;
    return w != NULL && w->id != g->id && writer_hit(g->reads, w);
}

int
ver_guarded(struct ver *v, const struct ver_txn *w, const struct ver_key *key)
{
    uint64_t by = 0;

    /* Guards are set under the commit lock, which the caller holds: so this is no race. */
    if (atomic_load_explicit(&v->guard_count, memory_order_relaxed) == 0)
        return 0;
    rt_lock(&v->guard_lock);
    for (const struct ver_guard_node *g = v->guards; g != NULL && by == 0; g = g->next) {
        if (guard_hit(g, w, key))
            by = g->id;
    }
    rt_unlock(&v->guard_lock);
    if (by == 0)
        return 0;
    atomic_fetch_add_explicit(&v->conflicts, 1, memory_order_relaxed);
    return CH_FAIL(COHORT_CONFLICT, "prepared transaction %" PRIu64 " has read what is written",
                   by);
}

/* ---- prepared writers ----------------------------------------------------------------------------------- */

int
ver_prepare(struct ver *v, struct ver_txn *w, const struct ver_reads *r)
{
    uint64_t by = 0;

    rt_lock(&v->guard_lock);
    for (const struct ver_txn *p = v->prepared; p != NULL && r != NULL && by == 0;
         p = p->next_prepared) {
        if (writer_hit(r, p)) /* D4 */
            by = p->id;
    }
    if (by == 0) {
        w->next_prepared = v->prepared;
        v->prepared = w;
        atomic_fetch_add_explicit(&v->prepared_count, 1, memory_order_relaxed);
    }
    rt_unlock(&v->guard_lock);
    if (by == 0)
        return 0;
    atomic_fetch_add_explicit(&v->conflicts, 1, memory_order_relaxed);
    return CH_FAIL(COHORT_CONFLICT, "prepared transaction %" PRIu64 " has written what was read",
                   by);
}

void
ver_unprepare(struct ver *v, struct ver_txn *w)
{
    struct ver_txn **at = &v->prepared;

    if (atomic_load_explicit(&v->prepared_count, memory_order_relaxed) == 0)
        return;
    rt_lock(&v->guard_lock);
    while (*at != NULL && *at != w)
        at = &(*at)->next_prepared;
    if (*at != NULL) {
        *at = w->next_prepared;
        atomic_fetch_sub_explicit(&v->prepared_count, 1, memory_order_relaxed);
    }
    rt_unlock(&v->guard_lock);
}
