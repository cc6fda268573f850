/* tpcc_kill_test.c - TPC-C killed at random moments; the parent reopens and checks the conditions.
 *
 * Goal: kill -9 at any moment of any transaction, of its rollback or of recovery leaves the twelve
 * conditions true, indexes complete, and no acknowledged order or payment lost.
 * Method: a child runs the steady mix with four threads; every second one with durable commits, and the highest
 * order and history numbers acknowledged to those for each district stand in memory shared with the parent. The
 * others (durability async) get much more done and may lose the end of it. The parent kills,
 * opens, demands that each district has got beyond them, checks the conditions and the engine's own
 * structures, and starts the next child on the result. Every third round it leaves the database as the kill
 * left it, so that kills hit recovery as well.
 *
 *   tpcc_kill_test [ROUNDS [ISOLATION [ENGINE [DIR]]]]
 *
 * COHORT_RUNS_PERCENT=P (zt.h) makes that P percent of the rounds.
 */
#include "bench/tpcc.h"
#include "rt/rt.h"
#include "zt/zt.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    THREADS = 4,
    WAREHOUSES = 2,
    DIVISOR = 50,
    DELAY_MAX_MS = 1000,
};

struct shared {
    _Atomic uint32_t
        order[WAREHOUSES][TPCC_DISTRICTS]; /* threads -> parent: highest acknowledged */
    _Atomic uint32_t history[WAREHOUSES][TPCC_DISTRICTS];
    _Atomic uint64_t done;
    _Atomic int failed; /* a child met an error: its code */
};

struct setup {
    const struct tpcc_store_ops *ops;
    struct cohort_options options;
    struct tpcc_store_config config;
    struct tpcc_scale scale;
    struct shared *sh;
};

struct terminal {
    struct rt_thread thread;
    struct shared *sh;
    struct tpcc_terminal t;
    bool durable; /* what is acknowledged must survive */
};

static void
print_error(const char *what, int rc)
{
    printf("%s: %s: %s\n", what, cohort_strerror(rc), cohort_last_error()->text);
    (void)fflush(stdout);
}

static int
setup_init(struct setup *s, const char *isolation, const char *engine)
{
    int rc = tpcc_store_find(engine, &s->ops);

    cohort_options_init(&s->options);
    if (rc == 0)
        rc = cohort_options_set(&s->options, "create", "yes");
    if (rc == 0)
        rc = cohort_options_set(&s->options, "zone_bytes", "256K");
    if (rc == 0)
        rc = cohort_options_set(&s->options, "log_bytes", "4M");
    if (rc == 0)
        rc = cohort_options_set(&s->options, "max_bytes", "256M");
    tpcc_scale_init(&s->scale, WAREHOUSES, DIVISOR);
    s->scale.c_load = 99;
    s->config = (struct tpcc_store_config){
        .options = &s->options,
        .cache_bytes = 2 << 20,
        .bytes_max = UINT64_C(1) << 30,
        .threads = THREADS + 2,
        .durability = COHORT_DURABILITY_SYNC,
        .isolation = strcmp(isolation, "serializable") == 0 ? COHORT_SERIALIZABLE : COHORT_SNAPSHOT,
        .create = true,
    };
    return rc;
}

/* ---- the child ---- */

static void
raise_to(_Atomic uint32_t *highest, uint32_t number)
{
    uint32_t seen = atomic_load_explicit(highest, memory_order_relaxed);

    while (seen < number && !atomic_compare_exchange_weak_explicit(
                                highest, &seen, number, memory_order_release, memory_order_relaxed))
        ;
}

static void
terminal_main(void *arg)
{
    struct terminal *m = arg;
    struct tpcc_input in;
    int rc = 0;

    while (rc == 0) {
        uint64_t committed;

        tpcc_draw(&m->t, &in);
        committed = m->t.counts[in.kind].committed;
        rc = tpcc_execute(&m->t, &in, NULL);
        if (rc != 0 || m->t.counts[in.kind].committed == committed)
            continue;
        if (in.kind == TPCC_NEW_ORDER_TXN && m->durable)
            raise_to(&m->sh->order[in.w - 1][in.d - 1], m->t.number);
        if (in.kind == TPCC_PAYMENT_TXN && m->durable)
            raise_to(&m->sh->history[in.w - 1][in.d - 1], m->t.number);
        atomic_fetch_add_explicit(&m->sh->done, 1, memory_order_relaxed);
    }
    print_error("terminal", rc);
    atomic_store_explicit(&m->sh->failed, rc, memory_order_release);
}

static void
child_main(const struct setup *s, uint64_t seed)
{
    static struct terminal terminals[THREADS];
    struct tpcc_store *store = NULL;
    int rc = s->ops->open(&s->config, &store);

    for (unsigned i = 0; i < THREADS && rc == 0; i++) {
        struct terminal *m = &terminals[i];

        m->sh = s->sh;
        m->durable = s->config.durability == COHORT_DURABILITY_SYNC;
        m->t.scale = &s->scale;
        m->t.steady = true;
        ch_prng_init(&m->t.random.prng, seed * THREADS + i);
        tpcc_constants_draw(&m->t.random.constants, &m->t.random.prng, s->scale.c_load);
        rc = s->ops->session_open(store, &m->t.session);
        if (rc == 0)
            rc = rt_spawn(&m->thread, "terminal", terminal_main, m);
    }
    if (rc != 0) {
        print_error("child", rc);
        atomic_store_explicit(&s->sh->failed, rc, memory_order_release);
        _exit(1);
    }
    for (;;)
        (void)pause();
}

/* ---- the parent ---- */

static int
load(const struct setup *s)
{
    struct tpcc_store *store = NULL;
    int rc = s->ops->open(&s->config, &store), closed;

    if (rc != 0)
        return rc;
    rc =
        tpcc_load(&(struct tpcc_load){.store = store, .scale = &s->scale, .threads = 2, .seed = 1});
    closed = s->ops->close(store);
    return rc != 0 ? rc : closed;
}

/* Every district has the orders and payments that were acknowledged. */
static int
check_acknowledged(const struct setup *s, struct tpcc_store *store)
{
    struct tpcc_session *session = NULL;
    int rc = s->ops->session_open(store, &session), aborted;

    if (rc == 0)
        rc = s->ops->begin(session, true);
    if (rc != 0) {
        s->ops->session_close(session);
        return rc;
    }
    for (uint32_t i = 0; i < WAREHOUSES * TPCC_DISTRICTS && rc == 0; i++) {
        uint32_t w = i / TPCC_DISTRICTS, d = i % TPCC_DISTRICTS;
        uint32_t o = atomic_load_explicit(&s->sh->order[w][d], memory_order_acquire);
        uint32_t h = atomic_load_explicit(&s->sh->history[w][d], memory_order_acquire);
        struct tpcc_district row;
        struct cohort_slice v;
        struct tpcc_key key;

        tpcc_key_district(&key, w + 1, d + 1);
        rc = tpcc_must(tpcc_get(session, TPCC_DISTRICT, &key, &v), TPCC_DISTRICT, &key);
        if (rc == 0)
            rc = tpcc_get_district(&v, &row);
        if (rc == 0 && (row.next_o_id <= o || row.next_h_id <= h))
            rc = CH_FAIL(COHORT_ECORRUPT,
                         "district %u/%u: order %u or payment %u was acknowledged and is lost",
                         w + 1, d + 1, o, h);
    }
    aborted = s->ops->abort(session);
    s->ops->session_close(session);
    return rc != 0 ? rc : aborted;
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    printf("  check: %s\n", line);
}

static bool
verify(const struct setup *s)
{
    struct tpcc_check *c = calloc(1, sizeof(*c));
    struct tpcc_store *store = NULL;
    struct tpcc_scale found;
    int rc = c == NULL ? COHORT_ENOMEM : s->ops->open(&s->config, &store), closed;

    if (rc == 0)
        rc = tpcc_load_scale(store, &found);
    if (rc == 0)
        rc = check_acknowledged(s, store);
    if (rc == 0)
        rc = tpcc_check(store, &s->scale, c);
    for (int i = 0; i <= TPCC_CONDITIONS && rc == 0; i++)
        if (c->violations[i] != 0)
            printf("  condition %d: %" PRIu64 " times: %s\n", i, c->violations[i], c->first[i]);
    if (rc == 0)
        rc = tpcc_check_status(c);
    if (rc == 0 && s->ops == &tpcc_cohort_ops)
        rc = cohort_check(tpcc_cohort_db(store), print_finding, NULL, NULL);
    if (rc != 0)
        print_error("verify", rc);
    free(c);
    closed = store != NULL ? s->ops->close(store) : 0;
    if (closed != 0)
        print_error("close", closed);
    return rc == 0 && closed == 0;
}

/* One child, killed after a random time. False when it ended by itself. */
static bool
run_child(const struct setup *s, struct ch_prng *p)
{
    uint64_t seed = ch_prng_next(p), ms = 1 + ch_prng_below(p, DELAY_MAX_MS);
    int status;
    pid_t pid = fork();

    if (pid == 0)
        child_main(s, seed);
    if (pid < 0)
        return false;
    rt_sleep_ns(ms * 1000000);
    (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid)
        return false;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           atomic_load_explicit(&s->sh->failed, memory_order_acquire) == 0;
}

static void
remove_dir(const char *dir)
{
    static const char *const files[] = {"cohort.db", "data.mdb", "lock.mdb"};
    char path[300];

    for (size_t i = 0; i < CH_ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

int
main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 5, passed = 0;
    const char *isolation = argc > 2 ? argv[2] : "snapshot";
    const char *engine = argc > 3 ? argv[3] : "cohort";
    const char *seed_text = getenv("COHORT_SEED");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : rt_random() % 1000000;
    char dir[256];
    struct setup s = {0};
    struct ch_prng p;
    int rc;
    bool ok;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    rounds = (rounds * zt_runs_percent() + 99) / 100;
    s.sh = mmap(NULL, sizeof(*s.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)snprintf(dir, sizeof(dir), "%s/cohort-tpcc-XXXXXX", argc > 4 ? argv[4] : "/var/tmp");
    if (s.sh == MAP_FAILED || mkdtemp(dir) == NULL) {
        printf("set-up failed: %s\n0 passed, 1 failed\n", strerror(errno));
        return 1;
    }
    ch_prng_init(&p, seed);
    printf("%u kills, %s, %s, COHORT_SEED=%" PRIu64 ", %s\n", rounds, engine, isolation, seed, dir);
    rc = setup_init(&s, isolation, engine);
    s.config.where = dir;
    if (rc == 0)
        rc = load(&s);
    if (rc != 0)
        print_error("load", rc);
    ok = rc == 0 && verify(&s);
    for (unsigned r = 0; ok && r < rounds; r++) {
        s.config.durability = r % 2 == 0 ? COHORT_DURABILITY_SYNC : COHORT_DURABILITY_ASYNC;
        ok = run_child(&s, &p);
        if (ok && (r % 3 != 2 || r + 1 == rounds))
            ok = verify(&s);
        if (ok)
            passed++;
        else
            printf("round %u failed\n", r);
    }
    printf("%" PRIu64 " acknowledged transactions\n",
           atomic_load_explicit(&s.sh->done, memory_order_relaxed));
    if (ok)
        remove_dir(dir);
    printf("%u passed, %d failed\n", passed, ok ? 0 : 1);
    return ok ? 0 : 1;
}
