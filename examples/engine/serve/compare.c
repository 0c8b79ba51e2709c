/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keeps the largest difference of logits and counts the choices that differ. */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

int comparison_start(struct comparison *c, const struct engine *e, const struct attention_options *options,
                     uint32_t rows, struct failure *err)
{
    const struct model_shape *s = &e->model.shape;
    struct attention_options plain = *options;
    plain.kv = "f32";
    plain.q = "f32";
    c->largest = -1; /* so that the first row has a place, even where all is equal */
    c->logits = malloc((size_t)rows * s->vocab * sizeof *c->logits);
    if (!c->logits)
        return failure_set(err, "no memory for %" PRIu32 " times %" PRIu32 " logits", rows, s->vocab);
    return attention_create(&e->shape, &plain, &c->attention, err);
}

void comparison_finish(struct comparison *c)
{
    attention_destroy(c->attention);
    free(c->logits);
    c->attention = NULL;
    c->logits = NULL;
}

int comparison_step(struct comparison *c, const struct engine *e, const struct forward_part *parts,
                    uint32_t count, bool advances, struct failure *err)
{
    return advances ? forward_advance(e->forward, c->attention, parts, count, c->logits, err)
                    : forward_run(e->forward, c->attention, parts, count, c->logits, err);
}

/* A difference that is not a number is larger than every other. */
static bool is_larger(double difference, double than)
{
    return !isnan(than) && (isnan(difference) || difference > than);
}

void comparison_judge(struct comparison *c, const float *logits, uint32_t row, uint32_t vocab,
                      uint32_t sequence, uint32_t position)
{
    const float *plain = c->logits + (size_t)row * vocab;
    uint32_t best = 0;
    uint32_t plain_best = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double difference = fabs((double)logits[i] - (double)plain[i]);
        best = logits[i] > logits[best] ? i : best;
        plain_best = plain[i] > plain[plain_best] ? i : plain_best;
        if (is_larger(difference, c->largest)) {
            c->largest = difference;
            c->sequence = sequence;
            c->position = position;
            c->token = (int32_t)i;
        }
    }
    c->positions++;
    c->others += best != plain_best;
}
