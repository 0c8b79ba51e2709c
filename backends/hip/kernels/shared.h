/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the threads of a work-group share: the state beside keys, values and results in shared memory. */
#ifndef ATTN_HIP_SHARED_H
#define ATTN_HIP_SHARED_H

#include "config.h"
#include "rules.h"
#include "work-tile.h"

constexpr float tile_log2e = 1.4426950408889634f;

template <class Config> struct tile_shared {
    unsigned char non_finite[Config::dv][16]; /* values of a tile that are NaN or infinite, a bit for each */
    uint64_t at[2][2][GPU_TILE];              /* addresses of keys and values, of this tile and the next */
    float scale[2][2][GPU_TILE];
    struct gpu_sequence sequence;
    struct gpu_origin origin[2][2]; /* of keys and values, cached and new */
    struct gpu_work_tile work;
    uint32_t present[2][GPU_TILE / GPU_WARP];
    uint32_t non_finite_tile; /* the last tile with such a value, plus one */
    uint32_t combines;        /* this work-group combines the splits */
    float max[64];            /* of the rows of all waves */
    float sum[64];
    struct gpu_row row[Config::rows];
};

/* The keys of a sequence, in registers. */
struct tile_keys {
    uint64_t entries;
    uint32_t cached; /* keys below it are looked up in the page table */
    uint32_t count;
};

/* Scales that may differ from key to key. The problem decides, so that strides never change a bit. */
template <class Config> GPU_INLINE bool tile_scales_by_key(uint32_t granularity)
{
    return Config::kv8 && granularity >= ATTN_SCALES_HEAD;
}

/* The argument, opaque to the compiler: it reads members again instead of keeping them in registers. */
GPU_INLINE const struct gpu_run *tile_reload(const struct gpu_run *run)
{
    return (const struct gpu_run *)gpu_again(run);
}

/* Token and head of a row of the sequence; false after its last one. */
GPU_INLINE bool tile_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                            uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = kv_head * run->group + row % run->group;
    return *token < s->q_len;
}

/* The keys of a tile that exist, a bit for each. */
template <class Config>
GPU_INLINE uint64_t tile_present(const struct tile_shared<Config> *shared, uint32_t tile)
{
    return (uint64_t)tile_uniform(shared->present[tile % 2][1]) << 32 |
           tile_uniform(shared->present[tile % 2][0]);
}

#endif
