/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The scene that tests of the oracle share. */
#include "scene.h"

#include <criterion/criterion.h>
#include <math.h>

struct scene scene;

float *key(int j)
{
    return scene.k[scene.table[j / BLOCK]][j % BLOCK];
}

float *value(int j)
{
    return scene.v[scene.table[j / BLOCK]][j % BLOCK];
}

static void fill_kv_desc(struct attn_kv_desc *kv)
{
    ATTN_INIT(kv);
    kv->k_dtype = kv->v_dtype = ATTN_F32;
    kv->pages = PAGES;
    kv->block = BLOCK;
    kv->kv_heads = 1;
    kv->head_dim = DIM;
    kv->k.data = scene.k;
    kv->v.data = scene.v;
    kv->k_page_stride = kv->v_page_stride = sizeof scene.k[0];
    kv->k_token_stride = kv->v_token_stride = sizeof scene.k[0][0];
    kv->k_head_stride = kv->v_head_stride = 0;
}

void start(int q_len, int kv_len)
{
    memset(&scene, 0, sizeof scene);
    ATTN_INIT(&scene.problem);
    scene.problem.type = ATTN_DECODER;
    scene.problem.q_dtype = scene.problem.k_dtype = scene.problem.v_dtype = ATTN_F32;
    scene.problem.out_dtype = ATTN_F32;
    scene.problem.heads = HEADS;
    scene.problem.kv_heads = 1;
    scene.problem.head_dim = scene.problem.head_dim_vo = DIM;
    scene.problem.addressing = ATTN_TABLE;
    scene.problem.block = BLOCK;
    scene.problem.causal = ATTN_CAUSAL_YES;
    scene.problem.align = ATTN_ALIGN_END;
    ATTN_INIT(&scene.batch);
    scene.batch.seqs = 1;
    scene.batch.num_tokens = (uint32_t)q_len;
    scene.q_offsets[1] = q_len;
    scene.kv_lens[0] = kv_len;
    scene.batch.q_offsets.data = scene.q_offsets;
    scene.batch.kv_lens.data = scene.kv_lens;
    scene.batch.table.data = scene.table;
    scene.batch.table_stride = sizeof scene.table;
    scene.batch.table_width = WIDTH;
    for (int b = 0; b < WIDTH; b++)
        scene.table[b] = PAGES - 1 - 2 * b;
    ATTN_INIT(&scene.tensors);
    scene.tensors.softmax_scale = 0.5f;
    scene.tensors.q.buffer.data = scene.q;
    scene.tensors.q.token_stride = sizeof scene.q[0];
    scene.tensors.q.head_stride = sizeof scene.q[0][0];
    fill_kv_desc(&scene.kv);
    for (int i = 0; i < ROWS * HEADS * DIM; i++)
        (&scene.q[0][0][0])[i] = (float)sin(1 + 0.7 * i);
    for (int i = 0; i < PAGES * BLOCK * DIM; i++) {
        (&scene.k[0][0][0])[i] = (float)cos(0.3 * i);
        (&scene.v[0][0][0])[i] = (float)sin(0.9 * i);
    }
}

void compute(void)
{
    struct oracle_result result = {&scene.out[0][0][0], &scene.lse[0][0], &scene.seen[0][0], 0, 0,
                                   &scene.slope[0][0]};

    cr_assert(oracle_attention(&scene.problem, &scene.batch, &scene.tensors, &scene.kv, NULL, NULL, &result));
    scene.largest = result.largest;
    scene.largest_uncapped = result.largest_uncapped;
}

bool near(double a, double b)
{
    return fabs(a - b) <= 1e-13 * fmax(1, fabs(b));
}

double kept[ROWS][HEADS][DIM], kept_lse[ROWS][HEADS];
uint32_t kept_seen[ROWS][HEADS];

void keep(void)
{
    memcpy(kept, scene.out, sizeof kept);
    memcpy(kept_lse, scene.lse, sizeof kept_lse);
    memcpy(kept_seen, scene.seen, sizeof kept_seen);
}

void expect_kept(void)
{
    cr_expect_arr_eq(kept, scene.out, sizeof kept);
    cr_expect_arr_eq(kept_lse, scene.lse, sizeof kept_lse);
    cr_expect_arr_eq(kept_seen, scene.seen, sizeof kept_seen);
}

void expect_near_kept(void)
{
    for (int n = 0; n < ROWS * HEADS * DIM; n++)
        cr_expect(near((&scene.out[0][0][0])[n], (&kept[0][0][0])[n]));
    for (int n = 0; n < ROWS * HEADS; n++)
        cr_expect((&scene.lse[0][0])[n] == (&kept_lse[0][0])[n] ||
                  near((&scene.lse[0][0])[n], (&kept_lse[0][0])[n]));
}
