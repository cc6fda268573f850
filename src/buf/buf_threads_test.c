/* buf_threads_test.c - the page cache under several threads at once. */
#include "buf/buf_test_rig.h"

enum {
    THREADS = 3
};

struct worker {
    struct rig *r;
    struct ch_prng rng;
    struct rt_thread thread;
    unsigned number;
    int rc;
    uint64_t valid;
};

/* Goal of peeks: a copy that is valid is whole. */
static int
page_peek(struct worker *k, struct slot *s)
{
    static _Thread_local uint8_t copy[CH_PAGE_BYTES];
    struct rig *r = k->r;
    struct buf_peek p;
    page_id pid = slot_pid(s);
    int rc;

    if (pid == 0)
        return 0;
    rc = buf_peek(r->buf, pid, &p);
    if (rc != 0)
        return rc == COHORT_NOTFOUND && slot_pid(s) != pid ? 0 : rc;
    memcpy(copy, p.page, CH_PAGE_BYTES);
    if (!buf_peek_valid(r->buf, &p))
        return 0;
    k->valid++;
    if (page_pid(copy) != pid || (page_type(copy) == PAGE_LEAF && !body_good(copy, pid)))
        (void)atomic_fetch_add_explicit(&r->bad, 1, memory_order_relaxed);
    return 0;
}

static int
worker_step(struct worker *k)
{
    struct rig *r = k->r;
    unsigned i = (unsigned)ch_prng_below(&k->rng, r->slot_count);
    struct slot *s = &r->slots[i];
    bool owner = i % THREADS == k->number; /* of births and ends */
    unsigned what = (unsigned)ch_prng_below(&k->rng, 16);
    page_id pids[4];

    if (slot_pid(s) == 0)
        return owner ? page_create(r, s) : 0;
    if (what == 0)
        return owner ? page_end(r, s) : 0;
    if (what == 1) {
        for (unsigned j = 0; j < 4; j++)
            pids[j] = slot_pid(&r->slots[(i + j) % r->slot_count]);
        buf_prefetch(r->buf, pids, 4);
        return 0;
    }
    if (what < 6)
        return page_peek(k, s);
    if (what < 10)
        return page_verify(r, s);
    return owner || what < 13 ? page_change(r, s) : 0;
}

static void
worker_main(void *arg)
{
    struct worker *k = arg;

    for (unsigned i = 0; i < (k->number == THREADS ? 400 : 1500) && k->rc == 0; i++) {
        k->rc = worker_step(k);
        /* Another thread's end of the page came between: fine. */
        if (k->rc == COHORT_NOTFOUND)
            k->rc = 0;
    }
}

static void
checkpoint_main(void *arg)
{
    struct worker *k = arg;
    struct rig *r = k->r;

    while (!atomic_load_explicit(&r->stop, memory_order_relaxed) && k->rc == 0)
        if (wal_pressure(r->wal, 40, 2000000) || ch_prng_below(&k->rng, 8) == 0)
            k->rc = checkpoint(r);
}

static void
run_threads(struct rig *r, struct zt *t)
{
    static struct worker workers[THREADS + 1];

    for (unsigned i = 0; i <= THREADS; i++) {
        workers[i] = (struct worker){.r = r, .number = i};
        ch_prng_init(&workers[i].rng, t->seed * 17 + i);
        ZT_OK(t, rt_spawn(&workers[i].thread, "worker", i < THREADS ? worker_main : checkpoint_main,
                          &workers[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&workers[i].thread);
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    rt_join(&workers[THREADS].thread);
    for (unsigned i = 0; i <= THREADS; i++)
        ZT_STATUS(t, workers[i].rc, 0);
    ZT_CHECK(t, atomic_load_explicit(&r->bad, memory_order_relaxed) == 0);
}

/* Goal: no lost update, no torn read that counts, ids reused safely, with all of it at once: a cache much smaller
 * than the data, a cleaner (thread or callers), checkpoints. */
static void
test_threads(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 0, 8, 100, true, false, false};

    o.background = zt_below(t, 3) != 0;
    o.frames = 24 + (unsigned)zt_below(t, 100);
    rig_open(&r, t, &o);
    fill_slots(&r, 100 + (unsigned)zt_below(t, 200));
    run_threads(&r, t);
    buf_stop(r.buf);
    verify_all(&r);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    ZT_CHECK(t, r.buf->dirty == 0 && r.buf->dirty_new == 0);
    check_frames(&r);
    rig_reopen_buf(&r);
    verify_all(&r);
    ZT_CHECK(t, store_verify(r.store, NULL, NULL) == 0);
    rig_close(&r);
}

/* Goal: threads that ask for the same missing page at once get one frame of it between them.
 * Method: a slow device, a few pages more than frames. */
static void
test_load_races(struct zt *t)
{
    static struct rig r;
    struct rig_options o = {"generic,bytes=32M,superblock=1M", 16, 8, 100, false, true, false};
    struct dev_fault_plan slow = {.slow_ns = 20000};
    static struct worker workers[THREADS];

    rig_open(&r, t, &o);
    fill_slots(&r, 20);
    ZT_OK(t, buf_clean_until(r.buf, CH_LSN_MAX));
    dev_fault_set(r.dev, &slow);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.r = &r, .number = THREADS}; /* no births, no ends */
        ch_prng_init(&workers[i].rng, t->seed * 13 + i);
        ZT_OK(t, rt_spawn(&workers[i].thread, "worker", worker_main, &workers[i]));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        rt_join(&workers[i].thread);
        ZT_STATUS(t, workers[i].rc, 0);
    }
    verify_all(&r);
    buf_stop(r.buf);
    check_frames(&r);
    rig_close(&r);
}

static const struct zt_case CASES[] = {
    {"threads", test_threads, 12},
    {"load_races", test_load_races, 6},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "buf_threads", CASES, CH_ARRAY_LEN(CASES));
}
