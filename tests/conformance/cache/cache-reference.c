/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the operations on caches must do, element by element in the mirrors (docs/definition.md, section 2).
 */
#include "cache.h"

#include <math.h>

#include "need.h"

void reference_move(struct cache_case *c, const struct box *from, const int64_t from_place[2],
                    const struct box *to, const int64_t to_place[2], uint32_t half, uint32_t head)
{
    uint32_t size = oracle_size(box_dtype(from, half));

    for (uint32_t d = 0; d < box_dim(from, half); d++)
        memmove(cache_mirror(c, box_element(to, half, to_place[0], to_place[1], head, d)),
                cache_mirror(c, box_element(from, half, from_place[0], from_place[1], head, d)), size);
    if (box_is_token_head(from, half))
        memmove(cache_mirror(c, box_scale_at(to, half, to_place[0], to_place[1], head)),
                cache_mirror(c, box_scale_at(from, half, from_place[0], from_place[1], head)), sizeof(float));
}

static float scale_of(struct cache_case *c, const struct box *box, uint32_t half, const int64_t place[2],
                      uint32_t head)
{
    const unsigned char *at = box_scale_at(box, half, place[0], place[1], head);
    float value = 1;

    if (at != NULL)
        memcpy(&value, cache_mirror(c, at), sizeof value);
    return value;
}

void reference_load(struct cache_case *c, const struct box *from, uint32_t half, const int64_t place[2],
                    uint32_t head, double *to)
{
    float scale = scale_of(c, from, half, place, head);

    for (uint32_t d = 0; d < box_dim(from, half); d++) {
        oracle_load(box_dtype(from, half),
                    cache_mirror(c, box_element(from, half, place[0], place[1], head, d)), 1, &to[d]);
        to[d] = (double)(float)(to[d] * (double)scale);
    }
}

void reference_put(struct cache_case *c, uint32_t dtype, double value, unsigned char *to)
{
    double stored;

    oracle_store(dtype, value, cache_mirror(c, to));
    oracle_load(dtype, to, 1, &stored);
    if (isnan(value) && isnan(stored))
        memcpy(cache_mirror(c, to), to, oracle_size(dtype));
}

void reference_store(struct cache_case *c, const struct box *to, uint32_t half, const int64_t place[2],
                     uint32_t head, const double *values)
{
    uint32_t dtype = box_dtype(to, half), dim = box_dim(to, half);
    float scale = scale_of(c, to, half, place, head);

    if (box_is_token_head(to, half)) {
        unsigned char *at = box_scale_at(to, half, place[0], place[1], head);
        scale = (float)oracle_token_scale(dtype, values, dim);
        reference_put(c, ATTN_F32, (double)scale, at);
    }
    for (uint32_t d = 0; d < dim; d++) {
        unsigned char *at = box_element(to, half, place[0], place[1], head, d);
        if (!oracle_is_8bit(dtype)) {
            reference_put(c, dtype, values[d], at);
            continue;
        }
        uint8_t code = oracle_write8(dtype, values[d], (double)scale);
        if (!c->exact && oracle_accepts8(dtype, values[d], (double)scale, *at))
            code = *at;
        *cache_mirror(c, at) = code;
    }
}
