/* btree_versions_test.c - the tree with versions against a model of every committed state: interleaved transactions, views,
 * savepoints, aborts, spilled before-images, purges; and recovery from the log alone. One thread. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "btree/btree_test_rig.h"
#include "btree/undo.h"

enum {
    TXNS = 6,
    KEYS = 250,
    SAVEPOINTS = 3,
    RECORD_COMMIT = 200, /* u64 transaction; a stand-in for what the layer above logs */
};

static const struct bt_slice NO_KEY = {NULL, 0};

struct state { /* what a transaction did so far */
    bool wrote[KEYS], locked[KEYS];
    uint32_t version[KEYS]; /* of what it wrote; 0 = absent */
};
struct txn {
    bool open;
    unsigned time; /* commits up to here are seen */
    struct ver_view view;
    struct ver_txn *w; /* NULL: nothing written yet */
    uint64_t id, writes;
    struct state now, saved[SAVEPOINTS];
    uint64_t saved_seq[SAVEPOINTS];
    unsigned savepoints;
    struct bt_cursor *cursor;
    bool at;         /* the cursor stands ... */
    unsigned at_key; /* ... there */
};
struct moment {
    unsigned time;
    uint32_t version;
};
struct history { /* committed states of one key, oldest first */
    struct moment *m;
    unsigned n, room;
};
struct world {
    struct zt *t;
    struct rig r;
    struct keys k;
    struct history h[KEYS];
    struct txn txns[TXNS];
    unsigned now;     /* commits so far */
    uint32_t version; /* newest handed out */
};

/* ---- values: versions that divide by five are references ---- */

static unsigned
flags_of(uint32_t version)
{
    return version % 5 == 0 ? BT_REF : 0;
}

static struct bt_slice
value_of(const struct world *w, unsigned i, uint32_t version, uint8_t *buf)
{
    struct bt_slice v = key_value(&w->k, i, version, buf);

    if (flags_of(version) != 0)
        v.bytes = ch_min_u64(v.bytes, BT_REF_MAX);
    return v;
}

static uint32_t
version_of(const struct world *w, unsigned i, struct bt_slice v, unsigned flags)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    uint32_t version;

    ZT_CHECK(w->t, v.bytes >= 4);
    version = ch_get32(v.data);
    ZT_CHECK(w->t, node_compare(v, value_of(w, i, version, buf)) == 0);
    ZT_CHECK(w->t, flags == flags_of(version));
    return version;
}

/* ---- the model ---- */

static void
history_add(struct world *w, unsigned i, uint32_t version)
{
    struct history *h = &w->h[i];

    if (h->n == h->room) {
        h->room = 2 * h->room + 4;
        h->m = realloc(h->m, h->room * sizeof(*h->m));
        ZT_CHECK(w->t, h->m != NULL);
    }
    h->m[h->n++] = (struct moment){w->now, version};
}

static uint32_t
committed_at(const struct world *w, unsigned i, unsigned time)
{
    const struct history *h = &w->h[i];

    for (unsigned n = h->n; n > 0; n--)
        if (h->m[n - 1].time <= time)
            return h->m[n - 1].version;
    return 0;
}

static unsigned
last_commit(const struct world *w, unsigned i)
{
    return w->h[i].n == 0 ? 0 : w->h[i].m[w->h[i].n - 1].time;
}

/* `x` NULL: the newest committed state. */
static uint32_t
seen(const struct world *w, const struct txn *x, unsigned i)
{
    if (x == NULL)
        return committed_at(w, i, w->now);
    return x->now.wrote[i] ? x->now.version[i] : committed_at(w, i, x->time);
}

static const struct txn *
holder_of(const struct world *w, unsigned i)
{
    for (unsigned n = 0; n < TXNS; n++)
        if (w->txns[n].open && (w->txns[n].now.wrote[i] || w->txns[n].now.locked[i]))
            return &w->txns[n];
    return NULL;
}

/* What an operation has to return. */
static int
expected(const struct world *w, const struct txn *x, unsigned i, enum bt_write_kind kind)
{
    const struct txn *holder = holder_of(w, i);
    uint32_t have = seen(w, x, i);

    if (holder != NULL && holder != x)
        return COHORT_CONFLICT;
    if (x != NULL && holder == NULL && last_commit(w, i) > x->time)
        return COHORT_CONFLICT;
    if (kind == BT_INSERT && have != 0)
        return COHORT_EXISTS;
    if ((kind == BT_UPDATE || kind == BT_DEL) && have == 0)
        return COHORT_NOTFOUND;
    return x == NULL && have != 0 && flags_of(have) != 0 ? COHORT_ERETRY : 0;
}

/* ---- transactions ---- */

static void
txn_begin(struct world *w, struct txn *x)
{
    memset(x, 0, sizeof(*x));
    x->open = true;
    x->time = w->now;
    ZT_OK(w->t, ver_view_open(w->r.ver, &x->view));
    ZT_OK(w->t, bt_cursor_create(&w->r.bt, &x->cursor));
    bt_cursor_view(x->cursor, &x->view, &x->writes);
}

static void
txn_end(struct world *w, struct txn *x)
{
    bt_cursor_destroy(x->cursor);
    if (x->w != NULL)
        ver_unregister(w->r.ver, x->view.slot);
    ver_view_close(w->r.ver, &x->view);
    x->open = false;
}

static void
txn_writer(struct world *w, struct txn *x)
{
    if (x->w != NULL)
        return;
    x->id = ver_new_id(w->r.ver);
    ZT_OK(w->t, ver_txn_create(w->r.ver, x->id, x, x->view.slot, wal_end(w->r.wal), &x->w));
    x->view.self = x->w;
}

static void
txn_commit(struct world *w, struct txn *x)
{
    struct wal_ticket ticket = {0};
    uint8_t id[8];
    struct wal_part part = {id, sizeof(id)};
    lsn_t lsn;

    w->now++;
    if (x->w != NULL) {
        ch_put64(id, x->id);
        ZT_OK(w->t, wal_reserve(w->r.wal, WAL_USER, WAL_RECORD_HEADER + sizeof(id), &ticket));
        ver_commit_lock(w->r.ver);
        lsn = wal_append(w->r.wal, &ticket, RECORD_COMMIT, CH_WAL, &part, 1);
        ver_commit_end(w->r.ver, x->w, lsn, false);
        wal_release(w->r.wal, &ticket);
    }
    for (unsigned i = 0; i < w->k.n; i++)
        if (x->now.wrote[i])
            history_add(w, i, x->now.version[i]);
    txn_end(w, x);
}

struct spilled_image {
    uint8_t data[COHORT_ENTRY_MAX];
    size_t bytes;
    int rc;
};

static void
copy_image(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct spilled_image *s = arg;
    struct undo_entry e;

    (void)flags;
    s->rc = undo_decode(value, bytes, &e);
    if (s->rc == 0) {
        s->bytes = e.before.bytes;
        memcpy(s->data, e.before.data, e.before.bytes);
    }
}

static void
undo_tree_del(struct world *w, const uint8_t key[UNDO_KEY_BYTES])
{
    struct bt_op op = {.kind = BT_DEL, .key = {key, UNDO_KEY_BYTES}, .system = true};
    struct bt_done done;

    ZT_OK(w->t, bt_write(&w->r.undo, &op, &done));
}

/* Undoes the entries younger than `down_to`, at most `max`. */
static void
txn_undo(struct world *w, struct txn *x, uint64_t down_to, unsigned max)
{
    struct spilled_image image;
    struct ver_entry *e;
    struct ver_undo u;
    uint8_t key[UNDO_KEY_BYTES];
    lsn_t lsn;

    x->writes++;
    while (max-- > 0 && (e = ver_newest(x->w)) != NULL) {
        ver_entry_info(e, &u);
        if (u.seq <= down_to)
            return;
        struct bt_undo_op op = {.txn = x->id,
                                .undo_next = u.seq - 1,
                                .kind = u.kind,
                                .flags = u.flags,
                                .key = {u.key, u.key_bytes},
                                .before = {u.before, u.before_bytes},
                                .e = e};
        uint8_t copy[COHORT_KEY_MAX];
        bool spilled = u.spilled;

        memcpy(copy, u.key, u.key_bytes); /* the entry goes before the call returns */
        op.key.data = copy;
        undo_key(x->id, u.seq, key);
        if (u.before == NULL && u.before_bytes > 0) {
            ZT_CHECK(w->t, u.spilled);
            ZT_OK(w->t, bt_get(&w->r.undo, NULL, (struct bt_slice){key, sizeof(key)}, copy_image,
                               &image));
            ZT_OK(w->t, image.rc);
            op.before = (struct bt_slice){image.data, image.bytes};
        }
        ZT_OK(w->t, bt_undo(&w->r.bt, &op, &lsn));
        ZT_CHECK(w->t, (lsn == 0) == (op.kind == VER_WAS_LOCK));
        if (spilled)
            undo_tree_del(w, key);
    }
}

static void
txn_abort(struct world *w, struct txn *x)
{
    if (x->w != NULL) {
        txn_undo(w, x, 0, UINT32_MAX);
        ver_abort_end(w->r.ver, x->w);
    }
    txn_end(w, x);
}

static void
txn_savepoint(struct world *w, struct txn *x)
{
    if (x->w == NULL)
        return;
    if (x->savepoints == SAVEPOINTS || (x->savepoints > 0 && zt_below(w->t, 2) == 0)) {
        x->savepoints--;
        txn_undo(w, x, x->saved_seq[x->savepoints], UINT32_MAX);
        x->now = x->saved[x->savepoints];
        return;
    }
    x->saved[x->savepoints] = x->now;
    x->saved_seq[x->savepoints++] = ver_txn_seq(x->w);
    ver_savepoint(x->w);
}

/* Moves some of the transaction's oldest before-images to the undo tree. */
static void
txn_spill(struct world *w, struct txn *x)
{
    unsigned n = 1 + (unsigned)zt_below(w->t, 8);
    uint8_t key[UNDO_KEY_BYTES], value[BT_ENTRY_MAX];
    struct ver_entry *e;
    struct ver_undo u;
    struct bt_done done;

    while (x->w != NULL && n-- > 0 && (e = ver_oldest_unspilled(x->w)) != NULL) {
        struct bt_op op = {.kind = BT_PUT, .key = {key, sizeof(key)}, .system = true};
        struct undo_entry ue;

        ver_entry_info(e, &u);
        ue = (struct undo_entry){.kind = u.kind,
                                 .flags = u.flags,
                                 .tree = u.tree,
                                 .key = {u.key, u.key_bytes},
                                 .before = {u.before, u.before_bytes}};
        undo_key(x->id, u.seq, key);
        op.value = (struct bt_slice){value, undo_encode(&ue, value)};
        ZT_OK(w->t, bt_write(&w->r.undo, &op, &done));
        ver_entry_spilled(w->r.ver, e, zt_below(w->t, 2) == 0);
    }
}

static void
clean_undo_tree(struct world *w, uint64_t id)
{
    uint8_t from[UNDO_KEY_BYTES], at[UNDO_KEY_BYTES];
    struct bt_cursor *c;
    struct bt_slice key, value;
    unsigned flags;

    undo_key(id, 0, from);
    ZT_OK(w->t, bt_cursor_create(&w->r.undo, &c));
    while (bt_seek(c, BT_GE, (struct bt_slice){from, sizeof(from)}) == 0 &&
           bt_entry(c, &key, &value, &flags) && memcmp(key.data, from, 8) == 0) {
        memcpy(at, key.data, sizeof(at));
        undo_tree_del(w, at);
    }
    bt_cursor_destroy(c);
}

static void
settle(struct world *w)
{
    uint64_t id;

    rig_settle(&w->r);
    while (ver_take_cleanup(w->r.ver, &id))
        clean_undo_tree(w, id);
}

/* ---- operations ---- */

static void
write_one(struct world *w, struct txn *x)
{
    static const enum bt_write_kind kinds[] = {BT_PUT,    BT_PUT, BT_PUT, BT_INSERT,
                                               BT_UPDATE, BT_DEL, BT_DEL, BT_LOCK};
    unsigned i = (unsigned)zt_below(w->t, w->k.n);
    enum bt_write_kind kind = kinds[zt_below(w->t, x == NULL ? 7 : 8)];
    int want = expected(w, x, i, kind);
    const struct txn *holder = holder_of(w, i);
    uint32_t had = seen(w, x, i), version = ++w->version;
    uint8_t buf[COHORT_ENTRY_MAX], buf2[COHORT_ENTRY_MAX];
    struct bt_op op = {.kind = kind, .key = key_slice(&w->k, i)};
    struct bt_done done;

    if (kind != BT_DEL && kind != BT_LOCK) {
        op.value = value_of(w, i, version, buf);
        op.flags = flags_of(version);
    }
    if (x != NULL) {
        txn_writer(w, x);
        op.txn = x->w;
        op.view = &x->view;
    }
    ZT_STATUS(w->t, bt_write(&w->r.bt, &op, &done), want);
    if (want == COHORT_CONFLICT) {
        ZT_CHECK(w->t, done.owner.id == (holder != NULL ? holder->id : 0));
        ZT_CHECK(w->t, done.owner.tag == holder);
        return;
    }
    ZT_CHECK(w->t, done.owner.id == 0 && done.had_value == (had != 0));
    ZT_CHECK(w->t, done.had_ref == (had != 0 && flags_of(had) != 0));
    if (done.had_ref) {
        struct bt_slice old = {done.old_ref, done.old_ref_bytes};

        ZT_CHECK(w->t, node_compare(old, value_of(w, i, had, buf2)) == 0);
    }
    if (want != 0)
        return;
    ZT_CHECK(w->t, (done.lsn == 0) == (kind == BT_LOCK));
    if (x == NULL) {
        w->now++;
        history_add(w, i, kind == BT_DEL ? 0 : version);
        return;
    }
    x->writes++;
    if (kind == BT_LOCK) {
        x->now.locked[i] = true;
        return;
    }
    x->now.wrote[i] = true;
    x->now.version[i] = kind == BT_DEL ? 0 : version;
}

struct got {
    const struct world *w;
    unsigned i;
    uint32_t version;
};

static void
copy_got(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct got *g = arg;

    g->version = version_of(g->w, g->i, (struct bt_slice){value, bytes}, flags);
}

static void
check_get(struct world *w, struct txn *x, unsigned i)
{
    struct got g = {w, i, 0};
    int rc = bt_get(&w->r.bt, x != NULL ? &x->view : NULL, key_slice(&w->k, i), copy_got, &g);

    ZT_CHECK(w->t, rc == 0 || rc == COHORT_NOTFOUND);
    ZT_CHECK(w->t, g.version == seen(w, x, i));
}

/* The cursor is at the key that the model says; -1: at none. */
static void
check_at(struct world *w, struct txn *x, struct bt_cursor *c, int rc, int want)
{
    struct bt_slice key, value;
    unsigned flags;

    ZT_STATUS(w->t, rc, want < 0 ? COHORT_NOTFOUND : 0);
    ZT_CHECK(w->t, bt_entry(c, &key, &value, &flags) == (want >= 0));
    if (want < 0)
        return;
    ZT_CHECK(w->t, node_compare(key, key_slice(&w->k, (unsigned)want)) == 0);
    ZT_CHECK(w->t, version_of(w, (unsigned)want, value, flags) == seen(w, x, (unsigned)want));
}

static int
neighbour(const struct world *w, const struct txn *x, int i, int step)
{
    while (i >= 0 && i < (int)w->k.n && seen(w, x, (unsigned)i) == 0)
        i += step;
    return i >= 0 && i < (int)w->k.n ? i : -1;
}

static void
check_scan(struct world *w, struct txn *x)
{
    struct bt_cursor *c;
    int at, rc;

    ZT_OK(w->t, bt_cursor_create(&w->r.bt, &c));
    bt_cursor_view(c, x != NULL ? &x->view : NULL, NULL);
    rc = bt_seek(c, BT_FIRST, NO_KEY);
    for (at = neighbour(w, x, 0, 1); at >= 0; at = neighbour(w, x, at + 1, 1)) {
        check_at(w, x, c, rc, at);
        rc = bt_next(c);
    }
    check_at(w, x, c, rc, -1);
    rc = bt_seek(c, BT_LAST, NO_KEY);
    for (at = neighbour(w, x, (int)w->k.n - 1, -1); at >= 0; at = neighbour(w, x, at - 1, -1)) {
        check_at(w, x, c, rc, at);
        rc = bt_prev(c);
    }
    check_at(w, x, c, rc, -1);
    bt_cursor_destroy(c);
}

/* A step of the transaction's own cursor, which lives through its writes and everybody's. */
static void
move_cursor(struct world *w, struct txn *x)
{
    unsigned i = (unsigned)zt_below(w->t, w->k.n);
    int want = -1, rc = 0;

    switch (zt_below(w->t, 8)) {
    case 0:
        want = neighbour(w, x, (int)i, 1);
        rc = bt_seek(x->cursor, BT_GE, key_slice(&w->k, i));
        break;
    case 1:
        want = neighbour(w, x, (int)i, -1);
        rc = bt_seek(x->cursor, BT_LE, key_slice(&w->k, i));
        break;
    case 2:
    case 3:
    case 4:
        if (x->at)
            want = neighbour(w, x, (int)x->at_key - 1, -1);
        rc = bt_prev(x->cursor);
        break;
    default:
        if (x->at)
            want = neighbour(w, x, (int)x->at_key + 1, 1);
        rc = bt_next(x->cursor);
        break;
    }
    check_at(w, x, x->cursor, rc, want);
    x->at = want >= 0;
    x->at_key = want >= 0 ? (unsigned)want : 0;
}

static void
step(struct world *w, bool trims)
{
    struct txn *x = &w->txns[zt_below(w->t, TXNS)];
    unsigned dice = (unsigned)zt_below(w->t, 100);

    if (!x->open) {
        txn_begin(w, x);
        return;
    }
    if (dice < 40)
        write_one(w, zt_below(w->t, 4) == 0 ? NULL : x);
    else if (dice < 60)
        move_cursor(w, x);
    else if (dice < 70)
        check_get(w, zt_below(w->t, 4) == 0 ? NULL : x, (unsigned)zt_below(w->t, w->k.n));
    else if (dice < 75)
        txn_savepoint(w, x);
    else if (dice < 79)
        txn_spill(w, x);
    else if (dice < 82)
        txn_commit(w, x);
    else if (dice < 85)
        txn_abort(w, x);
    else if (dice < 87)
        check_scan(w, zt_below(w->t, 4) == 0 ? NULL : x);
    else if (dice < 89)
        bt_purge(&w->r.bt, key_slice(&w->k, (unsigned)zt_below(w->t, w->k.n)));
    else if (dice < 91)
        settle(w);
    else if (dice < 92 && trims)
        rig_trim(&w->r);
}

static void
world_open(struct world *w, struct zt *t, const struct rig_options *o)
{
    memset(w, 0, sizeof(*w));
    w->t = t;
    rig_open(&w->r, t, o);
    keys_create(&w->k, t, (enum key_shape)(t->seed % KEY_SHAPES), KEYS,
                zt_below(t, 2) == 0 ? 40 : 700);
}

static void
world_close(struct world *w)
{
    for (unsigned i = 0; i < KEYS; i++)
        free(w->h[i].m);
    keys_destroy(&w->k);
    rig_close(&w->r);
}

/* Goal: each transaction sees its snapshot and its own writes and nothing else, through gets, scans and cursors that outlive
 * writes; conflicts are found exactly; aborts and savepoints restore everything; nothing is left behind in the end. */
static void
test_transactions(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 64 : 2048, .versions = true};
    struct world *w = calloc(1, sizeof(*w));
    struct bt_check_result c;
    struct ver_counts counts;

    ZT_CHECK(t, w != NULL);
    world_open(w, t, &o);
    for (unsigned n = 0; n < 6000; n++)
        step(w, true);
    for (unsigned n = 0; n < TXNS; n++) {
        if (w->txns[n].open && n % 2 == 0)
            txn_commit(w, &w->txns[n]);
        else if (w->txns[n].open)
            txn_abort(w, &w->txns[n]);
    }
    check_scan(w, NULL);
    settle(w);
    settle(w); /* purging may let more be trimmed */
    check_scan(w, NULL);
    ver_counts(w->r.ver, &counts);
    ZT_CHECK(t, counts.entries == 0);
    /* The list of ghosts to purge is bounded and forgets some; but every ghost is garbage now. */
    ZT_CHECK(t, t->seed % KEY_SHAPES != KEYS_DECIMAL || rig_check(&w->r).ghosts < 5);
    for (unsigned i = 0; i < w->k.n; i++)
        bt_purge(&w->r.bt, key_slice(&w->k, i));
    c = rig_check(&w->r);
    ZT_CHECK(t, c.ghosts == 0);
    ZT_OK(t, bt_check(&w->r.undo, NULL, NULL, NULL, &c));
    ZT_CHECK(t, c.entries == 0 && c.errors == 0);
    rig_check_reachable(&w->r);
    world_close(w);
    free(w);
}

/* ---- recovery ---- */

enum {
    LOGGED_MAX = 40000
};
struct logged { /* one WRITE with an undo entry */
    uint64_t txn, seq;
    unsigned kind, flags;
    uint8_t data[COHORT_ENTRY_MAX];
    size_t key_bytes, before_bytes;
};
struct recovery {
    struct world *w;
    struct rig *into;
    struct logged *log;
    unsigned n;
    bool *committed; /* by id */
    unsigned ids;
};

/* What is younger than undo-next needs no undo any more. */
static void
drop_undone(struct recovery *rec, uint64_t txn, uint64_t undo_next)
{
    for (unsigned i = 0; i < rec->n; i++)
        if (rec->log[i].txn == txn && rec->log[i].seq > undo_next)
            rec->log[i].txn = 0;
}

static void
note_record(struct recovery *rec, const struct wal_record *r)
{
    struct zt *t = rec->w->t;
    struct bt_logged l;
    struct logged *out = &rec->log[rec->n];

    if (r->type == RECORD_COMMIT) {
        rec->committed[ch_get64(r->data)] = true;
        return;
    }
    if (r->type != BT_RECORD_WRITE && r->type != BT_RECORD_UNDO)
        return;
    ZT_OK(t, bt_record_read(r->type, r->data, r->bytes, &l));
    ZT_CHECK(t, l.txn < rec->ids && rec->n < LOGGED_MAX);
    if (r->type == BT_RECORD_UNDO) {
        drop_undone(rec, l.txn, l.seq);
        return;
    }
    if (l.seq == 0)
        return;
    ZT_CHECK(t, l.tree == RIG_TREE);
    out->txn = l.txn;
    out->seq = l.seq;
    out->kind = l.kind;
    out->flags = l.flags;
    out->key_bytes = l.key.bytes;
    out->before_bytes = l.before.bytes;
    memcpy(out->data, l.key.data, l.key.bytes);
    if (l.before.bytes > 0)
        memcpy(out->data + l.key.bytes, l.before.data, l.before.bytes);
    rec->n++;
}

/* Replays the log of `from` and notes what transactions did. */
static void
replay(struct recovery *rec, struct rig *from, lsn_t start)
{
    struct zt *t = rec->w->t;
    struct wal_scan_config cfg = {.dev = from->dev,
                                  .base = RIG_LOG_BASE,
                                  .bytes = (uint64_t)from->o.log_megabytes << 20,
                                  .db_id = 1,
                                  .from = start,
                                  .epoch_min = 1,
                                  .epoch_start = start,
                                  .epoch = 1};
    struct wal_scan *s;
    struct wal_record r;
    int rc;

    ZT_OK(t, wal_flush(from->wal, wal_end(from->wal)));
    ZT_OK(t, wal_scan_open(&cfg, &s));
    while ((rc = wal_scan_next(s, &r)) == 0) {
        if (r.type >= BT_RECORD_PAGES && r.type <= BT_RECORD_UNDO)
            ZT_OK(t, bt_redo(rec->into->buf, r.type, r.end, r.data, r.bytes));
        note_record(rec, &r);
    }
    ZT_STATUS(t, rc, COHORT_NOTFOUND);
    wal_scan_close(s);
}

/* Undoes losers, all mixed, each from its newest entry on; stops after `max` steps. */
static void
undo_losers(struct recovery *rec, unsigned max)
{
    struct zt *t = rec->w->t;
    lsn_t lsn;

    for (unsigned i = rec->n; i > 0 && max > 0; i--) {
        struct logged *l = &rec->log[i - 1];
        struct bt_undo_op op = {.txn = l->txn,
                                .undo_next = l->seq - 1,
                                .kind = l->kind,
                                .flags = l->flags,
                                .key = {l->data, l->key_bytes},
                                .before = {l->data + l->key_bytes, l->before_bytes}};

        if (l->txn == 0 || rec->committed[l->txn])
            continue;
        ZT_OK(t, bt_undo(&rec->into->bt, &op, &lsn));
        l->txn = 0;
        max--;
    }
}

static bool
fix_for_compare(struct rig *r, page_id pid, uint8_t *out)
{
    struct buf_ref ref;

    if (buf_fix(r->buf, pid, BUF_SHARED, &ref) != 0)
        return false;
    memcpy(out, ref.page, CH_PAGE_BYTES);
    buf_unfix(r->buf, &ref);
    memset(out, 0, 4);
    memset(out + 36, 0, 16); /* the cleaner notes its writes there */
    return true;
}

static void
same_page(void *arg, page_id pid)
{
    _Alignas(8) uint8_t a[CH_PAGE_BYTES], b[CH_PAGE_BYTES];
    struct recovery *rec = arg;

    ZT_CHECK(rec->w->t, fix_for_compare(&rec->w->r, pid, a) && fix_for_compare(rec->into, pid, b));
    ZT_CHECK(rec->w->t, memcmp(a, b, sizeof(a)) == 0);
}

static void
recovery_open(struct recovery *rec, struct world *w, struct rig *into, lsn_t log_start)
{
    struct rig_options o = {.no_tree = true, .frames = 4096, .versions = true};

    memset(rec, 0, sizeof(*rec));
    o.log_start = ch_round_up(log_start, WAL_BLOCK);
    rig_open(into, w->t, &o);
    bt_init(&into->bt, into->buf, into->wal, RIG_TREE, w->r.bt.root);
    bt_init(&into->undo, into->buf, into->wal, RIG_UNDO_TREE, w->r.undo.root);
    into->bt.ver = into->ver;
    into->bt.undo = &into->undo;
    rec->w = w;
    rec->into = into;
    rec->ids = (unsigned)ver_next_id(w->r.ver) + 1;
    rec->log = calloc(LOGGED_MAX, sizeof(*rec->log));
    rec->committed = calloc(rec->ids, sizeof(*rec->committed));
    ZT_CHECK(w->t, rec->log != NULL && rec->committed != NULL);
}

static void
recovery_close(struct recovery *rec)
{
    free(rec->log);
    free(rec->committed);
    rig_close(rec->into);
}

/* After recovery the tree holds what was committed. */
static void
check_recovered(struct recovery *rec)
{
    struct world *w = rec->w;
    struct bt_cursor *c;
    int at, rc;

    ZT_OK(w->t, bt_cursor_create(&rec->into->bt, &c));
    rc = bt_seek(c, BT_FIRST, NO_KEY);
    for (at = neighbour(w, NULL, 0, 1); at >= 0; at = neighbour(w, NULL, at + 1, 1)) {
        check_at(w, NULL, c, rc, at);
        rc = bt_next(c);
    }
    check_at(w, NULL, c, rc, -1);
    bt_cursor_destroy(c);
    (void)rig_check(rec->into);
}

/* Goal: the log alone rebuilds the same bytes, and undoing what the records say about losers leaves what was committed;
 * also when that is interrupted, anywhere, and done again (R4). */
static void
test_recovery(struct zt *t)
{
    struct rig_options o = {.frames = 200000, .log_megabytes = 64, .versions = true};
    struct world *w = calloc(1, sizeof(*w));
    struct recovery first, second;
    struct rig into, again;
    struct bt_check_result c;
    lsn_t log_start;

    ZT_CHECK(t, w != NULL);
    world_open(w, t, &o);
    for (unsigned n = 0; n < 4000; n++)
        step(w, false);
    for (unsigned n = 0; n < TXNS; n += 2)
        if (w->txns[n].open && w->txns[n].w != NULL)
            txn_undo(w, &w->txns[n], 0, (unsigned)zt_below(t, 5)); /* the crash comes in between */

    recovery_open(&first, w, &into, wal_end(w->r.wal) + WAL_BLOCK);
    log_start = wal_end(into.wal);
    replay(&first, &w->r, WAL_BLOCK);
    ZT_OK(t, bt_check(&w->r.bt, same_page, NULL, &first, &c));
    ZT_OK(t, bt_check(&w->r.undo, same_page, NULL, &first, &c));
    undo_losers(&first, (unsigned)zt_below(t, 30));

    recovery_open(&second, w, &again, wal_end(into.wal) + WAL_BLOCK);
    replay(&second, &w->r, WAL_BLOCK);
    replay(&second, &into, log_start);
    undo_losers(&second, UINT32_MAX);
    check_recovered(&second);
    recovery_close(&second);
    recovery_close(&first);
    for (unsigned n = 0; n < TXNS; n++) {
        struct txn *x = &w->txns[n];

        if (x->open) { /* what was undone by hand is undone in the model, too */
            x->now = (struct state){0};
            txn_abort(w, x);
        }
    }
    check_scan(w, NULL);
    world_close(w);
    free(w);
}

/* ---- ghosts ---- */

/* Goal: each ghost is handed out for purging in the end: of records that came and went in one transaction, of deletes, of
 * aborted inserts. */
static void
test_ghosts(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct world *w = calloc(1, sizeof(*w));
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_done done;
    struct txn *x;

    ZT_CHECK(t, w != NULL);
    x = &w->txns[0];
    world_open(w, t, &o);
    for (unsigned round = 0; round < 3; round++) {
        txn_begin(w, x);
        txn_writer(w, x);
        for (unsigned i = 0; i < 50; i++) {
            struct bt_op op = {.kind = BT_INSERT,
                               .key = key_slice(&w->k, i),
                               .value = value_of(w, i, 1, buf),
                               .txn = x->w,
                               .view = &x->view};

            ZT_OK(t, bt_write(&w->r.bt, &op, &done));
            op.kind = BT_DEL;
            if (round != 1)
                ZT_OK(t, bt_write(&w->r.bt, &op, &done));
        }
        ZT_CHECK(t, rig_check(&w->r).ghosts == (round == 1 ? 0 : 50));
        if (round == 0)
            txn_commit(w, x);
        else
            txn_abort(w, x);
        settle(w);
        ZT_CHECK(t, rig_check(&w->r).ghosts == 0 && rig_check(&w->r).entries == 0);
    }
    world_close(w);
    free(w);
}

/* Goal: a cursor whose key was undone and purged under it goes to the neighbours of where that was. */
static void
test_key_gone(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct world *w = calloc(1, sizeof(*w));
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_done done;
    struct txn *x;

    ZT_CHECK(t, w != NULL);
    x = &w->txns[0];
    world_open(w, t, &o);
    for (unsigned i = 0; i < 9; i += 2) {
        struct bt_op op = {.kind = BT_PUT, .key = key_slice(&w->k, i)};

        op.value = value_of(w, i, 1, buf);
        ZT_OK(t, bt_write(&w->r.bt, &op, &done));
        w->now++;
        history_add(w, i, 1);
    }
    for (unsigned round = 0; round < 4; round++) {
        unsigned i = 1 + 2 * (unsigned)zt_below(t, 4);

        txn_begin(w, x);
        txn_writer(w, x);
        struct bt_op op = {.kind = BT_PUT,
                           .key = key_slice(&w->k, i),
                           .value = value_of(w, i, 2, buf),
                           .txn = x->w,
                           .view = &x->view};
        ZT_OK(t, bt_write(&w->r.bt, &op, &done));
        ZT_OK(t, bt_seek(x->cursor, BT_GE, key_slice(&w->k, i)));
        txn_undo(w, x, 0, UINT32_MAX);
        bt_purge(&w->r.bt, key_slice(&w->k, i));
        ZT_CHECK(t, rig_check(&w->r).ghosts == 0);
        if (round % 2 == 0)
            check_at(w, x, x->cursor, bt_next(x->cursor), (int)i + 1);
        else
            check_at(w, x, x->cursor, bt_prev(x->cursor), (int)i - 1);
        txn_abort(w, x);
    }
    world_close(w);
    free(w);
}

/* ---- views that see nothing ---- */

static int
put_own(struct world *w, unsigned i, uint32_t version, const struct ver_view *view,
        struct ver_txn *txn)
{
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_op op = {.kind = BT_PUT,
                       .key = key_slice(&w->k, i),
                       .value = value_of(w, i, version, buf),
                       .view = view,
                       .txn = txn};
    struct bt_done done;

    return bt_write(&w->r.bt, &op, &done);
}

/* Gets and scans through the view end with `get` and `scan`. */
static void
check_refused(struct world *w, const struct ver_view *view, int get, int scan)
{
    struct bt_cursor *c;
    struct got g = {w, 1, 0};
    int rc;

    ZT_STATUS(w->t, bt_get(&w->r.bt, view, key_slice(&w->k, 1), copy_got, &g), get);
    ZT_OK(w->t, bt_cursor_create(&w->r.bt, &c));
    bt_cursor_view(c, view, NULL);
    rc = bt_seek(c, BT_FIRST, NO_KEY);
    while (rc == 0)
        rc = bt_next(c);
    ZT_STATUS(w->t, rc, scan);
    ZT_STATUS(w->t, bt_next(c), COHORT_NOTFOUND);
    bt_cursor_destroy(c);
}

/* Goal: a view that was ended to bound memory is told so wherever a leaf changed since, by reads and by writes; memory is
 * bounded; others go on. */
static void
test_too_old(struct zt *t)
{
    struct rig_options o = {.versions = true, .version_bytes = 8 << 10};
    struct world *w = calloc(1, sizeof(*w));
    struct ver_view old, fresh;
    struct ver_txn *txn = NULL;
    struct ver_counts counts;

    ZT_CHECK(t, w != NULL);
    world_open(w, t, &o);
    for (unsigned i = 0; i < w->k.n; i++)
        ZT_OK(t, put_own(w, i, 1, NULL, NULL));
    ZT_OK(t, ver_view_open(w->r.ver, &old));
    for (unsigned n = 0; n < 60000 && !ver_view_dead(w->r.ver, &old); n++) {
        (void)ver_relieve(w->r.ver);
        ZT_OK(t, put_own(w, 1 + n % (w->k.n - 1), 6 + n % 4, NULL, NULL));
        if (n % 3000 == 0)
            rig_trim(&w->r);
    }
    ver_counts(w->r.ver, &counts);
    ZT_CHECK(t, ver_view_dead(w->r.ver, &old) && counts.bytes <= 16 << 10);
    check_refused(w, &old, COHORT_SNAPSHOT_TOO_OLD, COHORT_SNAPSHOT_TOO_OLD);
    ZT_OK(t,
          ver_txn_create(w->r.ver, ver_new_id(w->r.ver), NULL, old.slot, wal_end(w->r.wal), &txn));
    old.self = txn;
    ZT_STATUS(t, put_own(w, 1, 2, &old, txn), COHORT_SNAPSHOT_TOO_OLD);
    ver_txn_discard(w->r.ver, txn);
    ver_unregister(w->r.ver, old.slot);
    ver_view_close(w->r.ver, &old);
    ZT_OK(t, ver_view_open(w->r.ver, &fresh));
    check_refused(w, &fresh, 0, COHORT_NOTFOUND);
    ver_view_close(w->r.ver, &fresh);
    world_close(w);
    free(w);
}

/* Goal: a tree that was bulk loaded after the view was opened is empty to it, and not to be written by it. */
static void
test_unborn(struct zt *t)
{
    struct rig_options o = {.versions = true};
    struct world *w = calloc(1, sizeof(*w));
    struct ver_view old, fresh;
    struct ver_txn *txn = NULL;

    ZT_CHECK(t, w != NULL);
    world_open(w, t, &o);
    for (unsigned i = 0; i + 1 < w->k.n; i++)
        ZT_OK(t, put_own(w, i, 1, NULL, NULL));
    ZT_OK(t, ver_view_open(w->r.ver, &old));
    atomic_store_explicit(&w->r.bt.born, ver_horizon(w->r.ver) + 1, memory_order_release);
    check_refused(w, &old, COHORT_NOTFOUND, COHORT_NOTFOUND);
    check_refused(w, NULL, COHORT_NOTFOUND, COHORT_NOTFOUND);
    ZT_OK(t,
          ver_txn_create(w->r.ver, ver_new_id(w->r.ver), NULL, old.slot, wal_end(w->r.wal), &txn));
    old.self = txn;
    ZT_STATUS(t, put_own(w, 0, 2, &old, txn), COHORT_CONFLICT);
    ver_txn_discard(w->r.ver, txn);
    ver_unregister(w->r.ver, old.slot);
    ver_view_close(w->r.ver, &old);
    ZT_OK(t, put_own(w, w->k.n - 1, 1, NULL, NULL)); /* the horizon moves over the load */
    ZT_OK(t, ver_view_open(w->r.ver, &fresh));
    check_refused(w, &fresh, 0, COHORT_NOTFOUND);
    check_refused(w, NULL, 0, COHORT_NOTFOUND);
    ver_view_close(w->r.ver, &fresh);
    world_close(w);
    free(w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"transactions", test_transactions, 24},
        {"recovery", test_recovery, 8},
        {"ghosts", test_ghosts, 1},
        {"key_gone", test_key_gone, 4},
        {"too_old", test_too_old, 3},
        {"unborn", test_unborn, 2},
    };

    return zt_main(argc, argv, "btree_versions", cases, CH_ARRAY_LEN(cases));
}
