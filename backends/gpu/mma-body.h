/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The body of a matrix kernel, included once for each combination of
 *
 *   MMA(name)    a name of this combination
 *   MMA_DK       columns of keys, padded: 64, 128, 192, 256
 *   MMA_DV       columns of values, padded
 *   MMA_RB       4: each of the four warps has rows of its own and all keys of a tile; 1: all have the same
 *                rows, and each a quarter of the keys
 *   MMA_MI       blocks of 16 rows of a warp
 *   MMA_THIN     1: 8 rows, which all four warps have (mma-thin.h); MMA_RB and MMA_MI are 1
 *   MMA_EIGHT    1: keys and values are of 8 bits
 *   MMA_BF16     1: queries are bf16, else f16; 16-bit keys and values are of the same type
 *
 * Warps that share keys are a team: they fetch them together, and wait for one another. A team of one warp
 * waits for nobody. A row is a query token and a head of the group. Scores, sums and maxima are f32 in base
 * 2. Queries, keys and values are what they are for matrix instructions; beside 8-bit keys and values all is
 * f16. P is rounded to the same type for its product with V, and to bf16 where it is multiplied by scales of
 * single 8-bit values, which f16 would not hold; the row sum is of P before.
 *
 * A multiprocessor reads its code through a small cache: what is rare is a loop that stays one.
 */
#define MMA_ROWS   (MMA_THIN ? 8 : MMA_RB * MMA_MI * 16)
#define MMA_MANY   (MMA_ROWS == 128) /* only for sequences of many rows: a CTA takes one tile of them */
#define MMA_KG     (4 / MMA_RB)
#define MMA_STEP   GPU_MMA_STEP(MMA_ROWS, MMA_DK, MMA_SIZE) /* keys of a turn */
#define MMA_KEYS   (MMA_STEP / MMA_KG)                      /* of a team */
#define MMA_TEAM   (MMA_RB * 32)                            /* threads */
#define MMA_SIZE   (MMA_EIGHT ? 1 : 2)
#define MMA_KB     (MMA_DK * MMA_SIZE) /* bytes of a key's row */
#define MMA_VB     (MMA_DV * MMA_SIZE)
#define MMA_HALVES GPU_MMA_HALVES(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE)
#define MMA_RING   GPU_MMA_RING(MMA_HALVES)
#define MMA_HALF                                                                                             \
    ((GPU_MMA_HALF(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE) + 64 * GPU_MMA_SPARE(MMA_ROWS)) /                     \
     MMA_KG) /* a team's */
#define MMA_CTAS GPU_MMA_CTAS(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE)
/* What matrix instructions take, and queries that have to be made so. */
#define MMA_WIDE   (MMA_BF16 && !MMA_EIGHT)
#define MMA_SCALED (MMA_BF16 && MMA_EIGHT)
/* Queries stay in registers. */
#define MMA_HOLD (MMA_RB == 1 && MMA_DK <= 128 && !MMA_EIGHT)

/* Byte of a 16-byte chunk of a row of `bytes`; neighbouring rows begin in other banks. */
#define MMA_TURN(row, bytes)                                                                                 \
    (MMA_RB == 4 ? 0u : (bytes) % 128 == 0 ? (uint32_t)(row)&7u : (uint32_t)(row) / 2 & 3u)
#define MMA_STRIDE(bytes) ((uint32_t)(bytes) + GPU_MMA_SPARE(MMA_ROWS))
#define MMA_AT(row, chunk, bytes)                                                                            \
    ((uint32_t)(row)*MMA_STRIDE(bytes) + (((uint32_t)(chunk) ^ MMA_TURN(row, bytes)) * 16u))

/*
 * What a lane adds to an address for chunk `high` (0 or 1) of its row of a block of 16: the same for all
 * blocks, and for a chunk that is `even` higher but for bits that MMA_BLOCK turns.
 */
#define MMA_LANE(row, high, bytes) MMA_AT(row, high, bytes)
#define MMA_TURNS(bytes)           (MMA_RB == 4 ? 1u : (bytes) % 128 == 0 ? 8u : 4u) /* chunks that take turns */
#define MMA_BLOCK(lane, row, even, bytes)                                                                    \
    (((lane) ^ ((uint32_t)(even) % MMA_TURNS(bytes) * 16u)) +                                                \
     (uint32_t)(even) / MMA_TURNS(bytes) * MMA_TURNS(bytes) * 16u + (uint32_t)(row)*MMA_STRIDE(bytes))

/* In place of the address of a vector that is not there; no vector of whole chunks lies there. */
#define MMA_NOWHERE UINT64_C(1)

#include "mma-names.h"

struct mma_shared {
    /* Of tiles under way, and of the next one: addresses of vectors, two of which are read at once. */
    uint64_t k_at[MMA_RING][MMA_STEP];
    uint64_t v_at[MMA_RING][MMA_STEP];
    struct gpu_sequence sequence;
    struct gpu_origin origin[2][2]; /* of keys and values, cached and new */
    struct gpu_piece piece;
    uint32_t last; /* this CTA merges */
    float max[4][MMA_MI * 16];
    float sum[4][MMA_MI * 16];
    float q_factor[MMA_ROWS]; /* scaled queries: of a row's products */
    float k_scale[MMA_RING][MMA_STEP];
    float v_scale[MMA_RING][MMA_STEP];
    unsigned char odd[MMA_STEP][MMA_DV / 8]; /* a bit for every value of a tile that is no number */
    uint32_t odd_tile[MMA_KG];               /* a team's last tile with such a value, and one more */
    struct gpu_row row[MMA_ROWS];
};

/* How far the keys of a sequence reach, in registers. */
struct mma_reach {
    uint64_t entries;
    uint32_t cached; /* keys below it are looked up */
    uint32_t keys;
};

#define MMA_FIXED GPU_MMA_FIXED(MMA_ROWS, MMA_STEP, MMA_HALVES)

/* Floats between rows of results, which take the place of queries and halves. */
#define MMA_PITCH GPU_MMA_PITCH(MMA_DV)
static_assert(sizeof(struct mma_shared) <= MMA_FIXED, "the host reserves less");
static_assert(MMA_KG * MMA_ROWS * MMA_PITCH * 4 == GPU_MMA_RESULTS(MMA_ROWS, MMA_DV), "results do not fit");

/* In this order. */
#include "mma-load.h"

#include "mma-queries.h"

#include "mma-score.h"

#include "mma-odd.h"

#include "mma-value.h"

#include "mma-end.h"

#include "mma-write.h"

/* A team's copies but the latest `n` have arrived, and what it read is free. */
#define MMA_WAIT(n)                                                                                          \
    do {                                                                                                     \
        GPU_COPY_WAIT(n);                                                                                    \
        mma_wait();                                                                                          \
    } while (0)

#if MMA_THIN
#include "mma-thin.h"
#else
/* All tiles of a piece. */
GPU_INLINE void mma_attend(const struct gpu_run *run, struct mma_shared *shared, unsigned char *queries,
                           unsigned char *halves, const struct gpu_piece *p, bool whole)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, row_group = warp / MMA_KG, team = warp % MMA_KG;
    const uint32_t key0 = team * MMA_KEYS, first = p->first, end = p->end, all = 2 * (end - first);
    unsigned char *own = halves + team * (MMA_HALVES * MMA_HALF);
    float o[MMA_MI][MMA_DV / 8][4], max[MMA_MI][2], sum[MMA_MI][2];
    uint32_t q[MMA_DK / 16][MMA_MI][4];

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++) {
        max[m][0] = max[m][1] = -GPU_INFINITY;
        sum[m][0] = sum[m][1] = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    }
    struct mma_reach reach;
    reach.entries = gpu_entries(run, &shared->sequence);
    reach.keys = shared->sequence.kv_len;
    reach.cached = reach.entries == 0                    ? 0
                   : shared->sequence.fresh < reach.keys ? shared->sequence.fresh
                                                         : reach.keys;
    struct gpu_entry early[MMA_RING - 1];
    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_RING - 1; i++)
        early[i] = mma_find(run, &reach, first + i, key0);
    mma_pad(run, halves);
    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_RING - 1; i++)
        mma_note(run, shared, &reach, first + i, i, p->kv_head, key0, early[i]);
    const bool copied = mma_note_queries(run, shared, p->row0, p->kv_head);
    mma_wait();
    if (copied)
        mma_copy_queries(shared, queries); /* with the first keys */
    GPU_LOOP
    for (uint32_t i = 0; i < MMA_HALVES - 1; i++) {
        if (i < all)
            mma_load(run, shared, own + i * MMA_HALF, i / 2, first + i / 2, key0, i % 2 != 0, whole);
        gpu_copy_commit();
    }
    if (!copied)
        mma_load_queries(run, shared, queries, p->row0, p->kv_head); /* while keys are under way */
    mma_load_rows(run, shared, p->row0, p->kv_head);
    if (gpu_thread() < MMA_KG)
        shared->odd_tile[gpu_thread()] = 0;
    gpu_barrier();
    const struct mma_rules rules = mma_find_rules(run, shared, p);
    if (MMA_HOLD)
        mma_hold(queries, q);
    uint32_t slot = 0, at = 0; /* of the tile's places in their ring, of its keys in theirs */
    GPU_LOOP
    for (uint32_t tile = first; tile < end; tile++) {
        const uint32_t done = 2 * (tile - first), later = tile + MMA_RING - 1;
        const uint32_t next = at == 0 ? MMA_HALVES - 1 : at - 1;
        const uint32_t behind = at + 1 == MMA_HALVES ? 0 : at + 1;
        float s[MMA_MI][MMA_KEYS / 8][4], peak[MMA_MI][2];
        struct gpu_entry entry;
        struct mma_fetching fetch;
        MMA_WAIT(MMA_HALVES - 2); /* the keys */
        if (MMA_RB == 4)
            fetch = mma_load_steps(run, shared, own + next * MMA_HALF,
                                   (slot + (MMA_HALVES - 1) / 2) % MMA_RING, tile + (MMA_HALVES - 1) / 2,
                                   (MMA_HALVES - 1) % 2 != 0, whole, done + MMA_HALVES - 1 < all);
        else if (done + MMA_HALVES - 1 < all)
            mma_load(run, shared, own + next * MMA_HALF, (slot + (MMA_HALVES - 1) / 2) % MMA_RING,
                     tile + (MMA_HALVES - 1) / 2, key0, (MMA_HALVES - 1) % 2 != 0, whole);
        if (MMA_RB != 4)
            gpu_copy_commit();
        entry = mma_find(run, &reach, later, key0); /* arrives meanwhile */
        const uint64_t present = mma_present(run, shared, slot, key0);
        mma_scores(run, queries, own + at * MMA_HALF, row_group, q, s, &fetch);
        if (MMA_RB == 4)
            gpu_copy_commit();
        const bool plain = mma_apply_rules(run, shared, &rules, slot, row_group, tile, key0, present, s);
        MMA_WAIT(MMA_HALVES - 2); /* the values */
        unsigned char *values = own + behind * MMA_HALF;
        if (MMA_RB == 4)
            fetch =
                mma_load_steps(run, shared, own + at * MMA_HALF, (slot + MMA_HALVES / 2) % MMA_RING,
                               tile + MMA_HALVES / 2, MMA_HALVES % 2 != 0, whole, done + MMA_HALVES < all);
        else if (done + MMA_HALVES < all)
            mma_load(run, shared, own + at * MMA_HALF, (slot + MMA_HALVES / 2) % MMA_RING,
                     tile + MMA_HALVES / 2, key0, MMA_HALVES % 2 != 0, whole);
        if (MMA_RB != 4)
            gpu_copy_commit();
        if (!plain)
            mma_clean(run, shared, values, slot, tile, key0);
        if (!plain && shared->odd_tile[team] == tile + 1)
            mma_mark(shared, key0, s, o);
        mma_peaks(s, peak);
        mma_rescale(peak, max, sum, o, rules.factor, rules.slack);
        mma_values(run, shared, values, slot, key0, plain, s, max, sum, rules.factor, o, &fetch);
        if (MMA_RB == 4)
            gpu_copy_commit();
        if (later < end)
            mma_note(run, shared, &reach, later, (slot + MMA_RING - 1) % MMA_RING, p->kv_head, key0, entry);
        slot = slot + 1 == MMA_RING ? 0 : slot + 1;
        at = behind + 1 == MMA_HALVES ? 0 : behind + 1;
    }
    GPU_COPY_WAIT(0);
    if (mma_is_direct(run, p)) {
        mma_write(run, shared, queries, p, max, sum, o, rules.factor);
        return;
    }
    mma_put(shared, (float *)(void *)queries, shared->sequence.q_len * run->group - p->row0, row_group, team,
            max, sum, o, rules.factor);
}

#endif

#include "mma-next.h"

GPU_KERNEL(MMA(mma), 128, MMA_CTAS)(GPU_ARGUMENT(struct gpu_run, run))
{
    unsigned char *memory = gpu_shared();
    struct mma_shared *shared = (struct mma_shared *)(void *)memory;
    unsigned char *queries = memory + MMA_FIXED, *halves = queries + MMA_ROWS * MMA_STRIDE(MMA_DK * 2);
    const struct gpu_piece *p = &shared->piece;

    for (bool begins = true;; begins = false) {
        if (gpu_thread() < GPU_WARP)
            mma_next(&run, shared, begins);
        gpu_barrier();
        if (p->parts == 0)
            return;
        mma_attend(&run, shared, queries, halves, p, run.whole != 0);
        if (!mma_is_direct(&run, p))
            mma_finish(&run, shared, (const float *)(void *)queries, p);
        if (!MMA_MANY && p->parts > 1 && mma_comes_last(&run, shared, p))
            mma_merge(&run, shared, p);
        if (MMA_MANY || p->next == 0)
            return;
        gpu_barrier(); /* the piece is done */
    }
}

#undef MMA_MANY
#include "mma-done.h"
