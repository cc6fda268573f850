/* dev_sim.c - a simulated drive: contents, a flash model that counts, and a cache that a power cut
 * hits.
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
 * Invariants:
 *   V1  chains are ordered by age; so the oldest version in the ring ends the chain of its block.
 *   V2  head[b] names the newest saved version of b that is in the ring, 0 = there is none and the
 *       contents are on the flash.
 *   V3  a block that may hold anything but zeroes has filled[b] set.
 *   V4  a handle whose generation is not the drive's is dead: its requests fail and touch nothing.
 *
 * Locks: drive.lock (rank DEV), held for one request at a time. Crash (of the process): with
 * file= what was written is there, flushed or not, as far as the kernel lives on.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "dev/dev_internal.h"
#include "rt/rt.h"
#include "ssd/ssd.h"

enum {
    SECTOR_BYTES = 512,
    BLOCK_SECTORS = DEV_BLOCK_BYTES / SECTOR_BYTES,
    VERSIONS_MAX = 16384, /* 64 MiB of saved blocks */
};

struct version { /* of one block; links are slot + 1, 0 = none */
    uint32_t block;
    uint32_t older, newer;
};

struct sim_handle {
    struct sim_drive *drive;
    uint64_t generation; /* V4 */
    bool owns;           /* opened by URI: the drive goes with the handle */
};

struct sim_queue {
    struct dev_batch todo[DEV_BATCHES_MAX];
    uint64_t flush_mark[DEV_BATCHES_MAX]; /* versions_made when it was submitted */
    unsigned todo_count;
};

struct sim_drive {
    struct rt_mutex lock; /* all below */
    char *name;
    uint64_t bytes;
    uint64_t seed;
    uint64_t unit_bytes; /* as told; 0 = hidden */
    uint32_t streams;
    uint64_t generation;
    bool untorn;             /* blocks survive a cut whole */
    struct sim_handle *open; /* the one that is alive */
    uint8_t *mem;            /* contents, or ... */
    int fd;                  /* ... the file of them, -1 */
    uint8_t *filled;         /* [blocks] V3 */
    struct ssd *ssd;
    struct ssd_counts base; /* what opening an old file counted */
    /* volatile cache; versions NULL = none */
    uint32_t *head; /* [blocks] V2 */
    struct version *versions;
    uint8_t *saved; /* [version_slots] blocks */
    uint32_t version_slots, version_first, version_count;
    uint64_t versions_made; /* ever */
    struct sim_timing timing;
    struct ch_prng timing_rng;
};

/* ---- contents ---- */

/* Memory that costs nothing until it is touched; NULL. */
static void *
lazy_alloc(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void
lazy_free(void *p, uint64_t bytes)
{
    if (p != NULL)
        munmap(p, bytes);
}

/* These return an errno. */
static int
contents_read(const struct sim_drive *s, uint64_t off, void *buf, size_t len)
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

static int
contents_write(struct sim_drive *s, uint64_t off, const void *buf, size_t len)
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

static int
contents_zero(struct sim_drive *s, uint64_t off, uint64_t len)
{
    static const uint8_t ZERO[DEV_BLOCK_BYTES];
    int e = 0;

    if (s->fd < 0)
        e = madvise(s->mem + off, len, MADV_DONTNEED) == 0 ? 0 : errno;
    else if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) !=
             0)
        for (uint64_t at = off; at < off + len && e == 0; at += DEV_BLOCK_BYTES)
            e = contents_write(s, at, ZERO, sizeof(ZERO));
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

/* A flush: forgets the versions among the first `mark` ever made. */
static void
versions_forget(struct sim_drive *s, uint64_t mark)
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
    e = contents_read(s, (uint64_t)block * DEV_BLOCK_BYTES, saved_block(s, slot), DEV_BLOCK_BYTES);
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

static int
versions_save(struct sim_drive *s, uint64_t off, uint64_t len, bool reset)
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

/* ---- requests ---- */

/* Writes `len` bytes of a request, the first of them `from` bytes into it. */
static int
write_blocks(struct sim_drive *s, const struct dev_req *r, uint64_t from, uint64_t len)
{
    uint64_t off = r->off + from;
    const uint8_t *buf = (const uint8_t *)r->buf + from;
    int e = versions_save(s, off, len, false);

    if (e == 0 && len > 0)
        e = contents_write(s, off, buf, len);
    if (e == 0 && len > 0)
        ssd_write_to(s->ssd, r->stream == 0 ? 0 : r->stream - 1, off / DEV_BLOCK_BYTES,
                     len / DEV_BLOCK_BYTES);
    return e;
}

/* `done`: bytes of a write that have been written already. */
static int
req_execute(struct sim_drive *s, struct dev_req *r, uint64_t done, uint64_t flush_mark)
{
    int e = 0;

    switch (r->op) {
    case DEV_READ:
        return contents_read(s, r->off, r->buf, r->len);
    case DEV_WRITE:
    case DEV_APPEND:
        return write_blocks(s, r, done, r->len - done);
    case DEV_FLUSH:
        versions_forget(s, flush_mark);
        return 0;
    case DEV_RESET:
        e = versions_save(s, r->off, r->len, true);
        if (e == 0)
            e = contents_zero(s, r->off, r->len);
        if (e == 0)
            ssd_discard(s->ssd, r->off / DEV_BLOCK_BYTES, r->len / DEV_BLOCK_BYTES);
        return e;
    }
    return EINVAL;
}

static void
req_run(struct sim_handle *h, struct dev_req *r, uint64_t done, uint64_t flush_mark)
{
    struct sim_drive *s = h->drive;
    int e;

    rt_lock(&s->lock);
    e = h->generation == s->generation ? req_execute(s, r, done, flush_mark) : EIO; /* V4 */
    rt_unlock(&s->lock);
    if (e != 0)
        r->rc = DEV_ERRNO(e);
}

static void
queue_execute(struct sim_handle *h, struct sim_queue *q, bool flushes)
{
    for (unsigned b = 0; b < q->todo_count; b++) {
        for (unsigned i = 0; i < q->todo[b].n; i++) {
            struct dev_req *r = &q->todo[b].reqs[i];

            if (r->rc == 0 && (r->op == DEV_FLUSH) == flushes)
                req_run(h, r, 0, q->flush_mark[b]);
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
req_begin(struct sim_handle *h, struct dev_req *r, bool slow, uint64_t *ns)
{
    struct sim_drive *s = h->drive;
    bool write = r->op == DEV_WRITE || r->op == DEV_APPEND;
    uint64_t mean = write                ? s->timing.write_ns
                    : r->op == DEV_FLUSH ? s->timing.flush_ns
                                         : s->timing.read_ns;
    uint64_t done = 0;

    rt_lock(&s->lock);
    *ns = ch_max_u64(*ns, draw_ns(s, mean, slow));
    if (write && ch_prng_below(&s->timing_rng, 2) == 0)
        done = ch_prng_below(&s->timing_rng, r->len / DEV_BLOCK_BYTES + 1) * DEV_BLOCK_BYTES;
    if (done > 0 && h->generation == s->generation && write_blocks(s, r, 0, done) != 0)
        done = 0;
    rt_unlock(&s->lock);
    return done;
}

/* One wave of a vector: those that `mask` (bit i % 64) picks, from a random one on. */
static void
wave(struct sim_handle *h, const struct dev_batch *v, uint64_t mask, uint64_t mark, unsigned start,
     bool slow)
{
    uint64_t done[64], ns = 0;

    for (unsigned base = 0; base < v->n; base += 64) {
        unsigned n = (unsigned)ch_min_u64(v->n - base, 64);

        for (unsigned i = 0; i < n; i++) {
            if (v->reqs[base + i].rc == 0 && (mask >> i & 1) != 0)
                done[i] = req_begin(h, &v->reqs[base + i], slow, &ns);
        }
        rt_sleep_ns(ns);
        for (unsigned j = 0; j < n; j++) {
            unsigned i = (j + start) % n;

            if (v->reqs[base + i].rc == 0 && (mask >> i & 1) != 0)
                req_run(h, &v->reqs[base + i], done[i], mark);
        }
    }
}

static void
queue_execute_timed(struct sim_handle *h, struct sim_queue *q)
{
    struct sim_drive *s = h->drive;

    for (unsigned b = 0; b < q->todo_count; b++) {
        const struct dev_batch *v = &q->todo[b];
        uint64_t mask;
        unsigned start;
        bool slow;

        rt_lock(&s->lock);
        mask = v->n == 1 ? 1 : ch_prng_next(&s->timing_rng);
        start = (unsigned)ch_prng_below(&s->timing_rng, v->n);
        slow = ch_prng_below(&s->timing_rng, 1000) < s->timing.slow_permille;
        rt_unlock(&s->lock);
        wave(h, v, mask, q->flush_mark[b], start, slow);
        if (v->n > 1)
            wave(h, v, ~mask, q->flush_mark[b], start, slow);
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
    q->todo_count = 0;
}

static void
sim_submit(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct sim_handle *h = dev_impl(d);
    struct sim_queue *q = impl;

    CH_ASSERT(q->todo_count < DEV_BATCHES_MAX);
    if (n == 0)
        return;
    rt_lock(&h->drive->lock);
    q->flush_mark[q->todo_count] = h->drive->versions_made;
    rt_unlock(&h->drive->lock);
    q->todo[q->todo_count++] = (struct dev_batch){.reqs = reqs, .n = n};
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

static void
sim_physical(struct dev *d, uint64_t *host, uint64_t *media)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_counts c;

    sim_drive_counts(h->drive, &c);
    *host = c.host_bytes;
    *media = c.media_bytes;
}

/* ---- placement handles ---- */

static int
stream_check(struct dev *d, uint32_t stream)
{
    if (stream <= dev_caps(d)->streams)
        return 0;
    errno = 0;
    return CH_FAIL(COHORT_EINVAL, "%s: stream %u of %u", dev_name(d), stream, dev_caps(d)->streams);
}

static int
sim_stream_room(struct dev *d, uint32_t stream, uint64_t *bytes)
{
    const struct sim_handle *h = dev_impl(d);
    int rc = stream_check(d, stream);

    if (rc != 0)
        return rc;
    rt_lock(&h->drive->lock);
    *bytes =
        (uint64_t)ssd_handle_room(h->drive->ssd, stream == 0 ? 0 : stream - 1) * DEV_BLOCK_BYTES;
    rt_unlock(&h->drive->lock);
    return 0;
}

static int
sim_stream_update(struct dev *d, uint32_t stream)
{
    const struct sim_handle *h = dev_impl(d);
    struct sim_drive *s = h->drive;
    int rc = stream_check(d, stream);
    bool alive;

    if (rc != 0)
        return rc;
    rt_lock(&s->lock);
    alive = h->generation == s->generation; /* V4 */
    if (alive)
        ssd_handle_update(s->ssd, stream == 0 ? 0 : stream - 1);
    rt_unlock(&s->lock);
    errno = EIO;
    return alive ? 0 : CH_FAIL(COHORT_EIO, "%s: update of stream %u", dev_name(d), stream);
}

static int
sim_stream_stats(struct dev *d, struct dev_stream_stats *out)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_counts c;

    rt_lock(&h->drive->lock);
    ssd_counts(h->drive->ssd, &c);
    rt_unlock(&h->drive->lock);
    *out = (struct dev_stream_stats){.host_bytes = c.host_bytes,
                                     .media_bytes = c.media_bytes,
                                     .erased_bytes = c.erased_pages * DEV_BLOCK_BYTES};
    return 0;
}

static struct dev_event
event_of(const struct ssd_event *e)
{
    static const enum dev_event_kind KIND[] = {
        [SSD_EVENT_NOT_FULL] = DEV_EVENT_NOT_FULL,
        [SSD_EVENT_BAD_HANDLE] = DEV_EVENT_BAD_STREAM,
        [SSD_EVENT_REALLOCATED] = DEV_EVENT_REALLOCATED,
        [SSD_EVENT_CHANGED] = DEV_EVENT_CHANGED,
    };

    return (struct dev_event){.kind = KIND[e->kind],
                              .stream = e->handle == SSD_MIXED ? 0 : e->handle + 1,
                              .off = e->lpage * DEV_BLOCK_BYTES,
                              .bytes = (uint64_t)e->pages * DEV_BLOCK_BYTES};
}

static int
sim_events(struct dev *d, struct dev_event *out, unsigned max, unsigned *n)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_event e;

    *n = 0;
    rt_lock(&h->drive->lock);
    while (*n < max && ssd_events(h->drive->ssd, &e, 1) == 1)
        out[(*n)++] = event_of(&e);
    rt_unlock(&h->drive->lock);
    return 0;
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
};

/* ---- the drive ---- */

/* Counts the ranges of an old file that hold data as written. */
static int
map_existing(struct sim_drive *s)
{
    off_t data = 0, hole;

    for (;;) {
        uint64_t first, end;

        data = lseek(s->fd, data, SEEK_DATA);
        if (data < 0)
            break;
        hole = lseek(s->fd, data, SEEK_HOLE);
        if (hole < 0)
            break;
        first = (uint64_t)data / DEV_BLOCK_BYTES;
        end = ch_min_u64(ch_div_up((uint64_t)hole, DEV_BLOCK_BYTES), s->bytes / DEV_BLOCK_BYTES);
        memset(s->filled + first, 1, end - first);
        ssd_write(s->ssd, first, end - first);
        data = hole;
    }
    if (errno != ENXIO) /* no data from here on */
        return CH_FAIL(COHORT_EIO, "%s: lseek", s->name);
    ssd_counts(s->ssd, &s->base);
    return 0;
}

static int
open_contents(struct sim_drive *s, const char *file, unsigned flags)
{
    struct stat st;
    int mode = O_RDWR | O_CLOEXEC;

    mode |= (flags & DEV_CREATE) != 0 ? O_CREAT : 0;
    mode |= (flags & DEV_EXCL) != 0 ? O_EXCL : 0;
    s->fd = open(file, mode, 0666);
    if (s->fd < 0)
        return CH_FAIL(errno == ENOENT   ? COHORT_ENODB
                       : errno == EEXIST ? COHORT_EXISTS
                                         : COHORT_EIO,
                       "%s: %s", s->name, file);
    if (flock(s->fd, LOCK_EX | LOCK_NB) != 0)
        return CH_FAIL(errno == EWOULDBLOCK ? COHORT_EBUSY : COHORT_EIO, "%s: lock", s->name);
    if (fstat(s->fd, &st) != 0)
        return CH_FAIL(COHORT_EIO, "%s: fstat", s->name);
    if (st.st_size != 0 && (uint64_t)st.st_size != s->bytes) {
        errno = 0;
        return CH_FAIL(COHORT_EMISMATCH, "%s: file of %jd bytes for a drive of %" PRIu64, s->name,
                       (intmax_t)st.st_size, s->bytes);
    }
    if (ftruncate(s->fd, (off_t)s->bytes) != 0)
        return CH_FAIL(COHORT_EIO, "%s: ftruncate", s->name);
    return map_existing(s);
}

static int
drive_alloc(struct sim_drive *s, const struct ssd_config *cfg, bool volatile_cache, bool memory)
{
    uint64_t blocks = cfg->logical_pages;
    int rc;

    s->bytes = blocks * DEV_BLOCK_BYTES;
    rc = ssd_create(cfg, &s->ssd);
    if (rc != 0)
        return rc;
    s->filled = lazy_alloc(blocks);
    if (memory)
        s->mem = lazy_alloc(s->bytes);
    if (volatile_cache) {
        s->version_slots = VERSIONS_MAX;
        s->head = lazy_alloc(blocks * sizeof(*s->head));
        s->versions = lazy_alloc(sizeof(*s->versions) * s->version_slots);
        s->saved = lazy_alloc((uint64_t)s->version_slots * DEV_BLOCK_BYTES);
    }
    if (s->filled == NULL || (memory && s->mem == NULL) ||
        (volatile_cache && (s->head == NULL || s->versions == NULL || s->saved == NULL)))
        return CH_FAIL(COHORT_ENOMEM, "%s: %" PRIu64 " bytes", s->name, s->bytes);
    return 0;
}

static int
drive_create(const char *text, unsigned flags, struct sim_drive **out)
{
    struct sim_drive *s = calloc(1, sizeof(*s));
    struct sim_uri uri = {0};
    struct ssd_config cfg;
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "sim:%s", text);
    s->fd = -1;
    rt_mutex_init(&s->lock, RT_RANK_DEV, 1);
    if (asprintf(&s->name, "sim:%s", text) < 0) {
        s->name = NULL;
        rc = CH_FAIL(COHORT_ENOMEM, "sim:%s", text);
        goto out;
    }
    rc = sim_uri_parse(text, &cfg, &uri);
    if (rc != 0)
        goto out;
    s->seed = uri.seed;
    s->untorn = uri.untorn;
    s->unit_bytes = uri.unit_hidden ? 0 : (uint64_t)cfg.superblock_pages * DEV_BLOCK_BYTES;
    s->streams = cfg.handles;
    rc = drive_alloc(s, &cfg, uri.volatile_cache, uri.file == NULL);
    if (rc == 0 && uri.file != NULL)
        rc = open_contents(s, uri.file, flags);
    if (rc != 0)
        goto out;
    *out = s;
    s = NULL;
out:
    free(uri.file);
    sim_drive_destroy(s);
    return rc;
}

int
sim_drive_create(const char *cfg, struct sim_drive **out)
{
    return drive_create(cfg, DEV_CREATE, out);
}

void
sim_drive_destroy(struct sim_drive *s)
{
    if (s == NULL)
        return;
    CH_ASSERT(s->open == NULL);
    if (s->fd >= 0)
        close(s->fd);
    lazy_free(s->mem, s->bytes);
    lazy_free(s->filled, s->bytes / DEV_BLOCK_BYTES);
    lazy_free(s->head, s->bytes / DEV_BLOCK_BYTES * sizeof(*s->head));
    lazy_free(s->versions, sizeof(*s->versions) * s->version_slots);
    lazy_free(s->saved, (uint64_t)s->version_slots * DEV_BLOCK_BYTES);
    ssd_destroy(s->ssd);
    rt_mutex_fini(&s->lock);
    free(s->name);
    free(s);
}

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
    int rc = drive_create(cfg, flags, &s);

    if (rc != 0)
        return rc;
    rc = sim_open(s, true, out);
    if (rc != 0)
        sim_drive_destroy(s);
    else if ((flags & DEV_READONLY) != 0)
        dev_set_readonly(*out);
    return rc;
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
    e = contents_read(s, off, block, sizeof(block));
    CH_ASSERT(e == 0); /* else the test would go on with a drive that did not crash as drawn */
    for (int i = 0; i < BLOCK_SECTORS; i++) {
        uint8_t *sector = block + i * SECTOR_BYTES;

        if (o == ROLL_BACK || (o == TEAR && (mask >> i & 1) != 0))
            memcpy(sector, old + i * SECTOR_BYTES, SECTOR_BYTES);
        else if (o == GARBLE && (mask >> i & 1) != 0)
            ch_prng_fill(rng, sector, SECTOR_BYTES);
    }
    e = contents_write(s, off, block, sizeof(block));
    CH_ASSERT(e == 0);
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

        if (s->versions[slot].newer == 0) /* once a block */
            crash_block(s, &rng, mood, slot);
    }
    if (s->versions != NULL)
        version_drop_all(s);
    rt_unlock(&s->lock);
}

void
sim_drive_set_timing(struct sim_drive *s, const struct sim_timing *t)
{
    rt_lock(&s->lock);
    s->timing = *t;
    ch_prng_init(&s->timing_rng, t->seed);
    rt_unlock(&s->lock);
}

/* ---- for tests ---- */

void
sim_drive_counts(struct sim_drive *s, struct ssd_counts *out)
{
    rt_lock(&s->lock);
    ssd_counts(s->ssd, out);
    out->host_pages -= s->base.host_pages;
    out->gc_pages -= s->base.gc_pages;
    out->host_bytes -= s->base.host_bytes;
    out->media_bytes -= s->base.media_bytes;
    rt_unlock(&s->lock);
}

void
sim_drive_peek(struct sim_drive *s, uint64_t off, void *buf, size_t len)
{
    int e;

    CH_ASSERT(off <= s->bytes && len <= s->bytes - off);
    rt_lock(&s->lock);
    e = contents_read(s, off, buf, len);
    rt_unlock(&s->lock);
    CH_ASSERT(e == 0);
}

void
sim_drive_poke(struct sim_drive *s, uint64_t off, const void *buf, size_t len)
{
    int e;

    CH_ASSERT(off <= s->bytes && len <= s->bytes - off);
    rt_lock(&s->lock);
    e = contents_write(s, off, buf, len);
    rt_unlock(&s->lock);
    CH_ASSERT(e == 0);
}
