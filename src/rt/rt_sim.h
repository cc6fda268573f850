/* rt_sim.h - the controls of the simulated rt: seed, start, stop, what it found.
 *
 * Between rt_sim_start() and rt_sim_stop() the calling thread and all threads spawned from it run one
 * at a time, in an order drawn from the seed; time is virtual. Outside of it rt's functions work as
 * long as nothing has to wait. One simulation a process at a time.
 *
 * A run that cannot go on, for want of a runnable thread and a timer or of progress, ends in a report
 * on stderr of what each thread waits for, and abort(). */
#ifndef CH_RT_RT_SIM_H
#define CH_RT_RT_SIM_H

#include "rt/rt.h"

struct rt_sim_config {
    uint64_t seed;
    uint64_t stall_ns;     /* virtual time without rt_sim_progress() that counts as a hang */
    uint64_t stall_points; /* ... or so many scheduling points */
};

struct rt_sim_stats {
    uint64_t points;   /* where a switch was possible */
    uint64_t switches; /* where one happened */
    uint64_t spurious; /* waits that ended without a signal */
    uint64_t now_ns;
    uint64_t trace; /* hash of the schedule: equal for equal runs */
};

void rt_sim_start(const struct rt_sim_config *cfg);
/* Every spawned thread must have been joined. */
void rt_sim_stop(struct rt_sim_stats *out);
void rt_sim_stats(struct rt_sim_stats *out);
/* Something that the run is for has happened: the clock of the hang detector starts anew. */
void rt_sim_progress(void);
/* From now on every runnable thread gets its turn: for phases that bound how long things take. */
void rt_sim_be_fair(void);
/* The name of the calling thread, for traces. */
const char *rt_sim_self(void);

#endif
