/* history_graph.c - cycles in the graph of a history.
 *
 * Walks go over states: a node, and whether it was entered by an rw edge. With `apart` an rw edge leaves only states that were not,
 * so a cycle of states is a closed walk without two rw edges in a row, the closing one included. Without it every state is
 * (node, no). Strongly connected components by Tarjan's algorithm with a stack of its own; in a component of more than one state
 * the shortest cycle through one of a few states is taken, by breadth-first search.
 */
#include "isolation/history.h"

#include <stdlib.h>

enum {
    NONE = UINT32_MAX,
    STARTS_MAX = 32, /* states of a component from which a short cycle is looked for */
};

void
hist_graph_add(struct hist_graph *g, uint32_t from, uint32_t to, enum hist_edge_kind kind,
               uint32_t key)
{
    if (from == to)
        return;
    if (g->count == g->room) {
        g->room = g->room == 0 ? 256 : g->room * 2;
        g->edges = realloc(g->edges, g->room * sizeof(*g->edges));
        CH_ASSERT(g->edges != NULL);
    }
    g->edges[g->count++] = (struct hist_edge){from, to, kind, key};
}

struct walk {
    const struct hist_graph *g;
    unsigned kinds;
    bool apart;
    const bool *skip;
    uint32_t states;
    uint32_t *head, *next; /* edges by node: lists */
    uint32_t *order, *low, *component, *stack, *edge_at, *parent;
    bool *stacked;
    uint32_t counter, depth, components;
};

static bool
edge_ok(const struct walk *w, const struct hist_edge *e, uint32_t state)
{
    if ((e->kind & w->kinds) == 0)
        return false;
    if (w->skip != NULL && (w->skip[e->from] || w->skip[e->to]))
        return false;
    return !(w->apart && e->kind == HIST_RW && state % 2 == 1);
}

static uint32_t
target(const struct walk *w, const struct hist_edge *e)
{
    return e->to * 2 + (w->apart && e->kind == HIST_RW);
}

static uint32_t *
numbers(size_t n, int fill)
{
    uint32_t *p = malloc(ch_max_u64(n, 1) * sizeof(*p));

    CH_ASSERT(p != NULL);
    memset(p, fill, n * sizeof(*p));
    return p;
}

static void
walk_init(struct walk *w, const struct hist_graph *g)
{
    w->g = g;
    w->states = g->nodes * 2;
    w->head = numbers(g->nodes, 0xff);
    w->next = numbers(g->count, 0xff);
    for (uint32_t i = 0; i < g->count; i++) {
        w->next[i] = w->head[g->edges[i].from];
        w->head[g->edges[i].from] = i;
    }
    w->order = numbers(w->states, 0xff);
    w->low = numbers(w->states, 0xff);
    w->component = numbers(w->states, 0xff);
    w->stack = numbers(w->states, 0xff);
    w->edge_at = numbers(w->states, 0xff);
    w->parent = numbers(w->states, 0xff);
    w->stacked = calloc(w->states + 1, sizeof(*w->stacked));
    CH_ASSERT(w->stacked != NULL);
}

static void
walk_fini(struct walk *w)
{
    free(w->head);
    free(w->next);
    free(w->order);
    free(w->low);
    free(w->component);
    free(w->stack);
    free(w->edge_at);
    free(w->parent);
    free(w->stacked);
}

static void
enter(struct walk *w, uint32_t s, uint32_t parent)
{
    w->order[s] = w->low[s] = w->counter++;
    w->stack[w->depth++] = s;
    w->stacked[s] = true;
    w->edge_at[s] = w->head[s / 2];
    w->parent[s] = parent;
}

/* The state is done: it may close a component; returns where the search goes on. */
static uint32_t
leave(struct walk *w, uint32_t s)
{
    uint32_t parent = w->parent[s], top;

    if (w->low[s] == w->order[s]) {
        do {
            top = w->stack[--w->depth];
            w->stacked[top] = false;
            w->component[top] = w->components;
        } while (top != s);
        w->components++;
    }
    if (parent != NONE)
        w->low[parent] = (uint32_t)ch_min_u64(w->low[parent], w->low[s]);
    return parent;
}

static void
tarjan_from(struct walk *w, uint32_t root)
{
    uint32_t s = root;

    enter(w, root, NONE);
    while (s != NONE) {
        uint32_t i = w->edge_at[s], to;

        if (i == NONE) {
            s = leave(w, s);
            continue;
        }
        w->edge_at[s] = w->next[i];
        if (!edge_ok(w, &w->g->edges[i], s))
            continue;
        to = target(w, &w->g->edges[i]);
        if (w->order[to] == NONE) {
            enter(w, to, s);
            s = to;
        } else if (w->stacked[to]) {
            w->low[s] = (uint32_t)ch_min_u64(w->low[s], w->order[to]);
        }
    }
}

/* The shortest cycle through `start` in its component; breadth first. parent[] and edge_at[] are free by now. */
static unsigned
cycle_through(struct walk *w, uint32_t start, struct hist_edge *cycle, unsigned max)
{
    uint32_t first = 0, count = 0, last = NONE;
    unsigned n = 0;

    memset(w->edge_at, 0xff, w->states * sizeof(*w->edge_at)); /* by which edge it was reached */
    w->stack[count++] = start;
    while (first < count && last == NONE) {
        uint32_t s = w->stack[first++];

        for (uint32_t i = w->head[s / 2]; i != NONE && last == NONE; i = w->next[i]) {
            uint32_t to;

            if (!edge_ok(w, &w->g->edges[i], s))
                continue;
            to = target(w, &w->g->edges[i]);
            if (w->component[to] != w->component[s] || w->edge_at[to] != NONE)
                continue;
            w->edge_at[to] = i;
            w->parent[to] = s;
            w->stack[count++] = to;
            if (to == start)
                last = s;
        }
    }
    if (last == NONE)
        return 0;
    for (uint32_t s = start; n == 0 || s != start; s = w->parent[s], n++)
        if (n < max)
            cycle[n] = w->g->edges[w->edge_at[s]];
    n = (unsigned)ch_min_u64(n, max);
    for (unsigned i = 0; i < n / 2; i++) {
        struct hist_edge e = cycle[i];

        cycle[i] = cycle[n - 1 - i];
        cycle[n - 1 - i] = e;
    }
    return n;
}

unsigned
hist_graph_cycle(const struct hist_graph *g, unsigned kinds, bool apart, const bool *skip,
                 struct hist_edge *cycle, unsigned max)
{
    struct walk w = {.kinds = kinds, .apart = apart, .skip = skip};
    struct hist_edge *found = malloc(max * sizeof(*found));
    unsigned best = 0, tries = 0;
    uint32_t *sizes;

    CH_ASSERT(found != NULL);
    walk_init(&w, g);
    for (uint32_t s = 0; s < w.states; s += apart ? 1 : 2)
        if (w.order[s] == NONE)
            tarjan_from(&w, s);
    sizes = numbers(w.components, 0);
    for (uint32_t s = 0; s < w.states; s++)
        if (w.component[s] != NONE)
            sizes[w.component[s]]++;
    for (uint32_t s = 0; s < w.states && tries < STARTS_MAX; s++) {
        unsigned n;

        if (w.component[s] == NONE || sizes[w.component[s]] < 2)
            continue;
        tries++;
        n = cycle_through(&w, s, found, max);
        if (n > 0 && (best == 0 || n < best)) {
            best = n;
            memcpy(cycle, found, n * sizeof(*found));
        }
    }
    free(sizes);
    free(found);
    walk_fini(&w);
    return best;
}
