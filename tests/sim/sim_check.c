/* sim_check.c - the database against the model: after each restart all of it, during scans what was
 * passed over.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"

#define BYTES_PAUSE_NS UINT64_C(1300000)

struct ordered {
    uint8_t key[COHORT_KEY_MAX];
    size_t bytes;
    unsigned number;
};

static struct ordered *order; /* [keys] by key */
static unsigned order_count;
static int *position; /* [keys] in `order` */

static int
compare_keys(const void *a, const void *b)
{
    const struct ordered *x = a;
    const struct ordered *y = b;
    int d = memcmp(x->key, y->key, ch_min_u64(x->bytes, y->bytes));

    return d != 0 ? d : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void
sim_check_init(const struct sim_plan *p)
{
    order_count = p->keys;
    order = calloc(p->keys, sizeof(*order));
    position = calloc(p->keys, sizeof(*position));
    SIM_CHECK(order != NULL && position != NULL);
    for (unsigned k = 0; k < p->keys; k++) {
        order[k].bytes = sim_key(k, order[k].key);
        order[k].number = k;
    }
    qsort(order, p->keys, sizeof(*order), compare_keys);
    for (unsigned i = 0; i < p->keys; i++)
        position[order[i].number] = (int)i;
}

void
sim_check_fini(void)
{
    free(order);
    free(position);
}

int
sim_key_position(unsigned key)
{
    return position[key];
}

unsigned
sim_key_at(int at)
{
    return order[at].number;
}

void
sim_check_passed(int after, int at, uint64_t from)
{
    for (int i = after + 1; i < at; i++) {
        unsigned key = order[i].number;

        if (!sim_model_is_loose(key) && !sim_may_hold(key, 0, from, sim_event()))
            sim_fail("key %u: a scan passed over it, although it was there all the time", key);
    }
}

/* ---- everything ---- */

static void
expect_ok(const char *what, int rc)
{
    if (rc != 0)
        sim_fail("%s: %s: %s", what, cohort_strerror(rc), cohort_last_error()->text);
}

/* All entries, by cursor. */
static unsigned
read_all(struct sim_world *w, write_id *found)
{
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    unsigned n = 0;
    int last = -1;
    int rc;

    expect_ok("cursor", cohort_cursor_open(w->db, &c));
    for (rc = cohort_cursor_first(c); rc == 0; rc = cohort_cursor_next(c)) {
        unsigned k;

        expect_ok("entry", cohort_cursor_entry(c, &key, &value));
        k = sim_key_number(key.data, key.bytes);
        if (position[k] <= last)
            sim_fail("key %u: out of order, or twice, in a scan", k);
        last = position[k];
        found[k] = sim_value_parse(k, value.data, value.bytes);
        n++;
    }
    if (rc != COHORT_NOTFOUND)
        expect_ok("scan", rc);
    cohort_cursor_close(c);
    return n;
}

/* The same, one by one. */
static void
compare_gets(struct sim_world *w, const write_id *found)
{
    struct cohort_value v = {0};

    for (unsigned i = 0; i < order_count; i++) {
        unsigned k = order[i].number;
        int rc = cohort_get(w->db, order[i].key, order[i].bytes, &v);

        if (rc != COHORT_NOTFOUND)
            expect_ok("get", rc);
        if ((rc == 0 ? sim_value_parse(k, v.data, v.bytes) : 0) != found[k])
            sim_fail("key %u: get and scan disagree", k);
    }
    cohort_value_free(&v);
}

static void
finding(void *arg, const char *line)
{
    char *first = arg;

    if (first[0] == '\0')
        (void)snprintf(first, 200, "%s", line);
}

void
sim_check_all(struct sim_world *w, bool crash)
{
    write_id *found = calloc((size_t)order_count * w->plan->trees, sizeof(*found));
    struct cohort_check_result r = {0};
    char first[200] = "";
    unsigned n;
    int rc;

    SIM_CHECK(found != NULL);
    n = w->plan->transactions ? sim_txn_read_all(w, found) : read_all(w, found);
    compare_gets(w, found);
    if (w->plan->transactions)
        sim_txn_check_prepared(w, found, crash);
    if (w->plan->transactions)
        sim_ddl_check(w, crash);
    sim_model_restart(found, crash);
    rc = cohort_check(w->db, finding, first, &r);
    if (rc == COHORT_EFULL) { /* it writes all dirty pages first */
        sim_cover->full++;
    } else {
        if (rc != 0)
            sim_fail("check: %s: %s; %s", cohort_strerror(rc), cohort_last_error()->text, first);
        if (r.entries != n && !w->plan->transactions) /* else it counts the trees' own tree, too */
            sim_fail("check counts %" PRIu64 " entries, a scan %u", r.entries, n);
    }
    free(found);
    rt_sim_progress();
}

/* One look; false when device and database count apart, which they may while a request is under way. */
static bool
bytes_agree(struct sim_world *w, struct cohort_stats *s)
{
    uint64_t sum = 0;

    s->struct_bytes = sizeof(*s);
    expect_ok("stats", cohort_stats(w->db, s));
    for (int i = 0; i < COHORT_CAUSES; i++)
        sum += s->bytes[i];
    if (sum != s->host_bytes)
        sim_fail("bytes by cause are %" PRIu64 " together, host bytes %" PRIu64, sum,
                 s->host_bytes);
    return s->device_host_bytes == COHORT_UNKNOWN || s->host_bytes == s->device_host_bytes;
}

void
sim_check_bytes(struct sim_world *w)
{
    struct cohort_stats s;
    bool dead;

    for (unsigned tries = 0; tries < 200; tries++) {
        bool agree = bytes_agree(w, &s);

        if (agree || dev_fault_failed(w->fault, &dead) > 0 || dead)
            return;
        rt_sleep_ns(BYTES_PAUSE_NS);
    }
    sim_fail("host bytes are %" PRIu64 ", the device counts %" PRIu64, s.host_bytes,
             s.device_host_bytes);
}
