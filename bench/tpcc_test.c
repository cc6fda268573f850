/* tpcc_test.c - TPC-C at small scale on each engine of this build: load, run, conditions.
 *
 * What the transactions do is judged by the conditions; that the conditions see is tested by breaking
 * each of them on purpose. COHORT_TPCC_ENGINE=NAME restricts the tests to one engine.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "bench/tpcc.h"
#include "rt/rt.h"
#include "zt.h"

enum {
    TEST_WAREHOUSES = 3,
    TEST_DIVISOR = 100 /* 1,000 items, 30 customers and orders a district, 9 of them new */
};

struct world {
    struct zt *t;
    struct tpcc_scale scale;
    struct tpcc_store_config config;
    struct cohort_options options;
    const struct tpcc_store_ops *ops;
    struct tpcc_store *store;
    struct tpcc_session *session;
};

static const char *const engines[] = {"cohort", "lmdb", "wiredtiger"};

/* False when the engine is not built in. */
static bool
world_open(struct world *w, struct zt *t, const char *engine)
{
    const char *only = getenv("COHORT_TPCC_ENGINE");

    *w = (struct world){.t = t};
    if (only != NULL && strcmp(only, engine) != 0)
        return false;
    if (tpcc_store_find(engine, &w->ops) != 0)
        return false;
    tpcc_scale_init(&w->scale, TEST_WAREHOUSES, TEST_DIVISOR);
    w->scale.c_load = (uint32_t)zt_below(t, 256);
    cohort_options_init(&w->options);
    ZT_OK(t, cohort_options_set(&w->options, "create", "yes"));
    ZT_OK(t, cohort_options_set(&w->options, "max_bytes", "256M"));
    w->config = (struct tpcc_store_config){
        .where = zt_tmpdir(t),
        .options = &w->options,
        .cache_bytes = 4 << 20,
        .bytes_max = 256 << 20,
        .threads = 8,
        .durability = COHORT_DURABILITY_NONE,
        .isolation = zt_below(t, 2) == 0 ? COHORT_SNAPSHOT : COHORT_SERIALIZABLE,
        .create = true,
    };
    ZT_OK(t, w->ops->open(&w->config, &w->store));
    return true;
}

static void
world_load(struct world *w)
{
    struct tpcc_load l = {.store = w->store, .scale = &w->scale, .threads = 2, .seed = w->t->seed};

    ZT_OK(w->t, tpcc_load(&l));
    ZT_OK(w->t, w->ops->session_open(w->store, &w->session));
}

static void
world_close(struct world *w)
{
    w->ops->session_close(w->session);
    w->session = NULL;
    ZT_OK(w->t, w->ops->close(w->store));
}

static void
check_holds(struct world *w)
{
    struct tpcc_check *c = malloc(sizeof(*c));

    ZT_CHECK(w->t, c != NULL);
    ZT_OK(w->t, tpcc_check(w->store, &w->scale, c));
    ZT_OK(w->t, tpcc_check_status(c));
    ZT_CHECK(w->t, c->customers == (uint64_t)TEST_WAREHOUSES * 10 * w->scale.customers);
    free(c);
}

static void
run_mix(struct world *w, bool steady, uint64_t ops, struct tpcc_result *out)
{
    struct tpcc_run r = {
        .store = w->store,
        .scale = &w->scale,
        .threads = 2,
        .seed = w->t->seed,
        .ops = ops,
        .steady = steady,
    };

    ZT_OK(w->t, tpcc_run(&r, out));
    ZT_CHECK(w->t, tpcc_result_done(out) == ops);
}

/* ---- pure parts ---- */

/* Goal: keys sort as their parts do, rows come back as they were. */
static void
test_schema(struct zt *t)
{
    struct tpcc_random r = {.prng = t->rng};
    struct tpcc_customer a = {0}, b;
    struct tpcc_key k1, k2;
    struct tpcc_row row;
    struct cohort_slice s;

    tpcc_key_customer_name(&k1, 1, 2, "BARBAR", "zzz", 9);
    tpcc_key_customer_name(&k2, 1, 2, "BARBARA", "a", 1);
    ZT_CHECK(t, memcmp(k1.data, k2.data, ch_min_u64(k1.bytes, k2.bytes)) < 0);
    for (int i = 0; i < 100; i++) {
        uint32_t x = (uint32_t)ch_prng_next(&t->rng), y = (uint32_t)ch_prng_next(&t->rng);

        tpcc_key_wdx(&k1, 7, 3, x);
        tpcc_key_wdx(&k2, 7, 3, y);
        ZT_CHECK(t, (memcmp(k1.data, k2.data, k1.bytes) < 0) == (x < y));
        tpcc_key_order_customer(&k1, 7, 3, 5, x);
        tpcc_key_order_customer(&k2, 7, 3, 5, y);
        ZT_CHECK(t, (memcmp(k1.data, k2.data, k1.bytes) < 0) == (x > y));
        s = (struct cohort_slice){k1.data, k1.bytes};
        ZT_CHECK(t, ~tpcc_key_number(&s, TPCC_AT_ORDER) == x);
    }
    a.balance = -1234;
    a.bad_credit = true;
    tpcc_text(&r, 300, 500, a.data);
    tpcc_text(&r, 8, 16, a.first);
    tpcc_address_draw(&r, &a.address);
    tpcc_put_customer(&row, &a);
    s = (struct cohort_slice){row.data, row.bytes};
    ZT_OK(t, tpcc_get_customer(&s, &b));
    ZT_CHECK(t, b.balance == a.balance && b.bad_credit && strcmp(a.data, b.data) == 0 &&
                    strcmp(a.first, b.first) == 0 && strcmp(a.address.zip, b.address.zip) == 0);
    for (size_t n = 0; n < row.bytes; n++) { /* no prefix of a row is a row */
        s.bytes = n;
        ZT_STATUS(t, tpcc_get_customer(&s, &b), COHORT_ECORRUPT);
    }
}

/* Goal: the numbers of 2.1.6 and 4.3.2.3 lie in their ranges, and the constants keep their distance. */
static void
test_random(struct zt *t)
{
    struct tpcc_random r = {.prng = t->rng};
    struct tpcc_scale s;
    char name[TPCC_NAME_MAX + 1];
    uint32_t load = (uint32_t)zt_below(t, 256), delta;

    tpcc_scale_init(&s, 4, 1);
    ZT_CHECK(t,
             s.items == 100000 && s.customers == 3000 && s.orders == 3000 && s.new_orders == 900);
    tpcc_constants_draw(&r.constants, &r.prng, load);
    delta = load > r.constants.c_last ? load - r.constants.c_last : r.constants.c_last - load;
    ZT_CHECK(t, delta >= 65 && delta <= 119 && delta != 96 && delta != 112);
    for (int i = 0; i < 1000; i++) {
        uint32_t c = tpcc_customer_id(&r, &s), item = tpcc_item_id(&r, &s);

        ZT_CHECK(t, c >= 1 && c <= 3000 && item >= 1 && item <= 100000);
        ZT_CHECK(t, tpcc_name_number(&r, &s, r.constants.c_last) < 1000);
    }
    tpcc_last_name(371, name);
    ZT_CHECK(t, strcmp(name, "PRICALLYOUGHT") == 0);
    tpcc_last_name(0, name);
    ZT_CHECK(t, strcmp(name, "BARBARBAR") == 0);
}

/* Goal: the mix, the share of remote work, of rollbacks and of last names are those of the
 * specification, within four standard deviations. */
static void
test_mix(struct zt *t)
{
    enum {
        N = 20000
    };
    struct tpcc_scale s;
    struct tpcc_terminal term = {.scale = &s, .random = {.prng = t->rng}};
    uint32_t kinds[TPCC_KINDS] = {0}, lines = 0, remote = 0, unused = 0, away = 0, named = 0;
    struct tpcc_input in;

    tpcc_scale_init(&s, 5, 1);
    tpcc_constants_draw(&term.random.constants, &term.random.prng, 7);
    for (int i = 0; i < N; i++) {
        tpcc_draw(&term, &in);
        kinds[in.kind]++;
        if (in.kind == TPCC_PAYMENT_TXN) {
            away += in.customer.w != in.w;
            named += in.customer.c == 0;
        }
        for (uint32_t k = 0; in.kind == TPCC_NEW_ORDER_TXN && k < in.line_count; k++) {
            lines++;
            remote += in.lines[k].supply_w != in.w;
            unused += in.lines[k].i > s.items;
            ZT_CHECK(t, in.lines[k].supply_w >= 1 && in.lines[k].supply_w <= 5);
        }
    }
    ZT_CHECK(t, kinds[TPCC_NEW_ORDER_TXN] > 8700 && kinds[TPCC_NEW_ORDER_TXN] < 9300);
    ZT_CHECK(t, kinds[TPCC_PAYMENT_TXN] > 8310 && kinds[TPCC_PAYMENT_TXN] < 8890);
    for (int k = TPCC_ORDER_STATUS_TXN; k <= TPCC_STOCK_LEVEL_TXN; k++)
        ZT_CHECK(t, kinds[k] > 680 && kinds[k] < 920);
    ZT_CHECK(t, kinds[TPCC_PURGE_TXN] == 0);
    ZT_CHECK(t, lines > 88000 && lines < 92000 && remote > 780 && remote < 1020);
    ZT_CHECK(t, unused > 50 && unused < 130);
    ZT_CHECK(t, away > 1150 && away < 1430 && named > 4950 && named < 5370);
    term.steady = true;
    for (int i = 0; i < N; i++) {
        tpcc_draw(&term, &in);
        kinds[TPCC_PURGE_TXN] += in.kind == TPCC_PURGE_TXN;
    }
    ZT_CHECK(t, kinds[TPCC_PURGE_TXN] > 650 && kinds[TPCC_PURGE_TXN] < 890);
}

/* ---- on the engines ---- */

/* Goal: the conditions hold after load, after a run with two threads, and after closing and opening. */
static void
test_growing(struct zt *t)
{
    struct tpcc_result *r = malloc(sizeof(*r));
    struct tpcc_scale found;
    struct world w;

    ZT_CHECK(t, r != NULL);
    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        if (!world_open(&w, t, engines[e]))
            continue;
        ZT_STATUS(t, tpcc_load_scale(w.store, &found), COHORT_ENODB);
        world_load(&w);
        check_holds(&w);
        run_mix(&w, false, 2000, r);
        check_holds(&w);
        ZT_CHECK(t, r->counts[TPCC_NEW_ORDER_TXN].committed > 700);
        ZT_CHECK(t, r->counts[TPCC_NEW_ORDER_TXN].rolled_back > 0);
        ZT_CHECK(t, r->delivered > 0);
        world_close(&w);
        w.config.create = false;
        ZT_OK(t, w.ops->open(&w.config, &w.store));
        ZT_OK(t, tpcc_load_scale(w.store, &found));
        ZT_CHECK(t, memcmp(&found, &w.scale, sizeof(found)) == 0);
        check_holds(&w);
        world_close(&w);
    }
    free(r);
}

/* Goal: the steady variant keeps its size, and the conditions hold with what it archived. */
static void
test_steady(struct zt *t)
{
    struct tpcc_result *r = malloc(sizeof(*r));
    struct tpcc_check *c = malloc(sizeof(*c));
    struct world w;
    uint64_t districts = (uint64_t)TEST_WAREHOUSES * TPCC_DISTRICTS;

    ZT_CHECK(t, r != NULL && c != NULL);
    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        if (!world_open(&w, t, engines[e]))
            continue;
        world_load(&w);
        run_mix(&w, true, 6000, r);
        ZT_CHECK(t, r->purged > 1500 && r->skipped == 0);
        ZT_OK(t, tpcc_check(w.store, &w.scale, c));
        ZT_OK(t, tpcc_check_status(c));
        /* After 2,600 new orders, 87 a district. */
        ZT_CHECK(t, c->orders < districts * (w.scale.orders + 12));
        ZT_CHECK(t, c->history < districts * (w.scale.customers + 12));
        ZT_CHECK(t, c->new_orders < districts * (w.scale.new_orders + 12));
        world_close(&w);
    }
    free(c);
    free(r);
}

/* Goal: a New-Order with an unused item leaves nothing behind, not even its number. */
static void
test_rollback(struct zt *t)
{
    struct tpcc_input in;
    struct world w;

    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        struct tpcc_terminal term = {.scale = &w.scale, .random = {.prng = t->rng}};
        uint32_t before[2], after[2];

        if (!world_open(&w, t, engines[e]))
            continue;
        world_load(&w);
        term.session = w.session;
        tpcc_draw_kind(&term, TPCC_NEW_ORDER_TXN, &in);
        ZT_OK(t, w.ops->begin(w.session, true));
        ZT_OK(t, tpcc_range(w.session, TPCC_ORDER, in.w, in.d, true, before));
        ZT_OK(t, w.ops->abort(w.session));
        in.lines[in.line_count - 1].i = w.scale.items + 1;
        ZT_OK(t, tpcc_execute(&term, &in, NULL));
        ZT_CHECK(t, term.counts[TPCC_NEW_ORDER_TXN].rolled_back == 1);
        ZT_CHECK(t, term.counts[TPCC_NEW_ORDER_TXN].committed == 0);
        in.lines[in.line_count - 1].i = 1;
        ZT_OK(t, tpcc_execute(&term, &in, NULL));
        ZT_CHECK(t, term.counts[TPCC_NEW_ORDER_TXN].committed == 1);
        ZT_OK(t, w.ops->begin(w.session, true));
        ZT_OK(t, tpcc_range(w.session, TPCC_ORDER, in.w, in.d, true, after));
        ZT_OK(t, w.ops->abort(w.session));
        ZT_CHECK(t, before[0] == after[0] && before[1] + 1 == after[1]);
        check_holds(&w);
        world_close(&w);
    }
}

/* Goal: Delivery takes each district's oldest new order, and credits its customer. */
static void
test_delivery(struct zt *t)
{
    struct world w;

    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        struct tpcc_terminal term = {.scale = &w.scale, .random = {.prng = t->rng}};
        struct tpcc_input in;
        uint32_t range[2];

        if (!world_open(&w, t, engines[e]))
            continue;
        world_load(&w);
        term.session = w.session;
        tpcc_draw_kind(&term, TPCC_DELIVERY_TXN, &in);
        for (uint32_t i = 0; i <= w.scale.new_orders; i++)
            ZT_OK(t, tpcc_execute(&term, &in, NULL));
        ZT_CHECK(t, term.delivered == (uint64_t)TPCC_DISTRICTS * w.scale.new_orders);
        ZT_CHECK(t, term.skipped == TPCC_DISTRICTS);
        ZT_OK(t, w.ops->begin(w.session, true));
        ZT_STATUS(t, tpcc_range(w.session, TPCC_NEW_ORDER, in.w, 1, false, range), COHORT_NOTFOUND);
        ZT_OK(t, w.ops->abort(w.session));
        check_holds(&w);
        world_close(&w);
    }
}

static void
read_stock(struct world *w, uint32_t i, struct tpcc_stock *out)
{
    struct cohort_slice v;
    struct tpcc_key key;

    tpcc_key_stock(&key, 1, i);
    ZT_OK(w->t, tpcc_get(w->session, TPCC_STOCK, &key, &v));
    ZT_OK(w->t, tpcc_get_stock(&v, out));
}

/* An order of twice the same item, then the customer's status. */
static void
check_same_item(struct world *w, struct tpcc_terminal *term)
{
    struct tpcc_input in = {.kind = TPCC_NEW_ORDER_TXN, .w = 1, .d = 3, .line_count = 3};
    struct tpcc_stock before, after;
    int32_t left;

    in.customer = (struct tpcc_customer_input){.w = 1, .d = 3, .c = 7};
    in.lines[0] = (struct tpcc_line_input){.i = 5, .supply_w = 1, .quantity = 3};
    in.lines[1] = (struct tpcc_line_input){.i = 5, .supply_w = 1, .quantity = 4};
    in.lines[2] = (struct tpcc_line_input){.i = 5, .supply_w = 2, .quantity = 9};
    ZT_OK(w->t, w->ops->begin(w->session, true));
    read_stock(w, 5, &before);
    ZT_OK(w->t, w->ops->abort(w->session));
    ZT_OK(w->t, tpcc_execute(term, &in, NULL));
    ZT_CHECK(w->t, term->number == w->scale.orders + 1);
    ZT_OK(w->t, w->ops->begin(w->session, true));
    read_stock(w, 5, &after);
    ZT_OK(w->t, w->ops->abort(w->session));
    left = before.quantity - 3 < 10 ? before.quantity - 3 + 91 : before.quantity - 3;
    left = left - 4 < 10 ? left - 4 + 91 : left - 4;
    ZT_CHECK(w->t, after.order_count == before.order_count + 2 && after.ytd == before.ytd + 7 &&
                       after.remote_count == before.remote_count && after.quantity == left);
    in.kind = TPCC_ORDER_STATUS_TXN;
    term->number = 0;
    ZT_OK(w->t, tpcc_execute(term, &in, NULL));
    ZT_CHECK(w->t, term->number == w->scale.orders + 1);
}

/* Stock-Level against a count by other means. */
static void
check_stock_level(struct world *w, struct tpcc_terminal *term)
{
    struct tpcc_input in = {.kind = TPCC_STOCK_LEVEL_TXN, .w = 1, .d = 3, .threshold = 60};
    bool seen[1000 + 1] = {false}; /* items at this scale */
    struct tpcc_stock stock;
    struct tpcc_lines lines;
    uint32_t low = 0, range[2];

    ZT_OK(w->t, w->ops->begin(w->session, true));
    ZT_OK(w->t, tpcc_range(w->session, TPCC_ORDER, 1, 3, true, range));
    for (uint32_t o = range[1] - 19; o <= range[1]; o++) {
        ZT_OK(w->t, tpcc_read_lines(w->session, 1, 3, o, &lines));
        for (uint32_t k = 0; k < lines.count; k++) {
            read_stock(w, lines.row[k].i, &stock);
            low += !seen[lines.row[k].i] && stock.quantity < 60;
            seen[lines.row[k].i] = true;
        }
    }
    ZT_OK(w->t, w->ops->abort(w->session));
    ZT_OK(w->t, tpcc_execute(term, &in, NULL));
    ZT_CHECK(w->t, low > 0 && term->low_stock == low);
}

/* The customer found by name is the middle one by first name of all that have it. */
static void
check_by_name(struct world *w)
{
    struct tpcc_customer_input in = {.w = 2, .d = 4};
    struct tpcc_customer middle, row;
    struct cohort_slice v;
    struct tpcc_key key;
    uint32_t c, below = 0, all = 0;

    tpcc_last_name(3, in.last);
    ZT_OK(w->t, w->ops->begin(w->session, false));
    for (uint32_t i = 10; i < 14; i++) { /* give the name to more */
        tpcc_key_wdx(&key, 2, 4, i);
        ZT_OK(w->t, tpcc_get(w->session, TPCC_CUSTOMER, &key, &v));
        ZT_OK(w->t, tpcc_get_customer(&v, &row));
        tpcc_key_customer_name(&key, 2, 4, in.last, row.first, i);
        ZT_OK(w->t, tpcc_put(w->session, TPCC_CUSTOMER_NAME, &key, &(struct tpcc_row){0}));
    }
    ZT_OK(w->t, tpcc_find_customer(w->session, &in, false, &c, &middle));
    for (uint32_t i = 1; i <= w->scale.customers; i++) {
        if (i != 4 && (i < 10 || i >= 14))
            continue;
        tpcc_key_wdx(&key, 2, 4, i);
        ZT_OK(w->t, tpcc_get(w->session, TPCC_CUSTOMER, &key, &v));
        ZT_OK(w->t, tpcc_get_customer(&v, &row));
        all++;
        below += strcmp(row.first, middle.first) < 0;
    }
    ZT_OK(w->t, w->ops->abort(w->session));
    ZT_CHECK(w->t, all == 5 && below == 2);
}

/* Goal: what the terminal would show is right: numbers, stock, levels, the customer of a name. */
static void
test_answers(struct zt *t)
{
    struct world w;

    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        struct tpcc_terminal term = {.scale = &w.scale, .random = {.prng = t->rng}};

        if (!world_open(&w, t, engines[e]))
            continue;
        world_load(&w);
        term.session = w.session;
        check_same_item(&w, &term);
        check_stock_level(&w, &term);
        check_by_name(&w);
        check_holds(&w);
        world_close(&w);
    }
}

/* ---- planted inconsistencies ---- */

static void
get_row(struct world *w, enum tpcc_table table, const struct tpcc_key *key, struct cohort_slice *v)
{
    ZT_OK(w->t, tpcc_get(w->session, table, key, v));
}

static void
put_row(struct world *w, enum tpcc_table table, const struct tpcc_key *key,
        const struct tpcc_row *row)
{
    ZT_OK(w->t, tpcc_put(w->session, table, key, row));
}

static void
break_warehouse(struct world *w)
{
    struct tpcc_warehouse row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_warehouse(&key, 2);
    get_row(w, TPCC_WAREHOUSE, &key, &v);
    ZT_OK(w->t, tpcc_get_warehouse(&v, &row));
    row.ytd++;
    tpcc_put_warehouse(&out, &row);
    put_row(w, TPCC_WAREHOUSE, &key, &out);
}

static void
change_district(struct world *w, int64_t ytd, uint32_t next)
{
    struct tpcc_district row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_district(&key, 2, 5);
    get_row(w, TPCC_DISTRICT, &key, &v);
    ZT_OK(w->t, tpcc_get_district(&v, &row));
    row.ytd += ytd;
    row.next_o_id += next;
    tpcc_put_district(&out, &row);
    put_row(w, TPCC_DISTRICT, &key, &out);
}

static void
break_district(struct world *w)
{
    change_district(w, 100, 0);
}

static void
break_next_order(struct world *w)
{
    change_district(w, 0, 1);
}

/* Removes the middle one of the new orders. */
static void
break_new_order(struct world *w)
{
    struct tpcc_key key;

    tpcc_key_wdx(&key, 2, 5, w->scale.orders - 2);
    ZT_OK(w->t, tpcc_del(w->session, TPCC_NEW_ORDER, &key));
}

static void
break_line_missing(struct world *w)
{
    struct tpcc_key key;

    tpcc_key_order_line(&key, 1, 10, 4, 2);
    ZT_OK(w->t, tpcc_del(w->session, TPCC_ORDER_LINE, &key));
}

/* One line moves to another order: the sum stays, the orders' own counts do not. */
static void
break_line_moved(struct world *w)
{
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row row;

    tpcc_key_order_line(&key, 1, 10, 4, 5);
    get_row(w, TPCC_ORDER_LINE, &key, &v);
    memcpy(row.data, v.data, v.bytes);
    row.bytes = v.bytes;
    ZT_OK(w->t, tpcc_del(w->session, TPCC_ORDER_LINE, &key));
    tpcc_key_order_line(&key, 1, 10, 5, 16);
    put_row(w, TPCC_ORDER_LINE, &key, &row);
}

static void
break_carrier(struct world *w)
{
    struct tpcc_order row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_wdx(&key, 3, 1, w->scale.orders);
    get_row(w, TPCC_ORDER, &key, &v);
    ZT_OK(w->t, tpcc_get_order(&v, &row));
    row.carrier = 3;
    tpcc_put_order(&out, &row);
    put_row(w, TPCC_ORDER, &key, &out);
}

static void
change_line(struct world *w, uint32_t o, int64_t amount, bool deliver)
{
    struct tpcc_order_line row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_order_line(&key, 3, 1, o, 1);
    get_row(w, TPCC_ORDER_LINE, &key, &v);
    ZT_OK(w->t, tpcc_get_order_line(&v, &row));
    row.amount += amount;
    if (deliver)
        row.delivery_date = 1;
    tpcc_put_order_line(&out, &row);
    put_row(w, TPCC_ORDER_LINE, &key, &out);
}

static void
break_line_date(struct world *w)
{
    change_line(w, w->scale.orders, 0, true);
}

static void
break_line_amount(struct world *w)
{
    change_line(w, 1, 1, false);
}

static void
change_history(struct world *w, uint32_t customer, int64_t amount)
{
    struct tpcc_history row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_wdx(&key, 1, 1, 1);
    get_row(w, TPCC_HISTORY, &key, &v);
    ZT_OK(w->t, tpcc_get_history(&v, &row));
    row.c += customer;
    row.amount += amount;
    tpcc_put_history(&out, &row);
    put_row(w, TPCC_HISTORY, &key, &out);
}

static void
break_history_amount(struct world *w)
{
    change_history(w, 0, 5);
}

static void
break_history_customer(struct world *w)
{
    change_history(w, 1, 0);
}

static void
change_customer(struct world *w, int64_t balance, int64_t paid, uint32_t delivered)
{
    struct tpcc_customer row;
    struct cohort_slice v;
    struct tpcc_key key;
    struct tpcc_row out;

    tpcc_key_wdx(&key, 2, 2, 3);
    get_row(w, TPCC_CUSTOMER, &key, &v);
    ZT_OK(w->t, tpcc_get_customer(&v, &row));
    row.balance += balance;
    row.ytd_payment += paid;
    row.delivery_count += delivered;
    tpcc_put_customer(&out, &row);
    put_row(w, TPCC_CUSTOMER, &key, &out);
}

static void
break_balance(struct world *w)
{
    change_customer(w, 7, -7, 0);
}

static void
break_paid(struct world *w)
{
    change_customer(w, 0, 9, 0);
}

static void
break_delivered(struct world *w)
{
    change_customer(w, 0, 0, 1);
}

static void
break_name_index(struct world *w)
{
    static const struct tpcc_row empty;
    struct tpcc_key key;

    tpcc_key_customer_name(&key, 1, 1, "NOBODY", "at all", 3);
    put_row(w, TPCC_CUSTOMER_NAME, &key, &empty);
}

static void
break_order_index(struct world *w)
{
    static const struct tpcc_row empty;
    struct tpcc_order row;
    struct cohort_slice v;
    struct tpcc_key key;

    tpcc_key_wdx(&key, 3, 1, 1);
    get_row(w, TPCC_ORDER, &key, &v);
    ZT_OK(w->t, tpcc_get_order(&v, &row));
    tpcc_key_order_customer(&key, 3, 1, row.c, 1);
    ZT_OK(w->t, tpcc_del(w->session, TPCC_ORDER_CUSTOMER, &key));
    tpcc_key_order_customer(&key, 3, 1, row.c, 2); /* as many as before */
    put_row(w, TPCC_ORDER_CUSTOMER, &key, &empty);
}

/* Goal: each condition's violation is found, by that condition and by no other than those that the
 * damage touches too. Method: one damage each in a loaded database, committed, checked, undone. */
static const struct {
    void (*damage)(struct world *w);
    unsigned found; /* bits: the conditions that see it */
} plants[] = {
    {break_warehouse, 1u << 1 | 1u << 8},
    {break_district, 1u << 1 | 1u << 9},
    {break_next_order, 1u << 2},
    {break_new_order, 1u << 3 | 1u << 5 | 1u << 11},
    {break_line_missing, 1u << 4 | 1u << 6},
    {break_line_moved, 1u << 6},
    {break_carrier, 1u << 5 | 1u << 7},
    {break_line_date, 1u << 7 | 1u << 10 | 1u << 12},
    {break_line_amount, 1u << 10 | 1u << 12},
    {break_history_amount, 1u << 8 | 1u << 9 | 1u << 10},
    {break_history_customer, 1u << 10},
    {break_balance, 1u << 10},
    {break_paid, 1u << 12},
    {break_delivered, 1u << 11},
    {break_name_index, 1u << TPCC_CHECK_INDEX},
    {break_order_index, 1u << TPCC_CHECK_INDEX},
};

static void
plant(struct world *w, size_t i)
{
    struct tpcc_check *c = malloc(sizeof(*c));
    unsigned found = 0;

    ZT_CHECK(w->t, c != NULL);
    ZT_OK(w->t, w->ops->begin(w->session, false));
    plants[i].damage(w);
    ZT_OK(w->t, w->ops->commit(w->session));
    ZT_OK(w->t, tpcc_check(w->store, &w->scale, c));
    for (unsigned k = 0; k <= TPCC_CONDITIONS; k++)
        found |= (c->violations[k] != 0) << k;
    if (found != plants[i].found)
        for (int k = 0; k <= TPCC_CONDITIONS; k++)
            printf("damage %zu, condition %d: %s\n", i, k, c->first[k]);
    ZT_CHECK(w->t, found == plants[i].found);
    ZT_CHECK(w->t, !tpcc_check_ok(c));
    ZT_STATUS(w->t, tpcc_check_status(c), COHORT_ECORRUPT);
    free(c);
}

static void
test_conditions(struct zt *t)
{
    struct world w;
    bool done = false;

    for (size_t i = 0; i < CH_ARRAY_LEN(plants); i++) {
        done = false;
        for (size_t e = 0; e < CH_ARRAY_LEN(engines) && !done; e++) {
            if (!world_open(&w, t, engines[e]))
                continue;
            world_load(&w);
            plant(&w, i);
            world_close(&w);
            done = true; /* one engine will do: the check is the same */
        }
    }
    ZT_CHECK(t, done);
}

/* Goal: threads that fight for one warehouse conflict, run again, and lose nothing. */
static void
test_contention(struct zt *t)
{
    struct tpcc_result *r = malloc(sizeof(*r));
    struct world w;

    ZT_CHECK(t, r != NULL);
    for (size_t e = 0; e < CH_ARRAY_LEN(engines); e++) {
        if (!world_open(&w, t, engines[e]))
            continue;
        tpcc_scale_init(&w.scale, 1, TEST_DIVISOR);
        ZT_OK(t, tpcc_load(&(struct tpcc_load){
                     .store = w.store, .scale = &w.scale, .threads = 3, .seed = t->seed}));
        ZT_OK(t, tpcc_run(&(struct tpcc_run){.store = w.store,
                                             .scale = &w.scale,
                                             .threads = 6,
                                             .seed = t->seed,
                                             .ops = 1500,
                                             .steady = true},
                          r));
        ZT_CHECK(t, tpcc_result_done(r) == 1500);
        {
            struct tpcc_check *c = malloc(sizeof(*c));

            ZT_CHECK(t, c != NULL);
            ZT_OK(t, tpcc_check(w.store, &w.scale, c));
            ZT_OK(t, tpcc_check_status(c));
            free(c);
        }
        world_close(&w);
    }
    free(r);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"schema", test_schema, 5},
        {"random", test_random, 20},
        {"mix", test_mix, 5},
        {"growing", test_growing, 2},
        {"steady", test_steady, 1},
        {"rollback", test_rollback, 2},
        {"delivery", test_delivery, 1},
        {"conditions", test_conditions, 1},
        {"contention", test_contention, 1},
        {"answers", test_answers, 3},
    };

    return zt_main(argc, argv, "tpcc", cases, CH_ARRAY_LEN(cases));
}
