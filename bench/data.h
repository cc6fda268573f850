/* data.h - data sets whose pages `cohort bench ratios` compresses: generated, from text on this machine, or a user's file.
 *
 * A data set is a list of records in memory, at most `bytes` of them. It says what it is: only a user's own file can be the
 * data that somebody else measured.
 *
 *   ycsb    generated: 8-byte keys, values partly random
 *   email   generated headers over real text of installed packages, with quoted replies
 *   url     addresses found in that text; the keys, in random order
 *   wiki    that text itself, a file a value
 *   PATH    a user's file: mbox (messages), .csv and .jsonl (lines), MediaWiki .xml (pages by title), else lines as keys
 */
#ifndef CH_BENCH_DATA_H
#define CH_BENCH_DATA_H

#include "base/base.h"
#include "tools/tool.h"

struct data_config {
    const char *name; /* as above */
    const char
        *text;      /* directories of plain text, with colons; NULL = those of installed packages */
    uint64_t bytes; /* of keys and values, about */
    uint64_t seed;
    uint64_t value_bytes; /* ycsb */
    double compressibility;
};
struct data_record {
    size_t key, key_bytes, value, value_bytes; /* positions in data.bytes */
};
struct data {
    struct tool_bytes bytes;
    struct data_record *records;
    size_t count, capacity;
    uint64_t files;
    bool generated; /* no text of anybody is in it */
    bool own;       /* a user's file */
    bool text_only; /* nothing was added to text that was found */
    char what[160];
};

/* Fills *d; data_fini() frees it. ENODB: no such file, or no text; ECORRUPT: not of its format; ENOMEM, EIO. */
CH_NODISCARD int data_init(const struct data_config *c, struct data *d);
void data_fini(struct data *d);
/* Appends a record; value first, then key, both copied. ENOMEM. */
CH_NODISCARD int data_add(struct data *d, const void *key, size_t key_bytes, const void *value,
                          size_t value_bytes);
/* The same under the next number as an 8-byte key. */
CH_NODISCARD int data_add_numbered(struct data *d, const void *value, size_t value_bytes);

/* ---- data_file.c ---- */
/* The whole file, at most `max` bytes of it, a 0 behind them. ENODB, EIO, ENOMEM. */
CH_NODISCARD int data_read_file(const char *path, size_t max, struct tool_bytes *out);
CH_NODISCARD int data_load_file(const struct data_config *c, struct data *d);

/* ---- data_text.c ---- */
CH_NODISCARD int data_make_email(const struct data_config *c, struct data *d);
CH_NODISCARD int data_make_url(const struct data_config *c, struct data *d);
CH_NODISCARD int data_make_wiki(const struct data_config *c, struct data *d);

#endif
