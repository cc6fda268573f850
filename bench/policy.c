/* policy.c - cohort bench policy: the command; lists of values make a grid, one line a cell. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/policy.h"

enum {
    LIST_MAX = 16,
    CELLS_MAX = 4096
};

struct name_value {
    const char *name;
    int value;
};

static const struct name_value place_names[] = {
    {"none", PLACE_NOSEP}, {"sepgc", PLACE_SEPGC}, {"gdt", PLACE_GDT}, {"log", PLACE_LOG}};
static const struct name_value victim_names[] = {
    {"greedy", VICTIM_GREEDY}, {"cost-benefit", VICTIM_COST_BENEFIT},
    {"gdt", VICTIM_GDT},       {"mdc", VICTIM_MDC},
    {"group", VICTIM_GROUP},   {"oldest", VICTIM_OLDEST}};
static const struct name_value history_names[] = {{"ewma", POLICY_EWMA},
                                                  {"header4", POLICY_HEADER4},
                                                  {"header8", POLICY_HEADER8},
                                                  {"rate", POLICY_RATE},
                                                  {"future", POLICY_FUTURE}};
static const struct name_value nowa_names[] = {{"off", GROUP_OFF},       {"group", GROUP_PLAIN},
                                               {"always", GROUP_ALWAYS}, {"budget", GROUP_BUDGET},
                                               {"single", GROUP_SINGLE}, {"auto", GROUP_AUTO}};

/* What each option's text may list, and where a value goes. */
enum axis {
    AXIS_WORK,
    AXIS_FILL,
    AXIS_PLACE,
    AXIS_CLASSES,
    AXIS_VICTIM,
    AXIS_HISTORY,
    AXIS_NOWA,
    AXIS_SPARE,
    AXIS_LOG,
    AXES
};

struct grid {
    const char *text[AXES];
    char *copy[AXES];
    char *item[AXES][LIST_MAX];
    unsigned count[AXES];
};

struct policy_args {
    struct grid grid;
    struct policy_config base;
    uint64_t zones, zone_slots, batch, group_zones, unit, burst, seed;
    const char *set, *record;
    uint64_t record_writes;
    double foreign;
    bool drive, shared_gc, log_fixed, classes_fixed;
};

static int
name_find(const struct name_value *names, size_t n, const char *what, const char *text, int *out)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i].name, text) == 0) {
            *out = names[i].value;
            return 0;
        }
    }
    return CH_FAIL(COHORT_EOPTION, "--%s: %s is unknown", what, text);
}

static const char *
name_of(const struct name_value *names, size_t n, int value)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i].value == value)
            return names[i].name;
    }
    return "";
}

/* Cuts the texts at commas. */
static int
grid_split(struct grid *g)
{
    for (int a = 0; a < AXES; a++) {
        char *p;

        g->copy[a] = strdup(g->text[a]);
        if (g->copy[a] == NULL)
            return CH_FAIL(COHORT_ENOMEM, "grid");
        p = g->copy[a];
        while (p != NULL) {
            if (g->count[a] == LIST_MAX)
                return CH_FAIL(COHORT_EOPTION, "more than %d values: %s", LIST_MAX, g->text[a]);
            g->item[a][g->count[a]++] = p;
            p = strchr(p, ',');
            if (p != NULL)
                *p++ = '\0';
        }
    }
    return 0;
}

static void
grid_free(struct grid *g)
{
    for (int a = 0; a < AXES; a++)
        free(g->copy[a]);
}

static int
set_real(const char *what, const char *text, double scale, double max, double *out)
{
    int rc = args_real(what, text, out);

    if (rc == 0 && *out > max)
        return CH_FAIL(COHORT_EOPTION, "%s %s: at most %g", what, text, max);
    *out *= scale;
    return rc;
}

static int
cell_numbers(const char *const *v, struct policy_config *c)
{
    double classes = 0, spare = 0;
    int rc = policy_work_parse(v[AXIS_WORK], &c->work);

    if (rc == 0)
        rc = set_real("--fill", v[AXIS_FILL], 0.01, 98, &c->fill);
    if (rc == 0)
        rc = set_real("--classes", v[AXIS_CLASSES], 1, PLACE_CLASSES_MAX, &classes);
    if (rc == 0)
        rc = set_real("--spare", v[AXIS_SPARE], 10, 100, &spare);
    if (rc == 0)
        rc = set_real("--log", v[AXIS_LOG], 1, 90, &c->log_percent);
    c->classes = (uint32_t)classes;
    c->spare_permille = (uint32_t)lround(spare);
    return rc;
}

static int
cell_config(const char *const *v, struct policy_config *c)
{
    int place = 0, victim = 0, history = 0, nowa = 0;
    int rc = cell_numbers(v, c);

    if (rc == 0)
        rc = name_find(place_names, CH_ARRAY_LEN(place_names), "place", v[AXIS_PLACE], &place);
    if (rc == 0)
        rc = name_find(victim_names, CH_ARRAY_LEN(victim_names), "victim", v[AXIS_VICTIM], &victim);
    if (rc == 0)
        rc = name_find(history_names, CH_ARRAY_LEN(history_names), "history", v[AXIS_HISTORY],
                       &history);
    if (rc == 0)
        rc = name_find(nowa_names, CH_ARRAY_LEN(nowa_names), "nowa", v[AXIS_NOWA], &nowa);
    c->place = (enum place_policy)place;
    c->victim = (enum victim_policy)victim;
    c->history = (enum policy_history)history;
    c->nowa = (enum group_mode)nowa;
    return rc;
}

/* ---- output ---- */

static int
cell_json_config(const char *const *v, const struct policy_config *c, struct json_object *o)
{
    int rc = report_text(o, "workload", v[AXIS_WORK]);

    if (rc == 0)
        rc = report_real(o, "fill", c->fill);
    if (rc == 0)
        rc = report_text(o, "place", v[AXIS_PLACE]);
    if (rc == 0)
        rc = report_text(o, "victim", v[AXIS_VICTIM]);
    if (rc == 0)
        rc = report_text(o, "history", v[AXIS_HISTORY]);
    if (rc == 0)
        rc = report_text(o, "nowa", v[AXIS_NOWA]);
    if (rc == 0)
        rc = report_u64(o, "zones", c->zones);
    if (rc == 0)
        rc = report_u64(o, "zone_bytes", (uint64_t)c->zone_slots * CH_PAGE_BYTES);
    if (rc == 0)
        rc = report_real(o, "spare", c->drive ? c->spare_permille / 1000.0 : 0);
    if (rc == 0)
        rc = report_real(o, "log_share", c->log_percent / 100);
    return rc == 0 ? report_u64(o, "seed", c->seed) : rc;
}

static int
cell_json(const char *const *v, const struct policy_config *c, const struct policy_result *r,
          struct json_object *list)
{
    struct json_object *o = json_object_new_object();
    int rc;

    if (o == NULL || json_object_array_add(list, o) != 0)
        return CH_FAIL(COHORT_ENOMEM, "json");
    rc = cell_json_config(v, c, o);
    if (rc == 0)
        rc = report_u64(o, "page_writes", r->user_pages);
    if (rc == 0)
        rc = report_u64(o, "gc_pages", r->gc_pages);
    if (rc == 0)
        rc = report_u64(o, "host_bytes", r->host_pages * CH_PAGE_BYTES);
    if (rc == 0 && c->drive)
        rc = report_real(o, "media_bytes", r->media_pages * CH_PAGE_BYTES);
    if (rc == 0)
        rc = report_real(o, "db_waf", r->db_waf);
    if (rc == 0 && c->drive)
        rc = report_real(o, "ssd_waf", r->ssd_waf);
    if (rc == 0)
        rc = report_real(o, "total_waf", r->total_waf);
    if (rc == 0)
        rc = report_real(o, "total_waf_with_log", r->total_waf_with_log);
    if (rc == 0)
        rc = report_real(o, "gc_valid_ratio", r->gc_valid_ratio);
    if (rc == 0)
        rc = report_u64(o, "classes", r->classes);
    if (rc == 0)
        rc = report_u64(o, "groups", r->groups.groups);
    if (rc == 0)
        rc = report_u64(o, "unused_slots", r->groups.short_slots);
    return rc == 0 ? report_bool(o, "steady", r->steady) : rc;
}

static void
print_head(const struct policy_args *a)
{
    printf("%" PRIu64 " zones of %" PRIu64 " pages, %g capacities, last quarter, seed %" PRIu64,
           a->zones, a->zone_slots, a->base.capacities, a->seed);
    if (a->drive)
        printf("; drive with superblocks of %" PRIu64 " pages, groups of %" PRIu64 " zones, GC %s",
               a->unit, a->group_zones, a->shared_gc ? "shared" : "separate");
    printf("\n%-16s %5s %-6s %-12s %-8s %7s", "workload", "fill", "place", "victim", "history",
           "classes");
    if (a->drive)
        printf(" %-7s %5s %4s %7s %7s", "nowa", "spare", "log", "DB WAF", "SSD WAF");
    printf(" %7s %6s\n", "WAF", "valid");
}

static void
print_cell(const char *const *v, const struct policy_config *c, const struct policy_result *r)
{
    printf("%-16s %5.2f %-6s %-12s %-8s %7u", v[AXIS_WORK], c->fill, v[AXIS_PLACE], v[AXIS_VICTIM],
           v[AXIS_HISTORY], r->classes);
    if (c->drive)
        printf(" %-7s %5.1f %4.0f %7.3f %7.4f", v[AXIS_NOWA], c->spare_permille / 10.0,
               c->log_percent, r->db_waf, r->ssd_waf);
    printf(" %7.3f %5.1f%%", r->total_waf, r->gc_valid_ratio * 100);
    if (c->nowa == GROUP_AUTO)
        printf("  %s, %u switches",
               name_of(nowa_names, CH_ARRAY_LEN(nowa_names), (int)r->groups.mode),
               r->groups.switches);
    if (r->groups.foreign_permille >= 50)
        printf("  others %.0f%%", r->groups.foreign_permille / 10.0);
    printf("%s%s\n", r->steady ? "" : "  not steady", r->stuck > 0 ? "  no room" : "");
    fflush(stdout);
}

/* ---- the grid ---- */

static int
run_cell(const struct policy_args *a, const unsigned *at, struct json_object *list)
{
    const char *v[AXES];
    struct policy_config c = a->base;
    struct policy_result r;
    int rc;

    for (int i = 0; i < AXES; i++)
        v[i] = a->grid.item[i][at[i]];
    rc = cell_config(v, &c);
    if (rc == 0)
        rc = policy_run(&c, &r);
    if (rc != 0)
        return rc;
    if (list != NULL)
        return cell_json(v, &c, &r, list);
    print_cell(v, &c, &r);
    return 0;
}

static int
run_grid(const struct policy_args *a, struct json_object *list)
{
    unsigned at[AXES] = {0};
    int rc = 0, i;

    do {
        rc = run_cell(a, at, list);
        for (i = AXES - 1; i >= 0 && ++at[i] == a->grid.count[i]; i--)
            at[i] = 0;
    } while (rc == 0 && i >= 0);
    return rc;
}

static int
record(const struct policy_args *a)
{
    struct policy_source *s = NULL;
    struct policy_work w;
    double fill = 0;
    uint32_t pages;
    int rc = policy_work_parse(a->grid.item[AXIS_WORK][0], &w);

    if (rc == 0)
        rc = set_real("--fill", a->grid.item[AXIS_FILL][0], 0.01, 98, &fill);
    if (rc != 0)
        return rc;
    pages = (uint32_t)((double)(a->zones * a->zone_slots) * fill);
    rc = policy_source_create(&w, pages, a->seed, &s);
    if (rc == 0)
        rc = policy_trace_write(a->record, s, pages, a->record_writes);
    policy_source_destroy(s);
    return rc;
}

static int
args_finish(struct policy_args *a)
{
    struct policy_config *c = &a->base;

    if (a->zones > UINT32_MAX || a->zone_slots > UINT32_MAX || a->batch > PLACE_BATCH_MAX ||
        a->group_zones == 0 || a->group_zones > a->zones || a->unit > UINT32_MAX || a->burst > 64)
        return CH_FAIL(COHORT_EOPTION, "zones, slots, batch, group or unit out of range");
    c->zones = (uint32_t)a->zones;
    c->zone_slots = (uint32_t)a->zone_slots;
    c->batch = (uint32_t)a->batch;
    c->group_zones = (uint32_t)a->group_zones;
    if (a->unit == 0)
        a->unit = a->group_zones * a->zone_slots;
    c->burst_groups = (uint32_t)a->burst;
    c->unit_slots = (uint32_t)a->unit;
    c->seed = a->seed;
    c->drive = a->drive;
    c->shared_gc = a->shared_gc;
    c->log_place = a->log_fixed ? POLICY_LOG_FIXED : POLICY_LOG_ZONES;
    c->classes_fixed = a->classes_fixed;
    c->foreign_percent = a->foreign;
    return grid_split(&a->grid);
}

static int
run(struct tool *t, struct policy_args *a)
{
    struct json_object *list = NULL;
    int rc = args_finish(a);

    if (rc == 0 && a->record != NULL)
        return record(a);
    if (rc == 0 && t->json && (list = json_object_new_array()) == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "json");
    if (rc == 0 && list == NULL)
        print_head(a);
    if (rc == 0)
        rc = run_grid(a, list);
    if (rc == 0 && list != NULL)
        printf("%s\n", json_object_to_json_string_ext(list, JSON_C_TO_STRING_PRETTY));
    json_object_put(list);
    return rc;
}

int
bench_policy(struct tool *t, int argc, char **argv)
{
    struct policy_args a = {
        .grid.text = {"zipf:0.8", "80", "log", "8", "mdc", "ewma", "off", "7", "0"},
        .zones = 1024,
        .zone_slots = 128,
        .batch = 128,
        .group_zones = 8,
        .seed = 1,
        .record_writes = 1000000,
    };
    const char **text = a.grid.text;
    const struct arg own[] = {
        {"workload", 'w', ARG_TEXT, &text[AXIS_WORK], NULL,
         "uniform, zipf:T, hotcold:W/P, shift:W/P, ycsb:T, ycsb-ordered:T, trace:FILE."},
        {"fill", 0, ARG_TEXT, &text[AXIS_FILL], NULL, "Live pages, percent of all slots (80)."},
        {"place", 0, ARG_TEXT, &text[AXIS_PLACE], NULL, "none, sepgc, gdt, log (log)."},
        {"classes", 0, ARG_TEXT, &text[AXIS_CLASSES], NULL, "Classes, at most (8)."},
        {"fixed", 0, ARG_FLAG, &a.classes_fixed, NULL, "Always that many classes."},
        {"victim", 0, ARG_TEXT, &text[AXIS_VICTIM], NULL,
         "greedy, cost-benefit, gdt, mdc, group, oldest (mdc)."},
        {"history", 0, ARG_TEXT, &text[AXIS_HISTORY], NULL,
         "ewma, header4, header8, rate, future (ewma)."},
        {"drive", 0, ARG_FLAG, &a.drive, NULL, "On a simulated drive:"},
        {"nowa", 0, ARG_TEXT, &text[AXIS_NOWA], NULL,
         "... off, group, always, budget, single, auto (off)."},
        {"spare", 0, ARG_TEXT, &text[AXIS_SPARE], NULL, "... its spare flash in percent (7)."},
        {"log", 0, ARG_TEXT, &text[AXIS_LOG], NULL, "... log, percent of log and pages (0)."},
        {"log-fixed", 0, ARG_FLAG, &a.log_fixed, NULL, "... the log in a ring at a fixed place."},
        {"gc-shared", 0, ARG_FLAG, &a.shared_gc, NULL, "... its GC shares the host's superblock."},
        {"foreign", 0, ARG_REAL, &a.foreign, NULL, "... writes of others, percent (0)."},
        {"group-zones", 0, ARG_U64, &a.group_zones, NULL, "... zones a group (8)."},
        {"burst", 0, ARG_U64, &a.burst, NULL, "... groups collected at a time (2; budget)."},
        {"unit", 0, ARG_U64, &a.unit, NULL, "... pages a superblock (those of a group)."},
        {"zones", 0, ARG_U64, &a.zones, NULL, "Zones (1024)."},
        {"zone-slots", 0, ARG_U64, &a.zone_slots, NULL, "Pages a zone (128)."},
        {"batch", 0, ARG_U64, &a.batch, NULL, "Pages written at a time (128)."},
        {"capacities", 0, ARG_REAL, &a.base.capacities, NULL, "Writes, in capacities (6)."},
        {"seed", 0, ARG_U64, &a.seed, NULL, "Seed (1)."},
        {"record", 0, ARG_TEXT, &a.record, NULL, "Write the workload to a trace file, and stop;"},
        {"writes", 0, ARG_U64, &a.record_writes, NULL, "... so many page writes (1000000)."},
    };
    char **pos = NULL;
    int count = 0, rc;

    policy_config_init(&a.base);
    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 0, 0, &pos, &count);
    if (rc == 0 && !t->help)
        rc = run(t, &a);
    grid_free(&a.grid);
    return rc;
}
