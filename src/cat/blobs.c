/* blobs.c - pieces of large values: tree `blobs`, keys {number, piece}, without versions.
 *
 * Invariants:
 *   L1  a value's pieces but the last one have CAT_PIECE bytes; piece numbers begin at 0. So the piece of an offset is known.
 *   L2  pieces never change. They come before the reference to them, in log order, and go when nobody can see one any more.
 */
#include "cat/cat_internal.h"

#include <inttypes.h>

#include "base/status.h"

static struct bt_slice
piece_key(uint64_t number, uint32_t piece, uint8_t out[CAT_PIECE_KEY])
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(number >> (56 - 8 * i));
    for (unsigned i = 0; i < 4; i++)
        out[8 + i] = (uint8_t)(piece >> (24 - 8 * i));
    return (struct bt_slice){out, CAT_PIECE_KEY};
}

static int
piece_unpack(struct bt_slice key, uint64_t *number, uint32_t *piece)
{
    const uint8_t *k = key.data;

    if (key.bytes != CAT_PIECE_KEY)
        return CH_FAIL(COHORT_ECORRUPT, "large values: a key of %zu bytes", key.bytes);
    *number = 0;
    *piece = 0;
    for (unsigned i = 0; i < 8; i++)
        *number = *number << 8 | k[i];
    for (unsigned i = 8; i < CAT_PIECE_KEY; i++)
        *piece = *piece << 8 | k[i];
    return 0;
}

void
blob_ref_pack(const struct blob_ref *ref, uint8_t out[CAT_REF_BYTES])
{
    ch_put64(out, ref->number);
    ch_put64(out + 8, ref->bytes);
}

int
blob_ref_unpack(struct bt_slice v, struct blob_ref *out)
{
    struct blob_ref ref = {0, 0};

    if (v.bytes == CAT_REF_BYTES)
        ref = (struct blob_ref){ch_get64(v.data), ch_get64((const uint8_t *)v.data + 8)};
    if (ref.number == 0 || ref.bytes == 0 || ref.bytes > COHORT_VALUE_MAX)
        return CH_FAIL(COHORT_ECORRUPT,
                       "reference of %zu bytes to large value %" PRIu64 " of %" PRIu64 " bytes",
                       v.bytes, ref.number, ref.bytes);
    *out = ref;
    return 0;
}

int
blob_write(struct cat *c, uint64_t number, uint32_t piece, const void *data, size_t bytes)
{
    uint8_t key[CAT_PIECE_KEY];
    struct bt_op op = {
        .kind = BT_INSERT, .key = piece_key(number, piece, key), .value = {data, bytes}};
    struct bt_done done;
    int rc;

    CH_ASSERT(bytes > 0 && bytes <= CAT_PIECE);
    rc = txns_before_write(c->txns);
    if (rc == 0)
        rc = bt_write(c->blobs, &op, &done);
    if (rc == COHORT_EXISTS)
        return CH_FAIL(COHORT_ECORRUPT,
                       "large value %" PRIu64 ": there is a piece %" PRIu32 " of it", number,
                       piece);
    return rc;
}

/* The cursor stands on the piece: copies what the range has of it. */
static int
copy_piece(struct bt_cursor *cur, const struct blob_ref *ref, uint32_t piece, uint64_t offset,
           uint8_t *buf, size_t bytes)
{
    struct bt_slice key, value;
    uint64_t number = 0, begin = (uint64_t)piece * CAT_PIECE, from, to;
    uint32_t found = 0;
    unsigned flags;
    int rc;

    if (!bt_entry(cur, &key, &value, &flags))
        return COHORT_ERETRY;
    rc = piece_unpack(key, &number, &found);
    if (rc != 0)
        return rc;
    if (number != ref->number || found != piece ||
        value.bytes != blob_piece_bytes(ref->bytes, piece))
        return COHORT_ERETRY;
    from = ch_max_u64(begin, offset);
    to = ch_min_u64(begin + value.bytes, offset + bytes);
    memcpy(buf + (from - offset), (const uint8_t *)value.data + (from - begin), to - from);
    return 0;
}

int
blob_read(struct cat *c, const struct blob_ref *ref, uint64_t offset, void *buf, size_t bytes)
{
    struct bt_cursor *cur = NULL;
    uint8_t key[CAT_PIECE_KEY];
    uint64_t piece = offset / CAT_PIECE, last;
    int rc;

    CH_ASSERT(offset <= ref->bytes && bytes <= ref->bytes - offset);
    if (bytes == 0)
        return 0;
    last = (offset + bytes - 1) / CAT_PIECE;
    rc = bt_cursor_create(c->blobs, &cur);
    if (rc != 0)
        return rc;
    rc = bt_seek(cur, BT_GE, piece_key(ref->number, (uint32_t)piece, key));
    while (rc == 0) {
        rc = copy_piece(cur, ref, (uint32_t)piece, offset, buf, bytes);
        if (rc != 0 || piece == last)
            break;
        piece++;
        rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? COHORT_ERETRY : rc;
}

int
blob_remove(struct cat *c, uint64_t first, uint64_t end, unsigned max, bool *more)
{
    uint8_t from[CAT_PIECE_KEY], to[CAT_PIECE_KEY];

    return bt_remove_range(c->blobs, piece_key(first, 0, from), piece_key(end, 0, to), max, false,
                           more);
}

void
blob_discard(struct cat *c, uint64_t number)
{
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        rc = txns_before_write(c->txns);
        if (rc == 0)
            rc = blob_remove(c, number, number + 1, CAT_SWEEP_PIECES, &more);
    }
    if (rc == 0)
        rc = pending_del_alone(c, PENDING_VALUE, number);
    /* What is left of it is in `pending` and goes with the next sweep. */
    (void)rc;
}

int
blob_each(struct cat *c, int (*visit)(void *arg, uint64_t number, uint32_t piece, size_t bytes),
          void *arg)
{
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    uint64_t number;
    uint32_t piece;
    unsigned flags;
    int rc = bt_cursor_create(c->blobs, &cur);

    if (rc == 0)
        rc = bt_seek(cur, BT_FIRST, key);
    while (rc == 0 && bt_entry(cur, &key, &value, &flags)) {
        rc = piece_unpack(key, &number, &piece);
        if (rc == 0)
            rc = visit(arg, number, piece, value.bytes);
        if (rc == 0)
            rc = bt_next(cur);
    }
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}

int
blob_last(struct cat *c, uint64_t *number)
{
    struct bt_cursor *cur = NULL;
    struct bt_slice key = {NULL, 0}, value;
    uint32_t piece;
    unsigned flags;
    int rc = bt_cursor_create(c->blobs, &cur);

    *number = 0;
    if (rc == 0)
        rc = bt_seek(cur, BT_LAST, key);
    if (rc == 0 && bt_entry(cur, &key, &value, &flags))
        rc = piece_unpack(key, number, &piece);
    bt_cursor_destroy(cur);
    return rc == COHORT_NOTFOUND ? 0 : rc;
}
