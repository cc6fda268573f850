/* policy.h - cohort bench policy: placement, victims and groups over page ids alone, on a simulated drive if
 * wanted.
 *
 * A zone store without pages: every page is incompressible and takes one slot; which zone it lies in, what
 * is collected and what a group holds is decided by src/space's own code (heat, place, victim, group), the same that
 * the engine runs. Thousands of zones take seconds. Pure but for trace files; one thread.
 *
 * Protocol: an empty drive; all pages are written once in order; then `capacities` times the zones' slots are
 * written in all; figures are of the last quarter of that, and "steady" when its halves agree within 2 %.
 */
#ifndef CH_BENCH_POLICY_H
#define CH_BENCH_POLICY_H

#include "base/base.h"
#include "base/prng.h"
#include "bench/zipf.h"
#include "space/group.h"
#include "space/place.h"
#include "space/victim.h"
#include "ssd/ssd.h"

/* ---- policy_work.c: which page is written next ---- */

enum policy_work_kind {
    POLICY_UNIFORM,
    POLICY_ZIPF,    /* over pages, theta */
    POLICY_HOTCOLD, /* writes_percent of the writes go to pages_percent of the pages */
    POLICY_SHIFT,   /* the same, and in 32 writes one hot page gives way to a cold one */
    POLICY_YCSB, /* updates of records, zipf theta scrambled, 32 a page, behind an LRU pool of 10 % */
    POLICY_YCSB_ORDERED, /* popular records lie together */
    POLICY_TRACE,
};

struct policy_work {
    enum policy_work_kind kind;
    double theta;
    double writes_percent, pages_percent;
    const char *path; /* of a trace */
};

struct policy_source;
/* "uniform", "zipf:0.8", "hotcold:90/10", "shift:90/10", "ycsb:0.8", "ycsb-ordered:0.8", "trace:FILE". Borrows
 * text. EOPTION. */
CH_NODISCARD int policy_work_parse(const char *text, struct policy_work *w);
/* Pages 0 .. pages-1. ENOMEM; EOPTION for a trace of more pages. `skip`: records of a trace to leave out. */
CH_NODISCARD int policy_source_create(const struct policy_work *w, uint32_t pages, uint64_t seed,
                                      struct policy_source **out);
void policy_source_destroy(struct policy_source *s);
uint32_t policy_source_next(struct policy_source *s);
/* The page's probability at each write; 0 = not known for this workload. */
double policy_source_rate(const struct policy_source *s, uint32_t page);

/* ---- policy_trace.c: a recorded stream of page writes; docs/FORMAT.md ---- */

struct policy_trace {
    uint32_t *page; /* [writes], owned */
    uint64_t writes;
    uint32_t pages; /* largest id + 1 */
};
CH_NODISCARD int policy_trace_read(const char *path, struct policy_trace *out); /* EIO, ECORRUPT */
void policy_trace_free(struct policy_trace *t);
CH_NODISCARD int policy_trace_write(const char *path, struct policy_source *s, uint32_t pages,
                                    uint64_t writes);

/* ---- policy_sim.c ---- */

enum policy_history {
    POLICY_EWMA,    /* space/heat */
    POLICY_HEADER4, /* last 4 write times, as in the page header */
    POLICY_HEADER8,
    POLICY_RATE,   /* each page's true rate: the best that is possible under memoryless writes */
    POLICY_FUTURE, /* the time of its next write */
};
enum policy_log_place {
    POLICY_LOG_ZONES, /* in zones of the group */
    POLICY_LOG_FIXED, /* a ring at a fixed place */
};

struct policy_config {
    struct policy_work work;
    uint32_t zones, zone_slots;
    double fill; /* pages / slots of all zones */
    enum place_policy place;
    uint32_t classes;
    bool classes_fixed;
    enum victim_policy victim;
    enum policy_history history;
    uint32_t batch; /* user writes placed at a time */
    double capacities;
    uint64_t seed;
    /* drive; nowa GROUP_OFF and no drive: the zone store alone */
    bool drive;
    enum group_mode nowa;
    uint32_t group_zones, unit_slots, burst_groups;
    uint32_t spare_permille;
    bool shared_gc;
    double log_percent; /* of log and user pages */
    enum policy_log_place log_place;
    double foreign_percent; /* writes of somebody else, at random, to 5 % more logical space */
};

struct policy_result {
    uint64_t user_pages, gc_pages, log_pages, foreign_pages,
        host_pages; /* of the reported quarter */
    double media_pages;
    double db_waf, ssd_waf, total_waf, total_waf_with_log;
    double gc_valid_ratio;
    bool steady;
    unsigned classes;
    double spread;
    struct group_stats groups;
    uint64_t heat_bytes;
    uint64_t all_user_pages;
    uint64_t log_cuts; /* checkpoints made because collecting met live log */
    uint64_t stuck; /* groups opened, or batches written, without the room that policies ask for */
};

void policy_config_init(struct policy_config *c);
CH_NODISCARD int policy_run(const struct policy_config *c, struct policy_result *r);

#endif
