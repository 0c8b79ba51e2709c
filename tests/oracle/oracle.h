/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The oracle: attention, merge and rescale in double precision, straight from docs/definition.md.
 *
 * It takes the public structs, all of them in host memory, so that a caller has nothing to translate, and it
 * shares no code with any kernel. Slow on purpose: no tiling, no tables, one formula after the other.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn/types.h"

/* ---------------------------------------------------------------- number.c */

/* Address of a buffer; NULL if it is not given. */
const unsigned char *oracle_address(const struct attn_buffer *buffer);

/* Bytes of an element of f32, f16 or bf16; 0 for other types. */
uint32_t oracle_size(uint32_t dtype);

/* The value of `count` consecutive elements. Exact. */
void oracle_load(uint32_t dtype, const void *from, uint32_t count, double *to);

/* Writes one value, rounded to nearest even, subnormals included; beyond the largest it becomes infinite. */
void oracle_store(uint32_t dtype, double value, void *to);

/* Distance from |value| to the next larger f32. */
double oracle_ulp32(double value);

/* ---------------------------------------------------------------- attention.c */

/* What the rules need to know about one sequence of a batch. */
struct oracle_sequence {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    uint32_t index;
    uint32_t first_row; /* row of query token 0 */
    uint32_t q_len;
    uint32_t kv_len;
    bool causal;
    int64_t left; /* -1 = unlimited */
    int64_t right;
};

/* False if the problem uses something that the oracle does not cover; *out_key names it. */
bool oracle_covers(const struct attn_problem *problem, const char **out_key);

void oracle_sequence_init(struct oracle_sequence *sequence, const struct attn_problem *problem,
                          const struct attn_batch *batch, uint32_t index);

/* Where key j lies in the cache. False for a hole. */
bool oracle_locate(const struct oracle_sequence *sequence, uint32_t j, int64_t *out_page, int64_t *out_token);

/* Whether query token i sees key j. */
bool oracle_visible(const struct oracle_sequence *sequence, uint32_t i, uint32_t j);

/* Which (row, head) pairs to compute; NULL in oracle_attention means all of them. */
typedef bool (*oracle_filter_fn)(void *user, uint32_t row, uint32_t head);

/* Arrays of the caller, [rows, heads] each and out [rows, heads, head_dim_vo]. */
struct oracle_result {
    double *out;
    double *lse;
    uint32_t *seen; /* keys that the pair sees; ORACLE_SKIPPED if it was not computed */
    double largest; /* S: largest |s| of all computed pairs, NaN aside */
};

#define ORACLE_SKIPPED UINT32_MAX

/* Every array of `batch`, `tensors` and `kv` is host memory. False on lack of memory. */
bool oracle_attention(const struct attn_problem *problem, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_desc *kv,
                      oracle_filter_fn filter, void *user, struct oracle_result *result);

/* ---------------------------------------------------------------- merge.c */

/* Arrays of the caller; the last three may be NULL. */
struct oracle_merged {
    double *out;         /* [rows, heads, dim] */
    double *lse;         /* [rows, heads] */
    double *largest_lse; /* [rows, heads] max |lse_k| of the parts that are not empty */
    double *largest_out; /* [rows, heads, dim] max |out_k| of them */
    uint32_t *parts;     /* [rows, heads] their number */
};

void oracle_merge(const struct attn_merge_args *args, const struct oracle_merged *merged);

/* Rescaled out [rows, heads, dim]; `args->out` is read only. */
void oracle_rescale(const struct attn_rescale_args *args, double *out);

/* ---------------------------------------------------------------- bounds.c */

/* What a kernel row does to its operands. */
enum oracle_class {
    ORACLE_UNROUNDED = 1, /* Q, K, V, P unrounded, f32 sums, no TF32 */
    ORACLE_P_F16,         /* P rounded to f16, row sum of unrounded P */
    ORACLE_P_BF16,
    ORACLE_SUM_F16, /* row sum of rounded P */
    ORACLE_SUM_BF16,
    ORACLE_P_E4M3,
    ORACLE_Q_QUANTISED
};

/* Bound of rms(out - ref) / rms(ref) over all rows that see a key. A single row may have four times it. */
double oracle_bound_out(enum oracle_class class, uint32_t out_dtype, double largest);
/* Bound of |lse - ref|. */
double oracle_bound_lse(enum oracle_class class, double largest, double lse);

/* Bounds of a merge of `parts` non-empty parts in a tree of depth `depth`, before the rounding of the result.
 */
double oracle_bound_merge_out(uint32_t parts, uint32_t depth, double largest_lse, double largest_out);
double oracle_bound_merge_lse(uint32_t parts, uint32_t depth, double largest_lse);
/* Half a step of the type at `value`: what one rounding may add. */
double oracle_half_step(uint32_t dtype, double value);

#endif
