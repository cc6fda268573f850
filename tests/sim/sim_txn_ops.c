/* sim_txn_ops.c - what a transaction does between its begin and its end: reads, writes, scans, savepoints;
 * each result is compared with what the transaction may see (sim_txn.c).
 */
#include <inttypes.h>

#include "sim_txn.h"

enum {
    MANY_MAX = 12,
    RANGE_MAX = 12
};

/* One thread runs at a time, but others may come in between two calls: one buffer a worker. */
static uint8_t value_bytes[SIM_WORKERS_MAX + 1][SIM_VALUE_MAX];

static unsigned
draw_slot(struct strx *x)
{
    const struct sim_plan *p = x->w->plan;
    unsigned spread = p->key_spread;

    if (spread >= 8 && ch_prng_below(x->rng, 2) == 0)
        spread /= 8;
    return (unsigned)ch_prng_below(x->rng, p->trees) * p->keys +
           (unsigned)ch_prng_below(x->rng, spread);
}

static write_id
parse(unsigned slot, const struct cohort_value *v)
{
    if (v->bytes > COHORT_ENTRY_MAX)
        sim_cover->large_values++;
    return sim_value_parse(slot, v->data, v->bytes);
}

/* Part of what was read once more, through the streamed read. */
static void
read_piece(struct strx *x, unsigned slot, const struct cohort_value *v)
{
    static uint8_t bufs[SIM_WORKERS_MAX + 1][SIM_VALUE_MAX];
    uint8_t *buf = bufs[x->worker];
    uint8_t key[COHORT_KEY_MAX];
    size_t kn = sim_key(slot, key), got = 0;
    uint64_t offset = ch_prng_below(x->rng, v->bytes + 1), total = 0;
    size_t want = ch_prng_below(x->rng, SIM_VALUE_MAX);
    int rc =
        cohort_txn_read(x->t, sim_txn_tree(x->w, slot), key, kn, offset, buf, want, &got, &total);

    if (!sim_txn_worked(x, "txn read", rc))
        return;
    if (total != v->bytes || got != ch_min_u64(want, v->bytes - offset) ||
        memcmp(buf, (const uint8_t *)v->data + offset, got) != 0)
        sim_fail("key %u: %zu bytes from %" PRIu64 " on are not what the whole value says", slot,
                 got, offset);
}

/* Reads the key; false when it could not be read. *w: what is there. */
static bool
read_key(struct strx *x, unsigned slot, bool for_update, write_id *w)
{
    uint8_t key[COHORT_KEY_MAX];
    size_t kn = sim_key(slot, key);
    struct cohort_value v = {0};
    int rc = for_update ? cohort_txn_get_for_update(x->t, sim_txn_tree(x->w, slot), key, kn, &v)
                        : cohort_txn_get(x->t, sim_txn_tree(x->w, slot), key, kn, &v);
    bool ok =
        rc == COHORT_NOTFOUND || sim_txn_worked(x, for_update ? "get for update" : "txn get", rc);

    if (ok) {
        *w = rc == 0 ? parse(slot, &v) : 0;
        sim_trace("%u: txn get%s %u = %u", x->worker, for_update ? " for update" : "", slot, *w);
        sim_txn_saw(x, slot, *w);
    }
    if (rc == 0 && ch_prng_below(x->rng, 8) == 0)
        read_piece(x, slot, &v);
    if (ok && for_update && x->change_count < SIM_TXN_WRITES)
        x->changes[x->change_count++] =
            (struct change){.slot = slot, .lock = true, .snapshot_high = x->snapshot_high};
    cohort_value_free(&v);
    return ok;
}

static void
note_change(struct strx *x, unsigned slot, write_id w, bool clear)
{
    x->changes[x->change_count++] =
        (struct change){.slot = slot, .w = w, .clear = clear, .snapshot_high = x->snapshot_high};
}

/* A large value piece by piece. */
static int
write_pieces(struct strx *x, cohort_tree *tree, const uint8_t *key, size_t kn, const uint8_t *value,
             size_t vn)
{
    size_t piece = 1 + ch_prng_below(x->rng, vn);
    cohort_writer *wr = NULL;
    int rc = cohort_writer_open(x->t, tree, key, kn, &wr);

    if (rc != 0)
        return rc;
    for (size_t at = 0; at < vn && rc == 0; at += piece)
        rc = cohort_writer_append(wr, value + at, ch_min_u64(piece, vn - at));
    if (rc == 0)
        return cohort_writer_finish(wr);
    cohort_writer_cancel(wr);
    return rc;
}

/* One of four ways to write, of which the key's state decides what must come of it. */
static int
write_call(struct strx *x, enum sim_kind kind, unsigned slot, const uint8_t *value, size_t vn)
{
    uint8_t key[COHORT_KEY_MAX];
    size_t kn = sim_key(slot, key);
    cohort_tree *tree = sim_txn_tree(x->w, slot);

    if (kind == SIM_INSERT)
        return cohort_txn_insert(x->t, tree, key, kn, value, vn);
    if (kind == SIM_UPDATE)
        return cohort_txn_update(x->t, tree, key, kn, value, vn);
    if (kind == SIM_DEL)
        return cohort_txn_del(x->t, tree, key, kn);
    if (vn > COHORT_ENTRY_MAX && vn % 2 == 0)
        return write_pieces(x, tree, key, kn, value, vn);
    return cohort_txn_put(x->t, tree, key, kn, value, vn);
}

static void
write_slot(struct strx *x, enum sim_kind kind, unsigned slot)
{
    uint8_t *value = value_bytes[x->worker];
    write_id old = 0, w;
    bool blind = kind == SIM_PUT && ch_prng_below(x->rng, 2) == 0;
    bool refused;
    int rc;

    if (x->change_count == SIM_TXN_WRITES || (!blind && !read_key(x, slot, false, &old)))
        return;
    refused = kind == SIM_INSERT ? old != 0 : (kind == SIM_UPDATE || kind == SIM_DEL) && old == 0;
    w = sim_write_new(slot, kind == SIM_DEL ? SIM_REMOVE : SIM_PUT, x->group, x->sync);
    rc = write_call(x, kind, slot, value, sim_value(w, value));
    sim_trace("%u: txn write %u of kind %d to %u: %s", x->worker, w, (int)kind, slot,
              cohort_strerror(rc));
    if (refused && rc == (kind == SIM_INSERT ? COHORT_EXISTS : COHORT_NOTFOUND))
        return;
    if (x->read_only) {
        if (rc == 0)
            sim_fail("key %u: a read-only transaction has written", slot);
        return;
    }
    if (!sim_txn_worked(x, "txn write", rc))
        return;
    if (refused)
        sim_fail("key %u: a write of kind %d worked on write %u", slot, (int)kind, old);
    note_change(x, slot, w, kind == SIM_DEL);
}

static void
txn_scan(struct strx *x)
{
    const struct sim_plan *p = x->w->plan;
    unsigned slot = draw_slot(x), base = slot / p->keys * p->keys;
    uint8_t key[COHORT_KEY_MAX];
    size_t kn = sim_key(slot, key);
    unsigned steps = 1 + (unsigned)ch_prng_below(x->rng, RANGE_MAX);
    int at = sim_key_position(slot % p->keys);
    cohort_cursor *c = NULL;
    int rc = cohort_txn_cursor(x->t, sim_txn_tree(x->w, slot), &c);

    if (!sim_txn_worked(x, "cursor", rc))
        return;
    for (rc = cohort_cursor_seek(c, key, kn); rc == 0; rc = cohort_cursor_next(c)) {
        struct cohort_slice k, v;
        unsigned number;

        rc = cohort_cursor_entry(c, &k, &v);
        if (rc != 0)
            break;
        number = sim_key_number(k.data, k.bytes);
        if (sim_key_position(number) < at)
            sim_fail("key %u: out of order in a scan", number);
        for (; at < sim_key_position(number); at++)
            sim_txn_saw(x, base + sim_key_at(at), 0);
        sim_txn_saw(x, base + number, sim_value_parse(base + number, v.data, v.bytes));
        at++;
        if (--steps == 0)
            break;
    }
    for (; rc == COHORT_NOTFOUND && at < (int)p->keys; at++)
        sim_txn_saw(x, base + sim_key_at(at), 0);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        (void)sim_txn_worked(x, "txn scan", rc);
    cohort_cursor_close(c);
    sim_cover->scans++;
}

static void
txn_many(struct strx *x)
{
    static uint8_t keys[SIM_WORKERS_MAX + 1][MANY_MAX][COHORT_KEY_MAX];
    struct cohort_slice slices[MANY_MAX];
    struct cohort_value values[MANY_MAX] = {0};
    int rcs[MANY_MAX] = {0};
    unsigned slots[MANY_MAX];
    unsigned first = draw_slot(x), base = first / x->w->plan->keys * x->w->plan->keys;
    unsigned n = 1 + (unsigned)ch_prng_below(x->rng, MANY_MAX);
    int rc;

    for (unsigned i = 0; i < n; i++) {
        slots[i] = base + draw_slot(x) % x->w->plan->keys;
        slices[i] =
            (struct cohort_slice){keys[x->worker][i], sim_key(slots[i], keys[x->worker][i])};
    }
    rc = cohort_get_many(x->w->db, x->t, sim_txn_tree(x->w, first), n, slices, values, rcs);
    for (unsigned i = 0; i < n; i++) {
        if (rcs[i] == 0 || rcs[i] == COHORT_NOTFOUND)
            sim_txn_saw(x, slots[i], rcs[i] == 0 ? parse(slots[i], &values[i]) : 0);
        cohort_value_free(&values[i]);
    }
    (void)sim_txn_worked(x, "get many", rc);
}

/* Deletes some neighbours, which are read first. */
static void
txn_del_range(struct strx *x)
{
    const struct sim_plan *p = x->w->plan;
    unsigned slot = draw_slot(x), base = slot / p->keys * p->keys;
    int first = sim_key_position(slot % p->keys);
    int end = (int)ch_min_u64((uint64_t)first + 1 + ch_prng_below(x->rng, RANGE_MAX), p->keys - 1);
    uint8_t from_key[COHORT_KEY_MAX], to_key[COHORT_KEY_MAX];
    struct cohort_slice from, to;
    unsigned present[RANGE_MAX + 1], n = 0;
    uint64_t deleted = 0;
    write_id w = 0;
    int rc;

    if (x->change_count + RANGE_MAX >= SIM_TXN_WRITES || x->read_only)
        return;
    for (int i = first; i < end; i++) {
        if (!read_key(x, base + sim_key_at(i), false, &w))
            return;
        if (w != 0)
            present[n++] = base + sim_key_at(i);
    }
    from = (struct cohort_slice){from_key, sim_key(sim_key_at(first), from_key)};
    to = (struct cohort_slice){to_key, sim_key(sim_key_at(end), to_key)};
    rc = cohort_txn_del_range(x->t, sim_txn_tree(x->w, slot), &from, &to, &deleted);
    sim_trace("%u: del range of %u keys: %s", x->worker, n, cohort_strerror(rc));
    if (!sim_txn_worked(x, "del range", rc)) {
        x->doomed = true; /* some may be deleted */
        return;
    }
    if (deleted != (first < end ? n : 0))
        sim_fail("a range of %u keys: %" PRIu64 " were deleted", n, deleted);
    for (unsigned i = 0; i < n; i++)
        note_change(x, present[i], sim_write_new(present[i], SIM_REMOVE, x->group, x->sync), true);
}

static void
txn_savepoint(struct strx *x)
{
    unsigned n = x->savepoint_count, i;

    sim_cover->savepoints++;
    if (n < SAVEPOINTS_MAX && ch_prng_below(x->rng, 2) == 0) {
        x->savepoints[n].changes = x->change_count;
        if (sim_txn_worked(x, "savepoint", cohort_savepoint(x->t, &x->savepoints[n].id)))
            x->savepoint_count++;
        return;
    }
    if (n == 0)
        return;
    i = (unsigned)ch_prng_below(x->rng, n);
    if (ch_prng_below(x->rng, 3) == 0) {
        if (sim_txn_worked(x, "release", cohort_release(x->t, x->savepoints[i].id)))
            x->savepoint_count = i;
        return;
    }
    if (!sim_txn_worked(x, "rollback", cohort_rollback_to(x->t, x->savepoints[i].id)))
        return;
    sim_trace("%u: rolled back from %u to %u changes", x->worker, x->change_count,
              x->savepoints[i].changes);
    x->change_count = x->savepoints[i].changes;
    x->savepoint_count = i + 1;
}

static void
txn_refresh(struct strx *x)
{
    uint64_t low = x->w->visible;
    int rc;

    if (x->serializable)
        return;
    sim_txn_judge_reads(x);
    rc = cohort_txn_refresh(x->t);
    if (!sim_txn_worked(x, "refresh", rc))
        return;
    x->read_count = 0;
    x->begun = sim_event();
    x->low = low;
    x->snapshot_high = cohort_log_position(x->w->db);
    sim_trace("%u: refresh: low %" PRIu64 " high %" PRIu64, x->worker, x->low, x->snapshot_high);
}

void
sim_txn_step(struct strx *x)
{
    static const enum sim_kind KINDS[] = {SIM_PUT,    SIM_PUT,    SIM_PUT,
                                          SIM_INSERT, SIM_UPDATE, SIM_DEL};
    unsigned d = (unsigned)ch_prng_below(x->rng, 100);
    write_id w;

    if (d < 25)
        (void)read_key(x, draw_slot(x), false, &w);
    else if (d < 30 && !x->read_only)
        (void)read_key(x, draw_slot(x), true, &w);
    else if (d < 38)
        txn_scan(x);
    else if (d < 43)
        txn_many(x);
    else if (d < 46)
        txn_del_range(x);
    else if (d < 54)
        txn_savepoint(x);
    else if (d < 57)
        txn_refresh(x);
    else if (d < 60)
        rt_sleep_ns(ch_prng_below(x->rng, 20000000));
    else
        write_slot(x, KINDS[ch_prng_below(x->rng, CH_ARRAY_LEN(KINDS))], draw_slot(x));
}
