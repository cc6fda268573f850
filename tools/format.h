/* format.h - prints what stands on a device, one line a field: offset, bytes, name = value.
 *
 *         16  07 00 00 00 00 00 00 00                          sequence = 7
 *
 * A second reading of docs/FORMAT.md, apart from the engine's own: nothing here calls an encoder, and the
 * decoders of the layers below are asked for verdicts only. The golden test prints its examples through
 * this file, so the dumps in the document are what `cohort dump` shows.
 *
 * Every byte of a structure is printed exactly once, in order. Bytes are hostile: nothing outside of the
 * given ones is read, and a structure that is cut off or contradicts itself goes on as raw bytes.
 */
#ifndef CH_TOOLS_FORMAT_H
#define CH_TOOLS_FORMAT_H

#include <stdio.h>

#include "base/base.h"

struct format {
    FILE *out;
    const uint8_t *data;
    size_t bytes, pos;
    uint32_t crc; /* what the next checksum field should be */
    bool brief;   /* contents (keys, payloads, codec output) are only counted */
};

/* Whole structures of 4096 bytes. */
void format_root(struct format *f);
void format_log_block(struct format *f); /* its header, and the records that lie in it as a whole */
void format_array_slot(struct format *f);
void format_double_write(struct format *f); /* header block of a batch */
void format_slot(struct format *f);         /* raw page, packed images, or neither */
void format_page(struct format *f);

void format_trace(struct format *f); /* a write trace of any length */

/* Parts: the 40 bytes of a log block's header, a record with its header, the image at the current
 * position that has `bytes` bytes, an entry of the zone table. */
void format_log_header(struct format *f);
void format_record(struct format *f);
void format_image(struct format *f, size_t bytes);
void format_zone_entry(struct format *f);

/* ---- building blocks, for the other files of it ---- */

struct format_field {
    uint8_t bytes;
    char kind; /* u = decimal, x = hex, c = checksum, t = text, z = zeroes */
    const char *name;
};
void format_fields(struct format *f, const struct format_field *fields, size_t n);
static inline size_t
format_left(const struct format *f)
{
    return f->bytes - f->pos;
}
/* Number of n <= 8 bytes, `off` bytes behind the current position; 0 when it lies outside. */
uint64_t format_peek(const struct format *f, size_t off, size_t n);
/* Takes n bytes; what does not exist is not taken. The text behind " = " says what they mean. */
void format_note(struct format *f, size_t n, const char *name, const char *fmt, ...)
    CH_PRINTF(4, 5);
uint64_t format_number(struct format *f, size_t n, const char *name);
/* The size of a value, without the bit that says that it is a reference; `of` is printed behind it. */
size_t format_value_bytes(struct format *f, const char *name, const char *of, bool *reference);
/* A value of a user's tree. */
void format_value(struct format *f, size_t n, bool reference);
void format_place(struct format *f, const char *name);
/* Contents; long ones take several lines, runs of zeroes one. */
void format_bytes(struct format *f, size_t n, const char *name);
void format_payload(struct format *f, uint8_t type); /* of a record: all that is left */

/* ---- entries of the internal trees (format_tree.c) ---- */

enum {
    FORMAT_KEY_TEXT = 80
};
bool format_is_internal(uint32_t tree);
/* What a key means, for people; empty for those that are text. */
void format_tree_key(char text[FORMAT_KEY_TEXT], uint32_t tree, const uint8_t *key, size_t bytes);
/* The n bytes of the value at that key. */
void format_tree_value(struct format *f, uint32_t tree, const uint8_t *key, size_t key_bytes,
                       size_t n);

#endif
