/* rows.h - the configurations that the ablation, the sweeps and the comparison with peers run.
 *
 * A row is a preset with options and a drive of its own: the steps of the paper's Table 1, then ours. What the
 * library at hand does not know (a preset, an option, a model) makes a row unavailable: it is left out of "all",
 * and an error when it is named. On the command line a row is
 *
 *     NAME[:option=value]...      NAME: a row, else a preset
 */
#ifndef CH_BENCH_ROWS_H
#define CH_BENCH_ROWS_H

#include "bench/bench.h"

enum {
    ROWS_MAX = 64,
    ROW_OPTIONS_MAX = 12
};

struct row_spec {
    const char *name;
    const char *preset;
    const char *options[ROW_OPTIONS_MAX]; /* "name=value", NULL at the end */
    const char *model;  /* simulated drive of this row; NULL: the one all are run on */
    const char *device; /* appended to its URI: ",key=value"; NULL: nothing */
    bool extra;         /* not in the default list */
};

struct rows {
    struct row_spec list[ROWS_MAX];
    size_t count;
    char *text, *labels; /* owned: what the strings of named rows point into */
};

/* "all" or NULL: the rows of the table that are available; else names with commas. EOPTION. */
CH_NODISCARD int rows_parse(const char *text, struct rows *out);
void rows_fini(struct rows *r);
/* Sets preset and options of the row: EOPTION names what is not known. */
CH_NODISCARD int row_apply(const struct row_spec *row, struct cohort_options *o);
/* "sim:" URI of the row on a drive: `base` is the URI all rows share, "sim:MODEL,...". free() it. ENOMEM. */
CH_NODISCARD int row_device(const struct row_spec *row, const char *base, char **out);
/* Whether there is such a model of a simulated drive. */
bool row_model_known(const char *model);

/* ---- row_table.c: what was run, for people and as JSON ---- */

struct tpcc_bench;
struct row_run {
    const struct row_spec *spec;
    const char *model;  /* borrowed */
    char *device;       /* owned */
    struct bench bench; /* YCSB and page workloads */
    struct bench_result result;
    struct tpcc_bench *tpcc; /* owned; NULL: `bench` and `result` count */
};
void row_run_fini(struct row_run *r);
const struct bench_result *row_result(const struct row_run *r);
/* Three tables: amplification, bytes an operation by cause, costs; and whether bytes add up. */
void row_table_print(const struct row_run *runs, size_t n);
/* One line of a sweep. */
void row_line_print(const struct row_run *r, const char *axis, const char *value, bool heading);
CH_NODISCARD int row_json(const struct row_run *r, struct json_object **out);
/* ECORRUPT when the causes do not add up to what the drive counted. */
CH_NODISCARD int row_account(const struct row_run *r);

#endif
