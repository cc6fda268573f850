/* tpcc_report.c - a run of TPC-C as a JSON object or as a table for people. */
#include <inttypes.h>

#include "base/options.h"
#include "bench/tpcc_bench.h"

static int
report_child(struct json_object *o, const char *name, struct json_object **out)
{
    *out = json_object_new_object();
    if (*out == NULL || json_object_object_add(o, name, *out) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

int
tpcc_report_latency(struct json_object *o, const char *name, const struct ch_hist *h)
{
    const struct {
        const char *name;
        double ns;
    } values[] = {
        {"p50", (double)ch_hist_quantile(h, 0.5)},
        {"p99", (double)ch_hist_quantile(h, 0.99)},
        {"p999", (double)ch_hist_quantile(h, 0.999)},
        {"max", (double)h->max},
    };
    struct json_object *l = NULL;
    int rc;

    if (h->total == 0)
        return 0;
    rc = report_child(o, name, &l);
    for (size_t i = 0; i < CH_ARRAY_LEN(values) && rc == 0; i++)
        rc = report_real(l, values[i].name, values[i].ns / 1e3);
    return rc;
}

static int
report_config(const struct tpcc_bench *b, struct json_object *o)
{
    char durability[CH_OPTION_TEXT_BYTES], model[64];
    const char *device = b->c.device;
    const struct {
        const char *name;
        uint64_t v;
    } numbers[] = {
        {"warehouses", b->scale.warehouses}, {"scale_divisor", b->scale.divisor},
        {"items", b->scale.items},           {"customers_per_district", b->scale.customers},
        {"threads", b->c.threads},           {"seed", b->c.seed},
        {"pages_loaded", b->pages_loaded},
    };
    int rc;

    ch_option_format("durability", b->options.durability, durability);
    rc = report_text(o, "workload", b->c.steady ? "tpcc-steady" : "tpcc");
    if (rc == 0)
        rc = report_text(o, "device", device);
    if (rc == 0 && strncmp(device, "sim:", 4) == 0) {
        snprintf(model, sizeof(model), "%.*s", (int)strcspn(device + 4, ","), device + 4);
        rc = report_text(o, "model", model);
    }
    if (rc == 0)
        rc = report_text(o, "durability", durability);
    if (rc == 0)
        rc = report_text(o, "isolation",
                         b->c.isolation == COHORT_SNAPSHOT ? "snapshot" : "serializable");
    for (size_t i = 0; i < CH_ARRAY_LEN(numbers) && rc == 0; i++)
        rc = report_u64(o, numbers[i].name, numbers[i].v);
    if (rc == 0 && !b->c.no_load)
        rc = report_real(o, "load_seconds", b->load_seconds);
    return rc;
}

/* Of the whole run. */
static int
report_counts(const struct tpcc_bench *b, struct json_object *o)
{
    struct json_object *all = NULL, *one = NULL, *mix = NULL;
    int rc;

    rc = report_child(o, "mix", &mix);
    for (int k = 0; k < TPCC_KINDS && rc == 0; k++)
        if (b->c.steady || k != TPCC_PURGE_TXN)
            rc = report_u64(mix, tpcc_kind_names[k], tpcc_mix[k]);
    if (rc == 0)
        rc = report_child(o, "transactions", &all);
    for (int k = 0; k < TPCC_KINDS && rc == 0; k++) {
        const struct tpcc_count *c = &b->result.counts[k];

        if (c->committed + c->rolled_back + c->retries == 0)
            continue;
        rc = report_child(all, tpcc_kind_names[k], &one);
        if (rc == 0)
            rc = report_u64(one, "committed", c->committed);
        if (rc == 0 && k == TPCC_NEW_ORDER_TXN)
            rc = report_u64(one, "rolled_back", c->rolled_back);
        if (rc == 0)
            rc = report_u64(one, "retries", c->retries);
    }
    if (rc == 0)
        rc = report_u64(o, "orders_delivered", b->result.delivered);
    if (rc == 0)
        rc = report_u64(o, "deliveries_skipped", b->result.skipped);
    if (rc == 0 && b->c.steady)
        rc = report_u64(o, "orders_purged", b->result.purged);
    return rc;
}

/* Flash bytes a new order: NAN = unknown to the drive. */
double
tpcc_flash_per_new_order(const struct tpcc_bench *b)
{
    uint64_t n = b->new_orders[2] - b->new_orders[0];

    if (n == 0)
        return FIGURE_ABSENT;
    if (b->r.window.media_bytes == COHORT_UNKNOWN)
        return FIGURE_UNKNOWN;
    return (double)b->r.window.media_bytes / (double)n;
}

static double
host_per_new_order(const struct tpcc_bench *b)
{
    uint64_t n = b->new_orders[2] - b->new_orders[0];

    return n == 0 ? FIGURE_ABSENT : (double)b->r.window.host_bytes / (double)n;
}

static int
report_run(const struct tpcc_bench *b, struct json_object *o)
{
    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"tpmc", tpcc_tpmc(b)},
        {"flash_bytes_per_new_order", tpcc_flash_per_new_order(b)},
        {"host_bytes_per_new_order", host_per_new_order(b)},
        {"seconds", b->r.run.seconds},
        {"ops_per_s", b->r.figures.ops_per_s},
        {"reads_per_op", b->r.figures.reads_per_op},
        {"cpu_us_per_op", b->r.figures.cpu_us_per_op},
        {"cpu_percent", b->r.figures.cpu_percent},
        {"host_bytes_per_op", b->r.figures.host_bytes_per_op},
        {"flash_bytes_per_op", b->r.figures.flash_bytes_per_op},
    };
    struct json_object *latency = NULL;
    int rc;

    rc = report_u64(o, "ops", b->r.run.ops);
    if (rc == 0)
        rc = report_u64(o, "new_orders", b->new_orders[2] - b->new_orders[0]);
    for (size_t i = 0; i < CH_ARRAY_LEN(reals) && rc == 0; i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    if (rc == 0)
        rc = report_child(o, "latency_us", &latency);
    for (int k = 0; k < TPCC_KINDS && rc == 0; k++)
        rc = tpcc_report_latency(latency, tpcc_kind_names[k], &b->result.latency[k]);
    if (rc == 0)
        rc = report_counts(b, o);
    if (rc == 0)
        rc = report_u64(o, "rss_bytes", b->r.rss_bytes);
    if (rc == 0)
        rc = report_stats_json(&b->r.window, &b->r.figures, o);
    if (rc == 0 && b->r.steady != BENCH_STEADY_ABSENT)
        rc = report_bool(o, "steady", b->r.steady == BENCH_STEADY_YES);
    if (rc == 0 && b->r.accounted &&
        json_object_object_add(o, "account_difference",
                               json_object_new_int64(b->r.account_difference)) != 0)
        rc = CH_FAIL(COHORT_ENOMEM, "JSON field account_difference");
    return rc;
}

static int
report_check(const struct tpcc_check *c, const char *name, struct json_object *o)
{
    struct json_object *all = NULL;
    char number[16];
    int rc;

    rc = report_child(o, name, &all);
    for (int i = 1; i <= TPCC_CONDITIONS && rc == 0; i++) {
        snprintf(number, sizeof(number), "%d", i);
        rc = report_bool(all, number, c->violations[i] == 0);
    }
    if (rc == 0)
        rc = report_bool(all, "indexes", c->violations[TPCC_CHECK_INDEX] == 0);
    return rc;
}

int
tpcc_report_json(const struct tpcc_bench *b, struct json_object *o)
{
    bool ran = b->result.seconds > 0;
    int rc;

    rc = report_config(b, o);
    if (rc == 0 && ran)
        rc = report_run(b, o);
    if (rc == 0 && b->has_check[0])
        rc = report_check(&b->checked[0], b->c.no_load ? "conditions_before" : "conditions_loaded",
                          o);
    if (rc == 0 && b->has_check[ran])
        rc = report_check(&b->checked[ran], "conditions", o);
    return rc;
}

/* ---- for people ---- */

static void
print_kind(const struct tpcc_bench *b, int k)
{
    const struct tpcc_count *c = &b->result.counts[k];
    const struct ch_hist *h = &b->result.latency[k];

    printf("  %-13s %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %10.1f %10.1f %10.1f %10.1f\n",
           tpcc_kind_names[k], c->committed, c->rolled_back, c->retries,
           (double)ch_hist_quantile(h, 0.5) / 1e3, (double)ch_hist_quantile(h, 0.99) / 1e3,
           (double)ch_hist_quantile(h, 0.999) / 1e3, (double)h->max / 1e3);
}

static void
print_check(const struct tpcc_check *c, const char *when)
{
    printf("  conditions 1 to %d and indexes %s: %s (%" PRIu64 " orders, %" PRIu64
           " lines, %" PRIu64 " new orders, %" PRIu64 " history rows)\n",
           TPCC_CONDITIONS, when, tpcc_check_ok(c) ? "all hold" : "VIOLATED", c->orders,
           c->order_lines, c->new_orders, c->history);
}

static void
print_figure(const char *name, double v)
{
    if (isnan(v))
        printf("  %-30s %16s\n", name, "unknown");
    else if (figure_is_known(v))
        printf("  %-30s %16.1f\n", name, v);
}

static void
report_text_run(const struct tpcc_bench *b)
{
    uint32_t sum = 0;

    printf("  mix:");
    for (int k = 0; k < TPCC_KINDS; k++) {
        if (k == TPCC_PURGE_TXN && !b->c.steady)
            break;
        printf(" %s %u", tpcc_kind_names[k], tpcc_mix[k]);
        sum += tpcc_mix[k];
    }
    printf(", of %u\n  %-13s %10s %8s %8s %10s %10s %10s %10s\n", sum, "", "committed", "rolled b.",
           "retries", "p50 us", "p99 us", "p99.9 us", "max us");
    for (int k = 0; k < TPCC_KINDS; k++)
        if (k != TPCC_PURGE_TXN || b->c.steady)
            print_kind(b, k);
    if (b->c.drive_writes > 0)
        printf("  (counts are of the whole run; latencies and all below of its last quarter)\n");
    print_figure("tpmC (committed new orders)", tpcc_tpmc(b));
    print_figure("seconds", b->r.run.seconds);
    print_figure("transactions/s", b->r.figures.ops_per_s);
    print_figure("flash bytes/new order", tpcc_flash_per_new_order(b));
    print_figure("host bytes/new order", host_per_new_order(b));
    print_figure("CPU us/transaction", b->r.figures.cpu_us_per_op);
    print_figure("reads/transaction", b->r.figures.reads_per_op);
    report_stats_text(&b->r.window, &b->r.figures, stdout);
    if (b->r.steady != BENCH_STEADY_ABSENT)
        printf("  %s\n", b->r.steady == BENCH_STEADY_YES
                             ? "steady: both halves of the window agree within 2 %"
                             : "not steady: the halves of the window differ by more than 2 %");
    if (b->r.accounted)
        printf("  bytes by cause less the drive's own count: %" PRId64 "\n",
               b->r.account_difference);
}

static void
report_people(const struct tpcc_bench *b)
{
    char preset[CH_OPTION_TEXT_BYTES], durability[CH_OPTION_TEXT_BYTES];
    bool ran = b->result.seconds > 0;

    ch_option_format("preset", b->options.preset, preset);
    ch_option_format("durability", b->options.durability, durability);
    printf("TPC-C%s on %s: preset %s, durability %s, isolation %s\n",
           b->c.steady ? ", steady variant" : "", b->c.device, preset, durability,
           b->c.isolation == COHORT_SNAPSHOT ? "snapshot" : "serializable");
    printf("%u warehouses, scale 1/%u (%u items, %u customers a district), %" PRIu64
           " threads, cache %.1f MiB, seed %" PRIu64 "\n",
           b->scale.warehouses, b->scale.divisor, b->scale.items, b->scale.customers, b->c.threads,
           (double)b->config.cache_bytes / 1048576.0, b->c.seed);
    if (!b->c.no_load)
        print_figure("load seconds", b->load_seconds);
    print_figure("data pages, MiB", (double)b->pages_loaded * CH_PAGE_BYTES / 1048576.0);
    if (ran)
        report_text_run(b);
    if (b->has_check[0])
        print_check(&b->checked[0], b->c.no_load ? "before" : "after load");
    if (b->has_check[1])
        print_check(&b->checked[1], "after the run");
}

int
tpcc_report(const struct tpcc_bench *b)
{
    struct json_object *o;
    int rc;

    if (!b->c.t->json) {
        report_people(b);
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tpcc_report_json(b, o);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}
