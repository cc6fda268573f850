/* zt.c - runs a table of test cases under cmocka, each for several seeds. See zt.h.
 *
 * A cmocka test is one case; its runs (seeds) happen inside, the first failing one ends the case by
 * cmocka's longjmp. Directories handed out by zt_tmpdir() are removed after each run, also after a
 * failing one unless COHORT_KEEP is set.
 *
 * Locking: none; cases run on the main thread. A check that fails on another thread cannot jump to
 * cmocka's frame, so it prints and aborts the program.
 */
#include "zt/zt.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka.h needs the two above */
#include <cmocka.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"

enum {
    TMPDIRS_MAX = 64, /* of one run */
    PATH_BYTES = 512
};

/* Called by TSan's runtime. Its search for lock cycles gives up (and dies) when a thread holds 64
 * mutexes, and a batch holds more map shards than that; rt/ checks the order of all locks anyway. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *
__tsan_default_options(void)
{
    return "detect_deadlocks=0";
}

static _Thread_local bool on_main_thread;

static struct {
    const char *program;
    const char *case_name;
    uint64_t seed;
    bool exact_seed; /* COHORT_RUNS is set: COHORT_SEED is the seed itself */
    unsigned runs;   /* COHORT_RUNS, or 0 */
    unsigned percent;
    unsigned tmpdirs;
    char tmpdir[TMPDIRS_MAX][PATH_BYTES];
} zt;

static void
zt_fail(struct zt *t, const char *file, int line)
{
    (void)fprintf(stderr, "    replay: COHORT_SEED=%" PRIu64 " COHORT_RUNS=1 %s %s\n", t->seed,
                  zt.program, zt.case_name);
    if (!on_main_thread)
        abort();
    _fail(file, line);
}

void
zt_check(struct zt *t, bool ok, const char *file, int line, const char *expr)
{
    if (ok)
        return;
    (void)fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expr);
    zt_fail(t, file, line);
}

void
zt_status(struct zt *t, int got, int want, const char *file, int line, const char *expr)
{
    const struct cohort_error *e = ch_last_error();

    if (got == want)
        return;
    (void)fprintf(stderr, "%s:%d: %s is %d (%s), not %d (%s)\n", file, line, expr, got,
                  ch_strerror(got), want, ch_strerror(want));
    if (e->code != 0)
        (void)fprintf(stderr, "    last error: %s:%d: %d, errno %d: %s\n", e->file, e->line,
                      e->code, e->sys_errno, e->text);
    zt_fail(t, file, line);
}

static int
remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    if (remove(path) != 0)
        perror(path);
    return 0;
}

static void
remove_tmpdirs(void)
{
    while (zt.tmpdirs > 0) {
        zt.tmpdirs--;
        if (getenv("COHORT_KEEP") == NULL)
            (void)nftw(zt.tmpdir[zt.tmpdirs], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
}

const char *
zt_tmpdir(struct zt *t)
{
    const char *base = getenv("TMPDIR");
    char *dir = zt.tmpdir[zt.tmpdirs];
    int n;

    ZT_CHECK(t, zt.tmpdirs < TMPDIRS_MAX);
    n = snprintf(dir, PATH_BYTES, "%s/cohort-test-XXXXXX", base != NULL ? base : "/var/tmp");
    ZT_CHECK(t, n > 0 && n < PATH_BYTES);
    ZT_CHECK(t, mkdtemp(dir) != NULL);
    zt.tmpdirs++;
    return dir;
}

static void
run_case(void **state)
{
    const struct zt_case *c = *state;
    uint64_t first = zt.exact_seed ? zt.seed : zt.seed * UINT64_C(1000003);
    unsigned runs = (c->runs * zt.percent + 99) / 100;

    if (zt.runs != 0)
        runs = zt.runs;
    else if (runs == 0)
        runs = 1;
    zt.case_name = c->name;
    for (unsigned r = 0; r < runs; r++) {
        struct zt t = {.seed = first + r};

        ch_prng_init(&t.rng, t.seed);
        c->fn(&t);
        remove_tmpdirs();
    }
}

static int
end_case(void **state)
{
    (void)state;
    remove_tmpdirs();
    return 0;
}

/* A decimal number from the environment; `missing` when it is not set. Ends the program on rubbish:
 * a run with another seed than the one asked for would prove nothing. */
static uint64_t
env_number(const char *name, uint64_t missing)
{
    const char *text = getenv(name);
    char *end;
    unsigned long long v;

    if (text == NULL || *text == '\0')
        return missing;
    v = strtoull(text, &end, 10);
    if (*end != '\0') {
        (void)fprintf(stderr, "%s=%s: not a decimal number\n", name, text);
        exit(2);
    }
    return v;
}

unsigned
zt_runs_percent(void)
{
    uint64_t percent = env_number("COHORT_RUNS_PERCENT", 100);

    if (percent < 1 || percent > 100) {
        (void)fprintf(stderr, "COHORT_RUNS_PERCENT: 1 to 100\n");
        exit(2);
    }
    return (unsigned)percent;
}

static bool
wanted(const struct zt_case *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], c->name) == 0)
            return true;
    }
    return argc <= 1;
}

int
zt_main(int argc, char **argv, const char *suite, const struct zt_case *cases, size_t n)
{
    struct CMUnitTest *tests = calloc(n + 1, sizeof(*tests));
    size_t chosen = 0;
    size_t named = argc > 1 ? (size_t)argc - 1 : 0;
    int failed;

    CH_ASSERT(tests != NULL);
    on_main_thread = true;
    zt.program = argv[0];
    zt.seed = env_number("COHORT_SEED", 1);
    zt.runs = (unsigned)env_number("COHORT_RUNS", 0);
    zt.exact_seed = zt.runs != 0;
    zt.percent = zt_runs_percent();
    for (size_t i = 0; i < n; i++) {
        if (wanted(&cases[i], argc, argv)) {
            /* cmocka hands the state through as a pointer to non-const and changes nothing */
            void *state = (void *)(uintptr_t)&cases[i];

            tests[chosen++] = (struct CMUnitTest){cases[i].name, run_case, NULL, end_case, state};
        }
    }
    failed = chosen == 0 ? 0 : _cmocka_run_group_tests(suite, tests, chosen, NULL, NULL);
    free(tests);
    if (chosen == 0 || chosen < named) { /* a misspelt name must not look like success */
        (void)fprintf(stderr, "%s: some of the named cases do not exist\n", suite);
        failed++;
    }
    (void)fflush(stderr);
    printf("%zu passed, %d failed\n", chosen > (size_t)failed ? chosen - (size_t)failed : 0,
           failed);
    return failed == 0 ? 0 : 1;
}

size_t
zt_value(uint32_t id, uint32_t version, size_t max, uint8_t *out)
{
    struct ch_prng p;
    size_t n;

    ch_prng_init(&p, (uint64_t)id << 32 | version);
    n = 8 + ch_prng_below(&p, max - 8);
    memset(out, (int)('a' + id % 26), n);
    ch_put32(out, id);
    ch_put32(out + 4, version);
    ch_prng_fill(&p, out + 8, (n - 8) / 2);
    return n;
}
