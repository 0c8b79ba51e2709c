/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Whole pages of each flavour's cache: shapes are the original's, and swaps and copies move the whole slab of
 * a page, keys and values alike, wherever the flavour puts them. (The original's FlashInfer flavour moved
 * half-blocks of the wrong axis.)
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "compat.h"

enum { PAGES = 6, BLOCK = 16, HEADS = 2, DIM = 64, ELEMENT = 2 };
enum { HALF = BLOCK * HEADS * DIM * ELEMENT }; /* bytes of a page's keys, or of its values */

struct fixture {
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_kv_shape shape;
    struct attn_error err;
};

static void fixture_open(struct fixture *fixture, const char *name)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;
    const char *text = "heads=4 kv_heads=2 head_dim=64 q=f16 block=16";

    memset(fixture, 0, sizeof *fixture);
    ATTN_INIT(&fixture->err);
    ATTN_INIT(&options);
    options.backend = name;
    if (strcmp(name, "cpu/rocm-flash") == 0)
        text = "heads=4 kv_heads=2 head_dim=64 q=f16 block=16 layout=paged-x";
    cr_assert_eq(attn_problem_parse(text, &problem, &fixture->err), ATTN_OK, "%s", fixture->err.message);
    cr_assert_eq(attn_context_create(NULL, &fixture->context, &fixture->err), ATTN_OK);
    int32_t status = attn_select(fixture->context, &problem, 1, &options, &decision, &fixture->err);
    cr_assert_eq(status, ATTN_OK, "%s: %s", name, fixture->err.message);
    cr_assert_eq(attn_backend_open(fixture->context, decision, NULL, &fixture->backend, &fixture->err),
                 ATTN_OK);
    attn_decision_destroy(decision);
    ATTN_INIT(&fixture->shape);
    cr_assert_eq(attn_kv_get_shape(fixture->backend, &problem, PAGES, &fixture->shape, &fixture->err),
                 ATTN_OK);
}

static void fixture_close(struct fixture *fixture)
{
    attn_backend_destroy(fixture->backend);
    attn_context_destroy(fixture->context);
}

static void make_cache(const struct fixture *fixture, unsigned char *memory, uint32_t seed,
                       struct attn_kv_desc *desc)
{
    struct attn_buffer buffer = {.data = memory};

    for (uint64_t i = 0; i < fixture->shape.bytes; i++)
        memory[i] = (unsigned char)((i * 2654435761U + seed) >> 13);
    attn_kv_desc_init(desc, &fixture->shape, &buffer);
}

/* Bytes of a page's keys (0) or values (1). */
static unsigned char *slab(const struct fixture *fixture, unsigned char *memory, uint32_t page, int values)
{
    const struct attn_kv_desc *desc = &fixture->shape.desc;

    return memory + (values ? fixture->shape.v_offset : fixture->shape.k_offset) +
           (int64_t)page * (values ? desc->v_page_stride : desc->k_page_stride);
}

static void expect_page(const struct fixture *fixture, unsigned char *at, uint32_t page, unsigned char *from,
                        uint32_t source)
{
    for (int values = 0; values < 2; values++)
        cr_expect_eq(memcmp(slab(fixture, at, page, values), slab(fixture, from, source, values), HALF), 0,
                     "%s: page %u is not page %u of before (%s)", attn_backend_get_name(fixture->backend),
                     page, source, values ? "values" : "keys");
}

static void check_shape(const struct fixture *fixture)
{
    struct compat_desc desc;
    struct compat_values values;

    ATTN_INIT(&desc);
    ATTN_INIT(&values);
    desc.questions = COMPAT_CACHE | COMPAT_VIEWS;
    desc.kv_heads = HEADS;
    desc.head_dim = DIM;
    desc.block = BLOCK;
    desc.pages = PAGES;
    desc.model_dtype = ATTN_F16;
    cr_assert_eq(compat_get_values(attn_backend_get_name(fixture->backend), &desc, &values, NULL), ATTN_OK);
    cr_expect_eq(fixture->shape.rank, values.cache_rank);
    for (uint32_t i = 0; i < values.cache_rank; i++)
        cr_expect_eq(fixture->shape.dims[i], values.cache_dims[i], "%s: dimension %u",
                     attn_backend_get_name(fixture->backend), i);
    cr_expect_eq((uint64_t)fixture->shape.desc.k_page_stride, values.key_strides[0] * ELEMENT);
    cr_expect_eq((uint64_t)fixture->shape.desc.v_page_stride, values.value_strides[0] * ELEMENT);
    cr_expect_eq(fixture->shape.bytes, (uint64_t)2 * PAGES * HALF);
}

/* Pages 1 and 4 to places 5 and 0 of another cache; everything else stays. */
static void check_swap(struct fixture *fixture)
{
    const int64_t pairs[] = {1, 5, 4, 0};
    unsigned char *from = malloc(fixture->shape.bytes);
    unsigned char *to = malloc(fixture->shape.bytes);
    unsigned char *before = malloc(fixture->shape.bytes);
    struct attn_kv_swap_blocks_args args;
    struct attn_kv_desc from_desc;
    struct attn_kv_desc to_desc;

    cr_assert(from != NULL && to != NULL && before != NULL);
    make_cache(fixture, from, 1, &from_desc);
    make_cache(fixture, to, 77, &to_desc);
    memcpy(before, to, fixture->shape.bytes);
    ATTN_INIT(&args);
    args.count = 2;
    args.from_desc = &from_desc;
    args.to_desc = &to_desc;
    args.pairs = pairs;
    args.kind = ATTN_COPY_TO_HOST;
    int32_t status = attn_kv_swap_blocks(fixture->backend, &args, NULL, &fixture->err);
    cr_assert_eq(status, ATTN_OK, "%s", fixture->err.message);
    expect_page(fixture, to, 5, from, 1);
    expect_page(fixture, to, 0, from, 4);
    for (uint32_t page = 1; page < 5; page++)
        expect_page(fixture, to, page, before, page);
    free(from);
    free(to);
    free(before);
}

/* A chain takes effect in order: what 0 held goes to 2, then on to 3 and 5. */
static void check_chain(struct fixture *fixture)
{
    int64_t pairs[] = {0, 2, 2, 3, 3, 5, 1, 1};
    unsigned char *cache = malloc(fixture->shape.bytes);
    unsigned char *before = malloc(fixture->shape.bytes);
    struct attn_kv_copy_blocks_args args;
    struct attn_kv_desc desc;
    const struct attn_kv_desc *descs[] = {&desc};

    cr_assert(cache != NULL && before != NULL);
    make_cache(fixture, cache, 5, &desc);
    memcpy(before, cache, fixture->shape.bytes);
    ATTN_INIT(&args);
    args.count = 4;
    args.layers = 1;
    args.kv_descs = descs;
    args.pairs.data = pairs;
    int32_t status = attn_kv_copy_blocks(fixture->backend, &args, NULL, &fixture->err);
    cr_assert_eq(status, ATTN_OK, "%s", fixture->err.message);
    for (uint32_t page = 0; page < PAGES; page++)
        expect_page(fixture, cache, page, before, page == 2 || page == 3 || page == 5 ? 0 : page);
    free(cache);
    free(before);
}

static void check_flavour(const char *name)
{
    struct fixture fixture;

    fixture_open(&fixture, name);
    check_shape(&fixture);
    check_swap(&fixture);
    check_chain(&fixture);
    fixture_close(&fixture);
}

Test(slabs, flash_attn)
{
    check_flavour("cpu/flash-attn");
}

Test(slabs, flashinfer)
{
    check_flavour("cpu/flashinfer");
}

Test(slabs, rocm_flash)
{
    check_flavour("cpu/rocm-flash");
}
