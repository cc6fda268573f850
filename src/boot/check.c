/* check.c - cohort_check(): trees, names, map, zones and page ids against each other.
 *
 * Everything dirty is written first, so that what is verified is what the device holds. Findings are lines to the
 * caller; the number of them decides.
 */
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "cat/cat.h"
#include "store/store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct reach {
    uint64_t *bits;
    uint64_t pages;
    uint64_t twice;
    struct db *db;
    struct cohort_check_result *out;
    void (*report)(void *arg, const char *line);
    void *arg;
};

static void
finding(const struct reach *r, const char *what, page_id pid)
{
    char line[96];

    if (r->report == NULL)
        return;
    (void)snprintf(line, sizeof(line), "page %" PRIu64 ": %s", pid, what);
    r->report(r->arg, line);
}

static void
forward_line(void *arg, const char *line)
{
    const struct reach *r = arg;

    if (r->report != NULL)
        r->report(r->arg, line);
}

static void
visit_page(void *arg, page_id pid)
{
    struct reach *r = arg;
    uint64_t bit = UINT64_C(1) << pid % 64;

    if (pid >= r->pages || (r->bits[pid / 64] & bit) != 0) {
        r->twice++;
        finding(r, pid >= r->pages ? "id beyond the high-water mark" : "reached twice", pid);
        return;
    }
    r->bits[pid / 64] |= bit;
}

/* Ids in use must be reachable, and reachable ids in use: else space leaks, or a page can be handed out twice. */
static uint64_t
compare_ids(const struct db *db, const struct reach *r)
{
    const struct map *map = store_map(db->store);
    uint64_t errors = 0;

    for (page_id pid = 1; pid < r->pages; pid++) {
        bool reached = (r->bits[pid / 64] >> pid % 64 & 1) != 0;

        if (reached == map_pid_is_used(map, pid))
            continue;
        errors++;
        finding(r, reached ? "in the tree but its id is free" : "in use but not in any tree", pid);
    }
    return errors;
}

/* One tree, internal ones included: their entries are not the user's. */
static int
check_tree(void *arg, uint32_t id, page_id root)
{
    struct reach *r = arg;
    struct cohort_check_result *out = r->out;
    struct bt_check_result tree = {0};
    struct reg_tree *t;
    int rc = reg_get(r->db->reg, id, &t);

    (void)root;
    if (rc != 0)
        return rc;
    rc = bt_check(&t->bt, visit_page, forward_line, r, &tree);
    reg_put(r->db->reg, t);
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_CORRUPT)
        return rc;
    out->errors += tree.errors + (rc != 0 && tree.errors == 0 ? 1 : 0);
    out->pages += tree.leaf_pages + tree.inner_pages;
    out->leaf_pages += tree.leaf_pages;
    out->inner_pages += tree.inner_pages;
    out->leaf_used_bytes += tree.leaf_used_bytes;
    out->ghosts += tree.ghosts;
    if (id == REG_MAIN || id >= REG_USER)
        out->entries += tree.entries;
    return 0;
}

static int
check_all(struct db *db, void (*report)(void *arg, const char *line), void *arg,
          struct cohort_check_result *out)
{
    struct reach r = {.report = report, .arg = arg, .db = db, .out = out};
    uint64_t findings = 0, places;
    int rc = boot_writable(db);

    if (rc == 0)
        rc = trees_sweep(db, UINT_MAX); /* what waits to be freed is in no tree */
    if (rc == 0)
        rc = buf_clean_until(db->buf, CH_LSN_MAX);
    if (rc != 0)
        return rc;
    r.pages = map_pid_high(store_map(db->store));
    r.bits = calloc(r.pages / 64 + 1, sizeof(*r.bits));
    if (r.bits == NULL)
        return CH_FAIL(COHORT_ENOMEM, "check: %" PRIu64 " pages", r.pages);
    *out = (struct cohort_check_result){0};
    rc = reg_each(db->reg, check_tree, &r);
    if (rc == 0)
        rc = cat_check(db->cat, report, arg, &out->large_values, &findings);
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_CORRUPT)
        goto out;
    out->errors += findings + (rc != 0 && findings == 0 ? 1 : 0) + r.twice;
    out->errors += compare_ids(db, &r);
    places = store_verify(db->store, report, arg);
    if (places == STORE_NOT_VERIFIED) {
        rc = CH_FAIL(COHORT_ENOMEM, "check: places of the pages");
        goto out;
    }
    out->errors += places;
    out->trees = cat_tree_count(db->cat);
    rc =
        out->errors == 0 ? 0 : CH_FAIL(COHORT_ECORRUPT, "check: %" PRIu64 " findings", out->errors);
out:
    free(r.bits);
    return rc;
}

int
boot_check(struct db *db, void (*report)(void *arg, const char *line), void *arg,
           struct cohort_check_result *out)
{
    int rc;

    rt_lock(&db->sweep); /* the sweeper is the one writer that an idle database has */
    rc = check_all(db, report, arg, out);
    rt_unlock(&db->sweep);
    return rc;
}
