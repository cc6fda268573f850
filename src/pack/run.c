/* run.c - runs of slots; see run.h.
 *
 * Invariants:
 *   U1  images of a run do not overlap, none leaves it, and every byte of it is defined.
 *   U2  n images take at most n slots: an image has at most 4080 bytes and 4 in the head.
 *   U3  with carry, at least half of the items are stored (K5 of pack.c).
 *   U4  pack_run_images() reads nothing outside of the slots that it was given.
 */
#include "pack/run.h"

enum {
    RUN_VERSION = 1,
    RUN_MAGIC = 0xC05E,
    RUN_ENTRY = 4,
    RUN_HEAD = 12, /* before the entries */
    RUN_CRC_BYTES = 4,
    IMAGE_CRC_OFF = 14,
    IMAGE_LEAST = PACK_IMAGE_HEADER + 8,
};

static uint32_t
head_bytes(unsigned count)
{
    return (uint32_t)ch_round_up(RUN_HEAD + RUN_ENTRY * count, PACK_STEP);
}

/* ---- fit ---- */

/* Slots that follow one another where the next run begins. */
static unsigned
contiguous(const struct run_plan *p, unsigned slot)
{
    if (slot < p->first)
        return p->first - slot;
    return p->each - (slot - p->first) % p->each;
}

/* A run out of items that are not taken yet, those of `order` that still fit in; returns their bytes. */
static uint64_t
run_fill(struct run_plan *p, struct run *r, const struct pack_item *items, const uint16_t *order,
         unsigned n, bool *taken)
{
    uint64_t used = 0;

    for (unsigned k = 0; k < n && r->count < PACK_RUN_IMAGES_MAX; k++) {
        uint32_t bytes = items[order[k]].bytes;

        if (taken[k] ||
            head_bytes(r->count + 1U) + used + bytes > (uint64_t)r->slots * CH_SLOT_BYTES)
            continue;
        taken[k] = true;
        used += bytes;
        p->sequence[r->first + r->count++] = order[k];
    }
    return used;
}

/* The last run gives up its last slot if that is nearly empty and enough is stored without (U3). */
static unsigned
carry_last(struct run_plan *p, struct pack_item *items, unsigned n, unsigned stored)
{
    struct run *r = &p->runs[p->count - 1];
    uint64_t used = head_bytes(r->count), limit = (uint64_t)(r->slots - 1U) * CH_SLOT_BYTES;
    unsigned keep = r->count;

    for (unsigned i = 0; i < r->count; i++)
        used += items[p->sequence[r->first + i]].bytes;
    if (r->raw || used >= limit + CH_SLOT_BYTES * 3 / 4)
        return 0;
    for (; keep > 0 && used > limit; keep--)
        used -= items[p->sequence[r->first + keep - 1U]].bytes +
                (head_bytes(keep) - head_bytes(keep - 1U));
    if (2 * (stored - (r->count - keep)) < n)
        return 0;
    for (unsigned i = keep; i < r->count; i++)
        items[p->sequence[r->first + i]].carried = true;
    r->count = (uint16_t)keep;
    r->slots--;
    if (r->slots == 0)
        p->count--;
    return 1;
}

static void
place_images(const struct run_plan *p, struct pack_item *items)
{
    for (unsigned i = 0; i < p->count; i++) {
        const struct run *r = &p->runs[i];
        uint32_t at = r->raw ? 0 : head_bytes(r->count);

        for (unsigned k = 0; k < r->count; k++) {
            struct pack_item *it = &items[p->sequence[r->first + k]];

            it->slot = r->slot + at / CH_SLOT_BYTES;
            it->offset = at % CH_SLOT_BYTES;
            at += it->bytes;
        }
        CH_ASSERT(at <= (uint32_t)r->slots * CH_SLOT_BYTES); /* U1 */
    }
}

unsigned
run_fit(struct run_plan *p, struct pack_item *items, const uint16_t *order, unsigned n, bool carry)
{
    bool taken[CH_BATCH_MAX] = {false};
    uint64_t bytes = 0;
    unsigned done = 0, slot = 0;

    p->count = 0;
    for (unsigned k = 0; k < n; k++)
        bytes += items[order[k]].bytes;
    for (; done < n && items[order[done]].bytes == CH_SLOT_BYTES;
         done++) { /* raw pages come first */
        p->runs[p->count++] = (struct run){(uint16_t)done, 1, (uint16_t)slot++, 1, true};
        p->sequence[done] = order[done];
        taken[done] = true;
        bytes -= CH_SLOT_BYTES;
    }
    while (done < n) {
        struct run *r = &p->runs[p->count++];
        uint64_t want = bytes + head_bytes((unsigned)ch_min_u64(n - done, PACK_RUN_IMAGES_MAX));

        *r = (struct run){.first = (uint16_t)done, .slot = (uint16_t)slot};
        r->slots = (uint8_t)ch_min_u64(ch_div_up(want, CH_SLOT_BYTES),
                                       ch_min_u64(p->max, contiguous(p, slot)));
        bytes -= run_fill(p, r, items, order, n, taken);
        done += r->count;
        slot += r->slots;
    }
    if (carry && p->count > 0)
        slot -= carry_last(p, items, n, n);
    place_images(p, items);
    memset(p->run_slots, 0, sizeof(p->run_slots));
    for (unsigned i = 0; i < p->count; i++)
        p->run_slots[p->runs[i].slot] = p->runs[i].slots;
    return slot;
}

/* ---- emit ---- */

static uint32_t
head_crc(const uint8_t *run, unsigned count)
{
    uint32_t crc = ch_crc32c(0, run + RUN_CRC_BYTES, head_bytes(count) - RUN_CRC_BYTES);

    for (unsigned i = 0; i < count; i++) {
        uint32_t off = ch_get16(run + RUN_HEAD + (size_t)i * RUN_ENTRY) * (uint32_t)PACK_STEP;

        crc = ch_crc32c(crc, run + off + IMAGE_CRC_OFF, RUN_CRC_BYTES);
    }
    return crc;
}

static void
emit_run(const struct run_plan *p, const struct run *r, const struct pack_item *items,
         const uint8_t *const *src, uint8_t *run)
{
    uint32_t at = r->raw ? 0 : head_bytes(r->count);

    memset(run, 0, at);
    for (unsigned k = 0; k < r->count; k++) {
        unsigned i = p->sequence[r->first + k];
        uint8_t *entry = run + RUN_HEAD + (size_t)k * RUN_ENTRY;

        memcpy(run + at, src[i], items[i].bytes);
        if (!r->raw) {
            ch_put16(entry, (uint16_t)(at / PACK_STEP));
            ch_put16(entry + 2, (uint16_t)(items[i].bytes / PACK_STEP));
        }
        at += items[i].bytes;
    }
    memset(run + at, 0, (size_t)r->slots * CH_SLOT_BYTES - at);
    if (r->raw)
        return;
    ch_put16(run + 4, RUN_MAGIC);
    run[6] = RUN_VERSION;
    run[7] = r->slots;
    ch_put16(run + 8, r->count);
    ch_put32(run, head_crc(run, r->count));
}

void
run_emit(const struct run_plan *p, const struct pack_item *items, const uint8_t *const *src,
         uint8_t *slots)
{
    for (unsigned i = 0; i < p->count; i++)
        emit_run(p, &p->runs[i], items, src, slots + (size_t)p->runs[i].slot * CH_SLOT_BYTES);
}

/* ---- decode ---- */

/* Whether the entries lie within the run, in order. */
static bool
entries_fit(const uint8_t *run, unsigned count, unsigned slots)
{
    uint32_t end = head_bytes(count);

    for (unsigned i = 0; i < count; i++) {
        const uint8_t *e = run + RUN_HEAD + (size_t)i * RUN_ENTRY;
        uint32_t off = ch_get16(e) * (uint32_t)PACK_STEP;
        uint32_t len = ch_get16(e + 2) * (uint32_t)PACK_STEP;

        if (off < end || len < IMAGE_LEAST || len > PACK_IMAGE_MAX ||
            off + len > slots * (uint32_t)CH_SLOT_BYTES)
            return false;
        end = off + len;
    }
    return true;
}

unsigned
pack_run_slots(const void *slot)
{
    const uint8_t *run = slot;
    unsigned slots = run[7];

    if (ch_get16(run + 4) != RUN_MAGIC || run[6] != RUN_VERSION || slots == 0 ||
        slots > PACK_RUN_SLOTS_MAX)
        return 0;
    return slots;
}

unsigned
pack_run_images(const void *run_slots, unsigned slots, uint32_t *offs, uint32_t *lens)
{
    const uint8_t *run = run_slots;
    unsigned count = ch_get16(run + 8);

    if (pack_run_slots(run) == 0 || pack_run_slots(run) != slots || count == 0 ||
        count > PACK_RUN_IMAGES_MAX || !entries_fit(run, count, slots) ||
        ch_get32(run) != head_crc(run, count))
        return 0;
    for (unsigned i = 0; i < count; i++) {
        const uint8_t *e = run + RUN_HEAD + (size_t)i * RUN_ENTRY;

        offs[i] = ch_get16(e) * (uint32_t)PACK_STEP;
        lens[i] = ch_get16(e + 2) * (uint32_t)PACK_STEP;
    }
    return count;
}
