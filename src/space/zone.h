/* zone.h - the table of zones: which are free, open, sealed or being collected; pins and live bytes.
 *
 * Pure bookkeeping: no I/O, no clock. Own lock inside (rank SPACE), taken by every function except the
 * pin functions, which are atomics. Zone z covers slots [first_slot + z * slots, ...) of the device.
 *
 * States: FREE -> OPEN -> SEALED -> (COLLECT ->) DEAD -> FREE; META (holds map extents), RETIRED (bad), LOG (a segment of
 * the log: FREE -> LOG -> FREE).
 *   Z1 live_bytes of a zone = sum over the places mapped into it (S3).
 *   Z2 a zone with in-flight spans (reserved, neither committed nor abandoned) is no victim and not DEAD.
 *   Z3 slots of a zone are handed out once between two resets (S4).
 *   Z4 a user stream never takes the last `reserve` free zones (S6); in a shared pool, free zones and the rest of the open ones
 *      together never fall below `reserve` zones by a user stream.
 *   Z9 nobody but the log takes the free zones that are set aside for it: log_zones, less those that it has (R11). Where
 *      this header says how many zones are free, they do not count.
 */
#ifndef CH_SPACE_ZONE_H
#define CH_SPACE_ZONE_H

#include "base/base.h"
#include "space/victim.h"

enum zone_state {
    ZONE_FREE,
    ZONE_OPEN,
    ZONE_SEALED,
    ZONE_COLLECT,
    ZONE_DEAD,
    ZONE_META,
    ZONE_RETIRED,
    ZONE_LOG
};
#define ZONE_STATES (ZONE_LOG + 1)

/* Who writes: user pages and GC survivors in up to ZONE_CLASSES classes each (place.h), the log, meta pages. A function that
 * takes an origin takes the first stream of it. */
enum zone_stream {
    ZONE_STREAM_USER = 0,
    ZONE_CLASSES = 16,
    ZONE_STREAM_GC = ZONE_STREAM_USER + ZONE_CLASSES,
    ZONE_STREAM_LOG = ZONE_STREAM_GC + ZONE_CLASSES,
    ZONE_STREAM_META,
    ZONE_STREAMS
};

struct zone_config {
    uint64_t first_slot; /* device slot of zone 0 */
    uint32_t slots;      /* slots per zone */
    uint32_t zones_max;  /* table size bound */
    uint32_t zones;      /* zones that exist now (files grow: zone_grow) */
    uint32_t reserve;    /* free zones kept for GC */
    uint32_t log_zones;  /* set aside for the log */
    uint32_t open_max;   /* zone_set_open_max() */
    bool shared;         /* users' writes and GC share a class' zone; else each has its own */
};
struct zone_span {
    zone_id zone;
    uint32_t slot_first;
    uint32_t slot_count;
};
struct zone_info {
    enum zone_state state;
    uint32_t cursor; /* next slot to hand out */
    uint32_t inflight;
    uint32_t pins;
    uint64_t live_bytes;
    lsn_t empty_lsn;     /* end of the last MAP record that took a place out (S1) */
    uint32_t generation; /* resets so far */
    uint8_t stream;      /* that opened it last */
    uint32_t sealed;     /* clock (zone_note()) at which it was sealed */
    double rate; /* mean of 1 / life of the pages written to it, per clock unit; 0 = unknown */
};
struct zone_heat { /* of pages written to a zone; lives in clock units (heat.h) */
    double rates;  /* sum of 1 / life over the pages of which it is known, never = 0 */
    uint32_t known;
};

struct zone_table;
CH_NODISCARD int zone_table_create(const struct zone_config *cfg, struct zone_table **out);
void zone_table_destroy(struct zone_table *t);
size_t zone_table_memory(const struct zone_table *t);

/* Up to `slots` (1 ..) consecutive slots for `stream`; fewer at a zone's end. Opens a FREE zone (lowest
 * id) as needed; where no more may be opened (Z4, open_max), the slots come from the open zone of the nearest class of the same
 * pool: the user's and GC's classes are one pool when `shared`, else one each. EFULL, nothing changed, when there is none
 * either. Zone gets one in-flight mark. */
CH_NODISCARD int zone_reserve(struct zone_table *t, enum zone_stream stream, uint32_t slots,
                              struct zone_span *out);
/* Slots in a row that zone_reserve() would hand out now without opening a zone; 0: it would open one. */
uint32_t zone_contiguous(const struct zone_table *t, enum zone_stream stream);
/* Slots that zone_reserve() would hand out now, call after call, to the streams of `stream`'s origin. */
uint64_t zone_room(const struct zone_table *t, enum zone_stream stream);
/* Most zones that a pool has open at once; 0 = one a class. */
void zone_set_open_max(struct zone_table *t, uint32_t open_max);
/* What was written to an OPEN or just sealed zone, at `now` on the placement's clock (32 bit, wrapping). */
void zone_note(struct zone_table *t, zone_id z, uint32_t now, const struct zone_heat *heat);
/* The span's images are published (or known dead): in-flight mark gone. */
void zone_commit(struct zone_table *t, const struct zone_span *s);
/* After a failed write: slots stay unusable until reset. `retire`: the zone takes no more writes; once
 * empty it becomes RETIRED instead of FREE. */
void zone_abandon(struct zone_table *t, const struct zone_span *s, bool retire);
/* Seals the open zone of a stream early (space pressure, close). */
void zone_seal(struct zone_table *t, enum zone_stream stream);
/* Seals the open zones of user and GC classes in which at least `dead_bytes` of what was written is dead, nothing being in
 * flight: they can be victims then. Returns how many. */
uint32_t zone_seal_sparse(struct zone_table *t, uint64_t dead_bytes);

zone_id zone_of_slot(const struct zone_table *t, uint64_t slot); /* CH_ZONE_NONE outside */
uint64_t zone_slot(const struct zone_table *t, zone_id z, uint32_t index);
void zone_live_add(struct zone_table *t, zone_id z, uint64_t bytes);
void zone_live_sub(struct zone_table *t, zone_id z, uint64_t bytes, lsn_t lsn);

/* Atomics, no lock (R17): pin, then read the map again; a pinned zone is not reset. */
void zone_pin(struct zone_table *t, zone_id z);
void zone_unpin(struct zone_table *t, zone_id z);

/* Greedy victim: the SEALED zone without in-flight spans with the fewest live bytes; it becomes COLLECT.
 * NOTFOUND when there is none with live < limit_bytes. */
CH_NODISCARD int zone_victim(struct zone_table *t, uint64_t limit_bytes, zone_id *out);
/* The same by the policy's score at `now` instead of live bytes. Looks at up to ZONE_VICTIM_SCAN zones. */
enum {
    ZONE_VICTIM_SCAN = 32768
};
CH_NODISCARD int zone_victim_best(struct zone_table *t, enum victim_policy policy, uint32_t now,
                                  uint64_t limit_bytes, zone_id *out);
/* COLLECT -> SEALED: given up. */
void zone_victim_release(struct zone_table *t, zone_id z);
/* SEALED or COLLECT zones with no live byte and nothing in flight become DEAD; then returns one DEAD zone
 * whose empty_lsn <= durable and that no reader pins; the caller resets it on the device and calls
 * zone_free() (or zone_retire()). NOTFOUND when none. *wait_lsn (may be NULL): smallest empty_lsn that a
 * DEAD zone still waits for, 0 = none waits for the log. */
CH_NODISCARD int zone_next_dead(struct zone_table *t, lsn_t durable, zone_id *out, lsn_t *wait_lsn);
/* Zones whose empty_lsn lies in [from, to] wait for `lsn` instead: what stood for those numbers has happened. */
void zone_settle(struct zone_table *t, lsn_t from, lsn_t to, lsn_t lsn);
void zone_free(struct zone_table *t, zone_id z);
void zone_retire(struct zone_table *t, zone_id z);
/* The lowest FREE zone at or above `from`; NOTFOUND. */
CH_NODISCARD int zone_next_free(const struct zone_table *t, zone_id from, zone_id *out);
/* FREE -> DEAD and the caller's, as if zone_next_dead() had handed it out: nobody else can take it until zone_free(). False
 * when it is not FREE any more. */
bool zone_claim(struct zone_table *t, zone_id z);
/* FREE -> LOG, for its next segment; while it has fewer than log_zones there is one. EFULL. zone_free() gives it back, reset. */
CH_NODISCARD int zone_take_log(struct zone_table *t, zone_id *out);
/* Zones that the log has, and those that it has or may still take. */
uint32_t zone_log_count(const struct zone_table *t);
uint32_t zone_log_aside(const struct zone_table *t);
/* FREE -> META for map extents; EFULL. */
CH_NODISCARD int zone_take_meta(struct zone_table *t, zone_id *out);
/* Adds zones at the end; EFULL at zones_max. */
CH_NODISCARD int zone_grow(struct zone_table *t, uint32_t count);

uint32_t zone_count(const struct zone_table *t);
uint32_t zone_free_count(const struct zone_table *t); /* FREE zones, but those set aside (Z9) */
uint32_t zone_dead_count(const struct zone_table *t);
/* Of them, those whose last record was not durable when zone_next_dead() last looked. */
uint32_t zone_waiting_count(const struct zone_table *t);
uint64_t zone_live_total(const struct zone_table *t);
void zone_info(const struct zone_table *t, zone_id z, struct zone_info *out);
/* Recovery: installs a zone's state as given (OPEN comes back as SEALED). */
void zone_restore(struct zone_table *t, zone_id z, const struct zone_info *in);
bool zone_check(const struct zone_table *t);

#endif
