/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls on caches and merges: their kernels, which a backend finds when it is opened, and their tables. */
#ifndef ATTN_CUDA_KV_H
#define ATTN_CUDA_KV_H

#include "attn/plugin.h"
#include "driver.h"

enum cuda_kv_kernel {
    CUDA_KV_WRITE,
    CUDA_KV_SLOTS,
    CUDA_KV_GATHER,
    CUDA_KV_CONVERT,
    CUDA_KV_MOVE,
    CUDA_KV_MERGE,
    CUDA_KV_RESCALE,
    CUDA_KV_STEP_LENGTHS,
    CUDA_KV_STEP_ROWS,
    CUDA_KV_KERNELS
};

struct cuda_kv_functions {
    cuda_handle function[CUDA_KV_KERNELS];
};

extern const struct attn_kv_table cuda_kv_flash_attn, cuda_kv_flashinfer;
extern const struct attn_merge_table cuda_merge_table;

/* ---------------------------------------------------------------- kv-launch.c */

/* Finds all functions, so that none is loaded inside of a capture. */
int32_t cuda_kv_open(struct attn_backend_impl *backend, struct attn_error *err);

/*
 * Launches a kernel with as many CTAs as there is work, each of `each` units, up to a limit, times `shares`.
 * No work is a success. The context is current.
 */
int32_t cuda_kv_launch(struct attn_backend_impl *backend, enum cuda_kv_kernel kernel, uint64_t work,
                       uint32_t each, uint32_t shares, const void *argument, void *stream,
                       struct attn_error *err);

/* ---------------------------------------------------------------- the calls */

/* The description behind a reference, checked if it comes bare. */
int32_t cuda_kv_take(const struct attn_kv_ref *ref, const struct attn_kv_desc **out, struct attn_error *err);

int32_t cuda_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                             void *stream, struct attn_error *err);
int32_t cuda_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err);
int32_t cuda_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                            const struct attn_kv_ref *caches, void *stream, struct attn_error *err);
int32_t cuda_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                            const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                            struct attn_error *err);
int32_t cuda_kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                       const struct attn_kv_ref *cache, void *stream, struct attn_error *err);
int32_t cuda_kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                        const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                        struct attn_error *err);
int32_t cuda_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                             void *stream, struct attn_error *err);

struct gpu_kv_move;
/* Pages between host and device, whose planes are given. The context is current. */
int32_t cuda_kv_swap_copy(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                          struct gpu_kv_move *move, void *stream, struct attn_error *err);

#endif
