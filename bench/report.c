/* report.c - one run as a JSON object or as a table for people. */
#include <inttypes.h>

#include "base/options.h"
#include "bench/bench.h"

int
report_u64(struct json_object *o, const char *name, uint64_t v)
{
    struct json_object *j = v == COHORT_UNKNOWN ? NULL : json_object_new_uint64(v);

    if ((j == NULL && v != COHORT_UNKNOWN) || json_object_object_add(o, name, j) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

int
report_real(struct json_object *o, const char *name, double v)
{
    struct json_object *j = NULL;
    char text[32];

    if (!isnan(v) && !figure_is_known(v)) /* FIGURE_ABSENT */
        return 0;
    if (!isnan(v)) {
        snprintf(text, sizeof(text), "%.6g", v);
        if (v >= 1e6)
            snprintf(text, sizeof(text), "%.0f", v);
        j = json_object_new_double_s(v, text);
        if (j == NULL)
            return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    }
    if (json_object_object_add(o, name, j) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

int
report_text(struct json_object *o, const char *name, const char *v)
{
    struct json_object *j = json_object_new_string(v);

    if (j == NULL || json_object_object_add(o, name, j) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

int
report_bool(struct json_object *o, const char *name, bool v)
{
    struct json_object *j = json_object_new_boolean(v);

    if (j == NULL || json_object_object_add(o, name, j) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

const char *const *
report_cause_names(void)
{
    static const char *const names[COHORT_CAUSES] = {"user", "delta", "pad", "gc",
                                                     "comp", "dblwr", "wal", "meta"};

    return names;
}

struct named_u64 {
    const char *name;
    uint64_t v;
};
struct named_real {
    const char *name;
    double v;
};

static int
report_u64s(struct json_object *o, const struct named_u64 *v, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = report_u64(o, v[i].name, v[i].v);
    return rc;
}

static int
report_reals(struct json_object *o, const struct named_real *v, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = report_real(o, v[i].name, v[i].v);
    return rc;
}

/* A new object as field `name` of `o`. */
static int
report_object(struct json_object *o, const char *name, struct json_object **out)
{
    *out = json_object_new_object();
    if (*out == NULL || json_object_object_add(o, name, *out) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    return 0;
}

static int
report_bytes(struct json_object *o, const struct cohort_stats *s)
{
    struct json_object *bytes = NULL;
    int rc;

    rc = report_object(o, "bytes", &bytes);
    for (int i = 0; i < COHORT_CAUSES && rc == 0; i++)
        rc = report_u64(bytes, report_cause_names()[i], s->bytes[i]);
    return rc;
}

int
report_stats_json(const struct cohort_stats *s, const struct figures *f, struct json_object *o)
{
    char preset[CH_OPTION_TEXT_BYTES], codec[CH_OPTION_TEXT_BYTES];
    const struct named_u64 counts[] = {
        {"cache_bytes", s->cache_bytes},
        {"metadata_bytes", s->metadata_bytes},
        {"payload_bytes", s->payload_bytes},
        {"page_writes", s->page_writes},
        {"commits", s->commits},
        {"log_flushes", s->log_flushes},
        {"flushes", s->flushes},
        {"reads", s->reads},
        {"read_bytes", s->read_bytes},
        {"pages", s->pages},
        {"space_bytes", s->space_bytes},
        {"capacity_bytes", s->capacity_bytes},
        {"live_bytes", s->live_bytes},
        {"zones", s->zones},
        {"zone_bytes", s->zone_bytes},
        {"zones_free", s->zones_free},
        {"retired_zones", s->retired_zones},
        {"gc_zones", s->gc_zones},
        {"checkpoints", s->checkpoints},
        {"log_bytes", s->log_bytes},
        {"log_bytes_used", s->log_bytes_used},
        {"host_bytes", s->host_bytes},
        {"device_host_bytes", s->device_host_bytes},
        {"media_bytes", s->media_bytes},
    };
    const struct named_real figures[] = {
        {"compress_ratio", f->compress_ratio},
        {"compress_ratio_sd", f->compress_ratio_sd},
        {"packed_ratio", f->packed_ratio},
        {"fill", f->fill},
        {"gc_valid_ratio", f->gc_valid_ratio},
        {"hit_rate", f->hit_rate},
        {"db_waf", f->db_waf},
        {"ssd_waf", f->ssd_waf},
        {"total_waf", f->total_waf},
        {"total_waf_with_log", f->total_waf_with_log},
        {"flash_bytes_per_payload_byte", f->flash_bytes_per_payload_byte},
    };
    int rc;

    ch_option_format("preset", s->preset, preset);
    ch_option_format("codec", s->codec, codec);
    rc = report_text(o, "preset", preset);
    if (rc == 0)
        rc = report_text(o, "codec", codec);
    if (rc == 0)
        rc = report_u64s(o, counts, CH_ARRAY_LEN(counts));
    if (rc == 0)
        rc = report_bytes(o, s);
    if (rc == 0)
        rc = report_reals(o, figures, CH_ARRAY_LEN(figures));
    return rc;
}

static int
report_config(const struct bench *b, struct json_object *o)
{
    const struct bench_config *c = &b->c;
    char durability[CH_OPTION_TEXT_BYTES], model[64];
    const struct named_u64 numbers[] = {
        {"records", b->records},
        {"value_bytes", c->value_bytes},
        {"threads", c->threads},
        {"seed", c->seed},
        {"pages_planned", b->pages_planned},
        {"pages_loaded", b->pages_loaded},
        {"skew_group", b->group},
    };
    const struct named_real reals[] = {
        {"zipf_theta", c->theta},
        {"compressibility", c->compressibility},
        {"compressibility_sd", c->compressibility_sd > 0 ? c->compressibility_sd : FIGURE_ABSENT},
        {"leaf_fill", b->leaf_fill},
        {"load_seconds", b->load_seconds},
        {"fill_before_compression", c->fill > 0 ? c->fill / 100.0 : FIGURE_ABSENT},
        {"clients", c->clients > 0 ? (double)c->clients : FIGURE_ABSENT},
        {"client_cpu_us", c->clients > 0 ? c->cpu_us : FIGURE_ABSENT},
        {"drive_writes", c->drive_writes > 0 ? c->drive_writes : FIGURE_ABSENT},
    };
    int rc;

    ch_option_format("durability", b->options.durability, durability);
    rc = report_text(o, "workload", c->workload);
    if (rc == 0)
        rc = report_text(o, "device", c->device);
    if (rc == 0 && strncmp(c->device, "sim:", 4) == 0) {
        snprintf(model, sizeof(model), "%.*s", (int)strcspn(c->device + 4, ","), c->device + 4);
        rc = report_text(o, "model", model);
    }
    if (rc == 0)
        rc = report_text(o, "durability", durability);
    if (rc == 0)
        rc = report_u64s(o, numbers, CH_ARRAY_LEN(numbers));
    if (rc == 0)
        rc = report_reals(o, reals, CH_ARRAY_LEN(reals));
    if (rc == 0)
        rc = report_text(o, "skew", skew_name(c->skew));
    if (rc == 0)
        rc = report_bool(o, "scrambled", !c->unscrambled);
    return rc;
}

static int
report_latency(const struct bench_result *r, struct json_object *o)
{
    struct json_object *l = NULL;
    const struct named_real reals[] = {
        {"p50", (double)ch_hist_quantile(r->latency, 0.5) / 1e3},
        {"p99", (double)ch_hist_quantile(r->latency, 0.99) / 1e3},
        {"p999", (double)ch_hist_quantile(r->latency, 0.999) / 1e3},
        {"max", (double)r->latency->max / 1e3},
    };
    int rc;

    if (r->latency->total == 0)
        return 0;
    rc = report_object(o, "latency_us", &l);
    return rc != 0 ? rc : report_reals(l, reals, CH_ARRAY_LEN(reals));
}

int
bench_report_json(const struct bench *b, const struct bench_result *r, struct json_object **out)
{
    struct json_object *o = json_object_new_object();
    const struct named_real reals[] = {
        {"seconds", r->run.seconds},
        {"ops_per_s", r->figures.ops_per_s},
        {"reads_per_op", r->figures.reads_per_op},
        {"cpu_us_per_op", r->figures.cpu_us_per_op},
        {"cpu_percent", r->figures.cpu_percent},
        {"host_bytes_per_op", r->figures.host_bytes_per_op},
        {"flash_bytes_per_op", r->figures.flash_bytes_per_op},
    };
    int rc;

    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = report_config(b, o);
    if (rc == 0)
        rc = report_u64(o, "ops", r->run.ops);
    if (rc == 0)
        rc = report_reals(o, reals, CH_ARRAY_LEN(reals));
    if (rc == 0)
        rc = report_latency(r, o);
    if (rc == 0)
        rc = report_u64(o, "rss_bytes", r->rss_bytes);
    if (rc == 0)
        rc = report_stats_json(&r->window, &r->figures, o);
    if (rc == 0 && r->steady != BENCH_STEADY_ABSENT)
        rc = report_bool(o, "steady", r->steady == BENCH_STEADY_YES);
    if (rc == 0 && r->accounted &&
        json_object_object_add(o, "account_difference",
                               json_object_new_int64(r->account_difference)) != 0)
        rc = CH_FAIL(COHORT_ENOMEM, "JSON field account_difference");
    if (rc == 0 && r->points.count > 1)
        rc = points_json(&r->points, b->c.threads, o);
    if (rc != 0)
        json_object_put(o);
    else
        *out = o;
    return rc;
}

/* ---- for people ---- */

static const char *
figure_text(double v, char buf[32])
{
    if (isnan(v))
        return "unknown";
    if (!figure_is_known(v))
        return "-";
    snprintf(buf, 32, v >= 1000.0 ? "%.0f" : "%.3f", v);
    return buf;
}

static void
print_figure(FILE *out, const char *name, double v)
{
    char buf[32];

    fprintf(out, "  %-30s %16s\n", name, figure_text(v, buf));
}

static void
print_count(FILE *out, const char *name, uint64_t v)
{
    if (v == COHORT_UNKNOWN)
        fprintf(out, "  %-30s %16s\n", name, "unknown");
    else
        fprintf(out, "  %-30s %16" PRIu64 "\n", name, v);
}

void
report_stats_text(const struct cohort_stats *s, const struct figures *f, FILE *out)
{
    char name[64];

    for (int i = 0; i < COHORT_CAUSES; i++) {
        snprintf(name, sizeof(name), "bytes written: %s", report_cause_names()[i]);
        print_count(out, name, s->bytes[i]);
    }
    print_count(out, "host bytes", s->host_bytes);
    print_count(out, "device's own host bytes", s->device_host_bytes);
    print_count(out, "media bytes", s->media_bytes);
    print_count(out, "page writes", s->page_writes);
    print_count(out, "payload bytes", s->payload_bytes);
    print_count(out, "device reads", s->reads);
    print_count(out, "pages", s->pages);
    print_count(out, "live bytes", s->live_bytes);
    print_count(out, "space bytes", s->space_bytes);
    print_count(out, "cache bytes", s->cache_bytes);
    print_count(out, "metadata bytes", s->metadata_bytes);
    print_count(out, "zones", s->zones);
    print_count(out, "zones free", s->zones_free);
    print_count(out, "zone bytes", s->zone_bytes);
    print_figure(out, "fill", f->fill);
    print_figure(out, "hit rate", f->hit_rate);
    print_figure(out, "compress ratio", f->compress_ratio);
    print_figure(out, "... standard deviation", f->compress_ratio_sd);
    print_figure(out, "packed ratio", f->packed_ratio);
    print_figure(out, "GC valid ratio", f->gc_valid_ratio);
    print_figure(out, "DB WAF", f->db_waf);
    print_figure(out, "SSD WAF", f->ssd_waf);
    print_figure(out, "total WAF", f->total_waf);
    print_figure(out, "total WAF with log", f->total_waf_with_log);
    print_figure(out, "flash bytes/payload byte", f->flash_bytes_per_payload_byte);
}

static void
report_run_text(const struct bench *b, const struct bench_result *r, FILE *out)
{
    const struct figures *f = &r->figures;
    char preset[CH_OPTION_TEXT_BYTES], codec[CH_OPTION_TEXT_BYTES];
    char durability[CH_OPTION_TEXT_BYTES];

    ch_option_format("preset", r->window.preset, preset);
    ch_option_format("codec", r->window.codec, codec);
    ch_option_format("durability", b->options.durability, durability);
    fprintf(out, "workload %s on %s: preset %s, codec %s, durability %s\n", b->c.workload,
            b->c.device, preset, codec, durability);
    fprintf(out,
            "%" PRIu64 " records of %d+%" PRIu64 " bytes, theta %g %s, %" PRIu64
            " threads, seed %" PRIu64 "\n",
            b->records, 8, b->c.value_bytes, b->c.theta,
            b->c.unscrambled ? "unscrambled" : "scrambled", b->c.threads, b->c.seed);
    print_count(out, "operations", r->run.ops);
    print_figure(out, "seconds", r->run.seconds);
    print_figure(out, "operations/s", f->ops_per_s);
    if (r->latency->total > 0) {
        print_figure(out, "latency p50, us", (double)ch_hist_quantile(r->latency, 0.5) / 1e3);
        print_figure(out, "latency p99, us", (double)ch_hist_quantile(r->latency, 0.99) / 1e3);
        print_figure(out, "latency p99.9, us", (double)ch_hist_quantile(r->latency, 0.999) / 1e3);
        print_figure(out, "latency max, us", (double)r->latency->max / 1e3);
    }
    print_figure(out, "reads/operation", f->reads_per_op);
    print_figure(out, "CPU us/operation", f->cpu_us_per_op);
    print_count(out, "resident memory", r->rss_bytes);
    print_figure(out, "leaf fill", b->leaf_fill);
    print_figure(out, "host bytes/operation", f->host_bytes_per_op);
    print_figure(out, "flash bytes/operation", f->flash_bytes_per_op);
    report_stats_text(&r->window, f, out);
    if (r->steady != BENCH_STEADY_ABSENT)
        fprintf(out, "  %s\n",
                r->steady == BENCH_STEADY_YES
                    ? "steady: both halves of the window agree within 2 %"
                    : "not steady: the halves of the window differ by more than 2 %");
    if (r->accounted)
        fprintf(out, "  bytes by cause less the drive's own count: %" PRId64 "\n",
                r->account_difference);
}

int
bench_report(const struct bench *b, const struct bench_result *r)
{
    struct json_object *o = NULL;
    int rc;

    if (!b->c.t->json) {
        report_run_text(b, r, stdout);
        return tool_flush();
    }
    rc = bench_report_json(b, r, &o);
    if (rc == 0)
        rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}
