/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The families of kernels that CUDA alone has, one file each. */
#ifndef ATTN_CUDA_FAMILIES_H
#define ATTN_CUDA_FAMILIES_H

#include "host.h"

extern const struct gpu_family cuda_mma;
extern const struct gpu_family cuda_mla;

/* Fills box_tokens and the maps of a run's keys and values, if boxes of them can be copied. The context is
 * current. */
int32_t cuda_tensor_maps(struct gpu_context *context, struct gpu_run *run, struct attn_error *err);

/* Fills query_box and the map of a run's queries, of 16 bits, in boxes of `rows` rows. The context is
 * current. */
int32_t cuda_query_map(struct gpu_context *context, struct gpu_run *run, uint32_t rows,
                       struct attn_error *err);

#endif
