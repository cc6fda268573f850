/* wal_test_rig.h - what the log's tests share: a simulated drive with a log on it, the few numbers that a
 * root would hold, and records whose contents tell their serial number. The tests are built twice: with the log in a ring,
 * and, RIG_SEGMENT_BLOCKS > 0, in segments, whose zones are drawn at random and written over once they are given back. */
#ifndef CH_WAL_WAL_TEST_RIG_H
#define CH_WAL_WAL_TEST_RIG_H

#include "dev/dev.h"
#include "wal/wal_internal.h"
#include "zt.h"

#include <stdlib.h>

#ifndef RIG_SEGMENT_BLOCKS
#define RIG_SEGMENT_BLOCKS 0
#endif

enum {
    RIG_SEGMENT = RIG_SEGMENT_BLOCKS * WAL_BLOCK,
    RIG_START = RIG_SEGMENT, /* first LSN */
    RIG_ZONES = 300,
    RIG_NUMBERS = 4096, /* segments, at most, in the life of a log */
    RIG_BASE = 64 << 10,
    RIG_DB_ID = 0x1234567,
};

struct rig {
    struct sim_drive *drive;
    struct dev *dev; /* fault wrapper over the drive */
    struct wal *wal;
    uint64_t ring_bytes, buffer_bytes;
    unsigned user_percent;
    /* the root */
    lsn_t cut, epoch_start;
    uint32_t epoch, epoch_min;
    /* segments */
    struct rt_mutex lock; /* rank SPACE; guards the rest */
    struct ch_prng rng;
    bool used[RIG_ZONES];
    zone_id zone_of[RIG_NUMBERS]; /* of each segment that ever was; freed ones too */
    uint64_t next_number;         /* of the segment to be taken next */
    struct wal_segments known;    /* what the last scan found; copy */
    bool no_zone;                 /* rig_take() fails */
};

/* The zone that wal_kept(from) lies in, or lay in. */
static inline zone_id
rig_zone(const struct rig *r, lsn_t from)
{
    return RIG_SEGMENT == 0
               ? 0
               : r->zone_of[wal_kept(RIG_SEGMENT, from) / (RIG_SEGMENT + !RIG_SEGMENT)];
}

/* Where the block at `lsn` stands. */
static inline uint64_t
rig_offset(const struct rig *r, lsn_t lsn)
{
    if (RIG_SEGMENT == 0)
        return RIG_BASE + lsn % r->ring_bytes;
    return RIG_BASE + (uint64_t)r->zone_of[lsn / (RIG_SEGMENT + !RIG_SEGMENT)] * RIG_SEGMENT +
           lsn % (RIG_SEGMENT + !RIG_SEGMENT);
}

static inline int
rig_take(void *arg, zone_id *out)
{
    struct rig *r = arg;
    zone_id z;

    if (r->no_zone)
        return CH_FAIL(COHORT_EFULL, "no zone");
    rt_lock(&r->lock);
    do
        z = (zone_id)ch_prng_below(&r->rng, RIG_ZONES);
    while (r->used[z]);
    r->used[z] = true;
    r->zone_of[r->next_number++] = z;
    rt_unlock(&r->lock);
    *out = z;
    return 0;
}

/* Given back: discarded, or data is written there. */
static inline void
rig_give_back(struct rig *r, zone_id z)
{
    uint8_t *bytes = malloc(RIG_SEGMENT + 1);

    rt_lock(&r->lock);
    CH_ASSERT(r->used[z]);
    r->used[z] = false;
    memset(bytes, 0, RIG_SEGMENT);
    if (ch_prng_below(&r->rng, 2) == 0)
        ch_prng_fill(&r->rng, bytes, RIG_SEGMENT);
    sim_drive_poke(r->drive, RIG_BASE + (uint64_t)z * RIG_SEGMENT, bytes, RIG_SEGMENT);
    rt_unlock(&r->lock);
    free(bytes);
}

/* What a checkpoint does once its root is durable. */
static inline void
rig_truncate(struct rig *r, lsn_t cut)
{
    zone_id z;

    while (wal_segment_pop(r->wal, cut, &z))
        rig_give_back(r, z);
    wal_truncate(r->wal, cut);
}

/* Remembers the segments that a scan to the tail has found. */
static inline void
rig_scan_note(struct rig *r, const struct wal_scan *s)
{
    const struct wal_segments *g = wal_scan_segments(s);

    if (RIG_SEGMENT == 0)
        return;
    free(r->known.zones);
    r->known = *g;
    r->known.zones = malloc(g->max * sizeof(*g->zones));
    memcpy(r->known.zones, g->zones, g->max * sizeof(*g->zones));
}

static inline void
rig_dev_open(struct zt *t, struct rig *r)
{
    struct dev_fault_plan none = {0};
    struct dev *sim = NULL;

    ZT_OK(t, dev_sim_open(r->drive, &sim));
    ZT_OK(t, dev_fault_open(sim, &none, &r->dev));
}

static inline void
rig_wal_open(struct zt *t, struct rig *r)
{
    struct wal_config cfg = {
        .dev = r->dev,
        .base = RIG_BASE,
        .bytes = r->ring_bytes,
        .buffer_bytes = r->buffer_bytes,
        .db_id = RIG_DB_ID,
        .epoch = r->epoch,
        .start = r->epoch_start,
        .cut = r->cut,
        .user_percent = r->user_percent,
        .segment_bytes = RIG_SEGMENT,
        .zones = RIG_ZONES,
        .segments = &r->known,
        .take = rig_take,
        .take_arg = r,
    };

    ZT_OK(t, wal_create(&cfg, &r->wal));
}

/* A new drive and an empty log on it. */
static inline void
rig_init(struct zt *t, struct rig *r, const char *drive, uint64_t ring_bytes, uint64_t buffer_bytes)
{
    memset(r, 0, sizeof(*r));
    r->ring_bytes = ring_bytes;
    r->buffer_bytes = buffer_bytes;
    r->user_percent = 75;
    r->epoch = r->epoch_min = 1;
    r->cut = r->epoch_start = RIG_START;
    rt_mutex_init(&r->lock, RT_RANK_SPACE, 0);
    ch_prng_init(&r->rng, ch_prng_next(&t->rng));
    ZT_OK(t, sim_drive_create(drive, &r->drive));
    rig_dev_open(t, r);
    if (RIG_SEGMENT != 0) {
        ZT_OK(t, wal_segments_create(&r->known, 1, wal_segments_max(ring_bytes, RIG_SEGMENT)));
        r->next_number = 1;
        ZT_OK(t, rig_take(r, &r->known.zones[0]));
        r->known.count = 1;
    }
    rig_wal_open(t, r);
}

static inline void
rig_fini(struct rig *r)
{
    wal_destroy(r->wal);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
    wal_segments_destroy(&r->known);
    rt_mutex_fini(&r->lock);
}

/* The power goes; the log and its handle with it. */
static inline void
rig_crash(struct zt *t, struct rig *r)
{
    sim_drive_crash(r->drive, ch_prng_next(&t->rng));
    wal_destroy(r->wal);
    dev_close(r->dev);
    r->wal = NULL;
    r->dev = NULL;
}

static inline int
rig_scan_open(struct rig *r, lsn_t from, struct wal_scan **s)
{
    struct wal_scan_config cfg = {
        .dev = r->dev,
        .base = RIG_BASE,
        .bytes = r->ring_bytes,
        .db_id = RIG_DB_ID,
        .from = from,
        .epoch_min = r->epoch_min,
        .epoch_start = r->epoch_start,
        .epoch = r->epoch,
        .segment_bytes = RIG_SEGMENT,
        .zones = RIG_ZONES,
        .first_zone = rig_zone(r, from),
    };

    return wal_scan_open(&cfg, s);
}

/* Zones that no scanned block names belong to nobody any more. */
static inline void
rig_reconcile(struct rig *r)
{
    memset(r->used, 0, sizeof(r->used));
    for (uint32_t i = 0; i < r->known.count; i++) {
        r->used[r->known.zones[i]] = true;
        r->zone_of[r->known.first + i] = r->known.zones[i];
    }
    r->next_number = r->known.first + r->known.count;
}

/* After a scan that ended at `tail`: the next generation, as its root would say. */
static inline void
rig_next_epoch(struct zt *t, struct rig *r, lsn_t tail)
{
    r->epoch++;
    r->epoch_start = tail;
    if (RIG_SEGMENT != 0)
        rig_reconcile(r);
    rig_wal_open(t, r);
}

/* Payload of record `serial`: the serial, then bytes drawn from it. */
static inline void
rig_payload(uint64_t serial, uint8_t *buf, uint32_t bytes)
{
    struct ch_prng p;

    ch_prng_init(&p, serial);
    ch_prng_fill(&p, buf, bytes);
    ch_put64(buf, serial);
}

static inline bool
rig_payload_ok(const struct wal_record *rec)
{
    uint8_t *want = malloc(rec->bytes);
    bool ok;

    rig_payload(ch_get64(rec->data), want, rec->bytes);
    ok = memcmp(want, rec->data, rec->bytes) == 0;
    free(want);
    return ok && rec->type == (uint8_t)ch_get64(rec->data);
}

/* Appends record `serial` of `bytes` >= 8 payload bytes in two parts under the ticket. */
static inline lsn_t
rig_append(struct wal *w, struct wal_ticket *ticket, uint64_t serial, uint32_t bytes,
           enum ch_cause cause)
{
    uint8_t *buf = malloc(bytes);
    struct wal_part parts[2] = {{buf, bytes / 3}, {buf + bytes / 3, bytes - bytes / 3}};
    lsn_t end;

    rig_payload(serial, buf, bytes);
    end = wal_append(w, ticket, (uint8_t)serial, cause, parts, 2);
    free(buf);
    return end;
}

/* Reserve, append, release. Returns 0 or what the reservation said. */
static inline int
rig_log(struct wal *w, enum wal_class c, uint64_t serial, uint32_t bytes, lsn_t *end)
{
    struct wal_ticket ticket = {0};
    int rc = wal_reserve(w, c, bytes + WAL_RECORD_HEADER, &ticket);

    if (rc == 0)
        *end = rig_append(w, &ticket, serial, bytes, CH_WAL);
    wal_release(w, &ticket);
    return rc;
}

#endif
