/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench: rows and their numbers, and wrong keys. Times themselves are not judged. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* A number above zero. */
static bool is_positive(const struct result *result, const char *path)
{
    return json_is_number(at(result, path)) && json_number_value(at(result, path)) > 0;
}

static void test_host_costs(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cuda ATTN_DISABLE=*", places.attn_bench, "dispatch --json reps=5");
    check(result.code == 0 && is_text(&result, "rows.0.name", "dispatch_noop") &&
              is_text(&result, "command", "dispatch") &&
              is_text(&result, "rows.0.backend", "noop/flash-attn") &&
              is_positive(&result, "rows.0.us.median"),
          &result, "dispatch measures the no-op plugin whatever the environment says");
    check(json_is_null(at(&result, "rows.0.error")) && json_is_null(at(&result, "rows.0.gbps")), &result,
          "nothing is computed, so there is no error and no bandwidth");
    result_finish(&result);
    run(&result, "", places.attn_bench, "load --json reps=5");
    check(result.code == 0 && is_text(&result, "rows.0.name", "load_10_files") &&
              is_positive(&result, "rows.0.us.min") && is_positive(&result, "rows.0.us.median") &&
              is_positive(&result, "rows.0.us.max"),
          &result, "load measures ten files");
    result_finish(&result);
    run(&result, "", places.attn_bench, "load reps=3");
    check(result.code == 0 && strncmp(result.out, "load\ncase ", 10) == 0 &&
              strstr(result.out, "\n10_files  ") != NULL,
          &result, "load as text");
    result_finish(&result);
}

static void test_attention(const char *arguments, const char *batch, double error)
{
    static const char *const positive[] = {
        "rows.0.us.median",      "rows.0.gbps",    "rows.0.tflops",  "rows.0.ceiling_gbps",
        "rows.0.ceiling_tflops", "rows.0.roof_us", "rows.0.balance", "rows.0.roof_ratio",
    };
    struct result result;
    char text[256];

    snprintf(text, sizeof text, "--json %s threads=1 reps=3 cold=16", arguments);
    run(&result, "ATTN_BACKEND=cpu", places.attn_bench, text);
    check(result.code == 0 && json_array_size(at(&result, "rows")) == 1 &&
              json_is_string(at(&result, "rows.0.backend")) && json_is_string(at(&result, "rows.0.kernel")) &&
              json_is_string(at(&result, "rows.0.problem")) &&
              json_integer_value(at(&result, "rows.0.rounds")) == 3,
          &result, "%s: one row", arguments);
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        check(is_positive(&result, positive[i]), &result, "%s: %s is a number", arguments, positive[i]);
    check(is_positive(&result, "rows.0.error") && json_number_value(at(&result, "rows.0.error")) < error,
          &result, "%s: the error is below %g", arguments, error);
    check(json_number_value(at(&result, "rows.0.balance")) <= 1, &result, "%s: balance is at most 1",
          arguments);
    check(is_text(&result, "rows.0.batch", batch), &result, "%s: the batch is %s", arguments, batch);
    result_finish(&result);
}

static double number_at(const struct result *result, const char *path)
{
    return json_number_value(at(result, path));
}

/* Bytes and operations of a batch are known by hand; both are there as rate times time, each of six digits.
 */
static void test_counts(const char *arguments, double bytes, double flops)
{
    struct result result;
    char text[256];

    snprintf(text, sizeof text, "--json %s threads=1 reps=3 cold=16", arguments);
    run(&result, "ATTN_BACKEND=cpu", places.attn_bench, text);
    double us = number_at(&result, "rows.0.us.median");
    check(fabs(number_at(&result, "rows.0.gbps") * us * 1e3 / bytes - 1) < 1e-4, &result, "%s: %.0f bytes",
          arguments, bytes);
    check(fabs(number_at(&result, "rows.0.tflops") * us * 1e6 / flops - 1) < 1e-4, &result,
          "%s: %.0f operations", arguments, flops);
    result_finish(&result);
}

/* Several modes make one document, which says what it was measured on. */
static void test_list(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cpu ATTN_THREADS=1", places.attn_bench,
        "decode,prefill,mixed --json heads=4 head_dim=64 q=bf16 seqs=2 ctx=40 layers=1 reps=3 cold=16");
    check(result.code == 0 && json_array_size(at(&result, "rows")) == 3 &&
              is_text(&result, "command", "decode,prefill,mixed") &&
              is_text(&result, "rows.0.mode", "decode") && is_text(&result, "rows.1.mode", "prefill") &&
              is_text(&result, "rows.2.mode", "mixed"),
          &result, "a list of modes makes one document");
    check(number_at(&result, "machine.cpus") >= 1 && json_is_array(at(&result, "machine.caches")) &&
              number_at(&result, "rows.0.threads") == 1,
          &result, "the document tells the machine and the threads");
    result_finish(&result);
}

static void expect_usage(const char *arguments, const char *said)
{
    struct result result;

    run(&result, "", places.attn_bench, arguments);
    check(result.code == 2 && result.out[0] == '\0' && strstr(result.err, said) != NULL, &result,
          "\"%s\" exits 2 and speaks of %s", arguments, said);
    result_finish(&result);
}

static void test_failures(void)
{
    struct result result;

    run(&result, "ATTN_BACKEND=cuda", places.attn_bench, "decode --json heads=4 head_dim=64 q=bf16 reps=1");
    check(result.code == 1 && result.json != NULL && json_array_size(at(&result, "rows")) == 0 &&
              strstr(result.err, "cuda") != NULL,
          &result, "a backend that is not there is a failure with a message");
    result_finish(&result);
    run(&result, "ATTN_BACKEND=cuda", places.attn_bench, "decode,prefill reps=1");
    check(result.code == 1 && result.out[0] == '\0' && occurrences(result.err, "no backend serves") == 1 &&
              strstr(result.err, "attn-info") != NULL,
          &result, "what keeps all cases from running is said once, and where to look");
    result_finish(&result);
    run(&result, "", places.attn_bench, "--help");
    check(result.code == 0 && strstr(result.out, "dispatch") != NULL && strstr(result.out, "--json") != NULL,
          &result, "--help prints to standard output");
    result_finish(&result);
}

static void test_cases(void)
{
    test_attention("decode heads=8 kv_heads=2 head_dim=64 q=f32 seqs=2 ctx=300 layers=2", "2x1/300", 3e-6);
    test_attention("decode heads=8 kv_heads=2 head_dim=64 q=f16 seqs=2 ctx=300 layers=2 addr=csr index=i64",
                   "2x1/300", 1e-3);
    test_attention("decode heads=8 kv_heads=2 head_dim=64 q=f32 skew=900:3x50 layers=2", "1x1/900 3x1/50",
                   3e-6);
    test_attention("prefill heads=4 kv_heads=4 head_dim=64 q=f32 q_len=70 ctx=130 window=50 addr=dense",
                   "1x70/130", 3e-6);
    test_attention("prefill heads=4 kv_heads=4 head_dim=64 q=f32 skew=200:2x30", "1x200/200 2x30/30", 3e-6);
    test_attention("mixed heads=8 kv_heads=2 head_dim=64 q=f32 layers=2", "2x64/2048 14x1/2048", 3e-6);
    test_attention("mixed heads=8 kv_heads=2 head_dim=64 q=f32 seqs=2 ctx=30 layers=2", "1x30/30 1x1/30",
                   3e-6);
    test_attention("mixed heads=4 kv_heads=2 head_dim=64 q=f32 q_len=9 skew=300:16x33 addr=csr layers=2",
                   "1x9/300 1x9/33 15x1/33", 3e-6);
    test_attention("mixed heads=4 kv_heads=2 head_dim=64 q=f32 q_len=9 skew=20:3x333 addr=dense layers=2",
                   "1x9/20 3x1/333", 3e-6);
    test_attention(
        "decode heads=8 kv_heads=2 head_dim=64 q=f32 kv=int8 scales=token-head seqs=2 ctx=300 layers=2",
        "2x1/300", 3e-6);
    test_attention("decode heads=8 kv_heads=2 head_dim=64 q=f32 k=e4m3 v=e4m3 k_scale=head v_scale=tensor "
                   "seqs=3 ctx=77 layers=2 addr=csr",
                   "3x1/77", 3e-6);
    test_attention(
        "mixed heads=8 kv_heads=2 head_dim=64 q=e5m2 q_scale=kv-head out=f32 kv=f32 seqs=2 ctx=40 layers=2",
        "1x40/40 1x1/40", 3e-6);
    test_attention(
        "prefill heads=8 kv_heads=2 head_dim=64 q=int8 q_scale=token-head kv=f32 out=e4m3 out_scale=head "
        "ctx=50",
        "1x50/50", 0.05);
    test_attention("decode heads=8 head_dim=96/64 mla=1 q=f32 kv=int8 scales=token-head ctx=90 layers=2",
                   "8x1/90", 3e-6);
    test_attention(
        "prefill heads=8 kv_heads=2 head_dim=64 q=f32 layout=paged-x kv=int8 scales=token-head ctx=50",
        "1x50/50", 3e-6);
    test_attention("prefill heads=8 kv_heads=2 head_dim=64 q=f32 cp=1 q_len=40 ctx=75 window=60", "1x40/75",
                   3e-6);
    test_attention("prefill heads=8 kv_heads=2 head_dim=64 q=f32 mask=bits q_len=40 ctx=75 window=20",
                   "1x40/75", 3e-6);
    test_attention("decode heads=4 head_dim=64 q=f32 mask=f16 span=full alibi=mask ctx=75 layers=2", "8x1/75",
                   3e-6);
    test_attention("decode heads=4 head_dim=64 q=f32 sinks=1 alibi=distance ctx=75 layers=2", "8x1/75", 3e-6);
}

static void test_all_counts(void)
{
    /* 20 keys of 2 heads, k and v of 64 codes and a scale. */
    test_counts(
        "decode heads=4 kv_heads=2 head_dim=64 q=f32 kv=int8 scales=token-head seqs=2 ctx=10 layers=1",
        20 * 2 * 2 * (64 + 4), 20.0 * 4 * 4 * 64);
    /* 2 rows of a mask with 5 columns; they see 4 and 5 keys. */
    test_counts("prefill heads=4 kv_heads=2 head_dim=64 q=f32 mask=f32 span=full q_len=2 ctx=5",
                5 * 2 * 2 * 64 * 4 + 2 * 4 * 2 * 64 * 4 + 2 * 5 * 4, 9.0 * 4 * 4 * 64);
    /* 20 MLA keys of 96 f32, of which the first 64 are values. */
    test_counts("decode heads=4 head_dim=96/64 mla=1 q=f32 seqs=2 ctx=10 layers=1", 20 * 96 * 4,
                20.0 * 4 * 2 * (96 + 64));
    /* 6 of 10 keys are here, 0 to 3 and 8 to 9; queries stand at 7, 8 and 9 and see 4, 5 and 6 of them. */
    test_counts("prefill heads=4 kv_heads=2 head_dim=64 q=f32 cp=1 block=4 seqs=1 q_len=3 ctx=6",
                6 * 2 * 2 * 64 * 4 + 3 * 4 * 2 * 64 * 4, 15.0 * 4 * 4 * 64);
    /* 10 + 4 keys of 2 heads, k and v of 64 f32; 3 + 1 rows of 4 heads, q and out. 8 + 9 + 10 + 4 pairs. */
    test_counts("mixed heads=4 kv_heads=2 head_dim=64 q=f32 q_len=3 skew=10:1x4 layers=1",
                14 * 2 * 2 * 64 * 4 + 4 * 4 * 2 * 64 * 4, 31.0 * 4 * 4 * 64);
    test_counts("decode heads=4 kv_heads=2 head_dim=64 q=f32 skew=10:2x4 layers=1", 18 * 2 * 2 * 64 * 4,
                18.0 * 4 * 4 * 64);
}

static void test_usage(void)
{
    expect_usage("", "mode");
    expect_usage("decod", "decode");
    expect_usage("decode ctxx=3", "ctx");
    expect_usage("decode head_dims=3", "head_dim");
    expect_usage("decode seqs=0", "seqs");
    expect_usage("decode seqs=2 seqs=2", "seqs");
    expect_usage("decode ctx=many", "ctx");
    expect_usage("decode ctx=4 q_len=5", "q_len");
    expect_usage("mixed seqs=1", "seqs=1");
    expect_usage("mixed skew=100:4x10 q_len=11 seqs=3", "leave out seqs");
    expect_usage("mixed skew=10:4x100 q_len=11", "q_len=11");
    expect_usage("decode skew=100", "LONG:COUNTxSHORT");
    expect_usage("decode skew=100:0x3", "LONG:COUNTxSHORT");
    expect_usage("decode skew=100:3x4x", "LONG:COUNTxSHORT");
    expect_usage("decode skew=-1:3x4", "LONG:COUNTxSHORT");
    expect_usage("decode skew=9:3x4 skew=9:3x4", "twice");
    expect_usage("decode skew=268435456:1048575x1", "too many");
    expect_usage("dispatch skew=9:3x4", "skew");
    expect_usage("mixd", "mixed");
    expect_usage("decode,mixd", "mixed");
    expect_usage("decode,decode", "twice");
    expect_usage("decode,dispatch seqs=3", "seqs");
    expect_usage("compare,decode", "compare cannot");
    expect_usage("decode,compare", "compare cannot");
    expect_usage("decode heads=4 head_dim=64 q=bf16 mask=bit", "mask");
    expect_usage("decode heads=4 head_dim=64 q=bf16 positions=1", "positions");
    expect_usage("decode heads=4 head_dim=64 q=bf16 kv=int8", "k_scale");
    expect_usage("decode heads=4 head_dim=64 q=bf16 kv=int8 scales=tokens", "scales");
    expect_usage("decode heads=4 head_dim=64 q=bf16 kv_source=new", "kv_source");
    expect_usage("decode heads=4", "head_dim");
    expect_usage("load ctx=4", "reps");
    expect_usage("dispatch --json nothing",
                 "argument \"nothing\" is no KEY=VALUE; mode dispatch accepts reps");
}

int main(int argc, char **argv)
{
    cli_init(argc, argv);
    test_host_costs();
    test_cases();
    test_all_counts();
    test_list();
    test_usage();
    test_failures();
    return cli_finish();
}
