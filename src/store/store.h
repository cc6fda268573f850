/* store.h - pages by id, durable and checked; two ways to write behind one struct store_ops, so that
 * everything above is the same code for in-place and out-of-place.
 *
 * Writing is in three steps, so that a batch costs no device flush of its own (R6):
 *   store_write()    packs and writes images; nothing is published; the pages keep their old places
 *   store_ready()    tells whether a device flush that began after the write completed is done
 *   store_publish()  appends the MAP record and changes the map, under the pages' shard locks (S8, R8)
 * The caller (buf's cleaner) keeps the batch in between and guarantees one write in flight per page id
 * (S9, R9) and that the log is durable up to every page's LSN before store_write() (S2; asserted).
 *
 * Locks: one mutex (rank GC) serialises store_write, store_publish, gc_step; reads take none. None of these may
 * be called under a page latch, except store_read() and store_pid_alloc().
 */
#ifndef CH_STORE_STORE_H
#define CH_STORE_STORE_H

#include "base/base.h"
#include "meta/meta.h"
#include "pack/pack.h"
#include "space/map.h"
#include "space/place.h"
#include "space/zone.h"

struct dev;
struct wal;

enum store_kind {
    STORE_OOP,
    STORE_INPLACE
};
/* Where an image may lie across the end of a slot: read as two blocks, and nothing lost between images (pack/run.h). */
enum store_slots {
    STORE_SLOTS_4K,      /* nowhere: each page is one block to read */
    STORE_SLOTS_COLD,    /* in what garbage collection moves */
    STORE_SLOTS_STRADDLE /* everywhere */
};
struct store_config {
    enum store_kind kind;
    bool double_write; /* in place: with a double-write buffer (R20) */
    struct dev *dev;
    enum pack_codec codec;
    int codec_level;
    uint64_t zones_base, zone_bytes; /* data area on the device */
    uint32_t zones, zones_max;
    uint32_t log_zones; /* set aside for the log, when it lies in zones; else 0 */
    uint64_t pages_max;
    unsigned batch_pages;  /* most pages per store_write, <= CH_BATCH_MAX */
    unsigned space_target; /* percent; growable devices */
    bool growable, discard;
    bool deltas;            /* out of place: pages may be written as deltas */
    unsigned delta_percent; /* of what the page's full image takes, most that its delta may */
    uint64_t delta_memory;  /* bytes, for deltas kept in memory */
    enum store_slots slots;
    enum place_policy placement;
    enum victim_policy victim;
    bool
        header_history; /* death times from the page header's history alone (the paper); else from struct heat */
    bool no_priors;        /* first writes are not predicted from their tree */
    bool gc_unsorted;      /* what GC moves goes to one stream */
    unsigned classes;      /* most death classes, 0 = chosen */
    unsigned open_zones;   /* most data zones open at once, 0 = chosen */
    unsigned device_spare; /* percent; 0 = no zone is kept discarded for the drive's sake (gc.c) */
    uint32_t
        inplace_first_zone; /* in place: home slot of page id p = first slot of this zone + p */
};
/* In place: zones [0, this) hold the double-write area; store_format() takes them (state META); boot then takes the
 * zones of the meta arrays and sets inplace_first_zone behind them. */
uint32_t store_inplace_dblwr_zones(uint64_t zone_bytes);

struct store_page {
    page_id pid;
    lsn_t lsn;
    void *page; /* 4096 bytes, aligned, a private copy: store_write() may change its header */
    /* What a delta may be written against: LSN of the page's full image on the device, 0 = unknown; and the blocks in which
     * `page` may differ from it (pack.h). */
    lsn_t base_lsn;
    uint64_t delta_mask;
    bool carried;  /* out: not written this time; still dirty */
    place_t place; /* out */
};
/* A written, not yet published batch; the caller's memory, zeroed before store_write(). */
struct store_batch {
    unsigned count; /* pages written, in the order in which they were given */
    page_id pids[CH_BATCH_MAX];
    place_t places[CH_BATCH_MAX]; /* with PLACE_DELTA where a delta was written */
    struct zone_span spans[CH_BATCH_MAX];
    unsigned span_count;
    uint64_t flush_ticket;
};

struct store;
struct store_counts {
    uint64_t page_writes, page_write_stored, carried;
    uint64_t page_write_squares; /* sum of the squares of their stored bytes */
    uint64_t gc_zones, gc_live_bytes, gc_moved, gc_lost; /* lost: races lost, orphans */
    uint64_t zones_reset, retired;
    uint64_t delta_writes, delta_bytes; /* of page_writes, of page_write_stored */
    uint64_t delta_folds;               /* put into their bases by GC */
    uint64_t delta_memory_hits;         /* reads of a page whose delta was in memory */
    uint64_t delta_reads;               /* reads of a page that took a second slot for its delta */
    unsigned classes;                   /* death classes in use */
    unsigned open_zones;                /* most data zones open at once */
};

/* An empty store over zones that exist; then either format or restore (below). The log comes later. */
CH_NODISCARD int store_create(const struct store_config *cfg, struct store **out);
void store_destroy(struct store *s);
void store_set_wal(struct store *s, struct wal *w);
size_t store_memory(const struct store *s);
struct map *store_map(struct store *s);
struct zone_table *store_zones(struct store *s);

/* Pages of this tree are compressed so from now on (zstd: at that level, 0 = 1); codec < 0: as all others again. The first time
 * for a codec and level it waits for the store's lock. In place nothing is compressed. Memory only: the owner says it again after opening. ENOMEM. */
CH_NODISCARD int store_set_tree_codec(struct store *s, uint32_t tree, int codec, int level);

/* Reads a page; NOTFOUND when it has no image; EPAGE / EIMAGE / EIO. Latches allowed. `buf` aligned. */
CH_NODISCARD int store_read(struct store *s, page_id pid, void *buf);
/* The same; *origin tells what the page was made of. */
struct store_origin {
    lsn_t base_lsn; /* of its full image; 0: deltas are not written */
    uint64_t mask;  /* blocks that its delta brought; 0 = it had none */
};
CH_NODISCARD int store_read_from(struct store *s, page_id pid, void *buf,
                                 struct store_origin *origin);
/* n <= 64 pages in parallel at real queue depth; rc per page. origins may be NULL. */
void store_read_many(struct store *s, const page_id *pids, void *const *bufs, int *rcs,
                     struct store_origin *origins, unsigned n);

/* `carry` allows leaving out pages of badly filled slots. EFULL: no zone; the caller runs store_gc_step() and tries
 * again, nothing was written. EIO: failed writes were abandoned and retried elsewhere in vain. */
CH_NODISCARD int store_write(struct store *s, struct store_page *pages, unsigned n, bool carry,
                             struct store_batch *out);
bool store_ready(struct store *s, const struct store_batch *b);
/* Ready batches only (asserted). Takes log room, or does without (below). EFAILED when the log failed. */
CH_NODISCARD int store_publish(struct store *s, const struct store_batch *b);
/* Forgets a written batch (log failed, closing): its slots become dead space. */
void store_drop(struct store *s, const struct store_batch *b);

/* ---- publication without a record (R11) ----
 * When the log has no room for a MAP record, the map changes all the same: the change is durable with the next checkpoint,
 * which writes the map itself. Until then the old places are kept (S1) and the log that can redo the pages is not cut (R2).
 * So cleaning, GC and with them the checkpoint never wait for log room. A checkpoint brackets its work:
 *     round = store_checkpoint_begin()   before it takes the log's end and copies map pages
 *     store_checkpoint_covers(round)     all map pages dirty then are written: its own root may cut beyond what they publish
 *     store_checkpoint_done(round)       the root is durable: the old places may go
 * store_mark() after a publication is a bound that store_mark_durable() understands: an LSN, or a round. */
#define STORE_UNLOGGED (UINT64_C(1) << 63)
uint64_t store_checkpoint_begin(struct store *s);
void store_checkpoint_covers(struct store *s, uint64_t round);
void store_checkpoint_done(struct store *s, uint64_t round);
lsn_t store_mark(struct store *s);
bool store_mark_durable(struct store *s, lsn_t mark, lsn_t log_durable);

/* Page ids. free: appends MAP records pid -> none, then the ids may be reused. Caller: no write in flight. */
CH_NODISCARD int store_pid_alloc(struct store *s, page_id *out);
CH_NODISCARD int store_pid_free(struct store *s, const page_id *pids, unsigned n);
/* Recovery met a page that has no image yet: its id is in use. ENOMEM, EFULL. */
CH_NODISCARD int store_pid_note(struct store *s, page_id pid);

/* One bounded step of garbage collection: resets what is dead, then moves one victim if free zones are low or the
 * space target is exceeded. *did: whether it did anything. `urgent`: free a zone now, forcing flushes.
 * EFULL when urgent and nothing can be gained. */
CH_NODISCARD int store_gc_step(struct store *s, bool urgent, bool *did);
bool store_gc_wanted(const struct store *s);
/* Admission (R11): whether `new_pages` more pages may be created, given `dirty_new` that have no place yet. */
bool store_has_room(const struct store *s, uint64_t dirty_new, uint64_t new_pages);
/* Pages are written as deltas where that pays. */
bool store_deltas(const struct store *s);
/* Several images share a slot: what a page takes is known when it is written. */
bool store_packs(const struct store *s);
/* Files: the bytes that map and zone table take in META zones count against the space target. */
void store_set_meta_bytes(struct store *s, uint64_t bytes);

/* Replays a MAP record (unconditionally, absolute; R7). ELOG when malformed. */
enum {
    STORE_RECORD_MAP = 1
}; /* log record type owned by store */
CH_NODISCARD int store_replay(struct store *s, const uint8_t *data, uint32_t bytes);
/* Before store_reconcile(): the log lies in these zones and in no others, whatever the checkpoint's table says. ELOG when one of
 * them cannot be the log's. */
CH_NODISCARD int store_log_zones(struct store *s, const zone_id *zones, uint32_t n);
/* The log needs the zone no more (a root that says so is durable): discarded, and free. Takes no lock but the zone table's. */
void store_log_free(struct store *s, zone_id z);
/* After pass 1: recounts live bytes of every zone from the map; EMAP when places overlap zones wrongly. Zones without
 * live bytes become free (after reset), others sealed. */
CH_NODISCARD int store_reconcile(struct store *s);
/* In place, before pass 1: repairs torn pages from a batch that is not retired (R20). *repaired counts. */
CH_NODISCARD int store_repair(struct store *s, unsigned *repaired);
/* Formats the data area of a new database (in place: double-write area). */
CH_NODISCARD int store_format(struct store *s);

/* Zone table pages for the checkpoint (payload META_PAGE_PAYLOAD bytes each). */
uint64_t store_zone_pages(const struct store *s);
void store_zone_page_copy(struct store *s, uint64_t k, uint8_t *payload);
CH_NODISCARD int store_zone_page_load(struct store *s, uint64_t k, const uint8_t *payload);

void store_counts(struct store *s, struct store_counts *out);
/* Verifies S3 and that each place of the map reads back as its page; calls report per finding; returns findings, or
 * STORE_NOT_VERIFIED: there was no memory for it. */
#define STORE_NOT_VERIFIED UINT64_MAX
uint64_t store_verify(struct store *s, void (*report)(void *arg, const char *line), void *arg);

#endif
