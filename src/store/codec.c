/* codec.c - which codec compresses the pages of which tree.
 *
 * The database has a codec, and a tree may have its own. The page's header names its tree, so the choice is made when a batch
 * is packed; images name their codec, so nobody asks when they are read or moved.
 *
 * Invariants:
 *   C1  a choice is in the table only after the packer can do it: compressing never allocates because of it.
 *   C2  entries lie between where their hash points and the next empty one, so a search ends at the first empty one; the
 *       table is at most half full.
 *
 * Locks: the table's own (rank GC, order 1) for moments, so that opening trees does not wait for a batch that is being
 * written; the store's lock (order 0) before it, and only when the packer must learn a codec or a level. Crash: memory only.
 */
#include <stdlib.h>

#include "page/page.h"
#include "store/store_internal.h"

enum {
    TABLE_MIN = 16
};

static uint32_t
home(const struct store_codecs *c, uint32_t tree)
{
    return (tree * UINT32_C(2654435769) >> 7) & (c->size - 1);
}

/* The entry of the tree, or the empty one where it would be. The table is not empty. */
static struct store_tree_codec *
find(const struct store_codecs *c, uint32_t tree)
{
    uint32_t i = home(c, tree);

    while (c->entries[i].choice != 0 && c->entries[i].tree != tree)
        i = (i + 1) & (c->size - 1);
    return &c->entries[i];
}

static int
grow(struct store_codecs *c)
{
    struct store_codecs bigger = {.size = c->size == 0 ? TABLE_MIN : 2 * c->size};

    bigger.entries = calloc(bigger.size, sizeof(*bigger.entries));
    if (bigger.entries == NULL)
        return CH_FAIL(COHORT_ENOMEM, "codecs of %u trees", c->used);
    for (uint32_t i = 0; i < c->size; i++)
        if (c->entries[i].choice != 0)
            *find(&bigger, c->entries[i].tree) = c->entries[i];
    free(c->entries);
    c->entries = bigger.entries;
    c->size = bigger.size;
    return 0;
}

/* Empties an entry and moves up what stands behind it only because of it (C2). */
static void
clear(struct store_codecs *c, struct store_tree_codec *e)
{
    uint32_t mask = c->size - 1, hole = (uint32_t)(e - c->entries);

    c->used--;
    c->entries[hole].choice = 0;
    for (uint32_t i = (hole + 1) & mask; c->entries[i].choice != 0; i = (i + 1) & mask) {
        uint32_t want = home(c, c->entries[i].tree);

        if (((i - want) & mask) < ((i - hole) & mask))
            continue; /* it stands behind the hole in its own right */
        c->entries[hole] = c->entries[i];
        c->entries[i].choice = 0;
        hole = i;
    }
}

/* ---- packers; the store's lock is held, or nobody knows the store yet ---- */

static void
note_memory(struct store *s)
{
    size_t n = packer_memory(s->packer);

    for (unsigned i = 0; i < STORE_READERS; i++)
        n += s->readers[i] != NULL ? packer_memory(s->readers[i]) : 0;
    atomic_store_explicit(&s->packers_memory, n, memory_order_relaxed);
}

/* Contexts for readers, those that are missing: only zstd wants them. */
static int
create_readers(struct store *s)
{
    for (unsigned i = 0; i < STORE_READERS; i++) {
        int rc = s->readers[i] == NULL ? packer_create(PACK_NONE, 0, 0, &s->readers[i]) : 0;

        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Release: who takes one sees it as it was made. */
static void
offer_readers(struct store *s)
{
    atomic_fetch_or_explicit(&s->readers_free, (UINT32_C(1) << STORE_READERS) - 1,
                             memory_order_release);
}

static int
enable(struct store *s, enum pack_codec codec, int level)
{
    bool had = s->readers[STORE_READERS - 1] != NULL;
    int rc = packer_enable(s->packer, codec, level);

    if (rc == 0 && codec == PACK_ZSTD && !had) {
        rc = create_readers(s);
        if (rc == 0)
            offer_readers(s);
    }
    if (codec != PACK_NONE)
        atomic_store_explicit(&s->packs, true, memory_order_relaxed);
    note_memory(s);
    return rc;
}

int
store_codecs_create(struct store *s)
{
    int rc = packer_create(s->cfg.codec, s->cfg.codec_level, s->chunk_slots, &s->packer);

    /* Deltas are compressed by LZ4 whatever compresses their pages (pack/delta.c). */
    if (rc == 0 && s->cfg.deltas && s->cfg.codec != PACK_NONE)
        rc = packer_enable(s->packer, PACK_LZ4, 0);
    return rc == 0 ? enable(s, s->cfg.codec, s->cfg.codec_level) : rc;
}

void
store_codecs_destroy(struct store *s)
{
    for (unsigned i = 0; i < STORE_READERS; i++)
        packer_destroy(s->readers[i]);
    packer_destroy(s->packer);
    free(s->codecs.entries);
}

/* ---- trees ---- */

static int
set(struct store_codecs *c, uint32_t tree, uint8_t choice, int8_t level)
{
    struct store_tree_codec *e;
    int rc = choice != 0 && 2 * (c->used + 1) > c->size ? grow(c) : 0;

    if (rc != 0 || c->size == 0)
        return rc;
    e = find(c, tree);
    if (choice == 0) {
        if (e->choice != 0)
            clear(c, e);
        return 0;
    }
    c->used += e->choice == 0;
    *e = (struct store_tree_codec){tree, choice, level};
    return 0;
}

/* The bit of a codec at a level in `known`; 0: one that is not remembered. */
static uint32_t
codec_bit(enum pack_codec codec, int level)
{
    if (codec != PACK_ZSTD)
        return UINT32_C(1) << (codec == PACK_LZ4 ? 31 : 30);
    return level >= 0 && level < 30 ? UINT32_C(1) << level : 0;
}

/* C1. No lock is held. */
static int
learn(struct store *s, enum pack_codec codec, int level)
{
    uint32_t bit = codec_bit(codec, level);
    bool known;
    int rc;

    rt_lock(&s->codecs.lock);
    known = (s->codecs.known & bit) != 0;
    rt_unlock(&s->codecs.lock);
    if (known)
        return 0;
    rt_lock(&s->lock);
    rc = enable(s, codec, level);
    if (rc == 0) {
        rt_lock(&s->codecs.lock);
        s->codecs.known |= bit;
        rt_unlock(&s->codecs.lock);
    }
    rt_unlock(&s->lock);
    return rc;
}

int
store_set_tree_codec(struct store *s, uint32_t tree, int codec, int level)
{
    int rc;

    CH_ASSERT(codec <= PACK_ZSTD && level >= INT8_MIN && level <= INT8_MAX);
    if (s->cfg.kind == STORE_INPLACE)
        return 0;
    rc = codec >= 0 ? learn(s, (enum pack_codec)codec, level) : 0;
    if (rc != 0)
        return rc;
    rt_lock(&s->codecs.lock);
    rc = set(&s->codecs, tree, (uint8_t)(codec < 0 ? 0 : codec + 1), (int8_t)level);
    rt_unlock(&s->codecs.lock);
    return rc;
}

void
store_codecs_choose(struct store *s, struct pack_item *items, unsigned n)
{
    const struct store_codecs *c = &s->codecs;

    rt_lock(&s->codecs.lock);
    for (unsigned i = 0; c->used > 0 && i < n; i++) {
        const struct store_tree_codec *e;

        if (items[i].page == NULL)
            continue; /* an image that moves as it is */
        e = find(c, page_tree(items[i].page));
        items[i].choice = e->choice; /* of an empty entry 0 */
        items[i].level = e->level;
    }
    rt_unlock(&s->codecs.lock);
}
