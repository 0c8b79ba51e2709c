/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls on caches and merges: their kernels, which a backend finds when it is opened, and their tables. */
#ifndef ATTN_GPU_HOST_KV_H
#define ATTN_GPU_HOST_KV_H

#include "attn/plugin.h"
#include "driver.h"
#include "kv-handle.h"

enum gpu_kv_kernel {
    GPU_KV_WRITE,
    GPU_KV_SLOTS,
    GPU_KV_GATHER,
    GPU_KV_CONVERT,
    GPU_KV_MOVE,
    GPU_KV_MERGE,
    GPU_KV_RESCALE,
    GPU_KV_STEP_LENGTHS,
    GPU_KV_STEP_ROWS,
    GPU_KV_KERNELS
};

struct gpu_kv_functions {
    gpu_handle function[GPU_KV_KERNELS];
};

extern const struct attn_merge_table gpu_merge_table;

/* The table of a flavour, which has its own shape of caches. */
#define GPU_KV_TABLE(shape_)                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_kv_table), .shape = (shape_), .create = attn__kv_create,           \
        .destroy = attn__kv_destroy, .write = gpu_kv_write_rows, .slot_mapping = gpu_kv_slot_mapping,        \
        .copy_slots = gpu_kv_copy_slots, .copy_blocks = gpu_kv_copy_blocks,                                  \
        .swap_blocks = gpu_kv_swap_blocks, .gather = gpu_kv_gather_call, .convert = gpu_kv_convert_call,     \
        .advance_step = gpu_kv_advance_step                                                                  \
    }

/* ---------------------------------------------------------------- kv-launch.c */

/* Finds all functions, so that none is loaded inside of a capture. */
int32_t gpu_kv_open(struct attn_backend_impl *backend, struct attn_error *err);

/*
 * Launches a kernel with as many CTAs as there is work, each of `each` units, up to a limit, times `shares`.
 * No work is a success. The context is current.
 */
int32_t gpu_kv_launch(struct attn_backend_impl *backend, enum gpu_kv_kernel kernel, uint64_t work,
                      uint32_t each, uint32_t shares, const void *argument, void *stream,
                      struct attn_error *err);

/* ---------------------------------------------------------------- the calls */

int32_t gpu_kv_write_rows(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                          const struct attn_kv_impl *kv, const struct attn_kv_desc *bare, void *stream,
                          struct attn_error *err);
int32_t gpu_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                            void *stream, struct attn_error *err);
int32_t gpu_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err);
int32_t gpu_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                           const struct attn_kv_ref *caches, void *stream, struct attn_error *err);
int32_t gpu_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err);
int32_t gpu_kv_gather_call(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                           const struct attn_kv_ref *cache, void *stream, struct attn_error *err);
int32_t gpu_kv_convert_call(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                            const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                            struct attn_error *err);
int32_t gpu_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err);

struct gpu_kv_move;
/* Copies pages between host and device, by planes. The context is current. */
int32_t gpu_kv_swap_copy(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                         struct gpu_kv_move *move, void *stream, struct attn_error *err);

#endif
