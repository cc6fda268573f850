/* map.c - where each page lives, and which page ids are in use.
 *
 *     m->leaf[l] --> leaf: segment[j] --> segment: place[64 x 504]   8 bytes a page
 *                          clean[j]                used[504]         1 bit a page
 *                          full                    full              1 bit a word of used[]
 *
 * A leaf covers 64 segments (2 M pages), a segment 64 map pages of 504 entries, and both are allocated when
 * an id in them is first needed, never moved and freed with the map only; so a lock-free reader may follow
 * any pointer it finds. Memory a page of a filled segment: 8 + 1/8 + 1/500 bytes. m->leaf has 8 bytes for
 * each 2 M pages of pages_max.
 *
 * As a segment has as many map pages as there are shards, and words of `used` as there are entries in
 * a map page, bit j of a segment's `clean` word belongs to shard j, and all sizes come out even.
 *
 * Invariants (all in map_check()):
 *   M1  An entry changes only under its shard lock, and its map page's clean bit is cleared under it.
 *   M2  A map page below map_page_count() that no checkpoint has taken is dirty: so marks are kept as
 *       "clean" bits, which start at zero, and pages never touched are written once as well.
 *   M3  full-bits are exact at both levels: a word of used[] is full iff all its bits are set, a segment is
 *       iff all its words are. No segment means no full-bit.
 *   M4  No leaf below `hint` has a segment with a free id.
 *   M6  An entry of the first plane has HAS_DELTA iff it has a place and the page's entry of the second plane has one. A full
 *       image replaces both: the base is stored first, without the flag. A reader that finds the flag looks at the base once
 *       more after the delta; so a base is never taken with the delta of another one, and never without its own.
 *   M7  Pages of both planes are copied for a checkpoint under one hold of the shard lock (map_pages_copy()): as far as no
 *       record says what changed (R11), they are all that recovery has.
 *   M5  Used ids are below the high-water mark; id 0 is used for ever and not counted.
 *
 * Locks: shard[i] (rank MAP_SHARD, order i) for entries and their clean bits; pid_lock (rank SPACE,
 * order 0) for the id bitmaps, high, count, limit, and for allocating leaves and segments. map_get() and the
 * fast path of map_ensure() take none.
 *
 * Crash: memory only. The map is the checkpoint's map pages plus the MAP records after it; the ids are
 * what has a place or is kept by redo (map_pid_rebuild).
 */
#include "space/map.h"
#include "base/bug.h"

#include <inttypes.h>
#include <stdlib.h>

#include "rt/rt.h"

enum {
    SEG_MAP_PAGES = MAP_SHARDS,
    SEG_ENTRIES = SEG_MAP_PAGES * MAP_PAGE_ENTRIES,
    SEG_WORDS = SEG_ENTRIES / 64,
    SEG_SUMMARY = (SEG_WORDS + 63) / 64,
    LEAF_SEGMENTS = 64,
    LEAF_WORDS = LEAF_SEGMENTS / 64,
};
#define HAS_DELTA     PLACE_DELTA /* of an entry in memory (M6) */
#define LEAF_ENTRIES  ((uint64_t)LEAF_SEGMENTS * SEG_ENTRIES)
#define PAGES_MAX_MAX (UINT64_C(1) << 40)

_Static_assert(SEG_ENTRIES % 64 == 0, "a segment is whole words of ids");

struct deltas {
    _Atomic uint64_t place[SEG_ENTRIES]; /* map_set_delta (release) <-> map_get_both (acquire) */
};

struct segment {
    _Atomic(struct deltas *) deltas; /* map_ensure_delta (release) <-> deltas_of (acquire) */
    uint64_t full[SEG_SUMMARY];      /* bit w: used[w] is full; bits beyond SEG_WORDS are set */
    uint64_t used[SEG_WORDS];
    _Atomic uint64_t place[SEG_ENTRIES]; /* map_set (release) <-> map_get (acquire) */
};

struct leaf {
    _Atomic(struct segment *) segment[LEAF_SEGMENTS]; /* segment_make (release) <-> segment_of */
    _Atomic uint64_t clean[LEAF_SEGMENTS];       /* shared by 64 shards; else under their locks */
    _Atomic uint64_t delta_clean[LEAF_SEGMENTS]; /* likewise, of the second plane */
    uint64_t full[LEAF_WORDS];                   /* bit j: segment j is full */
};

struct shard {
    struct rt_mutex lock;
} __attribute__((aligned(64)));

struct map {
    struct shard shard[MAP_SHARDS];
    struct rt_mutex pid_mutex;
    struct rt_mutex *pid_lock; /* = &pid_mutex, for functions that take a const map */
    uint64_t pages_max, limit;
    uint64_t leaves;
    uint64_t hint; /* M4 */
    uint64_t high, used_count;
    _Atomic uint64_t page_count;     /* raised under pid_lock (release) <-> readers (acquire) */
    _Atomic uint64_t delta_segments; /* one more than the highest with deltas; likewise */
    _Atomic uint64_t delta_limit; /* relaxed: set before the pages it allows can be backed away */
    _Atomic size_t memory;        /* a statistic */
    _Atomic(struct leaf *) *leaf; /* leaf_make (release) <-> leaf_of (acquire) */
};

/* ---- create, destroy ----------------------------------------------------------------------- */

int
map_create(uint64_t pages_max, struct map **out)
{
    struct map *m;

    CH_ASSERT(pages_max > 0 && pages_max <= PAGES_MAX_MAX);
    m = ch_alloc_aligned(sizeof(*m));
    if (m == NULL)
        return CH_FAIL(COHORT_ENOMEM, "map");
    m->leaves = ch_div_up(pages_max, LEAF_ENTRIES);
    m->leaf = ch_alloc_aligned(m->leaves * sizeof(*m->leaf));
    if (m->leaf == NULL) {
        ch_free_aligned(m);
        return CH_FAIL(COHORT_ENOMEM, "map of %" PRIu64 " pages", pages_max);
    }
    for (unsigned i = 0; i < MAP_SHARDS; i++)
        rt_mutex_init(&m->shard[i].lock, RT_RANK_MAP_SHARD, i);
    rt_mutex_init(&m->pid_mutex, RT_RANK_SPACE, 0);
    m->pid_lock = &m->pid_mutex;
    m->pages_max = pages_max;
    m->limit = pages_max;
    m->high = 1; /* M5 */
    atomic_init(&m->page_count, 1);
    atomic_init(&m->delta_limit, pages_max);
    atomic_init(&m->memory, sizeof(*m) + ch_min_u64(m->leaves * sizeof(*m->leaf), CH_PAGE_BYTES));
    *out = m;
    return 0;
}

static void
leaf_destroy(struct leaf *leaf)
{
    if (leaf == NULL)
        return;
    for (unsigned j = 0; j < LEAF_SEGMENTS; j++) {
        /* Relaxed: no one else is left. */
        struct segment *s = atomic_load_explicit(&leaf->segment[j], memory_order_relaxed);

        if (s != NULL)
            ch_free_aligned(atomic_load_explicit(&s->deltas, memory_order_relaxed));
        ch_free_aligned(s);
    }
    free(leaf);
}

void
map_destroy(struct map *m)
{
    if (m == NULL)
        return;
    for (uint64_t l = 0; l < m->leaves; l++)
        leaf_destroy(
            atomic_load_explicit(&m->leaf[l], memory_order_relaxed)); /* no one else left */
    for (unsigned i = 0; i < MAP_SHARDS; i++)
        rt_mutex_fini(&m->shard[i].lock);
    rt_mutex_fini(&m->pid_mutex);
    ch_free_aligned(m->leaf);
    ch_free_aligned(m);
}

uint64_t
map_pages_max(const struct map *m)
{
    return m->pages_max;
}

void
map_set_limit(struct map *m, uint64_t limit)
{
    rt_lock(m->pid_lock);
    m->limit = ch_min_u64(limit, m->pages_max);
    rt_unlock(m->pid_lock);
}

size_t
map_memory(const struct map *m)
{
    return atomic_load_explicit(&m->memory, memory_order_relaxed); /* a statistic */
}

/* ---- leaves and segments --------------------------------------------------------------------- */

/* NULL when it does not exist. pid < pages_max. */
static struct leaf *
leaf_of(const struct map *m, page_id pid)
{
    return atomic_load_explicit(&m->leaf[pid / LEAF_ENTRIES], memory_order_acquire);
}

static unsigned
segment_index(page_id pid)
{
    return (unsigned)(pid / SEG_ENTRIES % LEAF_SEGMENTS);
}

/* NULL when it does not exist; also for any id at or above pages_max. */
static struct segment *
segment_of(const struct map *m, page_id pid)
{
    struct leaf *leaf;

    if (pid >= m->pages_max)
        return NULL;
    leaf = leaf_of(m, pid);
    if (leaf == NULL)
        return NULL;
    return atomic_load_explicit(&leaf->segment[segment_index(pid)], memory_order_acquire);
}

/* pid_lock held. */
static int
leaf_make(struct map *m, page_id pid, struct leaf **out)
{
    struct leaf *leaf = leaf_of(m, pid);

    if (leaf == NULL) {
        leaf = calloc(1, sizeof(*leaf));
        if (leaf == NULL)
            return CH_FAIL(COHORT_ENOMEM, "map leaf of page %" PRIu64, pid);
        atomic_fetch_add_explicit(&m->memory, sizeof(*leaf), memory_order_relaxed);
        /* Partner: leaf_of(). */
        atomic_store_explicit(&m->leaf[pid / LEAF_ENTRIES], leaf, memory_order_release);
    }
    *out = leaf;
    return 0;
}

/* pid_lock held; pid < pages_max. */
static int
segment_make(struct map *m, page_id pid, struct leaf **leaf_out, struct segment **out)
{
    struct leaf *leaf;
    struct segment *s;
    int rc;

    rc = leaf_make(m, pid, &leaf);
    if (rc != 0)
        return rc;
    s = segment_of(m, pid);
    if (s == NULL) {
        s = ch_alloc_aligned(sizeof(*s));
        if (s == NULL)
            return CH_FAIL(COHORT_ENOMEM, "map segment of page %" PRIu64, pid);
        for (unsigned w = SEG_WORDS; w < 64 * SEG_SUMMARY; w++)
            s->full[w / 64] |= UINT64_C(1) << (w % 64);
        if (pid / SEG_ENTRIES == 0)
            s->used[0] = 1; /* M5 */
        atomic_fetch_add_explicit(&m->memory, sizeof(*s), memory_order_relaxed);
        /* Partner: segment_of(). */
        atomic_store_explicit(&leaf->segment[segment_index(pid)], s, memory_order_release);
    }
    *leaf_out = leaf;
    *out = s;
    return 0;
}

/* pid_lock held: map pages up to that of `pid` exist from now on. */
static void
page_count_raise(struct map *m, page_id pid)
{
    uint64_t count = pid / MAP_PAGE_ENTRIES + 1;

    if (atomic_load_explicit(&m->page_count, memory_order_relaxed) < count)
        atomic_store_explicit(&m->page_count, count, memory_order_release); /* map_page_count() */
}

int
map_ensure(struct map *m, page_id pid)
{
    struct leaf *leaf;
    struct segment *s;
    int rc;

    if (pid >= m->pages_max)
        return CH_FAIL(COHORT_EFULL, "page %" PRIu64 " is above the map's %" PRIu64, pid,
                       m->pages_max);
    if (segment_of(m, pid) != NULL && pid / MAP_PAGE_ENTRIES < map_page_count(m))
        return 0;
    rt_lock(m->pid_lock);
    rc = segment_make(m, pid, &leaf, &s);
    if (rc == 0)
        page_count_raise(m, pid);
    rt_unlock(m->pid_lock);
    return rc;
}

/* ---- places ---------------------------------------------------------------------------------- */

void
map_lock(struct map *m, uint64_t shards)
{
    while (CH_BUG(R8_SHARD_ORDER) && shards != 0) {
        unsigned i = 63 - (unsigned)__builtin_clzll(shards);

        rt_lock(&m->shard[i].lock);
        shards &= ~(UINT64_C(1) << i);
    }
    for (; shards != 0; shards &= shards - 1)
        rt_lock(&m->shard[__builtin_ctzll(shards)].lock);
}

void
map_unlock(struct map *m, uint64_t shards)
{
    for (; shards != 0; shards &= shards - 1)
        rt_unlock(&m->shard[__builtin_ctzll(shards)].lock);
}

/* The entry with its flag. */
static uint64_t
entry_get(const struct map *m, page_id pid)
{
    struct segment *s = segment_of(m, pid);

    if (s == NULL)
        return PLACE_NONE;
    /* Partner: entry_set(). A reader that has pinned a zone looks again with this; why acquire is
     * enough then says zone.c (R17). */
    return atomic_load_explicit(&s->place[pid % SEG_ENTRIES], memory_order_acquire);
}

place_t
map_get(const struct map *m, page_id pid)
{
    return entry_get(m, pid) & ~HAS_DELTA;
}

/* Relaxed: the shard lock orders this bit, the other bits are other shards'. */
static void
mark_dirty(_Atomic uint64_t *clean, uint64_t bit)
{
    if ((atomic_load_explicit(clean, memory_order_relaxed) & bit) != 0 && !CH_BUG(MAP_DIRTY_LOST))
        atomic_fetch_and_explicit(clean, ~bit, memory_order_relaxed);
}

/* NULL when no page of the segment ever had a delta. */
static struct deltas *
deltas_of(const struct segment *s)
{
    return atomic_load_explicit(&s->deltas, memory_order_acquire);
}

/* Shard lock held; `to` with its flag. Returns the old entry. */
static uint64_t
entry_set(struct map *m, page_id pid, uint64_t to)
{
    struct segment *s = segment_of(m, pid);
    _Atomic uint64_t *entry;
    uint64_t from;

    CH_ASSERT(s != NULL && pid / MAP_PAGE_ENTRIES < map_page_count(m)); /* map_ensure() */
    entry = &s->place[pid % SEG_ENTRIES];
    from = atomic_load_explicit(entry, memory_order_relaxed); /* M1: ours to change */
    atomic_store_explicit(entry, to, memory_order_release);   /* partner: entry_get() */
    return from;
}

/* Shard lock held: the base of the page has changed. */
static void
base_dirty(struct map *m, page_id pid)
{
    mark_dirty(&leaf_of(m, pid)->clean[segment_index(pid)], UINT64_C(1) << map_shard(pid));
}

/* Shard lock held. Returns the old delta. */
static place_t
delta_set(struct map *m, page_id pid, place_t to)
{
    struct deltas *d = deltas_of(segment_of(m, pid));
    _Atomic uint64_t *entry;
    place_t from;

    if (d == NULL) {
        CH_ASSERT(to == PLACE_NONE); /* map_ensure_delta() */
        return PLACE_NONE;
    }
    entry = &d->place[pid % SEG_ENTRIES];
    from = atomic_load_explicit(entry, memory_order_relaxed); /* M1 */
    if (from == to)
        return from;
    atomic_store_explicit(entry, to, memory_order_release); /* partner: map_delta() */
    mark_dirty(&leaf_of(m, pid)->delta_clean[segment_index(pid)], UINT64_C(1) << map_shard(pid));
    return from;
}

place_t
map_set(struct map *m, page_id pid, place_t to)
{
    place_t from = entry_set(m, pid, to) & ~HAS_DELTA; /* M6: first */

    base_dirty(m, pid);
    (void)delta_set(m, pid, PLACE_NONE);
    return from;
}

bool
map_move_if(struct map *m, page_id pid, place_t from, place_t to)
{
    if (map_get(m, pid) != from && !CH_BUG(S7_MOVE_ANYWAY)) /* S7 */
        return false;
    (void)map_set_base(m, pid, to);
    return true;
}

/* ---- deltas ---------------------------------------------------------------------------------- */

place_t
map_delta(const struct map *m, page_id pid)
{
    struct segment *s = segment_of(m, pid);
    struct deltas *d = s != NULL ? deltas_of(s) : NULL;

    /* Partner: delta_set(). */
    return d != NULL ? atomic_load_explicit(&d->place[pid % SEG_ENTRIES], memory_order_acquire)
                     : PLACE_NONE;
}

void
map_get_both(const struct map *m, page_id pid, place_t *base, place_t *delta)
{
    uint64_t entry = entry_get(m, pid);

    *delta = PLACE_NONE;
    while ((entry & HAS_DELTA) != 0) { /* M6 */
        place_t d = map_delta(m, pid);
        uint64_t again = entry_get(m, pid);

        if (again == entry && d != PLACE_NONE) {
            *delta = d;
            break;
        }
        entry = again;
    }
    *base = entry & ~HAS_DELTA;
}

void
map_set_delta_limit(struct map *m, uint64_t limit)
{
    atomic_store_explicit(&m->delta_limit, ch_min_u64(limit, m->pages_max), memory_order_relaxed);
}

int
map_ensure_delta(struct map *m, page_id pid)
{
    struct segment *s = segment_of(m, pid);
    struct deltas *d;
    int rc = 0;

    if (s == NULL || pid >= atomic_load_explicit(&m->delta_limit, memory_order_relaxed))
        return CH_FAIL(COHORT_EFULL, "page %" PRIu64 " cannot have a delta yet", pid);
    if (deltas_of(s) != NULL)
        return 0;
    rt_lock(m->pid_lock);
    if (deltas_of(s) == NULL) {
        uint64_t count = pid / SEG_ENTRIES + 1;

        d = ch_alloc_aligned(sizeof(*d));
        if (d == NULL) {
            rc = CH_FAIL(COHORT_ENOMEM, "deltas of the segment of page %" PRIu64, pid);
        } else {
            atomic_fetch_add_explicit(&m->memory, sizeof(*d), memory_order_relaxed);
            atomic_store_explicit(&s->deltas, d, memory_order_release); /* partner: deltas_of() */
            if (atomic_load_explicit(&m->delta_segments, memory_order_relaxed) < count)
                atomic_store_explicit(&m->delta_segments, count,
                                      memory_order_release); /* map_delta_page_count() */
        }
    }
    rt_unlock(m->pid_lock);
    return rc;
}

place_t
map_set_base(struct map *m, page_id pid, place_t to)
{
    uint64_t flag = to != PLACE_NONE && map_delta(m, pid) != PLACE_NONE ? HAS_DELTA : 0; /* M6 */

    base_dirty(m, pid);
    return entry_set(m, pid, to | flag) & ~HAS_DELTA;
}

place_t
map_set_delta(struct map *m, page_id pid, place_t to)
{
    place_t base = map_get(m, pid);
    place_t from;

    if (to == PLACE_NONE)
        (void)entry_set(m, pid, base);
    from = delta_set(m, pid, to);
    if (to != PLACE_NONE && base != PLACE_NONE)
        (void)entry_set(m, pid, base | HAS_DELTA);
    return from;
}

/* ---- page ids: all with pid_lock held --------------------------------------------------------- */

static bool
bit_get(const uint64_t *words, uint64_t i)
{
    return words[i / 64] >> (i % 64) & 1;
}

static bool
all_full(const uint64_t *words, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (words[i] != UINT64_MAX)
            return false;
    }
    return true;
}

/* Replaces the used-word of the 64 ids from `first` on, and keeps M3, M4 and the count. */
static void
used_word_set(struct map *m, struct leaf *leaf, struct segment *s, page_id first, uint64_t word)
{
    unsigned w = (unsigned)(first % SEG_ENTRIES / 64);
    unsigned j = segment_index(first);

    m->used_count += (uint64_t)__builtin_popcountll(word);
    m->used_count -= (uint64_t)__builtin_popcountll(s->used[w]);
    s->used[w] = word;
    if (word == UINT64_MAX) {
        s->full[w / 64] |= UINT64_C(1) << (w % 64);
        if (all_full(s->full, SEG_SUMMARY))
            leaf->full[j / 64] |= UINT64_C(1) << (j % 64);
        return;
    }
    s->full[w / 64] &= ~(UINT64_C(1) << (w % 64));
    leaf->full[j / 64] &= ~(UINT64_C(1) << (j % 64));
    m->hint = ch_min_u64(m->hint, first / LEAF_ENTRIES);
}

static void
used_set(struct map *m, struct leaf *leaf, struct segment *s, page_id pid, bool used)
{
    uint64_t word = s->used[pid % SEG_ENTRIES / 64];
    uint64_t bit = UINT64_C(1) << (pid % 64);

    used_word_set(m, leaf, s, pid - pid % 64, used ? word | bit : word & ~bit);
    if (used) {
        m->high = ch_max_u64(m->high, pid + 1);
        page_count_raise(m, pid);
    }
}

/* Index of the first clear bit; `bits` when there is none. */
static uint64_t
first_clear(const uint64_t *words, uint64_t bits)
{
    for (uint64_t i = 0; i < bits / 64; i++) {
        if (words[i] != UINT64_MAX)
            return i * 64 + (uint64_t)__builtin_ctzll(~words[i]);
    }
    return bits;
}

/* The lowest id that is not in use; it may be at or above the limit. Moves the hint. */
static page_id
pid_lowest(struct map *m)
{
    for (; m->hint < m->leaves; m->hint++) {
        struct leaf *leaf = leaf_of(m, m->hint * LEAF_ENTRIES);
        uint64_t j = leaf != NULL ? first_clear(leaf->full, LEAF_SEGMENTS) : 0;
        page_id base = m->hint * LEAF_ENTRIES + j * SEG_ENTRIES;
        const struct segment *s;
        uint64_t w;

        if (j == LEAF_SEGMENTS)
            continue;
        s = segment_of(m, base);
        if (s == NULL)
            return base == 0 ? 1 : base;
        w = first_clear(s->full, 64 * SEG_SUMMARY);
        CH_ASSERT(w < SEG_WORDS); /* M3 */
        return base + w * 64 + (uint64_t)__builtin_ctzll(~s->used[w]);
    }
    return UINT64_MAX;
}

int
map_pid_alloc(struct map *m, page_id *out)
{
    struct leaf *leaf;
    struct segment *s;
    page_id pid;
    int rc;

    rt_lock(m->pid_lock);
    pid = pid_lowest(m);
    if (pid >= m->limit) {
        rc = CH_FAIL(COHORT_EFULL, "all page ids below %" PRIu64 " are in use", m->limit);
        goto out;
    }
    rc = segment_make(m, pid, &leaf, &s);
    if (rc != 0)
        goto out;
    used_set(m, leaf, s, pid, true);
    *out = pid;
out:
    rt_unlock(m->pid_lock);
    return rc;
}

void
map_pid_free(struct map *m, page_id pid)
{
    struct segment *s;

    CH_ASSERT(pid != 0);
    rt_lock(m->pid_lock);
    s = segment_of(m, pid);
    CH_ASSERT(s != NULL && bit_get(s->used, pid % SEG_ENTRIES));
    used_set(m, leaf_of(m, pid), s, pid, false);
    rt_unlock(m->pid_lock);
}

int
map_pid_mark_used(struct map *m, page_id pid)
{
    struct leaf *leaf;
    struct segment *s;
    int rc;

    if (pid >= m->pages_max)
        return CH_FAIL(COHORT_EFULL, "page id %" PRIu64 " is above the map's %" PRIu64, pid,
                       m->pages_max);
    rt_lock(m->pid_lock);
    rc = segment_make(m, pid, &leaf, &s);
    if (rc == 0)
        used_set(m, leaf, s, pid, true);
    rt_unlock(m->pid_lock);
    return rc;
}

bool
map_pid_is_used(const struct map *m, page_id pid)
{
    const struct segment *s;
    bool used;

    rt_lock(m->pid_lock);
    s = segment_of(m, pid);
    used = pid == 0 || (s != NULL && bit_get(s->used, pid % SEG_ENTRIES));
    rt_unlock(m->pid_lock);
    return used;
}

uint64_t
map_pid_high(const struct map *m)
{
    uint64_t n;

    rt_lock(m->pid_lock);
    n = m->high;
    rt_unlock(m->pid_lock);
    return n;
}

uint64_t
map_pid_count(const struct map *m)
{
    uint64_t n;

    rt_lock(m->pid_lock);
    n = m->used_count;
    rt_unlock(m->pid_lock);
    return n;
}

/* The used-word of the 64 ids from `first` on, ids at or above `high` left out. */
static uint64_t
rebuilt_word(const struct map *m, page_id first, uint64_t high,
             bool (*keep)(void *arg, page_id pid), void *arg)
{
    uint64_t word = first == 0; /* M5 */

    for (page_id pid = first; pid < first + 64 && pid < high; pid++) {
        if (map_get(m, pid) != PLACE_NONE || (keep != NULL && pid != 0 && keep(arg, pid)))
            word |= UINT64_C(1) << (pid - first);
    }
    return word;
}

/* An id without a segment has no place and was never marked, so nobody can want to keep it. */
void
map_pid_rebuild(struct map *m, bool (*keep)(void *arg, page_id pid), void *arg)
{
    uint64_t high = map_pid_high(m);

    for (page_id first = 0; first < high; first += 64) {
        struct segment *s = segment_of(m, first);
        uint64_t word;

        if (s == NULL) {
            first += SEG_ENTRIES - 64;
            continue;
        }
        word = rebuilt_word(m, first, high, keep, arg); /* keep() may lock: not under pid_lock */
        rt_lock(m->pid_lock);
        used_word_set(m, leaf_of(m, first), s, first, word);
        rt_unlock(m->pid_lock);
    }
}

/* ---- map pages: checkpoint and recovery -------------------------------------------------------- */

uint64_t
map_page_count(const struct map *m)
{
    return atomic_load_explicit(&m->page_count, memory_order_acquire); /* page_count_raise() */
}

/* The clean word of map page k; NULL when its leaf does not exist (then it is dirty, M2). */
static _Atomic uint64_t *
clean_word(const struct map *m, uint64_t k)
{
    struct leaf *leaf = leaf_of(m, k * MAP_PAGE_ENTRIES);

    return leaf != NULL ? &leaf->clean[segment_index(k * MAP_PAGE_ENTRIES)] : NULL;
}

bool
map_page_dirty(const struct map *m, uint64_t k)
{
    _Atomic uint64_t *clean;

    if (k >= map_page_count(m))
        return false;
    clean = clean_word(m, k);
    /* A hint while writers run: what they dirty after this look, the next checkpoint takes. */
    return clean == NULL ||
           !(atomic_load_explicit(clean, memory_order_relaxed) >> (k % SEG_MAP_PAGES) & 1);
}

uint64_t
map_delta_page_count(const struct map *m)
{
    uint64_t segments = atomic_load_explicit(&m->delta_segments, memory_order_acquire);

    return ch_min_u64(segments * SEG_MAP_PAGES, map_page_count(m));
}

/* The clean word of page k of the second plane; NULL when its leaf does not exist. */
static _Atomic uint64_t *
delta_clean_word(const struct map *m, uint64_t k)
{
    struct leaf *leaf = leaf_of(m, k * MAP_PAGE_ENTRIES);

    return leaf != NULL ? &leaf->delta_clean[segment_index(k * MAP_PAGE_ENTRIES)] : NULL;
}

bool
map_delta_page_dirty(const struct map *m, uint64_t k)
{
    _Atomic uint64_t *clean;

    if (k >= map_delta_page_count(m))
        return false;
    clean = delta_clean_word(m, k);
    return clean == NULL ||
           !(atomic_load_explicit(clean, memory_order_relaxed) >> (k % SEG_MAP_PAGES) & 1);
}

/* Shard lock held: page k, without flags, of one plane; clears its dirty mark and tells whether there was one. */
static bool
plane_copy(uint64_t k, const _Atomic uint64_t *plane, _Atomic uint64_t *clean, uint64_t *entries)
{
    uint64_t bit = UINT64_C(1) << (k % MAP_SHARDS);
    page_id first = k * MAP_PAGE_ENTRIES;

    for (unsigned i = 0; i < MAP_PAGE_ENTRIES; i++) {
        /* Relaxed, and so is the bit: the shard lock orders both (M1). */
        entries[i] = plane == NULL ? PLACE_NONE
                                   : atomic_load_explicit(&plane[(first + i) % SEG_ENTRIES],
                                                          memory_order_relaxed) &
                                         ~HAS_DELTA;
    }
    if (clean == NULL)
        return true;
    return (atomic_fetch_or_explicit(clean, bit, memory_order_relaxed) & bit) == 0;
}

unsigned
map_pages_copy(struct map *m, uint64_t k, uint64_t *entries, uint64_t *deltas)
{
    uint64_t shard = UINT64_C(1) << (k % MAP_SHARDS);
    const struct segment *s;
    const struct deltas *d;
    unsigned dirty = 0;

    CH_ASSERT(k < map_page_count(m));
    map_lock(m, shard); /* M7 */
    s = segment_of(m, k * MAP_PAGE_ENTRIES);
    d = s != NULL ? deltas_of(s) : NULL;
    if (plane_copy(k, s != NULL ? s->place : NULL, clean_word(m, k), entries))
        dirty |= MAP_DIRTY_BASE;
    if (deltas != NULL &&
        plane_copy(k, d != NULL ? d->place : NULL, delta_clean_word(m, k), deltas))
        dirty |= MAP_DIRTY_DELTA;
    map_unlock(m, shard);
    return dirty;
}

void
map_page_copy(struct map *m, uint64_t k, uint64_t *entries)
{
    uint64_t shard = UINT64_C(1) << (k % MAP_SHARDS);
    const struct segment *s;

    CH_ASSERT(k < map_page_count(m));
    map_lock(m, shard);
    s = segment_of(m, k * MAP_PAGE_ENTRIES);
    (void)plane_copy(k, s != NULL ? s->place : NULL, clean_word(m, k), entries);
    map_unlock(m, shard);
}

void
map_page_redirty(struct map *m, uint64_t k)
{
    uint64_t shard = UINT64_C(1) << (k % MAP_SHARDS);
    _Atomic uint64_t *clean;

    CH_ASSERT(k < map_page_count(m));
    map_lock(m, shard);
    clean = clean_word(m, k);
    if (clean != NULL)
        atomic_fetch_and_explicit(clean, ~shard,
                                  memory_order_relaxed); /* the shard lock orders it */
    map_unlock(m, shard);
}

/* An entry that the map can't have: page 0, a page above the bound, a place in the root's slot. */
static bool
entry_is_bad(const struct map *m, page_id pid, place_t place)
{
    return place != PLACE_NONE && (pid == 0 || pid >= m->pages_max || place_slot(place) == 0 ||
                                   (place & PLACE_FLAGS) != 0);
}

int
map_page_load(struct map *m, uint64_t k, const uint64_t *entries)
{
    page_id first = k * MAP_PAGE_ENTRIES;
    struct leaf *leaf;
    struct segment *s;
    int rc;

    if (k >= ch_div_up(m->pages_max, MAP_PAGE_ENTRIES))
        return CH_FAIL(COHORT_EMAP, "map page %" PRIu64 " is above %" PRIu64 " pages", k,
                       m->pages_max);
    for (unsigned i = 0; i < MAP_PAGE_ENTRIES; i++) {
        if (entry_is_bad(m, first + i, entries[i]))
            return CH_FAIL(COHORT_EMAP, "map page %" PRIu64 ": page %" PRIu64 " at 0x%016" PRIx64,
                           k, first + i, entries[i]);
    }
    rt_lock(m->pid_lock);
    rc = segment_make(m, first, &leaf, &s);
    if (rc != 0)
        goto out;
    page_count_raise(m, first);
    for (unsigned i = 0; i < MAP_PAGE_ENTRIES; i++) {
        page_id pid = first + i;

        /* Relaxed: recovery has one thread, and whoever comes later is started by it. */
        atomic_store_explicit(&s->place[pid % SEG_ENTRIES], entries[i], memory_order_relaxed);
        if (entries[i] != PLACE_NONE)
            used_set(m, leaf, s, pid, true);
    }
    atomic_fetch_or_explicit(&leaf->clean[segment_index(first)], UINT64_C(1) << (k % SEG_MAP_PAGES),
                             memory_order_relaxed);
out:
    rt_unlock(m->pid_lock);
    return rc;
}

int
map_delta_page_load(struct map *m, uint64_t k, const uint64_t *entries)
{
    page_id first = k * MAP_PAGE_ENTRIES;
    _Atomic uint64_t *clean;

    for (unsigned i = 0; i < MAP_PAGE_ENTRIES; i++) {
        place_t p = entries[i];
        int rc;

        if (p == PLACE_NONE)
            continue;
        if (entry_is_bad(m, first + i, p) || (p & PLACE_FLAGS) != 0 ||
            map_get(m, first + i) == PLACE_NONE)
            return CH_FAIL(COHORT_EMAP, "page %" PRIu64 ": delta at 0x%016" PRIx64, first + i, p);
        rc = map_ensure_delta(m, first + i);
        if (rc != 0)
            return rc;
        (void)map_set_delta(m, first + i, p); /* nobody else is there to lock out */
    }
    clean = delta_clean_word(m, k);
    if (clean != NULL && k < map_delta_page_count(m))
        atomic_fetch_or_explicit(clean, UINT64_C(1) << (k % SEG_MAP_PAGES), memory_order_relaxed);
    return 0;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* M3 and M5 of one segment, and that no entry stands beyond what exists; counts its used ids. */
static bool
check_segment(const struct map *m, page_id base, const struct segment *s, uint64_t *used)
{
    for (unsigned w = 0; w < SEG_WORDS; w++) {
        *used += (uint64_t)__builtin_popcountll(s->used[w]);
        if (bit_get(s->full, w) != (s->used[w] == UINT64_MAX))
            return false;
    }
    for (page_id pid = base; pid < base + SEG_ENTRIES; pid++) {
        /* Relaxed: a check of a quiet map. */
        uint64_t entry = atomic_load_explicit(&s->place[pid - base], memory_order_relaxed);
        place_t p = entry & ~HAS_DELTA;

        if (((entry & HAS_DELTA) != 0) != (p != PLACE_NONE && map_delta(m, pid) != PLACE_NONE))
            return false; /* M6 */
        if (bit_get(s->used, pid - base) && pid >= m->high)
            return false;
        if (entry_is_bad(m, pid, p) ||
            (p != PLACE_NONE && pid / MAP_PAGE_ENTRIES >= map_page_count(m)))
            return false;
    }
    return true;
}

static bool
check_leaf(const struct map *m, page_id base, const struct leaf *leaf, uint64_t *used)
{
    for (unsigned j = 0; j < LEAF_SEGMENTS; j++) {
        page_id first = base + (page_id)j * SEG_ENTRIES;
        const struct segment *s = segment_of(m, first);
        bool full = s != NULL && all_full(s->full, SEG_SUMMARY);

        if (bit_get(leaf->full, j) != full)
            return false;
        if (!full && first / LEAF_ENTRIES < m->hint) /* M4 */
            return false;
        if (s != NULL && !check_segment(m, first, s, used))
            return false;
    }
    return true;
}

bool
map_check(const struct map *m)
{
    uint64_t used = 0;
    bool ok = true;

    rt_lock(m->pid_lock);
    for (uint64_t l = 0; l < m->leaves && ok; l++) {
        const struct leaf *leaf = leaf_of(m, l * LEAF_ENTRIES);

        ok = leaf == NULL ? l >= m->hint : check_leaf(m, l * LEAF_ENTRIES, leaf, &used);
    }
    /* Id 0 is in the bitmap once its segment exists. */
    used -= segment_of(m, 0) != NULL;
    ok = ok && used == m->used_count && m->high <= map_page_count(m) * MAP_PAGE_ENTRIES &&
         m->limit <= m->pages_max;
    rt_unlock(m->pid_lock);
    return ok;
}
