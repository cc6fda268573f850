/* gc_fold.c - garbage collection puts deltas into the bases that it moves anyway.
 *
 *     chunk: ... base of p ...    delta of p, wherever it is --read--> base + delta = page --encode--> one full image
 *
 * It costs a read. The delta's bytes are free, the page is read with one read again, and its next deltas begin small.
 *
 * Invariants:
 *   F1  a folded image is the page of the delta that it was folded from: its LSN, its checksum.
 *   F2  it may become the base while a newer delta of the page has been published meanwhile: that one's mask is a superset of the
 *       folded one's, so it applies to either base (pack/delta.c, D1). Then the move keeps the delta.
 *   F3  what cannot be folded, for damage or a failed read, is moved as it stands; who reads the page is told of the damage.
 *
 * Locks: s->lock throughout, so that no zone is reset: what a place read here says stays there, dead or not.
 */
#include <inttypes.h>

#include "page/page.h"
#include "store/store_internal.h"

int
gc_fold_create(struct store *s)
{
    struct store_fold *f = &s->fold;

    if (!store_deltas(s))
        return 0;
    f->most = s->chunk_slots < STORE_FOLDS ? s->chunk_slots : STORE_FOLDS;
    f->pages = ch_alloc_aligned((size_t)f->most * CH_PAGE_BYTES);
    f->slots = ch_alloc_aligned((size_t)f->most * CH_SLOT_BYTES);
    return f->pages != NULL && f->slots != NULL
               ? 0
               : CH_FAIL(COHORT_ENOMEM, "buffers of folded deltas");
}

void
gc_fold_destroy(struct store *s)
{
    ch_free_aligned(s->fold.pages);
    ch_free_aligned(s->fold.slots);
}

/* Chooses the bases of the chunk that have deltas. */
static unsigned
fold_choose(struct store *s, unsigned n)
{
    struct store_fold *f = &s->fold;
    struct store_gc *g = &s->gc;
    unsigned k = 0;

    for (unsigned i = 0; i < n && k < f->most; i++) {
        place_t delta = g->delta[i] ? PLACE_NONE : map_delta(s->map, g->pids[i]);

        if (delta == PLACE_NONE || place_crosses(delta) ||
            store_place_check(s, g->pids[i], delta) != 0)
            continue;
        f->items[k] = i;
        f->deltas[k] = delta;
        f->reqs[k] = (struct dev_req){
            .op = DEV_READ,
            .off = store_slot_off(place_slot(delta)),
            .len = CH_SLOT_BYTES,
            .buf = f->slots + (size_t)k * CH_SLOT_BYTES,
        };
        k++;
    }
    return k;
}

/* F1. The item becomes the page of base and delta; false: it stays as it is (F3). */
static bool
fold_one(struct store *s, unsigned k)
{
    struct store_fold *f = &s->fold;
    struct store_gc *g = &s->gc;
    unsigned i = f->items[k];
    struct pack_item *it = &s->w.items[i];
    uint8_t *page = f->pages + (size_t)k * CH_PAGE_BYTES;
    place_t delta = f->deltas[k];
    uint64_t mask;
    int rc = store_decode(s, s->packer, g->pids[i], g->old[i], it->image, page);

    if (rc == 0)
        rc = pack_delta_apply(f->slots + (size_t)k * CH_SLOT_BYTES + place_offset(delta), 0,
                              place_bytes(delta), g->pids[i], page, &mask);
    if (rc != 0)
        return false;
    *it = (struct pack_item){
        .pid = g->pids[i],
        .lsn = page_lsn(page),
        .death = page_death_pack(page_death_time(page, wal_end(s->wal))),
        .page = page,
    };
    g->folded[i] = delta;
    return true;
}

/* Takes images of deltas that were folded out of the chunk. Returns how many items are left. */
static unsigned
fold_drop(struct store *s, unsigned n)
{
    struct store_gc *g = &s->gc;
    unsigned left = 0;

    for (unsigned i = 0; i < n; i++) {
        bool gone = false;

        for (unsigned j = 0; g->delta[i] && !gone && j < n; j++)
            gone = g->folded[j] == g->old[i];
        if (gone)
            g->old[i] = PLACE_NONE;
    }
    for (unsigned i = 0; i < n; i++) {
        if (g->old[i] == PLACE_NONE)
            continue;
        s->w.items[left] = s->w.items[i];
        g->pids[left] = g->pids[i];
        g->old[left] = g->old[i];
        g->delta[left] = g->delta[i];
        g->folded[left++] = g->folded[i];
    }
    return left;
}

unsigned
gc_fold(struct store *s, unsigned n)
{
    unsigned k = s->fold.most > 0 ? fold_choose(s, n) : 0;
    unsigned folded = 0;

    if (k == 0 || dev_io(s->cfg.dev, s->fold.reqs, k) != 0)
        return n;
    for (unsigned i = 0; i < k; i++)
        folded += fold_one(s, i);
    if (folded == 0)
        return n;
    store_count(&s->delta_folds, folded);
    n = fold_drop(s, n);
    store_codecs_choose(s, s->w.items, n);
    return n;
}
