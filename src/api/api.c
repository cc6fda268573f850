/* api.c - cohort.h's database handle, single operations and cursors over boot and btree.
 *
 * Arguments of users are checked here, once; below, wrong ones are programmer errors.
 */
#include "api/api_internal.h"
#include "base/log.h"
#include "base/options.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "wal/wal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- library-wide ---- */

COHORT_API const char *
cohort_version(void)
{
    return "0.1.0";
}

COHORT_API void
cohort_set_log(cohort_log_fn *fn, void *arg)
{
    ch_log_set(fn, arg);
}

COHORT_API void
cohort_free(void *p)
{
    free(p);
}

COHORT_API void
cohort_value_free(struct cohort_value *v)
{
    if (v == NULL)
        return;
    free(v->data);
    *v = (struct cohort_value){0};
}

/* ---- open and close ---- */

static bool
is_sim(const char *where)
{
    return strncmp(where, "sim:", 4) == 0;
}

/* "trace:FILE,NAME": opens NAME and writes a trace of what reaches the device to FILE. *file is owned, NULL without. */
static int
split_trace(const char **where, char **file)
{
    static const char prefix[] = "trace:";
    const char *name = *where + sizeof(prefix) - 1;
    const char *comma;

    if (strncmp(*where, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    comma = strchr(name, ',');
    if (comma == NULL || comma == name || comma[1] == '\0')
        return CH_FAIL(COHORT_EINVAL, "%s: not of the form trace:FILE,NAME", *where);
    *file = strndup(name, (size_t)(comma - name));
    if (*file == NULL)
        return CH_FAIL(COHORT_ENOMEM, "path");
    *where = comma + 1;
    return 0;
}

static int
open_device(const char *path, const struct cohort_options *o, const char *trace, struct dev **out)
{
    struct dev *dev = NULL;
    unsigned flags = o->create != COHORT_CREATE_NO ? DEV_CREATE : 0;
    int rc;

    if (o->direct_io == COHORT_DIRECT_IO_ON)
        flags |= DEV_DIRECT;
    if (o->direct_io == COHORT_DIRECT_IO_OFF)
        flags |= DEV_BUFFERED;
    rc = dev_open(path, flags, o->max_bytes, &dev);
    if (rc != 0)
        return rc;
    if (trace == NULL) {
        *out = dev;
        return 0;
    }
    rc = dev_trace_open(dev, trace, out);
    if (rc != 0)
        dev_close(dev);
    return rc;
}

/* Turns what the user named into what dev_open() takes: a directory becomes its file. `*made`: the directory was missing
 * and has been made. */
static int
resolve(const char *where, bool create, char **path)
{
    struct stat st;
    size_t n = strlen(where) + sizeof("/cohort.db");

    *path = malloc(n);
    if (*path == NULL)
        return CH_FAIL(COHORT_ENOMEM, "path");
    if (is_sim(where)) {
        (void)snprintf(*path, n, "%s", where);
        return 0;
    }
    if (stat(where, &st) != 0) {
        if (errno != ENOENT)
            return CH_FAIL(COHORT_EIO, "%s", where);
        if (!create)
            return CH_FAIL(COHORT_ENODB, "%s: no such directory or device", where);
        if (mkdir(where, 0777) != 0)
            return CH_FAIL(COHORT_EIO, "%s: can't make the directory", where);
    } else if (S_ISBLK(st.st_mode)) {
        (void)snprintf(*path, n, "%s", where);
        return 0;
    } else if (!S_ISDIR(st.st_mode)) {
        return CH_FAIL(COHORT_EINVAL, "%s: neither a directory nor a block device", where);
    }
    (void)snprintf(*path, n, "%s/cohort.db", where);
    return 0;
}

/* Whether to create: by the option and by what the device holds. */
static int
decide_create(struct dev *dev, const struct cohort_options *o, bool *create)
{
    bool root;
    bool blank;
    int rc = meta_probe(dev, &root, &blank);

    if (rc != 0)
        return rc;
    *create = false;
    if (root && o->create != COHORT_CREATE_MUST)
        return 0;
    if (root && o->force == 0)
        return CH_FAIL(COHORT_EXISTS, "%s: holds a database already", dev_name(dev));
    if (o->create == COHORT_CREATE_NO)
        return blank ? CH_FAIL(COHORT_ENODB, "%s: no database there", dev_name(dev))
                     : CH_FAIL(COHORT_EMAGIC, "%s: holds something else than a database",
                               dev_name(dev));
    if (!root && !blank && o->force == 0)
        return CH_FAIL(COHORT_EMAGIC,
                       "%s: holds something else than a database; force=yes overwrites it",
                       dev_name(dev));
    *create = true;
    return 0;
}

COHORT_API int
cohort_open(const char *where, const struct cohort_options *o, cohort_db **out)
{
    struct cohort_options opts;
    struct dev *dev = NULL;
    char *path = NULL;
    char *trace = NULL;
    bool create;
    int rc;

    if (where == NULL || *where == '\0' || out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_open: no name or no result pointer");
    cohort_options_init(&opts);
    if (o != NULL) {
        if (o->struct_bytes != sizeof(opts))
            return CH_FAIL(COHORT_EINVAL,
                           "cohort_open: options not set up by cohort_options_init()");
        opts = *o;
    }
    rc = ch_options_check(&opts);
    if (rc == 0)
        rc = split_trace(&where, &trace);
    if (rc != 0)
        return rc;
    rc = resolve(where, opts.create != COHORT_CREATE_NO, &path);
    if (rc == 0)
        rc = open_device(path, &opts, trace, &dev);
    if (rc != 0)
        goto out;
    rc = decide_create(dev, &opts, &create);
    if (rc != 0)
        goto out;
    rc = api_open_dev(dev, &opts, create, out);
    dev = NULL; /* taken */
out:
    dev_close(dev);
    free(path);
    free(trace);
    return rc;
}

int
api_open_dev(struct dev *dev, const struct cohort_options *o, bool create, cohort_db **out)
{
    struct cohort_db *db = calloc(1, sizeof(*db));
    int rc;

    if (db == NULL) {
        dev_close(dev);
        return CH_FAIL(COHORT_ENOMEM, "database handle");
    }
    rc = boot_open(dev, o, create, &db->db);
    if (rc == 0)
        *out = db;
    else
        free(db);
    return rc;
}

void
api_kill(cohort_db *db)
{
    boot_kill(db->db);
    free(db);
}

COHORT_API int
cohort_close(cohort_db *db)
{
    int rc;

    if (db == NULL)
        return 0;
    rc = boot_close(db->db);
    free(db);
    return rc;
}

COHORT_API int
cohort_sync(cohort_db *db)
{
    int rc;

    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_sync: no database");
    rc = wal_flush(db->db->wal, wal_end(db->db->wal));
    if (rc != 0)
        boot_set_error(db->db, rc);
    return rc;
}

COHORT_API int
cohort_checkpoint(cohort_db *db)
{
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_checkpoint: no database");
    return boot_checkpoint(db->db, true);
}

/* ---- single operations ---- */

struct get_ctx {
    struct cohort_value *out;
    bool grow; /* out is too small: bytes tells */
    size_t bytes;
};

static void
copy_value(void *arg, const void *value, size_t bytes)
{
    struct get_ctx *g = arg;

    g->bytes = bytes;
    g->grow = bytes > g->out->capacity || g->out->data == NULL;
    if (g->grow)
        return;
    memcpy(g->out->data, value, bytes);
    g->out->bytes = bytes;
}

COHORT_API int
cohort_get(cohort_db *db, const void *key, size_t key_bytes, struct cohort_value *out)
{
    struct get_ctx g = {.out = out};
    int rc;

    if (db == NULL || out == NULL || (key == NULL && key_bytes > 0))
        return CH_FAIL(COHORT_EINVAL, "cohort_get: null argument");
    if (key_bytes > COHORT_KEY_MAX)
        return CH_FAIL(COHORT_EKEYSIZE, "cohort_get: key of %zu bytes, limit %d", key_bytes,
                       COHORT_KEY_MAX);
    for (;;) {
        void *p;
        size_t cap;

        rc = bt_get(&db->db->main, (struct bt_slice){key, key_bytes}, copy_value, &g);
        if (rc != 0 || !g.grow)
            return rc;
        /* Another writer may make it longer still: hence the loop. It ends at the largest value. */
        cap = g.bytes < 64 ? 64 : g.bytes;
        p = realloc(out->data, cap);
        if (p == NULL)
            return CH_FAIL(COHORT_ENOMEM, "cohort_get: %zu bytes", cap);
        out->data = p;
        out->capacity = cap;
    }
}

int
api_check_entry(const char *what, const void *key, size_t key_bytes, const void *value,
                size_t value_bytes)
{
    if ((key == NULL && key_bytes > 0) || (value == NULL && value_bytes > 0))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument", what);
    if (key_bytes > COHORT_KEY_MAX)
        return CH_FAIL(COHORT_EKEYSIZE, "%s: key of %zu bytes, limit %d", what, key_bytes,
                       COHORT_KEY_MAX);
    if (value_bytes > COHORT_ENTRY_MAX - key_bytes)
        return CH_FAIL(COHORT_EVALSIZE, "%s: key and value of %zu + %zu bytes, limit %d together",
                       what, key_bytes, value_bytes, COHORT_ENTRY_MAX);
    return 0;
}

int
api_before_write(cohort_db *db)
{
    if (CH_UNLIKELY(atomic_load_explicit(&db->db->error, memory_order_acquire) != 0))
        return boot_writable(db->db);
    return boot_poll(db->db);
}

int
api_after_write(cohort_db *db, lsn_t lsn, uint64_t ops, uint64_t payload)
{
    int rc;

    atomic_fetch_add_explicit(&db->commits, ops, memory_order_relaxed);
    atomic_fetch_add_explicit(&db->payload, payload, memory_order_relaxed);
    if (db->db->opts.durability != COHORT_DURABILITY_SYNC)
        return 0;
    rc = wal_flush(db->db->wal, lsn);
    if (rc != 0)
        boot_set_error(db->db, rc);
    return rc;
}

static int
write_one(cohort_db *db, const char *what, enum bt_write_kind kind, struct bt_slice key,
          struct bt_slice value)
{
    const struct bt_op op = {.kind = kind, .key = key, .value = value};
    lsn_t lsn = 0;
    int rc;

    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "%s: no database", what);
    rc = api_check_entry(what, key.data, key.bytes, value.data, value.bytes);
    if (rc == 0)
        rc = api_before_write(db);
    if (rc == 0)
        rc = bt_write(&db->db->main, &op, &lsn);
    if (rc == 0)
        rc = api_after_write(db, lsn, 1, key.bytes + value.bytes);
    return rc;
}

COHORT_API int
cohort_put(cohort_db *db, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    return write_one(db, "cohort_put", BT_PUT, (struct bt_slice){key, key_bytes},
                     (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_insert(cohort_db *db, const void *key, size_t key_bytes, const void *value,
              size_t value_bytes)
{
    return write_one(db, "cohort_insert", BT_INSERT, (struct bt_slice){key, key_bytes},
                     (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_update(cohort_db *db, const void *key, size_t key_bytes, const void *value,
              size_t value_bytes)
{
    return write_one(db, "cohort_update", BT_UPDATE, (struct bt_slice){key, key_bytes},
                     (struct bt_slice){value, value_bytes});
}

COHORT_API int
cohort_del(cohort_db *db, const void *key, size_t key_bytes)
{
    return write_one(db, "cohort_del", BT_DEL, (struct bt_slice){key, key_bytes},
                     (struct bt_slice){0});
}

/* ---- cursors ---- */

struct cohort_cursor {
    struct bt_cursor *c;
};

COHORT_API int
cohort_cursor_open(cohort_db *db, cohort_cursor **out)
{
    struct cohort_cursor *c;
    int rc;

    if (db == NULL || out == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_cursor_open: null argument");
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return CH_FAIL(COHORT_ENOMEM, "cursor");
    rc = bt_cursor_create(&db->db->main, &c->c);
    if (rc == 0)
        *out = c;
    else
        free(c);
    return rc;
}

COHORT_API void
cohort_cursor_close(cohort_cursor *c)
{
    if (c == NULL)
        return;
    bt_cursor_destroy(c->c);
    free(c);
}

static int
seek(cohort_cursor *c, enum bt_seek how, const void *key, size_t key_bytes)
{
    if (c == NULL || (key == NULL && key_bytes > 0))
        return CH_FAIL(COHORT_EINVAL, "cohort_cursor_seek: null argument");
    if (key_bytes > COHORT_KEY_MAX)
        return CH_FAIL(COHORT_EKEYSIZE, "cohort_cursor_seek: key of %zu bytes, limit %d", key_bytes,
                       COHORT_KEY_MAX);
    return bt_seek(c->c, how, (struct bt_slice){key, key_bytes});
}

COHORT_API int
cohort_cursor_seek(cohort_cursor *c, const void *key, size_t key_bytes)
{
    return seek(c, BT_GE, key, key_bytes);
}

COHORT_API int
cohort_cursor_seek_before(cohort_cursor *c, const void *key, size_t key_bytes)
{
    return seek(c, BT_LE, key, key_bytes);
}

COHORT_API int
cohort_cursor_first(cohort_cursor *c)
{
    return seek(c, BT_FIRST, NULL, 0);
}

COHORT_API int
cohort_cursor_last(cohort_cursor *c)
{
    return seek(c, BT_LAST, NULL, 0);
}

COHORT_API int
cohort_cursor_next(cohort_cursor *c)
{
    return c == NULL ? CH_FAIL(COHORT_EINVAL, "cohort_cursor_next: no cursor") : bt_next(c->c);
}

COHORT_API int
cohort_cursor_prev(cohort_cursor *c)
{
    return c == NULL ? CH_FAIL(COHORT_EINVAL, "cohort_cursor_prev: no cursor") : bt_prev(c->c);
}

COHORT_API int
cohort_cursor_entry(cohort_cursor *c, struct cohort_slice *key, struct cohort_slice *value)
{
    struct bt_slice k;
    struct bt_slice v;

    if (c == NULL || !bt_entry(c->c, &k, &v))
        return CH_FAIL(COHORT_EINVAL, "cohort_cursor_entry: the cursor stands on no entry");
    if (key != NULL)
        *key = (struct cohort_slice){k.data, k.bytes};
    if (value != NULL)
        *value = (struct cohort_slice){v.data, v.bytes};
    return 0;
}
