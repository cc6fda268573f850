/* delta_cache.c - deltas kept in memory within a budget, so that reading a page with a delta costs one read.
 *
 *     page id --modulo--> entry { page id, place, bytes of the image }
 *
 * A delta is put here when it is written or moved. A reader knows from the map where the page's delta is; an entry with that
 * page id and that place holds its bytes.
 *
 * Invariants:
 *   E1  a page has one entry it may be in, and every delta image of the page that is written replaces what stands there. So the bytes
 *       of an entry are the last ones that were written for its page, and the place names no others: a slot that was reset and
 *       written anew with a delta of the same page has replaced the entry then.
 *   E2  bytes taken from here are checked like bytes from a device (pack_delta_apply()).
 *
 * Memory: all at store_create(). Locks: one for 1/16 of the entries (rank SPACE), for the time of a copy. Crash: memory only.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "store/store_internal.h"

enum {
    ENTRY_BYTES = 512 - 24, /* of an image; larger ones are read */
    LOCK_ORDER = 64,
};

struct delta_entry {
    page_id pid; /* 0 = empty */
    place_t place;
    uint32_t bytes;
    uint8_t image[ENTRY_BYTES];
};

void
delta_cache_init(struct store *s)
{
    for (unsigned i = 0; i < STORE_DELTA_LOCKS; i++)
        rt_mutex_init(&s->delta_cache.locks[i], RT_RANK_SPACE, LOCK_ORDER + i);
}

int
delta_cache_create(struct store *s)
{
    struct store_delta_cache *c = &s->delta_cache;
    uint64_t n = store_deltas(s) ? s->cfg.delta_memory / sizeof(struct delta_entry) : 0;

    c->count = (uint32_t)ch_min_u64(n, UINT32_MAX);
    if (c->count == 0)
        return 0;
    c->entries = calloc(c->count, sizeof(*c->entries));
    return c->entries != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "cache of %" PRIu32 " deltas", c->count);
}

void
delta_cache_destroy(struct store *s)
{
    free(s->delta_cache.entries);
    for (unsigned i = 0; i < STORE_DELTA_LOCKS; i++)
        rt_mutex_fini(&s->delta_cache.locks[i]);
}

size_t
delta_cache_memory(const struct store *s)
{
    return s->delta_cache.count * sizeof(struct delta_entry);
}

void
delta_cache_put(struct store *s, page_id pid, place_t place, const uint8_t *image)
{
    struct store_delta_cache *c = &s->delta_cache;
    struct rt_mutex *lock;
    struct delta_entry *e;
    uint32_t bytes = place_bytes(place);

    if (c->count == 0)
        return;
    e = &c->entries[pid % c->count];
    lock = &c->locks[pid % c->count % STORE_DELTA_LOCKS];
    rt_lock(lock);
    e->pid = bytes <= ENTRY_BYTES ? pid : 0; /* E1 */
    e->place = place;
    e->bytes = bytes;
    if (bytes <= ENTRY_BYTES)
        memcpy(e->image, image, bytes);
    rt_unlock(lock);
}

bool
delta_cache_get(struct store *s, page_id pid, place_t place, uint8_t *slot)
{
    struct store_delta_cache *c = &s->delta_cache;
    const struct delta_entry *e;
    struct rt_mutex *lock;
    bool found;

    if (c->count == 0)
        return false;
    e = &c->entries[pid % c->count];
    lock = &c->locks[pid % c->count % STORE_DELTA_LOCKS];
    rt_lock(lock);
    found = e->pid == pid && e->place == place;
    if (found)
        memcpy(slot + place_offset(place), e->image, e->bytes);
    rt_unlock(lock);
    return found;
}
