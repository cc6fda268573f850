/* meta_test.c - root records and A/B arrays: bytes, crashes at every write, damage, refusals. */
#include "meta/meta_internal.h"

#include "base/status.h"
#include "dev/dev.h"
#include "zt.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DRIVE "generic,bytes=16M,superblock=1M,cache=volatile"

enum {
    ZONE_BYTES = 64 << 10, /* 8 pages an extent */
    ZONES = 64,
    ZONES_BASE = 1 << 20,
    PAGES_MAX = 80, /* of the model's array */
};

static void
example_root(struct zt *t, struct meta_root *r)
{
    memset(r, 0, sizeof(*r));
    r->db_id = ch_prng_next(&t->rng);
    r->preset = (uint32_t)zt_below(t, 13);
    r->codec = (uint32_t)zt_below(t, 4);
    r->device_bytes = 16 << 20;
    r->log_base = META_ROOT_BYTES;
    r->log_bytes = 256 << 10;
    r->zones_base = ZONES_BASE;
    r->zone_bytes = ZONE_BYTES;
    r->zones = ZONES;
    r->epoch_min = 1 + (uint32_t)zt_below(t, 9);
    r->epoch = r->epoch_min + (uint32_t)zt_below(t, 9);
    r->epoch_start = zt_below(t, 1000) * 4096;
    r->cut = zt_below(t, 1 << 30);
    r->map_start = r->cut + zt_below(t, 1 << 20);
    r->page_high = zt_below(t, CH_PAGE_ID_MAX);
    r->clean = zt_below(t, 2) == 0;
    r->unit_bytes = zt_below(t, 1 << 20);
    r->digest[0] = ch_prng_next(&t->rng);
    r->digest[1] = ch_prng_next(&t->rng);
}

/* ... with the log in zones. */
static void
log_in_zones(struct zt *t, struct meta_root *r)
{
    r->log_zones = true;
    r->log_zone = (zone_id)zt_below(t, r->zones);
    r->log_base = r->zones_base;
    r->log_bytes = 4 * r->zone_bytes;
    r->map_start += r->zone_bytes;
    r->cut += r->zone_bytes;
}

static void
drive_open(struct zt *t, struct sim_drive *drive, const struct dev_fault_plan *plan,
           struct dev **out)
{
    struct dev *sim = NULL;

    ZT_OK(t, dev_sim_open(drive, &sim));
    ZT_OK(t, dev_fault_open(sim, plan, out));
}

static const struct dev_fault_plan no_fault;

/* ---- roots ---- */

/* Goal: a root reads back as it was written, with up to all extents; every changed byte is noticed. */
static void
test_root_bytes(struct zt *t)
{
    static struct meta_root r, got;
    uint8_t block[4096];

    example_root(t, &r);
    r.sequence = 1 + zt_below(t, 1000);
    r.format_version = META_VERSION;
    r.zones = 1000;
    if (zt_below(t, 2) == 0)
        log_in_zones(t, &r);
    r.extent_count =
        zt_below(t, 3) == 0 ? META_EXTENTS_MAX : (uint32_t)zt_below(t, META_EXTENTS_MAX);
    for (uint32_t i = 0; i < r.extent_count; i++) {
        r.extents[i].zone = 2 * i + 1;
        r.extents[i].array = (uint8_t)zt_below(t, META_ARRAYS);
    }
    meta_root_encode(&r, block);
    ZT_OK(t, meta_root_decode(block, &got));
    ZT_CHECK(t, memcmp(&r, &got, sizeof(r)) == 0);
    for (unsigned i = 0; i < sizeof(block); i++) {
        uint8_t bit = (uint8_t)(1u << zt_below(t, 8));
        int rc;

        block[i] ^= bit;
        rc = meta_root_decode(block, &got);
        ZT_CHECK(t, rc == (i >= 8 && i < 16 ? COHORT_EMAGIC : COHORT_EROOT));
        block[i] ^= bit;
    }
}

static int
decode_of(const struct meta_root *r)
{
    static struct meta_root got;
    uint8_t block[4096];

    meta_root_encode(r, block);
    return meta_root_decode(block, &got);
}

/* Goal: fields that contradict each other are refused although the checksum holds. */
static void
test_root_refuses_nonsense(struct zt *t)
{
    static struct meta_root old;
    uint8_t block[4096];
    static struct meta_root good, r;

    example_root(t, &good);
    good.sequence = 1;
    good.format_version = META_VERSION;
    good.extent_count = 2;
    good.extents[0] = (struct meta_extent){.zone = 3, .array = META_MAP};
    good.extents[1] = (struct meta_extent){.zone = 5, .array = META_ZONES};
    good.map_pages = good.zone_pages = 8;
    ZT_OK(t, decode_of(&good));
#define WRONG(field, value) \
    r = good;               \
    r.field = value;        \
    ZT_STATUS(t, decode_of(&r), COHORT_EROOT)
    WRONG(extents[1].zone, 3);
    WRONG(extents[1].zone, ZONES);
    WRONG(extents[1].array, META_ARRAYS);
    WRONG(map_pages, 9);
    WRONG(zone_pages, 9);
    WRONG(zone_bytes, 0);
    WRONG(zone_bytes, 4095);
    WRONG(zone_bytes, UINT64_MAX / 4096 * 4096);
    WRONG(zones_base, 4096);
    WRONG(log_base, 0);
    WRONG(log_base, UINT64_MAX / 4096 * 4096);
    WRONG(log_bytes, 0);
    WRONG(epoch_min, good.epoch + 1);
    WRONG(epoch_start, 4095);
    WRONG(map_start, good.cut - 1);
    WRONG(sequence, 0);
    WRONG(format_version, 0);
    log_in_zones(t, &good);
    ZT_OK(t, decode_of(&good));
    WRONG(log_zone, good.zones);
    WRONG(log_base, META_ROOT_BYTES);
    WRONG(log_bytes, good.zone_bytes + 4096);
    WRONG(cut, good.zone_bytes - 1);
#undef WRONG
    r = good;
    r.format_version = 2; /* had no deltas */
    r.delta_pages = 7;
    meta_root_encode(&r, block);
    ZT_OK(t, meta_root_decode(block, &old));
    ZT_CHECK(t, old.delta_pages == 0 && old.digest[META_DELTAS] == 0);
    r.format_version = META_VERSION + 1;
    ZT_STATUS(t, decode_of(&r), COHORT_EVERSION);
}

/* Goal: a crash at any write of a store leaves the old root or the new one, both whole (T1, T2).
 * Method: store roots; each time the power goes after a random number of requests, or not at all. */
static void
test_root_crashes(struct zt *t)
{
    static struct meta_root r, got;
    struct sim_drive *drive = NULL;
    struct dev *d = NULL;

    example_root(t, &r);
    ZT_OK(t, sim_drive_create(DRIVE, &drive));
    drive_open(t, drive, &no_fault, &d);
    ZT_OK(t, meta_store(d, &r));
    for (int i = 0; i < 20; i++) {
        struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_forever = true};
        uint64_t old = r.sequence;
        int rc;

        plan.fail_nth[DEV_FLUSH] = zt_below(t, 4);
        plan.fail_nth[DEV_WRITE] = zt_below(t, 4) == 0;
        dev_fault_set(d, &plan);
        r.checkpoint = old + 1;
        rc = meta_store(d, &r);
        ZT_CHECK(t, rc == 0 || rc == COHORT_EIO);
        ZT_CHECK(t, r.sequence == old + (rc == 0));
        sim_drive_crash(drive, ch_prng_next(&t->rng));
        dev_close(d);
        drive_open(t, drive, &no_fault, &d);
        ZT_OK(t, meta_load(d, &got));
        ZT_CHECK(t, got.sequence == old + 1 || (rc != 0 && got.sequence == old));
        ZT_CHECK(t, got.checkpoint == got.sequence || got.sequence == 1);
        r = got;
    }
    dev_close(d);
    sim_drive_destroy(drive);
}

/* Goal: a store makes durable what was written before it, before the root itself can be (T2).
 * Method: data, then a store whose last flush fails; crash; if the new root is there, so is the data. */
static void
test_root_orders_writes(struct zt *t)
{
    static struct meta_root r, got;
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    struct sim_drive *drive = NULL;
    struct dev *d = NULL;
    uint8_t *data = ch_alloc_aligned(4096);

    example_root(t, &r);
    ZT_OK(t, sim_drive_create(DRIVE, &drive));
    drive_open(t, drive, &no_fault, &d);
    ZT_OK(t, meta_store(d, &r));
    plan.fail_nth[DEV_FLUSH] = 2;
    dev_fault_set(d, &plan);
    memset(data, 7, 4096);
    ZT_OK(t, dev_write(d, ZONES_BASE, data, 4096, CH_META));
    ZT_STATUS(t, meta_store(d, &r), COHORT_EIO);
    sim_drive_crash(drive, ch_prng_next(&t->rng));
    dev_close(d);
    drive_open(t, drive, &no_fault, &d);
    ZT_OK(t, meta_load(d, &got));
    ZT_OK(t, dev_read(d, ZONES_BASE, data, 4096));
    ZT_CHECK(t, got.sequence == 1 || data[0] == 7);
    ch_free_aligned(data);
    dev_close(d);
    sim_drive_destroy(drive);
}

/* What a slot holds in test_root_slots(). */
enum slot_kind {
    BLANK,
    FOREIGN,
    DAMAGED,
    NEWER,
    GOOD,
    SLOT_KINDS
};

static void
slot_poke(struct zt *t, struct sim_drive *drive, unsigned slot, enum slot_kind kind)
{
    static struct meta_root r;
    uint8_t block[4096] = {0};

    example_root(t, &r);
    r.sequence = 10 + slot;
    r.format_version = kind == NEWER ? META_VERSION + 1 : META_VERSION;
    if (kind != BLANK)
        meta_root_encode(&r, block);
    if (kind == DAMAGED)
        block[100] ^= 1;
    if (kind == FOREIGN)
        memset(block, 0x55, sizeof(block));
    sim_drive_poke(drive, slot == 0 ? 0 : META_ROOT_BYTES / 2, block, sizeof(block));
}

/* Goal: each pair of slots loads, or is refused, as meta.h says; the probe agrees. Exhaustive. */
static void
test_root_slots(struct zt *t)
{
    static struct meta_root got;
    bool is_root, is_blank;

    for (int i = 0; i < SLOT_KINDS * SLOT_KINDS; i++) {
        enum slot_kind a = (enum slot_kind)(i % SLOT_KINDS), b = (enum slot_kind)(i / SLOT_KINDS);
        struct sim_drive *drive = NULL;
        struct dev *d = NULL;
        int want;

        ZT_OK(t, sim_drive_create(DRIVE, &drive));
        slot_poke(t, drive, 0, a);
        slot_poke(t, drive, 1, b);
        drive_open(t, drive, &no_fault, &d);
        if (a == NEWER || b == NEWER)
            want = COHORT_EVERSION;
        else if (a == GOOD || b == GOOD)
            want = 0;
        else
            want = a == DAMAGED || b == DAMAGED ? COHORT_EROOT : COHORT_EMAGIC;
        ZT_STATUS(t, meta_load(d, &got), want);
        ZT_CHECK(t, want != 0 || got.sequence == (b == GOOD ? 11 : 10));
        ZT_OK(t, meta_probe(d, &is_root, &is_blank));
        ZT_CHECK(t, is_root == (a >= DAMAGED || b >= DAMAGED));
        ZT_CHECK(t, is_blank == (a == BLANK && b == BLANK));
        dev_close(d);
        sim_drive_destroy(drive);
    }
}

/* Goal: a root whose slot cannot be read is not passed over for the older one (T4); a root in the wrong slot is no
 * root (T1); a new database leaves nothing of the one before (T3). */
static void
test_root_old_ones_stay_away(struct zt *t)
{
    static struct meta_root r, got;
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    struct sim_drive *drive = NULL;
    struct dev *d = NULL;
    uint8_t block[4096];

    example_root(t, &r);
    ZT_OK(t, sim_drive_create(DRIVE, &drive));
    drive_open(t, drive, &no_fault, &d);
    for (int i = 0; i < 7; i++)
        ZT_OK(t, meta_store(d, &r));
    plan.fail_nth[DEV_READ] = 1 + zt_below(t, 2);
    dev_fault_set(d, &plan);
    ZT_STATUS(t, meta_load(d, &got), COHORT_EIO);
    dev_fault_set(d, &no_fault);
    ZT_OK(t, meta_load(d, &got));
    ZT_CHECK(t, got.sequence == 7);
    sim_drive_peek(drive, META_ROOT_BYTES / 2, block, sizeof(block));
    sim_drive_poke(drive, 0, block, sizeof(block));
    memset(block, 0, sizeof(block));
    sim_drive_poke(drive, META_ROOT_BYTES / 2, block, sizeof(block));
    ZT_STATUS(t, meta_load(d, &got), COHORT_EROOT);
    example_root(t, &r); /* sequence 0 again, over sequence 7 */
    ZT_OK(t, meta_store(d, &r));
    ZT_OK(t, meta_load(d, &got));
    ZT_CHECK(t, got.sequence == 1 && got.db_id == r.db_id);
    sim_drive_peek(drive, 0, block, sizeof(block));
    ZT_CHECK(t, block[8] == 0);
    dev_close(d);
    sim_drive_destroy(drive);
}

/* Goal: a truncated file or a smaller device is refused by name; tiny and odd files are probed without error. */
static void
test_truncated_device(struct zt *t)
{
    static struct meta_root r, got;
    struct dev *d = NULL;
    char path[512];
    bool is_root, is_blank;

    (void)snprintf(path, sizeof(path), "%s/db", zt_tmpdir(t));
    example_root(t, &r);
    r.device_bytes = 0;
    ZT_OK(t, dev_open(path, DEV_CREATE | DEV_BUFFERED, 0, &d));
    ZT_OK(t, meta_probe(d, &is_root, &is_blank));
    ZT_CHECK(t, !is_root && is_blank);
    ZT_STATUS(t, meta_load(d, &got), COHORT_EMAGIC);
    ZT_OK(t, dev_allocate(d, 0, ZONES_BASE + (uint64_t)ZONES * ZONE_BYTES));
    ZT_OK(t, meta_store(d, &r));
    ZT_OK(t, meta_store(d, &r));
    ZT_OK(t, meta_load(d, &got));
    dev_close(d);
    ZT_CHECK(t, truncate(path, ZONES_BASE + (off_t)ZONES * ZONE_BYTES - 4096) == 0);
    ZT_OK(t, dev_open(path, DEV_BUFFERED, 0, &d));
    ZT_STATUS(t, meta_load(d, &got), COHORT_EMISMATCH);
    dev_close(d);
    ZT_CHECK(t, truncate(path, 4096) == 0); /* only slot A is left */
    ZT_OK(t, dev_open(path, DEV_BUFFERED, 0, &d));
    ZT_STATUS(t, meta_load(d, &got), COHORT_EMISMATCH);
    ZT_OK(t, meta_probe(d, &is_root, &is_blank));
    ZT_CHECK(t, is_root && !is_blank);
    dev_close(d);
}

/* ---- arrays ---- */

struct model { /* what each page should hold, by version; 0 = not there */
    uint64_t version[PAGES_MAX];
    uint64_t pages;
};
struct visit {
    struct zt *t;
    const struct model *m;
    uint64_t next;
    int fail;
};

static void
payload_fill(uint64_t k, uint64_t version, uint8_t *payload)
{
    struct ch_prng p;

    ch_prng_init(&p, k * 1000003 + version);
    ch_prng_fill(&p, payload, META_PAGE_PAYLOAD);
}

static int
visit_page(void *arg, uint64_t k, const uint8_t *payload)
{
    struct visit *v = arg;
    uint8_t want[META_PAGE_PAYLOAD];

    ZT_CHECK(v->t, k == v->next);
    payload_fill(k, v->m->version[k], want);
    ZT_CHECK(v->t, memcmp(payload, want, sizeof(want)) == 0);
    v->next++;
    return v->fail;
}

static int
ignore_page(void *arg, uint64_t k, const uint8_t *payload)
{
    (void)arg;
    (void)k;
    (void)payload;
    return 0;
}

struct array_rig {
    struct sim_drive *drive;
    struct dev *d;
    struct meta_root root;
    struct meta_array *a;
    struct model m; /* as of the root */
};

static void
array_rig_init(struct zt *t, struct array_rig *r)
{
    memset(r, 0, sizeof(*r));
    example_root(t, &r->root);
    r->root.digest[0] = r->root.digest[1] = 0;
    ZT_OK(t, sim_drive_create(DRIVE, &r->drive));
    drive_open(t, r->drive, &no_fault, &r->d);
    ZT_OK(t, meta_store(r->d, &r->root));
    ZT_OK(t, meta_array_create(r->d, META_MAP, &r->root, &r->a));
}

static void
array_rig_fini(struct array_rig *r)
{
    meta_array_destroy(r->a);
    dev_close(r->d);
    sim_drive_destroy(r->drive);
}

/* Writes `n` pages of the array, random ones and all new ones, as checkpoint `number`; *m becomes what they hold. */
static int
write_some(struct zt *t, struct array_rig *r, struct model *m, uint64_t number, uint64_t grow)
{
    static uint8_t payloads[META_WRITE_MAX * META_PAGE_PAYLOAD];
    uint64_t ks[META_WRITE_MAX], pages = ch_min_u64(m->pages + grow, PAGES_MAX);
    unsigned n = 0;
    int rc = 0;

    while (rc == 0 && meta_array_capacity(r->a) < pages)
        rc = meta_array_extend(r->a, 2 * r->root.extent_count + 1, &r->root);
    for (uint64_t k = 0; rc == 0 && k < pages; k++) {
        if (k < m->pages && zt_below(t, 4) != 0)
            continue;
        ks[n] = k;
        m->version[k] = number;
        payload_fill(k, number, payloads + n * (size_t)META_PAGE_PAYLOAD);
        if (++n == META_WRITE_MAX) {
            rc = meta_array_write(r->a, number, ks, n, payloads);
            n = 0;
        }
    }
    m->pages = pages;
    return rc != 0 ? rc : meta_array_write(r->a, number, ks, n, payloads);
}

/* A checkpoint as boot makes one: pages, root, commit. The model follows when the root is stored. */
static int
checkpoint(struct zt *t, struct array_rig *r, uint64_t grow, struct model *next)
{
    uint64_t number = meta_array_highest(r->a) + 1;
    int rc;

    *next = r->m;
    rc = write_some(t, r, next, number, grow);
    if (rc != 0)
        return rc;
    r->root.checkpoint = number;
    r->root.map_pages = next->pages;
    r->root.digest[META_MAP] = meta_array_digest(r->a, number);
    rc = meta_store(r->d, &r->root);
    if (rc != 0)
        return rc;
    meta_array_commit(r->a, number);
    r->m = *next;
    return 0;
}

static int
array_reload(struct array_rig *r, int (*visit)(void *, uint64_t, const uint8_t *), void *arg)
{
    int rc;

    meta_array_destroy(r->a);
    r->a = NULL;
    rc = meta_load(r->d, &r->root);
    if (rc == 0)
        rc = meta_array_create(r->d, META_MAP, &r->root, &r->a);
    if (rc == 0)
        rc = meta_array_load(r->a, r->root.map_pages, r->root.checkpoint, visit, arg);
    return rc;
}

/* Goal: Y1..Y4: after a crash at any write of a checkpoint the array is as the root in force says, in every page,
 * however many checkpoints failed in between.
 * Method: checkpoints that grow and rewrite; the power goes after a random number of writes, or a flush fails. */
static void
test_array_crashes(struct zt *t)
{
    static struct array_rig r;
    static struct model next;
    uint64_t top = 0; /* number of any checkpoint tried so far */

    array_rig_init(t, &r);
    for (int i = 0; i < 30; i++) {
        struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_forever = true};
        struct visit v = {.t = t, .m = &r.m};
        uint64_t old = r.root.sequence;
        int rc;

        if (zt_below(t, 3) == 0)
            plan.stop_after_writes = 1 + zt_below(t, 20);
        else if (zt_below(t, 2) == 0)
            plan.fail_nth[DEV_FLUSH] = 1 + zt_below(t, 2);
        dev_fault_set(r.d, &plan);
        top = ch_max_u64(top, meta_array_highest(r.a) + 1);
        rc = checkpoint(t, &r, zt_below(t, 8), &next);
        ZT_CHECK(t, rc == 0 || rc == COHORT_EIO);
        if (rc == 0 && zt_below(t, 2) == 0)
            continue; /* no crash: the next one builds on memory */
        sim_drive_crash(r.drive, ch_prng_next(&t->rng));
        dev_close(r.d);
        drive_open(t, r.drive, &no_fault, &r.d);
        ZT_OK(t, meta_load(r.d, &r.root));
        ZT_CHECK(t, r.root.sequence >= old);
        if (r.root.sequence > old)
            r.m = next;
        ZT_OK(t, array_reload(&r, visit_page, &v));
        ZT_CHECK(t, v.next == r.m.pages && meta_array_highest(r.a) >= r.root.checkpoint);
        /* Not the last one's: an extent that a failed checkpoint had added comes back with what that wrote. */
        ZT_CHECK(t, meta_array_highest(r.a) <= top);
        ZT_CHECK(t, meta_array_digest(r.a, 0) == r.root.digest[META_MAP]);
    }
    array_rig_fini(&r);
}

/* Where page k's slot stands on the drive; the extents are zones 1, 3, 5 ... */
static uint64_t
slot_place(uint64_t k, unsigned slot)
{
    uint64_t per_zone = meta_extent_pages(ZONE_BYTES);

    return ZONES_BASE + (2 * (k / per_zone) + 1) * ZONE_BYTES + (2 * (k % per_zone) + slot) * 4096;
}

/* Goal: damage of a page's current slot is an error, never the older page in silence (Y4); damage of the other slot
 * does no harm; both gone names the page. Payloads are not visited beyond an error of visit(). */
static void
test_array_damage(struct zt *t)
{
    static struct array_rig r;
    static struct model next;
    struct visit v = {.t = t, .m = &r.m};
    uint8_t slots[2][4096], saved[4096];
    uint64_t k;
    unsigned current;
    char name[32];

    array_rig_init(t, &r);
    for (int i = 0; i < 12; i++)
        ZT_OK(t, checkpoint(t, &r, i < 4 ? 5 : 0, &next));
    do {
        k = zt_below(t, r.m.pages);
        for (unsigned s = 0; s < 2; s++)
            sim_drive_peek(r.drive, slot_place(k, s), slots[s], 4096);
    } while (ch_get64(slots[0] + 16) == 0 || ch_get64(slots[1] + 16) == 0);
    current = ch_get64(slots[1] + 16) > ch_get64(slots[0] + 16);
    memcpy(saved, slots[!current], 4096);
    slots[0][zt_below(t, 4096)] ^= 4;
    slots[1][zt_below(t, 4096)] ^= 4;
    (void)snprintf(name, sizeof(name), "page %llu:", (unsigned long long)k);

    sim_drive_poke(r.drive, slot_place(k, !current), slots[!current], 4096);
    ZT_OK(t, array_reload(&r, visit_page, &v));
    sim_drive_poke(r.drive, slot_place(k, current), slots[current], 4096);
    ZT_STATUS(t, array_reload(&r, ignore_page, NULL), COHORT_EMAP);
    ZT_CHECK(t, strstr(ch_last_error()->text, name) != NULL);
    sim_drive_poke(r.drive, slot_place(k, !current), saved, 4096);
    ZT_STATUS(t, array_reload(&r, ignore_page, NULL), COHORT_EMAP);
    ZT_CHECK(t, strstr(ch_last_error()->text, name) != NULL);
    array_rig_fini(&r);
}

/* Goal: errors pass through: of the device, of visit(); a page count beyond the extents; no more extents. */
static void
test_array_errors(struct zt *t)
{
    static struct array_rig r;
    static struct model next;
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    struct visit v = {.t = t, .m = &r.m, .fail = COHORT_ENOMEM};

    array_rig_init(t, &r);
    ZT_OK(t, checkpoint(t, &r, 20, &next));
    ZT_STATUS(t, array_reload(&r, visit_page, &v), COHORT_ENOMEM);
    ZT_CHECK(t, v.next == 1);
    plan.fail_nth[DEV_READ] = 3;
    dev_fault_set(r.d, &plan);
    ZT_STATUS(t, array_reload(&r, ignore_page, NULL), COHORT_EIO);
    dev_fault_set(r.d, &no_fault);
    ZT_OK(t, array_reload(&r, ignore_page, NULL)); /* an array that did not load is of no use */
    plan.fail_nth[DEV_READ] = 0;
    plan.fail_nth[DEV_WRITE] = 1;
    dev_fault_set(r.d, &plan);
    ZT_STATUS(t, checkpoint(t, &r, 1, &next), COHORT_EIO);
    dev_fault_set(r.d, &no_fault);
    ZT_OK(t, array_reload(&r, ignore_page, NULL));
    ZT_CHECK(t, meta_array_capacity(r.a) == 24);
    ZT_STATUS(t, meta_array_load(r.a, 25, 1, ignore_page, NULL), COHORT_EMAP);
    while (r.root.extent_count < META_EXTENTS_MAX)
        ZT_OK(t, meta_array_extend(r.a, r.root.extent_count * 2 + 1, &r.root));
    ZT_STATUS(t, meta_array_extend(r.a, 999, &r.root), COHORT_EFULL);
    ZT_CHECK(t, meta_array_capacity(r.a) == META_EXTENTS_MAX * 8);
    ZT_CHECK(t, meta_array_memory(r.a) > meta_array_capacity(r.a));
    array_rig_fini(&r);
}

static const struct zt_case cases[] = {
    {"root_bytes", test_root_bytes, 10},
    {"root_refuses_nonsense", test_root_refuses_nonsense, 3},
    {"root_crashes", test_root_crashes, 40},
    {"root_orders_writes", test_root_orders_writes, 40},
    {"root_slots", test_root_slots, 1},
    {"root_old_ones_stay_away", test_root_old_ones_stay_away, 4},
    {"truncated_device", test_truncated_device, 1},
    {"array_crashes", test_array_crashes, 60},
    {"array_damage", test_array_damage, 30},
    {"array_errors", test_array_errors, 2},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "meta", cases, CH_ARRAY_LEN(cases));
}
