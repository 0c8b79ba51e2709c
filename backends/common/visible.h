/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which keys a query token sees, apart from invalid blocks: one range (docs/definition.md, section 1). */
#ifndef ATTN_COMMON_VISIBLE_H
#define ATTN_COMMON_VISIBLE_H

#include "attn/types.h"

/* The mark of functions that device code includes; empty for host code. */
#ifndef ATTN__DEVICE
#define ATTN__DEVICE
#endif

/* How keys are sharded over ranks (section 4); world 0: they are not. */
struct attn_cp_shard {
    int64_t rank;
    int64_t world;
    int64_t interleave;
};

/*
 * a / b, b not 0. A 64-bit division compiles to much code for AMD GPUs, and kernels have many: there numbers
 * of 32 bits take a short division, and larger ones a loop.
 */
static inline ATTN__DEVICE uint64_t attn__quotient(uint64_t a, uint64_t b)
{
#if defined(__AMDGCN__)
    uint64_t rest = 0, quotient = a;

    if ((a | b) >> 32 == 0)
        return (uint32_t)a / (uint32_t)b;
#pragma nounroll
    for (uint32_t bit = 0; bit < 64; bit++) {
        rest = rest << 1 | quotient >> 63;
        quotient <<= 1;
        if (rest >= b) {
            rest -= b;
            quotient |= 1;
        }
    }
    return quotient;
#else
    return a / b;
#endif
}

/* a / b of numbers that are not negative. */
static inline ATTN__DEVICE int64_t attn__cp_divide(int64_t a, int64_t b)
{
#if defined(__AMDGCN__)
    return (int64_t)attn__quotient((uint64_t)a, (uint64_t)b);
#else
    return a / b;
#endif
}

static inline ATTN__DEVICE int64_t attn__cp_remainder(int64_t a, int64_t b, int64_t shares)
{
#if defined(__AMDGCN__)
    return a - shares * b;
#else
    (void)shares;
    return a % b;
#endif
}

/* Position of local key j, which grows with j. */
static inline ATTN__DEVICE int64_t attn__cp_position(const struct attn_cp_shard *shard, int64_t j)
{
    if (shard->world == 0)
        return j;
    const int64_t shares = attn__cp_divide(j, shard->interleave);

    return (shares * shard->world + shard->rank) * shard->interleave +
           attn__cp_remainder(j, shard->interleave, shares);
}

/* How many of the keys [0, all) this rank has. */
static inline ATTN__DEVICE int64_t attn__cp_count(const struct attn_cp_shard *shard, int64_t all)
{
    if (shard->world == 0)
        return all;
    int64_t share = shard->interleave, round = share * shard->world;
    const int64_t rounds = attn__cp_divide(all, round);
    int64_t rest = attn__cp_remainder(all, round, rounds) - share * shard->rank;

    return rounds * share + (rest < 0 ? 0 : rest > share ? share : rest);
}

/* The rules of one sequence. */
struct attn_visible {
    uint32_t causal;
    uint32_t kv_len;
    int64_t left; /* -1 = unlimited */
    int64_t right;
    int64_t shift;  /* position of query token 0, where no positions are given */
    int64_t square; /* first key of a square mask, from which on the mask decides; -1 = there is none */
    struct attn_cp_shard shard;
};

/* `causal` is the sequence's own flag. The problem is resolved. kv_len: Lk, keys of all ranks. */
void attn__visible_init(struct attn_visible *visible, const struct attn_problem *problem, uint32_t causal,
                        uint32_t q_len, uint32_t kv_len);

/*
 * Visible keys [*lo, *hi) of a query at a position; both 0 if there are none. With `shard`, which is all 0
 * after init, they are those of this rank, in its own numbering. With a square mask the range has the keys of
 * the mask, those that causality and window allow, and any keys in between: the mask is not read here.
 */
void attn__visible_range(const struct attn_visible *visible, int64_t position, uint32_t *lo, uint32_t *hi);

/* Element `index` of an array of positions (ATTN_INT32 or ATTN_INT64). */
static inline ATTN__DEVICE int64_t attn__position(const void *positions, uint32_t dtype, uint64_t index)
{
    if (dtype == ATTN_INT64)
        return ((const int64_t *)positions)[index];
    return ((const int32_t *)positions)[index];
}

#endif
