/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention in plain C for every type, size and addressing: what runs where no faster row fits, and what the
 * other rows are held against.
 *
 * Up to PASS_ROWS rows of a kv head share each tile of converted keys and values. Scores are double, sums are
 * staged: a tile of at most 64 keys from zero, a span of at most 512, the total. Tiles and spans lie at
 * multiples of their size from key 0, so that a row's order of additions depends on its own keys alone.
 */
#include <math.h>

#include "cpu.h"
#include "visible.h"

#define PASS_ROWS 16u
/* The running maximum follows only jumps: exp(8) costs no precision, and each rescaling costs a rounding. */
#define SLACK 8.0

/* One row: its token and query head, and its staged sums. */
struct row {
    uint32_t t, h;
    uint32_t lo, hi;
    int64_t position;
    double slope;
    struct cpu_mask mask;
    double most;
    double l_span, l_total;
    float *q, *tile, *span, *total;
};

/* Keys of a tile that exist: their numbers, and converted rows. Of a latent cache v is k. */
struct tile {
    uint32_t count;
    uint32_t key[CPU_TILE_KEYS];
    float *k, *v;
    uint32_t v_stride;
};

struct pass {
    const struct cpu_run *run;
    const struct attn_work *work;
    uint32_t head; /* kv head */
    uint32_t dim, dim_vo;
    uint32_t rows;
    struct row row[PASS_ROWS];
    struct tile tile;
};

uint64_t cpu_attention_c_scratch(const struct attn_problem *problem)
{
    uint64_t row = problem->head_dim + 3 * (uint64_t)problem->head_dim_vo;
    uint64_t key = (uint64_t)problem->head_dim + problem->head_dim_vo;

    return sizeof(float) * (PASS_ROWS * row + CPU_TILE_KEYS * key);
}

static void lay_out(struct pass *pass, void *scratch)
{
    float *next = scratch;

    for (uint32_t r = 0; r < PASS_ROWS; r++) {
        float **const blocks[] = {&pass->row[r].tile, &pass->row[r].span, &pass->row[r].total};
        pass->row[r].q = next;
        next += pass->dim;
        for (uint32_t i = 0; i < 3; i++, next += pass->dim_vo)
            *blocks[i] = next;
    }
    pass->tile.k = next;
    pass->tile.v = next + (size_t)CPU_TILE_KEYS * pass->dim;
    pass->tile.v_stride = pass->dim_vo;
    if (pass->run->problem->mla != 0) {
        pass->tile.v = next;
        pass->tile.v_stride = pass->dim;
    }
}

static void multiply(float *values, uint32_t count, float scale)
{
    for (uint32_t d = 0; scale != 1 && d < count; d++)
        values[d] *= scale;
}

/* A query, which may lie in two pieces: latent columns and rope columns. */
static void load_query(const struct pass *pass, const struct row *row)
{
    const struct cpu_run *run = pass->run;
    uint32_t dtype = run->problem->q_dtype, first = run->q_rope != NULL ? pass->dim_vo : pass->dim;
    int64_t at = (int64_t)pass->work->row + row->t;

    cpu_load(dtype, row->q, run->q + at * run->q_token + row->h * run->q_head, first);
    if (first < pass->dim)
        cpu_load(dtype, row->q + first, run->q_rope + at * run->q_rope_token + row->h * run->q_rope_head,
                 pass->dim - first);
    multiply(row->q, pass->dim,
             cpu_scale_at(&run->q_scale, pass->work->seq, at, row->h / run->q_scale_group));
}

/* Row number `index` of the kv head: tokens outside, heads of the group inside. */
static void begin_row(const struct pass *pass, struct row *row, uint32_t index)
{
    const struct cpu_run *run = pass->run;

    row->t = index / run->group;
    row->h = pass->head * run->group + index % run->group;
    row->most = -(double)INFINITY;
    row->l_span = row->l_total = 0;
    row->position = cpu_position(run, pass->work, row->t);
    row->slope = run->slopes != NULL ? (double)run->slopes[row->h] : 0;
    cpu_visible(run, pass->work, row->t, &row->lo, &row->hi);
    cpu_mask_init(run, pass->work, row->t, row->h, &row->mask);
    load_query(pass, row);
    memset(row->span, 0, pass->dim_vo * sizeof(float));
    memset(row->total, 0, pass->dim_vo * sizeof(float));
}

/* Where one key lies: byte offsets, and what its scales are found by. */
struct place {
    int64_t k, v;
    int64_t outer, token;
};

/* Converts one head's key or value and applies its scale. */
static void load_head(const struct cpu_cache *cache, uint32_t head, int64_t at, const struct place *place,
                      float *to, uint32_t dim)
{
    const char *from = cache->base + at + head * cache->head_stride;
    uint32_t piece = cache->piece != 0 && cache->piece < dim ? cache->piece : dim;

    for (uint32_t d = 0; d < dim; d += piece, from += cache->piece_stride)
        cpu_load(cache->dtype, to + d, from, dim - d < piece ? dim - d : piece);
    if (cache->scale.base != NULL)
        multiply(to, dim, cpu_scale_at(&cache->scale, place->outer, place->token, head));
}

static void load_key(struct pass *pass, uint32_t key, const struct cpu_cache *k, const struct cpu_cache *v,
                     const struct place *place)
{
    struct tile *tile = &pass->tile;

    load_head(k, pass->head, place->k, place, tile->k + (size_t)tile->count * pass->dim, pass->dim);
    if (tile->v != tile->k)
        load_head(v, pass->head, place->v, place, tile->v + (size_t)tile->count * pass->dim_vo, pass->dim_vo);
    tile->key[tile->count++] = key;
}

/* Converts the keys [first, end) that exist. */
static void load_tile(struct pass *pass, uint32_t first, uint32_t end)
{
    const struct cpu_run *run = pass->run;
    const struct attn_work *work = pass->work;
    uint32_t fresh = run->k_new.base != NULL ? work->kv_len - work->q_len : UINT32_MAX; /* first new key */
    uint32_t cached = end < fresh ? end : fresh;
    bool scaled = run->k.scale.base != NULL || run->v.scale.base != NULL;
    struct place place = {0};
    struct cpu_keys keys;

    pass->tile.count = 0;
    if (first < cached)
        cpu_walk(run, work->seq, first, cached - first, &keys);
    for (uint32_t key = first; key < cached; key++) {
        if (keys.k[key - first] == -1 && keys.has_invalid)
            continue;
        place.k = keys.k[key - first];
        place.v = keys.v[key - first];
        if (scaled)
            cpu_locate(run, work->seq, key, &place.outer, &place.token);
        if (run->problem->kv_source == ATTN_KV_NEW)
            place.outer = work->seq;
        load_key(pass, key, &run->k, &run->v, &place);
    }
    for (uint32_t key = first > fresh ? first : fresh; key < end; key++) {
        place.outer = work->seq;
        place.token = (int64_t)work->row - work->q_index + (key - fresh);
        place.k = place.token * run->k_new.token_stride;
        place.v = place.token * run->v_new.token_stride;
        load_key(pass, key, &run->k_new, &run->v_new, &place);
    }
}

static double score(const struct pass *pass, const float *q, const float *k)
{
    double sum[4] = {0};
    double cap = (double)pass->run->softcap;
    uint32_t d = 0;

    for (; d + 4 <= pass->dim; d += 4) {
        for (uint32_t i = 0; i < 4; i++)
            sum[i] += (double)q[d + i] * (double)k[d + i];
    }
    for (; d < pass->dim; d++)
        sum[0] += (double)q[d] * (double)k[d];
    double s = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * (double)pass->run->scale;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* Where a key lies to ALiBi: a token of a square mask is where its query is. */
static double key_position(const struct pass *pass, const struct row *row, uint32_t key, bool covered)
{
    const struct cpu_run *run = pass->run;
    uint64_t first = pass->work->row - pass->work->q_index;
    int64_t position = attn__spread_position(&run->spread, key);

    if (!covered || !row->mask.square || run->positions == NULL)
        return (double)position;
    return (double)attn__position(run->positions, run->position_dtype,
                                  first + (uint64_t)(position - row->mask.first));
}

/* Whether a row sees a key that exists, and what is added to its score. */
static bool sees(const struct pass *pass, const struct row *row, uint32_t key, double *bias)
{
    uint32_t alibi = pass->run->problem->alibi;
    bool covered;

    if (!cpu_mask_sees(&row->mask, key, &covered, bias))
        return false;
    if (pass->run->slopes == NULL)
        return true;
    if (alibi == ATTN_ALIBI_MASK) {
        *bias *= row->slope;
        return true;
    }
    /* Positions are integers that a double holds: far ones keep their digits. */
    double difference = key_position(pass, row, key, covered) - (double)row->position;
    if (alibi == ATTN_ALIBI_DISTANCE && difference > 0)
        difference = -difference;
    *bias += row->slope * difference;
    return true;
}

/* A new maximum: what was summed so far shrinks. */
static void raise_most(const struct pass *pass, struct row *row, double most)
{
    double factor = exp(row->most - most);

    row->most = most;
    row->l_span *= factor;
    row->l_total *= factor;
    for (uint32_t d = 0; d < pass->dim_vo; d++) {
        row->span[d] *= (float)factor;
        row->total[d] *= (float)factor;
    }
}

/* One row against the keys of a tile that it sees. */
static void add_tile(const struct pass *pass, struct row *row)
{
    const struct tile *tile = &pass->tile;
    uint32_t begin = 0, end = tile->count, dim_vo = pass->dim_vo, count = 0, seen[CPU_TILE_KEYS];
    double s[CPU_TILE_KEYS], bias, most = -(double)INFINITY;

    while (begin < end && tile->key[begin] < row->lo)
        begin++;
    while (end > begin && tile->key[end - 1] >= row->hi)
        end--;
    for (uint32_t i = begin; i < end; i++) {
        if (!sees(pass, row, tile->key[i], &bias))
            continue;
        s[count] = score(pass, row->q, tile->k + (size_t)i * pass->dim) + bias;
        most = s[count] > most ? s[count] : most;
        seen[count++] = i;
    }
    if (count == 0)
        return;
    if (most > row->most + SLACK)
        raise_most(pass, row, most);
    memset(row->tile, 0, dim_vo * sizeof(float));
    double l = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float *v = tile->v + (size_t)seen[i] * tile->v_stride;
        float p = expf((float)(s[i] - row->most));
        l += (double)p;
        for (uint32_t d = 0; d < dim_vo; d++)
            row->tile[d] += p * v[d];
    }
    row->l_span += l;
    for (uint32_t d = 0; d < dim_vo; d++)
        row->span[d] += row->tile[d];
}

static void end_span(const struct pass *pass, struct row *row)
{
    row->l_total += row->l_span;
    row->l_span = 0;
    for (uint32_t d = 0; d < pass->dim_vo; d++) {
        row->total[d] += row->span[d];
        row->span[d] = 0;
    }
}

static void end_row(const struct pass *pass, struct row *row)
{
    if (row->l_total == 0) { /* no key existed: every key adds to it, NaN too */
        cpu_epilogue(pass->run, pass->work, row->t, row->h, row->total, -INFINITY);
        return;
    }
    for (uint32_t d = 0; d < pass->dim_vo; d++)
        row->total[d] = (float)((double)row->total[d] / row->l_total);
    cpu_epilogue(pass->run, pass->work, row->t, row->h, row->total, (float)(row->most + log(row->l_total)));
}

/* The rows of a pass over the keys that any of them sees. */
static void sweep(struct pass *pass)
{
    uint32_t lo = UINT32_MAX, hi = 0;

    for (uint32_t r = 0; r < pass->rows; r++) {
        if (pass->row[r].lo < pass->row[r].hi) {
            lo = pass->row[r].lo < lo ? pass->row[r].lo : lo;
            hi = pass->row[r].hi > hi ? pass->row[r].hi : hi;
        }
    }
    while (lo < hi) {
        uint32_t left = CPU_TILE_KEYS - lo % CPU_TILE_KEYS;
        uint32_t end = hi - lo < left ? hi : lo + left;
        load_tile(pass, lo, end);
        for (uint32_t r = 0; r < pass->rows; r++)
            add_tile(pass, &pass->row[r]);
        if (end % CPU_SPAN_KEYS == 0 || end == hi) {
            for (uint32_t r = 0; r < pass->rows; r++)
                end_span(pass, &pass->row[r]);
        }
        lo = end;
    }
    for (uint32_t r = 0; r < pass->rows; r++)
        end_row(pass, &pass->row[r]);
}

void cpu_attention_c(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    struct pass pass = {.run = run, .work = work};
    uint64_t rows = (uint64_t)work->rows * run->group;

    pass.dim = run->problem->head_dim;
    pass.dim_vo = run->problem->head_dim_vo;
    lay_out(&pass, scratch);
    for (pass.head = work->kv_head; pass.head < work->kv_head + work->kv_heads; pass.head++) {
        for (uint64_t first = 0; first < rows; first += PASS_ROWS) {
            pass.rows = rows - first < PASS_ROWS ? (uint32_t)(rows - first) : PASS_ROWS;
            for (uint32_t r = 0; r < pass.rows; r++)
                begin_row(&pass, &pass.row[r], (uint32_t)first + r);
            sweep(&pass);
        }
    }
}
