/* estimate.c - about how many entries a range has.
 *
 * Both ends are walked down to, which says exactly how many whole children lie between them on each level, and how many
 * entries of the two leaves count. What a child of a level holds is taken from samples: the nodes on both ways, and
 * neighbours of theirs towards the inside of the range, which are read together.
 *
 *   G1  no more than SAMPLES_LEVEL leaves between both ends: exact, as of when the leaves were read.
 *   G2  at most two pages a level and SAMPLES_MAX others are read, however large the range is.
 *
 * Locks: latches, one page and its child at a time; the two ways may be those of slightly different trees.
 */
#include <inttypes.h>

#include "btree/tree.h"

enum {
    SAMPLES_LEVEL = 8, /* at one end of one level */
    SAMPLES_MAX = 64,
};

struct est_node {
    page_id pid;
    unsigned index, count; /* the child that the way takes; separators */
    unsigned samples;
    page_id sample[SAMPLES_LEVEL]; /* other children */
};

struct est_way {
    unsigned level; /* of the root */
    struct est_node
        at[BT_DEPTH_MAX]; /* by level; of a leaf index counts the entries below the key */
};

static int
fix_child(struct bt *t, page_id pid, unsigned level, struct buf_ref *ref)
{
    int rc = pid == 0 ? COHORT_NOTFOUND : buf_fix(t->buf, pid, BUF_SHARED, ref);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_EPAGE, "page %" PRIu64 " of tree %" PRIu32 ", level %u: no image",
                       pid, t->tree, level);
    if (rc != 0)
        return rc;
    rc = bt_node_verify(t, ref, level);
    if (rc != 0)
        buf_unfix(t->buf, ref);
    return rc;
}

/* Where the way goes on; key NULL: at the end, or at the beginning unless `upper`. `other`: the same level of the way to the
 * upper end, NULL if this is it; where both are at one node, samples come from between them. */
static void
note_node(const struct buf_ref *ref, const struct bt_slice *key, const struct est_node *other,
          struct est_node *at)
{
    const uint8_t *p = ref->page;
    bool upper = other == NULL, found;
    unsigned n = node_count(p), first, end, step;

    *at = (struct est_node){.pid = ref->pid, .count = n};
    if (key == NULL)
        at->index = upper ? n : 0;
    else
        at->index =
            page_level(p) > 0 ? node_child_index(p, *key, false) : node_search(p, *key, &found);
    if (page_level(p) == 0)
        return;
    first = upper ? 0 : at->index + 1;
    end = upper ? at->index : n + 1;
    if (!upper && other->pid == ref->pid && other->index < end)
        end = other->index;
    step = first < end ? (unsigned)ch_div_up(end - first, SAMPLES_LEVEL) : 1;
    for (unsigned i = first; i < end; i += step)
        at->sample[at->samples++] = node_child(p, i);
}

/* `to`: the way to the upper end, NULL if this is it. */
static int
walk(struct bt *t, const struct bt_slice *key, const struct est_way *to, struct est_way *way)
{
    struct buf_ref ref, child;
    unsigned level;
    int rc = buf_fix(t->buf, t->root, BUF_SHARED, &ref);

    if (rc != 0)
        return rc == COHORT_NOTFOUND ? CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": no image", t->root)
                                     : rc;
    level = way->level = page_level(ref.page);
    rc = level >= BT_DEPTH_MAX ? CH_FAIL(COHORT_EPAGE, "page %" PRIu64 ": level %u", t->root, level)
                               : bt_node_verify(t, &ref, level);
    while (rc == 0) {
        note_node(&ref, key, to != NULL ? &to->at[level] : NULL, &way->at[level]);
        if (level == 0)
            break;
        rc = fix_child(t, node_child(ref.page, way->at[level].index), level - 1, &child);
        if (rc == 0) {
            buf_unfix(t->buf, &ref);
            ref = child;
            level--;
        }
    }
    buf_unfix(t->buf, &ref);
    return rc;
}

struct est_mean {
    double sum, n;
};

static void
mean_add(struct est_mean *m, const uint8_t *page)
{
    m->sum += node_count(page) + (page_level(page) > 0 ? 1u : 0u);
    m->n++;
}

/* Reads the samples below the nodes of both ways, up to `top`, where the lower end's are from between them. What cannot be read
 * is left out: an estimate does without. */
static void
take_samples(struct bt *t, const struct est_way *ways, unsigned top, struct est_mean *mean)
{
    page_id pids[SAMPLES_MAX];
    struct buf_ref ref;
    unsigned n = 0;

    for (unsigned level = 1; level <= top; level++)
        for (unsigned w = 0; w < (level == top ? 1u : 2u); w++)
            for (unsigned i = 0; i < ways[w].at[level].samples && n < SAMPLES_MAX; i++)
                if (ways[w].at[level].sample[i] != 0)
                    pids[n++] = ways[w].at[level].sample[i];
    buf_prefetch(t->buf, pids, n);
    for (unsigned i = 0; i < n; i++) {
        if (buf_fix(t->buf, pids[i], BUF_SHARED, &ref) != 0)
            continue;
        if (page_tree(ref.page) == t->tree && node_sane(ref.page) && page_level(ref.page) < top)
            mean_add(&mean[page_level(ref.page)], ref.page);
        buf_unfix(t->buf, &ref);
    }
}

/* Whole children between the two ways below their nodes of that level, `top` being where they part. */
static double
between(const struct est_way *ways, unsigned level, unsigned top)
{
    const struct est_node *from = &ways[0].at[level], *to = &ways[1].at[level];

    if (level == top)
        return to->index > from->index ? to->index - from->index - 1 : 0;
    return (double)(from->count - from->index) + to->index;
}

static double
estimate(struct bt *t, const struct est_way *ways)
{
    struct est_mean mean[BT_DEPTH_MAX] = {{0, 0}};
    const struct est_node *from = &ways[0].at[0], *to = &ways[1].at[0];
    unsigned top = ways[0].level, level;
    double sum, each = 1;

    while (top > 0 && ways[0].at[top].index == ways[1].at[top].index)
        top--;
    if (top == 0)
        return to->index > from->index ? to->index - from->index : 0; /* G1 */
    sum = (double)(from->count - from->index) + to->index;
    for (level = 1; level <= top && between(ways, level, top) == 0; level++)
        continue;
    if (level > top)
        return sum; /* G1 */
    take_samples(t, ways, top, mean);
    for (level = 1; level <= top; level++) {
        struct est_mean *m = &mean[level - 1];
        bool all = level == 1 && m->n == between(ways, 1, top); /* G1 */

        if (all)
            sum += m->sum;
        for (unsigned w = 0; w < 2; w++) { /* the ways' own nodes */
            m->sum += ways[w].at[level - 1].count + (level > 1 ? 1u : 0u);
            m->n++;
        }
        each *= m->sum / m->n;
        if (!all)
            sum += between(ways, level, top) * each;
    }
    return sum;
}

int
bt_estimate(struct bt *t, const struct bt_slice *from, const struct bt_slice *to, uint64_t *count)
{
    struct est_way ways[2] = {0};
    int rc;

    if (from != NULL && to != NULL && node_compare(*from, *to) >= 0) {
        *count = 0;
        return 0;
    }
    do {
        rc = walk(t, to, NULL, &ways[1]);
        if (rc == 0)
            rc = walk(t, from, &ways[1], &ways[0]);
    } while (rc == 0 && ways[0].level != ways[1].level); /* the root changed in between */
    if (rc == 0)
        *count = (uint64_t)(estimate(t, ways) + 0.5);
    return rc;
}
