/* dev_test.c - files through io_uring, the generic layer, faults and traces. Simulated drives have
 * dev_sim_test.c, threads dev_thread_test.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "dev/dev.h"
#include "rt/rt.h"
#include "zt.h"

enum {
    B = 4096,
    PATH_BYTES = 512
};

static void
path_in(struct zt *t, char *path, const char *name)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", zt_tmpdir(t), name);
}

static void *
blocks(struct zt *t, size_t n)
{
    void *p = ch_alloc_aligned(n * B);

    ZT_CHECK(t, p != NULL);
    return p;
}

static struct dev_req
write_req(uint64_t block, void *buf, uint32_t len, enum ch_cause cause)
{
    struct dev_req r = {.op = DEV_WRITE, .off = block * B, .len = len, .buf = buf};

    r.split[cause] = len;
    return r;
}

/* The current limit; running into the one of file size is made an error and no signal. */
static struct rlimit
rlimit_get(struct zt *t, __rlimit_resource_t what)
{
    struct rlimit l = {0};

    ZT_CHECK(t, signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ZT_CHECK(t, getrlimit(what, &l) == 0);
    return l;
}

/* Counts the messages that reach the log sink. */
static void
count_log(void *arg, enum cohort_log_level level, const char *text)
{
    (void)level;
    (void)text;
    ++*(unsigned *)arg;
}

/* ---- files ---- */

enum {
    MODEL_BLOCKS = 512,
    VECTOR_MAX = 300
};

/* One vector of disjoint requests, over several dev_submit(): reads are compared with the model,
 * the rest changes it. */
static void
random_vector(struct zt *t, struct dev *d, uint8_t *model, uint8_t *buf)
{
    static struct dev_req reqs[VECTOR_MAX];
    struct dev_queue *q = NULL;
    uint64_t block = 0;
    unsigned n = 0, sent = 0;

    while (block < MODEL_BLOCKS && n < VECTOR_MAX) {
        uint64_t len = ch_min_u64(1 + zt_below(t, 3), MODEL_BLOCKS - block);
        enum dev_op op = zt_below(t, 2) == 0   ? DEV_READ
                         : zt_below(t, 8) == 0 ? DEV_RESET
                                               : DEV_WRITE;

        reqs[n] = write_req(block, buf + block * B, (uint32_t)(len * B), CH_USER);
        reqs[n].op = op;
        if (op == DEV_WRITE) {
            ch_prng_fill(&t->rng, buf + block * B, len * B);
            memcpy(model + block * B, buf + block * B, len * B);
        } else if (op == DEV_RESET) {
            memset(model + block * B, 0, len * B);
        }
        block += len + zt_below(t, 2);
        n++;
    }
    ZT_OK(t, dev_queue_get(d, &q));
    while (sent < n) {
        unsigned some = (unsigned)(1 + zt_below(t, n - sent));

        dev_submit(q, reqs + sent, some);
        sent += some;
    }
    ZT_OK(t, dev_wait(q));
    dev_queue_put(q);
    for (unsigned i = 0; i < n; i++)
        ZT_CHECK(t, reqs[i].op != DEV_READ ||
                        memcmp(reqs[i].buf, model + reqs[i].off, reqs[i].len) == 0);
}

static void
compare_all(struct zt *t, struct dev *d, const uint8_t *model, uint8_t *buf)
{
    memset(buf, 0xee, (size_t)MODEL_BLOCKS * B);
    ZT_OK(t, dev_read(d, 0, buf, (size_t)MODEL_BLOCKS * B));
    ZT_CHECK(t, memcmp(buf, model, (size_t)MODEL_BLOCKS * B) == 0);
}

static void
run_model(struct zt *t, const char *path, unsigned flags)
{
    uint8_t *model = blocks(t, MODEL_BLOCKS), *buf = blocks(t, MODEL_BLOCKS);
    struct dev *d = NULL;

    ZT_OK(t, dev_open(path, flags | DEV_CREATE | DEV_EXCL, 0, &d));
    for (int round = 0; round < 12; round++)
        random_vector(t, d, model, buf);
    compare_all(t, d, model, buf);
    ZT_OK(t, dev_flush(d));
    dev_close(d);
    ZT_OK(t, dev_open(path, flags, 0, &d));
    compare_all(t, d, model, buf);
    dev_close(d);
    ch_free_aligned(model);
    ch_free_aligned(buf);
}

/* Goal: what was written is read, whatever the mix, beyond the depth of the ring, past the end of
 * the file and over holes. Method: random vectors against an array, reopened at the end. */
static void
test_file_matches_model(struct zt *t)
{
    char path[PATH_BYTES];

    path_in(t, path, "direct");
    run_model(t, path, 0);
    path_in(t, path, "buffered");
    run_model(t, path, DEV_BUFFERED);
}

/* Without io_uring the same holds, and exactly one notice says so. There is none when its
 * descriptor is one more than the process may have. */
static void
test_file_without_uring(struct zt *t)
{
    struct rlimit old, low;
    struct dev *d = NULL;
    struct dev_queue *q = NULL;
    uint8_t *model = blocks(t, MODEL_BLOCKS), *buf = blocks(t, MODEL_BLOCKS);
    unsigned notices = 0;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    ch_log_set(count_log, &notices);
    ZT_OK(t, dev_open(path, DEV_CREATE | DEV_BUFFERED, 0, &d));
    old = rlimit_get(t, RLIMIT_NOFILE);
    low = old;
    low.rlim_cur = (rlim_t)dup(0);
    ZT_CHECK(t, close((int)low.rlim_cur) == 0);
    ZT_CHECK(t, notices == 0 && setrlimit(RLIMIT_NOFILE, &low) == 0);
    ZT_OK(t, dev_queue_get(d, &q)); /* one of two queues without a ring */
    for (int round = 0; round < 5; round++)
        random_vector(t, d, model, buf);
    dev_queue_put(q);
    ZT_CHECK(t, setrlimit(RLIMIT_NOFILE, &old) == 0);
    ZT_OK(t, dev_flush(d));
    compare_all(t, d, model, buf);
    dev_close(d);
    ch_log_set(NULL, NULL);
    ZT_CHECK(t, notices == 1);
    ch_free_aligned(model);
    ch_free_aligned(buf);
}

/* A file may end anywhere; what lies past its end reads as zeroes, also within the last block. */
static void
test_file_odd_end(struct zt *t)
{
    uint8_t *buf = blocks(t, 4);
    struct dev *d = NULL;
    char path[PATH_BYTES];
    int fd;

    path_in(t, path, "f");
    fd = open(path, O_RDWR | O_CREAT, 0600);
    memset(buf, 0x5a, (size_t)4 * B);
    ZT_CHECK(t, fd >= 0 && write(fd, buf, 5000) == 5000);
    close(fd);
    for (int i = 0; i < 2; i++) {
        ZT_OK(t, dev_open(path, i == 0 ? 0 : DEV_BUFFERED, UINT64_C(1) << 20, &d));
        memset(buf, 0xff, (size_t)4 * B);
        ZT_OK(t, dev_read(d, 0, buf, (size_t)4 * B));
        ZT_CHECK(t, buf[0] == 0x5a && buf[4999] == 0x5a && buf[5000] == 0 && buf[4 * B - 1] == 0);
        memset(buf, 0xff, B);
        ZT_OK(t, dev_read(d, (UINT64_C(1) << 20) - B, buf, B));
        ZT_CHECK(t, buf[0] == 0 && buf[B - 1] == 0);
        ZT_CHECK(t, dev_size(d) == 5000);
        dev_close(d);
    }
    ch_free_aligned(buf);
}

/* RESET gives space back and leaves the size; allocation takes space and grows the file. */
static void
test_file_space(struct zt *t)
{
    enum {
        MIB = 1 << 20
    };
    uint8_t *buf = blocks(t, MIB / B);
    struct dev *d = NULL;
    struct stat st;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    memset(buf, 1, MIB);
    ZT_OK(t, dev_open(path, DEV_CREATE, (uint64_t)4 * MIB, &d));
    ZT_CHECK(t, dev_caps(d)->growable && dev_caps(d)->bytes == (uint64_t)4 * MIB);
    ZT_OK(t, dev_write(d, MIB, buf, MIB, CH_USER));
    ZT_OK(t, dev_flush(d));
    ZT_CHECK(t, stat(path, &st) == 0 && st.st_blocks * 512 >= MIB);
    ZT_OK(t, dev_reset(d, MIB, MIB));
    ZT_OK(t, dev_flush(d));
    ZT_CHECK(t, stat(path, &st) == 0 && st.st_blocks * 512 < MIB / 2 && st.st_size == 2 * MIB);
    ZT_OK(t, dev_read(d, MIB, buf, MIB));
    ZT_CHECK(t, buf[0] == 0 && buf[MIB - 1] == 0);
    ZT_OK(t, dev_allocate(d, (uint64_t)2 * MIB, MIB));
    ZT_CHECK(t, dev_size(d) == (uint64_t)3 * MIB);
    ZT_CHECK(t, stat(path, &st) == 0 && st.st_blocks * 512 >= MIB);
    ZT_STATUS(t, dev_allocate(d, (uint64_t)3 * MIB, (uint64_t)2 * MIB), COHORT_EFULL);
    ZT_STATUS(t, dev_write(d, (uint64_t)4 * MIB, buf, B, CH_USER), COHORT_EFULL);
    ZT_STATUS(t, dev_read(d, (uint64_t)4 * MIB - B, buf, (size_t)2 * B), COHORT_EIO);
    ZT_CHECK(t, dev_size(d) == (uint64_t)3 * MIB);
    dev_close(d);
    ch_free_aligned(buf);
}

/* The kernel itself refuses to grow the file: no-space, with its errno, and only for the request
 * that it hit. */
static void
test_file_full(struct zt *t)
{
    struct rlimit old, low;
    uint8_t *buf = blocks(t, 1);
    struct dev_req reqs[3];
    struct dev *d = NULL;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    old = rlimit_get(t, RLIMIT_FSIZE);
    low = old;
    low.rlim_cur = 8 * B;
    ZT_OK(t, dev_open(path, DEV_CREATE, 0, &d));
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &low) == 0);
    reqs[0] = write_req(1, buf, B, CH_USER);
    reqs[1] = write_req(8, buf, B, CH_USER);
    reqs[2] = write_req(2, buf, B, CH_USER);
    ZT_STATUS(t, dev_io(d, reqs, 3), COHORT_EFULL);
    ZT_CHECK(t, ch_last_error()->sys_errno == EFBIG);
    ZT_CHECK(t, reqs[0].rc == 0 && reqs[1].rc == COHORT_EFULL && reqs[2].rc == 0);
    ZT_STATUS(t, dev_allocate(d, 0, 9 * B), COHORT_EFULL);
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &old) == 0);
    ZT_OK(t, dev_write(d, 8 * B, buf, B, CH_USER));
    dev_close(d);
    ch_free_aligned(buf);
}

/* A limit in the middle of a block makes the kernel write less than was asked for: the rest is
 * tried and only then is the request an error. */
static void
test_file_short_write(struct zt *t)
{
    struct rlimit old, low;
    uint8_t *buf = blocks(t, 4);
    struct dev *d = NULL;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    memset(buf, 3, (size_t)4 * B);
    old = rlimit_get(t, RLIMIT_FSIZE);
    low = old;
    low.rlim_cur = 2 * B + 100;
    ZT_OK(t, dev_open(path, DEV_CREATE | DEV_BUFFERED, 0, &d));
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &low) == 0);
    ZT_STATUS(t, dev_write(d, 0, buf, (size_t)4 * B, CH_USER), COHORT_EFULL);
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &old) == 0);
    ZT_CHECK(t, dev_size(d) == 2 * B + 100);
    ZT_OK(t, dev_read(d, 0, buf, (size_t)4 * B));
    ZT_CHECK(t, buf[2 * B + 99] == 3 && buf[2 * B + 100] == 0);
    dev_close(d);
    ch_free_aligned(buf);
}

static void
test_file_open_errors(struct zt *t)
{
    uint8_t *buf = blocks(t, 1);
    struct dev *d = NULL, *second = NULL;
    char path[PATH_BYTES], dir[PATH_BYTES];

    (void)snprintf(dir, sizeof(dir), "%s", zt_tmpdir(t));
    (void)snprintf(path, sizeof(path), "%.400s/f", dir);
    ZT_STATUS(t, dev_open(path, 0, 0, &d), COHORT_ENODB);
    ZT_STATUS(t, dev_open(dir, 0, 0, &d), COHORT_EINVAL);
    ZT_OK(t, dev_open(path, DEV_CREATE | DEV_EXCL, 0, &d));
    ZT_STATUS(t, dev_open(path, DEV_CREATE | DEV_EXCL, 0, &second), COHORT_EXISTS);
    ZT_STATUS(t, dev_open(path, 0, 0, &second), COHORT_EBUSY);
    ZT_STATUS(t, dev_open(path, DEV_CREATE | DEV_READONLY, 0, &second), COHORT_EBUSY);
    ZT_OK(t, dev_write(d, 0, buf, B, CH_META));
    dev_close(d);
    ZT_OK(t, dev_open(path, DEV_READONLY, 0, &d));
    ZT_OK(t, dev_read(d, 0, buf, B));
    ZT_STATUS(t, dev_write(d, 0, buf, B, CH_META), COHORT_EIO);
    ZT_CHECK(t, ch_last_error()->sys_errno == EROFS);
    ZT_STATUS(t, dev_reset(d, 0, B), COHORT_EIO);
    ZT_STATUS(t, dev_allocate(d, 0, B), COHORT_EIO);
    dev_close(d);
    dev_close(NULL);
    ZT_CHECK(t, second == NULL);
    ch_free_aligned(buf);
}

/* ---- generic ---- */

/* More dev_submit() than a queue keeps: it waits by itself, and the first error is still
 * reported. */
static void
test_many_submits(struct zt *t)
{
    enum {
        SUBMITS = 50
    };
    struct dev_fault_plan plan = {.fail_nth[DEV_WRITE] = 3, .code = COHORT_EFULL};
    struct dev_req reqs[SUBMITS];
    struct dev_queue *q = NULL;
    uint8_t *buf = blocks(t, SUBMITS);
    struct dev *inner = NULL, *d = NULL;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    ZT_OK(t, dev_open(path, DEV_CREATE, 0, &inner));
    ZT_OK(t, dev_fault_open(inner, &plan, &d));
    ZT_OK(t, dev_queue_get(d, &q));
    for (unsigned i = 0; i < SUBMITS; i++) {
        memset(buf + (size_t)i * B, (int)i + 1, B);
        reqs[i] = write_req(i, buf + (size_t)i * B, B, CH_USER);
        dev_submit(q, &reqs[i], 1);
    }
    ZT_STATUS(t, dev_wait(q), COHORT_EFULL);
    ZT_OK(t, dev_wait(q)); /* nothing is left of it */
    dev_queue_put(q);
    ZT_OK(t, dev_read(d, 0, buf, (size_t)SUBMITS * B));
    for (unsigned i = 0; i < SUBMITS; i++) {
        ZT_CHECK(t, reqs[i].rc == (i == 2 ? COHORT_EFULL : 0));
        ZT_CHECK(t, buf[(size_t)i * B] == (i == 2 ? 0 : i + 1));
    }
    dev_close(d);
    ch_free_aligned(buf);
}

/* Every byte by its cause, failed writes included; requests by kind. */
static void
test_counts(struct zt *t)
{
    struct dev_fault_plan plan = {.fail_nth[DEV_WRITE] = 2, .code = COHORT_EIO};
    uint8_t *buf = blocks(t, 4);
    struct dev *inner = NULL, *d = NULL;
    struct dev_req r = write_req(0, buf, 4 * B, CH_USER);
    struct dev_counts c;
    uint64_t host, media;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    ZT_OK(t, dev_open(path, DEV_CREATE, 0, &inner));
    ZT_OK(t, dev_fault_open(inner, &plan, &d));
    r.split[CH_USER] = 10000;
    r.split[CH_PAD] = 4 * B - 10000;
    ZT_OK(t, dev_io(d, &r, 1));
    ZT_STATUS(t, dev_write(d, 0, buf, B, CH_WAL), COHORT_EIO);
    ZT_OK(t, dev_read(d, 0, buf, (size_t)2 * B));
    ZT_OK(t, dev_flush(d));
    ZT_OK(t, dev_reset(d, 0, B));
    dev_counts(d, &c);
    ZT_CHECK(t, c.written[CH_USER] == 10000 && c.written[CH_PAD] == 4 * B - 10000);
    ZT_CHECK(t, c.written[CH_WAL] == B && c.host_bytes == 5 * B);
    ZT_CHECK(t, c.reads == 1 && c.read_bytes == 2 * B && c.writes == 2);
    ZT_CHECK(t, c.flushes == 1 && c.resets == 1);
    dev_physical(d, &host, &media);
    ZT_CHECK(t, host == COHORT_UNKNOWN && media == COHORT_UNKNOWN);
    dev_close(d);
    ch_free_aligned(buf);
}

/* A ticket is good only once a flush that started after it was taken has succeeded. */
static void
test_flush_tickets(struct zt *t)
{
    struct dev_fault_plan plan = {.fail_nth[DEV_FLUSH] = 2, .code = COHORT_EIO};
    struct dev_req flush = {.op = DEV_FLUSH};
    struct dev *inner = NULL, *d = NULL;
    struct dev_queue *q = NULL;
    uint64_t before, during;
    char path[PATH_BYTES];

    path_in(t, path, "f");
    ZT_OK(t, dev_open(path, DEV_CREATE, 0, &inner));
    ZT_OK(t, dev_fault_open(inner, &plan, &d));
    ZT_OK(t, dev_queue_get(d, &q));
    before = dev_flush_ticket(d);
    ZT_CHECK(t, dev_flush_done(d) < before);
    dev_submit(q, &flush, 1);
    during = dev_flush_ticket(d);
    ZT_OK(t, dev_wait(q));
    ZT_CHECK(t, dev_flush_done(d) >= before && dev_flush_done(d) < during);
    dev_submit(q, &flush, 1);
    ZT_STATUS(t, dev_wait(q), COHORT_EIO);
    ZT_CHECK(t, dev_flush_done(d) < during);
    ZT_OK(t, dev_flush(d));
    ZT_CHECK(t, dev_flush_done(d) >= during);
    dev_queue_put(q);
    dev_close(d);
}

/* ---- faults ---- */

static int
one_request(struct dev *d, enum dev_op op, uint8_t *buf)
{
    struct dev_req r = {.op = op, .len = op == DEV_FLUSH ? 0 : (size_t)2 * B, .buf = buf};

    if (op == DEV_WRITE)
        r.split[CH_USER] = 2 * B;
    return dev_io(d, &r, 1);
}

/* For every op: exactly the n-th fails, or it and all later ones; the others pass. */
static void
test_fault_nth(struct zt *t)
{
    static const enum dev_op OPS[] = {DEV_READ, DEV_WRITE, DEV_FLUSH, DEV_RESET};
    struct dev_fault_plan plan = {0};
    uint8_t *buf = blocks(t, 2);
    struct dev *inner = NULL, *d = NULL;

    ZT_OK(t, dev_open("sim:bytes=1M,superblock=64K", 0, 0, &inner));
    ZT_OK(t, dev_fault_open(inner, &plan, &d));
    for (size_t o = 0; o < CH_ARRAY_LEN(OPS); o++) {
        for (int forever = 0; forever < 2; forever++) {
            memset(&plan, 0, sizeof(plan));
            plan.fail_nth[OPS[o]] = 3;
            plan.fail_forever = forever;
            plan.code = forever ? COHORT_EFULL : COHORT_EIO;
            dev_fault_set(d, &plan);
            for (int i = 1; i <= 6; i++) {
                bool fails = i == 3 || (i > 3 && forever);
                int code = OPS[o] == DEV_READ ? COHORT_EIO : plan.code;

                ZT_STATUS(t, one_request(d, OPS[o], buf), fails ? code : 0);
                ZT_OK(t, one_request(d, OPS[(o + 1) % CH_ARRAY_LEN(OPS)], buf));
            }
            ZT_CHECK(t, dev_fault_seen(d, OPS[o]) == 6);
        }
    }
    dev_close(d);
    ch_free_aligned(buf);
}

/* A short write leaves its first block and fails. Lost power leaves nothing from the n-th write on,
 * within one vector too. */
static void
test_fault_short_and_stop(struct zt *t)
{
    struct dev_fault_plan plan = {.short_nth = 2};
    uint8_t *buf = blocks(t, 4), *back = blocks(t, 8);
    struct dev *inner = NULL, *d = NULL;
    struct dev_req reqs[4];
    struct dev_counts c;

    ZT_OK(t, dev_open("sim:bytes=1M,superblock=64K", 0, 0, &inner));
    ZT_OK(t, dev_fault_open(inner, &plan, &d));
    memset(buf, 7, (size_t)4 * B);
    ZT_OK(t, dev_write(d, 0, buf, (size_t)2 * B, CH_USER));
    ZT_STATUS(t, dev_write(d, 2 * B, buf, (size_t)2 * B, CH_USER), COHORT_EIO);
    ZT_OK(t, dev_read(d, 0, back, (size_t)4 * B));
    ZT_CHECK(t, back[2 * B - 1] == 7 && back[3 * B - 1] == 7 && back[3 * B] == 0);
    plan = (struct dev_fault_plan){.stop_after_writes = 3, .slow_ns = 1000};
    dev_fault_set(d, &plan);
    for (unsigned i = 0; i < 4; i++)
        reqs[i] = write_req(4 + i, buf, B, CH_USER);
    ZT_STATUS(t, dev_io(d, reqs, 4), COHORT_EIO);
    ZT_CHECK(t, reqs[0].rc == 0 && reqs[1].rc == 0);
    ZT_CHECK(t, reqs[2].rc == COHORT_EIO && reqs[3].rc == COHORT_EIO);
    for (int op = DEV_READ; op <= DEV_RESET; op++)
        ZT_CHECK(t, op == DEV_APPEND || one_request(d, (enum dev_op)op, buf) == COHORT_EIO);
    ZT_STATUS(t, dev_allocate(d, 0, B), COHORT_EIO);
    dev_counts(inner, &c);
    ZT_CHECK(t, c.writes == 1 + 1 + 2 && c.flushes == 0 && c.resets == 0);
    plan = (struct dev_fault_plan){0};
    dev_fault_set(d, &plan);
    ZT_OK(t, dev_read(d, 0, back, (size_t)8 * B));
    ZT_CHECK(t, back[0] == 7 && back[6 * B - 1] == 7 && back[6 * B] == 0);
    dev_close(d);
    ch_free_aligned(buf);
    ch_free_aligned(back);
}

/* ---- trace ---- */

static void
check_record(struct zt *t, const uint8_t *p, const struct dev_req *r, uint8_t cause, uint8_t flags)
{
    ZT_CHECK(t, ch_get64(p + 8) == r->off && ch_get32(p + 16) == r->len);
    ZT_CHECK(t, p[20] == r->op && p[21] == r->stream && p[22] == cause && p[23] == flags);
    ZT_CHECK(t, ch_get64(p + 24) == 0);
}

/* The file says what was written, in order, reads left out. */
static void
test_trace_reads_back(struct zt *t)
{
    enum {
        N = 5,
        MANY = 2000
    };
    uint8_t *buf = blocks(t, 4);
    struct dev_req reqs[N];
    struct dev *inner = NULL, *d = NULL;
    uint8_t rec[32];
    uint64_t now = rt_now_ns(), last = 0;
    char path[PATH_BYTES];
    FILE *f;

    path_in(t, path, "trace");
    ZT_OK(t, dev_open("sim:bytes=16M", 0, 0, &inner));
    ZT_OK(t, dev_trace_open(inner, path, &d));
    reqs[0] = write_req(3, buf, 2 * B, CH_GC);
    reqs[0].stream = 9;
    reqs[1] = (struct dev_req){.op = DEV_READ, .len = B, .buf = buf};
    reqs[2] = write_req(9, buf, 4 * B, CH_META);
    reqs[2].split[CH_META] = 4;
    reqs[2].split[CH_PAD] = 4 * B - 4;
    reqs[3] = (struct dev_req){.op = DEV_FLUSH};
    reqs[4] = (struct dev_req){.op = DEV_RESET, .off = 8 * B, .len = 8 * B};
    ZT_OK(t, dev_io(d, reqs, N));
    for (int i = 0; i < MANY; i++)
        ZT_OK(t, dev_write(d, (uint64_t)(i % 100) * B, buf, B, CH_WAL));
    dev_close(d);
    f = fopen(path, "rb");
    ZT_CHECK(t, f != NULL && fread(rec, sizeof(rec), 1, f) == 1);
    ZT_CHECK(t, memcmp(rec, "COHTRACE", 8) == 0 && ch_get32(rec + 8) == 1);
    ZT_CHECK(t, ch_get32(rec + 12) == B && ch_get64(rec + 16) == 16 << 20);
    ZT_CHECK(t, fread(rec, sizeof(rec), 1, f) == 1);
    check_record(t, rec, &reqs[0], CH_GC, 0);
    ZT_CHECK(t, ch_get64(rec) >= now && fread(rec, sizeof(rec), 1, f) == 1);
    check_record(t, rec, &reqs[2], CH_PAD, 1);
    ZT_CHECK(t, fread(rec, sizeof(rec), 1, f) == 1);
    check_record(t, rec, &reqs[3], 255, 1);
    ZT_CHECK(t, fread(rec, sizeof(rec), 1, f) == 1);
    check_record(t, rec, &reqs[4], 255, 1);
    for (int i = 0; i < MANY; i++) {
        struct dev_req r = write_req((uint64_t)i % 100, buf, B, CH_WAL);

        ZT_CHECK(t, fread(rec, sizeof(rec), 1, f) == 1);
        check_record(t, rec, &r, CH_WAL, 0);
        ZT_CHECK(t, ch_get64(rec) >= last);
        last = ch_get64(rec);
    }
    ZT_CHECK(t, fread(rec, 1, 1, f) == 0);
    (void)fclose(f);
    ch_free_aligned(buf);
}

/* A trace that can't be started is an error that leaves the inner device with the caller; one that
 * can't go on ends with one warning and disturbs nothing. */
static void
test_trace_failures(struct zt *t)
{
    uint8_t *buf = blocks(t, 1);
    struct dev *inner = NULL, *d = NULL;
    unsigned warnings = 0;
    struct rlimit old, low;
    char path[PATH_BYTES];

    ZT_OK(t, dev_open("sim:bytes=1M,superblock=64K", 0, 0, &inner));
    ZT_STATUS(t, dev_trace_open(inner, "/nonexistent/dir/trace", &d), COHORT_EIO);
    ZT_STATUS(t, dev_trace_open(inner, "/dev/full", &d), COHORT_EFULL);
    path_in(t, path, "trace");
    ZT_OK(t, dev_trace_open(inner, path, &d));
    old = rlimit_get(t, RLIMIT_FSIZE);
    low = old;
    low.rlim_cur = 20000;
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &low) == 0);
    ch_log_set(count_log, &warnings);
    for (int i = 0; i < 3000; i++)
        ZT_OK(t, dev_write(d, 0, buf, B, CH_WAL));
    dev_close(d);
    ch_log_set(NULL, NULL);
    ZT_CHECK(t, setrlimit(RLIMIT_FSIZE, &old) == 0 && warnings == 1);
    ch_free_aligned(buf);
}

static const struct zt_case CASES[] = {
    {"file_matches_model", test_file_matches_model, 6},
    {"file_without_uring", test_file_without_uring, 3},
    {"file_odd_end", test_file_odd_end, 1},
    {"file_space", test_file_space, 1},
    {"file_full", test_file_full, 1},
    {"file_short_write", test_file_short_write, 1},
    {"file_open_errors", test_file_open_errors, 1},
    {"many_submits", test_many_submits, 1},
    {"counts", test_counts, 1},
    {"flush_tickets", test_flush_tickets, 1},
    {"fault_nth", test_fault_nth, 1},
    {"fault_short_and_stop", test_fault_short_and_stop, 1},
    {"trace_reads_back", test_trace_reads_back, 1},
    {"trace_failures", test_trace_failures, 1},
};

int
main(int argc, char **argv)
{
    return zt_main(argc, argv, "dev", CASES, CH_ARRAY_LEN(CASES));
}
