/* data_text.c - data sets out of text that installed packages have brought: documents, mail about them, addresses in them.
 *
 * Text is what lies uncompressed below the directories: by default /usr/share/doc and the manuals of Perl and Python; licences
 * are left out, as packages repeat them. Files come in the order of their names, so the same packages give the same data.
 * `apt install perl-doc python3-doc doc-rfc-std` brings more of it, `/usr/share/doc` holds something everywhere.
 */
#include "bench/data.h"

#include <fts.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/prng.h"

enum {
    FILE_MIN = 1024,
    FILE_MAX = 512 * 1024,
    LINE_BYTES = 512,
    URL_MIN = 12,
};

struct text {
    const struct data_config *c;
    struct data *d;
    struct tool_bytes file;
    struct ch_prng rng;
    uint64_t bytes; /* of text used so far */
    int (*use)(struct text *t, const char *path, const char *data, size_t n);
    /* email */
    struct tool_bytes message;
    uint64_t messages;
    /* url */
    char **urls;
    size_t url_count, url_capacity;
};

/* ---- walking ---- */

static int
by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool
is_text(const char *name)
{
    static const char *const endings[] = {".txt", ".md", ".rst", ".pod", ".html", ".tex"};
    size_t n = strlen(name);

    if (strncmp(name, "README", 6) == 0 || strncmp(name, "NEWS", 4) == 0)
        return strstr(name, ".gz") == NULL && strstr(name, ".xz") == NULL;
    for (size_t i = 0; i < CH_ARRAY_LEN(endings); i++) {
        size_t m = strlen(endings[i]);

        if (n > m && strcmp(name + n - m, endings[i]) == 0)
            return true;
    }
    return false;
}

static int
visit(struct text *t, const FTSENT *e)
{
    int rc;

    if (e->fts_info != FTS_F || e->fts_statp->st_size < FILE_MIN || !is_text(e->fts_name))
        return 0;
    rc = data_read_file(e->fts_accpath, FILE_MAX, &t->file);
    if (rc == COHORT_ENODB || rc == COHORT_EIO)
        return 0; /* not ours to read */
    if (rc != 0 || t->file.bytes < FILE_MIN || memchr(t->file.data, 0, t->file.bytes) != NULL)
        return rc;
    t->d->files++;
    t->bytes += t->file.bytes;
    return t->use(t, e->fts_path, (const char *)t->file.data, t->file.bytes);
}

static int
walk(struct text *t)
{
    char *list =
        strdup(t->c->text != NULL ? t->c->text : "/usr/share/doc:/usr/share/perl:/usr/share/perl5");
    char *dirs[16], *save = NULL;
    size_t n = 0;
    FTS *fts = NULL;
    FTSENT *e;
    int rc = list != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "directories");

    for (char *p = list; p != NULL && n + 1 < CH_ARRAY_LEN(dirs);) {
        dirs[n] = strtok_r(p, ":", &save);
        if (dirs[n] == NULL)
            break;
        n++;
        p = save;
    }
    dirs[n] = NULL;
    if (rc == 0 && n > 0) {
        fts = fts_open(dirs, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
        if (fts == NULL)
            rc = CH_FAIL(COHORT_EIO, "%s", t->c->text);
    }
    while (rc == 0 && fts != NULL && t->d->bytes.bytes < t->c->bytes && (e = fts_read(fts)) != NULL)
        rc = visit(t, e);
    if (fts != NULL)
        (void)fts_close(fts);
    free(list);
    if (rc == 0 && t->d->files == 0)
        rc = CH_FAIL(COHORT_ENODB, "no plain text below %s: --text names directories",
                     t->c->text != NULL ? t->c->text : "/usr/share/doc");
    return rc;
}

static int
make(const struct data_config *c, struct data *d, struct text *t,
     int (*use)(struct text *t, const char *path, const char *data, size_t n))
{
    *t = (struct text){.c = c, .d = d, .use = use};
    ch_prng_init(&t->rng, c->seed);
    return walk(t);
}

static void
fini(struct text *t)
{
    free(t->file.data);
    free(t->message.data);
    for (size_t i = 0; i < t->url_count; i++)
        free(t->urls[i]);
    free(t->urls);
}

/* ---- wiki ---- */

static int
use_wiki(struct text *t, const char *path, const char *data, size_t n)
{
    return data_add(t->d, path, ch_min_u64(strlen(path), COHORT_KEY_MAX), data, n);
}

int
data_make_wiki(const struct data_config *c, struct data *d)
{
    struct text t;
    int rc = make(c, d, &t, use_wiki);

    (void)snprintf(d->what, sizeof(d->what),
                   "documents of installed packages, no wiki: %llu files, %.1f MB",
                   (unsigned long long)d->files, (double)t.bytes / 1e6);
    d->text_only = true;
    fini(&t);
    return rc;
}

/* ---- email ---- */

static const char *
pick(struct text *t, const char *const *from, size_t n)
{
    return from[ch_prng_below(&t->rng, n)];
}

static int
print_headers(struct text *t, const char *subject, size_t subject_bytes)
{
    static const char *const names[] = {"Anna Berg",   "Jan de Vries", "Maria Rossi", "Tom Clark",
                                        "Yuki Tanaka", "Pavel Novak",  "Lucia Gomez", "Omar Haddad",
                                        "Ingrid Holm", "Wei Zhang",    "Peter Braun", "Sara Lind",
                                        "Amit Sharma", "Chloe Martin", "Ben Ofori",   "Eva Kovacs"};
    static const char *const hosts[] = {"example.org", "mail.example.com", "lists.example.net",
                                        "dept.example.edu", "post.example.org"};
    static const char *const lists[] = {"devel", "users", "announce", "bugs"};
    static const char *const days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const char *who = pick(t, names, CH_ARRAY_LEN(names));
    const char *host = pick(t, hosts, CH_ARRAY_LEN(hosts));
    const char *list = pick(t, lists, CH_ARRAY_LEN(lists));
    char text[1024], date[48];
    int n;

    (void)snprintf(
        date, sizeof(date), "%s, %u %s %u %02u:%02u:%02u +0000", pick(t, days, CH_ARRAY_LEN(days)),
        1 + (unsigned)ch_prng_below(&t->rng, 28), pick(t, months, CH_ARRAY_LEN(months)),
        1999 + (unsigned)ch_prng_below(&t->rng, 25), (unsigned)ch_prng_below(&t->rng, 24),
        (unsigned)ch_prng_below(&t->rng, 60), (unsigned)ch_prng_below(&t->rng, 60));
    n = snprintf(
        text, sizeof(text),
        "Return-Path: <%.3s%u@%s>\nReceived: from %s (%s [192.0.2.%u])\n\tby mx%u.example.org "
        "(Postfix) with ESMTP id %08llX\n\tfor <%s@lists.example.net>; %s\nMessage-ID: "
        "<%016llx@%s>\nDate: %s\nFrom: %s <%.3s%u@%s>\nTo: %s@lists.example.net\n"
        "Subject: %s%.*s\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        "Content-Transfer-Encoding: 8bit\n\n",
        who, (unsigned)t->messages % 97, host, host, host, (unsigned)ch_prng_below(&t->rng, 255),
        (unsigned)ch_prng_below(&t->rng, 4), (unsigned long long)(ch_prng_next(&t->rng) >> 32),
        list, date, (unsigned long long)ch_prng_next(&t->rng), host, date, who, who,
        (unsigned)t->messages % 97, host, list, t->messages % 3 == 0 ? "Re: " : "",
        (int)ch_min_u64(subject_bytes, 60), subject);
    CH_ASSERT(n > 0 && (size_t)n < sizeof(text));
    t->message.bytes = 0;
    return tool_bytes_add(&t->message, text, (size_t)n);
}

/* Lines [at, stop), quoted when they answer. */
static int
print_lines(struct text *t, const char *at, const char *stop, bool quote)
{
    int rc = 0;

    while (rc == 0 && at < stop) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));

        end = end != NULL ? end + 1 : stop;
        if (quote)
            rc = tool_bytes_add(&t->message, "> ", 2);
        if (rc == 0)
            rc = tool_bytes_add(&t->message, at, (size_t)(end - at));
        at = end;
    }
    return rc;
}

/* The file as mails of a page or so each; a third of them begin by quoting what came before. */
static int
use_email(struct text *t, const char *path, const char *data, size_t n)
{
    const char *name = strrchr(path, '/');
    const char *at = data, *before = data, *end = data + n;
    int rc = 0;

    name = name != NULL ? name + 1 : path;
    while (rc == 0 && at < end) {
        size_t want = 300 + ch_prng_below(&t->rng, 2500);
        const char *stop = (size_t)(end - at) > want ? at + want : end;
        const char *line = stop < end ? memchr(stop, '\n', (size_t)(end - stop)) : NULL;

        stop = line != NULL ? line + 1 : end;
        rc = print_headers(t, name, strlen(name));
        if (rc == 0 && t->messages % 3 == 0)
            rc = print_lines(t, before, at, true);
        if (rc == 0)
            rc = print_lines(t, at, stop, false);
        if (rc == 0)
            rc = data_add_numbered(t->d, t->message.data, t->message.bytes);
        t->messages++;
        before = at;
        at = stop;
    }
    return rc;
}

int
data_make_email(const struct data_config *c, struct data *d)
{
    struct text t;
    int rc = make(c, d, &t, use_email);

    (void)snprintf(d->what, sizeof(d->what),
                   "generated headers over documents of installed packages: %llu files, %.1f MB",
                   (unsigned long long)d->files, (double)t.bytes / 1e6);
    fini(&t);
    return rc;
}

/* ---- url ---- */

static int
add_url(struct text *t, const char *at, size_t n)
{
    if (t->url_count == t->url_capacity) {
        size_t capacity = t->url_capacity == 0 ? 4096 : 2 * t->url_capacity;
        char **urls = realloc(t->urls, capacity * sizeof(*urls));

        if (urls == NULL)
            return CH_FAIL(COHORT_ENOMEM, "%zu addresses", capacity);
        t->urls = urls;
        t->url_capacity = capacity;
    }
    t->urls[t->url_count] = strndup(at, n);
    if (t->urls[t->url_count] == NULL)
        return CH_FAIL(COHORT_ENOMEM, "address");
    t->url_count++;
    return 0;
}

/* Addresses begin with http; links of HTML files among each other become addresses of where the file is. */
static int
use_url(struct text *t, const char *path, const char *data, size_t n)
{
    const char *end = data + n, *dir = strrchr(path, '/');
    char line[LINE_BYTES];
    int rc = 0;

    for (const char *at = data; rc == 0 && at < end; at++) {
        bool http = end - at > URL_MIN && memcmp(at, "http", 4) == 0 && strchr("s:", at[4]) != NULL;
        bool link = !http && end - at > 8 && memcmp(at, "href=\"", 6) == 0 &&
                    strchr("#\"/", at[6]) == NULL && memcmp(at + 6, "http", 4) != 0;
        size_t k;

        if (!http && !link)
            continue;
        at += link ? 6 : 0;
        k = strcspn(at, " \t\r\n<>\"'`)(]}{|\\");
        if (http && k >= URL_MIN && k < LINE_BYTES && memcmp(at, "http", 4) == 0 &&
            memchr(at, '/', k) != NULL)
            rc = add_url(t, at, k);
        if (link && k >= 3 && k < 128 && dir - path < 256) {
            int m = snprintf(line, sizeof(line), "https://docs.example.org%.*s/%.*s",
                             (int)(dir - path), path, (int)k, at);

            rc = add_url(t, line, (size_t)m);
        }
        at += k > 0 ? k - 1 : 0;
    }
    return rc;
}

static int
compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int
data_make_url(const struct data_config *c, struct data *d)
{
    static const uint8_t number[8];
    struct text t;
    size_t n = 0;
    int rc = make(c, d, &t, use_url);

    if (rc == 0 && t.url_count > 0)
        qsort(t.urls, t.url_count, sizeof(*t.urls), compare_text);
    for (size_t i = 0; rc == 0 && i < t.url_count; i++) {
        if (n > 0 && strcmp(t.urls[n - 1], t.urls[i]) == 0) {
            free(t.urls[i]);
            t.urls[i] = NULL;
        } else {
            char *url = t.urls[i];

            t.urls[i] = NULL;
            t.urls[n++] = url;
        }
    }
    for (size_t i = n; rc == 0 && i > 1; i--) { /* in random order, as an index gets them */
        size_t k = ch_prng_below(&t.rng, i);
        char *url = t.urls[k];

        t.urls[k] = t.urls[i - 1];
        t.urls[i - 1] = url;
    }
    for (size_t i = 0; rc == 0 && i < n && d->bytes.bytes < c->bytes; i++)
        rc = data_add(d, t.urls[i], strlen(t.urls[i]), number, sizeof(number));
    (void)snprintf(d->what, sizeof(d->what),
                   "addresses and links in documents of installed packages: %llu files",
                   (unsigned long long)d->files);
    d->text_only = true;
    fini(&t);
    return rc;
}
