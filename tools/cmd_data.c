/* cmd_data.c - cohort get, put, del: one entry, in the main tree or in a named one.
 *
 * Values of any size pass through in pieces of DATA_PIECE bytes: what is printed comes from one snapshot, what is put appears
 * at once when all of it is there.
 */
#include <errno.h>
#include <stdlib.h>

#include "tools/tool.h"

enum {
    DATA_PIECE = 256 * 1024
};

/* One entry of an open database, within a transaction. */
struct data {
    struct tool *t;
    const char *key_text, *tree_name;
    struct tool_bytes key;
    cohort_db *db;
    cohort_txn *txn;
    cohort_tree *tree;
};

/* Names the key in the record of an error that is about it. */
static int
name_key(int rc, const char *key)
{
    return rc == COHORT_NOTFOUND || rc == COHORT_EXISTS ? CH_FAIL(rc, "key '%.100s'", key) : rc;
}

static int
data_open(struct data *d, bool read_only, unsigned tree_flags)
{
    struct cohort_txn_options o;
    int rc = tool_bytes_arg(d->t, &d->key, d->key_text);

    cohort_txn_options_init(&o);
    o.read_only = read_only;
    if (rc == 0)
        rc = tool_open(d->t, &d->db);
    if (rc == 0)
        rc = cohort_begin(d->db, &o, &d->txn);
    return rc != 0 ? rc : tool_tree(d->db, d->txn, d->tree_name, tree_flags, &d->tree);
}

/* Commits, or after an error aborts, and closes all. */
static int
data_close(struct data *d, int rc)
{
    rc = tool_end(d->txn, rc);
    cohort_tree_close(d->tree);
    rc = tool_close(d->db, rc);
    free(d->key.data);
    return rc;
}

/* ---- get ---- */

static int
print_json(struct data *d)
{
    struct cohort_value v = {0};
    struct json_object *o = NULL;
    int rc = name_key(cohort_txn_get(d->txn, d->tree, d->key.data, d->key.bytes, &v), d->key_text);

    if (rc == 0 && (o = json_object_new_object()) == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "JSON");
    if (rc == 0)
        rc = tool_json_bytes(o, "key", d->key.data, d->key.bytes, d->t->hex);
    if (rc == 0)
        rc = tool_json_bytes(o, "value", v.bytes > 0 ? v.data : "", v.bytes, d->t->hex);
    if (rc == 0)
        rc = tool_json_print(json_object_get(o), stdout);
    json_object_put(o);
    cohort_value_free(&v);
    return rc;
}

static int
print_pieces(struct data *d, FILE *out, const char *name)
{
    char *buf = malloc(DATA_PIECE);
    uint64_t at = 0;
    size_t got = 1;
    int rc = buf != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "buffer");

    while (rc == 0 && got > 0) {
        rc = cohort_txn_read(d->txn, d->tree, d->key.data, d->key.bytes, at, buf, DATA_PIECE, &got,
                             NULL);
        if (rc != 0)
            break;
        if (d->t->hex)
            tool_print_bytes(out, buf, got, true);
        else
            fwrite(buf, 1, got, out);
        if (ferror(out))
            rc = CH_FAIL(COHORT_EIO, "%s: %s", name, strerror(errno));
        at += got;
    }
    free(buf);
    return name_key(rc, d->key_text);
}

static int
print_to_file(struct data *d, const char *file)
{
    FILE *out = fopen(file, "w");
    int rc;

    if (out == NULL)
        return CH_FAIL(COHORT_EIO, "%s: %s", file, strerror(errno));
    rc = print_pieces(d, out, file);
    if (fclose(out) != 0 && rc == 0)
        rc = CH_FAIL(COHORT_EIO, "%s: %s", file, strerror(errno));
    return rc;
}

static int
print_value(struct data *d, const char *file)
{
    int rc;

    if (file != NULL)
        return print_to_file(d, file);
    if (d->t->json) {
        rc = print_json(d);
    } else {
        rc = print_pieces(d, stdout, "standard output");
        if (rc == 0)
            putchar('\n');
    }
    return rc != 0 ? rc : tool_flush();
}

int
cmd_get(struct tool *t, int argc, char **argv)
{
    const char *file = NULL;
    struct data d = {.t = t};
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &d.tree_name, NULL, "In this named tree."},
        {"file", 0, ARG_TEXT, &file, NULL, "Writes the value there, and nothing else."},
    };
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (file != NULL && t->json)
        return CH_FAIL(COHORT_EINVAL, "--file and --json exclude each other");
    d.key_text = pos[1];
    rc = data_open(&d, true, 0);
    if (rc == 0)
        rc = print_value(&d, file);
    return data_close(&d, rc);
}

/* ---- put ---- */

enum put_how {
    PUT_ANY,
    PUT_INSERT,
    PUT_UPDATE
};

/* Hex digits, lines of any length, as bytes; an odd digit is kept for the next piece. */
static int
append_hex(cohort_writer *w, const char *text, size_t n, struct tool_bytes *digits)
{
    struct tool_bytes bytes = {0};
    size_t even;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        if (text[i] != '\n')
            rc = tool_bytes_add(digits, text + i, 1);
    even = digits->bytes & ~(size_t)1;
    if (rc == 0 && even > 0)
        rc = tool_bytes_hex(&bytes, (const char *)digits->data, even);
    if (rc == 0 && even > 0) {
        rc = cohort_writer_append(w, bytes.data, bytes.bytes);
        digits->data[0] = digits->data[digits->bytes - 1];
        digits->bytes -= even;
    }
    free(bytes.data);
    return rc;
}

static int
append_all(struct data *d, cohort_writer *w, FILE *in, const char *name)
{
    struct tool_bytes digits = {0};
    char *buf = malloc(DATA_PIECE);
    size_t got = 1;
    int rc = buf != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "buffer");

    while (rc == 0 && got > 0) {
        got = fread(buf, 1, DATA_PIECE, in);
        rc = d->t->hex ? append_hex(w, buf, got, &digits) : cohort_writer_append(w, buf, got);
    }
    if (rc == 0 && ferror(in))
        rc = CH_FAIL(COHORT_EIO, "%s: %s", name, strerror(errno));
    if (rc == 0 && digits.bytes > 0)
        rc = CH_FAIL(COHORT_EINVAL, "%s: odd number of hex digits", name);
    free(digits.data);
    free(buf);
    return rc;
}

/* What --insert and --update demand, by this transaction's snapshot; a commit in between is a conflict. */
static int
check_how(struct data *d, enum put_how how)
{
    size_t got;
    int rc;

    if (how == PUT_ANY)
        return 0;
    rc = cohort_txn_read(d->txn, d->tree, d->key.data, d->key.bytes, 0, NULL, 0, &got, NULL);
    if (how == PUT_INSERT)
        return rc == 0 ? COHORT_EXISTS : rc == COHORT_NOTFOUND ? 0 : rc;
    return rc;
}

static int
put_stream(struct data *d, enum put_how how, FILE *in, const char *name)
{
    cohort_writer *w = NULL;
    int rc = check_how(d, how);

    if (rc == 0)
        rc = cohort_writer_open(d->txn, d->tree, d->key.data, d->key.bytes, &w);
    if (rc != 0)
        return rc;
    rc = append_all(d, w, in, name);
    if (rc == 0)
        return cohort_writer_finish(w);
    cohort_writer_cancel(w);
    return rc;
}

static int
put_file(struct data *d, enum put_how how, const char *file)
{
    FILE *in = fopen(file, "r");
    int rc;

    if (in == NULL)
        return CH_FAIL(COHORT_EIO, "%s: %s", file, strerror(errno));
    rc = put_stream(d, how, in, file);
    fclose(in);
    return rc;
}

static int
put_text(struct data *d, enum put_how how, const char *text)
{
    struct tool_bytes v = {0};
    int rc = tool_bytes_arg(d->t, &v, text);

    if (rc != 0)
        goto out;
    if (how == PUT_INSERT)
        rc = cohort_txn_insert(d->txn, d->tree, d->key.data, d->key.bytes, v.data, v.bytes);
    else if (how == PUT_UPDATE)
        rc = cohort_txn_update(d->txn, d->tree, d->key.data, d->key.bytes, v.data, v.bytes);
    else
        rc = cohort_txn_put(d->txn, d->tree, d->key.data, d->key.bytes, v.data, v.bytes);
out:
    free(v.data);
    return rc;
}

int
cmd_put(struct tool *t, int argc, char **argv)
{
    bool insert = false, update = false, create = false;
    const char *file = NULL;
    struct data d = {.t = t};
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &d.tree_name, NULL, "In this named tree."},
        {"file", 0, ARG_TEXT, &file, NULL, "The value is what this file holds."},
        {"insert", 0, ARG_FLAG, &insert, NULL, "The key must not exist."},
        {"update", 0, ARG_FLAG, &update, NULL, "The key must exist."},
        {"create", 0, ARG_FLAG, &create, NULL, "Creates database and tree when missing."},
    };
    enum put_how how;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 3, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (insert && update)
        return CH_FAIL(COHORT_EINVAL, "--insert and --update exclude each other");
    if ((n > 2) == (file != NULL))
        return CH_FAIL(COHORT_EINVAL, "needs a VALUE, or --file, and not both");
    how = insert ? PUT_INSERT : update ? PUT_UPDATE : PUT_ANY;
    d.key_text = pos[1];
    rc = create ? cohort_options_set(&t->options, "create", "yes") : 0;
    if (rc == 0)
        rc = data_open(&d, false, create ? COHORT_TREE_CREATE : 0);
    if (rc != 0)
        return data_close(&d, rc);
    if (file != NULL)
        rc = put_file(&d, how, file);
    else if (strcmp(pos[2], "-") == 0)
        rc = put_stream(&d, how, stdin, "standard input");
    else
        rc = put_text(&d, how, pos[2]);
    return data_close(&d, name_key(rc, pos[1]));
}

/* ---- del ---- */

int
cmd_del(struct tool *t, int argc, char **argv)
{
    struct data d = {.t = t};
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &d.tree_name, NULL, "In this named tree."},
    };
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    d.key_text = pos[1];
    rc = data_open(&d, false, 0);
    if (rc == 0)
        rc = name_key(cohort_txn_del(d.txn, d.tree, d.key.data, d.key.bytes), pos[1]);
    return data_close(&d, rc);
}
