/* dict_internal.h - what pack.c needs of a dictionary; for src/pack only. */
#ifndef CH_PACK_DICT_INTERNAL_H
#define CH_PACK_DICT_INTERNAL_H

#include <zstd.h>

#include "pack/dict.h"

struct pack_dict {
    uint16_t id;
    ZSTD_CDict *compress;
    ZSTD_DDict *decompress;
};

#endif
