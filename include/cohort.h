/* cohort.h - the whole public interface of Cohort, an embeddable ordered key-value storage engine
 * for NVMe SSDs.
 *
 * Caveats first:
 *  - One process opens a database at a time; a second opener gets COHORT_EBUSY. Many threads of
 *    that process may use one handle at once. After fork() the child may only exit.
 *  - A handle must not be closed while another thread uses it or a cursor of it is open.
 *  - Keys compare as unsigned bytes (memcmp), 0 to COHORT_KEY_MAX bytes. Key plus value must not
 *    exceed COHORT_ENTRY_MAX bytes.
 *  - Reads are of committed state as it is now: a scan is not a snapshot. A write is visible to
 *    other threads once it is in the log buffer, before it is durable.
 *  - After a failed log write or flush the handle turns read-only for good: writes return
 *    COHORT_EFAILED. A failed flush is never retried as if it had worked.
 *  - When the device is full, writes return COHORT_EFULL; everything stays readable and deletable.
 *
 * Errors: 0 is success, negative COHORT_E* otherwise. Branch on cohort_class_of(); the text is for
 * people: cohort_strerror() and, with the place and the cause, cohort_last_error().
 *
 * Ownership: pointers passed in are borrowed until the call returns. Slices handed out by a cursor
 * are valid until the next call on that cursor. A struct cohort_value belongs to the caller.
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

enum cohort_status {
    COHORT_OK = 0,
    COHORT_EINVAL = -1,
    COHORT_EOPTION = -2,
    COHORT_EKEYSIZE = -3,
    COHORT_EVALSIZE = -4,
    COHORT_EREADONLY = -5,
    COHORT_EBATCHSIZE = -6,
    COHORT_EUNSUPPORTED = -7,
    COHORT_NOTFOUND = -10,
    COHORT_ENODB = -11,
    COHORT_EXISTS = -12,
    COHORT_CONFLICT = -20,
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
/* Checkpoints, then frees everything, also on error. NULL is legal. */
COHORT_API int cohort_close(cohort_db *db);

/* Makes every acknowledged write durable. */
COHORT_API int cohort_sync(cohort_db *db);
/* Writes map and zone table and cuts the log; recovery then starts here. */
COHORT_API int cohort_checkpoint(cohort_db *db);

/* ---- single operations: each is atomic, and durable as `durability` says --------------------- */

/* A value read: `data` is allocated by the library and grows as needed; reuse it from call to call
 * and release it with cohort_value_free(). Start from a zeroed struct. */
struct cohort_value {
    void *data;
    size_t bytes;
    size_t capacity;
};
COHORT_API void cohort_value_free(struct cohort_value *v);

/* NOTFOUND when the key is absent; *out is then unchanged. */
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

/* ---- atomic batch: all of it or nothing survives a crash, and no reader sees a part of a key --- */

typedef struct cohort_batch cohort_batch;
COHORT_API int cohort_batch_create(cohort_batch **b);
COHORT_API void cohort_batch_destroy(cohort_batch *b);
COHORT_API void cohort_batch_clear(cohort_batch *b);
/* Copies key and value. Later operations on a key win. */
COHORT_API int cohort_batch_put(cohort_batch *b, const void *key, size_t key_bytes,
                                const void *value, size_t value_bytes);
COHORT_API int cohort_batch_del(cohort_batch *b, const void *key, size_t key_bytes);
/* EBATCHSIZE when the batch is larger than a quarter of the log or touches too many pages for the
 * cache; nothing has then changed. The batch stays as it is and may be written again. */
COHORT_API int cohort_write(cohort_db *db, cohort_batch *b);

/* ---- cursors ------------------------------------------------------------------------------- */

typedef struct cohort_cursor cohort_cursor;
struct cohort_slice {
    const void *data;
    size_t bytes;
};

COHORT_API int cohort_cursor_open(cohort_db *db, cohort_cursor **c);
COHORT_API void cohort_cursor_close(cohort_cursor *c);
/* All return NOTFOUND at the end of the range; the cursor then stays there (sticky) until it is
 * positioned anew. seek: first key >= key. seek_before: last key <= key. */
COHORT_API int cohort_cursor_seek(cohort_cursor *c, const void *key, size_t key_bytes);
COHORT_API int cohort_cursor_seek_before(cohort_cursor *c, const void *key, size_t key_bytes);
COHORT_API int cohort_cursor_first(cohort_cursor *c);
COHORT_API int cohort_cursor_last(cohort_cursor *c);
COHORT_API int cohort_cursor_next(cohort_cursor *c);
COHORT_API int cohort_cursor_prev(cohort_cursor *c);
/* The entry under the cursor, as it was when it was positioned. EINVAL when there is none. */
COHORT_API int cohort_cursor_entry(cohort_cursor *c, struct cohort_slice *key,
                                   struct cohort_slice *value);

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
    uint64_t commits;              /* acknowledged write operations */
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
    uint64_t codec, preset; /* as in struct cohort_options */
    uint64_t retired_zones; /* zones taken out of use after errors */
};
COHORT_API int cohort_stats(cohort_db *db, struct cohort_stats *s);
/* The same as one JSON object; *text is freed by cohort_free(). */
COHORT_API int cohort_stats_json(cohort_db *db, char **text);
COHORT_API void cohort_free(void *p);

/* Verifies every page, image, place and zone of an open, otherwise idle database; each finding is
 * passed to `report` (may be NULL) as one line. COHORT_OK when there is none, else ECORRUPT. */
struct cohort_check_result {
    uint64_t pages, entries, leaf_pages, inner_pages, leaf_used_bytes, errors;
};
COHORT_API int cohort_check(cohort_db *db, void (*report)(void *arg, const char *line), void *arg,
                            struct cohort_check_result *out);

#ifdef __cplusplus
}
#endif

#endif
