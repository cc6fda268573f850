/* array.c - A/B arrays: the pages of map and zone table, rewritten a checkpoint at a time.
 *
 *   zone of extent e:  | k slot 0 | k slot 1 | k+1 slot 0 | k+1 slot 1 | ...     k = e * pages of a zone
 *
 * A slot, 4096 bytes, little-endian:
 *     0 4 CRC-32C of bytes 4..4095     4 4 magic 0xC0106003    8 2 version      10 2 array
 *    12 4 zero                        16 8 checkpoint         24 8 page k      32 8 database id
 *    40 24 zeroes                     64 4032 payload
 *
 * Invariants:
 *   Y1  a page is written to the slot that is not current; it becomes current by meta_array_commit(),
 *       when the root that names the checkpoint is durable. So a crash leaves the last checkpoint whole.
 *   Y2  on the device, current = the valid slot with the highest checkpoint number <= the root's.
 *   Y3  slots of a checkpoint whose root never became durable are overwritten with zeroes by the load
 *       that meets them; that is durable before the next root (T2). Else they would look current as
 *       soon as the root's number passes theirs.
 *   Y4  the root's digest is the XOR over all pages of hash(k, checkpoint number, checksum) of current
 *       slots. It tells the damage of a current slot from a torn write of the other one: both look like one
 *       bad and one good slot, but the first must not be opened with the older page in silence.
 *
 * Memory: per page the two slots' hashes and a byte of state, allocated with its extent; one buffer of 64
 * pages. Locking: none; one checkpoint at a time. Crash: Y1; slots torn or not, always the non-current one.
 */
#include "base/bug.h"
#include "dev/dev.h"
#include "meta/meta_internal.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    SLOT_BYTES = 4096,
    HEADER_BYTES = 64,
    WRITE_MAX = META_WRITE_MAX,
    ARRAY_VERSION = 1,
    SLOT_NONE = 2, /* no slot of the page is current */
};
#define ARRAY_MAGIC UINT32_C(0xC0106003)

struct page_state {
    uint64_t hash[2]; /* of each slot, as last written or read; 0 = nothing of ours */
    uint64_t pending; /* checkpoint that wrote the non-current slot, 0 = none */
    uint8_t current;  /* 0, 1 or SLOT_NONE */
    bool damaged;     /* a slot was neither valid nor blank when loaded */
};

struct meta_array {
    struct dev *dev;
    enum meta_array_id id;
    uint64_t db_id;
    uint64_t zones_base, zone_bytes, extent_pages;
    uint64_t digest;  /* the root's, checked by the load; 0 = it tells none */
    uint64_t highest; /* checkpoint number ever seen in a valid slot */
    uint64_t backed;  /* pages whose slots have blocks */
    uint32_t extent_count;
    zone_id zones[META_EXTENTS_MAX];
    struct page_state *pages[META_EXTENTS_MAX]; /* extent_pages each */
    uint8_t *buf;                               /* WRITE_MAX slots */
    struct dev_req reqs[WRITE_MAX];
};

static struct page_state *
page_of(const struct meta_array *a, uint64_t k)
{
    return &a->pages[k / a->extent_pages][k % a->extent_pages];
}

static uint64_t
slot_offset(const struct meta_array *a, uint64_t k, unsigned slot)
{
    return a->zones_base + a->zones[k / a->extent_pages] * a->zone_bytes +
           (2 * (k % a->extent_pages) + slot) * SLOT_BYTES;
}

/* Never 0, which means nothing. splitmix64's finalizer over the three. */
static uint64_t
slot_hash(uint64_t k, uint64_t number, uint32_t crc)
{
    uint64_t h = k * UINT64_C(0x9e3779b97f4a7c15) + number * UINT64_C(0xd1b54a32d192ed03) + crc;

    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    h ^= h >> 31;
    return h != 0 ? h : 1;
}

static void
slot_encode(const struct meta_array *a, uint64_t k, uint64_t number, const uint8_t *payload,
            uint8_t *slot)
{
    memset(slot, 0, HEADER_BYTES);
    ch_put32(slot + 4, ARRAY_MAGIC);
    ch_put16(slot + 8, ARRAY_VERSION);
    ch_put16(slot + 10, (uint16_t)a->id);
    ch_put64(slot + 16, number);
    ch_put64(slot + 24, k);
    ch_put64(slot + 32, a->db_id);
    memcpy(slot + HEADER_BYTES, payload, META_PAGE_PAYLOAD);
    ch_put32(slot, ch_crc32c(0, slot + 4, SLOT_BYTES - 4));
}

static bool
slot_valid(const struct meta_array *a, uint64_t k, const uint8_t *slot)
{
    return ch_get32(slot + 4) == ARRAY_MAGIC && ch_get16(slot + 8) == ARRAY_VERSION &&
           ch_get16(slot + 10) == (uint16_t)a->id && ch_get64(slot + 24) == k &&
           ch_get64(slot + 32) == a->db_id && ch_get64(slot + 16) != 0 &&
           ch_get32(slot) == ch_crc32c(0, slot + 4, SLOT_BYTES - 4);
}

static int
extent_add(struct meta_array *a, zone_id zone)
{
    struct page_state *pages = calloc(a->extent_pages, sizeof(*pages));

    if (pages == NULL)
        return CH_FAIL(COHORT_ENOMEM, "meta array %d: extent %u", (int)a->id, a->extent_count);
    for (uint64_t i = 0; i < a->extent_pages; i++)
        pages[i].current = SLOT_NONE;
    a->pages[a->extent_count] = pages;
    a->zones[a->extent_count] = zone;
    a->extent_count++;
    return 0;
}

int
meta_array_create(struct dev *d, enum meta_array_id id, const struct meta_root *root,
                  struct meta_array **out)
{
    struct meta_array *a = calloc(1, sizeof(*a));
    int rc = 0;

    if (a == NULL)
        return CH_FAIL(COHORT_ENOMEM, "meta array %d", (int)id);
    a->dev = d;
    a->id = id;
    a->db_id = root->db_id;
    a->zones_base = root->zones_base;
    a->zone_bytes = root->zone_bytes;
    a->extent_pages = meta_extent_pages(root->zone_bytes);
    a->digest = root->digest[id];
    CH_ASSERT(a->extent_pages > 0);
    a->buf = ch_alloc_aligned(WRITE_MAX * SLOT_BYTES);
    if (a->buf == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "meta array %d: buffer", (int)id);
    for (uint32_t i = 0; i < root->extent_count && rc == 0; i++) {
        if (root->extents[i].array == id)
            rc = extent_add(a, root->extents[i].zone);
    }
    if (rc == 0) {
        *out = a;
        a = NULL;
    }
    meta_array_destroy(a);
    return rc;
}

void
meta_array_destroy(struct meta_array *a)
{
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->extent_count; i++)
        free(a->pages[i]);
    ch_free_aligned(a->buf);
    free(a);
}

size_t
meta_array_memory(const struct meta_array *a)
{
    return sizeof(*a) + WRITE_MAX * SLOT_BYTES +
           a->extent_count * a->extent_pages * sizeof(struct page_state);
}

uint64_t
meta_array_highest(const struct meta_array *a)
{
    return a->highest;
}

uint64_t
meta_array_capacity(const struct meta_array *a)
{
    return a->extent_count * a->extent_pages;
}

int
meta_array_extend(struct meta_array *a, zone_id zone, struct meta_root *root)
{
    int rc;

    if (root->extent_count == META_EXTENTS_MAX)
        return CH_FAIL(COHORT_EFULL, "meta array %d: all %d extents of the root are taken",
                       (int)a->id, META_EXTENTS_MAX);
    rc = extent_add(a, zone);
    if (rc != 0)
        return rc;
    root->extents[root->extent_count].zone = zone;
    root->extents[root->extent_count].array = (uint8_t)a->id;
    root->extent_count++;
    return 0;
}

/* ---- load ---- */

static bool
slot_blank(const uint8_t *slot)
{
    for (size_t i = 0; i < SLOT_BYTES; i++) {
        if (slot[i] != 0)
            return false;
    }
    return true;
}

/* Overwrites a slot that no durable root stands for (Y3). `slot` is zeroed memory to write from. */
static int
slot_wipe(struct meta_array *a, uint64_t k, unsigned which, uint8_t *slot)
{
    memset(slot, 0, SLOT_BYTES);
    return dev_write(a->dev, slot_offset(a, k, which), slot, SLOT_BYTES, CH_META);
}

/* Judges both slots of page k, which stand at `slots`; the state says which one is current. */
static int
page_load(struct meta_array *a, uint64_t k, uint64_t checkpoint, uint8_t *slots)
{
    struct page_state *p = page_of(a, k);
    uint64_t best = 0;
    int rc = 0;

    memset(p, 0, sizeof(*p));
    p->current = SLOT_NONE;
    for (unsigned which = 0; which < 2 && rc == 0; which++) {
        uint8_t *slot = slots + which * SLOT_BYTES;
        uint64_t number = ch_get64(slot + 16);

        if (!slot_valid(a, k, slot)) {
            p->damaged = p->damaged || !slot_blank(slot);
            continue;
        }
        a->highest = ch_max_u64(a->highest, number);
        if (number > checkpoint) {
            rc = slot_wipe(a, k, which, slot);
            continue;
        }
        p->hash[which] = slot_hash(k, number, ch_get32(slot));
        if (number > best) { /* Y2 */
            best = number;
            p->current = (uint8_t)which;
        }
    }
    return rc;
}

struct load {
    uint64_t pages, checkpoint;
    int (*visit)(void *arg, uint64_t k, const uint8_t *payload);
    void *arg;
    uint64_t digest, suspect; /* suspect: a page of which a slot was damaged, CH_LSN_MAX = none */
};

/* Reads pages [k, k + n) of one extent. Pages beyond l->pages only count for the highest number. */
static int
chunk_load(struct meta_array *a, struct load *l, uint64_t k, uint64_t n)
{
    int rc = dev_read(a->dev, slot_offset(a, k, 0), a->buf, 2 * n * SLOT_BYTES);

    for (uint64_t i = 0; i < n && rc == 0; i++) {
        struct page_state *p = page_of(a, k + i);
        uint8_t *slots = a->buf + 2 * i * SLOT_BYTES;

        rc = page_load(a, k + i, l->checkpoint, slots);
        if (rc != 0)
            break;
        if (k + i >= l->pages) { /* whatever stands there is of a life that no root tells of */
            memset(p, 0, sizeof(*p));
            p->current = SLOT_NONE;
            continue;
        }
        if (p->current == SLOT_NONE)
            return CH_FAIL(COHORT_EMAP, "meta array %d page %" PRIu64 ": no slot is valid",
                           (int)a->id, k + i);
        if (p->damaged && l->suspect == UINT64_MAX)
            l->suspect = k + i;
        l->digest ^= p->hash[p->current];
        rc = l->visit(l->arg, k + i, slots + p->current * SLOT_BYTES + HEADER_BYTES);
    }
    return rc;
}

static int
digest_check(const struct meta_array *a, const struct load *l)
{
    if (a->digest == 0 || a->digest == l->digest)
        return 0;
    if (l->suspect != UINT64_MAX)
        return CH_FAIL(COHORT_EMAP, "meta array %d page %" PRIu64 ": current slot is damaged (Y4)",
                       (int)a->id, l->suspect);
    return CH_FAIL(COHORT_EMAP, "meta array %d: a page is older than the root says", (int)a->id);
}

int
meta_array_load(struct meta_array *a, uint64_t pages, uint64_t checkpoint,
                int (*visit)(void *arg, uint64_t k, const uint8_t *payload), void *arg)
{
    struct load l = {.pages = pages, .checkpoint = checkpoint, .visit = visit, .arg = arg};
    uint64_t capacity = meta_array_capacity(a);
    int rc = 0;

    l.suspect = UINT64_MAX;
    a->highest = ch_max_u64(a->highest, checkpoint);
    if (pages > capacity)
        return CH_FAIL(COHORT_EMAP, "meta array %d: %" PRIu64 " pages, extents hold %" PRIu64,
                       (int)a->id, pages, capacity);
    for (uint64_t k = 0; k < capacity && rc == 0;) {
        uint64_t n = ch_min_u64(WRITE_MAX / 2, a->extent_pages - k % a->extent_pages);

        rc = chunk_load(a, &l, k, n);
        k += n;
    }
    return rc != 0 ? rc : digest_check(a, &l);
}

/* ---- checkpoint ---- */

int
meta_array_back(struct meta_array *a, uint64_t pages)
{
    CH_ASSERT(pages <= meta_array_capacity(a));
    while (a->backed < pages) {
        uint64_t k = a->backed;
        uint64_t n = ch_min_u64(pages - k, a->extent_pages - k % a->extent_pages);
        int rc = dev_allocate(a->dev, slot_offset(a, k, 0), 2 * n * SLOT_BYTES);

        if (rc != 0)
            return rc;
        a->backed += n;
    }
    return 0;
}

uint64_t
meta_array_backed(const struct meta_array *a)
{
    return a->backed;
}

static unsigned
slot_spare(const struct page_state *p)
{
    return (p->current == 0) != CH_BUG(ARRAY_IN_PLACE) ? 1 : 0;
}

int
meta_array_write(struct meta_array *a, uint64_t number, const uint64_t *ks, unsigned n,
                 const uint8_t *payloads)
{
    int rc;

    CH_ASSERT(n <= WRITE_MAX && number > 0);
    memset(a->reqs, 0, n * sizeof(a->reqs[0]));
    for (unsigned i = 0; i < n; i++) {
        uint8_t *slot = a->buf + i * SLOT_BYTES;
        struct dev_req *r = &a->reqs[i];

        CH_ASSERT(ks[i] < meta_array_capacity(a));
        slot_encode(a, ks[i], number, payloads + (size_t)i * META_PAGE_PAYLOAD, slot);
        r->op = DEV_WRITE;
        r->off = slot_offset(a, ks[i], slot_spare(page_of(a, ks[i]))); /* Y1 */
        r->len = SLOT_BYTES;
        r->buf = slot;
        r->split[CH_META] = SLOT_BYTES;
    }
    rc = dev_io(a->dev, a->reqs, n);
    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        struct page_state *p = page_of(a, ks[i]);

        p->hash[slot_spare(p)] = slot_hash(ks[i], number, ch_get32(a->buf + i * SLOT_BYTES));
        p->pending = number;
    }
    a->highest = ch_max_u64(a->highest, number);
    return 0;
}

static bool
becomes_current(const struct page_state *p, uint64_t number)
{
    return p->pending != 0 && p->pending <= number;
}

uint64_t
meta_array_digest(const struct meta_array *a, uint64_t number)
{
    uint64_t digest = 0;

    for (uint64_t k = 0; k < meta_array_capacity(a); k++) {
        const struct page_state *p = page_of(a, k);

        if (becomes_current(p, number))
            digest ^= p->hash[slot_spare(p)];
        else if (p->current != SLOT_NONE)
            digest ^= p->hash[p->current];
    }
    return digest;
}

void
meta_array_commit(struct meta_array *a, uint64_t number)
{
    for (uint64_t k = 0; k < meta_array_capacity(a); k++) {
        struct page_state *p = page_of(a, k);

        if (becomes_current(p, number)) {
            p->current = (uint8_t)slot_spare(p);
            p->pending = 0;
        }
    }
}
