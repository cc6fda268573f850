/* cat_check_test.c - cat_check() finds what does not fit together. */
#include "cat/cat_test_rig.h"

/* Tree "a", whose key "k" has large value 1: pieces 0 .. 2. */
static struct reg_tree *
make_tree(struct world *w)
{
    struct txn *x = world_begin(w);
    struct reg_tree *a = NULL;
    uint8_t v[5000];

    fill(v, 1, 0, sizeof(v));
    ZT_OK(w->t, cat_open(w->cat, x, str("a"), COHORT_TREE_CREATE, 0, 0, &a));
    ZT_OK(w->t, cat_write(w->cat, x, a, BT_PUT, str("k"), (struct bt_slice){v, sizeof(v)}));
    world_commit(w, x);
    world_settle(w);
    return a;
}

static void
raw_write(struct world *w, struct bt *bt, enum bt_write_kind kind, const void *key,
          size_t key_bytes, const void *value, size_t bytes)
{
    struct bt_op op = {.kind = kind, .key = {key, key_bytes}, .value = {value, bytes}};
    struct bt_done done;

    ZT_OK(w->t, bt_write(bt, &op, &done));
}

/* Goal: each kind of damage between the internal trees is found. */
static void
test_check_finds(struct zt *t)
{
    static const uint8_t piece1[CAT_PIECE_KEY] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1};
    static const uint8_t piece7[CAT_PIECE_KEY] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7};
    static const uint8_t stray[CAT_PIECE_KEY] = {0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 0, 0};
    struct world w;
    struct reg_tree *a;
    struct bt *names, *ids;
    uint8_t id[4] = {0}, ref[CAT_REF_BYTES];

    for (unsigned damage = 0; damage < 11; damage++) {
        world_open(&w, t, 0);
        names = reg_internal(w.reg, REG_NAMES);
        ids = reg_internal(w.reg, REG_IDS);
        a = make_tree(&w);
        ZT_CHECK(t, world_findings(&w) == 0);
        id[3] = (uint8_t)a->id;
        ch_put32(ref, a->id);
        switch (damage) {
        case 0:
            raw_write(&w, w.cat->blobs, BT_DEL, piece1, sizeof(piece1), NULL, 0);
            break;
        case 1:
            raw_write(&w, w.cat->blobs, BT_PUT, piece7, sizeof(piece7), "x", 1);
            break;
        case 2:
            raw_write(&w, w.cat->blobs, BT_PUT, stray, sizeof(stray), "x", 1);
            break;
        case 3:
            raw_write(&w, names, BT_DEL, "a", 1, NULL, 0);
            break;
        case 4:
            raw_write(&w, names, BT_PUT, "b", 1, ref, 4);
            break;
        case 5:
            ch_put32(ref, 4711);
            raw_write(&w, names, BT_PUT, "b", 1, ref, 4);
            break;
        case 6:
            raw_write(&w, names, BT_PUT, "b", 1, ref, 3);
            break;
        case 7: { /* in use, and to be freed */
            struct pending p = {.kind = PENDING_VALUE, .number = 1};

            ZT_OK(t, pending_put_alone(w.cat, &p));
            break;
        }
        case 8: {
            struct pending p = {.kind = PENDING_TREE, .number = a->id, .root = a->bt.root};

            ZT_OK(t, pending_put_alone(w.cat, &p));
            break;
        }
        case 9: { /* a second reference */
            struct bt_op op = {.kind = BT_PUT, .flags = BT_REF, .key = str("l")};
            struct bt_done done;

            ch_put64(ref, 1);
            ch_put64(ref + 8, 5000);
            op.value = (struct bt_slice){ref, sizeof(ref)};
            ZT_OK(t, bt_write(&a->bt, &op, &done));
            break;
        }
        default:
            reg_put(w.reg, a);
            a = NULL;
            raw_write(&w, ids, BT_DEL, id, sizeof(id), NULL, 0);
            break;
        }
        ZT_CHECK(t, world_findings(&w) > 0);
        if (a != NULL)
            reg_put(w.reg, a);
        world_close(&w);
    }
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"check_finds", test_check_finds, 1},
    };

    return zt_main(argc, argv, "cat check", cases, CH_ARRAY_LEN(cases));
}
