/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One NaN in place after place of a vector: a kernel that looks for it with the wrong lanes finds most
 * random ones, and loses a few.
 */
#include "conform.h"

#include <stdio.h>

/* A chunk that some tokens of see the key, a draft, and a chunk that all tokens of see 64 keys before and
 * behind it; the last where no LSE is wanted, for kernels that have none. */
static const struct fixed_lengths lengths = {.count = 3, .q_len = {20, 3, 9}, .kv_len = {40, 70, 137}};
static const struct fixed_lengths lengths_lse = {.count = 2, .q_len = {20, 3}, .kv_len = {40, 70}};
static const uint32_t keys[] = {30, 68, 40};

/* A run of few cases takes the first three. */
static const char *const problems[] = {
    "heads=2 kv_heads=1 head_dim=64 q=f32 lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=f16 lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=bf16",
    "heads=2 kv_heads=1 head_dim=64 q=bf16 lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=bf16 kv=e4m3 scales=tensor lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=bf16 kv=e5m2fnuz scales=token-head lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=e4m3 kv=e5m2 q_scale=token-head scales=tensor out=e4m3 "
    "out_scale=tensor lse=1",
    "heads=2 kv_heads=1 head_dim=64 q=e5m2fnuz kv=e4m3fnuz q_scale=unit scales=unit out=e5m2fnuz "
    "out_scale=unit lse=1",
    "heads=8 kv_heads=1 head_dim=128 q=f16 kv=e5m2 scales=tensor lse=1",
    "heads=8 kv_heads=1 head_dim=64 q=bf16 kv=e4m3 scales=token-head lse=1",
    "heads=16 kv_heads=1 head_dim=128 q=e4m3 kv=e4m3 q_scale=unit scales=unit",
    "heads=16 kv_heads=1 head_dim=256 q=e4m3 kv=e4m3 q_scale=unit scales=unit",
    "heads=4 kv_heads=1 head_dim=256 q=bf16 lse=1",
    "heads=4 kv_heads=1 head_dim=512 q=f16 lse=1",
    "heads=4 kv_heads=1 head_dim=512 q=bf16 kv=e4m3 scales=tensor lse=1",
    "heads=2 kv_heads=1 head_dim=64/48 q=f16 mla=1 lse=1",
    "heads=2 kv_heads=1 head_dim=64/48 q=bf16 mla=1 lse=1",
    "heads=2 kv_heads=1 head_dim=64/48 q=bf16 kv=e4m3 scales=token-head mla=1 lse=1",
    "heads=2 kv_heads=1 head_dim=64/48 q=f16 kv=e5m2 scales=tensor mla=1 lse=1"};

static void inject(struct conform_case *c, uint32_t kind, uint32_t dim)
{
    c->injection_count = c->problem.lse != 0 ? lengths_lse.count : lengths.count;
    for (uint32_t n = 0; n < c->injection_count; n++) {
        struct injection *at = &c->injections[n];
        at->kind = kind;
        at->sequence = n;
        at->token = lengths.q_len[n] - 1;
        at->slot = (uint32_t)case_slot(c, n, keys[n]);
        at->head = 0;
        at->dim = dim;
    }
}

/* 1 = right, 0 = refused, -1 = wrong. */
static int run_one(const struct target *target, const struct conform_case *c, const struct layout *layout,
                   char *why, size_t size)
{
    struct attempt attempt = {.backend = target->backend};
    struct reference reference;
    struct step step;

    step_init(&step, c, layout, true);
    int result = step_run(&step, target, &attempt, why, size);
    if (result == 1) {
        if (!step_reference(&reference, &step, 1e9) || !step_judge(&step, &reference, why, size))
            result = -1;
        reference_finish(&reference);
    }
    step_finish(&step);
    return result;
}

static void check_problem(struct target_list *list, const struct target *target, const char *text,
                          const struct run_options *options)
{
    struct conform_case the_case;
    struct attn_problem problem;
    struct layout layout;
    char why[512] = "";
    int result = 1;

    tap_begin(target, "nan", text, options->seed);
    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK) {
        tap_fail("the problem string is none");
        return;
    }
    case_init_fixed(&the_case, &problem, options->seed, problem.lse != 0 ? &lengths_lse : &lengths);
    layout_init(&layout, &the_case, options->seed);
    targets_demand(list, &problem, &layout);
    uint32_t step = options->full ? 1 : 5; /* 13 places: all of 8 lanes, and of 16 all but three */
    uint32_t wide = options->full ? 1 : (problem.head_dim - 1) / 128 * 2 + 1;
    uint32_t last = problem.mla != 0 ? INJECT_K : INJECT_V; /* values of MLA are columns of keys */
    for (uint32_t kind = INJECT_Q; kind <= last; kind++) {
        for (uint32_t dim = 0; result == 1 && dim < problem.head_dim;
             dim += (kind == INJECT_V ? step : 21) * wide) {
            inject(&the_case, kind, dim);
            result = run_one(target, &the_case, &layout, why, sizeof why);
            if (result < 0)
                tap_fail("a NaN in column %u of %s: %s", dim,
                         kind == INJECT_Q   ? "a query"
                         : kind == INJECT_K ? "a key"
                                            : "a value",
                         why);
        }
    }
    case_finish(&the_case);
    if (result == 1)
        tap_pass();
    else if (result == 0)
        tap_skip(why);
}

void check_nan(struct target_list *list, const struct run_options *options)
{
    for (uint32_t t = 0; t < list->count; t++) {
        for (size_t i = 0; i < (options->cases > 0 ? 3 : sizeof problems / sizeof problems[0]); i++)
            if (options_wants(options, problems[i]))
                check_problem(list, &list->targets[t], problems[i], options);
    }
}
