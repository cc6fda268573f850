/* golden_test.c - the hex dumps of docs/FORMAT.md against what the engine's code writes.
 *
 * The document has blocks
 *
 *     <!-- dump: NAME -->
 *     (code fence) lines as `cohort dump` prints them (code fence)
 *     <!-- end -->
 *
 * For each example below: the engine encodes it, tools/format.c prints it, and the text must be that of the
 * block. Then the other way round: the bytes read back from the block's hex columns are the encoded ones,
 * each once, so no field is left out. And the field tables that stand between a dump and the heading (or dump)
 * before it must agree with it: a row "| offset | bytes | `name` |" needs a line with that offset, so many bytes and
 * that name. In a table whose first column is called "+", the offsets count from somewhere in the dump.
 *
 *     golden_test FORMAT.md               compares
 *     golden_test --update FORMAT.md      writes the dumps into the document
 *
 * An update is for a changed example or printer. When the format itself changes, its version does, too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "btree/change.h"
#include "btree/node.h"
#include "cat/cat_internal.h"
#include "dev/dev.h"
#include "meta/meta.h"
#include "pack/pack.h"
#include "page/page.h"
#include "store/store_internal.h"
#include "tests/golden/golden.h"
#include "tools/format.h"
#include "ver/ver.h"
#include "wal/wal.h"
#include "zt/zt.h"

enum {
    EXAMPLE_MAX = 4096,
    NAME_MAX_BYTES = 64,
    COLUMN_HEX = 8,
    COLUMN_NOTE = 57,
    TABLES_MIN = 30, /* tables that the document has at least: else the parser has lost them */
    LOG_BASE = 64 << 10,
    LOG_BYTES = 256 << 10,
    ZONES_BASE = 1 << 20,
    ZONE_BYTES = 256 << 10,
    ZONES = 16,
};
#define DB_ID UINT64_C(0x1122334455667788)

static const char *document_path;

/* ---- the world that the examples are written in ---- */

void
rig_open(struct rig *r, struct zt *t, enum store_kind kind)
{
    struct wal_config log = {
        .base = LOG_BASE,
        .bytes = LOG_BYTES,
        .buffer_bytes = 64 << 10,
        .db_id = DB_ID,
        .epoch = 3,
        .start = WAL_BLOCK,
        .cut = WAL_BLOCK,
        .user_percent = 75,
    };
    struct store_config cfg = {
        .kind = kind,
        .placement = PLACE_SEPGC,
        .double_write = true,
        .codec = PACK_NONE,
        .zones_base = ZONES_BASE,
        .zone_bytes = ZONE_BYTES,
        .zones = ZONES,
        .zones_max = ZONES,
        .pages_max = 2000,
        .batch_pages = 16,
        .inplace_first_zone = store_inplace_dblwr_zones(ZONE_BYTES) + 2,
    };

    memset(r, 0, sizeof(*r));
    r->t = t;
    r->block = ch_alloc_aligned(EXAMPLE_MAX);
    ZT_CHECK(t, r->block != NULL);
    ZT_OK(t, sim_drive_create("generic,bytes=64M,superblock=1M,cache=none", &r->drive));
    ZT_OK(t, dev_sim_open(r->drive, &r->dev));
    log.dev = cfg.dev = r->dev;
    ZT_OK(t, wal_create(&log, &r->wal));
    ZT_OK(t, store_create(&cfg, &r->store));
    store_set_wal(r->store, r->wal);
    ZT_OK(t, store_format(r->store));
}

void
rig_close(struct rig *r)
{
    store_destroy(r->store);
    wal_destroy(r->wal);
    dev_close(r->dev);
    sim_drive_destroy(r->drive);
    ch_free_aligned(r->block);
}

/* Copies the block at `off` of the device to `out`. */
static void
rig_read(struct rig *r, uint64_t off, uint8_t *out)
{
    ZT_OK(r->t, dev_read(r->dev, off, r->block, EXAMPLE_MAX));
    memcpy(out, r->block, EXAMPLE_MAX);
}

void
rig_read_log(struct rig *r, uint8_t *out)
{
    rig_read(r, LOG_BASE + WAL_BLOCK, out);
}

/* A reference to large value 5 of 10,000 bytes. */
static struct bt_slice
reference(uint8_t out[CAT_REF_BYTES])
{
    blob_ref_pack(&(struct blob_ref){.number = 5, .bytes = 10000}, out);
    return (struct bt_slice){out, CAT_REF_BYTES};
}

/* ---- examples; each fills EXAMPLE_MAX zeroed bytes at most and returns how many ---- */

/* Copied once, so that it has a prefix. */
static void
leaf_fill(struct zt *t, uint8_t *page)
{
    uint64_t first[CH_PAGE_BYTES / 8];
    uint8_t ref[CAT_REF_BYTES];

    node_init((uint8_t *)first, 7, 0, 1);
    ZT_CHECK(t, node_put((uint8_t *)first, text("apple"), text("red"), 0));
    ZT_CHECK(t, node_put((uint8_t *)first, text("apricot"), reference(ref), BT_REF));
    ZT_CHECK(t, node_put((uint8_t *)first, text("apron"), text("blue"), 0));
    ZT_CHECK(t, node_ghost((uint8_t *)first, 2));
    node_init(page, 7, 0, 1);
    ZT_CHECK(t, node_copy(page, (const uint8_t *)first, 0, 3));
    page_set_lsn(page, 123456);
    page_set_write_lsn(page, 123456);
    page_note_write(page, 50000);
    page_note_write(page, 123456);
}

static size_t
example_leaf(struct zt *t, uint8_t *out)
{
    leaf_fill(t, out);
    page_seal(out);
    ZT_OK(t, page_check(out, 7));
    ZT_CHECK(t, node_check(out) == NULL);
    return CH_PAGE_BYTES;
}

static size_t
example_inner(struct zt *t, uint8_t *out)
{
    node_init(out, 1, 1, 1);
    node_set_leftmost(out, 7);
    ZT_CHECK(t, node_add_child(out, text("b"), 8));
    ZT_CHECK(t, node_add_child(out, text("m"), 9));
    ZT_CHECK(t, node_del(out, 0));
    ZT_CHECK(t, node_add_child(out, text("c"), 10));
    page_set_lsn(out, 130000);
    page_seal(out);
    ZT_CHECK(t, node_check(out) == NULL);
    return CH_PAGE_BYTES;
}

static size_t
example_root(struct zt *t, uint8_t *out)
{
    static struct meta_root back;
    static struct meta_root r = {
        .sequence = 5,
        .db_id = DB_ID,
        .format_version = META_VERSION,
        .preset = 3,
        .codec = PACK_LZ4,
        .device_bytes = 64 << 20,
        .log_base = LOG_BASE,
        .log_bytes = LOG_BYTES,
        .zones_base = ZONES_BASE,
        .zone_bytes = ZONE_BYTES,
        .zones = ZONES,
        .epoch = 3,
        .epoch_min = 2,
        .epoch_start = 4096,
        .cut = 5000,
        .map_start = 6000,
        .checkpoint = 9,
        .map_pages = 2,
        .zone_pages = 1,
        .page_high = 900,
        .clean = true,
        .unit_bytes = 1 << 20,
        .digest = {0x0102030405060708, 0x1112131415161718},
        .ids_root = 2,
        .next_txn = 78,
        .extent_count = 2,
        .extents = {{.zone = 0, .array = META_ZONES}, {.zone = 1, .array = META_MAP}},
    };

    meta_root_encode(&r, out);
    ZT_OK(t, meta_root_decode(out, &back));
    ZT_CHECK(t, back.page_high == r.page_high && back.digest[1] == r.digest[1] && back.clean);
    return CH_PAGE_BYTES;
}

static size_t
example_log_map(struct zt *t, uint8_t *out)
{
    static const page_id pids[] = {7, 8, 9};
    const place_t places[] = {place_make(300, 0, CH_SLOT_BYTES), place_make(301, 1024, 784), 0};
    struct wal_ticket ticket = {0};
    struct rig r;

    rig_open(&r, t, STORE_OOP);
    ZT_OK(t, wal_reserve(r.wal, WAL_SYSTEM, store_map_bytes(3), &ticket));
    ZT_OK(t, wal_flush(r.wal, store_map_append(r.store, &ticket, pids, places, 3)));
    wal_release(r.wal, &ticket);
    rig_read_log(&r, out);
    rig_close(&r);
    return WAL_BLOCK;
}

/* One record with every operation. */
static size_t
example_log_changes(struct zt *t, uint8_t *out)
{
    struct wal_ticket ticket = {0};
    uint8_t record[2048], ref[CAT_REF_BYTES];
    uint64_t page[CH_PAGE_BYTES / 8]; /* aligned */
    struct wal_part part = {.data = record};
    struct change c;
    struct rig r;

    leaf_fill(t, (uint8_t *)page);
    change_begin(&c, record, sizeof(record));
    change_page(&c, 7);
    change_image(&c, (const uint8_t *)page);
    change_page(&c, 8);
    change_cut(&c, 2);
    change_del(&c, text("plum"));
    change_put(&c, text("pear"), reference(ref), BT_REF);
    change_ghost(&c, text("fig"));
    change_page(&c, 1);
    change_add_child(&c, text("b"), 8);
    change_del_child(&c, 3);
    change_page(&c, 9);
    change_free(&c);
    part.bytes = (uint32_t)c.bytes;
    rig_open(&r, t, STORE_OOP);
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, WAL_RECORD_HEADER + c.bytes, &ticket));
    ZT_OK(t, wal_flush(r.wal, wal_append(r.wal, &ticket, BT_RECORD_PAGES, CH_WAL, &part, 1)));
    wal_release(r.wal, &ticket);
    rig_read_log(&r, out);
    rig_close(&r);
    return WAL_BLOCK;
}

/* A transaction replaces a value, and this is undone. */
static size_t
example_log_writes(struct zt *t, uint8_t *out)
{
    static const struct bt_logged write = {
        .txn = 77, .seq = 4, .tree = 1, .kind = VER_WAS_VALUE, .before = {"red", 3}};
    static const struct bt_logged undo = {.txn = 77, .seq = 3};
    struct wal_ticket ticket = {0};
    uint8_t record[128], head[CHANGE_WRITE_HEAD];
    struct wal_part parts[3] = {{head, 0}, {write.before.data, 3}, {record, 0}};
    struct change c;
    struct rig r;

    rig_open(&r, t, STORE_OOP);
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, 512, &ticket));
    change_begin(&c, record, sizeof(record));
    change_page(&c, 7);
    change_put(&c, text("apple"), text("yellow"), 0);
    parts[0].bytes = (uint32_t)change_head(BT_RECORD_WRITE, &write, head);
    parts[2].bytes = (uint32_t)c.bytes;
    (void)wal_append(r.wal, &ticket, BT_RECORD_WRITE, CH_WAL, parts, 3);
    change_begin(&c, record, sizeof(record));
    change_page(&c, 7);
    change_put(&c, text("apple"), text("red"), 0);
    parts[0].bytes = (uint32_t)change_head(BT_RECORD_UNDO, &undo, head);
    parts[1] = (struct wal_part){record, (uint32_t)c.bytes};
    ZT_OK(t, wal_flush(r.wal, wal_append(r.wal, &ticket, BT_RECORD_UNDO, CH_WAL, parts, 2)));
    wal_release(r.wal, &ticket);
    rig_read_log(&r, out);
    rig_close(&r);
    return WAL_BLOCK;
}

/* A page that is its header, then one byte over and over, as LZ4 by hand: 64 literals, a match
 * of distance 1, and the five literals that LZ4 wants at the end. So this example does not depend on the
 * version of the library. */
static uint32_t
lz4_by_hand(const uint8_t *page, uint8_t *out)
{
    enum {
        LITERALS = PAGE_HEADER_BYTES + 1,
        LAST = 5,
        MATCH = CH_PAGE_BYTES - LITERALS - LAST,
    };
    uint32_t n = 0, left = MATCH - 4 - 15;

    out[n++] = 0xff; /* 15 literals and more, a match of 4 + 15 bytes and more */
    out[n++] = LITERALS - 15;
    memcpy(out + n, page, LITERALS);
    n += LITERALS;
    ch_put16(out + n, 1);
    n += 2;
    for (; left >= 255; left -= 255)
        out[n++] = 255;
    out[n++] = (uint8_t)left;
    out[n++] = LAST << 4;
    memcpy(out + n, page + CH_PAGE_BYTES - LAST, LAST);
    return n + LAST;
}

/* The header as the packer writes it, around that output; returns the image's size. */
static uint32_t
image_by_hand(const uint8_t *page, uint8_t *image)
{
    uint32_t n = lz4_by_hand(page, image + 26);
    uint32_t bytes = (uint32_t)ch_round_up(26 + n, PACK_STEP);

    ch_put48(image, page_pid(page));
    ch_put64(image + 6, page_lsn(page));
    ch_put16(image + 18, page_death_pack(page_death_time(page, page_lsn(page))));
    image[20] = 1;
    image[21] = PACK_FULL << 4 | PACK_LZ4;
    ch_put16(image + 24, (uint16_t)n);
    ch_put32(image + 14, ch_crc32c(ch_crc32c(0, image, 14), image + 18, bytes - 18));
    return bytes;
}

/* The packer's own image of the page has the same header but for lengths and checksum. */
static void
check_header(struct zt *t, struct packer *p, const uint8_t *page, const uint8_t *image)
{
    struct pack_item it = {.pid = page_pid(page), .lsn = page_lsn(page), .page = page};
    struct pack_plan plan;

    it.death = ch_get16(image + 18);
    pack_build(p, &it, 1, false, &plan);
    ZT_CHECK(t, memcmp(plan.slots, image, 14) == 0);
    ZT_CHECK(t, memcmp(plan.slots + 18, image + 18, 6) == 0);
}

static size_t
example_slot(struct zt *t, uint8_t *out)
{
    uint64_t aligned[CH_PAGE_BYTES / 8];
    uint8_t *page = (uint8_t *)aligned;
    uint8_t back[CH_PAGE_BYTES], image[512] = {0};
    struct pack_item it = {.image = image};
    struct pack_plan plan;
    struct packer *p;

    page_init(page, 7, PAGE_OVERFLOW, 0, 1);
    page_set_lsn(page, 123456);
    page_note_write(page, 50000);
    page_note_write(page, 123456);
    memset(page + PAGE_HEADER_BYTES, 'x', CH_PAGE_BYTES - PAGE_HEADER_BYTES);
    page_seal(page);
    it.pid = 7;
    it.image_bytes = image_by_hand(page, image);
    ZT_OK(t, packer_create(PACK_LZ4, 0, 1, &p));
    check_header(t, p, page, image);
    pack_build(p, &it, 1, false, &plan);
    memcpy(out, plan.slots, CH_SLOT_BYTES);
    ZT_OK(t, pack_unpack(p, out, it.offset, it.bytes, 7, back));
    ZT_CHECK(t, memcmp(page, back, CH_PAGE_BYTES) == 0);
    packer_destroy(p);
    return CH_SLOT_BYTES;
}

/* Page 0 of an array, written as checkpoint 9. */
static void
array_write(struct rig *r, enum meta_array_id id, const uint8_t *payload, uint8_t *out)
{
    static struct meta_root root;
    struct meta_array *a = NULL;
    uint64_t k = 0;

    root = (struct meta_root){.db_id = DB_ID,
                              .zones_base = ZONES_BASE,
                              .zone_bytes = ZONE_BYTES,
                              .zones = ZONES,
                              .extent_count = 1,
                              .extents = {{.zone = 1, .array = (uint8_t)id}}};
    ZT_OK(r->t, meta_array_create(r->dev, id, &root, &a));
    ZT_OK(r->t, meta_array_write(a, 9, &k, 1, payload));
    meta_array_destroy(a);
    rig_read(r, ZONES_BASE + ZONE_BYTES, out);
}

static size_t
example_array_map(struct zt *t, uint8_t *out)
{
    static uint64_t entries[META_PAGE_PAYLOAD / 8];
    struct rig r;

    rig_open(&r, t, STORE_OOP);
    ZT_OK(t, map_ensure(store_map(r.store), 8));
    (void)map_set(store_map(r.store), 7, place_make(300, 0, CH_SLOT_BYTES));
    (void)map_set(store_map(r.store), 8, place_make(301, 1024, 784));
    map_page_copy(store_map(r.store), 0, entries);
    array_write(&r, META_MAP, (const uint8_t *)entries, out);
    rig_close(&r);
    return CH_PAGE_BYTES;
}

static size_t
example_array_zones(struct zt *t, uint8_t *out)
{
    static uint8_t payload[META_PAGE_PAYLOAD];
    struct zone_info sealed = {
        .state = ZONE_SEALED, .cursor = 64, .empty_lsn = 123456, .generation = 2};
    struct rig r;
    zone_id z;

    rig_open(&r, t, STORE_OOP);
    ZT_OK(t, zone_take_meta(store_zones(r.store), &z));
    zone_restore(store_zones(r.store), 1, &sealed);
    zone_live_add(store_zones(r.store), 1, 4880);
    store_zone_page_copy(r.store, 0, payload);
    array_write(&r, META_ZONES, payload, out);
    rig_close(&r);
    return CH_PAGE_BYTES;
}

static size_t
example_double_write(struct zt *t, uint8_t *out)
{
    static struct store_batch batch;
    struct store_page pages[2] = {{.pid = 7}, {.pid = 8}};
    struct rig r;

    rig_open(&r, t, STORE_INPLACE);
    for (unsigned i = 0; i < 2; i++) {
        pages[i].page = ch_alloc_aligned(CH_PAGE_BYTES);
        ZT_CHECK(t, pages[i].page != NULL);
        node_init(pages[i].page, pages[i].pid, 0, 1);
    }
    memset(&batch, 0, sizeof(batch));
    ZT_OK(t, store_write(r.store, pages, 2, false, &batch));
    rig_read(&r, ZONES_BASE + (uint64_t)(1 + CH_BATCH_MAX) * CH_PAGE_BYTES, out);
    rig_close(&r);
    ch_free_aligned(pages[0].page);
    ch_free_aligned(pages[1].page);
    return CH_PAGE_BYTES;
}

/* Its times are made zero. */
static size_t
example_trace(struct zt *t, uint8_t *out)
{
    struct sim_drive *drive;
    struct dev *dev = NULL, *inner = NULL;
    uint8_t *block = ch_alloc_aligned(CH_PAGE_BYTES);
    char path[256];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/trace", zt_tmpdir(t));
    ZT_CHECK(t, block != NULL);
    ZT_OK(t, sim_drive_create("generic,bytes=64M,superblock=1M", &drive));
    ZT_OK(t, dev_sim_open(drive, &inner));
    ZT_OK(t, dev_trace_open(inner, path, &dev));
    ZT_OK(t, dev_write(dev, ZONES_BASE, block, CH_PAGE_BYTES, CH_USER));
    ZT_OK(t, dev_flush(dev));
    ZT_OK(t, dev_reset(dev, ZONES_BASE, ZONE_BYTES));
    dev_close(dev);
    sim_drive_destroy(drive);
    ch_free_aligned(block);
    file = fopen(path, "rb");
    ZT_CHECK(t, file != NULL);
    n = fread(out, 1, EXAMPLE_MAX, file);
    ZT_CHECK(t, fclose(file) == 0 && n == (size_t)4 * 32);
    for (size_t i = 32; i < n; i += 32)
        memset(out + i, 0, 8);
    return n;
}

static const struct example {
    const char *name;
    size_t (*make)(struct zt *t, uint8_t *out);
    void (*print)(struct format *f);
} examples[] = {
    {"root", example_root, format_root},
    {"log-map", example_log_map, format_log_block},
    {"log-changes", example_log_changes, format_log_block},
    {"log-writes", example_log_writes, format_log_block},
    {"log-ends", example_log_ends, format_log_block},
    {"array-map", example_array_map, format_array_slot},
    {"array-zones", example_array_zones, format_array_slot},
    {"slot", example_slot, format_slot},
    {"leaf", example_leaf, format_page},
    {"inner", example_inner, format_page},
    {"tree-ids", example_tree_ids, format_page},
    {"tree-names", example_tree_names, format_page},
    {"tree-pending", example_tree_pending, format_page},
    {"tree-blobs", example_tree_blobs, format_page},
    {"tree-undo", example_tree_undo, format_page},
    {"double-write", example_double_write, format_double_write},
    {"trace", example_trace, format_trace},
};

/* ---- printing and parsing ---- */

/* The dump of an example, allocated; `bytes` receives what was encoded. */
static char *
example_dump(struct zt *t, const struct example *e, uint8_t *bytes, size_t *n)
{
    struct format f = {.data = bytes};
    char *dump = NULL;
    size_t size = 0;

    memset(bytes, 0, EXAMPLE_MAX);
    *n = f.bytes = e->make(t, bytes);
    f.out = open_memstream(&dump, &size);
    ZT_CHECK(t, f.out != NULL);
    e->print(&f);
    ZT_CHECK(t, fclose(f.out) == 0 && f.pos == f.bytes);
    return dump;
}

static char *
document_read(struct zt *t)
{
    FILE *file = fopen(document_path, "r");
    char *doc = NULL;
    size_t size = 0;

    ZT_CHECK(t, file != NULL);
    ZT_CHECK(t, getdelim(&doc, &size, '\0', file) > 0);
    ZT_CHECK(t, fclose(file) == 0);
    return doc;
}

/* The block of an example: [*begin, *end) are the lines between the fences. */
static void
block_find(struct zt *t, char *doc, const char *name, char **begin, char **end)
{
    char mark[NAME_MAX_BYTES + 32];
    char *p;

    snprintf(mark, sizeof(mark), "<!-- dump: %s -->\n```\n", name);
    p = strstr(doc, mark);
    if (p == NULL)
        (void)fprintf(stderr, "docs/FORMAT.md has no dump of %s\n", name);
    ZT_CHECK(t, p != NULL);
    *begin = p + strlen(mark);
    *end = strstr(*begin, "```\n<!-- end -->\n");
    ZT_CHECK(t, *end != NULL);
}

struct line {
    size_t off, bytes;
    const char *note; /* not terminated */
};

/* Reads a line of a dump; its bytes go to `out`, unless NULL. Returns the next line. */
static const char *
line_read(struct zt *t, const char *p, struct line *l, uint8_t *out)
{
    const char *end = strchr(p, '\n');
    const char *hex = p + COLUMN_HEX;
    char *after = NULL;

    ZT_CHECK(t, end != NULL && end - p > COLUMN_HEX);
    l->off = strtoul(p, &after, 10);
    l->note = end - p > COLUMN_NOTE ? p + COLUMN_NOTE : end;
    ZT_CHECK(t, after == p + COLUMN_HEX - 2);
    if (strncmp(hex, "00 x ", 5) == 0) {
        l->bytes = strtoul(hex + 5, NULL, 10);
        ZT_CHECK(t, l->off + l->bytes <= EXAMPLE_MAX);
        if (out != NULL)
            memset(out + l->off, 0, l->bytes);
        return end + 1;
    }
    for (l->bytes = 0; l->bytes < 16 && hex[0] != ' '; l->bytes++, hex += 3) {
        ZT_CHECK(t, l->off + l->bytes < EXAMPLE_MAX);
        if (out != NULL)
            out[l->off + l->bytes] = (uint8_t)strtoul(hex, NULL, 16);
    }
    return end + 1;
}

/* ---- the tests ---- */

static void
first_difference(const char *name, const char *want, const char *got)
{
    size_t i = 0;

    while (want[i] == got[i] && want[i] != '\0')
        i++;
    while (i > 0 && want[i - 1] != '\n')
        i--;
    (void)fprintf(stderr, "%s\n  encoded:   %.*s\n  document:  %.*s\n", name,
                  (int)strcspn(want + i, "\n"), want + i, (int)strcspn(got + i, "\n"), got + i);
}

/* Goal: the document shows what is written. Method: text of the dump, byte for byte. */
static void
test_dumps(struct zt *t)
{
    char *doc = document_read(t);
    bool same = true;

    for (size_t i = 0; i < CH_ARRAY_LEN(examples); i++) {
        uint8_t bytes[EXAMPLE_MAX];
        size_t n;
        char *dump = example_dump(t, &examples[i], bytes, &n);
        char *copy = document_read(t), *begin, *end;

        block_find(t, copy, examples[i].name, &begin, &end);
        *end = '\0';
        if (strcmp(dump, begin) != 0) {
            first_difference(examples[i].name, dump, begin);
            same = false;
        }
        free(copy);
        free(dump);
    }
    free(doc);
    ZT_CHECK(t, same);
}

/* Goal: the dumps leave nothing out. Method: the structure is put together from the hex columns. */
static void
test_bytes(struct zt *t)
{
    char *doc = document_read(t);

    for (size_t i = 0; i < CH_ARRAY_LEN(examples); i++) {
        uint8_t bytes[EXAMPLE_MAX], got[EXAMPLE_MAX];
        size_t n, pos = 0;
        char *begin, *end;

        free(example_dump(t, &examples[i], bytes, &n));
        memset(got, 0xee, sizeof(got));
        block_find(t, doc, examples[i].name, &begin, &end);
        for (const char *p = begin; p < end;) {
            struct line l;

            p = line_read(t, p, &l, got);
            ZT_CHECK(t, l.off == pos && l.bytes > 0);
            pos += l.bytes;
        }
        ZT_CHECK(t, pos == n && memcmp(bytes, got, n) == 0);
    }
    free(doc);
}

/* A row of a field table: "| 16 | 8 | `sequence` | ..." */
static bool
row_read(const char *p, size_t *off, size_t *bytes, char *name)
{
    return sscanf(p, "| %zu | %zu | `%63[^`]` |", off, bytes, name) == 3;
}

static bool
dump_has(struct zt *t, const char *begin, const char *end, size_t off, size_t bytes,
         const char *name)
{
    size_t len = strlen(name);

    for (const char *p = begin; p < end;) {
        struct line l;

        p = line_read(t, p, &l, NULL);
        if (l.off == off && l.bytes == bytes && strncmp(l.note, name, len) == 0 &&
            strchr(" =,\n", l.note[len]) != NULL)
            return true;
    }
    return false;
}

/* Whether every row of the table at `rows` has its line when offsets count from `base`. */
static bool
table_fits(struct zt *t, const char *rows, size_t base, const char *begin, const char *end)
{
    size_t off, bytes;
    char name[NAME_MAX_BYTES];

    for (const char *p = rows; *p == '|'; p = strchr(p, '\n') + 1) {
        if (row_read(p, &off, &bytes, name) && !dump_has(t, begin, end, base + off, bytes, name))
            return false;
    }
    return true;
}

static bool
table_fits_somewhere(struct zt *t, const char *rows, const char *begin, const char *end)
{
    for (const char *p = begin; p < end;) {
        struct line l;

        p = line_read(t, p, &l, NULL);
        if (table_fits(t, rows, l.off, begin, end))
            return true;
    }
    return false;
}

/* Checks the table whose header stands at p, if it is one of fields; returns whether it was. */
static bool
table_check(struct zt *t, const char *p, const char *begin, const char *end)
{
    bool absolute = strncmp(p, "| offset | bytes | field |", 26) == 0;
    const char *rows = strchr(strchr(p, '\n') + 1, '\n') + 1;
    size_t off, bytes;
    char name[NAME_MAX_BYTES];
    bool fits;

    if (!absolute && strncmp(p, "| + | bytes | field |", 21) != 0)
        return false;
    ZT_CHECK(t, row_read(rows, &off, &bytes, name));
    fits =
        absolute ? table_fits(t, rows, 0, begin, end) : table_fits_somewhere(t, rows, begin, end);
    if (!fits)
        (void)fprintf(stderr, "the table that starts with `%s` does not fit the dump below it\n",
                      name);
    ZT_CHECK(t, fits);
    return true;
}

/* Goal: offsets, sizes and names in the tables are those of the dumps that follow them. */
static void
test_tables(struct zt *t)
{
    char *doc = document_read(t);
    unsigned tables = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(examples); i++) {
        char *begin, *end, *from = doc;

        block_find(t, doc, examples[i].name, &begin, &end);
        for (char *p = doc; p < begin; p = strchr(p, '\n') + 1) {
            if (strncmp(p, "## ", 3) == 0 || strncmp(p, "<!-- end -->", 12) == 0)
                from = p;
        }
        for (char *p = from; p < begin; p = strchr(p, '\n') + 1)
            tables += *p == '|' && p[-1] == '\n' && table_check(t, p, begin, end);
    }
    free(doc);
    ZT_CHECK(t, tables >= TABLES_MIN);
}

/* Overwrites some bytes; small values are likely, as counts and lengths are. A slot's directory gets its
 * checksum again: without it nothing else is looked at. */
static void
damage(struct zt *t, const struct example *e, uint8_t *bytes, size_t n)
{
    for (uint64_t k = 1 + zt_below(t, 8); k > 0; k--) {
        size_t at = zt_below(t, zt_below(t, 2) == 0 ? n : ch_min_u64(n, 160));

        bytes[at] = (uint8_t)zt_below(t, zt_below(t, 2) == 0 ? 256 : 16);
    }
    if (e->print == format_slot) {
        uint8_t *foot = bytes + CH_SLOT_BYTES - 8;
        size_t count;

        foot[-1] = (uint8_t)zt_below(t, 256);
        foot[-3] = (uint8_t)zt_below(t, 16);
        foot[0] = (uint8_t)(1 + zt_below(t, 3));
        count = foot[0];
        ch_put32(foot + 4, ch_crc32c(0, foot - 2 * count, 2 * count + 4));
    }
}

/* Goal: whatever the bytes are, the printer shows each of them once and reads no others (sanitizers). */
static void
test_hostile(struct zt *t)
{
    const struct example *e = &examples[zt_below(t, CH_ARRAY_LEN(examples))];
    uint8_t good[EXAMPLE_MAX], got[EXAMPLE_MAX] = {0};
    size_t n, size = 0;

    free(example_dump(t, e, good, &n));
    for (unsigned round = 0; round < 200; round++) {
        uint64_t aligned[EXAMPLE_MAX / 8];
        uint8_t *bytes = (uint8_t *)aligned;
        struct format f = {.data = bytes, .bytes = n};
        char *dump = NULL;
        size_t pos = 0;

        memcpy(bytes, good, n);
        damage(t, e, bytes, n);
        f.out = open_memstream(&dump, &size);
        ZT_CHECK(t, f.out != NULL);
        e->print(&f);
        ZT_CHECK(t, fclose(f.out) == 0);
        for (const char *p = dump; *p != '\0';) {
            struct line l;

            p = line_read(t, p, &l, got);
            ZT_CHECK(t, l.off == pos && l.bytes > 0);
            pos += l.bytes;
        }
        ZT_CHECK(t, pos == n && memcmp(bytes, got, n) == 0);
        free(dump);
    }
}

/* Not a test: writes the dumps into the document. */
static void
update(struct zt *t)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(examples); i++) {
        uint8_t bytes[EXAMPLE_MAX];
        size_t n;
        char *dump = example_dump(t, &examples[i], bytes, &n);
        char *doc = document_read(t), *begin, *end;
        FILE *file;

        block_find(t, doc, examples[i].name, &begin, &end);
        file = fopen(document_path, "w");
        ZT_CHECK(t, file != NULL);
        ZT_CHECK(t, fprintf(file, "%.*s%s%s", (int)(begin - doc), doc, dump, end) > 0);
        ZT_CHECK(t, fclose(file) == 0);
        free(doc);
        free(dump);
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case tests[] = {
        {"dumps", test_dumps, 1},
        {"bytes", test_bytes, 1},
        {"tables", test_tables, 1},
        {"hostile", test_hostile, 40},
    };
    static const struct zt_case updates[] = {{"update", update, 1}};
    bool updating = argc > 1 && strcmp(argv[1], "--update") == 0;

    if (argc != (updating ? 3 : 2)) {
        (void)fprintf(stderr, "usage: %s [--update] FORMAT.md\n", argv[0]);
        return 2;
    }
    document_path = argv[argc - 1];
    return updating ? zt_main(1, argv, "golden update", updates, CH_ARRAY_LEN(updates))
                    : zt_main(1, argv, "golden", tests, CH_ARRAY_LEN(tests));
}
