/* cmd_admin.c - cohort create, info, stat, check and options. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/options.h"
#include "bench/bench.h"
#include "tools/tool.h"

int
cmd_create(struct tool *t, int argc, char **argv)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    char preset[CH_OPTION_TEXT_BYTES], codec[CH_OPTION_TEXT_BYTES];
    struct json_object *o = NULL;
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = cohort_options_set(&t->options, "create", "must");
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc == 0)
        rc = cohort_stats(db, &s);
    if (rc != 0)
        return tool_close(db, rc);
    ch_option_format("preset", s.preset, preset);
    ch_option_format("codec", s.codec, codec);
    if (t->json) {
        o = json_object_new_object();
        rc = o == NULL ? CH_FAIL(COHORT_ENOMEM, "JSON") : report_text(o, "created", t->where);
        if (rc == 0)
            rc = report_text(o, "preset", preset);
        if (rc == 0)
            rc = report_text(o, "codec", codec);
        if (rc == 0)
            rc = tool_json_print(json_object_get(o), stdout);
        json_object_put(o);
    } else if (!t->quiet) {
        printf("created %s: preset %s, codec %s%s\n", t->where, preset, codec,
               tool_is_volatile(t->where) ? "; in memory, gone when this command ends" : "");
    }
    return tool_close(db, rc);
}

/* ---- info ---- */

static int
info_json(const struct tool *t, const struct cohort_stats *s)
{
    const struct {
        const char *name;
        uint64_t v;
    } fields[] = {
        {"zone_bytes", s->zone_bytes},
        {"zones", s->zones},
        {"zones_free", s->zones_free},
        {"retired_zones", s->retired_zones},
        {"log_bytes", s->log_bytes},
        {"zones_log", s->zones_log},
        {"capacity_bytes", s->capacity_bytes},
        {"space_bytes", s->space_bytes},
        {"live_bytes", s->live_bytes},
        {"pages", s->pages},
        {"trees", s->trees},
        {"transactions_prepared", s->transactions_prepared},
    };
    char text[CH_OPTION_TEXT_BYTES];
    struct json_object *o = json_object_new_object();
    int rc;

    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "database", t->where);
    ch_option_format("preset", s->preset, text);
    if (rc == 0)
        rc = report_text(o, "preset", text);
    ch_option_format("codec", s->codec, text);
    if (rc == 0)
        rc = report_text(o, "codec", text);
    for (size_t i = 0; i < CH_ARRAY_LEN(fields) && rc == 0; i++)
        rc = report_u64(o, fields[i].name, fields[i].v);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    return tool_json_print(o, stdout);
}

static void
info_text(const struct tool *t, const struct cohort_stats *s)
{
    char preset[CH_OPTION_TEXT_BYTES], codec[CH_OPTION_TEXT_BYTES];

    ch_option_format("preset", s->preset, preset);
    ch_option_format("codec", s->codec, codec);
    printf("database   %s\n", t->where);
    printf("preset     %s, codec %s\n", preset, codec);
    printf("zones      %" PRIu64 " of %" PRIu64 " bytes, %" PRIu64 " free, %" PRIu64 " retired\n",
           s->zones, s->zone_bytes, s->zones_free, s->retired_zones);
    printf("log        %" PRIu64 " bytes", s->log_bytes);
    if (s->zones_log > 0)
        printf(" in zones, %" PRIu64 " now", s->zones_log);
    printf("\n");
    printf("capacity   %" PRIu64 " bytes, %" PRIu64 " of them exist\n", s->capacity_bytes,
           s->space_bytes);
    printf("data       %" PRIu64 " pages, %" PRIu64 " live bytes, %" PRIu64 " named trees\n",
           s->pages, s->live_bytes, s->trees);
    if (s->transactions_prepared > 0)
        printf("prepared   %" PRIu64 " transactions wait for a decision\n",
               s->transactions_prepared);
}

int
cmd_info(struct tool *t, int argc, char **argv)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = cohort_stats(db, &s);
    if (rc == 0 && t->json)
        rc = info_json(t, &s);
    else if (rc == 0)
        info_text(t, &s);
    if (rc == 0)
        rc = tool_flush();
    return tool_close(db, rc);
}

/* ---- stat ---- */

int
cmd_stat(struct tool *t, int argc, char **argv)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    struct figures_run run = {0};
    struct figures f;
    struct json_object *o = NULL;
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_open(t, &db);
    if (rc == 0)
        rc = cohort_stats(db, &s);
    if (rc != 0)
        return tool_close(db, rc);
    figures_compute(&s, &run, &f);
    if (t->json) {
        o = json_object_new_object();
        rc = o == NULL ? CH_FAIL(COHORT_ENOMEM, "JSON") : report_text(o, "device", t->where);
        if (rc == 0)
            rc = report_stats_json(&s, &f, o);
        if (rc == 0)
            rc = report_u64(o, "rss_bytes", bench_rss_bytes());
        if (rc == 0)
            rc = tool_json_print(json_object_get(o), stdout);
        json_object_put(o);
    } else {
        printf("%s, since it was opened:\n", t->where);
        report_stats_text(&s, &f, stdout);
    }
    if (rc == 0)
        rc = tool_flush();
    return tool_close(db, rc);
}

/* ---- check ---- */

struct findings {
    struct tool *t;
    struct json_object *list; /* NULL: lines on stdout */
};

static void
check_finding(void *arg, const char *line)
{
    struct findings *f = arg;

    if (f->list != NULL)
        json_object_array_add(f->list, json_object_new_string(line));
    else
        printf("%s\n", line);
}

static int
check_json(const struct tool *t, const struct cohort_check_result *r, struct json_object *list)
{
    const struct {
        const char *name;
        uint64_t v;
    } fields[] = {
        {"pages", r->pages},
        {"entries", r->entries},
        {"leaf_pages", r->leaf_pages},
        {"inner_pages", r->inner_pages},
        {"leaf_used_bytes", r->leaf_used_bytes},
        {"ghosts", r->ghosts},
        {"trees", r->trees},
        {"large_values", r->large_values},
        {"errors", r->errors},
    };
    struct json_object *o = json_object_new_object();
    int rc;

    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_text(o, "database", t->where);
    for (size_t i = 0; i < CH_ARRAY_LEN(fields) && rc == 0; i++)
        rc = report_u64(o, fields[i].name, fields[i].v);
    if (rc == 0 && json_object_object_add(o, "findings", json_object_get(list)) != 0)
        rc = CH_FAIL(COHORT_ENOMEM, "JSON");
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    return tool_json_print(o, stdout);
}

static void
check_text(const struct tool *t, const struct cohort_check_result *r)
{
    double used = r->leaf_pages > 0
                      ? (double)r->leaf_used_bytes / ((double)r->leaf_pages * CH_PAGE_BYTES)
                      : 0.0;

    if (!t->quiet)
        printf("%s: %" PRIu64 " pages, %" PRIu64 " entries, %" PRIu64
               " leaves %.0f %% full, %" PRIu64 " inner pages, %" PRIu64 " named trees, %" PRIu64
               " large values, %" PRIu64 " errors\n",
               t->where, r->pages, r->entries, r->leaf_pages, 100.0 * used, r->inner_pages,
               r->trees, r->large_values, r->errors);
}

int
cmd_check(struct tool *t, int argc, char **argv)
{
    struct cohort_check_result r = {0};
    struct findings f = {.t = t};
    struct cohort_error e;
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc, printed = 0;

    rc = tool_args(t, argc, argv, NULL, 0, 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (t->json && (f.list = json_object_new_array()) == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tool_open(t, &db);
    if (rc != 0)
        goto out;
    rc = cohort_check(db, check_finding, &f, &r);
    e = *cohort_last_error();
    if (t->json)
        printed = check_json(t, &r, f.list);
    else
        check_text(t, &r);
    if (printed == 0)
        printed = tool_flush();
    if (rc == 0)
        rc = printed;
    else if (r.errors > 0)
        rc = CH_FAIL(rc, "%" PRIu64 " findings", r.errors);
    else
        rc = CH_FAIL(rc, "%s", e.code == rc ? e.text : "");
out:
    json_object_put(f.list);
    return tool_close(db, rc);
}

/* ---- options ---- */

static int
options_json(const struct cohort_options *o)
{
    const struct {
        const char *name, *names, *doc;
        uint64_t value, min, max;
    } all[] = {
#define COHORT_OPT_U64(name, def, min, max, doc) {#name, NULL, doc, o->name, min, max},
#define COHORT_OPT_ENUM(name, def, names, doc)   {#name, names, doc, o->name, 0, 0},
#include "base/options.def"
#undef COHORT_OPT_U64
#undef COHORT_OPT_ENUM
    };
    int rc = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(all) && rc == 0; i++) {
        struct json_object *j = json_object_new_object();
        char text[CH_OPTION_TEXT_BYTES];

        if (j == NULL)
            return CH_FAIL(COHORT_ENOMEM, "JSON");
        ch_option_format(all[i].name, all[i].value, text);
        rc = report_text(j, "name", all[i].name);
        if (rc == 0)
            rc = report_text(j, "value", text);
        if (rc == 0 && all[i].names != NULL)
            rc = report_text(j, "values", all[i].names);
        if (rc == 0 && all[i].names == NULL)
            rc = report_u64(j, "min", all[i].min);
        if (rc == 0 && all[i].names == NULL)
            rc = report_u64(j, "max", all[i].max);
        if (rc == 0)
            rc = report_text(j, "meaning", all[i].doc);
        if (rc == 0)
            rc = tool_json_print(json_object_get(j), stdout);
        json_object_put(j);
    }
    return rc;
}

int
cmd_options(struct tool *t, int argc, char **argv)
{
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 0, 0, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (t->json)
        rc = options_json(&t->options);
    else
        cohort_options_print(&t->options, stdout);
    return rc != 0 ? rc : tool_flush();
}
