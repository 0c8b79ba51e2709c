/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work planner: bounds from maxima, and the list of work items by two passes of a counting sort. */
#include "planner.h"

/* Cost classes of the counting sort: two for each power of two. */
#define COST_CLASSES 128u

/* One pass over a batch. */
struct pass {
    const struct attn_planner *planner;
    const struct attn_planner_batch *batch;
    uint32_t group;
    uint32_t tile;                  /* query tokens of a prefill item */
    uint32_t decode_heads;          /* kv heads of a decode item */
    struct attn_work_item *items;   /* NULL: the pass counts only */
    uint32_t classes[COST_CLASSES]; /* first pass: items of each class; second pass: where the next item of
                                       each goes */
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

uint32_t attn__planner_split_keys(uint32_t q_len, uint32_t kv_len)
{
    uint32_t limit = q_len < ATTN_SPLITS_MAX ? ATTN_SPLITS_MAX / (q_len > 0 ? q_len : 1) : 1;
    uint32_t splits = round_up(kv_len, ATTN_SPLIT_KEYS);

    return ATTN_SPLIT_KEYS * (splits > limit ? round_up(splits, limit) : 1);
}

static uint32_t tile_tokens(const struct attn_planner *planner)
{
    uint32_t group = planner->problem->heads / planner->problem->kv_heads;

    return planner->prefill_rows > group ? planner->prefill_rows / group : 1;
}

bool attn__planner_get_bounds(const struct attn_planner *planner, struct attn_planner_bounds *out)
{
    const struct attn_problem *problem = planner->problem;
    uint32_t tile = tile_tokens(planner);
    uint64_t rows = problem->max_rows;
    uint64_t live = at_most(problem->max_seqs, rows); /* sequences with query tokens */
    uint32_t split_tokens =
        at_most(problem->max_q, ATTN_SPLITS_MAX / 2); /* query tokens of a sequence whose keys are split */
    uint64_t tiles = rows / tile + live;
    uint64_t by_seqs = live * round_up(problem->max_q, tile);
    uint32_t splits = at_most(round_up(problem->max_kv, ATTN_SPLIT_KEYS), ATTN_SPLITS_MAX);
    uint64_t items, counters = 0, split_rows = 0;

    tiles = tiles < rows ? tiles : rows;
    tiles = tiles < by_seqs ? tiles : by_seqs;
    items = tiles;
    if (splits > 1) {
        uint64_t all_splits = live * at_most((uint64_t)splits * split_tokens, ATTN_SPLITS_MAX);
        items += all_splits;
        counters = live * round_up(split_tokens, tile);
        counters = counters < rows ? counters : rows;
        if (__builtin_mul_overflow(all_splits, problem->heads, &split_rows))
            return false;
    }
    if (__builtin_mul_overflow(items, problem->kv_heads, &items) ||
        __builtin_mul_overflow(counters, problem->kv_heads, &counters))
        return false;
    if (items > UINT32_MAX || counters > UINT32_MAX || split_rows > UINT32_MAX)
        return false;
    out->items = (uint32_t)items;
    out->counters = (uint32_t)counters;
    out->split_rows = (uint32_t)split_rows;
    out->splits = splits > 0 ? splits : 1;
    return true;
}

/* The larger the cost, the smaller the class, so that long items come first. */
static uint32_t cost_class(const struct attn_work_item *work)
{
    uint64_t cost = ((uint64_t)work->key_end - work->key_begin + 64) * work->tokens;
    cost *= at_most(work->kv_heads, 65536);
    uint32_t power = 63u - (uint32_t)__builtin_clzll(cost); /* at least 6, because of the constant above */

    return COST_CLASSES - 1 - (2 * power + (uint32_t)(cost >> (power - 1) & 1));
}

static void add_item(struct pass *pass, const struct attn_work_item *work)
{
    uint32_t *class = &pass->classes[cost_class(work)];

    if (pass->items != NULL)
        pass->items[*class] = *work;
    ++*class;
    pass->result.items++;
}

/* The smallest range with every key that a token of the work item sees. */
static void find_keys(const struct pass *pass, const struct attn_visible *visible,
                      const struct attn_work_item *work, uint32_t *lo, uint32_t *hi)
{
    const void *positions = pass->batch->positions;
    uint32_t first, end, t, back;

    *lo = UINT32_MAX;
    *hi = 0;
    for (t = 0; t < work->tokens; t++) {
        int64_t position = visible->shift + work->q_index + t;
        if (positions != NULL)
            position =
                attn__position(positions, pass->batch->position_dtype, (uint64_t)work->first_token + t);
        attn__visible_range(visible, position, &first, &end);
        if (first == end)
            continue;
        *lo = first < *lo ? first : *lo;
        *hi = end > *hi ? end : *hi;
        if (positions == NULL)
            break;
    }
    /* Without positions, ranges only move to the right, so the last token that sees any key sees the last
     * one. With context parallelism the last tokens may see no key of this rank. */
    for (back = work->tokens; positions == NULL && back > t + 1; back--) {
        attn__visible_range(visible, visible->shift + work->q_index + back - 1, &first, &end);
        if (first < end) {
            *hi = end;
            break;
        }
    }
    if (*hi == 0)
        *lo = 0;
}

/* The splits of one tile of query tokens, for work->kv_heads kv heads. */
static void add_tile(struct pass *pass, const struct attn_visible *visible, struct attn_work_item *work)
{
    uint32_t keys = attn__planner_split_keys(work->q_len, work->kv_len);
    uint32_t lo, hi;

    find_keys(pass, visible, work, &lo, &hi);
    uint32_t first = lo / keys;
    work->splits = hi > lo ? (hi - 1) / keys - first + 1 : 1;
    work->split_row = 0;
    work->counter = 0;
    if (work->splits > 1) {
        work->split_row = pass->result.split_rows;
        work->counter = pass->result.counters++;
        pass->result.split_rows += work->splits * work->tokens * work->kv_heads * pass->group;
    }
    for (work->split = 0; work->split < work->splits; work->split++) {
        uint64_t begin = (uint64_t)(first + work->split) * keys;
        work->key_begin = begin > lo ? (uint32_t)begin : lo;
        work->key_end = at_most(begin + keys, hi);
        add_item(pass, work);
    }
}

static uint32_t count_keys(const struct attn_planner_batch *batch, uint32_t seq, uint32_t q_len)
{
    if (batch->kv_lens != NULL)
        return (uint32_t)batch->kv_lens[seq];
    return batch->kv_offsets != NULL ? (uint32_t)(batch->kv_offsets[seq + 1] - batch->kv_offsets[seq])
                                     : q_len;
}

static void add_sequence(struct pass *pass, uint32_t seq)
{
    const struct attn_planner_batch *batch = pass->batch;
    const struct attn_problem *problem = pass->planner->problem;
    struct attn_work_item work = {.seq = seq};
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
    work.kernel = (uint64_t)work.q_len * pass->group > pass->planner->decode_rows;
    uint32_t heads = work.kernel == 0 ? pass->decode_heads : 1;
    for (work.kv_head = 0; work.kv_head < problem->kv_heads; work.kv_head += work.kv_heads) {
        work.kv_heads = at_most(problem->kv_heads - work.kv_head, heads);
        /* The last tile first, because in a causal sequence it sees the most keys. */
        for (uint32_t tiles = round_up(work.q_len, pass->tile); tiles > 0; tiles--) {
            work.q_index = (tiles - 1) * pass->tile;
            work.tokens = at_most(work.q_len - work.q_index, pass->tile);
            work.first_token = (uint32_t)batch->q_offsets[seq] + work.q_index;
            add_tile(pass, &visible, &work);
        }
    }
}

static void add_batch(struct pass *pass)
{
    pass->result = (struct attn_planner_result){0};
    for (uint32_t seq = 0; seq < pass->batch->seqs; seq++)
        add_sequence(pass, seq);
}

/* A decode item with all kv heads reads pages in memory order; it gets fewer heads where threads would idle.
 */
static void choose_heads(struct pass *pass)
{
    uint32_t kv_heads = pass->planner->problem->kv_heads;
    uint64_t wanted = 2 * (uint64_t)pass->planner->units;

    pass->decode_heads = kv_heads;
    add_batch(pass);
    if (pass->result.items > 0 && pass->result.items < wanted) {
        uint64_t groups = (wanted + pass->result.items - 1) / pass->result.items;
        pass->decode_heads = round_up(kv_heads, at_most(groups, kv_heads));
    }
    memset(pass->classes, 0, sizeof pass->classes);
}

void attn__planner_run(const struct attn_planner *planner, const struct attn_planner_batch *batch,
                       struct attn_work_item *items, struct attn_planner_result *out)
{
    struct pass pass = {.planner = planner, .batch = batch};
    uint32_t place = 0;

    pass.group = planner->problem->heads / planner->problem->kv_heads;
    pass.tile = tile_tokens(planner);
    choose_heads(&pass);
    add_batch(&pass);
    for (uint32_t i = 0; i < COST_CLASSES; i++) {
        uint32_t count = pass.classes[i];
        pass.classes[i] = place;
        place += count;
    }
    pass.items = items;
    add_batch(&pass);
    *out = pass.result;
}
