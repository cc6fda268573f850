/* history_check_test.c - the checker of histories, on histories made by hand: it finds each anomaly, and nothing in good ones.
 *
 * A history is written as words; the place of a word is its time. N is the number of a transaction:
 *
 *     Nb Nc Na       begins, commits, aborts
 *     N+K:I          appends id I to list K            N?K:I,I,..   reads list K
 *     NwK:I          writes id I to register K         NrK:I        reads register K; 0 = never written
 *     N<J            rolls back to what its first J operations were
 */
#include "isolation/history.h"
#include "zt.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TXNS = 10
};

struct example {
    const char *name;
    enum hist_anomaly want;
    const char *words;
};

static const struct example examples[] = {
    {"nothing", HIST_FINE, ""},
    {"serial", HIST_FINE,
     "1b 1?0: 1+0:1 1c 2b 2?0:1 2+0:2 2?0:1,2 2c 3b 3?0:1,2 3r0:0 3w0:7 3r0:7 3c 4b 4r0:7 4c"},
    {"overlapping, first wins", HIST_FINE,
     "1b 2b 1?0: 2?0: 2r1:0 1+0:1 1w1:5 1c 2c 3b 3?0:1 3r1:5 3c"},
    {"aborted ones leave nothing", HIST_FINE, "1b 1?0: 1+0:1 1w0:2 1a 2b 2?0: 2r0:0 2c"},
    {"rolled back to a savepoint", HIST_FINE,
     "1b 1+0:1 1+0:2 1w0:3 1<1 1?0:1 1r0:0 1c 2b 2?0:1 2r0:0 2c"},
    {"own write not seen", HIST_INTERNAL, "1b 1+0:1 1?0: 1c"},
    {"own register not seen", HIST_INTERNAL, "1b 1w0:1 1r0:0 1c"},
    {"not repeatable", HIST_INTERNAL, "1b 1?0: 2b 2+0:1 2c 1?0:1 1c"},
    {"not repeatable, register", HIST_INTERNAL, "1b 1r0:0 2b 2w0:1 2c 1r0:1 1c"},
    {"read from nowhere", HIST_GARBAGE, "1b 1?0:9 1c"},
    {"register from nowhere", HIST_GARBAGE, "1b 1r0:9 1c"},
    {"of another list", HIST_GARBAGE, "1b 1+1:1 1c 2b 2?0:1 2c"},
    {"two orders", HIST_GARBAGE, "1b 1+0:1 1c 2b 2+0:2 2c 3b 3?0:1,2 3c 4b 4?0:2,1 4c"},
    {"G1a", HIST_G1A, "1b 1+0:1 1a 2b 2?0:1 2c"},
    {"G1a, register", HIST_G1A, "1b 1w0:1 2b 2r0:1 2c 1a"},
    {"G1a, rolled back", HIST_G1A, "1b 1+0:1 1<0 1c 2b 2?0:1 2c"},
    {"G1b", HIST_G1B, "1b 2b 1+0:1 2?0:1 1+0:2 1c 2c"},
    {"G1b, register", HIST_G1B, "1b 2b 1w0:1 2r0:1 1w0:2 1c 2c"},
    {"lost update", HIST_LOST, "1b 2b 1?0: 2?0: 1+0:1 2+0:2 1c 2c 3b 3?0:2 3c"},
    {"lost update, register", HIST_LOST, "1b 2b 1r0:0 2r0:0 1w0:1 2w0:2 1c 2c"},
    {"lost append", HIST_LOST, "1b 1+0:1 1c 2b 2?0: 2c"},
    {"G0", HIST_G0, "1b 2b 1+0:1 2+0:2 2+1:3 1+1:4 1c 2c 3b 3?0:1,2 3?1:3,4 3c"},
    {"G1c", HIST_G1C, "1b 2b 1+0:1 2+1:2 1?1:2 2?0:1 1c 2c 3b 3?0:1 3?1:2 3c"},
    {"G1c, registers", HIST_G1C, "1b 2b 1w0:1 2w1:2 1r1:2 2r0:1 1c 2c"},
    {"G1c, three", HIST_G1C, "1b 2b 3b 1+0:1 2+1:2 3w2:3 2?0:1 3?1:2 1r2:3 1c 2c 3c"},
    {"later one first in the list", HIST_STALE, "1b 1+0:1 1c 2b 2+0:2 2c 3b 3?0:2,1 3c"},
    {"stale read", HIST_G_SINGLE, "3b 1b 1+0:1 1c 2b 2?0: 2c 3?0:1 3c"},
    {"stale register", HIST_G_SINGLE, "1b 1w0:1 1c 2b 2r0:0 2c"},
    {"stale read of an aborted one", HIST_G_SINGLE, "1b 1w0:1 1c 2b 2r0:0 2a"},
    {"read skew", HIST_G_SINGLE, "1b 1?0: 2b 2+0:1 2+1:2 2c 1?1:2 1c 3b 3?0:1 3?1:2 3c"},
    {"read skew, aborted reader", HIST_G_SINGLE,
     "1b 1?0: 2b 2+0:1 2+1:2 2c 1?1:2 1a 3b 3?0:1 3?1:2 3c"},
    {"read skew, registers", HIST_G_SINGLE, "1b 1r0:0 2b 2w0:1 2w1:2 2c 1r1:2 1c"},
    {"read skew, known by reading first", HIST_G_SINGLE,
     "0b 0w0:9 0w1:8 0c 1b 1r0:9 2b 2r0:9 2w0:1 2r1:8 2w1:2 2c 1r1:2 1c"},
    {"lost update seen in the list", HIST_G_SINGLE,
     "1b 2b 1?0: 2?0: 1+0:1 2+0:2 1c 2c 3b 3?0:1,2 3c"},
    {"long fork", HIST_G_APART,
     "1b 2b 3b 4b 1+0:1 2+1:2 1c 2c 3?0:1 3?1: 4?0: 4?1:2 3c 4c 5b 5?0:1 5?1:2 5c"},
    {"write skew", HIST_G2, "1b 2b 1?0: 1?1: 2?0: 2?1: 1+0:1 2+1:2 1c 2c 3b 3?0:1 3?1:2 3c"},
    {"write skew, registers", HIST_G2, "1b 2b 1r0:0 1r1:0 2r0:0 2r1:0 1w0:1 2w1:2 1c 2c"},
    {"write skew of which one aborted", HIST_FINE,
     "1b 2b 1r0:0 1r1:0 2r0:0 2r1:0 1w0:1 2w1:2 1c 2a"},
    {"write skew of three", HIST_G2, "1b 2b 3b 1r0:0 2r1:0 3r2:0 1w1:1 2w2:2 3w0:3 1c 2c 3c"},
    {"read-only one in between", HIST_G2,
     "1b 1?0: 1?1: 2b 2?1: 2+1:2 2c 3b 3?0: 3?1:2 3c 1+0:1 1c 4b 4?0:1 4?1:2 4c"},
    {"worse one is named first", HIST_G1A,
     "1b 2b 1r0:0 1r1:0 2r0:0 2r1:0 1w0:1 2w1:2 1c 2c 3b 3w5:9 3a 4b 4r5:9 4c"},
};

/* ---- reading the words ---- */

static uint32_t
number(struct zt *t, const char **at)
{
    char *end;
    unsigned long n = strtoul(*at, &end, 10);

    ZT_CHECK(t, end != *at);
    *at = end;
    return (uint32_t)n;
}

/* K:I,I,.. */
static void
object(struct zt *t, struct hist_draft *d, char what, const char *at)
{
    uint32_t key = number(t, &at), ids[16], count = 0;

    ZT_CHECK(t, *at == ':');
    for (at++; *at >= '0' && *at <= '9' && count < CH_ARRAY_LEN(ids); at += *at == ',')
        ids[count++] = number(t, &at);
    if (what == '?') {
        hist_list(d, key, ids, count);
        return;
    }
    ZT_CHECK(t, count == 1);
    if (what == '+')
        hist_append(d, key, ids[0]);
    else if (what == 'w')
        hist_write(d, key, ids[0]);
    else
        hist_read(d, key, ids[0]);
}

static void
read_word(struct zt *t, struct hist *h, struct hist_draft *drafts, const char *word, uint64_t now)
{
    struct hist_draft *d;

    ZT_CHECK(t, word[0] >= '0' && word[0] <= '9');
    d = &drafts[word[0] - '0'];
    if (word[1] == 'b')
        hist_draft_begin(d, now);
    else if (word[1] == 'c' || word[1] == 'a')
        hist_end(h, d, now, word[1] == 'c');
    else if (word[1] == '<')
        hist_rollback(h, d, (unsigned)(word[2] - '0'));
    else
        object(t, d, word[1], word + 2);
}

static void
read_history(struct zt *t, struct hist *h, const char *words)
{
    struct hist_draft *drafts = calloc(TXNS, sizeof(*drafts));
    char word[32];

    ZT_CHECK(t, drafts != NULL);
    for (uint64_t now = 1; *words != '\0'; now++) {
        size_t n = strcspn(words, " ");

        ZT_CHECK(t, n > 1 && n < sizeof(word));
        memcpy(word, words, n);
        word[n] = '\0';
        words += n + (words[n] == ' ');
        read_word(t, h, drafts, word, now);
    }
    for (int i = 0; i < TXNS; i++)
        hist_draft_free(&drafts[i]);
    free(drafts);
}

/* Goal: each anomaly is found and rightly named, good histories pass. */
static void
test_examples(struct zt *t)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(examples); i++) {
        struct hist h = {0}, merged = {0};
        struct hist_result r;

        read_history(t, &h, examples[i].words);
        hist_check(&h, &r);
        if (r.worst != examples[i].want)
            (void)fprintf(stderr, "%s: %s instead of %s: %s\n", examples[i].name,
                          hist_name(r.worst), hist_name(examples[i].want), r.text);
        ZT_CHECK(t, r.worst == examples[i].want);
        ZT_CHECK(t, (r.text[0] != '\0') == (r.worst != HIST_FINE));
        hist_merge(&merged, &h); /* says the same */
        hist_check(&merged, &r);
        ZT_CHECK(t, r.worst == examples[i].want);
        hist_free(&merged);
    }
}

/* ---- random serial histories ---- */

enum {
    SERIAL_TXNS = 60,
    SERIAL_KEYS = 5,
};
struct serial {
    uint32_t lists[SERIAL_KEYS][SERIAL_TXNS * 4], counts[SERIAL_KEYS], registers[SERIAL_KEYS];
    uint32_t next_id;
};

static void
serial_op(struct zt *t, struct serial *s, struct hist_draft *d)
{
    uint32_t key = (uint32_t)zt_below(t, SERIAL_KEYS);

    switch (zt_below(t, 4)) {
    case 0:
        s->lists[key][s->counts[key]++] = s->next_id;
        hist_append(d, key, s->next_id++);
        break;
    case 1:
        s->registers[key] = s->next_id;
        hist_write(d, key, s->next_id++);
        break;
    case 2:
        hist_list(d, key, s->lists[key], s->counts[key]);
        break;
    default:
        hist_read(d, key, s->registers[key]);
    }
}

static void
serial_history(struct zt *t, struct hist *h)
{
    struct serial *s = calloc(1, sizeof(*s)), *before = calloc(1, sizeof(*s));
    struct hist_draft d = {0};

    ZT_CHECK(t, s != NULL && before != NULL);
    s->next_id = 1;
    for (unsigned n = 0; n < SERIAL_TXNS; n++) {
        bool commit = zt_below(t, 5) > 0;
        uint32_t next;

        *before = *s;
        hist_draft_begin(&d, n * 2 + 1);
        for (uint64_t i = zt_below(t, 5); i > 0; i--)
            serial_op(t, s, &d);
        hist_end(h, &d, n * 2 + 2, commit);
        next = s->next_id;
        if (!commit)
            *s = *before;
        s->next_id = next;
    }
    hist_draft_begin(&d, SERIAL_TXNS * 2 + 1);
    for (uint32_t key = 0; key < SERIAL_KEYS; key++)
        hist_list(&d, key, s->lists[key], s->counts[key]);
    hist_end(h, &d, SERIAL_TXNS * 2 + 2, true);
    hist_draft_free(&d);
    free(s);
    free(before);
}

/* Goal: serial histories are fine; with one read spoilt they are not. */
static void
test_serial(struct zt *t)
{
    struct hist h = {0};
    struct hist_result r;
    struct hist_op *op;

    serial_history(t, &h);
    hist_check(&h, &r);
    if (r.worst != HIST_FINE)
        (void)fprintf(stderr, "%s: %s\n", hist_name(r.worst), r.text);
    ZT_CHECK(t, r.worst == HIST_FINE && r.edges > 0);
    do {
        op = &h.ops[zt_below(t, h.op_count)];
    } while (op->kind != HIST_LIST || op->count == 0);
    op->count--;
    hist_check(&h, &r);
    ZT_CHECK(t, r.worst != HIST_FINE);
    op->count++;
    h.ids[op->first + zt_below(t, op->count)] += 1000;
    hist_check(&h, &r);
    ZT_CHECK(t, r.worst == HIST_GARBAGE || r.worst == HIST_INTERNAL);
    hist_free(&h);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"examples", test_examples, 1},
        {"serial", test_serial, 300},
    };

    return zt_main(argc, argv, "history_check", cases, CH_ARRAY_LEN(cases));
}
