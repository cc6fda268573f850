/* api_fuzz.c - bytes -> calls of the API, against a model; in memory, with reopenings and crashes among them.
 *
 * An input is a sequence of operations: a byte that says what, then its arguments. Up to SLOTS transactions are open at once,
 * of either level, all with lock_timeout_ms 0; records lie in the main tree and a named one. background=no, so an input
 * always does the same.
 *
 * Model: the committed state; for each open transaction the state that it saw when it began (or was refreshed) and its own
 * writes, with the stack of its savepoints. Versions tell what a value must be. Held against it:
 *     M1  a read is what the snapshot has, with the transaction's own writes; cursors in both directions, get_many and counts too.
 *     M2  a write succeeds when nobody else holds the key and nobody has committed one after the snapshot; else it is refused.
 *     M3  a commit at the level snapshot succeeds; at the level serializable it may be refused (CONFLICT), and must be when what
 *         was read by key has changed.
 *     M4  after a crash the state is that of the last sync, of the end, or of a commit in between: durability is "none", so a
 *         crash may lose a tail, but no commit by halves and none before one that is there.
 *     M5  cohort_check() finds nothing after each reopening and at the end.
 */
#include "api/api_internal.h"
#include "base/prng.h"
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    KEYS = 32, /* even ones in the main tree, odd ones in the named one */
    SLOTS = 3,
    DEPTH = 4,
    HISTORY =
        64, /* commits since the last sync that are kept apart; a sync is made when they are full */
    VALUE_MAX = 3000,
    OPS_MAX = 400,
};

struct state {
    uint32_t v[KEYS]; /* 0 = absent */
};
struct slot {
    cohort_txn *txn;
    bool serializable, poisoned; /* poisoned: serializable, and a key it has read has changed */
    struct state seen;           /* snapshot */
    struct state now;            /* with own writes */
    bool own[KEYS], read[KEYS];
    bool maybe[KEYS]; /* a large value was refused there: it may be locked all the same */
    uint64_t since;   /* commits when the snapshot was taken */
    struct {
        uint64_t id;
        struct state now;
        bool own[KEYS];
    } saved[DEPTH];
    unsigned depth;
};
struct fuzz {
    const uint8_t *data;
    size_t left;
    struct cohort_options opts;
    struct sim_drive *drive;
    cohort_db *db;
    cohort_tree *tree;
    struct slot slots[SLOTS];
    struct state committed;
    uint64_t commits, changed[KEYS]; /* the commit that changed a key last */
    struct state history[HISTORY];   /* [0] synced, then after each commit since */
    unsigned history_count;
    uint32_t version;
    struct cohort_value value;
    uint8_t want[VALUE_MAX];
};

/* COHORT_FUZZ_TRACE set: what is done, one line each. */
static void
trace(const char *what, unsigned slot, unsigned n, int rc)
{
    if (getenv("COHORT_FUZZ_TRACE") != NULL)
        (void)fprintf(stderr, "%s slot %u key %u: %d\n", what, slot, n, rc);
}

static void
demand(bool ok, const char *what, uint64_t n)
{
    const struct cohort_error *e = cohort_last_error();

    if (ok)
        return;
    (void)fprintf(stderr, "%s (%llu); last error %s:%d %s\n", what, (unsigned long long)n,
                  e->file != NULL ? e->file : "", e->line, e->text);
    abort();
}

static unsigned
draw(struct fuzz *f, unsigned below)
{
    unsigned byte;

    if (f->left == 0)
        return 0;
    byte = *f->data++;
    f->left--;
    return byte % below;
}

/* ---- records ---- */

static size_t
key_of(unsigned n, char *out)
{
    return (size_t)snprintf(out, 24, n % 5 == 0 ? "key-%02u-with-a-tail" : "k%02u", n);
}

static size_t
value_of(unsigned n, uint32_t version, uint8_t *out)
{
    struct ch_prng p;
    size_t bytes;

    ch_prng_init(&p, (uint64_t)n << 32 | version);
    bytes = 8 + ch_prng_below(&p, version % 7 == 0 ? VALUE_MAX - 8 : 200);
    ch_put32(out, n);
    ch_put32(out + 4, version);
    ch_prng_fill(&p, out + 8, bytes - 8);
    return bytes;
}

static cohort_tree *
tree_of(const struct fuzz *f, unsigned n)
{
    return n % 2 == 0 ? NULL : f->tree;
}

static uint32_t
version_of(struct fuzz *f, unsigned n, const void *data, size_t bytes)
{
    uint32_t version;

    demand(bytes >= 8 && ch_get32(data) == n, "a value of another key", n);
    version = ch_get32((const uint8_t *)data + 4);
    demand(value_of(n, version, f->want) == bytes && memcmp(f->want, data, bytes) == 0,
           "a damaged value", n);
    return version;
}

static uint32_t
read_newest(struct fuzz *f, unsigned n)
{
    char key[24];
    size_t bytes = key_of(n, key);
    int rc = tree_of(f, n) == NULL ? cohort_get(f->db, key, bytes, &f->value)
                                   : cohort_tree_get(f->tree, key, bytes, &f->value);

    if (rc == COHORT_NOTFOUND)
        return 0;
    demand(rc == 0, "get", n);
    return version_of(f, n, f->value.data, f->value.bytes);
}

/* ---- the database ---- */

static void
open_db(struct fuzz *f, bool create)
{
    struct dev *dev = NULL;

    demand(dev_sim_open(f->drive, &dev) == 0, "device", 0);
    demand(api_open_dev(dev, &f->opts, create, &f->db) == 0, "open", create);
    demand(cohort_tree_open(f->db, NULL, "tree", COHORT_TREE_CREATE, NULL, &f->tree) == 0, "tree",
           0);
}

static void
synced(struct fuzz *f)
{
    f->history[0] = f->committed;
    f->history_count = 1;
}

static void
note_commit(struct fuzz *f)
{
    if (f->history_count == HISTORY) {
        demand(cohort_sync(f->db) == 0, "sync", 0);
        synced(f);
        return;
    }
    f->history[f->history_count++] = f->committed;
}

static void
set_committed(struct fuzz *f, unsigned n, uint32_t version)
{
    f->committed.v[n] = version;
    f->changed[n] = f->commits;
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &f->slots[i];

        if (s->txn != NULL && s->serializable && s->read[n])
            s->poisoned = true;
    }
}

static void
check_all(struct fuzz *f)
{
    for (unsigned n = 0; n < KEYS; n++)
        demand(read_newest(f, n) == f->committed.v[n], "the newest version", n);
    demand(cohort_check(f->db, NULL, NULL, NULL) == 0, "check", 0); /* M5 */
}

static void
end_slots(struct fuzz *f, bool forget)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        if (f->slots[i].txn != NULL && forget)
            api_forget(f->slots[i].txn);
        else
            demand(cohort_abort(f->slots[i].txn) == 0, "abort", i);
        f->slots[i].txn = NULL;
    }
}

static void
reopen(struct fuzz *f)
{
    end_slots(f, false);
    cohort_tree_close(f->tree);
    demand(cohort_close(f->db) == 0, "close", 0);
    open_db(f, false);
    synced(f);
    check_all(f);
}

/* M4 */
static void
crash(struct fuzz *f, uint64_t seed)
{
    struct state found;
    unsigned at = f->history_count;
    int rc;

    end_slots(f, true);
    cohort_tree_close(f->tree);
    api_kill(f->db);
    sim_drive_crash(f->drive, seed);
    open_db(f, false);
    rc = cohort_abort_prepared(f->db, "gid", 3); /* its decision may be in the tail that was lost */
    demand(rc == 0 || rc == COHORT_NOTFOUND, "abort_prepared after a crash", (uint64_t)-rc);
    for (unsigned n = 0; n < KEYS; n++)
        found.v[n] = read_newest(f, n);
    while (at > 0 && memcmp(&f->history[at - 1], &found, sizeof(found)) != 0)
        at--;
    demand(at > 0, "the state after a crash is none that there was", seed);
    f->committed = found;
    demand(cohort_sync(f->db) == 0, "sync", 0);
    synced(f);
    check_all(f);
}

/* ---- transactions ---- */

static void
take_view(struct fuzz *f, struct slot *s)
{
    s->seen = f->committed;
    s->since = f->commits;
    for (unsigned n = 0; n < KEYS; n++)
        if (!s->own[n])
            s->now.v[n] = s->seen.v[n];
}

static void
begin(struct fuzz *f, struct slot *s)
{
    struct cohort_txn_options o;

    memset(s, 0, sizeof(*s));
    s->serializable = draw(f, 2) == 1;
    cohort_txn_options_init(&o);
    o.isolation = s->serializable ? COHORT_SERIALIZABLE : COHORT_SNAPSHOT;
    o.lock_timeout_ms = 0;
    demand(cohort_begin(f->db, &o, &s->txn) == 0, "begin", 0);
    trace(s->serializable ? "begin serializable" : "begin", (unsigned)(s - f->slots), 0, 0);
    take_view(f, s);
}

static bool
wrote(const struct slot *s)
{
    for (unsigned n = 0; n < KEYS; n++)
        if (s->own[n])
            return true;
    return false;
}

static void
apply(struct fuzz *f, struct slot *s)
{
    s->txn = NULL;
    if (!wrote(s))
        return;
    f->commits++;
    for (unsigned n = 0; n < KEYS; n++)
        if (s->own[n])
            set_committed(f, n, s->now.v[n]);
    note_commit(f);
}

/* M3. A reader alone is in order at its snapshot, whatever has changed. */
static void
commit(struct fuzz *f, struct slot *s)
{
    bool two_phase = draw(f, 4) == 0;
    int rc = two_phase ? cohort_prepare(s->txn, "gid", 3) : cohort_commit(s->txn);

    trace(two_phase ? "prepare" : "commit", (unsigned)(s - f->slots), 0, rc);

    if (rc == 0 && s->serializable && s->poisoned)
        demand(!wrote(s), "a commit that should have been refused", 0);
    if (rc == 0 && two_phase && draw(f, 3) == 0) {
        demand(cohort_abort_prepared(f->db, "gid", 3) == 0, "abort_prepared", 0);
        s->txn = NULL;
        return;
    }
    if (rc == 0 && two_phase)
        rc = cohort_commit_prepared(f->db, "gid", 3);
    demand(rc == 0 || (rc == COHORT_CONFLICT && s->serializable), "commit", (uint64_t)-rc);
    if (rc == 0)
        apply(f, s);
    s->txn = NULL;
}

static bool
held_by_other(const struct fuzz *f, const struct slot *s, unsigned n)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (&f->slots[i] != s && f->slots[i].txn != NULL && f->slots[i].own[n])
            return true;
    return false;
}

static bool
maybe_held(const struct fuzz *f, const struct slot *s, unsigned n)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (&f->slots[i] != s && f->slots[i].txn != NULL && f->slots[i].maybe[n])
            return true;
    return false;
}

/* M2 */
static void
expect_write(struct fuzz *f, struct slot *s, unsigned n, int rc, int want)
{
    if (held_by_other(f, s, n) || (!s->own[n] && f->changed[n] > s->since))
        demand(rc == COHORT_CONFLICT || (want != 0 && rc == want), "a write that is in conflict",
               n);
    else
        demand(rc == want || (rc == COHORT_CONFLICT && maybe_held(f, s, n)), "a write",
               (uint64_t)-rc);
}

static void
write_one(struct fuzz *f, struct slot *s)
{
    unsigned n = draw(f, KEYS), how = draw(f, 4);
    uint32_t version = ++f->version, was = s->now.v[n];
    uint8_t value[VALUE_MAX];
    char key[24];
    size_t key_bytes = key_of(n, key), bytes = value_of(n, version, value);
    int want = 0, rc;

    if (how == 0) {
        rc = cohort_txn_del(s->txn, tree_of(f, n), key, key_bytes);
        want = was == 0 ? COHORT_NOTFOUND : 0;
        version = 0;
    } else if (how == 1) {
        rc = cohort_txn_insert(s->txn, tree_of(f, n), key, key_bytes, value, bytes);
        want = was != 0 ? COHORT_EXISTS : 0;
    } else if (how == 2) {
        rc = cohort_txn_update(s->txn, tree_of(f, n), key, key_bytes, value, bytes);
        want = was == 0 ? COHORT_NOTFOUND : 0;
    } else {
        rc = cohort_txn_put(s->txn, tree_of(f, n), key, key_bytes, value, bytes);
    }
    trace(how == 0   ? "del"
          : how == 1 ? "insert"
          : how == 2 ? "update"
                     : "put",
          (unsigned)(s - f->slots), n, rc);
    expect_write(f, s, n, rc, want);
    s->maybe[n] = s->maybe[n] || (rc != 0 && how != 0 && bytes + key_bytes > COHORT_ENTRY_MAX);
    if (rc == 0) {
        s->own[n] = true;
        s->now.v[n] = version;
    }
}

static void
note_read(struct fuzz *f, struct slot *s, unsigned n)
{
    if (!s->serializable || s->own[n])
        return;
    s->read[n] = true;
    s->poisoned = s->poisoned || f->changed[n] > s->since;
}

static void
read_one(struct fuzz *f, struct slot *s)
{
    unsigned n = draw(f, KEYS);
    char key[24];
    size_t bytes = key_of(n, key);
    int rc = cohort_txn_get(s->txn, tree_of(f, n), key, bytes, &f->value);

    demand(rc == 0 || rc == COHORT_NOTFOUND, "txn_get", n);
    demand((rc == 0 ? version_of(f, n, f->value.data, f->value.bytes) : 0) == s->now.v[n],
           "what a transaction reads", n); /* M1 */
    note_read(f, s, n);
}

/* The whole of one tree: in order, and what the transaction must see. */
static void
scan(struct fuzz *f, struct slot *s)
{
    unsigned side = draw(f, 2), seen = 0, want = 0;
    bool back = draw(f, 2) == 1;
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    char name[24];
    int rc;

    demand(cohort_txn_cursor(s->txn, side == 0 ? NULL : f->tree, &c) == 0, "cursor", 0);
    for (rc = back ? cohort_cursor_last(c) : cohort_cursor_first(c); rc == 0;
         rc = back ? cohort_cursor_prev(c) : cohort_cursor_next(c)) {
        unsigned n;

        demand(cohort_cursor_entry(c, &key, &value) == 0, "entry", 0);
        for (n = side; n < KEYS; n += 2)
            if (key_of(n, name) == key.bytes && memcmp(name, key.data, key.bytes) == 0)
                break;
        demand(n < KEYS && version_of(f, n, value.data, value.bytes) == s->now.v[n],
               "what a scan reads", n);
        seen++;
    }
    demand(rc == COHORT_NOTFOUND, "scan", 0);
    cohort_cursor_close(c);
    for (unsigned n = side; n < KEYS; n += 2) {
        want += s->now.v[n] != 0;
        note_read(f, s, n);
    }
    demand(seen == want, "how much a scan reads", seen);
}

static void
savepoint(struct fuzz *f, struct slot *s)
{
    unsigned at;

    if (s->depth < DEPTH && draw(f, 2) == 0) {
        trace("savepoint", (unsigned)(s - f->slots), s->depth, 0);
        demand(cohort_savepoint(s->txn, &s->saved[s->depth].id) == 0, "savepoint", 0);
        s->saved[s->depth].now = s->now;
        memcpy(s->saved[s->depth++].own, s->own, sizeof(s->own));
        return;
    }
    if (s->depth == 0)
        return;
    at = draw(f, s->depth);
    trace("back to or release", (unsigned)(s - f->slots), at, 0);
    if (draw(f, 4) == 0) {
        demand(cohort_release(s->txn, s->saved[at].id) == 0, "release", at);
        s->depth = at;
        return;
    }
    demand(cohort_rollback_to(s->txn, s->saved[at].id) == 0, "rollback", at);
    for (unsigned n = 0; n < KEYS; n++) /* others' writes may have appeared by a refresh */
        s->now.v[n] = s->saved[at].own[n] ? s->saved[at].now.v[n] : s->seen.v[n];
    memcpy(s->own, s->saved[at].own, sizeof(s->own));
    s->depth = at + 1;
}

static void
alone(struct fuzz *f)
{
    unsigned n = draw(f, KEYS);
    uint32_t version = ++f->version;
    bool del = draw(f, 3) == 0;
    uint8_t value[VALUE_MAX];
    char key[24];
    size_t key_bytes = key_of(n, key), bytes = value_of(n, version, value);
    cohort_tree *tree = tree_of(f, n);
    int rc, want = del && f->committed.v[n] == 0 ? COHORT_NOTFOUND : 0;

    if (del)
        rc = tree != NULL ? cohort_tree_del(tree, key, key_bytes)
                          : cohort_del(f->db, key, key_bytes);
    else
        rc = tree != NULL ? cohort_tree_put(tree, key, key_bytes, value, bytes)
                          : cohort_put(f->db, key, key_bytes, value, bytes);
    trace(del ? "alone del" : "alone put", 9, n, rc);
    if (held_by_other(f, NULL, n)) {
        demand(cohort_class_of(rc) == COHORT_CLASS_CONFLICT || (want != 0 && rc == want),
               "an operation of its own on a held key", (uint64_t)-rc);
        return;
    }
    if (cohort_class_of(rc) == COHORT_CLASS_CONFLICT && maybe_held(f, NULL, n))
        return;
    demand(rc == want, "an operation of its own", (uint64_t)-rc);
    if (rc != 0)
        return;
    f->commits++;
    set_committed(f, n, del ? 0 : version);
    note_commit(f);
}

static void
in_slot(struct fuzz *f, unsigned what)
{
    struct slot *s = &f->slots[draw(f, SLOTS)];

    if (s->txn == NULL) {
        begin(f, s);
    } else if (what < 6) {
        write_one(f, s);
    } else if (what < 8) {
        read_one(f, s);
    } else if (what < 9) {
        scan(f, s);
    } else if (what < 11) {
        savepoint(f, s);
    } else if (what < 12 && !s->serializable) {
        demand(cohort_txn_refresh(s->txn) == 0, "refresh", 0);
        take_view(f, s);
    } else if (what < 13) {
        demand(cohort_abort(s->txn) == 0, "abort", 0);
        s->txn = NULL;
    } else {
        commit(f, s);
    }
}

static void
operation(struct fuzz *f)
{
    unsigned what = draw(f, 64);

    if (what < 48)
        in_slot(f, what % 15);
    else if (what < 58)
        alone(f);
    else if (what < 59)
        crash(f, draw(f, 256));
    else if (what < 60)
        reopen(f);
    else if (what < 61)
        demand(cohort_checkpoint(f->db) == 0, "checkpoint", 0);
    else if (what < 62) {
        demand(cohort_sync(f->db) == 0, "sync", 0);
        synced(f);
    } else {
        demand(read_newest(f, what % KEYS) == f->committed.v[what % KEYS], "get", what);
    }
}

static void
set(struct cohort_options *o, const char *name, const char *value)
{
    demand(cohort_options_set(o, name, value) == 0, name, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const presets[] = {"cohort", "inplace", "oop", "oop+pack"};
    struct fuzz *f = calloc(1, sizeof(*f));

    demand(f != NULL, "memory", 0);
    f->data = data;
    f->left = size;
    cohort_options_init(&f->opts);
    set(&f->opts, "preset", presets[draw(f, 4)]);
    set(&f->opts, "background", "no");
    set(&f->opts, "durability", "none");
    set(&f->opts, "lock_timeout_ms", "0");
    set(&f->opts, "cache_bytes", "1M");
    set(&f->opts, "zone_bytes", "64K");
    set(&f->opts, "log_bytes", "256K");
    demand(sim_drive_create("generic,bytes=8M,superblock=256K,cache=volatile", &f->drive) == 0,
           "drive", 0);
    open_db(f, true);
    demand(cohort_sync(f->db) == 0, "sync", 0);
    synced(f);
    for (unsigned i = 0; i < OPS_MAX && f->left > 0; i++)
        operation(f);
    end_slots(f, false);
    check_all(f);
    cohort_tree_close(f->tree);
    demand(cohort_close(f->db) == 0, "close", 0);
    sim_drive_destroy(f->drive);
    cohort_value_free(&f->value);
    free(f);
    return 0;
}
