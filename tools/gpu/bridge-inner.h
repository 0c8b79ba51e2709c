/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the bridge share. */
#ifndef GPU_BRIDGE_INNER_H
#define GPU_BRIDGE_INNER_H

#include <stdio.h>

#include "bridge.h"
#include "workload.h"

struct gpu_bench {
    struct attn_context *context;
    struct attn_backend *backend;
};

/* What the operations on caches work on; all zero before gpu_case_kv_init. */
struct kv_room {
    uint64_t rows, row_bytes;          /* every key of the batch, all heads of one side */
    struct attn_buffer k, v;           /* [rows, kv_heads, head_dim], contiguous */
    struct attn_buffer slots, offsets; /* of every row; first row of every sequence */
    struct attn_buffer pairs;          /* of pages that are copied */
    int64_t *slot, *pair;              /* host copies */
    uint32_t count, swapped;           /* pages copied, pages swapped */
    void *host;                        /* pinned, the pages that are swapped */
    uint64_t host_bytes;
    struct attn_kv_desc host_desc;
};

struct gpu_case {
    struct gpu_bench *bench;
    struct bench_case measured;
    struct workload workload;
    char problem[512];
    struct attn_plan_info info;
    struct kv_room room;
};

/* The error that the next call fills, cleared. */
struct attn_error *gpu_bench_err(void);
/* Says what is wrong with an argument. ATTN_E_INVALID. */
int32_t gpu_bench_refuse(const char *field, const char *text);
/* The page of the device that is swapped with page `index` of the host. */
int64_t gpu_case_swapped(const struct gpu_case *the_case, uint32_t index);
/* Other numbers in the rows. */
int32_t gpu_case_kv_refill(struct gpu_case *the_case, uint64_t seed);
void gpu_case_kv_finish(struct gpu_case *the_case);

#endif
