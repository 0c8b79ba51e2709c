/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention in portable C for every type, size and addressing: runs what no faster kernel serves, and is what
 * the other kernels are compared with.
 *
 * Up to BLOCK_ROWS rows of a kv head share each tile of converted keys and values. Scores are double, sums
 * are staged: a tile of at most 64 keys from zero, a span of at most 512, the total. Tiles and spans lie at
 * multiples of their size from key 0, so that a row's order of additions depends on its own keys alone.
 */
#include <math.h>

#include "cpu.h"
#include "visible.h"

#define BLOCK_ROWS 16u
/* The row max is only raised by more than this: exp(8) loses no precision, but each rescaling rounds. */
#define RESCALE_THRESHOLD 8.0

/* One row: its token and query head, and its staged sums. */
struct row {
    uint32_t t, h;
    uint32_t lo, hi;
    struct cpu_bias bias;
    double max;
    double l_span, l_total;
    float *q, *tile, *span, *total;
};

/* The keys of a tile that are in valid blocks: numbers and converted rows. With MLA v is k. */
struct tile {
    uint32_t count;
    uint32_t key[CPU_TILE_KEYS];
    float *k, *v;
    uint32_t v_stride;
};

struct row_block {
    const struct cpu_run *run;
    const struct attn_work_item *work;
    uint32_t head; /* kv head */
    uint32_t dim, dim_vo;
    uint32_t rows;
    struct row row[BLOCK_ROWS];
    struct tile tile;
};

uint64_t cpu_attention_c_scratch(const struct attn_problem *problem)
{
    uint64_t row = problem->head_dim + 3 * (uint64_t)problem->head_dim_vo;
    uint64_t key = (uint64_t)problem->head_dim + problem->head_dim_vo;

    return sizeof(float) * (BLOCK_ROWS * row + CPU_TILE_KEYS * key);
}

static void lay_out(struct row_block *block, void *scratch)
{
    float *next = scratch;

    for (uint32_t r = 0; r < BLOCK_ROWS; r++) {
        float **const sums[] = {&block->row[r].tile, &block->row[r].span, &block->row[r].total};
        block->row[r].q = next;
        next += block->dim;
        for (uint32_t i = 0; i < 3; i++, next += block->dim_vo)
            *sums[i] = next;
    }
    block->tile.k = next;
    block->tile.v = next + (size_t)CPU_TILE_KEYS * block->dim;
    block->tile.v_stride = block->dim_vo;
    if (block->run->problem->mla != 0) {
        block->tile.v = next;
        block->tile.v_stride = block->dim;
    }
}

static void multiply(float *values, uint32_t count, float scale)
{
    for (uint32_t d = 0; scale != 1 && d < count; d++)
        values[d] *= scale;
}

/* Loads a query, which may be in two tensors: MLA columns and rope columns. */
static void load_query(const struct row_block *block, const struct row *row)
{
    const struct cpu_run *run = block->run;
    uint32_t dtype = run->problem->q_dtype, first = run->q_rope != NULL ? block->dim_vo : block->dim;
    int64_t at = (int64_t)block->work->first_token + row->t;

    cpu_load(dtype, row->q, run->q + at * run->q_token + row->h * run->q_head, first);
    if (first < block->dim)
        cpu_load(dtype, row->q + first, run->q_rope + at * run->q_rope_token + row->h * run->q_rope_head,
                 block->dim - first);
    multiply(row->q, block->dim,
             cpu_scale_at(&run->q_scale, block->work->seq, at, row->h / run->q_scale_group));
}

/* Starts row `index` of the kv head, numbered by token and then by head of the group. */
static void begin_row(const struct row_block *block, struct row *row, uint32_t index)
{
    const struct cpu_run *run = block->run;

    row->t = index / run->group;
    row->h = block->head * run->group + index % run->group;
    row->max = -(double)INFINITY;
    row->l_span = row->l_total = 0;
    cpu_visible(run, block->work, row->t, &row->lo, &row->hi);
    cpu_bias_init(run, block->work, row->t, row->h, &row->bias);
    load_query(block, row);
    memset(row->span, 0, block->dim_vo * sizeof(float));
    memset(row->total, 0, block->dim_vo * sizeof(float));
}

/* Converts a key or value, which lies at `from`, and applies its scale. */
static void load_vector(const struct cpu_cache *cache, const char *from, float scale, float *to, uint32_t dim)
{
    uint32_t x = cache->x != 0 && cache->x < dim ? cache->x : dim;

    for (uint32_t d = 0; d < dim; d += x, from += cache->x_stride)
        cpu_load(cache->dtype, to + d, from, dim - d < x ? dim - d : x);
    multiply(to, dim, scale);
}

/* Converts those of the keys [first, end) that are in valid blocks. */
static void load_tile(struct row_block *block, uint32_t first, uint32_t end)
{
    const struct cpu_run *run = block->run;
    struct tile *tile = &block->tile;
    struct cpu_keys keys;

    tile->count = 0;
    cpu_find_keys(run, block->work, first, end - first, &keys);
    for (uint32_t i = 0; i < end - first; i++) {
        const bool is_new = i >= keys.first_new;
        const struct cpu_cache *k = is_new ? &run->k_new : &run->k, *v = is_new ? &run->v_new : &run->v;
        const uint32_t head = block->head;
        if ((keys.present >> i & 1) == 0)
            continue;
        load_vector(k, run->k.base + keys.k[i] + head * k->head_stride,
                    cpu_key_scale(&run->k.scale, &run->k_new.scale, keys.k_scale, &keys, i, head),
                    tile->k + (size_t)tile->count * block->dim, block->dim);
        if (tile->v != tile->k)
            load_vector(v, run->v.base + keys.v[i] + head * v->head_stride,
                        cpu_key_scale(&run->v.scale, &run->v_new.scale, keys.v_scale, &keys, i, head),
                        tile->v + (size_t)tile->count * block->dim_vo, block->dim_vo);
        tile->key[tile->count++] = first + i;
    }
}

static double score(const struct row_block *block, const float *q, const float *k)
{
    double sum[4] = {0};
    double cap = (double)block->run->softcap;
    uint32_t d = 0;

    for (; d + 4 <= block->dim; d += 4)
        for (uint32_t i = 0; i < 4; i++)
            sum[i] += (double)q[d + i] * (double)k[d + i];
    for (; d < block->dim; d++)
        sum[0] += (double)q[d] * (double)k[d];
    double s = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * (double)block->run->scale;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* Raises the row max and rescales the sums. */
static void raise_max(const struct row_block *block, struct row *row, double max)
{
    double factor = exp(row->max - max);

    row->max = max;
    row->l_span *= factor;
    row->l_total *= factor;
    for (uint32_t d = 0; d < block->dim_vo; d++) {
        row->span[d] *= (float)factor;
        row->total[d] *= (float)factor;
    }
}

/* Adds the keys of a tile that a row sees to its sums. */
static void add_tile(const struct row_block *block, struct row *row)
{
    const struct tile *tile = &block->tile;
    uint32_t begin = 0, end = tile->count, dim_vo = block->dim_vo, count = 0, seen[CPU_TILE_KEYS];
    double s[CPU_TILE_KEYS], bias, tile_max = -(double)INFINITY;

    while (begin < end && tile->key[begin] < row->lo)
        begin++;
    while (end > begin && tile->key[end - 1] >= row->hi)
        end--;
    for (uint32_t i = begin; i < end; i++) {
        if (!cpu_bias_of_key(&row->bias, tile->key[i], &bias))
            continue;
        s[count] = score(block, row->q, tile->k + (size_t)i * block->dim) + bias;
        tile_max = s[count] > tile_max ? s[count] : tile_max;
        seen[count++] = i;
    }
    if (count == 0)
        return;
    if (tile_max > row->max + RESCALE_THRESHOLD)
        raise_max(block, row, tile_max);
    /* Keys before any that weighs something may have scores of -infinity: they weigh nothing. */
    const double base = row->max == -(double)INFINITY ? 0 : row->max;
    memset(row->tile, 0, dim_vo * sizeof(float));
    double l = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float *v = tile->v + (size_t)seen[i] * tile->v_stride;
        float p = expf((float)(s[i] - base));
        l += (double)p;
        for (uint32_t d = 0; d < dim_vo; d++)
            row->tile[d] += p * v[d];
    }
    row->l_span += l;
    for (uint32_t d = 0; d < dim_vo; d++)
        row->span[d] += row->tile[d];
}

static void end_span(const struct row_block *block, struct row *row)
{
    row->l_total += row->l_span;
    row->l_span = 0;
    for (uint32_t d = 0; d < block->dim_vo; d++) {
        row->total[d] += row->span[d];
        row->span[d] = 0;
    }
}

static void end_row(const struct row_block *block, struct row *row)
{
    if (row->l_total == 0) { /* no key existed: every key adds to it, NaN too */
        cpu_epilogue(block->run, block->work, row->t, row->h, row->total, -INFINITY);
        return;
    }
    for (uint32_t d = 0; d < block->dim_vo; d++)
        row->total[d] = (float)((double)row->total[d] / row->l_total) + 0.0f;
    cpu_epilogue(block->run, block->work, row->t, row->h, row->total, (float)(row->max + log(row->l_total)));
}

/* The query rows of a block over the keys that any of them sees. */
static void kv_loop(struct row_block *block)
{
    uint32_t lo = UINT32_MAX, hi = 0;

    for (uint32_t r = 0; r < block->rows; r++) {
        if (block->row[r].lo < block->row[r].hi) {
            lo = block->row[r].lo < lo ? block->row[r].lo : lo;
            hi = block->row[r].hi > hi ? block->row[r].hi : hi;
        }
    }
    while (lo < hi) {
        uint32_t left = CPU_TILE_KEYS - lo % CPU_TILE_KEYS;
        uint32_t end = hi - lo < left ? hi : lo + left;
        load_tile(block, lo, end);
        for (uint32_t r = 0; r < block->rows; r++)
            add_tile(block, &block->row[r]);
        if (end % CPU_SPAN_KEYS == 0 || end == hi)
            for (uint32_t r = 0; r < block->rows; r++)
                end_span(block, &block->row[r]);
        lo = end;
    }
    for (uint32_t r = 0; r < block->rows; r++)
        end_row(block, &block->row[r]);
}

void cpu_attention_c(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    struct row_block block = {.run = run, .work = work};
    uint64_t rows = (uint64_t)work->tokens * run->group;

    block.dim = run->problem->head_dim;
    block.dim_vo = run->problem->head_dim_vo;
    lay_out(&block, scratch);
    for (block.head = work->kv_head; block.head < work->kv_head + work->kv_heads; block.head++) {
        for (uint64_t first = 0; first < rows; first += BLOCK_ROWS) {
            block.rows = rows - first < BLOCK_ROWS ? (uint32_t)(rows - first) : BLOCK_ROWS;
            for (uint32_t r = 0; r < block.rows; r++)
                begin_row(&block, &block.row[r], (uint32_t)first + r);
            kv_loop(&block);
        }
    }
}
