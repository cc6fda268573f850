/* dev_sim_cut.c - what a simulated drive holds, what its volatile cache remembers, and what a power cut
 * leaves. dev_sim.c has the picture and the invariants. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/dev_sim_internal.h"

enum {
    SECTOR_BYTES = 512,
    BLOCK_SECTORS = DEV_BLOCK_BYTES / SECTOR_BYTES,
};

/* ---- contents ---- */

int
sim_contents_read(const struct sim_drive *s, uint64_t off, void *buf, size_t len)
{
    if (s->fd < 0) {
        memcpy(buf, s->mem + off, len);
        return 0;
    }
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(s->fd, (uint8_t *)buf + done, len - done, (off_t)(off + done));

        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? EIO : errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int
sim_contents_write(struct sim_drive *s, uint64_t off, const void *buf, size_t len)
{
    uint64_t first = off / DEV_BLOCK_BYTES, end = ch_div_up(off + len, DEV_BLOCK_BYTES);

    memset(s->filled + first, 1, end - first);
    if (s->fd < 0) {
        memcpy(s->mem + off, buf, len);
        return 0;
    }
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(s->fd, (const uint8_t *)buf + done, len - done, (off_t)(off + done));

        if (n < 0 && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int
sim_contents_zero(struct sim_drive *s, uint64_t off, uint64_t len)
{
    static const uint8_t ZERO[DEV_BLOCK_BYTES];
    int e = 0;

    if (s->fd < 0)
        e = madvise(s->mem + off, len, MADV_DONTNEED) == 0 ? 0 : errno;
    else if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) !=
             0)
        for (uint64_t at = off; at < off + len && e == 0; at += DEV_BLOCK_BYTES)
            e = sim_contents_write(s, at, ZERO, sizeof(ZERO));
    if (e == 0)
        memset(s->filled + off / DEV_BLOCK_BYTES, 0, len / DEV_BLOCK_BYTES);
    return e;
}

/* ---- volatile cache ---- */

static uint8_t *
saved_block(const struct sim_drive *s, uint32_t slot)
{
    return s->saved + (uint64_t)slot * DEV_BLOCK_BYTES;
}

/* The oldest saved version has reached the flash: its successor is what a cut can't go behind. */
static void
version_drop_oldest(struct sim_drive *s)
{
    struct version *v = &s->versions[s->version_first];

    CH_ASSERT(v->older == 0); /* V1 */
    if (v->newer != 0)
        s->versions[v->newer - 1].older = 0;
    else
        s->head[v->block] = 0;
    s->version_first = (s->version_first + 1) % s->version_slots;
    s->version_count--;
}

static void
version_drop_all(struct sim_drive *s)
{
    for (uint32_t i = 0; i < s->version_count; i++)
        s->head[s->versions[(s->version_first + i) % s->version_slots].block] = 0;
    s->version_first = 0;
    s->version_count = 0;
}

void
sim_versions_forget(struct sim_drive *s, uint64_t mark)
{
    while (s->version_count > 0 && s->versions_made - s->version_count < mark)
        version_drop_oldest(s);
    if (s->version_count == 0)
        s->version_first = 0; /* memory that has been touched is used again */
}

/* Saves what the contents of a block are, before they change. */
static int
version_save(struct sim_drive *s, uint32_t block)
{
    uint32_t slot, older;
    int e;

    if (s->version_count == s->version_slots)
        version_drop_oldest(s);
    slot = (s->version_first + s->version_count) % s->version_slots;
    e = sim_contents_read(s, (uint64_t)block * DEV_BLOCK_BYTES, saved_block(s, slot),
                          DEV_BLOCK_BYTES);
    if (e != 0)
        return e;
    older = s->head[block];
    s->versions[slot] = (struct version){.block = block, .older = older};
    if (older != 0)
        s->versions[older - 1].newer = slot + 1;
    s->head[block] = slot + 1;
    s->version_count++;
    s->versions_made++;
    return 0;
}

int
sim_versions_save(struct sim_drive *s, uint64_t off, uint64_t len, bool reset)
{
    uint64_t first = off / DEV_BLOCK_BYTES;
    int e = 0;

    if (s->versions == NULL)
        return 0;
    for (uint64_t b = first; b < first + len / DEV_BLOCK_BYTES && e == 0; b++) {
        if (!reset || s->filled[b] != 0) /* resetting zeroes changes nothing */
            e = version_save(s, (uint32_t)b);
    }
    return e;
}

/* ---- power cut ---- */

enum outcome {
    KEEP,
    ROLL_BACK,
    TEAR,
    GARBLE,
    OUTCOMES
};

/* Cuts differ in kind, or long runs of kept, or of lost, blocks would hardly ever be seen. */
static enum outcome
draw_outcome(struct ch_prng *rng, uint64_t mood)
{
    static const uint8_t PERCENT[][OUTCOMES] = {
        {25, 25, 25, 25}, {50, 50, 0, 0}, {94, 2, 2, 2}, {2, 94, 2, 2}};
    uint64_t draw = ch_prng_below(rng, 100), sum = 0;

    for (int o = KEEP; o < GARBLE; o++) {
        sum += PERCENT[mood][o];
        if (draw < sum)
            return (enum outcome)o;
    }
    return GARBLE;
}

/* Any of the versions saved of the block whose newest one is `slot`. */
static const uint8_t *
draw_version(const struct sim_drive *s, struct ch_prng *rng, uint32_t slot)
{
    uint64_t n = 1, pick;

    for (uint32_t v = slot; s->versions[v].older != 0; v = s->versions[v].older - 1)
        n++;
    for (pick = ch_prng_below(rng, n); pick > 0; pick--)
        slot = s->versions[slot].older - 1;
    return saved_block(s, slot);
}

/* What the cut leaves of one block. */
static void
crash_block(struct sim_drive *s, struct ch_prng *rng, uint64_t mood, uint32_t slot)
{
    uint64_t off = (uint64_t)s->versions[slot].block * DEV_BLOCK_BYTES;
    enum outcome o = draw_outcome(rng, mood);
    uint8_t block[DEV_BLOCK_BYTES];
    const uint8_t *old = draw_version(s, rng, slot);
    uint64_t mask = 1 + ch_prng_below(rng, (1 << BLOCK_SECTORS) - 1); /* sectors that are hit */
    int e;

    if (s->untorn && o > ROLL_BACK)
        o = ROLL_BACK;
    if (o == KEEP)
        return;
    e = sim_contents_read(s, off, block, sizeof(block));
    CH_ASSERT(e == 0); /* else the test would go on with a drive that did not crash as drawn */
    for (int i = 0; i < BLOCK_SECTORS; i++) {
        uint8_t *sector = block + i * SECTOR_BYTES;

        if (o == ROLL_BACK || (o == TEAR && (mask >> i & 1) != 0))
            memcpy(sector, old + i * SECTOR_BYTES, SECTOR_BYTES);
        else if (o == GARBLE && (mask >> i & 1) != 0)
            ch_prng_fill(rng, sector, SECTOR_BYTES);
    }
    e = sim_contents_write(s, off, block, sizeof(block));
    CH_ASSERT(e == 0);
}

/* ---- power cut of zones ---- */

/* What a cut leaves of each zone: lost[z] = the first page, from the zone's begin, that was written since
 * the last flush (or the pointer, when all is flushed): V5. */
static void
zones_unflushed(const struct sim_drive *s, uint32_t *lost)
{
    for (uint32_t z = 0; z < s->zones.zones; z++) {
        struct ssd_zone zone;

        ssd_zns_report(s->zns, z, &zone);
        lost[z] = zone.written;
    }
    for (uint32_t i = 0; i < s->version_count; i++) {
        uint32_t slot = (s->version_first + i) % s->version_slots;
        uint64_t off = (uint64_t)s->versions[slot].block * DEV_BLOCK_BYTES;
        uint32_t z, page;

        if (!sim_is_zoned(s, off))
            continue;
        z = sim_zone_of(s, off);
        page = (uint32_t)((off - sim_zone_off(s, z)) / DEV_BLOCK_BYTES);
        if (page < lost[z])
            lost[z] = page;
    }
}

static void
zones_crash(struct sim_drive *s, struct ch_prng *rng)
{
    uint32_t *lost = calloc(s->zones.zones, sizeof(*lost));

    CH_ASSERT(lost !=
              NULL); /* else the test would go on with a drive that did not crash as drawn */
    zones_unflushed(s, lost);
    for (uint32_t z = 0; z < s->zones.zones; z++) {
        uint64_t end = sim_zone_off(s, z) + (uint64_t)s->zones.zone_pages * DEV_BLOCK_BYTES, from;
        struct ssd_zone zone;
        uint32_t keep = 0;
        int e;

        ssd_zns_report(s->zns, z, &zone);
        if (lost[z] < zone.written &&
            ch_prng_below(rng, 4) != 0) /* in 1 of 4 cases nothing is kept */
            keep = (uint32_t)ch_prng_below(rng, zone.written - lost[z] + 1);
        ssd_zns_cut(s->zns, z, lost[z] + keep);
        ssd_zns_report(s->zns, z, &zone);
        from = sim_zone_off(s, z) + (uint64_t)zone.written * DEV_BLOCK_BYTES;
        e = zone.state == SSD_ZONE_FULL || from == end ? 0 : sim_contents_zero(s, from, end - from);
        CH_ASSERT(e == 0);
    }
    free(lost);
}

void
sim_drive_crash(struct sim_drive *s, uint64_t seed)
{
    struct ch_prng rng;
    uint64_t mood;

    ch_prng_init(&rng, seed ^ s->seed * UINT64_C(0x9e3779b97f4a7c15));
    mood = ch_prng_below(&rng, 4);
    rt_lock(&s->lock);
    s->generation++; /* V4 */
    s->open = NULL;
    for (uint32_t i = 0; i < s->version_count; i++) {
        uint32_t slot = (s->version_first + i) % s->version_slots;

        if (s->versions[slot].newer == 0 && /* once a block */
            !sim_is_zoned(s, (uint64_t)s->versions[slot].block * DEV_BLOCK_BYTES))
            crash_block(s, &rng, mood, slot);
    }
    if (s->zns != NULL)
        zones_crash(s, &rng);
    if (s->versions != NULL)
        version_drop_all(s);
    rt_unlock(&s->lock);
}
