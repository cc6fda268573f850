/* model_test.c - the whole engine against a model, everything drawn from one seed.
 *
 * Goal: whatever preset, codec, sizes, durability and number of threads, through power cuts, failed requests and full
 * devices: what was acknowledged is there, an operation in flight has happened or not, a batch as a whole, reads and
 * cursors see it that way all the time, cohort_check() finds nothing, and the device's counter is the sum by cause.
 *
 * Method: a simulated drive with a volatile cache below a faulty device. Keys are dealt out to the threads, neighbours
 * to different ones, so that threads meet on leaves, splits and merges, and yet each knows the state of its own keys.
 * A thread keeps the history of its writes since the state last known to be durable. After a crash each thread's keys
 * must be in the state after some prefix of its history, which holds everything acknowledged (durability=sync) or
 * everything before the last sync that returned (async, none). At most the last write of a history is in flight.
 *
 * In some runs a thread takes all the room of the log for moments, as the hog that the system's share is not sized for:
 * cleaner and GC then publish without records (store.h).
 *
 * A run is ROUNDS rounds: open, work, then one of: clean close, kill and power cut, power cut at a drawn write while
 * the threads work, failed requests with close or kill. Openings after a crash are themselves cut short now and then.
 * Runs with threads do not replay exactly; those with background=no do.
 */
#include "api/api_internal.h"
#include "base/base.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "rt/rt.h"
#include "wal/wal.h"
#include "zt/zt.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    THREADS_MAX = 4,
    ROUNDS = 4,
    KEYS_MAX = 12000,
    BATCH_MAX = 48,     /* more than there may be leaves in a batch of the smallest cache */
    HISTORY_MAX = 6000, /* writes of a thread in a round */
    CHANGES_MAX = HISTORY_MAX * 4,
    OPEN_CUTS_MAX = 3,
    HOG_TICKETS = 40, /* in all, half of the log's buffer: who holds tickets must not wait for it */
    HOG_BYTES = 3000,
    HANG_SECONDS = 120,
};

struct change {
    uint32_t key;
    uint32_t version; /* 0 = absent */
};

struct world;

struct worker {
    struct world *w;
    unsigned index;
    struct rt_thread thread;
    struct ch_prng rng;
    uint32_t state[KEYS_MAX]; /* version of each own key now, 0 = absent */
    uint32_t base[KEYS_MAX];  /* ... before the history */
    struct change changes[CHANGES_MAX];
    unsigned change_count;
    unsigned ends[HISTORY_MAX]; /* write i is changes [ends[i-1], ends[i]) */
    unsigned writes;            /* in the history */
    unsigned acked;             /* of them, acknowledged: all, or all but the last */
    unsigned synced;            /* of them, promised to survive */
    unsigned ops;               /* to do in this round */
    bool full_seen;
    bool failed;
    char why[512];
    struct cohort_value value;
};

enum ending {
    END_CLOSE,     /* nothing goes wrong */
    END_KILL,      /* all at rest, then the power goes */
    END_CUT,       /* the power goes at a drawn write */
    END_EIO_CLOSE, /* a request fails; close */
    END_EIO_KILL,  /* a request fails; then the power goes */
    ENDINGS
};

struct world {
    struct zt *t;
    struct cohort_options opts;
    struct sim_drive *drive;
    struct dev *fault; /* the handle's own */
    cohort_db *db;
    unsigned threads;
    unsigned keys;
    unsigned value_max;
    unsigned del_percent, batch_percent, read_percent;
    uint32_t next_version;
    bool faults; /* a request fails or the power goes in this round */
    struct worker *workers[THREADS_MAX];
    bool hog;
    struct rt_thread hog_thread;
    struct ch_prng hog_rng;
    _Atomic bool stop; /* the hog; relaxed, rt_join() does the rest */
};

/* ---- keys and values ---- */

static size_t
make_key(unsigned key, char *out)
{
    /* Some share long prefixes, some are long. */
    if (key % 11 == 3)
        return (size_t)snprintf(out, 300, "%05u-%0*u", key * 7 % 65536, 20 + (int)(key % 200), key);
    return (size_t)snprintf(out, 300, "%05u-%u", key * 7 % 65536, key);
}

/* The key's number from its text; UINT32_MAX if it is none of ours. */
static uint32_t
key_number(const struct cohort_slice *k)
{
    char text[300];
    char again[300];
    char *dash;
    unsigned long n;

    if (k->bytes == 0 || k->bytes >= sizeof(text))
        return UINT32_MAX;
    memcpy(text, k->data, k->bytes);
    text[k->bytes] = '\0';
    dash = strchr(text, '-');
    if (dash == NULL)
        return UINT32_MAX;
    n = strtoul(dash + 1, NULL, 10);
    if (n >= KEYS_MAX || make_key((unsigned)n, again) != k->bytes ||
        memcmp(again, k->data, k->bytes) != 0)
        return UINT32_MAX;
    return (uint32_t)n;
}

static size_t
make_value(const struct world *w, uint32_t key, uint32_t version, uint8_t *out)
{
    struct ch_prng p;
    size_t n;

    ch_prng_init(&p, (uint64_t)key << 32 | version);
    n = 8 + ch_prng_below(&p, w->value_max - 7);
    memset(out, (int)('a' + key % 26), n);
    ch_put32(out, key);
    ch_put32(out + 4, version);
    ch_prng_fill(&p, out + 8, (n - 8) / 2);
    return n;
}

/* The version that a value read shows, 0 = it is no value of this key. */
static uint32_t
value_version(const struct world *w, uint32_t key, const void *data, size_t bytes)
{
    uint8_t want[COHORT_ENTRY_MAX];
    uint32_t version;

    if (bytes < 8 || ch_get32(data) != key)
        return 0;
    version = ch_get32((const uint8_t *)data + 4);
    if (version == 0 || make_value(w, key, version, want) != bytes ||
        memcmp(want, data, bytes) != 0)
        return 0;
    return version;
}

/* ---- failing: threads note it, the main thread fails the test ---- */

static void
worker_fail(struct worker *k, const char *what, uint32_t key, int rc)
{
    const struct cohort_error *e = cohort_last_error();

    if (k->failed)
        return;
    k->failed = true;
    (void)snprintf(k->why, sizeof(k->why), "thread %u: %s: key %u, rc %d (%s), last error %s:%d %s",
                   k->index, what, key, rc, cohort_strerror(rc), e->file != NULL ? e->file : "",
                   e->line, e->text);
}

static void
world_check(struct world *w)
{
    for (unsigned i = 0; i < w->threads; i++) {
        if (w->workers[i]->failed) {
            (void)fprintf(stderr, "%s\n", w->workers[i]->why);
            ZT_CHECK(w->t, !w->workers[i]->failed);
        }
    }
}

/* ---- one thread's work ---- */

static uint32_t
own_key(struct worker *k)
{
    const struct world *w = k->w;
    uint64_t n = (w->keys - k->index + w->threads - 1) / w->threads;
    uint64_t i = ch_prng_below(&k->rng, n);

    /* A third of the work goes to a corner, so that pages fill and empty. */
    if (ch_prng_below(&k->rng, 3) == 0)
        i = i / 16;
    return (uint32_t)(i * w->threads + k->index);
}

static uint32_t
new_version(struct worker *k)
{
    return (uint32_t)(1 + k->w->next_version + k->change_count);
}

static void
note_change(struct worker *k, uint32_t key, uint32_t version)
{
    k->changes[k->change_count++] = (struct change){key, version};
}

/* What came of a write whose changes stand behind the history; false: the thread's work is over. */
static bool
note_result(struct worker *k, unsigned first, int rc, bool only_deletes)
{
    uint32_t key = k->change_count > first ? k->changes[first].key : 0;

    if (rc == COHORT_EFULL && only_deletes && !k->w->faults)
        worker_fail(k, "a delete found the device full", key, rc); /* R11 */
    if (rc == COHORT_EFULL || rc == COHORT_EBATCHSIZE) {           /* nothing has happened */
        k->full_seen = k->full_seen || rc == COHORT_EFULL;
        k->change_count = first;
        return !k->failed;
    }
    k->ends[k->writes++] = k->change_count;
    if (rc != 0) { /* in flight */
        if (!k->w->faults)
            worker_fail(k, "a write failed", key, rc);
        return false;
    }
    k->acked = k->writes;
    if (k->w->opts.durability == COHORT_DURABILITY_SYNC)
        k->synced = k->acked;
    for (unsigned i = first; i < k->change_count; i++)
        k->state[k->changes[i].key] = k->changes[i].version;
    return true;
}

static int
write_put(struct worker *k, uint32_t key, uint32_t version)
{
    uint8_t value[COHORT_ENTRY_MAX];
    char name[300];
    size_t kn = make_key(key, name);
    size_t vn = make_value(k->w, key, version, value);
    bool there = k->state[key] != 0;
    int rc;

    switch (ch_prng_below(&k->rng, 4)) {
    case 0:
        rc = cohort_insert(k->w->db, name, kn, value, vn);
        if (there ? rc == 0 : rc == COHORT_EXISTS)
            worker_fail(k, "insert is wrong about the key", key, rc);
        break;
    case 1:
        rc = cohort_update(k->w->db, name, kn, value, vn);
        if (there ? rc == COHORT_NOTFOUND : rc == 0)
            worker_fail(k, "update is wrong about the key", key, rc);
        break;
    default:
        rc = cohort_put(k->w->db, name, kn, value, vn);
        break;
    }
    return rc;
}

static bool
do_put(struct worker *k)
{
    unsigned first = k->change_count;
    uint32_t key = own_key(k);
    uint32_t version = new_version(k);
    int rc = write_put(k, key, version);

    if (rc == COHORT_EXISTS || rc == COHORT_NOTFOUND)
        return !k->failed;
    note_change(k, key, version);
    return note_result(k, first, rc, false) && !k->failed;
}

static bool
do_del(struct worker *k)
{
    unsigned first = k->change_count;
    uint32_t key = own_key(k);
    char name[300];
    bool there = k->state[key] != 0;
    int rc = cohort_del(k->w->db, name, make_key(key, name));

    if (there ? rc == COHORT_NOTFOUND : rc == 0)
        worker_fail(k, "delete is wrong about the key", key, rc);
    if (rc == COHORT_NOTFOUND)
        return !k->failed;
    note_change(k, key, 0);
    return note_result(k, first, rc, true) && !k->failed;
}

static bool
do_batch(struct worker *k, bool only_deletes)
{
    uint8_t value[COHORT_ENTRY_MAX];
    char name[300];
    cohort_batch *b = NULL;
    unsigned first = k->change_count;
    unsigned n = 1 + (unsigned)ch_prng_below(&k->rng, BATCH_MAX);
    int rc = cohort_batch_create(&b);

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        uint32_t key = own_key(k);
        uint32_t version = new_version(k);
        size_t kn = make_key(key, name);

        if (only_deletes || ch_prng_below(&k->rng, 100) < k->w->del_percent)
            version = 0;
        rc = version == 0
                 ? cohort_batch_del(b, name, kn)
                 : cohort_batch_put(b, name, kn, value, make_value(k->w, key, version, value));
        note_change(k, key, version);
    }
    if (rc == 0)
        rc = cohort_write(k->w->db, b);
    cohort_batch_destroy(b);
    return note_result(k, first, rc, only_deletes) && !k->failed;
}

static bool
do_get(struct worker *k)
{
    uint32_t key = own_key(k);
    char name[300];
    int rc;

    if (ch_prng_below(&k->rng, 4) == 0)
        key = (uint32_t)ch_prng_below(&k->rng, k->w->keys); /* anybody's */
    rc = cohort_get(k->w->db, name, make_key(key, name), &k->value);
    if (rc != 0 && rc != COHORT_NOTFOUND) {
        if (!k->w->faults)
            worker_fail(k, "a read failed", key, rc);
        return !k->failed;
    }
    if (rc == 0 && value_version(k->w, key, k->value.data, k->value.bytes) == 0)
        worker_fail(k, "a value of no version", key, rc);
    if (key % k->w->threads == k->index &&
        (rc == 0 ? value_version(k->w, key, k->value.data, k->value.bytes) : 0) != k->state[key])
        worker_fail(k, "not the state last written", key, rc);
    return !k->failed;
}

/* ---- cursors: own keys between two positions must be there, and in their state ---- */

struct seen {
    uint32_t keys[64];
    unsigned count;
    char first[300], last[300]; /* names of the first and the last entry, in the order of visits */
    size_t first_bytes, last_bytes;
};

static int
name_cmp(const void *a, size_t an, const void *b, size_t bn)
{
    int c = memcmp(a, b, ch_min_u64(an, bn));

    return c != 0 ? c : (an > bn) - (an < bn);
}

static int
scan_visit(struct worker *k, cohort_cursor *c, struct seen *s, bool forward)
{
    struct cohort_slice key;
    struct cohort_slice value;
    int rc = cohort_cursor_entry(c, &key, &value);
    uint32_t n;

    if (rc != 0)
        return rc;
    n = key_number(&key);
    if (n == UINT32_MAX || n >= k->w->keys) {
        worker_fail(k, "cursor: a key that nobody wrote", n, 0);
        return 0;
    }
    if (s->count > 0) {
        int cmp = name_cmp(key.data, key.bytes, s->last, s->last_bytes);

        if (forward ? cmp <= 0 : cmp >= 0)
            worker_fail(k, "cursor: out of order", n, 0);
    }
    if (n % k->w->threads == k->index &&
        value_version(k->w, n, value.data, value.bytes) != k->state[n])
        worker_fail(k, "cursor: not the state last written", n, 0);
    memcpy(s->last, key.data, key.bytes);
    s->last_bytes = key.bytes;
    if (s->count == 0) {
        memcpy(s->first, key.data, key.bytes);
        s->first_bytes = key.bytes;
    }
    s->keys[s->count++] = n;
    return 0;
}

/* Every own key that is there and lies between the ends was visited. */
static void
scan_complete(struct worker *k, const struct seen *s, bool forward)
{
    const char *lo = forward ? s->first : s->last;
    const char *hi = forward ? s->last : s->first;
    size_t lo_bytes = forward ? s->first_bytes : s->last_bytes;
    size_t hi_bytes = forward ? s->last_bytes : s->first_bytes;

    for (uint32_t key = k->index; s->count > 0 && key < k->w->keys; key += k->w->threads) {
        char name[300];
        size_t n;
        bool found = false;

        if (k->state[key] == 0)
            continue;
        n = make_key(key, name);
        if (name_cmp(name, n, lo, lo_bytes) < 0 || name_cmp(name, n, hi, hi_bytes) > 0)
            continue;
        for (unsigned i = 0; !found && i < s->count; i++)
            found = s->keys[i] == key;
        if (!found)
            worker_fail(k, "cursor: left out a key", key, 0);
    }
}

static bool
do_scan(struct worker *k)
{
    struct seen *s = calloc(1, sizeof(*s));
    cohort_cursor *c = NULL;
    bool forward = ch_prng_below(&k->rng, 2) == 0;
    char name[300];
    size_t kn = make_key((uint32_t)ch_prng_below(&k->rng, k->w->keys), name);
    int rc = cohort_cursor_open(k->w->db, &c);

    CH_ASSERT(s != NULL);
    if (rc == 0)
        rc = forward ? cohort_cursor_seek(c, name, kn) : cohort_cursor_seek_before(c, name, kn);
    while (rc == 0 && !k->failed && s->count < CH_ARRAY_LEN(s->keys)) {
        rc = scan_visit(k, c, s, forward);
        if (rc == 0)
            rc = forward ? cohort_cursor_next(c) : cohort_cursor_prev(c);
    }
    if (rc != 0 && rc != COHORT_NOTFOUND && !k->w->faults)
        worker_fail(k, "a scan failed", 0, rc);
    if (!k->failed)
        scan_complete(k, s, forward);
    cohort_cursor_close(c);
    free(s);
    return !k->failed;
}

/* ---- the rest of a thread ---- */

static bool
do_sync(struct worker *k, bool checkpoint)
{
    int rc = checkpoint ? cohort_checkpoint(k->w->db) : cohort_sync(k->w->db);

    if (rc == 0)
        k->synced = k->acked;
    else if (!k->w->faults && rc != COHORT_EFULL)
        worker_fail(k, "sync or checkpoint failed", 0, rc);
    return !k->failed && (rc == 0 || rc == COHORT_EFULL);
}

static bool
do_one(struct worker *k)
{
    const struct world *w = k->w;
    uint64_t dice = ch_prng_below(&k->rng, 1000);

    if (k->full_seen) { /* then deletes must work, and make room */
        k->full_seen = ch_prng_below(&k->rng, 60) != 0;
        return ch_prng_below(&k->rng, 6) == 0 ? do_batch(k, true) : do_del(k);
    }
    if (dice < 2)
        return do_sync(k, true);
    if (dice < 8)
        return do_sync(k, false);
    if (dice < 20)
        return do_scan(k);
    if (ch_prng_below(&k->rng, 100) < w->read_percent)
        return do_get(k);
    if (ch_prng_below(&k->rng, 100) < w->batch_percent)
        return do_batch(k, false);
    return ch_prng_below(&k->rng, 100) < w->del_percent ? do_del(k) : do_put(k);
}

static void
work(void *arg)
{
    struct worker *k = arg;

    for (unsigned i = 0; i < k->ops; i++) {
        if (k->writes == HISTORY_MAX || k->change_count + BATCH_MAX > CHANGES_MAX)
            break;
        if (!do_one(k))
            break;
    }
}

/* ---- after a crash ---- */

/* The versions that the database shows for the thread's keys. */
static void
read_all(struct world *w, struct worker *k, uint32_t *got)
{
    for (uint32_t key = k->index; key < w->keys; key += w->threads) {
        char name[300];
        int rc = cohort_get(w->db, name, make_key(key, name), &k->value);

        if (rc != COHORT_NOTFOUND)
            ZT_OK(w->t, rc);
        got[key] = rc == 0 ? value_version(w, key, k->value.data, k->value.bytes) : 0;
        ZT_CHECK(w->t, rc != 0 || got[key] != 0);
    }
}

static void
explain(const struct worker *k, const uint32_t *got, unsigned from)
{
    unsigned end = from > 0 ? k->ends[from - 1] : 0;
    unsigned shown = 0;
    uint32_t *now = calloc(KEYS_MAX, sizeof(*now));

    CH_ASSERT(now != NULL);
    memcpy(now, k->base, sizeof(k->base));
    for (unsigned i = 0; i < end; i++)
        now[k->changes[i].key] = k->changes[i].version;
    (void)fprintf(stderr,
                  "thread %u: %u writes, %u acknowledged, %u to survive; state after those:\n",
                  k->index, k->writes, k->acked, k->synced);
    for (uint32_t key = k->index; key < k->w->keys && shown < 20; key += k->w->threads) {
        if (now[key] == got[key])
            continue;
        (void)fprintf(stderr, "  key %u: version %u found, %u expected\n", key, got[key], now[key]);
        shown++;
    }
    free(now);
}

/* Finds a prefix of the history, not shorter than what must survive, whose state is what is there. */
static void
match_history(struct world *w, struct worker *k, const uint32_t *got)
{
    unsigned differ = 0;
    unsigned at = 0;
    bool found = false;

    memcpy(k->state, k->base, sizeof(k->state));
    for (uint32_t key = k->index; key < w->keys; key += w->threads)
        differ += k->state[key] != got[key];
    for (unsigned n = 0;; n++) {
        found = found || (n >= k->synced && differ == 0);
        if (n == k->writes || found)
            break;
        for (; at < k->ends[n]; at++) {
            const struct change *c = &k->changes[at];

            differ -= k->state[c->key] != got[c->key];
            k->state[c->key] = c->version;
            differ += k->state[c->key] != got[c->key];
        }
    }
    if (!found)
        explain(k, got, k->synced);
    ZT_CHECK(w->t, found);
}

static void
forget_history(struct worker *k)
{
    memcpy(k->base, k->state, sizeof(k->base));
    k->change_count = k->writes = k->acked = k->synced = 0;
}

static void
print_finding(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "check: %s\n", line);
}

static void
verify(struct world *w)
{
    uint32_t *got = calloc(KEYS_MAX, sizeof(*got));
    struct cohort_check_result r = {0};
    uint64_t entries = 0;

    CH_ASSERT(got != NULL);
    for (unsigned i = 0; i < w->threads; i++) {
        read_all(w, w->workers[i], got);
        match_history(w, w->workers[i], got);
        w->next_version += w->workers[i]->change_count + 1;
    }
    for (unsigned i = 0; i < w->threads; i++)
        forget_history(w->workers[i]);
    for (uint32_t key = 0; key < w->keys; key++)
        entries += w->workers[key % w->threads]->state[key] != 0;
    free(got);
    int rc = cohort_check(w->db, print_finding, NULL, &r);

    /* A full store can't write everything out; that is no finding. */
    if (rc != COHORT_EFULL) {
        ZT_OK(w->t, rc);
        ZT_CHECK(w->t, r.entries == entries);
    }
}

/* ---- opening, rounds ---- */

static int
open_with(struct world *w, const struct dev_fault_plan *plan, bool create)
{
    struct dev *dev = NULL;
    int rc;

    ZT_OK(w->t, dev_sim_open(w->drive, &dev));
    ZT_OK(w->t, dev_fault_open(dev, plan, &w->fault));
    rc = api_open_dev(w->fault, &w->opts, create, &w->db);
    if (rc != 0)
        w->fault = NULL;
    return rc;
}

/* Opens after whatever happened; recovery is cut short some times first. */
static void
reopen(struct world *w, bool crashed)
{
    static const struct dev_fault_plan none = {0};
    uint64_t cuts = crashed ? zt_below(w->t, OPEN_CUTS_MAX + 1) : 0;

    for (uint64_t i = 0; i < cuts; i++) {
        struct dev_fault_plan plan = {.stop_after_writes = 1 + zt_below(w->t, 40)};
        int rc = open_with(w, &plan, false);

        if (rc == 0)
            api_kill(w->db);
        sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
    }
    ZT_OK(w->t, open_with(w, &none, false));
}

static void
check_bytes(struct world *w)
{
    struct cohort_stats s = {.struct_bytes = sizeof(s)};
    uint64_t sum;

    /* Background threads may be between the two counters: ask until they rest. */
    for (int i = 0; i < 2000; i++) {
        sum = 0;
        ZT_OK(w->t, cohort_stats(w->db, &s));
        for (int c = 0; c < COHORT_CAUSES; c++)
            sum += s.bytes[c];
        if (sum == s.host_bytes && s.host_bytes == s.device_host_bytes)
            return;
        rt_sleep_ns(1000000);
    }
    ZT_CHECK(w->t, sum == s.host_bytes);
    ZT_CHECK(w->t, s.host_bytes == s.device_host_bytes);
}

static void
plan_faults(struct world *w, enum ending end, struct dev_fault_plan *plan)
{
    static const enum dev_op ops[] = {DEV_WRITE, DEV_WRITE, DEV_WRITE,
                                      DEV_READ,  DEV_FLUSH, DEV_RESET};
    enum dev_op op = ops[zt_below(w->t, CH_ARRAY_LEN(ops))];

    *plan = (struct dev_fault_plan){.code = COHORT_EIO};
    w->faults = end != END_CLOSE && end != END_KILL;
    if (end == END_CUT)
        plan->stop_after_writes = 1 + zt_below(w->t, w->hog ? 1000 : 3000);
    if (end != END_EIO_CLOSE && end != END_EIO_KILL)
        return;
    plan->fail_nth[op] = 1 + zt_below(w->t, op == DEV_RESET ? 20 : 1500);
    plan->fail_forever = zt_below(w->t, 3) == 0;
    if (zt_below(w->t, 4) == 0)
        plan->code = COHORT_EFULL;
    if (zt_below(w->t, 4) == 0)
        plan->short_nth = 1 + zt_below(w->t, 1500);
}

static void
hog_run(void *arg)
{
    struct world *w = arg;
    struct wal *wal = w->db->db->wal;
    struct wal_ticket *tickets = calloc(HOG_TICKETS, sizeof(*tickets));

    CH_ASSERT(tickets != NULL);
    while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
        unsigned n = 0;

        while (n < HOG_TICKETS && wal_reserve(wal, WAL_SYSTEM, HOG_BYTES, &tickets[n]) == 0)
            n++;
        rt_sleep_ns(ch_prng_below(&w->hog_rng, 20000000));
        while (n > 0)
            wal_release(wal, &tickets[--n]);
        rt_sleep_ns(ch_prng_below(&w->hog_rng, 10000000));
    }
    free(tickets);
}

static void
hog_start(struct world *w)
{
    if (!w->hog)
        return;
    atomic_store_explicit(&w->stop, false, memory_order_relaxed);
    ch_prng_init(&w->hog_rng, w->t->seed);
    ZT_OK(w->t, rt_spawn(&w->hog_thread, "hog", hog_run, w));
}

static void
hog_stop(struct world *w)
{
    if (!w->hog)
        return;
    atomic_store_explicit(&w->stop, true, memory_order_relaxed);
    rt_join(&w->hog_thread);
}

static void
run_threads(struct world *w)
{
    static const unsigned dels[] = {5, 30, 50, 95};

    w->del_percent = dels[zt_below(w->t, CH_ARRAY_LEN(dels))];
    hog_start(w);
    for (unsigned i = 0; i < w->threads; i++) {
        struct worker *k = w->workers[i];

        ch_prng_init(&k->rng, w->t->seed + zt_below(w->t, UINT32_MAX));
        k->ops = 200 + (unsigned)zt_below(w->t, 6000 / w->threads);
        k->full_seen = false;
        if (w->threads == 1)
            work(k);
        else
            ZT_OK(w->t, rt_spawn(&k->thread, "worker", work, k));
    }
    for (unsigned i = 0; w->threads > 1 && i < w->threads; i++)
        rt_join(&w->workers[i]->thread);
    hog_stop(w);
    world_check(w);
}

/* All of it happened: what was in flight is known now, for nothing was. */
static void
end_close(struct world *w)
{
    if (!w->faults)
        check_bytes(w);
    int rc = cohort_close(w->db);

    if (!w->faults && rc != COHORT_EFULL)
        ZT_OK(w->t, rc);
    for (unsigned i = 0; rc == 0 && i < w->threads; i++)
        w->workers[i]->synced = w->workers[i]->acked;
    w->db = NULL;
}

static void
one_round(struct world *w)
{
    enum ending end = (enum ending)zt_below(w->t, ENDINGS);
    struct dev_fault_plan plan;
    bool crash;

    if (w->hog && zt_below(w->t, 4) != 0)
        end = END_CUT; /* what was published without a record is at risk for moments only */
    crash = end != END_CLOSE;
    plan_faults(w, end, &plan);
    if (w->hog)
        plan.slow_ns = zt_below(w->t, 300000);
    dev_fault_set(w->fault, &plan);
    run_threads(w);
    if (end == END_CLOSE || end == END_EIO_CLOSE) {
        end_close(w);
        crash = end == END_EIO_CLOSE && zt_below(w->t, 2) == 0;
    } else {
        api_kill(w->db);
        w->db = NULL;
    }
    if (crash)
        sim_drive_crash(w->drive, zt_below(w->t, UINT32_MAX));
    w->faults = false;
    reopen(w, crash);
    verify(w);
}

/* ---- drawing a world ---- */

static void
set(struct world *w, const char *name, const char *value)
{
    ZT_OK(w->t, cohort_options_set(&w->opts, name, value));
}

static void
draw_options(struct world *w)
{
    static const char *const presets[] = {"cohort", "inplace", "inplace-atomic", "oop", "oop+pack"};
    static const char *const codecs[] = {"default", "none", "lz4", "zstd"};
    static const char *const modes[] = {"sync", "sync", "async", "none"};
    static const char *const zones[] = {"64K", "64K", "128K", "256K"};
    static const char *const logs[] = {"256K", "256K", "512K", "1M"};
    static const char *const percents[] = {"50", "5", "20", "80"};

    cohort_options_init(&w->opts);
    set(w, "preset", presets[zt_below(w->t, 5)]);
    if (!(w->opts.preset == COHORT_PRESET_INPLACE ||
          w->opts.preset == COHORT_PRESET_INPLACE_ATOMIC))
        set(w, "codec", codecs[zt_below(w->t, 4)]);
    set(w, "durability", modes[zt_below(w->t, 4)]);
    set(w, "async_ms", "3");
    set(w, "zone_bytes", zones[zt_below(w->t, 4)]);
    set(w, "log_bytes", logs[zt_below(w->t, 4)]);
    set(w, "cache_bytes", zt_below(w->t, 2) == 0 ? "1M" : "2M");
    if (w->opts.preset != COHORT_PRESET_INPLACE && w->opts.preset != COHORT_PRESET_INPLACE_ATOMIC)
        set(w, "log_place", zt_below(w->t, 2) == 0 ? "ring" : "zones");
    set(w, "checkpoint_percent", percents[zt_below(w->t, 4)]);
    set(w, "discard", zt_below(w->t, 4) == 0 ? "no" : "yes");
    w->threads = 1 + (unsigned)zt_below(w->t, THREADS_MAX);
    set(w, "background", w->threads > 1 || zt_below(w->t, 2) == 0 ? "yes" : "no");
    w->hog = w->opts.background != 0 && zt_below(w->t, 4) == 0;
    if (w->hog)
        set(w, "log_bytes", "256K");
}

static void
draw_world(struct world *w)
{
    char text[128];
    bool untorn;
    bool inplace;
    unsigned mib;

    draw_options(w);
    inplace =
        w->opts.preset == COHORT_PRESET_INPLACE || w->opts.preset == COHORT_PRESET_INPLACE_ATOMIC;
    mib = (inplace ? 7 : 6) + (unsigned)zt_below(w->t, 7);
    untorn = w->opts.preset == COHORT_PRESET_INPLACE_ATOMIC;
    /* Small drives are full soon. In place, the double-write area takes the most of a small one. */
    (void)snprintf(text, sizeof(text), "generic,bytes=%uM,superblock=256K,cache=volatile%s", mib,
                   untorn ? ",tear=no" : "");
    ZT_OK(w->t, sim_drive_create(text, &w->drive));
    w->keys = zt_below(w->t, 3) == 0 ? 50 + (unsigned)zt_below(w->t, 400)
                                     : 1000 + (unsigned)zt_below(w->t, KEYS_MAX - 1000);
    w->value_max = zt_below(w->t, 2) == 0 ? 1600 : 16 + (unsigned)zt_below(w->t, 800);
    w->batch_percent = (unsigned)zt_below(w->t, 3) * 15;
    w->read_percent = (unsigned)zt_below(w->t, 3) * 20;
    for (unsigned i = 0; i < w->threads; i++) {
        w->workers[i] = calloc(1, sizeof(*w->workers[i]));
        ZT_CHECK(w->t, w->workers[i] != NULL);
        w->workers[i]->w = w;
        w->workers[i]->index = i;
    }
}

static struct world *current; /* for the watchdog */

static void
hangs(int sig)
{
    static const char text[] = "model_test: a run hangs\n";

    (void)sig;
    (void)!write(2, text, sizeof(text) - 1);
    if (current != NULL)
        (void)fprintf(stderr, "seed %" PRIu64 "\n", current->t->seed);
    abort();
}

static void
test_model(struct zt *t)
{
    static const struct dev_fault_plan none = {0};
    struct world *w = calloc(1, sizeof(*w));

    ZT_CHECK(t, w != NULL);
    w->t = t;
    current = w;
    (void)signal(SIGALRM, hangs);
    (void)alarm(HANG_SECONDS);
    draw_world(w);
    if (getenv("COHORT_MODEL_VERBOSE") != NULL)
        (void)fprintf(stderr,
                      "seed %" PRIu64 ": preset %" PRIu64 " codec %" PRIu64 " durability %" PRIu64
                      " threads %u background %" PRIu64 " keys %u values %u zone %" PRIu64
                      " log %" PRIu64 "\n",
                      t->seed, w->opts.preset, w->opts.codec, w->opts.durability, w->threads,
                      w->opts.background, w->keys, w->value_max, w->opts.zone_bytes,
                      w->opts.log_bytes);
    ZT_OK(t, open_with(w, &none, true));
    for (int i = 0; i < ROUNDS; i++)
        one_round(w);
    ZT_OK(t, cohort_close(w->db));
    (void)alarm(0);
    current = NULL;
    sim_drive_destroy(w->drive);
    for (unsigned i = 0; i < w->threads; i++) {
        cohort_value_free(&w->workers[i]->value);
        free(w->workers[i]);
    }
    free(w);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"model", test_model, 80},
    };

    return zt_main(argc, argv, "model", cases, CH_ARRAY_LEN(cases));
}
