/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The two loops of a level, written once with vector types. The including file says how wide a vector is
 * (VECTOR_BYTES), how a multiply-add is spelled (MULTIPLY_ADD) and what the table is called (TABLE).
 *
 * Twelve independent chains hide the latency of two multiply-add ports of four or five cycles.
 */
#include <string.h>

#include "ceilings.h"

typedef float lanes __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t words __attribute__((vector_size(VECTOR_BYTES)));

enum { CHAINS = 12, PER_LINE = READ_LINE / VECTOR_BYTES };

/* One loop per kind, so that the plain one has nothing else in it. */
__attribute__((always_inline)) static inline uint64_t read_loop(const unsigned char *from, size_t size,
                                                                unsigned streams, size_t apart, size_t ahead)
{
    words sum[4] = {{0}, {0}, {0}, {0}};
    uint64_t result = 0;

    for (size_t offset = 0; offset < size; offset += READ_LINE) {
        for (unsigned s = 0; s < streams; s++) {
            const unsigned char *at = from + s * apart + offset;
            const words *line = (const words *)__builtin_assume_aligned(at, 64);
            for (unsigned i = 0; i < READ_LINE && ahead != 0; i += 64)
                __builtin_prefetch(at + ahead + i, 0, 3);
            for (unsigned i = 0; i < PER_LINE; i += 4) {
                sum[0] |= line[i];
                sum[1] |= line[i + 1];
                sum[2] |= line[i + 2];
                sum[3] |= line[i + 3];
            }
        }
    }
    sum[0] |= sum[1] | sum[2] | sum[3];
    for (unsigned i = 0; i < VECTOR_BYTES / 8; i++)
        result |= sum[0][i];
    return result;
}

static uint64_t read_streams(const unsigned char *from, size_t size, unsigned streams, size_t apart,
                             size_t ahead)
{
    return ahead != 0 ? read_loop(from, size, streams, apart, ahead)
                      : read_loop(from, size, streams, apart, 0);
}

static float compute_chains(uint64_t rounds)
{
    lanes x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, factor, addend;

    for (unsigned i = 0; i < VECTOR_BYTES / 4; i++) {
        factor[i] = 0.999f;
        addend[i] = 0.001f;
        x0[i] = (float)i;
    }
    x1 = x0 + addend, x2 = x1 + addend, x3 = x2 + addend, x4 = x3 + addend, x5 = x4 + addend;
    x6 = x5 + addend, x7 = x6 + addend, x8 = x7 + addend, x9 = x8 + addend, x10 = x9 + addend,
    x11 = x10 + addend;
    for (uint64_t i = 0; i < rounds; i++) {
        MULTIPLY_ADD(x0, factor, addend);
        MULTIPLY_ADD(x1, factor, addend);
        MULTIPLY_ADD(x2, factor, addend);
        MULTIPLY_ADD(x3, factor, addend);
        MULTIPLY_ADD(x4, factor, addend);
        MULTIPLY_ADD(x5, factor, addend);
        MULTIPLY_ADD(x6, factor, addend);
        MULTIPLY_ADD(x7, factor, addend);
        MULTIPLY_ADD(x8, factor, addend);
        MULTIPLY_ADD(x9, factor, addend);
        MULTIPLY_ADD(x10, factor, addend);
        MULTIPLY_ADD(x11, factor, addend);
    }
    x0 += x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10 + x11;
    return x0[0] + x0[VECTOR_BYTES / 4 - 1];
}

const struct ceiling_functions TABLE = {read_streams, compute_chains, 2 * CHAINS *VECTOR_BYTES / 4};
