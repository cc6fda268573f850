/* probe.c - see probe.h. */
#include "bench/probe.h"

#include <math.h>
#include <stdlib.h>

#include "base/prng.h"

enum {
    CHUNK = 1 << 20, /* bytes of a sequential request */
    BATCH = 64,      /* random requests at a time where counters are coarse */
    STEPS_MIN = 16,  /* fewer say nothing */
    UNIT_MIN = 16    /* blocks: a smaller divisor is noise */
};
static const double WAF_UNIT = 1.1, WAF_GROUP = 1.02, PART = 0.6;

struct probe {
    const struct probe_config *c;
    struct probe_result *out;
    uint64_t capacity, estimate, written, host_base, media_base;
    uint8_t *buf; /* CHUNK bytes */
    struct ch_prng rng;
    bool fine; /* counters follow each block */
    /* steps: positions in blocks at which the drive began to copy, in both domains */
    uint64_t step_count, last_host, last_program, gcd_host, gcd_program;
};

double
probe_amplification(double u)
{
    double low = 0.0, high = 1.0 - 1e-12;

    for (int i = 0; i < 200; i++) { /* u grows with x */
        double x = (low + high) / 2, at = x > 0 ? (x - 1.0) / log(x) : 0.0;

        if (at < u)
            low = x;
        else
            high = x;
    }
    return 1.0 / (1.0 - low);
}

double
probe_fit(double range1, double waf1, double range2, double waf2, double *floor)
{
    double low = range1 * 1.0005, high = range1 * 20.0;

    if (!(waf1 > waf2) || !(waf2 > 0))
        return 0.0;
    /* The more space there is, the less do the two ranges differ. */
    for (int i = 0; i < 100; i++) {
        double p = (low + high) / 2;

        if (probe_amplification(range1 / p) / probe_amplification(range2 / p) > waf1 / waf2)
            low = p;
        else
            high = p;
    }
    *floor = waf1 / probe_amplification(range1 / low);
    return low;
}

uint64_t
probe_fallback(uint64_t capacity_bytes)
{
    return ch_min_u64(PROBE_FALLBACK_BYTES,
                      ch_max_u64(capacity_bytes / 16 / CH_PAGE_BYTES, 1) * CH_PAGE_BYTES);
}

static uint64_t
first_size(const struct probe_config *c)
{
    uint64_t first = UINT64_C(512) << 20, capacity = dev_caps(c->dev)->bytes;

    if (c->first_bytes > 0)
        return c->first_bytes;
    while (first > capacity / 2048 && first > CH_PAGE_BYTES * 16)
        first /= 2;
    return first;
}

uint64_t
probe_estimate(const struct probe_config *c)
{
    double drives = 2.0 + (c->fit ? 5.0 : 0.0), each = c->drive_writes > 0 ? c->drive_writes : 1.0;
    uint64_t capacity = dev_caps(c->dev)->bytes;

    for (uint64_t z = first_size(c); z <= capacity / 8 && z <= PROBE_FALLBACK_BYTES; z *= 2)
        drives += 1.1 + 2.0 * each;
    return (uint64_t)(drives * (double)capacity);
}

/* ---- writing ---- */

static void
count_now(struct probe *p, uint64_t *host, uint64_t *media)
{
    dev_physical(p->c->dev, host, media);
    *host -= p->host_base;
    *media -= p->media_base;
}

static void
tell(const struct probe *p, const char *what)
{
    if (p->c->progress != NULL)
        p->c->progress(p->c->arg, what, p->written, p->estimate);
}

static int
write_range(struct probe *p, uint64_t off, uint64_t bytes)
{
    int rc = 0;

    while (bytes > 0 && rc == 0) {
        uint64_t n = ch_min_u64(bytes, CHUNK);

        rc = dev_write(p->c->dev, off, p->buf, n, CH_USER);
        off += n;
        bytes -= n;
        p->written += n;
    }
    return rc;
}

/* Media bytes a host byte since the given counts. */
static double
waf_since(struct probe *p, uint64_t host, uint64_t media)
{
    uint64_t h, m;

    count_now(p, &h, &m);
    return h > host ? (double)(m - media) / (double)(h - host) : 0.0;
}

/* The drive as if new, and a sequential write of the first `bytes` of it. */
static int
start_anew(struct probe *p, uint64_t bytes)
{
    int rc = dev_reset(p->c->dev, 0, p->capacity);

    return rc == 0 ? write_range(p, 0, bytes) : rc;
}

/* ---- floor ---- */

static int
measure_floor(struct probe *p)
{
    uint64_t host, media;
    int rc;

    tell(p, "sequential writes");
    rc = start_anew(p, p->capacity);
    count_now(p, &host, &media);
    if (rc == 0)
        rc = write_range(p, 0, p->capacity);
    p->out->floor = waf_since(p, host, media);
    if (rc == 0 && p->out->floor < 0.5)
        return CH_FAIL(COHORT_EUNSUPPORTED,
                       "%s: its counter of media bytes went up by %.3f of what was written",
                       dev_name(p->c->dev), p->out->floor);
    return rc;
}

/* ---- steps and fit ---- */

static uint64_t
gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* Pages programmed: the floor comes with each of them, whoever wrote it. */
static uint64_t
programmed(const struct probe *p, uint64_t media)
{
    return (uint64_t)((double)media / p->out->floor / CH_PAGE_BYTES + 0.5);
}

/* One random block has been written between the two readings: has the drive copied meanwhile? */
static void
note_step(struct probe *p, uint64_t host0, uint64_t media0, uint64_t host, uint64_t media)
{
    double own = p->out->floor * (double)(host - host0);
    uint64_t at_host = host0 / CH_PAGE_BYTES;
    uint64_t at_program = programmed(p, media0);

    if ((double)(media - media0) < own + 0.5 * CH_PAGE_BYTES)
        return;
    if (p->step_count++ > 0) {
        p->gcd_host = gcd(p->gcd_host, at_host - p->last_host);
        p->gcd_program = gcd(p->gcd_program, at_program - p->last_program);
    }
    p->last_host = at_host;
    p->last_program = at_program;
}

static int
write_random_batch(struct probe *p, uint64_t blocks)
{
    struct dev_req reqs[BATCH];

    for (int i = 0; i < BATCH; i++) {
        reqs[i] = (struct dev_req){.op = DEV_WRITE,
                                   .off = ch_prng_below(&p->rng, blocks) * CH_PAGE_BYTES,
                                   .len = CH_PAGE_BYTES,
                                   .buf = p->buf};
        reqs[i].split[CH_USER] = CH_PAGE_BYTES;
    }
    p->written += BATCH * (uint64_t)CH_PAGE_BYTES;
    return dev_io(p->c->dev, reqs, BATCH);
}

/* Random writes over the first `range` bytes; with counters exact enough, and `steps`, one by one. */
static int
write_random(struct probe *p, uint64_t range, uint64_t bytes, bool steps)
{
    uint64_t blocks = range / CH_PAGE_BYTES, end = p->written + bytes, host0, media0, host, media;
    int rc = 0;

    count_now(p, &host0, &media0);
    while (p->written < end && rc == 0) {
        if (!p->fine || !steps) {
            rc = write_random_batch(p, blocks);
            continue;
        }
        rc = write_range(p, ch_prng_below(&p->rng, blocks) * CH_PAGE_BYTES, CH_PAGE_BYTES);
        count_now(p, &host, &media);
        note_step(p, host0, media0, host, media);
        host0 = host;
        media0 = media;
    }
    return rc;
}

/* Do the counters follow single blocks? */
static int
find_resolution(struct probe *p)
{
    int rc = 0;

    p->fine = true;
    for (int i = 0; i < 8 && rc == 0; i++) {
        uint64_t host0, media0, host, media;

        count_now(p, &host0, &media0);
        rc = write_range(p, (uint64_t)i * CH_PAGE_BYTES, CH_PAGE_BYTES);
        count_now(p, &host, &media);
        p->fine = p->fine && host - host0 == CH_PAGE_BYTES && media > media0;
    }
    return rc;
}

static int
measure_fit(struct probe *p)
{
    struct probe_result *o = p->out;
    uint64_t part = (uint64_t)(PART * (double)p->capacity) / CH_PAGE_BYTES * CH_PAGE_BYTES;
    uint64_t host, media;
    int rc;

    tell(p, "random writes");
    rc = find_resolution(p);
    if (rc == 0)
        rc = write_random(p, p->capacity, p->capacity, false);
    count_now(p, &host, &media);
    if (rc == 0)
        rc = write_random(p, p->capacity, p->capacity, true);
    o->waf_full = waf_since(p, host, media);
    tell(p, "random writes over 3/5");
    if (rc == 0)
        rc = start_anew(p, part);
    if (rc == 0)
        rc = write_random(p, part, p->capacity, false);
    count_now(p, &host, &media);
    if (rc == 0)
        rc = write_random(p, part, p->capacity, false);
    o->waf_part = waf_since(p, host, media);
    o->fit_bytes = (uint64_t)probe_fit((double)p->capacity, o->waf_full, (double)part, o->waf_part,
                                       &o->fit_floor);
    return rc;
}

/* ---- sizes ---- */

/* Rewrites zones of `zone` bytes in random order; the drive's phase is as it is. */
static int
rewrite_zones(struct probe *p, uint64_t zone, double *waf)
{
    double each = p->c->drive_writes > 0 ? p->c->drive_writes : 1.0;
    uint64_t zones = p->capacity / zone, host = 0, media = 0;
    uint64_t rounds = (uint64_t)(each * (double)zones) + 1;
    int rc;

    rc = start_anew(p, zones * zone);
    for (uint64_t i = 0; i < 2 * rounds && rc == 0; i++) {
        if (i == rounds)
            count_now(p, &host, &media);
        rc = write_range(p, ch_prng_below(&p->rng, zones) * zone, zone);
    }
    *waf = waf_since(p, host, media);
    return rc;
}

/* Writes until the host's position is a multiple of `unit` from `origin` bytes on, on an empty drive, so that
 * no copies shift it again. Position: host bytes, or bytes programmed. */
static int
align(struct probe *p, uint64_t origin, uint64_t unit, bool programs)
{
    uint64_t host, media, at, left;
    int rc = dev_reset(p->c->dev, 0, p->capacity);

    CH_ASSERT(unit > 0);
    count_now(p, &host, &media);
    at = host;
    if (programs)
        at = programmed(p, media) * CH_PAGE_BYTES;
    left = unit - (at - origin) % unit;
    return rc == 0 && left < unit ? write_range(p, 0, left) : rc;
}

static int
try_size(struct probe *p, uint64_t zone, double *waf)
{
    char what[64];
    int rc;

    snprintf(what, sizeof(what), "zones of %llu KiB", (unsigned long long)(zone / 1024));
    tell(p, what);
    rc = rewrite_zones(p, zone, waf);
    if (rc == 0 && p->out->size_count < PROBE_SIZES_MAX)
        p->out->sizes[p->out->size_count++] = (struct probe_size){zone, *waf};
    return rc;
}

/* The unit that the steps tell, if zones of that size then write at the floor. */
static int
try_steps(struct probe *p)
{
    struct probe_result *o = p->out;
    const struct {
        uint64_t blocks, origin;
        bool programs;
    } ways[] = {{p->gcd_host, p->last_host, false}, {p->gcd_program, p->last_program, true}};
    int rc = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(ways) && rc == 0 && !o->found; i++) {
        uint64_t unit = ways[i].blocks * CH_PAGE_BYTES;
        double waf = 0.0;

        if (p->step_count < STEPS_MIN || ways[i].blocks < UNIT_MIN || unit > p->capacity / 8)
            continue;
        rc = align(p, ways[i].origin * CH_PAGE_BYTES, unit, ways[i].programs);
        if (rc == 0)
            rc = try_size(p, unit, &waf);
        if (rc == 0 && waf < WAF_GROUP * o->floor) {
            o->unit_bytes = o->group_bytes = unit;
            o->found = o->exact = o->group_measured = true;
            o->shared_gc = ways[i].programs;
        }
    }
    return rc;
}

static int
try_sizes(struct probe *p)
{
    struct probe_result *o = p->out;
    uint64_t most = ch_min_u64(p->capacity / 8, PROBE_FALLBACK_BYTES);
    int rc = 0;

    for (uint64_t z = first_size(p->c); z <= most && rc == 0 && o->group_bytes == 0; z *= 2) {
        double waf = 0.0;

        rc = align(p, 0, z, false);
        if (rc == 0)
            rc = try_size(p, z, &waf);
        if (rc == 0 && o->unit_bytes == 0 && waf < WAF_UNIT * o->floor)
            o->unit_bytes = z;
        if (rc == 0 && waf < WAF_GROUP * o->floor)
            o->group_bytes = z;
    }
    o->found = o->unit_bytes > 0;
    if (!o->found)
        o->unit_bytes = probe_fallback(p->capacity);
    o->group_measured = o->group_bytes > 0;
    if (o->group_bytes == 0) /* the penalty falls as one over the size */
        o->group_bytes = o->found ? o->unit_bytes * 8 : o->unit_bytes;
    return rc;
}

int
probe_run(const struct probe_config *c, struct probe_result *out)
{
    struct probe p = {.c = c, .out = out};
    int rc;

    *out = (struct probe_result){0};
    dev_physical(c->dev, &p.host_base, &p.media_base);
    if (p.media_base == COHORT_UNKNOWN || p.host_base == COHORT_UNKNOWN)
        return CH_FAIL(COHORT_EUNSUPPORTED, "%s does not tell how much its flash has programmed",
                       dev_name(c->dev));
    if (posix_memalign((void **)&p.buf, CH_PAGE_BYTES, CHUNK) != 0)
        return CH_FAIL(COHORT_ENOMEM, "probe");
    ch_prng_init(&p.rng, c->seed);
    ch_prng_fill(&p.rng, p.buf, CHUNK);
    p.capacity = dev_caps(c->dev)->bytes;
    p.estimate = probe_estimate(c);
    rc = measure_floor(&p);
    if (rc == 0 && c->fit)
        rc = measure_fit(&p);
    if (rc == 0 && c->fit)
        rc = try_steps(&p);
    if (rc == 0 && !out->found)
        rc = try_sizes(&p);
    out->capacity_bytes = p.capacity;
    out->written_bytes = p.written;
    free(p.buf);
    return rc;
}
