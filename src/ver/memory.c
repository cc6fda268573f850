/* memory.c - memory of entries and descriptors: what was given back is kept for the next, a little of it by each thread.
 *
 * An entry is made by its writer's thread and given back by whoever trims. In the C library that means that the threads meet at the
 * lock of one arena, and sleep there. So pieces up to VER_DEPOT_BYTES come in classes of 64 bytes, and those given back
 * go to a depot that the thread shares with few or none:
 *
 *     depots[thread number % VER_DEPOTS]   {busy, per class: list of free pieces, VER_DEPOT_EACH of them at most}
 *
 *   M1  who sets `busy` (acquire; release of who cleared it) has the lists. It is never waited for: who finds it set turns to the C
 *       library.
 *   M2  a piece is of its class by size, whoever made it: so it may be given back to any depot.
 *
 * With AddressSanitizer nothing is kept, for it to see pieces used that were given back.
 */
#include "ver/ver_internal.h"

#include <stdlib.h>

enum {
#ifdef __SANITIZE_ADDRESS__
    KEPT = 0,
#else
    KEPT = VER_DEPOT_EACH,
#endif
    CLASS_BYTES = 64,
};
_Static_assert((int)VER_DEPOT_CLASSES *CLASS_BYTES == (int)VER_DEPOT_BYTES, "classes");

struct piece {
    struct piece *next;
};

static struct ver_depot *
depot_enter(struct ver *v)
{
    struct ver_depot *d = &v->depots[rt_thread_number() % VER_DEPOTS];

    return atomic_exchange_explicit(&d->busy, true, memory_order_acquire) ? NULL : d; /* M1 */
}

static void
depot_leave(struct ver_depot *d)
{
    atomic_store_explicit(&d->busy, false, memory_order_release);
}

static void
count_set(struct ver_depot *d, unsigned class, unsigned to)
{
    atomic_store_explicit(&d->counts[class - 1], to, memory_order_relaxed);
}

static unsigned
count_of(const struct ver_depot *d, unsigned class)
{
    return atomic_load_explicit(&d->counts[class - 1], memory_order_relaxed);
}

void *
ver_memory_get(struct ver *v, size_t bytes, uint8_t *class)
{
    struct ver_depot *d;
    struct piece *p = NULL;

    *class = 0;
    if (bytes > VER_DEPOT_BYTES)
        return malloc(bytes);
    *class = (uint8_t)ch_div_up(bytes, CLASS_BYTES);
    d = depot_enter(v);
    if (d != NULL) {
        p = d->lists[*class - 1];
        if (p != NULL) {
            d->lists[*class - 1] = p->next;
            count_set(d, *class, count_of(d, *class) - 1);
        }
        depot_leave(d);
    }
    return p != NULL ? p : malloc((size_t) * class * CLASS_BYTES);
}

void
ver_memory_put(struct ver *v, void *memory, uint8_t class)
{
    struct ver_depot *d = KEPT > 0 && class > 0 ? depot_enter(v) : NULL;
    struct piece *p = memory;

    if (d != NULL && count_of(d, class) < KEPT) {
        p->next = d->lists[class - 1];
        d->lists[class - 1] = p;
        count_set(d, class, count_of(d, class) + 1);
        p = NULL;
    }
    if (d != NULL)
        depot_leave(d);
    free(p);
}

size_t
ver_memory_kept(const struct ver *v)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < VER_DEPOTS; i++)
        for (unsigned class = 1; class <= VER_DEPOT_CLASSES; class ++)
            bytes += (size_t)count_of(&v->depots[i], class) * class * CLASS_BYTES;
    return bytes;
}

void
ver_memory_free(struct ver *v)
{
    for (unsigned i = 0; i < VER_DEPOTS; i++) {
        for (unsigned c = 0; c < VER_DEPOT_CLASSES; c++) {
            struct piece *next;

            for (struct piece *p = v->depots[i].lists[c]; p != NULL; p = next) {
                next = p->next;
                free(p);
            }
        }
    }
}
