/* sim_ddl.c - trees that come and go: created and filled in a transaction or by a bulk load, renamed,
 * emptied, dropped.
 *
 * One worker does it, to a few names, so what it did last is known. A tree's entries all carry its
 * generation and are as many as that says. After a restart a name holds what was acknowledged last or
 * what was under way; where commits are not durable at once, anything that it held since the boot began.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"

enum {
    NAMES = 4,
    ENTRIES_MAX = 60,
    STATES_MAX = 64,
    NO_TREE = -1
};

/* Generation of what is there: NO_TREE, 0 = an empty tree, else filled by that generation. */
struct name {
    int64_t state;
    int64_t history[STATES_MAX]; /* since the boot began, the present one included */
    unsigned count;
    bool lost; /* too many: anything goes until the next restart */
};

static struct name names[NAMES];
static int64_t generations;

static unsigned
entries_of(int64_t generation)
{
    return generation <= 0 ? 0 : 1 + (unsigned)(generation * 7 % ENTRIES_MAX);
}

static const char *
name_of(unsigned i)
{
    static const char *const NAME[NAMES] = {"scratch-a", "scratch-b", "scratch-c", "scratch-d"};

    return NAME[i];
}

/* What the name holds, or may hold once the call under way returns. */
static void
may_become(unsigned i, int64_t state)
{
    struct name *n = &names[i];

    if (n->count < STATES_MAX)
        n->history[n->count++] = state;
    else
        n->lost = true;
}

void
sim_ddl_init(void)
{
    for (unsigned i = 0; i < NAMES; i++) {
        names[i] = (struct name){.state = NO_TREE};
        may_become(i, NO_TREE);
    }
}

/* ---- operations ---- */

static bool
worked(struct sim_world *w, const char *what, int rc)
{
    sim_trace("%s: %s", what, cohort_strerror(rc));
    if (rc == 0)
        return true;
    if (cohort_class_of(rc) == COHORT_CLASS_CONFLICT && rc != COHORT_EXISTS)
        return false;
    if (rc == COHORT_EFULL || rc == COHORT_ENOMEM || rc == COHORT_EBUSY)
        return false;
    if (!sim_errors_allowed(w))
        sim_fail("%s: %s: %s", what, cohort_strerror(rc), cohort_last_error()->text);
    if (rc == COHORT_EFAILED)
        w->failed = true;
    return false;
}

static size_t
entry(int64_t generation, unsigned i, char *key, uint8_t *value)
{
    ch_put64(value, (uint64_t)generation);
    ch_put64(value + 8, i);
    return (size_t)snprintf(key, 32, "entry-%05u", i);
}

static int
fill(cohort_txn *t, cohort_tree *tree, int64_t generation)
{
    uint8_t value[16];
    char key[32];
    int rc = 0;

    for (unsigned i = 0; i < entries_of(generation) && rc == 0; i++) {
        size_t n = entry(generation, i, key, value);

        rc = cohort_txn_put(t, tree, key, n, value, sizeof(value));
    }
    return rc;
}

static void
create(struct sim_world *w, unsigned i)
{
    int64_t generation = ++generations;
    cohort_tree *tree = NULL;
    cohort_txn *t = NULL;
    int rc;

    if (!worked(w, "begin of a creation", cohort_begin(w->db, NULL, &t)))
        return;
    rc = cohort_tree_open(w->db, t, name_of(i), COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE, NULL,
                          &tree);
    if (rc == 0)
        rc = fill(t, tree, generation);
    if (!worked(w, "creation", rc)) {
        (void)worked(w, "abort", cohort_abort(t));
    } else {
        may_become(i, generation);
        if (worked(w, "commit of a creation", cohort_commit(t)))
            names[i].state = generation;
    }
    cohort_tree_close(tree);
}

static int
bulk_fill(cohort_bulk *b, int64_t generation)
{
    uint8_t value[16];
    char key[32];
    int rc = 0;

    for (unsigned i = 0; i < entries_of(generation) && rc == 0; i++) {
        size_t n = entry(generation, i, key, value);

        rc = cohort_bulk_put(b, key, n, value, sizeof(value));
    }
    return rc;
}

/* Into an empty tree. */
static void
bulk(struct sim_world *w, unsigned i)
{
    int64_t generation = ++generations;
    cohort_tree *tree = NULL;
    cohort_bulk *b = NULL;

    if (!worked(w, "open for a bulk load",
                cohort_tree_open(w->db, NULL, name_of(i), 0, NULL, &tree)))
        return;
    if (worked(w, "bulk load", cohort_bulk_open(w->db, tree, &b))) {
        if (worked(w, "bulk put", bulk_fill(b, generation)) && generation % 4 != 0) {
            may_become(i, generation);
            if (worked(w, "end of a bulk load", cohort_bulk_finish(b)))
                names[i].state = generation;
        } else {
            cohort_bulk_abort(b);
        }
    }
    cohort_tree_close(tree);
}

static void
drop(struct sim_world *w, unsigned i)
{
    may_become(i, NO_TREE);
    if (worked(w, "drop", cohort_tree_drop(w->db, NULL, name_of(i), 0)))
        names[i].state = NO_TREE;
}

static void
empty(struct sim_world *w, unsigned i)
{
    may_become(i, 0);
    if (worked(w, "truncation", cohort_tree_truncate(w->db, NULL, name_of(i))))
        names[i].state = 0;
}

static void
move(struct sim_world *w, unsigned i, unsigned to)
{
    int rc;

    if (names[to].state != NO_TREE || i == to) {
        rc = cohort_tree_rename(w->db, NULL, name_of(i), name_of(to));
        if (rc != COHORT_EXISTS && i != to && worked(w, "renaming", rc))
            sim_fail("%s was renamed to %s, which is there", name_of(i), name_of(to));
        return;
    }
    may_become(i, NO_TREE);
    may_become(to, names[i].state);
    if (worked(w, "renaming", cohort_tree_rename(w->db, NULL, name_of(i), name_of(to)))) {
        names[to].state = names[i].state;
        names[i].state = NO_TREE;
    }
}

void
sim_ddl_step(struct sim_world *w, struct ch_prng *rng)
{
    unsigned i = (unsigned)ch_prng_below(rng, NAMES);
    unsigned to = (unsigned)ch_prng_below(rng, NAMES);

    sim_cover->ddl++;
    if (names[i].state == NO_TREE) {
        create(w, i);
        return;
    }
    switch (ch_prng_below(rng, names[i].state == 0 ? 4 : 3)) {
    case 0:
        drop(w, i);
        break;
    case 1:
        move(w, i, to);
        break;
    case 2:
        empty(w, i);
        break;
    default:
        bulk(w, i);
        break;
    }
}

/* ---- after a restart ---- */

struct reading {
    unsigned i, entries;
    int64_t generation; /* -2: none read yet */
};

static void
read_entry(struct reading *r, const struct cohort_slice *key, const struct cohort_slice *value)
{
    uint8_t want_value[16];
    char want_key[32];
    int64_t generation;
    size_t n;

    if (value->bytes != sizeof(want_value))
        sim_fail("%s: a value of %zu bytes", name_of(r->i), value->bytes);
    generation = (int64_t)ch_get64(value->data);
    n = entry(generation, r->entries, want_key, want_value);
    if (n != key->bytes || memcmp(want_key, key->data, n) != 0 ||
        memcmp(want_value, value->data, sizeof(want_value)) != 0)
        sim_fail("%s: entry %u is not what generation %" PRId64 " wrote", name_of(r->i), r->entries,
                 generation);
    if (r->entries > 0 && generation != r->generation)
        sim_fail("%s: entries of generations %" PRId64 " and %" PRId64, name_of(r->i),
                 r->generation, generation);
    r->generation = generation;
    r->entries++;
}

/* The generation that the tree holds. */
static int64_t
read_state(struct sim_world *w, unsigned i)
{
    struct reading r = {.i = i, .generation = 0};
    struct cohort_slice key, value;
    cohort_tree *tree = NULL;
    cohort_cursor *c = NULL;
    cohort_txn *t = NULL;
    int rc = cohort_tree_open(w->db, NULL, name_of(i), 0, NULL, &tree);

    if (rc == COHORT_NOTFOUND)
        return NO_TREE;
    if (rc == 0)
        rc = cohort_begin(w->db, NULL, &t);
    if (rc == 0)
        rc = cohort_txn_cursor(t, tree, &c);
    if (rc == 0)
        rc = cohort_cursor_first(c);
    while (rc == 0) {
        rc = cohort_cursor_entry(c, &key, &value);
        if (rc == 0)
            read_entry(&r, &key, &value);
        rc = rc == 0 ? cohort_cursor_next(c) : rc;
    }
    if (rc != COHORT_NOTFOUND)
        sim_fail("%s: %s: %s", name_of(i), cohort_strerror(rc), cohort_last_error()->text);
    cohort_cursor_close(c);
    if (cohort_abort(t) != 0)
        sim_fail("%s: abort: %s", name_of(i), cohort_last_error()->text);
    cohort_tree_close(tree);
    if (r.entries != entries_of(r.generation))
        sim_fail("%s: %u entries of generation %" PRId64 ", which wrote %u", name_of(i), r.entries,
                 r.generation, entries_of(r.generation));
    return r.generation;
}

void
sim_ddl_check(struct sim_world *w, bool crash)
{
    bool sync = w->plan->opts.durability == COHORT_DURABILITY_SYNC;

    for (unsigned i = 0; i < NAMES; i++) {
        struct name *n = &names[i];
        int64_t found = read_state(w, i);
        /* Durable at once: the acknowledged state, or what came after it. */
        bool may = found == n->state || n->lost;

        for (unsigned h = n->count; h > 0 && !may && crash; h--) {
            may = n->history[h - 1] == found;
            if (sync && n->history[h - 1] == n->state)
                break;
        }
        if (!may)
            sim_fail("%s holds generation %" PRId64 " after a restart, acknowledged was %" PRId64,
                     name_of(i), found, n->state);
        *n = (struct name){.state = found};
        may_become(i, found);
    }
}
