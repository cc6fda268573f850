/* table1.c - cohort bench table1: the same workload on a fresh simulated drive for each way to write.
 *
 * The shape of the paper's Table 1: in place with a double write, out of place, and out of place with
 * compression and packing. Default: 512 MiB logical, zones of 512 KiB (1,024), erase units of 8 MiB
 * (64), data pages 90 % of the drive before compression, cache 15 % of them, zipf 0.8 scrambled, 4
 * drive writes, of which the last quarter is reported. Bytes by cause must add up exactly to what
 * the drive counted: else the command fails.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/options.h"
#include "bench/bench.h"

enum {
    TABLE_ROWS_MAX = 8
};

struct table_row {
    struct bench bench;
    struct bench_result result;
};

static int
run_preset(const struct bench_config *c, const char *preset, struct table_row *row)
{
    int rc;

    if (!c->t->quiet)
        fprintf(stderr, "--- preset %s on %s\n", preset, c->device);
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

    printf("%-15s %9s %9s", "preset", "ops/s", "payloadMB");
    for (int i = 0; i < COHORT_CAUSES; i++)
        printf(" %7s", causes[i]);
    printf(" %7s %7s %7s %9s %s\n", "DB WAF", "SSD WAF", "total", "flash/op", "steady");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &rows[i].result;
        char preset[CH_OPTION_TEXT_BYTES];

        ch_option_format("preset", r->window.preset, preset);
        printf("%-15s %9.0f %9.1f", preset, r->figures.ops_per_s,
               (double)r->window.payload_bytes / 1e6);
        for (int k = 0; k < COHORT_CAUSES; k++)
            printf(" %7.1f", (double)r->window.bytes[k] / 1e6);
        print_number(r->figures.db_waf, 7);
        print_number(r->figures.ssd_waf, 7);
        print_number(r->figures.total_waf, 7);
        print_number(r->figures.flash_bytes_per_op, 9);
        printf(" %s\n", r->steady == BENCH_STEADY_YES ? "yes" : "no");
    }
    printf("bytes by cause in MB (10^6), of the window that is reported; ");
    printf("bytes by cause less the drive's own count:");
    for (size_t i = 0; i < n; i++)
        printf(" %" PRId64, rows[i].result.account_difference);
    printf("\n");
}

static int
check_account(const struct table_row *row)
{
    char preset[CH_OPTION_TEXT_BYTES];

    ch_option_format("preset", row->result.window.preset, preset);
    if (row->result.accounted && row->result.account_difference != 0)
        return CH_FAIL(COHORT_EMISMATCH, "preset %s: bytes by cause differ from the drive's by %"
                       PRId64, preset, row->result.account_difference);
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
    for (; done < n && rc == 0; done++)
        rc = run_preset(&c, names[done], &rows[done]);
    for (size_t i = 0; i < n && rc == 0 && t->json; i++)
        rc = print_row_json(&rows[i]);
    if (rc == 0 && !t->json)
        print_rows(rows, n);
    if (rc == 0)
        rc = tool_flush();
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check_account(&rows[i]);
    for (size_t i = 0; i < done; i++)
        bench_result_fini(&rows[i].result);
    free(rows);
    free(text);
    return rc;
}
