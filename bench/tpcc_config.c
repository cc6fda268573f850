/* tpcc_config.c - options of the TPC-C benches and their ranges. */
#include "bench/tpcc_bench.h"

void
tpcc_config_init(struct tpcc_config *c, struct tool *t)
{
    *c = (struct tpcc_config){.t = t,
                              .warehouses = 1,
                              .divisor = 1,
                              .threads = 1,
                              .seed = 1,
                              .isolation = COHORT_SNAPSHOT};
}

static int
check_range(const char *name, double v, double min, double max)
{
    if (v < min || v > max)
        return CH_FAIL(COHORT_EOPTION, "--%s %g: %g to %g", name, v, min, max);
    return 0;
}

static int
check_ends(struct tpcc_config *c)
{
    int ends = (c->ops > 0) + (c->seconds > 0) + (c->drive_writes > 0);

    if (ends > 1)
        return CH_FAIL(COHORT_EOPTION, "one of --ops, --seconds and --drive-writes");
    if (ends == 0)
        c->seconds = 10;
    if (c->load_only && (c->no_load || c->check_only))
        return CH_FAIL(COHORT_EOPTION, "--load-only and --no-load exclude each other");
    c->no_load = c->no_load || c->check_only;
    c->check = c->check || c->check_only;
    if (c->device == NULL)
        return CH_FAIL(COHORT_EOPTION, "--device: which directory, block device or sim: drive?");
    if (c->no_load && tool_is_volatile(c->device))
        return CH_FAIL(COHORT_EOPTION, "--no-load: %s starts empty", c->device);
    return 0;
}

static int
check_config(struct tpcc_config *c)
{
    int rc;

    rc = check_range("warehouses", (double)c->warehouses, 1, TPCC_WAREHOUSES_MAX);
    if (rc == 0)
        rc = check_range("scale", (double)c->divisor, 1, TPCC_DIVISOR_MAX);
    if (rc == 0)
        rc = check_range("threads", (double)c->threads, 1, BENCH_THREADS_MAX);
    if (rc == 0)
        rc = check_range("drive-writes", c->drive_writes, 0, 1e6);
    return rc != 0 ? rc : check_ends(c);
}

/* --cache SIZE or PERCENT% of the data pages after load, before compression. */
static int
parse_cache(struct tpcc_config *c, const char *text)
{
    size_t n = strlen(text);

    c->cache_part = 0;
    if (n == 0 || text[n - 1] != '%')
        return cohort_options_set(&c->t->options, "cache_bytes", text);
    if (args_real("--cache", text, &c->cache_part) != 0)
        return COHORT_EOPTION;
    return check_range("cache", c->cache_part, 0.001, 1000);
}

static int
parse_isolation(struct tpcc_config *c, const char *text)
{
    if (strcmp(text, "snapshot") == 0)
        c->isolation = COHORT_SNAPSHOT;
    else if (strcmp(text, "serializable") == 0)
        c->isolation = COHORT_SERIALIZABLE;
    else
        return CH_FAIL(COHORT_EOPTION, "--isolation '%s': snapshot or serializable", text);
    return 0;
}

int
tpcc_args(struct tpcc_config *c, int argc, char **argv, const struct arg *extra, size_t n)
{
    const char *cache = NULL, *isolation = "snapshot";
    struct tool *t = c->t;
    const struct arg own[] = {
        {"device", 'd', ARG_TEXT, &c->device, NULL, "Directory, block device or sim: URI."},
        {"warehouses", 'w', ARG_U64, &c->warehouses, NULL, "Warehouses (1)."},
        {"scale", 0, ARG_U64, &c->divisor, NULL,
         "Items, customers and orders so many times fewer than specified (1): for tests."},
        {"threads", 0, ARG_U64, &c->threads, NULL, "Threads (1)."},
        {"ops", 0, ARG_U64, &c->ops, NULL, "End after so many transactions, or"},
        {"seconds", 0, ARG_REAL, &c->seconds, NULL, "... so many seconds (10), or"},
        {"drive-writes", 0, ARG_REAL, &c->drive_writes, NULL,
         "... so many times the device, of which the last quarter is reported."},
        {"cache", 0, ARG_TEXT, &cache, NULL, "Page cache: size, or % of the loaded data."},
        {"isolation", 0, ARG_TEXT, &isolation, NULL, "snapshot (default) or serializable."},
        {"steady", 0, ARG_FLAG, &c->steady, NULL,
         "Keep the size: a sixth transaction purges old orders and history."},
        {"check", 0, ARG_FLAG, &c->check, NULL,
         "Check the conditions of clause 3.3.2 after load and after the run."},
        {"check-only", 0, ARG_FLAG, &c->check_only, NULL, "Only check what is there."},
        {"load-only", 0, ARG_FLAG, &c->load_only, NULL, "Load and stop."},
        {"no-load", 0, ARG_FLAG, &c->no_load, NULL, "Run on what is loaded."},
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
    rc = parse_isolation(c, isolation);
    if (rc == 0 && cache != NULL)
        rc = parse_cache(c, cache);
    return rc != 0 ? rc : check_config(c);
}
