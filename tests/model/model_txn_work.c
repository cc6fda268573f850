/* model_txn_work.c - what a thread of the transaction model does, and what it expects of each call. See model_txn.h. */
#include "model/model_txn.h"

#include <stdio.h>
#include <stdlib.h>

void
model_fail(struct worker *k, const char *what, uint32_t key, int rc)
{
    const struct cohort_error *e = cohort_last_error();

    if (k->failed)
        return;
    k->failed = true;
    (void)snprintf(k->why, sizeof(k->why), "thread %u: %s: key %u, rc %d (%s), last error %s:%d %s",
                   k->index, what, key, rc, cohort_strerror(rc), e->file != NULL ? e->file : "",
                   e->line, e->text);
}

static uint64_t
below(struct worker *k, uint64_t n)
{
    return ch_prng_below(&k->rng, n);
}

/* ---- keys and values ---- */

size_t
model_name(uint32_t key, char *out)
{
    if (key % 13 == 5)
        return (size_t)snprintf(out, 300, "%04u-%0*u", key * 7 % 1000, 20 + (int)(key % 150), key);
    return (size_t)snprintf(out, 300, "%04u-%u", key * 7 % 1000, key);
}

static size_t
make_value(uint32_t key, uint32_t version, uint8_t *out)
{
    return zt_value(key, version, key % 29 == 11 ? LARGE_MAX : SMALL_MAX, out);
}

static uint32_t
value_version(struct worker *k, uint32_t key, const void *data, size_t bytes)
{
    uint32_t version;

    if (bytes < 8 || ch_get32(data) != key)
        return 0;
    version = ch_get32((const uint8_t *)data + 4);
    if (version == 0 || make_value(key, version, k->want) != bytes ||
        memcmp(k->want, data, bytes) != 0)
        return 0;
    return version;
}

static void
special_name(uint32_t key, char *out)
{
    (void)snprintf(out, 32, "special-%u", key - KEYS);
}

static uint32_t
own_key(struct worker *k)
{
    uint32_t n = (KEYS - k->index + k->w->threads - 1) / k->w->threads;
    uint32_t i = (uint32_t)below(k, n);

    if (below(k, 2) == 0)
        i /= 8; /* often the same ones, so that transactions meet */
    return i * k->w->threads + k->index;
}

static uint32_t
own_special(struct worker *k)
{
    uint32_t n = (SPECIALS - k->index + k->w->threads - 1) / k->w->threads;

    return KEYS + (uint32_t)below(k, n) * k->w->threads + k->index;
}

/* An error that nobody planned ends the test, one of a fault the thread's round. */
static void
unexpected(struct worker *k, const char *what, uint32_t key, int rc)
{
    if (!k->w->faults)
        model_fail(k, what, key, rc);
    k->stopped = true;
}

/* ---- history ---- */

static void
note_write(struct worker *k, const struct change *c, unsigned n, bool acked)
{
    for (unsigned i = 0; i < n; i++)
        if (!c[i].lock)
            k->changes[k->change_count++] = c[i];
    k->ends[k->writes++] = k->change_count;
    if (!acked)
        return;
    k->acked = k->writes;
    if (k->w->opts.durability == COHORT_DURABILITY_SYNC)
        k->synced = k->acked;
    k->commits++;
    for (unsigned i = 0; i < n; i++) {
        if (c[i].lock)
            continue;
        k->state[c[i].key] = c[i].version;
        k->committed_at[c[i].key] = k->commits;
    }
}

static bool
history_full(const struct worker *k)
{
    return k->writes + 8 > HISTORY_MAX || k->change_count + 4 * SLOT_CHANGES > CHANGES_MAX;
}

/* ---- whole trees ---- */

static int
put_entries(cohort_txn *txn, cohort_tree *tree, uint32_t key, uint32_t version)
{
    int rc = 0;

    for (uint32_t i = 0; i < version % 5 && rc == 0; i++) {
        uint32_t value[3] = {key, version, i};

        rc = cohort_txn_put(txn, tree, &i, sizeof(i), value, sizeof(value));
    }
    return rc;
}

/* From version `from` to `to`, within the transaction. */
static int
change_special(cohort_db *db, cohort_txn *txn, uint32_t key, uint32_t from, uint32_t to)
{
    cohort_tree *tree = NULL;
    char name[32];
    int rc = 0;

    special_name(key, name);
    if (to == 0)
        return cohort_tree_drop(db, txn, name, 0);
    if (from != 0)
        rc = cohort_tree_truncate(db, txn, name);
    if (rc == 0)
        rc = cohort_tree_open(db, txn, name, COHORT_TREE_CREATE, NULL, &tree);
    if (rc == 0)
        rc = put_entries(txn, tree, key, to);
    cohort_tree_close(tree);
    return rc;
}

/* What the tree's entries say; UINT32_MAX when they contradict each other. */
static int
read_entries(cohort_cursor *c, uint32_t key, uint32_t *version)
{
    struct cohort_slice name, value;
    uint32_t n = 0, seen = 0;
    int rc;

    for (rc = cohort_cursor_first(c); rc == 0; rc = cohort_cursor_next(c)) {
        rc = cohort_cursor_entry(c, &name, &value);
        if (rc != 0)
            return rc;
        if (value.bytes != 12 || ch_get32(value.data) != key || name.bytes != 4 ||
            ch_get32((const uint8_t *)value.data + 8) != n || ch_get32(name.data) != n)
            seen = UINT32_MAX;
        if (n > 0 && seen != ch_get32((const uint8_t *)value.data + 4))
            seen = UINT32_MAX;
        else if (seen != UINT32_MAX)
            seen = ch_get32((const uint8_t *)value.data + 4);
        n++;
    }
    if (rc != COHORT_NOTFOUND)
        return rc;
    *version = n == 0          ? 5
               : seen % 5 == n ? seen
                               : UINT32_MAX; /* an empty tree: any multiple of 5 */
    return 0;
}

static int
read_special(struct worker *k, cohort_txn *txn, uint32_t key, uint32_t *version)
{
    cohort_tree *tree = NULL;
    cohort_cursor *c = NULL;
    cohort_txn *own = NULL;
    char name[32];
    int rc = 0;

    if (txn == NULL) {
        rc = cohort_begin(k->w->db, NULL, &own);
        txn = own;
    }
    special_name(key, name);
    if (rc == 0)
        rc = cohort_tree_open(k->w->db, txn, name, 0, NULL, &tree);
    if (rc == COHORT_NOTFOUND) {
        *version = 0;
        rc = 0;
    } else if (rc == 0) {
        rc = cohort_txn_cursor(txn, tree, &c);
        if (rc == 0)
            rc = read_entries(c, key, version);
    }
    cohort_cursor_close(c);
    cohort_tree_close(tree);
    if (own != NULL && cohort_commit(own) != 0 && rc == 0)
        rc = cohort_last_error()->code;
    return rc;
}

/* Versions of a special key that look the same. */
static bool
same(uint32_t key, uint32_t a, uint32_t b)
{
    if (a == b)
        return true;
    return key >= KEYS && a != 0 && b != 0 && a % 5 == 0 && b % 5 == 0;
}

/* ---- reads ---- */

static int
read_record(struct worker *k, cohort_txn *txn, uint32_t key)
{
    cohort_tree *tree = k->trees[model_tree_of(key)];
    char name[300];
    size_t n = model_name(key, name);

    if (txn != NULL)
        return cohort_txn_get(txn, tree, name, n, &k->value);
    return tree != NULL ? cohort_tree_get(tree, name, n, &k->value)
                        : cohort_get(k->w->db, name, n, &k->value);
}

uint32_t
model_read(struct worker *k, cohort_txn *txn, uint32_t key)
{
    uint32_t version = 0;
    int rc;

    if (key >= KEYS) {
        rc = read_special(k, txn, key, &version);
        if (rc == 0 && version == UINT32_MAX)
            model_fail(k, "a tree of no version", key, 0);
    } else {
        rc = read_record(k, txn, key);
        if (rc == 0) {
            version = value_version(k, key, k->value.data, k->value.bytes);
            if (version == 0)
                model_fail(k, "a value of no version", key, 0);
        }
        rc = rc == COHORT_NOTFOUND ? 0 : rc;
    }
    if (rc != 0)
        unexpected(k, "a read failed", key, rc);
    return version;
}

static bool
too_old(struct slot *s, int rc)
{
    s->dead = s->dead || rc == COHORT_SNAPSHOT_TOO_OLD;
    return rc == COHORT_SNAPSHOT_TOO_OLD;
}

static void
slot_read(struct worker *k, struct slot *s)
{
    uint32_t key = own_key(k);
    int rc = read_record(k, s->txn, key);

    if (too_old(s, rc))
        return;
    if (rc != 0 && rc != COHORT_NOTFOUND)
        unexpected(k, "a read in a transaction failed", key, rc);
    else if ((rc == 0 ? value_version(k, key, k->value.data, k->value.bytes) : 0) != s->view[key])
        model_fail(k, "a transaction does not see its snapshot and its writes", key, rc);
}

static void
slot_read_special(struct worker *k, struct slot *s)
{
    uint32_t key = own_special(k), version = 0;
    int rc;

    if (k->committed_at[key] > s->since ||
        (k->owner[key] != 0 && k->owner[key] != 1 + s - k->slots))
        return; /* by name the snapshot sees a tree whose handles have ended, or may soon */
    rc = read_special(k, s->txn, key, &version);
    if (too_old(s, rc))
        return;
    if (rc != 0)
        unexpected(k, "a read of a tree failed", key, rc);
    else if (!same(key, version, s->view[key]))
        model_fail(k, "a tree is not as the transaction left it", key, rc);
}

static void
slot_read_piece(struct worker *k, struct slot *s)
{
    uint32_t key = own_key(k) / 29 * 29 + 11;
    uint64_t total, off = below(k, LARGE_MAX);
    char name[300];
    size_t got, n;
    int rc;

    if (key >= KEYS || key % k->w->threads != k->index)
        return;
    rc = cohort_txn_read(s->txn, k->trees[model_tree_of(key)], name, model_name(key, name), off,
                         k->buf, 5000, &got, &total);
    if (too_old(s, rc))
        return;
    if (rc != (s->view[key] != 0 ? 0 : COHORT_NOTFOUND)) {
        unexpected(k, "a piece of a value", key, rc);
        return;
    }
    if (rc != 0)
        return;
    n = make_value(key, s->view[key], k->want);
    if (total != n || got != (off >= n ? 0 : ch_min_u64(5000, n - off)) ||
        memcmp(k->buf, k->want + off, got) != 0)
        model_fail(k, "a piece of a value is wrong", key, 0);
}

/* Own keys between the start and the end of a scan are seen, in their order, as the view says. */
static int
scan_entries(struct worker *k, struct slot *s, cohort_cursor *c, unsigned tree, bool forward)
{
    struct cohort_slice name, value;
    int rc = 0;

    for (int n = 0; n < 40 && rc == 0; n++) {
        const char *dash;
        char text[300];
        uint32_t key;

        rc = cohort_cursor_entry(c, &name, &value);
        if (rc != 0)
            return rc;
        memcpy(text, name.data, name.bytes);
        text[name.bytes] = '\0';
        dash = strchr(text, '-');
        key = dash == NULL ? KEYS : (uint32_t)strtoul(dash + 1, NULL, 10);
        if (key >= KEYS || model_tree_of(key) != tree)
            model_fail(k, "a scan finds a key of nobody", key, 0);
        else if (key % k->w->threads == k->index &&
                 value_version(k, key, value.data, value.bytes) != s->view[key])
            model_fail(k, "a scan does not see the snapshot and its writes", key, 0);
        rc = forward ? cohort_cursor_next(c) : cohort_cursor_prev(c);
    }
    return rc;
}

/* Single threads know all keys: then the count is checked, too. */
static void
slot_scan(struct worker *k, struct slot *s)
{
    unsigned tree = (unsigned)below(k, TREES + 1);
    bool forward = below(k, 2) == 0;
    cohort_cursor *c = NULL;
    uint64_t count, want = 0;
    char name[300];
    int rc = cohort_txn_cursor(s->txn, k->trees[tree], &c);

    if (rc == 0)
        rc = forward ? cohort_cursor_seek(c, name, model_name(own_key(k), name))
                     : cohort_cursor_seek_before(c, name, model_name(own_key(k), name));
    if (rc == 0)
        rc = scan_entries(k, s, c, tree, forward);
    cohort_cursor_close(c);
    if ((rc == 0 || rc == COHORT_NOTFOUND) && k->w->threads == 1 && below(k, 4) == 0) {
        rc = cohort_tree_count(NULL, s->txn, k->trees[tree], &count);
        for (uint32_t key = tree; key < KEYS; key += TREES + 1)
            want += s->view[key] != 0;
        if (rc == 0 && count != want)
            model_fail(k, "a tree has another number of entries", tree, (int)count);
    }
    if (!too_old(s, rc) && rc != 0 && rc != COHORT_NOTFOUND)
        unexpected(k, "a scan failed", tree, rc);
}

/* ---- writes ---- */

/* Must this slot's write of the key be refused? */
static bool
conflicts(const struct worker *k, const struct slot *s, uint32_t key)
{
    unsigned me = (unsigned)(s - k->slots) + 1;

    return (k->owner[key] != 0 && k->owner[key] != me) || k->committed_at[key] > s->since;
}

static void
slot_note(struct worker *k, struct slot *s, struct change c)
{
    s->changes[s->count++] = c;
    s->view[c.key] = c.version;
    k->owner[c.key] = (uint8_t)(1 + s - k->slots);
}

static int
write_streamed(struct worker *k, struct slot *s, uint32_t key, size_t bytes)
{
    cohort_writer *w = NULL;
    char name[300];
    size_t at = 0;
    int rc =
        cohort_writer_open(s->txn, k->trees[model_tree_of(key)], name, model_name(key, name), &w);

    while (rc == 0 && at < bytes) {
        size_t n = (size_t)ch_min_u64(bytes - at, 1 + below(k, 3000));

        rc = cohort_writer_append(w, k->buf + at, n);
        at += n;
    }
    if (rc == 0)
        return cohort_writer_finish(w);
    cohort_writer_cancel(w);
    return rc;
}

/* One write of a record by one of the calls; what it must return when there is no conflict is *want. */
static int
write_record(struct worker *k, struct slot *s, uint32_t key, uint32_t *version, int *want)
{
    cohort_tree *tree = k->trees[model_tree_of(key)];
    bool there = s->view[key] != 0;
    char name[300];
    size_t kn = model_name(key, name), n = make_value(key, *version, k->buf);

    uint64_t how = below(k, 7);

    if (kn + n > COHORT_ENTRY_MAX && how == (there ? 0 : 1))
        how = 6; /* a refused insert or update of a large value may keep the record locked */
    *want = 0;
    switch (how) {
    case 0:
        *want = there ? COHORT_EXISTS : 0;
        return cohort_txn_insert(s->txn, tree, name, kn, k->buf, n);
    case 1:
        *want = there ? 0 : COHORT_NOTFOUND;
        return cohort_txn_update(s->txn, tree, name, kn, k->buf, n);
    case 2:
    case 3:
        *version = 0;
        *want = there ? 0 : COHORT_NOTFOUND;
        return cohort_txn_del(s->txn, tree, name, kn);
    case 4:
        return write_streamed(k, s, key, n);
    default:
        return cohort_txn_put(s->txn, tree, name, kn, k->buf, n);
    }
}

static void
slot_write(struct worker *k, struct slot *s)
{
    uint32_t key = own_key(k), version = ++k->next_version;
    int want, rc = write_record(k, s, key, &version, &want);

    if (too_old(s, rc))
        return;
    if (conflicts(k, s, key)) { /* what the call says of the key's presence may come first */
        if (rc != COHORT_CONFLICT && (want == 0 || rc != want))
            unexpected(k, "a write that must be refused was not", key, rc);
        return;
    }
    if (rc != want)
        unexpected(k, "a write in a transaction", key, rc);
    else if (rc == 0)
        slot_note(k, s, (struct change){.key = key, .version = version});
}

static void
slot_lock(struct worker *k, struct slot *s)
{
    uint32_t key = own_key(k);
    char name[300];
    int rc = cohort_txn_get_for_update(s->txn, k->trees[model_tree_of(key)], name,
                                       model_name(key, name), &k->value);
    int want = s->view[key] != 0 ? 0 : COHORT_NOTFOUND;

    if (too_old(s, rc))
        return;
    if (conflicts(k, s, key) ? rc != COHORT_CONFLICT : rc != want) {
        unexpected(k, "a lock", key, rc);
        return;
    }
    if (rc != COHORT_CONFLICT)
        slot_note(k, s, (struct change){key, s->view[key], true});
}

/* The steps of such a change are made whole by a savepoint. */
static void
slot_special(struct worker *k, struct slot *s)
{
    uint32_t key = own_special(k);
    uint32_t version = below(k, 3) == 0 ? 0 : 5 * ++k->next_version + (uint32_t)below(k, 5);
    uint64_t sp;
    int back = 0, rc;

    if (version == 0 && s->view[key] == 0)
        return;
    rc = cohort_savepoint(s->txn, &sp);
    if (rc == 0) {
        rc = change_special(k->w->db, s->txn, key, s->view[key], version);
        if (rc != 0)
            back = cohort_rollback_to(s->txn, sp);
        if (back == 0)
            back = cohort_release(s->txn, sp);
    }
    if (back != 0) {
        unexpected(k, "a savepoint around a tree", key, back);
        return;
    }
    if (too_old(s, rc))
        return;
    if (conflicts(k, s, key)) {
        if (cohort_class_of(rc) != COHORT_CLASS_CONFLICT && rc != COHORT_NOTFOUND)
            unexpected(k, "a change of a tree that must be refused was not", key, rc);
        return;
    }
    if (rc != 0) {
        unexpected(k, "a change of a tree", key, rc);
        return;
    }
    s->special = true;
    slot_note(k, s, (struct change){.key = key, .version = version});
}

/* ---- savepoints ---- */

static void
slot_savepoint(struct worker *k, struct slot *s)
{
    struct mark *m = &s->mark[s->marks];
    int rc;

    if (s->marks == SAVEPOINTS)
        return;
    rc = cohort_savepoint(s->txn, &m->id);
    if (rc != 0) {
        unexpected(k, "a savepoint", 0, rc);
        return;
    }
    m->changes = s->count;
    memcpy(m->view, s->view, sizeof(m->view));
    s->marks++;
}

static void
slot_rollback(struct worker *k, struct slot *s)
{
    unsigned at;
    int rc;

    if (s->marks == 0)
        return;
    at = (unsigned)below(k, s->marks);
    rc = cohort_rollback_to(s->txn, s->mark[at].id);
    if (rc != 0) {
        unexpected(k, "a rollback to a savepoint", 0, rc);
        return;
    }
    for (unsigned i = s->mark[at].changes; i < s->count; i++)
        k->owner[s->changes[i].key] = 0;
    s->count = s->mark[at].changes;
    for (unsigned i = 0; i < s->count; i++) /* some were changed before, too */
        k->owner[s->changes[i].key] = (uint8_t)(1 + s - k->slots);
    memcpy(s->view, s->mark[at].view, sizeof(s->view));
    s->marks = at + 1;
}

static void
slot_release(struct worker *k, struct slot *s)
{
    unsigned at;
    int rc;

    if (s->marks == 0)
        return;
    at = (unsigned)below(k, s->marks);
    rc = cohort_release(s->txn, s->mark[at].id);
    if (rc != 0)
        unexpected(k, "a release of a savepoint", 0, rc);
    else
        s->marks = at;
}

/* ---- begin and end ---- */

static void
slot_begin(struct worker *k, struct slot *s)
{
    int rc = cohort_begin(k->w->db, NULL, &s->txn);

    if (rc != 0) {
        s->txn = NULL;
        unexpected(k, "begin", 0, rc);
        return;
    }
    memcpy(s->view, k->state, sizeof(s->view));
    s->since = k->commits;
    s->count = s->marks = 0;
    s->special = s->dead = false;
}

static void
slot_free(struct worker *k, struct slot *s, uint8_t owner)
{
    for (unsigned i = 0; i < s->count; i++)
        k->owner[s->changes[i].key] = owner;
    s->txn = NULL;
}

static void
slot_abort(struct worker *k, struct slot *s)
{
    int rc = cohort_abort(s->txn);

    slot_free(k, s, 0);
    if (rc != 0)
        unexpected(k, "abort", 0, rc);
}

static void
slot_commit(struct worker *k, struct slot *s)
{
    bool visible = below(k, 4) == 0;
    uint64_t at;
    int rc = visible ? cohort_commit_visible(s->txn, &at) : cohort_commit(s->txn);

    if (rc == COHORT_SNAPSHOT_TOO_OLD) { /* it has been rolled back */
        slot_free(k, s, 0);
        return;
    }
    slot_free(k, s, 0);
    if (rc == 0 && visible && k->w->opts.durability == COHORT_DURABILITY_SYNC) {
        rc = cohort_durable(k->w->db, at);
        if (rc != 0) { /* committed, and not known to be durable */
            note_write(k, s->changes, s->count, false);
            unexpected(k, "durable", 0, rc);
            return;
        }
    }
    note_write(k, s->changes, s->count, rc == 0);
    if (rc != 0)
        unexpected(k, "commit", 0, rc);
}

/* ---- prepared ---- */

static struct prepared *
find_prepared(struct worker *k, enum prepared_state state)
{
    for (unsigned i = 0; i < PREPARED; i++)
        if (k->prepared[i].state == state)
            return &k->prepared[i];
    return NULL;
}

static void
slot_prepare(struct worker *k, struct slot *s)
{
    struct prepared *p = find_prepared(k, P_FREE);
    int rc;

    if (p == NULL || s->special)
        return;
    p->count = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (!s->changes[i].lock)
            p->changes[p->count++] = s->changes[i];
    if (p->count == 0)
        return;
    (void)snprintf(p->gid, sizeof(p->gid), "%u-%u", k->index, ++k->next_gid);
    rc = cohort_prepare(s->txn, p->gid, strlen(p->gid));
    if (rc == COHORT_SNAPSHOT_TOO_OLD) {
        slot_free(k, s, 0);
        return;
    }
    p->locks = s->count;
    memcpy(p->held, s->changes, sizeof(p->held));
    slot_free(k, s, OWNER_PREPARED);
    p->state = rc == 0 ? P_SURE : P_MAYBE;
    if (rc == 0)
        k->synced = k->acked; /* the log up to it is durable */
    else
        unexpected(k, "prepare", 0, rc);
}

static void
decide(struct worker *k)
{
    struct prepared *p = find_prepared(k, P_SURE);
    bool commit = below(k, 2) == 0;
    int rc;

    if (p == NULL)
        return;
    rc = commit ? cohort_commit_prepared(k->w->db, p->gid, strlen(p->gid))
                : cohort_abort_prepared(k->w->db, p->gid, strlen(p->gid));
    if (rc == 0)
        rc = cohort_sync(k->w->db);
    if (commit)
        note_write(k, p->changes, p->count, rc == 0);
    if (rc != 0) {
        p->state = commit ? P_COMMITTING : P_MAYBE;
        unexpected(k, "a decision", 0, rc);
        return;
    }
    k->synced = k->acked;
    for (unsigned i = 0; i < p->locks; i++)
        k->owner[p->held[i].key] = 0;
    p->state = P_FREE;
}

/* ---- operations of their own ---- */

static int
alone_record(struct worker *k, uint32_t key, uint32_t version)
{
    cohort_tree *tree = k->trees[model_tree_of(key)];
    char name[300];
    size_t kn = model_name(key, name), n;

    if (version == 0)
        return tree != NULL ? cohort_tree_del(tree, name, kn) : cohort_del(k->w->db, name, kn);
    n = make_value(key, version, k->buf);
    return tree != NULL ? cohort_tree_put(tree, name, kn, k->buf, n)
                        : cohort_put(k->w->db, name, kn, k->buf, n);
}

static void
alone(struct worker *k)
{
    uint32_t key = own_key(k), version = below(k, 4) == 0 ? 0 : ++k->next_version;
    int rc = alone_record(k, key, version);

    if (k->owner[key] != 0) {
        if (rc != COHORT_CONFLICT && rc != COHORT_NOTFOUND)
            unexpected(k, "an operation of its own that must be refused was not", key, rc);
        return;
    }
    if (rc == COHORT_NOTFOUND && version == 0 && k->state[key] == 0)
        return;
    note_write(k, &(struct change){.key = key, .version = version}, 1, rc == 0);
    if (rc != 0)
        unexpected(k, "an operation of its own", key, rc);
}

/* A tree made empty, then loaded: two writes. */
static void
bulk(struct worker *k)
{
    uint32_t key = own_special(k), empty = 5 * ++k->next_version;
    uint32_t full = 5 * ++k->next_version + 1 + (uint32_t)below(k, 4);
    cohort_tree *tree = NULL;
    cohort_bulk *b = NULL;
    char name[32];
    int rc;

    if (k->state[key] != 0 || k->owner[key] != 0)
        return;
    special_name(key, name);
    rc = cohort_tree_open(k->w->db, NULL, name, COHORT_TREE_CREATE | COHORT_TREE_EXCLUSIVE, NULL,
                          &tree);
    note_write(k, &(struct change){.key = key, .version = empty}, 1, rc == 0);
    if (rc != 0) {
        unexpected(k, "a tree for a bulk load", key, rc);
        return;
    }
    rc = cohort_bulk_open(k->w->db, tree, &b);
    for (uint32_t i = 0; i < full % 5 && rc == 0; i++) {
        uint32_t value[3] = {key, full, i}; /* little-endian: they ascend as bytes, too */

        rc = cohort_bulk_put(b, &i, sizeof(i), value, sizeof(value));
    }
    if (rc == 0) {
        rc = cohort_bulk_finish(b);
        note_write(k, &(struct change){.key = key, .version = full}, 1, rc == 0);
    } else {
        cohort_bulk_abort(b);
    }
    cohort_tree_close(tree);
    if (rc != 0)
        unexpected(k, "a bulk load", key, rc);
}

static void
sync_all(struct worker *k, bool checkpoint)
{
    int rc = checkpoint ? cohort_checkpoint(k->w->db) : cohort_sync(k->w->db);

    if (rc == 0)
        k->synced = k->acked;
    else
        unexpected(k, "sync or checkpoint", 0, rc);
}

/* ---- a round ---- */

static void
slot_step(struct worker *k, struct slot *s)
{
    uint64_t dice = below(k, 100);

    if (s->dead || s->count + 2 > SLOT_CHANGES || dice < 4)
        slot_abort(k, s);
    else if (dice < 12)
        slot_commit(k, s);
    else if (dice < 14)
        slot_prepare(k, s);
    else if (dice < 18)
        slot_savepoint(k, s);
    else if (dice < 21)
        slot_rollback(k, s);
    else if (dice < 22)
        slot_release(k, s);
    else if (dice < 24)
        slot_special(k, s);
    else if (dice < 26)
        slot_read_special(k, s);
    else if (dice < 28)
        slot_lock(k, s);
    else if (dice < 32)
        slot_scan(k, s);
    else if (dice < 34)
        slot_read_piece(k, s);
    else if (dice < 50)
        slot_read(k, s);
    else
        slot_write(k, s);
}

static void
step(struct worker *k)
{
    struct slot *s = &k->slots[below(k, SLOTS)];
    uint64_t dice = below(k, 1000);

    if (dice < 2)
        sync_all(k, true);
    else if (dice < 6)
        sync_all(k, false);
    else if (dice < 10)
        bulk(k);
    else if (dice < 30)
        decide(k);
    else if (dice < 150)
        alone(k);
    else if (s->txn == NULL)
        slot_begin(k, s);
    else
        slot_step(k, s);
}

void
model_work(void *arg)
{
    struct worker *k = arg;

    for (unsigned i = 0; i < k->ops && !k->failed && !k->stopped && !history_full(k); i++)
        step(k);
}

void
model_end_slots(struct worker *k)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &k->slots[i];

        if (s->txn == NULL)
            continue;
        if (s->dead || k->stopped || below(k, 2) == 0)
            slot_abort(k, s);
        else
            slot_commit(k, s);
    }
}

bool
model_open_trees(struct worker *k)
{
    for (unsigned i = 1; i <= TREES; i++) {
        char name[16];
        int rc;

        (void)snprintf(name, sizeof(name), "tree-%u", i);
        rc = cohort_tree_open(k->w->db, NULL, name, COHORT_TREE_CREATE, NULL, &k->trees[i]);
        if (rc != 0)
            model_fail(k, "a named tree can't be opened", i, rc);
    }
    return !k->failed;
}

void
model_close_trees(struct worker *k)
{
    for (unsigned i = 1; i <= TREES; i++) {
        cohort_tree_close(k->trees[i]);
        k->trees[i] = NULL;
    }
}
