/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The families of kernels that CUDA alone has, one file each. */
#ifndef ATTN_CUDA_FAMILIES_H
#define ATTN_CUDA_FAMILIES_H

#include "host.h"

extern const struct gpu_family cuda_mma;
extern const struct gpu_family cuda_mla;

#endif
