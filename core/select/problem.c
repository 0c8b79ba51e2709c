/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Problems: defaults, checks, and the canonical string in both directions. */
#include <math.h>
#include <stdio.h>

#include "select/problem.h"

#define KNOWN_GIVEN (ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT)

static int32_t invalid(struct attn_error *err, const char *key, const char *text)
{
    return attn__fail(err, ATTN_E_INVALID, 0, key, "%s", text);
}

/* ---------------------------------------------------------------- defaults */

static void fill(uint32_t *member, uint32_t fallback)
{
    if (*member == 0)
        *member = fallback;
}

static void fill_types(struct attn_problem *problem)
{
    fill(&problem->k_dtype, problem->q_dtype);
    fill(&problem->v_dtype, problem->mla ? problem->k_dtype : problem->q_dtype);
    fill(&problem->out_dtype, attn_dtype_size(problem->q_dtype) == 1 ? ATTN_BF16 : problem->q_dtype);
    fill(&problem->q_scale, ATTN_SCALES_NONE);
    fill(&problem->k_scale, ATTN_SCALES_NONE);
    fill(&problem->v_scale, ATTN_SCALES_NONE);
    fill(&problem->out_scale, ATTN_SCALES_NONE);
}

static void fill_window(struct attn_problem *problem)
{
    if (!(problem->given & ATTN_GIVEN_WINDOW_LEFT)) {
        problem->window_left = -1;
        problem->given |= ATTN_GIVEN_WINDOW_LEFT;
    }
    if (!(problem->given & ATTN_GIVEN_WINDOW_RIGHT))
        problem->window_right = problem->causal == ATTN_CAUSAL_YES ? 0 : problem->window_left;
}

void attn__problem_fill(struct attn_problem *problem)
{
    fill(&problem->type, ATTN_DECODER);
    fill_types(problem);
    fill(&problem->kv_heads, problem->mla ? 1 : problem->heads);
    fill(&problem->head_dim_vo, problem->head_dim);
    fill(&problem->addressing, ATTN_TABLE);
    fill(&problem->index_dtype, ATTN_INT32);
    fill(&problem->block, 16);
    fill(&problem->causal, problem->type == ATTN_DECODER ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO);
    fill(&problem->align, ATTN_ALIGN_END);
    fill(&problem->alibi, ATTN_ALIBI_NONE);
    fill(&problem->mask, ATTN_MASK_NONE);
    fill(&problem->span, ATTN_SPAN_SQUARE);
    const bool encoder = problem->type == ATTN_ENCODER || problem->type == ATTN_ENCODER_ONLY;
    fill(&problem->kv_source, encoder ? ATTN_KV_NEW : ATTN_KV_CACHE);
    fill(&problem->layout, ATTN_STRIDED);
    fill(&problem->graph, ATTN_GRAPH_NEVER);
    fill_window(problem);
    problem->softcap += 0.0f; /* no -0 */
}

/* ---------------------------------------------------------------- checks */

/* Checks each member by itself, by the table of keys. */
static int32_t check_members(const struct attn_problem *problem, struct attn_error *err)
{
    for (const struct attn__key *key = attn__keys; key < attn__keys + attn__key_count; key++) {
        uint32_t value;
        memcpy(&value, (const char *)problem + key->member, sizeof value);
        if (value == 0 && key->fallback[0] == 0) {
            return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s must be given; accepted: %s", key->name,
                              key->values);
        }
        if (key->choices != NULL && strcmp(attn__key_choice(key->name, value), "?") == 0) {
            return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s has the unknown number %u; accepted: %s",
                              key->name, value, key->values);
        }
        if (key->choices == NULL && key->max != 0 && (value < key->min || value > key->max)) {
            return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s is %u; accepted: %s", key->name, value,
                              key->values);
        }
    }
    return ATTN_OK;
}

static int32_t check_shape(const struct attn_problem *problem, struct attn_error *err)
{
    if (problem->head_dim_vo > ATTN__HEAD_DIM_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "head_dim",
                          "head_dim of v and out is %u; accepted: 1 to %u", problem->head_dim_vo,
                          ATTN__HEAD_DIM_MAX);
    }
    if (problem->heads % problem->kv_heads != 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_heads",
                          "kv_heads is %u; accepted: a divisor of heads=%u", problem->kv_heads,
                          problem->heads);
    }
    if (!isfinite(problem->softcap) || problem->softcap < 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "softcap", "softcap is %g; accepted: a finite number >= 0",
                          (double)problem->softcap);
    }
    if (problem->window_left < -1 || problem->window_right < -1) {
        return attn__fail(err, ATTN_E_INVALID, 0, "window",
                          "window is %d/%d; accepted: -1 (all) to 2147483647", problem->window_left,
                          problem->window_right);
    }
    if (problem->alibi == ATTN_ALIBI_MASK &&
        (problem->mask == ATTN_MASK_NONE || problem->mask == ATTN_MASK_BITS)) {
        return attn__fail(err, ATTN_E_INVALID, 0, "alibi",
                          "alibi=mask needs an additive mask, but mask is %s; accepted: f16|bf16|f32",
                          attn__key_choice("mask", problem->mask));
    }
    if (problem->cp && problem->kv_source != ATTN_KV_CACHE) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_source",
                          "kv_source is %s; with cp=1 keys are read from the cache alone: kv_source=cache",
                          attn__key_choice("kv_source", problem->kv_source));
    }
    return ATTN_OK;
}

static int32_t check_mla(const struct attn_problem *problem, struct attn_error *err)
{
    if (problem->kv_heads != 1) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_heads", "kv_heads is %u; mla=1 has one kv head",
                          problem->kv_heads);
    }
    if (problem->head_dim_vo > problem->head_dim) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "head_dim",
            "head_dim is %u/%u; with mla=1 v is the first columns of k, so the second number is at "
            "most the first",
            problem->head_dim, problem->head_dim_vo);
    }
    if (problem->v_dtype != problem->k_dtype) {
        return attn__fail(err, ATTN_E_INVALID, 0, "v", "v is %s; with mla=1 v is stored in k, which is %s",
                          attn_dtype_name(problem->v_dtype), attn_dtype_name(problem->k_dtype));
    }
    if (problem->v_scale != ATTN_SCALES_NONE) {
        return attn__fail(err, ATTN_E_INVALID, 0, "v_scale",
                          "v_scale is %s; with mla=1 v is read from k with k_scale: leave v_scale out",
                          attn__key_choice("v_scale", problem->v_scale));
    }
    return ATTN_OK;
}

/* Types that have blocks are read from a cache of contiguous vectors, which are whole blocks. */
static int32_t check_blocks(const struct attn_problem *problem, struct attn_error *err)
{
    const bool k = attn_block_bytes(problem->k_dtype) != 0, v = attn_block_bytes(problem->v_dtype) != 0;
    const char *name = k ? "k" : "v", *type = attn_dtype_name(k ? problem->k_dtype : problem->v_dtype);
    if (!k && !v)
        return ATTN_OK;
    if ((k && problem->head_dim % ATTN_BLOCK_ELEMENTS != 0) ||
        (v && problem->head_dim_vo % ATTN_BLOCK_ELEMENTS != 0)) {
        return attn__fail(err, ATTN_E_INVALID, 0, "head_dim",
                          "head_dim is %u/%u; with k=%s and v=%s multiples of %u are accepted of those with "
                          "blocks",
                          problem->head_dim, problem->head_dim_vo, attn_dtype_name(problem->k_dtype),
                          attn_dtype_name(problem->v_dtype), ATTN_BLOCK_ELEMENTS);
    }
    if (problem->layout != ATTN_STRIDED) {
        return attn__fail(err, ATTN_E_INVALID, 0, "layout",
                          "layout is %s, but %s=%s has blocks along head_dim; accepted: strided",
                          attn__key_choice("layout", problem->layout), name, type);
    }
    return problem->kv_source == ATTN_KV_CACHE
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "kv_source",
                            "kv_source is %s, but %s=%s has blocks, which are read from a cache alone; "
                            "accepted: cache",
                            attn__key_choice("kv_source", problem->kv_source), name, type);
}

/* 8-bit types need a scale, blocks have theirs and may say unit, and others have none. */
static int32_t check_scale(const char *name, const char *scale, uint32_t dtype, uint32_t granularity,
                           struct attn_error *err)
{
    const bool has_scale = granularity != ATTN_SCALES_NONE;
    if (attn_dtype_size(dtype) == 1 && !has_scale) {
        return attn__fail(err, ATTN_E_INVALID, 0, scale,
                          "%s is none, but %s=%s has 8 bits; say %s=unit if its values are not scaled", scale,
                          name, attn_dtype_name(dtype), scale);
    }
    if (attn_block_bytes(dtype) != 0 && granularity > ATTN_SCALES_UNIT) {
        return attn__fail(err, ATTN_E_INVALID, 0, scale,
                          "%s is %s, but %s=%s has a scale in each of its blocks; accepted: none, unit",
                          scale, attn__key_choice("q_scale", granularity), name, attn_dtype_name(dtype));
    }
    if (attn_dtype_size(dtype) != 1 && attn_block_bytes(dtype) == 0 && has_scale) {
        return attn__fail(err, ATTN_E_INVALID, 0, scale,
                          "%s is %s, but %s=%s is not an 8-bit type and has no scale; accepted: none", scale,
                          attn__key_choice("q_scale", granularity), name, attn_dtype_name(dtype));
    }
    return ATTN_OK;
}

static int32_t check_scales(const struct attn_problem *problem, struct attn_error *err)
{
    int32_t status = check_scale("q", "q_scale", problem->q_dtype, problem->q_scale, err);
    if (status == ATTN_OK)
        status = check_scale("k", "k_scale", problem->k_dtype, problem->k_scale, err);
    if (status == ATTN_OK && !problem->mla)
        status = check_scale("v", "v_scale", problem->v_dtype, problem->v_scale, err);
    if (status == ATTN_OK)
        status = check_scale("out", "out_scale", problem->out_dtype, problem->out_scale, err);
    return status;
}

/* The sizes of the largest tensors and caches have to fit int64, so that no later code need check that. */
static int32_t check_products(const struct attn_problem *problem, struct attn_error *err)
{
    const uint32_t dim = problem->head_dim > problem->head_dim_vo ? problem->head_dim : problem->head_dim_vo;
    const int64_t row = (int64_t)problem->heads * dim; /* < 2^48 */
    const uint32_t keys = problem->max_kv > problem->block ? problem->max_kv : problem->block;
    int64_t bytes;
    if (__builtin_mul_overflow(row * 4, problem->max_rows, &bytes)) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "max_rows",
            "max_rows=%u rows of heads=%u times head_dim=%u do not fit 63 bits; lower one of them",
            problem->max_rows, problem->heads, dim);
    }
    if (__builtin_mul_overflow(row * 4, keys, &bytes) ||
        __builtin_mul_overflow(bytes, problem->max_seqs, &bytes)) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "max_kv",
            "%u keys of heads=%u times head_dim=%u for max_seqs=%u do not fit 63 bits; lower one of them",
            keys, problem->heads, dim, problem->max_seqs);
    }
    return ATTN_OK;
}

/* Checks what only callers that fill the struct can get wrong, before defaults are filled in. */
static int32_t check_raw(const struct attn_problem *problem, struct attn_error *err)
{
    if (problem->given & ~KNOWN_GIVEN) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "given",
            "given has the unknown bits 0x%x; accepted: ATTN_GIVEN_WINDOW_LEFT, ATTN_GIVEN_WINDOW_RIGHT",
            problem->given & ~KNOWN_GIVEN);
    }
    for (size_t i = 0; i < sizeof problem->reserved / sizeof problem->reserved[0]; i++)
        if (problem->reserved[i] != 0)
            return invalid(err, "reserved", "reserved words of a problem must be zero");
    if (!(problem->given & ATTN_GIVEN_WINDOW_LEFT) && problem->window_left != 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "window",
                          "window_left is %d, but ATTN_GIVEN_WINDOW_LEFT is not set in given; set it, or "
                          "leave window_left 0",
                          problem->window_left);
    }
    if (!(problem->given & ATTN_GIVEN_WINDOW_RIGHT) && problem->window_right != 0 &&
        problem->window_right != -1 && problem->window_right != problem->window_left) {
        return attn__fail(err, ATTN_E_INVALID, 0, "window",
                          "window_right is %d, but ATTN_GIVEN_WINDOW_RIGHT is not set in given; set it, or "
                          "leave window_right 0",
                          problem->window_right);
    }
    return ATTN_OK;
}

int32_t attn_problem_resolve(const struct attn_problem *problem, struct attn_problem *out,
                             struct attn_error *err)
{
    if (out == NULL)
        return invalid(err, "out", "out is NULL");
    struct attn_problem full;
    int32_t status = attn__take(&full, sizeof full, problem, sizeof full, "problem", err);
    if (status == ATTN_OK)
        status = check_raw(&full, err);
    if (status == ATTN_OK) {
        attn__problem_fill(&full);
        status = check_members(&full, err);
    }
    if (status == ATTN_OK)
        status = check_shape(&full, err);
    if (status == ATTN_OK && full.mla)
        status = check_mla(&full, err);
    if (status == ATTN_OK)
        status = check_blocks(&full, err);
    if (status == ATTN_OK)
        status = check_scales(&full, err);
    if (status == ATTN_OK)
        status = check_products(&full, err);
    if (status == ATTN_OK) {
        full.struct_size = (uint32_t)sizeof full;
        *out = full;
    }
    return status;
}

int32_t attn__problem_take(const struct attn_context *context, const struct attn_problem *problem,
                           struct attn_problem *out, struct attn_error *err)
{
    const int32_t status = attn_problem_resolve(problem, out, err);
    if (status == ATTN_OK && strcmp(attn__env_get(&context->env, ATTN__VAR_ATTN_DETERMINISTIC), "1") == 0)
        out->det = 1;
    return status;
}

int32_t attn_problem_format(const struct attn_problem *problem, char *text, size_t size, size_t *out_needed,
                            struct attn_error *err)
{
    if (text == NULL && size > 0)
        return invalid(err, "text", "text is NULL, but size is not 0");
    if (size > 0)
        text[0] = 0;
    struct attn_problem full;
    const int32_t status = attn_problem_resolve(problem, &full, err);
    if (status != ATTN_OK)
        return status;
    size_t used = 0;
    for (const struct attn__key *key = attn__keys; key < attn__keys + attn__key_count; key++) {
        if (!key->differs(key, &full))
            continue;
        char value[64];
        key->format(key, &full, value, sizeof value);
        const int length = snprintf(used < size ? text + used : NULL, used < size ? size - used : 0,
                                    "%s%s=%s", used > 0 ? " " : "", key->name, value);
        used += (size_t)length;
    }
    if (out_needed != NULL)
        *out_needed = used + 1;
    if (used + 1 > size) {
        return attn__fail(err, ATTN_E_SIZE, 0, "size", "the problem string takes %zu bytes, but size is %zu",
                          used + 1, size);
    }
    return ATTN_OK;
}
