/* ssd_zns.c - zones of a zoned drive.
 *
 * Invariants (ssd_zns_check()):
 *   Z1  EMPTY: written = 0. OPEN, CLOSED: written < cap; CLOSED: written > 0. FULL: written = cap.
 *   Z2  open = zones that are OPEN <= open_max; active = open + CLOSED <= active_max.
 *   Z3  opened_at of an implicitly open zone is unique and grows with the time of opening.
 *
 * A zone that is full is no longer active. Locking: callers serialise.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "ssd/ssd_zns.h"

struct zone {
    uint32_t written;
    uint32_t finished; /* pages below the write pointer that were never written */
    uint8_t state;
    bool explicitly;
    uint64_t opened_at; /* Z3 */
};

struct ssd_zns {
    struct ssd_zns_config cfg;
    struct zone *zone;
    uint32_t open, active;
    uint64_t clock; /* of openings */
    uint64_t host_pages, resets, finished_pages;
    ssd_observer *observer;
    void *observer_arg;
};

static int
refuse(const struct ssd_zns *z, uint32_t zone, const char *why)
{
    errno = EIO;
    if (zone >= z->cfg.zones)
        return CH_FAIL(COHORT_EIO, "zone %u of %u: %s", zone, z->cfg.zones, why);
    return CH_FAIL(COHORT_EIO, "zone %u, written %u of %u pages: %s", zone, z->zone[zone].written,
                   z->cfg.cap_pages, why);
}

/* ---- states ---- */

static void
zone_set(struct ssd_zns *z, uint32_t zone, enum ssd_zone_state state)
{
    struct zone *n = &z->zone[zone];

    z->open -= n->state == SSD_ZONE_OPEN;
    z->active -= n->state == SSD_ZONE_OPEN || n->state == SSD_ZONE_CLOSED;
    n->state = (uint8_t)state;
    z->open += state == SSD_ZONE_OPEN;
    z->active += state == SSD_ZONE_OPEN || state == SSD_ZONE_CLOSED;
    if (state != SSD_ZONE_OPEN)
        n->explicitly = false;
}

/* The implicitly open zone that was opened longest ago; z->cfg.zones = none. */
static uint32_t
oldest_implicit(const struct ssd_zns *z)
{
    uint32_t oldest = z->cfg.zones;

    for (uint32_t i = 0; i < z->cfg.zones; i++) {
        const struct zone *n = &z->zone[i];

        if (n->state == SSD_ZONE_OPEN && !n->explicitly &&
            (oldest == z->cfg.zones || n->opened_at < z->zone[oldest].opened_at))
            oldest = i;
    }
    return oldest;
}

/* Opens an EMPTY or CLOSED zone within the limits. */
static int
zone_open(struct ssd_zns *z, uint32_t zone)
{
    struct zone *n = &z->zone[zone];
    uint32_t oldest;

    if (n->state == SSD_ZONE_EMPTY && z->cfg.active_max > 0 && z->active == z->cfg.active_max)
        return refuse(z, zone, "too many active zones");
    if (z->cfg.open_max > 0 && z->open == z->cfg.open_max) {
        oldest = oldest_implicit(z);
        if (oldest == z->cfg.zones)
            return refuse(z, zone, "too many open zones");
        zone_set(z, oldest, SSD_ZONE_CLOSED); /* a write opened it, so it is not unwritten: Z1 */
    }
    zone_set(z, zone, SSD_ZONE_OPEN);
    n->opened_at = ++z->clock;
    return 0;
}

/* ---- writes ---- */

/* Writes at the pointer. */
static int
zone_write(struct ssd_zns *z, uint32_t zone, uint32_t count)
{
    struct zone *n = &z->zone[zone];
    uint32_t first = zone * z->cfg.zone_pages + n->written;

    if (n->state == SSD_ZONE_FULL || count > z->cfg.cap_pages - n->written)
        return refuse(z, zone, "no room");
    if (n->state != SSD_ZONE_OPEN) {
        int rc = zone_open(z, zone);

        if (rc != 0)
            return rc;
    }
    n->written += count;
    z->host_pages += count;
    for (uint32_t i = 0; i < count && z->observer != NULL; i++)
        z->observer(z->observer_arg, SSD_HOST_PROGRAM, first + i);
    if (n->written == z->cfg.cap_pages)
        zone_set(z, zone, SSD_ZONE_FULL);
    return 0;
}

int
ssd_zns_write(struct ssd_zns *z, uint64_t page, uint32_t count)
{
    uint64_t zone = page / z->cfg.zone_pages;

    CH_ASSERT(count > 0);
    if (zone >= z->cfg.zones)
        return refuse(z, z->cfg.zones, "write beyond the last zone");
    if (page % z->cfg.zone_pages != z->zone[zone].written)
        return refuse(z, (uint32_t)zone, "write not at the write pointer");
    return zone_write(z, (uint32_t)zone, count);
}

/* ---- commands ---- */

int
ssd_zns_reset(struct ssd_zns *z, uint32_t zone)
{
    struct zone *n;

    if (zone >= z->cfg.zones)
        return refuse(z, zone, "reset");
    n = &z->zone[zone];
    if (n->written > 0 && z->observer != NULL)
        z->observer(z->observer_arg, SSD_ERASE, zone * z->cfg.zone_pages);
    zone_set(z, zone, SSD_ZONE_EMPTY);
    n->written = 0;
    n->finished = 0;
    z->resets++;
    return 0;
}

int
ssd_zns_open(struct ssd_zns *z, uint32_t zone)
{
    int rc = 0;

    if (zone >= z->cfg.zones || z->zone[zone].state == SSD_ZONE_FULL)
        return refuse(z, zone, "open");
    if (z->zone[zone].state != SSD_ZONE_OPEN)
        rc = zone_open(z, zone);
    if (rc == 0)
        z->zone[zone].explicitly = true;
    return rc;
}

int
ssd_zns_close(struct ssd_zns *z, uint32_t zone)
{
    if (zone >= z->cfg.zones ||
        (z->zone[zone].state != SSD_ZONE_OPEN && z->zone[zone].state != SSD_ZONE_CLOSED))
        return refuse(z, zone, "close");
    zone_set(z, zone, z->zone[zone].written == 0 ? SSD_ZONE_EMPTY : SSD_ZONE_CLOSED);
    return 0;
}

int
ssd_zns_finish(struct ssd_zns *z, uint32_t zone)
{
    struct zone *n;

    if (zone >= z->cfg.zones)
        return refuse(z, zone, "finish");
    n = &z->zone[zone];
    n->finished += z->cfg.cap_pages - n->written;
    z->finished_pages += z->cfg.cap_pages - n->written;
    n->written = z->cfg.cap_pages;
    zone_set(z, zone, SSD_ZONE_FULL);
    return 0;
}

void
ssd_zns_cut(struct ssd_zns *z, uint32_t zone, uint32_t written)
{
    struct zone *n = &z->zone[zone];

    CH_ASSERT(zone < z->cfg.zones && written <= n->written);
    if (n->state == SSD_ZONE_EMPTY || n->state == SSD_ZONE_FULL) {
        if (n->finished > 0 || n->written == written)
            return;
    }
    n->written = written;
    /* The limit on active zones may not hold for what was full: Z2 counts them as what they are; a
     * drive that comes up so has them closed, and opens none until there are fewer. */
    zone_set(z, zone, written == 0 ? SSD_ZONE_EMPTY : SSD_ZONE_CLOSED);
}

/* ---- reading out ---- */

void
ssd_zns_report(const struct ssd_zns *z, uint32_t zone, struct ssd_zone *out)
{
    const struct zone *n = &z->zone[zone];

    CH_ASSERT(zone < z->cfg.zones);
    *out = (struct ssd_zone){
        .written = n->written, .state = (enum ssd_zone_state)n->state, .explicitly = n->explicitly};
}

void
ssd_zns_counts(const struct ssd_zns *z, struct ssd_zns_counts *out)
{
    uint64_t bytes = z->host_pages * CH_PAGE_BYTES;

    *out = (struct ssd_zns_counts){.host_pages = z->host_pages,
                                   .media_bytes = bytes + bytes / 1000 * z->cfg.floor_permille,
                                   .resets = z->resets,
                                   .finished_pages = z->finished_pages,
                                   .open = z->open,
                                   .active = z->active};
}

void
ssd_zns_observe(struct ssd_zns *z, ssd_observer *fn, void *arg)
{
    z->observer = fn;
    z->observer_arg = arg;
}

bool
ssd_zns_check(const struct ssd_zns *z)
{
    uint32_t open = 0, active = 0;

    for (uint32_t i = 0; i < z->cfg.zones; i++) {
        const struct zone *n = &z->zone[i];
        bool is_open = n->state == SSD_ZONE_OPEN, closed = n->state == SSD_ZONE_CLOSED;

        if ((n->state == SSD_ZONE_EMPTY) != (n->written == 0 && !is_open) ||
            (n->state == SSD_ZONE_FULL) != (n->written == z->cfg.cap_pages) ||
            n->written > z->cfg.cap_pages || (n->explicitly && !is_open))
            return false; /* Z1 */
        open += is_open;
        active += is_open || closed;
    }
    return open == z->open && active == z->active &&
           (z->cfg.open_max == 0 || open <= z->cfg.open_max);
}

/* ---- create, destroy ---- */

int
ssd_zns_create(const struct ssd_zns_config *cfg, struct ssd_zns **out)
{
    struct ssd_zns *z;

    errno = 0;
    if (cfg->zones == 0 || cfg->cap_pages == 0 || cfg->cap_pages > cfg->zone_pages ||
        (uint64_t)cfg->zones * cfg->zone_pages > UINT32_MAX)
        return CH_FAIL(COHORT_EOPTION, "ssd: %u zones of %u pages, %u of them to be written",
                       cfg->zones, cfg->zone_pages, cfg->cap_pages);
    if (cfg->active_max > 0 && (cfg->open_max == 0 || cfg->open_max > cfg->active_max))
        return CH_FAIL(COHORT_EOPTION, "ssd: %u open zones, but %u active ones", cfg->open_max,
                       cfg->active_max);
    z = calloc(1, sizeof(*z));
    if (z != NULL)
        z->zone = calloc(cfg->zones, sizeof(*z->zone));
    if (z == NULL || z->zone == NULL) {
        free(z);
        return CH_FAIL(COHORT_ENOMEM, "ssd: %u zones", cfg->zones);
    }
    z->cfg = *cfg;
    *out = z;
    return 0;
}

void
ssd_zns_destroy(struct ssd_zns *z)
{
    if (z == NULL)
        return;
    free(z->zone);
    free(z);
}
