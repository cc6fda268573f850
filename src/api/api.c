/* api.c - cohort.h's database handle: open, close, sync; and the checks of arguments that all files of api/ share.
 *
 * Arguments of users are checked in this layer, once; below, wrong ones are programmer errors.
 */
#include "api/api_internal.h"
#include "base/log.h"
#include "base/options.h"
#include "dev/dev.h"
#include "wal/wal.h"

#include <errno.h>
#include <inttypes.h>
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
    struct cohort_db *db = ch_alloc_aligned(sizeof(*db)); /* zeroed */
    int rc;

    if (db == NULL) {
        dev_close(dev);
        return CH_FAIL(COHORT_ENOMEM, "database handle");
    }
    rc = boot_open(dev, o, create, &db->db);
    if (rc != 0) {
        ch_free_aligned(db);
        return rc;
    }
    db->main = reg_main(db->db->reg);
    *out = db;
    return 0;
}

void
api_kill(cohort_db *db)
{
    boot_kill(db->db);
    api_pool_free(db);
    ch_free_aligned(db);
}

COHORT_API int
cohort_close(cohort_db *db)
{
    struct txns_counts c;
    uint32_t handles;
    int rc;

    if (db == NULL)
        return 0;
    txns_counts(db->db->txns, &c);
    handles = atomic_load_explicit(&db->handles, memory_order_relaxed);
    if (c.open > 0 || handles > 0)
        return CH_FAIL(COHORT_EBUSY,
                       "cohort_close: %" PRIu64 " transactions and cursors, %" PRIu32
                       " trees and bulk loads are open",
                       c.open, handles);
    rc = boot_close(db->db);
    api_pool_free(db);
    ch_free_aligned(db);
    return rc;
}

COHORT_API int
cohort_durable(cohort_db *db, uint64_t position)
{
    int rc;

    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_durable: no database");
    if (position > wal_end(db->db->wal))
        return CH_FAIL(COHORT_EINVAL, "cohort_durable: %" PRIu64 " is behind the log's end",
                       position);
    rc = wal_flush(db->db->wal, position);
    if (rc != 0)
        boot_set_error(db->db, rc);
    return rc;
}

COHORT_API uint64_t
cohort_log_position(cohort_db *db)
{
    return db == NULL ? 0 : wal_end(db->db->wal);
}

COHORT_API int
cohort_sync(cohort_db *db)
{
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_sync: no database");
    return cohort_durable(db, wal_end(db->db->wal));
}

COHORT_API int
cohort_checkpoint(cohort_db *db)
{
    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_checkpoint: no database");
    return boot_checkpoint(db->db, true);
}

/* ---- arguments ---- */

int
api_check_key(const char *what, const void *key, size_t key_bytes)
{
    if (CH_UNLIKELY(key == NULL && key_bytes > 0))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: key", what);
    if (CH_UNLIKELY(key_bytes > COHORT_KEY_MAX))
        return CH_FAIL(COHORT_EKEYSIZE, "%s: key of %zu bytes, limit %d", what, key_bytes,
                       COHORT_KEY_MAX);
    return 0;
}

int
api_check_entry(const char *what, const void *key, size_t key_bytes, const void *value,
                size_t value_bytes)
{
    int rc = api_check_key(what, key, key_bytes);

    if (rc != 0)
        return rc;
    if (value == NULL && value_bytes > 0)
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: value", what);
    if (value_bytes > COHORT_VALUE_MAX)
        return CH_FAIL(COHORT_EVALSIZE, "%s: value of %zu bytes, limit %" PRIu64, what, value_bytes,
                       COHORT_VALUE_MAX);
    return 0;
}

int
api_check_range(const char *what, const struct cohort_slice *from, const struct cohort_slice *to)
{
    int rc = from != NULL ? api_check_key(what, from->data, from->bytes) : 0;

    return rc == 0 && to != NULL ? api_check_key(what, to->data, to->bytes) : rc;
}

int
api_check_tree(const char *what, const cohort_db *db, const cohort_tree *tree,
               struct reg_tree **out)
{
    if (CH_UNLIKELY(db == NULL))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no database", what);
    if (tree == NULL) {
        *out = db->main;
        return 0;
    }
    if (tree->db != db)
        return CH_FAIL(COHORT_EINVAL, "%s: the tree is of another database", what);
    if (atomic_load_explicit(&tree->tree->dropped, memory_order_acquire))
        return CH_FAIL(COHORT_NOTFOUND, "%s: the tree has been dropped", what);
    *out = tree->tree;
    return 0;
}

int
api_check_txn(const char *what, const cohort_txn *t, const cohort_tree *tree, struct reg_tree **out)
{
    if (CH_UNLIKELY(t == NULL))
        return CH_FAIL(COHORT_EINVAL, "%s: null argument: no transaction", what);
    if (CH_UNLIKELY(t->t == NULL))
        return CH_FAIL(COHORT_ETXN, "%s: the transaction has ended", what);
    return api_check_tree(what, t->db, tree, out);
}
