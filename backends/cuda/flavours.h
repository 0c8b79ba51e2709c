/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tables of the flavours, each in a file of its name. */
#ifndef ATTN_CUDA_FLAVOURS_H
#define ATTN_CUDA_FLAVOURS_H

#include "attn/plugin.h"

extern const struct attn_backend_table cuda_flash_attn, cuda_flashinfer;

#endif
