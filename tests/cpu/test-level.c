/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests which kernels a machine gets, and under which values of ATTN_CPU_FLAGS: a level that is never chosen
 * would pass every other test. A plain program, so that it runs under an emulator too.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "attn/attn.h"

#define PLAIN "paged_attention_c"

#if defined(__aarch64__)
#define BEST      "neon"
#define ALL_FLAGS "neon"
#define FOREIGN   "avx2"
#else
#define BEST      "avx2"
#define ALL_FLAGS "avx2,f16c"
#define FOREIGN   "neon"
#endif

static int failures;

static bool has_best(void)
{
#if defined(__aarch64__)
    return true;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

/* Checks the kernels for a problem with these types of keys and values: one row for all, or two. */
static void check(const char *flags, const char *types, const char *decode, const char *prefill)
{
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;
    struct attn_error err;
    char text[128], variable[128];
    const char *variables[] = {variable};

    ATTN_INIT(&options);
    ATTN_INIT(&err);
    snprintf(text, sizeof text, "heads=8 kv_heads=2 head_dim=64 q=f32 %s", types);
    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", flags);
    options.given = ATTN_GIVEN_LOG;
    options.variables = variables;
    options.variable_count = 1;
    const struct attn_candidate *found = NULL;
    if (attn_context_create(&options, &context, &err) == ATTN_OK &&
        attn_problem_parse(text, &problem, &err) == ATTN_OK &&
        attn_select(context, &problem, 1, NULL, &decision, &err) == ATTN_OK)
        found = attn_decision_get_candidate(decision, 0);
    const char *few = found != NULL && found->kernel_count > 0 ? found->kernels[0].name : "none";
    const char *many =
        found != NULL && found->kernel_count > 0 ? found->kernels[found->kernel_count - 1].name : "none";
    if (strcmp(few, decode) != 0 || strcmp(many, prefill) != 0) {
        printf("%s, %s: %s and %s, not %s and %s %s\n", variable, types, few, many, decode, prefill,
               err.message);
        failures++;
    }
    attn_decision_destroy(decision);
    attn_context_destroy(context);
}

static void check_best(const char *flags)
{
    static const struct {
        const char *types, *decode, *prefill;
    } cases[] = {{"k=f32 v=f32", "paged_decode_f32_" BEST, "paged_prefill_f32_" BEST},
                 {"k=f16 v=f16", "paged_decode_f16_" BEST, "paged_prefill_f16_" BEST},
                 {"k=bf16 v=bf16", "paged_decode_bf16_" BEST, "paged_prefill_bf16_" BEST},
                 {"k=f16 v=bf16", "paged_decode_mixed_" BEST, "paged_prefill_mixed_" BEST}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (has_best())
            check(flags, cases[i].types, cases[i].decode, cases[i].prefill);
        else
            check(flags, cases[i].types, PLAIN, PLAIN);
}

int main(void)
{
    check_best("");
    check_best(ALL_FLAGS);
    check_best("-" FOREIGN);
    check("none", "k=f16", PLAIN, PLAIN);
    check(FOREIGN, "k=f16", PLAIN, PLAIN);
    check("-" BEST, "k=f16", PLAIN, PLAIN);
    printf("%d failures\n", failures);
    return failures != 0;
}
