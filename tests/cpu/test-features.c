/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests each feature of the CPU plugin through the library, at both kernel levels, by random cases. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "feature-case.h"

/* The plugin as a program sees it, at one level. */
static struct attn_backend *open_level(const char *flags, struct attn_context **out)
{
    const char *variables[] = {flags};
    struct attn_context_options options;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    ATTN_INIT(&config);
    options.variables = variables;
    options.variable_count = flags != NULL;
    config.threads = 2;
    cr_assert_eq(attn_context_create(&options, out, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_problem_parse("heads=1 head_dim=8 q=bf16", &problem, &err), ATTN_OK);
    cr_assert_eq(attn_select(*out, &problem, 1, NULL, &decision, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_backend_open(*out, decision, &config, &backend, &err), ATTN_OK, "%s", err.message);
    attn_decision_destroy(decision);
    return backend;
}

static struct attn_span make_span(struct feature_case *c, uint64_t size)
{
    struct attn_span span = {{size > 0 ? case_memory(c, size) : NULL, 0}, size};

    return span;
}

static void run_case(struct feature_case *c, struct attn_backend *backend, const char *text)
{
    struct attn_plan *plan = NULL;
    struct attn_plan_sizes sizes;
    struct attn_scratch scratch;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    ATTN_INIT(&scratch);
    cr_assert_eq(attn_plan_create(backend, &c->problem, &plan, &err), ATTN_OK, "%s: %s", text, err.message);
    cr_assert_eq(attn_plan_get_sizes(plan, &sizes, &err), ATTN_OK);
    struct attn_span schedule = make_span(c, sizes.schedule);
    scratch.scratch = make_span(c, sizes.scratch);
    scratch.counters = make_span(c, sizes.counters);
    scratch.counters_dirty = 1;
    cr_assert_eq(attn_plan_prepare(plan, &c->batch, &schedule, NULL, NULL, &err), ATTN_OK, "%s: %s", text,
                 err.message);
    cr_assert_eq(attn_plan_run(plan, &c->batch, &c->tensors, &schedule, &scratch, NULL, &err), ATTN_OK,
                 "%s: %s", text, err.message);
    attn_plan_destroy(plan);
}

/* Distance from a value to the nearest number of an 8-bit type; -128 is never written. */
static double nearest(uint32_t dtype, double value)
{
    double least = INFINITY;

    for (uint32_t code = 0; code < 256; code++) {
        double number = number_of_code(dtype, (uint8_t)code);
        if (isfinite(number) && number > -128.5 + (dtype == ATTN_INT8 ? 1 : -1e6))
            least = fabs(number - value) < least ? fabs(number - value) : least;
    }
    return least;
}

/* Sums are staged: 4e-6 of the largest value is a few roundings. */
static void judge_row(const struct feature_case *c, uint32_t seq, uint32_t i, uint32_t h, const char *text)
{
    const struct attn_problem *p = &c->problem;
    const struct attn_tensors *t = &c->tensors;
    int64_t row = c->q_offsets[seq] + (int64_t)i;
    const float *out = (const float *)(const void *)((const char *)t->out.buffer.data +
                                                     row * t->out.token_stride + h * t->out.head_stride);
    const float *lse = (const float *)(const void *)((const char *)t->lse.buffer.data +
                                                     row * t->lse.token_stride + h * t->lse.head_stride);
    struct reference_row want;

    reference_row(c, seq, i, h, &want);
    cr_assert(want.lse == -INFINITY ? *lse == -INFINITY : fabs((double)*lse - want.lse) < 2e-5,
              "%s: sequence %u row %u head %u: lse %g, not %.9g", text, seq, i, h, (double)*lse, want.lse);
    for (uint32_t d = 0; d < p->head_dim_vo; d++) {
        double got = (double)out[d], room = 4e-6 * want.largest;
        if (attn_dtype_size(p->out_dtype) == 1) {
            double scale = case_scale_at(&t->out_scale, seq, row, h);
            uint8_t code = ((const uint8_t *)out)[d];
            got = scale * number_of_code(p->out_dtype, code);
            room += scale * nearest(p->out_dtype, want.out[d] / scale);
        }
        cr_assert(fabs(got - want.out[d]) < room, "%s: sequence %u row %u head %u column %u: %.9g, not %.9g",
                  text, seq, i, h, d, got, want.out[d]);
    }
}

static void check(uint32_t features, uint32_t cases)
{
    static const char *const levels[] = {NULL, "ATTN_CPU_FLAGS=none"};
    struct feature_case *c = malloc(sizeof *c);
    uint32_t rows = 0;

    cr_assert_not_null(c);
    for (uint32_t level = 0; level < 2; level++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = open_level(levels[level], &context);
        for (uint32_t seed = 1; seed <= cases; seed++) {
            char text[600], problem[512] = "";
            case_begin(c, seed, features);
            attn_problem_format(&c->problem, problem, sizeof problem, NULL, NULL);
            snprintf(text, sizeof text, "%s seed %u: %s", level == 0 ? "all flags" : levels[level], seed,
                     problem);
            run_case(c, backend, text);
            for (uint32_t n = 0; n < CASE_SEQS; n++) {
                for (uint32_t i = 0; i < (uint32_t)(c->q_offsets[n + 1] - c->q_offsets[n]); i++)
                    for (uint32_t h = 0; h < c->problem.heads; h++, rows++)
                        judge_row(c, n, i, h, text);
            }
            case_end(c);
        }
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    cr_assert(rows > cases, "only %u rows were judged", rows);
    free(c);
}

Test(features, none)
{
    check(0, 100);
}

Test(features, sinks)
{
    check(WITH_SINKS, 100);
}

Test(features, alibi)
{
    check(WITH_ALIBI, 100);
    check(WITH_ALIBI | WITH_SINKS, 25);
}

Test(features, new_keys_alone)
{
    check(WITH_NEW, 100);
    check(WITH_NEW | WITH_SINKS | WITH_ALIBI, 25);
}

Test(features, new_keys_beside_a_cache)
{
    check(WITH_CACHE_NEW, 100);
    check(WITH_CACHE_NEW | WITH_SINKS | WITH_ALIBI, 25);
}

Test(features, masks)
{
    check(WITH_MASK, 100);
    check(WITH_MASK | WITH_SINKS | WITH_ALIBI, 50);
    check(WITH_MASK | WITH_CACHE_NEW | WITH_ALIBI, 40);
}

Test(features, scales_8bit)
{
    check(WITH_8_BITS, 150);
    check(WITH_8_BITS | WITH_NEW | WITH_SINKS, 40);
    check(WITH_8_BITS | WITH_CACHE_NEW | WITH_MASK | WITH_ALIBI, 40);
}
