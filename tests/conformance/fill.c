/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contents of a case: numbers in what a row may see, the case's poison everywhere else. */
#include "conform.h"

#include <math.h>

/* Contents depend on the logical place alone, never on the layout. */
static uint64_t content_key(const struct conform_case *c, uint64_t what, uint64_t a, uint64_t b)
{
    return mix(mix(mix(c->seed, what), a), b);
}

/* Few columns can cancel to nearly nothing, which no relative bound survives: keep those positive. */
static bool all_positive(const struct conform_case *c)
{
    return c->problem.head_dim_vo <= 4;
}

/* The last column of q and k adds the shift to the score. It comes last in a sum, so it costs little
 * precision. */
static void set_shift(const struct conform_case *c, uint32_t dtype, unsigned char *vector, double sign)
{
    double value = sqrt(fabs(c->shift) / (double)c->softmax_scale);

    if (c->shift != 0)
        oracle_store(dtype, sign * value, vector + (size_t)(c->problem.head_dim - 1) * oracle_size(dtype));
}

static void put_nan(uint32_t dtype, unsigned char *vector, uint32_t dim)
{
    oracle_store(dtype, (double)NAN, vector + (size_t)dim * oracle_size(dtype));
}

/* Where the vectors of a key lie: in a cache, or in new rows. */
struct key_place {
    bool fresh;
    int64_t page;
    int64_t token;
};

static void fill_slot(const struct step *step, int64_t slot, const struct key_place *at_key)
{
    const struct conform_case *c = step->the_case;
    const struct attn_problem *problem = &step->problem;
    double factor = (c->slots[slot] & SLOT_EDGE) != 0 ? 32 : 1;

    for (uint32_t head = 0; head < problem->kv_heads; head++) {
        unsigned char *k, *v;
        if (at_key->fresh) {
            k = tensor_at(&step->tensors.k_new, (uint32_t)at_key->token, head);
            v = tensor_at(&step->tensors.v_new, (uint32_t)at_key->token, head);
        } else {
            k = key_at(&step->kv, at_key->page, at_key->token, head);
            v = value_at(&step->kv, at_key->page, at_key->token, head);
        }
        fill_vector(problem->k_dtype, k, problem->head_dim, content_key(c, 5, (uint64_t)slot, head), 1,
                    false);
        fill_vector(problem->v_dtype, v, problem->head_dim_vo, content_key(c, 6, (uint64_t)slot, head),
                    factor, all_positive(c));
        set_shift(c, problem->k_dtype, k, 1);
        for (uint32_t i = 0; i < c->injection_count; i++) {
            const struct injection *at = &c->injections[i];
            if (at->slot != slot || at->head != head)
                continue;
            if (at->kind == INJECT_K)
                put_nan(problem->k_dtype, k, at->dim);
            if (at->kind == INJECT_V || at->kind == INJECT_BURIED)
                put_nan(problem->v_dtype, v, at->dim);
            if (at->kind == INJECT_INFINITE)
                oracle_store(problem->v_dtype, -(double)INFINITY,
                             v + (size_t)at->dim * oracle_size(problem->v_dtype));
            if (at->kind == INJECT_BURIED)
                set_shift(c, problem->k_dtype, k, -1);
        }
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
            uint32_t old = case_first_fresh(c, source);
            struct key_place place = {.fresh = j >= old};
            int64_t slot = case_slot(c, source, j);
            if (slot < 0 || (c->slots[slot] & SLOT_SEEN) == 0)
                continue;
            if (place.fresh)
                place.token = (int64_t)step->fresh_row[n] + j - old;
            else
                step_place(step, n, j, &place.page, &place.token);
            fill_slot(step, slot, &place);
        }
    }
    struct guarded *const memories[] = {step->k_memory, step->v_memory, step->k_fresh, step->v_fresh};
    for (uint32_t i = 0; i < 4; i++) {
        if (memories[i] != NULL)
            guarded_protect(memories[i]);
    }
}

static const struct guarded *find_buffer(const struct step *step, const char *name)
{
    for (uint32_t i = 0; i < step->arena.count; i++) {
        if (strcmp(step->arena.buffers[i].name, name) == 0)
            return &step->arena.buffers[i];
    }
    return NULL;
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
                unsigned char *q = tensor_at(&step->tensors.q, step->first_row[n] + i, head);
                fill_vector(problem->q_dtype, q, problem->head_dim,
                            content_key(c, 7 + ((uint64_t)source << 8), i, head), c->amplitude, false);
                set_shift(c, problem->q_dtype, q, c->shift < 0 ? -1 : 1);
            }
        }
        for (uint32_t k = 0; k < c->injection_count; k++) {
            const struct injection *at = &c->injections[k];
            if (at->kind == INJECT_Q && at->sequence == source)
                put_nan(problem->q_dtype,
                        tensor_at(&step->tensors.q, step->first_row[n] + at->token, at->head), at->dim);
        }
    }
    const struct guarded *memory = find_buffer(step, "q");
    if (memory != NULL)
        guarded_protect(memory);
}
