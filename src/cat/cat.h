/* cat.h - names of trees, large values, and what is to be freed later. All of it is ordinary transactional writes to internal
 * trees, so commit, abort, crashes and snapshots need nothing special here.
 *
 * Tree `names` (versions): name -> {u32 tree id}.
 * Tree `pending` (versions): u8 kind | u64 number (big-endian) -> {u64 transaction, u48 root, u8 state, u8 0, u32 tree}: "to be
 * freed". Kinds: 1 a tree's large values, pages and record in `ids` (number: its id); 2 a large value's pieces; 3 what a bulk
 * load has made: its private root and the large values [number, number + 2^32). A record is acted upon by cat_sweep_step() when
 * it is committed and no version of it is left (ver_has()), and the transaction that it names is not open (R13; sweep.c).
 *   created within a transaction: record first, as a transaction of its own, naming the creator; deleted within
 *   the creator's transaction. So commit keeps the thing, abort and crash free it.
 *   dropped or overwritten: record within the transaction. So commit frees it, once no snapshot sees it.
 * Tree `blobs` (no versions): u64 number | u32 piece, big-endian -> up to CAT_PIECE bytes of a large value. A value is immutable;
 * its reference in the user's leaf (flag BT_REF) is {u64 number, u64 bytes}.
 */
#ifndef CH_CAT_CAT_H
#define CH_CAT_CAT_H

#include "base/base.h"
#include "txn/txn.h"

struct cat;
struct ver;
CH_NODISCARD int cat_create(struct reg *reg, struct txns *txns, struct ver *ver, struct cat **out);
void cat_destroy(struct cat *c);
/* After recovery: finds the next number of large values, and the trees that prepared transactions are dropping. */
CH_NODISCARD int cat_load(struct cat *c);

/* ---- names; as cohort_tree_*(); t is never NULL here ---- */
CH_NODISCARD int cat_open(struct cat *c, struct txn *t, struct bt_slice name, unsigned flags,
                          int codec, int codec_level,
                          struct reg_tree **out); /* one more reference */
CH_NODISCARD int cat_drop(struct cat *c, struct txn *t, struct bt_slice name);
CH_NODISCARD int cat_rename(struct cat *c, struct txn *t, struct bt_slice from, struct bt_slice to);
CH_NODISCARD int cat_truncate(struct cat *c, struct txn *t, struct bt_slice name);
CH_NODISCARD int cat_list(struct cat *c, struct txn *t, int (*visit)(void *arg, const char *name),
                          void *arg);

/* ---- values of any size: what api/ reads and writes through ---- */
struct cohort_value;
/* Into a cohort_value, growing it. t NULL: newest visible. */
CH_NODISCARD int cat_get(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key,
                         struct cohort_value *out);
CH_NODISCARD int cat_get_many(struct cat *c, struct txn *t, struct reg_tree *tree, size_t n,
                              const struct bt_slice *keys, struct cohort_value *values, int *rcs);
/* A part of a value. */
struct cat_part {
    uint64_t offset;
    void *buf;
    size_t bytes;   /* room in buf */
    size_t got;     /* out: bytes read, 0 at the value's end or behind it */
    uint64_t total; /* out: of the value */
};
CH_NODISCARD int cat_read(struct cat *c, struct txn *t, struct reg_tree *tree, struct bt_slice key,
                          struct cat_part *part);
/* The large value that a reference (of a cursor's entry) names, into out. The snapshot that the reference was seen in must
 * still be open; SNAPSHOT_TOO_OLD when it was given up meanwhile and the value is gone. */
CH_NODISCARD int cat_load_ref(struct cat *c, struct bt_slice ref, struct cohort_value *out);
uint64_t cat_ref_bytes(struct bt_slice ref); /* its size */
/* kind: BT_PUT, INSERT, UPDATE, DEL. t NULL: a transaction of its own. */
CH_NODISCARD int cat_write(struct cat *c, struct txn *t, struct reg_tree *tree,
                           enum bt_write_kind kind, struct bt_slice key, struct bt_slice value);

/* A large value piece by piece; small ones end up inline. */
struct cat_writer;
CH_NODISCARD int cat_writer_create(struct cat *c, struct txn *t, struct reg_tree *tree,
                                   struct bt_slice key, struct cat_writer **out);
CH_NODISCARD int cat_writer_append(struct cat_writer *w, const void *data, size_t bytes);
CH_NODISCARD int cat_writer_finish(struct cat_writer *w); /* ends it */
void cat_writer_cancel(struct cat_writer *w);

/* Bulk load; `large` values go to blobs first. */
struct cat_bulk;
CH_NODISCARD int cat_bulk_create(struct cat *c, struct reg_tree *tree, struct cat_bulk **out);
CH_NODISCARD int cat_bulk_put(struct cat_bulk *b, struct bt_slice key, struct bt_slice value);
CH_NODISCARD int cat_bulk_finish(struct cat_bulk *b, int durability);
void cat_bulk_abort(struct cat_bulk *b);

/* One bounded step of freeing what is pending. *did false: nothing can be done now; another caller is at it, or what is pending
 * is still needed. Latches: none. */
CH_NODISCARD int cat_sweep_step(struct cat *c, bool *did);
/* For cohort_check(): everything in `pending`, `names`, `ids`, `blobs` fits together: each name's tree exists, each tree without a
 * name is pending, each large value is referenced or pending. *large_values: how many there are.
 * Idle database. */
CH_NODISCARD int cat_check(struct cat *c, void (*report)(void *arg, const char *line), void *arg,
                           uint64_t *large_values, uint64_t *findings);
/* For reachability: calls visit with the root of every tree, or private root of a bulk load, that is pending, exists, and is
 * not in `ids` (any more). visit's error ends it. */
CH_NODISCARD int cat_each_root(struct cat *c, int (*visit)(void *arg, uint32_t tree, page_id root),
                               void *arg);
uint64_t cat_tree_count(struct cat *c); /* names; COHORT_UNKNOWN when they can't be read */

#endif
