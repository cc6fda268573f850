/* policy_life.c - what the simulated store knows about pages: histories and oracles; its memory. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/policy_sim.h"

#define LOG_PART     32 /* the log's ring: a part of the zones' slots, as at creation of a database */
#define FOREIGN_PART 20

/* ---- histories ------------------------------------------------------------------------------------ */

uint32_t
policy_next(struct sim *s)
{
    uint64_t at = s->future_at;

    if (s->future == NULL || at >= s->futures)
        return policy_source_next(s->source);
    s->due[s->future[at]] = s->next_write[at];
    s->future_at++;
    return s->future[at];
}

void
policy_note(struct sim *s, uint32_t page)
{
    uint32_t *stamp = s->stamps != NULL ? &s->stamps[(size_t)page * s->stamp_count] : NULL;
    struct heat_outcome o = {PLACE_UNKNOWN, 0};

    if (s->heat != NULL) { /* the outcome of other histories is judged by the same regression */
        heat_note(s->heat, page, 0, s->clock, &o);
        if (s->c->history != POLICY_FUTURE)
            place_note_outcome(s->place, &o);
    }
    if (stamp == NULL)
        return;
    memmove(stamp + 1, stamp, (s->stamp_count - 1) * sizeof(*stamp));
    stamp[0] = s->clock;
}

static uint32_t
header_life(const struct sim *s, uint32_t page, bool user)
{
    const uint32_t *stamp = &s->stamps[(size_t)page * s->stamp_count];
    unsigned n = 0;
    uint32_t mean, age = s->clock - stamp[0];

    while (n < s->stamp_count && stamp[n] != 0)
        n++;
    if (n < 2)
        return PLACE_UNKNOWN;
    mean = (stamp[0] - stamp[n - 1]) / (n - 1);
    if (!user &&
        s->c->place == PLACE_GDT) /* the death time is what it was when the page was written */
        mean = mean > age ? mean - age : 1;
    return mean > 0 ? mean : 1;
}

static uint32_t
rate_life(const struct sim *s, uint32_t page)
{
    double rate = policy_source_rate(s->source, page);

    return rate > 0 && 1.0 / rate < 4e9 ? (uint32_t)(1.0 / rate) + 1 : PLACE_UNKNOWN;
}

uint32_t
policy_life(const struct sim *s, uint32_t page, bool user)
{
    switch (s->c->history) {
    case POLICY_HEADER4:
    case POLICY_HEADER8:
        return header_life(s, page, user);
    case POLICY_RATE:
        return rate_life(s, page);
    case POLICY_FUTURE:
        return s->due[page] > s->clock ? s->due[page] - s->clock : 1;
    case POLICY_EWMA:
        break;
    }
    return heat_predict(s->heat, page, 0, s->clock);
}

/* All user writes that the run can need, and for each of them when its page is written next. The clock is 1 at
 * the first page loaded. */
static int
future_fill(struct sim *s)
{
    uint64_t slots = (uint64_t)s->c->zones * s->c->zone_slots;
    uint32_t *last = s->due;

    s->futures = (uint64_t)(s->c->capacities * (double)slots) + slots * 2;
    s->future = calloc(s->futures, sizeof(*s->future));
    s->next_write = calloc(s->futures, sizeof(*s->next_write));
    if (s->future == NULL || s->next_write == NULL)
        return CH_FAIL(COHORT_ENOMEM, "future of %" PRIu64 " writes", s->futures);
    for (uint64_t i = 0; i < s->futures; i++)
        s->future[i] = policy_source_next(s->source);
    for (uint32_t p = 0; p < s->pages; p++) /* beyond the end: by chance behind it */
        last[p] = (uint32_t)(s->futures + s->pages + ch_prng_below(&s->rng, s->pages) * 2);
    for (uint64_t i = s->futures; i-- > 0;) {
        s->next_write[i] = last[s->future[i]];
        last[s->future[i]] = (uint32_t)(i + 1 + s->pages);
    }
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static bool
batch_create(struct sim_batch *b, size_t items)
{
    b->item = calloc(items, sizeof(*b->item));
    b->page = calloc(items, sizeof(*b->page));
    b->order = calloc(items, sizeof(*b->order));
    return b->item != NULL && b->page != NULL && b->order != NULL;
}

static void
batch_free(struct sim_batch *b)
{
    free(b->item);
    free(b->page);
    free(b->order);
}

static int
arrays_create(struct sim *s)
{
    size_t slots = (size_t)s->zones * s->c->zone_slots;
    size_t items = s->c->batch > s->c->zone_slots ? s->c->batch : s->c->zone_slots;

    s->slot_of = malloc(s->pages * sizeof(uint32_t));
    s->page_of = malloc(slots * sizeof(uint32_t));
    s->zone = calloc(s->zones, sizeof(*s->zone));
    s->free_next = calloc(s->zones, sizeof(uint32_t));
    s->victims = calloc(s->zones, sizeof(*s->victims));
    s->load = calloc(s->c->batch, sizeof(*s->load));
    s->due = calloc(s->pages, sizeof(*s->due));
    s->log_ring = malloc(s->log_slots * sizeof(uint32_t));
    if (s->stamp_count > 0)
        s->stamps = calloc((size_t)s->pages * s->stamp_count, sizeof(uint32_t));
    if (s->slot_of == NULL || s->page_of == NULL || s->zone == NULL || s->free_next == NULL ||
        s->victims == NULL || !batch_create(&s->user, items) || !batch_create(&s->gc, items) ||
        s->load == NULL || s->due == NULL || s->log_ring == NULL ||
        (s->stamp_count > 0 && s->stamps == NULL))
        return CH_FAIL(COHORT_ENOMEM, "policy bench: %u zones", s->zones);
    memset(s->slot_of, 0xff, s->pages * sizeof(uint32_t));
    memset(s->page_of, 0xff, slots * sizeof(uint32_t));
    memset(s->log_ring, 0xff, s->log_slots * sizeof(uint32_t));
    s->free_head = SIM_NONE;
    for (uint32_t z = s->zones; z-- > 0;) {
        s->free_next[z] = s->free_head;
        s->free_head = z;
    }
    s->free_count = s->zones;
    memset(s->open_of, 0xff, sizeof(s->open_of));
    return 0;
}

static int
drive_create(struct sim *s, uint64_t logical)
{
    const struct ssd_config cfg = {
        .logical_pages = logical,
        .superblock_pages = s->c->unit_slots,
        .spare_permille = s->c->spare_permille,
        .open_superblocks = 1,
        .stripe_pages = 16,
        .shared_gc = s->c->shared_gc,
    };

    return s->c->drive ? ssd_create(&cfg, &s->ssd) : 0;
}

static int
modules_create(struct sim *s, uint64_t logical, uint64_t other)
{
    const struct policy_config *c = s->c;
    const struct heat_config heat = {.pages_max = s->pages, .priors = true};
    const struct place_config place = {.policy = c->place,
                                       .classes_max = c->classes,
                                       .fixed = c->classes_fixed || c->history == POLICY_FUTURE,
                                       .by_tree = true};
    const struct group_config group = {
        .mode = c->nowa,
        .zones = s->zones,
        .zone_slots = c->zone_slots,
        .group_zones = c->group_zones,
        .unit_slots = c->unit_slots,
        .burst_groups = c->burst_groups,
        .logical_slots = logical,
        .flash_slots = logical + logical * c->spare_permille / 1000,
        .other_slots = other,
    };
    int rc = policy_source_create(&c->work, s->pages, c->seed, &s->source);

    if (rc == 0)
        rc = heat_create(&heat, &s->heat);
    if (rc == 0)
        rc = place_create(&place, &s->place);
    if (rc == 0)
        rc = group_create(&group, &s->group);
    return rc;
}

static void
sim_sizes(struct sim *s, uint64_t *logical, uint64_t *other)
{
    const struct policy_config *c = s->c;
    uint64_t slots = (uint64_t)c->zones * c->zone_slots;

    s->pages = (uint32_t)((double)slots * c->fill);
    s->zones = c->zones;
    s->log_slots = (uint32_t)(slots / LOG_PART);
    s->log_ratio = c->log_percent / (100 - c->log_percent);
    s->foreign_ratio = c->foreign_percent / (100 - c->foreign_percent);
    s->stamp_count = c->history == POLICY_HEADER4 ? 4 : c->history == POLICY_HEADER8 ? 8 : 0;
    if (c->log_percent > 0 && c->log_place == POLICY_LOG_ZONES)
        s->zones += (uint32_t)ch_div_up(s->log_slots, c->zone_slots);
    *logical = (uint64_t)s->zones * c->zone_slots;
    s->fixed_first = *logical;
    *other = c->log_percent > 0 && c->log_place == POLICY_LOG_FIXED ? s->log_slots : 0;
    s->foreign_first = *logical + *other;
    s->foreign_slots = c->foreign_percent > 0 ? slots / FOREIGN_PART : 0;
    *other += s->foreign_slots;
    *logical += *other;
    s->reserve = 2 + c->batch / c->zone_slots;
}

static int
config_check(const struct policy_config *c)
{
    if (c->zones < 64 || c->zone_slots < 16 || (uint64_t)c->zones * c->zone_slots >= 1u << 30)
        return CH_FAIL(COHORT_EOPTION, "zones: at least 64 of 16 slots, below 2^30 slots in all");
    if (!(c->fill > 0 && c->fill <= 0.98))
        return CH_FAIL(COHORT_EOPTION, "fill %g: above 0, at most 0.98", c->fill);
    if (c->classes < 1 || c->classes > PLACE_CLASSES_MAX || c->batch < 1 ||
        c->batch > PLACE_BATCH_MAX || c->zone_slots > PLACE_BATCH_MAX)
        return CH_FAIL(COHORT_EOPTION, "classes 1 to %d, batch and zone slots up to %d",
                       PLACE_CLASSES_MAX, PLACE_BATCH_MAX);
    if (!(c->log_percent >= 0 && c->log_percent <= 90) ||
        !(c->foreign_percent >= 0 && c->foreign_percent <= 90))
        return CH_FAIL(COHORT_EOPTION, "log and foreign writes: 0 to 90 percent");
    if (c->history == POLICY_RATE && c->work.kind != POLICY_UNIFORM &&
        c->work.kind != POLICY_ZIPF && c->work.kind != POLICY_HOTCOLD)
        return CH_FAIL(COHORT_EOPTION, "true rates are known of uniform, zipf and hotcold only");
    return 0;
}

int
policy_sim_create(const struct policy_config *c, struct sim **out)
{
    struct sim *s = NULL;
    uint64_t logical, other;
    int rc = config_check(c);

    if (rc != 0)
        return rc;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "policy bench");
    s->c = c;
    ch_prng_init(&s->rng, c->seed ^ UINT64_C(0x5eed));
    sim_sizes(s, &logical, &other);
    rc = arrays_create(s);
    if (rc == 0)
        rc = drive_create(s, logical);
    if (rc == 0)
        rc = modules_create(s, logical, other);
    if (rc == 0 && c->history == POLICY_FUTURE)
        rc = future_fill(s);
    if (rc != 0) {
        policy_sim_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void
policy_sim_destroy(struct sim *s)
{
    if (s == NULL)
        return;
    policy_source_destroy(s->source);
    place_destroy(s->place);
    heat_destroy(s->heat);
    group_destroy(s->group);
    ssd_destroy(s->ssd);
    free(s->slot_of);
    free(s->page_of);
    free(s->zone);
    free(s->free_next);
    free(s->victims);
    batch_free(&s->user);
    batch_free(&s->gc);
    free(s->load);
    free(s->due);
    free(s->log_ring);
    free(s->stamps);
    free(s->future);
    free(s->next_write);
    free(s);
}
