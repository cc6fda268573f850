/* codec_test.c - trees with codecs of their own: the table, and what images on the device say. */
#include <stdlib.h>

#include "page/page.h"
#include "store/store_internal.h"
#include "store/store_test_world.h"

/* The codec that the page's image on the device has. */
static unsigned
image_codec(struct world *w, page_id pid)
{
    _Alignas(4096) static uint8_t slot[CH_SLOT_BYTES];
    struct pack_image_info info;
    place_t p = map_get(store_map(w->store), pid);

    ZT_OK(w->t, dev_read(w->dev, place_slot(p) * CH_SLOT_BYTES, slot, CH_SLOT_BYTES));
    ZT_OK(w->t, pack_image_info(slot, place_offset(p), place_bytes(p), &info));
    ZT_CHECK(w->t, info.pid == pid);
    return info.codec;
}

/* Every used page is written again and then published, but for those that the store carried: `stale`. */
static void
write_all(struct world *w, bool *stale)
{
    page_id pids[64];
    unsigned n = 0;

    memset(stale, 0, WORLD_PAGES * sizeof(*stale));
    for (page_id p = 0; p < WORLD_PAGES; p++) {
        if (w->used[p])
            pids[n++] = p;
        if (n == 64 || (n > 0 && p == WORLD_PAGES - 1)) {
            ZT_OK(w->t, world_write(w, pids, n, true));
            for (unsigned i = 0; i < w->page_count; i++)
                stale[w->pages[i].pid] = w->pages[i].carried;
            ZT_OK(w->t, world_publish(w, true));
            n = 0;
        }
    }
}

/* All images are of the codec of their tree, or raw because they do not compress; most are compressed. */
static void
check_codecs(struct world *w, const int *codec, const bool *stale)
{
    unsigned compressed = 0, should = 0, have;
    int want;

    for (page_id p = 0; p < WORLD_PAGES; p++) {
        if (!w->used[p] || stale[p] || map_get(store_map(w->store), p) == PLACE_NONE)
            continue;
        have = image_codec(w, p);
        want = codec[p % WORLD_TREES] < 0 ? (int)w->cfg.codec : codec[p % WORLD_TREES];
        ZT_CHECK(w->t, have == PACK_NONE || (int)have == want);
        should += want != PACK_NONE;
        compressed += have != PACK_NONE;
    }
    ZT_CHECK(w->t, compressed <= should && compressed * 4 >= should * 3);
}

/* Goal: pages are compressed as their trees say, whatever the database's codec, reads do not care, GC moves images as they
 * are, and a change counts from the next write on. Method: random codecs and levels by tree, changed in between. */
static void
test_trees(struct zt *t)
{
    struct world_options o = {
        .codec = (enum pack_codec)zt_below(t, 3), .zones = 40, .zone_slots = 64};
    struct world *w = world_open(t, &o);
    int codec[WORLD_TREES];
    static bool stale[WORLD_PAGES];
    bool did;

    w->packs = true;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < WORLD_TREES; i++) {
            codec[i] = (int)zt_below(t, 4) - 1;
            ZT_OK(t, store_set_tree_codec(w->store, 1 + i, codec[i], (int)zt_below(t, 20)));
        }
        for (unsigned i = 0; i < 10 && w->used_count < 900; i++)
            ZT_OK(t, world_write_random(w, 1 + (unsigned)zt_below(t, 64), 60));
        ZT_OK(t, world_publish(w, true));
        write_all(w, stale);
        check_codecs(w, codec, stale);
        for (unsigned i = 0; i < 20; i++)
            ZT_OK(t, store_gc_step(w->store, false, &did));
        check_codecs(w, codec, stale);
        world_read_all(w);
        world_check(w);
    }
    world_close(w);
}

/* Goal: the table knows for any number of trees what was said last. Method: a model of 4096 trees, set and unset at
 * random; packed items ask. */
static void
test_table(struct zt *t)
{
    enum {
        TREES = 4096
    };
    struct world_options o = {.codec = PACK_LZ4, .zones = 40, .zone_slots = 64};
    struct world *w = world_open(t, &o);
    static int codec[TREES];
    static uint8_t page[CH_PAGE_BYTES];
    struct pack_item item;

    for (unsigned i = 0; i < TREES; i++)
        codec[i] = -1;
    for (unsigned step = 0; step < 30000; step++) {
        unsigned i = (unsigned)zt_below(t, step % 10000 < 5000 ? TREES : TREES / 16);

        if (zt_below(t, 2) == 0) {
            codec[i] = (int)zt_below(t, step % 10000 < 5000 ? 4 : 2) - 1;
            ZT_OK(t, store_set_tree_codec(w->store, i * 7, codec[i], 3));
        }
        i = (unsigned)zt_below(t, TREES);
        page_init(page, 1, PAGE_LEAF, 0, i * 7);
        item = (struct pack_item){.page = page};
        store_codecs_choose(w->store, &item, 1);
        ZT_CHECK(t, item.choice == codec[i] + 1 && (codec[i] < 0 || item.level == 3));
    }
    for (unsigned i = 0; i < TREES; i++)
        ZT_OK(t, store_set_tree_codec(w->store, i * 7, -1, 0));
    ZT_CHECK(t, w->store->codecs.used == 0);
    world_close(w);
}

/* Goal: a store in place takes the call and does nothing. */
static void
test_inplace(struct zt *t)
{
    struct world_options o = {.kind = STORE_INPLACE, .zones = 60, .zone_slots = 64};
    struct world *w = world_open(t, &o);

    ZT_OK(t, store_set_tree_codec(w->store, 1, PACK_ZSTD, 3));
    ZT_OK(t, world_write_random(w, 20, 100));
    ZT_OK(t, world_publish(w, true));
    world_read_all(w);
    world_close(w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"trees", test_trees, 9},
        {"table", test_table, 2},
        {"inplace", test_inplace, 1},
    };

    return zt_main(argc, argv, "codec", cases, CH_ARRAY_LEN(cases));
}
