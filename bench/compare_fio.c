/* compare_fio.c - cohort bench compare-fio: point reads beyond the cache against fio.
 *
 * fio reads 4 KiB blocks at random with O_DIRECT and io_uring, one outstanding read a job and as many
 * jobs as we have threads, from a file as large as the database and in the same directory. Rounds
 * alternate; the figure is the ratio of the medians of device reads a second.
 */
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

enum {
    FIO_ROUNDS_MAX = 101,
    FIO_ARGS = 16,
    FIO_ARG_BYTES = 4096 + 64
};

struct fio {
    const char *file, *output;
    char args[FIO_ARGS][FIO_ARG_BYTES];
    unsigned count;
};

static void
fio_arg(struct fio *f, const char *name, const char *value)
{
    CH_ASSERT(f->count < FIO_ARGS);
    snprintf(f->args[f->count++], FIO_ARG_BYTES, "--%s%s%s", name, value != NULL ? "=" : "",
             value != NULL ? value : "");
}

static int
fio_run(struct fio *f)
{
    char name[] = "fio";
    char *argv[FIO_ARGS + 2] = {name};
    pid_t pid = 0;
    int status = 0, err;

    for (unsigned i = 0; i < f->count; i++)
        argv[i + 1] = f->args[i];
    err = posix_spawnp(&pid, "fio", NULL, NULL, argv, environ);
    if (err != 0)
        return CH_FAIL(COHORT_EUNSUPPORTED, "fio: %s", strerror(err));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return CH_FAIL(COHORT_EIO, "fio: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return CH_FAIL(COHORT_EIO, "fio on %s failed, see %s", f->file, f->output);
    return 0;
}

/* jobs[0].read.iops of fio's report. */
static int
fio_iops(const struct fio *f, double *iops)
{
    struct json_object *root = json_object_from_file(f->output), *jobs = NULL, *job = NULL;
    struct json_object *read = NULL, *v = NULL;
    int rc = 0;

    if (root != NULL && json_object_object_get_ex(root, "jobs", &jobs) &&
        json_object_is_type(jobs, json_type_array))
        job = json_object_array_get_idx(jobs, 0);
    if (job != NULL && json_object_object_get_ex(job, "read", &read) &&
        json_object_object_get_ex(read, "iops", &v))
        *iops = json_object_get_double(v);
    else
        rc = CH_FAIL(COHORT_EIO, "%s: not a report of fio", f->output);
    json_object_put(root);
    return rc;
}

/* A round of `seconds`; 0 only lays the file out and gives 0. */
static int
fio_round(struct fio *f, const struct bench *b, uint64_t bytes, double seconds, double *iops)
{
    char text[32];
    int rc;

    *iops = 0;
    f->count = 0;
    fio_arg(f, "name", "compare");
    fio_arg(f, "filename", f->file);
    fio_arg(f, "output", f->output);
    fio_arg(f, "output-format", "json");
    fio_arg(f, "rw", "randread");
    fio_arg(f, "bs", "4k");
    fio_arg(f, "direct", "1");
    fio_arg(f, "ioengine", "io_uring");
    fio_arg(f, "iodepth", "1");
    fio_arg(f, "group_reporting", NULL);
    snprintf(text, sizeof(text), "%" PRIu64, b->c.threads);
    fio_arg(f, "numjobs", text);
    snprintf(text, sizeof(text), "%" PRIu64, bytes);
    fio_arg(f, "size", text);
    if (seconds <= 0) {
        fio_arg(f, "create_only", "1");
        return fio_run(f);
    }
    fio_arg(f, "time_based", NULL);
    snprintf(text, sizeof(text), "%.0f", fmax(1.0, seconds));
    fio_arg(f, "runtime", text);
    rc = fio_run(f);
    return rc != 0 ? rc : fio_iops(f, iops);
}

static int
fio_size(const struct bench *b, uint64_t *bytes)
{
    char path[4096];
    struct stat st;

    snprintf(path, sizeof(path), "%s/cohort.db", b->c.device);
    if (stat(path, &st) != 0)
        return CH_FAIL(COHORT_EIO, "%s: %s", path, strerror(errno));
    *bytes = ch_round_up(ch_max_u64((uint64_t)st.st_blocks * 512, CH_PAGE_BYTES), CH_PAGE_BYTES);
    return 0;
}

static int
fio_rounds(struct fio *f, struct bench *b, uint64_t rounds, double *ours, double *theirs)
{
    uint64_t bytes = 0;
    int rc;

    rc = fio_size(b, &bytes);
    if (rc == 0)
        rc = fio_round(f, b, bytes, 0, &theirs[0]);
    for (uint64_t i = 0; i < rounds && rc == 0; i++) {
        struct bench_result r = {0};

        rc = bench_run_reads(b, b->c.seconds, &r);
        if (rc == 0)
            ours[i] = (double)r.window.reads / r.run.seconds;
        if (rc == 0 && r.figures.reads_per_op < 0.5)
            rc = CH_FAIL(COHORT_EOPTION,
                         "--cache: %.2f device reads a get; the data must be far larger",
                         r.figures.reads_per_op);
        bench_result_fini(&r);
        if (rc == 0)
            rc = fio_round(f, b, bytes, b->c.seconds, &theirs[i]);
        if (rc == 0 && !b->c.t->quiet)
            fprintf(stderr, "round %" PRIu64 ": cohort %.0f reads/s, fio %.0f reads/s\n", i + 1,
                    ours[i], theirs[i]);
    }
    return rc;
}

static int
fio_report(const struct bench *b, double ours, double theirs, uint64_t rounds)
{
    struct json_object *o;
    int rc;

    if (!b->c.t->json) {
        printf("4 KiB reads beyond the cache, %" PRIu64 " records, %" PRIu64
               " threads, medians of %" PRIu64 " rounds:\n"
               "  cohort %.0f device reads/s, fio %.0f, ratio %.3f\n",
               b->records, b->c.threads, rounds, ours, theirs, ours / theirs);
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "workload", "compare-fio");
    if (rc == 0)
        rc = report_u64(o, "records", b->records);
    if (rc == 0)
        rc = report_u64(o, "threads", b->c.threads);
    if (rc == 0)
        rc = report_u64(o, "rounds", rounds);
    if (rc == 0)
        rc = report_real(o, "cohort_reads_per_s", ours);
    if (rc == 0)
        rc = report_real(o, "fio_reads_per_s", theirs);
    if (rc == 0)
        rc = report_real(o, "ratio", ours / theirs);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

static int
fio_check(const struct bench_config *c, uint64_t rounds)
{
    if (rounds < 3 || rounds > FIO_ROUNDS_MAX)
        return CH_FAIL(COHORT_EOPTION, "--rounds: 3 to %d", FIO_ROUNDS_MAX);
    if (c->seconds <= 0 || c->device == NULL || strncmp(c->device, "sim:", 4) == 0)
        return CH_FAIL(COHORT_EOPTION, "compare-fio: --device DIRECTORY and --seconds");
    return 0;
}

int
bench_compare_fio(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct bench b = {0};
    struct fio *f = NULL;
    double ours[FIO_ROUNDS_MAX], theirs[FIO_ROUNDS_MAX];
    char file[4096], output[4096];
    uint64_t rounds = 3;
    const struct arg extra[] = {
        {"rounds", 0, ARG_U64, &rounds, NULL, "Rounds of --seconds each (3)."},
    };
    int rc;

    bench_config_init(&c, t);
    c.theta = 0.0;
    c.records_default = 2000000;
    rc = cohort_options_set(&t->options, "cache_bytes", "8M");
    if (rc == 0)
        rc = bench_args(&c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    rc = fio_check(&c, rounds);
    if (rc == 0)
        rc = bench_init(&b, &c);
    f = calloc(1, sizeof(*f));
    if (rc == 0 && f == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "fio");
    if (rc == 0)
        rc = bench_plan(&b);
    if (rc == 0)
        rc = bench_prepare(&b);
    if (rc == 0) {
        snprintf(file, sizeof(file), "%s/fio-compare", c.device);
        snprintf(output, sizeof(output), "%s/fio-compare.json", c.device);
        f->file = file;
        f->output = output;
        rc = fio_rounds(f, &b, rounds, ours, theirs);
    }
    if (rc == 0)
        rc = fio_report(&b, bench_median(ours, rounds), bench_median(theirs, rounds), rounds);
    if (f != NULL && f->file != NULL) {
        unlink(file);
        unlink(output);
    }
    free(f);
    return bench_fini(&b, rc);
}
