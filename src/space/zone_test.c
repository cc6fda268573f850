/* zone_test.c - the zone table against a plain model, exhaustively on a tiny table, and at its size. */
#include <stdio.h>
#include <stdlib.h>

#include "space/zone.h"
#include "zt/zt.h"

enum {
    ZONES = 12,
    SPANS = 32
};

/* A zone as the contract describes it. */
struct model_zone {
    enum zone_state state;
    uint32_t cursor, inflight, pins, generation;
    uint64_t live;
    lsn_t empty_lsn;
    bool retire, handed_out;
};

struct model {
    struct zone_config cfg;
    struct zone_table *zt;
    struct model_zone z[ZONES];
    uint32_t zones;
    zone_id open[ZONE_STREAMS];
    struct zone_span span[SPANS]; /* in flight */
    unsigned spans;
    lsn_t now, durable;
};

static void
model_init(struct zt *t, struct model *m, uint32_t slots)
{
    *m = (struct model){.cfg = {.first_slot = 16 + zt_below(t, 100),
                                .slots = slots,
                                .zones_max = ZONES,
                                .zones = (uint32_t)zt_below(t, ZONES + 1),
                                .reserve = (uint32_t)zt_below(t, 3),
                                .open_max = (uint32_t)zt_below(t, 4),
                                .shared = zt_below(t, 2) == 0}};
    m->zones = m->cfg.zones;
    for (unsigned s = 0; s < ZONE_STREAMS; s++)
        m->open[s] = CH_ZONE_NONE;
    ZT_OK(t, zone_table_create(&m->cfg, &m->zt));
}

static uint32_t
model_count(const struct model *m, enum zone_state state)
{
    uint32_t n = 0;

    for (uint32_t z = 0; z < m->zones; z++)
        n += m->z[z].state == state;
    return n;
}

static zone_id
model_lowest_free(const struct model *m)
{
    for (uint32_t z = 0; z < m->zones; z++) {
        if (m->z[z].state == ZONE_FREE)
            return z;
    }
    return CH_ZONE_NONE;
}

/* Everything that can be seen agrees, and the table thinks well of itself. */
static void
model_compare(struct zt *t, const struct model *m)
{
    uint64_t live = 0;

    ZT_CHECK(t, zone_check(m->zt));
    ZT_CHECK(t, zone_count(m->zt) == m->zones);
    ZT_CHECK(t, zone_free_count(m->zt) == model_count(m, ZONE_FREE));
    ZT_CHECK(t, zone_dead_count(m->zt) == model_count(m, ZONE_DEAD));
    ZT_CHECK(t, zone_waiting_count(m->zt) <= zone_dead_count(m->zt));
    for (uint32_t z = 0; z < m->zones; z++) {
        const struct model_zone *want = &m->z[z];
        struct zone_info got;

        zone_info(m->zt, z, &got);
        ZT_CHECK(t, got.state == want->state && got.cursor == want->cursor);
        ZT_CHECK(t, got.inflight == want->inflight && got.pins == want->pins);
        ZT_CHECK(t, got.live_bytes == want->live && got.generation == want->generation);
        ZT_CHECK(t, got.empty_lsn == want->empty_lsn);
        live += want->live;
    }
    ZT_CHECK(t, zone_live_total(m->zt) == live);
}

/* The first stream of each origin, and the end. */
static const unsigned ORIGINS[] = {ZONE_STREAM_USER, ZONE_STREAM_GC, ZONE_STREAM_LOG,
                                   ZONE_STREAM_META, ZONE_STREAMS};

/* Which entry of `open` the stream writes to; its pool is [*first, *end). */
static unsigned
model_entry(const struct model *m, unsigned stream, unsigned *first, unsigned *end)
{
    unsigned e = m->cfg.shared && stream < ZONE_STREAM_LOG ? stream % ZONE_CLASSES : stream;
    unsigned o = 0;

    while (e >= ORIGINS[o + 1])
        o++;
    *first = ORIGINS[o];
    *end = ORIGINS[o + 1];
    return e;
}

static uint64_t
model_room(const struct model *m, unsigned stream)
{
    unsigned first;
    unsigned end;
    uint64_t keep = stream < ZONE_STREAM_GC ? (uint64_t)m->cfg.reserve * m->cfg.slots : 0;
    uint64_t idle = (uint64_t)model_count(m, ZONE_FREE) * m->cfg.slots;
    uint64_t room = 0;

    (void)model_entry(m, stream, &first, &end);
    for (unsigned s = first; s < end; s++)
        room += m->open[s] == CH_ZONE_NONE ? 0 : m->cfg.slots - m->z[m->open[s]].cursor;
    if (m->cfg.shared && stream < ZONE_STREAM_LOG)
        return room + idle > keep ? room + idle - keep : 0;
    return room + (idle > keep ? idle - keep : 0);
}

/* The entry whose zone the next slots come from, which may have none yet; ZONE_STREAMS = there is no room. */
static unsigned
model_writer(const struct model *m, unsigned stream)
{
    unsigned first;
    unsigned end;
    unsigned e = model_entry(m, stream, &first, &end);
    uint32_t open = 0;
    unsigned best = ZONE_STREAMS;

    if (model_room(m, stream) == 0)
        return ZONE_STREAMS;
    if (m->open[e] != CH_ZONE_NONE)
        return e;
    for (unsigned s = end; s-- > first;) {
        if (m->open[s] == CH_ZONE_NONE)
            continue;
        open++;
        if (best == ZONE_STREAMS || abs((int)s - (int)e) <= abs((int)best - (int)e))
            best = s;
    }
    if (model_count(m, ZONE_FREE) > (stream < ZONE_STREAM_GC ? m->cfg.reserve : 0) &&
        (m->cfg.open_max == 0 || open < m->cfg.open_max))
        return e;
    return best;
}

/* Few streams more often than many, so that they meet. */
static enum zone_stream
draw_stream(struct zt *t)
{
    unsigned o = (unsigned)zt_below(t, CH_ARRAY_LEN(ORIGINS) - 1);

    return (enum zone_stream)(ORIGINS[o] +
                              zt_below(t, zt_below(t, 2) == 0 ? ORIGINS[o + 1] - ORIGINS[o] : 1));
}

static void
do_reserve(struct zt *t, struct model *m)
{
    enum zone_stream stream = draw_stream(t);
    uint32_t want = 1 + (uint32_t)zt_below(t, m->cfg.slots * 3 / 2);
    unsigned writer = model_writer(m, stream);
    struct zone_span s;
    zone_id z;

    ZT_CHECK(t, zone_room(m->zt, stream) == model_room(m, stream));
    if (m->spans == SPANS)
        return;
    if (writer == ZONE_STREAMS) {
        ZT_STATUS(t, zone_reserve(m->zt, stream, want, &s), COHORT_EFULL);
        return;
    }
    z = m->open[writer];
    if (z == CH_ZONE_NONE)
        z = model_lowest_free(m);
    want = (uint32_t)ch_min_u64(want, m->cfg.slots - m->z[z].cursor);
    want = (uint32_t)ch_min_u64(want, model_room(m, stream));
    ZT_OK(t, zone_reserve(m->zt, stream, want + (want == m->cfg.slots - m->z[z].cursor), &s));
    ZT_CHECK(t, s.zone == z && s.slot_first == m->z[z].cursor && s.slot_count == want);
    m->z[z].cursor += want;
    m->z[z].inflight++;
    m->z[z].state = m->z[z].cursor == m->cfg.slots ? ZONE_SEALED : ZONE_OPEN;
    m->open[writer] = m->z[z].state == ZONE_OPEN ? z : CH_ZONE_NONE;
    m->span[m->spans++] = s;
}

/* A span ends: published with some live bytes, or abandoned. */
static void
do_span_end(struct zt *t, struct model *m)
{
    unsigned i = (unsigned)zt_below(t, m->spans + 1);
    struct zone_span s = m->span[i % SPANS];
    struct model_zone *z = &m->z[s.zone];
    bool retire = zt_below(t, 6) == 0;

    if (i >= m->spans)
        return;
    m->span[i] = m->span[--m->spans];
    z->inflight--;
    if (zt_below(t, 4) == 0) {
        zone_abandon(m->zt, &s, retire);
        z->retire |= retire;
        if (retire && z->state == ZONE_OPEN) {
            z->state = ZONE_SEALED;
            for (unsigned k = 0; k < ZONE_STREAMS; k++)
                m->open[k] = m->open[k] == s.zone ? CH_ZONE_NONE : m->open[k];
        }
        return;
    }
    z->live += (uint64_t)s.slot_count * 1024;
    zone_live_add(m->zt, s.zone, (uint64_t)s.slot_count * 1024);
    zone_commit(m->zt, &s);
}

static void
do_live_sub(struct zt *t, struct model *m)
{
    zone_id z = (zone_id)zt_below(t, ZONES);
    uint64_t bytes;

    if (z >= m->zones || m->z[z].live == 0)
        return;
    bytes = zt_below(t, 2) ? m->z[z].live : 16 * (1 + zt_below(t, m->z[z].live / 16));
    m->now += 1 + zt_below(t, 100);
    zone_live_sub(m->zt, z, bytes, m->now);
    m->z[z].live -= bytes;
    m->z[z].empty_lsn = m->now;
    if (m->z[z].live == 0 && m->z[z].state == ZONE_COLLECT)
        m->z[z].state = ZONE_DEAD;
}

/* SEALED zones without live bytes and spans die, when somebody looks. */
static void
model_bury(struct model *m)
{
    for (uint32_t z = 0; z < m->zones; z++) {
        if (m->z[z].state == ZONE_SEALED && m->z[z].live == 0 && m->z[z].inflight == 0)
            m->z[z].state = ZONE_DEAD;
    }
}

static void
do_victim(struct zt *t, struct model *m)
{
    uint64_t limit = zt_below(t, (uint64_t)m->cfg.slots * CH_SLOT_BYTES);
    zone_id best = CH_ZONE_NONE;
    zone_id got = CH_ZONE_NONE;

    model_bury(m);
    for (uint32_t z = 0; z < m->zones; z++) {
        if (m->z[z].state == ZONE_SEALED && m->z[z].inflight == 0 && m->z[z].live < limit &&
            (best == CH_ZONE_NONE || m->z[z].live < m->z[best].live))
            best = z;
    }
    ZT_STATUS(t, zone_victim(m->zt, limit, &got), best == CH_ZONE_NONE ? COHORT_NOTFOUND : 0);
    ZT_CHECK(t, got == best);
    if (best != CH_ZONE_NONE)
        m->z[best].state = ZONE_COLLECT;
}

static bool
model_resettable(const struct model *m, zone_id z)
{
    return m->z[z].state == ZONE_DEAD && !m->z[z].handed_out && m->z[z].pins == 0 &&
           m->z[z].empty_lsn <= m->durable;
}

static void
do_next_dead(struct zt *t, struct model *m)
{
    unsigned count = 0;
    lsn_t wait = 99, want_wait = 0;
    zone_id got = CH_ZONE_NONE;

    m->durable += zt_below(t, m->now - m->durable + 1);
    model_bury(m);
    for (uint32_t z = 0; z < m->zones; z++) {
        count += model_resettable(m, z);
        if (m->z[z].state == ZONE_DEAD && m->z[z].empty_lsn > m->durable &&
            (want_wait == 0 || m->z[z].empty_lsn < want_wait))
            want_wait = m->z[z].empty_lsn;
    }
    ZT_STATUS(t, zone_next_dead(m->zt, m->durable, &got, zt_below(t, 2) ? &wait : NULL),
              count > 0 ? 0 : COHORT_NOTFOUND);
    ZT_CHECK(t, wait == 99 || wait == want_wait);
    if (count == 0)
        return;
    ZT_CHECK(t, got < m->zones && model_resettable(m, got));
    m->z[got].handed_out = true;
}

/* The caller of zone_next_dead() has reset a zone, or could not. */
static void
do_reset(struct zt *t, struct model *m)
{
    for (uint32_t z = 0; z < m->zones; z++) {
        if (!m->z[z].handed_out || zt_below(t, 2) == 0)
            continue;
        m->z[z].handed_out = false;
        if (zt_below(t, 8) == 0) {
            zone_retire(m->zt, z);
            m->z[z].state = ZONE_RETIRED;
            continue;
        }
        zone_free(m->zt, z);
        m->z[z].state = m->z[z].retire ? ZONE_RETIRED : ZONE_FREE;
        m->z[z].cursor = 0;
        m->z[z].empty_lsn = 0;
        m->z[z].generation++;
    }
}

static void
do_pin(struct zt *t, struct model *m)
{
    zone_id z = (zone_id)zt_below(t, ZONES);

    if (z >= m->zones)
        return;
    if (m->z[z].pins > 0 && zt_below(t, 4) != 0) {
        zone_unpin(m->zt, z);
        m->z[z].pins--;
    } else if (m->z[z].pins < 3) {
        zone_pin(m->zt, z);
        m->z[z].pins++;
    }
}

static void
seal_sparse(struct zt *t, struct model *m)
{
    uint64_t dead = 1 + zt_below(t, (uint64_t)m->cfg.slots * CH_SLOT_BYTES);
    uint32_t sealed = 0;

    for (unsigned e = 0; e < ZONE_STREAM_LOG; e++) {
        struct model_zone *z = m->open[e] == CH_ZONE_NONE ? NULL : &m->z[m->open[e]];

        if (z == NULL || z->inflight > 0 || (uint64_t)z->cursor * CH_SLOT_BYTES < z->live + dead)
            continue;
        z->state = ZONE_SEALED;
        m->open[e] = CH_ZONE_NONE;
        sealed++;
    }
    ZT_CHECK(t, zone_seal_sparse(m->zt, dead) == sealed);
}

static void
do_rare(struct zt *t, struct model *m)
{
    enum zone_stream stream = draw_stream(t);
    zone_id z = (zone_id)zt_below(t, ZONES);
    zone_id lowest = model_lowest_free(m);
    uint32_t more = (uint32_t)zt_below(t, 3);
    unsigned e;
    unsigned first;
    unsigned end;

    switch (zt_below(t, 6)) {
    case 4:
        if (zt_below(t, 4) != 0)
            break;
        seal_sparse(t, m);
        break;
    case 0:
        zone_seal(m->zt, stream);
        e = model_entry(m, stream, &first, &end);
        if (m->open[e] != CH_ZONE_NONE)
            m->z[m->open[e]].state = ZONE_SEALED;
        m->open[e] = CH_ZONE_NONE;
        break;
    case 1:
        if (z >= m->zones || (m->z[z].state != ZONE_COLLECT && m->z[z].state != ZONE_DEAD))
            break;
        zone_victim_release(m->zt, z);
        if (m->z[z].state == ZONE_COLLECT)
            m->z[z].state = ZONE_SEALED;
        break;
    case 3:
        if (z >= m->zones)
            break;
        ZT_CHECK(t, zone_claim(m->zt, z) == (m->z[z].state == ZONE_FREE));
        if (m->z[z].state == ZONE_FREE) {
            m->z[z].state = ZONE_DEAD;
            m->z[z].empty_lsn = 0;
            m->z[z].handed_out = true;
        }
        break;
    case 2:
        ZT_STATUS(t, zone_grow(m->zt, more), more <= ZONES - m->zones ? 0 : COHORT_EFULL);
        m->zones += more <= ZONES - m->zones ? more : 0;
        break;
    default:
        if (zt_below(t, 10) != 0)
            break;
        ZT_STATUS(t, zone_take_meta(m->zt, &z), lowest == CH_ZONE_NONE ? COHORT_EFULL : 0);
        if (lowest != CH_ZONE_NONE) {
            ZT_CHECK(t, z == lowest);
            m->z[z].state = ZONE_META;
        }
        break;
    }
}

/* Goal: Z1..Z8, the exact victim, the exact EFULL, in random histories of everything callers do. */
static void
test_model(struct zt *t)
{
    static void (*const actions[])(struct zt *, struct model *) = {
        do_reserve, do_reserve, do_reserve,   do_span_end, do_span_end, do_span_end, do_live_sub,
        do_victim,  do_victim,  do_next_dead, do_reset,    do_pin,      do_pin,      do_rare};
    struct model m;

    model_init(t, &m, 1 + (uint32_t)zt_below(t, 20));
    for (int step = 0; step < 3000; step++) {
        actions[zt_below(t, CH_ARRAY_LEN(actions))](t, &m);
        model_compare(t, &m);
    }
    zone_table_destroy(m.zt);
}

/* Goal: slots and zones translate both ways; what is outside is outside. */
static void
test_slots(struct zt *t)
{
    struct zone_config cfg = {.first_slot = 1 + zt_below(t, 1000),
                              .slots = 1 + (uint32_t)zt_below(t, 100),
                              .zones_max = 50,
                              .zones = 20};
    struct zone_table *zt;

    ZT_OK(t, zone_table_create(&cfg, &zt));
    for (zone_id z = 0; z < 50; z++) {
        for (uint32_t i = 0; i < cfg.slots; i++) {
            uint64_t slot = zone_slot(zt, z, i);

            ZT_CHECK(t, slot == cfg.first_slot + (uint64_t)z * cfg.slots + i);
            ZT_CHECK(t, zone_of_slot(zt, slot) == (z < zone_count(zt) ? z : CH_ZONE_NONE));
        }
        if (z == 30)
            ZT_OK(t, zone_grow(zt, 30));
    }
    ZT_CHECK(t, zone_of_slot(zt, cfg.first_slot - 1) == CH_ZONE_NONE);
    ZT_CHECK(t, zone_of_slot(zt, UINT64_MAX) == CH_ZONE_NONE);
    zone_table_destroy(zt);
}

/* Goal: recovery puts back every state; OPEN and COLLECT come back as SEALED; the totals follow. Live bytes may
 * be counted into zones that were dead or sealed, and both become free again in the end. */
static void
test_restore(struct zt *t)
{
    struct zone_config cfg = {.first_slot = 16, .slots = 8, .zones_max = 40, .zones = 40};
    uint64_t live[40], total = 0;
    struct zone_table *zt;
    zone_id dead;
    struct zone_info in = {0}, out;

    ZT_OK(t, zone_table_create(&cfg, &zt));
    for (int step = 0; step < 300; step++) {
        zone_id z = (zone_id)zt_below(t, 40);

        in.state = (enum zone_state)zt_below(t, ZONE_RETIRED + 1);
        in.cursor = in.state == ZONE_FREE ? 0 : (uint32_t)zt_below(t, 9);
        in.live_bytes = in.state == ZONE_SEALED ? 16 * zt_below(t, 1000) : 0;
        in.empty_lsn = zt_below(t, 100);
        in.generation = (uint32_t)zt_below(t, 100);
        zone_restore(zt, z, &in);
        zone_info(zt, z, &out);
        ZT_CHECK(t, out.state == (in.state == ZONE_OPEN || in.state == ZONE_COLLECT ? ZONE_SEALED
                                                                                    : in.state));
        ZT_CHECK(t, out.cursor == in.cursor && out.live_bytes == in.live_bytes);
        ZT_CHECK(t, out.empty_lsn == in.empty_lsn && out.generation == in.generation);
        ZT_CHECK(t, out.inflight == 0 && zone_check(zt));
        if (out.state == ZONE_DEAD || out.state == ZONE_SEALED)
            zone_live_add(zt, z, 16);
        ZT_CHECK(t, zone_check(zt));
    }
    for (zone_id z = 0; z < 40; z++) {
        zone_info(zt, z, &out);
        live[z] = out.live_bytes;
        total += live[z];
    }
    ZT_CHECK(t, zone_live_total(zt) == total);
    for (zone_id z = 0; z < 40; z++) {
        if (live[z] > 0)
            zone_live_sub(zt, z, live[z], 100);
    }
    while (zone_next_dead(zt, 100, &dead, NULL) == 0) {
        zone_free(zt, dead);
        zone_info(zt, dead, &out);
        ZT_CHECK(t, out.state == ZONE_FREE);
    }
    ZT_CHECK(t, zone_check(zt) && zone_live_total(zt) == 0 && zone_dead_count(zt) == 0);
    zone_table_destroy(zt);
}

/* Every sequence of `depth` actions on two zones of one slot. */
static void
exhaust(struct zt *t, unsigned code, unsigned depth)
{
    struct zone_config cfg = {.first_slot = 1, .slots = 1, .zones_max = 2, .zones = 2};
    struct zone_span s[8];
    struct zone_table *zt;
    zone_id z, dead[8];
    unsigned spans = 0, deads = 0, live[2] = {0, 0};
    lsn_t now = 0;

    ZT_OK(t, zone_table_create(&cfg, &zt));
    for (; depth > 0; depth--, code /= 7) {
        switch (code % 7) {
        case 0:
            if (zone_reserve(zt, ZONE_STREAM_USER, 1, &s[spans]) == 0)
                spans++;
            break;
        case 1:
            if (spans > 0) {
                zone_live_add(zt, s[spans - 1].zone, 4096);
                live[s[spans - 1].zone] = 1;
                zone_commit(zt, &s[--spans]);
            }
            break;
        case 2:
            if (spans > 0)
                zone_abandon(zt, &s[--spans], false);
            break;
        case 3:
            for (z = 0; z < 2; z++) {
                if (live[z])
                    zone_live_sub(zt, z, 4096, ++now);
                live[z] = 0;
            }
            break;
        case 4:
            if (zone_victim(zt, 8192, &z) == 0)
                ZT_CHECK(t, live[z] == 1);
            break;
        case 5:
            if (zone_next_dead(zt, now, &dead[deads], NULL) == 0) {
                ZT_CHECK(t, live[dead[deads]] == 0);
                deads++;
            }
            break;
        default:
            if (deads > 0)
                zone_free(zt, dead[--deads]);
            break;
        }
        ZT_CHECK(t, zone_check(zt));
        ZT_CHECK(t, zone_live_total(zt) == 4096u * (live[0] + live[1]));
    }
    zone_table_destroy(zt);
}

static void
test_exhaustive(struct zt *t)
{
    enum {
        DEPTH = 7,
        CODES = 7 * 7 * 7 * 7 * 7 * 7
    };

    /* The first action is a reserve: no other one does anything on an empty table. */
    for (unsigned code = 0; code < CODES; code++)
        exhaust(t, 7 * code, DEPTH);
}

/* Goal: free zones are found in order, whatever lies between them: words and summary words without any. */
static void
test_next_free(struct zt *t)
{
    enum {
        MANY = 3 * 4096 + 100
    };
    struct zone_config cfg = {.first_slot = 1, .slots = 1, .zones_max = MANY, .zones = MANY};
    struct zone_table *zt;
    static bool is_free[MANY];
    zone_id z = 0, next = 0;

    ZT_OK(t, zone_table_create(&cfg, &zt));
    for (zone_id i = 0; i < MANY; i++) {
        is_free[i] = zt_below(t, 2000) == 0;
        if (!is_free[i])
            ZT_CHECK(t, zone_claim(zt, i));
    }
    for (; zone_next_free(zt, z, &z) == 0; next = ++z) {
        for (; next < z; next++)
            ZT_CHECK(t, !is_free[next]);
        ZT_CHECK(t, is_free[z]);
    }
    for (; next < MANY; next++)
        ZT_CHECK(t, !is_free[next]);
    ZT_STATUS(t, zone_next_free(zt, MANY, &z), COHORT_NOTFOUND);
    ZT_CHECK(t, zone_check(zt));
    zone_table_destroy(zt);
}

/* Goal: at 2^20 zones nothing scans: filling, a million deaths in random order, and a million resets. */
static void
test_million_zones(struct zt *t)
{
    struct zone_config cfg = {
        .first_slot = 1, .slots = 64, .zones_max = 1 << 20, .zones = 1 << 20, .reserve = 4};
    struct zone_table *zt;
    struct zone_span s;
    uint32_t n = 0, resets = 0;
    zone_id z;

    ZT_OK(t, zone_table_create(&cfg, &zt));
    ZT_CHECK(t, zone_table_memory(zt) <= 84u << 20);
    while (zone_reserve(zt, ZONE_STREAM_USER, 64, &s) == 0) {
        ZT_CHECK(t, s.zone == n++);
        zone_live_add(zt, s.zone, 4096 * (1 + zt_below(t, 64)));
        zone_commit(zt, &s);
    }
    ZT_CHECK(t, n == cfg.zones - 4);
    for (uint32_t i = 0; i < n; i++) {
        struct zone_info info;

        z = (zone_id)((uint64_t)i * 611953 % n);
        zone_info(zt, z, &info);
        if (info.live_bytes > 0)
            zone_live_sub(zt, z, info.live_bytes, i + 1);
        if (i % 4 == 0 && zone_victim(zt, UINT64_MAX, &z) == 0)
            zone_victim_release(zt, z);
        if (zone_next_dead(zt, i / 2, &z, NULL) == 0) {
            zone_free(zt, z);
            resets++;
        }
    }
    while (zone_next_dead(zt, n, &z, NULL) == 0) {
        zone_free(zt, z);
        resets++;
    }
    ZT_CHECK(t, resets >= n - 4 && zone_check(zt));
    zone_table_destroy(zt);
    zone_table_destroy(NULL);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 100},        {"slots", test_slots, 10},
        {"restore", test_restore, 100},    {"exhaustive", test_exhaustive, 1},
        {"next_free", test_next_free, 10}, {"million_zones", test_million_zones, 1},
    };

    return zt_main(argc, argv, "zone", cases, CH_ARRAY_LEN(cases));
}
