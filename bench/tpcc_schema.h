/* tpcc_schema.h - tables, keys and rows of TPC-C. Pure.
 *
 * Keys are composites of big-endian numbers, so that memcmp order is the order of their parts:
 *
 *     warehouse       w                       order_line      w d o n
 *     district        w d                     item            i
 *     customer        w d c                   stock           w i
 *     history         w d s                   customer_name   w d last 0 first 0 c   (no value)
 *     new_order       w d o   (no value)      order_customer  w d c ~o               (no value)
 *     order           w d o                   archive         w d c                  (steady variant)
 *
 * w, c, o, i, s have 4 bytes, d and n one. s numbers the payments of a district, which its row counts
 * (the specification gives HISTORY no key). ~o makes a customer's newest order the first of its range.
 *
 * Rows are numbers in little-endian, then texts with their length in front; nothing is padded and no
 * struct is dumped. Money is in cents, rates are in 1/10000, dates are ns of the monotonic clock
 * (no transaction compares them), 0 = null.
 *
 * Beside the nine tables and two indexes of the specification:
 *   archive   what the steady variant's purges took away, so that the conditions can still be checked:
 *             a customer's sums, and, as customer 0, the district's.
 *   meta      the scale of the load; written last, so that its absence tells an unfinished load.
 */
#ifndef CH_BENCH_TPCC_SCHEMA_H
#define CH_BENCH_TPCC_SCHEMA_H

#include "base/base.h"

enum tpcc_table {
    TPCC_WAREHOUSE,
    TPCC_DISTRICT,
    TPCC_CUSTOMER,
    TPCC_HISTORY,
    TPCC_NEW_ORDER,
    TPCC_ORDER,
    TPCC_ORDER_LINE,
    TPCC_ITEM,
    TPCC_STOCK,
    TPCC_CUSTOMER_NAME,
    TPCC_ORDER_CUSTOMER,
    TPCC_ARCHIVE,
    TPCC_META,
    TPCC_TABLES
};
extern const char *const tpcc_table_names[TPCC_TABLES];

enum {
    TPCC_DISTRICTS = 10,
    TPCC_KEY_MAX = 48,
    TPCC_ROW_MAX = 1024,
    TPCC_LINES_MAX = 15,
    TPCC_DIST_BYTES = 24,
    TPCC_NAME_MAX = 16, /* bytes of a first or last name */
    TPCC_WAREHOUSES_MAX = 100000,
    TPCC_DIVISOR_MAX = 1000
};

/* Cardinalities. `divisor` 1 is the specification's; above it items, customers and orders are that
 * many times fewer: for tests. */
struct tpcc_scale {
    uint32_t warehouses, divisor;
    uint32_t items;      /* 100,000 */
    uint32_t customers;  /* of a district: 3,000 */
    uint32_t orders;     /* of a district: as many as customers */
    uint32_t new_orders; /* of them not delivered: 900 */
    uint32_t c_load;     /* constant of NURand for the last names loaded */
};
void tpcc_scale_init(struct tpcc_scale *s, uint32_t warehouses, uint32_t divisor);
/* About the bytes of all entries after load. */
uint64_t tpcc_scale_bytes(const struct tpcc_scale *s);

struct tpcc_key {
    uint8_t data[TPCC_KEY_MAX];
    size_t bytes;
};
void tpcc_key_warehouse(struct tpcc_key *k, uint32_t w);
void tpcc_key_district(struct tpcc_key *k, uint32_t w, uint32_t d);
/* customer, history, new_order, order and archive */
void tpcc_key_wdx(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t x);
void tpcc_key_order_line(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t o, uint32_t n);
void tpcc_key_item(struct tpcc_key *k, uint32_t i);
void tpcc_key_stock(struct tpcc_key *k, uint32_t w, uint32_t i);
/* `first` NULL: the prefix that all customers of the last name share. */
void tpcc_key_customer_name(struct tpcc_key *k, uint32_t w, uint32_t d, const char *last,
                            const char *first, uint32_t c);
void tpcc_key_order_customer(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t c, uint32_t o);
void tpcc_key_meta(struct tpcc_key *k);
/* The 4-byte number at `at` of a key. */
uint32_t tpcc_key_number(const struct cohort_slice *key, size_t at);
/* Whether `key` begins with `prefix`. */
bool tpcc_key_under(const struct cohort_slice *key, const struct tpcc_key *prefix);

enum {
    TPCC_AT_D = 4,     /* place of d in keys that have one */
    TPCC_AT_X = 5,     /* ... and of the number behind it */
    TPCC_AT_LINE = 9,  /* n of order_line */
    TPCC_AT_ORDER = 9, /* ~o of order_customer */
};

struct tpcc_address {
    char street_1[21], street_2[21], city[21], state[3], zip[10];
};
struct tpcc_warehouse {
    int64_t ytd;
    uint32_t tax;
    char name[11];
    struct tpcc_address address;
};
struct tpcc_district {
    int64_t ytd;
    uint32_t next_o_id, next_h_id, tax; /* next_h_id: number of the next history row */
    char name[11];
    struct tpcc_address address;
};
struct tpcc_customer {
    int64_t balance, ytd_payment, credit_limit;
    uint64_t since;
    uint32_t payment_count, delivery_count, discount;
    bool bad_credit;
    char first[TPCC_NAME_MAX + 1], middle[3], last[TPCC_NAME_MAX + 1];
    struct tpcc_address address;
    char phone[17];
    char data[501];
};
struct tpcc_history {
    uint32_t c_w, c_d, c;
    uint64_t date;
    int64_t amount;
    char data[25];
};
struct tpcc_order {
    uint32_t c, carrier, line_count; /* carrier 0 = null */
    bool all_local;
    uint64_t entry_date;
};
struct tpcc_order_line {
    uint32_t i, supply_w, quantity;
    int64_t amount;
    uint64_t delivery_date;
    char dist[TPCC_DIST_BYTES + 1];
};
struct tpcc_item {
    uint32_t image, price;
    char name[25], data[51];
};
struct tpcc_stock {
    int32_t quantity;
    uint32_t ytd, order_count, remote_count;
    char dist[TPCC_DISTRICTS][TPCC_DIST_BYTES + 1];
    char data[51];
};
struct tpcc_archive {
    int64_t lines;   /* amounts of purged order lines */
    int64_t history; /* amounts of purged payments: the customer's; of customer 0, the district's */
    uint64_t orders; /* of customer 0: purged orders */
};

struct tpcc_row { /* an encoded one */
    uint8_t data[TPCC_ROW_MAX];
    size_t bytes;
};
void tpcc_put_warehouse(struct tpcc_row *r, const struct tpcc_warehouse *v);
void tpcc_put_district(struct tpcc_row *r, const struct tpcc_district *v);
void tpcc_put_customer(struct tpcc_row *r, const struct tpcc_customer *v);
void tpcc_put_history(struct tpcc_row *r, const struct tpcc_history *v);
void tpcc_put_order(struct tpcc_row *r, const struct tpcc_order *v);
void tpcc_put_order_line(struct tpcc_row *r, const struct tpcc_order_line *v);
void tpcc_put_item(struct tpcc_row *r, const struct tpcc_item *v);
void tpcc_put_stock(struct tpcc_row *r, const struct tpcc_stock *v);
void tpcc_put_archive(struct tpcc_row *r, const struct tpcc_archive *v);
void tpcc_put_scale(struct tpcc_row *r, const struct tpcc_scale *v);

/* ECORRUPT when the bytes are no such row. */
CH_NODISCARD int tpcc_get_warehouse(const struct cohort_slice *s, struct tpcc_warehouse *v);
CH_NODISCARD int tpcc_get_district(const struct cohort_slice *s, struct tpcc_district *v);
CH_NODISCARD int tpcc_get_customer(const struct cohort_slice *s, struct tpcc_customer *v);
CH_NODISCARD int tpcc_get_history(const struct cohort_slice *s, struct tpcc_history *v);
CH_NODISCARD int tpcc_get_order(const struct cohort_slice *s, struct tpcc_order *v);
CH_NODISCARD int tpcc_get_order_line(const struct cohort_slice *s, struct tpcc_order_line *v);
CH_NODISCARD int tpcc_get_item(const struct cohort_slice *s, struct tpcc_item *v);
CH_NODISCARD int tpcc_get_stock(const struct cohort_slice *s, struct tpcc_stock *v);
CH_NODISCARD int tpcc_get_archive(const struct cohort_slice *s, struct tpcc_archive *v);
CH_NODISCARD int tpcc_get_scale(const struct cohort_slice *s, struct tpcc_scale *v);

#endif
