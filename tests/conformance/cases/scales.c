/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scales of the 8-bit types: which a problem has, their values, and where they lie in guarded memory. */
#include "conform.h"

#include <math.h>

static const uint32_t types8[] = {ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};

/* ---------------------------------------------------------------- the problem */

static uint32_t pick_granularity(struct rng *rng, uint32_t dtype)
{
    static const uint32_t known[] = {ATTN_SCALES_UNIT, ATTN_SCALES_TENSOR,     ATTN_SCALES_TENSOR,
                                     ATTN_SCALES_HEAD, ATTN_SCALES_TOKEN_HEAD, ATTN_SCALES_TOKEN_HEAD};

    return oracle_is_8bit(dtype) ? rng_pick(rng, known) : (uint32_t)ATTN_SCALES_NONE;
}

void problem_pick_8bit(struct attn_problem *problem, uint64_t seed)
{
    struct rng rng = {mix(seed, 60)};
    bool mixed = rng_chance(&rng, 40);

    problem->q_scale = problem->k_scale = problem->v_scale = problem->out_scale = ATTN_SCALES_NONE;
    if (!rng_chance(&rng, 30))
        return;
    /* What users have is an 8-bit cache behind 16-bit queries; beside it every mixture of types. */
    if (!mixed || rng_chance(&rng, 70))
        problem->k_dtype = problem->v_dtype = rng_pick(&rng, types8);
    if (mixed) {
        problem->v_dtype = rng_chance(&rng, 40) ? rng_pick(&rng, types8) : problem->v_dtype;
        problem->q_dtype = rng_chance(&rng, 60) ? rng_pick(&rng, types8) : problem->q_dtype;
        problem->out_dtype = rng_chance(&rng, 50) ? rng_pick(&rng, types8) : problem->out_dtype;
    }
    problem->q_scale = pick_granularity(&rng, problem->q_dtype);
    if (problem->q_scale != ATTN_SCALES_NONE && rng_chance(&rng, 25))
        problem->q_scale = ATTN_SCALES_KV_HEAD;
    problem->k_scale = pick_granularity(&rng, problem->k_dtype);
    problem->v_scale =
        oracle_is_8bit(problem->v_dtype) && problem->k_scale != ATTN_SCALES_NONE && rng_chance(&rng, 60)
            ? problem->k_scale
            : pick_granularity(&rng, problem->v_dtype);
    problem->out_scale = pick_granularity(&rng, problem->out_dtype);
    if (problem->out_scale == ATTN_SCALES_TOKEN_HEAD)
        problem->out_scale = ATTN_SCALES_HEAD;
}

/* ---------------------------------------------------------------- the case */

/* Root mean square of all codes that are numbers. */
static double rms_of_codes(uint32_t dtype)
{
    double sum = 0;
    int count = 0;

    for (int code = 0; code < 256; code++) {
        double value = oracle_decode8(dtype, (uint8_t)code);
        if (!isfinite(value))
            continue;
        sum += value * value;
        count++;
    }
    return sqrt(sum / count);
}

/* Of what a stored number is that stands for 1: from a few of the least codes to where `reach` still fits. */
static double pick_unit(struct rng *rng, uint32_t dtype, double reach)
{
    const double least = dtype == ATTN_INT8                             ? 2
                         : dtype == ATTN_E4M3 || dtype == ATTN_E4M3FNUZ ? 0x1p-6
                                                                        : 0x1p-13;
    double most = oracle_most8(dtype) / reach, unit = (double)rng_below(rng, 1 << 20) * 0x1p-20;

    return most <= least ? most : least * pow(most / least, unit);
}

static bool is_per_slot(const struct case_scale *scale)
{
    return scale->granularity == ATTN_SCALES_TOKEN_HEAD && scale->outer && scale->token;
}

/* Over which of sequence or page, token and head the values of a scale vary. */
static void pick_extent(struct case_scale *scale, struct rng *rng, bool paged, bool cached)
{
    bool token_head = scale->granularity == ATTN_SCALES_TOKEN_HEAD;

    scale->head = scale->granularity >= ATTN_SCALES_HEAD && rng_chance(rng, token_head ? 85 : 100);
    scale->token = token_head && rng_chance(rng, 90);
    scale->outer = token_head ? rng_chance(rng, 90) : scale->head && rng_chance(rng, 40);
    if (!cached)
        scale->outer = token_head ? scale->token : scale->outer;
    else if (!paged) /* the outer number of a dense key depends on the layout */
        scale->outer = scale->token = token_head;
}

/*
 * The scales of keys, or of values: of cached and of new ones. `reach` is what must be representable.
 *
 * Values of any codes have at least as many columns as e5m2 has exponents, each of which is as likely: in
 * fewer columns a row often has a single large number, and one number can cancel (FEW_COLUMNS).
 */
static void pick_pair(struct conform_case *c, struct rng *rng, uint32_t what, uint32_t dtype, double reach)
{
    bool paged = c->problem.addressing != ATTN_DENSE;
    struct case_scale *cached = &c->scales[what], *new_scale = &c->scales[what + SCALED_K_NEW - SCALED_K];

    cached->granularity = what == SCALED_K ? c->problem.k_scale : c->problem.v_scale;
    *new_scale = *cached;
    if (!oracle_is_8bit(dtype))
        return;
    pick_extent(cached, rng, paged, true);
    pick_extent(new_scale, rng, paged, false);
    for (int i = 0; i < 2; i++) {
        struct case_scale *scale = i == 0 ? cached : new_scale;
        bool values = what == SCALED_V || c->problem.mla != 0;
        bool enough = values ? c->problem.head_dim_vo >= 32 : c->problem.head_dim > FEW_COLUMNS;
        scale->edges = what == SCALED_V && is_per_slot(scale) && rng_chance(rng, 60);
        double most = scale->edges || what == SCALED_K ? reach : 32 * reach;
        scale->raw = enough && scale->granularity != ATTN_SCALES_UNIT && c->shift == 0 &&
                     (what == SCALED_K || scale->edges) && rng_chance(rng, 35);
        scale->base = 1 / (scale->raw ? rms_of_codes(dtype) : pick_unit(rng, dtype, 2 * most));
    }
}

void case_pick_scales(struct conform_case *c, bool write)
{
    const struct attn_problem *problem = &c->problem;
    struct case_scale *q = &c->scales[SCALED_Q], *out = &c->scales[SCALED_OUT];
    struct rng rng = {mix(c->seed, 61)};
    double shift = 1.75;

    q->granularity = problem->q_scale;
    out->granularity = problem->out_scale;
    pick_extent(q, &rng, false, false);
    pick_extent(out, &rng, false, false);
    if (oracle_has_blocks(problem->k_dtype)) /* the last column has its block's scale */
        c->shift = 0;
    /* The shift of a code is no longer the same for every key, nor near a sink. */
    if ((oracle_is_8bit(problem->k_dtype) && problem->k_dtype != ATTN_INT8) ||
        (oracle_is_8bit(problem->q_dtype) && (problem->q_dtype != ATTN_INT8 || problem->sinks != 0)))
        c->shift = 0;
    if (c->shift != 0)
        shift = fmax(shift, sqrt(fabs(c->shift) / (double)c->softmax_scale));
    pick_pair(c, &rng, SCALED_K, problem->k_dtype, problem->mla != 0 ? 32 * shift : shift);
    pick_pair(c, &rng, SCALED_V, problem->v_dtype, 1.75);
    for (uint32_t what = SCALED_K; write && what <= SCALED_V; what++) { /* every row gets its own */
        struct case_scale *scale = &c->scales[what];
        if (scale->granularity == ATTN_SCALES_TOKEN_HEAD)
            scale->outer = scale->token = scale->head = true;
    }
    if (oracle_is_8bit(problem->q_dtype)) {
        q->raw = c->shift == 0 && problem->head_dim > 4 && problem->q_scale != ATTN_SCALES_UNIT &&
                 rng_chance(&rng, 35);
        q->base = q->raw ? c->amplitude / rms_of_codes(problem->q_dtype)
                         : 1 / pick_unit(&rng, problem->q_dtype, 2 * fmax(shift, c->amplitude * 1.75));
    }
    if (oracle_is_8bit(problem->out_dtype)) {
        /* From results that are subnormal to results that are beyond the largest number. */
        out->base = 1 / pick_unit(&rng, problem->out_dtype, rng_chance(&rng, 25) ? 0.1 : 8);
    }
}

double case_scale_value(const struct conform_case *c, uint32_t what, const struct scale_place *place)
{
    const struct case_scale *scale = &c->scales[what];
    bool values = what == SCALED_V || what == SCALED_V_NEW;
    uint64_t key = mix(c->seed, 62 + what);

    if (scale->granularity <= ATTN_SCALES_UNIT)
        return 1;
    key = mix(key, scale->outer ? (uint64_t)place->outer + 1 : 0);
    key = mix(key, scale->token ? (uint64_t)place->token + 1 : 0);
    key = mix(key, scale->head ? (uint64_t)place->head + 1 : 0);
    double value = scale->base * (0.6 + 0.9 * (double)(mix(key, 0) >> 40) * 0x1p-24);
    if (values && scale->edges && (c->slots[place->slot] & SLOT_EDGE) != 0)
        value *= 32;
    if (what == SCALED_Q && mix(key, 1) % 8 == 0) /* scales are used as given */
        value = -value;
    return (double)(float)value;
}

/* ---------------------------------------------------------------- the step */

struct attn_scale *step_scale(struct step *step, uint32_t what)
{
    struct attn_scale *const scales[] = {&step->tensors.q_scale,     &step->kv.k_scale,
                                         &step->kv.v_scale,          &step->tensors.out_scale,
                                         &step->tensors.k_new_scale, &step->tensors.v_new_scale};

    return scales[what];
}

/* Strides of a scale array in one of the six orders, with gaps; returns its bytes. */
static uint64_t pick_strides(struct attn_scale *to, const uint64_t counts[3], struct rng *rng)
{
    int64_t *const strides[] = {&to->outer_stride, &to->token_stride, &to->head_stride};
    uint32_t order[3];
    uint64_t size = 4, last = 4;

    rng_shuffle(rng, order, 3);
    for (uint32_t i = 0; i < 3; i++) {
        if (counts[order[i]] == 0)
            continue; /* broadcast */
        *strides[order[i]] = (int64_t)size;
        last += size * (counts[order[i]] - 1);
        size = size * counts[order[i]] + 4 * (uint64_t)(rng_chance(rng, 40) ? rng_below(rng, 4) : 0);
    }
    return last;
}

/*
 * An array for outer x token x head values, of which those that the case does not tell apart are one value
 * or, at random, many equal ones. Nothing is a number until step_put_scale says so.
 */
static void place(struct step *step, uint32_t what, const char *name, const uint64_t counts[3])
{
    const struct case_scale *scale = &step->the_case->scales[what];
    struct attn_scale *to = step_scale(step, what);
    struct rng rng = {mix(step->layout.seed, 70 + what)};
    bool token_head = scale->granularity == ATTN_SCALES_TOKEN_HEAD, spread = rng_chance(&rng, 30);
    bool cached = what == SCALED_K || what == SCALED_V; /* token-head: beside the cache, a write fills it */
    /* Nothing on the host says how many rows there are. */
    bool uncounted = (what == SCALED_K_NEW || what == SCALED_V_NEW) && step->problem.kv_source == ATTN_KV_NEW;
    const bool varied[3] = {scale->outer || (spread && scale->granularity >= ATTN_SCALES_HEAD),
                            scale->token || (spread && token_head),
                            scale->head || (spread && scale->granularity >= ATTN_SCALES_HEAD)};
    uint64_t used[3];

    memset(to, 0, sizeof *to);
    if (scale->granularity <= ATTN_SCALES_NONE)
        return;
    to->kind = scale->granularity == ATTN_SCALES_UNIT                          ? ATTN_SCALE_UNIT
               : rng_chance(&rng, 50) || ((cached || uncounted) && token_head) ? ATTN_SCALE_DEVICE
                                                                               : ATTN_SCALE_HOST;
    to->granularity = scale->granularity == ATTN_SCALES_UNIT && rng_chance(&rng, 50) ? 0 : scale->granularity;
    if (scale->granularity == ATTN_SCALES_UNIT)
        return;
    for (int i = 0; i < 3; i++)
        used[i] = varied[i] ? counts[i] : 0;
    /* Rows count through all sequences: their own number is enough. */
    if (!cached && token_head && !(spread && counts[1] < 500))
        used[0] = 0;
    uint64_t bytes = pick_strides(to, used, &rng);
    step->scales[what] = arena_add(&step->arena, name, bytes, 4, step->the_case->poison);
    to->buffer = buffer_at(step->scales[what]->data, &rng);
    if (!token_head && used[0] == 0) {
        for (uint32_t head = 0; head < (used[2] > 0 ? counts[2] : 1); head++)
            step_put_scale(step, what, 0, 0, head,
                           case_scale_value(step->the_case, what, &(struct scale_place){.head = head}));
    }
}

void step_place_cache_scales(struct step *step)
{
    const uint64_t counts[3] = {step->kv.pages, step->kv.block, step->kv.kv_heads};

    place(step, SCALED_K, "k scales", counts);
    place(step, SCALED_V, "v scales", counts);
}

void step_place_scales(struct step *step)
{
    const struct attn_problem *problem = &step->problem;
    uint32_t q_heads = problem->q_scale == ATTN_SCALES_KV_HEAD ? problem->kv_heads : problem->heads;
    const uint64_t q_counts[3] = {step->seqs, step->batch.num_tokens + 2, q_heads};
    const uint64_t out_counts[3] = {step->seqs, 1, problem->heads};
    const uint64_t new_counts[3] = {step->seqs, step->new_rows + 2, problem->kv_heads};

    place(step, SCALED_Q, "q scales", q_counts);
    place(step, SCALED_OUT, "out scales", out_counts);
    if (problem->kv_source == ATTN_KV_CACHE)
        return;
    place(step, SCALED_K_NEW, "k_new scales", new_counts);
    place(step, SCALED_V_NEW, "v_new scales", new_counts);
}

void step_move_scales(struct step *step)
{
    struct attn_tensors *tensors = &step->tensors;
    struct attn_scale *const scales[] = {&tensors->q_scale, &tensors->k_new_scale, &tensors->v_new_scale,
                                         &tensors->out_scale};

    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (scales[i]->kind == ATTN_SCALE_HOST &&
            (scales[i]->granularity == ATTN_SCALES_TOKEN_HEAD || scales[i]->token_stride != 0))
            scales[i]->kind = ATTN_SCALE_DEVICE;
}

unsigned char *step_scale_at(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head)
{
    const struct attn_scale *scale = step_scale(step, what);

    return (unsigned char *)scale->buffer.data + scale->buffer.byte_offset + outer * scale->outer_stride +
           token * scale->token_stride + head * scale->head_stride;
}

void step_put_scale(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head,
                    double value)
{
    float narrow = (float)value;

    if (step->scales[what] != NULL)
        memcpy(step_scale_at(step, what, outer, token, head), &narrow, sizeof narrow);
}
