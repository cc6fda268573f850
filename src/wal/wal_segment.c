/* wal_segment.c - which zones the log lies in, when it is not a ring.
 *
 *     kept     cut                     durable    pos
 *      |        |                         |        |          ahead
 *   +-[z7]----------+-[z2]----------+-[z9]----------+-[z4]----------+
 *      segment n       n + 1           n + 2           n + 3
 *       ... next = z2   ... next = z9   ... next = z4
 *
 * Invariants:
 *   G1  every block in [wal_kept(cut), sealed) has its segment in the table, and the table has no gap.
 *   G2  the last block of a segment names the zone of the next one; so do those that are sealed once that is known, which is
 *       from half of the segment on. What a block names never changes: neither while the log lives nor across a recovery,
 *       which goes on with the table that its scan has put together.
 *   G3 (R16) a segment leaves the table, and its zone the log, only when a root is durable whose log begins behind it.
 *   G4  no more than wal_segments_max() are in use: the blocks that W4 allows, the one before the cut, one segment ahead.
 *   G5  a block is known by its LSN, its epoch and the database: what a zone held before, log blocks of an earlier lap
 *       included, is never taken for the segment that it holds now (C1 to C3, wal_scan.c).
 *
 * Locking: the table is guarded by the log's lock. Only the leader adds, only a checkpoint removes, so what the leader has
 * looked up for its group stays. take() is called without the lock.
 *
 * Crash: a zone that was taken and that no block names is not part of the log: recovery frees it (zone.h).
 */
#include "base/bug.h"
#include "wal/wal_internal.h"

#include <inttypes.h>
#include <stdlib.h>

int
wal_segments_create(struct wal_segments *s, uint64_t first, uint64_t max)
{
    *s = (struct wal_segments){.first = first, .max = (uint32_t)max};
    CH_ASSERT(max > 0 && max < UINT32_MAX);
    s->zones = calloc(max, sizeof(*s->zones));
    return s->zones != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "log: %" PRIu64 " segments", max);
}

void
wal_segments_destroy(struct wal_segments *s)
{
    free(s->zones);
    *s = (struct wal_segments){0};
}

int
wal_segments_add(struct wal_segments *s, zone_id z)
{
    if (s->count == s->max)
        return CH_FAIL(COHORT_EFULL, "log: %" PRIu32 " segments in use", s->count);
    s->zones[s->count++] = z;
    return 0;
}

zone_id
wal_segment_at(struct wal *w, uint64_t number)
{
    zone_id z = CH_ZONE_NONE;

    rt_lock(&w->lock);
    if (wal_segments_has(&w->segments, number))
        z = w->segments.zones[number - w->segments.first];
    rt_unlock(&w->lock);
    return z;
}

/* One zone more; the leader is the only one who adds. */
static int
segments_grow(struct wal *w)
{
    zone_id z = CH_ZONE_NONE;
    int rc = w->take(w->take_arg, &z);

    if (rc != 0)
        return rc;
    rt_lock(&w->lock);
    rc = wal_segments_add(&w->segments, z);
    rt_unlock(&w->lock);
    CH_ASSERT(rc == 0); /* G4 */
    return 0;
}

int
wal_segments_extend(struct wal *w, lsn_t to)
{
    uint64_t inside = to % w->segment_bytes;
    uint64_t last = (to - 1) / w->segment_bytes;    /* the last block lies in this one */
    uint64_t needed = last + (inside == 0 ? 1 : 0); /* G2 */
    uint64_t wanted = last + (inside == 0 || inside >= w->segment_bytes / 2 ? 1 : 0);
    uint64_t end;
    int rc = 0;

    rt_lock(&w->lock);
    end = w->segments.first + w->segments.count;
    rt_unlock(&w->lock);
    for (; rc == 0 && end <= wanted; end++)
        rc = segments_grow(w);
    if (rc != 0 && end - 1 > needed)
        rc = 0; /* ahead of need: the next flush tries again */
    return rc;
}

zone_id
wal_segment_zone(struct wal *w, lsn_t cut)
{
    zone_id z = wal_segment_at(w, wal_kept(w->segment_bytes, cut) / w->segment_bytes);

    CH_ASSERT(z != CH_ZONE_NONE); /* G1 */
    return z;
}

bool
wal_segment_pop(struct wal *w, lsn_t cut, zone_id *out)
{
    struct wal_segments *s = &w->segments;
    bool popped = false;

    if (w->segment_bytes == 0)
        return false;
    rt_lock(&w->lock);
    CH_ASSERT(cut <= w->durable);
    if (s->count > 0 && s->first < wal_kept(w->segment_bytes, cut) / w->segment_bytes) {
        *out = s->zones[0];
        s->first++;
        s->count--;
        memmove(s->zones, s->zones + 1, s->count * sizeof(*s->zones));
        popped = true;
    }
    rt_unlock(&w->lock);
    return popped;
}

uint32_t
wal_segment_count(struct wal *w)
{
    uint32_t n;

    rt_lock(&w->lock);
    n = w->segments.count;
    rt_unlock(&w->lock);
    return n;
}
