/* tool.c - see tool.h. */
#include "tools/tool.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

enum {
    TOOL_COMMON = 10
};

static void
tool_common(struct tool *t, struct arg *args)
{
    const struct arg common[TOOL_COMMON] = {
        {"json", 0, ARG_FLAG, &t->json, NULL, "Print JSON."},
        {"quiet", 'q', ARG_FLAG, &t->quiet, NULL, "No progress, no confirmations."},
        {"verbose", 'v', ARG_FLAG, &t->verbose, NULL, "Notices of the library on stderr."},
        {"hex", 0, ARG_FLAG, &t->hex, NULL, "Keys and values are hex digits."},
        {"option", 'o', ARG_SET, &t->options, NULL, "name=value: see `cohort options`."},
        {"preset", 0, ARG_OPTION, &t->options, "preset", "Same as -o preset=X."},
        {"cache", 0, ARG_OPTION, &t->options, "cache_bytes", "Same as -o cache_bytes=X."},
        {"codec", 0, ARG_OPTION, &t->options, "codec", "Same as -o codec=X."},
        {"durability", 0, ARG_OPTION, &t->options, "durability", "Same as -o durability=X."},
        {"help", 'h', ARG_FLAG, &t->help, NULL, "Print this help."},
    };

    memcpy(args, common, sizeof(common));
}

/* The command that runs. */
static const struct tool_command *
tool_self(const struct tool *t)
{
    const struct tool_command *c = t->bench;

    for (size_t i = 0; i < tool_command_count && c == NULL; i++)
        if (strcmp(tool_commands[i].name, t->command) == 0)
            c = &tool_commands[i];
    CH_ASSERT(c != NULL); /* commands name themselves */
    return c;
}

void
tool_help(const struct tool *t, const struct arg *own, size_t n, FILE *out)
{
    const struct tool_command *c = tool_self(t);

    fprintf(out, "usage: cohort %s%s%s%s [OPTION]...\n%s\n", t->bench != NULL ? "bench " : "",
            c->name, c->usage[0] != '\0' ? " " : "", c->usage, c->brief);
    args_help(own, n, out);
}

int /* NOLINTNEXTLINE(readability-function-size): nine parameters, one call in each command */
tool_args(struct tool *t, int argc, char **argv, const struct arg *own, size_t n, int min, int max,
          char ***pos, int *count)
{
    struct arg args[ARGS_MAX];
    const char *usage = tool_self(t)->usage;
    int first = 0, rc;

    CH_ASSERT(n + TOOL_COMMON <= ARGS_MAX);
    if (n > 0)
        memcpy(args, own, n * sizeof(*own));
    tool_common(t, args + n);
    rc = args_parse(argc, argv, args, n + TOOL_COMMON, &first);
    if (rc != 0)
        return rc;
    if (t->help) {
        tool_help(t, args, n + TOOL_COMMON, stdout);
        return 0;
    }
    *pos = argv + first;
    *count = argc - first;
    if (*count > 0)
        t->where = argv[first];
    if (*count < min || *count > max) {
        t->where = NULL; /* what it names is not known */
        return CH_FAIL(COHORT_EINVAL, "needs%s%s, got %d argument%s; see `cohort help %s`",
                       usage[0] != '\0' ? " " : " no arguments", usage, *count,
                       *count == 1 ? "" : "s", t->command);
    }
    return 0;
}

int
tool_open(struct tool *t, cohort_db **db)
{
    return cohort_open(t->where, &t->options, db);
}

int
tool_tree(cohort_db *db, cohort_txn *txn, const char *name, unsigned flags, cohort_tree **tree)
{
    int rc;

    *tree = NULL;
    if (name == NULL)
        return 0;
    rc = cohort_tree_open(db, txn, name, flags, NULL, tree);
    return rc == COHORT_NOTFOUND ? CH_FAIL(rc, "tree '%.100s'", name) : rc;
}

/* The last step of many, after an error of an earlier one, whose record it must not replace. */
static void
after_error(int (*step)(void *object), void *object)
{
    struct cohort_error e = *cohort_last_error();

    (void)step(
        object); /* what the step met on its way, even if it went well, is in the record now */
    errno = e.sys_errno;
    (void)ch_fail(e.code, e.file != NULL ? e.file : __FILE__, e.line, "%s", e.text);
}

static int
step_close(void *object)
{
    return cohort_close(object);
}

static int
step_abort(void *object)
{
    return cohort_abort(object);
}

int
tool_end(cohort_txn *txn, int rc)
{
    if (txn == NULL)
        return rc;
    if (rc == 0)
        return cohort_commit(txn);
    after_error(step_abort, txn);
    return rc;
}

int
tool_close(cohort_db *db, int rc)
{
    if (rc == 0)
        return cohort_close(db);
    after_error(step_close, db);
    return rc;
}

bool
tool_is_volatile(const char *where)
{
    return strncmp(where, "sim:", 4) == 0 && strstr(where, ",file=") == NULL;
}

/* ---- byte strings ---- */

int
tool_bytes_add(struct tool_bytes *b, const void *data, size_t n)
{
    if (b->bytes + n + 1 > b->capacity) {
        size_t want = 2 * (b->bytes + n + 1);
        uint8_t *p = realloc(b->data, want);

        if (p == NULL)
            return CH_FAIL(COHORT_ENOMEM, "%zu bytes for a key or value", want);
        b->data = p;
        b->capacity = want;
    }
    if (n > 0)
        memcpy(b->data + b->bytes, data, n);
    b->bytes += n;
    b->data[b->bytes] = 0;
    return 0;
}

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int
tool_bytes_hex(struct tool_bytes *b, const char *text, size_t n)
{
    int rc = tool_bytes_add(b, "", 0);

    if (n % 2 != 0)
        return CH_FAIL(COHORT_EINVAL, "'%.*s': odd number of hex digits", (int)ch_min_u64(n, 64),
                       text);
    for (size_t i = 0; i < n && rc == 0; i += 2) {
        int hi = hex_digit(text[i]), lo = hex_digit(text[i + 1]);
        uint8_t byte = (uint8_t)((unsigned)hi << 4 | (unsigned)lo);

        if (hi < 0 || lo < 0)
            return CH_FAIL(COHORT_EINVAL, "'%.*s': not hex digits", (int)ch_min_u64(n, 64), text);
        rc = tool_bytes_add(b, &byte, 1);
    }
    return rc;
}

/* The byte that an escape stands for; *used = characters of it, 0 when there is no such escape. */
static uint8_t
unescape_one(const char *text, size_t n, size_t *used)
{
    int hi, lo;

    *used = n >= 2 ? 2 : 0;
    switch (n >= 2 ? text[1] : '\0') {
    case '\\':
        return '\\';
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'x':
        hi = n >= 4 ? hex_digit(text[2]) : -1;
        lo = n >= 4 ? hex_digit(text[3]) : -1;
        *used = hi >= 0 && lo >= 0 ? 4 : 0;
        return (uint8_t)((unsigned)hi << 4 | (unsigned)lo);
    default:
        *used = 0;
        return 0;
    }
}

int
tool_bytes_unescape(struct tool_bytes *b, const char *text, size_t n)
{
    size_t i = 0, used;
    int rc = tool_bytes_add(b, "", 0);

    while (i < n && rc == 0) {
        const char *slash = memchr(text + i, '\\', n - i);
        size_t plain = slash != NULL ? (size_t)(slash - (text + i)) : n - i;
        uint8_t byte;

        rc = tool_bytes_add(b, text + i, plain);
        i += plain;
        if (rc != 0 || i == n)
            break;
        byte = unescape_one(text + i, n - i, &used);
        if (used == 0)
            return CH_FAIL(COHORT_EINVAL, "'%.*s': unknown escape (\\\\ \\t \\n \\xNN)",
                           (int)ch_min_u64(n, 64), text);
        rc = tool_bytes_add(b, &byte, 1);
        i += used;
    }
    return rc;
}

int
tool_bytes_arg(struct tool *t, struct tool_bytes *b, const char *text)
{
    return t->hex ? tool_bytes_hex(b, text, strlen(text)) : tool_bytes_add(b, text, strlen(text));
}

void
tool_print_bytes(FILE *out, const void *data, size_t n, bool hex)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < n; i++) {
        if (hex)
            fprintf(out, "%02x", p[i]);
        else if (p[i] == '\\')
            fputs("\\\\", out);
        else if (p[i] == '\t')
            fputs("\\t", out);
        else if (p[i] == '\n')
            fputs("\\n", out);
        else if (p[i] < ' ' || p[i] == 127)
            fprintf(out, "\\x%02x", p[i]);
        else
            putc(p[i], out);
    }
}

/* ---- JSON ---- */

/* Length of the UTF-8 sequence at p, 0 when there is none: no overlong forms, no surrogates. */
static size_t
utf8_length(const uint8_t *p, size_t n)
{
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (p[0] > 0xf4 || len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

static bool
is_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = p[i] == 0 ? 0 : utf8_length(p + i, n - i);

        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

int
tool_json_bytes(struct json_object *o, const char *name, const void *data, size_t n, bool hex)
{
    char field[32];
    char *text;
    int rc;

    if (!hex && is_text(data, n)) {
        if (json_object_object_add(o, name, json_object_new_string_len(data, (int)n)) != 0)
            return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
        return 0;
    }
    text = malloc(2 * n + 1);
    if (text == NULL)
        return CH_FAIL(COHORT_ENOMEM, "JSON field %s", name);
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)data)[i]);
    snprintf(field, sizeof(field), "%s_hex", name);
    rc = json_object_object_add(o, field, json_object_new_string_len(text, (int)(2 * n)));
    free(text);
    return rc == 0 ? 0 : CH_FAIL(COHORT_ENOMEM, "JSON field %s", field);
}

int
tool_json_print(struct json_object *o, FILE *out)
{
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE);
    int rc = 0;

    if (text == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "JSON text");
    else if (fprintf(out, "%s\n", text) < 0)
        rc = CH_FAIL(COHORT_EIO, "output: %s", strerror(errno));
    json_object_put(o);
    return rc;
}

int
tool_flush(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return CH_FAIL(COHORT_EIO, "standard output: %s", strerror(errno));
    return 0;
}
