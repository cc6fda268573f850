/* ver.c - the version store as a whole: creation, writers' descriptors and their lists, counts. */
#include "ver/ver_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- creation ------------------------------------------------------------------------------------ */

static void
locks_init(struct ver *v)
{
    rt_mutex_init(&v->wait_lock, RT_RANK_WAIT, 0);
    rt_mutex_init(&v->commit_lock, RT_RANK_VER_COMMIT, 0);
    rt_mutex_init(&v->trim_lock, RT_RANK_VER_COMMIT, 1);
    rt_mutex_init(&v->queue_lock, RT_RANK_VER_TXN, 0);
    rt_mutex_init(&v->guard_lock, RT_RANK_VER_TXN, 1);
    rt_mutex_init(&v->ghost_lock, RT_RANK_VER_TXN, 2);
    for (unsigned i = 0; i < VER_WAIT_CONDS; i++)
        rt_cond_init(&v->wait_conds[i]);
    for (unsigned i = 0; i < VER_SHARDS; i++)
        rt_mutex_init(&v->shards[i].lock, RT_RANK_VER_SHARD, i);
}

static void
locks_fini(struct ver *v)
{
    rt_mutex_fini(&v->wait_lock);
    rt_mutex_fini(&v->commit_lock);
    rt_mutex_fini(&v->trim_lock);
    rt_mutex_fini(&v->queue_lock);
    rt_mutex_fini(&v->guard_lock);
    rt_mutex_fini(&v->ghost_lock);
    for (unsigned i = 0; i < VER_WAIT_CONDS; i++)
        rt_cond_fini(&v->wait_conds[i]);
    for (unsigned i = 0; i < VER_SHARDS; i++)
        rt_mutex_fini(&v->shards[i].lock);
}

static void
memory_free(struct ver *v)
{
    for (unsigned i = 0; v->shards != NULL && i < VER_SHARDS; i++)
        free(v->shards[i].buckets);
    ch_free_aligned(v->shards);
    ch_free_aligned(v->slots);
    ver_memory_free(v);
    free(v->slot_bits);
    free(v->snaps);
    free(v->spare);
    free(v->ghosts);
    ch_free_aligned(v);
}

static bool
slots_alloc(struct ver *v)
{
    unsigned slots;

    v->slot_words = (unsigned)ch_div_up(v->cfg.slots_max, 64);
    slots = v->slot_words * 64;
    v->slots = ch_alloc_aligned(slots * sizeof(*v->slots));
    v->slot_bits = calloc(v->slot_words, sizeof(*v->slot_bits));
    v->snaps = calloc(slots, sizeof(*v->snaps));
    return v->slots != NULL && v->slot_bits != NULL && v->snaps != NULL;
}

static bool
memory_alloc(struct ver *v)
{
    v->shards = ch_alloc_aligned(VER_SHARDS * sizeof(*v->shards));
    v->ghosts = malloc(VER_GHOST_BYTES);
    if (!slots_alloc(v) || v->shards == NULL || v->ghosts == NULL)
        return false;
    for (unsigned i = 0; i < VER_SHARDS; i++) {
        v->shards[i].buckets = calloc(VER_BUCKETS_MIN, sizeof(struct ver_entry *));
        atomic_init(&v->shards[i].mask, VER_BUCKETS_MIN - 1);
        if (v->shards[i].buckets == NULL)
            return false;
    }
    return true;
}

static void
slots_init(struct ver *v)
{
    for (unsigned i = 0; i < v->slot_words * 64; i++) {
        atomic_init(&v->slots[i].snap, VER_SNAP_NONE);
        atomic_init(&v->slots[i].first, VER_FIRST_NONE);
        if (i >= v->cfg.slots_max) /* never free */
            atomic_fetch_or_explicit(&v->slot_bits[i / 64], UINT64_C(1) << i % 64,
                                     memory_order_relaxed);
    }
}

int
ver_create(const struct ver_config *cfg, struct ver **out)
{
    struct ver *v;

    CH_ASSERT(cfg->slots_max > 0);
    v = ch_alloc_aligned(sizeof(*v));
    if (v == NULL)
        return CH_FAIL(COHORT_ENOMEM, "version store");
    v->cfg = *cfg;
    v->hash_seed = rt_random();
    if (!memory_alloc(v)) {
        memory_free(v);
        return CH_FAIL(COHORT_ENOMEM, "version store for %u transactions", cfg->slots_max);
    }
    slots_init(v);
    locks_init(v);
    atomic_init(&v->horizon, cfg->horizon);
    atomic_init(&v->bound, cfg->horizon);
    atomic_init(&v->next_id, cfg->next_id);
    v->durable = cfg->horizon;
    atomic_init(&v->table_bytes, VER_SHARDS * VER_BUCKETS_MIN * sizeof(struct ver_entry *));
    *out = v;
    return 0;
}

int
ver_slots_raise(struct ver *v, unsigned n)
{
    unsigned old_max = v->cfg.slots_max, old_words = v->slot_words;
    struct ver_slot *old_slots = v->slots;
    _Atomic uint64_t *old_bits = v->slot_bits;
    lsn_t *old_snaps = v->snaps;
    uint32_t slot;

    CH_ASSERT(n >= v->cfg.slots_max && !ver_slot_next(v, 0, &slot));
    CH_ASSERT(v->snap_count == 0);
    v->cfg.slots_max = n;
    if (!slots_alloc(v)) {
        ch_free_aligned(v->slots);
        free(v->slot_bits);
        free(v->snaps);
        v->cfg.slots_max = old_max;
        v->slot_words = old_words;
        v->slots = old_slots;
        v->slot_bits = old_bits;
        v->snaps = old_snaps;
        return CH_FAIL(COHORT_ENOMEM, "version store for %u transactions", n);
    }
    ch_free_aligned(old_slots);
    free(old_bits);
    free(old_snaps);
    slots_init(v);
    return 0;
}

static void
txn_destroy(struct ver *v, struct ver_txn *w)
{
    struct ver_entry *newer;

    for (struct ver_entry *e = ver_oldest(w); e != NULL; e = newer) {
        newer = ver_newer(e);
        ver_entry_free(v, e);
    }
    ver_txn_free(v, w);
}

void
ver_destroy(struct ver *v)
{
    struct ver_txn *next;

    if (v == NULL)
        return;
    for (struct ver_txn *w = v->head; w != NULL; w = next) {
        next = w->next;
        txn_destroy(v, w);
    }
    for (struct ver_txn *w = v->cleanup; w != NULL; w = next) {
        next = w->next;
        ver_txn_free(v, w);
    }
    for (unsigned i = 0; i < v->cfg.slots_max; i++) {
        if (v->slots[i].live != NULL)
            txn_destroy(v, v->slots[i].live);
    }
    while (v->guards != NULL)
        ver_unguard(v, v->guards->id);
    locks_fini(v);
    memory_free(v);
}

uint64_t
ver_new_id(struct ver *v)
{
    return atomic_fetch_add_explicit(&v->next_id, 1, memory_order_relaxed);
}

uint64_t
ver_next_id(const struct ver *v)
{
    return atomic_load_explicit(&v->next_id, memory_order_relaxed);
}

void
ver_raise_id(struct ver *v, uint64_t id)
{
    uint64_t next = atomic_load_explicit(&v->next_id, memory_order_relaxed);

    while (next <= id &&
           !atomic_compare_exchange_weak_explicit(&v->next_id, &next, id + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void
ver_recovered(struct ver *v, lsn_t horizon)
{
    rt_lock(&v->queue_lock);
    CH_ASSERT(v->head == NULL);
    CH_ASSERT(horizon >= atomic_load_explicit(&v->horizon, memory_order_relaxed));
    v->durable = ch_max_u64(v->durable, horizon);
    atomic_store_explicit(&v->horizon, horizon, memory_order_release); /* partner: view.c */
    rt_unlock(&v->queue_lock);
}

/* ---- descriptors --------------------------------------------------------------------------------- */

int
ver_txn_create(struct ver *v, uint64_t id, void *tag, uint32_t slot, lsn_t first,
               struct ver_txn **out)
{
    uint8_t class;
    struct ver_txn *w = ver_memory_get(v, sizeof(*w), &class);

    if (w == NULL)
        return CH_FAIL(COHORT_ENOMEM, "transaction %" PRIu64, id);
    *w = (struct ver_txn){.id = id, .tag = tag, .slot = slot, .first = first, .class = class};
    if (slot != VER_NO_SLOT) {
        struct ver_slot *s = &v->slots[slot];

        CH_ASSERT(s->live == NULL && id != 0);
        s->live = w;
        /* The count first: who finds it zero would not look for `first` (W1). */
        if (atomic_load_explicit(&s->first, memory_order_relaxed) == VER_FIRST_NONE) {
            atomic_fetch_add_explicit(&v->registered, 1, memory_order_acq_rel);
            atomic_store_explicit(&s->first, first, memory_order_release);
        }
        atomic_store_explicit(&s->writer, id, memory_order_seq_cst);
    }
    *out = w;
    return 0;
}

void
ver_txn_discard(struct ver *v, struct ver_txn *w)
{
    CH_ASSERT(w->newest == NULL);
    ver_freed_end(v, w);
    if (w->slot != VER_NO_SLOT) {
        v->slots[w->slot].live = NULL;
        ver_ended(v, w->slot, w->id);
    }
    ver_txn_free(v, w);
}

uint64_t
ver_txn_id(const struct ver_txn *w)
{
    return w->id;
}

lsn_t
ver_txn_first(const struct ver_txn *w)
{
    return w->first;
}

void
ver_savepoint(struct ver_txn *w)
{
    w->savepoint = w->seq;
}

uint64_t
ver_txn_seq(const struct ver_txn *w)
{
    return w->seq;
}

/* ---- room for undo --------------------------------------------------------------------------------- */

void
ver_note_sizes(struct ver *v, struct ver_txn *w, size_t before, size_t after)
{
    if (after < before && w != NULL) {
        w->freed += before - after;
        atomic_fetch_add_explicit(&v->freed, before - after, memory_order_relaxed);
    } else if (after > before && atomic_load_explicit(&v->freed, memory_order_relaxed) > 0) {
        atomic_fetch_add_explicit(&v->grown, after - before, memory_order_relaxed);
    }
}

void
ver_freed_end(struct ver *v, struct ver_txn *w)
{
    if (w->freed == 0)
        return;
    if (atomic_fetch_sub_explicit(&v->freed, w->freed, memory_order_relaxed) == w->freed)
        atomic_store_explicit(&v->grown, 0, memory_order_relaxed);
    w->freed = 0;
}

uint64_t
ver_undo_bytes(const struct ver *v)
{
    return ch_min_u64(atomic_load_explicit(&v->freed, memory_order_relaxed),
                      atomic_load_explicit(&v->grown, memory_order_relaxed));
}

/* ---- a writer's entries ---------------------------------------------------------------------------- */

struct ver_entry *
ver_newest(struct ver_txn *w)
{
    return w->newest;
}

struct ver_entry *
ver_oldest_unspilled(struct ver_txn *w)
{
    struct ver_entry *e = w->last_spilled != NULL ? ver_newer(w->last_spilled) : ver_oldest(w);

    for (; e != NULL && e->spilled; e = ver_newer(e))
        w->last_spilled = e;
    return e;
}

struct ver_entry *
ver_newer(struct ver_entry *e)
{
    return atomic_load_explicit(&e->newer, memory_order_acquire);
}

void
ver_entry_info(const struct ver_entry *e, struct ver_undo *out)
{
    *out = (struct ver_undo){
        .seq = e->seq,
        .lsn = e->lsn,
        .tree = e->tree,
        .kind = (enum ver_kind)e->kind,
        .flags = e->flags,
        .spilled = e->spilled,
        .key_bytes = e->key_bytes,
        .before_bytes = e->before_bytes,
        .key = e->key,
        .before = e->before,
    };
}

/* ---- counts ---------------------------------------------------------------------------------------- */

static uint64_t
count_of(const _Atomic uint64_t *n)
{
    return atomic_load_explicit(n, memory_order_relaxed);
}

uint64_t
ver_unspilled_bytes(const struct ver *v)
{
    return count_of(&v->unspilled);
}

uint64_t
ver_txn_unspilled_bytes(const struct ver_txn *w)
{
    return count_of(&w->unspilled);
}

void
ver_counts(struct ver *v, struct ver_counts *out)
{
    uint64_t views = 0, entries = 0;

    for (uint32_t slot, i = 0; ver_slot_next(v, i, &slot); i = slot + 1)
        views++;
    for (unsigned i = 0; i < VER_SHARDS; i++)
        entries += atomic_load_explicit(&v->shards[i].entries, memory_order_relaxed);
    *out = (struct ver_counts){
        .bytes = count_of(&v->bytes),
        .entries = entries,
        .views = views,
        .writers = count_of(&v->registered),
        .conflicts = count_of(&v->conflicts),
        .deadlocks = count_of(&v->deadlocks),
        .waits = count_of(&v->waits),
        .timeouts = count_of(&v->timeouts),
        .killed = count_of(&v->killed),
    };
}

size_t
ver_memory(const struct ver *v)
{
    size_t slot = sizeof(struct ver_slot) + sizeof(lsn_t);

    return sizeof(*v) + VER_SHARDS * sizeof(struct ver_shard) + v->slot_words * 64 * slot +
           VER_GHOST_BYTES + count_of(&v->table_bytes) + ver_memory_kept(v);
}
