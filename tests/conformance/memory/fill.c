/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contents of a case: numbers in what a row may see, the case's poison everywhere else. */
#include "conform.h"

#include <math.h>

/* Contents depend on the logical place alone, never on the layout. */
static uint64_t content_key(const struct conform_case *c, uint64_t what, uint64_t a, uint64_t b)
{
    return mix(mix(mix(c->seed, what), a), b);
}

/*
 * Few columns can cancel to nearly nothing, which no relative bound survives: keep those positive. So is what
 * is put in place of infinity, which is a number in types that have none: -448 times a small weight may
 * cancel values of about 1, and what remains is as large as the rounding of P.
 */
static bool all_positive(const struct conform_case *c)
{
    return c->problem.head_dim_vo <= FEW_COLUMNS;
}

/* The last column of q and k adds the shift to the score. It comes last in a sum, so it costs little
 * precision. */
static void set_shift(const struct conform_case *c, const struct scaled_vector *vector, double sign)
{
    double value = sqrt(fabs(c->shift) / (double)c->softmax_scale) / vector->scale;

    if (c->shift != 0)
        oracle_store(vector->dtype, sign * value,
                     (char *)vector->to + (size_t)(c->problem.head_dim - 1) * oracle_size(vector->dtype));
}

/* Where the vectors of a key lie: in a cache, or in new rows. */
struct key_place {
    bool is_new;
    uint32_t source; /* is_new: sequence of the case, and of the step */
    uint32_t index;
    int64_t page;
    int64_t token;
};

/* Puts the scale of a key or value where it belongs; the vector itself is made apart from its place. */
static struct scaled_vector find_vector(struct step *step, int64_t slot, const struct key_place *at,
                                        uint32_t head, bool values)
{
    const struct conform_case *c = step->the_case;
    const struct attn_problem *problem = &step->problem;
    struct scale_place place = {.outer = at->source, .token = slot, .head = head, .slot = slot};
    struct scaled_vector vector = {.what = values ? SCALED_V : SCALED_K,
                                   .dtype = values ? problem->v_dtype : problem->k_dtype,
                                   .count = values ? problem->head_dim_vo : problem->head_dim};

    vector.to = vector_room(values, vector.count);
    if (at->is_new) {
        vector.what = values ? SCALED_V_NEW : SCALED_K_NEW;
        vector.scale = case_scale_value(c, vector.what, &place);
        step_put_scale(step, vector.what, at->index, at->token, head, vector.scale);
        return vector;
    }
    if (problem->addressing != ATTN_DENSE) {
        place.outer = slot / problem->block;
        place.token = slot % problem->block;
    }
    vector.scale = case_scale_value(c, vector.what, &place);
    step_put_scale(step, vector.what, at->page, at->token, head, vector.scale);
    return vector;
}

/* A NaN in one element; for all of a vector by its own scale where its type has none, or at random. */
static void inject_nan(struct step *step, const struct scaled_vector *vector, const struct key_place *at,
                       uint32_t head, uint32_t dim)
{
    const struct case_scale *scale = &step->the_case->scales[vector->what];
    bool own = scale->granularity == ATTN_SCALES_TOKEN_HEAD && scale->outer && scale->token && scale->head;

    if (own && (dim % 2 == 0 || vector->dtype == ATTN_INT8))
        step_put_scale(step, vector->what, at->is_new ? at->index : at->page, at->token, head, (double)NAN);
    else
        case_put_nan(vector, dim);
}

/* Puts a finished vector where it belongs. */
static void place_vector(const struct step *step, const struct scaled_vector *vector,
                         const struct key_place *at, uint32_t head, bool values)
{
    const struct attn_tensor *tensor = values ? &step->tensors.v_new : &step->tensors.k_new;

    if (at->is_new)
        memcpy(tensor_at(tensor, (uint32_t)at->token, head), vector->to,
               (size_t)vector->count * oracle_size(vector->dtype));
    else if (values)
        put_value(&step->kv, at->page, at->token, head, vector->to);
    else
        put_key(&step->kv, at->page, at->token, head, vector->to);
}

static void fill_slot(struct step *step, int64_t slot, const struct key_place *at_key)
{
    const struct conform_case *c = step->the_case;
    const struct attn_problem *problem = &step->problem;
    double factor = (c->slots[slot] & SLOT_EDGE) != 0 ? 32 : 1;

    for (uint32_t head = 0; head < problem->kv_heads; head++) {
        const struct scaled_vector k = find_vector(step, slot, at_key, head, false);
        const struct scaled_vector v = find_vector(step, slot, at_key, head, true);
        case_fill_vector(c, &k, content_key(c, 5, (uint64_t)slot, head), 1,
                         problem->mla != 0 && all_positive(c));
        case_make_loud(c, &k, factor);
        case_fill_vector(c, &v, content_key(c, 6, (uint64_t)slot, head), factor, all_positive(c));
        set_shift(c, &k, 1);
        if (c->contents != NULL)
            c->contents->fill_key(c, &k, &v, slot);
        for (uint32_t i = 0; i < c->injection_count; i++) {
            const struct injection *at = &c->injections[i];
            if (at->slot != slot || at->head != head)
                continue;
            if (at->kind == INJECT_K)
                inject_nan(step, &k, at_key, head, at->dim);
            if (at->kind == INJECT_V || at->kind == INJECT_BURIED)
                inject_nan(step, &v, at_key, head, at->dim);
            if (at->kind == INJECT_INFINITE)
                case_put_infinity(&v, at->dim, all_positive(c));
            if (at->kind == INJECT_BURIED)
                set_shift(c, &k, -1);
        }
        place_vector(step, &k, at_key, head, false);
        if (problem->mla == 0)
            place_vector(step, &v, at_key, head, true);
    }
}

void step_fill_keys(struct step *step)
{
    const struct conform_case *c = step->the_case;

    for (uint32_t n = 0; n < step->seqs; n++) {
        if (step->source[n] < 0)
            continue;
        uint32_t source = (uint32_t)step->source[n];
        for (uint32_t j = 0; j < c->sequences[source].kv_len; j++) {
            uint32_t old = case_first_new(c, source);
            struct key_place place = {.is_new = j >= old, .source = source, .index = n};
            int64_t slot = case_slot(c, source, j);
            if (slot < 0 || (c->slots[slot] & SLOT_SEEN) == 0)
                continue;
            if (place.is_new)
                place.token = (int64_t)step->new_row[n] + j - old;
            else
                step_place(step, n, j, &place.page, &place.token);
            fill_slot(step, slot, &place);
        }
    }
    struct guarded *const memories[] = {step->k_memory,
                                        step->v_memory,
                                        step->k_new,
                                        step->v_new,
                                        step->scales[SCALED_K],
                                        step->scales[SCALED_V],
                                        step->scales[SCALED_K_NEW],
                                        step->scales[SCALED_V_NEW]};
    for (uint32_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        if (memories[i] != NULL)
            guarded_protect(memories[i]);
}

/* Puts the scales of q and out of a row where they belong; the vector of q is made apart from its place. */
static struct scaled_vector find_query(struct step *step, uint32_t n, uint32_t i, uint32_t head)
{
    const struct attn_problem *problem = &step->problem;
    uint32_t row = step->first_row[n] + i, group = problem->heads / problem->kv_heads;
    uint32_t own = problem->q_scale == ATTN_SCALES_KV_HEAD ? head / group : head;
    struct scaled_vector q = {.what = SCALED_Q,
                              .dtype = problem->q_dtype,
                              .count = problem->head_dim,
                              .to = vector_room(0, problem->head_dim)};
    struct scale_place place = {.outer = step->source[n], .token = i, .head = own};

    q.scale = case_scale_value(step->the_case, SCALED_Q, &place);
    step_put_scale(step, SCALED_Q, n, row, own, q.scale);
    place.head = head;
    step_put_scale(step, SCALED_OUT, n, row, head, case_scale_value(step->the_case, SCALED_OUT, &place));
    return q;
}

static void inject_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t sequence,
                         uint32_t i, uint32_t head)
{
    for (uint32_t k = 0; k < c->injection_count; k++) {
        const struct injection *at = &c->injections[k];
        if (at->kind == INJECT_Q && at->sequence == sequence && at->token == i && at->head == head)
            case_put_nan(q, at->dim);
    }
}

void step_fill_queries(struct step *step)
{
    const struct conform_case *c = step->the_case;
    const struct attn_problem *problem = &step->problem;

    for (uint32_t n = 0; n < step->seqs; n++) {
        if (step->source[n] < 0)
            continue;
        uint32_t source = (uint32_t)step->source[n];
        for (uint32_t i = 0; i < c->sequences[source].q_len; i++) {
            for (uint32_t head = 0; head < problem->heads; head++) {
                const struct scaled_vector q = find_query(step, n, i, head);
                case_fill_vector(c, &q, content_key(c, 7 + ((uint64_t)source << 8), i, head), c->amplitude,
                                 false);
                case_make_loud(c, &q, 0);
                set_shift(c, &q, c->shift < 0 ? -1 : 1);
                if (c->contents != NULL)
                    c->contents->fill_query(c, &q, i);
                inject_query(c, &q, source, i, head);
                put_query(step, step->first_row[n] + i, head, q.to);
            }
        }
    }
    guarded_protect(step->q_memory);
    if (step->rope_memory != NULL)
        guarded_protect(step->rope_memory);
    for (uint32_t what = 0; what < SCALED; what++)
        if (step->scales[what] != NULL)
            guarded_protect(step->scales[what]);
}
