/* changes.c - what of a page has changed since its last full image was stored, so that it can be written as a delta.
 *
 *     clean --change--> hashes of its 64 blocks --more changes--> cleaner's copy: which blocks have other hashes now?
 *
 * For each frame: the LSN of the page's full image on the device (its base), and the mask of blocks in which the page, as
 * it was when it was last stored, may differ from it. Before a stored page is changed for the first time, its blocks are
 * hashed; when the cleaner copies it, the blocks whose hashes differ are added to the mask. Hashes take 512 bytes and come from
 * a bounded pool: when that is empty, the page will be written in full. All of it is counted in the cache's bytes.
 *
 * Invariants:
 *   H1  base_lsn != 0 and not lost: the page's content at the time of the hashes (now, if there are none) differs from its
 *       base in blocks of the mask only. So a mask never shrinks while its base stands, whether the writes that
 *       it was made for were published or not.
 *   H2  hashes are of what was stored last, or is being stored: so a frame that turns clean has none.
 *   H3  lost: the page has changed since, and nobody knows where: the next write is a full one.
 *   H4  a dirty frame without hashes whose base is known has FRAME_UNTRACKED, or WRITING: so that its next change is seen.
 *
 * A changed block whose 64-bit hash stays the same would be left out of the delta. The hash is XXH3 with a seed drawn when the cache
 * is made, so nobody can provoke that; by chance it happens once in 2^64 changed blocks. It would be noticed when the page
 * is read: the checksum of the merged page fails.
 *
 * Locks: fields change under the frame's stripe lock, the pool under pool_lock (rank FREE). Crash: memory only.
 */
#include <inttypes.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "buf/buf_internal.h"
#include "page/page.h"

int
changes_create(struct buf *b)
{
    struct buf_changes *c = &b->changes;

    if (!store_deltas(b->store))
        return 0;
    c->pool_count = (uint32_t)ch_max_u64((uint64_t)b->frame_count * BUF_HASHES_PERCENT / 100, 1);
    c->seed = rt_random();
    c->frames = calloc(b->frame_count, sizeof(*c->frames));
    c->pool = calloc(c->pool_count, sizeof(*c->pool));
    c->free = calloc(c->pool_count, sizeof(*c->free));
    if (c->frames == NULL || c->pool == NULL || c->free == NULL)
        return CH_FAIL(COHORT_ENOMEM, "hashes of %" PRIu32 " changed pages", c->pool_count);
    for (uint32_t i = 0; i < c->pool_count; i++)
        c->free[i] = c->pool_count - 1 - i;
    c->free_count = c->pool_count;
    return 0;
}

void
changes_destroy(struct buf *b)
{
    free(b->changes.frames);
    free(b->changes.pool);
    free(b->changes.free);
}

size_t
changes_memory(const struct buf *b)
{
    const struct buf_changes *c = &b->changes;

    if (c->frames == NULL)
        return 0;
    return b->frame_count * sizeof(*c->frames) +
           c->pool_count * (sizeof(*c->pool) + sizeof(*c->free));
}

/* ---- the pool ---- */

static void
hashes_put(struct buf *b, struct frame_changes *fc)
{
    struct buf_changes *c = &b->changes;

    if (fc->hashes == 0)
        return;
    rt_lock(&c->pool_lock);
    c->free[c->free_count++] = fc->hashes - 1;
    rt_unlock(&c->pool_lock);
    fc->hashes = 0;
}

static bool
hashes_get(struct buf *b, struct frame_changes *fc)
{
    struct buf_changes *c = &b->changes;

    rt_lock(&c->pool_lock);
    if (c->free_count > 0)
        fc->hashes = c->free[--c->free_count] + 1;
    rt_unlock(&c->pool_lock);
    return fc->hashes != 0;
}

static uint64_t
block_hash(const struct buf *b, uint32_t f, unsigned block)
{
    return XXH3_64bits_withSeed(buf_page(b, f) + (size_t)block * BUF_BLOCK_BYTES, BUF_BLOCK_BYTES,
                                b->changes.seed);
}

/* ---- what happens to a frame; no-ops where no deltas are written ---- */

void
changes_origin(struct buf *b, uint32_t f, const struct store_origin *origin)
{
    struct frame_changes *fc;

    if (b->changes.frames == NULL)
        return;
    fc = &b->changes.frames[f];
    rt_lock(buf_stripe(b, f));
    fc->base_lsn = origin->base_lsn;
    fc->mask = origin->mask;
    fc->lost = false;
    rt_unlock(buf_stripe(b, f));
}

void
changes_forget(struct buf *b, uint32_t f)
{
    struct frame_changes *fc;

    if (b->changes.frames == NULL)
        return;
    fc = &b->changes.frames[f];
    hashes_put(b, fc);
    fc->base_lsn = 0;
    fc->mask = 0;
    fc->lost = false;
}

void
changes_before(struct buf *b, uint32_t f, uint32_t flags)
{
    struct frame_changes *fc;
    uint64_t *hashes;

    if (b->changes.frames == NULL)
        return;
    fc = &b->changes.frames[f];
    if (fc->hashes != 0 || fc->lost || (fc->base_lsn == 0 && (flags & FRAME_WRITING) == 0))
        return;
    if (!hashes_get(b, fc)) {
        fc->lost = true; /* H3 */
        return;
    }
    hashes = b->changes.pool[fc->hashes - 1];
    for (unsigned i = 0; i < BUF_BLOCKS; i++)
        hashes[i] = block_hash(b, f, i);
}

void
changes_take(struct buf *b, uint32_t f, struct store_page *out)
{
    struct frame_changes *fc;
    uint64_t mask;

    out->base_lsn = 0;
    out->delta_mask = 0;
    if (b->changes.frames == NULL)
        return;
    rt_lock(buf_stripe(b, f));
    fc = &b->changes.frames[f];
    if (fc->lost || fc->base_lsn == 0) {
        changes_forget(b, f);
    } else {
        mask = fc->mask | 1; /* the header changes with every write */
        for (unsigned i = 0; fc->hashes != 0 && i < BUF_BLOCKS; i++)
            if (b->changes.pool[fc->hashes - 1][i] != block_hash(b, f, i))
                mask |= UINT64_C(1) << i;
        hashes_put(b, fc);
        fc->mask = mask; /* H1 */
        out->base_lsn = fc->base_lsn;
        out->delta_mask = mask;
    }
    fc->copy_lsn = out->lsn;
    rt_unlock(buf_stripe(b, f));
}

void
changes_done(struct buf *b, uint32_t f, bool freed, bool delta)
{
    struct frame_changes *fc;

    if (b->changes.frames == NULL)
        return;
    fc = &b->changes.frames[f];
    if (freed) {
        fc->base_lsn = 0; /* what may have come after it begins with a full image */
    } else if (!delta) {
        fc->base_lsn = fc->copy_lsn;
        fc->mask = 0;
    }
}

bool
changes_untracked(const struct buf *b, uint32_t f)
{
    return b->changes.frames != NULL && b->changes.frames[f].hashes == 0;
}
