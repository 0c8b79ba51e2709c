/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host code: from the public structs of a run to the argument block of its kernels. */
#ifndef ATTN_GPU_RESOLVE_H
#define ATTN_GPU_RESOLVE_H

#include "run.h"

/* Device address of a buffer as an integer; 0 if it is not given. */
static inline uint64_t gpu_address(const struct attn_buffer *buffer)
{
    return buffer->data == NULL ? 0 : (uint64_t)(uintptr_t)buffer->data + buffer->byte_offset;
}

/* Resolves a scale. A single value in host memory is read now; an array there keeps its address, with host 1.
 */
struct gpu_scale gpu_scale_of(const struct attn_scale *scale);

/* Keys, or values, of a cache in either layout. */
struct gpu_cache gpu_cache_of(const struct attn_kv_desc *desc, uint32_t values);

/* Resolves the batch alone, for planning. */
void gpu_resolve_batch(struct gpu_batch *out, const struct attn_problem *problem,
                       const struct attn_batch *batch);

/*
 * Fills all of a run but schedule, scratch, counters, partial results and the members about the launch, which
 * become 0. Everything was checked; `desc` may be NULL where no cache is read.
 */
void gpu_resolve(struct gpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                 const struct attn_tensors *tensors, const struct attn_kv_desc *desc);

#endif
