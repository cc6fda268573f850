/* reg.c - see reg.h.
 *
 * Invariants:
 *   G1  a tree is in the hash from its first reg_get() on while it has references, a drop of it is open, it is dropped and
 *       not yet forgotten, or it was bulk loaded; so `writers`, `dropping`, `dropped` and `born` are the same for everybody who
 *       finds it, old snapshots included.
 *   G2  an id is given out only after key 0 of `ids` says, in log order, that it may have been (R13).
 *   G3  a record of `ids` is written only when its root page is formatted, in log order; it is removed when the pages are
 *       freed. What has a record has a root.
 *   G4  nobody waits for log room under `lock`: it is wanted by whoever ends a transaction. It is held while a record is
 *       read, so that a tree is opened once.
 *   G5  internal trees are there from reg_format() or reg_load() to reg_destroy().
 *
 * Locks: both of rank REG, `lock` (order 0) for hash and counters, `ids_lock` (order 1) for writes of records and the next
 * id; never both.
 *
 * Crash: a root page may be formatted without a record; its owner's pending record says so. Ids that were set aside and not
 * given out are skipped.
 */
#include "reg/reg.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "buf/buf.h"
#include "page/page.h"
#include "store/store.h"

enum {
    BUCKETS_MIN = 64,
    ID_KEY_BYTES = 4,
    ID_RECORD_BYTES = 9,
    ID_LARGE = 1,  /* flag */
    IDS_ASIDE = 32 /* ids for one write of key 0 */
};

struct reg {
    struct reg_config cfg;
    struct reg_tree internal[REG_UNDO + 1]; /* by id */
    struct rt_mutex lock, ids_lock;
    struct reg_tree **buckets;
    size_t bucket_count, count;
    uint32_t next, limit; /* ids from next to limit - 1 are set aside; ids_lock */
};

struct id_record { /* of `ids`, unpacked */
    page_id root;
    int codec, codec_level;
    unsigned flags;
};

/* ---- records ---- */

static struct bt_slice
id_key(uint32_t id, uint8_t out[ID_KEY_BYTES])
{
    for (unsigned i = 0; i < ID_KEY_BYTES; i++)
        out[i] = (uint8_t)(id >> (24 - 8 * i));
    return (struct bt_slice){out, ID_KEY_BYTES};
}

static uint32_t
id_of_key(const uint8_t *key)
{
    return (uint32_t)key[0] << 24 | (uint32_t)key[1] << 16 | (uint32_t)key[2] << 8 | key[3];
}

static int
ids_write(struct reg *r, enum bt_write_kind kind, uint32_t id, const void *value, size_t bytes)
{
    uint8_t key[ID_KEY_BYTES];
    struct bt_done done;
    struct bt_op op = {.kind = kind, .key = id_key(id, key), .value = {value, bytes}};

    return bt_write(&r->internal[REG_IDS].bt, &op, &done);
}

static int
record_write(struct reg *r, enum bt_write_kind kind, uint32_t id, const struct id_record *rec)
{
    uint8_t v[ID_RECORD_BYTES];

    ch_put48(v, rec->root);
    v[6] = (uint8_t)rec->codec;
    v[7] = (uint8_t)rec->codec_level;
    v[8] = (uint8_t)rec->flags;
    return ids_write(r, kind, id, v, sizeof(v));
}

static int
record_unpack(uint32_t id, const uint8_t *v, size_t bytes, struct id_record *out)
{
    if (bytes < ID_RECORD_BYTES)
        return CH_FAIL(COHORT_ECORRUPT, "record of tree %" PRIu32 ": %zu bytes", id, bytes);
    *out =
        (struct id_record){.root = ch_get48(v), .codec = v[6], .codec_level = v[7], .flags = v[8]};
    if (out->root == 0 || out->codec > COHORT_CODEC_ZSTD)
        return CH_FAIL(COHORT_ECORRUPT, "record of tree %" PRIu32 ": root %" PRIu64 ", codec %d",
                       id, out->root, out->codec);
    return 0;
}

struct copied {
    uint8_t data[ID_RECORD_BYTES];
    size_t bytes;
};

static void
copy_record(void *arg, const void *value, size_t bytes, unsigned flags)
{
    struct copied *c = arg;

    (void)flags;
    c->bytes = bytes < sizeof(c->data) ? bytes : sizeof(c->data);
    if (c->bytes > 0)
        memcpy(c->data, value, c->bytes);
}

static int
record_read(struct reg *r, uint32_t id, struct id_record *out)
{
    uint8_t key[ID_KEY_BYTES];
    struct copied c = {.bytes = 0};
    int rc = bt_get(&r->internal[REG_IDS].bt, NULL, id_key(id, key), copy_record, &c);

    return rc != 0 ? rc : record_unpack(id, c.data, c.bytes, out);
}

/* ---- create and destroy ---- */

int
reg_create(const struct reg_config *cfg, struct reg **out)
{
    struct reg *r = calloc(1, sizeof(*r));

    if (r != NULL)
        r->buckets = calloc(BUCKETS_MIN, sizeof(struct reg_tree *));
    if (r == NULL || r->buckets == NULL) {
        free(r);
        return CH_FAIL(COHORT_ENOMEM, "registry of trees");
    }
    r->cfg = *cfg;
    r->bucket_count = BUCKETS_MIN;
    r->next = r->limit = REG_USER;
    rt_mutex_init(&r->lock, RT_RANK_REG, 0);
    rt_mutex_init(&r->ids_lock, RT_RANK_REG, 1);
    *out = r;
    return 0;
}

static void
tree_free(struct reg_tree *t)
{
    bt_fini(&t->bt);
    free(t);
}

void
reg_destroy(struct reg *r)
{
    struct reg_tree *t;

    if (r == NULL)
        return;
    for (size_t i = 0; i < r->bucket_count; i++) {
        while ((t = r->buckets[i]) != NULL) {
            r->buckets[i] = t->next;
            tree_free(t);
        }
    }
    for (uint32_t id = REG_MAIN; id <= REG_UNDO; id++)
        if (r->internal[id].id != 0)
            bt_fini(&r->internal[id].bt);
    rt_mutex_fini(&r->ids_lock);
    rt_mutex_fini(&r->lock);
    free(r->buckets);
    free(r);
}

size_t
reg_memory(struct reg *r)
{
    size_t bytes;

    rt_lock(&r->lock);
    bytes = sizeof(*r) + r->bucket_count * sizeof(struct reg_tree *) +
            r->count * sizeof(struct reg_tree);
    rt_unlock(&r->lock);
    return bytes;
}

/* ---- internal trees ---- */

static bool
has_versions(uint32_t id)
{
    return id != REG_IDS && id != REG_BLOBS && id != REG_UNDO;
}

static void
tree_init(struct reg *r, struct reg_tree *t, uint32_t id, const struct id_record *rec)
{
    bt_init(&t->bt, r->cfg.buf, r->cfg.wal, id, rec->root);
    if (has_versions(id)) {
        t->bt.ver = r->cfg.ver;
        t->bt.undo = &r->internal[REG_UNDO].bt;
    }
    t->id = id;
    t->codec = rec->codec;
    t->codec_level = rec->codec_level;
    atomic_init(&t->dropped, false);
    atomic_init(&t->large, (rec->flags & ID_LARGE) != 0);
}

/* A new internal tree. Its record is not written yet. */
static int
internal_format(struct reg *r, uint32_t id)
{
    struct id_record rec = {.codec = COHORT_CODEC_DEFAULT};
    struct buf_ref root;
    int rc = buf_admit(r->cfg.buf, true);

    if (rc == 0)
        rc = buf_new(r->cfg.buf, &root);
    if (rc != 0)
        return rc;
    rec.root = root.pid;
    tree_init(r, &r->internal[id], id, &rec);
    return bt_format(&r->internal[id].bt, &root);
}

/* All but the main tree, and the records of all. */
static int
format_others(struct reg *r, page_id *ids_root)
{
    struct id_record rec = {.codec = COHORT_CODEC_DEFAULT};
    uint8_t next[4];
    int rc = 0;

    for (uint32_t id = REG_IDS; rc == 0 && id <= REG_UNDO; id++)
        rc = internal_format(r, id);
    for (uint32_t id = REG_MAIN; rc == 0 && id <= REG_UNDO; id++) {
        rec.root = r->internal[id].bt.root;
        rec.flags = id == REG_MAIN ? ID_LARGE : 0;
        rc = record_write(r, BT_INSERT, id, &rec);
    }
    ch_put32(next, REG_USER);
    if (rc == 0)
        rc = ids_write(r, BT_INSERT, 0, next, sizeof(next));
    if (rc != 0)
        return rc;
    atomic_store_explicit(&r->internal[REG_MAIN].large, true, memory_order_relaxed);
    *ids_root = r->internal[REG_IDS].bt.root;
    return 0;
}

int
reg_format(struct reg *r, page_id *ids_root)
{
    int rc = internal_format(r, REG_MAIN);

    if (rc != 0)
        return rc;
    CH_ASSERT(r->internal[REG_MAIN].bt.root == REG_MAIN_ROOT);
    return format_others(r, ids_root);
}

static int
internal_load(struct reg *r, uint32_t id)
{
    struct id_record rec;
    int rc = record_read(r, id, &rec);

    if (rc == COHORT_NOTFOUND)
        return CH_FAIL(COHORT_ECORRUPT, "tree %" PRIu32 " is not in the list of trees", id);
    if (rc == 0 && id == REG_IDS && rec.root != r->internal[id].bt.root)
        return CH_FAIL(COHORT_ECORRUPT, "the list of trees has root %" PRIu64 ", and says %" PRIu64,
                       r->internal[id].bt.root, rec.root);
    if (rc == 0 && id != REG_IDS)
        tree_init(r, &r->internal[id], id, &rec);
    return rc;
}

/* Tells the store how pages of the tree are compressed. No lock held. ENOMEM. */
static int
tell_codec(struct reg *r, uint32_t id, int codec, int level)
{
    int pack = -1; /* as all others */

    if (codec == COHORT_CODEC_NONE)
        pack = PACK_NONE;
    else if (codec == COHORT_CODEC_LZ4)
        pack = PACK_LZ4;
    else if (codec == COHORT_CODEC_ZSTD)
        pack = PACK_ZSTD;
    return store_set_tree_codec(r->cfg.store, id, pack, level);
}

struct each {
    struct reg *r;
    int (*visit)(struct each *e, uint32_t id, const struct id_record *rec);
    int (*user)(void *arg, uint32_t id, page_id root);
    void *arg;
};

static int
each_record(struct each *e)
{
    struct bt_cursor *c = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct id_record rec;
    unsigned flags;
    int rc = bt_cursor_create(&e->r->internal[REG_IDS].bt, &c);

    if (rc == 0)
        rc = bt_seek(c, BT_FIRST, key);
    while (rc == 0) {
        if (!bt_entry(c, &key, &value, &flags) || key.bytes != ID_KEY_BYTES) {
            rc = CH_FAIL(COHORT_ECORRUPT, "list of trees: key of %zu bytes", key.bytes);
            break;
        }
        if (id_of_key(key.data) != 0) {
            rc = record_unpack(id_of_key(key.data), value.data, value.bytes, &rec);
            if (rc == 0)
                rc = e->visit(e, id_of_key(key.data), &rec);
        }
        if (rc == 0)
            rc = bt_next(c);
    }
    bt_cursor_destroy(c);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
visit_codec(struct each *e, uint32_t id, const struct id_record *rec)
{
    if (rec->codec == COHORT_CODEC_DEFAULT)
        return 0;
    return tell_codec(e->r, id, rec->codec, rec->codec_level);
}

static int
visit_user(struct each *e, uint32_t id, const struct id_record *rec)
{
    return e->user(e->arg, id, rec->root);
}

int
reg_each(struct reg *r, int (*visit)(void *arg, uint32_t id, page_id root), void *arg)
{
    struct each e = {.r = r, .visit = visit_user, .user = visit, .arg = arg};

    return each_record(&e);
}

static int
load_next(struct reg *r)
{
    uint8_t key[ID_KEY_BYTES];
    struct copied c = {.bytes = 0};
    int rc = bt_get(&r->internal[REG_IDS].bt, NULL, id_key(0, key), copy_record, &c);

    if (rc == COHORT_NOTFOUND || (rc == 0 && (c.bytes != 4 || ch_get32(c.data) < REG_USER)))
        return CH_FAIL(COHORT_ECORRUPT, "list of trees: the next id is missing");
    if (rc == 0)
        r->next = r->limit = ch_get32(c.data);
    return rc;
}

int
reg_load(struct reg *r, page_id *ids_root)
{
    struct id_record rec = {.root = *ids_root};
    struct each e = {.r = r, .visit = visit_codec};
    int rc = 0;

    if (*ids_root == 0) {
        rec.root = REG_MAIN_ROOT;
        tree_init(r, &r->internal[REG_MAIN], REG_MAIN, &rec);
        return format_others(r, ids_root);
    }
    tree_init(r, &r->internal[REG_IDS], REG_IDS, &rec);
    for (uint32_t id = REG_MAIN; rc == 0 && id <= REG_UNDO; id++)
        rc = internal_load(r, id);
    if (rc == 0)
        rc = load_next(r);
    return rc != 0 ? rc : each_record(&e);
}

struct bt *
reg_internal(struct reg *r, uint32_t id)
{
    CH_ASSERT(id >= REG_MAIN && id <= REG_UNDO && r->internal[id].id == id);
    return &r->internal[id].bt;
}

struct reg_tree *
reg_main(struct reg *r)
{
    return &r->internal[REG_MAIN];
}

struct reg_tree *
reg_internal_tree(struct reg *r, uint32_t id)
{
    CH_ASSERT(id >= REG_MAIN && id <= REG_UNDO && r->internal[id].id == id);
    return &r->internal[id];
}

/* ---- the hash; lock held ---- */

static struct reg_tree **
bucket_of(const struct reg *r, uint32_t id)
{
    uint64_t h = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);

    return &r->buckets[(h >> 32) & (r->bucket_count - 1)];
}

static struct reg_tree *
find(const struct reg *r, uint32_t id)
{
    struct reg_tree *t = *bucket_of(r, id);

    while (t != NULL && t->id != id)
        t = t->next;
    return t;
}

static void
link_tree(struct reg *r, struct reg_tree *t)
{
    struct reg_tree **b = bucket_of(r, t->id);

    t->next = *b;
    *b = t;
    t->linked = true;
}

static void
unlink_tree(struct reg *r, struct reg_tree *t)
{
    struct reg_tree **b = bucket_of(r, t->id);

    while (*b != t)
        b = &(*b)->next;
    *b = t->next;
    t->linked = false;
    r->count--;
}

/* Twice as many buckets; without memory it stays as it is, which works too. */
static void
grow(struct reg *r)
{
    struct reg_tree **old = r->buckets;
    struct reg_tree *t;
    size_t old_count = r->bucket_count;
    struct reg_tree **buckets = calloc(old_count * 2, sizeof(struct reg_tree *));

    if (buckets == NULL)
        return;
    r->buckets = buckets;
    r->bucket_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        while ((t = old[i]) != NULL) {
            old[i] = t->next;
            link_tree(r, t);
        }
    }
    free(old);
}

static int
open_tree(struct reg *r, uint32_t id, struct reg_tree **out)
{
    struct id_record rec;
    struct reg_tree *t;
    int rc = record_read(r, id, &rec);

    if (rc != 0)
        return rc;
    t = calloc(1, sizeof(*t));
    if (t == NULL)
        return CH_FAIL(COHORT_ENOMEM, "tree %" PRIu32, id);
    tree_init(r, t, id, &rec);
    if (r->count >= r->bucket_count)
        grow(r);
    link_tree(r, t);
    r->count++;
    *out = t;
    return 0;
}

/* G1 */
static void
release_unused(struct reg *r, struct reg_tree *t)
{
    bool dropped = atomic_load_explicit(&t->dropped, memory_order_relaxed);

    if (t->refs > 0 || t->id < REG_USER)
        return;
    if (t->linked && (dropped || t->dropping != 0 ||
                      atomic_load_explicit(&t->bt.born, memory_order_acquire) != 0))
        return;
    if (t->linked)
        unlink_tree(r, t);
    tree_free(t);
}

/* ---- references ---- */

int
reg_get(struct reg *r, uint32_t id, struct reg_tree **out)
{
    struct reg_tree *t = NULL;
    int rc = 0;

    rt_lock(&r->lock);
    if (id >= REG_MAIN && id <= REG_UNDO) {
        t = &r->internal[id];
    } else {
        t = find(r, id);
        if (t == NULL)
            rc = open_tree(r, id, &t);
    }
    if (rc == 0 && t != NULL) {
        t->refs++;
        *out = t;
    }
    rt_unlock(&r->lock);
    return rc;
}

void
reg_ref(struct reg *r, struct reg_tree *t)
{
    rt_lock(&r->lock);
    t->refs++;
    rt_unlock(&r->lock);
}

void
reg_put(struct reg *r, struct reg_tree *t)
{
    rt_lock(&r->lock);
    CH_ASSERT(t->refs > 0);
    t->refs--;
    release_unused(r, t);
    rt_unlock(&r->lock);
}

/* ---- creation and end ---- */

int
reg_new_id(struct reg *r, uint32_t *id, page_id *root)
{
    uint8_t limit[4];
    page_id pid = 0;
    int rc = reg_new_page(r, &pid); /* lost until the next recovery if what follows fails */

    if (rc != 0)
        return rc;
    rt_lock(&r->ids_lock);
    if (r->next >= UINT32_MAX - IDS_ASIDE) {
        rc = CH_FAIL(COHORT_EFULL, "ids of trees are used up");
    } else if (r->next == r->limit) { /* G2 */
        ch_put32(limit, r->limit + IDS_ASIDE);
        rc = ids_write(r, BT_PUT, 0, limit, sizeof(limit));
        if (rc == 0)
            r->limit += IDS_ASIDE;
    }
    if (rc == 0) {
        *id = r->next++;
        *root = pid;
    }
    rt_unlock(&r->ids_lock);
    return rc;
}

int
reg_make(struct reg *r, uint32_t id, page_id root, int codec, int codec_level)
{
    struct id_record rec = {.root = root, .codec = codec, .codec_level = codec_level};
    struct buf_ref ref;
    struct bt bt;
    int rc = 0;

    CH_ASSERT(codec >= 0 && codec <= COHORT_CODEC_ZSTD && codec_level >= 0 &&
              codec_level <= UINT8_MAX);
    if (codec != COHORT_CODEC_DEFAULT)
        rc = tell_codec(r, id, codec, codec_level); /* before its first page can be written */
    if (rc == 0)
        rc = buf_new_at(r->cfg.buf, root, &ref);
    if (rc != 0)
        return rc;
    bt_init(&bt, r->cfg.buf, r->cfg.wal, id, root);
    rc = bt_format(&bt, &ref);
    bt_fini(&bt);
    if (rc != 0)
        return rc;
    rt_lock(&r->ids_lock);
    rc = record_write(r, BT_INSERT, id, &rec); /* G3 */
    rt_unlock(&r->ids_lock);
    return rc;
}

int
reg_note_large(struct reg *r, struct reg_tree *t)
{
    struct id_record rec = {
        .root = t->bt.root, .codec = t->codec, .codec_level = t->codec_level, .flags = ID_LARGE};
    int rc = 0;

    if (atomic_load_explicit(&t->large, memory_order_acquire)) /* with the store below */
        return 0;
    rt_lock(&r->ids_lock);
    if (!atomic_load_explicit(&t->large, memory_order_relaxed)) {
        rc = record_write(r, BT_UPDATE, t->id, &rec);
        if (rc == 0)
            atomic_store_explicit(&t->large, true, memory_order_release);
    }
    rt_unlock(&r->ids_lock);
    return rc;
}

int
reg_free_step(struct reg *r, uint32_t id, page_id root, bool private, unsigned max, bool *done)
{
    struct bt bt;
    int rc;

    bt_init(&bt, r->cfg.buf, r->cfg.wal, id, root);
    rc = private ? bt_bulk_drop_step(&bt, max, done) : bt_drop_step(&bt, max, done);
    bt_fini(&bt);
    return rc;
}

int
reg_new_page(struct reg *r, page_id *root)
{
    int rc = buf_admit(r->cfg.buf, true);

    return rc != 0 ? rc : store_pid_alloc(r->cfg.store, root);
}

int
reg_is_root(struct reg *r, uint32_t id, page_id root, bool private, bool *yes)
{
    struct buf_ref ref;
    int rc = buf_fix(r->cfg.buf, root, BUF_SHARED, &ref);

    *yes = false;
    if (rc != 0)
        return rc == COHORT_NOTFOUND ? 0 : rc;
    *yes = page_type(ref.page) != PAGE_FREE && page_tree(ref.page) == id &&
           (!private || (page_flags(ref.page) & PAGE_PRIVATE) != 0);
    buf_unfix(r->cfg.buf, &ref);
    return 0;
}

int
reg_forget(struct reg *r, uint32_t id)
{
    struct reg_tree *t;
    int rc;

    CH_ASSERT(id >= REG_USER);
    rt_lock(&r->ids_lock);
    rc = ids_write(r, BT_DEL, id, NULL, 0);
    rt_unlock(&r->ids_lock);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        return rc;
    rc = tell_codec(r, id, COHORT_CODEC_DEFAULT, 0);
    if (rc != 0)
        return rc;
    rt_lock(&r->lock);
    t = find(r, id);
    if (t != NULL) {
        atomic_store_explicit(&t->dropped, true, memory_order_release);
        unlink_tree(r, t);
        release_unused(r, t);
    }
    rt_unlock(&r->lock);
    return 0;
}

/* ---- writers and drops ---- */

static int
fail_dropped(const struct reg_tree *t)
{
    return CH_FAIL(COHORT_NOTFOUND, "tree %" PRIu32 " was dropped", t->id);
}

int
reg_writer_begin(struct reg *r, struct reg_tree *t, uint64_t txn)
{
    int rc = 0;

    rt_lock(&r->lock);
    if (atomic_load_explicit(&t->dropped, memory_order_relaxed) || (t->dropping == txn && txn != 0))
        rc = fail_dropped(t);
    else if (t->dropping != 0)
        rc = CH_FAIL(COHORT_CONFLICT, "tree %" PRIu32 " is being dropped by transaction %" PRIu64,
                     t->id, t->dropping);
    else
        t->writers++;
    rt_unlock(&r->lock);
    return rc;
}

void
reg_writer_end(struct reg *r, struct reg_tree *t)
{
    rt_lock(&r->lock);
    CH_ASSERT(t->writers > 0);
    t->writers--;
    rt_unlock(&r->lock);
}

int
reg_drop_begin(struct reg *r, struct reg_tree *t, uint64_t txn, bool own_writer)
{
    uint32_t own = own_writer ? 1 : 0;
    int rc = 0;

    CH_ASSERT(txn != 0);
    rt_lock(&r->lock);
    if (atomic_load_explicit(&t->dropped, memory_order_relaxed))
        rc = fail_dropped(t);
    else if (t->dropping != 0)
        rc = CH_FAIL(COHORT_CONFLICT, "tree %" PRIu32 " is being dropped by transaction %" PRIu64,
                     t->id, t->dropping);
    else if (t->writers > own)
        rc = CH_FAIL(COHORT_CONFLICT, "tree %" PRIu32 ": %" PRIu32 " others are writing into it",
                     t->id, t->writers - own);
    else
        t->dropping = txn;
    rt_unlock(&r->lock);
    return rc;
}

void
reg_drop_end(struct reg *r, struct reg_tree *t, bool dropped)
{
    rt_lock(&r->lock);
    t->dropping = 0;
    if (dropped)
        atomic_store_explicit(&t->dropped, true, memory_order_release);
    release_unused(r, t);
    rt_unlock(&r->lock);
}
