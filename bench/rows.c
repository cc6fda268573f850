/* rows.c - see rows.h. */
#include "bench/rows.h"

#include <stdlib.h>

#include "ssd/ssd.h"

/* The paper collects garbage only when no zone is free, so its steps keep no zones discarded for the drive
 * (device_spare=0); what comes after them decides for itself. */
#define PAPER "device_spare=0"

static const struct row_spec table[] = {
    {.name = "inplace", .preset = "inplace"},
    {.name = "inplace-atomic", .preset = "inplace-atomic", .device = ",tear=no"},
    {.name = "oop", .preset = "oop", .options = {PAPER}},
    {.name = "oop+pack", .preset = "oop+pack", .options = {PAPER}},
    {.name = "oop+gdt", .preset = "oop+gdt", .options = {PAPER}},
    {.name = "oop+nowa",
     .preset = "oop+nowa",
     .options = {PAPER},
     .extra = true}, /* refused so far */
    {.name = "oop+align",
     .preset = "oop+align",
     .options = {PAPER},
     .extra = true}, /* refused so far */
    {.name = "uncompressed", .preset = "oop+gdt", .options = {PAPER, "codec=none"}},
    {.name = "oop+mdc", .preset = "oop+mdc"},
    {.name = "oop+budget", .preset = "oop+budget", .extra = true}, /* refused so far */
    {.name = "oop+dict", .preset = "oop+dict", .extra = true},     /* refused so far */
    {.name = "oop+delta", .preset = "oop+delta"},
    {.name = "single", .preset = "single"},
    {.name = "fdp", .preset = "cohort", .model = "fdp"},
    {.name = "zns", .preset = "cohort", .model = "zns", .extra = true}, /* refused so far */
    {.name = "cohort", .preset = "cohort"},
    {.name = "oop+pack+free", .preset = "oop+pack", .extra = true},
    {.name = "cohort+zstd", .preset = "cohort", .options = {"codec=zstd"}, .extra = true},
};

int
row_apply(const struct row_spec *row, struct cohort_options *o)
{
    char name[64];
    int rc = cohort_options_set(o, "preset", row->preset);

    for (int i = 0; i < ROW_OPTIONS_MAX && row->options[i] != NULL && rc == 0; i++) {
        const char *eq = strchr(row->options[i], '=');

        if (eq == NULL || (size_t)(eq - row->options[i]) >= sizeof(name))
            return CH_FAIL(COHORT_EOPTION, "row %s: '%s' is not option=value", row->name,
                           row->options[i]);
        memcpy(name, row->options[i], (size_t)(eq - row->options[i]));
        name[eq - row->options[i]] = '\0';
        rc = cohort_options_set(o, name, eq + 1);
    }
    return rc;
}

bool
row_model_known(const char *model)
{
    struct ssd_config cfg;

    return ssd_model(model, &cfg) == 0;
}

static bool
row_available(const struct row_spec *row)
{
    struct cohort_options o;

    cohort_options_init(&o);
    return row_apply(row, &o) == 0 && (row->model == NULL || row_model_known(row->model));
}

int
row_device(const struct row_spec *row, const char *base, char **out)
{
    const char *rest = base + 4 + strcspn(base + 4, ",");
    int n;

    CH_ASSERT(strncmp(base, "sim:", 4) == 0);
    if (row->model != NULL)
        n = asprintf(out, "sim:%s%s%s", row->model, rest, row->device != NULL ? row->device : "");
    else
        n = asprintf(out, "%s%s", base, row->device != NULL ? row->device : "");
    return n >= 0 ? 0 : CH_FAIL(COHORT_ENOMEM, "URI of row %s", row->name);
}

/* One NAME[:option=value]..., cut in place. */
static int
parse_row(char *text, const char *label, struct row_spec *row)
{
    struct cohort_options o;
    char *save = NULL, *name = strtok_r(text, ":", &save);
    int used = 0;

    if (name == NULL)
        return CH_FAIL(COHORT_EOPTION, "--rows: a name is missing");
    *row = (struct row_spec){.name = name, .preset = name};
    for (size_t i = 0; i < CH_ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, name) == 0)
            *row = table[i];
    row->name = label;
    while (used < ROW_OPTIONS_MAX && row->options[used] != NULL)
        used++;
    for (char *p = strtok_r(NULL, ":", &save); p != NULL; p = strtok_r(NULL, ":", &save)) {
        if (used == ROW_OPTIONS_MAX)
            return CH_FAIL(COHORT_EOPTION, "--rows: %s: at most %d options", name, ROW_OPTIONS_MAX);
        row->options[used++] = p;
    }
    cohort_options_init(&o);
    if (row->model != NULL && !row_model_known(row->model))
        return CH_FAIL(COHORT_EOPTION, "--rows: %s: no simulated drive '%s'", name, row->model);
    return row_apply(row, &o);
}

int
rows_parse(const char *text, struct rows *out)
{
    char *save = NULL;
    int rc = 0;

    *out = (struct rows){0};
    if (text == NULL || strcmp(text, "all") == 0) {
        for (size_t i = 0; i < CH_ARRAY_LEN(table); i++)
            if (!table[i].extra && row_available(&table[i]))
                out->list[out->count++] = table[i];
        return 0;
    }
    out->text = strdup(text);
    out->labels = strdup(text);
    if (out->text == NULL || out->labels == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "--rows");
    for (char *p = rc == 0 ? strtok_r(out->text, ",", &save) : NULL; p != NULL && rc == 0;
         p = strtok_r(NULL, ",", &save)) {
        char *label = out->labels + (p - out->text);

        label[strcspn(label, ",")] = '\0';
        if (out->count == ROWS_MAX)
            rc = CH_FAIL(COHORT_EOPTION, "--rows: at most %d", ROWS_MAX);
        else
            rc = parse_row(p, label, &out->list[out->count++]);
    }
    if (rc == 0 && out->count == 0)
        rc = CH_FAIL(COHORT_EOPTION, "--rows: none named");
    return rc;
}

void
rows_fini(struct rows *r)
{
    free(r->text);
    free(r->labels);
    *r = (struct rows){0};
}
