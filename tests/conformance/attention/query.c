/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Honesty: what a query says, a plan does, and a refusal names the key; cache shapes hold what they claim. */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>

#include "need.h"

/* Problems outside of what the random cases cover, with the reason that a refusal gives. */
static const struct {
    const char *problem;
    uint32_t reason;
} uncovered[] = {
    {"heads=8 head_dim=60 q=f16 layout=paged-x", ATTN_REASON_HEAD_DIM},
    {"heads=8 head_dim=63 q=f32 layout=paged-x", ATTN_REASON_HEAD_DIM},
};

enum { MOST_REASONS = 64 };

static bool names_reason(const struct attn_query *query, uint32_t reason)
{
    for (uint32_t i = 0; i < query->reason_count && i < query->reason_capacity; i++)
        if (query->reasons[i].code == reason)
            return true;
    return false;
}

/*
 * A refusal: both calls say it, with the reason that names the key. Who does not serve the layout at all need
 * not know what it asks of other keys.
 */
static void check_refusal(const struct target *target, struct attn_problem *problem, uint32_t reason,
                          const struct attn_query *query)
{
    struct attn_plan *plan = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    problem->max_seqs = problem->max_q = problem->max_kv = problem->max_rows = 4;
    int32_t status = attn_plan_create(target->backend, problem, &plan, &err);
    attn_plan_destroy(plan);
    if (query->accepted != 0)
        tap_fail("accepted, but no case covers it: nothing judges it");
    else if (status != ATTN_E_UNSUPPORTED)
        tap_fail("the query refuses, but plan_create says %s", attn_status_name(status));
    else if (!names_reason(query, reason) && !names_reason(query, ATTN_REASON_LAYOUT))
        tap_fail("no reason %s among %u; the first is %s %s", attn_reason_name(reason), query->reason_count,
                 attn_reason_name(query->reasons[0].code), query->reasons[0].text);
    else if (err.reason != query->reasons[0].code)
        tap_fail("plan_create fails with reason %s, the query's first is %s", attn_reason_name(err.reason),
                 attn_reason_name(query->reasons[0].code));
    else
        tap_pass();
}

static void check_uncovered(const struct target *target, const struct run_options *options)
{
    struct attn_reason *reasons = need(calloc(MOST_REASONS, sizeof *reasons));

    for (size_t i = 0; i < sizeof uncovered / sizeof uncovered[0]; i++) {
        struct attn_problem problem;
        struct attn_query query;
        struct attn_error err;
        const char *key;
        if (!options_wants(options, uncovered[i].problem))
            continue;
        ATTN_INIT(&err);
        ATTN_INIT(&query);
        query.reasons = reasons;
        query.reason_capacity = MOST_REASONS;
        tap_begin(target, "query", uncovered[i].problem, 0);
        if (attn_problem_parse(uncovered[i].problem, &problem, &err) != ATTN_OK)
            tap_fail("%s", err.message);
        else if (problem_covered(&problem, &key))
            tap_fail("this problem belongs to the random cases");
        else if (attn_context_query(target->context, target->name, &target->device, &problem, &query, &err) !=
                 ATTN_OK)
            tap_fail("query failed: %s", err.message);
        else
            check_refusal(target, &problem, uncovered[i].reason, &query);
    }
    free(reasons);
}

/* Random problems: the answer with and without a device, and the plan, agree. */
static void check_agreement(const struct target *target, const struct attn_problem *problem, uint64_t seed)
{
    struct attn_problem sized = *problem;
    struct attn_plan *plan = NULL;
    char text[PROBLEM_TEXT], why[512] = "", without[512] = "";
    struct attn_query query;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&query);
    attn_problem_format(problem, text, sizeof text, NULL, NULL);
    tap_begin(target, "query", text, seed);
    sized.max_seqs = sized.max_q = sized.max_kv = sized.max_rows = 64;
    bool accepted = target_accepts(target, problem, NULL, why, sizeof why);
    bool accepted_sized = target_accepts(target, &sized, NULL, without, sizeof without);
    int32_t status = attn_plan_create(target->backend, &sized, &plan, &err);
    attn_plan_destroy(plan);
    if (accepted_sized && !accepted)
        tap_fail("accepted with maxima, refused without: %s", why);
    else if (accepted_sized != (status == ATTN_OK))
        tap_fail("the query %s, plan_create says %s %s", accepted_sized ? "accepts" : "refuses",
                 attn_status_name(status), err.message);
    else if (attn_context_query(target->context, target->name, NULL, problem, &query, &err) != ATTN_OK)
        tap_fail("query without a device failed: %s", err.message);
    else if (accepted && query.accepted == 0)
        tap_fail("refused without a device, accepted on one");
    else
        tap_pass();
}

/* Marks the bytes of a vector; false if one lies outside or is taken already. */
static bool claim(unsigned char *taken, uint64_t bytes, int64_t at, uint64_t size)
{
    if (at < 0 || (uint64_t)at + size > bytes)
        return false;
    for (uint64_t i = 0; i < size; i++)
        if (taken[at + (int64_t)i]++ != 0)
            return false;
    return true;
}

/* One vector, element by element: they may lie in chunks. */
static bool claim_vector(const struct attn_kv_desc *kv, bool values, const uint32_t place[3],
                         unsigned char *taken, uint64_t bytes)
{
    uint32_t dim = values ? kv->head_dim_vo : kv->head_dim;
    uint32_t size = attn_dtype_size(values ? kv->v_dtype : kv->k_dtype);

    for (uint32_t d = 0; d < dim; d++) {
        const unsigned char *at = values ? value_element(kv, place[0], place[1], place[2], d)
                                         : key_element(kv, place[0], place[1], place[2], d);
        if (!claim(taken, bytes, at - taken, size))
            return false;
    }
    return true;
}

/* `kv` is the shape's description of a cache that begins at `taken`. */
static bool shape_is_sound(const struct attn_kv_desc *kv, unsigned char *taken, uint64_t bytes)
{
    for (uint32_t page = 0; page < kv->pages; page++) {
        for (uint32_t token = 0; token < kv->block; token++) {
            for (uint32_t head = 0; head < kv->kv_heads; head++) {
                const uint32_t place[3] = {page, token, head};
                if (!claim_vector(kv, false, place, taken, bytes) ||
                    (kv->v.data != NULL && !claim_vector(kv, true, place, taken, bytes)))
                    return false;
            }
        }
    }
    return true;
}

/* Whether a description is of a cache of the problem. */
static bool is_of_problem(const struct attn_kv_desc *kv, const struct attn_problem *problem, uint32_t pages)
{
    uint32_t layout = kv->layout != 0 ? kv->layout : (uint32_t)ATTN_STRIDED;

    return kv->pages == pages && kv->kv_heads == problem->kv_heads && kv->head_dim == problem->head_dim &&
           kv->k_dtype == problem->k_dtype && layout == problem->layout &&
           (kv->v.data == NULL) == (problem->mla != 0);
}

/* The scale that a cache of a problem has, in an array as large as the shape says; NULL if it is too small.
 */
static float *make_scale(const struct attn_kv_shape *shape, uint32_t granularity, struct attn_scale *out)
{
    const struct attn_kv_desc *kv = &shape->desc;
    uint64_t row = sizeof(float) * (uint64_t)kv->kv_heads, bytes = row;

    if (granularity == ATTN_SCALES_TOKEN_HEAD) {
        bytes = shape->scale_bytes;
        if (bytes < row * kv->block * kv->pages)
            return NULL;
        out->outer_stride = (int64_t)(row * kv->block);
        out->token_stride = (int64_t)row;
    }
    float *values = need(calloc(bytes + 1, 1));
    if (granularity <= ATTN_SCALES_NONE)
        return values;
    out->kind = granularity == ATTN_SCALES_UNIT ? ATTN_SCALE_UNIT : ATTN_SCALE_DEVICE;
    out->granularity = granularity;
    if (granularity == ATTN_SCALES_UNIT)
        return values;
    out->buffer.data = values;
    out->head_stride = granularity == ATTN_SCALES_TENSOR ? 0 : sizeof(float);
    return values;
}

static void check_shape(const struct target *target, const struct attn_problem *problem, uint64_t seed)
{
    char text[PROBLEM_TEXT], why[512] = "";
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_kv *kv = NULL;
    struct attn_error err;
    const uint32_t pages = 5;

    ATTN_INIT(&shape);
    ATTN_INIT(&err);
    attn_problem_format(problem, text, sizeof text, NULL, NULL);
    tap_begin(target, "query", text, seed);
    if (!target_accepts(target, problem, NULL, why, sizeof why)) {
        tap_skip(why);
        return;
    }
    if (attn_kv_get_shape(target->backend, problem, pages, &shape, &err) != ATTN_OK) {
        tap_fail("kv_get_shape: %s", err.message);
        return;
    }
    unsigned char *memory = need(calloc(shape.bytes + 1, 1));
    struct attn_buffer buffer = {memory, 0};
    attn_kv_desc_init(&desc, &shape, &buffer);
    bool sound = is_of_problem(&desc, problem, pages) && shape_is_sound(&desc, memory, shape.bytes);
    float *k_scale = make_scale(&shape, problem->k_scale, &desc.k_scale);
    float *v_scale = make_scale(&shape, problem->v_scale, &desc.v_scale);
    if (k_scale == NULL || v_scale == NULL)
        tap_fail("cache shape: %llu bytes of scales do not hold one for every page, token and head",
                 (unsigned long long)shape.scale_bytes);
    else if (!sound)
        tap_fail("cache shape: it is of another cache, a key or value lies outside of it, or two overlap");
    else if (attn_kv_create(target->backend, &desc, &kv, &err) != ATTN_OK)
        tap_fail("kv_create refuses the backend's own shape: %s (%s)", err.message, err.field);
    else
        tap_pass();
    attn_kv_destroy(kv);
    free(k_scale);
    free(v_scale);
    free(memory);
}

void check_query(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 40, 400);

    for (uint32_t t = 0; t < list->count; t++) {
        check_uncovered(&list->targets[t], options);
        for (uint32_t n = 0; n < cases; n++) {
            struct attn_problem problem;
            uint64_t seed;
            if (!options_mine(options, n) || !options_problem(options, n, 300, &problem, &seed))
                continue;
            check_agreement(&list->targets[t], &problem, seed);
            check_shape(&list->targets[t], &problem, seed);
        }
    }
}
