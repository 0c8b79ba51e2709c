/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Draws a case: problem, lengths, pages and contents. Keys that nobody sees hold NaN. */
#include "feature-case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "half.h"

uint32_t case_draw(struct feature_case *c, uint32_t n)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random >> 33) % n;
}

void *case_memory(struct feature_case *c, uint64_t size)
{
    void *memory = aligned_alloc(64, (size + 127) / 64 * 64);

    cr_assert(memory != NULL && c->block_count < CASE_BLOCKS);
    memset(memory, 0xff, (size + 127) / 64 * 64); /* NaN in every type with 16 bits and more */
    c->blocks[c->block_count++] = memory;
    return memory;
}

void case_end(struct feature_case *c)
{
    while (c->block_count > 0)
        free(c->blocks[--c->block_count]);
}

/* A multiple of 1/64 within (-1, 1), exact in every type of 16 bits and more. Returns what is stored. */
static double put_element(struct feature_case *c, uint32_t dtype, char *to)
{
    float value = ((float)case_draw(c, 127) - 63) / 64;
    uint8_t code = 0;
    uint16_t half = dtype == ATTN_F16 ? attn__f32_to_f16(value) : attn__f32_to_bf16(value);

    if (attn_dtype_size(dtype) == 1) {
        code = case_draw_code(c, dtype);
        memcpy(to, &code, 1);
        return number_of_code(dtype, code);
    }
    if (dtype == ATTN_F32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
    return (double)value;
}

/* Some of q, k, v and out in 8 bits, each with a scale of some granularity. */
static void draw_8_bits(struct feature_case *c)
{
    static const uint32_t types[] = {ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};
    struct attn_problem *p = &c->problem;
    const struct {
        uint32_t *dtype, *scale, granularities, chance;
    } members[] = {{&p->k_dtype, &p->k_scale, 4, 1},
                   {&p->v_dtype, &p->v_scale, 4, 2},
                   {&p->q_dtype, &p->q_scale, 5, 3},
                   {&p->out_dtype, &p->out_scale, 3, 3}};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (case_draw(c, members[i].chance) != 0)
            continue;
        *members[i].dtype = types[case_draw(c, 5)];
        *members[i].scale = ATTN_SCALES_UNIT + case_draw(c, members[i].granularities);
    }
}

static void draw_problem(struct feature_case *c)
{
    static const uint32_t types[] = {ATTN_F32, ATTN_F32, ATTN_F16, ATTN_BF16};
    struct attn_problem *p = &c->problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(p);
    p->q_dtype = types[case_draw(c, 4)];
    p->k_dtype = types[case_draw(c, 4)];
    p->v_dtype = types[case_draw(c, 4)];
    p->out_dtype = ATTN_F32;
    p->kv_heads = 1 + case_draw(c, 2);
    p->heads = p->kv_heads * (1 + case_draw(c, 3));
    p->head_dim = 8 + 16 * case_draw(c, 3);
    p->head_dim_vo = 8 + 16 * case_draw(c, 3);
    p->addressing = 1 + case_draw(c, 3);
    p->block = 4u << case_draw(c, 3);
    p->causal = 1 + case_draw(c, 2);
    p->align = 1 + case_draw(c, 2);
    p->seq_causal = case_draw(c, 3) == 0;
    p->positions = case_draw(c, 4) == 0;
    p->softcap = case_draw(c, 3) == 0 ? 5 : 0;
    p->lse = 1;
    if (case_draw(c, 3) == 0) {
        p->given |= ATTN_GIVEN_WINDOW_LEFT;
        p->window_left = (int32_t)case_draw(c, 90);
    }
    if (case_draw(c, 4) == 0) {
        p->given |= ATTN_GIVEN_WINDOW_RIGHT;
        p->window_right = (int32_t)case_draw(c, 30);
    }
    if ((c->features & WITH_ALIBI) != 0)
        p->alibi = ATTN_ALIBI_KEY + case_draw(c, 2);
    if ((c->features & (WITH_NEW | WITH_CACHE_NEW)) != 0) {
        p->type = 1 + case_draw(c, 4);
        p->kv_source = (c->features & WITH_NEW) != 0 ? ATTN_KV_NEW : ATTN_KV_CACHE_NEW;
    }
    if ((c->features & WITH_MASK) != 0) {
        p->mask = ATTN_MASK_BITS + case_draw(c, 4);
        p->span = 1 + case_draw(c, 2);
        if (p->mask != ATTN_MASK_BITS && case_draw(c, 3) == 0)
            p->alibi = ATTN_ALIBI_MASK;
    }
    if ((c->features & WITH_8_BITS) != 0)
        draw_8_bits(c);
    p->sinks = (c->features & WITH_SINKS) != 0;
    cr_assert_eq(attn_problem_resolve(p, p, &err), ATTN_OK, "%s", err.message);
}

static void draw_lengths(struct feature_case *c)
{
    static const uint32_t q_lens[] = {0, 1, 1, 2, 5, 17, 40};
    static const uint32_t kv_lens[] = {0, 1, 7, 63, 64, 65, 130, 300};
    uint32_t most_q = 1, same = case_draw(c, 2); /* as many keys as queries, and no other offsets */

    c->most_keys = 1;
    for (uint32_t n = 0; n < CASE_SEQS; n++) {
        uint32_t q_len = q_lens[case_draw(c, 7)], kv_len = kv_lens[case_draw(c, 8)];
        if (case_draw(c, 12) == 0)
            kv_len = 2049 + case_draw(c, 100);
        if (c->problem.kv_source == ATTN_KV_CACHE_NEW && kv_len < q_len)
            kv_len = q_len;
        if (c->problem.kv_source == ATTN_KV_NEW && same)
            kv_len = q_len;
        c->kv_offsets[n + 1] = c->kv_offsets[n] + (int32_t)kv_len;
        c->q_offsets[n + 1] = c->q_offsets[n] + (int32_t)q_len;
        c->kv_lens[n] = (int32_t)kv_len;
        c->seq_causal[n] = case_draw(c, 2) == 0;
        most_q = q_len > most_q ? q_len : most_q;
        c->most_keys = kv_len > c->most_keys ? kv_len : c->most_keys;
        for (uint32_t i = 0; i < q_len; i++)
            c->positions[c->q_offsets[n] + (int32_t)i] = (int64_t)case_draw(c, kv_len + 8) - 4;
    }
    if (c->problem.kv_source == ATTN_KV_CACHE_NEW)
        memcpy(c->kv_offsets, c->q_offsets, sizeof c->kv_offsets);
    else if (c->problem.kv_source == ATTN_KV_NEW && same == 0)
        c->batch.kv_offsets.data = c->kv_offsets;
    c->problem.max_seqs = CASE_SEQS;
    c->problem.max_q = most_q;
    c->problem.max_kv = c->most_keys;
    c->problem.max_rows = CASE_ROWS;
}

/* Every sequence has pages of its own, out of order; some are holes. */
static void draw_batch(struct feature_case *c)
{
    struct attn_batch *b = &c->batch;
    uint32_t width = c->most_keys / c->problem.block + 1, dense = c->problem.addressing == ATTN_DENSE;

    b->struct_size = sizeof *b;
    b->seqs = CASE_SEQS;
    b->num_tokens = (uint32_t)c->q_offsets[CASE_SEQS];
    b->max_q = c->problem.max_q;
    b->max_kv = c->most_keys;
    b->q_offsets.data = c->q_offsets;
    if (c->problem.kv_source != ATTN_KV_NEW || case_draw(c, 2) == 0)
        b->kv_lens.data = c->kv_lens;
    for (uint32_t n = 0; n < CASE_SEQS; n++)
        for (uint32_t i = 0; i < width; i++)
            c->table[n][i] = case_draw(c, 9) == 0 ? -1 : (int32_t)((i * CASE_SEQS + n) ^ 1u);
    c->kv.pages = dense ? CASE_SEQS : width * CASE_SEQS + 1;
    c->kv.block = dense ? c->most_keys : c->problem.block;
    if (c->problem.addressing == ATTN_TABLE) {
        b->table.data = c->table;
        b->table_stride = sizeof c->table[0];
        b->table_width = CASE_TABLE;
    } else if (c->problem.addressing == ATTN_CSR) {
        int32_t *indptr = case_memory(c, (CASE_SEQS + 1) * sizeof *indptr);
        for (int32_t n = 0; n <= CASE_SEQS; n++)
            indptr[n] = n * CASE_TABLE;
        b->csr_indptr.data = indptr;
        b->csr_indices.data = c->table;
    }
    if (c->problem.positions != 0) {
        b->q_positions.data = c->positions;
        b->position_dtype = ATTN_INT64;
    }
    if (c->problem.seq_causal != 0)
        b->seq_causal.data = c->seq_causal;
}

static bool seen_by_anybody(const struct feature_case *c, uint32_t seq, uint32_t j, uint32_t g)
{
    uint32_t q_len = (uint32_t)(c->q_offsets[seq + 1] - c->q_offsets[seq]);
    uint32_t group = c->problem.heads / c->problem.kv_heads;
    double bias;

    for (uint32_t i = 0; i < q_len; i++) {
        for (uint32_t h = g * group; h < (g + 1) * group; h++)
            if (reference_sees(c, seq, i, h, j, &bias))
                return true;
    }
    return false;
}

/* Memory of keys or values, [page, token, head, dim] without gaps. */
struct place {
    char *base;
    int64_t page, token, head;
};

static struct place make_place(struct feature_case *c, uint64_t tokens, uint32_t dim, uint32_t size)
{
    struct place place = {.head = (int64_t)dim * size};

    place.token = place.head * c->problem.kv_heads;
    place.page = place.token * c->kv.block;
    place.base = case_memory(c, (uint64_t)place.token * (tokens + 1));
    return place;
}

/* Keys or values: memory of the cache and of the new ones, and the elements that somebody sees. */
static void fill_half(struct feature_case *c, bool values)
{
    uint32_t dim = values ? c->problem.head_dim_vo : c->problem.head_dim, heads = c->problem.kv_heads;
    uint32_t dtype = values ? c->problem.v_dtype : c->problem.k_dtype, size = attn_dtype_size(dtype);
    struct place cache = make_place(c, (uint64_t)c->kv.pages * c->kv.block, dim, size);
    struct place k_new = make_place(c, (uint64_t)c->kv_offsets[CASE_SEQS], dim, size);
    struct attn_scale old = {0}, new = {0};
    uint32_t granularity = values ? c->problem.v_scale : c->problem.k_scale;
    if (size == 1) {
        uint32_t tokens = granularity == ATTN_SCALES_TOKEN_HEAD ? c->kv.block : 1;
        old = case_draw_scale(c, dtype, granularity, c->kv.pages, tokens, heads);
        /* one row of scales per token, whatever its sequence, or one per sequence */
        new = case_draw_scale(c, dtype, granularity, tokens > 1 ? 1 : CASE_SEQS,
                              tokens > 1 ? (uint32_t)c->kv_offsets[CASE_SEQS] + 1 : 1, heads);
        new.outer_stride = tokens > 1 ? 0 : new.outer_stride;
    }
    double *numbers = case_memory(c, (uint64_t)CASE_SEQS * c->most_keys * heads * dim * sizeof *numbers);
    struct attn_tensor *tensor = values ? &c->tensors.v_new : &c->tensors.k_new;

    for (uint32_t n = 0; n < CASE_SEQS; n++) {
        for (uint32_t j = 0; j < (uint32_t)c->kv_lens[n]; j++) {
            const struct place *place = reference_is_new(c, n, j) ? &k_new : &cache;
            for (uint32_t g = 0; g < heads; g++) {
                int64_t page, token;
                double *to = numbers + (((size_t)n * c->most_keys + j) * heads + g) * dim;
                if (!seen_by_anybody(c, n, j, g) || !reference_locate(c, n, j, &page, &token))
                    continue;
                char *element = place->base + page * place->page + token * place->token + g * place->head;
                double scale = reference_is_new(c, n, j) ? case_scale_at(&new, n, token, g)
                                                         : case_scale_at(&old, page, token, g);
                for (uint32_t d = 0; d < dim; d++)
                    to[d] = scale * put_element(c, dtype, element + (size_t)d * size);
            }
        }
    }
    *(values ? &c->v : &c->k) = numbers;
    *(values ? &c->kv.v : &c->kv.k) = (struct attn_buffer){cache.base, 0};
    *(values ? &c->kv.v_page_stride : &c->kv.k_page_stride) = cache.page;
    *(values ? &c->kv.v_token_stride : &c->kv.k_token_stride) = cache.token;
    *(values ? &c->kv.v_head_stride : &c->kv.k_head_stride) = cache.head;
    *(values ? &c->kv.v_scale : &c->kv.k_scale) = old;
    if (c->problem.kv_source != ATTN_KV_CACHE)
        *(values ? &c->tensors.v_new_scale : &c->tensors.k_new_scale) = new;
    if (c->problem.kv_source != ATTN_KV_CACHE)
        *tensor = (struct attn_tensor){{k_new.base, 0}, k_new.token, k_new.head, 0, 0, 0};
}

static void fill_cache(struct feature_case *c)
{
    c->kv.struct_size = sizeof c->kv;
    c->kv.k_dtype = c->problem.k_dtype;
    c->kv.v_dtype = c->problem.v_dtype;
    c->kv.kv_heads = c->problem.kv_heads;
    c->kv.head_dim = c->problem.head_dim;
    c->kv.head_dim_vo = c->problem.head_dim_vo;
    fill_half(c, false);
    fill_half(c, true);
}

/* A tensor [CASE_ROWS, heads, dim] without gaps. */
static struct attn_tensor make_tensor(struct feature_case *c, uint32_t heads, uint32_t dim, uint32_t size)
{
    struct attn_tensor tensor = {.head_stride = (int64_t)dim * size};

    tensor.token_stride = heads * tensor.head_stride;
    tensor.buffer.data = case_memory(c, (uint64_t)(CASE_ROWS * tensor.token_stride));
    return tensor;
}

static void fill_sinks(struct feature_case *c)
{
    uint32_t dtype = case_draw(c, 2) == 0 ? ATTN_F32 : ATTN_BF16, size = attn_dtype_size(dtype);
    char *sinks = case_memory(c, (uint64_t)CASE_HEADS * size);
    uint16_t minus_infinity = 0xff80;

    for (uint32_t h = 0; h < c->problem.heads; h++)
        c->sinks[h] = put_element(c, dtype, sinks + (size_t)h * size);
    if (dtype == ATTN_BF16) {
        memcpy(sinks, &minus_infinity, sizeof minus_infinity);
        c->sinks[0] = -INFINITY;
    }
    c->tensors.sinks.data = sinks;
    c->tensors.sinks_dtype = dtype;
}

static void fill_slopes(struct feature_case *c)
{
    float unit = c->problem.alibi == ATTN_ALIBI_MASK ? 4 : 300;

    for (uint32_t h = 0; h < c->problem.heads; h++)
        c->slopes[h] = ((float)case_draw(c, 9) - 2) / unit;
    if (c->problem.alibi != ATTN_ALIBI_NONE)
        c->tensors.alibi_slopes.data = c->slopes;
}

static void scale_q(struct feature_case *c)
{
    const struct attn_problem *p = &c->problem;
    bool token = p->q_scale == ATTN_SCALES_TOKEN_HEAD, group = p->q_scale == ATTN_SCALES_KV_HEAD;
    struct attn_scale *scale = &c->tensors.q_scale;

    *scale = case_draw_scale(c, p->q_dtype, p->q_scale, token ? 1 : CASE_SEQS, token ? CASE_ROWS : 1,
                             group ? p->kv_heads : p->heads);
    scale->outer_stride = token ? 0 : scale->outer_stride;
    for (uint32_t n = 0; n < CASE_SEQS; n++) {
        for (int32_t row = c->q_offsets[n]; row < c->q_offsets[n + 1]; row++) {
            for (uint32_t h = 0; h < p->heads; h++) {
                double factor = case_scale_at(scale, n, row, group ? h * p->kv_heads / p->heads : h);
                for (uint32_t d = 0; d < p->head_dim; d++)
                    c->q[((size_t)row * p->heads + h) * p->head_dim + d] *= factor;
            }
        }
    }
}

static void fill_tensors(struct feature_case *c)
{
    const struct attn_problem *p = &c->problem;
    size_t count = (size_t)c->batch.num_tokens * p->heads * p->head_dim;
    uint32_t size = attn_dtype_size(p->q_dtype);

    c->tensors.softmax_scale = 0.75f;
    if (p->k_dtype == ATTN_INT8 && p->k_scale == ATTN_SCALES_UNIT)
        c->tensors.softmax_scale /= 128;
    if (p->q_dtype == ATTN_INT8 && p->q_scale == ATTN_SCALES_UNIT)
        c->tensors.softmax_scale /= 128;
    c->tensors.q = make_tensor(c, p->heads, p->head_dim, size);
    c->tensors.out = make_tensor(c, p->heads, p->head_dim_vo, attn_dtype_size(p->out_dtype));
    c->tensors.lse = make_tensor(c, p->heads, 1, sizeof(float));
    if (p->kv_source != ATTN_KV_NEW)
        c->tensors.kv_desc = &c->kv;
    c->q = case_memory(c, (count + 1) * sizeof *c->q);
    for (size_t i = 0; i < count; i++)
        c->q[i] = put_element(c, p->q_dtype, (char *)c->tensors.q.buffer.data + i * size);
    if (size == 1)
        scale_q(c);
    if (attn_dtype_size(p->out_dtype) == 1)
        c->tensors.out_scale = case_draw_scale(c, p->out_dtype, p->out_scale, CASE_SEQS, 1, p->heads);
    if (p->sinks != 0)
        fill_sinks(c);
}

void case_begin(struct feature_case *c, uint64_t seed, uint32_t features)
{
    memset(c, 0, sizeof *c);
    c->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    c->features = features;
    draw_problem(c);
    draw_lengths(c);
    draw_batch(c);
    c->tensors.struct_size = sizeof c->tensors;
    fill_slopes(c);
    if (c->problem.mask != ATTN_MASK_NONE)
        case_fill_mask(c);
    fill_cache(c);
    fill_tensors(c);
}
