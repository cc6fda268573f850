/* tpcc_txn.h - the transactions of TPC-C (clause 2), over a store's session.
 *
 * An input is drawn once; its transaction is then run until it commits. Money, rates, dates: see
 * tpcc_schema.h. What a terminal would display is read but goes nowhere.
 *
 * Differences from the specification, all stated in docs/PAPER.md: a transaction's home warehouse is
 * drawn evenly from all of them (any of the 10 terminals of any warehouse may be next; no keying and
 * no think times), Delivery runs at once rather than queued, and the lines of an order are in the order
 * of their stock keys, which keeps New-Orders from deadlocking each other.
 *
 * The steady variant keeps the size of the database: a sixth transaction, Purge, takes away a
 * warehouse's oldest delivered orders with their lines and index entries, and its oldest history rows,
 * as far as a district has more of them than at load, at most TPCC_PURGE_MAX each a district; and
 * Delivery delivers the orders that a district has waiting beyond those at load, at most
 * TPCC_DELIVER_MAX, in place of exactly one.
 */
#ifndef CH_BENCH_TPCC_TXN_H
#define CH_BENCH_TPCC_TXN_H

#include "bench/tpcc_random.h"
#include "bench/tpcc_store.h"

enum tpcc_kind {
    TPCC_NEW_ORDER_TXN,
    TPCC_PAYMENT_TXN,
    TPCC_ORDER_STATUS_TXN,
    TPCC_DELIVERY_TXN,
    TPCC_STOCK_LEVEL_TXN,
    TPCC_PURGE_TXN,
    TPCC_KINDS
};
extern const char *const tpcc_kind_names[TPCC_KINDS]; /* as JSON fields */

enum {
    TPCC_ROLLBACK = 1, /* of a body: the user's error of 2.4.1.4; to be aborted, and done */
    TPCC_PURGE_MAX = 3,
    TPCC_DELIVER_MAX = 3,
    TPCC_ATTEMPTS_MAX = 100000
};

/* Shares of the mix, of their sum: 100, and 104 in the steady variant. */
extern const uint32_t tpcc_mix[TPCC_KINDS];

struct tpcc_line_input {
    uint32_t i, supply_w, quantity;
};
struct tpcc_customer_input {
    uint32_t w, d, c; /* c 0: by last name */
    char last[TPCC_NAME_MAX + 1];
};
struct tpcc_input {
    enum tpcc_kind kind;
    uint32_t w, d;
    struct tpcc_customer_input customer;          /* New-Order, Payment, Order-Status */
    struct tpcc_line_input lines[TPCC_LINES_MAX]; /* New-Order */
    uint32_t line_count;
    int64_t amount;     /* Payment */
    uint32_t carrier;   /* Delivery */
    uint32_t threshold; /* Stock-Level */
};

struct tpcc_count { /* of one kind of transaction */
    uint64_t committed, rolled_back, retries;
};
/* What one thread works with; zeroed, then the fields above the line are set. */
struct tpcc_terminal {
    struct tpcc_session *session; /* borrowed */
    const struct tpcc_scale *scale;
    struct tpcc_random random;
    bool steady;
    /* ---- */
    struct tpcc_count counts[TPCC_KINDS];
    uint64_t skipped;   /* districts that a Delivery found without a new order */
    uint64_t delivered; /* orders */
    uint64_t purged;    /* orders */
    uint64_t now;       /* date of the transaction that runs */
    uint32_t low_stock; /* Stock-Level's answer */
    uint32_t
        number; /* New-Order's and Order-Status's: of the order; Payment's: of the history row */
};

void tpcc_draw(struct tpcc_terminal *t, struct tpcc_input *in);
void tpcc_draw_kind(struct tpcc_terminal *t, enum tpcc_kind kind, struct tpcc_input *in);
/* Runs it to its end, again after each conflict, at once and from the second time on after a pause of 20 us,
 * doubled up to 1.3 ms; counts it. *stop (may be NULL): no further attempt once
 * it is set; the transaction then counts for nothing and the result is COHORT_CONFLICT or the like. */
CH_NODISCARD int tpcc_execute(struct tpcc_terminal *t, const struct tpcc_input *in,
                              const _Atomic bool *stop);

/* ---- the bodies, each within an open transaction (tpcc_execute) ---- */
CH_NODISCARD int tpcc_new_order(struct tpcc_terminal *t, const struct tpcc_input *in);
CH_NODISCARD int tpcc_payment(struct tpcc_terminal *t, const struct tpcc_input *in);
CH_NODISCARD int tpcc_order_status(struct tpcc_terminal *t, const struct tpcc_input *in);
CH_NODISCARD int tpcc_delivery(struct tpcc_terminal *t, const struct tpcc_input *in);
CH_NODISCARD int tpcc_stock_level(struct tpcc_terminal *t, const struct tpcc_input *in);
CH_NODISCARD int tpcc_purge(struct tpcc_terminal *t, const struct tpcc_input *in);

/* Finds a customer by number or last name (the middle one by first name, 2.5.2.2), locked. */
CH_NODISCARD int tpcc_find_customer(struct tpcc_session *s, const struct tpcc_customer_input *in,
                                    bool lock, uint32_t *c, struct tpcc_customer *row);
/* The lines of an order; more than TPCC_LINES_MAX, or none: ECORRUPT. */
struct tpcc_lines {
    uint32_t count;
    uint32_t number[TPCC_LINES_MAX];
    struct tpcc_order_line row[TPCC_LINES_MAX];
};
CH_NODISCARD int tpcc_read_lines(struct tpcc_session *s, uint32_t w, uint32_t d, uint32_t o,
                                 struct tpcc_lines *lines);
/* range[0]: the smallest x of the keys (w, d, x) of a table; with `last` range[1]: the largest, which
 * is otherwise not looked for, as that would be in the way of whoever inserts. NOTFOUND: none. */
CH_NODISCARD int tpcc_range(struct tpcc_session *s, enum tpcc_table table, uint32_t w, uint32_t d,
                            bool last, uint32_t range[2]);
/* NOTFOUND of a row that must be there is a damaged database. */
CH_NODISCARD int tpcc_must(int rc, enum tpcc_table table, const struct tpcc_key *key);

#endif
