/* place.h - which stream of open zones a page image goes to, so that what dies together lies together.
 *
 *   none   one stream for everything.
 *   sepgc  what users write and what garbage collection moves, apart.
 *   gdt    the paper's grouping by death time: a batch is sorted by expected death and cut into groups whose
 *          widths grow in proportion to 1, 2, 3 ...; each group goes to the stream whose open zone has the
 *          nearest mean death time. What GC moves is sorted the same way over streams of its own (the
 *          coldest to the coldest). First writes go by tree, pages that are never rewritten to the coldest.
 *   log    classes of remaining life, equally wide on a logarithmic scale between the 2nd and the 98th
 *          percentile of what is placed. User writes and GC share the classes: under memoryless writes a
 *          page's age says nothing that its rate does not.
 *
 * Number of classes of `log`: predictions are compared with what came (place_note_outcome()): the regression
 * of log(actual) on log(predicted life) times the spread of the predictions is the spread that is real. When it
 * is small (uniform writes: predictions differ by chance only, the slope is 0) one class is used, which
 * is what is best then; else one class for each octave, up to classes_max.
 *
 *   P1 stream < PLACE_STREAMS, and with the same state and input the same streams come out.
 *   P2 saved and loaded, a placer has the same classes and borders; means of open zones start from where they
 *      stood.
 *
 * Pure; callers serialise. A crash loses what came after the last save: the placer learns anew.
 */
#ifndef CH_SPACE_PLACE_H
#define CH_SPACE_PLACE_H

#include "base/base.h"
#include "space/heat.h"

enum {
    PLACE_CLASSES_MAX = 16,
    PLACE_GC_STREAM = 16, /* first stream of what GC moves, where that is apart */
    PLACE_STREAMS = 32,
    PLACE_BATCH_MAX = 4096,
    PLACE_SAVE_BYTES = 1024,
};

enum place_policy {
    PLACE_NOSEP,
    PLACE_SEPGC,
    PLACE_GDT,
    PLACE_LOG,
};
enum place_origin {
    PLACE_USER,
    PLACE_GC,
};

struct place_config {
    enum place_policy policy;
    uint32_t classes_max; /* 1 .. PLACE_CLASSES_MAX */
    bool fixed;           /* log: always classes_max classes (for comparisons) */
    bool gc_unsorted;     /* gdt: what GC moves goes to one stream (for comparisons) */
    bool by_tree;         /* first writes of which nothing is known go by tree (gdt) */
};

struct place_item {
    uint32_t life;  /* expected remaining life; PLACE_NEVER, PLACE_UNKNOWN */
    uint32_t bytes; /* of the stored image; weight in means */
    uint32_t tree;
    bool first;     /* never written before */
    uint8_t stream; /* out */
};

struct place;
CH_NODISCARD int place_create(const struct place_config *cfg, struct place **out); /* ENOMEM */
void place_destroy(struct place *p);

/* Sets the stream of each of n <= PLACE_BATCH_MAX items, which are all users' writes or all moved. */
void place_batch(struct place *p, enum place_origin origin, uint32_t now, struct place_item *items,
                 size_t n);
/* order[0 .. n-1] = the items' indices by stream and, within a stream, by life: the order to write in. */
void place_order(const struct place_item *items, uint32_t *order, size_t n);
/* A stream begins a new zone: its running mean starts anew. */
void place_note_open(struct place *p, unsigned stream);
void place_note_outcome(struct place *p, const struct heat_outcome *o);

unsigned place_classes(const struct place *p); /* in use now */
double
place_spread(const struct place *p); /* real spread of lives in octaves; 0 = none or unknown */

/* State for a checkpoint; little-endian, docs/FORMAT.md. Returns the bytes written, <= PLACE_SAVE_BYTES.
 * EMAP for what is no state of a placer: nothing is changed, it learns anew. Another policy's state is left out. */
size_t place_save(const struct place *p, uint8_t *out);
CH_NODISCARD int place_load(struct place *p, const uint8_t *in, size_t n);

#endif
