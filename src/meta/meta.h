/* meta.h - where things are: root records A/B, and the A/B arrays that hold map and zone-table pages.
 *
 * Root area: the first META_ROOT_BYTES of the device; root slot A at 0, B at META_ROOT_BYTES / 2, 4 KiB each.
 * A root is valid iff magic, version, CRC hold; the valid one with the highest sequence counts. The other one is
 * overwritten by the next store, then flushed (R16).
 *
 * Meta arrays: page k of an array has two slots of 4 KiB, in extents of one zone each (state META); a checkpoint
 * writes the slot that is not current; current = highest checkpoint number <= the root's. So a crash anywhere in a
 * checkpoint leaves the previous one whole.
 */
#ifndef CH_META_META_H
#define CH_META_META_H

#include "base/base.h"

struct dev;
enum {
    META_ROOT_BYTES = 64 << 10,
    /* 1: had the main tree only; 2: had no deltas and the log in a ring. Read, and migrated by the first root stored */
    META_VERSION = 3,
    META_EXTENTS_MAX = 448,
    META_WRITE_MAX = 16, /* pages of one meta_array_write() */
    META_ARRAYS = 3
};
enum meta_array_id {
    META_MAP,
    META_ZONES,
    META_DELTAS /* the map's second plane; version 3 */
};

struct meta_extent {
    zone_id zone;
    uint8_t array;
};
struct meta_root {     /* in memory; FORMAT.md gives the bytes */
    uint64_t sequence; /* of root stores */
    uint64_t db_id;    /* random, at creation */
    uint32_t format_version;
    uint32_t preset, codec; /* as created */
    uint64_t device_bytes;  /* at creation (not files) */
    uint64_t log_base,
        log_bytes;    /* log in zones: = zones_base, and how much of it is kept at most */
    bool log_zones;   /* the log lies in zones (wal.h, segments); version 3 */
    zone_id log_zone; /* ... and the block below `cut` in this one */
    uint64_t zones_base, zone_bytes;
    uint32_t zones; /* that exist */
    uint32_t
        inplace_zones; /* in place: zones that the layout was made for, fixed at creation; else 0 */
    uint32_t epoch;    /* of the newest log blocks */
    uint32_t epoch_min;             /* lowest epoch that may stand at `cut` */
    lsn_t epoch_start;              /* R10: blocks from here on carry `epoch` */
    lsn_t cut;                      /* log is kept and read from here */
    lsn_t map_start;                /* R7: MAP records replayed from here */
    uint64_t checkpoint;            /* number */
    uint64_t map_pages, zone_pages; /* pages of the two arrays */
    uint64_t page_high;             /* page-id high-water mark */
    bool clean;                     /* closed cleanly; informative */
    uint64_t unit_bytes;            /* erase unit as known or probed, 0 = unknown */
    uint64_t digest
        [META_ARRAYS]; /* meta_array_digest() of each array at `checkpoint`; 0 = not told, not checked */
    uint64_t
        ids_root; /* root page of the tree of trees (reg.h); 0 = none yet: version 1, or migrating from it */
    uint64_t next_txn;    /* ids of transactions below were given out, maybe; 0 in version 1 */
    uint64_t delta_pages; /* of array META_DELTAS; 0 before version 3 */
    uint32_t extent_count;
    struct meta_extent extents[META_EXTENTS_MAX]; /* per array in order of page number */
};

/* EMAGIC: neither slot was ever a root; EROOT: damaged; EVERSION: newer; EIO; EMISMATCH: device smaller than the
 * root says (truncated file). */
CH_NODISCARD int meta_load(struct dev *d, struct meta_root *out);
/* Flushes what was written before, then sequence + 1 to the other slot, flushed. Sequence 0, the first store of a new
 * database, wipes both slots first. On error root->sequence is unchanged, and which of both roots is in force is not
 * known: nothing that either names may be overwritten any more in this session (log, array slots). */
CH_NODISCARD int meta_store(struct dev *d, struct meta_root *root);
/* For creation. *is_root: a slot has a root's magic, be it valid or damaged; *is_blank: the first 64 KiB, as far as
 * they exist, are all zeroes. EIO, ENOMEM. */
CH_NODISCARD int meta_probe(struct dev *d, bool *is_root, bool *is_blank);
/* Encodes / decodes the 4 KiB of a root slot; pure, for tests and fuzzing. */
void meta_root_encode(const struct meta_root *r, uint8_t *block);
CH_NODISCARD int meta_root_decode(const uint8_t *block, struct meta_root *out);

/* One array. Which slot is current is memory only, found by reading both. */
struct meta_array;
enum {
    META_PAGE_PAYLOAD = 4096 - 64
}; /* >= 504 * 8 */
/* Creates the in-memory state of array `id` over the root's extents; pages beyond them need meta_array_extend(). */
CH_NODISCARD int meta_array_create(struct dev *d, enum meta_array_id id,
                                   const struct meta_root *root, struct meta_array **out);
void meta_array_destroy(struct meta_array *a);
size_t meta_array_memory(const struct meta_array *a);
/* Reads every page 0 .. pages-1 and hands payloads to visit() in order; picks slots as above. A page of which neither
 * slot is valid: EMAP naming it; EMAP too when what it picked is not what the root's digest says. Finds the highest
 * checkpoint number ever used (valid or not accepted), and wipes slots of checkpoints that no root stands for. visit()
 * returns 0 or an error, which ends the load. After an error the array can only be destroyed. */
CH_NODISCARD int meta_array_load(struct meta_array *a, uint64_t pages, uint64_t checkpoint,
                                 int (*visit)(void *arg, uint64_t k, const uint8_t *payload),
                                 void *arg);
uint64_t meta_array_highest(const struct meta_array *a);
uint64_t meta_array_capacity(const struct meta_array *a); /* pages that its extents hold */
/* Adds an extent (a META zone) to array and root. EFULL: META_EXTENTS_MAX; ENOMEM. */
CH_NODISCARD int meta_array_extend(struct meta_array *a, zone_id zone, struct meta_root *root);
/* Files: the slots of pages [0, pages) have blocks, so that writing them needs none. A no-op elsewhere, and for those that
 * this opening has backed before. NO_SPACE: as many as there was room for. */
CH_NODISCARD int meta_array_back(struct meta_array *a, uint64_t pages);
uint64_t meta_array_backed(const struct meta_array *a);
/* Writes payloads of pages ks[0..n) (n <= META_WRITE_MAX) as checkpoint `number` to their non-current slots; not flushed.
 * Numbers are above meta_array_highest() of both arrays at load and never used for two roots. */
CH_NODISCARD int meta_array_write(struct meta_array *a, uint64_t number, const uint64_t *ks,
                                  unsigned n, const uint8_t *payloads);
/* The array's digest once `number` is committed: into root->digest[] before meta_store(). */
uint64_t meta_array_digest(const struct meta_array *a, uint64_t number);
/* After the root that names `number` is durable: what was written with it becomes current. */
void meta_array_commit(struct meta_array *a, uint64_t number);

#endif
