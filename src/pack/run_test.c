/* run_test.c - runs of slots: round trips, where runs may be, carry, damage. */
#include <stdlib.h>

#include "pack/pack.h"
#include "page/page.h"
#include "zt/zt.h"

struct batch {
    uint8_t *pages;
    struct pack_item items[CH_BATCH_MAX];
    unsigned n;
};

static void
batch_init(struct zt *t, struct batch *b, unsigned n, size_t noise_min, size_t noise_max)
{
    b->n = n;
    b->pages = calloc(CH_BATCH_MAX, CH_PAGE_BYTES);
    ZT_CHECK(t, b->pages != NULL);
    memset(b->items, 0xa5, sizeof(b->items));
    for (unsigned i = 0; i < n; i++) {
        uint8_t *page = b->pages + (size_t)i * CH_PAGE_BYTES;
        size_t noise = noise_min + zt_below(t, noise_max - noise_min + 1);

        page_init(page, i + 1, PAGE_LEAF, 0, 1);
        ch_prng_fill(&t->rng, page + PAGE_HEADER_BYTES, noise);
        page_seal(page);
        b->items[i] = (struct pack_item){.pid = i + 1, .page = page};
    }
}

/* The image as the store hands it over when it lies in two slots. */
static void
check_image(struct zt *t, struct packer *p, const struct batch *b, const struct pack_plan *plan,
            const struct pack_item *it)
{
    const uint8_t *at = plan->slots + (size_t)it->slot * CH_SLOT_BYTES + it->offset;
    uint8_t page[CH_PAGE_BYTES];

    ZT_CHECK(t, it->offset < CH_SLOT_BYTES);
    ZT_OK(t, pack_unpack(p, at, 0, it->bytes, it->pid, page));
    ZT_CHECK(t, memcmp(page, b->pages + (it->pid - 1) * CH_PAGE_BYTES, CH_PAGE_BYTES) == 0);
}

/* Every run lists exactly the items that lie in it, and lies where runs may be. Returns images. */
static unsigned
check_run(struct zt *t, const struct batch *b, const struct pack_plan *plan, unsigned slot)
{
    uint32_t offs[PACK_RUN_IMAGES_MAX], lens[PACK_RUN_IMAGES_MAX];
    const uint8_t *run = plan->slots + (size_t)slot * CH_SLOT_BYTES;
    unsigned slots = plan->run_slots[slot], found = 0;
    unsigned images = pack_run_images(run, slots, offs, lens);

    if (images == 0) { /* a raw page */
        ZT_CHECK(t, slots == 1 && page_check(run, 0) == 0 && pack_run_slots(run) == 0);
        return 1;
    }
    ZT_CHECK(t, pack_run_slots(run) == slots);
    for (unsigned k = 0; k < images; k++)
        for (unsigned i = 0; i < b->n; i++)
            found += !b->items[i].carried &&
                     b->items[i].slot * CH_SLOT_BYTES + b->items[i].offset ==
                         slot * CH_SLOT_BYTES + offs[k] &&
                     b->items[i].bytes == lens[k];
    ZT_CHECK(t, found == images);
    return images;
}

static void
check_plan(struct zt *t, struct packer *p, const struct batch *b, const struct pack_plan *plan,
           unsigned first, unsigned each)
{
    unsigned stored = 0, images = 0, next = 0;
    uint64_t total = 0;

    for (unsigned i = 0; i < b->n; i++) {
        if (b->items[i].carried)
            continue;
        stored++;
        total += b->items[i].bytes;
        check_image(t, p, b, plan, &b->items[i]);
    }
    ZT_CHECK(t, stored == plan->stored && total == plan->image_total);
    for (unsigned s = 0; s < plan->slot_count; s++) {
        if (s < next) {
            ZT_CHECK(t, plan->run_slots[s] == 0);
            continue;
        }
        next = s + plan->run_slots[s];
        ZT_CHECK(t, next > s && next <= plan->slot_count);
        ZT_CHECK(t, s < first ? next <= first : (s - first) / each == (next - 1 - first) / each);
        images += check_run(t, b, plan, s);
    }
    ZT_CHECK(t, images == stored);
}

/* Goal: every page comes back, whatever the sizes and wherever zones end; runs respect those ends. */
static void
test_round_trip(struct zt *t)
{
    static const size_t noise[][2] = {{0, 0}, {0, 4032}, {1400, 1700}, {3900, 4032}, {4032, 4032}};
    enum pack_codec codec = (enum pack_codec)zt_below(t, 3);
    const size_t *range = noise[zt_below(t, CH_ARRAY_LEN(noise))];
    unsigned max = 2 + (unsigned)zt_below(t, PACK_RUN_SLOTS_MAX - 1);
    struct batch b;
    struct packer *p;
    struct pack_plan plan;

    batch_init(t, &b, (unsigned)zt_below(t, CH_BATCH_MAX + 1), range[0], range[1]);
    ZT_OK(t, packer_create(codec, 1, CH_BATCH_MAX, &p));
    for (int round = 0; round < 3; round++) {
        unsigned first = (unsigned)zt_below(t, 40), each = 1 + (unsigned)zt_below(t, 70);
        bool carry = zt_below(t, 2) == 0;

        packer_runs(p, max, first, each);
        pack_build(p, b.items, b.n, carry, &plan);
        ZT_CHECK(t, plan.slot_count <= b.n && 2 * plan.stored >= b.n);
        ZT_CHECK(t, carry || plan.stored == b.n);
        check_plan(t, p, &b, &plan, first, each);
    }
    packer_runs(p, 0, 0, 0);
    pack_build(p, b.items, b.n, false, &plan);
    ZT_CHECK(t, plan.run_slots == NULL && plan.stored == b.n);
    packer_destroy(p);
    free(b.pages);
}

/* Goal: little is lost: pages of 0.41 take 0.42 of their bytes and not half. */
static void
test_little_is_lost(struct zt *t)
{
    struct batch b;
    struct packer *p;
    struct pack_plan plan;

    batch_init(t, &b, 128, 1480, 1620);
    ZT_OK(t, packer_create(PACK_LZ4, 0, CH_BATCH_MAX, &p));
    pack_build(p, b.items, b.n, false, &plan);
    ZT_CHECK(t, plan.slot_count >= 64);
    packer_runs(p, PACK_RUN_SLOTS_MAX, 20, 128);
    pack_build(p, b.items, b.n, false, &plan);
    ZT_CHECK(t, (double)plan.slot_count * CH_SLOT_BYTES <
                    1.02 * (double)plan.image_total + CH_SLOT_BYTES);
    packer_destroy(p);
    free(b.pages);
}

/* Goal: a changed head, or an image overwritten since, is noticed; nothing outside of the slots is read. */
static void
test_damage(struct zt *t)
{
    uint32_t offs[PACK_RUN_IMAGES_MAX], lens[PACK_RUN_IMAGES_MAX];
    struct batch b;
    struct packer *p;
    struct pack_plan plan;
    uint8_t *run;
    unsigned slots, images;

    batch_init(t, &b, 40, 1000, 2000);
    ZT_OK(t, packer_create(PACK_LZ4, 0, CH_BATCH_MAX, &p));
    packer_runs(p, 8, 0, 64);
    pack_build(p, b.items, b.n, false, &plan);
    slots = plan.run_slots[0];
    run = malloc((size_t)slots * CH_SLOT_BYTES); /* exactly: a sanitizer sees what is read beyond */
    ZT_CHECK(t, run != NULL && slots >= 2);
    memcpy(run, plan.slots, (size_t)slots * CH_SLOT_BYTES);
    images = pack_run_images(run, slots, offs, lens);
    ZT_CHECK(t, images > 0);
    ZT_CHECK(t, pack_run_images(run, slots - 1, offs, lens) == 0);
    for (int i = 0; i < 500; i++) {
        uint32_t at = (uint32_t)zt_below(t, 12 + 4 * images);
        uint8_t bit = (uint8_t)(1U << zt_below(t, 8));

        run[at] ^= bit;
        ZT_CHECK(t, pack_run_images(run, slots, offs, lens) == 0);
        run[at] ^= bit;
    }
    ZT_CHECK(t, pack_run_images(run, slots, offs, lens) == images);
    run[offs[images - 1] + 14] ^= 1;
    ZT_CHECK(t, pack_run_images(run, slots, offs, lens) == 0);
    free(run);
    packer_destroy(p);
    free(b.pages);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"round_trip", test_round_trip, 300},
        {"little_is_lost", test_little_is_lost, 10},
        {"damage", test_damage, 20},
    };

    return zt_main(argc, argv, "run", cases, CH_ARRAY_LEN(cases));
}
