/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares outputs of attention with the oracle's. */
#include "outputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "case.h"
#include "need.h"

enum { ROW = 4, ASKED_PAIRS = 96 };

struct result {
    double bound; /* of the error of all rows, relative; that of a row is ROW times it */
    double error; /* squares, summed over all judged rows */
    double before_rounding;
    double size;
    double token_squares; /* squares of the sizes of single tokens */
    double least_size;    /* that a row is judged by */
    double worst;         /* rms of the worst row, relative */
    uint32_t worst_row;
    uint32_t worst_head;
    uint32_t infinite; /* pairs that were not chosen and hold infinity */
};

static const unsigned char *vector_at(const struct attn_tensor *tensor, uint32_t row, uint32_t head)
{
    return oracle_address(&tensor->buffer) + row * tensor->token_stride + head * tensor->head_stride;
}

static bool all_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/*
 * A row that sees a key: adds its error; false if its pattern of NaN is wrong, or if a number became infinite
 * and was not within the bound of a row of doing so. With `lenient` the columns that are not finite in the
 * reference may hold anything. Half of the type's least number is no error: a weight can leave less than
 * that, and rounds to zero.
 */
static bool judge_row(struct result *result, const struct outputs *outputs, uint32_t row, uint32_t head,
                      const double *out, const double *wanted, uint32_t *out_column)
{
    double sum = 0, before = 0, size = 0, least = oracle_half_step(outputs->problem->out_dtype, 0);
    bool lenient = outputs->lenient;

    for (uint32_t d = 0; d < outputs->problem->head_dim_vo; d++)
        size += isfinite(wanted[d]) ? wanted[d] * wanted[d] : 0;
    for (uint32_t d = 0; d < outputs->problem->head_dim_vo; d++) {
        *out_column = d;
        if (lenient && !isfinite(wanted[d]))
            continue;
        if (isnan(out[d]) != isnan(wanted[d]))
            return false;
        if (isnan(wanted[d]))
            continue;
        double error = oracle_error(outputs->problem->out_dtype, out[d], wanted[d]);
        if (isinf(out[d]) && !(error <= ROW * result->bound * sqrt(size)))
            return false;
        if (!(error > least))
            continue;
        sum += error * error;
        error = oracle_error_before_rounding(outputs->problem->out_dtype, out[d], wanted[d]);
        before += error * error;
    }
    result->error += sum;
    result->before_rounding += before;
    result->size += size;
    double relative = sum == 0 ? 0 : sqrt(sum / fmax(size, result->least_size));
    if (relative > result->worst) {
        result->worst = relative;
        result->worst_row = row;
        result->worst_head = head;
    }
    return true;
}

/*
 * The LSE of a row has the bound of scores of this size. Without a soft cap that is S: an f32 product of a
 * query and a key, of which S is the largest, may err by 1e-5 * S / 32. A cap hides how large the products
 * were: where one of them is X, all may err by 1e-5 * X / 32, although every score is below the cap. Of the
 * error of a product x the score has the share 1 - tanh^2(x / cap), and as the derivative of the LSE by a
 * score is the score's weight, the LSE has the mean of these shares by weight, g: as if scores were as large
 * as g * X. Where the cap flattens the scores that decide, g is near 0 and S is larger.
 */
static double size_of_scores(const struct reference *reference, size_t pair)
{
    const struct oracle_result *result = &reference->result;

    return fmax(result->largest, result->slope[pair] * result->largest_uncapped);
}

static bool judge_lse(const struct outputs *outputs, const struct reference *reference, uint32_t row,
                      uint32_t head, char *why, size_t size)
{
    size_t pair = (size_t)row * outputs->problem->heads + head;
    double wanted = reference->result.lse[pair], lse;

    oracle_load(ATTN_F32, vector_at(&outputs->tensors->lse, row, head), 1, &lse);
    double bound = oracle_bound_lse((enum oracle_class)outputs->numerics, size_of_scores(reference, pair),
                                    isfinite(wanted) ? wanted : 0);
    if (reference->result.seen[pair] == 0)
        bound = 0; /* minus infinity, or the sink itself */
    bool good = isfinite(wanted) ? fabs(lse - wanted) <= bound : isnan(wanted) ? isnan(lse) : lse == wanted;
    if (!good)
        snprintf(why, size, "row %u head %u: lse is %.9g, wanted %.9g within %.3g", row, head, lse, wanted,
                 bound);
    return good;
}

/*
 * A pair that was not chosen is finite, as far as anybody knows. Where it holds infinity the oracle is asked
 * after all; not of every pair, for all of them may hold it.
 */
static bool judge_skipped(struct result *result, const struct outputs *outputs, uint32_t row, uint32_t head,
                          const double *out, uint32_t *out_column)
{
    const struct attn_problem *problem = outputs->problem;
    size_t pair = (size_t)row * problem->heads + head;
    bool infinite = false;

    for (uint32_t d = 0; d < problem->head_dim_vo; d++) {
        *out_column = d;
        if (isnan(out[d]) || (isinf(out[d]) && oracle_is_8bit(problem->out_dtype)))
            return false;
        infinite |= isinf(out[d]);
    }
    if (!infinite || result->infinite++ >= ASKED_PAIRS)
        return true;
    struct reference reference;
    bool good = reference_init_pair(&reference, outputs, row, head) &&
                judge_row(result, outputs, row, head, out, reference.result.out + pair * problem->head_dim_vo,
                          out_column);
    reference_finish(&reference);
    return good;
}

/* ---------------------------------------------------------------- 8 bits */

/* A number: half a code step at the reference, and `slack`. Beyond the largest code there is the largest. */
static bool is_number_right(uint32_t dtype, uint8_t code, double wanted, double slack)
{
    double most = oracle_most8(dtype), got = oracle_decode8(dtype, code);
    double clamped = fabs(wanted) > most ? copysign(most, wanted) : wanted;

    if (!isfinite(got) || fabs(got) > most) /* -128 too */
        return false;
    if (got == 0 && fabs(wanted) > slack && dtype != ATTN_INT8) {
        bool fnuz = dtype == ATTN_E4M3FNUZ || dtype == ATTN_E5M2FNUZ;
        if (code != (wanted < 0 && !fnuz ? 0x80 : 0))
            return false;
    }
    return fabs(got - clamped) <= oracle_half_step(dtype, clamped) + slack;
}

static bool judge_codes(uint32_t dtype, const unsigned char *codes, const double *wanted, uint32_t dim,
                        double scale, double bound, bool lenient, uint32_t *out_column)
{
    double squares = 0;
    uint32_t numbers = 0;

    for (uint32_t d = 0; d < dim; d++) {
        if (isfinite(wanted[d])) {
            squares += wanted[d] * wanted[d];
            numbers++;
        }
    }
    double slack = numbers > 0 ? bound * sqrt(squares / numbers) / scale : 0;
    for (uint32_t d = 0; d < dim; d++) {
        *out_column = d;
        if (lenient && !isfinite(wanted[d]))
            continue;
        if (isnan(wanted[d]) ? codes[d] != oracle_encode8(dtype, (double)NAN)
                             : !is_number_right(dtype, codes[d], wanted[d] / scale, slack))
            return false;
    }
    return true;
}

/*
 * The least sum of squares that a row is judged by. Where a kernel makes f16 of values in blocks, P is f16,
 * too: a row of values that are small beside the others of the case has the roundings of these, which its
 * weights leave.
 */
static double least_size_of(const struct outputs *outputs, const struct reference *reference)
{
    const struct attn_problem *problem = outputs->problem;
    size_t pairs = (size_t)outputs->rows * problem->heads, numbers = pairs * problem->head_dim_vo;
    double squares = 0;

    if (outputs->numerics != ATTN_NUMERICS_P_E4M3 || attn_block_bytes(problem->v_dtype) == 0)
        return 0;
    for (size_t i = 0; i < numbers; i++) {
        double number = reference->result.out[i];
        squares += reference->result.seen[i / problem->head_dim_vo] != ORACLE_SKIPPED && isfinite(number)
                       ? number * number
                       : 0;
    }
    return pairs > 0 ? squares / (double)pairs * 0x1p-28 : 0;
}

/* The sequence of a row. */
static uint32_t sequence_of(const struct outputs *outputs, uint32_t row)
{
    uint32_t n = 0;

    while ((uint32_t)outputs->q_offsets[n + 1] <= row)
        n++;
    return n;
}

/* A row of codes has bounds of its own, element by element. */
static bool judge_8bit(const struct outputs *outputs, const struct reference *reference, uint32_t row,
                       uint32_t head, const double *wanted, uint32_t *out_column)
{
    const struct attn_problem *problem = outputs->problem;
    double scale =
        oracle_scale(&outputs->tensors->out_scale, problem->out_scale, sequence_of(outputs, row), row, head);
    double bound =
        oracle_bound_out((enum oracle_class)outputs->numerics, problem->out_dtype, reference->result.largest);

    return judge_codes(problem->out_dtype, vector_at(&outputs->tensors->out, row, head), wanted,
                       problem->head_dim_vo, scale, bound, outputs->lenient, out_column);
}

/* One (row, head). `vector` has room for a row. */
static bool judge_pair(const struct outputs *outputs, const struct reference *reference,
                       struct result *result, uint32_t row, uint32_t head, double *vector, char *why,
                       size_t size)
{
    const struct attn_problem *problem = outputs->problem;
    size_t pair = (size_t)row * problem->heads + head;
    uint32_t seen = reference->result.seen[pair], column = 0;
    const double *wanted = reference->result.out + pair * problem->head_dim_vo;
    const unsigned char *at = vector_at(&outputs->tensors->out, row, head);

    oracle_load(problem->out_dtype, at, problem->head_dim_vo, vector);
    if (seen == ORACLE_SKIPPED) {
        if (outputs->injected || judge_skipped(result, outputs, row, head, vector, &column))
            return true;
        snprintf(why, size, "row %u head %u column %u: %g, but nothing visible is", row, head, column,
                 vector[column]);
        return false;
    }
    if (problem->lse != 0 && !judge_lse(outputs, reference, row, head, why, size))
        return false;
    if (seen == 0) {
        if (all_zero(at, (size_t)problem->head_dim_vo * oracle_size(problem->out_dtype)))
            return true;
        snprintf(why, size, "row %u head %u sees no key, but is %g %g ...", row, head, vector[0],
                 vector[problem->head_dim_vo - 1]);
        return false;
    }
    bool is_8bit = oracle_is_8bit(problem->out_dtype);
    if (is_8bit ? !judge_8bit(outputs, reference, row, head, wanted, &column)
                : !judge_row(result, outputs, row, head, vector, wanted, &column)) {
        snprintf(why, size, "row %u head %u column %u: %g, wanted %g (%u keys visible)", row, head, column,
                 vector[column], wanted[column], seen);
        return false;
    }
    return true;
}

/*
 * The error of all rows. That of 16-bit results has two parts: what the kernel has before it rounds them, for
 * which the class has its bound of f32, and their own rounding. P in bf16 and results in bf16 err by up to
 * 2^-8 each. The bound of a case counts on many such errors, of different signs and sizes: each is spread
 * evenly over +-2^-8 at worst, so that 2^-8 * sqrt(2 / 3), or 3.2e-3, is expected of both together, and 5e-3
 * is the bound. Few of them do not average: where one key with the values of an edge outweighs the rest of
 * its row, and one or two such rows the rest of the case, a single number of P decides, which all columns
 * are multiplied by, and one rounding for each column. Both together are 2 * 2^-8 at worst, or 7.8e-3.
 *
 * For few columns the squares of the bound therefore go from those of 5e-3 to those of the worst case by the
 * share of the squares that has no other token to average with: N equal tokens have 1 / N. The heads of a
 * token count as one, for where they see the same key they are rounded alike. Each part is then judged alone
 * too: a result may take half a step for its own rounding, which cannot be more, and what is left is the
 * kernel's. As values are positive, rounding P to bf16 changes no result by more than 2^-8, which is within
 * the bound of f32.
 */
static bool judge_all(const struct outputs *outputs, const struct result *result, double largest)
{
    if (sqrt(result->error) <= result->bound * sqrt(result->size))
        return true;
    double f32 = oracle_bound_out((enum oracle_class)outputs->numerics, ATTN_F32, largest);
    double worst = fmax(result->bound, f32 + oracle_half_step(outputs->problem->out_dtype, 1));
    double share = result->token_squares / (result->size * result->size);
    double squares = result->bound * result->bound * (1 - share) + worst * worst * share;
    return outputs->problem->head_dim_vo <= FEW_COLUMNS && result->error <= squares * result->size &&
           sqrt(result->before_rounding) <= f32 * sqrt(result->size);
}

bool outputs_judge(const struct outputs *outputs, const struct reference *reference, char *why, size_t size)
{
    double *vector = need(calloc(outputs->problem->head_dim_vo, sizeof *vector));
    struct result result = {.bound = oracle_bound_out((enum oracle_class)outputs->numerics,
                                                      outputs->problem->out_dtype, reference->result.largest),
                            .least_size = least_size_of(outputs, reference)};
    bool good = true;

    for (uint32_t row = 0; good && row < outputs->rows; row++) {
        double before = result.size;
        for (uint32_t head = 0; good && head < outputs->problem->heads; head++)
            good = judge_pair(outputs, reference, &result, row, head, vector, why, size);
        result.token_squares += (result.size - before) * (result.size - before);
    }
    free(vector);
    double rms = result.size > 0 ? sqrt(result.error / result.size) : 0;
    if (good &&
        (!judge_all(outputs, &result, reference->result.largest) || !(result.worst <= ROW * result.bound))) {
        snprintf(
            why, size,
            "error %.3g of all rows, at most %.3g; %.3g of row %u head %u, at most %.3g; largest score %.3g",
            rms, result.bound, result.worst, result.worst_row, result.worst_head, ROW * result.bound,
            reference->result.largest);
        good = false;
    }
    return good;
}
