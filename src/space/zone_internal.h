/* zone_internal.h - the zone table's memory, shared by zone.c (what callers do) and zone_sets.c (which set a
 * zone stands in). The file head of zone.c describes both. Everything here needs the table's lock.
 */
#ifndef CH_SPACE_ZONE_INTERNAL_H
#define CH_SPACE_ZONE_INTERNAL_H

#include "rt/rt.h"
#include "space/zone.h"

#define ZONE_POS_NONE UINT32_MAX

struct zone {
    uint64_t live_bytes;
    lsn_t empty_lsn;
    _Atomic uint32_t pins; /* zone_pin/zone_unpin <-> zone_next_dead, see the head of zone.c */
    uint32_t cursor;
    uint32_t inflight;
    uint32_t generation;
    uint32_t pos;    /* in `victims` or `dead`, ZONE_POS_NONE = in neither */
    uint8_t state;   /* enum zone_state */
    bool retire;     /* no more writes: RETIRED once it is empty */
    uint8_t stream;  /* enum zone_stream that opened it */
    uint32_t sealed; /* clock */
    uint32_t known;  /* pages in `rates` */
    double rates;    /* sum of 1 / life */
    bool handed_out; /* DEAD and with the caller of zone_next_dead() */
};

struct zone_table {
    struct rt_mutex mutex;
    struct rt_mutex *lock; /* = &mutex, for functions that take a const table */
    struct zone_config cfg;
    _Atomic uint32_t zones; /* grows: zone_grow (release) <-> zone_of_slot, zone_count (acquire) */
    struct zone *zone;
    uint32_t *victims, victim_count;
    uint32_t *dead, waiting, ready;
    uint64_t *free_words, *free_summary; /* summary bit: the word is not zero */
    uint32_t free_count, dead_count;     /* dead: handed-out ones included */
    zone_id open[ZONE_STREAMS];          /* by zone_entry() */
    uint32_t now;                        /* latest clock of zone_note() */
    uint32_t scan_from;                  /* where the next bounded scan for victims begins */
    _Atomic uint64_t live_total;         /* changed under lock, read without: a count, relaxed */
};

/* Which entry of open[] the stream writes to, and its pool's entries [first, end). */
static inline unsigned
zone_entry(const struct zone_table *t, unsigned stream)
{
    return t->cfg.shared && stream < ZONE_STREAM_LOG ? stream % ZONE_CLASSES : stream;
}

static inline unsigned
zone_pool(const struct zone_table *t, unsigned stream)
{
    unsigned e = zone_entry(t, stream);

    return e < ZONE_STREAM_LOG ? e / ZONE_CLASSES * ZONE_CLASSES : e;
}

static inline unsigned
zone_pool_end(const struct zone_table *t, unsigned stream)
{
    unsigned e = zone_entry(t, stream);

    return e < ZONE_STREAM_LOG ? zone_pool(t, stream) + ZONE_CLASSES : e + 1;
}

static inline size_t
zone_words(size_t bits)
{
    return (bits + 63) / 64;
}

/* Z5 */
static inline bool
zone_is_victim(const struct zone *zn)
{
    return zn->state == ZONE_SEALED && zn->inflight == 0;
}

/* Enters a zone that is in no set into that of `state`; zone_leave() is the inverse. */
void zone_enter(struct zone_table *t, zone_id z, enum zone_state state);
void zone_leave(struct zone_table *t, zone_id z);
/* A SEALED zone's last span is over: it enters the victims. */
void zone_enter_victims(struct zone_table *t, zone_id z);
/* The live bytes of a zone among the victims have changed. */
void zone_victim_moved(struct zone_table *t, zone_id z);
/* The lowest free zone; there is one. */
zone_id zone_free_lowest(const struct zone_table *t);
/* The lowest free zone at or above `from`; CH_ZONE_NONE. */
zone_id zone_free_from(const struct zone_table *t, zone_id from);
/* Waiting DEAD zones whose empty_lsn is durable become ready (S1). */
void zone_wait_over(struct zone_table *t, lsn_t durable);
/* A ready zone leaves with the caller of zone_next_dead(). */
void zone_hand_out(struct zone_table *t, zone_id z);

#endif
