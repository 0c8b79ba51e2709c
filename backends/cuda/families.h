/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The families of kernels that CUDA alone has, one file each. */
#ifndef ATTN_CUDA_FAMILIES_H
#define ATTN_CUDA_FAMILIES_H

#include "host.h"

extern const struct gpu_family cuda_mma;
extern const struct gpu_family cuda_mma_e4m3;   /* prefill with products of e4m3 */
extern const struct gpu_family cuda_mma_blocks; /* prefill of keys and values in blocks that become f16 */
extern const struct gpu_family cuda_mla;

/* Fills box_tokens, `most` or fewer, and the maps of a run's keys and values, if boxes of them can be copied.
 * The context is current. */
int32_t cuda_tensor_maps(struct gpu_context *context, struct gpu_run *run, uint32_t most,
                         struct attn_error *err);

/* Fills query_box and the map of a run's queries, of the size of keys, in boxes of `rows` rows: whole tokens,
 * or with `parts` as many heads of one. The context is current. */
int32_t cuda_query_map(struct gpu_context *context, struct gpu_run *run, uint32_t rows, bool parts,
                       struct attn_error *err);

/* Fills the maps of keys and values of a workspace in e4m3. The context is current. */
int32_t cuda_tensor_maps_e4m3(struct gpu_context *context, struct gpu_run *run, struct attn_error *err);

/* Whether a plan's kernel multiplies in e4m3 what is converted. */
bool cuda_is_e4m3(const struct gpu_kernel *kernel);

/* Whether prefill of a plan can have its keys and values converted first (convert.h); `plain`: the problem's
 * rules do nothing but hide keys. */
bool cuda_may_convert(const struct attn_plan_impl *plan, bool plain, bool e4m3);
/* The problem that attention to converted keys and values is. */
struct attn_problem cuda_converted_problem(const struct attn_problem *problem, bool e4m3);
/* Adds the workspace and `aside_bytes` to a part's scratch and the first pages to its schedule, and finds the
 * kernel. The context is current. */
int32_t cuda_convert_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint64_t aside_bytes,
                             struct attn_error *err);
/* Converts the keys and values of a step, and makes of the run one on them, of the problem that it is then.
 * The context is current. */
int32_t cuda_convert(const struct attn_plan_impl *plan, const struct gpu_part *part,
                     const struct attn_problem *converted, struct gpu_run *run, void *stream,
                     struct attn_error *err);
/* Whether a part of what is not converted has no sequence, as far as the maxima of a step tell. */
bool cuda_converts_all(const struct attn_plan_impl *plan, const struct gpu_part *part,
                       const struct gpu_run *run);

#endif
