/* pack.c - encodes pages into images, fits images into slots, and takes both apart again.
 *
 *     slot  | image 0 | image 1 | ... | zeroes | entry 0 | entry 1 | ... | count version magic CRC |
 *           0                                                                                  4096
 *
 * Bit fields of the 16-bit words are named from the most significant end: at 20 of an image stands
 * kind << 12 | codec << 8 | version, so byte 20 is the version and byte 21 has kind and codec.
 *
 * Invariants:
 *   K1  Images of a slot do not overlap, and none reaches into the directory.
 *   K2  Every byte of a slot is defined: what no image and no directory uses is zero.
 *   K3  pack_unpack(), pack_image_info() and pack_slot_images() read nothing outside the slot, whatever
 *       its bytes are, and unpacking writes exactly one page.
 *   K4  A raw page is never taken for packed images, although a user can write bytes into a page
 *       that look like a directory: a slot whose own page checksum holds is a raw page. No image can
 *       look so, as byte 5 of its page id would have to be 0xC0 (ids stay below 2^40).
 *   K5  With carry, at least half of the items are stored.
 *
 * Cost: a page is compressed once, straight behind its header into the arena; an image is copied once,
 * from the arena (or from where GC read it) to its place. Steps are 16 bytes, so a bin's room is
 * a number below 256 and best fit is a search in a 256-bit set: packing is linear in the batch.
 *
 * Locking: none; a packer belongs to one thread at a time. Memory: all at packer_create() and packer_enable(); the
 * codecs are exercised there once, so that their lazy allocations happen then too. Where zstd allocates later all the
 * same and cannot, the page is stored raw.
 */
#include "pack/pack_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#include "pack/dict_internal.h"
#include "pack/run.h"
#include "page/page.h"

enum {
    IMAGE_VERSION = 1,
    OFF_PID = IMAGE_OFF_PID,
    OFF_LSN = IMAGE_OFF_LSN,
    OFF_CRC = IMAGE_OFF_CRC,
    OFF_DEATH = IMAGE_OFF_DEATH,
    OFF_VERSION = IMAGE_OFF_VERSION,
    OFF_KIND_CODEC = IMAGE_OFF_KIND_CODEC,
    OFF_DICT = IMAGE_OFF_DICT,
    OFF_OUTPUT_BYTES = IMAGE_OFF_OUTPUT_BYTES,
    OFF_OUTPUT = PACK_IMAGE_HEADER + 2,
    OUTPUT_MAX = PACK_IMAGE_MAX - OFF_OUTPUT,
    IMAGE_MIN = 2 * PACK_STEP, /* header, length and one byte of output */

    DIR_VERSION = 1,
    DIR_MAGIC = 0xC05D,
    DIR_ENTRY = 2,
    DIR_FOOT = 8, /* count, version, magic, CRC */

    SLOT_STEPS = CH_SLOT_BYTES / PACK_STEP,
    BIN_NONE = 0xffff,
};

/* A slot in the making. */
struct bin {
    uint16_t used;  /* steps */
    uint16_t count; /* images */
    uint16_t next;  /* in the list of bins with the same room */
    uint16_t slot;  /* in the plan; BIN_NONE = carried */
};

struct packer {
    enum pack_codec codec; /* of items without a choice ... */
    int level;             /* ... and its level */
    int zstd_level;        /* that zc is set to */
    bool zstd_dict;        /* zc refers to a dictionary: not beyond pack_build() */
    unsigned max_items;
    void *lz4;
    ZSTD_CCtx *zc;
    ZSTD_DCtx *zd;
    uint8_t *slots; /* max_items of them */
    uint8_t *arena; /* images just encoded, back to back */
    size_t arena_used;
    struct bin bins[CH_BATCH_MAX];
    unsigned bin_count;
    uint64_t room_set[SLOT_STEPS / 64]; /* bit r: room_head[r] is not empty */
    uint16_t room_head[SLOT_STEPS];     /* bins with room for exactly r steps more */
    uint16_t order[CH_BATCH_MAX];       /* items, largest first */
    uint16_t ordinal[CH_BATCH_MAX];     /* of the item in its slot's directory */
    const uint8_t *src[CH_BATCH_MAX];   /* where the item's stored bytes are */
    struct run_plan runs;               /* runs.max 0: none are made */
};

/* ---- create, destroy ----------------------------------------------------------------------- */

static int
zstd_level_of(int level)
{
    return level == 0 ? 1 : level;
}

/* Compresses a page at that level, so that what the level needs is allocated. */
static int
zstd_exercise(ZSTD_CCtx *zc, int level)
{
    static const uint8_t zeroes[CH_PAGE_BYTES];
    uint8_t out[256];
    size_t rc = ZSTD_CCtx_setParameter(zc, ZSTD_c_compressionLevel, level);

    if (!ZSTD_isError(rc))
        rc = ZSTD_compress2(zc, out, sizeof(out), zeroes, sizeof(zeroes));
    if (ZSTD_isError(rc))
        return CH_FAIL(COHORT_ENOMEM, "zstd level %d: %s", level, ZSTD_getErrorName(rc));
    return 0;
}

static int
enable_zstd(struct packer *p, int level)
{
    ZSTD_CCtx *zc = p->zc != NULL ? p->zc : ZSTD_createCCtx();
    int rc;

    if (zc == NULL)
        return CH_FAIL(COHORT_ENOMEM, "zstd compression context");
    rc = zstd_exercise(zc, level);
    if (rc == 0)
        p->zstd_level = level;
    else
        p->zstd_level = INT_MIN; /* unknown: set anew before it is used */
    if (rc == 0 || p->zc != NULL)
        p->zc = zc;
    else
        ZSTD_freeCCtx(zc);
    return rc;
}

int
packer_enable(struct packer *p, enum pack_codec codec, int level)
{
    CH_ASSERT(codec == PACK_NONE || codec == PACK_LZ4 || codec == PACK_ZSTD);
    if (codec == PACK_LZ4 && p->lz4 == NULL) {
        p->lz4 = malloc((size_t)LZ4_sizeofState());
        if (p->lz4 == NULL)
            return CH_FAIL(COHORT_ENOMEM, "lz4 compression context");
    }
    return codec == PACK_ZSTD ? enable_zstd(p, zstd_level_of(level)) : 0;
}

int
packer_create(enum pack_codec codec, int level, unsigned max_items, struct packer **out)
{
    struct packer *p;
    int rc = 0;

    CH_ASSERT(max_items <= CH_BATCH_MAX);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "packer");
    p->codec = codec;
    p->level = zstd_level_of(level);
    p->max_items = max_items;
    p->zd = ZSTD_createDCtx(); /* whatever the codec: old images may be of another */
    if (max_items > 0) {
        p->slots = ch_alloc_aligned((size_t)max_items * CH_SLOT_BYTES);
        p->arena = ch_alloc_aligned((size_t)max_items * CH_SLOT_BYTES);
    }
    if (p->zd == NULL || (max_items > 0 && (p->slots == NULL || p->arena == NULL)))
        rc = CH_FAIL(COHORT_ENOMEM, "packer of %u items", max_items);
    if (rc == 0)
        rc = packer_enable(p, codec, level);
    if (rc != 0)
        goto out;
    *out = p;
    p = NULL;
out:
    packer_destroy(p);
    return rc;
}

void
packer_destroy(struct packer *p)
{
    if (p == NULL)
        return;
    free(p->lz4);
    ZSTD_freeCCtx(p->zc);
    ZSTD_freeDCtx(p->zd);
    ch_free_aligned(p->slots);
    ch_free_aligned(p->arena);
    free(p);
}

size_t
packer_memory(const struct packer *p)
{
    return sizeof(*p) + 2 * (size_t)p->max_items * CH_SLOT_BYTES +
           (p->lz4 != NULL ? (size_t)LZ4_sizeofState() : 0) + ZSTD_sizeof_CCtx(p->zc) +
           ZSTD_sizeof_DCtx(p->zd);
}

/* ---- images: encode ------------------------------------------------------------------------- */

uint32_t
pack_image_crc(const uint8_t *image, uint32_t bytes)
{
    uint32_t crc = ch_crc32c(0, image, OFF_CRC);

    return ch_crc32c(crc, image + OFF_DEATH, bytes - OFF_DEATH);
}

static void
drop_dict(struct packer *p)
{
    if (p->zstd_dict)
        (void)ZSTD_CCtx_refCDict(p->zc, NULL); /* fails only in the midst of a frame */
    p->zstd_dict = false;
}

static size_t
zstd_encode(struct packer *p, int level, const void *page, uint8_t *dst)
{
    size_t n = 0;

    CH_ASSERT(p->zc != NULL); /* packer_enable() */
    drop_dict(p);
    if (level != p->zstd_level) {
        n = ZSTD_CCtx_setParameter(p->zc, ZSTD_c_compressionLevel, level);
        p->zstd_level = ZSTD_isError(n) ? INT_MIN : level;
    }
    if (!ZSTD_isError(n))
        n = ZSTD_compress2(p->zc, dst, OUTPUT_MAX, page, CH_PAGE_BYTES);
    return ZSTD_isError(n) ? 0 : n;
}

/* With a dictionary, whose level counts. The frame need not name it: the image does. */
static size_t
zstd_encode_dict(struct packer *p, const struct pack_dict *dict, const void *page, uint8_t *dst)
{
    size_t n;

    CH_ASSERT(p->zc != NULL); /* packer_enable() */
    n = ZSTD_CCtx_refCDict(p->zc, dict->compress);
    p->zstd_dict = true;
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_setParameter(p->zc, ZSTD_c_dictIDFlag, 0);
    if (!ZSTD_isError(n))
        n = ZSTD_compress2(p->zc, dst, OUTPUT_MAX, page, CH_PAGE_BYTES);
    return ZSTD_isError(n) ? 0 : n;
}

static enum pack_codec
item_codec(const struct packer *p, const struct pack_item *it)
{
    return it->choice == 0 ? p->codec : (enum pack_codec)(it->choice - 1);
}

/* Bytes of the codec's output at `dst`, at most OUTPUT_MAX; 0 when the page is better stored raw. */
static uint32_t
codec_encode(struct packer *p, const struct pack_item *it, uint8_t *dst)
{
    size_t n = 0;

    switch (item_codec(p, it)) {
    case PACK_NONE:
        break;
    case PACK_LZ4:
        CH_ASSERT(p->lz4 != NULL); /* packer_enable() */
        n = (size_t)LZ4_compress_fast_extState(p->lz4, it->page, (char *)dst, CH_PAGE_BYTES,
                                               OUTPUT_MAX, 1);
        break;
    case PACK_ZSTD:
        if (it->dict != NULL)
            n = zstd_encode_dict(p, it->dict, it->page, dst);
        else
            n = zstd_encode(p, it->choice == 0 ? p->level : zstd_level_of(it->level), it->page,
                            dst);
        break;
    }
    return (uint32_t)n;
}

static uint32_t
delta_encode(struct packer *p, const struct pack_item *it, uint8_t *image)
{
    return pack_delta_encode(it, item_codec(p, it) != PACK_NONE ? p->lz4 : NULL, image);
}

/* Encodes the item's page behind the arena's images; without one when it is to be stored raw. */
static void
item_encode(struct packer *p, struct pack_item *it, const uint8_t **src)
{
    uint8_t *image = p->arena + p->arena_used;
    uint32_t n, bytes;
    uint16_t dict = 0;

    it->dict_slot = 0;
    bytes = it->delta_mask != 0 ? delta_encode(p, it, image) : 0;
    it->delta = bytes != 0;
    if (it->delta) {
        p->arena_used += bytes;
        it->bytes = bytes;
        *src = image;
        return;
    }
    n = codec_encode(p, it, image + OFF_OUTPUT);
    if (n == 0) {
        it->bytes = CH_SLOT_BYTES;
        *src = it->page;
        return;
    }
    if (it->dict != NULL && item_codec(p, it) == PACK_ZSTD) {
        dict = it->dict->id;
        it->dict_slot = (uint8_t)pack_dict_slot(dict);
    }
    bytes = (uint32_t)ch_round_up(OFF_OUTPUT + n, PACK_STEP);
    ch_put48(image + OFF_PID, it->pid);
    ch_put64(image + OFF_LSN, it->lsn);
    ch_put16(image + OFF_DEATH, it->death);
    image[OFF_VERSION] = IMAGE_VERSION;
    image[OFF_KIND_CODEC] = (uint8_t)(PACK_FULL << 4 | item_codec(p, it));
    ch_put16(image + OFF_DICT, dict);
    ch_put16(image + OFF_OUTPUT_BYTES, (uint16_t)n);
    memset(image + OFF_OUTPUT + n, 0, bytes - OFF_OUTPUT - n);
    ch_put32(image + OFF_CRC, pack_image_crc(image, bytes));
    p->arena_used += bytes;
    it->bytes = bytes;
    *src = image;
}

static void
item_prepare(struct packer *p, struct pack_item *it, const uint8_t **src)
{
    CH_ASSERT(it->pid <= CH_PAGE_ID_MAX);
    it->carried = false;
    it->delta = false;
    it->slot = 0;
    it->offset = 0;
    if (it->image == NULL) {
        CH_ASSERT(it->page != NULL);
        item_encode(p, it, src);
        return;
    }
    CH_ASSERT(it->image_bytes == CH_SLOT_BYTES ||
              (it->image_bytes % PACK_STEP == 0 && it->image_bytes >= IMAGE_MIN &&
               it->image_bytes <= PACK_IMAGE_MAX));
    it->bytes = it->image_bytes;
    *src = it->image;
}

/* ---- bins: best fit decreasing -------------------------------------------------------------- */

/* Steps that one more image may have, its directory entry allowed for (K1). */
static unsigned
bin_room(const struct bin *b)
{
    unsigned dir = (DIR_FOOT + DIR_ENTRY * (b->count + 1u) + PACK_STEP - 1) / PACK_STEP;
    unsigned taken = b->used + dir;

    return taken < SLOT_STEPS ? SLOT_STEPS - taken : 0;
}

static void
bin_list(struct packer *p, unsigned bin)
{
    unsigned room = bin_room(&p->bins[bin]);

    if (room < IMAGE_MIN / PACK_STEP)
        return;
    p->bins[bin].next = p->room_set[room / 64] >> (room % 64) & 1 ? p->room_head[room] : BIN_NONE;
    p->room_head[room] = (uint16_t)bin;
    p->room_set[room / 64] |= UINT64_C(1) << (room % 64);
}

/* Takes the fullest bin with room for `need` steps out of its list, or starts a new one. */
static unsigned
bin_best(struct packer *p, unsigned need)
{
    for (unsigned w = need / 64; w < CH_ARRAY_LEN(p->room_set); w++) {
        uint64_t set = p->room_set[w];
        unsigned room;
        uint16_t bin;

        if (w == need / 64)
            set &= UINT64_MAX << (need % 64);
        if (set == 0)
            continue;
        room = w * 64 + (unsigned)__builtin_ctzll(set);
        bin = p->room_head[room];
        p->room_head[room] = p->bins[bin].next;
        if (p->bins[bin].next == BIN_NONE)
            p->room_set[w] &= ~(UINT64_C(1) << (room % 64));
        return bin;
    }
    CH_ASSERT(p->bin_count < CH_BATCH_MAX);
    p->bins[p->bin_count] = (struct bin){0};
    return p->bin_count++;
}

/* Item indices, largest first; the caller's order among equals. */
static void
items_sort(struct packer *p, const struct pack_item *items, unsigned n)
{
    uint16_t start[SLOT_STEPS + 2] = {0};

    for (unsigned i = 0; i < n; i++)
        start[SLOT_STEPS - items[i].bytes / PACK_STEP + 1]++;
    for (unsigned s = 1; s < CH_ARRAY_LEN(start); s++)
        start[s] = (uint16_t)(start[s] + start[s - 1]);
    for (unsigned i = 0; i < n; i++)
        p->order[start[SLOT_STEPS - items[i].bytes / PACK_STEP]++] = (uint16_t)i;
}

/* Gives each item a bin (item.slot), an offset and an ordinal. */
static void
items_fit(struct packer *p, struct pack_item *items, unsigned n)
{
    memset(p->room_set, 0, sizeof(p->room_set));
    p->bin_count = 0;
    items_sort(p, items, n);
    for (unsigned k = 0; k < n; k++) {
        unsigned i = p->order[k];
        unsigned steps = items[i].bytes / PACK_STEP;
        unsigned bin = bin_best(p, steps);
        struct bin *b = &p->bins[bin];

        items[i].slot = bin;
        items[i].offset = (uint32_t)b->used * PACK_STEP;
        p->ordinal[i] = b->count;
        b->used = (uint16_t)(b->used + steps);
        b->count++;
        bin_list(p, bin);
    }
}

/* Marks the emptiest bins below 3/4 as carried while half of the items stay (K5); numbers the others.
 * Returns the number of slots. */
static unsigned
bins_choose(struct packer *p, unsigned n, bool carry)
{
    enum {
        FULL_ENOUGH = SLOT_STEPS * 3 / 4
    };
    uint16_t head[FULL_ENOUGH];
    unsigned stored = n;
    unsigned slots = 0;

    for (unsigned u = 0; u < FULL_ENOUGH; u++)
        head[u] = BIN_NONE;
    for (unsigned i = 0; i < p->bin_count; i++) {
        struct bin *b = &p->bins[i];

        b->slot = 0;
        if (carry && b->used < FULL_ENOUGH) {
            b->next = head[b->used];
            head[b->used] = (uint16_t)i;
        }
    }
    for (unsigned u = 0; u < FULL_ENOUGH; u++) {
        for (uint16_t i = head[u]; i != BIN_NONE; i = p->bins[i].next) {
            if (2 * (stored - p->bins[i].count) < n)
                continue;
            stored -= p->bins[i].count;
            p->bins[i].slot = BIN_NONE;
        }
    }
    for (unsigned i = 0; i < p->bin_count; i++) {
        if (p->bins[i].slot != BIN_NONE)
            p->bins[i].slot = (uint16_t)slots++;
    }
    return slots;
}

/* ---- slots: emit ----------------------------------------------------------------------------- */

static uint32_t
dir_start(unsigned count)
{
    return CH_SLOT_BYTES - DIR_FOOT - DIR_ENTRY * count;
}

/* Zeroes the gap and completes the directory, whose entries are in place. */
static void
slot_finish(uint8_t *slot, const struct bin *b)
{
    uint32_t used = (uint32_t)b->used * PACK_STEP;
    uint32_t start = dir_start(b->count);
    uint8_t *foot = slot + CH_SLOT_BYTES - DIR_FOOT;

    if (used == CH_SLOT_BYTES)
        return;               /* raw */
    CH_ASSERT(used <= start); /* K1 */
    memset(slot + used, 0, start - used);
    foot[0] = (uint8_t)b->count;
    foot[1] = DIR_VERSION;
    ch_put16(foot + 2, DIR_MAGIC);
    ch_put32(foot + 4, ch_crc32c(0, slot + start, CH_SLOT_BYTES - 4 - start));
}

static void
item_emit(struct packer *p, struct pack_item *it, unsigned i, struct pack_plan *plan)
{
    const struct bin *b = &p->bins[it->slot];
    uint8_t *slot = p->slots + (size_t)b->slot * CH_SLOT_BYTES;
    uint8_t *entry;

    if (b->slot == BIN_NONE) {
        it->carried = true;
        it->slot = 0;
        it->offset = 0;
        return;
    }
    it->slot = b->slot;
    plan->image_total += it->bytes;
    plan->stored++;
    memcpy(slot + it->offset, p->src[i], it->bytes);
    if (it->bytes == CH_SLOT_BYTES)
        return;
    entry = slot + dir_start(b->count) + (size_t)p->ordinal[i] * DIR_ENTRY;
    entry[0] = (uint8_t)(it->offset / PACK_STEP);
    entry[1] = (uint8_t)(it->bytes / PACK_STEP);
}

void
packer_runs(struct packer *p, unsigned max, unsigned first, unsigned each)
{
    CH_ASSERT(max == 0 || (max >= 2 && max <= PACK_RUN_SLOTS_MAX && each > 0));
    p->runs.max = max;
    p->runs.first = first;
    p->runs.each = each;
}

static void
build_runs(struct packer *p, struct pack_item *items, unsigned n, bool carry,
           struct pack_plan *plan)
{
    items_sort(p, items, n);
    plan->slot_count = run_fit(&p->runs, items, p->order, n, carry);
    plan->run_slots = p->runs.run_slots;
    if (plan->slot_count > p->max_items) {
        plan->slots = NULL;
        return;
    }
    run_emit(&p->runs, items, p->src, p->slots);
    for (unsigned i = 0; i < n; i++) {
        plan->image_total += items[i].carried ? 0 : items[i].bytes;
        plan->stored += !items[i].carried;
    }
}

void
pack_build(struct packer *p, struct pack_item *items, unsigned n, bool carry,
           struct pack_plan *plan)
{
    CH_ASSERT(n <= CH_BATCH_MAX);
    *plan = (struct pack_plan){.slots = p->slots};
    p->arena_used = 0;
    for (unsigned i = 0; i < n; i++)
        item_prepare(p, &items[i], &p->src[i]);
    drop_dict(p);
    if (p->runs.max != 0) {
        build_runs(p, items, n, carry, plan);
        return;
    }
    items_fit(p, items, n);
    plan->slot_count = bins_choose(p, n, carry);
    /* Many stored images: the caller's to copy as they stand. */
    if (plan->slot_count > p->max_items) {
        plan->slots = NULL;
        return;
    }
    for (unsigned i = 0; i < n; i++)
        item_emit(p, &items[i], i, plan);
    for (unsigned i = 0; i < p->bin_count; i++) {
        if (p->bins[i].slot != BIN_NONE)
            slot_finish(p->slots + (size_t)p->bins[i].slot * CH_SLOT_BYTES, &p->bins[i]);
    }
}

/* ---- decode ---------------------------------------------------------------------------------- */

int
pack_image_open(const void *slot, uint32_t offset, uint32_t bytes, page_id pid, const uint8_t **out)
{
    const uint8_t *image;
    uint32_t crc;

    if (offset % PACK_STEP != 0 || bytes % PACK_STEP != 0 || bytes < IMAGE_MIN ||
        bytes > PACK_IMAGE_MAX || offset > PACK_IMAGE_MAX - bytes)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": no image can be at %" PRIu32 "+%" PRIu32,
                       pid, offset, bytes);
    image = (const uint8_t *)slot + offset;
    crc = pack_image_crc(image, bytes);
    if (ch_get32(image + OFF_CRC) != crc)
        return CH_FAIL(COHORT_EIMAGE,
                       "page %" PRIu64 ": image at %" PRIu32 "+%" PRIu32 ": checksum 0x%08" PRIx32
                       ", not 0x%08" PRIx32,
                       pid, offset, bytes, crc, ch_get32(image + OFF_CRC));
    *out = image;
    return 0;
}

/* Everything that the header of a checked image says, but for the codec. */
static int
image_check_header(const uint8_t *image, uint32_t bytes, page_id pid)
{
    uint32_t n = ch_get16(image + OFF_OUTPUT_BYTES);

    if (image[OFF_VERSION] > IMAGE_VERSION)
        return CH_FAIL(COHORT_EVERSION, "page %" PRIu64 ": image version %u, newer than %u", pid,
                       image[OFF_VERSION], (unsigned)IMAGE_VERSION);
    if (image[OFF_VERSION] == 0)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": image version 0", pid);
    if (pid != 0 && ch_get48(image + OFF_PID) != pid)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": image of page %" PRIu64 " stands there",
                       pid, ch_get48(image + OFF_PID));
    if (image[OFF_KIND_CODEC] >> 4 != PACK_FULL)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": image of kind %u", pid,
                       image[OFF_KIND_CODEC] >> 4);
    if (n == 0 || ch_round_up(OFF_OUTPUT + n, PACK_STEP) != bytes)
        return CH_FAIL(COHORT_EIMAGE,
                       "page %" PRIu64 ": %" PRIu32 " bytes of output in an image of %" PRIu32, pid,
                       n, bytes);
    return 0;
}

/* Decompresses with a dictionary; without a packer in a context of its own. */
static size_t
zstd_decode_dict(struct packer *p, const struct pack_dict *dict, const uint8_t *src, size_t n,
                 void *page)
{
    ZSTD_DCtx *zd = p != NULL ? p->zd : ZSTD_createDCtx();
    size_t got = 0;

    if (zd != NULL)
        got = ZSTD_decompress_usingDDict(zd, page, CH_PAGE_BYTES, src, n, dict->decompress);
    if (p == NULL)
        ZSTD_freeDCtx(zd);
    return got;
}

/* True when the n bytes are one zstd frame of exactly one page, decoded into `page`. The checks
 * before decoding keep the library's legacy decoders, which allocate, away from hostile bytes. */
static bool
zstd_decode(struct packer *p, const struct pack_dict *dict, const uint8_t *src, size_t n,
            void *page)
{
    size_t got;

    if (n < 4 || ch_get32(src) != ZSTD_MAGICNUMBER ||
        ZSTD_getFrameContentSize(src, n) != CH_PAGE_BYTES ||
        ZSTD_findFrameCompressedSize(src, n) != n)
        return false;
    if (dict != NULL)
        got = zstd_decode_dict(p, dict, src, n, page);
    else if (p != NULL)
        got = ZSTD_decompressDCtx(p->zd, page, CH_PAGE_BYTES, src, n);
    else
        got = ZSTD_decompress(page, CH_PAGE_BYTES, src, n);
    return !ZSTD_isError(got) && got == CH_PAGE_BYTES;
}

static int
codec_decode(struct packer *p, const struct pack_dict *dict, const uint8_t *image, page_id pid,
             void *page)
{
    unsigned codec = image[OFF_KIND_CODEC] & 0xf;
    uint32_t n = ch_get16(image + OFF_OUTPUT_BYTES);
    const uint8_t *src = image + OFF_OUTPUT;
    bool ok;

    if (codec == PACK_LZ4)
        ok = LZ4_decompress_safe((const char *)src, page, (int)n, CH_PAGE_BYTES) == CH_PAGE_BYTES;
    else if (codec == PACK_ZSTD)
        ok = zstd_decode(p, dict, src, n, page);
    else
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": unknown codec %u", pid, codec);
    if (!ok)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": codec %u does not yield a page", pid,
                       codec);
    return 0;
}

/* *dict: what the image is to be decoded with, NULL = nothing. */
static int
image_choose_dict(const uint8_t *image, page_id pid, const struct pack_dict **dict)
{
    uint16_t id = ch_get16(image + OFF_DICT);

    if (id == 0) {
        *dict = NULL;
        return 0;
    }
    if ((image[OFF_KIND_CODEC] & 0xf) != PACK_ZSTD)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": codec %u with dictionary %u", pid,
                       image[OFF_KIND_CODEC] & 0xf, id);
    if (*dict == NULL)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": its dictionary %u is missing", pid, id);
    if ((*dict)->id != id)
        return CH_FAIL(COHORT_EIMAGE, "page %" PRIu64 ": its dictionary is %u, not %u", pid, id,
                       (*dict)->id);
    return 0;
}

int
pack_unpack_dict(struct packer *p, const struct pack_dict *dict, const void *slot, uint32_t offset,
                 uint32_t bytes, page_id pid, void *page)
{
    const uint8_t *image;
    int rc;

    if (offset == 0 && bytes == CH_SLOT_BYTES) {
        memcpy(page, slot, CH_PAGE_BYTES);
        return page_check(page, pid);
    }
    rc = pack_image_open(slot, offset, bytes, pid, &image);
    if (rc == 0)
        rc = image_check_header(image, bytes, pid);
    if (rc == 0)
        rc = image_choose_dict(image, pid, &dict);
    if (rc == 0)
        rc = codec_decode(p, dict, image, pid, page);
    if (rc == 0)
        rc = page_check(page, ch_get48(image + OFF_PID));
    return rc;
}

int
pack_unpack(struct packer *p, const void *slot, uint32_t offset, uint32_t bytes, page_id pid,
            void *page)
{
    return pack_unpack_dict(p, NULL, slot, offset, bytes, pid, page);
}

unsigned
pack_slot_images(const void *slot, uint32_t *offs, uint32_t *lens)
{
    const uint8_t *s = slot;
    const uint8_t *foot = s + CH_SLOT_BYTES - DIR_FOOT;
    unsigned count = foot[0];
    uint32_t start, end = 0;

    if (ch_get16(foot + 2) != DIR_MAGIC || foot[1] != DIR_VERSION || count == 0 ||
        count > PACK_SLOT_IMAGES_MAX)
        return 0;
    start = dir_start(count);
    if (ch_get32(foot + 4) != ch_crc32c(0, s + start, CH_SLOT_BYTES - 4 - start))
        return 0;
    if (ch_get16(s + 4) == PAGE_MAGIC && page_check(s, 0) == 0)
        return 0; /* K4 */
    for (unsigned i = 0; i < count; i++) {
        uint32_t off = s[start + i * DIR_ENTRY] * (uint32_t)PACK_STEP;
        uint32_t len = s[start + i * DIR_ENTRY + 1] * (uint32_t)PACK_STEP;

        if (off < end || len < IMAGE_MIN || off + len > start)
            return 0;
        end = off + len;
        offs[i] = off;
        lens[i] = len;
    }
    return count;
}

int
pack_image_info(const void *slot, uint32_t offset, uint32_t bytes, struct pack_image_info *out)
{
    const uint8_t *image;
    int rc;

    if (offset == 0 && bytes == CH_SLOT_BYTES) {
        rc = page_check(slot, 0);
        if (rc != 0)
            return rc;
        *out = (struct pack_image_info){
            .pid = page_pid(slot),
            .lsn = page_lsn(slot),
            .death = page_death_pack(page_death_time(slot, page_lsn(slot))),
            .kind = PACK_FULL,
            .codec = PACK_NONE,
            .version = IMAGE_VERSION,
            .stored = bytes,
        };
        return 0;
    }
    rc = pack_image_open(slot, offset, bytes, 0, &image);
    if (rc != 0)
        return rc;
    *out = (struct pack_image_info){
        .pid = ch_get48(image + OFF_PID),
        .lsn = ch_get64(image + OFF_LSN),
        .death = ch_get16(image + OFF_DEATH),
        .kind = image[OFF_KIND_CODEC] >> 4,
        .codec = image[OFF_KIND_CODEC] & 0xf,
        .version = image[OFF_VERSION],
        .dict = ch_get16(image + OFF_DICT),
        .stored = bytes,
    };
    return 0;
}
