/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A second version of the oracle, and random cases that the two are compared on. */
#ifndef SECOND_H
#define SECOND_H

#include "oracle.h"

/* Limits of a random case; the second version takes nothing larger. */
enum {
    MOST_SEQS = 4,
    MOST_Q = 6,        /* query tokens of a sequence */
    MOST_K = 48,       /* keys of a sequence, those of all ranks */
    MOST_DIM = 40,     /* columns of a vector */
    MOST_HEADS = 9,    /* query heads */
    MOST_KV_HEADS = 3, /* kv heads */
    MOST_ROWS = MOST_SEQS * MOST_Q
};

struct second_result {
    double out[MOST_ROWS][MOST_HEADS][MOST_DIM];
    double lse[MOST_ROWS][MOST_HEADS];
    uint32_t seen[MOST_ROWS][MOST_HEADS];
};

/*
 * The same page of rules as oracle_attention, written another way: keys are gathered by global number, the
 * visible pairs are listed, and the softmax is taken in long double without shifting the scores. It shares
 * the decoders of element types and nothing else.
 */
void second_attention(const struct attn_problem *problem, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_desc *kv,
                      struct second_result *result);

/* One random case and all its memory. */
struct random_case {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    int32_t q_offsets[MOST_SEQS + 1];
    int32_t kv_lens[MOST_SEQS];
    int32_t kv_offsets[MOST_SEQS + 1];
    int32_t kv_global_lens[MOST_SEQS];
    int32_t table[MOST_SEQS][MOST_K];
    int32_t csr_indptr[MOST_SEQS + 1];
    int64_t csr_wide[MOST_SEQS * MOST_K];
    int32_t csr_narrow[MOST_SEQS * MOST_K];
    int32_t narrow_positions[MOST_ROWS];
    int64_t wide_positions[MOST_ROWS];
    uint8_t seq_causal[MOST_SEQS];
    int64_t mask_starts[MOST_SEQS];
    float slopes[MOST_HEADS];
    unsigned char sinks[MOST_HEADS * 4];
    float scales[6][4096];
    unsigned char q[1 << 16], q_rope[1 << 16], k_new[1 << 16], v_new[1 << 16];
    unsigned char k[1 << 18], v[1 << 18], mask[1 << 18];
};

/* The case of a seed. */
void random_case_init(struct random_case *c, uint64_t seed);

#endif
