/* ablation.c - cohort bench ablation: the paper's Table 1 with our rows, each on a fresh simulated drive.
 *
 * Default: 512 MiB logical, zones of 512 KiB where the preset does not choose, erase units of 8 MiB, data pages
 * 90 % of the drive before compression, cache 15 % of them, YCSB-A, zipf 0.8 scrambled, 4 drive writes, of which
 * the last quarter is reported. TPC-C (--workload tpcc): the same transactions for each row when --ops is given,
 * else the steady variant by drive writes; the conditions of clause 3.3.2 are checked after each run.
 *
 * Bytes by cause must add up exactly to what the drive counted: else the command fails. --all-models repeats the
 * table for each ordinary drive and ends with how many times less in all the last row writes than the first.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/ablation.h"
#include "bench/rows.h"
#include "bench/tpcc_bench.h"
#include "ssd/ssd.h"

enum {
    ABLATION_MODELS_MAX = 16
};

struct ablation {
    const struct ablation_point *point; /* NULL: no sweep */
    struct bench_config c;
    struct rows rows;
    const char *model, *rows_text, *bytes, *superblock, *spare;
    uint64_t warehouses, divisor;
    bool all_models, tpcc, timing;
    struct row_run *runs; /* rows.count a model */
    size_t count;         /* runs begun */
    const char *models[ABLATION_MODELS_MAX];
    size_t model_count;
};

/* ---- one row ---- */

static int
run_ycsb(const struct ablation *a, struct row_run *run)
{
    struct bench_config c = a->c;
    int rc;

    c.device = run->device;
    rc = bench_init(&run->bench, &c);
    if (rc == 0)
        rc = row_apply(run->spec, &run->bench.options);
    if (rc == 0)
        rc = bench_plan(&run->bench);
    if (rc == 0)
        rc = bench_prepare(&run->bench);
    if (rc == 0)
        rc = bench_run(&run->bench, &run->result);
    return bench_fini(&run->bench, rc);
}

static int
run_tpcc(const struct ablation *a, struct row_run *run)
{
    struct tpcc_bench *b = calloc(1, sizeof(*b));
    int rc;

    run->tpcc = b;
    if (b == NULL)
        return CH_FAIL(COHORT_ENOMEM, "TPC-C");
    tpcc_config_init(&b->c, a->c.t);
    b->c.device = run->device;
    b->c.warehouses = a->warehouses;
    b->c.divisor = a->divisor;
    b->c.threads = a->c.threads;
    b->c.ops = a->c.ops;
    b->c.seed = a->c.seed;
    b->c.seconds = a->c.seconds;
    b->c.drive_writes = a->c.drive_writes;
    b->c.cache_part = a->c.cache_part;
    b->c.steady = a->c.drive_writes > 0;
    b->c.check = true;
    b->ops = &tpcc_cohort_ops;
    b->options = a->c.t->options;
    rc = row_apply(run->spec, &b->options);
    if (rc == 0)
        rc = tpcc_prepare(b);
    if (rc == 0)
        rc = tpcc_measure(b);
    return tpcc_finish(b, rc);
}

static int
run_row(struct ablation *a, const char *base, const struct row_spec *spec)
{
    struct row_run *run = &a->runs[a->count++];
    int rc;

    run->spec = spec;
    run->model = base;
    rc = row_device(spec, base, &run->device);
    if (rc == 0 && !a->c.t->quiet)
        fprintf(stderr, "--- %s on %s\n", spec->name, run->device);
    if (rc == 0)
        rc = a->tpcc ? run_tpcc(a, run) : run_ycsb(a, run);
    return rc;
}

/* ---- one drive ---- */

/* A row with a drive model of its own is run once, on the first drive. */
static int
run_model(struct ablation *a, size_t which)
{
    int rc = 0;

    for (size_t i = 0; i < a->rows.count && rc == 0; i++)
        if (which == 0 || a->rows.list[i].model == NULL) {
            rc = run_row(a, a->models[which], &a->rows.list[i]);
            /* Along an axis there may be points at which a row has no room. */
            if (rc == COHORT_EFULL && a->point != NULL) {
                fprintf(stderr, "%s at %s: does not fit\n", a->rows.list[i].name, a->point->values);
                row_run_fini(&a->runs[--a->count]);
                rc = 0;
            }
        }
    return rc;
}

static int
print_runs(const struct ablation *a, size_t from)
{
    int rc = 0;

    if (!a->c.t->json && a->point != NULL) {
        for (size_t i = from; i < a->count; i++)
            row_line_print(&a->runs[i], a->point->names, a->point->values,
                           i == 0 && a->point->first);
        return tool_flush();
    }
    if (!a->c.t->json) {
        row_table_print(a->runs + from, a->count - from);
        printf("\n");
        return tool_flush();
    }
    for (size_t i = from; i < a->count && rc == 0; i++) {
        struct json_object *o = NULL;

        rc = row_json(&a->runs[i], &o);
        if (rc == 0)
            rc = report_text(o, "bench", a->point != NULL ? "sweep" : "ablation");
        if (rc == 0 && a->point != NULL)
            rc = report_text(o, "axis", a->point->names);
        if (rc == 0 && a->point != NULL)
            rc = report_text(o, "axis_value", a->point->values);
        if (rc == 0)
            rc = tool_json_print(json_object_get(o), stdout);
        json_object_put(o);
    }
    return rc == 0 ? tool_flush() : rc;
}

static double
run_total(const struct ablation *a, size_t from, size_t to, const char *name)
{
    for (size_t i = from; i < to; i++)
        if (strcmp(a->runs[i].spec->name, name) == 0)
            return row_result(&a->runs[i])->figures.total_waf;
    return FIGURE_ABSENT;
}

/* Reduction of the total write amplification by model, of each row against the first. */
static void
print_reductions(const struct ablation *a)
{
    const char *first = a->rows.list[0].name;
    size_t from = 0;

    printf("total WAF of %s / total WAF of ...\n%-44s", first, "");
    for (size_t i = 1; i < a->rows.count; i++)
        if (a->rows.list[i].model == NULL)
            printf(" %14s", a->rows.list[i].name);
    printf("\n");
    for (size_t m = 0; m < a->model_count; m++) {
        size_t to = from;

        while (to < a->count && a->runs[to].model == a->models[m])
            to++;
        printf("%-44s", a->models[m]);
        for (size_t i = 1; i < a->rows.count; i++) {
            double base = run_total(a, from, to, first);
            double v = run_total(a, from, to, a->rows.list[i].name);

            if (a->rows.list[i].model == NULL)
                printf(" %14.2f", base > 0 && v > 0 ? base / v : 0.0);
        }
        printf("\n");
        from = to;
    }
}

/* ---- the command ---- */

/* "sim:MODEL,bytes=..." for a model's name; owned. */
static int
add_model(struct ablation *a, const char *model)
{
    char *uri = NULL;

    if (!row_model_known(model))
        return CH_FAIL(COHORT_EOPTION, "--model %s: no such drive", model);
    if (asprintf(&uri, "sim:%s,bytes=%s%s%s%s%s%s", model, a->bytes,
                 a->superblock != NULL ? ",superblock=" : "",
                 a->superblock != NULL ? a->superblock : "", a->spare != NULL ? ",spare=" : "",
                 a->spare != NULL ? a->spare : "", a->timing ? ",timing=virtual" : "") < 0)
        return CH_FAIL(COHORT_ENOMEM, "URI of %s", model);
    a->models[a->model_count++] = uri;
    return 0;
}

/* The drives of the paper's kind: no test vehicles. */
static bool
is_ordinary(const char *model)
{
    static const char *const others[] = {"generic", "femu", "consumer", "fdp", "zns"};

    for (size_t i = 0; i < CH_ARRAY_LEN(others); i++)
        if (strncmp(model, others[i], strlen(others[i])) == 0)
            return false;
    return true;
}

static int
choose_models(struct ablation *a)
{
    const char *name;
    int rc = 0;

    if (a->c.device != NULL) {
        if (strncmp(a->c.device, "sim:", 4) != 0 || !tool_is_volatile(a->c.device))
            return CH_FAIL(COHORT_EOPTION, "--device %s: a sim: drive in memory is needed",
                           a->c.device);
        a->models[0] = strdup(a->c.device);
        a->model_count = 1;
        return a->models[0] != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "URI");
    }
    if (!a->all_models)
        return add_model(a, a->model);
    for (unsigned i = 0; (name = ssd_model_name(i)) != NULL && rc == 0; i++)
        if (is_ordinary(name) && a->model_count < ABLATION_MODELS_MAX)
            rc = add_model(a, name);
    return rc;
}

static int
ablation_args(struct ablation *a, int argc, char **argv)
{
    struct tool *t = a->c.t;
    const struct arg extra[] = {
        {"model", 'm', ARG_TEXT, &a->model, NULL, "Simulated drive (generic)."},
        {"all-models", 0, ARG_FLAG, &a->all_models, NULL, "Each ordinary drive in turn."},
        {"bytes", 0, ARG_TEXT, &a->bytes, NULL, "Capacity of the drives (512M)."},
        {"superblock", 0, ARG_TEXT, &a->superblock, NULL, "Erase unit (8M; of the model)."},
        {"spare", 0, ARG_TEXT, &a->spare, NULL, "Spare flash in percent (of the model)."},
        {"rows", 0, ARG_TEXT, &a->rows_text, NULL,
         "NAME[:option=value].. with commas (all); NAME a row or preset."},
        {"timing", 0, ARG_FLAG, &a->timing, NULL,
         "Virtual time of the drive's model, 64 clients: ops/s and p99 follow from it."},
        {"warehouses", 0, ARG_U64, &a->warehouses, NULL, "tpcc: warehouses (5)."},
        {"scale", 0, ARG_U64, &a->divisor, NULL, "tpcc: divisor of the cardinalities (1)."},
    };
    int rc;

    bench_config_init(&a->c, t);
    a->model = "generic";
    a->bytes = "512M";
    a->warehouses = 5;
    a->divisor = 1;
    a->c.fill_default = 90;
    a->c.cache_part = 15;
    a->c.theta = 0.8;
    a->c.drive_writes_default = 4;
    rc = cohort_options_set(&t->options, "zone_bytes", "512K");
    /* The log is not what is compared: its flushes are left to the engine. */
    if (rc == 0)
        rc = cohort_options_set(&t->options, "durability", "async");
    if (rc == 0)
        rc = cohort_options_set(&t->options, "log_bytes", "8M");
    if (rc == 0)
        rc = bench_args(&a->c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    t->where = NULL;
    a->tpcc = strcmp(a->c.workload, "tpcc") == 0;
    if (a->superblock == NULL && strcmp(a->model, "generic") == 0)
        a->superblock = "8M";
    if (a->timing && a->c.clients == 0)
        a->c.clients = 64;
    if (a->timing && a->c.device != NULL && strstr(a->c.device, "timing=virtual") == NULL)
        return CH_FAIL(COHORT_EOPTION, "--timing: the drive has no timing=virtual");
    if (a->timing && (a->tpcc || a->c.threads > 1))
        return CH_FAIL(COHORT_EOPTION, "--timing: one thread, and not TPC-C");
    rc = rows_parse(a->rows_text, &a->rows);
    return rc == 0 ? choose_models(a) : rc;
}

int
ablation_run(struct tool *t, int argc, char **argv, const struct ablation_point *point)
{
    struct ablation a = {.point = point, .c = {.t = t}};
    size_t from;
    int rc = ablation_args(&a, argc, argv);

    if (rc != 0 || t->help)
        goto out;
    a.runs = calloc(a.rows.count * a.model_count, sizeof(*a.runs));
    if (a.runs == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "rows");
    for (size_t m = 0; m < a.model_count && rc == 0; m++) {
        from = a.count;
        rc = run_model(&a, m);
        if (rc == 0)
            rc = print_runs(&a, from);
    }
    if (rc == 0 && a.all_models && !t->json && point == NULL) {
        print_reductions(&a);
        rc = tool_flush();
    }
    for (size_t i = 0; i < a.count && rc == 0; i++)
        rc = row_account(&a.runs[i]);
out:
    for (size_t i = 0; i < a.count; i++)
        row_run_fini(&a.runs[i]);
    for (size_t m = 0; m < a.model_count; m++)
        free((void *)(uintptr_t)a.models[m]);
    free(a.runs);
    rows_fini(&a.rows);
    return rc;
}

int
bench_ablation(struct tool *t, int argc, char **argv)
{
    return ablation_run(t, argc, argv, NULL);
}
