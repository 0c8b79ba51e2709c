/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the oracle says of outputs: of all of them, or of a sample where that would take too long. */
#include "outputs.h"

#include <stdlib.h>

#include "case.h"

#include "need.h"

enum { SAMPLED_PAIRS = 96, LEAST_PAIRS = 64 };

struct sample {
    const struct outputs *outputs;
    unsigned char *chosen; /* [rows, heads] */
};

static bool is_chosen(void *user, uint32_t row, uint32_t head)
{
    const struct sample *sample = user;

    return sample->chosen[(size_t)row * sample->outputs->problem->heads + head] != 0;
}

static uint32_t keys_of(const struct outputs *outputs, uint32_t n)
{
    struct oracle_sequence sequence;

    oracle_sequence_init(&sequence, outputs->problem, outputs->batch, n);
    return sequence.kv_len;
}

static double cost_of(const struct outputs *outputs, uint32_t n)
{
    return (double)keys_of(outputs, n) * (outputs->problem->head_dim + outputs->problem->head_dim_vo);
}

/* The rows on both sides of an edge between 64 keys, where tiles and parts begin. */
static void choose_edges(struct sample *sample, uint32_t n, struct rng *rng)
{
    const struct outputs *outputs = sample->outputs;
    uint32_t first = (uint32_t)outputs->q_offsets[n], rows = (uint32_t)outputs->q_offsets[n + 1] - first;
    uint32_t keys = keys_of(outputs, n);
    uint32_t heads = outputs->problem->heads, before = (64 - (keys - rows) % 64) % 64;

    for (uint32_t row = before > 0 ? before - 1 : 0; row <= before && row < rows; row++)
        sample->chosen[(size_t)(first + row) * heads + rng_below(rng, heads)] = 1;
}

/*
 * First and last row of every sequence and those at an edge, then rows at random until enough are chosen or
 * the budget is spent.
 */
static void choose(struct sample *sample, double budget)
{
    const struct outputs *outputs = sample->outputs;
    struct rng rng = {mix(outputs->seed, 8)};
    uint32_t heads = outputs->problem->heads, chosen = 0;
    double all = 0, spent = 0;

    for (uint32_t n = 0; n < outputs->batch->seqs; n++)
        all += cost_of(outputs, n) * heads * (outputs->q_offsets[n + 1] - outputs->q_offsets[n]);
    if (all <= budget) {
        memset(sample->chosen, 1, (size_t)outputs->rows * heads);
        return;
    }
    for (uint32_t n = 0; n < outputs->batch->seqs; n++) {
        if (outputs->q_offsets[n] == outputs->q_offsets[n + 1])
            continue;
        const int32_t rows[] = {outputs->q_offsets[n], outputs->q_offsets[n + 1] - 1};
        const uint32_t picked[] = {0, heads - 1, rng_below(&rng, heads)};
        for (uint32_t at = 0; at < 6; at++)
            sample->chosen[(size_t)rows[at / 3] * heads + picked[at % 3]] = 1;
        choose_edges(sample, n, &rng);
        chosen += 6;
        spent += 6 * cost_of(outputs, n);
    }
    while (chosen < LEAST_PAIRS || (chosen < SAMPLED_PAIRS && spent < budget)) {
        uint32_t pair = rng_below(&rng, outputs->rows * heads);
        sample->chosen[pair] = 1;
        spent += cost_of(outputs, 0);
        chosen++;
    }
}

static bool compute(struct reference *reference, struct sample *sample)
{
    const struct outputs *outputs = sample->outputs;
    size_t pairs = (size_t)outputs->rows * outputs->problem->heads;

    reference->pairs = (uint32_t)pairs;
    reference->result.out = need(calloc(pairs * outputs->problem->head_dim_vo + 1, sizeof(double)));
    reference->result.lse = need(calloc(pairs + 1, sizeof(double)));
    reference->result.seen = need(calloc(pairs + 1, sizeof(uint32_t)));
    reference->result.slope = need(calloc(pairs + 1, sizeof(double)));
    return oracle_attention(outputs->problem, outputs->batch, outputs->tensors, outputs->kv, is_chosen,
                            sample, &reference->result);
}

static struct sample new_sample(const struct outputs *outputs)
{
    size_t pairs = (size_t)outputs->rows * outputs->problem->heads;

    return (struct sample){outputs, need(calloc(pairs + 1, 1))};
}

bool reference_init(struct reference *reference, const struct outputs *outputs, double budget)
{
    struct sample sample = new_sample(outputs);

    choose(&sample, budget);
    bool good = compute(reference, &sample);
    free(sample.chosen);
    return good;
}

bool reference_init_pair(struct reference *reference, const struct outputs *outputs, uint32_t row,
                         uint32_t head)
{
    struct sample sample = new_sample(outputs);

    sample.chosen[(size_t)row * outputs->problem->heads + head] = 1;
    bool good = compute(reference, &sample);
    free(sample.chosen);
    return good;
}

void reference_finish(struct reference *reference)
{
    free(reference->result.out);
    free(reference->result.lse);
    free(reference->result.seen);
    free(reference->result.slope);
}
