/* golden_txn.c - examples from a database that is in the middle of things: how transactions end in the log, and entries of
 * the trees that the engine keeps for itself.
 *
 * A small database is made and used by the public interface; then the records, or the entries of one tree as they stand,
 * are copied to a block of the golden rig, or to a leaf by themselves. So the examples show what the engine writes and
 * do not depend on where it happened to write it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "api/api_internal.h"
#include "btree/node.h"
#include "dev/dev.h"
#include "page/page.h"
#include "tests/golden/golden.h"
#include "wal/wal.h"

enum {
    LARGE = 2000, /* two pieces */
    LARGER = 3000,
};

struct scene {
    struct zt *t;
    struct sim_drive *drive;
    cohort_db *db;
    cohort_txn *reader, *open;
    cohort_writer *writer;
    cohort_tree *plums;
    cohort_bulk *bulk;
};

static void
scene_create(struct scene *s, struct zt *t)
{
    struct cohort_options o;
    struct dev *dev;

    memset(s, 0, sizeof(*s));
    s->t = t;
    cohort_options_init(&o);
    ZT_OK(t, cohort_options_set(&o, "background", "no"));
    ZT_OK(t, cohort_options_set(&o, "cache_bytes", "1M"));
    ZT_OK(t, sim_drive_create("generic,bytes=64M,superblock=1M,cache=none", &s->drive));
    ZT_OK(t, dev_sim_open(s->drive, &dev));
    ZT_OK(t, api_open_dev(dev, &o, true, &s->db));
}

static void
tree_create(struct scene *s, const char *name, int codec, int level)
{
    struct cohort_tree_options o;
    cohort_tree *tree;

    cohort_tree_options_init(&o);
    o.codec = codec;
    o.codec_level = level;
    ZT_OK(s->t, cohort_tree_open(s->db, NULL, name, COHORT_TREE_CREATE, &o, &tree));
    cohort_tree_close(tree);
}

/* A large value that begins with a word, the rest being zeroes. */
static void
large_put(struct scene *s, const char *key, const char *word)
{
    uint8_t value[LARGE] = {0};

    memcpy(value, word, strlen(word));
    ZT_OK(s->t, cohort_put(s->db, key, strlen(key), value, sizeof(value)));
}

/* A transaction that replaces one record, adds one and locks one, prepared. */
static void
prepare(struct scene *s)
{
    struct cohort_value v = {0};
    cohort_txn *t;

    ZT_OK(s->t, cohort_begin(s->db, NULL, &t));
    ZT_OK(s->t, cohort_txn_put(t, NULL, "apple", 5, "yellow", 6));
    ZT_OK(s->t, cohort_txn_put(t, NULL, "cherry", 6, "dark red", 8));
    ZT_STATUS(s->t, cohort_txn_get_for_update(t, NULL, "medlar", 6, &v), COHORT_NOTFOUND);
    cohort_value_free(&v);
    ZT_OK(s->t, cohort_prepare(t, "order 66", 8));
}

/* Everything that internal trees can hold. */
static void
scene_play(struct scene *s)
{
    struct cohort_txn_options o;
    uint8_t zeroes[LARGER] = {0};

    ZT_OK(s->t, cohort_put(s->db, "apple", 5, "red", 3));
    tree_create(s, "figs", COHORT_CODEC_LZ4, 0);
    tree_create(s, "plums", COHORT_CODEC_ZSTD, 3);
    large_put(s, "apricot", "orange");
    cohort_txn_options_init(&o);
    o.read_only = true;
    ZT_OK(s->t, cohort_begin(s->db, &o, &s->reader)); /* what follows frees nothing */
    ZT_OK(s->t, cohort_tree_drop(s->db, NULL, "figs", 0));
    large_put(s, "apricot", "green");
    ZT_OK(s->t, cohort_begin(s->db, NULL, &s->open));
    ZT_OK(s->t, cohort_writer_open(s->open, NULL, "quince", 6, &s->writer));
    ZT_OK(s->t, cohort_writer_append(s->writer, zeroes, sizeof(zeroes)));
    ZT_OK(s->t, cohort_tree_open(s->db, NULL, "plums", 0, NULL, &s->plums));
    ZT_OK(s->t, cohort_bulk_open(s->db, s->plums, &s->bulk));
    ZT_OK(s->t, cohort_bulk_put(s->bulk, "damson", 6, "blue", 4));
    prepare(s);
}

static void
scene_close(struct scene *s)
{
    if (s->reader != NULL) {
        cohort_bulk_abort(s->bulk);
        cohort_tree_close(s->plums);
        cohort_writer_cancel(s->writer);
        ZT_OK(s->t, cohort_abort(s->open));
        ZT_OK(s->t, cohort_abort(s->reader));
    }
    ZT_OK(s->t, cohort_close(s->db));
    sim_drive_destroy(s->drive);
}

/* ---- records of the log ---- */

static void
record_copy(struct rig *r, const struct wal_record *record, lsn_t *lsn)
{
    struct wal_ticket ticket = {0};
    struct wal_part part = {record->data, record->bytes};

    ZT_OK(r->t, wal_reserve(r->wal, WAL_USER, WAL_RECORD_HEADER + record->bytes, &ticket));
    *lsn = wal_append(r->wal, &ticket, record->type, CH_WAL, &part, 1);
    wal_release(r->wal, &ticket);
}

/* Copies the records about transactions' ends from the log of the scene. */
static void
ends_copy(struct scene *s, struct rig *r)
{
    struct db *db = s->db->db;
    struct wal_scan_config cfg = {
        .dev = db->dev,
        .base = db->root.log_base,
        .bytes = db->root.log_bytes,
        .db_id = db->root.db_id,
        .from = db->root.cut,
        .epoch_min = db->root.epoch_min,
        .epoch_start = db->root.epoch_start,
        .epoch = db->root.epoch,
    };
    struct wal_scan *scan = NULL;
    struct wal_record record;
    lsn_t lsn = 0;
    int rc;

    ZT_OK(s->t, wal_scan_open(&cfg, &scan));
    while ((rc = wal_scan_next(scan, &record)) == 0) {
        if (record.type >= TXN_RECORD_COMMIT)
            record_copy(r, &record, &lsn);
    }
    ZT_STATUS(s->t, rc, COHORT_NOTFOUND);
    wal_scan_close(scan);
    ZT_CHECK(s->t, lsn != 0);
    ZT_OK(s->t, wal_flush(r->wal, lsn));
}

size_t
example_log_ends(struct zt *t, uint8_t *out)
{
    struct scene s;
    struct rig r;
    cohort_txn *x;

    scene_create(&s, t);
    ZT_OK(t, cohort_begin(s.db, NULL, &x));
    ZT_OK(t, cohort_txn_put(x, NULL, "apple", 5, "red", 3));
    ZT_OK(t, cohort_commit(x));
    ZT_OK(t, cohort_begin(s.db, NULL, &x));
    ZT_OK(t, cohort_txn_put(x, NULL, "apple", 5, "blue", 4));
    ZT_OK(t, cohort_abort(x));
    prepare(&s);
    ZT_OK(t, cohort_commit_prepared(s.db, "order 66", 8));
    rig_open(&r, t, STORE_OOP);
    ends_copy(&s, &r);
    scene_close(&s);
    rig_read_log(&r, out);
    rig_close(&r);
    return WAL_BLOCK;
}

/* ---- entries of internal trees ---- */

static size_t
example_tree(struct zt *t, uint32_t id, uint8_t *out)
{
    struct bt_cursor *c = NULL;
    struct bt_slice key = {NULL, 0}, value;
    struct scene s;
    unsigned flags;
    int rc;

    scene_create(&s, t);
    scene_play(&s);
    node_init(out, 7, 0, id);
    ZT_OK(t, bt_cursor_create(reg_internal(s.db->db->reg, id), &c));
    rc = bt_seek(c, BT_FIRST, key);
    /* Two pieces of large values fill a leaf. */
    for (unsigned i = 0; rc == 0 && (id != REG_BLOBS || i < 2); i++) {
        ZT_CHECK(t, bt_entry(c, &key, &value, &flags));
        ZT_CHECK(t, node_put(out, key, value, flags));
        rc = bt_next(c);
    }
    ZT_CHECK(t, rc == 0 || rc == COHORT_NOTFOUND);
    bt_cursor_destroy(c);
    scene_close(&s);
    page_set_lsn(out, 123456);
    page_seal(out);
    ZT_CHECK(t, node_check(out) == NULL);
    return CH_PAGE_BYTES;
}

size_t
example_tree_ids(struct zt *t, uint8_t *out)
{
    return example_tree(t, REG_IDS, out);
}

size_t
example_tree_names(struct zt *t, uint8_t *out)
{
    return example_tree(t, REG_NAMES, out);
}

size_t
example_tree_pending(struct zt *t, uint8_t *out)
{
    return example_tree(t, REG_PENDING, out);
}

size_t
example_tree_blobs(struct zt *t, uint8_t *out)
{
    return example_tree(t, REG_BLOBS, out);
}

size_t
example_tree_undo(struct zt *t, uint8_t *out)
{
    return example_tree(t, REG_UNDO, out);
}
