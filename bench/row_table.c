/* row_table.c - rows that were run, as tables or JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/rows.h"
#include "bench/tpcc_bench.h"

const struct bench_result *
row_result(const struct row_run *r)
{
    return r->tpcc != NULL ? &r->tpcc->r : &r->result;
}

void
row_run_fini(struct row_run *r)
{
    bench_result_fini(&r->result);
    free(r->tpcc);
    free(r->device);
    *r = (struct row_run){0};
}

static void
print_number(double v, int width, int digits)
{
    if (isnan(v))
        printf(" %*s", width, "?");
    else if (!figure_is_known(v))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, v);
}

static const char *
steady_text(enum bench_steady s)
{
    return s == BENCH_STEADY_ABSENT ? "-" : s == BENCH_STEADY_YES ? "yes" : "no";
}

static int
name_width(const struct row_run *runs, size_t n)
{
    size_t width = 14;

    for (size_t i = 0; i < n; i++)
        width = ch_max_u64(width, strlen(runs[i].spec->name));
    return (int)width;
}

/* Database's, drive's, both, both with the log; bytes of flash an operation. */
static void
print_amplification(const struct figures *f)
{
    print_number(f->db_waf, 8, 3);
    print_number(f->ssd_waf, 8, 3);
    print_number(f->total_waf, 8, 3);
    print_number(f->total_waf_with_log, 8, 3);
    print_number(f->flash_bytes_per_op, 10, 1);
}

static void
print_waf(const struct row_run *runs, size_t n, int width)
{
    printf("%-*s %8s %8s %8s %8s %10s %7s %7s %7s %7s %7s %s\n", width, "amplification", "DB WAF",
           "SSD WAF", "total", "with log", "flash B/op", "page", "sd", "packed", "fill", "GC live",
           "steady");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = row_result(&runs[i]);

        printf("%-*s", width, runs[i].spec->name);
        print_amplification(&r->figures);
        print_number(r->figures.compress_ratio, 7, 3);
        print_number(r->figures.compress_ratio_sd, 7, 3);
        print_number(r->figures.packed_ratio, 7, 3);
        print_number(r->figures.fill, 7, 3);
        print_number(r->figures.gc_valid_ratio, 7, 3);
        printf(" %s\n", steady_text(r->steady));
    }
}

static void
print_causes(const struct row_run *runs, size_t n, int width)
{
    printf("%-*s", width, "bytes/op");
    for (int k = 0; k < COHORT_CAUSES; k++)
        printf(" %8s", report_cause_names()[k]);
    printf(" %8s %8s %8s %9s\n", "host", "media", "pages/op", "reads/op");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = row_result(&runs[i]);
        double ops = (double)ch_max_u64(r->run.ops, 1);

        printf("%-*s", width, runs[i].spec->name);
        for (int k = 0; k < COHORT_CAUSES; k++)
            print_number((double)r->window.bytes[k] / ops, 8, 1);
        print_number(r->figures.host_bytes_per_op, 8, 1);
        print_number(r->figures.flash_bytes_per_op, 8, 1);
        print_number((double)r->window.page_writes / ops, 8, 3);
        print_number(r->figures.reads_per_op, 9, 3);
        printf("\n");
    }
}

static double
row_p99_us(const struct row_run *r)
{
    if (r->tpcc != NULL)
        return (double)ch_hist_quantile(&r->tpcc->result.latency[TPCC_NEW_ORDER_TXN], 0.99) / 1e3;
    return (double)ch_hist_quantile(r->result.latency, 0.99) / 1e3;
}

static void
print_costs(const struct row_run *runs, size_t n, int width)
{
    bool tpcc = n > 0 && runs[0].tpcc != NULL;

    printf("%-*s %9s %9s %9s %6s %7s %7s %9s %7s %9s %s\n", width, "costs", "ops/s", "p99 us",
           "CPU us/op", "CPU %", "hits", "rss MB", "meta B/pg", "zones", "zone KiB",
           tpcc ? "new orders  media B/new order  conditions" : "leaf fill");
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = row_result(&runs[i]);
        const struct tpcc_bench *x = runs[i].tpcc;
        const struct cohort_stats *s = &r->window;

        printf("%-*s", width, runs[i].spec->name);
        print_number(r->figures.ops_per_s, 9, 0);
        print_number(row_p99_us(&runs[i]), 9, 0);
        print_number(r->figures.cpu_us_per_op, 9, 2);
        print_number(r->figures.cpu_percent, 6, 0);
        print_number(r->figures.hit_rate, 7, 3);
        print_number((double)r->rss_bytes / 1e6, 7, 0);
        print_number((double)s->metadata_bytes / (double)ch_max_u64(s->pages, 1), 9, 1);
        printf(" %7" PRIu64 " %9" PRIu64, s->zones, s->zone_bytes / 1024);
        if (x == NULL) {
            print_number(runs[i].bench.leaf_fill, 9, 3);
            printf("\n");
            continue;
        }
        printf(" %10" PRIu64, x->new_orders[2] - x->new_orders[0]);
        print_number(tpcc_flash_per_new_order(x), 18, 0);
        printf("  %s\n", !x->has_check[1]                ? "not checked"
                         : tpcc_check_ok(&x->checked[1]) ? "hold"
                                                         : "VIOLATED");
    }
}

static void
print_run(const struct row_run *r)
{
    const struct bench_config *c = &r->bench.c;

    if (r->tpcc != NULL) {
        printf("TPC-C%s, %u warehouses at scale 1/%u", r->tpcc->c.steady ? ", steady variant" : "",
               r->tpcc->scale.warehouses, r->tpcc->scale.divisor);
    } else {
        printf("workload %s, %" PRIu64 " records of 8+%" PRIu64 " bytes, %s", c->workload,
               r->bench.records, c->value_bytes, skew_name(c->skew));
        if (c->skew == SKEW_HOTCOLD)
            printf(" %g/%g", c->hot_ops, c->hot_part);
        else if (c->skew != SKEW_RANGEHOT)
            printf(" %g", c->theta);
        printf(" %s", c->unscrambled ? "unscrambled" : "scrambled");
        if (r->bench.group > 1)
            printf(", skew of leaves of %" PRIu64 " records", r->bench.group);
        printf(", %" PRIu64 " threads, seed %" PRIu64, c->threads, c->seed);
        if (c->clients > 0)
            printf(", %" PRIu64 " virtual clients of %g us CPU an operation", c->clients,
                   c->cpu_us);
    }
    printf(", on %s\n", r->device);
}

void
row_table_print(const struct row_run *runs, size_t n)
{
    int width = name_width(runs, n);

    if (n == 0)
        return;
    print_run(&runs[0]);
    print_waf(runs, n, width);
    print_causes(runs, n, width);
    print_costs(runs, n, width);
    printf("bytes by cause less the drive's own count:");
    for (size_t i = 0; i < n; i++) {
        if (row_result(&runs[i])->accounted)
            printf(" %" PRId64, row_result(&runs[i])->account_difference);
        else
            printf(" unknown");
    }
    printf("\n");
}

void
row_line_print(const struct row_run *r, const char *axis, const char *value, bool heading)
{
    const struct bench_result *x = row_result(r);

    if (heading)
        printf("%-16s %-16s %-24s %8s %8s %8s %8s %10s %8s %7s %7s %s\n", axis, "row", "drive",
               "DB WAF", "SSD WAF", "total", "with log", "flash B/op", "reads/op", "page", "sd",
               "steady");
    printf("%-16s %-16s %-24.24s", value, r->spec->name, r->device);
    print_amplification(&x->figures);
    print_number(x->figures.reads_per_op, 8, 3);
    print_number(x->figures.compress_ratio, 7, 3);
    print_number(x->figures.compress_ratio_sd, 7, 3);
    printf(" %s\n", steady_text(x->steady));
}

int
row_json(const struct row_run *r, struct json_object **out)
{
    struct json_object *o = NULL;
    int rc;

    if (r->tpcc == NULL) {
        rc = bench_report_json(&r->bench, &r->result, &o);
    } else {
        o = json_object_new_object();
        rc = o == NULL ? CH_FAIL(COHORT_ENOMEM, "JSON") : tpcc_report_json(r->tpcc, o);
    }
    if (rc == 0)
        rc = report_text(o, "row", r->spec->name);
    if (rc != 0)
        json_object_put(o);
    else
        *out = o;
    return rc;
}

int
row_account(const struct row_run *r)
{
    const struct bench_result *x = row_result(r);

    if (x->accounted && x->account_difference != 0)
        return CH_FAIL(COHORT_ECORRUPT, "%s: bytes by cause differ from the drive's by %" PRId64,
                       r->spec->name, x->account_difference);
    return r->tpcc != NULL ? tpcc_verdict(r->tpcc) : 0;
}
