/* cohort.h - the whole public interface of Cohort, an embeddable transactional ordered key-value
 * storage engine for NVMe SSDs.
 *
 * Caveats first:
 *  - One process opens a database at a time; a second opener gets COHORT_EBUSY. Many threads of
 *    that process may use one handle at once. After fork() the child may only exit.
 *  - A handle must not be closed while another thread uses it, or a transaction, cursor, tree,
 *    writer or bulk load of it is open; prepared transactions do not count.
 *  - Keys compare as unsigned bytes (memcmp), 0 to COHORT_KEY_MAX bytes. Values have 0 to
 *    COHORT_VALUE_MAX bytes; what does not fit into a page with its key (COHORT_ENTRY_MAX) is kept
 *    in pages of its own.
 *  - Reads see committed data only: a transaction sees its snapshot and its own writes, a call
 *    without a transaction the newest commit that is visible. A commit is visible once it is as
 *    durable as was asked for; commits become visible in the order of their log records, so one
 *    with durability async or none waits for a sync one before it.
 *  - A transaction may move between threads; one call at a time. Nothing is thread-local but
 *    cohort_last_error().
 *  - After a failed log write or flush the handle turns read-only for good: writes return
 *    COHORT_EFAILED. A failed flush is never retried as if it had worked.
 *  - When the device is full, writes return COHORT_EFULL; everything stays readable and deletable.
 *
 * Errors: 0 is success, negative COHORT_E* otherwise. Branch on cohort_class_of(); the text is for
 * people: cohort_strerror() and, with the place and the cause, cohort_last_error().
 *
 * Ownership: pointers passed in are borrowed until the call returns. Slices handed out by a cursor
 * are valid until the next call on that cursor or a write of its transaction. A struct cohort_value
 * belongs to the caller.
 */
#ifndef COHORT_H
#define COHORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cohort_options.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COHORT_API __attribute__((visibility("default")))

#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0

#define COHORT_KEY_MAX   1900 /* bytes */
#define COHORT_ENTRY_MAX 1960 /* key + value bytes: two entries always fit into a page */
#define COHORT_VALUE_MAX (UINT64_C(1) << 30) /* bytes */
#define COHORT_NAME_MAX  255                 /* bytes of a tree's name */
#define COHORT_GID_MAX   200                 /* bytes of a prepared transaction's id */

enum cohort_status {
    COHORT_OK = 0,
    COHORT_EINVAL = -1,
    COHORT_EOPTION = -2,
    COHORT_EKEYSIZE = -3,
    COHORT_EVALSIZE = -4,
    COHORT_EREADONLY = -5,
    COHORT_EBATCHSIZE = -6,
    COHORT_EUNSUPPORTED = -7,
    COHORT_ETXN = -8,
    COHORT_NOTFOUND = -10,
    COHORT_ENODB = -11,
    COHORT_EXISTS = -12,
    COHORT_CONFLICT = -20,
    COHORT_DEADLOCK = -21,
    COHORT_TIMEOUT = -22,
    COHORT_SNAPSHOT_TOO_OLD = -23,
    COHORT_CANCELED = -24,
    COHORT_EFULL = -30,
    COHORT_ENOMEM = -31,
    COHORT_EIO = -40,
    COHORT_ECORRUPT = -50,
    COHORT_EPAGE = -51,
    COHORT_EIMAGE = -52,
    COHORT_ELOG = -53,
    COHORT_EROOT = -54,
    COHORT_EMAP = -55,
    COHORT_EMAGIC = -60,
    COHORT_EVERSION = -61,
    COHORT_EMISMATCH = -62,
    COHORT_EBUSY = -70,
    COHORT_EFAILED = -80,
    COHORT_ERETRY = -90, /* internal; never returned to users */
};

enum cohort_class {
    COHORT_CLASS_OK,
    COHORT_CLASS_USAGE,
    COHORT_CLASS_NOT_FOUND,
    COHORT_CLASS_CONFLICT,
    COHORT_CLASS_NO_SPACE,
    COHORT_CLASS_IO,
    COHORT_CLASS_CORRUPT,
    COHORT_CLASS_MISMATCH,
    COHORT_CLASS_BUSY,
    COHORT_CLASS_FAILED,
    COHORT_CLASS_RETRY,
};

/* The last error of the calling thread. */
struct cohort_error {
    int code;         /* COHORT_E*, 0 = none yet */
    int sys_errno;    /* errno at that time, or 0 */
    const char *file; /* source file and line that threw it */
    int line;
    char text[256]; /* what and which object */
};

enum cohort_log_level {
    COHORT_LOG_INFO,
    COHORT_LOG_NOTICE,
    COHORT_LOG_WARNING,
    COHORT_LOG_ERROR
};
typedef void cohort_log_fn(void *arg, enum cohort_log_level level, const char *text);

COHORT_API const char *cohort_version(void);
COHORT_API const char *cohort_strerror(int code);
COHORT_API enum cohort_class cohort_class_of(int code);
/* Never NULL; valid until the thread's next failing call. */
COHORT_API const struct cohort_error *cohort_last_error(void);
/* One sink a process; NULL (the default) is silence. Set it before opening. */
COHORT_API void cohort_set_log(cohort_log_fn *fn, void *arg);

/* ---- options ------------------------------------------------------------------------------- */

/* struct cohort_options: see cohort_options.h, one field an option, with its meaning and range. */
COHORT_API void cohort_options_init(struct cohort_options *o);
/* By name, value as text ("64M", "sync"). COHORT_EOPTION names what is wrong. */
COHORT_API int cohort_options_set(struct cohort_options *o, const char *name, const char *value);
/* Prints each option with its value, range and meaning. */
COHORT_API void cohort_options_print(const struct cohort_options *o, FILE *out);

/* ---- database ------------------------------------------------------------------------------ */

typedef struct cohort_db cohort_db;

/* Opens, and recovers after a crash, the database that `where` names: a directory (its file is
 * `cohort.db`), a block device, or a "sim:" URI (docs/ARCHITECTURE.md). "trace:FILE,NAME" opens
 * NAME and writes a trace of what reaches the device to FILE (docs/FORMAT.md). `o` NULL = defaults.
 * Errors: ENODB, EXISTS (create=must), EMAGIC, EVERSION, EMISMATCH, EBUSY, EOPTION, EFULL, ENOMEM,
 * EIO, and the CORRUPT class with the damaged region named. On error *db is untouched. */
COHORT_API int cohort_open(const char *where, const struct cohort_options *o, cohort_db **db);
/* Checkpoints, then frees everything, also on error. NULL is legal. EBUSY: something of it is open; nothing has been done
 * and the handle is as it was. */
COHORT_API int cohort_close(cohort_db *db);

/* Makes every acknowledged write durable. */
COHORT_API int cohort_sync(cohort_db *db);
/* Writes map and zone table and cuts the log; recovery then starts here. */
COHORT_API int cohort_checkpoint(cohort_db *db);

/* Where the log ends now: cohort_durable() of it makes all that has been committed durable. */
COHORT_API uint64_t cohort_log_position(cohort_db *db);
/* Waits until everything up to `position` is durable. */
COHORT_API int cohort_durable(cohort_db *db, uint64_t position);

/* ---- values and slices ----------------------------------------------------------------------- */

struct cohort_slice {
    const void *data;
    size_t bytes;
};
/* A value read: `data` is allocated by the library and grows as needed; reuse it from call to call
 * and release it with cohort_value_free(). Start from a zeroed struct. */
struct cohort_value {
    void *data;
    size_t bytes;
    size_t capacity;
};
COHORT_API void cohort_value_free(struct cohort_value *v);

/* ---- single operations on the main tree: each is a transaction of its own --------------------- */

/* All may return CONFLICT-class errors: a record that an open transaction has written is waited for
 * up to `lock_timeout_ms`, then TIMEOUT. */

/* NOTFOUND when the key is absent; *out is then unchanged. Never waits for writers. */
COHORT_API int cohort_get(cohort_db *db, const void *key, size_t key_bytes,
                          struct cohort_value *out);
/* Inserts or replaces. */
COHORT_API int cohort_put(cohort_db *db, const void *key, size_t key_bytes, const void *value,
                          size_t value_bytes);
/* EXISTS when the key is there. */
COHORT_API int cohort_insert(cohort_db *db, const void *key, size_t key_bytes, const void *value,
                             size_t value_bytes);
/* NOTFOUND when it is not. */
COHORT_API int cohort_update(cohort_db *db, const void *key, size_t key_bytes, const void *value,
                             size_t value_bytes);
/* NOTFOUND when it is not. */
COHORT_API int cohort_del(cohort_db *db, const void *key, size_t key_bytes);

/* ---- batch: operations gathered in memory, written as one transaction -------------------------- */

typedef struct cohort_batch cohort_batch;
COHORT_API int cohort_batch_create(cohort_batch **b);
COHORT_API void cohort_batch_destroy(cohort_batch *b);
COHORT_API void cohort_batch_clear(cohort_batch *b);
/* Copies key and value. Later operations on a key win. EBATCHSIZE: more than 64 MiB. */
COHORT_API int cohort_batch_put(cohort_batch *b, const void *key, size_t key_bytes,
                                const void *value, size_t value_bytes);
COHORT_API int cohort_batch_del(cohort_batch *b, const void *key, size_t key_bytes);
/* All of it or nothing, in the main tree. The batch stays as it is and may be written again. */
COHORT_API int cohort_write(cohort_db *db, cohort_batch *b);

/* ---- transactions ------------------------------------------------------------------------------ */

typedef struct cohort_txn cohort_txn;
typedef struct cohort_tree cohort_tree;

enum cohort_isolation {
    COHORT_SNAPSHOT,     /* reads of one moment; two writers of a record: the first wins */
    COHORT_SERIALIZABLE, /* besides, commit is refused (CONFLICT) when somebody else has since
                            committed a write into what was read, phantoms included */
};
#define COHORT_DEFAULT (-1) /* as the database's option says */
struct cohort_txn_options {
    size_t struct_bytes; /* set by cohort_txn_options_init() */
    bool read_only;
    enum cohort_isolation isolation;
    int durability;          /* COHORT_DURABILITY_*, or COHORT_DEFAULT */
    int64_t lock_timeout_ms; /* 0 = CONFLICT at once; COHORT_DEFAULT */
    void *tag;               /* the caller's, handed to the wait hook */
};
COHORT_API void cohort_txn_options_init(struct cohort_txn_options *o);

/* `o` NULL = defaults. EBUSY when `transactions_max` are open. */
COHORT_API int cohort_begin(cohort_db *db, const struct cohort_txn_options *o, cohort_txn **t);
/* Ends the transaction whatever the result; on error it has been rolled back, except that after
 * EFAILED (the log failed) only the next opening tells. CONFLICT (serializable), EFULL, EFAILED,
 * SNAPSHOT_TOO_OLD. Its cursors and writers end with it, whichever way it ends: what is left is to close and to cancel
 * them, every other use returns ETXN. */
COHORT_API int cohort_commit(cohort_txn *t);
/* As cohort_commit(), but returns once it is visible: durable when cohort_durable(*position) is. */
COHORT_API int cohort_commit_visible(cohort_txn *t, uint64_t *position);
/* Undoes everything and ends. NULL is legal. An error means that the handle has failed; the next
 * opening completes the work. */
COHORT_API int cohort_abort(cohort_txn *t);

/* From now on reads see what is committed now, besides own writes: a statement's read view. Not for
 * serializable transactions (ETXN). */
COHORT_API int cohort_txn_refresh(cohort_txn *t);
/* Nested. rollback_to undoes what came after and keeps the savepoint; release forgets it and those
 * after it. ETXN for one that is gone. */
COHORT_API int cohort_savepoint(cohort_txn *t, uint64_t *savepoint);
COHORT_API int cohort_rollback_to(cohort_txn *t, uint64_t savepoint);
COHORT_API int cohort_release(cohort_txn *t, uint64_t savepoint);

/* In all of the following `tree` NULL is the main tree. Writers get CONFLICT when the record was
 * committed after the snapshot was taken; when another open transaction has written it they wait as
 * lock_timeout_ms says: TIMEOUT, DEADLOCK, CANCELED. The transaction stays usable; after DEADLOCK
 * and SNAPSHOT_TOO_OLD it can only be aborted or rolled back to a savepoint and go on reading. A snapshot ends as TOO_OLD
 * when `version_bytes` or, for what large transactions have replaced, the device is full. */
COHORT_API int cohort_txn_get(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                              struct cohort_value *out);
/* The same, and locks the record against other writers until the end (SELECT .. FOR UPDATE). The
 * lock holds for a key that is absent too. */
COHORT_API int cohort_txn_get_for_update(cohort_txn *t, cohort_tree *tree, const void *key,
                                         size_t key_bytes, struct cohort_value *out);
COHORT_API int cohort_txn_put(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                              const void *value, size_t value_bytes);
COHORT_API int cohort_txn_insert(cohort_txn *t, cohort_tree *tree, const void *key,
                                 size_t key_bytes, const void *value, size_t value_bytes);
COHORT_API int cohort_txn_update(cohort_txn *t, cohort_tree *tree, const void *key,
                                 size_t key_bytes, const void *value, size_t value_bytes);
COHORT_API int cohort_txn_del(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes);
/* Deletes the keys >= from and < to; NULL slices are open ends. *deleted (may be NULL): how many. On
 * error some may be deleted: roll back to a savepoint. */
COHORT_API int cohort_txn_del_range(cohort_txn *t, cohort_tree *tree,
                                    const struct cohort_slice *from, const struct cohort_slice *to,
                                    uint64_t *deleted);
/* n keys in one call; those not in memory are read in parallel. rcs[i]: 0, NOTFOUND or an error of
 * that key; the result is the first rcs[] that is neither. `t` NULL: as cohort_get(), each for itself
 * (`db` is then used). Wrong arguments, a key too long among them: nothing is read and every rcs[] has the error. */
COHORT_API int cohort_get_many(cohort_db *db, cohort_txn *t, cohort_tree *tree, size_t n,
                               const struct cohort_slice *keys, struct cohort_value *values,
                               int *rcs);
/* About how many keys lie in [from, to) (NULL: open ends): from the tree's inner pages, without
 * reading leaves. */
COHORT_API int cohort_estimate(cohort_db *db, cohort_tree *tree, const struct cohort_slice *from,
                               const struct cohort_slice *to, uint64_t *count);

/* Waits. cohort_txn_cancel(), from any thread: the wait that the transaction is in, or else its
 * next, ends with CANCELED. The hook is called, without locks, by a thread that is about to wait,
 * again whenever the holder changes: who waits for whom, by number and tag (tag NULL and waiter 0:
 * a call without a transaction). It must not call the library, except cohort_txn_cancel(). */
COHORT_API void cohort_txn_cancel(cohort_txn *t);
COHORT_API uint64_t cohort_txn_id(const cohort_txn *t); /* unique for the database's life */
typedef void cohort_wait_fn(void *arg, uint64_t waiter, void *waiter_tag, uint64_t holder,
                            void *holder_tag);
COHORT_API void cohort_set_wait_hook(cohort_db *db, cohort_wait_fn *fn, void *arg);

/* Two-phase commit. prepare makes the transaction durable under `gid` (1 .. COHORT_GID_MAX bytes)
 * with its locks and ends the handle; it outlives the connection and crashes until commit_prepared or
 * abort_prepared. EXISTS: gid in use (the transaction stays open, its cursors do not); other errors as cohort_commit().
 * The reads of a serializable one stay protected until its end, or until the database is closed; locks of
 * cohort_txn_get_for_update() on records that it did not write end with a crash. commit_prepared and abort_prepared are
 * as durable as the transaction was to be (after a reopening: as the database's option says). */
COHORT_API int cohort_prepare(cohort_txn *t, const void *gid, size_t gid_bytes);
COHORT_API int cohort_commit_prepared(cohort_db *db, const void *gid, size_t gid_bytes);
COHORT_API int cohort_abort_prepared(cohort_db *db, const void *gid, size_t gid_bytes);
/* visit() must not call the library; nonzero ends the list and is returned. */
COHORT_API int cohort_list_prepared(cohort_db *db,
                                    int (*visit)(void *arg, const void *gid, size_t gid_bytes),
                                    void *arg);

/* ---- named trees --------------------------------------------------------------------------------- */

struct cohort_tree_options {
    size_t struct_bytes; /* set by cohort_tree_options_init() */
    int codec;           /* COHORT_CODEC_*; default: the database's */
    int codec_level;     /* zstd; 0 = 1 */
};
COHORT_API void cohort_tree_options_init(struct cohort_tree_options *o);
enum cohort_tree_flags {
    COHORT_TREE_CREATE = 1,    /* create when missing */
    COHORT_TREE_EXCLUSIVE = 2, /* with CREATE: EXISTS when it is there */
    COHORT_TREE_IF_EXISTS = 4, /* drop: success when it is missing */
};
/* All take part in `t`, or with NULL are transactions of their own. Names: 1 .. COHORT_NAME_MAX
 * bytes. A handle stays open until cohort_tree_close(), over transactions; it names the tree that was
 * opened: after a drop or truncate (or the abort of its creation) every use returns NOTFOUND. Drop,
 * rename and truncate get CONFLICT while other transactions have written into the tree; what they
 * take away is freed once no snapshot sees it. Opening twice gives two handles. */
COHORT_API int cohort_tree_open(cohort_db *db, cohort_txn *t, const char *name, unsigned flags,
                                const struct cohort_tree_options *o, cohort_tree **tree);
COHORT_API void cohort_tree_close(cohort_tree *tree);
COHORT_API int cohort_tree_drop(cohort_db *db, cohort_txn *t, const char *name, unsigned flags);
/* NOTFOUND without `from`; EXISTS when `to` is there. Handles stay good. */
COHORT_API int cohort_tree_rename(cohort_db *db, cohort_txn *t, const char *from, const char *to);
/* Empties it; open handles end. */
COHORT_API int cohort_tree_truncate(cohort_db *db, cohort_txn *t, const char *name);
/* In order of names. visit() must not call the library; nonzero ends the list and is returned. */
COHORT_API int cohort_tree_list(cohort_db *db, cohort_txn *t,
                                int (*visit)(void *arg, const char *name), void *arg);
/* Exact: reads the tree as the transaction sees it. */
COHORT_API int cohort_tree_count(cohort_db *db, cohort_txn *t, cohort_tree *tree, uint64_t *count);
/* Single operations as cohort_get() .. cohort_del(), in a named tree. */
COHORT_API int cohort_tree_get(cohort_tree *tree, const void *key, size_t key_bytes,
                               struct cohort_value *out);
COHORT_API int cohort_tree_put(cohort_tree *tree, const void *key, size_t key_bytes,
                               const void *value, size_t value_bytes);
COHORT_API int cohort_tree_insert(cohort_tree *tree, const void *key, size_t key_bytes,
                                  const void *value, size_t value_bytes);
COHORT_API int cohort_tree_update(cohort_tree *tree, const void *key, size_t key_bytes,
                                  const void *value, size_t value_bytes);
COHORT_API int cohort_tree_del(cohort_tree *tree, const void *key, size_t key_bytes);

/* ---- large values in pieces ------------------------------------------------------------------------ */

/* Reads up to `bytes` bytes of the value from `offset` on. *got: how many (0 at or behind its end);
 * *total (may be NULL): its size. */
COHORT_API int cohort_txn_read(cohort_txn *t, cohort_tree *tree, const void *key, size_t key_bytes,
                               uint64_t offset, void *buf, size_t bytes, size_t *got,
                               uint64_t *total);
/* Writes a value piece by piece; the record changes at finish, which (as cancel) ends the writer.
 * One write is bounded by no cache. Other calls on the transaction may come in between. */
typedef struct cohort_writer cohort_writer;
COHORT_API int cohort_writer_open(cohort_txn *t, cohort_tree *tree, const void *key,
                                  size_t key_bytes, cohort_writer **w);
COHORT_API int cohort_writer_append(cohort_writer *w, const void *data, size_t bytes);
COHORT_API int cohort_writer_finish(cohort_writer *w);
COHORT_API void cohort_writer_cancel(cohort_writer *w);

/* ---- bulk load ------------------------------------------------------------------------------------- */

/* Fills an empty tree from keys in strictly ascending order (EINVAL otherwise). Everything appears at
 * finish, at once and for snapshots taken later; a crash or abort before leaves the tree empty.
 * Nobody may write into the tree meanwhile: finish then returns CONFLICT, and has aborted. */
typedef struct cohort_bulk cohort_bulk;
COHORT_API int cohort_bulk_open(cohort_db *db, cohort_tree *tree, cohort_bulk **b);
COHORT_API int cohort_bulk_put(cohort_bulk *b, const void *key, size_t key_bytes, const void *value,
                               size_t value_bytes);
COHORT_API int cohort_bulk_finish(cohort_bulk *b);
COHORT_API void cohort_bulk_abort(cohort_bulk *b);

/* ---- cursors --------------------------------------------------------------------------------------- */

typedef struct cohort_cursor cohort_cursor;

/* On the main tree, without a transaction: a snapshot of its own, renewed by each seek, first, last. */
COHORT_API int cohort_cursor_open(cohort_db *db, cohort_cursor **c);
/* Within a transaction: sees its snapshot and its writes, also those made after it was positioned. */
COHORT_API int cohort_txn_cursor(cohort_txn *t, cohort_tree *tree, cohort_cursor **c);
COHORT_API void cohort_cursor_close(cohort_cursor *c);
/* All return NOTFOUND at the end of the range; the cursor then stays there (sticky) until it is
 * positioned anew. seek: first key >= key. seek_exact: the key itself. seek_before: last key <= key. */
COHORT_API int cohort_cursor_seek(cohort_cursor *c, const void *key, size_t key_bytes);
COHORT_API int cohort_cursor_seek_exact(cohort_cursor *c, const void *key, size_t key_bytes);
COHORT_API int cohort_cursor_seek_before(cohort_cursor *c, const void *key, size_t key_bytes);
COHORT_API int cohort_cursor_first(cohort_cursor *c);
COHORT_API int cohort_cursor_last(cohort_cursor *c);
COHORT_API int cohort_cursor_next(cohort_cursor *c);
COHORT_API int cohort_cursor_prev(cohort_cursor *c);
/* The entry under the cursor, as it was when it was positioned. EINVAL when there is none; after
 * cohort_cursor_del() too. `value` NULL spares reading a large value. */
COHORT_API int cohort_cursor_entry(cohort_cursor *c, struct cohort_slice *key,
                                   struct cohort_slice *value);
/* Replaces the value of, or deletes, the entry under a transaction's cursor. After del, next and prev
 * go to the neighbours of the deleted entry. Errors as cohort_txn_put(). */
COHORT_API int cohort_cursor_put(cohort_cursor *c, const void *value, size_t value_bytes);
COHORT_API int cohort_cursor_del(cohort_cursor *c);

/* ---- statistics and checks ------------------------------------------------------------------ */

enum cohort_cause { /* why bytes were written */
    COHORT_CAUSE_USER,
    COHORT_CAUSE_DELTA,
    COHORT_CAUSE_PAD,
    COHORT_CAUSE_GC,
    COHORT_CAUSE_COMP,
    COHORT_CAUSE_DBLWR,
    COHORT_CAUSE_WAL,
    COHORT_CAUSE_META,
    COHORT_CAUSES
};
#define COHORT_UNKNOWN UINT64_MAX /* a counter that the device does not tell */

struct cohort_stats {
    size_t struct_bytes;           /* set by the caller to sizeof(struct cohort_stats) */
    uint64_t bytes[COHORT_CAUSES]; /* written since open, by cause */
    uint64_t host_bytes;           /* their sum */
    uint64_t device_host_bytes;    /* the device's own counter since open, or COHORT_UNKNOWN */
    uint64_t media_bytes;          /* programmed by the flash since open, or COHORT_UNKNOWN */
    uint64_t read_bytes, reads;    /* device reads since open */
    uint64_t flushes;              /* device flushes since open */
    uint64_t commits;              /* transactions that wrote, single operations included */
    uint64_t log_flushes;          /* log group flushes */
    uint64_t payload_bytes;        /* keys + values put */
    uint64_t page_writes;          /* logical 4 KiB pages written for the user */
    uint64_t page_write_stored;    /* their stored bytes after compression */
    uint64_t cache_hits, cache_misses;
    uint64_t cache_bytes, metadata_bytes; /* memory: frames; map, page table, zones, buffers */
    uint64_t pages, live_bytes, space_bytes, capacity_bytes;
    uint64_t zone_bytes, zones, zones_free;
    uint64_t gc_zones, gc_live_bytes; /* zones collected and what was live in them */
    uint64_t checkpoints, log_bytes_used, log_bytes;
    uint64_t codec, preset;                       /* as in struct cohort_options */
    uint64_t retired_zones;                       /* zones taken out of use after errors */
    uint64_t transactions, transactions_prepared; /* open now */
    uint64_t aborts, conflicts, deadlocks, lock_waits, lock_timeouts, snapshots_killed;
    uint64_t version_bytes, version_entries; /* memory of old versions */
    uint64_t undo_spilled_bytes;             /* before-images moved to pages, since open */
    uint64_t trees;                          /* named ones */
    /* sum of the squares of page_write_stored's images: their spread */
    uint64_t page_write_squares;
    uint64_t delta_writes, delta_stored; /* of page_writes, of page_write_stored: as deltas */
    uint64_t delta_reads;                /* of reads: the second one of a page with a delta */
    uint64_t delta_memory_hits;          /* ... that was not needed: the delta was in memory */
};
COHORT_API int cohort_stats(cohort_db *db, struct cohort_stats *s);
/* The same as one JSON object; *text is freed by cohort_free(). */
COHORT_API int cohort_stats_json(cohort_db *db, char **text);
COHORT_API void cohort_free(void *p);
/* How full each zone is, one character a zone in their order: '.' free, '0' to '9' tenths of live bytes, 'A' to 'J' the
 * same of a zone that is being filled, 'm' the arrays of map and zone table, 'x' retired. The first `n` of them are written,
 * without a final zero; *zones is how many there are. Written in place there is nothing to tell: all count as free. */
COHORT_API int cohort_zone_map(cohort_db *db, char *map, size_t n, size_t *zones);

/* Verifies every page, image, place and zone of an open, otherwise idle database; each finding is
 * passed to `report` (may be NULL) as one line. COHORT_OK when there is none, else ECORRUPT. */
struct cohort_check_result {
    uint64_t pages, entries, leaf_pages, inner_pages, leaf_used_bytes, errors;
    uint64_t ghosts, trees, large_values;
};
COHORT_API int cohort_check(cohort_db *db, void (*report)(void *arg, const char *line), void *arg,
                            struct cohort_check_result *out);

#ifdef __cplusplus
}
#endif

#endif
