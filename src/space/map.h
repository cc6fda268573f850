/* map.h - where each page lives, and which page ids are free. Memory only, no I/O.
 *
 * A place is 64 bits: slot (40) | offset in the slot / 16 (8) | length / 16 (9) | flags (7), from the
 * most significant end; 0 = the page has no image. Slot = device byte offset / 4096 (absolute), so
 * slot 0 (the root) never names an image. Raw page: offset 0, length 256 (x16).
 *
 * Deltas: a page may have, besides its base, its last full image, one delta image. Their places are a second plane, which
 * takes memory by segment where there are some. Both planes change under the same shard lock; map_get_both() reads
 * a pair that belonged together.
 *
 * The map is an array of places by page id, in map pages of MAP_PAGE_ENTRIES, allocated in segments on
 * demand. Shard of a page = (pid / MAP_PAGE_ENTRIES) % MAP_SHARDS; one lock each (rank
 * MAP_SHARD, ascending). map_get() is lock-free. An entry changes only under its shard lock, together with
 * appending its MAP record (S8).
 *
 * Page ids: map_pid_alloc() hands out the lowest-known free id; map_pid_free() returns one. An id is
 * free iff it is below the high-water mark, unallocated in the bitmap. Own lock, rank SPACE.
 */
#ifndef CH_SPACE_MAP_H
#define CH_SPACE_MAP_H

#include "base/base.h"

typedef uint64_t place_t;
#define PLACE_NONE UINT64_C(0)
/* Flags of places that are written down, MAP records and batches; what map_get() and map_delta() return has none. Without
 * one: the page's base; the page has no delta any more. Slot numbers stay below 2^38 (1 PiB). */
#define PLACE_DELTA (UINT64_C(1) << 63) /* the page's delta; the base stays */
#define PLACE_KEEP  (UINT64_C(1) << 62) /* the page's base, which has moved; the delta stays */
#define PLACE_FLAGS (PLACE_DELTA | PLACE_KEEP)

static inline place_t
place_make(uint64_t slot, uint32_t offset, uint32_t bytes)
{
    return slot << 24 | (uint64_t)(offset / 16) << 16 | (uint64_t)(bytes / 16) << 7;
}
static inline uint64_t
place_slot(place_t p)
{
    return p >> 24;
}
static inline uint32_t
place_offset(place_t p)
{
    return (uint32_t)(p >> 16 & 0xff) * 16;
}
static inline uint32_t
place_bytes(place_t p)
{
    return (uint32_t)(p >> 7 & 0x1ff) * 16;
}
/* The image goes on in the next slot (pack/run.h). */
static inline bool
place_crosses(place_t p)
{
    return place_offset(p) + place_bytes(p) > CH_SLOT_BYTES;
}

enum {
    MAP_PAGE_ENTRIES = 504,
    MAP_SHARDS = 64
};

struct map;
/* pages_max bounds page ids (exclusive); memory grows with the ids in use. ENOMEM. */
CH_NODISCARD int map_create(uint64_t pages_max, struct map **out);
void map_destroy(struct map *m);
uint64_t map_pages_max(const struct map *m);
/* Ids at or above `limit` are not handed out (EFULL): what the checkpoint's arrays can hold. Starts at pages_max. */
void map_set_limit(struct map *m, uint64_t limit);
size_t map_memory(const struct map *m);

static inline unsigned
map_shard(page_id pid)
{
    return (unsigned)(pid / MAP_PAGE_ENTRIES % MAP_SHARDS);
}
/* Locks / unlocks every shard whose bit is set, ascending. */
void map_lock(struct map *m, uint64_t shards);
void map_unlock(struct map *m, uint64_t shards);

/* Lock-free, acquire; PLACE_NONE for ids beyond what exists. */
place_t map_get(const struct map *m, page_id pid);
/* Makes sure the segment of `pid` exists, so that map_set() can't fail. ENOMEM; EFULL at pages_max. */
CH_NODISCARD int map_ensure(struct map *m, page_id pid);
/* Shard lock held; marks the map page dirty; returns the old place. The page has no delta then. */
place_t map_set(struct map *m, page_id pid, place_t to);
/* S7: sets only if the entry still is `from`. Shard lock held. */
bool map_move_if(struct map *m, page_id pid, place_t from, place_t to);

/* ---- deltas ---- */
/* The page's base and delta, PLACE_NONE = none, as they belonged together at one moment; lock-free, acquire. */
void map_get_both(const struct map *m, page_id pid, place_t *base, place_t *delta);
place_t map_delta(const struct map *m, page_id pid); /* lock-free, acquire */
/* Makes sure that the page can have a delta. ENOMEM; EFULL at or above the limit, which starts at pages_max: what the
 * checkpoint's array can hold. */
CH_NODISCARD int map_ensure_delta(struct map *m, page_id pid);
void map_set_delta_limit(struct map *m, uint64_t limit);
/* Shard lock held. The base moves, the delta stays; returns the old base. */
place_t map_set_base(struct map *m, page_id pid, place_t to);
/* Shard lock held, after map_ensure_delta(). The delta alone; returns the old one. */
place_t map_set_delta(struct map *m, page_id pid, place_t to);

/* Page ids. alloc: EFULL when pages_max is reached, ENOMEM. Ids start at `first` (see boot). */
CH_NODISCARD int map_pid_alloc(struct map *m, page_id *out);
void map_pid_free(struct map *m, page_id pid);
/* Recovery: pid is in use / the high-water mark is at least pid+1. */
CH_NODISCARD int map_pid_mark_used(struct map *m, page_id pid);
bool map_pid_is_used(const struct map *m, page_id pid);
uint64_t map_pid_high(const struct map *m);
uint64_t map_pid_count(const struct map *m); /* in use */
/* After recovery: every id below the mark with no place and for which keep() is false becomes free. */
void map_pid_rebuild(struct map *m, bool (*keep)(void *arg, page_id pid), void *arg);

/* Checkpoint: map page k covers pids k*504 ..; copies its entries (504 x 8 bytes) under its lock and
 * clears its dirty mark; map_page_redirty() after a failed write. */
uint64_t map_page_count(const struct map *m);
bool map_page_dirty(const struct map *m, uint64_t k);
void map_page_copy(struct map *m, uint64_t k, uint64_t *entries);
void map_page_redirty(struct map *m, uint64_t k);
/* The second plane has pages 0 .. count-1, of the same pids; 0 until there was a delta. */
uint64_t map_delta_page_count(const struct map *m);
bool map_delta_page_dirty(const struct map *m, uint64_t k);
/* Page k of both planes, as they belong together; the bits say which were dirty and are not any more. `deltas` may be NULL:
 * the second plane's is left alone. */
enum {
    MAP_DIRTY_BASE = 1,
    MAP_DIRTY_DELTA = 2
};
unsigned map_pages_copy(struct map *m, uint64_t k, uint64_t *entries, uint64_t *deltas);
/* Recovery, single-threaded, after map_page_load() of the same page. ENOMEM; EMAP. */
CH_NODISCARD int map_delta_page_load(struct map *m, uint64_t k, const uint64_t *entries);
/* Recovery, single-threaded: installs entries of map page k (clean). ENOMEM. */
CH_NODISCARD int map_page_load(struct map *m, uint64_t k, const uint64_t *entries);
bool map_check(const struct map *m);

#endif
