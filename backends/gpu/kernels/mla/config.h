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
 * f16. Keys are of the same type, or codes: these become f16, which costs a quarter of what bf16 does, and
 * bf16 queries do so too, each row scaled to f16's range.
 */
template <uint32_t Rows, uint32_t KvSize, bool Bf16> struct mla_config {
    static constexpr uint32_t rows = Rows;
    static constexpr bool bf16 = Bf16, kv8 = KvSize == 1;
    static constexpr bool keys_bf16 = bf16 && !kv8, scales_queries = bf16 && kv8;
    static constexpr bool score_rules = rows <= MLA_SMALL_ROWS;
    static constexpr bool groups = GPU_HAS_WGMMA && mla_has_groups(rows, KvSize); /* wgmma.h */
    static constexpr uint32_t max_stages = mla_max_stages(rows, KvSize);
    static constexpr uint32_t tile_bytes = mla_tile_bytes(KvSize), key_bytes = MLA_QK_DIM * KvSize;

    static constexpr uint32_t warps = MLA_THREADS / GPU_WARP;
    static constexpr uint32_t row_blocks = rows / 16;

    /* Scores: the warps of a warp group have a part of the columns each, so many steps of 16, of which the
     * main ones are columns of values too. */
    static constexpr uint32_t parts = groups ? 1 : mla_column_warps(rows, KvSize);
    static constexpr uint32_t steps = MLA_QK_DIM / 16 / parts, main_steps = MLA_VO_DIM / 16 / parts;
    /* Blocks of 16 rows of a warp group, and fragments of 8 keys that it multiplies them with at once, in a
     * wave. A warp keeps one of these products of every wave. */
    /* Sums of a product, which would take registers that 64 rows do not leave. */
    static constexpr uint32_t sums = rows > MLA_SMALL_ROWS ? 1 : (steps + 5) / 6;
    /* What products of f16 lose on average by truncation, in units of 2^-23: for an LSE, which may err by not
     * much more, it is given back with the scale of scores (mma/config.h). Those of bf16 and of codes have
     * fewer bits to lose. */
    static constexpr uint32_t lost = GPU_PRODUCTS_TRUNCATE && KvSize == 2 && !Bf16 ? 3 : 0;
    static constexpr float score_gain = 1 + lost * 0x1p-23f;
    static constexpr uint32_t group_blocks = parts <= 2 || row_blocks == 1 ? 1 : 2;
    static constexpr uint32_t wave_fragments = parts / group_blocks;
    static constexpr uint32_t key_groups =
        groups ? 1 : warps / parts * group_blocks / row_blocks; /* that share rows */
    static constexpr uint32_t group_keys = MLA_KV_TILE / key_groups;
    static constexpr uint32_t waves = group_keys / (8 * wave_fragments);
    static constexpr uint32_t block_warps = warps / row_blocks; /* that keep products of the same rows */

    /* Results: blocks of 16 rows of a warp, and fragments of 8 columns of each. */
    static constexpr uint32_t out_blocks = groups ? 1 : row_blocks, out_fragments = groups ? 32 : 8;

    static constexpr uint32_t state_bytes =
        groups ? (uint32_t)MLA_GROUP_STATE : mla_state_bytes(rows, KvSize);
    /* Stages where the queries lie until they are in registers. */
    static constexpr uint32_t query_stages = (rows * MLA_QK_DIM * 2 + tile_bytes - 1) / tile_bytes;
    static constexpr uint32_t out_pitch =
        520; /* floats between rows of O, which takes the place of KV tiles */

    static_assert(rows * out_pitch * 4 <= mla_min_stages(KvSize) * tile_bytes, "O does not fit");
};

/* Which keys a row sees. Where there are no other rules for scores, the range is all that is kept. */
struct mla_row_range {
    uint32_t lo, hi;
};

template <bool ScoreRules> struct mla_row_state {
    typedef struct gpu_row type;
};
template <> struct mla_row_state<false> {
    typedef struct mla_row_range type;
};

/* The CTA's state beside the KV tiles, whatever multiplies them. */
template <class Config> struct mla_common : public mla_taken {
    struct mla_next_tile next;
    bool aligned;                                                 /* keys are 16-byte aligned */
    uint32_t unmasked_lo, unmasked_hi;                            /* every row sees the keys [lo, hi) */
    uint64_t present[Config::max_stages];                         /* of each stage, a bit for every key */
    float score_scale;                                            /* of every product of a query and a key */
    float query_scale[Config::scales_queries ? Config::rows : 1]; /* of a row's queries, a power of two */
    float warp_max[Config::block_warps][Config::rows]; /* over the keys of a warp; row sums at the end */
    float row_sum[Config::rows];
    float row_max[Config::rows]; /* the largest score, up to the rescale threshold */
    typename mla_row_state<Config::score_rules>::type row[Config::rows];
};

/* What is in front of it: of products of single warps. */
template <class Config, bool Groups> struct mla_state {
    union {
        /* Scores that a warp passes to the others of its warp group. */
        struct gpu_u128 exchange[Config::warps][Config::parts - 1][GPU_WARP];
        alignas(128) unsigned char p[Config::rows * MLA_KV_TILE * 2];
    };
    uint64_t key_address[Config::warps][8]; /* of the next tile; 0 = no key */
    /* Of the keys of the next tile, and of each stage. */
    float next_scale[Config::kv8 ? MLA_KV_TILE : 1];
    float key_scale[Config::kv8 ? Config::max_stages : 1][Config::kv8 ? MLA_KV_TILE : 1];
    float rescale[Config::rows];      /* the factor by which a new row max scales O so far */
    float next_max[Config::rows];     /* row_max with this tile */
    float thread_sum[2][MLA_THREADS]; /* of this thread's P, for its two rows */
};

/* Parts of a tile, in the order in which a warp group multiplies them: two halves of its columns of values,
 * with the second the columns of keys alone, and the columns of the other warp group. */
enum { MLA_PART_FIRST, MLA_PART_SECOND, MLA_PART_OTHER, MLA_PARTS };

/* The same of products of warp groups. */
template <class Config> struct mla_state<Config, true> {
    alignas(1024) unsigned char p[Config::rows * MLA_KV_TILE * 2]; /* of even tiles */
    float base[2][Config::rows]; /* of even and of odd tiles: the row max that P is relative to */
    uint64_t full[2][MLA_PARTS]; /* of each warp group's stage: barriers of its parts */
    uint64_t queries_full;
    uint32_t parity[2], queries_parity; /* of their next phases */
};

template <class Config>
struct mla_shared : public mla_state<Config, Config::groups>, public mla_common<Config> {
};

/* What a warp computes of a tile's scores. */
struct mla_warp {
    uint32_t part;  /* of the columns */
    uint32_t row0;  /* first row of its warp group */
    uint32_t key0;  /* first key of its warp group */
    uint32_t block; /* of rows, of which it keeps products */
    uint32_t group; /* among the warps that keep products of these rows */
};

template <class Config> GPU_INLINE struct mla_warp mla_warp_of_thread(void)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, warp_group = warp / Config::parts;
    struct mla_warp w;

    w.part = warp % Config::parts;
    w.row0 = warp_group / Config::key_groups * Config::group_blocks * 16;
    w.key0 = warp_group % Config::key_groups * Config::group_keys;
    w.block = w.row0 / 16 + w.part / Config::wave_fragments;
    w.group = warp_group % Config::key_groups * Config::wave_fragments + w.part % Config::wave_fragments;
    return w;
}

/* Key of the tile that is element `e` of what this lane keeps of a wave. */
template <class Config> GPU_INLINE uint32_t mla_key(const struct mla_warp *w, uint32_t wave, uint32_t e)
{
    return w->key0 + (wave * Config::wave_fragments + w->part % Config::wave_fragments) * 8 +
           gpu_thread() % 4 * 2 + e % 2;
}

/* First of a warp's k-th 16 columns. */
template <class Config> GPU_INLINE uint32_t mla_column(uint32_t part, uint32_t k)
{
    constexpr uint32_t main_steps = Config::main_steps, rest = Config::steps - main_steps;

    return k < main_steps ? (part * main_steps + k) * 16 : MLA_VO_DIM + (part * rest + k - main_steps) * 16;
}

/* Bytes of a query in shared memory, where it is 16-bit numbers. */
static constexpr uint32_t mla_row_bytes = MLA_QK_DIM * 2;

/* Byte of a 16-byte chunk of a row of 16-bit numbers; neighbouring rows begin in other banks. Warp groups
 * have blocks of 64 columns one after the other. */
template <class Config> GPU_INLINE uint32_t mla_chunk_offset(uint32_t row, uint32_t chunk)
{
    if constexpr (Config::groups)
        return chunk / 8 * MLA_BLOCK_BYTES + row * 128 + ((chunk ^ row) & 7u) * 16u;
    else
        return row * mla_row_bytes + ((chunk ^ (row & 7u)) * 16u);
}

/* The same of keys. Every other row of codes begins in the other half of the banks as it is. */
template <class Config> GPU_INLINE uint32_t mla_key_offset(uint32_t key, uint32_t chunk)
{
    if constexpr (Config::kv8)
        return key * MLA_QK_DIM + ((chunk ^ (key >> 1 & 3u)) * 16u);
    else
        return mla_chunk_offset<Config>(key, chunk);
}

template <bool Bf16> GPU_INLINE void mla_multiply(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (Bf16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

#endif
