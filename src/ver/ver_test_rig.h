/* ver_test_rig.h - keys and values of the tests, and short ways to write. */
#ifndef CH_VER_VER_TEST_RIG_H
#define CH_VER_VER_TEST_RIG_H

#include <inttypes.h>
#include <stdio.h>

#include "ver/ver.h"
#include "zt/zt.h"

enum {
    RIG_KEY = 16
};

static inline struct ver_key
rig_key(uint32_t tree, unsigned i, char *text)
{
    (void)snprintf(text, RIG_KEY, "key%06u", i);
    return (struct ver_key){.tree = tree, .bytes = strlen(text), .data = text};
}

/* A value is a function of its number; short and long ones. Returns its length. */
static inline size_t
rig_value(uint32_t number, uint8_t *out)
{
    return zt_value(number, number % 7, number % 3 == 0 ? 1000 : 60, out);
}

static inline bool
rig_value_is(uint32_t number, const void *data, size_t bytes)
{
    uint8_t want[VER_VALUE_MAX];

    return bytes == rig_value(number, want) && memcmp(data, want, bytes) == 0;
}

/* A store without versions and without much room for trouble: LSNs from 1000 on. */
static inline struct ver *
rig_ver(struct zt *t, uint64_t bytes_max)
{
    struct ver_config cfg = {
        .bytes_max = bytes_max, .slots_max = 70, .horizon = 1000, .next_id = 1};
    struct ver *v = NULL;

    ZT_OK(t, ver_create(&cfg, &v));
    return v;
}

/* A record's change by `w`: an entry that restores `before` (0 = absent), written at `lsn`. */
static inline struct ver_entry *
rig_push(struct zt *t, struct ver *v, struct ver_txn *w, struct ver_key key, uint32_t before,
         lsn_t lsn)
{
    uint8_t image[VER_VALUE_MAX];
    size_t bytes = before != 0 ? rig_value(before, image) : 0;
    struct ver_entry *e =
        ver_entry_create(v, w, key, before != 0 ? VER_WAS_VALUE : VER_WAS_ABSENT, 0, image, bytes);

    ZT_CHECK(t, e != NULL);
    ver_entry_push(v, e, lsn, false);
    return e;
}

static inline void
rig_lock(struct zt *t, struct ver *v, struct ver_txn *w, struct ver_key key)
{
    struct ver_entry *e = ver_entry_create(v, w, key, VER_WAS_LOCK, 0, NULL, 0);

    ZT_CHECK(t, e != NULL);
    ver_entry_push(v, e, 0, false);
}

static inline void
rig_commit(struct ver *v, struct ver_txn *w, lsn_t lsn, bool durable)
{
    ver_commit_lock(v);
    ver_commit_end(v, w, lsn, durable);
}

/* One change that is a transaction of its own, committed at `lsn`. */
static inline void
rig_single(struct zt *t, struct ver *v, struct ver_key key, uint32_t before, lsn_t lsn)
{
    uint8_t image[VER_VALUE_MAX];
    const struct ver_own own = {
        .key = key,
        .kind = before != 0 ? VER_WAS_VALUE : VER_WAS_ABSENT,
        .before = image,
        .before_bytes = before != 0 ? rig_value(before, image) : 0,
    };

    ver_commit_lock(v);
    ZT_OK(t, ver_own_begin(v, &own));
    ver_own_end(v, &own, lsn, false);
}

/* A transaction that writes: a view with a writer. */
struct rig_txn {
    struct ver_view view;
    struct ver_txn *w;
};

static inline void
rig_begin(struct zt *t, struct ver *v, struct rig_txn *x, lsn_t first)
{
    ZT_OK(t, ver_view_open(v, &x->view));
    ZT_OK(t, ver_txn_create(v, ver_new_id(v), x, x->view.slot, first, &x->w));
    x->view.self = x->w;
}

static inline void
rig_close(struct ver *v, struct rig_txn *x)
{
    ver_unregister(v, x->view.slot);
    ver_view_close(v, &x->view);
}

static inline void
rig_abort(struct ver *v, struct rig_txn *x)
{
    for (struct ver_entry *e = ver_newest(x->w); e != NULL; e = ver_newest(x->w))
        ver_entry_pop(v, e);
    ver_abort_end(v, x->w);
    rig_close(v, x);
}

#endif
