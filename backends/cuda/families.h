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

#endif
