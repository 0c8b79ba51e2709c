/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random small batches of every feature, and the formulas of docs/definition.md on them, key by key. */
#ifndef TEST_CPU_FEATURE_CASE_H
#define TEST_CPU_FEATURE_CASE_H

#include <stdbool.h>

#include "attn/attn.h"

enum { CASE_SEQS = 3, CASE_HEADS = 6, CASE_ROWS = 128, CASE_TABLE = 640, CASE_BLOCKS = 32 };

/* What a case may use beyond types, addressing, windows and soft caps. */
enum feature {
    WITH_SINKS = 1,
    WITH_ALIBI = 2,
    WITH_NEW = 4,       /* all keys are new */
    WITH_CACHE_NEW = 8, /* some */
    WITH_MASK = 16,
    WITH_8_BITS = 32,
};

/* One batch with all its memory, and the numbers that its stored elements stand for. */
struct feature_case {
    uint64_t random;
    uint32_t features; /* enum feature */
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    uint32_t most_keys;
    int32_t q_offsets[CASE_SEQS + 1];
    int32_t kv_lens[CASE_SEQS];
    int32_t kv_offsets[CASE_SEQS + 1]; /* of the new keys */
    uint8_t seq_causal[CASE_SEQS];
    int64_t positions[CASE_ROWS];
    int32_t table[CASE_SEQS][CASE_TABLE];
    double sinks[CASE_HEADS];
    double *mask; /* [sequence, head, row, column]; -inf = masked */
    uint32_t columns[CASE_SEQS];
    uint32_t most_columns;
    int64_t mask_starts[CASE_SEQS];
    float slopes[CASE_HEADS];
    double *q; /* [row, head, dim] */
    double *k; /* [sequence, key, kv head, dim] */
    double *v;
    void *blocks[CASE_BLOCKS];
    uint32_t block_count;
};

/* feature-case.c */
void case_begin(struct feature_case *c, uint64_t seed, uint32_t features);
void case_end(struct feature_case *c);
uint32_t case_draw(struct feature_case *c, uint32_t n);
void *case_memory(struct feature_case *c, uint64_t size);

/* feature-scale.c */
/* What a code of an 8-bit type stands for. */
double number_of_code(uint32_t dtype, uint8_t code);
/* Some code that is a number of moderate size. */
uint8_t case_draw_code(struct feature_case *c, uint32_t dtype);
/* A scale for [outer, tokens, heads] values; what is drawn depends on the type. */
struct attn_scale case_draw_scale(struct feature_case *c, uint32_t dtype, uint32_t granularity,
                                  uint32_t outer, uint32_t tokens, uint32_t heads);
double case_scale_at(const struct attn_scale *scale, int64_t outer, int64_t token, int64_t head);

/* feature-mask.c: before the contents of keys, which depend on who sees them */
void case_fill_mask(struct feature_case *c);

/* feature-reference.c */
struct reference_row {
    double out[64];
    double lse;
    double largest; /* value that it sees, at least 1 */
};
/* Whether query token i and head h of a sequence see key j; *bias is what the score gets. */
bool reference_sees(const struct feature_case *c, uint32_t seq, uint32_t i, uint32_t h, uint32_t j,
                    double *bias);
void reference_row(const struct feature_case *c, uint32_t seq, uint32_t i, uint32_t h,
                   struct reference_row *out);
/* Whether key j is read from k_new. */
bool reference_is_new(const struct feature_case *c, uint32_t seq, uint32_t j);
/* Where key j of a sequence lies in the cache, or its new row as token; false for a hole. */
bool reference_locate(const struct feature_case *c, uint32_t seq, uint32_t j, int64_t *page, int64_t *token);

#endif
