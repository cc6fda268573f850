/* dev_sim_uri.c - the text behind "sim:": MODEL,key=value,...
 *
 *     bytes=1G        capacity, multiple of 4 KiB                              (1G)
 *     spare=7%        over-provisioning; one decimal is taken: 12.5%           (model)
 *     superblock=8M   the drive's erase unit                                   (model)
 *     open=1          superblocks that host data is striped over               (model)
 *     stripe=128K     bytes to one of them before the next                     (model)
 *     gc=separate     or shared: where device GC writes                        (model)
 *     gc_low=2        free superblocks at which device GC starts               (model)
 *     buffer=256K     write buffer that absorbs rewrites                       (model)
 *     wear=N          erases by which superblocks may differ; 0 = any          (model)
 *     choices=N       GC victim: the best of so many; 0 = of all               (model)
 *     burst=N         superblocks that GC may free beyond the first            (model)
 *     slc=2%          SLC cache, of the capacity                               (model)
 *     handles=8       placement handles (FDP); or fdp=yes (8), fdp=no          (model)
 *     isolation=initial   or persistent: whether GC mixes handles' data        (model)
 *     zone=8M         zones (ZNS) of so many addresses; 0 = none               (model)
 *     cap=4308K       ... of which so many can be written                      (model)
 *     conventional=64M    space before them that is written anywhere           (bytes / 16)
 *     maxopen=14      open zones; 0 = any number                               (model)
 *     maxactive=14    open or half-written zones; 0 = any number               (model)
 *     timing=off      or virtual (dev.h) or real: requests take the model's time   (off)
 *     unit=shown      or hidden: whether dev_caps() tells the erase unit       (shown)
 *     floor=4.5%      media bytes beyond page programs, per programmed byte    (model)
 *     cache=volatile  or none: what a power cut may do to unflushed writes     (volatile)
 *     file=PATH       keeps the contents there; the path can't hold a comma    (memory)
 *     seed=0          mixed into what a power cut draws                        (0)
 *
 * MODEL may be left out ("generic") or given as model=MODEL, before the keys it has values for. Sizes take K, M, G and T, powers of 1024. Pure.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "dev/dev_internal.h"
#include "ssd/ssd.h"

enum {
    URI_BYTES_MAX = 1024,
    URI_HANDLES = 8
};

/* Digits only, then at most one suffix; false when it is no size or too large. */
static bool
parse_size(const char *text, uint64_t *out)
{
    static const char SUFFIXES[] = "KMGT";
    const char *suffix;
    uint64_t v = 0;

    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(*text - '0');
    }
    if (*text != '\0') {
        suffix = strchr(SUFFIXES, *text);
        if (suffix == NULL || text[1] != '\0')
            return false;
        for (const char *p = SUFFIXES; p <= suffix; p++) {
            if (v > UINT64_MAX / 1024)
                return false;
            v *= 1024;
        }
    }
    *out = v;
    return true;
}

/* "7%" or "12.5%" in permille. */
static bool
parse_percent(const char *text, uint32_t *out)
{
    uint32_t v = 0;
    const char *p = text;

    for (; *p >= '0' && *p <= '9' && v < 100000; p++)
        v = v * 10 + (uint32_t)(*p - '0');
    if (p == text)
        return false;
    v *= 10;
    if (p[0] == '.' && p[1] >= '0' && p[1] <= '9') {
        v += (uint32_t)(p[1] - '0');
        p += 2;
    }
    if (strcmp(p, "%") != 0)
        return false;
    *out = v;
    return true;
}

/* A size in whole pages that fits 32 bits. */
static bool
parse_pages(const char *text, uint32_t *out)
{
    uint64_t v;

    if (!parse_size(text, &v) || v % CH_PAGE_BYTES != 0 || v / CH_PAGE_BYTES > UINT32_MAX)
        return false;
    *out = (uint32_t)(v / CH_PAGE_BYTES);
    return true;
}

static bool
parse_u32(const char *text, uint32_t *out)
{
    uint64_t v;

    if (!parse_size(text, &v) || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

static bool
parse_bytes(const char *text, uint64_t *pages)
{
    uint64_t v;

    if (!parse_size(text, &v) || v == 0 || v % CH_PAGE_BYTES != 0)
        return false;
    *pages = v / CH_PAGE_BYTES;
    return true;
}

/* One of two words; *out = it is the second. */
static bool
parse_either(const char *text, const char *first, const char *second, bool *out)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        return false;
    *out = strcmp(text, second) == 0;
    return true;
}

enum key_kind {
    KEY_BYTES,   /* uint64_t pages */
    KEY_PAGES,   /* uint32_t pages, from a size */
    KEY_PERCENT, /* uint32_t permille */
    KEY_NUMBER,  /* uint32_t */
    KEY_SEED,    /* uint64_t */
    KEY_EITHER,  /* bool: it is the second of two words */
    KEY_TIMING,  /* enum sim_timing_kind */
    KEY_FILE
};

static const struct key {
    const char *name;
    enum key_kind kind;
    bool of_uri; /* the field is one of struct sim_uri, else of struct ssd_config */
    size_t field;
    const char *first, *second; /* EITHER */
} KEYS[] = {
    {"bytes", KEY_BYTES, false, offsetof(struct ssd_config, logical_pages), NULL, NULL},
    {"spare", KEY_PERCENT, false, offsetof(struct ssd_config, spare_permille), NULL, NULL},
    {"floor", KEY_PERCENT, false, offsetof(struct ssd_config, floor_permille), NULL, NULL},
    {"slc", KEY_PERCENT, false, offsetof(struct ssd_config, slc_permille), NULL, NULL},
    {"superblock", KEY_PAGES, false, offsetof(struct ssd_config, superblock_pages), NULL, NULL},
    {"stripe", KEY_PAGES, false, offsetof(struct ssd_config, stripe_pages), NULL, NULL},
    {"buffer", KEY_PAGES, false, offsetof(struct ssd_config, buffer_pages), NULL, NULL},
    {"open", KEY_NUMBER, false, offsetof(struct ssd_config, open_superblocks), NULL, NULL},
    {"gc_low", KEY_NUMBER, false, offsetof(struct ssd_config, gc_low), NULL, NULL},
    {"wear", KEY_NUMBER, false, offsetof(struct ssd_config, wear_spread), NULL, NULL},
    {"choices", KEY_NUMBER, false, offsetof(struct ssd_config, gc_choices), NULL, NULL},
    {"burst", KEY_NUMBER, false, offsetof(struct ssd_config, gc_burst), NULL, NULL},
    {"handles", KEY_NUMBER, false, offsetof(struct ssd_config, handles), NULL, NULL},
    {"isolation", KEY_EITHER, false, offsetof(struct ssd_config, persistent), "initial",
     "persistent"},
    {"gc", KEY_EITHER, false, offsetof(struct ssd_config, shared_gc), "separate", "shared"},
    {"cache", KEY_EITHER, true, offsetof(struct sim_uri, volatile_cache), "none", "volatile"},
    {"tear", KEY_EITHER, true, offsetof(struct sim_uri, untorn), "yes", "no"},
    {"unit", KEY_EITHER, true, offsetof(struct sim_uri, unit_hidden), "shown", "hidden"},
    {"zone", KEY_PAGES, true, offsetof(struct sim_uri, zns.zone_pages), NULL, NULL},
    {"cap", KEY_PAGES, true, offsetof(struct sim_uri, zns.cap_pages), NULL, NULL},
    {"conventional", KEY_BYTES, true, offsetof(struct sim_uri, conventional_pages), NULL, NULL},
    {"maxopen", KEY_NUMBER, true, offsetof(struct sim_uri, zns.open_max), NULL, NULL},
    {"maxactive", KEY_NUMBER, true, offsetof(struct sim_uri, zns.active_max), NULL, NULL},
    {"timing", KEY_TIMING, true, offsetof(struct sim_uri, timing), NULL, NULL},
    {"seed", KEY_SEED, true, offsetof(struct sim_uri, seed), NULL, NULL},
    {"file", KEY_FILE, true, offsetof(struct sim_uri, file), NULL, NULL},
};

static bool
parse_timing(const char *text, enum sim_timing_kind *out)
{
    static const char *const WORD[] = {"off", "virtual", "real"};

    for (size_t i = 0; i < CH_ARRAY_LEN(WORD); i++) {
        if (strcmp(WORD[i], text) == 0) {
            *out = (enum sim_timing_kind)i;
            return true;
        }
    }
    return false;
}

static bool
parse_file(const char *value, char **file)
{
    free(*file);
    *file = *value == '\0' ? NULL : strdup(value);
    return *file != NULL;
}

/* Whether the value is good. */
static bool
key_set(const struct key *k, const char *value, void *field)
{
    switch (k->kind) {
    case KEY_BYTES:
        return parse_bytes(value, field);
    case KEY_PAGES:
        return parse_pages(value, field);
    case KEY_PERCENT:
        return parse_percent(value, field);
    case KEY_NUMBER:
        return parse_u32(value, field);
    case KEY_SEED:
        return parse_size(value, field);
    case KEY_EITHER:
        return parse_either(value, k->first, k->second, field);
    case KEY_TIMING:
        return parse_timing(value, field);
    case KEY_FILE:
        return parse_file(value, field);
    }
    return false;
}

/* *known = there is such a key; returns whether its value is good. */
static bool
set_key(const char *key, const char *value, struct ssd_config *cfg, struct sim_uri *uri,
        bool *known)
{
    bool fdp = false;

    *known = true;
    if (strcmp(key, "fdp") == 0) {
        if (!parse_either(value, "no", "yes", &fdp))
            return false;
        cfg->handles = !fdp ? 0 : cfg->handles > 0 ? cfg->handles : URI_HANDLES;
        return true;
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(KEYS); i++) {
        if (strcmp(KEYS[i].name, key) == 0)
            return key_set(&KEYS[i], value,
                           (char *)(KEYS[i].of_uri ? (void *)uri : (void *)cfg) + KEYS[i].field);
    }
    *known = false;
    return false;
}

/* Everything that a model says, but for the capacity. */
static int
set_model(const char *name, struct ssd_config *cfg, struct sim_uri *uri)
{
    uint64_t pages = cfg->logical_pages;
    int rc = ssd_model(name, cfg);

    if (rc == 0)
        rc = ssd_timing_model(name, &uri->clock);
    if (rc == 0 && !ssd_zns_model(name, &uri->zns))
        uri->zns = (struct ssd_zns_config){0};
    cfg->logical_pages = pages;
    return rc;
}

int
sim_uri_parse(const char *text, struct ssd_config *cfg, struct sim_uri *uri)
{
    char copy[URI_BYTES_MAX];
    char *word, *value, *rest = copy;
    bool known, first = true;
    int rc;

    *uri = (struct sim_uri){.volatile_cache = true};
    errno = 0;
    if (strlen(text) >= sizeof(copy))
        return CH_FAIL(COHORT_EOPTION, "sim: text of %zu bytes; less than %d", strlen(text),
                       URI_BYTES_MAX);
    memcpy(copy, text, strlen(text) + 1);
    cfg->logical_pages = (UINT64_C(1) << 30) / CH_PAGE_BYTES;
    rc = set_model("generic", cfg, uri);
    while (rc == 0 && (word = strsep(&rest, ",")) != NULL) {
        value = strchr(word, '=');
        if (value != NULL) {
            *value++ = '\0';
            if (first && strcmp(word, "model") == 0) {
                rc = set_model(value, cfg, uri);
            } else if (!set_key(word, value, cfg, uri, &known)) {
                rc = known ? CH_FAIL(COHORT_EOPTION, "sim: %s=%s: bad value", word, value)
                           : CH_FAIL(COHORT_EOPTION, "sim: %s: no such key", word);
            }
        } else if (first && *word != '\0') {
            rc = set_model(word, cfg, uri);
        } else if (*word != '\0') {
            rc = CH_FAIL(COHORT_EOPTION, "sim: %s: key without value", word);
        }
        first = false;
    }
    if (uri->zns.zone_pages > 0 && uri->zns.cap_pages == 0)
        uri->zns.cap_pages = uri->zns.zone_pages;
    if (rc != 0) {
        free(uri->file);
        uri->file = NULL;
    }
    return rc;
}
