/* sim_main.c - the deterministic simulator: the whole engine on a simulated device, clock and scheduler,
 * everything drawn from one seed.
 *
 *   sim --seed N [--verbose]                  one seed, which runs alike every time
 *   sim --seeds A..B [--jobs J]               a range of them
 *   sim --minutes M --seed-base N [--jobs J]  from N on, as many as fit
 *   sim --bug NAME --max-seeds K [--seed-base N] [--jobs J]
 *                                             with a planted bug (base/bug.def): how many seeds find it
 *   sim --bugs                                names them
 *
 * A failing seed prints "FAIL seed N: ..." and how to replay it. Exit 0: all seeds passed, or, with
 * --bug, one failed. Each seed runs in a process of its own (sim.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bug.h"
#include "sim.h"

enum {
    JOBS_MAX = 64,
    OUTPUT_BYTES = 1 << 16,
    SEED_SECONDS_MAX = 120, /* of real time */
};

struct args {
    uint64_t first, count;
    double minutes;
    unsigned jobs;
    bool one, stop_at_failure;
    const char *bug;
};

struct job {
    pid_t pid; /* 0 = none */
    uint64_t seed;
    int fd; /* its stdout and stderr */
    char *output;
    size_t bytes;
    struct sim_coverage *cover;
};

bool sim_verbose;
struct sim_coverage *sim_cover; /* of the seed that runs; in shared memory, one a job */
static struct sim_coverage totals;

void
sim_fail(const char *fmt, ...)
{
    va_list ap;

    (void)fflush(stdout);
    (void)fputs("sim: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    _exit(1);
}

void
sim_trace(const char *fmt, ...)
{
    struct rt_sim_stats stats;
    va_list ap;

    if (!sim_verbose)
        return;
    rt_sim_stats(&stats); /* not rt_now_ns(), which moves the clock */
    printf("%10" PRIu64 " %-14s ", stats.now_ns / 1000, rt_sim_self());
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)putchar('\n');
}

/* ---- one seed ---- */

static void
log_line(void *arg, enum cohort_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    sim_trace("log: %s", text);
}

static void
run_seed(uint64_t seed)
{
    struct sim_plan plan;

    (void)alarm(SEED_SECONDS_MAX);
    sim_plan_draw(&plan, seed);
    if (sim_verbose) {
        sim_plan_print(&plan);
        cohort_set_log(log_line, NULL);
    }
    sim_run(&plan);
}

/* ---- a process a seed ---- */

/* One processor: a hand-over of the baton then costs a switch, and no wake-up of another processor. */
static void
stay_on_processor(unsigned number)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(n > 0 ? number % (unsigned)n : 0, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static bool
job_start(struct job *j, unsigned number, uint64_t seed)
{
    int fds[2];

    if (pipe(fds) != 0)
        return false;
    (void)fflush(stdout);
    j->pid = fork();
    if (j->pid < 0)
        return false;
    if (j->pid == 0) {
        (void)close(fds[0]);
        if (dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[1], STDERR_FILENO) < 0)
            _exit(2);
        stay_on_processor(number);
        sim_cover = j->cover;
        run_seed(seed);
        exit(0); /* not _exit(): the leak checker runs at exit */
    }
    (void)close(fds[1]);
    j->fd = fds[0];
    j->seed = seed;
    j->bytes = 0;
    return true;
}

/* The line that says what went wrong: the simulator's own, an assertion's, or the first. */
static const char *
job_reason(struct job *j, int status)
{
    static const char *const MARKS[] = {"sim: ", "rt_sim: ", "assert", "ERROR: ", "runtime error"};
    static char text[64];
    char *line = NULL;

    j->output[j->bytes] = '\0';
    for (size_t i = 0; i < CH_ARRAY_LEN(MARKS) && line == NULL; i++)
        line = strstr(j->output, MARKS[i]);
    if (line == NULL && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return "takes too long";
    if (line == NULL) {
        (void)snprintf(text, sizeof(text), "ended with status %#x", (unsigned)status);
        return text;
    }
    while (line > j->output && line[-1] != '\n')
        line--;
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* A seed that fails anyway has not found the planted bug. */
static bool
fails_without_bug(uint64_t seed)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL || !ch_bug_select(NULL))
            _exit(2);
        run_seed(seed);
        exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status != 0;
}

/* Takes what it has said; true when it has ended: *failed tells how. */
static bool
job_poll(struct job *j, const struct args *a, bool *failed)
{
    char rest[4096];
    bool full = j->bytes + 1 >= OUTPUT_BYTES;
    ssize_t n = read(j->fd, full ? rest : j->output + j->bytes,
                     full ? sizeof(rest) : OUTPUT_BYTES - 1 - j->bytes);
    int status = 0;

    if (n > 0) {
        j->bytes += full ? 0 : (size_t)n;
        return false;
    }
    if (n < 0 && errno == EINTR)
        return false;
    (void)close(j->fd);
    while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    j->pid = 0;
    *failed = status != 0 && (a->bug == NULL || !fails_without_bug(j->seed));
#define X(name) totals.name += j->cover->name;
    SIM_COVERAGE(X)
#undef X
    memset(j->cover, 0, sizeof(*j->cover));
    if (*failed && a->bug == NULL) {
        printf("FAIL seed %" PRIu64 ": %s\n  replay: sim --seed %" PRIu64 " --verbose\n", j->seed,
               job_reason(j, status), j->seed);
        (void)fflush(stdout);
    } else if (*failed) {
        printf("found by seed %" PRIu64 ": %s\n", j->seed, job_reason(j, status));
    }
    return true;
}

/* Like the others in a process of its own, but its output goes out at once. */
static int
run_aloud(uint64_t seed)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        run_seed(seed);
        exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && status == 0 ? 0 : 1;
}

static double
seconds(void)
{
    struct timespec ts = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static unsigned
wait_for_any(struct job *jobs, const struct args *a, uint64_t *done, uint64_t *first_failed)
{
    struct pollfd fds[JOBS_MAX];
    unsigned active = 0;

    for (unsigned i = 0; i < a->jobs; i++)
        fds[i] = (struct pollfd){.fd = jobs[i].pid != 0 ? jobs[i].fd : -1, .events = POLLIN};
    if (poll(fds, a->jobs, -1) < 0)
        return a->jobs;
    for (unsigned i = 0; i < a->jobs; i++) {
        bool failed = false;

        if (jobs[i].pid != 0 && fds[i].revents != 0 && job_poll(&jobs[i], a, &failed)) {
            ++*done;
            if (failed)
                *first_failed = ch_min_u64(*first_failed, jobs[i].seed);
        }
        active += jobs[i].pid != 0;
    }
    return active;
}

static void
print_totals(uint64_t seeds, uint64_t failed, double took)
{
    printf("%" PRIu64 " seeds in %.1f s (%.1f/s), %s\n", seeds, took, (double)seeds / took,
           failed == UINT64_MAX ? "all passed" : "FAILED");
#define X(name) printf("  %-18s %" PRIu64 "\n", #name, totals.name);
    SIM_COVERAGE(X)
#undef X
}

/* Returns the lowest seed that failed, UINT64_MAX = none. *done: how many ran. */
static uint64_t
run_seeds(const struct args *a, uint64_t *done)
{
    static struct job jobs[JOBS_MAX];
    uint64_t next = a->first, failed = UINT64_MAX;
    double start = seconds();
    unsigned active = 0;

    for (unsigned i = 0; i < a->jobs; i++) {
        jobs[i].output = malloc(OUTPUT_BYTES);
        jobs[i].cover = &sim_cover[i];
        if (jobs[i].output == NULL)
            return 0;
    }
    for (;;) {
        for (unsigned i = 0; i < a->jobs; i++) {
            bool more = next - a->first < a->count &&
                        (a->minutes <= 0 || seconds() - start < a->minutes * 60) &&
                        (!a->stop_at_failure || failed == UINT64_MAX);

            if (jobs[i].pid == 0 && more && job_start(&jobs[i], i, next)) {
                next++;
                active++;
            }
        }
        if (active == 0)
            break;
        active = wait_for_any(jobs, a, done, &failed);
    }
    for (unsigned i = 0; i < a->jobs; i++)
        free(jobs[i].output);
    return failed;
}

/* ---- arguments ---- */

static void __attribute__((noreturn)) usage(void)
{
    (void)fputs("usage: sim --seed N [--verbose] | --seeds A..B | --minutes M --seed-base N\n"
                "       sim --bug NAME --max-seeds K [--seed-base N] | --bugs\n"
                "       [--jobs J]\n",
                stderr);
    exit(2);
}

static uint64_t
number(const char *text, char end, const char **rest)
{
    char *stop = NULL;
    uint64_t v;

    if (text == NULL || *text < '0' || *text > '9')
        usage();
    errno = 0;
    v = strtoull(text, &stop, 10);
    if (errno != 0 || *stop != end)
        usage();
    if (rest != NULL)
        *rest = stop;
    return v;
}

static void
take_arg(struct args *a, const char *name, const char *value)
{
    const char *rest = NULL;

    if (strcmp(name, "--seed") == 0) {
        a->one = true;
        a->first = number(value, '\0', NULL);
        a->count = 1;
    } else if (strcmp(name, "--seeds") == 0) {
        a->first = number(value, '.', &rest);
        if (strncmp(rest, "..", 2) != 0)
            usage();
        a->count = number(rest + 2, '\0', NULL) - a->first + 1;
    } else if (strcmp(name, "--minutes") == 0) {
        a->minutes = (double)number(value, '\0', NULL);
        a->count = UINT64_MAX;
    } else if (strcmp(name, "--seed-base") == 0) {
        a->first = number(value, '\0', NULL);
    } else if (strcmp(name, "--max-seeds") == 0) {
        a->count = number(value, '\0', NULL);
    } else if (strcmp(name, "--jobs") == 0) {
        a->jobs = (unsigned)ch_clamp_u64(number(value, '\0', NULL), 1, JOBS_MAX);
    } else if (strcmp(name, "--bug") == 0 && value != NULL && ch_bug_select(value)) {
        a->bug = value;
        a->stop_at_failure = true;
    } else {
        usage();
    }
}

static void
parse(struct args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            sim_verbose = true;
        } else if (strcmp(argv[i], "--bugs") == 0) {
            ch_bug_list(stdout);
            exit(0);
        } else {
            take_arg(a, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        }
    }
    if (a->count == 0)
        usage();
}

/* Addresses must not differ from run to run: no random layout. */
static void
fix_addresses(char **argv)
{
    int old = personality(0xffffffff);

    if (old < 0 || (old & ADDR_NO_RANDOMIZE) != 0)
        return;
    if (personality((unsigned long)old | ADDR_NO_RANDOMIZE) >= 0)
        (void)execv("/proc/self/exe", argv);
}

int
main(int argc, char **argv)
{
    struct args a = {.jobs = 1};
    uint64_t failed, done = 0;
    double start = seconds();

    fix_addresses(argv);
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a seed touches little of what it maps */
    parse(&a, argc, argv);
    sim_cover = mmap(NULL, JOBS_MAX * sizeof(*sim_cover), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sim_cover == MAP_FAILED)
        return 2;
    if (a.one && sim_verbose)
        return run_aloud(a.first);
    failed = run_seeds(&a, &done);
    if (a.bug != NULL) {
        if (failed == UINT64_MAX)
            printf("%s: not found by %" PRIu64 " seeds\n", a.bug, done);
        else
            printf("%s: found after %" PRIu64 " seeds\n", a.bug, failed - a.first + 1);
        return failed == UINT64_MAX;
    }
    print_totals(done, failed, seconds() - start);
    return failed != UINT64_MAX;
}
