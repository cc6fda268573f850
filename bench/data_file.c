/* data_file.c - records from a user's own file: mbox, CSV, JSON lines, MediaWiki XML, or lines.
 *
 * Parsers look for the ends of records only; what is between them is kept as it is, but for the entities of XML. None
 * reads beyond the 0 behind the text.
 */
#include "bench/data.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

int
data_read_file(const char *path, size_t max, struct tool_bytes *out)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    uint8_t *grown;
    size_t n;
    int rc = 0;

    if (f == NULL)
        return CH_FAIL(errno == ENOENT ? COHORT_ENODB : COHORT_EIO, "%s: %s", path,
                       strerror(errno));
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = CH_FAIL(COHORT_ENODB, "%s: no regular file", path);
        goto out;
    }
    n = (size_t)ch_min_u64((uint64_t)st.st_size, max);
    grown = realloc(out->data, n + 1);
    if (grown == NULL) {
        rc = CH_FAIL(COHORT_ENOMEM, "%s: %zu bytes", path, n);
        goto out;
    }
    *out = (struct tool_bytes){.data = grown, .bytes = fread(grown, 1, n, f), .capacity = n + 1};
    grown[out->bytes] = 0;
    if (ferror(f) != 0)
        rc = CH_FAIL(COHORT_EIO, "%s: %s", path, strerror(errno));
out:
    (void)fclose(f);
    return rc;
}

static bool
ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The end of the line, newline excluded. */
static const char *
line_end(const char *at, const char *end)
{
    const char *p = memchr(at, '\n', (size_t)(end - at));

    return p != NULL ? p : end;
}

/* A record a line; `quotes`: newlines within "..." belong to the line (CSV); `keys`: the line is the key. */
static int
load_lines(struct data *d, const char *at, const char *end, bool quotes, bool keys)
{
    static const uint8_t number[8];

    while (at < end) {
        const char *stop = at;
        bool quoted = false;
        size_t n;
        int rc = 0;

        for (; stop < end && (quoted || *stop != '\n'); stop++)
            quoted = quotes && (*stop == '"') != quoted;
        n = (size_t)(stop - at);
        if (n > 0 && at[n - 1] == '\r')
            n--;
        if (n > 0 && keys)
            rc = data_add(d, at, ch_min_u64(n, COHORT_KEY_MAX), number, sizeof(number));
        else if (n > 0)
            rc = data_add_numbered(d, at, n);
        if (rc != 0)
            return rc;
        at = stop < end ? stop + 1 : end;
    }
    return 0;
}

/* Messages begin with a line "From ", at the start or behind an empty line. */
static int
load_mbox(struct data *d, const char *at, const char *end)
{
    const char *message = at;
    bool empty = true;

    if (end - at < 5 || memcmp(at, "From ", 5) != 0)
        return CH_FAIL(COHORT_ECORRUPT, "mbox: does not begin with \"From \"");
    for (const char *line = at; line < end; line = line_end(line, end) + 1) {
        bool starts = empty && line > message && end - line >= 5 && memcmp(line, "From ", 5) == 0;
        int rc = starts ? data_add_numbered(d, message, (size_t)(line - message)) : 0;

        if (rc != 0)
            return rc;
        if (starts)
            message = line;
        empty = *line == '\n' || (*line == '\r' && line + 1 < end && line[1] == '\n');
    }
    return data_add_numbered(d, message, (size_t)(end - message));
}

/* Replaces the entities of XML; in place. Returns the new length. */
static size_t
unescape(char *text, size_t n)
{
    static const struct {
        const char *name;
        char c;
    } entities[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&amp;", '&'}};
    size_t out = 0;

    for (size_t i = 0; i < n; out++) {
        size_t taken = 1;
        char c = text[i];

        for (size_t k = 0; c == '&' && k < CH_ARRAY_LEN(entities); k++) {
            size_t m = strlen(entities[k].name);

            if (n - i >= m && memcmp(text + i, entities[k].name, m) == 0) {
                c = entities[k].c;
                taken = m;
                break;
            }
        }
        text[out] = c;
        i += taken;
    }
    return out;
}

/* The contents of the next element of that name, unescaped in place; NULL: there is none. */
static char *
element(char *at, const char *name, size_t *n)
{
    char open[32], close[32];
    char *start, *end;

    (void)snprintf(open, sizeof(open), "<%s", name);
    (void)snprintf(close, sizeof(close), "</%s>", name);
    start = strstr(at, open);
    start = start != NULL ? strchr(start, '>') : NULL;
    if (start == NULL || start[-1] == '/') /* <text/>: nothing in it */
        return NULL;
    start++;
    end = strstr(start, close);
    if (end == NULL)
        return NULL;
    *n = unescape(start, (size_t)(end - start));
    return start;
}

static int
load_wiki(struct data *d, char *at)
{
    while ((at = strstr(at, "<page>")) != NULL) {
        char *end = strstr(at, "</page>"), *title, *text;
        size_t title_bytes = 0, text_bytes = 0;

        if (end == NULL)
            return 0; /* cut off */
        *end = '\0';
        title = element(at, "title", &title_bytes);
        text = element(at, "text", &text_bytes);
        if (title != NULL && text != NULL && title_bytes > 0 && text_bytes > 0) {
            int rc = data_add(d, title, ch_min_u64(title_bytes, COHORT_KEY_MAX), text, text_bytes);

            if (rc != 0)
                return rc;
        }
        at = end + 1;
    }
    return 0;
}

int
data_load_file(const struct data_config *c, struct data *d)
{
    struct tool_bytes file = {0};
    const char *what = "lines as keys";
    char *at, *end;
    int rc = data_read_file(c->name, c->bytes, &file);

    if (rc != 0)
        goto out;
    at = (char *)file.data;
    end = at + file.bytes;
    if (ends_with(c->name, ".xml")) {
        what = "pages of MediaWiki XML";
        rc = load_wiki(d, at);
    } else if (ends_with(c->name, ".csv")) {
        what = "rows of CSV";
        rc = load_lines(d, at, end, true, false);
    } else if (ends_with(c->name, ".jsonl")) {
        what = "lines of JSON";
        rc = load_lines(d, at, end, false, false);
    } else if (ends_with(c->name, ".mbox") || strncmp(at, "From ", 5) == 0) {
        what = "messages of an mbox";
        rc = load_mbox(d, at, end);
    } else {
        rc = load_lines(d, at, end, false, true);
    }
    d->own = true;
    (void)snprintf(d->what, sizeof(d->what), "%s, %.1f MB of it: %zu %s", c->name,
                   (double)file.bytes / 1e6, d->count, what);
out:
    free(file.data);
    return rc;
}
