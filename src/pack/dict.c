/* dict.c - dictionaries: digesting and training; see dict.h.
 *
 * Training leaves out nothing of a page: its header costs the same few literals with and without a dictionary, and the slots
 * behind it are what pages of fixed-size records have most in common.
 */
#include "pack/dict_internal.h"

#include <stdlib.h>
#include <zdict.h>

int
pack_dict_create(uint16_t id, const void *bytes, size_t n, int level, struct pack_dict **out)
{
    struct pack_dict *d;

    CH_ASSERT(pack_dict_slot(id) != 0);
    CH_ASSERT(n >= PACK_DICT_MIN && n <= PACK_DICT_MAX);
    d = calloc(1, sizeof(*d));
    if (d == NULL)
        return CH_FAIL(COHORT_ENOMEM, "dictionary %u", id);
    d->id = id;
    d->compress = ZSTD_createCDict(bytes, n, level == 0 ? 1 : level);
    d->decompress = ZSTD_createDDict(bytes, n);
    if (d->compress == NULL || d->decompress == NULL) {
        pack_dict_destroy(d);
        return CH_FAIL(COHORT_ENOMEM, "dictionary %u of %zu bytes", id, n);
    }
    *out = d;
    return 0;
}

void
pack_dict_destroy(struct pack_dict *d)
{
    if (d == NULL)
        return;
    ZSTD_freeCDict(d->compress);
    ZSTD_freeDDict(d->decompress);
    free(d);
}

uint16_t
pack_dict_id_of(const struct pack_dict *d)
{
    return d->id;
}

size_t
pack_dict_memory(const struct pack_dict *d)
{
    return sizeof(*d) + ZSTD_sizeof_CDict(d->compress) + ZSTD_sizeof_DDict(d->decompress);
}

int
pack_dict_train(const void *pages, unsigned n, size_t max, void *out, size_t *bytes)
{
    size_t sizes[PACK_DICT_SAMPLES];
    size_t got;

    CH_ASSERT(max >= PACK_DICT_MIN && max <= PACK_DICT_MAX);
    if (n > PACK_DICT_SAMPLES)
        n = PACK_DICT_SAMPLES;
    if (n < PACK_DICT_SAMPLES_MIN)
        return CH_FAIL(COHORT_NOTFOUND, "dictionary: %u samples, %d are the least", n,
                       PACK_DICT_SAMPLES_MIN);
    for (unsigned i = 0; i < n; i++)
        sizes[i] = CH_PAGE_BYTES;
    got = ZDICT_trainFromBuffer(out, max, pages, sizes, n);
    if (ZDICT_isError(got) || got < PACK_DICT_MIN)
        return CH_FAIL(COHORT_NOTFOUND, "dictionary of %u pages: %s", n,
                       ZDICT_isError(got) ? ZDICT_getErrorName(got) : "too little in common");
    *bytes = got;
    return 0;
}
