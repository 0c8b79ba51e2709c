/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scales of 8-bit operands: values between a half and one, or 1 where the problem says unit. */
#include <stdlib.h>

#include "output.h"
#include "workload.h"

/* Values of a scale: one, one per head, or one per token and head. */
static uint64_t value_count(uint32_t granularity, uint64_t tokens, uint32_t heads)
{
    return granularity == ATTN_SCALES_TENSOR       ? 1
           : granularity == ATTN_SCALES_TOKEN_HEAD ? tokens * heads
                                                   : heads;
}

/* Uploads values to memory that is there. */
static int32_t fill_values(struct workload *workload, const struct attn_buffer *to, uint64_t count,
                           double largest, uint64_t seed, struct attn_error *err)
{
    struct attn_buffer host = {need_memory(NULL, count, sizeof(float)), 0};

    for (uint64_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((float *)host.data)[i] = (float)(largest * (0.5 + 0.5 * (double)(seed >> 40) / (1 << 24)));
    }
    int32_t status = attn_memory_copy(workload->backend, to, &host, count * sizeof(float),
                                      ATTN_COPY_TO_DEVICE, workload->stream, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(workload->backend, workload->stream, err);
    free(host.data);
    return status;
}

static void scale_lay_out(struct attn_scale *scale, uint32_t granularity, uint32_t block, uint32_t heads)
{
    const int64_t size = sizeof(float);
    bool per_token = granularity == ATTN_SCALES_TOKEN_HEAD;

    scale->kind = ATTN_SCALE_DEVICE;
    scale->granularity = granularity;
    scale->head_stride = granularity == ATTN_SCALES_TENSOR ? 0 : size;
    scale->token_stride = per_token ? size * heads : 0;
    scale->outer_stride = per_token ? size * heads * block : 0;
}

static const struct attn_scale unit = {.kind = ATTN_SCALE_UNIT, .granularity = ATTN_SCALES_UNIT};

uint64_t cache_scale_size(const struct workload *workload, uint32_t granularity)
{
    const struct attn_kv_desc *desc = &workload->shape.desc;

    return sizeof(float) * value_count(granularity, (uint64_t)desc->pages * desc->block, desc->kv_heads);
}

int32_t cache_scales_init(struct workload *workload, uint32_t layer, struct attn_kv_desc *desc,
                          struct attn_error *err)
{
    const struct attn_problem *problem = &workload->problem;
    const uint32_t granularity[] = {problem->k_scale, problem->mla ? ATTN_SCALES_NONE : problem->v_scale};
    struct attn_scale *const scales[] = {&desc->k_scale, &desc->v_scale};
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < 2 && status == ATTN_OK; i++) {
        struct attn_buffer *memory = &workload->scale[2 * layer + i];
        if (granularity[i] == ATTN_SCALES_UNIT)
            *scales[i] = unit;
        if (granularity[i] <= ATTN_SCALES_UNIT)
            continue;
        uint64_t size = cache_scale_size(workload, granularity[i]);
        status = attn_memory_alloc(workload->backend, size, memory, err);
        if (status == ATTN_OK)
            status = fill_values(workload, memory, size / sizeof(float), 1, 2 * layer + i, err);
        scales[i]->buffer = *memory;
        scale_lay_out(scales[i], granularity[i], desc->block, desc->kv_heads);
    }
    return status;
}

uint64_t tensor_scale_size(const struct workload *workload, uint32_t granularity)
{
    const struct attn_problem *problem = &workload->problem;
    uint32_t heads = granularity == ATTN_SCALES_KV_HEAD ? problem->kv_heads : problem->heads;

    return sizeof(float) * value_count(granularity, workload->batch.num_tokens, heads);
}

/* Results are means of many values, so that an int8 code needs a small scale to have digits. */
int32_t tensor_scales_init(struct workload *workload, struct attn_error *err)
{
    const struct attn_problem *problem = &workload->problem;
    const uint32_t granularity[] = {problem->q_scale, problem->out_scale};
    struct attn_scale *const scales[] = {&workload->tensors.q_scale, &workload->tensors.out_scale};
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < 2 && status == ATTN_OK; i++) {
        if (granularity[i] == ATTN_SCALES_UNIT)
            *scales[i] = unit;
        if (granularity[i] <= ATTN_SCALES_UNIT)
            continue;
        uint64_t size = tensor_scale_size(workload, granularity[i]);
        status = workload_alloc(workload, size, &scales[i]->buffer, err);
        if (status == ATTN_OK)
            status = fill_values(workload, &scales[i]->buffer, size / sizeof(float),
                                 i == 1 && problem->out_dtype == ATTN_INT8 ? 1.0 / 64 : 1, 1000 + i, err);
        scale_lay_out(scales[i], granularity[i], 0, problem->heads);
    }
    return status;
}
