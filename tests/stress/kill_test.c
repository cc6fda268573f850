/* kill_test.c - a child with four writers is killed at random moments; the parent reopens and compares.
 *
 * Goal: kill -9 at any moment, in recovery too, loses no acknowledged write and leaves none half applied, and nothing of what was
 * aborted or never committed.
 * Method: what a child intends and what was acknowledged to it stands in memory shared with the parent. A writer owns its
 * keys, in groups written by one batch or one transaction, and bumps their version: tried before the call, acked after it. A third
 * of the transactions is aborted. The parent
 * kills, opens, demands each group whole at acked or tried, runs cohort_check(), and starts the next child on the result.
 * Every fourth round the parent leaves the database as the crash left it, so that kills hit recovery as well.
 *
 *   kill_test [ROUNDS [PRESET [DIR]]]
 *
 * COHORT_RUNS_PERCENT=P (zt.h) makes that P percent of the rounds.
 */
#include "base/base.h"
#include "base/prng.h"
#include "cohort.h"
#include "rt/rt.h"
#include "zt/zt.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WRITERS = 4,
    GROUPS = 150, /* per writer */
    GROUP = 3,    /* keys */
    VALUE_MAX = 700,
    DELAY_MAX_MS = 120,
};

struct shared {
    _Atomic uint32_t acked[WRITERS][GROUPS];
    _Atomic uint32_t tried[WRITERS][GROUPS];
    _Atomic uint64_t writes;
    _Atomic int failed; /* a child met an error: its code */
};

static bool
is_deleted(unsigned group, uint32_t version)
{
    return version == 0 || (group + version) % 9 == 0;
}

static size_t
make_value(unsigned id, uint32_t version, uint8_t *out)
{
    return zt_value(id, version, VALUE_MAX, out);
}

static size_t
make_key(unsigned writer, unsigned group, unsigned i, char *out)
{
    unsigned id = (writer * GROUPS + group) * GROUP + i;

    return (size_t)snprintf(out, 32, "user%06u", id * 48271U % 999983U);
}

static int
open_db(const char *dir, const char *preset, cohort_db **db)
{
    struct cohort_options o;

    cohort_options_init(&o);
    if (cohort_options_set(&o, "preset", preset) != 0 ||
        cohort_options_set(&o, "create", "yes") != 0 ||
        cohort_options_set(&o, "cache_bytes", "1M") != 0 ||
        cohort_options_set(&o, "zone_bytes", "256K") != 0 ||
        cohort_options_set(&o, "log_bytes", "1M") != 0 ||
        cohort_options_set(&o, "max_bytes", "64M") != 0)
        return COHORT_EOPTION;
    return cohort_open(dir, &o, db);
}

struct writer {
    struct rt_thread thread;
    struct shared *sh;
    cohort_db *db;
    unsigned index;
    uint64_t seed;
};

/* The group's keys at `version` as a transaction, committed or, for nothing, aborted. */
static int
write_transaction(struct writer *w, unsigned group, uint32_t version, bool commit)
{
    uint8_t value[VALUE_MAX];
    cohort_txn *t = NULL;
    char key[32];
    int rc = cohort_begin(w->db, NULL, &t), aborted;

    for (unsigned i = 0; rc == 0 && i < GROUP; i++) {
        size_t kn = make_key(w->index, group, i, key);
        unsigned id = (w->index * GROUPS + group) * GROUP + i;

        rc = is_deleted(group, version)
                 ? cohort_txn_del(t, NULL, key, kn)
                 : cohort_txn_put(t, NULL, key, kn, value, make_value(id, version, value));
        rc = rc == COHORT_NOTFOUND ? 0 : rc;
    }
    if (rc == 0 && commit)
        return cohort_commit(t);
    aborted = cohort_abort(t);
    return rc != 0 ? rc : aborted;
}

static int
write_batch(struct writer *w, cohort_batch *b, unsigned group, uint32_t version)
{
    uint8_t value[VALUE_MAX];
    char key[32];
    int rc = 0;

    cohort_batch_clear(b);
    for (unsigned i = 0; rc == 0 && i < GROUP; i++) {
        size_t kn = make_key(w->index, group, i, key);
        unsigned id = (w->index * GROUPS + group) * GROUP + i;

        rc = is_deleted(group, version)
                 ? cohort_batch_del(b, key, kn)
                 : cohort_batch_put(b, key, kn, value, make_value(id, version, value));
    }
    return rc == 0 ? cohort_write(w->db, b) : rc;
}

static int
write_group(struct writer *w, cohort_batch *b, unsigned group, unsigned how)
{
    uint32_t version = atomic_load(&w->sh->acked[w->index][group]) + 1;
    int rc;

    if (how == 0)
        return write_transaction(w, group, version + 1000000, false);
    atomic_store(&w->sh->tried[w->index][group], version);
    rc = how == 1 ? write_transaction(w, group, version, true) : write_batch(w, b, group, version);
    if (rc == 0) {
        atomic_store(&w->sh->acked[w->index][group], version);
        atomic_fetch_add(&w->sh->writes, 1);
    }
    return rc;
}

static void
writer_main(void *arg)
{
    struct writer *w = arg;
    struct ch_prng p;
    cohort_batch *b = NULL;
    int rc = cohort_batch_create(&b);

    ch_prng_init(&p, w->seed);
    while (rc == 0)
        rc = write_group(w, b, (unsigned)ch_prng_below(&p, GROUPS), (unsigned)ch_prng_below(&p, 3));
    printf("writer %u: %s: %s\n", w->index, cohort_strerror(rc), cohort_last_error()->text);
    (void)fflush(stdout);
    atomic_store(&w->sh->failed, rc);
    cohort_batch_destroy(b);
}

static void
child_main(const char *dir, const char *preset, struct shared *sh, uint64_t seed)
{
    static struct writer w[WRITERS];
    cohort_db *db = NULL;
    int rc = open_db(dir, preset, &db);

    for (unsigned i = 0; rc == 0 && i < WRITERS; i++) {
        w[i] = (struct writer){.sh = sh, .db = db, .index = i, .seed = seed * WRITERS + i};
        rc = rt_spawn(&w[i].thread, "writer", writer_main, &w[i]);
    }
    if (rc != 0) {
        printf("child: %s: %s\n", cohort_strerror(rc), cohort_last_error()->text);
        (void)fflush(stdout);
        atomic_store(&sh->failed, rc);
        _exit(1);
    }
    for (;;)
        (void)pause();
}

static bool
verify_group(cohort_db *db, struct shared *sh, unsigned writer, unsigned group,
             struct cohort_value *v)
{
    uint32_t versions[2] = {atomic_load(&sh->acked[writer][group]),
                            atomic_load(&sh->tried[writer][group])};
    bool is[2] = {true, true};

    for (unsigned i = 0; i < GROUP; i++) {
        char key[32];
        uint8_t want[VALUE_MAX];
        int rc = cohort_get(db, key, make_key(writer, group, i, key), v);

        for (int k = 0; k < 2; k++) {
            if (is_deleted(group, versions[k])) {
                is[k] = is[k] && rc == COHORT_NOTFOUND;
                continue;
            }
            size_t n = make_value((writer * GROUPS + group) * GROUP + i, versions[k], want);

            is[k] = is[k] && rc == 0 && v->bytes == n && memcmp(v->data, want, n) == 0;
        }
    }
    atomic_store(&sh->acked[writer][group], versions[is[1] ? 1 : 0]);
    atomic_store(&sh->tried[writer][group], versions[is[1] ? 1 : 0]);
    return is[0] || is[1];
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    printf("  check: %s\n", line);
}

static bool
verify(const char *dir, const char *preset, struct shared *sh)
{
    struct cohort_value v = {0};
    cohort_db *db = NULL;
    bool ok = true;
    int rc = open_db(dir, preset, &db);

    if (rc != 0) {
        printf("can't reopen: %s: %s\n", cohort_strerror(rc), cohort_last_error()->text);
        return false;
    }
    for (unsigned w = 0; w < WRITERS; w++) {
        for (unsigned g = 0; g < GROUPS; g++) {
            if (verify_group(db, sh, w, g, &v))
                continue;
            printf("writer %u group %u: acknowledged version %" PRIu32 " lost or half applied\n", w,
                   g, atomic_load(&sh->acked[w][g]));
            ok = false;
        }
    }
    rc = cohort_check(db, print_finding, NULL, NULL);
    if (rc != 0) {
        printf("check: %s\n", cohort_last_error()->text);
        ok = false;
    }
    cohort_value_free(&v);
    rc = cohort_close(db);
    if (rc != 0)
        printf("close: %s: %s\n", cohort_strerror(rc), cohort_last_error()->text);
    return ok && rc == 0;
}

/* One child, killed after a random time. False when it ended by itself. */
static bool
run_child(const char *dir, const char *preset, struct shared *sh, struct ch_prng *p)
{
    uint64_t seed = ch_prng_next(p);
    uint64_t ms = 1 + ch_prng_below(p, DELAY_MAX_MS);
    int status;
    pid_t pid = fork();

    if (pid == 0)
        child_main(dir, preset, sh, seed);
    if (pid < 0)
        return false;
    rt_sleep_ns(ms * 1000000);
    (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid)
        return false;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && atomic_load(&sh->failed) == 0;
}

int
main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 40;
    const char *preset = argc > 2 ? argv[2] : "oop+pack";
    char dir[256];
    const char *seed_text = getenv("COHORT_SEED");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : rt_random() % 1000000;
    struct ch_prng p;
    struct shared *sh =
        mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned passed = 0;
    bool ok = sh != MAP_FAILED;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    rounds = (rounds * zt_runs_percent() + 99) / 100;
    (void)snprintf(dir, sizeof(dir), "%s/cohort-kill-XXXXXX", argc > 3 ? argv[3] : "/var/tmp");
    if (!ok || mkdtemp(dir) == NULL) {
        printf("set-up failed: %s\n0 passed, 1 failed\n", strerror(errno));
        return 1;
    }
    ch_prng_init(&p, seed);
    printf("%u kills, preset %s, COHORT_SEED=%" PRIu64 ", %s\n", rounds, preset, seed, dir);
    for (unsigned r = 0; ok && r < rounds; r++) {
        ok = run_child(dir, preset, sh, &p);
        if (ok && r % 4 != 3)
            ok = verify(dir, preset, sh);
        if (ok)
            passed++;
        else
            printf("round %u failed\n", r);
    }
    ok = ok && verify(dir, preset, sh);
    printf("%" PRIu64 " acknowledged writes of %d keys each\n", atomic_load(&sh->writes), GROUP);
    if (ok) {
        char file[300];

        (void)snprintf(file, sizeof(file), "%s/cohort.db", dir);
        (void)unlink(file);
        (void)rmdir(dir);
    }
    printf("%u passed, %d failed\n", passed, ok ? 0 : 1);
    return ok ? 0 : 1;
}
