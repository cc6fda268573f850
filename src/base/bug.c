/* bug.c - the list of planted bugs, by name. */
#include "base/bug.h"

#ifdef COHORT_BUGS
enum ch_bug ch_bug_selected = CH_BUG_NONE;
#endif

static const struct {
    const char *name, *rule, *text;
} BUGS[] = {
#define COHORT_BUG(name, rule, text) {#name, #rule, text},
#include "base/bug.def"
#undef COHORT_BUG
};

bool
ch_bug_select(const char *name)
{
#ifdef COHORT_BUGS
    if (name == NULL) {
        ch_bug_selected = CH_BUG_NONE;
        return true;
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(BUGS); i++) {
        if (strcmp(BUGS[i].name, name) == 0) {
            ch_bug_selected = (enum ch_bug)(i + 1);
            return true;
        }
    }
#endif
    (void)name;
    return false;
}

void
ch_bug_list(FILE *out)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(BUGS); i++)
        (void)fprintf(out, "%s\t%s\t%s\n", BUGS[i].name, BUGS[i].rule, BUGS[i].text);
}
