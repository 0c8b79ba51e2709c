/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of hip/rocm-flash. */
#ifndef ATTN_HIP_ROCM_FLASH_H
#define ATTN_HIP_ROCM_FLASH_H

#include "attn/plugin.h"

extern const struct attn_backend_table hip_rocm_flash;

#endif
