/* store_internal.h - what the files of the store share; for src/store only. */
#ifndef CH_STORE_STORE_INTERNAL_H
#define CH_STORE_STORE_INTERNAL_H

#include "rt/rt.h"

#include "dev/dev.h"
#include "pack/pack.h"
#include "store/store.h"
#include "wal/wal.h"

enum {
    STORE_RECORD_VERSION = 2, /* with flags of places; 1 = without */
    STORE_RECORD_HEADER = 4,  /* version, flags, count */
    STORE_RECORD_ENTRY = 14,  /* page id 6, place 8 */
    STORE_RECORD_BYTES = STORE_RECORD_HEADER + STORE_RECORD_ENTRY * CH_BATCH_MAX,
    STORE_READ_MANY = 64, /* most pages of one store_read_many() */
    STORE_READERS = 16,   /* decompression contexts; a 17th reader at once does without */
    STORE_GC_SLOTS_MIN =
        PACK_RUN_SLOTS_MAX, /* GC's chunk, in slots, is the batch of user writes but no less */
    STORE_DELTA_LOCKS = 16,
    STORE_FOLDS = 64,         /* deltas that GC puts into the bases of one chunk, at most */
    STORE_GC_READ_SLOTS = 64, /* one GC read request: 256 KiB */
    STORE_CENSUS_WRITES = 128,
    STORE_ZONE_BACKED = 1, /* growable: the zone's blocks are allocated */
    STORE_ZONE_BAD = 2,    /* a write to it failed: RETIRED once it is empty */
};

/* The two ways to write. Locks: write is called with s->lock held. */
struct store_ops {
    int (*write)(struct store *s, struct store_page *pages, unsigned n, bool carry,
                 struct store_batch *out);
    int (*format)(struct store *s);
    int (*repair)(struct store *s, unsigned *repaired);
    int (*pid_check)(const struct store *s, page_id pid); /* EFULL: no home for this id */
    bool (*place_ok)(const struct store *s, page_id pid, place_t p); /* may the page lie there? */
    bool (*has_room)(const struct store *s, uint64_t dirty_new, uint64_t new_pages);
};

/* Items [first, first + count) of a batch, whose images lie in plan slots [slot, slot + slots) and go to one stream. */
struct store_part {
    enum zone_stream stream;
    unsigned first, count;
    uint32_t slot, slots;
};

/* Death times and classes; guarded by s->lock (placing.c). */
struct store_placing {
    struct heat *heat;   /* NULL: not kept */
    struct place *place; /* NULL: one class */
    unsigned classes;    /* most of them */
    uint32_t now;        /* the clock of the batch, in units of 4 KiB of log */
    struct place_item items[CH_BATCH_MAX];
    uint32_t order[CH_BATCH_MAX]; /* position in the order of writing -> page or image */
    struct pack_item sorted[CH_BATCH_MAX];
};

/* Where one built plan goes and went; guarded by s->lock. */
struct store_writing {
    struct pack_item items[CH_BATCH_MAX];
    struct dev_req reqs[2 * CH_BATCH_MAX]; /* of spans, then what fills their ends */
    uint8_t run_slots[CH_BATCH_MAX];       /* plan slot -> slots of the run that begins there */
    uint32_t span_used[CH_BATCH_MAX];      /* span -> its slots that hold some of the plan */
    unsigned writes;                       /* for the census */
    bool
        tight; /* room was short of late: no runs, as what they lose where zones end is not known before */
    uint64_t slot_no[CH_BATCH_MAX]; /* plan slot -> device slot */
    uint32_t used[CH_BATCH_MAX];    /* plan slot -> image bytes */
    uint32_t deltas[CH_BATCH_MAX];  /* plan slot -> those of them that are deltas */
    struct store_part parts[ZONE_CLASSES];
    unsigned part_count;
    uint8_t *slots; /* s->chunk_slots of them: the parts' slots, where there are several parts */
};

/* Progress of the collection, one victim at a time; guarded by s->lock (gc.c). */
struct store_gc {
    zone_id victim;                /* CH_ZONE_NONE = none; state COLLECT */
    uint32_t next, end;            /* slots [next, end) of the victim are still to be moved */
    uint32_t buf_first, buf_count; /* slots of the victim in buf */
    uint8_t *buf;                  /* s->chunk_slots slots */
    uint32_t written;              /* slots written for this victim */
    uint32_t damaged;              /* live images of this victim that failed their check */
    unsigned barren;               /* victims in a row that gained next to nothing */
    uint64_t barren_changes;       /* s->changes when the last of them ended */
    bool delta[CH_BATCH_MAX];      /* the image is its page's delta */
    place_t old[CH_BATCH_MAX];     /* where the images of this chunk stood */
    place_t folded[CH_BATCH_MAX];  /* the delta that was put into the base; PLACE_NONE = none was */
    place_t to[CH_BATCH_MAX];
    uint32_t
        unit_first[CH_BATCH_MAX]; /* the slot or run of the victim that an image was found in */
    uint8_t unit_slots[CH_BATCH_MAX];
    page_id pids[CH_BATCH_MAX];
    struct zone_span spans[CH_BATCH_MAX];
    unsigned steps; /* for the census */
};

/* Deltas that are put into the bases of a chunk; guarded by s->lock (gc_fold.c). */
struct store_fold {
    unsigned most;  /* of a chunk; 0 = none */
    uint8_t *pages; /* most of them */
    uint8_t *slots; /* of their deltas */
    unsigned items[STORE_FOLDS];
    place_t deltas[STORE_FOLDS];
    struct dev_req reqs[STORE_FOLDS];
};

/* Trees that are compressed in their own way: open addressing, guarded by its lock (codec.c). */
struct store_tree_codec {
    uint32_t tree;
    uint8_t choice; /* as in struct pack_item; 0 = the entry is empty */
    int8_t level;
};
struct store_codecs {
    struct rt_mutex lock; /* rank GC, order 1 */
    struct store_tree_codec *entries;
    uint32_t size; /* a power of two, or 0 */
    uint32_t used;
    uint32_t known; /* what the packer has learned; codec_bit() */
};

/* Deltas in memory, by page id (delta_cache.c). */
struct store_delta_cache {
    struct delta_entry *entries; /* each under the lock of its number */
    uint32_t count;
    struct rt_mutex locks[STORE_DELTA_LOCKS]; /* rank SPACE */
};

struct store_inplace {
    uint8_t *buf;      /* header block and page copies of one double-write batch */
    uint64_t sequence; /* of the newest batch in the double-write area */
    bool failed;       /* a home write failed: the batch that can repair it must stay (R20) */
};

struct store {
    struct store_config cfg;
    const struct store_ops *ops;
    struct map *map;
    struct zone_table *zones;
    struct wal *wal;
    uint32_t zone_slots;
    uint32_t reserve;    /* free zones kept for GC (S6) */
    uint32_t gc_low;     /* free zones at which collecting begins */
    uint32_t zones_cap;  /* zones_max within the device's bytes */
    uint32_t open_zones; /* most data zones open at once, of user writes and GC together */
    uint32_t
        refused; /* slots that the last user write found no room for; 0 = it did; guarded by lock */
    uint8_t *flags; /* per zone, STORE_ZONE_*; guarded by lock */

    struct rt_mutex lock;  /* rank GC: store_write and gc steps, one at a time */
    struct packer *packer; /* user writes and GC; guarded by lock */
    uint32_t run_max;      /* slots of a run, 0 = none are written */
    uint32_t chunk_slots;  /* most slots of a plan, and of one GC read */
    struct store_writing w;
    struct store_placing pl;
    struct store_gc gc;
    struct store_fold fold;
    struct store_delta_cache delta_cache;
    struct store_inplace ip;

    struct packer *readers[STORE_READERS]; /* NULL when the codec needs no context */
    _Atomic uint32_t readers_free;         /* bit i: readers[i] is free; acquire with release */
    struct store_codecs codecs;
    _Atomic bool packs; /* some pages are, or were, compressed; relaxed: admission only */
    _Atomic size_t packers_memory; /* of packer and readers, written under lock; relaxed */

    /* Hints for admission, renewed by store_census() and oop_store(); relaxed, partner: store_has_room, wanted. */
    _Atomic uint32_t trim_zones; /* free zones kept for the drive's sake (gc.c, G5) */
    _Atomic uint32_t zones_out;  /* META, RETIRED and bad ones */
    _Atomic uint32_t
        slot_permille;           /* slot bytes per 1000 image bytes: what packing loses, lately */
    _Atomic uint64_t meta_bytes; /* of META zones, blocks in use (store_set_meta_bytes()) */
    _Atomic uint32_t gc_active;  /* a victim is being moved */
    /* Publications and frees so far; relaxed: only whether it moved counts (gc.c). */
    _Atomic uint64_t changes;
    _Atomic uint64_t gc_idle_until; /* no victim worth it before `changes` is here */

    /* Publication without a record (store.h). round_now changes under all shard locks and is read under one of them;
     * the others are set by the checkpoint (release) and read by store_mark_durable() (acquire). */
    _Atomic uint64_t round_now, unlogged_round, covered_round;

    /* Counters, relaxed: read by store_counts() only. */
    _Atomic uint64_t page_writes, page_write_stored, page_write_squares, carried;
    _Atomic uint64_t delta_writes, delta_bytes, delta_reads, delta_folds;
    _Atomic uint64_t delta_memory_hits;
    _Atomic uint64_t gc_zones, gc_live_bytes, gc_moved, gc_lost, zones_reset;
};

static inline void
store_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t
store_slot_off(uint64_t slot)
{
    return slot * CH_SLOT_BYTES;
}

extern const struct store_ops store_oop_ops;
extern const struct store_ops store_inplace_ops;

/* ---- codec.c ---- */

/* The codec of the database: packer and, where decompression wants contexts, readers. Before anybody uses the store. */
CH_NODISCARD int store_codecs_create(struct store *s);
void store_codecs_destroy(struct store *s);
/* What the pages' trees chose, into the items. */
void store_codecs_choose(struct store *s, struct pack_item *items, unsigned n);

/* ---- store.c ---- */

/* Log bytes that MAP records of n entries take, record headers included. */
uint64_t store_map_bytes(unsigned n);
/* Room for one MAP record of n entries; a zeroed ticket when the log has none, which store_map_append() understands. */
CH_NODISCARD int store_map_room(struct store *s, unsigned n, struct wal_ticket *t);
/* Appends one MAP record for n <= CH_BATCH_MAX pages; their shard locks are held (S8). `places` NULL = all none. With a zeroed
 * ticket nothing is appended: the result is STORE_UNLOGGED + the round. */
lsn_t store_map_append(struct store *s, struct wal_ticket *t, const page_id *pids,
                       const place_t *places, unsigned n);
uint64_t store_shards(const page_id *pids, unsigned n);
/* Renews the admission hints: one pass over the zone table. */
void store_census(struct store *s);
/* Shard lock held: the map takes the place, as its flags say, and the live bytes follow (S1, S3). `lsn`: of the record. */
void store_map_apply(struct store *s, page_id pid, place_t to, lsn_t lsn);
/* Zone of a place, without a lock; CH_ZONE_NONE outside of the data area. */
zone_id store_zone_of(const struct store *s, place_t p);
/* EMAP unless `p` lies within a data zone and within its slot. */
CH_NODISCARD int store_place_check(const struct store *s, page_id pid, place_t p);

/* ---- store_oop.c; s->lock held ---- */

/* Puts the n items of s->w.items, laid out by `plan` in s->w.parts, on the device: reserves spans, writes them
 * under `cause` and CH_PAD, retries a failed write elsewhere once. On success the spans are in
 * flight and s->w.slot_no tells where each plan slot went. On error nothing is reserved.
 * EFULL, EIO. */
CH_NODISCARD int oop_store(struct store *s, enum ch_cause cause, const struct pack_plan *plan,
                           unsigned n, struct zone_span *spans, unsigned *span_count);
/* Growable: adds a zone if `force` or the space target allows; EFULL otherwise. */
CH_NODISCARD int oop_grow(struct store *s, bool force);
/* Growable: the `reserve` lowest free zones, the next ones that GC would open, have blocks (R11). EFULL. */
CH_NODISCARD int oop_back_reserve(struct store *s);
/* Zones that may hold images: what the space target leaves of the live bytes' share once the reserve and the arrays have
 * theirs, besides the open ones; and what the live bytes need at the least. */
uint64_t oop_zones_granted(const struct store *s);
/* Data zones that hold or may hold images. */
uint64_t oop_zones_used(const struct store *s);

/* ---- delta_cache.c ---- */

void delta_cache_init(struct store *s); /* its locks */
CH_NODISCARD int delta_cache_create(struct store *s);
void delta_cache_destroy(struct store *s);
size_t delta_cache_memory(const struct store *s);
/* The delta image of the page that has just been written to `place` (without flags). */
void delta_cache_put(struct store *s, page_id pid, place_t place, const uint8_t *image);
/* Copies the delta to where it stands in its slot; false: it is not here. */
bool delta_cache_get(struct store *s, page_id pid, place_t place, uint8_t *slot);

/* ---- store_read.c ---- */

/* The full image at the place, `image` being its first byte, into page[4096], checked. */
CH_NODISCARD int store_decode(struct store *s, struct packer *p, page_id pid, place_t place,
                              const uint8_t *image, void *page);

/* ---- gc_fold.c; s->lock held ---- */

CH_NODISCARD int gc_fold_create(struct store *s);
void gc_fold_destroy(struct store *s);
/* Puts deltas into the bases among the n items of the chunk; returns the number of items then. */
unsigned gc_fold(struct store *s, unsigned n);

/* ---- placing.c; s->lock held ---- */

CH_NODISCARD int placing_create(struct store *s); /* ENOMEM */
void placing_destroy(struct store *s);
size_t placing_memory(const struct store *s);
/* Renews how many zones may be open at once. */
void placing_census(struct store *s);
/* Of so many zones: most that are open at once. */
uint32_t placing_open_zones(const struct store *s, uint64_t zones);
/* The n pages were written by users: their writes are noted; s->w.items, filled page by page, get their death times and are
 * put in the order of writing, s->pl.order; s->w.parts names each class' items. */
void placing_users(struct store *s, const struct store_page *pages, unsigned n);
/* The same for n images that GC moves; g->pids, g->old and g->delta are put in the same order. */
void placing_moved(struct store *s, unsigned n);
/* Undoes the reordering of placing_moved(): one part, images in the order of their slots. */
void placing_restore(struct store *s, unsigned n);
/* Lays the parts out, one after the other; plan->slots NULL when that takes more slots than `most`. */
void placing_pack(struct store *s, bool carry, uint32_t most, struct pack_plan *plan);
/* What the placement has learned, for the checkpoint: 0 or 1 page behind the zone table's, which begins with PLACING_PAGE (no
 * state of a zone). A page that is no state of this placement is left out: it learns anew. */
enum {
    PLACING_PAGE = 0xA5
};
uint64_t placing_pages(const struct store *s);
void placing_page_copy(struct store *s, uint8_t *payload);
void placing_page_load(struct store *s, const uint8_t *payload);
/* They were written: what the zones hold now is noted. */
void placing_note(struct store *s, unsigned n);

/* ---- gc.c; s->lock held ---- */

/* Resets what is dead. *did as in store_gc_step(). */
CH_NODISCARD int gc_reset_dead(struct store *s, bool urgent, bool *did);
/* Whether a victim should be moved now. */
bool gc_wants_victim(const struct store *s);
/* Renews how many zones are kept discarded (G5). */
void gc_census_trim(struct store *s);
/* Moves one chunk of a victim. */
CH_NODISCARD int gc_move_step(struct store *s, bool urgent, struct wal_ticket *t, bool *did);

#endif
