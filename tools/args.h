/* args.h - command lines as tables, for the tool and the benches; getopt_long() does the work.
 *
 * Options and positional arguments may be mixed; "--" ends the options. Errors are COHORT_EOPTION
 * with the option named in the error record.
 */
#ifndef CH_TOOLS_ARGS_H
#define CH_TOOLS_ARGS_H

#include "base/base.h"

enum arg_kind {
    ARG_FLAG,   /* bool *: set to true */
    ARG_U64,    /* uint64_t *: decimal */
    ARG_BYTES,  /* uint64_t *: decimal with K, M, G or T */
    ARG_REAL,   /* double *: a finite number, not negative; a '%' behind it is ignored */
    ARG_TEXT,   /* const char **: borrowed from argv */
    ARG_SET,    /* struct cohort_options *: "name=value" */
    ARG_OPTION, /* struct cohort_options *: value of the option called `option` */
};

struct arg {
    const char *name; /* long name */
    int letter;       /* short one, or 0 */
    enum arg_kind kind;
    void *dest;
    const char *option;
    const char *help;
};

enum {
    ARGS_MAX = 64
};

/* Parses argv[1..]; argv is reordered, and *first is the index of the first positional argument. */
CH_NODISCARD int args_parse(int argc, char **argv, const struct arg *args, size_t n, int *first);
void args_help(const struct arg *args, size_t n, FILE *out);

/* Numbers as above, for values that are parsed later. `what` names the option in errors. */
CH_NODISCARD int args_bytes(const char *what, const char *text, uint64_t *out);
CH_NODISCARD int args_real(const char *what, const char *text, double *out);

#endif
