/* presets.c - what each preset stands for, as one table.
 *
 * A preset is fixed at creation; what it stands for is looked up at each opening, so a single option may say otherwise
 * for one opening. A column is an option whose value 0 means "of the preset".
 */
#include "base/options.h"

struct preset_row {
    uint64_t codec;
    uint64_t delta; /* 0 = off */
};

static const struct preset_row presets[] = {
    [COHORT_PRESET_COHORT] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_INPLACE] = {.codec = COHORT_CODEC_NONE},
    [COHORT_PRESET_INPLACE_ATOMIC] = {.codec = COHORT_CODEC_NONE},
    [COHORT_PRESET_OOP] = {.codec = COHORT_CODEC_NONE},
    [COHORT_PRESET_OOP_PACK] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_GDT] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_NOWA] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_ALIGN] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_MDC] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_BUDGET] = {.codec = COHORT_CODEC_LZ4},
    [COHORT_PRESET_OOP_DICT] = {.codec = COHORT_CODEC_ZSTD},
    [COHORT_PRESET_OOP_DELTA] = {.codec = COHORT_CODEC_ZSTD, .delta = COHORT_DELTA_ON},
    [COHORT_PRESET_SINGLE] = {.codec = COHORT_CODEC_LZ4},
};

static void
resolve(uint64_t *option, uint64_t value)
{
    if (*option == 0)
        *option = value;
}

void
ch_options_resolve(struct cohort_options *o, uint64_t preset)
{
    const struct preset_row *row = &presets[preset];

    CH_ASSERT(preset < CH_ARRAY_LEN(presets));
    resolve(&o->codec, row->codec);
    resolve(&o->delta, row->delta);
}
