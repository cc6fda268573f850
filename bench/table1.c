/* table1.c - cohort bench table1 and demo: the same workload on a fresh simulated drive for each way to write.
 *
 * The shape of the paper's Table 1: in place with a double write, out of place, and out of place with
 * compression and packing. Default: 512 MiB logical, zones of 512 KiB (1,024), erase units of 8 MiB
 * (64), data pages 90 % of the drive before compression, cache 15 % of them, zipf 0.8 scrambled, 4
 * drive writes, of which the last quarter is reported. Bytes by cause must add up exactly to what
 * the drive counted: else the command fails. `demo` adds a run on an ordinary directory before it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/options.h"
#include "bench/bench.h"

enum {
    TABLE_ROWS_MAX = 8
};

struct table_row {
    const char *name;
    struct bench bench;
    struct bench_result result;
};

static int
run_row(const struct bench_config *c, const char *preset, struct table_row *row)
{
    int rc;

    if (!c->t->quiet)
        fprintf(stderr, "--- %s on %s\n", row->name, c->device);
    rc = bench_init(&row->bench, c);
    if (rc == 0)
        rc = cohort_options_set(&row->bench.options, "preset", preset);
    if (rc == 0)
        rc = bench_plan(&row->bench);
    if (rc == 0)
        rc = bench_prepare(&row->bench);
    if (rc == 0)
        rc = bench_run(&row->bench, &row->result);
    return bench_fini(&row->bench, rc);
}

static void
print_number(double v, int width)
{
    if (isnan(v))
        printf(" %*s", width, "unknown");
    else if (!figure_is_known(v))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, v >= 1000 ? 0 : 2, v);
}

static void
print_rows(const struct table_row *rows, size_t n)
{
    const char *const *causes = report_cause_names();

    printf("%-15s %9s %9s", "run", "ops/s", "payloadMB");
    for (int i = 0; i < COHORT_CAUSES; i++)
        printf(" %7s", causes[i]);
    printf(" %7s %7s %7s %9s %s\n", "DB WAF", "SSD WAF", "total", "flash/op", "steady");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &rows[i].result;

        printf("%-15s %9.0f %9.1f", rows[i].name, r->figures.ops_per_s,
               (double)r->window.payload_bytes / 1e6);
        for (int k = 0; k < COHORT_CAUSES; k++)
            printf(" %7.1f", (double)r->window.bytes[k] / 1e6);
        print_number(r->figures.db_waf, 7);
        print_number(r->figures.ssd_waf, 7);
        print_number(r->figures.total_waf, 7);
        print_number(r->figures.flash_bytes_per_op, 9);
        printf(" %s\n", r->steady == BENCH_STEADY_ABSENT ? "-"
                        : r->steady == BENCH_STEADY_YES  ? "yes"
                                                         : "no");
    }
    printf("user to meta: MB (10^6 bytes) written in the reported window, by cause; flash/op: "
           "bytes\n");
    printf("bytes by cause less the drive's own count:");
    for (size_t i = 0; i < n; i++) {
        if (rows[i].result.accounted)
            printf(" %" PRId64, rows[i].result.account_difference);
        else
            printf(" unknown");
    }
    printf("\n");
}

static int
check_account(const struct table_row *row)
{
    if (row->result.accounted && row->result.account_difference != 0)
        return CH_FAIL(COHORT_ECORRUPT, "%s: bytes by cause differ from the drive's by %" PRId64,
                       row->name, row->result.account_difference);
    return 0;
}

static int
print_row_json(const struct table_row *row)
{
    struct json_object *o = NULL;
    int rc;

    rc = bench_report_json(&row->bench, &row->result, &o);
    return rc != 0 ? rc : tool_json_print(o, stdout);
}

/* Splits "a,b,c" in place. */
static int
split_presets(char *text, const char **names, size_t *n)
{
    char *save = NULL;

    *n = 0;
    for (char *p = strtok_r(text, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        if (*n == TABLE_ROWS_MAX)
            return CH_FAIL(COHORT_EOPTION, "--presets: at most %d", TABLE_ROWS_MAX);
        names[(*n)++] = p;
    }
    return *n > 0 ? 0 : CH_FAIL(COHORT_EOPTION, "--presets: none named");
}

static int
table_config(struct bench_config *c, struct tool *t)
{
    int rc;

    bench_config_init(c, t);
    c->device = "sim:generic,bytes=512M,superblock=8M";
    c->fill_default = 90;
    c->cache_part = 15;
    c->theta = 0.8;
    c->drive_writes_default = 4;
    rc = cohort_options_set(&t->options, "zone_bytes", "512K");
    /* The log is not what is compared: its flushes are left to the engine. */
    if (rc == 0)
        rc = cohort_options_set(&t->options, "durability", "async");
    if (rc == 0)
        rc = cohort_options_set(&t->options, "log_bytes", "8M");
    return rc;
}

/* Runs each preset into a row of `rows`; *done counts the rows that were begun. */
static int
run_presets(const struct bench_config *c, const char *const *names, size_t n,
            struct table_row *rows, size_t *done)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct table_row *row = &rows[(*done)++];

        row->name = names[i];
        rc = run_row(c, names[i], row);
    }
    return rc;
}

/* Prints what was run, even when bytes do not add up, and frees it. */
static int
finish_table(struct tool *t, struct table_row *rows, size_t n, int rc)
{
    for (size_t i = 0; i < n && rc == 0 && t->json; i++)
        rc = print_row_json(&rows[i]);
    if (rc == 0 && !t->json)
        print_rows(rows, n);
    if (rc == 0)
        rc = tool_flush();
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check_account(&rows[i]);
    for (size_t i = 0; i < n; i++)
        bench_result_fini(&rows[i].result);
    free(rows);
    return rc;
}

int
bench_table1(struct tool *t, int argc, char **argv)
{
    struct bench_config c;
    struct table_row *rows = NULL;
    const char *names[TABLE_ROWS_MAX], *presets = "inplace,oop,oop+pack";
    const struct arg extra[] = {
        {"presets", 0, ARG_TEXT, &presets, NULL, "Names, with commas (inplace,oop,oop+pack)."},
    };
    char *text = NULL;
    size_t n = 0, done = 0;
    int rc;

    rc = table_config(&c, t);
    if (rc == 0)
        rc = bench_args(&c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help)
        return rc;
    if (!tool_is_volatile(c.device)) /* the second preset would find the first one's database */
        return CH_FAIL(COHORT_EOPTION, "--device %s: table1 needs a sim: drive in memory",
                       c.device);
    text = strdup(presets);
    rows = calloc(TABLE_ROWS_MAX, sizeof(*rows));
    rc = text == NULL || rows == NULL ? CH_FAIL(COHORT_ENOMEM, "table")
                                      : split_presets(text, names, &n);
    if (rc == 0)
        rc = run_presets(&c, names, n, rows, &done);
    rc = finish_table(t, rows, done, rc);
    free(text);
    return rc;
}

/* The first row of the demo: an embedded database in a directory. */
static int
run_directory(const struct bench_config *table, const char *device, double seconds,
              struct table_row *row)
{
    struct bench_config c = *table;
    struct cohort_options saved = table->t->options;
    int rc;

    c.device = device;
    c.records = 1000000;
    c.fill = 0;
    c.drive_writes = 0;
    c.seconds = seconds;
    c.threads = 2;
    row->name = "directory";
    cohort_options_init(&c.t->options); /* the defaults, but that nobody waits for the log */
    rc = cohort_options_set(&c.t->options, "durability", "async");
    if (rc == 0)
        rc = cohort_options_set(&c.t->options, "max_bytes", "1G");
    if (rc == 0)
        rc = run_row(&c, "cohort", row);
    c.t->options = saved;
    return rc;
}

int
bench_demo(struct tool *t, int argc, char **argv)
{
    static const char *const names[] = {"inplace", "oop", "oop+pack"};
    struct bench_config c;
    struct table_row *rows = calloc(TABLE_ROWS_MAX, sizeof(*rows));
    const char *drive = "sim:generic,bytes=256M,superblock=4M", *directory;
    double seconds = 15;
    const struct arg extra[] = {
        {"drive", 0, ARG_TEXT, &drive, NULL, "Simulated drive."},
        {"directory-seconds", 0, ARG_REAL, &seconds, NULL, "Length of the first run (15)."},
    };
    size_t done = 0;
    int rc;

    rc = rows == NULL ? CH_FAIL(COHORT_ENOMEM, "table") : table_config(&c, t);
    /* Half of table1's drive, and still 1,024 zones of 64 slots and 64 erase units. */
    if (rc == 0)
        rc = cohort_options_set(&t->options, "zone_bytes", "256K");
    if (rc == 0)
        rc = bench_args(&c, argc, argv, extra, CH_ARRAY_LEN(extra));
    if (rc != 0 || t->help) {
        free(rows);
        return rc;
    }
    directory = c.device;
    c.device = drive;
    if (strncmp(directory, "sim:", 4) == 0 || !tool_is_volatile(drive))
        rc = CH_FAIL(COHORT_EOPTION, "demo: --device DIRECTORY, --drive sim: URI in memory");
    if (rc == 0) {
        done = 1;
        rc = run_directory(&c, directory, seconds, &rows[0]);
    }
    if (rc == 0)
        rc = run_presets(&c, names, CH_ARRAY_LEN(names), rows, &done);
    return finish_table(t, rows, done, rc);
}
