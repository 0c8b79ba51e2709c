/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What an instance of the MLA kernel is made of: its configuration, its shared memory, and what each warp
 * does. */
#ifndef ATTN_GPU_MLA_CONFIG_H
#define ATTN_GPU_MLA_CONFIG_H

#include "device.h"

#include "rules.h"

#include "sizes.h"
#include "work-tile.h"

/*
 * Rows (tokens times heads) of a CTA, bytes of an element of the cache, and the type of queries: bf16 or else
 * f16. Keys are of the same type, 8-bit ones once they are converted.
 */
template <uint32_t Rows, uint32_t KvSize, bool Bf16> struct mla_config {
    static constexpr uint32_t rows = Rows;
    static constexpr bool bf16 = Bf16, kv8 = KvSize == 1;
    static constexpr bool score_rules = rows <= MLA_SMALL_ROWS;
    static constexpr uint32_t max_stages = mla_max_stages(rows);
    /* Raw stages beside one stage of 16-bit numbers, and beside two. */
    static constexpr uint32_t raw_of_one = mla_raw_stages(rows, 1), raw_of_two = mla_raw_stages(rows, 2);

    static constexpr uint32_t warps = MLA_THREADS / GPU_WARP;
    static constexpr uint32_t row_blocks = rows / 16;
    /* Scores: warps that share a block of rows, and keys of a pair of them. */
    static constexpr uint32_t block_warps = warps / row_blocks;
    static constexpr uint32_t pair_keys = MLA_KV_TILE / (warps / 2) * row_blocks;
    /* Fragments of 8 keys that a warp multiplies at once, those of them that it keeps, and all that it keeps.
     */
    static constexpr uint32_t wave_fragments = rows > MLA_SMALL_ROWS ? 4 : 2;
    static constexpr uint32_t kept_of_wave = wave_fragments / 2;
    static constexpr uint32_t kept_fragments = pair_keys / 16;

    /* Words of 8 codes that a thread has in registers at once when it converts them, of 18 of a tile. */
    static constexpr uint32_t codes_at_once = rows > MLA_SMALL_ROWS ? 2 : 9;

    static constexpr uint32_t state_bytes = mla_state_bytes(rows, KvSize);
    static constexpr uint32_t out_pitch =
        520; /* floats between rows of O, which takes the place of KV tiles */

    static_assert(rows * out_pitch * 4 <= 2 * MLA_KV_TILE_BYTES, "O does not fit");
};

/* The CTA's state beside the KV tiles. */
template <class Config> struct mla_shared {
    /* Scores that a warp passes to the other warp of its pair. */
    struct gpu_u128 exchange[Config::warps][Config::kept_of_wave][GPU_WARP];
    struct gpu_sequence sequence;
    struct mla_work_tile work;
    struct mla_cursor cursor;
    bool has_work;
    bool aligned;                           /* keys are 16-byte aligned */
    uint32_t unmasked_lo, unmasked_hi;      /* every row sees the keys [lo, hi) */
    uint64_t key_address[Config::warps][8]; /* of the next tile; 0 = no key */
    uint64_t present[4];                    /* of each stage, a bit for every key */
    float score_scale;                      /* of every product of a query and a key */
    float key_scale[Config::kv8 ? 4 : 1][Config::kv8 ? MLA_KV_TILE : 1]; /* of the keys of each stage */
    float warp_max[Config::block_warps][Config::rows]; /* over the keys of a warp; row sums at the end */
    float rescale[Config::rows];                       /* the factor by which a new row max scales O so far */
    float row_sum[Config::rows];
    float row_max[Config::rows];      /* the largest score, up to the rescale threshold */
    float next_max[Config::rows];     /* row_max with this tile */
    float thread_sum[2][MLA_THREADS]; /* of this thread's P, for its two rows */
    struct gpu_row row[Config::rows];
};

/* What a warp computes of a tile's scores. */
struct mla_warp {
    uint32_t block; /* of rows */
    uint32_t group; /* among the warps of these rows */
    uint32_t half;  /* of the columns */
    uint32_t key0;  /* first key of the pair */
};

template <class Config> GPU_INLINE struct mla_warp mla_warp_of_thread(void)
{
    const uint32_t warp = gpu_thread() / GPU_WARP;
    struct mla_warp w;

    w.block = warp / Config::block_warps;
    w.group = warp % Config::block_warps;
    w.half = warp % 2;
    w.key0 = w.group / 2 * Config::pair_keys;
    return w;
}

/* Key of the tile that is element `e` of fragment `n` of what this lane keeps. */
template <class Config> GPU_INLINE uint32_t mla_key(const struct mla_warp *w, uint32_t n, uint32_t e)
{
    const uint32_t fragment = n / Config::kept_of_wave * Config::wave_fragments +
                              w->half * Config::kept_of_wave + n % Config::kept_of_wave;

    return w->key0 + fragment * 8 + gpu_thread() % 4 * 2 + e % 2;
}

/* Bytes of a query or key in shared memory. */
static constexpr uint32_t mla_row_bytes = MLA_QK_DIM * 2;

/* Byte of a 16-byte chunk of a row; neighbouring rows begin in other banks. */
GPU_INLINE uint32_t mla_chunk_offset(uint32_t row, uint32_t chunk)
{
    return row * mla_row_bytes + ((chunk ^ (row & 7u)) * 16u);
}

template <class Config> GPU_INLINE void mla_multiply(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (Config::bf16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

#endif
