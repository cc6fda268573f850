/* policy_sim.c - the zone store of `cohort bench policy`.
 *
 *     user write -> batch -> life of each page -> place_batch -> zone of its stream (within the open group)
 *     before each batch: while group_need() says so, the best zone or group is collected
 *
 * Invariants, asserted: a page lies in one slot; a zone's live count is the number of slots that are some page's
 * place (or the log's); free zones suffice for what collecting writes.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "bench/policy_sim.h"

void
policy_config_init(struct policy_config *c)
{
    *c = (struct policy_config){
        .zones = 1024,
        .zone_slots = 128,
        .fill = 0.8,
        .place = PLACE_LOG,
        .classes = 8,
        .victim = VICTIM_MDC,
        .batch = 128,
        .capacities = 6,
        .seed = 1,
        .group_zones = 8,
        .spare_permille = 70,
    };
}

static void make_room(struct sim *s);

/* ---- zones and groups ---------------------------------------------------------------------------- */

static uint64_t
host_slots(const struct sim *s)
{
    return s->host;
}

static void
drive_write(struct sim *s, uint64_t lpage)
{
    s->host++;
    if (s->ssd != NULL)
        ssd_write(s->ssd, lpage, 1);
}

static void
zone_seal(struct sim *s, uint32_t z)
{
    struct sim_zone *zone = &s->zone[z];

    CH_ASSERT(zone->state == SIM_OPEN);
    zone->state = SIM_SEALED;
    zone->sealed = s->clock;
    s->open_of[zone->stream] = SIM_NONE;
}

static void
seal_all(struct sim *s)
{
    for (uint32_t z = 0; z < s->zones; z++) {
        if (s->zone[z].state != SIM_OPEN)
            continue;
        group_note_unused(s->group, s->c->zone_slots - s->zone[z].cursor);
        zone_seal(s, z);
    }
    s->room = 0;
}

static void
zone_discard(struct sim *s, uint32_t z)
{
    if (s->ssd != NULL)
        ssd_discard(s->ssd, (uint64_t)z * s->c->zone_slots, s->c->zone_slots);
    group_note_discarded(s->group, z);
}

static void
zone_set_free(struct sim *s, uint32_t z)
{
    CH_ASSERT(s->zone[z].live == 0 && s->zone[z].log == 0);
    s->zone[z] = (struct sim_zone){.state = SIM_FREE};
    s->free_next[z] = s->free_head;
    s->free_head = z;
    s->free_count++;
    zone_discard(s, z);
}

static uint32_t
zone_take_free(struct sim *s)
{
    uint32_t z = s->free_head;

    CH_ASSERT(z != SIM_NONE);
    s->free_head = s->free_next[z];
    s->free_count--;
    return z;
}

static void
zone_open(struct sim *s, unsigned stream)
{
    uint32_t z = zone_take_free(s);

    s->zone[z] = (struct sim_zone){.state = SIM_OPEN, .stream = (uint8_t)stream};
    s->open_of[stream] = z;
    group_join(s->group, z);
    s->room += s->c->zone_slots;
    if (stream < PLACE_STREAMS)
        place_note_open(s->place, stream);
}

/* The open zone of the nearest stream, when none may be opened for this one. */
static uint32_t
open_nearest(const struct sim *s, unsigned stream)
{
    uint32_t best = SIM_NONE;
    unsigned least = UINT32_MAX;

    for (unsigned i = 0; i < SIM_STREAMS; i++) {
        unsigned d = i < stream ? stream - i : i - stream;

        if (s->open_of[i] != SIM_NONE && d < least) {
            least = d;
            best = s->open_of[i];
        }
    }
    return best;
}

static void
group_begin(struct sim *s)
{
    seal_all(s);
    CH_ASSERT(s->free_count >= s->c->group_zones);
    if (!group_may_open(s->group, host_slots(s), s->free_count))
        s->stuck++; /* the drive will have to collect: counted, not hidden */
    group_open(s->group, host_slots(s));
}

/* A zone with room for one slot of `stream`. */
static uint32_t
zone_for(struct sim *s, unsigned stream)
{
    uint32_t z;

    if (group_left(s->group, host_slots(s)) == 0) {
        if (!s->collecting)
            make_room(s);
        if (group_left(s->group, host_slots(s)) == 0)
            group_begin(s);
    }
    z = s->open_of[stream];
    if (z != SIM_NONE)
        return z;
    if (s->c->nowa == GROUP_OFF ? s->free_count > 0
                                : group_may_join(s->group, host_slots(s), s->room)) {
        zone_open(s, stream);
        return s->open_of[stream];
    }
    z = open_nearest(s, stream);
    if (z != SIM_NONE)
        return z;
    zone_open(s,
              stream); /* all are full, and the group is not: others wrote less than was reserved */
    return s->open_of[stream];
}

static uint32_t
slot_take(struct sim *s, unsigned stream)
{
    uint32_t z = zone_for(s, stream);
    struct sim_zone *zone = &s->zone[z];
    uint32_t slot = z * s->c->zone_slots + zone->cursor++;

    drive_write(s, slot);
    group_note_written(s->group, 1);
    s->written_zone = z;
    s->room--;
    if (zone->cursor == s->c->zone_slots)
        zone_seal(s, z);
    return slot;
}

static void
slot_dies(struct sim *s, uint32_t slot)
{
    uint32_t z = slot / s->c->zone_slots;
    struct sim_zone *zone = &s->zone[z];

    CH_ASSERT(zone->live > 0);
    zone->live--;
    if (zone->live == 0 && zone->log == 0 && zone->state == SIM_SEALED)
        zone_set_free(s, z);
}

/* ---- pages --------------------------------------------------------------------------------------- */

static void
write_page(struct sim *s, uint32_t page, const struct place_item *item)
{
    unsigned stream = group_streams(s->group, 2) == 1 ? 0 : item->stream;
    uint32_t slot = slot_take(s, stream);
    struct sim_zone *zone = &s->zone[s->written_zone];
    uint32_t old = s->slot_of[page]; /* only now: making room may have moved it */

    s->slot_of[page] = slot;
    s->page_of[slot] = page;
    zone->live++;
    zone->written++;
    zone->death +=
        item->life < PLACE_UNKNOWN ? (double)item->life + (double)s->clock : (double)PLACE_LIFE_MAX;
    if (old != SIM_NONE)
        slot_dies(s, old);
}

static void
write_items(struct sim *s, enum place_origin origin, struct sim_batch *b, uint32_t n)
{
    place_batch(s->place, origin, s->clock, b->item, n);
    place_order(b->item, b->order, n);
    for (uint32_t i = 0; i < n; i++)
        write_page(s, b->page[b->order[i]], &b->item[b->order[i]]);
}

/* ---- collecting ---------------------------------------------------------------------------------- */

static void
zone_look(const struct sim *s, uint32_t z, struct victim_zone *out)
{
    const struct sim_zone *zone = &s->zone[z];
    double death = zone->written > 0 ? zone->death / zone->written - (double)zone->sealed : 0;

    *out = (struct victim_zone){
        .live_bytes = zone->live,
        .capacity_bytes = s->c->zone_slots,
        .age = s->clock - zone->sealed,
        .death = death > 4e9 ? PLACE_NEVER
                 : death > 0 ? (uint32_t)death
                             : 0,
        .pages = s->c->zone_slots,
        .group_dead = group_dead_part(s->group, z),
    };
}

static void
group_look(const void *ctx, zone_id z, struct group_zone *out)
{
    const struct sim *s = ctx;
    const struct sim_zone *zone = &s->zone[z];
    struct victim_zone v;

    zone_look(s, z, &v);
    *out = (struct group_zone){
        .live_slots = zone->live - zone->log, /* a checkpoint takes the log's */
        .rate = victim_rate(&v),
        .busy = zone->state != SIM_SEALED,
    };
}

static uint32_t
best_zone(const struct sim *s)
{
    uint32_t best = SIM_NONE;
    double least = 0;

    for (uint32_t z = 0; z < s->zones; z++) {
        struct victim_zone v;
        double score;

        if (s->zone[z].state != SIM_SEALED || s->zone[z].log > 0 ||
            s->zone[z].live >= s->c->zone_slots)
            continue;
        zone_look(s, z, &v);
        score = victim_score(s->c->victim, &v);
        if (best == SIM_NONE || score < least) {
            best = z;
            least = score;
        }
    }
    return best;
}

/* The oldest slot of the log dies. */
static void
log_tail_dies(struct sim *s)
{
    uint32_t old = s->log_ring[s->log_tail];

    CH_ASSERT(s->log_used > 0);
    s->log_tail = s->log_tail + 1 < s->log_slots ? s->log_tail + 1 : 0;
    s->log_used--;
    if (s->c->log_place == POLICY_LOG_FIXED)
        return;
    s->zone[old / s->c->zone_slots].log--;
    slot_dies(s, old);
}

/* Moves what lives in zone z, and has a checkpoint cut the log that lies in it; the zone is free afterwards. */
static void
collect_zone(struct sim *s, uint32_t z)
{
    struct sim_zone *zone = &s->zone[z];
    uint32_t first = z * s->c->zone_slots, n = 0;

    s->log_cuts += zone->log > 0 ? 1 : 0;
    while (zone->log > 0)
        log_tail_dies(s);
    s->gc_zones++;
    s->gc_live += zone->live;
    for (uint32_t i = 0; i < zone->cursor; i++) {
        uint32_t page = s->page_of[first + i];

        if (page >= s->pages || s->slot_of[page] != first + i)
            continue;
        s->gc.page[n] = page;
        s->gc.item[n] = (struct place_item){.life = policy_life(s, page, false), .bytes = 1};
        n++;
    }
    s->gc_pages += n;
    if (n == 0 && zone->state == SIM_SEALED)
        zone_set_free(s, z);
    else if (n > 0)
        write_items(s, PLACE_GC, &s->gc, n);
}

/* False: nothing can be collected. */
static bool
collect(struct sim *s, enum group_need need)
{
    uint32_t n = 0, z;

    if (need == GROUP_NEED_GROUP)
        n = group_victim(s->group, group_look, s, s->victims, s->zones);
    for (uint32_t i = 0; i < n; i++) {
        if (s->zone[s->victims[i]].state == SIM_SEALED) /* else it emptied meanwhile */
            collect_zone(s, s->victims[i]);
    }
    if (n > 0)
        return true;
    z = best_zone(s);
    if (z == SIM_NONE)
        return false;
    collect_zone(s, z);
    return true;
}

static void
make_room(struct sim *s)
{
    enum group_need need;
    bool begun = false;

    while ((need = group_need(s->group, host_slots(s), s->free_count, s->reserve, begun)) !=
           GROUP_NEED_NOTHING) {
        begun = s->collecting = true;
        if (!collect(s, need)) {
            s->stuck++;
            break;
        }
    }
    s->collecting = false;
}

/* ---- the log and other writers --------------------------------------------------------------------- */

static void
log_write(struct sim *s)
{
    uint32_t at;

    s->log_pages++;
    if (s->log_used == s->log_slots)
        log_tail_dies(s);
    if (s->c->log_place == POLICY_LOG_FIXED) {
        drive_write(s, s->fixed_first + s->log_pages % s->log_slots);
        group_note_written(s->group, 1);
        return;
    }
    at = slot_take(s, SIM_LOG_STREAM); /* may cut the log */
    s->page_of[at] = SIM_NONE;
    s->zone[s->written_zone].live++;
    s->zone[s->written_zone].log++;
    s->log_ring[(s->log_tail + s->log_used) % s->log_slots] = at;
    s->log_used++;
}

static void
others_write(struct sim *s)
{
    s->log_debt += s->log_ratio;
    while (s->log_debt >= 1) {
        s->log_debt -= 1;
        log_write(s);
    }
    s->foreign_debt += s->foreign_ratio;
    while (s->foreign_debt >= 1) {
        s->foreign_debt -= 1;
        s->foreign_pages++;
        drive_write(s, s->foreign_first + ch_prng_below(&s->rng, s->foreign_slots));
    }
}

/* ---- the run --------------------------------------------------------------------------------------- */

static void
user_batch(struct sim *s, const uint32_t *given, uint32_t n)
{
    make_room(s);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = given != NULL ? given[i] : policy_next(s);

        s->clock++;
        s->user.page[i] = page;
        policy_note(s, page);
        s->user.item[i] = (struct place_item){.life = policy_life(s, page, true), .bytes = 1};
        others_write(s);
    }
    write_items(s, PLACE_USER, &s->user, n);
    s->user_pages += n;
}

static void
load_pages(struct sim *s)
{
    uint32_t *page = s->load;

    for (uint32_t p = 0, n; p < s->pages; p += n) {
        for (n = 0; n < s->c->batch && p + n < s->pages; n++)
            page[n] = p + n;
        user_batch(s, page, n);
    }
}

static void
mark_take(const struct sim *s, struct sim_mark *m)
{
    struct ssd_counts c = {0};

    if (s->ssd != NULL)
        ssd_counts(s->ssd, &c);
    *m = (struct sim_mark){s->user_pages,    s->gc_pages, s->log_pages,
                           s->foreign_pages, s->host,     c.host_pages + c.gc_pages,
                           s->gc_zones,      s->gc_live};
}

static double
mark_total(const struct sim_mark *a, const struct sim_mark *b, bool drive)
{
    double user = (double)(b->user - a->user);

    return drive ? (double)(b->media - a->media) / user : (double)(b->host - a->host) / user;
}

static void
result_fill(const struct sim *s, const struct sim_mark m[3], struct policy_result *r)
{
    const struct sim_mark *a = &m[0], *b = &m[2];
    double user = (double)(b->user - a->user), host = (double)(b->host - a->host);
    double others = (double)(b->log - a->log) + (double)(b->foreign - a->foreign);
    double first = mark_total(&m[0], &m[1], s->ssd != NULL);
    double second = mark_total(&m[1], &m[2], s->ssd != NULL);
    double zones = (double)(b->zones - a->zones) * s->c->zone_slots;

    *r = (struct policy_result){
        .user_pages = b->user - a->user,
        .gc_pages = b->gc - a->gc,
        .log_pages = b->log - a->log,
        .foreign_pages = b->foreign - a->foreign,
        .host_pages = b->host - a->host,
        .media_pages = s->ssd != NULL ? (double)(b->media - a->media) : host,
        .db_waf = (host - others) / user,
        .gc_valid_ratio = zones > 0 ? (double)(b->live - a->live) / zones : 0,
        .classes = place_classes(s->place),
        .spread = place_spread(s->place),
        .heat_bytes = s->heat != NULL ? heat_memory(s->heat) : 0,
        .all_user_pages = b->user,
        .log_cuts = s->log_cuts,
        .stuck = s->stuck,
    };
    r->ssd_waf = r->media_pages / host;
    r->total_waf = r->db_waf * r->ssd_waf;
    r->total_waf_with_log = r->media_pages / user;
    r->steady = first > second * 0.98 && first < second * 1.02;
    group_stats(s->group, &r->groups);
}

int
policy_run(const struct policy_config *c, struct policy_result *r)
{
    struct sim *s = NULL;
    struct sim_mark m[3] = {0};
    uint64_t end;
    int rc = policy_sim_create(c, &s);

    if (rc != 0)
        return rc;
    load_pages(s);
    end = (uint64_t)(c->capacities * c->zones * c->zone_slots) + s->host;
    for (int i = 0; i < 3; i++) {
        uint64_t until = s->host + (end - s->host) * (i == 0 ? 6 : 1) /
                                       (i == 0   ? 8
                                        : i == 1 ? 2
                                                 : 1);

        while (s->host < until)
            user_batch(s, NULL, c->batch);
        mark_take(s, &m[i]);
    }
    result_fill(s, m, r);
    if ((s->ssd != NULL && !ssd_check(s->ssd)) || !group_check(s->group))
        rc = CH_FAIL(COHORT_ECORRUPT, "policy bench: the drive or the groups are inconsistent");
    policy_sim_destroy(s);
    return rc;
}
