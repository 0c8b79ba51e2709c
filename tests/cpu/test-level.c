/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests which kernels a machine gets, and under which values of ATTN_CPU_FLAGS: a level that is never chosen
 * would pass every other test. A plain program, so that it runs under an emulator too.
 *
 * usage: test-level [LEVEL]: the best one of the machine, where that is known
 */
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "attn/attn.h"

#define PLAIN "paged_attention_c"

#if defined(__aarch64__)
#define FOREIGN "avx2"
#else
#define FOREIGN "neon"
#endif

/* The levels of this architecture, best first, and the words of ATTN_CPU_FLAGS that allow each and no better
 * one; tiles are beside vectors of AVX-512. */
static const struct {
    const char *name, *flags;
} levels[] = {
#if defined(__aarch64__)
    {"sve512", "sve512"},
    {"sve256", "sve256"},
    {"neon", "neon"},
#else
    {"amx", "avx512,amx"},
    {"avx512", "avx512"},
    {"avx2", "avx2,f16c"},
#endif
};

static int failures;

#if defined(__aarch64__)
/* Bits of a vector of SVE as the processor tells them, where the plugin asks the system; 0 without SVE. */
static unsigned long sve_bits(void)
{
    unsigned long bytes = 0;
    if ((getauxval(AT_HWCAP) & HWCAP_SVE) != 0)
        __asm__(".arch_extension sve\n\trdvl %0, #1" : "=r"(bytes));
    return bytes * 8;
}
#endif

static bool has(const char *level)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (strcmp(level, "amx") == 0) /* tiles and bf16, and AVX-512 BF16 */
        return has("avx512") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 5) == 5 &&
               __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
    if (strcmp(level, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
    if (strcmp(level, "sve512") == 0)
        return sve_bits() == 512;
    if (strcmp(level, "sve256") == 0)
        return sve_bits() == 256;
    return strcmp(level, "neon") == 0;
#else
    (void)level;
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
    snprintf(text, sizeof text, "heads=8 kv_heads=2 head_dim=64 %s%s",
             strstr(types, "q_scale") != NULL ? "q=int8 "
             : strncmp(types, "q=", 2) == 0   ? ""
                                              : "q=f32 ",
             types);
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

/* Every combination of types has the kernels of `level`; NULL: the plain ones. */
static void check_level(const char *flags, const char *level)
{
    static const struct {
        const char *keys, *name;
    } cases[] = {{"kv=f32", "f32"},
                 {"kv=f16", "f16"},
                 {"kv=bf16", "bf16"},
                 {"kv=int8 scales=unit", "int8"},
                 {"kv=e4m3 scales=unit", "e4m3"},
                 {"kv=e5m2 scales=unit", "e5m2"},
                 {"k=f16 v=bf16", "mixed"},
                 {"kv=e4m3fnuz scales=unit", "mixed"}};
    char decode[64] = PLAIN, prefill[64] = PLAIN;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (level != NULL) {
            snprintf(decode, sizeof decode, "paged_decode_%s_%s", cases[i].name, level);
            snprintf(prefill, sizeof prefill, "paged_prefill_%s_%s", cases[i].name, level);
        }
        check(flags, cases[i].keys, decode, prefill);
    }
}

/* Queries and keys of int8: products of integers, for decode, where the level `integers` has them. */
static void check_integers(const char *flags, const char *integers, const char *level)
{
    char decode[64], prefill[64];

    snprintf(decode, sizeof decode, "paged_decode_int8_%s%s", integers != NULL ? "integer_" : "",
             integers != NULL ? integers : level);
    snprintf(prefill, sizeof prefill, "paged_prefill_int8_%s", level);
    check(flags, "q_scale=unit kv=int8 scales=unit", decode, prefill);
    snprintf(decode, sizeof decode, "paged_decode_int8_%s", level);
    check(flags, "q_scale=unit kv=int8 scales=unit layout=paged-x", decode, prefill);
}

/* The best level that the machine has, without those before `first`; NULL: none. */
static const char *best_level(size_t first)
{
    for (size_t i = first; i < sizeof levels / sizeof levels[0]; i++)
        if (has(levels[i].name))
            return levels[i].name;
    return NULL;
}

/* The best level that the machine has of those that the flags of level `first` name; NULL: none. */
static const char *named_level(size_t first)
{
    for (size_t i = first; i < sizeof levels / sizeof levels[0]; i++)
        if (has(levels[i].name) && strstr(levels[first].flags, levels[i].name) != NULL)
            return levels[i].name;
    return NULL;
}

#if defined(__x86_64__)
/* Queries, keys, values and results of bf16: prefill whose weights are rounded, where level `rounded` has it.
 */
static void check_rounded(const char *flags, const char *rounded, const char *level)
{
    char decode[64], prefill[64];

    snprintf(decode, sizeof decode, "paged_decode_bf16_%s", level);
    snprintf(prefill, sizeof prefill, "paged_prefill_bf16_%s%s", rounded != NULL ? "rounded_" : "",
             rounded != NULL ? rounded : level);
    check(flags, "q=bf16", decode, prefill);
    snprintf(prefill, sizeof prefill, "paged_prefill_bf16_%s", level);
    check(flags, "q=bf16 lse=1", decode, prefill);
}
#endif

int main(int argc, char **argv)
{
    const char *best = best_level(0);
    char removed[64] = "";

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        check_level(levels[i].flags, named_level(i));
        if (i > 0)
            check_level(removed + 1, best_level(i));
        snprintf(removed + strlen(removed), sizeof removed - strlen(removed), ",-%s", levels[i].name);
    }
    if (argc > 1 && (best == NULL || strcmp(best, argv[1]) != 0)) {
        printf("the best level is %s, not %s\n", best != NULL ? best : "none", argv[1]);
        failures++;
    }
#if defined(__x86_64__)
    if (has("amx"))
        check_integers("", "amx", "amx");
    if (has("avx512"))
        check_integers("avx512", NULL, "avx512");
    if (has("avx512") && __builtin_cpu_supports("avx512vnni"))
        check_integers("avx512,vnni", "avx512vnni", "avx512");
    if (has("amx"))
        check_rounded("", "amx", "amx");
    if (has("avx512"))
        check_rounded("avx512", NULL, "avx512");
    if (has("avx512") && __builtin_cpu_supports("avx512bf16"))
        check_rounded("avx512,bf16", "avx512bf16", "avx512");
    if (has("avx2"))
        check_integers("avx2,fma,f16c", "avx2", "avx2");
#endif
#if defined(__aarch64__)
    check_integers("neon", "neon", "neon");
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0)
        check_integers("neon,dotprod", "neondot", "neon");
#endif
    check_level("", best);
    check_level("-" FOREIGN, best);
    check_level("none", NULL);
    check_level(FOREIGN, NULL);
    check_level(removed + 1, NULL);
    printf("%d failures\n", failures);
    return failures != 0;
}
