/* txn.c - cohort bench txn: its parts, their databases, and the report. */
#include "bench/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rt/rt.h"

static const struct txn_part parts[] = {
    {"read", txn_part_read, "A read-only transaction with one get against a get alone."},
    {"write", txn_part_write, "Transactions of four puts: two threads against one."},
    {"reader", txn_part_reader, "Commits with a snapshot open for the whole run, and without."},
    {"scan", txn_part_scan, "Scans of cached leaves, beside LMDB's."},
    {"many", txn_part_many, "32 keys in one call beyond the cache against single gets."},
    {"durable", txn_part_durable, "Bytes that a durable update of 120 bytes writes."},
    {"bulk", txn_part_bulk, "Bulk load against puts in random order."},
};

/* ---- figures ---- */

void
txn_goal(struct txn_bench *x, const char *name, const char *unit, double value, enum txn_goal kind,
         double goal)
{
    CH_ASSERT(x->count < TXN_FIGURES_MAX);
    x->figures[x->count++] = (struct txn_figure){name, unit, value, goal, kind};
}

void
txn_figure(struct txn_bench *x, const char *name, const char *unit, double value)
{
    txn_goal(x, name, unit, value, TXN_NO_GOAL, 0);
}

static bool
is_met(const struct txn_figure *f)
{
    return f->kind == TXN_AT_LEAST ? f->value >= f->goal : f->value <= f->goal;
}

/* ---- databases ---- */

int
txn_start(struct txn_bench *x, const struct bench_config *c, const char *name,
          const char *durability, double cache_part, bool load, struct bench *b)
{
    struct bench_config mine = *c;
    int rc;

    if (tool_is_volatile(c->device))
        snprintf(x->device, sizeof(x->device), "%s", c->device);
    else
        snprintf(x->device, sizeof(x->device), "%s/txn-%s", c->device, name);
    mine.device = x->device;
    mine.cache_part = cache_part;
    *b = (struct bench){0};
    rc = bench_init(b, &mine);
    if (rc == 0)
        rc = cohort_options_set(&b->options, "durability", durability);
    if (rc == 0 && strcmp(name, "write") == 0)
        rc = cohort_options_set(&b->options, "log_bytes", "512M");
    if (rc == 0)
        rc = bench_plan(b);
    if (rc == 0 && load)
        rc = bench_prepare(b);
    else if (rc == 0)
        rc = bench_open(b, b->options.durability);
    return rc;
}

int
txn_finish(struct txn_bench *x, struct bench *b, int rc)
{
    char file[sizeof(x->device) + 16];
    bool made = b->made;

    rc = bench_fini(b, rc);
    if (!made || strncmp(x->device, "sim:", 4) == 0)
        return rc;
    snprintf(file, sizeof(file), "%s/cohort.db", x->device);
    if ((unlink(file) != 0 || rmdir(x->device) != 0) && rc == 0)
        rc = CH_FAIL(COHORT_EIO, "%s: %s", file, strerror(errno));
    return rc;
}

int
txn_time(const struct txn_bench *x, int (*step)(void *arg, uint64_t *ops), void *arg, double *per_s)
{
    uint64_t from = rt_now_ns(), now = from, ops = 0;
    int rc = 0;

    while (rc == 0 && (double)(now - from) < x->c.seconds * 1e9) {
        rc = step(arg, &ops);
        now = rt_now_ns();
    }
    *per_s = (double)ops * 1e9 / (double)ch_max_u64(now - from, 1);
    return rc;
}

/* ---- report ---- */

static int
report_json(const struct txn_bench *x)
{
    struct json_object *o = json_object_new_object();
    char met[80];
    int rc;

    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "workload", "txn");
    if (rc == 0)
        rc = report_u64(o, "records", x->c.records);
    if (rc == 0)
        rc = report_u64(o, "rounds", x->rounds);
    for (unsigned i = 0; i < x->count && rc == 0; i++) {
        const struct txn_figure *f = &x->figures[i];

        rc = report_real(o, f->name, f->value);
        if (rc != 0 || f->kind == TXN_NO_GOAL)
            continue;
        snprintf(met, sizeof(met), "%s_met", f->name);
        rc = report_bool(o, met, is_met(f));
    }
    if (rc == 0)
        rc = tool_json_print(json_object_get(o), stdout);
    json_object_put(o);
    return rc;
}

static void
report_lines(const struct txn_bench *x)
{
    for (unsigned i = 0; i < x->count; i++) {
        const struct txn_figure *f = &x->figures[i];

        printf("%-32s %14.3f %-12s", f->name, f->value, f->unit);
        if (f->kind != TXN_NO_GOAL)
            printf(" goal: %s %.2f, %s", f->kind == TXN_AT_LEAST ? "at least" : "at most", f->goal,
                   is_met(f) ? "met" : "MISSED");
        putchar('\n');
    }
}

static int
run_parts(struct txn_bench *x)
{
    bool any = false;
    int rc = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(parts) && rc == 0; i++) {
        if (x->only != NULL && strcmp(x->only, parts[i].name) != 0)
            continue;
        any = true;
        if (!x->c.t->quiet)
            fprintf(stderr, "%s: %s\n", parts[i].name, parts[i].brief);
        rc = parts[i].run(x);
    }
    if (!any)
        return CH_FAIL(COHORT_EOPTION,
                       "--part '%s': read, write, reader, scan, many, durable, bulk", x->only);
    return rc;
}

int
bench_txn(struct tool *t, int argc, char **argv)
{
    struct txn_bench x = {.rounds = 5, .durable_ops = 60000};
    const struct arg extra[] = {
        {"rounds", 0, ARG_U64, &x.rounds, NULL, "Rounds of --seconds for each side (5)."},
        {"durable-ops", 0, ARG_U64, &x.durable_ops, NULL,
         "Updates of `durable` with one client, and 4 times that with 16 (60000)."},
        {"part", 0, ARG_TEXT, &x.only, NULL,
         "read, write, reader, scan, many, durable or bulk; default: all."},
    };
    int rc;

    bench_config_init(&x.c, t);
    x.c.theta = 0.0;
    rc = bench_args(&x.c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    if (x.rounds < 1 || x.rounds > TXN_ROUNDS_MAX)
        return CH_FAIL(COHORT_EOPTION, "--rounds: 1 to %d", TXN_ROUNDS_MAX);
    if (x.durable_ops < 1)
        return CH_FAIL(COHORT_EOPTION, "--durable-ops: 1 or more");
    if (x.c.device == NULL || x.c.seconds <= 0 || x.c.records == 0)
        return CH_FAIL(COHORT_EOPTION, "bench txn: --device, --records and --seconds");
    if (strlen(x.c.device) > sizeof(x.device) - 64)
        return CH_FAIL(COHORT_EOPTION, "--device: name too long");
    if (!tool_is_volatile(x.c.device) && strncmp(x.c.device, "sim:", 4) != 0 &&
        mkdir(x.c.device, 0777) != 0 && errno != EEXIST)
        return CH_FAIL(COHORT_EIO, "%s: %s", x.c.device, strerror(errno));
    rc = run_parts(&x);
    if (rc == 0 && t->json)
        rc = report_json(&x);
    else if (rc == 0)
        report_lines(&x);
    return rc != 0 ? rc : tool_flush();
}
