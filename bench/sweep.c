/* sweep.c - cohort bench sweep: what the ablation runs, for each point of a grid.
 *
 *     cohort bench sweep --axis fill=20,45,70,90 --axis theta=0,0.8 --rows oop,cohort [OPTION of ablation]...
 *
 * An axis is any option that the ablation takes, with the values that it shall have in turn: fill, theta, cache,
 * compressibility, workload, skew, hot-part, value-bytes, leaf-fill, zone-bytes, spare, superblock, model ...; or
 * an option of the library, as NAME with underscores: codec_level, checkpoint_percent ... Several axes make a grid.
 * Each point starts from fresh drives. With --json one object a run, with fields `axis` and `axis_value` (of several
 * axes: joined by ","), which `cohort report` plots as lines.
 */
#include <stdlib.h>

#include "bench/ablation.h"

enum {
    AXES_MAX = 4,
    AXIS_VALUES_MAX = 64,
    WORDS_MAX = 128
};

struct axis {
    char *text; /* owned: name and values are cut out of it */
    const char *name;
    const char *values[AXIS_VALUES_MAX];
    size_t count;
};

struct sweep {
    struct tool *t;
    struct axis axes[AXES_MAX];
    size_t axis_count;
    char *words[WORDS_MAX]; /* of the command line, without the axes */
    int word_count;
};

static int
add_axis(struct sweep *s, const char *text)
{
    struct axis *a = &s->axes[s->axis_count];
    char *save = NULL, *values;

    if (s->axis_count == AXES_MAX)
        return CH_FAIL(COHORT_EOPTION, "--axis: at most %d", AXES_MAX);
    s->axis_count++;
    a->text = strdup(text);
    if (a->text == NULL)
        return CH_FAIL(COHORT_ENOMEM, "--axis");
    values = strchr(a->text, '=');
    if (values == NULL || values == a->text)
        return CH_FAIL(COHORT_EOPTION, "--axis '%s': NAME=VALUE,VALUE...", text);
    *values++ = '\0';
    a->name = a->text;
    for (char *p = strtok_r(values, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        if (a->count == AXIS_VALUES_MAX)
            return CH_FAIL(COHORT_EOPTION, "--axis %s: at most %d values", a->name,
                           AXIS_VALUES_MAX);
        a->values[a->count++] = p;
    }
    return a->count > 0 ? 0 : CH_FAIL(COHORT_EOPTION, "--axis %s: no values", a->name);
}

/* Takes the axes out of the command line; the rest is the ablation's. */
static int
split_words(struct sweep *s, int argc, char **argv)
{
    int rc = 0;

    for (int i = 0; i < argc && rc == 0; i++) {
        if (strcmp(argv[i], "--axis") == 0 && i + 1 < argc)
            rc = add_axis(s, argv[++i]);
        else if (strncmp(argv[i], "--axis=", 7) == 0)
            rc = add_axis(s, argv[i] + 7);
        else if (s->word_count + 2 * AXES_MAX + 1 >= WORDS_MAX)
            rc = CH_FAIL(COHORT_EOPTION, "too many words");
        else
            s->words[s->word_count++] = argv[i];
    }
    return rc;
}

/* One point: the words with an option and a value for each axis behind them. */
static int
run_point(struct sweep *s, const size_t *at, struct ablation_point *point)
{
    struct tool t = *s->t; /* options parsed for one point do not reach the next */
    char *words[WORDS_MAX], *made[AXES_MAX] = {0};
    int n = s->word_count, rc = 0;

    memcpy(words, s->words, (size_t)n * sizeof(*words));
    point->names[0] = point->values[0] = '\0';
    for (size_t i = 0; i < s->axis_count && rc == 0; i++) {
        const struct axis *a = &s->axes[i];
        bool option = strchr(a->name, '_') != NULL;

        snprintf(point->names + strlen(point->names), sizeof(point->names) - strlen(point->names),
                 "%s%s", i > 0 ? "," : "", a->name);
        snprintf(point->values + strlen(point->values),
                 sizeof(point->values) - strlen(point->values), "%s%s", i > 0 ? "," : "",
                 a->values[at[i]]);
        if (asprintf(&made[i], "%s%s=%s", option ? "-o" : "--", a->name, a->values[at[i]]) < 0) {
            made[i] = NULL;
            rc = CH_FAIL(COHORT_ENOMEM, "--axis");
        }
        words[n++] = made[i];
    }
    words[n] = NULL;
    if (rc == 0)
        rc = ablation_run(&t, n, words, point);
    s->t->json = t.json;
    s->t->help = t.help;
    for (size_t i = 0; i < s->axis_count; i++)
        free(made[i]);
    return rc;
}

/* The next point of the grid; false after the last one. */
static bool
next_point(const struct sweep *s, size_t *at)
{
    for (size_t i = s->axis_count; i > 0; i--) {
        if (++at[i - 1] < s->axes[i - 1].count)
            return true;
        at[i - 1] = 0;
    }
    return false;
}

int
bench_sweep(struct tool *t, int argc, char **argv)
{
    struct sweep *s = calloc(1, sizeof(*s));
    struct ablation_point point = {.first = true};
    size_t at[AXES_MAX] = {0};
    bool help = false;
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "sweep");
    s->t = t;
    rc = split_words(s, argc, argv);
    for (int i = 1; i < s->word_count; i++)
        help = help || strcmp(s->words[i], "--help") == 0 || strcmp(s->words[i], "-h") == 0;
    if (rc == 0 && help)
        printf("      --axis NAME=V,V...     An option and the values that it takes in turn; up to "
               "%d.\n",
               AXES_MAX);
    if (rc == 0 && s->axis_count == 0 && !help)
        rc = CH_FAIL(COHORT_EOPTION, "--axis NAME=V,V...: along what?");
    if (rc == 0) {
        do {
            rc = run_point(s, at, &point);
            point.first = false;
        } while (rc == 0 && !help && next_point(s, at));
    }
    for (size_t i = 0; i < s->axis_count; i++)
        free(s->axes[i].text);
    free(s);
    return rc;
}
