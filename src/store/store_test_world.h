/* store_test_world.h - a store on a simulated drive with a real log, and a model of what it must hold.
 *
 * The world plays the cleaner: it writes batches, keeps them in flight, publishes them when they are ready.
 * The model is, per page id, the list of states that were published, each with a log position that is durable
 * only if the publication is; so after a crash it tells which states a page may be found in.
 */
#ifndef CH_STORE_TEST_WORLD_H
#define CH_STORE_TEST_WORLD_H

#include "dev/dev.h"
#include "store/store.h"
#include "wal/wal.h"
#include "zt/zt.h"

enum {
    WORLD_PAGES = 8192,
    WORLD_TREES = 5, /* page p is of tree 1 + p % this */
    WORLD_EVENTS = 1 << 18,
    WORLD_FLIGHTS = 4,
    WORLD_LOG_BYTES = 48 << 20,
    WORLD_LOG_BASE = 64 << 10,
};

struct world_event {
    lsn_t lsn;
    page_id pid;
    uint32_t version; /* 0 = freed */
};

struct world_flight {
    struct store_batch batch;
    uint32_t versions[CH_BATCH_MAX];
    bool busy;
};

struct world {
    struct zt *t;
    struct sim_drive *drive;
    char path[256];  /* instead of the drive: a file that grows */
    struct dev *dev; /* fault wrapper around the drive */
    struct wal *wal;
    struct store *store;
    struct store_config cfg;
    uint64_t host_base; /* the drive's counter when the device was opened */
    bool concurrent;    /* another thread runs gc steps */
    bool half;          /* see struct world_options */
    bool deltas;        /* likewise */
    bool packs;         /* a tree has a codec of its own */
    bool faulty;        /* requests were made to fail: the drive has seen less than was counted */
    uint32_t epoch;
    lsn_t epoch_start;
    uint32_t next_version;
    uint32_t version[WORLD_PAGES]; /* published now; 0 = none */
    bool used[WORLD_PAGES];        /* id allocated */
    bool busy[WORLD_PAGES];        /* write in flight */
    uint32_t tried[WORLD_PAGES];   /* newest version that was handed to store_write(), in place */
    unsigned used_count, busy_new;
    struct world_event *events;
    unsigned event_count;
    struct world_flight flights[WORLD_FLIGHTS];
    uint8_t *bufs;                         /* CH_BATCH_MAX pages */
    struct store_page pages[CH_BATCH_MAX]; /* prepared */
    uint32_t versions[CH_BATCH_MAX];
    unsigned page_count;
};

struct world_options {
    enum store_kind kind;
    bool double_write;
    enum pack_codec codec;
    enum store_slots slots;
    enum place_policy placement; /* none = users' writes and GC in one zone */
    enum victim_policy victim;
    unsigned classes;
    uint32_t zones, zone_slots;
    bool volatile_cache;
    bool half;   /* pages that compress to a little more than half a slot: hopeless to pack */
    bool deltas; /* most versions of a page differ in few bytes, and are offered as deltas */
    bool file;   /* zones = most that it may grow to */
};

struct world *world_open(struct zt *t, const struct world_options *o);
void world_close(struct world *w);

/* What `version` of page `pid` looks like. */
void world_fill(const struct world *w, void *page, page_id pid, uint32_t version);
/* The version that stands in a page read from the store; fails the test if the page is not whole. */
uint32_t world_version(struct world *w, const void *page, page_id pid);

/* Writes the given pages (not in flight) as new versions into a free flight; makes room by GC if `collect`. */
int world_write(struct world *w, const page_id *pids, unsigned n, bool collect);
/* All of these return the error of a log or device that fails by plan. */
/* Its two halves: new versions made and logged; the store's part. */
int world_prepare(struct world *w, const page_id *pids, unsigned n);
int world_submit(struct world *w, bool collect);
/* The same for up to n pages drawn at random, new ones among them as long as there is room. */
int world_write_random(struct world *w, unsigned n, unsigned new_percent);
/* Draws up to n used pages without a write in flight. */
unsigned world_draw(struct world *w, page_id *pids, unsigned n);
int world_new_page(struct world *w, page_id *out);
/* Publishes what is ready; all of it, by a flush, if `force`. */
int world_publish(struct world *w, bool force);
int world_free_pages(struct world *w, unsigned n);
/* One urgent GC step; EFULL when nothing can be gained. */
int world_collect(struct world *w);
/* Reads one page and compares it with the model. */
void world_read(struct world *w, page_id pid);
void world_read_all(struct world *w);
/* Verifies the store, its tables and the bytes counted on the device. */
void world_check(struct world *w);
/* Power cut, then recovery from the log alone; compares with what was durable, and adopts what is there. */
void world_crash(struct world *w, uint64_t seed);

#endif
