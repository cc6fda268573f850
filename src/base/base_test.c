/* base_test.c - error record, options, random numbers, histogram, checksum, helpers. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hist.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "zt/zt.h"

/* Goal: a thrown code comes back, with file, line, errno and text; errno survives; long texts are
 * cut, not overrun. */
static void
test_status_record(struct zt *t)
{
    const struct cohort_error *e = ch_last_error();
    char longer[600];
    int line;

    errno = ENOSPC;
    line = __LINE__ + 1;
    ZT_CHECK(t, CH_FAIL(COHORT_EIO, "zone %u slot %d", 7U, 3) == COHORT_EIO);
    ZT_CHECK(t, errno == ENOSPC);
    ZT_CHECK(t, e->code == COHORT_EIO && e->sys_errno == ENOSPC && e->line == line);
    ZT_CHECK(t, strstr(e->file, "base_test.c") != NULL);
    ZT_CHECK(t, strcmp(e->text, "zone 7 slot 3") == 0);

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    ZT_CHECK(t, CH_FAIL(COHORT_EINVAL, "%s", longer) == COHORT_EINVAL);
    ZT_CHECK(t, strlen(e->text) == sizeof(e->text) - 1);
}

/* Goal: every code has its own text and the class of its group; unknown codes are told apart. */
static void
test_status_texts(struct zt *t)
{
    static const struct {
        int code;
        enum cohort_class class;
    } samples[] = {
        {COHORT_OK, COHORT_CLASS_OK},           {COHORT_EOPTION, COHORT_CLASS_USAGE},
        {COHORT_EFULL, COHORT_CLASS_NO_SPACE},  {COHORT_EROOT, COHORT_CLASS_CORRUPT},
        {COHORT_EBUSY, COHORT_CLASS_BUSY},      {COHORT_NOTFOUND, COHORT_CLASS_NOT_FOUND},
        {COHORT_EXISTS, COHORT_CLASS_CONFLICT}, {COHORT_EVERSION, COHORT_CLASS_MISMATCH},
        {COHORT_EIO, COHORT_CLASS_IO},          {COHORT_EFAILED, COHORT_CLASS_FAILED},
        {COHORT_ERETRY, COHORT_CLASS_RETRY},    {-9999, COHORT_CLASS_FAILED},
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(samples); i++) {
        ZT_CHECK(t, ch_class_of(samples[i].code) == samples[i].class);
        for (size_t j = 0; j < i; j++)
            ZT_CHECK(t, strcmp(ch_strerror(samples[i].code), ch_strerror(samples[j].code)) != 0);
    }
}

struct log_seen {
    unsigned lines;
    enum cohort_log_level level;
    char text[1024];
};

static void
log_sink(void *arg, enum cohort_log_level level, const char *text)
{
    struct log_seen *seen = arg;

    seen->lines++;
    seen->level = level;
    (void)snprintf(seen->text, sizeof(seen->text), "%s", text);
    errno = EBADF;
}

static void
test_log_sink(struct zt *t)
{
    struct log_seen seen = {0};

    ch_log(COHORT_LOG_ERROR, "into the void %d", 1);
    ch_log_set(log_sink, &seen);
    errno = ENOENT;
    ch_log(COHORT_LOG_WARNING, "zone %d", 12);
    ZT_CHECK(t, errno == ENOENT);
    ZT_CHECK(t, seen.lines == 1 && seen.level == COHORT_LOG_WARNING);
    ZT_CHECK(t, strcmp(seen.text, "zone 12") == 0);
    ch_log_set(NULL, NULL);
    ch_log(COHORT_LOG_WARNING, "silence");
    ZT_CHECK(t, seen.lines == 1);
}

/* Goal: the generator is the published one, as a reference implementation computes it, and stays
 * so: seeds in reports must replay. */
static void
test_prng_sequence(struct zt *t)
{
    static const uint64_t of_seed_1[] = {
        UINT64_C(0xb3f2af6d0fc710c5), UINT64_C(0x853b559647364cea), UINT64_C(0x92f89756082a4514),
        UINT64_C(0x642e1c7bc266a3a7), UINT64_C(0xb27a48e29a233673),
    };
    struct ch_prng p;
    uint8_t bytes[20];

    ch_prng_init(&p, 1);
    for (size_t i = 0; i < CH_ARRAY_LEN(of_seed_1); i++)
        ZT_CHECK(t, ch_prng_next(&p) == of_seed_1[i]);
    ch_prng_init(&p, 1);
    ch_prng_fill(&p, bytes, sizeof(bytes));
    ZT_CHECK(t, memcmp(bytes, of_seed_1, sizeof(bytes)) == 0);
}

/* Goal: below(n) reaches all of 0 .. n-1 evenly and nothing else; unit() is in [0, 1) with mean
 * 1/2. Method: chi-square against its mean plus five standard deviations. */
static void
test_prng_distribution(struct zt *t)
{
    enum {
        DRAWS = 20000
    };
    uint64_t n = 1 + zt_below(t, 50);
    unsigned count[50] = {0};
    double chi2 = 0, sum = 0;
    double expected = (double)DRAWS / (double)n;

    for (int i = 0; i < DRAWS; i++) {
        uint64_t v = ch_prng_below(&t->rng, n);
        double u = ch_prng_unit(&t->rng);

        ZT_CHECK(t, v < n);
        ZT_CHECK(t, u >= 0.0 && u < 1.0);
        count[v]++;
        sum += u;
    }
    for (uint64_t i = 0; i < n; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    ZT_CHECK(t, chi2 <= (double)(n - 1) + 5 * sqrt(2 * (double)n));
    ZT_CHECK(t, fabs(sum / DRAWS - 0.5) < 0.015);
}

/* Goal: fill() writes exactly n bytes, all of them random. */
static void
test_prng_fill(struct zt *t)
{
    for (size_t n = 0; n <= 40; n++) {
        uint8_t buf[48];
        uint8_t seen[40] = {0};

        for (int round = 0; round < 8; round++) {
            memset(buf, 0xaa, sizeof(buf));
            ch_prng_fill(&t->rng, buf, n);
            for (size_t i = 0; i < n; i++)
                seen[i] |= buf[i] != 0xaa;
            for (size_t i = n; i < sizeof(buf); i++)
                ZT_CHECK(t, buf[i] == 0xaa);
        }
        for (size_t i = 0; i < n; i++)
            ZT_CHECK(t, seen[i] != 0);
    }
}

static int
compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Goal: a quantile is the exact one or at most 1/64 above. Method: sort the values. */
static void
test_hist_quantiles(struct zt *t)
{
    enum {
        VALUES = 1000
    };
    static const double quantiles[] = {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0};
    uint64_t v[VALUES];
    struct ch_hist h[2] = {0};
    uint64_t sum = 0;

    for (size_t i = 0; i < VALUES; i++) {
        v[i] = ch_prng_next(&t->rng) >> (20 + zt_below(t, 44)); /* all magnitudes up to 2^44 */
        ch_hist_add(&h[zt_below(t, 2)], v[i]);
        sum += v[i];
    }
    ch_hist_merge(&h[0], &h[1]);
    qsort(v, VALUES, sizeof(v[0]), compare_u64);
    ZT_CHECK(t, h[0].total == VALUES && h[0].sum == sum && h[0].max == v[VALUES - 1]);
    for (size_t i = 0; i < CH_ARRAY_LEN(quantiles); i++) {
        double rank = ceil(quantiles[i] * VALUES);
        uint64_t exact = v[rank < 1 ? 0 : (size_t)rank - 1];
        uint64_t got = ch_hist_quantile(&h[0], quantiles[i]);

        ZT_CHECK(t, got >= exact && got <= exact + exact / 64);
    }
}

/* Goal: the edges: empty, one value, bucket borders, values too large for any bucket. */
static void
test_hist_edges(struct zt *t)
{
    struct ch_hist h = {0};

    ZT_CHECK(t, ch_hist_quantile(&h, 0.5) == 0);
    for (unsigned e = 0; e < 45; e++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = (UINT64_C(1) << e) + (uint64_t)d;
            struct ch_hist one = {0};

            ch_hist_add(&one, v);
            ZT_CHECK(t, ch_hist_quantile(&one, 0.5) == v);
            ch_hist_add(&one, v * 4);
            ZT_CHECK(t, ch_hist_quantile(&one, 0.5) >= v);
            ZT_CHECK(t, ch_hist_quantile(&one, 0.5) <= v + v / 64);
        }
    }
    ch_hist_add(&h, UINT64_MAX / 2);
    ch_hist_add(&h, 5);
    ZT_CHECK(t, ch_hist_quantile(&h, 0.0) == 5);
    ZT_CHECK(t, ch_hist_quantile(&h, 0.5) == 5);
    ZT_CHECK(t, ch_hist_quantile(&h, 1.0) == UINT64_MAX / 2);
}

static uint32_t
crc32c_reference(const uint8_t *p, size_t n)
{
    uint32_t crc = UINT32_MAX;

    while (n-- > 0) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
    }
    return ~crc;
}

/* Goal: standard CRC-32C, and chaining over any split gives the same. */
static void
test_crc32c(struct zt *t)
{
    uint8_t buf[600];
    size_t n = zt_below(t, sizeof(buf));
    size_t at = n == 0 ? 0 : zt_below(t, n);
    uint32_t whole;

    ZT_CHECK(t, ch_crc32c(0, "123456789", 9) == 0xe3069283U);
    ZT_CHECK(t, ch_crc32c(0, "", 0) == 0);
    ch_prng_fill(&t->rng, buf, sizeof(buf));
    whole = ch_crc32c(0, buf, n);
    ZT_CHECK(t, whole == crc32c_reference(buf, n));
    ZT_CHECK(t, ch_crc32c(ch_crc32c(0, buf, at), buf + at, n - at) == whole);
}

static void
test_alloc_aligned(struct zt *t)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 1 << 20};

    for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
        uint8_t *p = ch_alloc_aligned(sizes[i]);

        ZT_CHECK(t, p != NULL && (uintptr_t)p % CH_PAGE_BYTES == 0);
        for (size_t b = 0; b < sizes[i]; b++)
            ZT_CHECK(t, p[b] == 0);
        memset(p, 0xff, sizes[i]); /* so that a second round sees used memory */
        ch_free_aligned(p);
    }
    ZT_CHECK(t, ch_alloc_aligned(SIZE_MAX) == NULL);
    ch_free_aligned(NULL);
}

/* Goal: what is put is got, at any alignment, in little-endian order, and no neighbour changes. */
static void
test_accessors(struct zt *t)
{
    uint64_t v = ch_prng_next(&t->rng);
    uint8_t buf[24];

    for (size_t at = 0; at < 8; at++) {
        memset(buf, 0x55, sizeof(buf));
        ch_put48(buf + at, v);
        ZT_CHECK(t, ch_get48(buf + at) == (v & CH_PAGE_ID_MAX));
        ZT_CHECK(t, buf[at] == (uint8_t)v && buf[at + 5] == (uint8_t)(v >> 40));
        ZT_CHECK(t, buf[at + 6] == 0x55 && (at == 0 || buf[at - 1] == 0x55));
        ch_put64(buf + at, v);
        ZT_CHECK(t, ch_get64(buf + at) == v && ch_get32(buf + at) == (uint32_t)v);
        ch_put32(buf + at, ~(uint32_t)v);
        ch_put16(buf + at + 4, (uint16_t)v);
        ZT_CHECK(t, ch_get32(buf + at) == ~(uint32_t)v && ch_get16(buf + at + 4) == (uint16_t)v);
        ZT_CHECK(t, buf[at + 6] == (uint8_t)(v >> 48));
    }
    ZT_CHECK(t, ch_round_up(0, 7) == 0 && ch_round_up(1, 7) == 7 && ch_round_up(14, 7) == 14);
    ZT_CHECK(t, ch_div_up(15, 7) == 3 && ch_clamp_u64(5, 6, 9) == 6 && ch_clamp_u64(12, 6, 9) == 9);
    ZT_CHECK(t, ch_min_u64(3, 4) == 3 && ch_max_u64(3, 4) == 4);
}

/* Goal: the defaults are in range and are what options.def says. */
static void
test_options_defaults(struct zt *t)
{
    struct cohort_options o;

    memset(&o, 0xff, sizeof(o));
    cohort_options_init(&o);
    ZT_OK(t, ch_options_check(&o));
    ZT_CHECK(t, o.struct_bytes == sizeof(o) && o.cache_bytes == 64 << 20);
    ZT_CHECK(t, o.preset == COHORT_PRESET_COHORT && o.background == COHORT_BACKGROUND_YES);
    ZT_CHECK(t, o.async_ms == 100 && o.space_target == 140 && o.discard == COHORT_DISCARD_YES);
}

/* Goal: texts are taken or refused as documented; a refusal names option, value and range and
 * changes nothing. */
static void
test_options_set(struct zt *t)
{
    static const struct {
        const char *name, *value;
        bool ok;
        uint64_t want;
        size_t offset;
    } cases[] = {
#define C(name, value, ok, want) {#name, value, ok, want, offsetof(struct cohort_options, name)}
        C(cache_bytes, "64M", true, 64 << 20),
        C(cache_bytes, "3g", true, UINT64_C(3) << 30),
        C(cache_bytes, "16T", true, UINT64_C(16) << 40),
        C(cache_bytes, "17T", false, 0),
        C(cache_bytes, "1048576", true, 1048576),
        C(cache_bytes, "1048575", false, 0),
        C(cache_bytes, "1024K", true, 1048576),
        C(cache_bytes, "64MB", false, 0),
        C(cache_bytes, "64 M", false, 0),
        C(cache_bytes, "", false, 0),
        C(cache_bytes, "M", false, 0),
        C(cache_bytes, "-1", false, 0),
        C(cache_bytes, "+64M", false, 0),
        C(cache_bytes, " 64M", false, 0),
        C(cache_bytes, "0x4000000", false, 0),
        C(cache_bytes, "18446744073709551616", false, 0),
        C(cache_bytes, "18446744073710600192", false, 0), /* 2^64 + 1 MiB: in range if it wrapped */
        C(cache_bytes, "16777217T", false, 0),            /* 2^64 + 1 TiB */
        C(async_ms, "60000", true, 60000),
        C(async_ms, "60001", false, 0),
        C(async_ms, "1", true, 1),
        C(async_ms, "0", false, 0),
        C(async_ms, "1K", false, 0), /* not a size */
        C(preset, "inplace", true, COHORT_PRESET_INPLACE),
        C(preset, "inplace-atomic", true, COHORT_PRESET_INPLACE_ATOMIC),
        C(preset, "oop+pack", true, COHORT_PRESET_OOP_PACK),
        C(preset, "oop", true, COHORT_PRESET_OOP),
        C(preset, "oop+", false, 0),
        C(preset, "oo", false, 0),
        C(preset, "", false, 0),
        C(preset, "oop|oop+pack", false, 0),
        C(preset, "1", false, 0),
        C(discard, "no", true, COHORT_DISCARD_NO),
#undef C
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(cases); i++) {
        struct cohort_options o, before;
        uint64_t got;
        int rc;

        cohort_options_init(&o);
        before = o;
        rc = cohort_options_set(&o, cases[i].name, cases[i].value);
        memcpy(&got, (const char *)&o + cases[i].offset, sizeof(got));
        if (cases[i].ok) {
            ZT_OK(t, rc);
            ZT_CHECK(t, got == cases[i].want);
        } else {
            ZT_STATUS(t, rc, COHORT_EOPTION);
            ZT_CHECK(t, memcmp(&o, &before, sizeof(o)) == 0);
            ZT_CHECK(t, strstr(ch_last_error()->text, cases[i].name) != NULL);
            ZT_CHECK(t, strstr(ch_last_error()->text, cases[i].value) != NULL);
        }
    }
}

static void
test_options_errors(struct zt *t)
{
    struct cohort_options o;

    cohort_options_init(&o);
    ZT_STATUS(t, cohort_options_set(&o, "no_such_option", "1"), COHORT_EOPTION);
    ZT_CHECK(t, strstr(ch_last_error()->text, "no_such_option") != NULL);
    ZT_STATUS(t, cohort_options_set(&o, "struct_bytes", "1"), COHORT_EOPTION);
    ZT_STATUS(t, cohort_options_set(&o, "cache_bytes", NULL), COHORT_EINVAL);
    ZT_STATUS(t, cohort_options_set(&o, NULL, "1"), COHORT_EINVAL);
    ZT_STATUS(t, cohort_options_set(NULL, "cache_bytes", "64M"), COHORT_EINVAL);
    ZT_STATUS(t, cohort_options_set(&o, "cache_bytes", "1"), COHORT_EOPTION);
    ZT_CHECK(t, strstr(ch_last_error()->text, "1M .. 16T") != NULL);
    ZT_STATUS(t, cohort_options_set(&o, "codec", "gzip"), COHORT_EOPTION);
    ZT_CHECK(t, strstr(ch_last_error()->text, "default|none|lz4|zstd") != NULL);
}

/* Goal: ch_options_check() finds what a caller wrote into the struct by hand. */
static void
test_options_check(struct zt *t)
{
    struct cohort_options o;

#define BAD(field, value, word)                                   \
    do {                                                          \
        cohort_options_init(&o);                                  \
        o.field = (value);                                        \
        ZT_STATUS(t, ch_options_check(&o), COHORT_EOPTION);       \
        ZT_CHECK(t, strstr(ch_last_error()->text, word) != NULL); \
    } while (false)
    BAD(struct_bytes, 0, "struct_bytes");
    BAD(struct_bytes, sizeof(o) + 8, "struct_bytes");
    BAD(preset, 13, "preset");
    BAD(preset, UINT64_MAX, "preset");
    BAD(discard, 2, "discard");
    BAD(cache_bytes, 1, "cache_bytes");
    BAD(checkpoint_percent, 81, "5 .. 80");
    BAD(zone_bytes, 4095, "zone_bytes");
#undef BAD
    cohort_options_init(&o);
    o.preset = COHORT_PRESET_OOP_PACK;
    o.checkpoint_percent = 80;
    o.zone_bytes = 8192;
    ZT_OK(t, ch_options_check(&o));
}

/* Goal: parse(format(v)) = v, for sizes, numbers and names. */
static void
test_options_roundtrip(struct zt *t)
{
    static const char *const names[] = {"max_bytes", "space_target", "preset", "create"};
    static const uint64_t limits[][2] = {{0, UINT64_C(1) << 50}, {105, 1000}, {0, 4}, {0, 2}};
    char text[CH_OPTION_TEXT_BYTES];

    for (size_t i = 0; i < CH_ARRAY_LEN(names); i++) {
        uint64_t span = limits[i][1] - limits[i][0] + 1;
        uint64_t v = limits[i][0] + zt_below(t, span);
        uint64_t got = ~v;

        if (i == 0) /* many trailing zero bits, so that every suffix occurs */
            v = v >> zt_below(t, 50) << zt_below(t, 50);
        if (v > limits[i][1])
            v = limits[i][1];
        ch_option_format(names[i], v, text);
        ZT_OK(t, ch_option_parse(names[i], text, &got));
        ZT_CHECK(t, got == v);
    }
    ch_option_format("max_bytes", UINT64_C(5) << 40, text);
    ZT_CHECK(t, strcmp(text, "5T") == 0);
    ch_option_format("preset", 2, text);
    ZT_CHECK(t, strcmp(text, "inplace-atomic") == 0);
    ch_option_format("preset", 99, text);
    ZT_CHECK(t, strcmp(text, "99") == 0);
    ch_option_format("no_such_option", 4096, text);
    ZT_CHECK(t, strcmp(text, "4096") == 0);
}

/* Goal: print names every option with value and range, in lines that fit a terminal. */
static void
test_options_print(struct zt *t)
{
    struct cohort_options o;
    char line[200];
    bool cache = false, preset = false;
    unsigned options = 0;
    FILE *f = tmpfile();

    ZT_CHECK(t, f != NULL);
    cohort_options_init(&o);
    ZT_OK(t, cohort_options_set(&o, "cache_bytes", "96M"));
    cohort_options_print(&o, f);
    rewind(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        ZT_CHECK(t, strlen(line) <= 81);
        options += line[0] != ' ';
        cache |= strcmp(line, "cache_bytes = 96M (1M .. 16T)\n") == 0;
        preset |= strstr(line, "preset = cohort (cohort|inplace|") == line;
    }
    (void)fclose(f);
    ZT_CHECK(t, cache && preset);
    ZT_CHECK(t, options == (sizeof(o) - sizeof(size_t)) / sizeof(uint64_t));
}

static const struct zt_case cases[] = {
    {"status_record", test_status_record, 1},
    {"status_texts", test_status_texts, 1},
    {"log_sink", test_log_sink, 1},
    {"prng_sequence", test_prng_sequence, 1},
    {"prng_distribution", test_prng_distribution, 100},
    {"prng_fill", test_prng_fill, 10},
    {"hist_quantiles", test_hist_quantiles, 100},
    {"hist_edges", test_hist_edges, 1},
    {"crc32c", test_crc32c, 200},
    {"alloc_aligned", test_alloc_aligned, 2},
    {"accessors", test_accessors, 100},
    {"options_defaults", test_options_defaults, 1},
    {"options_set", test_options_set, 1},
    {"options_errors", test_options_errors, 1},
    {"options_check", test_options_check, 1},
    {"options_roundtrip", test_options_roundtrip, 200},
    {"options_print", test_options_print, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "base", cases, CH_ARRAY_LEN(cases));
}
