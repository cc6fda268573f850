/* wal_test_rig.h - what the log's tests share: a simulated drive with a ring on it, the few numbers that a
 * root would hold, and records whose contents tell their serial number. */
#ifndef CH_WAL_WAL_TEST_RIG_H
#define CH_WAL_WAL_TEST_RIG_H

#include "dev/dev.h"
#include "wal/wal_internal.h"
#include "zt.h"

#include <stdlib.h>

enum {
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
};

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
    ZT_OK(t, sim_drive_create(drive, &r->drive));
    rig_dev_open(t, r);
    rig_wal_open(t, r);
}

static inline void
rig_fini(struct rig *r)
{
    wal_destroy(r->wal);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
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
    };

    return wal_scan_open(&cfg, s);
}

/* After a scan that ended at `tail`: the next generation, as its root would say. */
static inline void
rig_next_epoch(struct zt *t, struct rig *r, lsn_t tail)
{
    r->epoch++;
    r->epoch_start = tail;
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
