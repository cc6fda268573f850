/* store_read.c - reading pages by id: a base, and where there is one a delta on top of it.
 *
 *     map --> base, delta --pin--> zones --one vector--> slot of the base, slot of the delta --> page, checked
 *
 * Invariants:
 *   R17 a reader pins the zones of all that it is going to read and then reads the map again: unchanged means that no slot
 *       of it can be reset. So base and delta are of one moment (map.c, M6).
 *   Q1  a page costs at most two reads of 4 KiB, in parallel; one when both images lie in one slot.
 *
 * Locks: none. Threads: any; a reader never waits for another.
 */
#include "base/bug.h"
#include "store/store_internal.h"

#include <inttypes.h>

#include "page/page.h"

enum {
    READ_DELTAS = 8 /* slots of deltas that one vector reads: they are on the stack */
};

/* What is to be read for a page, pinned. */
struct read_page {
    page_id pid;
    uint8_t *buf; /* receives the slot of the base, then the page */
    place_t base, delta;
    zone_id base_zone, delta_zone; /* CH_ZONE_NONE = not pinned */
    unsigned delta_slot;           /* index among the slots of deltas that were read */
    bool delta_here;               /* it was in memory */
};

static int
pin(struct store *s, page_id pid, place_t p, zone_id *zone)
{
    zone_id z = store_zone_of(s, p);

    if (z == CH_ZONE_NONE)
        return store_place_check(s, pid, p);
    /* In place a home slot is never reset: nothing to pin. */
    *zone = s->cfg.kind == STORE_INPLACE ? CH_ZONE_NONE : z;
    if (*zone != CH_ZONE_NONE)
        zone_pin(s->zones, z);
    return 0;
}

static void
read_unpin(struct store *s, const struct read_page *r)
{
    if (r->base_zone != CH_ZONE_NONE)
        zone_unpin(s->zones, r->base_zone);
    if (r->delta_zone != CH_ZONE_NONE)
        zone_unpin(s->zones, r->delta_zone);
}

/* R17. NOTFOUND: the page has no image. */
static int
read_pin(struct store *s, struct read_page *r)
{
    map_get_both(s->map, r->pid, &r->base, &r->delta);
    for (;;) {
        place_t base, delta;
        int rc;

        r->base_zone = r->delta_zone = CH_ZONE_NONE;
        if (r->base == PLACE_NONE)
            return CH_FAIL(COHORT_NOTFOUND, "page %" PRIu64 " has no image", r->pid);
        rt_point();
        rc = pin(s, r->pid, r->base, &r->base_zone);
        if (rc == 0 && r->delta != PLACE_NONE)
            rc = pin(s, r->pid, r->delta, &r->delta_zone);
        map_get_both(s->map, r->pid, &base, &delta);
        if (rc == 0 && ((base == r->base && delta == r->delta) || CH_BUG(R17_NO_SECOND_LOOK)))
            return 0;
        read_unpin(s, r);
        if (rc != 0)
            return rc;
        r->base = base;
        r->delta = delta;
    }
}

/* A decompression context, or NULL when the codec needs none or all are taken: nobody waits. */
static struct packer *
reader_get(struct store *s, unsigned *index)
{
    uint32_t bits = atomic_load_explicit(&s->readers_free, memory_order_relaxed);

    while (bits != 0) {
        unsigned i = (unsigned)__builtin_ctz(bits);

        /* Acquire: partner is the release in reader_put(). */
        if (atomic_compare_exchange_weak_explicit(&s->readers_free, &bits, bits & ~(1U << i),
                                                  memory_order_acquire, memory_order_relaxed)) {
            *index = i;
            return s->readers[i];
        }
    }
    return NULL;
}

static void
reader_put(struct store *s, struct packer *p, unsigned index)
{
    if (p != NULL)
        atomic_fetch_or_explicit(&s->readers_free, 1U << index, memory_order_release);
}

int
store_decode(struct store *s, struct packer *p, page_id pid, place_t place, const uint8_t *image,
             void *page)
{
    uint8_t slot[CH_SLOT_BYTES] __attribute__((aligned(16)));
    uint32_t bytes = place_bytes(place);
    int rc = store_place_check(s, pid, place);

    if (rc != 0)
        return rc;
    memcpy(slot, image,
           bytes); /* of a run, it may lie where a slot has its directory, or across slots */
    return pack_unpack(p, slot, 0, bytes, pid, page);
}

/* `buf` holds the slot of `p` and receives the full image that stands there. */
static int
read_decode(struct store *s, page_id pid, place_t p, void *buf)
{
    struct packer *reader;
    unsigned index = 0;
    int rc;

    if (place_bytes(p) == CH_SLOT_BYTES)
        return page_check(buf, pid);
    reader = reader_get(s, &index);
    rc = store_decode(s, reader, pid, p, (const uint8_t *)buf + place_offset(p), buf);
    reader_put(s, reader, index);
    return rc;
}

/* The page out of what was read; `delta` is the slot of its delta, if it has one. */
static int
read_merge(struct store *s, const struct read_page *r, const uint8_t *delta,
           struct store_origin *origin)
{
    uint64_t mask = 0;
    int rc = read_decode(s, r->pid, r->base, r->buf);

    if (rc != 0)
        return rc;
    if (origin != NULL)
        origin->base_lsn = store_deltas(s) ? page_lsn(r->buf) : 0;
    if (r->delta != PLACE_NONE)
        rc = pack_delta_apply(delta + place_offset(r->delta), 0, place_bytes(r->delta), r->pid,
                              r->buf, &mask);
    if (origin != NULL)
        origin->mask = CH_BUG(DELTA_MASK_LOST) ? 0 : mask;
    return rc;
}

static struct dev_req
read_request(place_t p, void *buf)
{
    return (struct dev_req){
        .op = DEV_READ,
        .off = store_slot_off(place_slot(p)),
        .len = CH_SLOT_BYTES,
        .buf = buf,
        .rc = COHORT_ERETRY, /* stays when no queue could be had */
    };
}

static bool
needs_second(const struct read_page *r)
{
    return r->delta != PLACE_NONE && !r->delta_here && place_slot(r->delta) != place_slot(r->base);
}

/* Reads n pinned pages, of which at most READ_DELTAS have a delta, in one vector; unpins them. */
static void
read_vector(struct store *s, struct read_page *pages, int *const *rcs,
            struct store_origin *const *origins, unsigned n)
{
    uint8_t deltas[READ_DELTAS][CH_SLOT_BYTES] __attribute__((aligned(CH_SLOT_BYTES)));
    struct dev_req reqs[STORE_READ_MANY + READ_DELTAS];
    unsigned second[READ_DELTAS]; /* slot of a delta -> its request */
    unsigned k = 0, d = 0;
    int rc;

    for (unsigned i = 0; i < n; i++)
        reqs[k++] = read_request(pages[i].base, pages[i].buf);
    for (unsigned i = 0; i < n; i++) {
        if (pages[i].delta == PLACE_NONE)
            continue;
        pages[i].delta_slot = d;
        second[d] = i;
        pages[i].delta_here = delta_cache_get(s, pages[i].pid, pages[i].delta, deltas[d]);
        store_count(&s->delta_memory_hits, pages[i].delta_here);
        if (needs_second(&pages[i])) {
            second[d] = k;
            reqs[k++] = read_request(pages[i].delta, deltas[d]);
        }
        d++;
    }
    store_count(&s->delta_reads, k - n);
    rc = dev_io(s->cfg.dev, reqs, k);
    for (unsigned i = 0; i < n; i++) {
        struct read_page *r = &pages[i];
        int *out = rcs[i];

        read_unpin(s, r);
        *out = reqs[i].rc == COHORT_ERETRY ? rc : reqs[i].rc;
        if (*out == 0 && r->delta != PLACE_NONE) {
            *out = reqs[second[r->delta_slot]].rc == COHORT_ERETRY ? rc
                                                                   : reqs[second[r->delta_slot]].rc;
            if (!r->delta_here && !needs_second(r))
                memcpy(deltas[r->delta_slot], r->buf, CH_SLOT_BYTES);
        }
        if (*out == 0)
            *out =
                read_merge(s, r, r->delta != PLACE_NONE ? deltas[r->delta_slot] : NULL, origins[i]);
    }
}

static bool
any_crosses(const struct read_page *r)
{
    return place_crosses(r->base) || place_crosses(r->delta);
}

/* Checks the place and asks for the slots that it touches. */
static int
request_slots(struct store *s, page_id pid, place_t p, void *buf, struct dev_req *req)
{
    *req = read_request(p, buf);
    if (place_crosses(p))
        req->len = (size_t)2 * CH_SLOT_BYTES;
    return store_place_check(s, pid, p);
}

/* A pinned page of which an image lies in two slots: each image in one request; unpins it. */
static int
read_alone(struct store *s, struct read_page *r, struct store_origin *origin)
{
    uint8_t base[2 * CH_SLOT_BYTES] __attribute__((aligned(CH_SLOT_BYTES)));
    uint8_t delta[2 * CH_SLOT_BYTES] __attribute__((aligned(CH_SLOT_BYTES)));
    struct read_page slot = *r; /* the base as if its slot began with it */
    struct dev_req reqs[2];
    unsigned n = 1;
    int rc = request_slots(s, r->pid, r->base, base, &reqs[0]);

    if (rc == 0 && r->delta != PLACE_NONE)
        rc = request_slots(s, r->pid, r->delta, delta, &reqs[n++]);
    if (rc == 0)
        rc = dev_io(s->cfg.dev, reqs, n);
    store_count(&s->delta_reads, n - 1);
    read_unpin(s, r);
    if (rc != 0)
        return rc;
    memcpy(r->buf, base + place_offset(r->base), place_bytes(r->base));
    slot.base = place_make(place_slot(r->base), 0, place_bytes(r->base));
    return read_merge(s, &slot, delta, origin);
}

int
store_read_from(struct store *s, page_id pid, void *buf, struct store_origin *origin)
{
    struct read_page r = {.pid = pid, .buf = buf};
    int rc = read_pin(s, &r);
    int *out = &rc;

    if (rc == 0 && any_crosses(&r))
        return read_alone(s, &r, origin);
    if (rc == 0)
        read_vector(s, &r, &out, &origin, 1);
    return rc;
}

int
store_read(struct store *s, page_id pid, void *buf)
{
    return store_read_from(s, pid, buf, NULL);
}

void
store_read_many(struct store *s, const page_id *pids, void *const *bufs, int *rcs,
                struct store_origin *origins, unsigned n)
{
    struct read_page pages[STORE_READ_MANY];
    int *out[STORE_READ_MANY];
    struct store_origin *from[STORE_READ_MANY];
    unsigned k = 0, deltas = 0;

    CH_ASSERT(n <= STORE_READ_MANY);
    for (unsigned i = 0; i < n; i++) {
        struct read_page *r = &pages[k];

        *r = (struct read_page){.pid = pids[i], .buf = bufs[i]};
        rcs[i] = read_pin(s, r);
        if (rcs[i] != 0)
            continue;
        if (any_crosses(r)) { /* there is no memory for the second slots of many */
            rcs[i] = read_alone(s, r, origins != NULL ? &origins[i] : NULL);
            continue;
        }
        out[k] = &rcs[i];
        from[k++] = origins != NULL ? &origins[i] : NULL;
        deltas += r->delta != PLACE_NONE;
        if (deltas == READ_DELTAS) {
            read_vector(s, pages, out, from, k);
            k = deltas = 0;
        }
    }
    if (k > 0)
        read_vector(s, pages, out, from, k);
}
