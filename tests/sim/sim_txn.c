/* sim_txn.c - workers of transactions; what a transaction reads, writes and may not see.
 *
 * The order of commits is that of their records in the log, and the log's end before and after a commit
 * bounds where its record lies. So every write has an interval of positions, and a snapshot is a
 * position. A transaction is judged with what is certain:
 *
 *   X1  it reads its own writes, as savepoints left them.
 *   X2  one position explains all its reads: with `low` = the highest of the positions that its reads,
 *       and the commits acknowledged before it began, prove, no read was overtaken at `low`.
 *   X3  it reads nothing whose commit began after its snapshot was taken, nothing uncommitted, and the
 *       same twice.
 *   X4  of two committed transactions that wrote a key, or locked it, one took its snapshot after the
 *       other's commit: nothing lies between the snapshot of a write and its commit.
 *   X5  serializable: at the commit of one that wrote nothing that it read, keys that were absent
 *       included, has changed. One that only read has its place at its snapshot.
 *
 * Single operations among them are judged one by one (sim_model.c), as are the commits, key by key.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"

enum {
    READS_MAX = 1024,
    SAVEPOINTS_MAX = 4,
    MANY_MAX = 12,
    RANGE_MAX = 12
};

struct change {
    unsigned slot;
    write_id w;
    bool clear;
    bool lock;              /* get_for_update: nothing is written */
    uint64_t snapshot_high; /* the end of the log just after the snapshot was taken */
};

struct seen {
    unsigned slot;
    write_id w;
};

struct strx { /* a transaction under way */
    struct sim_world *w;
    struct ch_prng *rng;
    unsigned worker;
    cohort_txn *t;
    bool serializable, read_only, sync;
    bool doomed;            /* can only be aborted */
    uint64_t begun;         /* event: when its snapshot was taken */
    uint64_t low;           /* its snapshot sees at least all below */
    uint64_t snapshot_high; /* and nothing above */
    uint32_t group;
    struct change changes[SIM_TXN_WRITES];
    unsigned change_count;
    struct seen reads[READS_MAX];
    unsigned read_count;
    struct {
        uint64_t id;
        unsigned changes;
    } savepoints[SAVEPOINTS_MAX];
    unsigned savepoint_count;
};

/* One thread runs at a time, but others may come in between two calls: one buffer a worker. */
static uint8_t value_bytes[SIM_WORKERS_MAX + 1][SIM_VALUE_MAX];

uint64_t
sim_txn_position(struct sim_world *w)
{
    return w->plan->transactions ? cohort_log_position(w->db) : 0;
}

static cohort_tree *
tree_of(const struct sim_world *w, unsigned slot)
{
    return w->trees[slot / w->plan->keys];
}

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

/* ---- results ---- */

/* True: the call worked. Errors that may be are noted; others fail the seed. */
static bool
worked(struct strx *x, const char *what, int rc)
{
    enum cohort_class class = cohort_class_of(rc);

    if (rc != 0)
        sim_trace("%u: %s: %s", x->worker, what, cohort_strerror(rc));
    if (rc == 0)
        return true;
    if (rc == COHORT_DEADLOCK || rc == COHORT_SNAPSHOT_TOO_OLD)
        x->doomed = true;
    if (rc == COHORT_CANCELED)
        sim_cover->canceled++;
    if (class == COHORT_CLASS_CONFLICT && rc != COHORT_EXISTS)
        return false;
    if (rc == COHORT_EFULL || rc == COHORT_ENOMEM) {
        sim_cover->full++;
        x->doomed = true;
        return false;
    }
    if (!sim_errors_allowed(x->w))
        sim_fail("%s: %s: %s", what, cohort_strerror(rc), cohort_last_error()->text);
    sim_cover->errors++;
    if (rc == COHORT_EFAILED)
        x->w->failed = true;
    x->doomed = true;
    return false;
}

/* ---- what it sees ---- */

/* Its own change of the key, NULL without one. */
static const struct change *
own_change(const struct strx *x, unsigned slot)
{
    for (unsigned i = x->change_count; i > 0; i--)
        if (x->changes[i - 1].slot == slot && !x->changes[i - 1].lock)
            return &x->changes[i - 1];
    return NULL;
}

static bool
find_read(const struct strx *x, unsigned slot, write_id *w)
{
    for (unsigned i = 0; i < x->read_count; i++) {
        if (x->reads[i].slot == slot) {
            *w = x->reads[i].w;
            return true;
        }
    }
    return false;
}

/* The key was read: `w`, 0 = absent. */
static void
saw(struct strx *x, unsigned slot, write_id w)
{
    const struct change *own = own_change(x, slot);
    write_id before;

    if (own != NULL) {
        if (w != (own->clear ? 0 : own->w))
            sim_fail("key %u: a transaction reads write %u, its own was %u%s", slot, w, own->w,
                     own->clear ? ", a deletion" : ""); /* X1 */
        return;
    }
    if (!sim_write_is_visible(w, x->begun))
        sim_fail("key %u: a transaction reads write %u, which was not committed when it began",
                 slot, w); /* X3 */
    if (find_read(x, slot, &before)) {
        if (before != w)
            sim_fail("key %u: a transaction reads write %u after write %u", slot, w,
                     before); /* X3 */
        return;
    }
    sim_write_seen(w);
    if (x->read_count < READS_MAX)
        x->reads[x->read_count++] = (struct seen){slot, w};
}

/* X2 for what has been read since the snapshot was taken. */
static void
judge_reads(struct strx *x)
{
    uint64_t low = x->low;
    write_id by = 0;

    for (unsigned i = 0; i < x->read_count; i++)
        if (x->reads[i].w != 0)
            low = ch_max_u64(low, sim_write_low(x->reads[i].w));
    for (unsigned i = 0; i < x->read_count; i++)
        if (!sim_seen_at(x->reads[i].slot, x->reads[i].w, low, &by))
            sim_fail("key %u: a snapshot of at least position %" PRIu64
                     " reads write %u, which write %u had replaced",
                     x->reads[i].slot, low, x->reads[i].w, by);
    sim_cover->snapshots_checked++;
}

/* ---- begin, end ---- */

static bool
begin(struct strx *x)
{
    static const int DURABILITIES[] = {COHORT_DEFAULT, COHORT_DEFAULT, COHORT_DURABILITY_SYNC,
                                       COHORT_DURABILITY_ASYNC, COHORT_DURABILITY_NONE};
    struct cohort_txn_options o;
    int durability = DURABILITIES[ch_prng_below(x->rng, CH_ARRAY_LEN(DURABILITIES))];
    uint64_t low = x->w->visible;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = x->read_only = ch_prng_below(x->rng, 6) == 0;
    x->serializable = ch_prng_below(x->rng, 100) < x->w->plan->serializable;
    o.isolation = x->serializable ? COHORT_SERIALIZABLE : COHORT_SNAPSHOT;
    o.durability = durability;
    if (ch_prng_below(x->rng, 4) == 0)
        o.lock_timeout_ms = (int64_t)ch_prng_below(x->rng, 3) * 10;
    o.tag = x;
    x->sync = (durability == COHORT_DEFAULT ? (int)x->w->plan->opts.durability : durability) ==
              COHORT_DURABILITY_SYNC;
    x->doomed = false;
    x->change_count = x->read_count = x->savepoint_count = 0;
    x->group = sim_group_new();
    x->t = NULL;
    rc = cohort_begin(x->w->db, &o, &x->t);
    if (rc == COHORT_EBUSY) /* transactions_max, by other workers or cursors */
        return false;
    if (!worked(x, "begin", rc))
        return false;
    x->begun = sim_event();
    x->low = low;
    x->snapshot_high = cohort_log_position(x->w->db);
    sim_cover->transactions++;
    sim_trace("%u: begin%s%s: low %" PRIu64 " high %" PRIu64, x->worker,
              x->serializable ? " serializable" : "", x->sync ? " sync" : "", x->low,
              x->snapshot_high);
    return true;
}

/* The newest write of each key, in the order of writing; returns how many. */
static unsigned
final_writes(const struct strx *x, write_id *out)
{
    unsigned n = 0;

    for (unsigned i = 0; i < x->change_count; i++)
        if (own_change(x, x->changes[i].slot) == &x->changes[i])
            out[n++] = x->changes[i].w;
    return n;
}

static enum sim_outcome
end_outcome(struct strx *x, int rc)
{
    if (rc == 0)
        return SIM_DONE;
    if (cohort_class_of(rc) == COHORT_CLASS_CONFLICT)
        return SIM_NOTHING;
    return sim_errors_allowed(x->w) ? SIM_UNKNOWN : SIM_NOTHING;
}

/* X4, X5: a commit between the positions low and high worked. */
static void
judge_commit(struct strx *x, uint64_t low, bool wrote)
{
    write_id by = 0;

    for (unsigned i = 0; i < x->change_count; i++) {
        const struct change *c = &x->changes[i];
        const struct change *final = own_change(x, c->slot);

        if (sim_written_between(c->slot, final != NULL ? final->w : 0, c->snapshot_high + 1, low,
                                &by))
            sim_fail("key %u: write %u was committed between the snapshot (%" PRIu64
                     " at most) and the commit (%" PRIu64 " at least) of a transaction that %s it",
                     c->slot, by, c->snapshot_high, low, c->lock ? "locked" : "wrote");
    }
    for (unsigned i = 0; i < x->read_count && x->serializable && wrote; i++)
        if (!sim_seen_at(x->reads[i].slot, x->reads[i].w, low - 1, &by))
            sim_fail("key %u: read as write %u by a serializable transaction, which committed "
                     "although write %u had replaced it",
                     x->reads[i].slot, x->reads[i].w, by);
}

/* Acknowledged with a record that ends between the two positions. */
static void
note_visible(struct sim_world *w, uint64_t low)
{
    w->visible = ch_max_u64(w->visible, low);
}

static void
finish_ops(struct sim_op **ops, unsigned n, enum sim_outcome o)
{
    for (unsigned i = 0; i < n; i++)
        sim_op_end(ops[i], o, 0);
}

static void
commit(struct strx *x)
{
    struct sim_op *ops[SIM_TXN_WRITES] = {NULL};
    write_id writes[SIM_TXN_WRITES];
    unsigned n = final_writes(x, writes);
    uint64_t low = cohort_log_position(x->w->db) + 1, high = 0;
    bool visible = ch_prng_below(x->rng, 4) == 0;
    enum sim_outcome o;
    int rc;

    judge_reads(x);
    for (unsigned i = 0; i < n; i++) {
        sim_write_sync(writes[i], x->sync && !visible);
        sim_write_position(writes[i], low, UINT64_MAX);
        ops[i] = sim_write_begin(writes[i]);
    }
    sim_trace("%u: commit%s of %u writes, group %u", x->worker, visible ? " (visible)" : "", n,
              x->group);
    rc = visible ? cohort_commit_visible(x->t, &high) : cohort_commit(x->t);
    x->t = NULL;
    (void)worked(x, "commit", rc);
    o = end_outcome(x, rc);
    if (rc == 0) {
        uint64_t end = cohort_log_position(x->w->db);

        for (unsigned i = 0; i < n; i++)
            sim_write_position(writes[i], low, visible ? ch_min_u64(high, end) : end);
        if (n > 0)
            note_visible(x->w, low);
        judge_commit(x, low, n > 0);
    }
    sim_trace("%u: commit of group %u ends: %s", x->worker, x->group, cohort_strerror(rc));
    finish_ops(ops, n, o);
    if (rc == 0 && visible && ch_prng_below(x->rng, 2) == 0 &&
        worked(x, "durable", cohort_durable(x->w->db, high)))
        sim_model_durable_position(high);
}

static void
give_up(struct strx *x)
{
    int rc;

    judge_reads(x);
    rc = cohort_abort(x->t);
    x->t = NULL;
    if (rc != 0 && !sim_errors_allowed(x->w))
        sim_fail("abort: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    sim_trace("%u: abort: %s", x->worker, cohort_strerror(rc));
}

/* ---- prepared ---- */

static size_t
gid_of(const struct sim_prepared *p, char *out)
{
    return (size_t)snprintf(out, 32, "prepared-%" PRIu32, p->number);
}

static void
prepare(struct strx *x)
{
    struct sim_prepared *p = NULL;
    char gid[32];
    int rc;

    for (int i = 0; i < SIM_PREPARED_MAX && p == NULL; i++)
        if (x->w->prepared[i].state == SIM_PREPARED_NONE)
            p = &x->w->prepared[i];
    if (p == NULL) {
        give_up(x);
        return;
    }
    judge_reads(x);
    *p = (struct sim_prepared){.state = SIM_PREPARING,
                               .busy = true,
                               .sync =
                                   x->sync && x->w->plan->opts.durability == COHORT_DURABILITY_SYNC,
                               .number = ++x->w->prepared_count};
    p->count = final_writes(x, p->writes);
    rc = cohort_prepare(x->t, gid, gid_of(p, gid));
    x->t = NULL;
    sim_trace("%u: prepare of group %u as %s: %s", x->worker, x->group, gid, cohort_strerror(rc));
    p->busy = false;
    if (worked(x, "prepare", rc)) {
        p->state = SIM_PREPARED;
        sim_cover->prepared++;
    } else if (end_outcome(x, rc) == SIM_NOTHING) {
        p->state = SIM_PREPARED_NONE;
    }
}

/* Commits or aborts what was prepared. */
static void
decide(struct sim_world *w, struct sim_prepared *p, bool commits)
{
    struct strx x = {.w = w, .worker = SIM_WORKERS_MAX};
    struct sim_op *ops[SIM_TXN_WRITES] = {NULL};
    uint64_t low = cohort_log_position(w->db) + 1;
    char gid[32];
    size_t n = gid_of(p, gid);
    int rc;

    p->busy = true;
    p->state = commits ? SIM_COMMITTING : SIM_ABORTING;
    for (unsigned i = 0; commits && i < p->count; i++) {
        sim_write_sync(p->writes[i], p->sync);
        sim_write_position(p->writes[i], low, UINT64_MAX);
        ops[i] = sim_write_begin(p->writes[i]);
    }
    rc = commits ? cohort_commit_prepared(w->db, gid, n) : cohort_abort_prepared(w->db, gid, n);
    sim_trace("%s %s: %s", commits ? "commit" : "abort", gid, cohort_strerror(rc));
    (void)worked(&x, "end of a prepared transaction", rc);
    if (rc == 0) {
        for (unsigned i = 0; commits && i < p->count; i++)
            sim_write_position(p->writes[i], low, cohort_log_position(w->db));
        if (commits && p->count > 0)
            note_visible(w, low);
        p->state = commits ? SIM_COMMITTED : SIM_ABORTED;
        sim_cover->prepared_ended++;
    }
    if (commits)
        finish_ops(ops, p->count, rc == 0 ? SIM_DONE : SIM_UNKNOWN);
    p->busy = false;
}

static void
decide_any(struct strx *x)
{
    struct sim_prepared *p = &x->w->prepared[ch_prng_below(x->rng, SIM_PREPARED_MAX)];

    if (p->state == SIM_PREPARED && !p->busy)
        decide(x->w, p, ch_prng_below(x->rng, 3) != 0);
}

void
sim_txn_settle(struct sim_world *w)
{
    for (int i = 0; i < SIM_PREPARED_MAX; i++)
        if (w->prepared[i].state == SIM_PREPARED)
            decide(w, &w->prepared[i], i % 2 == 0);
}

struct listed {
    const struct sim_world *w;
    bool there[SIM_PREPARED_MAX];
};

static int
list_one(void *arg, const void *gid, size_t gid_bytes)
{
    struct listed *l = arg;
    char want[32];

    for (int i = 0; i < SIM_PREPARED_MAX; i++) {
        const struct sim_prepared *p = &l->w->prepared[i];

        if (p->state != SIM_PREPARED_NONE && gid_of(p, want) == gid_bytes &&
            memcmp(want, gid, gid_bytes) == 0) {
            l->there[i] = true;
            return 0;
        }
    }
    sim_fail("prepared transaction %.*s is there, and should not be", (int)gid_bytes,
             (const char *)gid);
}

/* How many of its writes are there. */
static unsigned
count_found(const struct sim_prepared *p, const write_id *found)
{
    unsigned n = 0;

    for (unsigned i = 0; i < p->count; i++)
        n += found[sim_write_key(p->writes[i])] == p->writes[i];
    return n;
}

void
sim_txn_check_prepared(struct sim_world *w, const write_id *found, bool crash)
{
    struct listed l = {.w = w};
    int rc = cohort_list_prepared(w->db, list_one, &l);

    if (rc != 0)
        sim_fail("list of prepared transactions: %s", cohort_strerror(rc));
    for (int i = 0; i < SIM_PREPARED_MAX; i++) {
        struct sim_prepared *p = &w->prepared[i];

        if (p->state == SIM_PREPARED_NONE)
            continue;
        if (l.there[i] && count_found(p, found) > 0)
            sim_fail("prepared transaction %u is there, and so is a write of it", p->number);
        if (l.there[i] && (p->state == SIM_COMMITTED || p->state == SIM_ABORTED) &&
            (!crash || (p->state == SIM_COMMITTED && p->sync)))
            sim_fail("prepared transaction %u is there again after its end", p->number);
        if (p->state == SIM_PREPARED && !l.there[i])
            sim_fail("prepared transaction %u is lost%s", p->number,
                     crash ? " in a crash" : " by a restart");
        if (p->state == SIM_ABORTING && !l.there[i] && count_found(p, found) > 0)
            sim_fail("prepared transaction %u was aborted, a write of it is there", p->number);
        p->state = l.there[i] ? SIM_PREPARED : SIM_PREPARED_NONE;
        p->busy = false;
    }
}

/* ---- operations ---- */

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
    int rc = cohort_txn_read(x->t, tree_of(x->w, slot), key, kn, offset, buf, want, &got, &total);

    if (!worked(x, "txn read", rc))
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
    int rc = for_update ? cohort_txn_get_for_update(x->t, tree_of(x->w, slot), key, kn, &v)
                        : cohort_txn_get(x->t, tree_of(x->w, slot), key, kn, &v);
    bool ok = rc == COHORT_NOTFOUND || worked(x, for_update ? "get for update" : "txn get", rc);

    if (ok) {
        *w = rc == 0 ? parse(slot, &v) : 0;
        sim_trace("%u: txn get%s %u = %u", x->worker, for_update ? " for update" : "", slot, *w);
        saw(x, slot, *w);
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
    cohort_tree *tree = tree_of(x->w, slot);

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
    w = sim_write_new(slot, kind == SIM_DEL ? SIM_CLEAR : SIM_PUT, x->group, x->sync);
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
    if (!worked(x, "txn write", rc))
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
    int rc = cohort_txn_cursor(x->t, tree_of(x->w, slot), &c);

    if (!worked(x, "cursor", rc))
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
            saw(x, base + sim_key_at(at), 0);
        saw(x, base + number, sim_value_parse(base + number, v.data, v.bytes));
        at++;
        if (--steps == 0)
            break;
    }
    for (; rc == COHORT_NOTFOUND && at < (int)p->keys; at++)
        saw(x, base + sim_key_at(at), 0);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        (void)worked(x, "txn scan", rc);
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
    rc = cohort_get_many(x->w->db, x->t, tree_of(x->w, first), n, slices, values, rcs);
    for (unsigned i = 0; i < n; i++) {
        if (rcs[i] == 0 || rcs[i] == COHORT_NOTFOUND)
            saw(x, slots[i], rcs[i] == 0 ? parse(slots[i], &values[i]) : 0);
        cohort_value_free(&values[i]);
    }
    (void)worked(x, "get many", rc);
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
    rc = cohort_txn_del_range(x->t, tree_of(x->w, slot), &from, &to, &deleted);
    sim_trace("%u: del range of %u keys: %s", x->worker, n, cohort_strerror(rc));
    if (!worked(x, "del range", rc)) {
        x->doomed = true; /* some may be deleted */
        return;
    }
    if (deleted != (first < end ? n : 0))
        sim_fail("a range of %u keys: %" PRIu64 " were deleted", n, deleted);
    for (unsigned i = 0; i < n; i++)
        note_change(x, present[i], sim_write_new(present[i], SIM_CLEAR, x->group, x->sync), true);
}

static void
txn_savepoint(struct strx *x)
{
    unsigned n = x->savepoint_count, i;

    sim_cover->savepoints++;
    if (n < SAVEPOINTS_MAX && ch_prng_below(x->rng, 2) == 0) {
        x->savepoints[n].changes = x->change_count;
        if (worked(x, "savepoint", cohort_savepoint(x->t, &x->savepoints[n].id)))
            x->savepoint_count++;
        return;
    }
    if (n == 0)
        return;
    i = (unsigned)ch_prng_below(x->rng, n);
    if (ch_prng_below(x->rng, 3) == 0) {
        if (worked(x, "release", cohort_release(x->t, x->savepoints[i].id)))
            x->savepoint_count = i;
        return;
    }
    if (!worked(x, "rollback", cohort_rollback_to(x->t, x->savepoints[i].id)))
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
    judge_reads(x);
    rc = cohort_txn_refresh(x->t);
    if (!worked(x, "refresh", rc))
        return;
    x->read_count = 0;
    x->begun = sim_event();
    x->low = low;
    x->snapshot_high = cohort_log_position(x->w->db);
    sim_trace("%u: refresh: low %" PRIu64 " high %" PRIu64, x->worker, x->low, x->snapshot_high);
}

static void
txn_step(struct strx *x)
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

static void
run_transaction(struct strx *x)
{
    unsigned steps = 1 + (unsigned)ch_prng_below(x->rng, x->w->plan->txn_steps);

    if (!begin(x))
        return;
    for (unsigned i = 0; i < steps && !x->doomed && !x->w->stop; i++) {
        txn_step(x);
        rt_sim_progress();
    }
    if (x->doomed || x->w->stop || ch_prng_below(x->rng, 8) == 0)
        give_up(x);
    else if (!x->read_only && x->change_count > 0 &&
             ch_prng_below(x->rng, 100) < x->w->plan->prepare)
        prepare(x);
    else
        commit(x);
}

/* ---- waits ---- */

/* Now and then a wait is cancelled, by the waiter itself: its handle is certainly alive. */
static void
wait_hook(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder, void *holder_tag)
{
    struct sim_world *w = arg;
    struct strx *x = waiter_tag;

    (void)holder_tag;
    sim_trace("transaction %" PRIu64 " waits for %" PRIu64, waiter, holder);
    if (waiter != 0 && waiter == holder)
        sim_fail("transaction %" PRIu64 " waits for itself", waiter);
    if (x != NULL && !w->fair && rt_random() % 32 == 0)
        cohort_txn_cancel(x->t);
}

/* ---- the world ---- */

int
sim_txn_open(struct sim_world *w)
{
    char name[16];
    int rc = 0;

    w->visible = 0;
    cohort_set_wait_hook(w->db, wait_hook, w);
    for (unsigned t = 1; t < w->plan->trees && rc == 0; t++) {
        (void)snprintf(name, sizeof(name), "tree-%u", t);
        rc = cohort_tree_open(w->db, NULL, name, COHORT_TREE_CREATE, NULL, &w->trees[t]);
    }
    return rc;
}

void
sim_txn_close(struct sim_world *w)
{
    for (unsigned t = 1; t < w->plan->trees; t++) {
        cohort_tree_close(w->trees[t]);
        w->trees[t] = NULL;
    }
}

static unsigned
read_tree(struct sim_world *w, cohort_txn *t, unsigned tree, write_id *found)
{
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    int rc = cohort_txn_cursor(t, w->trees[tree], &c), last = -1;
    unsigned n = 0;

    for (rc = rc == 0 ? cohort_cursor_first(c) : rc; rc == 0; rc = cohort_cursor_next(c)) {
        unsigned number;

        rc = cohort_cursor_entry(c, &key, &value);
        if (rc != 0)
            break;
        number = sim_key_number(key.data, key.bytes);
        if (sim_key_position(number) <= last)
            sim_fail("key %u of tree %u: out of order, or twice", number, tree);
        last = sim_key_position(number);
        number += tree * w->plan->keys;
        found[number] = sim_value_parse(number, value.data, value.bytes);
        n++;
    }
    if (rc != COHORT_NOTFOUND)
        sim_fail("scan of tree %u: %s: %s", tree, cohort_strerror(rc), cohort_last_error()->text);
    cohort_cursor_close(c);
    return n;
}

unsigned
sim_txn_read_all(struct sim_world *w, write_id *found)
{
    cohort_txn *t = NULL;
    unsigned n = 0;
    int rc = cohort_begin(w->db, NULL, &t);

    if (rc != 0)
        sim_fail("begin: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    for (unsigned i = 0; i < w->plan->trees; i++)
        n += read_tree(w, t, i, found);
    rc = cohort_commit(t);
    if (rc != 0)
        sim_fail("commit: %s: %s", cohort_strerror(rc), cohort_last_error()->text);
    return n;
}

void
sim_txn_worker(struct sim_world *w, unsigned worker, struct ch_prng *rng, unsigned ops)
{
    struct strx *x = calloc(1, sizeof(*x));

    SIM_CHECK(x != NULL);
    x->w = w;
    x->rng = rng;
    x->worker = worker;
    for (unsigned done = 0; done < ops && !w->stop && !w->failed;) {
        unsigned d = (unsigned)ch_prng_below(rng, 100);
        unsigned before = done;

        if (d < 15) {
            done += 3;
            sim_load_worker(w, worker, rng, 3);
        } else if (d < 25) {
            done++;
            decide_any(x);
        } else if (d < 30 && worker == 0) {
            done++;
            sim_ddl_step(w, rng);
        } else {
            done += 4;
            run_transaction(x);
        }
        w->ended += done - before;
        sim_cover->operations += done - before;
        rt_sim_progress();
        sim_watch(w);
    }
    free(x);
}
