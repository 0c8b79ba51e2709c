/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Scales in host memory. A single value is part of a kernel's argument. An array is uploaded in the arguments
 * of small launches: it is read during the call, needs no pinned memory, and a graph captures its values.
 */
#include "scales.h"

#include "upload.h"

/* An array of the host: outer x token x head values. */
struct host_array {
    struct gpu_scale *scale;
    uint64_t counts[3];
    uint64_t offset; /* of the block, in values */
};

/* Counts the values; a dimension with stride 0 has one. */
static bool array_init(struct host_array *array, struct gpu_scale *scale, uint64_t outers, uint64_t tokens,
                       uint64_t heads, uint64_t *total)
{
    uint64_t count;

    array->scale = scale;
    array->offset = *total;
    array->counts[0] = scale->outer_stride != 0 ? outers : 1;
    array->counts[1] = scale->token_stride != 0 ? tokens : 1;
    array->counts[2] = scale->head_stride != 0 ? heads : 1;
    return !__builtin_mul_overflow(array->counts[0], array->counts[1], &count) &&
           !__builtin_mul_overflow(count, array->counts[2], &count) &&
           !__builtin_add_overflow(*total, count, total) && *total <= INT32_MAX;
}

static uint32_t find_arrays(struct gpu_run *run, const struct attn_kv_desc *cache, struct host_array *arrays,
                            uint64_t *total)
{
    const struct attn_problem *p = &run->problem;
    const bool is_new = p->kv_source == ATTN_KV_NEW; /* k and v of the run are then the new keys and values */
    const uint64_t pages = is_new ? run->batch.seqs : cache->pages;
    const uint64_t tokens = is_new ? run->batch.num_tokens : cache->block;
    const struct {
        struct gpu_scale *scale;
        uint64_t outers, tokens, heads;
    } all[GPU_HOST_SCALES] = {
        {&run->q_scale, run->batch.seqs, run->batch.num_tokens, p->heads / run->q_scale_group},
        {&run->out_scale, run->batch.seqs, run->batch.num_tokens, p->heads},
        {&run->k.scale, pages, tokens, p->kv_heads},
        {&run->v.scale, pages, tokens, p->kv_heads},
        {&run->k_new.scale, run->batch.seqs, run->batch.num_tokens, p->kv_heads},
        {&run->v_new.scale, run->batch.seqs, run->batch.num_tokens, p->kv_heads}};
    uint32_t count = 0;

    *total = 0;
    for (uint32_t i = 0; i < GPU_HOST_SCALES; i++)
        if (all[i].scale->host != 0 &&
            !array_init(&arrays[count++], all[i].scale, all[i].outers, all[i].tokens, all[i].heads, total))
            return UINT32_MAX;
    return count;
}

/* Uploads values in the order of their array, some with each launch. */
struct writer {
    const struct attn_plan_impl *plan;
    void *stream;
    struct gpu_upload upload;
};

static int32_t flush(struct writer *writer, struct attn_error *err)
{
    const uint32_t grid[3] = {1, 1, 1};

    if (writer->upload.count == 0)
        return ATTN_OK;
    int32_t status = gpu_launch(writer->plan->backend->context, writer->plan->upload, grid,
                                GPU_UPLOAD_THREADS, 0, &writer->upload, "gpu_put", writer->stream, err);
    writer->upload.to += writer->upload.count * sizeof(float);
    writer->upload.count = 0;
    return status;
}

static int32_t add_value(struct writer *writer, const void *from, struct attn_error *err)
{
    memcpy(&writer->upload.values[writer->upload.count++], from, sizeof(float));
    return writer->upload.count == GPU_UPLOAD_VALUES ? flush(writer, err) : ATTN_OK;
}

static int32_t add_array(struct writer *writer, const struct host_array *array, struct attn_error *err)
{
    const struct gpu_scale *scale = array->scale;
    const char *base = (const char *)(uintptr_t)scale->base;
    int32_t status = ATTN_OK;

    for (uint64_t outer = 0; outer < array->counts[0]; outer++) {
        for (uint64_t token = 0; token < array->counts[1]; token++) {
            for (uint64_t head = 0; head < array->counts[2] && status == ATTN_OK; head++)
                status =
                    add_value(writer,
                              base + (int64_t)outer * scale->outer_stride +
                                  (int64_t)token * scale->token_stride + (int64_t)head * scale->head_stride,
                              err);
        }
    }
    return status;
}

/* Points the run at the packed copy. */
static void point_to(const struct host_array *array, uint64_t block)
{
    struct gpu_scale *scale = array->scale;
    const int64_t size = sizeof(float);

    scale->host = 0;
    scale->base = block + array->offset * sizeof(float);
    scale->head_stride = scale->head_stride != 0 ? size : 0;
    scale->token_stride = scale->token_stride != 0 ? size * (int64_t)array->counts[2] : 0;
    scale->outer_stride =
        scale->outer_stride != 0 ? size * (int64_t)(array->counts[1] * array->counts[2]) : 0;
}

/* Whether only the device knows how many per-token scales the new keys and values have. */
static bool has_uncounted(const struct gpu_run *run)
{
    const bool per_token = (run->k.scale.host != 0 && run->k.scale.token_stride != 0) ||
                           (run->v.scale.host != 0 && run->v.scale.token_stride != 0);

    return per_token && run->problem.kv_source == ATTN_KV_NEW && run->batch.kv_starts != run->batch.q_offsets;
}

int32_t gpu_scales_place(const struct attn_plan_impl *plan, struct gpu_run *run,
                         const struct attn_kv_desc *cache, void *stream, uint64_t *out_block,
                         struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    struct host_array arrays[GPU_HOST_SCALES];
    uint64_t total;
    const uint32_t count = find_arrays(run, cache, arrays, &total);

    *out_block = 0;
    if (has_uncounted(run))
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, "tensors.k_new_scale",
            "with kv_offsets the scales of single tokens of k_new and v_new must be device memory, "
            "because their number is known on the device alone");
    if (count == 0)
        return ATTN_OK;
    if (count == UINT32_MAX)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, "tensors.q_scale",
            "scales in host memory are more than 2147483647 values; put them into device memory");
    int32_t status =
        gpu_check(context, context->driver->mem_alloc_async(out_block, total * sizeof(float), stream),
                  "tensors.q_scale", gpu_names.mem_alloc_async, err);
    if (status != ATTN_OK) {
        *out_block = 0;
        return status;
    }
    struct writer writer = {.plan = plan, .stream = stream, .upload = {.to = *out_block}};
    for (uint32_t i = 0; i < count && status == ATTN_OK; i++)
        status = add_array(&writer, &arrays[i], err);
    if (status == ATTN_OK)
        status = flush(&writer, err);
    for (uint32_t i = 0; i < count; i++)
        point_to(&arrays[i], *out_block);
    return status;
}

int32_t gpu_scales_release(const struct attn_plan_impl *plan, uint64_t block, void *stream, int32_t status,
                           struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;

    if (block == 0 || gpu_is_lost(context))
        return status;
    gpu_result result = context->driver->mem_free_async(block, stream);
    return status != ATTN_OK ? status
                             : gpu_check(context, result, "tensors.q_scale", gpu_names.mem_free_async, err);
}
