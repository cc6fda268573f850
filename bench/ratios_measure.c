/* ratios_measure.c - pages of a data set, and what codecs and packing make of them.
 *
 * Pages are compressed and packed by the engine's own packer, in the batches in which an eviction hands them over: chosen at
 * random, so that the pages of all trees mix. Every eighth page, up to PACK_DICT_SAMPLES of a tree, is what its dictionary is
 * trained from, and is left out of all figures.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "bench/ratios.h"
#include "bench/tpcc.h"
#include "dev/dev.h"
#include "page/page.h"
#include "reg/reg.h"

enum {
    READ_BLOCKS = 256,
    SAMPLE_EVERY = 8,
    IMAGE_OUTPUT_OFF = 24, /* of the output's size in an image (pack.h) */
};

void
ratios_pages_fini(struct ratios_pages *p)
{
    ch_free_aligned(p->pages);
    *p = (struct ratios_pages){0};
}

/* ---- pages ---- */

static int
load_data(cohort_db *db, const struct data *d)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct data_record *r = &d->records[i];
        int rc = cohort_put(db, d->bytes.data + r->key, r->key_bytes, d->bytes.data + r->value,
                            r->value_bytes);

        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
load_database(const struct bench_config *c, const struct data *d, struct cohort_options *o,
              double *leaf_fill)
{
    struct cohort_check_result check = {0};
    cohort_db *db = NULL;
    int rc = cohort_open(c->device, o, &db);

    if (rc == 0)
        rc = load_data(db, d);
    if (rc == 0)
        rc = cohort_checkpoint(db);
    if (rc == 0)
        rc = cohort_check(db, NULL, NULL, &check);
    rc = tool_close(db, rc);
    if (check.leaf_pages > 0)
        *leaf_fill =
            (double)check.leaf_used_bytes / ((double)check.leaf_pages * (double)CH_PAGE_BYTES);
    return rc;
}

static int
load_tpcc(const struct bench_config *c, uint64_t warehouses, const struct cohort_options *o,
          double *leaf_fill)
{
    struct tpcc_scale scale;
    struct tpcc_store_config config = {
        .where = c->device,
        .options = o,
        .create = true,
        .threads = 4,
        .isolation = COHORT_SNAPSHOT,
        .durability = o->durability,
        .cache_bytes = o->cache_bytes,
    };
    struct tpcc_load load = {.scale = &scale, .threads = 1, .seed = c->seed};
    struct cohort_check_result check = {0};
    int rc, closed;

    tpcc_scale_init(&scale, (uint32_t)warehouses, 1);
    config.bytes_max = 4 * tpcc_scale_bytes(&scale) + (UINT64_C(8) << 30);
    rc = tpcc_cohort_ops.open(&config, &load.store);
    if (rc != 0)
        return rc;
    rc = tpcc_load(&load);
    if (rc == 0)
        rc = cohort_check(tpcc_cohort_db(load.store), NULL, NULL, &check);
    if (check.leaf_pages > 0)
        *leaf_fill =
            (double)check.leaf_used_bytes / ((double)check.leaf_pages * (double)CH_PAGE_BYTES);
    closed = tpcc_cohort_ops.close(load.store);
    return rc != 0 ? rc : closed;
}

static bool
is_page(const uint8_t *block)
{
    uint32_t tree = page_tree(block);

    return ch_get16(block + 4) == PAGE_MAGIC && page_check(block, 0) == 0 &&
           (page_type(block) == PAGE_LEAF || page_type(block) == PAGE_INNER) &&
           (tree == REG_MAIN || tree == REG_BLOBS || tree >= REG_USER);
}

static int
add_page(struct ratios_pages *p, const uint8_t *block)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity == 0 ? 4096 : 2 * p->capacity;
        uint8_t *pages = ch_alloc_aligned(capacity * CH_PAGE_BYTES);

        if (pages == NULL)
            return CH_FAIL(COHORT_ENOMEM, "%zu pages", capacity);
        if (p->count > 0)
            memcpy(pages, p->pages, p->count * CH_PAGE_BYTES);
        ch_free_aligned(p->pages);
        p->pages = pages;
        p->capacity = capacity;
    }
    memcpy(p->pages + p->count * CH_PAGE_BYTES, block, CH_PAGE_BYTES);
    p->count++;
    return 0;
}

static int
take_pages(const char *directory, struct ratios_pages *p)
{
    uint8_t *buf = ch_alloc_aligned((size_t)READ_BLOCKS * CH_PAGE_BYTES);
    struct dev *dev = NULL;
    char *path = NULL;
    int rc = 0;

    if (buf == NULL || asprintf(&path, "%s/cohort.db", directory) < 0)
        rc = CH_FAIL(COHORT_ENOMEM, "buffer");
    if (rc == 0)
        rc = dev_open(path, DEV_READONLY, 0, &dev);
    for (uint64_t off = 0; rc == 0 && off < dev_size(dev);) {
        size_t n = (size_t)ch_min_u64(dev_size(dev) - off, (uint64_t)READ_BLOCKS * CH_PAGE_BYTES);

        n -= n % CH_PAGE_BYTES;
        if (n == 0)
            break;
        rc = dev_read(dev, off, buf, n);
        for (size_t i = 0; rc == 0 && i < n; i += CH_PAGE_BYTES)
            if (is_page(buf + i))
                rc = add_page(p, buf + i);
        off += n;
    }
    dev_close(dev);
    free(path);
    ch_free_aligned(buf);
    if (rc == 0 && p->count == 0)
        rc = CH_FAIL(COHORT_EINVAL, "%s: no pages", directory);
    return rc;
}

/* So that each batch is a sample of all of them. */
static void
shuffle(struct ratios_pages *p, uint64_t seed)
{
    uint8_t page[CH_PAGE_BYTES];
    struct ch_prng rng;

    ch_prng_init(&rng, seed);
    for (size_t i = p->count; i > 1; i--) {
        uint8_t *a = p->pages + (i - 1) * CH_PAGE_BYTES;
        uint8_t *b = p->pages + ch_prng_below(&rng, i) * CH_PAGE_BYTES;

        if (a == b)
            continue;
        memcpy(page, a, CH_PAGE_BYTES);
        memcpy(a, b, CH_PAGE_BYTES);
        memcpy(b, page, CH_PAGE_BYTES);
    }
}

int
ratios_load(const struct bench_config *c, const struct data *d, uint64_t warehouses,
            struct ratios_pages *out)
{
    static const char *const settings[][2] = {{"preset", "inplace-atomic"},
                                              {"create", "must"},
                                              {"durability", "none"},
                                              {"cache_bytes", "64M"},
                                              {"max_bytes", "4G"}};
    struct cohort_options o;
    int rc = 0;

    cohort_options_init(&o);
    for (size_t i = 0; rc == 0 && i < CH_ARRAY_LEN(settings); i++)
        rc = cohort_options_set(&o, settings[i][0], settings[i][1]);
    *out = (struct ratios_pages){0};
    if (rc == 0)
        rc = d != NULL ? load_database(c, d, &o, &out->leaf_fill)
                       : load_tpcc(c, warehouses, &o, &out->leaf_fill);
    if (rc == 0)
        rc = take_pages(c->device, out);
    if (rc == 0)
        shuffle(out, c->seed);
    else
        ratios_pages_fini(out);
    return rc;
}

/* ---- dictionaries ---- */

struct measure {
    const struct ratios_pages *p;
    const struct ratios_codec *codec;
    unsigned batch;
    uint8_t *sampled; /* per page */
    uint32_t trees[RATIOS_TREES_MAX];
    unsigned samples[RATIOS_TREES_MAX], tree_count;
    struct pack_dict *dicts[RATIOS_TREES_MAX];
    uint8_t *train; /* PACK_DICT_SAMPLES pages */
    uint32_t *image_bytes;
    struct packer *packer;
    struct pack_item items[CH_BATCH_MAX];
    uint64_t encode_ns, decode_ns, slots;
    double sum, square, images;
    size_t n;
};

static unsigned
tree_index(struct measure *m, uint32_t tree)
{
    for (unsigned i = 0; i < m->tree_count; i++)
        if (m->trees[i] == tree)
            return i;
    if (m->tree_count == RATIOS_TREES_MAX)
        return RATIOS_TREES_MAX - 1; /* the last ones share */
    m->trees[m->tree_count] = tree;
    return m->tree_count++;
}

static void
choose_samples(struct measure *m)
{
    for (size_t i = 0; i < m->p->count; i++) {
        unsigned k = tree_index(m, page_tree(m->p->pages + i * CH_PAGE_BYTES));

        if (i % SAMPLE_EVERY == 0 && m->samples[k] < PACK_DICT_SAMPLES) {
            m->samples[k]++;
            m->sampled[i] = 1;
        }
    }
}

static int
train_tree(struct measure *m, unsigned k, struct ratios_result *out)
{
    uint8_t dict[PACK_DICT_MAX];
    size_t bytes = 0;
    unsigned n = 0;
    int rc;

    for (size_t i = 0; i < m->p->count && n < PACK_DICT_SAMPLES; i++) {
        const uint8_t *page = m->p->pages + i * CH_PAGE_BYTES;

        if (m->sampled[i] != 0 && tree_index(m, page_tree(page)) == k)
            memcpy(m->train + (size_t)n++ * CH_PAGE_BYTES, page, CH_PAGE_BYTES);
    }
    rc = pack_dict_train(m->train, n, PACK_DICT_MAX, dict, &bytes);
    if (rc == COHORT_NOTFOUND)
        return 0; /* too small a tree */
    if (rc == 0)
        rc = pack_dict_create(pack_dict_id(k + 1, 0), dict, bytes, m->codec->level, &m->dicts[k]);
    out->dictionaries++;
    out->dictionary_bytes += bytes;
    return rc;
}

static uint64_t
thread_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* ---- measuring ---- */

static int
count_images(struct measure *m, const struct pack_plan *plan, unsigned n)
{
    uint8_t page[CH_PAGE_BYTES] __attribute__((aligned(16)));
    uint64_t start = thread_ns();

    for (unsigned i = 0; i < n; i++) {
        const struct pack_item *it = &m->items[i];
        const uint8_t *slot = plan->slots + (size_t)it->slot * CH_SLOT_BYTES;
        int rc = pack_unpack_dict(m->packer, it->dict, slot, it->offset, it->bytes, it->pid, page);

        if (rc == 0 && memcmp(page, it->page, CH_PAGE_BYTES) != 0)
            rc = CH_FAIL(COHORT_EIMAGE, "a page did not come back as it was");
        if (rc != 0)
            return rc;
    }
    m->decode_ns += thread_ns() - start;
    for (unsigned i = 0; i < n; i++) {
        const struct pack_item *it = &m->items[i];
        const uint8_t *image = plan->slots + (size_t)it->slot * CH_SLOT_BYTES + it->offset;
        double r = it->bytes == CH_SLOT_BYTES
                       ? 1
                       : (double)ch_get16(image + IMAGE_OUTPUT_OFF) / CH_PAGE_BYTES;

        m->sum += r;
        m->square += r * r;
        m->images += (double)it->bytes / CH_PAGE_BYTES;
        m->image_bytes[m->n++] = it->bytes;
    }
    return 0;
}

/* All pages in batches of `batch`; `count`: this is the pass whose images are looked at. */
static int
pass(struct measure *m, unsigned batch, bool count)
{
    struct pack_plan plan;
    int rc = 0;

    m->slots = 0;
    for (size_t i = 0; rc == 0 && i < m->p->count;) {
        unsigned n = 0;
        uint64_t start;

        for (; i < m->p->count && n < batch; i++) {
            const uint8_t *page = m->p->pages + i * CH_PAGE_BYTES;

            if (m->sampled[i] != 0)
                continue;
            m->items[n++] = (struct pack_item){
                .pid = page_pid(page),
                .lsn = page_lsn(page),
                .page = page,
                .dict = m->codec->dictionary ? m->dicts[tree_index(m, page_tree(page))] : NULL,
            };
        }
        if (n == 0)
            break;
        start = thread_ns();
        pack_build(m->packer, m->items, n, false, &plan);
        if (count)
            m->encode_ns += thread_ns() - start;
        m->slots += plan.slot_count;
        if (count)
            rc = count_images(m, &plan, n);
    }
    return rc;
}

/* A batch back to back, with an entry of 4 bytes an image and 16 bytes more. */
static void
fill_run(const struct measure *m, struct ratios_result *out)
{
    size_t slots = 0, crossing = 0;

    for (size_t i = 0; i < m->n; i += m->batch) {
        size_t k = ch_min_u64(m->batch, m->n - i);
        uint64_t at = 16 + 4 * k;

        for (size_t j = i; j < i + k; j++) {
            crossing += at / CH_SLOT_BYTES != (at + m->image_bytes[j] - 1) / CH_SLOT_BYTES;
            at += m->image_bytes[j];
        }
        slots += ch_div_up(at, CH_SLOT_BYTES);
    }
    out->run = (double)slots / (double)m->n;
    out->run_crossing = (double)crossing / (double)m->n;
}

static void
fill_result(struct measure *m, struct ratios_result *out)
{
    double n = (double)m->n;
    size_t crossing = 0, units = 0;

    out->pages = m->n;
    out->mean = m->sum / n;
    out->sd = sqrt(fmax(m->square / n - out->mean * out->mean, 0));
    out->image = m->images / n;
    out->encode_us = (double)m->encode_ns / 1e3 / n;
    out->decode_us = (double)m->decode_ns / 1e3 / n;
    for (size_t i = 0; i < m->n; i += m->batch) {
        size_t k = 0;

        units += ratios_units(m->image_bytes + i, ch_min_u64(m->batch, m->n - i), 2 * CH_SLOT_BYTES,
                              8, 4, &k);
        crossing += k;
    }
    out->slot8 = 2.0 * (double)units / n;
    out->crossing = (double)crossing / n;
    fill_run(m, out);
}

int
ratios_measure(const struct ratios_pages *p, const struct ratios_codec *codec, unsigned batch,
               struct ratios_result *out)
{
    struct measure *m = calloc(1, sizeof(*m));
    int rc = m != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "measurement");

    *out = (struct ratios_result){0};
    if (rc == 0) {
        m->p = p;
        m->codec = codec;
        m->batch = batch;
        m->sampled = calloc(p->count, 1);
        m->image_bytes = calloc(p->count, sizeof(*m->image_bytes));
        m->train = ch_alloc_aligned((size_t)PACK_DICT_SAMPLES * CH_PAGE_BYTES);
        if (m->sampled == NULL || m->image_bytes == NULL || m->train == NULL)
            rc = CH_FAIL(COHORT_ENOMEM, "measurement of %zu pages", p->count);
    }
    if (rc == 0)
        rc = packer_create(codec->codec, codec->level, CH_BATCH_MAX, &m->packer);
    if (rc == 0)
        choose_samples(m);
    for (unsigned k = 0; rc == 0 && codec->dictionary && k < m->tree_count; k++)
        rc = train_tree(m, k, out);
    if (rc == 0)
        rc = pass(m, batch, true);
    if (rc == 0) {
        fill_result(m, out);
        out->slot4 = (double)m->slots / (double)m->n;
        rc = pass(m, (unsigned)ch_min_u64(2 * batch, CH_BATCH_MAX), false);
        out->slot4_more = (double)m->slots / (double)m->n;
    }
    for (unsigned k = 0; m != NULL && k < m->tree_count; k++)
        pack_dict_destroy(m->dicts[k]);
    if (m != NULL) {
        packer_destroy(m->packer);
        free(m->sampled);
        free(m->image_bytes);
        ch_free_aligned(m->train);
    }
    free(m);
    return rc;
}

/* ---- arithmetic of units ---- */

static int
larger_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

size_t
ratios_units(const uint32_t *bytes, size_t n, uint32_t unit, uint32_t foot, uint32_t entry,
             size_t *crossing)
{
    uint32_t sorted[2 * CH_BATCH_MAX], used[2 * CH_BATCH_MAX], rooms[2 * CH_BATCH_MAX];
    size_t units = 0;

    CH_ASSERT(n <= CH_ARRAY_LEN(sorted));
    memcpy(sorted, bytes, n * sizeof(*bytes));
    qsort(sorted, n, sizeof(*sorted), larger_first);
    *crossing = 0;
    for (size_t i = 0; i < n; i++) {
        /* A raw page stands alone in its block: no header, no directory. */
        uint32_t need = sorted[i] == CH_SLOT_BYTES ? CH_SLOT_BYTES - foot : sorted[i] + entry;
        size_t best = units;

        for (size_t k = 0; k < units; k++)
            if (rooms[k] >= need && (best == units || rooms[k] < rooms[best]))
                best = k;
        if (best == units) {
            used[units] = 0;
            rooms[units++] = unit - foot;
        }
        if (used[best] / CH_SLOT_BYTES != (used[best] + sorted[i] - 1) / CH_SLOT_BYTES)
            (*crossing)++;
        used[best] += sorted[i];
        rooms[best] -= need;
    }
    return units;
}
