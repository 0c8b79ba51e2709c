/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests what the oracle makes of scales: stored value times scale, whatever its granularity. */
#include <criterion/criterion.h>
#include <math.h>

#include "scene.h"

static int8_t codes_k[PAGES][BLOCK][DIM], codes_v[PAGES][BLOCK][DIM];

/* Small integers in the cache, as f32 and as int8. */
static void start_integers(void)
{
    start(3, 13);
    for (int n = 0; n < PAGES * BLOCK * DIM; n++) {
        (&codes_k[0][0][0])[n] = (int8_t)(n % 11 - 5);
        (&codes_v[0][0][0])[n] = (int8_t)(n % 23 - 11);
        (&scene.k[0][0][0])[n] = (float)(n % 11 - 5);
        (&scene.v[0][0][0])[n] = (float)(n % 23 - 11);
    }
}

static void use_codes(uint32_t granularity)
{
    scene.problem.k_dtype = scene.kv.k_dtype = scene.problem.v_dtype = scene.kv.v_dtype = ATTN_INT8;
    scene.problem.k_scale = scene.problem.v_scale = granularity;
    scene.kv.k.data = codes_k;
    scene.kv.v.data = codes_v;
    scene.kv.k_page_stride = scene.kv.v_page_stride = sizeof codes_k[0];
    scene.kv.k_token_stride = scene.kv.v_token_stride = sizeof codes_k[0][0];
    scene.kv.k_scale = (struct attn_scale){.kind = ATTN_SCALE_UNIT, .granularity = granularity};
    scene.kv.v_scale = scene.kv.k_scale;
}

Test(scales, int8_with_unit_scale)
{
    start_integers();
    compute();
    keep();
    use_codes(ATTN_SCALES_UNIT);
    compute();
    expect_kept();
}

Test(scales, scales_multiply_stored_values)
{
    static float scales[PAGES][BLOCK];

    start_integers();
    for (int page = 0; page < PAGES; page++)
        for (int token = 0; token < BLOCK; token++) {
            scales[page][token] = 0.25f * (float)(1 + page + 2 * token);
            for (int d = 0; d < DIM; d++) {
                scene.k[page][token][d] *= scales[page][token];
                scene.v[page][token][d] *= scales[page][token];
            }
        }
    compute();
    keep();
    use_codes(ATTN_SCALES_TOKEN_HEAD);
    scene.kv.k_scale.kind = scene.kv.v_scale.kind = ATTN_SCALE_HOST;
    scene.kv.k_scale.buffer.data = scene.kv.v_scale.buffer.data = scales;
    scene.kv.k_scale.outer_stride = scene.kv.v_scale.outer_stride = sizeof scales[0];
    scene.kv.k_scale.token_stride = scene.kv.v_scale.token_stride = sizeof scales[0][0];
    compute();
    expect_near_kept();
    scales[scene.table[0]][0] = NAN; /* as a row that could not be written */
    compute();
    cr_expect(isnan(scene.out[2][0][0]) && isnan(scene.out[2][0][2]) && isnan(scene.lse[2][0]));
}

Test(scales, scale_of_q_per_kv_head)
{
    float scales[] = {3};

    start(2, 9);
    scene.tensors.softmax_scale = 1.5f;
    compute();
    keep();
    scene.tensors.softmax_scale = 0.5f;
    scene.problem.q_scale = ATTN_SCALES_KV_HEAD;
    scene.tensors.q_scale = (struct attn_scale){
        .kind = ATTN_SCALE_HOST, .granularity = ATTN_SCALES_KV_HEAD, .buffer = {scales, 0}, .head_stride = 4};
    compute();
    expect_near_kept();
}

/* The stored values of an MLA key and its scale are those of its value. */
Test(scales, mla_keys_with_a_scale)
{
    float scale[] = {0.5f};

    start_integers();
    scene.problem.mla = 1;
    scene.problem.head_dim_vo = 2;
    for (int n = 0; n < PAGES * BLOCK * DIM; n++)
        (&scene.k[0][0][0])[n] *= scale[0];
    compute();
    keep();
    use_codes(ATTN_SCALES_TENSOR);
    scene.problem.v_scale = ATTN_SCALES_NONE;
    scene.kv.v_scale = (struct attn_scale){0};
    scene.kv.k_scale.kind = ATTN_SCALE_HOST;
    scene.kv.k_scale.buffer.data = scale;
    compute();
    expect_near_kept();
}

/* New keys have scales of their own beside those of the cache. */
Test(scales, new_keys_with_scales)
{
    float cached[] = {0.5f}, added[] = {4, 2, 1};

    start_integers();
    for (int n = 0; n < PAGES * BLOCK * DIM; n++) {
        (&scene.k[0][0][0])[n] *= cached[0];
        (&scene.v[0][0][0])[n] *= cached[0];
    }
    for (int j = 10; j < 13; j++)
        for (int d = 0; d < DIM; d++) {
            key(j)[d] *= added[j - 10] / cached[0];
            value(j)[d] *= added[j - 10] / cached[0];
        }
    compute();
    keep();
    use_codes(ATTN_SCALES_TOKEN_HEAD);
    scene.kv.k_scale.kind = scene.kv.v_scale.kind = ATTN_SCALE_HOST;
    scene.kv.k_scale.buffer.data = scene.kv.v_scale.buffer.data = cached;
    scene.problem.kv_source = ATTN_KV_CACHE_NEW;
    static int8_t new_k[3][DIM], new_v[3][DIM];
    for (int n = 0; n < 3; n++) {
        int j = 10 + n;
        memcpy(new_k[n], codes_k[scene.table[j / BLOCK]][j % BLOCK], DIM);
        memcpy(new_v[n], codes_v[scene.table[j / BLOCK]][j % BLOCK], DIM);
    }
    scene.tensors.k_new = (struct attn_tensor){.buffer = {new_k, 0}, .token_stride = DIM};
    scene.tensors.v_new = (struct attn_tensor){.buffer = {new_v, 0}, .token_stride = DIM};
    scene.tensors.k_new_scale = scene.kv.k_scale;
    scene.tensors.k_new_scale.buffer.data = added;
    scene.tensors.k_new_scale.token_stride = sizeof added[0];
    scene.tensors.v_new_scale = scene.tensors.k_new_scale;
    compute();
    expect_near_kept();
}
