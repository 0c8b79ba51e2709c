/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Addresses of global memory are integers, and GPU_GLOBAL makes pointers of them. A compiler for AMD is told
 * which memory is meant: without that it would ask at each access whether it is shared memory.
 */
#ifndef ATTN_GPU_ADDRESS_H
#define ATTN_GPU_ADDRESS_H

#include <stdint.h>

#if defined(__AMDGCN__)
#define GPU_GLOBAL(type, address) ((type *)(__attribute__((address_space(1))) type *)(uintptr_t)(address))
#else
#define GPU_GLOBAL(type, address) ((type *)(uintptr_t)(address))
#endif

#endif
