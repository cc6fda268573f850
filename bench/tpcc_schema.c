/* tpcc_schema.c - see tpcc_schema.h. */
#include "bench/tpcc_schema.h"

const char *const tpcc_table_names[TPCC_TABLES] = {
    "warehouse", "district", "customer",      "history",        "new_order", "order", "order_line",
    "item",      "stock",    "customer_name", "order_customer", "archive",   "meta",
};

/* ---- scale ---- */

void
tpcc_scale_init(struct tpcc_scale *s, uint32_t warehouses, uint32_t divisor)
{
    CH_ASSERT(warehouses > 0 && warehouses <= TPCC_WAREHOUSES_MAX);
    CH_ASSERT(divisor > 0 && divisor <= TPCC_DIVISOR_MAX);
    *s = (struct tpcc_scale){
        .warehouses = warehouses,
        .divisor = divisor,
        .items = 100000 / divisor,
        .customers = 3000 / divisor,
        .orders = 3000 / divisor,
        .new_orders = (uint32_t)ch_max_u64(900 / divisor, 1),
    };
}

uint64_t
tpcc_scale_bytes(const struct tpcc_scale *s)
{
    /* Mean bytes of an entry in full pages of 4 KiB, its place in them included. */
    const uint64_t item = 80, stock = 335, customer = 580 + 50, history = 60, order = 34 + 22,
                   line = 65, new_order = 17;
    uint64_t district = s->customers * (customer + history) + s->orders * (order + 10 * line) +
                        s->new_orders * new_order;

    return s->items * item + s->warehouses * (s->items * stock + TPCC_DISTRICTS * district);
}

/* ---- keys ---- */

static void
key_u32(struct tpcc_key *k, uint32_t v)
{
    k->data[k->bytes] = (uint8_t)(v >> 24);
    k->data[k->bytes + 1] = (uint8_t)(v >> 16);
    k->data[k->bytes + 2] = (uint8_t)(v >> 8);
    k->data[k->bytes + 3] = (uint8_t)v;
    k->bytes += 4;
}

static void
key_u8(struct tpcc_key *k, uint32_t v)
{
    k->data[k->bytes++] = (uint8_t)v;
}

/* With its terminator, which makes a name sort before its own extensions. */
static void
key_text(struct tpcc_key *k, const char *text)
{
    size_t n = strnlen(text, TPCC_NAME_MAX);

    memcpy(k->data + k->bytes, text, n);
    k->data[k->bytes + n] = 0;
    k->bytes += n + 1;
}

void
tpcc_key_warehouse(struct tpcc_key *k, uint32_t w)
{
    k->bytes = 0;
    key_u32(k, w);
}

void
tpcc_key_district(struct tpcc_key *k, uint32_t w, uint32_t d)
{
    tpcc_key_warehouse(k, w);
    key_u8(k, d);
}

void
tpcc_key_wdx(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t x)
{
    tpcc_key_district(k, w, d);
    key_u32(k, x);
}

void
tpcc_key_order_line(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t o, uint32_t n)
{
    tpcc_key_wdx(k, w, d, o);
    key_u8(k, n);
}

void
tpcc_key_item(struct tpcc_key *k, uint32_t i)
{
    k->bytes = 0;
    key_u32(k, i);
}

void
tpcc_key_stock(struct tpcc_key *k, uint32_t w, uint32_t i)
{
    tpcc_key_warehouse(k, w);
    key_u32(k, i);
}

void
tpcc_key_customer_name(struct tpcc_key *k, uint32_t w, uint32_t d, const char *last,
                       const char *first, uint32_t c)
{
    tpcc_key_district(k, w, d);
    key_text(k, last);
    if (first == NULL)
        return;
    key_text(k, first);
    key_u32(k, c);
}

void
tpcc_key_order_customer(struct tpcc_key *k, uint32_t w, uint32_t d, uint32_t c, uint32_t o)
{
    tpcc_key_wdx(k, w, d, c);
    key_u32(k, ~o);
}

void
tpcc_key_meta(struct tpcc_key *k)
{
    memcpy(k->data, "scale", 5);
    k->bytes = 5;
}

uint32_t
tpcc_key_number(const struct cohort_slice *key, size_t at)
{
    const uint8_t *p = key->data;

    CH_ASSERT(at + 4 <= key->bytes); /* callers looked at keys of this shape only */
    p += at;
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool
tpcc_key_under(const struct cohort_slice *key, const struct tpcc_key *prefix)
{
    return key->bytes >= prefix->bytes && memcmp(key->data, prefix->data, prefix->bytes) == 0;
}

/* ---- rows ---- */

static void
put_u8(struct tpcc_row *r, uint32_t v)
{
    r->data[r->bytes++] = (uint8_t)v;
}

static void
put_u16(struct tpcc_row *r, uint32_t v)
{
    ch_put16(r->data + r->bytes, (uint16_t)v);
    r->bytes += 2;
}

static void
put_u32(struct tpcc_row *r, uint32_t v)
{
    ch_put32(r->data + r->bytes, v);
    r->bytes += 4;
}

static void
put_u64(struct tpcc_row *r, uint64_t v)
{
    ch_put64(r->data + r->bytes, v);
    r->bytes += 8;
}

static void
put_bytes(struct tpcc_row *r, const char *text, size_t n)
{
    memcpy(r->data + r->bytes, text, n);
    r->bytes += n;
}

static void
put_text(struct tpcc_row *r, const char *text)
{
    size_t n = strlen(text);

    CH_ASSERT(n <= UINT8_MAX);
    put_u8(r, (uint32_t)n);
    put_bytes(r, text, n);
}

static void
put_address(struct tpcc_row *r, const struct tpcc_address *a)
{
    put_text(r, a->street_1);
    put_text(r, a->street_2);
    put_text(r, a->city);
    put_text(r, a->state);
    put_text(r, a->zip);
}

/* A row being read; `bad` once something did not fit, and the rest then reads as zeros. */
struct reader {
    const uint8_t *p;
    size_t left;
    bool bad;
};

static struct reader
reader_on(const struct cohort_slice *s)
{
    return (struct reader){.p = s->data, .left = s->bytes};
}

static bool
take(struct reader *r, void *out, size_t n)
{
    if (r->left < n) {
        r->bad = true;
        r->left = 0;
        memset(out, 0, n);
        return false;
    }
    memcpy(out, r->p, n);
    r->p += n;
    r->left -= n;
    return true;
}

static uint32_t
take_u8(struct reader *r)
{
    uint8_t v;

    take(r, &v, sizeof(v));
    return v;
}

static uint32_t
take_u16(struct reader *r)
{
    uint16_t v;

    take(r, &v, sizeof(v));
    return v;
}

static uint32_t
take_u32(struct reader *r)
{
    uint32_t v;

    take(r, &v, sizeof(v));
    return v;
}

static uint64_t
take_u64(struct reader *r)
{
    uint64_t v;

    take(r, &v, sizeof(v));
    return v;
}

/* `n` bytes of text into `capacity` bytes, the terminator included. */
static void
take_text_of(struct reader *r, size_t n, char *out, size_t capacity)
{
    if (n >= capacity) {
        r->bad = true;
        n = 0;
    }
    if (!take(r, out, n))
        n = 0;
    out[n] = '\0';
}

static void
take_text(struct reader *r, char *out, size_t capacity)
{
    take_text_of(r, take_u8(r), out, capacity);
}

static void
take_address(struct reader *r, struct tpcc_address *a)
{
    take_text(r, a->street_1, sizeof(a->street_1));
    take_text(r, a->street_2, sizeof(a->street_2));
    take_text(r, a->city, sizeof(a->city));
    take_text(r, a->state, sizeof(a->state));
    take_text(r, a->zip, sizeof(a->zip));
}

static int
reader_end(const struct reader *r, enum tpcc_table table)
{
    if (r->bad || r->left != 0)
        return CH_FAIL(COHORT_ECORRUPT, "a row of table %s has a wrong length",
                       tpcc_table_names[table]);
    return 0;
}

void
tpcc_put_warehouse(struct tpcc_row *r, const struct tpcc_warehouse *v)
{
    r->bytes = 0;
    put_u64(r, (uint64_t)v->ytd);
    put_u16(r, v->tax);
    put_text(r, v->name);
    put_address(r, &v->address);
}

int
tpcc_get_warehouse(const struct cohort_slice *s, struct tpcc_warehouse *v)
{
    struct reader r = reader_on(s);

    v->ytd = (int64_t)take_u64(&r);
    v->tax = take_u16(&r);
    take_text(&r, v->name, sizeof(v->name));
    take_address(&r, &v->address);
    return reader_end(&r, TPCC_WAREHOUSE);
}

void
tpcc_put_district(struct tpcc_row *r, const struct tpcc_district *v)
{
    r->bytes = 0;
    put_u64(r, (uint64_t)v->ytd);
    put_u32(r, v->next_o_id);
    put_u32(r, v->next_h_id);
    put_u16(r, v->tax);
    put_text(r, v->name);
    put_address(r, &v->address);
}

int
tpcc_get_district(const struct cohort_slice *s, struct tpcc_district *v)
{
    struct reader r = reader_on(s);

    v->ytd = (int64_t)take_u64(&r);
    v->next_o_id = take_u32(&r);
    v->next_h_id = take_u32(&r);
    v->tax = take_u16(&r);
    take_text(&r, v->name, sizeof(v->name));
    take_address(&r, &v->address);
    return reader_end(&r, TPCC_DISTRICT);
}

void
tpcc_put_customer(struct tpcc_row *r, const struct tpcc_customer *v)
{
    size_t n = strlen(v->data);

    r->bytes = 0;
    put_u64(r, (uint64_t)v->balance);
    put_u64(r, (uint64_t)v->ytd_payment);
    put_u64(r, (uint64_t)v->credit_limit);
    put_u64(r, v->since);
    put_u32(r, v->payment_count);
    put_u32(r, v->delivery_count);
    put_u16(r, v->discount);
    put_u8(r, v->bad_credit);
    put_text(r, v->first);
    put_text(r, v->middle);
    put_text(r, v->last);
    put_address(r, &v->address);
    put_text(r, v->phone);
    put_u16(r, (uint32_t)n);
    put_bytes(r, v->data, n);
}

int
tpcc_get_customer(const struct cohort_slice *s, struct tpcc_customer *v)
{
    struct reader r = reader_on(s);

    v->balance = (int64_t)take_u64(&r);
    v->ytd_payment = (int64_t)take_u64(&r);
    v->credit_limit = (int64_t)take_u64(&r);
    v->since = take_u64(&r);
    v->payment_count = take_u32(&r);
    v->delivery_count = take_u32(&r);
    v->discount = take_u16(&r);
    v->bad_credit = take_u8(&r) != 0;
    take_text(&r, v->first, sizeof(v->first));
    take_text(&r, v->middle, sizeof(v->middle));
    take_text(&r, v->last, sizeof(v->last));
    take_address(&r, &v->address);
    take_text(&r, v->phone, sizeof(v->phone));
    take_text_of(&r, take_u16(&r), v->data, sizeof(v->data));
    return reader_end(&r, TPCC_CUSTOMER);
}

void
tpcc_put_history(struct tpcc_row *r, const struct tpcc_history *v)
{
    r->bytes = 0;
    put_u32(r, v->c_w);
    put_u8(r, v->c_d);
    put_u32(r, v->c);
    put_u64(r, v->date);
    put_u64(r, (uint64_t)v->amount);
    put_text(r, v->data);
}

int
tpcc_get_history(const struct cohort_slice *s, struct tpcc_history *v)
{
    struct reader r = reader_on(s);

    v->c_w = take_u32(&r);
    v->c_d = take_u8(&r);
    v->c = take_u32(&r);
    v->date = take_u64(&r);
    v->amount = (int64_t)take_u64(&r);
    take_text(&r, v->data, sizeof(v->data));
    return reader_end(&r, TPCC_HISTORY);
}

void
tpcc_put_order(struct tpcc_row *r, const struct tpcc_order *v)
{
    r->bytes = 0;
    put_u32(r, v->c);
    put_u8(r, v->carrier);
    put_u8(r, v->line_count);
    put_u8(r, v->all_local);
    put_u64(r, v->entry_date);
}

int
tpcc_get_order(const struct cohort_slice *s, struct tpcc_order *v)
{
    struct reader r = reader_on(s);

    v->c = take_u32(&r);
    v->carrier = take_u8(&r);
    v->line_count = take_u8(&r);
    v->all_local = take_u8(&r) != 0;
    v->entry_date = take_u64(&r);
    return reader_end(&r, TPCC_ORDER);
}

void
tpcc_put_order_line(struct tpcc_row *r, const struct tpcc_order_line *v)
{
    r->bytes = 0;
    put_u32(r, v->i);
    put_u32(r, v->supply_w);
    put_u8(r, v->quantity);
    put_u32(r, (uint32_t)v->amount); /* at most 9,999.99 */
    put_u64(r, v->delivery_date);
    put_bytes(r, v->dist, TPCC_DIST_BYTES);
}

int
tpcc_get_order_line(const struct cohort_slice *s, struct tpcc_order_line *v)
{
    struct reader r = reader_on(s);

    v->i = take_u32(&r);
    v->supply_w = take_u32(&r);
    v->quantity = take_u8(&r);
    v->amount = take_u32(&r);
    v->delivery_date = take_u64(&r);
    take_text_of(&r, TPCC_DIST_BYTES, v->dist, sizeof(v->dist));
    return reader_end(&r, TPCC_ORDER_LINE);
}

void
tpcc_put_item(struct tpcc_row *r, const struct tpcc_item *v)
{
    r->bytes = 0;
    put_u32(r, v->image);
    put_u32(r, v->price);
    put_text(r, v->name);
    put_text(r, v->data);
}

int
tpcc_get_item(const struct cohort_slice *s, struct tpcc_item *v)
{
    struct reader r = reader_on(s);

    v->image = take_u32(&r);
    v->price = take_u32(&r);
    take_text(&r, v->name, sizeof(v->name));
    take_text(&r, v->data, sizeof(v->data));
    return reader_end(&r, TPCC_ITEM);
}

void
tpcc_put_stock(struct tpcc_row *r, const struct tpcc_stock *v)
{
    r->bytes = 0;
    put_u16(r, (uint32_t)v->quantity);
    put_u32(r, v->ytd);
    put_u32(r, v->order_count);
    put_u32(r, v->remote_count);
    for (int i = 0; i < TPCC_DISTRICTS; i++)
        put_bytes(r, v->dist[i], TPCC_DIST_BYTES);
    put_text(r, v->data);
}

int
tpcc_get_stock(const struct cohort_slice *s, struct tpcc_stock *v)
{
    struct reader r = reader_on(s);

    v->quantity = (int16_t)take_u16(&r);
    v->ytd = take_u32(&r);
    v->order_count = take_u32(&r);
    v->remote_count = take_u32(&r);
    for (int i = 0; i < TPCC_DISTRICTS; i++)
        take_text_of(&r, TPCC_DIST_BYTES, v->dist[i], sizeof(v->dist[i]));
    take_text(&r, v->data, sizeof(v->data));
    return reader_end(&r, TPCC_STOCK);
}

void
tpcc_put_archive(struct tpcc_row *r, const struct tpcc_archive *v)
{
    r->bytes = 0;
    put_u64(r, (uint64_t)v->lines);
    put_u64(r, (uint64_t)v->history);
    put_u64(r, v->orders);
}

int
tpcc_get_archive(const struct cohort_slice *s, struct tpcc_archive *v)
{
    struct reader r = reader_on(s);

    v->lines = (int64_t)take_u64(&r);
    v->history = (int64_t)take_u64(&r);
    v->orders = take_u64(&r);
    return reader_end(&r, TPCC_ARCHIVE);
}

void
tpcc_put_scale(struct tpcc_row *r, const struct tpcc_scale *v)
{
    r->bytes = 0;
    put_u32(r, v->warehouses);
    put_u32(r, v->divisor);
    put_u32(r, v->c_load);
}

int
tpcc_get_scale(const struct cohort_slice *s, struct tpcc_scale *v)
{
    struct reader r = reader_on(s);
    uint32_t warehouses = take_u32(&r), divisor = take_u32(&r), c_load = take_u32(&r);
    int rc = reader_end(&r, TPCC_META);

    if (rc != 0)
        return rc;
    if (warehouses == 0 || warehouses > TPCC_WAREHOUSES_MAX || divisor == 0 ||
        divisor > TPCC_DIVISOR_MAX)
        return CH_FAIL(COHORT_ECORRUPT, "table meta: %u warehouses, scale 1/%u", warehouses,
                       divisor);
    tpcc_scale_init(v, warehouses, divisor);
    v->c_load = c_load;
    return 0;
}
