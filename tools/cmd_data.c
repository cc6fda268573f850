/* cmd_data.c - cohort get, put, del: one entry. */
#include <errno.h>
#include <stdlib.h>

#include "tools/tool.h"

/* Names the key in the record of an error that is about it. */
static int
name_key(int rc, const char *key)
{
    if (cohort_class_of(rc) == COHORT_CLASS_NOT_FOUND && rc == COHORT_NOTFOUND)
        return CH_FAIL(rc, "key '%.100s'", key);
    return rc;
}

static int
print_value(const struct tool *t, const struct tool_bytes *key, const struct cohort_value *v)
{
    struct json_object *o;
    int rc;

    if (!t->json) {
        if (t->hex)
            tool_print_bytes(stdout, v->data, v->bytes, true);
        else if (v->bytes > 0)
            fwrite(v->data, 1, v->bytes, stdout);
        putchar('\n');
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    rc = tool_json_bytes(o, "key", key->data, key->bytes, t->hex);
    if (rc == 0)
        rc = tool_json_bytes(o, "value", v->bytes > 0 ? v->data : "", v->bytes, t->hex);
    if (rc != 0) {
        json_object_put(o);
        return rc;
    }
    rc = tool_json_print(o, stdout);
    return rc != 0 ? rc : tool_flush();
}

int
cmd_get(struct tool *t, int argc, char **argv)
{
    struct tool_bytes key = {0};
    struct cohort_value value = {0};
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_bytes_arg(t, &key, pos[1]);
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc != 0)
        goto out;
    rc = name_key(cohort_get(db, key.data, key.bytes, &value), pos[1]);
    if (rc == 0)
        rc = print_value(t, &key, &value);
out:
    rc = tool_close(db, rc);
    cohort_value_free(&value);
    free(key.data);
    return rc;
}

static int
read_stdin(struct tool_bytes *b)
{
    char buf[4096];
    size_t got;
    int rc = tool_bytes_add(b, "", 0);

    while (rc == 0 && (got = fread(buf, 1, sizeof(buf), stdin)) > 0) {
        rc = tool_bytes_add(b, buf, got);
        if (rc == 0 && b->bytes > 2 * COHORT_ENTRY_MAX) /* hex digits are two a byte */
            return CH_FAIL(COHORT_EVALSIZE, "standard input: more than %d bytes", COHORT_ENTRY_MAX);
    }
    if (rc == 0 && ferror(stdin))
        rc = CH_FAIL(COHORT_EIO, "standard input: %s", strerror(errno));
    return rc;
}

static int
value_arg(struct tool *t, struct tool_bytes *value, const char *text)
{
    struct tool_bytes in = {0};
    int rc;

    if (strcmp(text, "-") != 0)
        return tool_bytes_arg(t, value, text);
    rc = read_stdin(&in);
    if (rc == 0 && t->hex) {
        while (in.bytes > 0 && in.data[in.bytes - 1] == '\n')
            in.bytes--;
        rc = tool_bytes_hex(value, (const char *)in.data, in.bytes);
    } else if (rc == 0) {
        rc = tool_bytes_add(value, in.data, in.bytes);
    }
    free(in.data);
    return rc;
}

int
cmd_put(struct tool *t, int argc, char **argv)
{
    bool insert = false, update = false, create = false;
    const struct arg own[] = {
        {"insert", 0, ARG_FLAG, &insert, NULL, "The key must not exist."},
        {"update", 0, ARG_FLAG, &update, NULL, "The key must exist."},
        {"create", 0, ARG_FLAG, &create, NULL, "Creates the database when it is missing."},
    };
    struct tool_bytes key = {0}, value = {0};
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, own, CH_ARRAY_LEN(own), 3, 3, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (insert && update)
        return CH_FAIL(COHORT_EINVAL, "--insert and --update exclude each other");
    rc = tool_bytes_arg(t, &key, pos[1]);
    if (rc == 0)
        rc = value_arg(t, &value, pos[2]);
    if (rc == 0 && create)
        rc = cohort_options_set(&t->options, "create", "yes");
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc != 0)
        goto out;
    if (insert)
        rc = cohort_insert(db, key.data, key.bytes, value.data, value.bytes);
    else if (update)
        rc = cohort_update(db, key.data, key.bytes, value.data, value.bytes);
    else
        rc = cohort_put(db, key.data, key.bytes, value.data, value.bytes);
    rc = rc == COHORT_EXISTS ? CH_FAIL(rc, "key '%.100s'", pos[1]) : name_key(rc, pos[1]);
out:
    rc = tool_close(db, rc);
    free(value.data);
    free(key.data);
    return rc;
}

int
cmd_del(struct tool *t, int argc, char **argv)
{
    struct tool_bytes key = {0};
    cohort_db *db = NULL;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 2, 2, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    rc = tool_bytes_arg(t, &key, pos[1]);
    if (rc == 0)
        rc = tool_open(t, &db);
    if (rc == 0)
        rc = name_key(cohort_del(db, key.data, key.bytes), pos[1]);
    rc = tool_close(db, rc);
    free(key.data);
    return rc;
}
