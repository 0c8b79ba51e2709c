/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What masks and ALiBi add to the scores of a tile. ALiBi is a product with the distance of a key, which a
 * kernel computes beside the score. A mask of a row says by bits which keys of a tile are seen; if it adds
 * something to their scores, its values are converted to a row of floats.
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

/* The bits of n columns, 1 to 64, from bit `at` on. */
INLINE uint64_t bias_bits(const char *row, uint64_t at, uint32_t n)
{
    const unsigned char *bytes = (const unsigned char *)row + at / 8;
    const uint32_t shift = (uint32_t)(at % 8);
    uint64_t bits = bytes[0] >> shift;
    for (uint32_t i = 8; i < shift + n; i += 8)
        bits |= (uint64_t)bytes[i / 8] << (i - shift);
    return bits & bits_between(0, n);
}

/* Values of VEC_LANES columns of a mask of numbers, and a bit for each that hides no key. */
INLINE vec bias_columns(const struct bias_rules *rules, const struct cpu_bias *bias, int64_t column,
                        uint32_t *seen)
{
    const enum vec_type type = vec_type_of(bias->run->mask_dtype);
    const vec x = vec_load(type, bias->row + column * (int64_t)vec_size(type));
    *seen = ~vec_bits(vec_less(x, vec_set(rules->least))) & vec_all_lanes();
    return x;
}

/* The same key by key, for columns that are not all in the mask. */
static vec bias_keys(const struct bias_rules *rules, const struct cpu_bias *bias, uint32_t key, uint32_t end,
                     uint32_t *seen)
{
    float values[VEC_LANES] = {0};
    *seen = 0;
    for (uint32_t i = 0; i < VEC_LANES && key + i < end; i++) {
        double value = 0;
        bool covered;
        if (!(rules->by_key ? cpu_bias_of_key(bias, key + i, &value)
                            : cpu_bias_mask(bias, key + i, &covered, &value)))
            continue;
        values[i] = (float)value;
        *seen |= UINT32_C(1) << i;
    }
    return vec_load_f32(values);
}

/*
 * Finds what the mask does to keys base + i, i in [from, to); base + to is at most `end`, the keys of the
 * sequence. Returns a bit for each key that is seen, and says in *zero whether nothing is added to the scores
 * of these. Otherwise their values are in values[i], and any numbers for other keys to fill up vectors.
 */
static uint64_t bias_fill(const struct bias_rules *rules, const struct cpu_bias *bias, uint32_t base,
                          uint32_t from, uint32_t to, uint32_t end, float *values, bool *zero)
{
    const int64_t first = (int64_t)base - bias->first;
    const bool columns = !rules->by_key && bias->row != NULL;
    uint64_t seen = 0;
    *zero = true;
    if (!rules->by_key && (!columns || first + to <= 0 || first + from >= bias->columns))
        return bits_between(from, to) & bits_of_keys(base, bias->lo, bias->hi);
    if (columns && bias->run->mask_dtype == 0 && first + from >= 0 && first + to <= bias->columns)
        return bias_bits(bias->row, bias->bit + (uint64_t)(first + from), to - from) << from;
    for (uint32_t i = from - from % VEC_LANES; i < to; i += VEC_LANES) {
        const bool inside =
            columns && bias->run->mask_dtype != 0 && first + i >= 0 && first + i + VEC_LANES <= bias->columns;
        uint32_t lanes;
        const vec x = inside ? bias_columns(rules, bias, first + i, &lanes)
                             : bias_keys(rules, bias, base + i, end, &lanes);
        vec_store(values + i, x);
        *zero = *zero && (lanes & ~vec_bits(vec_equal(x, vec_zero()))) == 0;
        seen |= (uint64_t)lanes << i;
    }
    return seen & bits_between(from, to);
}

/* Narrows the keys [*lo, *hi) that a row may see to those from the first to the last that its mask shows. */
INLINE void bias_narrow(const struct bias_rules *rules, const struct cpu_bias *bias, uint32_t end,
                        uint32_t *lo, uint32_t *hi)
{
    float values[CPU_TILE_KEYS];
    bool zero;
    while (*lo < *hi) {
        const uint32_t count = *hi - *lo < CPU_TILE_KEYS ? *hi - *lo : CPU_TILE_KEYS;
        const uint64_t seen = bias_fill(rules, bias, *lo, 0, count, end, values, &zero);
        *lo += seen != 0 ? (uint32_t)__builtin_ctzll(seen) : count;
        if (seen != 0)
            break;
    }
    while (*lo < *hi) {
        const uint32_t count = *hi - *lo < CPU_TILE_KEYS ? *hi - *lo : CPU_TILE_KEYS;
        const uint64_t seen = bias_fill(rules, bias, *hi - count, 0, count, end, values, &zero);
        *hi -= seen != 0 ? count - 64 + (uint32_t)__builtin_clzll(seen) : count;
        if (seen != 0)
            break;
    }
}

/* What values are multiplied with: they are in natural units, or of ALiBi's mask. */
INLINE float bias_factor(const struct cpu_run *run, const struct bias_rules *rules, double slope)
{
    const bool by_mask = run->problem->alibi == ATTN_ALIBI_MASK && !rules->by_key && run->slopes != NULL;
    return (float)(by_mask ? slope * LOG2E : LOG2E);
}

#endif
