/* stats.c - cohort_stats(), its JSON form, and cohort_check(). */
#include "api/api_internal.h"
#include "buf/buf.h"
#include "dev/dev.h"
#include "store/store.h"
#include "ver/ver.h"
#include "wal/wal.h"

#include <json-c/json.h>
#include <stdlib.h>

_Static_assert((int)COHORT_CAUSES == (int)CH_CAUSES && (int)COHORT_CAUSE_META == (int)CH_META &&
                   (int)COHORT_CAUSE_GC == (int)CH_GC && (int)COHORT_CAUSE_WAL == (int)CH_WAL &&
                   (int)COHORT_CAUSE_USER == (int)CH_USER && (int)COHORT_CAUSE_PAD == (int)CH_PAD &&
                   (int)COHORT_CAUSE_DBLWR == (int)CH_DBLWR,
               "public and internal causes agree");

static void
fill_device(const struct db *db, struct cohort_stats *s)
{
    struct dev_counts c;
    uint64_t host;
    uint64_t media;

    dev_counts(db->dev, &c);
    for (int i = 0; i < CH_CAUSES; i++)
        s->bytes[i] = c.written[i];
    s->host_bytes = c.host_bytes;
    s->read_bytes = c.read_bytes;
    s->reads = c.reads;
    s->flushes = c.flushes;
    dev_physical(db->dev, &host, &media);
    /* The device counts from its own beginning, we from the opening of this handle. */
    s->device_host_bytes = host == COHORT_UNKNOWN ? host : host - db->base_host;
    s->media_bytes = media == COHORT_UNKNOWN ? media : media - db->base_media;
}

static void
fill_store(struct db *db, struct cohort_stats *s)
{
    struct store_counts c;
    const struct zone_table *z = store_zones(db->store);

    store_counts(db->store, &c);
    s->page_writes = c.page_writes;
    s->page_write_stored = c.page_write_stored;
    s->page_write_squares = c.page_write_squares;
    s->delta_writes = c.delta_writes;
    s->delta_stored = c.delta_bytes;
    s->delta_reads = c.delta_reads;
    s->delta_memory_hits = c.delta_memory_hits;
    s->gc_zones = c.gc_zones;
    s->gc_live_bytes = c.gc_live_bytes;
    s->retired_zones = c.retired;
    s->pages = map_pid_count(store_map(db->store));
    s->live_bytes = zone_live_total(z);
    s->zone_bytes = db->root.zone_bytes;
    s->zones = zone_count(z);
    s->zones_free = zone_free_count(z);
    s->space_bytes = dev_size(db->dev);
    s->capacity_bytes = dev_caps(db->dev)->bytes;
}

static void
fill_memory(struct db *db, struct cohort_stats *s)
{
    struct buf_counts b;
    struct wal_counts w;

    buf_counts(db->buf, &b);
    s->cache_hits = b.hits;
    s->cache_misses = b.misses;
    s->cache_bytes = buf_frame_bytes(db->buf);
    s->metadata_bytes =
        boot_memory(db) + buf_memory(db->buf) + store_memory(db->store) + wal_memory(db->wal);
    s->metadata_bytes += ver_memory(db->ver) + txns_memory(db->txns) + reg_memory(db->reg);
    for (int i = 0; i < META_ARRAYS; i++)
        s->metadata_bytes += meta_array_memory(db->arrays[i]);
    wal_counts(db->wal, &w);
    s->log_flushes = w.flushes;
    wal_usage(db->wal, &s->log_bytes_used, &s->log_bytes);
}

static void
fill_transactions(struct db *db, struct cohort_stats *s)
{
    struct txns_counts t;
    struct ver_counts v;

    txns_counts(db->txns, &t);
    s->transactions = t.open;
    s->transactions_prepared = t.prepared;
    s->aborts = t.aborts;
    s->undo_spilled_bytes = t.spilled_bytes;
    ver_counts(db->ver, &v);
    s->conflicts = v.conflicts;
    s->deadlocks = v.deadlocks;
    s->lock_waits = v.waits;
    s->lock_timeouts = v.timeouts;
    s->snapshots_killed = v.killed;
    s->version_bytes = v.bytes;
    s->version_entries = v.entries;
    s->trees = cat_tree_count(db->cat);
}

static uint64_t
public_codec(uint32_t codec)
{
    static const uint64_t names[] = {COHORT_CODEC_NONE, COHORT_CODEC_LZ4, COHORT_CODEC_ZSTD};

    return codec < CH_ARRAY_LEN(names) ? names[codec] : COHORT_CODEC_DEFAULT;
}

static void
fill(cohort_db *db, struct cohort_stats *s)
{
    memset(s, 0, sizeof(*s));
    s->struct_bytes = sizeof(*s);
    fill_device(db->db, s);
    fill_store(db->db, s);
    fill_memory(db->db, s);
    fill_transactions(db->db, s);
    for (unsigned i = 0; i < API_POOL; i++) {
        s->commits += atomic_load_explicit(&db->pool[i].commits, memory_order_relaxed);
        s->payload_bytes += atomic_load_explicit(&db->pool[i].payload, memory_order_relaxed);
    }
    s->checkpoints = atomic_load_explicit(&db->db->checkpoints, memory_order_relaxed);
    s->codec = public_codec(db->db->root.codec);
    s->preset = db->db->root.preset;
}

COHORT_API int
cohort_stats(cohort_db *db, struct cohort_stats *s)
{
    struct cohort_stats all;
    size_t bytes;

    if (db == NULL || s == NULL || s->struct_bytes < sizeof(s->struct_bytes))
        return CH_FAIL(COHORT_EINVAL, "cohort_stats: struct_bytes not set");
    /* A caller of an older version has a shorter struct. */
    bytes = ch_min_u64(s->struct_bytes, sizeof(all));
    fill(db, &all);
    all.struct_bytes = bytes;
    memcpy(s, &all, bytes);
    return 0;
}

static void
put_u64(struct json_object *o, const char *name, uint64_t v)
{
    json_object_object_add(o, name, v == COHORT_UNKNOWN ? NULL : json_object_new_uint64(v));
}

static struct json_object *
causes_json(const struct cohort_stats *s)
{
    static const char *const names[COHORT_CAUSES] = {"user", "delta", "pad", "gc",
                                                     "comp", "dblwr", "wal", "meta"};
    struct json_object *o = json_object_new_object();

    for (int i = 0; i < COHORT_CAUSES; i++)
        put_u64(o, names[i], s->bytes[i]);
    return o;
}

COHORT_API int
cohort_stats_json(cohort_db *db, char **text)
{
    struct cohort_stats s;
    struct json_object *o;

    if (db == NULL || text == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_stats_json: null argument");
    fill(db, &s);
    o = json_object_new_object();
    if (o == NULL)
        return CH_FAIL(COHORT_ENOMEM, "statistics");
    json_object_object_add(o, "bytes", causes_json(&s));
#define FIELD(name) put_u64(o, #name, s.name)
    FIELD(host_bytes);
    FIELD(device_host_bytes);
    FIELD(media_bytes);
    FIELD(read_bytes);
    FIELD(reads);
    FIELD(flushes);
    FIELD(commits);
    FIELD(log_flushes);
    FIELD(payload_bytes);
    FIELD(page_writes);
    FIELD(page_write_stored);
    FIELD(page_write_squares);
    FIELD(cache_hits);
    FIELD(cache_misses);
    FIELD(cache_bytes);
    FIELD(metadata_bytes);
    FIELD(pages);
    FIELD(live_bytes);
    FIELD(space_bytes);
    FIELD(capacity_bytes);
    FIELD(zone_bytes);
    FIELD(zones);
    FIELD(zones_free);
    FIELD(gc_zones);
    FIELD(gc_live_bytes);
    FIELD(checkpoints);
    FIELD(log_bytes_used);
    FIELD(log_bytes);
    FIELD(codec);
    FIELD(preset);
    FIELD(retired_zones);
    FIELD(transactions);
    FIELD(transactions_prepared);
    FIELD(aborts);
    FIELD(conflicts);
    FIELD(deadlocks);
    FIELD(lock_waits);
    FIELD(lock_timeouts);
    FIELD(snapshots_killed);
    FIELD(version_bytes);
    FIELD(version_entries);
    FIELD(undo_spilled_bytes);
    FIELD(trees);
    FIELD(delta_writes);
    FIELD(delta_stored);
    FIELD(delta_reads);
    FIELD(delta_memory_hits);
#undef FIELD
    *text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
    json_object_put(o);
    return *text != NULL ? 0 : CH_FAIL(COHORT_ENOMEM, "statistics");
}

static char
zone_letter(const struct zone_info *z, uint64_t zone_bytes)
{
    uint64_t tenth = ch_min_u64(zone_bytes > 0 ? z->live_bytes * 10 / zone_bytes : 0, 9);

    switch (z->state) {
    case ZONE_FREE:
        return '.';
    case ZONE_OPEN:
        return (char)('A' + tenth);
    case ZONE_SEALED:
    case ZONE_COLLECT:
    case ZONE_DEAD:
        return (char)('0' + tenth);
    case ZONE_META:
        return 'm';
    case ZONE_RETIRED:
        return 'x';
    }
    return '?';
}

COHORT_API int
cohort_zone_map(cohort_db *db, char *map, size_t n, size_t *zones)
{
    const struct zone_table *t;
    struct zone_info info;

    if (db == NULL || zones == NULL || (map == NULL && n > 0))
        return CH_FAIL(COHORT_EINVAL, "cohort_zone_map: null argument");
    t = store_zones(db->db->store);
    *zones = zone_count(t);
    for (size_t z = 0; z < n && z < *zones; z++) {
        zone_info(t, (zone_id)z, &info);
        map[z] = zone_letter(&info, db->db->root.zone_bytes);
    }
    return 0;
}

COHORT_API int
cohort_check(cohort_db *db, void (*report)(void *arg, const char *line), void *arg,
             struct cohort_check_result *out)
{
    struct cohort_check_result result = {0};
    int rc;

    if (db == NULL)
        return CH_FAIL(COHORT_EINVAL, "cohort_check: no database");
    rc = boot_check(db->db, report, arg, &result);
    if (out != NULL)
        *out = result;
    return rc;
}
