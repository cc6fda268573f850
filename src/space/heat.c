/* heat.c - see heat.h.
 *
 * The mean interval is stored as 8 * log2 + 1, rounded up or down at random in proportion (by a hash of
 * page and time), so that small changes are not lost to rounding and the mean stays unbiased.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "space/heat.h"

enum {
    CHUNK_PAGES = 1024,
    TREES = 256,     /* power of two; priors of so many trees at a time */
    PRIOR_MIN = 64,  /* first writes before a tree's prior counts */
    STEPS = 8,       /* codes an octave */
    COUNT_MASK = 15, /* of chunk.meta */
    SEEN = 16,
};

struct chunk {
    uint32_t last[CHUNK_PAGES];
    uint8_t mean[CHUNK_PAGES]; /* 0 = no interval yet */
    uint8_t meta[CHUNK_PAGES]; /* intervals seen, SEEN */
};

struct prior {
    uint32_t tree;
    uint32_t firsts;  /* pages seen once or more, decayed */
    uint32_t seconds; /* of those, pages seen twice */
    uint64_t sum;     /* of heat_log2(first interval) over `seconds` */
};

struct heat {
    struct heat_config cfg;
    struct chunk **chunk; /* [chunks] */
    size_t chunks;
    size_t memory;
    struct prior prior[TREES];
};

uint32_t
heat_log2(uint32_t v)
{
    uint32_t e = 31 - (uint32_t)__builtin_clz(v | 1);

    return e << 8 | (uint32_t)(((uint64_t)v << 8 >> e) & 255);
}

uint32_t
heat_exp2(uint32_t log)
{
    uint32_t e = log >> 8;

    return e > 31 ? UINT32_MAX : (uint32_t)((UINT64_C(256) + (log & 255)) << e >> 8);
}

static uint32_t
mix(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 32);
}

static uint8_t
mean_encode(uint32_t mean, uint32_t dither)
{
    uint32_t log = heat_log2(mean) * STEPS + (dither & 255);
    uint32_t code = (log >> 8) + 1;

    return (uint8_t)(code > 255 ? 255 : code);
}

static uint32_t
mean_decode(uint8_t code)
{
    return heat_exp2((uint32_t)(code - 1) * (256 / STEPS));
}

int
heat_create(const struct heat_config *cfg, struct heat **out)
{
    struct heat *h = calloc(1, sizeof(*h));

    if (h == NULL)
        return CH_FAIL(COHORT_ENOMEM, "heat: table");
    h->cfg = *cfg;
    h->chunks = cfg->pages_max / CHUNK_PAGES + 1;
    h->chunk = calloc(h->chunks, sizeof(struct chunk *));
    if (h->chunk == NULL) {
        free(h);
        return CH_FAIL(COHORT_ENOMEM, "heat: directory of %" PRIu64 " pages", cfg->pages_max);
    }
    h->memory = sizeof(*h) + h->chunks * sizeof(struct chunk *);
    *out = h;
    return 0;
}

void
heat_destroy(struct heat *h)
{
    if (h == NULL)
        return;
    for (size_t i = 0; i < h->chunks; i++)
        free(h->chunk[i]);
    free(h->chunk);
    free(h);
}

size_t
heat_memory(const struct heat *h)
{
    return h->memory;
}

static struct chunk *
chunk_of(const struct heat *h, page_id pid)
{
    return pid > h->cfg.pages_max ? NULL : h->chunk[pid / CHUNK_PAGES];
}

static struct chunk *
chunk_make(struct heat *h, page_id pid)
{
    struct chunk **c;

    if (pid > h->cfg.pages_max)
        return NULL;
    c = &h->chunk[pid / CHUNK_PAGES];
    if (*c == NULL) {
        *c = calloc(1, sizeof(**c));
        h->memory += *c != NULL ? sizeof(**c) : 0;
    }
    return *c;
}

/* ---- priors ---------------------------------------------------------------------------------- */

static struct prior *
prior_of(struct heat *h, uint32_t tree)
{
    struct prior *p = &h->prior[mix(tree) % TREES];

    if (p->tree != tree)
        *p = (struct prior){.tree = tree};
    return p;
}

static void
prior_first(struct heat *h, uint32_t tree)
{
    struct prior *p = prior_of(h, tree);

    if (++p->firsts == 1 << 16) {
        p->firsts /= 2;
        p->seconds /= 2;
        p->sum /= 2;
    }
}

static void
prior_second(struct heat *h, uint32_t tree, uint32_t interval)
{
    struct prior *p = prior_of(h, tree);

    p->seconds++;
    p->sum += heat_log2(interval);
}

static uint32_t
prior_predict(const struct heat *h, uint32_t tree)
{
    const struct prior *p = &h->prior[mix(tree) % TREES];

    if (!h->cfg.priors || p->tree != tree || p->firsts < PRIOR_MIN)
        return PLACE_UNKNOWN;
    if (p->seconds < p->firsts / 16)
        return PLACE_NEVER;
    return p->seconds == 0 ? PLACE_UNKNOWN : heat_exp2((uint32_t)(p->sum / p->seconds));
}

/* ---- pages ----------------------------------------------------------------------------------- */

void
heat_note(struct heat *h, page_id pid, uint32_t tree, uint32_t now, struct heat_outcome *out)
{
    struct chunk *c = chunk_make(h, pid);
    uint32_t i = pid % CHUNK_PAGES;
    uint32_t interval, count, mean;

    *out = (struct heat_outcome){PLACE_UNKNOWN, 0};
    if (c == NULL)
        return;
    if ((c->meta[i] & SEEN) == 0) {
        c->meta[i] = SEEN;
        c->last[i] = now;
        prior_first(h, tree);
        return;
    }
    interval = now - c->last[i];
    if (interval == 0)
        return;
    out->actual = interval;
    c->last[i] = now;
    count = c->meta[i] & COUNT_MASK;
    mean = interval;
    if (count == 0) {
        prior_second(h, tree, interval);
    } else {
        int64_t old = mean_decode(c->mean[i]);

        out->predicted = (uint32_t)old;
        mean = (uint32_t)(old + ((int64_t)interval - old) / (int64_t)(count + 1));
    }
    c->mean[i] = mean_encode(mean > 0 ? mean : 1, mix(pid << 32 ^ now));
    if (count < HEAT_WINDOW - 1)
        c->meta[i]++;
}

void
heat_seed(struct heat *h, page_id pid, const uint32_t *stamps, unsigned n)
{
    struct chunk *c = chunk_make(h, pid);
    uint32_t i = pid % CHUNK_PAGES;
    uint32_t span, intervals;
    unsigned first = 0;

    while (first < n && stamps[first] == 0)
        first++;
    if (c == NULL || first == n || (c->meta[i] & SEEN) != 0)
        return;
    c->last[i] = stamps[n - 1];
    c->meta[i] = SEEN;
    intervals = n - 1 - first;
    span = stamps[n - 1] - stamps[first];
    if (intervals == 0 || span == 0)
        return;
    c->mean[i] = mean_encode(span >= intervals ? span / intervals : 1, mix(pid));
    c->meta[i] = (uint8_t)(SEEN | (intervals < HEAT_WINDOW - 1 ? intervals : HEAT_WINDOW - 1));
}

void
heat_forget(struct heat *h, page_id pid)
{
    struct chunk *c = chunk_of(h, pid);

    if (c != NULL)
        c->meta[pid % CHUNK_PAGES] = 0;
}

uint32_t
heat_predict(const struct heat *h, page_id pid, uint32_t tree, uint32_t now)
{
    const struct chunk *c = chunk_of(h, pid);
    uint32_t i = pid % CHUNK_PAGES;
    uint32_t count, mean;
    uint64_t life;

    if (c == NULL || (c->meta[i] & SEEN) == 0)
        return prior_predict(h, tree);
    count = c->meta[i] & COUNT_MASK;
    mean = count == 0 ? prior_predict(h, tree) : mean_decode(c->mean[i]);
    if (mean >= PLACE_UNKNOWN)
        return mean;
    life = mean +
           (now - c->last[i]) / (count > 0 ? count : 1); /* the quiet time is an interval so far */
    return (uint32_t)ch_clamp_u64(life, 1, PLACE_LIFE_MAX);
}
