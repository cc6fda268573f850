/* ratios.c - cohort bench ratios: what compression and packing make of 4 KiB pages of five kinds of data.
 *
 * The paper's table of ratios (LZ4 and ZSTD, page by page) stands beside what is measured here. Its YCSB can be had exactly,
 * its TPC-C nearly, its other data sets not at all: they are not public. Each row says whether its data is comparable.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/ratios.h"

static const struct ratios_codec codecs[] = {
    {"lz4", PACK_LZ4, 0, false},         {"zstd:1", PACK_ZSTD, 1, false},
    {"zstd:3", PACK_ZSTD, 3, false},     {"zstd:9", PACK_ZSTD, 9, false},
    {"zstd:1+dict", PACK_ZSTD, 1, true}, {"zstd:3+dict", PACK_ZSTD, 3, true},
    {"zstd:9+dict", PACK_ZSTD, 9, true},
};

/* Page by page, 4 KiB (the paper's table of data sets). */
static const struct paper {
    const char *set;
    double lz4, zstd;
} paper[] = {
    {"tpcc", .490, .365}, {"ycsb", .412, .344}, {"email", .401, .274},
    {"url", .250, .145},  {"wiki", .313, .178},
};

struct ratios_run {
    struct bench_config c;
    struct data_config data;
    uint64_t warehouses, batch;
    const char *sets, *own;
    char *directory;
};

/* The paper's figure for the codec, 0 = it has none. */
static double
paper_ratio(const char *set, const struct ratios_codec *codec)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(paper); i++)
        if (strcmp(paper[i].set, set) == 0 && !codec->dictionary)
            return codec->codec == PACK_LZ4 ? paper[i].lz4 : codec->level <= 3 ? paper[i].zstd : 0;
    return 0;
}

static const char *
comparable(const char *set, const struct data *d)
{
    if (d == NULL)
        return "same schema, rows without padding";
    if (strcmp(set, "ycsb") == 0)
        return "made to have the paper's LZ4 ratio";
    return d->own ? "your data" : "different data";
}

static void
print_text(const char *set, const struct ratios_codec *codec, const struct ratios_result *r)
{
    double theirs = paper_ratio(set, codec);
    char text[16] = "-";

    if (theirs > 0)
        (void)snprintf(text, sizeof(text), "%.3f", theirs);
    printf("  %-12s %6.3f %6.3f %6s %7.3f | %6.3f %6.3f %6.3f %6.3f %6.3f %6.3f | %7.1f %7.1f",
           codec->name, r->mean, r->sd, text, r->image, r->slot4, r->slot4_more, r->slot8,
           r->crossing, r->run, r->run_crossing, r->encode_us, r->decode_us);
    if (r->dictionaries > 0)
        printf("  %u dictionaries, %zu bytes", r->dictionaries, r->dictionary_bytes);
    printf("\n");
}

static int
print_json(const char *set, const struct data *d, const struct ratios_pages *p,
           const struct ratios_run *x, const struct ratios_codec *codec,
           const struct ratios_result *r)
{
    const struct {
        const char *name;
        double v;
    } reals[] = {
        {"compress_ratio", r->mean},
        {"compress_ratio_sd", r->sd},
        {"image_ratio", r->image},
        {"packed_ratio", r->slot4},
        {"packed_ratio_double_batch", r->slot4_more},
        {"packed_ratio_8k", r->slot8},
        {"crossing_8k", r->crossing},
        {"packed_ratio_straddle", r->run},
        {"crossing_straddle", r->run_crossing},
        {"leaf_fill", p->leaf_fill > 0 ? p->leaf_fill : FIGURE_ABSENT},
        {"encode_cpu_us_per_page", r->encode_us},
        {"decode_cpu_us_per_page", r->decode_us},
        {"paper_ratio", paper_ratio(set, codec) > 0 ? paper_ratio(set, codec) : FIGURE_ABSENT},
    };
    struct json_object *o = json_object_new_object();
    int rc = o != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "JSON object");

    if (rc == 0)
        rc = report_text(o, "data_set", set);
    if (rc == 0)
        rc = report_text(o, "data", d != NULL ? d->what : "TPC-C as loaded, all tables");
    if (rc == 0)
        rc = report_text(o, "comparable", comparable(set, d));
    if (rc == 0)
        rc = report_text(o, "codec", codec->name);
    if (rc == 0)
        rc = report_u64(o, "pages", r->pages);
    if (rc == 0)
        rc = report_u64(o, "batch", x->batch);
    for (size_t i = 0; rc == 0 && i < CH_ARRAY_LEN(reals); i++)
        rc = report_real(o, reals[i].name, reals[i].v);
    if (rc == 0)
        rc = report_u64(o, "dictionaries", r->dictionaries);
    if (rc == 0)
        rc = report_u64(o, "dictionary_bytes", r->dictionary_bytes);
    if (rc == 0)
        return tool_json_print(o, stdout);
    json_object_put(o);
    return rc;
}

static void
print_head(const char *set, const struct data *d, const struct ratios_pages *p)
{
    printf("%s: %s; %zu pages", set, d != NULL ? d->what : "as loaded, all tables", p->count);
    if (p->leaf_fill > 0)
        printf(", leaves %.0f %% full", 100 * p->leaf_fill);
    printf("; beside the paper's: %s\n", comparable(set, d));
    printf("  %-12s %6s %6s %6s %7s | %6s %6s %6s %6s %6s %6s | %7s %7s\n", "codec", "page", "sd",
           "paper", "image", "4K", "4K*2", "8K", "cross", "run", "cross", "enc us", "dec us");
}

static int
measure_all(const struct ratios_run *x, const char *set, const struct data *d,
            const struct ratios_pages *p)
{
    int rc = 0;

    if (!x->c.t->json)
        print_head(set, d, p);
    for (size_t i = 0; rc == 0 && i < CH_ARRAY_LEN(codecs); i++) {
        struct ratios_result r;

        rc = ratios_measure(p, &codecs[i], (unsigned)x->batch, &r);
        if (rc == 0 && x->c.t->json)
            rc = print_json(set, d, p, x, &codecs[i], &r);
        else if (rc == 0)
            print_text(set, &codecs[i], &r);
    }
    return rc;
}

/* The database of a set goes when its pages are taken. */
static void
remove_database(const char *directory)
{
    static const char *const files[] = {"cohort.db", "cohort.lock"};

    for (size_t i = 0; i < CH_ARRAY_LEN(files); i++) {
        char *path = NULL;

        if (asprintf(&path, "%s/%s", directory, files[i]) >= 0)
            (void)unlink(path);
        free(path);
    }
}

static int
run_set(struct ratios_run *x, const char *set)
{
    bool tpcc = strcmp(set, "tpcc") == 0;
    struct ratios_pages pages = {0};
    struct data d = {0};
    int rc = 0;

    x->data.name = set;
    if (!tpcc)
        rc = data_init(&x->data, &d);
    if (rc == 0)
        rc = ratios_load(&x->c, tpcc ? NULL : &d, x->warehouses, &pages);
    remove_database(x->directory);
    if (rc == 0)
        rc = measure_all(x, set, tpcc ? NULL : &d, &pages);
    ratios_pages_fini(&pages);
    data_fini(&d);
    return rc;
}

static int
make_directory(struct ratios_run *x)
{
    const char *where = getenv("TMPDIR");

    if (asprintf(&x->directory, "%s/cohort-ratios.XXXXXX", where != NULL ? where : "/var/tmp") < 0)
        return CH_FAIL(COHORT_ENOMEM, "directory");
    if (mkdtemp(x->directory) == NULL)
        return CH_FAIL(COHORT_EIO, "%s: %s", x->directory, strerror(errno));
    x->c.device = x->directory;
    return 0;
}

static int
run_sets(struct ratios_run *x)
{
    char *list = strdup(x->sets), *save = NULL;
    int rc = list != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "sets");

    for (char *p = list == NULL ? NULL : strtok_r(list, ",", &save); rc == 0 && p != NULL;
         p = strtok_r(NULL, ",", &save))
        rc = run_set(x, p);
    if (rc == 0 && x->own != NULL)
        rc = run_set(x, x->own);
    if (rc == 0 && !x->c.t->json)
        printf(
            "page: the codec's output, mean and deviation; image: with header and rounding; 4K: "
            "slots of 4 KiB, packed by the\nengine in batches of %" PRIu64 ", 4K*2 of twice as "
            "many (at most %d); 8K: slots of 8 KiB, cross: pages that lie in two\nblocks then; "
            "run: images back to back; all as parts of the pages' bytes. CPU time of one thread.\n",
            x->batch, CH_BATCH_MAX);
    free(list);
    return rc == 0 ? tool_flush() : rc;
}

int
bench_ratios(struct tool *t, int argc, char **argv)
{
    struct ratios_run x = {
        .warehouses = 1,
        .batch = 128,
        .sets = "tpcc,ycsb,email,url,wiki",
        .data = {
            .bytes = UINT64_C(16) << 20, .seed = 1, .value_bytes = 120, .compressibility = 0.28}};
    const struct arg own[] = {
        {"sets", 0, ARG_TEXT, &x.sets, NULL, "Names, with commas (tpcc,ycsb,email,url,wiki)."},
        {"file", 0, ARG_TEXT, &x.own, NULL,
         "Your own: mbox, .csv, .jsonl, MediaWiki .xml, or lines as keys."},
        {"text", 0, ARG_TEXT, &x.data.text, NULL,
         "Directories of text for email, url and wiki, with colons."},
        {"bytes", 0, ARG_BYTES, &x.data.bytes, NULL, "Of each data set but TPC-C (16M)."},
        {"warehouses", 'w', ARG_U64, &x.warehouses, NULL, "Of TPC-C (1)."},
        {"batch", 0, ARG_U64, &x.batch, NULL, "Pages packed together (128)."},
        {"value-bytes", 0, ARG_BYTES, &x.data.value_bytes, NULL, "Of ycsb (120)."},
        {"compressibility", 0, ARG_REAL, &x.data.compressibility, NULL,
         "Random part of a ycsb value, 0 to 1 (0.28)."},
        {"seed", 0, ARG_U64, &x.data.seed, NULL, "Seed of all choices (1)."},
    };
    char **pos = NULL;
    int count = 0, rc;

    bench_config_init(&x.c, t);
    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 0, 0, &pos, &count);
    if (rc != 0 || t->help)
        return rc;
    if (x.batch < 1 || x.batch > CH_BATCH_MAX)
        return CH_FAIL(COHORT_EOPTION, "--batch %" PRIu64 ": 1 to %d", x.batch, CH_BATCH_MAX);
    if (x.data.value_bytes > COHORT_ENTRY_MAX - 8 || x.data.compressibility > 1)
        return CH_FAIL(COHORT_EOPTION, "--value-bytes up to %d, --compressibility up to 1",
                       COHORT_ENTRY_MAX - 8);
    x.c.seed = x.data.seed;
    rc = make_directory(&x);
    if (rc == 0)
        rc = run_sets(&x);
    if (x.directory != NULL)
        (void)rmdir(x.directory);
    free(x.directory);
    return rc;
}
