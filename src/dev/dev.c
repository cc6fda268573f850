/* dev.c - the part that all devices share: argument checks, accounting, the pool of queues, and
 * which writes a flush has made durable.
 *
 *     dev_submit: refuse what is out of range -> count -> number the flush -> backend's submit
 *     dev_wait:   backend's wait -> errno to code, throw the first -> publish the flush's number
 *
 * Flush tickets. Flushes are numbered from 1; a number is drawn *before* its flush is handed to the
 * backend, and flush_done is the highest number that completed without error.
 *
 * Invariants:
 *   D1  a ticket is one more than the highest number drawn. So every flush with number >= ticket
 *       was submitted after the ticket was taken, hence after the write it stands for completed.
 *   D2  flush_done only grows, and only to the number of a flush that succeeded.
 *   D3  every byte of a WRITE or APPEND is counted under exactly one cause, at submission.
 *   D4  a queue is in the pool or with one thread; at dev_close() all are in the pool.
 *
 * A flush that failed proves nothing about the writes before it, and whether a later one that
 * succeeds does depends on the device: dev_file.c makes the first failure final.
 *
 * Locks: dev.lock (rank DEV) guards the pool only; never held while calling a backend. Counters are
 * atomics.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dev/dev_internal.h"
#include "rt/rt.h"

static const char *const OP_NAME[] = {"read", "write", "append", "flush", "reset"};

struct queue_batch {
    struct dev_batch b;
    uint64_t flush; /* number of its flushes, 0 = it has none */
};

struct dev_queue {
    struct dev *dev;
    struct dev_queue *next; /* in the pool */
    void *impl;
    int early_rc; /* first error among batches settled before dev_wait() was called */
    unsigned batches;
    struct queue_batch batch[DEV_BATCHES_MAX];
};

struct dev {
    const struct dev_ops *ops;
    void *impl;
    struct dev_caps caps;
    char *name;
    bool readonly; /* set before the handle is handed out */
    struct rt_mutex lock;
    struct dev_queue *pool;  /* lock */
    unsigned queues, pooled; /* lock; made, and of them in the pool */
    /* Counters: relaxed, read one by one by dev_counts(). */
    _Atomic uint64_t written[CH_CAUSES];
    _Atomic uint64_t read_bytes, reads, writes, flushes, resets;
    _Atomic uint64_t flush_started; /* D1: acq_rel in queue_admit() and dev_flush_ticket() */
    _Atomic uint64_t flush_done; /* D2: release in flush_completed(), acquire in dev_flush_done() */
};

int
dev_create(const struct dev_ops *ops, void *impl, const struct dev_caps *caps, const char *name,
           struct dev **out)
{
    struct dev *d = calloc(1, sizeof(*d));

    CH_ASSERT(caps->bytes % DEV_BLOCK_BYTES == 0 && caps->block_bytes == DEV_BLOCK_BYTES);
    if (d != NULL)
        d->name = strdup(name);
    if (d == NULL || d->name == NULL) {
        free(d);
        return CH_FAIL(COHORT_ENOMEM, "%s: device handle", name);
    }
    d->ops = ops;
    d->impl = impl;
    d->caps = *caps;
    rt_mutex_init(&d->lock, RT_RANK_DEV, 0);
    *out = d;
    return 0;
}

int
dev_open(const char *where, unsigned flags, uint64_t max_bytes, struct dev **out)
{
    CH_ASSERT((flags & DEV_DIRECT) == 0 || (flags & DEV_BUFFERED) == 0);
    if (strncmp(where, "sim:", 4) == 0)
        return dev_sim_open_uri(where + 4, flags, out);
    return dev_file_open(where, flags, max_bytes, out);
}

void
dev_close(struct dev *d)
{
    if (d == NULL)
        return;
    CH_ASSERT(d->pooled == d->queues); /* D4 */
    while (d->pool != NULL) {
        struct dev_queue *q = d->pool;

        d->pool = q->next;
        d->ops->queue_destroy(d, q->impl);
        free(q);
    }
    d->ops->close(d);
    rt_mutex_fini(&d->lock);
    free(d->name);
    free(d);
}

void *
dev_impl(struct dev *d)
{
    return d->impl;
}

const struct dev_ops *
dev_ops(const struct dev *d)
{
    return d->ops;
}

void
dev_set_readonly(struct dev *d)
{
    d->readonly = true;
}

const struct dev_caps *
dev_caps(const struct dev *d)
{
    return &d->caps;
}

const char *
dev_name(const struct dev *d)
{
    return d->name;
}

uint64_t
dev_size(struct dev *d)
{
    return d->ops->size(d);
}

/* ---- queues ---- */

int
dev_queue_get(struct dev *d, struct dev_queue **q)
{
    struct dev_queue *taken;
    int rc;

    rt_lock(&d->lock);
    taken = d->pool;
    if (taken != NULL) {
        d->pool = taken->next;
        d->pooled--;
    }
    rt_unlock(&d->lock);
    if (taken != NULL) {
        *q = taken;
        return 0;
    }
    taken = calloc(1, sizeof(*taken));
    if (taken == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: queue", d->name);
    taken->dev = d;
    rc = d->ops->queue_create(d, &taken->impl);
    if (rc != 0) {
        free(taken);
        return rc;
    }
    rt_lock(&d->lock);
    d->queues++;
    rt_unlock(&d->lock);
    *q = taken;
    return 0;
}

void
dev_queue_put(struct dev_queue *q)
{
    struct dev *d = q->dev;

    CH_ASSERT(q->batches == 0 && q->early_rc == 0); /* all waited for */
    rt_lock(&d->lock);
    q->next = d->pool;
    d->pool = q;
    d->pooled++;
    rt_unlock(&d->lock);
}

/* ---- requests ---- */

static void
req_assert(const struct dev *d, const struct dev_req *r)
{
    if (r->op == DEV_FLUSH) {
        CH_ASSERT(r->len == 0);
        return;
    }
    CH_ASSERT(r->len > 0 && r->len % DEV_BLOCK_BYTES == 0 && r->off % DEV_BLOCK_BYTES == 0);
    if (r->op != DEV_RESET)
        CH_ASSERT(r->buf != NULL && (uintptr_t)r->buf % DEV_BLOCK_BYTES == 0);
    CH_ASSERT(r->op != DEV_APPEND || d->caps.zone_bytes > 0);
}

/* What no device could do. Not asserted: offsets come from the disk, too. */
static int
req_refuse(const struct dev *d, const struct dev_req *r)
{
    bool writes = r->op == DEV_WRITE || r->op == DEV_APPEND;

    if (r->op == DEV_FLUSH)
        return 0;
    if (d->readonly && r->op != DEV_READ)
        return DEV_ERRNO(EROFS);
    if (r->off > d->caps.bytes || r->len > d->caps.bytes - r->off)
        return writes && d->caps.growable ? DEV_ERRNO(ENOSPC) : DEV_ERRNO(ERANGE);
    return 0;
}

static void
count_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void
req_count(struct dev *d, const struct dev_req *r)
{
    uint64_t sum = 0;

    switch (r->op) {
    case DEV_READ:
        count_add(&d->reads, 1);
        count_add(&d->read_bytes, r->len);
        break;
    case DEV_WRITE:
    case DEV_APPEND:
        for (int c = 0; c < CH_CAUSES; c++) {
            sum += r->split[c];
            if (r->split[c] != 0)
                count_add(&d->written[c], r->split[c]);
        }
        CH_ASSERT(sum == r->len); /* D3 */
        count_add(&d->writes, 1);
        break;
    case DEV_FLUSH:
        count_add(&d->flushes, 1);
        break;
    case DEV_RESET:
        count_add(&d->resets, 1);
        break;
    }
}

/* Everything that comes before the backend. The queue has room for a batch. */
static void
queue_admit(struct dev_queue *q, struct dev_req *reqs, unsigned n)
{
    struct dev *d = q->dev;
    struct queue_batch *qb = &q->batch[q->batches];
    bool flushes = false;

    for (unsigned i = 0; i < n; i++) {
        req_assert(d, &reqs[i]);
        reqs[i].rc = req_refuse(d, &reqs[i]);
        req_count(d, &reqs[i]);
        flushes |= reqs[i].op == DEV_FLUSH;
    }
    qb->b.reqs = reqs;
    qb->b.n = n;
    qb->flush = 0;
    if (flushes) /* D1: before the backend sees it; pairs with dev_flush_ticket() */
        qb->flush = 1 + atomic_fetch_add_explicit(&d->flush_started, 1, memory_order_acq_rel);
    q->batches++;
}

int
dev_code_of_errno(int e)
{
    return e == ENOSPC || e == EDQUOT || e == EFBIG ? COHORT_EFULL : COHORT_EIO;
}

/* Turns an errno into a code; throws it if it is the first error of its dev_wait(). */
static void
req_settle(const struct dev *d, struct dev_req *r, bool first)
{
    int e = -(r->rc - DEV_ERRNO(0));

    if (r->rc > DEV_ERRNO(0))
        return; /* done, or thrown by who found it */
    /* Room is nothing that a read can lack: who is told EFULL waits, and tries again. */
    r->rc = r->op == DEV_READ ? COHORT_EIO : dev_code_of_errno(e);
    if (!first)
        return;
    errno = e;
    r->rc =
        CH_FAIL(r->rc, "%s: %s of %zu bytes at %" PRIu64, d->name, OP_NAME[r->op], r->len, r->off);
}

static void
flush_completed(struct dev *d, uint64_t number)
{
    uint64_t seen = atomic_load_explicit(&d->flush_done, memory_order_relaxed);

    while (seen < number &&
           !atomic_compare_exchange_weak_explicit(&d->flush_done, &seen, number,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

/* The backend has completed all batches: first error among them. */
static int
queue_settle(struct dev_queue *q)
{
    int rc = q->early_rc;

    q->early_rc = 0;
    for (unsigned b = 0; b < q->batches; b++) {
        struct queue_batch *qb = &q->batch[b];

        for (unsigned i = 0; i < qb->b.n; i++) {
            struct dev_req *r = &qb->b.reqs[i];

            req_settle(q->dev, r, rc == 0);
            if (rc == 0)
                rc = r->rc;
            if (r->op == DEV_FLUSH && r->rc == 0)
                flush_completed(q->dev, qb->flush);
        }
    }
    q->batches = 0;
    return rc;
}

void
dev_submit(struct dev_queue *q, struct dev_req *reqs, unsigned n)
{
    if (q->batches == DEV_BATCHES_MAX) {
        q->dev->ops->wait(q->dev, q->impl);
        q->early_rc = queue_settle(q);
    }
    queue_admit(q, reqs, n);
    q->dev->ops->submit(q->dev, q->impl, reqs, n);
}

int
dev_wait(struct dev_queue *q)
{
    q->dev->ops->wait(q->dev, q->impl);
    return queue_settle(q);
}

/* ---- one-shot helpers ---- */

int
dev_io(struct dev *d, struct dev_req *reqs, unsigned n)
{
    struct dev_queue *q = NULL;
    int rc;

    rc = dev_queue_get(d, &q);
    if (rc != 0)
        return rc;
    if (d->ops->run != NULL) {
        queue_admit(q, reqs, n);
        d->ops->run(d, q->impl, reqs, n);
        rc = queue_settle(q);
    } else {
        dev_submit(q, reqs, n);
        rc = dev_wait(q);
    }
    dev_queue_put(q);
    return rc;
}

int
dev_read(struct dev *d, uint64_t off, void *buf, size_t len)
{
    struct dev_req r = {.op = DEV_READ, .off = off, .len = len, .buf = buf};

    return dev_io(d, &r, 1);
}

int
dev_write(struct dev *d, uint64_t off, const void *buf, size_t len, enum ch_cause cause)
{
    struct dev_req r = {.op = DEV_WRITE, .off = off, .len = len};

    CH_ASSERT(len <= UINT32_MAX);
    r.buf = (void *)(uintptr_t)buf; /* a write leaves it alone */
    r.split[cause] = (uint32_t)len;
    return dev_io(d, &r, 1);
}

int
dev_flush(struct dev *d)
{
    struct dev_req r = {.op = DEV_FLUSH};

    return dev_io(d, &r, 1);
}

int
dev_reset(struct dev *d, uint64_t off, uint64_t len)
{
    struct dev_req r = {.op = DEV_RESET, .off = off, .len = len};

    return dev_io(d, &r, 1);
}

int
dev_allocate(struct dev *d, uint64_t off, uint64_t len)
{
    CH_ASSERT(off % DEV_BLOCK_BYTES == 0 && len % DEV_BLOCK_BYTES == 0);
    if (off > d->caps.bytes || len > d->caps.bytes - off) {
        errno = ENOSPC;
        return CH_FAIL(COHORT_EFULL, "%s: allocating %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64,
                       d->name, len, off, d->caps.bytes);
    }
    if (d->readonly) {
        errno = EROFS;
        return CH_FAIL(COHORT_EIO, "%s: allocating on a read-only device", d->name);
    }
    if (d->ops->allocate == NULL || len == 0)
        return 0;
    return d->ops->allocate(d, off, len);
}

/* ---- tickets and counters ---- */

uint64_t
dev_flush_ticket(struct dev *d)
{
    /* Pairs with queue_admit(). A read-modify-write, since a load might see an older number, and
     * with it a flush submitted before the caller's write completed would count. */
    return 1 + atomic_fetch_add_explicit(&d->flush_started, 0, memory_order_acq_rel);
}

uint64_t
dev_flush_done(struct dev *d)
{
    return atomic_load_explicit(&d->flush_done, memory_order_acquire); /* flush_completed() */
}

static uint64_t
count_of(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void
dev_counts(struct dev *d, struct dev_counts *out)
{
    out->host_bytes = 0;
    for (int c = 0; c < CH_CAUSES; c++) {
        out->written[c] = count_of(&d->written[c]);
        out->host_bytes += out->written[c];
    }
    out->read_bytes = count_of(&d->read_bytes);
    out->reads = count_of(&d->reads);
    out->writes = count_of(&d->writes);
    out->flushes = count_of(&d->flushes);
    out->resets = count_of(&d->resets);
}

void
dev_physical(struct dev *d, uint64_t *host_bytes, uint64_t *media_bytes)
{
    *host_bytes = COHORT_UNKNOWN;
    *media_bytes = COHORT_UNKNOWN;
    if (d->ops->physical != NULL)
        d->ops->physical(d, host_bytes, media_bytes);
}

/* ---- placement handles, zones, virtual time ---- */

/* The device that has the hardware: below all wrappers. */
static struct dev *
innermost(struct dev *d)
{
    while (d->ops->inner != NULL)
        d = d->ops->inner(d);
    return d;
}

static int
unsupported(const struct dev *d, const char *what)
{
    errno = 0;
    return CH_FAIL(COHORT_EUNSUPPORTED, "%s: no %s", d->name, what);
}

uint32_t
dev_streams(const struct dev *d)
{
    return d->caps.streams;
}

int
dev_stream_room(struct dev *d, uint32_t stream, uint64_t *bytes)
{
    d = innermost(d);
    if (d->ops->stream_room == NULL || d->caps.streams == 0)
        return unsupported(d, "placement handles");
    return d->ops->stream_room(d, stream, bytes);
}

int
dev_stream_update(struct dev *d, uint32_t stream)
{
    d = innermost(d);
    if (d->ops->stream_update == NULL || d->caps.streams == 0)
        return unsupported(d, "placement handles");
    return d->ops->stream_update(d, stream);
}

int
dev_stream_stats(struct dev *d, struct dev_stream_stats *out)
{
    d = innermost(d);
    if (d->ops->stream_stats == NULL || d->caps.streams == 0)
        return unsupported(d, "placement handles");
    return d->ops->stream_stats(d, out);
}

int
dev_events(struct dev *d, struct dev_event *out, unsigned max, unsigned *n)
{
    d = innermost(d);
    if (d->ops->events == NULL || d->caps.streams == 0)
        return unsupported(d, "placement handles");
    return d->ops->events(d, out, max, n);
}

int
dev_zone_report(struct dev *d, uint64_t off, struct dev_zone *out, unsigned max, unsigned *n)
{
    d = innermost(d);
    if (d->ops->zone_report == NULL || !d->caps.sequential_only)
        return unsupported(d, "zones");
    return d->ops->zone_report(d, off, out, max, n);
}

int
dev_zone_do(struct dev *d, uint64_t off, enum dev_zone_act act)
{
    if (d->readonly) {
        errno = EROFS;
        return CH_FAIL(COHORT_EIO, "%s: zone of a read-only device", d->name);
    }
    d = innermost(d);
    if (d->ops->zone_do == NULL || !d->caps.sequential_only)
        return unsupported(d, "zones");
    return d->ops->zone_do(d, off, act);
}

static _Thread_local struct dev_clock thread_clock;

struct dev_clock *
dev_clock(void)
{
    return &thread_clock;
}

void
dev_virtual_begin(uint64_t ns)
{
    thread_clock.ns = ns;
    thread_clock.client = true;
}

uint64_t
dev_virtual_ns(void)
{
    return thread_clock.ns;
}

uint64_t
dev_virtual_background(void)
{
    return thread_clock.background;
}
