/* check.c - cohort_check(): tree, map, zones and page ids against each other.
 *
 * Everything dirty is written first, so that what is verified is what the device holds. Findings are lines to the
 * caller; the number of them decides.
 */
#include "boot/boot_internal.h"
#include "buf/buf.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct reach {
    uint64_t *bits;
    uint64_t pages;
    uint64_t twice;
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

int
boot_check(struct db *db, void (*report)(void *arg, const char *line), void *arg,
           struct cohort_check_result *out)
{
    struct bt_check_result tree = {0};
    struct reach r = {.report = report, .arg = arg};
    int rc = boot_writable(db);

    if (rc == 0)
        rc = buf_clean_until(db->buf, CH_LSN_MAX);
    if (rc != 0)
        return rc;
    r.pages = map_pid_high(store_map(db->store));
    r.bits = calloc(r.pages / 64 + 1, sizeof(*r.bits));
    if (r.bits == NULL)
        return CH_FAIL(COHORT_ENOMEM, "check: %" PRIu64 " pages", r.pages);
    rc = bt_check(&db->main, visit_page, forward_line, &r, &tree);
    if (rc != 0 && cohort_class_of(rc) != COHORT_CLASS_CORRUPT)
        goto out;
    out->errors = tree.errors + (rc != 0 && tree.errors == 0 ? 1 : 0) + r.twice;
    out->errors += compare_ids(db, &r);
    out->errors += store_verify(db->store, report, arg);
    out->pages = tree.leaf_pages + tree.inner_pages;
    out->entries = tree.entries;
    out->leaf_pages = tree.leaf_pages;
    out->inner_pages = tree.inner_pages;
    out->leaf_used_bytes = tree.leaf_used_bytes;
    rc =
        out->errors == 0 ? 0 : CH_FAIL(COHORT_ECORRUPT, "check: %" PRIu64 " findings", out->errors);
out:
    free(r.bits);
    return rc;
}
