/* view.c - views: slots, snapshots, what may be trimmed, what can be read as it stands.
 *
 * A view holds a slot: a bit of slot_bits (the lowest free one is taken, so scans of the set bits
 * are short) and a cache line {snap, first}. `snap` publishes the view's horizon to whoever trims;
 * `first` registers the slot's writer with a lower bound of the LSNs that it writes.
 *
 * Fast reads (R1). A view is made by
 *     h0 = horizon; f = min(first of all slots); H = horizon; fast = min(h0, f).
 *   W1  A record with LSN r <= fast that is in a leaf, and not undone there, is seen by H:
 *       its writer w had a slot or none.
 *       - None: r is w's commit LSN, appended and either queued or passed by the horizon within one hold of
 *         the commit lock. The horizon only takes commit LSNs and those in order; so r <= h0 says that
 *         w is passed: visible to h0, and H >= h0.
 *       - A slot, and the scan saw w's first: f <= first < r, as a record's LSN is the position
 *         behind it. Contradiction.
 *       - A slot, and the scan came before w's registration: a writer that registers late appends
 *         late. Registration is sequenced before w's append; if r <= h0, that append is before the
 *         append of the commit record h0 (log order), which is before the store of h0 (release) that
 *         this view loaded (acquire). So the scan, sequenced behind that load, would have seen it.
 *         The count `registered`, raised before the slot is written, is covered by the same chain.
 *       - A slot, and the scan came after w was unregistered (release; the scan acquires): after a
 *         commit the horizon had passed it, and H is loaded behind the scan: H >= its commit LSN.
 *         After an abort everything was undone before; the leaf does not hold it.
 *   W2  So a leaf whose newest user write is at most `fast` holds only what the view may see, and all of
 *       it: what it may not see is written with greater LSNs. It stays so while the view lasts, dead
 *       or alive: a leaf that changes gets a greater LSN, and undo is a change.
 *   W3  The own writer of a refreshed view may be left out of the scan: its writes are visible to it.
 *
 * Trimming. All four accesses are seq_cst, so they have one order:
 *     view:    (1) snap = H        (2) load bound; bound > H: begin anew
 *     trimmer: (3) bound = horizon (4) load the snaps        (a commit that is visible at once does the same)
 *   W4  A view that goes on after (2) with H < bound's new value was seen by (4): its (2) came before
 *       (3), so its (1) came before (4). Its slot's bit is set (seq_cst) before (1).
 *   W5  Hence every view that now is, or will be, is in snaps[] or has H >= snap_bound; entries of
 *       commits <= limit = min(snaps[], snap_bound) are seen by all of them and restore nothing that
 *       anybody reads. A snap that (4) sees but whose view begins anew only makes the limit lower.
 *   W6  The bound never goes back and is at most the horizon, so (2) ends once H is loaded anew.
 *   W7  A killed view's snap is DEAD before its entries are unlinked, which is under shard locks; whoever
 *       reads a chain looks at snap under the same lock: it finds the entries or it finds itself dead.
 */
#include "base/bug.h"
#include "ver/ver_internal.h"

bool
ver_slot_next(struct ver *v, uint32_t from, uint32_t *slot)
{
    uint64_t skip = ~UINT64_C(0) << from % 64;

    unsigned used = atomic_load_explicit(&v->slot_words_used, memory_order_seq_cst); /* W4 */

    for (unsigned i = from / 64; i < used; i++) {
        uint64_t bits = atomic_load_explicit(&v->slot_bits[i], memory_order_seq_cst) & skip;

        if (bits != 0) {
            *slot = i * 64 + (unsigned)__builtin_ctzll(bits);
            return *slot < v->cfg.slots_max; /* the bits behind the last slot are always set */
        }
        skip = ~UINT64_C(0);
    }
    return false;
}

/* Before a bit of that word is set: scans look at it from now on. */
static void
word_use(struct ver *v, unsigned word)
{
    unsigned used = atomic_load_explicit(&v->slot_words_used, memory_order_seq_cst);

    while (used <= word &&
           !atomic_compare_exchange_weak_explicit(&v->slot_words_used, &used, word + 1,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
}

static bool
slot_take(struct ver *v, uint32_t *slot)
{
    for (unsigned i = 0; i < v->slot_words; i++) {
        word_use(v, i);
        uint64_t bits = atomic_load_explicit(&v->slot_bits[i], memory_order_relaxed);

        while (~bits != 0) {
            uint64_t bit = ~bits & (bits + 1); /* lowest that is clear */
            uint64_t was =
                atomic_fetch_or_explicit(&v->slot_bits[i], bit, memory_order_seq_cst); /* W4 */

            if ((was & bit) == 0) {
                *slot = i * 64 + (unsigned)__builtin_ctzll(bit);
                return true;
            }
            bits = was;
        }
    }
    return false;
}

/* The lowest first LSN of the registered writers, the one in slot `except` left out (W1, W3). */
static lsn_t
first_min(struct ver *v, uint32_t except)
{
    lsn_t min = CH_LSN_MAX;

    if (atomic_load_explicit(&v->registered, memory_order_acquire) == 0)
        return min;
    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1) {
        lsn_t first = atomic_load_explicit(&v->slots[slot].first, memory_order_acquire);

        if (slot != except)
            min = ch_min_u64(min, first);
    }
    return min;
}

/* Takes a snapshot and publishes it in the view's slot. */
static void
snapshot(struct ver *v, struct ver_view *view)
{
    uint32_t except = view->self != NULL ? view->slot : VER_NO_SLOT;
    struct ver_slot *s = &v->slots[view->slot];
    lsn_t bound;

    do {
        lsn_t h0 = atomic_load_explicit(&v->horizon, memory_order_acquire);
        lsn_t first;

        rt_point();
        first = first_min(v, except);
        rt_point();
        view->fast = CH_BUG(R1_FAST_READ) ? h0 : ch_min_u64(h0, first);
        view->horizon = atomic_load_explicit(&v->horizon, memory_order_acquire);
        rt_point();
        atomic_store_explicit(&s->snap, view->horizon, memory_order_seq_cst); /* (1) */
        bound = atomic_load_explicit(&v->bound, memory_order_seq_cst);        /* (2) */
    } while (bound > view->horizon);
}

int
ver_view_open(struct ver *v, struct ver_view *view)
{
    uint32_t slot;

    if (!slot_take(v, &slot))
        return CH_FAIL(COHORT_EBUSY, "%u transactions and cursors are open", v->cfg.slots_max);
    view->self = NULL;
    view->slot = slot;
    snapshot(v, view);
    return 0;
}

void
ver_view_refresh(struct ver *v, struct ver_view *view)
{
    snapshot(v, view);
}

void
ver_view_release(struct ver *v, struct ver_view *view)
{
    atomic_store_explicit(&v->slots[view->slot].snap, VER_SNAP_NONE, memory_order_release);
}

void
ver_view_close(struct ver *v, struct ver_view *view)
{
    struct ver_slot *s = &v->slots[view->slot];

    CH_ASSERT(atomic_load_explicit(&s->first, memory_order_relaxed) == VER_FIRST_NONE);
    CH_ASSERT(s->live == NULL);
    atomic_store_explicit(&s->snap, VER_SNAP_NONE, memory_order_release);
    atomic_fetch_and_explicit(&v->slot_bits[view->slot / 64],
                              ~(UINT64_C(1) << view->slot % 64), /* partner: slot_take() */
                              memory_order_acq_rel);
    view->slot = VER_NO_SLOT;
}

bool
ver_view_dead(struct ver *v, const struct ver_view *view)
{
    return atomic_load_explicit(&v->slots[view->slot].snap, memory_order_acquire) == VER_SNAP_DEAD;
}

lsn_t
ver_horizon(const struct ver *v)
{
    return atomic_load_explicit(&v->horizon, memory_order_acquire);
}

bool
ver_fast(struct ver *v, const struct ver_view *view, lsn_t write_lsn)
{
    if (view != NULL)
        return write_lsn <= view->fast;
    if (write_lsn > atomic_load_explicit(&v->horizon, memory_order_acquire))
        return false;
    return write_lsn <= first_min(v, VER_NO_SLOT);
}

void
ver_unregister(struct ver *v, uint32_t slot)
{
    struct ver_slot *s = &v->slots[slot];

    if (atomic_load_explicit(&s->first, memory_order_relaxed) == VER_FIRST_NONE)
        return;
    atomic_store_explicit(&s->first, VER_FIRST_NONE, memory_order_release); /* W1 */
    atomic_fetch_sub_explicit(&v->registered, 1, memory_order_acq_rel);     /* W1 */
}

/* ---- for trimming ---- */

/* (3); W6: never back */
static void
bound_raise(struct ver *v, lsn_t to)
{
    lsn_t bound = atomic_load_explicit(&v->bound, memory_order_seq_cst);

    while (bound < to && !atomic_compare_exchange_weak_explicit(
                             &v->bound, &bound, to, memory_order_seq_cst, memory_order_seq_cst))
        ;
}

bool
ver_views_below(struct ver *v, lsn_t lsn, lsn_t *snap)
{
    bool any = false;

    bound_raise(v, lsn);
    rt_point();
    *snap = 0;
    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1) {
        lsn_t s = atomic_load_explicit(&v->slots[slot].snap, memory_order_seq_cst); /* (4) */

        if (s < lsn) {
            *snap = ch_max_u64(*snap, s);
            any = true;
        }
    }
    return any;
}

void
ver_views_look(struct ver *v)
{
    lsn_t bound = atomic_load_explicit(&v->horizon, memory_order_acquire);
    lsn_t limit = bound;

    bound_raise(v, bound);
    rt_point();
    v->snap_bound = bound;
    v->snap_count = 0;
    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1) {
        lsn_t snap = atomic_load_explicit(&v->slots[slot].snap, memory_order_seq_cst); /* (4) */

        if (snap < bound) {
            v->snaps[v->snap_count++] = snap;
            limit = ch_min_u64(limit, snap);
        }
    }
    v->limit = limit; /* W5 */
}

bool
ver_views_kill(struct ver *v, uint32_t except)
{
    lsn_t bound = atomic_load_explicit(&v->bound, memory_order_relaxed);
    lsn_t oldest = bound;
    uint32_t victim = VER_NO_SLOT;

    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1) {
        lsn_t snap = atomic_load_explicit(&v->slots[slot].snap, memory_order_relaxed);

        if (snap < oldest && slot != except) {
            oldest = snap;
            victim = slot;
        }
    }
    if (victim == VER_NO_SLOT)
        return false;
    /* Closed or renewed meanwhile: then it holds nothing any more, which is as good. */
    if (atomic_compare_exchange_strong_explicit(&v->slots[victim].snap, &oldest, VER_SNAP_DEAD,
                                                memory_order_seq_cst, memory_order_relaxed))
        atomic_fetch_add_explicit(&v->killed, 1, memory_order_relaxed);
    return true;
}
