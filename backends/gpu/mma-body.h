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
#define MMA_KG     (4 / MMA_RB)
#define MMA_STEP   GPU_MMA_STEP(MMA_ROWS, MMA_DK, MMA_SIZE) /* keys of a turn */
#define MMA_KEYS   (MMA_STEP / MMA_KG)                      /* of a team */
#define MMA_TEAM   (MMA_RB * 32)                            /* threads */
#define MMA_SIZE   (MMA_EIGHT ? 1 : 2)
#define MMA_KB     (MMA_DK * MMA_SIZE) /* bytes of a key's row */
#define MMA_VB     (MMA_DV * MMA_SIZE)
#define MMA_HALVES GPU_MMA_HALVES(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE)
#define MMA_RING   GPU_MMA_RING(MMA_HALVES)
#define MMA_HALF   (GPU_MMA_HALF(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE) / MMA_KG) /* bytes, of a team */
#define MMA_CTAS   GPU_MMA_CTAS(MMA_ROWS, MMA_DK, MMA_DV, MMA_SIZE)
/* What matrix instructions take, and queries that have to be made so. */
#define MMA_WIDE   (MMA_BF16 && !MMA_EIGHT)
#define MMA_SCALED (MMA_BF16 && MMA_EIGHT)
/* Queries stay in registers. */
#define MMA_HOLD (MMA_RB == 1 && MMA_DK <= 128 && !MMA_EIGHT)

/* Byte of a 16-byte chunk of a row of `bytes`; neighbouring rows begin in other banks. */
#define MMA_TURN(row, bytes) ((bytes) % 128 == 0 ? (uint32_t)(row)&7u : (uint32_t)(row) / 2 & 3u)
#define MMA_AT(row, chunk, bytes)                                                                            \
    ((uint32_t)(row) * (uint32_t)(bytes) + (((uint32_t)(chunk) ^ MMA_TURN(row, bytes)) * 16u))

/*
 * What a lane adds to an address for chunk `high` (0 or 1) of its row of a block of 16: the same for all
 * blocks, and for a chunk that is `even` higher but for bits that MMA_BLOCK turns.
 */
#define MMA_LANE(row, high, bytes)                                                                           \
    ((uint32_t)(row) * (uint32_t)(bytes) + (((uint32_t)(high) ^ MMA_TURN(row, bytes)) * 16u))
#define MMA_TURNS(bytes) ((bytes) % 128 == 0 ? 8u : 4u) /* chunks that take turns */
#define MMA_BLOCK(lane, row, even, bytes)                                                                    \
    (((lane) ^ ((uint32_t)(even) % MMA_TURNS(bytes) * 16u)) +                                                \
     (uint32_t)(even) / MMA_TURNS(bytes) * MMA_TURNS(bytes) * 16u + (uint32_t)(row) * (uint32_t)(bytes))

/* In place of the address of a vector that is not there; no vector of whole chunks lies there. */
#define MMA_NOWHERE UINT64_C(1)

/* Each combination has its own of everything. */
#define mma_apply_rules  MMA(apply_rules)
#define mma_attend       MMA(attend)
#define mma_by_key       MMA(by_key)
#define mma_clean        MMA(clean)
#define mma_comes_last   MMA(comes_last)
#define mma_emit         MMA(emit)
#define mma_fetch        MMA(fetch)
#define mma_find         MMA(find)
#define mma_find_rules   MMA(find_rules)
#define mma_finish       MMA(finish)
#define mma_gather       MMA(gather)
#define mma_hide         MMA(hide)
#define mma_hold         MMA(hold)
#define mma_is_whole     MMA(is_whole)
#define mma_join         MMA(join)
#define mma_load         MMA(load)
#define mma_load_group   MMA(load_group)
#define mma_load_queries MMA(load_queries)
#define mma_load_rows    MMA(load_rows)
#define mma_mark         MMA(mark)
#define mma_merge        MMA(merge)
#define mma_merge_row    MMA(merge_row)
#define mma_multiply     MMA(multiply)
#define mma_note         MMA(note)
#define mma_odd_bit      MMA(odd_bit)
#define mma_odd_word     MMA(odd_word)
#define mma_pack         MMA(pack)
#define mma_present      MMA(present)
#define mma_query        MMA(query)
#define mma_row_of       MMA(row_of)
#define mma_rule         MMA(rule)
#define mma_rules        MMA(rules)
#define mma_scores       MMA(scores)
#define mma_shared       MMA(shared)
#define mma_softmax      MMA(softmax)
#define mma_special      MMA(special)
#define mma_tile_at      MMA(tile_at)
#define mma_values       MMA(values)
#define mma_wait         MMA(wait)
#define mma_zero         MMA(zero)

#define mma_fetch_odd   MMA(fetch_odd)
#define mma_key         MMA(key)
#define mma_pad         MMA(pad)
#define mma_reach       MMA(reach)
#define mma_load_plain  MMA(load_plain)
#define mma_load_scaled MMA(load_scaled)
#define mma_query_at    MMA(query_at)
#define mma_no_scores   MMA(no_scores)
#define mma_score_tile  MMA(score_tile)
#define mma_value_tile  MMA(value_tile)
struct mma_shared {
    /* Of tiles under way, and of the next one: addresses of vectors, two of which are read at once. */
    uint64_t k_at[MMA_RING][MMA_STEP];
    uint64_t v_at[MMA_RING][MMA_STEP];
    struct gpu_sequence sequence;
    struct gpu_piece piece;
    uint32_t last; /* this CTA merges */
    float max[4][MMA_MI * 16];
    float sum[4][MMA_MI * 16];
    float total[MMA_ROWS];
    float peak[MMA_ROWS];
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
#define MMA_PITCH (MMA_DV + 4)
static_assert(sizeof(struct mma_shared) <= MMA_FIXED, "the host reserves less");
static_assert((MMA_THIN ? 4 : 1) * MMA_ROWS * MMA_PITCH * 4 <=
                  MMA_ROWS * MMA_DK * 2 + MMA_HALVES * MMA_HALF * MMA_KG,
              "results do not fit");

/* In this order. */
#include "mma-load.h"

#include "mma-score.h"

#include "mma-odd.h"

#include "mma-value.h"

#include "mma-end.h"

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
    mma_load_queries(run, shared, queries, p->row0, p->kv_head);
    mma_load_rows(run, shared, p->row0, p->kv_head);
    if (gpu_thread() < MMA_KG)
        shared->odd_tile[gpu_thread()] = 0;
    gpu_barrier();
    GPU_LOOP
    for (uint32_t i = 0; i < MMA_HALVES - 1; i++) {
        if (i < all)
            mma_load(run, shared, own + i * MMA_HALF, i / 2, first + i / 2, key0, i % 2 != 0, whole);
        gpu_copy_commit();
    }
    const struct mma_rules rules = mma_find_rules(run, shared, p);
    if (MMA_HOLD)
        mma_hold(queries, q);
    uint32_t slot = 0, at = 0; /* of the tile's places in their ring, of its keys in theirs */
    GPU_LOOP
    for (uint32_t tile = first; tile < end; tile++) {
        const uint32_t done = 2 * (tile - first), later = tile + MMA_RING - 1;
        const uint32_t next = at == 0 ? MMA_HALVES - 1 : at - 1;
        const uint32_t behind = at + 1 == MMA_HALVES ? 0 : at + 1;
        float s[MMA_MI][MMA_KEYS / 8][4];
        struct gpu_entry entry;
        MMA_WAIT(MMA_HALVES - 2); /* the keys */
        if (done + MMA_HALVES - 1 < all)
            mma_load(run, shared, own + next * MMA_HALF, (slot + (MMA_HALVES - 1) / 2) % MMA_RING,
                     tile + (MMA_HALVES - 1) / 2, key0, (MMA_HALVES - 1) % 2 != 0, whole);
        gpu_copy_commit();
        entry = mma_find(run, &reach, later, key0); /* arrives meanwhile */
        mma_scores(run, queries, own + at * MMA_HALF, row_group, q, s);
        const bool plain = mma_apply_rules(run, shared, &rules, slot, row_group, tile, key0, s);
        MMA_WAIT(MMA_HALVES - 2); /* the values */
        unsigned char *values = own + behind * MMA_HALF;
        if (done + MMA_HALVES < all)
            mma_load(run, shared, own + at * MMA_HALF, (slot + MMA_HALVES / 2) % MMA_RING,
                     tile + MMA_HALVES / 2, key0, MMA_HALVES % 2 != 0, whole);
        gpu_copy_commit();
        if (!plain)
            mma_clean(run, shared, values, slot, tile, key0);
        if (!plain && shared->odd_tile[team] == tile + 1)
            mma_mark(shared, key0, s, o);
        mma_softmax(s, max, sum, o, rules.factor);
        mma_values(run, shared, values, slot, key0, plain, s, o);
        if (later < end)
            mma_note(run, shared, &reach, later, (slot + MMA_RING - 1) % MMA_RING, p->kv_head, key0, entry);
        slot = slot + 1 == MMA_RING ? 0 : slot + 1;
        at = behind + 1 == MMA_HALVES ? 0 : behind + 1;
    }
    GPU_COPY_WAIT(0);
    mma_join(shared, (float *)(void *)queries, row_group, team, max, sum, o, rules.factor);
}

#endif

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
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_MANY_ROWS, MMA_ROWS);
    const uint32_t heads = run->problem.kv_heads;
    const uint64_t place = (uint64_t)gpu_sum(run, run->batch.seqs) * heads - 1 - at;
    struct gpu_piece p;

    p.seq = gpu_find_sum(run, gpu_divide_u64(place, heads));
    const uint32_t inside = (uint32_t)(place - (uint64_t)gpu_sum(run, p.seq) * heads);
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
    unsigned char *queries = memory + MMA_FIXED, *halves = queries + MMA_ROWS * MMA_DK * 2;
    const uint64_t all = (uint64_t)gpu_sum(&run, run.batch.seqs) * run.problem.kv_heads;
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
        if (gpu_thread() < GPU_WARP) {
            struct gpu_sequence sequence;
            const struct gpu_piece piece = many ? mma_tile_at(&run, at, &sequence)
                                                : gpu_piece_at(&run, at, end, gpu_cta(), ctas, &sequence);
            if (gpu_thread() == 0) {
                shared->piece = piece;
                shared->sequence = sequence;
            }
        }
        gpu_barrier();
        const struct gpu_piece *p = &shared->piece;
        mma_attend(&run, shared, queries, halves, p, whole);
        mma_finish(&run, shared, (const float *)(void *)queries, p->row0, p->kv_head, p->parts > 1,
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
#undef mma_find_rules
#undef mma_finish
#undef mma_gather
#undef mma_hide
#undef mma_hold
#undef mma_is_whole
#undef mma_join
#undef mma_load
#undef mma_load_group
#undef mma_load_queries
#undef mma_load_rows
#undef mma_mark
#undef mma_merge
#undef mma_merge_row
#undef mma_multiply
#undef mma_note
#undef mma_odd_bit
#undef mma_odd_word
#undef mma_pack
#undef mma_present
#undef mma_query
#undef mma_row_of
#undef mma_rule
#undef mma_rules
#undef mma_scores
#undef mma_shared
#undef mma_softmax
#undef mma_special
#undef mma_tile_at
#undef mma_values
#undef mma_wait
#undef mma_zero
#undef mma_fetch_odd
#undef mma_key
#undef mma_pad
#undef mma_reach
#undef mma_load_plain
#undef mma_load_scaled
#undef mma_query_at
#undef mma_no_scores
#undef mma_score_tile
#undef mma_value_tile
#undef mma_base
#undef mma_lane
#undef mma_peaks
#undef mma_thin_base
#undef mma_thin_column
#undef mma_thin_fetch
#undef mma_thin_find
#undef mma_thin_hide
#undef mma_thin_hold
#undef mma_thin_join
#undef mma_thin_lane
#undef mma_thin_load
#undef mma_thin_mark
#undef mma_thin_note
#undef mma_thin_peaks
#undef mma_thin_raise
#undef mma_thin_rules
#undef mma_thin_scale
#undef mma_thin_scales
#undef mma_thin_score_tile
#undef mma_thin_scores
#undef mma_thin_slot
#undef mma_thin_softmax
#undef mma_thin_special
#undef mma_thin_turn
#undef mma_thin_turned
#undef mma_thin_typed_values
#undef mma_thin_value_tile
#undef mma_thin_values
#undef MMA_ROWS
#undef MMA_STEP
#undef MMA_ROOM
#undef MMA_KG
#undef MMA_KEYS
#undef MMA_TEAM
#undef MMA_SIZE
#undef MMA_KB
#undef MMA_VB
#undef MMA_HALVES
#undef MMA_RING
#undef MMA_HALF
#undef MMA_CTAS
#undef MMA_HOLD
#undef MMA_WIDE
#undef MMA_SCALED
#undef MMA_AT
#undef MMA_TURN
#undef MMA_LANE
#undef MMA_BLOCK
#undef MMA_TURNS
#undef MMA_NOWHERE
#undef MMA_FIXED
#undef MMA_PITCH
#undef MMA_WAIT
