/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which queries, keys and values get tensor maps, and what the driver is told of them. Wrong results show
 * neither: what has no map is copied in another way. */
#include <criterion/criterion.h>

#include "driver-values.h"
#include "families.h"

static struct {
    uint32_t calls;
    uint64_t dims[4], strides[3];
    uint32_t box[4];
} told;

const struct gpu_names gpu_names;

int32_t gpu_check(struct gpu_context *context, gpu_result result, const char *field, const char *call,
                  struct attn_error *err)
{
    (void)context, (void)field, (void)call, (void)err;
    return result == GPU_SUCCESS ? ATTN_OK : ATTN_E_DEVICE;
}

static gpu_result encode(struct gpu_tensor_map *map, int type, unsigned rank, void *base,
                         const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                         const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                         int fill)
{
    (void)map, (void)base, (void)element_strides, (void)interleave, (void)swizzle, (void)promotion,
        (void)fill;
    told.calls++;
    memcpy(told.dims, dims, sizeof told.dims);
    memcpy(told.strides, strides, sizeof told.strides);
    memcpy(told.box, box, sizeof told.box);
    return type == MAP_UINT16 && rank == 4 ? GPU_SUCCESS : GPU_INVALID_VALUE;
}

/* A cache of 128 columns of 16 bits, 4 heads, in pages of 16 tokens. */
static struct gpu_run paged(void)
{
    struct gpu_run run = {.kv_aligned = 1};

    run.problem.q_dtype = ATTN_BF16;
    run.problem.kv_heads = 4;
    run.batch.addressing = ATTN_TABLE;
    run.batch.block = 16;
    run.k = (struct gpu_cache){
        .base = 4096, .page_stride = 16384, .token_stride = 1024, .head_stride = 256, .size = 2, .dim = 128};
    run.v = run.k;
    return run;
}

/* The tokens of a box; with maps both keys and values have been described. */
static uint32_t tokens_of(struct gpu_run run)
{
    const struct gpu_driver driver = {.tensor_map_encode_tiled = encode};
    struct gpu_context context = {.driver = &driver};

    told.calls = 0;
    cr_assert_eq(cuda_tensor_maps(&context, &run, 64, NULL), ATTN_OK);
    cr_assert_eq(told.calls, run.box_tokens > 0 ? 2u : 0u);
    return run.box_tokens;
}

Test(maps, boxes_divide_pages)
{
    const uint32_t blocks[][2] = {{16, 16}, {8, 8}, {48, 16}, {64, 64}, {256, 64},
                                  {24, 8},  {5, 0}, {4, 0},   {1, 0}};
    struct gpu_run run = paged();

    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        run.batch.block = blocks[i][0];
        cr_assert_eq(tokens_of(run), blocks[i][1], "pages of %u tokens", blocks[i][0]);
    }
    run.batch.addressing = ATTN_DENSE;
    cr_assert_eq(tokens_of(run), 64u, "without pages");
}

Test(maps, tell_the_driver_of_strides)
{
    struct gpu_run run = paged();

    tokens_of(run);
    cr_assert(told.dims[0] == 128 && told.dims[2] == 4 && told.box[0] == 64 && told.box[1] == 16);
    cr_assert(told.strides[0] == 1024 && told.strides[1] == 256 && told.strides[2] == 16384);
    /* New rows are one page, whose stride is 0; one head has none. */
    run.batch.addressing = ATTN_DENSE;
    run.batch.kv_starts = 4096;
    run.problem.kv_heads = 1;
    run.k.page_stride = run.v.page_stride = run.k.head_stride = run.v.head_stride = 0;
    cr_assert_eq(tokens_of(run), 64u);
    cr_assert(told.dims[2] == 1 && told.dims[3] == 1);
}

/* Of one page the stride may be 0, as arrays of one sequence have it; of several it has to be one. */
Test(maps, a_single_sequence_needs_no_stride_of_pages)
{
    struct gpu_run run = paged();

    run.batch.addressing = ATTN_DENSE;
    run.batch.seqs = 1;
    run.k.page_stride = run.v.page_stride = 0;
    cr_assert_eq(tokens_of(run), 64u);
    cr_assert(told.dims[3] == 1 && told.strides[2] == 16);
    run.batch.seqs = 2;
    cr_assert_eq(tokens_of(run), 0u);
}

Test(maps, are_left_out_where_the_driver_makes_none)
{
    const struct gpu_run good = paged();
    struct gpu_run run = good;

    run.kv_aligned = 0;
    cr_assert_eq(tokens_of(run), 0u);
    run = good;
    run.k.size = 1;
    cr_assert_eq(tokens_of(run), 0u);
    run = good;
    run.v.token_stride = 1032;
    cr_assert_eq(tokens_of(run), 0u);
    run = good;
    run.k.page_stride = -16384;
    cr_assert_eq(tokens_of(run), 0u);
    run = good;
    run.v.head_stride = 0;
    cr_assert_eq(tokens_of(run), 0u);
}

/* 8 heads of 64 columns, of which each KV head has 4, in 100 tokens. */
static struct gpu_run queries(void)
{
    struct gpu_run run = {.group = 4};

    run.problem.q_dtype = ATTN_BF16;
    run.problem.heads = 8;
    run.problem.kv_heads = 2;
    run.problem.head_dim = 64;
    run.batch.num_tokens = 100;
    run.q = (struct gpu_tensor){.base = 4096, .token_stride = 1024, .head_stride = 128};
    return run;
}

/* Whether queries have a map of boxes of `rows` rows; `parts`: of one token too. */
static bool has_box_of(struct gpu_run run, uint32_t rows, bool parts)
{
    const struct gpu_driver driver = {.tensor_map_encode_tiled = encode};
    struct gpu_context context = {.driver = &driver};

    told.calls = 0;
    cr_assert_eq(cuda_query_map(&context, &run, rows, parts, NULL), ATTN_OK);
    cr_assert_eq(told.calls, run.query_box);
    return run.query_box != 0;
}

static bool has_box(struct gpu_run run, uint32_t rows)
{
    return has_box_of(run, rows, false);
}

Test(maps, queries_of_a_group_are_the_rows_of_a_box)
{
    struct gpu_run run = queries();

    cr_assert(has_box(run, 128));
    cr_assert(told.dims[0] == 64 && told.dims[1] == 4 && told.dims[2] == 100 && told.dims[3] == 2);
    cr_assert(told.strides[0] == 128 && told.strides[1] == 1024 && told.strides[2] == 512);
    cr_assert(told.box[0] == 64 && told.box[1] == 4 && told.box[2] == 32 && told.box[3] == 1);
    /* One head has no stride. */
    run.group = run.problem.heads = run.problem.kv_heads = 1;
    run.q.head_stride = 0;
    cr_assert(has_box(run, 64));
    cr_assert(told.dims[1] == 1 && told.box[1] == 1 && told.box[2] == 64);
}

Test(maps, queries_of_a_token_are_parts_of_it_where_they_may)
{
    struct gpu_run run = queries();

    run.problem.heads = 128;
    run.problem.kv_heads = 1;
    run.group = 128;
    run.q.token_stride = 16384;
    cr_assert_not(has_box_of(run, 64, false));
    cr_assert(has_box_of(run, 64, true));
    cr_assert(told.dims[1] == 128 && told.dims[2] == 100 && told.dims[3] == 1);
    cr_assert(told.box[0] == 64 && told.box[1] == 64 && told.box[2] == 1);
    run.group = run.problem.heads = 96; /* the second part is no whole one */
    cr_assert_not(has_box_of(run, 64, true));
}

Test(maps, of_queries_are_left_out_where_there_is_no_box)
{
    const struct gpu_run good = queries();
    struct gpu_run run = good;

    run.group = 3; /* a tile ends within a token */
    cr_assert_not(has_box(run, 128));
    run = good;
    run.problem.q_dtype = ATTN_E4M3; /* they become numbers of 16 bits */
    run.k.size = 2;
    cr_assert_not(has_box(run, 128));
    run.k.size = 1; /* or are multiplied as they are */
    cr_assert(has_box(run, 128) && told.dims[0] == 32);
    run = good;
    run.q.base = 4104;
    cr_assert_not(has_box(run, 128));
    run = good;
    run.q.token_stride = 1032;
    cr_assert_not(has_box(run, 128));
    run = good;
    run.q.head_stride = -128;
    cr_assert_not(has_box(run, 128));
    run = good;
    run.q.head_stride = INT64_C(1) << 39; /* that of a group is beyond what the driver takes */
    cr_assert_not(has_box(run, 128));
    run = good;
    run.q_rope.base = 8192;
    cr_assert_not(has_box(run, 128));
}

/* A workspace in e4m3: of values a box has half of the columns, each with all tokens of a page. */
Test(maps, of_e4m3_are_of_pairs_of_codes)
{
    const struct gpu_driver driver = {.tensor_map_encode_tiled = encode};
    struct gpu_context context = {.driver = &driver};
    struct gpu_run run = paged();

    run.k.size = run.v.size = 1;
    told.calls = 0;
    cr_assert_eq(cuda_tensor_maps_e4m3(&context, &run, NULL), ATTN_OK);
    cr_assert_eq(told.calls, 2);
    cr_assert_eq(run.box_tokens, 64);
    cr_assert_eq(told.dims[0], 64);
    cr_assert_eq(told.dims[1], 128);
    cr_assert_eq(told.dims[2], 4);
    cr_assert_eq(told.strides[0], 128);
    cr_assert_eq(told.strides[1], 128 * 128);
    cr_assert_eq(told.strides[2], 4 * 128 * 128);
    cr_assert_eq(told.box[0], 64);
    cr_assert_eq(told.box[1], 64);
    run.v.dim = 256; /* of 64 tokens: a row has two columns */
    cr_assert_eq(cuda_tensor_maps_e4m3(&context, &run, NULL), ATTN_OK);
    cr_assert_eq(told.dims[0], 64);
    cr_assert_eq(told.dims[1], 128);
    cr_assert_eq(told.strides[0], 128);
    cr_assert_eq(told.strides[1], 128 * 128);
}
