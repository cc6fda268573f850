/* tpcc_load.c - the initial population of clause 4.3.3.
 *
 * Work is cut into parts: the items, and for each warehouse its stock, and for each of its districts
 * customers with history, and orders. Threads take the next part and commit every LOAD_COMMIT rows;
 * nothing is durable before the checkpoint at the end, after which the scale is written. A part's rows
 * are a function of seed and part.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "bench/tpcc.h"
#include "rt/rt.h"

enum {
    LOAD_COMMIT = 500,
    LOAD_PARTS = 1 + 2 * TPCC_DISTRICTS, /* of a warehouse */
    LOAD_POLL_NS = 20000000
};

struct load {
    const struct tpcc_load *l;
    uint64_t parts;
    _Atomic uint64_t next;    /* threads among each other: part to do */
    _Atomic uint64_t rows;    /* threads -> progress */
    _Atomic uint64_t done;    /* threads -> progress: parts */
    _Atomic unsigned working; /* threads -> whoever waits for them */
    _Atomic bool failed;      /* threads among each other */
};

struct loader {
    struct load *load;
    struct rt_thread thread;
    struct tpcc_session *session;
    struct tpcc_random random;
    const struct tpcc_scale *scale;
    uint64_t now;
    unsigned pending;
    int rc;
    struct cohort_error error;
};

static int
loader_commit(struct loader *l)
{
    int rc;

    if (l->pending == 0)
        return 0;
    rc = l->session->store->ops->commit(l->session);
    if (rc == 0)
        atomic_fetch_add_explicit(&l->load->rows, l->pending, memory_order_relaxed);
    l->pending = 0;
    return rc;
}

static int
loader_insert(struct loader *l, enum tpcc_table table, const struct tpcc_key *key,
              const struct tpcc_row *row)
{
    int rc = 0;

    if (l->pending == 0)
        rc = l->session->store->ops->begin(l->session, false);
    if (rc != 0)
        return rc;
    l->pending++;
    rc = tpcc_insert(l->session, table, key, row);
    return rc == 0 && l->pending >= LOAD_COMMIT ? loader_commit(l) : rc;
}

static int
load_items(struct loader *l)
{
    struct tpcc_item item;
    struct tpcc_key key;
    struct tpcc_row row;
    int rc = 0;

    for (uint32_t i = 1; i <= l->scale->items && rc == 0; i++) {
        item.image = tpcc_between(&l->random, 1, 10000);
        item.price = tpcc_between(&l->random, 100, 10000);
        tpcc_text(&l->random, 14, 24, item.name);
        tpcc_original(&l->random, item.data);
        tpcc_put_item(&row, &item);
        tpcc_key_item(&key, i);
        rc = loader_insert(l, TPCC_ITEM, &key, &row);
    }
    return rc;
}

/* With the warehouse's own row and its districts'. */
static int
load_stock(struct loader *l, uint32_t w)
{
    struct tpcc_random *r = &l->random;
    struct tpcc_warehouse warehouse = {0};
    struct tpcc_district district = {0};
    struct tpcc_stock stock = {0};
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    district.ytd = (int64_t)l->scale->customers * 1000; /* $10 of each: 30,000.00 */
    warehouse.ytd = TPCC_DISTRICTS * district.ytd;
    warehouse.tax = tpcc_between(r, 0, 2000);
    tpcc_text(r, 6, 10, warehouse.name);
    tpcc_address_draw(r, &warehouse.address);
    tpcc_put_warehouse(&row, &warehouse);
    tpcc_key_warehouse(&key, w);
    rc = loader_insert(l, TPCC_WAREHOUSE, &key, &row);
    for (uint32_t d = 1; d <= TPCC_DISTRICTS && rc == 0; d++) {
        district.next_o_id = l->scale->orders + 1;
        district.next_h_id = l->scale->customers + 1;
        district.tax = tpcc_between(r, 0, 2000);
        tpcc_text(r, 6, 10, district.name);
        tpcc_address_draw(r, &district.address);
        tpcc_put_district(&row, &district);
        tpcc_key_district(&key, w, d);
        rc = loader_insert(l, TPCC_DISTRICT, &key, &row);
    }
    for (uint32_t i = 1; i <= l->scale->items && rc == 0; i++) {
        stock.quantity = (int32_t)tpcc_between(r, 10, 100);
        for (int d = 0; d < TPCC_DISTRICTS; d++)
            tpcc_text(r, TPCC_DIST_BYTES, TPCC_DIST_BYTES, stock.dist[d]);
        tpcc_original(r, stock.data);
        tpcc_put_stock(&row, &stock);
        tpcc_key_stock(&key, w, i);
        rc = loader_insert(l, TPCC_STOCK, &key, &row);
    }
    return rc;
}

static void
draw_customer(struct loader *l, uint32_t c, struct tpcc_customer *v)
{
    struct tpcc_random *r = &l->random;

    *v = (struct tpcc_customer){
        .balance = -1000,
        .ytd_payment = 1000,
        .credit_limit = 5000000,
        .since = l->now,
        .payment_count = 1,
        .middle = "OE",
    };
    tpcc_last_name(c <= 1000 ? c - 1 : tpcc_name_number(r, l->scale, l->scale->c_load), v->last);
    tpcc_text(r, 8, 16, v->first);
    tpcc_address_draw(r, &v->address);
    tpcc_digits(r, 16, v->phone);
    v->bad_credit = tpcc_percent(r, 10);
    v->discount = tpcc_between(r, 0, 5000);
    tpcc_text(r, 300, 500, v->data);
}

static int
load_customer(struct loader *l, uint32_t w, uint32_t d, uint32_t c)
{
    static const struct tpcc_row empty;
    struct tpcc_history history = {.c_w = w, .c_d = d, .c = c, .date = l->now, .amount = 1000};
    struct tpcc_customer customer;
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    draw_customer(l, c, &customer);
    tpcc_put_customer(&row, &customer);
    tpcc_key_wdx(&key, w, d, c);
    rc = loader_insert(l, TPCC_CUSTOMER, &key, &row);
    if (rc != 0)
        return rc;
    tpcc_text(&l->random, 12, 24, history.data);
    tpcc_put_history(&row, &history);
    rc = loader_insert(l, TPCC_HISTORY, &key, &row); /* numbered as the customers */
    tpcc_key_customer_name(&key, w, d, customer.last, customer.first, c);
    return rc != 0 ? rc : loader_insert(l, TPCC_CUSTOMER_NAME, &key, &empty);
}

static int
load_customers(struct loader *l, uint32_t w, uint32_t d)
{
    int rc = 0;

    for (uint32_t c = 1; c <= l->scale->customers && rc == 0; c++)
        rc = load_customer(l, w, d, c);
    return rc;
}

static int
load_order(struct loader *l, uint32_t w, uint32_t d, uint32_t o, uint32_t c)
{
    static const struct tpcc_row empty;
    struct tpcc_random *r = &l->random;
    bool delivered = o <= l->scale->orders - l->scale->new_orders;
    struct tpcc_order order = {
        .c = c,
        .carrier = delivered ? tpcc_between(r, 1, 10) : 0,
        .line_count = tpcc_between(r, 5, TPCC_LINES_MAX),
        .all_local = true,
        .entry_date = l->now,
    };
    struct tpcc_key key;
    struct tpcc_row row;
    int rc;

    tpcc_put_order(&row, &order);
    tpcc_key_wdx(&key, w, d, o);
    rc = loader_insert(l, TPCC_ORDER, &key, &row);
    if (rc == 0 && !delivered)
        rc = loader_insert(l, TPCC_NEW_ORDER, &key, &empty);
    tpcc_key_order_customer(&key, w, d, c, o);
    if (rc == 0)
        rc = loader_insert(l, TPCC_ORDER_CUSTOMER, &key, &empty);
    for (uint32_t n = 1; n <= order.line_count && rc == 0; n++) {
        struct tpcc_order_line line = {
            .i = tpcc_between(r, 1, l->scale->items),
            .supply_w = w,
            .quantity = 5,
            .amount = delivered ? 0 : tpcc_between(r, 1, 999999),
            .delivery_date = delivered ? l->now : 0,
        };

        tpcc_text(r, TPCC_DIST_BYTES, TPCC_DIST_BYTES, line.dist);
        tpcc_put_order_line(&row, &line);
        tpcc_key_order_line(&key, w, d, o, n);
        rc = loader_insert(l, TPCC_ORDER_LINE, &key, &row);
    }
    return rc;
}

static int
load_orders(struct loader *l, uint32_t w, uint32_t d)
{
    uint32_t *customers = calloc(l->scale->orders, sizeof(*customers));
    int rc = 0;

    if (customers == NULL)
        return CH_FAIL(COHORT_ENOMEM, "orders of a district");
    tpcc_permute(&l->random, customers, l->scale->orders);
    for (uint32_t o = 1; o <= l->scale->orders && rc == 0; o++)
        rc = load_order(l, w, d, o, customers[o - 1]);
    free(customers);
    return rc;
}

static int
load_part(struct loader *l, uint64_t part)
{
    uint32_t w, p;
    int rc;

    ch_prng_init(&l->random.prng, l->load->l->seed * UINT64_C(1000003) + part);
    l->now = rt_now_ns();
    if (part == 0) {
        rc = load_items(l);
    } else {
        w = (uint32_t)((part - 1) / LOAD_PARTS) + 1;
        p = (uint32_t)((part - 1) % LOAD_PARTS);
        if (p == 0)
            rc = load_stock(l, w);
        else if (p <= TPCC_DISTRICTS)
            rc = load_customers(l, w, p);
        else
            rc = load_orders(l, w, p - TPCC_DISTRICTS);
    }
    return rc == 0 ? loader_commit(l) : rc;
}

static void
loader_main(void *arg)
{
    struct loader *l = arg;
    struct load *load = l->load;
    int rc;

    rc = load->l->store->ops->session_open(load->l->store, &l->session);
    while (rc == 0 && !atomic_load_explicit(&load->failed, memory_order_relaxed)) {
        uint64_t part = atomic_fetch_add_explicit(&load->next, 1, memory_order_relaxed);

        if (part >= load->parts)
            break;
        rc = load_part(l, part);
        atomic_fetch_add_explicit(&load->done, 1, memory_order_relaxed);
    }
    if (rc != 0) {
        l->rc = rc;
        l->error = *cohort_last_error();
        atomic_store_explicit(&load->failed, true, memory_order_relaxed);
    }
    if (l->pending > 0 && load->l->store->ops->abort(l->session) != 0 && l->rc == 0)
        l->rc = COHORT_EFAILED; /* cannot be: rows are left over after an error only */
    load->l->store->ops->session_close(l->session);
    atomic_fetch_sub_explicit(&load->working, 1, memory_order_release);
}

static void
load_wait(struct load *load)
{
    uint64_t start = rt_now_ns(), shown = start;

    while (atomic_load_explicit(&load->working, memory_order_acquire) > 0) {
        uint64_t now = rt_now_ns();

        if (load->l->progress && now - shown >= UINT64_C(1000000000)) {
            uint64_t rows = atomic_load_explicit(&load->rows, memory_order_relaxed);

            shown = now;
            fprintf(stderr, "load %s: %llu rows, %.0f/s, %.1f of %u warehouses\n",
                    load->l->store->ops->name, (unsigned long long)rows,
                    (double)rows * 1e9 / (double)(now - start),
                    (double)atomic_load_explicit(&load->done, memory_order_relaxed) / LOAD_PARTS,
                    load->l->scale->warehouses);
        }
        rt_sleep_ns(LOAD_POLL_NS);
    }
}

static int
load_threads(struct load *load)
{
    uint64_t threads = load->l->threads, started = 0;
    struct loader *l = calloc(threads, sizeof(*l));
    int rc = 0;

    if (l == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%llu threads", (unsigned long long)threads);
    while (started < threads && rc == 0) {
        l[started].load = load;
        l[started].scale = load->l->scale;
        atomic_fetch_add_explicit(&load->working, 1, memory_order_relaxed);
        rc = rt_spawn(&l[started].thread, "tpcc-load", loader_main, &l[started]);
        if (rc == 0)
            started++;
        else
            atomic_fetch_sub_explicit(&load->working, 1, memory_order_relaxed);
    }
    if (rc != 0)
        atomic_store_explicit(&load->failed, true, memory_order_relaxed);
    load_wait(load);
    for (uint64_t i = 0; i < started; i++) {
        rt_join(&l[i].thread);
        if (l[i].rc != 0 && rc == 0)
            rc = CH_FAIL(l[i].rc, "load: %s", l[i].error.code == l[i].rc ? l[i].error.text : "");
    }
    free(l);
    return rc;
}

/* Written durably, after all the rest is. */
static int
load_finish(const struct tpcc_load *l)
{
    const struct tpcc_store_ops *ops = l->store->ops;
    struct tpcc_session *s = NULL;
    struct tpcc_key key;
    struct tpcc_row row;
    int rc, aborted;

    rc = ops->checkpoint(l->store);
    tpcc_store_loading(l->store, false);
    if (rc == 0)
        rc = ops->session_open(l->store, &s);
    if (rc == 0)
        rc = ops->begin(s, false);
    if (rc == 0) {
        tpcc_key_meta(&key);
        tpcc_put_scale(&row, l->scale);
        rc = tpcc_put(s, TPCC_META, &key, &row);
        if (rc == 0) {
            rc = ops->commit(s);
        } else {
            aborted = ops->abort(s);
            rc = aborted != 0 ? aborted : rc;
        }
    }
    ops->session_close(s);
    return rc == 0 ? ops->checkpoint(l->store) : rc;
}

int
tpcc_load(const struct tpcc_load *l)
{
    struct load load = {.l = l, .parts = 1 + (uint64_t)l->scale->warehouses * LOAD_PARTS};
    int rc;

    atomic_init(&load.next, 0);
    atomic_init(&load.rows, 0);
    atomic_init(&load.done, 0);
    atomic_init(&load.working, 0);
    atomic_init(&load.failed, false);
    tpcc_store_loading(l->store, true);
    rc = load_threads(&load);
    if (rc == 0)
        rc = load_finish(l);
    tpcc_store_loading(l->store, false);
    return rc;
}

int
tpcc_load_scale(struct tpcc_store *store, struct tpcc_scale *scale)
{
    const struct tpcc_store_ops *ops = store->ops;
    struct tpcc_session *s = NULL;
    struct cohort_slice v;
    struct tpcc_key key;
    int rc, ended;

    rc = ops->session_open(store, &s);
    if (rc == 0)
        rc = ops->begin(s, true);
    if (rc == 0) {
        tpcc_key_meta(&key);
        rc = tpcc_get(s, TPCC_META, &key, &v);
        if (rc == 0)
            rc = tpcc_get_scale(&v, scale);
        ended = ops->abort(s);
        rc = rc != 0 ? rc : ended;
    }
    ops->session_close(s);
    return rc == COHORT_NOTFOUND ? CH_FAIL(COHORT_ENODB, "no finished load of TPC-C") : rc;
}
