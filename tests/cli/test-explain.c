/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info explain: winners, refusals, requests by name, fallbacks, and wrong problems. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define PROBLEM "heads=32 kv_heads=8 head_dim=128 q=f16"

static void test_winner(void)
{
    struct result result;

    run(&result, "", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 0 && is_text(&result, "effective", "cpu/flash-attn") &&
              is_text(&result, "device", "cpu:0"),
          &result, "the CPU serves a plain problem");
    check(is_text(&result, "requested", "auto") && is_text(&result, "decided_by", "automatic") &&
              json_is_false(at(&result, "fallback")),
          &result, "nothing was asked for, so nothing was missed");
    check(is_text(&result, "candidates.0.name", "cpu/flash-attn") &&
              json_is_true(at(&result, "candidates.0.accepted")) &&
              json_is_string(at(&result, "candidates.0.kernel")) &&
              json_is_string(at(&result, "candidates.0.kernels.0.name")) &&
              json_is_string(at(&result, "candidates.0.kernels.0.when")) &&
              json_is_string(at(&result, "candidates.0.kernels.0.graph_level")) &&
              json_is_array(at(&result, "candidates.0.reasons")),
          &result, "the winning candidate has kernels and a reasons array");
    result_finish(&result);
    run(&result, "", places.attn_info, "explain --all " PROBLEM);
    check(result.code == 0 && strncmp(result.out, "cpu/flash-attn on cpu:0\n", 24) == 0, &result,
          "the winner stands first");
    check(strstr(result.out, ": accepted\n") != NULL && fits_terminal(result.out), &result,
          "then the candidates, within 80 columns");
    result_finish(&result);
}

static void test_refusal(void)
{
    struct result result;

    run(&result, "", places.attn_info, "--json explain heads=8 head_dim=63 layout=paged-x");
    check(result.code == 1 && json_is_null(at(&result, "effective")) &&
              json_is_false(at(&result, "candidates.0.accepted")) &&
              has_item(&result, "candidates.0.reasons", "code", "HEAD_DIM", NULL),
          &result, "a head dimension that is no multiple of a chunk exits 1 with HEAD_DIM");
    check(json_is_string(at(&result, "candidates.0.reasons.0.text")), &result, "a reason has a text");
    result_finish(&result);
    run(&result, "", places.attn_info, "explain heads=8 head_dim=63 layout=paged-x");
    check(result.code == 1 && strncmp(result.out, "no backend\n", 11) == 0 &&
              strstr(result.out, "HEAD_DIM: ") != NULL,
          &result, "the same as text");
    check(occurrences(result.out, "advice: ") == 1 && strstr(result.err, "attn-info: ") != NULL, &result,
          "with its advice once, and a message on standard error");
    result_finish(&result);
}

static void test_request(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cuda", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 1 && is_text(&result, "requested", "cuda") &&
              is_text(&result, "decided_by", "environment") &&
              is_text(&result, "candidates.0.name", "cuda") &&
              json_is_null(at(&result, "candidates.0.device")) &&
              is_text(&result, "candidates.0.reasons.0.code", "NO_SUCH_BACKEND"),
          &result, "a vendor that is not installed is a candidate with NO_SUCH_BACKEND");
    const char *text = json_string_value(at(&result, "candidates.0.reasons.0.text"));
    check(text != NULL && strstr(text, "no plugin of") != NULL && strstr(text, "installed") != NULL, &result,
          "the text says that no plugin of that vendor is installed");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cuda,auto", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 0 && json_is_true(at(&result, "fallback")) &&
              is_text(&result, "effective", "cpu/flash-attn"),
          &result, "cuda,auto serves, as a fallback");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cuda,auto", places.attn_info, "explain " PROBLEM);
    check(result.code == 0 && strncmp(result.out, "cpu/flash-attn on cpu:0 (fallback)\n", 35) == 0, &result,
          "the text says that it is one");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cuda,auto ATTN_STRICT=1", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 1, &result, "a strict environment turns that into an error");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=flashinferr", places.attn_info, "explain " PROBLEM);
    check(result.code == 1 && strstr(result.out, "'flashinfer'") != NULL, &result,
          "a misspelled name gets the nearest one");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=FLASHINFER", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 0 && is_text(&result, "effective", "cpu/flashinfer") &&
              json_is_false(at(&result, "fallback")),
          &result, "a flavour in capitals is served");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=none", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 1 && json_is_null(at(&result, "effective")), &result, "none has no winner");
    result_finish(&result);
}

static void test_speed(void)
{
    struct result result;

    run(&result, "ATTN_CPU_FLAGS=none", places.attn_info, "explain " PROBLEM " --json");
    check(result.code == 0 && is_text(&result, "candidates.0.kernels.0.speed", "generic") &&
              strstr(result.err, "by the generic kernel paged_attention_c, for all of a batch") != NULL &&
              strstr(result.err, "does not take cpu_flags=none") != NULL,
          &result, "a mask of CPU features leaves the generic kernel, and a warning");
    result_finish(&result);
    run(&result, "ATTN_CPU_FLAGS=none", places.attn_info, "explain heads=8 head_dim=64 q=f32 alibi=key");
    check(result.code == 0 && strstr(result.out, "  paged_attention_c  generic  always") != NULL &&
              strstr(result.err, "'heads=8 head_dim=64 q=f32 alibi=key' by the generic kernel") != NULL,
          &result, "so in words");
    result_finish(&result);
#ifdef __x86_64__
    run(&result, "ATTN_CPU_FLAGS=f16c", places.attn_info, "explain heads=8 head_dim=64 q=f32");
    check(result.code == 0 && strstr(result.out, "  paged_attention_c  generic  always") != NULL &&
              strstr(result.err,
                     "ATTN_CPU_FLAGS: \"f16c\" leaves the generic kernels alone; vector kernels of this "
                     "machine need ") != NULL,
          &result, "a feature that is no level alone says so");
    result_finish(&result);
#endif
    run(&result, "ATTN_STRICT=2 ATTN_CPU_FLAGS=none", places.attn_info,
        "explain heads=8 head_dim=64 q=f32 alibi=key --json");
    check(result.code == 1 && json_is_null(at(&result, "effective")) &&
              is_text(&result, "candidates.0.reasons.0.code", "GENERIC_KERNEL") &&
              strstr(result.err, "closest is cpu/flash-attn on cpu:0: GENERIC_KERNEL") != NULL,
          &result, "which the strictest environment refuses");
    result_finish(&result);
}

static void expect_usage(const char *keys, const char *said)
{
    struct result result;
    char arguments[128];

    snprintf(arguments, sizeof arguments, "explain %s", keys);
    run(&result, "", places.attn_info, arguments);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "\"%s\" exits 2 and speaks of %s", keys, said);
    result_finish(&result);
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_winner();
    test_refusal();
    test_request();
    test_speed();
    expect_usage("heads=8 head_dims=64", "head_dim");
    expect_usage("heads=8 head_dim=64 q=f61", "f16");
    expect_usage("heads=8", "head_dim");
    expect_usage("heads=8 head_dim=64 block", "block");
    expect_usage("heads=8 head_dim=-1", "head_dim");
    expect_usage("heads=8 heads=8 head_dim=64", "heads");
    expect_usage("", "explain");
    return cli_finish();
}
