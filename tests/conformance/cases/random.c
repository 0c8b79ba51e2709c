/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random numbers that depend on nothing but the seed, and vectors made of them. */
#include "case.h"

#include <math.h>

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t rng_next(struct rng *rng)
{
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(rng->state, 0);
}

uint32_t rng_below(struct rng *rng, uint32_t n)
{
    return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

bool rng_chance(struct rng *rng, uint32_t percent)
{
    return rng_below(rng, 100) < percent;
}

void rng_shuffle(struct rng *rng, uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rng_below(rng, i);
        uint32_t swap = list[i - 1];
        list[i - 1] = list[j];
        list[j] = swap;
    }
}

void fill_vector(uint32_t dtype, void *to, uint32_t count, uint64_t key, double factor, bool positive)
{
    unsigned char *bytes = to;
    uint32_t size = oracle_size(dtype);

    for (uint32_t i = 0; i < count; i++) {
        /* 24 random bits: every bit of an f32 fraction is in use, and 16-bit types have to round. */
        double unit = (double)(mix(key, i) >> 40) * 0x1p-24;
        double value = positive ? 0.5 + unit : (2 * unit - 1) * sqrt(3);
        oracle_store(dtype, factor * value, bytes + (size_t)i * size);
    }
}
