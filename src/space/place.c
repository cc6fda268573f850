/* place.c - see place.h.
 *
 * The clock is kept in 64 bits inside, advanced by differences of the caller's 32-bit one, so that means
 * of death times need no thought about wrapping. Saved state is relative to the moment of the save.
 */
#include <stdlib.h>

#include "space/place.h"

enum {
    BUCKETS = 128,           /* of log2(life), 4 an octave */
    BUCKET_LOG = 64,         /* heat_log2() units a bucket */
    HISTORY = 1 << 16,       /* items and outcomes after which half is forgotten */
    REVIEW = 1024,           /* items between two looks at classes and their borders */
    OUTCOMES_MIN = 2048,     /* outcomes before the spread counts */
    SAVE_MAGIC = 0x4c504843, /* "CHPL" */
    SAVE_VERSION = 1,
    SAVE_FIXED = 32, /* bytes before the histogram */
    SAVE_SUMS = 6,
};

#define CLASS_OCTAVES  1.0 /* real spread that one class covers */
#define SPREAD_MIN     0.3 /* octaves; below, one class */
#define BORDER_PERCENT 2   /* placed items beyond the first and last border */

struct stream {
    int64_t mean; /* death time, weighted by bytes; with weight 0: relative to now */
    uint64_t weight;
    bool set;
};

struct regression { /* of log2(actual) on log2(predicted), in octaves */
    double n, x, y, xx, xy, yy;
};

struct place {
    struct place_config cfg;
    uint32_t clock; /* the caller's, last seen */
    int64_t now;
    struct stream stream[PLACE_STREAMS];
    uint32_t hist[BUCKETS];
    uint64_t placed; /* sum of hist */
    uint32_t review; /* items until the next */
    uint32_t classes;
    uint32_t lo, hi; /* outer borders, heat_log2() units */
    double spread;
    struct regression reg;
};

int
place_create(const struct place_config *cfg, struct place **out)
{
    struct place *p;

    CH_ASSERT(cfg->classes_max >= 1 && cfg->classes_max <= PLACE_CLASSES_MAX);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return CH_FAIL(COHORT_ENOMEM, "placement: state");
    p->cfg = *cfg;
    p->classes = cfg->fixed ? cfg->classes_max : 1;
    p->review = REVIEW;
    *out = p;
    return 0;
}

void
place_destroy(struct place *p)
{
    free(p);
}

static void
clock_advance(struct place *p, uint32_t now)
{
    p->now += (int32_t)(now - p->clock);
    p->clock = now;
}

/* ---- classes of remaining life ------------------------------------------------------------------ */

static double
sqrt_newton(double v)
{
    double r = v > 1 ? v : 1;

    for (int i = 0; i < 40; i++)
        r = (r + v / r) / 2;
    return v > 0 ? r : 0;
}

void
place_note_outcome(struct place *p, const struct heat_outcome *o)
{
    struct regression *r = &p->reg;
    double x, y;

    if (o->predicted >= PLACE_UNKNOWN || o->actual == 0)
        return;
    x = (double)heat_log2(o->predicted) / 256.0;
    y = (double)heat_log2(o->actual) / 256.0;
    r->n += 1;
    r->x += x;
    r->y += y;
    r->xx += x * x;
    r->xy += x * y;
    r->yy += y * y;
    if (r->n < HISTORY)
        return;
    *r = (struct regression){r->n / 2, r->x / 2, r->y / 2, r->xx / 2, r->xy / 2, r->yy / 2};
}

/* Slope of the regression; 0 when nothing is known or predictions mislead. */
static double
review_spread(struct place *p)
{
    const struct regression *r = &p->reg;
    double var, cov, slope;

    p->spread = 0;
    if (r->n < OUTCOMES_MIN)
        return 0;
    var = r->xx / r->n - r->x / r->n * (r->x / r->n);
    cov = r->xy / r->n - r->x / r->n * (r->y / r->n);
    if (var < 1e-6 || cov <= 0)
        return 0;
    slope = cov / var;
    p->spread = slope * sqrt_newton(var);
    return slope < 1 ? slope : 1;
}

static void
review_borders(struct place *p)
{
    uint64_t tail = p->placed * BORDER_PERCENT / 100;
    uint64_t sum = 0;
    uint32_t lo = 0, hi = BUCKETS - 1;

    while (lo < BUCKETS - 1 && sum + p->hist[lo] <= tail)
        sum += p->hist[lo++];
    sum = 0;
    while (hi > lo && sum + p->hist[hi] <= tail)
        sum += p->hist[hi--];
    p->lo = lo * BUCKET_LOG;
    p->hi = (hi + 1) * BUCKET_LOG;
}

static void
review_classes(struct place *p)
{
    double slope, want;

    review_borders(p);
    slope = review_spread(p);
    if (p->cfg.fixed)
        return;
    want = slope * (double)(p->hi - p->lo) / 256.0 / CLASS_OCTAVES;
    if (p->spread < SPREAD_MIN * (p->classes > 1 ? 0.8 : 1.0))
        p->classes = 1;
    else if (want >= p->classes + 1 || (p->classes < 2 && p->cfg.classes_max > 1))
        p->classes += p->classes < p->cfg.classes_max ? 1 : 0;
    else if (want < p->classes - 0.5 && p->classes > 2)
        p->classes--;
}

static void
note_placed(struct place *p, uint32_t life)
{
    uint32_t b = heat_log2(life) / BUCKET_LOG;

    p->hist[b < BUCKETS ? b : BUCKETS - 1]++;
    if (++p->placed >= HISTORY) {
        p->placed = 0;
        for (uint32_t i = 0; i < BUCKETS; i++)
            p->placed += p->hist[i] /= 2;
    }
    if (--p->review == 0) {
        p->review = REVIEW;
        review_classes(p);
    }
}

static unsigned
class_of(const struct place *p, uint32_t life)
{
    uint32_t log, k;

    if (p->classes == 1 || p->hi <= p->lo)
        return 0;
    if (life >= PLACE_UNKNOWN)
        return p->classes - 1;
    log = heat_log2(life);
    if (log < p->lo)
        return 0;
    k = (log - p->lo) * p->classes / (p->hi - p->lo);
    return k < p->classes ? k : p->classes - 1;
}

static void
batch_log(struct place *p, struct place_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        items[i].stream = (uint8_t)class_of(p, items[i].life);
        if (items[i].life < PLACE_UNKNOWN)
            note_placed(p, items[i].life > 0 ? items[i].life : 1);
    }
}

/* ---- the paper's grouping by death time --------------------------------------------------------- */

static int64_t
stream_mean(const struct place *p, unsigned s)
{
    return p->stream[s].weight > 0 ? p->stream[s].mean : p->now + p->stream[s].mean;
}

void
place_note_open(struct place *p, unsigned stream)
{
    struct stream *s = &p->stream[stream];

    CH_ASSERT(stream < PLACE_STREAMS);
    if (s->weight == 0)
        return;
    s->mean -= p->now;
    s->weight = 0;
}

static unsigned
stream_nearest(const struct place *p, unsigned base, unsigned group, int64_t death)
{
    unsigned best = base + group;
    int64_t least = INT64_MAX;

    if (!p->stream[best].set)
        return best;
    for (unsigned s = base; s < base + p->cfg.classes_max; s++) {
        int64_t d = stream_mean(p, s) - death;

        if (!p->stream[s].set)
            continue;
        d = d < 0 ? -d : d;
        if (d < least) {
            least = d;
            best = s;
        }
    }
    return best;
}

static unsigned
stream_coldest(const struct place *p, unsigned base)
{
    unsigned best = base + p->cfg.classes_max - 1;

    for (unsigned s = base; s < base + p->cfg.classes_max; s++) {
        if (p->stream[s].set && (!p->stream[best].set || stream_mean(p, s) > stream_mean(p, best)))
            best = s;
    }
    return best;
}

static void
stream_add(struct place *p, unsigned stream, int64_t death, uint64_t bytes)
{
    struct stream *s = &p->stream[stream];

    if (s->weight == 0)
        s->mean = death;
    else
        s->mean += (death - s->mean) * (int64_t)bytes / (int64_t)(s->weight + bytes);
    s->weight += bytes;
    s->set = true;
}

struct cut {       /* one group of a batch */
    int64_t death; /* sum, then mean */
    uint64_t bytes;
    uint32_t n;
    unsigned stream;
};

/* Index of the group of a life: borders at 1, 3, 6, 10 ... parts of the batch's range. */
static unsigned
cut_index(uint32_t life, uint32_t min, uint32_t range, unsigned groups)
{
    uint64_t parts = (uint64_t)groups * (groups + 1) / 2;
    uint64_t at = (uint64_t)(life - min) * parts / ((uint64_t)range + 1);
    unsigned i = 0;

    while (i + 1 < groups && at >= (uint64_t)(i + 1) * (i + 2) / 2)
        i++;
    return i;
}

static void
batch_range(const struct place_item *items, size_t n, uint32_t *min, uint32_t *max)
{
    *min = UINT32_MAX;
    *max = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].life >= PLACE_UNKNOWN)
            continue;
        *min = items[i].life < *min ? items[i].life : *min;
        *max = items[i].life > *max ? items[i].life : *max;
    }
}

static void
cut_place(struct place *p, struct cut *cut, unsigned base, unsigned groups)
{
    for (unsigned g = 0; g < groups; g++) {
        if (cut[g].n == 0)
            continue;
        cut[g].death = p->now + cut[g].death / cut[g].n;
        cut[g].stream = stream_nearest(p, base, g, cut[g].death);
        stream_add(p, cut[g].stream, cut[g].death, cut[g].bytes);
    }
}

static unsigned
unknown_stream(const struct place *p, const struct place_item *item, unsigned base)
{
    if (item->life == PLACE_NEVER || !p->cfg.by_tree || !item->first)
        return stream_coldest(p, base);
    return base + (item->tree * UINT32_C(2654435761) >> 16) % p->cfg.classes_max;
}

static void
batch_gdt(struct place *p, enum place_origin origin, struct place_item *items, size_t n)
{
    struct cut cut[PLACE_CLASSES_MAX] = {0};
    unsigned base = origin == PLACE_GC ? PLACE_GC_STREAM : 0;
    unsigned groups = p->cfg.classes_max;
    uint32_t min, max;

    batch_range(items, n, &min, &max);
    for (size_t i = 0; i < n; i++) {
        struct cut *c;

        if (items[i].life >= PLACE_UNKNOWN)
            continue;
        c = &cut[cut_index(items[i].life, min, max - min, groups)];
        c->death += items[i].life;
        c->bytes += items[i].bytes > 0 ? items[i].bytes : 1;
        c->n++;
    }
    cut_place(p, cut, base, groups);
    for (size_t i = 0; i < n; i++) {
        if (items[i].life >= PLACE_UNKNOWN)
            items[i].stream = (uint8_t)unknown_stream(p, &items[i], base);
        else
            items[i].stream = (uint8_t)cut[cut_index(items[i].life, min, max - min, groups)].stream;
    }
}

/* ---- all policies ------------------------------------------------------------------------------ */

void
place_batch(struct place *p, enum place_origin origin, uint32_t now, struct place_item *items,
            size_t n)
{
    uint8_t stream = 0;

    CH_ASSERT(n <= PLACE_BATCH_MAX);
    clock_advance(p, now);
    switch (p->cfg.policy) {
    case PLACE_LOG:
        batch_log(p, items, n);
        return;
    case PLACE_GDT:
        if (origin == PLACE_USER || !p->cfg.gc_unsorted) {
            batch_gdt(p, origin, items, n);
            return;
        }
        stream = PLACE_GC_STREAM;
        break;
    case PLACE_SEPGC:
        stream = origin == PLACE_GC ? PLACE_GC_STREAM : 0;
        break;
    case PLACE_NOSEP:
        break;
    }
    for (size_t i = 0; i < n; i++)
        items[i].stream = stream;
}

static bool
item_after(const struct place_item *a, const struct place_item *b)
{
    return a->stream != b->stream ? a->stream > b->stream : a->life > b->life;
}

void
place_order(const struct place_item *items, uint32_t *order, size_t n)
{
    size_t gap = 1;

    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    while (gap < n / 3)
        gap = gap * 3 + 1;
    for (; gap > 0; gap /= 3) { /* Shell's sort: in place, no recursion */
        for (size_t i = gap; i < n; i++) {
            uint32_t v = order[i];
            size_t j = i;

            for (; j >= gap && item_after(&items[order[j - gap]], &items[v]); j -= gap)
                order[j] = order[j - gap];
            order[j] = v;
        }
    }
}

unsigned
place_classes(const struct place *p)
{
    return p->cfg.policy == PLACE_LOG   ? p->classes
           : p->cfg.policy == PLACE_GDT ? p->cfg.classes_max
                                        : 1;
}

double
place_spread(const struct place *p)
{
    return p->spread;
}

/* ---- save and load ----------------------------------------------------------------------------- */

enum {
    SAVE_STREAMS_AT = SAVE_FIXED + BUCKETS * 4,
    SAVE_SUMS_AT = SAVE_STREAMS_AT + PLACE_STREAMS * 8,
    SAVE_CRC_AT = SAVE_SUMS_AT + SAVE_SUMS * 8,
    SAVE_BYTES = SAVE_CRC_AT + 4,
};
_Static_assert((int)SAVE_BYTES <= (int)PLACE_SAVE_BYTES, "the state fits");

static void
put_real(uint8_t *out, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    ch_put64(out, bits);
}

static double
get_real(const uint8_t *in)
{
    uint64_t bits = ch_get64(in);
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v >= 0 && v <= 1e12 ? v : 0; /* false for what is no number */
}

size_t
place_save(const struct place *p, uint8_t *out)
{
    const struct regression *r = &p->reg;
    const double sums[SAVE_SUMS] = {r->n, r->x, r->y, r->xx, r->xy, r->yy};

    memset(out, 0, SAVE_BYTES);
    ch_put32(out, SAVE_MAGIC);
    ch_put16(out + 4, SAVE_VERSION);
    out[6] = (uint8_t)p->cfg.policy;
    out[7] = (uint8_t)p->classes;
    ch_put16(out + 8, (uint16_t)p->lo);
    ch_put16(out + 10, (uint16_t)p->hi);
    ch_put32(out + 12, p->review);
    put_real(out + 16, p->spread);
    for (unsigned i = 0; i < BUCKETS; i++)
        ch_put32(out + SAVE_FIXED + i * 4, p->hist[i]);
    for (unsigned s = 0; s < PLACE_STREAMS; s++) {
        int64_t rel = stream_mean(p, s) - p->now;

        ch_put64(out + SAVE_STREAMS_AT + s * 8, p->stream[s].set ? (uint64_t)rel : UINT64_MAX >> 1);
    }
    for (unsigned i = 0; i < SAVE_SUMS; i++)
        put_real(out + SAVE_SUMS_AT + i * 8, sums[i]);
    ch_put32(out + SAVE_CRC_AT, ch_crc32c(0, out, SAVE_CRC_AT));
    return SAVE_BYTES;
}

static bool
save_is_good(const uint8_t *in, size_t n)
{
    return n >= SAVE_BYTES && ch_get32(in) == SAVE_MAGIC && ch_get16(in + 4) == SAVE_VERSION &&
           ch_get32(in + SAVE_CRC_AT) == ch_crc32c(0, in, SAVE_CRC_AT) && in[7] >= 1 &&
           in[7] <= PLACE_CLASSES_MAX && ch_get32(in + 12) >= 1 && ch_get32(in + 12) <= REVIEW;
}

int
place_load(struct place *p, const uint8_t *in, size_t n)
{
    if (!save_is_good(in, n))
        return CH_FAIL(COHORT_EMAP, "placement: state of %zu bytes", n);
    if (in[6] != p->cfg.policy)
        return 0; /* another policy's: learn anew */
    p->classes = p->cfg.fixed || in[7] > p->cfg.classes_max ? p->cfg.classes_max : in[7];
    p->lo = ch_get16(in + 8);
    p->hi = ch_get16(in + 10);
    p->review = ch_get32(in + 12);
    p->spread = get_real(in + 16);
    p->placed = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        p->placed += p->hist[i] = ch_get32(in + SAVE_FIXED + i * 4);
    for (unsigned s = 0; s < PLACE_STREAMS; s++) {
        uint64_t rel = ch_get64(in + SAVE_STREAMS_AT + s * 8);

        p->stream[s] = (struct stream){0};
        if (rel != UINT64_MAX >> 1)
            p->stream[s] = (struct stream){.mean = (int64_t)rel, .set = true};
    }
    p->reg = (struct regression){
        get_real(in + SAVE_SUMS_AT),      get_real(in + SAVE_SUMS_AT + 8),
        get_real(in + SAVE_SUMS_AT + 16), get_real(in + SAVE_SUMS_AT + 24),
        get_real(in + SAVE_SUMS_AT + 32), get_real(in + SAVE_SUMS_AT + 40),
    };
    return 0;
}
