/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the oracle says of a step: of all of it, or of a sample where that would take too long. */
#include "conform.h"

#include <stdlib.h>

#include "need.h"

enum { SAMPLED_PAIRS = 96, LEAST_PAIRS = 64 };

struct sample {
    const struct step *step;
    unsigned char *chosen; /* [rows, heads] */
};

static bool is_chosen(void *user, uint32_t row, uint32_t head)
{
    const struct sample *sample = user;

    return sample->chosen[(size_t)row * sample->step->problem.heads + head] != 0;
}

static double cost_of(const struct step *step, uint32_t n)
{
    uint32_t keys = step->source[n] < 0 ? 0 : step->the_case->sequences[step->source[n]].kv_len;

    return (double)keys * (step->problem.head_dim + step->problem.head_dim_vo);
}

/* The rows on both sides of an edge between 64 keys, where tiles and parts begin. */
static void choose_edges(struct sample *sample, uint32_t n, struct rng *rng)
{
    const struct step *step = sample->step;
    uint32_t first = (uint32_t)step->host.q_offsets[n], rows = (uint32_t)step->host.q_offsets[n + 1] - first;
    uint32_t keys = step->source[n] < 0 ? 0 : step->the_case->sequences[step->source[n]].kv_len;
    uint32_t heads = step->problem.heads, before = (64 - (keys - rows) % 64) % 64;

    for (uint32_t row = before > 0 ? before - 1 : 0; row <= before && row < rows; row++)
        sample->chosen[(size_t)(first + row) * heads + rng_below(rng, heads)] = 1;
}

/*
 * First and last row of every sequence and those at an edge, then rows at random until enough are chosen or
 * the budget is spent.
 */
static void choose(struct sample *sample, double budget)
{
    const struct step *step = sample->step;
    struct rng rng = {mix(step->layout.seed, 8)};
    uint32_t heads = step->problem.heads, chosen = 0;
    double all = 0, spent = 0;

    for (uint32_t n = 0; n < step->seqs; n++)
        all += cost_of(step, n) * heads * (step->host.q_offsets[n + 1] - step->host.q_offsets[n]);
    if (all <= budget) {
        memset(sample->chosen, 1, (size_t)step->batch.num_tokens * heads);
        return;
    }
    for (uint32_t n = 0; n < step->seqs; n++) {
        if (step->host.q_offsets[n] == step->host.q_offsets[n + 1])
            continue;
        const int32_t rows[] = {step->host.q_offsets[n], step->host.q_offsets[n + 1] - 1};
        const uint32_t picked[] = {0, heads - 1, rng_below(&rng, heads)};
        for (uint32_t at = 0; at < 6; at++)
            sample->chosen[(size_t)rows[at / 3] * heads + picked[at % 3]] = 1;
        choose_edges(sample, n, &rng);
        chosen += 6;
        spent += 6 * cost_of(step, n);
    }
    while (chosen < LEAST_PAIRS || (chosen < SAMPLED_PAIRS && spent < budget)) {
        uint32_t pair = rng_below(&rng, step->batch.num_tokens * heads);
        sample->chosen[pair] = 1;
        spent += cost_of(step, 0);
        chosen++;
    }
}

static bool compute(struct reference *reference, struct sample *sample)
{
    const struct step *step = sample->step;
    size_t pairs = (size_t)step->batch.num_tokens * step->problem.heads;

    reference->pairs = (uint32_t)pairs;
    reference->result.out = need(calloc(pairs * step->problem.head_dim_vo + 1, sizeof(double)));
    reference->result.lse = need(calloc(pairs + 1, sizeof(double)));
    reference->result.seen = need(calloc(pairs + 1, sizeof(uint32_t)));
    reference->result.slope = need(calloc(pairs + 1, sizeof(double)));
    return oracle_attention(&step->problem, &step->batch, &step->tensors, &step->kv, is_chosen, sample,
                            &reference->result);
}

static struct sample new_sample(const struct step *step)
{
    size_t pairs = (size_t)step->batch.num_tokens * step->problem.heads;

    return (struct sample){step, need(calloc(pairs + 1, 1))};
}

bool reference_init(struct reference *reference, const struct step *step, double budget)
{
    struct sample sample = new_sample(step);

    choose(&sample, budget);
    bool good = compute(reference, &sample);
    free(sample.chosen);
    return good;
}

bool reference_init_pair(struct reference *reference, const struct step *step, uint32_t row, uint32_t head)
{
    struct sample sample = new_sample(step);

    sample.chosen[(size_t)row * step->problem.heads + head] = 1;
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
