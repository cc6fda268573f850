/* buf_test_rig.h - what the tests of buf share: a cache over a real store and log on a simulated drive, and a model.
 *
 * Every page holds a counter, filler derived from (page, counter) and a checksum; the model knows each page's
 * counter. A change is logged as {page, counter}, as the layers above would.
 */
#ifndef CH_BUF_BUF_TEST_RIG_H
#define CH_BUF_BUF_TEST_RIG_H

#include "buf/buf_internal.h"
#include "dev/dev.h"
#include "page/page.h"
#include "wal/wal.h"
#include "zt/zt.h"

enum {
    PAGES_MAX = 4096,
    SLOTS_MAX = 1024,
    RECORD = 9, /* type; the log does not care */
    RECORD_BYTES = 16,
    TREE = 7,
};

struct slot {            /* a page of the model; changes under the page's X latch */
    _Atomic page_id pid; /* 0 = none; relaxed: checked again under the latch */
    uint64_t counter;
};

struct rig {
    struct zt *t;
    struct sim_drive *drive;
    struct dev *dev;
    struct store *store;
    struct wal *wal;
    struct buf *buf;
    struct buf_config cfg;
    struct slot slots[SLOTS_MAX];
    unsigned slot_count;
    _Atomic unsigned bad; /* findings of threads; relaxed, read after the join */
    _Atomic bool stop;    /* relaxed */
};

struct rig_options {
    const char *drive;
    unsigned frames;
    unsigned batch;
    unsigned zones;
    bool background;
    bool fault;
    bool deltas; /* written wherever they can be */
};

/* An empty store and cache; `t` fails on any error. */
void rig_open(struct rig *r, struct zt *t, const struct rig_options *o);
void rig_close(struct rig *r);
/* Stops and forgets the cache; what was not clean is gone. */
void rig_reopen_buf(struct rig *r);
void rig_open_buf(struct rig *r);
void body_fill(uint8_t *page, uint64_t counter);
/* A whole page of the model. */
bool body_good(const uint8_t *page, page_id pid);
uint64_t body_counter(const uint8_t *page);
page_id slot_pid(const struct slot *s);
/* The X-latched page of the slot gets its next counter, logged; `fresh`: its first. */
void change_latched(struct rig *r, struct buf_ref *ref, struct slot *s, bool fresh,
                    struct wal_ticket *ticket);
/* Log room for one change. */
CH_NODISCARD int page_reserve(struct rig *r, struct wal_ticket *ticket);
/* One operation as the layers above would do it: admission, log room, latch, record, change. */
CH_NODISCARD int page_change(struct rig *r, struct slot *s);
CH_NODISCARD int page_create(struct rig *r, struct slot *s);
CH_NODISCARD int page_end(struct rig *r, struct slot *s);
/* Any thread, any time: what a latched page shows is what the model says, or counts as bad. */
CH_NODISCARD int page_verify(struct rig *r, struct slot *s);
void fill_slots(struct rig *r, unsigned n);
/* Every page, and no finding so far. */
void verify_all(struct rig *r);
/* Cleans up to the log's end and cuts the log. */
CH_NODISCARD int checkpoint(struct rig *r);
/* Nothing runs: B1, F4, no latch held, no frame lost. */
void check_frames(struct rig *r);

#endif
