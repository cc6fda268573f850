/* figures.c - see figures.h. */
#include "bench/figures.h"

static double
ratio(double a, double b)
{
    return b > 0.0 ? a / b : FIGURE_ABSENT;
}

static double
media_ratio(const struct cohort_stats *d, double b)
{
    if (d->media_bytes == COHORT_UNKNOWN)
        return FIGURE_UNKNOWN;
    return ratio((double)d->media_bytes, b);
}

static uint64_t
known_difference(uint64_t from, uint64_t to)
{
    return from == COHORT_UNKNOWN || to == COHORT_UNKNOWN ? COHORT_UNKNOWN : to - from;
}

void
figures_difference(const struct cohort_stats *from, const struct cohort_stats *to,
                   struct cohort_stats *out)
{
    struct cohort_stats d = *to;

    for (int i = 0; i < COHORT_CAUSES; i++)
        d.bytes[i] -= from->bytes[i];
    d.device_host_bytes = known_difference(from->device_host_bytes, to->device_host_bytes);
    d.media_bytes = known_difference(from->media_bytes, to->media_bytes);
    d.host_bytes -= from->host_bytes;
    d.read_bytes -= from->read_bytes;
    d.reads -= from->reads;
    d.flushes -= from->flushes;
    d.commits -= from->commits;
    d.log_flushes -= from->log_flushes;
    d.payload_bytes -= from->payload_bytes;
    d.page_writes -= from->page_writes;
    d.page_write_stored -= from->page_write_stored;
    d.page_write_squares -= from->page_write_squares;
    d.cache_hits -= from->cache_hits;
    d.cache_misses -= from->cache_misses;
    d.gc_zones -= from->gc_zones;
    d.gc_live_bytes -= from->gc_live_bytes;
    d.checkpoints -= from->checkpoints;
    *out = d;
}

static void
compute_waf(const struct cohort_stats *d, struct figures *f)
{
    double pages = (double)d->page_writes * CH_PAGE_BYTES;
    double user = (double)d->bytes[COHORT_CAUSE_USER];
    double moved = user + (double)d->bytes[COHORT_CAUSE_GC];
    double pad = (double)d->bytes[COHORT_CAUSE_PAD];

    f->db_waf = ratio((double)(d->host_bytes - d->bytes[COHORT_CAUSE_WAL]), pages);
    f->ssd_waf = media_ratio(d, (double)d->host_bytes);
    if (isnan(f->ssd_waf))
        f->total_waf = FIGURE_UNKNOWN;
    else if (f->db_waf < 0.0 || f->ssd_waf < 0.0)
        f->total_waf = FIGURE_ABSENT;
    else
        f->total_waf = f->db_waf * f->ssd_waf;
    f->total_waf_with_log = media_ratio(d, pages);
    f->compress_ratio = ratio((double)d->page_write_stored, pages);
    f->compress_ratio_sd = FIGURE_ABSENT;
    if (d->page_writes > 0) {
        double n = (double)d->page_writes, mean = (double)d->page_write_stored / n;

        f->compress_ratio_sd =
            sqrt(fmax((double)d->page_write_squares / n - mean * mean, 0.0)) / CH_PAGE_BYTES;
    }
    /* Padding is counted for user and GC batches together: take it in proportion. */
    f->packed_ratio = moved > 0.0 ? ratio((double)d->page_write_stored * (1.0 + pad / moved), pages)
                                  : FIGURE_ABSENT;
}

void
figures_compute(const struct cohort_stats *d, const struct figures_run *run, struct figures *f)
{
    double ops = (double)run->ops;

    compute_waf(d, f);
    f->flash_bytes_per_op = media_ratio(d, ops);
    f->flash_bytes_per_payload_byte = media_ratio(d, (double)d->payload_bytes);
    f->host_bytes_per_op = ratio((double)d->host_bytes, ops);
    f->reads_per_op = ratio((double)d->reads, ops);
    f->hit_rate = ratio((double)d->cache_hits, (double)(d->cache_hits + d->cache_misses));
    f->cpu_us_per_op = ratio(run->cpu_seconds * 1e6, ops);
    f->cpu_percent = ratio(run->cpu_seconds * 100.0, run->seconds);
    f->ops_per_s = ratio(ops, run->seconds);
    f->fill = ratio((double)d->live_bytes, (double)d->zones * (double)d->zone_bytes);
    if (d->live_bytes == 0 && d->pages > 0) /* written in place: no zones */
        f->fill = FIGURE_ABSENT;
    f->gc_valid_ratio =
        ratio((double)d->gc_live_bytes, (double)d->gc_zones * (double)d->zone_bytes);
}

bool
figures_account(const struct cohort_stats *s, int64_t *difference)
{
    uint64_t sum = 0;

    for (int i = 0; i < COHORT_CAUSES; i++)
        sum += s->bytes[i];
    if (s->device_host_bytes == COHORT_UNKNOWN)
        return false;
    *difference = (int64_t)(sum - s->device_host_bytes);
    return true;
}

bool
figures_steady(const struct cohort_stats *first, const struct cohort_stats *second)
{
    struct figures a = {0}, b = {0};
    double x, y;

    compute_waf(first, &a);
    compute_waf(second, &b);
    x = isnan(a.total_waf) ? a.db_waf : a.total_waf;
    y = isnan(b.total_waf) ? b.db_waf : b.total_waf;
    if (!figure_is_known(x) || !figure_is_known(y) || isnan(a.total_waf) != isnan(b.total_waf))
        return false;
    return fabs(x - y) <= 0.02 * fmax(x, y);
}
