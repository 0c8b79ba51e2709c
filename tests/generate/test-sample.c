/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Choice of the next token: greedy, by temperature, repeatable by seed. */
#include "serve/sample.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(sample, takes_the_first_of_the_largest)
{
    struct sampler s = {0};
    int32_t id = -1;
    cr_assert_eq(sampler_next(&s, (float[]){-1, 3, 2, 3}, 4, &id, NULL), 0);
    cr_assert_eq(id, 1);
    cr_assert_eq(sampler_next(&s, (float[]){-INFINITY, -5}, 2, &id, NULL), 0);
    cr_assert_eq(id, 1);
}

Test(sample, refuses_what_is_not_a_number)
{
    struct sampler s = {0};
    struct failure err;
    int32_t id = -1;
    cr_assert_lt(sampler_next(&s, (float[]){1, NAN}, 2, &id, &err), 0);
    cr_assert_str_eq(err.text, "the logit of token 1 is not a number");
}

Test(sample, repeats_with_the_same_seed)
{
    float logits[50];
    for (int i = 0; i < 50; i++)
        logits[i] = sinf((float)i);
    struct sampler a = {1.0, 7};
    struct sampler b = {1.0, 7};
    struct sampler c = {1.0, 8};
    int differs = 0;
    for (int i = 0; i < 100; i++) {
        int32_t ids[3];
        cr_assert_eq(sampler_next(&a, logits, 50, &ids[0], NULL), 0);
        cr_assert_eq(sampler_next(&b, logits, 50, &ids[1], NULL), 0);
        cr_assert_eq(sampler_next(&c, logits, 50, &ids[2], NULL), 0);
        cr_assert_eq(ids[0], ids[1]);
        differs += ids[0] != ids[2];
    }
    cr_assert_gt(differs, 50);
}

/* Counts of draws follow the softmax: with 20000 draws five standard deviations are below 0.018. */
Test(sample, draws_from_the_softmax)
{
    enum { DRAWS = 20000 };
    static const float logits[4] = {1, 0, -INFINITY, 2};
    static const double temperatures[] = {0.5, 1, 3};
    for (size_t t = 0; t < 3; t++) {
        struct sampler s = {temperatures[t], 42};
        int counts[4] = {0};
        double total = 0;
        for (int i = 0; i < 4; i++)
            total += exp((double)logits[i] / temperatures[t]);
        for (int i = 0; i < DRAWS; i++) {
            int32_t id = 0;
            cr_assert_eq(sampler_next(&s, logits, 4, &id, NULL), 0);
            counts[id]++;
        }
        for (int i = 0; i < 4; i++)
            cr_assert_float_eq((double)counts[i] / DRAWS, exp((double)logits[i] / temperatures[t]) / total,
                               0.018, "token %d at temperature %g", i, temperatures[t]);
        cr_assert_eq(counts[2], 0);
    }
}
