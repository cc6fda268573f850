/* args.c - see args.h. */
#include "tools/args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

static int
args_u64(const char *what, const char *text, uint64_t *out, char **end)
{
    unsigned long long v;

    errno = 0;
    v = strtoull(text, end, 10);
    if (!isdigit((unsigned char)text[0]) || errno != 0)
        return CH_FAIL(COHORT_EOPTION, "%s: '%s' is not a number", what, text);
    *out = v;
    return 0;
}

int
args_bytes(const char *what, const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    uint64_t v = 0;
    unsigned shift = 0;
    char *end = NULL;
    const char *unit;
    int rc;

    rc = args_u64(what, text, &v, &end);
    if (rc != 0)
        return rc;
    if (*end != '\0') {
        unit = strchr(units, toupper((unsigned char)*end));
        if (unit == NULL || end[1] != '\0')
            return CH_FAIL(COHORT_EOPTION, "%s: '%s' is not a size (suffixes K, M, G, T)", what,
                           text);
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (v > UINT64_MAX >> shift)
        return CH_FAIL(COHORT_EOPTION, "%s: '%s' is too large", what, text);
    *out = v << shift;
    return 0;
}

int
args_real(const char *what, const char *text, double *out)
{
    char *end = NULL;
    double v;

    v = strtod(text, &end);
    if (end == text || (*end != '\0' && strcmp(end, "%") != 0) || !isfinite(v) || v < 0)
        return CH_FAIL(COHORT_EOPTION, "%s: '%s' is not a number >= 0", what, text);
    *out = v;
    return 0;
}

/* "name=value" of -o. */
static int
args_set(struct cohort_options *options, const char *text)
{
    const char *eq = strchr(text, '=');
    char name[64];

    if (eq == NULL || eq == text || (size_t)(eq - text) >= sizeof(name))
        return CH_FAIL(COHORT_EOPTION, "-o '%s': expected name=value", text);
    memcpy(name, text, (size_t)(eq - text));
    name[eq - text] = '\0';
    return cohort_options_set(options, name, eq + 1);
}

static int
args_store(const struct arg *a, const char *text)
{
    char what[80];
    char *end = NULL;
    int rc;

    snprintf(what, sizeof(what), "--%s", a->name);
    switch (a->kind) {
    case ARG_FLAG:
        *(bool *)a->dest = true;
        return 0;
    case ARG_U64:
        rc = args_u64(what, text, a->dest, &end);
        if (rc == 0 && *end != '\0')
            rc = CH_FAIL(COHORT_EOPTION, "%s: '%s' is not a whole number", what, text);
        return rc;
    case ARG_BYTES:
        return args_bytes(what, text, a->dest);
    case ARG_REAL:
        return args_real(what, text, a->dest);
    case ARG_TEXT:
        *(const char **)a->dest = text;
        return 0;
    case ARG_SET:
        return args_set(a->dest, text);
    case ARG_OPTION:
        return cohort_options_set(a->dest, a->option, text);
    }
    return CH_FAIL(COHORT_EOPTION, "%s: no such kind of option", what);
}

/* What getopt refused: a long option is named by argv, a short one by optopt. */
static int
args_refused(int c, char **argv)
{
    const char *why = c == ':' ? "needs a value" : "is not an option of this command";
    const char *word = argv[optind - 1];

    if (optopt > ' ' && optopt < 127 && strncmp(word, "--", 2) != 0)
        return CH_FAIL(COHORT_EOPTION, "-%c %s", optopt, why);
    return CH_FAIL(COHORT_EOPTION, "%s %s", word, why);
}

int
args_parse(int argc, char **argv, const struct arg *args, size_t n, int *first)
{
    struct option longs[ARGS_MAX + 1] = {0};
    char shorts[2 * ARGS_MAX + 2] = ":";
    size_t used = 1;
    int c;

    CH_ASSERT(n <= ARGS_MAX);
    for (size_t i = 0; i < n; i++) {
        longs[i].name = args[i].name;
        longs[i].has_arg = args[i].kind == ARG_FLAG ? no_argument : required_argument;
        longs[i].val = 1000 + (int)i;
        if (args[i].letter != 0) {
            shorts[used++] = (char)args[i].letter;
            if (args[i].kind != ARG_FLAG)
                shorts[used++] = ':';
        }
    }
    shorts[used] = '\0';
    optind = 0; /* glibc: start anew */
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        size_t i = 0;
        int rc;

        if (c == '?' || c == ':')
            return args_refused(c, argv);
        if (c >= 1000)
            i = (size_t)(c - 1000);
        else
            while (args[i].letter != c)
                i++;
        rc = args_store(&args[i], optarg);
        if (rc != 0)
            return rc;
    }
    *first = optind;
    return 0;
}

void
args_help(const struct arg *args, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        char left[64];

        if (args[i].letter != 0)
            snprintf(left, sizeof(left), "-%c, --%s%s", args[i].letter, args[i].name,
                     args[i].kind == ARG_FLAG ? "" : " X");
        else
            snprintf(left, sizeof(left), "    --%s%s", args[i].name,
                     args[i].kind == ARG_FLAG ? "" : " X");
        fprintf(out, "  %-26s %s\n", left, args[i].help);
    }
}
