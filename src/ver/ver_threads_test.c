/* ver_threads_test.c - the version store under real threads, over simulated leaves; worth most under TSan.
 *
 * A leaf is a record: a mutex for its latch, a value, a write LSN. The log is a counter under a mutex of its own.
 * Writers move amounts between records, so every view must see the same sum.
 *
 * Built a second time over the simulated rt (VER_TEST_SIM): then one schedule of threads a seed, with switches in
 * places that real threads hardly ever hit.
 */
#include <stdlib.h>

#ifdef VER_TEST_SIM
#include "rt/rt_sim.h"
#endif
#include "rt/rt.h"
#include "ver/ver_test_rig.h"

enum {
    LEAVES = 40,
    START = 1000, /* in each */
#ifdef VER_TEST_SIM
    RUNS = 150,
    WRITES = 60,
#else
    RUNS = 3,
    WRITES = 4000,
#endif
};

static void
sim_start(struct zt *t)
{
#ifdef VER_TEST_SIM
    struct rt_sim_config cfg = {
        .seed = t->seed, .stall_ns = UINT64_C(3600000000000), .stall_points = 100000000};

    rt_sim_start(&cfg);
#else
    (void)t;
#endif
}

static void
sim_stop(void)
{
#ifdef VER_TEST_SIM
    struct rt_sim_stats stats;

    rt_sim_stop(&stats);
#endif
}

struct leaf {
    struct rt_mutex latch;
    int64_t value;
    lsn_t write_lsn;
};
struct world {
    struct zt *t;
    struct ver *v;
    struct leaf leaves[LEAVES];
    struct rt_mutex log_lock;
    lsn_t log;
    bool kills;        /* the bound of memory is so small that views must be killed */
    _Atomic bool stop; /* main (release) -> readers (acquire) */
    _Atomic uint64_t commits, conflicts, dead, before, sums, copies_stale; /* relaxed counts */
};
struct worker {
    struct world *s;
    struct rt_thread thread;
    struct ch_prng rng;
};

static void
count(_Atomic uint64_t *n)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static lsn_t
log_end(struct world *s)
{
    lsn_t lsn;

    rt_lock(&s->log_lock);
    lsn = s->log;
    rt_unlock(&s->log_lock);
    return lsn;
}

static lsn_t
log_append(struct world *s)
{
    lsn_t lsn;

    rt_lock(&s->log_lock);
    s->log += 10;
    lsn = s->log;
    rt_unlock(&s->log_lock);
    return lsn;
}

static struct ver_key
leaf_key(unsigned i, char *text)
{
    return rig_key(1 + i % 2, i, text);
}

static struct ver_entry *
entry_for(struct world *s, struct ver_txn *w, unsigned i)
{
    int64_t image[30] = {0}; /* apart */
    struct ver_entry *e;
    char k[RIG_KEY];

    image[0] = s->leaves[i].value;
    e = ver_entry_create(s->v, w, leaf_key(i, k), VER_WAS_VALUE, 0, image,
                         i % 2 == 0 ? sizeof(image) : sizeof(image[0]));
    ZT_CHECK(s->t, e != NULL);
    return e;
}

/* ---- writers ---- */

/* An operation of its own on a leaf that is latched. */
static lsn_t
write_own(struct world *s, unsigned i, int64_t value)
{
    int64_t image[30] = {s->leaves[i].value};
    char k[RIG_KEY];
    const struct ver_own own = {
        .key = leaf_key(i, k),
        .kind = VER_WAS_VALUE,
        .before = image,
        .before_bytes = i % 2 == 0 ? sizeof(image) : sizeof(image[0]),
    };
    lsn_t lsn;

    ver_commit_lock(s->v);
    ZT_OK(s->t, ver_own_begin(s->v, &own));
    lsn = log_append(s);
    s->leaves[i].write_lsn = lsn;
    ver_own_end(s->v, &own, lsn, false);
    s->leaves[i].value = value;
    return lsn;
}

/* Adds to the leaf's value, waiting for its writer. False: conflict. */
static bool
add_to(struct worker *w, struct rig_txn *x, unsigned i, int64_t amount)
{
    struct world *s = w->s;
    struct leaf *leaf = &s->leaves[i];
    struct ver_waiter me = {.id = ver_txn_id(x->w)};
    struct ver_owner owner;
    struct ver_entry *e;
    bool again;
    char k[RIG_KEY];
    int rc;

    for (;;) {
        lsn_t lsn;

        rt_lock(&leaf->latch);
        rc = ver_may_write(s->v, x->w, &x->view, leaf_key(i, k), &owner, &again);
        if (rc == 0) {
            e = again ? NULL : entry_for(s, x->w, i);
            lsn = log_append(s);
            leaf->value += amount;
            leaf->write_lsn = lsn;
            if (e != NULL)
                ver_entry_push(s->v, e, lsn, false);
        }
        rt_unlock(&leaf->latch);
        if (rc == COHORT_ERETRY)
            rc = ver_wait(s->v, &me, &owner, UINT64_C(5000000000));
        else
            break;
        ZT_CHECK(s->t, rc == 0 || rc == COHORT_DEADLOCK);
        if (rc != 0)
            break;
    }
    ZT_CHECK(s->t, rc == 0 || rc == COHORT_CONFLICT || rc == COHORT_DEADLOCK ||
                       rc == COHORT_SNAPSHOT_TOO_OLD);
    return rc == 0;
}

static void
undo_all(struct world *s, struct rig_txn *x)
{
    for (struct ver_entry *e = ver_newest(x->w); e != NULL; e = ver_newest(x->w)) {
        struct ver_undo u;
        struct leaf *leaf;
        unsigned i;
        char k[RIG_KEY];

        ver_entry_info(e, &u);
        memcpy(k, u.key, u.key_bytes);
        k[u.key_bytes] = 0;
        i = (unsigned)strtoul(k + 3, NULL, 10);
        leaf = &s->leaves[i];
        rt_lock(&leaf->latch);
        memcpy(&leaf->value, u.before, sizeof(leaf->value));
        leaf->write_lsn = log_append(s);
        ver_entry_pop(s->v, e);
        rt_unlock(&leaf->latch);
    }
    ver_abort_end(s->v, x->w);
}

static void
transfer(struct worker *w)
{
    struct world *s = w->s;
    struct rig_txn x;
    int64_t amount = (int64_t)ch_prng_below(&w->rng, 50);
    bool durable = ch_prng_below(&w->rng, 2) == 0;
    bool ok;
    lsn_t lsn;

    rig_begin(s->t, s->v, &x, log_end(s));
    ok = add_to(w, &x, (unsigned)ch_prng_below(&w->rng, LEAVES), amount) &&
         add_to(w, &x, (unsigned)ch_prng_below(&w->rng, LEAVES), -amount) &&
         ch_prng_below(&w->rng, 10) != 0;
    if (ok) {
        ver_commit_lock(s->v);
        lsn = log_append(s);
        ver_commit_end(s->v, x.w, lsn, durable);
        if (durable)
            (void)ver_advance(s->v, lsn);
        while (ver_horizon(s->v) < lsn)
            rt_yield();
        count(&s->commits);
    } else {
        undo_all(s, &x);
        count(&s->conflicts);
    }
    rig_close(s->v, &x);
}

/* An operation of its own: writes the same value again. */
static void
touch(struct worker *w)
{
    struct world *s = w->s;
    unsigned i = (unsigned)ch_prng_below(&w->rng, LEAVES);
    struct leaf *leaf = &s->leaves[i];
    struct ver_owner owner;
    bool again;
    char k[RIG_KEY];

    rt_lock(&leaf->latch);
    if (ver_may_write(s->v, NULL, NULL, leaf_key(i, k), &owner, &again) == 0)
        (void)write_own(s, i, leaf->value);
    rt_unlock(&leaf->latch);
}

/* The readers have met what the run is for. Simulated schedules leave that to the sum of all runs. */
static bool
covered(struct world *s)
{
#ifdef VER_TEST_SIM
    (void)s;
    return true;
#else
    struct ver_counts c;

    ver_counts(s->v, &c);
    return atomic_load_explicit(&s->sums, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&s->before, memory_order_relaxed) > 0 &&
           (!s->kills || c.killed > 0);
#endif
}

/* On a busy machine the readers may come late: goes on until they were there, within a bound. */
static void
writer_main(void *arg)
{
    struct worker *w = arg;

    for (unsigned n = 0; n < WRITES || (n < 100 * WRITES && !covered(w->s)); n++) {
        if (n % 4 == 0)
            touch(w);
        transfer(w);
        (void)ver_relieve(w->s->v);
    }
}

/* ---- readers ---- */

static int64_t
value_of(const struct ver_found *f)
{
    int64_t value;

    memcpy(&value, f->data, sizeof(value));
    return value;
}

/* The view's value of a leaf. With `copy` the versions are asked after the latch is gone. False: dead. */
static bool
read_leaf(struct world *s, const struct ver_view *view, unsigned i, bool copy, int64_t *value)
{
    struct leaf *leaf = &s->leaves[i];
    struct ver_found f = {.how = VER_CURRENT};
    uint64_t pops;
    bool fast;
    char k[RIG_KEY];

    for (;;) {
        rt_lock(&leaf->latch);
        pops = ver_pops(s->v);
        fast = ver_fast(s->v, view, leaf->write_lsn);
        *value = leaf->value;
        if (!copy || fast)
            ver_read(s->v, view, leaf_key(i, k), &f);
        rt_unlock(&leaf->latch);
        if (fast)
            ZT_CHECK(s->t, f.how == VER_CURRENT || f.how == VER_TOO_OLD); /* R1 */
        if (copy && !fast)
            ver_read(s->v, view, leaf_key(i, k), &f);
        if (!copy || fast || f.how != VER_CURRENT || ver_pops(s->v) == pops)
            break;
        count(&s->copies_stale);
    }
    if (f.how == VER_VALUE) {
        *value = value_of(&f);
        count(&s->before);
    }
    return f.how != VER_TOO_OLD;
}

static void
reader_main(void *arg)
{
    struct worker *w = arg;
    struct world *s = w->s;
    struct ver_view view;

    ZT_OK(s->t, ver_view_open(s->v, &view));
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        unsigned sums = 1 + (unsigned)ch_prng_below(&w->rng, 8);
        bool alive = true;

        for (unsigned n = 0; n < sums && alive; n++) {
            int64_t sum = 0, value = 0;

            for (unsigned i = 0; i < LEAVES && alive; i++) {
                alive = read_leaf(s, &view, i, n % 2 == 0, &value);
                sum += value;
            }
            ZT_CHECK(s->t, !alive || sum == (int64_t)LEAVES * START);
            count(alive ? &s->sums : &s->dead);
        }
        if (ch_prng_below(&w->rng, 2) == 0) {
            ver_view_refresh(s->v, &view);
        } else {
            ver_view_close(s->v, &view);
            ZT_OK(s->t, ver_view_open(s->v, &view));
        }
    }
    ver_view_close(s->v, &view);
}

/* The newest visible version of one record, again and again: its commits never go back. */
static void
current_main(void *arg)
{
    struct worker *w = arg;
    struct world *s = w->s;
    uint8_t ghost[COHORT_KEY_MAX];
    uint32_t tree;
    size_t bytes;

    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        lsn_t before = ver_horizon(s->v);
        int64_t value;

        ZT_CHECK(s->t, read_leaf(s, NULL, (unsigned)ch_prng_below(&w->rng, LEAVES), false, &value));
        ZT_CHECK(s->t, ver_advance(s->v, log_end(s)) >= before);
        (void)ver_trim(s->v, 5);
        (void)ver_take_ghost(s->v, &tree, ghost, &bytes);
    }
}

static void
run(struct zt *t, uint64_t bytes_max)
{
    static void (*const roles[])(void *) = {writer_main, writer_main, reader_main, reader_main,
                                            current_main};
    struct world *s = calloc(1, sizeof(*s));
    struct worker w[CH_ARRAY_LEN(roles)];
    struct ver_counts c;

    ZT_CHECK(t, s != NULL);
    sim_start(t);
    s->t = t;
    s->kills = bytes_max < 100000;
    s->v = rig_ver(t, bytes_max);
    s->log = 1000;
    rt_mutex_init(&s->log_lock, RT_RANK_WAL, 0);
    for (unsigned i = 0; i < LEAVES; i++) {
        rt_mutex_init(&s->leaves[i].latch, RT_RANK_LATCHED, i);
        s->leaves[i].value = START;
    }
    for (unsigned i = 0; i < CH_ARRAY_LEN(roles); i++) {
        w[i].s = s;
        ch_prng_init(&w[i].rng, t->seed * 100 + i);
        ZT_OK(t, rt_spawn(&w[i].thread, "ver-test", roles[i], &w[i]));
    }
    rt_join(&w[0].thread);
    rt_join(&w[1].thread);
    atomic_store_explicit(&s->stop, true, memory_order_release); /* partner: readers */
    for (unsigned i = 2; i < CH_ARRAY_LEN(roles); i++)
        rt_join(&w[i].thread);
    while (ver_trim(s->v, 100))
        ;
    ver_counts(s->v, &c);
    ZT_CHECK(t, c.entries == 0 && c.bytes == 0 && c.views == 0 && c.writers == 0);
    ZT_CHECK(t, s->commits > WRITES / 2);
    ZT_CHECK(t, covered(s));
    ver_destroy(s->v);
    for (unsigned i = 0; i < LEAVES; i++)
        rt_mutex_fini(&s->leaves[i].latch);
    rt_mutex_fini(&s->log_lock);
    sim_stop();
    free(s);
}

/* Goal: all sums of all views are the same; nothing that fast reads see is hidden; nothing is left. */
static void
test_sums(struct zt *t)
{
    run(t, 1 << 24);
}

/* The same while views are being killed: a sum is right, or its view is dead. */
static void
test_sums_killed(struct zt *t)
{
    run(t, 3000);
}

/* ---- spilling beside the owner ---- */

enum {
    SPILLS = 5 * WRITES
};
struct spiller {
    struct zt *t;
    struct ver *v;
    struct ver_txn *w;
    struct rt_thread thread;
    _Atomic bool stop; /* main (release) -> spiller (acquire) */
    uint64_t spilled;
};

static void
spiller_main(void *arg)
{
    struct spiller *s = arg;
    uint64_t seq = 0;
    bool last = false;

    while (!last) {
        struct ver_entry *e;
        struct ver_undo u;

        last = atomic_load_explicit(&s->stop, memory_order_acquire);
        while ((e = ver_oldest_unspilled(s->w)) != NULL) {
            ver_entry_info(e, &u);
            ZT_CHECK(s->t, u.seq == seq + 1 && !u.spilled && u.before_bytes == 200);
            ZT_CHECK(s->t, memcmp(u.before, &u.seq, sizeof(u.seq)) == 0);
            seq = u.seq;
            ver_entry_spilled(s->v, e, true);
            s->spilled++;
        }
        rt_yield();
    }
}

/* Goal: the spiller gets each entry once, whole, in order, while its owner pushes; a view reads the images, or that they
 * were spilled. */
static void
test_spiller(struct zt *t)
{
    struct spiller s = {.t = t};
    struct rig_txn x;
    struct ver_view view;
    struct ver_found f;
    char k[RIG_KEY];

    sim_start(t);
    s.v = rig_ver(t, 1 << 24);
    ZT_OK(t, ver_view_open(s.v, &view));
    rig_begin(t, s.v, &x, 1000);
    s.w = x.w;
    ZT_OK(t, rt_spawn(&s.thread, "ver-spiller", spiller_main, &s));
    for (uint64_t i = 1; i <= SPILLS; i++) {
        uint8_t image[200] = {0};
        struct ver_entry *e;

        memcpy(image, &i, sizeof(i));
        e = ver_entry_create(s.v, x.w, rig_key(1, (unsigned)i, k), VER_WAS_VALUE, 0, image,
                             sizeof(image));
        ZT_CHECK(t, e != NULL);
        ver_entry_push(s.v, e, 1000 + i, false);
        ver_read(s.v, &view, rig_key(1, (unsigned)(1 + zt_below(t, i)), k), &f);
        ZT_CHECK(t, f.how == VER_VALUE || f.how == VER_SPILLED);
    }
    atomic_store_explicit(&s.stop, true, memory_order_release); /* partner: spiller_main() */
    rt_join(&s.thread);
    ZT_CHECK(t, s.spilled == SPILLS && ver_unspilled_bytes(s.v) == 0);
    ver_view_close(s.v, &view);
    rig_abort(s.v, &x);
    ver_destroy(s.v);
    sim_stop();
}

/* ---- one record, many views ---- */

enum {
    COMMITS = 3 * WRITES,
    LOOKERS = 3
};
struct sight {
    struct world s;
    _Atomic lsn_t commits[COMMITS + 2]; /* of value i; set (release) before it can be seen */
};

/* Writes the values 1 .. COMMITS, each a transaction, by a slot or of its own. */
static void
sight_writer(void *arg)
{
    struct worker *w = arg;
    struct world *s = w->s;
    struct sight *g = ch_container_of(s, struct sight, s);
    struct leaf *leaf = &s->leaves[0];

    for (unsigned n = 1; n <= COMMITS; n++) {
        struct rig_txn x;
        struct ver_entry *e;
        lsn_t lsn;

        if (n % 3 == 0) {
            rt_lock(&leaf->latch);
            lsn = write_own(s, 0, n);
            atomic_store_explicit(&g->commits[n], lsn, memory_order_release);
            rt_unlock(&leaf->latch);
            continue;
        }
        rig_begin(s->t, s->v, &x, log_end(s));
        rt_lock(&leaf->latch);
        e = entry_for(s, x.w, 0);
        lsn = log_append(s);
        leaf->value = n;
        leaf->write_lsn = lsn;
        ver_entry_push(s->v, e, lsn, false);
        rt_unlock(&leaf->latch);
        ver_commit_lock(s->v);
        lsn = log_append(s);
        atomic_store_explicit(&g->commits[n], lsn, memory_order_release);
        ver_view_release(s->v, &x.view);
        ver_commit_end(s->v, x.w, lsn, false);
        rig_close(s->v, &x);
    }
}

static void
sight_reader(void *arg)
{
    struct worker *w = arg;
    struct world *s = w->s;
    struct sight *g = ch_container_of(s, struct sight, s);
    struct ver_view view;

    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        unsigned looks = 1 + (unsigned)ch_prng_below(&w->rng, 4);

        ZT_OK(s->t, ver_view_open(s->v, &view));
        while (looks-- > 0) {
            int64_t value = 0;
            lsn_t next;

            ZT_CHECK(s->t, read_leaf(s, &view, 0, false, &value));
            ZT_CHECK(s->t, atomic_load_explicit(&g->commits[value], memory_order_acquire) <=
                               view.horizon);
            next = atomic_load_explicit(&g->commits[value + 1], memory_order_acquire);
            ZT_CHECK(s->t, next == 0 || next > view.horizon);
            if (looks == 1)
                ver_view_refresh(s->v, &view);
        }
        ver_view_close(s->v, &view);
    }
}

/* Goal (W1, W4, P2): a view that is taken, and taken anew, while commits and trims go on around it sees the newest value
 * that was committed up to its horizon, neither more nor less. */
static void
test_sight(struct zt *t)
{
    struct sight *g = calloc(1, sizeof(*g));
    struct worker w[1 + LOOKERS];
    struct world *s = &g->s;

    ZT_CHECK(t, g != NULL);
    sim_start(t);
    s->t = t;
    s->v = rig_ver(t, 1 << 24);
    s->log = 1000;
    rt_mutex_init(&s->log_lock, RT_RANK_WAL, 0);
    rt_mutex_init(&s->leaves[0].latch, RT_RANK_LATCHED, 0);
    for (unsigned i = 0; i < 1 + LOOKERS; i++) {
        w[i].s = s;
        ch_prng_init(&w[i].rng, t->seed * 100 + i);
        ZT_OK(t, rt_spawn(&w[i].thread, "ver-sight", i == 0 ? sight_writer : sight_reader, &w[i]));
    }
    rt_join(&w[0].thread);
    atomic_store_explicit(&s->stop, true, memory_order_release); /* partner: sight_reader() */
    for (unsigned i = 1; i < 1 + LOOKERS; i++)
        rt_join(&w[i].thread);
    ver_destroy(s->v);
    rt_mutex_fini(&s->leaves[0].latch);
    rt_mutex_fini(&s->log_lock);
    sim_stop();
    free(g);
}

/* ---- validation beside trimming ---- */

static void
validator_main(void *arg)
{
    struct worker *w = arg;
    struct world *s = w->s;
    struct ver_reads *r;
    struct ver_view view;
    char k[RIG_KEY];
    struct ver_key miss = rig_key(1, 999999, k);
    unsigned rounds = 0;

    ZT_OK(s->t, ver_reads_create(&r));
    ZT_OK(s->t, ver_reads_add(r, 1, &miss, &miss));
    ZT_OK(s->t, ver_view_open(s->v, &view));
    atomic_store_explicit(&s->sums, 1, memory_order_release); /* partner: test_pins() */
    while (rounds < 5 || !atomic_load_explicit(&s->stop, memory_order_acquire)) {
        lsn_t upto = 0;

        ZT_OK(s->t, ver_validate(s->v, &view, r, false, &upto));
        ZT_CHECK(s->t, upto <= ver_horizon(s->v));
        rounds++;
    }
    ver_view_close(s->v, &view);
    ver_reads_destroy(r);
}

/* Goal (D3): where validation lets go of the lock, about 512 writers on, stands one that others may prune away:
 * it stays until validation has gone on. */
static void
test_pins(struct zt *t)
{
    struct world *s = calloc(1, sizeof(*s));
    struct worker w = {.s = s};
    lsn_t lsn = 1000;
    char k[RIG_KEY];

    ZT_CHECK(t, s != NULL);
    sim_start(t);
    s->t = t;
    s->v = rig_ver(t, 1 << 24);
    ZT_OK(t, rt_spawn(&w.thread, "ver-validator", validator_main, &w));
    while (atomic_load_explicit(&s->sums, memory_order_acquire) == 0)
        rt_yield();
    for (unsigned i = 0; i < 505; i++)
        rig_single(t, s->v, rig_key(1, i, k), 5, lsn += 10);
    for (unsigned i = 0; i < 10 * WRITES; i++)
        rig_single(t, s->v, rig_key(1, 1000 + i % 2, k), 5, lsn += 10);
    atomic_store_explicit(&s->stop, true, memory_order_release); /* partner: validator_main() */
    rt_join(&w.thread);
    ver_destroy(s->v);
    sim_stop();
    free(s);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"sums", test_sums, RUNS},
        {"sums_killed", test_sums_killed, RUNS},
        {"spiller", test_spiller, 2},
        {"sight", test_sight, RUNS},
        {"pins", test_pins, RUNS > 10 ? RUNS / 10 : RUNS},
    };

    return zt_main(argc, argv, "ver_threads", cases, CH_ARRAY_LEN(cases));
}
