/* wal_test.c - the log with one thread: blocks, scans, crashes, damage, failures, room. */
#include "wal/wal_test_rig.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

#define DRIVE "generic,bytes=16M,superblock=1M,cache=volatile"

enum {
    RING = 64 * WAL_BLOCK,
    BUFFER = 16 * WAL_BLOCK,
    MODEL_MAX = 8192,
};

/* ---- the model: records since the cut, in order ---- */

struct model_record {
    lsn_t start, end; /* start: a lower bound */
    uint64_t serial;
    uint32_t bytes;
};
struct model {
    struct model_record *records;
    unsigned first, count; /* [first, count) are kept */
    unsigned acked;        /* [0, acked) were acknowledged */
    uint64_t serial;
};

static void
model_init(struct model *m)
{
    memset(m, 0, sizeof(*m));
    m->records = calloc(MODEL_MAX, sizeof(*m->records));
}

static int
model_append(struct rig *r, struct model *m, enum wal_class c, uint32_t bytes)
{
    struct model_record *rec = &m->records[m->count];
    int rc;

    if (m->count == MODEL_MAX)
        return COHORT_EFULL;
    rec->serial = ++m->serial;
    rec->bytes = bytes;
    rec->start = wal_end(r->wal);
    rc = rig_log(r->wal, c, rec->serial, bytes, &rec->end);
    if (rc == 0)
        m->count++;
    return rc;
}

/* Scans from `from`: records from index `i` on, in order; returns how many of the model were found up to the
 * tail, and the tail. */
static unsigned
model_scan(struct zt *t, struct rig *r, const struct model *m, lsn_t from, unsigned i, lsn_t *tail)
{
    struct wal_scan *s = NULL;
    struct wal_record rec;
    int rc;

    ZT_OK(t, rig_scan_open(r, from, &s));
    for (;;) {
        rc = wal_scan_next(s, &rec);
        if (rc != 0)
            break;
        ZT_CHECK(t, i < m->count);
        ZT_CHECK(t, rec.bytes == m->records[i].bytes);
        ZT_CHECK(t, ch_get64(rec.data) == m->records[i].serial && rig_payload_ok(&rec));
        ZT_CHECK(t, rec.start >= m->records[i].start && rec.end == m->records[i].end);
        ZT_CHECK(t, rec.start >= from && rec.start < rec.end);
        i++;
    }
    ZT_STATUS(t, rc, COHORT_NOTFOUND);
    ZT_STATUS(t, wal_scan_next(s, &rec), COHORT_NOTFOUND);
    *tail = wal_scan_tail(s);
    rig_scan_note(r, s);
    ZT_CHECK(t, *tail % WAL_BLOCK == 0 && *tail >= from);
    wal_scan_close(s);
    return i;
}

/* Moves the root's cut to a position at or above which record `keep` starts. */
static void
model_cut(struct zt *t, struct rig *r, struct model *m)
{
    lsn_t durable = wal_durable(r->wal);
    unsigned keep = m->first + (unsigned)zt_below(t, m->acked - m->first + 1);
    lsn_t cut;

    if (keep == m->first)
        return;
    cut =
        keep < m->acked && zt_below(t, 2) == 0 ? m->records[keep].start : m->records[keep - 1].end;
    if (cut > durable)
        cut = durable;
    m->first = keep;
    r->cut = cut;
    rig_truncate(r, cut);
    ZT_CHECK(t, wal_cut(r->wal) == cut);
}

static uint32_t
any_size(struct zt *t)
{
    switch (zt_below(t, 8)) {
    case 0:
        return 8 + (uint32_t)zt_below(t, 24000);
    case 1:
        return WAL_PAYLOAD - 32 + (uint32_t)zt_below(t, 64); /* about a block */
    case 2:
    case 3:
        return 8 + (uint32_t)zt_below(t, 4000);
    default:
        return 8 + (uint32_t)zt_below(t, 200);
    }
}

/* Goal: a block is accepted only as it was written, in its place.
 * Method: seal one, then change every byte in turn; change fields and seal again. */
static void
test_block_rejects_changes(struct zt *t)
{
    uint8_t block[WAL_BLOCK];
    struct wal_block b = {
        .lsn = 40960, .durable = 8192, .epoch = 7, .used = 1000, .first = 40, .db_id = 99};
    struct wal_block got;

    ch_prng_fill(&t->rng, block, sizeof(block));
    wal_block_seal(block, &b);
    ZT_CHECK(t, wal_block_parse(block, 99, &got));
    ZT_CHECK(t, got.lsn == b.lsn && got.durable == b.durable && got.epoch == 7 &&
                    got.used == 1000 && got.first == 40 && got.db_id == 99);
    ZT_CHECK(t, block[1000] == 0 && block[4095] == 0);
    ZT_CHECK(t, !wal_block_parse(block, 98, &got));
    for (unsigned i = 0; i < WAL_BLOCK; i++) {
        uint8_t bit = (uint8_t)(1u << zt_below(t, 8));

        block[i] ^= bit;
        ZT_CHECK(t, !wal_block_parse(block, 99, &got));
        block[i] ^= bit;
    }
    b.first = 1000; /* not inside of what is used */
    wal_block_seal(block, &b);
    ZT_CHECK(t, !wal_block_parse(block, 99, &got));
    b.first = 39;
    wal_block_seal(block, &b);
    ZT_CHECK(t, !wal_block_parse(block, 99, &got));
    b.first = 0;
    b.durable = 40961; /* nothing is durable beyond the block that is being written */
    wal_block_seal(block, &b);
    ZT_CHECK(t, !wal_block_parse(block, 99, &got));
    b.durable = 0;
    b.used = 40; /* blocks are never empty */
    wal_block_seal(block, &b);
    ZT_CHECK(t, !wal_block_parse(block, 99, &got));
}

/* Goal: what was appended is read back, all of it and nothing else, over many laps of ring and buffer.
 * Method: random appends, flushes and cuts against the model, a scan after each flush. */
static void
test_appends_read_back(struct zt *t)
{
    struct rig r;
    struct model m;
    lsn_t tail, before;

    rig_init(t, &r, DRIVE, RING, BUFFER + zt_below(t, 5) * WAL_BLOCK);
    model_init(&m);
    wal_set_full(r.wal, true); /* one thread: nobody would make room */
    for (int step = 0; step < 600; step++) {
        int rc = model_append(&r, &m, WAL_USER, any_size(t));

        ZT_CHECK(t, rc == 0 || rc == COHORT_EFULL);
        if (rc == 0 && zt_below(t, 3) != 0)
            continue;
        before = wal_end(r.wal);
        ZT_OK(t, wal_flush(r.wal, before));
        ZT_CHECK(t, wal_durable(r.wal) >= before && wal_durable(r.wal) == wal_end(r.wal));
        m.acked = m.count;
        ZT_CHECK(t, model_scan(t, &r, &m, r.cut, m.first, &tail) == m.count);
        ZT_CHECK(t, tail == wal_durable(r.wal));
        model_cut(t, &r, &m);
    }
    ZT_CHECK(t, wal_end(r.wal) > RIG_START + 2 * RING);
    free(m.records);
    rig_fini(&r);
}

/* Goal: a scan may start wherever the log can be cut, and nowhere else.
 * Method: every end, start, block start and end of log that ever was; then positions inside of records. */
static void
test_scan_starts(struct zt *t)
{
    struct rig r;
    struct model m;
    struct wal_scan *s = NULL;
    lsn_t tail;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    model_init(&m);
    for (int i = 0; i < 30; i++) {
        ZT_OK(t,
              model_append(&r, &m, WAL_SYSTEM, 8 + (uint32_t)zt_below(t, i % 7 == 0 ? 9000 : 900)));
        if (zt_below(t, 4) == 0)
            ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    }
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    for (unsigned i = 0; i < m.count; i++) {
        ZT_CHECK(t, model_scan(t, &r, &m, m.records[i].start, i, &tail) == m.count);
        ZT_CHECK(t, model_scan(t, &r, &m, m.records[i].end, i + 1, &tail) == m.count);
    }
    for (lsn_t lsn = RIG_START; lsn <= wal_durable(r.wal); lsn += WAL_BLOCK) {
        unsigned i = 0;

        while (i < m.count &&
               (m.records[i].end - m.records[i].bytes < lsn || m.records[i].start < lsn))
            i++;
        ZT_CHECK(t, model_scan(t, &r, &m, lsn, i, &tail) == m.count);
    }
    for (unsigned i = 0; i < m.count; i++) {
        lsn_t inside = m.records[i].end - 1 - zt_below(t, m.records[i].bytes);

        if (inside % WAL_BLOCK != 0 && inside > m.records[i].start + WAL_BLOCK_HEADER)
            ZT_STATUS(t, rig_scan_open(&r, inside, &s), COHORT_ELOG);
    }
    ZT_STATUS(t, rig_scan_open(&r, 17, &s), COHORT_ELOG);
    free(m.records);
    rig_fini(&r);
}

/* One life of the log until the power goes: in the middle of a flush, or between two. */
static void
live_and_crash(struct zt *t, struct rig *r, struct model *m)
{
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    unsigned steps = (unsigned)zt_below(t, 60);

    if (zt_below(t, 2) == 0)
        plan.stop_after_writes = 1 + zt_below(t, 20);
    else if (zt_below(t, 2) == 0)
        plan.fail_nth[DEV_FLUSH] = 1 + zt_below(t, 20);
    dev_fault_set(r->dev, &plan);
    wal_set_full(r->wal, true);
    for (unsigned i = 0; i < steps; i++) {
        int rc = model_append(r, m, WAL_USER, any_size(t));

        if (rc == COHORT_EFAILED)
            break;
        if (rc == 0 && zt_below(t, 3) != 0)
            continue;
        rc = wal_flush(r->wal, wal_end(r->wal));
        if (rc != 0)
            break;
        m->acked = m->count;
        if (zt_below(t, 2) == 0)
            model_cut(t, r, m);
    }
    rig_crash(t, r);
}

/* Goal: after any number of crashes the log is a prefix of what was appended, with all that was acknowledged,
 * and no record of a lost tail ever comes back.
 * Method: generations of append, crash, scan, go on in a new epoch, against the model. */
static void
test_crashes_keep_a_prefix(struct zt *t)
{
    struct rig r;
    struct model m;
    lsn_t tail;

    rig_init(t, &r, DRIVE, RING, BUFFER + zt_below(t, 5) * WAL_BLOCK);
    model_init(&m);
    for (int generation = 0; generation < 12; generation++) {
        unsigned found;

        live_and_crash(t, &r, &m);
        rig_dev_open(t, &r);
        found = model_scan(t, &r, &m, r.cut, m.first, &tail);
        ZT_CHECK(t, found >= m.acked);
        m.count = m.acked = found;
        rig_next_epoch(t, &r, tail);
        ZT_CHECK(t, model_scan(t, &r, &m, r.cut, m.first, &tail) == found && tail == r.epoch_start);
    }
    free(m.records);
    rig_fini(&r);
}

static void
damage(struct zt *t, struct rig *r, lsn_t lsn)
{
    uint64_t off = rig_offset(r, lsn) + zt_below(t, WAL_BLOCK);
    uint8_t b;

    sim_drive_peek(r->drive, off, &b, 1);
    b ^= 0x10;
    sim_drive_poke(r->drive, off, &b, 1);
}

/* Scans to the end; returns the status and how many records came before. */
static int
scan_status(struct rig *r, lsn_t from, unsigned *records)
{
    struct wal_scan *s = NULL;
    struct wal_record rec;
    int rc = rig_scan_open(r, from, &s);

    *records = 0;
    while (rc == 0) {
        rc = wal_scan_next(s, &rec);
        if (rc == 0)
            (*records)++;
    }
    wal_scan_close(s);
    return rc;
}

/* Goal: R10: a bad block that was acknowledged is damage; one that may be torn is the tail.
 * Method: flushes of three blocks; damage one, and expect by which flush it belongs to. */
static void
test_damage_is_told_from_tail(struct zt *t)
{
    enum {
        FLUSHES = 8,
        BLOCKS = 3
    };
    struct rig r;
    lsn_t end = 0, bad;
    unsigned records;
    int rc;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    for (int i = 0; i < FLUSHES; i++) {
        ZT_OK(t, rig_log(r.wal, WAL_USER, (uint64_t)i, 9000, &end));
        ZT_OK(t, wal_flush(r.wal, end));
    }
    ZT_CHECK(t, wal_durable(r.wal) == RIG_START + FLUSHES * BLOCKS * WAL_BLOCK);
    bad = RIG_START + zt_below(t, FLUSHES * BLOCKS) * WAL_BLOCK;
    damage(t, &r, bad);
    rc = scan_status(&r, RIG_START, &records);
    ZT_CHECK(t, records == (bad - RIG_START) / (BLOCKS * WAL_BLOCK));
    if (bad < RIG_START + (FLUSHES - 1) * BLOCKS * WAL_BLOCK)
        ZT_STATUS(t, rc, COHORT_ELOG);
    else
        ZT_STATUS(t, rc, COHORT_NOTFOUND);
    if (rc == COHORT_ELOG) {
        char lsn[32];

        (void)snprintf(lsn, sizeof(lsn), "LSN %llu,", (unsigned long long)bad);
        ZT_CHECK(t, strstr(ch_last_error()->text, lsn) != NULL); /* names the position */
    }
    r.epoch_start = RIG_START + FLUSHES * BLOCKS * WAL_BLOCK; /* a recovery saw all of them */
    r.epoch = 2;
    ZT_STATUS(t, scan_status(&r, RIG_START, &records), COHORT_ELOG);
    rig_fini(&r);
}

/* Goal: an old root over a newer log is refused (R16), and so is a cut whose block is gone.
 * Method: two laps of the ring, then scans from positions of the first; damage where the log is cut. */
static void
test_wrong_start_is_damage(struct zt *t)
{
    struct rig r;
    lsn_t end = 0, middle = 0;
    lsn_t old =
        RIG_SEGMENT == 0 ? 0 : RIG_START + 3 * WAL_BLOCK; /* of a root: never the first LSN */
    unsigned records;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    for (uint64_t i = 0; wal_end(r.wal) < RIG_START + 2 * RING + RING / 2; i++) {
        if (i % 3 == 0)
            middle = end;
        ZT_OK(t, rig_log(r.wal, WAL_USER, i, 3000, &end));
        ZT_OK(t, wal_flush(r.wal, end));
        rig_truncate(&r, wal_durable(r.wal));
    }
    ZT_STATUS(t, scan_status(&r, old, &records), COHORT_ELOG);
    ZT_CHECK(t, records == 0);
    ZT_STATUS(t, scan_status(&r, RIG_START + RING / 4, &records), COHORT_ELOG);
    ZT_STATUS(t, scan_status(&r, wal_durable(r.wal), &records), COHORT_NOTFOUND);
    ZT_CHECK(t, middle % WAL_BLOCK != 0);
    ZT_STATUS(t, scan_status(&r, middle, &records), COHORT_NOTFOUND);
    ZT_CHECK(t, records > 0);
    damage(t, &r, wal_block_of(middle));
    ZT_STATUS(t, scan_status(&r, middle, &records), COHORT_ELOG);
    ZT_STATUS(t, scan_status(&r, wal_durable(r.wal) + WAL_BLOCK + 100, &records), COHORT_ELOG);
    rig_fini(&r);
}

/* Goal: C3: a record that the tail cuts off is dropped, and stays dropped when the next epoch goes on behind its
 * first blocks.
 * Method: damage the second of three blocks of an unacknowledged record; write on; scan. */
static void
test_cut_off_record_is_dropped(struct zt *t)
{
    struct rig r;
    struct model m;
    uint8_t whole[WAL_BLOCK];
    lsn_t tail;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    model_init(&m);
    ZT_OK(t, model_append(&r, &m, WAL_USER, 100));
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_OK(t, model_append(&r, &m, WAL_USER, 9000));
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    sim_drive_peek(r.drive, rig_offset(&r, RIG_START + 2 * WAL_BLOCK), whole, sizeof(whole));
    damage(t, &r, RIG_START + 2 * WAL_BLOCK);
    rig_crash(t, &r);
    rig_dev_open(t, &r);
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) == 1);
    ZT_CHECK(t,
             tail == RIG_START + 2 * WAL_BLOCK); /* behind the good block that begins the record */
    m.count = 1;
    rig_next_epoch(t, &r, tail);
    sim_drive_poke(r.drive, rig_offset(&r, RIG_START + 2 * WAL_BLOCK), whole, sizeof(whole));
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) ==
                    1); /* even if the bad block reads well again */
    ZT_CHECK(t, tail == RIG_START + 2 * WAL_BLOCK);
    ZT_OK(t,
          model_append(&r, &m, WAL_USER, 500)); /* leaves the old third block beyond the new tail */
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) == 2);
    ZT_CHECK(t, tail == RIG_START + 3 * WAL_BLOCK);
    free(m.records);
    rig_fini(&r);
}

/* Goal: C5: a scan that read the place of the tail before new blocks came does not take them for damage.
 * Method: begin a scan, so that its chunk holds the old tail; write two groups there; go on scanning. */
static void
test_scan_beside_writer(struct zt *t)
{
    struct rig r;
    struct model m;
    struct wal_scan *s = NULL;
    struct wal_record rec;
    lsn_t tail;
    unsigned n = 0;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    model_init(&m);
    for (int i = 0; i < 3; i++)
        ZT_OK(t, model_append(&r, &m, WAL_USER, 3000));
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    rig_crash(t, &r);
    rig_dev_open(t, &r);
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) == 3);
    rig_next_epoch(t, &r, tail);
    ZT_OK(t, rig_scan_open(&r, RIG_START, &s));
    ZT_OK(t, wal_scan_next(s, &rec));
    for (int i = 0; i < 2; i++) {
        ZT_OK(t, model_append(&r, &m, WAL_USER, 5000));
        ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    }
    while (wal_scan_next(s, &rec) == 0)
        n++;
    ZT_CHECK(t, n == 4 && ch_get64(rec.data) == m.serial);
    ZT_CHECK(t, wal_scan_tail(s) == wal_durable(r.wal));
    wal_scan_close(s);
    free(m.records);
    rig_fini(&r);
}

/* Goal: the first failed write or flush ends the log, with its text, whatever works afterwards. */
static void
test_failure_is_sticky(struct zt *t)
{
    struct dev_fault_plan plan = {.code = COHORT_EIO};
    struct dev_fault_plan none = {0};
    struct rig r;
    struct wal_ticket held = {0}, ticket = {0};
    char first_failure[64];
    lsn_t end = 0, durable;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, 1000, &held));
    ZT_OK(t, rig_log(r.wal, WAL_USER, 1, 100, &end));
    ZT_OK(t, wal_flush(r.wal, end));
    durable = wal_durable(r.wal);
    (void)snprintf(first_failure, sizeof(first_failure),
                   "log write at LSN %llu: ", (unsigned long long)durable);
    plan.fail_nth[zt_below(t, 2) == 0 ? DEV_WRITE : DEV_FLUSH] = 1;
    dev_fault_set(r.dev, &plan);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 2, 100, &end));
    ZT_CHECK(t, !wal_failed(r.wal));
    ZT_STATUS(t, wal_flush(r.wal, end), COHORT_EFAILED);
    ZT_CHECK(t, strstr(ch_last_error()->text, first_failure) != NULL);
    ZT_CHECK(t, strlen(ch_last_error()->text) > strlen(first_failure));
    dev_fault_set(r.dev, &none); /* the device works again; the log must not believe it */
    ZT_STATUS(t, wal_flush(r.wal, end), COHORT_EFAILED);
    ZT_CHECK(t, strstr(ch_last_error()->text, first_failure) != NULL);
    ZT_STATUS(t, wal_flush(r.wal, 10), COHORT_EFAILED);
    ZT_STATUS(t, wal_flush_force(r.wal), COHORT_EFAILED);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_SYSTEM, 100, &ticket), COHORT_EFAILED);
    ZT_CHECK(t, wal_failed(r.wal) && wal_durable(r.wal) == durable);
    ZT_CHECK(t, dev_fault_seen(r.dev, DEV_WRITE) == 0 && dev_fault_seen(r.dev, DEV_FLUSH) == 0);
    (void)rig_append(r.wal, &held, 3, 500, CH_WAL); /* what was granted still fits (W6) */
    wal_release(r.wal, &held);
    rig_fini(&r);
}

/* Goal: every byte of the device has its cause: META is the META records, WAL the rest, padding included. */
static void
test_causes_are_counted(struct zt *t)
{
    struct rig r;
    struct wal_ticket ticket;
    struct wal_counts c;
    struct dev_counts d;
    uint64_t meta = 0;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    for (int i = 0; i < 300; i++) {
        uint32_t bytes = 8 + (uint32_t)zt_below(t, 9000);
        bool is_meta = zt_below(t, 3) == 0;

        ZT_OK(t, wal_reserve(r.wal, WAL_SYSTEM, bytes + WAL_RECORD_HEADER, &ticket));
        (void)rig_append(r.wal, &ticket, (uint64_t)i, bytes, is_meta ? CH_META : CH_WAL);
        wal_release(r.wal, &ticket);
        meta += is_meta ? bytes + WAL_RECORD_HEADER : 0;
        if (zt_below(t, 4) != 0)
            continue;
        ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
        wal_counts(r.wal, &c);
        dev_counts(r.dev, &d);
        ZT_CHECK(t, d.written[CH_META] == meta && c.record_bytes[CH_META] == meta);
        ZT_CHECK(t, d.written[CH_META] + d.written[CH_WAL] == wal_durable(r.wal) - RIG_START);
        ZT_CHECK(t, c.records == (uint64_t)i + 1 && c.flushes == d.flushes);
        ZT_CHECK(t, c.record_bytes[CH_META] + c.record_bytes[CH_WAL] + c.padding_bytes +
                            (wal_durable(r.wal) - RIG_START) / WAL_BLOCK * WAL_BLOCK_HEADER ==
                        wal_durable(r.wal) - RIG_START);
        rig_truncate(&r, wal_durable(r.wal));
    }
    rig_fini(&r);
}

/* Goal: wal_flush() of what is durable costs nothing; wal_flush_force() always flushes the device. */
static void
test_force_flushes(struct zt *t)
{
    struct rig r;
    lsn_t end = 0;
    uint64_t ticket;

    rig_init(t, &r, DRIVE, RING, BUFFER);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 1, 100, &end));
    ZT_OK(t, wal_flush(r.wal, end));
    ZT_OK(t, wal_flush(r.wal, end));
    ZT_CHECK(t, dev_fault_seen(r.dev, DEV_FLUSH) == 1);
    ticket = dev_flush_ticket(r.dev);
    ZT_CHECK(t, dev_flush_done(r.dev) < ticket);
    ZT_OK(t, wal_flush_force(r.wal));
    ZT_CHECK(t, dev_flush_done(r.dev) >= ticket);
    ZT_CHECK(t, dev_fault_seen(r.dev, DEV_FLUSH) == 2 && dev_fault_seen(r.dev, DEV_WRITE) == 1);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 2, 100, &end));
    ZT_OK(t, wal_flush_force(r.wal)); /* takes what has gathered along */
    ZT_CHECK(t, wal_durable(r.wal) >= end);
    rig_fini(&r);
}

static void
cut_nothing(void *arg)
{
    (void)arg;
}

/* Goal: each class has its limit, what never fits is refused, and full users do not wait. */
static void
test_room_limits(struct zt *t)
{
    struct rig r;
    struct wal_ticket a = {0}, b = {0};
    uint64_t used, size;
    lsn_t end = 0;
    uint64_t n = 0;

    rig_init(t, &r, DRIVE, RING, RING);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_USER, RING, &a), COHORT_EBATCHSIZE);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_SYSTEM, RING, &a), COHORT_EBATCHSIZE);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_USER, RING * 3 / 4, &a), COHORT_EBATCHSIZE);
    ZT_CHECK(t, a.bytes == 0);
    wal_release(r.wal, &a);
    wal_set_full(r.wal, true);
    while (rig_log(r.wal, WAL_USER, n, 2000, &end) == 0) {
        ZT_OK(t, wal_flush(r.wal, end));
        n++;
    }
    ZT_STATUS(t, wal_reserve(r.wal, WAL_USER, 100, &a), COHORT_EFULL);
    wal_usage(r.wal, &used, &size);
    ZT_CHECK(t, size == RING && used <= RING * 3 / 4 && used > RING * 3 / 4 - 4 * WAL_BLOCK);
    ZT_CHECK(t, wal_pressure(r.wal, 60, 0) && !wal_pressure(r.wal, 80, 0));
    ZT_OK(t, wal_reserve(r.wal, WAL_SYSTEM, 5 * WAL_PAYLOAD, &b)); /* the rest is the system's */
    wal_release(r.wal, &b);
    for (n = 0; n < 6; n++) { /* ... nearly all of it */
        ZT_OK(t, rig_log(r.wal, WAL_SYSTEM, n, 4000, &end));
        ZT_OK(t, wal_flush(r.wal, end));
    }
    rig_truncate(&r, wal_durable(r.wal));
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, 100, &a));
    wal_usage(r.wal, &used, &size);
    ZT_CHECK(t, used == 3 * WAL_BLOCK); /* its bytes' block, and two against padding */
    wal_release(r.wal, &a);
    wal_usage(r.wal, &used, &size);
    ZT_CHECK(t, used == 0);
    ZT_OK(t, wal_reserve(r.wal, WAL_USER, 100, &a));
    (void)rig_append(r.wal, &a, 1, 100 - WAL_RECORD_HEADER, CH_WAL);
    wal_usage(r.wal, &used, &size);
    ZT_CHECK(t,
             a.pads == 0 && used == 2 * WAL_BLOCK); /* used up: what is active, and its padding */
    rig_fini(&r);
}

/* Fills the ring by records of that class, each flushed, until one is refused. Returns the blocks in use. */
static uint64_t
fill_class(struct zt *t, struct rig *r, enum wal_class c)
{
    uint64_t used, size;
    lsn_t end = 0;
    int rc;

    for (uint64_t n = 0; (rc = rig_log(r->wal, c, n, 2000, &end)) == 0; n++)
        ZT_OK(t, wal_flush(r->wal, end));
    ZT_CHECK(t, rc == COHORT_EFULL);
    wal_usage(r->wal, &used, &size);
    return used / WAL_BLOCK;
}

/* Goal: a full log has room for each class beyond what the ones before it may take, and last for recovery, of which nobody else gets
 * any. */
static void
test_room_classes(struct zt *t)
{
    enum {
        BLOCKS = 128
    };
    struct rig r;
    struct wal_ticket a = {0};
    uint64_t used, before = 0;

    rig_init(t, &r, DRIVE, BLOCKS * WAL_BLOCK, BUFFER);
    wal_set_full(r.wal, true);
    for (enum wal_class c = WAL_USER; c <= WAL_SYSTEM; c++) {
        used = fill_class(t, &r, c);
        ZT_CHECK(t, used >= before + 3);
        before = used;
    }
    ZT_CHECK(t, before <= BLOCKS - BLOCKS / 16);
    wal_set_recovering(r.wal, true);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_MAP, 100, &a), COHORT_EFULL);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_USER, 100, &a), COHORT_EFULL);
    used = fill_class(t, &r, WAL_SYSTEM);
    ZT_CHECK(t, used >= before + BLOCKS / 16 && used < BLOCKS);
    wal_set_recovering(r.wal, false);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_SYSTEM, 100, &a), COHORT_EFULL);
    rig_fini(&r);
}

/* Goal: W3, W4: whatever was granted can be appended, in as many records as tickets pay for and with flushes
 * anywhere between, and never overwrites what is not cut. The asserts of wal_append() watch.
 * Method: several tickets at once, two records each, random flushes and cuts; reserve until refused. */
static void
test_grants_hold(struct zt *t)
{
    enum {
        TICKETS = 6
    };
    struct rig r;
    struct wal_ticket tickets[TICKETS] = {{0}};
    unsigned left[TICKETS] = {0};
    uint64_t serial = 0, used, size, held = 0, refused = 0;
    unsigned records;

    rig_init(t, &r, DRIVE, 24 * WAL_BLOCK, BUFFER + zt_below(t, 20) * WAL_BLOCK);
    wal_set_full(r.wal, true);
    for (int step = 0; step < 3000; step++) {
        unsigned i = (unsigned)zt_below(t, TICKETS);
        uint32_t bytes = 16 + (uint32_t)zt_below(t, zt_below(t, 4) == 0 ? 9000 : 300);

        if (left[i] == 0 && held + bytes < r.buffer_bytes / 4) {
            int rc = wal_reserve(r.wal, WAL_USER, 2 * (bytes + WAL_RECORD_HEADER), &tickets[i]);

            ZT_CHECK(t, rc == 0 || rc == COHORT_EFULL);
            refused += rc != 0;
            left[i] = rc == 0 ? 2 : 0;
            held += rc == 0 ? tickets[i].bytes : 0;
        } else if (left[i] > 0) {
            uint64_t half = tickets[i].bytes / left[i];

            (void)rig_append(r.wal, &tickets[i], ++serial, (uint32_t)half - WAL_RECORD_HEADER,
                             CH_WAL);
            held -= half;
            if (--left[i] == 0)
                wal_release(r.wal, &tickets[i]);
        }
        if (zt_below(t, 3) == 0)
            ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
        wal_usage(r.wal, &used, &size);
        ZT_CHECK(t, used <= size * 3 / 4);
        if (zt_below(t, 40) == 0 || (refused > 0 && held == 0)) {
            refused = 0;
            r.cut = wal_durable(r.wal);
            rig_truncate(&r, r.cut);
        } else if (zt_below(t, 20) == 0) {
            ZT_STATUS(t, scan_status(&r, r.cut, &records), COHORT_NOTFOUND);
        }
    }
    ZT_CHECK(t, serial > 200);
    for (unsigned i = 0; i < TICKETS; i++)
        wal_release(r.wal, &tickets[i]);
    rig_fini(&r);
}

/* Tickets in stripes. The log has granted these, and what `held` has, and no more. */
static uint32_t
pool_check(struct zt *t, const struct rig *r, const struct wal_ticket *held)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < WAL_POOL_STRIPES; i++)
        n += atomic_load_explicit(&r->wal->stripes[i].tickets, memory_order_relaxed);
    ZT_CHECK(t, r->wal->granted == n * WAL_POOL_BYTES + held->bytes + held->spare);
    ZT_CHECK(t, r->wal->pads == n * WAL_TICKET_PADS + held->pads);
    ZT_CHECK(t, r->wal->pooled == n + (held->pooled ? 1 : 0) && r->wal->pooled <= r->wal->pool_max);
    return n;
}

/* A reservation that takes no lock: it would be taken twice, which rt asserts against. */
static void
reserve_unlocked(struct zt *t, struct rig *r, enum wal_class c, uint64_t bytes,
                 struct wal_ticket *ticket)
{
    rt_lock(&r->wal->lock);
    ZT_OK(t, wal_reserve(r->wal, c, bytes, ticket));
    rt_unlock(&r->wal->lock);
    ZT_CHECK(t, ticket->pooled && ticket->bytes == bytes);
}

/* Goal: W7: small reservations are served from tickets granted before, which hold what they are worth until they are used up,
 * released or taken back, however that comes about, and are in nobody's way.
 * Method: the log's counts after each way for a ticket to end, and after each reason to take tickets back. */
static void
test_pool(struct zt *t)
{
    const struct wal_ticket none = {0};
    struct wal_ticket a = {0}, once = {.once = true};
    struct dev_fault_plan plan = {.code = COHORT_EIO, .fail_nth[DEV_WRITE] = 1};
    uint64_t used, size;
    lsn_t end = 0;
    struct rig r;

    rig_init(t, &r, DRIVE, 512 * WAL_BLOCK, 128 * WAL_BLOCK);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 1, 100, &end)); /* fills our stripe */
    ZT_CHECK(t, pool_check(t, &r, &none) == WAL_POOL_EACH);
    reserve_unlocked(t, &r, WAL_USER, 300 + WAL_RECORD_HEADER,
                     &once); /* used by less than it has */
    ZT_CHECK(t, pool_check(t, &r, &once) == WAL_POOL_EACH - 1);
    (void)rig_append(r.wal, &once, 2, 200, CH_WAL);
    (void)pool_check(t, &r, &none);
    reserve_unlocked(t, &r, WAL_SHRINK, 200 + 2 * WAL_RECORD_HEADER, &a); /* used up by two */
    (void)rig_append(r.wal, &a, 3, 100, CH_WAL);
    (void)pool_check(t, &r, &a);
    ZT_CHECK(t, a.pooled && a.bytes == 100 + WAL_RECORD_HEADER);
    (void)rig_append(r.wal, &a, 4, 100, CH_WAL);
    ZT_CHECK(t, !a.pooled && a.bytes == 0 && a.pads == 0 && a.spare == 0);
    (void)pool_check(t, &r, &none);
    reserve_unlocked(t, &r, WAL_USER, WAL_POOL_BYTES, &a); /* released */
    wal_release(r.wal, &a);
    (void)pool_check(t, &r, &none);

    wal_usage(r.wal, &used, &size);
    ZT_CHECK(t, used == 2 * WAL_BLOCK && pool_check(t, &r, &none) == 0);
    for (int how = 0; how < 4; how++) { /* with reasons to have none, there is none */
        ZT_OK(t, rig_log(r.wal, WAL_USER, 5, 100, &end));
        ZT_CHECK(t, pool_check(t, &r, &none) == WAL_POOL_EACH);
        if (how == 0)
            wal_set_full(r.wal, true);
        else if (how == 1)
            wal_set_recovering(r.wal, true);
        else if (how == 2)
            wal_set_cutter(r.wal, cut_nothing, NULL);
        else
            ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
        ZT_CHECK(t, (pool_check(t, &r, &none) == 0) == (how < 3));
        if (how < 3)
            ZT_OK(t, rig_log(r.wal, WAL_USER, 6, 100, &end));
        ZT_CHECK(t, (pool_check(t, &r, &none) == 0) == (how < 3));
        wal_set_full(r.wal, false);
        wal_set_recovering(r.wal, false);
        wal_set_cutter(r.wal, NULL, NULL);
    }
    wal_usage(r.wal, &used, &size);
    r.wal->waiters = 1; /* nor while somebody waits */
    ZT_OK(t, rig_log(r.wal, WAL_USER, 7, 100, &end));
    ZT_CHECK(t, pool_check(t, &r, &none) == 0);
    r.wal->waiters = 0;
    ZT_OK(t, rig_log(r.wal, WAL_USER, 7, 100, &end));
    ZT_OK(t, wal_flush(r.wal, end));
    ZT_CHECK(t, pool_check(t, &r, &none) > 0);
    /* All of the buffer: would wait for ever if the pool kept its part. */
    ZT_OK(t, wal_reserve(r.wal, WAL_SYSTEM, 127 * WAL_PAYLOAD, &a));
    ZT_CHECK(t, pool_check(t, &r, &a) == 0);
    wal_release(r.wal, &a);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 8, 100, &end));
    ZT_CHECK(t, pool_check(t, &r, &none) > 0);
    dev_fault_set(r.dev, &plan);
    ZT_STATUS(t, wal_flush(r.wal, end), COHORT_EFAILED);
    ZT_STATUS(t, wal_reserve(r.wal, WAL_USER, 100, &a), COHORT_EFAILED);
    ZT_CHECK(t, pool_check(t, &r, &none) == 0);
    rig_fini(&r);
}

/* Goal: the pool ends where room gets short, well before anybody would have to wait. */
static void
test_pool_ends(struct zt *t)
{
    const struct wal_ticket none = {0};
    uint64_t blocks = 0;
    bool short_of = false;
    lsn_t end = 0;
    struct rig r;

    rig_init(t, &r, DRIVE, 512 * WAL_BLOCK, 128 * WAL_BLOCK);
    while (blocks < 370) {
        ZT_OK(t, rig_log(r.wal, WAL_USER, 1, 3000, &end));
        if (zt_below(t, 3) == 0)
            ZT_OK(t, wal_flush(r.wal, end));
        blocks = wal_ring_blocks_used(r.wal, 0, 0);
        short_of = blocks > 300 || wal_buf_blocks_used(r.wal, 0) > 110;
        if (short_of && zt_below(t, 2) == 0)
            wal_pool_drain(r.wal); /* no lock: alone */
        ZT_CHECK(t, !short_of || pool_check(t, &r, &none) <= WAL_POOL_EACH);
    }
    wal_pool_drain(r.wal);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 2, 100, &end));
    ZT_CHECK(t, pool_check(t, &r, &none) == 0);
    rig_fini(&r);
    rig_init(t, &r, DRIVE, WAL_RING_BLOCKS_MIN * WAL_BLOCK, WAL_BUFFER_BYTES_MIN);
    ZT_OK(t, rig_log(r.wal, WAL_USER, 1, 100, &end));
    ZT_CHECK(t, pool_check(t, &r, &none) == 0); /* too small for one */
    rig_fini(&r);
}

/* Goal: the largest record goes through, and its size is the only thing that bounds it. */
static void
test_largest_record(struct zt *t)
{
    struct rig r;
    struct model m;
    lsn_t tail;

    rig_init(t, &r, DRIVE, 8 << 20, 4 << 20);
    model_init(&m);
    for (int i = 0; i < 3; i++)
        ZT_OK(t, model_append(&r, &m, WAL_USER, WAL_RECORD_MAX));
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) == 3);
    ZT_CHECK(t, wal_memory(r.wal) >= 4 << 20);
    free(m.records);
    rig_fini(&r);
}

/* Goal: a zone that can't be had ahead of need is asked for again; at the last moment its lack ends the log, and nothing that was
 * acknowledged is lost.
 * Method: no zones from the middle of a segment on; appends until the log fails. */
static void
test_no_zone(struct zt *t)
{
    struct rig r;
    struct model m;
    lsn_t last = (lsn_t)RIG_START + RIG_SEGMENT - WAL_BLOCK; /* block of the first segment */
    lsn_t tail;
    int rc = 0;

    if (RIG_SEGMENT == 0)
        return;
    rig_init(t, &r, DRIVE, RING, BUFFER);
    model_init(&m);
    ZT_OK(t, model_append(&r, &m, WAL_USER, 100));
    ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    ZT_CHECK(t, wal_segment_count(r.wal) == 1);
    r.no_zone = true;
    while (wal_durable(r.wal) != last) {
        ZT_OK(t, model_append(&r, &m, WAL_USER, 100));
        ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
    }
    ZT_CHECK(t, wal_segment_count(r.wal) == 1);
    if (zt_below(t, 2) == 0) {
        r.no_zone = false;
        ZT_OK(t, model_append(&r, &m, WAL_USER, 100));
        ZT_OK(t, wal_flush(r.wal, wal_end(r.wal)));
        ZT_CHECK(t, wal_segment_count(r.wal) == 2);
        m.acked = m.count;
    } else {
        m.acked = m.count;
        ZT_OK(t, model_append(&r, &m, WAL_USER, 100));
        rc = wal_flush(r.wal, wal_end(r.wal));
        ZT_STATUS(t, rc, COHORT_EFAILED);
        ZT_CHECK(t, wal_failed(r.wal));
        m.count = m.acked;
    }
    ZT_CHECK(t, model_scan(t, &r, &m, RIG_START, 0, &tail) == m.acked);
    free(m.records);
    rig_fini(&r);
}

static const struct zt_case cases[] = {
    {"block_rejects_changes", test_block_rejects_changes, 3},
    {"appends_read_back", test_appends_read_back, 20},
    {"scan_starts", test_scan_starts, 20},
    {"crashes_keep_a_prefix", test_crashes_keep_a_prefix, 100},
    {"damage_is_told_from_tail", test_damage_is_told_from_tail, 60},
    {"wrong_start_is_damage", test_wrong_start_is_damage, 5},
    {"cut_off_record_is_dropped", test_cut_off_record_is_dropped, 5},
    {"scan_beside_writer", test_scan_beside_writer, 3},
    {"failure_is_sticky", test_failure_is_sticky, 8},
    {"causes_are_counted", test_causes_are_counted, 10},
    {"force_flushes", test_force_flushes, 1},
    {"room_limits", test_room_limits, 1},
    {"room_classes", test_room_classes, 1},
    {"grants_hold", test_grants_hold, 30},
    {"pool", test_pool, 1},
    {"pool_ends", test_pool_ends, 3},
    {"largest_record", test_largest_record, 1},
    {"no_zone", test_no_zone, 6},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "wal", cases, CH_ARRAY_LEN(cases));
}
