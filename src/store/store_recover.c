/* store_recover.c - the store after a crash, and under examination: replay, reconcile, zone-table pages, verify.
 *
 * Order of recovery (boot): zone-table pages and map pages of the checkpoint are loaded, the MAP records from the
 * root's map_start on are replayed, then store_reconcile() recounts. Each may run again after a crash in it: replay is
 * absolute (R7), and reconcile writes nothing but resets of zones that no page is mapped into.
 *
 *   V1 (S3) after reconcile a zone's live bytes are what the map says; states follow from them: no live byte = FREE and
 *      reset, else SEALED, whatever the checkpoint knew. META and RETIRED are believed; LOG is what the log itself
 *      says (store_log_zones()).
 *   V2 (S1) nothing is reset before what the replay read is durable: reconcile begins with a device flush.
 *   V3 verify needs bounded memory: one bitmap of VERIFY_SLOTS slots at a time, a pass over the map for each.
 *
 * Threads: recovery is single-threaded; verify wants an idle store.
 */
#include "store/store_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/status.h"
#include "space/heat.h"

/* ---- recovery ---- */

static int
replay_entry(struct store *s, page_id pid, place_t p)
{
    uint64_t shard = UINT64_C(1) << map_shard(pid);
    place_t flags = p & PLACE_FLAGS;
    place_t at = p & ~PLACE_FLAGS;
    int rc;

    if (pid >= map_pages_max(s->map) || s->ops->pid_check(s, pid) != 0 ||
        (p != PLACE_NONE && (store_place_check(s, pid, at) != 0 || !s->ops->place_ok(s, pid, at) ||
                             flags == PLACE_FLAGS)))
        return CH_FAIL(COHORT_ELOG, "MAP record: page %" PRIu64 " at place %#" PRIx64, pid, p);
    rc = store_pid_note(s, pid);
    if (rc == 0 && flags == PLACE_DELTA)
        rc = map_ensure_delta(s->map, pid);
    if (rc != 0)
        return rc;
    map_lock(s->map, shard);
    /* R7: the plane that an entry does not name is as the checkpoint or an earlier record left it. */
    if (flags == PLACE_DELTA)
        (void)map_set_delta(s->map, pid, at);
    else if (flags == PLACE_KEEP)
        (void)map_set_base(s->map, pid, at);
    else
        (void)map_set(s->map, pid, at);
    map_unlock(s->map, shard);
    return 0;
}

int
store_replay(struct store *s, const uint8_t *data, uint32_t bytes)
{
    unsigned n;

    if (bytes < STORE_RECORD_HEADER || data[0] == 0 || data[0] > STORE_RECORD_VERSION ||
        data[1] != 0)
        return CH_FAIL(COHORT_ELOG, "MAP record of %u bytes: unknown version or flags", bytes);
    n = ch_get16(data + 2);
    if (n == 0 || n > CH_BATCH_MAX || bytes != STORE_RECORD_HEADER + n * STORE_RECORD_ENTRY)
        return CH_FAIL(COHORT_ELOG, "MAP record of %u bytes: %u entries", bytes, n);
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *e = data + STORE_RECORD_HEADER + i * STORE_RECORD_ENTRY;
        place_t p = ch_get64(e + 6);
        int rc;

        if ((p & PLACE_FLAGS) != 0 && (data[0] == 1 || s->cfg.kind == STORE_INPLACE))
            return CH_FAIL(COHORT_ELOG, "MAP record: flags of place %#" PRIx64, p);
        rc = replay_entry(s, ch_get48(e), p);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
reconcile_place(struct store *s, page_id pid, place_t p, uint64_t *live)
{
    zone_id z = store_zone_of(s, p);
    int rc = store_place_check(s, pid, p);

    if (rc != 0)
        return rc;
    if (z >= zone_count(s->zones)) {
        if (!s->cfg.growable)
            return CH_FAIL(COHORT_EMAP, "page %" PRIu64 ": zone %u of %u", pid, z,
                           zone_count(s->zones));
        rc = zone_grow(s->zones, z + 1 - zone_count(s->zones));
        if (rc != 0)
            return rc;
    }
    live[z] += place_bytes(p);
    if (live[z] > s->cfg.zone_bytes)
        return CH_FAIL(COHORT_EMAP, "zone %u: %" PRIu64 " live bytes", z, live[z]);
    return 0;
}

/* Live bytes of each zone, from the map; adds zones that the file grew by after the checkpoint. */
static int
reconcile_count(struct store *s, uint64_t *live)
{
    uint64_t high = map_pid_high(s->map);

    for (page_id pid = 0; pid < high; pid++) {
        place_t base = map_get(s->map, pid);
        place_t delta = map_delta(s->map, pid);
        int rc = 0;

        if (base != PLACE_NONE)
            rc = reconcile_place(s, pid, base, live);
        if (rc == 0 && delta != PLACE_NONE)
            rc = base != PLACE_NONE
                     ? reconcile_place(s, pid, delta, live)
                     : CH_FAIL(COHORT_EMAP, "page %" PRIu64 ": a delta without a base", pid);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
reconcile_zone(struct store *s, zone_id z, uint64_t live, bool *reset)
{
    struct zone_info info;

    zone_info(s->zones, z, &info);
    *reset = false;
    if (info.state == ZONE_META || info.state == ZONE_RETIRED || info.state == ZONE_LOG) {
        if (live != 0)
            return CH_FAIL(COHORT_EMAP, "zone %u: pages in a zone of state %d", z, (int)info.state);
        return 0;
    }
    /* Where the zone was open, images that nobody published may stand behind the known cursor. */
    *reset = live == 0;
    info.state = live == 0 ? ZONE_FREE : ZONE_SEALED;
    info.cursor = live == 0 ? 0 : s->zone_slots;
    info.generation += live == 0;
    info.inflight = info.pins = 0;
    info.live_bytes = 0;
    info.empty_lsn = 0;
    zone_restore(s->zones, z, &info);
    if (live != 0)
        zone_live_add(s->zones, z, live);
    return 0;
}

static int
reconcile_reset(struct store *s, zone_id first, uint32_t count)
{
    if (count == 0 || !s->cfg.discard)
        return 0;
    return dev_reset(s->cfg.dev, s->cfg.zones_base + first * s->cfg.zone_bytes,
                     count * s->cfg.zone_bytes);
}

static int
reconcile_zones(struct store *s, const uint64_t *live)
{
    uint32_t run = 0; /* empty zones right before z that are to be reset in one request */
    zone_id z;
    int rc = 0;

    for (z = 0; rc == 0 && z < zone_count(s->zones); z++) {
        bool reset;

        rc = reconcile_zone(s, z, live[z], &reset);
        if (rc == 0 && reset) {
            run++;
        } else if (rc == 0) {
            rc = reconcile_reset(s, z - run, run);
            run = 0;
        }
    }
    if (rc == 0)
        rc = reconcile_reset(s, z - run, run);
    return rc;
}

int
store_log_zones(struct store *s, const zone_id *zones, uint32_t n)
{
    struct zone_info info;

    for (zone_id z = 0; z < zone_count(s->zones); z++) {
        zone_info(s->zones, z, &info);
        if (info.state != ZONE_LOG)
            continue;
        info.state = ZONE_SEALED; /* free, unless it is among those below */
        zone_restore(s->zones, z, &info);
    }
    for (uint32_t i = 0; i < n && !CH_BUG(LOG_ZONE_LOST); i++) {
        if (zones[i] >= zone_count(s->zones))
            return CH_FAIL(COHORT_ELOG, "log: zone %u of %u", zones[i], zone_count(s->zones));
        zone_info(s->zones, zones[i], &info);
        if (info.state == ZONE_META || info.state == ZONE_RETIRED || info.state == ZONE_LOG)
            return CH_FAIL(COHORT_ELOG, "log: zone %u is in state %d", zones[i], (int)info.state);
        info = (struct zone_info){
            .state = ZONE_LOG, .generation = info.generation, .stream = ZONE_STREAM_LOG};
        zone_restore(s->zones, zones[i], &info);
    }
    return 0;
}

int
store_reconcile(struct store *s)
{
    uint64_t *live = NULL;
    int rc;

    /* What pass 1 read may still sit in the drive's cache: a zone that it emptied must not be written before that
     * is durable (S1). */
    rc = dev_flush(s->cfg.dev);
    if (rc != 0 || s->cfg.kind == STORE_INPLACE)
        goto out;
    live = calloc(s->cfg.zones_max, sizeof(*live));
    if (live == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "live bytes of %u zones", s->cfg.zones_max);
        goto out;
    }
    rc = reconcile_count(s, live);
    if (rc == 0)
        rc = reconcile_zones(s, live);
    if (rc == 0)
        store_census(s);
out:
    free(live);
    return rc;
}

/* ---- zone-table pages ---- */

/* 0 1 state | 1 1 stream | 2 2 mean life, logarithmic | 4 4 cursor | 8 8 live bytes | 16 8 empty LSN | 24 4 generation
 * | 28 4 clock at which it was sealed. Behind the zones' pages comes what the placement has learned (placing.c). */
enum {
    ZONE_ENTRY = 32,
    ZONE_ENTRIES = META_PAGE_PAYLOAD / ZONE_ENTRY,
    LIFE_UNKNOWN = 0,
    LIFE_NEVER = UINT16_MAX,
};

static uint16_t
life_encode(double rate)
{
    if (!(rate > 0))
        return LIFE_UNKNOWN;
    if (rate * PLACE_LIFE_MAX < 1)
        return LIFE_NEVER;
    return (uint16_t)(1 + heat_log2((uint32_t)ch_max_u64((uint64_t)(1 / rate), 1)));
}

static double
life_decode(uint16_t life)
{
    if (life == LIFE_UNKNOWN)
        return 0;
    return life == LIFE_NEVER ? 1.0 / UINT32_MAX : 1.0 / heat_exp2((uint32_t)life - 1);
}

static uint64_t
zone_entry_pages(const struct store *s)
{
    return ch_div_up(zone_count(s->zones), ZONE_ENTRIES);
}

uint64_t
store_zone_pages(const struct store *s)
{
    return zone_entry_pages(s) + placing_pages(s);
}

void
store_zone_page_copy(struct store *s, uint64_t k, uint8_t *payload)
{
    uint32_t count = zone_count(s->zones);
    struct zone_info info;

    memset(payload, 0, META_PAGE_PAYLOAD);
    if (k >= zone_entry_pages(s)) {
        placing_page_copy(s, payload);
        return;
    }
    for (uint32_t i = 0; i < ZONE_ENTRIES && k * ZONE_ENTRIES + i < count; i++) {
        uint8_t *e = payload + (size_t)i * ZONE_ENTRY;

        zone_info(s->zones, (zone_id)(k * ZONE_ENTRIES + i), &info);
        e[0] = (uint8_t)info.state;
        e[1] = info.stream;
        ch_put16(e + 2, life_encode(info.rate));
        ch_put32(e + 4, info.cursor);
        ch_put64(e + 8, info.live_bytes);
        ch_put64(e + 16, info.empty_lsn);
        ch_put32(e + 24, info.generation);
        ch_put32(e + 28, info.sealed);
    }
}

static int
zone_entry_load(struct store *s, zone_id z, const uint8_t *e)
{
    struct zone_info info = {0};

    if (e[0] >= ZONE_STATES || ch_get32(e + 4) > s->zone_slots)
        return CH_FAIL(COHORT_EMAP, "zone table: zone %" PRIu32 " in state %u", z, e[0]);
    info.state = (enum zone_state)e[0];
    /* What was going on with it ended with the process; its live bytes come from the map (store_reconcile()). */
    if (info.state == ZONE_OPEN || info.state == ZONE_COLLECT || info.state == ZONE_DEAD)
        info.state = ZONE_SEALED;
    info.stream = e[1] < ZONE_STREAMS ? e[1] : ZONE_STREAM_USER;
    info.rate = life_decode(ch_get16(e + 2));
    info.cursor = ch_get32(e + 4);
    info.empty_lsn = ch_get64(e + 16);
    info.generation = ch_get32(e + 24);
    info.sealed = ch_get32(e + 28);
    zone_restore(s->zones, z, &info);
    return 0;
}

int
store_zone_page_load(struct store *s, uint64_t k, const uint8_t *payload)
{
    int rc = 0;

    if (payload[0] == PLACING_PAGE) {
        placing_page_load(s, payload);
        return 0;
    }
    for (uint32_t i = 0; rc == 0 && i < ZONE_ENTRIES; i++) {
        const uint8_t *e = payload + (size_t)i * ZONE_ENTRY;
        uint64_t z = k * ZONE_ENTRIES + i;

        if (z < zone_count(s->zones))
            rc = zone_entry_load(s, (zone_id)z, e);
        else if (e[0] != ZONE_FREE)
            rc =
                CH_FAIL(COHORT_EMAP, "zone table: zone %" PRIu64 " of %u", z, zone_count(s->zones));
    }
    return rc;
}

/* ---- verify ---- */

enum {
    VERIFY_SLOTS = 1 << 18,                   /* per pass: 1 GiB of zones */
    VERIFY_UNITS = CH_SLOT_BYTES / PACK_STEP, /* bits per slot */
    VERIFY_LINE = 200,
};

struct verify {
    struct store *s;
    void (*report)(void *arg, const char *line);
    void *arg;
    uint64_t findings;
    uint64_t *live; /* per zone */
    uint64_t pass_slots;
    uint8_t *taken; /* a bit per 16 bytes of pass_slots slots */
    uint8_t *buf;   /* STORE_READ_MANY pages */
    page_id pids[STORE_READ_MANY];
    unsigned batch;
    bool no_memory; /* something could not be looked at: no finding */
};

static void finding(struct verify *v, const char *fmt, ...) CH_PRINTF(2, 3);

static void
finding(struct verify *v, const char *fmt, ...)
{
    char line[VERIFY_LINE];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    v->findings++;
    if (v->report != NULL)
        v->report(v->arg, line);
}

static void
verify_read(struct verify *v)
{
    void *bufs[STORE_READ_MANY];
    int rcs[STORE_READ_MANY];

    for (unsigned i = 0; i < v->batch; i++)
        bufs[i] = v->buf + (size_t)i * CH_PAGE_BYTES;
    store_read_many(v->s, v->pids, bufs, rcs, NULL, v->batch);
    for (unsigned i = 0; i < v->batch; i++)
        if (rcs[i] == COHORT_ENOMEM)
            v->no_memory = true;
        else if (rcs[i] != 0)
            finding(v, "page %" PRIu64 " at place %#" PRIx64 ": %s", v->pids[i],
                    map_get(v->s->map, v->pids[i]), ch_strerror(rcs[i]));
    v->batch = 0;
}

/* First pass: every place is well formed, its page reads back, live bytes are summed up. */
static void
verify_pages(struct verify *v)
{
    struct store *s = v->s;
    uint64_t high = map_pid_high(s->map);

    for (page_id pid = 0; pid < high; pid++) {
        place_t p = map_get(s->map, pid);

        if (p == PLACE_NONE)
            continue;
        if (store_place_check(s, pid, p) != 0 || !s->ops->place_ok(s, pid, p)) {
            finding(v, "page %" PRIu64 ": place %#" PRIx64 " can't be", pid, p);
            continue;
        }
        v->live[store_zone_of(s, p)] += place_bytes(p);
        p = map_delta(s->map, pid);
        if (p != PLACE_NONE && store_place_check(s, pid, p) != 0) {
            finding(v, "page %" PRIu64 ": place %#" PRIx64 " of its delta can't be", pid, p);
            continue;
        }
        if (p != PLACE_NONE)
            v->live[store_zone_of(s, p)] += place_bytes(p);
        v->pids[v->batch++] = pid;
        if (v->batch == STORE_READ_MANY)
            verify_read(v);
    }
    if (v->batch > 0)
        verify_read(v);
}

/* Marks the 16-byte units of the place; false when one is marked already. */
static bool
verify_mark(struct verify *v, uint64_t slot, place_t p)
{
    uint64_t unit = slot * VERIFY_UNITS + place_offset(p) / PACK_STEP;
    uint64_t end =
        ch_min_u64(unit + place_bytes(p) / PACK_STEP, v->pass_slots * (uint64_t)VERIFY_UNITS);
    bool ok = true;

    for (; unit < end; unit++) {
        uint8_t bit = (uint8_t)(1U << unit % 8);

        ok = ok && (v->taken[unit / 8] & bit) == 0;
        v->taken[unit / 8] |= bit;
    }
    return ok;
}

static void
verify_overlap(struct verify *v, uint64_t first, page_id pid, place_t p)
{
    uint64_t slot = place_slot(p);

    if (p == PLACE_NONE || slot < first || slot - first >= v->pass_slots ||
        store_place_check(v->s, pid, p) != 0)
        return;
    if (!verify_mark(v, slot - first, p))
        finding(v, "page %" PRIu64 ": place %#" PRIx64 " overlaps another", pid, p);
}

/* S4: no two places overlap, for the pass_slots slots from `first` on. */
static void
verify_overlaps(struct verify *v, uint64_t first)
{
    struct store *s = v->s;
    uint64_t high = map_pid_high(s->map);

    memset(v->taken, 0, (size_t)v->pass_slots * VERIFY_UNITS / 8);
    for (page_id pid = 0; pid < high; pid++) {
        verify_overlap(v, first, pid, map_get(s->map, pid));
        verify_overlap(v, first, pid, map_delta(s->map, pid));
    }
}

/* S3. In place the table counts nothing. */
static void
verify_zones(struct verify *v)
{
    struct zone_info info;

    for (zone_id z = 0; z < zone_count(v->s->zones) && v->s->cfg.kind == STORE_OOP; z++) {
        zone_info(v->s->zones, z, &info);
        if (info.live_bytes != v->live[z])
            finding(v, "zone %u: %" PRIu64 " live bytes, the map says %" PRIu64, z, info.live_bytes,
                    v->live[z]);
        if (v->live[z] != 0 &&
            (info.state == ZONE_FREE || info.state == ZONE_META || info.state == ZONE_LOG))
            finding(v, "zone %u: pages in a zone of state %d", z, (int)info.state);
    }
    if (!zone_check(v->s->zones))
        finding(v, "the zone table contradicts itself");
    if (!map_check(v->s->map))
        finding(v, "the map contradicts itself");
}

uint64_t
store_verify(struct store *s, void (*report)(void *arg, const char *line), void *arg)
{
    struct verify v = {.s = s, .report = report, .arg = arg};
    uint64_t base = s->cfg.zones_base / CH_SLOT_BYTES;
    uint64_t slots = (uint64_t)s->cfg.zones_max * s->zone_slots;

    v.pass_slots = ch_min_u64(slots, VERIFY_SLOTS);
    v.live = calloc(s->cfg.zones_max, sizeof(*v.live));
    v.taken = calloc((size_t)v.pass_slots * VERIFY_UNITS / 8, 1);
    v.buf = ch_alloc_aligned((size_t)STORE_READ_MANY * CH_PAGE_BYTES);
    if (v.live == NULL || v.taken == NULL || v.buf == NULL) {
        v.no_memory = true;
    } else {
        /* GC, which goes on in an idle database, would move pages between the counts. */
        rt_lock(&s->lock);
        verify_pages(&v);
        for (uint64_t first = 0; first < slots; first += v.pass_slots)
            verify_overlaps(&v, base + first);
        verify_zones(&v);
        rt_unlock(&s->lock);
    }
    free(v.live);
    free(v.taken);
    ch_free_aligned(v.buf);
    return v.no_memory ? STORE_NOT_VERIFIED : v.findings;
}
