/* heat.h - how often each page is written, remembered outside of the page in 6 bytes.
 *
 *     last write (32 bit) | mean interval between writes, logarithmic (8) | intervals seen (8)
 *
 * A page's mean interval is an exponentially weighted one over about HEAT_WINDOW writes; younger pages
 * average what they have. Pages of which only one write is known are predicted from a prior: how
 * long other pages of their tree lived from their first write to their second.
 *
 * The clock is any counter of writes in 32 bits, and it wraps; the engine uses LSN / 4096, as the
 * page header's history does. Intervals are differences modulo 2^32. Copies made by garbage collection
 * are no writes and are not noted. Source: the paper's section on death times (mean of the last four
 * intervals, in the page header); the table replaces the header's history and costs no page space.
 *
 *   H1 memory is HEAT_PAGE_BYTES a page id up to the highest one noted, in chunks; nothing is
 *      allocated for an id that has a chunk already.
 *   H2 a page that cannot be remembered (no memory) is predicted as unknown; it is never an error.
 *
 * Pure; callers serialise. A crash loses it: heat_seed() fills it again from the pages' headers.
 */
#ifndef CH_SPACE_HEAT_H
#define CH_SPACE_HEAT_H

#include "base/base.h"

enum {
    HEAT_PAGE_BYTES = 6,
    HEAT_WINDOW = 12, /* intervals that count; at most 15 */
};

/* Remaining life in clock units; the two largest values are no numbers. */
#define PLACE_NEVER    UINT32_MAX       /* is not expected to be written again */
#define PLACE_UNKNOWN  (UINT32_MAX - 1) /* nothing known */
#define PLACE_LIFE_MAX (UINT32_MAX - 2)

struct heat;

struct heat_config {
    uint64_t pages_max; /* ids 1 .. pages_max; others are ignored */
    bool priors;        /* predict first writes from their tree */
};

struct heat_outcome {   /* what came of the last prediction, when a page is written again */
    uint32_t predicted; /* its life as it was predicted at the write before; PLACE_UNKNOWN */
    uint32_t actual;    /* clock units since then */
};

CH_NODISCARD int heat_create(const struct heat_config *cfg, struct heat **out); /* ENOMEM */
void heat_destroy(struct heat *h);
size_t heat_memory(const struct heat *h);

/* Page `pid` of `tree` is written for the user at `now`. Two writes within one clock unit count once. */
void heat_note(struct heat *h, page_id pid, uint32_t tree, uint32_t now, struct heat_outcome *out);
/* Takes over the write times of a page header, oldest first, 0 = none (page.h), where nothing is known of
 * the page: after a reopen, and for pages that a split has made. */
void heat_seed(struct heat *h, page_id pid, const uint32_t *stamps, unsigned n);
void heat_forget(struct heat *h, page_id pid); /* the id is free */

/* Expected remaining life of the page at `now`, at least 1, at most PLACE_LIFE_MAX; PLACE_NEVER;
 * PLACE_UNKNOWN. A page that has been quiet for longer than its mean is believed to have slowed down. */
uint32_t heat_predict(const struct heat *h, page_id pid, uint32_t tree, uint32_t now);

/* Logarithm to base 2 in steps of 1/256, piecewise linear (exact at powers of two, monotone), of v >= 1,
 * and back. */
uint32_t heat_log2(uint32_t v);
uint32_t heat_exp2(uint32_t log);

#endif
