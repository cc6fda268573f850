/* dev_sim_ctl.c - placement handles and zones of a simulated drive: what is no request. */
#include <errno.h>
#include <inttypes.h>

#include "dev/dev_sim_internal.h"

/* ---- placement handles ---- */

static int
stream_check(struct dev *d, uint32_t stream)
{
    if (stream <= dev_caps(d)->streams)
        return 0;
    errno = 0;
    return CH_FAIL(COHORT_EINVAL, "%s: stream %u of %u", dev_name(d), stream, dev_caps(d)->streams);
}

int
sim_stream_room(struct dev *d, uint32_t stream, uint64_t *bytes)
{
    const struct sim_handle *h = dev_impl(d);
    int rc = stream_check(d, stream);

    if (rc != 0)
        return rc;
    rt_lock(&h->drive->lock);
    *bytes =
        (uint64_t)ssd_handle_room(h->drive->ssd, stream == 0 ? 0 : stream - 1) * DEV_BLOCK_BYTES;
    rt_unlock(&h->drive->lock);
    return 0;
}

int
sim_stream_update(struct dev *d, uint32_t stream)
{
    const struct sim_handle *h = dev_impl(d);
    struct sim_drive *s = h->drive;
    int rc = stream_check(d, stream);
    bool alive;

    if (rc != 0)
        return rc;
    rt_lock(&s->lock);
    alive = h->generation == s->generation; /* V4 */
    if (alive)
        ssd_handle_update(s->ssd, stream == 0 ? 0 : stream - 1);
    rt_unlock(&s->lock);
    errno = EIO;
    return alive ? 0 : CH_FAIL(COHORT_EIO, "%s: update of stream %u", dev_name(d), stream);
}

int
sim_stream_stats(struct dev *d, struct dev_stream_stats *out)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_counts c;

    rt_lock(&h->drive->lock);
    ssd_counts(h->drive->ssd, &c);
    rt_unlock(&h->drive->lock);
    *out = (struct dev_stream_stats){.host_bytes = c.host_bytes,
                                     .media_bytes = c.media_bytes,
                                     .erased_bytes = c.erased_pages * DEV_BLOCK_BYTES};
    return 0;
}

static struct dev_event
event_of(const struct ssd_event *e)
{
    static const enum dev_event_kind KIND[] = {
        [SSD_EVENT_NOT_FULL] = DEV_EVENT_NOT_FULL,
        [SSD_EVENT_BAD_HANDLE] = DEV_EVENT_BAD_STREAM,
        [SSD_EVENT_REALLOCATED] = DEV_EVENT_REALLOCATED,
        [SSD_EVENT_CHANGED] = DEV_EVENT_CHANGED,
    };

    return (struct dev_event){.kind = KIND[e->kind],
                              .stream = e->handle == SSD_MIXED ? 0 : e->handle + 1,
                              .off = e->lpage * DEV_BLOCK_BYTES,
                              .bytes = (uint64_t)e->pages * DEV_BLOCK_BYTES};
}

int
sim_events(struct dev *d, struct dev_event *out, unsigned max, unsigned *n)
{
    const struct sim_handle *h = dev_impl(d);
    struct ssd_event e;

    *n = 0;
    rt_lock(&h->drive->lock);
    while (*n < max && ssd_events(h->drive->ssd, &e, 1) == 1)
        out[(*n)++] = event_of(&e);
    rt_unlock(&h->drive->lock);
    return 0;
}

/* ---- zones ---- */

static enum dev_zone_state
zone_state(enum ssd_zone_state state)
{
    static const enum dev_zone_state STATE[] = {
        [SSD_ZONE_EMPTY] = DEV_ZONE_EMPTY,
        [SSD_ZONE_OPEN] = DEV_ZONE_OPEN,
        [SSD_ZONE_CLOSED] = DEV_ZONE_CLOSED,
        [SSD_ZONE_FULL] = DEV_ZONE_FULL,
    };

    return STATE[state];
}

static int
zone_aligned(const struct dev *d, uint64_t off)
{
    if (off % dev_caps(d)->zone_bytes == 0 && off < dev_caps(d)->bytes)
        return 0;
    errno = 0;
    return CH_FAIL(COHORT_EINVAL, "%s: no zone begins at %" PRIu64, dev_name(d), off);
}

int
sim_zone_report(struct dev *d, uint64_t off, struct dev_zone *out, unsigned max, unsigned *n)
{
    const struct sim_handle *h = dev_impl(d);
    const struct sim_drive *s = h->drive;
    uint64_t zone = dev_caps(d)->zone_bytes;
    int rc = zone_aligned(d, off);

    if (rc != 0)
        return rc;
    *n = 0;
    rt_lock(&h->drive->lock);
    for (; *n < max && off < s->bytes; off += zone) {
        struct dev_zone *z = &out[(*n)++];
        struct ssd_zone from;

        *z = (struct dev_zone){.off = off, .cap_bytes = zone, .state = DEV_ZONE_CONVENTIONAL};
        if (!sim_is_zoned(s, off))
            continue;
        ssd_zns_report(s->zns, sim_zone_of(s, off), &from);
        z->cap_bytes = dev_caps(d)->zone_cap;
        z->written_bytes = (uint64_t)from.written * DEV_BLOCK_BYTES;
        z->state = zone_state(from.state);
    }
    rt_unlock(&h->drive->lock);
    return 0;
}

static int
zone_do(struct sim_drive *s, uint32_t zone, enum dev_zone_act act)
{
    switch (act) {
    case DEV_ZONE_DO_OPEN:
        return ssd_zns_open(s->zns, zone);
    case DEV_ZONE_DO_CLOSE:
        return ssd_zns_close(s->zns, zone);
    case DEV_ZONE_DO_FINISH:
        return ssd_zns_finish(s->zns, zone);
    }
    return CH_FAIL(COHORT_EINVAL, "%s: zone action %d", s->name, (int)act);
}

int
sim_zone_do(struct dev *d, uint64_t off, enum dev_zone_act act)
{
    const struct sim_handle *h = dev_impl(d);
    struct sim_drive *s = h->drive;
    int rc = zone_aligned(d, off);
    bool can;

    if (rc != 0)
        return rc;
    rt_lock(&s->lock);
    can = h->generation == s->generation && sim_is_zoned(s, off); /* V4 */
    if (can)
        rc = zone_do(s, sim_zone_of(s, off), act);
    rt_unlock(&s->lock);
    errno = EIO;
    return can ? rc : CH_FAIL(COHORT_EIO, "%s: zone at %" PRIu64, dev_name(d), off);
}
