/* store_test.c - the store against a model: both ways to write, all codecs, GC under pressure, crashes, faults. */
#include "store/store_test_world.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "page/page.h"
#include "rt/rt.h"

static void
gc_step(struct world *w, bool urgent)
{
    bool did;
    int rc = store_gc_step(w->store, urgent, &did);

    /* A young store has nothing to collect. */
    ZT_CHECK(w->t, rc == 0 || (rc == COHORT_EFULL && urgent));
}

/* Goal: whatever is written, freed and collected, each page reads back as published last, and a write finds room
 * as long as store_has_room() says so. Method: random steps on a small, nearly full store. */
static void
run_model(struct zt *t, const struct world_options *o, unsigned steps)
{
    struct world *w = world_open(t, o);
    struct store_counts c;

    for (unsigned i = 0; i < steps; i++) {
        switch (zt_below(t, 8)) {
        case 0:
        case 1:
        case 2:
        case 3:
            ZT_OK(t, world_write_random(w, 1 + (unsigned)zt_below(t, 64), 60));
            break;
        case 4:
            ZT_OK(t, world_publish(w, zt_below(t, 2) == 0));
            break;
        case 5:
            for (unsigned k = 0; k < 20; k++)
                world_read(w, zt_below(t, WORLD_PAGES));
            break;
        case 6:
            if (zt_below(t, 10) == 0)
                ZT_OK(t, world_free_pages(w, 1 + (unsigned)zt_below(t, 40)));
            break;
        default:
            gc_step(w, false);
            break;
        }
        if (i % 128 == 0)
            world_check(w);
    }
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    store_counts(w->store, &c);
    ZT_CHECK(t,
             o->kind == STORE_INPLACE || (c.gc_zones > 0 && c.zones_reset > 0 && c.retired == 0));
    ZT_CHECK(t, o->deltas == (c.delta_writes > 0) && o->deltas == (c.delta_reads > 0));
    world_close(w);
}

static void
test_model_raw(struct zt *t)
{
    run_model(t, &(struct world_options){.codec = PACK_NONE, .zones = 40, .zone_slots = 64}, 800);
}

static void
test_model_lz4(struct zt *t)
{
    run_model(t, &(struct world_options){.codec = PACK_LZ4, .zones = 40, .zone_slots = 64}, 1000);
}

/* Goal: the same with pages written as deltas; some are, and reading them takes a second slot now and then. */
static void
test_model_delta(struct zt *t)
{
    run_model(t,
              &(struct world_options){.codec = (enum pack_codec)zt_below(t, 3),
                                      .zones = 40,
                                      .zone_slots = 64,
                                      .deltas = true},
              1000);
}

static void
test_model_zstd(struct zt *t)
{
    run_model(t, &(struct world_options){.codec = PACK_ZSTD, .zones = 40, .zone_slots = 64}, 1000);
}

static void
test_model_tiny_zones(struct zt *t)
{
    run_model(t, &(struct world_options){.codec = PACK_LZ4, .zones = 60, .zone_slots = 16}, 600);
}

static void
test_model_large_zones(struct zt *t)
{
    run_model(t, &(struct world_options){.codec = PACK_LZ4, .zones = 8, .zone_slots = 600}, 1200);
}

/* The same with pages grouped by death time: batches of several parts, zones of several classes, scored victims. */
static void
test_model_placed(struct zt *t)
{
    struct world_options o = {.codec = (enum pack_codec)zt_below(t, 3),
                              .placement = PLACE_SEPGC + (enum place_policy)zt_below(t, 3),
                              .slots = (enum store_slots)zt_below(t, 3),
                              .victim = (enum victim_policy)zt_below(t, VICTIM_MDC + 1),
                              .classes = 1 + (unsigned)zt_below(t, 6),
                              .zones = 48,
                              .zone_slots = 16 + (uint32_t)zt_below(t, 40)};

    run_model(t, &o, 700);
}

static void
test_model_inplace(struct zt *t)
{
    struct world_options o = {.kind = STORE_INPLACE, .zones = 60, .zone_slots = 64};

    o.double_write = zt_below(t, 2) == 0;
    run_model(t, &o, 300);
}

/* The power will go at one of the next writes, or, what writes alone cannot show, between a write and its flush. */
static void
cut_power(struct world *w, struct dev_fault_plan *plan, unsigned writes, unsigned flushes)
{
    plan->fail_forever = true;
    if (zt_below(w->t, 2) == 0)
        plan->stop_after_writes = 1 + zt_below(w->t, writes);
    else
        plan->fail_nth[DEV_FLUSH] = 1 + zt_below(w->t, flushes);
    w->faulty = true;
    dev_fault_set(w->dev, plan);
}

/* Random steps until the power goes. */
static int
crash_steps(struct world *w, unsigned steps)
{
    struct zt *t = w->t;
    int rc = 0;

    for (unsigned i = 0; i < steps && rc == 0; i++) {
        rc = world_write_random(w, 1 + (unsigned)zt_below(t, 64), 50);
        if (rc == 0 && zt_below(t, 3) == 0)
            rc = world_publish(w, zt_below(t, 4) == 0);
        if (rc == 0 && zt_below(t, 8) == 0)
            rc = world_free_pages(w, (unsigned)zt_below(t, 64));
        for (uint64_t k = zt_below(t, 4); k > 0 && rc == 0; k--) {
            bool did;

            rc = store_gc_step(w->store, zt_below(t, 4) == 0, &did);
            rc = rc == COHORT_EFULL ? 0 : rc;
        }
    }
    return rc;
}

/* Goal: after a power cut each page is in its last durable state or a later one, and the store goes on. Method: cuts
 * between two requests or in the midst of one step's, with GC, frees and batches under way, over a drive that loses, tears
 * and garbles what was not flushed. */
static void
run_crash(struct zt *t, const struct world_options *o)
{
    struct world *w = world_open(t, o);

    for (unsigned crash = 0; crash < 12; crash++) {
        struct dev_fault_plan plan = {.code = COHORT_EIO};
        bool midst = zt_below(t, 4) != 0;
        int rc;

        ZT_OK(t, crash_steps(w, (unsigned)zt_below(t, 40)));
        if (midst)
            cut_power(w, &plan, 200, 60);
        rc = crash_steps(w, 100);
        ZT_CHECK(t, rc == 0 || (midst && (rc == COHORT_EFAILED || rc == COHORT_EIO)));
        world_crash(w, zt_below(t, UINT64_MAX));
    }
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    world_close(w);
}

static void
test_crash_raw(struct zt *t)
{
    run_crash(t, &(struct world_options){
                     .codec = PACK_NONE, .zones = 30, .zone_slots = 64, .volatile_cache = true});
}

static void
test_crash_lz4(struct zt *t)
{
    run_crash(t, &(struct world_options){
                     .codec = PACK_LZ4, .zones = 24, .zone_slots = 64, .volatile_cache = true});
}

/* Goal: the same with deltas: after any crash base and delta belong together, and zones are not reset under a base. */
static void
test_crash_delta(struct zt *t)
{
    run_crash(t, &(struct world_options){.codec = (enum pack_codec)zt_below(t, 3),
                                         .zones = 24,
                                         .zone_slots = 64,
                                         .volatile_cache = true,
                                         .deltas = true});
}

/* Goal: a cut inside of an in-place write never costs a page (R20). Method: the power goes after a random number of
 * write requests of one store_write(), so that copies or homes are torn. */
static void
test_crash_inplace_torn(struct zt *t)
{
    struct world_options o = {.kind = STORE_INPLACE,
                              .double_write = true,
                              .zones = 60,
                              .zone_slots = 64,
                              .volatile_cache = true};
    struct world *w = world_open(t, &o);

    for (unsigned crash = 0; crash < 8; crash++) {
        struct dev_fault_plan plan = {.code = COHORT_EIO};
        page_id pids[32];
        unsigned n;

        for (uint64_t i = zt_below(t, 6); i > 0; i--)
            ZT_OK(t, world_write_random(w, 32, 50));
        ZT_OK(t, world_publish(w, true));
        n = world_draw(w, pids, 32);
        if (n > 0) {
            ZT_OK(t, world_prepare(w, pids, n));
            cut_power(w, &plan, n + 4, 4);
            /* Two batches, so that the second may be torn while the first one's homes are new. */
            w->page_count = n / 2;
            if (n / 2 == 0 || world_submit(w, false) == 0) {
                memmove(w->pages, w->pages + n / 2, (n - n / 2) * sizeof(w->pages[0]));
                memmove(w->versions, w->versions + n / 2, (n - n / 2) * sizeof(w->versions[0]));
                w->page_count = n - n / 2;
                (void)!world_submit(w, false);
            }
        }
        world_crash(w, zt_below(t, UINT64_MAX));
    }
    world_check(w);
    world_read_all(w);
    world_close(w);
}

/* Goal: R20, the other half: a batch that was retired repairs nothing. */
static void
test_inplace_retired_batch(struct zt *t)
{
    struct world_options o = {
        .kind = STORE_INPLACE, .double_write = true, .zones = 60, .zone_slots = 64};
    struct world *w = world_open(t, &o);
    uint8_t garbage[CH_PAGE_BYTES];
    page_id pids[3];
    uint64_t first = w->cfg.zones_base + w->cfg.inplace_first_zone * w->cfg.zone_bytes;
    unsigned repaired = 0;

    ch_prng_fill(&t->rng, garbage, sizeof(garbage));
    for (unsigned i = 0; i < 3; i++)
        ZT_OK(t, world_new_page(w, &pids[i]));
    ZT_OK(t, world_write(w, pids, 2, false)); /* batch 1 */
    ZT_OK(t, world_publish(w, true));
    ZT_OK(t, world_write(w, pids + 1, 2, false)); /* batch 2 */
    ZT_OK(t, world_publish(w, true));
    world_read_all(w);
    for (unsigned i = 0; i < 3; i++)
        sim_drive_poke(w->drive, first + pids[i] * CH_PAGE_BYTES, garbage, sizeof(garbage));
    ZT_OK(t, store_repair(w->store, &repaired));
    ZT_CHECK(t, repaired == 2);
    ZT_STATUS(t, store_read(w->store, pids[0], w->bufs), COHORT_EPAGE);
    world_read(w, pids[1]);
    world_read(w, pids[2]);
    /* The batch's own copy damaged: not used either. */
    sim_drive_poke(w->drive, first + pids[2] * CH_PAGE_BYTES, garbage, sizeof(garbage));
    sim_drive_poke(w->drive, w->cfg.zones_base + 2 * CH_PAGE_BYTES, garbage, sizeof(garbage));
    ZT_OK(t, store_repair(w->store, &repaired));
    ZT_CHECK(t, repaired == 0);
    /* Nor a batch whose header is damaged, be it in its padding. */
    for (unsigned i = 0; i < 2; i++)
        sim_drive_poke(w->drive, w->cfg.zones_base + i * UINT64_C(257) * CH_PAGE_BYTES + 4000,
                       garbage, 8);
    sim_drive_poke(w->drive, first + pids[1] * CH_PAGE_BYTES, garbage, sizeof(garbage));
    ZT_OK(t, store_repair(w->store, &repaired));
    ZT_CHECK(t, repaired == 0);
    world_close(w);
}

/* A batch whose first write fails, or all of them if `forever`: then nothing was written. */
static unsigned
write_failing(struct world *w, bool forever)
{
    static const struct dev_fault_plan none;
    struct dev_fault_plan plan = {
        .fail_nth = {[DEV_WRITE] = 1}, .fail_forever = forever, .code = COHORT_EIO};
    page_id pids[64];
    unsigned n = world_draw(w, pids, 64);
    int rc;

    ZT_CHECK(w->t, n > 0);
    ZT_OK(w->t, world_publish(w, true));
    ZT_OK(w->t, world_prepare(w, pids, n));
    dev_fault_set(w->dev, &plan);
    rc = world_submit(w, false);
    dev_fault_set(w->dev, &none);
    /* What the failed writes took may have been the last room. */
    ZT_CHECK(w->t, rc == (forever ? COHORT_EIO : 0) || rc == COHORT_EFULL);
    ZT_OK(w->t, world_publish(w, true));
    return rc != COHORT_EFULL;
}

/* Goal: a failed write costs a zone, not a page. Method: writes of user batches and of GC fail, once or for good. */
static void
test_write_errors(struct zt *t)
{
    static const struct dev_fault_plan none;
    struct world_options o = {.codec = PACK_LZ4, .zones = 60, .zone_slots = 32};
    struct world *w = world_open(t, &o);
    struct store_counts c;
    unsigned failed = 0;

    w->faulty = true;
    for (unsigned i = 0; i < 500; i++) {
        ZT_OK(t, world_write_random(w, 1 + (unsigned)zt_below(t, 64), 20));
        ZT_OK(t, world_publish(w, true));
        if (i % 80 == 40) {
            /* Nothing is left for the log to write, so the first writes are the victim's images. */
            struct dev_fault_plan plan = {.fail_nth = {[DEV_WRITE] = 1}, .code = COHORT_EIO};

            ZT_OK(t, wal_flush(w->wal, wal_end(w->wal)));
            dev_fault_set(w->dev, &plan);
            gc_step(w, false);
            dev_fault_set(w->dev, &none);
            ZT_CHECK(t, !wal_failed(w->wal));
        }
        if (i % 60 == 20) {
            failed += write_failing(w, i % 120 == 20);
            world_check(w);
        }
    }
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    store_counts(w->store, &c);
    ZT_CHECK(t, failed > 0 && c.retired > 0);
    world_close(w);
}

/* Goal: a discard is advice: a drive that refuses all of them loses no zone by it. */
static void
test_discard_errors(struct zt *t)
{
    struct dev_fault_plan plan = {
        .fail_nth = {[DEV_RESET] = 1}, .fail_forever = true, .code = COHORT_EIO};
    struct world_options o = {.codec = PACK_LZ4, .zones = 40, .zone_slots = 32};
    struct world *w = world_open(t, &o);
    struct store_counts c;

    dev_fault_set(w->dev, &plan);
    for (unsigned i = 0; i < 300; i++) {
        ZT_OK(t, world_write_random(w, 64, 5));
        ZT_OK(t, world_publish(w, true));
    }
    store_counts(w->store, &c);
    ZT_CHECK(t, dev_fault_seen(w->dev, DEV_RESET) > 2 * o.zones);
    ZT_CHECK(t, c.retired == 0 && c.zones_reset > 2 * o.zones);
    world_check(w);
    world_read_all(w);
    world_close(w);
}

/* Goal: full is an error that leaves everything readable, and frees end it. */
static void
run_full(struct zt *t, enum pack_codec codec, bool half)
{
    struct world_options o = {.codec = codec, .half = half, .zones = 24, .zone_slots = 32};
    struct world *w = world_open(t, &o);
    int rc = 0;

    for (unsigned i = 0; i < 2000 && rc == 0; i++) {
        page_id pids[32];
        unsigned n = 0;

        while (n < 32 && rc == 0)
            rc = world_new_page(w, &pids[n++]);
        if (rc == 0)
            rc = world_write(w, pids, n, true);
        if (rc == 0)
            rc = world_publish(w, true);
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    ZT_CHECK(t, !store_has_room(w->store, 0, 64));
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    for (unsigned i = 0; i < 12; i++)
        ZT_OK(t, world_free_pages(w, w->used_count / 12));
    ZT_CHECK(t, store_has_room(w->store, 0, 16));
    for (unsigned i = 0; i < 50; i++)
        ZT_OK(t, world_write_random(w, 16, 0));
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    world_close(w);
}

static void
test_full_raw(struct zt *t)
{
    run_full(t, PACK_NONE, false);
}

static void
test_full_lz4(struct zt *t)
{
    run_full(t, PACK_LZ4, false);
}

/* Images that pack one to a slot: GC must see that it gains nothing, and admission that half full is full. */
static void
test_full_unpackable(struct zt *t)
{
    run_full(t, PACK_LZ4, true);
}

static void
test_full_inplace(struct zt *t)
{
    struct world_options o = {.kind = STORE_INPLACE, .zones = 40, .zone_slots = 64};
    struct world *w = world_open(t, &o);
    uint64_t homes = (o.zones - w->cfg.inplace_first_zone) * (uint64_t)o.zone_slots;
    page_id pid;
    int rc = 0;

    for (unsigned i = 0; i < WORLD_PAGES && rc == 0; i++) {
        ZT_CHECK(t, store_has_room(w->store, 0, 1) == (i < homes - 1));
        rc = world_new_page(w, &pid);
    }
    ZT_STATUS(t, rc, COHORT_EFULL);
    ZT_CHECK(t, w->used_count == homes - 1); /* page 0 is none */
    ZT_OK(t, world_free_pages(w, 1));
    ZT_CHECK(t, store_has_room(w->store, 0, 1));
    ZT_OK(t, world_new_page(w, &pid));
    world_check(w);
    world_close(w);
}

static int
write_without(struct world *w, page_id pid)
{
    int rc;

    w->busy[pid] = true;
    rc = world_write_random(w, 16, 0);
    if (rc == 0)
        rc = world_publish(w, true);
    w->busy[pid] = false;
    return rc;
}

/* Goal: G4: a damaged live image is reported once, keeps its zone, and goes with the page's next write. */
static void
test_gc_damaged_image(struct zt *t)
{
    struct world_options o = {
        .codec = zt_below(t, 2) == 0 ? PACK_LZ4 : PACK_NONE, .zones = 24, .zone_slots = 32};
    struct world *w = world_open(t, &o);
    uint8_t garbage[8];
    page_id pid;
    place_t place;
    int rc = 0;

    ch_prng_fill(&t->rng, garbage, sizeof(garbage));
    for (unsigned i = 0; i < 30; i++)
        ZT_OK(t, world_write_random(w, 32, 30));
    ZT_OK(t, world_publish(w, true));
    do {
        pid = 1 + zt_below(t, w->used_count);
        place = w->version[pid] != 0 ? map_get(store_map(w->store), pid) : PLACE_NONE;
    } while (place == PLACE_NONE);
    sim_drive_poke(w->drive,
                   place_slot(place) * CH_SLOT_BYTES + place_offset(place) +
                       zt_below(t, place_bytes(place) - sizeof(garbage)),
                   garbage, sizeof(garbage));
    /* Greedy GC comes to that zone when it is the emptiest, which random writes bring about sooner or later. */
    for (unsigned i = 0; i < 4000 && rc == 0; i++) {
        bool did;

        rc = write_without(w, pid);
        if (rc == 0)
            rc = store_gc_step(w->store, true, &did);
    }
    ZT_STATUS(t, rc, COHORT_EIMAGE);
    ZT_CHECK(t, map_get(store_map(w->store), pid) == place);
    for (unsigned i = 0; i < 100; i++) {
        rc = write_without(w, pid);
        ZT_OK(t, rc);
    }
    ZT_CHECK(t, map_get(store_map(w->store), pid) == place);
    rc = store_read(w->store, pid, w->bufs);
    ZT_CHECK(t, rc == COHORT_EIMAGE || rc == COHORT_EPAGE);
    ZT_CHECK(t, store_verify(w->store, NULL, NULL) == 1);
    ZT_OK(t, world_write(w, &pid, 1, true));
    ZT_OK(t, world_publish(w, true));
    world_check(w);
    world_read_all(w);
    world_close(w);
}

static uint32_t
zones_used(struct world *w)
{
    return zone_count(store_zones(w->store)) - zone_free_count(store_zones(w->store));
}

/* What the space target grants, and the room for manoeuvre: two open zones, the reserve, one batch. */
static void
check_target(struct world *w)
{
    uint64_t live = zone_live_total(store_zones(w->store));

    ZT_CHECK(w->t,
             zones_used(w) <= ch_div_up(live / 100 * w->cfg.space_target, w->cfg.zone_bytes) + 6);
}

/* Bytes that the file system gave the data area, about: all but what the log has written. */
static uint64_t
data_blocks(struct world *w)
{
    struct stat st;
    uint64_t bytes;

    ZT_CHECK(w->t, stat(w->path, &st) == 0);
    bytes = (uint64_t)st.st_blocks * 512;
    return bytes - ch_min_u64(bytes, ch_min_u64(wal_end(w->wal), WORLD_LOG_BYTES));
}

/* Goal: a file grows with its live bytes and shrinks with them, within the space target. */
static void
test_growable(struct zt *t)
{
    struct world_options o = {.codec = PACK_LZ4, .zones = 200, .zone_slots = 64, .file = true};
    struct world *w = world_open(t, &o);
    bool did = true;

    for (unsigned i = 0; i < 400; i++) {
        ZT_OK(t, world_write_random(w, 1 + (unsigned)zt_below(t, 64), 20));
        ZT_OK(t, world_publish(w, zt_below(t, 2) == 0));
        gc_step(w, false);
        check_target(w);
    }
    /* The same when nobody collects but writes that found no room. */
    for (unsigned i = 0; i < 200; i++) {
        ZT_OK(t, world_write_random(w, 1 + (unsigned)zt_below(t, 64), 10));
        ZT_OK(t, world_publish(w, zt_below(t, 2) == 0));
        check_target(w);
    }
    ZT_CHECK(t, zone_count(store_zones(w->store)) > 8);
    world_check(w);
    for (unsigned i = 0; i < 20; i++)
        ZT_OK(t, world_free_pages(w, w->used_count / 8));
    ZT_OK(t, world_publish(w, true));
    for (unsigned i = 0; i < 2000 && did; i++) {
        ZT_OK(t, wal_flush(w->wal, wal_end(w->wal)));
        ZT_OK(t, store_gc_step(w->store, false, &did));
    }
    ZT_CHECK(t, !did); /* it comes to rest */
    check_target(w);
    /* R11: the reserve keeps its blocks; what lower zones displaced from it does not. */
    ZT_CHECK(t, data_blocks(w) <= (zones_used(w) + 4) * w->cfg.zone_bytes);
    world_check(w);
    world_read_all(w);
    world_close(w);
}

/* Nobody gets room in the log any more. */
static void
fill_log(struct world *w)
{
    static const uint8_t data[60000];

    for (uint32_t bytes = sizeof(data); bytes >= 16; bytes /= 8) {
        struct wal_ticket ticket = {.once = true};
        struct wal_part part = {data, bytes - WAL_RECORD_HEADER};

        while (wal_reserve(w->wal, WAL_SYSTEM, bytes, &ticket) == 0) {
            (void)wal_append(w->wal, &ticket, 200, CH_WAL, &part, 1);
            ZT_OK(w->t, wal_flush(w->wal, wal_end(w->wal)));
        }
    }
}

/* Goal: a zone that died by a change without a record waits for a checkpoint (R11), which may take long: a file grows meanwhile, and
 * what cannot grow is full at once and says why.
 * Method: all pages of a zone are written anew while the log is full; who needs room asks GC for it. */
static void
test_growable_beside_waiting(struct zt *t)
{
    enum {
        SLOTS = 64
    };
    struct world_options o = {.codec = PACK_NONE, .zones = 200, .zone_slots = SLOTS, .file = true};
    struct world *w = world_open(t, &o);
    struct zone_table *zones = store_zones(w->store);
    page_id pids[SLOTS], others[SLOTS];
    uint32_t before;
    bool did = true;
    int rc = 0;

    for (unsigned i = 0; i < SLOTS; i++)
        ZT_OK(t, world_new_page(w, &pids[i]));
    for (unsigned i = 0; i < SLOTS; i++)
        ZT_OK(t, world_new_page(w, &others[i]));
    ZT_OK(t, world_write(w, pids, SLOTS, true));
    ZT_OK(t, world_write(w, others, SLOTS, true));
    ZT_OK(t, world_publish(w, true));
    ZT_OK(t, world_prepare(w, pids, SLOTS));
    fill_log(w);
    ZT_OK(t, world_submit(w, true));
    ZT_OK(t, world_publish(w, true));
    before = zone_count(zones);
    for (unsigned i = 0; i < 4; i++)
        ZT_OK(t, store_gc_step(w->store, true, &did));
    ZT_CHECK(t, zone_waiting_count(zones) > 0 && zone_count(zones) > before);
    for (unsigned i = 0; i < o.zones && rc == 0; i++)
        rc = store_gc_step(w->store, true, &did);
    ZT_STATUS(t, rc, COHORT_EFULL);
    ZT_CHECK(t, zone_count(zones) == o.zones);
    ZT_CHECK(t, strstr(cohort_last_error()->text, "wait for the next checkpoint") != NULL);
    world_close(w);
}

/* ---- threads ---- */

enum {
    RACE_PAGES = 1200,
    RACE_READERS = 2
};

struct race {
    struct world *w;
    _Atomic bool stop;
    /* Published at least; relaxed, a lower bound that only grows. */
    _Atomic uint32_t floor[RACE_PAGES];
    _Atomic uint64_t reads;
};

static void
race_reader(void *arg)
{
    struct race *r = arg;
    struct ch_prng rng;
    uint8_t *page = ch_alloc_aligned(CH_PAGE_BYTES);
    uint8_t *want = ch_alloc_aligned(CH_PAGE_BYTES);

    ch_prng_init(&rng, rt_random());
    while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        page_id pid = 1 + ch_prng_below(&rng, RACE_PAGES - 1);
        uint32_t floor = atomic_load_explicit(&r->floor[pid], memory_order_relaxed);
        uint32_t version;
        int rc = store_read(r->w->store, pid, page);

        if (rc == COHORT_NOTFOUND && floor == 0)
            continue;
        ZT_OK(r->w->t, rc);
        version = ch_get32(page + PAGE_HEADER_BYTES);
        ZT_CHECK(r->w->t, version >= floor);
        world_fill(r->w, want, pid, version);
        ZT_CHECK(r->w->t, memcmp(page + PAGE_HEADER_BYTES, want + PAGE_HEADER_BYTES,
                                 CH_PAGE_BYTES - PAGE_HEADER_BYTES) == 0);
        atomic_fetch_add_explicit(&r->reads, 1, memory_order_relaxed);
    }
    ch_free_aligned(page);
    ch_free_aligned(want);
}

static void
race_collector(void *arg)
{
    struct race *r = arg;
    uint64_t urgent = 0;

    while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        bool did;
        int rc = store_gc_step(r->w->store, urgent++ % 4 == 0, &did);

        ZT_CHECK(r->w->t, rc == 0 || rc == COHORT_EFULL);
    }
}

/* Goal: readers, publication and GC at once: nobody reads anything but a whole page, of a version that is not older than
 * what was published before the read began. Also the test to run under TSan. */
static void
test_threads(struct zt *t)
{
    struct world_options o = {.codec = PACK_LZ4, .zones = 32, .zone_slots = 32};
    struct race *r = calloc(1, sizeof(*r));
    struct rt_thread threads[RACE_READERS + 1];
    struct store_counts c;
    uint64_t end;

    ZT_CHECK(t, r != NULL);
    r->w = world_open(t, &o);
    r->w->concurrent = true;
    for (unsigned i = 1; i < RACE_PAGES; i++) {
        page_id pid;

        ZT_OK(t, world_new_page(r->w, &pid));
    }
    for (unsigned i = 0; i < RACE_READERS; i++)
        ZT_OK(t, rt_spawn(&threads[i], "reader", race_reader, r));
    ZT_OK(t, rt_spawn(&threads[RACE_READERS], "collector", race_collector, r));
    end = rt_now_ns() + UINT64_C(1500) * 1000 * 1000;
    while (rt_now_ns() < end) {
        ZT_OK(t, world_write_random(r->w, 48, 0));
        ZT_OK(t, world_publish(r->w, zt_below(t, 2) == 0));
        for (page_id pid = 1; pid < RACE_PAGES; pid++)
            atomic_store_explicit(&r->floor[pid], r->w->version[pid], memory_order_relaxed);
        if (zt_below(t, 8) == 0) /* the collector does not make findings */
            ZT_CHECK(t, store_verify(r->w->store, NULL, NULL) == 0);
    }
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
    for (unsigned i = 0; i <= RACE_READERS; i++)
        rt_join(&threads[i]);
    ZT_OK(t, world_publish(r->w, true));
    world_check(r->w);
    world_read_all(r->w);
    store_counts(r->w->store, &c);
    ZT_CHECK(t, c.gc_moved > 0 && c.zones_reset > 0 &&
                    atomic_load_explicit(&r->reads, memory_order_relaxed) > 0);
    world_close(r->w);
    free(r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model_raw", test_model_raw, 6},
        {"model_lz4", test_model_lz4, 8},
        {"model_zstd", test_model_zstd, 3},
        {"model_delta", test_model_delta, 8},
        {"model_tiny_zones", test_model_tiny_zones, 6},
        {"model_large_zones", test_model_large_zones, 2},
        {"model_placed", test_model_placed, 8},
        {"model_inplace", test_model_inplace, 4},
        {"crash_raw", test_crash_raw, 12},
        {"crash_lz4", test_crash_lz4, 12},
        {"crash_delta", test_crash_delta, 12},
        {"crash_inplace_torn", test_crash_inplace_torn, 12},
        {"inplace_retired_batch", test_inplace_retired_batch, 1},
        {"write_errors", test_write_errors, 6},
        {"discard_errors", test_discard_errors, 2},
        {"full_raw", test_full_raw, 3},
        {"full_lz4", test_full_lz4, 3},
        {"full_unpackable", test_full_unpackable, 3},
        {"full_inplace", test_full_inplace, 1},
        {"gc_damaged_image", test_gc_damaged_image, 6},
        {"growable", test_growable, 3},
        {"growable_beside_waiting", test_growable_beside_waiting, 1},
        {"threads", test_threads, 2},
    };

    return zt_main(argc, argv, "store", cases, CH_ARRAY_LEN(cases));
}
