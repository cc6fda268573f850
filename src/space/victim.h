/* victim.h - which zone is collected next: one score a zone, the smallest wins. Pure.
 *
 *   greedy        live bytes.
 *   cost-benefit  free * age / (2 * live), negated: Rosenblum and Ousterhout's for a log.
 *   gdt           earliest mean death time first, as the paper's EDT-min: what was to be dead by now is.
 *   mdc           minimum declining cost (Lomet and Luo, ICDE 2021): (live / free)^2 / live x rate, where their
 *                 estimate of the update rate (from the time of the last but one update) is replaced by the
 *                 zone's own decline since it was sealed, which needs no state. It leaves zones alone whose live
 *                 bytes are still falling fast, and so draws the gain of separation that greedy wastes.
 *   group         mdc, less for zones whose group on the drive is nearly overwritten: what is left
 *                 of such a group keeps whole erase units from being free.
 *   oldest        sealed first (FIFO), for comparisons.
 */
#ifndef CH_SPACE_VICTIM_H
#define CH_SPACE_VICTIM_H

#include "base/base.h"

enum victim_policy {
    VICTIM_GREEDY,
    VICTIM_COST_BENEFIT,
    VICTIM_GDT,
    VICTIM_MDC,
    VICTIM_GROUP,
    VICTIM_OLDEST,
};

struct victim_zone {
    uint64_t live_bytes;
    uint64_t capacity_bytes; /* > 0, >= live_bytes */
    uint32_t age;            /* clock units since it was sealed */
    uint32_t death; /* mean remaining life of its pages as expected when they were written, counted
                          from the seal; PLACE_NEVER, PLACE_UNKNOWN (heat.h) */
    uint32_t pages; /* written to it; 0 = not known */
    double
        rate; /* deaths per page and clock unit, where known; 0 = its own decline tells (better: see
                          docs/PAPER.md) */
    double group_dead; /* part of its group's zones that are overwritten or discarded, 0 .. 1 */
};

/* Smaller is better; a zone without live bytes scores lowest under every policy. */
double victim_score(enum victim_policy policy, const struct victim_zone *z);
/* Deaths per page and clock unit, as the zone's own decline since its seal shows. */
double victim_rate(const struct victim_zone *z);

#endif
