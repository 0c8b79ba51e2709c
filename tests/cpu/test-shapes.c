/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests MLA caches, ranks and caches in chunks with wrong input: each error names the field, what it is
 * and what is accepted. Queries in one tensor and in two give the same bits.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "shape-fixture.h"

enum { ROWS = 3, HEADS = 2, DIM = 24, VO = 16, KEYS = 9, BLOCK = 4, PAGES = 3 };

/* One sequence of three tokens over nine keys of an MLA cache. */
struct desk {
    struct shape_fixture fixture;
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    int32_t q_offsets[2];
    int32_t kv_lens[1];
    int32_t all[1];
    int32_t table[PAGES];
    float q[ROWS][HEADS][DIM];
    float latent[ROWS][HEADS][VO];
    float rope[ROWS][HEADS][DIM - VO];
    float k[PAGES][BLOCK][DIM];
    float out[ROWS][HEADS][VO];
    float k_new[KEYS][DIM];
};

static void fill(struct desk *desk)
{
    float *const arrays[] = {(float *)desk->q, (float *)desk->k, (float *)desk->k_new};
    const uint32_t counts[] = {ROWS * HEADS * DIM, PAGES * BLOCK * DIM, KEYS * DIM};

    for (uint32_t a = 0; a < 3; a++)
        for (uint32_t i = 0; i < counts[a]; i++)
            arrays[a][i] = (float)((i * 2654435761u + a * 40503u) >> 8 & 0xff) / 128 - 1;
    for (uint32_t i = 0; i < ROWS * HEADS; i++) {
        const float *q = desk->q[i / HEADS][i % HEADS];
        memcpy(desk->latent[i / HEADS][i % HEADS], q, sizeof desk->latent[0][0]);
        memcpy(desk->rope[i / HEADS][i % HEADS], q + VO, sizeof desk->rope[0][0]);
    }
}

static void desk_init(struct desk *desk, const char *keys, const char *flags)
{
    memset(desk, 0, sizeof *desk);
    fixture_open(&desk->fixture, flags);
    fixture_problem(keys, &desk->problem);
    fill(desk);
    ATTN_INIT(&desk->batch);
    ATTN_INIT(&desk->host);
    ATTN_INIT(&desk->tensors);
    ATTN_INIT(&desk->kv);
    desk->q_offsets[1] = ROWS;
    desk->kv_lens[0] = KEYS;
    for (int32_t i = 0; i < PAGES; i++)
        desk->table[i] = i;
    desk->batch.seqs = 1;
    desk->batch.num_tokens = ROWS;
    desk->batch.max_q = ROWS;
    desk->batch.max_kv = 64;
    desk->batch.q_offsets.data = desk->q_offsets;
    desk->batch.kv_lens.data = desk->kv_lens;
    desk->batch.table.data = desk->table;
    desk->batch.table_width = PAGES;
    desk->batch.table_stride = sizeof desk->table;
    desk->host.q_offsets = desk->q_offsets;
    desk->host.kv_lens = desk->kv_lens;
    desk->host.table = desk->table;
    desk->host.kv_global_lens = desk->all;
    desk->kv.k_dtype = desk->kv.v_dtype = ATTN_F32;
    desk->kv.pages = PAGES;
    desk->kv.block = BLOCK;
    desk->kv.kv_heads = 1;
    desk->kv.head_dim = DIM;
    desk->kv.head_dim_vo = VO;
    desk->kv.k.data = desk->k;
    desk->kv.k_page_stride = sizeof desk->k[0];
    desk->kv.k_token_stride = desk->kv.k_head_stride = sizeof desk->k[0][0];
    desk->tensors.softmax_scale = 0.3f;
    desk->tensors.q = fixture_tensor(desk->q, sizeof desk->q[0], sizeof desk->q[0][0]);
    desk->tensors.out = fixture_tensor(desk->out, sizeof desk->out[0], sizeof desk->out[0][0]);
    if (desk->problem.kv_source == ATTN_KV_CACHE)
        desk->tensors.kv_desc = &desk->kv;
    else
        desk->tensors.k_new = fixture_tensor(desk->k_new, sizeof desk->k_new[0], sizeof desk->k_new[0]);
}

/* field NULL: it runs. */
static void check(struct desk *desk, const char *field, const char *piece)
{
    struct attn_error err;

    ATTN_INIT(&err);
    int32_t status = fixture_run(&desk->fixture, &desk->problem, &desk->batch, &desk->tensors, &err);
    if (field == NULL) {
        cr_assert_eq(status, ATTN_OK, "%s: %s", err.field, err.message);
        return;
    }
    cr_assert_neq(status, ATTN_OK, "it ran, but %s: %s was expected", field, piece);
    cr_assert_str_eq(err.field, field, "%s: %s", err.field, err.message);
    cr_assert_not_null(strstr(err.message, piece), "'%s' is not in: %s", piece, err.message);
}

/* One change to a run that is good without it. */
#define REFUSED(keys, field, piece, ...)                                                                     \
    do {                                                                                                     \
        static struct desk d;                                                                                \
        desk_init(&d, "heads=2 q=f32 block=4 " keys, NULL);                                                  \
        __VA_ARGS__;                                                                                         \
        check(&d, field, piece);                                                                             \
        fixture_close(&d.fixture);                                                                           \
    } while (0)
#define MLA "head_dim=24/16 mla=1"

Test(shapes, queries_in_one_piece_and_in_two)
{
    static const char *const levels[] = {NULL, "none"};

    for (int i = 0; i < 2; i++) {
        static struct desk desk;
        float before[ROWS][HEADS][VO];
        desk_init(&desk, "heads=2 q=f32 block=4 " MLA, levels[i]);
        check(&desk, NULL, NULL);
        memcpy(before, desk.out, sizeof before);
        memset(desk.out, 0xff, sizeof desk.out);
        desk.tensors.q = fixture_tensor(desk.latent, sizeof desk.latent[0], sizeof desk.latent[0][0]);
        desk.tensors.q_rope = fixture_tensor(desk.rope, sizeof desk.rope[0], sizeof desk.rope[0][0]);
        check(&desk, NULL, NULL);
        cr_assert_arr_eq(desk.out, before, sizeof before);
        desk.rope[ROWS - 1][HEADS - 1][DIM - VO - 1] += 5; /* and the rope columns count */
        check(&desk, NULL, NULL);
        cr_assert(memcmp(desk.out, before, sizeof before) != 0);
        cr_assert_arr_eq(desk.out, before, (ROWS * HEADS - 1) * sizeof before[0][0]);
        fixture_close(&desk.fixture);
    }
}

Test(shapes, mla_queries)
{
    REFUSED(MLA, NULL, NULL, d.tensors.q_rope.buffer.data = NULL);
    REFUSED("kv_heads=1 head_dim=24/16", "q_rope", "mla",
            d.tensors.q_rope = fixture_tensor(d.rope, sizeof d.rope[0], sizeof d.rope[0][0]));
    REFUSED("head_dim=24/24 mla=1", "q_rope", "head_dim=24/24",
            d.tensors.q_rope = fixture_tensor(d.rope, sizeof d.rope[0], sizeof d.rope[0][0]));
    REFUSED(MLA, "q_rope", "strides of 30",
            d.tensors.q_rope = fixture_tensor(d.rope, 30, sizeof d.rope[0][0]));
    REFUSED(MLA, "q_rope", "63 bits",
            d.tensors.q_rope = fixture_tensor(d.rope, (size_t)INT64_MAX / 8 * 8, 8));
    REFUSED(MLA, "q", "not given",
            d.tensors.q_rope = fixture_tensor(d.rope, sizeof d.rope[0], sizeof d.rope[0][0]);
            d.tensors.q.buffer.data = NULL);
    REFUSED(MLA, "tensors.q_rope", "no multiple of 4",
            d.tensors.q_rope = fixture_tensor((char *)d.rope + 2, sizeof d.rope[0], sizeof d.rope[0][0]));
}

Test(shapes, mla_values_are_keys)
{
    REFUSED(MLA, NULL, NULL, d.kv.v_dtype = 0);
    REFUSED(MLA " kv_source=new", NULL, NULL, d.kv_lens[0] = ROWS);
    REFUSED(MLA " kv_source=new", "v_new", "does not use it", d.kv_lens[0] = ROWS;
            d.tensors.v_new = d.tensors.k_new);
    REFUSED(MLA " kv_source=new", "k_new", "needs it", d.kv_lens[0] = ROWS;
            d.tensors.k_new.buffer.data = NULL);
    REFUSED(MLA " kv_source=new", "v_new_scale", "no scale", d.kv_lens[0] = ROWS;
            d.tensors.v_new_scale.kind = ATTN_SCALE_UNIT);
    REFUSED("kv_heads=1 head_dim=24/16", "v", "no v", );
    REFUSED(MLA, "head_dim", "24", d.problem.head_dim = 32; d.problem.head_dim_vo = 16);
}

Test(shapes, caches_in_pieces)
{
    REFUSED(MLA " layout=paged-x", NULL, NULL, d.kv.layout = ATTN_PAGED_X; d.kv.k_token_stride = 3);
    REFUSED(MLA " layout=paged-x", "layout", "layout", );
    REFUSED(MLA, "layout", "layout", d.kv.layout = ATTN_PAGED_X);
    REFUSED("kv_heads=1 head_dim=22/16 layout=paged-x mla=1", "head_dim", "head_dim=22",
            d.kv.layout = ATTN_PAGED_X);
    REFUSED(MLA " layout=paged-x", "head_dim", "head_dim is 22", d.kv.layout = ATTN_PAGED_X;
            d.kv.head_dim = 22);
}

static void shard(struct desk *desk, uint32_t rank, uint32_t world, uint32_t share, int32_t all)
{
    desk->all[0] = all;
    desk->batch.kv_global_lens.data = desk->all;
    desk->batch.cp_rank = rank;
    desk->batch.cp_world = world;
    desk->batch.cp_interleave = share;
}

/* Without host copies the plugin looks at the arrays itself; with them the library does. */
static void check_ranks(uint32_t given)
{
#define HOST d.batch.given = given, d.batch.host = &d.host
    REFUSED(MLA " cp=1", NULL, NULL, shard(&d, 0, 2, 4, 17); HOST);
    REFUSED(MLA " cp=1", NULL, NULL, shard(&d, 1, 2, 4, 21); d.kv_lens[0] = 9; HOST);
    REFUSED(MLA " cp=1", "kv_lens", "[0] is 9", shard(&d, 1, 2, 4, 17); HOST);
    REFUSED(MLA " cp=1", "kv_lens", "8", shard(&d, 1, 2, 4, 17); HOST);
    REFUSED(MLA " cp=1", "kv_global_lens", "[0] is -3", shard(&d, 1, 2, 4, -3); HOST);
    REFUSED(MLA " cp=1", "cp_rank", "2", shard(&d, 2, 2, 4, 17); HOST);
    REFUSED(MLA " cp=1", "cp_rank", "0", shard(&d, 0, 0, 4, 17); HOST);
    REFUSED(MLA " cp=1", "cp_interleave", "is 0", shard(&d, 0, 2, 0, 17); HOST);
    REFUSED(MLA " cp=1", "cp_interleave", "is 3", shard(&d, 0, 2, 3, 17); HOST);
    REFUSED(MLA " cp=1 addr=dense", "cp_interleave", "63 bits", shard(&d, 0, UINT32_MAX, UINT32_MAX, 17);
            HOST; d.host.table = NULL; d.batch.table.data = NULL);
#undef HOST
}

Test(shapes, ranks_seen_by_the_plugin)
{
    check_ranks(0);
    REFUSED(MLA " cp=1", "kv_global_lens", "needs it", shard(&d, 0, 2, 4, 17);
            d.batch.kv_global_lens.data = NULL);
    REFUSED(MLA, "kv_global_lens", "cp=0", shard(&d, 0, 2, 4, 17));
}

Test(shapes, ranks_seen_by_the_library)
{
    check_ranks(ATTN_GIVEN_HOST_COPIES);
}
