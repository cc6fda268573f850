/* sim_model.c - what each key may hold, given the operations that ran, overlapping, and what they said.
 *
 * Every write has a number, which stands in the value that it writes; so a read tells which write it
 * saw. Two tests use that.
 *
 * Exact, for operations on one key: the key has a set of configurations, each a possible present,
 *
 *     {value, which of the pending writes have taken effect and how, what each pending read may return}
 *
 * closed under "a pending write takes effect now". The end of an operation keeps the configurations
 * that agree with its result; when none is left there is no linear order, and the seed has found a bug
 * (just-in-time linearizability, Lowe 2017). A key with too many is `loose`: not judged any more until
 * the next boot.
 *
 * By intervals, for what spans operations (cursors) or boots: `value` may be seen in [from, to] unless
 * its write began after `to`, or another write began after its end and itself ended before `from`.
 *
 * After a crash the values found must be explained by a set of writes that holds with each write all
 * that ended before it began, all of its group, and all that had been made durable.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"

enum {
    PENDING_MAX = 12,
    CONFIGS_MAX = 160,
    SEEN_MAX = 6, /* values that a pending read may return, in one configuration */
    WRITES_MAX = 1 << 17,
    NO_SLOT = 255
};

#define EVENT_NEVER UINT64_MAX

struct write {
    uint32_t key;
    uint32_t bytes; /* of its value */
    uint32_t group;
    uint64_t begin, end; /* events; EVENT_NEVER = not begun, not ended */
    uint64_t low, high;  /* its record ends between these positions of the log */
    unsigned boot;       /* in which it began */
    enum sim_kind kind;
    bool effect; /* may have one; false: it is known to have none */
    bool sync;   /* durable when it ended well */
    bool acked;
    bool seen;     /* somebody has read it as committed */
    write_id next; /* of the same key, older */
};

struct config {
    write_id value;
    uint16_t done; /* pending writes that have taken effect, by slot */
    uint16_t ok;   /* ... and were not refused */
    uint8_t seen_count[PENDING_MAX];
    write_id seen[PENDING_MAX][SEEN_MAX];
};

struct sim_op {
    unsigned key;
    uint8_t slot;
    bool active;
    enum sim_kind kind;
    write_id write; /* 0: a read */
};

struct key {
    unsigned count, room; /* configurations, >= 1 */
    struct config *configs;
    struct sim_op *ops[PENDING_MAX];
    bool loose;
    write_id base;   /* what it held when the boot began */
    write_id newest; /* list of the boot's writes */
};

static struct {
    const struct sim_plan *plan;
    unsigned slots; /* keys of all trees */
    struct key *keys;
    struct write *writes; /* [1 ..] */
    write_id write_count;
    unsigned boot;
    uint64_t event;
    uint64_t durable; /* writes that ended before this event are */
    uint64_t durable_position;
    uint32_t groups;
} m;

/* ---- keys and values ---- */

void
sim_model_init(const struct sim_plan *p)
{
    m.plan = p;
    m.slots = p->keys * p->trees;
    m.keys = calloc(m.slots, sizeof(*m.keys));
    m.writes = calloc(WRITES_MAX, sizeof(*m.writes));
    SIM_CHECK(m.keys != NULL && m.writes != NULL);
    for (unsigned k = 0; k < m.slots; k++) {
        m.keys[k].configs = calloc(1, sizeof(*m.keys[k].configs));
        SIM_CHECK(m.keys[k].configs != NULL);
        m.keys[k].count = m.keys[k].room = 1;
    }
    m.write_count = 1;
}

void
sim_model_fini(void)
{
    for (unsigned k = 0; k < m.slots; k++) {
        for (int i = 0; i < PENDING_MAX; i++)
            free(m.keys[k].ops[i]);
        free(m.keys[k].configs);
    }
    free(m.keys);
    free(m.writes);
}

static uint64_t
mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The number stands at the end, so that it can be read back whatever comes before. */
size_t
sim_key(unsigned slot, uint8_t *out)
{
    unsigned key = slot % m.plan->keys;
    uint64_t h = mix(m.plan->seed * 1000003 + key);
    size_t n = 0;

    switch (m.plan->key_style) {
    case SIM_KEYS_PREFIX:
        n = 40 + (key / 16) % 7 * 20;
        memset(out, 'p', n);
        out[n / 2] = (uint8_t)('a' + key / 16 % 23);
        break;
    case SIM_KEYS_LONG:
        n = h % 5 == 0 ? h % (COHORT_KEY_MAX - 100) : h % 60;
        memset(out, (int)('A' + h % 7), n);
        break;
    case SIM_KEYS_SHORT:
    case SIM_KEY_STYLES:
        break;
    }
    out[n++] = (uint8_t)(h >> 40); /* neighbours by number are not neighbours in the tree */
    out[n++] = (uint8_t)(key >> 8);
    out[n++] = (uint8_t)key;
    return n;
}

unsigned
sim_key_number(const void *key, size_t bytes)
{
    const uint8_t *k = key;
    uint8_t want[COHORT_KEY_MAX];
    unsigned number;

    if (bytes < 3)
        sim_fail("a key of %zu bytes, which was never written", bytes);
    number = (unsigned)k[bytes - 2] << 8 | k[bytes - 1];
    if (number >= m.plan->keys || sim_key(number, want) != bytes || memcmp(want, key, bytes) != 0)
        sim_fail("a key of %zu bytes, ending in %u, which was never written", bytes, number);
    return number;
}

size_t
sim_value(write_id w, uint8_t *out)
{
    const struct write *wr = &m.writes[w];
    struct ch_prng p;
    size_t half = SIM_VALUE_MIN + (wr->bytes - SIM_VALUE_MIN) / 2;

    if (out == NULL)
        return wr->bytes;
    ch_put32(out, wr->key);
    ch_put64(out + 4, w);
    ch_prng_init(&p, w);
    ch_prng_fill(&p, out + SIM_VALUE_MIN, half - SIM_VALUE_MIN);
    memset(out + half, (int)(w % 251), wr->bytes - half);
    return wr->bytes;
}

write_id
sim_value_parse(unsigned key, const void *value, size_t bytes)
{
    static uint8_t want[SIM_VALUE_MAX]; /* one thread runs at a time */
    uint64_t w;

    if (bytes < SIM_VALUE_MIN)
        sim_fail("key %u: a value of %zu bytes, which was never written", key, bytes);
    w = ch_get64((const uint8_t *)value + 4);
    if (w == 0 || w >= m.write_count || m.writes[w].key != key)
        sim_fail("key %u: a value of write %" PRIu64 " of key %u", key, w, ch_get32(value));
    if (m.writes[w].bytes != bytes || sim_value((write_id)w, want) != bytes ||
        memcmp(want, value, bytes) != 0)
        sim_fail("key %u: the value of write %" PRIu64 " is damaged: %zu bytes, written were %u",
                 key, w, bytes, m.writes[w].bytes);
    return (write_id)w;
}

uint64_t
sim_event(void)
{
    return ++m.event;
}

uint32_t
sim_group_new(void)
{
    return ++m.groups;
}

/* ---- configurations ---- */

static void
seen_add(struct key *k, struct config *c, int slot, write_id value)
{
    for (unsigned i = 0; i < c->seen_count[slot]; i++)
        if (c->seen[slot][i] == value)
            return;
    if (c->seen_count[slot] == SEEN_MAX) {
        k->loose = true;
        return;
    }
    c->seen[slot][c->seen_count[slot]++] = value;
}

/* All pending reads may return the value that stands now. */
static void
seen_add_all(struct key *k, struct config *c)
{
    for (int s = 0; s < PENDING_MAX; s++)
        if (k->ops[s] != NULL && k->ops[s]->active && k->ops[s]->write == 0)
            seen_add(k, c, s, c->value);
}

static void
configs_grow(struct key *k)
{
    k->room = (unsigned)ch_min_u64((uint64_t)k->room * 4, CONFIGS_MAX);
    k->configs = realloc(k->configs, k->room * sizeof(*k->configs));
    SIM_CHECK(k->configs != NULL);
}

/* Adds c, or what its reads may return to the one like it. Whether anything changed. */
static bool
config_add(struct key *k, const struct config *c)
{
    struct config *same = NULL;
    bool grown = false;

    for (unsigned i = 0; i < k->count && same == NULL; i++)
        if (k->configs[i].value == c->value && k->configs[i].done == c->done &&
            k->configs[i].ok == c->ok)
            same = &k->configs[i];
    if (same == NULL) {
        if (k->count == CONFIGS_MAX) {
            k->loose = true;
            return false;
        }
        if (k->count == k->room)
            configs_grow(k);
        k->configs[k->count++] = *c;
        return true;
    }
    for (int s = 0; s < PENDING_MAX; s++) {
        unsigned before = same->seen_count[s];

        for (unsigned i = 0; i < c->seen_count[s]; i++)
            seen_add(k, same, s, c->seen[s][i]);
        grown |= same->seen_count[s] != before;
    }
    return grown;
}

/* Whether the write goes ahead on `value`; *after: what stands then. */
static bool
takes_effect(const struct sim_op *op, write_id value, write_id *after)
{
    *after = value;
    switch (op->kind) {
    case SIM_INSERT:
        if (value != 0)
            return false;
        break;
    case SIM_UPDATE:
        if (value == 0)
            return false;
        break;
    case SIM_DEL:
        *after = 0;
        return value != 0;
    case SIM_CLEAR:
    case SIM_REMOVE:
        *after = 0;
        return true;
    case SIM_PUT:
    case SIM_GET:
        break;
    }
    *after = op->write;
    return true;
}

static bool
config_step(struct key *k, const struct config *from, int slot)
{
    struct config c = *from;

    if (takes_effect(k->ops[slot], from->value, &c.value))
        c.ok |= (uint16_t)(1U << slot);
    c.done |= (uint16_t)(1U << slot);
    seen_add_all(k, &c);
    return config_add(k, &c);
}

static void
configs_close(struct key *k)
{
    bool changed = true;

    while (changed && !k->loose) {
        changed = false;
        for (unsigned i = 0; i < k->count; i++)
            for (int s = 0; s < PENDING_MAX; s++)
                if (k->ops[s] != NULL && k->ops[s]->active && k->ops[s]->write != 0 &&
                    (k->configs[i].done >> s & 1) == 0)
                    changed |= config_step(k, &k->configs[i], s);
    }
}

static bool
config_agrees(const struct config *c, const struct sim_op *op, enum sim_outcome outcome,
              write_id value)
{
    bool done = (c->done >> op->slot & 1) != 0;
    bool ok = (c->ok >> op->slot & 1) != 0;

    if (outcome == SIM_NOTHING)
        return !done || !ok || op->write == 0;
    if (op->write != 0)
        return done && ok == (outcome == SIM_DONE);
    for (unsigned i = 0; i < c->seen_count[op->slot]; i++)
        if (c->seen[op->slot][i] == value)
            return true;
    return false;
}

/* Keeps what agrees and forgets the slot. */
static void
configs_filter(struct key *k, const struct sim_op *op, enum sim_outcome outcome, write_id value)
{
    unsigned n = k->count;
    uint16_t bit = (uint16_t)(1U << op->slot);
    static struct config kept[CONFIGS_MAX]; /* one thread runs at a time */
    unsigned count = 0;

    for (unsigned i = 0; i < n; i++) {
        if (!config_agrees(&k->configs[i], op, outcome, value))
            continue;
        kept[count] = k->configs[i];
        kept[count].done &= (uint16_t)~bit;
        kept[count].ok &= (uint16_t)~bit;
        kept[count].seen_count[op->slot] = 0;
        count++;
    }
    k->count = 0;
    for (unsigned i = 0; i < count; i++)
        (void)config_add(k, &kept[i]);
}

/* ---- operations ---- */

write_id
sim_write_new(unsigned key, enum sim_kind kind, uint32_t group, bool sync)
{
    write_id w = m.write_count++;
    uint64_t h = mix(m.plan->seed ^ (uint64_t)w << 20);
    size_t room = m.plan->value_max - SIM_VALUE_MIN + 1;
    uint8_t name[COHORT_KEY_MAX];
    size_t key_bytes = sim_key(key, name);

    SIM_CHECK(m.write_count < WRITES_MAX);
    if (m.plan->value_max <= COHORT_ENTRY_MAX)
        room = ch_min_u64(room, COHORT_ENTRY_MAX - key_bytes - SIM_VALUE_MIN + 1);
    m.writes[w] = (struct write){.key = key,
                                 .bytes = SIM_VALUE_MIN + (uint32_t)(h % room),
                                 .group = group,
                                 .begin = EVENT_NEVER,
                                 .end = EVENT_NEVER,
                                 .high = UINT64_MAX,
                                 .kind = kind,
                                 .effect = true,
                                 .sync = sync};
    return w;
}

unsigned
sim_write_key(write_id w)
{
    return m.writes[w].key;
}

void
sim_write_seen(write_id w)
{
    m.writes[w].seen = true;
}

void
sim_write_sync(write_id w, bool sync)
{
    m.writes[w].sync = sync;
}

void
sim_write_position(write_id w, uint64_t low, uint64_t high)
{
    m.writes[w].low = low;
    m.writes[w].high = high;
}

static struct sim_op *
op_begin(unsigned key, enum sim_kind kind, write_id w)
{
    struct key *k = &m.keys[key];
    struct sim_op *op = calloc(1, sizeof(*op));

    SIM_CHECK(op != NULL);
    *op = (struct sim_op){.key = key, .slot = NO_SLOT, .active = true, .kind = kind, .write = w};
    for (uint8_t s = 0; s < PENDING_MAX && op->slot == NO_SLOT; s++)
        if (k->ops[s] == NULL)
            op->slot = s;
    if (op->slot == NO_SLOT) {
        k->loose = true;
        return op;
    }
    k->ops[op->slot] = op;
    if (kind == SIM_GET)
        for (unsigned i = 0; i < k->count; i++)
            seen_add(k, &k->configs[i], op->slot, k->configs[i].value);
    return op;
}

struct sim_op *
sim_write_begin(write_id w)
{
    struct write *wr = &m.writes[w];

    wr->begin = sim_event();
    wr->end = EVENT_NEVER;
    wr->effect = true;
    wr->acked = wr->seen = false;
    wr->boot = m.boot;
    wr->next = m.keys[wr->key].newest;
    m.keys[wr->key].newest = w;
    return op_begin(wr->key, wr->kind, w);
}

struct sim_op *
sim_op_begin(unsigned key, enum sim_kind kind, uint32_t group, bool sync)
{
    if (kind == SIM_GET)
        return op_begin(key, kind, 0);
    return sim_write_begin(sim_write_new(key, kind, group, sync));
}

write_id
sim_op_write(const struct sim_op *op)
{
    return op->write;
}

static void __attribute__((noreturn, cold))
fail_history(const struct sim_op *op, enum sim_outcome outcome, write_id value)
{
    static const char *const KINDS[] = {"get", "put", "insert", "update", "del", "clear", "remove"};
    static const char *const OUTCOMES[] = {"done", "refused", "nothing", "unknown"};

    for (write_id w = m.keys[op->key].newest; w != 0; w = m.writes[w].next) {
        const struct write *wr = &m.writes[w];

        sim_trace("  key %u: %s %u [%" PRIu64 ", %" PRIu64 "]%s%s", op->key, KINDS[wr->kind], w,
                  wr->begin, wr->end, wr->acked ? " done" : "",
                  wr->effect ? "" : " without effect");
    }
    sim_fail("key %u: %s of write %u: outcome %s, value %u: no order of the operations explains it",
             op->key, KINDS[op->kind], op->write, OUTCOMES[outcome], value);
}

void
sim_op_end(struct sim_op *op, enum sim_outcome outcome, write_id value)
{
    struct key *k = &m.keys[op->key];
    struct write *wr = &m.writes[op->write];
    uint64_t now = sim_event();

    if (op->write != 0 && outcome != SIM_UNKNOWN) {
        wr->end = now;
        wr->acked = outcome == SIM_DONE;
        wr->effect = wr->acked;
    }
    if (op->write == 0 && outcome == SIM_DONE)
        sim_write_seen(value);
    if (outcome == SIM_UNKNOWN && op->write != 0) {
        if (op->slot == NO_SLOT)
            free(op);
        return; /* pending until the boot ends */
    }
    if (outcome != SIM_UNKNOWN && !k->loose && op->slot != NO_SLOT) {
        configs_close(k);
        if (!k->loose) {
            configs_filter(k, op, outcome, value);
            sim_cover->reads_checked += op->write == 0;
            if (k->count == 0 && !k->loose)
                fail_history(op, outcome, value);
        }
    } else if (!k->loose && op->slot != NO_SLOT) { /* a read that failed says nothing */
        for (unsigned i = 0; i < k->count; i++)
            k->configs[i].seen_count[op->slot] = 0;
    }
    if (op->slot != NO_SLOT)
        k->ops[op->slot] = NULL;
    free(op);
}

bool
sim_model_is_loose(unsigned key)
{
    return m.keys[key].loose;
}

/* ---- intervals ---- */

/* Whether `a` certainly took effect before `b`: it ended before b began, or lies before it in the log. */
static bool
comes_before(const struct write *a, const struct write *b)
{
    return a->end < b->begin || (a->high < b->low && a->acked);
}

static bool
clears(const struct write *w)
{
    return w->kind == SIM_DEL || w->kind == SIM_CLEAR || w->kind == SIM_REMOVE;
}

/* Whether something on the key certainly came between `after` and `before`. */
static bool
superseded(const struct key *k, uint64_t after, uint64_t before)
{
    for (write_id w = k->newest; w != 0; w = m.writes[w].next)
        if (m.writes[w].acked && m.writes[w].begin > after && m.writes[w].end < before)
            return true;
    return false;
}

bool
sim_may_hold(unsigned key, write_id value, uint64_t from, uint64_t to)
{
    const struct key *k = &m.keys[key];

    if (value == k->base && !superseded(k, 0, from))
        return true;
    for (write_id w = k->newest; w != 0; w = m.writes[w].next) {
        const struct write *wr = &m.writes[w];

        if (wr->effect && wr->begin < to && (value == 0 ? clears(wr) : w == value) &&
            (wr->end == EVENT_NEVER || !superseded(k, wr->end, from)))
            return true;
    }
    return false;
}

/* ---- boots ---- */

void
sim_model_durable(uint64_t event)
{
    m.durable = ch_max_u64(m.durable, event);
}

void
sim_model_durable_position(uint64_t position)
{
    m.durable_position = ch_max_u64(m.durable_position, position);
}

/* Whether the write began in this boot. */
static bool
is_new(write_id w)
{
    return w != 0 && m.writes[w].begin != EVENT_NEVER && m.writes[w].boot == m.boot;
}

/* Whether what was found in the key of `w` can be explained with `w` in the set of surviving writes. */
static bool
survives(const struct write *w, write_id id, write_id found)
{
    const struct key *k = &m.keys[w->key];

    if (found == id)
        return true;
    if (found != 0)
        return is_new(found) && !comes_before(&m.writes[found], w);
    if (clears(w))
        return true;
    for (write_id d = k->newest; d != 0; d = m.writes[d].next)
        if (clears(&m.writes[d]) && m.writes[d].effect && !comes_before(&m.writes[d], w))
            return true;
    return false;
}

static void
check_value(unsigned key, write_id found, bool crash)
{
    struct key *k = &m.keys[key];
    bool may = found == k->base;

    for (write_id w = k->newest; w != 0 && !may; w = m.writes[w].next)
        may = m.writes[w].effect && (found == 0 ? clears(&m.writes[w]) : w == found);
    if (!may)
        sim_fail("key %u: write %u after a restart, which was %s", key, found,
                 is_new(found)                          ? "refused"
                 : m.writes[found].begin == EVENT_NEVER ? "never committed"
                                                        : "overwritten before");
    if (crash || k->loose)
        return;
    configs_close(k);
    for (unsigned i = 0; i < k->count && !k->loose; i++)
        if (k->configs[i].value == found)
            return;
    if (!k->loose)
        sim_fail("key %u: write %u after a restart that lost nothing; the key held another", key,
                 found);
}

struct survivors {     /* what the writes found tell */
    uint64_t latest;   /* the latest beginning of one */
    uint64_t position; /* the highest position that one has at least */
    bool *groups;      /* [groups + 1] of which one is there */
};

/* Why the write must be there; NULL: it need not. */
static const char *
must_survive(const struct write *w, const struct survivors *s)
{
    if (w->acked && w->sync)
        return "was acknowledged as durable";
    if (w->seen && w->sync)
        return "was visible, hence durable";
    if (w->acked && (w->end < m.durable || w->high <= m.durable_position))
        return "had been made durable";
    if (w->acked && (w->end < s->latest || w->high < s->position))
        return "comes before a write that is there";
    if (s->groups[w->group])
        return "belongs to a transaction of which another write is there";
    return NULL;
}

/* All writes that must be there are: durable ones, and those before or together with one that is. */
static void
check_prefix(const write_id *found)
{
    struct survivors s = {.groups = calloc((size_t)m.groups + 1, sizeof(*s.groups))};

    SIM_CHECK(s.groups != NULL);
    for (unsigned k = 0; k < m.slots; k++) {
        if (!is_new(found[k]))
            continue;
        s.latest = ch_max_u64(s.latest, m.writes[found[k]].begin);
        s.position = ch_max_u64(s.position, m.writes[found[k]].low);
        s.groups[m.writes[found[k]].group] = true;
    }
    s.groups[0] = false;
    for (write_id w = 1; w < m.write_count; w++) {
        const struct write *wr = &m.writes[w];
        const char *why = is_new(w) && wr->effect ? must_survive(wr, &s) : NULL;

        if (why != NULL && !survives(wr, w, found[wr->key]))
            sim_fail("key %u: write %u [%" PRIu64 ", %" PRIu64
                     "] is lost, although it %s; found is %u",
                     wr->key, w, wr->begin, wr->end, why, found[wr->key]);
    }
    free(s.groups);
}

static void
key_restart(struct key *k, write_id found)
{
    for (int s = 0; s < PENDING_MAX; s++) {
        free(k->ops[s]);
        k->ops[s] = NULL;
    }
    sim_cover->loose_keys += k->loose;
    memset(&k->configs[0], 0, sizeof(k->configs[0]));
    k->configs[0].value = found;
    k->count = 1;
    k->loose = false;
    k->base = found;
    k->newest = 0;
}

void
sim_model_restart(const write_id *found, bool crash)
{
    for (unsigned k = 0; k < m.slots; k++)
        check_value(k, found[k], crash);
    check_prefix(found);
    for (unsigned k = 0; k < m.slots; k++)
        key_restart(&m.keys[k], found[k]);
    m.boot++;
    m.durable = 0;
    m.durable_position = 0;
}

/* ---- transactions ---- */

/* Whether a write that is certainly there lies, for certain, above `floor` and at or below `position`. */
static bool
overtaken(const struct key *k, write_id w, uint64_t floor, uint64_t position, write_id *by)
{
    for (write_id v = k->newest; v != 0; v = m.writes[v].next) {
        const struct write *wv = &m.writes[v];

        if (v != w && wv->acked && wv->high <= position && wv->low > floor) {
            *by = v;
            return true;
        }
    }
    return false;
}

bool
sim_seen_at(unsigned key, write_id value, uint64_t position, write_id *by)
{
    const struct key *k = &m.keys[key];

    if (value == k->base && !overtaken(k, 0, 0, position, by))
        return true;
    if (value != 0)
        return value != k->base && !overtaken(k, value, m.writes[value].high, position, by);
    for (write_id w = k->newest; w != 0; w = m.writes[w].next)
        if (clears(&m.writes[w]) && m.writes[w].effect &&
            !overtaken(k, w, m.writes[w].high, position, by))
            return true;
    return false;
}

bool
sim_written_between(unsigned key, write_id own, uint64_t after, uint64_t before, write_id *by)
{
    for (write_id v = m.keys[key].newest; v != 0; v = m.writes[v].next) {
        const struct write *wv = &m.writes[v];

        if (v != own && wv->acked && wv->kind != SIM_CLEAR && wv->low >= after &&
            wv->high < before) { /* CLEAR: of an absent key it is no write */
            *by = v;
            return true;
        }
    }
    return false;
}

uint64_t
sim_write_low(write_id w)
{
    return m.writes[w].boot == m.boot ? m.writes[w].low : 0;
}

bool
sim_write_is_visible(write_id w, uint64_t event)
{
    return w == 0 || (m.writes[w].effect && m.writes[w].begin < event);
}
