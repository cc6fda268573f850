/* format_page.c - pages: header, and the entries of leaves and inner nodes. See format.h. */
#include "tools/format.h"

#include <inttypes.h>

#include "btree/node.h"
#include "page/page.h"

enum {
    BIT_15_CLEAR = 0x7fff, /* of the sizes that carry a flag */
    REFERENCE_BYTES = 16,
};

struct entry {
    size_t off, suffix;
    unsigned index;
};

size_t
format_value_bytes(struct format *f, const char *name, const char *of, bool *reference)
{
    uint64_t n = format_peek(f, 0, 2), bytes = n & BIT_15_CLEAR;

    *reference = n != bytes;
    format_note(f, 2, name, "%" PRIu64 "%s%s", bytes, *reference ? ", a reference" : "", of);
    return bytes;
}

void
format_value(struct format *f, size_t n, bool reference)
{
    static const struct format_field fields[] = {
        {8, 'u', "large_value"},
        {8, 'u', "large_bytes"},
    };

    if (reference && n == REFERENCE_BYTES && n <= format_left(f))
        format_fields(f, fields, CH_ARRAY_LEN(fields));
    else
        format_bytes(f, n, "value");
}

static void
format_page_header(struct format *f)
{
    static const struct format_field head[] = {
        {4, 'c', "crc"},
        {2, 'x', "magic"},
        {1, 'u', "version"},
    };
    static const struct format_field tail[] = {
        {6, 'u', "page_id"},    {1, 'u', "level"},        {1, 'u', "flags"},
        {8, 'u', "lsn"},        {8, 'u', "write_lsn"},    {4, 'u', "tree"},
        {4, 'u', "history_1"},  {4, 'u', "history_2"},    {4, 'u', "history_3"},
        {4, 'u', "history_4"},  {2, 'u', "entries"},      {2, 'u', "heap_start"},
        {2, 'u', "dead_bytes"}, {2, 'u', "prefix_bytes"}, {2, 'u', "hint"},
        {2, 'u', "ghosts"},
    };
    static const char *const types[] = {"none", "free", "leaf", "inner", "overflow"};
    uint64_t type;

    f->crc = ch_crc32c(0, f->data + 4, f->bytes - 4);
    format_fields(f, head, CH_ARRAY_LEN(head));
    type = format_peek(f, 0, 1);
    format_note(f, 1, "type", "%" PRIu64 " (%s)", type,
                type < CH_ARRAY_LEN(types) ? types[type] : "unknown");
    format_fields(f, tail, CH_ARRAY_LEN(tail));
}

/* The slots; fills `entries`. */
static void
format_slots(struct format *f, struct entry *entries, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[32];

        entries[i].index = i;
        entries[i].off = format_peek(f, 0, 2);
        entries[i].suffix = format_peek(f, 2, 2) & BIT_15_CLEAR;
        snprintf(name, sizeof(name), "slot_%u", i);
        format_note(f, 8, name, "entry at %zu, suffix of %zu bytes, head 0x%08" PRIx64 "%s",
                    entries[i].off, entries[i].suffix, format_peek(f, 4, 4),
                    (format_peek(f, 2, 2) & ~(uint64_t)BIT_15_CLEAR) != 0 ? ", a ghost" : "");
    }
}

/* By place on the page; insertion sort: they come mostly in descending order. */
static void
sort_entries(struct entry *entries, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        struct entry e = entries[i];
        unsigned k = i;

        while (k > 0 && entries[k - 1].off > e.off) {
            entries[k] = entries[k - 1];
            k--;
        }
        entries[k] = e;
    }
}

/* Bytes behind the current position that this entry takes; 0 when it overlaps or leaves the page. */
static size_t
entry_bytes(const struct format *f, const struct entry *e, bool leaf)
{
    size_t head = leaf ? NODE_LEAF_ENTRY : NODE_INNER_ENTRY;
    size_t value;

    if (e->off < f->pos || e->off + head > f->bytes)
        return 0;
    value = leaf ? format_peek(f, e->off - f->pos, 2) & BIT_15_CLEAR : 0;
    return e->off + head + e->suffix + value <= f->bytes ? head + e->suffix + value : 0;
}

/* The entry's key, put together from prefix and suffix; its size. */
static size_t
entry_key(const struct format *f, const struct entry *e, uint8_t key[CH_PAGE_BYTES])
{
    size_t prefix = ch_get16(f->data + 58);

    memcpy(key, f->data + NODE_LEAF_BODY, prefix);
    memcpy(key + prefix, f->data + e->off + NODE_LEAF_ENTRY, e->suffix);
    return prefix + e->suffix;
}

static void
format_leaf_entry(struct format *f, const struct entry *e)
{
    uint32_t tree = page_tree(f->data);
    uint8_t key[CH_PAGE_BYTES];
    size_t key_bytes = entry_key(f, e, key), value;
    char name[48], of[FORMAT_KEY_TEXT] = "";
    bool reference;

    snprintf(name, sizeof(name), "entry_%u value_bytes", e->index);
    if (format_is_internal(tree))
        format_tree_key(of, tree, key, key_bytes);
    value = format_value_bytes(f, name, of, &reference);
    format_bytes(f, e->suffix, "suffix");
    if (format_is_internal(tree))
        format_tree_value(f, tree, key, key_bytes, value);
    else
        format_value(f, value, reference);
}

static void
format_heap(struct format *f, struct entry *entries, unsigned count, bool leaf)
{
    sort_entries(entries, count);
    for (unsigned i = 0; i < count; i++) {
        const struct entry *e = &entries[i];
        size_t bytes = entry_bytes(f, e, leaf);
        char name[48];

        if (bytes == 0)
            break;
        format_bytes(f, e->off - f->pos, "dead");
        if (leaf) {
            format_leaf_entry(f, e);
        } else {
            snprintf(name, sizeof(name), "entry_%u child", e->index);
            (void)format_number(f, NODE_INNER_ENTRY, name);
            format_bytes(f, e->suffix, "suffix");
        }
    }
}

void
format_page(struct format *f)
{
    struct entry entries[NODE_COUNT_MAX] = {0};
    size_t prefix, heap;
    bool leaf;

    format_page_header(f);
    if (!node_sane(f->data)) {
        format_bytes(f, format_left(f), "body");
        return;
    }
    leaf = page_type(f->data) == PAGE_LEAF;
    heap = ch_get16(f->data + 54);
    prefix = ch_get16(f->data + 58);
    if (f->brief) {
        format_bytes(f, format_left(f), "body");
        return;
    }
    if (!leaf) {
        (void)format_number(f, 6, "leftmost_child");
        format_bytes(f, 2, "zero");
    }
    format_bytes(f, prefix, "prefix");
    format_bytes(f, (4 - prefix % 4) % 4, "pad");
    format_slots(f, entries, ch_get16(f->data + 52));
    format_bytes(f, heap - f->pos, "unused");
    format_heap(f, entries, ch_get16(f->data + 52), leaf);
    format_bytes(f, format_left(f), "dead");
}
