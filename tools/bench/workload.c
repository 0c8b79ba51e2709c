/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocates and fills everything that a measured step needs. */
#include "workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fill.h"
#include "machine.h"
#include "output.h"

enum { FILL_BYTES = 8 << 20, COPY_LEAST = 64 << 20, COPY_MOST = 1 << 30 };

/* ---------------------------------------------------------------- memory */

int32_t workload_alloc(struct workload *workload, uint64_t size, struct attn_buffer *out,
                       struct attn_error *err)
{
    if (size == 0)
        return ATTN_OK;
    int32_t status = attn_memory_alloc(workload->backend, size, out, err);
    if (status == ATTN_OK)
        workload->buffers[workload->buffer_count++] = *out;
    return status;
}

/* Copies a block of host memory again and again until `size` bytes of the device are written. */
static int32_t repeat_upload(struct workload *workload, const void *block, uint64_t block_size,
                             const struct attn_buffer *to, uint64_t size, struct attn_error *err)
{
    struct attn_buffer host = {(void *)(uintptr_t)block, 0};
    int32_t status = ATTN_OK;

    for (uint64_t done = 0; done < size && status == ATTN_OK; done += block_size) {
        struct attn_buffer part = {to->data, to->byte_offset + done};
        status = attn_memory_copy(workload->backend, &part, &host,
                                  size - done < block_size ? size - done : block_size, ATTN_COPY_TO_DEVICE,
                                  workload->stream, err);
    }
    if (status == ATTN_OK)
        status = attn_stream_synchronize(workload->backend, workload->stream, err);
    return status;
}

int32_t workload_upload(struct workload *workload, const void *from, uint64_t size, struct attn_buffer *out,
                        struct attn_error *err)
{
    int32_t status = workload_alloc(workload, size, out, err);

    return status == ATTN_OK ? repeat_upload(workload, from, size, out, size, err) : status;
}

int32_t workload_download(struct workload *workload, const struct attn_buffer *from, void *to, uint64_t size,
                          struct attn_error *err)
{
    struct attn_buffer host = {to, 0};
    int32_t status =
        attn_memory_copy(workload->backend, &host, from, size, ATTN_COPY_TO_HOST, workload->stream, err);

    return status == ATTN_OK ? attn_stream_synchronize(workload->backend, workload->stream, err) : status;
}

/* Fills a device buffer with random numbers of a type. */
static int32_t fill_buffer(struct workload *workload, uint32_t dtype, const struct attn_buffer *to,
                           uint64_t size, uint64_t seed, struct attn_error *err)
{
    uint64_t block_size = size < FILL_BYTES ? size : FILL_BYTES;
    void *block = need_memory(NULL, block_size, 1);
    const uint32_t element = attn_block_bytes(dtype) != 0 ? 1 : attn_dtype_size(dtype); /* blocks: bytes */
    int32_t status = ATTN_E_INVALID;

    if (fill_random(dtype, block, block_size / element, seed))
        status = repeat_upload(workload, block, block_size, to, size, err);
    free(block);
    return status;
}

/* ---------------------------------------------------------------- caches */

static int32_t layer_init(struct workload *workload, uint32_t layer, struct attn_error *err)
{
    const struct attn_problem *problem = &workload->problem;
    const bool v_blocks = attn_block_bytes(problem->v_dtype) != 0; /* their bytes are numbers of any type */
    struct attn_kv_desc desc;
    int32_t status =
        attn_memory_alloc(workload->backend, workload->shape.bytes, &workload->cache[layer], err);

    if (status == ATTN_OK)
        status = fill_buffer(workload, v_blocks ? problem->v_dtype : problem->k_dtype,
                             &workload->cache[layer], workload->shape.bytes, layer + 1, err);
    if (status != ATTN_OK)
        return status;
    attn_kv_desc_init(&desc, &workload->shape, &workload->cache[layer]);
    status = cache_scales_init(workload, layer, &desc, err);
    if (status != ATTN_OK)
        return status;
    if (layer == 0)
        workload->desc = desc;
    return attn_kv_create(workload->backend, &desc, &workload->kv[layer], err);
}

/*
 * So many layers that no cache holds what a round reads of them. Where a window or a mask leaves little of a
 * long sequence to read, half of the memory that is there bounds them.
 */
static uint32_t cold_layers(const struct workload *workload)
{
    const double wanted = (double)machine_cold_set() / fmax(case_key_bytes(workload->the_case), 1e5);
    const double most = (double)machine_memory() / 2 / (double)workload->shape.bytes;

    return (uint32_t)ceil(machine_memory() == 0 ? wanted : fmin(wanted, most));
}

static int32_t cache_init(struct workload *workload, struct attn_error *err)
{
    const struct bench_case *the_case = workload->the_case;

    ATTN_INIT(&workload->shape);
    int32_t status = attn_kv_get_shape(workload->backend, &workload->problem, (uint32_t)workload->sizes.pages,
                                       &workload->shape, err);
    if (status != ATTN_OK)
        return status;
    workload->layers = the_case->layers;
    if (workload->layers == 0 && strcmp(the_case->mode, "prefill") != 0)
        workload->layers = cold_layers(workload);
    if (workload->layers == 0)
        workload->layers = 1;
    workload->cache = need_memory(NULL, workload->layers, sizeof *workload->cache);
    workload->scale = need_memory(NULL, workload->layers, 2 * sizeof *workload->scale);
    workload->kv = need_memory(NULL, workload->layers, sizeof(struct attn_kv *));
    memset(workload->scale, 0, workload->layers * 2 * sizeof *workload->scale);
    memset(workload->cache, 0, workload->layers * sizeof *workload->cache);
    memset(workload->kv, 0, workload->layers * sizeof(struct attn_kv *));
    for (uint32_t i = 0; i < workload->layers && status == ATTN_OK; i++)
        status = layer_init(workload, i, err);
    return status;
}

/* ---------------------------------------------------------------- tensors and plan */

static int32_t tensor_init(struct workload *workload, struct attn_tensor *tensor, uint32_t dtype,
                           uint32_t dim, uint64_t seed, struct attn_error *err)
{
    uint64_t element = attn_dtype_size(dtype);
    uint64_t size = (uint64_t)workload->batch.num_tokens * workload->problem.heads * dim * element;
    int32_t status = workload_alloc(workload, size, &tensor->buffer, err);

    tensor->head_stride = (int64_t)(dim * element);
    tensor->token_stride = (int64_t)(workload->problem.heads * dim * element);
    return status == ATTN_OK ? fill_buffer(workload, dtype, &tensor->buffer, size, seed, err) : status;
}

/* Slopes as the ALiBi paper has them for a power of two, and sinks: f32 [heads] each. */
static int32_t head_values(struct workload *workload, bool slopes, struct attn_buffer *out,
                           struct attn_error *err)
{
    uint32_t heads = workload->problem.heads;
    float *values = need_memory(NULL, heads, sizeof *values);

    for (uint32_t i = 0; i < heads; i++)
        values[i] = slopes ? exp2f(-8.0f * (float)(i + 1) / (float)heads) : 0.5f;
    int32_t status = workload_upload(workload, values, (uint64_t)heads * 4, out, err);
    free(values);
    return status;
}

static int32_t tensors_init(struct workload *workload, struct attn_error *err)
{
    const struct attn_problem *problem = &workload->problem;
    struct attn_tensors *tensors = &workload->tensors;
    int32_t status;

    ATTN_INIT(tensors);
    tensors->softmax_scale = 1.0f / sqrtf((float)problem->head_dim);
    status = tensor_init(workload, &tensors->q, problem->q_dtype, problem->head_dim, 1000, err);
    if (status == ATTN_OK)
        status = tensor_init(workload, &tensors->out, problem->out_dtype, problem->head_dim_vo, 1001, err);
    if (status == ATTN_OK && problem->lse)
        status = tensor_init(workload, &tensors->lse, ATTN_F32, 1, 1002, err);
    if (status == ATTN_OK && problem->alibi != ATTN_ALIBI_NONE)
        status = head_values(workload, true, &tensors->alibi_slopes, err);
    if (status == ATTN_OK && problem->sinks) {
        tensors->sinks_dtype = ATTN_F32;
        status = head_values(workload, false, &tensors->sinks, err);
    }
    if (status == ATTN_OK)
        status = mask_init(workload, err);
    return status == ATTN_OK ? tensor_scales_init(workload, err) : status;
}

static int32_t plan_init(struct workload *workload, struct attn_error *err)
{
    struct attn_plan_sizes sizes;
    int32_t status = attn_plan_create(workload->backend, &workload->problem, &workload->plan, err);

    ATTN_INIT(&sizes);
    ATTN_INIT(&workload->scratch);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(workload->plan, &sizes, err);
    if (status == ATTN_OK)
        status = workload_alloc(workload, sizes.schedule, &workload->schedule.buffer, err);
    if (status == ATTN_OK)
        status = workload_alloc(workload, sizes.scratch, &workload->scratch.scratch.buffer, err);
    if (status == ATTN_OK)
        status = workload_alloc(workload, sizes.counters, &workload->scratch.counters.buffer, err);
    if (status != ATTN_OK)
        return status;
    workload->schedule.size = sizes.schedule;
    workload->scratch.scratch.size = sizes.scratch;
    workload->scratch.counters.size = sizes.counters;
    workload->scratch.counters_dirty = sizes.counters != 0;
    workload->staging.size = sizes.staging;
    if (sizes.staging != 0) {
        status =
            attn_memory_alloc_pinned(workload->backend, sizes.staging, &workload->staging.buffer.data, err);
        if (status != ATTN_OK)
            return status;
    }
    return attn_plan_prepare(workload->plan, &workload->batch, &workload->schedule,
                             sizes.staging != 0 ? &workload->staging : NULL, workload->stream, err);
}

int32_t workload_init(struct workload *workload, const struct bench_case *the_case,
                      struct attn_backend *backend, struct attn_error *err)
{
    int32_t status;

    *workload = (struct workload){.the_case = the_case, .backend = backend, .problem = the_case->problem};
    case_measure(the_case, &workload->sizes);
    workload->problem.max_seqs = the_case->seqs;
    workload->problem.max_q = workload->sizes.max_q;
    workload->problem.max_kv = workload->sizes.max_kv;
    workload->problem.max_rows = (uint32_t)workload->sizes.rows;
    /* A backend without streams of its own takes NULL. */
    if (attn_stream_create(backend, &workload->stream, NULL) != ATTN_OK)
        workload->stream = NULL;
    status = cache_init(workload, err);
    if (status == ATTN_OK)
        status = batch_init(workload, err);
    if (status == ATTN_OK)
        status = tensors_init(workload, err);
    if (status == ATTN_OK)
        status = plan_init(workload, err);
    return status;
}

void workload_finish(struct workload *workload)
{
    attn_plan_destroy(workload->plan);
    for (uint32_t i = 0; i < workload->layers && workload->kv != NULL; i++) {
        attn_kv_destroy(workload->kv[i]);
        attn_memory_free(workload->backend, &workload->cache[i]);
        for (uint32_t k = 0; k < 2; k++)
            if (workload->scale[2 * i + k].data != NULL)
                attn_memory_free(workload->backend, &workload->scale[2 * i + k]);
    }
    for (uint32_t i = 0; i < workload->buffer_count; i++)
        attn_memory_free(workload->backend, &workload->buffers[i]);
    if (workload->staging.buffer.data != NULL)
        attn_memory_free_pinned(workload->backend, workload->staging.buffer.data);
    if (workload->stream != NULL)
        attn_stream_destroy(workload->backend, workload->stream);
    free(workload->cache);
    free(workload->scale);
    free(workload->kv);
    batch_finish(workload);
}

int32_t workload_run(struct workload *workload, uint32_t layer, struct attn_error *err)
{
    workload->tensors.kv = workload->kv[layer];
    int32_t status = attn_plan_run(workload->plan, &workload->batch, &workload->tensors, &workload->schedule,
                                   &workload->scratch, workload->stream, err);
    workload->scratch.counters_dirty = 0;
    return status == ATTN_OK ? attn_stream_synchronize(workload->backend, workload->stream, err) : status;
}

int32_t workload_copy(struct workload *workload, double *out_rate, struct attn_error *err)
{
    const uint64_t cache = workload->shape.bytes;
    const uint64_t size = cache < COPY_LEAST ? COPY_LEAST : cache < COPY_MOST ? cache : COPY_MOST;

    *out_rate = NAN;
    for (int i = 0; i < 2; i++)
        if (workload->copies[i].data == NULL &&
            workload_alloc(workload, size, &workload->copies[i], NULL) != ATTN_OK)
            return ATTN_OK; /* a device that is full is measured without */
    const double start = machine_now();
    int32_t status = attn_memory_copy(workload->backend, &workload->copies[1], &workload->copies[0], size,
                                      ATTN_COPY_ON_DEVICE, workload->stream, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(workload->backend, workload->stream, err);
    *out_rate = 2e-9 * (double)size / (machine_now() - start);
    return status;
}
