/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares the results of a measured step with the double-precision oracle, on query tokens picked over the
 * batch. */
#include <math.h>
#include <stdlib.h>

#include "oracle.h"
#include "output.h"
#include "workload.h"

enum { SAMPLES = 24 };

/* The (query token, head) pairs to compare. */
struct samples {
    uint32_t count;
    uint32_t row[SAMPLES];
    uint32_t head[SAMPLES];
};

/* Query tokens at equal distances in the batch, and in between last tokens of sequences, so that a decoding
 * sequence among long chunks is met too. */
static void samples_init(struct samples *samples, const struct workload *workload)
{
    uint32_t rows = workload->batch.num_tokens, seqs = workload->batch.seqs, heads = workload->problem.heads;

    samples->count = SAMPLES;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t seq = (uint32_t)((uint64_t)(i / 2) * (seqs - 1) / (SAMPLES / 2 - 1));
        samples->row[i] = i % 2 != 0 ? (uint32_t)workload->q_offsets[seq + 1] - 1
                                     : (uint32_t)((uint64_t)i * (rows - 1) / (SAMPLES - 2));
        samples->head[i] = i * 7 % heads;
    }
}

static bool is_sampled(void *user, uint32_t row, uint32_t head)
{
    const struct samples *samples = user;

    for (uint32_t i = 0; i < samples->count; i++)
        if (samples->row[i] == row && samples->head[i] == head)
            return true;
    return false;
}

/* The step in host memory. */
struct mirror {
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    void *memory[16];
    unsigned count;
};

/* Host copy of a device buffer; absent ones stay absent. */
static bool mirror_buffer(struct mirror *mirror, struct workload *workload, struct attn_buffer *buffer,
                          uint64_t size)
{
    if (buffer->data == NULL)
        return true;
    void *memory = need_memory(NULL, size, 1);
    mirror->memory[mirror->count++] = memory;
    int32_t status = workload_download(workload, buffer, memory, size, NULL);
    *buffer = (struct attn_buffer){memory, 0};
    return status == ATTN_OK;
}

static bool mirror_scale(struct mirror *mirror, struct workload *workload, struct attn_scale *scale,
                         uint64_t size)
{
    return scale->kind != ATTN_SCALE_DEVICE || mirror_buffer(mirror, workload, &scale->buffer, size);
}

/* The cache of layer 0, and all scales. */
static bool mirror_cache(struct mirror *mirror, struct workload *workload)
{
    const struct attn_problem *problem = &workload->problem;
    struct attn_buffer cache = workload->cache[0];
    struct attn_scale k_scale = workload->desc.k_scale, v_scale = workload->desc.v_scale;

    if (!mirror_buffer(mirror, workload, &cache, workload->shape.bytes) ||
        !mirror_scale(mirror, workload, &k_scale, cache_scale_size(workload, problem->k_scale)) ||
        !mirror_scale(mirror, workload, &v_scale, cache_scale_size(workload, problem->v_scale)))
        return false;
    attn_kv_desc_init(&mirror->kv, &workload->shape, &cache);
    mirror->kv.k_scale = k_scale;
    mirror->kv.v_scale = v_scale;
    mirror->tensors.kv = NULL;
    mirror->tensors.kv_desc = &mirror->kv;
    return mirror_scale(mirror, workload, &mirror->tensors.q_scale,
                        tensor_scale_size(workload, problem->q_scale)) &&
           mirror_scale(mirror, workload, &mirror->tensors.out_scale,
                        tensor_scale_size(workload, problem->out_scale));
}

static bool mirror_init(struct mirror *mirror, struct workload *workload)
{
    const struct attn_problem *problem = &workload->problem;
    const struct attn_batch_host *host = &workload->host;
    uint64_t heads = problem->heads, rows = workload->batch.num_tokens;

    *mirror = (struct mirror){.batch = workload->batch, .tensors = workload->tensors};
    mirror->batch.q_offsets = (struct attn_buffer){workload->q_offsets, 0};
    mirror->batch.kv_lens = (struct attn_buffer){workload->kv_lens, 0};
    mirror->batch.kv_global_lens = (struct attn_buffer){workload->kv_global_lens, 0};
    mirror->batch.table = (struct attn_buffer){host->table != NULL ? workload->table : NULL, 0};
    mirror->batch.csr_indptr = (struct attn_buffer){workload->indptr, 0};
    mirror->batch.csr_indices = (struct attn_buffer){(void *)(uintptr_t)host->csr_indices, 0};
    return mirror_cache(mirror, workload) &&
           mirror_buffer(mirror, workload, &mirror->tensors.q.buffer,
                         rows * heads * problem->head_dim * attn_dtype_size(problem->q_dtype)) &&
           mirror_buffer(mirror, workload, &mirror->tensors.out.buffer,
                         rows * heads * problem->head_dim_vo * attn_dtype_size(problem->out_dtype)) &&
           mirror_buffer(mirror, workload, &mirror->tensors.lse.buffer, rows * heads * 4) &&
           mirror_buffer(mirror, workload, &mirror->tensors.alibi_slopes, heads * 4) &&
           mirror_buffer(mirror, workload, &mirror->tensors.sinks, heads * 4) &&
           mirror_buffer(mirror, workload, &mirror->tensors.mask, workload->mask_bytes);
}

static void mirror_finish(struct mirror *mirror)
{
    for (unsigned i = 0; i < mirror->count; i++)
        free(mirror->memory[i]);
}

static double compare(const struct mirror *mirror, const struct attn_problem *problem,
                      const struct samples *samples, const struct oracle_result *result)
{
    uint32_t dim = problem->head_dim_vo;
    double *got = need_memory(NULL, dim, sizeof *got), difference = 0, reference = 0;

    for (uint32_t i = 0; i < samples->count; i++) {
        const struct attn_tensor *out = &mirror->tensors.out;
        const double *want =
            result->out + ((uint64_t)samples->row[i] * problem->heads + samples->head[i]) * dim;
        oracle_load(problem->out_dtype,
                    oracle_address(&out->buffer) + samples->row[i] * out->token_stride +
                        samples->head[i] * out->head_stride,
                    dim, got);
        double scale = oracle_scale(&mirror->tensors.out_scale, problem->out_scale, 0, samples->row[i],
                                    samples->head[i]);
        for (uint32_t d = 0; d < dim; d++) {
            got[d] *= scale;
            difference += (got[d] - want[d]) * (got[d] - want[d]);
            reference += want[d] * want[d];
        }
    }
    free(got);
    return reference > 0 ? sqrt(difference / reference) : sqrt(difference);
}

double judge(struct workload *workload)
{
    const struct attn_problem *problem = &workload->problem;
    uint64_t pairs = (uint64_t)workload->batch.num_tokens * problem->heads;
    struct oracle_result result = {0};
    struct samples samples;
    struct mirror mirror;
    double error = NAN;

    if (workload_run(workload, 0, NULL) != ATTN_OK)
        return NAN;
    samples_init(&samples, workload);
    result.out = need_memory(NULL, pairs * problem->head_dim_vo, sizeof *result.out);
    result.lse = need_memory(NULL, pairs, sizeof *result.lse);
    result.seen = need_memory(NULL, pairs, sizeof *result.seen);
    if (mirror_init(&mirror, workload) &&
        oracle_attention(problem, &mirror.batch, &mirror.tensors, &mirror.kv, is_sampled, &samples, &result))
        error = compare(&mirror, problem, &samples, &result);
    mirror_finish(&mirror);
    free(result.out);
    free(result.lse);
    free(result.seen);
    return error;
}
