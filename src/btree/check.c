/* check.c - walks a tree and verifies it: page layout, order, separators as bounds, levels.
 *
 * The tree must be idle. Shared latches are held from the root down to the page that is looked at.
 * Recursion is bounded by the level of the root, which every step down lowers by one (BT_DEPTH_MAX
 * at most).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"
#include "btree/tree.h"

struct walk {
    struct bt *t;
    void (*visit)(void *arg, page_id pid);
    void (*report)(void *arg, const char *line);
    void *arg;
    struct bt_check_result r;
};

struct range { /* keys are >= lower and < upper; NULL = open */
    const struct bt_slice *lower, *upper;
};

static void finding(struct walk *w, const char *fmt, ...) CH_PRINTF(2, 3);

static void
finding(struct walk *w, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    w->r.errors++;
    if (w->report == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    w->report(w->arg, line);
}

/* Whether the page is fit to be descended through. */
static bool
check_node(struct walk *w, const struct buf_ref *ref, unsigned level, const struct range *range)
{
    uint8_t buf[COHORT_KEY_MAX];
    const uint8_t *p = ref->page;
    struct bt_slice key = {buf, 0};
    const char *wrong = node_check(p);
    unsigned n;

    if (page_tree(p) != w->t->tree || page_level(p) != level || page_pid(p) != ref->pid)
        wrong = "tree, level or page id is not the expected one";
    if (wrong != NULL) {
        finding(w, "page %" PRIu64 " (tree %" PRIu32 ", level %u): %s", ref->pid, w->t->tree, level,
                wrong);
        return false;
    }
    n = node_count(p);
    if (n == 0)
        return true;
    key.bytes = node_key(p, 0, buf);
    if (range->lower != NULL && node_compare(key, *range->lower) < 0)
        finding(w, "page %" PRIu64 ": first key lies below its separator", ref->pid);
    key.bytes = node_key(p, n - 1, buf);
    if (range->upper != NULL && node_compare(key, *range->upper) >= 0)
        finding(w, "page %" PRIu64 ": last key lies above its separator", ref->pid);
    return true;
}

static int check_page(struct walk *w, page_id pid, unsigned level, const struct range *range);

static int
check_children(struct walk *w, const uint8_t *inner, unsigned level, const struct range *range)
{
    uint8_t low[COHORT_KEY_MAX], high[COHORT_KEY_MAX];
    struct bt_slice lower = {low, 0}, upper = {high, 0};
    unsigned n = node_count(inner);
    struct range r;
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i <= n; i++) {
        r = *range;
        if (i > 0) {
            lower.bytes = node_key(inner, i - 1, low);
            r.lower = &lower;
        }
        if (i < n) {
            upper.bytes = node_key(inner, i, high);
            r.upper = &upper;
        }
        rc = check_page(w, node_child(inner, i), level - 1, &r);
    }
    return rc;
}

static int
check_page(struct walk *w, page_id pid, unsigned level, const struct range *range)
{
    struct buf_ref ref;
    int rc = buf_fix(w->t->buf, pid, BUF_SHARED, &ref);

    if (rc == COHORT_ENOMEM)
        return rc;
    if (rc != 0) {
        finding(w, "page %" PRIu64 " (tree %" PRIu32 ", level %u): %s", pid, w->t->tree, level,
                rc == COHORT_NOTFOUND ? "no image" : ch_last_error()->text);
        return 0;
    }
    if (w->visit != NULL)
        w->visit(w->arg, pid);
    if (!check_node(w, &ref, level, range)) {
        rc = 0;
    } else if (level > 0) {
        w->r.inner_pages++;
        rc = check_children(w, ref.page, level, range);
    } else {
        w->r.leaf_pages++;
        w->r.entries += node_count(ref.page) - node_ghosts(ref.page);
        w->r.ghosts += node_ghosts(ref.page);
        w->r.leaf_used_bytes += node_used(ref.page);
    }
    buf_unfix(w->t->buf, &ref);
    return rc;
}

int
bt_check(struct bt *t, void (*visit)(void *arg, page_id pid),
         void (*report)(void *arg, const char *line), void *arg, struct bt_check_result *out)
{
    struct walk w = {t, visit, report, arg, {0}};
    struct range all = {NULL, NULL};
    struct buf_ref root;
    unsigned level;
    int rc = buf_fix(t->buf, t->root, BUF_SHARED, &root);

    if (rc == COHORT_ENOMEM)
        return rc;
    if (rc != 0) {
        finding(&w, "root page %" PRIu64 " of tree %" PRIu32 ": %s", t->root, t->tree,
                rc == COHORT_NOTFOUND ? "no image" : ch_last_error()->text);
        *out = w.r;
        return 0;
    }
    level = page_level(root.page);
    buf_unfix(t->buf, &root);
    if (level >= BT_DEPTH_MAX) {
        finding(&w, "root page %" PRIu64 " of tree %" PRIu32 ": level %u", t->root, t->tree, level);
        rc = 0;
    } else {
        rc = check_page(&w, t->root, level, &all);
    }
    if (rc == 0)
        *out = w.r;
    return rc;
}
