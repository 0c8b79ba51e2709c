/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small seeded generator (SplitMix64), the same on every machine. */
#ifndef ENGINE_RNG_H
#define ENGINE_RNG_H

#include <stdint.h>

static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In [0, 1). */
static inline double rng_unit(uint64_t *state)
{
    return (double)(rng_next(state) >> 11) * 0x1p-53;
}

#endif
