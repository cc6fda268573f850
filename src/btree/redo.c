/* redo.c - one log record of the tree, applied again to the pages that miss it.
 *
 * For each page of the record, independently of the others:
 *   page LSN >= record            has it; skip
 *   record starts with an image   rebuilt, whatever the page holds or whether it exists (R9, R14)
 *   page does not exist           it was freed later on, its place is gone; skip (R9)
 *   else                          applied as at run time (change.c)
 *
 * The same record twice, or a recovery that is interrupted by a crash, changes nothing: the page
 * LSN decides. Records are parsed wholly before the first page is touched.
 */
#include "base/bug.h"
#include "btree/tree.h"

static int
redo_page(struct buf *b, const struct change_group *g, lsn_t lsn)
{
    struct buf_ref ref;
    bool found;
    int rc = buf_fix_any(b, g->pid, &ref, &found);

    if (rc != 0)
        return rc;
    /* A frame without contents: an older record of a page that is gone left it behind. */
    if (found && page_pid(ref.page) == 0)
        found = false;
    if (found ? page_lsn(ref.page) >= lsn || (CH_BUG(R9_FORMAT_TRUSTS) && g->formats)
              : !g->formats && !CH_BUG(R9_REDO_FREED))
        goto out;
    buf_will_change(b, &ref);
    if (CH_BUG(R14_EMPTY_IMAGE) && g->formats && !found)
        goto out;
    rc = change_apply(ref.page, g, lsn);
    if (rc == 0 && g->frees)
        buf_mark_free(b, &ref);
out:
    buf_unfix(b, &ref);
    return rc;
}

int
bt_redo(struct buf *b, uint8_t type, lsn_t lsn, const uint8_t *data, uint32_t bytes)
{
    struct bt_slice groups, key;
    struct change_reader r;
    struct change_group g;
    int rc = change_groups(type, data, bytes, &groups, NULL);

    if (rc == 0)
        rc = change_open(&r, groups.data, groups.bytes);
    if (rc == 0 && type != BT_RECORD_PAGES)
        rc = change_single(r, &key); /* C4 */

    while (rc == 0) {
        rc = change_next(&r, &g);
        if (rc == COHORT_NOTFOUND)
            return 0;
        if (rc == 0)
            rc = redo_page(b, &g, lsn);
    }
    return rc;
}

int
bt_record_read(uint8_t type, const uint8_t *data, uint32_t bytes, struct bt_logged *out)
{
    struct change_reader r;
    struct bt_slice groups;
    struct bt_logged l;
    int rc = change_groups(type, data, bytes, &groups, &l);

    if (rc == 0 && type == BT_RECORD_PAGES)
        rc = CH_FAIL(COHORT_ELOG, "tree record of type %u: of no transaction", (unsigned)type);
    if (rc == 0)
        rc = change_open(&r, groups.data, groups.bytes);
    if (rc == 0)
        rc = change_single(r, &l.key); /* C4 */
    if (rc == 0)
        *out = l;
    return rc;
}
