/* cat_internal.h - what the files of cat/ share: the struct, records of `pending`, pieces of large values. */
#ifndef CH_CAT_CAT_INTERNAL_H
#define CH_CAT_CAT_INTERNAL_H

#include "cat/cat.h"
#include "rt/rt.h"
#include "ver/ver.h"

enum {
    CAT_PIECE_KEY = 12,                       /* u64 number | u32 piece, big-endian */
    CAT_PIECE = BT_ENTRY_MAX - CAT_PIECE_KEY, /* two of them fill a leaf */
    CAT_REF_BYTES = 16,                       /* u64 number | u64 bytes */
    CAT_SWEEP_PAGES = 64,
    CAT_SWEEP_PIECES = 256,
    CAT_SWEEP_ENTRIES = 512, /* of one step */
};
#define CAT_BULK_NUMBERS \
    (UINT64_C(1) << 32) /* numbers that one bulk load has for its large values */

_Static_assert((int)CAT_REF_BYTES <= (int)BT_REF_MAX, "a reference is kept in struct bt_done");
_Static_assert(BT_ENTRY_MAX - CAT_PIECE_KEY > (size_t)COHORT_ENTRY_MAX,
               "what is not inline has a piece at least");

/* Ends a group of writes of t that began at the savepoint, which ends too: with `rc` != 0 none of them counts. Returns rc, or
 * what went wrong here; then only the end of t is possible. */
CH_NODISCARD int cat_group_end(struct txn *t, uint64_t sp, int rc);

/* ---- records of `pending` (pending.c) ---- */

enum pending_kind {
    PENDING_TREE = 1,  /* number: the tree's id; root */
    PENDING_VALUE = 2, /* number: of the value */
    PENDING_BULK = 3,  /* number: the first of CAT_BULK_NUMBERS; tree, its private root */
};
enum pending_state {
    PENDING_NEW = 0,
    PENDING_QUIET = 1, /* of a tree: written once nobody could open it any more (sweep.c) */
};
struct pending {
    enum pending_kind kind;
    uint64_t number;
    uint64_t txn; /* 0: none */
    page_id root;
    uint32_t tree;
    unsigned state;
};
enum {
    PENDING_KEY_BYTES = 9,    /* u8 kind | u64 number, big-endian */
    PENDING_VALUE_BYTES = 20, /* u64 transaction | u48 root | u8 state | u8 0 | u32 tree */
};
struct bt_slice pending_key(enum pending_kind kind, uint64_t number,
                            uint8_t out[PENDING_KEY_BYTES]);
/* ECORRUPT. */
CH_NODISCARD int pending_unpack(struct bt_slice key, struct bt_slice value, struct pending *out);
/* Within the transaction. put: also on a full device, since space comes of it. */
CH_NODISCARD int pending_put(struct cat *c, struct txn *t, const struct pending *p);
CH_NODISCARD int pending_del(struct cat *c, struct txn *t, enum pending_kind kind, uint64_t number);
/* As operations of their own, in log order before whatever the caller does next. put: of state PENDING_QUIET on a full device
 * too. del: missing is fine. */
CH_NODISCARD int pending_put_alone(struct cat *c, const struct pending *p);
CH_NODISCARD int pending_del_alone(struct cat *c, enum pending_kind kind, uint64_t number);
/* The newest committed record; NOTFOUND. */
CH_NODISCARD int pending_get(struct cat *c, enum pending_kind kind, uint64_t number,
                             struct pending *out);
/* Calls visit with every committed record, in order of keys; its error ends it. */
CH_NODISCARD int pending_each(struct cat *c, int (*visit)(void *arg, const struct pending *p),
                              void *arg);

/* ---- pieces of large values (blobs.c) ---- */

struct blob_ref {
    uint64_t number, bytes;
};
void blob_ref_pack(const struct blob_ref *ref, uint8_t out[CAT_REF_BYTES]);
CH_NODISCARD int blob_ref_unpack(struct bt_slice v, struct blob_ref *out); /* ECORRUPT */
static inline uint64_t
blob_pieces(uint64_t bytes)
{
    return ch_div_up(bytes, CAT_PIECE);
}
/* The bytes of piece i. */
static inline size_t
blob_piece_bytes(uint64_t bytes, uint64_t i)
{
    return (size_t)ch_min_u64(CAT_PIECE, bytes - i * CAT_PIECE);
}
CH_NODISCARD int blob_write(struct cat *c, uint64_t number, uint32_t piece, const void *data,
                            size_t bytes);
/* Bytes [offset, offset + bytes) of the value, all of which exist. ERETRY when a piece is gone or is not what it should be. */
CH_NODISCARD int blob_read(struct cat *c, const struct blob_ref *ref, uint64_t offset, void *buf,
                           size_t bytes);
/* Removes pieces of the values first .. end - 1, at most about `max`; *more: some are left. */
CH_NODISCARD int blob_remove(struct cat *c, uint64_t first, uint64_t end, unsigned max, bool *more);
/* All of one value's; what fails is left to the sweeper. */
void blob_discard(struct cat *c, uint64_t number);
/* Walks over all pieces. `number` and `piece` by the key. */
CH_NODISCARD int blob_each(struct cat *c,
                           int (*visit)(void *arg, uint64_t number, uint32_t piece, size_t bytes),
                           void *arg);
/* The highest number that has pieces, 0 = none. */
CH_NODISCARD int blob_last(struct cat *c, uint64_t *number);

/* ---- values (value.c, writer.c) ---- */

/* `data` has room for that many bytes, and is not NULL. ENOMEM. */
CH_NODISCARD int value_reserve(struct cohort_value *v, size_t bytes);
/* One write of t whose value is inline, or a delete; what it replaces is freed with t's commit. *again (never set to false):
 * CONFLICT with somebody who has committed: a new snapshot may help. */
CH_NODISCARD int value_write_inline(struct cat *c, struct txn *t, struct reg_tree *tree,
                                    const struct bt_op *op, bool *again);
/* The same with a large value. */
CH_NODISCARD int value_write_large(struct cat *c, struct txn *t, struct reg_tree *tree,
                                   const struct bt_op *op, bool *again);
/* A value that t has replaced: to be freed with its commit. */
CH_NODISCARD int value_replaced(struct cat *c, struct txn *t, const struct bt_done *done);

/* ---- bulk loads that this process knows of (bulk.c) ---- */

struct bulk_note {
    uint64_t number;
    uint32_t tree;
    bool finished; /* its contents are the tree's: only its record is left over */
    struct bulk_note *next;
};
enum bulk_state {
    BULK_UNKNOWN, /* of an earlier run, or given up */
    BULK_ACTIVE,
    BULK_FINISHED
};
enum bulk_state bulk_state(struct cat *c, uint64_t number);
/* Its record is deleted. */
void bulk_forget(struct cat *c, uint64_t number);

/* ---- the sweeper's place (sweep.c); sweep lock ---- */

struct sweep {
    bool busy;    /* `now` is being worked on */
    bool changed; /* something was done since the pass began */
    struct pending now;
    bool walked; /* the large values of tree `now` are gone */
    bool any;    /* `at` counts: the last record looked at */
    uint8_t at[PENDING_KEY_BYTES];
    bool walk_any; /* `walk` counts: */
    size_t walk_bytes;
    uint8_t walk[COHORT_KEY_MAX]; /* first key of tree `now` that is still to be looked at */
};

struct cat {
    struct reg *reg;
    struct txns *txns;
    struct ver *ver;
    struct reg_tree *names, *pending;
    struct bt *blobs;
    _Atomic uint64_t next_number; /* of large values; relaxed: only distinct */
    struct rt_mutex sweep_lock;
    struct sweep sweep;
    struct rt_mutex bulk_lock;
    struct bulk_note *bulks;
};

#endif
