/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work planner: bounds from maxima, and the list of works by two passes of a counting sort. */
#include "planner.h"

#include "visible.h"

/* Classes of cost: two for each power of two. */
#define COST_CLASSES 128u

/* One pass over a batch. */
struct pass {
    const struct attn_planner *planner;
    const struct attn_planner_batch *batch;
    uint32_t group;
    uint32_t tile;                  /* query tokens of a work of many rows */
    uint32_t few_heads;             /* kv heads of a work of few rows */
    struct attn_work *works;        /* NULL: the pass counts only */
    uint32_t classes[COST_CLASSES]; /* counting: works of the class; writing: place of its next work */
    struct attn_planner_result result;
};

static uint32_t at_most(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

static uint32_t round_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

uint32_t attn__planner_cut(uint32_t q_len, uint32_t kv_len)
{
    uint32_t limit = q_len < ATTN_PARTS_MAX ? ATTN_PARTS_MAX / (q_len > 0 ? q_len : 1) : 1;
    uint32_t cuts = round_up(kv_len, ATTN_CUT_KEYS);

    return ATTN_CUT_KEYS * (cuts > limit ? round_up(cuts, limit) : 1);
}

static uint32_t tile_tokens(const struct attn_planner *planner)
{
    uint32_t group = planner->problem->heads / planner->problem->kv_heads;

    return planner->many > group ? planner->many / group : 1;
}

bool attn__planner_get_bounds(const struct attn_planner *planner, struct attn_planner_bounds *out)
{
    const struct attn_problem *problem = planner->problem;
    uint32_t tile = tile_tokens(planner);
    uint64_t rows = problem->max_rows;
    uint64_t live = at_most(problem->max_seqs, rows);                  /* sequences with query tokens */
    uint32_t cut_tokens = at_most(problem->max_q, ATTN_PARTS_MAX / 2); /* of a sequence that is cut */
    uint64_t tiles = rows / tile + live;
    uint64_t by_seqs = live * round_up(problem->max_q, tile);
    uint32_t splits = at_most(round_up(problem->max_kv, ATTN_CUT_KEYS), ATTN_PARTS_MAX);
    uint64_t works, counters = 0, part_rows = 0;

    tiles = tiles < rows ? tiles : rows;
    tiles = tiles < by_seqs ? tiles : by_seqs;
    works = tiles;
    if (splits > 1) {
        uint64_t parts = live * at_most((uint64_t)splits * cut_tokens, ATTN_PARTS_MAX);
        works += parts;
        counters = live * round_up(cut_tokens, tile);
        counters = counters < rows ? counters : rows;
        if (__builtin_mul_overflow(parts, problem->heads, &part_rows))
            return false;
    }
    if (__builtin_mul_overflow(works, problem->kv_heads, &works) ||
        __builtin_mul_overflow(counters, problem->kv_heads, &counters))
        return false;
    if (works > UINT32_MAX || counters > UINT32_MAX || part_rows > UINT32_MAX)
        return false;
    out->works = (uint32_t)works;
    out->counters = (uint32_t)counters;
    out->part_rows = (uint32_t)part_rows;
    out->splits = splits > 0 ? splits : 1;
    return true;
}

/* Longest first: the larger the cost, the smaller the class. */
static uint32_t cost_class(const struct attn_work *work)
{
    uint64_t cost = ((uint64_t)work->key_end - work->key_begin + 64) * work->rows;
    cost *= at_most(work->kv_heads, 65536);
    uint32_t power = 63u - (uint32_t)__builtin_clzll(cost); /* at least 6: the constant above */

    return COST_CLASSES - 1 - (2 * power + (uint32_t)(cost >> (power - 1) & 1));
}

static void put(struct pass *pass, const struct attn_work *work)
{
    uint32_t *class = &pass->classes[cost_class(work)];

    if (pass->works != NULL)
        pass->works[*class] = *work;
    ++*class;
    pass->result.works++;
}

/* Union of what the tokens of a work see. */
static void find_keys(const struct pass *pass, const struct attn_visible *visible,
                      const struct attn_work *work, uint32_t *lo, uint32_t *hi)
{
    const void *positions = pass->batch->positions;
    uint32_t first, end, t, back;

    *lo = UINT32_MAX;
    *hi = 0;
    for (t = 0; t < work->rows; t++) {
        int64_t position = visible->shift + work->q_index + t;
        if (positions != NULL)
            position = attn__position(positions, pass->batch->position_dtype, (uint64_t)work->row + t);
        attn__visible_range(visible, position, &first, &end);
        if (first == end)
            continue;
        *lo = first < *lo ? first : *lo;
        *hi = end > *hi ? end : *hi;
        if (positions == NULL)
            break;
    }
    /* Without positions ranges move one way: the last token that sees anything sees the last key. Of keys
     * that are sharded over ranks a token in between may see none. */
    for (back = work->rows; positions == NULL && back > t + 1; back--) {
        attn__visible_range(visible, visible->shift + work->q_index + back - 1, &first, &end);
        if (first < end) {
            *hi = end;
            break;
        }
    }
    if (*hi == 0)
        *lo = 0;
}

/* The parts of one tile for some kv heads. */
static void put_tile(struct pass *pass, const struct attn_visible *visible, struct attn_work *work)
{
    uint32_t cut = attn__planner_cut(work->q_len, work->kv_len);
    uint32_t lo, hi;

    find_keys(pass, visible, work, &lo, &hi);
    uint32_t first = lo / cut;
    work->parts = hi > lo ? (hi - 1) / cut - first + 1 : 1;
    work->part_row = 0;
    work->counter = 0;
    if (work->parts > 1) {
        work->part_row = pass->result.part_rows;
        work->counter = pass->result.counters++;
        pass->result.part_rows += work->parts * work->rows * work->kv_heads * pass->group;
    }
    for (work->part = 0; work->part < work->parts; work->part++) {
        uint64_t begin = (uint64_t)(first + work->part) * cut;
        work->key_begin = begin > lo ? (uint32_t)begin : lo;
        work->key_end = at_most(begin + cut, hi);
        put(pass, work);
    }
}

static uint32_t count_keys(const struct attn_planner_batch *batch, uint32_t seq, uint32_t q_len)
{
    if (batch->kv_lens != NULL)
        return (uint32_t)batch->kv_lens[seq];
    return batch->kv_offsets != NULL ? (uint32_t)(batch->kv_offsets[seq + 1] - batch->kv_offsets[seq])
                                     : q_len;
}

static void put_sequence(struct pass *pass, uint32_t seq)
{
    const struct attn_planner_batch *batch = pass->batch;
    const struct attn_problem *problem = pass->planner->problem;
    struct attn_work work = {.seq = seq};
    struct attn_visible visible;

    work.q_len = (uint32_t)(batch->q_offsets[seq + 1] - batch->q_offsets[seq]);
    work.kv_len = count_keys(batch, seq, work.q_len);
    if (work.q_len == 0)
        return;
    if (batch->seq_causal != NULL)
        work.causal = batch->seq_causal[seq] != 0;
    else
        work.causal = problem->causal == ATTN_CAUSAL_YES;
    attn__visible_init(&visible, problem, work.causal, work.q_len,
                       batch->global_lens != NULL ? (uint32_t)batch->global_lens[seq] : work.kv_len);
    visible.shard = batch->shard;
    work.kernel = (uint64_t)work.q_len * pass->group > pass->planner->few;
    uint32_t heads = work.kernel == 0 ? pass->few_heads : 1;
    for (work.kv_head = 0; work.kv_head < problem->kv_heads; work.kv_head += work.kv_heads) {
        work.kv_heads = at_most(problem->kv_heads - work.kv_head, heads);
        /* Last tile first: in a causal sequence it sees the most keys. */
        for (uint32_t tiles = round_up(work.q_len, pass->tile); tiles > 0; tiles--) {
            work.q_index = (tiles - 1) * pass->tile;
            work.rows = at_most(work.q_len - work.q_index, pass->tile);
            work.row = (uint32_t)batch->q_offsets[seq] + work.q_index;
            put_tile(pass, &visible, &work);
        }
    }
}

static void put_batch(struct pass *pass)
{
    pass->result = (struct attn_planner_result){0};
    for (uint32_t seq = 0; seq < pass->batch->seqs; seq++)
        put_sequence(pass, seq);
}

/* All kv heads in one work reads the pages in memory order; fewer where threads would be idle. */
static void choose_heads(struct pass *pass)
{
    uint32_t kv_heads = pass->planner->problem->kv_heads;
    uint64_t wanted = 2 * (uint64_t)pass->planner->units;

    pass->few_heads = kv_heads;
    put_batch(pass);
    if (pass->result.works > 0 && pass->result.works < wanted) {
        uint64_t pieces = (wanted + pass->result.works - 1) / pass->result.works;
        pass->few_heads = round_up(kv_heads, at_most(pieces, kv_heads));
    }
    memset(pass->classes, 0, sizeof pass->classes);
}

void attn__planner_run(const struct attn_planner *planner, const struct attn_planner_batch *batch,
                       struct attn_work *works, struct attn_planner_result *out)
{
    struct pass pass = {.planner = planner, .batch = batch};
    uint32_t place = 0;

    pass.group = planner->problem->heads / planner->problem->kv_heads;
    pass.tile = tile_tokens(planner);
    choose_heads(&pass);
    put_batch(&pass);
    for (uint32_t i = 0; i < COST_CLASSES; i++) {
        uint32_t count = pass.classes[i];
        pass.classes[i] = place;
        place += count;
    }
    pass.works = works;
    put_batch(&pass);
    *out = pass.result;
}
