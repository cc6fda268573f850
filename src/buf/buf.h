/* buf.h - the page cache: page-id-indexed table of {latch + version, frame}, frames, cleaner, the WAL rule.
 *
 * Latches. Each page id has a 64-bit latch word: version, exclusive bit, waiters bit, shared count.
 *  - shared / exclusive: buf_fix() .. buf_unfix().
 *  - optimistic: buf_peek() gives the frame's memory and the version; reads may see garbage and count only if
 *    buf_peek_valid() holds afterwards. Exclusive release bumps the version; so do eviction and free (R9).
 * Frames' memory stays mapped for the life of the cache, so an optimistic read never faults.
 * A page stays resident while latched. There are no pins.
 *
 * Deadlock rule: latches are acquired parent before child, and left before right on a level; whoever holds a
 * latch and wants one against that order uses the `try` form and backs off. Log room is reserved before any
 * latch (R8, R11).
 *
 * Changing a page:   buf_fix(X) -> buf_will_change() [registers rec_lsn = wal_end(), R3] -> wal_append -> change,
 *                    page_set_lsn -> buf_unfix
 * Cleaner: copy under S latch -> wal_flush(max LSN) (S2) -> store_write -> (flush) -> store_publish -> clean.
 */
#ifndef CH_BUF_BUF_H
#define CH_BUF_BUF_H

#include "base/base.h"

struct store;
struct wal;
struct buf; /* the cache */

struct buf_config {
    struct store *store;
    struct wal *wal;
    uint64_t cache_bytes;
    uint64_t pages_max;
    unsigned batch_pages; /* of the cleaner */
    uint64_t keep_pages;  /* that writes which grow must leave to undo and deletes (R11) */
    bool background;      /* false: waits for frames run buf_clean_step() themselves */
};
CH_NODISCARD int buf_create(const struct buf_config *cfg, struct buf **out);
void buf_destroy(struct buf *b); /* drops dirty pages */
/* Starts / stops the cleaner thread (background only). Stop waits for it; no write stays in flight. */
CH_NODISCARD int buf_start(struct buf *b);
void buf_stop(struct buf *b);

enum buf_mode {
    BUF_SHARED,
    BUF_EXCLUSIVE
};
struct buf_ref {
    page_id pid;
    uint8_t *page;
    uint32_t frame;
    enum buf_mode mode;
};
/* Latches the page, reading it if needed. NOTFOUND: the page has no image and is not in memory; EPAGE.. from the store;
 * ENOMEM when every frame is latched. Fills *ref on success only. */
CH_NODISCARD int buf_fix(struct buf *b, page_id pid, enum buf_mode mode, struct buf_ref *ref);
/* The same, never waiting for the latch: ERETRY when it is taken or the page must be read (it is then read in, so that
 * a second try finds it, unless the latch is taken). */
CH_NODISCARD int buf_try_fix(struct buf *b, page_id pid, enum buf_mode mode, struct buf_ref *ref);
void buf_unfix(struct buf *b, struct buf_ref *ref);
/* Exclusively latched and not read in, for a page that is to be freed: its bytes are zeroes unless it was in memory. The
 * caller marks it free, or unlatches it unchanged. Errors of memory only. */
CH_NODISCARD int buf_fix_unread(struct buf *b, page_id pid, struct buf_ref *ref);
/* A new page: id allocated (store_pid_alloc), exclusively latched, zeroed, already will_change'd. EFULL, ENOMEM. */
CH_NODISCARD int buf_new(struct buf *b, struct buf_ref *ref);
/* The same with an id that the caller got from store_pid_alloc(). ENOMEM. */
CH_NODISCARD int buf_new_at(struct buf *b, page_id pid, struct buf_ref *ref);
/* Recovery: the frame of `pid` exclusively latched, read in if it has an image, else zeroed; *found tells. */
CH_NODISCARD int buf_fix_any(struct buf *b, page_id pid, struct buf_ref *ref, bool *found);
/* Exclusive latch held: the page is about to change by a record not yet appended. */
void buf_will_change(struct buf *b, struct buf_ref *ref);
/* Recovery, single-threaded: pages that change from now on are dirty since `lsn`, where the record that is being
 * redone starts, not since the log's end; 0 = back to normal. Else the first checkpoint would cut records whose
 * pages are not written yet (R2). */
void buf_redo_bound(struct buf *b, lsn_t lsn);
/* Exclusive latch held, the page's type is PAGE_FREE now: the cleaner will publish its end and free the id. */
void buf_mark_free(struct buf *b, struct buf_ref *ref);

struct buf_peek {
    const uint8_t *page;
    page_id pid;
    uint64_t version;
};
/* Optimistic: waits while exclusively latched; reads the page in if needed. Errors as buf_fix. */
CH_NODISCARD int buf_peek(struct buf *b, page_id pid, struct buf_peek *p);
bool buf_peek_valid(struct buf *b, const struct buf_peek *p);
/* The same, reading nothing and waiting for nothing: false when the page is not in memory or exclusively latched. Does not
 * count as a use of the page. */
bool buf_peek_cached(struct buf *b, page_id pid, struct buf_peek *p);
/* A hint, out of date at once. */
bool buf_is_cached(struct buf *b, page_id pid);
/* Whether an exclusive holder or a change has invalidated it is checked after latching a child: same as valid. */
/* Reads missing pages of the list in, in parallel, no latch kept; a hint: errors are left to the later fix. */
void buf_prefetch(struct buf *b, const page_id *pids, unsigned n);

/* Called by writers before they latch anything: waits while too many frames are dirty (so that reads always
 * find clean frames) and returns EFULL when the store has no room (`grows`: the operation may add pages or bytes). */
CH_NODISCARD int buf_admit(struct buf *b, bool grows);
/* The same for what grows on behalf of undo, and of deletes: from the pages that are kept for them. */
CH_NODISCARD int buf_admit_kept(struct buf *b);
/* So many pages more than keep_pages are kept from now on, for undo of what is open. */
void buf_keep(struct buf *b, uint64_t pages);

/* One bounded cleaner step: publishes ready batches, runs gc steps the store wants, writes one batch of cold dirty frames (all
 * dirty frames with rec_lsn < `before` first; pass 0 for none). *did tells whether anything happened. */
CH_NODISCARD int buf_clean_step(struct buf *b, lsn_t before, bool *did);
/* Cleans until no frame has rec_lsn < before (CH_LSN_MAX: all) and nothing is in flight. */
CH_NODISCARD int buf_clean_until(struct buf *b, lsn_t before);
/* Smallest rec_lsn over all frames (R2, R3), CH_LSN_MAX if all are clean. */
lsn_t buf_oldest_dirty(struct buf *b);
/* First error the cleaner met, 0 if none; sticky unless EFULL. */
int buf_error(struct buf *b);

/* Is the page dirty in memory (recovery: keep its id)? */
bool buf_is_resident(struct buf *b, page_id pid);

struct buf_counts {
    uint64_t hits, misses, evictions, cleaned, frames, dirty, dirty_new;
};
void buf_counts(struct buf *b, struct buf_counts *out);
size_t buf_memory(const struct buf *b); /* frames excluded */
uint64_t buf_frame_bytes(const struct buf *b);

#endif
