/* history.c - recording histories, and what a history proves; see history.h.
 *
 * hist_check() goes over the history three times: who wrote each id; what each read alone shows (internal, garbage, G1a, G1b,
 * lost), collecting the versions' order on the way; then edges and cycles. It stops at the first kind of anomaly, worst first.
 */
#include "isolation/history.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    NOBODY = UINT32_MAX,
    CYCLE_MAX = 24,
};

/* ---- recording ---- */

static void *
grow(void *p, size_t count, size_t *room, size_t size)
{
    if (count <= *room)
        return p;
    *room = ch_max_u64(count, *room * 2 + 16);
    p = realloc(p, *room * size);
    CH_ASSERT(p != NULL);
    return p;
}

void
hist_free(struct hist *h)
{
    free(h->txns);
    free(h->ops);
    free(h->ids);
    *h = (struct hist){0};
}

void
hist_draft_begin(struct hist_draft *d, uint64_t begin)
{
    d->begin = begin;
    d->count = 0;
    d->id_count = 0;
}

void
hist_draft_free(struct hist_draft *d)
{
    free(d->ids);
    d->ids = NULL;
    d->id_room = 0;
}

static struct hist_op *
draft_add(struct hist_draft *d, enum hist_kind kind, uint32_t key, uint32_t id)
{
    struct hist_op *op;

    CH_ASSERT(d->count < HIST_OPS_MAX && key < HIST_KEYS_MAX && id < HIST_IDS_MAX);
    op = &d->ops[d->count++];
    *op = (struct hist_op){.kind = kind, .key = key, .id = id};
    return op;
}

void
hist_append(struct hist_draft *d, uint32_t key, uint32_t id)
{
    (void)draft_add(d, HIST_APPEND, key, id);
}

void
hist_list(struct hist_draft *d, uint32_t key, const uint32_t *ids, size_t count)
{
    struct hist_op *op = draft_add(d, HIST_LIST, key, 0);

    op->first = (uint32_t)d->id_count;
    op->count = (uint32_t)count;
    d->ids = grow(d->ids, d->id_count + count, &d->id_room, sizeof(*d->ids));
    if (count > 0)
        memcpy(d->ids + d->id_count, ids, count * sizeof(*ids));
    d->id_count += count;
}

void
hist_write(struct hist_draft *d, uint32_t key, uint32_t id)
{
    (void)draft_add(d, HIST_WRITE, key, id);
}

void
hist_read(struct hist_draft *d, uint32_t key, uint32_t id)
{
    (void)draft_add(d, HIST_READ, key, id);
}

/* Operations [first, count) of the draft become a transaction. */
static void
add_txn(struct hist *h, const struct hist_draft *d, unsigned first, uint64_t end, bool committed)
{
    h->txns = grow(h->txns, h->txn_count + 1, &h->txn_room, sizeof(*h->txns));
    h->txns[h->txn_count++] = (struct hist_txn){.begin = d->begin,
                                                .end = end,
                                                .first = (uint32_t)h->op_count,
                                                .count = d->count - first,
                                                .committed = committed};
    h->ops = grow(h->ops, h->op_count + d->count, &h->op_room, sizeof(*h->ops));
    for (unsigned i = first; i < d->count; i++) {
        h->ops[h->op_count] = d->ops[i];
        h->ops[h->op_count++].first += (uint32_t)h->id_count;
    }
    h->ids = grow(h->ids, h->id_count + d->id_count, &h->id_room, sizeof(*h->ids));
    if (d->id_count > 0)
        memcpy(h->ids + h->id_count, d->ids, d->id_count * sizeof(*h->ids));
    h->id_count += d->id_count;
}

void
hist_rollback(struct hist *h, struct hist_draft *d, unsigned keep)
{
    struct hist_draft undone = {.begin = d->begin};

    for (unsigned i = keep; i < d->count; i++)
        if (d->ops[i].kind == HIST_APPEND || d->ops[i].kind == HIST_WRITE)
            (void)draft_add(&undone, d->ops[i].kind, d->ops[i].key, d->ops[i].id);
    if (undone.count > 0)
        add_txn(h, &undone, 0, d->begin, false);
    d->count = keep;
}

void
hist_end(struct hist *h, struct hist_draft *d, uint64_t end, bool committed)
{
    add_txn(h, d, 0, end, committed);
    d->count = 0;
    d->id_count = 0;
}

void
hist_merge(struct hist *h, struct hist *from)
{
    struct hist_draft d;

    for (size_t i = 0; i < from->txn_count; i++) {
        const struct hist_txn *t = &from->txns[i];

        d = (struct hist_draft){.begin = t->begin};
        for (uint32_t o = t->first; o < t->first + t->count; o++) {
            const struct hist_op *op = &from->ops[o];

            if (op->kind == HIST_LIST)
                hist_list(&d, op->key, from->ids + op->first, op->count);
            else
                (void)draft_add(&d, op->kind, op->key, op->id);
        }
        hist_end(h, &d, t->end, t->committed);
        hist_draft_free(&d);
    }
    hist_free(from);
}

/* ---- checking ---- */

const char *
hist_name(enum hist_anomaly a)
{
    static const char *const names[HIST_ANOMALIES] = {
        "fine", "internal", "garbage", "G1a",      "G1b",           "lost",
        "G0",   "G1c",      "stale",   "G-single", "G-nonadjacent", "G2",
    };

    return names[a];
}

struct writer {
    uint32_t txn, key;
    bool list;
    bool last; /* of its transaction in that object */
};
struct versions { /* of a list: ids in order, the longest list read */
    const uint32_t *ids;
    uint32_t count, reader;
};
struct check {
    const struct hist *h;
    struct hist_result *r;
    struct writer *writers; /* by id, up to id_max */
    uint32_t id_max;
    struct versions lists[HIST_KEYS_MAX];
    struct hist_graph g;
};

CH_PRINTF(3, 4)
static void
found(struct check *c, enum hist_anomaly a, const char *format, ...)
{
    va_list args;

    if (c->r->worst != HIST_FINE)
        return;
    c->r->worst = a;
    va_start(args, format);
    (void)vsnprintf(c->r->text, sizeof(c->r->text), format, args);
    va_end(args);
}

static const struct hist_op *
op_of(const struct check *c, const struct hist_txn *t, uint32_t i)
{
    return &c->h->ops[t->first + i];
}

static void
note_writers(struct check *c)
{
    for (size_t i = 0; i < c->h->op_count; i++)
        c->id_max = (uint32_t)ch_max_u64(c->id_max, c->h->ops[i].id);
    c->writers = malloc((c->id_max + 1) * sizeof(*c->writers));
    CH_ASSERT(c->writers != NULL);
    for (uint32_t id = 0; id <= c->id_max; id++)
        c->writers[id] = (struct writer){.txn = NOBODY};
    for (uint32_t n = 0; n < c->h->txn_count; n++) {
        const struct hist_txn *t = &c->h->txns[n];

        for (uint32_t i = 0; i < t->count; i++) {
            const struct hist_op *op = op_of(c, t, i);

            if (op->kind != HIST_APPEND && op->kind != HIST_WRITE)
                continue;
            c->writers[op->id] = (struct writer){
                .txn = n, .key = op->key, .list = op->kind == HIST_APPEND, .last = true};
            for (uint32_t j = 0; j < i; j++)
                if (op_of(c, t, j)->kind == op->kind && op_of(c, t, j)->key == op->key)
                    c->writers[op_of(c, t, j)->id].last = false;
        }
    }
}

/* One id that transaction n has read in an object. `newest`: as the version read, not deeper in a list. */
static void
check_id(struct check *c, uint32_t n, const struct hist_op *op, uint32_t id, bool newest)
{
    const struct writer *w = id <= c->id_max ? &c->writers[id] : NULL;

    if (w == NULL || w->txn == NOBODY || w->key != op->key || w->list != (op->kind == HIST_LIST))
        found(c, HIST_GARBAGE, "T%u read id %u in %u, which nobody wrote there", n, id, op->key);
    else if (w->txn != n && !c->h->txns[w->txn].committed)
        found(c, HIST_G1A, "T%u read id %u of T%u, which was aborted", n, id, w->txn);
    else if (w->txn != n && newest && !w->last)
        found(c, HIST_G1B, "T%u read id %u of T%u, which was not its last", n, id, w->txn);
}

/* What the transaction must see of an object: its earlier read, its writes since. */
struct seen {
    bool known;
    const uint32_t *ids;
    uint32_t count; /* of the read */
    uint32_t own[HIST_OPS_MAX];
    uint32_t own_count;
};

static void
seen_before(const struct check *c, const struct hist_txn *t, uint32_t at, struct seen *s)
{
    const struct hist_op *op = op_of(c, t, at);
    bool list = op->kind == HIST_LIST;

    *s = (struct seen){.own_count = 0};
    for (uint32_t i = 0; i < at; i++) {
        const struct hist_op *before = op_of(c, t, i);

        if (before->key != op->key ||
            list != (before->kind == HIST_LIST || before->kind == HIST_APPEND))
            continue;
        if (before->kind == HIST_LIST || before->kind == HIST_READ) {
            s->known = true;
            s->ids = before->kind == HIST_LIST ? c->h->ids + before->first : &before->id;
            s->count = before->kind == HIST_LIST ? before->count : 1;
            s->own_count = 0;
        } else {
            s->own[s->own_count++] = before->id;
        }
    }
}

static bool
same(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    return n == 0 || memcmp(a, b, n * sizeof(*a)) == 0;
}

static void
check_internal(struct check *c, uint32_t n, uint32_t at)
{
    const struct hist_txn *t = &c->h->txns[n];
    const struct hist_op *op = op_of(c, t, at);
    const uint32_t *ids = c->h->ids + op->first;
    struct seen s;
    bool ok;

    seen_before(c, t, at, &s);
    if (op->kind == HIST_READ)
        ok = s.own_count > 0 ? op->id == s.own[s.own_count - 1] : !s.known || op->id == s.ids[0];
    else
        ok = op->count >= s.own_count && same(ids + op->count - s.own_count, s.own, s.own_count) &&
             (!s.known || (op->count == s.count + s.own_count && same(ids, s.ids, s.count)));
    if (!ok)
        found(c, HIST_INTERNAL, "T%u, operation %u: does not see its own state of %u", n, at,
              op->key);
}

/* How many of the ids of the list were there before the transaction. */
static uint32_t
external_count(const struct check *c, uint32_t n, const struct hist_op *op)
{
    uint32_t count = op->count;

    while (count > 0 && c->writers[c->h->ids[op->first + count - 1]].txn == n)
        count--;
    return count;
}

static void
check_list(struct check *c, uint32_t n, const struct hist_op *op)
{
    struct versions *v = &c->lists[op->key];
    const uint32_t *ids = c->h->ids + op->first;
    uint32_t external;

    for (uint32_t i = 0; i < op->count; i++)
        check_id(c, n, op, ids[i], false);
    if (c->r->worst != HIST_FINE)
        return;
    external = external_count(c, n, op);
    if (external > 0)
        check_id(c, n, op, ids[external - 1], true);
    if (!same(ids, v->ids, (uint32_t)ch_min_u64(external, v->count)))
        found(c, HIST_GARBAGE, "list %u: what T%u read is no prefix of what T%u read, or reverse",
              op->key, n, v->reader);
    if (external > v->count)
        *v = (struct versions){ids, external, n};
}

static void
check_reads(struct check *c)
{
    for (uint32_t n = 0; n < c->h->txn_count; n++) {
        const struct hist_txn *t = &c->h->txns[n];

        for (uint32_t i = 0; i < t->count && c->r->worst == HIST_FINE; i++) {
            const struct hist_op *op = op_of(c, t, i);

            if (op->kind != HIST_LIST && op->kind != HIST_READ)
                continue;
            check_internal(c, n, i);
            if (op->kind == HIST_LIST)
                check_list(c, n, op);
            else if (op->id != 0)
                check_id(c, n, op, op->id, true);
        }
    }
}

/* An append that was committed before a read of its list began is in the longest list. */
static void
check_lost(struct check *c)
{
    bool *in_list = calloc(c->id_max + 1, sizeof(*in_list));
    uint64_t last_read[HIST_KEYS_MAX] = {0};

    CH_ASSERT(in_list != NULL);
    for (uint32_t key = 0; key < HIST_KEYS_MAX; key++)
        for (uint32_t i = 0; i < c->lists[key].count; i++)
            in_list[c->lists[key].ids[i]] = true;
    for (uint32_t n = 0; n < c->h->txn_count; n++)
        for (uint32_t i = 0; i < c->h->txns[n].count; i++) {
            const struct hist_op *op = op_of(c, &c->h->txns[n], i);

            if (op->kind == HIST_LIST)
                last_read[op->key] = ch_max_u64(last_read[op->key], c->h->txns[n].begin);
        }
    for (uint32_t id = 1; id <= c->id_max; id++) {
        const struct writer *w = &c->writers[id];

        if (w->txn == NOBODY || !w->list || in_list[id] || !c->h->txns[w->txn].committed)
            continue;
        if (c->h->txns[w->txn].end < last_read[w->key])
            found(c, HIST_LOST, "id %u, appended to %u by T%u, is lost", id, w->key, w->txn);
    }
    free(in_list);
}

/* ---- edges ---- */

static void
edge(struct check *c, uint32_t from, uint32_t to, enum hist_edge_kind kind, uint32_t key)
{
    hist_graph_add(&c->g, from, to, kind, key);
}

static void
list_edges(struct check *c)
{
    for (uint32_t key = 0; key < HIST_KEYS_MAX; key++) {
        const struct versions *v = &c->lists[key];

        for (uint32_t i = 1; i < v->count; i++)
            edge(c, c->writers[v->ids[i - 1]].txn, c->writers[v->ids[i]].txn, HIST_WW, key);
    }
    for (uint32_t n = 0; n < c->h->txn_count; n++)
        for (uint32_t i = 0; i < c->h->txns[n].count; i++) {
            const struct hist_op *op = op_of(c, &c->h->txns[n], i);
            const struct versions *v = &c->lists[op->key];
            uint32_t count;

            if (op->kind != HIST_LIST)
                continue;
            count = external_count(c, n, op);
            if (count > 0)
                edge(c, c->writers[v->ids[count - 1]].txn, n, HIST_WR, op->key);
            if (count < v->count)
                edge(c, n, c->writers[v->ids[count]].txn, HIST_RW, op->key);
        }
}

/* What a transaction does to a register: the version it reads from others, and the last one it writes; NOBODY = does not. */
struct use {
    uint32_t read, write;
};

static struct use
use_of(const struct check *c, uint32_t n, uint32_t key)
{
    const struct hist_txn *t = &c->h->txns[n];
    struct use u = {NOBODY, NOBODY};

    for (uint32_t i = 0; i < t->count; i++) {
        const struct hist_op *op = op_of(c, t, i);

        if (op->key != key || op->kind == HIST_APPEND || op->kind == HIST_LIST)
            continue;
        if (op->kind == HIST_READ && u.write == NOBODY)
            u.read = op->id;
        if (op->kind == HIST_WRITE)
            u.write = op->id;
    }
    if (!t->committed)
        u.write = NOBODY;
    return u;
}

/* Version `a` (0 = never written) is known to be before version `b`, the write of transaction n. */
static bool
register_before(const struct check *c, uint32_t a, uint32_t n, const struct use *u)
{
    if (u->write == NOBODY || a == u->write)
        return false;
    if (a == 0 || u->read == a)
        return true;
    return c->h->txns[c->writers[a].txn].end < c->h->txns[n].begin;
}

static void
register_edges(struct check *c, uint32_t key, struct use *uses)
{
    uint32_t count = (uint32_t)c->h->txn_count;

    for (uint32_t n = 0; n < count; n++)
        uses[n] = use_of(c, n, key);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t read = uses[n].read;

        if (read != NOBODY && read != 0)
            edge(c, c->writers[read].txn, n, HIST_WR, key + HIST_KEYS_MAX);
        for (uint32_t m = 0; m < count; m++) {
            if (m == n || uses[m].write == NOBODY)
                continue;
            if (uses[n].write != NOBODY && register_before(c, uses[n].write, m, &uses[m]))
                edge(c, n, m, HIST_WW, key + HIST_KEYS_MAX);
            if (read != NOBODY && register_before(c, read, m, &uses[m]))
                edge(c, n, m, HIST_RW, key + HIST_KEYS_MAX);
            if (read != NOBODY && read == uses[m].read && uses[n].write != NOBODY)
                found(c, HIST_LOST, "T%u and T%u both replaced version %u of register %u", n, m,
                      read, key);
        }
    }
}

static int
by_end(const void *a, const void *b)
{
    const struct hist_txn *const *x = a, *const *y = b;

    return (*x)->end < (*y)->end ? -1 : (*x)->end > (*y)->end;
}

/* T1 -> T2 when T1 was over before T2 began, and nobody fits between them. */
static void
time_edges(struct check *c)
{
    size_t count = c->h->txn_count;
    const struct hist_txn **sorted = malloc(ch_max_u64(count, 1) * sizeof(*sorted));

    CH_ASSERT(sorted != NULL);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &c->h->txns[i];
    if (count > 0)
        qsort(sorted, count, sizeof(*sorted), by_end);
    for (size_t n = 0; n < count; n++) {
        const struct hist_txn *t = &c->h->txns[n];
        size_t lo = 0, hi = count;
        uint64_t newest = 0; /* begin among those that are over */

        while (lo < hi) {
            size_t mid = (lo + hi) / 2;

            if (sorted[mid]->end < t->begin)
                lo = mid + 1;
            else
                hi = mid;
        }
        while (lo-- > 0 && sorted[lo]->end >= newest) {
            newest = ch_max_u64(newest, sorted[lo]->begin);
            edge(c, (uint32_t)(sorted[lo] - c->h->txns), (uint32_t)n, HIST_RT, 0);
        }
    }
    free(sorted);
}

/* ---- cycles ---- */

static const char *
kind_name(enum hist_edge_kind kind)
{
    if (kind == HIST_WW)
        return "ww";
    if (kind == HIST_WR)
        return "wr";
    return kind == HIST_RW ? "rw" : "rt";
}

static size_t
print_txn(const struct check *c, uint32_t n, char *out, size_t room)
{
    const struct hist_txn *t = &c->h->txns[n];
    int used = snprintf(out, room, "\n  T%u [%" PRIu64 ", %" PRIu64 "]%s:", n, t->begin, t->end,
                        t->committed ? "" : " aborted");
    size_t at = used > 0 ? (size_t)used : 0;

    for (uint32_t i = 0; i < t->count && at < room; i++) {
        const struct hist_op *op = op_of(c, t, i);

        if (op->kind == HIST_LIST)
            used = snprintf(out + at, room - at, " list %u: %u ids", op->key, op->count);
        else
            used = snprintf(out + at, room - at, " %s %u: %u",
                            op->kind == HIST_APPEND  ? "append"
                            : op->kind == HIST_WRITE ? "write"
                                                     : "read",
                            op->key, op->id);
        at += used > 0 ? (size_t)used : 0;
    }
    return ch_min_u64(at, room);
}

static void
found_cycle(struct check *c, enum hist_anomaly a, const struct hist_edge *cycle, unsigned n)
{
    char text[HIST_TEXT];
    size_t at = 0;
    int used;

    for (unsigned i = 0; i < n && at < sizeof(text); i++) {
        used = snprintf(text + at, sizeof(text) - at, "T%u -%s(%u)-> ", cycle[i].from,
                        kind_name(cycle[i].kind), cycle[i].key);
        at += used > 0 ? (size_t)used : 0;
    }
    for (unsigned i = 0; i < n && at < sizeof(text); i++)
        at += print_txn(c, cycle[i].from, text + at, sizeof(text) - at);
    found(c, a, "%.*s", (int)sizeof(text) - 1, text);
}

static void
check_cycles(struct check *c)
{
    static const struct {
        unsigned kinds;
        bool apart;
        enum hist_anomaly anomaly;
    } steps[] = {
        {HIST_WW, false, HIST_G0},
        {HIST_WW | HIST_WR, false, HIST_G1C},
        {HIST_WW | HIST_WR | HIST_RT, false, HIST_STALE},
        {HIST_WW | HIST_WR | HIST_RT | HIST_RW, true, HIST_G_SINGLE},
        {HIST_WW | HIST_WR | HIST_RT | HIST_RW, false, HIST_G2},
    };
    bool *aborted = calloc(c->h->txn_count + 1, sizeof(*aborted));
    struct hist_edge cycle[CYCLE_MAX];

    CH_ASSERT(aborted != NULL);
    for (size_t i = 0; i < c->h->txn_count; i++)
        aborted[i] = !c->h->txns[i].committed;
    for (size_t i = 0; i < CH_ARRAY_LEN(steps) && c->r->worst == HIST_FINE; i++) {
        enum hist_anomaly a = steps[i].anomaly;
        unsigned rw = 0, n;

        n = hist_graph_cycle(&c->g, steps[i].kinds, steps[i].apart, a == HIST_G2 ? aborted : NULL,
                             cycle, CYCLE_MAX);
        for (unsigned e = 0; e < n; e++)
            rw += cycle[e].kind == HIST_RW;
        if (n > 0)
            found_cycle(c, a == HIST_G_SINGLE && rw > 1 ? HIST_G_APART : a, cycle, n);
    }
    free(aborted);
}

void
hist_check(const struct hist *h, struct hist_result *r)
{
    struct check c = {.h = h, .r = r, .g = {.nodes = (uint32_t)h->txn_count}};
    struct use *uses = malloc((h->txn_count + 1) * sizeof(*uses));

    *r = (struct hist_result){.worst = HIST_FINE};
    CH_ASSERT(uses != NULL);
    note_writers(&c);
    check_reads(&c);
    if (r->worst == HIST_FINE) {
        check_lost(&c);
        list_edges(&c);
        for (uint32_t key = 0; key < HIST_KEYS_MAX; key++)
            register_edges(&c, key, uses);
        time_edges(&c);
        check_cycles(&c);
    }
    r->edges = c.g.count;
    free(uses);
    free(c.writers);
    free(c.g.edges);
}
