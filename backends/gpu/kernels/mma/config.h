/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What an mma kernel is compiled for, the layout of its shared memory, and the fragments that a lane holds.
 *
 * A CTA has four warps or eight, and a tile of query rows: query tokens times the heads that share a KV head.
 * Warps that read the same keys are a warp group: they copy them together and wait for each other. Tiles of
 * 64 rows and more have one group of four row warps, each with rows of its own. In smaller tiles all warps
 * have the same rows, and each is a group that takes a quarter of the keys.
 *
 * Where results of so many rows and columns do not fit into a warp's registers, two column warps have the
 * same rows, in tiles of 16 rows all four. Each has a part of the columns of results, and computes the scores
 * of a part of the keys for all of them (exchange.h).
 *
 * On Hopper tiles of 128 and of 192 rows have a warp group that copies (producer.h), and two or three that
 * multiply 64 rows each, from matrices in shared memory (consumer.h). A CTA takes work tiles until none is
 * left, and copies the next one while the last is multiplied.
 *
 * Scores, row sums and row maxima are f32 in base 2. Matrix instructions take the type of 16-bit keys and
 * values, and f16 with 8-bit ones; tf32.h has those of f32, and any.h makes f32 of types that differ and of
 * those in blocks. P is rounded to the same type before its product with V, or to bf16 where it carries the
 * scales of single values, which f16 would not hold, and with FNUZ values; row sums are of P before it is
 * rounded. Results of 8 bits may have only half a code step of error beside that of f32: P is then the sum of
 * two such numbers where the class of the kernel asks for it (run.p_parts).
 *
 * The instruction cache of a multiprocessor is small, so loops that seldom run are not unrolled.
 */
#ifndef ATTN_GPU_MMA_CONFIG_H
#define ATTN_GPU_MMA_CONFIG_H

#include "device.h"

#include "../convert.h"
#include "codec8.h"
#include "rules.h"
#include "sizes.h"
#include "work-tile.h"

constexpr float GPU_LOG2E = 1.4426950408889634f;

template <uint32_t Rows, uint32_t Dk, uint32_t Dv, uint32_t KvSize, bool QueriesBf16, bool Rules = true,
          uint32_t KvDtype = 0, bool Scaled = false>
struct mma_config {
    /* Products of warp groups from matrices in shared memory, which begin at multiples of 1 KB. */
    static constexpr bool WGMMA =
        GPU_HAS_WGMMA && Rows >= 128 && (KvSize == 2 || (KvSize == 1 && (Dk <= 128 || KvDtype == ATTN_E4M3)));
    static constexpr uint32_t MATRIX_BYTES = WGMMA ? 1024 : 128;
    /* Queries, keys, values and P are multiplied in e4m3: those of a workspace, where values are transposed.
     */
    static constexpr bool E4M3 =
        WGMMA && KvSize == 1 && KvDtype == ATTN_E4M3 && Dk == Dv && Dk == gpu_e4m3_columns(Dk);
    static constexpr gpu_mma_shape SHAPE = {Rows, Dk, Dv, KvSize, WGMMA, Scaled, E4M3};
    static constexpr uint32_t ROWS = Rows, DK = Dk, DV = Dv;
    static constexpr bool KV8 = KvSize == 1 && !E4M3, KV32 = KvSize == 4, BF16 = QueriesBf16;
    /* Small M: keys are the rows of a matrix product and queries its columns, of which it has only eight. */
    static constexpr bool SMALL_M = Rows == 8;
    /* Masks, soft cap, ALiBi and P of two parts: what has none of them has a kernel without their code where
     * warp groups multiply, and of small M, which of 8-bit keys and values knows their type as well. That
     * code would take registers and instruction cache from it. */
    static constexpr bool RULES = Rules;
    static constexpr uint32_t KV_DTYPE = KvDtype;     /* of keys and values; 0: of any */
    static constexpr bool ANY = KV32 && KvDtype == 0; /* those and queries become f32 (any.h) */
    /* The largest P of a row is 2^P_EXPONENT when its maximum is raised, and up to 2^P_HEADROOM times that
     * later: e4m3 ends at 448, and has more digits for large numbers. */
    static constexpr float P_EXPONENT = E4M3 ? 6 : 0, P_HEADROOM = E4M3 ? 2 : 8;
    /* Largest scores are not looked for in each iteration. Where each key has a scale, registers are too few
     * for what follows a sum that is too large. */
    static constexpr bool FINDS_OVERFLOW = !Scaled;
    static constexpr bool SCALED = Scaled; /* each key has a scale: 16-bit ones that were converted */
    /* On chips without products of warp groups, tiles of many rows and columns have no registers, and no
     * kernel. Without rules those of 8-bit keys are of e4m3 alone. */
    static constexpr bool EXISTS = (SMALL_M && (Rules || KvSize == 2 || Dk <= 128)) || E4M3 ||
                                   (Rules && (WGMMA || Rows < 128 || Dk <= 128)) ||
                                   (!Rules && WGMMA && KvSize == 2);
    /* 8-bit codes are converted once for all warps, or by every warp for itself when it multiplies them. */
    static constexpr bool CONVERTS = gpu_mma_converts(SHAPE) != 0, CODES = KV8 && !CONVERTS;

    /* Only for prefill: unless warp groups multiply, a CTA takes one work tile. */
    static constexpr bool PREFILL_ONLY = Rows >= 128;
    /* P may be the sum of two numbers: of small M, which waits for memory, and of one larger size. */
    static constexpr bool P_PARTS = Rules && !KV32 && (SMALL_M || Rows == 64 || (Rows == 16 && Dv > 256));
    static constexpr bool CODES_OUT = KvSize != 2 || P_PARTS; /* the output may have 8 bits */
    static constexpr uint32_t ROW_WARPS = Rows <= 16 ? 1 : WGMMA ? Rows / 16 : 4;
    static constexpr uint32_t COMPUTED_ROWS = WGMMA ? 64 : Rows; /* whose scores are computed together */
    static constexpr uint32_t M_FRAGMENTS = SMALL_M ? 1 : Rows / (ROW_WARPS * 16); /* of 16 rows, per warp */
    /* Warps that have the same rows and a part each of the columns of values. */
    static constexpr uint32_t COLUMN_WARPS = gpu_mma_column_warps(SHAPE);
    static constexpr uint32_t GROUPS = gpu_mma_groups(SHAPE);
    static constexpr uint32_t CTA_THREADS = gpu_mma_threads(SHAPE);
    /* The first threads of a CTA, which copy, and the warps of those that compute. */
    static constexpr uint32_t THREADS = WGMMA ? 128 : CTA_THREADS;
    static constexpr uint32_t FIRST_WARP = WGMMA ? 4 : 0, WARPS = CTA_THREADS / GPU_WARP - FIRST_WARP;
    /* Warp groups that multiply, and registers of a thread: that each has at first, and when one copies and
     * the others compute. */
    static constexpr uint32_t CONSUMERS = Rows > 64 ? Rows / 64 : 1, REGISTERS = CONSUMERS > 2 ? 128 : 168;
    static constexpr uint32_t PRODUCER_REGISTERS = CONVERTS        ? 88
                                                   : CONSUMERS > 2 ? 32
                                                   : Dk > 128      ? 56
                                                                   : 72,
                              CONSUMER_REGISTERS =
                                  ((CONSUMERS + 1) * REGISTERS - PRODUCER_REGISTERS) / CONSUMERS;
    static constexpr uint32_t GROUP_THREADS = THREADS / GROUPS;
    static constexpr bool STORES_ROWS = gpu_mma_stores_rows(SHAPE) != 0;
    static constexpr uint32_t STORED_ROWS = STORES_ROWS ? ROWS : 1;

    static constexpr uint32_t KEYS = gpu_mma_keys(SHAPE); /* of an iteration */
    static constexpr uint32_t TILES = KEYS / GPU_TILE;
    static constexpr uint32_t GROUP_KEYS =
        WGMMA ? GPU_TILE : KEYS / GROUPS; /* whose scores are handled at once */
    /* Small M: every warp has shared memory of its own for its keys, and counts them by as many. */
    static constexpr uint32_t UNIT_KEYS = SMALL_M ? GROUP_KEYS : GPU_TILE; /* that a `tile` stands for */
    static constexpr uint32_t OWN_KEYS = SMALL_M ? GROUP_KEYS : KEYS;      /* in mma_shared */
    static constexpr uint32_t WARP_KEYS = GROUP_KEYS / COLUMN_WARPS; /* whose products a warp computes */
    static constexpr uint32_t WARP_DV = Dv / COLUMN_WARPS;           /* columns of results in its registers */
    static constexpr uint32_t OUT_FRAGMENTS = WARP_DV / 8 + E4M3; /* of eight: and the one that sums P up */
    static constexpr uint64_t ALL_PRESENT = GROUP_KEYS == 16 ? 0xffff : ~UINT64_C(0); /* a bit for each key */
    static constexpr uint32_t K_BYTES = Dk * KvSize, V_BYTES = Dv * KvSize; /* of a vector in memory */
    /* Bytes of an element, and of a vector, where they are multiplied. */
    static constexpr uint32_t KV_SIZE = CONVERTS ? 2 : KvSize, K_ROW = Dk * KV_SIZE, V_ROW = Dv * KV_SIZE;
    static constexpr uint32_t Q_BYTES = Dk * (KV32 ? 4 : 2), Q_ROW = E4M3 ? Dk : Q_BYTES;
    static constexpr uint32_t P_SIZE = E4M3 ? 1 : 2;             /* bytes of an element */
    static constexpr uint32_t V_ROWS = DV * KEYS / GPU_E4M3_ROW; /* e4m3: of the values of an iteration */
    /* f32 sums are staged: of a tile, of a span of 512 keys, of all. */
    static constexpr uint32_t SPAN_TILES = 512 / GROUP_KEYS;

    static constexpr uint32_t QUERY_BOX = gpu_mma_query_box(SHAPE); /* rows that are copied together */
    /* Most buffers of queries; how many there are the host decides (run.query_buffers). */
    static constexpr uint32_t QUERY_STAGES = gpu_mma_query_stages(SHAPE);
    /* From the first of them to the second one, behind all stages. */
    static constexpr uint32_t SECOND_QUERIES = gpu_mma_first_bytes(SHAPE) - gpu_mma_fixed_bytes(SHAPE);
    static constexpr uint32_t STAGES = gpu_mma_stages(SHAPE);
    static constexpr uint32_t ADDRESS_STAGES = gpu_mma_address_stages(SHAPE);
    static constexpr uint32_t KEY_SCALES = KV8 || SCALED ? OWN_KEYS : 1, VALUE_SCALES = KV8 ? OWN_KEYS : 1;
    static constexpr uint32_t KEY_SCALE_STAGES = KEY_SCALES > 1 ? ADDRESS_STAGES : 1,
                              VALUE_SCALE_STAGES = VALUE_SCALES > 1 ? ADDRESS_STAGES : 1;
    static constexpr uint32_t ROW_PADDING = gpu_mma_row_padding(SHAPE);
    /* The part of a stage that a group fills. */
    static constexpr uint32_t STAGE_BYTES = (gpu_mma_stage_bytes(SHAPE) + 64 * ROW_PADDING) / GROUPS;
    static constexpr uint32_t RAW_STAGES = gpu_mma_raw_stages(SHAPE); /* of keys, and of values */
    /*
     * Products of e4m3 are added up with 14 bits: of an equal share of 2^14 keys nothing is left. After so
     * many iterations results are set aside in shared memory, behind the stages, or in scratch, and summed up
     * there in f32.
     */
    static constexpr uint32_t ASIDE_ITERATIONS = 2048 / KEYS;
    static constexpr uint32_t ASIDE_BYTES = gpu_mma_aside_bytes(SHAPE);
    static constexpr bool ASIDE_IN_SCRATCH = gpu_mma_sets_aside_in_scratch(SHAPE) != 0;
    static constexpr uint32_t ASIDE = ROWS * Q_BYTES + STAGES * gpu_mma_stage_bytes(SHAPE);
    static constexpr uint32_t RAW_BYTES = gpu_mma_raw_bytes(SHAPE);
    static constexpr uint32_t FIXED_BYTES = gpu_mma_fixed_bytes(SHAPE);
    static constexpr uint32_t BLOCK_BYTES = KEYS * 128; /* of 64 columns of as many rows as a stage has */
    static constexpr uint32_t CTAS = gpu_mma_ctas(SHAPE);

    /*
     * A matrix instruction that rounds what it adds to towards zero loses 2^-24.5 of it on average, half of
     * that of a score that grows evenly. Of wide heads all instructions together lose about what an LSE may
     * err by: scores are multiplied by so much more, in units of 2^-23.
     */
    static constexpr uint32_t LOST = GPU_PRODUCTS_TRUNCATE && !KV32 && Dk > 128 ? (Dk + 45) / 90 : 0;
    static constexpr float SCORE_GAIN = 1 + LOST * 0x1p-23f;

    static constexpr bool BF16_MMA = BF16 && !KV8;
    /* Keys and values may have one scale for all: 8-bit ones, and those that have been converted. */
    static constexpr bool SCALES = (KV8 || WGMMA) && !SCALED;
    static constexpr bool Q_SCALED = KV8; /* queries of any type become f16, with a scale of each row */
    static constexpr bool Q_IN_REGISTERS = SMALL_M ? Dk <= 256 : Rows == 16 && Dk <= 128 && KvSize == 2;
    /* Small M: warps load queries straight into registers, and wait for no other before results. */
    static constexpr bool Q_DIRECT = SMALL_M && Q_IN_REGISTERS && KvSize == 2;

    /* 16-byte chunks that a thread checks for non-finite values at once. */
    static constexpr uint32_t CHECK_CHUNKS = ROW_WARPS >= 4 && !CODES ? 4 : 1;
    /* f32 results: consecutive columns of a lane, lanes of a row, floats from row to row and of a
     * group. */
    static constexpr uint32_t LANE_COLUMNS = Dv < 128 ? 4 : Dv / 32;
    static constexpr uint32_t ROW_LANES = Dv / LANE_COLUMNS;
    static constexpr uint32_t RESULT_PITCH = gpu_mma_result_pitch(SHAPE);
    static constexpr uint32_t GROUP_FLOATS = SMALL_M ? STAGES * STAGE_BYTES / 4 : Rows * RESULT_PITCH;

    static_assert(Dk % 64 == 0 && Dk >= Dv, "queries leave room for results");
    static_assert(Dv == 64 || Dv == 128 || Dv == 256 || Dv == 512, "a warp stores whole rows");
    static_assert(GROUP_THREADS >= GROUP_KEYS, "each thread looks up one key");
    static_assert(Rows * (Q_BYTES + ROW_PADDING) + STAGES * GROUPS * STAGE_BYTES +
                          2 * RAW_STAGES * RAW_BYTES <=
                      SECOND_QUERIES,
                  "the host reserves less");
    static_assert(QUERY_STAGES == 1 || SECOND_QUERIES % MATRIX_BYTES == 0, "a matrix begins there");
    static_assert(!EXISTS || gpu_mma_resident_ctas(SHAPE, 227u << 10) == CTAS, "CTAs wait for each other");
    static_assert(SMALL_M ? Rows * RESULT_PITCH <= GROUP_FLOATS
                          : GROUPS * GROUP_FLOATS * 4 == gpu_mma_result_bytes(SHAPE),
                  "the host reserves less");
};

/* In place of the address of a vector that does not exist; copied vectors are 16-byte aligned. */
constexpr uint64_t MMA_NO_ADDRESS = 1;

/* Whether masked tiles of keys are taken for finite, which the results of the work tile show. */
enum mma_trust { MMA_TRUSTED, MMA_NOT_FINITE, MMA_CHECKED };

/* Small M: what a warp knows of the work list, and which part of it the CTA takes. */
struct small_m_list {
    uint32_t begin, end; /* the CTA's stretch */
    uint32_t limit;      /* the warp begins no work tile from here on */
    uint32_t each;       /* tiles of a stretch; the first `longer` CTAs have one more */
    uint32_t longer;
    uint32_t even;  /* KV tiles of an even split, or 0 */
    uint32_t alone; /* 1: every warp takes work tiles of its own */
};

/*
 * What all scores of a work tile have in common. `factor` makes scores in base 2 of what the rules leave;
 * where no score changes, the scales of queries are applied with it. As it is positive, row maxima are found
 * before. The rules see products, whose unit is the scale, and after a soft cap numbers whose unit is the
 * cap; what they add has to be of that unit. Where an f32 may not hold that, products are multiplied by the
 * unit first, and the factor is 1.
 */
struct mma_rules {
    float scale;
    float factor;
    float bias;           /* makes numbers of the unit of what is added */
    float cap_factor;     /* makes of products what mma_small_tanh takes */
    uint32_t elementwise; /* MMA_SOFT_CAP and others; 0: no score changes, but a mask's bits may hide keys */
    uint32_t lo, hi;      /* every row sees these keys, unless a mask hides them */
};

/* Keys [lo, hi). */
struct mma_range {
    uint32_t lo, hi;
};

/* Barriers of a circular buffer of two stages, by which the warp group that fills them and those that empty
 * them wait for each other. */
struct mma_pipeline {
    uint64_t full[2], empty[2];
};

/* What a warp that multiplies has taken of a work tile, while the next one is looked up. */
struct mma_computed {
    struct gpu_sequence sequence;
    struct gpu_work_tile work;
    uint32_t trust; /* enum mma_trust */
    uint32_t lead;  /* e4m3: tiles of the first iteration that come before the work tile */
};

/* What is looked up of a work tile. */
template <class C> struct mma_looked_up : mma_computed {
    struct gpu_origin origin[2][2]; /* of keys and values, cached and new */
    struct gpu_scale_origin scale_origin[2][C::KV8 ? 2 : 1];
};

/* How the warp group that copies hands work tiles over to those that multiply. */
template <class C, bool WGMMA> struct mma_handover {
};
template <class C> struct mma_handover<C, true> {
    uint64_t looked_up;       /* barriers: the n-th is known, n > 0 */
    uint64_t queries_full[2]; /* of the n-th at n % 2: its queries are there */
    uint64_t taken;           /* all warps have taken it, and are done with the one before */
    uint64_t done;            /* its results are stored */
    struct mma_computed computed[C::ROW_WARPS]; /* of each warp that multiplies */
    struct mma_rules rules[C::ROW_WARPS];
    struct mma_rules next_rules[C::CONSUMERS]; /* of each group's rows in the work tile that is looked up */
    struct mma_range next_ranges[C::ROWS]; /* and the keys that each row sees, where nothing else matters */
    uint64_t next_out[C::ROWS];            /* and where its results go */
    uint64_t nonfinite_at[C::ADDRESS_STAGES]; /* e4m3: 0, or which values of an iteration are NaN */
    uint32_t overflow[C::ROW_WARPS];          /* of each warp: 1: a P of its work tile is infinite */
    uint32_t again[2];     /* of the n-th at n % 2: it is to be computed once more, checking values */
    mma_looked_up<C> next; /* the work tile after the one that is copied */
    uint32_t known;        /* 1: what is next has been looked up */
    uint32_t boxed;        /* iterations of the last one which were copied as boxes */
    uint32_t all;          /* work tiles of the list */
};

/* Shared memory in front of queries and stages; small M: of each warp. */
template <class C> struct alignas(16) mma_shared : mma_looked_up<C> {
    alignas(16) uint64_t k_at[C::ADDRESS_STAGES][C::OWN_KEYS]; /* addresses of vectors, read in pairs */
    alignas(16) uint64_t v_at[C::ADDRESS_STAGES][C::OWN_KEYS];
    struct small_m_list list;
    uint32_t is_last_split; /* this CTA combines all splits */
    float max[C::WGMMA ? C::ROW_WARPS : 4][C::M_FRAGMENTS * 16];
    float sum[C::WGMMA ? C::ROW_WARPS : 4][C::M_FRAGMENTS * 16];
    float q_scale[C::ROWS]; /* with Q_SCALED, by which a row's scores are multiplied */
    alignas(16) float k_scale[C::KEY_SCALE_STAGES][C::KEY_SCALES]; /* at mma_scale_at */
    alignas(16) float v_scale[C::VALUE_SCALE_STAGES][C::VALUE_SCALES];
    /* A bit for each value of the iteration; f32: a chunk has a byte of its own. */
    unsigned char nonfinite[C::OWN_KEYS][C::DV / (C::KV32 ? 4 : 8)];
    uint32_t
        nonfinite_tile[C::OWN_KEYS / C::GROUP_KEYS]; /* a group's last tile with such a value, plus one */
    struct gpu_row row[C::ROWS];
    uint64_t out[C::STORED_ROWS]; /* where the results of each row go; 0: it does not exist */
    struct mma_pipeline pipeline[C::WGMMA ? 2 : 1]; /* of keys, of values */
    mma_handover<C, C::WGMMA> handover;
    uint64_t present[C::WGMMA ? C::ADDRESS_STAGES : 1]
                    [C::TILES]; /* which keys of a tile exist, a bit for each */
};

/* Of warp groups that multiply, the one that a thread belongs to. */
template <class C> GPU_INLINE uint32_t mma_group_of_thread(void)
{
    return (gpu_thread() - C::THREADS) / 128;
}

/* The first row of those that are computed together with a thread's. */
template <class C> GPU_INLINE uint32_t mma_first_row(void)
{
    return C::WGMMA ? mma_group_of_thread<C>() * C::COMPUTED_ROWS : 0;
}

/* The sequence whose rows a thread computes: with warp groups, another one may be copied already. */
template <class C> GPU_INLINE const struct gpu_sequence *mma_computed_sequence(const mma_shared<C> *shared)
{
    if constexpr (C::WGMMA)
        return &shared->handover.computed[gpu_thread() / GPU_WARP - C::FIRST_WARP].sequence;
    else
        return &shared->sequence;
}

/* What warps share of it where each has its own. */
template <class C> GPU_INLINE mma_shared<C> *mma_shared_of_cta(mma_shared<C> *own)
{
    return C::SMALL_M ? own - gpu_thread() / GPU_WARP : own;
}

/* Accumulators of m16n8k16: a lane has row lane / 4 and the one 8 below it, columns lane % 4 * 2 and the next
 * one. */
template <class C> using mma_score_fragments = float[C::M_FRAGMENTS][C::GROUP_KEYS / 8][4];
/* Of these, what a warp computes itself: that of all keys unless others have the same rows. */
template <class C> using mma_own_fragments = float[C::M_FRAGMENTS][C::WARP_KEYS / 8][4];
template <class C> using mma_out_fragments = float[C::M_FRAGMENTS][C::OUT_FRAGMENTS][4];
template <class C> using mma_query_fragments = uint32_t[C::DK / 16][C::M_FRAGMENTS][4];
/* One number for each row that a lane has. */
template <class C> using mma_row_pairs = float[C::M_FRAGMENTS][2];

/* Bytes between rows of `bytes` bytes in shared memory. */
template <class C> GPU_INLINE uint32_t mma_row_pitch(uint32_t bytes)
{
    return bytes + C::ROW_PADDING;
}

/* Which bits of a chunk's number a row flips, so that neighbours begin in different banks. */
template <class C> GPU_INLINE uint32_t mma_swizzle(uint32_t row, uint32_t bytes)
{
    if constexpr (C::KV32)
        return (row & 6) ^ (row & 1) * 4; /* consecutive rows, and every other one, are read together */
    if constexpr (C::WGMMA)
        return row & 7;
    if constexpr (C::GROUPS == 1)
        return 0;
    return bytes % 128 == 0 ? row & 7 : row / 2 & 3;
}

/* Offset of a row, of which chunks are counted. Where warp groups multiply, 64 columns of the rows of a stage
 * lie together. */
template <class C> GPU_INLINE uint32_t mma_row_at(uint32_t row, uint32_t bytes)
{
    if constexpr (C::WGMMA)
        return row / C::KEYS * C::KEYS * bytes + row % C::KEYS * 128;
    return row * mma_row_pitch<C>(bytes);
}

/* Of a 16-byte chunk from there on. */
template <class C> GPU_INLINE uint32_t mma_chunk_at(uint32_t row, uint32_t chunk, uint32_t bytes)
{
    if constexpr (C::WGMMA)
        return chunk / 8 * C::BLOCK_BYTES + ((chunk ^ row) & 7) * 16;
    return (chunk ^ mma_swizzle<C>(row, bytes)) * 16;
}

/* Offset of a 16-byte chunk of a row. */
template <class C> GPU_INLINE uint32_t mma_swizzled(uint32_t row, uint32_t chunk, uint32_t bytes)
{
    return mma_row_at<C>(row, bytes) + mma_chunk_at<C>(row, chunk, bytes);
}

/*
 * Offset of an even chunk of a block of 16 rows that begins at `row`. `lane_offset` is mma_swizzled for the
 * row and the chunk (0 or 1) that the lane has of a block; only the bits that a swizzle flips differ between
 * chunks.
 */
template <class C>
GPU_INLINE uint32_t mma_fragment_at(uint32_t lane_offset, uint32_t row, uint32_t chunk, uint32_t bytes)
{
    const uint32_t period = C::GROUPS == 1 ? 1 : bytes % 128 == 0 ? 8 : 4;

    return (lane_offset ^ (chunk % period * 16)) + chunk / period * period * 16 +
           row * mma_row_pitch<C>(bytes);
}

/* Whether there is an explicit mask, or ALiBi. */
template <class C> GPU_INLINE bool mma_has_mask(const struct gpu_run *run)
{
    return C::RULES && run->mask.base != 0;
}
template <class C> GPU_INLINE bool mma_has_slopes(const struct gpu_run *run)
{
    return C::RULES && run->slopes != 0;
}

/* The soft cap; 0: none. */
template <class C> GPU_INLINE float mma_softcap(const struct gpu_run *run)
{
    return C::RULES ? run->problem.softcap : 0;
}

/* Whether scales may differ from key to key: by the problem alone, so that strides never change a bit. */
template <class C> GPU_INLINE bool mma_scale_per_key(uint32_t granularity)
{
    return C::KV8 && granularity >= ATTN_SCALES_HEAD;
}

/*
 * Place of a key's scale. The four that a lane needs for the scores of 16 keys lie side by side, so that it
 * reads them at once; of small M it needs one at a time.
 */
template <class C> GPU_INLINE uint32_t mma_scale_at(uint32_t key)
{
    return C::SMALL_M ? key : (key & ~15u) | (key & 6) * 2 | (key / 8 & 1) * 2 | (key & 1);
}

/* The four of keys k * 16 and on. */
GPU_INLINE void mma_load_scales(const float *scales, uint32_t k, float to[4])
{
    const struct gpu_u128 four = gpu_load_u128(scales + k * 16 + gpu_thread() % 4 * 4);

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        to[i] = gpu_f32_of_bits(four.x[i]);
}

/* The type of keys and values. */
template <class C> GPU_INLINE uint32_t mma_kv_dtype(const struct gpu_run *run)
{
    return C::KV_DTYPE != 0 ? C::KV_DTYPE : run->v.dtype;
}

/* Whether P is rounded to bf16. */
template <class C> GPU_INLINE bool mma_p_bf16(const struct gpu_run *run)
{
    return C::BF16_MMA || mma_scale_per_key<C>(run->problem.v_scale) ||
           (C::KV8 && gpu_is_fnuz(mma_kv_dtype<C>(run)));
}

/* Token and head of a row; false after the last row of the sequence. */
GPU_INLINE bool mma_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                           uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = gpu_quotient(row, &run->by_group);
    *head = kv_head * run->group + (row - *token * run->group);
    return *token < s->q_len;
}

/* Where its results go. */
GPU_INLINE uint64_t mma_output_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                                  uint32_t head)
{
    return run->out.base + (uint64_t)(((int64_t)s->row + token) * run->out.token_stride +
                                      (int64_t)head * run->out.head_stride);
}

GPU_INLINE void mma_multiply(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16)
{
    if (bf16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

/* Two numbers in a 16-bit type. */
GPU_INLINE uint32_t mma_pack(float low, float high, bool bf16)
{
    return bf16 ? gpu_pack_bf16(low, high) : gpu_pack_f16(low, high);
}

/* What rounding to a 16-bit type takes away. */
GPU_INLINE float mma_remainder(float x, bool bf16)
{
    return x - (bf16 ? gpu_bf16_to_f32(gpu_f32_to_bf16(x)) : gpu_f16_to_f32(gpu_f32_to_f16(x)));
}

/* Named barriers. */
enum mma_barrier {
    MMA_BARRIER_PRODUCER = 1,
    MMA_BARRIER_CONSUMERS,
    MMA_BARRIER_TURN,                         /* of each group that multiplies, three at most */
    MMA_BARRIER_GROUP = MMA_BARRIER_TURN + 3, /* the same */
    MMA_BARRIER_NEXT = MMA_BARRIER_GROUP + 3
};

/* A barrier for the threads that copy. */
template <class C> GPU_INLINE void mma_copy_barrier(void)
{
    if constexpr (C::WGMMA)
        gpu_barrier_part(MMA_BARRIER_PRODUCER, C::THREADS);
    else
        gpu_barrier();
}

/* A barrier for the threads that compute. */
template <class C> GPU_INLINE void mma_row_barrier(void)
{
    if constexpr (C::WGMMA)
        gpu_barrier_part(MMA_BARRIER_CONSUMERS, C::CTA_THREADS - C::THREADS);
    else
        gpu_barrier();
}

/* A barrier for the threads of a warp group that copies. */
template <class C> GPU_INLINE void mma_group_barrier(void)
{
    if constexpr (C::GROUP_THREADS == GPU_WARP)
        gpu_warp_barrier();
    else
        mma_copy_barrier<C>();
}

/* All copies of the group but the latest `n` have arrived, and what it read before is free. */
template <class C, uint32_t n> GPU_INLINE void mma_wait_copies(void)
{
    GPU_COPY_WAIT(n);
    mma_group_barrier<C>();
}

#endif
