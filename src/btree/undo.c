/* undo.c - entries of the undo tree. Format: undo.h. */
#include "btree/undo.h"

#include "ver/ver.h"

_Static_assert(UNDO_KEY_BYTES + UNDO_HEAD_BYTES + COHORT_ENTRY_MAX <= BT_ENTRY_MAX,
               "a wrapped entry of a user fits into a page");

static void
put64_big(uint8_t *out, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> (56 - 8 * i));
}

void
undo_key(uint64_t txn, uint64_t seq, uint8_t out[UNDO_KEY_BYTES])
{
    put64_big(out, txn);
    put64_big(out + 8, seq);
}

size_t
undo_encode(const struct undo_entry *e, uint8_t *out)
{
    CH_ASSERT(e->key.bytes <= COHORT_KEY_MAX && e->key.bytes + e->before.bytes <= COHORT_ENTRY_MAX);
    out[0] = (uint8_t)e->kind;
    out[1] = (uint8_t)e->flags;
    ch_put16(out + 2, (uint16_t)e->key.bytes);
    ch_put32(out + 4, e->tree);
    if (e->key.bytes > 0)
        memcpy(out + UNDO_HEAD_BYTES, e->key.data, e->key.bytes);
    if (e->before.bytes > 0)
        memcpy(out + UNDO_HEAD_BYTES + e->key.bytes, e->before.data, e->before.bytes);
    return UNDO_HEAD_BYTES + e->key.bytes + e->before.bytes;
}

int
undo_decode(const void *value, size_t bytes, struct undo_entry *out)
{
    const uint8_t *p = value;
    struct undo_entry e;

    if (bytes < UNDO_HEAD_BYTES || ch_get16(p + 2) > bytes - UNDO_HEAD_BYTES)
        return CH_FAIL(COHORT_EPAGE, "undo entry of %zu bytes: cut off", bytes);
    e.kind = p[0];
    e.flags = p[1];
    e.tree = ch_get32(p + 4);
    e.key = (struct bt_slice){p + UNDO_HEAD_BYTES, ch_get16(p + 2)};
    e.before =
        (struct bt_slice){p + UNDO_HEAD_BYTES + e.key.bytes, bytes - UNDO_HEAD_BYTES - e.key.bytes};
    if (e.kind < VER_WAS_VALUE || e.kind > VER_WAS_LOCK || (e.flags & ~(unsigned)BT_REF) != 0 ||
        e.key.bytes > COHORT_KEY_MAX || bytes - UNDO_HEAD_BYTES > COHORT_ENTRY_MAX ||
        (e.kind != VER_WAS_VALUE && (e.before.bytes != 0 || e.flags != 0)))
        return CH_FAIL(COHORT_EPAGE, "undo entry of %zu bytes: kind %u, flags %u, key of %zu bytes",
                       bytes, e.kind, e.flags, e.key.bytes);
    *out = e;
    return 0;
}
