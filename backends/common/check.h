/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Checks that libattn leaves to plugins: alignment of addresses, and contents of arrays that are in host
 * memory. Also element types, and what every plan says of itself.
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

/* What an address has to be a multiple of; of a block, the size of its scale. */
static inline uint32_t attn__dtype_alignment(uint32_t dtype)
{
    return attn_block_bytes(dtype) != 0 ? (uint32_t)sizeof(uint16_t) : attn__dtype_size(dtype);
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

/* ---------------------------------------------------------------- alignment (align.c) */

/* An address of a call, and the power of two that it has to be a multiple of. NULL counts as aligned. */
struct attn__place {
    const struct attn_buffer *buffer;
    uint32_t size;
    const char *name;
};

int32_t attn__align_check(const struct attn__place *places, size_t count, struct attn_error *err);
int32_t attn__span_align(const struct attn_span *span, uint32_t alignment, const char *name,
                         struct attn_error *err);
int32_t attn__batch_align(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_error *err);
int32_t attn__kv_align(const struct attn_kv_desc *desc, struct attn_error *err);
int32_t attn__run_align(const struct attn_problem *problem, const struct attn_tensors *tensors,
                        struct attn_error *err);
int32_t attn__write_align(const struct attn_kv_write_args *args, struct attn_error *err);
int32_t attn__gather_align(const struct attn_kv_gather_args *args, struct attn_error *err);
int32_t attn__advance_step_align(const struct attn_kv_advance_step_args *args, struct attn_error *err);
int32_t attn__merge_align(const struct attn_merge_args *args, struct attn_error *err);
int32_t attn__rescale_align(const struct attn_rescale_args *args, struct attn_error *err);

/* ---------------------------------------------------------------- batches (batch-check.c) */

/* The largest number of keys, and the last page or token, that a batch reads. */
struct attn_extent {
    uint32_t max_kv;  /* keys of the longest sequence */
    int64_t last_key; /* the highest page, or with kv_offsets the highest token; -1 = none */
};

/*
 * Checks the contents of the arrays of a batch, whose scalars have been checked. `arrays` are those that the
 * host can read: without q_offsets queries are not checked. `out` may be NULL.
 */
int32_t attn__batch_check_arrays(const struct attn_problem *problem, const struct attn_batch *batch,
                                 const struct attn_batch_host *arrays, struct attn_extent *out,
                                 struct attn_error *err);
/* How the keys of a batch are sharded over ranks; world is 0 if they are not. */
struct attn_cp_shard attn__cp_shard_of(const struct attn_problem *problem, const struct attn_batch *batch);

/* ---------------------------------------------------------------- plans (plan-info.c) */

/* What all plans of a problem report: alignment, and the largest number of bytes that a run touches. */
void attn__plan_info_init(struct attn_plan_info *out, const struct attn_problem *problem);

#endif
