/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builders through the public interface: one mixed step in every flavour, and what is refused. */
#include <criterion/criterion.h>

#include "attn/layer.h"

static struct attn_error err;

static struct attn_builder *create(uint32_t flavour, uint32_t chunked)
{
    const struct attn_builder_group group = {.block = 8, .max_blocks = 8};
    struct attn_builder_params params;
    struct attn_builder *builder;
    ATTN_INIT(&params);
    ATTN_INIT(&err);
    params.flavour = flavour;
    params.chunked = chunked;
    params.group = &group;
    params.max_seqs = 4;
    params.max_tokens = 64;
    cr_assert_eq(attn_builder_create(NULL, &params, &builder, &err), ATTN_OK, "%s", err.message);
    return builder;
}

static int32_t add(struct attn_builder *builder, uint32_t prompt, uint32_t context, uint32_t query,
                   const int64_t *list, uint32_t count)
{
    const struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .count = count, .blocks = list};
    struct attn_builder_add_args args;
    ATTN_INIT(&args);
    args.prompt = prompt;
    args.context_len = context;
    args.query_len = query;
    args.blocks = &blocks;
    return attn_builder_add(builder, &args, &err);
}

static struct attn_view get(const struct attn_metadata *metadata, uint32_t field)
{
    struct attn_view view;
    ATTN_INIT(&view);
    cr_assert_eq(attn_metadata_get(metadata, field, 0, &view, &err), ATTN_OK, "%s", err.message);
    return view;
}

static void expect(const struct attn_metadata *metadata, uint32_t field, uint32_t count,
                   const int64_t *expected)
{
    const struct attn_view view = get(metadata, field);
    cr_assert_eq(view.shape[0], count, "%s has %llu", attn_field_name(field),
                 (unsigned long long)view.shape[0]);
    for (uint32_t i = 0; i < count; i++) {
        const int64_t got =
            view.dtype == ATTN_INT64 ? ((const int64_t *)view.host)[i] : ((const int32_t *)view.host)[i];
        cr_assert_eq(got, expected[i], "%s[%u] is %lld", attn_field_name(field), i, (long long)got);
    }
}
#define EXPECT(metadata, field, ...)                                                                         \
    expect((metadata), ATTN_FIELD_##field, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),               \
           (const int64_t[]){__VA_ARGS__})

static int64_t number(const struct attn_metadata *metadata, uint32_t field)
{
    const struct attn_view view = get(metadata, field);
    cr_assert_eq(view.kind, ATTN_VIEW_NUMBER, "%s", attn_field_name(field));
    return view.value;
}

static int32_t cell(const struct attn_metadata *metadata, uint32_t row, uint32_t column)
{
    const struct attn_view view = get(metadata, ATTN_FIELD_BLOCK_TABLES);
    cr_assert(row < view.shape[0] && column < view.shape[1]);
    return ((const int32_t *)(const void *)((const char *)view.host + row * view.stride))[column];
}

Test(builder, mixed_step)
{
    static const int64_t prompt[] = {7}, first[] = {5, 9}, second[] = {3, 4, 6};
    for (uint32_t flavour = ATTN_FLASH_ATTN; flavour <= ATTN_XFORMERS; flavour++) {
        struct attn_builder *builder = create(flavour, 1);
        struct attn_metadata *metadata;
        cr_assert_eq(add(builder, 1, 0, 3, prompt, 1), ATTN_OK, "%s", err.message);
        cr_assert_eq(add(builder, 0, 8, 1, first, 2), ATTN_OK, "%s", err.message);
        cr_assert_eq(add(builder, 0, 16, 1, second, 3), ATTN_OK, "%s", err.message);
        cr_assert_eq(attn_builder_build(builder, NULL, NULL, &metadata, &err), ATTN_OK, "%s", err.message);
        cr_assert_eq(number(metadata, ATTN_FIELD_NUM_PREFILLS), 1);
        cr_assert_eq(number(metadata, ATTN_FIELD_NUM_PREFILL_TOKENS), 3);
        cr_assert_eq(number(metadata, ATTN_FIELD_NUM_DECODE_TOKENS), 2);
        EXPECT(metadata, SLOT_MAPPING, 56, 57, 58, 72, 48);
        EXPECT(metadata, SEQ_LENS_TENSOR, 3, 9, 17);
        EXPECT(metadata, QUERY_START_LOC, 0, 3, 4, 5);
        EXPECT(metadata, SEQ_START_LOC, 0, 3, 12, 29);
        cr_assert_eq(cell(metadata, 0, 0), 7);
        cr_assert_eq(cell(metadata, 0, 2), 0);
        cr_assert_eq(cell(metadata, 2, 2), 6);
        if (flavour == ATTN_FLASHINFER) {
            EXPECT(metadata, PAGED_KV_INDPTR, 0, 1, 3, 6);
            EXPECT(metadata, PAGED_KV_INDICES, 7, 5, 9, 3, 4, 6);
            EXPECT(metadata, PAGED_KV_LAST_PAGE_LEN, 3, 1, 1);
        } else {
            EXPECT(metadata, CONTEXT_LENS_TENSOR, 0, 8, 16);
            cr_assert_eq(number(metadata, ATTN_FIELD_MAX_DECODE_SEQ_LEN), 17);
        }
        cr_assert_eq(get(metadata, ATTN_FIELD_CROSS_SLOT_MAPPING).kind, ATTN_VIEW_NULL);
        attn_builder_destroy(builder);
    }
}

Test(builder, refusals)
{
    static const int64_t list[] = {7, 9};
    struct attn_builder *builder = create(ATTN_ROCM_FLASH, 0);
    struct attn_metadata *metadata;
    cr_assert_eq(attn_builder_build(builder, NULL, NULL, &metadata, &err), ATTN_E_INVALID);
    cr_assert_eq(add(builder, 0, 8, 2, list, 2), ATTN_E_INVALID);
    cr_assert_eq(strncmp(err.message, "seq_len: 10, context_len: 8, query_len: 2", 41), 0, "%s", err.message);
    cr_assert_str_eq(err.field, "query_len");
    cr_assert_eq(add(builder, 0, 16, 1, list, 2), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "blocks");
    cr_assert_eq(add(builder, 1, 3, 0, list, 2), ATTN_OK);
    cr_assert_eq(attn_builder_build(builder, NULL, NULL, &metadata, &err), ATTN_E_INVALID);
    cr_assert_eq(strncmp(err.message, "query_lens: [0]", 15), 0, "%s", err.message);
    cr_assert_null(metadata);
    attn_builder_destroy(builder);
}

/* A builder whose tables take blocks of any number. */
static struct attn_builder *create_wide(uint32_t block, uint32_t max_blocks)
{
    const struct attn_builder_group group = {.block = block, .max_blocks = max_blocks};
    struct attn_builder_params params;
    struct attn_builder *builder;
    ATTN_INIT(&params);
    ATTN_INIT(&err);
    params.flavour = ATTN_FLASH_ATTN;
    params.chunked = 1;
    params.index_dtype = ATTN_INT64;
    params.group = &group;
    params.max_seqs = 4;
    params.max_tokens = 64;
    cr_assert_eq(attn_builder_create(NULL, &params, &builder, &err), ATTN_OK, "%s", err.message);
    return builder;
}

static int32_t add_again(struct attn_builder *builder, uint32_t context, const int64_t *list, uint32_t count)
{
    const struct attn_blocks blocks = {
        .kind = ATTN_BLOCKS_LIST, .count = count, .blocks = list, .unchanged = count};
    struct attn_builder_add_args args;
    ATTN_INIT(&args);
    args.context_len = context;
    args.query_len = 1;
    args.blocks = &blocks;
    return attn_builder_add(builder, &args, &err);
}

/* A block that no token had come to is judged when one does, also where the list is as it was. */
Test(builder, late_blocks)
{
    const int64_t list[] = {7, INT64_MAX >> 19};
    struct attn_builder *builder = create_wide(8, 8);
    cr_assert_eq(add(builder, 0, 6, 1, list, 2), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_builder_reset(builder, &err), ATTN_OK);
    cr_assert_eq(add_again(builder, 7, list, 2), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_builder_reset(builder, &err), ATTN_OK);
    cr_assert_eq(add_again(builder, 8, list, 2), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "blocks", "%s", err.message);
    attn_builder_destroy(builder);
}

/* Starts of sequences are 32 bits. */
Test(builder, sums_of_lengths)
{
    enum { BLOCK = 1048576, BLOCKS = 1024 };
    static int64_t list[BLOCKS];
    struct attn_builder *builder = create_wide(BLOCK, BLOCKS);
    cr_assert_eq(add(builder, 0, BLOCK * BLOCKS - 1, 1, list, BLOCKS), ATTN_OK, "%s", err.message);
    cr_assert_eq(add(builder, 0, BLOCK * BLOCKS - 2, 2, list, BLOCKS), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "seq_len", "%s", err.message);
    cr_assert_eq(add(builder, 0, BLOCK * BLOCKS - 3, 2, list, BLOCKS), ATTN_OK, "%s", err.message);
    attn_builder_destroy(builder);
}

/* Blocks are set at the end of a list or within it, not behind it. */
Test(builder, rows_have_no_gaps)
{
    const int64_t list[] = {7, 9}, more[] = {3};
    struct attn_builder *builder = create_wide(8, 8);
    struct attn_builder_row_args row;
    cr_assert_eq(add(builder, 0, 8, 1, list, 2), ATTN_OK, "%s", err.message);
    ATTN_INIT(&row);
    row.count = 1;
    row.blocks = more;
    row.first = 3;
    cr_assert_eq(attn_builder_set_row(builder, &row, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "first", "%s", err.message);
    row.first = 2;
    cr_assert_eq(attn_builder_set_row(builder, &row, &err), ATTN_OK, "%s", err.message);
    attn_builder_destroy(builder);
}
