/* policy_sim.h - state of the zone store of policy_sim.c; what is known of pages is in policy_life.c. */
#ifndef CH_BENCH_POLICY_SIM_H
#define CH_BENCH_POLICY_SIM_H

#include "bench/policy.h"

enum {
    SIM_LOG_STREAM = PLACE_STREAMS,
    SIM_STREAMS,
};
#define SIM_NONE UINT32_MAX

enum sim_state {
    SIM_FREE,
    SIM_OPEN,
    SIM_SEALED,
};

struct sim_zone {
    enum sim_state state;
    uint8_t stream;
    uint32_t cursor, live, log; /* slots; live includes the log's */
    uint32_t sealed;            /* clock */
    uint32_t written;           /* pages, and sums over them: */
    double death;
};

struct sim_mark {
    uint64_t user, gc, log, foreign, host, media, zones, live;
};

struct sim_batch { /* written together */
    struct place_item *item;
    uint32_t *page, *order;
};

struct sim {
    const struct policy_config *c;
    struct policy_source *source;
    struct place *place;
    struct heat *heat;
    struct group *group;
    struct ssd *ssd;
    struct ch_prng rng;
    uint32_t pages, zones, reserve;
    uint32_t clock;              /* user writes */
    uint32_t *slot_of, *page_of; /* page -> slot, slot -> page */
    struct sim_zone *zone;
    uint32_t *free_next, free_head, free_count;
    uint32_t open_of[SIM_STREAMS];
    uint32_t written_zone;
    uint64_t room; /* slots left in open zones */
    zone_id *victims;
    struct sim_batch user, gc;
    uint32_t *load;
    bool collecting;
    /* history */
    uint32_t *stamps; /* [pages][stamp_count], newest first */
    unsigned stamp_count;
    uint32_t *future,
        *next_write; /* all writes to come, and when each one's page is written again */
    uint32_t *due;   /* [pages] when the page is written again */
    uint64_t futures, future_at;
    /* log and other writers */
    uint32_t *log_ring, log_slots, log_tail, log_used;
    double log_ratio, log_debt, foreign_ratio, foreign_debt;
    uint64_t fixed_first, foreign_first, foreign_slots;
    /* counters */
    uint64_t user_pages, gc_pages, log_pages, foreign_pages, host, gc_zones, gc_live, stuck,
        log_cuts;
};

CH_NODISCARD int policy_sim_create(const struct policy_config *c, struct sim **out);
void policy_sim_destroy(struct sim *s);
uint32_t policy_next(struct sim *s); /* the next page that a user writes */
/* The page is written at s->clock. */
void policy_note(struct sim *s, uint32_t page);
/* Its remaining life; `user`: it is just being written, else it is moved. */
uint32_t policy_life(const struct sim *s, uint32_t page, bool user);

#endif
