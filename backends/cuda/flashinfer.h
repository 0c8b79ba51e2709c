/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of cuda/flashinfer. */
#ifndef ATTN_CUDA_FLASHINFER_H
#define ATTN_CUDA_FLASHINFER_H

#include "attn/plugin.h"

extern const struct attn_backend_table cuda_flashinfer;

#endif
