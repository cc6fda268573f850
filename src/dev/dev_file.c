/* dev_file.c - files and block devices through io_uring.
 *
 * Each queue has a ring of its own, RING_DEPTH deep. dev_submit() only notes the batch and fills
 * the ring as far as it goes; completions refill it from the batches:
 *
 *     batches (arrays of the caller) --fill--> ops[slot] = sqe --kernel--> cqe --advance--> req.rc
 *                                                 ^                          |
 *                                                 +------- short transfer ---+
 *
 * A vector of dev_io() costs one system call at best: its sqes are handed over and waited for by
 * the same io_uring_enter; a single read or write skips the ring for pread or pwrite, which
 * measured faster (4 KiB by many threads: up to a quarter). Where io_uring is not allowed
 * (containers, old kernels) all requests are carried out in that way, one after the other, with a
 * notice; op_advance() is the same for both.
 *
 * Reads past the end of a file yield zeroes up to caps.bytes: blocks that were never written. A
 * direct transfer that ends inside a block is repeated from the start of that block: O_DIRECT can't
 * go on from there.
 *
 * RESET punches a hole (files) or discards (block devices, by ioctl, at once). Where the file
 * system or device can do neither, it does nothing, with one notice: the space stays allocated.
 *
 * Invariants:
 *   U1  at most RING_DEPTH requests of a queue are with the kernel, so neither of its rings
 *       overflows.
 *   U2  a slot is free, or holds exactly one request that the kernel has or is about to be given.
 *   U3  once an fdatasync failed, all later flushes fail: the kernel reports lost pages once and
 *       then calls them clean, so a later success would prove nothing.
 *
 * Locks: none; a queue belongs to one thread, the rest is atomics. Crash: what a FLUSH that
 * completed covers is on the medium; so is a file's directory entry once dev_open() has returned.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/dev_internal.h"
#include "rt/rt.h"

enum {
    RING_DEPTH = 128,
    STALLS_MAX = 64, /* transfers in a row that moved not even a block */
};

/* The kernel moves less than 2 GiB at once; the rest is continued like any short transfer. */
#define TRANSFER_MAX ((size_t)1 << 30)

#define LOCK_WAIT_NS UINT64_C(1000000000)
#define LOCK_POLL_NS UINT64_C(1000000)

struct file_dev {
    int fd;
    bool block; /* a block device */
    bool direct;
    _Atomic int flush_errno;    /* U3; relaxed: a flush started meanwhile reports its own failure */
    _Atomic bool told_no_uring; /* relaxed: notices, once each */
    _Atomic bool told_no_reset;
    char *name;
};

struct file_op {
    struct dev_req *req; /* NULL = slot is free */
    size_t done;
    unsigned stalls;
};

struct file_queue {
    struct io_uring ring;
    bool uring; /* else requests are carried out by submit */
    unsigned inflight;
    unsigned free_count;
    uint16_t free_slot[RING_DEPTH];
    struct file_op op[RING_DEPTH];
    struct dev_batch todo[DEV_BATCHES_MAX]; /* not yet in slots, oldest first */
    unsigned todo_count;
};

/* ---- one request, step by step ---- */

static void
tell_once(_Atomic bool *told, const char *name, const char *what, int e)
{
    if (!atomic_exchange_explicit(told, true, memory_order_relaxed))
        ch_log(COHORT_LOG_NOTICE, "%s: %s: %s", name, what, strerror(e));
}

static void
op_finish(struct file_op *op, int e)
{
    op->req->rc = e == 0 ? 0 : DEV_ERRNO(e);
    op->req = NULL;
}

/* A read that came back short at the end of the file is complete: the rest was never written. */
static bool
op_at_end(const struct file_dev *f, struct file_op *op, size_t got)
{
    uint8_t *buf = op->req->buf;
    struct stat st;

    if (f->block || op->req->op != DEV_READ || fstat(f->fd, &st) != 0 ||
        (uint64_t)st.st_size > op->req->off + got)
        return false;
    memset(buf + got, 0, op->req->len - got);
    return true;
}

/* Takes the result of a transfer; true = it must go on. */
static bool
op_transferred(const struct file_dev *f, struct file_op *op, int res)
{
    size_t got = op->done + (size_t)res;

    if (got == op->req->len || op_at_end(f, op, got)) {
        op_finish(op, 0);
        return false;
    }
    if (f->direct)
        got -= got % DEV_BLOCK_BYTES;
    op->stalls = got > op->done ? 0 : op->stalls + 1;
    op->done = got;
    if (op->stalls < STALLS_MAX)
        return true;
    op_finish(op, EIO);
    return false;
}

/* Takes a result as the kernel gives it, -errno or bytes; true = the request must be issued
 * again. */
static bool
op_advance(struct file_dev *f, struct file_op *op, int res)
{
    enum dev_op what = op->req->op;

    if (res == -EINTR || res == -EAGAIN)
        return true;
    if (res >= 0 && (what == DEV_READ || what == DEV_WRITE))
        return op_transferred(f, op, res);
    if (what == DEV_RESET && (res == -EOPNOTSUPP || res == -ENOSYS || res == -ENOTTY)) {
        tell_once(&f->told_no_reset, f->name, "freed space can't be given back", -res);
        res = 0;
    }
    if (what == DEV_FLUSH && res < 0)
        atomic_store_explicit(&f->flush_errno, -res, memory_order_relaxed); /* U3 */
    op_finish(op, res < 0 ? -res : 0);
    return false;
}

static int
discard_block(const struct file_dev *f, const struct dev_req *r)
{
    uint64_t range[2] = {r->off, r->len};

    return ioctl(f->fd, BLKDISCARD, range) == 0 ? 0 : -errno;
}

/* One step of a request by plain system calls: result as for op_advance(). */
static int
op_step_sync(const struct file_dev *f, const struct file_op *op)
{
    const struct dev_req *r = op->req;
    off_t off = (off_t)(r->off + op->done);
    size_t len = ch_min_u64(r->len - op->done, TRANSFER_MAX);
    ssize_t n = 0;

    switch (r->op) {
    case DEV_READ:
        n = pread(f->fd, (uint8_t *)r->buf + op->done, len, off);
        break;
    case DEV_WRITE:
    case DEV_APPEND:
        n = pwrite(f->fd, (const uint8_t *)r->buf + op->done, len, off);
        break;
    case DEV_FLUSH:
        n = fdatasync(f->fd);
        break;
    case DEV_RESET:
        if (f->block)
            return discard_block(f, r);
        n = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, (off_t)r->len);
        break;
    }
    return n < 0 ? -errno : (int)n;
}

static void
op_run_sync(struct file_dev *f, struct file_op *op)
{
    while (op_advance(f, op, op_step_sync(f, op)))
        ;
}

/* ---- ring ---- */

static void
slot_issue(const struct file_dev *f, struct file_queue *q, uint16_t slot)
{
    struct file_op *op = &q->op[slot];
    const struct dev_req *r = op->req;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    unsigned len = (unsigned)ch_min_u64(r->len - op->done, TRANSFER_MAX);

    CH_ASSERT(sqe != NULL); /* U1 */
    switch (r->op) {
    case DEV_READ:
        io_uring_prep_read(sqe, f->fd, (uint8_t *)r->buf + op->done, len, r->off + op->done);
        break;
    case DEV_WRITE:
    case DEV_APPEND:
        io_uring_prep_write(sqe, f->fd, (uint8_t *)r->buf + op->done, len, r->off + op->done);
        break;
    case DEV_FLUSH:
        io_uring_prep_fsync(sqe, f->fd, IORING_FSYNC_DATASYNC);
        break;
    case DEV_RESET:
        io_uring_prep_fallocate(sqe, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)r->off, (off_t)r->len);
        break;
    }
    sqe->user_data = slot;
}

/* Starts one request: into a slot, or to its end where there is nothing to wait for. */
static void
req_start(struct file_dev *f, struct file_queue *q, struct dev_req *r)
{
    int e = atomic_load_explicit(&f->flush_errno, memory_order_relaxed);
    uint16_t slot;

    if (r->rc != 0)
        return; /* refused */
    if (r->op == DEV_FLUSH && e != 0) {
        r->rc = DEV_ERRNO(e); /* U3 */
        return;
    }
    if (!q->uring || (r->op == DEV_RESET && f->block)) {
        struct file_op op = {.req = r};

        op_run_sync(f, &op);
        return;
    }
    slot = q->free_slot[--q->free_count];
    CH_ASSERT(q->op[slot].req == NULL); /* U2 */
    q->op[slot] = (struct file_op){.req = r};
    q->inflight++;
    slot_issue(f, q, slot);
}

static void
queue_fill(struct file_dev *f, struct file_queue *q)
{
    unsigned used = 0;

    while (used < q->todo_count && q->free_count > 0) {
        struct dev_batch *b = &q->todo[used];

        if (b->n == 0) {
            used++;
            continue;
        }
        req_start(f, q, b->reqs);
        b->reqs++;
        b->n--;
    }
    if (used > 0) {
        q->todo_count -= used;
        memmove(q->todo, q->todo + used, q->todo_count * sizeof(q->todo[0]));
    }
}

static void
queue_reap(struct file_dev *f, struct file_queue *q)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;

    io_uring_for_each_cqe(&q->ring, head, cqe)
    {
        uint16_t slot = (uint16_t)cqe->user_data;

        n++;
        if (op_advance(f, &q->op[slot], cqe->res)) {
            slot_issue(f, q, slot);
            continue;
        }
        q->free_slot[q->free_count++] = slot;
        q->inflight--;
    }
    io_uring_cq_advance(&q->ring, n);
}

/* Hands over what is prepared and waits for `wait` completions. Lack of kernel memory passes. */
static void
queue_enter(struct file_queue *q, unsigned wait)
{
    int n = io_uring_submit_and_wait(&q->ring, wait);

    if (n >= 0 || n == -EINTR)
        return;
    CH_ASSERT(n == -EAGAIN || n == -EBUSY || n == -ENOMEM);
    rt_sleep_ns(100000);
}

static void
file_wait(struct dev *d, void *impl)
{
    struct file_dev *f = dev_impl(d);
    struct file_queue *q = impl;

    queue_fill(f, q);
    while (q->inflight > 0) {
        /* While more is to come, refill before the ring runs dry. */
        queue_enter(q, q->todo_count > 0 ? 1 + q->inflight / 4 : q->inflight);
        queue_reap(f, q);
        queue_fill(f, q);
    }
    CH_ASSERT(q->todo_count == 0);
}

static void
queue_push(struct file_queue *q, struct dev_req *reqs, unsigned n)
{
    CH_ASSERT(q->todo_count < DEV_BATCHES_MAX);
    q->todo[q->todo_count++] = (struct dev_batch){.reqs = reqs, .n = n};
}

static void
file_submit(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct file_queue *q = impl;

    queue_push(q, reqs, n);
    queue_fill(dev_impl(d), q);
    if (q->uring && io_uring_sq_ready(&q->ring) > 0)
        queue_enter(q, 0); /* what is left over goes with the wait */
}

/* A request alone gains nothing from a ring: pread is one system call as well, and a cheaper
 * one. */
static void
file_run(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct file_op op = {.req = reqs};

    if (n == 1 && reqs->rc == 0 && (reqs->op == DEV_READ || reqs->op == DEV_WRITE)) {
        op_run_sync(dev_impl(d), &op);
        return;
    }
    queue_push(impl, reqs, n);
    file_wait(d, impl);
}

static int
file_queue_create(struct dev *d, void **impl)
{
    struct file_dev *f = dev_impl(d);
    struct file_queue *q = calloc(1, sizeof(*q));
    int rc;

    if (q == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: queue", f->name);
    rc = io_uring_queue_init(RING_DEPTH, &q->ring, IORING_SETUP_COOP_TASKRUN);
    if (rc == -EINVAL) /* before Linux 5.19 */
        rc = io_uring_queue_init(RING_DEPTH, &q->ring, 0);
    q->uring = rc == 0;
    if (rc != 0)
        tell_once(&f->told_no_uring, f->name, "no io_uring, one request at a time", -rc);
    for (unsigned i = 0; i < RING_DEPTH; i++)
        q->free_slot[q->free_count++] = (uint16_t)i;
    *impl = q;
    return 0;
}

static void
file_queue_destroy(struct dev *d, void *impl)
{
    struct file_queue *q = impl;

    (void)d;
    if (q->uring)
        io_uring_queue_exit(&q->ring);
    free(q);
}

/* ---- space ---- */

static uint64_t
file_size(struct dev *d)
{
    struct file_dev *f = dev_impl(d);
    struct stat st;

    if (f->block || fstat(f->fd, &st) != 0)
        return dev_caps(d)->bytes;
    return (uint64_t)st.st_size;
}

/* Extends without allocating: all that a file system without fallocate offers. By its last block
 * and not by ftruncate, which would cut off what another thread's write adds meanwhile. */
static int
file_extend(const struct file_dev *f, uint64_t end)
{
    static const _Alignas(DEV_BLOCK_BYTES) uint8_t ZERO[DEV_BLOCK_BYTES];
    struct stat st;

    if (fstat(f->fd, &st) != 0)
        return -1;
    if ((uint64_t)st.st_size >= end)
        return 0;
    return pwrite(f->fd, ZERO, sizeof(ZERO), (off_t)(end - sizeof(ZERO))) < 0 ? -1 : 0;
}

static int
file_allocate(struct dev *d, uint64_t off, uint64_t len)
{
    struct file_dev *f = dev_impl(d);
    int rc;

    if (f->block)
        return 0;
    do {
        rc = fallocate(f->fd, 0, (off_t)off, (off_t)len);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = file_extend(f, off + len);
    if (rc != 0)
        return CH_FAIL(dev_code_of_errno(errno), "%s: allocating %" PRIu64 " bytes at %" PRIu64,
                       f->name, len, off);
    return 0;
}

/* ---- open and close ---- */

static void
file_dev_free(struct file_dev *f)
{
    if (f == NULL)
        return;
    if (f->fd >= 0)
        close(f->fd); /* the lock goes with it */
    free(f->name);
    free(f);
}

static void
file_close(struct dev *d)
{
    file_dev_free(dev_impl(d));
}

static const struct dev_ops FILE_OPS = {
    .close = file_close,
    .queue_create = file_queue_create,
    .queue_destroy = file_queue_destroy,
    .submit = file_submit,
    .wait = file_wait,
    .run = file_run,
    .allocate = file_allocate,
    .size = file_size,
};

/* Makes the directory entry of a new file durable. */
static int
sync_parent(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - path);
    int fd, rc;

    if (n >= sizeof(dir)) {
        errno = ENAMETOOLONG;
        return CH_FAIL(COHORT_EINVAL, "%s", path);
    }
    memcpy(dir, path, n);
    dir[n] = '\0';
    fd = open(slash == NULL ? "." : n == 0 ? "/" : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 ? -1 : fsync(fd);
    if (rc != 0 && errno != EINVAL) /* EINVAL: the file system does not sync directories */
        rc = CH_FAIL(COHORT_EIO, "%s: syncing its directory", path);
    else
        rc = 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Opens or makes the file; *made tells which. */
static int
open_fd(const char *path, unsigned flags, int *fd, bool *made)
{
    int mode = O_CLOEXEC | ((flags & DEV_READONLY) != 0 ? O_RDONLY : O_RDWR);
    struct stat st;

    *made = false;
    if (stat(path, &st) == 0) {
        if ((flags & DEV_EXCL) != 0)
            return CH_FAIL(COHORT_EXISTS, "%s", path);
        if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
            return CH_FAIL(COHORT_EINVAL, "%s: neither a file nor a block device", path);
        *fd = open(path, mode | (S_ISBLK(st.st_mode) ? O_EXCL : 0));
    } else if (errno == ENOENT && (flags & DEV_CREATE) != 0) {
        *fd = open(path, mode | O_CREAT | O_EXCL, 0666);
        *made = *fd >= 0;
        if (*fd < 0 && errno == EEXIST && (flags & DEV_EXCL) == 0)
            *fd = open(path, mode); /* another process was quicker; the lock decides */
    } else if (errno == ENOENT || errno == ENOTDIR) {
        return CH_FAIL(COHORT_ENODB, "%s", path);
    }
    if (*fd >= 0)
        return 0;
    if (errno == EBUSY)
        return CH_FAIL(COHORT_EBUSY, "%s: mounted or in use", path);
    return CH_FAIL(errno == EEXIST   ? COHORT_EXISTS
                   : errno == ENOENT ? COHORT_ENODB
                                     : dev_code_of_errno(errno),
                   "%s", path);
}

/* O_DIRECT by trial: some file systems take the flag and then refuse the I/O. */
static int
set_direct(struct file_dev *f, unsigned flags)
{
    int mode = fcntl(f->fd, F_GETFL);
    void *block;
    bool works;

    if ((flags & DEV_BUFFERED) != 0)
        return 0;
    block = ch_alloc_aligned(DEV_BLOCK_BYTES);
    if (block == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: buffer", f->name);
    works = mode >= 0 && fcntl(f->fd, F_SETFL, mode | O_DIRECT) == 0 &&
            pread(f->fd, block, DEV_BLOCK_BYTES, 0) >= 0;
    ch_free_aligned(block);
    f->direct = works;
    if (works)
        return 0;
    if ((flags & DEV_DIRECT) != 0)
        return CH_FAIL(COHORT_EUNSUPPORTED, "%s: O_DIRECT", f->name);
    ch_log(COHORT_LOG_NOTICE, "%s: no O_DIRECT (%s), going through the page cache", f->name,
           strerror(errno));
    if (mode < 0 || fcntl(f->fd, F_SETFL, mode & ~O_DIRECT) != 0)
        return CH_FAIL(COHORT_EIO, "%s: fcntl", f->name);
    return 0;
}

static int
get_caps(struct file_dev *f, uint64_t max_bytes, struct dev_caps *caps)
{
    struct stat st;
    struct statvfs fs;
    uint64_t bytes = 0;

    if (fstat(f->fd, &st) != 0)
        return CH_FAIL(COHORT_EIO, "%s: fstat", f->name);
    f->block = S_ISBLK(st.st_mode);
    if (f->block) {
        if (ioctl(f->fd, BLKGETSIZE64, &bytes) != 0)
            return CH_FAIL(COHORT_EIO, "%s: BLKGETSIZE64", f->name);
    } else {
        bytes = max_bytes;
        if (bytes == 0 && fstatvfs(f->fd, &fs) != 0)
            return CH_FAIL(COHORT_EIO, "%s: fstatvfs", f->name);
        if (bytes == 0)
            bytes = fs.f_bavail * fs.f_frsize + (uint64_t)st.st_blocks * 512;
        bytes = ch_max_u64(bytes, ch_round_up((uint64_t)st.st_size, DEV_BLOCK_BYTES));
    }
    bytes = ch_min_u64(bytes, INT64_MAX);
    *caps = (struct dev_caps){
        .bytes = bytes - bytes % DEV_BLOCK_BYTES,
        .block_bytes = DEV_BLOCK_BYTES,
        .volatile_cache = true,
        .growable = !f->block,
    };
    return 0;
}

/* The lock of a process that was killed lasts until the kernel has finished its requests in
 * flight, and so long nobody else may touch the file: such a request would land on what the next
 * owner wrote. Hence a bounded wait before BUSY. */
static int
take_lock(int fd, const char *path)
{
    const uint64_t give_up = rt_now_ns() + LOCK_WAIT_NS;

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return CH_FAIL(COHORT_EIO, "%s: lock", path);
        if (rt_now_ns() > give_up)
            return CH_FAIL(COHORT_EBUSY, "%s: another handle or process has it open", path);
        rt_sleep_ns(LOCK_POLL_NS);
    }
    return 0;
}

int
dev_file_open(const char *path, unsigned flags, uint64_t max_bytes, struct dev **out)
{
    struct file_dev *f = calloc(1, sizeof(*f));
    struct dev_caps caps;
    bool made = false;
    int rc;

    if (f != NULL) {
        f->fd = -1;
        f->name = strdup(path);
    }
    if (f == NULL || f->name == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "%s: handle", path);
        goto out;
    }
    rc = open_fd(path, flags, &f->fd, &made);
    if (rc != 0)
        goto out;
    rc = take_lock(f->fd, path);
    if (rc != 0)
        goto out;
    rc = made ? sync_parent(path) : 0;
    if (rc == 0)
        rc = get_caps(f, max_bytes, &caps);
    if (rc == 0)
        rc = set_direct(f, flags);
    if (rc == 0)
        rc = dev_create(&FILE_OPS, f, &caps, path, out);
    if (rc != 0)
        goto out;
    f = NULL;
    if ((flags & DEV_READONLY) != 0)
        dev_set_readonly(*out);
out:
    file_dev_free(f);
    return rc;
}
