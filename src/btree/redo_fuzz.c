/* redo_fuzz.c - libFuzzer target: bytes from a log as a record of the tree, applied to pages whose
 * contents are hostile too.
 *
 * Input: the first bytes choose what the pages hold (fresh, or the input itself as body) and the record's type, the rest
 * is the record. Nothing may leave the page, hang, or trip a sanitizer; a record that change_open()
 * accepts is applied group by group. The rest is also taken for an entry of the undo tree.
 */
#include "btree/change.h"
#include "btree/node.h"
#include "btree/undo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_everything(const uint8_t *p)
{
    uint8_t key[COHORT_KEY_MAX];
    struct bt_slice k = {key, 0};
    bool found;

    for (unsigned i = 0; i <= node_count(p); i++) {
        k.bytes = node_key(p, i, key);
        (void)node_value(p, i);
        (void)node_flags(p, i);
        (void)node_is_ghost(p, i);
        (void)node_child(p, i);
        (void)node_search(p, k, &found);
        (void)node_child_index(p, k, true);
    }
    (void)node_check(p);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(8) uint8_t page[CH_PAGE_BYTES];
    struct change_reader r;
    struct change_group g;
    struct bt_slice groups, key;
    struct bt_logged l;
    struct undo_entry undo;
    uint8_t mode;
    size_t n;

    if (size < 16)
        return 0;
    mode = data[0];
    node_init(page, 1 + data[1] % 4, mode & 1, 7);
    n = size < CH_PAGE_BYTES - 48 ? size : CH_PAGE_BYTES - 48;
    if ((mode & 2) != 0)
        memcpy(page + 48, data, n);
    read_everything(page);
    (void)undo_decode(data + 2, size - 2, &undo);
    if (change_groups((uint8_t)(mode >> 2 & 7), data + 2, size - 2, &groups, &l) != 0 ||
        change_open(&r, groups.data, groups.bytes) != 0)
        return 0;
    (void)change_single(r, &key);
    while (change_next(&r, &g) == 0) {
        (void)change_apply(page, &g, 1000);
        read_everything(page);
    }
    return 0;
}
