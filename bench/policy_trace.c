/* policy_trace.c - traces of page writes: a header, then a page id a record. docs/FORMAT.md has the bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/policy.h"

enum {
    TRACE_HEADER = 32,
    TRACE_RECORD = 8,
    TRACE_VERSION = 1,
    TRACE_CHUNK = 4096, /* records read or written at a time */
};
#define TRACE_MAGIC  UINT64_C(0x4543415254484350) /* "PCHTRACE" */
#define TRACE_WRITES (UINT64_C(1) << 31)

static int
header_check(const uint8_t *h, const char *path, struct policy_trace *t)
{
    uint64_t pages = ch_get64(h + 16);

    if (ch_get64(h) != TRACE_MAGIC || ch_get32(h + 28) != ch_crc32c(0, h, 28))
        return CH_FAIL(COHORT_ECORRUPT, "%s: no trace of page writes", path);
    if (ch_get16(h + 8) != TRACE_VERSION || ch_get16(h + 10) != TRACE_RECORD)
        return CH_FAIL(COHORT_EVERSION, "%s: trace of version %u", path, ch_get16(h + 8));
    if (pages == 0 || pages >= UINT32_MAX)
        return CH_FAIL(COHORT_ECORRUPT, "%s: trace of %" PRIu64 " pages", path, pages);
    t->pages = (uint32_t)pages;
    return 0;
}

static int
records_add(struct policy_trace *t, const uint8_t *buf, size_t n, const char *path)
{
    uint32_t *page = realloc(t->page, (t->writes + n) * sizeof(*page));

    if (page == NULL)
        return CH_FAIL(COHORT_ENOMEM, "%s: trace", path);
    t->page = page;
    for (size_t i = 0; i < n; i++) {
        uint64_t id = ch_get48(buf + i * TRACE_RECORD);

        if (id >= t->pages)
            return CH_FAIL(COHORT_ECORRUPT, "%s: record %" PRIu64 ": page %" PRIu64 " of %u", path,
                           t->writes, id, t->pages);
        page[t->writes++] = (uint32_t)id;
    }
    return 0;
}

int
policy_trace_read(const char *path, struct policy_trace *out)
{
    struct policy_trace t = {0};
    uint8_t header[TRACE_HEADER];
    uint8_t *buf = NULL;
    FILE *f = fopen(path, "rb");
    size_t n;
    int rc = 0;

    if (f == NULL)
        return CH_FAIL(COHORT_EIO, "%s", path);
    buf = malloc((size_t)TRACE_CHUNK * TRACE_RECORD);
    if (buf == NULL)
        rc = CH_FAIL(COHORT_ENOMEM, "%s: trace", path);
    else if (fread(header, sizeof(header), 1, f) != 1)
        rc = CH_FAIL(COHORT_ECORRUPT, "%s: too short for a trace", path);
    if (rc == 0)
        rc = header_check(header, path, &t);
    while (rc == 0 && t.writes < TRACE_WRITES && (n = fread(buf, TRACE_RECORD, TRACE_CHUNK, f)) > 0)
        rc = records_add(&t, buf, n, path);
    if (rc == 0 && ferror(f))
        rc = CH_FAIL(COHORT_EIO, "%s: read", path);
    if (rc == 0 && t.writes == 0)
        rc = CH_FAIL(COHORT_ECORRUPT, "%s: trace without a write", path);
    free(buf);
    (void)fclose(f); /* nothing was written */
    if (rc == 0)
        *out = t;
    else
        policy_trace_free(&t);
    return rc;
}

void
policy_trace_free(struct policy_trace *t)
{
    free(t->page);
    *t = (struct policy_trace){0};
}

int
policy_trace_write(const char *path, struct policy_source *s, uint32_t pages, uint64_t writes)
{
    uint8_t header[TRACE_HEADER] = {0}, record[TRACE_RECORD] = {0};
    FILE *f = fopen(path, "wb");
    bool ok;

    if (f == NULL)
        return CH_FAIL(COHORT_EIO, "%s", path);
    ch_put64(header, TRACE_MAGIC);
    ch_put16(header + 8, TRACE_VERSION);
    ch_put16(header + 10, TRACE_RECORD);
    ch_put64(header + 16, pages);
    ch_put32(header + 28, ch_crc32c(0, header, 28));
    ok = fwrite(header, sizeof(header), 1, f) == 1;
    for (uint64_t i = 0; i < writes && ok; i++) {
        ch_put48(record, policy_source_next(s));
        ok = fwrite(record, sizeof(record), 1, f) == 1;
    }
    ok = fclose(f) == 0 && ok;
    return ok ? 0 : CH_FAIL(COHORT_EIO, "%s: write", path);
}
