/* wal_threads_test.c - the log with many threads: group commit, power cuts, waiting for room, failures. */
#include "wal/wal_test_rig.h"

#include <stdlib.h>

#define DRIVE "generic,bytes=16M,superblock=1M,cache=volatile"

#define WAIT_NS UINT64_C(20000000000)

enum {
    THREADS = 8,
    RING = 64 * WAL_BLOCK,
    BUFFER = 16 * WAL_BLOCK,
    SERIALS = 1 << 20, /* serial = thread * SERIALS + number */
};

struct worker {
    struct rt_thread thread;
    struct rig *rig;
    struct ch_prng rng;
    unsigned id;
    unsigned commits; /* to make */
    uint32_t bytes_max;
    enum wal_class class;
    unsigned flush_one_in; /* 1 = a flush after each append */
    /* results */
    unsigned appended, acked;
    int rc;
};

static void
worker_run(void *arg)
{
    struct worker *k = arg;
    lsn_t end = 0;

    for (unsigned i = 0; i < k->commits && k->rc == 0; i++) {
        uint32_t bytes = 8 + (uint32_t)ch_prng_below(&k->rng, k->bytes_max);
        uint64_t serial = (uint64_t)k->id * SERIALS + i;

        k->rc = rig_log(k->rig->wal, k->class, serial, bytes, &end);
        if (k->rc != 0)
            break;
        k->appended = i + 1;
        if (ch_prng_below(&k->rng, k->flush_one_in) != 0)
            continue;
        k->rc = wal_flush(k->rig->wal, end);
        if (k->rc == 0)
            k->acked = i + 1;
    }
}

static void
workers_start(struct zt *t, struct rig *r, struct worker *ks, unsigned commits, uint32_t bytes_max,
              unsigned flush_one_in)
{
    for (unsigned i = 0; i < THREADS; i++) {
        memset(&ks[i], 0, sizeof(ks[i]));
        ks[i].rig = r;
        ks[i].id = i;
        ks[i].commits = commits;
        ks[i].bytes_max = bytes_max;
        ks[i].class = WAL_USER;
        ks[i].flush_one_in = flush_one_in;
        ch_prng_init(&ks[i].rng, ch_prng_next(&t->rng));
        ZT_OK(t, rt_spawn(&ks[i].thread, "log-worker", worker_run, &ks[i]));
    }
}

static void
workers_join(struct worker *ks)
{
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&ks[i].thread);
}

/* Reads the log from `from`: each thread's records in order, without gaps, from next[thread] on, which is
 * moved behind the last one. Returns the tail. */
static lsn_t
scan_threads(struct zt *t, struct rig *r, lsn_t from, uint64_t *next)
{
    struct wal_scan *s = NULL;
    struct wal_record rec;
    lsn_t tail;
    int rc;

    ZT_OK(t, rig_scan_open(r, from, &s));
    while ((rc = wal_scan_next(s, &rec)) == 0) {
        uint64_t serial = ch_get64(rec.data);
        uint64_t id = serial / SERIALS;

        ZT_CHECK(t, rig_payload_ok(&rec) && id < THREADS);
        ZT_CHECK(t, serial % SERIALS == next[id]);
        next[id]++;
    }
    ZT_STATUS(t, rc, COHORT_NOTFOUND);
    tail = wal_scan_tail(s);
    rig_scan_note(r, s);
    wal_scan_close(s);
    return tail;
}

/* Goal: one flush serves all who wait: far fewer flushes than commits; each commit is durable when it returns.
 * Method: eight threads that commit on a drive that takes 100 us a request. */
static void
test_group_commit(struct zt *t)
{
    struct dev_fault_plan slow = {.slow_ns = 100000};
    struct worker ks[THREADS];
    uint64_t next[THREADS] = {0};
    struct wal_counts c;
    struct rig r;

    rig_init(t, &r, DRIVE, 2 << 20, 256 << 10);
    dev_fault_set(r.dev, &slow);
    workers_start(t, &r, ks, 60, 300, 1);
    workers_join(ks);
    wal_counts(r.wal, &c);
    ZT_CHECK(t, c.records == THREADS * 60);
    ZT_CHECK(t, c.flushes < c.records / 2);
    (void)scan_threads(t, &r, RIG_START, next);
    for (unsigned i = 0; i < THREADS; i++)
        ZT_CHECK(t, ks[i].rc == 0 && ks[i].acked == 60 && next[i] == 60);
    rig_fini(&r);
}

/* Goal: whatever was acknowledged to any thread survives the power cut; the rest is a prefix of each thread's.
 * Method: threads append and flush; the device dies after so many writes; crash; scan; next generation. */
static void
test_power_cut(struct zt *t)
{
    struct rig r;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    for (int generation = 0; generation < 4; generation++) {
        struct dev_fault_plan plan = {.code = COHORT_EIO};
        struct worker ks[THREADS];
        uint64_t next[THREADS] = {0};
        lsn_t from = r.epoch_start, tail;

        if (zt_below(t, 2) == 0)
            plan.stop_after_writes = 1 + zt_below(t, 20);
        else
            plan.fail_nth[DEV_FLUSH] = 1 + zt_below(t, 20);
        dev_fault_set(r.dev, &plan);
        wal_set_full(r.wal, true);
        workers_start(t, &r, ks, 60, 2000, 1 + (unsigned)zt_below(t, 3));
        workers_join(ks);
        rig_crash(t, &r);
        rig_dev_open(t, &r);
        tail = scan_threads(t, &r, from, next);
        for (unsigned i = 0; i < THREADS; i++) {
            ZT_CHECK(t, ks[i].rc == 0 || ks[i].rc == COHORT_EFAILED || ks[i].rc == COHORT_EFULL);
            ZT_CHECK(t, next[i] >= ks[i].acked && next[i] <= ks[i].appended);
        }
        r.cut = tail; /* a checkpoint */
        rig_next_epoch(t, &r, tail);
    }
    rig_fini(&r);
}

struct cutter {
    struct rt_thread thread;
    struct rig *rig;
    _Atomic bool stop; /* partner: the main thread */
};

/* Plays the checkpoint thread. */
static void
cutter_run(void *arg)
{
    struct cutter *c = arg;
    struct rig *r = c->rig;

    while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
        if (!wal_pressure(r->wal, 50, 20 * 1000 * 1000))
            continue;
        if (wal_flush(r->wal, wal_end(r->wal)) != 0)
            break;
        rig_truncate(r, wal_durable(r->wal));
    }
}

/* Goal: threads that want far more log than the ring holds all get through, large reservations beside small
 * ones; waiting for room wakes the checkpoint thread; W3 and W4 hold (asserts of wal_append()). */
static void
room_is_made(struct zt *t, uint64_t ring, uint64_t buffer, unsigned each, uint32_t bytes_max)
{
    struct worker ks[THREADS];
    uint64_t used, size;
    struct cutter c = {0};
    struct rig r;
    struct wal_counts counts;

    rig_init(t, &r, DRIVE, ring, buffer);
    c.rig = &r;
    ZT_OK(t, rt_spawn(&c.thread, "log-cutter", cutter_run, &c));
    workers_start(t, &r, ks, each, bytes_max, 4);
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&ks[i].thread);
    atomic_store_explicit(&c.stop, true, memory_order_release); /* partner: cutter_run() */
    wal_wake(r.wal);
    rt_join(&c.thread);
    wal_counts(r.wal, &counts);
    ZT_CHECK(t, counts.records == THREADS * each && wal_end(r.wal) > 4 * ring);
    for (unsigned i = 0; i < THREADS; i++)
        ZT_CHECK(t, ks[i].rc == 0 && ks[i].appended == each);
    wal_usage(r.wal, &used, &size); /* everybody has given back what he had */
    ZT_CHECK(t, r.wal->granted == 0 && r.wal->pads == 0 && r.wal->pooled == 0);
    rig_fini(&r);
}

static void
test_room_is_made(struct zt *t)
{
    room_is_made(t, RING, BUFFER, 150, 6000);
}

/* The same with a pool, most records coming under its tickets (W7). */
static void
test_room_is_made_pool(struct zt *t)
{
    room_is_made(t, 4 * RING, 6 * BUFFER, 600, 4000);
}

/* Goal: nobody stays asleep: waiting users leave with EFULL or, when nobody cuts the log any more, EFAILED as they are told,
 * all others with EFAILED when the log fails. */
static void
test_waiters_leave(struct zt *t)
{
    struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_forever = true};
    uint64_t how = zt_below(t, 3);
    bool full = how == 0, uncut = how == 1;
    uint64_t began;
    struct worker ks[THREADS];
    struct wal_ticket hold = {0};
    struct rig r;

    rig_init(t, &r, DRIVE, RING, RING);
    if (!full && !uncut)
        ZT_OK(t, wal_reserve(r.wal, WAL_SYSTEM, 100, &hold));
    workers_start(t, &r, ks, 1000, 3000, 1);
    began =
        rt_now_ns(); /* no use is above 100 percent: true only because somebody waits, and then at once */
    ZT_CHECK(t, wal_pressure(r.wal, 100, WAIT_NS));
    ZT_CHECK(t, rt_now_ns() - began < WAIT_NS / 2);
    if (full) {
        wal_set_full(r.wal, true);
    } else if (uncut) {
        wal_set_uncut(r.wal);
    } else {
        plan.fail_nth[DEV_WRITE] = 1;
        dev_fault_set(r.dev, &plan);
        (void)rig_append(r.wal, &hold, 1, 50, CH_WAL);
        ZT_STATUS(t, wal_flush(r.wal, wal_end(r.wal)), COHORT_EFAILED);
    }
    workers_join(ks);
    for (unsigned i = 0; i < THREADS; i++)
        ZT_CHECK(t, ks[i].rc == (full ? COHORT_EFULL : COHORT_EFAILED));
    wal_release(r.wal, &hold);
    rig_fini(&r);
}

/* A ticket of two blocks, used in two appends with a flush of somebody's between them. */
static void
filler_run(void *arg)
{
    struct worker *k = arg;
    struct wal *w = k->rig->wal;
    uint32_t rest = 2 * WAL_PAYLOAD - 100 - 2 * WAL_RECORD_HEADER;

    for (unsigned i = 0; i < k->commits && k->rc == 0; i++) {
        uint64_t serial = (uint64_t)k->id * SERIALS + 2 * i;
        struct wal_ticket ticket = {0};
        lsn_t end;

        k->rc = wal_reserve(w, k->class, 2 * WAL_PAYLOAD, &ticket);
        if (k->rc != 0)
            break;
        end = rig_append(w, &ticket, serial, 100, CH_WAL);
        if (ch_prng_below(&k->rng, THREADS) == 0)
            k->rc = wal_flush(w, end);
        else
            rt_sleep_ns(ch_prng_below(&k->rng, 200000));
        (void)rig_append(w, &ticket, serial + 1, rest, CH_WAL);
        k->appended++;
        wal_release(w, &ticket);
    }
}

/* Goal: W3: grants of all threads fit into the buffer even when a flush that is under way holds blocks and has
 * padded one (assert of wal_append()); those that do not fit wait and get through.
 * Method: a buffer of sixteen blocks, eight threads with tickets of two, a slow drive. */
static void
test_buffer_holds(struct zt *t)
{
    struct dev_fault_plan slow = {.slow_ns = 200000};
    struct worker ks[THREADS];
    uint64_t next[THREADS] = {0};
    struct rig r;

    rig_init(t, &r, DRIVE, 8 << 20, BUFFER);
    dev_fault_set(r.dev, &slow);
    for (unsigned i = 0; i < THREADS; i++) {
        memset(&ks[i], 0, sizeof(ks[i]));
        ks[i].rig = &r;
        ks[i].id = i;
        ks[i].commits = 30;
        ks[i].class = i % 2 == 0 ? WAL_USER : WAL_SYSTEM;
        ch_prng_init(&ks[i].rng, ch_prng_next(&t->rng));
        ZT_OK(t, rt_spawn(&ks[i].thread, "log-filler", filler_run, &ks[i]));
    }
    workers_join(ks);
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    dev_fault_set(r.dev, &(struct dev_fault_plan){0});
    (void)scan_threads(t, &r, RIG_START, next);
    for (unsigned i = 0; i < THREADS; i++)
        ZT_CHECK(t, ks[i].rc == 0 && next[i] == 60);
    rig_fini(&r);
}

static void
pressure_run(void *arg)
{
    struct worker *k = arg;

    k->rc = wal_pressure(k->rig->wal, 100, WAIT_NS) ? 1 : 0;
}

/* Goal: wal_wake() ends the wait for pressure, be it before or after it began; time ends it, too. */
static void
test_wake(struct zt *t)
{
    struct worker k = {0};
    uint64_t began = rt_now_ns();
    struct rig r;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    k.rig = &r;
    ZT_OK(t, rt_spawn(&k.thread, "log-pressure", pressure_run, &k));
    rt_sleep_ns(zt_below(t, 2) * 2000000);
    wal_wake(r.wal);
    rt_join(&k.thread);
    ZT_CHECK(t, k.rc == 0 && rt_now_ns() - began < WAIT_NS / 2);
    ZT_CHECK(t, !wal_pressure(r.wal, 100, 1000000)); /* the wake is used up */
    ZT_CHECK(t, rt_now_ns() - began >= 1000000);
    rig_fini(&r);
}

/* Goal: a single reservation that waits for ring room wakes the checkpoint thread, and the cut lets it through. */
static void
test_waiter_wakes_pressure(struct zt *t)
{
    struct worker pressure = {0}, waiter = {0};
    uint64_t began = rt_now_ns(), used, size;
    struct wal_ticket hold = {0};
    struct rig r;
    lsn_t end = 0;

    rig_init(t, &r, DRIVE, RING, RING);
    do { /* to just below the users' limit */
        ZT_OK(t, rig_log(r.wal, WAL_USER, 0, 4000, &end));
        ZT_OK(t, wal_flush(r.wal, end));
        wal_usage(r.wal, &used, &size);
    } while (used < size * 3 / 4 - 4 * WAL_BLOCK);
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, 100, &hold)); /* keeps the waiter from fitting */
    pressure.rig = waiter.rig = &r;
    waiter.commits = 1;
    waiter.bytes_max = 4000;
    waiter.flush_one_in = 1;
    ZT_OK(t, rt_spawn(&pressure.thread, "log-pressure", pressure_run, &pressure));
    rt_sleep_ns(5000000); /* most likely it waits by now */
    ZT_OK(t, rt_spawn(&waiter.thread, "log-waiter", worker_run, &waiter));
    rt_join(&pressure.thread);
    ZT_CHECK(t, pressure.rc == 1 && rt_now_ns() - began < WAIT_NS / 2);
    rig_truncate(&r, wal_durable(r.wal));
    rt_join(&waiter.thread);
    ZT_CHECK(t, waiter.rc == 0 && waiter.acked == 1);
    wal_release(r.wal, &hold);
    rig_fini(&r);
}

struct forcer {
    struct rt_thread thread;
    struct rig *rig;
    bool late; /* a forced flush was not one that began after the call */
};

static void
forcer_run(void *arg)
{
    struct forcer *f = arg;

    for (int i = 0; i < 40; i++) {
        uint64_t ticket = dev_flush_ticket(f->rig->dev);

        if (wal_flush_force(f->rig->wal) != 0 || dev_flush_done(f->rig->dev) < ticket)
            f->late = true;
    }
}

/* Goal: a forced flush begins after the call, whoever leads it, and forced flushes share one. */
static void
test_force_is_shared(struct zt *t)
{
    struct dev_fault_plan slow = {.slow_ns = 100000};
    struct forcer fs[THREADS];
    struct wal_counts c;
    struct rig r;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    dev_fault_set(r.dev, &slow);
    for (unsigned i = 0; i < THREADS; i++) {
        fs[i].rig = &r;
        fs[i].late = false;
        ZT_OK(t, rt_spawn(&fs[i].thread, "log-forcer", forcer_run, &fs[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&fs[i].thread);
    for (unsigned i = 0; i < THREADS; i++)
        ZT_CHECK(t, !fs[i].late);
    wal_counts(r.wal, &c);
    ZT_CHECK(t, c.flushes >= 40 && c.flushes < THREADS * 40 / 2);
    rig_fini(&r);
}

static const struct zt_case cases[] = {
    {"group_commit", test_group_commit, 3},
    {"power_cut", test_power_cut, 30},
    {"room_is_made", test_room_is_made, 10},
    {"room_is_made_pool", test_room_is_made_pool, 10},
    {"waiters_leave", test_waiters_leave, 8},
    {"wake", test_wake, 6},
    {"waiter_wakes_pressure", test_waiter_wakes_pressure, 3},
    {"buffer_holds", test_buffer_holds, 4},
    {"force_is_shared", test_force_is_shared, 2},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "wal-threads", cases, CH_ARRAY_LEN(cases));
}
