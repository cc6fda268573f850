/* cmd_report.c - cohort report RUN.json... -o out.html: what benches printed with --json, as one page of HTML.
 *
 * Input: files of JSON objects, one after the other or in arrays, as `cohort bench ... --json` prints them ("-":
 * stdin). Fields that a run lacks, or that are null, leave out what would show them; fields of another type than
 * expected count as missing. What is no JSON, or no object, is an error that names file and place. Sections:
 *
 *     runs           a table of all
 *     waterfall      bytes that the flash programmed for 4 KiB page written, by cause and layer
 *     amplification  the total by run
 *     sweeps         runs with an `axis`: a line for each row, workload and drive
 *     over time      runs with `samples`; and their zones
 *
 * The page needs nothing from elsewhere.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/html.h"
#include "tools/tool.h"

enum {
    RUNS_MAX = 4096,
    POINTS_MAX = 4096,
    BARS_MAX = 60,
    CHUNK = 65536
};

struct report {
    struct json_object *runs[RUNS_MAX]; /* owned */
    size_t count;
    FILE *out;
};

/* ---- fields ---- */

static double
number(struct json_object *o, const char *name)
{
    struct json_object *v = NULL;

    if (!json_object_object_get_ex(o, name, &v) || v == NULL)
        return (double)NAN;
    if (json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double))
        return json_object_get_double(v);
    return (double)NAN;
}

static const char *
text(struct json_object *o, const char *name)
{
    struct json_object *v = NULL;

    if (!json_object_object_get_ex(o, name, &v) || !json_object_is_type(v, json_type_string))
        return NULL;
    return json_object_get_string(v);
}

static struct json_object *
child(struct json_object *o, const char *name, enum json_type type)
{
    struct json_object *v = NULL;

    return json_object_object_get_ex(o, name, &v) && json_object_is_type(v, type) ? v : NULL;
}

/* "row", or the preset, and what else tells runs apart. */
static void
run_name(struct json_object *o, char *buf, size_t n)
{
    const char *row = text(o, "row"), *axis = text(o, "axis_value"), *model = text(o, "model");

    if (row == NULL)
        row = text(o, "preset") != NULL ? text(o, "preset") : "run";
    snprintf(buf, n, "%s%s%s%s%s", row, model != NULL ? " on " : "", model != NULL ? model : "",
             axis != NULL ? " at " : "", axis != NULL ? axis : "");
}

/* ---- reading ---- */

static int
read_all(const char *path, struct tool_bytes *b)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    char buf[CHUNK];
    size_t n;
    int rc = 0;

    if (f == NULL)
        return CH_FAIL(COHORT_EIO, "%s", path);
    while (rc == 0 && (n = fread(buf, 1, sizeof(buf), f)) > 0)
        rc = tool_bytes_add(b, buf, n);
    if (rc == 0 && ferror(f))
        rc = CH_FAIL(COHORT_EIO, "%s: read", path);
    if (f != stdin)
        fclose(f);
    return rc;
}

/* Takes over one parsed value. */
static int
add_value(struct report *r, const char *path, struct json_object *v)
{
    int rc = 0;

    if (json_object_is_type(v, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(v) && rc == 0; i++)
            rc = add_value(r, path, json_object_get(json_object_array_get_idx(v, i)));
        json_object_put(v);
        return rc;
    }
    if (!json_object_is_type(v, json_type_object))
        rc = CH_FAIL(COHORT_EINVAL, "%s: a value that is not an object: runs are objects", path);
    else if (r->count == RUNS_MAX)
        rc = CH_FAIL(COHORT_EINVAL, "%s: more than %d runs", path, RUNS_MAX);
    else
        r->runs[r->count++] = v;
    if (rc != 0)
        json_object_put(v);
    return rc;
}

static bool
only_space(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(" \t\r\n", p[i]) == NULL || p[i] == '\0')
            return false;
    return true;
}

static int
read_runs(struct report *r, const char *path)
{
    struct json_tokener *k = json_tokener_new();
    struct tool_bytes b = {0};
    size_t at = 0, before = r->count;
    int rc = k == NULL ? CH_FAIL(COHORT_ENOMEM, "JSON") : read_all(path, &b);

    if (rc == 0 && b.bytes > INT32_MAX / 2)
        rc = CH_FAIL(COHORT_EINVAL, "%s: %zu bytes are too many", path, b.bytes);
    while (rc == 0 && !only_space(b.data + at, b.bytes - at)) {
        struct json_object *v;

        json_tokener_reset(k);
        v = json_tokener_parse_ex(k, (const char *)b.data + at, (int)(b.bytes - at));
        if (v == NULL) {
            enum json_tokener_error e = json_tokener_get_error(k);

            rc = CH_FAIL(COHORT_EINVAL, "%s: not JSON at byte %zu: %s", path,
                         at + json_tokener_get_parse_end(k),
                         e == json_tokener_continue  ? "it ends in the middle"
                         : e == json_tokener_success ? "null is no run"
                                                     : json_tokener_error_desc(e));
            break;
        }
        at += json_tokener_get_parse_end(k);
        rc = add_value(r, path, v);
    }
    if (rc == 0 && r->count == before)
        rc = CH_FAIL(COHORT_EINVAL, "%s: no runs in it", path);
    if (k != NULL)
        json_tokener_free(k);
    free(b.data);
    return rc;
}

/* ---- sections ---- */

static const struct {
    const char *name, *head;
} columns[] = {
    {"ops_per_s", "ops/s"},
    {"db_waf", "DB WAF"},
    {"ssd_waf", "SSD WAF"},
    {"total_waf", "total"},
    {"total_waf_with_log", "with log"},
    {"flash_bytes_per_op", "flash B/op"},
    {"reads_per_op", "reads/op"},
    {"cpu_us_per_op", "CPU us/op"},
    {"compress_ratio", "page ratio"},
    {"compress_ratio_sd", "sd"},
    {"leaf_fill", "leaf fill"},
    {"fill", "fill"},
};

static void
write_table(const struct report *r)
{
    FILE *out = r->out;

    fputs("<h2>Runs</h2>\n<div class=\"scroll\"><table>\n<tr><th class=\"t\">run</th><th "
          "class=\"t\">workload</th>",
          out);
    for (size_t c = 0; c < CH_ARRAY_LEN(columns); c++)
        fprintf(out, "<th>%s</th>", columns[c].head);
    fputs("<th>scrambled</th><th>steady</th></tr>\n", out);
    for (size_t i = 0; i < r->count; i++) {
        struct json_object *o = r->runs[i], *v = NULL;
        char name[160];

        run_name(o, name, sizeof(name));
        fputs("<tr><td class=\"t\">", out);
        html_text(out, name);
        fputs("</td><td class=\"t\">", out);
        html_text(out, text(o, "workload") != NULL ? text(o, "workload") : "-");
        fputs("</td>", out);
        for (size_t c = 0; c < CH_ARRAY_LEN(columns); c++) {
            fputs("<td>", out);
            if (!json_object_object_get_ex(o, columns[c].name, &v))
                fputs("-", out);
            else
                html_number(out, number(o, columns[c].name));
            fputs("</td>", out);
        }
        for (int k = 0; k < 2; k++) {
            v = child(o, k == 0 ? "scrambled" : "steady", json_type_boolean);
            fprintf(out, "<td>%s</td>",
                    v == NULL                    ? "-"
                    : json_object_get_boolean(v) ? "yes"
                                                 : "no");
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* Bytes of each cause, then what the drive adds, for each 4 KiB of page writes. False: not told. */
static bool
run_parts(struct json_object *o, double parts[COHORT_CAUSES + 1])
{
    struct json_object *bytes = child(o, "bytes", json_type_object);
    double pages = number(o, "page_writes") * CH_PAGE_BYTES;
    double added = number(o, "media_bytes") - number(o, "host_bytes");

    if (bytes == NULL || !(pages > 0))
        return false;
    for (int k = 0; k < COHORT_CAUSES; k++)
        parts[k] = number(bytes, report_cause_names()[k]) / pages;
    parts[COHORT_CAUSES] = added / pages;
    return true;
}

static void
write_waterfall(const struct report *r)
{
    const char *names[COHORT_CAUSES + 1];
    static char labels[BARS_MAX][160];
    static double parts[BARS_MAX][COHORT_CAUSES + 1];
    struct html_bar bars[BARS_MAX];
    size_t n = 0;

    for (int k = 0; k < COHORT_CAUSES; k++)
        names[k] = report_cause_names()[k];
    names[COHORT_CAUSES] = "the drive (GC, floor)";
    for (size_t i = 0; i < r->count && n < BARS_MAX; i++) {
        if (text(r->runs[i], "axis") != NULL || !run_parts(r->runs[i], parts[n]))
            continue; /* sweeps have charts of their own */
        run_name(r->runs[i], labels[n], sizeof(labels[n]));
        bars[n] = (struct html_bar){labels[n], parts[n], number(r->runs[i], "total_waf_with_log")};
        n++;
    }
    if (n == 0)
        return;
    fputs(
        "<h2>Where the bytes come from</h2>\n<p>Bytes programmed by the flash for each byte of "
        "page "
        "writes, by cause in the database and, last, what the drive adds. The number is the total "
        "with the log.</p>\n",
        r->out);
    html_bars(r->out, "Write amplification by cause and layer, log included",
              "bytes programmed / byte of pages written", names, COHORT_CAUSES + 1, bars, n);
}

static void
write_totals(const struct report *r)
{
    static const char *const names[] = {"total WAF"};
    static char labels[BARS_MAX][160];
    static double totals[BARS_MAX];
    struct html_bar bars[BARS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < r->count && n < BARS_MAX; i++) {
        totals[n] = number(r->runs[i], "total_waf");
        if (!isfinite(totals[n]) || text(r->runs[i], "axis") != NULL)
            continue;
        run_name(r->runs[i], labels[n], sizeof(labels[n]));
        bars[n] = (struct html_bar){labels[n], &totals[n], totals[n]};
        n++;
    }
    if (n > 0)
        html_bars(r->out, "Total write amplification (DB WAF x SSD WAF, without the log)",
                  "bytes programmed / byte of pages written", names, 1, bars, n);
}

/* ---- sweeps ---- */

struct sweep_plot {
    const char *axis, *field;
    const char *values[POINTS_MAX]; /* distinct axis values in their order */
    size_t value_count;
    bool numeric;
    char labels[HTML_SERIES_MAX][200];
    double x[HTML_SERIES_MAX][128], y[HTML_SERIES_MAX][128];
    struct html_line lines[HTML_SERIES_MAX];
    size_t line_count;
};

static size_t
value_index(struct sweep_plot *p, const char *value)
{
    char *end = NULL;

    for (size_t i = 0; i < p->value_count; i++)
        if (strcmp(p->values[i], value) == 0)
            return i;
    if (p->value_count == POINTS_MAX)
        return POINTS_MAX - 1;
    (void)strtod(value, &end);
    p->numeric = p->numeric && end != value && (*end == '\0' || strcmp(end, "%") == 0);
    p->values[p->value_count] = value;
    return p->value_count++;
}

static struct html_line *
sweep_line(struct sweep_plot *p, struct json_object *o)
{
    const char *row = text(o, "row"), *model = text(o, "model"), *load = text(o, "workload");
    char label[200];
    size_t i = 0;

    snprintf(label, sizeof(label), "%s%s%s%s%s", row != NULL ? row : "run",
             strstr(p->axis, "workload") == NULL && load != NULL ? ", " : "",
             strstr(p->axis, "workload") == NULL && load != NULL ? load : "",
             strstr(p->axis, "model") == NULL && model != NULL ? ", " : "",
             strstr(p->axis, "model") == NULL && model != NULL ? model : "");
    while (i < p->line_count && strcmp(p->labels[i], label) != 0)
        i++;
    if (i == HTML_SERIES_MAX)
        return NULL;
    if (i == p->line_count) {
        p->line_count++;
        memcpy(p->labels[i], label, sizeof(label));
        p->lines[i] = (struct html_line){p->labels[i], p->x[i], p->y[i], 0};
    }
    return &p->lines[i];
}

/* The axis with its unit, for a label; of a grid as it is. */
static const char *
axis_label(const char *axis)
{
    static const char *const labels[][2] = {
        {"fill", "fill: pages before compression, % of the drive"},
        {"cache", "page cache, % of the data or bytes"},
        {"theta", "zipf theta"},
        {"spare", "spare flash, %"},
        {"compressibility", "random part of a value"},
        {"hot-part", "hot records, %"},
        {"zone-bytes", "zone, bytes"},
        {"superblock", "erase unit, bytes"},
        {"value-bytes", "value, bytes"},
        {"leaf-fill", "leaf fill, %"},
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(labels); i++)
        if (strcmp(labels[i][0], axis) == 0)
            return labels[i][1];
    return axis;
}

static void
write_sweep(const struct report *r, const char *axis, const char *field, const char *title)
{
    struct sweep_plot *p = calloc(1, sizeof(*p));
    struct html_axes a = {.title = title, .x = axis_label(axis), .y = title};

    if (p == NULL)
        return;
    p->axis = axis;
    p->numeric = true;
    for (size_t i = 0; i < r->count; i++) {
        const char *own = text(r->runs[i], "axis"), *value = text(r->runs[i], "axis_value");
        struct html_line *l;
        size_t at;

        if (own == NULL || value == NULL || strcmp(own, axis) != 0)
            continue;
        at = value_index(p, value);
        l = sweep_line(p, r->runs[i]);
        if (l == NULL || l->n == CH_ARRAY_LEN(p->x[0]))
            continue;
        p->x[l - p->lines][l->n] = (double)at;
        p->y[l - p->lines][l->n++] = number(r->runs[i], field);
    }
    for (size_t k = 0; k < p->line_count && p->numeric; k++)
        for (size_t i = 0; i < p->lines[k].n; i++)
            p->x[k][i] = strtod(p->values[(size_t)p->x[k][i]], NULL);
    if (!p->numeric) {
        a.x_names = p->values;
        a.x_count = p->value_count;
    }
    html_lines(r->out, &a, p->lines, p->line_count);
    free(p);
}

static bool
axis_seen(const struct report *r, size_t before, const char *axis)
{
    for (size_t i = 0; i < before; i++) {
        const char *other = text(r->runs[i], "axis");

        if (other != NULL && strcmp(other, axis) == 0)
            return true;
    }
    return false;
}

static void
write_sweeps(const struct report *r)
{
    bool any = false;

    for (size_t i = 0; i < r->count; i++) {
        const char *axis = text(r->runs[i], "axis");

        if (axis == NULL || axis_seen(r, i, axis))
            continue;
        if (!any)
            fputs("<h2>Sweeps</h2>\n", r->out);
        any = true;
        fputs("<h3>along ", r->out);
        html_text(r->out, axis);
        fputs("</h3>\n<div class=\"row\">\n", r->out);
        write_sweep(r, axis, "total_waf", "Total WAF");
        write_sweep(r, axis, "db_waf", "DB WAF");
        write_sweep(r, axis, "ssd_waf", "SSD WAF");
        write_sweep(r, axis, "flash_bytes_per_op", "Flash bytes an operation");
        fputs("</div>\n", r->out);
    }
}

/* ---- over time ---- */

static void
time_chart(const struct report *r, struct json_object *samples, const char *title, const char *unit,
           const char *const *fields, size_t n)
{
    size_t count = ch_min_u64(json_object_array_length(samples), POINTS_MAX);
    double *v = calloc((n + 1) * count + 1, sizeof(*v));
    struct html_line lines[4];
    bool drives = true;
    struct html_axes a = {.title = title, .y = unit};

    if (v == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        struct json_object *s = json_object_array_get_idx(samples, i);

        v[i] = number(s, "drive_writes");
        drives = drives && isfinite(v[i]);
    }
    for (size_t i = 0; i < count && !drives; i++)
        v[i] = number(json_object_array_get_idx(samples, i), "seconds");
    a.x = drives ? "drive writes (host bytes / capacity)" : "seconds";
    for (size_t k = 0; k < n; k++) {
        double *y = v + (k + 1) * count;

        for (size_t i = 0; i < count; i++)
            y[i] = number(json_object_array_get_idx(samples, i), fields[k]);
        lines[k] = (struct html_line){fields[k], v, y, count};
    }
    html_lines(r->out, &a, lines, n);
    free(v);
}

static void
zone_chart(const struct report *r, struct json_object *samples)
{
    size_t count = json_object_array_length(samples), n = 0, step = count / 48 + 1;
    const char **maps = calloc(count + 1, sizeof(*maps));
    double *at = calloc(count + 1, sizeof(*at));

    for (size_t i = 0; i < count && maps != NULL && at != NULL; i += step) {
        struct json_object *s = json_object_array_get_idx(samples, i);

        if (text(s, "zone_map") == NULL)
            continue;
        at[n] = number(s, "drive_writes");
        if (!isfinite(at[n]))
            at[n] = number(s, "seconds");
        maps[n++] = text(s, "zone_map");
    }
    if (n > 0)
        html_zone_maps(r->out, "Zones over time", maps, at, n);
    free(at);
    free(maps);
}

static void
write_times(const struct report *r)
{
    static const char *const rate[] = {"ops_per_s"}, *const latency[] = {"latency_mean_us"};
    static const char *const waf[] = {"db_waf", "ssd_waf", "total_waf"}, *const fill[] = {"fill"};
    bool any = false;

    for (size_t i = 0; i < r->count; i++) {
        struct json_object *samples = child(r->runs[i], "samples", json_type_array);
        char name[160];

        if (samples == NULL || json_object_array_length(samples) == 0)
            continue;
        if (!any)
            fputs("<h2>Over time</h2>\n", r->out);
        any = true;
        run_name(r->runs[i], name, sizeof(name));
        fputs("<h3>", r->out);
        html_text(r->out, name);
        fputs("</h3>\n<div class=\"row\">\n", r->out);
        time_chart(r, samples, "Write amplification", "bytes / byte of pages", waf, 3);
        time_chart(r, samples, "Throughput", "operations a second", rate, 1);
        time_chart(r, samples, "Mean latency", "us an operation", latency, 1);
        time_chart(r, samples, "Fill of the data zones", "live bytes / bytes of zones", fill, 1);
        fputs("</div>\n", r->out);
        zone_chart(r, samples);
    }
}

/* ---- the command ---- */

static int
write_page(struct report *r, const char *path, const char *title)
{
    bool failed;

    r->out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (r->out == NULL)
        return CH_FAIL(COHORT_EIO, "%s", path);
    html_begin(r->out, title);
    fprintf(r->out,
            "<p>%zu run%s of cohort %s. WAF: write amplification; formulas in "
            "docs/PAPER.md.</p>\n",
            r->count, r->count == 1 ? "" : "s", cohort_version());
    write_waterfall(r);
    write_totals(r);
    write_sweeps(r);
    write_times(r);
    write_table(r);
    html_end(r->out);
    if (r->out == stdout)
        return tool_flush();
    failed = ferror(r->out) != 0;
    failed = fclose(r->out) != 0 || failed;
    return failed ? CH_FAIL(COHORT_EIO, "%s: write", path) : 0;
}

int
cmd_report(struct tool *t, int argc, char **argv)
{
    struct report *r = calloc(1, sizeof(*r));
    const char *path = NULL, *title = "Cohort: runs";
    const struct arg own[] = {
        {"output", 'o', ARG_TEXT, &path, NULL, "Page to write; - is stdout."},
        {"title", 0, ARG_TEXT, &title, NULL, "Heading of the page."},
    };
    char **pos = NULL;
    int n = 0, rc;

    if (r == NULL)
        return CH_FAIL(COHORT_ENOMEM, "runs");
    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, RUNS_MAX, &pos, &n);
    if (rc != 0 || t->help)
        goto out;
    t->where = NULL;
    if (path == NULL)
        rc = CH_FAIL(COHORT_EOPTION, "-o FILE: where to?");
    for (int i = 0; i < n && rc == 0; i++)
        rc = read_runs(r, pos[i]);
    if (rc == 0)
        rc = write_page(r, path, title);
out:
    for (size_t i = 0; i < r->count; i++)
        json_object_put(r->runs[i]);
    free(r);
    return rc;
}
