/* group.h - NoWA: which zones are written together, so that the drive frees whole erase units and copies
 * nothing. Bookkeeping only: no I/O, no clock, no zone states.
 *
 * A conventional drive appends what the host writes, in order of arrival, to one open superblock (its erase
 * unit). A *group* is a stretch of the host's writes that fills exactly N superblocks: `group_zones` zones of
 * `zone_slots` slots with N = group_zones x zone_slots / unit_slots. Rule 1 of the paper: the zones of the next
 * group are opened only when this one is complete; its open zones are sealed at the boundary. Then each
 * superblock holds pages of one group only, and is free, without a copy, once every zone of its group has been
 * overwritten or discarded.
 *
 * The *shadow map* says for each zone in which group's superblocks its data lies on the drive (GROUP_NONE: it
 * holds no flash; discarded zones hold none). A group with a valid zone occupies all its N superblocks. As long as
 * occupied groups, the open one included, fit the drive's flash, the drive never collects. Modes differ in
 * what they do about groups that are partly dead:
 *
 *   off      no groups (zones as they come: ZNS, FDP, or "naive")
 *   group    rule 1 only
 *   always   rule 2 of the paper: before a group opens, the lagging zones of the cheapest partly dead one are
 *            collected, so that at most the newest groups are partly dead
 *   budget   only when occupied groups reach the drive's flash, or zones run short, something is collected, at the
 *            end of a group and in bursts: the groups with the smallest declining cost (victim.h; live slots
 *            against flash and zones that come free), their zones in the order of their rates, slowest first, so
 *            that what is moved fills groups of its own with one kind of pages each
 *   single   one stream, whole groups are collected: partly dead groups do not arise
 *   auto     budget where the drive has spare for it, else single; single also while others write more than 45 % of what the
 *            drive gets (group_note_written() against its own count), budget again below 15 %
 *
 * Writes that belong to no zone of the group (root records, a log or map elsewhere, other users of the drive)
 * shift the drive's phase: callers pass the drive's count of host writes, and a group ends when N superblocks have
 * been written by whomever, its zones' last slots unused.
 *
 *   N1 a group ends at exactly N x unit_slots host writes after it began, whatever they were.
 *   N2 a zone belongs to one group at most, the last that wrote it; sum over groups of valid zones = zones
 *      with a group.
 *   N3 a group without valid zones does not exist, but for the open one.
 *
 * Callers serialise. Saved with each checkpoint and rebuilt from the zones written since. Memory: some
 * 50 bytes a zone.
 */
#ifndef CH_SPACE_GROUP_H
#define CH_SPACE_GROUP_H

#include "base/base.h"

#define GROUP_NONE UINT32_MAX

enum group_mode {
    GROUP_OFF,
    GROUP_PLAIN,
    GROUP_ALWAYS,
    GROUP_BUDGET,
    GROUP_SINGLE,
    GROUP_AUTO,
};

struct group_config {
    enum group_mode mode;
    uint32_t zones;       /* in the table, at most; > 0 */
    uint32_t zone_slots;  /* > 0 */
    uint32_t group_zones; /* K; > 0 */
    uint32_t unit_slots;  /* the drive's superblock; divides K x zone_slots */
    uint64_t flash_slots; /* the drive's flash for data without its own reserve: logical + spare */
    uint64_t
        other_slots; /* of those, held by what lies in no zone (root, log, map at fixed places) */
    uint32_t spare_percent; /* part of the spare that is used; 0 = 95 */
    uint32_t burst_groups;  /* budget: what is collected at a time fills so many groups; 0 = 2 */
    uint64_t logical_slots; /* all slots that the host can address */
};

enum group_need {
    GROUP_NEED_NOTHING,
    GROUP_NEED_ZONE,  /* collect the zone with the best score */
    GROUP_NEED_GROUP, /* collect all zones that group_victim() names */
};

struct group_zone { /* what the caller knows of a zone */
    uint64_t
        live_slots; /* live bytes in slots, rounded up; not log, which a checkpoint takes away */
    double rate;    /* as in struct victim_zone */
    bool busy;      /* open, pinned by a write in flight, not to be collected now */
};
/* Fills *out for zone z; called only during group_victim(). */
typedef void group_zone_fn(const void *ctx, zone_id z, struct group_zone *out);

struct group_stats {
    uint64_t groups;           /* opened so far */
    uint64_t compensated;      /* groups collected as a whole */
    uint64_t short_slots;      /* left unused in zones sealed at a boundary */
    uint32_t occupied;         /* groups with a valid zone, the open one included */
    uint32_t occupied_max;     /* how many the drive's flash holds */
    uint32_t foreign_permille; /* of host writes, not ours, over the last groups */
    enum group_mode mode;      /* in force: what auto chose */
    uint32_t switches;         /* of auto */
};

struct group;
/* EOPTION when K x zone_slots is no multiple of unit_slots, or the drive holds less than 3 groups. */
CH_NODISCARD int group_create(const struct group_config *cfg, struct group **out);
void group_destroy(struct group *g);
size_t group_memory(const struct group *g);

/* ---- writing ---- */
/* May the next group begin? The open one is complete (or there is none) at `host_slots` writes of the
 * drive, K free zones are there, and the drive's flash holds one more. */
bool group_may_open(const struct group *g, uint64_t host_slots, uint32_t free_zones);
/* Begins a group at that count of the drive's host writes; the caller has sealed the zones of the last. */
void group_open(struct group *g, uint64_t host_slots);
/* Slots that may still be written before the group ends: no reservation may go beyond. 0 = complete. */
uint64_t group_left(const struct group *g, uint64_t host_slots);
/* Whether one more zone should be opened: `room` slots of the group's open zones are still to be written, and a zone that would
 * be less than half full at the end is not worth it: its stream shares an open one. Without other writers: K zones. */
bool group_may_join(const struct group *g, uint64_t host_slots, uint64_t room);
/* Zone z (free) is opened within the open group, which has room. More than K are fine: after a reopen, zones
 * sealed by recovery are replaced. */
void group_join(struct group *g, zone_id z);
void group_note_written(struct group *g, uint64_t slots); /* by us, in whatever place */
void group_note_unused(struct group *g, uint64_t slots);  /* of zones sealed at the boundary */
void group_note_discarded(struct group *g, zone_id z); /* the drive holds nothing of it any more */

/* ---- collecting ---- */
/* What must be collected now so that the next group can open in time, K free zones at the end of this one.
 * `reserve`: zones that must be free besides (without groups: that must be free). To be asked before each batch of
 * users' writes and whenever one meets the end of a group; `begun`: again after something was collected, until it
 * says NOTHING. */
enum group_need group_need(const struct group *g, uint64_t host_slots, uint32_t free_zones,
                           uint32_t reserve, bool begun);
/* The group, or the groups of a burst, to collect: all their valid zones to out[0 .. max-1], in the order to move
 * them in; returns how many, 0 = none is worth it (all of it is live, or busy). The caller moves what lives,
 * discards each zone that is empty and notes it. Looks at all zones; called once a group or so. */
uint32_t group_victim(struct group *g, group_zone_fn *look, const void *ctx, zone_id *out,
                      uint32_t max);
/* Part of the zone's group that is overwritten or discarded, 0 .. 1: for victim_score(). */
double group_dead_part(const struct group *g, zone_id z);
uint32_t group_of_zone(const struct group *g, zone_id z); /* GROUP_NONE */
/* How many streams may write at once: 1 in single mode, else `streams`. */
uint32_t group_streams(const struct group *g, uint32_t streams);

void group_stats(const struct group *g, struct group_stats *out);
bool group_check(const struct group *g); /* N2, N3; for tests and fsck */

/* ---- checkpoint; little-endian, docs/FORMAT.md ---- */
size_t group_save_bytes(const struct group *g);
void group_save(const struct group *g, uint64_t host_slots, uint8_t *out);
/* `host_slots`: the drive's counter now; a drive that counts anew goes on where the group stood. EMAP when it is no
 * state of this geometry; nothing is changed then, and the drive is taken to hold each zone alone. */
CH_NODISCARD int group_load(struct group *g, uint64_t host_slots, const uint8_t *in, size_t n);

#endif
