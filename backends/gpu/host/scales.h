/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Arrays of scales in host memory, which kernels cannot read. */
#ifndef ATTN_GPU_HOST_SCALES_H
#define ATTN_GPU_HOST_SCALES_H

#include "host.h"

/* Scales of a run: q, out, k, v, k_new, v_new. */
#define GPU_HOST_SCALES 6u

/*
 * Brings every array of the host into device memory, in stream order and read during the call, and has the
 * run point to it. *out_block has to be passed to gpu_scales_release; usually there is none, and it is 0.
 * `cache` says how many pages and tokens scales of a cache have.
 */
int32_t gpu_scales_place(const struct attn_plan_impl *plan, struct gpu_run *run,
                         const struct attn_kv_desc *cache, void *stream, uint64_t *out_block,
                         struct attn_error *err);
/* Frees the block. Returns `status`, or if that is ATTN_OK what freeing returned. */
int32_t gpu_scales_release(const struct attn_plan_impl *plan, uint64_t block, void *stream, int32_t status,
                           struct attn_error *err);

#endif
