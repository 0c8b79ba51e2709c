/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Functions that C++ evaluates at compile time and C calls: sizes that device code makes array bounds of and
 * that the host computes before a launch.
 */
#ifndef ATTN_GPU_CONSTEXPR_H
#define ATTN_GPU_CONSTEXPR_H

#ifdef __cplusplus
#define GPU_CONSTEXPR constexpr
#else
#define GPU_CONSTEXPR static inline
#endif

#endif
