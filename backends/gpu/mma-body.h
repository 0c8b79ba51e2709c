/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The body of a matrix kernel, included once for each combination of
 *
 *   MMA(name)    a name of this combination
 *   MMA_DK       columns of keys, padded: 64, 128, 192, 256
 *   MMA_DV       columns of values, padded
 *   MMA_RB       groups of warps that share rows: 1, 2, 4
 *   MMA_MI       blocks of 16 rows of a warp
 *   MMA_EIGHT    1: keys and values are of 8 bits
 *   MMA_BF16     1: queries are bf16, else f16; 16-bit keys and values are of the same type
 *   MMA_STAGES   tiles of keys in shared memory
 *
 * Four warps. Warps of a row group have the same MMA_MI * 16 rows and each a share of a tile's keys; with
 * four groups each warp has all keys. A row is a query token and a head of the group. Scores, sums and maxima
 * are f32 in base 2; P is rounded to the queries' type, or bf16 with 8-bit values, for its product with V,
 * the row sum is of P before.
 */
#define MMA_ROWS  (MMA_RB * MMA_MI * 16)
#define MMA_KG    (4 / MMA_RB)
#define MMA_KEYS  (64 / MMA_KG)
#define MMA_KB    (MMA_DK * (MMA_EIGHT ? 1 : 2)) /* bytes of a key's row */
#define MMA_VB    (MMA_DV * (MMA_EIGHT ? 1 : 2))
#define MMA_STAGE (64 * (MMA_KB + MMA_VB))

/* Byte of a 16-byte chunk of a row of `bytes`; neighbouring rows begin in other banks. */
#define MMA_AT(row, chunk, bytes)                                                                            \
    ((uint32_t)(row) * (uint32_t)(bytes) +                                                                   \
     (((uint32_t)(chunk) ^ ((bytes) % 128 == 0 ? (uint32_t)(row)&7u : (uint32_t)(row) / 2 & 3u)) * 16u))

/* Each combination has its own of everything. */
#define mma_apply_rules  MMA(apply_rules)
#define mma_attend       MMA(attend)
#define mma_by_key       MMA(by_key)
#define mma_clean        MMA(clean)
#define mma_comes_last   MMA(comes_last)
#define mma_emit         MMA(emit)
#define mma_fetch        MMA(fetch)
#define mma_find         MMA(find)
#define mma_find_plain   MMA(find_plain)
#define mma_note         MMA(note)
#define mma_finish       MMA(finish)
#define mma_gather       MMA(gather)
#define mma_is_odd       MMA(is_odd)
#define mma_is_whole     MMA(is_whole)
#define mma_join         MMA(join)
#define mma_load         MMA(load)
#define mma_load_queries MMA(load_queries)
#define mma_load_rows    MMA(load_rows)
#define mma_mark         MMA(mark)
#define mma_merge        MMA(merge)
#define mma_multiply     MMA(multiply)
#define mma_odd_bit      MMA(odd_bit)
#define mma_pack         MMA(pack)
#define mma_row_of       MMA(row_of)
#define mma_rule         MMA(rule)
#define mma_scores       MMA(scores)
#define mma_shared       MMA(shared)
#define mma_softmax      MMA(softmax)
#define mma_tile_at      MMA(tile_at)
#define mma_values       MMA(values)
#define mma_zero         MMA(zero)

struct mma_shared {
    struct gpu_sequence sequence;
    struct gpu_piece piece;
    uint32_t last;   /* this CTA merges */
    uint32_t row_lo; /* rows see all keys of [row_lo, row_hi) */
    uint32_t row_hi;
    float max[4][MMA_MI * 16];
    float sum[4][MMA_MI * 16];
    float scale[MMA_ROWS]; /* score of a product, per row */
    float total[MMA_ROWS];
    float peak[MMA_ROWS];
    /* Of tiles under way, and of the next one: addresses of vectors, 0 for keys that are not there. */
    uint64_t k_at[MMA_STAGES + 1][64];
    uint64_t v_at[MMA_STAGES + 1][64];
    float k_scale[MMA_STAGES + 1][64];
    float v_scale[MMA_STAGES + 1][64];
    unsigned char odd[64][MMA_DV / 8]; /* a bit for every value of a tile that is no number */
    uint32_t odd_tile;                 /* the last tile with such a value, and one more */
    struct gpu_row row[MMA_ROWS];
};

#define MMA_FIXED  GPU_MMA_FIXED(MMA_ROWS, MMA_MI, MMA_STAGES)
#define MMA_SHARED (MMA_FIXED + MMA_ROWS * MMA_DK * 2 + MMA_STAGES * MMA_STAGE)

/* Floats between rows of results, which take the place of the tiles. */
#define MMA_PITCH (MMA_DV + (MMA_ROWS * (MMA_DV + 4) * 4 <= MMA_STAGES * MMA_STAGE ? 4 : 0))
static_assert(sizeof(struct mma_shared) <= MMA_FIXED, "the host reserves less");
static_assert(MMA_ROWS * MMA_PITCH * 4 <= MMA_STAGES * MMA_STAGE, "results do not fit");

/* In this order. */
#include "mma-load.h"

#include "mma-score.h"

#include "mma-odd.h"

#include "mma-value.h"

#include "mma-end.h"

/* All tiles of a piece. */
GPU_INLINE void mma_attend(const struct gpu_run *run, struct mma_shared *shared, unsigned char *queries,
                           unsigned char *stages, uint32_t row0, uint32_t kv_head, uint32_t first,
                           uint32_t end, bool whole)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, row_group = warp / MMA_KG, key_group = warp % MMA_KG;
    const uint32_t key0 = key_group * MMA_KEYS;
    float o[MMA_MI][MMA_DV / 8][4], max[MMA_MI][2], sum[MMA_MI][2];

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++) {
        max[m][0] = max[m][1] = -GPU_INFINITY;
        sum[m][0] = sum[m][1] = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    }
    for (uint32_t i = 0; i < MMA_STAGES && first + i < end; i++) {
        struct gpu_place place;
        const bool exists = mma_find(run, shared, first + i, &place);
        mma_note(run, shared, i, kv_head, &place, exists);
    }
    mma_load_queries(run, &shared->sequence, queries, row0, kv_head);
    mma_load_rows(run, shared, row0, kv_head);
    gpu_barrier();
    for (uint32_t i = 0; i < MMA_STAGES - 1; i++) {
        if (first + i < end)
            mma_load(run, shared, stages + i * MMA_STAGE, i, first + i, whole);
        gpu_copy_commit();
    }
    mma_find_plain(run, shared);
    for (uint32_t tile = first; tile < end; tile++) {
        const uint32_t next = tile + MMA_STAGES - 1, later = tile + MMA_STAGES;
        const uint32_t ring = (tile - first) % (MMA_STAGES + 1);
        unsigned char *stage = stages + (tile - first) % MMA_STAGES * MMA_STAGE;
        float s[MMA_MI][MMA_KEYS / 8][4];
        struct gpu_place place;
        GPU_COPY_WAIT(MMA_STAGES - 2);
        gpu_barrier(); /* the tile is there, and the one before has been read */
        if (next < end)
            mma_load(run, shared, stages + (next - first) % MMA_STAGES * MMA_STAGE,
                     (next - first) % (MMA_STAGES + 1), next, whole);
        gpu_copy_commit();
        const bool exists = later < end && mma_find(run, shared, later, &place); /* arrives meanwhile */
        mma_scores(run, queries, stage, row_group, key0, s);
        const bool all = mma_apply_rules(run, shared, ring, row_group, tile, key0, s);
        if (!all)
            mma_clean(run, shared, stage + 64 * MMA_KB, tile);
        if (!all && shared->odd_tile == tile + 1)
            mma_mark(shared, key0, s, o);
        mma_softmax(s, max, sum, o);
        mma_values(run, shared, stage + 64 * MMA_KB, ring, key0, s, o);
        if (later < end)
            mma_note(run, shared, (later - first) % (MMA_STAGES + 1), kv_head, &place, exists);
    }
    GPU_COPY_WAIT(0);
    mma_join(shared, (float *)(void *)stages, row_group, key_group, max, sum, o);
}

/* Vectors that lie on 16 bytes, in one piece and in whole chunks. */
GPU_INLINE bool mma_is_whole(const struct gpu_cache *cache)
{
    return ((cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
             (uint64_t)cache->head_stride | cache->dim * cache->size) &
            15) == 0 &&
           cache->piece_stride == 0;
}

/* The tile of rows of a sequence of many rows; those that see the most keys, its last ones, come first. */
GPU_INLINE struct gpu_piece mma_tile_at(const struct gpu_run *run, uint64_t at, struct gpu_sequence *s)
{
    const uint32_t *sums = gpu_sums(run);
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_MANY_ROWS, MMA_ROWS);
    const uint32_t heads = run->problem.kv_heads;
    const uint64_t place = (uint64_t)sums[run->batch.seqs] * heads - 1 - at;
    struct gpu_piece p;

    p.seq = gpu_find_sum(sums, run->batch.seqs, place / heads);
    const uint32_t inside = (uint32_t)(place - (uint64_t)sums[p.seq] * heads);
    p.kv_head = inside % heads;
    p.row0 = inside / heads * MMA_ROWS;
    *s = gpu_sequence(run, p.seq);
    const uint32_t last = (p.row0 + MMA_ROWS - 1) / run->group;
    p.end = gpu_key_tiles(&cuts, &s->visible, p.row0 / run->group, last < s->q_len ? last : s->q_len - 1,
                          s->kv_len, &p.first);
    p.end += p.first;
    p.next = at + gpu_ctas();
    p.parts = 1;
    p.part = p.first_slot = p.rest_slot = p.slot_step = 0;
    return p;
}

/*
 * Sequences of few rows: this CTA's piece of the line of tiles, or with det=1 its share of fixed cuts.
 * Sequences of many rows: its share of tiles of rows.
 */
GPU_KERNEL(MMA(mma), 128, MMA_CTAS)(GPU_ARGUMENT(struct gpu_run, run))
{
    unsigned char *memory = gpu_shared();
    struct mma_shared *shared = (struct mma_shared *)(void *)memory;
    unsigned char *queries = memory + MMA_FIXED, *stages = queries + MMA_ROWS * MMA_DK * 2;
    const uint64_t all = (uint64_t)gpu_sums(&run)[run.batch.seqs] * run.problem.kv_heads;
    const bool many = run.phase == GPU_MANY_ROWS, line = !many && run.problem.det == 0;
    const bool whole =
        mma_is_whole(&run.k) && mma_is_whole(&run.v) && mma_is_whole(&run.k_new) && mma_is_whole(&run.v_new);
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none with an empty piece */
    if (gpu_cta() >= ctas)
        return;
    const uint64_t end = line ? gpu_line_begin(all, gpu_cta() + 1, ctas) : all;
    uint64_t at = line ? gpu_line_begin(all, gpu_cta(), ctas) : gpu_cta();

    while (at < end) {
        gpu_barrier(); /* the piece before is done */
        if (gpu_thread() == 0)
            shared->piece = many ? mma_tile_at(&run, at, &shared->sequence)
                                 : gpu_piece_at(&run, at, end, gpu_cta(), ctas, &shared->sequence);
        gpu_barrier();
        const struct gpu_piece *p = &shared->piece;
        mma_attend(&run, shared, queries, stages, p->row0, p->kv_head, p->first, p->end, whole);
        mma_finish(&run, shared, (const float *)(void *)stages, p->row0, p->kv_head, p->parts > 1,
                   gpu_slot(p, p->part));
        if (p->parts > 1 && mma_comes_last(&run, shared, p))
            mma_merge(&run, shared, p);
        at = p->next;
    }
}

#undef mma_apply_rules
#undef mma_attend
#undef mma_by_key
#undef mma_clean
#undef mma_comes_last
#undef mma_emit
#undef mma_fetch
#undef mma_find
#undef mma_find_plain
#undef mma_note
#undef mma_finish
#undef mma_gather
#undef mma_is_odd
#undef mma_is_whole
#undef mma_join
#undef mma_load
#undef mma_load_queries
#undef mma_load_rows
#undef mma_mark
#undef mma_merge
#undef mma_multiply
#undef mma_odd_bit
#undef mma_pack
#undef mma_row_of
#undef mma_rule
#undef mma_scores
#undef mma_shared
#undef mma_softmax
#undef mma_tile_at
#undef mma_values
#undef mma_zero
#undef MMA_ROWS
#undef MMA_KG
#undef MMA_KEYS
#undef MMA_KB
#undef MMA_VB
#undef MMA_STAGE
#undef MMA_AT
#undef MMA_FIXED
#undef MMA_SHARED
#undef MMA_PITCH
