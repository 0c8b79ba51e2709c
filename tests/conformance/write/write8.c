/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes into 8-bit caches: numbers that are hard to encode, and what a place and its scale must hold. */
#include "write8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"

static bool is_own(const struct step *step, uint32_t what)
{
    return step->the_case->scales[what].granularity == ATTN_SCALES_TOKEN_HEAD;
}

void write8_place_scales(struct step *step)
{
    for (uint32_t what = SCALED_K; what <= SCALED_V; what++) {
        if (step->scales[what] == NULL || is_own(step, what))
            continue;
        for (uint32_t page = 0; page < step->kv.pages; page++) {
            for (uint32_t head = 0; head < step->kv.kv_heads; head++) {
                struct scale_place place = {.outer = page, .head = head};
                step_put_scale(step, what, page, 0, head, case_scale_value(step->the_case, what, &place));
            }
        }
        guarded_protect(step->scales[what]);
    }
}

void write8_begin(const struct step *step)
{
    for (uint32_t what = SCALED_K; what <= SCALED_V; what++)
        if (step->scales[what] != NULL && is_own(step, what))
            pattern_fill(step->scales[what]);
}

/* Halfway between two codes that follow each other, or a little beside. */
static double pick_middle(struct rng *rng, uint32_t dtype)
{
    uint8_t code;
    double low, high;

    do {
        code = (uint8_t)rng_below(rng, 127);
        low = oracle_decode8(dtype, code);
        high = oracle_decode8(dtype, (uint8_t)(code + 1));
    } while (!isfinite(low) || !isfinite(high));
    return (low + high) / 2 * (1 + ((double)rng_below(rng, 5) - 2) * 0x1p-23);
}

/* A quotient within the numbers of the type, or at most one step beyond. */
static double pick_quotient(struct rng *rng, uint32_t dtype)
{
    double least = oracle_decode8(dtype, 1), most = oracle_most8(dtype);
    const double edge_values[] = {0,     least / 2, least * 0.4999,      least * 0.5001,
                                  least, most,      most * 0x1.fffffep-1};

    switch (rng_below(rng, 5)) {
    case 0:
        return rng_pick(rng, edge_values);
    case 1:
        return most * (double)rng_below(rng, 1 << 24) * 0x1p-24;
    case 2:
        return ldexp(1 + (double)rng_below(rng, 1 << 23) * 0x1p-23, (int)rng_below(rng, 24) - 18);
    default:
        return pick_middle(rng, dtype);
    }
}

static double with_sign(struct rng *rng, double value)
{
    return rng_chance(rng, 50) ? value : -value;
}

/* What a row is divided by is known: every kind of number may stand beside every other. */
static void fill_fixed(const struct row8 *row, uint64_t key)
{
    struct rng rng = {key};
    double most = oracle_most8(row->to_dtype) * row->scale;
    const double edge_values[] = {(double)INFINITY, (double)NAN, most * 1.001,
                                  most * 1.04,      most * 1.2,  most * 30};
    uint32_t size = oracle_size(row->from_dtype);

    for (uint32_t d = 0; d < row->dim; d++) {
        double value = rng_chance(&rng, 12) ? rng_pick(&rng, edge_values)
                                            : pick_quotient(&rng, row->to_dtype) * row->scale;
        oracle_store(row->from_dtype, with_sign(&rng, value), row->from + (size_t)d * size);
    }
}

/* Largest of a row with a scale of its own: ordinary, or at the ends of what its type holds. */
static double pick_largest(const struct row8 *row, struct rng *rng)
{
    double most = oracle_most8(row->to_dtype), edge = ldexp(most, -126);
    const double edge_values[] = {0,        edge, edge * (1 - 0x1p-20), edge * (1 + 0x1p-20), edge / 64,
                                  0x1p-149, 65504};
    uint32_t kind = rng_below(rng, 100);

    if (kind < 15)
        return rng_pick(rng, edge_values);
    if (kind < 22)
        return row->from_dtype == ATTN_F16 ? 65504 : 0x1.fep127;
    if (kind < 35)
        return ldexp(most, (int)rng_below(rng, 9) - 8 - (row->to_dtype == ATTN_INT8 ? 0 : 6));
    return ldexp(1 + (double)rng_below(rng, 1 << 23) * 0x1p-23, (int)rng_below(rng, 28) - 16);
}

static void fill_own(const struct row8 *row, uint64_t key)
{
    struct rng rng = {key};
    double largest = pick_largest(row, &rng), scale = largest / oracle_most8(row->to_dtype);
    uint32_t size = oracle_size(row->from_dtype), at = rng_below(&rng, row->dim);

    for (uint32_t d = 0; d < row->dim; d++) {
        double value = fmin(pick_quotient(&rng, row->to_dtype) * scale, largest);
        oracle_store(row->from_dtype, with_sign(&rng, d == at ? largest : value),
                     row->from + (size_t)d * size);
    }
    if (rng_chance(&rng, 15)) /* the whole row becomes NaN */
        oracle_store(row->from_dtype, with_sign(&rng, rng_chance(&rng, 50) ? (double)NAN : (double)INFINITY),
                     row->from + (size_t)rng_below(&rng, row->dim) * size);
}

void write8_fill(const struct row8 *row, uint64_t key)
{
    if (row->from_dtype == row->to_dtype)
        for (uint32_t d = 0; d < row->dim; d++)
            row->from[d] = (unsigned char)(mix(key, d) >> 32);
    else if (row->own)
        fill_own(row, key);
    else
        fill_fixed(row, key);
}

struct row8 write8_row(struct step *step, uint32_t what, uint32_t from_dtype, unsigned char *from,
                       int64_t page, int64_t token, int64_t head)
{
    struct row8 row = {.from = from, .from_dtype = from_dtype, .scale = 1};

    row.to_dtype = what == SCALED_K ? step->kv.k_dtype : step->kv.v_dtype;
    row.dim = what == SCALED_K ? step->kv.head_dim : step->kv.head_dim_vo;
    row.own = is_own(step, what);
    if (row.own && page >= 0)
        row.stored_scale = step_scale_at(step, what, page, token, head);
    if (!row.own && step->scales[what] != NULL) {
        struct scale_place place = {.outer = page < 0 ? 0 : page, .head = head};
        row.scale = case_scale_value(step->the_case, what, &place);
    }
    return row;
}

/* True if the scale of a row is what it must be; *out is the scale. */
static bool is_scale_right(const struct row8 *row, const double *values, double *out)
{
    float stored, wanted = (float)oracle_token_scale(row->to_dtype, values, row->dim);

    *out = row->scale;
    if (!row->own)
        return true;
    memcpy(&stored, row->stored_scale, sizeof stored);
    *out = (double)wanted;
    return isnan(wanted) ? isnan(stored) : memcmp(&stored, &wanted, sizeof stored) == 0;
}

bool write8_check(const struct row8 *row, const unsigned char *codes, bool exact, char *why, size_t size)
{
    double *values = need(calloc(row->dim, sizeof *values)), scale;
    bool good = true;

    if (row->from_dtype == row->to_dtype) {
        good = memcmp(row->from, codes, row->dim) == 0;
        snprintf(why, size, "codes are not copied as they are");
    } else {
        oracle_load(row->from_dtype, row->from, row->dim, values);
        good = is_scale_right(row, values, &scale);
        if (!good)
            snprintf(why, size, "the scale is not %.9g", scale);
        for (uint32_t d = 0; good && d < row->dim; d++) {
            good = exact ? codes[d] == oracle_write8(row->to_dtype, values[d], scale)
                         : oracle_accepts8(row->to_dtype, values[d], scale, codes[d]);
            snprintf(why, size, "dim %u: %.9g by scale %.9g became code %02x, wanted %02x", d, values[d],
                     scale, codes[d], oracle_write8(row->to_dtype, values[d], scale));
        }
    }
    free(values);
    return good;
}

bool write8_end(struct step *step, char *why, size_t size)
{
    for (uint32_t what = SCALED_K; what <= SCALED_V; what++) {
        if (step->scales[what] == NULL || !is_own(step, what))
            continue;
        int64_t at = pattern_check(step->scales[what]);
        if (at >= 0) {
            snprintf(why, size, "byte %lld of the %s was written, but belongs to no row", (long long)at,
                     step->scales[what]->name);
            return false;
        }
    }
    return true;
}
