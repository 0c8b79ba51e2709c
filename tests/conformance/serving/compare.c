/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Holds the output of a layer against the oracle. The oracle gets the whole history of every sequence as new
 * keys, made anew on the host, so that neither slots nor tables nor caches have a part in it.
 */
#include <stdio.h>

#include "model.h"
#include "need.h"

/* Keys and values of all sequences, one behind the other. */
struct history {
    int32_t q_offsets[ENTRIES + 1], kv_offsets[ENTRIES + 1];
    unsigned char *k, *v;
    float *k_scales, *v_scales;
};

static uint32_t keys_of(const struct model *model, uint32_t c, const struct entry *entry, bool cached,
                        uint32_t *out_first)
{
    const uint32_t type = model->problems[c].type;

    *out_first = 0;
    if (type == ATTN_ENCODER || type == ATTN_ENCODER_DECODER)
        return entry->sequence->encoder_len;
    *out_first = cached ? 0 : entry->sequence->len;
    return entry->sequence->len + entry->q_len - *out_first;
}

/* The types that the keys have where they are read. */
static void set_types(const struct model *model, uint32_t c, bool cached, struct attn_problem *problem)
{
    const struct attn_kv_desc *desc = &model->caches[c].desc;

    problem->k_dtype = cached ? desc->k_dtype : new_dtype(model, c);
    problem->v_dtype = cached && problem->mla == 0 ? desc->v_dtype : problem->k_dtype;
    if (!cached && problem->mla == 0)
        problem->v_dtype = new_dtype(model, c);
    problem->k_scale = oracle_is_8bit(problem->k_dtype) ? ATTN_SCALES_TOKEN_HEAD : ATTN_SCALES_NONE;
    problem->v_scale = problem->k_scale;
    problem->kv_source = ATTN_KV_NEW;
    problem->layout = ATTN_STRIDED;
    problem->addressing = ATTN_TABLE;
}

static void fill_history(const struct model *model, uint32_t c, const struct step_def *step, uint32_t first,
                         uint32_t end, bool cached, const struct attn_problem *problem,
                         struct history *history)
{
    const uint32_t heads = problem->kv_heads;
    const size_t k_row = (size_t)problem->head_dim * oracle_size(problem->k_dtype);
    const size_t v_row = (size_t)problem->head_dim_vo * oracle_size(problem->v_dtype);
    size_t at = 0;

    for (uint32_t n = first; n < end; n++) {
        const struct entry *entry = &step->entries[n];
        uint32_t begin;
        const uint32_t keys = keys_of(model, c, entry, cached, &begin);
        for (uint32_t i = 0; i < keys * heads; i++, at++) {
            const uint32_t j = begin + i / heads, head = i % heads;
            unsigned char *k = history->k + at * k_row, *v = history->v + at * v_row;
            double k_scale = 1, v_scale = 1;
            if (cached) {
                k_scale = cached_vector(model, c, entry->sequence, j, head, false, k);
                if (problem->mla == 0)
                    v_scale = cached_vector(model, c, entry->sequence, j, head, true, v);
            } else {
                new_vector(model, c, entry->sequence, j, head, false, k);
                if (problem->mla == 0)
                    new_vector(model, c, entry->sequence, j, head, true, v);
                if (oracle_is_8bit(problem->k_dtype)) {
                    const struct attn_kv_desc *desc = &model->caches[c].desc;
                    k_scale = oracle_scale(&desc->k_scale, desc->k_scale.granularity, 0, 0, head);
                    v_scale = oracle_scale(&desc->v_scale, desc->v_scale.granularity, 0, 0, head);
                }
            }
            history->k_scales[at] = (float)k_scale;
            history->v_scales[at] = (float)v_scale;
        }
    }
}

static struct attn_scale row_scale(float *values, uint32_t heads)
{
    return (struct attn_scale){.kind = ATTN_SCALE_DEVICE,
                               .granularity = ATTN_SCALES_TOKEN_HEAD,
                               .buffer = {values, 0},
                               .token_stride = 4 * (int64_t)heads,
                               .head_stride = 4};
}

/* The class of the roughest kernel that may have run. */
static uint32_t numerics_of(const struct model *model, const struct attn_problem *problem)
{
    static const struct attn_device cpu = {.type = ATTN_DEVICE_CPU};
    const struct attn_device *device = model->def->device != NULL ? model->def->device : &cpu;
    struct attn_kernel_info kernels[16];
    struct attn_query query;
    uint32_t worst = 0;

    memset(kernels, 0, sizeof kernels);
    ATTN_INIT(&query);
    query.kernels = kernels;
    query.kernel_capacity = 16;
    if (attn_context_query(model->context, model->name, device, problem, &query, NULL) != ATTN_OK)
        return 0;
    for (uint32_t i = 0; i < query.kernel_count && i < 16; i++)
        worst = kernels[i].numerics > worst ? kernels[i].numerics : worst;
    return worst;
}

/* An output of its own for the judge, with the rows that it is to judge. */
static void copy_rows(const struct attn_tensor *from, uint32_t first, uint32_t rows, uint32_t heads,
                      size_t width, struct arena *arena, const char *name, struct guarded **out_memory,
                      struct attn_tensor *out)
{
    *out_memory = arena_add(arena, name, rows * heads * width, 8, 0);
    memset(out, 0, sizeof *out);
    out->buffer.data = (*out_memory)->data;
    out->head_stride = (int64_t)width;
    out->token_stride = (int64_t)(width * heads);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t head = 0; head < heads; head++)
            memcpy(tensor_at(out, row, head), tensor_at(from, first + row, head), width);
}

static void skip(struct attn_tensor *tensor, uint32_t rows)
{
    if (tensor->buffer.data != NULL)
        tensor->buffer.byte_offset += (uint64_t)(rows * tensor->token_stride);
}

/* The step that the judge sees. */
static void make_step(struct model *model, uint32_t c, const struct step_def *step, const struct call *call,
                      uint32_t first, uint32_t end, bool cached, struct history *history, struct step *out)
{
    static const struct conform_case plain = {.poison = 0xff};
    const uint32_t heads = model->problems[c].heads, kv_heads = model->problems[c].kv_heads;
    const uint32_t row = rows_before(model, c, step, first);
    struct attn_tensors *tensors = &out->tensors;

    memset(out, 0, sizeof *out);
    out->the_case = &plain;
    out->problem = model->problems[c];
    set_types(model, c, cached, &out->problem);
    out->seqs = end - first;
    ATTN_INIT(&out->batch);
    ATTN_INIT(&out->host);
    ATTN_INIT(tensors);
    memset(out->source, 0xff, sizeof out->source);
    for (uint32_t n = first; n < end; n++) {
        uint32_t begin;
        history->q_offsets[n - first + 1] = (int32_t)(rows_before(model, c, step, n + 1) - row);
        history->kv_offsets[n - first + 1] =
            history->kv_offsets[n - first] + (int32_t)keys_of(model, c, &step->entries[n], cached, &begin);
    }
    out->batch.seqs = out->seqs;
    out->batch.num_tokens = rows_before(model, c, step, end) - row;
    out->batch.q_offsets.data = history->q_offsets;
    out->batch.kv_offsets.data = history->kv_offsets;
    out->host.q_offsets = history->q_offsets;
    const size_t vectors = (size_t)history->kv_offsets[out->seqs] * kv_heads + 1;
    history->k = need(calloc(vectors, (size_t)out->problem.head_dim * 4));
    history->v = need(calloc(vectors, (size_t)out->problem.head_dim_vo * 4));
    history->k_scales = need(calloc(vectors, 4));
    history->v_scales = need(calloc(vectors, 4));
    fill_history(model, c, step, first, end, cached, &out->problem, history);
    tensors->softmax_scale = 0.2F;
    tensors->q = call->tensors.q;
    tensors->q_rope = call->tensors.q_rope;
    skip(&tensors->q, row);
    skip(&tensors->q_rope, row);
    tensors->k_new.buffer.data = history->k;
    tensors->k_new.head_stride = (int64_t)out->problem.head_dim * oracle_size(out->problem.k_dtype);
    tensors->k_new.token_stride = tensors->k_new.head_stride * kv_heads;
    tensors->v_new.buffer.data = history->v;
    tensors->v_new.head_stride = (int64_t)out->problem.head_dim_vo * oracle_size(out->problem.v_dtype);
    tensors->v_new.token_stride = tensors->v_new.head_stride * kv_heads;
    tensors->k_new_scale = row_scale(history->k_scales, kv_heads);
    tensors->v_new_scale = row_scale(history->v_scales, kv_heads);
    tensors->alibi_slopes.data = model->slopes[c];
    tensors->sinks.data = model->sinks[c];
    tensors->sinks_dtype = ATTN_F32;
    tensors->mask = call->tensors.mask;
    tensors->mask_starts.data = call->starts != NULL ? call->starts + first : NULL;
    tensors->mask_row_stride = call->tensors.mask_row_stride;
    copy_rows(&call->tensors.out, row, out->batch.num_tokens, heads,
              (size_t)out->problem.head_dim_vo * oracle_size(out->problem.out_dtype), &out->arena, "out",
              &out->out_memory, &tensors->out);
    if (call->lse != NULL)
        copy_rows(&call->tensors.lse, row, out->batch.num_tokens, heads, 4, &out->arena, "lse",
                  &out->lse_memory, &tensors->lse);
    out->numerics = numerics_of(model, &model->problems[c]);
    const uint32_t other = numerics_of(model, &out->problem);
    out->numerics = other > out->numerics ? other : out->numerics;
}

bool compare(struct model *model, uint32_t c, const struct step_def *step, const struct call *call,
             uint32_t first, uint32_t end, bool cached)
{
    struct history history = {.k = NULL};
    struct reference reference;
    struct step judged;
    char why[384];

    if (rows_before(model, c, step, first) == rows_before(model, c, step, end))
        return true;
    make_step(model, c, step, call, first, end, cached, &history, &judged);
    if (!step_reference(&reference, &judged, 1e12))
        complain("out of memory");
    const bool good = step_judge(&judged, &reference, why, sizeof why);
    if (!good)
        snprintf(model->why, sizeof model->why, "class %u, sequences %u to %u, %s keys: %s", c, first,
                 end - 1, cached ? "cached" : "new", why);
    reference_finish(&reference);
    arena_finish(&judged.arena);
    free(history.k);
    free(history.v);
    free(history.k_scales);
    free(history.v_scales);
    return good;
}

/* Rows of padding are nobody's: a graph may write them. */
bool compare_outside(struct model *model, uint32_t c, const struct step_def *step, const struct call *call)
{
    struct step all;

    memset(&all, 0, sizeof all);
    all.problem = model->problems[c];
    all.batch.num_tokens = rows_before(model, c, step, step->count) + step->pad;
    all.tensors.out = call->tensors.out;
    all.tensors.lse = call->tensors.lse;
    all.out_memory = call->out;
    all.lse_memory = call->lse;
    return step_check_outside(&all, model->why, sizeof model->why);
}
