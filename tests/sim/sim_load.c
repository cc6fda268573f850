/* sim_load.c - a worker of single operations, batches and cursors; each result goes to the model. */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"

enum {
    BATCH_MAX = 8,
    SCAN_MAX = 30,
    DRAIN_TRIES = 10
};

#define DRAIN_PAUSE_NS UINT64_C(50000000)
#define FAIR_NS        UINT64_C(60000000000) /* most that an operation may take when all is well */

struct load {
    struct sim_world *w;
    struct ch_prng *rng;
    unsigned worker, window; /* first key of the window */
    struct cohort_value value;
    cohort_batch *batch;
    uint8_t key[COHORT_KEY_MAX];
    uint8_t bytes[SIM_VALUE_MAX];
};

static unsigned
draw_key(struct load *l)
{
    const struct sim_plan *p = l->w->plan;
    unsigned spread = p->key_spread;

    /* Half of the draws go to an eighth of the window. */
    if (spread >= 8 && ch_prng_below(l->rng, 2) == 0)
        spread /= 8;
    return (l->window + (unsigned)ch_prng_below(l->rng, spread)) % p->keys;
}

bool
sim_errors_allowed(struct sim_world *w)
{
    bool dead;

    return w->stop || w->failed || dev_fault_failed(w->fault, &dead) > 0 || dead;
}

void
sim_watch(struct sim_world *w)
{
    bool dead;

    if (dev_fault_failed(w->fault, &dead) > 0 && dead)
        w->stop = true;
}

/* What an operation's result says; fails the seed when it may not be. */
static enum sim_outcome
outcome_of(struct load *l, const char *what, enum sim_kind kind, int rc)
{
    bool allowed = sim_errors_allowed(l->w);
    bool batch = what[0] == 'b';

    if (rc == 0)
        return SIM_DONE;
    if (rc == COHORT_NOTFOUND && (kind == SIM_GET || kind == SIM_UPDATE || kind == SIM_DEL))
        return kind == SIM_GET ? SIM_DONE : SIM_REFUSED;
    if (rc == COHORT_EXISTS && kind == SIM_INSERT)
        return SIM_REFUSED;
    if (!allowed && rc == COHORT_EFULL && kind != SIM_GET && kind != SIM_DEL) {
        sim_cover->full++;
        return SIM_NOTHING;
    }
    if (kind != SIM_GET && rc != COHORT_EXISTS && cohort_class_of(rc) == COHORT_CLASS_CONFLICT)
        return SIM_NOTHING; /* an open transaction is in the way; batches are some, too */
    if (!allowed && ((rc == COHORT_EBATCHSIZE && batch) || rc == COHORT_ENOMEM))
        return SIM_NOTHING;
    if (!allowed)
        sim_fail("%s: %s: %s", what, cohort_strerror(rc), cohort_last_error()->text);
    sim_cover->errors++;
    if (rc == COHORT_EFAILED)
        l->w->failed = true;
    return SIM_UNKNOWN;
}

static void
do_get(struct load *l)
{
    unsigned k = draw_key(l);
    struct sim_op *op = sim_op_begin(k, SIM_GET, 0, false);
    int rc = cohort_get(l->w->db, l->key, sim_key(k, l->key), &l->value);
    enum sim_outcome o = outcome_of(l, "get", SIM_GET, rc);
    write_id found = rc == 0 ? sim_value_parse(k, l->value.data, l->value.bytes) : 0;

    sim_trace("%u: get %u = %u, %s", l->worker, k, found, cohort_strerror(rc));
    sim_op_end(op, o, found);
}

/* Where in the log the write's record lies, as far as can be told. */
static void
position_begin(struct load *l, write_id w)
{
    if (l->w->plan->transactions)
        sim_write_position(w, sim_txn_position(l->w) + 1, UINT64_MAX);
}

static void
position_end(struct load *l, write_id w, int rc)
{
    uint64_t low = sim_write_low(w), end = sim_txn_position(l->w);

    if (!l->w->plan->transactions || rc != 0)
        return;
    /* The deletion of a key that is absent, in a batch, leaves no record. */
    sim_write_position(w, ch_min_u64(low, end), end);
    if (low <= end)
        l->w->visible = ch_max_u64(l->w->visible, low);
}

static void
write_key(struct load *l, unsigned k, enum sim_kind kind)
{
    static const char *const NAMES[] = {"get", "put", "insert", "update", "del", "clear", "remove"};
    bool sync = l->w->plan->opts.durability == COHORT_DURABILITY_SYNC;
    size_t kn = sim_key(k, l->key);
    struct sim_op *op = sim_op_begin(k, kind, 0, sync);
    size_t vn = sim_value(sim_op_write(op), l->bytes);
    write_id id = sim_op_write(op);
    enum sim_outcome o;
    int rc;

    position_begin(l, id);
    sim_trace("%u: %s %u begins: write %u", l->worker, NAMES[kind], k, id);
    if (kind == SIM_PUT)
        rc = cohort_put(l->w->db, l->key, kn, l->bytes, vn);
    else if (kind == SIM_INSERT)
        rc = cohort_insert(l->w->db, l->key, kn, l->bytes, vn);
    else if (kind == SIM_UPDATE)
        rc = cohort_update(l->w->db, l->key, kn, l->bytes, vn);
    else
        rc = cohort_del(l->w->db, l->key, kn);
    o = outcome_of(l, NAMES[kind], kind, rc);
    position_end(l, id, rc);
    sim_trace("%u: %s %u ends: write %u, %s", l->worker, NAMES[kind], k, id, cohort_strerror(rc));
    sim_op_end(op, o, 0);
}

static void
do_write(struct load *l, enum sim_kind kind)
{
    write_key(l, draw_key(l), kind);
}

/* Distinct keys, so that the order inside does not matter. */
static void
do_batch(struct load *l)
{
    bool sync = l->w->plan->opts.durability == COHORT_DURABILITY_SYNC;
    unsigned n = 1 + (unsigned)ch_prng_below(l->rng, ch_min_u64(BATCH_MAX, l->w->plan->keys));
    uint32_t group = sim_group_new();
    struct sim_op *ops[BATCH_MAX];
    unsigned first = draw_key(l), step = 1 + (unsigned)ch_prng_below(l->rng, 3);
    enum sim_outcome o;
    int rc = 0;

    cohort_batch_clear(l->batch);
    n = (unsigned)ch_min_u64(n, (l->w->plan->keys + step - 1) / step);
    for (unsigned i = 0; i < n; i++) {
        unsigned k = (first + i * step) % l->w->plan->keys;
        size_t kn = sim_key(k, l->key);
        bool put = ch_prng_below(l->rng, 4) != 0;

        ops[i] = sim_op_begin(k, put ? SIM_PUT : SIM_CLEAR, group, sync);
        if (put)
            rc = cohort_batch_put(l->batch, l->key, kn, l->bytes,
                                  sim_value(sim_op_write(ops[i]), l->bytes));
        else
            rc = cohort_batch_del(l->batch, l->key, kn);
        SIM_CHECK(rc == 0);
        sim_trace("%u: batch %u: key %u write %u", l->worker, group, k, sim_op_write(ops[i]));
    }
    for (unsigned i = 0; i < n; i++)
        position_begin(l, sim_op_write(ops[i]));
    rc = cohort_write(l->w->db, l->batch);
    o = outcome_of(l, "batch", SIM_PUT, rc);
    for (unsigned i = 0; i < n; i++)
        position_end(l, sim_op_write(ops[i]), rc);
    sim_trace("%u: batch %u ends: %s", l->worker, group, cohort_strerror(rc));
    for (unsigned i = 0; i < n; i++)
        sim_op_end(ops[i], o, 0);
    sim_cover->batches++;
}

void
sim_load_all(struct sim_world *w)
{
    struct ch_prng rng;
    struct load l = {.w = w, .rng = &rng};

    uint64_t full = sim_cover->full;

    ch_prng_init(&rng, w->plan->seed);
    for (unsigned k = 0; k < w->plan->keys; k++) {
        write_key(&l, k, SIM_PUT);
        rt_sim_progress();
    }
    w->held_all = sim_cover->full == full;
}

/* The entry under the cursor; the keys between the one before and it have been passed over. */
static int
scan_entry(cohort_cursor *c, int *position, bool up, uint64_t from)
{
    struct cohort_slice key, value;
    unsigned k;
    write_id id;
    int before = *position, at, rc = cohort_cursor_entry(c, &key, &value);

    if (rc != 0)
        return rc; /* a large value could not be read */
    k = sim_key_number(key.data, key.bytes);
    id = sim_value_parse(k, value.data, value.bytes);
    at = sim_key_position(k);
    if (!sim_model_is_loose(k) && !sim_may_hold(k, id, from, sim_event()))
        sim_fail("key %u: a scan found write %u, which was not there any more", k, id);
    if (up ? at <= before : at >= before)
        sim_fail("key %u: a scan went from position %d to %d", k, before, at);
    if (up)
        sim_check_passed(before, at, from);
    else
        sim_check_passed(at, before, from);
    *position = at;
    return 0;
}

static void
do_scan(struct load *l)
{
    const int end = (int)l->w->plan->keys;
    unsigned k = draw_key(l), steps = (unsigned)ch_prng_below(l->rng, SCAN_MAX);
    size_t kn = sim_key(k, l->key);
    bool up = ch_prng_below(l->rng, 2) == 0, edge = ch_prng_below(l->rng, 3) == 0;
    int at = up ? -1 : end;
    cohort_cursor *c = NULL;
    uint64_t from = sim_event();
    int rc = cohort_cursor_open(l->w->db, &c);

    SIM_CHECK(rc == 0 || sim_errors_allowed(l->w));
    if (rc != 0)
        return;
    if (edge) {
        rc = up ? cohort_cursor_first(c) : cohort_cursor_last(c);
    } else {
        at = sim_key_position(k) + (up ? -1 : 1);
        rc = up ? cohort_cursor_seek(c, l->key, kn) : cohort_cursor_seek_before(c, l->key, kn);
    }
    while (rc == 0 && !l->w->stop) {
        rc = scan_entry(c, &at, up, from);
        if (rc != 0 || steps-- == 0)
            break;
        rc = up ? cohort_cursor_next(c) : cohort_cursor_prev(c);
    }
    if (rc == COHORT_NOTFOUND && up)
        sim_check_passed(at, end, from);
    else if (rc == COHORT_NOTFOUND)
        sim_check_passed(-1, at, from);
    else if (rc != COHORT_SNAPSHOT_TOO_OLD) /* which small version_bytes may do to any reader */
        (void)outcome_of(l, "scan", SIM_GET, rc);
    cohort_cursor_close(c);
    sim_cover->scans++;
}

static void
do_sync(struct load *l)
{
    uint64_t before = sim_event();
    int rc = cohort_sync(l->w->db);

    (void)outcome_of(l, "sync", SIM_GET, rc);
    sim_trace("%u: sync: %s", l->worker, cohort_strerror(rc));
    if (rc == 0)
        sim_model_durable(before);
}

static void
do_checkpoint(struct load *l)
{
    uint64_t before = sim_event();
    int rc = cohort_checkpoint(l->w->db);

    (void)outcome_of(l, "checkpoint", SIM_PUT, rc);
    sim_trace("%u: checkpoint: %s", l->worker, cohort_strerror(rc));
    if (rc == 0)
        sim_model_durable(before);
}

static void
do_stats(struct load *l)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};

    (void)outcome_of(l, "stats", SIM_GET, cohort_stats(l->w->db, &s));
}

static void
do_one(struct load *l)
{
    const struct sim_plan *p = l->w->plan;
    unsigned d = (unsigned)ch_prng_below(l->rng, 100);

#define TAKES(share) (d < (share) || (d -= (share), false))
    if (TAKES(p->get))
        do_get(l);
    else if (TAKES(p->del))
        do_write(l, SIM_DEL);
    else if (TAKES(p->insert))
        do_write(l, SIM_INSERT);
    else if (TAKES(p->update))
        do_write(l, SIM_UPDATE);
    else if (TAKES(p->batch))
        do_batch(l);
    else if (TAKES(p->scan))
        do_scan(l);
    else if (TAKES(p->sync))
        do_sync(l);
    else if (TAKES(p->checkpoint))
        do_checkpoint(l);
    else if (TAKES(p->stats))
        do_stats(l);
    else
        do_write(l, SIM_PUT);
#undef TAKES
}

/* Writes a key for which there must be room: what deletes leave behind is swept, and the ends of pages
 * are written, by and by. */
static void
write_into_empty(struct load *l, unsigned k)
{
    for (unsigned tries = 0; tries < DRAIN_TRIES; tries++) {
        uint64_t full = sim_cover->full;

        write_key(l, k, SIM_PUT);
        rt_sim_progress();
        if (sim_cover->full == full)
            return;
        if (cohort_checkpoint(l->w->db) != 0)
            sim_fail("checkpoint of an empty database: %s", cohort_last_error()->text);
        rt_sleep_ns(DRAIN_PAUSE_NS);
    }
    sim_fail("key %u: there is no room for it in a database that has been emptied", k);
}

/* A database that was full can be emptied, and is as good as new then. */
void
sim_load_drain(struct sim_world *w)
{
    struct ch_prng rng;
    struct load l = {.w = w, .rng = &rng};
    /* In every other seed a part stays, so that garbage must be collected for the room. */
    unsigned keep = w->plan->seed % 2 == 0 && w->held_all ? 3 : 1;

    ch_prng_init(&rng, w->plan->seed);
    for (unsigned k = 0; k < w->plan->keys; k++) {
        if (k % keep != 0 || keep == 1)
            write_key(&l, k, SIM_DEL);
        rt_sim_progress();
    }
    /* As much as was there before had room; on a drive that never held that, one must have. */
    for (unsigned k = 0; k < (w->held_all ? w->plan->keys : 1); k += 5)
        if (k % keep != 0 || keep == 1)
            write_into_empty(&l, k);
}

void
sim_load_worker(struct sim_world *w, unsigned worker, struct ch_prng *rng, unsigned ops)
{
    struct load l = {.w = w, .rng = rng, .worker = worker};
    unsigned after_failure = 0;
    int rc = cohort_batch_create(&l.batch);

    SIM_CHECK(rc == 0);
    l.window = (unsigned)ch_prng_below(rng, w->plan->keys);
    for (unsigned i = 0; i < ops && !w->stop && after_failure < 3; i++) {
        uint64_t start = rt_now_ns();

        do_one(&l);
        if (w->fair && rt_now_ns() - start > FAIR_NS)
            sim_fail("an operation took %" PRIu64 " ms, although nothing fails",
                     (rt_now_ns() - start) / 1000000);
        after_failure += w->failed;
        sim_watch(w);
        if (!w->plan->transactions) {
            sim_cover->operations++;
            w->ended++;
        }
        rt_sim_progress();
    }
    cohort_batch_destroy(l.batch);
    cohort_value_free(&l.value);
}
