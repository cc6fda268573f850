/* format_tree.c - entries of the trees that the engine keeps for itself: ids, names, pending, blobs, undo. See format.h.
 *
 * Keys are big-endian, so that they sort; values are little-endian as everything else.
 */
#include "tools/format.h"

#include <inttypes.h>

#include "reg/reg.h"

enum {
    UNDO_KEY = 16,
    UNDO_HEAD = 8,
    UNDO_HEADER = 16, /* of a transaction, without gid */
};

bool
format_is_internal(uint32_t tree)
{
    return tree >= REG_IDS && tree <= REG_UNDO;
}

static uint64_t
big(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static bool
is_header(const uint8_t *key, size_t bytes)
{
    return bytes == UNDO_KEY && big(key + 8, 8) == 0;
}

static void
pending_text(char text[FORMAT_KEY_TEXT], const uint8_t *key)
{
    static const char *const kinds[] = {"unknown", "tree", "large value",
                                        "bulk load, large values from"};

    snprintf(text, FORMAT_KEY_TEXT, ", kind %u (%s %" PRIu64 ")", key[0],
             kinds[key[0] < CH_ARRAY_LEN(kinds) ? key[0] : 0], big(key + 1, 8));
}

void
format_tree_key(char text[FORMAT_KEY_TEXT], uint32_t tree, const uint8_t *key, size_t bytes)
{
    text[0] = '\0';
    if (tree == REG_IDS && bytes == 4 && big(key, 4) == 0)
        snprintf(text, FORMAT_KEY_TEXT, ", next id");
    else if (tree == REG_IDS && bytes == 4)
        snprintf(text, FORMAT_KEY_TEXT, ", tree %" PRIu64, big(key, 4));
    else if (tree == REG_PENDING && bytes == 9)
        pending_text(text, key);
    else if (tree == REG_BLOBS && bytes == 12)
        snprintf(text, FORMAT_KEY_TEXT, ", large value %" PRIu64 ", piece %" PRIu64, big(key, 8),
                 big(key + 8, 4));
    else if (tree == REG_UNDO && is_header(key, bytes))
        snprintf(text, FORMAT_KEY_TEXT, ", transaction %" PRIu64 ", header", big(key, 8));
    else if (tree == REG_UNDO && bytes == UNDO_KEY)
        snprintf(text, FORMAT_KEY_TEXT, ", transaction %" PRIu64 ", seq %" PRIu64, big(key, 8),
                 big(key + 8, 8));
    else if (tree != REG_NAMES)
        snprintf(text, FORMAT_KEY_TEXT, ", unknown key");
}

/* ---- values; the caller has cut `f` to them ---- */

static void
value_ids(struct format *f, bool next)
{
    static const char *const codecs[] = {"default", "none", "lz4", "zstd"};
    uint64_t codec;

    if (next) {
        (void)format_number(f, 4, "next_id");
        return;
    }
    (void)format_number(f, 6, "root");
    codec = format_peek(f, 0, 1);
    format_note(f, 1, "codec", "%" PRIu64 " (%s)", codec,
                codec < CH_ARRAY_LEN(codecs) ? codecs[codec] : "unknown");
    (void)format_number(f, 1, "codec_level");
    (void)format_number(f, 1, "flags");
}

static void
value_pending(struct format *f)
{
    static const struct format_field fields[] = {
        {8, 'u', "transaction"}, {6, 'u', "root"}, {1, 'u', "state"},
        {1, 'z', "zero"},        {4, 'u', "tree"},
    };

    format_fields(f, fields, CH_ARRAY_LEN(fields));
}

static void
value_header(struct format *f)
{
    static const char *const states[] = {"unknown", "active", "prepared", "committed"};
    uint64_t state, n;

    (void)format_number(f, 1, "version");
    state = format_peek(f, 0, 1);
    format_note(f, 1, "state", "%" PRIu64 " (%s)", state,
                state < CH_ARRAY_LEN(states) ? states[state] : "unknown");
    n = format_number(f, 2, "gid_bytes");
    format_fields(f, &(struct format_field){12, 'z', "zero"}, 1);
    format_bytes(f, n, "gid");
}

static void
value_undo(struct format *f)
{
    static const char *const kinds[] = {"unknown", "was a value", "was absent", "lock only"};
    uint64_t kind = format_peek(f, 0, 1), n;

    format_note(f, 1, "kind", "%" PRIu64 " (%s)", kind,
                kind < CH_ARRAY_LEN(kinds) ? kinds[kind] : "unknown");
    (void)format_number(f, 1, "flags");
    n = format_number(f, 2, "key_bytes");
    (void)format_number(f, 4, "tree");
    format_bytes(f, n, "key");
    format_bytes(f, format_left(f), "before");
}

void
format_tree_value(struct format *f, uint32_t tree, const uint8_t *key, size_t key_bytes, size_t n)
{
    size_t end = f->bytes;

    if (n == 0)
        return;
    f->bytes = f->pos + ch_min_u64(n, format_left(f));
    if (tree == REG_IDS && key_bytes == 4)
        value_ids(f, big(key, 4) == 0);
    else if (tree == REG_NAMES)
        (void)format_number(f, 4, "tree");
    else if (tree == REG_PENDING)
        value_pending(f);
    else if (tree == REG_UNDO && is_header(key, key_bytes))
        value_header(f);
    else if (tree == REG_UNDO && n >= UNDO_HEAD)
        value_undo(f);
    format_bytes(f, format_left(f), tree == REG_BLOBS ? "piece" : "value");
    f->bytes = end;
}
