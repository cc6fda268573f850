/* nth_steps.c - see nth.h. */
#include "faults/nth.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MANY = 40,
    SPILL = 160, /* entries, enough to pass version_bytes */
    LARGE = 60000,
    PIECES = 4,
    BULK = 150,
    KEY_ROOM = 32,
};

/* ---- helpers ---- */

static size_t
name_of(const char *step, unsigned i, char *out)
{
    return (size_t)snprintf(out, KEY_ROOM, "%s-%04u", step, i);
}

static int
put(cohort_txn *txn, cohort_tree *tree, const char *step, unsigned i, uint32_t version)
{
    char key[KEY_ROOM];
    uint8_t value[ISO_VALUE_MAX];

    return cohort_txn_put(txn, tree, key, name_of(step, i, key), value,
                          zt_value(i, version, 600, value));
}

static int
del(cohort_txn *txn, cohort_tree *tree, const char *step, unsigned i)
{
    char key[KEY_ROOM];

    return cohort_txn_del(txn, tree, key, name_of(step, i, key));
}

/* The version at that key: 0 = absent. */
static uint32_t
version_at(struct iso *w, cohort_tree *tree, const char *step, unsigned i)
{
    struct cohort_value v = {0};
    char key[KEY_ROOM];
    uint32_t version = 0;
    size_t n = name_of(step, i, key);
    int rc = tree != NULL ? cohort_tree_get(tree, key, n, &v) : cohort_get(w->db, key, n, &v);

    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    if (rc == 0)
        ZT_OK(w->t, iso_version_of(i, 600, v.data, v.bytes, &version));
    cohort_value_free(&v);
    return version;
}

/* All of [0, n) are at `before`, or all at `after`. */
static enum nth_state
state_of(struct iso *w, cohort_tree *tree, const char *step, unsigned n, uint32_t before,
         uint32_t after)
{
    unsigned old = 0, new = 0;

    for (unsigned i = 0; i < n; i++) {
        uint32_t version = version_at(w, tree, step, i);

        old += version == before;
        new += version == after;
    }
    if (old == n)
        return NTH_OLD;
    return new == n ? NTH_NEW : NTH_MIXED;
}

static cohort_tree *
open_tree(struct iso *w, const char *name)
{
    cohort_tree *tree = NULL;
    int rc = cohort_tree_open(w->db, NULL, name, 0, NULL, &tree);

    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    return tree;
}

/* Commits when all went well, aborts otherwise; the first error. */
static int
end(cohort_txn *txn, int rc)
{
    int undo;

    if (rc == 0)
        return cohort_commit(txn);
    undo = cohort_abort(txn);
    return undo != 0 ? undo : rc;
}

static int
begin(cohort_db *db, enum cohort_isolation level, cohort_txn **txn)
{
    struct cohort_txn_options o;

    cohort_txn_options_init(&o);
    o.isolation = level;
    return cohort_begin(db, &o, txn);
}

/* ---- operations of their own ---- */

static int
single_run(cohort_db *db)
{
    uint8_t value[ISO_VALUE_MAX];
    char key[KEY_ROOM];

    return cohort_put(db, key, name_of("single", 0, key), value, zt_value(0, 1, 600, value));
}

static enum nth_state
single_look(struct iso *w)
{
    return state_of(w, NULL, "single", 1, 0, 1);
}

static int
batch_run(cohort_db *db)
{
    uint8_t value[ISO_VALUE_MAX];
    char key[KEY_ROOM];
    cohort_batch *b = NULL;
    int rc = cohort_batch_create(&b);

    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = cohort_batch_put(b, key, name_of("batch", i, key), value, zt_value(i, 1, 600, value));
    if (rc == 0)
        rc = cohort_write(db, b);
    cohort_batch_destroy(b);
    return rc;
}

static enum nth_state
batch_look(struct iso *w)
{
    return state_of(w, NULL, "batch", MANY, 0, 1);
}

/* ---- transactions ---- */

static int
txn_run(cohort_db *db)
{
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = put(txn, NULL, "txn", i, 2);
    return end(txn, rc);
}

static enum nth_state
txn_look(struct iso *w)
{
    return state_of(w, NULL, "txn", MANY, 1, 2);
}

static int
aborted_run(cohort_db *db)
{
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SNAPSHOT, &txn), undo;

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = i % 2 == 0 ? put(txn, NULL, "aborted", i, 2) : del(txn, NULL, "aborted", i);
    undo = cohort_abort(txn);
    return rc != 0 ? rc : undo;
}

/* It must never be new. */
static enum nth_state
aborted_look(struct iso *w)
{
    return state_of(w, NULL, "aborted", MANY, 1, 1) == NTH_OLD ? NTH_OLD : NTH_MIXED;
}

static int
savepoint_run(cohort_db *db)
{
    cohort_txn *txn = NULL;
    uint64_t outer = 0, inner = 0;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = put(txn, NULL, "savepoint", i, 2);
    if (rc == 0)
        rc = cohort_savepoint(txn, &outer);
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = del(txn, NULL, "savepoint", i);
    if (rc == 0)
        rc = cohort_savepoint(txn, &inner);
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = put(txn, NULL, "savepoint", i, 3);
    if (rc == 0)
        rc = cohort_release(txn, inner);
    if (rc == 0)
        rc = cohort_rollback_to(txn, outer);
    return end(txn, rc);
}

static enum nth_state
savepoint_look(struct iso *w)
{
    return state_of(w, NULL, "savepoint", MANY, 1, 2);
}

/* More than version_bytes: before-images are moved to pages. */
static int
spill_run(cohort_db *db)
{
    cohort_txn *txn = NULL;
    uint64_t savepoint = 0;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < SPILL && rc == 0; i++)
        rc = put(txn, NULL, "spill", i, 2);
    if (rc == 0)
        rc = cohort_savepoint(txn, &savepoint);
    for (unsigned i = 0; i < SPILL && rc == 0; i++)
        rc = put(txn, NULL, "spill", i, 3);
    if (rc == 0)
        rc = cohort_rollback_to(txn, savepoint);
    return end(txn, rc);
}

static enum nth_state
spill_look(struct iso *w)
{
    return state_of(w, NULL, "spill", SPILL, 1, 2);
}

/* ---- cursors and reads ---- */

static int
scan(cohort_txn *txn, bool write)
{
    cohort_cursor *c = NULL;
    struct cohort_slice key, value;
    uint8_t data[ISO_VALUE_MAX];
    unsigned i = 0;
    int rc = cohort_txn_cursor(txn, NULL, &c);

    if (rc != 0)
        return rc;
    for (rc = cohort_cursor_seek(c, K("cursor-")); rc == 0 && i < MANY;
         rc = i < MANY ? cohort_cursor_next(c) : 0) {
        rc = cohort_cursor_entry(c, &key, &value);
        if (rc == 0 && write)
            rc = cohort_cursor_put(c, data, zt_value(i, 2, 600, data));
        if (rc != 0)
            break;
        i++;
    }
    cohort_cursor_close(c);
    return rc == 0 && i < MANY ? COHORT_ECORRUPT : rc;
}

static int
cursor_run(cohort_db *db)
{
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SERIALIZABLE, &txn);

    if (rc != 0)
        return rc;
    rc = scan(txn, false);
    if (rc == 0)
        rc = scan(txn, true);
    return end(txn, rc);
}

static enum nth_state
cursor_look(struct iso *w)
{
    return state_of(w, NULL, "cursor", MANY, 1, 2);
}

static int
get_many(cohort_db *db, cohort_txn *txn)
{
    char names[MANY][KEY_ROOM];
    struct cohort_slice keys[MANY];
    struct cohort_value values[MANY] = {{0}};
    int rcs[MANY], rc;

    for (unsigned i = 0; i < MANY; i++)
        keys[i] = (struct cohort_slice){names[i], name_of("reads", i, names[i])};
    rc = cohort_get_many(db, txn, NULL, MANY, keys, values, rcs);
    for (unsigned i = 0; i < MANY; i++) {
        if (rc == 0 && (rcs[i] != 0 || values[i].bytes < 8))
            rc = COHORT_ECORRUPT;
        cohort_value_free(&values[i]);
    }
    return rc;
}

static int
reads_run(cohort_db *db)
{
    struct cohort_value v = {0};
    struct cohort_slice from = {"reads", 5};
    cohort_txn *txn = NULL;
    cohort_cursor *c = NULL;
    char *text = NULL;
    uint64_t n;
    int rc = get_many(db, NULL), undo;

    if (rc == 0)
        rc = cohort_estimate(db, NULL, &from, NULL, &n);
    if (rc == 0)
        rc = cohort_stats_json(db, &text);
    cohort_free(text);
    if (rc == 0)
        rc = cohort_cursor_open(db, &c);
    if (rc == 0)
        rc = cohort_cursor_seek(c, K("reads-"));
    cohort_cursor_close(c);
    if (rc == 0)
        rc = begin(db, COHORT_SERIALIZABLE, &txn);
    if (rc != 0)
        return rc;
    rc = get_many(NULL, txn);
    if (rc == 0)
        rc = cohort_txn_get_for_update(txn, NULL, K("reads-0001"), &v);
    if (rc == 0)
        rc = cohort_tree_count(db, txn, NULL, &n);
    cohort_value_free(&v);
    undo = cohort_abort(txn);
    return rc != 0 ? rc : undo;
}

static int
del_range_run(cohort_db *db)
{
    struct cohort_slice from = {"range-", 6}, to = {"range.", 6};
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    return rc != 0 ? rc : end(txn, cohort_txn_del_range(txn, NULL, &from, &to, NULL));
}

static enum nth_state
del_range_look(struct iso *w)
{
    return state_of(w, NULL, "range", MANY, 1, 0);
}

/* ---- trees ---- */

static int
create_run(cohort_db *db)
{
    cohort_tree *tree = NULL;
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    if (rc != 0)
        return rc;
    rc = cohort_tree_open(db, txn, "created", COHORT_TREE_CREATE, NULL, &tree);
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = put(txn, tree, "created", i, 1);
    rc = end(txn, rc);
    cohort_tree_close(tree);
    return rc;
}

static enum nth_state
create_look(struct iso *w)
{
    cohort_tree *tree = open_tree(w, "created");
    enum nth_state state;

    if (tree == NULL)
        return NTH_OLD;
    state = state_of(w, tree, "created", MANY, 0, 1);
    cohort_tree_close(tree);
    return state == NTH_NEW ? NTH_NEW : NTH_MIXED;
}

static int
drop_run(cohort_db *db)
{
    return cohort_tree_drop(db, NULL, "to drop", 0);
}

static enum nth_state
drop_look(struct iso *w)
{
    cohort_tree *tree = open_tree(w, "to drop");
    enum nth_state state;

    if (tree == NULL)
        return NTH_NEW;
    state = state_of(w, tree, "drop", MANY, 1, 0);
    cohort_tree_close(tree);
    return state == NTH_OLD ? NTH_OLD : NTH_MIXED;
}

/* In one transaction: renames one, empties another, makes one that is gone with the abort of a savepoint. */
static int
names_run(cohort_db *db)
{
    cohort_tree *tree = NULL;
    cohort_txn *txn = NULL;
    uint64_t savepoint = 0;
    int rc = begin(db, COHORT_SNAPSHOT, &txn);

    if (rc != 0)
        return rc;
    rc = cohort_tree_rename(db, txn, "to rename", "renamed");
    if (rc == 0)
        rc = cohort_tree_truncate(db, txn, "to empty");
    if (rc == 0)
        rc = cohort_savepoint(txn, &savepoint);
    if (rc == 0)
        rc = cohort_tree_open(db, txn, "never", COHORT_TREE_CREATE, NULL, &tree);
    if (rc == 0)
        rc = put(txn, tree, "never", 0, 1);
    if (rc == 0)
        rc = cohort_rollback_to(txn, savepoint);
    rc = end(txn, rc);
    cohort_tree_close(tree);
    return rc;
}

static enum nth_state
names_look(struct iso *w)
{
    cohort_tree *old = open_tree(w, "to rename"), *new = open_tree(w, "renamed");
    cohort_tree *emptied = open_tree(w, "to empty"), *never = open_tree(w, "never");
    enum nth_state state = NTH_MIXED, rows;

    if ((old == NULL) != (new == NULL) && emptied != NULL && never == NULL) {
        rows = state_of(w, emptied, "empty", MANY, 1, 0);
        if (rows == (new != NULL ? NTH_NEW : NTH_OLD))
            state = rows;
    }
    cohort_tree_close(old);
    cohort_tree_close(new);
    cohort_tree_close(emptied);
    cohort_tree_close(never);
    return state;
}

/* ---- large values ---- */

static void
large_bytes(unsigned id, uint8_t *out)
{
    struct ch_prng p;

    ch_prng_init(&p, id);
    ch_prng_fill(&p, out, LARGE);
}

/* The value at the key is that of `id`, absent = 0. */
static bool
large_is(struct iso *w, const char *key, unsigned id)
{
    struct cohort_value v = {0};
    uint8_t *want = malloc(LARGE);
    int rc = cohort_get(w->db, K(key), &v);
    bool is;

    ZT_CHECK(w->t, want != NULL);
    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    large_bytes(id, want);
    is = id == 0 ? rc == COHORT_NOTFOUND
                 : rc == 0 && v.bytes == LARGE && memcmp(v.data, want, LARGE) == 0;
    free(want);
    cohort_value_free(&v);
    return is;
}

static int
large_run(cohort_db *db)
{
    uint8_t *data = malloc(LARGE);
    int rc;

    if (data == NULL)
        return COHORT_ENOMEM;
    large_bytes(2, data);
    rc = cohort_put(db, K("large"), data, LARGE);
    free(data);
    return rc;
}

static enum nth_state
large_look(struct iso *w)
{
    if (large_is(w, "large", 1))
        return NTH_OLD;
    return large_is(w, "large", 2) ? NTH_NEW : NTH_MIXED;
}

static int
writer_write(cohort_txn *txn, const uint8_t *data)
{
    cohort_writer *writer = NULL;
    int rc = cohort_writer_open(txn, NULL, K("written"), &writer);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < PIECES && rc == 0; i++)
        rc = cohort_writer_append(writer, data + i * (LARGE / PIECES), LARGE / PIECES);
    if (rc == 0)
        return cohort_writer_finish(writer);
    cohort_writer_cancel(writer);
    return rc;
}

static int
writer_run(cohort_db *db)
{
    uint8_t *data = malloc(LARGE);
    cohort_txn *txn = NULL;
    size_t got = 0;
    int rc = data != NULL ? begin(db, COHORT_SNAPSHOT, &txn) : COHORT_ENOMEM;

    if (rc != 0) {
        free(data);
        return rc;
    }
    large_bytes(3, data);
    rc = writer_write(txn, data);
    if (rc == 0)
        rc = cohort_txn_read(txn, NULL, K("written"), LARGE / 2, data, LARGE, &got, NULL);
    if (rc == 0 && got != LARGE / 2)
        rc = COHORT_ECORRUPT;
    free(data);
    return end(txn, rc);
}

static enum nth_state
writer_look(struct iso *w)
{
    if (large_is(w, "written", 0))
        return NTH_OLD;
    return large_is(w, "written", 3) ? NTH_NEW : NTH_MIXED;
}

static int
bulk_run(cohort_db *db)
{
    uint8_t value[ISO_VALUE_MAX];
    char key[KEY_ROOM];
    cohort_tree *tree = NULL;
    cohort_bulk *bulk = NULL;
    int rc = cohort_tree_open(db, NULL, "bulk", 0, NULL, &tree);

    if (rc == 0)
        rc = cohort_bulk_open(db, tree, &bulk);
    for (unsigned i = 0; i < BULK && rc == 0; i++)
        rc = cohort_bulk_put(bulk, key, name_of("bulk", i, key), value, zt_value(i, 1, 600, value));
    if (rc == 0)
        rc = cohort_bulk_finish(bulk);
    else if (bulk != NULL)
        cohort_bulk_abort(bulk);
    cohort_tree_close(tree);
    return rc;
}

static enum nth_state
bulk_look(struct iso *w)
{
    cohort_tree *tree = open_tree(w, "bulk");
    enum nth_state state;

    ZT_CHECK(w->t, tree != NULL);
    state = state_of(w, tree, "bulk", BULK, 0, 1);
    cohort_tree_close(tree);
    return state;
}

/* ---- two-phase commit ---- */

static int
prepare(cohort_db *db, const char *step)
{
    struct cohort_value v = {0};
    cohort_txn *txn = NULL;
    int rc = begin(db, COHORT_SERIALIZABLE, &txn);

    if (rc != 0)
        return rc;
    rc = cohort_txn_get_for_update(txn, NULL, K("reads-0002"), &v);
    for (unsigned i = 0; i < MANY && rc == 0; i++)
        rc = put(txn, NULL, step, i, 2);
    cohort_value_free(&v);
    return rc == 0 ? cohort_prepare(txn, K(step)) : end(txn, rc);
}

static int
decided_run(cohort_db *db)
{
    int rc = prepare(db, "decided");

    return rc == 0 ? cohort_commit_prepared(db, K("decided")) : rc;
}

/* What is still prepared is committed now. */
static enum nth_state
decided_look(struct iso *w)
{
    int rc = cohort_commit_prepared(w->db, K("decided"));

    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    return state_of(w, NULL, "decided", MANY, 1, 2);
}

static int
undecided_run(cohort_db *db)
{
    int rc = prepare(db, "undone");

    return rc == 0 ? cohort_abort_prepared(db, K("undone")) : rc;
}

static enum nth_state
undecided_look(struct iso *w)
{
    int rc = cohort_abort_prepared(w->db, K("undone"));

    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    return state_of(w, NULL, "undone", MANY, 1, 1) == NTH_OLD ? NTH_OLD : NTH_MIXED;
}

/* ---- the table ---- */

static int
checkpoint_run(cohort_db *db)
{
    int rc = cohort_checkpoint(db);

    return rc == 0 ? cohort_sync(db) : rc;
}

unsigned nth_check_lost, nth_check_other;

static void
note_finding(void *arg, const char *line)
{
    (void)arg;
    if (strstr(line, "in use but not in any tree") != NULL) {
        nth_check_lost++;
        return;
    }
    nth_check_other++;
    (void)fprintf(stderr, "check: %s\n", line);
}

static int
check_run(cohort_db *db)
{
    struct cohort_check_result r;

    nth_check_lost = nth_check_other = 0;
    return cohort_check(db, note_finding, NULL, &r);
}

const struct nth_step nth_steps[] = {
    {"single", single_run, single_look},
    {"batch", batch_run, batch_look},
    {"txn", txn_run, txn_look},
    {"aborted", aborted_run, aborted_look},
    {"savepoint", savepoint_run, savepoint_look},
    {"cursor", cursor_run, cursor_look},
    {"reads", reads_run, NULL},
    {"range", del_range_run, del_range_look},
    {"create", create_run, create_look},
    {"drop", drop_run, drop_look},
    {"names", names_run, names_look},
    {"large", large_run, large_look},
    {"writer", writer_run, writer_look},
    {"checkpoint", checkpoint_run, NULL},
    {"bulk", bulk_run, bulk_look},
    {"decided", decided_run, decided_look},
    {"undone", undecided_run, undecided_look},
    {"spill", spill_run, spill_look},
    {"check", check_run, NULL},
};
const unsigned nth_step_count = CH_ARRAY_LEN(nth_steps);

void
nth_prepare_world(struct iso *w)
{
    static const struct {
        const char *step;
        unsigned n;
    } rows[] = {
        {"txn", MANY},   {"aborted", MANY}, {"savepoint", MANY}, {"spill", SPILL}, {"cursor", MANY},
        {"reads", MANY}, {"range", MANY},   {"decided", MANY},   {"undone", MANY},
    };
    static const char *const trees[] = {"to drop", "drop",     "to rename",
                                        "rename",  "to empty", "empty"};
    uint8_t *data = malloc(LARGE);
    cohort_txn *txn = iso_snapshot(w);

    ZT_CHECK(w->t, data != NULL);
    for (unsigned r = 0; r < CH_ARRAY_LEN(rows); r++)
        for (unsigned i = 0; i < rows[r].n; i++)
            ZT_OK(w->t, put(txn, NULL, rows[r].step, i, 1));
    for (unsigned r = 0; r < CH_ARRAY_LEN(trees); r += 2) {
        cohort_tree *tree = NULL;

        ZT_OK(w->t, cohort_tree_open(w->db, txn, trees[r], COHORT_TREE_CREATE, NULL, &tree));
        for (unsigned i = 0; i < MANY; i++)
            ZT_OK(w->t, put(txn, tree, trees[r + 1], i, 1));
        cohort_tree_close(tree);
    }
    large_bytes(1, data);
    ZT_OK(w->t, cohort_txn_put(txn, NULL, K("large"), data, LARGE));
    ZT_OK(w->t, cohort_commit(txn));
    cohort_tree_close(iso_tree(w, "bulk"));
    free(data);
}
