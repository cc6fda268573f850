/* cmd_format.c - cohort dump --root, --log, --page, --zone: what stands on the device of a closed database.
 *
 * The engine is not started: the device is opened for reading only, so nothing is recovered or repaired
 * and a database that does not open can be looked at. Fields are printed by format.h; docs/FORMAT.md
 * says what they mean. Where a page is comes from the checkpoint's map pages and the MAP records
 * after them, as recovery would find it (boot/recover.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "btree/btree.h"
#include "btree/change.h"
#include "dev/dev.h"
#include "meta/meta.h"
#include "pack/pack.h"
#include "page/page.h"
#include "space/map.h"
#include "store/store.h"
#include "tools/format.h"
#include "tools/tool.h"
#include "wal/wal.h"

enum {
    ARRAY_MAGIC_OFF = 4,
    ZONE_ENTRY_BYTES = 32,
    ZONE_PAGE_ENTRIES = META_PAGE_PAYLOAD / ZONE_ENTRY_BYTES,
};

struct view {
    struct dev *dev;
    struct meta_root root;
    uint8_t *block;   /* 2 x 4096, aligned */
    place_t *places;  /* of page ids [first, first + count) */
    lsn_t *place_lsn; /* end of the MAP record that says so; 0 = the checkpoint */
    page_id first;
    uint64_t count;
    bool verbose;
    struct wal_scan *scan; /* of dump_log(), while it runs */
};

/* ---- opening ---- */

static int
device_open(const char *where, struct dev **out)
{
    struct stat st;
    char *path = NULL;
    int rc;

    if (strncmp(where, "sim:", 4) == 0)
        return dev_open(where, DEV_READONLY, 0, out);
    if (stat(where, &st) != 0)
        return CH_FAIL(errno == ENOENT ? COHORT_ENODB : COHORT_EIO, "%s: %s", where,
                       strerror(errno));
    if (asprintf(&path, S_ISDIR(st.st_mode) ? "%s/cohort.db" : "%s", where) < 0)
        return CH_FAIL(COHORT_ENOMEM, "path");
    rc = dev_open(path, DEV_READONLY, 0, out);
    free(path);
    return rc;
}

static void
view_close(struct view *v)
{
    dev_close(v->dev);
    ch_free_aligned(v->block);
    free(v->places);
    free(v->place_lsn);
}

static int
view_open(struct view *v, const char *where)
{
    int rc;

    v->block = ch_alloc_aligned((size_t)2 * CH_PAGE_BYTES);
    if (v->block == NULL)
        return CH_FAIL(COHORT_ENOMEM, "two blocks");
    rc = device_open(where, &v->dev);
    if (rc == 0 && dev_size(v->dev) < META_ROOT_BYTES)
        rc = CH_FAIL(COHORT_EMAGIC, "%s: %" PRIu64 " bytes", where, dev_size(v->dev));
    return rc;
}

static struct format
view_format(const struct view *v, const uint8_t *data, size_t bytes)
{
    return (struct format){.out = stdout, .data = data, .bytes = bytes, .brief = !v->verbose};
}

/* The same, contents and all. */
static struct format
view_format_full(const uint8_t *data, size_t bytes)
{
    return (struct format){.out = stdout, .data = data, .bytes = bytes};
}

/* ---- root ---- */

static int
dump_root(struct view *v)
{
    struct meta_root best, r;
    bool found = meta_load(v->dev, &best) == 0;

    for (unsigned slot = 0; slot < 2; slot++) {
        uint64_t off = slot == 0 ? 0 : META_ROOT_BYTES / 2;
        struct format f = view_format_full(v->block, CH_PAGE_BYTES);
        int rc = dev_read(v->dev, off, v->block, CH_PAGE_BYTES);

        if (rc != 0)
            return rc;
        rc = meta_root_decode(v->block, &r);
        printf("root slot %c, device offset %" PRIu64 "\n", slot == 0 ? 'A' : 'B', off);
        if (rc != 0)
            printf("verdict = %s\n", cohort_last_error()->text);
        else
            printf("verdict = valid, %s\n",
                   found && r.sequence == best.sequence ? "in force" : "superseded");
        format_root(&f);
    }
    return 0;
}

/* ---- arrays ---- */

static uint64_t
extent_pages(const struct view *v)
{
    return v->root.zone_bytes / (2 * CH_PAGE_BYTES);
}

static bool
array_slot_ok(const struct view *v, const uint8_t *p, unsigned array, uint64_t k)
{
    return ch_get32(p + ARRAY_MAGIC_OFF) == UINT32_C(0xC0106003) && ch_get16(p + 8) == 1 &&
           ch_get16(p + 10) == array && ch_get64(p + 24) == k &&
           ch_get64(p + 32) == v->root.db_id && ch_get64(p + 16) != 0 &&
           ch_get32(p) == ch_crc32c(0, p + 4, CH_PAGE_BYTES - 4);
}

/* Reads page k of an array; *slot points into v->block. */
static int
array_read(struct view *v, unsigned array, uint64_t k, const uint8_t **slot)
{
    uint64_t extent = k / extent_pages(v), best = 0, off = 0;
    int rc;

    for (uint32_t i = 0; i < v->root.extent_count && off == 0; i++) {
        if (v->root.extents[i].array == array && extent-- == 0)
            off = v->root.zones_base + v->root.extents[i].zone * v->root.zone_bytes +
                  2 * (k % extent_pages(v)) * CH_PAGE_BYTES;
    }
    if (off == 0)
        return CH_FAIL(COHORT_EMAP, "array %u page %" PRIu64 ": no extent holds it", array, k);
    rc = dev_read(v->dev, off, v->block, (size_t)2 * CH_PAGE_BYTES);
    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *p = v->block + (size_t)i * CH_PAGE_BYTES;
        uint64_t number = ch_get64(p + 16);

        if (array_slot_ok(v, p, array, k) && number <= v->root.checkpoint && number > best) {
            best = number;
            *slot = p;
        }
    }
    return best != 0
               ? 0
               : CH_FAIL(COHORT_EMAP, "array %u page %" PRIu64 ": no slot is valid", array, k);
}

/* ---- the log ---- */

static int
log_open(struct view *v, struct wal_scan **out)
{
    struct wal_scan_config cfg = {
        .dev = v->dev,
        .base = v->root.log_base,
        .bytes = v->root.log_bytes,
        .db_id = v->root.db_id,
        .from = v->root.cut,
        .epoch_min = v->root.epoch_min,
        .epoch_start = v->root.epoch_start,
        .epoch = v->root.epoch,
        .segment_bytes = v->root.log_zones ? v->root.zone_bytes : 0,
        .zones = v->root.zones,
        .first_zone = v->root.log_zone,
    };

    return wal_scan_open(&cfg, out);
}

/* Calls visit() for each record from the cut on; *tail is where new blocks would start. */
static int
log_each(struct view *v, int (*visit)(struct view *v, const struct wal_record *r, void *arg),
         void *arg, lsn_t *tail)
{
    struct wal_scan *scan = NULL;
    struct wal_record r;
    int rc = log_open(v, &scan);

    while (rc == 0) {
        rc = wal_scan_next(scan, &r);
        if (rc == 0)
            rc = visit(v, &r, arg);
    }
    if (rc == COHORT_NOTFOUND) {
        if (tail != NULL)
            *tail = wal_scan_tail(scan);
        rc = 0;
    }
    wal_scan_close(scan);
    return rc;
}

/* Prints the headers of blocks [*next, end), as far as v->scan has come. */
static int
log_headers(struct view *v, lsn_t *next, lsn_t end)
{
    for (; *next < end; *next += WAL_BLOCK) {
        struct format f = view_format_full(v->block, CH_PAGE_BYTES);
        uint64_t off = wal_scan_offset(v->scan, *next);
        int rc = dev_read(v->dev, off, v->block, CH_PAGE_BYTES);

        if (rc != 0)
            return rc;
        printf("block LSN %" PRIu64 ", device offset %" PRIu64 "\n", *next, off);
        format_log_header(&f);
    }
    return 0;
}

static int
visit_print(struct view *v, const struct wal_record *r, lsn_t *next)
{
    int rc = log_headers(v, next, r->start / WAL_BLOCK * WAL_BLOCK + WAL_BLOCK);
    struct format f = view_format_full(r->data, r->bytes);

    if (rc != 0)
        return rc;
    printf("record LSN %" PRIu64 " to %" PRIu64 ", type %u, %" PRIu32 " bytes\n", r->start, r->end,
           r->type, r->bytes);
    format_payload(&f, r->type);
    return 0;
}

static int
dump_log(struct view *v)
{
    struct wal_record r;
    lsn_t next = v->root.cut / WAL_BLOCK * WAL_BLOCK, tail = 0;
    int rc;

    printf("log of %" PRIu64 " bytes, cut %" PRIu64 ", map_start %" PRIu64 ", epoch %" PRIu32
           " from %" PRIu64 "\n",
           v->root.log_bytes, v->root.cut, v->root.map_start, v->root.epoch, v->root.epoch_start);
    rc = log_open(v, &v->scan);
    while (rc == 0) {
        rc = wal_scan_next(v->scan, &r);
        if (rc == 0)
            rc = visit_print(v, &r, &next);
    }
    if (rc == COHORT_NOTFOUND) {
        tail = wal_scan_tail(v->scan);
        rc = log_headers(v, &next, tail);
    }
    wal_scan_close(v->scan);
    v->scan = NULL;
    if (rc == 0)
        printf("tail = %" PRIu64 "\n", tail);
    return rc;
}

/* ---- places ---- */

static bool
record_is_map(const struct wal_record *r, const struct view *v)
{
    return r->type == STORE_RECORD_MAP && r->start >= v->root.map_start && r->bytes >= 4 &&
           (r->bytes - 4) / 14 >= ch_get16(r->data + 2);
}

static int
visit_highest(struct view *v, const struct wal_record *r, void *arg)
{
    uint64_t *count = arg;

    for (unsigned i = 0; record_is_map(r, v) && i < ch_get16(r->data + 2); i++)
        *count = ch_max_u64(*count, ch_get48(r->data + 4 + (size_t)i * 14) + 1);
    return 0;
}

static int
visit_place(struct view *v, const struct wal_record *r, void *arg)
{
    (void)arg;
    for (unsigned i = 0; record_is_map(r, v) && i < ch_get16(r->data + 2); i++) {
        const uint8_t *e = r->data + 4 + (size_t)i * 14;
        page_id pid = ch_get48(e);

        /* The base: what a delta is put on. */
        if (pid >= v->first && pid - v->first < v->count && (ch_get64(e + 6) & PLACE_DELTA) == 0) {
            v->places[pid - v->first] = ch_get64(e + 6) & ~PLACE_FLAGS;
            v->place_lsn[pid - v->first] = r->end;
        }
    }
    return 0;
}

/* Fills v->places for `count` page ids from `first` on, 0 = for all. */
static int
places_load(struct view *v, page_id first, uint64_t count)
{
    int rc = 0;

    v->first = first;
    v->count = count;
    if (count == 0) {
        v->count = v->root.map_pages * MAP_PAGE_ENTRIES;
        rc = log_each(v, visit_highest, &v->count, NULL);
    }
    if (rc != 0)
        return rc;
    v->places = calloc(v->count + 1, sizeof(*v->places));
    v->place_lsn = calloc(v->count + 1, sizeof(*v->place_lsn));
    if (v->places == NULL || v->place_lsn == NULL)
        return CH_FAIL(COHORT_ENOMEM, "places of %" PRIu64 " pages", v->count);
    for (uint64_t i = 0; i < v->count;) {
        page_id pid = first + i;
        uint64_t k = pid / MAP_PAGE_ENTRIES, at = pid % MAP_PAGE_ENTRIES;
        uint64_t n = ch_min_u64(MAP_PAGE_ENTRIES - at, v->count - i);
        const uint8_t *slot = NULL;

        if (k >= v->root.map_pages)
            break;
        rc = array_read(v, META_MAP, k, &slot);
        if (rc != 0)
            return rc;
        memcpy(v->places + i, slot + CH_PAGE_BYTES - META_PAGE_PAYLOAD + 8 * at, 8 * n);
        i += n;
    }
    return log_each(v, visit_place, NULL, NULL);
}

static bool
place_ok(const struct view *v, place_t p)
{
    uint64_t off = place_slot(p) * CH_SLOT_BYTES;

    return off >= v->root.zones_base && off + CH_SLOT_BYTES <= ch_max_u64(dev_size(v->dev), off) &&
           place_bytes(p) > 0 && (!place_crosses(p) || place_bytes(p) <= PACK_IMAGE_MAX);
}

/* ---- a page ---- */

struct newer {
    page_id pid;
    lsn_t lsn;
    uint64_t records;
};

static int
visit_newer(struct view *v, const struct wal_record *r, void *arg)
{
    struct newer *n = arg;
    struct bt_slice groups;
    struct change_reader reader;
    struct change_group g;
    int rc;

    (void)v;
    if (r->type < BT_RECORD_PAGES || r->type > BT_RECORD_UNDO || r->end <= n->lsn)
        return 0;
    rc = change_groups(r->type, r->data, r->bytes, &groups, NULL);
    if (rc == 0)
        rc = change_open(&reader, groups.data, groups.bytes);
    while (rc == 0) {
        rc = change_next(&reader, &g);
        n->records += rc == 0 && g.pid == n->pid;
    }
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static void
print_place(const struct view *v, page_id pid, place_t p, lsn_t lsn)
{
    uint64_t off = place_slot(p) * CH_SLOT_BYTES;

    printf("page %" PRIu64 "\n", pid);
    printf("place = slot %" PRIu64 ", offset %" PRIu32 ", %" PRIu32 " bytes\n", place_slot(p),
           place_offset(p), place_bytes(p));
    printf("device_offset = %" PRIu64 ", in zone %" PRIu64 "\n", off + place_offset(p),
           (off - v->root.zones_base) / v->root.zone_bytes);
    if (lsn != 0)
        printf("place_from = MAP record that ends at LSN %" PRIu64 "\n", lsn);
    else
        printf("place_from = map page %" PRIu64 "\n", pid / MAP_PAGE_ENTRIES);
}

/* The image in v->block, a block or two, and the page that comes out of it. */
static int
dump_image(struct view *v, page_id pid, place_t p)
{
    uint8_t *page = v->block + CH_PAGE_BYTES;
    struct format f = view_format_full(v->block, (size_t)2 * CH_SLOT_BYTES);
    uint8_t image[CH_SLOT_BYTES];
    int rc;

    if (place_bytes(p) < CH_SLOT_BYTES && place_bytes(p) >= 2 * PACK_STEP) {
        printf("image in its slot%s:\n", place_crosses(p) ? " and the next" : "");
        f.brief = !v->verbose;
        f.pos = place_offset(p);
        format_image(&f, place_bytes(p));
    }
    memcpy(image, v->block + place_offset(p), place_bytes(p));
    rc = pack_unpack(NULL, image, 0, place_bytes(p), pid, page);
    if (rc != 0 && place_bytes(p) < CH_SLOT_BYTES)
        return rc;
    printf("the page:\n");
    f = view_format_full(page, CH_PAGE_BYTES);
    format_page(&f);
    return rc;
}

static int
dump_page(struct view *v, page_id pid)
{
    struct newer newer = {.pid = pid};
    place_t p;
    int rc;

    if (pid > CH_PAGE_ID_MAX)
        return CH_FAIL(COHORT_EINVAL, "page %" PRIu64 ": ids have 48 bits", pid);
    rc = places_load(v, pid, 1);
    if (rc != 0)
        return rc;
    p = v->places[0];
    if (p == PLACE_NONE)
        return CH_FAIL(COHORT_NOTFOUND, "page %" PRIu64 " has no image", pid);
    if (!place_ok(v, p))
        return CH_FAIL(COHORT_EMAP, "page %" PRIu64 ": place %#" PRIx64, pid, p);
    print_place(v, pid, p, v->place_lsn[0]);
    rc = dev_read(v->dev, place_slot(p) * CH_SLOT_BYTES, v->block,
                  (size_t)CH_SLOT_BYTES * (place_crosses(p) ? 2 : 1));
    if (rc != 0)
        return rc;
    rc = dump_image(v, pid, p);
    if (rc != 0)
        return rc;
    newer.lsn = page_lsn(v->block + CH_PAGE_BYTES);
    rc = log_each(v, visit_newer, &newer, NULL);
    if (rc == 0)
        printf("newer_records = %" PRIu64 "\n", newer.records);
    return rc;
}

/* ---- a zone ---- */

static const char *
live_text(const struct view *v, page_id pid, place_t p)
{
    return pid < v->count && v->places[pid] == p ? "live" : "dead";
}

static void
print_images(const struct view *v, uint64_t slot)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    unsigned n = pack_slot_images(v->block, offs, lens);
    struct pack_image_info info;

    printf("packed, %u images:", n);
    for (unsigned i = 0; i < n; i++) {
        if (pack_image_info(v->block, offs[i], lens[i], &info) != 0)
            printf(" damaged");
        else
            printf(" page %" PRIu64 " %s", info.pid,
                   live_text(v, info.pid, place_make(slot, offs[i], lens[i])));
        printf("%s", i + 1 < n ? "," : "\n");
    }
}

/* One line that says what stands in the slot, then its fields. */
static void
dump_slot(const struct view *v, uint64_t slot)
{
    struct format f = view_format(v, v->block, CH_SLOT_BYTES);
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];

    printf("slot %" PRIu64 ": ", slot);
    if (pack_slot_images(v->block, offs, lens) > 0) {
        print_images(v, slot);
        format_slot(&f);
    } else if (pack_run_slots(v->block) > 0) {
        printf("a run of %u slots begins, %u images\n", pack_run_slots(v->block),
               (unsigned)ch_get16(v->block + 8));
        format_slot(&f);
    } else if (ch_get16(v->block + 4) == PAGE_MAGIC) {
        printf("raw page %" PRIu64 ", %s\n", page_pid(v->block),
               page_check(v->block, 0) != 0
                   ? "damaged"
                   : live_text(v, page_pid(v->block), place_make(slot, 0, CH_SLOT_BYTES)));
        format_slot(&f);
    } else if (ch_get32(v->block + ARRAY_MAGIC_OFF) == UINT32_C(0xC0106003)) {
        printf("array slot\n");
        format_array_slot(&f);
    } else if (memcmp(v->block, "CORT_DBL", 8) == 0) {
        printf("double-write header\n");
        format_double_write(&f);
    } else {
        printf("neither page, images, array slot nor batch header\n");
        format_slot(&f);
    }
}

/* Blank slots in a row become one line. */
static int
dump_slots(struct view *v, uint64_t first, uint64_t count)
{
    static const uint8_t blank[CH_SLOT_BYTES];
    uint64_t blanks = 0;

    for (uint64_t i = 0; i <= count; i++) {
        bool is_blank = false;

        if (i < count) {
            int rc = dev_read(v->dev, (first + i) * CH_SLOT_BYTES, v->block, CH_SLOT_BYTES);

            if (rc != 0)
                return rc;
            is_blank = memcmp(v->block, blank, sizeof(blank)) == 0;
        }
        if (is_blank) {
            blanks++;
            continue;
        }
        if (blanks == 1)
            printf("slot %" PRIu64 ": blank\n", first + i - 1);
        if (blanks > 1)
            printf("slots %" PRIu64 " to %" PRIu64 ": blank\n", first + i - blanks, first + i - 1);
        blanks = 0;
        if (i < count)
            dump_slot(v, first + i);
    }
    return 0;
}

static int
dump_zone(struct view *v, uint64_t zone)
{
    uint64_t off = v->root.zones_base + zone * v->root.zone_bytes;
    const uint8_t *slot = NULL;
    int rc;

    if (zone >= (dev_caps(v->dev)->bytes - v->root.zones_base) / v->root.zone_bytes)
        return CH_FAIL(COHORT_EINVAL, "zone %" PRIu64 " does not exist", zone);
    rc = places_load(v, 0, 0);
    if (rc != 0)
        return rc;
    printf("zone %" PRIu64 ", device offset %" PRIu64 ", %" PRIu64 " bytes\n", zone, off,
           v->root.zone_bytes);
    if (zone / ZONE_PAGE_ENTRIES < v->root.zone_pages) {
        struct format f;

        rc = array_read(v, META_ZONES, zone / ZONE_PAGE_ENTRIES, &slot);
        if (rc != 0)
            return rc;
        printf("entry in the zone table at the last checkpoint:\n");
        f = view_format(v, slot, CH_PAGE_BYTES);
        f.pos = CH_PAGE_BYTES - META_PAGE_PAYLOAD + zone % ZONE_PAGE_ENTRIES * ZONE_ENTRY_BYTES;
        format_zone_entry(&f);
    }
    return dump_slots(v, off / CH_SLOT_BYTES, v->root.zone_bytes / CH_SLOT_BYTES);
}

int
format_dump(struct tool *t, const struct format_what *what)
{
    struct view v = {.verbose = t->verbose};
    int rc;

    if (t->json)
        return CH_FAIL(COHORT_EOPTION, "--json: the device's bytes are printed as text only");
    rc = view_open(&v, t->where);
    if (rc == 0 && what->root)
        rc = dump_root(&v);
    if (rc == 0 && (what->log || what->page != FORMAT_NONE || what->zone != FORMAT_NONE))
        rc = meta_load(v.dev, &v.root);
    if (rc == 0 && what->log)
        rc = dump_log(&v);
    if (rc == 0 && what->page != FORMAT_NONE)
        rc = dump_page(&v, what->page);
    if (rc == 0 && what->zone != FORMAT_NONE)
        rc = dump_zone(&v, what->zone);
    if (rc == 0)
        rc = tool_flush();
    view_close(&v);
    return rc;
}
