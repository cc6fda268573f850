/* latch_test.c - latch words: exclusion, waking, versions. */
#include "buf/latch.h"
#include "rt/rt.h"
#include "zt/zt.h"

enum {
    THREADS = 4,
    WORDS = 3,
    STEPS = 20000,
    CELLS = 8
};

struct shared {
    struct latch_lot lot;
    struct latch latches[WORDS];
    /* Equal under S and X; written one by one under X. Relaxed: the latch orders them. */
    _Atomic uint64_t cells[WORDS][CELLS];
    uint64_t writes[WORDS]; /* under X */
    _Atomic unsigned bad;   /* relaxed, read after the join */
    _Atomic unsigned peeks_valid;
};

struct worker {
    struct shared *s;
    struct ch_prng rng;
    struct rt_thread thread;
    uint64_t writes[WORDS];
};

static uint64_t
cell_get(const struct shared *s, unsigned w, unsigned i)
{
    return atomic_load_explicit(&s->cells[w][i], memory_order_relaxed);
}

static bool
cells_equal(const struct shared *s, unsigned w)
{
    uint64_t v = cell_get(s, w, 0);

    for (unsigned i = 1; i < CELLS; i++)
        if (cell_get(s, w, i) != v)
            return false;
    return true;
}

static void
bad(struct shared *s)
{
    (void)atomic_fetch_add_explicit(&s->bad, 1, memory_order_relaxed);
}

/* X held. */
static void
write_cells(struct worker *k, unsigned w)
{
    if (!cells_equal(k->s, w))
        bad(k->s);
    for (unsigned i = 0; i < CELLS; i++) {
        atomic_store_explicit(&k->s->cells[w][i], cell_get(k->s, w, i) + 1, memory_order_relaxed);
        if (i == CELLS / 2 && ch_prng_below(&k->rng, 16) == 0)
            rt_yield(); /* be interrupted in the middle */
    }
    k->s->writes[w]++;
    k->writes[w]++;
}

static void
read_cells(struct worker *k, unsigned w)
{
    if (!cells_equal(k->s, w) || k->s->writes[w] != cell_get(k->s, w, 0))
        bad(k->s);
    if (ch_prng_below(&k->rng, 64) == 0)
        rt_yield();
}

static void
peek_cells(struct worker *k, unsigned w)
{
    struct shared *s = k->s;
    uint64_t version = latch_version(&s->lot, &s->latches[w]);
    bool equal = cells_equal(s, w);

    if (!latch_valid(&s->latches[w], version))
        return;
    (void)atomic_fetch_add_explicit(&s->peeks_valid, 1, memory_order_relaxed);
    if (!equal)
        bad(s);
}

static void
worker_step(struct worker *k)
{
    struct shared *s = k->s;
    unsigned w = (unsigned)ch_prng_below(&k->rng, WORDS);
    struct latch *l = &s->latches[w];

    switch (ch_prng_below(&k->rng, 6)) {
    case 0:
        latch_excl(&s->lot, l);
        write_cells(k, w);
        latch_unlock_excl(&s->lot, l, true);
        break;
    case 1:
        if (latch_try_excl(l)) {
            read_cells(k, w); /* no write: a downgrade leaves the version */
            latch_downgrade(&s->lot, l);
            read_cells(k, w);
            latch_unlock_shared(&s->lot, l);
        }
        break;
    case 2:
        if (latch_try_shared(l)) {
            read_cells(k, w);
            latch_unlock_shared(&s->lot, l);
        }
        break;
    case 3:
        peek_cells(k, w);
        break;
    default:
        latch_shared(&s->lot, l);
        read_cells(k, w);
        latch_unlock_shared(&s->lot, l);
        break;
    }
}

static void
worker_main(void *arg)
{
    struct worker *k = arg;

    for (unsigned i = 0; i < STEPS; i++)
        worker_step(k);
}

/* Goal: X excludes everybody, S excludes X, no waiter sleeps for ever, no peek counts that overlapped a write.
 * Method: threads that change and compare cells under every kind of latch. */
static void
test_threads(struct zt *t)
{
    static struct shared s;
    static struct worker workers[THREADS];
    uint64_t writes;

    memset(&s, 0, sizeof(s));
    latch_lot_init(&s.lot);
    for (unsigned i = 0; i < THREADS; i++) {
        memset(&workers[i], 0, sizeof(workers[i]));
        workers[i].s = &s;
        ch_prng_init(&workers[i].rng, t->seed * 31 + i);
        ZT_OK(t, rt_spawn(&workers[i].thread, "latch", worker_main, &workers[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        rt_join(&workers[i].thread);
    ZT_CHECK(t, atomic_load_explicit(&s.bad, memory_order_relaxed) == 0);
    for (unsigned w = 0; w < WORDS; w++) {
        writes = 0;
        for (unsigned i = 0; i < THREADS; i++)
            writes += workers[i].writes[w];
        ZT_CHECK(t, cell_get(&s, w, 0) == writes && cells_equal(&s, w));
        /* Free: only the version is left, perhaps with a stale waiters bit. */
        ZT_CHECK(t, (s.latches[w].word & (LATCH_X | LATCH_SHARED)) == 0);
    }
    latch_lot_fini(&s.lot);
}

/* Goal: the version moves exactly when asked. */
static void
test_versions(struct zt *t)
{
    static struct latch_lot lot;
    struct latch l = {0};
    uint64_t v;

    latch_lot_init(&lot);
    v = latch_version(&lot, &l);
    ZT_CHECK(t, latch_try_shared(&l));
    ZT_CHECK(t, !latch_try_excl(&l));
    ZT_CHECK(t, latch_valid(&l, v));
    latch_unlock_shared(&lot, &l);
    ZT_CHECK(t, latch_try_excl(&l));
    ZT_CHECK(t, !latch_try_excl(&l) && !latch_try_shared(&l));
    ZT_CHECK(t, !latch_valid(&l, v));
    latch_unlock_excl(&lot, &l, false);
    ZT_CHECK(t, latch_valid(&l, v));
    latch_excl(&lot, &l);
    latch_downgrade(&lot, &l);
    ZT_CHECK(t, latch_valid(&l, v) && latch_try_shared(&l));
    latch_unlock_shared(&lot, &l);
    latch_unlock_shared(&lot, &l);
    latch_excl(&lot, &l);
    latch_unlock_excl(&lot, &l, true);
    ZT_CHECK(t, !latch_valid(&l, v));
    ZT_CHECK(t, latch_version(&lot, &l) != v);
    /* At its end the version starts over; the other bits do not notice. */
    l.word = LATCH_VERSION;
    latch_excl(&lot, &l);
    latch_unlock_excl(&lot, &l, true);
    ZT_CHECK(t, l.word == 0);
    latch_lot_fini(&lot);
}

struct sleeper {
    struct latch_lot lot;
    struct latch latch;
};

static void
sleeper_main(void *arg)
{
    struct sleeper *s = arg;

    latch_shared(&s->lot, &s->latch);
    latch_unlock_shared(&s->lot, &s->latch);
}

/* Goal: each way of giving X up wakes a reader that has parked. */
static void
test_wakes(struct zt *t)
{
    static struct sleeper s;
    struct rt_thread thread;

    latch_lot_init(&s.lot);
    for (unsigned how = 0; how < 3; how++) {
        s.latch.word = 0;
        latch_excl(&s.lot, &s.latch);
        ZT_OK(t, rt_spawn(&thread, "sleeper", sleeper_main, &s));
        while ((atomic_load_explicit(&s.latch.word, memory_order_relaxed) & LATCH_WAITERS) == 0)
            rt_yield();
        if (how == 2)
            latch_downgrade(&s.lot, &s.latch);
        else
            latch_unlock_excl(&s.lot, &s.latch, how == 0);
        rt_join(&thread);
        if (how == 2)
            latch_unlock_shared(&s.lot, &s.latch);
    }
    latch_lot_fini(&s.lot);
}

static const struct zt_case CASES[] = {
    {"versions", test_versions, 1},
    {"wakes", test_wakes, 10},
    {"threads", test_threads, 10},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "latch", CASES, CH_ARRAY_LEN(CASES));
}
