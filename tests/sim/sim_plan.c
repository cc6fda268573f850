/* sim_plan.c - one seed draws everything: device, options, keys, workload, faults, crashes.
 *
 * Numbers are drawn so that what is rare in the field is common here: caches and logs that are always
 * too small, devices that are nearly full, threads that meet on few keys.
 */
#include <inttypes.h>

#include "sim.h"

#define KIB UINT64_C(1024)
#define MS  UINT64_C(1000000)

enum {
    SIM_TRANSACTIONS = 1
};

static uint64_t
draw(struct ch_prng *p, uint64_t n)
{
    return ch_prng_below(p, n);
}

static bool
chance(struct ch_prng *p, unsigned percent)
{
    return ch_prng_below(p, 100) < percent;
}

/* Between lo and hi, small ones as likely as large ones. */
static uint64_t
draw_log(struct ch_prng *p, uint64_t lo, uint64_t hi)
{
    uint64_t top = lo;

    while (top < hi && draw(p, 8) != 0)
        top *= 2;
    return lo + draw(p, ch_min_u64(top, hi) - lo + 1);
}

/* Often just large enough for what is going to be written: garbage is collected all the time then, and
 * the device runs full. */
static void
draw_drive(struct sim_plan *p, struct ch_prng *r)
{
    bool untorn = p->opts.preset == COHORT_PRESET_INPLACE_ATOMIC;
    uint64_t data_kib = (uint64_t)p->keys * p->trees * (p->value_max / 2 + 40) / 1024;

    p->drive_kib = (p->opts.log_bytes + 18 * p->opts.zone_bytes) / 1024 + 64;
    p->drive_kib += data_kib * draw(r, 30) / 10;
    if (chance(r, 25))
        p->drive_kib += draw(r, 4096);
    p->drive_kib = ch_round_up(p->drive_kib, 128);
    (void)snprintf(
        p->drive, sizeof(p->drive),
        "superblock=128K,open=1,stripe=64K,spare=%" PRIu64 "%%,cache=%s,tear=%s,seed=%" PRIu64,
        7 + draw(r, 20), chance(r, 95) ? "volatile" : "none", untorn ? "no" : "yes", draw(r, 1000));
    if (chance(r, 90)) {
        p->timing.seed = ch_prng_next(r);
        p->timing.read_ns = 1 + draw_log(r, 1000, chance(r, 20) ? 20000000 : 200000);
        p->timing.write_ns = 1 + draw_log(r, 1000, 200000);
        p->timing.flush_ns = 1 + draw_log(r, 1000, 1000000);
        p->timing.slow_permille = chance(r, 20) ? 10 : 0;
    }
}

static void
draw_options(struct sim_plan *p, struct ch_prng *r)
{
    static const uint64_t ASYNC_MS[] = {1, 10, 100, 1000};
    static const uint64_t CACHES[] = {256, 384, 512, 1024, 2048}; /* users get 1024 at least */
    struct cohort_options *o = &p->opts;

    cohort_options_init(o);
    o->preset = draw(r, 5);
    o->codec = draw(r, 4);
    o->durability = chance(r, 50) ? COHORT_DURABILITY_SYNC : draw(r, 3);
    o->async_ms = ASYNC_MS[draw(r, CH_ARRAY_LEN(ASYNC_MS))];
    o->cache_bytes = CACHES[draw(r, CH_ARRAY_LEN(CACHES))] * KIB;
    o->zone_bytes = chance(r, 70) ? 64 * KIB : 96 * KIB;
    o->log_bytes = 256 * KIB + draw(r, 3) * 64 * KIB;
    o->checkpoint_percent = 5 + draw(r, 76);
    o->background = chance(r, 65);
    o->device_spare = chance(r, 50) ? 0 : draw(r, 30);
    o->discard = chance(r, 80);
    o->create = COHORT_CREATE_YES;
    o->force = 1;
    o->delta = chance(r, 50) ? COHORT_DELTA_ON : COHORT_DELTA_DEFAULT;
    o->delta_memory_bytes = chance(r, 50) ? 0 : draw(r, 64) * KIB;
    o->delta_percent = chance(r, 50) ? 30 : 1 + draw(r, 100);
}

/* The log in zones needs a few of them. Drawn by itself, so that all else is as it was before there was a choice. */
static void
draw_log_place(struct sim_plan *p)
{
    struct ch_prng r;
    bool inplace =
        p->opts.preset == COHORT_PRESET_INPLACE || p->opts.preset == COHORT_PRESET_INPLACE_ATOMIC;

    ch_prng_init(&r, p->seed ^ UINT64_C(0x10672));
    if (inplace || !chance(&r, 50))
        return;
    p->opts.log_place = COHORT_LOG_PLACE_ZONES;
    p->drive_kib += 3 * p->opts.zone_bytes / KIB;
    p->drive_kib = ch_round_up(p->drive_kib, 128);
}

static void
draw_workload(struct sim_plan *p, struct ch_prng *r)
{
    static const unsigned KEYS[] = {5, 30, 200, 400, 800, SIM_KEYS_MAX};
    static const unsigned VALUES[] = {24, 120, 500, 1000, 1000, COHORT_ENTRY_MAX};

    p->trees = 1;
    p->workers = 1 + (unsigned)draw(r, SIM_WORKERS_MAX);
    p->keys = KEYS[draw(r, CH_ARRAY_LEN(KEYS))];
    p->key_spread = chance(r, 60) ? p->keys : 1 + (unsigned)draw(r, p->keys);
    p->key_style = chance(r, 60) ? SIM_KEYS_SHORT : (enum sim_key_style)draw(r, SIM_KEY_STYLES);
    p->value_max = VALUES[draw(r, CH_ARRAY_LEN(VALUES))];
    p->get = (unsigned)draw(r, 40);
    p->del = (unsigned)draw(r, chance(r, 25) ? 45 : 15);
    p->insert = (unsigned)draw(r, 15);
    p->update = (unsigned)draw(r, 15);
    p->batch = chance(r, 60) ? (unsigned)draw(r, 15) : 0;
    p->scan = chance(r, 50) ? (unsigned)draw(r, 6) : 0;
    p->sync = chance(r, 50) ? (unsigned)draw(r, 5) : 0;
    p->checkpoint = chance(r, 50) ? 1 + (unsigned)draw(r, 2) : 0;
    p->preload = chance(r, 50);
    p->drain = chance(r, 30);
    p->stats = chance(r, 20) ? 1 : 0;
}

static void
draw_transactions(struct sim_plan *p, struct ch_prng *r)
{
    static const unsigned STEPS[] = {3, 8, 20, 50};
    static const uint64_t VERSIONS[] = {0, 8, 32, 128}; /* KiB */

    p->transactions = SIM_TRANSACTIONS && chance(r, 60);
    if (!p->transactions)
        return;
    p->trees = 1 + (unsigned)draw(r, SIM_TREES_MAX);
    p->drain = false;
    p->serializable = chance(r, 60) ? (unsigned)draw(r, 101) : 0;
    p->prepare = chance(r, 40) ? (unsigned)draw(r, 25) : 0;
    p->txn_steps = STEPS[draw(r, CH_ARRAY_LEN(STEPS))];
    p->keys = (unsigned)ch_min_u64(p->keys, 400);
    p->key_spread = 1 + (unsigned)draw(r, p->keys);
    if (chance(r, 15))
        p->value_max = 3000 + (unsigned)draw(r, 30000);
    p->opts.lock_timeout_ms = draw(r, 4) * 20;
    p->opts.version_bytes = VERSIONS[draw(r, CH_ARRAY_LEN(VERSIONS))] * KIB;
}

static void
draw_fault(struct sim_boot *b, struct ch_prng *r, unsigned ops)
{
    static const enum dev_op OPS[] = {DEV_READ, DEV_WRITE, DEV_FLUSH, DEV_RESET};
    enum dev_op op = OPS[draw(r, CH_ARRAY_LEN(OPS))];

    b->faults = true;
    b->fault.code = chance(r, 80) ? COHORT_EIO : COHORT_EFULL;
    if (chance(r, 20))
        b->fault.short_nth = 1 + draw_log(r, 1, ops);
    else
        b->fault.fail_nth[op] = 1 + draw_log(r, 1, op == DEV_FLUSH || op == DEV_WRITE ? ops : 64);
    b->fault.fail_forever = chance(r, 30);
}

static void
draw_boot(struct sim_plan *p, struct sim_boot *b, struct ch_prng *r)
{
    unsigned total;

    b->end = (enum sim_end)draw(r, SIM_ENDS);
    b->crash_seed = ch_prng_next(r);
    b->ops = 10 + (unsigned)draw_log(r, 10, 1200 / p->workers);
    total = b->ops * p->workers;
    if (chance(r, 15))
        draw_fault(b, r, total);
    if (b->end == SIM_END_WRITES)
        b->fault.stop_after_writes = b->at = 1 + draw_log(r, 4, total);
    if (b->end == SIM_END_FLUSHES)
        b->fault.stop_after_flushes = b->at = 1 + draw_log(r, 4, total);
    if (b->end == SIM_END_TIME) {
        b->at = draw(r, total);
        b->after_ns = draw_log(r, 1000, 2 * MS);
    }
    if (b->end >= SIM_END_WRITES && chance(r, 30)) {
        b->recovery_cuts = 1 + (unsigned)draw(r, CH_ARRAY_LEN(b->recovery_at));
        for (unsigned i = 0; i < b->recovery_cuts; i++) {
            b->recovery_flush[i] = chance(r, 40);
            b->recovery_at[i] = 1 + draw_log(r, 1, b->recovery_flush[i] ? 8 : 64);
            b->recovery_seed[i] = ch_prng_next(r);
        }
    }
}

/* Drawn last, so that the rest of a seed's plan is what it was before there was placement. */
static void
draw_placement(struct sim_plan *p, struct ch_prng *r)
{
    static const uint64_t grouped[] = {COHORT_PRESET_OOP_GDT, COHORT_PRESET_OOP_MDC,
                                       COHORT_PRESET_OOP_DELTA, COHORT_PRESET_SINGLE};
    struct cohort_options *o = &p->opts;

    if (o->preset == COHORT_PRESET_INPLACE || o->preset == COHORT_PRESET_INPLACE_ATOMIC ||
        chance(r, 30))
        return;
    if (chance(r, 50))
        o->preset = grouped[draw(r, CH_ARRAY_LEN(grouped))];
    if (chance(r, 30))
        return;
    o->placement = draw(r, COHORT_PLACEMENT_LOG + 1);
    o->slots = draw(r, COHORT_SLOTS_STRADDLE + 1);
    o->victim = draw(r, COHORT_VICTIM_MDC + 1);
    o->history = draw(r, COHORT_HISTORY_EWMA + 1);
    o->classes = draw(r, 9);
    o->open_zones = draw(r, 12);
    o->prior = draw(r, 2);
    o->gc_sort = draw(r, 2);
}

void
sim_plan_draw(struct sim_plan *p, uint64_t seed)
{
    struct ch_prng r;

    memset(p, 0, sizeof(*p));
    p->seed = seed;
    ch_prng_init(&r, seed);
    draw_options(p, &r);
    draw_workload(p, &r);
    draw_transactions(p, &r);
    draw_drive(p, &r);
    draw_log_place(p);
    p->boots = 1 + (unsigned)draw(&r, 4);
    for (unsigned i = 0; i < p->boots; i++)
        draw_boot(p, &p->boot[i], &r);
    draw_placement(p, &r);
}

void
sim_plan_print(const struct sim_plan *p)
{
    static const char *const ENDS[] = {"close", "kill", "power cut at a write",
                                       "power cut at a flush", "power cut at an operation"};

    printf("drive sim:%s of %" PRIu64 "K; read %" PRIu64 " write %" PRIu64 " flush %" PRIu64
           " ns\n",
           p->drive, p->drive_kib, p->timing.read_ns, p->timing.write_ns, p->timing.flush_ns);
    cohort_options_print(&p->opts, stdout);
    printf("%u workers, %u keys (spread %u, style %d), values to %u bytes%s\n", p->workers, p->keys,
           p->key_spread, (int)p->key_style, p->value_max, p->transactions ? ", transactions" : "");
    printf("%s", p->preload ? "all keys are written first\n" : "");
    printf("percent: get %u del %u insert %u update %u batch %u scan %u sync %u\n", p->get, p->del,
           p->insert, p->update, p->batch, p->scan, p->sync);
    for (unsigned i = 0; i < p->boots; i++)
        printf("boot %u: %u operations a worker%s, then %s (%" PRIu64 "), %u cuts in recovery\n", i,
               p->boot[i].ops, p->boot[i].faults ? " with faults" : "", ENDS[p->boot[i].end],
               p->boot[i].at, p->boot[i].recovery_cuts);
}
