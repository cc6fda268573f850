/* tpcc_txn.c - drawing and running transactions, and what their bodies share. */
#include <stdatomic.h>

#include "bench/tpcc_txn.h"
#include "rt/rt.h"

const char *const tpcc_kind_names[TPCC_KINDS] = {
    "new_order", "payment", "order_status", "delivery", "stock_level", "purge",
};
const uint32_t tpcc_mix[TPCC_KINDS] = {45, 43, 4, 4, 4, 4};

/* ---- drawing ---- */

static uint32_t
other_warehouse(struct tpcc_terminal *t, uint32_t w)
{
    uint32_t other = tpcc_between(&t->random, 1, t->scale->warehouses - 1);

    return other >= w ? other + 1 : other;
}

/* 2.5.1.2, 2.6.1.2: 60 % by last name. */
static void
draw_customer(struct tpcc_terminal *t, struct tpcc_customer_input *in)
{
    struct tpcc_random *r = &t->random;

    if (tpcc_percent(r, 60))
        tpcc_last_name(tpcc_name_number(r, t->scale, r->constants.c_last), in->last);
    else
        in->c = tpcc_customer_id(r, t->scale);
}

static void
sort_lines(struct tpcc_line_input *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct tpcc_line_input x = v[i];
        uint32_t k = i;

        for (; k > 0 && (v[k - 1].supply_w > x.supply_w ||
                         (v[k - 1].supply_w == x.supply_w && v[k - 1].i > x.i));
             k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

static void
draw_new_order(struct tpcc_terminal *t, struct tpcc_input *in)
{
    struct tpcc_random *r = &t->random;

    in->customer.c = tpcc_customer_id(r, t->scale);
    in->line_count = tpcc_between(r, 5, TPCC_LINES_MAX);
    for (uint32_t k = 0; k < in->line_count; k++) {
        in->lines[k] = (struct tpcc_line_input){
            .i = tpcc_item_id(r, t->scale),
            .supply_w = in->w,
            .quantity = tpcc_between(r, 1, 10),
        };
        if (t->scale->warehouses > 1 && tpcc_percent(r, 1))
            in->lines[k].supply_w = other_warehouse(t, in->w);
    }
    sort_lines(in->lines, in->line_count);
    if (tpcc_percent(r, 1)) /* 2.4.1.4: an unused item, found last */
        in->lines[in->line_count - 1].i = t->scale->items + 1;
}

static void
draw_payment(struct tpcc_terminal *t, struct tpcc_input *in)
{
    struct tpcc_random *r = &t->random;

    if (t->scale->warehouses > 1 && tpcc_percent(r, 15)) {
        in->customer.w = other_warehouse(t, in->w);
        in->customer.d = tpcc_between(r, 1, TPCC_DISTRICTS);
    }
    draw_customer(t, &in->customer);
    in->amount = tpcc_between(r, 100, 500000);
}

void
tpcc_draw_kind(struct tpcc_terminal *t, enum tpcc_kind kind, struct tpcc_input *in)
{
    struct tpcc_random *r = &t->random;

    *in = (struct tpcc_input){.kind = kind};
    in->w = tpcc_between(r, 1, t->scale->warehouses);
    in->d = tpcc_between(r, 1, TPCC_DISTRICTS);
    in->customer.w = in->w;
    in->customer.d = in->d;
    if (kind == TPCC_NEW_ORDER_TXN)
        draw_new_order(t, in);
    else if (kind == TPCC_PAYMENT_TXN)
        draw_payment(t, in);
    else if (kind == TPCC_ORDER_STATUS_TXN)
        draw_customer(t, &in->customer);
    in->carrier = tpcc_between(r, 1, 10);
    in->threshold = tpcc_between(r, 10, 20);
}

void
tpcc_draw(struct tpcc_terminal *t, struct tpcc_input *in)
{
    uint32_t sum = 0, at, kind = 0;

    for (int i = 0; i < (t->steady ? TPCC_KINDS : TPCC_PURGE_TXN); i++)
        sum += tpcc_mix[i];
    at = tpcc_between(&t->random, 0, sum - 1);
    while (at >= tpcc_mix[kind])
        at -= tpcc_mix[kind++];
    tpcc_draw_kind(t, (enum tpcc_kind)kind, in);
}

/* ---- running ---- */

enum {
    BACK_OFF_NS = 20000, /* before the second retry; doubled for each further one */
    BACK_OFF_DOUBLINGS = 6
};

static int
run_body(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    switch (in->kind) {
    case TPCC_NEW_ORDER_TXN:
        return tpcc_new_order(t, in);
    case TPCC_PAYMENT_TXN:
        return tpcc_payment(t, in);
    case TPCC_ORDER_STATUS_TXN:
        return tpcc_order_status(t, in);
    case TPCC_DELIVERY_TXN:
        return tpcc_delivery(t, in);
    case TPCC_STOCK_LEVEL_TXN:
        return tpcc_stock_level(t, in);
    case TPCC_PURGE_TXN:
        return tpcc_purge(t, in);
    case TPCC_KINDS:
        break;
    }
    return CH_FAIL(COHORT_EINVAL, "no transaction of kind %d", (int)in->kind);
}

/* Ends the transaction that an error is to abort; the error stays, with its record. */
static int
abort_after(struct tpcc_session *s, int rc)
{
    struct cohort_error e = *cohort_last_error();
    int aborted = s->store->ops->abort(s);

    if (aborted != 0)
        return aborted; /* worse than what it was for: the handle has failed */
    if (e.code == rc && e.file != NULL)
        (void)ch_fail(rc, e.file, e.line, "%s", e.text);
    return rc;
}

/* One attempt. 0 or TPCC_ROLLBACK: done. */
static int
attempt(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    const struct tpcc_store_ops *ops = t->session->store->ops;
    bool read_only = in->kind == TPCC_ORDER_STATUS_TXN || in->kind == TPCC_STOCK_LEVEL_TXN;
    int rc;

    t->now = rt_now_ns();
    rc = ops->begin(t->session, read_only);
    if (rc != 0)
        return rc;
    rc = run_body(t, in);
    if (rc == 0)
        return ops->commit(t->session);
    if (rc == TPCC_ROLLBACK) {
        rc = ops->abort(t->session);
        return rc != 0 ? rc : TPCC_ROLLBACK;
    }
    return abort_after(t->session, rc);
}

int
tpcc_execute(struct tpcc_terminal *t, const struct tpcc_input *in, const _Atomic bool *stop)
{
    struct tpcc_count *count = &t->counts[in->kind];
    uint64_t skipped = t->skipped, delivered = t->delivered, purged = t->purged;
    int rc;

    for (unsigned tries = 0;; tries++) {
        rc = attempt(t, in);
        if (!tpcc_is_retry(rc))
            break;
        t->skipped = skipped;
        t->delivered = delivered;
        t->purged = purged;
        if (tries == TPCC_ATTEMPTS_MAX)
            return CH_FAIL(rc, "%s: gave up after %u attempts", tpcc_kind_names[in->kind], tries);
        if (stop != NULL && atomic_load_explicit(stop, memory_order_relaxed))
            return rc;
        count->retries++;
        if (tries > 0) /* whoever is in the way is still at it, and the engine did not wait */
            rt_sleep_ns((uint64_t)BACK_OFF_NS << ch_min_u64(tries - 1, BACK_OFF_DOUBLINGS));
    }
    if (rc == TPCC_ROLLBACK) {
        count->rolled_back++;
        return 0;
    }
    count->committed += rc == 0;
    return rc;
}

/* ---- shared by the bodies ---- */

int
tpcc_must(int rc, enum tpcc_table table, const struct tpcc_key *key)
{
    char text[2 * TPCC_KEY_MAX + 1];

    if (rc != COHORT_NOTFOUND)
        return rc;
    for (size_t i = 0; i < key->bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", key->data[i]);
    return CH_FAIL(COHORT_ECORRUPT, "table %s has no row %s", tpcc_table_names[table], text);
}

/* The middle one of a last name's customers, rounded up. */
static int
find_by_name(struct tpcc_session *s, const struct tpcc_customer_input *in, uint32_t *out)
{
    const struct tpcc_store_ops *ops = s->store->ops;
    struct tpcc_cursor *c = NULL;
    struct tpcc_key prefix;
    struct cohort_slice key;
    uint32_t found[256]; /* about three of 3,000; NURand makes no name so frequent */
    uint32_t n = 0;
    int rc;

    tpcc_key_customer_name(&prefix, in->w, in->d, in->last, NULL, 0);
    rc = ops->cursor_open(s, TPCC_CUSTOMER_NAME, &c);
    if (rc != 0)
        return rc;
    for (rc = ops->seek(c, &prefix); rc == 0; rc = ops->next(c)) {
        rc = ops->entry(c, &key, NULL);
        if (rc != 0 || !tpcc_key_under(&key, &prefix) || n == CH_ARRAY_LEN(found))
            break;
        found[n++] = tpcc_key_number(&key, key.bytes - 4);
    }
    ops->cursor_close(c);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        return rc;
    if (n == 0)
        return tpcc_must(COHORT_NOTFOUND, TPCC_CUSTOMER_NAME, &prefix);
    *out = found[(n + 1) / 2 - 1];
    return 0;
}

int
tpcc_find_customer(struct tpcc_session *s, const struct tpcc_customer_input *in, bool lock,
                   uint32_t *c, struct tpcc_customer *row)
{
    struct cohort_slice v;
    struct tpcc_key key;
    uint32_t number = in->c;
    int rc = 0;

    if (number == 0)
        rc = find_by_name(s, in, &number);
    if (rc != 0)
        return rc;
    tpcc_key_wdx(&key, in->w, in->d, number);
    rc = tpcc_must(s->store->ops->get(s, TPCC_CUSTOMER, &key, lock, &v), TPCC_CUSTOMER, &key);
    if (rc == 0)
        rc = tpcc_get_customer(&v, row);
    if (rc == 0)
        *c = number;
    return rc;
}

int
tpcc_read_lines(struct tpcc_session *s, uint32_t w, uint32_t d, uint32_t o,
                struct tpcc_lines *lines)
{
    const struct tpcc_store_ops *ops = s->store->ops;
    struct tpcc_cursor *c = NULL;
    struct cohort_slice key, value;
    struct tpcc_key prefix;
    bool many = false;
    int rc;

    lines->count = 0;
    tpcc_key_wdx(&prefix, w, d, o);
    rc = ops->cursor_open(s, TPCC_ORDER_LINE, &c);
    if (rc != 0)
        return rc;
    for (rc = ops->seek(c, &prefix); rc == 0; rc = ops->next(c)) {
        rc = ops->entry(c, &key, &value);
        if (rc != 0 || !tpcc_key_under(&key, &prefix))
            break;
        many = lines->count == TPCC_LINES_MAX;
        if (many)
            break;
        rc = tpcc_get_order_line(&value, &lines->row[lines->count]);
        if (rc != 0)
            break;
        lines->number[lines->count++] = ((const uint8_t *)key.data)[TPCC_AT_LINE];
    }
    ops->cursor_close(c);
    if (rc != 0 && rc != COHORT_NOTFOUND)
        return rc;
    if (many || lines->count == 0)
        return CH_FAIL(COHORT_ECORRUPT, "order %u/%u/%u has %s lines", w, d, o,
                       many ? "too many" : "no");
    return 0;
}

int
tpcc_range(struct tpcc_session *s, enum tpcc_table table, uint32_t w, uint32_t d, bool last,
           uint32_t range[2])
{
    const struct tpcc_store_ops *ops = s->store->ops;
    struct tpcc_key prefix, end;
    struct tpcc_cursor *c = NULL;
    struct cohort_slice key;
    uint32_t found[2] = {0};
    int rc;

    tpcc_key_district(&prefix, w, d);
    tpcc_key_wdx(&end, w, d, UINT32_MAX);
    rc = ops->cursor_open(s, table, &c);
    if (rc != 0)
        return rc;
    for (int i = 0; i <= (int)last && rc == 0; i++) {
        rc = i == 0 ? ops->seek(c, &prefix) : ops->seek_before(c, &end);
        if (rc == 0)
            rc = ops->entry(c, &key, NULL);
        if (rc == 0 && !tpcc_key_under(&key, &prefix))
            rc = COHORT_NOTFOUND;
        if (rc == 0)
            found[i] = tpcc_key_number(&key, TPCC_AT_X);
    }
    ops->cursor_close(c);
    if (rc == 0)
        memcpy(range, found, sizeof(found));
    return rc;
}
