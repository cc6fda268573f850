/* group.c - see group.h.
 *
 * Collecting in bursts (budget): nothing is collected while a group fills. At its end, if room is short, the live zones of
 * the cheapest groups, enough to fill `burst_groups` groups, are moved one after the other, the slowest first. So what
 * is moved fills groups of its own, each with zones of about one rate, and users' writes fill others: erase units
 * with one kind of pages, although the drive knows of one stream only. The zones' rates are the sort key, so
 * neither memory for pages nor sorting of pages is needed.
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
    BURST_GROUPS = 2,
    FOREIGN_HIGH = 450, /* permille of host writes from which auto takes the drive as shared, */
    FOREIGN_LOW = 150,  /* and below which it does not any more */
    AUTO_GROUPS = 16,   /* groups between two switches */
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
    uint32_t age;  /* groups since auto switched */
    double *live;  /* [records] scratch of group_victim(): live slots, */
    double *decay; /* [records] sum of live slots x rate; */
    bool *busy;    /* [records] not to be collected now, or chosen */
    float *rate;   /* [zones] */
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
    if (c->burst_groups == 0)
        c->burst_groups = BURST_GROUPS;
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

/* Budget is the cheaper one as soon as the spare holds one group more than the zones do: measured in all cells of
 * docs/PAPER.md. Pages of others lie in our groups' superblocks and keep them from being free; budget stays
 * ahead in total until they are some 45 % of the writes, then moving ourselves less is worth more. */
static enum group_mode
auto_choose(const struct group *g, bool shared)
{
    uint64_t zones;

    CH_ASSERT(g->slots > 0);
    zones = (uint64_t)g->cfg.zones * g->cfg.zone_slots / g->slots;
    return !shared && g->occupied_max >= zones + 1 ? GROUP_BUDGET : GROUP_SINGLE;
}

static int
group_alloc(struct group *g)
{
    g->records = g->cfg.zones + 2;
    g->zone = calloc(g->cfg.zones, sizeof(*g->zone));
    g->record = calloc(g->records, sizeof(*g->record));
    g->live = calloc(g->records, sizeof(*g->live));
    g->decay = calloc(g->records, sizeof(*g->decay));
    g->busy = calloc(g->records, sizeof(*g->busy));
    g->rate = calloc(g->cfg.zones, sizeof(*g->rate));
    if (g->zone == NULL || g->record == NULL || g->live == NULL || g->decay == NULL ||
        g->busy == NULL || g->rate == NULL)
        return CH_FAIL(COHORT_ENOMEM, "groups: %u zones", g->cfg.zones);
    return 0;
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
    rc = cfg->mode == GROUP_OFF ? 0 : config_check(&g->cfg);
    if (rc != 0)
        goto out;
    g->slots = (uint64_t)cfg->group_zones * cfg->zone_slots;
    flash = cfg->flash_slots -
            (cfg->flash_slots - cfg->logical_slots) * (100 - g->cfg.spare_percent) / 100 -
            cfg->other_slots;
    g->occupied_max = g->slots > 0 ? (uint32_t)(flash / g->slots) : 0;
    g->mode = cfg->mode == GROUP_AUTO ? auto_choose(g, false) : cfg->mode;
    rc = group_alloc(g);
    if (rc != 0)
        goto out;
    records_init(g);
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
    free(g->live);
    free(g->decay);
    free(g->busy);
    free(g->rate);
    free(g);
}

size_t
group_memory(const struct group *g)
{
    return sizeof(*g) + g->cfg.zones * (sizeof(*g->zone) + sizeof(*g->rate)) +
           g->records *
               (sizeof(*g->record) + sizeof(*g->live) + sizeof(*g->decay) + sizeof(*g->busy));
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

bool
group_may_join(const struct group *g, uint64_t host_slots, uint64_t room)
{
    return g->mode == GROUP_OFF || room == 0 ||
           group_left(g, host_slots) >= room + g->cfg.zone_slots / 2;
}

static bool
group_limits(const struct group *g)
{
    return g->mode == GROUP_BUDGET || g->mode == GROUP_SINGLE || g->mode == GROUP_ALWAYS;
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
    g->age++;
    if (g->cfg.mode != GROUP_AUTO || g->age < AUTO_GROUPS)
        return;
    if (g->foreign >= FOREIGN_HIGH || g->foreign < FOREIGN_LOW) {
        enum group_mode mode = auto_choose(g, g->foreign >= FOREIGN_HIGH);

        g->age = mode != g->mode ? 0 : g->age;
        g->switches += mode != g->mode ? 1 : 0;
        g->mode = mode;
    }
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
    if (g->groups == 0)
        g->end = host_slots;
    else
        g->end += (host_slots - g->end) / g->slots * g->slots; /* whole groups of others' writes */
    g->end += slots;
    g->own = 0;
    g->groups++;
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

/* Budget: at a boundary there must be room for a group of users' writes and the one that collecting begins with. */
static enum group_need
need_budget(const struct group *g, uint64_t host_slots, uint32_t free_zones, uint32_t reserve)
{
    bool boundary = group_left(g, host_slots) == 0;
    uint32_t k = g->cfg.group_zones, more = k;

    if (!boundary && g->record[g->current].joined < k)
        more = k - g->record[g->current].joined;
    else if (!boundary)
        more = 0;
    if (g->occupied + (boundary ? 1 : 0) + 1 + g->cfg.burst_groups > g->occupied_max)
        return GROUP_NEED_GROUP;
    return free_zones < k + more + reserve ? GROUP_NEED_ZONE : GROUP_NEED_NOTHING;
}

enum group_need
group_need(const struct group *g, uint64_t host_slots, uint32_t free_zones, uint32_t reserve,
           bool begun)
{
    if (g->mode == GROUP_BUDGET) {
        if (!begun && group_left(g, host_slots) > 0)
            return GROUP_NEED_NOTHING;
        return need_budget(g, host_slots, free_zones, reserve);
    }
    if (group_limits(g) && g->occupied + 2 > g->occupied_max)
        return GROUP_NEED_GROUP;
    if (free_zones >= zones_wanted(g, host_slots) + reserve)
        return GROUP_NEED_NOTHING;
    return g->mode == GROUP_SINGLE || (g->mode == GROUP_ALWAYS && any_imbalanced(g))
               ? GROUP_NEED_GROUP
               : GROUP_NEED_ZONE;
}

static void
sum_records(struct group *g, group_zone_fn *look, const void *ctx)
{
    for (uint32_t r = 0; r < g->records; r++) {
        g->live[r] = g->decay[r] = 0;
        g->busy[r] = r == g->current;
    }
    for (uint32_t z = 0; z < g->cfg.zones; z++) {
        uint32_t r = g->zone[z];
        struct group_zone info = {0};

        if (r == GROUP_NONE)
            continue;
        look(ctx, z, &info);
        g->rate[z] = (float)info.rate;
        g->live[r] += (double)info.live_slots;
        g->decay[r] += (double)info.live_slots * info.rate;
        g->busy[r] = g->busy[r] || info.busy;
    }
}

/* Declining cost of collecting record r whole; negative: no gain. */
static double
record_cost(const struct group *g, uint32_t r)
{
    double live = g->live[r];
    double zones = (double)g->record[r].valid * g->cfg.zone_slots;
    double rate = live > 0 ? g->decay[r] / live : 0;
    double free;

    if (g->mode == GROUP_ALWAYS)
        return record_is_imbalanced(g, r) ? live : -1;
    free =
        ((double)g->slots + zones) / 2 - live; /* flash and zones that come free count the same */
    return free > 0 ? live / (free * free) * (rate > 0 ? rate : 1) : -1;
}

/* The record of least cost of those not busy; GROUP_NONE. */
static uint32_t
cheapest(const struct group *g)
{
    uint32_t best = GROUP_NONE;
    double least = 0;

    for (uint32_t r = 0; r < g->records; r++) {
        double cost;

        if (g->record[r].valid == 0 || g->busy[r])
            continue;
        cost = record_cost(g, r);
        if (cost >= 0 && (best == GROUP_NONE || cost < least)) {
            best = r;
            least = cost;
        }
    }
    return best;
}

/* Slowest first: Shell's sort. */
static void
sort_by_rate(const struct group *g, zone_id *zone, uint32_t n)
{
    uint32_t gap = 1;

    while (gap < n / 3)
        gap = gap * 3 + 1;
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            zone_id z = zone[i];
            uint32_t j = i;

            for (; j >= gap && g->rate[zone[j - gap]] > g->rate[z]; j -= gap)
                zone[j] = zone[j - gap];
            zone[j] = z;
        }
    }
}

uint32_t
group_victim(struct group *g, group_zone_fn *look, const void *ctx, zone_id *out, uint32_t max)
{
    uint32_t burst = g->mode == GROUP_BUDGET ? g->cfg.burst_groups : 1;
    uint32_t n = 0, chosen = 0;
    double live = 0;

    sum_records(g, look, ctx);
    while (chosen < 2 * burst && live < (double)burst * (double)g->slots) {
        uint32_t best = cheapest(g);

        if (best == GROUP_NONE || n + g->record[best].valid > max)
            break;
        for (uint32_t z = 0; z < g->cfg.zones; z++) {
            if (g->zone[z] == best)
                out[n++] = z;
        }
        g->busy[best] = true;
        live += g->live[best];
        chosen++;
        if (burst == 1)
            break;
    }
    g->compensated += chosen;
    if (burst > 1)
        sort_by_rate(g, out, n);
    return n;
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
