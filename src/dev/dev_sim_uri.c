/* dev_sim_uri.c - the text behind "sim:": MODEL,key=value,...
 *
 *     bytes=1G        capacity, multiple of 4 KiB                              (1G)
 *     spare=7%        over-provisioning; one decimal is taken: 12.5%           (model)
 *     superblock=8M   the drive's erase unit                                   (model)
 *     open=1          superblocks that host data is striped over               (model)
 *     stripe=128K     bytes to one of them before the next                     (model)
 *     gc=separate     or shared: where device GC writes                        (model)
 *     gc_low=2        free superblocks at which device GC starts               (model)
 *     floor=4.5%      media bytes beyond page programs, per host byte          (model)
 *     cache=volatile  or none: what a power cut may do to unflushed writes     (volatile)
 *     file=PATH       keeps the contents there; the path can't hold a comma    (memory)
 *     seed=0          mixed into what a power cut draws                        (0)
 *
 * MODEL may be left out: "generic". Sizes take K, M, G and T, powers of 1024. Pure.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dev/dev_internal.h"
#include "ssd/ssd.h"

enum {
    URI_BYTES_MAX = 1024
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

/* *known = there is such a key; returns whether its value is good. */
static bool
set_key(const char *key, const char *value, struct ssd_config *cfg, struct sim_uri *uri,
        bool *known)
{
    *known = true;
    if (strcmp(key, "bytes") == 0)
        return parse_bytes(value, &cfg->logical_pages);
    if (strcmp(key, "spare") == 0)
        return parse_percent(value, &cfg->spare_permille);
    if (strcmp(key, "floor") == 0)
        return parse_percent(value, &cfg->floor_permille);
    if (strcmp(key, "superblock") == 0)
        return parse_pages(value, &cfg->superblock_pages);
    if (strcmp(key, "stripe") == 0)
        return parse_pages(value, &cfg->stripe_pages);
    if (strcmp(key, "open") == 0)
        return parse_u32(value, &cfg->open_superblocks);
    if (strcmp(key, "gc_low") == 0)
        return parse_u32(value, &cfg->gc_low);
    if (strcmp(key, "gc") == 0)
        return parse_either(value, "separate", "shared", &cfg->shared_gc);
    if (strcmp(key, "cache") == 0)
        return parse_either(value, "none", "volatile", &uri->volatile_cache);
    if (strcmp(key, "tear") == 0)
        return parse_either(value, "yes", "no", &uri->untorn);
    if (strcmp(key, "seed") == 0)
        return parse_size(value, &uri->seed);
    if (strcmp(key, "file") == 0) {
        free(uri->file);
        uri->file = *value == '\0' ? NULL : strdup(value);
        return uri->file != NULL;
    }
    *known = false;
    return false;
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
    rc = ssd_model("generic", cfg);
    cfg->logical_pages = (UINT64_C(1) << 30) / CH_PAGE_BYTES;
    while (rc == 0 && (word = strsep(&rest, ",")) != NULL) {
        uint64_t pages = cfg->logical_pages;

        value = strchr(word, '=');
        if (value != NULL) {
            *value++ = '\0';
            if (!set_key(word, value, cfg, uri, &known))
                rc = known ? CH_FAIL(COHORT_EOPTION, "sim: %s=%s: bad value", word, value)
                           : CH_FAIL(COHORT_EOPTION, "sim: %s: no such key", word);
        } else if (first && *word != '\0') {
            rc = ssd_model(word, cfg);
            cfg->logical_pages = pages;
        } else if (*word != '\0') {
            rc = CH_FAIL(COHORT_EOPTION, "sim: %s: key without value", word);
        }
        first = false;
    }
    if (rc != 0) {
        free(uri->file);
        uri->file = NULL;
    }
    return rc;
}
