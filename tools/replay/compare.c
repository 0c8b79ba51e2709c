/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares the result of a replay with the recorded one, bit by bit, and both with the oracle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "outputs.h"
#include "replay.h"

enum { BUDGET = 1000000000 }; /* products of the oracle: seconds */

/* Query tokens of sequences; rows behind them are neither read nor written. */
static uint32_t rows_of(const struct rerun *rerun)
{
    return (uint32_t)rerun->copies.q_offsets[rerun->record->call.seqs];
}

/* ---------------------------------------------------------------- bits */

static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    const double difference = fabs(a - b);
    return isnan(difference) ? (double)INFINITY : difference;
}

/* One vector of two results. */
static void compare_vector(struct comparison *out, const char *array, uint32_t dtype, const unsigned char *a,
                           const unsigned char *b, uint32_t row, uint32_t head, uint32_t columns)
{
    const uint32_t size = oracle_size(dtype);

    out->numbers += columns;
    for (uint32_t d = 0; d < columns && memcmp(a, b, (size_t)columns * size) != 0; d++) {
        double x, y;
        if (memcmp(a + (size_t)d * size, b + (size_t)d * size, size) == 0)
            continue;
        out->differing++;
        oracle_load(dtype, a + (size_t)d * size, 1, &x);
        oracle_load(dtype, b + (size_t)d * size, 1, &y);
        if (out->array != NULL && !(distance(x, y) > out->largest))
            continue;
        out->largest = distance(x, y);
        out->array = array;
        out->row = row;
        out->head = head;
        out->column = d;
    }
}

static void compare_bits(const struct rerun *rerun, struct comparison *out, uint32_t kind, uint32_t dtype,
                         uint32_t columns)
{
    const struct attn__part *recorded = &rerun->record->call.parts[kind];

    for (uint32_t row = 0; recorded->form == ATTN__PART_BYTES && row < rows_of(rerun); row++)
        for (uint32_t head = 0; head < rerun->record->problem.heads; head++)
            compare_vector(out, attn__part_name(kind), dtype,
                           recorded->bytes + (row * recorded->count[1] + head) * recorded->row,
                           image_at(&rerun->images[kind], row, head, 0), row, head, columns);
}

/* ---------------------------------------------------------------- the oracle */

/* Looks for inputs that are no numbers. Infinite ones leave results unspecified. */
static void look(const struct rerun *rerun, uint32_t kind, uint32_t dtype, struct outputs *out)
{
    const struct image *image = &rerun->images[kind];
    const uint32_t count = oracle_has_blocks(dtype) ? ATTN_BLOCK_ELEMENTS : 1;
    const size_t size = oracle_row_bytes(dtype, count);
    double values[ATTN_BLOCK_ELEMENTS];

    for (uint64_t i = 0; image->part.form != ATTN__PART_ABSENT && i < image->part.count[0]; i++)
        for (uint64_t j = 0; j < image->part.count[1]; j++)
            for (uint64_t k = 0; k < image->part.count[2]; k++)
                for (uint64_t at = 0; at + size <= image->part.row; at += size) {
                    oracle_load(dtype, image_at(image, i, j, k) + at, count, values);
                    for (uint32_t d = 0; d < count; d++) {
                        out->injected |= !isfinite(values[d]);
                        out->lenient |= isinf(values[d]) != 0;
                    }
                }
}

static void look_at_inputs(const struct rerun *rerun, struct outputs *out)
{
    const struct attn_problem *problem = &rerun->record->problem;

    look(rerun, ATTN__PART_q, problem->q_dtype, out);
    look(rerun, ATTN__PART_q_rope, problem->q_dtype, out);
    look(rerun, ATTN__PART_k, problem->k_dtype, out);
    look(rerun, ATTN__PART_k_new, problem->k_dtype, out);
    look(rerun, ATTN__PART_v, problem->v_dtype, out);
    look(rerun, ATTN__PART_v_new, problem->v_dtype, out);
}

/* Every byte that no row owns still holds the pattern. The outputs are overwritten. */
static bool outside_is_whole(struct rerun *rerun, uint32_t kind, struct judgement *judgement)
{
    const struct image *image = &rerun->images[kind];

    if (image->part.form == ATTN__PART_ABSENT)
        return true;
    for (uint32_t row = 0; row < rows_of(rerun); row++)
        for (uint32_t head = 0; head < rerun->record->problem.heads; head++)
            pattern_restore(&image->host, image_at(image, row, head, 0), image->part.row);
    const int64_t at = pattern_check(&image->host);
    if (at >= 0)
        snprintf(judgement->why, sizeof judgement->why, "byte %lld of %s was written, but belongs to no row",
                 (long long)at, attn__part_name(kind));
    return at < 0;
}

static void judge(const struct outputs *outputs, const struct reference *reference, struct judgement *out)
{
    out->judged = true;
    out->right = outputs_judge(outputs, reference, out->why, sizeof out->why);
}

/* The recorded result takes the place of the replay's, which has been judged. */
static void judge_recorded(struct rerun *rerun, struct outputs *outputs, const struct reference *reference,
                           struct comparison *out)
{
    const struct attn__call *call = &rerun->record->call;
    const uint32_t kinds[] = {ATTN__PART_out, ATTN__PART_lse};

    if (rerun->record->failed || rerun->record->seeded || call->numerics == 0)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (call->parts[kinds[i]].form != ATTN__PART_ABSENT)
            image_fill(&rerun->images[kinds[i]], call->parts[kinds[i]].bytes);
    outputs->numerics = (uint32_t)call->numerics;
    judge(outputs, reference, &out->recorded);
}

void compare(struct rerun *rerun, struct comparison *out)
{
    const struct attn_problem *problem = &rerun->record->problem;
    struct outputs outputs = {.problem = problem,
                              .batch = &rerun->host.batch,
                              .tensors = &rerun->host.tensors,
                              .kv = &rerun->host.desc,
                              .q_offsets = rerun->copies.q_offsets,
                              .rows = rows_of(rerun),
                              .numerics = rerun->numerics,
                              .seed = rerun->record->call.call};
    struct reference reference;

    look_at_inputs(rerun, &outputs);
    memset(out, 0, sizeof *out);
    out->compared = rerun->status == ATTN_OK && !rerun->record->failed && !rerun->record->seeded;
    if (out->compared) {
        compare_bits(rerun, out, ATTN__PART_out, problem->out_dtype, problem->head_dim_vo);
        compare_bits(rerun, out, ATTN__PART_lse, ATTN_F32, 1);
    }
    if (!reference_init(&reference, &outputs, BUDGET)) {
        complain("out of memory for the reference");
        exit(EXIT_NO);
    }
    if (rerun->status == ATTN_OK) {
        judge(&outputs, &reference, &out->replayed);
        out->replayed.right = out->replayed.right &&
                              outside_is_whole(rerun, ATTN__PART_out, &out->replayed) &&
                              outside_is_whole(rerun, ATTN__PART_lse, &out->replayed);
    }
    judge_recorded(rerun, &outputs, &reference, out);
    reference_finish(&reference);
}
