/* tpcc_new_order.c - New-Order (2.4) and Payment (2.5). */
#include <stdio.h>

#include "bench/tpcc_txn.h"

/* ---- New-Order ---- */

struct new_order {
    const struct tpcc_input *in;
    struct tpcc_warehouse warehouse;
    struct tpcc_district district;
    struct tpcc_customer customer;
    struct tpcc_item items[TPCC_LINES_MAX];
    struct tpcc_stock stocks[TPCC_LINES_MAX];
    bool known[TPCC_LINES_MAX]; /* the item exists */
    uint32_t o;
    int64_t total; /* what the terminal would show, in cents */
};

static int
on_item(void *arg, size_t i, const struct cohort_slice *value)
{
    struct new_order *n = arg;

    n->known[i] = value != NULL;
    return value != NULL ? tpcc_get_item(value, &n->items[i]) : 0;
}

static int
on_stock(void *arg, size_t i, const struct cohort_slice *value)
{
    struct new_order *n = arg;
    struct tpcc_key key;

    tpcc_key_stock(&key, n->in->lines[i].supply_w, n->in->lines[i].i);
    if (value == NULL)
        return tpcc_must(COHORT_NOTFOUND, TPCC_STOCK, &key);
    return tpcc_get_stock(value, &n->stocks[i]);
}

/* Warehouse, district, customer; takes the order's number. */
static int
begin_order(struct tpcc_terminal *t, struct new_order *n)
{
    const struct tpcc_input *in = n->in;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row row;
    uint32_t c;
    int rc;

    tpcc_key_district(&key, in->w, in->d);
    rc = tpcc_must(tpcc_get_lock(t->session, TPCC_DISTRICT, &key, &v), TPCC_DISTRICT, &key);
    if (rc == 0)
        rc = tpcc_get_district(&v, &n->district);
    if (rc != 0)
        return rc;
    n->o = n->district.next_o_id++;
    tpcc_put_district(&row, &n->district);
    rc = tpcc_put(t->session, TPCC_DISTRICT, &key, &row);
    if (rc != 0)
        return rc;
    tpcc_key_warehouse(&key, in->w);
    rc = tpcc_must(tpcc_get(t->session, TPCC_WAREHOUSE, &key, &v), TPCC_WAREHOUSE, &key);
    if (rc == 0)
        rc = tpcc_get_warehouse(&v, &n->warehouse);
    if (rc == 0)
        rc = tpcc_find_customer(t->session, &in->customer, false, &c, &n->customer);
    return rc;
}

static int
insert_order(struct tpcc_terminal *t, const struct new_order *n)
{
    static const struct tpcc_row empty;
    const struct tpcc_input *in = n->in;
    struct tpcc_order order = {
        .c = in->customer.c,
        .line_count = in->line_count,
        .all_local = true,
        .entry_date = t->now,
    };
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    for (uint32_t k = 0; k < in->line_count; k++)
        order.all_local = order.all_local && in->lines[k].supply_w == in->w;
    tpcc_put_order(&row, &order);
    tpcc_key_wdx(&key, in->w, in->d, n->o);
    rc = tpcc_insert(t->session, TPCC_ORDER, &key, &row);
    if (rc == 0)
        rc = tpcc_insert(t->session, TPCC_NEW_ORDER, &key, &empty);
    tpcc_key_order_customer(&key, in->w, in->d, in->customer.c, n->o);
    return rc != 0 ? rc : tpcc_insert(t->session, TPCC_ORDER_CUSTOMER, &key, &empty);
}

/* All items and stocks of the order, each table with one call. */
static int
read_items(struct tpcc_terminal *t, struct new_order *n)
{
    const struct tpcc_input *in = n->in;
    struct tpcc_key keys[TPCC_LINES_MAX];
    uint32_t known = 0;
    int rc;

    for (uint32_t k = 0; k < in->line_count; k++)
        tpcc_key_item(&keys[k], in->lines[k].i);
    rc = tpcc_get_many(t->session, TPCC_ITEM, in->line_count, keys, on_item, n);
    while (known < in->line_count && n->known[known])
        known++; /* only the last one may be unused */
    for (uint32_t k = 0; k < known; k++)
        tpcc_key_stock(&keys[k], in->lines[k].supply_w, in->lines[k].i);
    return rc != 0 ? rc : tpcc_get_many(t->session, TPCC_STOCK, known, keys, on_stock, n);
}

static int
add_line(struct tpcc_terminal *t, struct new_order *n, uint32_t k)
{
    const struct tpcc_input *in = n->in;
    const struct tpcc_line_input *l = &in->lines[k];
    struct tpcc_stock *s = &n->stocks[k];
    struct tpcc_order_line line = {.i = l->i, .supply_w = l->supply_w, .quantity = l->quantity};
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    if (k > 0 && l[-1].i == l->i && l[-1].supply_w == l->supply_w)
        *s = n->stocks[k - 1]; /* the same again: as the line before left it */
    s->quantity -= (int32_t)l->quantity;
    if (s->quantity < 10)
        s->quantity += 91;
    s->ytd += l->quantity;
    s->order_count++;
    s->remote_count += l->supply_w != in->w;
    tpcc_put_stock(&row, s);
    tpcc_key_stock(&key, l->supply_w, l->i);
    rc = tpcc_put(t->session, TPCC_STOCK, &key, &row);
    if (rc != 0)
        return rc;
    line.amount = (int64_t)l->quantity * n->items[k].price;
    n->total += line.amount;
    memcpy(line.dist, s->dist[in->d - 1], sizeof(line.dist));
    tpcc_put_order_line(&row, &line);
    tpcc_key_order_line(&key, in->w, in->d, n->o, k + 1);
    return tpcc_insert(t->session, TPCC_ORDER_LINE, &key, &row);
}

int
tpcc_new_order(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    struct new_order n = {.in = in};
    int rc;

    rc = begin_order(t, &n);
    if (rc == 0)
        rc = insert_order(t, &n);
    if (rc == 0)
        rc = read_items(t, &n);
    for (uint32_t k = 0; k < in->line_count && rc == 0; k++)
        rc = n.known[k] ? add_line(t, &n, k) : TPCC_ROLLBACK;
    t->number = n.o;
    return rc;
}

/* ---- Payment ---- */

/* 2.5.2.2: the data of a customer of bad credit begins with this payment. */
static void
note_payment(struct tpcc_customer *row, const struct tpcc_input *in, uint32_t c)
{
    char text[sizeof(row->data)];
    int n = snprintf(text, sizeof(text), "%u %u %u %u %u %lld.%02lld ", c, in->customer.d,
                     in->customer.w, in->d, in->w, (long long)in->amount / 100,
                     (long long)in->amount % 100);
    size_t keep = strlen(row->data);

    CH_ASSERT(n > 0 && (size_t)n < sizeof(text));
    keep = ch_min_u64(keep, sizeof(text) - 1 - (size_t)n);
    memcpy(text + n, row->data, keep);
    text[(size_t)n + keep] = '\0';
    memcpy(row->data, text, (size_t)n + keep + 1);
}

static int
pay_customer(struct tpcc_terminal *t, const struct tpcc_input *in, uint32_t *c)
{
    struct tpcc_customer row;
    struct tpcc_key key;
    struct tpcc_row out;
    int rc;

    rc = tpcc_find_customer(t->session, &in->customer, true, c, &row);
    if (rc != 0)
        return rc;
    row.balance -= in->amount;
    row.ytd_payment += in->amount;
    row.payment_count++;
    if (row.bad_credit)
        note_payment(&row, in, *c);
    tpcc_put_customer(&out, &row);
    tpcc_key_wdx(&key, in->customer.w, in->customer.d, *c);
    return tpcc_put(t->session, TPCC_CUSTOMER, &key, &out);
}

/* Warehouse and district; *h: number of the history row. */
static int
pay_district(struct tpcc_terminal *t, const struct tpcc_input *in, struct tpcc_history *history,
             uint32_t *h)
{
    struct tpcc_warehouse warehouse;
    struct tpcc_district district;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    tpcc_key_warehouse(&key, in->w);
    rc = tpcc_must(tpcc_get_lock(t->session, TPCC_WAREHOUSE, &key, &v), TPCC_WAREHOUSE, &key);
    if (rc == 0)
        rc = tpcc_get_warehouse(&v, &warehouse);
    if (rc != 0)
        return rc;
    warehouse.ytd += in->amount;
    tpcc_put_warehouse(&row, &warehouse);
    rc = tpcc_put(t->session, TPCC_WAREHOUSE, &key, &row);
    if (rc != 0)
        return rc;
    tpcc_key_district(&key, in->w, in->d);
    rc = tpcc_must(tpcc_get_lock(t->session, TPCC_DISTRICT, &key, &v), TPCC_DISTRICT, &key);
    if (rc == 0)
        rc = tpcc_get_district(&v, &district);
    if (rc != 0)
        return rc;
    district.ytd += in->amount;
    *h = district.next_h_id++;
    tpcc_put_district(&row, &district);
    snprintf(history->data, sizeof(history->data), "%s    %s", warehouse.name, district.name);
    return tpcc_put(t->session, TPCC_DISTRICT, &key, &row);
}

int
tpcc_payment(struct tpcc_terminal *t, const struct tpcc_input *in)
{
    struct tpcc_history history = {
        .c_w = in->customer.w,
        .c_d = in->customer.d,
        .date = t->now,
        .amount = in->amount,
    };
    struct tpcc_key key;
    struct tpcc_row row;
    uint32_t h = 0;
    int rc;

    rc = pay_district(t, in, &history, &h);
    if (rc == 0)
        rc = pay_customer(t, in, &history.c);
    if (rc != 0)
        return rc;
    t->number = h;
    tpcc_put_history(&row, &history);
    tpcc_key_wdx(&key, in->w, in->d, h);
    return tpcc_insert(t->session, TPCC_HISTORY, &key, &row);
}
