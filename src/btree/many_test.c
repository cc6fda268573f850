/* many_test.c - many keys at once, and estimates, against the model. */
#include <stdlib.h>

#include "btree/btree_test_rig.h"
#include "btree/tree.h"

enum {
    ASKED_MAX = 600
};

struct asked {
    struct zt *t;
    const struct keys *k;
    const unsigned *which;
    uint32_t version[ASKED_MAX]; /* 0 = not copied */
};

static void
copy_version(void *arg, size_t i, const void *value, size_t bytes, unsigned flags)
{
    struct asked *a = arg;
    uint8_t buf[COHORT_ENTRY_MAX];
    struct bt_slice v = {value, bytes};

    ZT_CHECK(a->t, bytes >= 4 && flags == 0 && a->version[i] == 0);
    a->version[i] = ch_get32(v.data);
    ZT_CHECK(a->t, node_compare(v, key_value(a->k, a->which[i], a->version[i], buf)) == 0);
}

static void
ask(struct rig *r, const struct keys *k, unsigned n)
{
    static struct asked a;
    static unsigned which[ASKED_MAX];
    static struct bt_slice keys[ASKED_MAX];
    static int rcs[ASKED_MAX];

    memset(&a, 0, sizeof(a));
    a.t = r->t;
    a.k = k;
    a.which = which;
    for (unsigned i = 0; i < n; i++) {
        which[i] = i > 0 && zt_below(r->t, 10) == 0 ? which[i - 1] : (unsigned)zt_below(r->t, k->n);
        keys[i] = key_slice(k, which[i]);
        rcs[i] = COHORT_EINVAL;
    }
    ZT_OK(r->t, bt_get_many(&r->bt, NULL, n, keys, copy_version, &a, rcs));
    for (unsigned i = 0; i < n; i++) {
        ZT_STATUS(r->t, rcs[i], k->version[which[i]] != 0 ? 0 : COHORT_NOTFOUND);
        ZT_CHECK(r->t, a.version[i] == k->version[which[i]]);
    }
}

static void
fill(struct rig *r, struct keys *k)
{
    for (unsigned i = 0; i < k->n; i++) {
        unsigned at = (unsigned)((uint64_t)i * 7919 % k->n);

        if (at % 5 != 0)
            ZT_OK(r->t, rig_put(r, k, at, i + 1));
    }
}

/* Goal: every key gets what bt_get() says, in any order, with duplicates and missing keys, whatever the cache holds. */
static void
test_get_many(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 32 : 2048};
    enum key_shape shape = (enum key_shape)(t->seed % KEY_SHAPES);
    struct rig r;
    struct keys k;

    rig_open(&r, t, &o);
    keys_create(&k, t, shape, shape == KEYS_LONG ? 400 : 3000, 300);
    ask(&r, &k, 40); /* an empty tree */
    fill(&r, &k);
    for (unsigned round = 0; round < 30; round++) {
        if (round % 3 == 0)
            rig_reopen_buf(&r);
        ask(&r, &k, (unsigned)zt_below(t, round % 2 == 0 ? 65 : ASKED_MAX + 1));
    }
    keys_destroy(&k);
    rig_close(&r);
}

/* Goal: leaves that are missing come in by one round of reading, before the first key is got: 32 keys cost no read of their
 * own. Method: pages are misses of the cache when they are read; whether a get had to read shows in the calls to the copy,
 * between which nothing may be read. */
struct quiet {
    struct rig *r;
    uint64_t misses;
    unsigned copies;
};

static void
copy_quiet(void *arg, size_t i, const void *value, size_t bytes, unsigned flags)
{
    struct quiet *q = arg;
    struct buf_counts c;

    (void)i;
    (void)value;
    (void)bytes;
    (void)flags;
    buf_counts(q->r->buf, &c);
    ZT_CHECK(q->r->t, q->copies == 0 || c.misses == q->misses);
    q->misses = c.misses;
    q->copies++;
}

static void
test_reads_together(struct zt *t)
{
    enum {
        N = 32
    };
    struct rig_options o = {.frames = 2048};
    struct quiet q;
    struct bt_slice keys[N];
    int rcs[N];
    struct rig r;
    struct keys k;

    q = (struct quiet){.r = &r};
    rig_open(&r, t, &o);
    keys_create(&k, t, KEYS_DECIMAL, 8000, 300);
    fill(&r, &k);
    rig_reopen_buf(&r);
    for (unsigned i = 0; i < N; i++)
        keys[i] = key_slice(&k, (i * 997 % k.n) / 5 * 5 + 1);
    ZT_OK(t, bt_get_many(&r.bt, NULL, N, keys, copy_quiet, &q, rcs));
    ZT_CHECK(t, q.copies == N && q.misses >= N / 2);
    keys_destroy(&k);
    rig_close(&r);
}

/* ---- estimates ---- */

static uint64_t
truth(const struct keys *k, unsigned a, unsigned b)
{
    uint64_t n = 0;

    for (unsigned i = a; i < b; i++)
        n += k->version[i] != 0;
    return n;
}

/* Goal: exact within two leaves; within a factor of two beyond, for random data; 0 for empty ranges. Method: random ranges of
 * all sizes on trees of one to three levels; open ends. */
static void
test_estimate(struct zt *t)
{
    struct rig_options o = {.frames = zt_below(t, 2) == 0 ? 128 : 2048};
    struct bt_slice from, to;
    struct rig r;
    struct keys k;
    uint64_t got, want;

    rig_open(&r, t, &o);
    keys_create(&k, t, t->seed % 2 == 0 ? KEYS_DECIMAL : KEYS_MIXED, 6000,
                1 + (unsigned)zt_below(t, 500) + 4);
    ZT_OK(t, bt_estimate(&r.bt, NULL, NULL, &got));
    ZT_CHECK(t, got == 0);
    fill(&r, &k);
    for (unsigned round = 0; round < 300; round++) {
        unsigned a = (unsigned)zt_below(t, k.n), span = 1u << zt_below(t, 14);
        unsigned b =
            a + (unsigned)zt_below(t, span) < k.n ? a + (unsigned)zt_below(t, span) : k.n - 1;

        if (b > k.n - 1)
            b = k.n - 1;
        from = key_slice(&k, a);
        to = key_slice(&k, b);
        if (round % 7 == 0) {
            ZT_OK(t, bt_estimate(&r.bt, NULL, &to, &got));
            want = truth(&k, 0, b);
        } else if (round % 11 == 0) {
            ZT_OK(t, bt_estimate(&r.bt, &from, NULL, &got));
            want = truth(&k, a, k.n);
        } else {
            ZT_OK(t, bt_estimate(&r.bt, &from, &to, &got));
            want = a < b ? truth(&k, a, b) : 0;
        }
        if (want < 2)
            ZT_CHECK(t, got == want);
        else
            ZT_CHECK(t, got * 2 >= want && got <= want * 2);
    }
    ZT_OK(t, bt_estimate(&r.bt, NULL, NULL, &got));
    want = truth(&k, 0, k.n);
    ZT_CHECK(t, got * 2 >= want && got <= want * 2);
    keys_destroy(&k);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"get_many", test_get_many, 16},
        {"reads_together", test_reads_together, 1},
        {"estimate", test_estimate, 12},
    };

    return zt_main(argc, argv, "many", cases, CH_ARRAY_LEN(cases));
}
