/* tpcc_delivery.c - Order-Status (2.6), Delivery (2.7), Stock-Level (2.8), and Purge (tpcc_txn.h). */
#include <stdlib.h>

#include "bench/tpcc_txn.h"

/* ---- Order-Status ---- */

int
tpcc_order_status(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    const struct tpcc_store_ops *ops = t->session->store->ops;
    struct tpcc_customer customer;
    struct tpcc_cursor *cursor = NULL;
    struct tpcc_order order;
    struct tpcc_lines lines;
    struct cohort_slice v;
    struct tpcc_key key;
    uint32_t c, o = 0;
    int rc;

    rc = tpcc_find_customer(t->session, &in->customer, false, &c, &customer);
    if (rc == 0)
        rc = ops->cursor_open(t->session, TPCC_ORDER_CUSTOMER, &cursor);
    if (rc != 0)
        return rc;
    tpcc_key_wdx(&key, in->w, in->d, c);
    rc = ops->seek(cursor, &key); /* the newest comes first */
    if (rc == 0)
        rc = ops->entry(cursor, &v, NULL);
    if (rc == 0 && tpcc_key_under(&v, &key))
        o = ~tpcc_key_number(&v, TPCC_AT_ORDER);
    ops->cursor_close(cursor);
    t->number = o;
    if (rc == COHORT_NOTFOUND || (rc == 0 && o == 0))
        return 0; /* the steady variant has purged the customer's only order */
    if (rc != 0)
        return rc;
    tpcc_key_wdx(&key, in->w, in->d, o);
    rc = tpcc_must(tpcc_get(t->session, TPCC_ORDER, &key, &v), TPCC_ORDER, &key);
    if (rc == 0)
        rc = tpcc_get_order(&v, &order);
    return rc != 0 ? rc : tpcc_read_lines(t->session, in->w, in->d, o, &lines);
}

/* ---- Delivery ---- */

/* Sets the delivery date of all lines; *sum: their amounts. */
static int
deliver_lines(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t d, uint32_t o,
              int64_t *sum)
{
    struct tpcc_lines lines;
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    *sum = 0;
    rc = tpcc_read_lines(t->session, in->w, d, o, &lines);
    for (uint32_t k = 0; k < lines.count && rc == 0; k++) {
        lines.row[k].delivery_date = t->now;
        *sum += lines.row[k].amount;
        tpcc_put_order_line(&row, &lines.row[k]);
        tpcc_key_order_line(&key, in->w, d, o, lines.number[k]);
        rc = tpcc_put(t->session, TPCC_ORDER_LINE, &key, &row);
    }
    return rc;
}

static int
deliver(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t d, uint32_t o)
{
    struct tpcc_customer_input who = {.w = in->w, .d = d};
    struct tpcc_customer customer;
    struct tpcc_order order;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row row;
    int64_t sum = 0;
    uint32_t c;
    int rc;

    tpcc_key_wdx(&key, in->w, d, o);
    rc = tpcc_del(t->session, TPCC_NEW_ORDER, &key);
    if (rc == 0)
        rc = tpcc_get(t->session, TPCC_ORDER, &key, &v);
    rc = tpcc_must(rc, TPCC_ORDER, &key);
    if (rc == 0)
        rc = tpcc_get_order(&v, &order);
    if (rc != 0)
        return rc;
    order.carrier = in->carrier;
    tpcc_put_order(&row, &order);
    rc = tpcc_put(t->session, TPCC_ORDER, &key, &row);
    if (rc == 0)
        rc = deliver_lines(t, in, d, o, &sum);
    who.c = order.c;
    if (rc == 0)
        rc = tpcc_find_customer(t->session, &who, true, &c, &customer);
    if (rc != 0)
        return rc;
    customer.balance += sum;
    customer.delivery_count++;
    tpcc_put_customer(&row, &customer);
    tpcc_key_wdx(&key, in->w, d, order.c);
    t->delivered++;
    return tpcc_put(t->session, TPCC_CUSTOMER, &key, &row);
}

int
tpcc_delivery(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    int rc = 0;

    for (uint32_t d = 1; d <= TPCC_DISTRICTS && rc == 0; d++) {
        uint32_t waiting[2], n = 1;

        rc = tpcc_range(t->session, TPCC_NEW_ORDER, in->w, d, t->steady, waiting);
        if (rc == COHORT_NOTFOUND) {
            t->skipped++;
            rc = 0;
            continue;
        }
        if (rc == 0 && t->steady) { /* condition 3: their numbers have no gaps */
            uint32_t count = waiting[1] - waiting[0] + 1;

            n = count > t->scale->new_orders ? count - t->scale->new_orders : 0;
            n = (uint32_t)ch_min_u64(n, TPCC_DELIVER_MAX);
        }
        for (uint32_t k = 0; k < n && rc == 0; k++)
            rc = deliver(t, in, d, waiting[0] + k);
    }
    return rc;
}

/* ---- Stock-Level ---- */

enum {
    STOCK_ORDERS = 20
};

struct stock_level {
    uint32_t items[STOCK_ORDERS * TPCC_LINES_MAX];
    uint32_t count;
    uint32_t threshold, low;
};

static int
compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The items of the lines of orders next - 20 .. next - 1. */
static int
recent_items(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t next,
             struct stock_level *l)
{
    const struct tpcc_store_ops *ops = t->session->store->ops;
    struct tpcc_order_line line;
    struct cohort_slice key, value;
    struct tpcc_cursor *c = NULL;
    struct tpcc_key from, prefix;
    int rc;

    tpcc_key_district(&prefix, in->w, in->d);
    tpcc_key_wdx(&from, in->w, in->d, next > STOCK_ORDERS ? next - STOCK_ORDERS : 1);
    rc = ops->cursor_open(t->session, TPCC_ORDER_LINE, &c);
    if (rc != 0)
        return rc;
    for (rc = ops->seek(c, &from); rc == 0; rc = ops->next(c)) {
        rc = ops->entry(c, &key, &value);
        if (rc != 0 || !tpcc_key_under(&key, &prefix) || l->count == CH_ARRAY_LEN(l->items))
            break;
        rc = tpcc_get_order_line(&value, &line);
        if (rc != 0)
            break;
        l->items[l->count++] = line.i;
    }
    ops->cursor_close(c);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

static int
on_level(void *arg, size_t i, const struct cohort_slice *value)
{
    struct stock_level *l = arg;
    struct tpcc_stock stock;
    int rc;

    (void)i;
    if (value == NULL)
        return CH_FAIL(COHORT_ECORRUPT, "an order line's item has no stock");
    rc = tpcc_get_stock(value, &stock);
    l->low += rc == 0 && stock.quantity < (int32_t)l->threshold;
    return rc;
}

int
tpcc_stock_level(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    struct stock_level l = {.threshold = in->threshold};
    struct tpcc_key keys[TPCC_MANY_MAX];
    struct tpcc_district district;
    struct cohort_slice v;
    size_t n = 0;
    int rc;

    tpcc_key_district(&keys[0], in->w, in->d);
    rc = tpcc_must(tpcc_get(t->session, TPCC_DISTRICT, &keys[0], &v), TPCC_DISTRICT, &keys[0]);
    if (rc == 0)
        rc = tpcc_get_district(&v, &district);
    if (rc == 0)
        rc = recent_items(t, in, district.next_o_id, &l);
    if (rc != 0)
        return rc;
    qsort(l.items, l.count, sizeof(l.items[0]), compare_u32);
    for (uint32_t i = 0; i < l.count && rc == 0; i++) {
        if (i == 0 || l.items[i] != l.items[i - 1])
            tpcc_key_stock(&keys[n++], in->w, l.items[i]);
        if (n > 0 && (n == TPCC_MANY_MAX || i + 1 == l.count)) {
            rc = tpcc_get_many(t->session, TPCC_STOCK, n, keys, on_level, &l);
            n = 0;
        }
    }
    t->low_stock = l.low;
    return rc;
}

/* ---- Purge ---- */

/* Adds to what the archive keeps of a customer, or, c = 0, of the district. */
static int
archive_add(struct tpcc_terminal *t, const struct tpcc_key *key, const struct tpcc_archive *add)
{
    struct tpcc_archive a = {0};
    struct cohort_slice v;
    struct tpcc_row row;
    int rc;

    rc = tpcc_get_lock(t->session, TPCC_ARCHIVE, key, &v);
    if (rc == 0)
        rc = tpcc_get_archive(&v, &a);
    else if (rc == COHORT_NOTFOUND)
        rc = 0;
    if (rc != 0)
        return rc;
    a.lines += add->lines;
    a.history += add->history;
    a.orders += add->orders;
    tpcc_put_archive(&row, &a);
    return tpcc_put(t->session, TPCC_ARCHIVE, key, &row);
}

/* *gone: false when the order is not delivered yet and stays. */
static int
purge_order(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t d, uint32_t o,
            bool *gone)
{
    struct tpcc_archive sum = {0};
    struct tpcc_order order;
    struct tpcc_lines lines;
    struct cohort_slice v;
    struct tpcc_key key;
    int rc;

    *gone = false;
    tpcc_key_wdx(&key, in->w, d, o);
    rc = tpcc_must(tpcc_get_lock(t->session, TPCC_ORDER, &key, &v), TPCC_ORDER, &key);
    if (rc == 0)
        rc = tpcc_get_order(&v, &order);
    if (rc != 0 || order.carrier == 0)
        return rc;
    *gone = true;
    rc = tpcc_del(t->session, TPCC_ORDER, &key);
    if (rc == 0)
        rc = tpcc_read_lines(t->session, in->w, d, o, &lines);
    for (uint32_t k = 0; rc == 0 && k < lines.count; k++) {
        sum.lines += lines.row[k].amount;
        tpcc_key_order_line(&key, in->w, d, o, lines.number[k]);
        rc = tpcc_del(t->session, TPCC_ORDER_LINE, &key);
    }
    tpcc_key_order_customer(&key, in->w, d, order.c, o);
    if (rc == 0)
        rc = tpcc_must(tpcc_del(t->session, TPCC_ORDER_CUSTOMER, &key), TPCC_ORDER_CUSTOMER, &key);
    tpcc_key_wdx(&key, in->w, d, order.c);
    return rc != 0 ? rc : archive_add(t, &key, &sum);
}

static int
purge_payment(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t d, uint32_t h,
              int64_t *amount)
{
    struct tpcc_history history;
    struct cohort_slice v;
    struct tpcc_key key;
    int rc;

    tpcc_key_wdx(&key, in->w, d, h);
    rc = tpcc_must(tpcc_get_lock(t->session, TPCC_HISTORY, &key, &v), TPCC_HISTORY, &key);
    if (rc == 0)
        rc = tpcc_get_history(&v, &history);
    if (rc == 0)
        rc = tpcc_del(t->session, TPCC_HISTORY, &key);
    if (rc != 0)
        return rc;
    *amount += history.amount;
    tpcc_key_wdx(&key, history.c_w, history.c_d, history.c);
    return archive_add(t, &key, &(struct tpcc_archive){.history = history.amount});
}

/* How many of `range` are to go so that `keep` stay. */
static uint32_t
surplus(const uint32_t range[2], uint32_t keep)
{
    uint32_t count = range[1] - range[0] + 1;

    return count > keep ? (uint32_t)ch_min_u64(count - keep, TPCC_PURGE_MAX) : 0;
}

static int
purge_district(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t d)
{
    struct tpcc_archive sum = {0};
    struct tpcc_key key;
    uint32_t range[2];
    bool gone = true;
    int rc;

    tpcc_key_district(&key, in->w, d);
    rc = tpcc_must(tpcc_range(t->session, TPCC_ORDER, in->w, d, true, range), TPCC_ORDER, &key);
    for (uint32_t k = 0; rc == 0 && gone && k < surplus(range, t->scale->orders); k++) {
        rc = purge_order(t, in, d, range[0] + k, &gone);
        sum.orders += rc == 0 && gone;
    }
    if (rc == 0)
        rc = tpcc_must(tpcc_range(t->session, TPCC_HISTORY, in->w, d, true, range), TPCC_HISTORY,
                       &key);
    for (uint32_t k = 0; rc == 0 && k < surplus(range, t->scale->customers); k++)
        rc = purge_payment(t, in, d, range[0] + k, &sum.history);
    t->purged += sum.orders;
    if (rc != 0 || (sum.orders == 0 && sum.history == 0))
        return rc;
    tpcc_key_wdx(&key, in->w, d, 0);
    return archive_add(t, &key, &sum);
}

int
tpcc_purge(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    int rc = 0;

    for (uint32_t d = 1; d <= TPCC_DISTRICTS && rc == 0; d++)
        rc = purge_district(t, in, d);
    return rc;
}
