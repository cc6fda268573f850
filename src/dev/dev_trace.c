/* dev_trace.c - a device that writes down what it is asked to write, reset and flush.
 *
 * A trace file is a header and then records, 32 bytes each, all fields little-endian:
 *
 *     header  off  bytes
 *               0  8   magic "COHTRACE"
 *               8  4   version, 1
 *              12  4   block size in bytes, 4096
 *              16  8   capacity of the device in bytes
 *              24  8   zero
 *
 *     record  off  bytes
 *               0  8   time in ns, of a clock that only goes forward, at submission
 *               8  8   offset on the device in bytes; flush: 0
 *              16  4   length in bytes; flush: 0
 *              20  1   op: 1 write, 2 append, 3 flush, 4 reset
 *              21  1   stream (placement hint), at most 255
 *              22  1   cause of most of its bytes: 0 user, 1 delta, 2 pad, 3 gc, 4 comp, 5 dblwr,
 *                      6 wal, 7 meta; 255 for flush and reset
 *              23  1   flags: bit 0 = submitted together with the record before; others zero
 *              24  8   zero
 *
 * A request longer than 1 GiB is several records, all after the first with bit 0. Records stand in
 * the order of submission, whatever became of the request. A file that does not end at a record's
 * end was cut by a crash: the whole records are good.
 *
 * A trace that can't be written must not disturb what is traced: the first error is logged and
 * ends it.
 *
 * Locks: trace.lock (rank DEV) around buffer and file; never held while the device below works.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/dev_internal.h"
#include "rt/rt.h"

enum {
    TRACE_VERSION = 1,
    RECORD_BYTES = 32,
    BUFFER_RECORDS = 512,
    FLAG_TOGETHER = 1,
    CAUSE_NONE = 255,
};

#define RECORD_LEN_MAX (UINT64_C(1) << 30)

struct trace {
    struct dev *inner;
    char *path;
    struct rt_mutex lock;
    int fd; /* lock, as all below; -1 = ended by an error */
    unsigned records;
    uint8_t buffer[BUFFER_RECORDS * RECORD_BYTES];
};

/* lock is held, or nobody else knows t. */
static int
trace_write(struct trace *t, const uint8_t *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(t->fd, buf + done, len - done);

        if (n < 0 && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void
trace_flush(struct trace *t)
{
    int e = t->fd < 0 ? 0 : trace_write(t, t->buffer, (size_t)t->records * RECORD_BYTES);

    t->records = 0;
    if (e == 0)
        return;
    ch_log(COHORT_LOG_WARNING, "%s: the trace ends here: %s", t->path, strerror(e));
    close(t->fd);
    t->fd = -1;
}

static uint8_t
main_cause(const struct dev_req *r)
{
    int main = 0;

    if (r->op != DEV_WRITE && r->op != DEV_APPEND)
        return CAUSE_NONE;
    for (int c = 1; c < CH_CAUSES; c++) {
        if (r->split[c] > r->split[main])
            main = c;
    }
    return (uint8_t)main;
}

static void
trace_record(struct trace *t, const struct dev_req *r, uint64_t now, bool together)
{
    uint64_t done = 0;

    do {
        uint64_t len = ch_min_u64(r->len - done, RECORD_LEN_MAX);
        uint8_t *p;

        if (t->records == BUFFER_RECORDS)
            trace_flush(t);
        p = t->buffer + (size_t)t->records++ * RECORD_BYTES;
        memset(p, 0, RECORD_BYTES);
        ch_put64(p, now);
        ch_put64(p + 8, r->op == DEV_FLUSH ? 0 : r->off + done);
        ch_put32(p + 16, (uint32_t)len);
        p[20] = (uint8_t)r->op;
        p[21] = (uint8_t)ch_min_u64(r->stream, UINT8_MAX);
        p[22] = main_cause(r);
        p[23] = together ? FLAG_TOGETHER : 0;
        together = true;
        done += len;
    } while (done < r->len);
}

static void
trace_submit(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct trace *t = dev_impl(d);
    uint64_t now = rt_now_ns();
    bool together = false;

    rt_lock(&t->lock);
    for (unsigned i = 0; i < n && t->fd >= 0; i++) {
        if (reqs[i].op == DEV_READ)
            continue;
        trace_record(t, &reqs[i], now, together);
        together = true;
    }
    rt_unlock(&t->lock);
    dev_submit(impl, reqs, n);
}

static void
trace_wait(struct dev *d, void *impl)
{
    int rc = dev_wait(impl);

    (void)d;
    (void)rc; /* it is in the requests */
}

static int
trace_queue_create(struct dev *d, void **impl)
{
    struct trace *t = dev_impl(d);
    struct dev_queue *inner = NULL;
    int rc = dev_queue_get(t->inner, &inner);

    if (rc == 0)
        *impl = inner;
    return rc;
}

static void
trace_queue_destroy(struct dev *d, void *impl)
{
    (void)d;
    dev_queue_put(impl);
}

static int
trace_allocate(struct dev *d, uint64_t off, uint64_t len)
{
    const struct trace *t = dev_impl(d);

    return dev_allocate(t->inner, off, len);
}

static uint64_t
trace_size(struct dev *d)
{
    const struct trace *t = dev_impl(d);

    return dev_size(t->inner);
}

static void
trace_physical(struct dev *d, uint64_t *host, uint64_t *media)
{
    const struct trace *t = dev_impl(d);

    dev_physical(t->inner, host, media);
}

static void
trace_free(struct trace *t)
{
    if (t == NULL)
        return;
    if (t->fd >= 0)
        close(t->fd);
    free(t->path);
    free(t);
}

static struct dev *
trace_inner(struct dev *d)
{
    const struct trace *t = dev_impl(d);

    return t->inner;
}

static void
trace_close(struct dev *d)
{
    struct trace *t = dev_impl(d);

    trace_flush(t);
    dev_close(t->inner);
    rt_mutex_fini(&t->lock);
    trace_free(t);
}

static const struct dev_ops TRACE_OPS = {
    .close = trace_close,
    .queue_create = trace_queue_create,
    .queue_destroy = trace_queue_destroy,
    .submit = trace_submit,
    .wait = trace_wait,
    .allocate = trace_allocate,
    .size = trace_size,
    .physical = trace_physical,
    .inner = trace_inner,
};

static int
trace_start(struct trace *t)
{
    uint8_t header[RECORD_BYTES] = "COHTRACE";
    int e;

    t->fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (t->fd < 0)
        return CH_FAIL(COHORT_EIO, "trace %s", t->path);
    ch_put32(header + 8, TRACE_VERSION);
    ch_put32(header + 12, DEV_BLOCK_BYTES);
    ch_put64(header + 16, dev_caps(t->inner)->bytes);
    e = trace_write(t, header, sizeof(header));
    if (e != 0)
        return CH_FAIL(dev_code_of_errno(e), "trace %s", t->path);
    return 0;
}

int
dev_trace_open(struct dev *inner, const char *path, struct dev **out)
{
    struct trace *t = calloc(1, sizeof(*t));
    char *name = NULL;
    int rc;

    if (t == NULL)
        return CH_FAIL(COHORT_ENOMEM, "trace %s", path);
    t->inner = inner;
    t->fd = -1;
    t->path = strdup(path);
    if (t->path == NULL || asprintf(&name, "trace:%s", dev_name(inner)) < 0) {
        name = NULL;
        rc = CH_FAIL(COHORT_ENOMEM, "trace %s", path);
        goto out;
    }
    rc = trace_start(t);
    if (rc != 0)
        goto out;
    rc = dev_create(&TRACE_OPS, t, dev_caps(inner), name, out);
    if (rc != 0)
        goto out;
    rt_mutex_init(&t->lock, RT_RANK_DEV, 3);
    t = NULL;
out:
    free(name);
    trace_free(t);
    return rc;
}
