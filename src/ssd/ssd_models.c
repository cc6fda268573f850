/* ssd_models.c - named drives for "sim:" URIs.
 *
 * Spare space and floor are what was measured or fitted on the real drive; a real superblock of 1
 * to 16 GB would leave a simulated drive of a few GB with a handful of them, so superblocks are
 * scaled down: what decides write amplification is the spare share and that there are many (>=
 * 64), not their size. superblock= in the URI overrides. What is measured, fitted, derived or assumed
 * is said with each. SSD-iq: Haas et al., "SSD-iq: Uncovering the Hidden Side of SSD Performance"
 * (PVLDB 18, 2025) and its published measurements.
 */
#include <errno.h>

#include "ssd/ssd.h"

enum {
    MIB_PAGES = (1 << 20) / CH_PAGE_BYTES,
    STRIPE_PAGES = (128 << 10) / CH_PAGE_BYTES, /* one-shot stripe: 96-192 KiB a TLC die */
};

static const struct {
    const char *name;
    char letter; /* 0 = none; as the models are lettered in docs/PAPER.md */
    struct ssd_config cfg;
} MODELS[] = {
    /* 7 % is what GB against GiB leaves of the flash; everything else as simple as can be. */
    {"generic",
     0,
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* Samsung PM9A3 960 GB, 1 drive write a day. Spare: nominal. Floor: measured, a published run
     * of Cassandra saw 0.9995 to 1.002 for sequential writes. GC stream: assumed. */
    {"pm9a3",
     'A',
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* Solidigm D7-P5520 1.92 TB. Spare: fitted, uniform 3.53 to 3.59 = 1.04 x A_LRU with about
     * 2115 GiB behind 1788. Floor: measured, sequential 1.04 to 1.11, the lower end taken. GC
     * stream: assumed. */
    {"p5520",
     'B',
     {.spare_permille = 183,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 40}},
    /* Kioxia CM7-R, 1 drive write a day. Everything assumed but the class: nominal spare, a floor of
     * 1 %, and superblocks twice as large as the others' (more dies behind a faster controller). */
    {"cm7",
     'C',
     {.spare_permille = 70,
      .superblock_pages = 16 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 10}},
    /* Micron 7450 PRO 960 GB, 1 drive write a day: the flash of the 7450 MAX 800 GB (1088 GiB
     * fitted) behind 894 GiB. That both have the same flash is assumed, and with it the floor. */
    {"7450pro",
     'D',
     {.spare_permille = 217,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .floor_permille = 45}},
    /* Micron 7450 MAX 800 GB, 3 drive writes a day. Spare and floor: fitted, SSD-iq's uniform writes
     * are 1.045 x A_LRU with 1088 GiB of flash behind 745; sequential writes show 1.022 to 1.045. */
    {"7450max",
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
     0,
     {.spare_permille = 250,
      .superblock_pages = 64 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES}},
    /* An FDP drive, 1 drive write a day: eight handles in one reclaim group, initially isolated, as
     * commercial ones are reported to be. The reclaim unit is scaled as superblocks are. Spare:
     * nominal. Floor: assumed none. */
    {"fdp",
     'G',
     {.spare_permille = 70,
      .superblock_pages = 8 * MIB_PAGES,
      .open_superblocks = 1,
      .stripe_pages = STRIPE_PAGES,
      .handles = 8}},
    /* A cheap drive, assumed, not measured: nominal spare space; host data first in an SLC cache of
     * 2 % of the capacity and striped over several open superblocks there, so that what was written
     * together is not erased together; GC that picks the best of eight and comes in bursts; 2 % of
     * wear levelling. */
    {"consumer",
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

int
ssd_model(const char *name, struct ssd_config *cfg)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(MODELS); i++) {
        const char letter[2] = {MODELS[i].letter, '\0'};

        if (strcmp(MODELS[i].name, name) == 0 || (*letter != '\0' && strcmp(letter, name) == 0)) {
            *cfg = MODELS[i].cfg;
            return 0;
        }
    }
    errno = 0;
    return CH_FAIL(COHORT_EOPTION, "ssd: no model \"%s\"", name);
}

const char *
ssd_model_name(unsigned i)
{
    return i < CH_ARRAY_LEN(MODELS) ? MODELS[i].name : NULL;
}
