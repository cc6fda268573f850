/* ver_wait_test.c - waiting for records: rings, timeouts, cancels, wakes. */
#include <stdlib.h>

#include "base/status.h"
#include "rt/rt.h"
#include "ver/ver_test_rig.h"

enum {
    RING_MAX = 5,
    LONG_NS = 2000000000, /* that long a wait means a lost wakeup */
};

struct waiting {
    struct zt *t;
    struct ver *v;
    struct ver_waiter me;
    struct ver_owner owner;
    struct rt_thread thread;
    uint64_t ns;
    _Atomic int rc; /* 1 = not yet; partner: whoever joins, or polls */
    char text[256];
};

static void
wait_main(void *arg)
{
    struct waiting *w = arg;
    int rc = ver_wait(w->v, &w->me, &w->owner, w->ns);

    if (rc != 0)
        memcpy(w->text, ch_last_error()->text, sizeof(w->text));
    atomic_store_explicit(&w->rc, rc, memory_order_release);
}

static void
waiting_start(struct zt *t, struct ver *v, struct waiting *w, uint64_t id, uint64_t owner)
{
    *w = (struct waiting){.t = t, .v = v, .ns = 10ull * LONG_NS};
    w->me.id = id;
    w->owner.id = owner;
    atomic_store_explicit(&w->rc, 1, memory_order_relaxed);
    ZT_OK(t, rt_spawn(&w->thread, "ver-wait", wait_main, w));
}

/* Until `n` waits have begun. */
static void
until_waits(struct ver *v, uint64_t n)
{
    struct ver_counts c;

    for (ver_counts(v, &c); c.waits < n; ver_counts(v, &c))
        rt_sleep_ns(100000);
}

/* Goal (L2): the wait that closes a ring of any size gets DEADLOCK, with the ring in its text; the others
 * go on when it aborts. A wait that only leads into others' waits is none. */
static void
test_rings(struct zt *t)
{
    for (unsigned n = 2; n <= RING_MAX; n++) {
        struct ver *v = rig_ver(t, 1 << 20);
        struct rig_txn x[RING_MAX];
        struct waiting w[RING_MAX];
        struct ver_waiter last = {0}, outside = {0};
        struct ver_counts c;
        struct ver_owner first;
        char want[128] = "";

        for (unsigned i = 0; i < n; i++)
            rig_begin(t, v, &x[i], 1000);
        for (unsigned i = 0; i + 1 < n; i++) {
            waiting_start(t, v, &w[i], ver_txn_id(x[i].w), ver_txn_id(x[i + 1].w));
            until_waits(v, i + 1);
        }
        first = (struct ver_owner){.id = ver_txn_id(x[0].w)};
        outside.id = 1000;
        ZT_STATUS(t, ver_wait(v, &outside, &first, 1000), COHORT_TIMEOUT);
        outside.id = 0;
        ZT_STATUS(t, ver_wait(v, &outside, &first, 1000), COHORT_TIMEOUT);
        last.id = ver_txn_id(x[n - 1].w);
        ZT_STATUS(t, ver_wait(v, &last, &first, LONG_NS), COHORT_DEADLOCK);
        (void)snprintf(want, sizeof(want), ": %u -> 1 -> 2", n);
        ZT_CHECK(t, strstr(ch_last_error()->text, n == 2 ? ": 2 -> 1 -> 2" : want) != NULL);
        for (unsigned i = n; i-- > 0;) {
            rig_abort(v, &x[i]);
            if (i > 0) {
                rt_join(&w[i - 1].thread);
                ZT_OK(t, atomic_load_explicit(&w[i - 1].rc, memory_order_acquire));
            }
        }
        ver_counts(v, &c);
        ZT_CHECK(t, c.deadlocks == 1 && c.timeouts == 2 && c.waits == n + 1);
        ver_destroy(v);
    }
}

/* Goal: a wait for somebody who is gone is none; a timeout ends in time; a cancel ends the wait, or the next
 * one, once. */
static void
test_timeout_and_cancel(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_owner owner = {.id = 77};
    struct ver_waiter me = {.id = 50};
    struct waiting w;
    struct rig_txn x;
    uint64_t begin;

    ZT_OK(t, ver_wait(v, &me, &owner, UINT64_MAX));
    rig_begin(t, v, &x, 1000);
    owner.id = ver_txn_id(x.w);
    begin = rt_now_ns();
    ZT_STATUS(t, ver_wait(v, &me, &owner, 30000000), COHORT_TIMEOUT);
    ZT_CHECK(t, rt_now_ns() - begin >= 30000000);
    ZT_STATUS(t, ver_wait(v, &me, &owner, 0), COHORT_TIMEOUT);
    ver_cancel(v, &me);
    ZT_STATUS(t, ver_wait(v, &me, &owner, UINT64_MAX), COHORT_CANCELED);
    ZT_STATUS(t, ver_wait(v, &me, &owner, 1000), COHORT_TIMEOUT);
    waiting_start(t, v, &w, 60, owner.id);
    until_waits(v, 5);
    begin = rt_now_ns();
    ver_cancel(v, &w.me);
    rt_join(&w.thread);
    ZT_CHECK(t, rt_now_ns() - begin < LONG_NS);
    ZT_CHECK(t, atomic_load_explicit(&w.rc, memory_order_acquire) == COHORT_CANCELED);
    ZT_CHECK(t, !atomic_load_explicit(&w.me.canceled, memory_order_relaxed));
    rig_abort(v, &x);
    ver_destroy(v);
}

struct seen {
    uint64_t waiter, holder;
    void *waiter_tag, *holder_tag;
    unsigned calls;
};

static void
note(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder, void *holder_tag)
{
    struct seen *s = arg;

    *s = (struct seen){waiter, holder, waiter_tag, holder_tag, s->calls + 1};
}

/* Goal: the hook is told who and whom; a rollback to a savepoint wakes who met the lock before it, even when the wait begins
 * after the wake (L4), and nobody else is kept from sleeping. */
static void
test_hook_and_wake(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    struct ver_waiter me = {.id = 50, .tag = &me};
    struct ver_owner owner = {0};
    struct seen s = {0};
    struct waiting w;
    struct rig_txn x;
    bool again;
    char k[RIG_KEY];

    ver_set_wait_hook(v, note, &s);
    rig_begin(t, v, &x, 1000);
    (void)rig_push(t, v, x.w, rig_key(1, 1, k), 5, 1100);
    ZT_CHECK(t, ver_may_write(v, NULL, NULL, rig_key(1, 1, k), &owner, &again) == COHORT_ERETRY);
    ZT_STATUS(t, ver_wait(v, &me, &owner, 1000), COHORT_TIMEOUT);
    ZT_CHECK(t, s.calls == 1 && s.waiter == 50 && s.waiter_tag == &me &&
                    s.holder == ver_txn_id(x.w) && s.holder_tag == &x);
    ver_entry_pop(v, ver_newest(x.w));
    ver_wake(v, x.w);
    ZT_OK(t, ver_wait(v, &me, &owner, UINT64_MAX));
    (void)rig_push(t, v, x.w, rig_key(1, 1, k), 5, 1200);
    ZT_CHECK(t, ver_may_write(v, NULL, NULL, rig_key(1, 1, k), &owner, &again) == COHORT_ERETRY);
    ZT_STATUS(t, ver_wait(v, &me, &owner, 1000), COHORT_TIMEOUT);
    ver_set_wait_hook(v, NULL, NULL);
    waiting_start(t, v, &w, 60, owner.id);
    until_waits(v, 4);
    ver_wake(v, x.w);
    rt_join(&w.thread);
    ZT_OK(t, atomic_load_explicit(&w.rc, memory_order_acquire));
    ZT_CHECK(t, s.calls == 3);
    rig_abort(v, &x);
    ver_destroy(v);
}

/* ---- wakeups ---- */

enum {
    TAKERS = 4,
    ROUNDS = 2000
};
struct taker {
    struct zt *t;
    struct ver *v;
    struct rt_mutex *latch;
    _Atomic lsn_t *log;
    struct rt_thread thread;
    struct ver_waiter me;
    uint64_t slept;
};

/* Takes the one record ROUNDS times, ends by commit or abort. */
static void
taker_main(void *arg)
{
    struct taker *k = arg;
    char key[RIG_KEY];

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct rig_txn x;
        struct ver_owner owner;
        bool again;
        int rc;

        rig_begin(k->t, k->v, &x, atomic_load_explicit(k->log, memory_order_relaxed));
        k->me = (struct ver_waiter){.id = ver_txn_id(x.w)};
        for (;;) {
            rt_lock(k->latch);
            rc = ver_may_write(k->v, x.w, NULL, rig_key(1, 1, key), &owner, &again);
            if (rc == 0)
                (void)rig_push(k->t, k->v, x.w, rig_key(1, 1, key), 5,
                               1 + atomic_fetch_add_explicit(k->log, 1, memory_order_relaxed));
            rt_unlock(k->latch);
            if (rc == 0)
                break;
            ZT_OK(k->t, ver_wait(k->v, &k->me, &owner, LONG_NS));
            k->slept++;
        }
        if (i % 8 == 0)
            rt_yield();
        if (i % 3 == 0) {
            rt_lock(k->latch);
            ver_entry_pop(k->v, ver_newest(x.w));
            rt_unlock(k->latch);
            ver_abort_end(k->v, x.w);
        } else {
            ver_commit_lock(k->v);
            ver_commit_end(k->v, x.w,
                           1 + atomic_fetch_add_explicit(k->log, 1, memory_order_relaxed), false);
        }
        rig_close(k->v, &x);
    }
}

/* Goal (L1): of all waits for a record that is always taken, none is left sleeping. */
static void
test_no_lost_wakeup(struct zt *t)
{
    struct ver *v = rig_ver(t, 1 << 20);
    _Atomic lsn_t log = 1000;
    struct taker takers[TAKERS];
    struct rt_mutex latch;
    uint64_t slept = 0;

    rt_mutex_init(&latch, RT_RANK_LATCHED, 0);
    for (unsigned i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){.t = t, .v = v, .latch = &latch, .log = &log};
        ZT_OK(t, rt_spawn(&takers[i].thread, "ver-taker", taker_main, &takers[i]));
    }
    for (unsigned i = 0; i < TAKERS; i++) {
        rt_join(&takers[i].thread);
        slept += takers[i].slept;
    }
    ZT_CHECK(t, slept > 0);
    rt_mutex_fini(&latch);
    ver_destroy(v);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"rings", test_rings, 3},
        {"timeout_and_cancel", test_timeout_and_cancel, 1},
        {"hook_and_wake", test_hook_and_wake, 1},
        {"no_lost_wakeup", test_no_lost_wakeup, 4},
    };

    return zt_main(argc, argv, "ver_wait", cases, CH_ARRAY_LEN(cases));
}
