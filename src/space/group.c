/* group.c - see group.h.
 *
 * Groups live in an array of records with a free list; a record has the number of its valid zones and of all
 * zones that joined it. zone[z] is the record's index. The number of records is bounded by the zones + 1 (N3).
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bug.h"
#include "space/group.h"

enum {
    SAVE_MAGIC = 0x52474843, /* "CHGR" */
    SAVE_VERSION = 1,
    SAVE_HEAD = 48,
    SPARE_PERCENT = 95,
    FOREIGN_LIMIT = 50, /* permille of host writes from which auto takes the drive as shared */
    TRIAL_GROUPS_MIN = 64,
};

struct record {
    uint32_t valid;  /* zones whose data lies in it */
    uint32_t joined; /* zones that were written in it */
    uint32_t next;   /* free list */
    uint32_t seq;
};

struct group {
    struct group_config cfg;
    enum group_mode mode; /* in force */
    uint64_t slots;       /* of a group */
    uint32_t *zone;       /* [zones] record of each, GROUP_NONE */
    struct record *record;
    uint32_t records, free_record;
    uint32_t current; /* GROUP_NONE = none open */
    uint64_t end;     /* host writes at which it ends */
    uint64_t own;     /* slots written into it by us */
    uint32_t occupied, occupied_max;
    uint32_t foreign; /* permille, smoothed */
    uint64_t groups, compensated, unused;
    uint32_t switches;
    /* auto: cost of each way when it was last in force, and the trial that runs */
    double cost[2]; /* of budget, single; 0 = not known */
    uint64_t user, all;
    uint32_t age, until; /* groups since the last switch; groups at which it is looked at again */
    double *score;       /* [records] scratch of group_victim */
};

static int
config_check(struct group_config *c)
{
    uint64_t slots = (uint64_t)c->group_zones * c->zone_slots;

    if (slots == 0 || c->unit_slots == 0 || slots % c->unit_slots != 0)
        return CH_FAIL(COHORT_EOPTION, "group of %u zones of %u slots: no multiple of the unit, %u",
                       c->group_zones, c->zone_slots, c->unit_slots);
    if (c->flash_slots < c->logical_slots || c->flash_slots < c->other_slots + 3 * slots)
        return CH_FAIL(COHORT_EOPTION,
                       "groups of %" PRIu64 " slots: the drive has %" PRIu64 "; at least 3 groups",
                       slots, c->flash_slots);
    if (c->spare_percent == 0)
        c->spare_percent = SPARE_PERCENT;
    return 0;
}

static void
records_init(struct group *g)
{
    for (uint32_t z = 0; z < g->cfg.zones; z++)
        g->zone[z] = GROUP_NONE;
    for (uint32_t r = 0; r < g->records; r++)
        g->record[r] = (struct record){.next = r + 1 < g->records ? r + 1 : GROUP_NONE};
    g->free_record = 0;
    g->current = GROUP_NONE;
    g->occupied = 0;
}

int
group_create(const struct group_config *cfg, struct group **out)
{
    struct group *g = calloc(1, sizeof(*g));
    uint64_t flash;
    int rc;

    if (g == NULL)
        return CH_FAIL(COHORT_ENOMEM, "groups: state");
    g->cfg = *cfg;
    g->mode = cfg->mode == GROUP_AUTO ? GROUP_BUDGET : cfg->mode;
    rc = cfg->mode == GROUP_OFF ? 0 : config_check(&g->cfg);
    if (rc != 0)
        goto out;
    g->slots = (uint64_t)cfg->group_zones * cfg->zone_slots;
    flash = cfg->flash_slots -
            (cfg->flash_slots - cfg->logical_slots) * (100 - g->cfg.spare_percent) / 100 -
            cfg->other_slots;
    g->occupied_max = g->slots > 0 ? (uint32_t)(flash / g->slots) : 0;
    g->records = cfg->zones + 2;
    g->zone = calloc(cfg->zones, sizeof(*g->zone));
    g->record = calloc(g->records, sizeof(*g->record));
    g->score = calloc((size_t)g->records * 3, sizeof(*g->score));
    if (g->zone == NULL || g->record == NULL || g->score == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "groups: %u zones", cfg->zones);
        goto out;
    }
    records_init(g);
    g->until = TRIAL_GROUPS_MIN;
    *out = g;
    g = NULL;
out:
    group_destroy(g);
    return rc;
}

void
group_destroy(struct group *g)
{
    if (g == NULL)
        return;
    free(g->zone);
    free(g->record);
    free(g->score);
    free(g);
}

size_t
group_memory(const struct group *g)
{
    return sizeof(*g) + g->cfg.zones * sizeof(*g->zone) +
           g->records * (sizeof(*g->record) + 3 * sizeof(*g->score));
}

/* ---- records ----------------------------------------------------------------------------------- */

static void
record_drop_if_dead(struct group *g, uint32_t r)
{
    if (g->record[r].valid > 0 || r == g->current)
        return;
    g->record[r].next = g->free_record;
    g->record[r].joined = 0;
    g->free_record = r;
    g->occupied--;
}

static void
zone_leaves(struct group *g, zone_id z)
{
    uint32_t r = g->zone[z];

    if (r == GROUP_NONE)
        return;
    g->zone[z] = GROUP_NONE;
    CH_ASSERT(g->record[r].valid > 0); /* N2 */
    g->record[r].valid--;
    record_drop_if_dead(g, r);
}

void
group_note_discarded(struct group *g, zone_id z)
{
    CH_ASSERT(z < g->cfg.zones);
    zone_leaves(g, z);
}

void
group_join(struct group *g, zone_id z)
{
    CH_ASSERT(z < g->cfg.zones);
    if (g->mode == GROUP_OFF)
        return;
    CH_ASSERT(g->current != GROUP_NONE);
    zone_leaves(g, z);
    g->zone[z] = g->current;
    g->record[g->current].valid++;
    g->record[g->current].joined++;
}

uint32_t
group_of_zone(const struct group *g, zone_id z)
{
    return g->zone[z];
}

double
group_dead_part(const struct group *g, zone_id z)
{
    uint32_t r = g->zone[z];

    if (r == GROUP_NONE || g->record[r].joined == 0)
        return 0;
    return 1.0 - (double)g->record[r].valid / (double)g->record[r].joined;
}

/* ---- writing ----------------------------------------------------------------------------------- */

uint64_t
group_left(const struct group *g, uint64_t host_slots)
{
    if (g->mode == GROUP_OFF)
        return UINT64_MAX;
    return g->current == GROUP_NONE || host_slots >= g->end ? 0 : g->end - host_slots;
}

static bool
group_limits(const struct group *g)
{
    return g->mode == GROUP_BUDGET || g->mode == GROUP_SINGLE;
}

static bool
flash_is_short(const struct group *g)
{
    return group_limits(g) && g->occupied + 1 > g->occupied_max;
}

bool
group_may_open(const struct group *g, uint64_t host_slots, uint32_t free_zones)
{
    if (g->mode == GROUP_OFF)
        return true;
    return group_left(g, host_slots) == 0 && free_zones >= g->cfg.group_zones && !flash_is_short(g);
}

static void
note_foreign(struct group *g)
{
    uint64_t others = g->own < g->slots ? g->slots - g->own : 0;

    g->foreign = (g->foreign * 7 + (uint32_t)(others * 1000 / g->slots)) / 8;
}

void
group_open(struct group *g, uint64_t host_slots)
{
    uint32_t old = g->current;
    uint32_t r = g->free_record;
    uint64_t slots = g->slots;

    if (g->mode == GROUP_OFF)
        return;
    CH_ASSERT(group_left(g, host_slots) == 0 && r != GROUP_NONE);
    if (CH_BUG(GROUP_SHORT))
        slots -= g->cfg.zone_slots; /* one zone less: the next group begins inside a superblock */
    g->free_record = g->record[r].next;
    g->record[r] = (struct record){.seq = (uint32_t)g->groups};
    g->current = r;
    g->occupied++;
    if (old != GROUP_NONE) {
        note_foreign(g);
        record_drop_if_dead(g, old);
    }
    /* What others wrote since the last one ended belongs to this one's first superblock. */
    if (g->end == 0 || host_slots >= g->end + slots)
        g->end = host_slots;
    g->end += slots;
    g->own = 0;
    g->groups++;
    g->age++;
}

void
group_note_written(struct group *g, uint64_t slots)
{
    g->own += slots;
}

void
group_note_unused(struct group *g, uint64_t slots)
{
    g->unused += slots;
}

uint32_t
group_streams(const struct group *g, uint32_t streams)
{
    return g->mode == GROUP_SINGLE ? 1 : streams;
}

/* ---- collecting ---------------------------------------------------------------------------------- */

/* Partly dead groups, other than the open one. */
static bool
record_is_imbalanced(const struct group *g, uint32_t r)
{
    const struct record *rec = &g->record[r];

    return r != g->current && rec->valid > 0 && rec->valid < rec->joined;
}

static bool
any_imbalanced(const struct group *g)
{
    for (uint32_t r = 0; r < g->records; r++) {
        if (record_is_imbalanced(g, r))
            return true;
    }
    return false;
}

/* Free zones that must be there now: those that the open group will still take, and of the next one's as large a
 * part as of this one is written. */
static uint32_t
zones_wanted(const struct group *g, uint64_t host_slots)
{
    uint64_t written;
    uint32_t joined;

    if (g->mode == GROUP_OFF)
        return 0;
    if (g->current == GROUP_NONE)
        return g->cfg.group_zones;
    written = g->slots - group_left(g, host_slots);
    joined = g->record[g->current].joined;
    return (joined < g->cfg.group_zones ? g->cfg.group_zones - joined : 0) +
           (uint32_t)ch_div_up(written * g->cfg.group_zones, g->slots);
}

enum group_need
group_need(const struct group *g, uint64_t host_slots, uint32_t free_zones, uint32_t reserve)
{
    bool zones_short = free_zones < zones_wanted(g, host_slots) + reserve;
    bool flash_short = group_limits(g) && g->occupied + 2 > g->occupied_max;

    if (flash_short || (zones_short && g->mode == GROUP_SINGLE))
        return GROUP_NEED_GROUP;
    if (!zones_short)
        return GROUP_NEED_NOTHING;
    return g->mode == GROUP_ALWAYS && any_imbalanced(g) ? GROUP_NEED_GROUP : GROUP_NEED_ZONE;
}

/* score[r * 3] = live slots, [+1] = sum of live x rate, [+2] = zones that can't be collected now. */
static void
sum_records(struct group *g, group_zone_fn *look, const void *ctx)
{
    memset(g->score, 0, (size_t)g->records * 3 * sizeof(*g->score));
    for (uint32_t z = 0; z < g->cfg.zones; z++) {
        uint32_t r = g->zone[z];
        struct group_zone info = {0};

        if (r == GROUP_NONE)
            continue;
        look(ctx, z, &info);
        g->score[r * 3] += (double)info.live_slots;
        g->score[r * 3 + 1] += (double)info.live_slots * info.rate;
        g->score[r * 3 + 2] += info.busy ? 1 : 0;
    }
}

/* Declining cost of collecting record r whole; negative: not possible or no gain. */
static double
record_cost(const struct group *g, uint32_t r)
{
    double live = g->score[r * 3];
    double flash = (double)g->slots;
    double zones = (double)g->record[r].valid * g->cfg.zone_slots;
    double rate = live > 0 ? g->score[r * 3 + 1] / live : 0;
    double free;

    if (g->mode == GROUP_ALWAYS)
        return record_is_imbalanced(g, r) ? live : -1;
    free = (flash + zones) / 2 - live; /* what comes free: flash and zones count the same */
    if (free <= 0)
        return -1;
    return live / (free * free) * (rate > 0 ? rate : 1);
}

uint32_t
group_victim(struct group *g, group_zone_fn *look, const void *ctx, zone_id *out, uint32_t max)
{
    uint32_t best = GROUP_NONE, n = 0;
    double least = 0;

    sum_records(g, look, ctx);
    for (uint32_t r = 0; r < g->records; r++) {
        double cost;

        if (g->record[r].valid == 0 || r == g->current || g->score[r * 3 + 2] > 0)
            continue;
        cost = record_cost(g, r);
        if (cost >= 0 && (best == GROUP_NONE || cost < least)) {
            best = r;
            least = cost;
        }
    }
    if (best == GROUP_NONE)
        return 0;
    for (uint32_t z = 0; z < g->cfg.zones && n < max; z++) {
        if (g->zone[z] == best)
            out[n++] = z;
    }
    g->compensated++;
    return n;
}

/* ---- auto ---------------------------------------------------------------------------------------- */

void
group_note_cost(struct group *g, uint64_t user_slots, uint64_t all_slots)
{
    g->user += user_slots;
    g->all += all_slots;
}

void
group_stats(const struct group *g, struct group_stats *out)
{
    *out = (struct group_stats){
        .groups = g->groups,
        .compensated = g->compensated,
        .short_slots = g->unused,
        .occupied = g->occupied,
        .occupied_max = g->occupied_max,
        .foreign_permille = g->foreign,
        .mode = g->mode,
        .switches = g->switches,
    };
}

bool
group_check(const struct group *g)
{
    uint32_t occupied = 0;
    uint64_t valid = 0, zones = 0;

    for (uint32_t r = 0; r < g->records; r++) {
        valid += g->record[r].valid;
        occupied += g->record[r].valid > 0 || r == g->current ? 1 : 0;
        if (g->record[r].valid > g->record[r].joined)
            return false;
    }
    for (uint32_t z = 0; z < g->cfg.zones; z++) {
        if (g->zone[z] == GROUP_NONE)
            continue;
        if (g->zone[z] >= g->records || g->record[g->zone[z]].valid == 0)
            return false;
        zones++;
    }
    return valid == zones && occupied == g->occupied;
}

/* ---- checkpoint ---------------------------------------------------------------------------------- */

size_t
group_save_bytes(const struct group *g)
{
    return SAVE_HEAD + (size_t)g->cfg.zones * 4 + 4;
}

void
group_save(const struct group *g, uint64_t host_slots, uint8_t *out)
{
    size_t n = group_save_bytes(g) - 4;

    memset(out, 0, SAVE_HEAD);
    ch_put32(out, SAVE_MAGIC);
    ch_put16(out + 4, SAVE_VERSION);
    out[6] = (uint8_t)g->mode;
    ch_put32(out + 8, g->cfg.zones);
    ch_put32(out + 12, g->cfg.group_zones);
    ch_put32(out + 16, g->cfg.zone_slots);
    ch_put32(out + 20, g->current);
    ch_put64(out + 24, group_left(g, host_slots));
    ch_put64(out + 32, g->groups);
    ch_put64(out + 40, g->own);
    for (uint32_t z = 0; z < g->cfg.zones; z++)
        ch_put32(out + SAVE_HEAD + (size_t)z * 4, g->zone[z]);
    ch_put32(out + n, ch_crc32c(0, out, n));
}

static bool
save_is_good(const struct group *g, const uint8_t *in, size_t n)
{
    size_t body = group_save_bytes(g) - 4;

    if (n < body + 4 || ch_get32(in) != SAVE_MAGIC || ch_get16(in + 4) != SAVE_VERSION ||
        ch_get32(in + 8) != g->cfg.zones || ch_get32(in + 12) != g->cfg.group_zones ||
        ch_get32(in + 16) != g->cfg.zone_slots || ch_get32(in + body) != ch_crc32c(0, in, body))
        return false;
    for (uint32_t z = 0; z < g->cfg.zones; z++) {
        uint32_t r = ch_get32(in + SAVE_HEAD + (size_t)z * 4);

        if (r != GROUP_NONE && r >= g->records)
            return false;
    }
    return ch_get32(in + 20) == GROUP_NONE || ch_get32(in + 20) < g->records;
}

int
group_load(struct group *g, uint64_t host_slots, const uint8_t *in, size_t n)
{
    if (!save_is_good(g, in, n))
        return CH_FAIL(COHORT_EMAP, "groups: state of %zu bytes", n);
    records_init(g);
    g->current = ch_get32(in + 20);
    g->end = host_slots + ch_get64(in + 24);
    g->groups = ch_get64(in + 32);
    g->own = ch_get64(in + 40);
    for (uint32_t z = 0; z < g->cfg.zones; z++) {
        g->zone[z] = ch_get32(in + SAVE_HEAD + (size_t)z * 4);
        if (g->zone[z] == GROUP_NONE)
            continue;
        g->record[g->zone[z]].valid++;
        g->record[g->zone[z]].joined++;
    }
    g->free_record = GROUP_NONE;
    for (uint32_t r = g->records; r-- > 0;) {
        if (g->record[r].valid > 0 || r == g->current) {
            g->occupied++;
            continue;
        }
        g->record[r].next = g->free_record;
        g->free_record = r;
    }
    return 0;
}
