/* nth_test.c - the n-th allocation fails, the n-th request to the device fails, for all n around the API.
 *
 * Goal: whatever fails, each call succeeds or returns an error that fits; nothing leaks; the database can be opened again and passes
 * cohort_check(); what was acknowledged is there, what was refused is not, and nothing is there by halves.
 *
 * Method: a database with some contents is opened, every step of nth_steps.c runs, it is closed; all of that in one thread
 * (background=no). First without a fault, to count allocations and requests; then once for each n. After a failure the
 * steps that follow run all the same. Then it is opened without faults and each step's state is looked at. The cases "every_.."
 * take every n; the regular ones a part of them, from a beginning that the seed draws.
 */
#include "faults/fail_alloc.h"
#include "faults/nth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    STEPS_MAX = 32
};

struct outcome {
    int open, close;
    int steps[STEPS_MAX];
    uint64_t fault; /* which n */
};

/* Failures are counted, so that one run tells of all; each case ends with finish(). */
static unsigned failures;

static void
expect(bool ok)
{
    failures += !ok;
}

static void
finish(struct zt *t)
{
    unsigned n = failures;

    failures = 0;
    if (n > 0)
        (void)fprintf(stderr, "%u failures\n", n);
    ZT_CHECK(t, n == 0);
}

static const char *const settings[] = {
    "background", "no",        "durability", "sync", "version_bytes", "64K", "lock_timeout_ms",
    "0",          "log_bytes", "512K",       NULL,
};

static void
world_create(struct zt *t, struct iso *w)
{
    iso_create(t, w, 8, settings);
    nth_prepare_world(w);
    ZT_OK(t, cohort_close(w->db));
    w->db = NULL;
}

/* Opens under `plan` and runs all steps. What can not be closed is dropped as in a crash. */
static void
run_all(struct iso *w, const struct dev_fault_plan *plan, struct outcome *o)
{
    o->open = iso_try_open(w, plan);
    for (unsigned i = 0; i < nth_step_count; i++)
        o->steps[i] = o->open == 0 ? nth_steps[i].run(w->db) : o->open;
    o->close = o->open;
}

static void
close_db(struct iso *w, struct outcome *o)
{
    if (o->open != 0)
        return;
    o->close = cohort_close(w->db);
    ZT_CHECK(w->t, o->close != COHORT_EBUSY); /* nothing is left open */
    w->db = NULL;
}

static void
complain(const struct outcome *o, const char *mode, unsigned step, const char *what)
{
    (void)fprintf(stderr, "%s %" PRIu64 ": step %s: %s; its result was %d (%s)\n", mode, o->fault,
                  nth_steps[step].name, what, o->steps[step], cohort_strerror(o->steps[step]));
}

/* `sure`: an error means that nothing was done (else nobody can know before the next opening). */
static void
verify(struct iso *w, const struct outcome *o, const char *mode, bool sure)
{
    bool ok = true;

    iso_open(w);
    for (unsigned i = 0; i < nth_step_count; i++) {
        enum nth_state state;
        bool never = nth_steps[i].look == NULL;

        if (never)
            continue;
        state = nth_steps[i].look(w);
        if (state == NTH_MIXED) {
            complain(o, mode, i, "done by halves");
            ok = false;
        }
        if (strcmp(nth_steps[i].name, "aborted") == 0 || strcmp(nth_steps[i].name, "undone") == 0)
            continue;
        if (o->steps[i] == 0 && state == NTH_OLD) {
            complain(o, mode, i, "acknowledged, and lost");
            ok = false;
        }
        if (o->steps[i] != 0 && sure && state == NTH_NEW) {
            complain(o, mode, i, "refused, and done");
            ok = false;
        }
    }
    expect(ok);
    iso_check(w);
    ZT_OK(w->t, cohort_close(w->db));
    w->db = NULL;
}

/* ---- allocations ---- */

/* When the creation of a tree or a bulk load fails, the id of its root page is lost until the next opening (reg.h). */
static bool
lost_ids_only(const struct outcome *o, unsigned step)
{
    bool creation = false;

    for (unsigned i = 0; i < nth_step_count; i++)
        creation = creation || (o->steps[i] != 0 && (strcmp(nth_steps[i].name, "create") == 0 ||
                                                     strcmp(nth_steps[i].name, "names") == 0 ||
                                                     strcmp(nth_steps[i].name, "bulk") == 0));
    return creation && strcmp(nth_steps[step].name, "check") == 0 &&
           o->steps[step] == COHORT_ECORRUPT && nth_check_lost > 0 && nth_check_other == 0;
}

static void
alloc_codes(const struct outcome *o, const char *mode)
{
    bool ok = o->open == 0 || o->open == COHORT_ENOMEM;

    for (unsigned i = 0; i < nth_step_count; i++)
        if (o->steps[i] != 0 && o->steps[i] != COHORT_ENOMEM && !lost_ids_only(o, i)) {
            complain(o, mode, i, "not the right error");
            ok = false;
        }
    if (!ok)
        (void)fprintf(stderr, "%s %" PRIu64 ": open %d, close %d\n", mode, o->fault, o->open,
                      o->close);
    expect(ok);
}

/* Allocation n fails; n = 0: none. Returns how many there were. */
static uint64_t
alloc_run(struct zt *t, uint64_t n, bool forever)
{
    const char *mode = forever ? "allocations from" : "allocation";
    struct outcome o = {.fault = n};
    struct iso w;
    int64_t live;
    uint64_t seen;

    world_create(t, &w);
    live = fail_alloc_live();
    fail_alloc_arm(n, forever);
    run_all(&w, NULL, &o);
    if (forever)
        (void)fail_alloc_disarm();
    close_db(&w, &o);
    seen = fail_alloc_disarm();
    if (fail_alloc_live() != live)
        (void)fprintf(stderr, "%s %" PRIu64 ": %" PRId64 " allocations are left\n", mode, n,
                      fail_alloc_live() - live);
    expect(fail_alloc_live() == live);
    alloc_codes(&o, mode);
    verify(&w, &o, mode, true);
    sim_drive_destroy(w.drive);
    return seen;
}

/* Every n, or, of `share` processes that share them, those of one drawn by the seed. */
static void
allocations(struct zt *t, uint64_t share, bool forever)
{
    uint64_t all = alloc_run(t, 0, false);

    ZT_CHECK(t, all > 100);
    for (uint64_t n = 1 + zt_below(t, share); n <= all; n += share)
        (void)alloc_run(t, n, forever);
    finish(t);
}

static void
test_some_allocations(struct zt *t)
{
    allocations(t, 11 * 100 / zt_runs_percent(), false);
}

static void
test_every_allocation(struct zt *t)
{
    allocations(t, 1, false);
}

/* No memory at all from some moment on, until all steps are done. */
static void
test_some_no_memory(struct zt *t)
{
    allocations(t, 37 * 100 / zt_runs_percent(), true);
}

static void
test_every_no_memory(struct zt *t)
{
    allocations(t, 1, true);
}

/* ---- the device ---- */

struct io_mode {
    const char *name;
    enum dev_op op;
    int code;
    bool forever, cut;
};

static const struct io_mode io_modes[] = {
    {"failed read", DEV_READ, COHORT_EIO, false, false},
    {"failed write", DEV_WRITE, COHORT_EIO, false, false},
    {"failed flush", DEV_FLUSH, COHORT_EIO, false, false},
    {"failed discard", DEV_RESET, COHORT_EIO, false, false},
    {"full at write", DEV_WRITE, COHORT_EFULL, false, false},
    {"short write", DEV_WRITE, COHORT_EIO, false, true},
    {"all writes failed from", DEV_WRITE, COHORT_EIO, true, false},
};

static void
io_codes(const struct outcome *o, const char *mode)
{
    for (unsigned i = 0; i < nth_step_count; i++) {
        enum cohort_class c = cohort_class_of(o->steps[i]);

        if (c != COHORT_CLASS_OK && c != COHORT_CLASS_IO && c != COHORT_CLASS_FAILED &&
            c != COHORT_CLASS_NO_SPACE && c != COHORT_CLASS_CONFLICT && c != COHORT_CLASS_CORRUPT) {
            complain(o, mode, i, "not the right error");
            expect(false);
        }
    }
}

/* Request n of the mode's kind fails; returns how many of them there were. */
static uint64_t
io_run(struct zt *t, const struct io_mode *m, uint64_t n)
{
    struct dev_fault_plan plan = {.code = m->code, .fail_forever = m->forever};
    struct outcome o = {.fault = n};
    struct iso w;
    int64_t live;
    uint64_t seen = 0;

    if (m->cut)
        plan.short_nth = n;
    else
        plan.fail_nth[m->op] = n;
    world_create(t, &w);
    live = fail_alloc_live();
    run_all(&w, &plan, &o);
    if (o.open == 0)
        seen = dev_fault_seen(w.fault, m->op);
    close_db(&w, &o);
    expect(fail_alloc_live() == live);
    io_codes(&o, m->name);
    if (zt_below(t, 2) == 0)
        sim_drive_crash(w.drive, n);
    verify(&w, &o, m->name, false);
    sim_drive_destroy(w.drive);
    return seen;
}

static void
requests(struct zt *t, uint64_t share)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(io_modes); i++) {
        uint64_t all = io_run(t, &io_modes[i], 0);

        for (uint64_t n = 1 + zt_below(t, share); n <= all; n += share)
            (void)io_run(t, &io_modes[i], n);
    }
    finish(t);
}

static void
test_some_requests(struct zt *t)
{
    requests(t, 11 * 100 / zt_runs_percent());
}

static void
test_every_request(struct zt *t)
{
    requests(t, 1);
}

/* Without arguments: the cases of the regular run, which take a part of all n. */
int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"some_allocations", test_some_allocations, 1},
        {"some_no_memory", test_some_no_memory, 1},
        {"some_requests", test_some_requests, 1},
        {"every_allocation", test_every_allocation, 1},
        {"every_no_memory", test_every_no_memory, 1},
        {"every_request", test_every_request, 1},
    };

    return zt_main(argc, argv, "nth", cases, argc > 1 ? CH_ARRAY_LEN(cases) : 3);
}
