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

/* Bytes of an element; 0 for what is no element type of the definition. */
uint32_t oracle_size(uint32_t dtype);

/* Whether the type has blocks of 32 elements. */
bool oracle_has_blocks(uint32_t dtype);

/* Bytes of `count` consecutive elements, whole blocks where there are blocks. */
size_t oracle_row_bytes(uint32_t dtype, uint32_t count);

/* The value of `count` consecutive elements, whole blocks where there are blocks. Exact. */
void oracle_load(uint32_t dtype, const void *from, uint32_t count, double *to);

/*
 * Writes one value, rounded to nearest even, subnormals included. Beyond the largest it becomes infinite, or
 * the largest where the type has 8 bits.
 */
void oracle_store(uint32_t dtype, double value, void *to);

/* 2^exponent, for exponents from -1022 to 1023; ldexp took a tenth of the time of attn-check. */
double oracle_power2(int exponent);

/* Distance from |value| to the next larger f32. */
double oracle_ulp32(double value);

/* Step of a format with `digits` binary digits and smallest normal exponent `least`, at a value. */
double oracle_step(double value, int digits, int least);

/* ---------------------------------------------------------------- code8.c */

bool oracle_is_8bit(uint32_t dtype);

/* Q: the largest value that is written. */
double oracle_most8(uint32_t dtype);

double oracle_decode8(uint32_t dtype, uint8_t code);
void oracle_load8(uint32_t dtype, const uint8_t *from, uint32_t count, double *to);

/* The code of a quotient: nearest even, saturating. */
uint8_t oracle_encode8(uint32_t dtype, double quotient);

/* The code of an f32 value: one f32 division by its scale, then oracle_encode8. */
uint8_t oracle_write8(uint32_t dtype, double value, double scale);

/* Whether a device may write this code: a neighbour too where the quotient is within 3 ulp of a midpoint. */
bool oracle_accepts8(uint32_t dtype, double value, double scale, uint8_t code);

/* The scale that a write computes for the row of one token and head. */
double oracle_token_scale(uint32_t dtype, const double *row, uint32_t count);

/* Writes such a row; returns its scale. */
double oracle_write_row8(uint32_t dtype, const double *row, uint32_t count, uint8_t *to);

/* ---------------------------------------------------------------- plain.c */

/*
 * Whether a problem is plain: a decoder on f32, f16 or bf16 over a strided cache, no mask, bias, sink or
 * scale. The oracle computes every problem; who only builds the inputs of plain ones asks this first. False:
 * *out_key names what is not plain.
 */
bool oracle_covers(const struct attn_problem *problem, const char **out_key);

/* ---------------------------------------------------------------- sequence.c */

/* What the rules need to know about one sequence of a batch. */
struct oracle_sequence {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_tensors *tensors; /* NULL after init: then no mask is known */
    const struct attn_kv_desc *kv;      /* NULL after init */
    uint32_t index;
    uint32_t first_row; /* row of query token 0 */
    uint32_t q_len;
    uint32_t kv_len;   /* keys that are here */
    uint32_t all_keys; /* Lk: with those of other ranks */
    uint32_t source;   /* enum attn_kv_source */
    bool causal;
    int64_t left; /* -1 = unlimited */
    int64_t right;
};

/* Where a key lies. */
struct oracle_place {
    bool is_new;   /* in k_new and v_new, not in the cache */
    int64_t page;  /* is_new: the sequence, which is what scales count by */
    int64_t token; /* in the page; is_new: the row of k_new */
};

/* One entry of an index array, i32 unless dtype is ATTN_INT64. */
int64_t oracle_element(const struct attn_buffer *buffer, uint64_t index, uint32_t dtype);

/* Lengths, causality and windows; tensors and kv stay NULL. */
void oracle_sequence_init(struct oracle_sequence *sequence, const struct attn_problem *problem,
                          const struct attn_batch *batch, uint32_t index);

/* Where key j lies. False if it does not exist. */
bool oracle_locate(const struct oracle_sequence *sequence, uint32_t j, struct oracle_place *out);

/* p: where query token i stands in the numbering of the keys, and where key j does. */
int64_t oracle_query_position(const struct oracle_sequence *sequence, uint32_t i);
int64_t oracle_key_position(const struct oracle_sequence *sequence, uint32_t j);

/* Whether causality and windows let query token i see key j. */
bool oracle_in_reach(const struct oracle_sequence *sequence, uint32_t i, uint32_t j);

/* Whether query token i sees key j, masks aside. */
bool oracle_visible(const struct oracle_sequence *sequence, uint32_t i, uint32_t j);

/* ---------------------------------------------------------------- mask.c */

bool oracle_has_mask(const struct oracle_sequence *sequence);

/* The column of key j in the mask of its sequence; -1 if no mask covers it. */
int64_t oracle_mask_column(const struct oracle_sequence *sequence, uint32_t j);

/* Whether query token i sees key j, all rules together; *out_bias is what an additive mask holds, or 0. */
bool oracle_sees(const struct oracle_sequence *sequence, uint32_t head, uint32_t i, uint32_t j,
                 double *out_bias);

/* The position of key j for ALiBi. */
int64_t oracle_alibi_position(const struct oracle_sequence *sequence, uint32_t j);

/* ---------------------------------------------------------------- source.c */

/*
 * One value of a scale; 1 without one. `outer` is the sequence or the page, `token` the row of the tensor or
 * the token in the page.
 */
double oracle_scale(const struct attn_scale *scale, uint32_t granularity, int64_t outer, int64_t token,
                    int64_t head);

/* g */
uint32_t oracle_kv_head(const struct attn_problem *problem, uint32_t head);

/* Vectors, their scales applied. */
void oracle_load_query(const struct oracle_sequence *sequence, uint32_t i, uint32_t head, double *to);
void oracle_load_key(const struct oracle_sequence *sequence, const struct oracle_place *place, uint32_t head,
                     double *to);
void oracle_load_value(const struct oracle_sequence *sequence, const struct oracle_place *place,
                       uint32_t head, double *to);

/* What a stored result is multiplied with to be the result. */
double oracle_out_scale(const struct oracle_sequence *sequence, uint32_t i, uint32_t head);

/* ---------------------------------------------------------------- attention.c */

/* Which (row, head) pairs to compute; NULL in oracle_attention means all of them. */
typedef bool (*oracle_filter_fn)(void *user, uint32_t row, uint32_t head);

/*
 * Arrays of the caller, [rows, heads] each and out [rows, heads, head_dim_vo]. Results are the true values:
 * an 8-bit out holds them divided by its scale.
 */
struct oracle_result {
    double *out;
    double *lse;
    uint32_t *seen;          /* keys that the pair sees; ORACLE_SKIPPED if it was not computed */
    double largest;          /* S: largest |s| of all computed pairs, bias included, finite ones only */
    double largest_uncapped; /* X: the same before the soft cap, without bias; 0 without a cap */
    double *slope;           /* g: of a soft cap at the scores of a pair, by their weight; NULL: not wanted */
};

#define ORACLE_SKIPPED UINT32_MAX

/*
 * `problem` is resolved. Every array of `batch`, `tensors` and `kv` is host memory; kv may be NULL where no
 * cache is read. False on lack of memory.
 */
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

/*
 * Bound of rms(out - ref) / rms(ref) over all rows that see a key. A single row may have four times it. For
 * an 8-bit out it is that of f32: an element may err by it times the rms of its row, and by half a code step.
 */
double oracle_bound_out(enum oracle_class class, uint32_t out_dtype, double largest);
/* The least magnitude that rounds to infinity in f32, f16 or bf16. */
double oracle_overflow(uint32_t dtype);
/*
 * |out - ref| of one element of these types. Infinity stands for all that rounds to it: it is exact where the
 * reference rounds to infinity of the same sign, and errs by what is missing to that where it does not.
 */
double oracle_error(uint32_t dtype, double result, double wanted);
/*
 * What remains of it when the rounding of the result to f16 or bf16 may have been as bad as it can: half a
 * step at the result. Of f32, and of infinity, all of it.
 */
double oracle_error_before_rounding(uint32_t dtype, double result, double wanted);
/* Bound of |lse - ref|. */
double oracle_bound_lse(enum oracle_class class, double largest, double lse);

/* Bounds of a merge of `parts` non-empty parts in a tree of depth `depth`, before the rounding of the result.
 */
double oracle_bound_merge_out(uint32_t parts, uint32_t depth, double largest_lse, double largest_out);
double oracle_bound_merge_lse(uint32_t parts, uint32_t depth, double largest_lse);
/* Half a step of the type at `value`: what one rounding may add. 8 bits: of codes, before their scale. */
double oracle_half_step(uint32_t dtype, double value);

#endif
