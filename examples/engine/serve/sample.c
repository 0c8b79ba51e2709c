/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Greedy choice, and drawing from the softmax at a temperature. */
#include "sample.h"
#include "rng.h"

#include <inttypes.h>
#include <math.h>

static int find_largest(const float *logits, uint32_t count, uint32_t *out, struct failure *err)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(logits[i]))
            return failure_set(err, "the logit of token %" PRIu32 " is not a number", i);
        if (logits[i] > logits[best])
            best = i;
    }
    *out = best;
    return 0;
}

int sampler_next(struct sampler *s, const float *logits, uint32_t count, int32_t *out, struct failure *err)
{
    uint32_t best = 0;
    if (count == 0)
        return failure_set(err, "there are no logits to choose from");
    if (find_largest(logits, count, &best, err) < 0)
        return -1;
    *out = (int32_t)best;
    if (s->temperature <= 0 || isinf(logits[best]))
        return 0;
    double largest = (double)logits[best];
    double total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += exp(((double)logits[i] - largest) / s->temperature);
    double rest = rng_unit(&s->state) * total;
    for (uint32_t i = 0; i < count; i++) {
        double weight = exp(((double)logits[i] - largest) / s->temperature);
        if (weight <= 0)
            continue;
        *out = (int32_t)i; /* the last one with any weight, should rounding leave a rest */
        rest -= weight;
        if (rest < 0)
            break;
    }
    return 0;
}
