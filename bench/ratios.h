/* ratios.h - what the files of `cohort bench ratios` share. */
#ifndef CH_BENCH_RATIOS_H
#define CH_BENCH_RATIOS_H

#include "base/prng.h"
#include "bench/bench.h"
#include "bench/data.h"
#include "pack/pack.h"

enum {
    RATIOS_TREES_MAX = 32
};

/* Pages of one data set, as the tree makes them. */
struct ratios_pages {
    uint8_t *pages; /* aligned, count of them */
    size_t count, capacity;
    double leaf_fill;
};
void ratios_pages_fini(struct ratios_pages *p);
/* Loads the records into a new database in a directory of its own, and takes its pages: in place, so each stands there once.
 * TPC-C: `warehouses` > 0 and d NULL. */
CH_NODISCARD int ratios_load(const struct bench_config *c, const struct data *d,
                             uint64_t warehouses, struct ratios_pages *out);

struct ratios_codec {
    const char *name;
    enum pack_codec codec;
    int level;
    bool dictionary;
};
/* What one codec makes of the pages. Parts of 4096 bytes a page. */
struct ratios_result {
    size_t pages;
    double mean, sd;          /* the codec's output alone */
    double image;             /* header and rounding included */
    double slot4, slot4_more; /* packed by the engine: batches of --batch, and of twice as many */
    double slot8;             /* 8 KiB slots, by arithmetic */
    double crossing;          /* part of the pages of `slot8` that lie in two blocks */
    double run, run_crossing; /* images back to back, by arithmetic */
    double encode_us, decode_us;
    unsigned dictionaries;
    size_t dictionary_bytes;
};
/* Compresses all pages but those that dictionaries are trained from, with every codec the same ones, in batches of `batch`. */
CH_NODISCARD int ratios_measure(const struct ratios_pages *p, const struct ratios_codec *codec,
                                unsigned batch, struct ratios_result *out);

/* Best fit decreasing of images of `bytes` into units of `unit` bytes with `foot` bytes at the end and `entry` bytes an image.
 * Returns units; *crossing: images that lie on both sides of a multiple of 4096. */
size_t ratios_units(const uint32_t *bytes, size_t n, uint32_t unit, uint32_t foot, uint32_t entry,
                    size_t *crossing);

#endif
