/* dev_thread_test.c - one device, many threads: queues, counters and flush tickets. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "dev/dev.h"
#include "rt/rt.h"
#include "zt.h"

enum {
    B = 4096,
    THREADS = 6,
    REGION = 64, /* blocks that belong to one thread */
    STEPS = 150
};

struct worker {
    struct rt_thread thread;
    struct dev *dev;
    struct ch_prng rng;
    unsigned id;
    _Atomic unsigned *stop; /* relaxed; set once by the test, read by the flusher */
    bool ok;
    uint64_t written, requests;
    uint8_t *model, *buf; /* REGION blocks */
};

/* Writes some blocks of the region and reads the others, in one vector. */
static bool
one_vector(struct worker *w)
{
    struct dev_req reqs[REGION];
    uint64_t base = (uint64_t)w->id * REGION * B;
    bool ok = true;
    unsigned n = 0;

    for (uint64_t b = 0; b < REGION; b += 1 + ch_prng_below(&w->rng, 6)) {
        struct dev_req *r = &reqs[n++];

        *r = (struct dev_req){.op = DEV_READ, .off = base + b * B, .len = B, .buf = w->buf + b * B};
        if (ch_prng_below(&w->rng, 2) == 0)
            continue;
        r->op = DEV_WRITE;
        r->split[w->id % CH_CAUSES] = B;
        ch_prng_fill(&w->rng, w->buf + b * B, B);
        memcpy(w->model + b * B, w->buf + b * B, B);
        w->written += B;
    }
    w->requests += n;
    ok = dev_io(w->dev, reqs, n) == 0;
    for (unsigned i = 0; i < n && ok; i++)
        ok = memcmp(reqs[i].buf, w->model + (reqs[i].off - base), B) == 0;
    return ok;
}

/* Another thread's flush will do. */
static bool
wait_for_flush(struct dev *d, uint64_t ticket)
{
    uint64_t start = rt_now_ns();

    while (dev_flush_done(d) < ticket) {
        if (rt_now_ns() - start > UINT64_C(30000000000))
            return false;
        rt_yield();
    }
    return true;
}

static void
work(void *arg)
{
    struct worker *w = arg;
    uint64_t ticket, last = 0;

    for (int i = 0; i < STEPS && w->ok; i++) {
        w->ok = one_vector(w);
        ticket = dev_flush_ticket(w->dev);
        w->ok = w->ok && ticket >= last;
        last = ticket;
        if (i % 16 == 0)
            w->ok = w->ok && dev_flush(w->dev) == 0 && dev_flush_done(w->dev) >= ticket;
        if (i % 16 == 8)
            w->ok = w->ok && wait_for_flush(w->dev, ticket);
    }
}

static void
flush_all_the_time(void *arg)
{
    struct worker *w = arg;

    while (atomic_load_explicit(w->stop, memory_order_relaxed) == 0 && w->ok) {
        w->ok = dev_flush(w->dev) == 0;
        rt_sleep_ns(100000);
    }
}

static void
run_threads(struct zt *t, struct dev *d)
{
    struct worker w[THREADS + 1];
    _Atomic unsigned stop = 0;
    struct dev_counts counts;
    uint64_t written = 0, requests = 0;

    for (unsigned i = 0; i <= THREADS; i++) {
        w[i] = (struct worker){.dev = d, .id = i, .stop = &stop, .ok = true};
        w[i].model = ch_alloc_aligned((size_t)REGION * B);
        w[i].buf = ch_alloc_aligned((size_t)REGION * B);
        ZT_CHECK(t, w[i].model != NULL && w[i].buf != NULL);
        ch_prng_init(&w[i].rng, t->seed + i);
        ZT_OK(t, rt_spawn(&w[i].thread, "worker", i < THREADS ? work : flush_all_the_time, &w[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&w[i].thread);
    atomic_store_explicit(&stop, 1, memory_order_relaxed);
    rt_join(&w[THREADS].thread);
    for (unsigned i = 0; i <= THREADS; i++) {
        ZT_CHECK(t, w[i].ok);
        written += w[i].written;
        requests += w[i].requests;
        ch_free_aligned(w[i].model);
        ch_free_aligned(w[i].buf);
    }
    dev_counts(d, &counts);
    ZT_CHECK(t, counts.reads + counts.writes == requests);
    ZT_CHECK(t, counts.host_bytes == written && counts.written[0] == w[0].written);
}

static void
test_threads_on_a_file(struct zt *t)
{
    struct dev *d = NULL;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/f", zt_tmpdir(t));
    ZT_OK(t, dev_open(path, DEV_CREATE, 0, &d));
    run_threads(t, d);
    dev_close(d);
}

static void
test_threads_on_a_simulated_drive(struct zt *t)
{
    uint64_t host, media;
    struct dev_counts counts;
    struct dev *d = NULL;

    ZT_OK(t, dev_open("sim:bytes=16M,superblock=256K", 0, 0, &d));
    run_threads(t, d);
    dev_counts(d, &counts);
    dev_physical(d, &host, &media);
    ZT_CHECK(t, host == counts.host_bytes && media >= host);
    dev_close(d);
}

/* Wrappers one over the other, under threads: what passes through them is all there. */
static void
test_threads_through_wrappers(struct zt *t)
{
    struct dev_fault_plan plan = {0};
    struct dev *inner = NULL, *traced = NULL, *d = NULL;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/trace", zt_tmpdir(t));
    ZT_OK(t, dev_open("sim:bytes=16M,superblock=256K", 0, 0, &inner));
    ZT_OK(t, dev_trace_open(inner, path, &traced));
    ZT_OK(t, dev_fault_open(traced, &plan, &d));
    run_threads(t, d);
    ZT_CHECK(t, dev_fault_seen(d, DEV_WRITE) > THREADS * STEPS);
    dev_close(d);
}

enum {
    REFUSED = 200
};

static void
count_refused(void *arg)
{
    struct worker *w = arg;
    static const struct dev_req PROTO = {.op = DEV_READ, .off = UINT64_C(1) << 40, .len = B};
    struct dev_req reqs[REFUSED];

    for (int i = 0; i < STEPS && w->ok; i++) {
        for (int r = 0; r < REFUSED; r++) {
            reqs[r] = PROTO;
            reqs[r].buf = w->buf;
        }
        w->ok = dev_io(w->dev, reqs, REFUSED) == COHORT_EIO;
    }
}

/* No count is lost when threads do nothing but count: all their requests are out of range. */
static void
test_counters_under_contention(struct zt *t)
{
    struct worker w[THREADS];
    struct dev_counts counts;
    struct dev *d = NULL;
    uint8_t *buf = ch_alloc_aligned(B);

    ZT_CHECK(t, buf != NULL);
    ZT_OK(t, dev_open("sim:bytes=16M,superblock=256K", 0, 0, &d));
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.dev = d, .ok = true, .buf = buf};
        ZT_OK(t, rt_spawn(&w[i].thread, "counter", count_refused, &w[i]));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        rt_join(&w[i].thread);
        ZT_CHECK(t, w[i].ok);
    }
    dev_counts(d, &counts);
    ZT_CHECK(t, counts.reads == (uint64_t)THREADS * STEPS * REFUSED);
    dev_close(d);
    ch_free_aligned(buf);
}

static const struct zt_case CASES[] = {
    {"threads_on_a_file", test_threads_on_a_file, 1},
    {"threads_on_a_simulated_drive", test_threads_on_a_simulated_drive, 2},
    {"threads_through_wrappers", test_threads_through_wrappers, 1},
    {"counters_under_contention", test_counters_under_contention, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "dev-thread", CASES, CH_ARRAY_LEN(CASES));
}
