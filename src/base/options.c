/* options.c - the options of cohort_open(), expanded from options.def.
 *
 * Invariants:
 *   O1  struct cohort_options has one field for each line of options.def, named like it (the struct
 *       is generated from the same file by scripts/gen-options).
 *   O2  a field set here is in its range; ch_options_check() finds the ones that callers set.
 *
 * Options whose name ends in `_bytes` are sizes: they take the suffixes K, M, G and T, powers of
 * 1024. Pure; not locked: a struct belongs to its caller.
 */
#include "base/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    OPTION_RANGE_BYTES = 192 /* what an option takes, as text */
};

struct option {
    const char *name;
    size_t offset;     /* of its uint64_t in struct cohort_options */
    const char *names; /* enum: "first|second|..."; NULL for numbers */
    uint64_t initial, min, max;
    const char *doc;
};

static const struct option options[] = {
#define COHORT_OPT_U64(name, initial, min, max, doc) \
    {#name, offsetof(struct cohort_options, name), NULL, initial, min, max, doc},
#define COHORT_OPT_ENUM(name, initial, names, doc) \
    {#name, offsetof(struct cohort_options, name), names, initial, 0, UINT64_MAX, doc},
#include "base/options.def"
#undef COHORT_OPT_U64
#undef COHORT_OPT_ENUM
};

static const struct option *
option_find(const char *name)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++) {
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    }
    return NULL;
}

static uint64_t
option_get(const struct option *opt, const struct cohort_options *o)
{
    uint64_t v;

    memcpy(&v, (const char *)o + opt->offset, sizeof(v));
    return v;
}

static void
option_put(const struct option *opt, struct cohort_options *o, uint64_t v)
{
    memcpy((char *)o + opt->offset, &v, sizeof(v));
}

static bool
option_is_size(const struct option *opt)
{
    size_t n = strlen(opt->name);

    return n > 6 && strcmp(opt->name + n - 6, "_bytes") == 0;
}

/* Name number `index` of "first|second|..."; false past the last. */
static bool
enum_name(const char *names, uint64_t index, const char **name, size_t *bytes)
{
    for (; index > 0; index--) {
        names = strchr(names, '|');
        if (names == NULL)
            return false;
        names++;
    }
    *name = names;
    *bytes = strcspn(names, "|");
    return true;
}

static void
size_format(uint64_t v, char *text)
{
    static const char suffix[] = "KMGT";
    unsigned steps = 0;

    while (v != 0 && v % 1024 == 0 && steps < 4) {
        v /= 1024;
        steps++;
    }
    if (steps == 0)
        (void)snprintf(text, CH_OPTION_TEXT_BYTES, "%" PRIu64, v);
    else
        (void)snprintf(text, CH_OPTION_TEXT_BYTES, "%" PRIu64 "%c", v, suffix[steps - 1]);
}

static void
option_format(const struct option *opt, uint64_t v, char *text)
{
    const char *name;
    size_t bytes;

    if (opt != NULL && opt->names != NULL && enum_name(opt->names, v, &name, &bytes))
        (void)snprintf(text, CH_OPTION_TEXT_BYTES, "%.*s", (int)bytes, name);
    else if (opt != NULL && option_is_size(opt))
        size_format(v, text);
    else
        (void)snprintf(text, CH_OPTION_TEXT_BYTES, "%" PRIu64, v);
}

void
ch_option_format(const char *name, uint64_t value, char text[CH_OPTION_TEXT_BYTES])
{
    option_format(option_find(name), value, text);
}

/* What an option takes, as text: "yes|no" or "1M .. 16T". */
static void
range_format(const struct option *opt, char *text, size_t bytes)
{
    char lo[CH_OPTION_TEXT_BYTES], hi[CH_OPTION_TEXT_BYTES];

    option_format(opt, opt->min, lo);
    option_format(opt, opt->max, hi);
    if (opt->names != NULL)
        (void)snprintf(text, bytes, "%s", opt->names);
    else
        (void)snprintf(text, bytes, "%s .. %s", lo, hi);
}

static int
option_refuse(const struct option *opt, const char *value)
{
    char range[OPTION_RANGE_BYTES];

    range_format(opt, range, sizeof(range));
    return CH_FAIL(COHORT_EOPTION, "option %s: \"%.64s\" is not in %s", opt->name, value, range);
}

static bool
option_in_range(const struct option *opt, uint64_t v)
{
    const char *name;
    size_t bytes;

    /* enum_name() walks the names, so it is not given numbers it would run past the end with. */
    return opt->names != NULL ? v < 64 && enum_name(opt->names, v, &name, &bytes)
                              : v >= opt->min && v <= opt->max;
}

static bool
enum_parse(const char *names, const char *text, uint64_t *value)
{
    const char *name;
    size_t bytes;

    for (uint64_t i = 0; enum_name(names, i, &name, &bytes); i++) {
        if (strlen(text) == bytes && memcmp(name, text, bytes) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

/* Digits and, for sizes, one suffix. No sign, no space, no overflow. */
static bool
number_parse(const char *text, bool is_size, uint64_t *value)
{
    static const char suffixes[] = "KMGTkmgt";
    const char *suffix;
    unsigned shift = 0;
    uint64_t v = 0;

    if (*text == '\0')
        return false;
    if (strchr("0123456789", *text) == NULL)
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *text - '0', &v))
            return false;
    }
    if (*text != '\0') {
        suffix = is_size ? strchr(suffixes, *text) : NULL;
        if (suffix == NULL || text[1] != '\0')
            return false;
        shift = 10 * ((unsigned)(suffix - suffixes) % 4 + 1);
    }
    if (v > UINT64_MAX >> shift)
        return false;
    *value = v << shift;
    return true;
}

static int
option_parse(const char *name, const char *text, const struct option **out, uint64_t *value)
{
    const struct option *opt = option_find(name);
    uint64_t v = 0;
    bool ok;

    if (opt == NULL)
        return CH_FAIL(COHORT_EOPTION, "option %.64s: unknown", name);
    ok = opt->names != NULL ? enum_parse(opt->names, text, &v)
                            : number_parse(text, option_is_size(opt), &v);
    if (!ok || !option_in_range(opt, v))
        return option_refuse(opt, text);
    *out = opt;
    *value = v;
    return 0;
}

int
ch_option_parse(const char *name, const char *text, uint64_t *value)
{
    const struct option *opt;

    return option_parse(name, text, &opt, value);
}

int
ch_options_check(const struct cohort_options *o)
{
    char text[CH_OPTION_TEXT_BYTES];

    if (o->struct_bytes != sizeof(*o))
        return CH_FAIL(COHORT_EOPTION,
                       "struct cohort_options: struct_bytes is %zu, this library's is %zu (was "
                       "cohort_options_init() called?)",
                       o->struct_bytes, sizeof(*o));
    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++) {
        const struct option *opt = &options[i];
        uint64_t v = option_get(opt, o);

        if (!option_in_range(opt, v)) {
            option_format(opt, v, text);
            return option_refuse(opt, text);
        }
    }
    if (o->zone_bytes % CH_PAGE_BYTES != 0)
        return CH_FAIL(COHORT_EOPTION, "option zone_bytes: %" PRIu64 " is not a multiple of %d",
                       o->zone_bytes, CH_PAGE_BYTES);
    return 0;
}

void
cohort_options_init(struct cohort_options *o)
{
    memset(o, 0, sizeof(*o));
    o->struct_bytes = sizeof(*o);
    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++)
        option_put(&options[i], o, options[i].initial);
}

int
cohort_options_set(struct cohort_options *o, const char *name, const char *value)
{
    const struct option *opt = NULL;
    uint64_t v = 0;
    int rc;

    if (o == NULL || name == NULL || value == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_options_set: options, name or value is NULL");
    rc = option_parse(name, value, &opt, &v);
    if (rc == 0)
        option_put(opt, o, v);
    return rc;
}

/* Prints `text` broken at spaces and behind bars before column 80; all lines but the first, or all, indented by 4. */
static void
print_wrapped(const char *text, bool indent_first, FILE *out)
{
    enum {
        WIDTH = 76
    };
    bool indent = indent_first;

    for (; *text != '\0'; indent = true) {
        size_t n = strlen(text);

        if (n > WIDTH) {
            for (n = WIDTH; n > 0 && text[n] != ' ' && text[n - 1] != '|'; n--)
                continue;
            if (n == 0) /* nowhere to break at */
                n = WIDTH;
        }
        (void)fprintf(out, "%s%.*s\n", indent ? "    " : "", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

void
cohort_options_print(const struct cohort_options *o, FILE *out)
{
    char value[CH_OPTION_TEXT_BYTES], range[OPTION_RANGE_BYTES];
    char line[2 * CH_OPTION_TEXT_BYTES + OPTION_RANGE_BYTES];

    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++) {
        const struct option *opt = &options[i];

        option_format(opt, option_get(opt, o), value);
        range_format(opt, range, sizeof(range));
        (void)snprintf(line, sizeof(line), "%s = %s (%s)", opt->name, value, range);
        print_wrapped(line, false, out);
        print_wrapped(opt->doc, true, out);
    }
}
