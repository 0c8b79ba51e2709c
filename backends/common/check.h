/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Checks that plugins of several vendors make, so that no kernel has to ask: element types, spans, tensors,
 * scales, batches, caches, and what a run is given. Nothing here reads device memory: an address is looked
 * at, and only the functions that say so read what it points to, which then is host memory.
 */
#ifndef ATTN_COMMON_CHECK_H
#define ATTN_COMMON_CHECK_H

#include <stdbool.h>

#include "attn/layer-types.h"
#include "attn/types.h"
#include "fail.h"
#include "visible.h"

static inline char *attn__address(const struct attn_buffer *buffer)
{
    return buffer->data == NULL ? NULL : (char *)buffer->data + buffer->byte_offset;
}

/* ---------------------------------------------------------------- element types (dtype.c) */

/* Bytes of an element of f32, f16, bf16 and the 8-bit types; 0 for all other types. */
static inline uint32_t attn__dtype_size(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return 4;
    case ATTN_F16:
    case ATTN_BF16:
        return 2;
    case ATTN_E4M3:
    case ATTN_E5M2:
    case ATTN_E4M3FNUZ:
    case ATTN_E5M2FNUZ:
    case ATTN_INT8:
        return 1;
    default:
        return 0;
    }
}

/* Element type of an additive mask; 0 for bits. */
static inline uint32_t attn__mask_dtype(uint32_t mask)
{
    return mask == ATTN_MASK_F16    ? (uint32_t)ATTN_F16
           : mask == ATTN_MASK_BF16 ? (uint32_t)ATTN_BF16
           : mask == ATTN_MASK_F32  ? (uint32_t)ATTN_F32
                                    : 0;
}

/* The name in problem strings. */
const char *attn__dtype_name(uint32_t dtype);

/* ---------------------------------------------------------------- views (tensor-check.c) */

/* ATTN_E_SIZE or ATTN_E_INVALID unless the block holds `size` bytes, aligned. */
int32_t attn__span_check(const struct attn_span *span, uint64_t size, uint32_t alignment, const char *name,
                         struct attn_error *err);
/*
 * ATTN_OK if every element of a view [rows, heads, ...] can be addressed: it is given, aligned, and no offset
 * overflows. `written` forbids elements that share memory.
 */
int32_t attn__tensor_check(const struct attn_tensor *tensor, uint64_t rows, uint64_t heads, uint32_t dim,
                           uint32_t size, uint32_t written, const char *name, struct attn_error *err);
/* True if |a| * (n - 1) summed over up to three strides stays an offset. */
bool attn__strides_fit(const int64_t *strides, const uint64_t *counts, uint32_t n);
/* ATTN_OK if an 8-bit type has its scale, aligned, and no other type has one. */
int32_t attn__scale_check(const struct attn_scale *scale, uint32_t dtype, const char *name,
                          struct attn_error *err);

/* ---------------------------------------------------------------- batches (batch-check.c) */

/* What a check of a batch finds out. */
struct attn_extent {
    uint32_t max_kv;
    int64_t last_key; /* the highest page, or with kv_offsets the highest token; -1 = none */
};

/* Checks the scalars of a batch against the maxima, and which arrays are given; reads none of them. */
int32_t attn__batch_check_given(const struct attn_problem *problem, const struct attn_batch *batch,
                                struct attn_error *err);
/* Checks every array of a batch against the maxima; all are in host memory. */
int32_t attn__batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_extent *out, struct attn_error *err);
/* The same of a batch without queries: lengths, and where the keys are. */
int32_t attn__batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_extent *out, struct attn_error *err);
/* ATTN_E_INVALID if keys up to `extent` lie outside of a cache. */
int32_t attn__extent_check(const struct attn_problem *problem, const struct attn_batch *batch,
                           const struct attn_extent *extent, const struct attn_kv_desc *desc,
                           struct attn_error *err);
/* How the keys of a batch are spread over ranks; world 0 if the problem says that they are not. */
struct attn_spread attn__spread_of(const struct attn_problem *problem, const struct attn_batch *batch);

/* ---------------------------------------------------------------- caches (kv-check.c) */

/* The shape of a cache in one of the three flavours that backends have. */
int32_t attn__kv_shape(enum attn_flavour flavour, const struct attn_problem *problem, uint32_t pages,
                       struct attn_kv_shape *out, struct attn_error *err);
/* ATTN_OK if a description can be used. */
int32_t attn__kv_check(const struct attn_kv_desc *desc, struct attn_error *err);

/* ---------------------------------------------------------------- runs (run-check.c) */

/* q, out, lse, their scales, mask, slopes and sinks. */
int32_t attn__run_check_tensors(const struct attn_problem *problem, const struct attn_batch *batch,
                                const struct attn_tensors *tensors, struct attn_error *err);
/* What the array of mask starts holds, which is in host memory. */
int32_t attn__run_check_mask_starts(const struct attn_problem *problem, const struct attn_batch *batch,
                                    const struct attn_tensors *tensors, struct attn_error *err);
/* k_new and v_new of `tokens` rows. */
int32_t attn__run_check_new(const struct attn_problem *problem, const struct attn_tensors *tensors,
                            uint64_t tokens, struct attn_error *err);
/* The cache; `bare` if its description was not checked before. */
int32_t attn__run_check_cache(const struct attn_problem *problem, const struct attn_batch *batch,
                              const struct attn_extent *extent, const struct attn_kv_desc *desc, bool bare,
                              struct attn_error *err);

/* ---------------------------------------------------------------- other calls (call-check.c) */

/* New rows for a cache whose description was checked. */
int32_t attn__write_check(const struct attn_kv_write_args *args, uint64_t rows,
                          const struct attn_kv_desc *desc, struct attn_error *err);
/* Alignment of the arrays of a step of decoding. */
int32_t attn__advance_step_check(const struct attn_kv_advance_step_args *args, struct attn_error *err);
/* Parts and result of a merge whose type was checked. */
int32_t attn__merge_check(const struct attn_merge_args *args, struct attn_error *err);

/* ---------------------------------------------------------------- plans (plan-info.c) */

/* ATTN_OK if the problem has what every plan needs: maxima, heads and sizes. */
int32_t attn__plan_check_maxima(const struct attn_problem *problem, struct attn_error *err);
/* What every plan of a problem says of itself: alignment, and the bytes that a run touches at most. */
void attn__plan_info_init(struct attn_plan_info *out, const struct attn_problem *problem);

#endif
