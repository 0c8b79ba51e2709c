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

struct gpu_case {
    struct gpu_bench *bench;
    struct bench_case measured;
    struct workload workload;
    char problem[512];
    struct attn_plan_info info;
};

/* The error that the next call fills, cleared. */
struct attn_error *gpu_bench_err(void);

#endif
