/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A recorded step through a builder. */
#include "steps.h"

#include <stdlib.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What was recorded had 8 heads, 2 kv heads of 128, in float16. */
static int32_t make(const struct step *step, struct attn_builder **out, struct attn_error *err)
{
    static const char *const modalities[] = {"image"};
    struct attn_builder_group group = {0};
    struct attn_builder_params params;
    int64_t blocks = larger(step_longest(step), step->graph_blocks);
    int64_t tokens = step_tokens(step) + larger(step->pad, 0);

    ATTN_INIT(&params);
    group.block = (uint32_t)step->block;
    if (step->window >= 0) {
        group.given = ATTN_GIVEN_WINDOW;
        group.window = (uint32_t)step->window;
    }
    group.max_blocks = (uint32_t)blocks;
    group.graph_blocks = (uint32_t)step->graph_blocks;
    params.flavour = step->flavour;
    params.groups = 1;
    params.chunked = step->chunked;
    params.group = &group;
    params.max_seqs = (uint32_t)larger(larger(step_seqs(step), step->max_seqs), 1);
    /* A profile run has a slot for every token of a sequence, new or not. */
    for (size_t i = 0; i < step->count; i++)
        tokens = larger(tokens, 0) + step->sequence[i].orig_len;
    params.max_tokens = (uint32_t)larger(tokens, params.max_seqs);
    params.heads = 8;
    params.kv_heads = 2;
    params.head_dim = 128;
    params.q_dtype = ATTN_F16;
    params.kv_dtype = ATTN_F16;
    params.modalities = modalities;
    params.modality_count = 1;
    params.max_map = 1;
    return attn_builder_create(step->backend, &params, out, err);
}

/* A step of decodes whose blocks fill every row and are nowhere in the recording. */
static int32_t soil(const struct step *step, struct attn_builder *builder, struct attn_error *err)
{
    int64_t blocks = larger(step_longest(step), step->graph_blocks);
    int64_t rows = larger(step_seqs(step), step->max_seqs);
    int64_t *list = golden_memory((size_t)blocks, sizeof *list);
    struct attn_metadata *metadata;

    for (int64_t i = 0; i < blocks; i++)
        list[i] = 900000 + i;
    int32_t status = attn_builder_reset(builder, err);
    for (int64_t i = 0; i < rows && status == ATTN_OK; i++) {
        struct attn_builder_add_args args;
        struct attn_blocks given = {.kind = ATTN_BLOCKS_LIST, .count = (uint32_t)blocks, .blocks = list};
        ATTN_INIT(&args);
        args.context_len = (uint32_t)(blocks * step->block - 1);
        args.query_len = 1;
        args.blocks = &given;
        status = attn_builder_add(builder, &args, err);
    }
    if (status == ATTN_OK)
        status = attn_builder_build(builder, NULL, NULL, &metadata, err);
    free(list);
    return status;
}

static int32_t add(const struct step_sequence *sequence, struct attn_builder *builder, struct attn_error *err)
{
    struct attn_builder_add_args args;
    struct attn_blocks blocks = {.kind = sequence->kind,
                                 .count = (uint32_t)sequence->count,
                                 .blocks = sequence->blocks,
                                 .computed = (uint32_t)sequence->computed,
                                 .window_blocks = (uint32_t)sequence->window_blocks};

    ATTN_INIT(&args);
    if (sequence->seq_len != sequence->orig_len)
        blocks.seq_len = (uint32_t)sequence->seq_len;
    args.prompt = sequence->prompt;
    args.prefix_hit = sequence->hit;
    args.context_len = (uint32_t)sequence->context_len;
    args.query_len = (uint32_t)sequence->query_len;
    args.blocks = &blocks;
    return attn_builder_add(builder, &args, err);
}

int32_t step_build(const struct step *step, struct attn_builder **builder, struct attn_metadata **out,
                   struct attn_error *err)
{
    struct attn_builder_build_args args;
    int32_t status = make(step, builder, err);

    if (status == ATTN_OK)
        status = soil(step, *builder, err);
    if (status == ATTN_OK)
        status = attn_builder_reset(*builder, err);
    for (size_t i = 0; i < step->count && status == ATTN_OK; i++)
        status = add(&step->sequence[i], *builder, err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&args);
    args.graph = step->pad >= 0;
    args.pad = (uint32_t)larger(step->pad, 0);
    return attn_builder_build(*builder, &args, NULL, out, err);
}
