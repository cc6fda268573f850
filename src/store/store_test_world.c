/* store_test_world.c - see store_test_world.h. */
#include "store/store_test_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "page/page.h"

enum {
    RECORD_TEST = 200, /* stands for the engine's own records: gives pages their LSN */
    VERSION_AT = PAGE_HEADER_BYTES,
    BODY_AT = PAGE_HEADER_BYTES + 4
};

/* ---- contents ---- */

/* Of deltas: seven of eight versions of a page are alike but for some bytes. */
static void
fill_change(const struct world *w, uint8_t *p, page_id pid, uint32_t version)
{
    struct ch_prng rng;
    size_t n, at;

    ch_prng_init(&rng, pid << 32 ^ version ^ w->t->seed << 20 ^ 77);
    n = ch_prng_below(&rng, 150);
    at = BODY_AT + ch_prng_below(&rng, CH_PAGE_BYTES - BODY_AT - n);
    ch_prng_fill(&rng, p + at, n);
}

void
world_fill(const struct world *w, void *page, page_id pid, uint32_t version)
{
    bool alike = w->deltas && version % 8 != 0;
    uint8_t *p = page;
    struct ch_prng rng;
    size_t random;

    page_init(p, pid, PAGE_LEAF, 0, 1 + (uint32_t)(pid % WORLD_TREES));
    ch_put32(p + VERSION_AT, version);
    ch_prng_init(&rng, pid << 32 ^ (alike ? 0 : version) ^ w->t->seed << 20);
    /* Mostly compressible, some not at all. */
    random = ch_prng_below(&rng, 16) == 0 ? CH_PAGE_BYTES - BODY_AT
                                          : ch_prng_below(&rng, CH_PAGE_BYTES - BODY_AT);
    if (w->half)
        random = CH_PAGE_BYTES / 2 + ch_prng_below(&rng, 200);
    ch_prng_fill(&rng, p + BODY_AT, random);
    memset(p + BODY_AT + random, (int)((alike ? 1 : version) & 0xff),
           CH_PAGE_BYTES - BODY_AT - random);
    if (alike)
        fill_change(w, p, pid, version);
}

uint32_t
world_version(struct world *w, const void *page, page_id pid)
{
    uint8_t want[CH_PAGE_BYTES];
    uint32_t version = ch_get32((const uint8_t *)page + VERSION_AT);

    ZT_OK(w->t, page_check(page, pid));
    world_fill(w, want, pid, version);
    ZT_CHECK(w->t, memcmp(want + PAGE_HEADER_BYTES, (const uint8_t *)page + PAGE_HEADER_BYTES,
                          CH_PAGE_BYTES - PAGE_HEADER_BYTES) == 0);
    return version;
}

static void
event_add(struct world *w, page_id pid, uint32_t version)
{
    ZT_CHECK(w->t, w->event_count < WORLD_EVENTS);
    w->events[w->event_count++] =
        (struct world_event){.lsn = wal_end(w->wal), .pid = pid, .version = version};
    w->version[pid] = version;
}

/* ---- open, close ---- */

static void
open_wal(struct world *w, lsn_t start)
{
    struct wal_config cfg = {
        .dev = w->dev,
        .base = WORLD_LOG_BASE,
        .bytes = WORLD_LOG_BYTES,
        .buffer_bytes = 256 << 10,
        .db_id = 42,
        .epoch = w->epoch,
        .start = start,
        .cut = WAL_BLOCK,
        .user_percent = 75,
    };

    ZT_OK(w->t, wal_create(&cfg, &w->wal));
    store_set_wal(w->store, w->wal);
}

static void
open_dev(struct world *w)
{
    static const struct dev_fault_plan plan;
    struct dev *inner = NULL;
    uint64_t media;

    if (w->path[0] != '\0')
        ZT_OK(w->t, dev_open(w->path, DEV_CREATE, 0, &inner));
    else
        ZT_OK(w->t, dev_sim_open(w->drive, &inner));
    ZT_OK(w->t, dev_fault_open(inner, &plan, &w->dev));
    w->cfg.dev = w->dev;
    dev_physical(w->dev, &w->host_base, &media);
    w->faulty = false;
}

struct world *
world_open(struct zt *t, const struct world_options *o)
{
    struct world *w = calloc(1, sizeof(*w));
    char cfg[160];
    uint64_t zone_bytes = (uint64_t)o->zone_slots * CH_SLOT_BYTES;
    uint64_t bytes = WORLD_LOG_BASE + WORLD_LOG_BYTES + o->zones * zone_bytes;

    ZT_CHECK(t, w != NULL);
    w->t = t;
    w->half = o->half;
    w->deltas = o->deltas;
    w->events = calloc(WORLD_EVENTS, sizeof(*w->events));
    w->bufs = ch_alloc_aligned((size_t)CH_BATCH_MAX * CH_PAGE_BYTES);
    ZT_CHECK(t, w->events != NULL && w->bufs != NULL);
    bytes = ch_round_up(bytes, 1 << 20);
    (void)snprintf(cfg, sizeof(cfg),
                   "generic,bytes=%" PRIu64 "M,superblock=1M,cache=%s,seed=%" PRIu64, bytes >> 20,
                   o->volatile_cache ? "volatile" : "none", t->seed);
    if (o->file)
        (void)snprintf(w->path, sizeof(w->path), "%s/store", zt_tmpdir(t));
    else
        ZT_OK(t, sim_drive_create(cfg, &w->drive));
    open_dev(w);
    w->cfg = (struct store_config){
        .kind = o->kind,
        .double_write = o->double_write,
        .dev = w->dev,
        .codec = o->codec,
        .placement = o->placement,
        .slots = o->slots,
        .victim = o->victim,
        .classes = o->classes,
        .open_zones = 2 * o->classes,
        .zones_base = WORLD_LOG_BASE + WORLD_LOG_BYTES,
        .zone_bytes = zone_bytes,
        .zones = o->file ? 1 : o->zones,
        .growable = o->file,
        .zones_max = o->zones,
        .pages_max = WORLD_PAGES,
        .batch_pages = 64,
        .deltas = o->deltas,
        .delta_memory = zt_below(t, 2) * zt_below(t, 256 << 10),
        .delta_percent = 10 + (unsigned)zt_below(t, 91),
        .space_target = 140,
        .discard = true,
        .inplace_first_zone = store_inplace_dblwr_zones(zone_bytes),
    };
    w->epoch = 1;
    w->epoch_start = WAL_BLOCK;
    ZT_OK(t, store_create(&w->cfg, &w->store));
    ZT_OK(t, store_format(w->store));
    open_wal(w, WAL_BLOCK);
    return w;
}

void
world_close(struct world *w)
{
    wal_destroy(w->wal);
    store_destroy(w->store);
    dev_close(w->dev);
    if (w->drive != NULL)
        sim_drive_destroy(w->drive);
    free(w->events);
    ch_free_aligned(w->bufs);
    free(w);
}

/* ---- writing ---- */

static struct world_flight *
flight_get(struct world *w)
{
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < WORLD_FLIGHTS; i++)
            if (!w->flights[i].busy)
                return &w->flights[i];
        if (world_publish(w, true) != 0)
            break;
    }
    return NULL;
}

/* The engine's log record of the change: gives the page its LSN, durable before the write (S2). */
static int
log_change(struct world *w, page_id pid, lsn_t *lsn)
{
    struct wal_ticket t = {0};
    struct wal_part part = {.data = &pid, .bytes = sizeof(pid)};
    int rc = wal_reserve(w->wal, WAL_USER, WAL_RECORD_HEADER + sizeof(pid), &t);

    if (rc != 0)
        return rc;
    *lsn = wal_append(w->wal, &t, RECORD_TEST, CH_WAL, &part, 1);
    wal_release(w->wal, &t);
    return 0;
}

static void
note_written(struct world *w, struct world_flight *f)
{
    unsigned k = 0;

    f->busy = true;
    for (unsigned i = 0; i < w->page_count; i++) {
        page_id pid = w->pages[i].pid;

        if (w->pages[i].carried)
            continue;
        ZT_CHECK(w->t, f->batch.pids[k] == pid);
        f->versions[k++] = w->versions[i];
        w->busy[pid] = true;
        w->busy_new += w->version[pid] == 0;
    }
    ZT_CHECK(w->t, k == f->batch.count);
}

/* What a delta of the page is made of, as the page cache knows it: what the read says, and what differs from that. */
static void
offer_delta(struct world *w, struct store_page *p)
{
    uint8_t last[CH_PAGE_BYTES] __attribute__((aligned(CH_PAGE_BYTES)));
    struct store_origin origin = {0};

    if (!w->deltas || store_read_from(w->store, p->pid, last, &origin) != 0)
        return;
    p->base_lsn = origin.base_lsn;
    p->delta_mask = origin.mask;
    for (unsigned i = 0; i < CH_PAGE_BYTES / PACK_BLOCK; i++) {
        size_t at = (size_t)i * PACK_BLOCK;

        if (memcmp(last + at, (const uint8_t *)p->page + at, PACK_BLOCK) != 0)
            p->delta_mask |= UINT64_C(1) << i;
    }
}

int
world_prepare(struct world *w, const page_id *pids, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint8_t *p = w->bufs + (size_t)i * CH_PAGE_BYTES;
        lsn_t lsn = 0;
        int rc = log_change(w, pids[i], &lsn);

        if (rc != 0)
            return rc;
        w->versions[i] = ++w->next_version;
        world_fill(w, p, pids[i], w->versions[i]);
        page_set_lsn(p, lsn);
        if (zt_below(w->t, 2) == 0)
            page_note_write(p, page_lsn(p));
        w->pages[i] = (struct store_page){.pid = pids[i], .lsn = page_lsn(p), .page = p};
        offer_delta(w, &w->pages[i]);
    }
    w->page_count = n;
    return wal_flush(w->wal, wal_end(w->wal));
}

int
world_submit(struct world *w, bool collect)
{
    struct world_flight *f = flight_get(w);
    int rc = 0;

    if (f == NULL)
        return COHORT_EFAILED;
    for (unsigned i = 0; i < w->page_count; i++)
        w->tried[w->pages[i].pid] = w->versions[i];
    for (unsigned tries = 0; rc == 0; tries++) {
        uint32_t idle = zone_free_count(store_zones(w->store));

        memset(&f->batch, 0, sizeof(f->batch));
        rc = store_write(w->store, w->pages, w->page_count, zt_below(w->t, 2) == 0, &f->batch);
        if (rc == 0)
            note_written(w, f);
        /* A refused write takes nothing; else batches larger than what GC frees at a time starve. */
        ZT_CHECK(w->t, rc != COHORT_EFULL || w->concurrent || w->faulty ||
                           zone_free_count(store_zones(w->store)) >= idle);
        if (rc != COHORT_EFULL || !collect)
            break;
        ZT_CHECK(w->t, tries < 2000); /* neither room nor EFULL of the collector */
        rc = world_publish(w, true);
        if (rc == 0)
            rc = world_collect(w);
    }
    return rc;
}

int
world_write(struct world *w, const page_id *pids, unsigned n, bool collect)
{
    int rc = world_prepare(w, pids, n);

    return rc == 0 ? world_submit(w, collect) : rc;
}

int
world_new_page(struct world *w, page_id *out)
{
    int rc = store_pid_alloc(w->store, out);

    if (rc != 0)
        return rc;
    ZT_CHECK(w->t, !w->used[*out] && *out > 0 && *out < WORLD_PAGES);
    w->used[*out] = true;
    w->used_count++;
    return 0;
}

/* A used page without a write in flight, or 0. */
static page_id
random_page(struct world *w)
{
    page_id start = zt_below(w->t, WORLD_PAGES);

    for (page_id i = 0; i < WORLD_PAGES; i++) {
        page_id pid = (start + i) % WORLD_PAGES;

        if (w->used[pid] && !w->busy[pid])
            return pid;
    }
    return 0;
}

unsigned
world_draw(struct world *w, page_id *pids, unsigned n)
{
    unsigned k = 0;

    while (k < n && (pids[k] = random_page(w)) != 0)
        w->busy[pids[k++]] = true; /* drawn once only */
    for (unsigned i = 0; i < k; i++)
        w->busy[pids[i]] = false;
    return k;
}

int
world_write_random(struct world *w, unsigned n, unsigned new_percent)
{
    page_id pids[CH_BATCH_MAX];
    unsigned k = 0;
    int rc;

    for (unsigned i = 0; i < n; i++) {
        page_id pid = 0;

        if (zt_below(w->t, 100) < new_percent && store_has_room(w->store, w->busy_new + k, 1)) {
            rc = world_new_page(w, &pid);
            if (rc != 0)
                return rc;
        } else {
            pid = random_page(w);
        }
        if (pid == 0)
            continue;
        w->busy[pid] = true; /* drawn once only */
        pids[k++] = pid;
    }
    for (unsigned i = 0; i < k; i++)
        w->busy[pids[i]] = false;
    return k == 0 ? 0 : world_write(w, pids, k, true);
}

int
world_publish(struct world *w, bool force)
{
    if (force && wal_flush_force(w->wal) != 0)
        return COHORT_EFAILED;
    for (unsigned i = 0; i < WORLD_FLIGHTS; i++) {
        struct world_flight *f = &w->flights[i];
        int rc;

        if (!f->busy || !store_ready(w->store, &f->batch))
            continue;
        rc = store_publish(w->store, &f->batch);
        if (rc != 0)
            return rc;
        for (unsigned j = 0; j < f->batch.count; j++) {
            page_id pid = f->batch.pids[j];

            w->busy_new -= w->version[pid] == 0;
            w->busy[pid] = false;
            event_add(w, pid, f->versions[j]);
        }
        f->busy = false;
    }
    return 0;
}

int
world_free_pages(struct world *w, unsigned n)
{
    page_id pids[2 * CH_BATCH_MAX]; /* more than fits into one MAP record */
    unsigned k = 0;
    int rc;

    for (unsigned i = 0; i < n && k < CH_ARRAY_LEN(pids); i++) {
        page_id pid = random_page(w);

        if (pid == 0)
            break;
        w->used[pid] = false;
        w->used_count--;
        pids[k++] = pid;
    }
    if (k == 0)
        return 0;
    rc = store_pid_free(w->store, pids, k);
    for (unsigned i = 0; i < k && rc == 0; i++)
        event_add(w, pids[i], 0);
    return rc;
}

int
world_collect(struct world *w)
{
    bool did = false;
    int rc = store_gc_step(w->store, true, &did);

    ZT_CHECK(w->t, rc != 0 || did);
    return rc;
}

/* ---- reading, checking ---- */

void
world_read(struct world *w, page_id pid)
{
    uint8_t *buf = w->bufs;
    int rc = store_read(w->store, pid, buf);

    if (w->version[pid] == 0) {
        ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
        return;
    }
    ZT_OK(w->t, rc);
    /* In place a page shows what was written before that is published. */
    ZT_CHECK(w->t,
             world_version(w, buf, pid) ==
                 (w->cfg.kind == STORE_INPLACE && w->busy[pid] ? w->tried[pid] : w->version[pid]));
}

void
world_read_all(struct world *w)
{
    enum {
        MANY = 64
    };
    page_id pids[MANY];
    void *bufs[MANY];
    int rcs[MANY];

    for (page_id first = 0; first < WORLD_PAGES; first += MANY) {
        for (unsigned i = 0; i < MANY; i++) {
            pids[i] = first + i;
            bufs[i] = w->bufs + (size_t)i * CH_PAGE_BYTES;
        }
        store_read_many(w->store, pids, bufs, rcs, NULL, MANY);
        for (unsigned i = 0; i < MANY; i++) {
            ZT_CHECK(w->t, rcs[i] == (w->version[pids[i]] == 0 ? COHORT_NOTFOUND : 0));
            ZT_CHECK(w->t,
                     rcs[i] != 0 || world_version(w, bufs[i], pids[i]) == w->version[pids[i]]);
        }
    }
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "    verify: %s\n", line);
}

void
world_check(struct world *w)
{
    struct dev_counts c;
    struct store_counts sc;
    uint64_t host = 0;
    uint64_t media = 0;
    uint64_t sum = 0;

    ZT_CHECK(w->t, store_verify(w->store, print_finding, NULL) == 0);
    ZT_CHECK(w->t, zone_check(store_zones(w->store)));
    ZT_CHECK(w->t, map_check(store_map(w->store)));
    dev_counts(w->dev, &c);
    for (unsigned i = 0; i < CH_CAUSES; i++)
        sum += c.written[i];
    dev_physical(w->dev, &host, &media);
    ZT_CHECK(w->t, sum == c.host_bytes);
    ZT_CHECK(w->t, host == COHORT_UNKNOWN || w->faulty || host == w->host_base + c.host_bytes);
    store_counts(w->store, &sc);
    /* Failed writes are counted on the device only. */
    ZT_CHECK(w->t, w->faulty || c.written[CH_USER] + c.written[CH_DELTA] == sc.page_write_stored);
    ZT_CHECK(w->t,
             (c.written[CH_USER] + c.written[CH_DELTA] + c.written[CH_GC] + c.written[CH_PAD]) %
                     CH_SLOT_BYTES ==
                 0);
    ZT_CHECK(w->t, w->faulty || c.written[CH_DELTA] == sc.delta_bytes);
    ZT_CHECK(w->t, w->deltas || w->cfg.codec != PACK_NONE || w->packs || c.written[CH_PAD] == 0);
}

/* ---- crash ---- */

static lsn_t
replay_log(struct world *w)
{
    struct wal_scan_config cfg = {
        .dev = w->dev,
        .base = WORLD_LOG_BASE,
        .bytes = WORLD_LOG_BYTES,
        .db_id = 42,
        .from = WAL_BLOCK,
        .epoch_min = 1,
        .epoch_start = w->epoch_start,
        .epoch = w->epoch,
    };
    struct wal_scan *scan = NULL;
    struct wal_record r;
    lsn_t tail;
    int rc;

    ZT_OK(w->t, wal_scan_open(&cfg, &scan));
    while ((rc = wal_scan_next(scan, &r)) == 0)
        if (r.type == STORE_RECORD_MAP)
            ZT_OK(w->t, store_replay(w->store, r.data, r.bytes));
    ZT_STATUS(w->t, rc, COHORT_NOTFOUND);
    tail = wal_scan_tail(scan);
    wal_scan_close(scan);
    return tail;
}

/* Whether state `version` of the page is one that a crash may leave: the last durable one, or a later one. */
static bool
may_be(const struct world *w, page_id pid, uint32_t version, lsn_t durable)
{
    /* In place the home slot may have got what was never published. */
    if (w->cfg.kind == STORE_INPLACE && version != 0 && version == w->tried[pid])
        return true;
    for (unsigned i = w->event_count; i-- > 0;) {
        if (w->events[i].pid != pid)
            continue;
        if (w->events[i].version == version)
            return true;
        if (w->events[i].lsn <= durable && w->cfg.kind == STORE_OOP)
            return false;
        /* In place a write is final when it is done, whatever the log says of it. */
        if (w->cfg.kind == STORE_INPLACE && w->events[i].version != 0 && version != 0)
            return false;
        if (w->cfg.kind == STORE_INPLACE && w->events[i].lsn <= durable)
            return false;
    }
    return version == 0; /* never published */
}

static void
adopt(struct world *w, lsn_t durable)
{
    w->used_count = w->busy_new = 0;
    memset(w->flights, 0, sizeof(w->flights));
    for (page_id pid = 1; pid < WORLD_PAGES; pid++) {
        int rc = store_read(w->store, pid, w->bufs);
        uint32_t version = 0;

        if (rc != COHORT_NOTFOUND) {
            ZT_OK(w->t, rc);
            version = world_version(w, w->bufs, pid);
        }
        ZT_CHECK(w->t, may_be(w, pid, version, durable));
        w->version[pid] = w->tried[pid] = version;
        w->busy[pid] = false;
        w->used[pid] = map_pid_is_used(store_map(w->store), pid);
        ZT_CHECK(w->t, w->used[pid] == (version != 0));
        w->used_count += w->used[pid];
    }
    w->event_count = 0;
    for (page_id pid = 1; pid < WORLD_PAGES; pid++)
        if (w->version[pid] != 0)
            w->events[w->event_count++] =
                (struct world_event){.lsn = 0, .pid = pid, .version = w->version[pid]};
}

void
world_crash(struct world *w, uint64_t seed)
{
    lsn_t durable = wal_durable(w->wal);
    unsigned repaired = 0;
    lsn_t tail;

    sim_drive_crash(w->drive, seed);
    wal_destroy(w->wal);
    store_destroy(w->store); /* with batches in flight, as the process would end */
    dev_close(w->dev);
    w->wal = NULL;
    w->store = NULL;
    open_dev(w);
    ZT_OK(w->t, store_create(&w->cfg, &w->store));
    ZT_OK(w->t, store_repair(w->store, &repaired));
    tail = replay_log(w);
    w->epoch++;
    w->epoch_start = tail;
    open_wal(w, tail);
    ZT_OK(w->t, store_reconcile(w->store));
    map_pid_rebuild(store_map(w->store), NULL, NULL);
    adopt(w, durable);
    ZT_CHECK(w->t, store_verify(w->store, print_finding, NULL) == 0);
}
