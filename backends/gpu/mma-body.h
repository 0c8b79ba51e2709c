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

/* Each combination has its own of everything. */
#define mma_apply_rules       MMA(apply_rules)
#define mma_ask               MMA(ask)
#define mma_attend            MMA(attend)
#define mma_base              MMA(base)
#define mma_begin             MMA(begin)
#define mma_by_key            MMA(by_key)
#define mma_clean             MMA(clean)
#define mma_comes_last        MMA(comes_last)
#define mma_copy_queries      MMA(copy_queries)
#define mma_emit              MMA(emit)
#define mma_emit_four         MMA(emit_four)
#define mma_emit_lse          MMA(emit_lse)
#define mma_emit_odd          MMA(emit_odd)
#define mma_fetch             MMA(fetch)
#define mma_fetch_odd         MMA(fetch_odd)
#define mma_fetching          MMA(fetching)
#define mma_find              MMA(find)
#define mma_find_rules        MMA(find_rules)
#define mma_finish            MMA(finish)
#define mma_gather            MMA(gather)
#define mma_hide              MMA(hide)
#define mma_hold              MMA(hold)
#define mma_is_direct         MMA(is_direct)
#define mma_join              MMA(join)
#define mma_key               MMA(key)
#define mma_lane              MMA(lane)
#define mma_last              MMA(last)
#define mma_last_of           MMA(last_of)
#define mma_load              MMA(load)
#define mma_load_group        MMA(load_group)
#define mma_load_plain        MMA(load_plain)
#define mma_load_queries      MMA(load_queries)
#define mma_load_rows         MMA(load_rows)
#define mma_load_scaled       MMA(load_scaled)
#define mma_load_steps        MMA(load_steps)
#define mma_mark              MMA(mark)
#define mma_merge             MMA(merge)
#define mma_merge_row         MMA(merge_row)
#define mma_merge_weight      MMA(merge_weight)
#define mma_merged            MMA(merged)
#define mma_multiply          MMA(multiply)
#define mma_next              MMA(next)
#define mma_no_scores         MMA(no_scores)
#define mma_note              MMA(note)
#define mma_note_one          MMA(note_one)
#define mma_note_queries      MMA(note_queries)
#define mma_odd_bit           MMA(odd_bit)
#define mma_odd_word          MMA(odd_word)
#define mma_origin            MMA(origin)
#define mma_origin_of         MMA(origin_of)
#define mma_pack              MMA(pack)
#define mma_pad               MMA(pad)
#define mma_part_lse          MMA(part_lse)
#define mma_part_out          MMA(part_out)
#define mma_peaks             MMA(peaks)
#define mma_place             MMA(place)
#define mma_present           MMA(present)
#define mma_put               MMA(put)
#define mma_query             MMA(query)
#define mma_query_at          MMA(query_at)
#define mma_reach             MMA(reach)
#define mma_rescale           MMA(rescale)
#define mma_row_of            MMA(row_of)
#define mma_rule              MMA(rule)
#define mma_rules             MMA(rules)
#define mma_score_stream      MMA(score_stream)
#define mma_score_tile        MMA(score_tile)
#define mma_scores            MMA(scores)
#define mma_send              MMA(send)
#define mma_shared            MMA(shared)
#define mma_special           MMA(special)
#define mma_stage             MMA(stage)
#define mma_thin_base         MMA(thin_base)
#define mma_thin_base_of      MMA(thin_base_of)
#define mma_thin_column       MMA(thin_column)
#define mma_thin_fetch        MMA(thin_fetch)
#define mma_thin_find         MMA(thin_find)
#define mma_thin_hide         MMA(thin_hide)
#define mma_thin_hold         MMA(thin_hold)
#define mma_thin_lane         MMA(thin_lane)
#define mma_thin_load         MMA(thin_load)
#define mma_thin_mark         MMA(thin_mark)
#define mma_thin_note         MMA(thin_note)
#define mma_thin_peaks        MMA(thin_peaks)
#define mma_thin_peaks_of     MMA(thin_peaks_of)
#define mma_thin_put          MMA(thin_put)
#define mma_thin_raise        MMA(thin_raise)
#define mma_thin_rules        MMA(thin_rules)
#define mma_thin_scale        MMA(thin_scale)
#define mma_thin_scales       MMA(thin_scales)
#define mma_thin_score_tile   MMA(thin_score_tile)
#define mma_thin_scores       MMA(thin_scores)
#define mma_thin_slot         MMA(thin_slot)
#define mma_thin_softmax      MMA(thin_softmax)
#define mma_thin_special      MMA(thin_special)
#define mma_thin_turn         MMA(thin_turn)
#define mma_thin_turned       MMA(thin_turned)
#define mma_thin_typed_values MMA(thin_typed_values)
#define mma_thin_value_tile   MMA(thin_value_tile)
#define mma_thin_values       MMA(thin_values)
#define mma_tile_at           MMA(tile_at)
#define mma_unit              MMA(unit)
#define mma_value_stream      MMA(value_stream)
#define mma_value_tile        MMA(value_tile)
#define mma_values            MMA(values)
#define mma_wait              MMA(wait)
#define mma_way               MMA(way)
#define mma_way_of            MMA(way_of)
#define mma_weigh             MMA(weigh)
#define mma_weigh_two         MMA(weigh_two)
#define mma_write             MMA(write)
#define mma_zero              MMA(zero)

/* Where keys, or values, of a sequence and head begin: of key 0, or of token 0 of page 0. */
struct mma_origin {
    uint64_t base;
    int64_t page_stride;
    int64_t token_stride;
};

struct mma_shared {
    /* Of tiles under way, and of the next one: addresses of vectors, two of which are read at once. */
    uint64_t k_at[MMA_RING][MMA_STEP];
    uint64_t v_at[MMA_RING][MMA_STEP];
    struct gpu_sequence sequence;
    struct mma_origin origin[2][2]; /* of keys and values, cached and new */
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

/* The tile of rows at `at` of a sequence of many rows; those that see the most keys, its last ones, come
 * first. */
GPU_INLINE struct gpu_piece mma_tile_at(const struct gpu_run *run, const struct gpu_sequence *s, uint64_t at,
                                        uint64_t all, uint32_t below)
{
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_MANY_ROWS, MMA_ROWS);
    const uint32_t heads = run->problem.kv_heads;
    const uint32_t inside = (uint32_t)(all - 1 - at - (uint64_t)below * heads);
    struct gpu_piece p;

    p.seq = s->index;
    p.kv_head = inside % heads;
    p.row0 = inside / heads * MMA_ROWS;
    const uint32_t last = (p.row0 + MMA_ROWS - 1) / run->group;
    p.end = gpu_key_tiles(&cuts, &s->visible, p.row0 / run->group, last < s->q_len ? last : s->q_len - 1,
                          s->kv_len, &p.first);
    p.end += p.first;
    p.next = at + gpu_ctas() < all ? at + gpu_ctas() : 0;
    p.parts = 1;
    p.part = p.first_slot = p.rest_slot = p.slot_step = 0;
    return p;
}

/* Place of the CTA's first piece, or of the one behind the last, in the schedule. */
GPU_INLINE uint64_t mma_place(const struct gpu_run *run, const struct mma_shared *shared, uint64_t all,
                              uint32_t ctas, bool begins)
{
    if (!begins)
        return shared->piece.next;
    return run->phase == GPU_MANY_ROWS || run->problem.det != 0 ? gpu_cta()
                                                                : gpu_line_begin(all, gpu_cta(), ctas);
}

/* What the sums of the place's sequence have between them. */
GPU_INLINE uint64_t mma_unit(const struct gpu_run *run, uint64_t all, uint64_t place)
{
    return gpu_divide_u64(run->phase == GPU_MANY_ROWS ? all - 1 - place : place, run->problem.kv_heads);
}

/*
 * The CTA's first piece, or the one behind the last. Sequences of few rows: of its stretch of the line of
 * tiles, or with det=1 of its share of fixed cuts. Sequences of many rows: of its share of tiles of rows.
 * Each lane of a warp looks at a sequence, all at once; the one whose sequence holds the place writes the
 * piece.
 */
GPU_INLINE void mma_next(const struct gpu_run *run, struct mma_shared *shared, bool begins)
{
    const uint32_t seqs = run->batch.seqs;
    const bool many = MMA_MANY || run->phase == GPU_MANY_ROWS, line = !many && run->problem.det == 0;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none with an empty piece */
    uint32_t index = gpu_thread(), below = 0, above = 0;
    struct gpu_sequence s;

    /* Of 32 sequences and fewer nothing has to be known before all are asked for. */
    if (seqs > GPU_WARP && (!begins || gpu_cta() < ctas))
        index += gpu_find_block(run, mma_unit(run, all, mma_place(run, shared, all, ctas, begins)));
    const bool there = index < seqs;
    if (there) {
        below = gpu_sum(run, index);
        above = gpu_sum(run, index + 1);
        s = gpu_sequence(run, index);
    }
    if (begins && gpu_cta() >= ctas) {
        shared->piece.parts = 0;
        return;
    }
    const uint64_t at = mma_place(run, shared, all, ctas, begins);
    const uint64_t unit = mma_unit(run, all, at);
    gpu_warp_barrier(); /* the last piece has been read */
    if (there && unit >= below && unit < above) {
        const uint64_t end = line ? gpu_line_begin(all, gpu_cta() + 1, ctas) : all;
        shared->sequence = s;
        shared->piece = many ? mma_tile_at(run, &s, at, all, below)
                             : gpu_piece_at(run, &s, at, end, all, ctas, below, above);
    }
    gpu_warp_barrier();
    if (gpu_thread() < 4)
        shared->origin[gpu_thread() / 2][gpu_thread() % 2] = mma_origin_of(
            run, &shared->sequence, shared->piece.kv_head, gpu_thread() / 2 != 0, gpu_thread() % 2 != 0);
}

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
#undef mma_apply_rules
#undef mma_ask
#undef mma_attend
#undef mma_base
#undef mma_begin
#undef mma_by_key
#undef mma_clean
#undef mma_comes_last
#undef mma_copy_queries
#undef mma_emit
#undef mma_emit_four
#undef mma_emit_lse
#undef mma_emit_odd
#undef mma_fetch
#undef mma_fetch_odd
#undef mma_fetching
#undef mma_find
#undef mma_find_rules
#undef mma_finish
#undef mma_gather
#undef mma_hide
#undef mma_hold
#undef mma_is_direct
#undef mma_join
#undef mma_key
#undef mma_lane
#undef mma_last
#undef mma_last_of
#undef mma_load
#undef mma_load_group
#undef mma_load_plain
#undef mma_load_queries
#undef mma_load_rows
#undef mma_load_scaled
#undef mma_load_steps
#undef mma_mark
#undef mma_merge
#undef mma_merge_row
#undef mma_merge_weight
#undef mma_merged
#undef mma_multiply
#undef mma_next
#undef mma_no_scores
#undef mma_note
#undef mma_note_one
#undef mma_note_queries
#undef mma_odd_bit
#undef mma_odd_word
#undef mma_origin
#undef mma_origin_of
#undef mma_pack
#undef mma_pad
#undef mma_part_lse
#undef mma_part_out
#undef mma_peaks
#undef mma_place
#undef mma_present
#undef mma_put
#undef mma_query
#undef mma_query_at
#undef mma_reach
#undef mma_rescale
#undef mma_row_of
#undef mma_rule
#undef mma_rules
#undef mma_score_stream
#undef mma_score_tile
#undef mma_scores
#undef mma_send
#undef mma_shared
#undef mma_special
#undef mma_stage
#undef mma_thin_base
#undef mma_thin_base_of
#undef mma_thin_column
#undef mma_thin_fetch
#undef mma_thin_find
#undef mma_thin_hide
#undef mma_thin_hold
#undef mma_thin_lane
#undef mma_thin_load
#undef mma_thin_mark
#undef mma_thin_note
#undef mma_thin_peaks
#undef mma_thin_peaks_of
#undef mma_thin_put
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
#undef mma_tile_at
#undef mma_unit
#undef mma_value_stream
#undef mma_value_tile
#undef mma_values
#undef mma_wait
#undef mma_way
#undef mma_way_of
#undef mma_weigh
#undef mma_weigh_two
#undef mma_write
#undef mma_zero
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
#undef MMA_STRIDE
#undef MMA_LANE
#undef MMA_BLOCK
#undef MMA_TURNS
#undef MMA_SHARERS
#undef MMA_STEPS
#undef MMA_EVERY
#undef MMA_NOWHERE
#undef MMA_FIXED
#undef MMA_PITCH
#undef MMA_SHARE
#undef MMA_HOLDERS
#undef MMA_AREA
#undef MMA_AT_ONCE
#undef MMA_CLEAN
#undef MMA_EVERYONE
#undef MMA_WAIT
