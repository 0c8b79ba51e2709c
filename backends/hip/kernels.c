/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "host.h"
#include "lane-list.h"

const struct gpu_kernel gpu_kernels[] = {
    {.name = "attn_lane",
     .family = &gpu_lane_family,
     .phases = GPU_FEW_ROWS | GPU_MANY_ROWS,
     .q_types = GPU_TYPES_ALL,
     .kv_types = GPU_TYPES_ALL,
     .out_types = GPU_TYPES_ALL,
     .kv_mixed = 1,
     .dim_multiple = 1,
     .dim_max = GPU_LANE_DIM,
     .features = GPU_FEATURES,
     .graph_level = ATTN_GRAPH_ALWAYS,
     .numerics = ATTN_NUMERICS_UNROUNDED},
};

const uint32_t gpu_kernel_count = sizeof gpu_kernels / sizeof gpu_kernels[0];
