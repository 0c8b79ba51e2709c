/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench metadata: what the bookkeeping of a step costs on the host, before any kernel. */
#include <stdlib.h>
#include <string.h>

#include "attn/input.h"
#include "attn/layer.h"
#include "bench.h"
#include "machine.h"

enum {
    DEFAULT_SEQS = 256,
    DEFAULT_CTX = 32768,
    DEFAULT_REPS = 1000,
    BLOCK = 16,
    WARM_UPS = 64, /* every row has got a new block four times */
    PREFILL = 8192,
    BATCHED = 16 /* slot mappings between two looks at the clock */
};

/* Sequences that decode one token a step; their lengths differ, so that not all get a block at once. */
struct decode {
    struct attn_builder *builder;
    int64_t *blocks; /* [seqs][most] */
    uint32_t most;   /* blocks of a sequence at the end */
    uint32_t seqs;
    uint32_t ctx;
};

static uint32_t length_of(const struct decode *decode, uint32_t sequence, uint32_t step)
{
    return decode->ctx + step - sequence % BLOCK;
}

/* The metadata of step `step`: only cells that are new since the last one are given as changed. */
static int32_t run_step(struct decode *decode, uint32_t step, struct attn_error *err)
{
    struct attn_metadata *metadata;
    struct attn_builder_add_args args;
    struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST};
    int32_t status = attn_builder_reset(decode->builder, err);

    ATTN_INIT(&args);
    args.given = ATTN_GIVEN_ROW;
    args.query_len = 1;
    args.blocks = &blocks;
    for (uint32_t i = 0; i < decode->seqs && status == ATTN_OK; i++) {
        uint32_t length = length_of(decode, i, step);
        args.row = i;
        args.context_len = length - 1;
        blocks.blocks = decode->blocks + (size_t)i * decode->most;
        blocks.count = (length + BLOCK - 1) / BLOCK;
        blocks.unchanged = step == 0 ? 0 : (length - 1 + BLOCK - 1) / BLOCK;
        status = attn_builder_add(decode->builder, &args, err);
    }
    return status == ATTN_OK ? attn_builder_build(decode->builder, NULL, NULL, &metadata, err) : status;
}

static int32_t decode_create(struct decode *decode, struct attn_backend *backend, uint32_t steps,
                             struct attn_error *err)
{
    struct attn_builder_group group = {0};
    struct attn_builder_params params;

    decode->most = (decode->ctx + steps + BLOCK - 1) / BLOCK;
    decode->blocks = need_memory(NULL, (size_t)decode->seqs * decode->most, sizeof *decode->blocks);
    /* Blocks of a sequence lie far from each other, as in a cache that has been used for a while. */
    for (size_t i = 0; i < (size_t)decode->seqs * decode->most; i++)
        decode->blocks[i] = (int64_t)(i * 7919 % 1000003);
    ATTN_INIT(&params);
    group.block = BLOCK;
    group.max_blocks = decode->most;
    params.groups = 1;
    params.group = &group;
    params.max_seqs = decode->seqs;
    params.max_tokens = decode->seqs;
    params.heads = 32;
    params.kv_heads = 8;
    params.head_dim = 128;
    params.q_dtype = ATTN_F16;
    params.kv_dtype = ATTN_F16;
    return attn_builder_create(backend, &params, &decode->builder, err);
}

static int32_t measure_decode(struct bench *bench, struct attn_backend *backend, const char *problem,
                              uint32_t reps, struct attn_error *err)
{
    struct decode decode = {.seqs = bench->keys.seqs != 0 ? bench->keys.seqs : DEFAULT_SEQS,
                            .ctx = bench->keys.ctx != 0 ? bench->keys.ctx : DEFAULT_CTX};
    double *seconds = need_memory(NULL, reps, sizeof *seconds);
    char name[96];
    struct row row;

    if (decode.ctx < BLOCK)
        decode.ctx = BLOCK;
    snprintf(name, sizeof name, "metadata_decode_%u", decode.seqs);
    row_init(&row, name, "metadata");
    int32_t status = decode_create(&decode, backend, reps + WARM_UPS, err);
    for (uint32_t i = 0; i < WARM_UPS && status == ATTN_OK; i++)
        status = run_step(&decode, i, err);
    for (uint32_t i = 0; i < reps && status == ATTN_OK; i++) {
        double begin = machine_now();
        status = run_step(&decode, WARM_UPS + i, err);
        seconds[i] = machine_now() - begin;
    }
    if (status == ATTN_OK) {
        snprintf(row.backend, sizeof row.backend, "%s", attn_backend_get_name(backend));
        snprintf(row.problem, sizeof row.problem, "%s", problem);
        snprintf(row.batch, sizeof row.batch, "%ux1/%u", decode.seqs, decode.ctx);
        row_set_times(&row, seconds, reps);
        bench_emit(bench, &row);
    }
    attn_builder_destroy(decode.builder);
    free(decode.blocks);
    free(seconds);
    return status;
}

/* One prompt, none of it in the cache. */
static int32_t measure_slots(struct bench *bench, uint32_t reps, struct attn_error *err)
{
    struct attn_slot_args args;
    int64_t *slots = need_memory(NULL, PREFILL, sizeof *slots);
    int64_t *blocks = need_memory(NULL, PREFILL / BLOCK, sizeof *blocks);
    double *seconds = need_memory(NULL, reps, sizeof *seconds);
    uint64_t count;
    struct row row;
    int32_t status = ATTN_OK;

    for (int64_t i = 0; i < PREFILL / BLOCK; i++)
        blocks[i] = i * 7919 % 1000003;
    ATTN_INIT(&args);
    args.seq_len = PREFILL;
    args.block = BLOCK;
    args.block_dtype = ATTN_INT64;
    args.blocks = blocks;
    args.block_count = PREFILL / BLOCK;
    row_init(&row, "slot_mapping_8192", "metadata");
    for (uint32_t i = 0; i < WARM_UPS + reps && status == ATTN_OK; i++) {
        double begin = machine_now();
        for (uint32_t j = 0; j < BATCHED && status == ATTN_OK; j++)
            status = attn_slot_mapping(&args, slots, PREFILL, &count, err);
        if (i >= WARM_UPS)
            seconds[i - WARM_UPS] = (machine_now() - begin) / BATCHED;
    }
    if (status == ATTN_OK) {
        snprintf(row.batch, sizeof row.batch, "1x%u/%u", PREFILL, PREFILL);
        row_set_times(&row, seconds, reps);
        bench_emit(bench, &row);
    }
    free(slots);
    free(blocks);
    free(seconds);
    return status;
}

int metadata_mode(struct bench *bench)
{
    uint32_t reps = bench->keys.reps != 0 ? bench->keys.reps : DEFAULT_REPS;
    const char *text = "heads=32 kv_heads=8 head_dim=128 q=f16 block=16";
    struct attn_context *context = NULL;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    int32_t status = attn_problem_parse(text, &problem, &err);
    if (status == ATTN_OK)
        status = attn_context_create(NULL, &context, &err);
    if (status == ATTN_OK)
        status = attn_select(context, &problem, 1, NULL, &decision, &err);
    if (status == ATTN_OK)
        status = attn_backend_open(context, decision, NULL, &backend, &err);
    if (status == ATTN_OK)
        status = measure_decode(bench, backend, text, reps, &err);
    if (status == ATTN_OK)
        status = measure_slots(bench, reps, &err);
    if (status != ATTN_OK)
        bench_complain(bench, "metadata", err.message);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}
