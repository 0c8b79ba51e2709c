/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes a row to a cache: copied, or converted and scaled (docs/definition.md, section 2). */
#include "row.h"

#include <float.h>
#include <math.h>

#include "fp8-int8.h"

/* Elements that are converted at once: a multiple of x in every layout. */
#define ELEMENTS 64u

struct cpu_kv_side cpu_kv_side_of(const struct attn_kv_desc *desc, bool values)
{
    const struct attn_scale *scale = values ? &desc->v_scale : &desc->k_scale;
    struct cpu_kv_side side = {.scale = cpu_scale_of(scale)};

    side.view = attn__kv_view(desc, values, attn__address(values ? &desc->v : &desc->k));
    side.token_head = side.scale.base != NULL && scale->granularity == ATTN_SCALES_TOKEN_HEAD;
    return side;
}

struct cpu_row cpu_row_of(const struct cpu_kv_side *side, int64_t page, int64_t token, int64_t head)
{
    return (struct cpu_row){.view = &side->view,
                            .at = attn__kv_at(&side->view, page, token, head),
                            .dtype = side->view.dtype,
                            .dim = side->view.dim,
                            .scale = cpu_scale_at(&side->scale, page, token, head)};
}

/* Reads elements [d, d + count) without conversion. */
static void take(const struct cpu_row *row, uint32_t d, uint32_t count, void *to)
{
    uint32_t size = attn__dtype_size(row->dtype);

    if (row->view != NULL) {
        attn__kv_load(row->view, row->at, d, count, to);
        return;
    }
    uint32_t split = row->rest != NULL ? row->split : row->dim;
    uint32_t here = d >= split ? 0 : split - d < count ? split - d : count;
    if (here > 0)
        memcpy(to, row->at + (size_t)d * size, (size_t)here * size);
    if (here < count)
        memcpy((char *)to + (size_t)here * size, row->rest + (size_t)(d + here - split) * size,
               (size_t)(count - here) * size);
}

/* Reads them as f32, scaled. */
static void load(const struct cpu_row *row, uint32_t d, uint32_t count, float *to)
{
    uint32_t raw[ELEMENTS]; /* aligned for every type */

    take(row, d, count, raw);
    cpu_load(row->dtype, to, raw, count);
    for (uint32_t i = 0; row->scale != 1 && i < count; i++)
        to[i] *= row->scale;
}

void cpu_row_copy(const struct cpu_row *row, const struct cpu_kv_side *to, int64_t page, int64_t token,
                  int64_t head)
{
    char *at = attn__kv_at(&to->view, page, token, head);
    uint32_t raw[ELEMENTS];

    if (row->view == NULL && row->rest == NULL) {
        attn__kv_store(&to->view, at, 0, row->dim, row->at);
        return;
    }
    for (uint32_t d = 0; d < row->dim; d += ELEMENTS) {
        uint32_t count = row->dim - d < ELEMENTS ? row->dim - d : ELEMENTS;
        take(row, d, count, raw);
        attn__kv_store(&to->view, at, d, count, raw);
    }
}

/* max|x|; NaN if any is NaN. */
static float largest(const struct cpu_row *row)
{
    float values[ELEMENTS], max_abs = 0;

    for (uint32_t d = 0; d < row->dim && !isnan(max_abs); d += ELEMENTS) {
        uint32_t count = row->dim - d < ELEMENTS ? row->dim - d : ELEMENTS;
        load(row, d, count, values);
        for (uint32_t i = 0; i < count && !isnan(max_abs); i++)
            max_abs = fabsf(values[i]) > max_abs || isnan(values[i]) ? fabsf(values[i]) : max_abs;
    }
    return max_abs;
}

/* The scale that a row is divided by. */
static float find_scale(const struct cpu_row *row, const struct cpu_kv_side *to, int64_t page, int64_t token,
                        int64_t head)
{
    if (!to->token_head)
        return cpu_scale_at(&to->scale, page, token, head);
    float max_abs = largest(row), scale = max_abs / attn__codec8_largest(to->view.dtype);
    if (!isfinite(max_abs))
        scale = NAN;
    else if (scale < FLT_MIN)
        scale = 1;
    memcpy(cpu_scale_place(&to->scale, page, token, head), &scale, sizeof scale);
    return scale;
}

void cpu_row_write(const struct cpu_row *row, const struct cpu_kv_side *to, int64_t page, int64_t token,
                   int64_t head)
{
    float scale = to->view.size == 1 ? find_scale(row, to, page, token, head) : 1;
    char *at = attn__kv_at(&to->view, page, token, head);

    for (uint32_t d = 0; d < row->dim; d += ELEMENTS) {
        float values[ELEMENTS];
        uint32_t raw[ELEMENTS], count = row->dim - d < ELEMENTS ? row->dim - d : ELEMENTS;
        load(row, d, count, values);
        for (uint32_t i = 0; scale != 1 && i < count; i++)
            values[i] /= scale;
        cpu_store(to->view.dtype, raw, values, count);
        attn__kv_store(&to->view, at, d, count, raw);
    }
}
