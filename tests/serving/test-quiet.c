/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* After the first step a builder allocates nothing, whatever the step is. */
#include <stdio.h>

#include "allocations.h"
#include "attn/layer.h"

#define SEQS   64u
#define BLOCKS 40u

static struct attn_error err;
static int64_t lists[SEQS][BLOCKS];

static int32_t add(struct attn_builder *builder, uint32_t row, uint32_t prompt, uint32_t context,
                   uint32_t query)
{
    const uint32_t count = (context + query + 15) / 16;
    const struct attn_blocks blocks = {
        .kind = ATTN_BLOCKS_LIST, .count = count, .blocks = lists[row], .unchanged = count - 1};
    struct attn_builder_add_args args;

    ATTN_INIT(&args);
    args.given = ATTN_GIVEN_ROW;
    args.row = row;
    args.prompt = prompt;
    args.context_len = context;
    args.query_len = query;
    args.blocks = &blocks;
    return attn_builder_add(builder, &args, &err);
}

static int32_t run_step(struct attn_builder *builder, uint32_t step)
{
    const int64_t changed = 7 + (int64_t)step;
    const uint32_t prompts = step % 3 == 0 ? 2 : 0;
    struct attn_builder_build_args build;
    struct attn_builder_row_args row;
    struct attn_metadata *metadata;
    int32_t status = attn_builder_reset(builder, &err);

    for (uint32_t i = 0; i < SEQS - 8 && status == ATTN_OK; i++)
        status = i < prompts ? add(builder, i, 1, 0, 100 + step) : add(builder, i, 0, 50 + step, 1);
    ATTN_INIT(&row);
    row.row = SEQS - 9;
    row.count = 1;
    row.blocks = &changed;
    if (status == ATTN_OK)
        status = attn_builder_set_row(builder, &row, &err);
    ATTN_INIT(&build);
    build.graph = prompts == 0;
    build.pad = prompts == 0 ? 8 : 0;
    return status == ATTN_OK ? attn_builder_build(builder, &build, NULL, &metadata, &err) : status;
}

static int run_flavour(uint32_t flavour)
{
    const struct attn_builder_group group = {.block = 16, .max_blocks = BLOCKS};
    struct attn_builder_params params;
    struct attn_builder *builder;
    uint64_t before = 0;
    int32_t status;

    ATTN_INIT(&params);
    params.flavour = flavour;
    params.chunked = 1;
    params.group = &group;
    params.max_seqs = SEQS;
    params.max_tokens = 2048;
    status = attn_builder_create(NULL, &params, &builder, &err);
    for (uint32_t step = 0; step < 300 && status == ATTN_OK; step++) {
        status = run_step(builder, step);
        before = step == 0 ? allocations_made() : before;
    }
    const uint64_t made = allocations_made() - before;
    attn_builder_destroy(builder);
    printf("%s %u - %s: %llu allocations in 299 steps%s%s\n",
           status == ATTN_OK && made == 0 ? "ok" : "not ok", flavour, attn_flavour_name(flavour),
           (unsigned long long)made, status == ATTN_OK ? "" : "; ", status == ATTN_OK ? "" : err.message);
    return status == ATTN_OK && made == 0;
}

int main(void)
{
    int good = 1;

    ATTN_INIT(&err);
    for (uint32_t i = 0; i < SEQS * BLOCKS; i++)
        lists[i / BLOCKS][i % BLOCKS] = i;
    if (!allocations_counted()) {
        printf("1..0 # SKIP the allocator belongs to a sanitizer or is not the C library's\n");
        return 0;
    }
    printf("1..4\n");
    for (uint32_t flavour = ATTN_FLASH_ATTN; flavour <= ATTN_XFORMERS; flavour++)
        good = run_flavour(flavour) && good;
    return good != 0 ? 0 : 1;
}
