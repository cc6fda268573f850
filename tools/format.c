/* format.c - the printer, and the structures that are not pages or records. See format.h. */
#include "tools/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>

#include "meta/meta.h"
#include "pack/pack.h"
#include "page/page.h"
#include "space/map.h"
#include "wal/wal.h"

enum {
    LINE_BYTES = 16,
    NOTE_BYTES = 200,
    ZERO_RUN = 32, /* as many zeroes become one line */
};

/* ---- lines ---- */

static void
print_line(struct format *f, size_t n, const char *note)
{
    fprintf(f->out, "%6zu ", f->pos);
    for (size_t i = 0; i < LINE_BYTES; i++) {
        if (i < n)
            fprintf(f->out, " %02x", f->data[f->pos + i]);
        else
            fputs("   ", f->out);
    }
    fprintf(f->out, "  %s\n", note);
    f->pos += n;
}

static void
print_run(struct format *f, size_t n, const char *note)
{
    char run[3 * LINE_BYTES + 1];

    snprintf(run, sizeof(run), "00 x %zu", n);
    if (note[0] == '\0')
        fprintf(f->out, "%6zu  %s\n", f->pos, run);
    else
        fprintf(f->out, "%6zu  %-47s  %s\n", f->pos, run, note);
    f->pos += n;
}

static bool
is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0)
            return false;
    }
    return true;
}

/* Zeroes from the current position on, at most n. */
static size_t
zero_run(const struct format *f, size_t n)
{
    size_t i = 0;

    while (i < n && f->data[f->pos + i] == 0)
        i++;
    return i;
}

/* At most LINE_BYTES bytes as text; `text` has room for one more. */
static void
to_text(char *text, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text[i] = isprint(p[i]) && p[i] != '`' ? (char)p[i] : '.';
    text[n] = '\0';
}

uint64_t
format_peek(const struct format *f, size_t off, size_t n)
{
    uint64_t v = 0;

    CH_ASSERT(n <= sizeof(v));
    if (off > format_left(f) || n > format_left(f) - off)
        return 0;
    memcpy(&v, f->data + f->pos + off, n);
    return v;
}

void
format_note(struct format *f, size_t n, const char *name, const char *fmt, ...)
{
    char note[NOTE_BYTES];
    int used = snprintf(note, sizeof(note), "%s = ", name);
    va_list ap;

    CH_ASSERT(used > 0 && used < NOTE_BYTES && n <= LINE_BYTES);
    if (n > format_left(f)) {
        format_bytes(f, format_left(f), "cut off");
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(note + used, sizeof(note) - (size_t)used, fmt, ap);
    va_end(ap);
    print_line(f, n, note);
}

uint64_t
format_number(struct format *f, size_t n, const char *name)
{
    uint64_t v = format_peek(f, 0, n);

    format_note(f, n, name, "%" PRIu64, v);
    return v;
}

static void
bytes_line(struct format *f, size_t n, const char *name)
{
    char text[LINE_BYTES + 1] = "", note[NOTE_BYTES];

    to_text(text, f->data + f->pos, n);
    snprintf(note, sizeof(note), "%.150s%s|%s|", name != NULL ? name : "", name != NULL ? " " : "",
             text);
    print_line(f, n, note);
}

void
format_bytes(struct format *f, size_t n, const char *name)
{
    char note[NOTE_BYTES];
    const char *label; /* of the first line */
    size_t end;

    n = ch_min_u64(n, format_left(f));
    if (n == 0)
        return;
    end = f->pos + n;
    label = n > LINE_BYTES ? note : name;
    snprintf(note, sizeof(note), "%s, %zu bytes", name, n);
    if (f->brief && !is_zero(f->data + f->pos, n)) {
        fprintf(f->out, "%6zu  %-47s  %s\n", f->pos, "...", note);
        f->pos += n;
        return;
    }
    while (f->pos < end) {
        size_t left = end - f->pos, run = zero_run(f, left);

        if (run >= ZERO_RUN || run == left)
            print_run(f, run, label != NULL ? name : "");
        else
            bytes_line(f, ch_min_u64(left, LINE_BYTES), label);
        label = NULL;
    }
}

static void
format_zeroes(struct format *f, size_t n)
{
    if (n <= format_left(f) && is_zero(f->data + f->pos, n) && n <= LINE_BYTES)
        print_line(f, n, "zero");
    else
        format_bytes(f, n,
                     n <= format_left(f) && is_zero(f->data + f->pos, n) ? "zero" : "not zero");
}

static void
format_checksum(struct format *f, const char *name)
{
    uint32_t v = (uint32_t)format_peek(f, 0, 4);

    if (v == f->crc)
        format_note(f, 4, name, "0x%08" PRIx32 ", right", v);
    else
        format_note(f, 4, name, "0x%08" PRIx32 ", wrong: 0x%08" PRIx32, v, f->crc);
}

void
format_fields(struct format *f, const struct format_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct format_field *d = &fields[i];
        char text[LINE_BYTES + 1] = "";

        switch (d->kind) {
        case 'x':
            format_note(f, d->bytes, d->name, "0x%0*" PRIx64, 2 * d->bytes,
                        format_peek(f, 0, d->bytes));
            break;
        case 'c':
            format_checksum(f, d->name);
            break;
        case 't':
            to_text(text, f->data + f->pos, ch_min_u64(d->bytes, format_left(f)));
            format_note(f, d->bytes, d->name, "%s", text);
            break;
        case 'z':
            format_zeroes(f, d->bytes);
            break;
        default:
            (void)format_number(f, d->bytes, d->name);
            break;
        }
    }
}

void
format_place(struct format *f, const char *name)
{
    place_t raw = format_peek(f, 0, 8);
    place_t p = raw & ~PLACE_FLAGS;

    if (raw == PLACE_NONE)
        format_note(f, 8, name, "none");
    else
        format_note(f, 8, name, "slot %" PRIu64 ", offset %" PRIu32 ", %" PRIu32 " bytes%s%s%s",
                    place_slot(p), place_offset(p), place_bytes(p),
                    (raw & PLACE_DELTA) != 0 ? ", of the delta" : "",
                    (raw & PLACE_KEEP) != 0 ? ", the delta stays" : "",
                    (p & 0x7f) != 0 ? ", unknown flags" : "");
}

/* CRC-32C of everything behind the first four bytes. */
static uint32_t
crc_behind(const struct format *f)
{
    return f->bytes > 4 ? ch_crc32c(0, f->data + 4, f->bytes - 4) : 0;
}

/* ---- write traces ---- */

static void
format_trace_record(struct format *f)
{
    static const char *const ops[] = {"read", "write", "append", "flush", "reset"};
    static const struct format_field head[] = {
        {8, 'u', "time_ns"},
        {8, 'u', "offset"},
        {4, 'u', "length"},
    };
    static const struct format_field tail[] = {
        {1, 'u', "stream"},
        {1, 'u', "cause"},
        {1, 'u', "flags"},
        {8, 'z', "zero"},
    };
    uint64_t op;

    format_fields(f, head, CH_ARRAY_LEN(head));
    op = format_peek(f, 0, 1);
    format_note(f, 1, "op", "%" PRIu64 " (%s)", op, op < CH_ARRAY_LEN(ops) ? ops[op] : "unknown");
    format_fields(f, tail, CH_ARRAY_LEN(tail));
}

void
format_trace(struct format *f)
{
    static const struct format_field fields[] = {
        {8, 't', "magic"},          {4, 'u', "version"}, {4, 'u', "block_bytes"},
        {8, 'u', "capacity_bytes"}, {8, 'z', "zero"},
    };

    format_fields(f, fields, CH_ARRAY_LEN(fields));
    while (format_left(f) > 0)
        format_trace_record(f);
}

/* ---- root record ---- */

void
format_root(struct format *f)
{
    static const struct format_field fields[] = {
        {4, 'c', "crc"},          {4, 'u', "version"},       {8, 't', "magic"},
        {8, 'u', "sequence"},     {8, 'x', "database_id"},   {4, 'u', "preset"},
        {4, 'u', "codec"},        {8, 'u', "device_bytes"},  {8, 'u', "log_base"},
        {8, 'u', "log_bytes"},    {8, 'u', "zones_base"},    {8, 'u', "zone_bytes"},
        {4, 'u', "zones"},        {4, 'u', "epoch"},         {4, 'u', "epoch_min"},
        {4, 'u', "flags"},        {8, 'u', "epoch_start"},   {8, 'u', "cut"},
        {8, 'u', "map_start"},    {8, 'u', "checkpoint"},    {8, 'u', "map_pages"},
        {8, 'u', "zone_pages"},   {8, 'u', "page_high"},     {8, 'u', "unit_bytes"},
        {4, 'u', "extent_count"}, {4, 'u', "inplace_zones"}, {8, 'x', "digest_map"},
        {8, 'x', "digest_zones"}, {8, 'u', "ids_root"},      {8, 'u', "next_txn"},
        {8, 'u', "delta_pages"},  {8, 'x', "digest_deltas"}, {32, 'z', "zero"},
        {4, 'u', "log_zones"},    {4, 'u', "log_zone"},
    };
    static const char *const arrays[] = {"map", "zone table", "deltas"};
    uint64_t extents = ch_min_u64(ch_get32(f->data + 160), META_EXTENTS_MAX);

    f->crc = crc_behind(f);
    format_fields(f, fields, CH_ARRAY_LEN(fields));
    for (uint64_t i = 0; i < extents; i++) {
        uint64_t array = format_peek(f, 4, 1);

        format_note(f, 8, "extent", "zone %" PRIu64 ", array %" PRIu64 " (%s)",
                    format_peek(f, 0, 4), array,
                    array < CH_ARRAY_LEN(arrays) ? arrays[array] : "unknown");
    }
    format_bytes(f, format_left(f), "rest");
}

/* ---- array slots ---- */

static const char *
state_name(uint64_t state)
{
    static const char *const names[] = {"free", "open", "sealed",  "collect",
                                        "dead", "meta", "retired", "log"};

    return state < CH_ARRAY_LEN(names) ? names[state] : "unknown";
}

void
format_zone_entry(struct format *f)
{
    static const struct format_field fields[] = {
        {1, 'u', "stream"},    {2, 'u', "life"},       {4, 'u', "cursor"}, {8, 'u', "live_bytes"},
        {8, 'u', "empty_lsn"}, {4, 'u', "generation"}, {4, 'u', "sealed"},
    };
    uint64_t state = format_peek(f, 0, 1);

    format_note(f, 1, "state", "%" PRIu64 " (%s)", state, state_name(state));
    format_fields(f, fields, CH_ARRAY_LEN(fields));
}

/* Entries of `size` bytes up to the end; zeroes, which mean "none" or "free", in one line. */
static void
format_entries(struct format *f, size_t size)
{
    while (format_left(f) >= size) {
        size_t run = zero_run(f, format_left(f)) / size * size;

        if (run > 0)
            print_run(f, run, size == 8 ? "no place" : "free zones");
        else if (size == 8)
            format_place(f, "place");
        else
            format_zone_entry(f);
    }
}

void
format_array_slot(struct format *f)
{
    static const struct format_field fields[] = {
        {4, 'c', "crc"},   {4, 'x', "magic"},       {2, 'u', "version"},
        {2, 'u', "array"}, {4, 'z', "zero"},        {8, 'u', "checkpoint"},
        {8, 'u', "page"},  {8, 'x', "database_id"}, {24, 'z', "zero"},
    };
    uint64_t array = format_peek(f, 10, 2);

    f->crc = crc_behind(f);
    format_fields(f, fields, CH_ARRAY_LEN(fields));
    if (!f->brief && array < META_ARRAYS)
        format_entries(f, array == META_ZONES ? 32 : 8);
    format_bytes(f, format_left(f), "payload");
}

/* ---- double write ---- */

void
format_double_write(struct format *f)
{
    static const struct format_field fields[] = {
        {8, 't', "magic"},    {4, 'u', "version"}, {4, 'c', "crc"},
        {8, 'u', "sequence"}, {4, 'u', "pages"},   {4, 'z', "zero"},
    };
    static const struct format_field entry[] = {
        {6, 'u', "page_id"},
        {2, 'z', "zero"},
        {4, 'x', "copy_crc"},
    };
    static const uint8_t zero[4];
    uint64_t pages = ch_min_u64(format_peek(f, 24, 4), CH_BATCH_MAX);

    f->crc = ch_crc32c(0, f->data, 12);
    f->crc = ch_crc32c(f->crc, zero, sizeof(zero));
    f->crc = ch_crc32c(f->crc, f->data + 16, f->bytes - 16);
    format_fields(f, fields, CH_ARRAY_LEN(fields));
    for (uint64_t i = 0; i < pages; i++)
        format_fields(f, entry, CH_ARRAY_LEN(entry));
    format_bytes(f, format_left(f), "rest");
}

/* ---- slots and images ---- */

void
format_image(struct format *f, size_t bytes)
{
    static const struct format_field head[] = {
        {6, 'u', "page_id"},
        {8, 'u', "lsn"},
        {4, 'c', "crc"},
    };
    static const char *const kinds[] = {"full", "delta", "overflow"};
    static const char *const codecs[] = {"none", "lz4", "zstd"};
    const uint8_t *image = f->data + f->pos;
    size_t end = f->pos + bytes;
    uint64_t kind, codec, n;
    lsn_t death;

    CH_ASSERT(bytes >= PACK_IMAGE_HEADER + 2 && bytes <= format_left(f));
    f->crc = ch_crc32c(ch_crc32c(0, image, 14), image + 18, bytes - 18);
    format_fields(f, head, CH_ARRAY_LEN(head));
    death = page_death_unpack((uint16_t)format_peek(f, 0, 2));
    if (death == CH_LSN_MAX)
        format_note(f, 2, "death", "0x%04" PRIx64 ", unknown", format_peek(f, 0, 2));
    else
        format_note(f, 2, "death", "0x%04" PRIx64 ", LSN %" PRIu64, format_peek(f, 0, 2), death);
    (void)format_number(f, 1, "version");
    kind = format_peek(f, 0, 1) >> 4;
    codec = format_peek(f, 0, 1) & 0xf;
    format_note(f, 1, "kind_codec", "kind %" PRIu64 " (%s), codec %" PRIu64 " (%s)", kind,
                kind < CH_ARRAY_LEN(kinds) ? kinds[kind] : "unknown", codec,
                codec < CH_ARRAY_LEN(codecs) ? codecs[codec] : "unknown");
    (void)format_number(f, 2, "dictionary");
    n = format_number(f, 2, "output_bytes");
    if (kind == PACK_DELTA && end - f->pos >= 16) {
        (void)format_number(f, 8, "base_lsn");
        format_note(f, 8, "mask", "0x%016" PRIx64, format_peek(f, 0, 8));
    }
    format_bytes(f, ch_min_u64(n, end - f->pos), "output");
    if (f->pos < end)
        format_bytes(f, end - f->pos, "padding");
}

static void
format_directory(struct format *f, unsigned count)
{
    static const struct format_field foot[] = {
        {1, 'u', "count"},
        {1, 'u', "version"},
        {2, 'x', "magic"},
        {4, 'c', "crc"},
    };

    f->crc = ch_crc32c(0, f->data + f->pos, format_left(f) - 4);
    for (unsigned i = 0; i < count; i++) {
        format_note(f, 1, "offset_16", "offset %" PRIu64, 16 * format_peek(f, 0, 1));
        format_note(f, 1, "length_16", "%" PRIu64 " bytes", 16 * format_peek(f, 0, 1));
    }
    format_fields(f, foot, CH_ARRAY_LEN(foot));
}

void
format_slot(struct format *f)
{
    uint32_t offs[PACK_SLOT_IMAGES_MAX], lens[PACK_SLOT_IMAGES_MAX];
    unsigned n = pack_slot_images(f->data, offs, lens);

    CH_ASSERT(f->bytes == CH_SLOT_BYTES && f->pos == 0);
    if (n == 0 && format_peek(f, 4, 2) == PAGE_MAGIC) {
        format_page(f);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (offs[i] > f->pos)
            format_bytes(f, offs[i] - f->pos, "unused");
        format_image(f, lens[i]);
    }
    if (n > 0) {
        format_bytes(f, format_left(f) - 8 - 2 * (size_t)n, "unused");
        format_directory(f, n);
    }
    format_bytes(f, format_left(f), "no directory, no page");
}
