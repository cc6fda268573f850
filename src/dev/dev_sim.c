/* dev_sim.c - a simulated drive: contents, a flash model that counts, and a cache that a power cut
 * hits. This file has the requests; dev_sim_cut.c contents, cache and power cut, dev_sim_ctl.c
 * placement handles and zones, dev_sim_drive.c the making.
 *
 * Contents lie in lazily allocated memory or, with file=PATH, in a file of the drive's size, where
 * they outlive the process. The flash model (ssd.h) is told of every write and reset. It is not
 * kept in the file: when a drive opens on one, the ranges that hold data count as written once, in
 * order, and that fill is taken off the counters.
 *
 * The volatile cache is kept backwards: the contents hold the newest bytes, and each write of a 4
 * KiB block first saves what it replaces. Saved versions stand in a ring in the order of their
 * making and are chained by block:
 *
 *     contents (newest)    head[block] -> newest saved -> ... -> oldest saved (on the flash)
 *
 * FLUSH forgets them all. When the ring is full the oldest version is forgotten alone: a cache of
 * finite size, writing back in order of arrival. A power cut walks the chains and draws for each
 * block: keep the contents, put a saved version back, mix the two by 512-byte sectors, or garble.
 *
 * Requests are carried out in dev_wait(). A FLUSH forgets the versions that were saved before it was
 * submitted and no later ones, because it covers only what *completed* before: a caller that does not
 * wait in between finds its write lost after a cut. A write that was submitted and never waited for
 * does not happen. With timing (sim_drive_set_timing) the requests of a vector complete in two waves
 * after sleeping, in an order drawn from a seed, and a power cut in between leaves some of them done.
 *
 * Zones (ssd_zns.h) lie behind a conventional part, which is an ordinary drive of its own. A write that
 * is not at its zone's pointer fails; an append is a write at the pointer. The pointer is as volatile as
 * what was written: a power cut leaves each zone a length between what was flushed and what was
 * written, the contents below it whole and zeroes above. A reset or a finish is durable at once.
 *
 * The model's own time (timing=virtual or real, ssd_timing.h): each request is told to the model with
 * the time of its submission, under the lock and in the order of execution. Virtual: that time is the
 * calling thread's clock (dev.h), which dev_wait() moves on. Real: it is rt_now_ns(), and dev_wait()
 * sleeps until the last completion.
 *
 * Invariants:
 *   V1  chains are ordered by age; so the oldest version in the ring ends the chain of its block.
 *   V2  head[b] names the newest saved version of b that is in the ring, 0 = there is none and the
 *       contents are on the flash.
 *   V3  a block that may hold anything but zeroes has filled[b] set.
 *   V4  a handle whose generation is not the drive's is dead: its requests fail and touch nothing.
 *   V5  the unflushed pages of a zone are those from the lowest one in the ring on: after a reset the
 *       zone is written from its begin, so versions older than the reset only repeat what newer ones say.
 *
 * Locks: drive.lock (rank DEV), held for one request at a time. Crash (of the process): with
 * file= what was written is there, flushed or not, as far as the kernel lives on.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dev/dev_sim_internal.h"

struct sim_batch {
    struct dev_batch b;
    uint64_t flush_mark; /* versions_made when it was submitted */
    uint64_t at;         /* the model's time when it was */
};

struct sim_queue {
    struct sim_batch todo[DEV_BATCHES_MAX];
    unsigned todo_count;
    uint64_t end; /* latest completion in the model's time; lock of the drive */
};

/* ---- the model's own time ---- */

static uint64_t
clock_now(const struct sim_drive *s)
{
    const struct dev_clock *c = dev_clock();

    if (s->clock == NULL)
        return 0;
    if (s->clock_real)
        return rt_now_ns();
    return c->client || s->client_ns == 0 ? c->ns : s->client_ns;
}

/* The calling thread has waited for its requests. */
static void
clock_settle(struct sim_drive *s, struct sim_queue *q)
{
    struct dev_clock *c = dev_clock();
    uint64_t now;

    if (s->clock == NULL || s->clock_real)
        c->background = 0;
    if (s->clock == NULL || q->end == 0)
        return;
    if (s->clock_real) {
        now = rt_now_ns();
        if (q->end > now)
            rt_sleep_ns(q->end - now);
    } else {
        c->ns = ch_max_u64(c->ns, q->end);
        rt_lock(&s->lock);
        if (!c->client)
            s->background_ns = ch_max_u64(s->background_ns, q->end);
        c->background = s->background_ns;
        rt_unlock(&s->lock);
    }
    q->end = 0;
}

static uint64_t
clock_read(struct sim_drive *s, const struct dev_req *r, uint64_t at)
{
    uint64_t first = r->off / DEV_BLOCK_BYTES, end = at;
    uint32_t last = UINT32_MAX;

    for (uint64_t b = first; b < first + r->len / DEV_BLOCK_BYTES; b++) {
        uint32_t place = sim_is_zoned(s, r->off)
                             ? (uint32_t)(b - s->conventional_bytes / DEV_BLOCK_BYTES)
                             : ssd_place(s->ssd, b);

        end = ch_max_u64(end, ssd_timing_read(s->clock, at, place, last));
        last = place;
    }
    return end;
}

/* When a request without pages to program completes. */
static uint64_t
clock_other(struct sim_drive *s, const struct dev_req *r, uint64_t at)
{
    if (s->clock == NULL)
        return 0;
    if (r->op == DEV_READ)
        return clock_read(s, r, at);
    return r->op == DEV_FLUSH ? ssd_timing_flush(s->clock, at) : ssd_timing_discard(s->clock, at);
}

/* ---- writes ---- */

/* Programs blocks, in the model's time too; an errno or a code thrown. */
static int
flash_write(struct sim_drive *s, const struct dev_req *r, uint64_t off, uint64_t len, uint64_t at,
            uint64_t *end)
{
    uint64_t block = off / DEV_BLOCK_BYTES, blocks = len / DEV_BLOCK_BYTES;
    uint64_t chunk = s->clock == NULL ? blocks : s->clock_chunk;
    int rc = 0;

    for (uint64_t done = 0; done < blocks && rc == 0; done += chunk) {
        uint64_t n = ch_min_u64(chunk, blocks - done);

        if (s->clock != NULL)
            *end = ch_max_u64(*end, ssd_timing_write(s->clock, at, (uint32_t)n));
        if (sim_is_zoned(s, off))
            rc = ssd_zns_write(s->zns, block - s->conventional_bytes / DEV_BLOCK_BYTES + done,
                               (uint32_t)n);
        else
            ssd_write_to(s->ssd, r->stream == 0 ? 0 : r->stream - 1, block + done, n);
    }
    return rc;
}

/* Whether the zone takes a write as a whole: what flash_write() then does piece by piece. */
static int
zone_admit(struct sim_drive *s, struct dev_req *r)
{
    struct ssd_zone zone;
    uint32_t z = sim_zone_of(s, r->off);
    uint64_t begin = sim_zone_off(s, z), blocks = r->len / DEV_BLOCK_BYTES;

    ssd_zns_report(s->zns, z, &zone);
    if (r->op == DEV_APPEND) {
        if (r->off != begin)
            return EINVAL;
        r->off += (uint64_t)zone.written * DEV_BLOCK_BYTES;
    }
    if (r->off == begin + (uint64_t)zone.written * DEV_BLOCK_BYTES &&
        blocks <= s->zones.cap_pages - zone.written)
        return 0;
    errno = EIO;
    return CH_FAIL(COHORT_EIO,
                   "%s: write of %" PRIu64 " blocks at block %" PRIu64
                   " of zone %u, of which %u of %u are written",
                   s->name, blocks, (r->off - begin) / DEV_BLOCK_BYTES, z, zone.written,
                   s->zones.cap_pages);
}

/* Writes `len` bytes of a request, the first of them `from` bytes into it. An errno or a code. */
static int
write_blocks(struct sim_drive *s, struct dev_req *r, uint64_t from, uint64_t len,
             const struct sim_batch *b, uint64_t *end)
{
    const uint8_t *buf = (const uint8_t *)r->buf + from;
    uint64_t off;
    int e = 0;

    if (len == 0)
        return 0;
    if (s->zns != NULL && r->off < s->conventional_bytes && r->len > s->conventional_bytes - r->off)
        return EINVAL; /* from one kind of space into the other */
    if (sim_is_zoned(s, r->off) && from == 0)
        e = zone_admit(s, r);
    off = r->off + from;
    if (e == 0) /* before anything is saved: only this can be refused */
        e = flash_write(s, r, off, len, b->at, end);
    if (e == 0)
        e = sim_versions_save(s, off, len, false);
    if (e == 0)
        e = sim_contents_write(s, off, buf, len);
    return e;
}

/* ---- requests ---- */

static int
reset_zones(struct sim_drive *s, const struct dev_req *r)
{
    uint64_t zone = (uint64_t)s->zones.zone_pages * DEV_BLOCK_BYTES;
    int e = 0;

    if ((r->off - s->conventional_bytes) % zone != 0 || r->len % zone != 0)
        return EINVAL;
    for (uint64_t off = r->off; off < r->off + r->len && e == 0; off += zone) {
        e = ssd_zns_reset(s->zns, sim_zone_of(s, off));
        if (e == 0)
            e = sim_contents_zero(s, off, zone);
    }
    return e;
}

static int
reset_blocks(struct sim_drive *s, const struct dev_req *r)
{
    int e;

    if (sim_is_zoned(s, r->off))
        return reset_zones(s, r);
    if (s->zns != NULL && r->len > s->conventional_bytes - r->off)
        return EINVAL;
    e = sim_versions_save(s, r->off, r->len, true);
    if (e == 0)
        e = sim_contents_zero(s, r->off, r->len);
    if (e == 0)
        ssd_discard(s->ssd, r->off / DEV_BLOCK_BYTES, r->len / DEV_BLOCK_BYTES);
    return e;
}

/* `done`: bytes of a write that have been written already. An errno or a code thrown. */
static int
req_execute(struct sim_drive *s, struct dev_req *r, uint64_t done, const struct sim_batch *b,
            uint64_t *end)
{
    *end =
        ch_max_u64(*end, r->op == DEV_WRITE || r->op == DEV_APPEND ? 0 : clock_other(s, r, b->at));
    switch (r->op) {
    case DEV_READ:
        return sim_contents_read(s, r->off, r->buf, r->len);
    case DEV_WRITE:
    case DEV_APPEND:
        return write_blocks(s, r, done, r->len - done, b, end);
    case DEV_FLUSH:
        sim_versions_forget(s, b->flush_mark);
        return 0;
    case DEV_RESET:
        return reset_blocks(s, r);
    }
    return EINVAL;
}

static void
req_run(struct sim_handle *h, struct dev_req *r, uint64_t done, const struct sim_batch *b,
        uint64_t *end)
{
    struct sim_drive *s = h->drive;
    int e;

    rt_lock(&s->lock);
    e = h->generation == s->generation ? req_execute(s, r, done, b, end) : EIO; /* V4 */
    rt_unlock(&s->lock);
    if (e != 0)
        r->rc = e > 0 ? DEV_ERRNO(e) : e;
}

static void
queue_execute(struct sim_handle *h, struct sim_queue *q, bool flushes)
{
    for (unsigned b = 0; b < q->todo_count; b++) {
        for (unsigned i = 0; i < q->todo[b].b.n; i++) {
            struct dev_req *r = &q->todo[b].b.reqs[i];

            if (r->rc == 0 && (r->op == DEV_FLUSH) == flushes)
                req_run(h, r, 0, &q->todo[b], &q->end);
        }
    }
}

/* ---- requests that take time ---- */

/* Around `mean`, now and then far above. */
static uint64_t
draw_ns(struct sim_drive *s, uint64_t mean, bool slow)
{
    return mean == 0 ? 0 : (mean / 2 + ch_prng_below(&s->timing_rng, mean)) * (slow ? 100 : 1);
}

/* What of a write is done before its vector completes; *ns grows to what the request takes. */
static uint64_t
req_begin(struct sim_handle *h, struct dev_req *r, const struct sim_batch *b, bool slow,
          uint64_t *ns)
{
    struct sim_drive *s = h->drive;
    bool write = r->op == DEV_WRITE || r->op == DEV_APPEND;
    uint64_t mean = write                ? s->timing.write_ns
                    : r->op == DEV_FLUSH ? s->timing.flush_ns
                                         : s->timing.read_ns;
    uint64_t done = 0, end = 0;

    rt_lock(&s->lock);
    *ns = ch_max_u64(*ns, draw_ns(s, mean, slow));
    if (write && ch_prng_below(&s->timing_rng, 2) == 0)
        done = ch_prng_below(&s->timing_rng, r->len / DEV_BLOCK_BYTES + 1) * DEV_BLOCK_BYTES;
    if (sim_is_zoned(s, r->off))
        done = 0; /* a zone takes a write whole or not */
    if (done > 0 && h->generation == s->generation && write_blocks(s, r, 0, done, b, &end) != 0)
        done = 0;
    rt_unlock(&s->lock);
    return done;
}

/* One wave of a vector: those that `mask` (bit i % 64) picks, from a random one on. */
static void
wave(struct sim_handle *h, struct sim_queue *q, const struct sim_batch *v, uint64_t mask,
     unsigned start, bool slow)
{
    uint64_t done[64], ns = 0;

    for (unsigned base = 0; base < v->b.n; base += 64) {
        unsigned n = (unsigned)ch_min_u64(v->b.n - base, 64);

        for (unsigned i = 0; i < n; i++) {
            if (v->b.reqs[base + i].rc == 0 && (mask >> i & 1) != 0)
                done[i] = req_begin(h, &v->b.reqs[base + i], v, slow, &ns);
        }
        rt_sleep_ns(ns);
        for (unsigned j = 0; j < n; j++) {
            unsigned i = (j + start) % n;

            if (v->b.reqs[base + i].rc == 0 && (mask >> i & 1) != 0)
                req_run(h, &v->b.reqs[base + i], done[i], v, &q->end);
        }
    }
}

static void
queue_execute_timed(struct sim_handle *h, struct sim_queue *q)
{
    struct sim_drive *s = h->drive;

    for (unsigned b = 0; b < q->todo_count; b++) {
        const struct sim_batch *v = &q->todo[b];
        uint64_t mask;
        unsigned start;
        bool slow;

        rt_lock(&s->lock);
        mask = v->b.n == 1 ? 1 : ch_prng_next(&s->timing_rng);
        start = (unsigned)ch_prng_below(&s->timing_rng, v->b.n);
        slow = ch_prng_below(&s->timing_rng, 1000) < s->timing.slow_permille;
        rt_unlock(&s->lock);
        wave(h, q, v, mask, start, slow);
        if (v->b.n > 1)
            wave(h, q, v, ~mask, start, slow);
    }
}

static void
sim_wait(struct dev *d, void *impl)
{
    struct sim_handle *h = dev_impl(d);
    struct sim_queue *q = impl;

    if (h->drive->timing.write_ns > 0) {
        queue_execute_timed(h, q);
    } else {
        queue_execute(h, q, true);
        queue_execute(h, q, false);
    }
    clock_settle(h->drive, q);
    q->todo_count = 0;
}

static void
sim_submit(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct sim_handle *h = dev_impl(d);
    struct sim_drive *s = h->drive;
    struct sim_queue *q = impl;
    struct sim_batch *b = &q->todo[q->todo_count];

    CH_ASSERT(q->todo_count < DEV_BATCHES_MAX);
    if (n == 0)
        return;
    b->b = (struct dev_batch){.reqs = reqs, .n = n};
    rt_lock(&s->lock);
    b->flush_mark = s->versions_made;
    b->at = clock_now(s);
    if (dev_clock()->client)
        s->client_ns = ch_max_u64(s->client_ns, b->at);
    rt_unlock(&s->lock);
    q->todo_count++;
}

static int
sim_queue_create(struct dev *d, void **impl)
{
    struct sim_queue *q = calloc(1, sizeof(*q));

    if (q == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: queue", dev_name(d));
    *impl = q;
    return 0;
}

static void
sim_queue_destroy(struct dev *d, void *impl)
{
    (void)d;
    free(impl);
}

static uint64_t
sim_size(struct dev *d)
{
    return dev_caps(d)->bytes;
}

/* A zoned drive's conventional part included. */
static void
sim_physical(struct dev *d, uint64_t *host, uint64_t *media)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_counts c;

    sim_drive_counts(h->drive, &c);
    *host = c.host_bytes;
    *media = c.media_bytes;
}

static void
sim_close(struct dev *d)
{
    struct sim_handle *h = dev_impl(d);
    struct sim_drive *s = h->drive;

    rt_lock(&s->lock);
    if (s->open == h)
        s->open = NULL;
    rt_unlock(&s->lock);
    if (h->owns)
        sim_drive_destroy(s);
    free(h);
}

static const struct dev_ops SIM_OPS = {
    .close = sim_close,
    .queue_create = sim_queue_create,
    .queue_destroy = sim_queue_destroy,
    .submit = sim_submit,
    .wait = sim_wait,
    .size = sim_size,
    .physical = sim_physical,
    .stream_room = sim_stream_room,
    .stream_update = sim_stream_update,
    .stream_stats = sim_stream_stats,
    .events = sim_events,
    .zone_report = sim_zone_report,
    .zone_do = sim_zone_do,
};

/* ---- handles ---- */

static int
sim_open(struct sim_drive *s, bool owns, struct dev **out)
{
    struct sim_handle *h = calloc(1, sizeof(*h));
    struct dev_caps caps = {
        .bytes = s->bytes,
        .block_bytes = DEV_BLOCK_BYTES,
        .unit_bytes = s->unit_bytes,
        .streams = s->streams,
        .volatile_cache = s->versions != NULL,
    };
    bool busy;
    int rc;

    if (h == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: handle", s->name);
    if (s->zns != NULL) {
        caps.zone_bytes = (uint64_t)s->zones.zone_pages * DEV_BLOCK_BYTES;
        caps.zone_cap = (uint64_t)s->zones.cap_pages * DEV_BLOCK_BYTES;
        caps.conventional_bytes = s->conventional_bytes;
        caps.open_zones_max = s->zones.open_max;
        caps.active_zones_max = s->zones.active_max;
        caps.sequential_only = true;
    }
    h->drive = s;
    rt_lock(&s->lock);
    busy = s->open != NULL;
    h->generation = s->generation;
    if (!busy)
        s->open = h;
    rt_unlock(&s->lock);
    if (busy) {
        errno = 0;
        rc = CH_FAIL(COHORT_EBUSY, "%s", s->name);
        goto out;
    }
    rc = dev_create(&SIM_OPS, h, &caps, s->name, out);
    if (rc != 0) {
        rt_lock(&s->lock);
        s->open = NULL;
        rt_unlock(&s->lock);
        goto out;
    }
    h->owns = owns;
    h = NULL;
out:
    free(h);
    return rc;
}

int
dev_sim_open(struct sim_drive *s, struct dev **out)
{
    return sim_open(s, false, out);
}

int
dev_sim_open_uri(const char *cfg, unsigned flags, struct dev **out)
{
    struct sim_drive *s = NULL;
    int rc = sim_drive_make(cfg, flags, &s);

    if (rc != 0)
        return rc;
    rc = sim_open(s, true, out);
    if (rc != 0)
        sim_drive_destroy(s);
    else if ((flags & DEV_READONLY) != 0)
        dev_set_readonly(*out);
    return rc;
}
