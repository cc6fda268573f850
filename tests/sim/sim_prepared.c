/* sim_prepared.c - transactions that are prepared, and then committed or aborted by anybody, after restarts
 * too.
 *
 * A prepared transaction whose prepare was acknowledged is in the list after every restart until its end
 * was acknowledged; its writes are not to be seen before, and all of them after its commit. What was
 * under way at a crash may have happened or not; an abort, and a commit that is not durable at once, may
 * be undone by one.
 */
#include <inttypes.h>

#include "sim_txn.h"

static size_t
gid_of(const struct sim_prepared *p, char *out)
{
    return (size_t)snprintf(out, 32, "prepared-%" PRIu32, p->number);
}

void
sim_txn_prepare(struct strx *x)
{
    struct sim_prepared *p = NULL;
    char gid[32];
    int rc;

    for (int i = 0; i < SIM_PREPARED_MAX && p == NULL; i++)
        if (x->w->prepared[i].state == SIM_PREPARED_NONE)
            p = &x->w->prepared[i];
    if (p == NULL) {
        sim_txn_give_up(x);
        return;
    }
    sim_txn_judge_reads(x);
    *p = (struct sim_prepared){.state = SIM_PREPARING,
                               .busy = true,
                               .sync =
                                   x->sync && x->w->plan->opts.durability == COHORT_DURABILITY_SYNC,
                               .number = ++x->w->prepared_count};
    p->count = sim_txn_final_writes(x, p->writes);
    rc = cohort_prepare(x->t, gid, gid_of(p, gid));
    x->t = NULL;
    sim_trace("%u: prepare of group %u as %s: %s", x->worker, x->group, gid, cohort_strerror(rc));
    p->busy = false;
    if (sim_txn_worked(x, "prepare", rc)) {
        p->state = SIM_PREPARED;
        sim_cover->prepared++;
    } else if (sim_txn_end_outcome(x, rc) == SIM_NOTHING) {
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
    (void)sim_txn_worked(&x, "end of a prepared transaction", rc);
    if (rc == 0) {
        for (unsigned i = 0; commits && i < p->count; i++)
            sim_write_position(p->writes[i], low, cohort_log_position(w->db));
        if (commits && p->count > 0)
            sim_txn_note_visible(w, low);
        p->state = commits ? SIM_COMMITTED : SIM_ABORTED;
        sim_cover->prepared_ended++;
    }
    if (commits)
        sim_txn_finish_ops(ops, p->count, rc == 0 ? SIM_DONE : SIM_UNKNOWN);
    p->busy = false;
}

void
sim_txn_decide_any(struct strx *x)
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
