/* dev_fault.c - a device that fails as planned.
 *
 * Each request is numbered by its op, from 1, as dev_submit() hands it over, and then either
 * passed to the device below, in the caller's own array, or failed here. Runs of requests that
 * pass stay one vector below, so a plan that fails nothing changes nothing.
 *
 * Invariants:
 *   P1  a request that fails here never reaches the device below, except for the first block of the
 *       write that `short_nth` names.
 *   P2  once `stop_after_writes` or `stop_after_flushes` is reached nothing reaches the device below until the plan
 *       changes.
 *
 * Locks: fault.lock (rank DEV) around the decision only; never held while the device below works.
 * Crash: adds nothing; what the device below leaves.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dev/dev_internal.h"
#include "rt/rt.h"

enum {
    OPS = DEV_RESET + 1
};

struct fault {
    struct dev *inner;
    struct rt_mutex lock;
    struct dev_fault_plan plan; /* lock, as all below */
    uint64_t seen[OPS], failed;
    bool dead; /* P2 */
};

struct fault_queue {
    struct dev_queue *inner;
    uint64_t slow_ns; /* delay owed by the next wait */
};

enum verdict {
    PASS,
    FAIL,
    CUT_SHORT
};

static enum verdict
decide(struct fault *f, enum dev_op op, int *e)
{
    const struct dev_fault_plan *p = &f->plan;
    bool write = op == DEV_WRITE || op == DEV_APPEND;
    uint64_t nth = ++f->seen[op];
    uint64_t writes = f->seen[DEV_WRITE] + f->seen[DEV_APPEND];

    if ((write && p->stop_after_writes != 0 && writes >= p->stop_after_writes) ||
        (op == DEV_FLUSH && p->stop_after_flushes != 0 && nth >= p->stop_after_flushes))
        f->dead = true;
    *e = EIO;
    if (f->dead)
        return FAIL; /* P2 */
    if (write && p->short_nth != 0 && writes == p->short_nth)
        return CUT_SHORT;
    if (p->fail_nth[op] == 0 || nth < p->fail_nth[op] ||
        (nth > p->fail_nth[op] && !p->fail_forever))
        return PASS;
    *e = p->code == COHORT_EFULL ? ENOSPC : EIO;
    return FAIL;
}

/* Writes the first block of r and no more. Its split is the start of r's. */
static void
write_first_block(struct fault *f, const struct dev_req *r)
{
    struct dev_req cut = *r;
    uint32_t left = DEV_BLOCK_BYTES;
    int rc;

    cut.len = DEV_BLOCK_BYTES;
    for (int c = 0; c < CH_CAUSES; c++) {
        cut.split[c] = (uint32_t)ch_min_u64(r->split[c], left);
        left -= cut.split[c];
    }
    rc = dev_io(f->inner, &cut, 1);
    (void)rc; /* the request fails either way */
}

static void
fault_submit(struct dev *d, void *impl, struct dev_req *reqs, unsigned n)
{
    struct fault *f = dev_impl(d);
    struct fault_queue *q = impl;
    unsigned first = 0; /* of the run that passes */

    for (unsigned i = 0; i < n; i++) {
        enum verdict v;
        int e;

        rt_lock(&f->lock);
        v = decide(f, reqs[i].op, &e);
        f->failed += v != PASS;
        q->slow_ns = ch_max_u64(q->slow_ns, f->plan.slow_ns);
        rt_unlock(&f->lock);
        if (v == PASS)
            continue;
        if (i > first)
            dev_submit(q->inner, reqs + first, i - first);
        first = i + 1;
        if (v == CUT_SHORT)
            write_first_block(f, &reqs[i]);
        reqs[i].rc = DEV_ERRNO(e);
    }
    if (n > first)
        dev_submit(q->inner, reqs + first, n - first);
}

static void
fault_wait(struct dev *d, void *impl)
{
    struct fault_queue *q = impl;
    int rc;

    (void)d;
    rc = dev_wait(q->inner);
    (void)rc; /* it is in the requests */
    if (q->slow_ns > 0)
        rt_sleep_ns(q->slow_ns); /* once: the requests of a vector take their time together */
    q->slow_ns = 0;
}

static int
fault_queue_create(struct dev *d, void **impl)
{
    struct fault *f = dev_impl(d);
    struct fault_queue *q = calloc(1, sizeof(*q));
    int rc;

    if (q == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: queue", dev_name(d));
    rc = dev_queue_get(f->inner, &q->inner);
    if (rc != 0) {
        free(q);
        return rc;
    }
    *impl = q;
    return 0;
}

static void
fault_queue_destroy(struct dev *d, void *impl)
{
    struct fault_queue *q = impl;

    (void)d;
    dev_queue_put(q->inner);
    free(q);
}

static int
fault_allocate(struct dev *d, uint64_t off, uint64_t len)
{
    struct fault *f = dev_impl(d);
    bool dead;

    rt_lock(&f->lock);
    dead = f->dead;
    rt_unlock(&f->lock);
    if (!dead)
        return dev_allocate(f->inner, off, len);
    errno = EIO;
    return CH_FAIL(COHORT_EIO, "%s: allocating %" PRIu64 " bytes at %" PRIu64 ": power is gone",
                   dev_name(d), len, off);
}

static uint64_t
fault_size(struct dev *d)
{
    const struct fault *f = dev_impl(d);

    return dev_size(f->inner);
}

static void
fault_physical(struct dev *d, uint64_t *host, uint64_t *media)
{
    const struct fault *f = dev_impl(d);

    dev_physical(f->inner, host, media);
}

static struct dev *
fault_inner(struct dev *d)
{
    const struct fault *f = dev_impl(d);

    return f->inner;
}

static void
fault_close(struct dev *d)
{
    struct fault *f = dev_impl(d);

    dev_close(f->inner);
    rt_mutex_fini(&f->lock);
    free(f);
}

static const struct dev_ops FAULT_OPS = {
    .close = fault_close,
    .queue_create = fault_queue_create,
    .queue_destroy = fault_queue_destroy,
    .submit = fault_submit,
    .wait = fault_wait,
    .allocate = fault_allocate,
    .size = fault_size,
    .physical = fault_physical,
    .inner = fault_inner,
};

int
dev_fault_open(struct dev *inner, const struct dev_fault_plan *plan, struct dev **out)
{
    struct fault *f = calloc(1, sizeof(*f));
    char *name = NULL;
    int rc;

    if (f == NULL || asprintf(&name, "fault:%s", dev_name(inner)) < 0) {
        free(f);
        return CH_FAIL(COHORT_ENOMEM, "fault:%s", dev_name(inner));
    }
    f->inner = inner;
    f->plan = *plan;
    rt_mutex_init(&f->lock, RT_RANK_DEV, 2);
    rc = dev_create(&FAULT_OPS, f, dev_caps(inner), name, out);
    free(name);
    if (rc != 0) {
        rt_mutex_fini(&f->lock);
        free(f);
    }
    return rc;
}

void
dev_fault_set(struct dev *d, const struct dev_fault_plan *plan)
{
    struct fault *f = dev_impl(d);

    CH_ASSERT(dev_ops(d) == &FAULT_OPS);
    rt_lock(&f->lock);
    f->plan = *plan;
    memset(f->seen, 0, sizeof(f->seen));
    f->failed = 0;
    f->dead = false;
    rt_unlock(&f->lock);
}

uint64_t
dev_fault_seen(struct dev *d, enum dev_op op)
{
    struct fault *f = dev_impl(d);
    uint64_t seen;

    CH_ASSERT(dev_ops(d) == &FAULT_OPS);
    rt_lock(&f->lock);
    seen = f->seen[op];
    rt_unlock(&f->lock);
    return seen;
}

uint64_t
dev_fault_failed(struct dev *d, bool *dead)
{
    struct fault *f = dev_impl(d);
    uint64_t failed;

    CH_ASSERT(dev_ops(d) == &FAULT_OPS);
    rt_lock(&f->lock);
    failed = f->failed;
    *dead = f->dead;
    rt_unlock(&f->lock);
    return failed;
}
