/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that converts 8-bit keys and values for prefill: numbers, page list, and scales that no cache
 * has but by mistake. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "convert.h"
#include "fiber-names.h"

enum {
    HEADS = 2,
    DIM = 8,
    KEYS = 70,
    BLOCK = GPU_CONVERTED_BLOCK,
    PAGES = 2,
    ROW = HEADS * DIM,
    TOKENS = PAGES * BLOCK
};

static struct {
    int8_t codes[2][KEYS][HEADS][DIM]; /* keys and values */
    float scales[2][KEYS][HEADS];
    uint16_t out[2][TOKENS][HEADS][DIM];
    float k_scale[HEADS][TOKENS];
    int32_t entries[PAGES], q_offsets[2], kv_lens[1], first[2];
} memory;

static uint64_t address(const void *at)
{
    return (uint64_t)(uintptr_t)at;
}

static struct gpu_cache cache_of(uint32_t side)
{
    struct gpu_cache cache;

    memset(&cache, 0, sizeof cache);
    cache.base = address(memory.codes[side]);
    cache.token_stride = ROW;
    cache.head_stride = cache.x_bytes = cache.dim = DIM;
    cache.size = 1;
    cache.dtype = ATTN_INT8;
    cache.scale.value = 1;
    return cache;
}

/* Scales of each token and head. */
static struct gpu_scale scales_of(uint32_t side)
{
    struct gpu_scale scale;

    memset(&scale, 0, sizeof scale);
    scale.base = address(memory.scales[side]);
    scale.token_stride = HEADS * sizeof(float);
    scale.head_stride = sizeof(float);
    return scale;
}

/* A sequence of 70 keys in a dense cache. */
static struct gpu_convert step(void)
{
    struct gpu_convert a;

    memset(&a, 0, sizeof a);
    memset(&memory, 0xff, sizeof memory);
    for (uint32_t i = 0; i < sizeof memory.codes; i++)
        ((int8_t *)memory.codes)[i] = (int8_t)(i * 37 + i / 256);
    for (uint32_t i = 0; i < sizeof memory.scales / sizeof(float); i++)
        ((float *)memory.scales)[i] = i % 5 == 3 ? -0.25f : 1.0f / (float)(1 + i);
    memory.q_offsets[0] = memory.first[0] = 0;
    memory.q_offsets[1] = 300;
    memory.kv_lens[0] = KEYS;
    memory.first[1] = PAGES;
    a.run.problem.heads = a.run.problem.kv_heads = HEADS;
    a.run.problem.kv_source = ATTN_KV_CACHE;
    a.run.problem.positions = 1; /* all keys are seen */
    a.run.batch.addressing = ATTN_DENSE;
    a.run.batch.seqs = 1;
    a.run.batch.block = BLOCK;
    a.run.batch.q_offsets = address(memory.q_offsets);
    a.run.batch.kv_lens = address(memory.kv_lens);
    a.run.schedule = address(memory.first);
    a.run.k = cache_of(0);
    a.run.v = cache_of(1);
    a.run.q_scale.value = 1;
    a.k = address(memory.out[0]);
    a.v = address(memory.out[1]);
    a.entries = address(memory.entries);
    a.k_scale = address(memory.k_scale);
    a.vector[0] = a.vector[1] = gpu_divisor_of(1);
    a.row[0] = a.row[1] = gpu_divisor_of(HEADS);
    a.bf16 = 1;
    return a;
}

static void convert(const struct gpu_convert *a)
{
    const struct fiber_grid grid = {.x = 3, .threads = GPU_CONVERT_THREADS};

    fiber_launch(driver_named(driver_plan_kernels, "gpu_convert")->call, a, &grid);
    cr_assert_eq(memory.entries[0], 0);
    cr_assert_eq(memory.entries[1], 1);
}

/* Whether a number is what is expected, NaN included, to what bf16 holds. */
static bool is_near(uint16_t bits, float expected)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float found;

    memcpy(&found, &wide, sizeof found);
    return isnan(expected) ? isnan(found) : fabsf(found - expected) <= fabsf(expected) * 0x1p-8f;
}

/* Keys are codes times `factor`, values codes, exactly. */
static void check_all(float factor)
{
    for (uint32_t i = 0; i < KEYS * ROW; i++) {
        const uint32_t token = i / ROW, head = i / DIM % HEADS, d = i % DIM;
        cr_assert(is_near(memory.out[0][token][head][d], (float)memory.codes[0][token][head][d] * factor));
        cr_assert(is_near(memory.out[1][token][head][d], memory.codes[1][token][head][d]));
    }
}

Test(convert, the_scale_of_keys_becomes_finite_and_positive)
{
    static const struct {
        float scale, factor, rest;
    } cases[] = {{0.5f, 1, 0.5f}, {-3, -1, 3}, {0, 0, 1}, {NAN, NAN, 1}, {INFINITY, NAN, 1}};

    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_convert a = step();
        a.run.k.scale.value = cases[i].scale;
        convert(&a);
        check_all(cases[i].factor);
        cr_assert_eq(memory.k_scale[0][0], cases[i].rest);
    }
}

Test(convert, scales_of_keys_are_kept_and_values_multiplied_by_theirs)
{
    struct gpu_convert a = step();

    a.run.k.scale = scales_of(0);
    a.run.v.scale = scales_of(1);
    a.k_scale_stride = sizeof memory.k_scale[0];
    convert(&a);
    for (uint32_t token = 0; token < KEYS; token++) {
        for (uint32_t head = 0; head < HEADS; head++) {
            cr_assert_eq(memory.k_scale[head][token], memory.scales[0][token][head]);
            for (uint32_t d = 0; d < DIM; d++) {
                cr_assert(is_near(memory.out[0][token][head][d], memory.codes[0][token][head][d]));
                cr_assert(is_near(memory.out[1][token][head][d],
                                  (float)memory.codes[1][token][head][d] * memory.scales[1][token][head]));
            }
        }
    }
}
