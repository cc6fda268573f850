/* tpcc_check.c - the consistency conditions of clause 3.3.2, in one pass over a snapshot.
 *
 * For each district its orders, new orders and order lines are walked side by side in the order of their
 * numbers (a merge), so that memory does not grow with them. History is by the district that was paid in,
 * customers may be of another one: condition 10 is settled at the end, from 8 bytes a customer.
 *
 *    1  W_YTD = sum(D_YTD)
 *    2  D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)
 *    3  max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER
 *    4  sum(O_OL_CNT) = rows of ORDER-LINE
 *    5  O_CARRIER_ID is null if and only if there is a row of NEW-ORDER
 *    6  O_OL_CNT = rows of ORDER-LINE of that order
 *    7  OL_DELIVERY_D is null if and only if O_CARRIER_ID is
 *    8  W_YTD = sum(H_AMOUNT)
 *    9  D_YTD = sum(H_AMOUNT)
 *   10  C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)
 *   11  rows of ORDER - rows of NEW-ORDER = 2100
 *   12  C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)
 *
 * As it stands 11 holds after load only: each Delivery adds one. So the orders delivered since, which
 * CUSTOMER counts (C_DELIVERY_CNT), are taken off. What the steady variant purged is added to the sums from
 * the archive: order lines in 10 and 12, history in 8 to 10, orders in 11. Where a district has no new
 * order, 2 says nothing of them and 3 nothing at all.
 *
 * Beside them, as number 0: an index holds the entries of its table's rows and no others, compared by
 * count and by a sum of hashes.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "bench/tpcc.h"

struct district_sums { /* of one district */
    struct tpcc_district row;
    uint32_t max_o, min_no, max_no;
    uint64_t orders, new_orders, lines, counted_lines, delivered;
    int64_t history;
    uint64_t index_count[2], index_hash[2]; /* rows less entries: customer names, order customers */
};

struct check {
    struct tpcc_session *session;
    const struct tpcc_scale *scale;
    struct tpcc_check *out;
    int64_t *balance; /* of each customer: C_BALANCE - lines + history, which must end at 0 */
    int64_t *lines;   /* of each customer of the district at hand: its delivered order lines */
    uint32_t w, d;
    struct district_sums s;
};

static void CH_PRINTF(3, 4) violated(struct check *c, int condition, const char *fmt, ...)
{
    va_list args;

    if (c->out->violations[condition]++ > 0)
        return;
    va_start(args, fmt);
    vsnprintf(c->out->first[condition], TPCC_CHECK_TEXT, fmt, args);
    va_end(args);
}

static uint64_t
hash_key(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* ---- a walk over the rows of a district ---- */

struct walk {
    const struct tpcc_store_ops *ops;
    struct tpcc_cursor *cursor;
    struct tpcc_key prefix;
    struct cohort_slice key, value;
    uint32_t x; /* number behind (w, d) */
    bool end;
};

static int
walk_look(struct walk *k, int rc)
{
    if (rc == 0)
        rc = k->ops->entry(k->cursor, &k->key, &k->value);
    if (rc == COHORT_NOTFOUND || (rc == 0 && !tpcc_key_under(&k->key, &k->prefix))) {
        k->end = true;
        return 0;
    }
    if (rc == 0 && k->key.bytes < TPCC_AT_X + 4)
        return CH_FAIL(COHORT_ECORRUPT, "a key of %zu bytes", k->key.bytes);
    if (rc == 0)
        k->x = tpcc_key_number(&k->key, TPCC_AT_X);
    return rc;
}

static int
walk_start(struct walk *k, struct check *c, enum tpcc_table table)
{
    int rc;

    *k = (struct walk){.ops = c->session->store->ops};
    tpcc_key_district(&k->prefix, c->w, c->d);
    rc = k->ops->cursor_open(c->session, table, &k->cursor);
    return rc == 0 ? walk_look(k, k->ops->seek(k->cursor, &k->prefix)) : rc;
}

static int
walk_next(struct walk *k)
{
    return walk_look(k, k->ops->next(k->cursor));
}

static void
walk_stop(struct walk *k)
{
    if (k->cursor != NULL)
        k->ops->cursor_close(k->cursor);
    k->cursor = NULL;
}

/* Calls row() for each row of the district in a table. */
static int
walk_all(struct check *c, enum tpcc_table table, int (*row)(struct check *c, const struct walk *k))
{
    struct walk k;
    int rc = walk_start(&k, c, table);

    while (rc == 0 && !k.end) {
        rc = row(c, &k);
        if (rc == 0)
            rc = walk_next(&k);
    }
    walk_stop(&k);
    return rc;
}

/* ---- orders, new orders and order lines side by side ---- */

struct merge {
    struct walk order, new_order, line;
};

/* Order lines of `o`, or of no order when `order` is NULL. */
static int
merge_lines(struct check *c, struct merge *m, uint32_t o, const struct tpcc_order *order)
{
    struct tpcc_order_line line;
    uint32_t count = 0;
    int64_t sum = 0;
    int rc = 0;

    while (rc == 0 && !m->line.end && m->line.x == o) {
        rc = tpcc_get_order_line(&m->line.value, &line);
        if (rc != 0)
            break;
        count++;
        if (line.delivery_date != 0)
            sum += line.amount;
        if (order == NULL || (line.delivery_date == 0) != (order->carrier == 0))
            violated(c, 7, "order line %u/%u/%u/%u: delivered %s, its order %s", c->w, c->d, o,
                     count, line.delivery_date != 0 ? "yes" : "no",
                     order == NULL         ? "is missing"
                     : order->carrier != 0 ? "yes"
                                           : "no");
        rc = walk_next(&m->line);
    }
    c->s.lines += count;
    if (order != NULL && order->line_count != count)
        violated(c, 6, "order %u/%u/%u: %u lines of %u", c->w, c->d, o, count, order->line_count);
    if (order != NULL && order->c >= 1 && order->c <= c->scale->customers)
        c->lines[order->c] += sum;
    return rc;
}

static int
merge_order(struct check *c, struct merge *m, uint32_t o)
{
    bool waiting = !m->new_order.end && m->new_order.x == o;
    struct tpcc_order order;
    struct tpcc_key key;
    int rc;

    rc = tpcc_get_order(&m->order.value, &order);
    if (rc != 0)
        return rc;
    if (order.c < 1 || order.c > c->scale->customers)
        violated(c, TPCC_CHECK_INDEX, "order %u/%u/%u: customer %u", c->w, c->d, o, order.c);
    tpcc_key_order_customer(&key, c->w, c->d, order.c, o);
    c->s.index_count[1]++;
    c->s.index_hash[1] += hash_key(key.data, key.bytes);
    c->s.orders++;
    c->s.max_o = o;
    c->s.counted_lines += order.line_count;
    if ((order.carrier == 0) != waiting)
        violated(c, 5, "order %u/%u/%u: carrier %u, %s new order", c->w, c->d, o, order.carrier,
                 waiting ? "a" : "no");
    rc = merge_lines(c, m, o, &order);
    return rc == 0 ? walk_next(&m->order) : rc;
}

static int
merge_new_order(struct check *c, struct merge *m)
{
    uint32_t o = m->new_order.x;

    if (c->s.new_orders++ == 0)
        c->s.min_no = o;
    c->s.max_no = o;
    return walk_next(&m->new_order);
}

static int
merge_step(struct check *c, struct merge *m)
{
    uint32_t o = UINT32_MAX;
    bool waiting, ordered;
    int rc;

    if (!m->order.end)
        o = m->order.x;
    if (!m->new_order.end && m->new_order.x < o)
        o = m->new_order.x;
    if (!m->line.end && m->line.x < o)
        o = m->line.x;
    ordered = !m->order.end && m->order.x == o;
    waiting = !m->new_order.end && m->new_order.x == o;
    if (waiting && !ordered)
        violated(c, 5, "new order %u/%u/%u: no such order", c->w, c->d, o);
    rc = ordered ? merge_order(c, m, o) : merge_lines(c, m, o, NULL);
    return rc == 0 && waiting ? merge_new_order(c, m) : rc;
}

static int
check_orders(struct check *c)
{
    struct merge m = {0};
    int rc;

    rc = walk_start(&m.order, c, TPCC_ORDER);
    if (rc == 0)
        rc = walk_start(&m.new_order, c, TPCC_NEW_ORDER);
    if (rc == 0)
        rc = walk_start(&m.line, c, TPCC_ORDER_LINE);
    while (rc == 0 && !(m.order.end && m.new_order.end && m.line.end))
        rc = merge_step(c, &m);
    walk_stop(&m.order);
    walk_stop(&m.new_order);
    walk_stop(&m.line);
    return rc;
}

/* ---- the other tables ---- */

static int64_t *
balance_of(struct check *c, uint32_t w, uint32_t d, uint32_t customer)
{
    if (w < 1 || w > c->scale->warehouses || d < 1 || d > TPCC_DISTRICTS || customer < 1 ||
        customer > c->scale->customers)
        return NULL;
    return &c->balance[((uint64_t)(w - 1) * TPCC_DISTRICTS + d - 1) * c->scale->customers +
                       customer - 1];
}

static int
on_archive(struct check *c, const struct walk *k)
{
    struct tpcc_archive a;
    int64_t *balance = balance_of(c, c->w, c->d, k->x);
    int rc = tpcc_get_archive(&k->value, &a);

    if (rc != 0)
        return rc;
    if (k->x == 0) {
        c->s.orders += a.orders;
        c->s.history += a.history;
    } else if (balance != NULL) {
        c->lines[k->x] += a.lines;
        *balance += a.history;
    }
    return 0;
}

static int
on_history(struct check *c, const struct walk *k)
{
    struct tpcc_history h;
    int64_t *balance;
    int rc = tpcc_get_history(&k->value, &h);

    if (rc != 0)
        return rc;
    c->out->history++;
    c->s.history += h.amount;
    balance = balance_of(c, h.c_w, h.c_d, h.c);
    if (balance != NULL)
        *balance += h.amount;
    else
        violated(c, 10, "history %u/%u/%u: no customer %u/%u/%u", c->w, c->d, k->x, h.c_w, h.c_d,
                 h.c);
    return 0;
}

static int
on_customer(struct check *c, const struct walk *k)
{
    struct tpcc_customer row;
    struct tpcc_key key;
    int64_t *balance = balance_of(c, c->w, c->d, k->x);
    int rc = tpcc_get_customer(&k->value, &row);

    if (rc != 0)
        return rc;
    c->out->customers++;
    c->s.delivered += row.delivery_count;
    tpcc_key_customer_name(&key, c->w, c->d, row.last, row.first, k->x);
    c->s.index_count[0]++;
    c->s.index_hash[0] += hash_key(key.data, key.bytes);
    if (balance == NULL) {
        violated(c, TPCC_CHECK_INDEX, "customer %u/%u/%u is one too many", c->w, c->d, k->x);
        return 0;
    }
    *balance += row.balance - c->lines[k->x];
    if (row.balance + row.ytd_payment != c->lines[k->x])
        violated(c, 12, "customer %u/%u/%u: balance %lld + paid %lld, order lines %lld", c->w, c->d,
                 k->x, (long long)row.balance, (long long)row.ytd_payment,
                 (long long)c->lines[k->x]);
    return 0;
}

static int
on_name_entry(struct check *c, const struct walk *k)
{
    c->s.index_count[0]--;
    c->s.index_hash[0] -= hash_key(k->key.data, k->key.bytes);
    return 0;
}

static int
on_order_entry(struct check *c, const struct walk *k)
{
    c->s.index_count[1]--;
    c->s.index_hash[1] -= hash_key(k->key.data, k->key.bytes);
    return 0;
}

/* ---- conditions of a district ---- */

static void
judge_district(struct check *c)
{
    const struct district_sums *s = &c->s;
    uint64_t at_load = c->scale->orders - c->scale->new_orders;

    if (s->row.next_o_id - 1 != s->max_o || (s->new_orders > 0 && s->max_no != s->max_o))
        violated(c, 2, "district %u/%u: next order %u, newest order %u, newest new order %u", c->w,
                 c->d, s->row.next_o_id, s->max_o, s->max_no);
    if (s->new_orders > 0 && (uint64_t)s->max_no - s->min_no + 1 != s->new_orders)
        violated(c, 3, "district %u/%u: new orders %u to %u, but %llu of them", c->w, c->d,
                 s->min_no, s->max_no, (unsigned long long)s->new_orders);
    if (s->counted_lines != s->lines)
        violated(c, 4, "district %u/%u: orders count %llu lines, there are %llu", c->w, c->d,
                 (unsigned long long)s->counted_lines, (unsigned long long)s->lines);
    if (s->row.ytd != s->history)
        violated(c, 9, "district %u/%u: year to date %lld, history %lld", c->w, c->d,
                 (long long)s->row.ytd, (long long)s->history);
    if (s->orders - s->new_orders != at_load + s->delivered)
        violated(c, 11, "district %u/%u: %llu orders, %llu new, %llu delivered since load", c->w,
                 c->d, (unsigned long long)s->orders, (unsigned long long)s->new_orders,
                 (unsigned long long)s->delivered);
    for (int i = 0; i < 2; i++)
        if (s->index_count[i] != 0 || s->index_hash[i] != 0)
            violated(c, TPCC_CHECK_INDEX, "district %u/%u: index %s: %lld entries are missing",
                     c->w, c->d,
                     tpcc_table_names[i == 0 ? TPCC_CUSTOMER_NAME : TPCC_ORDER_CUSTOMER],
                     (long long)s->index_count[i]);
}

static int
check_district(struct check *c)
{
    struct cohort_slice v;
    struct tpcc_key key;
    int rc;

    c->s = (struct district_sums){0};
    memset(c->lines, 0, (c->scale->customers + 1) * sizeof(*c->lines));
    tpcc_key_district(&key, c->w, c->d);
    rc = tpcc_must(tpcc_get(c->session, TPCC_DISTRICT, &key, &v), TPCC_DISTRICT, &key);
    if (rc == 0)
        rc = tpcc_get_district(&v, &c->s.row);
    if (rc == 0)
        rc = check_orders(c);
    c->out->orders += c->s.orders;
    c->out->new_orders += c->s.new_orders;
    c->out->order_lines += c->s.lines;
    if (rc == 0)
        rc = walk_all(c, TPCC_ARCHIVE, on_archive);
    if (rc == 0)
        rc = walk_all(c, TPCC_HISTORY, on_history);
    if (rc == 0)
        rc = walk_all(c, TPCC_CUSTOMER, on_customer);
    if (rc == 0)
        rc = walk_all(c, TPCC_CUSTOMER_NAME, on_name_entry);
    if (rc == 0)
        rc = walk_all(c, TPCC_ORDER_CUSTOMER, on_order_entry);
    if (rc == 0)
        judge_district(c);
    return rc;
}

static int
check_warehouse(struct check *c)
{
    struct tpcc_warehouse row;
    struct cohort_slice v;
    struct tpcc_key key;
    int64_t ytd = 0, history = 0;
    int rc;

    tpcc_key_warehouse(&key, c->w);
    rc = tpcc_must(tpcc_get(c->session, TPCC_WAREHOUSE, &key, &v), TPCC_WAREHOUSE, &key);
    if (rc == 0)
        rc = tpcc_get_warehouse(&v, &row);
    for (c->d = 1; c->d <= TPCC_DISTRICTS && rc == 0; c->d++) {
        rc = check_district(c);
        ytd += c->s.row.ytd;
        history += c->s.history;
    }
    if (rc != 0)
        return rc;
    if (row.ytd != ytd)
        violated(c, 1, "warehouse %u: year to date %lld, its districts %lld", c->w,
                 (long long)row.ytd, (long long)ytd);
    if (row.ytd != history)
        violated(c, 8, "warehouse %u: year to date %lld, history %lld", c->w, (long long)row.ytd,
                 (long long)history);
    return 0;
}

static void
judge_balances(struct check *c)
{
    const uint64_t customers = c->scale->customers;
    const uint64_t n = (uint64_t)c->scale->warehouses * TPCC_DISTRICTS * customers;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t district = i / customers;

        if (c->balance[i] != 0)
            violated(c, 10, "customer %u/%u/%u: balance is off by %lld",
                     (uint32_t)(district / TPCC_DISTRICTS) + 1,
                     (uint32_t)(district % TPCC_DISTRICTS) + 1, (uint32_t)(i % customers) + 1,
                     (long long)c->balance[i]);
    }
}

int
tpcc_check(struct tpcc_store *store, const struct tpcc_scale *scale, struct tpcc_check *out)
{
    struct check c = {.scale = scale, .out = out};
    int rc, ended;

    memset(out, 0, sizeof(*out));
    c.balance =
        calloc((uint64_t)scale->warehouses * TPCC_DISTRICTS * scale->customers, sizeof(*c.balance));
    c.lines = calloc(scale->customers + 1, sizeof(*c.lines));
    rc = c.balance == NULL || c.lines == NULL ? CH_FAIL(COHORT_ENOMEM, "sums of all customers") : 0;
    if (rc == 0)
        rc = store->ops->session_open(store, &c.session);
    if (rc == 0) {
        rc = store->ops->begin(c.session, true);
        if (rc == 0) {
            for (c.w = 1; c.w <= scale->warehouses && rc == 0; c.w++)
                rc = check_warehouse(&c);
            ended = store->ops->abort(c.session);
            rc = rc != 0 ? rc : ended;
        }
        store->ops->session_close(c.session);
    }
    if (rc == 0)
        judge_balances(&c);
    free(c.lines);
    free(c.balance);
    return rc;
}

bool
tpcc_check_ok(const struct tpcc_check *c)
{
    for (int i = 0; i <= TPCC_CONDITIONS; i++)
        if (c->violations[i] != 0)
            return false;
    return true;
}

int
tpcc_check_status(const struct tpcc_check *c)
{
    for (int i = 0; i <= TPCC_CONDITIONS; i++)
        if (c->violations[i] != 0)
            return CH_FAIL(COHORT_ECORRUPT, "TPC-C %s %d, %llu times: %s",
                           i == TPCC_CHECK_INDEX ? "check" : "condition", i,
                           (unsigned long long)c->violations[i], c->first[i]);
    return 0;
}
