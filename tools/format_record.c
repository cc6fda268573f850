/* format_record.c - log blocks and the records in them. See format.h. */
#include "tools/format.h"

#include <inttypes.h>

#include "btree/btree.h"
#include "store/store.h"
#include "txn/txn.h"
#include "wal/wal.h"

void
format_log_header(struct format *f)
{
    static const struct format_field fields[] = {
        {4, 'c', "crc"},   {4, 'x', "magic"}, {8, 'u', "lsn"},   {8, 'u', "durable"},
        {4, 'u', "epoch"}, {2, 'u', "used"},  {2, 'u', "first"},
    };
    static const struct format_field ring[] = {{8, 'x', "database_id"}};
    static const struct format_field segment[] = {{4, 'x', "database_id_low"}, {4, 'u', "next"}};

    f->crc = ch_crc32c(0, f->data + 4, WAL_BLOCK - 4);
    format_fields(f, fields, CH_ARRAY_LEN(fields));
    if (ch_get32(f->data + 4) == UINT32_C(0xC0106007))
        format_fields(f, segment, CH_ARRAY_LEN(segment));
    else
        format_fields(f, ring, CH_ARRAY_LEN(ring));
}

/* ---- MAP records ---- */

static void
format_map_record(struct format *f)
{
    uint64_t n;

    (void)format_number(f, 1, "version");
    (void)format_number(f, 1, "flags");
    n = format_number(f, 2, "count");
    for (uint64_t i = 0; i < n && format_left(f) > 0; i++) {
        (void)format_number(f, 6, "page_id");
        format_place(f, "place");
    }
}

/* ---- page changes ---- */

enum change_kind {
    KIND_PUT = 1,
    KIND_DEL,
    KIND_ADD_CHILD,
    KIND_DEL_CHILD,
    KIND_CUT,
    KIND_IMAGE,
    KIND_FREE,
    KIND_GHOST,
    KIND_END,
};

static void
format_two_parts(struct format *f, const char *a, const char *b)
{
    char name[16];
    uint64_t an, bn;

    snprintf(name, sizeof(name), "%s_bytes", a);
    an = format_number(f, 2, name);
    snprintf(name, sizeof(name), "%s_bytes", b);
    bn = format_number(f, 2, name);
    format_bytes(f, an, a);
    format_bytes(f, bn, b);
}

static void
format_operation(struct format *f)
{
    static const char *const names[KIND_END] = {
        "unknown", "PUT", "DEL", "ADD_CHILD", "DEL_CHILD", "CUT", "IMAGE", "FREE", "GHOST"};
    uint64_t kind = format_peek(f, 0, 1), n, value;
    bool reference;

    format_note(f, 1, "kind", "%" PRIu64 " (%s)", kind, kind < KIND_END ? names[kind] : "unknown");
    (void)format_number(f, 1, "zero");
    switch (kind) {
    case KIND_PUT:
        n = format_number(f, 2, "key_bytes");
        value = format_value_bytes(f, "value_bytes", "", &reference);
        format_bytes(f, n, "key");
        format_value(f, value, reference);
        break;
    case KIND_DEL:
    case KIND_GHOST:
        n = format_number(f, 2, "key_bytes");
        format_bytes(f, n, "key");
        break;
    case KIND_ADD_CHILD:
        n = format_number(f, 2, "key_bytes");
        (void)format_number(f, 6, "child");
        format_bytes(f, n, "key");
        break;
    case KIND_DEL_CHILD:
        (void)format_number(f, 2, "index");
        break;
    case KIND_CUT:
        (void)format_number(f, 2, "entries");
        break;
    case KIND_IMAGE:
        format_two_parts(f, "low", "high");
        break;
    case KIND_FREE:
        break;
    default:
        format_bytes(f, format_left(f), "unknown operation");
        break;
    }
}

static void
format_change_record(struct format *f)
{
    uint64_t groups = format_number(f, 2, "groups");

    for (uint64_t i = 0; i < groups && format_left(f) > 0; i++) {
        size_t end = f->bytes;
        uint64_t ops, bytes;

        (void)format_number(f, 6, "page_id");
        ops = format_number(f, 2, "operations");
        bytes = format_number(f, 4, "operation_bytes");
        f->bytes = f->pos + ch_min_u64(bytes, format_left(f));
        for (uint64_t k = 0; k < ops && format_left(f) > 0; k++)
            format_operation(f);
        format_bytes(f, format_left(f), "left over");
        f->bytes = end;
    }
}

/* What a transaction's records have before the page changes. */
static void
format_write_head(struct format *f)
{
    static const char *const kinds[] = {"no undo", "was a value", "was absent"};
    uint64_t kind, n;

    (void)format_number(f, 8, "transaction");
    (void)format_number(f, 8, "seq");
    (void)format_number(f, 4, "tree");
    kind = format_peek(f, 0, 1);
    format_note(f, 1, "undo_kind", "%" PRIu64 " (%s)", kind,
                kind < CH_ARRAY_LEN(kinds) ? kinds[kind] : "unknown");
    (void)format_number(f, 1, "flags");
    n = format_number(f, 2, "before_bytes");
    format_bytes(f, n, "before");
}

static void
format_undo_head(struct format *f)
{
    (void)format_number(f, 8, "transaction");
    (void)format_number(f, 8, "undo_next");
}

/* ---- ends of transactions ---- */

static void
format_commit(struct format *f)
{
    uint64_t flags;

    (void)format_number(f, 8, "transaction");
    flags = format_peek(f, 0, 4);
    format_note(f, 4, "flags", "%" PRIu64 "%s", flags,
                flags == 1 ? " (it has rows in the undo tree)" : "");
}

static void
format_prepare(struct format *f)
{
    uint64_t n;

    (void)format_number(f, 8, "transaction");
    n = format_number(f, 1, "gid_bytes");
    format_bytes(f, n, "gid");
}

void
format_payload(struct format *f, uint8_t type)
{
    if (type == STORE_RECORD_MAP)
        format_map_record(f);
    else if (type == BT_RECORD_WRITE)
        format_write_head(f);
    else if (type == BT_RECORD_UNDO)
        format_undo_head(f);
    if (type >= BT_RECORD_PAGES && type <= BT_RECORD_UNDO)
        format_change_record(f);
    else if (type == TXN_RECORD_COMMIT)
        format_commit(f);
    else if (type == TXN_RECORD_ABORT)
        (void)format_number(f, 8, "transaction");
    else if (type == TXN_RECORD_PREPARE)
        format_prepare(f);
    format_bytes(f, format_left(f), "payload");
}

static const char *
record_name(uint64_t type)
{
    static const char *const names[] = {
        [STORE_RECORD_MAP] = "MAP",       [BT_RECORD_PAGES] = "page changes",
        [BT_RECORD_WRITE] = "WRITE",      [BT_RECORD_UNDO] = "UNDO",
        [TXN_RECORD_COMMIT] = "COMMIT",   [TXN_RECORD_ABORT] = "ABORT",
        [TXN_RECORD_PREPARE] = "PREPARE",
    };

    return type < CH_ARRAY_LEN(names) && names[type] != NULL ? names[type] : "unknown";
}

void
format_record(struct format *f)
{
    uint64_t length = format_number(f, 4, "length");
    uint64_t type = format_peek(f, 0, 1);
    size_t end = f->bytes;

    format_note(f, 1, "type", "%" PRIu64 " (%s)", type, record_name(type));
    (void)format_number(f, 3, "zero");
    f->bytes = f->pos + ch_min_u64(length, format_left(f));
    format_payload(f, (uint8_t)type);
    f->bytes = end;
}

/* ---- whole blocks ---- */

void
format_log_block(struct format *f)
{
    size_t used, first;

    format_log_header(f);
    used = ch_get16(f->data + 28);
    first = ch_get16(f->data + 30);
    if (used < WAL_BLOCK_HEADER || used > f->bytes || (first != 0 && first < WAL_BLOCK_HEADER) ||
        first > used) {
        format_bytes(f, format_left(f), "no block");
        return;
    }
    format_bytes(f, (first != 0 ? first : used) - f->pos, "rest of a record");
    while (f->pos < used) {
        size_t room = used - f->pos;

        if (room < WAL_RECORD_HEADER || format_peek(f, 0, 4) > room - WAL_RECORD_HEADER)
            format_bytes(f, room, "beginning of a record");
        else
            format_record(f);
    }
    format_bytes(f, format_left(f), "padding");
}
