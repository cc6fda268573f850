/* buf.c - the page cache's face: fix, peek, new, free, prefetch, admission.
 *
 *     page id --table--> entry {latch word, frame} ----> frame {page, dirty state} ----> 4 KiB of memory
 *
 * Invariants:
 *   B1  entry.frame1 = f + 1  <=>  frames[f].pid = the entry's page id; both change under its X latch only.
 *   B2  a frame's bytes belong to the page while B1 holds; they are read under a latch, or under a version that
 *       still stands after reading. The version moves whenever X is released by a writer, and when the page
 *       loses its frame.
 *   B3  under X nobody else begins a write, dirties, evicts or loads the page.
 *   B4  a frame is taken before the latch of the page it is for: waiting for frames holds up nobody who waits
 *       for that page. The caller's own latches are its business: the cleaner only tries (C2).
 *   B5  FRAME_NEW and clean does not outlast the latch: a page that exists nowhere is not found later.
 *
 * A stale reader may ask for a page that was freed meanwhile: it finds the free page, NOTFOUND, or for a moment the old
 * image from the store; it revalidates where it came from (R9). So a frame may exist for an id that buf_new()
 * gets anew; it is taken over.
 *
 * Under ThreadSanitizer, which does not know about versions, buf_peek() copies the page under a shared latch.
 *
 * Locks: latches (latch.h); others in frame.c and cleaner.c. Crash: memory only.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bug.h"
#include "buf/buf_internal.h"
#include "page/page.h"
#include "wal/wal.h"

enum {
    PREFETCH_CHUNK = 64,   /* store_read_many() */
    ADMIT_FULL_TRIES = 64, /* of a full store to clean something, before a delete is refused */
    ADMIT_CLEAN_FROM = 32, /* dirty frames that are worth cleaning to find room */
    ADMIT_NEW_PAGES = 16,  /* that one admitted operation may add: a split on every level */
};

/* ---- counters ---- */

/* Threads are numbered as they come. All but the last shard have one writer. */
static _Atomic unsigned thread_numbers; /* relaxed: only distinct */

static unsigned
buf_shard_number(void)
{
    static _Thread_local unsigned number; /* + 1 */

    if (CH_UNLIKELY(number == 0))
        number = 1 + atomic_fetch_add_explicit(&thread_numbers, 1, memory_order_relaxed);
    return number - 1 < BUF_SHARDS - 1 ? number - 1 : BUF_SHARDS - 1;
}

static void
buf_count(_Atomic uint64_t *counter, unsigned shard)
{
    if (CH_LIKELY(shard < BUF_SHARDS - 1))
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    else
        (void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void
buf_hit(struct buf *b, uint32_t f)
{
    unsigned shard = buf_shard_number();
    struct frame *fr = &b->frames[f];
    unsigned ref = atomic_load_explicit(&fr->ref, memory_order_relaxed);

    if (ref != REF_HOT) /* a prefetched page's first use is what it was read for */
        atomic_store_explicit(&fr->ref, ref == REF_PREFETCHED ? REF_COLD : REF_HOT,
                              memory_order_relaxed);
    buf_count(&b->shards[shard].hits, shard);
}

static void
buf_miss(struct buf *b)
{
    unsigned shard = buf_shard_number();

    buf_count(&b->shards[shard].misses, shard);
}

/* ---- create and destroy ---- */

static void
buf_locks_init(struct buf *b)
{
    latch_lot_init(&b->lot);
    for (unsigned i = 0; i < BUF_STRIPES; i++)
        rt_mutex_init(&b->stripes[i].lock, RT_RANK_FRAME, i);
    rt_mutex_init(&b->free_lock, RT_RANK_FREE, 0);
    rt_mutex_init(&b->settle_lock, RT_RANK_FREE, 1);
    rt_mutex_init(&b->changes.pool_lock, RT_RANK_FREE, 2);
    rt_mutex_init(&b->cleaner.lock, RT_RANK_CLEANER, 0);
    rt_cond_init(&b->frames_freed);
    rt_cond_init(&b->cleaner_wake);
}

static void
buf_locks_fini(struct buf *b)
{
    rt_cond_fini(&b->cleaner_wake);
    rt_cond_fini(&b->frames_freed);
    rt_mutex_fini(&b->cleaner.lock);
    rt_mutex_fini(&b->changes.pool_lock);
    rt_mutex_fini(&b->settle_lock);
    rt_mutex_fini(&b->free_lock);
    for (unsigned i = 0; i < BUF_STRIPES; i++)
        rt_mutex_fini(&b->stripes[i].lock);
    latch_lot_fini(&b->lot);
}

int
buf_create(const struct buf_config *cfg, struct buf **out)
{
    struct buf *b = NULL;
    int rc;

    CH_ASSERT(cfg->store != NULL && cfg->wal != NULL);
    CH_ASSERT(cfg->batch_pages >= 1 && cfg->batch_pages <= CH_BATCH_MAX);
    b = ch_alloc_aligned(sizeof(*b)); /* zeroed; its parts want their cache lines */
    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "page cache");
    b->store = cfg->store;
    b->wal = cfg->wal;
    b->pages_max = cfg->pages_max;
    b->keep_pages = cfg->keep_pages;
    b->background = cfg->background;
    b->patience_ns = BUF_PATIENCE_NS;
    buf_locks_init(b);
    rc = table_create(b, cfg->cache_bytes);
    if (rc == 0)
        rc = changes_create(b);
    if (rc != 0)
        goto out;
    b->batch_pages = (unsigned)ch_clamp_u64(cfg->batch_pages, 1, b->frame_count / 8);
    rc = cleaner_create(b);
    if (rc != 0)
        goto out;
    *out = b;
    b = NULL;
out:
    buf_destroy(b);
    return rc;
}

void
buf_destroy(struct buf *b)
{
    if (b == NULL)
        return;
    cleaner_destroy(b);
    changes_destroy(b);
    table_destroy(b);
    buf_locks_fini(b);
    ch_free_aligned(b);
}

/* ---- reading pages in ---- */

enum load_flags {
    LOAD_TRY = 1,       /* ERETRY instead of waiting for the latch */
    LOAD_ANY = 2,       /* a page without an image is zeroes */
    LOAD_EXCLUSIVE = 4, /* returns latched so, else shared */
    LOAD_UNREAD = 8,    /* zeroes instead of the image, which still is the page's: B5 drops them */
};

/* Latches the page, reading it in if that is still needed. *found (may be NULL with images only): whether it had one. */
static int
buf_load(struct buf *b, page_id pid, unsigned how, uint32_t *frame, bool *found)
{
    struct page_entry *e;
    uint32_t f;
    uint32_t have;
    uint32_t flags = 0;
    struct store_origin origin = {0};
    int rc = table_entry(b, pid, &e);

    if (rc == 0)
        rc = frame_get(b, &f); /* B4 */
    if (rc != 0)
        return rc;
    if ((how & LOAD_TRY) == 0) {
        latch_excl(&b->lot, &e->latch);
    } else if (!latch_try_excl(&e->latch)) {
        frame_put(b, f);
        return CH_FAIL(COHORT_ERETRY, "page %" PRIu64 " is latched", pid);
    }
    have = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (have != 0 && !CH_BUG(LOAD_TWICE)) { /* somebody was faster */
        frame_put(b, f);
        f = have - 1;
        buf_hit(b, f);
    } else if ((how & LOAD_UNREAD) != 0) {
        memset(buf_page(b, f), 0, CH_PAGE_BYTES);
        frame_install(b, e, pid, f, FRAME_NEW, REF_COLD);
    } else {
        buf_miss(b);
        rc = store_read_from(b->store, pid, buf_page(b, f), &origin);
        if (rc == COHORT_NOTFOUND && (how & LOAD_ANY) != 0) {
            memset(buf_page(b, f), 0, CH_PAGE_BYTES);
            flags = FRAME_NEW;
            origin.base_lsn = 0;
            *found = false;
            rc = store_pid_note(b->store, pid);
        }
        if (rc != 0) {
            latch_unlock_excl(&b->lot, &e->latch, false);
            frame_put(b, f);
            return rc;
        }
        changes_origin(b, f, &origin);
        frame_install(b, e, pid, f, flags, REF_COLD);
    }
    if ((how & LOAD_EXCLUSIVE) == 0)
        latch_downgrade(&b->lot, &e->latch);
    *frame = f;
    return 0;
}

static void
buf_unlatch(struct buf *b, struct page_entry *e, enum buf_mode mode)
{
    if (mode == BUF_SHARED)
        latch_unlock_shared(&b->lot, &e->latch);
    else
        latch_unlock_excl(&b->lot, &e->latch, false);
}

static void
buf_ref_fill(struct buf *b, page_id pid, enum buf_mode mode, uint32_t f, struct buf_ref *ref)
{
    ref->pid = pid;
    ref->page = buf_page(b, f);
    ref->frame = f;
    ref->mode = mode;
}

int
buf_fix(struct buf *b, page_id pid, enum buf_mode mode, struct buf_ref *ref)
{
    struct page_entry *e;
    uint32_t f = 0;
    uint32_t f1;
    int rc = table_entry(b, pid, &e);

    if (rc != 0)
        return rc;
    rt_point();
    if (mode == BUF_SHARED)
        latch_shared(&b->lot, &e->latch);
    else
        latch_excl(&b->lot, &e->latch);
    f1 = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (CH_LIKELY(f1 != 0)) {
        f = f1 - 1;
        buf_hit(b, f);
    } else {
        buf_unlatch(b, e, mode); /* B4 */
        rc = buf_load(b, pid, mode == BUF_EXCLUSIVE ? LOAD_EXCLUSIVE : 0, &f, NULL);
        if (rc != 0)
            return rc;
    }
    buf_ref_fill(b, pid, mode, f, ref);
    return 0;
}

int
buf_try_fix(struct buf *b, page_id pid, enum buf_mode mode, struct buf_ref *ref)
{
    struct page_entry *e;
    uint32_t f = 0;
    uint32_t f1;
    bool latched;
    int rc = table_entry(b, pid, &e);

    if (rc != 0)
        return rc;
    latched = mode == BUF_SHARED ? latch_try_shared(&e->latch) : latch_try_excl(&e->latch);
    if (!latched)
        return CH_FAIL(COHORT_ERETRY, "page %" PRIu64 " is latched", pid);
    f1 = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (f1 != 0) {
        buf_hit(b, f1 - 1);
        buf_ref_fill(b, pid, mode, f1 - 1, ref);
        return 0;
    }
    buf_unlatch(b, e, mode);
    rc = buf_load(b, pid, LOAD_TRY, &f, NULL);
    if (rc != 0)
        return rc;
    latch_unlock_shared(&b->lot, &e->latch);
    return CH_FAIL(COHORT_ERETRY, "page %" PRIu64 " was not in memory", pid);
}

int
buf_fix_any(struct buf *b, page_id pid, struct buf_ref *ref, bool *found)
{
    struct page_entry *e;
    uint32_t f = 0;
    uint32_t f1;
    bool had = true;
    int rc = table_entry(b, pid, &e);

    if (rc != 0)
        return rc;
    latch_excl(&b->lot, &e->latch);
    f1 = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (f1 != 0) {
        f = f1 - 1;
        buf_hit(b, f);
    } else {
        buf_unlatch(b, e, BUF_EXCLUSIVE);
        rc = buf_load(b, pid, LOAD_EXCLUSIVE | LOAD_ANY, &f, &had);
        if (rc != 0)
            return rc;
    }
    *found = had;
    buf_ref_fill(b, pid, BUF_EXCLUSIVE, f, ref);
    return 0;
}

int
buf_fix_unread(struct buf *b, page_id pid, struct buf_ref *ref)
{
    uint32_t f = 0;
    int rc = buf_load(b, pid, LOAD_EXCLUSIVE | LOAD_UNREAD, &f, NULL);

    if (rc == 0)
        buf_ref_fill(b, pid, BUF_EXCLUSIVE, f, ref);
    return rc;
}

void
buf_unfix(struct buf *b, struct buf_ref *ref)
{
    struct page_entry *e = table_find(b, ref->pid);
    uint32_t fl;

    CH_ASSERT(ref->page != NULL && e != NULL);
    ref->page = NULL;
    if (ref->mode == BUF_SHARED) {
        latch_unlock_shared(&b->lot, &e->latch);
        return;
    }
    fl = frame_flags(&b->frames[ref->frame]);
    if (CH_UNLIKELY((fl & (FRAME_NEW | FRAME_DIRTY)) == FRAME_NEW)) { /* B5 */
        frame_detach(b, e, ref->frame);
        latch_unlock_excl(&b->lot, &e->latch, true);
        frame_put(b, ref->frame);
        return;
    }
    latch_unlock_excl(&b->lot, &e->latch, true);
}

/* The page's frame, zeroed, is `f` or the one that its id's former page left behind; then `f` is given back. */
static int
new_page(struct buf *b, page_id pid, uint32_t f, struct buf_ref *ref)
{
    struct page_entry *e = NULL;
    uint32_t have;
    int rc = table_entry(b, pid, &e); /* ENOMEM: the id is lost until the next recovery */

    if (rc != 0) {
        frame_put(b, f);
        return rc;
    }
    latch_excl(&b->lot, &e->latch);
    have = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (have != 0) { /* of the id's former page */
        frame_put(b, f);
        f = have - 1;
    } else {
        frame_install(b, e, pid, f, FRAME_NEW, REF_COLD);
    }
    memset(buf_page(b, f), 0, CH_PAGE_BYTES);
    frame_renew(b, f);
    buf_ref_fill(b, pid, BUF_EXCLUSIVE, f, ref);
    return 0;
}

int
buf_new(struct buf *b, struct buf_ref *ref)
{
    page_id pid = 0;
    uint32_t f;
    int rc = frame_get(b, &f); /* first: it can fail without anything to undo */

    if (rc != 0)
        return rc;
    rc = store_pid_alloc(b->store, &pid);
    if (rc != 0) {
        frame_put(b, f);
        return rc;
    }
    return new_page(b, pid, f, ref);
}

int
buf_new_at(struct buf *b, page_id pid, struct buf_ref *ref)
{
    uint32_t f;
    int rc = frame_get(b, &f);

    return rc != 0 ? rc : new_page(b, pid, f, ref);
}

void
buf_will_change(struct buf *b, struct buf_ref *ref)
{
    CH_ASSERT(ref->page != NULL && ref->mode == BUF_EXCLUSIVE);
    frame_dirty(b, ref->frame);
}

void
buf_redo_bound(struct buf *b, lsn_t lsn)
{
    b->redo_bound = lsn;
}

void
buf_mark_free(struct buf *b, struct buf_ref *ref)
{
    CH_ASSERT(ref->page != NULL && ref->mode == BUF_EXCLUSIVE);
    CH_ASSERT(page_type(ref->page) == PAGE_FREE);
    frame_freeing(b, ref->frame);
}

/* ---- optimistic reads ---- */

#if LATCH_TSAN
enum {
    PEEK_COPIES = 16 /* pages that one thread may be peeking at */
};

int
buf_peek(struct buf *b, page_id pid, struct buf_peek *p)
{
    static _Thread_local uint8_t copies[PEEK_COPIES][CH_PAGE_BYTES];
    static _Thread_local unsigned next;
    struct buf_ref ref = {0};
    uint8_t *copy = copies[next++ % PEEK_COPIES];
    int rc = buf_fix(b, pid, BUF_SHARED, &ref);

    if (rc != 0)
        return rc;
    memcpy(copy, ref.page, CH_PAGE_BYTES);
    p->page = copy;
    p->pid = pid;
    p->version = latch_version(&b->lot, &table_find(b, pid)->latch);
    buf_unfix(b, &ref);
    return 0;
}

bool
buf_peek_cached(struct buf *b, page_id pid, struct buf_peek *p)
{
    static _Thread_local uint8_t copies[PEEK_COPIES][CH_PAGE_BYTES];
    static _Thread_local unsigned next;
    uint8_t *copy = copies[next++ % PEEK_COPIES];
    struct page_entry *e = table_find(b, pid);
    uint32_t f1;

    if (e == NULL || !latch_try_shared(&e->latch))
        return false;
    f1 = atomic_load_explicit(&e->frame1, memory_order_relaxed);
    if (f1 != 0) {
        memcpy(copy, buf_page(b, f1 - 1), CH_PAGE_BYTES);
        p->page = copy;
        p->pid = pid;
        p->version = latch_version(&b->lot, &e->latch);
    }
    latch_unlock_shared(&b->lot, &e->latch);
    return f1 != 0;
}
#else
int
buf_peek(struct buf *b, page_id pid, struct buf_peek *p)
{
    struct page_entry *e;
    uint64_t version;
    uint32_t f = 0;
    uint32_t f1;
    int rc = table_entry(b, pid, &e);

    if (rc != 0)
        return rc;
    rt_point();
    version = latch_version(&b->lot, &e->latch);
    f1 = atomic_load_explicit(&e->frame1, memory_order_acquire); /* with frame_install() */
    if (CH_LIKELY(f1 != 0)) {
        f = f1 - 1;
        buf_hit(b, f);
    } else {
        rc = buf_load(b, pid, 0, &f, NULL);
        if (rc != 0)
            return rc;
        version = latch_version(&b->lot, &e->latch);
        latch_unlock_shared(&b->lot, &e->latch);
    }
    p->page = buf_page(b, f);
    p->pid = pid;
    p->version = version;
    return 0;
}

bool
buf_peek_cached(struct buf *b, page_id pid, struct buf_peek *p)
{
    struct page_entry *e = table_find(b, pid);
    uint64_t word;
    uint32_t f1;

    if (e == NULL)
        return false;
    word = atomic_load_explicit(&e->latch.word, memory_order_acquire);
    f1 = atomic_load_explicit(&e->frame1, memory_order_acquire); /* with frame_install() */
    if ((word & LATCH_X) != 0 || f1 == 0)
        return false;
    p->page = buf_page(b, f1 - 1);
    p->pid = pid;
    p->version = word & LATCH_VERSION;
    return true;
}
#endif

bool
buf_is_cached(struct buf *b, page_id pid)
{
    const struct page_entry *e = table_find(b, pid);

    return e != NULL && atomic_load_explicit(&e->frame1, memory_order_relaxed) != 0;
}

bool
buf_peek_valid(struct buf *b, const struct buf_peek *p)
{
    const struct page_entry *e = table_find(b, p->pid);

    CH_ASSERT(e != NULL);
    return latch_valid(&e->latch, p->version);
}

/* ---- prefetch ---- */

struct prefetch {
    page_id pids[PREFETCH_CHUNK];
    void *pages[PREFETCH_CHUNK];
    int rcs[PREFETCH_CHUNK];
    struct store_origin origins[PREFETCH_CHUNK];
    uint32_t frames[PREFETCH_CHUNK];
    struct page_entry *entries[PREFETCH_CHUNK];
    unsigned count;
};

/* Latches a missing page for reading; false when frames are short. */
static bool
prefetch_add(struct buf *b, struct prefetch *p, page_id pid)
{
    struct page_entry *e;
    uint32_t f;

    if (table_entry(b, pid, &e) != 0 || atomic_load_explicit(&e->frame1, memory_order_relaxed) != 0)
        return true;
    if (!frame_take(b, &f))
        return false;
    if (!latch_try_excl(&e->latch)) { /* also a page that the list names twice */
        frame_put(b, f);
        return true;
    }
    if (atomic_load_explicit(&e->frame1, memory_order_relaxed) != 0) {
        latch_unlock_excl(&b->lot, &e->latch, false);
        frame_put(b, f);
        return true;
    }
    p->pids[p->count] = pid;
    p->pages[p->count] = buf_page(b, f);
    p->frames[p->count] = f;
    p->entries[p->count] = e;
    p->rcs[p->count++] = 0;
    return true;
}

static void
prefetch_read(struct buf *b, struct prefetch *p)
{
    if (p->count == 0)
        return;
    store_read_many(b->store, p->pids, p->pages, p->rcs, p->origins, p->count);
    for (unsigned i = 0; i < p->count; i++) {
        if (p->rcs[i] == 0) {
            buf_miss(b);
            changes_origin(b, p->frames[i], &p->origins[i]);
            frame_install(b, p->entries[i], p->pids[i], p->frames[i], 0, REF_PREFETCHED);
        }
        latch_unlock_excl(&b->lot, &p->entries[i]->latch, false);
        if (p->rcs[i] != 0)
            frame_put(b, p->frames[i]);
    }
    p->count = 0;
}

void
buf_prefetch(struct buf *b, const page_id *pids, unsigned n)
{
    struct prefetch p;

    p.count = 0;
    if (n > b->frame_count / 8)
        n = b->frame_count / 8; /* more would push out what it brings in */
    for (unsigned i = 0; i < n && prefetch_add(b, &p, pids[i]); i++)
        if (p.count == PREFETCH_CHUNK)
            prefetch_read(b, &p);
    prefetch_read(b, &p);
}

/* ---- admission, counts ---- */

/* Many frames are dirty: the cleaner's work, or ours. */
static int
buf_admit_cleaning(struct buf *b)
{
    bool did = false;
    int rc = 0;

    if (atomic_load_explicit(&b->running, memory_order_relaxed))
        cleaner_wake(b);
    else
        rc = buf_clean_step(b, 0, &did);
    for (unsigned tries = 0; tries < ADMIT_FULL_TRIES; tries++) {
        if (rc == 0)
            rc = buf_error(b);
        if (rc != 0 && rc != COHORT_EFULL)
            break;
        /* A full store goes on taking deletes as long as there are frames: they are what it needs. */
        if (!buf_too_dirty(b, rc == 0 ? BUF_DIRTY_MAX_PERCENT : BUF_DIRTY_FULL_PERCENT))
            return 0;
        if (rc == 0)
            tries = 0;
        rc = cleaner_help(b);
    }
    return cleaner_error(b);
}

/* Besides the pages that must be left. Compressed pages take the more room the fuller they are, which is known once they are
 * written. */
static bool
has_room(struct buf *b, uint64_t kept)
{
    uint64_t fresh = atomic_load_explicit(&b->dirty_new, memory_order_relaxed);
    uint64_t dirty = atomic_load_explicit(&b->dirty, memory_order_relaxed);

    if (store_packs(b->store) && dirty > fresh)
        fresh += (dirty - fresh) / 2;
    return CH_BUG(R11_NO_ADMISSION) || store_has_room(b->store, fresh, ADMIT_NEW_PAGES + kept);
}

/* The cleaner found no room. Zones may only be waiting for a flush, a reader or a checkpoint: a writer gives it some tries
 * before he is turned away, but not where it has had its time. Returns the error that stands then. */
static int
full_wait(struct buf *b)
{
    int rc = 0;

    for (unsigned i = 0;
         rc == 0 && i < ADMIT_FULL_TRIES && buf_error(b) == COHORT_EFULL && !cleaner_full_lasts(b);
         i++)
        rc = cleaner_help(b);
    return rc != 0 ? rc : buf_error(b);
}

/* `kept`: pages that must be left. */
static int
admit(struct buf *b, bool grows, uint64_t kept, uint64_t clean_from)
{
    int rc = buf_error(b);

    if (CH_UNLIKELY(rc == COHORT_EFULL && grows))
        rc = full_wait(b);
    if (rc != 0 && (rc != COHORT_EFULL || grows))
        return buf_error(b) != 0 ? cleaner_error(b) : rc;
    if (CH_UNLIKELY(grows && !has_room(b, kept))) {
        /* What was freed or became smaller gives nothing back before it is clean. */
        if (atomic_load_explicit(&b->dirty, memory_order_relaxed) >= clean_from)
            rc = buf_clean_until(b, wal_end(b->wal));
        if (rc != 0 && rc != COHORT_EFULL)
            return rc;
        if (!has_room(b, kept))
            return CH_FAIL(COHORT_EFULL, "the store has no room for more pages");
    }
    if (!buf_wants_cleaning(b) && !buf_too_dirty(b, BUF_DIRTY_MAX_PERCENT))
        return 0;
    return buf_admit_cleaning(b);
}

int
buf_admit(struct buf *b, bool grows)
{
    return admit(b, grows, b->keep_pages + atomic_load_explicit(&b->kept, memory_order_relaxed),
                 ADMIT_CLEAN_FROM);
}

int
buf_admit_kept(struct buf *b)
{
    uint64_t kept = atomic_load_explicit(&b->kept, memory_order_relaxed);
    /* How well images pack varies by more than is kept. What counts then is whether there is room in fact, which is some percent
     * more than the estimate grants. */
    bool packs = store_packs(b->store);
    int rc = 0;

    if (packs ? buf_error(b) == COHORT_EFULL : !has_room(b, kept))
        rc = buf_clean_until(b, wal_end(b->wal));
    if (rc != 0 && (packs || rc != COHORT_EFULL))
        return rc;
    if (!packs && !has_room(b, kept))
        return CH_FAIL(COHORT_EFULL, "the store has no room for more pages");
    return admit(b, false, 0, 0);
}

void
buf_keep(struct buf *b, uint64_t pages)
{
    /* Every write comes by, mostly with the same: a store each time would take the cache line from all who read in it. */
    if (atomic_load_explicit(&b->kept, memory_order_relaxed) != pages)
        atomic_store_explicit(&b->kept, pages, memory_order_relaxed);
}

bool
buf_is_resident(struct buf *b, page_id pid)
{
    struct page_entry *e = table_find(b, pid);
    uint32_t f1 = e != NULL ? atomic_load_explicit(&e->frame1, memory_order_acquire) : 0;

    return f1 != 0 && (frame_flags(&b->frames[f1 - 1]) & FRAME_DIRTY) != 0;
}

void
buf_counts(struct buf *b, struct buf_counts *out)
{
    *out = (struct buf_counts){
        .evictions = atomic_load_explicit(&b->evictions, memory_order_relaxed),
        .cleaned = atomic_load_explicit(&b->cleaned, memory_order_relaxed),
        .frames = b->frame_count,
        .dirty = atomic_load_explicit(&b->dirty, memory_order_relaxed),
        .dirty_new = atomic_load_explicit(&b->dirty_new, memory_order_relaxed),
    };
    for (unsigned i = 0; i < BUF_SHARDS; i++) {
        out->hits += atomic_load_explicit(&b->shards[i].hits, memory_order_relaxed);
        out->misses += atomic_load_explicit(&b->shards[i].misses, memory_order_relaxed);
    }
}

size_t
buf_memory(const struct buf *b)
{
    size_t segments = atomic_load_explicit(&b->segments_used, memory_order_relaxed);

    /* Of the array of segments only the part in use has ever been touched: ids are given out from the lowest on. */
    return sizeof(*b) + b->frame_count * (sizeof(*b->frames) + sizeof(*b->free_stack)) +
           ch_min_u64(b->segment_count * sizeof(*b->segments),
                      ch_round_up(segments * sizeof(*b->segments), CH_PAGE_BYTES)) +
           segments * BUF_SEGMENT_PAGES * sizeof(struct page_entry) +
           (size_t)b->batch_pages * CH_PAGE_BYTES + changes_memory(b);
}

uint64_t
buf_frame_bytes(const struct buf *b)
{
    return (uint64_t)b->frame_count * CH_PAGE_BYTES;
}
