/* dev_sim_drive.c - the making of a simulated drive from its URI, and what tests ask of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dev/dev_sim_internal.h"

enum {
    VERSIONS_MAX = 16384, /* 64 MiB of saved blocks */
};

/* Memory that costs nothing until it is touched; NULL. */
static void *
lazy_alloc(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void
lazy_free(void *p, uint64_t bytes)
{
    if (p != NULL)
        munmap(p, bytes);
}

/* Counts the ranges of an old file that hold data as written. */
static int
map_existing(struct sim_drive *s)
{
    off_t data = 0, hole;

    for (;;) {
        uint64_t first, end;

        data = lseek(s->fd, data, SEEK_DATA);
        if (data < 0)
            break;
        hole = lseek(s->fd, data, SEEK_HOLE);
        if (hole < 0)
            break;
        first = (uint64_t)data / DEV_BLOCK_BYTES;
        end = ch_min_u64(ch_div_up((uint64_t)hole, DEV_BLOCK_BYTES), s->bytes / DEV_BLOCK_BYTES);
        memset(s->filled + first, 1, end - first);
        ssd_write(s->ssd, first, end - first);
        data = hole;
    }
    if (errno != ENXIO) /* no data from here on */
        return CH_FAIL(COHORT_EIO, "%s: lseek", s->name);
    ssd_counts(s->ssd, &s->base);
    return 0;
}

static int
open_contents(struct sim_drive *s, const char *file, unsigned flags)
{
    struct stat st;
    int mode = O_RDWR | O_CLOEXEC;

    mode |= (flags & DEV_CREATE) != 0 ? O_CREAT : 0;
    mode |= (flags & DEV_EXCL) != 0 ? O_EXCL : 0;
    s->fd = open(file, mode, 0666);
    if (s->fd < 0)
        return CH_FAIL(errno == ENOENT   ? COHORT_ENODB
                       : errno == EEXIST ? COHORT_EXISTS
                                         : COHORT_EIO,
                       "%s: %s", s->name, file);
    if (flock(s->fd, LOCK_EX | LOCK_NB) != 0)
        return CH_FAIL(errno == EWOULDBLOCK ? COHORT_EBUSY : COHORT_EIO, "%s: lock", s->name);
    if (fstat(s->fd, &st) != 0)
        return CH_FAIL(COHORT_EIO, "%s: fstat", s->name);
    if (st.st_size != 0 && (uint64_t)st.st_size != s->bytes) {
        errno = 0;
        return CH_FAIL(COHORT_EMISMATCH, "%s: file of %jd bytes for a drive of %" PRIu64, s->name,
                       (intmax_t)st.st_size, s->bytes);
    }
    if (ftruncate(s->fd, (off_t)s->bytes) != 0)
        return CH_FAIL(COHORT_EIO, "%s: ftruncate", s->name);
    return map_existing(s);
}

/* Zones and the conventional part before them; fills *cfg in for that. */
static int
zones_alloc(struct sim_drive *s, struct ssd_config *cfg, const struct sim_uri *uri)
{
    uint64_t zone = uri->zns.zone_pages;
    uint64_t conventional = uri->conventional_pages;

    if (conventional == 0)
        conventional = ch_round_up(cfg->logical_pages / 16, zone);
    errno = 0;
    if (uri->file != NULL)
        return CH_FAIL(COHORT_EOPTION, "%s: write pointers are not kept in a file", s->name);
    if (conventional == 0 || conventional % zone != 0 || conventional + zone > cfg->logical_pages)
        return CH_FAIL(COHORT_EOPTION,
                       "%s: %" PRIu64 " pages, %" PRIu64
                       " of them conventional, in zones of %" PRIu64,
                       s->name, cfg->logical_pages, conventional, zone);
    s->zones = uri->zns;
    s->zones.zones = (uint32_t)ch_min_u64((cfg->logical_pages - conventional) / zone, UINT32_MAX);
    s->conventional_bytes = conventional * DEV_BLOCK_BYTES;
    s->bytes = s->conventional_bytes + s->zones.zones * zone * DEV_BLOCK_BYTES;
    s->unit_bytes = uri->unit_hidden ? 0 : zone * DEV_BLOCK_BYTES;
    cfg->logical_pages = conventional;
    return ssd_zns_create(&s->zones, &s->zns);
}

/* The model's own time, where the URI asks for it. */
static int
clock_alloc(struct sim_drive *s, const struct ssd_config *cfg, const struct sim_uri *uri)
{
    int rc;

    if (uri->timing == SIM_TIMING_OFF)
        return 0;
    rc = ssd_timing_create(&uri->clock,
                           s->zns != NULL ? uri->zns.zone_pages : cfg->superblock_pages, &s->clock);
    if (rc != 0)
        return rc;
    s->clock_real = uri->timing == SIM_TIMING_REAL;
    s->clock_chunk = uri->clock.program_pages;
    ssd_observe(s->ssd, ssd_timing_observe, s->clock);
    if (s->zns != NULL)
        ssd_zns_observe(s->zns, ssd_timing_observe, s->clock);
    return 0;
}

static int
drive_alloc(struct sim_drive *s, struct ssd_config *cfg, const struct sim_uri *uri)
{
    bool volatile_cache = uri->volatile_cache, memory = uri->file == NULL;
    uint64_t blocks;
    int rc;

    s->bytes = cfg->logical_pages * DEV_BLOCK_BYTES;
    s->unit_bytes = uri->unit_hidden ? 0 : (uint64_t)cfg->superblock_pages * DEV_BLOCK_BYTES;
    s->streams = cfg->handles;
    rc = uri->zns.zone_pages > 0 ? zones_alloc(s, cfg, uri) : 0;
    if (rc == 0)
        rc = ssd_create(cfg, &s->ssd);
    if (rc == 0)
        rc = clock_alloc(s, cfg, uri);
    if (rc != 0)
        return rc;
    blocks = s->bytes / DEV_BLOCK_BYTES;
    s->filled = lazy_alloc(blocks);
    if (memory)
        s->mem = lazy_alloc(s->bytes);
    if (volatile_cache) {
        s->version_slots = VERSIONS_MAX;
        s->head = lazy_alloc(blocks * sizeof(*s->head));
        s->versions = lazy_alloc(sizeof(*s->versions) * s->version_slots);
        s->saved = lazy_alloc((uint64_t)s->version_slots * DEV_BLOCK_BYTES);
    }
    if (s->filled == NULL || (memory && s->mem == NULL) ||
        (volatile_cache && (s->head == NULL || s->versions == NULL || s->saved == NULL)))
        return CH_FAIL(COHORT_ENOMEM, "%s: %" PRIu64 " bytes", s->name, s->bytes);
    return 0;
}

int
sim_drive_make(const char *text, unsigned flags, struct sim_drive **out)
{
    struct sim_drive *s = calloc(1, sizeof(*s));
    struct sim_uri uri = {0};
    struct ssd_config cfg;
    int rc;

    if (s == NULL)
        return CH_FAIL(COHORT_ENOMEM, "sim:%s", text);
    s->fd = -1;
    rt_mutex_init(&s->lock, RT_RANK_DEV, 1);
    if (asprintf(&s->name, "sim:%s", text) < 0) {
        s->name = NULL;
        rc = CH_FAIL(COHORT_ENOMEM, "sim:%s", text);
        goto out;
    }
    rc = sim_uri_parse(text, &cfg, &uri);
    if (rc != 0)
        goto out;
    s->seed = uri.seed;
    s->untorn = uri.untorn;
    rc = drive_alloc(s, &cfg, &uri);
    if (rc == 0 && uri.file != NULL)
        rc = open_contents(s, uri.file, flags);
    if (rc != 0)
        goto out;
    *out = s;
    s = NULL;
out:
    free(uri.file);
    sim_drive_destroy(s);
    return rc;
}

int
sim_drive_create(const char *cfg, struct sim_drive **out)
{
    return sim_drive_make(cfg, DEV_CREATE, out);
}

void
sim_drive_destroy(struct sim_drive *s)
{
    if (s == NULL)
        return;
    CH_ASSERT(s->open == NULL);
    if (s->fd >= 0)
        close(s->fd);
    lazy_free(s->mem, s->bytes);
    lazy_free(s->filled, s->bytes / DEV_BLOCK_BYTES);
    lazy_free(s->head, s->bytes / DEV_BLOCK_BYTES * sizeof(*s->head));
    lazy_free(s->versions, sizeof(*s->versions) * s->version_slots);
    lazy_free(s->saved, (uint64_t)s->version_slots * DEV_BLOCK_BYTES);
    ssd_destroy(s->ssd);
    ssd_zns_destroy(s->zns);
    ssd_timing_destroy(s->clock);
    rt_mutex_fini(&s->lock);
    free(s->name);
    free(s);
}

void
sim_drive_set_timing(struct sim_drive *s, const struct sim_timing *t)
{
    rt_lock(&s->lock);
    s->timing = *t;
    ch_prng_init(&s->timing_rng, t->seed);
    rt_unlock(&s->lock);
}

/* ---- for tests ---- */

void
sim_drive_counts(struct sim_drive *s, struct ssd_counts *out)
{
    rt_lock(&s->lock);
    ssd_counts(s->ssd, out);
    out->host_pages -= s->base.host_pages;
    out->gc_pages -= s->base.gc_pages;
    out->host_bytes -= s->base.host_bytes;
    out->media_bytes -= s->base.media_bytes;
    if (s->zns != NULL) {
        struct ssd_zns_counts zones;

        ssd_zns_counts(s->zns, &zones);
        out->host_pages += zones.host_pages;
        out->host_bytes += zones.host_pages * DEV_BLOCK_BYTES;
        out->media_bytes += zones.media_bytes;
    }
    rt_unlock(&s->lock);
}

void
sim_drive_peek(struct sim_drive *s, uint64_t off, void *buf, size_t len)
{
    int e;

    CH_ASSERT(off <= s->bytes && len <= s->bytes - off);
    rt_lock(&s->lock);
    e = sim_contents_read(s, off, buf, len);
    rt_unlock(&s->lock);
    CH_ASSERT(e == 0);
}

void
sim_drive_poke(struct sim_drive *s, uint64_t off, const void *buf, size_t len)
{
    int e;

    CH_ASSERT(off <= s->bytes && len <= s->bytes - off);
    rt_lock(&s->lock);
    e = sim_contents_write(s, off, buf, len);
    rt_unlock(&s->lock);
    CH_ASSERT(e == 0);
}
