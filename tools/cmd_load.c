/* cmd_load.c - cohort load: entries from a file or stdin, sorted or not.
 *
 * Lines are key, tab, value, newline, with the escapes that `dump` writes (--raw: without), or hex
 * digits with --hex; or JSON objects, one a line, with "key" or "key_hex" and "value" or "value_hex"
 * (--jsonl). Into an empty tree entries go through a bulk load as long as their keys ascend; from the first that does
 * not, and into a tree that holds something, they are gathered and put some hundred in a transaction. Loading
 * is not atomic: after an error the lines before it may be in the database. It is durable at exit 0.
 */
#include <errno.h>
#include <stdlib.h>

#include "rt/rt.h"
#include "tools/tool.h"

enum {
    LOAD_BATCH_ENTRIES = 256,
    LOAD_BATCH_BYTES = 64 * 1024
};

struct load_entry {
    size_t key, key_bytes, value, value_bytes; /* positions in struct load.text */
};

struct load {
    struct tool *t;
    cohort_db *db;
    cohort_tree *tree;
    const char *tree_name;
    cohort_bulk *bulk;      /* NULL: transactions */
    struct tool_bytes last; /* key put into it last; data NULL: none yet */
    FILE *in;
    const char *name;
    bool raw, jsonl;
    struct tool_bytes text; /* bytes of the gathered entries */
    struct load_entry entries[LOAD_BATCH_ENTRIES];
    unsigned count;
    uint64_t line, loaded, payload, started, reported;
};

/* The gathered entries from `from` on, in one transaction. */
static int
load_transaction(struct load *l, unsigned from)
{
    cohort_txn *txn = NULL;
    int rc = cohort_begin(l->db, NULL, &txn);

    for (unsigned i = from; i < l->count && rc == 0; i++) {
        const struct load_entry *e = &l->entries[i];

        rc = cohort_txn_put(txn, l->tree, l->text.data + e->key, e->key_bytes,
                            l->text.data + e->value, e->value_bytes);
    }
    return tool_end(txn, rc);
}

static int
load_finish_bulk(struct load *l)
{
    cohort_bulk *b = l->bulk;

    l->bulk = NULL;
    return b != NULL ? cohort_bulk_finish(b) : 0;
}

static bool
load_ascends(const struct load *l, const uint8_t *key, size_t bytes)
{
    int c;

    if (l->last.data == NULL)
        return true;
    c = memcmp(l->last.data, key, ch_min_u64(l->last.bytes, bytes));
    return c != 0 ? c < 0 : l->last.bytes < bytes;
}

/* The gathered entries as far as they ascend; *done: how many those were. Ends the bulk load when it was not all. */
static int
load_bulk(struct load *l, unsigned *done)
{
    int rc = 0;

    for (*done = 0; *done < l->count && rc == 0; ++*done) {
        const struct load_entry *e = &l->entries[*done];
        const uint8_t *key = l->text.data + e->key;

        if (!load_ascends(l, key, e->key_bytes))
            return load_finish_bulk(l);
        rc = cohort_bulk_put(l->bulk, key, e->key_bytes, l->text.data + e->value, e->value_bytes);
        l->last.bytes = 0;
        if (rc == 0)
            rc = tool_bytes_add(&l->last, key, e->key_bytes);
    }
    return rc;
}

static void
load_progress(struct load *l)
{
    uint64_t now = rt_now_ns();

    if (l->t->quiet || now - l->reported < UINT64_C(1000000000))
        return;
    l->reported = now;
    fprintf(stderr, "loaded %llu entries, %.0f/s\n", (unsigned long long)l->loaded,
            (double)l->loaded * 1e9 / (double)(now - l->started));
}

static int
load_flush(struct load *l)
{
    unsigned done = 0;
    int rc = 0;

    if (l->count == 0)
        return 0;
    if (l->bulk != NULL)
        rc = load_bulk(l, &done);
    if (rc == 0 && done < l->count)
        rc = load_transaction(l, done);
    if (rc != 0)
        return rc;
    l->loaded += l->count;
    l->count = 0;
    l->text.bytes = 0;
    load_progress(l);
    return 0;
}

/* Adds text in the form of the input; the position and length of its bytes go to *at and *bytes. */
static int
load_field(struct load *l, const char *text, size_t n, size_t *at, size_t *bytes)
{
    int rc;

    *at = l->text.bytes;
    if (l->t->hex)
        rc = tool_bytes_hex(&l->text, text, n);
    else if (l->raw)
        rc = tool_bytes_add(&l->text, text, n);
    else
        rc = tool_bytes_unescape(&l->text, text, n);
    *bytes = l->text.bytes - *at;
    return rc;
}

static int
load_text_line(struct load *l, struct load_entry *e, const char *line, size_t n)
{
    const char *tab = memchr(line, '\t', n);
    int rc;

    if (tab == NULL)
        return CH_FAIL(COHORT_EINVAL, "no tab between key and value");
    rc = load_field(l, line, (size_t)(tab - line), &e->key, &e->key_bytes);
    if (rc == 0)
        rc = load_field(l, tab + 1, n - (size_t)(tab - line) - 1, &e->value, &e->value_bytes);
    return rc;
}

static int
load_json_field(struct load *l, struct json_object *o, const char *name, size_t *at, size_t *bytes)
{
    struct json_object *v = NULL;
    char hex_name[16];
    bool hex = false;
    int rc;

    snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
    if (!json_object_object_get_ex(o, name, &v))
        hex = json_object_object_get_ex(o, hex_name, &v);
    if (v == NULL || !json_object_is_type(v, json_type_string))
        return CH_FAIL(COHORT_EINVAL, "no string \"%s\" or \"%s\"", name, hex_name);
    *at = l->text.bytes;
    if (hex)
        rc = tool_bytes_hex(&l->text, json_object_get_string(v),
                            (size_t)json_object_get_string_len(v));
    else
        rc = tool_bytes_add(&l->text, json_object_get_string(v),
                            (size_t)json_object_get_string_len(v));
    *bytes = l->text.bytes - *at;
    return rc;
}

static int
load_json_line(struct load *l, struct load_entry *e, const char *line)
{
    enum json_tokener_error why = json_tokener_success;
    struct json_object *o = json_tokener_parse_verbose(line, &why);
    int rc;

    if (o == NULL || !json_object_is_type(o, json_type_object)) {
        json_object_put(o);
        return CH_FAIL(COHORT_EINVAL, "not a JSON object: %s", json_tokener_error_desc(why));
    }
    rc = load_json_field(l, o, "key", &e->key, &e->key_bytes);
    if (rc == 0)
        rc = load_json_field(l, o, "value", &e->value, &e->value_bytes);
    json_object_put(o);
    return rc;
}

/* Checked here so that an error names the line: a batch would only name the entry. */
static int
load_check_entry(const struct load_entry *e)
{
    if (e->key_bytes > COHORT_KEY_MAX)
        return CH_FAIL(COHORT_EKEYSIZE, "key of %zu bytes, at most %d", e->key_bytes,
                       COHORT_KEY_MAX);
    if (e->value_bytes > COHORT_VALUE_MAX)
        return CH_FAIL(COHORT_EVALSIZE, "value of %zu bytes, at most %llu", e->value_bytes,
                       (unsigned long long)COHORT_VALUE_MAX);
    return 0;
}

static int
load_line(struct load *l, char *line, size_t n)
{
    struct load_entry *e = &l->entries[l->count];
    char why[sizeof(cohort_last_error()->text)];
    int rc;

    l->line++;
    if (n > 0 && line[n - 1] == '\n')
        line[--n] = '\0';
    if (n == 0)
        return 0;
    rc = l->jsonl ? load_json_line(l, e, line) : load_text_line(l, e, line, n);
    if (rc == 0)
        rc = load_check_entry(e);
    if (rc != 0) {
        snprintf(why, sizeof(why), "%s", cohort_last_error()->text);
        return CH_FAIL(rc, "%s line %llu: %s", l->name, (unsigned long long)l->line, why);
    }
    l->payload += e->key_bytes + e->value_bytes;
    l->count++;
    if (l->count == LOAD_BATCH_ENTRIES || l->text.bytes >= LOAD_BATCH_BYTES)
        return load_flush(l);
    return 0;
}

static int
load_all(struct load *l)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && (n = getline(&line, &room, l->in)) >= 0)
        rc = load_line(l, line, (size_t)n);
    if (rc == 0 && ferror(l->in))
        rc = CH_FAIL(COHORT_EIO, "%s: %s", l->name, strerror(errno));
    if (rc == 0)
        rc = load_flush(l);
    if (rc == 0)
        rc = load_finish_bulk(l);
    if (rc == 0)
        rc = cohort_sync(l->db);
    free(line);
    return rc;
}

static int
load_report(const struct load *l)
{
    double seconds = (double)(rt_now_ns() - l->started) / 1e9;
    struct json_object *o;

    if (l->t->quiet && !l->t->json)
        return 0;
    if (!l->t->json) {
        printf("loaded %llu entries, %llu bytes, in %.1f s\n", (unsigned long long)l->loaded,
               (unsigned long long)l->payload, seconds);
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL || json_object_object_add(o, "entries", json_object_new_uint64(l->loaded)) != 0 ||
        json_object_object_add(o, "payload_bytes", json_object_new_uint64(l->payload)) != 0 ||
        json_object_object_add(o, "seconds", json_object_new_double(seconds)) != 0) {
        json_object_put(o);
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    }
    return tool_json_print(o, stdout);
}

/* Whether the tree is empty; then everything may go through a bulk load. */
static int
load_start(struct load *l)
{
    cohort_txn *txn = NULL;
    cohort_cursor *c = NULL;
    bool empty;
    int rc = cohort_begin(l->db, NULL, &txn);

    if (rc == 0)
        rc = cohort_txn_cursor(txn, l->tree, &c);
    if (rc == 0)
        rc = cohort_cursor_first(c);
    empty = rc == COHORT_NOTFOUND;
    cohort_cursor_close(c);
    rc = tool_end(txn, empty ? 0 : rc);
    return rc == 0 && empty ? cohort_bulk_open(l->db, l->tree, &l->bulk) : rc;
}

static int
load_open(struct load *l, const char *file, bool create)
{
    int rc = 0;

    l->in = stdin;
    l->name = "standard input";
    if (file != NULL && strcmp(file, "-") != 0) {
        l->name = file;
        l->in = fopen(file, "r");
        if (l->in == NULL)
            return CH_FAIL(COHORT_EIO, "%s: %s", file, strerror(errno));
    }
    if (create)
        rc = cohort_options_set(&l->t->options, "create", "yes");
    if (rc == 0)
        rc = tool_open(l->t, &l->db);
    if (rc == 0)
        rc = tool_tree(l->db, NULL, l->tree_name, create ? COHORT_TREE_CREATE : 0, &l->tree);
    return rc == 0 ? load_start(l) : rc;
}

static int
load_close(struct load *l, int rc)
{
    cohort_bulk_abort(l->bulk);
    cohort_tree_close(l->tree);
    rc = tool_close(l->db, rc);
    if (l->in != NULL && l->in != stdin)
        fclose(l->in);
    free(l->text.data);
    free(l->last.data);
    return rc;
}

int
cmd_load(struct tool *t, int argc, char **argv)
{
    struct load l = {.t = t};
    bool create = false;
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &l.tree_name, NULL, "Into this named tree."},
        {"create", 0, ARG_FLAG, &create, NULL, "Creates database and tree when missing."},
        {"jsonl", 0, ARG_FLAG, &l.jsonl, NULL, "Lines are JSON objects, as `dump --json` writes."},
        {"raw", 0, ARG_FLAG, &l.raw, NULL, "Lines as they are: a backslash is no escape."},
    };
    char **pos = NULL;
    int n = 0, rc;

    /* One flush at the end makes all of it durable; -o durability=sync flushes each batch. */
    rc = cohort_options_set(&t->options, "durability", "none");
    if (rc == 0)
        rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = load_open(&l, n > 1 ? pos[1] : NULL, create);
    l.started = l.reported = rt_now_ns();
    if (rc == 0)
        rc = load_all(&l);
    if (rc == 0)
        rc = load_report(&l);
    return load_close(&l, rc);
}
