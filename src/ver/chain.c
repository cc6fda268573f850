/* chain.c - chains of versions: the hash table, reading, the rules of writing, push and pop.
 *
 * Each shard is a hash table of its own whose buckets list the tops of chains. Keys are compared in full.
 *
 * Invariants (all under the shard lock):
 *   C1  entries of a live writer are on top of all others of the chain: they are the record's write lock.
 *   C2  down a chain commit LSNs descend, or stay equal within a writer; seq descends within a writer.
 *   C3  what the leaf holds is the state after the newest entry; an entry's image is the state before it, after
 *       the next older one. Entries of kind LOCK change nothing: reading and conflicts pass over them.
 *   C4  an entry leaves the middle or the bottom of its chain only when no view reads its image (trim.c),
 *       so the chain still answers every view.
 *   C5  `deletes` of the newest entry that is no LOCK, or of a LOCK above it: the leaf holds a ghost.
 *       It is handed on when that entry is removed, so that the last one out reports the ghost.
 *   C6  a linked entry's writer is not freed: descriptors go after their entries.
 *   C7  `chains` counts a chain while it is there. So who holds the latch of a record's leaf and finds no chain in its
 *       shard need not lock it: the record has none, as it would have been linked under that latch. What was done
 *       before the last chain went (a view killed, an entry undone) is seen then: released with the count, acquired here.
 *
 * Tables grow and shrink outside the hot path: the new array is allocated without the lock. Failing to
 * get one costs speed only.
 */
#include "base/bug.h"
#include "ver/ver_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t
ver_hash(const struct ver *v, struct ver_key key)
{
    return XXH3_64bits_withSeed(key.data, key.bytes, v->hash_seed + key.tree);
}

static struct ver_shard *
shard_of(struct ver *v, uint64_t hash)
{
    return &v->shards[hash % VER_SHARDS];
}

/* C7 */
static bool
is_empty(const struct ver_shard *s)
{
    return atomic_load_explicit(&s->chains, memory_order_acquire) == 0;
}

/* Where the pointer to the chain of `key` is, or would be. Lock held. */
static struct ver_entry **
chain_find(struct ver_shard *s, uint64_t hash, struct ver_key key)
{
    size_t mask = atomic_load_explicit(&s->mask, memory_order_relaxed);
    struct ver_entry **at = &s->buckets[hash / VER_SHARDS & mask];

    for (; *at != NULL; at = &(*at)->chain_next) {
        const struct ver_entry *e = *at;

        if (e->hash == hash && e->tree == key.tree && e->key_bytes == key.bytes &&
            (key.bytes == 0 || memcmp(e->key, key.data, key.bytes) == 0))
            break;
    }
    return at;
}

/* ---- table sizes ------------------------------------------------------------------------------- */

static size_t
buckets_wanted(const struct ver_shard *s)
{
    size_t chains = atomic_load_explicit(&s->chains, memory_order_relaxed);
    size_t now = atomic_load_explicit(&s->mask, memory_order_relaxed) + 1;

    if (chains > now)
        return now * 2;
    if (now > VER_BUCKETS_MIN && chains < now / 8)
        return now / 2;
    return now;
}

static void
rehash(struct ver_shard *s, struct ver_entry **to, size_t buckets)
{
    size_t old = atomic_load_explicit(&s->mask, memory_order_relaxed) + 1;

    for (size_t i = 0; i < old; i++) {
        struct ver_entry *next;

        for (struct ver_entry *e = s->buckets[i]; e != NULL; e = next) {
            struct ver_entry **at = &to[e->hash / VER_SHARDS & (buckets - 1)];

            next = e->chain_next;
            e->chain_next = *at;
            *at = e;
        }
    }
    s->buckets = to;
    atomic_store_explicit(&s->mask, buckets - 1, memory_order_relaxed);
}

static void
table_resize(struct ver *v, struct ver_shard *s)
{
    size_t want = buckets_wanted(s);
    struct ver_entry **spare;

    if (CH_LIKELY(want == atomic_load_explicit(&s->mask, memory_order_relaxed) + 1))
        return;
    spare = calloc(want, sizeof(struct ver_entry *));
    if (spare == NULL)
        return; /* longer lists until the next try */
    rt_lock(&s->lock);
    if (want == buckets_wanted(s)) {
        struct ver_entry **old = s->buckets;
        size_t was = atomic_load_explicit(&s->mask, memory_order_relaxed) + 1;

        rehash(s, spare, want);
        spare = old;
        if (want > was)
            atomic_fetch_add_explicit(&v->table_bytes, (want - was) * sizeof(struct ver_entry *),
                                      memory_order_relaxed);
        else
            atomic_fetch_sub_explicit(&v->table_bytes, (was - want) * sizeof(struct ver_entry *),
                                      memory_order_relaxed);
    }
    rt_unlock(&s->lock);
    free(spare);
}

/* ---- links; shard lock held ---------------------------------------------------------------------- */

static void
count_under_lock(_Atomic size_t *n, int by, memory_order order)
{
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + (size_t)by, order);
}

static void
link_top(struct ver_shard *s, struct ver_entry *e)
{
    struct ver_entry **at = chain_find(s, e->hash, ver_entry_key(e));
    struct ver_entry *top = *at;

    CH_ASSERT(top == NULL || top->writer == e->writer || ver_committed(top->writer) != 0); /* C1 */
    e->above = NULL;
    e->below = top;
    e->lowest = top == NULL;
    if (top != NULL) {
        e->chain_next = top->chain_next;
        top->chain_next = NULL;
        top->above = e;
    } else {
        e->chain_next = NULL;
        count_under_lock(&s->chains, 1, memory_order_relaxed);
    }
    *at = e;
    count_under_lock(&s->entries, 1, memory_order_relaxed);
}

/* True: the chain is gone with it. */
static bool
unlink_entry(struct ver_shard *s, struct ver_entry *e)
{
    struct ver_entry **at;

    count_under_lock(&s->entries, -1, memory_order_relaxed);
    if (e->below != NULL)
        e->below->above = e->above;
    if (e->above != NULL) {
        e->above->below = e->below;
        return false;
    }
    at = chain_find(s, e->hash, ver_entry_key(e));
    CH_ASSERT(*at == e);
    if (e->below != NULL) {
        e->below->chain_next = e->chain_next;
        *at = e->below;
        return false;
    }
    *at = e->chain_next;
    count_under_lock(&s->chains, -1, memory_order_release); /* C7 */
    return true;
}

/* Hands `deletes` on before the entry is unlinked, the leaf's state staying as it is (C5). */
static void
hand_on_ghost(struct ver_entry *e)
{
    if (e->above != NULL && e->above->kind == VER_WAS_LOCK)
        e->above->deletes = e->above->deletes || e->deletes;
    else if (e->above == NULL && e->below != NULL && e->kind != VER_WAS_LOCK)
        e->below->deletes = e->deletes;
    else if (e->above == NULL && e->below != NULL)
        e->below->deletes = e->below->deletes || e->deletes;
}

/* ---- entries --------------------------------------------------------------------------------------- */

static size_t
entry_bytes(const struct ver_entry *e)
{
    enum {
        MALLOC_BYTES = 16 /* what an allocation costs besides, about */
    };
    size_t bytes = sizeof(*e) + MALLOC_BYTES + e->key_bytes;

    if (e->apart)
        bytes += MALLOC_BYTES;
    return bytes + (e->apart || e->before != NULL ? e->before_bytes : 0);
}

static uint64_t
unspilled_bytes(const struct ver_entry *e)
{
    return (uint64_t)e->key_bytes + e->before_bytes;
}

/* Of a count `is` of a writer, the store has `told`: what it is to be told now, modulo 2^64; 0 = nothing. */
static uint64_t
news(const _Atomic uint64_t *is, _Atomic uint64_t *told, uint64_t lag)
{
    uint64_t was = atomic_load_explicit(told, memory_order_relaxed);

    for (;;) {
        uint64_t now = atomic_load_explicit(is, memory_order_relaxed);

        if (now >= was && now - was <= lag)
            return 0;
        if (atomic_compare_exchange_weak_explicit(told, &was, now, memory_order_relaxed,
                                                  memory_order_relaxed))
            return now - was;
    }
}

void
ver_tell_bytes(struct ver *v, struct ver_txn *w, uint64_t lag)
{
    uint64_t more = news(&w->bytes, &w->told_bytes, lag);

    if (more == 0)
        return;
    atomic_fetch_add_explicit(&v->bytes, more, memory_order_relaxed);
    if (ver_committed(w) == 0)
        atomic_fetch_add_explicit(&v->live_bytes, more, memory_order_relaxed);
}

static void
tell_unspilled(struct ver *v, struct ver_txn *w)
{
    uint64_t more = news(&w->unspilled, &w->told_unspilled, VER_LAG_MAX);

    if (more != 0)
        atomic_fetch_add_explicit(&v->unspilled, more, memory_order_relaxed);
}

static void
count_bytes(struct ver *v, struct ver_txn *w, size_t bytes)
{
    atomic_fetch_add_explicit(&w->bytes, bytes, memory_order_relaxed);
    ver_tell_bytes(v, w, VER_LAG_MAX);
}

static void
uncount_bytes(struct ver *v, struct ver_txn *w, size_t bytes)
{
    atomic_fetch_sub_explicit(&w->bytes, bytes, memory_order_relaxed);
    ver_tell_bytes(v, w, VER_LAG_MAX);
}

/* A writer's unspilled bytes count as long as it is live; ver_commit_end() takes them off the store's. */
static void
uncount_unspilled(struct ver *v, struct ver_txn *w, const struct ver_entry *e)
{
    if (e->spilled || ver_committed(w) != 0)
        return;
    atomic_fetch_sub_explicit(&w->unspilled, unspilled_bytes(e), memory_order_relaxed);
    tell_unspilled(v, w);
}

/* An entry with its key, no image; its memory is not counted yet. NULL: no memory. */
static struct ver_entry *
entry_alloc(struct ver *v, struct ver_txn *w, struct ver_key key, enum ver_kind kind,
            size_t inline_bytes)
{
    uint8_t class;
    struct ver_entry *e = ver_memory_get(v, sizeof(*e) + key.bytes + inline_bytes, &class);

    CH_ASSERT(key.bytes <= COHORT_KEY_MAX);
    if (e == NULL)
        return NULL;
    memset(e, 0, sizeof(*e));
    e->class = class;
    e->writer = w;
    e->tree = key.tree;
    e->kind = (uint8_t)kind;
    e->key_bytes = (uint16_t)key.bytes;
    if (key.bytes > 0)
        memcpy(e->key, key.data, key.bytes);
    e->hash = ver_hash(v, key);
    return e;
}

struct ver_entry *
ver_entry_create(struct ver *v, struct ver_txn *w, struct ver_key key, enum ver_kind kind,
                 uint8_t flags, const void *before, size_t before_bytes)
{
    bool apart = before_bytes > VER_INLINE_MAX;
    struct ver_entry *e = entry_alloc(v, w, key, kind, apart ? 0 : before_bytes);

    CH_ASSERT(before_bytes <= VER_VALUE_MAX && (kind == VER_WAS_VALUE || before_bytes == 0));
    if (e == NULL)
        return NULL;
    e->before = apart ? malloc(before_bytes) : e->key + key.bytes;
    if (e->before == NULL) {
        ver_memory_put(v, e, e->class);
        return NULL;
    }
    if (before_bytes > 0)
        memcpy(e->before, before, before_bytes);
    e->apart = apart;
    e->before_bytes = (uint16_t)before_bytes;
    e->flags = flags;
    e->seq = ++w->seq;
    count_bytes(v, w, entry_bytes(e));
    atomic_fetch_add_explicit(&w->unspilled, unspilled_bytes(e), memory_order_relaxed);
    tell_unspilled(v, w);
    table_resize(v, shard_of(v, e->hash));
    return e;
}

static void
entry_memory_free(struct ver *v, struct ver_entry *e)
{
    if (e->apart)
        free(e->before);
    if (!e->within)
        ver_memory_put(v, e, e->class);
}

void
ver_entry_free(struct ver *v, struct ver_entry *e)
{
    uncount_unspilled(v, e->writer, e);
    uncount_bytes(v, e->writer, entry_bytes(e));
    entry_memory_free(v, e);
}

enum {
    WHOLE_BYTES = sizeof(uint32_t),
};

int
ver_txn_whole(struct ver *v, struct ver_txn *w, uint32_t tree)
{
    /* The first one also counts the descriptor, which others than views may keep alone. */
    size_t bytes = WHOLE_BYTES + (w->whole_count == 0 ? sizeof(*w) : 0);
    uint32_t *grown = realloc(w->wholes, (w->whole_count + 1) * sizeof(*grown));

    CH_ASSERT(ver_committed(w) == 0);
    if (grown == NULL)
        return CH_FAIL(COHORT_ENOMEM, "transaction %" PRIu64 ": note of tree %" PRIu32, w->id,
                       tree);
    w->wholes = grown;
    w->wholes[w->whole_count++] = tree;
    count_bytes(v, w, bytes);
    return 0;
}

void
ver_txn_free(struct ver *v, struct ver_txn *w)
{
    if (w->whole_count > 0)
        uncount_bytes(v, w, sizeof(*w) + w->whole_count * WHOLE_BYTES);
    CH_ASSERT(atomic_load_explicit(&w->bytes, memory_order_relaxed) == 0);
    free(w->wholes);
    ver_memory_put(v, w, w->class);
}

void
ver_entry_discard(struct ver *v, struct ver_entry *e)
{
    ver_entry_free(v, e);
}

uint64_t
ver_entry_seq(const struct ver_entry *e)
{
    return e->seq;
}

static void
list_append(struct ver_txn *w, struct ver_entry *e)
{
    CH_ASSERT(w->newest == NULL || w->newest->seq < e->seq);
    e->older = w->newest;
    atomic_store_explicit(&e->newer, NULL, memory_order_relaxed);
    if (w->newest != NULL)
        atomic_store_explicit(&w->newest->newer, e, memory_order_release);
    else
        atomic_store_explicit(&w->oldest, e, memory_order_release);
    w->newest = e;
    w->count++;
}

void
ver_list_unlink(struct ver_txn *w, struct ver_entry *e)
{
    struct ver_entry *newer = ver_newer(e);

    if (e->older != NULL)
        atomic_store_explicit(&e->older->newer, newer, memory_order_release);
    else
        atomic_store_explicit(&w->oldest, newer, memory_order_release);
    if (newer != NULL)
        newer->older = e->older;
    else
        w->newest = e->older;
    if (w->last_spilled == e)
        w->last_spilled = e->older;
    w->count--;
}

void
ver_entry_push(struct ver *v, struct ver_entry *e, lsn_t lsn, bool deletes)
{
    struct ver_shard *s = shard_of(v, e->hash);

    CH_ASSERT(ver_committed(e->writer) == 0);
    e->lsn = lsn;
    e->deletes =
        deletes; /* C5: what is true of a LOCK's leaf holds until it is popped or removed */
    list_append(e->writer, e);
    rt_lock(&s->lock);
    link_top(s, e);
    rt_unlock(&s->lock);
}

void
ver_entry_pop(struct ver *v, struct ver_entry *e)
{
    struct ver_shard *s = shard_of(v, e->hash);
    bool gone, ghost;

    CH_ASSERT(e->writer->newest == e && ver_committed(e->writer) == 0);
    rt_lock(&s->lock);
    CH_ASSERT(e->above == NULL); /* C1 */
    if (e->kind == VER_WAS_LOCK)
        hand_on_ghost(e);
    else if (e->below != NULL && e->kind == VER_WAS_ABSENT)
        e->below->deletes = true; /* the leaf has a ghost again: C5 for a LOCK below */
    ghost = e->kind == VER_WAS_ABSENT || (e->kind == VER_WAS_LOCK && e->deletes);
    /* Before the chain changes, so that who finds it changed finds the count changed: ver_pops(). */
    atomic_fetch_add_explicit(&v->pops, 1, memory_order_release);
    gone = unlink_entry(s, e);
    rt_unlock(&s->lock);
    if (gone && ghost)
        ver_ghost_add(v, e->tree, e->key, e->key_bytes);
    ver_list_unlink(e->writer, e);
    ver_entry_free(v, e);
    table_resize(v, s);
}

/* Unlinked from its chain, which is `gone` with it or not: leaves its writer's list, too, and is freed. */
static void
entry_leave(struct ver *v, struct ver_entry *e, bool gone)
{
    struct ver_shard *s = shard_of(v, e->hash);

    if (gone && e->deletes)
        ver_ghost_add(v, e->tree, e->key, e->key_bytes);
    ver_list_unlink(e->writer, e);
    ver_entry_free(v, e);
    table_resize(v, s);
}

void
ver_entry_remove(struct ver *v, struct ver_entry *e)
{
    struct ver_shard *s = shard_of(v, e->hash);
    bool gone;

    rt_lock(&s->lock);
    hand_on_ghost(e);
    gone = unlink_entry(s, e);
    rt_unlock(&s->lock);
    entry_leave(v, e, gone);
}

int
ver_entry_restore(struct ver *v, struct ver_txn *w, struct ver_key key, enum ver_kind kind,
                  uint64_t seq)
{
    struct ver_entry *e = entry_alloc(v, w, key, kind, 0);

    if (e == NULL)
        return CH_FAIL(COHORT_ENOMEM, "transaction %" PRIu64 ": a record lock", w->id);
    CH_ASSERT(seq > w->seq);
    w->seq = seq;
    w->spilled = true;
    e->seq = seq;
    e->spilled = true;
    e->dropped = true;
    count_bytes(v, w, entry_bytes(e));
    table_resize(v, shard_of(v, e->hash));
    /* Whether the leaf holds a ghost is not known here; a false hint does no harm. */
    ver_entry_push(v, e, w->first, true);
    return 0;
}

void
ver_entry_spilled(struct ver *v, struct ver_entry *e, bool drop)
{
    struct ver_shard *s = shard_of(v, e->hash);
    struct ver_txn *w = e->writer;
    uint8_t *image = NULL;

    uncount_unspilled(v, w, e);
    w->spilled = true;
    rt_lock(&s->lock);
    e->spilled = true;
    if (drop && e->apart) {
        uncount_bytes(v, w, entry_bytes(e));
        image = e->before;
        e->before = NULL;
        e->apart = false;
        e->dropped = true;
        count_bytes(v, w, entry_bytes(e));
    }
    rt_unlock(&s->lock);
    free(image);
}

/* ---- commits that are visible at once ---------------------------------------------------------------- */

/* Whether one of the views below a commit reads what it replaced; `under`: what lay under it in its chain. The youngest of the
 * views is `snap`: so if it does not see the change before, none does. Shard lock held. */
static bool
is_read(const struct ver_entry *under, bool below, lsn_t snap)
{
    while (under != NULL && under->kind == VER_WAS_LOCK)
        under = under->below;
    return below && (under == NULL || ver_committed(under->writer) <= snap) &&
           !CH_BUG(R15_PRUNES_NEEDED);
}

void
ver_settle(struct ver *v, struct ver_txn *w, bool below, lsn_t snap)
{
    struct ver_entry *newer;

    for (struct ver_entry *e = ver_oldest(w); e != NULL; e = newer) {
        struct ver_shard *s = shard_of(v, e->hash);
        bool gone = false, needed;

        newer = ver_newer(e);
        if (e->lowest && e->kind != VER_WAS_LOCK && is_read(NULL, below, snap))
            continue;
        rt_lock(&s->lock);
        needed = e->kind != VER_WAS_LOCK && is_read(e->below, below, snap);
        if (!needed) {
            hand_on_ghost(e);
            gone = unlink_entry(s, e);
        }
        rt_unlock(&s->lock);
        if (needed)
            continue;
        entry_leave(v, e, gone);
    }
}

static size_t
own_header_bytes(void)
{
    return ch_round_up(sizeof(struct ver_txn), _Alignof(struct ver_entry));
}

size_t
ver_own_bytes(const struct ver_own *own)
{
    return own_header_bytes() + sizeof(struct ver_entry) + own->key.bytes + own->before_bytes;
}

struct ver_txn *
ver_own_make(struct ver *v, void *memory, const struct ver_own *own, uint64_t hash, lsn_t lsn)
{
    struct ver_txn *w = memory;
    struct ver_entry *e = (void *)((uint8_t *)memory + own_header_bytes());

    CH_ASSERT(own->key.bytes <= COHORT_KEY_MAX && own->before_bytes <= VER_VALUE_MAX);
    *w = (struct ver_txn){.slot = VER_NO_SLOT, .first = lsn, .seq = 1};
    atomic_store_explicit(&w->commit, lsn, memory_order_relaxed);
    *e = (struct ver_entry){
        .writer = w,
        .hash = hash,
        .seq = 1,
        .lsn = lsn,
        .before = e->key + own->key.bytes,
        .tree = own->key.tree,
        .key_bytes = (uint16_t)own->key.bytes,
        .before_bytes = (uint16_t)own->before_bytes,
        .kind = (uint8_t)own->kind,
        .flags = own->flags,
        .within = true,
        .deletes = own->deletes,
    };
    if (own->key.bytes > 0)
        memcpy(e->key, own->key.data, own->key.bytes);
    if (own->before_bytes > 0)
        memcpy(e->before, own->before, own->before_bytes);
    atomic_store_explicit(&w->bytes, entry_bytes(e), memory_order_relaxed);
    ver_tell_bytes(v, w, 0);
    list_append(w, e);
    return w;
}

void
ver_own_push(struct ver *v, struct ver_txn *w)
{
    struct ver_entry *e = w->newest;
    struct ver_shard *s = shard_of(v, e->hash);

    table_resize(v, s);
    rt_lock(&s->lock);
    link_top(s, e);
    rt_unlock(&s->lock);
}

bool
ver_own_needed(struct ver *v, const struct ver_own *own, uint64_t hash, bool below, lsn_t snap)
{
    struct ver_shard *s = shard_of(v, hash);
    struct ver_entry *top = NULL;
    bool needed = below;

    if (!is_empty(s)) {
        rt_lock(&s->lock);
        top = *chain_find(s, hash, own->key);
        needed = is_read(top, below, snap);
        if (!needed && top != NULL)
            top->deletes = own->deletes; /* C5, as if an entry had been there and handed it on */
        rt_unlock(&s->lock);
    }
    if (!needed && top == NULL && own->deletes)
        ver_ghost_add(v, own->key.tree, own->key.data, own->key.bytes);
    return needed;
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* `horizon`: of the view, or the newest. Shard lock held. */
static bool
visible(const struct ver_entry *e, const struct ver_view *view, lsn_t horizon)
{
    lsn_t commit = ver_committed(e->writer);

    return (commit != 0 && commit <= horizon) || (view != NULL && e->writer == view->self);
}

/* Shard lock held. */
static void
found_before(const struct ver_entry *e, struct ver_found *out)
{
    out->flags = e->flags;
    out->bytes = e->before_bytes;
    out->txn = e->writer->id;
    out->seq = e->seq;
    if (e->kind == VER_WAS_ABSENT) {
        out->how = VER_ABSENT;
    } else if (e->dropped) {
        out->how = VER_SPILLED;
    } else {
        out->how = VER_VALUE;
        memcpy(out->data, e->before, e->before_bytes);
    }
}

void
ver_read(struct ver *v, const struct ver_view *view, struct ver_key key, struct ver_found *out)
{
    uint64_t hash = ver_hash(v, key);
    struct ver_shard *s = shard_of(v, hash);
    const struct ver_entry *found = NULL;
    lsn_t horizon;

    if (is_empty(s)) { /* C7 */
        out->how = view != NULL && ver_view_dead(v, view) && !CH_BUG(R15_DEAD_READS) ? VER_TOO_OLD
                                                                                     : VER_CURRENT;
        return;
    }
    rt_lock(&s->lock);
    horizon = view != NULL ? view->horizon : ver_horizon(v);
    for (const struct ver_entry *e = *chain_find(s, hash, key); e != NULL; e = e->below) {
        if (visible(e, view, horizon))
            break;
        if (e->kind != VER_WAS_LOCK) /* C3 */
            found = e;
    }
    if (view != NULL && ver_view_dead(v, view) && !CH_BUG(R15_DEAD_READS)) /* W7 */
        out->how = VER_TOO_OLD;
    else if (found == NULL)
        out->how = VER_CURRENT;
    else
        found_before(found, out);
    rt_unlock(&s->lock);
}

bool
ver_has(struct ver *v, struct ver_key key)
{
    uint64_t hash = ver_hash(v, key);
    struct ver_shard *s = shard_of(v, hash);
    bool has;

    rt_lock(&s->lock);
    has = *chain_find(s, hash, key) != NULL;
    rt_unlock(&s->lock);
    return has;
}

/* The newest entry of the chain that is no LOCK. */
static const struct ver_entry *
newest_change(const struct ver_entry *e)
{
    while (e != NULL && e->kind == VER_WAS_LOCK)
        e = e->below;
    return e;
}

lsn_t
ver_invisible(struct ver *v, struct ver_key key)
{
    uint64_t hash = ver_hash(v, key);
    struct ver_shard *s = shard_of(v, hash);
    const struct ver_entry *change;
    lsn_t commit = 0;

    rt_lock(&s->lock);
    change = newest_change(*chain_find(s, hash, key));
    if (change != NULL)
        commit = ver_committed(change->writer);
    rt_unlock(&s->lock);
    return commit > ver_horizon(v) ? commit : 0;
}

uint64_t
ver_pops(const struct ver *v)
{
    return atomic_load_explicit(&v->pops, memory_order_acquire);
}

/* ---- writing --------------------------------------------------------------------------------------- */

int
ver_may_write(struct ver *v, struct ver_txn *w, const struct ver_view *view, struct ver_key key,
              struct ver_owner *owner, bool *again)
{
    uint64_t hash = ver_hash(v, key);
    struct ver_shard *s = shard_of(v, hash);
    const struct ver_entry *top, *change;
    int rc = 0;

    owner->id = 0;
    *again = false;
    if (is_empty(s) && (view == NULL || !ver_view_dead(v, view))) /* C7 */
        return 0;
    rt_lock(&s->lock);
    top = *chain_find(s, hash, key);
    change = newest_change(top);
    if (view != NULL && ver_view_dead(v, view)) {
        rc = COHORT_SNAPSHOT_TOO_OLD;
    } else if (top == NULL) {
        rc = 0;
    } else if (w != NULL && top->writer == w) {
        *again = change != NULL && change->writer == w && change->seq > w->savepoint;
    } else if (ver_committed(top->writer) == 0) {
        ver_owner_set(v, top->writer, owner);
        rc = COHORT_ERETRY;
    } else if (view != NULL && change != NULL && !CH_BUG(NO_CONFLICT) &&
               ver_committed(change->writer) > view->horizon) {
        rc = COHORT_CONFLICT;
    }
    rt_unlock(&s->lock);
    if (rc == COHORT_SNAPSHOT_TOO_OLD)
        return CH_FAIL(rc, "the snapshot at %" PRIu64 " was given up", view->horizon);
    if (rc != COHORT_CONFLICT)
        return rc;
    atomic_fetch_add_explicit(&v->conflicts, 1, memory_order_relaxed);
    return CH_FAIL(rc, "tree %" PRIu32 ": a record was written after the snapshot at %" PRIu64,
                   key.tree, view->horizon);
}

bool
ver_holds(struct ver *v, const struct ver_txn *w, struct ver_key key)
{
    uint64_t hash = ver_hash(v, key);
    struct ver_shard *s = shard_of(v, hash);
    const struct ver_entry *top;
    bool holds;

    rt_lock(&s->lock);
    top = *chain_find(s, hash, key);
    holds = top != NULL && top->writer == w;
    rt_unlock(&s->lock);
    return holds;
}
