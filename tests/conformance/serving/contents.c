/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every key and value is, new and as a cache keeps it; and the shadows of the caches. */
#include <math.h>
#include <stdio.h>

#include "model.h"

enum { LOUD = 32, MOST_DIM = 256 };

bool is_cross(const struct model *model, uint32_t c)
{
    return model->problems[c].type == ATTN_ENCODER_DECODER;
}

uint32_t new_dtype(const struct model *model, uint32_t c)
{
    const struct attn_problem *problem = &model->problems[c];

    if (problem->kv_source != ATTN_KV_CACHE)
        return problem->k_dtype;
    if (model->def->classes[c].new_dtype != 0)
        return model->def->classes[c].new_dtype;
    return oracle_is_8bit(problem->q_dtype) ? (uint32_t)ATTN_BF16 : problem->q_dtype;
}

static uint64_t content_key(const struct model *model, uint32_t c, const struct sequence_state *sequence,
                            uint32_t j, uint32_t head, bool values)
{
    const uint64_t id = j < sequence->shared && !is_cross(model, c) ? sequence->parent : sequence->id;

    return mix(mix(mix(model->seed, id), (uint64_t)c << 1 | values), (uint64_t)j << 16 | head);
}

/* Some values are loud, so that one key more or less shows. */
void new_vector(const struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t j,
                uint32_t head, bool values, unsigned char *to)
{
    const struct attn_problem *problem = &model->problems[c];
    const uint64_t key = content_key(model, c, sequence, j, head, values);
    const double factor = values && key % 5 == 0 ? LOUD : 1;

    fill_vector(new_dtype(model, c), to, values ? problem->head_dim_vo : problem->head_dim, key, factor,
                false);
}

/* A scale that does not depend on the token; 1 without one. */
static double fixed_scale(const struct attn_scale *scale, uint32_t head)
{
    return scale->kind == ATTN_SCALE_HOST ? oracle_scale(scale, scale->granularity, 0, 0, head) : 1;
}

double cached_vector(const struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t j,
                     uint32_t head, bool values, unsigned char *to)
{
    const struct attn_problem *problem = &model->problems[c];
    const struct attn_kv_desc *desc = &model->caches[c].desc;
    const struct attn_scale *scale = values ? &desc->v_scale : &desc->k_scale;
    const uint32_t dtype = values ? desc->v_dtype : desc->k_dtype;
    const uint32_t dim = values ? problem->head_dim_vo : problem->head_dim;
    unsigned char raw[MOST_DIM * 4];
    double row[MOST_DIM];

    new_vector(model, c, sequence, j, head, values, raw);
    if (dtype == new_dtype(model, c)) { /* codes move as they are */
        memcpy(to, raw, (size_t)dim * oracle_size(dtype));
        return fixed_scale(scale, head);
    }
    oracle_load(new_dtype(model, c), raw, dim, row);
    if (scale->kind == ATTN_SCALE_DEVICE)
        return oracle_write_row8(dtype, row, dim, to);
    const double factor = fixed_scale(scale, head);
    for (uint32_t d = 0; d < dim; d++)
        if (oracle_is_8bit(dtype))
            to[d] = oracle_write8(dtype, row[d], factor);
        else
            oracle_store(dtype, row[d], to + (size_t)d * oracle_size(dtype));
    return factor;
}

static void put_scale(const struct attn_scale *scale, int64_t page, uint32_t token, uint32_t head,
                      double value)
{
    const float narrow = (float)value;

    if (scale->kind == ATTN_SCALE_DEVICE)
        memcpy((unsigned char *)scale->buffer.data + page * scale->outer_stride +
                   token * scale->token_stride + head * scale->head_stride,
               &narrow, sizeof narrow);
}

void shadow_write(struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t first,
                  uint32_t end)
{
    const struct attn_kv_desc *shadow = &model->caches[c].shadow;
    const int64_t *blocks = sequence->blocks[class_group(model, c)];
    unsigned char vector[MOST_DIM * 4];

    for (uint32_t j = first; j < end; j++) {
        for (uint32_t head = 0; head < model->problems[c].kv_heads; head++) {
            const int64_t page = blocks[j / BLOCK];
            double scale = cached_vector(model, c, sequence, j, head, false, vector);
            put_key(shadow, page, j % BLOCK, head, vector);
            put_scale(&shadow->k_scale, page, j % BLOCK, head, scale);
            if (model->problems[c].mla != 0)
                continue;
            scale = cached_vector(model, c, sequence, j, head, true, vector);
            put_value(shadow, page, j % BLOCK, head, vector);
            put_scale(&shadow->v_scale, page, j % BLOCK, head, scale);
        }
    }
}

bool shadow_check(struct model *model, uint32_t c)
{
    struct cache *cache = &model->caches[c];
    const struct guarded *const memories[] = {cache->memory, cache->scales[0], cache->scales[1]};
    const unsigned char *at = cache->copy;

    for (uint32_t i = 0; cache->made && i < 3; i++) {
        if (memories[i] == NULL)
            continue;
        const bool same = memcmp(memories[i]->data, at, memories[i]->size) == 0;
        for (size_t k = 0; k < memories[i]->size && !same; k++) {
            if (memories[i]->data[k] == at[k])
                continue;
            snprintf(model->why, sizeof model->why, "class %u: byte %zu of the %s is 0x%02x, to be 0x%02x", c,
                     k, memories[i]->name, memories[i]->data[k], at[k]);
            return false;
        }
        at += memories[i]->size;
    }
    return true;
}
