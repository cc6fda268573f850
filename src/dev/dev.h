/* dev.h - one face for every device; the differences are data (struct dev_caps).
 *
 * A device is an array of 4 KiB blocks. Requests are handed over in vectors and run at real queue
 * depth: dev_submit() starts them, dev_wait() returns when all of the queue's requests are done
 * and puts each one's result into req.rc. A queue belongs to one thread at a time; dev_queue_get()
 * takes one from a pool (as many as concurrent callers; a ring each), dev_queue_put() gives it
 * back.
 *
 * Short transfers are continued inside; a request ends with rc 0 = all bytes done, or COHORT_EIO /
 * COHORT_EFULL (ENOSPC, not of a READ) with errno kept in the error record of the waiting thread.
 *
 * Durability: WRITE, RESET and dev_allocate() may sit in a volatile cache until a FLUSH that was
 * *submitted after they completed* has completed. dev_flush_ticket() / dev_flush_done() make that
 * checkable (R6): take the ticket after your write completed; it is durable once
 * dev_flush_done() >= ticket. Which thread flushed does not matter.
 *
 * Accounting: bytes of WRITE and APPEND are counted by req.split[] at submission, whatever the
 * outcome; sum of split[] must equal len (asserted). Buffers, offsets and lengths are multiples of
 * 4 KiB (asserted). Threads: everything may be called by any number of threads.
 */
#ifndef CH_DEV_DEV_H
#define CH_DEV_DEV_H

#include "base/base.h"

enum dev_op {
    DEV_READ,
    DEV_WRITE,
    DEV_APPEND,
    DEV_FLUSH,
    DEV_RESET
};

struct dev_req {
    enum dev_op op;
    uint64_t off;    /* bytes; APPEND: start of the zone, replaced by where it was written */
    size_t len;      /* bytes; FLUSH: 0 */
    void *buf;       /* borrowed until dev_wait() */
    uint32_t stream; /* placement handle + 1, at most caps.streams; 0 = none */
    uint32_t split[CH_CAUSES]; /* bytes by cause; writes only */
    int rc;                    /* result */
};

struct dev_caps {
    uint64_t bytes;              /* capacity; files: most that it may grow to */
    uint32_t block_bytes;        /* I/O unit, 4096 */
    uint64_t zone_bytes;         /* the device's own zone, 0 = none */
    uint64_t zone_cap;           /* writable bytes of it */
    uint64_t unit_bytes;         /* its erase unit where known (sim: superblock), 0 = unknown */
    uint64_t conventional_bytes; /* zoned: at the start, written anywhere; multiple of zone_bytes */
    uint32_t open_zones_max;     /* zones that can be open for writing, 0 = no limit */
    uint32_t active_zones_max;   /* ... open or closed half-written, 0 = no limit */
    uint32_t streams;            /* placement handles, 0 = none */
    bool sequential_only;        /* beyond conventional_bytes, zones are written at their pointer */
    bool volatile_cache;
    bool growable; /* a file: blocks appear when written or allocated, RESET returns them */
};

enum dev_flags {
    DEV_CREATE = 1,
    DEV_EXCL = 2,
    DEV_READONLY = 4,
    DEV_DIRECT = 8,
    DEV_BUFFERED = 16
};
/* DEV_DIRECT: O_DIRECT or an error; DEV_BUFFERED: never; neither: O_DIRECT, else buffered with a
 * notice. DEV_CREATE makes a missing file (not a block device); DEV_EXCL demands it is new. */

struct dev_counts {
    uint64_t written[CH_CAUSES];                         /* bytes by cause, at submission */
    uint64_t host_bytes;                                 /* their sum */
    uint64_t read_bytes, reads, writes, flushes, resets; /* requests */
};

struct dev;       /* opaque */
struct dev_queue; /* opaque */

/* `where`: a file or block device path, or sim:MODEL,bytes=1G,spare=7%,superblock=8M,open=1,
 * stripe=128K,gc=separate|shared,file=PATH,cache=volatile|none,tear=yes|no,seed=N, and what
 * dev_sim_uri.c lists beyond: placement handles, zones, timing. Takes an exclusive lock (EBUSY). max_bytes: bound of a growable file, 0 = file system. ENODB when missing. */
CH_NODISCARD int dev_open(const char *where, unsigned flags, uint64_t max_bytes, struct dev **out);
void dev_close(struct dev *d); /* NULL is legal */
const struct dev_caps *dev_caps(const struct dev *d);
const char *dev_name(const struct dev *d);
/* Bytes that exist now (files: st_size; else capacity). */
uint64_t dev_size(struct dev *d);

CH_NODISCARD int dev_queue_get(struct dev *d, struct dev_queue **q); /* ENOMEM */
void dev_queue_put(struct dev_queue *q); /* its requests must have been waited for */
/* Starts n requests (any n; queued inside beyond the ring's depth). The array is borrowed until
 * dev_wait(). Never fails as a call: errors come per request. After 16 calls without a dev_wait()
 * the next one waits for them first. Requests of a queue are not ordered among themselves. */
void dev_submit(struct dev_queue *q, struct dev_req *reqs, unsigned n);
/* Waits for all submitted; returns the first error among them by index, 0 if none. */
CH_NODISCARD int dev_wait(struct dev_queue *q);

/* One-shot helpers around the above. */
CH_NODISCARD int dev_io(struct dev *d, struct dev_req *reqs, unsigned n);
CH_NODISCARD int dev_read(struct dev *d, uint64_t off, void *buf, size_t len);
CH_NODISCARD int dev_write(struct dev *d, uint64_t off, const void *buf, size_t len,
                           enum ch_cause cause);
CH_NODISCARD int dev_flush(struct dev *d);
CH_NODISCARD int dev_reset(struct dev *d, uint64_t off, uint64_t len); /* discard / punch */
/* Makes sure that writes to [off, off+len) can't fail for lack of space (files: fallocate, which
 * also grows the file); EFULL. Nothing on other devices. No write to the range may be in flight. */
CH_NODISCARD int dev_allocate(struct dev *d, uint64_t off, uint64_t len);

uint64_t dev_flush_ticket(struct dev *d);
uint64_t dev_flush_done(struct dev *d);

void dev_counts(struct dev *d, struct dev_counts *out);
/* The device's own counters; COHORT_UNKNOWN where it does not tell. */
void dev_physical(struct dev *d, uint64_t *host_bytes, uint64_t *media_bytes);

/* ---- placement handles (flexible data placement) ----
 *
 * caps.streams = n > 0: writes with req.stream = 1..n go to placement handles 0..n-1, each of which
 * fills one erase unit of caps.unit_bytes at a time with nothing else the host writes; 0 is handle
 * 0, too. A stream above n is counted as an event and goes to handle 0. On a device without handles
 * all of these return EUNSUPPORTED, and req.stream is ignored. Any thread. */
uint32_t dev_streams(const struct dev *d);
/* Bytes that can still be written to the stream's current unit: its RUAMW. */
CH_NODISCARD int dev_stream_room(struct dev *d, uint32_t stream, uint64_t *bytes);
/* The stream's next write begins a fresh unit; what was left of the current one stays unused. */
CH_NODISCARD int dev_stream_update(struct dev *d, uint32_t stream);

enum dev_event_kind {
    DEV_EVENT_NOT_FULL,    /* host: a stream left its unit before that was full */
    DEV_EVENT_BAD_STREAM,  /* host: a write named no stream of the device */
    DEV_EVENT_REALLOCATED, /* device: moved data, which may now lie beside other streams' */
    DEV_EVENT_CHANGED,     /* device: gave the stream a new unit, the old one being full */
};
struct dev_event {
    enum dev_event_kind kind;
    uint32_t stream; /* as in dev_req; of REALLOCATED: whose data, 0 = of several */
    uint64_t off;    /* REALLOCATED: first byte of what was moved */
    uint64_t bytes;  /* NOT_FULL: unused of the unit; REALLOCATED: moved */
};
/* Takes up to `max` events, oldest first, out of the device's log, which keeps the latest ones. */
CH_NODISCARD int dev_events(struct dev *d, struct dev_event *out, unsigned max, unsigned *n);

struct dev_stream_stats { /* bytes since the device was made */
    uint64_t host_bytes;  /* HBMW: written by the host */
    uint64_t media_bytes; /* MBMW: programmed; media / host = write amplification */
    uint64_t erased_bytes;
};
CH_NODISCARD int dev_stream_stats(struct dev *d, struct dev_stream_stats *out);

/* ---- zones of a zoned device (caps.sequential_only) ----
 *
 * Zone i lies at i * zone_bytes and takes zone_cap bytes. A WRITE must begin at the zone's write
 * pointer, else it fails with EIO; an APPEND names the zone's start and learns its place. Both fail
 * when the zone has no room, or when a limit on open or active zones is reached (a full limit of open
 * zones closes another one first). RESET takes whole zones; READ reads zeroes beyond the pointer.
 * Devices without zones return EUNSUPPORTED. Any thread. */
enum dev_zone_state {
    DEV_ZONE_CONVENTIONAL,
    DEV_ZONE_EMPTY,
    DEV_ZONE_OPEN,
    DEV_ZONE_CLOSED, /* half written, takes no open zone's resources */
    DEV_ZONE_FULL
};
struct dev_zone {
    uint64_t off, cap_bytes; /* cap: of a conventional one its size */
    uint64_t written_bytes;  /* the write pointer, from off; a finished zone: cap_bytes */
    enum dev_zone_state state;
};
enum dev_zone_act {
    DEV_ZONE_DO_OPEN,
    DEV_ZONE_DO_CLOSE,
    DEV_ZONE_DO_FINISH /* what is left of the zone stays unused until it is reset */
};
/* Zones from the one at `off` on; *n = how many, at most `max`. */
CH_NODISCARD int dev_zone_report(struct dev *d, uint64_t off, struct dev_zone *out, unsigned max,
                                 unsigned *n);
CH_NODISCARD int dev_zone_do(struct dev *d, uint64_t off, enum dev_zone_act act); /* EIO: refused */

/* ---- virtual time (sim: timing=virtual) ----
 *
 * Requests then take no real time, but the drive says when they would have completed. Each thread has
 * a clock, 0 at first, that a request takes as its time of submission and that dev_wait() moves to
 * the last completion. One real thread can stand for many clients:
 *
 *     c = the client with the least clock[c];
 *     dev_virtual_begin(max(clock[c], dev_virtual_background() - slack));
 *     one operation;
 *     latency = dev_virtual_ns() - clock[c] + CPU; clock[c] += latency;
 *
 * and operations / max(clock) is the throughput. A thread that never called dev_virtual_begin() (a
 * cleaner, a checkpoint) is background: once there are clients its requests are submitted at the latest
 * begin of a client, whatever they then take, so that the times which the drive hears of hardly ever go
 * back. They hold up clients through busy dies and a full write buffer; and since a client may not run
 * ahead of what was to be cleaned for it, it waits when background work lags by more than `slack` (say
 * 10 ms) as above. The time of a drive begins at 0: a thread that was a client of another one begins anew
 * with dev_virtual_begin(0). */
void dev_virtual_begin(uint64_t ns);
uint64_t dev_virtual_ns(void); /* of the calling thread */
/* Up to when background threads keep the drive busy that the calling thread last waited for requests of,
 * as of then; 0 on a device without virtual time. */
uint64_t dev_virtual_background(void);

/* ---- backend interface (dev_*.c only) ----
 * The generic layer does argument checks, counting and flush tickets, then calls these. A backend
 * is synchronous per vector from the caller's view: submit starts, wait completes. A request handed
 * over with rc != 0 was refused by the generic layer: the backend leaves it alone. A backend sets
 * rc to 0, to DEV_ERRNO(errno) (dev_internal.h; the generic layer then throws), or to a code
 * already thrown. */
struct dev_ops {
    void (*close)(struct dev *d);
    int (*queue_create)(struct dev *d, void **impl);
    void (*queue_destroy)(struct dev *d, void *impl);
    void (*submit)(struct dev *d, void *impl, struct dev_req *reqs, unsigned n);
    void (*wait)(struct dev *d, void *impl); /* all req.rc set on return */
    /* submit and wait at once, where one system call does both; NULL = submit, then wait */
    void (*run)(struct dev *d, void *impl, struct dev_req *reqs, unsigned n);
    int (*allocate)(struct dev *d, uint64_t off, uint64_t len);
    uint64_t (*size)(struct dev *d);
    void (*physical)(struct dev *d, uint64_t *host, uint64_t *media);
    /* NULL where the device has no such thing. All return a code already thrown. */
    int (*stream_room)(struct dev *d, uint32_t stream, uint64_t *bytes);
    int (*stream_update)(struct dev *d, uint32_t stream);
    int (*stream_stats)(struct dev *d, struct dev_stream_stats *out);
    int (*events)(struct dev *d, struct dev_event *out, unsigned max, unsigned *n);
    int (*zone_report)(struct dev *d, uint64_t off, struct dev_zone *out, unsigned max,
                       unsigned *n);
    int (*zone_do)(struct dev *d, uint64_t off, enum dev_zone_act act);
    /* A wrapper's inner device, to which the calls above go; NULL for others. */
    struct dev *(*inner)(struct dev *d);
};
/* Builds the generic part around a backend; used by backends and wrappers. On error `impl` is not
 * taken. */
CH_NODISCARD int dev_create(const struct dev_ops *ops, void *impl, const struct dev_caps *caps,
                            const char *name, struct dev **out);
void *dev_impl(struct dev *d);

/* ---- wrappers; each takes the inner device and closes it when closed ---- */

/* fault: makes chosen requests fail or the device die. */
struct dev_fault_plan {
    uint64_t fail_nth[5]; /* by enum dev_op: the n-th request (1-based) fails once; 0 = never */
    bool fail_forever;    /* ... and all later ones of that op too */
    int code;             /* COHORT_EIO or COHORT_EFULL */
    uint64_t short_nth;   /* the n-th write only writes its first block, then fails */
    uint64_t slow_ns;     /* delay of each request */
    /* At the n-th WRITE or APPEND (1-based) the power goes: it and all later requests fail with EIO
     * and reach nothing; 0 = never. */
    uint64_t stop_after_writes;
    uint64_t stop_after_flushes; /* the same at the n-th FLUSH */
};
CH_NODISCARD int dev_fault_open(struct dev *inner, const struct dev_fault_plan *plan,
                                struct dev **out);
/* Changes the plan; counters restart. */
void dev_fault_set(struct dev *d, const struct dev_fault_plan *plan);
/* Requests seen since the last set, by op. */
uint64_t dev_fault_seen(struct dev *d, enum dev_op op);
/* Requests failed here since the last set; *dead: the power is gone. */
uint64_t dev_fault_failed(struct dev *d, bool *dead);

/* trace: writes a binary trace of all writes, resets and flushes to `path` (format:
 * docs/FORMAT.md). */
CH_NODISCARD int dev_trace_open(struct dev *inner, const char *path, struct dev **out);

/* ---- simulated drive ---- */

/* The drive itself, contents and FTL; outlives the handles opened on it, so that tests can cut the
 * power and open again. `cfg` text: what follows "sim:" in a URI. */
struct sim_drive;
CH_NODISCARD int sim_drive_create(const char *cfg, struct sim_drive **out);
void sim_drive_destroy(struct sim_drive *s); /* no handle may be open */
/* EBUSY while another handle is open. */
CH_NODISCARD int dev_sim_open(struct sim_drive *s, struct dev **out);
/* Power cut: the open handle's requests all fail from now on; then each 4 KiB block written since
 * the last completed flush is, drawn from `seed`, kept (newest), rolled back to any version it had
 * since that flush, torn inside (512-byte sectors new or old) or garbled. With volatile cache off
 * everything is kept. */
void sim_drive_crash(struct sim_drive *s, uint64_t seed);
/* From now on requests take (virtual) time and complete in an order of their own, drawn from `seed`: a
 * vector in two waves, and of a write some blocks before the rest. All zero: at once, in order. For
 * rt_sim, where sleeping costs nothing. */
struct sim_timing {
    uint64_t seed;
    uint64_t read_ns, write_ns, flush_ns; /* on average */
    uint32_t slow_permille;               /* vectors that take a hundred times as long */
};
void sim_drive_set_timing(struct sim_drive *s, const struct sim_timing *t);
struct ssd_counts;
void sim_drive_counts(struct sim_drive *s, struct ssd_counts *out);
/* Raw access to the stored contents, for tests that damage bytes. */
void sim_drive_peek(struct sim_drive *s, uint64_t off, void *buf, size_t len);
void sim_drive_poke(struct sim_drive *s, uint64_t off, const void *buf, size_t len);

#endif
