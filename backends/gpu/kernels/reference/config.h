/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What an instance of the reference kernel is made of: its configuration, and what a warp holds. */
#ifndef ATTN_GPU_REFERENCE_CONFIG_H
#define ATTN_GPU_REFERENCE_CONFIG_H

#include "blocks.h"
#include "rules.h"

#include "instances.h"

/* head_dim and head_dim_vo up to Dim; Type of keys and values as in the list. */
template <uint32_t Dim, uint32_t Type> struct reference_config {
    static constexpr uint32_t lane_columns = Dim / GPU_WARP;
    static constexpr uint32_t type = Type;
    static constexpr bool has_dtype = Type > REFERENCE_ANY_8BIT;
};

static constexpr uint32_t reference_kv_tile = 64; /* keys */
static constexpr uint32_t reference_span =
    8; /* tiles whose sums are added before they are added to the total */
static constexpr uint32_t reference_key_group = 4; /* keys whose vectors are loaded at once */

/* The columns of a vector that a lane reads: byte offset of the first one, and from each to the next; of
 * types with blocks those of their blocks. */
struct reference_columns {
    int64_t first;
    int64_t step;
};

/* Results that the warps of a CTA exchange. */
struct reference_shared {
    float total[REFERENCE_WARPS][REFERENCE_MAX_DIM];
    double row_sum[REFERENCE_WARPS];
    float row_max[REFERENCE_WARPS];
};

/* One warp's keys of a row. */
template <class Config> struct reference_warp {
    struct gpu_sequence s;
    struct gpu_row row;
    uint32_t lane, kv_head;
    double q_scale;
    struct reference_columns k, v; /* of caches; vectors of new KV are contiguous */
    float q[Config::lane_columns], tile[Config::lane_columns], span[Config::lane_columns];
    float *total;   /* in shared memory: of this lane's columns, which are GPU_WARP elements apart */
    float row_max;  /* the same in all lanes */
    double row_sum; /* of the keys that this lane found */
};

/* 32 keys, one per lane. Lanes without a visible key have the addresses of another one, and weight 0. */
struct reference_keys {
    uint32_t seen, is_new; /* bit per lane */
    uint64_t k, v;
    float k_scale, v_scale;
    double bias;
};

#endif
