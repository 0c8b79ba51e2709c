/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The matrix kernels of one size, included once by each module:
 *
 *   TILE_DK      columns of keys, padded: 64, 128, 192, 256
 *   TILE_DV      columns of values, padded
 *   TILE_EIGHT   1: keys and values are of 8 bits
 *
 * A row is a query token and a head of the group. Kernels of 16 rows: all waves have the same rows, and each
 * 16 keys of a tile; of 64 rows: each wave has 16 rows of its own, and all keys. Products are transposed:
 * scores are keys times queries, results are values times P, so that a lane has one row, its maximum and its
 * sum, and P is an operand as it is. Scores, sums and maxima are f32 in base 2. Elements are bf16 where the
 * queries are, else f16; beside 8-bit values P and they are bf16, which holds P times any scale. The row sum
 * is of P before.
 *
 * Code is small where it is rare: a loop that stays one.
 */
#include "tile-port.h"

#include "pieces.h"
#include "rules.h"
#include "tile-eight.h"
#include "tile-tuning.h"

#define TILE_HALVES  HIP_TILE_HALVES(TILE_DV, TILE_WAVE)
#define TILE_THREADS HIP_TILE_THREADS(TILE_DV, TILE_WAVE)
#define TILE_SIZE    (TILE_EIGHT ? 1u : 2u)
#define TILE_CTAS    HIP_TILE_CTAS(TILE_DV, TILE_WAVE, TILE_LATE)
#define TILE_OUT     (TILE_DV / TILE_HALVES / 16) /* blocks of 16 columns of a wave's results */

#define GPU_LOG2E 1.4426950408889634f
/* The largest P of a row is 2^10 at first and 2^15 at most: f16 has no smaller numbers than 2^-14 on some. */
#define TILE_LIFT  10.0f
#define TILE_SLACK 5.0f

struct tile_shared {
    unsigned char odd[TILE_DV][16]; /* values of a tile that are no numbers, a bit for each */
    uint64_t at[2][2][GPU_TILE];    /* addresses of keys and values, of this tile and the next */
    float scale[2][2][GPU_TILE];
    struct gpu_sequence sequence;
    struct gpu_origin origin[2][2]; /* of keys and values, cached and new */
    struct gpu_piece piece;
    uint32_t present[2][GPU_TILE / GPU_WARP];
    uint32_t odd_tile; /* the last tile with such a value, and one more */
    uint32_t last;     /* this CTA merges */
    float max[64];     /* of the rows of all waves */
    float sum[64];
    struct gpu_row row[64]; /* or 16 */
};
static_assert(sizeof(struct tile_shared) <= HIP_TILE_FIXED(64, TILE_DV), "the host reserves less");
static_assert(sizeof(struct tile_shared) - 48 * sizeof(struct gpu_row) <= HIP_TILE_FIXED(16, TILE_DV),
              "the host reserves less");

/* How far the keys of a sequence reach, in registers. */
struct tile_reach {
    uint64_t entries;
    uint32_t cached; /* keys below it are looked up */
    uint32_t keys;
};

/* In this order. */
#include "tile-next.h"

#include "tile-load.h"

#include "tile-stage.h"

#include "tile-score.h"

#include "tile-value.h"

#include "tile-end.h"

/* Results of all waves into the output or parts, 64 columns of each half in turn. */
GPU_INLINE void tile_write(const struct gpu_run *run, struct tile_shared *shared, float *results,
                           const struct gpu_piece *p, uint32_t rows, float max, struct tile_sum sum,
                           float factor, float o[TILE_OUT][TILE_ACC])
{
    const uint32_t team = tile_wave() % 4, half = tile_wave() / 4;

    const float total = tile_total(sum.high + sum.low);
    const uint32_t lane = tile_thread() % TILE_WAVE;
    if (half == 0 && lane < 16) {
        shared->max[team * 16 + lane] = max == -GPU_INFINITY ? max : tile_base(max, factor);
        shared->sum[team * 16 + lane] = total;
    }
    GPU_LOOP
    for (uint32_t column = 0; column < TILE_OUT * 16; column += 64) {
        tile_put(results + (half * 64 + team * 16) * HIP_TILE_RESULT, o);
        gpu_barrier();
        tile_finish(run, shared, results, p, rows, column);
        gpu_barrier();
        GPU_UNROLL
        for (uint32_t n = 0; n + 4 < TILE_OUT; n++)
            GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            o[n][i] = o[n + 4][i];
    }
}

/* All tiles of a piece. `wide`: queries are bf16. */
GPU_INLINE void tile_attend(const struct gpu_run *run, struct tile_shared *shared, unsigned char *area,
                            const struct gpu_piece *p, uint32_t rows, bool wide)
{
    const uint32_t team = tile_wave() % 4, half = tile_wave() / 4, blocks = rows == 16 ? 1 : 4;
    const uint32_t own = (rows == 16 ? 0 : team * 16) + tile_thread() % 16, key0 = rows == 16 ? team * 16 : 0;
    const uint32_t column0 = half * TILE_OUT * 16;
    const bool wide_values = wide || TILE_EIGHT, early = HIP_TILE_EARLY(rows, TILE_WAVE);
    float o[TILE_OUT][TILE_ACC], max = -GPU_INFINITY;
    struct tile_sum sum = {0, 0};
    struct tile_b q[TILE_DK / 16];
    const struct tile_ahead none = {{0}};
    struct tile_ahead ahead = none;
    struct tile_reach reach;

    GPU_UNROLL
    for (uint32_t n = 0; n < TILE_OUT; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        o[n][i] = 0;
    const uint32_t first = tile_same(p->first), end = tile_same(p->end), kv_head = tile_same(p->kv_head);
    const uint32_t fresh = tile_same(shared->sequence.fresh);
    reach.entries = tile_same_u64(gpu_entries(run, &shared->sequence));
    reach.keys = tile_same(shared->sequence.kv_len);
    reach.cached = reach.entries == 0 ? 0 : fresh < reach.keys ? fresh : reach.keys;
    tile_note(run, shared, &reach, first, kv_head, tile_find(run, &reach, first));
    struct gpu_entry entry = tile_find(run, &reach, first + 1);
    tile_load_queries(run, shared, area, p, rows);
    tile_load_rows(run, shared, p, rows);
    if (tile_thread() == 0)
        shared->odd_tile = 0;
    gpu_barrier();
    const struct tile_rules rules = tile_find_rules(run, shared, p, rows);
    if (early && first < end && run->whole != 0)
        tile_ask_keys(run, shared, first, &ahead);
    GPU_UNROLL
    for (uint32_t k = 0; k < TILE_DK / 16; k++)
        tile_load_b(&q[k], area + own * HIP_TILE_PITCH(TILE_DK) + k * 32);
    gpu_barrier(); /* the queries have been read */
    GPU_LOOP
    for (uint32_t tile = first; tile < end; tile++) {
        const uint64_t present = tile_present(shared, tile);
        const uint32_t from = tile * GPU_TILE;
        const bool plain = from >= rules.lo && from + GPU_TILE <= rules.hi && ~present == 0;
        float s[4][TILE_ACC];
        run = (const struct gpu_run *)gpu_again(run);
        if (!early)
            ahead = none; /* nothing waits from turn to turn */
        if (!early && run->whole != 0)
            tile_ask_keys(run, shared, tile, &ahead);
        tile_put_keys(run, shared, area, tile, wide, &ahead);
        tile_note(run, shared, &reach, tile + 1, kv_head, entry);
        gpu_barrier();
        if (early && run->whole != 0)
            tile_ask_values(run, shared, tile, &ahead);
        run = (const struct gpu_run *)gpu_again(run);
        tile_scores(area + key0 * HIP_TILE_PITCH(TILE_DK), q, blocks, wide, s);
        tile_apply_rules(run, shared, &rules, own, tile, key0, present, plain, blocks, s);
        entry = tile_find(run, &reach, tile + 2);
        gpu_barrier(); /* the keys have been read */
        run = (const struct gpu_run *)gpu_again(run);
        if (!early)
            ahead = none;
        if (!early && run->whole != 0)
            tile_ask_values(run, shared, tile, &ahead);
        tile_put_values(run, shared, area, tile, wide_values, plain, &ahead);
        gpu_barrier();
        if (early && run->whole != 0 && tile + 1 < end)
            tile_ask_keys(run, shared, tile + 1, &ahead);
        tile_rescale(&rules, blocks, s, &max, &sum, o);
        if (!plain && tile_same(shared->odd_tile) == tile + 1)
            tile_mark(run, shared, tile, wide_values, tile_seen(key0, blocks, s), column0, o);
        tile_weigh(&rules, blocks, max, s, &sum);
        if (tile_by_key(run->problem.v_scale))
            tile_scale(shared, tile, key0, plain, blocks, s);
        tile_values(area + column0 * HIP_TILE_COLUMN, key0 / 16, blocks, wide_values, s, o);
        gpu_barrier(); /* the values have been read */
    }
    run = (const struct gpu_run *)gpu_again(run);
    tile_write(run, shared, (float *)(void *)area, p, rows, max, sum, rules.factor, o);
}

/* All pieces of a CTA. */
GPU_INLINE void tile_run(const struct gpu_run *run, uint32_t rows, bool wide)
{
    unsigned char *memory = gpu_shared();
    struct tile_shared *shared = (struct tile_shared *)(void *)memory;
    unsigned char *area = memory + HIP_TILE_FIXED(rows, TILE_DV);
    const struct gpu_piece *p = &shared->piece;

    for (bool begins = true;; begins = false) {
        if (tile_thread() < GPU_WARP)
            tile_next((const struct gpu_run *)gpu_again(run), shared, begins, rows);
        gpu_barrier();
        if (tile_same(p->parts) == 0)
            return;
        tile_attend((const struct gpu_run *)gpu_again(run), shared, area, p, rows, wide);
        run = (const struct gpu_run *)gpu_again(run);
        if (tile_same(p->parts) > 1 && tile_comes_last(run, shared, p))
            tile_merge(run, shared, p, rows);
        if (tile_same_u64(p->next) == 0)
            return;
        gpu_barrier(); /* the piece is done */
    }
}

#define TILE_JOIN(a, b, c) a##b##c
#define TILE_KERNEL_OF(name, rows, type, wide)                                                               \
    GPU_KERNEL(TILE_JOIN(name, _r##rows, _##type), TILE_THREADS, TILE_CTAS)                                  \
    (GPU_ARGUMENT(struct gpu_run, run))                                                                      \
    {                                                                                                        \
        tile_run((const struct gpu_run *)gpu_argument(&run), rows, wide);                                    \
    }
/* The kernels of a module `name`. */
#define TILE_KERNELS(name)                                                                                   \
    TILE_KERNEL_OF(name, 16, bf16, true)                                                                     \
    TILE_KERNEL_OF(name, 16, f16, false)                                                                     \
    TILE_KERNEL_OF(name, 64, bf16, true)                                                                     \
    TILE_KERNEL_OF(name, 64, f16, false)
