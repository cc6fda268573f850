/* readtest.c - random reads of a device by size, alignment and queue depth: the paper's FIO figure.
 *
 * The paper reads 512 B to 64 KiB and finds that what counts is how many 4 KiB blocks a read touches; hence its
 * rule, and ours, that no compressed page crosses a block. Cells:
 *
 *     aligned    at multiples of the size, or of 4 KiB when it is larger
 *     crossing   at the same places less half a block (less half the size where that is smaller): one block
 *                boundary more than it need be; 512 B cannot cross
 *
 * Read only, past the page cache; io_uring, one thread. Numbers of a file depend on the file system too.
 */
#include "bench/readtest.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "rt/rt.h"

enum {
    SECTOR = 512,
    BYTES_MAX = 65536
};

struct reader {
    struct io_uring ring;
    int fd;
    uint64_t bytes; /* of the device or file */
    uint8_t *buf;   /* READTEST_DEPTH_MAX x BYTES_MAX */
    struct ch_prng rng;
    uint64_t started[READTEST_DEPTH_MAX];
    struct readtest_cell *cell;
};

static uint64_t
draw_offset(struct reader *r)
{
    uint64_t grid = ch_min_u64(r->cell->bytes, CH_PAGE_BYTES);
    uint64_t places = (r->bytes - BYTES_MAX) / CH_PAGE_BYTES, at;

    at = (1 + ch_prng_below(&r->rng, places - 1)) * CH_PAGE_BYTES;
    if (r->cell->crossing)
        return at - ch_max_u64(grid / 2, SECTOR);
    return at + ch_prng_below(&r->rng, CH_PAGE_BYTES / grid) * grid;
}

static int
start_read(struct reader *r, unsigned slot)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

    if (sqe == NULL)
        return CH_FAIL(COHORT_EIO, "io_uring: no entry");
    io_uring_prep_read(sqe, r->fd, r->buf + (size_t)slot * BYTES_MAX, r->cell->bytes,
                       draw_offset(r));
    sqe->user_data = slot;
    r->started[slot] = rt_now_ns();
    return 0;
}

/* *again: its slot reads on. */
static int
finish_read(struct reader *r, bool again)
{
    struct io_uring_cqe *cqe = NULL;
    unsigned slot;
    int n, rc = io_uring_submit_and_wait(&r->ring, 1);

    if (rc >= 0)
        rc = io_uring_wait_cqe(&r->ring, &cqe);
    if (rc < 0) {
        errno = -rc;
        return CH_FAIL(COHORT_EIO, "io_uring");
    }
    slot = (unsigned)cqe->user_data;
    n = cqe->res;
    io_uring_cqe_seen(&r->ring, cqe);
    if (n == -EINVAL)
        r->cell->refused = true;
    else if (n != (int)r->cell->bytes) {
        errno = n < 0 ? -n : 0;
        return CH_FAIL(COHORT_EIO, "read of %u bytes: %d", r->cell->bytes, n);
    }
    ch_hist_add(&r->cell->latency, rt_now_ns() - r->started[slot]);
    r->cell->reads++;
    return again && !r->cell->refused ? start_read(r, slot) : 0;
}

static int
run_cell(struct reader *r, double seconds)
{
    struct readtest_cell *cell = r->cell;
    uint64_t start = rt_now_ns(), end = start + (uint64_t)(seconds * 1e9);
    unsigned flying = 0;
    int rc = 0;

    for (; flying < cell->depth && rc == 0; flying++)
        rc = start_read(r, flying);
    while (flying > 0 && rc == 0) {
        bool again = rt_now_ns() < end;

        rc = finish_read(r, again);
        if (!again || cell->refused)
            flying--;
    }
    cell->seconds = (double)(rt_now_ns() - start) / 1e9;
    return rc;
}

static int
open_target(struct reader *r, const char *path)
{
    off_t end;

    r->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (r->fd < 0)
        return CH_FAIL(COHORT_EIO, "%s", path);
    end = lseek(r->fd, 0, SEEK_END); /* of block devices too */
    if (end < 0)
        return CH_FAIL(COHORT_EIO, "%s: size", path);
    r->bytes = (uint64_t)end;
    if (r->bytes < 64 * (uint64_t)BYTES_MAX)
        return CH_FAIL(COHORT_EINVAL, "%s: %llu bytes are too few to read at random", path,
                       (unsigned long long)r->bytes);
    return 0;
}

int
readtest_run(const char *path, const struct readtest_config *c, struct readtest_cell *cells,
             size_t *count)
{
    static const uint32_t sizes[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
    static const uint32_t depths[] = {1, 4, 16, 64, 256};
    struct reader r = {.fd = -1};
    bool ring = false;
    int rc = open_target(&r, path);

    *count = 0;
    if (rc == 0 &&
        posix_memalign((void **)&r.buf, CH_PAGE_BYTES, (size_t)READTEST_DEPTH_MAX * BYTES_MAX) != 0)
        rc = CH_FAIL(COHORT_ENOMEM, "buffers");
    if (rc == 0) {
        errno = -io_uring_queue_init(READTEST_DEPTH_MAX, &r.ring, 0);
        ring = errno == 0;
        rc = ring ? 0 : CH_FAIL(COHORT_EIO, "io_uring");
    }
    ch_prng_init(&r.rng, c->seed);
    for (size_t i = 0; i < CH_ARRAY_LEN(sizes) * CH_ARRAY_LEN(depths) * 2 && rc == 0; i++) {
        uint32_t bytes = sizes[i / 2 / CH_ARRAY_LEN(depths)];

        if (bytes == SECTOR && i % 2 == 1)
            continue;
        r.cell = &cells[(*count)++];
        *r.cell = (struct readtest_cell){
            .bytes = bytes, .depth = depths[i / 2 % CH_ARRAY_LEN(depths)], .crossing = i % 2 == 1};
        rc = run_cell(&r, c->seconds);
    }
    if (ring)
        io_uring_queue_exit(&r.ring);
    if (r.fd >= 0)
        close(r.fd);
    free(r.buf);
    return rc;
}
