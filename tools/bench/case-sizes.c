/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a case amounts to: query tokens, pages, visible pairs, operations and bytes. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "workload.h"

void case_measure(const struct bench_case *the_case, struct case_sizes *out_sizes)
{
    uint64_t block = the_case->problem.block;

    *out_sizes = (struct case_sizes){0};
    for (uint32_t i = 0; i < the_case->seqs; i++) {
        const struct bench_sequence *sequence = &the_case->sequence[i];
        uint64_t pages = (sequence->ctx + block - 1) / block;

        out_sizes->rows += sequence->q_len;
        out_sizes->pages += pages - (i > 0 ? the_case->prefix / block : 0);
        out_sizes->keys += pages * block;
        if (sequence->q_len > out_sizes->max_q)
            out_sizes->max_q = sequence->q_len;
        if (sequence->ctx > out_sizes->max_kv)
            out_sizes->max_kv = sequence->ctx;
        if (pages > out_sizes->width)
            out_sizes->width = pages;
    }
}

uint32_t case_all_keys(const struct attn_problem *problem, uint32_t here)
{
    uint32_t last = here - 1, run = problem->block;

    return problem->cp && here != 0 ? last / run * run * CASE_RANKS + last % run + 1 : here;
}

/* Keys of this rank below a position. */
static int64_t keys_below(const struct attn_problem *problem, int64_t position)
{
    int64_t run = problem->block, round = run * CASE_RANKS, rest = position % round;

    return problem->cp ? position / round * run + (rest < run ? rest : run) : position;
}

void case_reach(const struct attn_problem *problem, const struct bench_sequence *sequence, uint32_t i,
                int64_t *out_low, int64_t *out_high)
{
    int64_t keys = case_all_keys(problem, sequence->ctx), left = problem->window_left, right = -1;
    int64_t position = problem->align == ATTN_ALIGN_START ? i : i + keys - sequence->q_len;

    if ((problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0)
        right = problem->window_right;
    else if (left >= 0)
        right = problem->causal == ATTN_CAUSAL_YES ? 0 : left;
    *out_low = left >= 0 && position > left ? position - left : 0;
    *out_high = keys - 1;
    if (problem->causal == ATTN_CAUSAL_YES && position < *out_high)
        *out_high = position;
    if (right >= 0 && position + right < *out_high)
        *out_high = position + right;
}

/* Visible pairs of query and key of one head, and keys that any query sees. */
static void sequence_count(const struct attn_problem *problem, const struct bench_sequence *sequence,
                           double *out_pairs, double *out_keys)
{
    int64_t first = sequence->ctx, end = 0, low, high;
    double pairs = 0;

    for (uint32_t i = 0; i < sequence->q_len; i++) {
        case_reach(problem, sequence, i, &low, &high);
        if (high < low)
            continue;
        int64_t begin = keys_below(problem, low), stop = keys_below(problem, high + 1);
        pairs += (double)(stop - begin);
        first = begin < first ? begin : first;
        end = stop > end ? stop : end;
    }
    *out_pairs = pairs;
    *out_keys = end > first ? (double)(end - first) : 0;
}

static bool sequences_are_alike(const struct bench_sequence *a, const struct bench_sequence *b)
{
    return a->ctx == b->ctx && a->q_len == b->q_len;
}

static void case_count(const struct bench_case *the_case, double *out_pairs, double *out_keys)
{
    double pairs = 0, keys = 0;

    *out_pairs = 0;
    *out_keys = 0;
    for (uint32_t i = 0; i < the_case->seqs; i++) {
        const struct bench_sequence *sequence = &the_case->sequence[i];

        if (i == 0 || !sequences_are_alike(sequence, sequence - 1))
            sequence_count(&the_case->problem, sequence, &pairs, &keys);
        *out_pairs += pairs;
        *out_keys += keys;
    }
}

double case_flops(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    double pairs, keys;

    case_count(the_case, &pairs, &keys);
    return 2.0 * problem->heads * ((double)problem->head_dim + problem->head_dim_vo) * pairs;
}

/* A scale for each token and head is read with its vector; fewer ones are negligible. */
static double scale_bytes(uint32_t granularity)
{
    return granularity == ATTN_SCALES_TOKEN_HEAD ? sizeof(float) : 0;
}

double case_key_bytes(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    double pairs, keys;

    case_count(the_case, &pairs, &keys);
    double k = (double)attn_row_bytes(problem->k_dtype, problem->head_dim) + scale_bytes(problem->k_scale);
    double v = (double)attn_row_bytes(problem->v_dtype, problem->head_dim_vo) + scale_bytes(problem->v_scale);
    return keys * problem->kv_heads * (problem->mla ? k : k + v); /* values of MLA are columns of the keys */
}

double case_bytes(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    double bytes = case_key_bytes(the_case);
    struct case_sizes sizes;

    for (uint32_t i = 0; i < the_case->seqs; i++)
        bytes += (double)case_mask_row(problem, &the_case->sequence[i]) * the_case->sequence[i].q_len;
    if (strcmp(the_case->mode, "decode") == 0)
        return bytes;
    case_measure(the_case, &sizes);
    return bytes + (double)sizes.rows * problem->heads *
                       ((double)problem->head_dim * attn_dtype_size(problem->q_dtype) +
                        (double)problem->head_dim_vo * attn_dtype_size(problem->out_dtype));
}

void case_describe(const struct bench_case *the_case, char *text, size_t size)
{
    size_t used = 0;

    for (uint32_t i = 0, next; i < the_case->seqs; i = next) {
        const struct bench_sequence *sequence = &the_case->sequence[i];
        char run[64];

        next = i + 1;
        while (next < the_case->seqs && sequences_are_alike(sequence, &the_case->sequence[next]))
            next++;
        int length = snprintf(run, sizeof run, "%s%" PRIu32 "x%" PRIu32 "/%" PRIu32, i > 0 ? " " : "",
                              next - i, sequence->q_len, sequence->ctx);
        if (used + (size_t)length + sizeof " ..." > size) {
            snprintf(text + used, size - used, " ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", run);
    }
}
