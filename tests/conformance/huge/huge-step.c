/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves queries, new rows, results and page tables of a step far apart. */
#include "huge.h"

#include <stdio.h>

struct area *huge_area(struct huge_step *huge, const char *name, uint64_t size, uint8_t fill, struct rng *rng,
                       struct attn_buffer *out)
{
    static const uint64_t leads[] = {0, 64, (UINT64_C(1) << 32) + 64, (UINT64_C(3) << 32) - 64};
    uint64_t lead = rng_pick(rng, leads);
    struct area *area = &huge->areas[huge->count];

    if (huge->count == HUGE_AREAS || !area_init(area, &huge->arena, name, lead + size, fill))
        return NULL;
    huge->count++;
    *out = (struct attn_buffer){area->memory->data, lead};
    return area;
}

/* A view [rows, heads, bytes]; the vectors of the original are copied unless it is an output. */
static struct area *place_tensor(struct huge_step *huge, struct attn_tensor *tensor, const char *name,
                                 const uint64_t counts[2], uint64_t bytes, uint32_t element, bool output,
                                 struct rng *rng)
{
    const struct attn_tensor from = *tensor;
    struct grid grid = {.counts = {1, counts[0], counts[1]}, .bytes = bytes};

    grid.unit = element > huge->step.layout.stride_multiple ? element : huge->step.layout.stride_multiple;
    grid_spread(&grid, rng);
    struct area *area = huge_area(huge, name, grid.size, output ? 0xa5 : 0xff, rng, &tensor->buffer);
    if (area == NULL)
        return NULL;
    tensor->token_stride = grid.strides[1];
    tensor->head_stride = grid.strides[2];
    for (uint32_t row = 0; row < counts[0]; row++) {
        for (uint32_t head = 0; head < counts[1]; head++) {
            unsigned char *at = tensor_at(tensor, row, head);
            area_commit(area, (uint64_t)(at - area->memory->data), bytes);
            if (!output)
                memcpy(at, tensor_at(&from, row, head), bytes);
        }
    }
    return area;
}

static bool place_tensors(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_problem *p = &original->problem;
    struct attn_tensors *t = &huge->step.tensors;
    bool apart = t->q_rope.buffer.data != NULL, has_new = t->k_new.buffer.data != NULL;
    uint32_t first = apart ? p->head_dim_vo : p->head_dim, q_size = oracle_size(p->q_dtype);
    const uint64_t q_counts[2] = {original->batch.num_tokens, p->heads};
    const uint64_t new_counts[2] = {original->new_rows, p->kv_heads};
    bool good =
        place_tensor(huge, &t->q, "q", q_counts, (uint64_t)first * q_size, q_size, false, rng) != NULL;

    if (good && apart)
        good = place_tensor(huge, &t->q_rope, "q_rope", q_counts, (uint64_t)(p->head_dim - first) * q_size,
                            q_size, false, rng) != NULL;
    if (good && has_new)
        good = place_tensor(huge, &t->k_new, "k_new", new_counts,
                            (uint64_t)p->head_dim * oracle_size(p->k_dtype), oracle_size(p->k_dtype), false,
                            rng) != NULL;
    if (good && has_new && t->v_new.buffer.data != NULL)
        good = place_tensor(huge, &t->v_new, "v_new", new_counts,
                            (uint64_t)p->head_dim_vo * oracle_size(p->v_dtype), oracle_size(p->v_dtype),
                            false, rng) != NULL;
    if (good)
        huge->out =
            place_tensor(huge, &t->out, "out", q_counts, (uint64_t)p->head_dim_vo * oracle_size(p->out_dtype),
                         oracle_size(p->out_dtype), true, rng);
    if (good && p->lse != 0)
        huge->lse = place_tensor(huge, &t->lse, "lse", q_counts, 4, 4, true, rng);
    return good && huge->out != NULL && (p->lse == 0 || huge->lse != NULL);
}

bool huge_place_scale(struct huge_step *huge, struct attn_scale *scale, const uint64_t counts[3], bool pages,
                      struct rng *rng)
{
    const struct attn_scale from = *scale;
    const int64_t strides[3] = {from.outer_stride, from.token_stride, from.head_stride};
    struct grid grid = {.bytes = 4, .unit = 4};
    bool numbered = pages && huge->page_gap > 1;

    if (from.kind != ATTN_SCALE_HOST && from.kind != ATTN_SCALE_DEVICE)
        return true;
    for (uint32_t i = 0; i < 3; i++) {
        grid.fixed[i] = strides[i] == 0;
        grid.counts[i] = grid.fixed[i] ? 1 : counts[i];
    }
    uint64_t outers = grid.counts[0];
    if (pages && !grid.fixed[0])
        grid.counts[0] = (uint64_t)(huge->page_first + ((int64_t)outers - 1) * huge->page_gap + 1);
    if (pages && !grid.fixed[1])
        grid.counts[1] += (uint64_t)huge->token_first;
    if (numbered || huge->token_first > 0)
        grid_pack(&grid);
    else
        grid_spread(&grid, rng);
    struct area *area = huge_area(huge, "scale", grid.size, 0xff, rng, &scale->buffer);
    if (area == NULL)
        return false;
    scale->outer_stride = grid.strides[0];
    scale->token_stride = grid.strides[1];
    scale->head_stride = grid.strides[2];
    for (uint64_t i = 0; i < outers; i++) {
        for (uint64_t j = 0; j < (grid.fixed[1] ? 1 : counts[1]); j++) {
            for (uint64_t k = 0; k < grid.counts[2]; k++) {
                int64_t page = pages ? huge->page_first + (int64_t)i * huge->page_gap : (int64_t)i;
                int64_t token = (int64_t)j + (pages ? huge->token_first : 0);
                uint64_t at = (uint64_t)(page * scale->outer_stride + token * scale->token_stride +
                                         (int64_t)k * scale->head_stride) +
                              scale->buffer.byte_offset;
                memcpy(area_commit(area, at, 4),
                       (const char *)from.buffer.data + from.buffer.byte_offset + (int64_t)i * strides[0] +
                           (int64_t)j * strides[1] + (int64_t)k * strides[2],
                       4);
            }
        }
    }
    return true;
}

static bool place_scales(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_problem *p = &original->problem;
    struct attn_tensors *t = &huge->step.tensors;
    uint64_t q_heads = p->q_scale == ATTN_SCALES_KV_HEAD ? p->kv_heads : p->heads;
    const uint64_t q[3] = {original->seqs, original->batch.num_tokens, q_heads};
    const uint64_t out[3] = {original->seqs, original->batch.num_tokens, p->heads};
    const uint64_t new_counts[3] = {original->seqs, original->new_rows, p->kv_heads};

    return huge_place_scale(huge, &t->q_scale, q, false, rng) &&
           huge_place_scale(huge, &t->out_scale, out, false, rng) &&
           huge_place_scale(huge, &t->k_new_scale, new_counts, false, rng) &&
           huge_place_scale(huge, &t->v_new_scale, new_counts, false, rng);
}

bool huge_init(struct huge_step *huge, const struct step *original, uint64_t seed)
{
    struct rng rng = {mix(seed, 70)};

    memset(huge, 0, sizeof *huge);
    huge->step = *original;
    huge->step.batch.host = original->batch.host != NULL ? &huge->step.host : NULL;
    huge->page_gap = 1;
    arena_init(&huge->arena, false);
    if (place_tensors(huge, original, &rng) && place_scales(huge, original, &rng) &&
        (original->problem.kv_source == ATTN_KV_NEW || huge_place_cache(huge, original, &rng)) &&
        (original->problem.mask == ATTN_MASK_NONE || huge_place_mask(huge, original, &rng)))
        return true;
    huge_finish(huge);
    return false;
}

static void collect(struct area *area, const struct attn_tensor *from, const struct attn_tensor *to,
                    const struct step *original, size_t bytes)
{
    for (uint32_t row = 0; row < original->batch.num_tokens; row++) {
        for (uint32_t head = 0; head < original->problem.heads; head++) {
            memcpy(tensor_at(to, row, head), tensor_at(from, row, head), bytes);
            memset(tensor_at(from, row, head), area->fill, bytes);
        }
    }
}

bool huge_collect(struct huge_step *huge, const struct step *original, char *why, size_t size)
{
    const struct attn_problem *p = &original->problem;

    collect(huge->out, &huge->step.tensors.out, &original->tensors.out, original,
            (size_t)p->head_dim_vo * oracle_size(p->out_dtype));
    if (huge->lse != NULL)
        collect(huge->lse, &huge->step.tensors.lse, &original->tensors.lse, original, 4);
    bool good = area_is_clean(huge->out) && (huge->lse == NULL || area_is_clean(huge->lse));
    if (!good)
        snprintf(why, size, "something beside the rows of out or lse was written");
    return good;
}

void huge_finish(struct huge_step *huge)
{
    for (uint32_t i = 0; i < huge->count; i++)
        area_finish(&huge->areas[i]);
    arena_finish(&huge->arena);
    huge->count = 0;
}
