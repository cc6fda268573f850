/* table.c - the page table and the memory of the frames.
 *
 * The table has 16 bytes for each page id: latch word and frame number. It is cut into segments of
 * 4 Ki ids, made when an id of theirs is first asked for and kept until the cache is destroyed: so an
 * entry's address is good for ever, and a latch word survives the eviction of its page (the version must).
 *
 * Frames are one mapping, aligned to 2 MiB and offered to transparent huge pages; the kernel gives memory
 * as frames are first used. It stays mapped while open, so an optimistic reader never faults.
 *
 * Locks: none; segments are installed by compare-and-swap.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "buf/buf_internal.h"

enum {
    HUGE_BYTES = 2 << 20
};

static int
table_map_frames(struct buf *b)
{
    size_t bytes = (size_t)b->frame_count * CH_PAGE_BYTES;
    void *p;

    p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CH_FAIL(COHORT_ENOMEM, "page cache of %zu bytes", bytes);
    b->mapping = p;
    b->mapping_bytes = bytes + HUGE_BYTES;
    b->mem = (uint8_t *)p + (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
    (void)madvise(b->mem, bytes, MADV_HUGEPAGE); /* a hint: kernels without it work as well */
    return 0;
}

int
table_create(struct buf *b, uint64_t cache_bytes)
{
    /* What deltas need to know about a frame is paid from the cache. */
    uint64_t each = CH_PAGE_BYTES;
    uint64_t frames;
    int rc;

    if (store_deltas(b->store))
        each +=
            sizeof(struct frame_changes) + BUF_BLOCKS * sizeof(uint64_t) * BUF_HASHES_PERCENT / 100;
    frames = ch_clamp_u64(cache_bytes / each, BUF_FRAMES_MIN, UINT32_MAX - 1);
    b->frame_count = (uint32_t)frames;
    b->segment_count = ch_div_up(b->pages_max, BUF_SEGMENT_PAGES);
    b->frames = calloc(b->frame_count, sizeof(*b->frames));
    b->free_stack = calloc(b->frame_count, sizeof(*b->free_stack));
    b->segments = ch_alloc_aligned(b->segment_count * sizeof(*b->segments));
    if (b->frames == NULL || b->free_stack == NULL || b->segments == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "tables of a page cache of %" PRIu32 " frames", b->frame_count);
        goto out;
    }
    rc = table_map_frames(b);
    if (rc != 0)
        goto out;
    for (uint32_t f = 0; f < b->frame_count; f++) {
        atomic_init(&b->frames[f].rec_lsn, CH_LSN_MAX);
        atomic_init(&b->frames[f].redirty_lsn, CH_LSN_MAX);
        b->free_stack[f] = b->frame_count - 1 - f; /* the lowest is taken first */
    }
    atomic_init(&b->free_count, b->frame_count);
out:
    return rc;
}

void
table_destroy(struct buf *b)
{
    if (b->segments != NULL)
        for (uint64_t i = 0; i < b->segment_count; i++)
            ch_free_aligned(atomic_load_explicit(&b->segments[i], memory_order_relaxed));
    ch_free_aligned(b->segments);
    free(b->frames);
    free(b->free_stack);
    if (b->mapping != NULL)
        (void)munmap(b->mapping, b->mapping_bytes);
}

int
table_entry(struct buf *b, page_id pid, struct page_entry **out)
{
    struct page_entry *seg;
    struct page_entry *expected = NULL;
    _Atomic(struct page_entry *) *slot;

    if (CH_UNLIKELY(pid == 0 || pid >= b->pages_max))
        return CH_FAIL(COHORT_NOTFOUND, "page %" PRIu64 ": no such id", pid);
    slot = &b->segments[pid / BUF_SEGMENT_PAGES];
    seg = atomic_load_explicit(slot, memory_order_acquire);
    if (CH_UNLIKELY(seg == NULL)) {
        seg = ch_alloc_aligned(BUF_SEGMENT_PAGES * sizeof(*seg));
        if (seg == NULL)
            return CH_FAIL(COHORT_ENOMEM, "page table for page %" PRIu64, pid);
        if (atomic_compare_exchange_strong_explicit(slot, &expected, seg, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            (void)atomic_fetch_add_explicit(&b->segments_used, 1, memory_order_relaxed);
        } else {
            ch_free_aligned(seg);
            seg = expected;
        }
    }
    *out = &seg[pid % BUF_SEGMENT_PAGES];
    return 0;
}
