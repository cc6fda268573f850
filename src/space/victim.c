/* victim.c - see victim.h. */
#include "space/victim.h"
#include "space/heat.h"

#define SCORE_LOWEST  (-1e300)
#define SCORE_HIGHEST 1e300

/* A rational approximation of -ln(live) / age, half a page added so that a young zone counts as fast. */
double
victim_rate(const struct victim_zone *z)
{
    double live = (double)z->live_bytes / (double)z->capacity_bytes;
    double more = 1.0 / (z->pages > 0 ? (double)z->pages : 128.0);

    return 2.0 * (1.0 - live + more) / (1.0 + live) / ((double)z->age + 1.0);
}

static double
declining_cost(const struct victim_zone *z, double live, double free)
{
    double rate = z->rate > 0 ? z->rate : victim_rate(z);

    return free > 0 ? live / (free * free) * rate : SCORE_HIGHEST; /* pages as live bytes */
}

double
victim_score(enum victim_policy policy, const struct victim_zone *z)
{
    double live = (double)z->live_bytes / (double)z->capacity_bytes;
    double free = 1.0 - live;

    if (z->live_bytes == 0)
        return SCORE_LOWEST;
    switch (policy) {
    case VICTIM_GREEDY:
        break;
    case VICTIM_COST_BENEFIT:
        return -free * ((double)z->age + 1.0) / (2.0 * live);
    case VICTIM_GDT:
        if (free <= 0)
            return SCORE_HIGHEST;
        return z->death >= PLACE_UNKNOWN ? 1e15 - (double)z->age
                                         : (double)z->death - (double)z->age;
    case VICTIM_MDC:
        return declining_cost(z, live, free);
    case VICTIM_GROUP:
        return declining_cost(z, live, free) * (1.0 - 0.5 * z->group_dead);
    case VICTIM_OLDEST:
        return free <= 0 ? SCORE_HIGHEST : -(double)z->age;
    }
    return live;
}
