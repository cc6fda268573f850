/* policy_work.c - streams of page writes: named distributions, an LRU pool before them, recorded traces. */
#include <math.h>
#include <stdlib.h>

#include "bench/policy.h"
#include "tools/args.h"

enum {
    YCSB_RECORDS = 32, /* a page */
    YCSB_POOL = 10,    /* parts of the pages: one in ten is buffered */
    SHIFT_WRITES = 32, /* writes after which one page more has turned hot, and one cold */
};
#define NONE UINT32_MAX

/* An LRU list of dirty pages over arrays: what is evicted is written. */
struct pool {
    uint32_t *next, *prev; /* [pages]; NONE = not in the pool */
    uint32_t head, tail, count, max;
};

struct policy_source {
    struct policy_work work;
    uint32_t pages, hot;
    struct ch_prng rng;
    struct zipf zipf;
    uint32_t *place; /* [pages] rank -> page, a permutation */
    double *rate;    /* [pages] of each page; NULL = not known */
    struct pool pool;
    struct policy_trace trace;
    uint64_t at; /* writes so far */
};

/* ---- parsing ---- */

static int
parse_percents(const char *text, struct policy_work *w)
{
    char buf[32];
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : 0;
    int rc;

    if (n == 0 || n >= sizeof(buf))
        return CH_FAIL(COHORT_EOPTION, "workload: %s: WRITES/PAGES in percent", text);
    memcpy(buf, text, n);
    buf[n] = '\0';
    rc = args_real("workload", buf, &w->writes_percent);
    if (rc == 0)
        rc = args_real("workload", slash + 1, &w->pages_percent);
    if (rc == 0 && (w->writes_percent >= 100 || w->pages_percent <= 0 || w->pages_percent >= 100))
        return CH_FAIL(COHORT_EOPTION, "workload: %s: above 0, below 100", text);
    return rc;
}

int
policy_work_parse(const char *text, struct policy_work *w)
{
    static const struct {
        const char *name;
        enum policy_work_kind kind;
    } names[] = {
        {"zipf:", POLICY_ZIPF},
        {"ycsb:", POLICY_YCSB},
        {"ycsb-ordered:", POLICY_YCSB_ORDERED},
        {"hotcold:", POLICY_HOTCOLD},
        {"shift:", POLICY_SHIFT},
        {"trace:", POLICY_TRACE},
    };

    *w = (struct policy_work){0};
    if (strcmp(text, "uniform") == 0)
        return 0;
    for (size_t i = 0; i < CH_ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i].name);

        if (strncmp(text, names[i].name, n) != 0)
            continue;
        w->kind = names[i].kind;
        if (w->kind == POLICY_HOTCOLD || w->kind == POLICY_SHIFT)
            return parse_percents(text + n, w);
        w->path = text + n;
        return w->kind == POLICY_TRACE ? 0 : args_real("workload", text + n, &w->theta);
    }
    return CH_FAIL(COHORT_EOPTION,
                   "workload %s: uniform, zipf:T, hotcold:W/P, shift:W/P, ycsb:T, ycsb-ordered:T, "
                   "trace:FILE",
                   text);
}

/* ---- create ---- */

static void
permute(struct policy_source *s)
{
    for (uint32_t i = 0; i < s->pages; i++)
        s->place[i] = i;
    for (uint32_t i = s->pages; i > 1; i--) {
        uint32_t j = (uint32_t)ch_prng_below(&s->rng, i);
        uint32_t v = s->place[i - 1];

        s->place[i - 1] = s->place[j];
        s->place[j] = v;
    }
}

/* Probability of a rank as zipf_draw() draws it. */
static double
zipf_rate(const struct zipf *z, uint32_t rank)
{
    double power = 1.0 - z->theta, n = (double)z->n;

    if (z->theta <= 0.0 || rank < 2)
        return z->theta <= 0.0 ? 1.0 / n : pow(rank + 1.0, -z->theta) / z->zetan;
    return (pow((rank + 1.0) / n, power) - pow(rank / n, power)) / z->eta;
}

static void
set_rates(struct policy_source *s)
{
    double hot = s->work.writes_percent / 100;

    for (uint32_t r = 0; r < s->pages; r++) {
        double p = 1.0 / s->pages;

        if (s->work.kind == POLICY_ZIPF)
            p = zipf_rate(&s->zipf, r);
        if (s->work.kind == POLICY_HOTCOLD)
            p = r < s->hot ? hot / s->hot : (1 - hot) / (s->pages - s->hot);
        s->rate[s->place[r]] = p;
    }
}

static int
source_alloc(struct policy_source *s)
{
    bool pool = s->work.kind == POLICY_YCSB || s->work.kind == POLICY_YCSB_ORDERED;
    bool rate = s->work.kind == POLICY_UNIFORM || s->work.kind == POLICY_ZIPF ||
                s->work.kind == POLICY_HOTCOLD;

    s->place = calloc(s->pages, sizeof(*s->place));
    if (rate)
        s->rate = calloc(s->pages, sizeof(*s->rate));
    if (pool) {
        s->pool.next = calloc(s->pages, sizeof(uint32_t));
        s->pool.prev = calloc(s->pages, sizeof(uint32_t));
    }
    if (s->place == NULL || (rate && s->rate == NULL) ||
        (pool && (s->pool.next == NULL || s->pool.prev == NULL)))
        return CH_FAIL(COHORT_ENOMEM, "workload of %u pages", s->pages);
    return 0;
}

int
policy_source_create(const struct policy_work *w, uint32_t pages, uint64_t seed,
                     struct policy_source **out)
{
    struct policy_source *s = calloc(1, sizeof(*s));
    uint64_t drawn = pages;
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "workload");
    s->work = *w;
    s->pages = pages;
    s->hot = (uint32_t)ch_clamp_u64((uint64_t)(pages * w->pages_percent / 100), 1, pages - 1);
    ch_prng_init(&s->rng, seed);
    rc = source_alloc(s);
    if (rc != 0)
        goto out;
    permute(s);
    if (w->kind == POLICY_YCSB || w->kind == POLICY_YCSB_ORDERED) {
        drawn = (uint64_t)pages * YCSB_RECORDS;
        memset(s->pool.next, 0xff, pages * sizeof(uint32_t));
        memset(s->pool.prev, 0xff, pages * sizeof(uint32_t));
        s->pool.head = s->pool.tail = NONE;
        s->pool.max = pages / YCSB_POOL + 1;
    }
    rc = zipf_init(&s->zipf, drawn, w->theta);
    if (rc == 0 && w->kind == POLICY_TRACE)
        rc = policy_trace_read(w->path, &s->trace);
    if (rc == 0 && s->trace.pages > pages)
        rc = CH_FAIL(COHORT_EOPTION, "%s: trace of %u pages, the zones hold %u at that fill",
                     w->path, s->trace.pages, pages);
    if (rc != 0)
        goto out;
    if (s->rate != NULL)
        set_rates(s);
    *out = s;
    s = NULL;
out:
    policy_source_destroy(s);
    return rc;
}

void
policy_source_destroy(struct policy_source *s)
{
    if (s == NULL)
        return;
    free(s->place);
    free(s->rate);
    free(s->pool.next);
    free(s->pool.prev);
    policy_trace_free(&s->trace);
    free(s);
}

/* ---- drawing ---- */

static void
pool_unlink(struct pool *p, uint32_t i)
{
    if (p->prev[i] != NONE)
        p->next[p->prev[i]] = p->next[i];
    else
        p->head = p->next[i];
    if (p->next[i] != NONE)
        p->prev[p->next[i]] = p->prev[i];
    else
        p->tail = p->prev[i];
    p->next[i] = p->prev[i] = NONE;
    p->count--;
}

static bool
pool_has(const struct pool *p, uint32_t i)
{
    return p->next[i] != NONE || p->prev[i] != NONE || p->head == i;
}

static void
pool_push(struct pool *p, uint32_t i)
{
    p->next[i] = p->head;
    p->prev[i] = NONE;
    if (p->head != NONE)
        p->prev[p->head] = i;
    else
        p->tail = i;
    p->head = i;
    p->count++;
}

/* Updates records until a dirty page falls out of the pool. */
static uint32_t
pool_next(struct policy_source *s)
{
    struct pool *p = &s->pool;

    for (;;) {
        uint64_t record = zipf_draw(&s->zipf, &s->rng);
        uint32_t page = (uint32_t)(record / YCSB_RECORDS), last;

        if (s->work.kind == POLICY_YCSB) /* scrambled: FNV-like over all records */
            page = (uint32_t)((record * UINT64_C(0x9e3779b97f4a7c15) ^ record >> 7) % s->pages);
        if (pool_has(p, page))
            pool_unlink(p, page);
        pool_push(p, page);
        if (p->count <= p->max)
            continue;
        last = p->tail;
        pool_unlink(p, last);
        return last;
    }
}

/* Ranks below `hot` are the hot ones; under POLICY_SHIFT they begin at a rank that moves. */
static uint32_t
hotcold_next(struct policy_source *s)
{
    bool hot = ch_prng_unit(&s->rng) * 100 < s->work.writes_percent;
    uint64_t r =
        hot ? ch_prng_below(&s->rng, s->hot) : s->hot + ch_prng_below(&s->rng, s->pages - s->hot);
    uint64_t shift = s->work.kind == POLICY_SHIFT ? s->at / SHIFT_WRITES : 0;

    return s->place[(r + shift) % s->pages];
}

uint32_t
policy_source_next(struct policy_source *s)
{
    uint64_t at = s->at++;

    switch (s->work.kind) {
    case POLICY_UNIFORM:
        return (uint32_t)ch_prng_below(&s->rng, s->pages);
    case POLICY_ZIPF:
        return s->place[zipf_draw(&s->zipf, &s->rng)];
    case POLICY_HOTCOLD:
    case POLICY_SHIFT:
        return hotcold_next(s);
    case POLICY_YCSB:
    case POLICY_YCSB_ORDERED:
        return pool_next(s);
    case POLICY_TRACE:
        break;
    }
    return s->trace.page[at % s->trace.writes];
}

double
policy_source_rate(const struct policy_source *s, uint32_t page)
{
    return s->rate != NULL ? s->rate[page] : 0;
}
