/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that puts keys and values in the order of products of e4m3: where each code goes, what stands
 * for keys that do not exist and values that are NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "convert.h"
#include "fiber-names.h"

enum {
    HEADS = 2,
    DIM = 128,
    PAGE = 128,
    BLOCK = 48, /* of the cache */
    KEYS = 190,
    BLOCKS = (KEYS + BLOCK - 1) / BLOCK,
    PAGES = 2,
    MISSING = 2 /* block without a place in the cache */
};

static struct {
    uint8_t codes[2][BLOCKS][BLOCK][HEADS][DIM]; /* keys and values */
    int32_t table[BLOCKS];
    _Alignas(16) uint8_t k[PAGES][PAGE][HEADS][DIM], v[PAGES][HEADS][DIM][PAGE];
    struct gpu_marks marks[PAGES][HEADS];
    uint8_t bits[PAGES][HEADS][PAGE][DIM / 8];
    float k_scales[HEADS];
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
    cache.page_stride = BLOCK * HEADS * DIM;
    cache.token_stride = HEADS * DIM;
    cache.head_stride = cache.x_bytes = cache.dim = DIM;
    cache.size = 1;
    cache.dtype = ATTN_E4M3;
    cache.scale.value = 1;
    return cache;
}

/* A sequence of 190 keys in pages of 48, of which one does not exist. Codes are no NaN. */
static struct gpu_convert step(void)
{
    struct gpu_convert a;

    memset(&a, 0, sizeof a);
    memset(&memory, 0xff, sizeof memory);
    for (uint32_t i = 0; i < sizeof memory.codes; i++)
        ((uint8_t *)memory.codes)[i] = (uint8_t)(i * 37 + i / 256) & 0xf7;
    for (int32_t i = 0; i < BLOCKS; i++)
        memory.table[i] = i == MISSING ? -1 : BLOCKS - 1 - i;
    memory.q_offsets[0] = memory.first[0] = 0;
    memory.q_offsets[1] = 300;
    memory.kv_lens[0] = KEYS;
    memory.first[1] = PAGES;
    a.run.problem.heads = a.run.problem.kv_heads = HEADS;
    a.run.problem.kv_source = ATTN_KV_CACHE;
    a.run.problem.positions = 1; /* all keys are seen */
    a.run.batch.addressing = ATTN_TABLE;
    a.run.batch.table = address(memory.table);
    a.run.batch.seqs = 1;
    a.run.batch.block = BLOCK;
    a.run.batch.block_shift = 32;
    a.run.batch.q_offsets = address(memory.q_offsets);
    a.run.batch.kv_lens = address(memory.kv_lens);
    a.run.schedule = address(memory.first);
    a.run.k = cache_of(0);
    a.run.v = cache_of(1);
    a.run.q_scale.value = 1;
    a.k = address(memory.k);
    a.v = address(memory.v);
    a.entries = address(memory.entries);
    a.marks = address(memory.marks);
    a.bits = address(memory.bits);
    return a;
}

static void convert(const struct gpu_convert *a)
{
    const struct fiber_grid grid = {.x = 3, .threads = GPU_E4M3_THREADS, .shared = GPU_E4M3_SHARED};

    fiber_launch(driver_named(driver_plan_kernels, "gpu_convert_e4m3_128")->call, a, &grid);
    cr_assert_eq(memory.entries[0], 0);
    cr_assert_eq(memory.entries[1], 1);
}

/* The code of a key, or value; `missing` where there is none. */
static uint8_t code_of(uint32_t side, uint32_t key, uint32_t head, uint32_t d, uint8_t missing)
{
    const uint32_t block = key / BLOCK;

    return key >= KEYS || block == MISSING ? missing
                                           : memory.codes[side][memory.table[block]][key % BLOCK][head][d];
}

/* Where a token of 16 is among the codes of a column: a lane has two of each eight, side by side. */
static uint32_t place_of(uint32_t token)
{
    return token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

static void check_values(void)
{
    for (uint32_t key = 0; key < PAGES * PAGE; key++)
        for (uint32_t head = 0; head < HEADS; head++)
            for (uint32_t d = 0; d < DIM; d++) {
                const uint8_t code = code_of(1, key, head, d, 0);
                cr_assert_eq(memory.v[key / PAGE][head][d][place_of(key % PAGE)],
                             (code & 0x7f) == 0x7f ? 0 : code);
            }
}

static void check_keys(uint32_t head, uint8_t keep, uint8_t flip)
{
    for (uint32_t key = 0; key < PAGES * PAGE; key++)
        for (uint32_t d = 0; d < DIM; d++)
            cr_assert_eq(memory.k[key / PAGE][key % PAGE][head][d],
                         (code_of(0, key, head, d, 0) & keep) ^ flip);
}

Test(convert_e4m3, columns_of_values_have_tokens_in_the_order_of_p)
{
    const struct gpu_convert a = step();

    convert(&a);
    for (uint32_t head = 0; head < HEADS; head++)
        check_keys(head, 0xff, 0);
    check_values();
}

Test(convert_e4m3, what_does_not_exist_is_not_present)
{
    const struct gpu_convert a = step();

    convert(&a);
    for (uint32_t key = 0; key < PAGES * PAGE; key++) {
        const bool exists = key < KEYS && key / BLOCK != MISSING;
        for (uint32_t head = 0; head < HEADS; head++) {
            const struct gpu_marks *marks = &memory.marks[key / PAGE][head];
            cr_assert_eq(marks->present[key % PAGE / 64] >> key % 64 & 1, exists);
            cr_assert_eq(marks->nonfinite, 0);
        }
    }
}

Test(convert_e4m3, values_that_are_nan_are_zeros_and_marked)
{
    const struct gpu_convert a = step();
    const uint32_t key = 150, head = 1, d = 77;
    uint8_t *code = &memory.codes[1][memory.table[key / BLOCK]][key % BLOCK][head][d];

    *code = 0xff;
    convert(&a);
    check_values();
    for (uint32_t page = 0; page < PAGES; page++)
        for (uint32_t h = 0; h < HEADS; h++)
            cr_assert_eq(memory.marks[page][h].nonfinite, page == key / PAGE && h == head);
    const uint8_t *bits = (const uint8_t *)(uintptr_t)memory.marks[key / PAGE][head].values;
    for (uint32_t i = 0; i < PAGE * DIM; i++)
        cr_assert_eq(bits[i / 8] >> i % 8 & 1, i == key % PAGE * DIM + d);
}

/* So that what is left of it is finite and positive. */
Test(convert_e4m3, keys_take_what_the_scale_of_products_is_beside_its_size)
{
    static const struct {
        float keys, queries;
        uint8_t keep, flip;
    } cases[] = {{0.5f, 4, 0xff, 0}, {-3, 1, 0xff, 0x80}, {-3, -1, 0xff, 0},
                 {0, 1, 0, 0},       {1, NAN, 0, 0x7f},   {INFINITY, 1, 0, 0x7f}};

    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_convert a = step();
        a.run.k.scale.value = cases[i].keys;
        a.run.q_scale.value = cases[i].queries;
        convert(&a);
        for (uint32_t head = 0; head < HEADS; head++)
            check_keys(head, cases[i].keep, cases[i].flip);
    }
}

Test(convert_e4m3, keys_of_a_head_take_it_of_their_own_scale)
{
    struct gpu_convert a = step();

    memory.k_scales[0] = 2;
    memory.k_scales[1] = -1;
    a.run.k.scale.base = address(memory.k_scales);
    a.run.k.scale.head_stride = sizeof(float);
    a.run.problem.q_scale = ATTN_SCALES_HEAD; /* of which a kernel looks up those of its rows */
    a.run.q_scale.value = NAN;
    convert(&a);
    check_keys(0, 0xff, 0);
    check_keys(1, 0xff, 0x80);
}

/* Of 200 columns in 256, a page has 64 tokens, and rows of values have two columns. */
enum { WIDE = 200, WIDE_COLUMNS = 256, WIDE_KEYS = 70, WIDE_PAGE = 64, WIDE_PAGES = 2 };

static struct {
    uint8_t codes[2][WIDE_KEYS][WIDE];
    int32_t entries[WIDE_PAGES];
    _Alignas(16) uint8_t k[WIDE_PAGES][WIDE_PAGE][WIDE_COLUMNS],
        v[WIDE_PAGES][WIDE_COLUMNS / 2][2][WIDE_PAGE];
    struct gpu_marks marks[WIDE_PAGES];
    uint8_t bits[WIDE_PAGES][WIDE_PAGE][WIDE_COLUMNS / 8];
} wide;

static uint8_t wide_code(uint32_t side, uint32_t key, uint32_t d)
{
    return key < WIDE_KEYS && d < WIDE ? wide.codes[side][key][d] : 0;
}

Test(convert_e4m3, wide_vectors_have_zeros_behind_them_and_two_columns_in_a_row)
{
    const struct fiber_grid grid = {.x = 2, .threads = GPU_E4M3_THREADS, .shared = GPU_E4M3_SHARED};
    struct gpu_convert a = step();

    memset(&wide, 0xff, sizeof wide);
    for (uint32_t i = 0; i < sizeof wide.codes; i++)
        ((uint8_t *)wide.codes)[i] = (uint8_t)(i * 41 + i / 256) & 0xf7;
    memory.table[0] = 0;
    memory.kv_lens[0] = WIDE_KEYS;
    memory.first[1] = WIDE_PAGES;
    a.run.problem.heads = a.run.problem.kv_heads = 1;
    a.run.batch.block = WIDE_KEYS;
    for (uint32_t side = 0; side < 2; side++) {
        struct gpu_cache *cache = side == 0 ? &a.run.k : &a.run.v;
        *cache = cache_of(side);
        cache->base = address(wide.codes[side]);
        cache->token_stride = cache->head_stride = cache->x_bytes = cache->dim = WIDE;
    }
    a.k = address(wide.k);
    a.v = address(wide.v);
    a.entries = address(wide.entries);
    a.marks = address(wide.marks);
    a.bits = address(wide.bits);
    fiber_launch(driver_named(driver_plan_kernels, "gpu_convert_e4m3_256")->call, &a, &grid);
    for (uint32_t key = 0; key < WIDE_PAGES * WIDE_PAGE; key++) {
        cr_assert_eq(wide.marks[key / WIDE_PAGE].present[0] >> key % WIDE_PAGE & 1, key < WIDE_KEYS);
        for (uint32_t d = 0; d < WIDE_COLUMNS; d++) {
            const uint32_t row = d % (WIDE_COLUMNS / 2), half = d / (WIDE_COLUMNS / 2);
            cr_assert_eq(wide.k[key / WIDE_PAGE][key % WIDE_PAGE][d], wide_code(0, key, d));
            cr_assert_eq(wide.v[key / WIDE_PAGE][row][half][place_of(key % WIDE_PAGE)], wide_code(1, key, d));
        }
    }
}
