/* accounts.c - transactions over two named trees: balances, and a journal of transfers. Usage: accounts DIRECTORY
 *
 * A transfer reads both balances, checks, writes both and adds a line to the journal: all of it or nothing. When another
 * transaction is in the way (class CONFLICT) it begins anew.
 */
#include <cohort.h>
#include <string.h>

struct bank {
    cohort_db *db;
    cohort_tree *balances, *journal;
};

static int
read_balance(struct bank *b, cohort_txn *t, const char *who, int64_t *amount)
{
    struct cohort_value v = {0};
    /* FOR UPDATE: nobody changes it until this transaction has ended. */
    int rc = cohort_txn_get_for_update(t, b->balances, who, strlen(who), &v);

    if (rc == 0)
        memcpy(amount, v.data, sizeof(*amount));
    cohort_value_free(&v);
    return rc;
}

static int
move_money(struct bank *b, cohort_txn *t, const char *from, const char *to, int64_t amount)
{
    int64_t have, other;
    char line[100];
    int rc = read_balance(b, t, from, &have);

    if (rc == 0)
        rc = read_balance(b, t, to, &other);
    if (rc != 0)
        return rc;
    if (have < amount)
        return COHORT_EINVAL; /* the caller aborts */
    have -= amount;
    other += amount;
    rc = cohort_txn_put(t, b->balances, from, strlen(from), &have, sizeof(have));
    if (rc == 0)
        rc = cohort_txn_put(t, b->balances, to, strlen(to), &other, sizeof(other));
    if (rc == 0) {
        uint64_t id = cohort_txn_id(t); /* unique, so a key for the journal */
        int n = snprintf(line, sizeof(line), "%s to %s: %lld", from, to, (long long)amount);

        rc = cohort_txn_insert(t, b->journal, &id, sizeof(id), line, (size_t)n);
    }
    return rc;
}

static int
transfer(struct bank *b, const char *from, const char *to, int64_t amount)
{
    int rc;

    do {
        cohort_txn *t = NULL;

        rc = cohort_begin(b->db, NULL, &t);
        if (rc != 0)
            return rc;
        rc = move_money(b, t, from, to, amount);
        if (rc == 0)
            rc = cohort_commit(t); /* durable, and seen by everybody, when it returns 0 */
        else
            cohort_abort(t);
    } while (cohort_class_of(rc) == COHORT_CLASS_CONFLICT);
    return rc;
}

static int
open_account(struct bank *b, const char *who, int64_t amount)
{
    return cohort_tree_put(b->balances, who, strlen(who), &amount, sizeof(amount));
}

/* All balances of one moment, whatever happens meanwhile. */
static int
print_balances(struct bank *b)
{
    struct cohort_txn_options o;
    struct cohort_slice key, value;
    cohort_cursor *c = NULL;
    cohort_txn *t = NULL;
    int64_t amount;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = true;
    rc = cohort_begin(b->db, &o, &t);
    if (rc != 0)
        return rc;
    rc = cohort_txn_cursor(t, b->balances, &c);
    if (rc == 0)
        rc = cohort_cursor_first(c);
    while (rc == 0 && (rc = cohort_cursor_entry(c, &key, &value)) == 0) {
        memcpy(&amount, value.data, sizeof(amount));
        printf("%.*s has %lld\n", (int)key.bytes, (const char *)key.data, (long long)amount);
        rc = cohort_cursor_next(c);
    }
    cohort_cursor_close(c);
    cohort_abort(t); /* it has only read */
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

int
main(int argc, char **argv)
{
    struct cohort_options options;
    struct bank b = {0};
    int rc;

    cohort_options_init(&options);
    options.create = COHORT_CREATE_YES;
    rc = cohort_open(argc > 1 ? argv[1] : "./accounts-data", &options, &b.db);
    if (rc == 0)
        rc = cohort_tree_open(b.db, NULL, "balances", COHORT_TREE_CREATE, NULL, &b.balances);
    if (rc == 0)
        rc = cohort_tree_open(b.db, NULL, "journal", COHORT_TREE_CREATE, NULL, &b.journal);
    if (rc == 0)
        rc = open_account(&b, "ann", 100);
    if (rc == 0)
        rc = open_account(&b, "bob", 20);
    if (rc == 0)
        rc = transfer(&b, "ann", "bob", 30);
    if (rc == 0 && transfer(&b, "bob", "ann", 1000) == COHORT_EINVAL)
        printf("bob does not have 1000\n");
    if (rc == 0)
        rc = print_balances(&b);
    if (rc != 0)
        fprintf(stderr, "%s: %s\n", cohort_strerror(rc), cohort_last_error()->text);
    cohort_tree_close(b.balances);
    cohort_tree_close(b.journal);
    return cohort_close(b.db) == 0 && rc == 0 ? 0 : 1;
}
