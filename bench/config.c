/* config.c - options of the benches and their ranges. */
#include "bench/bench.h"
#include "bench/gen.h"
#include "bench/zipf.h"

enum {
    BENCH_PAGES_VALUE = 244 /* 15 records fill a leaf and a 16th never fits, whatever the prefix */
};

void
bench_config_init(struct bench_config *c, struct tool *t)
{
    *c = (struct bench_config){
        .t = t,
        .workload = "a",
        .records_default = 100000,
        .value_bytes = BENCH_UNSET,
        .threads = 1,
        .seed = 1,
        .scan_max = 100,
        .theta = 0.99,
        .compressibility = BENCH_UNSET_REAL,
        .hot_part = 10,
        .hot_ops = 90,
        .cpu_us = 4,
        .leaf_fill = 100.0,
    };
}

static int
check_range(const char *name, double v, double min, double max)
{
    if (v < min || v > max)
        return CH_FAIL(COHORT_EOPTION, "--%s %g: %g to %g", name, v, min, max);
    return 0;
}

static int
check_ends(struct bench_config *c)
{
    int ends = (c->ops > 0) + (c->seconds > 0) + (c->drive_writes > 0);

    if (ends > 1)
        return CH_FAIL(COHORT_EOPTION, "one of --ops, --seconds and --drive-writes");
    if (ends == 0) {
        c->drive_writes = c->drive_writes_default;
        c->seconds = c->drive_writes > 0 ? 0 : 10;
    }
    if (c->drive_writes > 0 && strcmp(c->workload, "c") == 0)
        return CH_FAIL(COHORT_EOPTION, "--drive-writes: workload c writes nothing");
    if (c->load_only && c->no_load)
        return CH_FAIL(COHORT_EOPTION, "--load-only and --no-load exclude each other");
    if (c->no_load && c->device != NULL && tool_is_volatile(c->device))
        return CH_FAIL(COHORT_EOPTION, "--no-load: %s starts empty", c->device);
    return 0;
}

/* What the workload implies where nothing was said. LZ4 makes 0.41 of pages whose values are random by 0.28, as
 * of the paper's YCSB. */
static int
workload_defaults(struct bench_config *c, const char *skew, bool cache_given)
{
    bool pages = strcmp(c->workload, "pages") == 0;
    enum skew_kind own;
    int rc = 0;

    if (c->value_bytes == BENCH_UNSET)
        c->value_bytes = pages ? BENCH_PAGES_VALUE : 120;
    if (c->compressibility < 0)
        c->compressibility = pages ? 1.0 : 0.28;
    c->unscrambled = c->unscrambled || pages;
    for (int k = SKEW_HOTCOLD; k < SKEW_KINDS; k++) {
        if (strcmp(c->workload, skew_name((enum skew_kind)k)) == 0) {
            c->skew = (enum skew_kind)k;
            c->unscrambled = true;
        }
    }
    if (skew != NULL) {
        rc = skew_parse(skew, &own);
        if (rc == 0)
            c->skew = own;
    }
    if (rc == 0 && pages && !cache_given) {
        c->cache_part = 0;
        rc = cohort_options_set(&c->t->options, "cache_bytes", "1M");
    }
    return rc;
}

static int
check_config(struct bench_config *c)
{
    const struct {
        const char *name;
        double v, min, max;
    } ranges[] = {
        {"value-bytes", (double)c->value_bytes, 0, COHORT_ENTRY_MAX - GEN_KEY_BYTES},
        {"threads", (double)c->threads, 1, BENCH_THREADS_MAX},
        {"theta", c->theta, 0, ZIPF_THETA_MAX},
        {"compressibility", c->compressibility, 0, 1},
        {"compressibility-sd", c->compressibility_sd, 0, 1},
        {"updates", c->updates, 0, 100},
        {"samples", (double)c->samples, 0, 10000},
        {"clients", (double)c->clients, 0, BENCH_CLIENTS_MAX},
        {"cpu-us", c->cpu_us, 0, 1e6},
        {"leaf-fill", c->leaf_fill, BENCH_LEAF_FILL_MIN, 100},
        {"fill", c->fill, 0, 1000},
        {"drive-writes", c->drive_writes, 0, 1e6},
        {"scan-max", (double)c->scan_max, 1, 1e6},
        {"records", (double)c->records, 0, 1e12},
    };
    int rc = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(ranges) && rc == 0; i++)
        rc = check_range(ranges[i].name, ranges[i].v, ranges[i].min, ranges[i].max);
    if (rc == 0 && c->records > 0 && c->fill > 0)
        rc = CH_FAIL(COHORT_EOPTION, "--records and --fill exclude each other");
    if (rc == 0 && c->clients > 0 && c->threads > 1)
        rc = CH_FAIL(COHORT_EOPTION, "--clients are virtual: one thread stands for all");
    if (rc == 0 && c->clients > 0 && c->device != NULL &&
        strstr(c->device, "timing=virtual") == NULL)
        rc = CH_FAIL(COHORT_EOPTION, "--clients: a sim: drive with timing=virtual is needed");
    if (c->records == 0 && c->fill <= 0)
        c->fill = c->fill_default;
    if (c->records == 0 && c->fill <= 0 && !c->no_load)
        c->records = c->records_default;
    return rc != 0 ? rc : check_ends(c);
}

/* --cache SIZE or PERCENT% of the data pages before compression. */
static int
parse_cache(struct bench_config *c, const char *text)
{
    size_t n = strlen(text);

    c->cache_part = 0;
    if (n == 0 || text[n - 1] != '%')
        return cohort_options_set(&c->t->options, "cache_bytes", text);
    if (args_real("--cache", text, &c->cache_part) != 0)
        return COHORT_EOPTION;
    return check_range("cache", c->cache_part, 0.001, 1000);
}

int
bench_args(struct bench_config *c, int argc, char **argv, const struct arg *extra, size_t n)
{
    const char *cache = NULL, *skew = NULL;
    struct tool *t = c->t;
    const struct arg own[] = {
        {"device", 'd', ARG_TEXT, &c->device, NULL, "Directory, block device or sim: URI."},
        {"workload", 'w', ARG_TEXT, &c->workload, NULL,
         "a to f of YCSB (a), pages, rangehot, shift, hotcold."},
        {"records", 0, ARG_U64, &c->records, NULL, "Records to load."},
        {"fill", 0, ARG_REAL, &c->fill, NULL, "... or data pages as percent of the device."},
        {"value-bytes", 0, ARG_BYTES, &c->value_bytes, NULL, "Bytes of a value (default 120)."},
        {"theta", 0, ARG_REAL, &c->theta, NULL, "Zipf skew, 0 = uniform, up to 5 (0.99)."},
        {"skew", 0, ARG_TEXT, &skew, NULL, "zipf, hotcold, rangehot or shift (of the workload)."},
        {"hot-part", 0, ARG_REAL, &c->hot_part, NULL, "hotcold: percent of the records (10)."},
        {"hot-ops", 0, ARG_REAL, &c->hot_ops, NULL, "... get percent of the operations (90)."},
        {"shift-turn", 0, ARG_U64, &c->shift_turn, NULL,
         "shift: operations until each record had each rank."},
        {"updates", 0, ARG_REAL, &c->updates, NULL, "Percent of updates, the rest reads."},
        {"unscrambled", 0, ARG_FLAG, &c->unscrambled, NULL, "Popular records lie together."},
        {"threads", 0, ARG_U64, &c->threads, NULL, "Threads (1)."},
        {"clients", 0, ARG_U64, &c->clients, NULL,
         "Virtual clients, on a drive with timing=virtual."},
        {"cpu-us", 0, ARG_REAL, &c->cpu_us, NULL, "... CPU time of an operation of theirs (4)."},
        {"ops", 0, ARG_U64, &c->ops, NULL, "End after so many operations, or"},
        {"seconds", 0, ARG_REAL, &c->seconds, NULL, "... so many seconds (10), or"},
        {"drive-writes", 0, ARG_REAL, &c->drive_writes, NULL, "... so many times the device."},
        {"cache", 0, ARG_TEXT, &cache, NULL, "Page cache: size, or % of the data pages."},
        {"compressibility", 0, ARG_REAL, &c->compressibility, NULL,
         "Random part of a value, 0 to 1 (0.28)."},
        {"compressibility-sd", 0, ARG_REAL, &c->compressibility_sd, NULL,
         "... and how much it differs between pages."},
        {"samples", 0, ARG_U64, &c->samples, NULL, "JSON: counters at so many moments of the run."},
        {"leaf-fill", 0, ARG_REAL, &c->leaf_fill, NULL, "Aim of the load in percent (100)."},
        {"scan-max", 0, ARG_U64, &c->scan_max, NULL, "Longest scan of workload e (100)."},
        {"load-only", 0, ARG_FLAG, &c->load_only, NULL, "Load and stop."},
        {"no-load", 0, ARG_FLAG, &c->no_load, NULL, "Run on what is loaded; needs --records."},
        {"seed", 0, ARG_U64, &c->seed, NULL, "Seed of all choices (1)."},
        {"log-bytes", 0, ARG_OPTION, &t->options, "log_bytes", "Same as -o log_bytes=X."},
        {"zone-bytes", 0, ARG_OPTION, &t->options, "zone_bytes", "Same as -o zone_bytes=X."},
    };
    struct arg all[ARGS_MAX];
    char **pos = NULL;
    int count = 0, rc;

    CH_ASSERT(CH_ARRAY_LEN(own) + n < ARGS_MAX);
    memcpy(all, own, sizeof(own));
    if (n > 0)
        memcpy(all + CH_ARRAY_LEN(own), extra, n * sizeof(*extra));
    rc = tool_args(t, argc, argv, all, CH_ARRAY_LEN(own) + n, 0, 0, &pos, &count);
    if (rc != 0 || t->help)
        return rc;
    t->where = c->device;
    if (cache != NULL)
        rc = parse_cache(c, cache);
    if (rc == 0)
        rc = workload_defaults(c, skew, cache != NULL);
    return rc != 0 ? rc : check_config(c);
}
