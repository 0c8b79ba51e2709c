/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The cases of attn-bench decode, prefill and mixed: from keys, or the default ones. */
#include "bench-cases.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In mixed one sequence of so many brings a prefill chunk. */
enum { SEQS_OF_A_CHUNK = 8 };

/* What runs without keys; attn-bench(1) has the same table. */
static const struct default_case {
    const char *mode;
    const char *name;
    const char *problem;
    uint32_t seqs, ctx, q_len;
    struct bench_skew skew;
} default_cases[] = {
    {"decode", "decode_f16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f16", 8, 2048, 1, {0}},
    {"decode", "decode_f16_gqa4_d128_8192", "heads=32 kv_heads=8 head_dim=128 q=f16", 4, 8192, 1, {0}},
    {"decode", "decode_f32_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f32", 8, 2048, 1, {0}},
    {"decode", "decode_bf16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=bf16", 8, 2048, 1, {0}},
    {"decode", "decode_f16_gqa4_d64_2048", "heads=32 kv_heads=8 head_dim=64 q=f16", 8, 2048, 1, {0}},
    {"prefill", "prefill_f16_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=f16", 1, 512, 512, {0}},
    {"prefill", "prefill_f16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f16", 1, 2048, 2048, {0}},
    {"prefill", "prefill_f32_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=f32", 1, 512, 512, {0}},
    {"prefill", "prefill_bf16_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=bf16", 1, 512, 512, {0}},
    {"cp", "cp", "heads=32 kv_heads=8 head_dim=128 q=bf16", 8, 4096, 1, {0}},
    {"mixed", "mixed_f16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f16", 16, 2048, 64, {0}},
    {"mixed", "mixed_f32_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f32", 16, 2048, 64, {0}},
    {"mixed", "mixed_bf16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=bf16", 16, 2048, 64, {0}},
    {"mixed",
     "mixed_f16_gqa4_d128_skew",
     "heads=32 kv_heads=8 head_dim=128 q=f16",
     0,
     0,
     64,
     {16384, 15, 1024}},
};
enum { DEFAULT_CASES = sizeof default_cases / sizeof *default_cases };
_Static_assert((int)DEFAULT_CASES <= (int)CASES_MOST, "a mode's cases fit a list");

/* ---------------------------------------------------------------- which problems can be measured */

/* Keys that would need data which this program does not make, and the values that do not. */
static bool case_is_measurable(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    const struct {
        bool good;
        const char *key, *accepted;
    } rules[] = {
        {problem->kv_source == ATTN_KV_CACHE, "kv_source", "cache"},
        {problem->k_dtype == problem->v_dtype, "v", "the type of k"},
        {problem->positions == 0, "positions", "0"},
        {problem->seq_causal == 0, "seq_causal", "0"},
        {(problem->max_seqs | problem->max_q | problem->max_kv | problem->max_rows) == 0, "max_...",
         "0; say seqs, q_len, ctx or skew instead"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].good)
            continue;
        complain("mode %s does not measure this value of key %s; accepted: %s", the_case->mode, rules[i].key,
                 rules[i].accepted);
        return false;
    }
    return true;
}

static bool sizes_are_sane(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    struct case_sizes sizes;

    for (uint32_t i = 0; i < the_case->seqs; i++) {
        const struct bench_sequence *sequence = &the_case->sequence[i];
        if (the_case->prefix > sequence->ctx || (the_case->prefix > 0 && problem->addressing == ATTN_DENSE)) {
            complain("prefix=%" PRIu32 " is more than sequence %" PRIu32
                     " can share; accepted: up to its %" PRIu32 " keys, and with addr=dense 0",
                     the_case->prefix, i, sequence->ctx);
            return false;
        }
        if (sequence->q_len <= sequence->ctx)
            continue;
        complain("q_len=%" PRIu32 " is more than the %" PRIu32 " keys of sequence %" PRIu32
                 "; ctx and skew count the keys of this step too",
                 sequence->q_len, sequence->ctx, i);
        return false;
    }
    if (problem->cascade > 0 && problem->addressing == ATTN_DENSE) {
        complain("cascade=%" PRIu32 " is for steps whose sequences share pages; accepted with addr=dense: 0",
                 problem->cascade);
        return false;
    }
    case_measure(the_case, &sizes);
    if (problem->cascade > 0 && sizes.rows > problem->cascade) {
        complain("the step has %" PRIu64 " query tokens; accepted with cascade=%" PRIu32 ": up to as many",
                 sizes.rows, problem->cascade);
        return false;
    }
    if (sizes.keys > INT32_MAX / CASE_RANKS || sizes.rows * problem->heads > INT32_MAX ||
        sizes.width * the_case->seqs > INT32_MAX) {
        complain("%" PRIu64 " keys, %" PRIu64 " query tokens of %u heads and %" PRIu64
                 " table cells are too many; lower seqs, ctx, q_len or skew",
                 sizes.keys, sizes.rows, problem->heads, sizes.width * the_case->seqs);
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------- sequences */

/* The sequences of a step; in mixed the first ones, one of eight, bring q_len query tokens and the rest one.
 * q_len 0: all keys are new. */
static void sequences_init(struct bench_case *the_case, uint32_t seqs, uint32_t ctx, uint32_t q_len,
                           const struct bench_skew *skew)
{
    bool is_mixed = strcmp(the_case->mode, "mixed") == 0;

    the_case->seqs = skew->count != 0 ? skew->count + 1 : seqs;
    the_case->sequence = need_memory(NULL, the_case->seqs, sizeof *the_case->sequence);
    uint32_t chunks = the_case->seqs < SEQS_OF_A_CHUNK ? 1 : the_case->seqs / SEQS_OF_A_CHUNK;
    for (uint32_t i = 0; i < the_case->seqs; i++) {
        struct bench_sequence *sequence = &the_case->sequence[i];
        sequence->ctx = skew->count == 0 ? ctx : i == 0 ? skew->longer : skew->shorter;
        sequence->q_len = is_mixed && i >= chunks ? 1 : q_len != 0 ? q_len : sequence->ctx;
    }
}

static uint32_t or_default(uint32_t given, uint32_t otherwise)
{
    return given != 0 ? given : otherwise;
}

/* What was not given depends on the mode and on what was. */
static void sequences_of_keys(struct bench_case *the_case, const struct bench_keys *keys)
{
    uint32_t ctx = keys->ctx, q_len = keys->q_len;

    if (strcmp(the_case->mode, "prefill") == 0) {
        ctx = or_default(ctx, or_default(q_len, 512));
        sequences_init(the_case, or_default(keys->seqs, 1), ctx, q_len, &keys->skew);
        return;
    }
    bool is_mixed = strcmp(the_case->mode, "mixed") == 0;
    ctx = or_default(ctx, 2048);
    uint32_t least = keys->skew.count == 0                    ? ctx
                     : keys->skew.shorter < keys->skew.longer ? keys->skew.shorter
                                                              : keys->skew.longer;
    q_len = or_default(q_len, !is_mixed ? 1 : least < 64 ? least : 64);
    sequences_init(the_case, or_default(keys->seqs, is_mixed ? 16 : 8), ctx, q_len, &keys->skew);
}

/* ---------------------------------------------------------------- cases */

static int case_of_keys(const struct bench *bench, struct bench_case *out)
{
    const struct bench_keys *keys = &bench->keys;
    struct case_sizes sizes;
    struct attn_error err;

    ATTN_INIT(&err);
    out->name = out->mode;
    out->layers = keys->layers;
    if (keys->skew.count != 0 && (keys->seqs | keys->ctx) != 0) {
        complain("key skew says how many sequences there are and how long; leave out seqs and ctx");
        return EXIT_USAGE;
    }
    if (strcmp(out->mode, "mixed") == 0 && keys->seqs == 1) {
        complain("seqs=1 leaves no sequence to decode beside the chunk; mode mixed accepts 2 and more");
        return EXIT_USAGE;
    }
    const char *text = keys->problem[0] != '\0' ? keys->problem : default_cases[0].problem;
    if (attn_problem_parse(text, &out->problem, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_USAGE;
    }
    sequences_of_keys(out, keys);
    out->prefix = keys->prefix;
    case_measure(out, &sizes);
    /* A page of a dense cache is a sequence. */
    if (out->problem.addressing == ATTN_DENSE)
        out->problem.block = sizes.max_kv;
    return case_is_measurable(out) && sizes_are_sane(out) ? EXIT_YES : EXIT_USAGE;
}

static int case_of_table(const struct default_case *row, struct bench_case *out)
{
    struct attn_error err;

    ATTN_INIT(&err);
    out->name = row->name;
    if (attn_problem_parse(row->problem, &out->problem, &err) != ATTN_OK) {
        complain("%s: %s", row->name, err.message);
        return EXIT_NO;
    }
    sequences_init(out, row->seqs, row->ctx, row->q_len, &row->skew);
    return EXIT_YES;
}

int cases_make(const struct bench *bench, struct bench_case list[CASES_MOST], unsigned *out_count)
{
    const struct bench_keys *keys = &bench->keys;
    const struct bench_case empty = {.mode = bench->mode, .threads = keys->threads, .reps = keys->reps};
    const bool given = keys->problem[0] != '\0' || (keys->seqs | keys->ctx | keys->q_len | keys->prefix |
                                                    keys->layers | keys->skew.count) != 0;
    int code = EXIT_YES;

    *out_count = 0;
    if (given) {
        list[*out_count] = empty;
        return case_of_keys(bench, &list[(*out_count)++]);
    }
    for (unsigned i = 0; i < DEFAULT_CASES && code == EXIT_YES; i++) {
        if (strcmp(default_cases[i].mode, bench->mode) != 0)
            continue;
        list[*out_count] = empty;
        code = case_of_table(&default_cases[i], &list[(*out_count)++]);
    }
    return code;
}
