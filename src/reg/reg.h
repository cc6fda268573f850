/* reg.h - the trees of a database by id: which exist, where their roots are, who has them open.
 *
 * Tree `ids` (no versions): key u32 id, big-endian -> record of each tree that has pages, internal ones included:
 *   0  6  root page     6  1  codec (COHORT_CODEC_*)     7  1  its level     8  1  flags (1: may hold large values)
 * Key 0 -> u32 id below which ids may have been given out (they are never reused, R13). It says nothing about names: a tree
 * in `ids` may belong to a transaction that is not committed, or be about to be freed; src/cat keeps track of that.
 *
 * Handles. reg_get() counts references; the struct bt is opened at the first. 10,000 open trees are no trouble: some 300
 * bytes each, found by hash.
 *
 * Who writes where: a transaction that writes into a user's tree is counted in `writers` until it ends; a drop, rename
 * or truncate sets `dropping` and is refused while others write; a writer is refused while somebody else's drop is open.
 */
#ifndef CH_REG_REG_H
#define CH_REG_REG_H

#include "base/base.h"
#include "btree/btree.h"

struct buf;
struct store;
struct ver;
struct wal;
struct reg;

enum {
    REG_MAIN = 1,     /* users' records without a named tree */
    REG_IDS = 2,      /* id -> where it is; no versions */
    REG_NAMES = 3,    /* name -> id; versions */
    REG_PENDING = 4,  /* what is to be freed once nobody sees it; versions */
    REG_BLOBS = 5,    /* pieces of large values; no versions */
    REG_UNDO = 6,     /* before-images (btree/undo.h); no versions */
    REG_USER = 16,    /* first id of named trees */
    REG_MAIN_ROOT = 1 /* page id of the main tree's root */
};

struct reg_tree {
    struct bt bt;
    uint32_t id;
    int codec, codec_level; /* as struct cohort_tree_options */
    uint32_t refs;          /* under the registry's lock, as what follows */
    uint32_t writers;
    uint64_t dropping;     /* transaction that is dropping it, 0 = none */
    bool linked;           /* in the hash */
    _Atomic bool dropped;  /* for good: handles are at their end; release, with acquire of users */
    _Atomic bool large;    /* it may hold large values: its record says so */
    struct reg_tree *next; /* hash */
};
struct reg_config {
    struct buf *buf;
    struct wal *wal;
    struct store *store; /* is told the codec of each tree */
    struct ver *ver;
};
CH_NODISCARD int reg_create(const struct reg_config *cfg, struct reg **out);
void reg_destroy(
    struct reg *r); /* nobody uses a tree any more; references that are left count for nothing */
/* New database: makes main tree (first of all: its root is page REG_MAIN_ROOT) and internal ones. *ids_root goes into the root record. */
CH_NODISCARD int reg_format(struct reg *r, page_id *ids_root);
/* Existing one, after redo: opens the internal trees. ECORRUPT names what is missing. A database of format version 1
 * (ids_root 0) has only the main tree: the others are made, as reg_format() does. */
CH_NODISCARD int reg_load(struct reg *r, page_id *ids_root);
struct bt *reg_internal(struct reg *r, uint32_t id); /* REG_MAIN .. REG_UNDO; always there */
struct reg_tree *reg_main(struct reg *r);
struct reg_tree *reg_internal_tree(struct reg *r,
                                   uint32_t id); /* the same as a tree of transactions */

/* One more reference. NOTFOUND: no such tree. A dropped one is found until reg_forget(): who sees it in an old snapshot
 * must get the same state of it as everybody else. */
CH_NODISCARD int reg_get(struct reg *r, uint32_t id, struct reg_tree **out);
void reg_ref(struct reg *r, struct reg_tree *t);
void reg_put(struct reg *r, struct reg_tree *t);
/* Creation, in this order: the id and an id of a page, which is not written; what is to be undone is made durable in log
 * order by the caller with id and root (cat's pending record); then make, which formats the root page and adds the record to
 * `ids`. After a crash in between the root page's id may be given to another tree: see reg_free_step(). EFULL, ENOMEM. */
CH_NODISCARD int reg_new_id(struct reg *r, uint32_t *id, page_id *root);
CH_NODISCARD int reg_make(struct reg *r, uint32_t id, page_id root, int codec, int codec_level);
/* The tree is about to hold a reference to a large value: noted in its record, in log order. */
CH_NODISCARD int reg_note_large(struct reg *r, struct reg_tree *t);
/* Frees about `max` pages of a tree that nobody uses any more, restartably. *done: nothing is left of it, or there never was
 * anything: `root` does not exist or is a page of another tree. `private`: `root` is that of a bulk load into the tree. */
CH_NODISCARD int reg_free_step(struct reg *r, uint32_t id, page_id root, bool private, unsigned max,
                               bool *done);
/* An id for the private root of a bulk load; nothing is written. EFULL. */
CH_NODISCARD int reg_new_page(struct reg *r, page_id *root);
/* Is the page one of the tree, and a private root if that is asked for? */
CH_NODISCARD int reg_is_root(struct reg *r, uint32_t id, page_id root, bool private, bool *yes);
/* Removes the record, all pages being freed. Missing: fine. */
CH_NODISCARD int reg_forget(struct reg *r, uint32_t id);

/* A transaction is about to write for the first time. NOTFOUND: dropped, by itself perhaps. CONFLICT: being dropped by another. */
CH_NODISCARD int reg_writer_begin(struct reg *r, struct reg_tree *t, uint64_t txn);
void reg_writer_end(struct reg *r, struct reg_tree *t);
/* Drop begins: CONFLICT while others write or drop (`own_writer`: the transaction is itself counted as a writer). */
CH_NODISCARD int reg_drop_begin(struct reg *r, struct reg_tree *t, uint64_t txn, bool own_writer);
/* ... and ends: for good, or not. Also, for good, when the creation of a tree is undone. */
void reg_drop_end(struct reg *r, struct reg_tree *t, bool dropped);

/* Calls visit with every id of `ids` (for check and statistics). visit's error ends it. */
CH_NODISCARD int reg_each(struct reg *r, int (*visit)(void *arg, uint32_t id, page_id root),
                          void *arg);
size_t reg_memory(struct reg *r);

#endif
