/* ssd_models.c - named drives for "sim:" URIs.
 *
 * Spare space and floor are what was measured or fitted on the real drive; a real superblock of 1
 * to 16 GB would leave a simulated drive of a few GB with a handful of them, so superblocks are
 * scaled down: what decides write amplification is the spare share and that there are many (>=
 * 64), not their size. superblock= in the URI overrides. What is measured, fitted, derived or assumed
 * is said with each. SSD-iq: Haas et al., "SSD-iq: Uncovering the Hidden Side of SSD Performance"
 * (PVLDB 18, 2025) and its published measurements.
 *
 * Times are those of the class of drive, from memory, not measured: 50 us for a read, 600 to 700 us
 * for a one-shot program of 128 KiB, 5 ms for an erase of 64 MiB on a die, and so many dies that
 * sequential writes reach what such drives are sold with (1.5 GB/s with 8 dies at 700 us).
 */
#include <errno.h>

#include "ssd/ssd_timing.h"
#include "ssd/ssd_zns.h"

enum {
    MIB_PAGES = (1 << 20) / CH_PAGE_BYTES,
    STRIPE_PAGES = (128 << 10) / CH_PAGE_BYTES, /* one-shot stripe: 96-192 KiB a TLC die */
};

#define TIMING(dies_, program_us, link)                                                        \
    {                                                                                          \
        .dies = (dies_), .planes = 4, .program_pages = STRIPE_PAGES,                           \
        .block_pages = 64 * MIB_PAGES, .channels = 8, .channel_mbs = 1200, .link_mbs = (link), \
        .buffer_pages = 8 * MIB_PAGES, .read_ns = 50 * US, .program_ns = (program_us)*US,      \
        .erase_ns = 5000 * US, .command_ns = 8 * US                                            \
    }

enum {
    US = 1000, /* ns */
    PCIE4 = 6500,
    PCIE5 = 12000, /* MB/s of four lanes */
};

static const struct ssd_timing_config SMALL = TIMING(8, 700, PCIE4);   /* about 1 TB */
static const struct ssd_timing_config MEDIUM = TIMING(16, 600, PCIE4); /* about 2 TB */
static const struct ssd_timing_config LARGE = TIMING(32, 600, PCIE5);
/* FEMU's defaults: 40, 200, 2000 us; 64 units that program a page each. */
static const struct ssd_timing_config FEMU = {.dies = 64,
                                              .planes = 1,
                                              .program_pages = 1,
                                              .block_pages = 256,
                                              .channels = 8,
                                              .channel_mbs = 1200,
                                              .link_mbs = PCIE4,
                                              .buffer_pages = 2 * MIB_PAGES,
                                              .read_ns = 40 * US,
                                              .program_ns = 200 * US,
                                              .erase_ns = 2000 * US,
                                              .command_ns = 8 * US};
static const struct ssd_timing_config CHEAP = {.dies = 4,
                                               .planes = 2,
                                               .program_pages = STRIPE_PAGES,
                                               .block_pages = 64 * MIB_PAGES,
                                               .channels = 4,
                                               .channel_mbs = 1200,
                                               .link_mbs = PCIE4,
                                               .buffer_pages = MIB_PAGES,
                                               .read_ns = 60 * US,
                                               .program_ns = 700 * US,
                                               .erase_ns = 10000 * US,
                                               .command_ns = 15 * US,
                                               .no_plp = true};

static const struct {
    const char *name;
    const struct ssd_timing_config *timing;
    char letter; /* 0 = none; as the models are lettered in docs/PAPER.md */
    struct ssd_config cfg;
} MODELS[] = {
    /* 7 % is what GB against GiB leaves of the flash; everything else as simple as can be. */
    {"generic",
     &SMALL,
     0,
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* Samsung PM9A3 960 GB, 1 drive write a day. Spare: nominal. Floor: measured, a published run
     * of Cassandra saw 0.9995 to 1.002 for sequential writes. GC stream: assumed. */
    {"pm9a3",
     &SMALL,
     'A',
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* Solidigm D7-P5520 1.92 TB. Spare: fitted, uniform 3.53 to 3.59 = 1.04 x A_LRU with about
     * 2115 GiB behind 1788. Floor: measured, sequential 1.04 to 1.11, the lower end taken. GC
     * stream: assumed. */
    {"p5520",
     &MEDIUM,
     'B',
     {.spare_permille = 183,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 40}},
    /* Kioxia CM7-R, 1 drive write a day. Everything assumed but the class: nominal spare, a floor of
     * 1 %, and superblocks twice as large as the others' (more dies behind a faster controller). */
    {"cm7",
     &LARGE,
     'C',
     {.spare_permille = 70,
      .superblock_pages = 16 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 10}},
    /* Micron 7450 PRO 960 GB, 1 drive write a day: the flash of the 7450 MAX 800 GB (1088 GiB
     * fitted) behind 894 GiB. That both have the same flash is assumed, and with it the floor. */
    {"7450pro",
     &SMALL,
     'D',
     {.spare_permille = 217,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 45}},
    /* Micron 7450 MAX 800 GB, 3 drive writes a day. Spare and floor: fitted, SSD-iq's uniform writes
     * are 1.045 x A_LRU with 1088 GiB of flash behind 745; sequential writes show 1.022 to 1.045. */
    {"7450max",
     &SMALL,
     'E',
     {.spare_permille = 460,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 45}},
    /* SK hynix PE8110, 1 drive write a day. Everything assumed: nominal spare, a floor of 2 %, and
     * the one ordinary model whose GC writes where the host does, so that this kind is among them.
     */
    {"pe8110",
     &SMALL,
     'F',
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .shared_gc = true,
      .floor_permille = 20}},
    /* FEMU's black-box drive as shipped: lines of 64 MiB, 25 % spare, eight channels in one
     * line. */
    {"femu",
     &FEMU,
     0,
     {.spare_permille = 250,
      .superblock_pages = 64 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* An FDP drive, 1 drive write a day: eight handles in one reclaim group, initially isolated, as
     * commercial ones are reported to be. The reclaim unit is scaled as superblocks are. Spare:
     * nominal. Floor: assumed none. */
    {"fdp",
     &MEDIUM,
     'G',
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .handles = 8}},
    /* Western Digital ZN540: zones of 2048 MiB that take 1077, 14 open and active ones; scaled, and
     * the capacity rounded to stripes. The spare is what its conventional part has, assumed. */
    {"zns",
     &MEDIUM,
     'H',
     {.spare_permille = 70,
      .superblock_pages = 2 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* A cheap drive, assumed, not measured: nominal spare space; host data first in an SLC cache of
     * 2 % of the capacity and striped over several open superblocks there, so that what was written
     * together is not erased together; GC that picks the best of eight and comes in bursts; 2 % of
     * wear levelling. */
    {"consumer",
     &CHEAP,
     0,
     {.spare_permille = 70,
      .superblock_pages = 4 * MIB_PAGES,
      .open_superblocks = 4,
      .stripe_pages = STRIPE_PAGES,
      .gc_choices = 8,
      .gc_burst = 4,
      .slc_permille = 20,
      .floor_permille = 20}},
};

static const struct ssd_zns_config ZN540 = {
    .zone_pages = 8 * MIB_PAGES, .cap_pages = 34 * STRIPE_PAGES, .open_max = 14, .active_max = 14};

/* Its place in MODELS; CH_ARRAY_LEN(MODELS) = none. */
static size_t
model_find(const char *name)
{
    size_t i = 0;

    for (; i < CH_ARRAY_LEN(MODELS); i++) {
        const char letter[2] = {MODELS[i].letter, '\0'};

        if (strcmp(MODELS[i].name, name) == 0 || (*letter != '\0' && strcmp(letter, name) == 0))
            break;
    }
    return i;
}

static int
no_model(const char *name)
{
    errno = 0;
    return CH_FAIL(COHORT_EOPTION, "ssd: no model \"%s\"", name);
}

int
ssd_model(const char *name, struct ssd_config *cfg)
{
    size_t i = model_find(name);

    if (i == CH_ARRAY_LEN(MODELS))
        return no_model(name);
    *cfg = MODELS[i].cfg;
    return 0;
}

int
ssd_timing_model(const char *name, struct ssd_timing_config *cfg)
{
    size_t i = model_find(name);

    if (i == CH_ARRAY_LEN(MODELS))
        return no_model(name);
    *cfg = *MODELS[i].timing;
    return 0;
}

bool
ssd_zns_model(const char *name, struct ssd_zns_config *cfg)
{
    size_t i = model_find(name);

    if (i == CH_ARRAY_LEN(MODELS) || strcmp(MODELS[i].name, "zns") != 0)
        return false;
    *cfg = ZN540;
    return true;
}

const char *
ssd_model_name(unsigned i)
{
    return i < CH_ARRAY_LEN(MODELS) ? MODELS[i].name : NULL;
}
