/* presets.c - what each preset stands for, as one table.
 *
 * A preset is fixed at creation; what it stands for is looked up at each opening, so a single option may say otherwise
 * for one opening. A column is an option whose value 0 means "of the preset".
 */
#include "base/options.h"

struct preset_row {
    uint64_t codec, placement, victim, history;
    uint64_t delta; /* 0 = off */
};

#define CODEC(name)     COHORT_CODEC_##name
#define PLACEMENT(name) COHORT_PLACEMENT_##name
#define VICTIM(name)    COHORT_VICTIM_##name
#define HISTORY(name)   COHORT_HISTORY_##name

/* As written before there was a choice: users' writes and GC's apart, greedy. */
#define PLAIN  PLACEMENT(SEPGC), VICTIM(GREEDY), HISTORY(HEADER)
#define PAPER  PLACEMENT(GDT), VICTIM(GREEDY), HISTORY(HEADER)
#define BEYOND PLACEMENT(LOG), VICTIM(MDC), HISTORY(EWMA)

#define NO_DELTA 0

static const struct preset_row presets[] = {
    [COHORT_PRESET_COHORT] = {CODEC(LZ4), PLAIN, NO_DELTA},
    [COHORT_PRESET_INPLACE] = {CODEC(NONE), PLAIN, NO_DELTA},
    [COHORT_PRESET_INPLACE_ATOMIC] = {CODEC(NONE), PLAIN, NO_DELTA},
    [COHORT_PRESET_OOP] = {CODEC(NONE), PLAIN, NO_DELTA},
    [COHORT_PRESET_OOP_PACK] = {CODEC(LZ4), PLAIN, NO_DELTA},
    [COHORT_PRESET_OOP_GDT] = {CODEC(LZ4), PAPER, NO_DELTA},
    [COHORT_PRESET_OOP_NOWA] = {CODEC(LZ4), PAPER, NO_DELTA},
    [COHORT_PRESET_OOP_ALIGN] = {CODEC(LZ4), PAPER, NO_DELTA},
    [COHORT_PRESET_OOP_MDC] = {CODEC(LZ4), BEYOND, NO_DELTA},
    [COHORT_PRESET_OOP_BUDGET] = {CODEC(LZ4), BEYOND, NO_DELTA},
    [COHORT_PRESET_OOP_DICT] = {CODEC(ZSTD), BEYOND, NO_DELTA},
    [COHORT_PRESET_OOP_DELTA] = {CODEC(ZSTD), BEYOND, COHORT_DELTA_ON},
    [COHORT_PRESET_SINGLE] = {CODEC(LZ4), PLACEMENT(NONE), VICTIM(MDC), HISTORY(EWMA), NO_DELTA},
};

static void
resolve(uint64_t *option, uint64_t value)
{
    if (*option == 0)
        *option = value;
}

bool
ch_preset_is_whole(uint64_t preset)
{
    return preset != COHORT_PRESET_OOP_NOWA && preset != COHORT_PRESET_OOP_ALIGN &&
           preset != COHORT_PRESET_OOP_BUDGET && preset != COHORT_PRESET_OOP_DICT;
}

void
ch_options_resolve(struct cohort_options *o, uint64_t preset)
{
    const struct preset_row *row = &presets[preset];

    CH_ASSERT(preset < CH_ARRAY_LEN(presets));
    resolve(&o->codec, row->codec);
    resolve(&o->delta, row->delta);
    resolve(&o->placement, row->placement);
    resolve(&o->victim, row->victim);
    resolve(&o->history, row->history);
}
