/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What masks and ALiBi add to the scores of a tile. ALiBi is a product with the distance of a key, which a
 * kernel computes beside the score; values of a mask are converted to a row of floats, minus infinity where a
 * key is hidden.
 */
#ifndef ATTN_CPU_KERNELS_BIAS_H
#define ATTN_CPU_KERNELS_BIAS_H

#include "row-state.h"

/* What all rows of a run have in common. */
struct bias_rules {
    bool values;   /* there is a row of values to add */
    bool by_key;   /* computed key by key, with ALiBi in it */
    bool by_head;  /* each query head has values of its own, not each token */
    bool distance; /* ALiBi is added by bias_alibi */
    float least;   /* numbers of a mask below it hide a key */
};

static struct bias_rules bias_rules_of(const struct cpu_run *run)
{
    const bool masked = run->mask != NULL, sloped = run->slopes != NULL;
    const bool by_mask = run->problem->alibi == ATTN_ALIBI_MASK;
    /* Elsewhere the position of a key is its number. */
    const bool placed =
        run->shard.world != 0 || (masked && run->positions != NULL && run->problem->span == ATTN_SPAN_SQUARE);
    const bool by_key = placed && (masked || sloped);
    return (struct bias_rules){.values = masked || by_key,
                               .by_key = by_key,
                               .by_head = (masked && run->mask_head != 0) || (by_key && sloped),
                               .distance = sloped && !by_mask && !by_key,
                               .least = nextafterf(cpu_mask_hides(run->mask_dtype), 0)};
}

/* Whether runs of a problem may have values to add. */
static bool bias_has_values(const struct attn_problem *problem)
{
    return problem->mask != ATTN_MASK_NONE || (problem->cp != 0 && problem->alibi != ATTN_ALIBI_NONE);
}

/* ALiBi of a row. */
struct bias_slope {
    float slope;    /* in units of log2 */
    int64_t anchor; /* the key whose ALiBi is left out of scores and added to the LSE */
    bool folded;    /* the distance has no sign */
    double base;    /* ALiBi of the anchor */
};

/*
 * ALiBi of a row that sees keys [lo, hi). The anchor is where it is largest, so that scores near the row's
 * maximum have small numbers added to them and lose no precision, unless a mask hides the keys about it.
 */
static struct bias_slope bias_slope_of(const struct cpu_run *run, const struct cpu_bias *bias, uint32_t lo,
                                       uint32_t hi)
{
    double slope = bias->slope;
    const int64_t position = bias->position, last = (int64_t)hi - 1;
    struct bias_slope out = {.anchor = position};

    if (run->problem->alibi == ATTN_ALIBI_DISTANCE && position <= (int64_t)lo)
        slope = -slope;
    else if (run->problem->alibi == ATTN_ALIBI_DISTANCE && position < last)
        out.folded = true;
    if (!out.folded)
        out.anchor = slope >= 0 ? last : (int64_t)lo;
    else
        slope = -slope;
    out.base = out.folded ? 0 : slope * (double)(out.anchor - position);
    out.slope = (float)(slope * LOG2E);
    return out;
}

/* score + slope * distance, where distance is from the anchor. */
INLINE vec bias_alibi(vec score, vec slope, vec_bool folded, vec distance)
{
    return vec_fma(slope, vec_select(folded, vec_abs(distance), distance), score);
}

/* The bits of VEC_LANES columns from bit `at` on. */
INLINE uint32_t bias_bits(const char *row, uint64_t at)
{
    const unsigned char *bytes = (const unsigned char *)row + at / 8;
    const uint32_t shift = (uint32_t)(at % 8);
    uint32_t bits = 0;
    for (uint32_t i = 0; i * 8 < shift + VEC_LANES; i++)
        bits |= (uint32_t)bytes[i] << 8 * i;
    return bits >> shift & vec_all_lanes();
}

/* Values of VEC_LANES columns of a mask. */
INLINE vec bias_columns(const struct bias_rules *rules, const struct cpu_bias *bias, int64_t column)
{
    const uint32_t dtype = bias->run->mask_dtype;
    const vec none = vec_set(-INFINITY);
    if (dtype == 0)
        return vec_select(vec_lanes(bias_bits(bias->row, bias->bit + (uint64_t)column)), vec_zero(), none);
    const enum vec_type type = vec_type_of(dtype);
    const vec x = vec_load(type, bias->row + column * (int64_t)vec_size(type));
    return vec_select(vec_less(x, vec_set(rules->least)), none, x);
}

/* The same key by key, for columns that are not all in the mask. */
static vec bias_keys(const struct bias_rules *rules, const struct cpu_bias *bias, uint32_t key, uint32_t end)
{
    float values[VEC_LANES];
    for (uint32_t i = 0; i < VEC_LANES; i++) {
        double value = 0;
        bool covered, seen = key + i < end;
        if (seen && rules->by_key)
            seen = cpu_bias_of_key(bias, key + i, &value);
        else if (seen)
            seen = cpu_bias_mask(bias, key + i, &covered, &value);
        values[i] = seen ? (float)value : -INFINITY;
    }
    return vec_load_f32(values);
}

/*
 * Writes the values of keys base + i, i in [from, to), to values[i], and others to fill up vectors; base + to
 * is at most `end`, the keys of the sequence. Returns a bit for each key that is seen, and says in *zero
 * whether all values are 0.
 */
static uint64_t bias_fill(const struct bias_rules *rules, const struct cpu_bias *bias, uint32_t base,
                          uint32_t from, uint32_t to, uint32_t end, float *values, bool *zero)
{
    uint64_t seen = 0;
    vec any = vec_zero();
    for (uint32_t i = from - from % VEC_LANES; i < to; i += VEC_LANES) {
        const int64_t column = (int64_t)base + i - bias->first;
        const bool inside =
            !rules->by_key && bias->row != NULL && column >= 0 && column + VEC_LANES <= bias->columns;
        const vec x = inside ? bias_columns(rules, bias, column) : bias_keys(rules, bias, base + i, end);
        vec_store(values + i, x);
        any = vec_max(any, vec_select(vec_equal(x, vec_zero()), vec_zero(), vec_set(1)));
    }
    for (uint32_t i = from; i < to; i++)
        seen |= (uint64_t)(values[i] != -INFINITY) << i;
    *zero = vec_reduce_max(any) == 0;
    return seen;
}

/* What values are multiplied with: they are in natural units, or of ALiBi's mask. */
INLINE float bias_factor(const struct cpu_run *run, const struct bias_rules *rules, double slope)
{
    const bool by_mask = run->problem->alibi == ATTN_ALIBI_MASK && !rules->by_key && run->slopes != NULL;
    return (float)(by_mask ? slope * LOG2E : LOG2E);
}

/* score + value * factor; hidden keys have minus infinity. */
INLINE vec bias_add(vec score, vec value, vec factor)
{
    const vec none = vec_set(-INFINITY);
    return vec_select(vec_equal(value, none), none, vec_fma(value, factor, score));
}

#endif
