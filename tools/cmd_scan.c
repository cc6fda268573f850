/* cmd_scan.c - cohort scan and dump: entries in key order. (dump of the device's bytes: cmd_format.c)
 *
 * Text form: key, tab, value, newline, with \\ \t \n \xNN for what would break a line, or hex digits
 * with --hex. JSON form: one object a line, "key" or "key_hex", "value" or "value_hex". `load` reads
 * all of them back.
 */
#include <errno.h>
#include <stdlib.h>

#include "tools/tool.h"

struct scan {
    struct tool *t;
    FILE *out;
    const char *from, *to, *prefix, *tree;
    uint64_t limit, count;
    bool reverse, keys_only, count_only;
    struct tool_bytes low, high, pre; /* the same as bytes */
};

static int
scan_print(struct scan *s, struct cohort_slice key, struct cohort_slice value)
{
    struct json_object *o;
    int rc;

    if (!s->t->json) {
        tool_print_bytes(s->out, key.data, key.bytes, s->t->hex);
        if (!s->keys_only) {
            putc('\t', s->out);
            tool_print_bytes(s->out, value.data, value.bytes, s->t->hex);
        }
        return putc('\n', s->out) == EOF ? CH_FAIL(COHORT_EIO, "output: %s", strerror(errno)) : 0;
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tool_json_bytes(o, "key", key.data, key.bytes, s->t->hex);
    if (rc == 0 && !s->keys_only)
        rc = tool_json_bytes(o, "value", value.data, value.bytes, s->t->hex);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    return tool_json_print(o, s->out);
}

static int
compare(const struct cohort_slice *a, const struct tool_bytes *b)
{
    int c = memcmp(a->data, b->data, ch_min_u64(a->bytes, b->bytes));

    return c != 0 ? c : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Whether the scan ends before this key; *skip: it only passes over it. */
static bool
scan_ends(const struct scan *s, const struct cohort_slice *key, bool *skip)
{
    bool below = s->low.data != NULL && compare(key, &s->low) < 0;
    bool above = s->high.data != NULL && compare(key, &s->high) >= 0;
    bool prefixed = s->pre.data == NULL || (key->bytes >= s->pre.bytes &&
                                            memcmp(key->data, s->pre.data, s->pre.bytes) == 0);

    if (s->pre.data != NULL && !prefixed) {
        int c = compare(key, &s->pre);

        below = below || c < 0;
        above = above || c > 0;
    }
    *skip = s->reverse ? above : below;
    return s->reverse ? below : above;
}

static int
scan_start(const struct scan *s, cohort_cursor *c)
{
    const struct tool_bytes *low = s->low.data != NULL ? &s->low : &s->pre;

    if (s->reverse)
        return s->high.data != NULL ? cohort_cursor_seek_before(c, s->high.data, s->high.bytes)
                                    : cohort_cursor_last(c);
    return low->data != NULL ? cohort_cursor_seek(c, low->data, low->bytes)
                             : cohort_cursor_first(c);
}

static int
scan_cursor(struct scan *s, cohort_cursor *c)
{
    struct cohort_slice key, value = {0};
    bool skip = false, no_values = s->keys_only || s->count_only;
    int rc;

    rc = scan_start(s, c);
    while (rc == 0 && s->count < s->limit) {
        rc = cohort_cursor_entry(c, &key, no_values ? NULL : &value);
        if (rc != 0 || scan_ends(s, &key, &skip))
            break;
        if (!skip) {
            s->count++;
            if (!s->count_only)
                rc = scan_print(s, key, value);
        }
        if (rc == 0)
            rc = s->reverse ? cohort_cursor_prev(c) : cohort_cursor_next(c);
    }
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

/* All of it in one snapshot. */
static int
scan_run(struct scan *s, cohort_db *db)
{
    struct cohort_txn_options o;
    cohort_txn *txn = NULL;
    cohort_tree *tree = NULL;
    cohort_cursor *c = NULL;
    int rc;

    cohort_txn_options_init(&o);
    o.read_only = true;
    rc = cohort_begin(db, &o, &txn);
    if (rc == 0)
        rc = tool_tree(db, txn, s->tree, 0, &tree);
    if (rc == 0)
        rc = cohort_txn_cursor(txn, tree, &c);
    if (rc == 0)
        rc = scan_cursor(s, c);
    cohort_cursor_close(c);
    rc = tool_end(txn, rc);
    cohort_tree_close(tree);
    return rc;
}

static int
scan_bounds(struct scan *s)
{
    int rc = 0;

    if (s->from != NULL)
        rc = tool_bytes_arg(s->t, &s->low, s->from);
    if (rc == 0 && s->to != NULL)
        rc = tool_bytes_arg(s->t, &s->high, s->to);
    if (rc == 0 && s->prefix != NULL)
        rc = tool_bytes_arg(s->t, &s->pre, s->prefix);
    return rc;
}

static int
scan_report(const struct scan *s)
{
    struct json_object *o;

    if (!s->t->json) {
        printf("%llu\n", (unsigned long long)s->count);
        return 0;
    }
    o = json_object_new_object();
    if (o == NULL || json_object_object_add(o, "entries", json_object_new_uint64(s->count)) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    return tool_json_print(o, stdout);
}

int
cmd_scan(struct tool *t, int argc, char **argv)
{
    struct scan s = {.t = t, .out = stdout, .limit = UINT64_MAX};
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &s.tree, NULL, "Of this named tree."},
        {"from", 0, ARG_TEXT, &s.from, NULL, "First key."},
        {"to", 0, ARG_TEXT, &s.to, NULL, "End: keys below this one."},
        {"prefix", 0, ARG_TEXT, &s.prefix, NULL, "Only keys that start so."},
        {"limit", 'n', ARG_U64, &s.limit, NULL, "At most so many entries."},
        {"reverse", 0, ARG_FLAG, &s.reverse, NULL, "From the end to the start."},
        {"keys-only", 0, ARG_FLAG, &s.keys_only, NULL, "Without the values."},
        {"count", 0, ARG_FLAG, &s.count_only, NULL, "Prints only how many there are."},
    };
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 1, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = scan_bounds(&s);
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc == 0)
        rc = scan_run(&s, db);
    if (rc == 0 && s.count_only)
        rc = scan_report(&s);
    if (rc == 0)
        rc = tool_flush();
    rc = tool_close(db, rc);
    free(s.low.data);
    free(s.high.data);
    free(s.pre.data);
    return rc;
}

int
cmd_dump(struct tool *t, int argc, char **argv)
{
    struct scan s = {.t = t, .out = stdout, .limit = UINT64_MAX};
    struct format_what what = {.page = FORMAT_NONE, .zone = FORMAT_NONE};
    const struct arg own[] = {
        {"tree", 0, ARG_TEXT, &s.tree, NULL, "The entries of this named tree."},
        {"root", 0, ARG_FLAG, &what.root, NULL, "The device's root records, field by field."},
        {"log", 0, ARG_FLAG, &what.log, NULL, "The log's blocks and records since the cut."},
        {"page", 0, ARG_U64, &what.page, NULL, "A page: its place, image and contents."},
        {"zone", 0, ARG_U64, &what.zone, NULL, "A zone, slot by slot; -v: contents too."},
    };
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 1, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (what.root || what.log || what.page != FORMAT_NONE || what.zone != FORMAT_NONE) {
        if (n > 1)
            return CH_FAIL(COHORT_EINVAL, "%s: --root, --log, --page, --zone print to stdout",
                           pos[1]);
        return format_dump(t, &what);
    }
    rc = tool_open(t, &db);
    if (rc != 0)
        return rc;
    if (n > 1) {
        s.out = fopen(pos[1], "w");
        if (s.out == NULL) {
            rc = CH_FAIL(COHORT_EIO, "%s: %s", pos[1], strerror(errno));
            goto out;
        }
    }
    rc = scan_run(&s, db);
    if (s.out != stdout && fclose(s.out) != 0 && rc == 0)
        rc = CH_FAIL(COHORT_EIO, "%s: %s", pos[1], strerror(errno));
    if (rc == 0)
        rc = tool_flush();
    if (rc == 0 && !t->quiet)
        fprintf(stderr, "%llu entries\n", (unsigned long long)s.count);
out:
    return tool_close(db, rc);
}
